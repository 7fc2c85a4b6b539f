// Collectives of the exchange protocol in a team of which the network reaches some members. The protocol, its arithmetic and
// its verdict are those of exchange.cu; what differs is how bytes get to a member:
//
//   publish   header and splits are in this PE's own slot, which lies in the heap: one put with the arrival word as its signal
//   push      every column to a network member is one put (or a few, of STAGE_BYTES); those are started before any store
//   done      after the quiet of every block, one word
//
// Addresses: `regions` holds for a network member this PE's own copy of the context, so that what the shared code stores for
// it lands where this PE has the same words anyway; `out_buffers` holds the symmetric address of its data area.
#pragma once

#include "../exchange/push.cuh"
#include "net.cuh"

namespace symm {
namespace net {
namespace collective {

using namespace symm::exchange;

// Headers come in the slots: a note's words are written at once by stores only.
struct Net {
  static constexpr bool FEW = false, NARROW = false, HEADERS = true;
  static __device__ __forceinline__ uint32_t form(const ExchangeParams& p) { return (uint32_t)p.form; }
};
typedef exchange::Shared<false> OfBlock;

// Copies what all members published as headers into `headers`, once their arrival words are here. The whole block.
__device__ __forceinline__ void read_headers(u64 (*headers)[HEADER_WORDS], const ExchangeParams& p, u64 epoch) {
  for (uint32_t k = threadIdx.x; k < p.ranks * HEADER_WORDS; k += blockDim.x) {
    const uint32_t r = k / HEADER_WORDS, word = k % HEADER_WORDS;
    headers[r][word] = load_relaxed_sys_u64((const u64*)(p.mine + slot(p, epoch, r)) + word);
  }
  __syncthreads();
}

__device__ __forceinline__ int pe_of(const ExchangeParams& p, uint32_t rank) { return (int)member(p, rank); }

// The copy of the context on a network member, as NVSHMEM names it.
__device__ __forceinline__ u64 remote_region(u64 table, uint32_t rank) { return ((const u64*)table)[rank]; }

// Sends this PE's slot, whose splits are `splits`, and raises the arrival word behind it. The whole block, after the slot was
// written and met over.
__device__ __forceinline__ void publish_remote(const NetParams& n, const ExchangeParams& p, u64 remote, u64 epoch, u64 splits) {
  const u64 own = p.mine + slot(p, epoch, p.rank);
  const u64 bytes = sizeof(Header) + 8 * splits;
  fence_acq_rel_sys();
  __syncthreads();
  for (uint32_t step = 0; step + 1 < p.ranks; step++) {
    const uint32_t r = destination(p, step);
    if (!is_network(n, r)) continue;
    const u64 there = remote_region(remote, r);
    symm_shim_put_signal_block((void*)(there + (own - p.mine)), (void*)own, bytes, (void*)(there + p.arrival + 8 * p.rank), epoch, 0, pe_of(p, r));
  }
}

// Raises this PE's word at `flags` on every member. One warp, after a quiet of everything that comes before.
__device__ __forceinline__ void raise_all(const NetParams& n, const ExchangeParams& p, u64 remote, u64 flags, u64 epoch) {
  const uint32_t lane = threadIdx.x & 31;
  if (lane == 0) {
    for (uint32_t step = 0; step + 1 < p.ranks; step++) {
      const uint32_t r = destination(p, step);
      if (is_network(n, r)) symm_shim_word64((void*)(remote_region(remote, r) + flags + 8 * p.rank), epoch, pe_of(p, r));
    }
  }
  __syncwarp();
  fence_acq_rel_sys();
  for (uint32_t r = lane; r < p.ranks; r += 32) {
    if (!is_network(n, r)) store_relaxed_sys_u64((void*)(region(p, r) + flags + 8 * p.rank), epoch);
  }
  if (lane == 0) symm_shim_quiet();
  __syncwarp();
}

// Tells every peer that this PE does nothing for `epoch` and later ones. One warp.
inline __device__ __noinline__ void give_up_all(const NetParams& n, const ExchangeParams& p, u64 remote, u64 epoch) {
  const uint32_t lane = threadIdx.x & 31;
  u64 before = 0;
  if (lane == 0) before = cas_acq_rel_gpu_u64(&((ContextLocal*)p.local)->gave_up, 0, epoch);
  if (__shfl_sync(exchange::ALL, before, 0) != 0) return;
  u64 cause = 0;
  if (lane == 0) cause = load_relaxed_gpu_u64(&((StatusRecord*)p.status.device)->pe) + 1;
  cause = __shfl_sync(exchange::ALL, cause, 0);
  for (uint32_t r = lane; r < p.ranks; r += 32) {
    if (r == p.rank || is_network(n, r)) continue;
    const u64 pair = region(p, r) + p.aborted + 16 * p.rank;
    store_relaxed_sys_u64((void*)(pair + 8), cause);
    store_release_sys_u64((void*)pair, epoch);
  }
  if (lane != 0) return;
  // The cause first, to everybody: one fence for all.
  for (int word = 1; word >= 0; word--) {
    for (uint32_t r = 0; r < p.ranks; r++) {
      if (r == p.rank || !is_network(n, r)) continue;
      const u64 pair = remote_region(remote, r) + p.aborted + 16 * p.rank;
      symm_shim_word64((void*)(pair + 8 * word), word == 1 ? cause : epoch, pe_of(p, r));
    }
    symm_shim_fence();
  }
  symm_shim_quiet();
}

// Waits for all members' words at `flags`, and makes what came with them visible. A member that gave up before this PE came has
// published, so that is looked for behind its word: nothing is then pushed to one that no longer waits. The first warp of a block.
__device__ __forceinline__ bool await_all(const NetParams& n, const ExchangeParams& p, u64 flags, u64 epoch, u64 phase, u64 began, bool host) {
  const Waiting w = {epoch, phase, began, host};
  if (!wait_members(p, flags, w)) return false;
  bool told = false;
  for (uint32_t r = threadIdx.x & 31; r < p.ranks && phase == PHASE_ARRIVAL; r += 32) {
    const u64 gave_up = load_relaxed_sys_u64((const void*)(p.mine + p.aborted + 16 * r));
    told |= gave_up != 0 && gave_up <= epoch;
  }
  if (__any_sync(exchange::ALL, told) && !exchange::goes_on(p, w, exchange::FlagSeen{p.mine + flags})) return false;
  if ((threadIdx.x & 31) == 0) {
    enter(n);
    symm_shim_update();
    leave(n);
  }
  __syncwarp();
  return true;
}

__device__ __forceinline__ uint32_t columns_each(const ExchangeParams& p) {
  return p.form == FORM_ALL_GATHER || p.form == FORM_ALL_TO_ALL ? 1 : (uint32_t)p.ne;
}

// Moves this share's part of all columns; those of the first tile are in `s`. The whole block.
__device__ __forceinline__ void push_all(const NetParams& n, OfBlock& s, const ExchangeParams& p, u64 epoch, uint32_t share, uint32_t shares) {
  const uint32_t each = columns_each(p);
  const u64 all = (u64)p.ranks * each;
  const u64 warps = (u64)shares * (blockDim.x / 32), warp = (u64)share * (blockDim.x / 32) + threadIdx.x / 32;
  Stage stage = {0, false};
  uint32_t turn = share;  // pieces of others before this share's next one
  u64 passed = 0;         // pieces of direct columns so far
  for (u64 begin = 0; begin < all; begin += blockDim.x) {
    const u64 end = begin + blockDim.x < all ? begin + blockDim.x : all;
    if (begin != 0) place_tile<Net>(s, p, epoch, {begin, end});
    // Network first: its transfers go on while the stores of the others do.
    for (u64 column = begin; column < end; column++) {
      const uint32_t r = destination(p, (uint32_t)(column / each));
      const u64 k = column - begin;
      if (is_network(n, r)) put<Source::Constant>(n, stage, s.dst[k], s.src[k], s.bytes[k], pe_of(p, r), turn, shares);
    }
    for (u64 column = begin; column < end; column++) {
      const uint32_t r = destination(p, (uint32_t)(column / each));
      const u64 k = column - begin, bytes = s.bytes[k];
      if (is_network(n, r) || bytes == 0) continue;
      const u64 pieces = (bytes + MAX_PIECE - 1) / MAX_PIECE;
      for (u64 at = (warp + warps - passed % warps) % warps; at < pieces; at += warps) {
        const u64 from = at * MAX_PIECE, left = bytes - from;
        warp_copy<Source::Constant>(s.dst[k] + from, s.src[k] + from, (uint32_t)(left < MAX_PIECE ? left : MAX_PIECE));
      }
      passed += pieces;
    }
    __syncthreads();  // before the next tile's columns replace these
  }
  finish(n, stage);
}

}  // namespace collective
}  // namespace net
}  // namespace symm

extern "C" __global__ void __launch_bounds__(symm::net::THREADS, 1) symm_net_exchange(const __grid_constant__ symm::NetExchangeParams q) {
  using namespace symm;
  using namespace symm::net::collective;
  __shared__ OfBlock s;
  const ExchangeParams& p = q.exchange;
  const NetParams& n = q.net;
  wait_for_stream();
  const uint32_t shares = gridDim.x;
  const bool first_warp = threadIdx.x < 32;

  if (threadIdx.x == 0) {
    s.began = now_ns();
    take_epoch(s, p, take_share(p));
    s.fault = 0;
  }
  if (threadIdx.x / 32 == 1) look_around(s, p);
  if (threadIdx.x == 0) net::enter(n);
  __syncthreads();
  const u64 epoch = s.epoch;
  const uint32_t share = s.share;
  bool fine = share != 0 || has_turn(s, p);
  if (share == 0 && fine) {
    publish_many<Net>(s, p, epoch);
    __syncthreads();
    publish_remote(n, p, q.remote, epoch, published_splits(p));
  }
  // Out of NVSHMEM while this waits for peers, who may be late.
  if (threadIdx.x == 0) net::leave(n);
  if (first_warp && fine) fine = await_all(n, p, p.arrival, epoch, PHASE_ARRIVAL, s.began, share == 0);
  fine = !__syncthreads_or(!fine);

  u64 outcome = SHARE;
  if (!fine) {
    outcome |= FAILED_WAIT;
  } else {
    const u64 all = (u64)p.ranks * columns_each(p);
    read_headers(s.header, p, epoch);
    if (!verdict<Net>(s, p, epoch, {0, all < blockDim.x ? all : blockDim.x})) {
      outcome |= FAILED_VERDICT;
    } else if (p.form != FORM_BARRIER) {
      if (threadIdx.x == 0) net::enter(n);
      push_all(n, s, p, epoch, share, shares);
      if (threadIdx.x == 0) net::leave(n);
      if (share == shares - 1 && p.out_splits != 0 && p.n_splits != 0) write_result<Net>(s, p, epoch);
    }
  }
  __syncthreads();
  if (!first_warp) return;
  acq_rel_sys<FENCE_NET_COUNT>();
  u64 counted = outcome;
  if (shares > 1) {
    if (threadIdx.x == 0) counted += fetch_add_relaxed_gpu_u64(&record_of(p)->finished, outcome);
    counted = __shfl_sync(exchange::ALL, counted, 0);
    if ((counted & SHARES) != shares) return;
    fence_acq_rel_sys();
  }

  // The share that ended last ends the operation.
  u64 failed = counted & ~SHARES;
  const uint32_t lane = threadIdx.x;
  const u64 number = epoch;
  if (failed == 0 && p.form != FORM_BARRIER) {
    if (lane == 0) net::enter(n);
    raise_all(n, p, q.remote, p.done, number);
    if (lane == 0) net::leave(n);
    if (!await_all(n, p, p.done, number, PHASE_DONE, s.began, true)) failed = FAILED_WAIT;
  }
  if (failed != 0) {
    if (failed < FAILED_VERDICT) {
      if (lane == 0) net::enter(n);
      give_up_all(n, p, q.remote, number);
      if (lane == 0) net::leave(n);
    }
    if (p.out_splits != 0) {
      for (u64 k = lane; k < p.n_splits; k += 32) ((long long*)p.out_splits)[k] = 0;
    }
    __syncwarp();
  }
  if (lane != 0) return;
  max_release_gpu_u64((void*)(p.mine + CONTEXT_COMPLETED), number);
  // What was published must have left this PE's slot before the operation after the next writes it again.
  net::enter(n);
  symm_shim_quiet();
  net::leave(n);
  if (shares > 1) clear_record(p);
}
