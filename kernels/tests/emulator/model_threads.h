// What the machine tells the memory model of its threads.
#pragma once

#include <memory>
#include <unordered_map>
#include <vector>

#include "model.h"

namespace model {

// How many stores of each thread happen before a point. index = thread id.
typedef std::vector<uint32_t> Clock;
typedef std::shared_ptr<const Clock> Stamp;

// A thread as the model sees it.
struct View {
  unsigned id = 0;
  unsigned pe = 0;
  Clock clock;                 // its own stores included
  Stamp released;              // at its last release fence
  std::vector<Stamp> read;     // what relaxed loads have seen, for the next acquire fence
  std::unordered_map<u64, u64> seen;  // of each word: deliveries before the youngest value read there
  u64 dropped = 0;                    // deliveries when its block last dropped what is kept near
};

extern View* current;  // nullptr: the host

void reset();
void begin(View& view, unsigned pe, const Clock& before);
void join_clock(Clock& into, const Clock& other);
// Ends a kernel of `pe` whose threads had these clocks, joined.
void end_kernel(unsigned pe, const Clock& clock);
// The id may be given to another thread once nothing of it waits.
void release_id(unsigned id);
// Delivers what is due at `tick`; the tick of the next delivery, ~0 if nothing waits.
void deliver_due(u64 tick);
u64 next_due();
void deliver_all();
// A plain access of a kernel, announced just before it is made. A store is made to memory then; `settle`, called before anybody can
// look, takes it from there into the buffer.
void plain_read(u64 at, size_t bytes);
void plain_write(u64 at, size_t bytes);
void settle();

}  // namespace model
