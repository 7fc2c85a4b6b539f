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

/// GB/s each way of copies of `bytes` bytes to the right neighbour, all at once; 0 for one PE alone.
pub(crate) fn copy_engine(timer: &Timer<'_>, bytes: usize) -> Result<f64> {
    let (world, stream) = (timer.world, &timer.stream);
    let (team, w) = (world.team(), world.n_pes());
    if w < 2 {
        return Ok(0.0);
    }
    let handle = team.empty(&[bytes], DType::U8)?.rendezvous(team)?;
    let source = world.local(DType::U8, bytes)?;
    let remote = handle.get_remote_tensor((team.rank() + 1) % w, &[bytes], DType::U8)?;
    stream.fill(&source.span(), team.rank() as u8)?;
    let us = timer.graph(4, || Ok(stream.copy(&remote, &source.span())?))?;
    Ok(bytes as f64 / us / 1e3)
}

fn word(source: usize, destination: usize, i: usize) -> u64 {
    (source as u64) << 56 | (destination as u64) << 48 | i as u64
}

fn measure(bench: &mut Bench<'_>, bytes: usize, part: f64) -> Result<()> {
    let name = format!("all_to_all_{}MiB", bytes >> 20);
    let world = bench.timer.world;
    let (team, w, stream) = (world.team(), world.n_pes(), &bench.timer.stream);
    if !bench.wants(&name) {
        return Ok(());
    }
    let words = bytes / 8 / w * w;
    let block = words / w;
    let output = team.empty(&[words], DType::U64)?.rendezvous(team)?;
    let (input, want) = (world.local(DType::U64, words)?, world.local(DType::U64, words)?);
    let me = team.rank();
    let all = |word: &dyn Fn(usize, usize) -> u64| {
        (0..words).map(|k| word(k / block, k % block)).collect::<Vec<u64>>()
    };
    stream.write(&input.span(), &all(&|d, i| word(me, d, i)))?;
    stream.write(&want.span(), &all(&|s, i| word(s, me, i)))?;
    let input = input.span();
    let times =
        bench.timer.both(10, || Ok(team.all_to_all(stream, &input, &output, Options::default())?))?;
    bench.compare.same(world, stream, &name, &output.span(), &want.span())?;
    bench.timer.meet()?;
    bench.add(&name, Target::OfCeiling(part), (block * 8 * (w - 1)) as f64, 2.0, times);
    Ok(())
}

pub(crate) fn run(bench: &mut Bench<'_>) -> Result<()> {
    measure(bench, 64 << 20, 0.88)?;
    measure(bench, 256 << 20, 0.95)
}
