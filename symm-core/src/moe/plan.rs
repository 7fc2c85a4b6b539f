//! Who owns what, and the rows of a dispatch.

use std::ops::Range;

use super::Trace;
use crate::error::{Error, Result};
use crate::splits::expert_rows;

/// `ne = ⌈E/W⌉`. The last PEs may own fewer experts that exist, or none; they count `ne` all the same.
pub fn experts_per_pe(experts: usize, pes: usize) -> usize {
    experts.div_ceil(pes.max(1))
}

/// The PE of an expert, `⌊e/ne⌋`.
pub fn owner_of_expert(expert: usize, experts: usize, pes: usize) -> usize {
    expert / experts_per_pe(experts, pes).max(1)
}

/// The PE of a token, `⌊i·W/n⌋`.
pub fn owner_of_token(token: usize, tokens: usize, pes: usize) -> usize {
    // In 128 bits, since the product of two counts may not fit 64.
    (token as u128 * pes as u128 / (tokens as u128).max(1)) as usize
}

/// The tokens of a PE, those with `⌊i·W/n⌋ = pe`: from `⌈pe·n/W⌉` up to `⌈(pe+1)·n/W⌉`.
pub fn token_range(pe: usize, tokens: usize, pes: usize) -> Range<usize> {
    let first = |pe: usize| (pe as u128 * tokens as u128).div_ceil((pes as u128).max(1)) as usize;
    first(pe)..first(pe + 1)
}

/// What one PE sends in the dispatch of a trace, and where the rows of its tokens are.
///
/// The dispatch input has one row for each choice that a token of this PE made. It is ordered by the expert's owner,
/// then expert, then token, then position among the token's choices. Since experts are owned in order, the index
/// `d·ne + e` of a split is the expert's id.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Plan {
    /// Tokens of this PE.
    pub tokens: Range<usize>,
    /// Choices a token.
    pub top_k: usize,
    /// Experts a PE.
    pub ne: usize,
    /// `in_splits` of the dispatch, `[W·ne]`.
    pub in_splits: Vec<i64>,
    /// Choice of each row of the dispatch input: `(token − tokens.start)·top_k + j`.
    pub choice_of_row: Vec<usize>,
    /// Row of each choice, [`NO_ROW`] where none was made.
    row_of_choice: Vec<usize>,
}

/// Marks a choice that was not made.
const NO_ROW: usize = usize::MAX;

impl Plan {
    /// The plan of PE `pe` of `pes`. Needs no communication: every PE reads the same trace.
    ///
    /// # Errors
    /// `InvalidArgument` if `pe` is not below `pes`, or the trace's arrays do not belong together (which a parsed trace's
    /// always do).
    pub fn new(trace: &Trace, pe: usize, pes: usize) -> Result<Plan> {
        if pe >= pes {
            return Err(Error::argument("plan", "pe", pe, format!("below the number of PEs, {pes}")));
        }
        check(trace)?;
        let ne = experts_per_pe(trace.experts, pes);
        let tokens = token_range(pe, trace.tokens, pes);
        let ids = &trace.ids[tokens.start * trace.top_k..tokens.end * trace.top_k];
        // A stable counting sort by expert: choices are visited in token order, so that order stays inside an expert.
        let mut next_row = vec![0usize; trace.experts];
        for expert in ids.iter().filter_map(|id| usize::try_from(*id).ok()) {
            next_row[expert] += 1;
        }
        let mut in_splits = vec![0i64; pes * ne];
        let mut rows = 0usize;
        for (split, next) in in_splits.iter_mut().zip(&mut next_row) {
            *split = i64::try_from(*next).unwrap_or(i64::MAX);
            rows += std::mem::replace(next, rows);
        }
        let mut choice_of_row = vec![0usize; rows];
        let mut row_of_choice = vec![NO_ROW; ids.len()];
        for (choice, id) in ids.iter().enumerate() {
            if let Ok(expert) = usize::try_from(*id) {
                let row = next_row[expert];
                next_row[expert] += 1;
                choice_of_row[row] = choice;
                row_of_choice[choice] = row;
            }
        }
        Ok(Plan { tokens, top_k: trace.top_k, ne, in_splits, choice_of_row, row_of_choice })
    }

    /// Rows of the dispatch input.
    pub fn rows(&self) -> usize {
        self.choice_of_row.len()
    }

    /// Row in the dispatch input of choice `j` of this PE's token `local` (`token − tokens.start`); `None` if that
    /// choice was not made, or does not exist.
    pub fn row(&self, local: usize, j: usize) -> Option<usize> {
        if j >= self.top_k {
            return None;
        }
        let choice = local.checked_mul(self.top_k)?.checked_add(j)?;
        self.row_of_choice.get(choice).copied().filter(|row| *row != NO_ROW)
    }

    /// The token (by its number in the trace) whose row this is.
    pub fn token_of_row(&self, row: usize) -> Option<usize> {
        self.choice_of_row.get(row).map(|choice| self.tokens.start + choice / self.top_k)
    }
}

/// Counts of a dispatch over all PEs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Counts {
    /// Rows: choices that were made.
    pub rows: u64,
    /// Rows whose token and expert belong to different PEs.
    pub rows_between_pes: u64,
    /// Rows that stay on their PE.
    pub rows_local: u64,
    /// Rows for each expert, `[E]`.
    pub load: Vec<u64>,
    /// Rows that each PE sends, `[W]`.
    pub sent: Vec<u64>,
    /// Rows that each PE receives, `[W]`.
    pub received: Vec<u64>,
    /// Rows of each PE's dispatch output with all padding, `[W]`: each of its `ne` experts takes its rows rounded up to
    /// the alignment, and one alignment if it has none.
    pub received_padded: Vec<u64>,
}

impl Counts {
    /// Counts the dispatch of a trace on `pes` PEs.
    ///
    /// # Errors
    /// `InvalidArgument` if `pes` or `major_align` is 0, or the trace's arrays do not belong together.
    pub fn new(trace: &Trace, pes: usize, major_align: u64) -> Result<Counts> {
        if pes == 0 {
            return Err(Error::argument("plan", "pes", pes, "1 or more"));
        }
        if major_align == 0 {
            return Err(Error::argument("plan", "major_align", major_align, "1 or more"));
        }
        check(trace)?;
        let ne = experts_per_pe(trace.experts, pes);
        let mut counts = Counts {
            rows: 0,
            rows_between_pes: 0,
            rows_local: 0,
            load: vec![0; trace.experts],
            sent: vec![0; pes],
            received: vec![0; pes],
            received_padded: vec![0; pes],
        };
        for (token, ids) in trace.ids.chunks_exact(trace.top_k).enumerate() {
            let from = owner_of_token(token, trace.tokens, pes);
            for expert in ids.iter().filter_map(|id| usize::try_from(*id).ok()) {
                let to = expert / ne;
                counts.load[expert] += 1;
                counts.sent[from] += 1;
                counts.received[to] += 1;
                if from == to {
                    counts.rows_local += 1;
                } else {
                    counts.rows_between_pes += 1;
                }
            }
        }
        counts.rows = counts.rows_local + counts.rows_between_pes;
        for (pe, padded) in counts.received_padded.iter_mut().enumerate() {
            let load = |e: usize| counts.load.get(e).copied().unwrap_or(0);
            let experts = pe * ne..(pe + 1) * ne;
            *padded = experts.fold(0, |sum: u64, e| sum.saturating_add(expert_rows(load(e), major_align)));
        }
        Ok(counts)
    }

    /// The busiest expert's load as a multiple of the mean, 0 without rows.
    pub fn imbalance(&self) -> f64 {
        let busiest = self.load.iter().copied().max().unwrap_or(0);
        if self.rows == 0 { 0.0 } else { busiest as f64 * self.load.len() as f64 / self.rows as f64 }
    }
}

/// A trace's fields are public; what indexes below rely on is looked at here.
fn check(trace: &Trace) -> Result<()> {
    let choices = trace.tokens.checked_mul(trace.top_k);
    if trace.top_k == 0 || choices != Some(trace.ids.len()) || choices != Some(trace.weights.len()) {
        let got = format!("{} ids and {} weights", trace.ids.len(), trace.weights.len());
        let expected = format!("{} tokens of {} (1 or more) choices", trace.tokens, trace.top_k);
        return Err(Error::argument("plan", "trace", got, expected));
    }
    let outside = |id: &&i32| usize::try_from(**id).map_or(**id != -1, |id| id >= trace.experts);
    match trace.ids.iter().find(outside) {
        Some(id) => Err(Error::argument("plan", "trace.ids", id, format!("-1 or below {}", trace.experts))),
        None => Ok(()),
    }
}
