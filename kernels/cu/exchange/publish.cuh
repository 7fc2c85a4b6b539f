// The beginning of an operation: its epoch, this PE's splits read once, and what is published to every member.
#pragma once

#include "group.cuh"

namespace symm {
namespace exchange {

__device__ __forceinline__ uint32_t published_splits(const ExchangeParams& p) { return (uint32_t)p.n_splits; }

__device__ __forceinline__ long long read_once(const long long* at) { return *(const volatile long long*)at; }

// The splits that a thread of a group holds in registers, and the offsets where the form has them: one batch of them.
template <typename Group>
struct Held {
  long long split[Group::BATCH], start[Group::BATCH];
};

// Reads the batch that begins with split `base`, all of it under way at once.
template <typename Group>
__device__ __forceinline__ Held<Group> read_splits(const Group& g, const ExchangeParams& p, uint32_t base) {
  const uint32_t n = published_splits(p);
  const bool offsets = p.form == FORM_ALL_TO_ALL_VDEV_2D_OFFSET;
  const long long* in = (const long long*)p.in_splits;
  Held<Group> held;
#pragma unroll
  for (int i = 0; i < Group::BATCH; i++) {
    const uint32_t k = base + i * g.size() + g.index();
    held.split[i] = k < n ? read_once(in + k) : 0;
    held.start[i] = k < n && offsets ? read_once(in + n + k) : 0;
  }
  return held;
}

// What the first warp of a block knows once it has its share. The same on every lane.
struct Turn {
  u64 epoch;  // perhaps with EPOCH_SKIP
  u64 began;  // when the stream reached the operation
  uint32_t share;
};

// Waits for this PE's turn in the context, after a first look that was too early. One lane.
__device__ __noinline__ bool wait_turn(const ExchangeParams& p, u64 epoch, u64 began) {
  const Failure failure = {STATUS_TIMEOUT, p.form, PHASE_TICKET, member(p, p.rank), bit_of_pe(p, member(p, p.rank)),
                           epoch - 1, 0, 0};
  const u64 spent = now_ns() - began;
  return wait_word(
      status_of(p), p.limit_ns > spent ? p.limit_ns - spent : 0, failure,
      [&] { return load_acquire_gpu_u64((const void*)(p.mine + CONTEXT_COMPLETED)); },
      [&](u64 seen) { return seen + 1 >= epoch; });
}

// Takes the block's share; share 0 also takes the epoch, waits for its turn and announces it. The first warp.
//
// A ticket of the context is taken even where the team has failed, so that it need not wait for the status.
__device__ __forceinline__ Turn take_turn(const ExchangeParams& p, Held<OneWarp>& first) {
  const uint32_t lane = threadIdx.x;
  LaunchRecord* record = record_of(p);
  const bool alone = gridDim.x == 1;
  Turn t = {0, now_ns(), 0};
  // All of these are under way at once; the completed count only grows, so an old look at it is good if it is good enough.
  uint32_t ticket = 0;
  u64 epoch = 0;
  if (lane == 0) {
    if (alone) epoch = fetch_add_relaxed_gpu_u64((void*)(p.mine + CONTEXT_TICKET), 1) + 1;
    else ticket = fetch_add_relaxed_gpu_u32(&record->tickets, 1);
  }
  const u64 code = load_relaxed_gpu_u64(&status_of(p).device->code);
  // The splits are read before the epoch is known, to save the time.
  const bool few = published_splits(p) <= WARP_SPLITS;
  if (blockIdx.x == 0 && few) first = read_splits(OneWarp(), p, 0);
  // Acquire: what the operation before wrote comes before what this one does; its launch may be on another stream.
  const u64 ended = load_acquire_gpu_u64((const void*)(p.mine + CONTEXT_COMPLETED));
  t.share = __shfl_sync(ALL, ticket, 0);
  if (t.share != 0) {
    // Bounded by the deadline of the block that holds share 0, which is running.
    do epoch = load_relaxed_gpu_u64(&record->epoch);
    while (epoch == 0);
    t.epoch = __shfl_sync(ALL, epoch, 0);
    return t;
  }
  if (!alone) {
    if (lane == 0) epoch = fetch_add_relaxed_gpu_u64((void*)(p.mine + CONTEXT_TICKET), 1) + 1;
    if (blockIdx.x != 0 && few) first = read_splits(OneWarp(), p, 0);
  }
  if (lane == 0) {
    const bool turn = code == STATUS_OK && (ended + 1 >= epoch || wait_turn(p, epoch, t.began));
    if (!turn) epoch |= EPOCH_SKIP;
    if (!alone) store_relaxed_gpu_u64(&record->epoch, epoch);
  }
  t.epoch = __shfl_sync(ALL, epoch, 0);
  return t;
}

// A word of this PE's header. The host has put them into the parameters in their order.
__device__ __forceinline__ u64 header_word(const ExchangeParams& p, u64 epoch, const Finding& fault, uint32_t k) {
  if (k == WORD_EPOCH) return epoch;
  if (p.invalid == 0) {
    if (k == WORD_INVALID) return fault.fault;
    if (k == WORD_INVALID_A) return fault.a;
    if (k == WORD_INVALID_B) return fault.b;
  }
  return (&p.epoch)[k];
}

// Reads this PE's splits, each of them once, checks them (symm_core::splits::check_splits) and publishes them with the
// header to every member. A warp, or the block.
template <typename Group>
__device__ __forceinline__ void publish(const Group& g, Shared& s, const ExchangeParams& p, u64 epoch, const Held<Group>& first) {
  const uint32_t n = published_splits(p);
  const uint32_t batch = Group::BATCH * g.size();
  const bool offsets = p.form == FORM_ALL_TO_ALL_VDEV_2D_OFFSET;
  long long* own = (long long*)splits_from(p, epoch, p.rank);
  // Offsets stay here: only their owner reads them. Peers never see them.
  long long* kept = (long long*)(p.local + sizeof(ContextLocal));

  // Negative splits come before too many rows, lower indices first.
  constexpr u64 NEGATIVE = 0, ROWS = 1ull << 62;
  Finding found = {NO_FINDING, 0, 0, 0};
  u64 sum = 0;
#pragma unroll 1
  for (uint32_t base = 0; base < n; base += batch) {
    const Held<Group> held = base == 0 ? first : read_splits(g, p, base);
#pragma unroll
    for (int i = 0; i < Group::BATCH; i++) {
      const uint32_t k = base + i * g.size() + g.index();
      if (k >= n) continue;
      const long long split = held.split[i];
      own[k] = split;
      if (split < 0) note(found, NEGATIVE + k, FAULT_NEGATIVE_SPLIT, k, (u64)split);
      const u64 rows = split < 0 ? 0 : (u64)split;
      if (offsets) {
        kept[k] = held.start[i];
        const u64 end = held.start[i] < 0 ? ~0ull : add_saturating(held.start[i], rows);
        if (rows > 0 && end > p.in_rows) note(found, ROWS + k, FAULT_INPUT_ROWS, end, p.in_rows);
      } else {
        sum = add_saturating(sum, rows);
      }
    }
  }
  Finding fault = {NO_FINDING, 0, 0, 0};
  if (n > 0) {
    const u64 total = offsets ? 0 : g.sum(s, sum);
    if (g.index() == 0 && total > p.in_rows) note(found, ROWS, FAULT_INPUT_ROWS, total, p.in_rows);
    fault = g.lowest(s, found);
  }

#pragma unroll 1
  for (uint32_t step = 0; step < p.ranks; step++) {
    // Everybody begins with another receiver.
    const uint32_t r = destination(p, step);
    u64* to = (u64*)slot(p, r, epoch, p.rank);
    if (g.index() < HEADER_WORDS) to[g.index()] = header_word(p, epoch, fault, g.index());
    if (r == p.rank) continue;
#pragma unroll 1
    for (uint32_t base = 0; base < n; base += batch) {
#pragma unroll
      for (int i = 0; i < Group::BATCH; i++) {
        const uint32_t k = base + i * g.size() + g.index();
        if (k < n) to[HEADER_WORDS + k] = base == 0 ? first.split[i] : own[k];
      }
    }
  }
  g.meet();
  if (threadIdx.x < 32) {
    // After the meeting this covers what all threads wrote; it makes each flag below a release.
    fence_acq_rel_sys();
#pragma unroll 1
    for (uint32_t r = threadIdx.x; r < p.ranks; r += 32)
      store_relaxed_sys_u64((void*)(region(p, r) + p.arrival + 8 * p.rank), epoch);
  }
}

// For more splits than a warp takes. The whole block. Not in line: see "size of the code" in exchange.cu.
__device__ __noinline__ void publish_many(Shared& s, const ExchangeParams& p, u64 epoch) {
  publish(WholeBlock(), s, p, epoch, read_splits(WholeBlock(), p, 0));
}

}  // namespace exchange
}  // namespace symm
