// A program of random calls whose forms and types take turns, and what their headers say.
#pragma once

#include "../launches.h"
#include "../world.h"
#include "oracle.h"

// Number of the next call.
static u64 turn;

static void fill_header(ReduceParams& q) {
  const ExchangeParams& p = q.exchange;
  const Header h = {0, p.form, p.dtype, p.row_bytes, p.ne, p.major_align, p.invalid, 0, 0, p.out_id, p.out_offset, p.out_rows,
                    p.in_rows, 0, q.root, q.lead};
  memcpy(q.header, &h, sizeof h);
}

// Makes as many calls as the command line says, then what `failures_of` does. With every seed the first call is
// `turns_a_seed` further on.
template <typename Call, typename Failures>
static int random_calls(int argc, char** argv, u64 turns_a_seed, size_t buffer_bytes, Failures failures_of) {
  if (argc < 3) return 2;
  begin_test(argv[2]);
  if (argc > 3) symm::WITHOUT = (uint32_t)atoi(argv[3]);
  const u64 calls = (u64)atoll(argv[1]), seed = (u64)atoll(argv[2]);
  random_words.seed(seed);
  turn = turns_a_seed * seed;
  const u64 begin = turn, end = begin + calls;
  while (turn < end) {
    // The first team has more members than travel with the parameters and than are added at once.
    const bool large = turn == begin;
    World world(large ? NEAR_RANKS + 3 : 1 + (unsigned)below(5), 0, buffer_bytes);
    // A damaged call is a team's last.
    for (int call = 0; call < 6 && turn < end; call++)
      if (!Call(world, large ? 1 : 4).check()) break;
  }
  failures_of();
  printf("%d failures\n", failures);
  return failures != 0;
}
