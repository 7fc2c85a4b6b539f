//! Where rows land. One walk over a receiver's output is the only place that knows the rules; everything else reads it.

use super::{Published, form_of};
use crate::backend::Form;

/// Rows that this PE pushes to one member, contiguous on both sides.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Move {
    /// Destination's rank; may be the PE's own.
    pub rank: usize,
    /// First row in this PE's input.
    pub src_row: u64,
    /// First row in the destination's output.
    pub dst_row: u64,
    /// Rows, 1 or more.
    pub rows: u64,
}

/// Rows that one expert takes in the output of `all_to_all_vdev_2d`: `rows` rounded up to the alignment, and
/// `major_align` rows for an expert that got none (grouped matrix products refuse empty groups). Saturates; an
/// alignment of 0 counts as 1.
pub fn expert_rows(rows: u64, major_align: u64) -> u64 {
    let align = major_align.max(1);
    rows.div_ceil(align).max(1).saturating_mul(align)
}

/// Rows that are enough for an output which receives at most `total` rows for `ne` experts, whatever the split
/// among them: `total + ne·major_align`.
///
/// An expert takes at most `major_align` rows more than it receives: less than that to fill up its last block, or
/// exactly that when it receives none. For the dense forms pass `ne` 0. Saturates.
pub fn out_rows_bound(total: u64, ne: u64, major_align: u64) -> u64 {
    total.saturating_add(ne.saturating_mul(major_align.max(1)))
}

/// The rows of one (source, expert) pair in a receiver's output.
struct Piece {
    /// Source's rank.
    source: usize,
    /// Index in the source's published splits; 0 where the form has none.
    in_index: usize,
    /// Column of `out_splits_offsets`.
    out_index: usize,
    /// First row in the output.
    start: u64,
    /// Rows.
    rows: u64,
}

/// Visits every piece of `receiver`'s output in the order in which they lie there, those without rows too.
fn walk(published: &[Published<'_>], receiver: usize, mut visit: impl FnMut(Piece)) {
    let (Some(form), Some(first)) = (form_of(published), published.first()) else { return };
    let w = published.len();
    let ne = experts(form, published);
    let mut start = 0u64;
    match form {
        Form::Barrier
        | Form::ReduceScatter
        | Form::OneShotAllReduce
        | Form::TwoShotAllReduce
        | Form::TwoShotAllReduceOut
        | Form::AllToAllNd
        | Form::ReduceScatterOffset
        | Form::TileReduce
        | Form::MultiRootTileReduce
        | Form::LowContentionAllGather
        | Form::LowContentionAllToAll
        | Form::LowContentionReduceScatter
        | Form::PlannedAllToAllVdev => {}
        Form::Broadcast => {
            if let Some(source) = usize::try_from(first.header.root).ok().filter(|root| *root != receiver) {
                visit(Piece { source, in_index: 0, out_index: 0, start, rows: first.header.in_rows });
            }
        }
        Form::AllGather | Form::AllToAll => {
            let rows = block_rows(form, first.header.in_rows, w);
            for source in 0..w {
                visit(Piece { source, in_index: 0, out_index: source, start, rows });
                start = start.saturating_add(rows);
            }
        }
        Form::AllToAllVdev => {
            for (source, p) in published.iter().enumerate() {
                let rows = p.rows(receiver);
                visit(Piece { source, in_index: receiver, out_index: source, start, rows });
                start = start.saturating_add(rows);
            }
        }
        Form::AllToAllVdev2d => {
            for e in 0..ne {
                let in_index = receiver * ne + e;
                let mut received = 0u64;
                for (source, p) in published.iter().enumerate() {
                    let rows = p.rows(in_index);
                    let at = start.saturating_add(received);
                    visit(Piece { source, in_index, out_index: e * w + source, start: at, rows });
                    received = received.saturating_add(rows);
                }
                start = start.saturating_add(expert_rows(received, first.header.major_align));
            }
        }
        Form::AllToAllVdev2dOffset => {
            for (source, p) in published.iter().enumerate() {
                for e in 0..ne {
                    let in_index = e * w + receiver;
                    let rows = p.rows(in_index);
                    visit(Piece { source, in_index, out_index: source * ne + e, start, rows });
                    start = start.saturating_add(rows);
                }
            }
        }
    }
}

/// Experts a rank. Taken from the number of splits that rank 0 really published, so that a wild `ne` in a header
/// cannot make anybody loop or overflow; the verdict has checked that both agree.
fn experts(form: Form, published: &[Published<'_>]) -> usize {
    match form {
        Form::AllToAllVdev2d | Form::AllToAllVdev2dOffset => {
            published.first().map_or(0, |p| p.splits.len() / published.len())
        }
        _ => 1,
    }
}

/// Rows of one equal block.
fn block_rows(form: Form, in_rows: u64, ranks: usize) -> u64 {
    if form == Form::AllToAll { in_rows / (ranks as u64).max(1) } else { in_rows }
}

/// Rows that `rank`'s output must have: the end of the last row that is written there. Padding before it counts;
/// padding behind it does not, since nobody writes padding.
///
/// For the broadcast, the reductions and the forms that take: the elements that take part, in the symmetric buffer.
pub fn out_rows_needed(rank: usize, published: &[Published<'_>]) -> u64 {
    if let (Some(form), Some(first)) = (form_of(published), published.first())
        && (form.reduces() || form.takes() || form == Form::Broadcast)
    {
        return first.header.in_rows;
    }
    let mut needed = 0u64;
    walk(published, rank, |piece| {
        if piece.rows > 0 {
            needed = needed.max(piece.start.saturating_add(piece.rows));
        }
    });
    needed
}

/// Fills `out`, `[2, n]` contiguous: row 0 the rows received, row 1 the row in the output where they start.
///
/// n and its order are those of the form: source for `all_to_all_vdev`, `e·W + s` for `all_to_all_vdev_2d`,
/// `s·ne + e` for `all_to_all_vdev_2d_offset`. Forms without splits write nothing. `out` has exactly `2n` entries;
/// columns that a shorter slice lacks are not written. Call it after a good [`verdict`](super::verdict).
pub fn out_splits_offsets(my_rank: usize, published: &[Published<'_>], out: &mut [i64]) {
    let has_splits =
        |form| matches!(form, Form::AllToAllVdev | Form::AllToAllVdev2d | Form::AllToAllVdev2dOffset);
    if !form_of(published).is_some_and(has_splits) {
        return;
    }
    let (counts, starts) = out.split_at_mut(out.len() / 2);
    walk(published, my_rank, |piece| {
        if let (Some(count), Some(start)) = (counts.get_mut(piece.out_index), starts.get_mut(piece.out_index))
        {
            *count = i64::try_from(piece.rows).unwrap_or(i64::MAX);
            *start = i64::try_from(piece.start).unwrap_or(i64::MAX);
        }
    });
}

/// What this PE pushes to whom. Clears `out`, then fills it; a caller that keeps the vector allocates once.
///
/// Destinations come in the order `my_rank+1, my_rank+2, …` round to `my_rank` itself, so that not everybody pushes to
/// the same PE first. Moves have rows; neighbours that are contiguous on both sides are one move. `my_offsets` is row
/// 1 of this PE's own `in_splits`, for the form that has it. Call it after a good [`verdict`](super::verdict) and a
/// good [`check_splits`](super::check_splits): then every move lies inside the input and inside its output.
pub fn moves(my_rank: usize, published: &[Published<'_>], my_offsets: Option<&[i64]>, out: &mut Vec<Move>) {
    out.clear();
    let (Some(form), Some(mine)) = (form_of(published), published.get(my_rank)) else { return };
    let w = published.len();
    let ne = experts(form, published);
    let block = block_rows(form, mine.header.in_rows, w);
    for rank in (my_rank + 1..w).chain(0..=my_rank) {
        // Start of the rows for `rank` in an input that is ordered by (destination, expert).
        let mut ordered = match form {
            Form::AllToAll => block.saturating_mul(rank as u64),
            Form::AllToAllVdev | Form::AllToAllVdev2d => {
                (0..rank * ne).fold(0u64, |sum, i| sum.saturating_add(mine.rows(i)))
            }
            _ => 0,
        };
        walk(published, rank, |piece| {
            if piece.source != my_rank {
                return;
            }
            let src_row = match (form, my_offsets) {
                (Form::AllToAllVdev2dOffset, offsets) => {
                    let offset = offsets.and_then(|o| o.get(piece.in_index)).copied().unwrap_or(0);
                    u64::try_from(offset).unwrap_or(0)
                }
                _ => ordered,
            };
            ordered = ordered.saturating_add(piece.rows);
            if piece.rows > 0 {
                push(out, Move { rank, src_row, dst_row: piece.start, rows: piece.rows });
            }
        });
    }
}

/// Moves as kernels read them: for each rank, first source row, first destination row, and the rows of all moves before it;
/// behind the last one an entry of which only the number of all rows counts.
pub fn table(moves: &[Move]) -> Vec<i64> {
    let word = |n: u64| i64::try_from(n).unwrap_or(i64::MAX);
    let mut words = Vec::with_capacity(4 * (moves.len() + 1));
    let mut before = 0u64;
    for m in moves {
        words.extend([m.rank as u64, m.src_row, m.dst_row, before].map(word));
        before = before.saturating_add(m.rows);
    }
    words.extend([0, 0, 0, word(before)]);
    words
}

/// Appends a move, or lengthens the last one if it continues it on both sides.
fn push(out: &mut Vec<Move>, next: Move) {
    if let Some(last) = out.last_mut()
        && last.rank == next.rank
        && last.src_row.checked_add(last.rows) == Some(next.src_row)
        && last.dst_row.checked_add(last.rows) == Some(next.dst_row)
    {
        last.rows = last.rows.saturating_add(next.rows);
        return;
    }
    out.push(next);
}
