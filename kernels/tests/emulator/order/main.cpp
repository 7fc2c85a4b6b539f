// What streams promise each other by one-sided operations, barriers and contexts, on the memory model: whoever learns of something
// by a signal, a slot, a barrier or an operation that ended finds what comes before it.
//
// usage: main CALLS SEED [FENCE]    FENCE (enum Fence of steps.cuh) is left out
#include <algorithm>
#include <deque>

#include "launches.h"
#include "steps.cuh"
#include "world.h"

extern "C" {
void symm_put(CopyParams p);
void symm_get(CopyParams p);
void symm_pad_signal(PadSignalParams p);
void symm_wait_until(WaitParams p);
void symm_barrier(BarrierParams p);
void symm_exchange_barrier(ExchangeParams p);
void symm_exchange_all_gather(ExchangeParams p);
}


typedef std::vector<unsigned char> Bytes;

constexpr size_t BUFFER = 8192;
constexpr u64 LIMIT_NS = 60000000000ull;
// Where a fence left out loses a signal, that is waited for in vain.
constexpr u64 SOON_NS = 1000000000;

// Offsets in a pad.
constexpr u64 SIGNALS = 0, SLOTS = 256, COUNTER = 512, WORDS = 576, CLAIM = 896;

// What the stream's next kernel is to find.
struct Finding {
  const char* what;
  const unsigned char* at;
  Bytes wanted, read;
};
typedef Finding* Found;

// They live as long as the program: launches refer to them.
static std::deque<Finding> findings;

static Found finds(const char* what, const unsigned char* at, Bytes wanted) {
  findings.push_back({what, at, wanted, Bytes(wanted.size())});
  return &findings.back();
}

static void look(unsigned stream, unsigned pe, Found found) {
  if (found == nullptr) return;
  const auto passed = [=] {
    EXPECT(memcmp(found->at, found->wanted.data(), found->wanted.size()) == 0, "%s", found->what);
    EXPECT(found->read == found->wanted, "%s: the next kernel finds something else", found->what);
  };
  machine::enqueue(stream, {[=] { read_in_kernel(found->at, found->read.size(), found->read.data()); }, pe, 1, Order::Together, 64, passed});
}


// A team whose PEs each have a stream, and pads beside their contexts.
struct Team {
  World world;
  std::vector<std::vector<u64>> pads;
  std::vector<u64> pad_table;
  std::vector<unsigned> streams;
  std::vector<LaunchRecord> second;

  explicit Team(unsigned ranks) : world(ranks, 0, BUFFER), pads(ranks, std::vector<u64>(128, 0)), second(ranks) {
    for (auto& p : pads) pad_table.push_back((u64)p.data());
    begin();
  }

  // Streams and the owners of memory, anew after each join.
  void begin() {
    streams.clear();
    for (unsigned r = 0; r < world.ranks; r++) {
      streams.push_back(machine::new_stream());
      Pe& q = world.pe[r];
      model::own(r, q.out.data(), q.out.size());
      model::own(r, q.in.data(), q.in.size());
      model::own(r, pads[r].data(), pads[r].size() * 8);
      model::own(r, q.context.data(), q.context.size() * 8);
      model::own(r, &q.record, sizeof q.record);
      model::own(r, &second[r], sizeof second[r]);
    }
  }

  template <typename P>
  void launch(unsigned pe, void (*kernel)(P), const P& p, unsigned blocks, Found found = nullptr) {
    launch_on(streams[pe], pe, kernel, p, blocks, found);
  }

  template <typename P>
  void launch_on(unsigned stream, unsigned pe, void (*kernel)(P), const P& p, unsigned blocks, Found found) {
    // One block needs the most: the exchange's.
    machine::enqueue(stream, {[=] { kernel(p); }, pe, blocks, Order::Together, 64 << 10, nullptr});
    look(stream, pe, found);
  }

  StatusParams status(unsigned pe) { return {(u64)&world.pe[pe].device, (u64)&world.pe[pe].host}; }

  void put(unsigned from, unsigned to, u64 offset, const void* src, u64 bytes, unsigned blocks, u64 signal = 0, u64 value = 0, bool add = false) {
    CopyParams p{};
    p.status = status(from), p.record = (u64)&world.pe[from].record;
    p.dst = (u64)world.pe[to].out.data() + offset, p.src = (u64)src, p.bytes = bytes;
    p.signal = signal, p.signal_value = value, p.signal_add = add;
    launch(from, symm_put, p, blocks);
  }

  u64 signal(unsigned pe, unsigned index) { return pad_table[pe] + SIGNALS + 8 * index; }

  void wait(unsigned pe, unsigned index, u64 value, Found passed = nullptr) {
    WaitParams p{};
    p.status = status(pe), p.word = signal(pe, index), p.value = value, p.limit_ns = LIMIT_NS, p.cmp = 5;
    launch(pe, symm_wait_until, p, 1, passed);
  }

  PadSignalParams slot_params(unsigned pe, unsigned at, uint32_t from, uint32_t to) {
    PadSignalParams p{};
    p.status = status(pe), p.slot = pad_table[at] + SLOTS, p.limit_ns = LIMIT_NS, p.from = from, p.to = to;
    return p;
  }

  void slot(unsigned pe, unsigned at, uint32_t from, uint32_t to, Found passed = nullptr) {
    launch(pe, symm_pad_signal, slot_params(pe, at, from, to), 1, passed);
  }

  // put_signal over a link without atomics.
  void store_slot(unsigned stream, unsigned pe, unsigned at, Found passed = nullptr, u64 limit_ns = LIMIT_NS) {
    PadSignalParams p = slot_params(pe, at, 0, 1);
    p.claim = pad_table[pe] + CLAIM, p.limit_ns = limit_ns;
    launch_on(stream, pe, symm_pad_signal, p, 1, passed);
  }

  void barrier(unsigned pe, Found passed) {
    BarrierParams p{};
    p.status = status(pe);
    std::copy(pad_table.begin(), pad_table.end(), p.near_pads);
    p.pads = (u64)pad_table.data(), p.members = (u64)world.pe[pe].members.data();
    p.words = WORDS, p.counter = COUNTER, p.limit_ns = LIMIT_NS, p.ranks = world.ranks, p.rank = pe;
    launch(pe, symm_barrier, p, 1, passed);
  }
};

static Bytes random_bytes(size_t n) {
  Bytes bytes(n);
  for (unsigned char& x : bytes) x = (unsigned char)random_words();
  return bytes;
}

// put_with_signal to the right neighbour, several times to the same place: the receiver gives its own signal back in between.
static void puts_and_signals() {
  Team team(2);
  const bool add = below(2) == 0;
  std::vector<Bytes> sources;
  for (u64 round = 1; round <= 3; round++) {
    // From a few words in one warp to several blocks.
    const unsigned blocks = 1 + (unsigned)below(4);
    const u64 bytes = below(3) == 0 ? 8 * (1 + below(8)) : 1 + below(3000), offset = 8 * below(4);
    sources.push_back(random_bytes(bytes));
    team.put(0, 1, offset, sources.back().data(), bytes, blocks, team.signal(1, 0), add ? 1 : round, add);
    team.wait(1, 0, round, finds("put_with_signal", team.world.pe[1].out.data() + offset, sources.back()));
    sources.push_back(random_bytes(16));
    team.put(1, 0, 0, sources.back().data(), 16, 1, team.signal(0, 0), round);
    team.wait(0, 0, round, finds("the answer", team.world.pe[0].out.data(), sources.back()));
  }
  machine::join();
}

// A put, then put_signal; the receiver has put something back before it takes the slot down.
static void pad_signals(bool atomics) {
  Team team(2);
  const auto raise = [&](Found passed = nullptr) {
    if (atomics) team.slot(0, 1, 0, 1, passed);
    else team.store_slot(team.streams[0], 0, 1, passed);
  };
  const Bytes there = random_bytes(1 + below(1000)), back = random_bytes(1 + below(1000));
  team.put(1, 0, 0, back.data(), back.size(), 1 + (unsigned)below(3));
  team.slot(1, 1, 1, 0, finds("wait_signal", team.world.pe[1].out.data(), there));
  team.slot(1, 1, 1, 0);
  team.put(0, 1, 0, there.data(), there.size(), 1 + (unsigned)below(3));
  raise();
  raise(finds("put_signal", team.world.pe[0].out.data(), back));
  machine::join();
}

// Two streams of a PE raise one slot of a peer's, over a link without atomics, as often as it takes the slot down: no signal is lost.
static void claimed_slots() {
  Team team(2);
  const unsigned other = machine::new_stream();
  for (int times = 0; times < 3; times++) {
    team.store_slot(team.streams[0], 0, 1, nullptr, SOON_NS);
    team.store_slot(other, 0, 1, nullptr, SOON_NS);
  }
  for (int times = 0; times < 6; times++) {
    PadSignalParams p = team.slot_params(1, 1, 1, 0);
    p.limit_ns = SOON_NS;
    team.launch(1, symm_pad_signal, p, 1);
  }
  machine::join();
  for (unsigned r = 0; r < 2; r++) EXPECT(team.world.pe[r].device.code == 0, "slots of two streams: PE %u: code %llu", r, (u64)team.world.pe[r].device.code);
  EXPECT(((uint32_t*)(team.pads[0].data()))[CLAIM / 4] == 0, "the claim stays");
}

// Everybody puts to everybody, then a barrier: of the handle, or of a context.
static void barriers(bool of_context) {
  Team team(2 + (unsigned)below(2));
  const unsigned ranks = team.world.ranks;
  const u64 bytes = 1 + below(1000);
  std::vector<Bytes> sources, wanted;
  for (unsigned r = 0; r < ranks; r++) sources.push_back(random_bytes(bytes)), wanted.emplace_back(ranks * bytes, POISON);
  for (unsigned r = 0; r < ranks; r++) {
    for (unsigned to = 0; to < ranks; to++) {
      if (to == r) continue;
      team.put(r, to, r * bytes, sources[r].data(), bytes, 1 + (unsigned)below(3));
      std::copy(sources[r].begin(), sources[r].end(), wanted[to].begin() + r * bytes);
    }
  }
  for (unsigned r = 0; r < ranks; r++) {
    const auto passed = finds(of_context ? "barrier of a context" : "barrier of a handle", team.world.pe[r].out.data(), wanted[r]);
    if (!of_context) {
      team.barrier(r, passed);
      continue;
    }
    ExchangeParams p = team.world.params(r);
    p.form = FORM_BARRIER;
    team.launch(r, symm_exchange_barrier, p, 1, passed);
  }
  machine::join();
}

// Two operations of one context on two streams, without an event between them: the second takes what the first has gathered.
//
// By PTX the second learns nothing of what the first has left: the count of operations is raised without a release of what the peers have
// pushed, and only the share that waits for its turn acquires it. On a GPU all of it has been delivered to the GPU's own memory then, and
// an acquire drops what the multiprocessor keeps near, which is more than PTX promises; so acquires drop here. (Eager calls have an event
// between them.)
static void operations_of_one_context() {
  model::acquires_drop(true);
  Team team(2);
  const unsigned ranks = team.world.ranks;
  const u64 rows = 1 + below(60), row = 8;
  std::vector<unsigned> other;
  Bytes all;
  for (unsigned r = 0; r < ranks; r++) {
    other.push_back(machine::new_stream());
    team.world.pe[r].in = random_bytes(rows * row);
    all.insert(all.end(), team.world.pe[r].in.begin(), team.world.pe[r].in.end());
  }
  Bytes twice;
  for (unsigned r = 0; r < ranks; r++) twice.insert(twice.end(), all.begin(), all.end());
  for (unsigned r = 0; r < ranks; r++) {
    Pe& q = team.world.pe[r];
    ExchangeParams p = team.world.params(r);
    p.form = FORM_ALL_GATHER, p.row_bytes = row, p.in_rows = rows, p.out_rows = BUFFER / 2 / row;
    p.input = (u64)q.in.data();
    p.remote_blocks = 1;
    team.launch(r, symm_exchange_all_gather, p, 2 + (unsigned)below(2));
    p.in_rows = ranks * rows, p.input = (u64)q.out.data(), p.out_offset = BUFFER / 2;
    p.record = (u64)&team.second[r];
    const u64* ticket = q.context.data();
    const auto passed = finds("operations of one context", q.out.data() + BUFFER / 2, twice);
    machine::enqueue(other[r], {[=] { symm_exchange_all_gather(p); }, r, 1 + (unsigned)below(3), Order::Together, 64 << 10, nullptr,
                                [=] { return *ticket >= 1; }});
    look(other[r], r, passed);
  }
  machine::join();
  model::acquires_drop(false);
  for (unsigned r = 0; r < ranks; r++) EXPECT(team.world.pe[r].device.code == 0, "PE %u: code %llu", r, (u64)team.world.pe[r].device.code);
}

int main(int argc, char** argv) {
  if (argc < 3) return 2;
  begin_test(argv[2]);
  if (argc > 3) WITHOUT = (uint32_t)atoi(argv[3]);
  random_words.seed((u64)atoll(argv[2]));
  for (int call = 0; call < atoi(argv[1]) && failures == 0; call++) {
    puts_and_signals();
    pad_signals(true);
    pad_signals(false);
    claimed_slots();
    barriers(false);
    barriers(true);
    operations_of_one_context();
  }
  printf("%d failures\n", failures);
  return failures != 0;
}
