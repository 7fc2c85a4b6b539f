//! NVSHMEM backend of symm-mem: PEs across nodes, each with a GPU.
//!
//! | module | what |
//! |---|---|
//! | `start` | opening the backend together: agreed on step by step, so that a failure on one PE is an error on all |
//! | `library` | the NVSHMEM host library: started once, never used before that or after its end |
//! | `mpi` | start-up over an MPI communicator of the application's |
//! | `heap`, `ranges` | one symmetric allocation, carved up by each PE for itself |
//! | `handle` | what operations are given |
//! | `teams` | NVSHMEM's own teams, for kernels of the user's |
//! | `net` | peers that NVSHMEM's transports reach: linked kernels, operations, the watchdog |
//! | `backend` | the [`Backend`](symm_core::Backend) implementation |
//!
//! Of NVSHMEM this crate uses start-up, one allocation, the peers' pointers, and its device functions for puts, gets, signals,
//! fence and quiet. Every wait and barrier is this project's own: with a deadline, and with an error that names who is late.
//!
//! # Peers
//! A pair is *direct* if NVSHMEM gives both a load/store address of the other's heap and a test word went over it. A team of
//! direct members runs the kernels of `symm-cuda`, with their speed. A team with other members runs kernels that put to them by
//! NVSHMEM's transports, network first, and store to the direct ones; they were tested, at start, with a put and a signal
//! between every such pair.
//!
//! # Settings
//! `SYMM_HEAP` is the size of the heap ([`Config::heap_bytes`](symm_core::Config::heap_bytes)); NVSHMEM's own variables work as it
//! documents them. The library is looked for as [`nvshmem_sys::Nvshmem::load`] says; for peers that are not direct
//! `libnvshmem_device.a` must lie beside it and nvJitLink be loadable (`SYMM_NVJITLINK_LIB`, or a CUDA installation); a build with the
//! feature `link-nvshmem` needs neither, with the release of NVSHMEM that it was built with. Such a build contains code of NVIDIA's.
//!
//! # What it cannot do
//! `Team::without`: a transport may still deliver a dead PE's writes. NVSHMEM can be started once in a process, by one user: not beside
//! PyTorch's NVSHMEM backend. It is never ended after a failure, because its end would wait for the PE that failed; the
//! process's exit then frees what it holds.
//!
//! Where PEs share GPUs on several hosts, or in several containers, each of these needs an MPS control daemon of its own. NVSHMEM asks the
//! daemon on one PE of each at the same moment, and a daemon turns a second caller away: some then take MPS for missing, and start-up
//! ends at its deadline.

mod backend;
mod error;
mod handle;
mod heap;
mod library;
mod mpi;
mod net;
mod ranges;
mod start;
mod teams;

pub use backend::Nvshmem;
pub use handle::{Mapping, RawContext, RawHandle, Segment};
pub use mpi::MpiComm;
