// The planned exchange: rows go where a table says that was made when splits were exchanged, in one launch with one round of
// flags (take/one_stage.cuh).
//
// All rows of a launch, as if they lay one behind the other in the order of the table, are cut into pieces by bytes, which
// the warps take in turn. A piece may end in the middle of a row or reach over several moves.
#include "symm/copy.cuh"
#include "take/one_stage.cuh"

using namespace symm;
using namespace symm::take;

namespace {

// The last move that begins at or before byte `at` of all rows.
__device__ __forceinline__ u64 move_at(const PlannedMove* moves, u64 count, u64 row_bytes, u64 at) {
  u64 low = 0, high = count;
#pragma unroll 1
  while (high - low > 1) {
    const u64 middle = (low + high) / 2;
    if (moves[middle].before * row_bytes <= at) low = middle; else high = middle;
  }
  return low;
}

// One share of the rows. The whole block.
__device__ __forceinline__ void push_planned(const Shared& s, const PlanParams& t, uint32_t share, uint32_t shares) {
  if (t.count == 0) return;
  const ExchangeParams& p = t.reduce.exchange;
  const PlannedMove* moves = (const PlannedMove*)t.moves;
  const u64 row = p.row_bytes, total = moves[t.count].before * row;
  const u64 warps = (u64)shares * WARPS, warp = (u64)share * WARPS + threadIdx.x / 32;
  const u64 piece = piece_bytes(total, warps);
#pragma unroll 1
  for (u64 at = warp * piece; at < total; at += warps * piece) {
    const u64 end = min_u64(at + piece, total);
    u64 from = at;
#pragma unroll 1
    for (u64 k = move_at(moves, t.count, row, at); from < end; k++) {
      const PlannedMove m = moves[k];
      const u64 begin = m.before * row, stop = min_u64(moves[k + 1].before * row, end);
      warp_copy<Source::Constant>(s.buffer[m.rank] + m.dst_row * row + (from - begin), p.input + m.src_row * row + (from - begin),
                                  (uint32_t)(stop - from));
      from = stop;
    }
  }
}

}  // namespace

extern "C" __global__ void __launch_bounds__(THREADS, 1) symm_plan(const __grid_constant__ PlanParams t) {
  __shared__ Shared s;
  one_stage(s, t.reduce, TAKE_WHOLE, [&](uint32_t share, uint32_t shares) { push_planned(s, t, share, shares); });
}
