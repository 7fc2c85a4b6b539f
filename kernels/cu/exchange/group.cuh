// What a warp does by itself for few splits and a whole block does for many, written once.
#pragma once

#include "members.cuh"

namespace symm {
namespace exchange {

// A fault that a thread found. Lower keys come first: the step of the verdict, then the rank.
struct Finding {
  u64 key;
  u64 fault, a, b;
};
constexpr u64 NO_FINDING = ~0ull;

// Keeps the better of two findings of one thread.
__device__ __forceinline__ void note(Finding& best, u64 key, u64 fault, u64 a, u64 b) {
  if (key < best.key) best = {key, fault, a, b};
}

struct OneWarp {
  __device__ __forceinline__ uint32_t index() const { return threadIdx.x & 31; }
  __device__ __forceinline__ uint32_t size() const { return 32; }
  __device__ __forceinline__ void meet() const { __syncwarp(); }

  // The lowest key of all findings, with its numbers, for every thread. Keys of different threads differ.
  __device__ __forceinline__ Finding lowest(Scratch&, const Finding& mine) const {
    if (!__any_sync(ALL, mine.key != NO_FINDING)) return {NO_FINDING, 0, 0, 0};
    const u64 key = warp_min_wide(mine.key);
    const int who = __ffs(__ballot_sync(ALL, mine.key == key)) - 1;
    return {key, __shfl_sync(ALL, mine.fault, who), __shfl_sync(ALL, mine.a, who), __shfl_sync(ALL, mine.b, who)};
  }

  // The sum, for every thread; saturates.
  __device__ __forceinline__ u64 sum(Scratch&, u64 value) const { return warp_sum(value); }

  // Exclusive prefix sum; `total` becomes the sum.
  __device__ __forceinline__ u64 scan(Scratch&, u64 value, u64& total) const { return warp_scan<u64>(value, total); }
};

struct WholeBlock {
  __device__ __forceinline__ uint32_t index() const { return threadIdx.x; }
  __device__ __forceinline__ uint32_t size() const { return blockDim.x; }
  __device__ __forceinline__ void meet() const { __syncthreads(); }

  __device__ __forceinline__ Finding lowest(Scratch& s, const Finding& mine) const {
    const bool mine_is_one = mine.key != NO_FINDING;
    if (!__syncthreads_or(mine_is_one)) return {NO_FINDING, 0, 0, 0};
    if (threadIdx.x == 0) s.best = NO_FINDING;
    __syncthreads();
    if (mine_is_one) atomicMin(&s.best, mine.key);
    __syncthreads();
    if (mine_is_one && mine.key == s.best) {
      s.fault = mine.fault;
      s.a = mine.a;
      s.b = mine.b;
    }
    __syncthreads();
    return {s.best, s.fault, s.a, s.b};
  }

  __device__ __forceinline__ u64 sum(Scratch& s, u64 value) const {
    const u64 of_warp = warp_sum(value);
    __syncthreads();  // whoever still reads the sums before
    if ((threadIdx.x & 31) == 0) s.warp_sums[threadIdx.x / 32] = of_warp;
    __syncthreads();
    u64 all = 0;
    for (uint32_t w = 0; w < blockDim.x / 32; w++) all = add_saturating(all, s.warp_sums[w]);
    return all;
  }

  __device__ __forceinline__ u64 scan(Scratch& s, u64 value, u64& total) const {
    const uint32_t lane = threadIdx.x & 31, warp = threadIdx.x / 32;
    const u64 upto = warp_scan_upto(value);
    __syncthreads();  // whoever still reads the sums before
    if (lane == 31) s.warp_sums[warp] = upto;
    __syncthreads();
    if (warp == 0) {
      u64 all;
      const u64 before = warp_scan<u64>(lane < blockDim.x / 32 ? s.warp_sums[lane] : 0, all);
      s.warp_sums[lane] = before;
      if (lane == 0) s.total = all;
    }
    __syncthreads();
    total = s.total;
    return s.warp_sums[warp] + upto - value;
  }
};

template <bool FEW>
struct Choice {
  typedef OneWarp Group;
};
template <>
struct Choice<false> {
  typedef WholeBlock Group;
};
template <bool FEW>
using GroupOf = typename Choice<FEW>::Group;

}  // namespace exchange
}  // namespace symm
