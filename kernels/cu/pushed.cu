// one_shot_all_reduce and two_shot_all_reduce whose elements are pushed with the note, instead of being read once all notes are here.
//
// Each PE writes its elements into room that is its own in every member's context, as words that are zeros until they come; whoever has
// all words of all members adds up and is done. No element is read over the link, no buffer by anybody but its owner, and there are no
// done-flags: room is written again two epochs later, when its owner has arrived at the epoch between. What is left is one word over the
// link (0.6 us on an H200) where the read form takes a note, a read there and back, a fence and a flag.
//
//   first warp            epoch; note (of one block); all members' notes, verdict
//   each other warp       its chunks: own elements loaded, pushed; the others' taken, added up; verdict; stored
//   the share that ends last  completed
//
// Of many elements and more than two members each chunk goes to one member, which adds it up and pushes the sums to all (two hops): less
// crosses the links, for one more word's time. Both forms come in both ways; the host decides (pushed in geometry.rs), from what is equal
// on all members, so all run this kernel or none does.
//
// What a word must not be is one that an earlier operation left. None leaves any: whoever takes elements out of a word clears it, before
// its operation ends and thus before the word can be written again. Where an operation failed words may be left; then the team does
// nothing until `recover`, which clears the room once no kernel of any member runs. A verdict is not needed before words are taken: until
// it is good their sums stay in registers.
//
// Between two members more may be pushed, too (SYMM_ALL_REDUCE_PUSH_PAIR), since stores go faster than loads. Their room would be large twice: all epochs
// share it (PushedParams::room_step), and nothing is pushed before the verdict, when its owner has arrived. It costs 1.3 us.
//
// Where time goes, beyond what exchange.cu says:
//
//  1. A few KiB are one block: no ticket, no count, and the epoch is known one atomic after the launch began, 1 us sooner.
//  2. Elements are loaded while the epoch is on its way, notes are read and judged while elements are.
//  3. All 16 bytes of a word are elements, stored at once as fast as plain stores are (350 GB/s), and in exchange nothing is fenced, raised
//     or counted there. A word of 12 bytes and a tag, which this kernel had before, took 1.4 us longer for 1 MiB.
//  4. No more than 32 blocks where elements are few, so that the next launch of the stream may start early.
//  5. Each warp has one chunk on its way, besides that which it waits for: own elements are read, pushed, taken and stored at the same
//     pace. Where warps push all they have first, 16 MiB take 7 us longer.
//  6. Whoever misses words looks at nothing else for WORD_LOOKS looks: what else can end a wait takes two looks, in which words come. With
//     8 looks 1 MiB took 10.3 us with 32 blocks, and so no less than with 16.
//  7. No fence but that before a share is counted and that behind the last count: the epoch is handed on without one, since each block
//     acquires the operation before by itself (0.25 us), and so is the end (0.25 us).
//
// In a graph of 10 between two H200s, the kernels without the library, in us, and in brackets those of the form that reads: 4 KiB 4.7,
// 64 KiB 5.4, 1 MiB 8.7 (12.7), 2 MiB 12.8 (15.4), 4 MiB 19.1 (22.3), 8 MiB 31.1 (34.7), 16 MiB 54.6 (60.0).
//
// Tried and left out. For 1 MiB, in kernels with nothing else: plain stores, a fence and a flag for each block, 7.7 us where such words
// took 6.0 (and words of 12 bytes and a tag 7.1); weak stores, and `.v4` in place of `.b128`, which are no faster; blocks that push and
// others that take, 5.9. For 16 MiB: the same two roles took 50.2 and warps of both 51.1, but in place nobody may store sums where another
// warp has yet to push; two and more chunks on the way, 52 to 58; plain stores with flags, 54; reading with 4 loads in flight 53.8, with
// one 54.9. Without a difference beyond 0.1 us: a pause between looks, looks at one word of some. One block of 23 warps for 64 KiB took 8.4.
#include "pushed/agree.cuh"

using namespace symm;
using namespace symm::pushed;

namespace {

// Most threads of a block: of two members one vector of sums at a time is in registers, of more a chunk's.
constexpr int PAIR_THREADS = 768;
constexpr int TEAM_THREADS = 512;

// The epoch of a member whose words of a chunk are here, or the one before it.
struct WordsSeen {
  const PushedParams& q;
  u64 epoch;
  uint32_t chunk;
  bool sums;  // what is waited for: the sums, by whoever makes them, or everybody's elements
  __device__ __forceinline__ u64 operator()(uint32_t r) const {
    const ExchangeParams& p = q.reduce.exchange;
    const Cut cut = cut_of<false>(q, true);
    if (sums ? r != chunk % p.ranks : r == p.rank) return epoch;
    const uint32_t index = q.two_hops ? chunk / p.ranks : chunk;
    const u64 at = sums ? place_of_sums(cut.stride, p.ranks, chunk) : place(cut.stride, r, p.rank, index);
    return has_come(p.mine + room_of(q, epoch) + at, chunk * CHUNK, cut.bytes) ? epoch : epoch - 1;
  }
};

// What the first warp has found so far. The same on every lane.
__device__ __forceinline__ uint32_t outcome_of(const PushedShared& s) {
  return __shfl_sync(ALL, *(const volatile uint32_t*)&s.outcome, 0);
}

// Whether a warp that misses words after so many looks waits on. While the first warp waits for notes, it is the one that looks at what can
// end a wait. Host memory is for few warps at a time, by turns: of large amounts thousands of them wait. (Where all of them look there
// 16 MiB take 2070 us, by turns 54.9, and 54.6 where none does.)
__device__ __noinline__ bool waits_on(const PushedShared& s, const PushedParams& q, u64 epoch, uint32_t chunk, bool sums, uint32_t look) {
  const uint32_t outcome = outcome_of(s);
  if (outcome == PENDING) return true;
  const bool host = (look / WORD_LOOKS + threadIdx.x / 32 + 11 * blockIdx.x) % HOST_TURNS == 0;
  const Waiting w = {epoch, sums ? PHASE_GATHERED : PHASE_ARRIVAL, s.began, host};
  return outcome == GOOD && exchange::goes_on(q.reduce.exchange, w, WordsSeen{q, epoch, chunk, sums});
}

// Waits for the verdict. One warp.
__device__ __forceinline__ bool agreed_upon(const PushedShared& s) {
  // Bounded by the deadline of the first warp.
  for (;;) {
    const uint32_t outcome = outcome_of(s);
    if (outcome != PENDING) return outcome == GOOD;
  }
}

// Adds elements of one vector to sums.
template <typename E>
__device__ __forceinline__ void add_vector(typename E::Wide* sums, int4 raw) {
  Vector<E> v;
  v.raw = raw;
#pragma unroll
  for (int i = 0; i < Vector<E>::COUNT; i++) sums[i] = E::add(sums[i], E::widen(v.elements[i]));
}

template <typename E>
__device__ __forceinline__ int4 round_vector(const typename E::Wide* sums) {
  Vector<E> v;
#pragma unroll
  for (int i = 0; i < Vector<E>::COUNT; i++) v.elements[i] = E::round(sums[i]);
  return v.raw;
}

// The sums of two members. Their order does not matter.
template <typename E>
__device__ __forceinline__ void add_pair(Vectors& c, const Vectors& other) {
#pragma unroll
  for (uint32_t k = 0; k < VECTORS; k++) {
    typename E::Wide sums[Vector<E>::COUNT];
#pragma unroll
    for (int i = 0; i < Vector<E>::COUNT; i++) sums[i] = E::nothing();
    add_vector<E>(sums, c.v[k]);
    add_vector<E>(sums, other.v[k]);
    c.v[k] = round_vector<E>(sums);
  }
}

// Takes what one member wrote: its elements, or the sums that it made. False, on every lane, if the wait for them failed.
__device__ __forceinline__ bool take_one(const PushedShared& s, const PushedParams& q, u64 epoch, uint32_t chunk, bool sums, u64 from, const Inside& in, Vectors& c) {
  Keys keys = 0;
  for (uint32_t look = 1;; look++) {
    const bool asks = look % KEY_LOOKS == 0;
    const Elements said = load_keys(from, asks);
    const Words a = load_words(from, in);
    if (asks) keys = keys_of(said);
    if (!__any_sync(ALL, missing(a, keys))) {
      c = vectors_of(a);
      clear_words(from, in, keys);
      return true;
    }
    if (look % WORD_LOOKS == 0 && !waits_on(s, q, epoch, chunk, sums, look)) return false;
  }
}

// Takes the elements of members `r` and, if there is one, `r + 1`, but not this PE's own, all under way at once.
__device__ __forceinline__ bool take_two(const PushedShared& s, const PushedParams& q, u64 epoch, uint32_t chunk, uint32_t r, u64 from, u64 then, const Inside& in,
                                         const Vectors& own, Vectors& first, Vectors& second) {
  const ExchangeParams& p = q.reduce.exchange;
  const bool here = r != p.rank, next = r + 1 < p.ranks && r + 1 != p.rank;
  const Inside in_first = in_if(in, here), in_second = in_if(in, next);
  Keys keys = 0, more = 0;
  for (uint32_t look = 1;; look++) {
    const bool asks = look % KEY_LOOKS == 0;
    const Elements said = load_keys(from, asks && here), told = load_keys(then, asks && next);
    const Words a = load_words(from, in_first), b = load_words(then, in_second);
    if (asks) keys = keys_of(said), more = keys_of(told);
    if (!__any_sync(ALL, missing(a, keys) || missing(b, more))) {
      first = here ? vectors_of(a) : own;
      second = next ? vectors_of(b) : own;
      clear_words(from, in_first, keys);
      clear_words(then, in_second, more);
      return true;
    }
    if (look % WORD_LOOKS == 0 && !waits_on(s, q, epoch, chunk, false, look)) return false;
  }
}

// The sums of a team's members, in rank order.
template <typename E>
__device__ __forceinline__ bool add_team(const PushedShared& s, const PushedParams& q, const Cut& cut, u64 epoch, uint32_t chunk, u64 room, const Inside& in, Vectors& c) {
  constexpr int COUNT = Vector<E>::COUNT;
  const ExchangeParams& p = q.reduce.exchange;
  const uint32_t index = q.two_hops ? chunk / p.ranks : chunk;
  typename E::Wide sums[VECTORS * COUNT];
#pragma unroll
  for (int i = 0; i < VECTORS * COUNT; i++) sums[i] = E::nothing();
#pragma unroll 1
  for (uint32_t r = 0; r < p.ranks; r += 2) {
    Vectors first, second;
    if (!take_two(s, q, epoch, chunk, r, room + place(cut.stride, r, p.rank, index), room + place(cut.stride, r + 1, p.rank, index), in, c, first, second)) return false;
#pragma unroll
    for (uint32_t k = 0; k < VECTORS; k++) {
      add_vector<E>(sums + k * COUNT, first.v[k]);
      if (r + 1 < p.ranks) add_vector<E>(sums + k * COUNT, second.v[k]);
    }
  }
#pragma unroll
  for (uint32_t k = 0; k < VECTORS; k++) c.v[k] = round_vector<E>(sums + k * COUNT);
  return true;
}

// Pushes a chunk of this PE's elements.
template <bool PAIR>
__device__ __forceinline__ void push_own(const PushedParams& q, const Cut& cut, u64 epoch, uint32_t chunk, const Vectors& c) {
  const ExchangeParams& p = q.reduce.exchange;
  const Inside in = inside_of(chunk * CHUNK, cut.bytes);
  const u64 room = room_of(q, epoch);
  if (PAIR) {
    push_chunk(p.near_regions[1 - p.rank] + room + chunk * CHUNK_ROOM, c, in);
    return;
  }
  const uint32_t owner = q.two_hops ? chunk % p.ranks : p.ranks, index = q.two_hops ? chunk / p.ranks : chunk;
#pragma unroll 1
  for (uint32_t hop = 0; hop + 1 < p.ranks; hop++) {
    const uint32_t r = destination(p, hop);
    if (owner == p.ranks || owner == r) push_chunk(region(p, r) + room + place(cut.stride, p.rank, r, index), c, in);
  }
}

// Makes, or takes, the sums of a chunk, of which `c` holds this PE's elements. One warp.
template <typename E, bool PAIR>
__device__ __forceinline__ bool add_up(const PushedShared& s, const PushedParams& q, const Cut& cut, u64 epoch, uint32_t chunk, Vectors& c) {
  const ExchangeParams& p = q.reduce.exchange;
  const u64 room = p.mine + room_of(q, epoch);
  const Inside in = inside_of(chunk * CHUNK, cut.bytes);
  if (PAIR) {
    Vectors other;
    if (!take_one(s, q, epoch, chunk, false, room + chunk * CHUNK_ROOM, in, other)) return false;
    add_pair<E>(c, other);
    return true;
  }
  const bool made_here = !q.two_hops || chunk % p.ranks == p.rank;
  if (!made_here) return take_one(s, q, epoch, chunk, true, room + place_of_sums(cut.stride, p.ranks, chunk), in, c);
  if (!add_team<E>(s, q, cut, epoch, chunk, room, in, c)) return false;
  // Whoever gets them looks at the verdict itself.
#pragma unroll 1
  for (uint32_t hop = 0; q.two_hops && hop + 1 < p.ranks; hop++)
    push_chunk(region(p, destination(p, hop)) + room_of(q, epoch) + place_of_sums(cut.stride, p.ranks, chunk), c, in);
  return true;
}

// Ends the operation. The first warp, of the share that ended last.
__device__ __forceinline__ void end_operation(const PushedParams& q, const Shared& s, u64 failed) {
  const ExchangeParams& p = q.reduce.exchange;
  const u64 epoch = s.epoch & ~SKIP;
  // After a bad verdict nobody waits for this PE, and the peers are to find that verdict, not a PE that gave up.
  if (failed != 0 && failed < FAILED_VERDICT) give_up(p, epoch);
  if (threadIdx.x != 0) return;
  if (q.pieces > 1) {
    LaunchRecord* record = record_of(p);
    store_relaxed_gpu_u64(&record->stages[0], 0);
    store_relaxed_gpu_u64(&record->epoch, 0);
    // With a block for every piece all tickets are taken by now; else the last block to leave puts them back.
    if (gridDim.x >= q.pieces) store_relaxed_gpu_u32(&record->tickets, 0);
  }
  // The count never falls: an operation that gives up in its ticket's wait may end before an earlier one. Of several shares the fence
  // behind their count has released what they did.
  void* completed = (void*)(p.mine + CONTEXT_COMPLETED);
  if (q.pieces > 1) max_relaxed_gpu_u64(completed, epoch);
  else max_release_gpu_u64(completed, epoch);
}

// The epoch, for a share. One thread.
__device__ __forceinline__ u64 epoch_of(const PushedParams& q, const Shared& s, uint32_t share) {
  const ExchangeParams& p = q.reduce.exchange;
  u64 epoch;
  if (share == 0) {
    epoch = take_epoch(p, s.began);
    if (q.pieces > 1) store_relaxed_gpu_u64(&record_of(p)->epoch, epoch);
  } else {
    // Bounded by the deadline of the block that holds ticket 0, which is running. Each acquires what the operation before left by itself:
    // a release by that block would come before the epoch's store, and take as long as a look.
    for (;;) {
      epoch = load_relaxed_gpu_u64(&record_of(p)->epoch);
      const u64 ended = load_acquire_gpu_u64((const void*)(p.mine + CONTEXT_COMPLETED));
      if (epoch != 0 && ((epoch & SKIP) != 0 || ended + 1 >= epoch)) break;
    }
  }
  return epoch;
}

template <typename E, bool PAIR>
__device__ __forceinline__ void run(PushedShared& s, const PushedParams& q) {
  wait_for_stream();
  let_stream_go_on();
  step(STEP_BEGIN);
  const ReduceParams& a = q.reduce;
  const ExchangeParams& p = a.exchange;
  const uint32_t warp = threadIdx.x / 32, warps = blockDim.x / 32 - 1, pieces = q.pieces;
  if (threadIdx.x == 0) {
    s.began = now_ns();
    s.outcome = PENDING;
  }
  const Agreed agreed = agreed_of(p);
  const Cut cut = cut_of<PAIR>(q, agreed.word[1] != 0);
  // Of arguments that all refuse nothing is used.
  const u64 own = cut.chunks != 0 ? ((const u64*)p.out_buffers)[p.rank] + p.out_offset : 0;
  const u64 source = p.input != 0 ? p.input : own, result = p.form == FORM_TWO_SHOT_ALL_REDUCE ? own : a.result;

  // With a block for every piece, one each.
  for (;;) {
    uint32_t share = 0;
    if (pieces > 1) {
      if (threadIdx.x == 0) s.ticket = fetch_add_relaxed_gpu_u32(&record_of(p)->tickets, 1);
      __syncthreads();
      share = s.ticket;
      if (share >= pieces) break;
    }
    const uint32_t first = share * warps + warp - 1, far = pieces * warps;
    Vectors c;
    if (threadIdx.x == 0) s.epoch = epoch_of(q, s, share);
    // Under way while the epoch is taken: nobody else writes them while this call is enqueued.
    if (warp > 0 && first < cut.chunks) c = load_chunk<E>(source, first * CHUNK, cut.bytes);
    __syncthreads();
    step(STEP_MET);
    const u64 epoch = s.epoch & ~SKIP;
    const bool skip = s.epoch & SKIP;
    bool fine = !skip && outcome_of(s) <= GOOD;
    if (fine && warp == 0) {
      if (share == 0) publish(a, agreed, epoch);
      step(STEP_PUBLISHED);
      if (s.outcome == PENDING) {
        const Outcome outcome = agree(s, a, agreed, epoch);
        if (threadIdx.x == 0) *(volatile uint32_t*)&s.outcome = outcome;
      }
      step(STEP_VERDICT);
    } else if (fine) {
      if (q.room_step == 0) fine = agreed_upon(s);
      // One more chunk is on its way before the others' elements of a chunk are waited for. `chunk`: the next to push.
#pragma unroll 1
      for (uint32_t chunk = first; chunk < cut.chunks + far && fine; chunk += far) {
        if (chunk < cut.chunks) {
          if (chunk != first) c = load_chunk<E>(source, chunk * CHUNK, cut.bytes);
          push_own<PAIR>(q, cut, epoch, chunk, c);
          if (p.input != 0) store_chunk<E>(own, chunk * CHUNK, cut.bytes, c);
          step(STEP_PUSHED);
        }
        if (chunk == first) continue;
        const uint32_t before = chunk - far;
        if (first + far < cut.chunks) c = load_chunk<E>(source, before * CHUNK, cut.bytes);
        fine = add_up<E, PAIR>(s, q, cut, epoch, before, c) && agreed_upon(s);
        if (fine) store_chunk<E>(result, before * CHUNK, cut.bytes, c);
      }
    }
    const bool broke = __syncthreads_or(!fine);
    step(STEP_COMPLETE);
    u64 failed = 0;
    if (skip || s.outcome == BAD_WAIT) failed = FAILED_WAIT;
    else if (s.outcome == BAD_VERDICT) failed = FAILED_VERDICT;
    else if (broke) failed = FAILED_WAIT;
    if (pieces == 1) {
      if (warp == 0) end_operation(q, s, failed);
      return;
    }
    if (threadIdx.x == 0) {
      release_gpu<FENCE_PUSH_COUNT>();
      step(STEP_FENCED);
      const u64 counted = fetch_add_relaxed_gpu_u64(&record_of(p)->stages[0], SHARE + failed) + SHARE + failed;
      // What the others counted comes before what the last one does.
      if ((counted & SHARES) == pieces) fence_acq_rel_gpu();
      s.counted = counted;
    }
    __syncthreads();
    step(STEP_COUNTED);
    if ((s.counted & SHARES) == pieces && warp == 0) end_operation(q, s, s.counted & ~SHARES);
    if (gridDim.x >= pieces) return;
  }
  // Every block takes exactly one ticket too many; whoever takes the last of those is the last to touch the count.
  if (threadIdx.x == 0 && s.ticket == pieces + gridDim.x - 1) store_relaxed_gpu_u32(&record_of(p)->tickets, 0);
}

}  // namespace

#define SYMM_PUSHED_KERNEL(name, THREADS, E, PAIR)                                                                 \
  extern "C" __global__ void __launch_bounds__(THREADS, 1) name(const __grid_constant__ PushedParams q) { \
    __shared__ PushedShared s;                                                                            \
    run<E, PAIR>(s, q);                                                                                   \
  }

#define SYMM_PUSHED(name, E)                              \
  SYMM_PUSHED_KERNEL(name##_pair, PAIR_THREADS, E, true) \
  SYMM_PUSHED_KERNEL(name, TEAM_THREADS, E, false)

SYMM_PUSHED(symm_pushed_f16, F16)
SYMM_PUSHED(symm_pushed_bf16, BF16)
SYMM_PUSHED(symm_pushed_f32, F32)
SYMM_PUSHED(symm_pushed_f64, F64)
SYMM_PUSHED(symm_pushed_i32, I32)
SYMM_PUSHED(symm_pushed_i64, I64)
