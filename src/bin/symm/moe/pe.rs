//! One PE of the job, from meeting the others to the result that all of them have.

use std::path::Path;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use symm::bootstrap::Group;
use symm::moe::Float;
use symm::{Backend, Builder, Config, Element, Pe, Reach, World};
use symm_core::Deadline;

use super::args::Args;
use super::prepare::{Job, prepare};
use super::report::{Done, Share};
use super::work::Work;
use crate::cli::error::{Class, EXIT_DIFFERS, Failure};
use crate::cli::meet::{agree, meet, share};

/// Time that a job whose steps nobody asked for takes in all.
const BUDGET: Duration = Duration::from_secs(10);
const WARM_UP: i64 = 2;
/// Steps with several calls in a row, and how long a row should last at least.
const ROWS: u64 = 5;
const ROW: Duration = Duration::from_millis(20);
/// Fewest and most calls in a row. Where fewer last long enough, a GPU that had idled before the first is not noticed.
const CALLS: (u64, u64) = (4, 50);
/// What a call may take at most for that; the help says it, too.
pub(super) const LONGEST_IN_A_ROW: Duration = Duration::from_millis(5);
const _: () = assert!(ROW.as_millis() == LONGEST_IN_A_ROW.as_millis() * CALLS.0 as u128);
/// Fewest and most steps that are chosen unasked.
const STEPS: (u64, u64) = (3, 20_000);
/// Id of the group over which PEs compare notes.
const GROUP: u64 = u64::from_le_bytes(*b"symm-moe");

/// Who is told how a PE fares.
pub(super) trait Output {
    /// `done` of `of` timed steps; told by PE 0.
    fn progress(&mut self, done: u64, of: u64);
    /// The end, before any PE has left.
    fn end(&mut self, pe: u32, result: &Result<Done, Failure>) -> ExitCode;
}

/// The exit status of a result.
pub(super) fn exit(result: &Result<Done, Failure>) -> ExitCode {
    match result {
        Ok(done) if done.report.verified => ExitCode::SUCCESS,
        Ok(_) => ExitCode::from(EXIT_DIFFERS),
        Err(f) => f.exit(),
    }
}

/// Runs this process as the PE that `config`, or what started it, says it is.
pub(super) fn run(args: &Args, config: Config, trace: Option<&Path>, output: &mut dyn Output) -> ExitCode {
    let began = Instant::now();
    let mut config = config;
    let group = match meet(&mut config, GROUP) {
        Ok(group) => group,
        Err(e) => return output.end(config.pe.unwrap_or(0), &Err(e.into())),
    };
    let pe = group.bootstrap().pe().0;
    let deadline = || Deadline::after(config.init_timeout);
    // Bad input ends all PEs together: one that left first might have a launcher end PE 0 before it has spoken.
    let prepared =
        args.request().and_then(|request| Ok((prepare(args, &request, &config, trace)?, request.seed)));
    let result = agree(&group, prepared, deadline()).and_then(|(job, seed)| {
        let mut config = config.clone();
        if let Some(seed) = seed {
            config.host_seed = seed;
        }
        let world = Builder::from_config(config).init_over(group.bootstrap().clone())?;
        let done = match job.float {
            Float::BF16 => steps::<half::bf16>(&world, &group, &job, began, output),
            Float::F16 => steps::<half::f16>(&world, &group, &job, began, output),
            Float::F32 => steps::<f32>(&world, &group, &job, began, output),
        }?;
        Ok((done, world))
    });
    let (result, world) = match result {
        Ok((done, world)) => (Ok(done), Some(world)),
        Err(f) => (Err(f), None),
    };
    let code = output.end(pe, &result);
    // The result stands; that a peer is gone by now changes nothing.
    let left = match (&world, &result) {
        (Some(world), _) => world.finalize(),
        (None, Err(f)) if f.class == Class::Input => group.barrier("leave", deadline()),
        _ => Ok(()),
    };
    if let Err(e) = left {
        log::debug!("PE {pe}: leaving: {e}");
    }
    group.bootstrap().close();
    code
}

fn steps<T: Element>(
    world: &World,
    group: &Group,
    job: &Job,
    began: Instant,
    output: &mut dyn Output,
) -> Result<Done, Failure> {
    let deadline = || Deadline::after(world.default_timeout());
    let mut work = Work::<T>::new(world, job)?;
    let mut last = Duration::ZERO;
    for step in -WARM_UP..0 {
        let began = Instant::now();
        work.step(step, 1)?;
        last = began.elapsed();
    }
    let steps = match job.steps {
        Some(steps) => steps,
        None => {
            let left = BUDGET.saturating_sub(began.elapsed());
            let mine = (left.as_nanos() / last.as_nanos().max(1)) as u64;
            let all: Vec<u64> = share(group, "steps", &mine, deadline())?;
            all.into_iter().min().unwrap_or(0).clamp(STEPS.0, STEPS.1)
        }
    };
    let mut times = Vec::new();
    for step in 0..steps {
        times.push(work.step(step.cast_signed(), 1)?);
        if world.pe() == Pe(0) {
            output.progress(step + 1, steps);
        }
    }
    let call = times.iter().map(|t| t.dispatch.max(t.combine)).min().unwrap_or(0).max(1);
    let mine = (ROW.as_nanos() / u128::from(call)) as u64;
    let calls: Vec<u64> = share(group, "calls", &mine, deadline())?;
    let calls = calls.into_iter().min().unwrap_or(0).min(CALLS.1);
    let mut rows = Vec::new();
    for row in (steps..steps + ROWS).filter(|_| calls >= CALLS.0) {
        rows.push(work.step(row.cast_signed(), calls)?);
    }
    let peers = (0..world.n_pes()).map(Pe::from).filter(|pe| *pe != world.pe());
    let reached: Vec<Reach> = peers.map(|pe| world.reach(pe)).collect();
    let mine = Share {
        times,
        calls,
        rows,
        mismatch: work.into_mismatch(),
        direct: reached.contains(&Reach::Direct),
        network: reached.contains(&Reach::Network),
    };
    let shares: Vec<Share> = share(group, "result", &mine, deadline())?;
    Ok(Done::new(job, world.backend().name(), &shares, job.picture))
}
