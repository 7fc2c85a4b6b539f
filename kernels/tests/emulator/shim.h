// CUDA's threads, barriers and warp operations on host threads: enough to run the kernels as they are written.
#pragma once

#include <pthread.h>
#include <sched.h>
#include <unistd.h>

#include <atomic>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <thread>
#include <vector>

#define __device__
#define __global__
#define __forceinline__ inline
#define __noinline__
#define __launch_bounds__(...)
#define __grid_constant__

typedef unsigned long long u64_t;

struct int4 {
  int x, y, z, w;
};

// A barrier of `n` threads. Threads that return from the kernel leave it, as on the GPU.
class Meeting {
 public:
  void expect(unsigned n) { left_ = n, all_ = n; }

  void wait() {
    const unsigned round = round_.load();
    if (left_.fetch_sub(1) == 1) open();
    else while (round_.load() == round) sched_yield();
  }

  void leave() {
    all_.fetch_sub(1);
    if (left_.fetch_sub(1) == 1) open();
  }

 private:
  void open() {
    left_.store(all_.load());
    round_.fetch_add(1);
  }

  std::atomic<unsigned> left_{0}, all_{0}, round_{0};
};

struct EmulatedWarp {
  Meeting meeting;
  u64_t value[32];
};

struct EmulatedBlock {
  Meeting meeting;
  std::vector<EmulatedWarp> warps;
  std::atomic<int> any[2] = {{0}, {0}};
  void* shared;
};

struct Index {
  unsigned x;
};

inline thread_local Index threadIdx, blockIdx, gridDim, blockDim;
inline thread_local EmulatedBlock* current_block;
inline thread_local unsigned any_round;

inline void __syncthreads() { current_block->meeting.wait(); }

inline int __syncthreads_or(int predicate) {
  EmulatedBlock& block = *current_block;
  const unsigned round = any_round++ & 1;
  if (predicate) block.any[round] = 1;
  block.meeting.wait();
  const int any = block.any[round];
  block.meeting.wait();
  block.any[round] = 0;
  return any;
}

// Every lane gives a value; each gets what `pick` makes of all of them.
template <typename Pick>
inline u64_t exchange_lanes(u64_t value, Pick pick) {
  EmulatedWarp& warp = current_block->warps[threadIdx.x / 32];
  warp.value[threadIdx.x & 31] = value;
  warp.meeting.wait();
  const u64_t picked = pick(warp.value);
  warp.meeting.wait();
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

inline void __syncwarp() { current_block->warps[threadIdx.x / 32].meeting.wait(); }

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

inline void atomicMin(u64_t* at, u64_t value) {
  u64_t seen = __atomic_load_n(at, __ATOMIC_RELAXED);
  while (value < seen && !__atomic_compare_exchange_n(at, &seen, value, false, __ATOMIC_RELAXED, __ATOMIC_RELAXED)) {
  }
}

inline void atomicOr(unsigned* at, unsigned value) { __atomic_fetch_or(at, value, __ATOMIC_RELAXED); }

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
