// Kernels of users', made of include/symm/handle.cuh, on the memory model: whoever has waited for a signal, a slot or a barrier finds
// what came before it, in the same kernel and in the stream's next one; and what waits do when nobody comes, or the team has failed.
//
// usage: main CALLS SEED
#include "launches.h"
#include "symm/handle.cuh"
#include "world.h"

extern "C" void symm_barrier(BarrierParams p);

typedef std::vector<unsigned char> Bytes;

constexpr size_t BUFFER = 8192;
constexpr u64 LIMIT_NS = 60000000000ull;
constexpr u64 SHORT_NS = 200000;

// Offsets in a pad of 4 channels.
constexpr u64 SIGNALS = 0, SLOTS = 256, WORDS = 512, COUNTERS = 768;

// A team whose PEs each have a stream, a pad, and memory for what their kernels see.
struct Team {
  World world;
  std::vector<std::vector<u64>> pads;
  std::vector<Bytes> seen;
  std::vector<u64> pad_table;
  std::vector<unsigned> streams;

  explicit Team(unsigned ranks) : world(ranks, 0, BUFFER), pads(ranks, std::vector<u64>(128, 0)), seen(ranks, Bytes(4 * BUFFER, 0)) {
    // Slots lie at the beginning of a pad.
    for (auto& p : pads) pad_table.push_back((u64)p.data() + SLOTS);
    for (unsigned r = 0; r < ranks; r++) {
      streams.push_back(machine::new_stream());
      Pe& q = world.pe[r];
      model::own(r, q.out.data(), q.out.size());
      model::own(r, pads[r].data(), pads[r].size() * 8);
      model::own(r, seen[r].data(), seen[r].size());
    }
  }

  Handle handle(unsigned rank) {
    Pe& q = world.pe[rank];
    const u64 buffers = (u64)q.buffers.data(), pads = (u64)pad_table.data(), members = (u64)q.members.data();
    return {buffers, pads, members, (u64)&q.device, (u64)&q.host, 0, SIGNALS - SLOTS, WORDS - SLOTS, COUNTERS - SLOTS, rank, world.ranks};
  }

  template <typename Kernel>
  void launch(unsigned rank, Kernel kernel) {
    const Handle h = handle(rank);
    const u64 seen_at = (u64)seen[rank].data();
    machine::enqueue(streams[rank], {[=] { kernel(h, seen_at); }, rank, 1, Order::Together, 64, nullptr});
  }

  // Waits for all kernels, which are to have succeeded; what each has seen is to be `wanted`.
  void join(const char* what, const std::vector<Bytes>& wanted) {
    machine::join();
    for (unsigned r = 0; r < world.ranks; r++) {
      EXPECT(world.pe[r].device.code == STATUS_OK, "%s: rank %u: code %llu", what, r, (u64)world.pe[r].device.code);
      if (wanted[r].empty()) continue;
      EXPECT(memcmp(seen[r].data(), wanted[r].data(), wanted[r].size()) == 0, "%s: rank %u", what, r);
    }
  }
};

// By the block, with plain accesses: `to` is seen by the test.
static void note(u64 to, u64 from, u64 bytes) {
  for (u64 k = threadIdx.x * 8; k + 8 <= bytes; k += blockDim.x * 8) *(u64*)(to + k) = *(const u64*)(from + k);
}

static Bytes random_bytes(size_t n) {
  Bytes bytes(n);
  for (unsigned char& x : bytes) x = (unsigned char)random_words();
  return bytes;
}

static void append(Bytes& to, const Bytes& more) { to.insert(to.end(), more.begin(), more.end()); }

// Round by round to the right neighbour, each with a larger signal; a barrier before the next one.
static void signals() {
  Team team(3);
  const u64 bytes = 8 * (1 + below(250)), rounds = 3, channel = below(4);
  std::vector<Bytes> sources, wanted(3);
  for (unsigned r = 0; r < 3; r++) sources.push_back(random_bytes(rounds * bytes));
  for (unsigned r = 0; r < 3; r++) {
    wanted[r] = sources[(r + 2) % 3];
    const u64 source = (u64)sources[r].data();
    // The launches of a graph that is replayed: the same kernel, which counts its runs in memory.
    for (u64 run = 0; run < rounds; run++) {
      team.launch(r, [=](Handle h, u64 seen) {
        const Deadline deadline(LIMIT_NS);
        put_with_signal(h, (h.rank + 1) % h.ranks, 0, (const void*)(source + run * bytes), bytes, 3, run + 1);
        if (!block_wait_until(h, 3, Compare::GreaterEqual, run + 1, deadline)) return;
        note(seen + run * bytes, (u64)buffer<char>(h, h.rank), bytes);
        barrier(h, channel, deadline);
      });
    }
  }
  team.join("put_with_signal", wanted);
}

// Several senders add to one signal.
static void additions() {
  Team team(3);
  const u64 bytes = 8 * (1 + below(100));
  std::vector<Bytes> sources, wanted(3);
  for (unsigned r = 1; r < 3; r++) {
    sources.push_back(random_bytes(bytes));
    append(wanted[0], sources.back());
  }
  for (unsigned r = 1; r < 3; r++) {
    const u64 source = (u64)sources[r - 1].data();
    team.launch(r, [=](Handle h, u64) {
      put(h, 0, (h.rank - 1) * bytes, (const void*)source, bytes);
      __syncthreads();
      if (threadIdx.x == 0) add_signal(h, 0, 2, 1);
    });
  }
  team.launch(0, [=](Handle h, u64 seen) {
    if (block_wait_until(h, 2, Compare::Equal, 2, Deadline(LIMIT_NS))) note(seen, (u64)buffer<char>(h, 0), 2 * bytes);
  });
  team.join("add_signal", wanted);
}

// Who is told that a neighbour's data are ready gets them.
static void gets() {
  Team team(3);
  const u64 bytes = 8 * (1 + below(200)), offset = 8 * below(3);
  std::vector<Bytes> sources, wanted(3), places(3, Bytes(bytes));
  for (unsigned r = 0; r < 3; r++) sources.push_back(random_bytes(bytes));
  for (unsigned r = 0; r < 3; r++) {
    wanted[r] = sources[(r + 1) % 3];
    const u64 source = (u64)sources[r].data(), place = (u64)places[r].data();
    team.launch(r, [=](Handle h, u64 seen) {
      note((u64)buffer<char>(h, h.rank) + offset, source, bytes);
      __syncthreads();
      if (threadIdx.x == 0) set_signal(h, (h.rank + h.ranks - 1) % h.ranks, 5, 1);
      if (!block_wait_until(h, 5, Compare::Equal, 1, Deadline(LIMIT_NS))) return;
      get(h, (h.rank + 1) % h.ranks, offset, (void*)place, bytes);
      __syncthreads();
      note(seen, place, bytes);
    });
  }
  team.join("get", wanted);
}

// Data and a slot; what the receiver has put back before it consumed the signal is there once the sender may signal again.
static void slots() {
  Team team(2);
  const Bytes there = random_bytes(8 * (1 + below(120))), back = random_bytes(8 * (1 + below(120)));
  const u64 there_at = (u64)there.data(), there_bytes = there.size(), back_at = (u64)back.data(), back_bytes = back.size(), channel = below(4);
  team.launch(0, [=](Handle h, u64 seen) {
    put(h, 1, 0, (const void*)there_at, there_bytes);
    __syncthreads();
    const Deadline deadline(LIMIT_NS);
    const bool late = threadIdx.x == 0 && !(put_signal(h, 1, channel, deadline) && put_signal(h, 1, channel, deadline));
    if (!__syncthreads_or(late)) note(seen, (u64)buffer<char>(h, 0), back_bytes);
  });
  team.launch(1, [=](Handle h, u64 seen) {
    put(h, 0, 0, (const void*)back_at, back_bytes);
    const Deadline deadline(LIMIT_NS);
    if (!block_wait_signal(h, 0, channel, deadline)) return;
    note(seen, (u64)buffer<char>(h, 1), there_bytes);
    block_wait_signal(h, 0, channel, deadline);
  });
  team.join("a slot", {back, there});
  for (unsigned r = 0; r < 2; r++)
    for (u64 k = SLOTS / 8; k < WORDS / 8; k++) EXPECT(team.pads[r][k] == 0, "rank %u: a slot is not idle", r);
}

// Everybody puts to everybody, meets, looks, meets; rank 0 with the library's own barrier in the last round.
static void barriers() {
  const unsigned ranks = 2 + (unsigned)below(2);
  Team team(ranks);
  const u64 bytes = 8 * (1 + below(60)), rounds = 2, channel = below(4);
  std::vector<Bytes> sources, wanted(ranks);
  for (unsigned r = 0; r < ranks; r++) sources.push_back(random_bytes((rounds + 1) * bytes));
  const auto of = [&](unsigned r, u64 round) { return Bytes(sources[r].begin() + round * bytes, sources[r].begin() + (round + 1) * bytes); };
  for (u64 round = 0; round < rounds; round++)
    for (unsigned to = 0; to < ranks; to++)
      for (unsigned r = 0; r < ranks; r++) append(wanted[to], of(r, round));
  for (unsigned r = 1; r < ranks; r++) append(wanted[0], of(r, rounds));
  for (unsigned r = 0; r < ranks; r++) {
    const u64 source = (u64)sources[r].data();
    team.launch(r, [=](Handle h, u64 seen) {
      const Deadline deadline(LIMIT_NS);
      for (u64 round = 0; round < rounds; round++) {
        for (u64 to = 0; to < h.ranks; to++) put(h, to, h.rank * bytes, (const void*)(source + round * bytes), bytes);
        if (!barrier(h, channel, deadline)) return;
        note(seen + round * h.ranks * bytes, (u64)buffer<char>(h, h.rank), h.ranks * bytes);
        if (!barrier(h, channel, deadline)) return;
      }
    });
    if (r == 0) {
      BarrierParams p{};
      p.status = {(u64)&team.world.pe[0].device, (u64)&team.world.pe[0].host};
      std::copy(team.pad_table.begin(), team.pad_table.end(), p.near_pads);
      p.pads = (u64)team.pad_table.data(), p.members = (u64)team.world.pe[0].members.data();
      p.words = WORDS - SLOTS + 8 * ranks * channel, p.counter = COUNTERS - SLOTS + 8 * channel, p.limit_ns = LIMIT_NS, p.ranks = ranks;
      machine::enqueue(team.streams[0], {[=] { symm_barrier(p); }, 0, 1, Order::Together, 64, nullptr});
      team.launch(0, [=](Handle h, u64 seen) { note(seen + rounds * h.ranks * bytes, (u64)buffer<char>(h, 0) + bytes, (h.ranks - 1) * bytes); });
    } else {
      team.launch(r, [=](Handle h, u64) {
        put(h, 0, h.rank * bytes, (const void*)(source + rounds * bytes), bytes);
        barrier(h, channel, Deadline(LIMIT_NS));
      });
    }
  }
  team.join("a barrier", wanted);
}

static void timed_out(const Pe& q, u64 op, u64 phase, u64 expected, u64 got) {
  const StatusRecord& s = q.host;
  EXPECT(s.code == STATUS_TIMEOUT && s.op == op && s.phase == phase && s.pe == FIRST_PE + 1 && s.late == 2 && s.expected == expected && s.got == got,
         "operation %llu: code %llu, op %llu, phase %llu, PE %llu, late %llu, expected %llu, got %llu", op, (u64)s.code, (u64)s.op, (u64)s.phase,
         (u64)s.pe, (u64)s.late, (u64)s.expected, (u64)s.got);
  EXPECT(q.device.code == STATUS_TIMEOUT && s.waited_ns >= SHORT_NS / 2, "operation %llu: waited %llu", op, (u64)s.waited_ns);
}

// A kernel that rank 0 runs alone. It returns whether all went as it should.
template <typename Kernel>
static void alone(Team& team, const char* what, Kernel kernel) {
  team.launch(0, [=](Handle h, u64 seen) {
    const bool wrong = !kernel(h);
    const bool any = __syncthreads_or(wrong);
    if (threadIdx.x == 0) *(u64*)seen = any ? 1 : 2;
  });
  machine::join();
  u64 said;
  memcpy(&said, team.seen[0].data(), 8);
  EXPECT(said == 2, "%s", what);
}

// Rank 1 never comes.
static void nobody_comes() {
  {
    Team team(2);
    alone(team, "a barrier that nobody joins", [](Handle h) { return !barrier(h, 1, Deadline(SHORT_NS)) && !team_ok(h); });
    timed_out(team.world.pe[0], OP_HANDLE_BARRIER, PHASE_ARRIVAL, 1, 0);
    // Nothing more is begun.
    alone(team, "a barrier of a team that failed", [](Handle h) { return !barrier(h, 1, Deadline(LIMIT_NS)); });
    EXPECT(team.pads[0][(COUNTERS + 8) / 8] == 1, "a barrier was counted after the failure");
  }
  {
    Team team(2);
    alone(team, "a slot that nobody takes down", [](Handle h) {
      return threadIdx.x != 0 || (put_signal(h, 1, 0, Deadline(SHORT_NS)) && !put_signal(h, 1, 0, Deadline(SHORT_NS)));
    });
    timed_out(team.world.pe[0], OP_PUT_SIGNAL, PHASE_SIGNAL, 0, 1);
  }
  {
    Team team(2);
    alone(team, "a slot that nobody raises", [](Handle h) { return !block_wait_signal(h, 1, 0, Deadline(SHORT_NS)); });
    timed_out(team.world.pe[0], OP_WAIT_SIGNAL, PHASE_SIGNAL, 1, 0);
  }
  {
    Team team(2);
    alone(team, "a signal that nobody sends", [](Handle h) { return !block_wait_until(h, 0, Compare::NotEqual, 0, Deadline(SHORT_NS)) && team_ok(h); });
    EXPECT(team.world.pe[0].host.code == STATUS_OK, "a deadline of wait_until failed the team");
  }
}

// Rank 1 is on another host: its addresses are 0.
static void not_direct() {
  Team team(2);
  team.pad_table[1] = team.world.pe[0].buffers[1] = 0;
  alone(team, "a member that is not direct", [](Handle h) {
    const Deadline deadline(LIMIT_NS);
    return !barrier(h, 0, deadline) && !(threadIdx.x == 0 && put_signal(h, 1, 0, deadline)) && !is_direct(h, 1) && team_ok(h);
  });
  EXPECT(team.pads[0][COUNTERS / 8] == 0, "a barrier was counted");
}

// The team fails while rank 0 waits with a deadline that is far: a kernel of this GPU has seen it, or only the host has, or the host and
// a kernel that has claimed the device copy and takes its time to write it. Whoever's wait has ended finds that the team has failed.
enum class FailedOn { Gpu, Host, Both };
static void the_team_fails(FailedOn on) {
  Team team(2);
  StatusRecord *host = &team.world.pe[0].host, *device = &team.world.pe[0].device;
  machine::enqueue(machine::new_stream(), {[=] {
    if (threadIdx.x != 0) return;
    machine::sleep(SHORT_NS / machine::TICK_NS);
    const Failure failure = {STATUS_PEER_FAILED, 0, 0, FIRST_PE + 1, 0, 0, 0, 0};
    if (on == FailedOn::Gpu) return status_fail({device, host}, failure);
    if (on == FailedOn::Both) cas_acq_rel_gpu_u64(&device->claim, 0, 1);
    cas_acq_rel_sys_u64(&host->claim, 0, 1);
    status_write(host, failure);
    if (on != FailedOn::Both) return;
    machine::sleep(SHORT_NS / machine::TICK_NS);
    status_write(device, failure);
  }, 0, 1, Order::Together, 64, nullptr});
  const u64 began = machine::now_ns();
  const unsigned which = (unsigned)below(3);
  alone(team, "a wait of a team that fails", [=](Handle h) {
    const Deadline deadline(LIMIT_NS);
    const bool came = which == 0 ? block_wait_until(h, 1, Compare::Equal, 7, deadline)
                    : which == 1 ? block_wait_signal(h, 1, 2, deadline) : barrier(h, 3, deadline);
    // Of the thread that waited: another one's look need not find, on this machine, what that one has seen.
    return !came && (threadIdx.x != 0 || !team_ok(h));
  });
  EXPECT(machine::now_ns() - began < LIMIT_NS / 100, "it waited %llu ns", machine::now_ns() - began);
  EXPECT(host->code == STATUS_PEER_FAILED && device->code == STATUS_PEER_FAILED, "codes %llu, %llu", (u64)host->code, (u64)device->code);
}

int main(int argc, char** argv) {
  if (argc < 3) return 2;
  begin_test(argv[2]);
  random_words.seed((u64)atoll(argv[2]));
  for (int call = 0; call < atoi(argv[1]); call++) {
    signals();
    additions();
    gets();
    slots();
    barriers();
    nobody_comes();
    not_direct();
    for (FailedOn on : {FailedOn::Gpu, FailedOn::Host, FailedOn::Both}) the_team_fails(on);
  }
  printf("%d failures\n", failures);
  return failures != 0;
}
