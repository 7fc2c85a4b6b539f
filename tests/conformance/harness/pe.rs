//! The PE's side: opens the world, runs the cases that the parent names, tells how they ended.

use std::io::{BufRead, Write};
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use symm::{Capabilities, DType, Error, Options, Pe, Result, Stream, Team, World};

use super::group::Said;
use super::memory::{Guarded, Symmetric};
use super::{Case, Outcome, Stop};

/// Deadline of operations of a case's team, far below the case's own.
const TIMEOUT: Duration = Duration::from_secs(10);

/// What a case is given on each PE.
#[derive(Debug)]
pub(crate) struct Ctx {
    pub(crate) world: World,
    /// All PEs, rank = PE; made for this case.
    pub(crate) team: Team,
    pub(crate) stream: Stream,
    /// Seed of the case.
    pub(crate) seed: u64,
}

impl Ctx {
    fn new(world: &World, case: &Case) -> Result<Self> {
        let everybody: Vec<Pe> = (0..world.n_pes()).map(Pe::from).collect();
        let team = world.team_of(&everybody)?;
        team.set_timeout(TIMEOUT);
        let seed = case.name.bytes().fold(7, |h: u64, b| h.wrapping_mul(131).wrapping_add(u64::from(b)));
        Ok(Ctx { world: world.clone(), team, stream: world.stream()?, seed })
    }

    /// This PE's rank in the team.
    pub(crate) fn me(&self) -> usize {
        self.team.rank()
    }

    /// W.
    pub(crate) fn n(&self) -> usize {
        self.team.world_size()
    }

    /// World number of a rank of the team.
    pub(crate) fn pe(&self, rank: usize) -> usize {
        self.team.pe(rank).map_or(usize::MAX, Pe::index)
    }

    /// The same with another team, and a stream of its own.
    pub(crate) fn with(&self, team: Team) -> Result<Ctx> {
        Ok(Ctx { team, world: self.world.clone(), stream: self.world.stream()?, seed: self.seed })
    }

    pub(crate) fn right(&self) -> usize {
        (self.me() + 1) % self.n()
    }

    pub(crate) fn left(&self) -> usize {
        (self.me() + self.n() - 1) % self.n()
    }

    /// A team of these PEs, with the deadline of the case's team.
    pub(crate) fn team_of(&self, pes: &[usize]) -> Result<Team> {
        let members: Vec<Pe> = pes.iter().copied().map(Pe::from).collect();
        let team = self.world.team_of(&members)?;
        team.set_timeout(TIMEOUT);
        Ok(team)
    }

    /// Another team of all PEs.
    pub(crate) fn another_team(&self) -> Result<Team> {
        self.team_of(&(0..self.n()).collect::<Vec<_>>())
    }

    /// All PEs meet, over the world's team: also while the case's team has a failure set.
    pub(crate) fn meet(&self) -> Result<()> {
        let stream = self.world.stream()?;
        self.world.team().barrier(&stream, Options { timeout: Some(TIMEOUT), ..Options::default() })?;
        stream.synchronize()
    }

    pub(crate) fn local(&self, dtype: DType, len: usize, seed: u64) -> Result<Guarded> {
        Guarded::local(&self.world, &self.stream, dtype, len, seed)
    }

    /// Symmetric elements over the case's team.
    pub(crate) fn symmetric(&self, dtype: DType, len: usize, seed: u64) -> Result<Symmetric> {
        self.symmetric_over(&self.team, dtype, len, seed)
    }

    pub(crate) fn symmetric_over(
        &self,
        team: &Team,
        dtype: DType,
        len: usize,
        seed: u64,
    ) -> Result<Symmetric> {
        Symmetric::new(&self.world, &self.stream, team, dtype, len, seed)
    }

    pub(crate) fn has(&self, capabilities: Capabilities) -> bool {
        self.world.capabilities().contains(capabilities)
    }

    /// `us` microseconds of doing nothing, to let a PE be late.
    pub(crate) fn pause(&self, us: u64) {
        std::thread::sleep(Duration::from_micros(us));
    }
}

fn tell(said: &Said) {
    let mut out = std::io::stdout().lock();
    // A parent that is gone reads nothing; the end of its pipe ends this process.
    let _ = writeln!(out, "{}", said.encode());
    let _ = out.flush();
}

fn run(world: &World, case: &Case) -> Outcome {
    if !world.capabilities().contains(case.needs) {
        let lacks = case.needs - world.capabilities();
        return Err(Stop::skip(format!("the backend lacks {lacks:?}")));
    }
    let ctx = Ctx::new(world, case)?;
    (case.run)(&ctx)
}

fn caught(world: &World, case: &Case) -> Said {
    let run = std::panic::AssertUnwindSafe(|| run(world, case));
    match std::panic::catch_unwind(run) {
        Ok(Ok(())) => Said::Pass,
        Ok(Err(Stop::Skip(why))) => Said::Skip(why),
        Ok(Err(Stop::Fail(why))) => Said::Fail(why),
        Err(panic) => {
            let text = panic.downcast_ref::<String>().cloned();
            let text = text.or_else(|| panic.downcast_ref::<&str>().map(|s| (*s).to_owned()));
            Said::Fail(format!("panicked: {}", text.unwrap_or_default()))
        }
    }
}

/// Commands of the parent, one a line. Its end while a case runs ends this process: nobody would hear the outcome.
fn commands(busy: Arc<AtomicBool>) -> std::sync::mpsc::Receiver<usize> {
    let (send, receive) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        for line in std::io::stdin().lock().lines() {
            let number = line.ok().and_then(|l| l.trim().parse().ok());
            let Some(number) = number else { break };
            if send.send(number).is_err() {
                break;
            }
        }
        if busy.load(Ordering::Acquire) {
            std::process::exit(3);
        }
    });
    receive
}

/// Opens the world, then runs what the parent asks for until it closes the pipe.
pub(crate) fn serve(cases: &[Case]) -> ExitCode {
    let busy = Arc::new(AtomicBool::new(true));
    let receive = commands(busy.clone());
    let world = match symm::init() {
        Ok(world) => world,
        Err(e) => {
            let unavailable = matches!(e, Error::Unavailable { .. } | Error::Unsupported { .. });
            let why = format!("init: {}: {e}", e.kind());
            tell(&if unavailable { Said::Skip(why) } else { Said::Fail(why) });
            return ExitCode::from(2);
        }
    };
    let mut died = false;
    busy.store(false, Ordering::Release);
    tell(&Said::Pass);
    while let Ok(number) = receive.recv() {
        let Some(case) = cases.get(number) else { return ExitCode::from(4) };
        busy.store(true, Ordering::Release);
        let said = caught(&world, case);
        // Before the parent hears it: it may close the pipe at once.
        busy.store(false, Ordering::Release);
        tell(&said);
        if case.dies && world.pe().index() + 1 == world.n_pes() {
            // As a crash ends a process: no destructor runs, no goodbye is said.
            std::process::exit(0);
        }
        died |= case.dies;
    }
    // Legal after a case that finalized.
    match world.finalize() {
        Ok(()) => ExitCode::SUCCESS,
        // The dead one is missed, and so are those that missed it first and left.
        Err(Error::PeerFailed { .. } | Error::Bootstrap { .. }) if died => ExitCode::SUCCESS,
        Err(e) => {
            let _ = writeln!(std::io::stderr(), "finalize: {e}");
            ExitCode::from(5)
        }
    }
}
