// How an operation begins: its epoch, and what this PE publishes.
#pragma once

#include "common.cuh"

namespace symm {
namespace reduce {

// Takes the context's ticket and waits for this PE's turn. One thread. A ticket is taken even where the team has failed, so that
// it, the status and the completed count are asked for at once; that count only grows, so an old look at it is good if it is
// good enough.
__device__ __forceinline__ u64 take_epoch(const ExchangeParams& p, u64 began) {
  const u64 code = load_relaxed_gpu_u64(&status_of(p).device->code);
  const u64 epoch = fetch_add_relaxed_gpu_u64((void*)(p.mine + CONTEXT_TICKET), 1) + 1;
  // Acquire: what the operation before wrote comes before what this one does; its launch may be on another stream.
  const u64 ended = load_acquire_gpu_u64((const void*)(p.mine + CONTEXT_COMPLETED));
  if (code != STATUS_OK) return epoch | SKIP;
  return ended + 1 >= epoch || exchange::wait_turn(p, epoch, began) ? epoch : epoch | SKIP;
}

// Writes this PE's note on every member. One warp. `brought`: this launch wrote to the buffer that peers will read. What earlier
// work of the stream left there has ended: it lies in this GPU's own memory, where peers' loads come to, and needs no fence.
__device__ __forceinline__ void publish(const ReduceParams& q, u64 epoch, bool brought) {
  const ExchangeParams& p = q.exchange;
  const uint32_t lane = threadIdx.x & 31;
  if (lane > NOTE_PUSHERS) return;
  // Behind the block's barrier this covers what all shares brought.
  if (brought) release_sys<FENCE_BROUGHT>();
  step(STEP_DRAFTED);
  const u64 word = lane == WORD_EPOCH ? epoch : lane < HEADER_WORDS ? q.header[lane] : 0;
#pragma unroll 1
  for (uint32_t step = 0; step < p.ranks; step++)
    store_relaxed_sys_tagged((void*)(region(p, destination(p, step)) + note_of(p, epoch, p.rank) + 16 * lane), {word, epoch});
}

}  // namespace reduce
}  // namespace symm
