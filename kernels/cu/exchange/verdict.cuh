// The verdict: the steps of symm_core::splits::verdict, in its order, from what all members published.
//
// Every block reaches it by itself. Steps after the first that fails work on numbers that mean nothing, but stay inside
// the slots: all loops run over this PE's own parameters, and the lowest step wins.
#pragma once

#include "place.cuh"

namespace symm {
namespace exchange {

__device__ __forceinline__ u64 finding_key(int step, uint32_t rank) { return (u64)step << 32 | rank; }

// Splits that go with a header's number of experts: its own, so that all members judge it alike.
__device__ __forceinline__ u64 splits_of_form(const ExchangeParams& p, u64 ne) {
  switch (p.form) {
    case FORM_ALL_TO_ALL_VDEV: return p.ranks;
    case FORM_ALL_TO_ALL_VDEV_2D:
    case FORM_ALL_TO_ALL_VDEV_2D_OFFSET: return p.ranks * ne;
    default: return 0;
  }
}

__device__ __forceinline__ unsigned words(Word a, Word b) { return 1u << a | 1u << b; }

// Judges one member's header against rank 0's: one warp, a word a lane, so that all of it is under way at once. Lane 0
// notes what it finds.
__device__ __forceinline__ void judge_header(const ExchangeParams& p, u64 epoch, uint32_t rank, Finding& found) {
  const uint32_t lane = threadIdx.x & 31;
  const bool real = lane < HEADER_WORDS;
  const u64 theirs = real ? ((const u64*)header_from(p, epoch, rank))[lane] : 0;
  const u64 first = real ? ((const u64*)header_from(p, epoch, 0))[lane] : 0;
  const unsigned differs = __ballot_sync(ALL, theirs != first);
  const auto word = [&](Word w) { return __shfl_sync(ALL, theirs, w); };

  const u64 form = word(WORD_FORM), first_form = __shfl_sync(ALL, first, WORD_FORM), their_epoch = word(WORD_EPOCH);
  const u64 invalid = word(WORD_INVALID), a = word(WORD_INVALID_A), b = word(WORD_INVALID_B);
  const u64 row_bytes = word(WORD_ROW_BYTES), ne = word(WORD_NE), align = word(WORD_MAJOR_ALIGN);
  const u64 n_splits = word(WORD_N_SPLITS), in_rows = word(WORD_IN_ROWS);
  const u64 out_rows = word(WORD_OUT_ROWS), out_offset = word(WORD_OUT_OFFSET);
  if (lane != 0) return;

  if (differs & words(WORD_EPOCH, WORD_FORM)) note(found, finding_key(1, rank), FAULT_OPERATION, first_form, form);
  // All call the same, but not this operation; or only this PE differs from rank 0, and then its own header says so.
  if (rank == 0 && their_epoch != epoch) note(found, finding_key(2, 0), FAULT_OPERATION, form, form);
  if (invalid != 0) note(found, finding_key(3, rank), invalid, a, b);
  const bool equal = p.form == FORM_ALL_GATHER || p.form == FORM_ALL_TO_ALL;
  const unsigned shape = words(WORD_DTYPE, WORD_ROW_BYTES) | words(WORD_NE, WORD_MAJOR_ALIGN) |
                         words(WORD_N_SPLITS, equal ? WORD_IN_ROWS : WORD_N_SPLITS);
  bool same = (differs & shape) == 0 && n_splits == splits_of_form(p, ne);
  if (p.form == FORM_ALL_TO_ALL) same = same && in_rows % p.ranks == 0;
  if (p.form != FORM_BARRIER) same = same && row_bytes > 0 && ne > 0;
  if (p.form == FORM_ALL_TO_ALL_VDEV_2D) same = same && align > 0;
  if (!same) note(found, finding_key(4, rank), FAULT_FORM, 0, 0);
  if (p.form == FORM_BARRIER) return;
  if (differs & 1u << WORD_OUT_ID) note(found, finding_key(5, rank), FAULT_OUTPUT, 0, 0);
  // A push goes where a peer's header says, so a damaged header must not lead it out of the allocation.
  const u64 bytes = out_rows * row_bytes;
  const bool inside = __umul64hi(out_rows, row_bytes) == 0 && bytes <= p.out_bytes && out_offset <= p.out_bytes - bytes;
  if (!inside) note(found, finding_key(7, rank), FAULT_OUTPUT, 0, 0);
}

// Sets the lowest finding as the team's status. The whole block.
__device__ __noinline__ void report(Shared& s, const ExchangeParams& p, const Finding& found) {
  const Finding worst = WholeBlock().lowest(s, found);
  if (threadIdx.x != 0) return;
  const u64 pe = member(p, (uint32_t)worst.key);
  status_fail(status_of(p), {STATUS_PEER_INVALID, p.form, worst.fault, pe, 0, worst.a, worst.b, 0});
}

// Reaches the verdict and leaves the columns of `kept` in `s`. Returns whether everybody may push. The whole block.
__device__ __forceinline__ bool verdict(Shared& s, const ExchangeParams& p, u64 epoch, const Kept& kept) {
  Finding found = {NO_FINDING, 0, 0, 0};
  const uint32_t warp = threadIdx.x / 32, warps = blockDim.x / 32;
  // From the last warp down, so that the headers are judged while the first ones work out the places.
#pragma unroll 1
  for (uint32_t r = warps - 1 - warp; r < p.ranks; r += warps) judge_header(p, epoch, r, found);
  if (p.form != FORM_BARRIER && !p.invalid) {
#pragma unroll 1
    for (uint32_t step = warp; step < p.ranks; step += warps) {
      const uint32_t d = destination(p, step);
      const u64 capacity = header_from(p, epoch, d)->out_rows;
      const u64 needed = place_destination(s, p, epoch, step, kept);
      if ((threadIdx.x & 31) == 0 && needed > capacity)
        note(found, finding_key(6, d), FAULT_OUTPUT_ROWS, needed, capacity);
    }
  }
  if (!__syncthreads_or(found.key != NO_FINDING)) return true;
  report(s, p, found);
  return false;
}

}  // namespace exchange
}  // namespace symm
