//! Passes the PEs' output on, or collects it, on a thread of its own: who reads it may be slow.

use std::io::Write;
use std::os::fd::OwnedFd;
use std::sync::mpsc;
use std::thread::JoinHandle;
use std::time::Duration;

use rustix::event::{EventfdFlags, PollFd, PollFlags, eventfd, poll};
use rustix::io::Errno;
use symm_core::{Error, Result};

use super::spawn::Pipes;
use super::{Captured, Output};

/// Longest line that is kept whole.
const LINE_BYTES: usize = 64 << 10;
/// Reads from a pipe once the PEs are gone: more than a pipe holds by default, and an end even if a process that a PE
/// left behind writes for ever.
const LAST_READS: usize = 32;
/// How long the output of a job that was told to end is waited for.
const END_LIMIT: Duration = Duration::from_millis(500);

/// Where a source's bytes go.
enum Sink {
    /// To this process's output or error, by lines, each after the prefix.
    Lines { prefix: String, line: Vec<u8>, error: bool },
    /// Kept.
    Kept(Vec<u8>),
}

struct Source {
    pe: usize,
    error: bool,
    /// `None` once its end was reached, or nobody wants the bytes any more.
    pipe: Option<OwnedFd>,
    sink: Sink,
}

/// The relaying thread.
pub(super) struct Relay {
    thread: JoinHandle<()>,
    /// Written once all PEs are gone.
    gone: OwnedFd,
    result: mpsc::Receiver<Result<Vec<Captured>>>,
}

impl Relay {
    pub(super) fn start(pipes: Vec<Pipes>, output: Output) -> Result<Self> {
        let flags = EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK;
        let gone = eventfd(0, flags).map_err(|e| Error::system("eventfd", e))?;
        let watched = rustix::io::fcntl_dupfd_cloexec(&gone, 0);
        let watched = watched.map_err(|e| Error::system("fcntl(F_DUPFD_CLOEXEC)", e))?;
        let n = pipes.len();
        let mut sources = Vec::new();
        for (pe, Pipes { stdout, stderr }) in pipes.into_iter().enumerate() {
            for (pipe, error) in [(stdout, false), (stderr, true)] {
                // Not blocking, since a process that a PE left behind may keep the pipe open and silent.
                rustix::io::ioctl_fionbio(&pipe, true).map_err(|e| Error::system("ioctl(FIONBIO)", e))?;
                let sink = match output {
                    Output::Captured => Sink::Kept(Vec::new()),
                    _ => Sink::Lines { prefix: format!("[PE {pe}] "), line: Vec::new(), error },
                };
                sources.push(Source { pe, error, pipe: Some(pipe), sink });
            }
        }
        let (tx, result) = mpsc::channel();
        let body = move || {
            let passed = pass(&mut sources, &watched);
            // Nobody listens if the launcher gave up waiting.
            let _ = tx.send(passed.map(|()| collect(sources, n)));
        };
        let thread = std::thread::Builder::new().name("symm-relay".to_owned()).spawn(body);
        let thread = thread.map_err(|e| Error::System {
            call: "pthread_create",
            errno: e.raw_os_error().unwrap_or(0),
            text: e.to_string(),
        })?;
        Ok(Relay { thread, gone, result })
    }

    /// Tells the thread that all PEs are gone and takes what it collected. `hurry`: does not wait long for output that
    /// nobody takes.
    pub(super) fn finish(self, hurry: bool) -> Result<Vec<Captured>> {
        // Cannot fail: the counter is far from its limit.
        let _ = rustix::io::write(&self.gone, &1_u64.to_ne_bytes());
        if hurry {
            return self.result.recv_timeout(END_LIMIT).unwrap_or_else(|_| Ok(Vec::new()));
        }
        let result = self.result.recv();
        let ended = self.thread.join();
        match (result, ended) {
            (Ok(result), Ok(())) => result,
            _ => Err(Error::System {
                call: "relay",
                errno: 0,
                text: "the thread that passes output ended".to_owned(),
            }),
        }
    }
}

/// Relays until every pipe is at its end, or the PEs are gone and every pipe is empty.
fn pass(sources: &mut [Source], gone: &OwnedFd) -> Result<()> {
    let mut buffer = vec![0; LINE_BYTES];
    loop {
        let open: Vec<usize> = (0..sources.len()).filter(|i| sources[*i].pipe.is_some()).collect();
        if open.is_empty() {
            return Ok(());
        }
        let mut fds = vec![PollFd::new(gone, PollFlags::IN)];
        fds.extend(
            open.iter().filter_map(|i| sources[*i].pipe.as_ref()).map(|p| PollFd::new(p, PollFlags::IN)),
        );
        match poll(&mut fds, None) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(e) => return Err(Error::system("poll", e)),
        }
        let ready: Vec<bool> = fds.iter().map(|fd| !fd.revents().is_empty()).collect();
        let last = ready[0];
        for (i, ready) in open.into_iter().zip(&ready[1..]) {
            if *ready || last {
                sources[i].read(&mut buffer, if last { LAST_READS } else { 1 });
            }
        }
        if last {
            sources.iter_mut().for_each(Source::end);
            return Ok(());
        }
    }
}

fn collect(sources: Vec<Source>, n: usize) -> Vec<Captured> {
    let mut all = vec![Captured::default(); n];
    let mut any = false;
    for source in sources {
        if let Sink::Kept(bytes) = source.sink {
            any = true;
            let captured = &mut all[source.pe];
            *(if source.error { &mut captured.stderr } else { &mut captured.stdout }) = bytes;
        }
    }
    if any { all } else { Vec::new() }
}

impl Source {
    /// Reads up to `times` times, unless nothing is left.
    fn read(&mut self, buffer: &mut [u8], times: usize) {
        for _ in 0..times {
            let Some(pipe) = &self.pipe else { return };
            match rustix::io::read(pipe, &mut *buffer) {
                Ok(n) if n > 0 => {
                    if self.sink.take(&buffer[..n]).is_err() {
                        // Nobody reads this process's output any more; closing lets the PE know.
                        self.pipe = None;
                    }
                }
                Err(Errno::AGAIN) => return,
                Err(Errno::INTR) => {}
                Ok(_) | Err(_) => self.end(),
            }
        }
    }

    fn end(&mut self) {
        if self.pipe.take().is_some() {
            // An error is that of a reader who is gone.
            let _ = self.sink.flush();
        }
    }
}

impl Sink {
    fn take(&mut self, mut bytes: &[u8]) -> std::io::Result<()> {
        let Sink::Lines { prefix, line, error } = self else {
            if let Sink::Kept(kept) = self {
                kept.extend_from_slice(bytes);
            }
            return Ok(());
        };
        // One write for all whole lines, so that lines of PEs never mix, and few calls for much output.
        let mut out = Vec::with_capacity(bytes.len() + prefix.len());
        while let Some(end) = bytes.iter().position(|b| *b == b'\n') {
            out.extend_from_slice(prefix.as_bytes());
            out.append(line);
            out.extend_from_slice(&bytes[..=end]);
            bytes = &bytes[end + 1..];
        }
        line.extend_from_slice(bytes);
        if line.len() >= LINE_BYTES {
            out.extend_from_slice(prefix.as_bytes());
            out.append(line);
            out.push(b'\n');
        }
        write(*error, &out)
    }

    fn flush(&mut self) -> std::io::Result<()> {
        match self {
            Sink::Lines { prefix, line, error } if !line.is_empty() => {
                let mut out = std::mem::take(prefix).into_bytes();
                out.append(line);
                out.push(b'\n');
                write(*error, &out)
            }
            Sink::Lines { .. } | Sink::Kept(_) => Ok(()),
        }
    }
}

fn write(error: bool, bytes: &[u8]) -> std::io::Result<()> {
    if bytes.is_empty() {
        return Ok(());
    }
    let mut to: Box<dyn Write> =
        if error { Box::new(std::io::stderr().lock()) } else { Box::new(std::io::stdout().lock()) };
    to.write_all(bytes)?;
    to.flush()
}
