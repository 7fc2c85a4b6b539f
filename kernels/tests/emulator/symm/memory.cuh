// The operations of include/symm/memory.cuh with the host's atomics. It is found before that file.
#pragma once

#include "shim.h"

namespace symm {

typedef unsigned long long u64;

// Threads outnumber cores, so whoever waits must let the others run.
template <typename T>
inline T emulated_load(const void* at, int order) {
  sched_yield();
  const T value = order == __ATOMIC_ACQUIRE ? __atomic_load_n((const T*)at, __ATOMIC_ACQUIRE) : __atomic_load_n((const T*)at, __ATOMIC_RELAXED);
  return value;
}

inline u64 load_acquire_sys_u64(const void* at) { return emulated_load<u64>(at, __ATOMIC_ACQUIRE); }
inline u64 load_acquire_gpu_u64(const void* at) { return emulated_load<u64>(at, __ATOMIC_ACQUIRE); }
inline u64 load_relaxed_sys_u64(const void* at) { return emulated_load<u64>(at, __ATOMIC_RELAXED); }
inline u64 load_relaxed_gpu_u64(const void* at) { return emulated_load<u64>(at, __ATOMIC_RELAXED); }
inline uint32_t load_relaxed_gpu_u32(const void* at) { return emulated_load<uint32_t>(at, __ATOMIC_RELAXED); }

inline void store_release_sys_u64(void* at, u64 v) { __atomic_store_n((u64*)at, v, __ATOMIC_RELEASE); }
inline void store_release_gpu_u64(void* at, u64 v) { __atomic_store_n((u64*)at, v, __ATOMIC_RELEASE); }
inline void store_relaxed_sys_u64(void* at, u64 v) { __atomic_store_n((u64*)at, v, __ATOMIC_RELAXED); }
inline void store_relaxed_gpu_u64(void* at, u64 v) { __atomic_store_n((u64*)at, v, __ATOMIC_RELAXED); }
inline void store_relaxed_gpu_u32(void* at, uint32_t v) { __atomic_store_n((uint32_t*)at, v, __ATOMIC_RELAXED); }

struct alignas(16) Tagged {
  u64 word;
  u64 tag;
};

// A tag is seen only by those who then see the word, as if both were written at once. Tags of one place grow, so a word that is
// newer than the tag before it is never taken for an older one's.
inline void store_relaxed_sys_tagged(void* at, Tagged v) {
  __atomic_store_n((u64*)at, v.word, __ATOMIC_RELAXED);
  __atomic_store_n((u64*)at + 1, v.tag, __ATOMIC_RELEASE);
}

inline Tagged load_acquire_sys_tagged(const void* at) {
  const u64 tag = emulated_load<u64>((const u64*)at + 1, __ATOMIC_ACQUIRE);
  return {__atomic_load_n((const u64*)at, __ATOMIC_RELAXED), tag};
}

// Both are one load on the GPU; here the tag must be seen first.
inline Tagged load_relaxed_sys_tagged(const void* at) { return load_acquire_sys_tagged(at); }

// By hand: GCC 12 makes `x += __atomic_fetch_add(at, x, order)` return twice the old value.
template <typename T>
inline T emulated_add(void* at, T v) {
  T old = __atomic_load_n((T*)at, __ATOMIC_RELAXED);
  while (!__atomic_compare_exchange_n((T*)at, &old, (T)(old + v), false, __ATOMIC_ACQ_REL, __ATOMIC_RELAXED)) {
  }
  return old;
}

inline u64 fetch_add_relaxed_gpu_u64(void* at, u64 v) { return emulated_add<u64>(at, v); }
inline uint32_t fetch_add_relaxed_gpu_u32(void* at, uint32_t v) { return emulated_add<uint32_t>(at, v); }

inline void max_release_gpu_u64(void* at, u64 v) {
  u64 seen = __atomic_load_n((u64*)at, __ATOMIC_RELAXED);
  while (seen < v && !__atomic_compare_exchange_n((u64*)at, &seen, v, false, __ATOMIC_RELEASE, __ATOMIC_RELAXED)) {
  }
}

inline u64 cas_acq_rel_gpu_u64(void* at, u64 expected, u64 desired) {
  __atomic_compare_exchange_n((u64*)at, &expected, desired, false, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE);
  return expected;
}

inline u64 cas_acq_rel_sys_u64(void* at, u64 expected, u64 desired) { return cas_acq_rel_gpu_u64(at, expected, desired); }

inline void fence_acq_rel_sys() { __atomic_thread_fence(__ATOMIC_ACQ_REL); }
inline void fence_acq_rel_gpu() { __atomic_thread_fence(__ATOMIC_ACQ_REL); }
inline void fence_release_sys() { __atomic_thread_fence(__ATOMIC_RELEASE); }
inline void fence_release_gpu() { __atomic_thread_fence(__ATOMIC_RELEASE); }

// A GPU faults on a vector at an odd address; the host would not.
inline void expect_aligned(const void* at) {
  if ((u64)at % 16 == 0) return;
  printf("a vector at %p\n", at);
  fflush(stdout);
  abort();
}

inline int4 load_constant_16(const int4* at) {
  expect_aligned(at);
  return *at;
}

inline int4 load_16(const int4* at) {
  expect_aligned(at);
  return *at;
}

inline void store_16(int4* at, int4 v) {
  expect_aligned(at);
  *at = v;
}

inline void wait_for_stream() {}
inline void let_stream_go_on() {}

inline u64 now_ns() {
  timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (u64)t.tv_sec * 1000000000ull + (u64)t.tv_nsec;
}

}  // namespace symm
