// The operations of include/symm/memory.cuh on the memory model. It is found before that file.
#pragma once

#include "model.h"
#include "shim.h"

namespace symm {

typedef unsigned long long u64;
using model::Scope;

template <typename T>
inline T modelled_load(const void* at, bool acquire) {
  T v;
  model::load(at, &v, sizeof v, acquire);
  return v;
}

template <typename T>
inline void modelled_store(void* at, T v, bool release, Scope scope) {
  model::store(at, &v, sizeof v, release, scope);
}

// The acquire, or the release, that is left out, by its number in tests/emulator/acquires.rs; 0: none. Calls that have one of those
// numbers are made by these names instead.
inline uint32_t NO_ACQUIRE = 0, NO_RELEASE = 0;

template <uint32_t N>
inline bool acquires() { return N != NO_ACQUIRE; }
template <uint32_t N>
inline bool releases() { return N != NO_RELEASE; }

template <uint32_t N>
inline void numbered___syncthreads() {
  if (releases<N>()) __syncthreads();
}
template <uint32_t N>
inline void numbered_store_release_sys_u64(void* at, u64 v) { modelled_store(at, v, releases<N>(), Scope::Sys); }

template <uint32_t N>
inline u64 numbered_load_acquire_sys_u64(const void* at) { return modelled_load<u64>(at, acquires<N>()); }
template <uint32_t N>
inline u64 numbered_load_acquire_gpu_u64(const void* at) { return modelled_load<u64>(at, acquires<N>()); }
template <uint32_t N>
inline uint32_t numbered_load_acquire_sys_u32(const void* at) { return modelled_load<uint32_t>(at, acquires<N>()); }
template <uint32_t N>
inline void numbered_fence_acq_rel_sys() { model::fence(acquires<N>(), Scope::Sys); }
template <uint32_t N>
inline void numbered_fence_acquire_sys() {
  if (acquires<N>()) model::fence_acquire();
}
template <uint32_t N>
inline void numbered_fence_acq_rel_gpu() { model::fence(acquires<N>(), Scope::Gpu); }

inline u64 load_acquire_sys_u64(const void* at) { return modelled_load<u64>(at, true); }
inline u64 load_acquire_gpu_u64(const void* at) { return modelled_load<u64>(at, true); }
inline u64 load_relaxed_sys_u64(const void* at) { return modelled_load<u64>(at, false); }
inline u64 load_relaxed_gpu_u64(const void* at) { return modelled_load<u64>(at, false); }
inline uint32_t load_acquire_sys_u32(const void* at) { return modelled_load<uint32_t>(at, true); }
inline uint32_t load_relaxed_gpu_u32(const void* at) { return modelled_load<uint32_t>(at, false); }

inline void store_release_sys_u64(void* at, u64 v) { modelled_store(at, v, true, Scope::Sys); }
inline void store_release_gpu_u64(void* at, u64 v) { modelled_store(at, v, true, Scope::Gpu); }
inline void store_relaxed_sys_u64(void* at, u64 v) { modelled_store(at, v, false, Scope::Sys); }
inline void store_relaxed_sys_u32(void* at, uint32_t v) { modelled_store(at, v, false, Scope::Sys); }
inline void store_relaxed_gpu_u64(void* at, u64 v) { modelled_store(at, v, false, Scope::Gpu); }
inline void store_relaxed_gpu_u32(void* at, uint32_t v) { modelled_store(at, v, false, Scope::Gpu); }

struct alignas(16) Tagged {
  u64 word;
  u64 tag;
};

inline void store_relaxed_sys_tagged(void* at, Tagged v) { modelled_store(at, v, false, Scope::Sys); }
inline Tagged load_relaxed_sys_tagged(const void* at) { return modelled_load<Tagged>(at, false); }
inline Tagged load_acquire_sys_tagged(const void* at) { return modelled_load<Tagged>(at, true); }
template <uint32_t N>
inline Tagged numbered_load_acquire_sys_tagged(const void* at) { return modelled_load<Tagged>(at, acquires<N>()); }

struct alignas(16) Elements {
  uint32_t a, b, c, d;
};

inline void store_relaxed_sys_elements(void* at, Elements v) { modelled_store(at, v, false, Scope::Sys); }
inline Elements load_relaxed_sys_elements(const void* at) { return modelled_load<Elements>(at, false); }

inline u64 added(u64 old, u64 v, u64) { return old + v; }
inline u64 larger(u64 old, u64 v, u64) { return old > v ? old : v; }
inline u64 replaced(u64 old, u64 expected, u64 desired) { return old == expected ? desired : old; }

inline u64 fetch_add_relaxed_gpu_u64(void* at, u64 v) { return model::modify(at, 8, false, false, Scope::Gpu, added, v, 0); }
inline uint32_t fetch_add_relaxed_gpu_u32(void* at, uint32_t v) { return (uint32_t)model::modify(at, 4, false, false, Scope::Gpu, added, v, 0); }
inline u64 fetch_add_acq_rel_gpu_u64(void* at, u64 v) { return model::modify(at, 8, true, true, Scope::Gpu, added, v, 0); }
inline void max_relaxed_gpu_u64(void* at, u64 v) { model::modify(at, 8, false, false, Scope::Gpu, larger, v, 0); }
inline void max_release_gpu_u64(void* at, u64 v) { model::modify(at, 8, false, true, Scope::Gpu, larger, v, 0); }
inline void add_release_sys_u64(void* at, u64 v) { model::modify(at, 8, false, true, Scope::Sys, added, v, 0); }
inline void add_relaxed_sys_u64(void* at, u64 v) { model::modify(at, 8, false, false, Scope::Sys, added, v, 0); }

template <uint32_t N>
inline void numbered_add_release_sys_u64(void* at, u64 v) { model::modify(at, 8, false, releases<N>(), Scope::Sys, added, v, 0); }
template <uint32_t N>
inline u64 numbered_fetch_add_acq_rel_gpu_u64(void* at, u64 v) { return model::modify(at, 8, acquires<N>(), true, Scope::Gpu, added, v, 0); }
template <uint32_t N>
inline u64 numbered_cas_acq_rel_gpu_u64(void* at, u64 expected, u64 desired) {
  return model::modify(at, 8, acquires<N>(), true, Scope::Gpu, replaced, expected, desired);
}
template <uint32_t N>
inline uint32_t numbered_cas_acq_rel_sys_u32(void* at, uint32_t expected, uint32_t desired) {
  return (uint32_t)model::modify(at, 4, acquires<N>(), releases<N>(), Scope::Sys, replaced, expected, desired);
}

inline u64 cas_acq_rel_gpu_u64(void* at, u64 expected, u64 desired) { return model::modify(at, 8, true, true, Scope::Gpu, replaced, expected, desired); }
inline u64 cas_acq_rel_sys_u64(void* at, u64 expected, u64 desired) { return model::modify(at, 8, true, true, Scope::Sys, replaced, expected, desired); }
inline uint32_t cas_acq_rel_sys_u32(void* at, uint32_t expected, uint32_t desired) {
  return (uint32_t)model::modify(at, 4, true, true, Scope::Sys, replaced, expected, desired);
}
inline uint32_t cas_acquire_sys_u32(void* at, uint32_t expected, uint32_t desired) {
  return (uint32_t)model::modify(at, 4, true, false, Scope::Sys, replaced, expected, desired);
}

inline void fence_acq_rel_sys() { model::fence(true, Scope::Sys); }
inline void fence_acq_rel_gpu() { model::fence(true, Scope::Gpu); }
inline void fence_acquire_sys() { model::fence_acquire(); }
inline void fence_release_sys() { model::fence(false, Scope::Sys); }
inline void fence_release_gpu() { model::fence(false, Scope::Gpu); }

// A GPU faults on a vector at an odd address; the host would not.
inline void expect_aligned(const void* at) {
  if ((u64)at % 16 == 0) return;
  printf("a vector at %p\n", at);
  fflush(stdout);
  abort();
}

inline int4 load_16(const int4* at) {
  expect_aligned(at);
  int4 v;
  model::weak_load(at, &v, sizeof v);
  return v;
}

inline int4 load_constant_16(const int4* at) { return load_16(at); }

inline void store_16(int4* at, int4 v) {
  expect_aligned(at);
  model::weak_store(at, &v, sizeof v);
}

template <typename T>
inline void known(T&) {}

inline void wait_for_stream() { machine::wait_for_stream(); }
inline void let_stream_go_on() { machine::let_stream_go_on(); }

inline u64 now_ns() { return machine::now_ns(); }

}  // namespace symm
