// Launches of a kernel on the machine, and what a test says when something is wrong.
#pragma once

#include <unistd.h>

#include <random>

#include "model.h"
#include "shim.h"
#include "symm/memory.cuh"
#include "symm/params.cuh"

using machine::Order;

inline unsigned rank_of(const symm::ExchangeParams& p) { return p.rank; }
inline unsigned rank_of(const symm::ReduceParams& q) { return q.exchange.rank; }
inline unsigned rank_of(const symm::PushedParams& q) { return q.reduce.exchange.rank; }
inline unsigned rank_of(const symm::TakeParams& t) { return t.reduce.exchange.rank; }
inline unsigned rank_of(const symm::PlanParams& t) { return t.reduce.exchange.rank; }

// What tests choose, from the seed of the run; the machine's choices have a seed of their own.
inline std::mt19937_64 random_words;
inline u64_t below(u64_t n) { return random_words() % n; }

// A kernel that hangs ends the program, and what was found before is not lost.
inline void begin_test(const char* seed) {
  machine::reset((u64_t)atoll(seed));
  if (const char* number = getenv("SYMM_NO_ACQUIRE")) symm::NO_ACQUIRE = (uint32_t)atoi(number);
  if (const char* number = getenv("SYMM_NO_RELEASE")) symm::NO_RELEASE = (uint32_t)atoi(number);
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

// Reads a range as the stream's next kernel would: a thread of it.
__attribute__((no_sanitize("thread"))) inline void read_in_kernel(const unsigned char* at, size_t bytes, unsigned char* to) {
  if (threadIdx.x != 0) return;
  for (size_t k = 0; k < bytes; k += 8) model::weak_load(at + k, to + k, bytes - k < 8 ? bytes - k : 8);
}

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
    const unsigned stream = machine::new_stream();
    machine::enqueue(stream, {[=] { kernel(p); }, pe_, blocks, order, sizeof(Shared), passed});
    // What the launch has left is what the next kernel finds.
    const auto read = [this, launch] {
      for (Watched& w : watched_[launch]) read_in_kernel(w.at, w.bytes, w.found.data());
    };
    const auto compared = [this, launch] {
      for (Watched& w : watched_[launch]) EXPECT(memcmp(w.at, w.found.data(), w.bytes) == 0, "launch %zu: the next kernel finds something else", launch);
    };
    machine::enqueue(stream, {read, pe_, 1, Order::Together, sizeof(uint64_t), compared});
  }

  // Memory of the PE of the last launch that must not change any more once the stream has passed that launch.
  template <typename T>
  void watch(const std::vector<T>& memory) {
    model::own(pe_, memory.data(), memory.size() * sizeof(T));
    const size_t bytes = memory.size() * sizeof(T);
    watched_.back().push_back({(const unsigned char*)memory.data(), bytes, {}, std::vector<unsigned char>(bytes)});
  }

  // Memory of the PE of the last launch that peers write, too.
  template <typename T>
  void own(const std::vector<T>& memory) {
    model::own(pe_, memory.data(), memory.size() * sizeof(T));
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
    std::vector<unsigned char> then, found;
  };
  std::vector<std::vector<Watched>> watched_;
  unsigned pe_ = 0;
};
