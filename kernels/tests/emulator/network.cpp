#include "network.h"

#include <cstdio>
#include <cstdlib>
#include <map>

#include "machine.h"
#include "model.h"
#include "model_threads.h"

namespace network {

namespace {

struct Message {
  Put put;
  unsigned issuer;  // PE
  u64 number, fence;
};

struct Named {
  size_t bytes;
  std::vector<u64> theirs;
};

std::map<u64, Named> names;
std::vector<Message> messages;
std::map<unsigned, u64> fences;
u64 sent;
unsigned left;

constexpr u64 MOST_PAUSE = 400;  // ticks between deliveries
constexpr u64 NO_FENCE = ~0ull;  // of a get, which no fence orders

void copy(u64 to, u64 from, size_t bytes) {
  unsigned char piece[8];
  for (size_t at = 0; at < bytes; at += sizeof piece) {
    const size_t length = bytes - at < sizeof piece ? bytes - at : sizeof piece;
    model::transport_load((const void*)(from + at), piece, length);
    model::weak_store((void*)(to + at), piece, length);
  }
}

u64 added(u64 old, u64 v, u64) { return old + v; }

void deliver(const Put& p) {
  copy(p.to, p.from, p.bytes);
  const uint32_t narrow = (uint32_t)p.value;
  if (p.adds) model::modify((void*)p.signal, 8, false, true, model::Scope::Sys, added, p.value, 0);
  else if (p.width == 4) model::store((void*)p.signal, &narrow, 4, true, model::Scope::Sys);
  else if (p.width == 8) model::store((void*)p.signal, &p.value, 8, true, model::Scope::Sys);
  // A quiet ends when it is there.
  model::fence(false, model::Scope::Sys);
}

}  // namespace

void name(u64 mine, size_t bytes, const std::vector<u64>& theirs) { names[mine] = {bytes, theirs}; }

u64 find(u64 name, unsigned rank) {
  auto entry = names.upper_bound(name);
  if (entry != names.begin() && name - (--entry)->first < entry->second.bytes)
    return entry->second.theirs[rank] + (name - entry->first);
  printf("no peer's memory has the name %llx\n", name);
  fflush(stdout);
  abort();
}

void send(const Put& put) {
  const unsigned pe = model::current->pe;
  messages.push_back({put, pe, sent++, fences[pe]});
}

void fence() { fences[model::current->pe]++; }

void quiet() {
  const u64 upto = sent;
  const unsigned pe = model::current->pe;
  for (;;) {
    bool outstanding = false;
    for (const Message& m : messages) outstanding = outstanding || (m.issuer == pe && m.number < upto);
    if (!outstanding) return;
    machine::yield();
  }
}

void get(u64 to, u64 from, size_t bytes) {
  // A word for each that is under way: two of them at one would end each other.
  constexpr size_t PLACES = 64;
  static u64 words[PLACES], gets;
  static bool taken[PLACES];
  size_t place = 0;
  while (taken[place])
    if (++place == PLACES) machine::yield(), place = 0;
  taken[place] = true;
  u64* const done = &words[place];
  const u64 number = ++gets;
  messages.push_back({{to, from, bytes, (u64)done, number, 8, false}, model::current->pe, sent++, NO_FENCE});
  // As NVSHMEM's program does: the word's value counts, and it orders nothing.
  for (u64 seen = 0;;) {
    model::load(done, &seen, sizeof seen, false);
    if (seen == number) break;
    machine::yield();
  }
  taken[place] = false;
}

void expect(unsigned threads) { left += threads; }
void ended() { left--; }

void run() {
  if (threadIdx.x != 0) return;
  while (left != 0 || !messages.empty()) {
    machine::sleep(machine::below(machine::below(2) == 0 ? 4 : MOST_PAUSE));
    if (messages.empty()) continue;
    const size_t k = machine::below(messages.size());
    // What was fenced off comes first.
    bool first = true;
    for (const Message& other : messages) first = first && (other.issuer != messages[k].issuer || other.fence >= messages[k].fence);
    if (!first && messages[k].fence != NO_FENCE) continue;
    const Put put = messages[k].put;
    deliver(put);
    // Others may have been sent meanwhile, behind it.
    messages.erase(messages.begin() + k);
  }
}

size_t reset() {
  const size_t lost = messages.size();
  names.clear(), messages.clear(), fences.clear();
  left = 0;
  return lost;
}

}  // namespace network
