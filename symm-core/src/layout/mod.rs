//! Layouts in symmetric memory that several PEs (and kernels) must agree on.

mod context;
mod header;
mod pad;

pub use context::{ContextLayout, ContextRoom, default_max_splits};
pub use header::Header;
pub use pad::PadLayout;

/// Alignment of everything that is carved from a segment, in bytes: a cache line pair, and more than any vector store.
pub const ALIGN: usize = 256;

/// Bytes of a cache line; words with different writers never share one where it matters.
pub const LINE: usize = 64;
