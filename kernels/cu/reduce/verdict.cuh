// The verdict of the broadcast, the reductions, the forms that take and the planned one: the steps of symm_core::splits::verdict, in its order, from what all
// members published. Every block reaches it by itself.
#pragma once

#include "../exchange/differs.cuh"
#include "common.cuh"
#include "element.cuh"

namespace symm {
namespace reduce {

constexpr u64 NO_FINDING = ~0ull;

// Words of a header that are equal on all members.
constexpr unsigned EQUAL = 1u << WORD_DTYPE | 1u << WORD_ROW_BYTES | 1u << WORD_NE | 1u << WORD_MAJOR_ALIGN | 1u << WORD_IN_ROWS |
                           1u << WORD_N_SPLITS | 1u << WORD_ROOT | 1u << WORD_LEAD;

// A fault that a thread found. Lower keys come first: the step of the verdict, then the rank.
struct Finding {
  u64 key;
  u64 fault, a, b;
};

__device__ __forceinline__ void note(Finding& found, int step, uint32_t rank, u64 fault, u64 a = 0, u64 b = 0) {
  const u64 key = (u64)step << 32 | rank;
  if (key < found.key) found = {key, fault, a, b};
}

// Whether the numbers of a header belong together.
__device__ __forceinline__ bool sensible(const Header* h, u64 form, u64 ranks) {
  if (h->row_bytes == 0 || h->n_splits != 0) return false;
  if (form == FORM_BROADCAST) return h->root < ranks;
  // What those read and write follows from arguments of their own, which the header's digest covers.
  if (form >= FORM_ALL_TO_ALL_ND) return true;
  if (h->row_bytes != element_bytes(h->dtype)) return false;
  if (form != FORM_REDUCE_SCATTER) return h->lead == 1;
  // `lead` times `ranks` does not wrap: it is checked to be at most the elements first.
  return h->lead > 0 && __umul64hi(h->lead, ranks) == 0 && h->in_rows % (h->lead * ranks) == 0;
}

// Judges one member's header against rank 0's.
__device__ __forceinline__ void judge(const Shared& s, const ReduceParams& q, u64 epoch, uint32_t rank, Finding& found) {
  const ExchangeParams& p = q.exchange;
  const Header* first = header_from(s, 0);
  const Header* h = header_from(s, rank);
  if (h->epoch != first->epoch || h->form != first->form) note(found, 1, rank, FAULT_OPERATION, first->form, h->form);
  // All call the same, but not this operation; or only this PE differs from rank 0, and then its own header says so.
  if (rank == 0 && first->epoch != epoch) note(found, 2, 0, FAULT_OPERATION, first->form, first->form);
  if (h->invalid != 0) note(found, 3, rank, h->invalid, h->invalid_a, h->invalid_b);
  const bool same = h->dtype == first->dtype && h->row_bytes == first->row_bytes && h->ne == first->ne &&
                    h->major_align == first->major_align && h->n_splits == first->n_splits && h->root == first->root &&
                    h->lead == first->lead && h->in_rows == first->in_rows;
  if (!same || !sensible(h, p.form, p.ranks)) note(found, 4, rank, FAULT_FORM);
  // Copy engines were given their addresses beforehand.
  const bool fixed = p.form >= FORM_LOW_CONTENTION_ALL_GATHER && p.form <= FORM_LOW_CONTENTION_REDUCE_SCATTER;
  const bool elsewhere = fixed && h->out_offset != first->out_offset;
  if (h->out_id != first->out_id || elsewhere) note(found, 5, rank, FAULT_OUTPUT);
  if (first->in_rows > h->out_rows) note(found, 6, rank, FAULT_OUTPUT_ROWS, first->in_rows, h->out_rows);
  // Buffers lie where the *peers'* headers say, so a damaged header must not lead out of the allocation.
  const u64 bytes = h->out_rows * h->row_bytes;
  const bool inside = __umul64hi(h->out_rows, h->row_bytes) == 0 && bytes <= p.out_bytes && h->out_offset <= p.out_bytes - bytes;
  if (!inside) note(found, 7, rank, FAULT_OUTPUT);
}

// Sets a finding as the team's status. One thread.
inline __device__ __noinline__ void report(const Shared& s, const ExchangeParams& p, const Finding& found) {
  const uint32_t rank = (uint32_t)found.key;
  exchange::Difference what = {found.fault, found.a, found.b};
  if (found.fault == FAULT_FORM) what = exchange::difference(s.header[0], s.header[rank], EQUAL);
  status_fail(status_of(p), {STATUS_PEER_INVALID, p.form, what.fault, member(p, rank), 0, what.expected, what.got, 0});
}

// Reaches the verdict and, where it is good, leaves the members' buffers in `s`. Returns whether everybody goes on. The
// whole block.
__device__ __forceinline__ bool verdict(Shared& s, const ReduceParams& q, u64 epoch) {
  const ExchangeParams& p = q.exchange;
  Finding found = {NO_FINDING, 0, 0, 0};
  for (uint32_t r = threadIdx.x; r < p.ranks; r += THREADS) judge(s, q, epoch, r, found);
  if (threadIdx.x == 0) s.best = NO_FINDING;
  __syncthreads();
  if (found.key != NO_FINDING) atomicMin(&s.best, found.key);
  __syncthreads();
  if (s.best == NO_FINDING) {
    find_buffers(s, q);
    return true;
  }
  // Keys of different threads differ: one thread has the best.
  if (found.key == s.best) report(s, p, found);
  return false;
}

}  // namespace reduce
}  // namespace symm
