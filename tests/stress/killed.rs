//! A PE that is killed while it, and the others, have collectives under way: the others get its name within seconds, their
//! GPUs and processes go on, and they work together without it.

use std::time::{Duration, Instant};

use anyhow::{Result, bail, ensure};
use rustix::process::{Signal, getpid, kill_process};
use serde_json::{Value, json};
use symm::{DType, Error, Options, Pe};

use crate::Run;
use crate::check::bytes;
use crate::dispatch::{Set, capacity};

/// Time within which the others must know.
const NOTICED: Duration = Duration::from_secs(3);

pub(crate) fn run(run: &Run<'_>) -> Result<Value> {
    let world = run.world;
    let dies = Pe::from(world.n_pes() - 1);
    ensure!(dies.index() > 0, "needs two PEs");
    let stream = world.stream()?;
    let output = world.team().empty(&[capacity(world.n_pes())], DType::U8)?.rendezvous(world.team())?;
    let set = Set::new(world, &stream, 13)?;
    world.team().barrier(&stream, Options::default())?;
    stream.synchronize()?;
    // A kernel of the user's that waits for the one that dies, under a deadline that is far.
    let (waiting, answer) = (world.stream()?, world.local(DType::U64, 1)?);
    let waits = run.checker.wait_for_peer(&waiting, &output, 9, &answer.span())?;
    let began = Instant::now();
    let mut calls = 0;
    let failed = loop {
        // Some hundred calls are queued or under way when it happens.
        if world.pe() == dies && calls == 1000 {
            kill_process(getpid(), Signal::KILL)?;
        }
        if let Err(e) = set.call(world, &stream, &output) {
            break e;
        }
        calls += 1;
        if calls % 200 == 0
            && let Err(e) = stream.synchronize()
        {
            break e.into();
        }
        ensure!(began.elapsed() < Duration::from_secs(30), "PE {dies} is dead and nobody noticed");
    };
    let noticed = began.elapsed();
    match failed.downcast_ref::<Error>() {
        Some(Error::PeerFailed { pe, .. }) if *pe == dies => {}
        _ => bail!("got {failed:#}, expected PeerFailed of PE {dies}"),
    }
    ensure!(noticed < NOTICED, "it took {noticed:?}");
    // What was queued ends.
    let ended = Instant::now();
    let left = stream.synchronize();
    ensure!(left.is_err() && ended.elapsed() < NOTICED, "the queue took {:?}: {left:?}", ended.elapsed());
    let of_the_kernel: Vec<u64> = waiting.read(&answer.span())?;
    let kernel_ended = ended.elapsed();
    ensure!(
        !waits || (of_the_kernel == [3] && kernel_ended < NOTICED),
        "a kernel that waits for PE {dies} took {kernel_ended:?} more and said {of_the_kernel:?}"
    );
    match world.team().recover() {
        Err(Error::PeerFailed { pe, .. }) if pe == dies => {}
        other => bail!("recover without PE {dies}: {other:?}"),
    }

    // The others make a team and go on.
    let members: Vec<Pe> = (0..dies.index()).map(Pe::from).collect();
    let team = world.team_of(&members)?;
    let part = 4096;
    let input = world.local(DType::U8, part)?;
    let all = team.empty(&[part * members.len()], DType::U8)?.rendezvous(&team)?;
    for round in 0..20u8 {
        stream.fill(&input.span(), round * 8 + team.rank() as u8)?;
        team.all_gather(&stream, &input.span(), &all, Options::default())?;
        let got = bytes(&stream, &all.span())?;
        team.status()?;
        let right = |(i, v): (usize, &u8)| *v == round * 8 + (i / part) as u8;
        ensure!(got.iter().enumerate().all(right), "round {round} of the others");
        team.barrier(&stream, Options::default())?;
    }
    Ok(json!({
        "calls_before": calls,
        "noticed_ms": noticed.as_secs_f64() * 1e3,
        "others": members.len(),
        "a_users_kernel_ended": waits,
    }))
}
