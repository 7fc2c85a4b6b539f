// Signals of a pad: PyTorch's put_signal and wait_signal, and waits on the 64-bit user signals. One thread each.
#include "steps.cuh"
#include "symm/params.cuh"
#include "symm/wait.cuh"

using namespace symm;

// put_signal where the link has no atomics. Only this PE takes a slot of its own from 0 to 1, so a look and a store do, one stream at a
// time: `claim`, in this PE's memory, is 1 meanwhile. Without it two streams could see the same 0, and a signal would be lost.
__device__ __forceinline__ void put_by_store(const PadSignalParams& p, const Status& status, const Failure& failure) {
  const u64 began = now_ns();
  const auto claim = [&] { return (u64)cas_acq_rel_sys_u32((void*)p.claim, 0, 1); };
  if (!wait_word(status, p.limit_ns, failure, claim, [](u64 seen) { return seen == 0; })) return;
  step(STEP_PREPARED);
  const u64 waited = now_ns() - began;
  const auto look = [&] { return (u64)load_acquire_sys_u32((const void*)p.slot); };
  if (wait_word(status, waited < p.limit_ns ? p.limit_ns - waited : 0, failure, look, [&](u64 seen) { return seen == p.from; })) {
    release_sys<FENCE_PAD_STORE>();
    store_relaxed_sys_u32((void*)p.slot, p.to);
  }
  step(STEP_RAISED);
  // Whoever claims next sees the slot as it was left.
  release_sys<FENCE_PAD_CLAIM>();
  store_relaxed_gpu_u32((void*)p.claim, 0);
}

// put_signal: waits for 0 in the peer's slot, stores 1 (release). wait_signal: waits for 1 here, stores 0 (acquire).
extern "C" __global__ void symm_pad_signal(const __grid_constant__ PadSignalParams p) {
  wait_for_stream();
  let_stream_go_on();
  const Status status = {(StatusRecord*)p.status.device, (StatusRecord*)p.status.host};
  if (!status_ok(status)) return;
  step(STEP_PREPARED);
  Failure failure = {STATUS_TIMEOUT, p.op, PHASE_SIGNAL, p.pe, p.late, p.from, 0, 0};
  if (p.claim != 0) return put_by_store(p, status, failure);
  // A release, too: what this stream wrote before is there for whoever sees the slot change.
  const auto exchange = [&] {
    if (WITHOUT == FENCE_PAD_SIGNAL) return (u64)cas_acquire_sys_u32((void*)p.slot, p.from, p.to);
    return (u64)cas_acq_rel_sys_u32((void*)p.slot, p.from, p.to);
  };
  wait_word(status, p.limit_ns, failure, exchange, [&](u64 seen) { return seen == p.from; });
  step(STEP_RAISED);
}

extern "C" __global__ void symm_wait_until(const __grid_constant__ WaitParams p) {
  wait_for_stream();
  let_stream_go_on();
  const Status status = {(StatusRecord*)p.status.device, (StatusRecord*)p.status.host};
  // On its way while the word is looked at for the first time.
  const u64 code = load_relaxed_gpu_u64(&status.device->code);
  const u64 seen = load_acquire_sys_u64((const void*)p.word);
  if (code != STATUS_OK || compare(p.cmp, seen, p.value)) return;
  Failure failure = {STATUS_TIMEOUT, p.op, PHASE_SIGNAL, p.pe, p.late, p.value, 0, 0};
  wait_word(
      status, p.limit_ns, failure, [&] { return load_acquire_sys_u64((const void*)p.word); },
      [&](u64 seen) { return compare(p.cmp, seen, p.value); });
}
