// The exchange kernel on host threads against an oracle: random calls with one damaged PE now and then, then the failures.
//
// usage: main ITERATIONS SEED [FENCE]    FENCE (enum Fence of steps.cuh) is left out
#include "exchange.cu"


#include "launches.h"
#include "world.h"

using namespace symm::exchange;
static_assert(sizeof(Shared<true>) <= sizeof(Shared<false>), "one size serves both");

// A kernel that the host would choose.
static void (*kernel_of(const ExchangeParams& p))(ExchangeParams) {
  if (p.ranks > FEW_RANKS || p.n_splits > FEW_SPLITS) return symm_exchange;
  switch (p.form) {
    case FORM_BARRIER: return symm_exchange_barrier;
    case FORM_ALL_GATHER: return symm_exchange_all_gather;
    case FORM_ALL_TO_ALL: return symm_exchange_all_to_all;
    // PEs of one call may differ in it.
    case FORM_ALL_TO_ALL_VDEV: return below(2) == 0 ? symm_exchange_vdev_ahead : symm_exchange_vdev;
    case FORM_ALL_TO_ALL_VDEV_2D: return below(2) == 0 ? symm_exchange_vdev_2d_ahead : symm_exchange_vdev_2d;
    default: return below(2) == 0 ? symm_exchange_vdev_2d_offset_ahead : symm_exchange_vdev_2d_offset;
  }
}

#ifdef EXCHANGE_LAUNCHES
using ExchangeLaunches = EXCHANGE_LAUNCHES;
#else
struct ExchangeLaunches : Launches<Shared<false>, ExchangeParams> {
  // Now and then there is room for one block at a time.
  void add(const ExchangeParams& p, unsigned blocks) {
    Launches::add(kernel_of(p), p, blocks, below(4) == 0 ? Order::OneByOne : Order::Together);
  }
};
#endif


enum Damage { NONE, NEGATIVE, INPUT, OUTPUT };

// One call of every PE, with what it must leave.
struct Call {
  World& world;
  u64 form, ne, align, row, n;
  bool vectors;
  Damage damage = NONE;
  unsigned at = 0;  // the damaged PE
  std::vector<ExchangeParams> params;
  std::vector<unsigned> blocks;
  u64 equal_rows = 0;

  explicit Call(World& w) : world(w), params(w.ranks), blocks(w.ranks) {
    const u64 forms[] = {16, 17, 18, 19, 20, 20, 20, 21, 21};
    form = forms[below(9)];
    const bool experts = form >= 20;
    ne = !experts ? 1 : below(6) == 0 ? 100 : 1 + below(40);
    align = form == 20 ? 1 + below(9) : 1;
    // Half of them in whole vectors, of which a few rows are more than a warp reads ahead.
    vectors = below(2) == 0;
    row = vectors ? 16 * (1 + below(form < 19 ? 19 : w.ranks * ne > 80 ? 2 : 1200 / (w.ranks * ne + 6))) : 1 + below(37);
    n = form >= 19 ? w.ranks * ne : 0;
    equal_rows = below(50) * w.ranks;
    if (form >= 19 && below(5) == 0) damage = (Damage)(1 + below(3));
    at = (unsigned)below(w.ranks);
    const u64 most = 1 + below(12);
    for (unsigned r = 0; r < w.ranks; r++) prepare(r, most);
    if (damage == NEGATIVE) w.pe[at].splits[n / 2] = -3;
    if (damage == INPUT) params[at].in_rows = 0;
    if (damage == OUTPUT) params[at].out_rows = 0;
  }

  void prepare(unsigned r, u64 most) {
    Pe& q = world.pe[r];
    q.splits.assign(2 * n + 1, 0);
    q.result.assign(2 * n + 1, -1);
    u64 rows = 0;
    for (u64 i = 0; i < n; i++) {
      q.splits[i] = below(3) == 0 ? 0 : (long long)below(most);
      if (form == 21) rows += below(3), q.splits[n + i] = (long long)rows;
      rows += q.splits[i];
    }
    if (form < 19) rows = form == 16 ? 0 : equal_rows;
    q.in.resize(rows * row + 80);
    for (unsigned char& x : q.in) x = (unsigned char)random_words();
    std::fill(q.out.begin(), q.out.end(), POISON);
    ExchangeParams p = world.params(r);
    p.form = form, p.row_bytes = row, p.ne = ne, p.major_align = align;
    p.input = vectors ? ((u64)q.in.data() + 15) / 16 * 16 : (u64)q.in.data() + below(5);
    p.in_rows = rows;
    p.out_offset = vectors ? (16 - (u64)q.out.data() % 16) % 16 + (below(8) == 0 ? 8 : 0) : (r * 3) % 11;
    p.out_rows = (q.out.size() - 32) / row;
    p.in_splits = (u64)q.splits.data();
    p.out_splits = form >= 19 ? (u64)q.result.data() : 0;
    p.n_splits = n;
    blocks[r] = form == 16 ? 1 : 1 + (unsigned)below(4);
    p.remote_blocks = world.ranks > 1 && blocks[r] > 1 ? 1 + (uint32_t)below(blocks[r] - 1) : 0;
    params[r] = p;
  }

  // Where PE `d` gets what: (source, rows, first row in the source's input, row in the output, column of the result).
  template <typename Visit>
  void pieces(unsigned d, Visit visit) const {
    const auto& pe = world.pe;
    const auto before = [&](unsigned s, u64 i) {
      u64 sum = 0;
      for (u64 j = 0; j < i; j++) sum += pe[s].splits[j];
      return sum;
    };
    u64 at = 0;
    const auto piece = [&](unsigned s, u64 rows, u64 from, u64 column) {
      visit(s, rows, from, at, column);
      at += rows;
    };
    for (unsigned s = 0; s < world.ranks && form == 17; s++) piece(s, equal_rows, 0, 0);
    for (unsigned s = 0; s < world.ranks && form == 18; s++) piece(s, equal_rows / world.ranks, d * (equal_rows / world.ranks), 0);
    for (unsigned s = 0; s < world.ranks && form == 19; s++) piece(s, pe[s].splits[d], before(s, d), s);
    for (u64 e = 0; e < ne && form == 20; e++) {
      const u64 start = at;
      for (unsigned s = 0; s < world.ranks; s++) piece(s, pe[s].splits[d * ne + e], before(s, d * ne + e), e * world.ranks + s);
      if (at == start) at += align;
      while (at % align != 0) at++;
    }
    for (unsigned s = 0; s < world.ranks && form == 21; s++)
      for (u64 e = 0; e < ne; e++)
        piece(s, pe[s].splits[e * world.ranks + d], pe[s].splits[n + e * world.ranks + d], s * ne + e);
  }

  // Runs the call and compares. Returns whether the team is fit for another one.
  bool check() {
    ExchangeLaunches launches;
    for (unsigned r = 0; r < world.ranks; r++) {
      launches.add(params[r], blocks[r]);
      launches.watch(world.pe[r].out);
      launches.watch(world.pe[r].result);
    }
    launches.join();

    bool bad = damage == NEGATIVE;
    std::vector<std::vector<unsigned char>> outs(world.ranks);
    std::vector<std::vector<long long>> results(world.ranks, std::vector<long long>(2 * n + 1, -1));
    for (unsigned d = 0; d < world.ranks && !bad; d++) {
      outs[d].assign(world.pe[d].out.size(), POISON);
      u64 sent = 0;
      for (u64 i = 0; i < n; i++) sent += world.pe[d].splits[i];
      if (damage == INPUT && d == at && sent > 0) bad = true;
      pieces(d, [&](unsigned s, u64 rows, u64 from, u64 to, u64 column) {
        if (form >= 19) results[d][column] = (long long)rows, results[d][n + column] = (long long)to;
        if (rows > 0 && to + rows > params[d].out_rows) bad = true;
        else memcpy(outs[d].data() + params[d].out_offset + to * row, (unsigned char*)params[s].input + from * row, rows * row);
      });
    }
    char what[160];
    for (unsigned r = 0; r < world.ranks; r++) {
      Pe& q = world.pe[r];
      snprintf(what, sizeof what, "form %llu, PE %u of %u, ne %llu, align %llu, row %llu, blocks %u, remote %u, damage %d", form, r,
               world.ranks, ne, align, row, blocks[r], params[r].remote_blocks, damage);
      EXPECT((q.device.code != 0) == bad, "%s: status %llu", what, q.device.code);
      if (bad) {
        EXPECT(q.host.code == STATUS_PEER_INVALID && q.host.pe == FIRST_PE + at, "%s: code %llu, PE %llu", what, q.host.code, q.host.pe);
        EXPECT(q.out == std::vector<unsigned char>(q.out.size(), POISON), "%s: written", what);
        EXPECT(std::vector<long long>(q.result.begin(), q.result.begin() + n) == std::vector<long long>(n, 0), "%s", what);
      } else {
        EXPECT(q.out == outs[r], "%s: data", what);
        EXPECT(form < 19 || q.result == results[r], "%s: result", what);
      }
      const LaunchRecord zero{};
      EXPECT(memcmp(&zero, &q.record, sizeof zero) == 0, "%s: record %u %llx", what, q.record.tickets, (u64)q.record.finished);
      EXPECT(q.context[0] == q.context[1], "%s: ticket %llu, completed %llu", what, q.context[0], q.context[1]);
    }
    return !bad;
  }
};

// A call that every failure below is made of: two experts a rank, three rows for each.
static ExchangeParams plain(World& w, unsigned r) {
  Pe& q = w.pe[r];
  const u64 n = 2 * w.ranks, row = 64;
  q.splits.assign(n, 3);
  q.result.assign(2 * n, -1);
  q.in.assign(3 * n * row, (unsigned char)(r + 1));
  ExchangeParams p = w.params(r);
  p.form = FORM_ALL_TO_ALL_VDEV_2D, p.row_bytes = row, p.ne = 2;
  p.input = (u64)q.in.data(), p.in_rows = 3 * n, p.out_rows = 1024;
  p.in_splits = (u64)q.splits.data(), p.out_splits = (u64)q.result.data(), p.n_splits = n;
  p.remote_blocks = 1;
  return p;
}

static void late_pe() {
  World w(3, 64, 1 << 16);
  ExchangeLaunches launches;
  for (unsigned r = 0; r < 2; r++) {
    ExchangeParams p = plain(w, r);
    p.limit_ns = 300000000;
    launches.add(p, 3);
  }
  launches.join();
  for (unsigned r = 0; r < 2; r++) {
    const StatusRecord& s = w.pe[r].host;
    EXPECT(s.code == STATUS_TIMEOUT && s.phase == PHASE_ARRIVAL && s.pe == FIRST_PE + 2 && s.late == 4 && s.expected == 1,
           "PE %u: code %llu phase %llu PE %llu late %llx expected %llu", r, s.code, s.phase, s.pe, s.late, s.expected);
    EXPECT(w.pe[r].result[0] == 0, "PE %u: row 0 has %lld", r, w.pe[r].result[0]);
  }
  // The one that began first has waited the whole limit; the other may have learnt from it a little before its own.
  const u64 waited[] = {w.pe[0].host.waited_ns, w.pe[1].host.waited_ns};
  EXPECT(waited[0] >= 300000000 || waited[1] >= 300000000, "waited %llu and %llu ns", waited[0], waited[1]);
  // Whoever comes late learns that the others gave up, and whom they blame.
  const u64 began = now_ns();
  launches.add(plain(w, 2), 3);
  launches.join();
  const StatusRecord& s = w.pe[2].host;
  EXPECT(s.code == STATUS_TIMEOUT && s.pe == FIRST_PE + 2 && s.late == 4, "code %llu PE %llu late %llx", s.code, s.pe, s.late);
  EXPECT(now_ns() - began < 20000000000ull, "the late PE waited until its deadline");
  // The next call does nothing, and ends.
  ExchangeParams next = plain(w, 0);
  launches.add(next, 3);
  launches.join();
  EXPECT(w.pe[0].result[0] == 0 && w.pe[0].context[0] == w.pe[0].context[1], "row 0 has %lld", w.pe[0].result[0]);
  EXPECT(w.pe[0].out == std::vector<unsigned char>(1 << 16, POISON), "written after a failure");
}

static void two_launches_of_one_context() {
  World w(2, 64, 1 << 16);
  LaunchRecord second[2]{};
  for (u64 round = 1; round <= 6; round++) {
    ExchangeLaunches launches;
    for (unsigned r = 0; r < 2; r++) {
      ExchangeParams p = plain(w, r);
      launches.add(p, 2);
      p.record = (u64)&second[r];
      launches.add(p, 2);
    }
    launches.join();
    for (unsigned r = 0; r < 2; r++) {
      const Pe& q = w.pe[r];
      EXPECT(q.device.code == 0 && q.context[0] == 2 * round && q.context[1] == 2 * round && q.result[0] == 3 && q.out[3 * 64] == 2,
             "round %llu, PE %u: code %llu, ticket %llu, completed %llu", round, r, q.device.code, q.context[0], q.context[1]);
    }
  }
}

// Splits that change while a call reads them: what counts is what the PE published, in every block, and everybody sees it in the table.
static void splits_that_change(bool offsets) {
  constexpr u64 ROW = 64, EACH = 4;
  World w(2, 64, 1 << 16);
  ExchangeLaunches launches;
  const auto other = [](u64 k) { return (long long)(k % 2 == 0 ? EACH : 0); };
  for (unsigned r = 0; r < 2; r++) {
    ExchangeParams p = plain(w, r);
    Pe& q = w.pe[r];
    const u64 n = p.n_splits;
    q.in.resize(EACH * n * ROW + 16);
    p.input = ((u64)q.in.data() + 15) / 16 * 16, p.in_rows = EACH * n, p.out_offset = (16 - (u64)q.out.data() % 16) % 16;
    for (u64 k = 0; k < EACH * n; k++) memset((char*)p.input + k * ROW, (int)(1 + r * EACH * n + k), ROW);
    if (offsets) {
      p.form = FORM_ALL_TO_ALL_VDEV_2D_OFFSET;
      q.splits.resize(2 * n);
      for (u64 k = 0; k < n; k++) q.splits[n + k] = (long long)(EACH * k);
      p.in_splits = (u64)q.splits.data();
    }
    launches.add(p, 3);
    launches.own(q.out);
    launches.own(q.splits);
  }
  long long* const splits = w.pe[0].splits.data();
  const u64 n = w.pe[0].regions.size() * 2;
  machine::enqueue(machine::new_stream(), {[=] {
                     for (u64 k = threadIdx.x; k < n; k += 64) *(volatile long long*)&splits[k] = other(k);
                   }, 0, 1, Order::Together, 64, nullptr});
  launches.join();
  // What PE 0 published: a column a destination and expert, as the receivers' tables have them.
  std::vector<u64> published(n), from(n);
  for (unsigned d = 0; d < 2; d++)
    for (u64 e = 0; e < 2; e++)
      published[offsets ? e * 2 + d : d * 2 + e] = (u64)w.pe[d].result[offsets ? e : e * 2];
  for (u64 k = 1; k < n; k++) from[k] = offsets ? EACH * k : from[k - 1] + published[k - 1];
  for (unsigned d = 0; d < 2; d++) {
    EXPECT(w.pe[d].device.code == 0, "PE %u: code %llu", d, w.pe[d].device.code);
    const char* const out = (const char*)w.pe[d].out.data() + (16 - (u64)w.pe[d].out.data() % 16) % 16;
    for (u64 e = 0; e < 2; e++) {
      const u64 k = offsets ? e * 2 + d : d * 2 + e, to = (u64)w.pe[d].result[n + (offsets ? e : e * 2)];
      EXPECT(published[k] == 3 || published[k] == (u64)other(k), "split %llu: %llu", k, published[k]);
      for (u64 row = 0; row < published[k]; row++)
        for (u64 b = 0; b < ROW; b += 16)
          EXPECT(out[(to + row) * ROW + b] == (char)(1 + from[k] + row), "PE %u, expert %llu, row %llu, byte %llu: %d, not %llu", d, e, row, b, out[(to + row) * ROW + b], 1 + from[k] + row);
    }
  }
}

// Calls of one stream, of which each takes tickets before the one ahead has ended.
static void calls_in_a_row() {
  constexpr unsigned CALLS = 6, ROWS = 12;
  constexpr u64 ROW = 64;
  World w(2, 64, CALLS * ROWS * ROW);
  std::vector<unsigned char> in[CALLS][2];
  std::vector<long long> result[CALLS][2];
  for (unsigned r = 0; r < 2; r++) {
    const unsigned stream = machine::new_stream();
    Pe& q = w.pe[r];
    model::own(r, q.out.data(), q.out.size());
    model::own(r, q.context.data(), q.context.size() * 8);
    model::own(r, &q.record, sizeof q.record);
    for (unsigned k = 0; k < CALLS; k++) {
      ExchangeParams p = plain(w, r);
      in[k][r].assign(ROWS * ROW, (unsigned char)(1 + 2 * k + r));
      result[k][r].assign(8, -1);
      model::own(r, result[k][r].data(), 64);
      p.input = (u64)in[k][r].data(), p.out_splits = (u64)result[k][r].data();
      p.out_offset = k * ROWS * ROW, p.out_rows = ROWS, p.turn = k % 2;
      const unsigned blocks = 1 + (unsigned)below(4);
      p.remote_blocks = blocks > 1 ? 1 + (uint32_t)below(blocks - 1) : 0;
      const Order order = below(4) == 0 ? Order::OneByOne : Order::Together;
      const auto kernel = kernel_of(p);
      machine::enqueue(stream, {[=] { kernel(p); }, r, blocks, order, sizeof(Shared<false>), nullptr, nullptr, true});
    }
  }
  machine::join();
  for (unsigned r = 0; r < 2; r++) {
    const Pe& q = w.pe[r];
    const LaunchRecord zero{};
    EXPECT(memcmp(&zero, &q.record, sizeof zero) == 0, "PE %u: record %u %u", r, q.record.early[0], q.record.early[1]);
    EXPECT(q.device.code == 0 && q.context[0] == CALLS && q.context[1] == CALLS, "PE %u: code %llu, completed %llu", r, q.device.code, q.context[1]);
    for (unsigned k = 0; k < CALLS; k++) {
      const std::vector<long long> table = {3, 3, 3, 3, 0, 3, 6, 9};
      EXPECT(result[k][r] == table, "PE %u, call %u: %lld rows from %lld", r, k, result[k][r][0], result[k][r][4]);
      for (unsigned row = 0; row < ROWS; row++)
        for (unsigned b = 0; b < ROW; b++)
          EXPECT(q.out[(k * ROWS + row) * ROW + b] == 1 + 2 * k + row / 3 % 2, "PE %u, call %u, row %u", r, k, row);
    }
  }
}

static void expect_invalid(World& w, const char* what, u64 fault, unsigned pe) {
  for (unsigned r = 0; r < w.ranks; r++) {
    const StatusRecord& s = w.pe[r].host;
    EXPECT(s.code == STATUS_PEER_INVALID && s.phase == fault && s.pe == FIRST_PE + pe, "%s: PE %u: code %llu fault %llu PE %llu", what, r,
           s.code, s.phase, s.pe);
  }
}

static void refused_arguments_and_another_operation() {
  ExchangeLaunches launches;
  World refused(2, 64, 1 << 16);
  launches.add(plain(refused, 0), 2);
  ExchangeParams p = refused.params(1);
  p.form = FORM_ALL_TO_ALL_VDEV_2D, p.row_bytes = 64;
  p.invalid = FAULT_ARGUMENT;
  launches.add(p, 1);
  launches.join();
  expect_invalid(refused, "refused arguments", FAULT_ARGUMENT, 1);

  World other(2, 64, 1 << 16);
  launches.add(plain(other, 0), 2);
  p = plain(other, 1);
  p.form = FORM_ALL_TO_ALL_VDEV, p.ne = 1, p.n_splits = 2;
  launches.add(p, 2);
  launches.join();
  expect_invalid(other, "another operation", FAULT_OPERATION, 1);
}

// A plan's digest lies above the dtype's code: a call of another plan is of another form, one of the same plan is fine.
static void calls_of_two_plans() {
  for (unsigned bad = 0; bad < 2; bad++) {
    ExchangeLaunches launches;
    World w(2, 64, 1 << 16);
    for (unsigned r = 0; r < 2; r++) {
      ExchangeParams p = plain(w, r);
      p.dtype = 0x1234567ull << 32 | 3;
      if (bad && r == 1) p.dtype ^= 1ull << 63;
      launches.add(p, 2);
    }
    launches.join();
    if (bad) expect_invalid(w, "another plan", FAULT_FORM | FIELD_SHAPE << 8, 1);
    for (const Pe& q : w.pe) EXPECT((q.device.code != 0) == bad && (q.out[0] == POISON) == bad, "plan: code %llu", q.device.code);
  }
}

// One member gives another dtype, row, number of experts or alignment, at rank 0 too: all are told which, and both values.
static void members_that_differ() {
  for (unsigned field = FIELD_DTYPE; field <= FIELD_MAJOR_ALIGN; field++) {
    for (unsigned bad = 0; bad < 3; bad++) {
      ExchangeLaunches launches;
      World w(3, 64, 1 << 16);
      u64 values[2];
      for (unsigned r = 0; r < 3; r++) {
        ExchangeParams p = w.params(r);
        p.form = FORM_ALL_TO_ALL_VDEV_2D, p.row_bytes = 64, p.ne = 4, p.major_align = 2;
        uint64_t* const word = field == FIELD_DTYPE ? &p.dtype : field == FIELD_ROW_BYTES ? &p.row_bytes : field == FIELD_EXPERTS ? &p.ne : &p.major_align;
        values[0] = *word;
        if (r == bad) *word += 1;
        values[1] = values[0] + 1;
        Pe& q = w.pe[r];
        p.n_splits = 3 * p.ne;
        q.splits.assign(p.n_splits, 0);
        q.result.assign(2 * p.n_splits, 0);
        p.in_splits = (u64)q.splits.data(), p.out_splits = (u64)q.result.data();
        launches.add(p, 1);
      }
      launches.join();
      expect_invalid(w, "members that differ", FAULT_FORM | field << 8, bad == 0 ? 1 : bad);
      for (const Pe& q : w.pe)
        EXPECT(q.host.expected == values[bad == 0] && q.host.got == values[bad != 0], "field %u of PE %u: %llu and %llu", field, bad, q.host.expected, q.host.got);
    }
  }
}

// Of dispatches of 7168 bf16 between two GPUs what pushes over the link, and of an all_to_all: one piece a warp, small ones, and large ones
// where few warps move much.
static void pieces() {
  const u64 row = 14336;
  const u64 cases[][3] = {{0, 1, 512}, {4 * row, 32, 2048}, {64 * row, 592, 2048}, {2048 * row, 704, 7168}, {32 << 20, 704, 7168},
                          {16384 * row, 1408, 7168}, {16384 * row, 256, 14336}, {64 * 7168, 1, 14336}, {63 * 7168, 1, 7168}};
  for (const auto& c : cases) EXPECT(piece_bytes(c[0], c[1]) == c[2], "%llu bytes, %llu warps: %llu", c[0], c[1], piece_bytes(c[0], c[1]));
}

int main(int argc, char** argv) {
  if (argc < 3) return 2;
  begin_test(argv[2]);
  if (argc > 3) symm::WITHOUT = (uint32_t)atoi(argv[3]);
  random_words.seed((u64)atoll(argv[2]));
  for (int i = 0; i < atoi(argv[1]); i++) {
    World world(1 + (unsigned)below(4), 1024, 1 << 18);
    for (int call = 0; call < 4; call++)
      if (!Call(world).check()) break;
  }
  pieces();
  late_pe();
  two_launches_of_one_context();
  refused_arguments_and_another_operation();
  calls_of_two_plans();
  members_that_differ();
  for (bool offsets : {false, true}) splits_that_change(offsets);
  calls_in_a_row();
  printf("%d failures\n", failures);
  return failures != 0;
}
