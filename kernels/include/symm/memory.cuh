// Loads, stores and atomics of the PTX memory model, named by operation, order, scope and width.
//
// Flags that peers (or the host) read and write use these and nothing else: a plain C++ access may be merged, hoisted
// or kept in a register. Addresses are generic pointers to global memory: local, a peer's, or mapped host memory.
#pragma once

#include <stdint.h>

namespace symm {

typedef unsigned long long u64;

__device__ __forceinline__ u64 load_acquire_sys_u64(const void* at) {
  u64 v;
  asm volatile("ld.acquire.sys.global.u64 %0, [%1];" : "=l"(v) : "l"(at) : "memory");
  return v;
}

__device__ __forceinline__ u64 load_acquire_gpu_u64(const void* at) {
  u64 v;
  asm volatile("ld.acquire.gpu.global.u64 %0, [%1];" : "=l"(v) : "l"(at) : "memory");
  return v;
}

__device__ __forceinline__ u64 load_relaxed_sys_u64(const void* at) {
  u64 v;
  asm volatile("ld.relaxed.sys.global.u64 %0, [%1];" : "=l"(v) : "l"(at) : "memory");
  return v;
}

__device__ __forceinline__ u64 load_relaxed_gpu_u64(const void* at) {
  u64 v;
  asm volatile("ld.relaxed.gpu.global.u64 %0, [%1];" : "=l"(v) : "l"(at) : "memory");
  return v;
}

__device__ __forceinline__ uint32_t load_relaxed_gpu_u32(const void* at) {
  uint32_t v;
  asm volatile("ld.relaxed.gpu.global.u32 %0, [%1];" : "=r"(v) : "l"(at) : "memory");
  return v;
}

__device__ __forceinline__ void store_release_sys_u64(void* at, u64 v) {
  asm volatile("st.release.sys.global.u64 [%0], %1;" ::"l"(at), "l"(v) : "memory");
}

__device__ __forceinline__ void store_release_gpu_u64(void* at, u64 v) {
  asm volatile("st.release.gpu.global.u64 [%0], %1;" ::"l"(at), "l"(v) : "memory");
}

__device__ __forceinline__ void store_relaxed_sys_u64(void* at, u64 v) {
  asm volatile("st.relaxed.sys.global.u64 [%0], %1;" ::"l"(at), "l"(v) : "memory");
}

__device__ __forceinline__ void store_relaxed_gpu_u64(void* at, u64 v) {
  asm volatile("st.relaxed.gpu.global.u64 [%0], %1;" ::"l"(at), "l"(v) : "memory");
}

__device__ __forceinline__ void store_relaxed_gpu_u32(void* at, uint32_t v) {
  asm volatile("st.relaxed.gpu.global.u32 [%0], %1;" ::"l"(at), "r"(v) : "memory");
}

__device__ __forceinline__ u64 fetch_add_relaxed_gpu_u64(void* at, u64 v) {
  u64 old;
  asm volatile("atom.add.relaxed.gpu.global.u64 %0, [%1], %2;" : "=l"(old) : "l"(at), "l"(v) : "memory");
  return old;
}

__device__ __forceinline__ uint32_t fetch_add_relaxed_gpu_u32(void* at, uint32_t v) {
  uint32_t old;
  asm volatile("atom.add.relaxed.gpu.global.u32 %0, [%1], %2;" : "=r"(old) : "l"(at), "r"(v) : "memory");
  return old;
}

__device__ __forceinline__ uint32_t fetch_add_acq_rel_gpu_u32(void* at, uint32_t v) {
  uint32_t old;
  asm volatile("atom.add.acq_rel.gpu.global.u32 %0, [%1], %2;" : "=r"(old) : "l"(at), "r"(v) : "memory");
  return old;
}

__device__ __forceinline__ void or_relaxed_gpu_u32(void* at, uint32_t v) {
  asm volatile("red.or.relaxed.gpu.global.b32 [%0], %1;" ::"l"(at), "r"(v) : "memory");
}

__device__ __forceinline__ void max_release_gpu_u64(void* at, u64 v) {
  asm volatile("red.max.release.gpu.global.u64 [%0], %1;" ::"l"(at), "l"(v) : "memory");
}

__device__ __forceinline__ void add_release_sys_u64(void* at, u64 v) {
  asm volatile("red.add.release.sys.global.u64 [%0], %1;" ::"l"(at), "l"(v) : "memory");
}

__device__ __forceinline__ u64 cas_acq_rel_gpu_u64(void* at, u64 expected, u64 desired) {
  u64 old;
  asm volatile("atom.cas.acq_rel.gpu.global.b64 %0, [%1], %2, %3;"
               : "=l"(old)
               : "l"(at), "l"(expected), "l"(desired)
               : "memory");
  return old;
}

__device__ __forceinline__ u64 cas_acq_rel_sys_u64(void* at, u64 expected, u64 desired) {
  u64 old;
  asm volatile("atom.cas.acq_rel.sys.global.b64 %0, [%1], %2, %3;"
               : "=l"(old)
               : "l"(at), "l"(expected), "l"(desired)
               : "memory");
  return old;
}

__device__ __forceinline__ uint32_t cas_acq_rel_sys_u32(void* at, uint32_t expected, uint32_t desired) {
  uint32_t old;
  asm volatile("atom.cas.acq_rel.sys.global.b32 %0, [%1], %2, %3;"
               : "=r"(old)
               : "l"(at), "r"(expected), "r"(desired)
               : "memory");
  return old;
}

// Orders everything this thread has seen or written before everything it writes later, for all PEs and the host.
__device__ __forceinline__ void fence_acq_rel_sys() { asm volatile("fence.acq_rel.sys;" ::: "memory"); }

__device__ __forceinline__ void fence_acq_rel_gpu() { asm volatile("fence.acq_rel.gpu;" ::: "memory"); }

// Nanoseconds of a clock that all multiprocessors of the GPU share.
__device__ __forceinline__ u64 now_ns() {
  u64 t;
  asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(t)::"memory");
  return t;
}

}  // namespace symm
