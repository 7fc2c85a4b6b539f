// Kernels of a user's own, with a put to a peer and a signal, a wait with a deadline, and a barrier. They count their runs in device
// memory or by the barrier, so a graph may replay them.
#include "symm/handle.cuh"

using namespace symm;

// Computes words, puts them to the right neighbour with a signal, waits for the left one's, and copies what came to `seen`, which stays
// as it is if nothing comes within `limit_ns`. One block. `run` counts the runs, `mine` has room for the words.
extern "C" __global__ void ring(const __grid_constant__ Handle h, u64 index, u64 words, u64 limit_ns, u64* run, u64* mine, u64* seen) {
  const Deadline deadline(limit_ns);
  const u64 number = *run + 1;
  for (u64 i = threadIdx.x; i < words; i += blockDim.x) mine[i] = 1000000 * number + 1000 * h.rank + i;
  __syncthreads();
  put_with_signal(h, (h.rank + 1) % h.ranks, 0, mine, 8 * words, index, number);

  if (!block_wait_until(h, index, Compare::GreaterEqual, number, deadline)) return;
  const u64* came = buffer<u64>(h, h.rank);
  for (u64 i = threadIdx.x; i < words; i += blockDim.x) seen[i] = came[i];

  // Nobody puts the next run's words over these before all have read.
  if (barrier(h, 0, deadline) && threadIdx.x == 0) *run = number;
}

// Puts `mine` to everybody, into row `rank` of a table that begins `first` bytes into the tensor, and adds up the rows that came. One
// block.
extern "C" __global__ void add_up(const __grid_constant__ Handle h, u64 first, u64 words, u64 limit_ns, const u64* mine, u64* sums) {
  const Deadline deadline(limit_ns);
  for (u64 to = 0; to < h.ranks; to++) put(h, to, first + 8 * words * h.rank, mine, 8 * words);
  if (!barrier(h, 1, deadline)) return;
  const u64* rows = buffer<u64>(h, h.rank) + first / 8;
  for (u64 i = threadIdx.x; i < words; i += blockDim.x) {
    u64 sum = 0;
    for (u64 from = 0; from < h.ranks; from++) sum += rows[words * from + i];
    sums[i] = sum;
  }
  barrier(h, 1, deadline);
}
