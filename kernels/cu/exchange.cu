// Every collective of the exchange protocol in one launch.
//
// The simple algorithm: one block takes an epoch, publishes its header and splits to every member and waits for all of theirs;
// works out from what all published where its rows go, or that somebody made a mistake; copies the rows; tells every member
// that it has, waits until all have, writes the table of what it received.
//
//   share 0                            every share                            the share that ends last
//   epoch, own turn                    epoch (from share 0)
//   splits once, check, publish  --->  all notes, verdict, places
//                                      push its part, fence, own word  ---->  all words of all members in
//                                      count                                  zeros if it failed, completed
//
// Small calls are a chain of latencies. On an H200: 0.35 us an atomic or a load past the first-level cache, 0.6 us a
// system fence, 0.6 us a word over NVLink. What departs from the simple algorithm:
//
//  1. Many blocks, each with one share of the work, named by an atomic ticket; the parts are cut by bytes, not by rows,
//     so that a few rows keep all of them busy. Shares that push over the link are apart from those that copy locally: 10 %
//     of a large call. Each block takes one ticket, not tickets until none is left (one atomic), and takes it before the launch ahead
//     has ended, if it started early: tickets are those of the record, which two launches in a row count in two places.
//  2. What is published are words that carry their epoch (Tagged): no fence between words and flag, and whoever sees the
//     flag has the words. Each block keeps all notes in shared memory, a warp a member, and judges and places from there.
//  3. The warps of a block begin with different things: one takes the tickets, one orders the stream's earlier work before
//     what will be published, one reads and checks the splits. Every load that does not depend on another one is under way
//     before the first is used.
//     Of few rows a warp has its first in registers before the notes are here (exchange/ahead.cuh; a kernel of its own, since of more
//     that costs 0.5 us), and the table of what is received is written while the verdict is worked out.
//  4. Every pushing share raises a word of its own on the receivers, as soon as its own rows are delivered: nobody counts the
//     shares of a launch, and fences once more, before the receivers hear of it.
//  5. A wait looks at its words alone eight times before it looks at status, clock and aborted words, with relaxed loads: what an
//     acquire drops, and waits for, is dropped once, when the words are here (0.35 us of a call of 1 token).
//  6. Size of the code. A launch finds the instruction cache cold, and what runs once costs what it takes to fetch. Hence a
//     kernel for each form, one more for many splits, few unrolled loops, the header's words ready in the parameters, and
//     everything that only large or failed calls need in functions that are not in line.
//  7. Addresses of the first eight members travel with the parameters, not in a table.
//  8. The next launch of the stream may start, take its tickets, and wait, while this one runs, if it is small. It is the next but one
//     that counts in the same place: it starts when all blocks of the next have seen this one end.
//  9. Blocks have no more warps than their rows need, and few rows no more blocks than may start early (exchange_few in the host's
//     geometry.rs): eight warps reach every step sooner than 32, 1.5 us in all, and up to 33 blocks sooner than 112, 0.5 to 1 us. Kernels for at most 512 threads have twice the registers, so nothing is kept in local memory: 0.5 us.
// 10. A share tells the receivers before it counts itself, which waits for an atomic.
// 11. Nothing is released behind the last wait: what this PE did has been delivered before its shares counted, what peers pushed before
//     they told. The kernel's end does the rest (0.3 us).
//
// Tried and left out: a dry run of the later code by the idle warps while the first one waits (+1.6 us; +0.5 us with eight
// warps), or by the whole block before the launch ahead has ended (verdict and push: +0.1 us, and neither was faster afterwards), fetching the
// parameters ahead by another warp (+0.8 us), shares named by the block's number instead of a ticket (0.2 us less with few blocks, no
// difference with many; but a block would wait for one that may not have started).
//
// Few rows sent with the note, before the verdict, as words that carry the epoch, into the receiver's context, which places them: one
// word over the link instead of a note, rows and a word one after the other, and no fence. In a kernel of its own, on two H200 and
// with the same blocks: 8.0 us for 1 token, as it is without, 8.4 instead of 8.1 for 2, 9.1 instead of 8.7 for 4, 14.7 instead of 10.5 for
// 16. What it saves on the link it spends on steps that are not there else (finding the words to send, the places of what comes, and
// taking it: 0.6 to 1 us each), on twice the bytes, and on a second copy. Besides, a block that takes rows waits for blocks of a peer
// that may not have started; it had to leave what was late to the share that ends last.
//
// Where the time goes, step by step, is in docs/BENCHMARKS.md; benches/gpu/steps.cu measures it.
#include "exchange/ahead.cuh"

using namespace symm;
using namespace symm::exchange;

namespace {

// Row 0 of the result after a failure. One warp.
__device__ __noinline__ void clear_result(const ExchangeParams& p) {
  if (p.out_splits == 0) return;
  for (u64 k = threadIdx.x; k < p.n_splits; k += 32) ((long long*)p.out_splits)[k] = 0;
  __syncwarp();
}

// Reads the notes of all members into `s`, a warp a member. Returns on every thread whether all came. The whole block.
template <typename K, typename S>
__device__ __forceinline__ bool arrive(S& s, const ExchangeParams& p, u64 epoch, bool host) {
  const uint32_t lane = threadIdx.x & 31, warp = threadIdx.x / 32, warps = blockDim.x / 32;
  const uint32_t n = published_splits(p), few = K::FEW ? n : 0;
  const bool offsets = K::form(p) == FORM_ALL_TO_ALL_VDEV_2D_OFFSET;
  const Waiting w = {epoch, PHASE_ARRIVAL, s.began, host};
  bool fine = true, alike = true;
  // Not first by the warps that have just published.
  const uint32_t begin = (warp + warps - 2 % warps) % warps;
#pragma unroll 1
  for (uint32_t r = begin; r < p.ranks && fine; r += warps) {
    if (r == 0) step(STEP_ARRIVING);
    const Read read = read_note(p, K::form(p), r, few, offsets && r == p.rank ? few : 0, w);
    fine = read.fine, alike = alike && read.alike;
    if (lane < HEADER_WORDS) s.header[r][lane] = read.header;
    if (lane == NOTE_PUSHERS) s.pushers[r] = (uint32_t)at_most(read.header, MAX_PUSHERS);
    if constexpr (K::FEW) {
      if (K::AHEAD && r == p.rank && lane < n && differs_from_own(s, lane, read, offsets)) s.changed = 1;
      if (lane < n) {
        s.splits[r][lane] = (long long)read.split;
        s.rows[r][lane] = (uint32_t)read.split;
        if (read.split >= NARROW_ROWS) s.wide = true;
      }
      if (r == p.rank && n > 0) {
        // Known before the others' notes are here.
        uint32_t total;
        s.before[lane] = warp_scan<uint32_t>(lane < n ? (uint32_t)read.split : 0, total);
      }
      if (offsets && r == p.rank && lane < n) s.starts[lane] = (long long)read.start;
    }
  }
  if (__syncthreads_or(!fine)) return false;
  if constexpr (K::FEW) return true;
  // Where somebody runs something else there are no splits to wait for, and the headers are enough for the verdict.
  if (__syncthreads_or(!alike) || n == 0) return true;
  if (warp == 0) fine = wait_members(p, p.arrival, w);
  return !__syncthreads_or(!fine);
}

// The epoch until which all shares of a member have pushed here.
template <typename S>
struct PushedSeen {
  const S& s;
  const ExchangeParams& p;
  __device__ __forceinline__ u64 operator()(uint32_t r) const {
    u64 all = ~0ull;
    for (uint32_t share = 0; r != p.rank && share < s.pushers[r]; share++) {
      const u64 at = load_relaxed_sys_u64((const void*)(p.mine + pushed(p, r, share)));
      all = at < all ? at : all;
    }
    return all;
  }
};

// One warp waits until all shares of member `r` have pushed.
template <typename S>
__device__ __forceinline__ bool wait_pushed(const S& s, const ExchangeParams& p, uint32_t r, const Waiting& w) {
  const uint32_t lane = threadIdx.x & 31, shares = s.pushers[r];
  for (uint32_t look = 1;; look++) {
    bool late = false;
#pragma unroll 1
    for (uint32_t share = lane; share < shares; share += 32)
      late |= load_relaxed_sys_u64((const void*)(p.mine + pushed(p, r, share))) < w.epoch;
    if (!__any_sync(ALL, late)) {
      fence_acquire_sys();
      return true;
    }
    if (look % LOOKS == 0 && !goes_on(p, w, PushedSeen<S>{s, p})) return false;
  }
}

// Raises this share's word on every receiver. The first warp, behind a fence of each lane.
__device__ __forceinline__ void raise_pushed(const ExchangeParams& p, u64 epoch, uint32_t share) {
#pragma unroll 1
  for (uint32_t r = threadIdx.x; r < p.ranks; r += 32)
    if (r != p.rank) store_relaxed_sys_u64((void*)(region(p, r) + pushed(p, p.rank, share)), epoch);
}

// Ends the operation: the first warp of the share that ended last. `failed`: the reasons of all shares. `released`: the first thread has
// had a fence since all shares did their part.
__device__ __forceinline__ void end_operation(const ExchangeParams& p, u64 epoch, u64 failed, bool released) {
  // After a bad verdict nobody waits for this PE, and the peers are to find that verdict, not a PE that gave up; its
  // next operation tells them.
  if (failed != 0) {
    if (failed < FAILED_VERDICT) give_up(p, epoch);
    clear_result(p);
  }
  if (threadIdx.x != 0) return;
  // The count never falls: an operation that gives up in its ticket's wait may end before an earlier one. The fence that the first
  // thread has behind it makes this a release: another one would be 0.3 us between the last word of a peer and the kernel's end.
  if (released && failed == 0) max_relaxed_gpu_u64((void*)(p.mine + CONTEXT_COMPLETED), epoch);
  else max_release_gpu_u64((void*)(p.mine + CONTEXT_COMPLETED), epoch);
  if (gridDim.x > 1) clear_record(p);
}

template <typename K, typename S>
__device__ __forceinline__ void run(S& s, const ExchangeParams& p) {
  // Under way while the launch ahead ends.
  uint32_t ticket = 0;
  if (threadIdx.x == 0) ticket = take_share(p);
  wait_for_stream();
  let_stream_go_on();
  if (threadIdx.x == 0) step(STEP_BEGIN);
  const uint32_t shares = gridDim.x, warp = threadIdx.x / 32, warps = blockDim.x / 32;
  // Whichever block gets share 0 publishes, and it is not known before the ticket is: the warps of every block make ready.
  const uint32_t writer = warps > 1 ? 1 : 0;
  const bool moves = K::form(p) != FORM_BARRIER;
  u64 word = 0;
  if (warp == writer) {
    // Of a barrier each later store of this warp is a release of what the stream did before this launch. The note of another
    // form says no more of that than that this PE's output may be written; what the stream did with its own memory has ended.
    if (!moves) release_sys<FENCE_CONTEXT_BARRIER>();
    word = draft_word(p);
    step(STEP_DRAFTED);
  }
  if (warp == (warps > 2 ? 2 : 0)) {
    look_around(s, p);
    step(STEP_LOOKED);
  }
  if (K::FEW && warp == warps - 1) {
    prepare_few<K>(s, p);
    step(STEP_PREPARED);
  }
  if (threadIdx.x == 0) {
    s.began = now_ns();
    take_epoch(s, p, ticket);
    if (K::FEW) s.wide = p.row_bytes >> 32 != 0 || p.major_align >= NARROW_ROWS;
    step(STEP_TICKETS);
    if (!K::FEW) s.fault = 0;
  }
  __syncthreads();
  if (threadIdx.x == 0) step(STEP_MET);
  const uint32_t n = published_splits(p);
  const bool offsets = K::form(p) == FORM_ALL_TO_ALL_VDEV_2D_OFFSET;
  const u64 epoch = s.epoch;
  const uint32_t share = s.share;
  bool fine = true;
  if (share == 0) {
    fine = has_turn(s, p);
    if (fine) {
      if (!K::FEW && n > 0) publish_many<K>(s, p, epoch);
      else if (warp == writer) publish_note(s, p, epoch, word, K::FEW ? n : 0, offsets);
      if (warp == writer) step(STEP_PUBLISHED);
    }
  }

  const Role role = role_of(p, share, shares);
  Ahead ahead = {};
  if constexpr (K::AHEAD) {
    if (fine) read_ahead<K>(ahead, s, p, role);
  }
  u64 outcome = SHARE;
  if (!fine || !arrive<K>(s, p, epoch, share == 0)) {
    outcome |= FAILED_WAIT;
  } else {
    if (threadIdx.x == 0) step(STEP_ARRIVED);
    // By a warp that has nothing to do for the verdict, unless a whole block does it; a bad one puts zeros there.
    const bool result = moves && share == shares - 1 && p.out_splits != 0 && n != 0;
    if (K::FEW && result && warp == warps / 2) write_result<K>(s, p, epoch);
    const bool good = verdict<K>(s, p, epoch, tile(role, role.begin));
    if (threadIdx.x == 0) step(STEP_VERDICT);
    if (!good) {
      outcome |= FAILED_VERDICT;
    } else if (moves) {
      const bool more = !K::AHEAD || push_ahead(ahead, s);
      if (more) push<K>(s, p, epoch, role, ahead.done);
      if (!K::FEW && result) write_result<K>(s, p, epoch);
    }
  }

  __syncthreads();
  if (threadIdx.x == 0) step(STEP_PUSHED);
  // Behind the block's barrier each lane's fence covers what the other threads did: everything that this share pushed is
  // delivered before its words are raised, and what it did at all comes before its count.
  bool released = shares > 1;
  if (warp == 0) {
    if (outcome == SHARE && s.stopped) {
      // A warp has stopped pushing; this sets the status where nobody has yet.
      goes_on(p, {epoch, PHASE_DONE, s.began, false}, PushedSeen<S>{s, p});
      outcome |= FAILED_WAIT;
    }
    const bool raises = moves && outcome == SHARE && share < pushers_of(p, shares);
    if (raises) release_sys<FENCE_PUSHED>();
    else if (shares > 1) release_gpu<FENCE_EXCHANGE_COUNT>();
    released = released || raises;
    step(STEP_FENCED);
    // The receivers first: the count waits for its atomic.
    if (raises) raise_pushed(p, epoch, share);
    step(STEP_RAISED);
    u64 counted = outcome;
    if (shares > 1 && threadIdx.x == 0) counted += fetch_add_relaxed_gpu_u64(&record_of(p)->finished, outcome);
    if (threadIdx.x == 0) {
      // What the others counted comes before what the last one does, and before the count of operations that it raises.
      if (shares > 1 && (counted & SHARES) == shares) fence_acq_rel_gpu();
      s.counted = counted;
    }
  }
  __syncthreads();
  if (threadIdx.x == 0) step(STEP_COUNTED);
  if ((s.counted & SHARES) != shares) return;

  u64 failed = s.counted & ~SHARES;
  if (failed == 0 && moves) {
    bool came = true;
#pragma unroll 1
    for (uint32_t r = warp; r < p.ranks && came; r += warps)
      if (r != p.rank) came = wait_pushed(s, p, r, {epoch, PHASE_DONE, s.began, true});
    if (__syncthreads_or(!came)) failed = FAILED_WAIT;
    if (threadIdx.x == 0) step(STEP_COMPLETE);
  }
  if (warp == 0) end_operation(p, epoch, failed, released);
}

}  // namespace

#define SYMM_EXCHANGE(name, FORM, FEW, AHEAD, THREADS)                                                      \
  extern "C" __global__ void __launch_bounds__(THREADS, 1) name(const __grid_constant__ ExchangeParams p) { \
    __shared__ Shared<FEW> s;                                                                               \
    run<Kind<FORM, FEW, AHEAD>>(s, p);                                                                      \
  }

// Twice: blocks of at most 512 threads leave each the registers that the code wants.
#define SYMM_EXCHANGE_FEW(name, FORM)                      \
  SYMM_EXCHANGE(name, FORM, true, false, SMALL_BLOCK)      \
  SYMM_EXCHANGE(name##_large, FORM, true, false, MAX_THREADS)

// And for few bytes.
#define SYMM_EXCHANGE_NARROW(name, FORM) \
  SYMM_EXCHANGE_FEW(name, FORM)          \
  SYMM_EXCHANGE(name##_ahead, FORM, true, true, SMALL_BLOCK)

SYMM_EXCHANGE(symm_exchange, 0, false, false, MAX_THREADS)
SYMM_EXCHANGE(symm_exchange_barrier, FORM_BARRIER, true, false, SMALL_BLOCK)
SYMM_EXCHANGE_FEW(symm_exchange_all_gather, FORM_ALL_GATHER)
SYMM_EXCHANGE_FEW(symm_exchange_all_to_all, FORM_ALL_TO_ALL)
SYMM_EXCHANGE_NARROW(symm_exchange_vdev, FORM_ALL_TO_ALL_VDEV)
SYMM_EXCHANGE_NARROW(symm_exchange_vdev_2d, FORM_ALL_TO_ALL_VDEV_2D)
SYMM_EXCHANGE_NARROW(symm_exchange_vdev_2d_offset, FORM_ALL_TO_ALL_VDEV_2D_OFFSET)
