//! PMI, as MPICH's `mpirun` (hydra) serves it: lines of words over a descriptor that the process inherits.
//!
//! It is used to find the others and finished before anything else happens, because hydra takes a process that ends with
//! it open for a crashed one. A program that uses MPICH as well initialises MPI first and takes the feature `mpi`.

use std::collections::HashMap;
use std::io::{BufRead, BufReader, ErrorKind, Read, Write};
use std::os::fd::{FromRawFd, OwnedFd, RawFd};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use super::family::number;
use super::{job_name, secret};
use crate::bootstrap::{Bootstrap, Contacts, Identity, Secret, Sockets, Whereabouts};
use crate::config::Config;
use crate::deadline::Deadline;
use crate::error::{Error, Result};
use crate::pe::Pe;

/// Whether this process has started by PMI before.
static STARTED: AtomicBool = AtomicBool::new(false);

/// The error of another start of this process, which ended with `error`.
fn again(error: &Error) -> Error {
    let why = format!(
        "this process has opened its world already, and a launcher that speaks PMI starts a process once, also after finalize; \
         clones of the World are the same world ({error})"
    );
    Error::Bootstrap { call: "PMI", why }
}

/// How long the launcher may take to take leave.
const FAREWELL: Duration = Duration::from_secs(1);
/// Longest line that is taken from the launcher.
const LINE: u64 = 8192;

pub(super) fn start(config: &Config, env: &impl Fn(&str) -> Option<String>) -> Result<Arc<dyn Bootstrap>> {
    let deadline = Deadline::after(config.init_timeout);
    let fd = number(env, "PMI_FD", i32::MAX as u64)? as RawFd;
    let n_pes = number(env, "PMI_SIZE", 1 << 20)? as usize;
    let pe = Pe(number(env, "PMI_RANK", n_pes.max(1) as u64)? as u32);
    let mut session = Session::open(fd, deadline)
        .map_err(|e| if STARTED.load(Ordering::Relaxed) { again(&e) } else { e })?;
    STARTED.store(true, Ordering::Relaxed);
    let mut identity =
        Identity { pe, n_pes, job: job_name("pmi", &[&session.space]), secret: secret(config) };
    if session.is_one_host() {
        // Nobody needs to be told anything, and who is late is named; their user is checked instead of a secret.
        session.finish();
        let boot = Sockets::join(identity, Whereabouts::OneHost, deadline)?;
        return Ok(boot);
    }
    if !identity.secret.is_some() {
        if pe == Pe(0) {
            session.put(&secret_key(), &Secret::random()?)?;
        }
        session.barrier(deadline)?;
        identity.secret = Secret::new(&session.get(&secret_key())?);
    }
    let mut contacts = Space { session: &mut session, pe };
    let interfaces = config.interfaces.as_deref();
    let boot =
        Sockets::join(identity, Whereabouts::Anywhere { contacts: &mut contacts, interfaces }, deadline);
    session.finish();
    Ok(boot?)
}

fn secret_key() -> String {
    "symm-secret".to_owned()
}

/// The key-value space, to find the others.
struct Space<'a> {
    session: &'a mut Session,
    pe: Pe,
}

impl Contacts for Space<'_> {
    fn exchange(&mut self, card: &[u8], wanted: &[Pe], deadline: Deadline) -> Result<Vec<Vec<u8>>> {
        self.session.put(&format!("symm-card-{}", self.pe), card)?;
        self.session.barrier(deadline)?;
        wanted.iter().map(|pe| self.session.get(&format!("symm-card-{pe}"))).collect()
    }
}

/// The conversation with the launcher.
struct Session {
    /// As a socket, which is what hydra gives: it can be read under a deadline.
    stream: BufReader<UnixStream>,
    /// Name of the job's key-value space.
    space: String,
    /// Longest value.
    longest: usize,
}

impl Session {
    fn open(fd: RawFd, deadline: Deadline) -> Result<Session> {
        // A copy, so that the descriptor stays open for an MPI that may be initialised later.
        // SAFETY: `fcntl` checks the number that the launcher gave; a copy is this session's own.
        let copy = unsafe { libc::fcntl(fd, libc::F_DUPFD_CLOEXEC, 0) };
        if copy < 0 {
            let e = rustix::io::Errno::from_io_error(&std::io::Error::last_os_error());
            return Err(Error::system("fcntl(PMI_FD)", e.unwrap_or(rustix::io::Errno::BADF)));
        }
        // SAFETY: the copy is open and nobody else has it.
        let stream = UnixStream::from(unsafe { OwnedFd::from_raw_fd(copy) });
        let mut session = Session { stream: BufReader::new(stream), space: String::new(), longest: 0 };
        session.limit(deadline)?;
        session.ask("init pmi_version=1 pmi_subversion=1", "response_to_init")?;
        let most = session.ask("get_maxes", "maxes")?;
        session.longest = most.get("vallen_max").and_then(|n| n.parse().ok()).unwrap_or(256);
        let named = session.ask("get_my_kvsname", "my_kvsname")?;
        session.space = named.get("kvsname").cloned().unwrap_or_default();
        Ok(session)
    }

    fn limit(&self, deadline: Deadline) -> Result<()> {
        let left = deadline.left().max(Duration::from_millis(1));
        let set = self.stream.get_ref().set_read_timeout(Some(left));
        set.map_err(|e| failed("setsockopt", &e.to_string()))
    }

    /// Sends one command and takes its answer's words.
    fn ask(&mut self, command: &str, answer: &'static str) -> Result<HashMap<String, String>> {
        let told = self.stream.get_mut().write_all(format!("cmd={command}\n").as_bytes());
        told.map_err(|e| failed(answer, &e.to_string()))?;
        let mut line = String::new();
        match (&mut self.stream).take(LINE).read_line(&mut line) {
            Ok(_) if line.ends_with('\n') => {}
            Ok(_) => return Err(failed(answer, "the launcher hung up")),
            Err(e) if [ErrorKind::WouldBlock, ErrorKind::TimedOut].contains(&e.kind()) => {
                return Err(failed(
                    answer,
                    "no answer in time: not every PE came, PMI does not tell who is missing",
                ));
            }
            Err(e) => return Err(failed(answer, &e.to_string())),
        }
        let words = words(&line);
        let got = words.get("cmd").map(String::as_str);
        let good = words.get("rc").is_none_or(|rc| rc == "0");
        if got != Some(answer) || !good {
            return Err(failed(answer, &format!("the launcher said {:?}", line.trim_end())));
        }
        Ok(words)
    }

    fn put(&mut self, key: &str, bytes: &[u8]) -> Result<()> {
        let value: String = bytes.iter().map(|b| format!("{b:02x}")).collect();
        if value.len() >= self.longest {
            let why = format!(
                "{} characters, {} are allowed: SYMM_IFNAME names fewer interfaces",
                value.len(),
                self.longest
            );
            return Err(failed("put_result", &why));
        }
        let command = format!("put kvsname={} key={key} value={value}", self.space);
        self.ask(&command, "put_result").map(drop)
    }

    fn get(&mut self, key: &str) -> Result<Vec<u8>> {
        let command = format!("get kvsname={} key={key}", self.space);
        let words = self.ask(&command, "get_result")?;
        let text = words.get("value").map(String::as_str).unwrap_or_default();
        let wrong = || failed("get_result", &format!("{key} has the value {text:?}"));
        let (pairs, rest) = text.as_bytes().as_chunks::<2>();
        if !rest.is_empty() {
            return Err(wrong());
        }
        let byte = |pair: &[u8; 2]| {
            let text = std::str::from_utf8(pair).ok()?;
            u8::from_str_radix(text, 16).ok()
        };
        pairs.iter().map(byte).collect::<Option<_>>().ok_or_else(wrong)
    }

    /// Returns once every PE has called it; what they put can be got then.
    fn barrier(&mut self, deadline: Deadline) -> Result<()> {
        self.limit(deadline)?;
        self.ask("barrier_in", "barrier_out").map(drop)
    }

    /// Whether the launcher says that it started all PEs on one host.
    fn is_one_host(&mut self) -> bool {
        let command = format!("get kvsname={} key=PMI_process_mapping", self.space);
        // One that does not say it, or not in this form, has started them anywhere.
        self.ask(&command, "get_result").is_ok_and(|words| {
            words.get("value").and_then(|mapping| hosts(mapping)).is_some_and(|hosts| hosts == 1)
        })
    }

    fn finish(mut self) {
        let told = self.limit(Deadline::after(FAREWELL)).and_then(|()| self.ask("finalize", "finalize_ack"));
        if let Err(e) = told {
            log::warn!("{}: {e}", crate::pe::here());
        }
    }
}

/// Hosts of a mapping: `(vector,(first host, hosts, PEs on each),…)`.
fn hosts(mapping: &str) -> Option<u64> {
    let blocks = mapping.strip_prefix("(vector,")?.strip_suffix(')')?;
    let mut most = 0;
    for block in blocks.split_inclusive(')') {
        let block = block.trim_start_matches(',').strip_prefix('(')?.strip_suffix(')')?;
        let mut numbers = block.split(',').map(|n| n.parse::<u64>().ok());
        let (first, count) = (numbers.next()??, numbers.next()??);
        most = most.max(first.checked_add(count)?);
    }
    Some(most)
}

fn words(line: &str) -> HashMap<String, String> {
    let pairs = line.split_whitespace().filter_map(|word| word.split_once('='));
    pairs.map(|(name, value)| (name.to_owned(), value.to_owned())).collect()
}

fn failed(what: &'static str, why: &str) -> Error {
    Error::Bootstrap { call: "PMI", why: format!("{what}: {why}") }
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsRawFd;

    use super::*;

    /// A session with a launcher that gives these answers, one a command.
    fn with(answers: &'static [&'static str]) -> (Result<Session>, std::thread::JoinHandle<Vec<String>>) {
        let (ours, theirs) = UnixStream::pair().expect("a pair");
        let launcher = std::thread::spawn(move || {
            let mut reader = BufReader::new(theirs);
            let mut heard = Vec::new();
            for answer in answers {
                let mut line = String::new();
                reader.read_line(&mut line).expect("a command");
                heard.push(line.trim_end().to_owned());
                reader.get_mut().write_all(answer.as_bytes()).expect("room");
            }
            heard
        });
        (Session::open(ours.as_raw_fd(), Deadline::after(Duration::from_secs(5))), launcher)
    }

    const START: [&str; 3] = [
        "cmd=response_to_init pmi_version=1 pmi_subversion=1 rc=0\n",
        "cmd=maxes kvsname_max=256 keylen_max=64 vallen_max=32\n",
        "cmd=my_kvsname kvsname=kvs_1\n",
    ];

    #[test]
    fn a_mapping_says_how_many_hosts_there_are() {
        for (mapping, expected) in [
            ("(vector,(0,1,4))", Some(1)),
            ("(vector,(0,1,4),(0,1,2))", Some(1)),
            ("(vector,(0,2,4))", Some(2)),
            ("(vector,(0,1,4),(1,1,3))", Some(2)),
            ("(vector,(0,1))", Some(1)),
            ("(vector,(0))", None),
            ("(vector,0,1,4)", None),
            ("", None),
        ] {
            assert_eq!(hosts(mapping), expected, "{mapping}");
        }
    }

    #[test]
    fn values_travel_as_text_and_have_a_limit() {
        let answers = Box::leak(
            [
                &START[..],
                &["cmd=put_result rc=0 msg=success\n", "cmd=get_result rc=0 msg=success value=00ff\n"],
            ]
            .concat()
            .into_boxed_slice(),
        );
        let (session, launcher) = with(answers);
        let mut session = session.expect("open");
        session.put("k", &[0, 255]).expect("put");
        assert_eq!(session.get("k"), Ok(vec![0, 255]));
        assert!(session.put("k", &[0; 16]).is_err());
        let heard = launcher.join().expect("no panic");
        assert_eq!(heard[3], "cmd=put kvsname=kvs_1 key=k value=00ff");
    }

    /// Which hangs up after the first: a broken pipe is not what there is to say of that.
    #[test]
    fn a_second_start_of_a_process_says_that_it_is_one() {
        let (ours, theirs) = UnixStream::pair().expect("a pair");
        let launcher = std::thread::spawn(move || {
            let rest = ["cmd=get_result rc=0 value=(vector,(0,1,1))\n", "cmd=finalize_ack rc=0\n"];
            let mut reader = BufReader::new(theirs);
            for answer in START.into_iter().chain(rest) {
                reader.read_line(&mut String::new()).expect("a command");
                reader.get_mut().write_all(answer.as_bytes()).expect("room");
            }
        });
        let fd = ours.as_raw_fd().to_string();
        let env = |name: &str| match name {
            "PMI_FD" => Some(fd.clone()),
            "PMI_SIZE" => Some("1".to_owned()),
            "PMI_RANK" => Some("0".to_owned()),
            _ => None,
        };
        let config = Config::default();
        start(&config, &env).expect("the first").close();
        launcher.join().expect("no panic");
        let said = start(&config, &env).expect_err("the launcher is gone").to_string();
        assert!(said.starts_with("bootstrap: PMI: this process has opened its world already"), "{said}");
    }

    #[test]
    fn what_the_launcher_should_not_say_is_an_error_that_quotes_it() {
        for (answer, part) in [
            ("cmd=response_to_init rc=-1\n", "rc=-1"),
            ("nonsense\n", "nonsense"),
            ("cmd=maxes\n", "maxes"),
            ("", "hung up"),
        ] {
            let answers = Box::leak(vec![answer].into_boxed_slice());
            let (session, launcher) = with(answers);
            let e = session.err().expect("refused").to_string();
            launcher.join().expect("no panic");
            assert!(e.contains(part), "{e}");
        }
        assert!(matches!(
            Session::open(-1, Deadline::after(Duration::ZERO)).err(),
            Some(Error::System { .. })
        ));
    }
}
