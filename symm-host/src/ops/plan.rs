//! What a collective was called with.

use std::sync::Arc;
use std::time::Duration;

use symm_core::DType;
use symm_core::backend::{Addr, Form, Take};
use symm_core::error::Fault;
use symm_core::layout::Header;
use symm_core::splits::{self, Move};

use crate::handle::HandleInner;

/// One collective, as the descriptor gave it, in owned form.
#[derive(Debug)]
pub(crate) struct Plan {
    pub(crate) form: Form,
    pub(crate) dtype: DType,
    /// What this PE publishes; epoch, validity and number of splits are filled in when it does.
    pub(crate) header: Header,
    /// Splits that the form has.
    pub(crate) n_splits: usize,
    pub(crate) input: Addr,
    /// The output's handle.
    pub(crate) output: Option<Arc<HandleInner>>,
    pub(crate) in_splits: Addr,
    pub(crate) out_splits_offsets: Addr,
    /// Where a reduction's sums go.
    pub(crate) result: Addr,
    pub(crate) takes: Vec<Take>,
    pub(crate) average: bool,
    /// Of the planned form.
    pub(crate) moves: Vec<Move>,
    pub(crate) invalid: bool,
    /// Why, where it is `invalid`.
    pub(crate) refused: Fault,
    pub(crate) limit: Duration,
}

/// Copies this PE's splits, and offsets, and checks them.
pub(super) fn read_splits(plan: &Plan, max_splits: usize, mine: &mut Vec<i64>) -> Result<(), Fault> {
    if plan.invalid || (plan.form != Form::Barrier && plan.output.is_none()) || plan.n_splits > max_splits {
        return Err(plan.refused.clone());
    }
    let has_result = plan.form.reduces() && plan.form != Form::TwoShotAllReduce;
    if has_result && plan.result.is_null() && plan.header.in_rows > 0 {
        return Err(plan.refused.clone());
    }
    let n = plan.n_splits;
    if n == 0 {
        return Ok(());
    }
    if plan.in_splits.is_null() {
        return Err(plan.refused.clone());
    }
    let entries = if plan.form.has_in_offsets() { 2 * n } else { n };
    mine.resize(entries, 0);
    // SAFETY: the form gives `in_splits` so many entries, readable until the stream has passed this, by the promise of
    // `Backend::exchange`; the vector is as long.
    unsafe {
        let from = plan.in_splits.as_ptr::<u8>();
        std::ptr::copy_nonoverlapping(from, mine.as_mut_ptr().cast::<u8>(), 8 * entries);
    }
    let (splits, offsets) = mine.split_at(n);
    splits::check_splits(
        plan.form,
        splits,
        plan.form.has_in_offsets().then_some(offsets),
        plan.header.in_rows,
    )
}
