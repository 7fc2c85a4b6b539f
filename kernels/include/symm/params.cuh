// Parameters of the kernels, as the host passes them by value. Plain structs: a host compiler reads this file too, to
// check the layouts against their twins in src/params.rs (Handle's is symm_core::backend::KernelHandle). Addresses are 64-bit numbers.
#pragma once

#include <stdint.h>

namespace symm {

// A handle in users' kernels: handle.cuh says what they do with it. "u64[ranks]" are tables in device memory, by rank.
struct Handle {
  uint64_t buffers;      // u64[ranks]: first byte of each rank's allocation, 0 where this GPU does not reach it
  uint64_t pads;         // u64[ranks]: each rank's signal pad, 0 likewise
  uint64_t members;      // u64[ranks]: PE numbers
  uint64_t status;       // the team's StatusRecord in device memory
  uint64_t status_host;  // ... and in mapped host memory
  uint64_t offset;       // of the tensor's first byte in the allocation; not 0 for views
  uint64_t signals;      // offset of user signal 0 in every pad; signals are u64 and follow each other
  uint64_t words;        // offset of the barrier's words in every pad, u64[channels][ranks]
  uint64_t counters;     // offset of the barrier's counters, u64[channels]
  uint64_t rank;         // this PE's
  uint64_t ranks;
};

// Counters of one launch at a time, in device memory: a stream owns one, and each captured graph one of its own. All
// zero between launches; the last block of a launch puts them back to zero.
struct LaunchRecord {
  uint32_t tickets;  // blocks' tickets handed out
  uint32_t reserved;
  uint64_t finished;  // blocks that ended, and above them how many failed for each reason
  uint64_t epoch;     // of the collective; 0 until ticket 0 knows it
  uint64_t stages[3];  // of a reduction: shares that ended in each stage, and above them how many failed
  uint64_t begun;      // of an operation in two launches: its epoch, and whether it failed, between them
  uint32_t early[2];   // tickets of exchanges, which hand them out before the launch ahead has ended: by ExchangeParams::turn
};

struct StatusParams {
  uint64_t device;  // StatusRecord in device memory
  uint64_t host;    // StatusRecord in mapped host memory
};

struct CopyParams {
  StatusParams status;
  uint64_t record;  // LaunchRecord
  uint64_t dst;
  uint64_t src;
  uint64_t bytes;
  uint64_t signal;  // address of a u64 to update after the data; 0 for none
  uint64_t signal_value;
  uint32_t signal_add;  // 0: store the value; 1: add it
  uint32_t reserved;
};

struct WaitParams {
  StatusParams status;
  uint64_t word;  // u64 in this PE's memory
  uint64_t value;
  uint64_t limit_ns;
  uint64_t op;
  uint64_t pe;    // named when the deadline passes
  uint64_t late;  // ranks named then, as a bit set
  uint32_t cmp;   // symm_core::backend::Cmp
  uint32_t reserved;
};

struct PadSignalParams {
  StatusParams status;
  uint64_t slot;  // u32
  uint64_t limit_ns;
  uint64_t op;
  uint64_t pe;
  uint64_t late;
  uint64_t claim; // u32 in this PE's memory; 0 where the slot is changed by compare-and-swap
  uint32_t from;  // value waited for
  uint32_t to;    // value stored
};

// Members whose addresses travel with the parameters, which saves reading them from a table first.
constexpr int NEAR_RANKS = 8;

struct BarrierParams {
  StatusParams status;
  uint64_t near_pads[NEAR_RANKS];
  uint64_t pads;     // u64[ranks]: addresses of the members' pads
  uint64_t members;  // u64[ranks]: PE numbers
  uint64_t words;    // offset of the channel's words in a pad
  uint64_t counter;  // offset of the channel's counter in a pad
  uint64_t limit_ns;
  uint32_t ranks;
  uint32_t rank;
};

struct ExchangeParams {
  StatusParams status;
  uint64_t near_regions[NEAR_RANKS];
  uint64_t near_buffers[NEAR_RANKS];
  uint64_t record;   // LaunchRecord
  uint64_t regions;  // u64[ranks]: addresses of the members' copies of the context
  uint64_t members;  // u64[ranks]: PE numbers
  uint64_t mine;     // regions[rank]
  uint64_t local;    // ContextLocal, then i64[max_splits] for offsets
  uint64_t arrival;  // offsets in a context: see symm_core::layout::ContextLayout
  uint64_t done;
  uint64_t aborted;
  uint64_t slots;
  uint64_t slot_bytes;
  uint64_t notes;
  uint64_t pushed;
  // The words of the header that is published, in its order; the kernel fills in the zeros.
  uint64_t epoch;  // 0
  uint64_t form;
  uint64_t dtype;
  uint64_t row_bytes;
  uint64_t ne;
  uint64_t major_align;
  uint64_t invalid;    // 0, or the fault code to take part with
  uint64_t invalid_a;  // its first number
  uint64_t invalid_b;  // its second number
  uint64_t out_id;
  uint64_t out_offset;
  uint64_t out_rows;
  uint64_t in_rows;
  uint64_t n_splits;     // splits that this PE publishes
  uint64_t header_end[2];  // 0
  uint64_t input;
  uint64_t out_buffers;  // u64[ranks]: addresses of the members' data areas; 0 where there is no output
  uint64_t out_bytes;    // bytes of each data area
  uint64_t in_splits;
  uint64_t out_splits;
  uint64_t limit_ns;
  uint32_t ranks;
  uint32_t rank;
  uint32_t remote_blocks;  // shares, of the launch's blocks, that push to other PEs; the rest push to this one
  uint32_t turn;           // 0 or 1: not that of the exchange before this one with the same record
};

// Broadcast and reductions. Of `exchange` the fields that all forms have; `input` is what a one-shot form brings to its
// buffer first, 0 where that holds the elements already.
struct ReduceParams {
  ExchangeParams exchange;
  uint64_t header[16];  // what this PE publishes, in the words of Header; the epoch is filled in when it does
  uint64_t result;      // first element of this PE's sums, outside every buffer; 0 where the form has none
  uint64_t root;        // rank
  uint64_t lead;        // leading rows, 1 or more
  uint64_t gathered;    // offset of the gathered words in a context
};

// Reductions whose elements are pushed, into room in every member's context.
struct PushedParams {
  ReduceParams reduce;
  uint64_t room;        // offset in a context; that of even epochs
  uint64_t room_bytes;
  uint64_t room_step;   // from there to the room of odd epochs; 0: there is one for all, and nothing is pushed before the verdict
  uint32_t pieces;      // into which the elements are cut, the same number on every member
  uint32_t two_hops;    // 1: a chunk's elements go to one member, and the sums come from there
};

constexpr int MAX_TAKES = 16;

// A block of every member's buffer (symm_core::backend::Take), in bytes but for the number of runs.
struct Take {
  uint64_t src;  // from the buffer's first element
  uint64_t src_stride;
  uint64_t rows;
  uint64_t cols;
  uint64_t dst;  // address
  uint64_t dst_stride;
  uint64_t dst_step;  // from one rank's block to the next one's; 0 where blocks are added up
};

// Which part of an operation a launch is.
enum TakePhase : uint32_t {
  TAKE_WHOLE = 0,
  TAKE_BEGIN = 1,   // up to the verdict; one block
  TAKE_FINISH = 2,  // what follows the copies of the copy engines
};

// Forms that take. Of `reduce` the fields that all forms have.
struct TakeParams {
  ReduceParams reduce;
  uint64_t sources;      // 0: the members' buffers; else memory of this PE: rank r's block is at sources + r * source_step
  uint64_t source_step;
  uint32_t divisor;      // of sums, before they are rounded; 1 leaves them
  uint32_t count;        // takes
  uint32_t phase;        // TakePhase
  uint32_t reserved;
  Take takes[MAX_TAKES];
};

// What kernels need to reach members by NVSHMEM's transports. `remote` in the structs below: u64[ranks], the members' copies of
// what the operation uses, as NVSHMEM names them (an address in this PE's heap at the peer's offset).
struct NetParams {
  uint64_t heap;        // first byte of this PE's symmetric heap
  uint64_t heap_bytes;
  uint64_t stage;       // stages of STAGE_BYTES each, in the heap
  uint64_t locks;       // u64[stages] in this GPU's memory: 1 while a block holds the stage
  uint64_t activity;    // u64[2] in mapped host memory: calls of NVSHMEM begun, ended
  uint64_t network[2];  // ranks that the network reaches, as a bit set
  uint32_t stages;
  uint32_t reserved;
};

struct NetCopyParams {
  StatusParams status;
  NetParams net;
  uint64_t record;  // LaunchRecord
  uint64_t dst;     // put: the peer's; get: here
  uint64_t src;     // put: here; get: the peer's
  uint64_t bytes;
  uint64_t signal;  // the peer's u64 to update after the data; 0 for none
  uint64_t signal_value;
  uint64_t pe;
  uint32_t signal_add;  // 0: store the value; 1: add it
  uint32_t reserved;
};

struct NetPadSignalParams {
  StatusParams status;
  NetParams net;
  uint64_t slot;    // u32: the peer's for put_signal, this PE's for wait_signal
  uint64_t credit;  // u32: this PE's for put_signal, the peer's for wait_signal
  uint64_t count;   // u32 of this PE's: signals sent to the peer, or consumed from it
  uint64_t limit_ns;
  uint64_t op;
  uint64_t pe;
  uint64_t late;
  uint32_t waits;   // 1: wait_signal
  uint32_t direct;  // 1: the peer's words are reached by load and store
};

struct NetWaitParams {
  NetParams net;
  WaitParams wait;
};

struct NetBarrierParams {
  NetParams net;
  uint64_t pads;  // remote
  BarrierParams barrier;
};

struct NetExchangeParams {
  NetParams net;
  uint64_t remote;
  ExchangeParams exchange;
};

struct NetReduceParams {
  NetParams net;
  uint64_t remote;
  ReduceParams reduce;
};

// Rows that a planned exchange moves (symm_core::splits::table).
struct PlannedMove {
  uint64_t rank;
  uint64_t src_row;
  uint64_t dst_row;
  uint64_t before;  // rows of all moves before this one
};

// The planned exchange. Of `reduce` the fields that all forms have, and the input.
struct PlanParams {
  ReduceParams reduce;
  uint64_t moves;  // PlannedMove[count + 1]; of the last one only `before` counts
  uint64_t count;
};

struct NetTakeParams {
  NetParams net;
  uint64_t remote;
  uint32_t adds;  // 1: blocks are added up, 0: copied
  uint32_t reserved;
  TakeParams take;
};

// Words of a context that only its owner's kernels touch.
struct ContextLocal {
  uint64_t gave_up;  // epoch told to the peers since the last recover, 0 for none
  uint64_t padding[7];
};

}  // namespace symm
