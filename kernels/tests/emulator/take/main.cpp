// The forms that take on host threads against an oracle: every PE takes blocks of its own choice, now and then one PE's call
// is damaged; then the failures.
//
// usage: main CALLS SEED [FENCE]    FENCE (enum Fence of steps.cuh) is left out
#include "reduce/calls.h"
#include "take.cu"

#ifdef TAKE_LAUNCHES
// The copy engines do not reach other hosts.
constexpr bool COPY_ENGINES = false;
#else
constexpr bool COPY_ENGINES = true;
#define TAKE_LAUNCHES Launches<symm::reduce::Shared, TakeParams>
#endif
using TakeLaunches = TAKE_LAUNCHES;

constexpr size_t BUFFER_BYTES = 20000;
constexpr unsigned char UNTOUCHED = 0xDD;

static void (*kernel_of(const Type& type))(TakeParams) {
  switch (type.dtype) {
    case DTYPE_F16: return symm_take_f16;
    case DTYPE_BF16: return symm_take_bf16;
    case DTYPE_F32: return symm_take_f32;
    case DTYPE_F64: return symm_take_f64;
    case DTYPE_I32: return symm_take_i32;
    default: return symm_take_i64;
  }
}

static bool sums(u64 form) {
  return form != FORM_ALL_TO_ALL_ND && form != FORM_LOW_CONTENTION_ALL_GATHER && form != FORM_LOW_CONTENTION_ALL_TO_ALL;
}

static bool low_contention(u64 form) { return form >= FORM_LOW_CONTENTION_ALL_GATHER; }

enum Damage { NONE, ARGUMENT, OUTPUT_ROWS, SHAPE, PLACE };

struct Call {
  World& world;
  const Type& type;
  const u64 form, size;
  u64 n;
  unsigned at;
  Damage damage = NONE;
  std::vector<TakeParams> params;
  std::vector<unsigned> blocks;
  std::vector<Bytes> inputs, wanted;  // of each PE

  Call(World& w, unsigned most_blocks, bool damaged = below(8) == 0)
      : world(w), type(TYPES[turn % 6]), form(FORM_ALL_TO_ALL_ND + turn % 7), size(type.size), params(w.ranks), blocks(w.ranks), inputs(w.ranks), wanted(w.ranks) {
    turn++;
    n = 1 + below(400);
    at = (unsigned)below(w.ranks);
    if (damaged) damage = (Damage)(1 + below(4));
    if ((damage == SHAPE && w.ranks == 1) || (damage == PLACE && (w.ranks == 1 || !low_contention(form)))) damage = ARGUMENT;
    const bool skewed = below(3) == 0 && !low_contention(form);
    const u64 offset = below(8);
    for (unsigned r = 0; r < w.ranks; r++) prepare(r, skewed ? below(8) : offset, most_blocks);
  }

  void prepare(unsigned r, u64 offset, unsigned most_blocks) {
    Pe& pe = world.pe[r];
    TakeParams& t = params[r];
    memset(&t, 0, sizeof t);
    t.reduce.exchange = world.params(r);
    ExchangeParams& p = t.reduce.exchange;
    p.form = form, p.dtype = type.dtype, p.row_bytes = size;
    p.in_rows = p.out_rows = n;
    p.out_offset = 16 + size * offset;
    t.reduce.lead = 77;
    if (r == at && damage == ARGUMENT) p.invalid = FAULT_ARGUMENT;
    if (r == at && damage == OUTPUT_ROWS) p.out_rows = n - 1;
    if (r == at && damage == SHAPE) t.reduce.lead = 78;
    if (r == at && damage == PLACE) p.out_offset += size;
    fill_header(t.reduce);
    inputs[r].resize(n * size);
    for (u64 i = 0; i < n; i++) type.fill(&inputs[r][i * size]);
    std::fill(pe.out.begin(), pe.out.end(), POISON);
    memcpy(&pe.out[p.out_offset], inputs[r].data(), n * size);

    t.divisor = form == FORM_LOW_CONTENTION_REDUCE_SCATTER && type.dtype <= DTYPE_F64 && below(2) == 0 ? world.ranks : 1;
    const unsigned most = sums(form) && !low_contention(form) ? 4 : 2;
    t.count = low_contention(form) || !sums(form) ? 1 : (unsigned)below(most);
    u64 to = 0;  // elements
    for (unsigned k = 0; k < t.count; k++) {
      Take& take = t.takes[k];
      // Elements first, bytes below.
      take.cols = below(n + 1);
      take.src = below(n - take.cols + 1);
      take.rows = 1;
      take.src_stride = take.dst_stride = take.cols;
      if (!low_contention(form) && take.cols > 0 && below(2) == 0) {
        take.cols = 1 + below(take.cols < 20 ? take.cols : 20);
        take.src_stride = take.cols + (below(2) == 0 ? 0 : below(16));
        take.rows = 1 + (n - take.src - take.cols) / take.src_stride;
        take.dst_stride = take.cols + (below(2) == 0 ? 0 : below(9));
      }
      take.dst = to + below(3) * 4;
      const u64 end = take.dst + take.rows * take.dst_stride;
      take.dst_step = sums(form) ? 0 : take.rows * take.dst_stride + below(2) * 5;
      to = end + take.dst_step * world.ranks;
    }
    pe.sums.assign(to * size + 64, UNTOUCHED);
    wanted[r] = pe.sums;
    const u64 base = ((u64)pe.sums.data() + 15) / 16 * 16 + (below(2) == 0 ? p.out_offset % 16 : size * below(8) % 16);
    for (unsigned k = 0; k < t.count; k++) {
      Take& take = t.takes[k];
      take.src *= size, take.src_stride *= size, take.cols *= size, take.dst_stride *= size, take.dst_step *= size;
      take.dst = base + take.dst * size;
    }
    blocks[r] = 1 + (unsigned)below(most_blocks);
  }

  // What each PE's memory is to hold after the call.
  void expect() {
    if (damage != NONE) return;
    for (unsigned r = 0; r < world.ranks; r++) {
      const TakeParams& t = params[r];
      const Bytes sum = sums(form) ? type.sum(inputs, n * size, t.divisor) : Bytes();
      for (unsigned k = 0; k < t.count; k++) {
        const Take& take = t.takes[k];
        for (unsigned from = 0; from < (sums(form) ? 1 : world.ranks); from++) {
          const Bytes& source = sums(form) ? sum : inputs[from];
          for (u64 row = 0; row < take.rows; row++) {
            const u64 to = take.dst - (u64)world.pe[r].sums.data() + from * take.dst_step + row * take.dst_stride;
            std::copy_n(source.begin() + take.src + row * take.src_stride, take.cols, wanted[r].begin() + to);
          }
        }
      }
    }
  }

  void launch(u64 phase, const std::vector<TakeParams>& all) {
    TakeLaunches launches;
    for (unsigned r = 0; r < world.ranks; r++) {
      TakeParams t = all[r];
      t.phase = (uint32_t)phase;
      const bool copies = !sums(form) || phase == TAKE_BEGIN;
      const Order order = below(2) == 0 ? Order::OneByOne : Order::Together;
      launches.add(copies ? symm_take_copy : kernel_of(type), t, phase == TAKE_BEGIN ? 1 : blocks[r], order);
      launches.watch(world.pe[r].sums);
    }
    launches.join();
  }

  // What the host does for a low-contention form: a launch, copies, a launch.
  void three_parts() {
    std::vector<TakeParams> finish = params;
    std::vector<Bytes> scratch(world.ranks);
    launch(TAKE_BEGIN, params);
    for (unsigned r = 0; r < world.ranks; r++) {
      TakeParams& t = finish[r];
      const Take take = t.takes[0];
      const u64 step = sums(form) ? (take.cols + 15) / 16 * 16 : take.dst_step;
      scratch[r].assign(step * world.ranks + 16, UNTOUCHED);
      const u64 base = sums(form) ? ((u64)scratch[r].data() + 15) / 16 * 16 : take.dst;
      for (unsigned from = 0; damage == NONE && from < world.ranks; from++)
        memcpy((void*)(base + from * step), &world.pe[from].out[t.reduce.exchange.out_offset + take.src], take.cols);
      if (sums(form)) t.sources = base, t.source_step = step, t.takes[0].src = 0;
      else t.count = 0;
    }
    launch(TAKE_FINISH, finish);
  }

  // Runs the call and compares. Returns whether the team is fit for another one.
  bool check() {
    if (low_contention(form) && COPY_ENGINES) three_parts();
    else launch(TAKE_WHOLE, params);
    expect();
    const u64 faults[] = {0, FAULT_ARGUMENT, FAULT_OUTPUT_ROWS, FAULT_FORM | FIELD_SHAPE << 8, FAULT_OUTPUT};
    // All are compared with rank 0: if that is the odd one, rank 1 is the first that differs.
    const unsigned named = (damage == SHAPE || damage == PLACE) && at == 0 ? 1 : at;
    char what[160];
    for (unsigned r = 0; r < world.ranks; r++) {
      Pe& q = world.pe[r];
      snprintf(what, sizeof what, "form %llu, dtype %llu, PE %u of %u, %llu elements, takes %u, blocks %u, damage %d", form,
               type.dtype, r, world.ranks, n, params[r].count, blocks[r], damage);
      if (damage == NONE) EXPECT(q.device.code == 0, "%s: code %llu, fault %llu", what, q.device.code, q.device.phase);
      else EXPECT(q.host.code == STATUS_PEER_INVALID && q.host.phase == faults[damage] && q.host.pe == FIRST_PE + named,
                  "%s: code %llu, fault %llu, PE %llu", what, q.host.code, q.host.phase, q.host.pe);
      EXPECT(q.sums == wanted[r], "%s: result", what);
      expect_idle(q, what);
    }
    return damage == NONE;
  }

  // A launch leaves its counts at zero and its context ready for the next one.
  static void expect_idle(const Pe& q, const char* what) {
    const LaunchRecord zero{};
    EXPECT(memcmp(&zero, &q.record, sizeof zero) == 0, "%s: record %u, begun %llu", what, q.record.tickets, (u64)q.record.begun);
    EXPECT(q.context[0] == q.context[1], "%s: ticket %llu, completed %llu", what, q.context[0], q.context[1]);
  }
};

// One PE never comes, or comes too late: in one launch, and in two.
static void late_pe(u64 form) {
  World w(3, 0, BUFFER_BYTES);
  turn = form - FORM_ALL_TO_ALL_ND;
  Call call(w, 3, false);
  for (TakeParams& t : call.params) t.reduce.exchange.limit_ns = 300000000;
  const auto run = [&](unsigned first, unsigned end) {
    for (u64 phase : low_contention(form) && COPY_ENGINES ? std::vector<u64>{TAKE_BEGIN, TAKE_FINISH} : std::vector<u64>{TAKE_WHOLE}) {
      TakeLaunches launches;
      for (unsigned r = first; r < end; r++) {
        TakeParams t = call.params[r];
        t.phase = (uint32_t)phase;
        launches.add(symm_take_copy, t, phase == TAKE_BEGIN ? 1 : call.blocks[r]);
      }
      launches.join();
    }
  };
  run(0, 2);
  for (unsigned r = 0; r < 2; r++) {
    const StatusRecord& s = w.pe[r].host;
    EXPECT(s.code == STATUS_TIMEOUT && s.phase == PHASE_ARRIVAL && s.pe == FIRST_PE + 2 && s.late == 4 && s.expected == 1,
           "form %llu, PE %u: code %llu phase %llu PE %llu late %llx expected %llu", form, r, s.code, s.phase, s.pe, s.late, s.expected);
    EXPECT(w.pe[r].sums == call.wanted[r], "form %llu, PE %u: written after a failure", form, r);
    Call::expect_idle(w.pe[r], "late");
  }
  // Whoever comes late learns that the others gave up, and whom they blame.
  run(2, 3);
  const StatusRecord& s = w.pe[2].host;
  EXPECT(s.code == STATUS_TIMEOUT && s.pe == FIRST_PE + 2 && s.late == 4, "form %llu: code %llu PE %llu late %llx", form, s.code, s.pe, s.late);
  Call::expect_idle(w.pe[2], "too late");
}

int main(int argc, char** argv) {
  return random_calls<Call>(argc, argv, 21, BUFFER_BYTES, [] {
    for (u64 form : {FORM_ALL_TO_ALL_ND, FORM_LOW_CONTENTION_ALL_GATHER}) late_pe(form);
  });
}
