// Which of a member's arguments is not rank 0's, for the error. Only an operation that has failed comes here.
#pragma once

#include "common.cuh"

namespace symm {
namespace exchange {

struct Difference {
  u64 fault, expected, got;
};

__device__ __forceinline__ u64 form_fault(uint32_t field) { return FAULT_FORM | (u64)field << 8; }

// The first of the `compared` words that differs, as symm_core::splits::verdict names it: the words of a header lie in the
// order of the fields. FAULT_FORM alone where none does, since the words then do not belong together.
inline __device__ __noinline__ Difference difference(const u64* first, const u64* theirs, unsigned compared) {
  static_assert(WORD_DTYPE + 3 == WORD_MAJOR_ALIGN && WORD_IN_ROWS + 3 == WORD_LEAD, "the order of the fields");
  uint32_t word = WORD_DTYPE;
  while (word < HEADER_WORDS && ((compared >> word & 1) == 0 || first[word] == theirs[word])) word++;
  if (word == HEADER_WORDS) return {FAULT_FORM, 0, 0};
  const u64 expected = first[word], got = theirs[word];
  // A digest's numbers say nothing; a plan's lies above the dtype.
  const bool digest = word == WORD_DTYPE ? (uint32_t)expected == (uint32_t)got : word == WORD_LEAD && theirs[WORD_FORM] != FORM_REDUCE_SCATTER;
  if (digest) return {form_fault(FIELD_SHAPE), 0, 0};
  if (word == WORD_DTYPE) return {form_fault(FIELD_DTYPE), (uint32_t)expected, (uint32_t)got};
  const uint32_t field = word < WORD_IN_ROWS ? FIELD_DTYPE + (word - WORD_DTYPE) : FIELD_LENGTH + (word - WORD_IN_ROWS);
  return {form_fault(field), expected, got};
}

}  // namespace exchange
}  // namespace symm
