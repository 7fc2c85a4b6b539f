// Launches of a kernel on host threads, and what a test says when something is wrong.
#pragma once

#include <memory>

#include "shim.h"

constexpr unsigned BLOCK_THREADS = 64;

// Whether a launch's blocks run at the same time, or each begins when the one before it has ended: a kernel that waits for
// a block which has not started hangs then.
enum class Order { Together, OneByOne };

// Launches that run at the same time; `join` waits for all of them. `Shared`: what the kernel keeps for each block.
template <typename Shared, typename Params>
class Launches {
 public:
  void add(void (*kernel)(Params), const Params& p, unsigned blocks, Order order = Order::Together) {
    const auto ended = std::make_shared<std::atomic<unsigned>>(0);
    for (unsigned b = 0; b < blocks; b++) {
      EmulatedBlock* block = new EmulatedBlock;
      blocks_.push_back(block);
      block->meeting.expect(BLOCK_THREADS);
      block->warps = std::vector<EmulatedWarp>(BLOCK_THREADS / 32);
      for (EmulatedWarp& warp : block->warps) warp.meeting.expect(32);
      block->shared = malloc(sizeof(Shared));
      memset(block->shared, 0xA5, sizeof(Shared));
      for (unsigned t = 0; t < BLOCK_THREADS; t++) {
        threads_.emplace_back([=] {
          while (order == Order::OneByOne && ended->load() < b * BLOCK_THREADS) sched_yield();
          current_block = block;
          threadIdx.x = t, blockIdx.x = b, gridDim.x = blocks, blockDim.x = BLOCK_THREADS;
          kernel(p);
          block->meeting.leave();
          ended->fetch_add(1);
        });
      }
    }
  }

  void join() {
    for (std::thread& t : threads_) t.join();
    for (EmulatedBlock* block : blocks_) {
      free(block->shared);
      delete block;
    }
    threads_.clear();
    blocks_.clear();
  }

 private:
  std::vector<std::thread> threads_;
  std::vector<EmulatedBlock*> blocks_;
};

// A kernel that hangs ends the program, and what was found before is not lost.
inline void bound_run_time() {
  setvbuf(stdout, nullptr, _IOLBF, 0);
  alarm(120);
}

inline int failures = 0;

#define EXPECT(condition, ...)                                   \
  do {                                                           \
    if (!(condition)) {                                          \
      failures++;                                                \
      printf("%s:%d: %s: ", __FILE__, __LINE__, #condition);     \
      printf(__VA_ARGS__);                                       \
      printf("\n");                                              \
    }                                                            \
  } while (0)
