//! World, team, tensor, handle, context: what users hold, generic over the backend.
//!
//! | type | made by | communicates |
//! |---|---|---|
//! | [`World`] | `World::init` | collective over all PEs |
//! | [`Team`] | `World::team_of`, `Team::split`, `Team::without` | collective over its members (over the parent for `split`) |
//! | [`Tensor`] | `Team::empty` | never |
//! | [`Handle`] | `Tensor::rendezvous` | collective over the team |
//! | [`Context`] | `Team::new_context` | collective over the team |
//! | [`PlanBuffers`], [`ExchangePlan`] | `Context::plan_buffers`, `PlanBuffers::all_to_all_vdev` | never; collective over the team |
//! | [`Stream`], [`Local`], [`Span`] | `World::stream`, `World::local`, `Tensor::span` | never |
//!
//! Dropping any of them never blocks or communicates. Memory that peers may still reach is *retired*: it is reused
//! once every member of every team that held a handle has reported the same, which rides on later collectives
//! (`retire.rs`).

mod collective;
mod context;
mod handle;
mod kernel_handle;
mod lock;
mod log;
mod members;
pub(crate) mod memory;
mod multimem;
mod plan;
pub(crate) mod pool;
mod recover;
mod reduce;
mod rendezvous;
mod retire;
mod setup;
mod span;
mod stats;
mod stream;
mod take;
mod team;
mod tensor;
mod view;
mod world;

pub use collective::{AllToAllVdev, Options};
pub use context::Context;
pub use handle::Handle;
pub use plan::{Dispatched, ExchangePlan, PlanBuffers, Planned};
pub use span::{Local, Span};
pub use stats::{Calls, Stats, Times, WaitBook, Waits};
pub use stream::{Graph, Stream};
pub use take::{AllToAllNd, MultiRootTileReduce, ReduceOp, ReduceScatterOffset, Tile, TileReduce};
pub use team::Team;
pub use tensor::Tensor;
pub use world::World;
