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

__device__ __forceinline__ uint32_t load_acquire_sys_u32(const void* at) {
  uint32_t v;
  asm volatile("ld.acquire.sys.global.u32 %0, [%1];" : "=r"(v) : "l"(at) : "memory");
  return v;
}

__device__ __forceinline__ void store_relaxed_sys_u32(void* at, uint32_t v) {
  asm volatile("st.relaxed.sys.global.u32 [%0], %1;" ::"l"(at), "r"(v) : "memory");
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

__device__ __forceinline__ u64 fetch_add_acq_rel_gpu_u64(void* at, u64 v) {
  u64 old;
  asm volatile("atom.add.acq_rel.gpu.global.u64 %0, [%1], %2;" : "=l"(old) : "l"(at), "l"(v) : "memory");
  return old;
}

__device__ __forceinline__ void or_relaxed_gpu_u32(void* at, uint32_t v) {
  asm volatile("red.or.relaxed.gpu.global.b32 [%0], %1;" ::"l"(at), "r"(v) : "memory");
}

__device__ __forceinline__ void max_release_gpu_u64(void* at, u64 v) {
  asm volatile("red.max.release.gpu.global.u64 [%0], %1;" ::"l"(at), "l"(v) : "memory");
}

__device__ __forceinline__ void max_relaxed_gpu_u64(void* at, u64 v) {
  asm volatile("red.max.relaxed.gpu.global.u64 [%0], %1;" ::"l"(at), "l"(v) : "memory");
}

__device__ __forceinline__ void add_release_sys_u64(void* at, u64 v) {
  asm volatile("red.add.release.sys.global.u64 [%0], %1;" ::"l"(at), "l"(v) : "memory");
}

__device__ __forceinline__ void add_relaxed_sys_u64(void* at, u64 v) {
  asm volatile("red.add.relaxed.sys.global.u64 [%0], %1;" ::"l"(at), "l"(v) : "memory");
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

__device__ __forceinline__ uint32_t cas_acquire_sys_u32(void* at, uint32_t expected, uint32_t desired) {
  uint32_t old;
  asm volatile("atom.cas.acquire.sys.global.b32 %0, [%1], %2, %3;"
               : "=r"(old)
               : "l"(at), "r"(expected), "r"(desired)
               : "memory");
  return old;
}

// A word and a tag that says which operation it belongs to. Both are written, and read, at once: whoever sees the tag has the
// word, so such a word needs no flag and no fence of its own.
struct alignas(16) Tagged {
  u64 word;
  u64 tag;
};

__device__ __forceinline__ void store_relaxed_sys_tagged(void* at, Tagged v) {
  asm volatile("{ .reg .b128 t; mov.b128 t, {%1, %2}; st.relaxed.sys.global.b128 [%0], t; }" ::"l"(at), "l"(v.word), "l"(v.tag)
               : "memory");
}

__device__ __forceinline__ Tagged load_relaxed_sys_tagged(const void* at) {
  Tagged v;
  asm volatile("{ .reg .b128 t; ld.relaxed.sys.global.b128 t, [%2]; mov.b128 {%0, %1}, t; }"
               : "=l"(v.word), "=l"(v.tag)
               : "l"(at)
               : "memory");
  return v;
}

__device__ __forceinline__ Tagged load_acquire_sys_tagged(const void* at) {
  Tagged v;
  asm volatile("{ .reg .b128 t; ld.acquire.sys.global.b128 t, [%2]; mov.b128 {%0, %1}, t; }"
               : "=l"(v.word), "=l"(v.tag)
               : "l"(at)
               : "memory");
  return v;
}

// Sixteen bytes that are written, and read, at once, without a tag: which of them mean that nothing has come yet, whoever uses them says.
struct alignas(16) Elements {
  uint32_t a, b, c, d;
};

__device__ __forceinline__ void store_relaxed_sys_elements(void* at, Elements v) {
  asm volatile(
      "{ .reg .b64 l, h; .reg .b128 t; mov.b64 l, {%1, %2}; mov.b64 h, {%3, %4}; mov.b128 t, {l, h}; "
      "st.relaxed.sys.global.b128 [%0], t; }" ::"l"(at),
      "r"(v.a), "r"(v.b), "r"(v.c), "r"(v.d)
      : "memory");
}

__device__ __forceinline__ Elements load_relaxed_sys_elements(const void* at) {
  Elements v;
  asm volatile(
      "{ .reg .b64 l, h; .reg .b128 t; ld.relaxed.sys.global.b128 t, [%4]; mov.b128 {l, h}, t; mov.b64 {%0, %1}, l; mov.b64 {%2, %3}, h; }"
      : "=r"(v.a), "=r"(v.b), "=r"(v.c), "=r"(v.d)
      : "l"(at)
      : "memory");
  return v;
}

// Orders everything this thread has seen or written before everything it writes later, for all PEs and the host.
__device__ __forceinline__ void fence_acq_rel_sys() { asm volatile("fence.acq_rel.sys;" ::: "memory"); }

__device__ __forceinline__ void fence_acq_rel_gpu() { asm volatile("fence.acq_rel.gpu;" ::: "memory"); }

// The release half alone: it spares what an acquire does to the caches near the thread.
__device__ __forceinline__ void fence_release_sys() { asm volatile("fence.release.sys;" ::: "memory"); }

__device__ __forceinline__ void fence_release_gpu() { asm volatile("fence.release.gpu;" ::: "memory"); }

// The acquire half alone, behind a strong load: it drops what is kept near the thread, and waits for nothing. A wait that looks with
// relaxed loads and has this behind the last one drops once, not at every look.
__device__ __forceinline__ void fence_acquire_sys() { asm volatile("fence.acquire.sys;" ::: "memory"); }

// 16 bytes at once, in the order written: a copy's loads stay before its stores. `constant`: nobody writes them while the
// kernel runs, and no copy of them is kept near.
__device__ __forceinline__ int4 load_constant_16(const int4* at) {
  int4 v;
  asm volatile("ld.global.nc.L1::no_allocate.v4.s32 {%0, %1, %2, %3}, [%4];"
               : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
               : "l"(at));
  return v;
}

__device__ __forceinline__ int4 load_16(const int4* at) {
  int4 v;
  asm volatile("ld.global.v4.s32 {%0, %1, %2, %3}, [%4];" : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w) : "l"(at));
  return v;
}

__device__ __forceinline__ void store_16(int4* at, int4 v) {
  asm volatile("st.global.v4.s32 [%0], {%1, %2, %3, %4};" ::"l"(at), "r"(v.x), "r"(v.y), "r"(v.z), "r"(v.w) : "memory");
}

// What the compiler would read from a kernel's parameters where it is used, it reads before this.
__device__ __forceinline__ void known(u64& value) { asm volatile("" : "+l"(value)); }
__device__ __forceinline__ void known(uint32_t& value) { asm volatile("" : "+r"(value)); }
template <typename T>
__device__ __forceinline__ void known(T*& value) { asm volatile("" : "+l"(value)); }

// Waits until the kernels of the stream before this one have ended, where the launch let this one start early.
__device__ __forceinline__ void wait_for_stream() {
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}

// Lets the next kernel of the stream start, once every block has called this or ended, and wait there for this one's end.
// It takes room on the GPU meanwhile, so launches that ask to start early are small (Launch::starts_early in the host's
// geometry.rs).
__device__ __forceinline__ void let_stream_go_on() {
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
#endif
}

// Nanoseconds of a clock that all multiprocessors of the GPU share.
__device__ __forceinline__ u64 now_ns() {
  u64 t;
  asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(t)::"memory");
  return t;
}

}  // namespace symm
