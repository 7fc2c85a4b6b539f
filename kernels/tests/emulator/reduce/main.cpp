// The broadcast and the reductions on host threads against an oracle: random calls with one damaged PE now and then, then
// the failures.
//
// usage: main CALLS SEED [FENCE]    FENCE (enum Fence of steps.cuh) is left out
#include "calls.h"

#ifndef REDUCE_LAUNCHES
#define REDUCE_LAUNCHES Launches<Shared, ReduceParams>
#endif
using ReduceLaunches = REDUCE_LAUNCHES;

constexpr size_t BUFFER_BYTES = 40000;
constexpr unsigned char UNTOUCHED = 0xDD;

// The parameters of one PE's call, but for its addresses, and the header that goes with them.
static ReduceParams plain(World& w, unsigned rank, u64 form, const Type& type, u64 n) {
  ReduceParams q;
  memset(&q, 0, sizeof q);
  q.exchange = w.params(rank);
  q.exchange.form = form, q.exchange.dtype = type.dtype, q.exchange.row_bytes = type.size;
  q.exchange.in_rows = q.exchange.out_rows = n;
  q.lead = 1;
  q.gathered = w.layout.gathered;
  return q;
}

enum Damage { NONE, ARGUMENT, OUTPUT_ROWS, ELEMENTS };

// One call of every PE, with what it must leave.
struct Call {
  World& world;
  const Type& type;
  u64 form, size, lead = 1, n;
  unsigned root, at;
  Damage damage = NONE;
  std::vector<ReduceParams> params;
  std::vector<unsigned> blocks;
  std::vector<Bytes> inputs, buffers, sums;  // of each PE: elements, then both memories after the call

  Call(World& w, unsigned most_blocks)
      : world(w), type(TYPES[turn % 6]), form(FORM_BROADCAST + turn % 5), params(w.ranks), blocks(w.ranks), inputs(w.ranks), buffers(w.ranks), sums(w.ranks) {
    turn++;
    // A broadcast takes rows of any size.
    size = form == FORM_BROADCAST ? 1 + below(20) : type.size;
    n = below(4) == 0 ? below(1200) : below(100);
    if (form == FORM_REDUCE_SCATTER) lead = 1 + below(5), n = w.ranks * lead * below(40);
    root = form == FORM_BROADCAST ? (unsigned)below(w.ranks) : 0;
    at = (unsigned)below(w.ranks);
    if (below(8) == 0) damage = (Damage)(1 + below(3));
    if ((damage == OUTPUT_ROWS && n == 0) || (damage == ELEMENTS && w.ranks == 1)) damage = ARGUMENT;
    // Vectors are taken where all addresses are equally far from 16 bytes: often, but not always.
    const bool skewed = below(3) == 0;
    const u64 offset = below(8);
    for (unsigned r = 0; r < w.ranks; r++) prepare(r, skewed ? below(8) : offset, most_blocks);
  }

  void prepare(unsigned r, u64 offset, unsigned most_blocks) {
    Pe& pe = world.pe[r];
    ReduceParams& q = params[r];
    q = plain(world, r, form, type, n);
    ExchangeParams& p = q.exchange;
    p.row_bytes = size;
    p.out_offset = 16 + size * offset;
    q.root = root, q.lead = lead;
    if (r == at && damage == ARGUMENT) p.invalid = FAULT_ARGUMENT;
    if (r == at && damage == OUTPUT_ROWS) p.out_rows = n - 1;
    if (r == at && damage == ELEMENTS) p.in_rows = p.out_rows = n + world.ranks * lead;

    pe.in.resize(p.in_rows * size + 16);
    if (form == FORM_BROADCAST) for (unsigned char& x : pe.in) x = (unsigned char)random_words();
    else for (u64 i = 0; i < p.in_rows; i++) type.fill(&pe.in[i * size]);
    inputs[r] = pe.in;
    std::fill(pe.out.begin(), pe.out.end(), POISON);
    if (form == FORM_ONE_SHOT_ALL_REDUCE && below(2) == 0) p.input = (u64)pe.in.data();
    else memcpy(&pe.out[p.out_offset], pe.in.data(), n * size);
    pe.sums.assign(n * size + 64, UNTOUCHED);
    // As far from 16 bytes as the buffer is, or anywhere.
    const u64 result = ((u64)pe.sums.data() + 15) / 16 * 16 + (below(2) == 0 ? p.out_offset % 16 : size * below(8) % 16);
    if (form != FORM_BROADCAST && form != FORM_TWO_SHOT_ALL_REDUCE) q.result = result;
    fill_header(q);
    blocks[r] = 1 + (unsigned)below(most_blocks);
    buffers[r] = pe.out, sums[r] = pe.sums;
  }

  // What each PE's memories are to hold after the call.
  void expect() {
    const Bytes sum = form == FORM_BROADCAST ? Bytes() : type.sum(inputs, n * size, 1);
    for (unsigned r = 0; r < world.ranks; r++) {
      const ExchangeParams& p = params[r].exchange;
      const u64 result = params[r].result - (u64)world.pe[r].sums.data();
      const auto put_range = [&](Bytes& memory, u64 to, const Bytes& from, u64 begin, u64 count) {
        std::copy_n(from.begin() + begin * size, count * size, memory.begin() + to);
      };
      // A PE takes its own elements in before it knows the verdict, unless it refuses the call itself.
      if (p.input != 0 && p.invalid == 0) put_range(buffers[r], p.out_offset, inputs[r], 0, p.in_rows);
      if (damage != NONE) continue;
      const u64 row = n / lead, cols = row / world.ranks;
      const u64 unit = 128 / size, chunk = ((n + world.ranks - 1) / world.ranks + unit - 1) / unit * unit;
      const u64 begin = std::min(chunk * r, n), count = std::min(chunk, n - begin);
      switch (form) {
        case FORM_BROADCAST: put_range(buffers[r], p.out_offset, inputs[root], 0, n); break;
        case FORM_REDUCE_SCATTER:
          for (u64 k = 0; k < lead; k++) put_range(sums[r], result + k * cols * size, sum, k * row + r * cols, cols);
          break;
        case FORM_ONE_SHOT_ALL_REDUCE: put_range(sums[r], result, sum, 0, n); break;
        case FORM_TWO_SHOT_ALL_REDUCE: put_range(buffers[r], p.out_offset, sum, 0, n); break;
        case FORM_TWO_SHOT_ALL_REDUCE_OUT:
          put_range(sums[r], result, sum, 0, n);
          // Each PE leaves its chunk's sums in its own buffer, from which the others get them.
          put_range(buffers[r], p.out_offset + begin * size, sum, begin, count);
          break;
      }
    }
  }

  // Runs the call and compares. Returns whether the team is fit for another one.
  bool check() {
    ReduceLaunches launches;
    for (unsigned r = 0; r < world.ranks; r++) {
      // The host has no element type to choose a kernel by where it refuses the arguments.
      const bool no_type = form == FORM_BROADCAST || params[r].exchange.invalid != 0;
      launches.add(no_type ? symm_broadcast : type.kernel, params[r], blocks[r], below(2) == 0 ? Order::OneByOne : Order::Together);
      launches.watch(world.pe[r].out);
      launches.watch(world.pe[r].sums);
    }
    launches.join();
    expect();

    const u64 faults[] = {0, FAULT_ARGUMENT, FAULT_OUTPUT_ROWS, FAULT_FORM | FIELD_LENGTH << 8};
    // All are compared with rank 0: if that is the odd one, rank 1 is the first that differs.
    const unsigned named = damage == ELEMENTS && at == 0 ? 1 : at;
    char what[160];
    for (unsigned r = 0; r < world.ranks; r++) {
      Pe& q = world.pe[r];
      snprintf(what, sizeof what, "form %llu, dtype %llu, PE %u of %u, %llu x %llu bytes, lead %llu, blocks %u, brings %d, damage %d", form,
               type.dtype, r, world.ranks, n, size, lead, blocks[r], params[r].exchange.input != 0, damage);
      if (damage == NONE) EXPECT(q.device.code == 0, "%s: code %llu, fault %llu", what, q.device.code, q.device.phase);
      else EXPECT(q.host.code == STATUS_PEER_INVALID && q.host.phase == faults[damage] && q.host.pe == FIRST_PE + named,
                  "%s: code %llu, fault %llu, PE %llu", what, q.host.code, q.host.phase, q.host.pe);
      if (damage == ELEMENTS) EXPECT(q.host.expected == params[0].exchange.in_rows && q.host.got == params[named].exchange.in_rows,
                                     "%s: %llu and %llu elements", what, q.host.expected, q.host.got);
      EXPECT(q.out == buffers[r], "%s: buffer", what);
      EXPECT(q.sums == sums[r], "%s: result", what);
      expect_idle(q, what);
    }
    return damage == NONE;
  }

  // A launch leaves its counts at zero and its context ready for the next one.
  static void expect_idle(const Pe& q, const char* what) {
    const LaunchRecord zero{};
    EXPECT(memcmp(&zero, &q.record, sizeof zero) == 0, "%s: record %u", what, q.record.tickets);
    EXPECT(q.context[0] == q.context[1], "%s: ticket %llu, completed %llu", what, q.context[0], q.context[1]);
  }
};

// A call that the failures below are made of: ones of every PE are added up, here in the buffers, from a local input or
// to an output, so that a launch has one, or two stages of either kind.
static ReduceParams ones(World& w, unsigned r, u64 form) {
  const u64 n = 300;
  Pe& pe = w.pe[r];
  pe.in.clear();
  for (u64 i = 0; i < n; i++) pe.in.insert(pe.in.end(), {1, 0, 0, 0});
  pe.sums.assign(4 * n, UNTOUCHED);
  ReduceParams q = plain(w, r, form, TYPES[4], n);
  if (form == FORM_ONE_SHOT_ALL_REDUCE) q.exchange.input = (u64)pe.in.data();
  else memcpy(pe.out.data(), pe.in.data(), 4 * n);
  if (form != FORM_TWO_SHOT_ALL_REDUCE) q.result = (u64)pe.sums.data();
  fill_header(q);
  return q;
}

static void late_pe(u64 form) {
  World w(3, 0, BUFFER_BYTES);
  ReduceLaunches launches;
  for (unsigned r = 0; r < 2; r++) {
    ReduceParams q = ones(w, r, form);
    q.exchange.limit_ns = 300000000;
    launches.add(symm_reduce_i32, q, 3);
  }
  launches.join();
  for (unsigned r = 0; r < 2; r++) {
    const StatusRecord& s = w.pe[r].host;
    EXPECT(s.code == STATUS_TIMEOUT && s.phase == PHASE_ARRIVAL && s.pe == FIRST_PE + 2 && s.late == 4 && s.expected == 1,
           "form %llu, PE %u: code %llu phase %llu PE %llu late %llx expected %llu", form, r, s.code, s.phase, s.pe, s.late, s.expected);
    EXPECT(w.pe[r].sums == Bytes(w.pe[r].sums.size(), UNTOUCHED), "form %llu, PE %u: written after a failure", form, r);
    Call::expect_idle(w.pe[r], "late");
  }
  // Whoever comes late learns that the others gave up, and whom they blame.
  const u64 began = now_ns();
  launches.add(symm_reduce_i32, ones(w, 2, form), 3);
  launches.join();
  const StatusRecord& s = w.pe[2].host;
  EXPECT(s.code == STATUS_TIMEOUT && s.pe == FIRST_PE + 2 && s.late == 4, "form %llu: code %llu PE %llu late %llx", form, s.code, s.pe, s.late);
  EXPECT(now_ns() - began < 20000000000ull, "the late PE waited until its deadline");
  // The next call does nothing, and ends.
  launches.add(symm_reduce_i32, ones(w, 0, form), 3);
  launches.join();
  EXPECT(w.pe[0].sums == Bytes(w.pe[0].sums.size(), UNTOUCHED), "form %llu: written after a failure", form);
  Call::expect_idle(w.pe[0], "after a failure");
}

// Both launches of a PE are on their way at once, each with a record of its own; the context puts them in turn.
static void two_launches_of_one_context() {
  World w(2, 0, BUFFER_BYTES);
  LaunchRecord second[2]{};
  for (u64 round = 1; round <= 3; round++) {
    ReduceLaunches launches;
    Bytes sums[2];
    for (unsigned r = 0; r < 2; r++) {
      ReduceParams q = ones(w, r, FORM_ONE_SHOT_ALL_REDUCE);
      launches.add(symm_reduce_i32, q, 2);
      sums[r].assign(w.pe[r].sums.size(), UNTOUCHED);
      q.exchange.record = (u64)&second[r];
      q.result = (u64)sums[r].data();
      launches.add(symm_reduce_i32, q, 2);
    }
    launches.join();
    for (unsigned r = 0; r < 2; r++) {
      const Pe& q = w.pe[r];
      Bytes twos(q.sums.size(), 0);
      for (size_t i = 0; i < twos.size(); i += 4) twos[i] = 2;
      EXPECT(q.device.code == 0 && q.context[0] == 2 * round, "round %llu, PE %u: code %llu, ticket %llu", round, r, q.device.code, q.context[0]);
      EXPECT(q.sums == twos && sums[r] == twos, "round %llu, PE %u: sums", round, r);
      Call::expect_idle(q, "two launches");
      const LaunchRecord zero{};
      EXPECT(memcmp(&zero, &second[r], sizeof zero) == 0, "round %llu, PE %u: second record", round, r);
    }
  }
}

int main(int argc, char** argv) {
  // Half of the forms' and types' pairs further on with every seed.
  return random_calls<Call>(argc, argv, 15, BUFFER_BYTES, [] {
    for (u64 form : {FORM_TWO_SHOT_ALL_REDUCE, FORM_ONE_SHOT_ALL_REDUCE, FORM_TWO_SHOT_ALL_REDUCE_OUT}) late_pe(form);
    two_launches_of_one_context();
  });
}
