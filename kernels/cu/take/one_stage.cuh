// An operation with one round of flags: arrive with a header, agree, work, raise done-flags. What the work is differs.
#pragma once

#include "../reduce/begin.cuh"
#include "../reduce/verdict.cuh"

namespace symm {
namespace take {

using namespace reduce;

// LaunchRecord::begun of an operation that goes on; SKIP where a wait failed.
constexpr u64 REFUSED = 1ull << 62;

__device__ __forceinline__ u64 failure_of(u64 begun) {
  return begun & SKIP ? FAILED_WAIT : begun & REFUSED ? FAILED_VERDICT : 0;
}

// Ends the operation: the first warp of the share that ended last.
__device__ __forceinline__ void end_operation(const ExchangeParams& p, u64 epoch, u64 failed) {
  // After a bad verdict nobody waits for this PE, and the peers are to find that verdict, not a PE that gave up.
  if (failed != 0 && failed < FAILED_VERDICT) give_up(p, epoch);
  if ((threadIdx.x & 31) != 0) return;
  LaunchRecord* record = record_of(p);
  store_relaxed_gpu_u32(&record->tickets, 0);
  store_relaxed_gpu_u64(&record->finished, 0);
  store_relaxed_gpu_u64(&record->epoch, 0);
  store_relaxed_gpu_u64(&record->begun, 0);
  // The count never falls: an operation that gives up in its ticket's wait may end before an earlier one.
  max_release_gpu_u64((void*)(p.mine + CONTEXT_COMPLETED), epoch);
}

// One launch, or one of the two of an operation whose `phase` says which. `work(share, shares)` does one share, on the whole
// block, after a good verdict; the members' buffers are in `s` then, but not in TAKE_FINISH.
template <typename Work>
__device__ __forceinline__ void one_stage(Shared& s, const ReduceParams& q, uint32_t phase, Work work) {
  const ExchangeParams& p = q.exchange;
  LaunchRecord* record = record_of(p);
  const bool first_warp = threadIdx.x < 32;
  const uint32_t shares = gridDim.x;

  if (threadIdx.x == 0) {
    s.began = now_ns();
    s.ticket = shares == 1 ? 0 : fetch_add_relaxed_gpu_u32(&record->tickets, 1);
    if (phase == TAKE_FINISH) {
      s.epoch = load_relaxed_gpu_u64(&record->begun);
    } else if (s.ticket == 0) {
      s.epoch = take_epoch(p, s.began);
      // Release: whoever sees the epoch sees what the operation before left.
      if (shares > 1) store_release_gpu_u64(&record->epoch, s.epoch);
    } else {
      // Bounded by the deadline of the block that holds ticket 0, which is running.
      u64 epoch;
      do epoch = load_acquire_gpu_u64(&record->epoch);
      while (epoch == 0);
      s.epoch = epoch;
    }
  }
  __syncthreads();
  step(STEP_MET);
  const uint32_t share = s.ticket;
  const u64 epoch = s.epoch & ~(SKIP | REFUSED);
  u64 failed = failure_of(s.epoch);

  if (failed == 0 && phase != TAKE_FINISH) {
    if (share == 0 && first_warp) publish(q, epoch, false);
    if (!read_notes(s, p, {epoch, PHASE_ARRIVAL, s.began, share == 0})) failed = FAILED_WAIT;
    else if (!verdict(s, q, epoch)) failed = FAILED_VERDICT;
  }
  step(STEP_VERDICT);
  if (phase == TAKE_BEGIN) {
    const u64 how = failed == FAILED_WAIT ? SKIP : failed == FAILED_VERDICT ? REFUSED : 0;
    if (threadIdx.x == 0) store_relaxed_gpu_u64(&record->begun, epoch | how);
    // The copies that follow in the stream come after what the members' arrivals announced.
    fence_acq_rel_sys();
    return;
  }
  if (failed == 0) work(share, shares);

  step(STEP_PUSHED);
  __syncthreads();
  if (!first_warp) return;
  // All that this share has read and written comes before its count, and what other shares counted before the flags.
  acq_rel_sys<FENCE_TAKE_COUNT>();
  step(STEP_FENCED);
  u64 counted = SHARE | failed;
  if (shares > 1) {
    if (threadIdx.x == 0) counted += fetch_add_relaxed_gpu_u64(&record->finished, SHARE | failed);
    counted = __shfl_sync(ALL, counted, 0);
    step(STEP_COUNTED);
    if ((counted & SHARES) != shares) return;
    fence_acq_rel_sys();
    // One lane has counted and acquired; each lane raises a flag that covers all shares.
    __syncwarp();
  }
  failed = counted & ~SHARES;
  if (failed == 0) {
    raise_flags(p, p.done, epoch);
    step(STEP_RAISED);
    if (!wait_members(p, p.done, {epoch, PHASE_DONE, s.began, true})) failed = FAILED_WAIT;
  }
  end_operation(p, epoch, failed);
}

}  // namespace take
}  // namespace symm
