//! Large equal blocks, what the copy engine makes of them, and the first rendezvous.

use std::time::{Duration, Instant};

use anyhow::Result;
use symm::{DType, Options, World};

use crate::timer::Timer;
use crate::{Bench, Target};

/// The time of the first rendezvous of a process, of 256 MiB.
pub(crate) fn first_rendezvous(world: &World) -> Result<Duration> {
    let (team, stream) = (world.team(), world.stream()?);
    team.barrier(&stream, Options::default())?;
    stream.synchronize()?;
    let began = Instant::now();
    team.empty(&[256 << 20], DType::U8)?.rendezvous(team)?;
    Ok(began.elapsed())
}

/// Which way copy engines move data.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Way {
    Put,
    Get,
}

/// GB/s each way of copies of `bytes` bytes to the right neighbour, or from there, all at once; 0 for one PE alone.
pub(crate) fn copy_engine(timer: &Timer<'_>, way: Way, bytes: usize) -> Result<f64> {
    let (world, stream) = (timer.world, &timer.stream);
    let (team, w) = (world.team(), world.n_pes());
    if w < 2 {
        return Ok(0.0);
    }
    let handle = team.empty(&[bytes], DType::U8)?.rendezvous(team)?;
    let local = world.local(DType::U8, bytes)?;
    let remote = handle.get_remote_tensor((team.rank() + 1) % w, &[bytes], DType::U8)?;
    stream.fill(&local.span(), team.rank() as u8)?;
    let (to, from) = match way {
        Way::Put => (remote, local.span()),
        Way::Get => (local.span(), remote),
    };
    let us = timer.graph(4, || Ok(stream.copy(&to, &from)?))?;
    Ok(bytes as f64 / us / 1e3)
}

fn word(source: usize, destination: usize, i: usize) -> u64 {
    (source as u64) << 56 | (destination as u64) << 48 | i as u64
}

/// Blocks pushed by a kernel, or got by the copy engines.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum By {
    Kernel,
    CopyEngines,
}

pub(crate) fn measure(bench: &mut Bench<'_>, by: By, bytes: usize, target: Target) -> Result<()> {
    let prefix = if by == By::Kernel { "" } else { "low_contention_" };
    let name = format!("{prefix}all_to_all_{}MiB", bytes >> 20);
    let world = bench.timer.world;
    let (team, w, stream) = (world.team(), world.n_pes(), &bench.timer.stream);
    if !bench.wants(&name) {
        return Ok(());
    }
    let words = bytes / 8 / w * w;
    let block = words / w;
    // The kernel's output is symmetric, the copy engines' input.
    let symmetric = team.empty(&[words], DType::U64)?.rendezvous(team)?;
    let (local, want) = (world.local(DType::U64, words)?, world.local(DType::U64, words)?);
    let (input, output) = match by {
        By::Kernel => (local.span(), symmetric.span()),
        By::CopyEngines => (symmetric.span(), local.span()),
    };
    let me = team.rank();
    let all = |word: &dyn Fn(usize, usize) -> u64| {
        (0..words).map(|k| word(k / block, k % block)).collect::<Vec<u64>>()
    };
    stream.write(&input, &all(&|d, i| word(me, d, i)))?;
    stream.write(&want.span(), &all(&|s, i| word(s, me, i)))?;
    // Nobody reads an input before its owner has written it.
    bench.timer.meet()?;
    let options = Options::default();
    let times = bench.timer.both(10, || {
        let enqueued = match by {
            By::Kernel => team.all_to_all(stream, &input, &symmetric, options),
            By::CopyEngines => team.low_contention_all_to_all(stream, &symmetric, &output, options),
        };
        Ok(enqueued?)
    })?;
    bench.compare.same(world, stream, &name, &output, &want.span())?;
    bench.timer.meet()?;
    bench.add(&name, target, (block * 8 * (w - 1)) as f64, 2.0, times);
    Ok(())
}

pub(crate) fn run(bench: &mut Bench<'_>) -> Result<()> {
    for (bytes, part) in [(64 << 20, 0.88), (256 << 20, 0.95)] {
        measure(bench, By::Kernel, bytes, Target::OfCeiling(part))?;
        measure(bench, By::CopyEngines, bytes, Target::None)?;
    }
    Ok(())
}
