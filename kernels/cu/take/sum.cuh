// Blocks of all members' buffers, added up to this PE's memory: every element in rank order, as reduce/sum.cuh does, with
// strides on both sides and a division before the sum is rounded.
#pragma once

#include "../reduce/sum.cuh"

namespace symm {
namespace take {

using namespace reduce;

__device__ __forceinline__ float divided(float sum, uint32_t by) { return __fdiv_rn(sum, (float)by); }
__device__ __forceinline__ double divided(double sum, uint32_t by) { return __ddiv_rn(sum, (double)by); }
// Nobody divides integers: the host refuses that.
__device__ __forceinline__ uint32_t divided(uint32_t sum, uint32_t) { return sum; }
__device__ __forceinline__ u64 divided(u64 sum, uint32_t) { return sum; }

// The sums of one vector at byte `from` of every buffer, divided.
template <typename E>
__device__ __forceinline__ int4 average_vectors(const Shared& s, uint32_t ranks, u64 from, uint32_t divisor) {
  typename E::Wide sums[Vector<E>::COUNT];
#pragma unroll
  for (int i = 0; i < Vector<E>::COUNT; i++) sums[i] = E::nothing();
#pragma unroll 1
  for (uint32_t r = 0; r < ranks; r++) add_some<E, 1>(sums, s, r, from);
  Vector<E> out;
#pragma unroll
  for (int i = 0; i < Vector<E>::COUNT; i++) out.elements[i] = E::round(divided(sums[i], divisor));
  return out.raw;
}

// The sum of one element, divided.
template <typename E>
__device__ __forceinline__ typename E::Stored average_elements(const Shared& s, uint32_t ranks, u64 from, uint32_t divisor) {
  typedef typename E::Stored Stored;
  typename E::Wide sum = E::nothing();
#pragma unroll 1
  for (uint32_t r = 0; r < ranks; r++) sum = E::add(sum, E::widen(*(const volatile Stored*)(s.buffer[r] + from)));
  return E::round(divided(sum, divisor));
}

// Where a block's byte `at`, counted over its runs, is read and written, both from the block's first byte.
struct Where {
  u64 from, to;
};

__device__ __forceinline__ Where where(const Take& t, u64 at) {
  const u64 row = t.rows == 1 ? 0 : at / t.cols, in_row = at - row * t.cols;
  return {t.src + row * t.src_stride + in_row, row * t.dst_stride + in_row};
}

// One share of the elements [begin, end) of a block, one at a time.
template <typename E>
__device__ __forceinline__ void take_elements(const Shared& s, const Take& t, uint32_t ranks, uint32_t divisor, u64 begin, u64 end, u64 thread, u64 threads) {
  typedef typename E::Stored Stored;
#pragma unroll 1
  for (u64 i = begin + thread; i < end; i += threads) {
    const Where w = where(t, i * sizeof(Stored));
    *(Stored*)(t.dst + w.to) = divisor == 1 ? add_elements<E>(s, ranks, w.from) : average_elements<E>(s, ranks, w.from, divisor);
  }
}

// One share of a block. All threads of the block of threads call it, after a barrier that covers `s.buffer`.
template <typename E>
__device__ __forceinline__ void sum_take(Shared& s, const Take& t, uint32_t ranks, uint32_t divisor, uint32_t share, uint32_t shares) {
  typedef typename E::Stored Stored;
  if (t.rows == 0 || t.cols == 0) return;
  // All look whether vectors of all buffers and the destination begin at equal distances from 16 bytes.
  const u64 base = s.buffer[0] + t.src;
  if (threadIdx.x == 0) s.skewed = (uint32_t)((t.dst ^ base) & 15);
  __syncthreads();
  for (uint32_t r = threadIdx.x; r < ranks; r += THREADS) {
    const uint32_t bits = (uint32_t)((s.buffer[r] + t.src) ^ base) & 15;
    if (bits != 0) atomicOr(&s.skewed, bits);
  }
  __syncthreads();
  const bool skewed = s.skewed != 0;
  // Before the next block's look replaces it.
  __syncthreads();
  const u64 thread = (u64)share * THREADS + threadIdx.x, threads = (u64)shares * THREADS;
  const u64 bytes = t.rows * t.cols, count = bytes / sizeof(Stored);
  u64 head = (16 - (base & 15)) & 15;
  // Runs must all begin and end like the first.
  const bool ragged = t.rows > 1 && ((head | t.cols | t.src_stride | t.dst_stride) & 15) != 0;
  if (skewed || ragged) {
    take_elements<E>(s, t, ranks, divisor, 0, count, thread, threads);
    return;
  }
  head = min_u64(head, bytes);
  const u64 vectors = (bytes - head) / 16, tail = head + vectors * 16;
#pragma unroll 1
  for (u64 v = thread; v < vectors; v += threads) {
    const Where w = where(t, head + v * 16);
    const int4 x = divisor == 1 ? add_vectors<E>(s, ranks, w.from) : average_vectors<E>(s, ranks, w.from, divisor);
    store_vector((int4*)(t.dst + w.to), x);
  }
  take_elements<E>(s, t, ranks, divisor, 0, head / sizeof(Stored), thread, threads);
  take_elements<E>(s, t, ranks, divisor, tail / sizeof(Stored), count, thread, threads);
}

}  // namespace take
}  // namespace symm
