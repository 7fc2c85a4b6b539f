// What a user's own kernel takes for a word and a signal to a peer and back, with nothing but the project's headers.
#include "symm/handle.cuh"

using namespace symm;

// PE 0 puts 8 bytes and signals; PE 1 waits and answers; `trips` times. One thread. The PE's own data hold what came, in two places by
// turns: each word is compared once the next one is on its way, since a release waits for the loads before it (0.2 us), and is not
// replaced before. `wrong` counts words that were not what their signal announced, and waits that ended with their deadline. Signals are
// values that grow from `base`, so that the kernel runs again and again. `index`: of the signal.
extern "C" __global__ void round_trip(const __grid_constant__ Handle h, u64 index, u64 base, u64 trips, u64 limit_ns, u64* wrong) {
  const Deadline deadline(limit_ns);
  const u64 rank = h.rank;
  u64* const theirs = buffer<u64>(h, 1 - rank);
  const u64* const mine = buffer<u64>(h, rank);
  u64* const their_signal = signal(h, 1 - rank, index);
  u64 bad = 0, came = 0;
  const auto compare = [&] {
    if (came != 0 && load_relaxed_sys_u64(mine + came % 2) != came * 3 + (1 - rank)) bad++;
    came = 0;
  };
  for (u64 trip = base + 1; trip <= base + trips; trip++) {
    for (u64 turn = 0; turn < 2; turn++) {
      if (turn == rank) {
        store_relaxed_sys_u64(theirs + trip % 2, trip * 3 + rank);
        store_release_sys_u64(their_signal, trip);
        compare();
      } else {
        if (!wait_until(h, index, Compare::GreaterEqual, trip, deadline)) bad++;
        came = trip;
      }
    }
  }
  compare();
  if (bad) atomicAdd(wrong, bad);
}

// A flag to the peer and back, nothing else: twice the latency that every row's floor counts in.
extern "C" __global__ void flags(const __grid_constant__ Handle h, u64 index, u64 base, u64 trips, u64 limit_ns, u64* wrong) {
  const Deadline deadline(limit_ns);
  for (u64 trip = base + 1; trip <= base + trips; trip++) {
    for (u64 turn = 0; turn < 2; turn++) {
      if (turn == h.rank) set_signal(h, 1 - h.rank, index, trip);
      else if (!wait_until(h, index, Compare::GreaterEqual, trip, deadline)) atomicAdd(wrong, 1ull);
    }
  }
}
