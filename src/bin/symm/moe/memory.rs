//! How much memory a job needs: looked at before anything is allocated.

use symm::Config;
use symm::moe::{Counts, Trace, experts_per_pe};
use symm_core::layout::default_max_splits;

use crate::cli::memory;

/// Bound on the memory of a job whose row length nobody asked for.
pub(super) const DEFAULT_LIMIT: u64 = 2 << 30;
/// Row lengths that a default is lowered to are multiples of this, and not less.
pub(super) const DEFAULT_HIDDEN_STEP: usize = 16;

/// What decides the memory of a job, all but the row length.
pub(super) struct Shape<'a> {
    pub(super) trace: &'a Trace,
    pub(super) counts: &'a Counts,
    pub(super) pes: usize,
    pub(super) config: &'a Config,
    /// Whether symmetric memory is the host's; else only host buffers count.
    pub(super) on_host: bool,
}

impl Shape<'_> {
    /// Bytes of the whole job, all PEs, for rows of `row_bytes`. Saturates.
    pub(super) fn bytes(&self, row_bytes: u64) -> u64 {
        let max = |v: &[u64]| v.iter().copied().max().unwrap_or(0).max(1);
        let (pes, counts) = (self.pes as u64, self.counts);
        // Outputs are symmetric, so every PE has what the busiest needs.
        let symmetric = pes.saturating_mul(max(&counts.received_padded).saturating_add(max(&counts.sent)));
        // Dispatch input.
        let local = counts.rows.saturating_add(pes);
        // Inputs and expected results of two kinds of step, results; and the rows read back to be added.
        let host = (5 * self.trace.tokens as u64).saturating_add(counts.rows);
        let rows = if self.on_host { symmetric.saturating_add(local).saturating_add(host) } else { host };
        let tokens_and_plans = (self.trace.ids.len() as u64).saturating_mul(8 * (pes + 2));
        let fixed = if self.on_host { pes.saturating_mul(self.fixed_bytes()) } else { 0 };
        rows.saturating_mul(row_bytes).saturating_add(tokens_and_plans).saturating_add(fixed)
    }

    /// What a PE has whatever the rows: pools, pads, contexts, splits, and the process itself.
    fn fixed_bytes(&self) -> u64 {
        let splits = self.pes.saturating_mul(experts_per_pe(self.trace.experts, self.pes));
        // Dispatch and combine have a handle each, and each handle a pad of what the settings ask for.
        let mut all = memory::of_pe(self.config, self.pes, 2, true);
        if splits > default_max_splits(self.pes) {
            all = all.saturating_add(memory::of_context(self.pes, splits));
        }
        all.saturating_add(40 * splits as u64)
    }

    /// The largest row length up to `hidden` with which the job stays within [`DEFAULT_LIMIT`].
    pub(super) fn default_hidden(&self, hidden: usize, element: usize) -> usize {
        let fits = |h: usize| self.bytes((h as u64).saturating_mul(element as u64)) <= DEFAULT_LIMIT;
        if fits(hidden) || hidden <= DEFAULT_HIDDEN_STEP {
            return hidden;
        }
        // Bytes grow with the row length, so halving the range finds the border.
        let (mut low, mut high) = (1, hidden / DEFAULT_HIDDEN_STEP + 1);
        while high - low > 1 {
            let middle = low + (high - low) / 2;
            if fits(middle * DEFAULT_HIDDEN_STEP) { low = middle } else { high = middle }
        }
        low * DEFAULT_HIDDEN_STEP
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn trace(tokens: usize) -> Trace {
        let ids: Vec<i32> = (0..tokens as i32 * 2).map(|i| i % 8).collect();
        let weights = vec![0.5; ids.len()];
        Trace { tokens, top_k: 2, experts: 8, ids, weights, hidden: None, layer: 0 }
    }

    fn with<T>(tokens: usize, f: impl FnOnce(Shape<'_>) -> T) -> T {
        let (trace, config) = (trace(tokens), Config::default());
        let counts = Counts::new(&trace, 4, 1).unwrap();
        f(Shape { trace: &trace, counts: &counts, pes: 4, config: &config, on_host: true })
    }

    #[test]
    fn more_bytes_a_row_need_more_and_never_wrap() {
        with(1000, |shape| {
            // 2000 rows arrive, leave, are read back; 5 × 1000 rows of tokens.
            assert_eq!(shape.bytes(1001) - shape.bytes(1), 1000 * (4 * (500 + 500) + 2004 + 5000 + 2000));
            assert_eq!(shape.bytes(u64::MAX), u64::MAX);
        });
    }

    #[test]
    fn pads_count_as_the_settings_make_them() {
        let (trace, mut config) = (trace(1000), Config::default());
        let counts = Counts::new(&trace, 4, 1).unwrap();
        let mut bytes = |slots: usize| {
            config.signal_pad_bytes = slots;
            Shape { trace: &trace, counts: &counts, pes: 4, config: &config, on_host: true }.bytes(1)
        };
        // On each of 4 PEs, two handles have at least the slots more.
        assert!(bytes(1 << 30) - bytes(4096) >= 4 * 2 * ((1 << 30) - 4096));
    }

    #[test]
    fn a_default_row_is_kept_if_it_fits_and_else_the_largest_that_does() {
        with(1000, |shape| assert_eq!(shape.default_hidden(1000, 2), 1000));
        with(200_000, |shape| {
            let hidden = shape.default_hidden(8192, 4);
            assert!(hidden < 8192 && hidden % DEFAULT_HIDDEN_STEP == 0, "{hidden}");
            let bytes = |h: usize| shape.bytes(4 * h as u64);
            assert!(bytes(hidden) <= DEFAULT_LIMIT && bytes(hidden + DEFAULT_HIDDEN_STEP) > DEFAULT_LIMIT);
        });
    }
}
