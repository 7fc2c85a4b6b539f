// Compares what a call of the stress test left in GPU memory with what it should have left, every word of it.
#include "symm/memory.cuh"

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
