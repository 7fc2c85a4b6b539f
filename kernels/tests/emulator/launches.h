// Launches of a kernel on the machine, and what a test says when something is wrong.
#pragma once

#include <unistd.h>

#include "model.h"
#include "shim.h"
#include "symm/params.cuh"

using machine::Order;

inline unsigned rank_of(const symm::ExchangeParams& p) { return p.rank; }
inline unsigned rank_of(const symm::ReduceParams& q) { return q.exchange.rank; }
inline unsigned rank_of(const symm::TakeParams& t) { return t.reduce.exchange.rank; }
inline unsigned rank_of(const symm::PlanParams& t) { return t.reduce.exchange.rank; }

// A kernel that hangs ends the program, and what was found before is not lost.
inline void begin_test(const char* seed) {
  machine::reset((u64_t)atoll(seed));
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

// Launches that run at the same time; `join` waits for all of them. `Shared`: what the kernel keeps for each block.
template <typename Shared, typename Params>
class Launches {
 public:
  void add(void (*kernel)(Params), const Params& p, unsigned blocks, Order order = Order::Together) {
    const size_t launch = watched_.size();
    pe_ = rank_of(p);
    watched_.emplace_back();
    const auto passed = [this, launch] {
      for (Watched& w : watched_[launch]) w.then.assign(w.at, w.at + w.bytes);
    };
    machine::enqueue(machine::new_stream(), {[=] { kernel(p); }, pe_, blocks, order, sizeof(Shared), passed});
  }

  // Memory of the PE of the last launch that must not change any more once the stream has passed that launch.
  template <typename T>
  void watch(const std::vector<T>& memory) {
    model::own(pe_, memory.data(), memory.size() * sizeof(T));
    watched_.back().push_back({(const unsigned char*)memory.data(), memory.size() * sizeof(T), {}});
  }

  void join() {
    machine::join();
    for (size_t launch = 0; launch < watched_.size(); launch++)
      for (const Watched& w : watched_[launch]) EXPECT(memcmp(w.at, w.then.data(), w.bytes) == 0, "launch %zu: written after it had passed", launch);
    watched_.clear();
  }

 private:
  struct Watched {
    const unsigned char* at;
    size_t bytes;
    std::vector<unsigned char> then;
  };
  std::vector<std::vector<Watched>> watched_;
  unsigned pe_ = 0;
};
