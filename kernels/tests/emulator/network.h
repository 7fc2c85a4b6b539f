// A network between made-up hosts of PEs, in place of NVSHMEM's. A put waits for a fiber that delivers it, in any order that fences and
// signals allow, and reads its source only then, as it is in memory at that time. A source that is used again before a quiet, a word that
// overtakes what it announces, a name of the wrong memory, or bytes that were not released to the system damage the result.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace network {

typedef unsigned long long u64;

// What is put: `bytes` bytes, then a word of `width` bytes at `signal`, if not 0; both in the receiver's memory.
struct Put {
  u64 to, from, bytes;
  u64 signal, value;
  unsigned width;
  bool adds;
};

// Memory at `mine` by which the same part of `theirs`, index = rank, is named.
void name(u64 mine, size_t bytes, const std::vector<u64>& theirs);
// Where what `name` means lies at rank `rank`.
u64 find(u64 name, unsigned rank);

// By a thread of a kernel: what its PE sends, in order behind its fences; and what it waits for. A get's bytes come as those of a put do;
// who is told that they are there has not acquired them.
void send(const Put& put);
void fence();
void quiet();
void get(u64 to, u64 from, size_t bytes);

// As many threads will come to their kernel's end, and one has come.
void expect(unsigned threads);
void ended();

// The fiber: delivers until all threads have ended.
void run();

// Forgets the names; returns how many messages were never delivered.
size_t reset();

}  // namespace network
