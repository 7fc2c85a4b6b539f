// The beginning of an operation: its epoch, this PE's splits read once, and what is published to every member.
#pragma once

#include "group.cuh"

namespace symm {
namespace exchange {

// The columns of a share, and which part of their pieces is its own.
struct Role {
  u64 begin, end;   // columns
  uint32_t index;   // of this share among those with the same columns
  uint32_t shares;  // how many those are
};

// The first shares push to other PEs, since the links are the bottleneck; the rest copy this PE's own rows. One share
// alone does both.
__device__ __forceinline__ Role role_of(const ExchangeParams& p, uint32_t share, uint32_t shares) {
  const u64 remote = (p.ranks - 1) * p.ne, all = p.ranks * p.ne;
  const uint32_t split = p.remote_blocks;
  if (split == 0 || split >= shares) return {0, all, share, shares};
  if (share < split) return {0, remote, share, split};
  return {remote, all, share - split, shares - split};
}

// How many shares, from share 0 on, push to other PEs.
__device__ __forceinline__ uint32_t pushers_of(const ExchangeParams& p, uint32_t shares) {
  if (p.ranks == 1) return 0;
  return p.remote_blocks == 0 || p.remote_blocks >= shares ? shares : p.remote_blocks;
}

// The block's share of the launch. One thread; before the stream has come to the launch, too: the launch ahead has tickets of its own,
// and the one before that has ended.
__device__ __forceinline__ uint32_t take_share(const ExchangeParams& p) {
  return gridDim.x == 1 ? 0 : fetch_add_relaxed_gpu_u32(&record_of(p)->early[p.turn], 1);
}

// Learns the epoch; share 0 takes it, and announces it. The first thread.
//
// A ticket of the context is taken even where the team has failed, so that it need not wait for the status.
template <typename S>
__device__ __forceinline__ void take_epoch(S& s, const ExchangeParams& p, uint32_t share) {
  LaunchRecord* record = record_of(p);
  u64 epoch;
  if (share == 0) {
    epoch = fetch_add_relaxed_gpu_u64((void*)(p.mine + CONTEXT_TICKET), 1) + 1;
    if (gridDim.x > 1) store_relaxed_gpu_u64(&record->epoch, epoch);
  } else {
    // Bounded by the deadline of the block that holds share 0, which is running.
    do epoch = load_relaxed_gpu_u64(&record->epoch);
    while (epoch == 0);
  }
  s.share = share, s.epoch = epoch, s.stopped = 0;
}

// Puts back what the shares of a launch have counted. The last of them, one thread.
__device__ __forceinline__ void clear_record(const ExchangeParams& p) {
  LaunchRecord* record = record_of(p);
  store_relaxed_gpu_u32(&record->early[p.turn], 0);
  store_relaxed_gpu_u64(&record->finished, 0);
  store_relaxed_gpu_u64(&record->epoch, 0);
}

// Looks at the status, and at the count of operations that have ended, which only grows, so that an old look at it
// is good if it is good enough. Acquire: what the operation before wrote comes before what this one does; its launch may have
// been on another stream. One warp.
template <typename S>
__device__ __forceinline__ void look_around(S& s, const ExchangeParams& p) {
  if ((threadIdx.x & 31) != 0) return;
  s.code = load_relaxed_gpu_u64(&status_of(p).device->code);
  s.ended = load_acquire_gpu_u64((const void*)(p.mine + CONTEXT_COMPLETED));
}

// Whether share 0 may publish: the team has not failed, and it is this PE's turn in the context. Otherwise the other shares wait
// for a note that never comes, until they see the status that is set then. The whole block.
template <typename S>
__device__ __forceinline__ bool has_turn(S& s, const ExchangeParams& p) {
  if (s.code != STATUS_OK) return false;
  if (s.ended + 1 >= s.epoch) return true;
  __syncthreads();  // everybody has looked
  if (threadIdx.x == 0) s.code = wait_turn(p, s.epoch, s.began) ? STATUS_OK : STATUS_TIMEOUT;
  __syncthreads();
  return s.code == STATUS_OK;
}

__device__ __forceinline__ long long read_once(const long long* at) { return *(const volatile long long*)at; }

// Negative splits come before too many rows, lower indices first.
constexpr u64 KEY_NEGATIVE = 0, KEY_ROWS = 1ull << 62;

// Checks one split, and its offset where the form has them (symm_core::splits::check_splits); `sum` grows by its rows.
__device__ __forceinline__ void check_split(const ExchangeParams& p, bool offsets, u64 k, long long split, long long start, Finding& found, u64& sum) {
  if (split < 0) note(found, KEY_NEGATIVE + k, FAULT_NEGATIVE_SPLIT, k, (u64)split);
  const u64 rows = split < 0 ? 0 : (u64)split;
  if (offsets) {
    const u64 end = start < 0 ? ~0ull : add_saturating(start, rows);
    if (rows > 0 && end > p.in_rows) note(found, KEY_ROWS + k, FAULT_INPUT_ROWS, end, p.in_rows);
  } else {
    sum = add_saturating(sum, rows);
  }
}

// The worst of what a group found. Without offsets the sum of all splits counts, too.
template <typename Group, typename S>
__device__ __forceinline__ Finding worst_split(const Group& g, S& s, const ExchangeParams& p, bool offsets, Finding found, u64 sum) {
  const u64 total = offsets ? 0 : g.sum(s.scratch, sum);
  if (g.index() == 0 && total > p.in_rows) note(found, KEY_ROWS, FAULT_INPUT_ROWS, total, p.in_rows);
  return g.lowest(s.scratch, found);
}

// Splits that are not plainly right: judges them as symm_core::splits does. One warp.
template <typename S>
__device__ __noinline__ void judge_splits(S& s, const ExchangeParams& p, bool offsets) {
  const uint32_t lane = threadIdx.x & 31, n = published_splits(p);
  Finding found = {NO_FINDING, 0, 0, 0};
  u64 sum = 0;
  if (lane < n) check_split(p, offsets, lane, s.splits[p.rank][lane], s.starts[lane], found, sum);
  found = worst_split(OneWarp(), s, p, offsets, found, sum);
  if (lane == 0 && found.key != NO_FINDING) s.fault = found.fault, s.fault_a = found.a, s.fault_b = found.b;
}

// Makes ready what will be published: a warp reads few splits, each of them once, checks them and leaves all in `s`.
template <typename K, typename S>
__device__ __forceinline__ void prepare_few(S& s, const ExchangeParams& p) {
  const uint32_t lane = threadIdx.x & 31, n = published_splits(p);
  const bool offsets = K::form(p) == FORM_ALL_TO_ALL_VDEV_2D_OFFSET;
  const long long* in = (const long long*)p.in_splits;
  long long split = 0, start = 0;
  if (lane < n) split = read_once(in + lane), start = offsets ? read_once(in + n + lane) : 0;
  s.splits[p.rank][lane] = split;
  s.starts[lane] = start;
  if (lane == 0) s.fault = 0, s.changed = 0;
  // Plainly right, as nearly always: narrow, and the rows are there.
  bool doubt = (u64)split >= NARROW_ROWS;
  if (offsets) doubt = doubt || (split > 0 && (start < 0 || (u64)start + (u64)split > p.in_rows));
  uint32_t sum;
  const uint32_t before = warp_scan<uint32_t>((uint32_t)split, sum);
  s.own_rows[lane] = (uint32_t)split;
  s.own_before[lane] = offsets ? (u64)start : before;
  const bool plain = !__any_sync(ALL, doubt || (!offsets && sum > p.in_rows));
  if (lane == 0) s.own_plain = plain;
  if (!plain) judge_splits(s, p, offsets);
  __syncwarp();
}

// Word `lane` of this PE's note, as far as it is known before the turn and the splits are: the header, then the number of
// pushers. The host has put the header's words into the parameters in their order.
__device__ __forceinline__ u64 draft_word(const ExchangeParams& p) {
  const uint32_t lane = threadIdx.x & 31;
  if (lane == NOTE_PUSHERS) return pushers_of(p, gridDim.x);
  return lane < HEADER_WORDS ? (&p.epoch)[lane] : 0;
}

// The same once all is known.
template <typename S>
__device__ __forceinline__ u64 final_word(const S& s, const ExchangeParams& p, u64 epoch, u64 word) {
  const uint32_t lane = threadIdx.x & 31;
  if (lane == WORD_EPOCH) word = epoch;
  if (s.fault != 0 && p.invalid == 0) {
    if (lane == WORD_INVALID) word = s.fault;
    if (lane == WORD_INVALID_A) word = s.fault_a;
    if (lane == WORD_INVALID_B) word = s.fault_b;
  }
  return word;
}

// Publishes the note to every member: one warp, behind a fence of its own. `word`: its drafts; `n`: splits in the note.
template <typename S>
__device__ __forceinline__ void publish_note(const S& s, const ExchangeParams& p, u64 epoch, u64 word, uint32_t n, bool starts) {
  const uint32_t lane = threadIdx.x & 31;
  word = final_word(s, p, epoch, word);
  const u64 split = lane < n ? (u64)s.splits[p.rank][lane] : 0;
#pragma unroll 1
  for (uint32_t step = 0; step < p.ranks; step++) {
    // Everybody begins with another receiver.
    const u64 to = region(p, destination(p, step)) + note_of(p, epoch, p.rank) + 16 * lane;
    if (lane < n) store_relaxed_sys_tagged((void*)(to + 16 * NOTE_SPLITS), {split, epoch});
    if (lane <= NOTE_PUSHERS) store_relaxed_sys_tagged((void*)to, {word, epoch});
  }
  // Offsets stay here: only their owner reads them. Peers never see them.
  if (starts && lane < n)
    store_relaxed_sys_tagged((void*)(p.mine + note_of(p, epoch, p.rank) + 16 * (NOTE_STARTS + lane)), {(u64)s.starts[lane], epoch});
}

// Reads many splits, checks them and publishes them into the slots, then raises the arrival words. The whole block. Not in
// line: see "size of the code" in exchange.cu.
template <typename K, typename S>
__device__ __noinline__ void publish_many(S& s, const ExchangeParams& p, u64 epoch) {
  const WholeBlock g;
  const uint32_t n = published_splits(p);
  const bool offsets = K::form(p) == FORM_ALL_TO_ALL_VDEV_2D_OFFSET;
  const long long* in = (const long long*)p.in_splits;
  long long* own = (long long*)many_splits(p, epoch, p.rank);
  long long* kept = many_starts(p);
  Finding found = {NO_FINDING, 0, 0, 0};
  u64 sum = 0;
#pragma unroll 1
  for (uint32_t k = g.index(); k < n; k += g.size()) {
    const long long split = read_once(in + k), start = offsets ? read_once(in + n + k) : 0;
    own[k] = split;
    if (offsets) kept[k] = start;
    check_split(p, offsets, k, split, start, found, sum);
#pragma unroll 1
    for (uint32_t step = 0; step + 1 < p.ranks; step++)
      ((long long*)(region(p, destination(p, step)) + slot(p, epoch, p.rank) + sizeof(Header)))[k] = split;
  }
  found = worst_split(g, s, p, offsets, found, sum);
  if (g.index() == 0) {
    const bool fine = found.key == NO_FINDING;
    s.fault = fine ? 0 : found.fault, s.fault_a = found.a, s.fault_b = found.b;
  }
  g.meet();
  if (threadIdx.x >= 32) return;
  const u64 word = draft_word(p);
  if (K::HEADERS && threadIdx.x < HEADER_WORDS) {
    for (uint32_t r = 0; r < p.ranks; r++) ((u64*)(region(p, r) + slot(p, epoch, p.rank)))[threadIdx.x] = final_word(s, p, epoch, word);
  }
  __syncwarp();
  // After the meeting this covers what all threads wrote; it makes each flag below, and the note, a release.
  release_sys<FENCE_MANY_SPLITS>();
#pragma unroll 1
  for (uint32_t r = threadIdx.x; r < p.ranks; r += 32)
    store_relaxed_sys_u64((void*)(region(p, r) + p.arrival + 8 * p.rank), epoch);
  publish_note(s, p, epoch, word, 0, false);
}

}  // namespace exchange
}  // namespace symm
