// Waits with a deadline. Each is called by one thread or one whole warp and returns false once the team has failed.
#pragma once

#include "symm/status.cuh"

namespace symm {

// A wait looks at its flag alone this many times, about 3 us, before it looks once at everything else: a flag that is
// about to come is seen one load after it came. One look is under way at a time: with two, words of a peer come 0.1 us later and
// pushed sums of 1 MiB take 0.9 us more; with pauses between looks nothing comes sooner (benches/gpu/latency.cu).
constexpr uint32_t LOOKS = 8;

// Looks at the team's status from inside a wait that began at `began`; host memory only once the wait is long.
__device__ __forceinline__ bool status_ok_in_wait(const Status& s, u64 waited) {
  if (!status_ok(s)) return false;
  return waited < SLOW_POLL_NS || status_host_ok(s);
}

// One thread waits until `ready(seen)` is true of what `load()` returns, and sets a timeout if it does not become true
// in time. `failure` holds the names; the time waited and the value seen last are filled in here.
template <typename Load, typename Ready>
__device__ __forceinline__ bool wait_word(const Status& s, u64 limit_ns, Failure failure, Load load, Ready ready) {
  const u64 began = now_ns();
  for (uint32_t look = 1;; look++) {
    const u64 seen = load();
    if (ready(seen)) return true;
    if (look % LOOKS != 0) continue;
    const u64 waited = now_ns() - began;
    if (!status_ok_in_wait(s, waited)) return false;
    if (waited > limit_ns) {
      failure.code = STATUS_TIMEOUT;
      failure.got = seen;
      failure.waited_ns = waited;
      status_fail(s, failure);
      return false;
    }
  }
}

// Whether `seen` compares with `value` as symm_core::backend::Cmp numbers it.
__device__ __forceinline__ bool compare(uint32_t cmp, u64 seen, u64 value) {
  switch (cmp) {
    case 0: return seen == value;
    case 1: return seen != value;
    case 2: return seen > value;
    case 3: return seen <= value;
    case 4: return seen < value;
    default: return seen >= value;
  }
}

}  // namespace symm
