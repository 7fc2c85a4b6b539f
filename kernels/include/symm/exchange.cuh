// What every PE publishes to every member at the start of a collective, and where it lies in a context.
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
};

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
