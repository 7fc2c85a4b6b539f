// The verdict: the steps of symm_core::splits::verdict, in its order, from what all members published.
//
// Every block reaches it by itself. Steps after the first that fails work on numbers that mean nothing, but stay inside
// the slots: all loops run over this PE's own parameters, and the lowest step wins.
#pragma once

#include "differs.cuh"
#include "place.cuh"

namespace symm {
namespace exchange {

__device__ __forceinline__ u64 finding_key(int step, uint32_t rank) { return (u64)step << 32 | rank; }

// Splits that go with a header's number of experts: its own, so that all members judge it alike.
template <typename K>
__device__ __forceinline__ u64 splits_of_form(const ExchangeParams& p, u64 ne) {
  switch (K::form(p)) {
    case FORM_ALL_TO_ALL_VDEV: return p.ranks;
    case FORM_ALL_TO_ALL_VDEV_2D:
    case FORM_ALL_TO_ALL_VDEV_2D_OFFSET: return p.ranks * ne;
    default: return 0;
  }
}

__device__ __forceinline__ unsigned words(Word a, Word b) { return 1u << a | 1u << b; }

// Whether a member's header is beyond doubt: one warp, a word a lane. It says what this PE's own says, which the host has
// checked, nobody refuses anything, and the output lies inside its allocation: a push goes where a peer's header says, so a
// damaged header must not lead it elsewhere. The same on every lane.
template <typename K, typename S>
__device__ __forceinline__ bool plain_header(const S& s, const ExchangeParams& p, uint32_t rank) {
  const uint32_t lane = threadIdx.x & 31, form = K::form(p);
  constexpr unsigned SHAPE = 1u << WORD_FORM | 1u << WORD_DTYPE | 1u << WORD_ROW_BYTES | 1u << WORD_NE | 1u << WORD_MAJOR_ALIGN |
                             1u << WORD_OUT_ID | 1u << WORD_N_SPLITS;
  const bool equal = form == FORM_ALL_GATHER || form == FORM_ALL_TO_ALL;
  const unsigned compared = equal ? SHAPE | 1u << WORD_IN_ROWS : SHAPE;
  bool plain = true;
  if (lane < HEADER_WORDS) {
    const u64 word = s.header[rank][lane];
    plain = lane == WORD_INVALID ? word == 0 : word == s.header[p.rank][lane] || (compared >> lane & 1) == 0;
  }
  if (form != FORM_BARRIER) {
    const u64 rows = s.header[rank][WORD_OUT_ROWS], offset = s.header[rank][WORD_OUT_OFFSET];
    const u64 bytes = rows * p.row_bytes;
    plain = plain && __umul64hi(rows, p.row_bytes) == 0 && bytes <= p.out_bytes && offset <= p.out_bytes - bytes;
  }
  return __all_sync(ALL, plain);
}

// Judges one member's header against rank 0's: one warp, a word a lane, so that all of it is under way at once. Lane 0
// notes what it finds.
template <typename K, typename S>
__device__ __noinline__ void judge_header(const S& s, const ExchangeParams& p, u64 epoch, uint32_t rank, Finding& found) {
  const uint32_t lane = threadIdx.x & 31;
  const bool real = lane < HEADER_WORDS;
  const u64 theirs = real ? s.header[rank][lane] : 0;
  const u64 first = real ? s.header[0][lane] : 0;
  const uint32_t this_form = K::form(p);
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
  const bool equal = this_form == FORM_ALL_GATHER || this_form == FORM_ALL_TO_ALL;
  const unsigned shape = words(WORD_DTYPE, WORD_ROW_BYTES) | words(WORD_NE, WORD_MAJOR_ALIGN) |
                         words(WORD_N_SPLITS, equal ? WORD_IN_ROWS : WORD_N_SPLITS);
  bool same = (differs & shape) == 0 && n_splits == splits_of_form<K>(p, ne);
  if (this_form == FORM_ALL_TO_ALL) same = same && in_rows % p.ranks == 0;
  if (this_form != FORM_BARRIER) same = same && row_bytes > 0 && ne > 0;
  if (this_form == FORM_ALL_TO_ALL_VDEV_2D) same = same && align > 0;
  if (!same) {
    const Difference d = difference(s.header[0], s.header[rank], shape);
    note(found, finding_key(4, rank), d.fault, d.expected, d.got);
  }
  if (this_form == FORM_BARRIER) return;
  if (differs & 1u << WORD_OUT_ID) note(found, finding_key(5, rank), FAULT_OUTPUT, 0, 0);
  // A push goes where a peer's header says, so a damaged header must not lead it out of the allocation.
  const u64 bytes = out_rows * row_bytes;
  const bool inside = __umul64hi(out_rows, row_bytes) == 0 && bytes <= p.out_bytes && out_offset <= p.out_bytes - bytes;
  if (!inside) note(found, finding_key(7, rank), FAULT_OUTPUT, 0, 0);
}

// Sets the lowest finding as the team's status. The whole block.
template <typename S>
__device__ __noinline__ void report(S& s, const ExchangeParams& p, const Finding& found) {
  const Finding worst = WholeBlock().lowest(s.scratch, found);
  if (threadIdx.x != 0) return;
  const u64 pe = member(p, (uint32_t)worst.key);
  status_fail(status_of(p), {STATUS_PEER_INVALID, p.form, worst.fault, pe, 0, worst.a, worst.b, 0});
}

// After a doubt: judges every header as symm_core::splits does. Returns whether everybody may push. The whole block.
template <typename K, typename S>
__device__ __noinline__ bool judge_all(S& s, const ExchangeParams& p, u64 epoch, Finding found) {
  for (uint32_t r = threadIdx.x / 32; r < p.ranks; r += blockDim.x / 32) judge_header<K>(s, p, epoch, r, found);
  if (!__syncthreads_or(found.key != NO_FINDING)) return true;
  report(s, p, found);
  return false;
}

// Works out all destinations, whatever the splits are; returns this warp's doubts. A warp a destination.
template <typename K, typename S>
__device__ __forceinline__ bool place_all(S& s, const ExchangeParams& p, u64 epoch, const Kept& kept, Finding& found) {
  bool doubt = false;
#pragma unroll 1
  for (uint32_t step = threadIdx.x / 32; step < p.ranks; step += blockDim.x / 32) {
    const uint32_t d = destination(p, step);
    const u64 capacity = s.header[d][WORD_OUT_ROWS], needed = place_destination<K>(s, p, epoch, step, kept);
    if ((threadIdx.x & 31) == 0 && needed > capacity) note(found, finding_key(6, d), FAULT_OUTPUT_ROWS, needed, capacity), doubt = true;
  }
  return doubt;
}

// The verdict whatever the splits are, and after a doubt. The whole block.
template <typename K, typename S>
__device__ __noinline__ bool verdict_wide(S& s, const ExchangeParams& p, u64 epoch, const Kept& kept) {
  Finding found = {NO_FINDING, 0, 0, 0};
  if (K::form(p) != FORM_BARRIER && !p.invalid) place_all<K>(s, p, epoch, kept, found);
  return judge_all<K>(s, p, epoch, found);
}

// Reaches the verdict and leaves the columns of `kept` in `s`. Returns whether everybody may push. The whole block.
template <typename K, typename S>
__device__ __forceinline__ bool verdict(S& s, const ExchangeParams& p, u64 epoch, const Kept& kept) {
  const uint32_t form = K::form(p), warp = threadIdx.x / 32, warps = blockDim.x / 32;
  constexpr bool NARROW = K::NARROW;
  if (NARROW && s.wide) return verdict_wide<K>(s, p, epoch, kept);
  bool doubt = p.invalid != 0;
  // From the last warp down, so that the headers are looked at while the first ones work out the places.
#pragma unroll 1
  for (uint32_t r = warps - 1 - warp; r < p.ranks; r += warps) doubt = doubt || !plain_header<K>(s, p, r);
  if (form != FORM_BARRIER && !p.invalid) {
    if constexpr (NARROW) {
#pragma unroll 1
      for (uint32_t step = warp; step < p.ranks; step += warps) {
        const u64 needed = place_narrow<K>(s, p, step, kept);
        doubt = doubt || needed > s.header[destination(p, step)][WORD_OUT_ROWS];
      }
    } else {
      Finding found = {NO_FINDING, 0, 0, 0};
      const bool full = place_all<K>(s, p, epoch, kept, found);
      doubt = doubt || full;
    }
  }
  if (warp == 0) step(STEP_PLACED);
  return !__syncthreads_or(doubt) || verdict_wide<K>(s, p, epoch, kept);
}

}  // namespace exchange
}  // namespace symm
