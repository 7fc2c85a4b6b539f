// The kernels of all-reduces without the library around them: times of bf16 by blocks and threads, and, in a build with SYMM_TRACE, the
// clock at each of their steps (kernels/cu/steps.cuh). PEs are the streams of one process, on two GPUs. Every sum is compared.
//
//   nvcc -O3 -std=c++17 -arch=sm_90 -Ikernels/include -DSYMM_TRACE -fatbin kernels/cu/pushed.cu -o pushed.fatbin
//   nvcc -O2 -std=c++17 -Ikernels/include benches/gpu/sums.cu -o sums
//   sums < LINES
//
// A line is FATBIN KERNEL FORM BYTES BLOCKS THREADS PIECES ROOMS: a kernel of pushed.cu or reduce.cu (symm_pushed_bf16_pair,
// symm_reduce_bf16), its form as a number (enum Form of exchange.cuh: 24 one-shot, 25 two-shot), and, of those that push, in how many pieces
// and into how many rooms (2: one for each parity of the epoch; 1: one for all, behind the verdict). What the library would launch says
// kernels/src/geometry.rs.
#include "lab.cuh"

constexpr int PES = 2;
constexpr u64 DTYPE_BF16 = 3;

unsigned short bf16(float value) {
  unsigned bits;
  memcpy(&bits, &value, 4);
  return bits >> 16;
}

// Small whole numbers, whose sums are exact.
float element(unsigned rank, u64 i) { return (float)((i * 7 + rank * 3) % 16); }

struct Line {
  char image[256], kernel[64];
  u64 form, bytes;
  unsigned blocks, threads, pieces, rooms;
  bool pushes() const { return strstr(kernel, "pushed") != nullptr; }
  bool in_place() const { return form == FORM_TWO_SHOT_ALL_REDUCE; }
};

// A PE's memory, and its stream.
struct Pe {
  cudaStream_t stream;
  cudaEvent_t begin, end;
  char *context, *buffer, *result, *local;
  long long* trace;
  StatusRecord *status, *host_status;
  LaunchRecord* record;
  cudaLibrary_t library;
  std::vector<unsigned short> elements;
  cudaGraphExec_t graph;
};

void prepare(Pe& q, unsigned rank, const Line& line, const ContextLayout& layout) {
  CHECK(cudaSetDevice(rank));
  CHECK(cudaStreamCreateWithFlags(&q.stream, cudaStreamNonBlocking));
  CHECK(cudaEventCreate(&q.begin));
  CHECK(cudaEventCreate(&q.end));
  q.context = zeros<char>(layout.bytes), q.result = zeros<char>(line.bytes);
  q.local = zeros<char>(sizeof(ContextLocal) + 8 * MAX_SPLITS), q.status = zeros<StatusRecord>(1), q.host_status = host_status(), q.record = zeros<LaunchRecord>(1);
  q.trace = zeros<long long>(STEPS * 256);
  for (u64 i = 0; i < line.bytes / 2; i++) q.elements.push_back(bf16(element(rank, i)));
  q.buffer = (char*)copied(q.elements);
  CHECK(cudaLibraryLoadFromFile(&q.library, line.image, nullptr, nullptr, 0, nullptr, nullptr, 0));
  void* rows_at;
  size_t bytes;
  if (cudaLibraryGetGlobal(&rows_at, &bytes, q.library, "_ZN4symm10trace_rowsE") == cudaSuccess)
    CHECK(cudaMemcpy(rows_at, &q.trace, 8, cudaMemcpyDefault));
  else
    q.trace = nullptr;
}

PushedParams params(const std::vector<Pe>& all, unsigned rank, const Line& line, const ContextLayout& layout) {
  const Pe& q = all[rank];
  PushedParams a;
  memset(&a, 0, sizeof a);
  ExchangeParams& p = a.reduce.exchange;
  std::vector<u64> regions, buffers, members;
  for (unsigned r = 0; r < PES; r++) {
    regions.push_back(p.near_regions[r] = (u64)all[r].context);
    buffers.push_back(p.near_buffers[r] = (u64)all[r].buffer);
    members.push_back(r);
  }
  p.status = {(u64)q.status, (u64)q.host_status};
  p.record = (u64)q.record, p.mine = (u64)q.context, p.local = (u64)q.local;
  p.regions = (u64)copied(regions), p.members = (u64)copied(members), p.out_buffers = (u64)copied(buffers);
  p.arrival = layout.arrival, p.done = layout.done, p.aborted = layout.aborted, p.slots = layout.slots, p.slot_bytes = layout.slot_bytes;
  p.notes = layout.notes, p.pushed = layout.pushed;
  p.form = line.form, p.dtype = DTYPE_BF16, p.row_bytes = 2, p.ne = 1, p.major_align = 1, p.out_id = 1;
  p.in_rows = p.out_rows = line.bytes / 2, p.out_bytes = line.bytes;
  p.limit_ns = 2000000000, p.ranks = PES, p.rank = rank;
  const Header header = {0, p.form, p.dtype, p.row_bytes, p.ne, p.major_align, 0, 0, 0, p.out_id, 0, p.out_rows, p.in_rows, 0, 0, 1};
  memcpy(a.reduce.header, &header, sizeof header);
  a.reduce.lead = 1, a.reduce.gathered = layout.gathered, a.reduce.result = line.in_place() ? 0 : (u64)q.result;
  a.room = layout.room, a.room_bytes = layout.room_bytes, a.room_step = line.rooms == 2 ? layout.room_bytes : 0, a.pieces = line.pieces;
  return a;
}

void capture(Pe& q, unsigned rank, const Line& line, PushedParams a) {
  CHECK(cudaSetDevice(rank));
  cudaKernel_t kernel;
  CHECK(cudaLibraryGetKernel(&kernel, q.library, line.kernel));
  cudaLaunchAttribute early;
  early.id = cudaLaunchAttributeProgrammaticStreamSerialization;
  early.val.programmaticStreamSerializationAllowed = 1;
  int multiprocessors;
  CHECK(cudaDeviceGetAttribute(&multiprocessors, cudaDevAttrMultiProcessorCount, rank));
  cudaLaunchConfig_t config = {};
  config.gridDim = line.blocks, config.blockDim = line.threads, config.stream = q.stream, config.attrs = &early;
  config.numAttrs = line.blocks * 4 <= (unsigned)multiprocessors;
  cudaGraph_t graph;
  CHECK(cudaStreamBeginCapture(q.stream, cudaStreamCaptureModeThreadLocal));
  void* arguments[] = {line.pushes() ? (void*)&a : (void*)&a.reduce};
  for (int call = 0; call < CALLS; call++) CHECK(cudaLaunchKernelExC(&config, (const void*)kernel, arguments));
  CHECK(cudaStreamEndCapture(q.stream, &graph));
  CHECK(cudaGraphInstantiate(&q.graph, graph, 0));
}

// Median us of a call, of the PE that takes longest. The last replay begins with the elements as they were.
float measure(std::vector<Pe>& all, const Line& line) {
  CHECK(cudaSetDevice(0));
  unsigned* meetings = zeros<unsigned>(WARM_UP + REPEATS);
  std::vector<float> times;
  for (int repeat = 0; repeat < WARM_UP + REPEATS; repeat++) {
    for (unsigned r = 0; repeat == WARM_UP + REPEATS - 1 && r < PES; r++) {
      CHECK(cudaSetDevice(r));
      CHECK(cudaMemcpy(all[r].buffer, all[r].elements.data(), line.bytes, cudaMemcpyDefault));
      CHECK(cudaDeviceSynchronize());
    }
    for (unsigned r = 0; r < PES; r++) {
      Pe& q = all[r];
      CHECK(cudaSetDevice(r));
      meet<<<1, 1, 0, q.stream>>>(meetings + repeat, PES);
      CHECK(cudaEventRecord(q.begin, q.stream));
      CHECK(cudaGraphLaunch(q.graph, q.stream));
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

// Whether no call has failed, and both PEs have the sums: in place those of all calls of a graph, 2^9 times the first one's.
bool right(const std::vector<Pe>& all, const Line& line) {
  for (const Pe& q : all) {
    u64 code;
    CHECK(cudaMemcpy(&code, q.status, 8, cudaMemcpyDefault));
    if (code != 0) return false;
    std::vector<unsigned short> got(line.bytes / 2);
    CHECK(cudaMemcpy(got.data(), line.in_place() ? q.buffer : q.result, line.bytes, cudaMemcpyDefault));
    for (u64 i = 0; i < got.size(); i++)
      if (got[i] != bf16((element(0, i) + element(1, i)) * (line.in_place() ? 1 << (CALLS - 1) : 1))) return false;
  }
  return true;
}

// us from the beginning of each block of a PE's last launch to each step, the mean of those that came to it, and the longest.
void print_steps(const Pe& q, unsigned rank, unsigned blocks) {
  if (q.trace == nullptr) return;
  int khz;
  CHECK(cudaDeviceGetAttribute(&khz, cudaDevAttrClockRate, rank));
  std::vector<long long> clocks(STEPS * blocks);
  CHECK(cudaMemcpy(clocks.data(), q.trace, clocks.size() * 8, cudaMemcpyDefault));
  for (int step = 1; step < STEPS; step++) {
    double sum = 0, longest = 0;
    int came = 0;
    for (unsigned b = 0; b < blocks; b++) {
      // A block that has not come to a step has the clock of nothing there.
      const double us = (double)(clocks[b * STEPS + step] - clocks[b * STEPS]) * 1e3 / khz;
      if (us <= 0 || us > 1e3) continue;
      sum += us, longest = std::max(longest, us), came++;
    }
    if (came > 0) printf(" %s %.2f (%.2f)", NAMES[step], sum / came, longest);
  }
  printf("\n");
}

int main() {
  for (int r = 0; r < PES; r++) {
    CHECK(cudaSetDevice(r));
    CHECK(cudaDeviceEnablePeerAccess(1 - r, 0));
  }
  bool fine = true;
  char text[512];
  while (fgets(text, sizeof text, stdin)) {
    Line line;
    if (sscanf(text, "%255s %63s %llu %llu %u %u %u %u", line.image, line.kernel, &line.form, &line.bytes, &line.blocks, &line.threads, &line.pieces,
               &line.rooms) != 8) {
      fprintf(stderr, "a line is FATBIN KERNEL FORM BYTES BLOCKS THREADS PIECES ROOMS\n");
      return 2;
    }
    // Room for more than any cut of the elements takes.
    const ContextLayout layout(PES, MAX_SPLITS, line.bytes / 3 * 4 + 65536);
    std::vector<Pe> all(PES);
    for (unsigned r = 0; r < PES; r++) prepare(all[r], r, line, layout);
    for (unsigned r = 0; r < PES; r++) {
      CHECK(cudaSetDevice(r));
      capture(all[r], r, line, params(all, r, line, layout));
    }
    const float us = measure(all, line);
    const bool good = right(all, line);
    printf("%s, form %llu, %llu bytes, %u blocks of %u, %u pieces, rooms %u: %.2f us%s\n", line.kernel, line.form, line.bytes, line.blocks,
           line.threads, line.pieces, line.rooms, us, good ? "" : ", WRONG");
    for (unsigned r = 0; r < PES; r++) print_steps(all[r], r, line.blocks);
    fine = fine && good;
  }
  return fine ? 0 : 1;
}
