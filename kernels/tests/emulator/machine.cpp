#include "machine.h"

#include <setjmp.h>
#include <sys/mman.h>
#include <ucontext.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <memory>
#include <new>

#include "model_threads.h"

Index threadIdx, blockIdx, gridDim, blockDim;
EmulatedBlock* current_block;

namespace machine {

namespace {

constexpr size_t STACK = 128 << 10;
constexpr size_t BLOCK = 128 << 10;  // a block and its shared memory
constexpr size_t POOL = 1ull << 31;   // of address space, for stacks and shared memory
constexpr u64_t NEVER = ~0ull;
constexpr u64_t MOST_TICKS = 60000000;  // without the end of a launch

struct Thread;

// Threads that wait for each other. Those that return from the kernel leave it, as on the GPU.
struct Meeting {
  unsigned members = 0;
  std::vector<Thread*> here;
};

struct Warp {
  Meeting meeting;
  u64_t values[32];
};

struct Running;

struct alignas(128) Block : EmulatedBlock {
  Running* launch;
  unsigned index, live;
  Meeting meeting;
  Warp warps[BLOCK_THREADS / 32];
  int any = 0;
  bool lets_go_on = false;
};

// A fiber, used again and again.
struct Thread {
  jmp_buf where;
  Block* block;
  unsigned index;
  int any;
  model::View view;
};

struct Running {
  Launch launch;
  unsigned stream;
  unsigned started = 0, ended = 0;  // blocks
  unsigned let_go_on = 0;           // blocks that let the stream go on, or ended
  u64_t next_block = 0;             // not before this tick
  u64_t end = NEVER;                // tick at which the kernel counts as ended
  model::Clock clock;               // of the threads that have ended
  std::vector<const Block*> live;
};

struct Stream {
  std::deque<Launch> queue;
  std::unique_ptr<Running> running, early;  // the launch that all ahead of have ended, and the one behind it
  model::Clock clock;
};

char* pool;
size_t pool_used;
std::vector<Thread*> idle;
std::vector<char*> idle_blocks;
std::vector<Thread*> ready;
std::vector<std::pair<u64_t, Thread*>> asleep;
std::vector<Stream> streams;
jmp_buf scheduler;
Thread* self;
u64_t now, last_end, state;

char* from_pool(size_t bytes) {
  if (pool == nullptr) {
    pool = (char*)mmap(nullptr, POOL, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (pool == MAP_FAILED) abort();
  }
  char* at = pool + pool_used;
  pool_used += bytes;
  if (pool_used > POOL) abort();
  return at;
}

[[noreturn]] void fail(const char* what) {
  printf("%s: tick %llu, %zu ready, %zu asleep\n", what, now, ready.size(), asleep.size());
  for (const Stream& s : streams) {
    if (!s.running) continue;
    const Running& r = *s.running;
    printf("PE %u: %u of %u blocks began, %u ended\n", r.launch.pe, r.started, r.launch.blocks, r.ended);
    for (const Block* b : r.live)
      printf("  block %u: %zu of %u threads meet, of its warps %zu and %zu\n", b->index, b->meeting.here.size(), b->meeting.members,
             b->warps[0].meeting.here.size(), b->warps[1].meeting.here.size());
  }
  fflush(stdout);
  _exit(3);
}

void leave_fiber() {
  model::settle();
  if (_setjmp(self->where) == 0) _longjmp(scheduler, 1);
}

void open_meeting(Meeting& m, bool ordered) {
  if (ordered) {
    model::Clock all;
    u64_t dropped = 0;
    for (Thread* t : m.here) model::join_clock(all, t->view.clock), dropped = std::max<u64_t>(dropped, t->view.dropped);
    for (Thread* t : m.here) t->view.clock = all, t->view.dropped = dropped;
  }
  ready.insert(ready.end(), m.here.begin(), m.here.end());
  m.here.clear();
}

void open_block(Block& b) {
  for (Thread* t : b.meeting.here) t->any = b.any;
  b.any = 0;
  open_meeting(b.meeting, true);
}

void end_thread() {
  model::settle();
  Thread* t = self;
  Block* b = t->block;
  Running* r = b->launch;
  model::join_clock(r->clock, t->view.clock);
  model::release_id(t->view.id);
  idle.push_back(t);
  b->meeting.members--;
  if (b->meeting.members != 0 && b->meeting.here.size() == b->meeting.members) open_block(*b);
  if (--b->live != 0) return;
  r->live.erase(std::find(r->live.begin(), r->live.end(), b));
  if (!b->lets_go_on) r->let_go_on++;
  b->~Block();
  idle_blocks.push_back((char*)b);
  r->ended++;
  // A kernel has not ended the moment that its last block has.
  if (r->ended == r->launch.blocks) r->end = now + below(1ull << below(18));
}

void fiber() {
  for (;;) {
    self->block->launch->launch.kernel();
    end_thread();
    if (_setjmp(self->where) == 0) _longjmp(scheduler, 1);
  }
}

// Where a new fiber goes back to from its first stop.
ucontext_t home;

void first_stop() {
  if (_setjmp(self->where) == 0) setcontext(&home);
  fiber();
}

void start_fiber(Thread* t) {
  ucontext_t context;
  getcontext(&context);
  context.uc_stack.ss_sp = from_pool(STACK);
  context.uc_stack.ss_size = STACK;
  context.uc_link = nullptr;
  makecontext(&context, first_stop, 0);
  self = t;
  swapcontext(&home, &context);
}

Thread* new_thread() {
  if (idle.empty()) {
    Thread* t = new Thread;
    start_fiber(t);
    return t;
  }
  Thread* t = idle.back();
  idle.pop_back();
  return t;
}

void start_block(Running& r, const model::Clock& before) {
  if (idle_blocks.empty()) idle_blocks.push_back(from_pool(BLOCK));
  char* room = idle_blocks.back();
  idle_blocks.pop_back();
  // In the pool, like the shared memory behind it: what a warp's lanes hand to each other is no memory of the model's.
  Block* b = new (room) Block;
  b->launch = &r;
  b->index = r.started++;
  r.live.push_back(b);
  if (sizeof(Block) + r.launch.shared_bytes > BLOCK) abort();
  b->shared = b + 1;
  memset(b->shared, 0xA5, r.launch.shared_bytes);
  b->live = b->meeting.members = BLOCK_THREADS;
  for (Warp& w : b->warps) w.meeting.members = 32;
  for (unsigned k = 0; k < BLOCK_THREADS; k++) {
    Thread* t = new_thread();
    t->block = b, t->index = k;
    model::begin(t->view, r.launch.pe, before);
    ready.push_back(t);
  }
}

std::unique_ptr<Running> next_of(Stream& s, unsigned number) {
  std::unique_ptr<Running> r(new Running{std::move(s.queue.front()), number});
  s.queue.pop_front();
  r->next_block = now + below(below(2) == 0 ? 2 : 3000);
  return r;
}

// Begins the blocks of a launch whose time has come.
void start_blocks(Running& r, const model::Clock& before) {
  while (r.started < r.launch.blocks && r.next_block <= now && (r.launch.order == Order::Together || r.started == r.ended)) {
    start_block(r, before);
    r.next_block = now + below(200);
  }
}

void run(size_t which) {
  Thread* t = ready[which];
  ready[which] = ready.back();
  ready.pop_back();
  self = t;
  current_block = t->block;
  threadIdx.x = t->index, blockIdx.x = t->block->index, gridDim.x = t->block->launch->launch.blocks, blockDim.x = BLOCK_THREADS;
  model::current = &t->view;
  if (_setjmp(scheduler) == 0) _longjmp(t->where, 1);
  model::current = nullptr;
}

// Starts what is to start at this tick, ends what is to end. Returns the next tick at which there will be something to do, NEVER if
// nothing is known of any.
u64_t step_streams(bool& any) {
  u64_t next = NEVER;
  any = false;
  for (size_t k = 0; k < streams.size(); k++) {
    Stream& s = streams[k];
    if (!s.running && !s.queue.empty() && s.queue.front().may_begin && !s.queue.front().may_begin()) {
      any = true;
      next = now + 8 < next ? now + 8 : next;
      continue;
    }
    if (!s.running && !s.queue.empty()) {
      s.running = next_of(s, (unsigned)k);
    }
    if (!s.running) continue;
    any = true;
    Running& r = *s.running;
    start_blocks(r, s.clock);
    if (!s.early && r.let_go_on == r.launch.blocks && !s.queue.empty() && s.queue.front().early) s.early = next_of(s, (unsigned)k);
    if (s.early) {
      start_blocks(*s.early, s.clock);
      if (s.early->started < s.early->launch.blocks) next = s.early->next_block < next ? s.early->next_block : next;
    }
    if (r.end <= now) {
      const std::unique_ptr<Running> gone = std::move(s.running);
      s.running = std::move(s.early);
      model::join_clock(s.clock, gone->clock);
      model::end_kernel(gone->launch.pe, s.clock);
      last_end = now;
      if (gone->launch.passed) gone->launch.passed();
      next = now;
      continue;
    }
    if (r.end != NEVER) next = r.end < next ? r.end : next;
    else if (r.started < r.launch.blocks) next = r.next_block < next ? r.next_block : next;
  }
  return next;
}

void wake() {
  for (size_t k = 0; k < asleep.size();) {
    if (asleep[k].first > now) {
      k++;
      continue;
    }
    ready.push_back(asleep[k].second);
    asleep[k] = asleep.back();
    asleep.pop_back();
  }
}

}  // namespace

void reset(u64_t seed) {
  state = seed * 0x9e3779b97f4a7c15ull + 1;
  model::reset();
  streams.clear();
  now = last_end = 0;
}

u64_t below(u64_t n) {
  u64_t z = state += 0x9e3779b97f4a7c15ull;
  z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9ull;
  z = (z ^ z >> 27) * 0x94d049bb133111ebull;
  return (z ^ z >> 31) % n;
}

unsigned new_stream() {
  streams.emplace_back();
  return (unsigned)streams.size() - 1;
}

void enqueue(unsigned stream, Launch launch) { streams[stream].queue.push_back(std::move(launch)); }

void wait_for_stream() {
  model::settle();
  Running* const r = self->block->launch;
  while (streams[r->stream].running.get() != r) sleep(1 + below(64));
  model::join_clock(self->view.clock, streams[r->stream].clock);
}

void let_stream_go_on() {
  Block* const b = self->block;
  if (b->lets_go_on) return;
  b->lets_go_on = true;
  b->launch->let_go_on++;
}

void join() {
  last_end = now;
  u64_t next = now;
  bool any = true;
  while (any) {
    now++;
    model::deliver_due(now);
    if (next <= now || now % 64 == 0) next = step_streams(any);
    if (!any) break;
    if (!asleep.empty()) wake();
    if (!ready.empty()) {
      run(below(ready.size()));
      continue;
    }
    u64_t then = next;
    for (const auto& s : asleep) then = s.first < then ? s.first : then;
    const u64_t due = model::next_due();
    then = due < then ? due : then;
    if (then == NEVER) {
      next = step_streams(any);
      if (any && next == NEVER && ready.empty()) fail("nothing can go on");
      continue;
    }
    if (then > now) now = then - 1;
    if (now - last_end > MOST_TICKS) fail("no end");
  }
  model::deliver_all();
  streams.clear();
}

void yield() {
  if (now - last_end > MOST_TICKS) fail("no end");
  ready.push_back(self);
  leave_fiber();
}

void sleep(u64_t ticks) {
  asleep.push_back({now + ticks, self});
  leave_fiber();
}

u64_t now_ns() { return now * TICK_NS; }

void meet_block() {
  model::settle();
  Block& b = *self->block;
  b.meeting.here.push_back(self);
  if (b.meeting.here.size() == b.meeting.members) open_block(b);
  leave_fiber();
}

int or_block(int predicate) {
  self->block->any |= predicate;
  meet_block();
  return self->any;
}

void meet_warp(bool ordered) {
  model::settle();
  Meeting& m = self->block->warps[self->index / 32].meeting;
  m.here.push_back(self);
  if (m.here.size() == m.members) open_meeting(m, ordered);
  leave_fiber();
}

u64_t* warp_values() { return self->block->warps[self->index / 32].values; }

bool is_private(u64_t at) { return at - (u64_t)pool < POOL; }

}  // namespace machine
