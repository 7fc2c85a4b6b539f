// Forms that take: a PE copies, or adds up, blocks of all members' buffers to its own memory, in the protocol of exchange.cu
// with one round of flags: arrive with a header, agree, take, raise done-flags.
//
//   launch         blocks   ticket 0                every share                                the share that ends last
//   whole          many     epoch, turn, publish    arrivals, verdict, its part of all takes   done-flags out and in, complete
//   begin          one      epoch, turn, publish    arrivals, verdict
//     ... the host's copy engines bring the blocks here ...
//   finish         many     -                       its part of the sums                       done-flags out and in, complete
//
// The last two are the low-contention forms: copies run whatever the verdict says, since they read memory that stays mapped
// and write memory that is this PE's own. Between both launches LaunchRecord::begun has the epoch and how it stands; nothing
// else of the stream runs there.
#include "take/copy.cuh"
#include "take/one_stage.cuh"
#include "take/sum.cuh"

using namespace symm;
using namespace symm::take;

namespace {

// The members' blocks, or what copy engines brought of them.
__device__ __forceinline__ void find_sources(Shared& s, const TakeParams& t) {
  if (t.sources == 0) return;
  for (uint32_t r = threadIdx.x; r < t.reduce.exchange.ranks; r += THREADS) s.buffer[r] = t.sources + r * t.source_step;
  __syncthreads();
}

// One launch. `E`: the element type; void where blocks are copied.
template <typename E>
__device__ __forceinline__ void run(Shared& s, const TakeParams& t) {
  const ExchangeParams& p = t.reduce.exchange;
  one_stage(s, t.reduce, t.phase, [&](uint32_t share, uint32_t shares) {
    find_sources(s, t);
#pragma unroll 1
    for (uint32_t k = 0; k < t.count; k++) {
      if constexpr (is_void<E>::value) copy_take(s, t.takes[k], p.rank, p.ranks, share, shares);
      else sum_take<E>(s, t.takes[k], p.ranks, t.divisor, share, shares);
    }
  });
}

}  // namespace

#define SYMM_TAKE(name, E)                                                                              \
  extern "C" __global__ void __launch_bounds__(THREADS, 1) name(const __grid_constant__ TakeParams t) { \
    __shared__ Shared s;                                                                                \
    run<E>(s, t);                                                                                       \
  }

SYMM_TAKE(symm_take_copy, void)
SYMM_TAKE(symm_take_f16, F16)
SYMM_TAKE(symm_take_bf16, BF16)
SYMM_TAKE(symm_take_f32, F32)
SYMM_TAKE(symm_take_f64, F64)
SYMM_TAKE(symm_take_i32, I32)
SYMM_TAKE(symm_take_i64, I64)
