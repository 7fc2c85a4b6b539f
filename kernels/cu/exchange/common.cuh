// What all parts of the exchange kernel share.
//
// The work of a launch is cut into as many shares as it has blocks. A block takes shares by an atomic ticket until none
// is left, so a single resident block finishes the whole launch; share 0 belongs to whoever came first. Blocks wait for
// flags of other PEs, and for the epoch, which the block with ticket 0 announces: never for a block that may not have
// started.
#pragma once

#include "symm/exchange.cuh"
#include "symm/params.cuh"
#include "symm/status.cuh"
#include "symm/wait.cuh"

namespace symm {
namespace exchange {

constexpr int THREADS = 1024;
constexpr int WARPS = THREADS / 32;
constexpr unsigned ALL = 0xffffffffu;

// Columns whose places a block holds at a time: one (destination, expert) pair each.
constexpr int TILE = THREADS;

// Reasons in LaunchRecord::failed.
constexpr uint32_t FAILED_WAIT = 1;     // a deadline, a peer that gave up, a failure set by somebody else
constexpr uint32_t FAILED_VERDICT = 2;  // all members reach the same verdict: nobody waits for anybody
constexpr uint32_t FAILED_EARLIER = 4;  // the team had failed before: no ticket was taken

// LaunchRecord::epoch when no epoch was taken, or the ticket's wait failed.
constexpr u64 EPOCH_SKIP = 1ull << 63;

// A fault that a thread found. Lower keys come first: the step of the verdict, then the rank.
struct Finding {
  u64 key;
  u64 fault, a, b;
};
constexpr u64 NO_FINDING = ~0ull;

struct Shared {
  // Of the share.
  u64 epoch;
  u64 began;
  uint32_t share;
  uint32_t last;
  uint32_t waited;  // whether the wait succeeded
  uint32_t fine;    // whether the team had not failed when the share began
  // Scans.
  u64 warp_sums[WARPS];
  u64 total;
  // The verdict.
  u64 best;
  u64 fault, a, b;
  // Of each member, index = rank.
  u64 out_base[MAX_RANKS];   // address of the first row of its output, as this PE reaches it
  u64 rows_to[MAX_RANKS];    // rows that this PE sends to it
  u64 src_base[MAX_RANKS];   // where those begin in the input, for forms whose input is ordered by destination
  // Of the columns of a tile, in push order.
  u64 src[TILE];      // row in the input, from src_base
  u64 dst[TILE];      // row in the destination's output
  u64 rows[TILE];
  u64 pieces[TILE];   // pieces of all columns before this one
};

__device__ __forceinline__ Status status_of(const ExchangeParams& p) {
  return {(StatusRecord*)p.status.device, (StatusRecord*)p.status.host};
}

__device__ __forceinline__ LaunchRecord* record_of(const ExchangeParams& p) { return (LaunchRecord*)p.record; }

__device__ __forceinline__ u64 region(const ExchangeParams& p, uint32_t rank) { return ((const u64*)p.regions)[rank]; }

__device__ __forceinline__ u64 member(const ExchangeParams& p, uint32_t rank) { return ((const u64*)p.members)[rank]; }

// Address of the slot in `owner`'s copy of the context that `writer` publishes into.
__device__ __forceinline__ u64 slot(const ExchangeParams& p, uint32_t owner, u64 epoch, uint32_t writer) {
  return region(p, owner) + p.slots + ((epoch & 1) * p.ranks + writer) * p.slot_bytes;
}

// What `writer` published here, and its splits.
__device__ __forceinline__ const Header* header_from(const ExchangeParams& p, u64 epoch, uint32_t writer) {
  return (const Header*)(p.mine + p.slots + ((epoch & 1) * p.ranks + writer) * p.slot_bytes);
}

__device__ __forceinline__ const long long* splits_from(const ExchangeParams& p, u64 epoch, uint32_t writer) {
  return (const long long*)(header_from(p, epoch, writer) + 1);
}

// More rows than any memory holds, and few enough that sums over all columns of all members do not wrap: a wild split or
// alignment becomes an output that is too small, never a small number.
constexpr u64 MAX_ROWS = 1ull << 40;

__device__ __forceinline__ u64 at_most(u64 value, u64 limit) { return value < limit ? value : limit; }

// A split as rows; a negative one is refused by whoever published it.
__device__ __forceinline__ u64 as_rows(long long split) { return split < 0 ? 0 : at_most((u64)split, MAX_ROWS); }

__device__ __forceinline__ u64 add_saturating(u64 a, u64 b) { return a + b < a ? ~0ull : a + b; }

// Exclusive prefix sum over the block; `s.total` becomes the sum. Every thread of the block calls it.
__device__ __forceinline__ u64 block_scan(Shared& s, u64 value) {
  const int lane = threadIdx.x & 31, warp = threadIdx.x / 32;
  u64 sum = value;
#pragma unroll
  for (int step = 1; step < 32; step *= 2) {
    const u64 other = __shfl_up_sync(ALL, sum, step);
    if (lane >= step) sum += other;
  }
  __syncthreads();  // whoever still reads the sums of the scan before
  if (lane == 31) s.warp_sums[warp] = sum;
  __syncthreads();
  if (warp == 0) {
    u64 mine = s.warp_sums[lane];
    u64 upto = mine;
#pragma unroll
    for (int step = 1; step < 32; step *= 2) {
      const u64 other = __shfl_up_sync(ALL, upto, step);
      if (lane >= step) upto += other;
    }
    s.warp_sums[lane] = upto - mine;
    if (lane == 31) s.total = upto;
  }
  __syncthreads();
  return s.warp_sums[warp] + sum - value;
}

__device__ __forceinline__ u64 warp_sum(u64 value) {
#pragma unroll
  for (int step = 16; step > 0; step /= 2) value += __shfl_xor_sync(ALL, value, step);
  return value;
}

__device__ __forceinline__ u64 warp_max(u64 value) {
#pragma unroll
  for (int step = 16; step > 0; step /= 2) {
    const u64 other = __shfl_xor_sync(ALL, value, step);
    value = other > value ? other : value;
  }
  return value;
}

// Exclusive prefix sum over a warp; `total` becomes the sum.
__device__ __forceinline__ u64 warp_scan(u64 value, u64& total) {
  const int lane = threadIdx.x & 31;
  u64 sum = value;
#pragma unroll
  for (int step = 1; step < 32; step *= 2) {
    const u64 other = __shfl_up_sync(ALL, sum, step);
    if (lane >= step) sum += other;
  }
  total = __shfl_sync(ALL, sum, 31);
  return sum - value;
}

}  // namespace exchange
}  // namespace symm
