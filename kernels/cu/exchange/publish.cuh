// The beginning of an operation: its epoch, this PE's splits read once, and what is published to every member.
#pragma once

#include "members.cuh"

namespace symm {
namespace exchange {

// Takes the operation's epoch and waits for this PE's turn in the context. Called by one thread of the block with
// ticket 0. Returns EPOCH_SKIP, perhaps with the epoch in it, if the team has failed.
__device__ __forceinline__ u64 take_epoch(const ExchangeParams& p, bool fine, u64 began) {
  if (!fine) {
    or_relaxed_gpu_u32(&record_of(p)->failed, FAILED_EARLIER);
    return EPOCH_SKIP;
  }
  // Both are on their way at once; the count only grows, so an old look at it is good if it is good enough.
  const u64 ended = load_relaxed_gpu_u64((const void*)(p.mine + CONTEXT_COMPLETED));
  const u64 epoch = fetch_add_relaxed_gpu_u64((void*)(p.mine + CONTEXT_TICKET), 1) + 1;
  if (ended + 1 >= epoch) {
    // What the operation before wrote comes before what this one does; its launch may be on another stream.
    fence_acq_rel_gpu();
    return epoch;
  }
  const Failure failure = {STATUS_TIMEOUT, p.form, PHASE_TICKET, member(p, p.rank), bit_of_pe(p, member(p, p.rank)),
                           epoch - 1, 0, 0};
  // `began` is when the stream reached the operation; the wait's own clock starts with the first look.
  const u64 spent = now_ns() - began;
  const bool turn = wait_word(
      status_of(p), p.limit_ns > spent ? p.limit_ns - spent : 0, failure,
      [&] { return load_acquire_gpu_u64((const void*)(p.mine + CONTEXT_COMPLETED)); },
      [&](u64 seen) { return seen + 1 >= epoch; });
  if (turn) return epoch;
  or_relaxed_gpu_u32(&record_of(p)->failed, FAILED_WAIT);
  return epoch | EPOCH_SKIP;
}

// Keeps the better of two findings of one thread.
__device__ __forceinline__ void note(Finding& best, u64 key, u64 fault, u64 a, u64 b) {
  if (key < best.key) best = {key, fault, a, b};
}

// The lowest key of the block's findings, with its numbers, into `s`. Keys of different threads differ.
__device__ __forceinline__ void settle(Shared& s, const Finding& mine) {
  if (threadIdx.x == 0) s.best = NO_FINDING;
  __syncthreads();
  if (mine.key != NO_FINDING) atomicMin(&s.best, mine.key);
  __syncthreads();
  if (mine.key != NO_FINDING && mine.key == s.best) {
    s.fault = mine.fault;
    s.a = mine.a;
    s.b = mine.b;
  }
  __syncthreads();
}

// This thread's first split, and offset where the form has them: read before the epoch is known, to save the time.
struct First {
  long long split, start;
};

__device__ __forceinline__ int published_splits(const ExchangeParams& p) { return p.invalid ? 0 : (int)p.n_splits; }

__device__ __forceinline__ long long read_once(const long long* at) { return *(const volatile long long*)at; }

__device__ __forceinline__ First read_first(const ExchangeParams& p) {
  const int n = published_splits(p), k = threadIdx.x;
  const long long* in = (const long long*)p.in_splits;
  First first = {0, 0};
  if (k < n) {
    first.split = read_once(in + k);
    if (p.form == FORM_ALL_TO_ALL_VDEV_2D_OFFSET) first.start = read_once(in + n + k);
  }
  return first;
}

// Reads this PE's splits, each of them once, checks them (symm_core::splits::check_splits) and publishes them with the
// header to every member. The whole block.
__device__ __forceinline__ void publish(Shared& s, const ExchangeParams& p, u64 epoch, const First& first) {
  const int n = published_splits(p);
  const bool offsets = p.form == FORM_ALL_TO_ALL_VDEV_2D_OFFSET;
  const long long* in = (const long long*)p.in_splits;
  long long* own = (long long*)splits_from(p, epoch, p.rank);
  // Offsets stay here: only their owner reads them. Peers never see them.
  long long* kept = (long long*)(p.local + sizeof(ContextLocal));

  // Negative splits come before too many rows, lower indices first.
  constexpr u64 NEGATIVE = 0, ROWS = 1ull << 62;
  Finding found = {NO_FINDING, 0, 0, 0};
  u64 sum = 0;
  for (int k = threadIdx.x; k < n; k += THREADS) {
    const bool held = k == (int)threadIdx.x;
    const long long split = held ? first.split : read_once(in + k);
    own[k] = split;
    if (split < 0) note(found, NEGATIVE + k, FAULT_NEGATIVE_SPLIT, k, (u64)split);
    const u64 rows = split < 0 ? 0 : (u64)split;
    if (offsets) {
      const long long start = held ? first.start : read_once(in + n + k);
      kept[k] = start;
      const u64 end = start < 0 ? ~0ull : add_saturating(start, rows);
      if (rows > 0 && end > p.in_rows) note(found, ROWS + k, FAULT_INPUT_ROWS, end, p.in_rows);
    } else {
      sum = add_saturating(sum, rows);
    }
  }
  if (n > 0) {
    settle(s, found);
    if (!offsets) {
      // The needed rows that are reported saturate, and so do sums too large to be added up by a scan.
      const bool huge = __syncthreads_or(sum >> 50 != 0);
      if (huge) {
        s.rows[threadIdx.x] = sum;
        __syncthreads();
        if (threadIdx.x == 0) {
          s.total = 0;
          for (int t = 0; t < THREADS; t++) s.total = add_saturating(s.total, s.rows[t]);
        }
        __syncthreads();
      } else {
        block_scan(s, sum);
      }
      if (threadIdx.x == 0 && s.best == NO_FINDING && s.total > p.in_rows) {
        s.best = ROWS;
        s.fault = FAULT_INPUT_ROWS;
        s.a = s.total;
        s.b = p.in_rows;
      }
    }
    __syncthreads();
  }
  const bool fault = n > 0 && s.best != NO_FINDING;

  for (uint32_t step = 0; step < p.ranks; step++) {
    // Everybody begins with another receiver.
    const uint32_t r = (p.rank + 1 + step) % p.ranks;
    const u64 to = slot(p, r, epoch, p.rank);
    long long* splits = (long long*)(to + sizeof(Header));
    if (r != p.rank) {
      for (int k = threadIdx.x; k < n; k += THREADS) splits[k] = k == (int)threadIdx.x ? first.split : own[k];
    }
    if (threadIdx.x < HEADER_WORDS) {
      u64 word = 0;
      switch (threadIdx.x) {
        case 0: word = epoch; break;
        case 1: word = p.form; break;
        case 2: word = p.dtype; break;
        case 3: word = p.row_bytes; break;
        case 4: word = p.ne; break;
        case 5: word = p.major_align; break;
        case 6: word = p.invalid ? p.invalid : fault ? s.fault : 0; break;
        case 7: word = !p.invalid && fault ? s.a : 0; break;
        case 8: word = !p.invalid && fault ? s.b : 0; break;
        case 9: word = p.out_id; break;
        case 10: word = p.out_offset; break;
        case 11: word = p.out_rows; break;
        case 12: word = p.in_rows; break;
        case 13: word = n; break;
        default: break;
      }
      ((u64*)to)[threadIdx.x] = word;
    }
  }
  __syncthreads();
  if (threadIdx.x < 32) {
    // After the block's barrier this covers what all its threads wrote; it makes each flag below a release.
    fence_acq_rel_sys();
    for (uint32_t r = threadIdx.x; r < p.ranks; r += 32)
      store_relaxed_sys_u64((void*)(region(p, r) + p.arrival + 8 * p.rank), epoch);
  }
}

}  // namespace exchange
}  // namespace symm
