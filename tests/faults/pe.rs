//! The program that the jobs run: it starts, meets, works, works again, ends; one PE does what it is told at one moment.
//!
//! | moment | what the others do meanwhile |
//! |---|---|
//! | `before` | start |
//! | `init` | are connected with it, and start |
//! | `rendezvous` | rendezvous |
//! | `operation` | are in a collective and wait for it |
//! | `between` | nothing that needs it; then the next operation |
//! | `finalize` | finalize |

use std::io::Write;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixListener};
use std::time::{Duration, Instant};

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use symm::{Builder, DType, Error, Handle, Local, Options, Result, Span, Stream, Team, World};

use crate::job::{PREFIX, ROLE, now};
use crate::reuse;

fn env(name: &str) -> String {
    std::env::var(name).unwrap_or_default()
}

/// Tells the test something.
pub(crate) fn say(word: &str, text: &str) {
    let mut out = std::io::stdout().lock();
    // The launcher may be gone, which some of the tests are about.
    let _ = writeln!(out, "{PREFIX}{} {word} {text}", now());
    let _ = out.flush();
}

/// CPU time of this process so far.
pub(crate) fn cpu() -> Duration {
    let t = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    Duration::new(t.tv_sec as u64, t.tv_nsec as u32)
}

/// Says what came of a step, and how much of the time it took this PE computed.
pub(crate) fn step<T>(name: &str, body: impl FnOnce() -> Result<T>) -> Result<T> {
    let (began, computed) = (Instant::now(), cpu());
    let result = body();
    let (wall, computed) = (began.elapsed(), cpu() - computed);
    match &result {
        Ok(_) => say("passed", name),
        Err(e) => {
            // One line, as `Display` is.
            say("error", &format!("{} {e}", e.kind()));
            say("waited", &format!("{} {}", wall.as_micros(), computed.as_micros()));
        }
    }
    result
}

/// Does the fault if it is this PE's turn; an error is for `main` to return.
fn at(moment: &str) -> Result<()> {
    let role = env(ROLE);
    let me = if role == "launched" { env("SYMM_PE") } else { role };
    if env("FAULT_AT") != moment || env("FAULT_PE") != me {
        return Ok(());
    }
    say("acts", moment);
    match env("FAULT").as_str() {
        // To this thread, which does nothing more before it is ended or stopped.
        "kill" => raise(libc::SIGKILL),
        "stop" => raise(libc::SIGSTOP),
        "exit" => std::process::exit(0),
        "panic" => panic!("a bug of the application"),
        "error" => return Err(Error::argument("main", "input", "not there", "a file of the application")),
        "sleep" => std::thread::sleep(Duration::from_secs(600)),
        "memory" => limit(Resource::As, in_use() + (env("FAULT_MIB").parse().unwrap_or(0) << 20)),
        "descriptors" => limit(Resource::Nofile, open_descriptors()),
        "cgroup" => {
            let group = env("FAULT_CGROUP");
            std::fs::write(group, std::process::id().to_string()).expect("the test made the group");
            let hog: usize = env("FAULT_HOG_MIB").parse().unwrap_or(0) << 20;
            std::hint::black_box(vec![1_u8; hog]);
        }
        "user" => become_nobody(),
        "impostor" => {
            let name = format!("symm-mem/{}/{}/0", rustix::process::getuid().as_raw(), env("SYMM_JOB"));
            become_nobody();
            let address = SocketAddr::from_abstract_name(name).expect("short enough");
            let _listener = UnixListener::bind_addr(&address).expect("the name is free");
            std::thread::sleep(Duration::from_secs(600));
        }
        other => panic!("no fault {other:?}"),
    }
    Ok(())
}

fn become_nobody() {
    // SAFETY: a plain system call that touches no memory.
    let rc = unsafe { libc::setresuid(65534, 65534, 65534) };
    assert_eq!(rc, 0, "root may become nobody");
}

fn raise(signal: i32) {
    // SAFETY: a plain call with a valid signal; none of the two has a handler.
    let rc = unsafe { libc::raise(signal) };
    assert_eq!(rc, 0, "a signal to oneself should be allowed");
}

fn limit(resource: Resource, most: u64) {
    let maximum = getrlimit(resource).maximum;
    setrlimit(resource, Rlimit { current: Some(most), maximum }).expect("a lower limit should be allowed");
}

/// Bytes of this process's address space.
fn in_use() -> u64 {
    let pages = std::fs::read_to_string("/proc/self/statm").unwrap_or_default();
    pages.split(' ').next().and_then(|p| p.parse().ok()).map_or(1 << 30, |p: u64| p * 4096)
}

fn open_descriptors() -> u64 {
    // Without the one that counts.
    std::fs::read_dir("/proc/self/fd").map_or(64, |d| d.count() as u64 - 1)
}

/// Runs the program. As at a return from `main`, everything of it is dropped before the process ends.
pub(crate) fn main() {
    let outcome = run();
    // As an application that catches the error and goes on with something else.
    if outcome.is_err() && env("LIVES_ON") == env(ROLE) {
        std::thread::sleep(Duration::from_secs(600));
    }
    std::process::exit(if outcome.is_ok() { 0 } else { 7 });
}

fn run() -> Result<()> {
    say("pid", &std::process::id().to_string());
    at("before")?;
    let builder = Builder::from_env()?;
    let world = step("init", || {
        if env("FAULT_AT") != "init" {
            return builder.init();
        }
        let boot = symm::bootstrap::start(builder.clone().config_mut())?;
        at("init")?;
        builder.init_over(boot)
    })?;
    if env("PROGRAM") == "reuse" {
        return reuse::pe(&world);
    }
    let team = world.team().clone();
    let stream = world.stream()?;
    at("rendezvous")?;
    let words = env("TENSOR_WORDS").parse().unwrap_or(1 << 14);
    let handle = step("rendezvous", || meet(&team, words))?;
    let input = world.local(DType::U32, team.world_size())?;
    let work = |round| exchange(&team, &stream, (&handle, &input.span()), round);
    // Who ends or stops after the first may do so before the others are through with it, or before what it sent is there.
    let both = || {
        work(1)?;
        at("operation")?;
        work(2)
    };
    match step("operation", both) {
        Err(_) if env("RECOVER") == "1" => {
            recover(&team)?;
            for round in 3..6 {
                work(round)?;
            }
        }
        Err(Error::PeerFailed { .. }) if !env("SURVIVORS").is_empty() => {
            return survive(&world, &handle, &input);
        }
        other => other?,
    }
    at("between")?;
    if env("FAULT_AT") == "between" {
        between(&team);
        step("between", || work(7))?;
    }
    at("finalize")?;
    say("strangers", &world.stats().strangers.to_string());
    step("finalize", || world.finalize())?;
    assert_eq!(world.stats().failed, [], "nobody failed");
    Ok(())
}

/// The handle on a new tensor; where one comes late and the job knows, at the second attempt.
fn meet(team: &Team, words: usize) -> Result<Handle> {
    let tensor = team.empty(&[words], DType::U32)?;
    match tensor.rendezvous(team) {
        Err(e @ Error::Timeout { .. }) if env("RECOVER") == "1" => {
            say("error", &format!("{} {e}", e.kind()));
            // Brings those together who counted another number of rendezvous.
            recover(team)?;
            tensor.rendezvous(team)
        }
        other => other,
    }
}

/// Goes on with who is left, until `SURVIVORS` are; one more is killed at some moment of it.
fn survive(world: &World, handle: &Handle, input: &Local) -> Result<()> {
    let survivors: usize = env("SURVIVORS").parse().expect("a number");
    if env("SECOND_PE") == env(ROLE) {
        let after = Duration::from_micros(env("SECOND_AFTER_US").parse().expect("a number"));
        std::thread::spawn(move || {
            std::thread::sleep(after);
            raise(libc::SIGKILL);
        });
    }
    let mut team = world.team().clone();
    loop {
        team = step("without", || team.without(&[]))?;
        let stream = world.stream()?;
        let worked = team.empty(&[16], DType::U32).and_then(|t| t.rendezvous(&team)).and_then(|own| {
            let input = input.span().slice(0, team.world_size())?;
            // Not a count of this loop: a member may have been through one more view than another.
            exchange(&team, &stream, (&own, &input), 10 + team.view() as u32)
        });
        match worked {
            Ok(()) if team.world_size() == survivors => break,
            // Nobody but those two dies on purpose.
            _ if team.world_size() < survivors => {
                return step("survivors", || {
                    Err(Error::argument("view", "members", format!("{:?}", team.members()), survivors))
                });
            }
            Ok(()) | Err(Error::PeerFailed { .. }) => {}
            Err(e) => return step("work", || Err(e)),
        }
    }
    say("members", &format!("{:?}", team.members()));
    assert_eq!(handle.world_size(), world.n_pes(), "the failed team's handle is what it was");
    step("finalize", || world.finalize())
}

/// Recovers; who names somebody late calls again, as long as a job may take that has one who comes at last.
fn recover(team: &Team) -> Result<()> {
    let mut tries = 3;
    loop {
        tries -= 1;
        match team.recover() {
            Err(Error::Timeout { .. }) if tries > 0 => {}
            other => return other,
        }
    }
}

/// Time in which the others have no operation under way, and may be told of a death.
fn between(team: &Team) {
    let began = Instant::now();
    while team.status().is_ok() && began.elapsed() < Duration::from_millis(700) {
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// An exchange of known values, checked, and a barrier.
fn exchange(team: &Team, stream: &Stream, (out, input): (&Handle, &Span), round: u32) -> Result<()> {
    let (rank, w) = (team.rank(), team.world_size());
    let value = |from: usize, to: usize| round * 10_000 + (from * 100 + to) as u32;
    stream.write(input, &(0..w).map(|to| value(rank, to)).collect::<Vec<_>>())?;
    team.all_to_all(stream, input, out, Options::default())?;
    team.barrier(stream, Options::default())?;
    let got: Vec<u32> = stream.read(&out.span().slice(0, w)?)?;
    stream.synchronize()?;
    let expected: Vec<u32> = (0..w).map(|from| value(from, rank)).collect();
    assert_eq!(got, expected, "data of another epoch");
    Ok(())
}
