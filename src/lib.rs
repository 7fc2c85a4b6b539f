//! Symmetric memory: `empty` → `rendezvous` → handle, on whatever the machine has.
//!
//! A job is a number of processes, its *PEs*. Each allocates the same tensors in the same order; `rendezvous` turns one
//! into a handle with which every PE reads, writes and signals the others' memory, and on which collectives run.
//!
//! ```
//! use symm::{Cmp, DType, SignalOp, SignalUpdate};
//!
//! // PEs as threads of this process; a program started by `symm run` calls `symm::init()` instead.
//! symm::threads(2, |world| {
//!     let team = world.team();
//!     let tensor = team.empty(&[4], DType::F32)?;
//!     let handle = tensor.rendezvous(team)?;
//!     let stream = world.stream()?;
//!     let right = (team.rank() + 1) % team.world_size();
//!
//!     let mine = world.local(DType::F32, 4)?;
//!     stream.write(&mine.span(), &[team.rank() as f32; 4])?;
//!     let signal = SignalUpdate { index: 0, op: SignalOp::Set, value: 1 };
//!     handle.put_with_signal(&stream, right, 0, &mine.span(), signal)?;
//!     handle.wait_until(&stream, 0, Cmp::Eq, 1, None)?;
//!     let got: Vec<f32> = stream.read(&tensor.span())?;
//!     stream.synchronize()?;
//!
//!     let left = (team.rank() + team.world_size() - 1) % team.world_size();
//!     assert_eq!(got, [left as f32; 4]);
//!     world.finalize()
//! })?;
//! # Ok::<(), symm::Error>(())
//! ```
//!
//! | hold | made by | what you call on it |
//! |---|---|---|
//! | [`World`] | [`init`], [`threads`] | `team`, `team_of`, `stream`, `local`, `stats`, `finalize` |
//! | [`Team`] | `World::team`, `World::team_of`, `Team::split`, `Team::without` | `empty`, collectives, `new_context`, `status`, `recover`, `without` |
//! | [`Tensor`] | `Team::empty` | `rendezvous`, `span`, `view` |
//! | [`Handle`] | `Tensor::rendezvous` | `put`, `get`, `put_with_signal`, `wait_until`, `put_signal`, `wait_signal`, `barrier`, pointers |
//! | [`Context`] | `Team::context`, `Team::new_context` | collectives that may be in flight beside others |
//! | [`Stream`] | `World::stream` | `synchronize`, `write`, `read`, `copy`, `fence`, `quiet`, capture |
//! | [`Local`], [`Span`] | `World::local`, `Tensor::span` | what operations are given |
//!
//! They are aliases: their methods are documented at the types in [`symm_core::model`]. What `init` starts and which backend it
//! takes is in [`Builder`]; the settings are in [`Config`].

#![warn(clippy::print_stdout, clippy::print_stderr, clippy::exit)]

/// The program in README.md is compiled and run, as a world of one PE.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;

mod any;
mod init;
pub mod launch;
#[cfg(feature = "mpi")]
mod over_mpi;
mod select;

pub use any::{
    AnyBackend, AnyContext, AnyGraph, AnyHandle, AnyMapping, AnyMarker, AnySegment, AnyStatus, AnyStream,
};
pub use init::{Builder, init, is_started, settle, start, threads};
pub use symm_core::backend::{Addr, Backend, Cmp, DevicePtrs, KernelHandle, Reach, SignalOp, SignalUpdate};
pub use symm_core::capability::Capabilities;
pub use symm_core::model::{Calls, Options, ReduceOp, Stats, Tile, Times, Waits};
pub use symm_core::{
    Config, DType, Element, Error, Fault, Field, LogEntry, Pe, Result, bootstrap, dtype, moe, oracle, splits,
};

/// All PEs of the job.
pub type World = symm_core::model::World<AnyBackend>;
/// An ordered subset of PEs.
pub type Team = symm_core::model::Team<AnyBackend>;
/// A symmetric tensor, or a view of one.
pub type Tensor = symm_core::model::Tensor<AnyBackend>;
/// A tensor as every member of a team has it.
pub type Handle = symm_core::model::Handle<AnyBackend>;
/// Counters, flags and slots of collectives.
pub type Context = symm_core::model::Context<AnyBackend>;
/// An in-order queue of operations.
pub type Stream = symm_core::model::Stream<AnyBackend>;
/// A captured sequence of operations.
pub type Graph = symm_core::model::Graph<AnyBackend>;
/// Typed memory that operations are given.
pub type Span = symm_core::model::Span<AnyBackend>;
/// Memory that peers never reach.
pub type Local = symm_core::model::Local<AnyBackend>;
/// Arguments of the `all_to_all_vdev` family.
pub type AllToAllVdev<'a> = symm_core::model::AllToAllVdev<'a, AnyBackend>;
/// Arguments of `all_to_all_nd`.
pub type AllToAllNd<'a> = symm_core::model::AllToAllNd<'a, AnyBackend>;
/// Arguments of `reduce_scatter_offset`.
pub type ReduceScatterOffset<'a> = symm_core::model::ReduceScatterOffset<'a, AnyBackend>;
/// Arguments of `tile_reduce`.
pub type TileReduce<'a> = symm_core::model::TileReduce<'a, AnyBackend>;
/// Arguments of `multi_root_tile_reduce`.
pub type MultiRootTileReduce<'a> = symm_core::model::MultiRootTileReduce<'a, AnyBackend>;
/// Memory of an exchange plan.
pub type PlanBuffers = symm_core::model::PlanBuffers<AnyBackend>;
/// An exchange whose splits all members know.
pub type ExchangePlan<'b> = symm_core::model::ExchangePlan<'b, AnyBackend>;
/// What one call of a plan moves.
pub type Planned<'a> = symm_core::model::Planned<'a, AnyBackend>;
/// Rows that a plan dispatched.
pub type Dispatched<'p, 'b> = symm_core::model::Dispatched<'p, 'b, AnyBackend>;
