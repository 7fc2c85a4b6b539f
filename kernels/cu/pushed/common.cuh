// What all parts of the pushed reductions share: how elements are cut, and where they lie in members' contexts.
//
// A warp takes a *chunk* at a time: three vectors of 16 bytes a lane. Each vector travels as a *word*, written and read at once, from
// which a constant, the *key*, was taken by exclusive or: a word of zeros is none, and that is what a word holds whose elements were
// taken. A vector that is the key itself makes such a word, so behind the words of a chunk lies one more, written only if there are such
// vectors, that says where. Chunks, pieces and places follow from the number of elements and members alone, so they are the same on all
// members.
#pragma once

#include "../reduce/begin.cuh"
#include "../reduce/element.cuh"
#include "../reduce/verdict.cuh"

namespace symm {
namespace pushed {

using namespace reduce;

constexpr uint32_t VECTORS = 3;
constexpr uint32_t ROW = 32 * 16;  // of a warp: a vector, or a word, a lane
constexpr uint32_t CHUNK = VECTORS * ROW;
constexpr u64 CHUNK_ROOM = CHUNK + 128;  // the words, the one behind them, and what is left of the line

// What the block knows of the verdict.
enum Outcome : uint32_t { PENDING, GOOD, BAD_WAIT, BAD_VERDICT };

struct PushedShared : Shared {
  uint32_t outcome;
};

// How the elements of a call are cut. Those of one call fit 32 bits (symm_core::Config).
struct Cut {
  uint32_t bytes;   // 0 where this PE has arguments that all refuse
  uint32_t chunks;
  uint32_t stride;  // of a writer's chunks to the next writer's, in the room of a member
};

template <bool PAIR>
__device__ __forceinline__ Cut cut_of(const PushedParams& q, bool fine) {
  const ExchangeParams& p = q.reduce.exchange;
  const bool two_hops = !PAIR && q.two_hops;
  const uint32_t bytes = (uint32_t)p.in_rows * (uint32_t)p.row_bytes, chunks = (bytes + CHUNK - 1) / CHUNK;
  const uint32_t stride = two_hops ? (chunks + p.ranks - 1) / p.ranks : chunks;
  const u64 needed = ((u64)(p.ranks - 1) * stride + (two_hops ? chunks : 0)) * CHUNK_ROOM;
  return fine && needed <= q.room_bytes ? Cut{bytes, chunks, stride} : Cut{0, 0, 0};
}

// Where the room of an epoch begins, in a member's context.
__device__ __forceinline__ u64 room_of(const PushedParams& q, u64 epoch) { return q.room + (epoch & 1) * q.room_step; }

// Where, in the room of `reader`, a chunk of `writer` lies, the `index`-th of its chunks there.
__device__ __forceinline__ u64 place(uint32_t stride, uint32_t writer, uint32_t reader, uint32_t index) {
  return ((u64)(writer < reader ? writer : writer - 1) * stride + index) * CHUNK_ROOM;
}

// Where the sums of a chunk lie, in the room of everybody who has not made them.
__device__ __forceinline__ u64 place_of_sums(uint32_t stride, uint32_t ranks, uint32_t chunk) {
  return ((u64)(ranks - 1) * stride + chunk) * CHUNK_ROOM;
}

// Three vectors of a lane, 512 bytes apart.
struct Vectors {
  int4 v[VECTORS];
};

// Whether this lane's vectors of a chunk begin inside the elements.
struct Inside {
  bool v[VECTORS];
};

__device__ __forceinline__ Inside inside_of(uint32_t at, uint32_t bytes) {
  const uint32_t first = at + (threadIdx.x & 31) * 16;
  return {{first < bytes, first + ROW < bytes, first + 2 * ROW < bytes}};
}

// The same, or none of them.
__device__ __forceinline__ Inside in_if(const Inside& in, bool any) { return {{in.v[0] && any, in.v[1] && any, in.v[2] && any}}; }

// A vector that is not whole, or not at a multiple of 16 bytes: elements beyond the last one are 0.
template <typename E>
__device__ __noinline__ int4 load_ragged(u64 from, uint32_t left) {
  Vector<E> v;
  v.raw = {0, 0, 0, 0};
#pragma unroll
  for (uint32_t i = 0; i < Vector<E>::COUNT; i++)
    if ((i + 1) * sizeof(typename E::Stored) <= left) v.elements[i] = ((const typename E::Stored*)from)[i];
  return v.raw;
}

template <typename E>
__device__ __noinline__ void store_ragged(u64 to, uint32_t left, int4 raw) {
  Vector<E> v;
  v.raw = raw;
#pragma unroll
  for (uint32_t i = 0; i < Vector<E>::COUNT; i++)
    if ((i + 1) * sizeof(typename E::Stored) <= left) ((typename E::Stored*)to)[i] = v.elements[i];
}

// Whether a chunk's vectors are whole, and lie at multiples of 16 bytes. The same on every lane.
__device__ __forceinline__ bool whole(u64 memory, uint32_t at, uint32_t bytes) { return at + CHUNK <= bytes && memory % 16 == 0; }

// The chunk that begins at byte `at` of the elements in `from`.
template <typename E>
__device__ __forceinline__ Vectors load_chunk(u64 from, uint32_t at, uint32_t bytes) {
  const uint32_t first = at + (threadIdx.x & 31) * 16;
  Vectors c;
  if (whole(from, at, bytes)) {
#pragma unroll
    for (uint32_t k = 0; k < VECTORS; k++) c.v[k] = load_16((const int4*)(from + first + k * ROW));
  } else {
#pragma unroll
    for (uint32_t k = 0; k < VECTORS; k++) {
      const uint32_t here = first + k * ROW;
      c.v[k] = load_ragged<E>(from + here, here < bytes ? bytes - here : 0);
    }
  }
  return c;
}

template <typename E>
__device__ __forceinline__ void store_chunk(u64 to, uint32_t at, uint32_t bytes, const Vectors& c) {
  const uint32_t first = at + (threadIdx.x & 31) * 16;
  if (whole(to, at, bytes)) {
#pragma unroll
    for (uint32_t k = 0; k < VECTORS; k++) store_16((int4*)(to + first + k * ROW), c.v[k]);
  } else {
#pragma unroll
    for (uint32_t k = 0; k < VECTORS; k++) {
      const uint32_t here = first + k * ROW;
      store_ragged<E>(to + here, here < bytes ? bytes - here : 0, c.v[k]);
    }
  }
}

// --- words ---

// Four NaNs that arithmetic does not make, and so not what one often finds in a row. Right is any key.
constexpr uint32_t KEY_A = 0x7fb5e1d3, KEY_B = 0x7fa93c6b, KEY_C = 0x7fb2d74f, KEY_D = 0x7fad4e95;

__device__ __forceinline__ Elements word_of(int4 v) {
  return {(uint32_t)v.x ^ KEY_A, (uint32_t)v.y ^ KEY_B, (uint32_t)v.z ^ KEY_C, (uint32_t)v.w ^ KEY_D};
}

__device__ __forceinline__ int4 vector_of(const Elements& w) {
  return {(int)(w.a ^ KEY_A), (int)(w.b ^ KEY_B), (int)(w.c ^ KEY_C), (int)(w.d ^ KEY_D)};
}

__device__ __forceinline__ bool empty(const Elements& w) { return (w.a | w.b | w.c | w.d) == 0; }

// The words that hold a lane's vectors.
struct Words {
  Elements w[VECTORS];
};

// Says which vectors of a chunk are the key: a bit for each lane. The last word is 1, so this one is not empty. One warp.
__device__ __forceinline__ void push_keys(u64 to, unsigned first, unsigned second, unsigned third) {
  if ((threadIdx.x & 31) == 0) store_relaxed_sys_elements((void*)(to + CHUNK), {first, second, third, 1});
}

// Writes the words of a chunk; those that hold nothing but what lies beyond the elements are left out.
__device__ __forceinline__ void push_chunk(u64 to, const Vectors& c, const Inside& in) {
  const u64 at = to + (threadIdx.x & 31) * 16;
  bool key[VECTORS];
#pragma unroll
  for (uint32_t k = 0; k < VECTORS; k++) {
    const Elements w = word_of(c.v[k]);
    key[k] = in.v[k] && empty(w);
    if (in.v[k]) store_relaxed_sys_elements((void*)(at + k * ROW), w);
  }
  if (__any_sync(ALL, key[0] || key[1] || key[2]))
    push_keys(to, __ballot_sync(ALL, key[0]), __ballot_sync(ALL, key[1]), __ballot_sync(ALL, key[2]));
}

__device__ __forceinline__ Vectors vectors_of(const Words& w) { return {{vector_of(w.w[0]), vector_of(w.w[1]), vector_of(w.w[2])}}; }

// All of them are under way at once. What lies beyond the elements counts as come.
__device__ __forceinline__ Words load_words(u64 from, const Inside& in) {
  const u64 at = from + (threadIdx.x & 31) * 16;
  Words w;
#pragma unroll
  for (uint32_t k = 0; k < VECTORS; k++) {
    w.w[k] = {1, 1, 1, 1};
    if (in.v[k]) w.w[k] = load_relaxed_sys_elements((const void*)(at + k * ROW));
  }
  return w;
}

// Which of a lane's vectors of a chunk are known to be the key, as bits, and on every lane whether there is a word that says so.
typedef uint32_t Keys;
constexpr Keys KEYS_HERE = 1u << 31;

// One look at words in so many is also one for keys.
constexpr uint32_t KEY_LOOKS = 4;
// And after so many, a few us, one is for all else that can end a wait; it takes as long as two.
constexpr uint32_t WORD_LOOKS = 32;
// Of so many of those, one is at host memory, too: every 1.5 ms or so for each warp.
constexpr uint32_t HOST_TURNS = 64;
static_assert(VECTORS == 3, "and that word says it of as many");

__device__ __forceinline__ Elements load_keys(u64 from, bool any) {
  Elements w = {0, 0, 0, 0};
  if (any) w = load_relaxed_sys_elements((const void*)(from + CHUNK));
  return w;
}

__device__ __forceinline__ Keys keys_of(const Elements& w) {
  if (!__all_sync(ALL, w.d != 0)) return 0;
  const uint32_t lane = threadIdx.x & 31;
  return (w.a >> lane & 1) | (w.b >> lane & 1) << 1 | (w.c >> lane & 1) << 2 | KEYS_HERE;
}

__device__ __forceinline__ bool missing(const Words& w, Keys keys) {
  bool some = false;
#pragma unroll
  for (uint32_t k = 0; k < VECTORS; k++) some |= empty(w.w[k]) && (keys >> k & 1) == 0;
  return some;
}

// Empties words whose elements were taken. What is written here next comes two epochs later, when whoever writes it has seen that this
// PE has arrived at the epoch between.
__device__ __forceinline__ void clear_words(u64 at, const Inside& in, Keys keys) {
  const u64 first = at + (threadIdx.x & 31) * 16;
  const int4 zero = {0, 0, 0, 0};
#pragma unroll
  for (uint32_t k = 0; k < VECTORS; k++)
    if (in.v[k]) store_16((int4*)(first + k * ROW), zero);
  if (keys != 0 && (threadIdx.x & 31) == 0) store_16((int4*)(at + CHUNK), zero);
}

// Whether all words of a chunk are at `from`: one thread.
inline __device__ __noinline__ bool has_come(u64 from, uint32_t at, uint32_t bytes) {
  const Elements keys = load_relaxed_sys_elements((const void*)(from + CHUNK));
  const uint32_t known[VECTORS] = {keys.a, keys.b, keys.c};
  for (uint32_t k = 0; k < VECTORS; k++)
    for (uint32_t lane = 0; lane < 32; lane++) {
      const uint32_t here = k * ROW + lane * 16;
      if (at + here >= bytes || (known[k] >> lane & 1) != 0) continue;
      if (empty(load_relaxed_sys_elements((const void*)(from + here)))) return false;
    }
  return true;
}

}  // namespace pushed
}  // namespace symm
