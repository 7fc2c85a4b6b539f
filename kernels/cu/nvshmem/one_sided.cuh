// put, get, put_with_signal, pad signals and the barrier of a handle, towards members that the network reaches.
#pragma once

#include "net.cuh"
#include "symm/barrier.cuh"

namespace symm {
namespace net {

__device__ __forceinline__ Status status_at(const StatusParams& p) { return {(StatusRecord*)p.device, (StatusRecord*)p.host}; }

// `dst` and `signal` are the peer's. Small puts take one block, whose signal follows its data without a round trip between.
extern "C" __global__ void __launch_bounds__(THREADS, 1) symm_net_put(const __grid_constant__ NetCopyParams p) {
  wait_for_stream();
  // A team that has failed moves nothing; all threads look, so the block agrees.
  const bool skip = __syncthreads_or(!status_ok(status_at(p.status)));
  const NetParams& n = p.net;
  const int pe = (int)p.pe;
  if (threadIdx.x == 0) enter(n);
  Stage stage = {0, false};
  bool signalled = false;
  if (!skip) {
    const bool whole = gridDim.x == 1 && p.signal != 0 && p.bytes > 0 && p.bytes <= STAGE_BYTES;
    if (whole) {
      const u64 from = sendable<Source::Constant>(n, stage, p.src, p.bytes);
      symm_shim_put_signal_block((void*)p.dst, (void*)from, p.bytes, (void*)p.signal, p.signal_value, p.signal_add, pe);
      signalled = true;
    } else {
      uint32_t turn = blockIdx.x;
      put<Source::Constant>(n, stage, p.dst, p.src, p.bytes, pe, turn, gridDim.x);
    }
  }
  finish(n, stage);
  if (threadIdx.x != 0) return;
  if (p.signal != 0 && !signalled) {
    // Every block's data are there before it is counted, so the last one's signal comes after all.
    const u64 one = skip ? 1 | 1ull << 32 : 1;
    LaunchRecord* record = (LaunchRecord*)p.record;
    const u64 counted = fetch_add_acq_rel_gpu_u64(&record->finished, one) + one;
    if ((uint32_t)counted == gridDim.x) {
      if (counted >> 32 == 0) {
        symm_shim_signal((void*)p.signal, p.signal_value, p.signal_add, pe);
        symm_shim_quiet();
      }
      store_relaxed_gpu_u64(&record->finished, 0);
    }
  }
  leave(n);
}

// `src` is the peer's.
extern "C" __global__ void __launch_bounds__(THREADS, 1) symm_net_get(const __grid_constant__ NetCopyParams p) {
  wait_for_stream();
  const bool skip = __syncthreads_or(!status_ok(status_at(p.status)));
  if (skip) return;
  const NetParams& n = p.net;
  if (threadIdx.x == 0) enter(n);
  Stage stage = {0, false};
  for (u64 at = (u64)blockIdx.x * STAGE_BYTES; at < p.bytes; at += (u64)gridDim.x * STAGE_BYTES) {
    const u64 length = p.bytes - at < STAGE_BYTES ? p.bytes - at : STAGE_BYTES;
    net::get(n, stage, p.dst + at, p.src + at, length, (int)p.pe);
  }
  finish(n, stage);
  if (threadIdx.x == 0) leave(n);
}

// Stores one of the peer's words, whichever way it is reached.
__device__ __forceinline__ void store_word(const NetPadSignalParams& p, u64 at, uint32_t value) {
  if (p.direct) store_relaxed_sys_u32((void*)at, value);
  else symm_shim_word32((void*)at, value, (int)p.pe);
}

// put_signal: waits for the peer's credit, then stores 1 in its slot. wait_signal: waits for 1 here, stores 0, and gives the
// peer credit. The network has no compare-and-swap that a peer's own store could meet, and a GPU's own is none where the heap is
// in host memory behind PCIe, hence the counts, for all members of such a handle: `count` is how often
// this PE has sent (or consumed) on the channel, `credit` how often the receiver has told that it consumed. One thread.
extern "C" __global__ void __launch_bounds__(32, 1) symm_net_pad_signal(const __grid_constant__ NetPadSignalParams p) {
  wait_for_stream();
  const Status status = status_at(p.status);
  if (threadIdx.x != 0 || !status_ok(status)) return;
  const uint32_t count = load_acquire_sys_u32((const void*)p.count);
  if (p.waits) {
    const Failure failure = {STATUS_TIMEOUT, p.op, PHASE_SIGNAL, p.pe, p.late, 1, 0, 0};
    const auto load = [&] { return (u64)load_acquire_sys_u32((const void*)p.slot); };
    if (!wait_word(status, p.limit_ns, failure, load, [](u64 seen) { return seen == 1; })) return;
    enter(p.net);
    symm_shim_update();
    *(volatile uint32_t*)p.slot = 0;
    *(volatile uint32_t*)p.count = count + 1;
    acq_rel_sys<FENCE_NET_CREDIT>();
    store_word(p, p.credit, count + 1);
  } else {
    const Failure failure = {STATUS_TIMEOUT, p.op, PHASE_CREDIT, p.pe, p.late, count, 0, 0};
    const auto load = [&] { return (u64)load_acquire_sys_u32((const void*)p.credit); };
    if (!wait_word(status, p.limit_ns, failure, load, [=](u64 seen) { return (uint32_t)seen == count; })) return;
    enter(p.net);
    *(volatile uint32_t*)p.count = count + 1;
    acq_rel_sys<FENCE_NET_SLOT>();
    store_word(p, p.slot, 1);
  }
  symm_shim_quiet();
  leave(p.net);
}

// wait_until on a user signal that the network may have written.
extern "C" __global__ void __launch_bounds__(32, 1) symm_net_wait_until(const __grid_constant__ NetWaitParams q) {
  wait_for_stream();
  const WaitParams& p = q.wait;
  const Status status = status_at(p.status);
  if (threadIdx.x != 0 || !status_ok(status)) return;
  const Failure failure = {STATUS_TIMEOUT, p.op, PHASE_SIGNAL, p.pe, p.late, p.value, 0, 0};
  const bool came = wait_word(
      status, p.limit_ns, failure, [&] { return load_acquire_sys_u64((const void*)p.word); },
      [&](u64 seen) { return compare(p.cmp, seen, p.value); });
  if (!came) return;
  enter(q.net);
  symm_shim_update();
  leave(q.net);
}

extern "C" __global__ void __launch_bounds__(32, 1) symm_net_barrier(const __grid_constant__ NetBarrierParams q) {
  wait_for_stream();
  const BarrierParams& p = q.barrier;
  const unsigned lane = threadIdx.x;
  const Status status = status_at(p.status);
  const u64 mine = barrier_pad(p, p.rank);
  const u64 began = now_ns();
  u64 epoch = 0;
  if (lane == 0) epoch = fetch_add_relaxed_gpu_u64((void*)(mine + p.counter), 1) + 1;
  epoch = __shfl_sync(ALL_LANES, epoch, 0);
  const bool skip = !status_ok(status);
  acq_rel_sys<FENCE_NET_BARRIER>();
  if (__any_sync(ALL_LANES, skip)) return;
  if (lane == 0) {
    enter(q.net);
    for (uint32_t r = 0; r < p.ranks; r++) {
      if (is_network(q.net, r))
        symm_shim_word64((void*)(((const u64*)q.pads)[r] + p.words + 8 * p.rank), epoch, (int)((const u64*)p.members)[r]);
    }
  }
  for (uint32_t r = lane; r < p.ranks; r += 32) {
    if (!is_network(q.net, r)) store_relaxed_sys_u64((void*)(barrier_pad(p, r) + p.words + 8 * p.rank), epoch);
  }
  if (lane == 0) {
    symm_shim_quiet();
    leave(q.net);
  }
  __syncwarp();
  if (!wait_meeting(status, {mine + p.words, p.members, epoch, began, p.limit_ns, p.ranks}) || lane != 0) return;
  enter(q.net);
  symm_shim_update();
  leave(q.net);
}

}  // namespace net
}  // namespace symm
