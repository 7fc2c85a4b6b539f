//! CUDA backend of symm-mem: PEs are processes of one host, each with a GPU, that reach each other's GPU memory by load
//! and store.
//!
//! | module | what |
//! |---|---|
//! | `device` | the GPU of this PE and its primary context |
//! | `vmm` | segments and mappings: virtual memory management, exported as file descriptors |
//! | `probe` | the test import between every pair, at `init` |
//! | `arena` | small memory of the backend's own: pointer tables, launch records, status records |
//! | `stream` | streams, markers, captured graphs, events |
//! | `status` | status records in mapped host memory with a copy on the GPU |
//! | `launch` | kernels of `symm-kernels`, loaded and launched |
//! | `handle`, `ops`, `exchange` | what operations are given, and the operations |
//! | `backend` | the [`Backend`](symm_core::Backend) implementation |
//!
//! The driver library is loaded at run time: without it [`Cuda`] says `Unavailable` and everything else still works.
//! The GPU's *primary* context is used, so pointers can be shared with torch and NCCL in the same process.
//!
//! # Settings
//! | variable | meaning |
//! |---|---|
//! | `SYMM_ALLOW_SHARED_GPU=1` | several PEs may have the same GPU. Waits of one PE then depend on the GPU's time slices (or on MPS), so this is for tests. |
//!
//! PE p takes visible GPU p mod n. Multicast objects are never created.

mod arena;
mod backend;
mod device;
mod exchange;
mod handle;
mod launch;
mod ops;
mod probe;
mod result;
mod shared;
mod status;
mod stream;
mod vmm;

pub use backend::Cuda;
pub use handle::{RawContext, RawHandle};
pub use status::Status;
pub use stream::{Event, Graph, Marker, Stream};
pub use vmm::{Mapping, Segment};
