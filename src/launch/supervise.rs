//! Watches the PEs and ends them together.

use std::os::fd::AsFd;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::process::Signal;
use symm_core::{Error, Pe, Result};

use super::relay::Relay;
use super::signals::Signals;
use super::spawn::{self, Process};
use super::{Captured, Launcher, Outcome, Output, Status};

pub(super) fn run(launcher: &Launcher) -> Result<Outcome> {
    // Before any thread or child starts, so that all inherit the mask.
    let signals = launcher.handle_signals.then(Signals::take).transpose()?;
    let mut job = Job {
        launcher,
        pes: Vec::new(),
        ending: Ending::No,
        deadline: launcher.deadline.and_then(|d| Instant::now().checked_add(d)),
        first_failed: None,
        signal: None,
        timed_out: false,
    };
    let relay = job.start().and_then(|relay| {
        job.watch(signals.as_ref())?;
        Ok(relay)
    });
    // Only after an error is anybody left.
    job.pes.iter_mut().for_each(Process::destroy);
    let captured = match relay? {
        // The output may be stuck in somebody's full pipe, which must not keep a job that was told to end.
        Some(relay) => relay.finish(job.signal.is_some() || job.timed_out)?,
        None => Vec::new(),
    };
    Ok(job.outcome(captured))
}

/// How far the job's end has come.
#[derive(Clone, Copy)]
enum Ending {
    No,
    /// SIGTERM was sent; SIGKILL follows then.
    Asked(Instant),
    Killed,
}

struct Job<'a> {
    launcher: &'a Launcher,
    pes: Vec<Process>,
    ending: Ending,
    deadline: Option<Instant>,
    first_failed: Option<Pe>,
    signal: Option<i32>,
    timed_out: bool,
}

impl Job<'_> {
    fn start(&mut self) -> Result<Option<Relay>> {
        let names = spawn::Names::new()?;
        let mut pipes = Vec::new();
        for pe in 0..self.launcher.n {
            let (process, pipe) = Process::start(self.launcher, &names, pe)?;
            self.pes.push(process);
            pipes.extend(pipe);
        }
        match self.launcher.output {
            Output::Inherited => Ok(None),
            output => Relay::start(pipes, output).map(Some),
        }
    }

    fn watch(&mut self, signals: Option<&Signals>) -> Result<()> {
        while self.pes.iter().any(|p| p.status.is_none()) {
            self.wait(signals)?;
            while let Some(signal) = signals.and_then(Signals::next) {
                match self.signal.replace(signal) {
                    None => self.ask(),
                    Some(_) => self.kill(),
                }
            }
            self.reap()?;
            let now = Instant::now();
            if self.deadline.is_some_and(|d| d <= now) && !self.timed_out {
                self.timed_out = true;
                self.kill();
            }
            if matches!(self.ending, Ending::Asked(until) if until <= now) {
                self.kill();
            }
        }
        Ok(())
    }

    /// Waits for the end of a PE, a signal, or the next point in time at which something is due.
    fn wait(&self, signals: Option<&Signals>) -> Result<()> {
        let alive = self.pes.iter().filter(|p| p.status.is_none());
        let fds = alive.map(|p| p.pidfd.as_fd()).chain(signals.map(AsFd::as_fd));
        let mut fds: Vec<_> = fds.map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::IN)).collect();
        let kill_at = match self.ending {
            Ending::Asked(until) => Some(until),
            Ending::No | Ending::Killed => None,
        };
        let due = kill_at.into_iter().chain(self.deadline.filter(|_| !self.timed_out)).min();
        let timeout = due.map(|at| timespec(at.saturating_duration_since(Instant::now())));
        match poll(&mut fds, timeout.as_ref()) {
            Ok(_) | Err(Errno::INTR) => Ok(()),
            Err(e) => Err(Error::system("poll", e)),
        }
    }

    fn reap(&mut self) -> Result<()> {
        let mut failed: Vec<(Pe, Status)> = Vec::new();
        for (i, process) in self.pes.iter_mut().enumerate().filter(|(_, p)| p.status.is_none()) {
            if let Some(status) = process.poll()?
                && !status.success()
            {
                failed.push((Pe::from(i), status));
            }
        }
        let by_signal = failed.iter().find(|(_, s)| matches!(s, Status::Signaled(_)));
        self.blame_signal(by_signal.copied());
        // Who fails after the launcher began to end the job did so because of that.
        if let (Ending::No, Some((pe, _))) = (self.ending, by_signal.or(failed.first())) {
            self.first_failed = self.first_failed.or(Some(*pe));
            if !self.launcher.keep_going {
                self.ask();
            }
        }
        Ok(())
    }

    /// A PE that something else than the launcher killed is the cause, even where one that failed because of it was
    /// noticed first: so far the launcher has sent nothing but SIGTERM.
    fn blame_signal(&mut self, ended: Option<(Pe, Status)>) {
        let (Ending::Asked(_), Some((pe, Status::Signaled(signal)))) = (self.ending, ended) else { return };
        let exited = |first: Pe| matches!(self.pes[first.index()].status, Some(Status::Exited(_)));
        if signal != libc::SIGTERM && self.first_failed.is_some_and(exited) {
            self.first_failed = Some(pe);
        }
    }

    fn ask(&mut self) {
        if matches!(self.ending, Ending::No) {
            self.pes.iter().for_each(|p| p.signal(Signal::TERM));
            self.ending = Ending::Asked(Instant::now() + self.launcher.grace);
        }
    }

    fn kill(&mut self) {
        self.pes.iter().for_each(|p| p.signal(Signal::KILL));
        self.ending = Ending::Killed;
    }

    fn outcome(self, captured: Vec<Captured>) -> Outcome {
        Outcome {
            statuses: self.pes.iter().filter_map(|p| p.status).collect(),
            first_failed: self.first_failed,
            signal: self.signal,
            timed_out: self.timed_out,
            captured,
        }
    }
}

pub(super) fn timespec(d: Duration) -> Timespec {
    // A little more, so that the point in time has passed when the wait is over.
    let d = d.saturating_add(Duration::from_micros(100)).min(Duration::from_secs(86_400));
    Timespec { tv_sec: d.as_secs().cast_signed(), tv_nsec: i64::from(d.subsec_nanos()) }
}
