//! The library part of the MoE job: what a router decided, what each PE sends, and what a step must give.
//!
//! | item | what |
//! |---|---|
//! | [`Trace`] | the routing of n tokens, read from JSON lines |
//! | [`Plan`], [`Counts`] | who owns which tokens and experts; the rows of a dispatch |
//! | [`Layer`], [`Footprint`] | the bytes that each PE must allocate for a layer, before there is any traffic |
//! | [`Float`], [`Reference`] | the arithmetic of a step, and its result in one process |
//!
//! W PEs, n tokens, k choices a token, E experts, `ne = ⌈E/W⌉` experts a PE. Token i belongs to PE `⌊i·W/n⌋`, expert e
//! to PE `⌊e/ne⌋`.

mod footprint;
mod plan;
mod reference;
mod trace;

pub use footprint::{Allocation, Footprint, Kind, Layer, Room};
pub use plan::{Counts, Plan, experts_per_pe, owner_of_expert, owner_of_token, token_range};
pub use reference::{Float, Reference, combine_row, expert_apply, expert_constants, input_row, input_value};
pub use trace::{MAX_EXPERTS, Trace, TraceError};

#[cfg(test)]
mod tests;
