// What all parts of the reduction kernel share.
//
// Each stage of a launch is cut into as many shares as the launch has blocks; a block takes shares by an atomic ticket
// until none is left, those of a stage after those of the stage before. Blocks wait for flags of other PEs, and for what
// blocks with lower tickets do, which are running: never for a block that may not have started. So one resident block is
// enough to finish a launch.
#pragma once

#include "../exchange/members.cuh"
#include "symm/copy.cuh"
#include "symm/exchange.cuh"
#include "symm/params.cuh"

namespace symm {
namespace reduce {

using exchange::ALL;
using exchange::bit_of_pe;
using exchange::destination;
using exchange::give_up;
using exchange::member;
using exchange::note_of;
using exchange::Read;
using exchange::read_note;
using exchange::record_of;
using exchange::region;
using exchange::status_of;
using exchange::wait_members;
using exchange::Waiting;

constexpr int THREADS = 512;
constexpr int WARPS = THREADS / 32;

// LaunchRecord::stages counts the shares of a stage that ended, and those that failed for each reason.
constexpr u64 SHARE = 1;
constexpr u64 SHARES = 0xffff;
constexpr u64 FAILED_WAIT = 1ull << 16;     // a deadline, a peer that gave up, a failure set by somebody else
constexpr u64 FAILED_VERDICT = 1ull << 40;  // all members reach the same verdict: nobody waits for anybody

// LaunchRecord::epoch of an operation that does nothing: the team had failed, or the wait for its turn did.
constexpr u64 SKIP = 1ull << 63;

// Whether a kernel's element type is void: it adds nothing up.
template <typename T>
struct is_void {
  static constexpr bool value = false;
};
template <>
struct is_void<void> {
  static constexpr bool value = true;
};

struct Shared {
  u64 epoch;
  u64 began;
  u64 counted;
  uint32_t ticket;
  uint32_t fine;
  // What the members published; index = rank.
  u64 header[MAX_RANKS][HEADER_WORDS];
  uint32_t skewed;  // bits in which the addresses of sources and targets differ
  // The lowest finding of the verdict.
  u64 best;
  u64 fault, a, b;
  // Address of the first element of each member's buffer; index = rank.
  u64 buffer[MAX_RANKS];
};

__device__ __forceinline__ u64 min_u64(u64 a, u64 b) { return a < b ? a : b; }

// Raises this PE's word at `flags` on every member, after everything that this warp has seen or written. One warp.
__device__ __forceinline__ void raise_flags(const ExchangeParams& p, u64 flags, u64 epoch) {
  // Each lane's fence, behind the block's or warp's barrier, covers what the other threads did; it makes each store below
  // a release.
  release_sys<FENCE_REDUCED>();
  for (uint32_t k = threadIdx.x & 31; k < p.ranks; k += 32) {
    const uint32_t r = (p.rank + 1 + k) % p.ranks;
    store_relaxed_sys_u64((void*)(region(p, r) + flags + 8 * p.rank), epoch);
  }
}

// Waits until all shares of an earlier stage have ended and returns their count and failures; the whole block.
__device__ __forceinline__ u64 await_stage(LaunchRecord* record, uint32_t stage, uint32_t shares) {
  // Every thread looks by itself: each has then acquired what the shares did. Bounded by the deadlines of those.
  u64 counted;
  do counted = load_acquire_gpu_u64(&record->stages[stage]);
  while ((counted & SHARES) != shares);
  return counted;
}

// The block waits for all members' words at `flags`. Returns the same on every thread, which then sees what the members
// did before.
__device__ __forceinline__ bool wait_all(Shared& s, const ExchangeParams& p, u64 flags, const Waiting& w) {
  if (threadIdx.x < 32) {
    const bool fine = wait_members(p, flags, w);
    if (threadIdx.x == 0) s.fine = fine;
  }
  __syncthreads();
  return s.fine;
}

// The block reads all members' notes into `s`, a warp a member. Returns the same on every thread, which then sees what the
// members did before they published.
__device__ __forceinline__ bool read_notes(Shared& s, const ExchangeParams& p, const Waiting& w) {
  bool fine = true;
#pragma unroll 1
  for (uint32_t r = threadIdx.x / 32; r < p.ranks && fine; r += WARPS) {
    const Read read = read_note(p, (uint32_t)p.form, r, 0, 0, w);
    fine = read.fine;
    if ((threadIdx.x & 31) < HEADER_WORDS) s.header[r][threadIdx.x & 31] = read.header;
  }
  return !__syncthreads_or(!fine);
}

__device__ __forceinline__ const Header* header_from(const Shared& s, uint32_t rank) { return (const Header*)s.header[rank]; }

// Fills in the members' buffers from the headers; the verdict has checked that they lie inside their allocations. The
// whole block, after read_notes of the same block.
__device__ __forceinline__ void find_buffers(Shared& s, const ReduceParams& q) {
  const ExchangeParams& p = q.exchange;
  for (uint32_t r = threadIdx.x; r < p.ranks; r += THREADS)
    s.buffer[r] = ((const u64*)p.out_buffers)[r] + header_from(s, r)->out_offset;
  __syncthreads();
}

}  // namespace reduce
}  // namespace symm
