// Broadcast and reductions in one launch, in the protocol of exchange.cu: arrive with a header, agree, add up or hand
// out, raise flags.
//
//   stage      who has it                          every share                   the share that ends last
//   bring      one_shot with a local input         its part to the own buffer
//   work       all                                 arrivals, verdict, its part   done-flags out (and in, complete)
//   gather     two_shot with an output of its own  done-flags in, its part       gathered-flags out and in, complete
//
// The first ticket of the launch takes the epoch and announces it; the first of `work` publishes, once everything was
// brought. See reduce/common.cuh for who may wait for whom.
#include "reduce/begin.cuh"
#include "reduce/move.cuh"
#include "reduce/verdict.cuh"

using namespace symm;
using namespace symm::reduce;

namespace {

// Ends the operation: the first warp of the share that ended last of all.
__device__ __forceinline__ void end_operation(const ExchangeParams& p, const Shared& s, uint32_t stages, u64 failed) {
  const u64 epoch = s.epoch & ~SKIP;
  // After a bad verdict nobody waits for this PE, and the peers are to find that verdict, not a PE that gave up; its
  // next operation tells them.
  if (failed != 0 && failed < FAILED_VERDICT) give_up(p, epoch);
  if ((threadIdx.x & 31) != 0) return;
  LaunchRecord* record = record_of(p);
  for (uint32_t stage = 0; stage < stages; stage++) store_relaxed_gpu_u64(&record->stages[stage], 0);
  store_relaxed_gpu_u64(&record->epoch, 0);
  // Of one stage all tickets are taken by now; of more the last block to leave puts them back.
  if (stages == 1) store_relaxed_gpu_u32(&record->tickets, 0);
  // The count never falls: an operation that gives up in its ticket's wait may end before an earlier one.
  max_release_gpu_u64((void*)(p.mine + CONTEXT_COMPLETED), epoch);
}

// The whole launch. `E`: the element type; void for the broadcast.
template <typename E>
__device__ __forceinline__ void run(Shared& s, const ReduceParams& q) {
  constexpr bool SUMS = !is_void<E>::value;
  wait_for_stream();
  let_stream_go_on();
  const ExchangeParams& p = q.exchange;
  LaunchRecord* record = record_of(p);
  const bool first_warp = threadIdx.x < 32;
  const uint32_t shares = gridDim.x;
  const bool brings = SUMS && p.form == FORM_ONE_SHOT_ALL_REDUCE && p.input != 0 && p.invalid == 0;
  const bool gathers = SUMS && p.form == FORM_TWO_SHOT_ALL_REDUCE_OUT;
  const uint32_t work = brings, stages = 1 + brings + gathers;

  // With one stage there is one share for every block.
  for (;;) {
    step(STEP_BEGIN);
    if (threadIdx.x == 0) {
      s.began = now_ns();
      s.ticket = fetch_add_relaxed_gpu_u32(&record->tickets, 1);
      if (s.ticket == 0) {
        s.epoch = take_epoch(p, s.began);
        // Release: whoever sees the epoch sees what the operation before left.
        if (stages * shares > 1) store_release_gpu_u64(&record->epoch, s.epoch);
      } else if (s.ticket < stages * shares) {
        // Bounded by the deadline of the block that holds ticket 0, which is running.
        u64 epoch;
        do epoch = load_acquire_gpu_u64(&record->epoch);
        while (epoch == 0);
        s.epoch = epoch;
      }
    }
    __syncthreads();
    if (s.ticket >= stages * shares) break;
    step(STEP_MET);
    const uint32_t stage = s.ticket / shares, share = s.ticket % shares;
    const u64 epoch = s.epoch;
    const bool skip = epoch & SKIP, bringing = brings && stage == 0;

    u64 outcome = SHARE;
    if (skip) {
      outcome |= FAILED_WAIT;
    } else if (bringing) {
      bring(q, share, shares);
    } else if (stage == work) {
      if (share == 0) {
        if (stage > 0) await_stage(record, 0, shares);
        step(STEP_PREPARED);
        if (first_warp) publish(q, epoch, stage > 0);
      }
      if (!read_notes(s, p, {epoch, PHASE_ARRIVAL, s.began, share == 0})) {
        outcome |= FAILED_WAIT;
      } else if (!verdict(s, q, epoch)) {
        outcome |= FAILED_VERDICT;
      } else {
        step(STEP_VERDICT);
        if constexpr (SUMS) add_up<E>(s, q, share, shares);
        else broadcast(s, q, share, shares);
      }
    } else if (!wait_all(s, p, p.done, {epoch, PHASE_DONE, s.began, share == 0}) ||
               !read_notes(s, p, {epoch, PHASE_ARRIVAL, s.began, share == 0})) {
      outcome |= FAILED_WAIT;
    } else {
      find_buffers(s, q);
      gather(s, q, share, shares);
    }

    step(STEP_PUSHED);
    __syncthreads();
    if (threadIdx.x == 0 && stages * shares == 1) s.counted = outcome;
    if (threadIdx.x == 0 && stages * shares > 1) {
      // All that this share has read and written comes before its count, and what other shares counted before what follows.
      release_gpu<FENCE_REDUCE_COUNT>();
      step(STEP_FENCED);
      s.counted = fetch_add_relaxed_gpu_u64(&record->stages[stage], outcome) + outcome;
      fence_acq_rel_gpu();
    }
    __syncthreads();
    if ((s.counted & SHARES) != shares || bringing) {
      if (stages == 1) return;
      continue;
    }
    // The last share of the stage.
    step(STEP_COUNTED);
    const bool last = stage == stages - 1;
    u64 failed = s.counted & ~SHARES;
    // Shares of earlier stages may still be on their way out, all of them in blocks that run.
    if (last) {
      for (uint32_t before = 0; before < stage; before++) failed |= await_stage(record, before, shares) & ~SHARES;
      // The first warp puts the counts back to zero: nobody may still be looking.
      __syncthreads();
    }
    if (first_warp) {
      const u64 flags = stage == work ? p.done : q.gathered;
      if (failed == 0) {
        // The counts of the other shares were acquired; the flags hand what those did on to whoever sees them.
        raise_flags(p, flags, epoch);
        step(STEP_RAISED);
        const u64 phase = stage == work ? PHASE_DONE : PHASE_GATHERED;
        if (last && !wait_members(p, flags, {epoch, phase, s.began, true})) failed = FAILED_WAIT;
      }
      if (last) end_operation(p, s, stages, failed);
    }
    if (stages == 1) return;
    __syncthreads();
  }
  // Every block of a launch with stages takes exactly one ticket too many; whoever takes the last of those is the last to touch the count.
  if (threadIdx.x == 0 && s.ticket == (stages + 1) * shares - 1) store_relaxed_gpu_u32(&record->tickets, 0);
}

}  // namespace

#define SYMM_REDUCE(name, E)                                                                                 \
  extern "C" __global__ void __launch_bounds__(THREADS, 1) name(const __grid_constant__ ReduceParams q) { \
    __shared__ Shared s;                                                                                     \
    run<E>(s, q);                                                                                            \
  }

SYMM_REDUCE(symm_broadcast, void)
SYMM_REDUCE(symm_reduce_f16, F16)
SYMM_REDUCE(symm_reduce_bf16, BF16)
SYMM_REDUCE(symm_reduce_f32, F32)
SYMM_REDUCE(symm_reduce_f64, F64)
SYMM_REDUCE(symm_reduce_i32, I32)
SYMM_REDUCE(symm_reduce_i64, I64)
