// put, get and put_with_signal to a peer that is reached by load and store. No block waits for another.
#include "steps.cuh"
#include "symm/copy.cuh"
#include "symm/params.cuh"
#include "symm/status.cuh"

using namespace symm;

namespace {

__device__ __forceinline__ void raise(const CopyParams& p) {
  step(STEP_PUSHED);
  // Release is cumulative: what the other threads (by the block's barrier) and blocks (by their count) wrote comes first.
  if (WITHOUT == FENCE_PUT_SIGNAL) {
    store_relaxed_sys_u64((void*)p.signal, p.signal_value);
  } else if (p.signal_add) {
    add_release_sys_u64((void*)p.signal, p.signal_value);
  } else {
    store_release_sys_u64((void*)p.signal, p.signal_value);
  }
}

// A message of at most one word a lane: data and status are read at once, and nobody meets but the lanes of the warp.
__device__ __forceinline__ bool is_message(const CopyParams& p) {
  return gridDim.x == 1 && blockDim.x == 32 && p.bytes <= 32 * 8 && (p.dst | p.src | p.bytes) % 8 == 0;
}

__device__ __forceinline__ void message(const CopyParams& p, const Status& status) {
  let_stream_go_on();
  const uint32_t lane = threadIdx.x;
  const bool holds = 8 * lane < p.bytes;
  const u64 code = load_relaxed_gpu_u64(&status.device->code);
  u64 word = 0;
  if (holds) word = load_relaxed_sys_u64((const u64*)p.src + lane);
  if (__any_sync(0xffffffffu, code != STATUS_OK)) return;
  if (holds) store_relaxed_sys_u64((u64*)p.dst + lane, word);
  __syncwarp();
  if (lane == 0 && p.signal != 0) raise(p);
}

template <Source S>
__device__ __forceinline__ void copy_then_signal(const CopyParams& p) {
  wait_for_stream();
  const Status status = {(StatusRecord*)p.status.device, (StatusRecord*)p.status.host};
  if (is_message(p)) return message(p, status);
  // A team that has failed moves nothing. All threads look, so no block-wide step is needed to agree: the block is
  // taken to have skipped if any of its threads did.
  const bool skip = !status_ok(status);
  if (!skip) grid_copy<S>(p.dst, p.src, p.bytes);
  if (p.signal == 0) return;
  const int skipped = __syncthreads_or(skip);
  if (threadIdx.x != 0) return;
  if (gridDim.x == 1) {
    if (!skipped) raise(p);
    return;
  }
  // Blocks are counted in the lower half of the word, those that skipped in the upper one too.
  LaunchRecord* record = (LaunchRecord*)p.record;
  const u64 one = skipped ? 1 | 1ull << 32 : 1;
  // The data of this block are on their way before its count is; the last block's signal covers them all.
  if (WITHOUT != FENCE_PUT_COUNT) fence_acq_rel_sys();
  const u64 counted = fetch_add_acq_rel_gpu_u64(&record->finished, one) + one;
  if ((uint32_t)counted == gridDim.x) {
    if (counted >> 32 == 0) raise(p);
    store_relaxed_gpu_u64(&record->finished, 0);
  }
}

}  // namespace

extern "C" __global__ void __launch_bounds__(1024, 1) symm_put(const __grid_constant__ CopyParams p) {
  copy_then_signal<Source::Constant>(p);
}

// The source is a peer's memory, which it may write while this runs.
extern "C" __global__ void __launch_bounds__(1024, 1) symm_get(const __grid_constant__ CopyParams p) {
  copy_then_signal<Source::Shared>(p);
}
