// What a word's way to the other GPU takes, by how it is written, looked for and where it lies: what the rows of the speed table that move
// next to nothing are made of. Two GPUs of one process, a thread each, 1000 trips there and back. One JSON object on the standard output.
//
//   nvcc -O2 -std=c++17 -arch=sm_90 -Ikernels/include benches/gpu/latency.cu -o latency
#include "lab.cuh"

constexpr int PES = 2, LAUNCHES = 7;
constexpr u64 TRIPS = 1000, DATA = 1 << 20;

// How a thread looks for the word.
struct Relaxed {
  static __device__ u64 look(const u64* at) { return load_relaxed_sys_u64(at); }
};
struct Acquire {
  static __device__ u64 look(const u64* at) { return load_acquire_sys_u64(at); }
};
struct Atomic {
  static __device__ u64 look(const u64* at) {
    u64 v;
    asm volatile("atom.or.relaxed.sys.global.b64 %0, [%1], 0;" : "=l"(v) : "l"(at) : "memory");
    return v;
  }
};

// How it is written.
struct Store {
  static __device__ void write(u64* at, u64* data, u64 v) { store_relaxed_sys_u64(at, v); }
};
struct Release {
  static __device__ void write(u64* at, u64* data, u64 v) { store_release_sys_u64(at, v); }
};
struct DataRelease {
  static __device__ void write(u64* at, u64* data, u64 v) {
    store_relaxed_sys_u64(data, v);
    store_release_sys_u64(at, v);
  }
};
struct DataFence {
  static __device__ void write(u64* at, u64* data, u64 v) {
    store_relaxed_sys_u64(data, v);
    fence_release_sys();
    store_relaxed_sys_u64(at, v);
  }
};

// `pause`: cycles between two looks. `in_flight`: looks under way at once. `READS`: the data are read before the answer. A deadline in
// looks, so that nothing waits for ever.
template <typename Look, typename Write, bool READS>
__global__ void trips(u64* mine, u64* theirs, unsigned me, u64 base, unsigned pause, unsigned in_flight, u64* took) {
  const u64 began = now_ns();
  u64 left = 100000000, wrong = 0;
  for (u64 trip = base + 1; trip <= base + TRIPS; trip++)
    for (unsigned turn = 0; turn < 2; turn++) {
      if (turn == me) {
        Write::write(theirs, theirs + DATA / 8, trip);
        continue;
      }
      if (in_flight == 1) {
        while (Look::look(mine) < trip && --left > 0) {
          for (const unsigned t = clock(); pause != 0 && (unsigned)clock() - t < pause;) {}
        }
      } else {
        u64 first = Look::look(mine);
        for (const unsigned t = clock(); (unsigned)clock() - t < 150;) {}
        u64 second = Look::look(mine);
        for (;;) {
          if (first >= trip || --left == 0) break;
          first = Look::look(mine);
          if (second >= trip) break;
          second = Look::look(mine);
        }
      }
      fence_acquire_sys();
      if (READS && load_relaxed_sys_u64(mine + DATA / 8) != trip) wrong++;
    }
  took[0] = now_ns() - began;
  took[1] = wrong == 0 ? left : 0;
}

struct Gpu {
  cudaStream_t stream;
  char* memory;
  u64* took;
};

// What the words have come to. One for all ways of writing and looking, since they use the same words.
u64 base = 0;

// µs of one way.
template <typename Look, typename Write, bool READS = false>
float one_way(std::vector<Gpu>& all, u64 at, unsigned pause, unsigned in_flight) {
  std::vector<float> times;
  for (int launch = 0; launch < LAUNCHES; launch++) {
    for (unsigned r = 0; r < PES; r++) {
      CHECK(cudaSetDevice(r));
      trips<Look, Write, READS><<<1, 1, 0, all[r].stream>>>((u64*)(all[r].memory + at), (u64*)(all[1 - r].memory + at), r, base, pause, in_flight, all[r].took);
      CHECK(cudaGetLastError());
    }
    base += TRIPS;
    for (Gpu& g : all) CHECK(cudaStreamSynchronize(g.stream));
    u64 took[2];
    CHECK(cudaMemcpy(took, all[0].took, sizeof took, cudaMemcpyDefault));
    if (took[1] == 0) fprintf(stderr, "a word did not come, or was another\n"), exit(1);
    if (launch >= 2) times.push_back(took[0] / 1e3f / TRIPS / 2);
  }
  std::sort(times.begin(), times.end());
  return times[times.size() / 2];
}

int main() {
  std::vector<Gpu> all(PES);
  for (int r = 0; r < PES; r++) {
    CHECK(cudaSetDevice(r));
    CHECK(cudaDeviceEnablePeerAccess(1 - r, 0));
    CHECK(cudaStreamCreateWithFlags(&all[r].stream, cudaStreamNonBlocking));
    all[r].memory = zeros<char>(2 * DATA), all[r].took = zeros<u64>(2);
    CHECK(cudaDeviceSynchronize());
  }
  const char* separator = "";
  const auto row = [&](const char* what, float us) { printf("%s\n  {\"what\": \"%s\", \"us\": %.3f}", separator, what, us), separator = ","; };
  printf("{\"rows\": [");
  row("a word, written and looked for with relaxed stores and loads", one_way<Relaxed, Store>(all, 0, 0, 1));
  row("the same, each look an acquire", one_way<Acquire, Store>(all, 0, 0, 1));
  row("the same, each look an atomic", one_way<Atomic, Store>(all, 0, 0, 1));
  row("the same, 120 cycles between two looks", one_way<Relaxed, Store>(all, 0, 120, 1));
  row("the same, 480 cycles between two looks", one_way<Relaxed, Store>(all, 0, 480, 1));
  row("the same, two looks under way at once", one_way<Relaxed, Store>(all, 0, 0, 2));
  row("a release, with nothing before it", one_way<Relaxed, Release>(all, 0, 0, 1));
  row("another word, then a release", one_way<Relaxed, DataRelease>(all, 0, 0, 1));
  row("another word, then a release; it is read before the answer", one_way<Relaxed, DataRelease, true>(all, 0, 0, 1));
  row("another word, a release fence, a relaxed store", one_way<Relaxed, DataFence>(all, 0, 0, 1));
  row("another word, then a release, looked for with atomics", one_way<Atomic, DataRelease>(all, 0, 0, 1));
  row("another word, then a release, two looks under way at once", one_way<Relaxed, DataRelease>(all, 0, 0, 2));
  printf("\n],\n\"places\": [");
  separator = "";
  for (u64 at : {0, 128, 256, 512, 1024, 2048, 4096, 8192, 16384, 32768, 65536, 131072}) {
    printf("%s\n  {\"byte\": %llu, \"word_us\": %.3f, \"data_and_release_us\": %.3f}", separator, at, one_way<Relaxed, Store>(all, at, 0, 1), one_way<Relaxed, DataRelease>(all, at, 0, 1));
    separator = ",";
  }
  printf("\n]}\n");
}
