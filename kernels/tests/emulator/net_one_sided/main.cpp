// put, get, put_with_signal, wait_until and pad signals between two PEs on two hosts: random sizes, places and blocks. Whoever sees a
// signal finds the data. Then pad signals and the barrier of handles that have direct members, too, to which the stream has stored.
//
// usage: main CALLS SEED [FENCE]    FENCE (enum Fence of steps.cuh) is left out
#include "net.h"


using namespace symm;


constexpr size_t BUFFER_BYTES = 16384;
constexpr size_t PAD_WORDS = 64;

// Cmp::Eq of symm_core::backend.
constexpr uint32_t EQUAL = 0;

enum What { PUT, GET, AWAIT, SIGNALS, STORE_THEN_SIGNAL, STORE_THEN_BARRIER };

// Bytes that a stream stores to a direct member before it announces them, and what it finds afterwards.
struct Stores {
  const unsigned char* from;
  unsigned char* to;
  u64 bytes;
};

namespace symm {
struct OneSided {
  ExchangeParams exchange;
  NetParams net;
  uint64_t remote;
  What what;
  NetCopyParams copy;
  NetWaitParams wait;
  NetPadSignalParams signal;
  uint64_t from, to, bytes;  // AWAIT: what is copied once the signal is seen
  uint64_t times;            // SIGNALS, STORE_THEN_SIGNAL
  NetBarrierParams barrier;
  Stores store[4], found;  // STORE_THEN_*
};
inline unsigned rank_of(const OneSided& q) { return q.exchange.rank; }
}  // namespace symm

// As a kernel of the stream, by one thread: after all threads of the one before, and before all of the next.
static void as_kernel(const Stores& s) {
  __syncthreads();
  if (threadIdx.x == 0)
    for (u64 k = 0; k < s.bytes; k++) s.to[k] = s.from[k];
  __syncthreads();
}

static void on_network(OneSided q) {
  q.copy.net = q.wait.net = q.signal.net = q.barrier.net = q.net;
  switch (q.what) {
    case PUT: net::symm_net_put(q.copy); break;
    case GET: net::symm_net_get(q.copy); break;
    case AWAIT:
      net::symm_net_wait_until(q.wait);
      // As the stream's next kernel would.
      if (threadIdx.x == 0)
        for (u64 k = 0; k < q.bytes; k++) ((unsigned char*)q.to)[k] = ((const unsigned char*)q.from)[k];
      break;
    case SIGNALS:
      for (u64 k = 0; k < q.times; k++) net::symm_net_pad_signal(q.signal);
      break;
    case STORE_THEN_SIGNAL:
      as_kernel(q.store[0]);
      for (u64 k = 0; k < q.times; k++) net::symm_net_pad_signal(q.signal);
      as_kernel(q.found);
      break;
    case STORE_THEN_BARRIER:
      for (const Stores& s : q.store) as_kernel(s);
      // The kernel has one warp.
      if (threadIdx.x < 32) net::symm_net_barrier(q.barrier);
      as_kernel(q.found);
      break;
  }
  network::ended();
}

struct OneSidedLaunches : NetLaunches<uint64_t, OneSided> {
  void add(OneSided q, unsigned blocks) {
    ExchangeParams& p = q.exchange;
    start(on_network, q, p, q.net, q.remote, blocks, below(2) == 0 ? Order::OneByOne : Order::Together);
  }
};

struct Pair {
  World world{2, 0, BUFFER_BYTES};
  std::vector<u64> pads[2] = {std::vector<u64>(PAD_WORDS), std::vector<u64>(PAD_WORDS)};

  Pair() {
    for (Pe& q : world.pe) {
      q.in.resize(BUFFER_BYTES);
      for (unsigned char& x : q.in) x = (unsigned char)random_words();
      for (unsigned char& x : q.out) x = (unsigned char)random_words();
      q.sums.assign(BUFFER_BYTES, POISON);
    }
  }

  // The other PE's memory is named by one's own.
  void name() {
    for (unsigned r = 0; r < 2; r++) network::name((u64)pads[r].data(), 8 * PAD_WORDS, {(u64)pads[0].data(), (u64)pads[1].data()});
  }

  OneSided call(unsigned rank, What what) {
    OneSided q;
    memset(&q, 0, sizeof q);
    q.exchange = world.params(rank);
    q.what = what;
    q.copy.status = q.wait.wait.status = q.signal.status = q.exchange.status;
    q.copy.record = q.exchange.record;
    q.copy.pe = q.wait.wait.pe = q.signal.pe = FIRST_PE + 1 - rank;
    q.wait.wait.limit_ns = q.signal.limit_ns = q.exchange.limit_ns;
    return q;
  }

  void expect_idle(const char* what) {
    const LaunchRecord zero{};
    for (const Pe& q : world.pe) {
      EXPECT(q.device.code == 0, "%s: code %llu, phase %llu", what, q.device.code, q.device.phase);
      EXPECT(memcmp(&zero, &q.record, sizeof zero) == 0, "%s: record %llu", what, (u64)q.record.finished);
    }
  }
};

// PE 0 puts with a signal, PE 1 waits for it and reads.
static void put_with_signal() {
  Pair pair;
  Pe &from = pair.world.pe[0], &to = pair.world.pe[1];
  const u64 bytes = below(4) == 0 ? below(40) : below(12000), offset = below(BUFFER_BYTES - bytes), at = below(BUFFER_BYTES - bytes);
  const bool in_heap = below(2) == 0, adds = below(2) == 0;
  const unsigned char* source = (in_heap ? from.out.data() : from.in.data()) + at;
  const std::vector<unsigned char> sent(source, source + bytes);
  OneSidedLaunches launches;
  pair.name();
  OneSided put = pair.call(0, PUT), await = pair.call(1, AWAIT);
  put.copy.dst = (u64)from.out.data() + offset, put.copy.src = (u64)source, put.copy.bytes = bytes;
  put.copy.signal = (u64)&pair.pads[0][5], put.copy.signal_value = 3, put.copy.signal_add = adds;
  pair.pads[1][5] = adds ? 4 : 0;
  await.wait.wait.word = (u64)&pair.pads[1][5], await.wait.wait.value = adds ? 7 : 3, await.wait.wait.cmp = EQUAL;
  await.from = (u64)to.out.data() + offset, await.to = (u64)to.sums.data(), await.bytes = bytes;
  const unsigned blocks = 1 + (unsigned)below(4);
  launches.add(put, blocks);
  launches.add(await, 1);
  launches.join();
  char what[120];
  snprintf(what, sizeof what, "put of %llu bytes, blocks %u, heap %d, adds %d", bytes, blocks, in_heap, adds);
  pair.expect_idle(what);
  EXPECT(memcmp(to.sums.data(), sent.data(), bytes) == 0, "%s: what the signal's reader found", what);
  EXPECT(memcmp(&to.out[offset], sent.data(), bytes) == 0, "%s: data", what);
  EXPECT(pair.pads[1][5] == (adds ? 7u : 3u), "%s: signal %llu", what, pair.pads[1][5]);
}

// PE 0 gets, to its heap or elsewhere.
static void get() {
  Pair pair;
  Pe &here = pair.world.pe[0], &there = pair.world.pe[1];
  const u64 bytes = below(12000), offset = below(BUFFER_BYTES - bytes), at = below(BUFFER_BYTES - bytes);
  unsigned char* target = (below(2) == 0 ? here.out.data() : here.sums.data()) + at;
  OneSidedLaunches launches;
  pair.name();
  OneSided q = pair.call(0, GET);
  q.copy.src = (u64)here.out.data() + offset, q.copy.dst = (u64)target, q.copy.bytes = bytes;
  const unsigned blocks = 1 + (unsigned)below(4);
  launches.add(q, blocks);
  launches.join();
  pair.expect_idle("get");
  EXPECT(memcmp(target, &there.out[offset], bytes) == 0, "get of %llu bytes, blocks %u", bytes, blocks);
}

// PE 0 signals a few times, PE 1 waits as often: a slot holds one at a time.
static void pad_signals() {
  Pair pair;
  OneSidedLaunches launches;
  pair.name();
  const u64 times = 1 + below(4);
  u64 *mine = pair.pads[0].data(), *theirs = pair.pads[1].data();
  OneSided send = pair.call(0, SIGNALS), wait = pair.call(1, SIGNALS);
  // Words 0: the slot on PE 1, 1: the credit on PE 0, 2: the counts.
  send.signal.slot = (u64)(mine + 0), send.signal.credit = (u64)(mine + 1), send.signal.count = (u64)(mine + 2);
  wait.signal.slot = (u64)(theirs + 0), wait.signal.credit = (u64)(theirs + 1), wait.signal.count = (u64)(theirs + 2);
  wait.signal.waits = 1;
  send.times = wait.times = times;
  launches.add(send, 1);
  launches.add(wait, 1);
  launches.join();
  pair.expect_idle("pad signals");
  EXPECT(mine[1] == times && mine[2] == times && theirs[2] == times && theirs[0] == 0, "of %llu signals: credit %llu, sent %llu, taken %llu",
         times, mine[1], mine[2], theirs[2]);
}

// Four PEs, the even ones on one host and the odd ones on the other. Pads have 64 words: of a signal 0 to 2, of the barrier one for
// each member from 8 on and a count.
struct Four {
  static constexpr unsigned RANKS = 4;
  static constexpr u64 BARRIER_WORDS = 8 * 8, BARRIER_COUNTER = 8 * 16;
  World world{RANKS, 0, BUFFER_BYTES};
  std::vector<std::vector<u64>> pads = std::vector<std::vector<u64>>(RANKS, std::vector<u64>(PAD_WORDS));
  std::vector<std::vector<u64>> names, direct;

  Four() {
    std::vector<u64> all;
    for (auto& pad : pads) all.push_back((u64)pad.data());
    for (unsigned r = 0; r < RANKS; r++) {
      names.emplace_back(RANKS, all[r]);
      direct.emplace_back();
      for (unsigned to = 0; to < RANKS; to++) direct[r].push_back((r ^ to) & 1 ? 0 : all[to]);
      network::name(all[r], 8 * PAD_WORDS, all);
      Pe& q = world.pe[r];
      q.in.resize(BUFFER_BYTES);
      for (unsigned char& x : q.in) x = (unsigned char)random_words();
      q.sums.assign(BUFFER_BYTES, POISON);
    }
  }

  OneSided call(unsigned rank, What what) {
    OneSided q;
    memset(&q, 0, sizeof q);
    q.exchange = world.params(rank);
    q.what = what;
    q.signal.status = q.barrier.barrier.status = q.exchange.status;
    q.signal.limit_ns = q.barrier.barrier.limit_ns = q.exchange.limit_ns;
    q.found = {world.pe[rank].out.data(), world.pe[rank].sums.data(), BUFFER_BYTES};
    return q;
  }

  // `from` stores its first bytes at `at` of `to`, which is on its host.
  Stores stores(unsigned from, unsigned to, u64 at, u64 bytes) {
    return {world.pe[from].in.data(), world.pe[to].out.data() + at, bytes};
  }

  void expect(unsigned rank, unsigned from, u64 at, u64 bytes, const char* what) {
    const Pe& q = world.pe[rank];
    EXPECT(q.device.code == 0, "%s: PE %u, code %llu, phase %llu", what, rank, q.device.code, q.device.phase);
    EXPECT(memcmp(q.sums.data() + at, world.pe[from].in.data(), bytes) == 0, "%s: PE %u did not find what PE %u stored", what, rank, from);
  }
};

// PE 0 stores to PE 2 and signals; PE 2 has stored something back before it takes the signals. PE 0 finds that once it has credit.
static void signals_to_a_direct_member() {
  Four four;
  OneSidedLaunches launches;
  const u64 there = 1 + below(2000), back = 1 + below(2000), times = 2 + below(2);
  u64 *mine = four.pads[0].data(), *theirs = four.pads[2].data();
  OneSided send = four.call(0, STORE_THEN_SIGNAL), wait = four.call(2, STORE_THEN_SIGNAL);
  send.signal.slot = wait.signal.slot = (u64)(theirs + 0), send.signal.credit = wait.signal.credit = (u64)(mine + 1);
  send.signal.count = (u64)(mine + 2), wait.signal.count = (u64)(theirs + 2);
  send.signal.pe = FIRST_PE + 2, wait.signal.pe = FIRST_PE, send.signal.direct = wait.signal.direct = wait.signal.waits = 1;
  send.times = wait.times = times;
  send.store[0] = four.stores(0, 2, 0, there), wait.store[0] = four.stores(2, 0, 0, back);
  launches.add(send, 1);
  launches.add(wait, 1);
  launches.join();
  four.expect(2, 0, 0, there, "signals to a direct member");
  four.expect(0, 2, 0, back, "credit of a direct member");
}

// Everybody stores to the member on its host, then all meet.
static void barrier_with_direct_members() {
  Four four;
  OneSidedLaunches launches;
  const u64 bytes = 1 + below(2000);
  for (unsigned r = 0; r < Four::RANKS; r++) {
    OneSided q = four.call(r, STORE_THEN_BARRIER);
    BarrierParams& p = q.barrier.barrier;
    for (unsigned k = 0; k < Four::RANKS; k++) p.near_pads[k] = four.direct[r][k];
    p.pads = (u64)four.direct[r].data(), q.barrier.pads = (u64)four.names[r].data();
    p.members = q.exchange.members, p.words = Four::BARRIER_WORDS, p.counter = Four::BARRIER_COUNTER;
    p.ranks = Four::RANKS, p.rank = r;
    q.store[0] = four.stores(r, r ^ 2, 0, bytes);
    launches.add(q, 1);
  }
  launches.join();
  for (unsigned r = 0; r < Four::RANKS; r++) {
    four.expect(r, r ^ 2, 0, bytes, "barrier");
    for (unsigned k = 0; k < Four::RANKS; k++) EXPECT(four.pads[r][8 + k] == 1, "PE %u has word %llu of PE %u", r, four.pads[r][8 + k], k);
  }
}

int main(int argc, char** argv) {
  if (argc < 3) return 2;
  begin_test(argv[2]);
  if (argc > 3) WITHOUT = (uint32_t)atoi(argv[3]);
  random_words.seed((u64)atoll(argv[2]));
  for (int k = 0; k < atoi(argv[1]); k++) {
    put_with_signal();
    get();
    pad_signals();
    signals_to_a_direct_member();
    barrier_with_direct_members();
  }
  printf("%d failures\n", failures);
  return failures != 0;
}
