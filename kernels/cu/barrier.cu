// The barrier of a handle on one channel: each member writes its count into its word of every pad, then waits for all
// words of its own pad to reach that count. One warp; words have one writer each and only grow.
#include "symm/params.cuh"
#include "symm/wait.cuh"

using namespace symm;

namespace {

constexpr unsigned ALL = 0xffffffffu;

__device__ __forceinline__ u64 pad(const BarrierParams& p, uint32_t rank) {
  return rank < NEAR_RANKS ? p.near_pads[rank] : ((const u64*)p.pads)[rank];
}

// Whether the wait is to go on: no failure, and the deadline has not passed. The whole warp.
__device__ __noinline__ bool goes_on(const BarrierParams& p, const Status& status, u64 mine, u64 epoch, u64 began) {
  const unsigned lane = threadIdx.x;
  const u64 waited = __shfl_sync(ALL, now_ns() - began, 0);
  const bool fine = lane != 0 || status_ok_in_wait(status, waited);
  if (!__all_sync(ALL, fine)) return false;
  if (waited <= p.limit_ns) return true;
  uint32_t late = p.ranks;
  u64 got = 0, late_set = 0;
  for (uint32_t r = lane; r < p.ranks; r += 32) {
    const u64 seen = load_acquire_sys_u64((const void*)(mine + p.words + 8 * r));
    if (seen >= epoch) continue;
    if (late == p.ranks) late = r, got = seen;
    if (r < 64) late_set |= 1ull << r;
  }
  const uint32_t first = __reduce_min_sync(ALL, late);
  if (first == p.ranks) return true;  // the last one came just now
  late_set = (u64)__reduce_or_sync(ALL, (unsigned)late_set) | (u64)__reduce_or_sync(ALL, (unsigned)(late_set >> 32)) << 32;
  if (late == first) {
    const u64 pe = ((const u64*)p.members)[first];
    status_fail(status, {STATUS_TIMEOUT, OP_HANDLE_BARRIER, PHASE_ARRIVAL, pe, late_set, epoch, got, waited});
  }
  return false;
}

}  // namespace

extern "C" __global__ void __launch_bounds__(32, 1) symm_barrier(const __grid_constant__ BarrierParams p) {
  wait_for_stream();
  let_stream_go_on();
  const unsigned lane = threadIdx.x;
  const Status status = {(StatusRecord*)p.status.device, (StatusRecord*)p.status.host};
  const u64 mine = pad(p, p.rank);
  const u64 began = now_ns();
  // Count, status and fence (the stream's earlier writes come before the words) are under way together. A count that is
  // taken after a failure does no harm: recovery puts all counts back to zero.
  u64 epoch = 0;
  if (lane == 0) epoch = fetch_add_relaxed_gpu_u64((void*)(mine + p.counter), 1) + 1;
  const u64 code = load_relaxed_gpu_u64(&status.device->code);
  fence_acq_rel_sys();
  epoch = __shfl_sync(ALL, epoch, 0);
  if (__any_sync(ALL, code != STATUS_OK)) return;
  for (uint32_t r = lane; r < p.ranks; r += 32) store_relaxed_sys_u64((void*)(pad(p, r) + p.words + 8 * p.rank), epoch);

  for (uint32_t look = 1;; look++) {
    bool late = false;
    for (uint32_t r = lane; r < p.ranks; r += 32)
      late |= load_acquire_sys_u64((const void*)(mine + p.words + 8 * r)) < epoch;
    if (!__any_sync(ALL, late)) return;
    if (look % LOOKS == 0 && !goes_on(p, status, mine, epoch, began)) return;
  }
}
