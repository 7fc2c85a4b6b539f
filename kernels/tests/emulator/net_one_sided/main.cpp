// put, get, put_with_signal, wait_until and pad signals between two PEs on two hosts: random sizes, places and blocks. Whoever sees a
// signal finds the data.
//
// usage: main CALLS SEED
#include "net.h"

#include <random>

using namespace symm;

static std::mt19937_64 random_words;
static u64 below(u64 n) { return random_words() % n; }

constexpr size_t BUFFER_BYTES = 16384;
constexpr size_t PAD_WORDS = 64;

// Cmp::Eq of symm_core::backend.
constexpr uint32_t EQUAL = 0;

enum What { PUT, GET, AWAIT, SIGNALS };

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
  uint64_t times;            // SIGNALS
};
inline unsigned rank_of(const OneSided& q) { return q.exchange.rank; }
}  // namespace symm

static void on_network(OneSided q) {
  q.copy.net = q.wait.net = q.signal.net = q.net;
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

int main(int argc, char** argv) {
  if (argc < 3) return 2;
  begin_test(argv[2]);
  random_words.seed((u64)atoll(argv[2]));
  for (int k = 0; k < atoi(argv[1]); k++) {
    put_with_signal();
    get();
    pad_signals();
  }
  printf("%d failures\n", failures);
  return failures != 0;
}
