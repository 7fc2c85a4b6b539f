//! Who sends how many rows to whom, and where they land: all validation of splits and all placement arithmetic.
//!
//! Pure functions over what the members of a team published ([`Published`], index = rank). Every member calls them
//! with the same data and gets the same answer, so nothing more has to be agreed. Splits come from peers: all
//! arithmetic saturates, a bad number becomes a [`Fault`] and never a panic.
//!
//! | step of an operation | function |
//! |---|---|
//! | before publishing, on one's own splits | [`check_splits`]; its fault goes into the header by [`set_fault`] |
//! | after all have arrived | [`verdict`], then [`check_spans`] |
//! | verdict is good | [`moves`] and [`out_splits_offsets`]; for the reductions [`part`] and [`chunk`] |
//!
//! `ne` is the number of experts a rank, W the number of members, `s` a source's rank and `d` a destination's.
//!
//! | form | `in_splits` index | place in the output |
//! |---|---|---|
//! | all_gather | – | row `s·in_rows` |
//! | all_to_all | – | row `s·in_rows/W` |
//! | all_to_all_vdev | `d` | by source, dense |
//! | all_to_all_vdev_2d | `d·ne + e` | by (expert, source), each expert's start aligned |
//! | all_to_all_vdev_2d_offset | `e·W + d` | by (source, expert), dense |
//! | broadcast | – | row 0 of everybody but the root |
//!
//! The reductions move no rows: they add up the [`Part`]s of all buffers. The forms that take bring what they take in their
//! descriptor. The planned form's moves were worked out when the plan was made.

mod check;
mod part;
#[cfg(test)]
mod part_tests;
mod place;
#[cfg(test)]
mod tests;
mod verdict;

pub use check::{check_splits, set_fault};
pub use part::{Part, chunk, part};
pub use place::{Move, expert_rows, moves, out_rows_bound, out_rows_needed, out_splits_offsets, table};
pub use verdict::{check_spans, verdict};

use crate::backend::Form;
use crate::layout::Header;

#[cfg(doc)]
use crate::error::Fault;

/// What one member published: copied out of its slot once, then judged.
#[derive(Clone, Copy, Debug)]
pub struct Published<'a> {
    /// The head of the slot.
    pub header: Header,
    /// The splits that follow it, `header.n_splits` of them. Offsets are not published: only their owner reads them.
    pub splits: &'a [i64],
}

impl Published<'_> {
    /// A split as a number of rows; what the verdict refuses (absent, negative) counts as none.
    fn rows(&self, index: usize) -> u64 {
        self.splits.get(index).map_or(0, |s| u64::try_from(*s).unwrap_or(0))
    }
}

/// The form that rank 0 published, if this version knows it.
fn form_of(published: &[Published<'_>]) -> Option<Form> {
    published.first().and_then(|p| Form::from_code(p.header.form))
}
