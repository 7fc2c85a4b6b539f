// Every collective of the exchange protocol in one launch: arrive with a header, agree, push, raise done-flags.
//
//   ticket 0                           every share                         the share that ends last
//   epoch, own turn                    epoch (from ticket 0)
//   splits once, check, publish  --->  all arrivals, verdict, places
//                                      push its part, fence, count   --->  done-flags out, all done-flags in
//                                                                          result or zeros, completed
#include "exchange/push.cuh"

using namespace symm;
using namespace symm::exchange;

namespace {

// The first part of a share up to the verdict. Returns whether it may push. The whole block.
__device__ __forceinline__ bool begin_share(Shared& s, const ExchangeParams& p, const Role& role) {
  LaunchRecord* record = record_of(p);
  if (s.share == 0) {
    const First first = read_first(p);
    if (threadIdx.x == 0) {
      s.epoch = take_epoch(p, s.fine, s.began);
      // Release: whoever sees the epoch sees the reason for skipping it too.
      store_release_gpu_u64(&record->epoch, s.epoch);
    }
    __syncthreads();
    if (s.epoch & EPOCH_SKIP) return false;
    publish(s, p, s.epoch, first);
  } else {
    if (threadIdx.x == 0) {
      // Bounded by the deadline of the block that holds ticket 0, which is running.
      u64 epoch;
      do epoch = load_acquire_gpu_u64(&record->epoch);
      while (epoch == 0);
      s.epoch = epoch;
    }
    __syncthreads();
    if (s.epoch & EPOCH_SKIP) return false;
  }
  if (threadIdx.x < 32) {
    const bool fine = wait_members(p, p.arrival, s.epoch, PHASE_ARRIVAL, s.began, s.share == 0);
    if (threadIdx.x == 0) {
      s.waited = fine;
      if (!fine) or_relaxed_gpu_u32(&record->failed, FAILED_WAIT);
    }
  }
  __syncthreads();
  return s.waited && verdict(s, p, s.epoch, tile(role, role.begin));
}

// Ends the operation; called by the whole block of the share that ended last.
__device__ __forceinline__ void end_operation(Shared& s, const ExchangeParams& p) {
  LaunchRecord* record = record_of(p);
  const u64 epoch = s.epoch & ~EPOCH_SKIP;
  if (threadIdx.x < 32) {
    uint32_t failed = load_relaxed_gpu_u32(&record->failed);
    if (failed == 0 && p.form != FORM_BARRIER) {
      // The counts of the other shares were acquired; this hands what they pushed on to whoever sees the flag.
      fence_acq_rel_sys();
      for (uint32_t r = threadIdx.x; r < p.ranks; r += 32)
        store_relaxed_sys_u64((void*)(region(p, r) + p.done + 8 * p.rank), epoch);
      if (!wait_members(p, p.done, epoch, PHASE_DONE, s.began, true)) failed = FAILED_WAIT;
    }
    // After a bad verdict nobody waits for this PE, and the peers are to find that verdict, not a PE that gave up; its
    // next operation tells them.
    if (failed & FAILED_EARLIER) {
      give_up(p, load_relaxed_gpu_u64((const void*)(p.mine + CONTEXT_TICKET)) + 1);
    } else if (failed & FAILED_WAIT) {
      give_up(p, epoch);
    }
    if (threadIdx.x == 0) s.waited = failed == 0;
  }
  __syncthreads();
  if (!s.waited && p.out_splits != 0) {
    for (u64 k = threadIdx.x; k < p.n_splits; k += THREADS) ((long long*)p.out_splits)[k] = 0;
  }
  __syncthreads();
  if (threadIdx.x == 0) {
    store_relaxed_gpu_u32(&record->finished, 0);
    store_relaxed_gpu_u32(&record->failed, 0);
    store_relaxed_gpu_u64(&record->epoch, 0);
    // The count never falls: an operation that gives up in its ticket's wait may end before an earlier one.
    if (epoch != 0) max_release_gpu_u64((void*)(p.mine + CONTEXT_COMPLETED), epoch);
  }
}

}  // namespace

extern "C" __global__ void __launch_bounds__(THREADS, 1) symm_exchange(const __grid_constant__ ExchangeParams p) {
  __shared__ Shared s;
  LaunchRecord* record = record_of(p);
  const uint32_t shares = gridDim.x;
  for (;;) {
    if (threadIdx.x == 0) {
      // The ticket and the status are on their way at once.
      const u64 code = load_relaxed_gpu_u64(&status_of(p).device->code);
      s.share = fetch_add_relaxed_gpu_u32(&record->tickets, 1);
      s.fine = code == STATUS_OK;
      s.began = now_ns();
    }
    __syncthreads();
    if (s.share >= shares) break;
    const Role role = role_of(p, s.share, shares);
    if (begin_share(s, p, role) && p.form != FORM_BARRIER) {
      if (s.share == shares - 1) write_result(s, p, s.epoch);
      push(s, p, s.epoch, role);
    }
    __syncthreads();
    if (threadIdx.x == 0) {
      // All of this share's rows are delivered before its count is.
      fence_acq_rel_sys();
      s.last = fetch_add_acq_rel_gpu_u32(&record->finished, 1) == shares - 1;
    }
    __syncthreads();
    if (s.last) end_operation(s, p);
    __syncthreads();
  }
  // Every block takes exactly one ticket too many; whoever takes the last of those is the last to touch the count.
  if (threadIdx.x == 0 && s.share == 2 * shares - 1) store_relaxed_gpu_u32(&record->tickets, 0);
}
