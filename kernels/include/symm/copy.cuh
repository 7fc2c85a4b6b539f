// Copies by one warp between any two addresses of global memory.
#pragma once

#include "symm/memory.cuh"

namespace symm {

// Vectors that one lane keeps in flight: seven of 16 bytes saturated NVLink, eight did not do better and cost registers.
constexpr int IN_FLIGHT = 7;

// Bytes that one warp moves with one round of 16-byte vectors.
constexpr u64 WARP_ROUND = 32 * 16;

// The largest piece a warp takes at a time while it has few: twice as large ones end at such different times that an all_to_all of
// 64 MiB took 10 % longer, half as large ones did no better.
constexpr u64 MAX_PIECE = 2 * IN_FLIGHT * WARP_ROUND;

// A warp that has this many pieces or more takes twice as large ones: where a few warps move much, what counts is how seldom each
// stops between two pieces (16 blocks lost 5 % by the smaller ones), and the last piece is a small part of all.
constexpr u64 MANY_PIECES = 64;

inline __device__ __noinline__ u64 divide_wide(u64 a, u64 b) { return a / b; }

// a / b. 64-bit division is a long function; nearly always 32 bits do.
__device__ __forceinline__ u64 divide(u64 a, u64 b) {
  return (a | b) >> 32 == 0 ? (uint32_t)a / (uint32_t)b : divide_wide(a, b);
}

// Bytes of the pieces into which `bytes` are cut for `warps` warps: one piece a warp while that keeps every lane of it
// busy, and no piece so large that warps end at different times.
__device__ __forceinline__ u64 piece_bytes(u64 bytes, u64 warps) {
  u64 piece = divide(bytes + warps - 1, warps);
  piece = (piece + WARP_ROUND - 1) / WARP_ROUND * WARP_ROUND;
  const u64 most = piece < MANY_PIECES * MAX_PIECE ? MAX_PIECE : 2 * MAX_PIECE;
  return piece < WARP_ROUND ? WARP_ROUND : piece > most ? most : piece;
}

// How a copy's source is read. `Constant` is for memory that nobody writes while the kernel runs.
enum class Source { Constant, Shared };

template <Source S, typename V>
__device__ __forceinline__ V load_vector(const V* at) {
  if constexpr (S == Source::Constant && sizeof(V) >= 4) {
    return __ldg(at);
  } else {
    return *at;
  }
}

template <Source S>
__device__ __forceinline__ int4 load_vector(const int4* at) {
  return S == Source::Constant ? load_constant_16(at) : load_16(at);
}

template <typename V>
__device__ __forceinline__ void store_vector(V* at, V v) {
  *at = v;
}

__device__ __forceinline__ void store_vector(int4* at, int4 v) { store_16(at, v); }

// N vectors of every lane, 32 apart.
template <Source S, int N, typename V>
__device__ __forceinline__ void copy_rounds(V* dst, const V* src) {
  V held[N];
#pragma unroll
  for (int k = 0; k < N; k++) held[k] = load_vector<S>(src + k * 32);
#pragma unroll
  for (int k = 0; k < N; k++) store_vector(dst + k * 32, held[k]);
}

template <Source S, typename V>
__device__ __forceinline__ void copy_vectors(V* dst, const V* src, uint32_t n) {
  uint32_t i = threadIdx.x & 31;
  for (; i + (IN_FLIGHT - 1) * 32 < n; i += IN_FLIGHT * 32) copy_rounds<S, IN_FLIGHT>(dst + i, src + i);
  // The rest is at most IN_FLIGHT - 1 rounds, the last of them perhaps not of all lanes.
  static_assert(IN_FLIGHT <= 8, "the rest is 4 + 2 + 1 rounds");
  if (i + 3 * 32 < n) copy_rounds<S, 4>(dst + i, src + i), i += 4 * 32;
  if (i + 32 < n) copy_rounds<S, 2>(dst + i, src + i), i += 2 * 32;
  if (i < n) copy_rounds<S, 1>(dst + i, src + i);
}

// The common path: everything aligned. A call of its own, so that the vectors in flight do not compete with what the
// caller holds: in line, the compiler kept four of the seven.
template <Source S>
__device__ __noinline__ void copy_aligned(u64 dst, u64 src, uint32_t n) {
  copy_vectors<S>((int4*)dst, (const int4*)src, n);
}

// With the head and tail that bring both addresses to the vector's alignment.
template <Source S, typename V>
__device__ __noinline__ void copy_as(u64 dst, u64 src, uint32_t bytes) {
  const uint32_t lane = threadIdx.x & 31;
  uint32_t head = (sizeof(V) - (uint32_t)dst % sizeof(V)) % sizeof(V);
  if (head > bytes) head = bytes;
  const uint32_t n = (bytes - head) / sizeof(V);
  const uint32_t tail = head + n * sizeof(V);
  if (lane < head) ((char*)dst)[lane] = ((const char*)src)[lane];
  copy_vectors<S>((V*)(dst + head), (const V*)(src + head), n);
  if (lane < bytes - tail) ((char*)dst)[tail + lane] = ((const char*)src)[tail + lane];
}

// One warp copies; every lane of it calls this. The ranges do not overlap. The widest vector that both addresses can
// share once a head of at most 15 bytes is cut off decides the path.
template <Source S>
__device__ __forceinline__ void warp_copy(u64 dst, u64 src, uint32_t bytes) {
  const uint32_t skew = (uint32_t)dst - (uint32_t)src;
  if (((uint32_t)dst | (uint32_t)src | bytes) % 16 == 0) {
    copy_aligned<S>(dst, src, bytes / 16);
  } else if (skew % 16 == 0) {
    copy_as<S, int4>(dst, src, bytes);
  } else if (skew % 8 == 0) {
    copy_as<S, u64>(dst, src, bytes);
  } else if (skew % 4 == 0) {
    copy_as<S, uint32_t>(dst, src, bytes);
  } else if (skew % 2 == 0) {
    copy_as<S, uint16_t>(dst, src, bytes);
  } else {
    copy_as<S, uint8_t>(dst, src, bytes);
  }
}

// A range cut into pieces over all warps of the grid.
template <Source S>
__device__ __forceinline__ void grid_copy(u64 dst, u64 src, u64 bytes) {
  const u64 per_block = blockDim.x / 32;
  const u64 warps = gridDim.x * per_block;
  const u64 piece = piece_bytes(bytes, warps);
  for (u64 at = (blockIdx.x * per_block + threadIdx.x / 32) * piece; at < bytes; at += warps * piece) {
    warp_copy<S>(dst + at, src + at, (uint32_t)(bytes - at < piece ? bytes - at : piece));
  }
}

}  // namespace symm
