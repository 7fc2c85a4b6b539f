// Broadcast, reductions and the forms that take, in a team of which the network reaches some members: the protocol, the stages and the
// shares of reduce.cu, the sums of reduce/ and take/. A share gets its part of a network member's elements to a stage of the heap, tile
// by tile, in one get a member, and adds them up from there in rank order, so the bits are those that any other way gives. What a share
// added up it also hands on, so no share waits for another within a stage.
//
//   bring      one_shot with a local input         its part to the own buffer
//   work       all                                 arrivals, verdict, its part, a quiet   done-flags out (and in, complete)
//   gather     two_shot with an output of its own  done-flags in, its part                gathered-flags out and in, complete
#pragma once

#include "../reduce/begin.cuh"
#include "../reduce/move.cuh"
#include "../reduce/verdict.cuh"
#include "../take/sum.cuh"
#include "exchange.cuh"

namespace symm {
namespace net {
namespace sums {

using namespace symm::reduce;
using collective::await_all;
using collective::give_up_all;
using collective::pe_of;
using collective::publish_remote;
using collective::raise_all;
using collective::read_headers;
using exchange::slot;

// Shares cut runs at multiples of this: of every element, and of what the network moves well.
constexpr u64 CUT = 256;

// Rows of a block that lie no further apart are got together, with what lies between them: a message costs as much as so many bytes, or
// more. (Over UCX and TCP on one machine 8 bytes take 38 us and 64 KiB 84 to 138: `scale_out` in docs/BENCHMARKS.md. A NIC of 50 GB/s
// moves 8 KiB in 160 ns, for which a proxy would have to start 6 million messages a second.)
constexpr u64 CLOSE = 8 * 1024;

struct Sums : reduce::Shared {
  u64 moved[MAX_RANKS];  // where buffers are whose tiles stand in for them
};

// Writes this PE's header into its slot here and on every direct member, and raises their arrival words; then the others'. The
// whole block.
__device__ __forceinline__ void publish(const NetParams& n, const ReduceParams& q, u64 remote, u64 epoch) {
  const ExchangeParams& p = q.exchange;
  for (uint32_t k = threadIdx.x; k < HEADER_WORDS * p.ranks; k += blockDim.x) {
    const uint32_t word = k % HEADER_WORDS, r = k / HEADER_WORDS;
    ((u64*)(region(p, r) + slot(p, epoch, p.rank)))[word] = word == 0 ? epoch : q.header[word];
  }
  __syncthreads();
  if (threadIdx.x < 32) raise_flags(p, p.arrival, epoch);
  publish_remote(n, p, remote, epoch, 0);
}

// The block waits for all members' words at `flags`; the same on every thread.
__device__ __forceinline__ bool wait_block(const NetParams& n, Sums& s, const ExchangeParams& p, u64 flags, u64 epoch, u64 phase, bool host) {
  if (threadIdx.x < 32) {
    const bool fine = await_all(n, p, flags, epoch, phase, s.began, host);
    if (threadIdx.x == 0) s.fine = fine;
  }
  __syncthreads();
  return s.fine;
}

// This share's part of `bytes` bytes: first one, and how many.
__device__ __forceinline__ u64 part_of(u64 bytes, uint32_t share, uint32_t shares, u64& length) {
  const u64 each = ((bytes + shares - 1) / shares + CUT - 1) / CUT * CUT;
  const u64 begin = min_u64(each * share, bytes);
  length = min_u64(each, bytes - begin);
  return begin;
}

// Calls `f(row, begin, length)` for this share's part of `rows` runs of `bytes` bytes: whole runs where there are as many as shares,
// else a part of each. The same on every thread.
template <typename F>
__device__ __forceinline__ void each_run(u64 rows, u64 bytes, uint32_t share, uint32_t shares, F f) {
  if (rows >= shares) {
    for (u64 row = share; row < rows; row += shares) f(row, (u64)0, bytes);
    return;
  }
  u64 length;
  const u64 begin = part_of(bytes, share, shares, length);
  if (length == 0) return;
  for (u64 row = 0; row < rows; row++) f(row, begin, length);
}

// How many rows of a block one get brings, each with what lies behind it up to the next one: `room` bytes at most, and as few as give
// every share some, unless that were little. 1: each row by itself.
__device__ __forceinline__ u64 rows_together(const Take& t, u64 room, uint32_t shares) {
  if (t.rows < 2 || t.src_stride < t.cols || t.src_stride - t.cols > CLOSE || t.src_stride + t.cols > room) return 1;
  const u64 most = (room - t.cols) / t.src_stride + 1, even = (t.rows + shares - 1) / shares, least = CLOSE / t.src_stride + 1;
  return min_u64(most, even > least ? even : least);
}

// Calls `f(row, rows, bytes)` for this share's groups of at most `together` rows of a block; `bytes` is what they span. The same on every
// thread.
template <typename F>
__device__ __forceinline__ void each_group(const Take& t, u64 together, uint32_t share, uint32_t shares, F f) {
  for (u64 row = share * together; row < t.rows; row += shares * together) {
    const u64 rows = min_u64(together, t.rows - row);
    f(row, rows, (rows - 1) * t.src_stride + t.cols);
  }
}

// Copies `bytes` bytes at `start` of this PE's buffer to the same place of every other member's. The whole block.
__device__ __forceinline__ void hand_on(const NetParams& n, Stage& stage, Sums& s, const ExchangeParams& p, u64 start, u64 bytes) {
  acq_rel_sys<FENCE_NET_HANDED>();
  __syncthreads();
  for (int direct = 0; direct < 2; direct++) {
    for (uint32_t k = 1; k < p.ranks; k++) {
      const uint32_t r = (p.rank + k) % p.ranks;
      if (is_network(n, r) == (direct == 1)) continue;
      uint32_t turn = 0;
      const u64 to = s.buffer[r] + start, from = s.buffer[p.rank] + start;
      if (direct) block_copy<Source::Shared>(to, from, bytes);
      else net::put<Source::Shared>(n, stage, to, from, bytes, pe_of(p, r), turn, 1);
    }
  }
  __syncthreads();
}

// Bytes of one member's tile, where all network members have one in the stage at the same time: sixteen more are left, so that a tile can
// lie as far from a vector's beginning as the others' bytes do.
__device__ __forceinline__ u64 tile_bytes(const NetParams& n, const ExchangeParams& p) {
  uint32_t networks = 0;
  for (uint32_t r = 0; r < p.ranks; r++) networks += is_network(n, r);
  return STAGE_BYTES / (networks == 0 ? 1 : networks) / 256 * 256 - 16;
}

// Calls `sum(begin, length, at)` for each tile of the run of `bytes` bytes at `from` of every buffer, while the buffers of network
// members are where their tiles are: the tile is `length` bytes at `begin`, `at` bytes into the run. The whole block.
template <typename Sum>
__device__ __forceinline__ void tiles(const NetParams& n, Stage& stage, Sums& s, const ExchangeParams& p, u64 from, u64 bytes, Sum sum) {
  if (stage.at == 0) stage.at = take_stage(n);
  const u64 tile = tile_bytes(n, p), room = tile + 16;
  for (u64 at = 0; at < bytes; at += tile) {
    const u64 length = min_u64(bytes - at, tile), begin = from + at;
    const u64 skew = (s.buffer[p.rank] + begin) & 15;
    if (stage.dirty) quiet(stage);
    __syncthreads();
    for (uint32_t r = 0, k = 0; r < p.ranks; r++) {
      if (!is_network(n, r)) continue;
      get_block(stage.at + k++ * room + skew, s.buffer[r] + begin, length, pe_of(p, r));
    }
    if (threadIdx.x < p.ranks && is_network(n, threadIdx.x)) {
      uint32_t k = 0;
      for (uint32_t r = 0; r < threadIdx.x; r++) k += is_network(n, r);
      s.moved[threadIdx.x] = s.buffer[threadIdx.x];
      s.buffer[threadIdx.x] = stage.at + k * room + skew - begin;
    }
    __syncthreads();
    sum(begin, length, at);
    __syncthreads();
    if (threadIdx.x < p.ranks && is_network(n, threadIdx.x)) s.buffer[threadIdx.x] = s.moved[threadIdx.x];
    __syncthreads();
  }
}

// Adds up one run of every buffer. The whole block.
template <typename E>
__device__ __forceinline__ void add_run(const NetParams& n, Stage& stage, Sums& s, const ExchangeParams& p, u64 from, u64 bytes, Target target) {
  tiles(n, stage, s, p, from, bytes, [&](u64 begin, u64 length, u64 at) {
    Target to = target;
    if (to.result != 0) to.result += at;
    sum_part<E>(s, {begin, 1, length, length}, to, p.ranks, 0, 1);
  });
}

template <typename E>
__device__ __forceinline__ void add_all(const NetParams& n, Stage& stage, Sums& s, const ReduceParams& q, uint32_t share, uint32_t shares) {
  const ExchangeParams& p = q.exchange;
  const u64 all = p.in_rows * p.row_bytes;
  u64 length;
  if (p.form == FORM_ONE_SHOT_ALL_REDUCE) {
    const u64 begin = part_of(all, share, shares, length);
    add_run<E>(n, stage, s, p, begin, length, {q.result + begin, 0, 0});
  } else if (p.form == FORM_REDUCE_SCATTER) {
    const u64 stride = all / q.lead, cols = stride / p.ranks;
    each_run(q.lead, cols, share, shares, [&](u64 row, u64 begin, u64 bytes) {
      add_run<E>(n, stage, s, p, row * stride + cols * p.rank + begin, bytes, {q.result + row * cols + begin, 0, 0});
    });
  } else {
    u64 start, bytes;
    chunk(p, p.rank, start, bytes);
    const u64 begin = start + part_of(bytes, share, shares, length);
    add_run<E>(n, stage, s, p, begin, length, {0, p.rank, 1});
    if (p.form == FORM_TWO_SHOT_ALL_REDUCE) hand_on(n, stage, s, p, begin, length);
  }
}

// Copies groups of rows of a network member's block, through the stage.
__device__ __forceinline__ void copy_groups(const NetParams& n, Stage& stage, const Take& t, u64 together, u64 from, u64 to, int pe, uint32_t share, uint32_t shares) {
  each_group(t, together, share, shares, [&](u64 row, u64 rows, u64 bytes) {
    net::get_to_heap(n, stage, 0, from + row * t.src_stride, bytes, pe);
    for (u64 k = threadIdx.x / 32; k < rows; k += blockDim.x / 32)
      for (u64 at = 0; at < t.cols; at += MAX_PIECE)
        warp_copy<Source::Shared>(to + (row + k) * t.dst_stride + at, stage.at + k * t.src_stride + at, (uint32_t)min_u64(t.cols - at, MAX_PIECE));
    __syncthreads();
  });
}

// Copies this share's part of `rows` runs of `bytes` bytes of every member's buffer: the first at `src`, to `dst` and a step for each
// rank. Gets of network members first: stores of direct ones go on meanwhile only in other blocks, since a get returns when it is done.
__device__ __forceinline__ void copy_runs(const NetParams& n, Stage& stage, const Sums& s, const ExchangeParams& p, const Take& t, uint32_t share, uint32_t shares) {
  const u64 together = rows_together(t, STAGE_BYTES, shares);
  for (int direct = 0; direct < 2; direct++) {
    for (uint32_t k = 1; k <= p.ranks; k++) {
      const uint32_t r = (p.rank + k) % p.ranks;
      if (is_network(n, r) == (direct == 1)) continue;
      if (!direct && together > 1) {
        copy_groups(n, stage, t, together, s.buffer[r] + t.src, t.dst + r * t.dst_step, pe_of(p, r), share, shares);
        continue;
      }
      each_run(t.rows, t.cols, share, shares, [&](u64 row, u64 begin, u64 bytes) {
        const u64 to = t.dst + r * t.dst_step + row * t.dst_stride + begin, from = s.buffer[r] + t.src + row * t.src_stride + begin;
        if (direct) {
          block_copy<Source::Shared>(to, from, bytes);
          return;
        }
        for (u64 at = 0; at < bytes; at += STAGE_BYTES) net::get(n, stage, to + at, from + at, min_u64(bytes - at, STAGE_BYTES), pe_of(p, r));
      });
    }
  }
  __syncthreads();
}

// This share's part of the sums of all members, to this PE's memory.
__device__ __forceinline__ void gather_all(const NetParams& n, Stage& stage, Sums& s, const ReduceParams& q, uint32_t share, uint32_t shares) {
  const ExchangeParams& p = q.exchange;
  for (uint32_t k = 0; k < p.ranks; k++) {
    const uint32_t r = (p.rank + k) % p.ranks;
    u64 start, bytes, length;
    chunk(p, r, start, bytes);
    const u64 begin = start + part_of(bytes, share, shares, length), to = q.result + begin, from = s.buffer[r] + begin;
    if (!is_network(n, r)) {
      block_copy<Source::Shared>(to, from, length);
      continue;
    }
    for (u64 at = 0; at < length; at += STAGE_BYTES) net::get(n, stage, to + at, from + at, min_u64(length - at, STAGE_BYTES), pe_of(p, r));
  }
  __syncthreads();
}

// Calls `f` with the element type of the operation.
template <typename F>
__device__ __forceinline__ void with_element(const ExchangeParams& p, F f) {
  switch (p.dtype) {
    case DTYPE_F16: return f(F16());
    case DTYPE_BF16: return f(BF16());
    case DTYPE_F32: return f(F32());
    case DTYPE_F64: return f(F64());
    case DTYPE_I32: return f(I32());
    case DTYPE_I64: return f(I64());
  }
}

__device__ __forceinline__ void work(const NetParams& n, Stage& stage, Sums& s, const ReduceParams& q, uint32_t share, uint32_t shares) {
  const ExchangeParams& p = q.exchange;
  if (p.form == FORM_BROADCAST) {
    u64 length;
    const u64 begin = part_of(p.in_rows * p.row_bytes, share, shares, length);
    if (q.root == p.rank) hand_on(n, stage, s, p, begin, length);
    return;
  }
  with_element(p, [&](auto element) { add_all<decltype(element)>(n, stage, s, q, share, shares); });
}

// This share's part of one block of every member's buffer, added up here.
template <typename E>
__device__ __forceinline__ void sum_block(const NetParams& n, Stage& stage, Sums& s, const ExchangeParams& p, const Take& t, uint32_t divisor, uint32_t share, uint32_t shares) {
  const u64 together = rows_together(t, tile_bytes(n, p), shares);
  if (together > 1) {
    each_group(t, together, share, shares, [&](u64 row, u64 rows, u64 span) {
      tiles(n, stage, s, p, t.src + row * t.src_stride, span, [&](u64 begin, u64, u64) {
        take::sum_take<E>(s, {begin, t.src_stride, rows, t.cols, t.dst + row * t.dst_stride, t.dst_stride, 0}, p.ranks, divisor, 0, 1);
      });
    });
    return;
  }
  each_run(t.rows, t.cols, share, shares, [&](u64 row, u64 first, u64 bytes) {
    const u64 to = t.dst + row * t.dst_stride + first;
    tiles(n, stage, s, p, t.src + row * t.src_stride + first, bytes, [&](u64 begin, u64 length, u64 at) {
      take::sum_take<E>(s, {begin, length, 1, length, to + at, length, 0}, p.ranks, divisor, 0, 1);
    });
  });
}

// What is taken, by the forms that take; the low-contention ones do the same, since the copy engines do not reach the network.
__device__ __forceinline__ void take_all(const NetParams& n, Stage& stage, Sums& s, const TakeParams& t, bool adds, uint32_t share, uint32_t shares) {
  const ExchangeParams& p = t.reduce.exchange;
  for (uint32_t k = 0; k < t.count; k++) {
    const Take& one = t.takes[k];
    if (one.rows == 0 || one.cols == 0) continue;
    if (adds) with_element(p, [&](auto element) { sum_block<decltype(element)>(n, stage, s, p, one, t.divisor, share, shares); });
    else copy_runs(n, stage, s, p, one, share, shares);
  }
}

// Ends the operation: the first warp of the share that ended last of all.
__device__ __forceinline__ void end_operation(const NetParams& n, const ExchangeParams& p, u64 remote, u64 epoch, uint32_t stages, u64 failed) {
  const uint32_t lane = threadIdx.x & 31;
  if (lane == 0) enter(n);
  __syncwarp();
  // After a bad verdict nobody waits for this PE, and the peers are to find that verdict.
  if (failed != 0 && failed < FAILED_VERDICT) give_up_all(n, p, remote, epoch);
  if (lane != 0) return;
  // What was published must have left this PE's slot before the operation after the next writes it again.
  symm_shim_quiet();
  leave(n);
  LaunchRecord* record = exchange::record_of(p);
  for (uint32_t stage = 0; stage < stages; stage++) store_relaxed_gpu_u64(&record->stages[stage], 0);
  store_relaxed_gpu_u64(&record->epoch, 0);
  // Of one stage all tickets are taken by now; of more the last block to leave puts them back.
  if (stages == 1) store_relaxed_gpu_u32(&record->tickets, 0);
  max_release_gpu_u64((void*)(p.mine + CONTEXT_COMPLETED), epoch);
}

// The whole launch. `work(s, stage, share, shares)` is what a share does once all have agreed. Out of NVSHMEM while this PE waits for
// others, who may be late.
template <typename Work>
__device__ __forceinline__ void run(const NetParams& n, const ReduceParams& q, u64 remote, Work work) {
  __shared__ Sums s;
  wait_for_stream();
  const ExchangeParams& p = q.exchange;
  LaunchRecord* record = exchange::record_of(p);
  const bool first_warp = threadIdx.x < 32;
  const uint32_t shares = gridDim.x;
  const bool brings = p.form == FORM_ONE_SHOT_ALL_REDUCE && p.input != 0 && p.invalid == 0;
  const bool gathers = p.form == FORM_TWO_SHOT_ALL_REDUCE_OUT;
  const uint32_t at_work = brings, stages = 1 + brings + gathers;

  for (;;) {
    if (threadIdx.x == 0) {
      s.began = now_ns();
      s.ticket = fetch_add_relaxed_gpu_u32(&record->tickets, 1);
      if (s.ticket == 0) {
        s.epoch = take_epoch(p, s.began);
        // Release: whoever sees the epoch sees what the operation before left.
        store_release_gpu_u64(&record->epoch, s.epoch);
      } else if (s.ticket < stages * shares) {
        // Bounded by the deadline of the block that holds ticket 0, which is running.
        u64 epoch;
        do epoch = load_acquire_gpu_u64(&record->epoch);
        while (epoch == 0);
        s.epoch = epoch;
      }
    }
    __syncthreads();
    if (s.ticket >= stages * shares) break;
    const uint32_t number = s.ticket / shares, share = s.ticket % shares;
    const u64 epoch = s.epoch & ~SKIP;
    const bool bringing = brings && number == 0, works = number == at_work;

    u64 outcome = SHARE;
    if (s.epoch & SKIP) {
      outcome |= FAILED_WAIT;
    } else if (bringing) {
      bring(q, share, shares);
    } else {
      if (works && share == 0) {
        if (brings) await_stage(record, 0, shares);
        __syncthreads();
        if (threadIdx.x == 0) enter(n);
        publish(n, q, remote, epoch);
        if (threadIdx.x == 0) leave(n);
      }
      const bool came = works ? wait_block(n, s, p, p.arrival, epoch, PHASE_ARRIVAL, share == 0)
                              : wait_block(n, s, p, p.done, epoch, PHASE_DONE, share == 0);
      if (!came) {
        outcome |= FAILED_WAIT;
      } else {
        read_headers(s.header, p, epoch);
        bool agreed = true;
        if (works) agreed = verdict(s, q, epoch);
        else find_buffers(s, q);
        if (!agreed) {
          outcome |= FAILED_VERDICT;
        } else {
          Stage stage = {0, false};
          if (threadIdx.x == 0) enter(n);
          if (works) work(s, stage, share, shares);
          else gather_all(n, stage, s, q, share, shares);
          finish(n, stage);
          if (threadIdx.x == 0) leave(n);
        }
      }
    }

    __syncthreads();
    if (threadIdx.x == 0) {
      // All that this share has read and written comes before its count, and what other shares counted before what follows.
      acq_rel_sys<FENCE_NET_COUNT>();
      s.counted = fetch_add_relaxed_gpu_u64(&record->stages[number], outcome) + outcome;
      fence_acq_rel_sys();
    }
    __syncthreads();
    if ((s.counted & SHARES) != shares || bringing) {
      if (stages == 1) return;
      continue;
    }
    // The last share of the stage.
    const bool last = number == stages - 1;
    u64 failed = s.counted & ~SHARES;
    // Shares of earlier stages may still be on their way out, all of them in blocks that run.
    if (last) {
      for (uint32_t before = 0; before < number; before++) failed |= await_stage(record, before, shares) & ~SHARES;
      // The first warp puts the counts back to zero: nobody may still be looking.
      __syncthreads();
    }
    if (first_warp) {
      const u64 flags = works ? p.done : q.gathered;
      if (failed == 0) {
        if (threadIdx.x == 0) enter(n);
        raise_all(n, p, remote, flags, epoch);
        if (threadIdx.x == 0) leave(n);
        if (last && !await_all(n, p, flags, epoch, works ? PHASE_DONE : PHASE_GATHERED, s.began, true)) failed = FAILED_WAIT;
      }
      if (last) end_operation(n, p, remote, epoch, stages, failed);
    }
    if (stages == 1) return;
    __syncthreads();
  }
  // Every block of a launch with stages takes exactly one ticket too many; whoever takes the last of those is the last to touch the count.
  if (threadIdx.x == 0 && s.ticket == (stages + 1) * shares - 1) store_relaxed_gpu_u32(&record->tickets, 0);
}

}  // namespace sums
}  // namespace net
}  // namespace symm

extern "C" __global__ void __launch_bounds__(symm::net::THREADS, 1) symm_net_reduce(const __grid_constant__ symm::NetReduceParams q) {
  using namespace symm::net;
  static_assert(THREADS == symm::reduce::THREADS, "the sums are written for that many");
  sums::run(q.net, q.reduce, q.remote, [&](sums::Sums& s, Stage& stage, uint32_t share, uint32_t shares) {
    sums::work(q.net, stage, s, q.reduce, share, shares);
  });
}

extern "C" __global__ void __launch_bounds__(symm::net::THREADS, 1) symm_net_take(const __grid_constant__ symm::NetTakeParams q) {
  using namespace symm::net;
  sums::run(q.net, q.take.reduce, q.remote, [&](sums::Sums& s, Stage& stage, uint32_t share, uint32_t shares) {
    sums::take_all(q.net, stage, s, q.take, q.adds, share, shares);
  });
}
