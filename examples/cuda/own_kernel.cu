// A kernel of a user's own: computes words straight into the right neighbour's memory, signals it, waits for the left one with
// a deadline, reads what came.
#include "symm/handle.cuh"

using namespace symm;

// One block. `seen` gets this PE's words after the left neighbour's signal; it stays as it is if none comes within `limit_ns`.
extern "C" __global__ void ring(const Handle h, u64 index, u64 words, u64 limit_ns, u64* seen) {
  const u64 right = (h.rank + 1) % h.ranks;
  u64* theirs = buffer<u64>(h, right);
  for (u64 i = threadIdx.x; i < words; i += blockDim.x) theirs[i] = 1000 * h.rank + i;

  // After the block's barrier one thread's release covers what all its threads wrote.
  __syncthreads();
  if (threadIdx.x == 0) set_signal(h, right, index, 1);

  if (!block_wait_signal(h, index, Compare::Equal, 1, Deadline(limit_ns))) return;
  const u64* mine = buffer<u64>(h, h.rank);
  for (u64 i = threadIdx.x; i < words; i += blockDim.x) seen[i] = mine[i];
}
