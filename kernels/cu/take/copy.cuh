// Blocks of all members' buffers, copied to this PE's memory.
#pragma once

#include "../reduce/common.cuh"

namespace symm {
namespace take {

using namespace reduce;

// One share of a block of every member. Runs are cut into pieces; those of all members take turns, so that no link waits
// for another. The whole block of threads.
__device__ __forceinline__ void copy_take(const Shared& s, const Take& t, uint32_t rank, uint32_t ranks, uint32_t share, uint32_t shares) {
  if (t.rows == 0 || t.cols == 0) return;
  const u64 warps = (u64)shares * WARPS, warp = (u64)share * WARPS + threadIdx.x / 32;
  const u64 piece = piece_bytes(t.rows * t.cols * ranks, warps);
  const u64 pieces = (t.cols + piece - 1) / piece;
#pragma unroll 1
  for (u64 k = warp; k < t.rows * pieces * ranks; k += warps) {
    const u64 step = k / ranks, row = step / pieces, at = (step - row * pieces) * piece;
    const uint32_t to = rank + 1 + (uint32_t)(k - step * ranks), r = to < ranks ? to : to - ranks;
    warp_copy<Source::Shared>(t.dst + r * t.dst_step + row * t.dst_stride + at, s.buffer[r] + t.src + row * t.src_stride + at,
                              (uint32_t)min_u64(t.cols - at, piece));
  }
}

}  // namespace take
}  // namespace symm
