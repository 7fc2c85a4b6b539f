// The barrier of a handle on one channel: each member writes its count into its word of every pad, then waits for all
// words of its own pad to reach that count. Words have one writer each and only grow.
//
// Two warps: one takes the count while the other orders the stream's earlier writes before the words that it will store. What both
// need of the parameters they have before the stream comes to the launch.
#include "steps.cuh"
#include "symm/barrier.cuh"
#include "symm/params.cuh"

using namespace symm;

extern "C" __global__ void __launch_bounds__(64, 1) symm_barrier(const __grid_constant__ BarrierParams p) {
  __shared__ u64 count;
  const unsigned lane = threadIdx.x & 31;
  const u64 mine = barrier_pad(p, p.rank), word = p.words + 8 * p.rank;
  Status status = {(StatusRecord*)p.status.device, (StatusRecord*)p.status.host};
  u64 counter = mine + p.counter, to = lane < p.ranks ? barrier_pad(p, lane) + word : 0;
  Meeting meeting = {mine + p.words, p.members, 0, 0, p.limit_ns, p.ranks};
  // A launch finds its parameters far away.
  known(status.device), known(status.host), known(counter), known(to);
  known(meeting.words), known(meeting.members), known(meeting.limit_ns), known(meeting.ranks);
  wait_for_stream();
  let_stream_go_on();
  step(STEP_BEGIN);
  meeting.began = now_ns();
  if (threadIdx.x == 0) {
    // A count that is taken after a failure does no harm: recovery puts all counts back to zero.
    const u64 epoch = fetch_add_relaxed_gpu_u64((void*)counter, 1) + 1;
    count = load_relaxed_gpu_u64(&status.device->code) == STATUS_OK ? epoch : 0;
  }
  // Of the warp that stores: each of its stores below is a release of what the stream did before.
  if (threadIdx.x >= 32) release_sys<FENCE_BARRIER>();
  step(STEP_PREPARED);
  __syncthreads();
  meeting.epoch = count;
  if (threadIdx.x < 32 || meeting.epoch == 0) return;
  if (to != 0) store_relaxed_sys_u64((void*)to, meeting.epoch);
#pragma unroll 1
  for (uint32_t r = lane + 32; r < meeting.ranks; r += 32) store_relaxed_sys_u64((void*)(barrier_pad(p, r) + word), meeting.epoch);
  step(STEP_RAISED);

  wait_meeting(status, meeting);
}
