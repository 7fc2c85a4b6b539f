// How an operation begins: its epoch, and what this PE publishes.
#pragma once

#include "common.cuh"

namespace symm {
namespace reduce {

// Takes the context's ticket and waits for this PE's turn. One thread. A ticket is taken even where the team has failed.
__device__ __forceinline__ u64 take_epoch(const ExchangeParams& p, u64 began) {
  const bool fine = status_ok(status_of(p));
  const u64 epoch = fetch_add_relaxed_gpu_u64((void*)(p.mine + CONTEXT_TICKET), 1) + 1;
  if (!fine) return epoch | SKIP;
  const Failure failure = {STATUS_TIMEOUT, p.form, PHASE_TICKET, member(p, p.rank), bit_of_pe(p, member(p, p.rank)),
                           epoch - 1, 0, 0};
  const u64 spent = now_ns() - began;
  const bool turn = wait_word(
      status_of(p), p.limit_ns > spent ? p.limit_ns - spent : 0, failure,
      // Acquire: what the operation before wrote comes before what this one does; its launch may be on another stream.
      [&] { return load_acquire_gpu_u64((const void*)(p.mine + CONTEXT_COMPLETED)); },
      [&](u64 seen) { return seen + 1 >= epoch; });
  return turn ? epoch : epoch | SKIP;
}

// Writes this PE's header into its slot on every member, then raises its arrival words there. One warp.
__device__ __forceinline__ void publish(const ReduceParams& q, u64 epoch) {
  const ExchangeParams& p = q.exchange;
  const uint32_t lane = threadIdx.x & 31;
  for (uint32_t k = lane; k < HEADER_WORDS * p.ranks; k += 32) {
    const uint32_t word = k % HEADER_WORDS, r = k / HEADER_WORDS;
    ((u64*)slot(p, r, epoch, p.rank))[word] = word == 0 ? epoch : q.header[word];
  }
  __syncwarp();
  raise_flags(p, p.arrival, epoch);
}

}  // namespace reduce
}  // namespace symm
