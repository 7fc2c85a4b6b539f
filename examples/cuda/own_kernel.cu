// A kernel of a user's own: puts words to the right neighbour, signals, waits for the left one, reads what came.
#include "symm/memory.cuh"

using namespace symm;

// One block. `buffers` and `pads` are the handle's device arrays, `signal` the offset of a user signal in every pad. `seen`
// gets this PE's words after the left neighbour's signal; it stays as it is if none comes within `limit_ns`.
extern "C" __global__ void ring(const u64* buffers, const u64* pads, u64 signal, u64 rank, u64 ranks, u64 words,
                                u64 limit_ns, u64* seen) {
  const u64 right = (rank + 1) % ranks;
  u64* theirs = (u64*)buffers[right];
  for (u64 i = threadIdx.x; i < words; i += blockDim.x) theirs[i] = 1000 * rank + i;

  // After the block's barrier one thread's release covers what all its threads wrote.
  __syncthreads();
  __shared__ bool came;
  if (threadIdx.x == 0) {
    store_release_sys_u64((void*)(pads[right] + signal), 1);
    const u64 began = now_ns();
    do came = load_acquire_sys_u64((const void*)(pads[rank] + signal)) == 1;
    while (!came && now_ns() - began < limit_ns);
  }
  __syncthreads();
  const u64* mine = (const u64*)buffers[rank];
  for (u64 i = threadIdx.x; came && i < words; i += blockDim.x) seen[i] = mine[i];
}
