//! Starts the PEs of a job, listens to what they say, and looks for what they leave behind.

use std::io::{BufRead, BufReader, Read};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use rustix::time::{ClockId, clock_gettime};

/// Set in the processes that are PEs: the number that they were started with, whatever they say they are; `launched` under
/// a launcher, which sets `SYMM_PE`.
pub(crate) const ROLE: &str = "SYMM_FAULTS_PE";
/// First character of a line that is meant for the test.
pub(crate) const PREFIX: char = '\u{1e}';
/// Longest any job of these may take on a busy machine.
const LIMIT: Duration = Duration::from_secs(40);

/// Nanoseconds on the clock that all processes of this machine share.
pub(crate) fn now() -> u64 {
    let t = clock_gettime(ClockId::Monotonic);
    t.tv_sec as u64 * 1_000_000_000 + t.tv_nsec as u64
}

/// Something that a PE said: when, the word, and the rest.
#[derive(Clone, Debug)]
pub(crate) struct Said {
    pub(crate) at: u64,
    pub(crate) word: String,
    pub(crate) text: String,
}

/// A job of this binary's PEs.
#[derive(Debug)]
pub(crate) struct Job {
    pub(crate) n: usize,
    pub(crate) name: String,
    /// For all PEs.
    pub(crate) env: Vec<(String, String)>,
    /// Per PE, after those.
    pub(crate) own: Vec<Vec<(String, String)>>,
    torchrun: bool,
}

static JOBS: AtomicU32 = AtomicU32::new(0);

impl Job {
    /// `n` PEs of a job of its own, with short deadlines.
    pub(crate) fn new(n: usize) -> Self {
        let name = format!("faults-{}-{:04}", std::process::id(), JOBS.fetch_add(1, Ordering::Relaxed));
        let mut job = Job { n, name, env: Vec::new(), own: vec![Vec::new(); n], torchrun: false };
        job.set("SYMM_BACKEND", "host");
        job.set("SYMM_INIT_TIMEOUT_MS", "15000");
        job.set("SYMM_TIMEOUT_MS", "15000");
        job
    }

    pub(crate) fn set(&mut self, name: &str, value: impl ToString) {
        self.env.push((name.to_owned(), value.to_string()));
    }

    pub(crate) fn set_on(&mut self, pe: usize, name: &str, value: impl ToString) {
        self.own[pe].push((name.to_owned(), value.to_string()));
    }

    /// PE `pe` does `fault` at `moment` (`pe.rs` knows both).
    pub(crate) fn fault(&mut self, pe: usize, fault: &str, moment: &str) {
        self.set("FAULT", fault);
        self.set("FAULT_AT", moment);
        self.set("FAULT_PE", pe);
    }

    /// The PEs get torchrun's variables instead, as of several agents.
    pub(crate) fn as_torchrun(&mut self, port: u16) {
        self.torchrun = true;
        self.set("MASTER_ADDR", "127.0.0.1");
        self.set("SYMM_PORT", port);
        self.set("MASTER_PORT", port);
    }

    /// A job of the same name that does nothing wrong.
    pub(crate) fn again(&self) -> Self {
        Job { name: self.name.clone(), ..Job::new(self.n) }
    }

    /// Arguments with which this binary is a PE.
    pub(crate) fn args() -> [&'static str; 4] {
        ["--exact", "pe", "--nocapture", "--test-threads=1"]
    }

    fn command(&self, pe: usize) -> Command {
        let mut c = Command::new(std::env::current_exe().expect("own path"));
        c.args(Job::args());
        for (name, _) in std::env::vars_os() {
            if name.to_string_lossy().starts_with("SYMM_") {
                c.env_remove(name);
            }
        }
        c.env(ROLE, pe.to_string());
        if self.torchrun {
            c.env("RANK", pe.to_string()).env("WORLD_SIZE", self.n.to_string());
        } else {
            c.env("SYMM_PE", pe.to_string())
                .env("SYMM_N_PES", self.n.to_string())
                .env("SYMM_JOB", &self.name);
        }
        c.envs(self.env.iter().cloned()).envs(self.own[pe].iter().cloned());
        c
    }

    /// Starts one of the PEs.
    pub(crate) fn start_only(&self, pe: usize) -> Running {
        Running { name: self.name.clone(), pes: vec![Process::start(self.command(pe))] }
    }

    pub(crate) fn start(&self) -> Running {
        let mut running = Running { name: self.name.clone(), pes: Vec::new() };
        for pe in 0..self.n {
            running.pes.push(Process::start(self.command(pe)));
        }
        running
    }

    /// Starts it and waits for its end.
    pub(crate) fn run(&self) -> Ended {
        self.start().end()
    }
}

/// A process whose lines are read.
#[derive(Debug)]
pub(crate) struct Process {
    child: Child,
    said: Arc<Mutex<Vec<Said>>>,
    log: Arc<Mutex<String>>,
    readers: Vec<JoinHandle<()>>,
}

impl Process {
    pub(crate) fn start(mut command: Command) -> Self {
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().expect("the test's own binary should start");
        let (said, log): (Arc<Mutex<Vec<Said>>>, Arc<Mutex<String>>) = Default::default();
        let (out, mut err) = (child.stdout.take().expect("piped"), child.stderr.take().expect("piped"));
        let heard = Arc::clone(&said);
        let listen = std::thread::spawn(move || {
            for line in BufReader::new(out).lines().map_while(Result::ok) {
                // A launcher puts "[PE k] " before it, the test harness its own words.
                if let Some((_, line)) = line.split_once(PREFIX) {
                    let mut words = line.splitn(3, ' ');
                    let mut word = || words.next().unwrap_or_default().to_owned();
                    let (at, name, text) = (word().parse().unwrap_or(0), word(), word());
                    heard.lock().expect("no panic").push(Said { at, word: name, text });
                }
            }
        });
        let logged = Arc::clone(&log);
        let read = std::thread::spawn(move || {
            let mut buffer = [0; 4096];
            while let Ok(n @ 1..) = err.read(&mut buffer) {
                logged.lock().expect("no panic").push_str(&String::from_utf8_lossy(&buffer[..n]));
            }
        });
        Process { child, said, log, readers: vec![listen, read] }
    }

    pub(crate) fn pid(&self) -> Pid {
        Pid::from_raw(self.child.id().cast_signed()).expect("a pid")
    }

    pub(crate) fn signal(&self, signal: Signal) {
        // It may have ended.
        let _ = kill_process(self.pid(), signal);
    }

    pub(crate) fn said(&self) -> Vec<Said> {
        self.said.lock().expect("no panic").clone()
    }

    /// What it says after `word`, which must come.
    pub(crate) fn await_word(&self, word: &str) -> Said {
        let began = Instant::now();
        loop {
            if let Some(said) = self.said().into_iter().find(|s| s.word == word) {
                return said;
            }
            let log = self.log.lock().expect("no panic").clone();
            assert!(began.elapsed() < LIMIT, "no {word:?} came: {:?}\n{log}", self.said());
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    /// Whether it is stopped by a signal.
    pub(crate) fn is_stopped(&self) -> bool {
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", self.child.id())).unwrap_or_default();
        stat.rsplit_once(") ").is_some_and(|(_, rest)| rest.starts_with('T'))
    }

    pub(crate) fn wait(&mut self) -> ExitStatus {
        let began = Instant::now();
        let status = loop {
            if let Some(status) = self.child.try_wait().expect("a child") {
                break status;
            }
            assert!(began.elapsed() < LIMIT, "a PE does not end: {:?}", self.said());
            std::thread::sleep(Duration::from_millis(1));
        };
        for reader in self.readers.drain(..) {
            reader.join().expect("no panic");
        }
        status
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A job whose PEs run.
#[derive(Debug)]
pub(crate) struct Running {
    name: String,
    pub(crate) pes: Vec<Process>,
}

impl Running {
    /// Starts one more PE.
    pub(crate) fn add(&mut self, job: &Job, pe: usize) {
        self.pes.push(Process::start(job.command(pe)));
    }

    /// Waits for the end of every PE, and looks for what is left.
    pub(crate) fn end(self) -> Ended {
        let name = self.name.clone();
        let ended = self.end_beside();
        nothing_left(&name);
        ended
    }

    /// The same where another job has its name.
    pub(crate) fn end_beside(mut self) -> Ended {
        let pes = self.pes.iter_mut();
        let pes = pes
            .map(|p| {
                let status = p.wait();
                End { status, said: p.said(), log: p.log.lock().expect("no panic").clone() }
            })
            .collect();
        Ended { pes }
    }
}

/// No address of the job is taken, and nothing of it lies in shared memory. Its memory has no name and went with the
/// processes, which were all waited for.
pub(crate) fn nothing_left(job: &str) {
    let sockets = std::fs::read_to_string("/proc/net/unix").expect("readable");
    assert!(!sockets.contains(job), "a socket is left:\n{sockets}");
    let shm = std::fs::read_dir("/dev/shm").into_iter().flatten().flatten();
    let ours = shm.map(|e| e.file_name().to_string_lossy().into_owned()).find(|n| n.contains(job));
    assert_eq!(ours, None, "a file is left in /dev/shm");
}

/// How one PE ended, and what it said.
#[derive(Clone, Debug)]
pub(crate) struct End {
    pub(crate) status: ExitStatus,
    pub(crate) said: Vec<Said>,
    pub(crate) log: String,
}

impl End {
    pub(crate) fn word(&self, word: &str) -> Option<&Said> {
        self.said.iter().find(|s| s.word == word)
    }

    /// The first error that it met: its kind, its text.
    pub(crate) fn error(&self) -> (String, String) {
        let said = self.word("error").unwrap_or_else(|| panic!("no error: {:?}\n{}", self.said, self.log));
        let (kind, text) = said.text.split_once(' ').unwrap_or((&said.text, ""));
        (kind.to_owned(), text.to_owned())
    }
}

/// A job that has ended.
#[derive(Clone, Debug)]
pub(crate) struct Ended {
    pub(crate) pes: Vec<End>,
}

impl Ended {
    /// Every PE but `but` met an error of that kind as its first, whose text has all of `words`, within `limit` after
    /// PE `but` did what it did.
    #[track_caller]
    pub(crate) fn told(&self, what: &str, but: usize, kind: &str, words: &[&str], limit: Duration) {
        let acted = self.pes[but].word("acts").map(|s| s.at);
        for (pe, end) in self.pes.iter().enumerate().filter(|(pe, _)| *pe != but) {
            let (got, text) = end.error();
            println!("{what}: PE {pe}: {got}: {text}");
            assert!(got == kind && words.iter().all(|w| text.contains(w)), "{what}: PE {pe}: {got}: {text}");
            let at = end.word("error").map_or(0, |s| s.at);
            let after = Duration::from_nanos(at.saturating_sub(acted.unwrap_or(at)));
            assert!(after < limit, "{what}: PE {pe} was told after {after:?}");
            assert!(!end.status.success(), "{what}: PE {pe} ended with {}", end.status);
        }
    }

    /// The others missed PE `pe` at `what`. One whose deadline passed a moment after that of another may report that one,
    /// which has left by then.
    #[track_caller]
    pub(crate) fn missed(&self, what: &str, pe: usize) {
        let others = self.pes.iter().enumerate().filter(|(p, _)| *p != pe);
        let errors: Vec<_> = others.map(|(_, end)| end.error()).collect();
        println!("{what}: {errors:?}");
        let late = format!("late: PE {pe}");
        let missed = |(kind, text): &(String, String)| kind == "Timeout" && text.contains(&late);
        assert!(errors.iter().any(missed), "{what}: {errors:?}");
        assert!(errors.iter().all(|e| missed(e) || e.0 == "PeerFailed"), "{what}: {errors:?}");
    }

    #[track_caller]
    pub(crate) fn all_well(&self, what: &str) {
        for (pe, end) in self.pes.iter().enumerate() {
            assert!(
                end.status.success(),
                "{what}: PE {pe} ended with {}: {:?}\n{}",
                end.status,
                end.said,
                end.log
            );
        }
    }
}
