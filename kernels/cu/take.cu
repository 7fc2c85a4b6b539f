// Forms that take: a PE copies, or adds up, blocks of all members' buffers to its own memory, in the protocol of exchange.cu
// with one round of flags: arrive with a header, agree, take, raise done-flags.
//
//   launch         blocks   ticket 0                every share                                the share that ends last
//   whole          many     epoch, turn, publish    arrivals, verdict, its part of all takes   done-flags out and in, complete
//   begin          one      epoch, turn, publish    arrivals, verdict
//     ... the host's copy engines bring the blocks here ...
//   finish         many     -                       its part of the sums                       done-flags out and in, complete
//
// The last two are the low-contention forms: copies run whatever the verdict says, since they read memory that stays mapped
// and write memory that is this PE's own. Between both launches LaunchRecord::begun has the epoch and how it stands; nothing
// else of the stream runs there.
#include "reduce/begin.cuh"
#include "reduce/verdict.cuh"
#include "take/copy.cuh"
#include "take/sum.cuh"

using namespace symm;
using namespace symm::take;

namespace {

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

// One launch. `E`: the element type; void where blocks are copied.
template <typename E>
__device__ __forceinline__ void run(Shared& s, const TakeParams& t) {
  const ReduceParams& q = t.reduce;
  const ExchangeParams& p = q.exchange;
  LaunchRecord* record = record_of(p);
  const bool first_warp = threadIdx.x < 32;
  const uint32_t shares = gridDim.x;

  if (threadIdx.x == 0) {
    s.began = now_ns();
    s.ticket = shares == 1 ? 0 : fetch_add_relaxed_gpu_u32(&record->tickets, 1);
    if (t.phase == TAKE_FINISH) {
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
  const uint32_t share = s.ticket;
  const u64 epoch = s.epoch & ~(SKIP | REFUSED);
  u64 failed = failure_of(s.epoch);

  if (failed == 0 && t.phase != TAKE_FINISH) {
    if (share == 0 && first_warp) publish(q, epoch);
    if (!wait_all(s, p, p.arrival, epoch, PHASE_ARRIVAL, share == 0)) failed = FAILED_WAIT;
    else if (!verdict(s, q, epoch)) failed = FAILED_VERDICT;
  }
  if (t.phase == TAKE_BEGIN) {
    const u64 how = failed == FAILED_WAIT ? SKIP : failed == FAILED_VERDICT ? REFUSED : 0;
    if (threadIdx.x == 0) store_relaxed_gpu_u64(&record->begun, epoch | how);
    // The copies that follow in the stream come after what the members' arrivals announced.
    fence_acq_rel_sys();
    return;
  }
  if (failed == 0) {
    if (t.sources != 0) {
      for (uint32_t r = threadIdx.x; r < p.ranks; r += THREADS) s.buffer[r] = t.sources + r * t.source_step;
      __syncthreads();
    }
    if constexpr (!is_void<E>::value) {
      for (uint32_t k = 0; k < t.count; k++) sum_take<E>(s, t.takes[k], p.ranks, t.divisor, share, shares);
    } else {
      for (uint32_t k = 0; k < t.count; k++) copy_take(s, t.takes[k], p.rank, p.ranks, share, shares);
    }
  }

  __syncthreads();
  if (!first_warp) return;
  // All that this share has read comes before its count, and what other shares counted before the flags.
  fence_acq_rel_sys();
  u64 counted = SHARE | failed;
  if (shares > 1) {
    if (threadIdx.x == 0) counted += fetch_add_relaxed_gpu_u64(&record->finished, SHARE | failed);
    counted = __shfl_sync(ALL, counted, 0);
    if ((counted & SHARES) != shares) return;
    fence_acq_rel_sys();
  }
  failed = counted & ~SHARES;
  if (failed == 0) {
    raise_flags(p, p.done, epoch);
    if (!wait_members(p, p.done, epoch, PHASE_DONE, s.began, true)) failed = FAILED_WAIT;
  }
  end_operation(p, epoch, failed);
}

}  // namespace

#define SYMM_TAKE(name, E)                                                                              \
  extern "C" __global__ void __launch_bounds__(THREADS, 1) name(const __grid_constant__ TakeParams t) { \
    __shared__ Shared s;                                                                                \
    run<E>(s, t);                                                                                       \
  }

SYMM_TAKE(symm_take_copy, void)
SYMM_TAKE(symm_take_f16, F16)
SYMM_TAKE(symm_take_bf16, BF16)
SYMM_TAKE(symm_take_f32, F32)
SYMM_TAKE(symm_take_f64, F64)
SYMM_TAKE(symm_take_i32, I32)
SYMM_TAKE(symm_take_i64, I64)
