// How the members of a handle meet on a channel of its pads: each stores its count into its word of every pad, then waits for all
// words of its own pad to reach that count. Words have one writer each and only grow. The library's barrier kernels and users'
// kernels (handle.cuh) share this wait.
#pragma once

#include "symm/params.cuh"
#include "symm/wait.cuh"

namespace symm {

// A member's pad, as the library's kernels are given them.
__device__ __forceinline__ u64 barrier_pad(const BarrierParams& p, uint32_t rank) {
  return rank < NEAR_RANKS ? p.near_pads[rank] : ((const u64*)p.pads)[rank];
}

constexpr unsigned ALL_LANES = 0xffffffffu;

// Where a warp waits for the others.
struct Meeting {
  u64 words;    // address of the channel's u64[ranks] in this PE's pad
  u64 members;  // u64[ranks] in device memory: PE numbers
  u64 epoch;    // this meeting's count
  u64 began;
  u64 limit_ns;
  uint32_t ranks;
};

// Whether the wait is to go on: no failure, and the deadline has not passed; else the status is set. The whole warp.
inline __device__ __noinline__ bool meeting_goes_on(Status status, Meeting m) {
  const unsigned lane = threadIdx.x & 31;
  const u64 waited = __shfl_sync(ALL_LANES, now_ns() - m.began, 0);
  const bool fine = lane != 0 || status_ok_in_wait(status, waited);
  if (!__all_sync(ALL_LANES, fine)) return false;
  if (waited <= m.limit_ns) return true;
  uint32_t late = m.ranks;
  u64 got = 0, late_set = 0;
  for (uint32_t r = lane; r < m.ranks; r += 32) {
    const u64 seen = load_relaxed_sys_u64((const void*)(m.words + 8 * r));
    if (seen >= m.epoch) continue;
    if (late == m.ranks) late = r, got = seen;
    if (r < 64) late_set |= 1ull << r;
  }
  const uint32_t first = __reduce_min_sync(ALL_LANES, late);
  if (first == m.ranks) return true;  // the last one came just now
  late_set = (u64)__reduce_or_sync(ALL_LANES, (unsigned)late_set) | (u64)__reduce_or_sync(ALL_LANES, (unsigned)(late_set >> 32)) << 32;
  if (late == first) {
    const u64 pe = ((const u64*)m.members)[first];
    status_fail(status, {STATUS_TIMEOUT, OP_HANDLE_BARRIER, PHASE_ARRIVAL, pe, late_set, m.epoch, got, waited});
  }
  return false;
}

// Waits until every member's word has reached the count; returns false, with the status set, if that fails. The whole warp.
__device__ __forceinline__ bool wait_meeting(const Status& status, const Meeting& m) {
  for (uint32_t look = 1;; look++) {
    bool late = false;
    // One round for a warp, nearly always: unrolled, the loop is code to fetch.
#pragma unroll 1
    for (uint32_t r = threadIdx.x & 31; r < m.ranks; r += 32) late |= load_relaxed_sys_u64((const void*)(m.words + 8 * r)) < m.epoch;
    if (!__any_sync(ALL_LANES, late)) {
      fence_acquire_sys();
      return true;
    }
    if (look % LOOKS == 0 && !meeting_goes_on(status, m)) return false;
  }
}

}  // namespace symm
