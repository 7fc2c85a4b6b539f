// Moving the rows, and the receiver's own table of what it got.
#pragma once

#include "symm/copy.cuh"
#include "verdict.cuh"

namespace symm {
namespace exchange {

// The columns of a share, and which part of their pieces is its own.
struct Role {
  u64 begin, end;   // columns
  uint32_t index;   // of this share among those with the same columns
  uint32_t shares;  // how many those are
};

// The first shares push to other PEs, since the links are the bottleneck; the rest copy this PE's own rows. One share
// alone does both.
__device__ __forceinline__ Role role_of(const ExchangeParams& p, uint32_t share, uint32_t shares) {
  const u64 remote = (p.ranks - 1) * p.ne, all = p.ranks * p.ne;
  const uint32_t split = p.remote_blocks;
  if (split == 0 || split >= shares) return {0, all, share, shares};
  if (share < split) return {0, remote, share, split};
  return {remote, all, share - split, shares - split};
}

// The columns of the tile that begins at `begin`.
__device__ __forceinline__ Kept tile(const Role& role, u64 begin) {
  return {begin, begin + TILE < role.end ? begin + TILE : role.end};
}

// Pushes this share's part of the columns; those of the first tile are in `s`. The whole block.
__device__ __forceinline__ void push(Shared& s, const ExchangeParams& p, u64 epoch, const Role& role) {
  // Pieces are as large as all rows of the role together allow, not as rows are: a row may be two bytes or a megabyte.
  u64 rows = 0;
  for (u64 step = role.begin / p.ne; step < role.end / p.ne; step++) rows += s.rows_to[destination(p, (uint32_t)step)];
  const u64 warps = (u64)role.shares * WARPS;
  const u64 warp = (u64)role.index * WARPS + threadIdx.x / 32;
  const u64 piece = piece_bytes(rows * p.row_bytes, warps);

  u64 earlier = 0;  // pieces of the tiles before
  for (u64 begin = role.begin; begin < role.end; begin += TILE) {
    const Kept kept = tile(role, begin);
    const uint32_t columns = (uint32_t)(kept.end - kept.begin);
    if (begin != role.begin) place_tile(s, p, epoch, kept);
    const u64 own = threadIdx.x < columns ? (s.rows[threadIdx.x] * p.row_bytes + piece - 1) / piece : 0;
    const u64 before = block_scan(s, own);
    s.pieces[threadIdx.x] = before;
    __syncthreads();
    const u64 total = s.total;

    for (u64 at = (warp + warps - earlier % warps) % warps; at < total; at += warps) {
      // The last column that begins at or before this piece; columns without pieces begin where the next one does.
      uint32_t low = 0, high = columns;
      while (high - low > 1) {
        const uint32_t middle = (low + high) / 2;
        if (s.pieces[middle] <= at) low = middle; else high = middle;
      }
      const uint32_t d = destination(p, (uint32_t)((kept.begin + low) / p.ne));
      const u64 offset = (at - s.pieces[low]) * piece;
      const u64 left = s.rows[low] * p.row_bytes - offset;
      warp_copy<Source::Constant>(s.out_base[d] + s.dst[low] * p.row_bytes + offset,
                                  p.input + (s.src_base[d] + s.src[low]) * p.row_bytes + offset, (uint32_t)(left < piece ? left : piece));
    }
    earlier += total;
    __syncthreads();  // before the next tile's columns replace these
  }
}

// Writes out_splits_offsets from what all members published. The whole block.
__device__ __forceinline__ void write_result(Shared& s, const ExchangeParams& p, u64 epoch) {
  long long* counts = (long long*)p.out_splits;
  if (counts == nullptr || p.n_splits == 0) return;
  long long* starts = counts + p.n_splits;
  if (p.form == FORM_ALL_TO_ALL_VDEV_2D) {
    u64 base = 0;
    for (u64 from = 0; from < p.ne; from += THREADS) {
      const u64 expert = from + threadIdx.x;
      const bool real = expert < p.ne;
      const u64 index = split_index(p, p.rank, real ? expert : 0);
      const Column c = real ? column_rows(p, epoch, index) : Column{0, 0, 0};
      u64 at = base + block_scan(s, real ? expert_rows(c.all, p.major_align) : 0);
      base += s.total;
      for (uint32_t q = 0; real && q < p.ranks; q++) {
        const u64 rows = as_rows(splits_from(p, epoch, q)[index]);
        counts[expert * p.ranks + q] = (long long)rows;
        starts[expert * p.ranks + q] = (long long)at;
        at += rows;
      }
    }
  } else {
    u64 base = 0;
    const u64 n = p.ranks * p.ne;
    for (u64 from = 0; from < n; from += THREADS) {
      const u64 k = from + threadIdx.x;
      const bool real = k < n;
      const u64 rows = real ? as_rows(splits_from(p, epoch, (uint32_t)(k / p.ne))[split_index(p, p.rank, k % p.ne)]) : 0;
      const u64 at = base + block_scan(s, rows);
      base += s.total;
      if (real) {
        counts[k] = (long long)rows;
        starts[k] = (long long)at;
      }
    }
  }
}

}  // namespace exchange
}  // namespace symm
