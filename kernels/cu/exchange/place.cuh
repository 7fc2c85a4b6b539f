// Where this PE's rows go: the arithmetic of symm_core::splits, for all destinations at once.
//
// A column is a (destination, expert) pair. Columns are numbered in push order: destinations from this PE's right
// neighbour round to this PE itself, so that not everybody pushes to the same PE at once, and within a destination by
// expert. One warp works out a destination; the columns of a tile are kept in shared memory.
#pragma once

#include "publish.cuh"
#include "symm/copy.cuh"

namespace symm {
namespace exchange {

// Index of a (destination, expert) pair in anybody's published splits.
template <typename K>
__device__ __forceinline__ u64 split_index(const ExchangeParams& p, uint32_t destination, u64 expert) {
  return K::form(p) == FORM_ALL_TO_ALL_VDEV_2D_OFFSET ? expert * p.ranks + destination : destination * p.ne + expert;
}

// Rows that one expert takes in the output of all_to_all_vdev_2d.
__device__ __forceinline__ u64 expert_rows(u64 rows, u64 major_align) {
  if (major_align == 1) return rows == 0 ? 1 : rows;
  const u64 align = at_most(major_align, MAX_ROWS);
  const u64 blocks = divide(rows + align - 1, align);
  return (blocks == 0 ? 1 : blocks) * align;
}

// Rows of one column: mine, those of lower ranks, and everybody's.
struct Column {
  u64 mine, before, all;
};

template <typename S>
__device__ __forceinline__ Column column_rows(const S& s, const ExchangeParams& p, u64 epoch, u64 index) {
  Column c = {0, 0, 0};
#pragma unroll 2
  for (uint32_t q = 0; q < p.ranks; q++) {
    const u64 rows = as_rows(split_of(s, p, epoch, q, index));
    c.all += rows;
    if (q < p.rank) c.before += rows;
    if (q == p.rank) c.mine = rows;
  }
  return c;
}

// Columns [begin, end) of the tile that is kept.
struct Kept {
  u64 begin, end;
};

// Where one destination's columns are kept, and the addresses that their rows are counted from.
struct Keeper {
  Kept kept;
  u64 input, output;

  template <typename S>
  __device__ __forceinline__ void keep(S& s, const ExchangeParams& p, u64 column, u64 rows, u64 src, u64 dst) const {
    if (column < kept.begin || column >= kept.end) return;
    const u64 at = column - kept.begin;
    s.bytes[at] = rows * p.row_bytes;
    s.src[at] = input + src * p.row_bytes;
    s.dst[at] = output + dst * p.row_bytes;
  }
};

// Rows before the first one for destination `d` in an input that is ordered by destination: this lane's part of the sum.
template <typename S>
__device__ __forceinline__ u64 rows_before(const S& s, const ExchangeParams& p, u64 epoch, uint32_t d) {
  const u64 end = d * p.ne;
  u64 k = threadIdx.x & 31;
  // The first is apart, so that it is under way together with what the caller loads next.
  u64 rows = k < end ? as_rows(split_of(s, p, epoch, p.rank, k)) : 0;
#pragma unroll 1
  for (k += 32; k < end; k += 32) rows += as_rows(split_of(s, p, epoch, p.rank, k));
  return rows;
}

// One warp works out one destination, whatever the splits are: keeps its columns that are in the tile, sets `bytes_to`, and returns the rows that
// its output must have (the end of the last row that anybody writes there).
template <typename K, typename S>
__device__ __forceinline__ u64 place_destination(S& s, const ExchangeParams& p, u64 epoch, uint32_t step, const Kept& kept) {
  const int lane = threadIdx.x & 31;
  const uint32_t d = destination(p, step);
  const Keeper keeper = {kept, p.input, out_buffer(p, d) + s.header[d][WORD_OUT_OFFSET]};
  const uint32_t form = K::form(p);
  u64 needed = 0, sent = 0;

  if (form == FORM_ALL_GATHER || form == FORM_ALL_TO_ALL) {
    const u64 block = form == FORM_ALL_GATHER ? p.in_rows : p.in_rows / p.ranks;
    if (lane == 0) keeper.keep(s, p, step, block, form == FORM_ALL_GATHER ? 0 : d * block, p.rank * block);
    sent = block;
    needed = p.ranks * block;
  } else if (form == FORM_ALL_TO_ALL_VDEV_2D) {
    u64 start = 0;
    u64 base = rows_before(s, p, epoch, d);
    bool summed = false;
#pragma unroll 1
    for (u64 from = 0; from < p.ne; from += 32) {
      const u64 expert = from + lane;
      const bool real = expert < p.ne;
      const Column c = real ? column_rows(s, p, epoch, split_index<K>(p, d, expert)) : Column{0, 0, 0};
      if (!summed) base = warp_sum(base), summed = true;
      u64 at = real ? expert_rows(c.all, p.major_align) : 0, src = c.mine, batch, batch_sent;
      warp_scan_two(at, src, batch, batch_sent);
      at += start;
      if (real) keeper.keep(s, p, step * p.ne + expert, c.mine, base + sent + src, at + c.before);
      const u64 end = warp_max(c.all > 0 ? at + c.all : 0);
      needed = end > needed ? end : needed;
      start += batch;
      sent += batch_sent;
    }
  } else {
    // Dense: first all rows of lower ranks, then mine by expert.
    u64 before = 0;
#pragma unroll 1
    for (u64 from = 0; from < p.ne; from += 32) {
      const u64 expert = from + lane;
      const Column c = expert < p.ne ? column_rows(s, p, epoch, split_index<K>(p, d, expert)) : Column{0, 0, 0};
      before += warp_sum(c.before);
      needed += warp_sum(c.all);
    }
    const bool offsets = form == FORM_ALL_TO_ALL_VDEV_2D_OFFSET;
    const u64 base = offsets ? 0 : warp_sum(rows_before(s, p, epoch, d));
#pragma unroll 1
    for (u64 from = 0; from < p.ne; from += 32) {
      const u64 expert = from + lane;
      const bool real = expert < p.ne;
      const u64 index = real ? split_index<K>(p, d, expert) : 0;
      const u64 mine = real ? as_rows(split_of(s, p, epoch, p.rank, index)) : 0;
      u64 batch;
      const u64 prefix = sent + warp_scan<u64>(mine, batch);
      if (real) keeper.keep(s, p, step * p.ne + expert, mine, offsets ? start_of(s, p, index) : base + prefix, before + prefix);
      sent += batch;
    }
  }
  if (lane == 0) s.bytes_to[step] = sent * p.row_bytes;
  return needed;
}

// The same where all splits are few and narrow: 32-bit sums, one column a lane, half of the instructions.
template <typename K, typename S>
__device__ __forceinline__ u64 place_narrow(S& s, const ExchangeParams& p, uint32_t step, const Kept& kept) {
  const uint32_t lane = threadIdx.x & 31, d = destination(p, step), form = K::form(p), ranks = p.ranks, ne = (uint32_t)p.ne;
  const bool offsets = form == FORM_ALL_TO_ALL_VDEV_2D_OFFSET, real = lane < ne;
  const uint32_t index = real ? (offsets ? lane * ranks + d : d * ne + lane) : 0;
  uint32_t mine = 0, before = 0, all = 0;
#pragma unroll 2
  for (uint32_t q = 0; q < ranks; q++) {
    const uint32_t rows = real ? s.rows[q][index] : 0;
    all += rows;
    if (q < p.rank) before += rows;
    if (q == p.rank) mine = rows;
  }
  // Rows of the input before this column's: of all splits in their order, or as the offsets say.
  u64 src;
  if (offsets) {
    src = real ? (u64)s.starts[index] : 0;
  } else {
    src = s.before[index];
  }
  uint32_t dst, needed;
  if (form == FORM_ALL_TO_ALL_VDEV_2D) {
    uint32_t total;
    dst = warp_scan<uint32_t>(real ? (uint32_t)expert_rows(all, p.major_align) : 0, total);
    needed = __reduce_max_sync(ALL, all > 0 ? dst + all : 0);
    dst += before;
  } else {
    uint32_t total;
    dst = warp_scan<uint32_t>(mine, total) + __reduce_add_sync(ALL, before);
    needed = __reduce_add_sync(ALL, all);
  }
  const uint32_t sent = __reduce_add_sync(ALL, mine), row = (uint32_t)p.row_bytes;
  const uint32_t column = step * ne + lane, at = column - (uint32_t)kept.begin;
  if (real && column >= (uint32_t)kept.begin && column < (uint32_t)kept.end) {
    s.bytes[at] = (u64)mine * row;
    s.src[at] = p.input + src * row;
    s.dst[at] = out_buffer(p, d) + s.header[d][WORD_OUT_OFFSET] + (u64)dst * row;
  }
  if (lane == 0) s.bytes_to[step] = (u64)sent * row;
  return needed;
}

// Keeps the columns of a tile again; only the destinations that reach into it are worked out. The whole block.
template <typename K, typename S>
__device__ __noinline__ void place_tile(S& s, const ExchangeParams& p, u64 epoch, const Kept& kept) {
  __syncthreads();
#pragma unroll 1
  for (uint32_t step = threadIdx.x / 32; step < p.ranks; step += blockDim.x / 32) {
    if ((step + 1) * p.ne > kept.begin && step * p.ne < kept.end) place_destination<K>(s, p, epoch, step, kept);
  }
  __syncthreads();
}

}  // namespace exchange
}  // namespace symm
