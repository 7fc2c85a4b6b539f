//! The parent's side of one group of PE processes: starts them, tells them what to run, takes what they say and log.

use std::io::{BufRead, BufReader, Read, Write};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use super::launched;
use super::select::Configuration;

/// Set in the processes that are PEs.
pub(crate) const MARK: &str = "SYMM_CONFORMANCE_PE";

/// Settings that say what the machine has and how it starts PEs, not what a case wants: passed on to the PEs.
const OF_THE_MACHINE: [&str; 8] = [
    "SYMM_ALLOW_SHARED_GPU",
    "SYMM_ALL_REDUCE_PUSH",
    "SYMM_ALL_REDUCE_PUSH_PAIR",
    "SYMM_BOOTSTRAP",
    "SYMM_HEAP",
    "SYMM_KERNELS",
    "SYMM_NVSHMEM_LIB",
    "SYMM_NVJITLINK_LIB",
];

/// Names a program that runs a command on a made-up host: `PROGRAM HOST COMMAND…`, hosts counted from 0. Backends over a
/// network have more than one node only with it.
pub(super) const ENTER: &str = "SYMM_CONFORMANCE_ENTER";
/// The setting that bounds start-up, rendezvous and recover.
pub(super) const INIT_TIMEOUT: &str = "SYMM_INIT_TIMEOUT_MS";

/// How long a group may take to open its world.
const START: Duration = Duration::from_secs(30);
/// How long a group may take to end.
const END: Duration = Duration::from_secs(15);
/// How long the other PEs have after one of them failed: their own deadlines tell what they were waiting for.
const GRACE: Duration = Duration::from_secs(3);
/// First byte of a line that is meant for the parent; everything else is log.
const PREFIX: char = '\u{1e}';

/// What a PE says about its start or a case.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Said {
    Pass,
    Fail(String),
    Skip(String),
}

impl Said {
    /// As one line.
    pub(crate) fn encode(&self) -> String {
        let (kind, text) = match self {
            Said::Pass => ("pass", ""),
            Said::Fail(why) => ("fail", why.as_str()),
            Said::Skip(why) => ("skip", why.as_str()),
        };
        format!("{PREFIX}{kind} {}", text.replace('\\', "\\\\").replace('\n', "\\n"))
    }

    fn decode(line: &str) -> Option<Said> {
        let (kind, text) = line.strip_prefix(PREFIX)?.split_once(' ')?;
        let mut text_of = String::with_capacity(text.len());
        let mut chars = text.chars();
        while let Some(c) = chars.next() {
            match c {
                '\\' => text_of.push(if chars.next() == Some('n') { '\n' } else { '\\' }),
                c => text_of.push(c),
            }
        }
        let text = text_of;
        match kind {
            "pass" => Some(Said::Pass),
            "fail" => Some(Said::Fail(text)),
            "skip" => Some(Said::Skip(text)),
            _ => None,
        }
    }
}

/// How a case ended on the whole group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    Pass,
    Skip(String),
    /// What each PE said, and their logs, the one at fault first.
    Fail(String),
}

pub(super) struct Process {
    /// `None` where a launcher started it.
    child: Option<Child>,
    commands: Option<Box<dyn Write>>,
    log: Arc<Mutex<Vec<u8>>>,
    /// Bytes of the log that belong to earlier cases.
    seen: usize,
    readers: Vec<JoinHandle<()>>,
}

/// Running PEs.
pub(crate) struct Group {
    processes: Vec<Process>,
    events: Receiver<(usize, Option<Said>)>,
    /// What started them, if this process did not.
    launcher: Option<Child>,
}

/// The process of a PE, told what to be, without saying which PE it is.
pub(super) fn prepare(command: &mut Command, configuration: &Configuration, settings: &[(&str, &str)]) {
    for (name, _) in std::env::vars_os() {
        let name_of = name.to_string_lossy();
        if name_of.starts_with("SYMM_") && !OF_THE_MACHINE.contains(&&*name_of) {
            command.env_remove(name);
        }
    }
    command
        .env(MARK, "1")
        .env("SYMM_BACKEND", &configuration.backend)
        .env("SYMM_HOST_NODES", configuration.nodes.to_string())
        .env("SYMM_HOST_SEED", "20261129")
        .env(INIT_TIMEOUT, "20000")
        .envs(settings.iter().copied());
    // NVSHMEM's own start (0.9 to 5 s) comes under the deadline that such cases set for what follows it.
    let short =
        settings.iter().find(|(name, _)| *name == INIT_TIMEOUT).and_then(|(_, ms)| ms.parse::<u64>().ok());
    if let Some(ms) = short.filter(|_| configuration.backend == "nvshmem") {
        command.env(INIT_TIMEOUT, (6 * ms).to_string());
    }
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
}

/// Takes what a PE says from where it says it.
pub(super) fn listen(
    pe: usize,
    out: impl Read + Send + 'static,
    events: Sender<(usize, Option<Said>)>,
    log: Arc<Mutex<Vec<u8>>>,
) -> JoinHandle<()> {
    std::thread::spawn(move || {
        for line in BufReader::new(out).lines().map_while(Result::ok) {
            match Said::decode(&line) {
                Some(said) => drop(events.send((pe, Some(said)))),
                None => append(&log, format!("{line}\n").as_bytes()),
            }
        }
        drop(events.send((pe, None)));
    })
}

/// Keeps what somebody writes.
pub(super) fn keep(mut from: impl Read + Send + 'static, log: Arc<Mutex<Vec<u8>>>) -> JoinHandle<()> {
    std::thread::spawn(move || {
        let mut buffer = [0; 4096];
        while let Ok(n @ 1..) = from.read(&mut buffer) {
            append(&log, &buffer[..n]);
        }
    })
}

fn append(log: &Mutex<Vec<u8>>, bytes: &[u8]) {
    log.lock().unwrap_or_else(PoisonError::into_inner).extend_from_slice(bytes);
}

fn spawn(
    configuration: &Configuration,
    settings: &[(&str, &str)],
    (pe, job): (usize, &str),
    events: &Sender<(usize, Option<Said>)>,
) -> std::io::Result<Process> {
    let this = std::env::current_exe()?;
    let mut command = match std::env::var_os(ENTER) {
        Some(enter) if configuration.backend != "host" && configuration.nodes > 1 => {
            let mut command = Command::new(enter);
            command.arg((pe * configuration.nodes as usize / configuration.n_pes).to_string()).arg(this);
            command
        }
        _ => Command::new(this),
    };
    prepare(&mut command, configuration, settings);
    command
        .env("SYMM_PE", pe.to_string())
        .env("SYMM_N_PES", configuration.n_pes.to_string())
        .env("SYMM_JOB", job);
    let mut child = command.spawn()?;
    let log = Arc::new(Mutex::new(Vec::new()));
    let mut readers = Vec::new();
    if let Some(out) = child.stdout.take() {
        readers.push(listen(pe, out, events.clone(), log.clone()));
    }
    if let Some(err) = child.stderr.take() {
        readers.push(keep(err, log.clone()));
    }
    let commands = child.stdin.take().map(|c| Box::new(c) as Box<dyn Write>);
    Ok(Process { child: Some(child), commands, log, seen: 0, readers })
}

impl Process {
    /// A PE that a launcher started, which talks over these.
    pub(super) fn over(
        commands: Box<dyn Write>,
        log: Arc<Mutex<Vec<u8>>>,
        readers: Vec<JoinHandle<()>>,
    ) -> Self {
        Process { child: None, commands: Some(commands), log, seen: 0, readers }
    }
}

impl Group {
    /// Starts the PEs and waits for their world to open.
    pub(crate) fn start(configuration: &Configuration, settings: &[(&str, &str)]) -> Result<Group, Verdict> {
        static JOBS: AtomicU64 = AtomicU64::new(0);
        let job = format!("conf-{}-{}", std::process::id(), JOBS.fetch_add(1, Ordering::Relaxed));
        let (send, events) = channel();
        let mut group = Group { processes: Vec::new(), events, launcher: None };
        if let Some(launcher) = &configuration.launcher {
            let started = launched::start(launcher, configuration, settings, &send);
            let (processes, launcher) = started.map_err(Verdict::Fail)?;
            (group.processes, group.launcher) = (processes, Some(launcher));
        }
        for pe in group.processes.len()..configuration.n_pes {
            match spawn(configuration, settings, (pe, &job), &send) {
                Ok(p) => group.processes.push(p),
                Err(e) => return Err(Verdict::Fail(format!("PE {pe} cannot be started: {e}"))),
            }
        }
        match group.collect(START) {
            Verdict::Pass => Ok(group),
            other => Err(other),
        }
    }

    /// Runs case `number` of the table on all PEs.
    pub(crate) fn run(&mut self, number: usize, limit: Duration) -> Verdict {
        for p in &mut self.processes {
            p.seen = p.log.lock().unwrap_or_else(PoisonError::into_inner).len();
            if let Some(commands) = &mut p.commands {
                // A process that is gone shows in `collect`.
                drop(writeln!(commands, "{number}").and_then(|()| commands.flush()));
            }
        }
        self.collect(limit)
    }

    /// What all PEs say, within `limit`.
    fn collect(&mut self, limit: Duration) -> Verdict {
        let n = self.processes.len();
        let mut said: Vec<Option<Said>> = vec![None; n];
        let mut ended = vec![false; n];
        // PEs at fault, in the order in which that was seen.
        let mut fault: Vec<usize> = Vec::new();
        let began = Instant::now();
        let mut deadline = began + limit;
        while (0..n).any(|pe| said[pe].is_none() && !ended[pe]) {
            match self.events.recv_timeout(deadline.saturating_duration_since(Instant::now())) {
                Ok((pe, None)) => ended[pe] = true,
                Ok((pe, Some(s))) => said[pe] = Some(s),
                Err(RecvTimeoutError::Timeout | RecvTimeoutError::Disconnected) => break,
            }
            for pe in 0..n {
                let wrong = matches!(said[pe], Some(Said::Fail(_))) || (ended[pe] && said[pe].is_none());
                if wrong && !fault.contains(&pe) {
                    fault.push(pe);
                    deadline = deadline.min(Instant::now() + GRACE);
                }
            }
        }
        let silent: Vec<usize> = (0..n).filter(|pe| said[*pe].is_none() && !ended[*pe]).collect();
        fault.extend(&silent);
        let skipped = |s: &Option<Said>| match s {
            Some(Said::Skip(why)) => Some(why.clone()),
            _ => None,
        };
        if fault.is_empty() {
            let reasons: Vec<String> = said.iter().filter_map(skipped).collect();
            return match reasons.first() {
                None => Verdict::Pass,
                Some(why) if reasons.len() == n => Verdict::Skip(why.clone()),
                Some(why) => {
                    Verdict::Fail(format!("{} of {n} PEs skipped ({why}), the others passed", reasons.len()))
                }
            };
        }
        let order = fault.iter().copied().chain((0..n).filter(|pe| !fault.contains(pe)));
        let waited = began.elapsed();
        let order: Vec<usize> = order.collect();
        self.kill();
        Verdict::Fail(order.into_iter().map(|pe| self.report(pe, &said[pe], ended[pe], waited)).collect())
    }

    fn report(&mut self, pe: usize, said: &Option<Said>, ended: bool, waited: Duration) -> String {
        let p = &mut self.processes[pe];
        let what = match said {
            Some(Said::Pass) => "passed".to_owned(),
            Some(Said::Skip(why)) => format!("skipped: {why}"),
            Some(Said::Fail(why)) => format!("FAILED: {why}"),
            None if ended => match p.child.as_mut().map(Child::try_wait) {
                Some(Ok(Some(status))) => format!("FAILED: its process ended ({status})"),
                _ => "FAILED: its process ended".to_owned(),
            },
            None => format!("FAILED: said nothing for {:.1} s", waited.as_secs_f64()),
        };
        let log = p.log.lock().unwrap_or_else(PoisonError::into_inner);
        let text = String::from_utf8_lossy(&log[p.seen.min(log.len())..]).into_owned();
        let lines: String = text.lines().map(|l| format!("    | {l}\n")).collect();
        format!("  PE {pe} {what}\n{lines}")
    }

    /// Ends the PEs: they finalize, and must all exit with 0.
    pub(crate) fn end(mut self) -> Result<(), String> {
        for p in &mut self.processes {
            p.commands = None;
        }
        let deadline = Instant::now() + END;
        let mut wrong = String::new();
        for pe in 0..self.processes.len() {
            // A launcher passes on how its processes ended.
            let Some(child) = self.processes[pe].child.as_mut().or(self.launcher.as_mut()) else { continue };
            let status = loop {
                match child.try_wait() {
                    Ok(Some(status)) => break Some(status),
                    Ok(None) if Instant::now() < deadline => std::thread::sleep(Duration::from_millis(1)),
                    _ => break None,
                }
            };
            if status.is_none_or(|s| !s.success()) {
                let how = status.map_or("did not end".to_owned(), |s| format!("ended with {s}"));
                let report = self.report(pe, &Some(Said::Fail(how)), true, END);
                wrong.push_str(&report);
            }
        }
        if wrong.is_empty() { Ok(()) } else { Err(wrong) }
    }

    /// Ends what still runs and takes the rest of the logs.
    fn kill(&mut self) {
        let children = self.processes.iter_mut().filter_map(|p| p.child.as_mut());
        for child in children.chain(&mut self.launcher) {
            // An error means that it ended by itself. A launcher's processes end with it.
            drop(child.kill());
        }
        if let Some(launcher) = &mut self.launcher {
            drop(launcher.wait());
        }
        for p in &mut self.processes {
            // Also where its process cannot be ended from here.
            p.commands = None;
            if let Some(child) = &mut p.child {
                drop(child.wait());
            }
            for r in p.readers.drain(..) {
                drop(r.join());
            }
        }
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        self.kill();
    }
}
