// What the compiler's thread instrumentation calls before each plain access, instead of its own library.
#include <cstring>

#include "machine.h"
#include "model_threads.h"

using model::u64;

extern "C" char __executable_start, _end;

// Whether an address may be that of memory which GPUs share: not a stack, a block's own memory, or a variable of the program's.
static bool is_global(u64 at) {
  if (model::current == nullptr || machine::is_private(at)) return false;
  return at < (u64)&__executable_start || at >= (u64)&_end;
}

static void read(void* at, size_t bytes) {
  if (is_global((u64)at)) model::plain_read((u64)at, bytes);
}

static void write(void* at, size_t bytes) {
  if (is_global((u64)at)) model::plain_write((u64)at, bytes);
}

#define ACCESS(n)                                                  \
  void __tsan_read##n(void* at) { read(at, n); }                   \
  void __tsan_write##n(void* at) { write(at, n); }                 \
  void __tsan_unaligned_read##n(void* at) { read(at, n); }         \
  void __tsan_unaligned_write##n(void* at) { write(at, n); }       \
  void __tsan_volatile_read##n(void* at) { read(at, n); }          \
  void __tsan_volatile_write##n(void* at) { write(at, n); }        \
  void __tsan_unaligned_volatile_read##n(void* at) { read(at, n); } \
  void __tsan_unaligned_volatile_write##n(void* at) { write(at, n); }

extern "C" {
ACCESS(1)
ACCESS(2)
ACCESS(4)
ACCESS(8)
ACCESS(16)
void __tsan_read_range(void* at, size_t bytes) { read(at, bytes); }
void __tsan_write_range(void* at, size_t bytes) { write(at, bytes); }
void __tsan_init() {}
void __tsan_func_entry(void*) {}
void __tsan_func_exit() {}
void __tsan_vptr_update(void**, void*) {}
void __tsan_vptr_read(void**) {}
// Clang's; GCC calls the library's own.
void* __tsan_memcpy(void* to, const void* from, size_t bytes) { return memcpy(to, from, bytes); }
void* __tsan_memmove(void* to, const void* from, size_t bytes) { return memmove(to, from, bytes); }
void* __tsan_memset(void* at, int value, size_t bytes) { return memset(at, value, bytes); }
}
