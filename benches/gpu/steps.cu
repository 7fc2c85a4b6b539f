// The kernels of all_to_all_vdev_2d and _2d_offset without the library around them: their times by blocks and threads, and, in a build
// with SYMM_TRACE, the clock at each of their steps (kernels/cu/steps.cuh). PEs are streams of one process, each on a GPU of its own where
// there are as many. Every word is compared.
//
//   nvcc -O3 -std=c++17 -arch=sm_90 -Ikernels/include -DSYMM_TRACE -fatbin kernels/cu/exchange.cu -o exchange.fatbin
//   nvcc -O2 -std=c++17 -Ikernels/include benches/gpu/steps.cu -o steps
//   steps exchange.fatbin TOKENS PES BLOCKS THREADS REMOTE
//
// The shapes are those of benches/gpu/vdev.rs: 7168 bf16 for each of 8 experts of 32, calls of a graph of 10. What the library would launch
// says kernels/src/geometry.rs. Not for more blocks than find room at the same time: PEs that share a GPU wait for each other.
#include "lab.cuh"

constexpr int EXPERTS = 32, TOP_K = 8;
constexpr u64 ROW = 7168 * 2;

struct Random {
  u64 state;
  u64 next() {
    u64 z = state += 0x9e3779b97f4a7c15ull;
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9ull;
    z = (z ^ z >> 27) * 0x94d049bb133111ebull;
    return z ^ z >> 31;
  }
};

struct Launch {
  unsigned blocks, threads, remote;
};

// A PE's memory, and its stream.
struct Pe {
  int device;
  cudaStream_t stream;
  cudaEvent_t begin, end;
  char *context, *out, *home, *in, *local;
  long long *splits, *there, *back, *trace;
  StatusRecord *status, *host_status;
  LaunchRecord* record;
  u64 *regions, *outs, *homes, *members;
  cudaLibrary_t library;
  std::vector<long long> counts;
  std::vector<u64> words;
  cudaGraphExec_t graphs[2];
};

struct World {
  unsigned pes, rows;
  ContextLayout layout;
  std::vector<Pe> all;

  u64 out_rows() const { return (u64)pes * rows + EXPERTS; }

  World(unsigned pes, unsigned tokens, const char* image) : pes(pes), rows(tokens * TOP_K), layout(pes, MAX_SPLITS), all(pes) {
    int devices;
    CHECK(cudaGetDeviceCount(&devices));
    devices = std::min(devices, (int)pes);
    for (int a = 0; a < devices; a++)
      for (int b = 0; b < devices; b++)
        if (a != b) CHECK((cudaSetDevice(a), cudaDeviceEnablePeerAccess(b, 0)));
    for (unsigned r = 0; r < pes; r++) prepare(all[r], r, (int)r % devices, image, tokens);
    std::vector<u64> regions, outs, homes, members;
    for (const Pe& q : all) {
      regions.push_back((u64)q.context), outs.push_back((u64)q.out), homes.push_back((u64)q.home);
      members.push_back(members.size());
    }
    for (Pe& q : all) {
      CHECK(cudaSetDevice(q.device));
      q.regions = copied(regions), q.outs = copied(outs), q.homes = copied(homes), q.members = copied(members);
    }
  }

  void prepare(Pe& q, unsigned rank, int device, const char* image, unsigned tokens) {
    CHECK(cudaSetDevice(q.device = device));
    CHECK(cudaStreamCreateWithFlags(&q.stream, cudaStreamNonBlocking));
    CHECK(cudaEventCreate(&q.begin));
    CHECK(cudaEventCreate(&q.end));
    q.context = zeros<char>(layout.bytes), q.out = zeros<char>(out_rows() * ROW), q.home = zeros<char>(rows * ROW);
    q.local = zeros<char>(sizeof(ContextLocal) + 8 * MAX_SPLITS), q.status = zeros<StatusRecord>(1), q.host_status = host_status(), q.record = zeros<LaunchRecord>(1);
    q.there = zeros<long long>(2 * EXPERTS), q.back = zeros<long long>(2 * EXPERTS), q.trace = zeros<long long>(STEPS * 256);
    q.counts.assign(EXPERTS, 0);
    Random random{42 + rank};
    for (unsigned t = 0; t < tokens; t++) {
      std::vector<int> left;
      for (int e = 0; e < EXPERTS; e++) left.push_back(e);
      for (int k = 0; k < TOP_K; k++) {
        const size_t at = random.next() % left.size();
        q.counts[left[at]]++;
        left[at] = left.back(), left.pop_back();
      }
    }
    q.splits = copied(q.counts);
    Random word{7 + rank};
    q.words.resize(rows * ROW / 8);
    for (u64& w : q.words) w = word.next();
    q.in = (char*)copied(q.words);
    CHECK(cudaLibraryLoadFromFile(&q.library, image, nullptr, nullptr, 0, nullptr, nullptr, 0));
    void* rows_at;
    size_t bytes;
    if (cudaLibraryGetGlobal(&rows_at, &bytes, q.library, "_ZN4symm10trace_rowsE") == cudaSuccess)
      CHECK(cudaMemcpy(rows_at, &q.trace, 8, cudaMemcpyDefault));
    else
      q.trace = nullptr;
  }

  ExchangeParams params(unsigned rank, bool combine, unsigned remote) const {
    const Pe& q = all[rank];
    ExchangeParams p;
    memset(&p, 0, sizeof p);
    p.status = {(u64)q.status, (u64)q.host_status};
    for (unsigned r = 0; r < pes && r < NEAR_RANKS; r++)
      p.near_regions[r] = (u64)all[r].context, p.near_buffers[r] = (u64)(combine ? all[r].home : all[r].out);
    p.record = (u64)q.record, p.regions = (u64)q.regions, p.members = (u64)q.members, p.mine = (u64)q.context, p.local = (u64)q.local;
    p.arrival = layout.arrival, p.done = layout.done, p.aborted = layout.aborted, p.slots = layout.slots, p.slot_bytes = layout.slot_bytes;
    p.notes = layout.notes, p.pushed = layout.pushed;
    p.form = combine ? FORM_ALL_TO_ALL_VDEV_2D_OFFSET : FORM_ALL_TO_ALL_VDEV_2D;
    p.dtype = 3, p.row_bytes = ROW, p.ne = EXPERTS / pes, p.major_align = 1, p.n_splits = EXPERTS, p.out_id = 1;
    p.in_rows = combine ? out_rows() : rows, p.out_rows = combine ? rows : out_rows(), p.out_bytes = p.out_rows * ROW;
    p.input = (u64)(combine ? q.out : q.in), p.out_buffers = (u64)(combine ? q.homes : q.outs);
    p.in_splits = (u64)(combine ? q.there : q.splits), p.out_splits = (u64)(combine ? q.back : q.there);
    p.limit_ns = 2000000000, p.ranks = pes, p.rank = rank, p.remote_blocks = remote;
    return p;
  }

  // As Entry::for_launch in kernels/src/image.rs.
  bool ahead(bool combine) const { return combine ? out_rows() * ROW <= 3 << 19 : rows * ROW <= 512 << 10; }

  void capture(bool combine, Launch l) {
    for (unsigned r = 0; r < pes; r++) {
      Pe& q = all[r];
      CHECK(cudaSetDevice(q.device));
      char name[64];
      snprintf(name, sizeof name, "symm_exchange_vdev_2d%s%s", combine ? "_offset" : "", l.threads > 512 ? "_large" : ahead(combine) ? "_ahead" : "");
      cudaKernel_t kernel;
      CHECK(cudaLibraryGetKernel(&kernel, q.library, name));
      ExchangeParams p = params(r, combine, l.remote);
      cudaLaunchAttribute early;
      early.id = cudaLaunchAttributeProgrammaticStreamSerialization;
      early.val.programmaticStreamSerializationAllowed = 1;
      int multiprocessors;
      CHECK(cudaDeviceGetAttribute(&multiprocessors, cudaDevAttrMultiProcessorCount, q.device));
      cudaLaunchConfig_t config = {};
      config.gridDim = l.blocks, config.blockDim = l.threads, config.stream = q.stream, config.attrs = &early;
      config.numAttrs = l.blocks * 4 <= (unsigned)multiprocessors;
      cudaGraph_t graph;
      CHECK(cudaStreamBeginCapture(q.stream, cudaStreamCaptureModeThreadLocal));
      void* arguments[] = {&p};
      for (int call = 0; call < CALLS; call++) {
        p.turn = call % 2;
        CHECK(cudaLaunchKernelExC(&config, (const void*)kernel, arguments));
      }
      CHECK(cudaStreamEndCapture(q.stream, &graph));
      CHECK(cudaGraphInstantiate(&q.graphs[combine], graph, 0));
    }
  }

  // Median us of a call, of the PE that takes longest.
  float measure(bool combine) {
    CHECK(cudaSetDevice(all[0].device));
    unsigned* meetings = zeros<unsigned>(WARM_UP + REPEATS);
    std::vector<float> times;
    for (int repeat = 0; repeat < WARM_UP + REPEATS; repeat++) {
      for (Pe& q : all) {
        CHECK(cudaSetDevice(q.device));
        meet<<<1, 1, 0, q.stream>>>(meetings + repeat, pes);
        CHECK(cudaEventRecord(q.begin, q.stream));
        CHECK(cudaGraphLaunch(q.graphs[combine], q.stream));
        CHECK(cudaEventRecord(q.end, q.stream));
      }
      float longest = 0;
      for (Pe& q : all) {
        float ms;
        CHECK(cudaStreamSynchronize(q.stream));
        CHECK(cudaEventElapsedTime(&ms, q.begin, q.end));
        longest = std::max(longest, ms);
      }
      if (repeat >= WARM_UP) times.push_back(longest * 1e3f / CALLS);
    }
    std::sort(times.begin(), times.end());
    return times[times.size() / 2];
  }

  // Whether no call has failed and, after a combine, everybody has back what it sent.
  bool right(bool combine) const {
    for (const Pe& q : all) {
      u64 code;
      CHECK(cudaMemcpy(&code, q.status, 8, cudaMemcpyDefault));
      if (code != 0) return false;
      if (!combine) continue;
      std::vector<u64> words(q.words.size());
      std::vector<long long> counts(EXPERTS);
      CHECK(cudaMemcpy(words.data(), q.home, words.size() * 8, cudaMemcpyDefault));
      CHECK(cudaMemcpy(counts.data(), q.back, EXPERTS * 8, cudaMemcpyDefault));
      if (words != q.words || counts != q.counts) return false;
    }
    return true;
  }

  // us from the beginning of each block of PE 0's last launch to each step, the mean of those that came to it.
  void print_steps(unsigned blocks) const {
    if (all[0].trace == nullptr) return;
    int khz;
    CHECK(cudaDeviceGetAttribute(&khz, cudaDevAttrClockRate, all[0].device));
    std::vector<long long> clocks(STEPS * blocks);
    CHECK(cudaMemcpy(clocks.data(), all[0].trace, clocks.size() * 8, cudaMemcpyDefault));
    for (int step = 1; step < STEPS; step++) {
      double sum = 0, longest = 0;
      int came = 0;
      for (unsigned b = 0; b < blocks; b++) {
        // A block that has not come to a step has the clock of nothing there.
        const double us = (double)(clocks[b * STEPS + step] - clocks[b * STEPS]) * 1e3 / khz;
        if (us < 0 || us > 1e3) continue;
        sum += us, longest = std::max(longest, us), came++;
      }
      if (came > 0) printf(" %s %.2f (%.2f)", NAMES[step], sum / came, longest);
    }
    printf("\n");
  }
};

int main(int argc, char** argv) {
  unsigned numbers[5];
  for (int i = 0; i < 5; i++) numbers[i] = argc == 7 ? (unsigned)strtoul(argv[2 + i], nullptr, 10) : 0;
  const unsigned tokens = numbers[0], pes = numbers[1];
  const Launch launch = {numbers[2], numbers[3], numbers[4]};
  if (tokens == 0 || pes == 0 || EXPERTS % pes != 0 || launch.blocks == 0 || launch.blocks > MAX_PUSHERS) {
    fprintf(stderr, "usage: steps exchange.fatbin TOKENS PES BLOCKS THREADS REMOTE\n");
    return 2;
  }
  World world(pes, tokens, argv[1]);
  for (bool combine : {false, true}) world.capture(combine, launch);
  bool right = true;
  for (bool combine : {false, true}) {
    const float us = world.measure(combine);
    const bool fine = world.right(combine);
    printf("%s, %u tokens, %u PEs, %u blocks of %u, %u remote: %.2f us%s\n", combine ? "vdev_2d_offset" : "vdev_2d", tokens, pes,
           launch.blocks, launch.threads, launch.remote, us, fine ? "" : ", WRONG");
    world.print_steps(launch.blocks);
    right = right && fine;
  }
  return right ? 0 : 1;
}
