// The reductions whose elements are pushed, against an oracle: random calls, several on one team, now and then one damaged PE; then
// PEs that are late, and several launches of a context at once.
//
// usage: main CALLS SEED [FENCE]    FENCE (enum Fence of steps.cuh) is left out
#include "launches.h"
#include "pushed/common.cuh"
#include "reduce/oracle.h"
#include "world.h"

using symm::pushed::CHUNK;
using symm::pushed::CHUNK_ROOM;
using symm::pushed::PushedShared;

#define DECLARE(type)                           \
  void symm_pushed_##type(PushedParams q);      \
  void symm_pushed_##type##_pair(PushedParams q);
extern "C" {
DECLARE(f16) DECLARE(bf16) DECLARE(f32) DECLARE(f64) DECLARE(i32) DECLARE(i64)
}

typedef void (*Kernel)(PushedParams);
static const Kernel TEAM[] = {symm_pushed_f16, symm_pushed_bf16, symm_pushed_f32, symm_pushed_f64, symm_pushed_i32, symm_pushed_i64};
static const Kernel PAIR[] = {symm_pushed_f16_pair, symm_pushed_bf16_pair, symm_pushed_f32_pair, symm_pushed_f64_pair, symm_pushed_i32_pair, symm_pushed_i64_pair};
typedef Launches<PushedShared, PushedParams> PushedLaunches;

// What the host launches for a PE whose arguments it refuses, and what it would for elements that are too many to be pushed.
static void refused(PushedParams q) { symm_broadcast(q.reduce); }
static void read_instead(PushedParams q) {
  for (const Type& type : TYPES)
    if (type.dtype == q.reduce.exchange.dtype) type.kernel(q.reduce);
}

constexpr u64 MOST_BYTES = 8 * CHUNK;
constexpr size_t BUFFER_BYTES = MOST_BYTES + 64;
constexpr unsigned char UNTOUCHED = 0xDD;

// Room for MOST_BYTES in one hop between up to five members.
static u64 room_for(unsigned ranks) { return (ranks < 5 ? 4 : ranks) * 8 * CHUNK_ROOM; }

enum Damage { NONE, ARGUMENT, OUTPUT_ROWS, ELEMENTS, READS };

// How a call is cut, and whether it waits for all members before it pushes, the same on all members.
struct Shape {
  u64 form, n;
  unsigned type;
  bool two_hops;
  unsigned pieces;
  bool waits;
  u64 size() const { return TYPES[type].size; }
};

static PushedParams params_of(World& w, unsigned r, const Shape& shape, u64 offset, bool brings, const Bytes& input, Bytes& result) {
  Pe& pe = w.pe[r];
  PushedParams q;
  memset(&q, 0, sizeof q);
  q.reduce.exchange = w.params(r);
  ExchangeParams& p = q.reduce.exchange;
  p.form = shape.form, p.dtype = TYPES[shape.type].dtype, p.row_bytes = shape.size();
  p.in_rows = p.out_rows = shape.n;
  p.out_offset = offset;
  q.reduce.lead = 1, q.reduce.gathered = w.layout.gathered;
  q.room = shape.waits ? w.layout.shared_room : w.layout.room, q.room_bytes = w.layout.room_bytes;
  q.room_step = shape.waits ? 0 : w.layout.room_bytes, q.pieces = shape.pieces, q.two_hops = shape.two_hops;
  std::fill(pe.out.begin(), pe.out.end(), POISON);
  if (brings) p.input = (u64)input.data();
  else std::copy(input.begin(), input.end(), pe.out.begin() + offset);
  result.assign(shape.n * shape.size() + 64, UNTOUCHED);
  // As far from 16 bytes as not.
  if (shape.form != FORM_TWO_SHOT_ALL_REDUCE) q.reduce.result = ((u64)result.data() + 15) / 16 * 16 + (below(2) == 0 ? 0 : shape.size() * below(8) % 16);
  return q;
}

static void fill_header(ReduceParams& q) {
  const ExchangeParams& p = q.exchange;
  const Header h = {0, p.form, p.dtype, p.row_bytes, p.ne, p.major_align, p.invalid, 0, 0, p.out_id, p.out_offset, p.out_rows,
                    p.in_rows, 0, q.root, q.lead};
  memcpy(q.header, &h, sizeof h);
}

static Kernel kernel_of(const World& w, unsigned type) { return w.ranks == 2 ? PAIR[type] : TEAM[type]; }

static Shape random_shape(const World& w) {
  Shape s;
  s.type = (unsigned)below(6);
  const u64 forms[] = {FORM_ONE_SHOT_ALL_REDUCE, FORM_TWO_SHOT_ALL_REDUCE, FORM_TWO_SHOT_ALL_REDUCE_OUT};
  s.form = forms[below(3)];
  s.two_hops = w.ranks > 2 && below(2) == 0;
  // Few elements, or a few chunks, whole ones now and then.
  const u64 most = w.ranks < 6 || s.two_hops ? MOST_BYTES : CHUNK;
  u64 bytes = below(3) == 0 ? below(100 * s.size()) : below(4) == 0 ? CHUNK * below(most / CHUNK + 1) : below(most + 1);
  s.n = bytes / s.size();
  const u64 chunks = (s.n * s.size() + CHUNK - 1) / CHUNK;
  s.pieces = chunks < 2 ? 1 : 1 + (unsigned)below(chunks);
  s.waits = below(2) == 0;
  return s;
}

// Makes some vectors of elements the key, which no word can hold, or all of them.
static void put_keys(Bytes& elements) {
  const uint32_t key[] = {symm::pushed::KEY_A, symm::pushed::KEY_B, symm::pushed::KEY_C, symm::pushed::KEY_D};
  const u64 one_in = below(2) == 0 ? 1 : 40;
  for (size_t at = 0; at + sizeof key <= elements.size(); at += sizeof key)
    if (below(one_in) == 0) memcpy(&elements[at], key, sizeof key);
}

// One call of every PE. Returns whether the team is fit for another one.
static bool check(World& w) {
  const Shape shape = random_shape(w);
  const u64 size = shape.size(), n = shape.n;
  const unsigned at = (unsigned)below(w.ranks);
  Damage damage = below(8) == 0 ? (Damage)(1 + below(4)) : NONE;
  if ((damage == OUTPUT_ROWS && n == 0) || (damage >= ELEMENTS && w.ranks == 1)) damage = ARGUMENT;
  std::vector<Bytes> inputs(w.ranks), results(w.ranks), buffers(w.ranks), before(w.ranks);
  std::vector<bool> brings(w.ranks);
  std::vector<PushedParams> calls;
  std::vector<unsigned> blocks;
  PushedLaunches launches;
  for (unsigned r = 0; r < w.ranks; r++) {
    inputs[r].resize(n * size);
    for (u64 i = 0; i < n; i++) TYPES[shape.type].fill(&inputs[r][i * size]);
    // Of integers, whose sums say what was added: of the floats that the key is any may come out.
    if (shape.type >= 4 && below(3) == 0) put_keys(inputs[r]);
    brings[r] = shape.form == FORM_ONE_SHOT_ALL_REDUCE && below(2) == 0;
    Shape own = shape;
    const bool other = r == at && damage >= ELEMENTS;
    if (other) own.n = n > 0 ? n - 1 : 1, own.pieces = 1, brings[r] = false;
    Bytes input = inputs[r];
    input.resize(own.n * size);
    PushedParams q = params_of(w, r, own, size * below(8), brings[r], brings[r] ? inputs[r] : input, results[r]);
    if (r == at && damage == ARGUMENT) q.reduce.exchange.invalid = FAULT_ARGUMENT;
    if (r == at && damage == OUTPUT_ROWS) q.reduce.exchange.out_rows = n - 1;
    fill_header(q.reduce);
    buffers[r] = before[r] = w.pe[r].out;
    if (brings[r]) std::copy(inputs[r].begin(), inputs[r].end(), buffers[r].begin() + q.reduce.exchange.out_offset);
    Kernel kernel = kernel_of(w, shape.type);
    if (r == at && damage == ARGUMENT && below(2) == 0) kernel = refused;
    if (r == at && damage == READS) kernel = read_instead;
    calls.push_back(q);
    blocks.push_back(1 + (unsigned)below(own.pieces));
    launches.add(kernel, q, blocks[r], below(2) == 0 ? Order::OneByOne : Order::Together);
    launches.watch(w.pe[r].out);
    launches.watch(results[r]);
    launches.own(w.pe[r].context);
  }
  launches.join();
  const Bytes sum = damage == NONE ? TYPES[shape.type].sum(inputs, n * size, 1) : Bytes();
  const u64 faults[] = {0, FAULT_ARGUMENT, FAULT_OUTPUT_ROWS, FAULT_FORM | FIELD_LENGTH << 8, FAULT_FORM | FIELD_LENGTH << 8};
  const unsigned named = damage >= ELEMENTS && at == 0 ? 1 : at;
  const LaunchRecord zero{};
  for (unsigned r = 0; r < w.ranks; r++) {
    Pe& pe = w.pe[r];
    char what[200];
    snprintf(what, sizeof what, "form %llu, dtype %llu, PE %u of %u, %llu elements, brings %d, hops %d, waits %d, pieces %u, blocks %u, damage %d of %u", shape.form,
             TYPES[shape.type].dtype, r, w.ranks, n, (int)brings[r], 1 + shape.two_hops, (int)shape.waits, shape.pieces, blocks[r], damage, at);
    if (damage == NONE) EXPECT(pe.device.code == 0, "%s: code %llu, fault %llu", what, pe.device.code, pe.device.phase);
    else EXPECT(pe.host.code == STATUS_PEER_INVALID && pe.host.phase == faults[damage] && pe.host.pe == FIRST_PE + named,
                "%s: code %llu, fault %llu, PE %llu", what, pe.host.code, pe.host.phase, pe.host.pe);
    Bytes wanted(results[r].size(), UNTOUCHED);
    if (damage == NONE) {
      if (shape.form == FORM_TWO_SHOT_ALL_REDUCE) std::copy(sum.begin(), sum.end(), buffers[r].begin() + calls[r].reduce.exchange.out_offset);
      else std::copy(sum.begin(), sum.end(), wanted.begin() + (calls[r].reduce.result - (u64)results[r].data()));
    }
    EXPECT(results[r] == wanted, "%s: result", what);
    // Elements of its own reach a PE's buffer before the verdict is known, all, some or none of them.
    for (size_t k = 0; damage != NONE && k < pe.out.size(); k++)
      if (pe.out[k] == before[r][k]) buffers[r][k] = before[r][k];
    EXPECT(pe.out == buffers[r], "%s: buffer", what);
    EXPECT(pe.context[0] == pe.context[1], "%s: ticket %llu, completed %llu", what, pe.context[0], pe.context[1]);
    EXPECT(memcmp(&zero, &pe.record, sizeof zero) == 0, "%s: record %u", what, pe.record.tickets);
    // No word is left that could be taken for one of another epoch.
    const u64 words = damage == NONE ? w.layout.room_bytes / 8 : 0, *room = &pe.context[w.layout.room / 8];
    EXPECT(std::all_of(room, room + 3 * words, [](u64 word) { return word == 0; }), "%s: words are left", what);
  }
  return damage == NONE;
}

static const Shape ONES = {FORM_ONE_SHOT_ALL_REDUCE, 1000, 4, false, 3, false};

static PushedParams ones(World& w, unsigned r, const Shape& shape, const Bytes& input, Bytes& result) {
  PushedParams q = params_of(w, r, shape, 0, shape.form == FORM_ONE_SHOT_ALL_REDUCE, input, result);
  q.reduce.result = shape.form == FORM_TWO_SHOT_ALL_REDUCE ? 0 : (u64)result.data();
  fill_header(q.reduce);
  return q;
}

// A PE that never comes, and one that comes too late.
static void late_pe(const Shape& shape) {
  World w(3, 0, BUFFER_BYTES, room_for(3));
  const Bytes input(4 * shape.n, 1);
  Bytes results[3];
  PushedLaunches launches;
  for (unsigned r = 0; r < 2; r++) {
    PushedParams q = ones(w, r, shape, input, results[r]);
    q.reduce.exchange.limit_ns = 300000000;
    launches.add(symm_pushed_i32, q, shape.pieces);
  }
  launches.join();
  for (unsigned r = 0; r < 2; r++) {
    const StatusRecord& s = w.pe[r].host;
    EXPECT(s.code == STATUS_TIMEOUT && s.phase == PHASE_ARRIVAL && s.pe == FIRST_PE + 2 && s.late == 4, "PE %u: code %llu phase %llu PE %llu", r, s.code, s.phase, s.pe);
    EXPECT(results[r] == Bytes(results[r].size(), UNTOUCHED), "PE %u: written after a failure", r);
    EXPECT(w.pe[r].record.tickets == 0 && w.pe[r].context[0] == w.pe[r].context[1], "PE %u: record", r);
  }
  const u64 began = now_ns();
  launches.add(symm_pushed_i32, ones(w, 2, shape, input, results[2]), shape.pieces);
  launches.join();
  const StatusRecord& s = w.pe[2].host;
  EXPECT(s.code == STATUS_TIMEOUT && s.pe == FIRST_PE + 2 && s.late == 4, "too late: code %llu PE %llu", s.code, s.pe);
  EXPECT(now_ns() - began < 20000000000ull, "the late PE waited until its deadline");
  EXPECT(results[2] == Bytes(results[2].size(), UNTOUCHED), "written after a failure");
  // The next call does nothing, and ends.
  launches.add(symm_pushed_i32, ones(w, 0, shape, input, results[0]), shape.pieces);
  launches.join();
  EXPECT(results[0] == Bytes(results[0].size(), UNTOUCHED), "written after a failure");
}

// A PE that published but whose elements do not come: what it has room for is less than what they take.
static void lost_elements(unsigned ranks, bool waits) {
  const Shape shape = {FORM_ONE_SHOT_ALL_REDUCE, 1000, 4, ranks > 2, 1, waits};
  World w(ranks, 0, BUFFER_BYTES, room_for(ranks));
  const Bytes input(4 * shape.n, 1);
  std::vector<Bytes> results(ranks);
  PushedLaunches launches;
  for (unsigned r = 0; r < ranks; r++) {
    PushedParams q = ones(w, r, shape, input, results[r]);
    q.reduce.exchange.limit_ns = 300000000;
    if (r == 1) q.room_bytes = 0;
    launches.add(kernel_of(w, 4), q, 1);
  }
  launches.join();
  const StatusRecord& s = w.pe[0].host;
  // Whoever waits for sums names the one that makes them.
  EXPECT(s.code == STATUS_TIMEOUT, "elements lost: code %llu phase %llu PE %llu", s.code, s.phase, s.pe);
  if (ranks == 2) EXPECT(s.phase == PHASE_ARRIVAL && s.pe == FIRST_PE + 1, "elements lost: phase %llu PE %llu", s.phase, s.pe);
  EXPECT(results[0] == Bytes(results[0].size(), UNTOUCHED) || ranks > 2, "written after a failure");
}

// Launches of a PE are on their way at once, each with a record of its own; the context puts them in turn.
static void launches_of_one_context() {
  constexpr unsigned TOGETHER = 8;
  for (unsigned ranks : {2u, 3u}) {
    Shape shape = {FORM_ONE_SHOT_ALL_REDUCE, 1000, 4, ranks > 2, 3, false};
    World w(ranks, 0, BUFFER_BYTES, room_for(ranks));
    std::vector<LaunchRecord> records(ranks * TOGETHER);
    Bytes input, wanted;
    for (u64 i = 0; i < shape.n; i++) input.insert(input.end(), {1, 0, 0, 0}), wanted.insert(wanted.end(), {(unsigned char)ranks, 0, 0, 0});
    wanted.resize(wanted.size() + 64, UNTOUCHED);
    for (u64 round = 1; round <= 3; round++) {
      PushedLaunches launches;
      std::vector<Bytes> results(ranks * TOGETHER);
      for (unsigned k = 0; k < ranks * TOGETHER; k++) {
        shape.waits = round == 2;
        PushedParams q = ones(w, k % ranks, shape, input, results[k]);
        q.reduce.exchange.record = (u64)&records[k];
        q.reduce.exchange.limit_ns = 1000000000;
        launches.add(kernel_of(w, 4), q, 1 + (unsigned)below(3));
        launches.watch(results[k]);
        launches.own(w.pe[k % ranks].context);
      }
      launches.join();
      for (unsigned k = 0; k < ranks * TOGETHER; k++) {
        const Pe& pe = w.pe[k % ranks];
        EXPECT(pe.device.code == 0 && pe.context[0] == TOGETHER * round, "round %llu, PE %u: code %llu, ticket %llu", round, k % ranks, pe.device.code, pe.context[0]);
        EXPECT(results[k] == wanted, "round %llu, launch %u: sums", round, k);
        const LaunchRecord zero{};
        EXPECT(memcmp(&zero, &records[k], sizeof zero) == 0, "round %llu, launch %u: record", round, k);
      }
    }
  }
}

int main(int argc, char** argv) {
  if (argc < 3) return 2;
  begin_test(argv[2]);
  if (argc > 3) symm::WITHOUT = (uint32_t)atoi(argv[3]);
  random_words.seed((u64)atoll(argv[2]));
  for (int call = 0; call < atoi(argv[1]);) {
    const unsigned ranks = call == 0 ? NEAR_RANKS + 3 : 1 + (unsigned)below(5);
    World world(ranks, 0, BUFFER_BYTES, room_for(ranks));
    // A damaged call is a team's last.
    for (int k = 0; k < 6 && call < atoi(argv[1]); k++, call++)
      if (!check(world)) break;
  }
  for (unsigned k = 0; k < 4; k++) {
    Shape shape = ONES;
    shape.two_hops = k % 2, shape.waits = k / 2;
    late_pe(shape);
  }
  for (unsigned ranks : {2u, 3u})
    for (bool waits : {false, true}) lost_elements(ranks, waits);
  launches_of_one_context();
  printf("%d failures\n", failures);
  return failures != 0;
}
