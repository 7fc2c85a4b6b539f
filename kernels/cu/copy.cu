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
  const bool ordered = WITHOUT != FENCE_PUT_SIGNAL;
  if (p.signal_add) {
    if (ordered) add_release_sys_u64((void*)p.signal, p.signal_value);
    else add_relaxed_sys_u64((void*)p.signal, p.signal_value);
  } else {
    if (ordered) store_release_sys_u64((void*)p.signal, p.signal_value);
    else store_relaxed_sys_u64((void*)p.signal, p.signal_value);
  }
  step(STEP_RAISED);
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
  step(STEP_BEGIN);
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
  // The count is a release, so the last block's signal covers the data of all. The fence adds no order; with it all blocks wait for
  // their own data at the same time, and the last one finds nothing left to wait for.
  acq_rel_sys<FENCE_PUT_COUNT>();
  step(STEP_FENCED);
  const u64 counted = (WITHOUT != FENCE_PUT_COUNT ? fetch_add_acq_rel_gpu_u64(&record->finished, one) : fetch_add_relaxed_gpu_u64(&record->finished, one)) + one;
  step(STEP_COUNTED);
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
