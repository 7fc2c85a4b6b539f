// What a share does in each stage.
#pragma once

#include "sum.cuh"

namespace symm {
namespace reduce {

// Copies one share of `copies` ranges of at most `bytes` bytes: `range(k)` gives target, source and bytes of the k-th. The
// pieces of all ranges take turns, so that no link waits for another. The whole block.
template <typename Range>
__device__ __forceinline__ void share_copies(u64 bytes, uint32_t copies, uint32_t share, uint32_t shares, Range range) {
  const u64 warps = (u64)shares * WARPS, warp = (u64)share * WARPS + threadIdx.x / 32;
  const u64 piece = piece_bytes(bytes * copies, warps);
  const u64 pieces = (bytes + piece - 1) / piece;
  for (u64 k = warp; k < pieces * copies; k += warps) {
    u64 dst, src, length;
    range((uint32_t)(k % copies), dst, src, length);
    const u64 at = k / copies * piece;
    // Shared: the source is written in this launch, by peers or by this PE.
    if (at < length) warp_copy<Source::Shared>(dst + at, src + at, (uint32_t)min_u64(length - at, piece));
  }
}

// The caller's elements to this PE's buffer. Nobody reads that: this PE has completed the context's operations before this
// one, so their readers are done.
__device__ __forceinline__ void bring(const ReduceParams& q, uint32_t share, uint32_t shares) {
  const ExchangeParams& p = q.exchange;
  // Outside the allocation: every member's verdict refuses that.
  const u64 room = p.out_bytes - min_u64(p.out_bytes, p.out_offset);
  const u64 bytes = p.in_rows * p.row_bytes;
  if (bytes > room) return;
  const u64 own = ((const u64*)p.out_buffers)[p.rank] + p.out_offset;
  share_copies(bytes, 1, share, shares, [&](uint32_t, u64& dst, u64& src, u64& length) {
    dst = own, src = p.input, length = bytes;
  });
}

// Bytes of a rank's chunk (symm_core::splits::chunk): first one, and how many.
__device__ __forceinline__ void chunk(const ExchangeParams& p, uint32_t rank, u64& start, u64& bytes) {
  const u64 unit = 128 / p.row_bytes;
  const u64 length = ((p.in_rows + p.ranks - 1) / p.ranks + unit - 1) / unit * unit * p.row_bytes;
  const u64 all = p.in_rows * p.row_bytes;
  start = min_u64(length * rank, all);
  bytes = min_u64(length, all - start);
}

// One share of handing the root's elements out.
__device__ __forceinline__ void broadcast(const Shared& s, const ReduceParams& q, uint32_t share, uint32_t shares) {
  const ExchangeParams& p = q.exchange;
  if (q.root != p.rank || p.ranks == 1) return;
  const u64 all = p.in_rows * p.row_bytes;
  share_copies(all, p.ranks - 1, share, shares, [&](uint32_t k, u64& dst, u64& src, u64& length) {
    dst = s.buffer[(p.rank + 1 + k) % p.ranks], src = s.buffer[p.rank], length = all;
  });
}

// One share of adding up.
template <typename E>
__device__ __forceinline__ void add_up(Shared& s, const ReduceParams& q, uint32_t share, uint32_t shares) {
  const ExchangeParams& p = q.exchange;
  const u64 all = p.in_rows * p.row_bytes;
  Part part = {0, 1, all, all};
  Target target = {q.result, 0, 0};
  if (p.form == FORM_REDUCE_SCATTER) {
    part.rows = q.lead;
    part.stride = all / q.lead;
    part.cols = part.stride / p.ranks;
    part.start = part.cols * p.rank;
    // A team of one has all columns: one run.
    if (p.ranks == 1) part.rows = 1, part.cols = part.stride = all;
  } else if (p.form != FORM_ONE_SHOT_ALL_REDUCE) {
    chunk(p, p.rank, part.start, part.cols);
    part.stride = part.cols;
    target = {0, p.rank, p.form == FORM_TWO_SHOT_ALL_REDUCE ? p.ranks : 1};
  }
  if (part.cols != 0) sum_part<E>(s, part, target, p.ranks, share, shares);
}

// One share of getting all ranks' sums.
__device__ __forceinline__ void gather(Shared& s, const ReduceParams& q, uint32_t share, uint32_t shares) {
  const ExchangeParams& p = q.exchange;
  u64 none, longest;
  chunk(p, 0, none, longest);
  share_copies(longest, p.ranks, share, shares, [&](uint32_t k, u64& dst, u64& src, u64& length) {
    const uint32_t r = (p.rank + k) % p.ranks;
    u64 start;
    chunk(p, r, start, length);
    dst = q.result + start, src = s.buffer[r] + start;
  });
}

}  // namespace reduce
}  // namespace symm
