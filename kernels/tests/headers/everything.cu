// Calls every function of handle.cuh that other kernels of the repository do not call: templates and inline functions are compiled only
// where they are called.
#include "symm/handle.cuh"

using namespace symm;

extern "C" __global__ void everything(Handle h, u64 bytes, u64* mine) {
  const Deadline deadline(1000000);
  if (!team_ok(h) || !is_direct(h, 0)) return;
  get(h, 0, 8, mine, bytes);
  __syncthreads();
  if (threadIdx.x == 0) {
    add_signal(h, 0, 1, 1);
    if (!put_signal(h, 0, 2, deadline) || deadline.passed()) *mine = 0;
  }
  if (block_wait_signal(h, 0, 2, deadline) && block_wait_until(h, 1, Compare::Less, 3, deadline)) mine[1] = 1;
}
