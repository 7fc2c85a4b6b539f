// Waiting for all members' flags, and telling them that this PE gave up.
#pragma once

#include "common.cuh"

namespace symm {
namespace exchange {

// A PE's number as a bit of the set of late ranks.
__device__ __forceinline__ u64 bit_of_pe(const ExchangeParams& p, u64 pe) {
  for (uint32_t r = 0; r < p.ranks && r < 64; r++)
    if (member(p, r) == pe) return 1ull << r;
  return 0;
}

// Looks at all that can end a wait early: a member that gave up this epoch, a failure of the team, the deadline. Returns
// whether the wait goes on, the same on every lane; if not, the status is set. Not in line: only a long wait comes here.
__device__ __noinline__ bool goes_on(const ExchangeParams& p, u64 flags, u64 epoch, u64 phase, u64 began, bool host) {
  const uint32_t lane = threadIdx.x & 31;
  const u64 mine = p.mine;
  const Status status = status_of(p);
  u64 given_up = 0, cause = 0;
  for (uint32_t r = lane; r < p.ranks; r += 32) {
    const u64 pair = mine + p.aborted + 16 * r;
    const u64 at = load_acquire_sys_u64((const void*)pair);
    if (at != 0 && at <= epoch && given_up == 0) {
      given_up = at;
      cause = load_relaxed_sys_u64((const void*)(pair + 8));
    }
  }
  const unsigned who = __ballot_sync(ALL, given_up != 0);
  const u64 waited = __shfl_sync(ALL, now_ns() - began, 0);
  if (who != 0) {
    if (lane == __ffs(who) - 1) {
      const u64 pe = cause - 1;
      status_fail(status, {STATUS_TIMEOUT, p.form, phase, pe, bit_of_pe(p, pe), epoch, given_up, waited});
    }
    return false;
  }
  const bool fine = lane != 0 || (host ? status_ok_in_wait(status, waited) : status_ok(status));
  if (!__all_sync(ALL, fine)) return false;
  if (waited <= p.limit_ns) return true;

  uint32_t late = p.ranks;
  u64 got = 0, late_set = 0;
  for (uint32_t r = lane; r < p.ranks; r += 32) {
    const u64 seen = load_acquire_sys_u64((const void*)(mine + flags + 8 * r));
    if (seen >= epoch) continue;
    if (late == p.ranks) late = r, got = seen;
    if (r < 64) late_set |= 1ull << r;
  }
  const uint32_t first = __reduce_min_sync(ALL, late);
  if (first == p.ranks) return true;  // the last one came just now
  const u64 low = __reduce_or_sync(ALL, (unsigned)late_set);
  const u64 high = __reduce_or_sync(ALL, (unsigned)(late_set >> 32));
  if (late == first) status_fail(status, {STATUS_TIMEOUT, p.form, phase, member(p, first), low | high << 32, epoch, got, waited});
  return false;
}

// One warp waits until every member's word at `flags` in this PE's copy has reached `epoch`. Returns false, on every
// lane, once a member has given up this epoch, the team has failed or the deadline has passed; the status is set then.
// A member that gave up before this PE came has arrived, so in `PHASE_ARRIVAL` that is looked for first: nothing is then
// pushed to one that no longer waits.
// `host`: whether this warp is the one of the launch that looks at host memory; the others see what it finds in the device
// copy, so that a long wait is one reader of the bus, not one a multiprocessor.
__device__ __forceinline__ bool wait_members(const ExchangeParams& p, u64 flags, u64 epoch, u64 phase, u64 began, bool host) {
  const u64 words = p.mine + flags;
  for (uint32_t look = 1;; look++) {
    bool late = false, told = false;
    for (uint32_t r = threadIdx.x & 31; r < p.ranks; r += 32) {
      // Relaxed and first, so that it is on its way together with the flag.
      if (phase == PHASE_ARRIVAL) {
        const u64 at = load_relaxed_sys_u64((const void*)(p.mine + p.aborted + 16 * r));
        told |= at != 0 && at <= epoch;
      }
      late |= load_acquire_sys_u64((const void*)(words + 8 * r)) < epoch;
    }
    if (__any_sync(ALL, told) && !goes_on(p, flags, epoch, phase, began, host)) return false;
    if (!__any_sync(ALL, late)) return true;
    if (look % LOOKS == 0 && !goes_on(p, flags, epoch, phase, began, host)) return false;
  }
}

// Tells every peer, once until the next recover, that this PE does nothing for `epoch` and later ones. One warp.
__device__ __noinline__ void give_up(const ExchangeParams& p, u64 epoch) {
  const uint32_t lane = threadIdx.x & 31;
  u64 before = 0;
  if (lane == 0) before = cas_acq_rel_gpu_u64(&((ContextLocal*)p.local)->gave_up, 0, epoch);
  if (__shfl_sync(ALL, before, 0) != 0) return;
  u64 cause = 0;
  if (lane == 0) cause = load_relaxed_gpu_u64(&((StatusRecord*)p.status.device)->pe) + 1;
  cause = __shfl_sync(ALL, cause, 0);
  for (uint32_t r = lane; r < p.ranks; r += 32) {
    if (r == p.rank) continue;
    const u64 pair = region(p, r) + p.aborted + 16 * p.rank;
    store_relaxed_sys_u64((void*)(pair + 8), cause);
    store_release_sys_u64((void*)pair, epoch);
  }
}

}  // namespace exchange
}  // namespace symm
