//! The verdict that every member computes from what all published.

use super::check::{fault_of, inside, not_negative, sum};
use super::place::out_rows_needed;
use super::{Published, form_of};
use crate::backend::Form;
use crate::dtype::DType;
use crate::error::{Fault, Field};
use crate::layout::Header;

/// Judges an operation: `Ok` means that everybody may push.
///
/// `epoch` is the operation's, `published` what each rank published for it. A step is made for all ranks, the lowest
/// first, before the next step, so that all members name the same rank and fault:
///
/// 1. epoch or form differ from rank 0's, or are not this operation's: `Operation`;
/// 2. a PE took part with an invalid argument: the fault that it published;
/// 3. dtype, row bytes, ne, major_align, root, lead or the number of splits differ from rank 0's, or do not belong
///    together; for the forms without splits, rows of the input too: `Differs`, the first of them in the header, or `Form`;
/// 4. the output is another allocation than rank 0's, or lies elsewhere in it where the form asks for the same place:
///    `Output` (not for the barrier, which has none);
/// 5. splits: `NegativeSplit`, and `InputRows` for the forms whose rows are in the order of the splits (where the form
///    has offsets, only the owner can check them, and has done so before step 2);
/// 6. what a rank receives does not fit its output: `OutputRows`, naming the *receiver*. The output must reach to the
///    last row that is written; padding behind it needs no memory, as it is never written. For the broadcast, the
///    reductions and the forms that take, the output is the symmetric buffer, which must have the elements that take part.
///
/// # Errors
/// The rank at fault and its fault.
pub fn verdict(epoch: u64, published: &[Published<'_>]) -> Result<(), (usize, Fault)> {
    let Some(first) = published.first().map(|p| p.header) else { return Ok(()) };
    let form = form_of(published);
    each(published, |p| {
        let same = p.header.epoch == first.epoch && p.header.form == first.form;
        same.then_some(()).ok_or_else(|| operation(&first, &p.header))
    })?;
    let Some(form) = form.filter(|_| first.epoch == epoch) else {
        return Err((0, operation(&first, &first)));
    };
    each(published, |p| fault_of(&p.header).map_or(Ok(()), Err))?;
    each(published, |p| same_form(form, &first, p, published.len()))?;
    if form == Form::Barrier {
        return Ok(());
    }
    each(published, |p| {
        let same_place = !form.low_contention() || p.header.out_offset == first.out_offset;
        (p.header.out_id == first.out_id && same_place).then_some(()).ok_or(Fault::Output)
    })?;
    each(published, |p| {
        not_negative(p.splits)?;
        if form.has_in_offsets() { Ok(()) } else { inside(sum(p.splits), p.header.in_rows) }
    })?;
    for (rank, p) in published.iter().enumerate() {
        let (needed, capacity) = (out_rows_needed(rank, published), p.header.out_rows);
        if needed > capacity {
            return Err((rank, Fault::OutputRows { needed, capacity }));
        }
    }
    Ok(())
}

/// Checks that every published output lies inside its allocation, whose data area has `data_bytes` bytes on each
/// member: a push goes where a *peer's* header says, so a header that was damaged must not lead it elsewhere.
///
/// Call it after a good [`verdict`], on every member alike (`data_bytes` is equal on all of them).
///
/// # Errors
/// `Output` with the lowest rank whose output leaves the allocation.
pub fn check_spans(published: &[Published<'_>], data_bytes: u64) -> Result<(), (usize, Fault)> {
    each(published, |p| {
        let h = &p.header;
        let end = h.out_rows.checked_mul(h.row_bytes).and_then(|bytes| bytes.checked_add(h.out_offset));
        if end.is_some_and(|end| end <= data_bytes) { Ok(()) } else { Err(Fault::Output) }
    })
}

/// The first rank that a check refuses.
fn each<'a, 'b>(
    published: &'a [Published<'b>],
    check: impl Fn(&'a Published<'b>) -> Result<(), Fault>,
) -> Result<(), (usize, Fault)> {
    published.iter().enumerate().try_for_each(|(rank, p)| check(p).map_err(|fault| (rank, fault)))
}

/// The fault of a PE that runs another operation, or the same form at another epoch.
fn operation(first: &Header, other: &Header) -> Fault {
    let code = |form: u64| u32::try_from(form).unwrap_or(u32::MAX);
    Fault::Operation { expected: code(first.form), got: code(other.form) }
}

/// What of a member's header differs from rank 0's, in the order of the header.
fn differs(form: Form, first: &Header, h: &Header) -> Option<Fault> {
    let own = [Form::Barrier, Form::AllToAllVdev, Form::AllToAllVdev2d, Form::AllToAllVdev2dOffset];
    let rows = !own.contains(&form);
    let fields = [
        (Field::DType, first.dtype, h.dtype),
        (Field::RowBytes, first.row_bytes, h.row_bytes),
        (Field::Experts, first.ne, h.ne),
        (Field::MajorAlign, first.major_align, h.major_align),
        (Field::Length, if rows { first.in_rows } else { h.in_rows }, h.in_rows),
        (Field::Splits, first.n_splits, h.n_splits),
        (Field::Root, first.root, h.root),
        (Field::LeadingRows, first.lead, h.lead),
    ];
    let (what, expected, got) = fields.into_iter().find(|(_, expected, got)| expected != got)?;
    Some(match what {
        // Elsewhere it is a digest.
        Field::LeadingRows if form != Form::ReduceScatter => {
            Fault::Differs { what: Field::Shape, expected: 0, got: 0 }
        }
        what => Fault::Differs { what, expected, got },
    })
}

/// A member's form must be rank 0's, and one that the arithmetic can take.
fn same_form(form: Form, first: &Header, p: &Published<'_>, ranks: usize) -> Result<(), Fault> {
    let h = &p.header;
    if let Some(fault) = differs(form, first, h) {
        return Err(fault);
    }
    let n_splits = match form {
        Form::AllToAllVdev => Some(ranks as u64),
        Form::AllToAllVdev2d | Form::AllToAllVdev2dOffset => (ranks as u64).checked_mul(h.ne),
        _ => Some(0),
    };
    let experts = !matches!(form, Form::AllToAllVdev2d | Form::AllToAllVdev2dOffset) || h.ne > 0;
    let align = form != Form::AllToAllVdev2d || h.major_align > 0;
    let rows = match form {
        Form::AllToAll => h.in_rows.is_multiple_of(ranks as u64),
        Form::Broadcast => h.root < ranks as u64,
        _ if form.reduces() => sums(form, h, ranks),
        Form::PlannedAllToAllVdev => h.in_rows == 0,
        _ => true,
    };
    let sensible = n_splits == Some(h.n_splits)
        && u64::try_from(p.splits.len()) == Ok(h.n_splits)
        && (form == Form::Barrier || h.row_bytes > 0)
        && experts
        && align
        && rows;
    if sensible { Ok(()) } else { Err(Fault::Form) }
}

/// Whether a reduction's elements can be added up and its matrix cut into columns.
fn sums(form: Form, h: &Header, ranks: usize) -> bool {
    let dtype = u32::try_from(h.dtype).ok().and_then(DType::from_code);
    let adds = dtype.is_some_and(|d| d.reduces() && d.size() as u64 == h.row_bytes);
    let cut = if form == Form::ReduceScatter {
        h.lead.checked_mul(ranks as u64).is_some_and(|blocks| blocks > 0 && h.in_rows.is_multiple_of(blocks))
    } else {
        h.lead == 1
    };
    adds && cut
}
