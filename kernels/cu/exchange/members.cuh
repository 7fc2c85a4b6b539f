// Waiting for what all members announce, and telling them that this PE gave up.
#pragma once

#include "common.cuh"

namespace symm {
namespace exchange {

// A PE's number as a bit of the set of late ranks.
__device__ __forceinline__ u64 bit_of_pe(const ExchangeParams& p, u64 pe) {
  for (uint32_t r = 0; r < p.ranks && r < 64; r++)
    if (member(p, r) == pe) return 1ull << r;
  return 0;
}

// Waits for this PE's turn in the context, after a first look that was too early. One thread.
inline __device__ __noinline__ bool wait_turn(const ExchangeParams& p, u64 epoch, u64 began) {
  const Failure failure = {STATUS_TIMEOUT, p.form, PHASE_TICKET, member(p, p.rank), bit_of_pe(p, member(p, p.rank)),
                           epoch - 1, 0, 0};
  const u64 spent = now_ns() - began;
  return wait_word(
      status_of(p), p.limit_ns > spent ? p.limit_ns - spent : 0, failure,
      [&] { return load_acquire_gpu_u64((const void*)(p.mine + CONTEXT_COMPLETED)); },
      [&](u64 seen) { return seen + 1 >= epoch; });
}

// What a wait knows of itself. The same on every lane.
struct Waiting {
  u64 epoch;
  u64 phase;
  u64 began;
  // Whether this warp is the one of the launch that looks at host memory; the others see what it finds in the device copy, so
  // that a long wait is one reader of the bus, not one a multiprocessor.
  bool host;
};

// Looks at all that can end a wait early: a member that gave up this epoch, a failure of the team, the deadline. Returns
// whether the wait goes on, the same on every lane; if not, the status is set. Not in line: only a long wait comes here.
// `seen(r)` is the epoch that member `r` has announced so far; one warp looks at all of them.
template <typename Seen>
__device__ __noinline__ bool goes_on(const ExchangeParams& p, const Waiting& w, Seen seen) {
  const uint32_t lane = threadIdx.x & 31;
  const u64 mine = p.mine;
  const Status status = status_of(p);
  u64 given_up = 0, cause = 0;
  for (uint32_t r = lane; r < p.ranks; r += 32) {
    const u64 pair = mine + p.aborted + 16 * r;
    const u64 at = load_acquire_sys_u64((const void*)pair);
    if (at != 0 && at <= w.epoch && given_up == 0) {
      given_up = at;
      cause = load_relaxed_sys_u64((const void*)(pair + 8));
    }
  }
  const unsigned who = __ballot_sync(ALL, given_up != 0);
  const u64 waited = __shfl_sync(ALL, now_ns() - w.began, 0);
  if (who != 0) {
    if (lane == __ffs(who) - 1) {
      const u64 pe = cause - 1;
      status_fail(status, {STATUS_TIMEOUT, p.form, w.phase, pe, bit_of_pe(p, pe), w.epoch, given_up, waited});
    }
    return false;
  }
  const bool fine = lane != 0 || (w.host ? status_ok_in_wait(status, waited) : status_ok(status));
  if (!__all_sync(ALL, fine)) return false;
  if (waited <= p.limit_ns) return true;

  uint32_t late = p.ranks;
  u64 got = 0, late_set = 0;
  for (uint32_t r = lane; r < p.ranks; r += 32) {
    const u64 at = seen(r);
    if (at >= w.epoch) continue;
    if (late == p.ranks) late = r, got = at;
    if (r < 64) late_set |= 1ull << r;
  }
  const uint32_t first = __reduce_min_sync(ALL, late);
  if (first == p.ranks) return true;  // the last one came just now
  const u64 low = __reduce_or_sync(ALL, (unsigned)late_set);
  const u64 high = __reduce_or_sync(ALL, (unsigned)(late_set >> 32));
  if (late == first)
    status_fail(status, {STATUS_TIMEOUT, p.form, w.phase, member(p, first), low | high << 32, w.epoch, got, waited});
  return false;
}

// One word a member at `flags` of this PE's copy.
struct FlagSeen {
  u64 flags;
  __device__ __forceinline__ u64 operator()(uint32_t r) const { return load_relaxed_sys_u64((const void*)(flags + 8 * r)); }
};

// One warp waits until every member's word at `flags` in this PE's copy has reached the epoch. Returns false, on every
// lane, once a member has given up this epoch, the team has failed or the deadline has passed; the status is set then.
__device__ __forceinline__ bool wait_members(const ExchangeParams& p, u64 flags, const Waiting& w) {
  const FlagSeen seen = {p.mine + flags};
  for (uint32_t look = 1;; look++) {
    bool late = false;
    for (uint32_t r = threadIdx.x & 31; r < p.ranks; r += 32) late |= seen(r) < w.epoch;
    if (!__any_sync(ALL, late)) {
      fence_acquire_sys();
      return true;
    }
    if (look % LOOKS == 0 && !goes_on(p, w, seen)) return false;
  }
}

// The epoch of the newer of a member's two notes.
struct NoteSeen {
  const ExchangeParams& p;
  __device__ __forceinline__ u64 operator()(uint32_t r) const {
    const u64 even = load_relaxed_sys_tagged((const void*)(p.mine + note_of(p, 0, r))).tag;
    const u64 odd = load_relaxed_sys_tagged((const void*)(p.mine + note_of(p, 1, r))).tag;
    return even > odd ? even : odd;
  }
};

// What one warp has read of a member's note, a word a lane.
struct Read {
  bool fine;
  bool alike;  // the member runs the same form with as many splits
  u64 header;  // word `lane`; of lane NOTE_PUSHERS the number of pushers
  u64 split, start;
};

// One warp waits for the note of `rank` and reads it; `splits` of its splits, `starts` of its offsets. Splits come only from a
// member that publishes as many as this PE: of another one the header is enough.
//
// A member that gave up before this PE came has published, so that is looked for first, in the same round trip: nothing is
// then pushed to one that no longer waits.
__device__ __forceinline__ Read read_note(const ExchangeParams& p, uint32_t form, uint32_t rank, uint32_t splits, uint32_t starts,
                                          const Waiting& w) {
  const uint32_t lane = threadIdx.x & 31;
  constexpr uint32_t TOLD = NOTE_PUSHERS + 1;
  u64 from = p.mine + note_of(p, w.epoch, rank);
  u64 first = lane == TOLD ? p.mine + p.aborted + 16 * rank : from + 16 * lane;
  // Not worked out again at every look.
  known(from), known(first);
  for (uint32_t look = 1;; look++) {
    // All three are under way before the first is looked at: a test between them is a wait for each.
    Tagged split = {0, w.epoch}, start = split, head = split;
    if (lane < splits) split = load_relaxed_sys_tagged((const void*)(from + 16 * (NOTE_SPLITS + lane)));
    if (lane < starts) start = load_relaxed_sys_tagged((const void*)(from + 16 * (NOTE_STARTS + lane)));
    if (lane <= TOLD) head = load_relaxed_sys_tagged((const void*)first);
    const bool told = lane == TOLD && head.word != 0 && head.word <= w.epoch;
    const bool given_up = __any_sync(ALL, told);
    if (!given_up && !__any_sync(ALL, lane < TOLD && head.tag != w.epoch)) {
      const bool alike = __shfl_sync(ALL, head.word, WORD_N_SPLITS) == p.n_splits && __shfl_sync(ALL, head.word, WORD_FORM) == form;
      if (!alike || !__any_sync(ALL, split.tag != w.epoch || start.tag != w.epoch)) {
        // What the member did before it published comes before what this PE does next.
        fence_acquire_sys();
        return {true, alike, head.word, split.word, start.word};
      }
    }
    if ((given_up || look % LOOKS == 0) && !goes_on(p, w, NoteSeen{p})) return {false, false, 0, 0, 0};
  }
}

// Tells every peer, once until the next recover, that this PE does nothing for `epoch` and later ones. One warp.
inline __device__ __noinline__ void give_up(const ExchangeParams& p, u64 epoch) {
  const uint32_t lane = threadIdx.x & 31;
  u64 before = 0;
  if (lane == 0) before = cas_acq_rel_gpu_u64(&((ContextLocal*)p.local)->gave_up, 0, epoch);
  if (__shfl_sync(ALL, before, 0) != 0) return;
  u64 cause = 0;
  if (lane == 0) cause = load_relaxed_gpu_u64(&((StatusRecord*)p.status.device)->pe) + 1;
  cause = __shfl_sync(ALL, cause, 0);
  for (uint32_t r = lane; r < p.ranks; r += 32) {
    if (r == p.rank) continue;
    const u64 pair = region(p, r) + p.aborted + 16 * p.rank;
    store_relaxed_sys_u64((void*)(pair + 8), cause);
    store_release_sys_u64((void*)pair, epoch);
  }
}

}  // namespace exchange
}  // namespace symm
