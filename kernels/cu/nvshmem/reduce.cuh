// Broadcast, reductions and the forms that take, in a team of which the network reaches some members: the protocol and the sums of
// reduce.cu and take.cu, by one block. Elements of a network member are brought to a stage, tile by tile, and added from there in rank order, so the bits
// are those that any other way gives.
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
__device__ __forceinline__ bool wait_block(const NetParams& n, Sums& s, const ExchangeParams& p, u64 flags, u64 epoch, u64 phase) {
  if (threadIdx.x < 32) {
    const bool fine = await_all(n, p, flags, epoch, phase, s.began, true);
    if (threadIdx.x == 0) s.fine = fine;
  }
  __syncthreads();
  return s.fine;
}

// Raises this PE's words at `flags`; the whole block, after its quiet.
__device__ __forceinline__ void raise_block(const NetParams& n, const ExchangeParams& p, u64 remote, u64 flags, u64 epoch) {
  __syncthreads();
  if (threadIdx.x < 32) raise_all(n, p, remote, flags, epoch);
  __syncthreads();
}

// Copies `bytes` bytes at `start` of this PE's buffer to the same place of every other member's. The whole block.
__device__ __forceinline__ void hand_on(const NetParams& n, Stage& stage, Sums& s, const ExchangeParams& p, u64 start, u64 bytes) {
  fence_acq_rel_sys();
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

// Calls `sum(begin, length, at)` for each tile of the run of `bytes` bytes at `from` of every buffer, while the buffers of network
// members are where their tiles are: the tile is `length` bytes at `begin`, `at` bytes into the run. The whole block.
template <typename Sum>
__device__ __forceinline__ void tiles(const NetParams& n, Stage& stage, Sums& s, const ExchangeParams& p, u64 from, u64 bytes, Sum sum) {
  uint32_t networks = 0;
  for (uint32_t r = 0; r < p.ranks; r++) networks += is_network(n, r);
  if (stage.at == 0) stage.at = take_stage(n);
  // Sixteen bytes more than a tile, so that it can lie as far from a vector's beginning as the others' bytes do.
  const u64 room = STAGE_BYTES / (networks == 0 ? 1 : networks) / 256 * 256, tile = room - 16;
  for (u64 at = 0; at < bytes; at += tile) {
    const u64 length = min_u64(bytes - at, tile), begin = from + at;
    const u64 skew = (s.buffer[p.rank] + begin) & 15;
    if (stage.dirty) quiet(stage);
    __syncthreads();
    for (uint32_t r = 0, k = 0; r < p.ranks; r++) {
      if (!is_network(n, r)) continue;
      const u64 here = stage.at + k++ * room + skew;
      symm_shim_get_block((void*)(s.buffer[r] + begin), (void*)here, length, pe_of(p, r));
      __syncthreads();
    }
    fence_acq_rel_sys();
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
__device__ __forceinline__ void add_all(const NetParams& n, Stage& stage, Sums& s, const ReduceParams& q) {
  const ExchangeParams& p = q.exchange;
  const u64 all = p.in_rows * p.row_bytes;
  if (p.form == FORM_ONE_SHOT_ALL_REDUCE) {
    add_run<E>(n, stage, s, p, 0, all, {q.result, 0, 0});
  } else if (p.form == FORM_REDUCE_SCATTER) {
    const u64 stride = all / q.lead, cols = stride / p.ranks;
    for (u64 row = 0; row < q.lead; row++)
      add_run<E>(n, stage, s, p, row * stride + cols * p.rank, cols, {q.result + row * cols, 0, 0});
  } else {
    u64 start, bytes;
    chunk(p, p.rank, start, bytes);
    add_run<E>(n, stage, s, p, start, bytes, {0, p.rank, 1});
    if (p.form == FORM_TWO_SHOT_ALL_REDUCE) hand_on(n, stage, s, p, start, bytes);
  }
}

// The sums of all members to this PE's memory.
__device__ __forceinline__ void gather_all(const NetParams& n, Stage& stage, Sums& s, const ReduceParams& q) {
  const ExchangeParams& p = q.exchange;
  for (uint32_t k = 0; k < p.ranks; k++) {
    const uint32_t r = (p.rank + k) % p.ranks;
    u64 start, bytes;
    chunk(p, r, start, bytes);
    if (!is_network(n, r)) {
      block_copy<Source::Shared>(q.result + start, s.buffer[r] + start, bytes);
      continue;
    }
    for (u64 at = 0; at < bytes; at += STAGE_BYTES)
      net::get(n, stage, q.result + start + at, s.buffer[r] + start + at, min_u64(bytes - at, STAGE_BYTES), pe_of(p, r));
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

__device__ __forceinline__ void work(const NetParams& n, Stage& stage, Sums& s, const ReduceParams& q) {
  const ExchangeParams& p = q.exchange;
  if (p.form == FORM_BROADCAST) {
    if (q.root == p.rank) hand_on(n, stage, s, p, 0, p.in_rows * p.row_bytes);
    return;
  }
  with_element(p, [&](auto element) { add_all<decltype(element)>(n, stage, s, q); });
}

// One block of every member's buffer, copied here.
__device__ __forceinline__ void copy_block(const NetParams& n, Stage& stage, Sums& s, const ExchangeParams& p, const Take& t) {
  for (uint32_t k = 1; k <= p.ranks; k++) {
    const uint32_t r = (p.rank + k) % p.ranks;
    for (u64 row = 0; row < t.rows; row++) {
      const u64 to = t.dst + r * t.dst_step + row * t.dst_stride, from = s.buffer[r] + t.src + row * t.src_stride;
      if (!is_network(n, r)) {
        block_copy<Source::Shared>(to, from, t.cols);
        continue;
      }
      for (u64 at = 0; at < t.cols; at += STAGE_BYTES)
        net::get(n, stage, to + at, from + at, min_u64(t.cols - at, STAGE_BYTES), pe_of(p, r));
    }
  }
  __syncthreads();
}

// One block of every member's buffer, added up here.
template <typename E>
__device__ __forceinline__ void sum_block(const NetParams& n, Stage& stage, Sums& s, const ExchangeParams& p, const Take& t, uint32_t divisor) {
  for (u64 row = 0; row < t.rows; row++) {
    const u64 to = t.dst + row * t.dst_stride;
    tiles(n, stage, s, p, t.src + row * t.src_stride, t.cols, [&](u64 begin, u64 length, u64 at) {
      take::sum_take<E>(s, {begin, length, 1, length, to + at, length, 0}, p.ranks, divisor, 0, 1);
    });
  }
}

// What is taken, by the forms that take; the low-contention ones do the same, since the copy engines do not reach the network.
__device__ __forceinline__ void take_all(const NetParams& n, Stage& stage, Sums& s, const TakeParams& t, bool adds) {
  const ExchangeParams& p = t.reduce.exchange;
  for (uint32_t k = 0; k < t.count; k++) {
    const Take& one = t.takes[k];
    if (one.rows == 0 || one.cols == 0) continue;
    if (adds) with_element(p, [&](auto element) { sum_block<decltype(element)>(n, stage, s, p, one, t.divisor); });
    else copy_block(n, stage, s, p, one);
  }
}

// One operation by one block: `work(stage)` is what this PE does once all have agreed.
template <typename Work>
__device__ __forceinline__ void run(Sums& s, const NetParams& n, const ReduceParams& r, u64 remote, Work work) {
  const ExchangeParams& p = r.exchange;
  wait_for_stream();
  if (threadIdx.x == 0) {
    s.began = now_ns();
    s.epoch = take_epoch(p, s.began);
  }
  __syncthreads();
  const u64 epoch = s.epoch & ~SKIP;
  const bool skip = s.epoch & SKIP;
  const bool brings = p.form == FORM_ONE_SHOT_ALL_REDUCE && p.input != 0 && p.invalid == 0;
  const bool gathers = p.form == FORM_TWO_SHOT_ALL_REDUCE_OUT;
  u64 failed = skip ? FAILED_WAIT : 0;
  Stage stage = {0, false};
  if (!skip) {
    if (brings) bring(r, 0, 1);
    __syncthreads();
    if (threadIdx.x == 0) enter(n);
    publish(n, r, remote, epoch);
    if (threadIdx.x == 0) leave(n);
    if (!wait_block(n, s, p, p.arrival, epoch, PHASE_ARRIVAL)) failed = FAILED_WAIT;
    else read_headers(s.header, p, epoch);
    if (failed == 0 && !verdict(s, r, epoch)) failed = FAILED_VERDICT;
  }
  if (threadIdx.x == 0) enter(n);
  if (failed == 0) {
    work(stage);
    finish(n, stage);
    raise_block(n, p, remote, p.done, epoch);
    if (threadIdx.x == 0) leave(n);
    if (!wait_block(n, s, p, p.done, epoch, PHASE_DONE)) failed = FAILED_WAIT;
    if (threadIdx.x == 0) enter(n);
    if (failed == 0 && gathers) {
      gather_all(n, stage, s, r);
      finish(n, stage);
      raise_block(n, p, remote, r.gathered, epoch);
      if (threadIdx.x == 0) leave(n);
      if (!wait_block(n, s, p, r.gathered, epoch, PHASE_GATHERED)) failed = FAILED_WAIT;
      if (threadIdx.x == 0) enter(n);
    }
  }
  // After a bad verdict nobody waits for this PE, and the peers are to find that verdict.
  if (failed != 0 && failed < FAILED_VERDICT && threadIdx.x < 32) give_up_all(n, p, remote, epoch);
  if (threadIdx.x != 0) return;
  symm_shim_quiet();
  leave(n);
  max_release_gpu_u64((void*)(p.mine + CONTEXT_COMPLETED), epoch);
}

}  // namespace sums
}  // namespace net
}  // namespace symm

extern "C" __global__ void __launch_bounds__(symm::net::THREADS, 1) symm_net_reduce(const __grid_constant__ symm::NetReduceParams q) {
  static_assert(symm::net::THREADS == symm::reduce::THREADS, "the sums are written for that many");
  __shared__ symm::net::sums::Sums s;
  symm::net::sums::run(s, q.net, q.reduce, q.remote, [&](symm::net::Stage& stage) { symm::net::sums::work(q.net, stage, s, q.reduce); });
}

extern "C" __global__ void __launch_bounds__(symm::net::THREADS, 1) symm_net_take(const __grid_constant__ symm::NetTakeParams q) {
  __shared__ symm::net::sums::Sums s;
  symm::net::sums::run(s, q.net, q.take.reduce, q.remote,
                       [&](symm::net::Stage& stage) { symm::net::sums::take_all(q.net, stage, s, q.take, q.adds); });
}
