// one_shot_all_reduce whose elements are pushed, against an oracle: random calls, several on one team, now and then one damaged PE;
// then a PE that is late.
//
// usage: main CALLS SEED [FENCE]    FENCE (enum Fence of steps.cuh) is left out; this form has none
#include "launches.h"
#include "reduce/oracle.h"
#include "world.h"

extern "C" {
void symm_pushed_f16(ReduceParams q);
void symm_pushed_bf16(ReduceParams q);
void symm_pushed_f32(ReduceParams q);
void symm_pushed_f64(ReduceParams q);
void symm_pushed_i32(ReduceParams q);
void symm_pushed_i64(ReduceParams q);
}

static void (*const KERNELS[])(ReduceParams) = {symm_pushed_f16, symm_pushed_bf16, symm_pushed_f32,
                                                symm_pushed_f64, symm_pushed_i32, symm_pushed_i64};
typedef Launches<Shared, ReduceParams> PushedLaunches;

constexpr size_t BUFFER_BYTES = 6000;
constexpr u64 MAX_SPLITS = 1024;
constexpr unsigned char UNTOUCHED = 0xDD;

enum Damage { NONE, ARGUMENT, OUTPUT_ROWS, ELEMENTS };

static ReduceParams params_of(World& w, unsigned r, unsigned type, u64 n, u64 offset, bool brings, const Bytes& input, Bytes& result) {
  Pe& pe = w.pe[r];
  const u64 size = TYPES[type].size;
  ReduceParams q;
  memset(&q, 0, sizeof q);
  q.exchange = w.params(r);
  ExchangeParams& p = q.exchange;
  p.form = FORM_ONE_SHOT_ALL_REDUCE, p.dtype = TYPES[type].dtype, p.row_bytes = size;
  p.in_rows = p.out_rows = n;
  p.out_offset = offset;
  q.lead = 1, q.gathered = w.layout.gathered;
  std::fill(pe.out.begin(), pe.out.end(), POISON);
  if (brings) p.input = (u64)input.data();
  else std::copy(input.begin(), input.end(), pe.out.begin() + offset);
  result.assign(n * size + 16, UNTOUCHED);
  q.result = (u64)result.data();
  return q;
}

static void fill_header(ReduceParams& q) {
  const ExchangeParams& p = q.exchange;
  const Header h = {0, p.form, p.dtype, p.row_bytes, p.ne, p.major_align, p.invalid, 0, 0, p.out_id, p.out_offset, p.out_rows,
                    p.in_rows, 0, q.root, q.lead};
  memcpy(q.header, &h, sizeof h);
}

// One call of every PE. Returns whether the team is fit for another one.
static bool check(World& w) {
  const unsigned type = (unsigned)below(6);
  const u64 size = TYPES[type].size, most = w.layout.slot_bytes / 2 / size;
  const u64 n = below(3) == 0 ? below(most < BUFFER_BYTES / size - 8 ? most : BUFFER_BYTES / size - 8) : below(100);
  const unsigned at = (unsigned)below(w.ranks);
  Damage damage = below(8) == 0 ? (Damage)(1 + below(3)) : NONE;
  if ((damage == OUTPUT_ROWS && n == 0) || (damage == ELEMENTS && w.ranks == 1)) damage = ARGUMENT;
  std::vector<Bytes> inputs(w.ranks), results(w.ranks), buffers(w.ranks);
  std::vector<bool> brings(w.ranks);
  PushedLaunches launches;
  for (unsigned r = 0; r < w.ranks; r++) {
    inputs[r].resize(n * size);
    for (u64 i = 0; i < n; i++) TYPES[type].fill(&inputs[r][i * size]);
    brings[r] = below(2) == 0;
    ReduceParams q = params_of(w, r, type, n, size * below(8), brings[r], inputs[r], results[r]);
    if (r == at && damage == ARGUMENT) q.exchange.invalid = FAULT_ARGUMENT;
    if (r == at && damage == OUTPUT_ROWS) q.exchange.out_rows = n - 1;
    if (r == at && damage == ELEMENTS) q.exchange.in_rows = q.exchange.out_rows = n > 0 ? n - 1 : 1, brings[r] = false, q.exchange.input = 0;
    fill_header(q);
    buffers[r] = w.pe[r].out;
    // Elements of its own reach the buffer before the verdict is known, unless this PE refuses the call itself.
    if (brings[r] && q.exchange.invalid == 0) std::copy(inputs[r].begin(), inputs[r].end(), buffers[r].begin() + q.exchange.out_offset);
    launches.add(KERNELS[type], q, 1);
    launches.watch(w.pe[r].out);
    launches.watch(results[r]);
  }
  launches.join();
  const Bytes sum = damage == NONE ? TYPES[type].sum(inputs, n * size, 1) : Bytes();
  const u64 faults[] = {0, FAULT_ARGUMENT, FAULT_OUTPUT_ROWS, FAULT_FORM | FIELD_LENGTH << 8};
  const unsigned named = damage == ELEMENTS && at == 0 ? 1 : at;
  for (unsigned r = 0; r < w.ranks; r++) {
    Pe& pe = w.pe[r];
    char what[120];
    snprintf(what, sizeof what, "dtype %llu, PE %u of %u, %llu elements, brings %d, damage %d", TYPES[type].dtype, r, w.ranks, n, (int)brings[r], damage);
    if (damage == NONE) EXPECT(pe.device.code == 0, "%s: code %llu, fault %llu", what, pe.device.code, pe.device.phase);
    else EXPECT(pe.host.code == STATUS_PEER_INVALID && pe.host.phase == faults[damage] && pe.host.pe == FIRST_PE + named,
                "%s: code %llu, fault %llu, PE %llu", what, pe.host.code, pe.host.phase, pe.host.pe);
    Bytes wanted(n * size + 16, UNTOUCHED);
    std::copy(sum.begin(), sum.end(), wanted.begin());
    EXPECT(results[r] == wanted, "%s: result", what);
    EXPECT(pe.out == buffers[r], "%s: buffer", what);
    EXPECT(pe.context[0] == pe.context[1], "%s: ticket %llu, completed %llu", what, pe.context[0], pe.context[1]);
  }
  return damage == NONE;
}

// A PE that never comes, one that comes too late, and one that published but whose elements do not come.
static void late_pe() {
  World w(3, MAX_SPLITS, BUFFER_BYTES);
  const Bytes ones(400, 1);
  Bytes results[3];
  PushedLaunches launches;
  for (unsigned r = 0; r < 2; r++) {
    ReduceParams q = params_of(w, r, 4, 100, 0, true, ones, results[r]);
    q.exchange.limit_ns = 300000000;
    fill_header(q);
    launches.add(symm_pushed_i32, q, 1);
  }
  launches.join();
  for (unsigned r = 0; r < 2; r++) {
    const StatusRecord& s = w.pe[r].host;
    EXPECT(s.code == STATUS_TIMEOUT && s.phase == PHASE_ARRIVAL && s.pe == FIRST_PE + 2 && s.late == 4, "PE %u: code %llu phase %llu PE %llu", r, s.code, s.phase, s.pe);
    EXPECT(results[r] == Bytes(416, UNTOUCHED), "PE %u: written after a failure", r);
  }
  ReduceParams q = params_of(w, 2, 4, 100, 0, true, ones, results[2]);
  fill_header(q);
  launches.add(symm_pushed_i32, q, 1);
  launches.join();
  const StatusRecord& s = w.pe[2].host;
  EXPECT(s.code == STATUS_TIMEOUT && s.pe == FIRST_PE + 2, "too late: code %llu PE %llu", s.code, s.pe);

  World lost(2, MAX_SPLITS, BUFFER_BYTES);
  for (unsigned r = 0; r < 2; r++) {
    ReduceParams half = params_of(lost, r, 4, 100, 0, true, ones, results[r]);
    half.exchange.limit_ns = 300000000;
    fill_header(half);
    // Its slots are too small for what it publishes, so it pushes nothing. It misses the other's elements, too, but says so later.
    if (r == 1) half.exchange.slot_bytes = 64, half.exchange.limit_ns *= 4;
    launches.add(symm_pushed_i32, half, 1);
  }
  launches.join();
  const StatusRecord& first = lost.pe[0].host;
  EXPECT(first.code == STATUS_TIMEOUT && first.phase == PHASE_ARRIVAL && first.pe == FIRST_PE + 1, "elements lost: code %llu phase %llu PE %llu", first.code, first.phase, first.pe);
}

int main(int argc, char** argv) {
  if (argc < 3) return 2;
  begin_test(argv[2]);
  if (argc > 3) symm::WITHOUT = (uint32_t)atoi(argv[3]);
  random_words.seed((u64)atoll(argv[2]));
  for (int call = 0; call < atoi(argv[1]);) {
    World world(call == 0 ? NEAR_RANKS + 3 : 1 + (unsigned)below(4), MAX_SPLITS, BUFFER_BYTES);
    // A damaged call is a team's last.
    for (int k = 0; k < 6 && call < atoi(argv[1]); k++, call++)
      if (!check(world)) break;
  }
  late_pe();
  printf("%d failures\n", failures);
  return failures != 0;
}
