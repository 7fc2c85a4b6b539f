// Where this PE's rows go: the arithmetic of symm_core::splits, for all destinations at once.
//
// A column is a (destination, expert) pair. Columns are numbered in push order: destinations from this PE's right
// neighbour round to this PE itself, so that not everybody pushes to the same PE at once, and within a destination by
// expert. One warp works out a destination; the columns of a tile are kept in shared memory.
#pragma once

#include "publish.cuh"

namespace symm {
namespace exchange {

// Index of a (destination, expert) pair in anybody's published splits.
__device__ __forceinline__ u64 split_index(const ExchangeParams& p, uint32_t destination, u64 expert) {
  return p.form == FORM_ALL_TO_ALL_VDEV_2D_OFFSET ? expert * p.ranks + destination : destination * p.ne + expert;
}

// The destination of the `step`-th group of columns.
__device__ __forceinline__ uint32_t destination(const ExchangeParams& p, uint32_t step) {
  return (p.rank + 1 + step) % p.ranks;
}

// Rows that one expert takes in the output of all_to_all_vdev_2d.
__device__ __forceinline__ u64 expert_rows(u64 rows, u64 major_align) {
  const u64 align = at_most(major_align, MAX_ROWS);
  const u64 blocks = (rows + align - 1) / align;
  return (blocks == 0 ? 1 : blocks) * align;
}

// Rows of one column: mine, those of lower ranks, and everybody's.
struct Column {
  u64 mine, before, all;
};

__device__ __forceinline__ Column column_rows(const ExchangeParams& p, u64 epoch, u64 index) {
  Column c = {0, 0, 0};
#pragma unroll 4
  for (uint32_t q = 0; q < p.ranks; q++) {
    const u64 rows = as_rows(splits_from(p, epoch, q)[index]);
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

__device__ __forceinline__ void keep(Shared& s, const Kept& kept, u64 column, u64 rows, u64 src, u64 dst) {
  if (column < kept.begin || column >= kept.end) return;
  const u64 at = column - kept.begin;
  s.rows[at] = rows;
  s.src[at] = src;
  s.dst[at] = dst;
}

// One warp works out one destination: keeps its columns that are in the tile, sets `rows_to`, and returns the rows that
// its output must have (the end of the last row that anybody writes there).
__device__ __forceinline__ u64 place_destination(Shared& s, const ExchangeParams& p, u64 epoch, uint32_t step,
                                                 const Kept& kept) {
  const int lane = threadIdx.x & 31;
  const uint32_t d = destination(p, step);
  u64 needed = 0, sent = 0;

  if (p.form == FORM_ALL_GATHER || p.form == FORM_ALL_TO_ALL) {
    const u64 block = p.form == FORM_ALL_GATHER ? p.in_rows : p.in_rows / p.ranks;
    if (lane == 0) keep(s, kept, step, block, 0, p.rank * block);
    sent = block;
    needed = p.ranks * block;
  } else if (p.form == FORM_ALL_TO_ALL_VDEV_2D) {
    u64 start = 0;
    for (u64 from = 0; from < p.ne; from += 32) {
      const u64 expert = from + lane;
      const bool real = expert < p.ne;
      const Column c = real ? column_rows(p, epoch, split_index(p, d, expert)) : Column{0, 0, 0};
      u64 batch, batch_sent;
      const u64 at = start + warp_scan(real ? expert_rows(c.all, p.major_align) : 0, batch);
      const u64 src = sent + warp_scan(c.mine, batch_sent);
      if (real) keep(s, kept, step * p.ne + expert, c.mine, src, at + c.before);
      const u64 end = warp_max(c.all > 0 ? at + c.all : 0);
      needed = end > needed ? end : needed;
      start += batch;
      sent += batch_sent;
    }
  } else {
    // Dense: first all rows of lower ranks, then mine by expert.
    u64 before = 0;
    for (u64 from = 0; from < p.ne; from += 32) {
      const u64 expert = from + lane;
      const Column c = expert < p.ne ? column_rows(p, epoch, split_index(p, d, expert)) : Column{0, 0, 0};
      before += warp_sum(c.before);
      needed += warp_sum(c.all);
    }
    const bool offsets = p.form == FORM_ALL_TO_ALL_VDEV_2D_OFFSET;
    const long long* starts = (const long long*)(p.local + sizeof(ContextLocal));
    for (u64 from = 0; from < p.ne; from += 32) {
      const u64 expert = from + lane;
      const bool real = expert < p.ne;
      const u64 index = real ? split_index(p, d, expert) : 0;
      const u64 mine = real ? as_rows(splits_from(p, epoch, p.rank)[index]) : 0;
      u64 batch;
      const u64 prefix = sent + warp_scan(mine, batch);
      if (real) keep(s, kept, step * p.ne + expert, mine, offsets ? (u64)starts[index] : prefix, before + prefix);
      sent += batch;
    }
  }
  if (lane == 0) s.rows_to[d] = sent;
  return needed;
}

// Keeps the columns of a tile again; only the destinations that reach into it are worked out. The whole block.
__device__ __forceinline__ void place_tile(Shared& s, const ExchangeParams& p, u64 epoch, const Kept& kept) {
  __syncthreads();
  for (uint32_t step = threadIdx.x / 32; step < p.ranks; step += WARPS) {
    if ((step + 1) * p.ne > kept.begin && step * p.ne < kept.end) place_destination(s, p, epoch, step, kept);
  }
  __syncthreads();
}

// Where the rows for each destination begin in an input that is ordered by destination. The whole block.
__device__ __forceinline__ void place_sources(Shared& s, const ExchangeParams& p) {
  for (uint32_t d = threadIdx.x; d < p.ranks; d += THREADS) {
    u64 base = 0;
    if (p.form == FORM_ALL_TO_ALL || p.form == FORM_ALL_TO_ALL_VDEV || p.form == FORM_ALL_TO_ALL_VDEV_2D) {
      for (uint32_t q = 0; q < d; q++) base += s.rows_to[q];
    }
    s.src_base[d] = base;
  }
  __syncthreads();
}

}  // namespace exchange
}  // namespace symm
