// The verdict: the steps of symm_core::splits::verdict, in its order, from what all members published.
//
// Every block reaches it by itself. Steps after the first that fails work on numbers that mean nothing, but stay inside
// the slots: all loops run over this PE's own parameters, and the lowest step wins.
#pragma once

#include "place.cuh"

namespace symm {
namespace exchange {

__device__ __forceinline__ u64 finding_key(int step, uint32_t rank) { return (u64)step << 32 | rank; }

__device__ __forceinline__ u64 splits_of_form(const ExchangeParams& p) {
  switch (p.form) {
    case FORM_ALL_TO_ALL_VDEV: return p.ranks;
    case FORM_ALL_TO_ALL_VDEV_2D:
    case FORM_ALL_TO_ALL_VDEV_2D_OFFSET: return p.ranks * p.ne;
    default: return 0;
  }
}

// Judges one member's header against rank 0's.
__device__ __forceinline__ void judge_header(Shared& s, const ExchangeParams& p, u64 epoch, uint32_t rank, Finding& found) {
  const Header* first = header_from(p, epoch, 0);
  const Header* h = header_from(p, epoch, rank);
  if (h->epoch != first->epoch || h->form != first->form)
    note(found, finding_key(1, rank), FAULT_OPERATION, first->form, h->form);
  // All call the same, but not this operation; or only this PE differs from rank 0, and then its own header says so.
  if (rank == 0 && first->epoch != epoch) note(found, finding_key(2, 0), FAULT_OPERATION, first->form, first->form);
  if (h->invalid != 0) note(found, finding_key(3, rank), h->invalid, h->invalid_a, h->invalid_b);
  bool same = h->dtype == first->dtype && h->row_bytes == first->row_bytes && h->ne == first->ne &&
              h->major_align == first->major_align && h->n_splits == first->n_splits &&
              h->n_splits == splits_of_form(p);
  if (p.form == FORM_ALL_GATHER || p.form == FORM_ALL_TO_ALL) same = same && h->in_rows == first->in_rows;
  if (p.form == FORM_ALL_TO_ALL) same = same && h->in_rows % p.ranks == 0;
  if (p.form != FORM_BARRIER) same = same && h->row_bytes > 0 && h->ne > 0;
  if (p.form == FORM_ALL_TO_ALL_VDEV_2D) same = same && h->major_align > 0;
  if (!same) note(found, finding_key(4, rank), FAULT_FORM, 0, 0);
  if (p.form == FORM_BARRIER) return;
  if (h->out_id != first->out_id) note(found, finding_key(5, rank), FAULT_OUTPUT, 0, 0);
  // A push goes where a peer's header says, so a damaged header must not lead it out of the allocation.
  const u64 bytes = h->out_rows * h->row_bytes;
  const bool inside = __umul64hi(h->out_rows, h->row_bytes) == 0 && bytes <= p.out_bytes && h->out_offset <= p.out_bytes - bytes;
  if (!inside) note(found, finding_key(7, rank), FAULT_OUTPUT, 0, 0);
  s.out_base[rank] = p.out_buffers ? ((const u64*)p.out_buffers)[rank] + h->out_offset : 0;
}

// Reaches the verdict and, where it is good, leaves the columns of `kept` and every member's bases in `s`. Returns
// whether everybody may push. The whole block.
__device__ __forceinline__ bool verdict(Shared& s, const ExchangeParams& p, u64 epoch, const Kept& kept) {
  Finding found = {NO_FINDING, 0, 0, 0};
  // From the last thread down, so that the headers are judged while the first warps work out the places.
  for (uint32_t r = THREADS - 1 - threadIdx.x; r < p.ranks; r += THREADS) judge_header(s, p, epoch, r, found);
  if (p.form != FORM_BARRIER && !p.invalid) {
    for (uint32_t step = threadIdx.x / 32; step < p.ranks; step += WARPS) {
      const uint32_t d = destination(p, step);
      const u64 capacity = header_from(p, epoch, d)->out_rows;
      const u64 needed = place_destination(s, p, epoch, step, kept);
      if ((threadIdx.x & 31) == 0 && needed > capacity)
        note(found, finding_key(6, d), FAULT_OUTPUT_ROWS, needed, capacity);
    }
  }
  settle(s, found);
  if (s.best != NO_FINDING) {
    if (threadIdx.x == 0) {
      const u64 pe = member(p, (uint32_t)s.best);
      or_relaxed_gpu_u32(&record_of(p)->failed, FAILED_VERDICT);
      status_fail(status_of(p), {STATUS_PEER_INVALID, p.form, s.fault, pe, 0, s.a, s.b, 0});
    }
    return false;
  }
  if (p.form != FORM_BARRIER) place_sources(s, p);
  return true;
}

}  // namespace exchange
}  // namespace symm
