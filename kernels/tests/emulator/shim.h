// CUDA's barriers, warp operations and arithmetic on the machine: enough to run the kernels as they are written.
#pragma once

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <vector>

#include "machine.h"

#define __device__
#define __global__
#define __forceinline__ inline
#define __noinline__
#define __launch_bounds__(...)
#define __grid_constant__

struct int4 {
  int x, y, z, w;
};

inline void __syncthreads() { machine::meet_block(); }
inline int __syncthreads_or(int predicate) { return machine::or_block(predicate); }
inline void __syncwarp() { machine::meet_warp(true); }
// Now and then longer, so that a delay is one in which a whole operation may pass.
inline void __nanosleep(unsigned ns) { machine::sleep((ns / machine::TICK_NS) << machine::below(6)); }

// Every lane gives a value; each gets what `pick` makes of all of them.
template <typename Pick>
inline u64_t exchange_lanes(u64_t value, Pick pick) {
  u64_t* values = machine::warp_values();
  values[threadIdx.x & 31] = value;
  machine::meet_warp(false);
  const u64_t picked = pick(values);
  machine::meet_warp(false);
  return picked;
}

template <typename Fold>
inline u64_t fold_lanes(u64_t value, Fold fold) {
  return exchange_lanes(value, [&](const u64_t* all) {
    u64_t folded = all[0];
    for (int i = 1; i < 32; i++) folded = fold(folded, all[i]);
    return folded;
  });
}

template <typename T>
inline T __shfl_up_sync(unsigned, T value, int step) {
  const int lane = threadIdx.x & 31;
  return (T)exchange_lanes(value, [&](const u64_t* all) { return all[lane >= step ? lane - step : lane]; });
}

template <typename T>
inline T __shfl_xor_sync(unsigned, T value, int mask) {
  const int lane = threadIdx.x & 31;
  return (T)exchange_lanes(value, [&](const u64_t* all) { return all[lane ^ mask]; });
}

template <typename T>
inline T __shfl_sync(unsigned, T value, int from) {
  return (T)exchange_lanes(value, [&](const u64_t* all) { return all[from]; });
}

inline unsigned __ballot_sync(unsigned, bool predicate) {
  return (unsigned)exchange_lanes(predicate, [](const u64_t* all) {
    u64_t bits = 0;
    for (int i = 0; i < 32; i++) bits |= (all[i] ? 1ull : 0) << i;
    return bits;
  });
}

inline int __all_sync(unsigned mask, bool predicate) { return __ballot_sync(mask, predicate) == 0xffffffffu; }
inline int __any_sync(unsigned mask, bool predicate) { return __ballot_sync(mask, predicate) != 0; }

inline unsigned __reduce_min_sync(unsigned, unsigned value) {
  return (unsigned)fold_lanes(value, [](u64_t a, u64_t b) { return a < b ? a : b; });
}

inline unsigned __reduce_max_sync(unsigned, unsigned value) {
  return (unsigned)fold_lanes(value, [](u64_t a, u64_t b) { return a > b ? a : b; });
}

inline unsigned __reduce_add_sync(unsigned, unsigned value) {
  return (unsigned)fold_lanes(value, [](u64_t a, u64_t b) { return a + b; });
}

inline unsigned __reduce_or_sync(unsigned, unsigned value) {
  return (unsigned)fold_lanes(value, [](u64_t a, u64_t b) { return a | b; });
}

inline int __ffs(unsigned value) { return __builtin_ffs((int)value); }
inline int __clz(unsigned value) { return value == 0 ? 32 : __builtin_clz(value); }
inline u64_t __umul64hi(u64_t a, u64_t b) { return (u64_t)((unsigned __int128)a * b >> 64); }

// On a block's shared memory, where one fiber runs at a time.
inline void atomicMin(u64_t* at, u64_t value) {
  if (value < *at) *at = value;
}

inline void atomicOr(unsigned* at, unsigned value) { *at |= value; }

inline float __fadd_rn(float a, float b) { return a + b; }
inline double __dadd_rn(double a, double b) { return a + b; }
inline float __fdiv_rn(float a, float b) { return a / b; }
inline double __ddiv_rn(double a, double b) { return a / b; }

inline float __uint_as_float(unsigned bits) {
  float value;
  memcpy(&value, &bits, sizeof value);
  return value;
}

template <typename T>
inline T __ldg(const T* at) {
  return *at;
}
