// Kernels of the stress test: the comparison of what a call left in GPU memory with what it should have left, every word of it; and a
// kernel as users have them, which waits for a peer.
#include "symm/handle.cuh"

// Where differences go.
struct Differences {
  symm::u64 words;
  symm::u64 first_call;
};

extern "C" __global__ void check(const symm::u64* got, const symm::u64* want, symm::u64 words, symm::u64 call,
                                 Differences* differences) {
  symm::u64 wrong = 0;
  for (symm::u64 i = blockIdx.x * blockDim.x + threadIdx.x; i < words; i += gridDim.x * blockDim.x)
    wrong += got[i] != want[i];
  if (wrong == 0) return;
  atomicAdd(&differences->words, wrong);
  atomicMin(&differences->first_call, call);
}

// Waits for a signal that does not come, under a deadline that is far. `answer`: 1 if it came, 2 if the deadline passed, 3 if the team
// failed. One thread.
extern "C" __global__ void wait_for_peer(const __grid_constant__ symm::Handle h, symm::u64 index, symm::u64 limit_ns, symm::u64* answer) {
  const symm::Deadline deadline(limit_ns);
  if (symm::wait_until(h, index, symm::Compare::NotEqual, 0, deadline)) *answer = 1;
  else *answer = symm::team_ok(h) ? 2 : 3;
}
