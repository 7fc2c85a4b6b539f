// Every collective of the exchange protocol in one launch.
//
// The simple algorithm: one block takes an epoch, publishes its header and splits, raises a flag at every member and waits
// for all of theirs; works out from what all published where its rows go, or that somebody made a mistake; copies the
// rows; raises done-flags, waits for all of theirs, writes the table of what it received.
//
//   share 0                            every share                         the share that ends last
//   epoch, own turn                    epoch (from share 0)
//   splits once, check, publish  --->  all arrivals, verdict, places
//                                      push its part, fence, count   --->  done-flags out, all done-flags in
//                                                                          zeros if it failed, completed
//
// Small calls are a chain of latencies. On an H200: 0.35 us an atomic or a load past the first-level cache, 0.6 us a
// system fence, 0.6 us a flag over NVLink. What departs from the simple algorithm, with the gain seen for one token of 14 KiB
// rows, top-8, 32 experts, two GPUs (20.8 us before, 13.0 us after; the same call with 4096 tokens 664 and 655 us):
//
//  1. Many blocks, each with one share of the work, named by an atomic ticket; the parts are cut by bytes, not by rows,
//     so that a few rows keep all of them busy. Shares that push over the link are apart from those that copy locally: 10 %
//     of a large call. Each block takes one ticket, not tickets until none is left (one atomic).
//  2. The first warp alone goes from the ticket to the arrivals, everything in registers; the block meets four times.
//     Every load that does not depend on another one is under way before the first is used: status, completed count,
//     splits and ticket at once. With 1, 3, 4 and 6: 5 us.
//  3. A wait looks at its flag alone eight times before it looks at status, clock and aborted words.
//  4. How a share ended is part of the number that counts it, so the last one needs no further look.
//  5. Size of the code. A launch finds the instruction cache cold, and what runs once costs what it takes to fetch. Hence few
//     unrolled loops, the header's words ready in the parameters, and everything that only large or failed calls need in
//     functions that are not in line: 2.5 us.
//  6. Addresses of the first eight members travel with the parameters, not in a table.
//
// Tried and left out: a dry run of the later code by the idle warps while the first one waits (+1.6 us), fetching the
// parameters ahead by another warp (+0.8 us).
#include "exchange/push.cuh"

using namespace symm;
using namespace symm::exchange;

namespace {

// Row 0 of the result after a failure. One warp.
__device__ __noinline__ void clear_result(const ExchangeParams& p) {
  if (p.out_splits == 0) return;
  for (u64 k = threadIdx.x; k < p.n_splits; k += 32) ((long long*)p.out_splits)[k] = 0;
  __syncwarp();
}

// Ends the operation: the first warp of the share that ended last. `failed`: the reasons of all shares.
__device__ __forceinline__ void end_operation(const ExchangeParams& p, const Turn& turn, u64 failed) {
  const uint32_t lane = threadIdx.x;
  const u64 epoch = turn.epoch & ~EPOCH_SKIP;
  if (failed == 0 && p.form != FORM_BARRIER) {
#pragma unroll 1
    for (uint32_t r = lane; r < p.ranks; r += 32)
      store_relaxed_sys_u64((void*)(region(p, r) + p.done + 8 * p.rank), epoch);
    if (!wait_members(p, p.done, epoch, PHASE_DONE, turn.began, true)) failed = FAILED_WAIT;
  }
  let_stream_go_on();
  // After a bad verdict nobody waits for this PE, and the peers are to find that verdict, not a PE that gave up; its
  // next operation tells them.
  if (failed != 0) {
    if (failed < FAILED_VERDICT) give_up(p, epoch);
    clear_result(p);
  }
  if (lane != 0) return;
  // The count never falls: an operation that gives up in its ticket's wait may end before an earlier one.
  max_release_gpu_u64((void*)(p.mine + CONTEXT_COMPLETED), epoch);
  if (gridDim.x == 1) return;
  LaunchRecord* record = record_of(p);
  store_relaxed_gpu_u32(&record->tickets, 0);
  store_relaxed_gpu_u64(&record->finished, 0);
  store_relaxed_gpu_u64(&record->epoch, 0);
}

}  // namespace

extern "C" __global__ void __launch_bounds__(MAX_THREADS, 1) symm_exchange(const __grid_constant__ ExchangeParams p) {
  __shared__ Shared s;
  wait_for_stream();
  const uint32_t shares = gridDim.x;
  const bool first_warp = threadIdx.x < 32;
  const bool few = published_splits(p) <= WARP_SPLITS;

  Turn turn;
  if (first_warp) {
    Held<OneWarp> held;
    turn = take_turn(p, held);
    if (threadIdx.x == 0) s.epoch = turn.epoch, s.share = turn.share;
    if (few && turn.share == 0 && !(turn.epoch & EPOCH_SKIP)) publish(OneWarp(), s, p, turn.epoch, held);
  }
  if (!few) {
    __syncthreads();
    if (s.share == 0 && !(s.epoch & EPOCH_SKIP)) {
      const u64 epoch = s.epoch;
      publish_many(s, p, epoch);
    }
  }
  if (first_warp) {
    const bool fine = !(turn.epoch & EPOCH_SKIP) &&
                      wait_members(p, p.arrival, turn.epoch, PHASE_ARRIVAL, turn.began, turn.share == 0);
    if (threadIdx.x == 0) s.fine = fine;
  }
  __syncthreads();

  u64 outcome = SHARE;
  if (!s.fine) {
    outcome |= FAILED_WAIT;
  } else {
    const u64 epoch = s.epoch;
    const Role role = role_of(p, s.share, shares);
    if (!verdict(s, p, epoch, tile(role, role.begin))) {
      outcome |= FAILED_VERDICT;
    } else if (p.form != FORM_BARRIER) {
      const bool result = s.share == shares - 1 && p.out_splits != 0 && p.n_splits != 0;
      push(s, p, epoch, role);
      if (result && few && threadIdx.x / 32 == blockDim.x / 32 - 1) write_result(OneWarp(), s, p, epoch);
      if (result && !few) write_result_many(s, p, epoch);
    }
  }

  __syncthreads();
  if (!first_warp) return;
  if (outcome == SHARE && !s.fine) {
    // A warp has stopped pushing; this sets the status where nobody has yet.
    goes_on(p, p.done, turn.epoch, PHASE_DONE, turn.began, false);
    outcome |= FAILED_WAIT;
  }
  // All of this share's rows are delivered before its count is; the last share's fence hands on what the others counted.
  fence_acq_rel_sys();
  u64 counted = outcome;
  if (shares > 1) {
    if (threadIdx.x == 0) counted += fetch_add_relaxed_gpu_u64(&record_of(p)->finished, outcome);
    counted = __shfl_sync(ALL, counted, 0);
    if ((counted & SHARES) != shares) return;
    fence_acq_rel_sys();
  }
  end_operation(p, turn, counted & ~SHARES);
}
