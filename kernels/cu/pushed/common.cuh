// What all parts of the pushed reductions share: how elements are cut, and where they lie in members' contexts.
//
// A warp takes a *chunk* at a time: three vectors of 16 bytes a lane, which travel as four words of twelve bytes and a tag. Chunks,
// pieces and places follow from the number of elements and members alone, so they are the same on all members.
#pragma once

#include "../reduce/begin.cuh"
#include "../reduce/element.cuh"
#include "../reduce/verdict.cuh"

namespace symm {
namespace pushed {

using namespace reduce;

constexpr uint32_t VECTORS = 3;
constexpr uint32_t WORDS = 4;
constexpr uint32_t ROW = 32 * 16;  // of a warp: a vector, or a word, a lane
constexpr uint32_t CHUNK = VECTORS * ROW;
constexpr u64 CHUNK_ROOM = WORDS * ROW;

// What the block knows of the verdict.
enum Outcome : uint32_t { PENDING, GOOD, BAD_WAIT, BAD_VERDICT };

struct PushedShared : Shared {
  uint32_t outcome;
};

// The tag of an epoch's elements; never 0, which is what a word holds from which they were taken.
__device__ __forceinline__ uint32_t tag_of(u64 epoch) { return (uint32_t)epoch | 1u << 31; }

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
__device__ __forceinline__ u64 room_of(const PushedParams& q, u64 epoch) { return q.room + (epoch & 1) * q.room_bytes; }

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

// The words that hold a lane's vectors.
struct Words {
  TaggedElements w[WORDS];
};

// Writes the words of a chunk; those that hold nothing but what lies beyond the elements are left out.
__device__ __forceinline__ void push_chunk(u64 to, const Vectors& c, const Inside& in, uint32_t tag) {
  void* at = (void*)(to + (threadIdx.x & 31) * 16);
  const auto word = [&](uint32_t k) { return (void*)((char*)at + k * ROW); };
  const auto bits = [](int v) { return (uint32_t)v; };
  if (in.v[0]) {
    store_relaxed_sys_elements(word(0), {bits(c.v[0].x), bits(c.v[0].y), bits(c.v[0].z), tag});
    store_relaxed_sys_elements(word(1), {bits(c.v[0].w), bits(c.v[1].x), bits(c.v[1].y), tag});
  }
  if (in.v[1]) store_relaxed_sys_elements(word(2), {bits(c.v[1].z), bits(c.v[1].w), bits(c.v[2].x), tag});
  if (in.v[2]) store_relaxed_sys_elements(word(3), {bits(c.v[2].y), bits(c.v[2].z), bits(c.v[2].w), tag});
}

__device__ __forceinline__ Vectors vectors_of(const Words& w) {
  const auto of = [](uint32_t a, uint32_t b, uint32_t c, uint32_t d) { return int4{(int)a, (int)b, (int)c, (int)d}; };
  return {{of(w.w[0].a, w.w[0].b, w.w[0].c, w.w[1].a), of(w.w[1].b, w.w[1].c, w.w[2].a, w.w[2].b), of(w.w[2].c, w.w[3].a, w.w[3].b, w.w[3].c)}};
}

// All of them are under way at once.
__device__ __forceinline__ void load_words(Words& w, u64 from, const Inside& in) {
  const char* at = (const char*)(from + (threadIdx.x & 31) * 16);
  if (in.v[0]) {
    w.w[0] = load_relaxed_sys_elements(at);
    w.w[1] = load_relaxed_sys_elements(at + ROW);
  }
  if (in.v[1]) w.w[2] = load_relaxed_sys_elements(at + 2 * ROW);
  if (in.v[2]) w.w[3] = load_relaxed_sys_elements(at + 3 * ROW);
}

__device__ __forceinline__ bool missing(const Words& w, const Inside& in, uint32_t tag) {
  return (in.v[0] && (w.w[0].tag != tag || w.w[1].tag != tag)) || (in.v[1] && w.w[2].tag != tag) || (in.v[2] && w.w[3].tag != tag);
}

// Clears words whose elements were taken. What is written here next comes two epochs later, when whoever writes it has seen that this
// PE has arrived at the epoch between.
__device__ __forceinline__ void clear_words(u64 at, const Inside& in) {
  const u64 first = at + (threadIdx.x & 31) * 16;
  const int4 zero = {0, 0, 0, 0};
  if (in.v[0]) {
    store_16((int4*)first, zero);
    store_16((int4*)(first + ROW), zero);
  }
  if (in.v[1]) store_16((int4*)(first + 2 * ROW), zero);
  if (in.v[2]) store_16((int4*)(first + 3 * ROW), zero);
}

// Whether all words of a chunk are at `from`: one thread.
inline __device__ __noinline__ bool has_come(u64 from, uint32_t at, uint32_t bytes, uint32_t tag) {
  for (uint32_t k = 0; k < WORDS; k++)
    for (uint32_t lane = 0; lane < 32; lane++) {
      // The vector that decides whether the word was written.
      const uint32_t vector = at + (k == 0 ? 0 : k - 1) * ROW + lane * 16;
      if (vector < bytes && load_relaxed_sys_elements((const void*)(from + k * ROW + lane * 16)).tag != tag) return false;
    }
  return true;
}

}  // namespace pushed
}  // namespace symm
