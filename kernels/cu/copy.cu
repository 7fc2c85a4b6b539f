// put, get and put_with_signal to a peer that is reached by load and store. No block waits for another.
#include "symm/copy.cuh"
#include "symm/params.cuh"
#include "symm/status.cuh"

using namespace symm;

namespace {

__device__ __forceinline__ void raise(const CopyParams& p) {
  // Release is cumulative: what the other threads (by the block's barrier) and blocks (by their count) wrote comes first.
  if (p.signal_add) {
    add_release_sys_u64((void*)p.signal, p.signal_value);
  } else {
    store_release_sys_u64((void*)p.signal, p.signal_value);
  }
}

template <Source S>
__device__ __forceinline__ void copy_then_signal(const CopyParams& p) {
  const Status status = {(StatusRecord*)p.status.device, (StatusRecord*)p.status.host};
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
  LaunchRecord* record = (LaunchRecord*)p.record;
  if (skipped) or_relaxed_gpu_u32(&record->failed, 1);
  // The data of this block are on their way before its count is; the last block's signal covers them all.
  fence_acq_rel_sys();
  if (fetch_add_acq_rel_gpu_u32(&record->finished, 1) == gridDim.x - 1) {
    if (load_relaxed_gpu_u32(&record->failed) == 0) raise(p);
    store_relaxed_gpu_u32(&record->failed, 0);
    store_relaxed_gpu_u32(&record->finished, 0);
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
