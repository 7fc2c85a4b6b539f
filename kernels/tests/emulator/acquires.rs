//! Every acquire of the kernels, by the text that names it, and the program that fails without it, or why none does; and every
//! release of what users' kernels are made of.
//!
//! A row of `ACQUIRES` stands for the acquiring half alone: what a fence or an atomic releases stays. A row of `RELEASES` is the reverse.

use super::Found::{self, Kept, Without};
use super::{NET_EXCHANGE, NET_ONE_SIDED, NET_REDUCE, ORDER, PLAN, REDUCE, USERS};

const NUMBER: Found = Kept("its value alone is used, in a wait that goes on or for an error's text");
const ORDERED: Found =
    Kept("calls of one context on two streams have an event between them, but across a capture's border");
const NEAR: Found =
    Kept("what it orders has been delivered, and the acquires of whoever comes next drop what is kept near");
const RELEASE: Found = Kept("stands for its releasing half");
const TRANSPORT: Found = Kept("between a GPU and a transport, which is no thread of the model's");

pub(super) const ACQUIRES: [(&str, &str, Found); 45] = [
    ("cu/copy.cu", "fetch_add_acq_rel_gpu_u64(&record->finished", Without(&ORDER)),
    ("cu/exchange.cu", "fence_acquire_sys()", Without(&ORDER)),
    ("cu/exchange.cu", "fence_acq_rel_gpu()", NEAR),
    (
        "cu/exchange/members.cuh",
        "return load_acquire_gpu_u64((const void*)(p.mine + CONTEXT_COMPLETED))",
        NEAR,
    ),
    (
        "cu/exchange/members.cuh",
        "load_acquire_sys_u64((const void*)pair)",
        Kept(
            "the cause beside the word is for an error's text; no program has a member give up while others look",
        ),
    ),
    ("cu/exchange/members.cuh", "late)) {\n      fence_acquire_sys()", Without(&REDUCE)),
    ("cu/exchange/members.cuh", "does next.\n        fence_acquire_sys()", Without(&REDUCE)),
    ("cu/exchange/members.cuh", "cas_acq_rel_gpu_u64(&((ContextLocal*)p.local)->gave_up", RELEASE),
    ("cu/exchange/publish.cuh", "s.ended = load_acquire_gpu_u64(", ORDERED),
    ("cu/nvshmem/exchange.cuh", "sizeof(Header) + 8 * splits;\n  fence_acq_rel_sys()", RELEASE),
    ("cu/nvshmem/exchange.cuh", "__syncwarp();\n  fence_acq_rel_sys()", RELEASE),
    ("cu/nvshmem/exchange.cuh", "cas_acq_rel_gpu_u64(&((ContextLocal*)p.local)->gave_up", RELEASE),
    ("cu/nvshmem/exchange.cuh", "return;\n    fence_acq_rel_sys()", Without(&NET_EXCHANGE)),
    ("cu/nvshmem/net.cuh", "cas_acq_rel_gpu_u64((void*)(n.locks", TRANSPORT),
    ("cu/nvshmem/net.cuh", "if (threadIdx.x == 0) fence_acq_rel_sys()", Without(&NET_REDUCE)),
    ("cu/nvshmem/one_sided.cuh", "fetch_add_acq_rel_gpu_u64(&record->finished", TRANSPORT),
    ("cu/nvshmem/one_sided.cuh", "load_acquire_sys_u32((const void*)p.count)", NUMBER),
    (
        "cu/nvshmem/one_sided.cuh",
        "load_acquire_sys_u32((const void*)p.slot)",
        Kept("FENCE_NET_CREDIT behind it acquires, too"),
    ),
    (
        "cu/nvshmem/one_sided.cuh",
        "load_acquire_sys_u32((const void*)p.credit)",
        Kept("FENCE_NET_SLOT behind it acquires, too"),
    ),
    ("cu/nvshmem/one_sided.cuh", "load_acquire_sys_u64((const void*)p.word)", Without(&NET_ONE_SIDED)),
    ("cu/nvshmem/reduce.cuh", "epoch = load_acquire_gpu_u64(&record->epoch)", ORDERED),
    ("cu/nvshmem/reduce.cuh", "+ outcome;\n      fence_acq_rel_sys()", Without(&NET_REDUCE)),
    ("cu/pushed.cu", "const u64 ended = load_acquire_gpu_u64(", ORDERED),
    ("cu/pushed.cu", "fence_acq_rel_gpu()", ORDERED),
    ("cu/reduce.cu", "epoch = load_acquire_gpu_u64(&record->epoch)", ORDERED),
    ("cu/reduce.cu", "fence_acq_rel_gpu()", Without(&REDUCE)),
    ("cu/reduce/begin.cuh", "const u64 ended = load_acquire_gpu_u64(", ORDERED),
    ("cu/reduce/common.cuh", "counted = load_acquire_gpu_u64(&record->stages", Without(&REDUCE)),
    ("cu/signal.cu", "cas_acq_rel_sys_u32((void*)p.slot", Without(&ORDER)),
    ("cu/signal.cu", "cas_acq_rel_sys_u32((void*)p.claim", Without(&ORDER)),
    ("cu/signal.cu", "load_acquire_sys_u32((const void*)p.slot)", Without(&ORDER)),
    (
        "cu/signal.cu",
        "const u64 seen = load_acquire_sys_u64(",
        Kept("the loop behind it acquires; a run seldom finds the signal at this first look"),
    ),
    ("cu/signal.cu", "return load_acquire_sys_u64((const void*)p.word)", Without(&ORDER)),
    (
        "cu/steps.cuh",
        "if (F != WITHOUT) fence_acq_rel_sys()",
        Kept("the named fences stand for their releasing halves"),
    ),
    ("cu/take/one_stage.cuh", "epoch = load_acquire_gpu_u64(&record->epoch)", ORDERED),
    (
        "cu/take/one_stage.cuh",
        "announced.\n    fence_acq_rel_sys()",
        Kept("the copies behind it are made by copy engines"),
    ),
    ("cu/take/one_stage.cuh", "return;\n    fence_acq_rel_sys()", Without(&PLAN)),
    ("include/symm/barrier.cuh", "fence_acquire_sys()", Without(&USERS)),
    ("include/symm/handle.cuh", "load_acquire_sys_u64(word)", Without(&USERS)),
    ("include/symm/handle.cuh", "cas_acq_rel_sys_u32(at", Without(&USERS)),
    ("include/symm/status.cuh", "return load_acquire_gpu_u64(&s.device->code)", NUMBER),
    ("include/symm/status.cuh", "if (cas_acq_rel_gpu_u64(&s.device->claim, 0, 1) != 0)", RELEASE),
    (
        "include/symm/status.cuh",
        "code = load_acquire_sys_u64(&s.host->code)",
        Kept("the rest of the record is for an error's text; the host writes it"),
    ),
    ("include/symm/status.cuh", "if (cas_acq_rel_gpu_u64(&s.device->claim, 0, 1) == 0)", RELEASE),
    ("include/symm/status.cuh", "cas_acq_rel_gpu_u64(&s.device->code, STATUS_OK, code)", NUMBER),
];

/// Of the headers that users' kernels include; `USERS` fails without each. What the library's kernels announce has names in
/// `cu/steps.cuh`. A meeting of a block is one, too: it puts what all threads did before the one thread's signal.
pub(super) const RELEASES: [(&str, &str); 7] = [
    ("include/symm/handle.cuh", "store_release_sys_u64(signal(h"),
    ("include/symm/handle.cuh", "add_release_sys_u64(signal(h"),
    ("include/symm/handle.cuh", "cas_acq_rel_sys_u32(at"),
    ("include/symm/handle.cuh", "store_release_sys_u64((void*)(entry(h.pads, r) + words"),
    ("include/symm/handle.cuh", "put(h, rank, offset, src, bytes);\n  __syncthreads()"),
    (
        "include/symm/handle.cuh",
        "{\n  __syncthreads();\n  const bool late = threadIdx.x == 0 && !wait_signal(",
    ),
    ("include/symm/handle.cuh", "did before.\n  __syncthreads()"),
];
