#include "model_threads.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <queue>
#include <unordered_map>

#include "machine.h"

namespace model {

View* current;

namespace {

struct Store {
  u64 at, due, issue;
  uint8_t bytes;
  unsigned char value[16];
  unsigned thread, pe;
  uint32_t seq;  // of that thread
  Stamp stamp;
  Scope scope;
  bool waits;
};

// What the last store to a word hands on to whoever acquires it.
struct Message {
  Stamp stamp;
  Scope scope;
  unsigned pe;
};

struct Owned {
  u64 at, bytes;
  unsigned pe;
};

std::vector<Store> stores;
std::vector<uint32_t> waiting;  // indices, not in order
typedef std::pair<u64, uint32_t> Due;
std::priority_queue<Due, std::vector<Due>, std::greater<Due>> dues;
std::unordered_map<u64, std::vector<uint32_t>> by_word;  // of each word of 8 bytes the stores that wait
std::unordered_map<u64, Message> messages;
std::vector<Owned> owned;
std::vector<unsigned> free_ids;
std::vector<uint32_t> seqs;  // of each id: stores so far; never put back
std::vector<uint32_t> waits_of;  // of each id: stores that wait
std::vector<bool> ended;
u64 now, issues;

template <typename F>
void each_word(u64 at, size_t bytes, F f) {
  for (u64 w = at / 8; w <= (at + bytes - 1) / 8; w++) f(w);
}

bool overlap(const Store& s, u64 at, size_t bytes) { return s.at < at + bytes && at < s.at + s.bytes; }

bool happens_before(const Store& s, const Clock& clock) { return s.thread < clock.size() && s.seq <= clock[s.thread]; }

void give_back(unsigned id) {
  if (ended[id] && waits_of[id] == 0) free_ids.push_back(id), ended[id] = false;
}

// Delivers the stores that overlap a range and that `which` names, older ones first.
template <typename Which>
void deliver_where(u64 at, size_t bytes, Which which);

void deliver(uint32_t index) {
  {
    const Store& s = stores[index];
    const u64 issue = s.issue;
    const unsigned pe = s.pe;
    deliver_where(s.at, s.bytes, [&](const Store& other) { return other.issue < issue && other.pe == pe; });
  }
  Store& s = stores[index];
  if (!s.waits) return;
  s.waits = false;
  memcpy((void*)s.at, s.value, s.bytes);
  each_word(s.at, s.bytes, [&](u64 w) {
    auto& of_word = by_word[w];
    of_word.erase(std::find(of_word.begin(), of_word.end(), index));
    if (of_word.empty()) by_word.erase(w);
    if (s.stamp) messages[w] = {s.stamp, s.scope, s.pe};
    else messages.erase(w);
  });
  s.stamp.reset();
  waits_of[s.thread]--;
  give_back(s.thread);
}

template <typename Which>
void deliver_where(u64 at, size_t bytes, Which which) {
  std::vector<uint32_t> found;
  each_word(at, bytes, [&](u64 w) {
    const auto of_word = by_word.find(w);
    if (of_word == by_word.end()) return;
    for (uint32_t k : of_word->second)
      if (overlap(stores[k], at, bytes) && which(stores[k])) found.push_back(k);
  });
  std::sort(found.begin(), found.end(), [](uint32_t a, uint32_t b) { return stores[a].issue < stores[b].issue; });
  for (uint32_t k : found) deliver(k);
}

void forget_delivered() {
  waiting.erase(std::remove_if(waiting.begin(), waiting.end(), [](uint32_t k) { return !stores[k].waits; }), waiting.end());
}

template <typename Which>
void deliver_which(Which which) {
  for (size_t k = 0; k < waiting.size(); k++)
    if (stores[waiting[k]].waits && which(stores[waiting[k]])) deliver(waiting[k]);
  forget_delivered();
  if (!waiting.empty()) return;
  stores.clear();
  dues = {};
}

// Half of the stores are seen at once or nearly so, the others late. Words that somebody may wait for come before long; of the rest some
// take longer than a few operations.
u64 delay(bool strong) {
  if (machine::below(2) == 0) return machine::below(8);
  return machine::below(1ull << machine::below(strong ? 13 : 20));
}

void buffer(u64 at, const void* value, size_t bytes, bool strong, const Stamp& stamp, Scope scope) {
  View& me = *current;
  Store s = {at, now + delay(strong), issues++, (uint8_t)bytes, {}, me.id, me.pe, ++me.clock[me.id], stamp, scope, true};
  seqs[me.id] = me.clock[me.id];
  memcpy(s.value, value, bytes);
  const uint32_t index = (uint32_t)stores.size();
  dues.push({s.due, index});
  stores.push_back(std::move(s));
  waiting.push_back(index);
  waits_of[me.id]++;
  each_word(at, bytes, [&](u64 w) { by_word[w].push_back(index); });
}

// What this thread is to see in a range is put there.
void see(u64 at, size_t bytes) {
  if (by_word.empty()) return;
  const Clock& clock = current->clock;
  deliver_where(at, bytes, [&](const Store& s) { return happens_before(s, clock); });
}

Stamp snapshot() { return std::make_shared<const Clock>(current->clock); }

void acquire_from(const Message& m) {
  if (m.scope == Scope::Sys || m.pe == current->pe) join_clock(current->clock, *m.stamp);
}

void read_message(u64 word, bool acquire) {
  const auto m = messages.find(word);
  if (m == messages.end()) return;
  if (acquire) return acquire_from(m->second);
  const bool in_scope = m->second.scope == Scope::Sys || m->second.pe == current->pe;
  auto& read = current->read;
  if (in_scope && (read.empty() || read.back() != m->second.stamp)) read.push_back(m->second.stamp);
}

bool is_own(const Store& s, unsigned pe) {
  if (s.pe != pe) return false;
  for (const Owned& o : owned)
    if (o.pe == pe && s.at >= o.at && s.at < o.at + o.bytes) return true;
  return false;
}

void release(Scope scope) {
  const Clock& clock = current->clock;
  const unsigned pe = current->pe;
  deliver_which([&](const Store& s) { return happens_before(s, clock) && (scope == Scope::Sys || is_own(s, pe)); });
}

// A plain store that is about to be made, or was just made.
struct Open {
  u64 at;
  size_t bytes;
  unsigned char before[64];
} open;

}  // namespace

void reset() {
  deliver_all();
  messages.clear();
  now = 0;
}

void join_clock(Clock& into, const Clock& other) {
  if (into.size() < other.size()) into.resize(other.size());
  uint32_t* a = into.data();
  const uint32_t* b = other.data();
  for (size_t k = 0, n = other.size(); k < n; k++) a[k] = a[k] > b[k] ? a[k] : b[k];
}

void begin(View& view, unsigned pe, const Clock& before) {
  if (free_ids.empty()) {
    free_ids.push_back((unsigned)seqs.size());
    seqs.push_back(0), waits_of.push_back(0), ended.push_back(false);
  }
  view.id = free_ids.back();
  free_ids.pop_back();
  view.pe = pe;
  view.clock = before;
  view.clock.resize(std::max(seqs.size(), before.size()));
  view.clock[view.id] = seqs[view.id];
  view.released.reset();
  view.read.clear();
}

void release_id(unsigned id) {
  ended[id] = true;
  give_back(id);
}

void end_kernel(unsigned pe, const Clock& clock) {
  deliver_which([&](const Store& s) { return happens_before(s, clock) && is_own(s, pe); });
}

void deliver_due(u64 tick) {
  now = tick;
  while (!dues.empty() && dues.top().first <= tick) {
    const uint32_t index = dues.top().second;
    dues.pop();
    if (stores[index].waits) deliver(index);
  }
  if (waiting.size() > 64 && dues.empty()) forget_delivered();
}

u64 next_due() {
  while (!dues.empty() && !stores[dues.top().second].waits) dues.pop();
  return dues.empty() ? ~0ull : dues.top().first;
}

void deliver_all() {
  settle();
  deliver_which([](const Store&) { return true; });
  owned.clear();
}

void own(unsigned pe, const void* at, size_t bytes) { owned.push_back({(u64)at, bytes, pe}); }

void load(const void* at, void* value, size_t bytes, bool acquire) {
  settle();
  machine::yield();
  see((u64)at, bytes);
  memcpy(value, at, bytes);
  each_word((u64)at, bytes, [&](u64 w) { read_message(w, acquire); });
}

void store(void* at, const void* value, size_t bytes, bool releases, Scope scope) {
  settle();
  if (machine::below(8) == 0) machine::yield();
  Stamp stamp = current->released;
  if (releases) release(scope), stamp = snapshot();
  buffer((u64)at, value, bytes, true, stamp, scope);
}

u64 modify(void* at, size_t bytes, bool acquire, bool releases, Scope scope, u64 (*change)(u64, u64, u64), u64 a, u64 b) {
  settle();
  machine::yield();
  if (releases) release(scope);
  const unsigned pe = current->pe;
  deliver_where((u64)at, bytes, [&](const Store& s) { return s.pe == pe; });
  u64 old = 0;
  memcpy(&old, at, bytes);
  const u64 word = (u64)at / 8;
  Stamp stamp = releases ? snapshot() : current->released;
  read_message(word, acquire);
  // An atomic hands on what the one before it released.
  const auto before = messages.find(word);
  if (before != messages.end() && stamp) {
    Clock both = *stamp;
    join_clock(both, *before->second.stamp);
    stamp = std::make_shared<const Clock>(std::move(both));
  } else if (before != messages.end()) {
    stamp = before->second.stamp;
  }
  const u64 changed = change(old, a, b);
  memcpy(at, &changed, bytes);
  if (stamp) messages[word] = {stamp, scope, pe};
  return old;
}

void weak_load(const void* at, void* value, size_t bytes) {
  settle();
  see((u64)at, bytes);
  memcpy(value, at, bytes);
}

void weak_store(void* at, const void* value, size_t bytes) {
  settle();
  buffer((u64)at, value, bytes, false, nullptr, Scope::Gpu);
}

void fence(bool acquire, Scope scope) {
  settle();
  if (acquire) {
    for (const Stamp& s : current->read) join_clock(current->clock, *s);
    current->read.clear();
  }
  release(scope);
  current->released = snapshot();
}

void settle() {
  if (open.bytes == 0) return;
  unsigned char stored[sizeof open.before];
  const size_t bytes = open.bytes;
  open.bytes = 0;
  memcpy(stored, (void*)open.at, bytes);
  memcpy((void*)open.at, open.before, bytes);
  for (size_t k = 0; k < bytes; k += 8) buffer(open.at + k, stored + k, std::min<size_t>(8, bytes - k), false, nullptr, Scope::Gpu);
}

void plain_read(u64 at, size_t bytes) {
  settle();
  see(at, bytes);
}

void plain_write(u64 at, size_t bytes) {
  settle();
  if (bytes > sizeof open.before) abort();
  memcpy(open.before, (void*)at, bytes);
  open.at = at, open.bytes = bytes;
}

}  // namespace model
