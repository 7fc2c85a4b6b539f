// Members that are reached by NVSHMEM's transports only, as kernels use them.
//
// The network moves bytes out of and into the symmetric heap only, so what lies elsewhere passes through a stage: a place in
// the heap that a block holds from its copy until NVSHMEM says that it is through with it. Remote memory is named as NVSHMEM
// does: an address in this PE's own heap, at the offset that the bytes have in the peer's.
//
// Every kernel leaves nothing outstanding: it ends with a quiet, so the streams' order is all that fences and quiets of the
// host need. NVSHMEM's calls have no deadline; the host's watchdog sees by `activity` that one of them does not return.
#pragma once

#include "../steps.cuh"
#include "symm/copy.cuh"
#include "symm/params.cuh"
#include "symm/wait.cuh"

// Of shim.cu. `to` and `signal` are the peer's; `from` lies in this PE's heap. Those with `block` in their name are called by
// the whole block, the others by one thread. None waits for the peer's program.
extern "C" {
// Starts a put.
__device__ void symm_shim_put_block(void* to, void* from, size_t bytes, int pe);
// Starts a put and the update of a u64 that comes after it.
__device__ void symm_shim_put_signal_block(void* to, void* from, size_t bytes, void* signal, uint64_t value, int add, int pe);
// Gets from the peer's `from`; done when it returns.
__device__ void symm_shim_get_block(void* from, void* to, size_t bytes, int pe);
// Start storing one word.
__device__ void symm_shim_word32(void* to, uint32_t value, int pe);
__device__ void symm_shim_word64(void* to, uint64_t value, int pe);
// Starts an update of a u64: a store, or an addition that is atomic with respect to others of NVSHMEM's.
__device__ void symm_shim_signal(void* signal, uint64_t value, int add, int pe);
// What was started before reaches each peer before what is started later.
__device__ void symm_shim_fence();
// Returns once all that was started is there.
__device__ void symm_shim_quiet();
// After a word was seen: makes what the network wrote before it visible here.
__device__ void symm_shim_update();
}

namespace symm {
namespace net {

constexpr int THREADS = 512;

// Bytes of one stage (symm_kernels::params::STAGE_BYTES).
constexpr uint32_t STAGE_BYTES = 512 * 1024;

__device__ __forceinline__ bool is_network(const NetParams& n, uint32_t rank) { return n.network[rank / 64] >> rank % 64 & 1; }

__device__ __forceinline__ bool in_heap(const NetParams& n, u64 at, u64 bytes) {
  return at >= n.heap && at - n.heap < n.heap_bytes && bytes <= n.heap_bytes - (at - n.heap);
}

// Tells the watchdog that this thread is about to call NVSHMEM, and that it is back. The counts announce nothing else.
__device__ __forceinline__ void enter(const NetParams& n) { add_relaxed_sys_u64((void*)n.activity, 1); }
__device__ __forceinline__ void leave(const NetParams& n) { add_relaxed_sys_u64((void*)(n.activity + 8), 1); }

// The stage of a block, taken when it is first needed. The same on every thread.
struct Stage {
  u64 at;      // 0: none yet
  bool dirty;  // whether NVSHMEM may still read it
};

// Takes a stage. The whole block. A block that holds one waits for nothing but NVSHMEM, so one becomes free.
inline __device__ __noinline__ u64 take_stage(const NetParams& n) {
  __shared__ uint32_t taken;
  if (threadIdx.x == 0) {
    uint32_t k = blockIdx.x % n.stages;
    while (cas_acq_rel_gpu_u64((void*)(n.locks + 8 * k), 0, 1) != 0) k = k + 1 == n.stages ? 0 : k + 1;
    taken = k;
  }
  __syncthreads();
  const u64 at = n.stage + (u64)taken * STAGE_BYTES;
  __syncthreads();
  return at;
}

// Waits until nothing of this block is outstanding. The whole block.
__device__ __forceinline__ void quiet(Stage& stage) {
  __syncthreads();
  if (threadIdx.x == 0) symm_shim_quiet();
  __syncthreads();
  stage.dirty = false;
}

// The same, and gives the stage back.
__device__ __forceinline__ void finish(const NetParams& n, Stage& stage) {
  quiet(stage);
  if (threadIdx.x == 0 && stage.at != 0) store_release_gpu_u64((void*)(n.locks + 8 * ((stage.at - n.stage) / STAGE_BYTES)), 0);
  stage.at = 0;
}

// A copy by the whole block between memory of this GPU.
template <Source S>
__device__ __forceinline__ void block_copy(u64 dst, u64 src, u64 bytes) {
  const u64 warps = blockDim.x / 32, piece = piece_bytes(bytes, warps);
  for (u64 at = threadIdx.x / 32 * piece; at < bytes; at += warps * piece)
    warp_copy<S>(dst + at, src + at, (uint32_t)(bytes - at < piece ? bytes - at : piece));
}

// Where the network finds `bytes` bytes of `from`: there, or a copy in the stage. The whole block; at most STAGE_BYTES unless
// they lie in the heap.
template <Source S>
__device__ __forceinline__ u64 sendable(const NetParams& n, Stage& stage, u64 from, u64 bytes) {
  if (in_heap(n, from, bytes)) return from;
  if (stage.at == 0) stage.at = take_stage(n);
  if (stage.dirty) quiet(stage);
  block_copy<S>(stage.at, from, bytes);
  stage.dirty = true;
  // The network is not of this GPU: each thread's bytes must have left it.
  acq_rel_sys<FENCE_NET_STAGED>();
  __syncthreads();
  return stage.at;
}

// Puts bytes from anywhere, this share of them: pieces of STAGE_BYTES, of which every `shares`-th, beginning with `turn`, is
// this block's. Advances `turn`. The whole block.
template <Source S>
__device__ __forceinline__ void put(const NetParams& n, Stage& stage, u64 to, u64 from, u64 bytes, int pe, uint32_t& turn, uint32_t shares) {
  for (u64 at = 0; at < bytes; at += STAGE_BYTES) {
    if (turn != 0) {
      turn--;
      continue;
    }
    turn = shares - 1;
    const u64 length = bytes - at < STAGE_BYTES ? bytes - at : STAGE_BYTES;
    symm_shim_put_block((void*)(to + at), (void*)sendable<S>(n, stage, from + at, length), length, pe);
  }
}

// A get to the heap, behind which the whole block may read the bytes: the one thread that NVSHMEM tells so acquires, for all whom it then
// meets. The whole block, which has met since it last read there.
__device__ __forceinline__ void get_block(u64 to, u64 from, u64 bytes, int pe) {
  symm_shim_get_block((void*)from, (void*)to, bytes, pe);
  if (threadIdx.x == 0) fence_acq_rel_sys();
  __syncthreads();
}

// Gets bytes to `to`, in the heap, or to the stage if that is 0: then at most STAGE_BYTES. The whole block; done when it returns.
__device__ __forceinline__ void get_to_heap(const NetParams& n, Stage& stage, u64 to, u64 from, u64 bytes, int pe) {
  if (to == 0 && stage.at == 0) stage.at = take_stage(n);
  if (stage.dirty) quiet(stage);
  __syncthreads();
  get_block(to != 0 ? to : stage.at, from, bytes, pe);
}

// Gets bytes to anywhere: at most STAGE_BYTES unless `to` lies in the heap. The whole block; done when it returns.
__device__ __forceinline__ void get(const NetParams& n, Stage& stage, u64 to, u64 from, u64 bytes, int pe) {
  const bool direct = in_heap(n, to, bytes);
  get_to_heap(n, stage, direct ? to : 0, from, bytes, pe);
  if (direct) return;
  block_copy<Source::Shared>(to, stage.at, bytes);
  __syncthreads();
}

}  // namespace net
}  // namespace symm
