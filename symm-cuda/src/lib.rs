//! CUDA backend of symm-mem: PEs are processes of one host, each with a GPU, that reach each other's GPU memory by load
//! and store.
//!
//! | module | what |
//! |---|---|
//! | `choice` | which GPU each PE takes |
//! | `device` | the GPU of this PE and its primary context |
//! | `vmm` | segments and mappings: virtual memory management, exported as file descriptors or fabric handles |
//! | `share` | which of the two, decided by all PEs together |
//! | `inspect`, `imex` | what driver, GPUs, links and the machine offer, without opening a GPU |
//! | `trial` | whether handles work, tried on a GPU |
//! | `probe` | the test import between every pair, at `init` |
//! | `dmabuf` | what driver and GPU have for a CPU's mapping of GPU memory |
//! | `nvml` | what is asked of GPUs that this process does not see |
//! | `arena` | small memory of the backend's own: pointer tables, launch records, status records |
//! | `capture` | graphs that keep what they use |
//! | `stream`, `beside` | streams, markers, captured graphs, events; copies beside a stream |
//! | `status` | status records in mapped host memory with a copy on the GPU |
//! | `launch` | kernels of `symm-kernels`, loaded and launched |
//! | `handle`, `ops`, `exchange` | what operations are given, and the operations |
//! | [`embed`] | the same for a backend with memory and ways of its own |
//! | `backend` | the [`Backend`](symm_core::Backend) implementation |
//!
//! The driver library is loaded at run time: without it [`Cuda`] says `Unavailable` and everything else still works.
//! The GPU's *primary* context is used, so pointers can be shared with torch and NCCL in the same process.
//!
//! A PE takes the GPU that [`Config::device`](symm_core::Config::device) names among those it sees, or the only one that it sees;
//! else the PEs take the GPUs that are left, in their order. [`Config::allow_shared_gpu`](symm_core::Config::allow_shared_gpu) is
//! needed for two PEs to have the same one. Multicast objects are never created.
//!
//! # Streams that wait at the same time
//! The driver maps streams to a fixed number of hardware queues (`CUDA_DEVICE_MAX_CONNECTIONS`, 8 unless set, fewer for a
//! client of MPS). Operations of two streams in one queue run one after the other. If more streams than queues have
//! operations that wait for peers, and PEs enqueue them in different orders, PEs can wait for each other in a circle until
//! their deadlines: set the variable to the number of such streams, at most 32, before the process starts CUDA, or enqueue
//! in the same order everywhere. A stream with low-contention operations of 2 MiB a block or more counts twice: it has a second one for
//! copies of this PE's own block.
//!
//! Clients of MPS share what a GPU has: on an H200 8 processes start with 12 each, and with 16 some fail with
//! `CUDA_ERROR_MPS_MAX_CONNECTIONS_REACHED` (809). 8 processes on one GPU have none to spare for ten waiting streams each.

mod arena;
mod backend;
mod beside;
mod capture;
mod choice;
mod device;
mod dmabuf;
pub mod embed;
mod exchange;
mod handle;
mod imex;
mod inspect;
mod launch;
mod nvml;
mod ops;
mod plan;
mod probe;
mod record;
mod reduce;
mod result;
mod share;
mod shared;
mod status;
mod stream;
mod take;
mod trial;
mod vmm;

pub use backend::Cuda;
pub use device::device_count;
pub use handle::{RawContext, RawHandle};
pub use inspect::{Gpu, Inspection, Link, inspect};
pub use status::Status;
pub use stream::{Event, Graph, Marker, Stream};
pub use trial::{HandleTrials, try_handles};
pub use vmm::{Mapping, Segment};
