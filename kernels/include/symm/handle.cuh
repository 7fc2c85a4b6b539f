// A symmetric tensor's handle in a kernel of your own: every rank's data and signals, put, signal, wait with a deadline.
//
// Fill a Handle on the host from a symm::Handle, in the order of the fields: `device_ptrs().buffers`, `device_ptrs().pads`,
// `pad_layout().signal(0)`, `rank()`, `world_size()`; pass it by value. The addresses hold while the symm::Handle lives.
//
//   extern "C" __global__ void send(symm::Handle h, const float* x, uint64_t bytes) {
//     symm::put_with_signal(h, (h.rank + 1) % h.ranks, 0, x, bytes, /* signal */ 0, /* value */ 1);
//     if (!symm::block_wait_signal(h, 0, symm::Compare::Equal, 1, symm::Deadline(1000000000))) return;  // a second
//     ... symm::buffer<float>(h, h.rank) holds what the left neighbour put ...
//   }
//
// Order: a signal is a release, a wait that returned true an acquire, both at system scope. Whatever the signalling thread wrote
// or saw before its signal, and what other threads of its block did before a __syncthreads() that it took part in, is seen by
// the waiting thread and, behind a __syncthreads(), by its block.
//
// Users' signals stay as they are until somebody sets them: a kernel that runs again signals another value, or sets its own
// signal back before its peers may signal again.
#pragma once

#include "symm/copy.cuh"

namespace symm {

struct Handle {
  uint64_t buffers;  // u64[ranks] in device memory: address of each rank's data
  uint64_t pads;     // u64[ranks] in device memory: address of each rank's signal pad
  uint64_t signals;  // offset of user signal 0 in every pad; signals are u64 and follow each other
  uint64_t rank;     // this PE's
  uint64_t ranks;
};

// A rank's data, as this GPU reaches them. The tables of addresses are constants: a loop that signals and waits reads them once, not
// again behind every acquire.
template <typename T>
__device__ __forceinline__ T* buffer(const Handle& h, u64 rank) {
  return (T*)__ldg((const u64*)h.buffers + rank);
}

// A user signal of a rank's pad.
__device__ __forceinline__ u64* signal(const Handle& h, u64 rank, u64 index) {
  return (u64*)(__ldg((const u64*)h.pads + rank) + h.signals) + index;
}

// Sets a user signal of `rank`. One thread.
__device__ __forceinline__ void set_signal(const Handle& h, u64 rank, u64 index, u64 value) {
  store_release_sys_u64(signal(h, rank, index), value);
}

// Adds to a user signal of `rank`; over NVLink and on the same GPU only (PCIe carries no atomics). One thread.
__device__ __forceinline__ void add_signal(const Handle& h, u64 rank, u64 index, u64 value) {
  add_release_sys_u64(signal(h, rank, index), value);
}

// Copies `bytes` bytes from any memory of this PE to byte `offset` of `rank`'s data. The whole block, whose size is a multiple
// of 32. The bytes are there once a signal sent after a __syncthreads() is.
__device__ __forceinline__ void put(const Handle& h, u64 rank, u64 offset, const void* src, u64 bytes) {
  const u64 warps = blockDim.x / 32, piece = piece_bytes(bytes, warps);
  for (u64 at = threadIdx.x / 32 * piece; at < bytes; at += warps * piece)
    warp_copy<Source::Shared>((u64)buffer<char>(h, rank) + offset + at, (u64)src + at, (uint32_t)(bytes - at < piece ? bytes - at : piece));
}

// `put`, then one signal that comes after all of it. The whole block.
__device__ __forceinline__ void put_with_signal(const Handle& h, u64 rank, u64 offset, const void* src, u64 bytes, u64 index, u64 value) {
  put(h, rank, offset, src, bytes);
  __syncthreads();
  if (threadIdx.x == 0) set_signal(h, rank, index, value);
}

// Until when a kernel waits. A peer that died never signals, and a kernel that waits for ever cannot be ended.
class Deadline {
 public:
  __device__ __forceinline__ explicit Deadline(u64 limit_ns) : began_(now_ns()), limit_(limit_ns) {}
  __device__ __forceinline__ bool passed() const { return now_ns() - began_ > limit_; }

 private:
  u64 began_, limit_;
};

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

// Waits until a user signal of this PE's own pad compares as asked. Returns whether it did before the deadline. One thread.
__device__ __forceinline__ bool wait_signal(const Handle& h, u64 index, Compare compare, u64 value, const Deadline& deadline) {
  const u64* word = signal(h, h.rank, index);
  for (uint32_t look = 1;; look++) {
    if (holds(compare, load_acquire_sys_u64(word), value)) return true;
    // The clock costs as much as a look.
    if (look % 16 == 0 && deadline.passed()) return false;
  }
}

// The same for a block: every thread calls it, gets the same answer, and sees what the signal announced.
__device__ __forceinline__ bool block_wait_signal(const Handle& h, u64 index, Compare compare, u64 value, const Deadline& deadline) {
  const bool late = threadIdx.x == 0 && !wait_signal(h, index, compare, value, deadline);
  return !__syncthreads_or(late);
}

}  // namespace symm
