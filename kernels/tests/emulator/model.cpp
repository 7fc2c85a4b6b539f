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

// A value that a word had.
struct Old {
  u64 value, until;        // until as many deliveries
  u64 replaced, forgotten;  // ticks
  unsigned thread;         // who replaced it, with which store
  uint32_t seq;
  Message message;         // what it hands on; no stamp: nothing
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
std::unordered_map<u64, std::vector<Old>> olds;  // of each word, oldest first
std::vector<Owned> owned;
std::vector<unsigned> free_ids;
std::vector<uint32_t> seqs;  // of each id: stores so far; never put back
std::vector<uint32_t> waits_of;  // of each id: stores that wait
std::vector<bool> ended;
u64 now, issues, deliveries;
bool acquires_drop_old = false;

template <typename F>
void each_word(u64 at, size_t bytes, F f) {
  for (u64 w = at / 8; w <= (at + bytes - 1) / 8; w++) f(w);
}

bool overlap(const Store& s, u64 at, size_t bytes) { return s.at < at + bytes && at < s.at + s.bytes; }

bool happens_before(const Store& s, const Clock& clock) { return s.thread < clock.size() && s.seq <= clock[s.thread]; }

void give_back(unsigned id) {
  if (ended[id] && waits_of[id] == 0) free_ids.push_back(id), ended[id] = false;
}

constexpr size_t MOST_OLD = 4;
// Ticks for which a strong load may miss what was delivered.
constexpr u64 STRONG = 1 << 12;

// Keeps what a range has, before store `seq` of `thread` replaces it: all words equally long, or one read at once would be torn.
void keep(u64 at, size_t bytes, unsigned thread, uint32_t seq) {
  const u64 forgotten = now + machine::below(1ull << machine::below(19));
  deliveries++;
  each_word(at, bytes, [&](u64 w) {
    auto& of_word = olds[w];
    if (of_word.size() == MOST_OLD) of_word.erase(of_word.begin());
    Old old = {0, deliveries, now, forgotten, thread, seq, {nullptr, Scope::Gpu, 0}};
    memcpy(&old.value, (const void*)(8 * w), 8);
    const auto message = messages.find(w);
    if (message != messages.end()) old.message = message->second;
    of_word.push_back(std::move(old));
  });
}

void forget_old() {
  for (auto entry = olds.begin(); entry != olds.end();) entry = entry->second.back().forgotten <= now ? olds.erase(entry) : std::next(entry);
}

// The first delivery that this thread cannot miss at a word.
u64 earliest(u64 word, const std::vector<Old>& of_word, bool strong) {
  const auto seen = current->seen.find(word);
  const u64 before = seen == current->seen.end() ? 0 : seen->second;
  for (size_t k = of_word.size(); k-- > 0;) {
    const Old& o = of_word[k];
    const bool known = o.thread < current->clock.size() && o.seq <= current->clock[o.thread];
    if (known || o.forgotten <= now || (strong && o.replaced + STRONG <= now)) return std::max(before, o.until);
  }
  return before;
}

// The value of a word that was the newest after so many deliveries; nullptr: what is there now.
const Old* value_at(u64 word, u64 time) {
  const auto entry = olds.find(word);
  if (entry == olds.end()) return nullptr;
  for (const Old& o : entry->second)
    if (o.until > time) return &o;
  return nullptr;
}

// When a load sees these words, as a count of deliveries: at half of the times now.
u64 time_of_load(u64 first, u64 last, bool strong) {
  u64 floor = current->dropped, times[2 * MOST_OLD];
  size_t n = 0;
  bool any = false;
  for (u64 w = first; w <= last; w++) {
    const auto entry = olds.find(w);
    if (entry == olds.end()) continue;
    any = true;
    floor = std::max(floor, earliest(w, entry->second, strong));
    for (const Old& o : entry->second) times[n++] = o.until;
  }
  if (!any) return deliveries;
  size_t young = 0;
  for (size_t k = 0; k < n; k++)
    if (times[k] > floor) times[young++] = times[k];
  u64 time = deliveries;
  if (young != 0 && machine::below(2) == 0) {
    const u64 k = machine::below(young + 1);
    time = k == young ? floor : times[k];
  }
  // What is read now is never older again.
  for (u64 w = first; young != 0 && w <= last; w++) current->seen[w] = time;
  return time;
}

// Reads a range of one or two words as it was at a time.
void read_at(u64 at, void* value, size_t bytes, u64 time) {
  memcpy(value, (const void*)at, bytes);
  each_word(at, bytes, [&](u64 w) {
    const Old* old = value_at(w, time);
    if (old == nullptr) return;
    const u64 begin = std::max(at, 8 * w), end = std::min<u64>(at + bytes, 8 * w + 8);
    memcpy((char*)value + (begin - at), (const char*)&old->value + (begin - 8 * w), end - begin);
  });
}

// Reads a range as plain loads may: each of its words at a time of its own.
void read_weak(u64 at, void* value, size_t bytes) {
  if (olds.empty()) {
    memcpy(value, (const void*)at, bytes);
    return;
  }
  each_word(at, bytes, [&](u64 w) {
    const u64 begin = std::max(at, 8 * w), end = std::min<u64>(at + bytes, 8 * w + 8);
    read_at(begin, (char*)value + (begin - at), end - begin, time_of_load(w, w, false));
  });
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
  keep(s.at, s.bytes, s.thread, s.seq);
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

// Takes what the value of a word at a time hands on.
void read_message(u64 word, u64 time, bool acquire) {
  const Old* old = value_at(word, time);
  const auto newest = messages.find(word);
  const Message* m = old != nullptr ? &old->message : newest == messages.end() ? nullptr : &newest->second;
  if (m == nullptr || !m->stamp) return;
  if (acquire) return acquire_from(*m);
  const bool in_scope = m->scope == Scope::Sys || m->pe == current->pe;
  auto& read = current->read;
  if (in_scope && (read.empty() || read.back() != m->stamp)) read.push_back(m->stamp);
}

void drop() {
  if (acquires_drop_old) current->dropped = deliveries;
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

// An old value that lies in memory for the plain load that is about to be made.
struct Shown {
  u64 at;
  size_t bytes;
  unsigned char now[64];
} shown;

}  // namespace

void reset() {
  deliver_all();
  messages.clear();
  now = 0, deliveries = 0;
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
  view.seen.clear();
  view.dropped = 0;
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
  if (tick % 4096 == 0) forget_old();
}

u64 next_due() {
  while (!dues.empty() && !stores[dues.top().second].waits) dues.pop();
  return dues.empty() ? ~0ull : dues.top().first;
}

void deliver_all() {
  settle();
  deliver_which([](const Store&) { return true; });
  owned.clear();
  // What the host writes from here on is all that is there.
  olds.clear();
}

void own(unsigned pe, const void* at, size_t bytes) { owned.push_back({(u64)at, bytes, pe}); }

void load(const void* at, void* value, size_t bytes, bool acquire) {
  settle();
  machine::yield();
  see((u64)at, bytes);
  const u64 time = time_of_load((u64)at / 8, ((u64)at + bytes - 1) / 8, true);
  read_at((u64)at, value, bytes, time);
  each_word((u64)at, bytes, [&](u64 w) { read_message(w, time, acquire); });
  if (acquire) drop();
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
  read_message(word, deliveries, acquire);
  if (acquire) drop();
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
  View& me = *current;
  seqs[me.id] = ++me.clock[me.id];
  keep((u64)at, bytes, me.id, me.clock[me.id]);
  memcpy(at, &changed, bytes);
  if (stamp) messages[word] = {stamp, scope, pe};
  return old;
}

void weak_load(const void* at, void* value, size_t bytes) {
  settle();
  see((u64)at, bytes);
  read_weak((u64)at, value, bytes);
}

void transport_load(const void* at, void* value, size_t bytes) {
  settle();
  see((u64)at, bytes);
  memcpy(value, at, bytes);
}

void weak_store(void* at, const void* value, size_t bytes) {
  settle();
  buffer((u64)at, value, bytes, false, nullptr, Scope::Gpu);
}

void fence_acquire() {
  settle();
  for (const Stamp& s : current->read) join_clock(current->clock, *s);
  current->read.clear();
  drop();
}

void fence(bool acquire, Scope scope) {
  settle();
  if (acquire) fence_acquire();
  release(scope);
  current->released = snapshot();
}

void acquires_drop(bool drop) { acquires_drop_old = drop; }

void settle() {
  if (shown.bytes != 0) memcpy((void*)shown.at, shown.now, shown.bytes), shown.bytes = 0;
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
  if (olds.empty() || bytes > sizeof shown.now) return;
  unsigned char value[sizeof shown.now];
  read_weak(at, value, bytes);
  if (memcmp(value, (const void*)at, bytes) == 0) return;
  memcpy(shown.now, (const void*)at, bytes);
  memcpy((void*)at, value, bytes);
  shown.at = at, shown.bytes = bytes;
}

void plain_write(u64 at, size_t bytes) {
  settle();
  if (bytes > sizeof open.before) abort();
  memcpy(open.before, (void*)at, bytes);
  open.at = at, open.bytes = bytes;
}

}  // namespace model
