// What all parts of the exchange kernels share.
//
// The work of a launch is cut into as many shares as it has blocks, and a block does the share that its atomic ticket
// names: share 0 belongs to whoever came first. Blocks wait for flags of other PEs, and for the epoch, which the block
// with share 0 announces: never for a block that may not have started. So one resident block at a time is enough.
#pragma once

#include "../steps.cuh"
#include "symm/exchange.cuh"
#include "symm/params.cuh"
#include "symm/status.cuh"
#include "symm/wait.cuh"

namespace symm {
namespace exchange {

constexpr int MAX_THREADS = 1024;
constexpr int SMALL_BLOCK = 512;
constexpr int MAX_WARPS = MAX_THREADS / 32;
constexpr unsigned ALL = 0xffffffffu;

// Members of a team whose notes a block keeps with their splits.
constexpr uint32_t FEW_RANKS = 32;

// LaunchRecord::finished counts the shares that ended, and those that failed for each reason.
constexpr u64 SHARE = 1;
constexpr u64 SHARES = 0xffff;
constexpr u64 FAILED_WAIT = 1ull << 16;     // a deadline, a peer that gave up, a failure set by somebody else
constexpr u64 FAILED_VERDICT = 1ull << 40;  // all members reach the same verdict: nobody waits for anybody

// A kernel is compiled for one form (`FORM`; 0: whichever the parameters name), and either for notes that hold all splits of
// at most FEW_RANKS members (`FEW_`) or for any number of them. The host chooses (symm_kernels::Entry).
// `AHEAD_`: whether a warp's first rows are read before the notes are here, which pays where there are few, and takes registers.
template <uint32_t FORM, bool FEW_, bool AHEAD_>
struct Kind {
  static constexpr bool FEW = FEW_;
  // Whether many splits are published with the header before them, for members that no note reaches.
  static constexpr bool HEADERS = false;
  // Whether splits say where rows go, and all of them are kept in shared memory.
  static constexpr bool NARROW = FEW_ && FORM >= FORM_ALL_TO_ALL_VDEV;
  static constexpr bool AHEAD = AHEAD_;
  static_assert(NARROW || !AHEAD, "of others a block does not know which rows are whose");
  static __device__ __forceinline__ uint32_t form(const ExchangeParams& p) { return FORM == 0 ? (uint32_t)p.form : FORM; }
};

// For scans, sums and the best finding over a block.
struct Scratch {
  u64 warp_sums[MAX_WARPS];
  u64 total;
  u64 best;
  u64 fault, a, b;
};

template <bool FEW>
struct Shared {
  static constexpr uint32_t RANKS = FEW ? FEW_RANKS : (uint32_t)MAX_RANKS;
  static constexpr uint32_t COLUMNS = FEW ? FEW_SPLITS : (uint32_t)MAX_THREADS;
  // Of the share, from the thread that took its tickets.
  u64 epoch;
  u64 began;  // when the stream reached the operation
  uint32_t share;
  uint32_t stopped;  // a warp stopped pushing
  u64 code, ended;    // the status and the completed count as share 0 saw them
  u64 counted;
  // What the members published; splits only if they are few. index = rank
  u64 header[RANKS][HEADER_WORDS];
  uint32_t pushers[RANKS];
  long long splits[FEW ? RANKS : 1][FEW_SPLITS];
  long long starts[FEW_SPLITS];  // this PE's offsets, if they are few
  // The same splits where all of them are narrow, as nearly always.
  uint32_t rows[FEW ? RANKS : 1][FEW_SPLITS];
  uint32_t before[FEW_SPLITS];  // this PE's, and of these the sum of all before each one
  uint32_t wide;                // one is not narrow
  // What this block read of this PE's splits and offsets before the note was: rows, and the input's rows before them.
  uint32_t own_rows[FEW_SPLITS];
  u64 own_before[FEW_SPLITS];
  uint32_t own_plain;  // they are plainly right
  uint32_t changed;    // the note says something else: they have changed since
  // What this PE found wrong with its own splits.
  u64 fault, fault_a, fault_b;
  Scratch scratch;
  // Bytes for each group of columns, in push order.
  u64 bytes_to[RANKS];
  // Of the columns of a tile, in push order; as many as a block has threads.
  u64 src[COLUMNS];    // address in the input
  u64 dst[COLUMNS];    // address in the destination's output
  u64 bytes[COLUMNS];
  uint32_t pieces[FEW ? 1 : COLUMNS];  // pieces of all columns before this one
};

__device__ __forceinline__ Status status_of(const ExchangeParams& p) {
  return {(StatusRecord*)p.status.device, (StatusRecord*)p.status.host};
}

__device__ __forceinline__ LaunchRecord* record_of(const ExchangeParams& p) { return (LaunchRecord*)p.record; }

__device__ __forceinline__ u64 region(const ExchangeParams& p, uint32_t rank) {
  return rank < NEAR_RANKS ? p.near_regions[rank] : ((const u64*)p.regions)[rank];
}

// Address of a member's data area; 0 where there is no output.
__device__ __forceinline__ u64 out_buffer(const ExchangeParams& p, uint32_t rank) {
  if (rank < NEAR_RANKS) return p.near_buffers[rank];
  return p.out_buffers ? ((const u64*)p.out_buffers)[rank] : 0;
}

__device__ __forceinline__ u64 member(const ExchangeParams& p, uint32_t rank) { return ((const u64*)p.members)[rank]; }

__device__ __forceinline__ uint32_t published_splits(const ExchangeParams& p) { return (uint32_t)p.n_splits; }

// The destination of the `step`-th group of columns: from the right neighbour round to this PE itself.
__device__ __forceinline__ uint32_t destination(const ExchangeParams& p, uint32_t step) {
  const uint32_t d = p.rank + 1 + step;
  return d < p.ranks ? d : d - p.ranks;
}

// Offset, in a context, of the note that `writer` publishes for `epoch`.
__device__ __forceinline__ u64 note_of(const ExchangeParams& p, u64 epoch, uint32_t writer) {
  return p.notes + ((epoch & 1) * p.ranks + writer) * NOTE_BYTES;
}

// Offset of the slot that `writer` publishes many splits into, behind room for a header.
__device__ __forceinline__ u64 slot(const ExchangeParams& p, u64 epoch, uint32_t writer) {
  return p.slots + ((epoch & 1) * p.ranks + writer) * p.slot_bytes;
}

// Offset of the word that `writer` raises when its `share` has pushed.
__device__ __forceinline__ u64 pushed(const ExchangeParams& p, uint32_t writer, uint32_t share) {
  return p.pushed + (writer * MAX_PUSHERS + share) * 8;
}

// This PE's offsets, if they are many.
__device__ __forceinline__ long long* many_starts(const ExchangeParams& p) { return (long long*)(p.local + sizeof(ContextLocal)); }

__device__ __forceinline__ const long long* many_splits(const ExchangeParams& p, u64 epoch, uint32_t writer) {
  return (const long long*)(p.mine + slot(p, epoch, writer) + sizeof(Header));
}

// Split `index` of what `writer` published.
template <bool FEW>
__device__ __forceinline__ long long split_of(const Shared<FEW>& s, const ExchangeParams& p, u64 epoch, uint32_t writer, u64 index) {
  if constexpr (FEW) return s.splits[writer][index];
  else return many_splits(p, epoch, writer)[index];
}

template <bool FEW>
__device__ __forceinline__ u64 start_of(const Shared<FEW>& s, const ExchangeParams& p, u64 index) {
  if constexpr (FEW) return (u64)s.starts[index];
  else return (u64)many_starts(p)[index];
}

// More rows than any memory holds, and few enough that sums over all columns of all members do not wrap: a wild split or
// alignment becomes an output that is too small, never a small number.
constexpr u64 MAX_ROWS = 1ull << 40;

__device__ __forceinline__ u64 at_most(u64 value, u64 limit) { return value < limit ? value : limit; }

// A split of fewer rows than this is narrow: sums over all notes that a block keeps fit 32 bits.
constexpr u64 NARROW_ROWS = 1ull << 21;

// A split as rows; a negative one is refused by whoever published it.
__device__ __forceinline__ u64 as_rows(long long split) { return split < 0 ? 0 : at_most((u64)split, MAX_ROWS); }

__device__ __forceinline__ u64 add_saturating(u64 a, u64 b) { return a + b < a ? ~0ull : a + b; }

template <typename T>
__device__ __forceinline__ T warp_scan_upto(T value) {
  const int lane = threadIdx.x & 31;
#pragma unroll
  for (int step = 1; step < 32; step *= 2) {
    const T other = __shfl_up_sync(ALL, value, step);
    if (lane >= step) value += other;
  }
  return value;
}

// Exclusive prefix sum over a warp; `total` becomes the sum.
template <typename T>
__device__ __forceinline__ T warp_scan(T value, T& total) {
  const T upto = warp_scan_upto(value);
  total = __shfl_sync(ALL, upto, 31);
  return upto - value;
}

// Whether every lane's value is small enough that sums over a warp fit 32 bits: nearly always, and then one word does.
__device__ __forceinline__ bool narrow(u64 value) { return !__any_sync(ALL, value >> 26 != 0); }

// The wide cases, out of line: the code that runs nearly always stays short.
inline __device__ __noinline__ u64 warp_scan_wide(u64 value, u64& total) { return warp_scan<u64>(value, total); }

inline __device__ __noinline__ u64 warp_sum_wide(u64 value) {
#pragma unroll 1
  for (int step = 16; step > 0; step /= 2) value = add_saturating(value, __shfl_xor_sync(ALL, value, step));
  return value;
}

inline __device__ __noinline__ u64 warp_max_wide(u64 value) {
#pragma unroll 1
  for (int step = 16; step > 0; step /= 2) {
    const u64 other = __shfl_xor_sync(ALL, value, step);
    value = other > value ? other : value;
  }
  return value;
}

inline __device__ __noinline__ u64 warp_min_wide(u64 value) { return ~warp_max_wide(~value); }

// Two prefix sums at once.
__device__ __forceinline__ void warp_scan_two(u64& a, u64& b, u64& total_a, u64& total_b) {
  if (narrow(a | b)) {
    u64 total;
    const u64 both = warp_scan<u64>(a << 32 | b, total);
    a = both >> 32, b = (uint32_t)both;
    total_a = total >> 32, total_b = (uint32_t)total;
  } else {
    a = warp_scan_wide(a, total_a);
    b = warp_scan_wide(b, total_b);
  }
}

// The sum over a warp; saturates.
__device__ __forceinline__ u64 warp_sum(u64 value) {
  return narrow(value) ? __reduce_add_sync(ALL, (uint32_t)value) : warp_sum_wide(value);
}

__device__ __forceinline__ u64 warp_max(u64 value) {
  return narrow(value) ? __reduce_max_sync(ALL, (uint32_t)value) : warp_max_wide(value);
}

}  // namespace exchange
}  // namespace symm
