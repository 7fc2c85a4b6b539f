//! Which elements of the symmetric buffers a rank of a reduction adds up.

use std::ops::Range;

use crate::backend::Form;
use crate::layout::Header;

/// Bytes of which chunks are multiples, so that no two ranks write one cache line and all chunks allow wide vectors.
const CHUNK_UNIT: u64 = 128;

/// Elements of a symmetric buffer: `rows` runs of `cols` elements, `stride` elements apart.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Part {
    /// First element.
    pub start: u64,
    /// Runs.
    pub rows: u64,
    /// Elements of a run.
    pub cols: u64,
    /// Elements from one run's first to the next one's.
    pub stride: u64,
}

impl Part {
    /// Elements in all.
    pub fn len(&self) -> u64 {
        self.rows.saturating_mul(self.cols)
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.rows == 0 || self.cols == 0
    }

    /// Elements from the first to the last, those between the runs included.
    pub fn extent(&self) -> u64 {
        if self.is_empty() {
            return 0;
        }
        (self.rows - 1).saturating_mul(self.stride).saturating_add(self.cols)
    }
}

/// The elements that `rank` adds up in a two-shot all_reduce: `numel` elements in equal chunks of whole
/// cache lines, in rank order; the last ranks' chunks may be shorter or empty.
pub fn chunk(numel: u64, element_bytes: u64, rank: usize, ranks: usize) -> Range<u64> {
    let unit = (CHUNK_UNIT / element_bytes.max(1)).max(1);
    let length = numel.div_ceil((ranks as u64).max(1)).div_ceil(unit).saturating_mul(unit);
    let start = length.saturating_mul(rank as u64).min(numel);
    start..start.saturating_add(length).min(numel)
}

/// What `rank` adds up of every buffer, from the header that all members published alike; nothing for the other forms.
///
/// Call it after a good [`verdict`](super::verdict) and [`check_spans`](super::check_spans): then it lies inside every
/// buffer.
pub fn part(header: &Header, rank: usize, ranks: usize) -> Part {
    let numel = header.in_rows;
    let dense = |elements: Range<u64>| {
        let cols = elements.end - elements.start;
        Part { start: elements.start, rows: u64::from(cols > 0), cols, stride: cols }
    };
    match Form::from_code(header.form) {
        Some(Form::OneShotAllReduce) => dense(0..numel),
        Some(Form::TwoShotAllReduce | Form::TwoShotAllReduceOut) => {
            dense(chunk(numel, header.row_bytes, rank, ranks))
        }
        Some(Form::ReduceScatter) => {
            let stride = numel.checked_div(header.lead).unwrap_or(0);
            let cols = stride.checked_div(ranks as u64).unwrap_or(0);
            let start = cols.saturating_mul(rank as u64);
            if cols == stride || header.lead == 1 {
                // One run: also the whole matrix of a team of one.
                return dense(start..start.saturating_add(cols.saturating_mul(header.lead)));
            }
            Part { start, rows: header.lead, cols, stride }
        }
        _ => Part::default(),
    }
}
