// Steps and fences of the protocol, by name, for builds that test it. A build as users get it has neither delays nor traces, and
// all fences. docs/MEMORY_MODEL.md lists what fails without each.
//
//   SYMM_DELAYS        a random delay at every step
//   SYMM_WITHOUT=F     fence F is left out, so that a test or a model must fail
//   SYMM_TRACE         the clock at every step of each block's last launch, in `trace_rows`
#pragma once

#include "symm/memory.cuh"

namespace symm {

enum Step : uint32_t {
  STEP_BEGIN,      // the stream has come to the launch
  STEP_DRAFTED,    // a warp knows the words of the header
  STEP_LOOKED,     // ... and has looked at status and turn, and fenced
  STEP_PREPARED,   // another has read and checked the splits
  STEP_TICKETS,    // the first thread has share and epoch
  STEP_MET,        // the block has met
  STEP_PUBLISHED,  // the note is on its way
  STEP_ARRIVING,   // a warp begins to wait for the note of rank 0
  STEP_ARRIVED,    // all members' notes are here
  STEP_PLACED,     // the first warp has worked out its destinations
  STEP_VERDICT,    // the verdict is reached
  STEP_PUSHED,     // the block's rows are on their way
  STEP_FENCED,     // they are delivered
  STEP_RAISED,     // the receivers have been told
  STEP_COUNTED,    // the share is counted
  STEP_COMPLETE,   // all members have pushed here
  STEPS,
};

// Fences and release stores on the side of whoever announces something.
enum Fence : uint32_t {
  FENCE_NONE,
  FENCE_PUSHED,          // exchange: rows before a share's word
  FENCE_MANY_SPLITS,     // exchange: splits in a slot before the arrival word
  FENCE_EXCHANGE_COUNT,  // exchange: a share's local rows before its count
  FENCE_BARRIER,         // barrier of a handle: earlier work before the word
  FENCE_CONTEXT_BARRIER, // barrier of a context: earlier work before the note
  FENCE_BROUGHT,         // reductions: elements that were brought before the note
  FENCE_REDUCE_COUNT,    // reductions: a share's part before its count
  FENCE_PUSH_COUNT,      // pushed reductions: a share's sums, and the words that it cleared, before its count
  FENCE_REDUCED,         // reductions: sums and reads before done and gathered words
  FENCE_TAKE_COUNT,      // forms that take, the planned exchange: a share's part before its count and the done words
  FENCE_PUT_SIGNAL,      // put_with_signal: data before the signal
  FENCE_PUT_COUNT,       // put_with_signal: a block's data before its count (fence and atomic)
  FENCE_PAD_SIGNAL,      // put_signal, wait_signal: earlier work before the slot
  FENCE_PAD_STORE,       // put_signal over a link without atomics: earlier work before the slot
  FENCE_PAD_CLAIM,       // the same: the slot before another stream may look at it
  FENCE_NET_STAGED,      // network members: bytes of a stage before the network reads them
  FENCE_NET_HANDED,      // network members: sums in the own buffer before the network reads them
  FENCE_NET_SLOT,        // handles with network members: earlier work before put_signal raises a slot
  FENCE_NET_CREDIT,      // the same: a slot's clearing, and earlier work, before wait_signal gives credit
  FENCE_NET_BARRIER,     // the same: earlier work before the words of the barrier
  FENCE_NET_COUNT,       // collectives with network members: a share's stores before its count
};

#if defined(SYMM_WITHOUT)
constexpr uint32_t WITHOUT = SYMM_WITHOUT;
#else
constexpr uint32_t WITHOUT = FENCE_NONE;
#endif

template <Fence F>
__device__ __forceinline__ void release_sys() {
  if (F != WITHOUT) fence_release_sys();
}

template <Fence F>
__device__ __forceinline__ void release_gpu() {
  if (F != WITHOUT) fence_release_gpu();
}

template <Fence F>
__device__ __forceinline__ void acq_rel_sys() {
  if (F != WITHOUT) fence_acq_rel_sys();
}

#if defined(SYMM_TRACE)
// A row of STEPS clocks a block. Kept in shared memory until the block ends.
__device__ long long* trace_rows;
__device__ __forceinline__ void step(Step s) {
  __shared__ long long row[STEPS];
  if ((threadIdx.x & 31) != 0) return;
  row[s] = clock64();
  if (s != STEP_COUNTED && s != STEP_COMPLETE) return;
  long long* to = trace_rows;
  if (to != nullptr && threadIdx.x == 0) for (int i = 0; i < STEPS; i++) to[blockIdx.x * STEPS + i] = row[i];
}
#elif defined(SYMM_DELAYS)
// A warp in four waits up to 16 us. The order of a launch's warps, blocks and PEs is another one each time.
inline __device__ __noinline__ void step(Step s) {
  u64 z = now_ns() + 0x9e3779b97f4a7c15ull * (1 + s + STEPS * (blockIdx.x * 32 + threadIdx.x / 32));
  z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9ull;
  z = (z ^ z >> 27) * 0x94d049bb133111ebull;
  if ((z >> 60 & 3) == 0) __nanosleep((unsigned)(z >> 20) & 0x3fff);
}
#else
__device__ __forceinline__ void step(Step) {}
#endif

}  // namespace symm
