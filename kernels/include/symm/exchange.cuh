// What every PE publishes to every member at the start of a collective, and where it lies in a context.
//
// It is published as a *note*: words that each carry the epoch (Tagged), so that they need neither a fence before a flag nor a
// look at the flag before a look at the words. A context has two notes a member, by the parity of the epoch. More splits than a
// note holds lie in the member's slot, announced by its arrival word.
#pragma once

#include "symm/memory.cuh"

namespace symm {

// The layout of symm_core::layout::Header; the PE's splits (i64) follow it in the slot.
struct Header {
  u64 epoch;
  u64 form;
  u64 dtype;
  u64 row_bytes;
  u64 ne;
  u64 major_align;
  u64 invalid;
  u64 invalid_a;
  u64 invalid_b;
  u64 out_id;
  u64 out_offset;
  u64 out_rows;
  u64 in_rows;
  u64 n_splits;
  u64 root;
  u64 lead;
};
static_assert(sizeof(Header) == 128, "the host has this layout");

constexpr int HEADER_WORDS = sizeof(Header) / 8;

// Its words, in order.
enum Word : uint32_t {
  WORD_EPOCH,
  WORD_FORM,
  WORD_DTYPE,
  WORD_ROW_BYTES,
  WORD_NE,
  WORD_MAJOR_ALIGN,
  WORD_INVALID,
  WORD_INVALID_A,
  WORD_INVALID_B,
  WORD_OUT_ID,
  WORD_OUT_OFFSET,
  WORD_OUT_ROWS,
  WORD_IN_ROWS,
  WORD_N_SPLITS,
  WORD_ROOT,
  WORD_LEAD,
};
static_assert(WORD_LEAD + 1 == HEADER_WORDS, "all of them");

// Words of a note.
constexpr uint32_t NOTE_PUSHERS = HEADER_WORDS;  // behind the header: how many shares of the writer's launch push to others
constexpr uint32_t NOTE_AGREED = 17;             // two words in which members that push elements must agree
constexpr uint32_t NOTE_SPLITS = 32;             // the splits, if they are few
constexpr uint32_t NOTE_STARTS = 64;             // their offsets; in the writer's own copy only
constexpr uint32_t NOTE_WORDS = 96;
constexpr uint32_t FEW_SPLITS = 32;

// The layout of symm_core::layout::ContextLayout.
constexpr u64 NOTE_BYTES = NOTE_WORDS * sizeof(Tagged);

// Shares of a launch that may push to others, each of which has a word of its own on every member to say that it has.
constexpr uint32_t MAX_PUSHERS = 256;

// symm_core::backend::Form
enum Form : uint32_t {
  FORM_BARRIER = 16,
  FORM_ALL_GATHER = 17,
  FORM_ALL_TO_ALL = 18,
  FORM_ALL_TO_ALL_VDEV = 19,
  FORM_ALL_TO_ALL_VDEV_2D = 20,
  FORM_ALL_TO_ALL_VDEV_2D_OFFSET = 21,
  FORM_BROADCAST = 22,
  FORM_REDUCE_SCATTER = 23,
  FORM_ONE_SHOT_ALL_REDUCE = 24,
  FORM_TWO_SHOT_ALL_REDUCE = 25,
  FORM_TWO_SHOT_ALL_REDUCE_OUT = 26,
  FORM_ALL_TO_ALL_ND = 27,
  FORM_REDUCE_SCATTER_OFFSET = 28,
  FORM_TILE_REDUCE = 29,
  FORM_MULTI_ROOT_TILE_REDUCE = 30,
  FORM_LOW_CONTENTION_ALL_GATHER = 31,
  FORM_LOW_CONTENTION_ALL_TO_ALL = 32,
  FORM_LOW_CONTENTION_REDUCE_SCATTER = 33,
  FORM_PLANNED_ALL_TO_ALL_VDEV = 34,
};

// Offsets of a context's own counters.
constexpr u64 CONTEXT_TICKET = 0;
constexpr u64 CONTEXT_COMPLETED = 8;

// More members than one host has GPUs, so that what a block keeps for each of them fits its shared memory.
constexpr int MAX_RANKS = 128;

}  // namespace symm
