//! The result: what was measured, as a table and as JSON.

use std::fmt::{self, Write};

use serde::{Deserialize, Serialize};
use symm::DType;
use symm::moe::owner_of_token;

use super::compare::Mismatch;
use super::picture::Picture;
use super::prepare::Job;

/// What one PE measured in a step, in ns; each phase alone.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct StepTimes {
    pub(super) permute: u64,
    pub(super) dispatch: u64,
    pub(super) combine: u64,
    pub(super) reduce: u64,
    /// Begin and end of the ceiling's copy, by the machine's monotonic clock, which its processes share.
    pub(super) copy: (u64, u64),
}

/// What one PE brings to the result.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(super) struct Share {
    pub(super) times: Vec<StepTimes>,
    /// Steps with so many dispatches, combines and copies in a row; none where these would last too long.
    pub(super) calls: u64,
    pub(super) rows: Vec<StepTimes>,
    pub(super) mismatch: Option<Mismatch>,
    /// Whether some other PE is reached so.
    pub(super) direct: bool,
    pub(super) network: bool,
}

/// A job that ran to its end.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Done {
    pub(super) report: Report,
    /// The first difference of the lowest PE that has one.
    pub(super) mismatch: Option<Mismatch>,
    /// Title lines of the table: the trace's name and layer.
    pub(super) trace: String,
    /// Whether the backend's memory is the host's.
    pub(super) on_host: bool,
    /// What a picture needs, where one was asked for.
    pub(super) picture: Option<Picture>,
}

/// A time over the steps, in µs; each is the maximum over PEs.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Quantiles {
    pub(super) p50: f64,
    pub(super) p99: f64,
    pub(super) max: f64,
}

impl Quantiles {
    /// Of times in ns, by nearest rank.
    fn of(mut ns: Vec<u64>) -> Self {
        ns.sort_unstable();
        let at = |percent: usize| {
            let rank = (ns.len() * percent).div_ceil(100).max(1);
            ns.get(rank - 1).map_or(0.0, |t| *t as f64 / 1e3)
        };
        Quantiles { p50: at(50), p99: at(99), max: at(100) }
    }
}

/// A figure of each direction.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Both {
    pub(super) dispatch: f64,
    pub(super) combine: f64,
}

/// What a call takes in a stream that does not idle, medians; each is the maximum over PEs.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct InARow {
    /// Calls without a wait between them.
    pub(super) calls: u64,
    /// µs a call.
    pub(super) us: Both,
    pub(super) gbps: Both,
    pub(super) ceiling_gbps: f64,
    pub(super) fraction: Both,
}

/// Rows of an expert over the mean of all experts.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Load {
    pub(super) max_over_mean: f64,
    pub(super) min_over_mean: f64,
}

/// How fast a phase moved its bytes.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Rate {
    /// 10^9 bytes a second.
    pub(super) gbps: f64,
    /// Of the ceiling.
    pub(super) fraction: f64,
}

/// What `--json` writes.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Report {
    pub(super) backend: String,
    pub(super) reach: String,
    pub(super) pes: usize,
    pub(super) tokens: usize,
    pub(super) experts: usize,
    pub(super) top_k: usize,
    pub(super) hidden: usize,
    pub(super) dtype: String,
    pub(super) steps: usize,
    pub(super) verified: bool,
    /// Rows of one dispatch over all PEs.
    pub(super) rows: u64,
    /// Bytes of it that go to another PE.
    pub(super) wire_bytes: u64,
    /// Bytes of it that stay.
    pub(super) local_bytes: u64,
    pub(super) dispatch_us: Quantiles,
    pub(super) combine_us: Quantiles,
    pub(super) permute_us: Quantiles,
    pub(super) reduce_us: Quantiles,
    /// 10^9 bytes a second.
    pub(super) gbps: Both,
    pub(super) ceiling_gbps: f64,
    pub(super) fraction: Both,
    /// The same of calls in a row; the figures before are of calls behind a wait for all PEs, by GPUs that have idled meanwhile.
    pub(super) in_a_row: Option<InARow>,
    pub(super) load: Load,
}

impl Done {
    /// The result of all PEs' shares, in PE order.
    pub(super) fn new(job: &Job, backend: &str, shares: &[Share], picture: bool) -> Self {
        let steps = shares.iter().map(|s| s.times.len()).min().unwrap_or(0);
        let on_host = backend == "host";
        let alone = |of: fn(&StepTimes) -> u64| slowest(shares, |s| &s.times, of);
        let (dispatch_us, combine_us) = (alone(|t| t.dispatch), alone(|t| t.combine));
        let copy_us = copies(shares, |s| &s.times, on_host);
        let row = job.row_bytes() as u64;
        let counts = &job.counts;
        // A host has one memory, so bytes of all PEs are summed; a GPU has its own links, so the busiest GPU counts.
        let (out, back, copied) = if on_host {
            (counts.rows, counts.rows, counts.rows)
        } else {
            let (sent, received) = wire_rows(job);
            (max(&sent), max(&received), max(&counts.sent))
        };
        let rate = |rows: u64, us: f64| if us > 0.0 { (rows * row) as f64 / us / 1e3 } else { 0.0 };
        // Rates and their parts of the ceiling, which is the last.
        let rates = |us: Both, copy_us: f64| {
            let gbps = Both { dispatch: rate(out, us.dispatch), combine: rate(back, us.combine) };
            let ceiling = rate(copied, copy_us);
            let of = |x: f64| if ceiling > 0.0 { x / ceiling } else { 0.0 };
            (gbps, Both { dispatch: of(gbps.dispatch), combine: of(gbps.combine) }, ceiling)
        };
        let (gbps, fraction, ceiling_gbps) =
            rates(Both { dispatch: dispatch_us.p50, combine: combine_us.p50 }, copy_us.p50);
        let calls = shares.first().filter(|s| !s.rows.is_empty()).map(|s| s.calls);
        let in_a_row = calls.map(|calls| {
            let a_call = |us: f64| us / calls as f64;
            let rows = |of: fn(&StepTimes) -> u64| a_call(slowest(shares, |s| &s.rows, of).p50);
            let us = Both { dispatch: rows(|t| t.dispatch), combine: rows(|t| t.combine) };
            let (gbps, fraction, ceiling_gbps) = rates(us, a_call(copies(shares, |s| &s.rows, on_host).p50));
            InARow { calls, us, gbps, ceiling_gbps, fraction }
        });
        let mismatch = shares.iter().find_map(|s| s.mismatch.clone());
        let report = Report {
            backend: backend.to_owned(),
            reach: reach(shares).to_owned(),
            pes: job.pes,
            tokens: job.trace.tokens,
            experts: job.trace.experts,
            top_k: job.trace.top_k,
            hidden: job.hidden,
            dtype: DType::from(job.float).name().to_owned(),
            steps,
            verified: mismatch.is_none(),
            rows: counts.rows,
            wire_bytes: counts.rows_between_pes * row,
            local_bytes: counts.rows_local * row,
            dispatch_us,
            combine_us,
            permute_us: alone(|t| t.permute),
            reduce_us: alone(|t| t.reduce),
            gbps,
            ceiling_gbps,
            fraction,
            in_a_row,
            load: load(&counts.load, counts.rows),
        };
        let trace = format!("{}, layer {}", job.trace_name, job.trace.layer);
        Done { report, mismatch, trace, on_host, picture: picture.then(|| Picture::new(job)) }
    }

    /// The `--json` text.
    pub(super) fn json(&self) -> String {
        format!("{}\n", serde_json::to_string_pretty(&self.report).expect("plain structs should encode"))
    }

    /// The table.
    pub(super) fn table(&self) -> String {
        let mut text = String::new();
        // Writing to a String cannot fail.
        let _ = self.write_table(&mut text);
        text
    }

    fn write_table(&self, t: &mut impl Write) -> fmt::Result {
        let r = &self.report;
        let verdict = if r.verified { "every value verified" } else { "VALUES DIFFER" };
        writeln!(
            t,
            "{verdict}: {} on {}, backend {}, reach {}",
            counted(r.steps, "step"),
            counted(r.pes, "PE"),
            r.backend,
            r.reach
        )?;
        writeln!(t, "  trace     {}", self.trace)?;
        writeln!(t, "  tokens    {} to {} experts, top-{}", r.tokens, r.experts, r.top_k)?;
        writeln!(t, "  row       {} {}", r.hidden, r.dtype)?;
        let (wire, local) = (megabytes(r.wire_bytes), megabytes(r.local_bytes));
        writeln!(t, "  dispatch  {} rows: {wire} MB to other PEs, {local} MB stay", r.rows)?;
        let Load { max_over_mean, min_over_mean } = r.load;
        writeln!(t, "  load      busiest expert {max_over_mean:.2} of the mean, idlest {min_over_mean:.2}")?;
        writeln!(t)?;
        writeln!(
            t,
            "  {:<10}{:>11}{:>11}{:>11}{:>9}{:>12}",
            "", "p50 µs", "p99 µs", "max µs", "GB/s", "of ceiling"
        )?;
        for (name, us, rate) in self.phases() {
            let rate =
                rate.map(|r| format!("{:>9.2}{:>11.0}%", r.gbps, 100.0 * r.fraction)).unwrap_or_default();
            writeln!(t, "  {name:<10}{:>11.1}{:>11.1}{:>11.1}{rate}", us.p50, us.p99, us.max)?;
        }
        writeln!(t, "  ceiling {:.2} GB/s: {}", r.ceiling_gbps, self.ceiling())?;
        if let Some(row) = &r.in_a_row {
            writeln!(
                t,
                "  {} calls in a row, where those above came behind a wait for all PEs; a call:",
                row.calls
            )?;
            for (name, us, gbps, fraction) in [
                ("dispatch", row.us.dispatch, row.gbps.dispatch, row.fraction.dispatch),
                ("combine", row.us.combine, row.gbps.combine, row.fraction.combine),
            ] {
                writeln!(t, "  {name:<10}{us:>11.1}{:>22}{gbps:>9.2}{:>11.0}%", "", 100.0 * fraction)?;
            }
            writeln!(t, "  ceiling {:.2} GB/s: those copies in a row", row.ceiling_gbps)?;
        } else {
            let most = super::pe::LONGEST_IN_A_ROW.as_millis();
            writeln!(t, "  no calls in a row: they take more than {most} ms each")?;
        }
        if r.steps < STEPS_OF_P99 {
            writeln!(t, "  p99 of fewer than {STEPS_OF_P99} steps is their maximum (--steps N)")?;
        }
        Ok(())
    }

    /// Name, time and rate of each timed phase of a step.
    pub(super) fn phases(&self) -> [(&'static str, Quantiles, Option<Rate>); 4] {
        let r = &self.report;
        let rate = |gbps, fraction| Some(Rate { gbps, fraction });
        [
            ("permute", r.permute_us, None),
            ("dispatch", r.dispatch_us, rate(r.gbps.dispatch, r.fraction.dispatch)),
            ("combine", r.combine_us, rate(r.gbps.combine, r.fraction.combine)),
            ("reduce", r.reduce_us, None),
        ]
    }

    /// What the ceiling is, and how to read a fraction of it.
    pub(super) fn ceiling(&self) -> &'static str {
        if self.on_host {
            "as many processes copying the same bytes at once, wire and local bytes of all PEs; above 100 % a phase moved \
             its bytes faster than those copies"
        } else {
            "the copy engines of one GPU with all sending, wire bytes of the busiest"
        }
    }
}

/// A phase's time in each step of `of_pe`, the slowest PE's.
fn slowest(shares: &[Share], of_pe: fn(&Share) -> &[StepTimes], of: fn(&StepTimes) -> u64) -> Quantiles {
    let steps = shares.iter().map(|s| of_pe(s).len()).min().unwrap_or(0);
    let of_step = |step: usize| shares.iter().map(|s| of(&of_pe(s)[step])).max().unwrap_or(0);
    Quantiles::of((0..steps).map(of_step).collect())
}

/// The same of the copies.
fn copies(shares: &[Share], of_pe: fn(&Share) -> &[StepTimes], on_host: bool) -> Quantiles {
    if !on_host {
        return slowest(shares, of_pe, |t| t.copy.1.saturating_sub(t.copy.0));
    }
    let steps = shares.iter().map(|s| of_pe(s).len()).min().unwrap_or(0);
    Quantiles::of((0..steps).map(|step| at_once(shares.iter().map(|s| of_pe(s)[step].copy))).collect())
}

/// So many of what `one` is the word for.
pub(super) fn counted(n: usize, one: &str) -> String {
    format!("{n} {one}{}", if n == 1 { "" } else { "s" })
}

/// With fewer steps the nearest rank of the 99th percentile is the last.
const STEPS_OF_P99: usize = 100;

/// Time from the first begin to the last end. With more PEs than cores some begin when others have ended already: the
/// longest copy alone would then promise more than the machine can do, and collectives do wait for the last.
fn at_once(copies: impl Iterator<Item = (u64, u64)> + Clone) -> u64 {
    let begin = copies.clone().map(|(begin, _)| begin).min().unwrap_or(0);
    copies.map(|(_, end)| end).max().unwrap_or(0).saturating_sub(begin)
}

fn megabytes(bytes: u64) -> String {
    format!("{:.1}", bytes as f64 / 1e6)
}

fn max(values: &[u64]) -> u64 {
    values.iter().copied().max().unwrap_or(0)
}

fn reach(shares: &[Share]) -> &'static str {
    match (shares.iter().any(|s| s.direct), shares.iter().any(|s| s.network)) {
        (true, true) => "direct+network",
        (false, true) => "network",
        // A PE alone reaches itself directly.
        (_, false) => "direct",
    }
}

fn load(load: &[u64], rows: u64) -> Load {
    let mean = rows as f64 / load.len().max(1) as f64;
    let over = |n: u64| if mean > 0.0 { n as f64 / mean } else { 0.0 };
    Load { max_over_mean: over(max(load)), min_over_mean: over(load.iter().copied().min().unwrap_or(0)) }
}

/// Rows that each PE sends to other PEs in a dispatch, and receives from them.
fn wire_rows(job: &Job) -> (Vec<u64>, Vec<u64>) {
    let ne = symm::moe::experts_per_pe(job.trace.experts, job.pes);
    let (mut sent, mut received) = (vec![0; job.pes], vec![0; job.pes]);
    for (token, ids) in job.trace.ids.chunks_exact(job.trace.top_k).enumerate() {
        let from = owner_of_token(token, job.trace.tokens, job.pes);
        for to in ids.iter().filter_map(|id| usize::try_from(*id).ok()).map(|e| e / ne) {
            if to != from {
                sent[from] += 1;
                received[to] += 1;
            }
        }
    }
    (sent, received)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_are_by_nearest_rank() {
        let q = Quantiles::of((1..=200).rev().map(|n| n * 1000).collect());
        assert_eq!((q.p50, q.p99, q.max), (100.0, 198.0, 200.0));
        let one = Quantiles::of(vec![7000]);
        assert_eq!((one.p50, one.p99, one.max), (7.0, 7.0, 7.0));
    }

    #[test]
    fn copies_at_once_take_from_the_first_begin_to_the_last_end() {
        assert_eq!(at_once([(100, 200), (150, 260), (190, 230)].into_iter()), 160);
        assert_eq!(at_once([(5, 9)].into_iter()), 4);
    }

    #[test]
    fn reach_names_what_occurs_between_any_two() {
        let share = |direct, network| Share { direct, network, ..Share::default() };
        assert_eq!(reach(&[share(false, false)]), "direct");
        assert_eq!(reach(&[share(true, false), share(true, false)]), "direct");
        assert_eq!(reach(&[share(false, true), share(false, true)]), "network");
        assert_eq!(reach(&[share(true, true), share(false, true)]), "direct+network");
    }

    #[test]
    fn load_is_over_all_experts() {
        assert_eq!(load(&[6, 0, 2, 4], 12), Load { max_over_mean: 2.0, min_over_mean: 0.0 });
        assert_eq!(load(&[0, 0], 0), Load { max_over_mean: 0.0, min_over_mean: 0.0 });
    }
}
