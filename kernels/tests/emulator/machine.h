// GPUs on one host thread: every emulated thread is a fiber, and a seed decides which of them goes on next, when blocks begin and
// when kernels end. What a thread stores is seen by others when the memory model (model.h) says so, and not before.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>

typedef unsigned long long u64_t;

namespace machine {

constexpr unsigned BLOCK_THREADS = 64;

// One turn of one fiber.
constexpr u64_t TICK_NS = 200;

// Whether a launch's blocks run at the same time, or each begins when the one before it has ended: a kernel that waits for a block
// which has not started hangs then.
enum class Order { Together, OneByOne };

struct Launch {
  std::function<void()> kernel;
  unsigned pe;
  unsigned blocks;
  Order order;
  size_t shared_bytes;            // of each block
  std::function<void()> passed;   // what the stream does behind the kernel
  std::function<bool()> may_begin = nullptr;  // none: at once
  // Its blocks may begin once every block of the launch ahead has let the stream go on, or ended.
  bool early = false;
};

// Begins everything anew; all choices follow from the seed.
void reset(u64_t seed);

// Launches of one stream run one after the other, those of different streams at the same time.
void enqueue(unsigned stream, Launch launch);
unsigned new_stream();

// Runs until all launches have ended and all that was stored is seen. A machine on which nothing can go on, or nothing ends, says so
// and ends the program.
void join();

// A number below `n`, from the machine's own seed.
u64_t below(u64_t n);

// --- what kernels see ---

// Until the launches ahead in the stream have ended, and lets the next one begin.
void wait_for_stream();
void let_stream_go_on();

// Lets others go on.
void yield();
void sleep(u64_t ticks);
u64_t now_ns();

// Meetings of a block and of a warp. `ordered`: what a thread stored before is seen by the others behind it, as bar.sync and
// bar.warp.sync promise; shuffles and votes do not.
void meet_block();
int or_block(int predicate);
void meet_warp(bool ordered);

// What a warp's lanes hand to each other.
u64_t* warp_values();

// Whether an address is a thread's or a block's own.
bool is_private(u64_t at);

}  // namespace machine

struct EmulatedBlock {
  void* shared;
};
struct Index {
  unsigned x;
};
extern Index threadIdx, blockIdx, gridDim, blockDim;
extern EmulatedBlock* current_block;
