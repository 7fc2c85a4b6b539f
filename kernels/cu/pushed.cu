// one_shot_all_reduce of a few KiB whose elements are pushed with the note, instead of being read once all notes are here.
//
// One block. Each PE writes its elements into its slot on every member, as words that carry the epoch, at the moment it publishes its
// note; whoever has all words of all members adds up and is done. No element is read over the link, and there are no done-flags:
// nobody reads a buffer but its owner, and a slot is written again two epochs later, when its owner has arrived at the epoch
// between. So what is left is one word over the link (0.6 us on an H200) where the read form takes a note, a read there and back, a
// fence and a flag.
//
// All members run this kernel or none does: the host decides by the setting, which is the same everywhere, and by what the context's
// slots hold, which is what the number of elements and the layout say.
#include "reduce/begin.cuh"
#include "reduce/move.cuh"
#include "reduce/verdict.cuh"

using namespace symm;
using namespace symm::reduce;

namespace {

// What a slot's words are tagged with. A slot may hold the splits of an earlier operation, and none of those has this value: it is
// negative, so the operation would have been refused.
__device__ __forceinline__ u64 tag_of(u64 epoch) { return ~epoch; }

// Eight bytes of elements.
template <typename E>
union Word {
  static constexpr uint32_t COUNT = 8 / sizeof(typename E::Stored);
  u64 raw;
  typename E::Stored elements[COUNT];
};

// Elements from word `k` of `count` elements; what is beyond the last one is 0.
template <typename E>
__device__ __forceinline__ Word<E> load_word(u64 from, u64 k, u64 count) {
  Word<E> w;
  w.raw = 0;
  const u64 first = k * Word<E>::COUNT;
#pragma unroll
  for (uint32_t i = 0; i < Word<E>::COUNT; i++)
    if (first + i < count) w.elements[i] = ((const typename E::Stored*)from)[first + i];
  return w;
}

template <typename E>
__device__ __forceinline__ void store_word(u64 to, u64 k, u64 count, const Word<E>& w) {
  const u64 first = k * Word<E>::COUNT;
#pragma unroll
  for (uint32_t i = 0; i < Word<E>::COUNT; i++)
    if (first + i < count) ((typename E::Stored*)to)[first + i] = w.elements[i];
}

__device__ __forceinline__ u64 pushed_word(const ExchangeParams& p, u64 epoch, uint32_t writer, u64 k) {
  return exchange::slot(p, epoch, writer) + 16 * k;
}

// The epoch up to which a member's words are here.
struct PushedSeen {
  const ExchangeParams& p;
  u64 epoch, words;
  __device__ __forceinline__ u64 operator()(uint32_t r) const {
    for (u64 k = 0; r != p.rank && k < words; k++)
      if (load_relaxed_sys_tagged((const void*)(p.mine + pushed_word(p, epoch, r, k))).tag != tag_of(epoch)) return epoch - 1;
    return epoch;
  }
};

// Waits for word `k` of a member, of each lane one that is `real`. The whole warp; false, on every lane, if the wait failed.
__device__ __forceinline__ bool await_word(const ExchangeParams& p, const Waiting& w, uint32_t rank, u64 k, bool real, u64 words, u64& word) {
  const u64 at = p.mine + pushed_word(p, w.epoch, rank, real ? k : 0);
  for (uint32_t look = 1;; look++) {
    Tagged t = {0, tag_of(w.epoch)};
    if (real) t = load_relaxed_sys_tagged((const void*)at);
    word = t.word;
    if (!__any_sync(ALL, t.tag != tag_of(w.epoch))) return true;
    if (look % LOOKS == 0 && !exchange::goes_on(p, w, PushedSeen{p, w.epoch, words})) return false;
  }
}

template <typename E>
__device__ __forceinline__ void run(Shared& s, const ReduceParams& q) {
  wait_for_stream();
  let_stream_go_on();
  step(STEP_BEGIN);
  const ExchangeParams& p = q.exchange;
  const bool first_warp = threadIdx.x < 32;
  if (threadIdx.x == 0) {
    s.began = now_ns();
    s.epoch = take_epoch(p, s.began);
  }
  // Under way while the epoch is taken. Elements outside the allocation are not read: every member's verdict refuses that.
  const u64 count = p.in_rows, bytes = count * sizeof(typename E::Stored), words = (count + Word<E>::COUNT - 1) / Word<E>::COUNT;
  const u64 own = ((const u64*)p.out_buffers)[p.rank] + p.out_offset, source = p.input != 0 ? p.input : own;
  const bool inside = p.invalid == 0 && p.out_offset <= p.out_bytes && bytes <= p.out_bytes - p.out_offset && 16 * words <= p.slot_bytes;
  Word<E> mine;
  mine.raw = 0;
  if (inside && threadIdx.x < words) mine = load_word<E>(source, threadIdx.x, count);
  __syncthreads();
  step(STEP_MET);
  const u64 epoch = s.epoch & ~SKIP;
  u64 failed = s.epoch & SKIP ? FAILED_WAIT : 0;

  if (failed == 0) {
    if (first_warp) publish(q, epoch, false);
    step(STEP_PUBLISHED);
    // The last warps, which publish nothing, begin.
#pragma unroll 1
    for (u64 k = threadIdx.x; inside && k < words; k += THREADS) {
      const Word<E> w = k == threadIdx.x ? mine : load_word<E>(source, k, count);
#pragma unroll 1
      for (uint32_t hop = 0; hop + 1 < p.ranks; hop++)
        store_relaxed_sys_tagged((void*)(region(p, destination(p, hop)) + pushed_word(p, epoch, p.rank, k)), {w.raw, tag_of(epoch)});
      if (p.input != 0) store_word<E>(own, k, count, w);
    }
    step(STEP_PUSHED);
    const Waiting w = {epoch, PHASE_ARRIVAL, s.began, true};
    if (!read_notes(s, p, w)) failed = FAILED_WAIT;
    else if (!verdict(s, q, epoch)) failed = FAILED_VERDICT;
    step(STEP_VERDICT);
    bool fine = failed == 0;
#pragma unroll 1
    for (u64 first = threadIdx.x & ~31u; fine && first < words; first += THREADS) {
      const u64 k = first + (threadIdx.x & 31);
      const bool real = k < words;
      typename E::Wide sums[Word<E>::COUNT];
#pragma unroll
      for (uint32_t i = 0; i < Word<E>::COUNT; i++) sums[i] = E::nothing();
#pragma unroll 1
      for (uint32_t r = 0; r < p.ranks && fine; r++) {
        Word<E> word;
        word.raw = 0;
        if (r == p.rank) word = real ? load_word<E>(source, k, count) : word;
        else fine = await_word(p, w, r, k, real, words, word.raw);
#pragma unroll
        for (uint32_t i = 0; i < Word<E>::COUNT; i++) sums[i] = E::add(sums[i], E::widen(word.elements[i]));
      }
      Word<E> sum;
#pragma unroll
      for (uint32_t i = 0; i < Word<E>::COUNT; i++) sum.elements[i] = E::round(sums[i]);
      if (fine && real) store_word<E>(q.result, k, count, sum);
    }
    if (__syncthreads_or(!fine) && failed == 0) failed = FAILED_WAIT;
  }
  step(STEP_COMPLETE);
  if (!first_warp) return;
  // After a bad verdict nobody waits for this PE, and the peers are to find that verdict, not a PE that gave up.
  if (failed != 0 && failed < FAILED_VERDICT) give_up(p, epoch);
  // The count never falls: an operation that gives up in its ticket's wait may end before an earlier one.
  if (threadIdx.x == 0) max_release_gpu_u64((void*)(p.mine + CONTEXT_COMPLETED), epoch);
}

}  // namespace

#define SYMM_PUSHED(name, E)                                                                              \
  extern "C" __global__ void __launch_bounds__(THREADS, 1) name(const __grid_constant__ ReduceParams q) { \
    __shared__ Shared s;                                                                                  \
    run<E>(s, q);                                                                                         \
  }

SYMM_PUSHED(symm_pushed_f16, F16)
SYMM_PUSHED(symm_pushed_bf16, BF16)
SYMM_PUSHED(symm_pushed_f32, F32)
SYMM_PUSHED(symm_pushed_f64, F64)
SYMM_PUSHED(symm_pushed_i32, I32)
SYMM_PUSHED(symm_pushed_i64, I64)
