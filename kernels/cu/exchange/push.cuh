// Moving the rows, and the receiver's own table of what it got.
#pragma once

#include "symm/copy.cuh"
#include "verdict.cuh"

namespace symm {
namespace exchange {

// The columns of the tile that begins at `begin`.
__device__ __forceinline__ Kept tile(const Role& role, u64 begin) {
  return {begin, begin + blockDim.x < role.end ? begin + blockDim.x : role.end};
}

template <typename S>
__device__ __forceinline__ void push_piece(const S& s, uint32_t column, u64 offset, u64 piece) {
  const u64 left = s.bytes[column] - offset;
  warp_copy<Source::Constant>(s.dst[column] + offset, s.src[column] + offset, (uint32_t)(left < piece ? left : piece));
}

// Whether a warp that has more pieces pushes on: not once the team has failed or a member has given up this epoch. The
// words are this GPU's own, and other warps' pieces are on their way meanwhile.
template <typename S>
__device__ __noinline__ bool pushes_on(S& s, const ExchangeParams& p, u64 epoch) {
  bool stop = load_relaxed_gpu_u64(&status_of(p).device->code) != STATUS_OK;
  for (uint32_t r = threadIdx.x & 31; r < p.ranks; r += 32) {
    const u64 at = load_relaxed_sys_u64((const void*)(p.mine + p.aborted + 16 * r));
    stop |= at != 0 && at <= epoch;
  }
  stop = __any_sync(ALL, stop);
  if (stop) s.stopped = true;
  return !stop;
}

// At most one column a lane: every warp finds its pieces by itself. Pieces have 512 bytes or more: their number fits 32 bits for
// anything that fits a GPU. `done`: bytes of the first piece that have been pushed already.
template <typename S>
__device__ __forceinline__ void push_few(S& s, const ExchangeParams& p, u64 epoch, uint32_t columns, u64 piece, uint32_t warp, uint32_t warps,
                                         uint32_t done) {
  const uint32_t lane = threadIdx.x & 31;
  const uint32_t own = lane < columns ? (uint32_t)divide(s.bytes[lane] + piece - 1, piece) : 0;
  uint32_t total;
  const uint32_t before = warp_scan<uint32_t>(own, total);
#pragma unroll 1
  for (uint32_t at = warp; at < total; at += warps) {
    // The last column that begins at or before this piece; columns without pieces begin where the next one does.
    const uint32_t column = 31 - __clz(__ballot_sync(ALL, lane < columns && before <= at));
    push_piece(s, column, (u64)(at - __shfl_sync(ALL, before, column)) * piece + done, piece - done);
    done = 0;
    if (at + warps < total && !pushes_on(s, p, epoch)) break;
  }
}

// Any number of columns. The whole block.
template <typename K, typename S>
__device__ __noinline__ void push_many(S& s, const ExchangeParams& p, u64 epoch, const Role& role, u64 piece, u64 warp, u64 warps) {
  u64 earlier = 0;  // pieces of the tiles before
  for (u64 begin = role.begin; begin < role.end; begin += blockDim.x) {
    const Kept kept = tile(role, begin);
    const uint32_t columns = (uint32_t)(kept.end - kept.begin);
    if (begin != role.begin) place_tile<K>(s, p, epoch, kept);
    u64 total;
    const u64 own = threadIdx.x < columns ? (s.bytes[threadIdx.x] + piece - 1) / piece : 0;
    // Pieces have 512 bytes or more: their number fits 32 bits for anything that fits a GPU.
    s.pieces[threadIdx.x] = (uint32_t)WholeBlock().scan(s.scratch, own, total);
    __syncthreads();

    for (u64 at = (warp + warps - earlier % warps) % warps; at < total; at += warps) {
      uint32_t low = 0, high = columns;
      while (high - low > 1) {
        const uint32_t middle = (low + high) / 2;
        if (s.pieces[middle] <= at) low = middle; else high = middle;
      }
      push_piece(s, low, (at - s.pieces[low]) * piece, piece);
      if (at + warps < total && !pushes_on(s, p, epoch)) break;
    }
    earlier += total;
    __syncthreads();  // before the next tile's columns replace these
  }
}

// Pushes this share's part of the columns; those of the first tile are in `s`. The whole block. A call of its own, so that its
// loops do not compete for registers with what the caller holds. `done`: of this warp's first piece, if columns are few.
template <typename K, typename S>
__device__ __noinline__ void push(S& s, const ExchangeParams& p, u64 epoch, Role role, uint32_t done) {
  // Pieces are as large as all rows of the role together allow, not as rows are: a row may be two bytes or a megabyte.
  u64 bytes = 0;
  // One share alone, or the first ones: all steps, or all but the last, which is this PE.
  const uint32_t first = role.begin == 0 ? 0 : p.ranks - 1, end = role.end == p.ranks * p.ne ? p.ranks : p.ranks - 1;
#pragma unroll 1
  for (uint32_t step = first; step < end; step++) bytes += s.bytes_to[step];
  const uint32_t per_block = blockDim.x / 32;
  const uint32_t warps = role.shares * per_block, warp = role.index * per_block + threadIdx.x / 32;
  const u64 piece = piece_bytes(bytes, warps);
  const u64 columns = role.end - role.begin;
  if (K::FEW || columns <= 32) push_few(s, p, epoch, (uint32_t)columns, piece, warp, warps, done);
  else if constexpr (!K::FEW) push_many<K>(s, p, epoch, role, piece, warp, warps);
}

// Writes out_splits_offsets from what all members published. A warp if the splits are few, else the block.
template <typename K, typename S>
__device__ __noinline__ void write_result(S& s, const ExchangeParams& p, u64 epoch) {
  const GroupOf<K::FEW> g;
  long long* counts = (long long*)p.out_splits;
  long long* starts = counts + p.n_splits;
  u64 base = 0, batch;
  if (K::form(p) == FORM_ALL_TO_ALL_VDEV_2D) {
#pragma unroll 1
    for (u64 from = 0; from < p.ne; from += g.size()) {
      const u64 expert = from + g.index();
      const bool real = expert < p.ne;
      const u64 index = split_index<K>(p, p.rank, real ? expert : 0);
      const Column c = real ? column_rows(s, p, epoch, index) : Column{0, 0, 0};
      u64 at = base + g.scan(s.scratch, real ? expert_rows(c.all, p.major_align) : 0, batch);
      base += batch;
#pragma unroll 2
      for (uint32_t q = 0; real && q < p.ranks; q++) {
        const u64 rows = as_rows(split_of(s, p, epoch, q, index));
        counts[expert * p.ranks + q] = (long long)rows;
        starts[expert * p.ranks + q] = (long long)at;
        at += rows;
      }
    }
  } else {
    const u64 n = p.ranks * p.ne;
#pragma unroll 1
    for (u64 from = 0; from < n; from += g.size()) {
      const u64 k = from + g.index();
      const bool real = k < n;
      const u64 rows = real ? as_rows(split_of(s, p, epoch, (uint32_t)divide(k, p.ne), split_index<K>(p, p.rank, k - divide(k, p.ne) * p.ne))) : 0;
      const u64 at = base + g.scan(s.scratch, rows, batch);
      base += batch;
      if (real) {
        counts[k] = (long long)rows;
        starts[k] = (long long)at;
      }
    }
  }
}

}  // namespace exchange
}  // namespace symm
