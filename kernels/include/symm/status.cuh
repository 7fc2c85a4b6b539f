// The status record of a team, and how a kernel reads and sets it.
//
// There are two copies. The device copy is read at every kernel's entry (0.2 us) and claimed by whoever fails first on
// this GPU; the mapped host copy is what the host reads and what the host sets, and a read of it costs over 1 us, so a
// wait looks at it only after SLOW_POLL_NS.
#pragma once

#include "symm/memory.cuh"

namespace symm {

// The layout of symm_core::status::StatusRecord.
struct alignas(64) StatusRecord {
  u64 code;
  u64 claim;
  u64 op;
  u64 phase;
  u64 pe;
  u64 late;
  u64 expected;
  u64 got;
  u64 waited_ns;
  u64 reserved[7];
};
static_assert(sizeof(StatusRecord) == 128, "the host has this layout");

enum StatusCode : uint32_t { STATUS_OK = 0, STATUS_TIMEOUT = 1, STATUS_PEER_FAILED = 2, STATUS_PEER_INVALID = 3 };

enum FaultCode : uint32_t {
  FAULT_OPERATION = 1,
  FAULT_FORM = 2,
  FAULT_OUTPUT = 3,
  FAULT_ARGUMENT = 4,
  FAULT_NEGATIVE_SPLIT = 5,
  FAULT_INPUT_ROWS = 6,
  FAULT_OUTPUT_ROWS = 7,
};

// What must be equal on all members, by the number that a record carries above FAULT_FORM, shifted by 8 (symm_core::error::Field).
enum Field : uint32_t {
  FIELD_DTYPE = 1,
  FIELD_ROW_BYTES = 2,
  FIELD_EXPERTS = 3,
  FIELD_MAJOR_ALIGN = 4,
  FIELD_LENGTH = 5,
  FIELD_SPLITS = 6,
  FIELD_ROOT = 7,
  FIELD_LEADING_ROWS = 8,
  FIELD_SHAPE = 9,
};

enum Phase : uint32_t {
  PHASE_ARRIVAL = 0,
  PHASE_DONE = 1,
  PHASE_SIGNAL = 2,
  PHASE_CREDIT = 3,
  PHASE_TICKET = 4,
  PHASE_GATHERED = 6,
};

// Operations that a kernel names itself (symm_core::backend::op).
enum OpCode : uint32_t { OP_PUT_SIGNAL = 4, OP_WAIT_SIGNAL = 5, OP_HANDLE_BARRIER = 9 };

// Before this a wait does not look at host memory.
constexpr u64 SLOW_POLL_NS = 20000;

// A team's status as kernels are given it.
struct Status {
  StatusRecord* device;
  StatusRecord* host;
};

struct Failure {
  u64 code, op, phase, pe, late, expected, got, waited_ns;
};

__device__ __forceinline__ bool status_ok(const Status& s) { return load_acquire_gpu_u64(&s.device->code) == STATUS_OK; }

__device__ __forceinline__ void status_write(StatusRecord* r, const Failure& f) {
  store_relaxed_sys_u64(&r->op, f.op);
  store_relaxed_sys_u64(&r->phase, f.phase);
  store_relaxed_sys_u64(&r->pe, f.pe);
  store_relaxed_sys_u64(&r->late, f.late);
  store_relaxed_sys_u64(&r->expected, f.expected);
  store_relaxed_sys_u64(&r->got, f.got);
  store_relaxed_sys_u64(&r->waited_ns, f.waited_ns);
  store_release_sys_u64(&r->code, f.code);
}

// Sets a failure unless one is set already; called by one thread. The first one on this GPU wins the device copy, and
// passes it on unless the host has set a failure of its own meanwhile.
inline __device__ __noinline__ void status_fail(const Status& s, const Failure& f) {
  if (cas_acq_rel_gpu_u64(&s.device->claim, 0, 1) != 0) return;
  if (cas_acq_rel_sys_u64(&s.host->claim, 0, 1) == 0) status_write(s.host, f);
  status_write(s.device, f);
}

// Looks at the host's copy; if the host has set a failure, takes it over to the device copy. Called by one thread.
inline __device__ __noinline__ bool status_host_ok(const Status& s) {
  u64 code = load_acquire_sys_u64(&s.host->code);
  if (code == STATUS_OK) return true;
  if (cas_acq_rel_gpu_u64(&s.device->claim, 0, 1) == 0) {
    Failure f;
    f.code = code;
    f.op = load_relaxed_sys_u64(&s.host->op);
    f.phase = load_relaxed_sys_u64(&s.host->phase);
    f.pe = load_relaxed_sys_u64(&s.host->pe);
    f.late = load_relaxed_sys_u64(&s.host->late);
    f.expected = load_relaxed_sys_u64(&s.host->expected);
    f.got = load_relaxed_sys_u64(&s.host->got);
    f.waited_ns = load_relaxed_sys_u64(&s.host->waited_ns);
    status_write(s.device, f);
  } else {
    // Another thread has claimed the device copy and may not have written it yet: whoever learns of a failure here is to find one there.
    cas_acq_rel_gpu_u64(&s.device->code, STATUS_OK, code);
  }
  return false;
}

}  // namespace symm
