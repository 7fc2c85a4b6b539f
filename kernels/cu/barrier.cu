// The barrier of a handle on one channel: each member writes its count into its word of every pad, then waits for all
// words of its own pad to reach that count. One warp; words have one writer each and only grow.
#include "barrier/wait.cuh"

using namespace symm;
using namespace symm::barrier;

extern "C" __global__ void __launch_bounds__(32, 1) symm_barrier(const __grid_constant__ BarrierParams p) {
  wait_for_stream();
  let_stream_go_on();
  const unsigned lane = threadIdx.x;
  const Status status = {(StatusRecord*)p.status.device, (StatusRecord*)p.status.host};
  const u64 mine = pad(p, p.rank);
  const u64 began = now_ns();
  // Count, status and fence (the stream's earlier writes come before the words) are under way together. A count that is
  // taken after a failure does no harm: recovery puts all counts back to zero.
  u64 epoch = 0;
  if (lane == 0) epoch = fetch_add_relaxed_gpu_u64((void*)(mine + p.counter), 1) + 1;
  const u64 code = load_relaxed_gpu_u64(&status.device->code);
  fence_acq_rel_sys();
  epoch = __shfl_sync(ALL, epoch, 0);
  if (__any_sync(ALL, code != STATUS_OK)) return;
  for (uint32_t r = lane; r < p.ranks; r += 32) store_relaxed_sys_u64((void*)(pad(p, r) + p.words + 8 * p.rank), epoch);

  wait_words(p, status, mine, epoch, began);
}
