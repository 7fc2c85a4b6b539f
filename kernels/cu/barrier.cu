// The barrier of a handle on one channel: each member writes its count into its word of every pad, then waits for all
// words of its own pad to reach that count. One warp; words have one writer each and only grow.
#include "symm/params.cuh"
#include "symm/wait.cuh"

using namespace symm;

extern "C" __global__ void __launch_bounds__(32, 1) symm_barrier(const __grid_constant__ BarrierParams p) {
  const unsigned ALL = 0xffffffffu;
  const unsigned lane = threadIdx.x;
  const Status status = {(StatusRecord*)p.status.device, (StatusRecord*)p.status.host};
  if (!__all_sync(ALL, status_ok(status))) return;
  const u64* pads = (const u64*)p.pads;
  const u64 mine = pads[p.rank];
  u64 epoch = 0;
  if (lane == 0) epoch = fetch_add_relaxed_gpu_u64((void*)(mine + p.counter), 1) + 1;
  epoch = __shfl_sync(ALL, epoch, 0);
  // The stream's earlier writes come before the words.
  fence_acq_rel_sys();
  for (uint32_t r = lane; r < p.ranks; r += 32) store_relaxed_sys_u64((void*)(pads[r] + p.words + 8 * p.rank), epoch);

  const u64 began = now_ns();
  for (;;) {
    uint32_t late = p.ranks;
    u64 got = 0;
    u64 late_set = 0;
    for (uint32_t r = lane; r < p.ranks; r += 32) {
      const u64 seen = load_acquire_sys_u64((const void*)(mine + p.words + 8 * r));
      if (seen >= epoch) continue;
      if (late == p.ranks) late = r, got = seen;
      if (r < 64) late_set |= 1ull << r;
    }
    const uint32_t first = __reduce_min_sync(ALL, late);
    if (first == p.ranks) return;
    const u64 waited = __shfl_sync(ALL, now_ns() - began, 0);
    const bool fine = lane != 0 || status_ok_in_wait(status, waited);
    if (!__all_sync(ALL, fine)) return;
    if (waited > p.limit_ns) {
      late_set = (u64)__reduce_or_sync(ALL, (unsigned)late_set) | (u64)__reduce_or_sync(ALL, (unsigned)(late_set >> 32)) << 32;
      if (late == first) {
        const u64 pe = ((const u64*)p.members)[first];
        const Failure f = {STATUS_TIMEOUT, OP_HANDLE_BARRIER, PHASE_ARRIVAL, pe, late_set, epoch, got, waited};
        status_fail(status, f);
      }
      return;
    }
  }
}
