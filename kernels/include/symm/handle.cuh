// A symmetric tensor's handle in a kernel of your own: every rank's data, signals and slots; put, get, signal, wait, meet.
//
// `Handle::kernel_handle()` makes a Handle on the host; pass it by value. It holds while that handle of the host's lives.
//
//   extern "C" __global__ void send(const symm::Handle h, const float* x, uint64_t bytes, uint64_t run) {
//     const symm::Deadline deadline(1000000000);  // a second
//     symm::put_with_signal(h, (h.rank + 1) % h.ranks, 0, x, bytes, /* signal */ 0, /* value */ run);
//     if (!symm::block_wait_until(h, 0, symm::Compare::GreaterEqual, run, deadline)) return;
//     ... symm::buffer<float>(h, h.rank) holds what the left neighbour put ...
//     if (!symm::barrier(h, /* channel */ 0, deadline)) return;  // before anybody puts the next run's
//   }
//
// Who calls: each function says whether one thread does or the whole block, all of whose threads then call it with the same arguments.
// Blocks have one dimension and a multiple of 32 threads. `rank`, `index` and `channel` are not checked: ranks are below `h.ranks`,
// signals below SYMM_SIGNALS, channels below `pad_layout().channels`.
//
// Order: a signal, a slot and a barrier's word are releases, and a wait that returned true is an acquire, at system scope. Whatever the
// releasing thread wrote or saw before, what other threads of its block did before a __syncthreads() that it took part in, and what
// earlier kernels of its stream did, is seen by the waiting thread and, behind a __syncthreads(), by its block. (Functions for a whole
// block have those __syncthreads().)
//
// Waits: none is without a deadline, for a kernel that waits for ever cannot be ended. A wait returns false when its deadline has passed
// and, within microseconds, when the team has failed (a peer died or timed out), even if the deadline is far; `team_ok` tells which.
// The kernel then ends without using what it waited for. A deadline that passes in put_signal, wait_signal or barrier sets Timeout on
// the team, as it does in the host's operations, since slots and counts are then out of step with the peers': the next synchronisation
// of a stream returns it, all members' operations and waits end, and `Team::recover` sets them back. wait_until leaves the team as it
// is: a kernel may look for a signal under a short deadline again and again.
//
// Again and again: signals stay as they are until somebody sets them, so a kernel that runs again, in a graph too, signals a larger
// value, or sets its own signal back before its peers may signal again. Slots and barriers set themselves back: slots are 0 when
// idle, a barrier's counter is in device memory.
//
// Reach: these functions load and store, so they serve ranks for which the host's `is_direct` is true; the addresses of others are 0.
// `is_direct` below asks a kernel's own table. put_signal, wait_signal and add_signal use atomics, which NVLink and the GPU itself carry
// and PCIe does not. In a handle with ranks that are not direct, or on NVSHMEM with its heap in host memory, slots belong to the host's
// put_signal and wait_signal alone.
#pragma once

#include "symm/barrier.cuh"
#include "symm/copy.cuh"
#include "symm/params.cuh"

namespace symm {

// A word of a handle's tables. They are constants: a loop that signals and waits reads them once, not again behind every acquire.
__device__ __forceinline__ u64 entry(u64 table, u64 rank) { return __ldg((const u64*)table + rank); }

// Whether this GPU reaches `rank` by load and store.
__device__ __forceinline__ bool is_direct(const Handle& h, u64 rank) { return entry(h.buffers, rank) != 0; }

// A rank's elements of the tensor, as this GPU reaches them.
template <typename T>
__device__ __forceinline__ T* buffer(const Handle& h, u64 rank) {
  return (T*)(entry(h.buffers, rank) + h.offset);
}

__device__ __forceinline__ Status status_of(const Handle& h) { return {(StatusRecord*)h.status, (StatusRecord*)h.status_host}; }

// Whether the team has not failed, as far as this GPU knows. A kernel that asks first does not begin what its peers have given up.
__device__ __forceinline__ bool team_ok(const Handle& h) { return status_ok(status_of(h)); }

// Until when a kernel waits. One may serve several waits.
class Deadline {
 public:
  __device__ __forceinline__ explicit Deadline(u64 limit_ns) : began_(now_ns()), limit_(limit_ns) {}
  __device__ __forceinline__ bool passed() const { return left(now_ns()) == 0; }
  // Nanoseconds from `now` on.
  __device__ __forceinline__ u64 left(u64 now) const { return now - began_ < limit_ ? limit_ - (now - began_) : 0; }

 private:
  u64 began_, limit_;
};

// --- data ---

// One warp's part of a copy by a block.
__device__ __forceinline__ void block_copy(u64 dst, u64 src, u64 bytes) {
  const u64 warps = blockDim.x / 32, piece = piece_bytes(bytes, warps);
  for (u64 at = threadIdx.x / 32 * piece; at < bytes; at += warps * piece)
    warp_copy<Source::Shared>(dst + at, src + at, (uint32_t)(bytes - at < piece ? bytes - at : piece));
}

// Copies `bytes` bytes from any memory of this PE to byte `offset` of `rank`'s tensor. The whole block. The source may be used again
// after a __syncthreads(); the bytes are there for whoever sees a signal, a slot or a barrier that comes behind one.
__device__ __forceinline__ void put(const Handle& h, u64 rank, u64 offset, const void* src, u64 bytes) {
  block_copy((u64)buffer<char>(h, rank) + offset, (u64)src, bytes);
}

// Copies `bytes` bytes from byte `offset` of `rank`'s tensor to any memory of this PE. The whole block. They are there for the block
// after a __syncthreads(). What `rank` wrote before a signal, slot or barrier that this block has waited for is what it gets.
__device__ __forceinline__ void get(const Handle& h, u64 rank, u64 offset, void* dst, u64 bytes) {
  block_copy((u64)dst, (u64)buffer<char>(h, rank) + offset, bytes);
}

// --- signals: 64-bit words ---

// A user signal of a rank's pad.
__device__ __forceinline__ u64* signal(const Handle& h, u64 rank, u64 index) {
  return (u64*)(entry(h.pads, rank) + h.signals) + index;
}

// Sets a user signal of `rank`. One thread.
__device__ __forceinline__ void set_signal(const Handle& h, u64 rank, u64 index, u64 value) {
  store_release_sys_u64(signal(h, rank, index), value);
}

// Adds to a user signal of `rank`, atomically with respect to other additions. One thread.
__device__ __forceinline__ void add_signal(const Handle& h, u64 rank, u64 index, u64 value) {
  add_release_sys_u64(signal(h, rank, index), value);
}

// `put`, then one signal that comes after all of it. The whole block.
__device__ __forceinline__ void put_with_signal(const Handle& h, u64 rank, u64 offset, const void* src, u64 bytes, u64 index, u64 value) {
  put(h, rank, offset, src, bytes);
  __syncthreads();
  if (threadIdx.x == 0) set_signal(h, rank, index, value);
}

enum class Compare { Equal, NotEqual, Greater, GreaterEqual, Less, LessEqual };

__device__ __forceinline__ bool holds(Compare compare, u64 seen, u64 value) {
  switch (compare) {
    case Compare::Equal: return seen == value;
    case Compare::NotEqual: return seen != value;
    case Compare::Greater: return seen > value;
    case Compare::GreaterEqual: return seen >= value;
    case Compare::Less: return seen < value;
    default: return seen <= value;
  }
}

// When a wait began that has looked LOOKS times, or again so many: `began`, which is 0 at first. 0 if it is to end.
inline __device__ __noinline__ u64 wait_goes_on(Status status, Deadline deadline, u64 began) {
  const u64 now = now_ns();
  if (began == 0) began = now | 1;
  return deadline.left(now) > 0 && status_ok_in_wait(status, (now | 1) - began) ? began : 0;
}

// Waits until a user signal of this PE's own pad compares as asked; returns whether it did. One thread.
__device__ __forceinline__ bool wait_until(const Handle& h, u64 index, Compare compare, u64 value, const Deadline& deadline) {
  const u64* word = signal(h, h.rank, index);
  u64 began = 0;
  for (uint32_t look = 1;; look++) {
    if (holds(compare, load_acquire_sys_u64(word), value)) return true;
    if (look % LOOKS == 0 && (began = wait_goes_on(status_of(h), deadline, began)) == 0) return false;
  }
}

// The same for a block: every thread calls it, gets the same answer, and sees what the signal announced.
__device__ __forceinline__ bool block_wait_until(const Handle& h, u64 index, Compare compare, u64 value, const Deadline& deadline) {
  const bool late = threadIdx.x == 0 && !wait_until(h, index, compare, value, deadline);
  return !__syncthreads_or(late);
}

// --- slots: PyTorch's signal pad ---
//
// `channel` and the sender name a slot of the receiver's pad, which is 0 or 1. Host operations of the same names use the same slots.

__device__ __forceinline__ void* slot(const Handle& h, u64 rank, u64 channel, u64 source) {
  return (uint32_t*)entry(h.pads, rank) + h.ranks * channel + source;
}

// Waits for `from` in a slot that `peer` is to change, and replaces it by `to`.
__device__ __forceinline__ bool change_slot(const Handle& h, void* at, uint32_t from, uint32_t to, u64 op, u64 peer,
                                            const Deadline& deadline) {
  const Status status = status_of(h);
  if (!status_ok(status)) return false;
  const Failure failure = {STATUS_TIMEOUT, op, PHASE_SIGNAL, entry(h.members, peer), peer < 64 ? 1ull << peer : 0, from, 0, 0};
  // A release, too: of put_signal's what came before, of wait_signal's that it was read.
  return wait_word(
      status, deadline.left(now_ns()), failure, [=] { return (u64)cas_acq_rel_sys_u32(at, from, to); },
      [=](u64 seen) { return seen == from; });
}

// Waits until `rank` has consumed this PE's last signal on `channel`, and raises its slot again. One thread; one at a time for each
// channel and rank. False at once for a rank that is not direct.
__device__ __forceinline__ bool put_signal(const Handle& h, u64 rank, u64 channel, const Deadline& deadline) {
  return is_direct(h, rank) && change_slot(h, slot(h, rank, channel, h.rank), 0, 1, OP_PUT_SIGNAL, rank, deadline);
}

// Waits until `source` has raised its slot on `channel` here, and consumes the signal: `source` may signal again, and sees what this
// thread did before. One thread; one at a time for each channel and source.
__device__ __forceinline__ bool wait_signal(const Handle& h, u64 source, u64 channel, const Deadline& deadline) {
  return change_slot(h, slot(h, h.rank, channel, source), 1, 0, OP_WAIT_SIGNAL, source, deadline);
}

// The same for a block: every thread calls it and gets the same answer. What the block did before it has been done when `source` may
// signal again.
__device__ __forceinline__ bool block_wait_signal(const Handle& h, u64 source, u64 channel, const Deadline& deadline) {
  __syncthreads();
  const bool late = threadIdx.x == 0 && !wait_signal(h, source, channel, deadline);
  return !__syncthreads_or(late);
}

// --- barrier ---

// One warp's part of the barrier.
__device__ __forceinline__ bool meet(const Handle& h, u64 channel, const Deadline& deadline) {
  const unsigned lane = threadIdx.x & 31;
  const Status status = status_of(h);
  bool far = false;
  for (u64 r = lane; r < h.ranks; r += 32) far |= !is_direct(h, r);
  if (__any_sync(ALL_LANES, far)) return false;
  const u64 mine = entry(h.pads, h.rank), words = h.words + 8 * h.ranks * channel;
  // A count that is taken after a failure does no harm: recovery puts all counts back to zero.
  u64 epoch = 0;
  if (lane == 0 && status_ok(status)) epoch = fetch_add_relaxed_gpu_u64((void*)(mine + h.counters + 8 * channel), 1) + 1;
  epoch = __shfl_sync(ALL_LANES, epoch, 0);
  if (epoch == 0) return false;
  for (u64 r = lane; r < h.ranks; r += 32) store_release_sys_u64((void*)(entry(h.pads, r) + words + 8 * h.rank), epoch);
  const u64 began = now_ns();
  return wait_meeting(status, {mine + words, h.members, epoch, began, deadline.left(began), (uint32_t)h.ranks});
}

// All members meet on `channel`: behind it each block sees what all of them did before. The whole block, of every member; one block of
// a PE at a time on one channel, so blocks of a grid take a channel each (blockIdx.x) and meet their peers of that number. The count
// of a channel is that of the host's `Handle::barrier`, and both may meet on one channel, in the same order on all members.
// Where a member is not direct it returns false at once.
__device__ __forceinline__ bool barrier(const Handle& h, u64 channel, const Deadline& deadline) {
  // One thread's release covers what its block did before.
  __syncthreads();
  const bool late = threadIdx.x < 32 && !meet(h, channel, deadline);
  return !__syncthreads_or(late);
}

}  // namespace symm
