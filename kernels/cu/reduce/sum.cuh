// Adding up: every element in rank order, from rank 0 up, so that the bits do not depend on who adds, with how many
// blocks, or at which alignment.
#pragma once

#include "common.cuh"
#include "element.cuh"

namespace symm {
namespace reduce {

// What a PE adds up (symm_core::splits::Part), in bytes but for the number of runs.
struct Part {
  u64 start;
  u64 rows;
  u64 cols;
  u64 stride;
};

// Where the sums go: `result`, densely, or to the same place of buffers `first` and the `count - 1` ranks after it.
struct Target {
  u64 result;
  uint32_t first, count;
};

// Adds N ranks' vectors, from rank `r` on; all N are on their way at once.
template <typename E, int N>
__device__ __forceinline__ void add_some(typename E::Wide (&sums)[Vector<E>::COUNT], const Shared& s, uint32_t r, u64 from) {
  Vector<E> held[N];
#pragma unroll
  for (int k = 0; k < N; k++) held[k].raw = load_vector<Source::Shared>((const int4*)(s.buffer[r + k] + from));
#pragma unroll
  for (int k = 0; k < N; k++) {
#pragma unroll
    for (int i = 0; i < Vector<E>::COUNT; i++) sums[i] = E::add(sums[i], E::widen(held[k].elements[i]));
  }
}

// The sums of one vector at byte `from` of every buffer.
template <typename E>
__device__ __forceinline__ int4 add_vectors(const Shared& s, uint32_t ranks, u64 from) {
  typename E::Wide sums[Vector<E>::COUNT];
#pragma unroll
  for (int i = 0; i < Vector<E>::COUNT; i++) sums[i] = E::nothing();
  uint32_t r = 0;
#pragma unroll 1
  for (; r + 8 <= ranks; r += 8) add_some<E, 8>(sums, s, r, from);
  if (ranks & 4) add_some<E, 4>(sums, s, r, from), r += 4;
  if (ranks & 2) add_some<E, 2>(sums, s, r, from), r += 2;
  if (ranks & 1) add_some<E, 1>(sums, s, r, from);
  Vector<E> out;
#pragma unroll
  for (int i = 0; i < Vector<E>::COUNT; i++) out.elements[i] = E::round(sums[i]);
  return out.raw;
}

// The sum of one element.
template <typename E>
__device__ __forceinline__ typename E::Stored add_elements(const Shared& s, uint32_t ranks, u64 from) {
  typedef typename E::Stored Stored;
  typename E::Wide sum = E::nothing();
#pragma unroll 4
  for (uint32_t r = 0; r < ranks; r++) sum = E::add(sum, E::widen(*(const volatile Stored*)(s.buffer[r] + from)));
  return E::round(sum);
}

template <typename V, typename Store>
__device__ __forceinline__ void hand_out(const Shared& s, const Target& t, uint32_t ranks, u64 from, u64 to, V v, Store store) {
  if (t.result != 0) {
    store((V*)(t.result + to), v);
    return;
  }
  uint32_t r = t.first;
#pragma unroll 1
  for (uint32_t k = 0; k < t.count; k++) {
    store((V*)(s.buffer[r] + from), v);
    r = r + 1 == ranks ? 0 : r + 1;
  }
}

// One share of the elements [begin, end) of the part, counted in elements; one at a time.
template <typename E>
__device__ __forceinline__ void sum_elements(const Shared& s, const Part& part, const Target& t, uint32_t ranks, u64 begin, u64 end, u64 thread, u64 threads) {
  typedef typename E::Stored Stored;
  const u64 cols = part.cols / sizeof(Stored);
#pragma unroll 1
  for (u64 i = begin + thread; i < end; i += threads) {
    const u64 row = part.rows == 1 ? 0 : i / cols;
    const u64 to = i * sizeof(Stored), from = part.start + row * part.stride + (to - row * part.cols);
    hand_out(s, t, ranks, from, to, add_elements<E>(s, ranks, from), [](Stored* at, Stored v) { *at = v; });
  }
}

// One share of a part that is not empty. All threads of the block call it, after a barrier that covers `s.buffer`.
template <typename E>
__device__ __forceinline__ void sum_part(Shared& s, const Part& part, const Target& t, uint32_t ranks, uint32_t share, uint32_t shares) {
  // The whole block looks whether vectors of all buffers and the result begin at equal distances from 16 bytes.
  const u64 base = s.buffer[0] + part.start;
  if (threadIdx.x == 0) s.skewed = t.result == 0 ? 0 : (uint32_t)((t.result ^ base) & 15);
  __syncthreads();
  for (uint32_t r = threadIdx.x; r < ranks; r += THREADS) {
    const uint32_t bits = (uint32_t)((s.buffer[r] + part.start) ^ base) & 15;
    if (bits != 0) atomicOr(&s.skewed, bits);
  }
  __syncthreads();
  const u64 thread = (u64)share * THREADS + threadIdx.x, threads = (u64)shares * THREADS;
  const u64 bytes = part.rows * part.cols, count = bytes / sizeof(typename E::Stored);
  u64 head = (16 - (base & 15)) & 15;
  // Runs must all begin and end like the first.
  const bool ragged = part.rows > 1 && ((head | part.cols | part.stride) & 15) != 0;
  if (s.skewed != 0 || ragged) {
    sum_elements<E>(s, part, t, ranks, 0, count, thread, threads);
    return;
  }
  head = min_u64(head, bytes);
  const u64 vectors = (bytes - head) / 16, tail = head + vectors * 16;
  const u64 cols = part.cols / 16;
#pragma unroll 1
  for (u64 v = thread; v < vectors; v += threads) {
    const u64 row = part.rows == 1 ? 0 : v / cols;
    const u64 to = head + v * 16, from = part.start + row * part.stride + (to - row * part.cols);
    hand_out(s, t, ranks, from, to, add_vectors<E>(s, ranks, from), [](int4* at, int4 x) { store_vector(at, x); });
  }
  sum_elements<E>(s, part, t, ranks, 0, head / sizeof(typename E::Stored), thread, threads);
  sum_elements<E>(s, part, t, ranks, tail / sizeof(typename E::Stored), count, thread, threads);
}

}  // namespace reduce
}  // namespace symm
