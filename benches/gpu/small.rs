//! Rows that move next to nothing: signals and barriers.

use std::cell::Cell;

use anyhow::{Result, ensure};
use symm::{DType, Handle, Options};

use crate::kernels::Kernel;
use crate::timer::{Timer, Times};
use crate::{Bench, Target};

/// Trips of one launch.
const TRIPS: u64 = 200;

/// The signals with which trips are made, of the 512 that a pad has by default: where in the GPU's cache a word lies makes a difference.
const SIGNALS: [u64; 8] = [0, 64, 128, 192, 256, 320, 384, 448];

/// Repeated launches of a kernel of `round_trip.cu`; µs of one trip, by each of the signals, from the shortest on.
fn trips(timer: &Timer<'_>, kernel: &Kernel, handle: &Handle) -> Result<Vec<f64>> {
    let wrong = timer.world.local(DType::U64, 1)?;
    timer.stream.write(&wrong.span(), &[0u64])?;
    let base = Cell::new(0);
    let mut all = Vec::new();
    for index in SIGNALS {
        let launch = || {
            let mut values = [index, base.get(), TRIPS, 10_000_000_000, wrong.span().addr().0];
            base.set(base.get() + TRIPS);
            // SAFETY: a handle and five 8-byte parameters, as the kernels have; both live until the read below.
            unsafe { kernel.launch_on(handle, &timer.stream, (1, 1), &mut values) }
        };
        all.push(timer.eager(launch)? / TRIPS as f64);
    }
    let seen: Vec<u64> = timer.stream.read(&wrong.span())?;
    ensure!(seen == [0], "{} of the words that came were wrong or late", seen[0]);
    all.sort_by(f64::total_cmp);
    Ok(all)
}

fn median(sorted: &[f64]) -> f64 {
    f64::midpoint(sorted[(sorted.len() - 1) / 2], sorted[sorted.len() / 2])
}

fn symmetric(timer: &Timer<'_>, bytes: usize) -> Result<Handle> {
    let team = timer.world.team();
    let handle = team.empty(&[bytes], DType::U8)?.rendezvous(team)?;
    timer.stream.fill(&handle.span(), 0)?;
    timer.meet()?;
    Ok(handle)
}

/// Half of a flag's way to the peer and back, the median of all signals; 0 with other than two PEs.
pub(crate) fn link_latency(timer: &Timer<'_>, flags: &Kernel) -> Result<f64> {
    if timer.world.n_pes() != 2 {
        return Ok(0.0);
    }
    Ok(median(&trips(timer, flags, &symmetric(timer, 4096)?)?) / 2.0)
}

pub(crate) fn run(bench: &mut Bench<'_>) -> Result<()> {
    let handle = symmetric(&bench.timer, 4096)?;
    if bench.timer.world.n_pes() == 2 && bench.wants("round_trip_8B") {
        let all = trips(&bench.timer, &bench.trips, &handle)?;
        let us = median(&all);
        // One launch makes many trips, so there is no difference between a graph and an eager launch.
        bench.round_trips = all;
        bench.add("round_trip_8B", Target::Micros(3.6), 0.0, 2.0, Times { graph_us: us, eager_us: us });
    }
    if bench.wants("barrier") {
        let timer = &bench.timer;
        let times = timer.both(10, || Ok(handle.barrier(&timer.stream, 0, None)?))?;
        bench.add("barrier", Target::Micros(2.8), 0.0, 1.0, times);
    }
    if bench.wants("context_barrier") {
        let timer = &bench.timer;
        let times =
            timer.both(10, || Ok(timer.world.team().barrier(&timer.stream, Options::default())?))?;
        bench.add("context_barrier", Target::None, 0.0, 1.0, times);
    }
    Ok(())
}
