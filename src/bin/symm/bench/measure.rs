//! The measurement of one case: operation and copy in alternation, all PEs together.

use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};
use symm::bootstrap::Group;
use symm::{Backend, World};
use symm_core::Deadline;

use super::case::Case;
use super::data::Value;
use super::op::Traffic;
use crate::cli::error::Failure;
use crate::cli::meet::share;

/// Time that a size whose iterations nobody asked for takes, without its copies.
const BUDGET: Duration = Duration::from_millis(120);
/// Fewest and most iterations that are chosen unasked.
const ITERATIONS: (u64, u64) = (20, 20_000);
/// Samples at most: each is the mean of as many iterations as make up the whole.
const SAMPLES: u64 = 50;

/// How a case is measured.
#[derive(Clone, Copy, Debug)]
pub(super) struct Way {
    pub(super) iterations: Option<u64>,
    pub(super) warm_up: u64,
    /// Operations of a graph that is replayed.
    pub(super) graph: Option<u64>,
    pub(super) check: bool,
    /// Whether this PE makes a value wrong before it looks, so that tests can see one found.
    pub(super) corrupt: bool,
}

/// A line of the table. Times are in µs: of one iteration, from the first PE's begin to the last one's end on a host,
/// whose PEs share a clock, and the slowest PE's elsewhere.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Row {
    pub(super) op: String,
    /// Bytes, as the operation counts them.
    pub(super) size: usize,
    pub(super) count: usize,
    pub(super) iterations: u64,
    pub(super) samples: u64,
    pub(super) p50_us: f64,
    pub(super) min_us: f64,
    pub(super) max_us: f64,
    /// 10^9 bytes a second: size over time, and that times the factor of nccl-tests.
    pub(super) algbw: f64,
    pub(super) busbw: f64,
    /// Bytes that a PE moves, the mean over PEs.
    pub(super) wire_bytes: f64,
    pub(super) local_bytes: f64,
    /// Time of copying as many bytes on all PEs at once; 0 where nothing is moved.
    pub(super) copy_us: f64,
    /// That time over the operation's.
    pub(super) fraction: Option<f64>,
    /// Values that differ, over all PEs; `None` if nobody looked.
    pub(super) wrong: Option<u64>,
}

/// Begin and end of a sample on one PE, in ns of the machine's monotonic clock.
type Span = (u64, u64);

/// The samples of one PE.
#[derive(Debug, Default, Serialize, Deserialize)]
struct Times {
    op: Vec<Span>,
    copy: Vec<Span>,
}

/// Measures a case.
///
/// # Collective
/// Over the world.
pub(super) fn measure<T: Value>(
    world: &World,
    group: &Group,
    case: &Case<'_, T>,
    way: &Way,
) -> Result<Row, Failure> {
    let deadline = || Deadline::after(world.default_timeout());
    case.reset()?;
    case.calm()?;
    case.run(way.warm_up.max(1))?;
    case.copy(1)?;
    let graph = way.graph.map(|n| case.capture(n)).transpose()?;
    // A graph runs as a whole.
    let whole = way.graph.unwrap_or(1);
    let run = |iterations: u64| match &graph {
        Some(graph) => case.replay(graph, iterations / whole),
        None => case.run(iterations),
    };
    run(whole)?;
    let began = Instant::now();
    run(whole)?;
    let iterations = match way.iterations {
        Some(n) => n,
        None => {
            let mine = (began.elapsed().as_nanos() as u64 / whole).max(1);
            let all: Vec<u64> = share(group, "iterations", &mine, deadline())?;
            let slowest = all.into_iter().max().unwrap_or(1);
            (BUDGET.as_nanos() as u64 / slowest).clamp(ITERATIONS.0, ITERATIONS.1)
        }
    };
    let samples = iterations.min(SAMPLES);
    let each = iterations.div_ceil(samples).next_multiple_of(whole);
    let mut mine = Times::default();
    for _ in 0..samples {
        mine.op.push(timed(case, || run(each))?);
        mine.copy.push(timed(case, || case.copy(each))?);
    }
    let all: Vec<Times> = share(group, "times", &mine, deadline())?;
    let one_clock = world.backend().name() == "host";
    let of = |pick: fn(&Times) -> &Vec<Span>| {
        let sample =
            |i: usize| over_pes(all.iter().map(|pe| pick(pe)[i]), one_clock) as f64 / each as f64 / 1e3;
        let mut us: Vec<f64> = (0..samples as usize).map(sample).collect();
        us.sort_by(f64::total_cmp);
        us
    };
    let (op, copies) = (of(|t| &t.op), of(|t| &t.copy));
    let wrong = if way.check {
        let mine = case.check(way.corrupt)?;
        Some(share::<_, u64>(group, "check", &mine, deadline())?.into_iter().sum())
    } else {
        None
    };
    let Traffic { wire, local } = case.op.traffic(world.n_pes(), case.size());
    let moves = wire + local > 0.0;
    let p50_us = median(&op);
    let algbw = if p50_us > 0.0 { case.size() as f64 / p50_us / 1e3 } else { 0.0 };
    let copy_us = if moves { median(&copies) } else { 0.0 };
    Ok(Row {
        op: case.op.name().to_owned(),
        size: case.size(),
        count: case.count,
        iterations: each * samples,
        samples,
        p50_us,
        min_us: op.first().copied().unwrap_or(0.0),
        max_us: op.last().copied().unwrap_or(0.0),
        algbw,
        busbw: algbw * case.op.bus_factor(world.n_pes()),
        wire_bytes: wire,
        local_bytes: local,
        copy_us,
        fraction: (moves && p50_us > 0.0).then(|| copy_us / p50_us),
        wrong,
    })
}

/// Begin and end of a call that all PEs begin together.
fn timed<T: Value>(case: &Case<'_, T>, call: impl FnOnce() -> symm::Result<()>) -> symm::Result<Span> {
    case.meet()?;
    let began = now();
    call()?;
    Ok((began, now()))
}

/// Time of a sample. With more PEs than cores some begin when others have ended already: with one clock that counts.
fn over_pes(spans: impl Iterator<Item = Span> + Clone, one_clock: bool) -> u64 {
    if !one_clock {
        return spans.map(|(begin, end)| end.saturating_sub(begin)).max().unwrap_or(0);
    }
    let begin = spans.clone().map(|(begin, _)| begin).min().unwrap_or(0);
    spans.map(|(_, end)| end).max().unwrap_or(0).saturating_sub(begin)
}

fn median(sorted: &[f64]) -> f64 {
    sorted.get(sorted.len().saturating_sub(1) / 2).copied().unwrap_or(0.0)
}

/// The monotonic clock in ns.
fn now() -> u64 {
    let t = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    t.tv_sec.unsigned_abs() * 1_000_000_000 + t.tv_nsec.unsigned_abs()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sample_takes_from_the_first_begin_to_the_last_end() {
        let spans = [(100, 200), (150, 260), (190, 230)];
        assert_eq!(over_pes(spans.into_iter(), true), 160);
        assert_eq!(over_pes(spans.into_iter(), false), 110);
    }

    #[test]
    fn the_median_is_a_sample() {
        assert_eq!(median(&[1.0, 2.0, 9.0]), 2.0);
        assert_eq!(median(&[1.0, 2.0]), 1.0);
        assert_eq!(median(&[]), 0.0);
    }
}
