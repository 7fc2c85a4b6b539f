// What the programs that run kernels without the library around them share (steps.cu, sums.cu, latency.cu).
#pragma once

#include <cuda_runtime.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <vector>

#include "../../kernels/tests/layout.h"
#include "symm/exchange.cuh"
#include "symm/params.cuh"
#include "symm/status.cuh"

using namespace symm;

#define CHECK(call)                                                                             \
  do {                                                                                          \
    const cudaError_t error = (call);                                                           \
    if (error != cudaSuccess) {                                                                 \
      fprintf(stderr, "%s:%d: %s: %s\n", __FILE__, __LINE__, #call, cudaGetErrorString(error)); \
      exit(1);                                                                                  \
    }                                                                                           \
  } while (0)

constexpr int CALLS = 10, REPEATS = 50, WARM_UP = 10, STEPS = 16;
constexpr u64 MAX_SPLITS = 1024;
const char* const NAMES[STEPS] = {"begin",   "drafted", "looked", "prepared", "tickets", "met",    "published", "arriving",
                                  "arrived", "placed",  "verdict", "pushed",  "fenced",  "raised", "counted",   "complete"};

// Waits until all PEs' streams are here.
__global__ void meet(unsigned* here, unsigned pes) {
  atomicAdd_system(here, 1);
  while (*(volatile unsigned*)here < pes) {}
}

template <typename T>
T* zeros(u64 count) {
  T* at;
  CHECK(cudaMalloc(&at, count * sizeof(T)));
  CHECK(cudaMemset(at, 0, count * sizeof(T)));
  return at;
}

template <typename T>
T* copied(const std::vector<T>& values) {
  T* at = zeros<T>(values.size());
  CHECK(cudaMemcpy(at, values.data(), values.size() * sizeof(T), cudaMemcpyDefault));
  return at;
}

// The host's copy of a team's status, in host memory as the library has it: what a wait takes that looks there is to show here, too.
inline StatusRecord* host_status() {
  void* at = nullptr;
  CHECK(cudaHostAlloc(&at, sizeof(StatusRecord), cudaHostAllocPortable | cudaHostAllocMapped));
  memset(at, 0, sizeof(StatusRecord));
  return (StatusRecord*)at;
}
