// The planned exchange on host threads against plain copies: random moves of rows of any size, now and then one damaged PE.
//
// usage: main CALLS SEED [FENCE]    FENCE (enum Fence of steps.cuh) is left out
#include <algorithm>

#include "launches.h"
#include "plan.cu"
#include "world.h"

using PlanLaunches = Launches<symm::reduce::Shared, PlanParams>;
typedef std::vector<unsigned char> Bytes;

enum Damage { NONE, ARGUMENT, ANOTHER_PLAN };

// One call of every PE: each receives chunks of rows of random sources, with gaps between them.
static bool check(World& w, unsigned most_blocks, Damage damage) {
  const u64 row = 1 + below(below(3) == 0 ? 3000 : 40);
  const unsigned at = (unsigned)below(w.ranks);
  struct Moved {
    unsigned from, to;
    u64 src, dst, rows;
  };
  std::vector<Moved> moved;
  std::vector<u64> sent(w.ranks, 0), filled(w.ranks, 0);
  for (unsigned to = 0; to < w.ranks; to++) {
    for (u64 k = below(12); k > 0; k--) {
      const unsigned from = (unsigned)below(w.ranks);
      const u64 rows = 1 + below(9);
      moved.push_back({from, to, sent[from], filled[to] + below(2), rows});
      sent[from] += rows + below(2);
      filled[to] = moved.back().dst + rows;
    }
  }
  std::vector<std::vector<u64>> tables(w.ranks);
  std::vector<PlanParams> params(w.ranks);
  std::vector<Bytes> wanted(w.ranks);
  for (unsigned r = 0; r < w.ranks; r++) {
    Pe& pe = w.pe[r];
    pe.in.resize((sent[r] + 1) * row + 16);
    for (unsigned char& x : pe.in) x = (unsigned char)random_words();
    std::fill(pe.out.begin(), pe.out.end(), POISON);
    wanted[r] = pe.out;
    u64 before = 0, count = 0;
    for (const Moved& m : moved) {
      if (m.from != r) continue;
      tables[r].insert(tables[r].end(), {m.to, m.src, m.dst, before});
      before += m.rows, count++;
    }
    tables[r].insert(tables[r].end(), {0, 0, 0, before});
    PlanParams& t = params[r];
    memset(&t, 0, sizeof t);
    t.reduce.exchange = w.params(r);
    ExchangeParams& p = t.reduce.exchange;
    p.form = FORM_PLANNED_ALL_TO_ALL_VDEV, p.row_bytes = row;
    p.input = (u64)pe.in.data() + below(16);
    p.out_offset = below(64);
    p.out_rows = filled[r];
    t.reduce.lead = 5;
    if (r == at && damage == ARGUMENT) p.invalid = FAULT_ARGUMENT;
    if (r == at && damage == ANOTHER_PLAN) t.reduce.lead = 6;
    const Header h = {0, p.form, p.dtype, p.row_bytes, p.ne, p.major_align, p.invalid, 0, 0, p.out_id, p.out_offset, p.out_rows,
                      0, 0, 0, t.reduce.lead};
    memcpy(t.reduce.header, &h, sizeof h);
    t.moves = (u64)tables[r].data(), t.count = count;
  }
  PlanLaunches launches;
  for (unsigned r = 0; r < w.ranks; r++) {
    launches.add(symm_plan, params[r], 1 + (unsigned)below(most_blocks), below(2) == 0 ? Order::OneByOne : Order::Together);
    launches.watch(w.pe[r].out);
  }
  launches.join();
  for (const Moved& m : moved) {
    if (damage != NONE) break;
    const unsigned char* from = (const unsigned char*)params[m.from].reduce.exchange.input + m.src * row;
    std::copy_n(from, m.rows * row, wanted[m.to].begin() + params[m.to].reduce.exchange.out_offset + m.dst * row);
  }
  const u64 faults[] = {0, FAULT_ARGUMENT, FAULT_FORM | FIELD_SHAPE << 8};
  const unsigned named = damage == ANOTHER_PLAN && at == 0 ? 1 : at;
  for (unsigned r = 0; r < w.ranks; r++) {
    const Pe& q = w.pe[r];
    if (damage == NONE) EXPECT(q.device.code == 0, "PE %u of %u: code %llu", r, w.ranks, q.device.code);
    else EXPECT(q.host.code == STATUS_PEER_INVALID && q.host.phase == faults[damage] && q.host.pe == FIRST_PE + named,
                "PE %u of %u, damage %d: code %llu, fault %llu, PE %llu", r, w.ranks, damage, q.host.code, q.host.phase, q.host.pe);
    EXPECT(q.out == wanted[r], "PE %u of %u, rows of %llu bytes, damage %d: output", r, w.ranks, row, damage);
    const LaunchRecord zero{};
    EXPECT(memcmp(&zero, &q.record, sizeof zero) == 0, "PE %u: record", r);
    EXPECT(q.context[0] == q.context[1], "PE %u: ticket %llu, completed %llu", r, q.context[0], q.context[1]);
  }
  return damage == NONE;
}

int main(int argc, char** argv) {
  if (argc < 3) return 2;
  begin_test(argv[2]);
  if (argc > 3) symm::WITHOUT = (uint32_t)atoi(argv[3]);
  const u64 calls = (u64)atoll(argv[1]), seed = (u64)atoll(argv[2]);
  random_words.seed(seed);
  for (u64 call = 0; call < calls;) {
    const bool large = call == 0;
    World world(large ? NEAR_RANKS + 3 : 1 + (unsigned)below(5), 0, 500000);
    // A damaged call is a team's last.
    for (int k = 0; k < 5 && call < calls; k++, call++) {
      Damage damage = below(6) == 0 ? (Damage)(1 + below(2)) : NONE;
      if (damage == ANOTHER_PLAN && world.ranks == 1) damage = ARGUMENT;
      if (!check(world, large ? 1 : 4, damage)) break;
    }
  }
  printf("%d failures\n", failures);
  return failures != 0;
}
