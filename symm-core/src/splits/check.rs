//! What a member checks of its own arguments before it publishes.

use crate::backend::Form;
use crate::error::Fault;
use crate::layout::Header;
use crate::pe::Pe;
use crate::status::Failure;

/// Checks this PE's own splits, and offsets where the form has them, against the rows of its input.
///
/// `splits` and `offsets` have one entry for each (destination, expert) pair and are counted in rows. An offset whose
/// split is zero is ignored, so that a dispatch's result can be passed on unchanged.
///
/// # Errors
/// In this order: `Argument` if offsets are missing, superfluous or of another length; `NegativeSplit` with the
/// lowest index; `InputRows` if the splits' sum exceeds `in_rows`, or, with offsets, for the lowest index whose rows
/// do not lie inside the input. There `needed` is the end of those rows, and `u64::MAX` for a negative offset.
pub fn check_splits(form: Form, splits: &[i64], offsets: Option<&[i64]>, in_rows: u64) -> Result<(), Fault> {
    if form.has_in_offsets() != offsets.is_some() || offsets.is_some_and(|o| o.len() != splits.len()) {
        return Err(Fault::Argument { name: "in_splits", got: None });
    }
    not_negative(splits)?;
    match offsets {
        None => inside(sum(splits), in_rows),
        Some(offsets) => {
            for (split, offset) in splits.iter().zip(offsets) {
                if *split > 0 {
                    match u64::try_from(*offset) {
                        Ok(start) => inside(start.saturating_add(split.unsigned_abs()), in_rows)?,
                        Err(_) => return Err(Fault::InputRows { needed: u64::MAX, rows: in_rows }),
                    }
                }
            }
            Ok(())
        }
    }
}

/// Writes a fault into the header that this PE is about to publish, so that [`verdict`](super::verdict) reports it
/// with its numbers on every member.
pub fn set_fault(header: &mut Header, fault: &Fault) {
    let words = Failure::invalid(header.form, Pe(0), fault);
    header.invalid = words.phase;
    header.invalid_a = words.expected;
    header.invalid_b = words.got;
}

/// The fault in a published header.
pub(super) fn fault_of(header: &Header) -> Option<Fault> {
    (header.invalid != 0).then(|| {
        let words = Failure {
            phase: header.invalid,
            expected: header.invalid_a,
            got: header.invalid_b,
            ..Failure::default()
        };
        words.fault()
    })
}

/// The lowest negative split is a fault.
pub(super) fn not_negative(splits: &[i64]) -> Result<(), Fault> {
    match splits.iter().zip(0u64..).find(|(split, _)| **split < 0) {
        Some((value, index)) => Err(Fault::NegativeSplit { index, value: *value }),
        None => Ok(()),
    }
}

/// Sum of splits that are not negative; saturates.
pub(super) fn sum(splits: &[i64]) -> u64 {
    splits.iter().fold(0, |sum: u64, split| sum.saturating_add(u64::try_from(*split).unwrap_or(0)))
}

/// `needed` rows fit an input of `rows` rows.
pub(super) fn inside(needed: u64, rows: u64) -> Result<(), Fault> {
    if needed > rows { Err(Fault::InputRows { needed, rows }) } else { Ok(()) }
}
