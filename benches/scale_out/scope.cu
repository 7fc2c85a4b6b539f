// What a thread, a warp or a block of a user's own kernel moves to and from a direct peer, with nothing but the project's headers.
#include "symm/handle.cuh"

using namespace symm;

// One thread: words of 16 bytes while they last. Both addresses are multiples of 16.
__device__ __forceinline__ void thread_copy(u64 dst, u64 src, u64 bytes) {
  u64 at = 0;
  for (; at + 16 <= bytes; at += 16) store_16((int4*)(dst + at), load_16((const int4*)(src + at)));
  for (; at + 8 <= bytes; at += 8) *(u64*)(dst + at) = *(const u64*)(src + at);
}

// Every thread of the launch's one block sees what it wrote delivered, then the block goes on.
__device__ __forceinline__ void delivered() {
  fence_acq_rel_sys();
  __syncthreads();
}

// `calls` times, one after another: the launch's one block, of 1, of 32 or of more threads, puts `bytes` bytes to `peer`'s data and sees
// them delivered.
extern "C" __global__ void scoped_puts(const __grid_constant__ Handle h, u64 peer, u64 mine, u64 bytes, u64 calls) {
  for (u64 call = 0; call < calls; call++) {
    if (blockDim.x == 1) thread_copy((u64)buffer<char>(h, peer), mine, bytes);
    else put(h, peer, 0, (const void*)mine, bytes);
    delivered();
  }
}

// The same, and `peer`'s data are brought here.
extern "C" __global__ void scoped_gets(const __grid_constant__ Handle h, u64 peer, u64 mine, u64 bytes, u64 calls) {
  for (u64 call = 0; call < calls; call++) {
    if (blockDim.x == 1) thread_copy(mine, (u64)buffer<char>(h, peer), bytes);
    else get(h, peer, 0, (void*)mine, bytes);
    delivered();
  }
}
