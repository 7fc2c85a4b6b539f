// The beginning of a warp's first piece, read while the notes are on their way.
//
// Which rows go to whom, and where they lie in the input, a block knows from this PE's own splits; only where they go in the outputs
// is in the others' notes. So each warp finds its first piece and has its bytes in registers when the verdict comes: two steps less
// between the two words over the link. Every block has read the splits by itself for that. What counts is what share 0 published: where
// the own note says something else, what was read is left alone and everything is done as without it.
#pragma once

#include "push.cuh"

namespace symm {
namespace exchange {

// Of one warp. All but the vectors are the same on every lane.
struct Ahead {
  int4 held[IN_FLIGHT];
  uint32_t column, offset;  // where in the share's columns they belong
  uint32_t vectors;         // how many of 32 * IN_FLIGHT are held
  uint32_t done;            // bytes of the first piece that are pushed
  bool ready;               // the warp's part is known, if only that there is none
  bool more;                // it has more than what is held
};

// Whether a split, or offset, in this PE's own note is another one than this block has read.
template <typename S>
__device__ __forceinline__ bool differs_from_own(const S& s, uint32_t k, const Read& read, bool offsets) {
  return s.own_rows[k] != read.split || (offsets && s.own_before[k] != read.start);
}

// Finds this warp's first piece as `push` will, and reads its first vectors. One warp. Splits that are not plainly right, or bytes that
// are no whole vectors, are left for later.
template <typename K, typename S>
__device__ __forceinline__ void read_ahead(Ahead& a, const S& s, const ExchangeParams& p, const Role& role) {
  const uint32_t lane = threadIdx.x & 31, ne = (uint32_t)p.ne, row = (uint32_t)p.row_bytes, columns = (uint32_t)(role.end - role.begin);
  if (!s.own_plain || p.invalid != 0 || p.row_bytes >> 32 != 0 || columns > 32 || (row | (uint32_t)p.input) % 16 != 0) return;
  const bool real = lane < columns;
  const uint32_t column = (uint32_t)role.begin + lane, step = column / ne, d = destination(p, step);
  const uint32_t index = real ? (uint32_t)split_index<K>(p, d, column - step * ne) : 0;
  const uint32_t rows = real ? s.own_rows[index] : 0;
  const uint32_t per_block = blockDim.x / 32, warps = role.shares * per_block, warp = role.index * per_block + threadIdx.x / 32;
  const u64 bytes = (u64)rows * row, piece = piece_bytes((u64)__reduce_add_sync(ALL, rows) * row, warps);
  uint32_t total;
  const uint32_t before = warp_scan<uint32_t>((uint32_t)divide(bytes + piece - 1, piece), total);
  a.ready = true;
  if (warp >= total) return;
  a.column = 31 - __clz(__ballot_sync(ALL, real && before <= warp));
  const u64 offset = (u64)(warp - __shfl_sync(ALL, before, a.column)) * piece, left = __shfl_sync(ALL, bytes, a.column) - offset;
  const int4* const src = (const int4*)(p.input + __shfl_sync(ALL, s.own_before[index], a.column) * row + offset);
  const uint32_t all = (uint32_t)(left < piece ? left : piece) / 16;
  a.offset = (uint32_t)offset;
  a.vectors = all < 32 * IN_FLIGHT ? all : 32 * IN_FLIGHT;
  a.more = a.vectors < all || warp + warps < total;
#pragma unroll
  for (int k = 0; k < IN_FLIGHT; k++)
    if (lane + 32 * k < a.vectors) a.held[k] = load_constant_16(src + lane + 32 * k);
}

// Pushes what is held, once the verdict is good and the places are known. Returns whether the warp has more to push.
template <typename S>
__device__ __forceinline__ bool push_ahead(Ahead& a, const S& s) {
  if (!a.ready || s.changed) return true;
  if (a.vectors == 0) return false;
  const u64 to = s.dst[a.column] + a.offset;
  if (to % 16 != 0) return true;
  const uint32_t lane = threadIdx.x & 31;
#pragma unroll
  for (int k = 0; k < IN_FLIGHT; k++)
    if (lane + 32 * k < a.vectors) store_16((int4*)to + lane + 32 * k, a.held[k]);
  a.done = 16 * a.vectors;
  return a.more;
}

}  // namespace exchange
}  // namespace symm
