// What the barrier kernels share: the words of a pad, and the wait for them.
#pragma once

#include "symm/params.cuh"
#include "symm/wait.cuh"

namespace symm {
namespace barrier {

constexpr unsigned ALL = 0xffffffffu;

__device__ __forceinline__ u64 pad(const BarrierParams& p, uint32_t rank) {
  return rank < NEAR_RANKS ? p.near_pads[rank] : ((const u64*)p.pads)[rank];
}

// Whether the wait is to go on: no failure, and the deadline has not passed. The whole warp.
__device__ __noinline__ bool goes_on(const BarrierParams& p, const Status& status, u64 mine, u64 epoch, u64 began) {
  const unsigned lane = threadIdx.x & 31;
  const u64 waited = __shfl_sync(ALL, now_ns() - began, 0);
  const bool fine = lane != 0 || status_ok_in_wait(status, waited);
  if (!__all_sync(ALL, fine)) return false;
  if (waited <= p.limit_ns) return true;
  uint32_t late = p.ranks;
  u64 got = 0, late_set = 0;
  for (uint32_t r = lane; r < p.ranks; r += 32) {
    const u64 seen = load_acquire_sys_u64((const void*)(mine + p.words + 8 * r));
    if (seen >= epoch) continue;
    if (late == p.ranks) late = r, got = seen;
    if (r < 64) late_set |= 1ull << r;
  }
  const uint32_t first = __reduce_min_sync(ALL, late);
  if (first == p.ranks) return true;  // the last one came just now
  late_set = (u64)__reduce_or_sync(ALL, (unsigned)late_set) | (u64)__reduce_or_sync(ALL, (unsigned)(late_set >> 32)) << 32;
  if (late == first) {
    const u64 pe = ((const u64*)p.members)[first];
    status_fail(status, {STATUS_TIMEOUT, OP_HANDLE_BARRIER, PHASE_ARRIVAL, pe, late_set, epoch, got, waited});
  }
  return false;
}

// Waits until every member's word in this PE's pad has reached `epoch`; returns false, with the status set, if that fails. The
// whole warp.
__device__ __forceinline__ bool wait_words(const BarrierParams& p, const Status& status, u64 mine, u64 epoch, u64 began) {
  for (uint32_t look = 1;; look++) {
    bool late = false;
    for (uint32_t r = threadIdx.x & 31; r < p.ranks; r += 32)
      late |= load_acquire_sys_u64((const void*)(mine + p.words + 8 * r)) < epoch;
    if (!__any_sync(ALL, late)) return true;
    if (look % LOOKS == 0 && !goes_on(p, status, mine, epoch, began)) return false;
  }
}

}  // namespace barrier
}  // namespace symm
