// When others see what a thread stores: the part of PTX's memory model that the kernels' protocols stand on.
//
// A store waits in a buffer and is *delivered* at a time that the seed chooses, in any order with respect to the same thread's other
// stores; only overlapping stores of one PE keep their order. Until then it is seen by the thread itself and by those of the same PE for
// which it *happens before*, by bar.sync, bar.warp.sync, and by a release that an acquire has seen. A release at system scope delivers
// all that happens before it; one at GPU scope what of that lies in the PE's own memory. Both are cumulative. A release pattern is a
// fence and a later strong store or atomic; an acquire pattern the reverse. Atomics act at once.
//
// A kernel's end delivers what it stored to its own PE's memory and orders the rest before the stream's next kernel.
//
// That GPU scope delivers to the PE's own memory is more than PTX says. It is what the kernels build on (docs/MEMORY_MODEL.md, "On
// GPUs"): a GPU's memory is reached through its own second-level cache, by peers too, and GPU scope means that cache.
//
// A load may return a value that was there before: not one that a store has replaced which happens before the load, nor one older than
// what the same thread has read there already. A word of 16 bytes is read at once, plain accesses are read word by word. Old values are
// forgotten after a time that the seed chooses, so that whoever waits gets on. Atomics, and a transport, read what is there.
#pragma once

#include <cstddef>
#include <cstdint>

namespace model {

typedef unsigned long long u64;

enum class Scope { Gpu, Sys };

// Strong (relaxed or stronger) operations of at most 16 bytes.
void load(const void* at, void* value, size_t bytes, bool acquire);
void store(void* at, const void* value, size_t bytes, bool release, Scope scope);
// Replaces the word by `change(old)`; returns the old one.
u64 modify(void* at, size_t bytes, bool acquire, bool release, Scope scope, u64 (*change)(u64 old, u64 a, u64 b), u64 a, u64 b);

// Weak ones.
void weak_load(const void* at, void* value, size_t bytes);
// What is in memory, for whoever is no thread of a GPU.
void transport_load(const void* at, void* value, size_t bytes);
void weak_store(void* at, const void* value, size_t bytes);

void fence(bool acquire, Scope scope);
void fence_acquire();

// Whether, from now on, an acquire also drops what the block keeps near: no load behind it returns what had been replaced before it,
// whoever did that. More than PTX says, and what a GPU does.
void acquires_drop(bool drop);

// Memory of a PE, until the next join, for what a kernel's end delivers. What nobody names belongs to no PE.
void own(unsigned pe, const void* at, size_t bytes);

}  // namespace model
