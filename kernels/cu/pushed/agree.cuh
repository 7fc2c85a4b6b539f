// Notes and verdict of the pushed reductions, by the first warp of each block while the others push and wait for elements.
//
// A note ends with two words that say all in which members must agree, and that its PE finds nothing wrong with its own arguments. Where
// everybody's are this PE's own, the verdict is good, one look after the last note came. Else the whole notes tell.
#pragma once

#include "common.cuh"

namespace symm {
namespace pushed {

// The two words: the buffer's allocation, then what is left of the header. 0 in the second where something is wrong here.
struct Agreed {
  u64 word[2];
};

__device__ __forceinline__ Agreed agreed_of(const ExchangeParams& p) {
  const u64 bytes = p.out_rows * p.row_bytes;
  const bool fine = p.invalid == 0 && p.in_rows <= p.out_rows && bytes <= p.out_bytes && p.out_offset <= p.out_bytes - bytes;
  // The host chooses this kernel for numbers of elements that fit, and for types that have sums: the type says a row's bytes.
  return {{p.out_id, fine ? p.in_rows << 16 | p.dtype << 8 | p.form : 0}};
}

// Writes this PE's note on every member. One warp.
__device__ __forceinline__ void publish(const ReduceParams& q, const Agreed& agreed, u64 epoch) {
  const ExchangeParams& p = q.exchange;
  const uint32_t lane = threadIdx.x & 31;
  if (lane > NOTE_AGREED + 1) return;
  u64 word = 0;
  if (lane < HEADER_WORDS) word = lane == WORD_EPOCH ? epoch : q.header[lane];
  if (lane == NOTE_AGREED) word = agreed.word[0];
  if (lane == NOTE_AGREED + 1) word = agreed.word[1];
#pragma unroll 1
  for (uint32_t step = 0; step < p.ranks; step++)
    store_relaxed_sys_tagged((void*)(region(p, destination(p, step)) + note_of(p, epoch, p.rank) + 16 * lane), {word, epoch});
}

// The verdict from whole notes, once all are here; until then whether to go on waiting. One warp.
__device__ __noinline__ Outcome doubt(PushedShared& s, const ReduceParams& q, u64 epoch, bool given_up) {
  const ExchangeParams& p = q.exchange;
  const Waiting w = {epoch, PHASE_ARRIVAL, s.began, true};
  if (given_up && !exchange::goes_on(p, w, exchange::NoteSeen{p})) return BAD_WAIT;
  const uint32_t lane = threadIdx.x & 31;
  bool late = false;
  for (uint32_t r = 0; r < p.ranks; r++) {
    if (lane >= HEADER_WORDS) continue;
    const Tagged t = load_relaxed_sys_tagged((const void*)(p.mine + note_of(p, epoch, r) + 16 * lane));
    late |= t.tag != epoch;
    s.header[r][lane] = t.word;
  }
  if (__any_sync(ALL, late)) return exchange::goes_on(p, w, exchange::NoteSeen{p}) ? PENDING : BAD_WAIT;
  __syncwarp();
  Finding found = {NO_FINDING, 0, 0, 0};
  for (uint32_t r = lane; r < p.ranks; r += 32) judge(s, q, epoch, r, found);
  u64 best = found.key;
  for (int step = 16; step > 0; step /= 2) {
    const u64 other = __shfl_xor_sync(ALL, best, step);
    best = other < best ? other : best;
  }
  if (best == NO_FINDING) return GOOD;
  // Keys of different lanes differ: one has the best.
  if (found.key == best) report(s, p, found);
  return BAD_VERDICT;
}

// Waits for all members' notes and reaches the verdict. One warp; the same on every lane.
__device__ __forceinline__ Outcome agree(PushedShared& s, const ReduceParams& q, const Agreed& agreed, u64 epoch) {
  const ExchangeParams& p = q.exchange;
  // Four lanes a member: two words, and whether it gave up, which it has told before a PE that comes too late looks here.
  const uint32_t lane = threadIdx.x & 31, which = lane & 3;
  const u64 mine = which == 0 ? agreed.word[0] : agreed.word[1];
  for (uint32_t look = 1;; look++) {
    bool late = agreed.word[1] == 0, told = false;
#pragma unroll 1
    for (uint32_t r = lane / 4; r < p.ranks; r += 8) {
      if (r == p.rank || which == 3) continue;
      const u64 at = p.mine + (which == 2 ? p.aborted + 16 * r : note_of(p, epoch, r) + 16 * (NOTE_AGREED + which));
      const Tagged t = load_relaxed_sys_tagged((const void*)at);
      if (which == 2) told |= t.word != 0 && t.word <= epoch;
      else late |= t.tag != epoch || t.word != mine;
    }
    const bool given_up = __any_sync(ALL, told);
    if (!given_up && !__any_sync(ALL, late)) return GOOD;
    if (!given_up && look % LOOKS != 0) continue;
    const Outcome outcome = doubt(s, q, epoch, given_up);
    if (outcome != PENDING) return outcome;
  }
}

}  // namespace pushed
}  // namespace symm
