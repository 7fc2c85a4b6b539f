//! The bootstraps: the same cases over threads and over sockets, and real processes where death matters.

mod worlds;

use std::io::{BufRead, BufReader, Read, Write};
use std::os::fd::{AsFd, OwnedFd};

use std::process::{Child, ChildStdout, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, mpsc};
use std::thread;
use std::time::{Duration, Instant};

use symm_core::bootstrap::{Bootstrap, Liveness, Local, Tag, Unix, local};
use symm_core::{Config, Deadline, Error, Pe};

use worlds::{both, each, group, joined, long};

const T: Tag = Tag { team: 3, seq: 0 };

fn short() -> Deadline {
    Deadline::after(Duration::from_millis(50))
}

/// A job name that no other test, process or run has.
fn job() -> String {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    format!("test-{}-{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed))
}

fn config(job: &str, pe: usize, n: usize) -> Config {
    let mut c = Config::default();
    (c.pe, c.n_pes, c.job) = (Some(pe as u32), Some(n as u32), Some(job.to_owned()));
    c.init_timeout = Duration::from_secs(30);
    c
}

struct Told(Mutex<mpsc::Sender<(Pe, Instant)>>);

impl Liveness for Told {
    fn failed(&self, pe: Pe, why: &str) {
        assert!(!why.is_empty());
        let _ = self.0.lock().expect("no panic").send((pe, Instant::now()));
    }
}

fn told(boot: &Arc<dyn Bootstrap>) -> mpsc::Receiver<(Pe, Instant)> {
    let (tx, rx) = mpsc::channel();
    boot.watch(Arc::new(Told(Mutex::new(tx))));
    rx
}

#[test]
fn all_gather_of_uneven_sizes() {
    both(5, |world| {
        each(&world, |b| {
            let g = group(b);
            for round in 0..20 {
                let size = |pe: usize| pe * 1000 * (round % 3) + pe;
                let mine = vec![b.pe().0 as u8; size(b.pe().index())];
                let parts = g.all_gather("gather", &mine, long()).expect("all come");
                for (pe, part) in parts.iter().enumerate() {
                    assert_eq!(part, &vec![pe as u8; size(pe)]);
                }
            }
            g.barrier("end", long()).expect("all come");
        });
    });
}

#[test]
fn tags_and_senders_do_not_mix_and_order_is_kept() {
    both(3, |world| {
        let other = Tag { team: 4, seq: 0 };
        for i in 0..100_u8 {
            world[1].send(Pe(0), T, &[i, 1], &[]).expect("sent");
            world[1].send(Pe(0), other, &[i, 2], &[]).expect("sent");
            world[2].send(Pe(0), T, &[i, 3], &[]).expect("sent");
        }
        for (from, tag, mark) in [(Pe(2), T, 3), (Pe(1), other, 2), (Pe(1), T, 1)] {
            for i in 0..100_u8 {
                assert_eq!(world[0].recv(from, tag, long()).expect("kept").payload, [i, mark]);
            }
        }
        world[0].send(Pe(0), T, b"me", &[]).expect("to oneself");
        assert_eq!(world[0].recv(Pe(0), T, long()).expect("from oneself").payload, b"me");
    });
}

#[test]
fn a_hundred_thousand_messages() {
    both(2, |world| {
        let n = 100_000_u64;
        each(&world, |b| {
            let peer = Pe(1 - b.pe().0);
            for seq in 0..n {
                b.send(peer, Tag { team: 1, seq: seq % 7 }, &seq.to_le_bytes(), &[]).expect("sent");
            }
            for seq in 0..n {
                let m = b.recv(peer, Tag { team: 1, seq: seq % 7 }, long()).expect("came");
                assert_eq!(m.payload, seq.to_le_bytes());
            }
        });
    });
}

#[test]
fn large_messages_that_cross() {
    both(2, |world| {
        let bytes = 50 << 20;
        let data = |pe: Pe| (0..bytes).map(|i| (i % 251) as u8 ^ pe.0 as u8).collect::<Vec<_>>();
        // Both send all they have before either receives.
        each(&world, |b| {
            let peer = Pe(1 - b.pe().0);
            let (mine, theirs) = (data(b.pe()), data(peer));
            for seq in 0..2 {
                b.send(peer, Tag { team: 1, seq }, &mine, &[]).expect("sent");
            }
            for seq in 0..2 {
                assert!(b.recv(peer, Tag { team: 1, seq }, long()).expect("came").payload == theirs);
            }
        });
    });
}

fn pipe() -> (OwnedFd, OwnedFd) {
    let (r, w) = std::io::pipe().expect("pipe");
    (r.into(), w.into())
}

#[test]
fn descriptors_arrive_with_their_message_and_work() {
    both(2, |world| {
        let pipes: Vec<_> = (0..5).map(|_| pipe()).collect();
        let second = Tag { team: 3, seq: 1 };
        // Behind a large message, so that they wait in the queue too.
        world[0].send(Pe(1), Tag { team: 9, seq: 9 }, &vec![0; 8 << 20], &[]).expect("sent");
        for (i, (_, w)) in pipes.iter().enumerate() {
            world[0].send(Pe(1), T, &[i as u8], &[]).expect("sent");
            world[0].send(Pe(1), second, &[i as u8], &[w.as_fd(), w.as_fd()]).expect("sent");
        }
        let readers: Vec<OwnedFd> = pipes.into_iter().map(|(r, _)| r).collect();
        for (i, r) in readers.into_iter().enumerate() {
            assert!(world[1].recv(Pe(0), T, long()).expect("came").fds.is_empty());
            let m = world[1].recv(Pe(0), second, long()).expect("came");
            assert_eq!((m.payload.as_slice(), m.fds.len()), (&[i as u8][..], 2));
            for fd in m.fds {
                let flags = rustix::io::fcntl_getfd(&fd).expect("an open descriptor");
                assert!(flags.contains(rustix::io::FdFlags::CLOEXEC));
                write!(std::fs::File::from(fd), "<{i}>").expect("a pipe's end");
            }
            // Ends, because no copy of the write end is left anywhere.
            let mut text = String::new();
            std::fs::File::from(r).read_to_string(&mut text).expect("readable");
            assert_eq!(text, format!("<{i}><{i}>"));
        }
    });
}

#[test]
fn sizes_over_the_limits_are_refused_and_the_most_descriptors_pass() {
    let world = joined(2);
    let (r, _w) = pipe();
    let fds = vec![r.as_fd(); 254];
    assert!(matches!(
        world[0].send(Pe(1), T, &[], &fds),
        Err(Error::InvalidArgument { argument: "fds", .. })
    ));
    world[0].send(Pe(1), T, &[], &fds[1..]).expect("253 are allowed");
    assert_eq!(world[1].recv(Pe(0), T, long()).expect("came").fds.len(), 253);
    let huge = vec![0_u8; (1 << 30) + 1];
    assert!(matches!(
        world[0].send(Pe(1), T, &huge, &[]),
        Err(Error::InvalidArgument { argument: "payload", .. })
    ));
    for b in [&local(2)[0], &world[0]] {
        assert!(matches!(b.send(Pe(2), T, &[], &[]), Err(Error::InvalidArgument { argument: "to", .. })));
        assert!(matches!(b.recv(Pe(2), T, short()), Err(Error::InvalidArgument { argument: "from", .. })));
    }
}

#[test]
fn a_timeout_names_the_late() {
    both(4, |world| {
        let began = Instant::now();
        let e = world[0].recv(Pe(2), T, short()).expect_err("nobody sent");
        assert!(matches!(&e, Error::Timeout { late, .. } if *late == [Pe(2)]), "{e}");
        assert!(began.elapsed() >= Duration::from_millis(50));
        let errors =
            each(&world[..2], |b| group(b).barrier("half", Deadline::after(Duration::from_millis(300))));
        for e in errors {
            assert!(matches!(e, Err(Error::Timeout { op: "half", late, .. }) if late == [Pe(2), Pe(3)]));
        }
    });
}

/// What survivors see when PE 1 of 3 is gone, however it went.
fn see_death(survivors: &[&Arc<dyn Bootstrap>], kill: impl FnOnce()) {
    let reports: Vec<_> = survivors.iter().map(|b| told(b)).collect();
    let wait = |b: &&Arc<dyn Bootstrap>| {
        let b = Arc::clone(b);
        thread::spawn(move || (b.recv(Pe(1), T, long()).map(|m| m.payload), Instant::now()))
    };
    let waits: Vec<_> = survivors.iter().map(wait).collect();
    thread::sleep(Duration::from_millis(20));
    let began = Instant::now();
    kill();
    for (b, (report, wait)) in survivors.iter().zip(reports.into_iter().zip(waits)) {
        let (pe, at) = report.recv_timeout(Duration::from_secs(5)).expect("told");
        assert_eq!(pe, Pe(1));
        assert!(at - began < Duration::from_millis(500), "told after {:?}", at - began);
        let (got, at) = wait.join().expect("no panic");
        assert!(matches!(got, Err(Error::PeerFailed { pe: Pe(1), .. })), "{got:?}");
        assert!(at - began < Duration::from_millis(500));
        assert_eq!(b.failed(), [Pe(1)]);
        assert!(matches!(b.send(Pe(1), T, b"x", &[]), Err(Error::PeerFailed { pe: Pe(1), .. })));
        // A late observer is told at once, everybody only once.
        assert_eq!(told(b).try_recv().map(|(pe, _)| pe), Ok(Pe(1)));
        assert!(report.try_recv().is_err());
    }
    // The others still work.
    survivors[0].send(survivors[1].pe(), T, b"on", &[]).expect("sent");
    assert_eq!(survivors[1].recv(survivors[0].pe(), T, long()).expect("came").payload, b"on");
}

#[test]
fn an_end_that_is_dropped_or_dies_is_a_death_and_what_it_sent_is_kept() {
    both(3, |mut world| {
        let early = Tag { team: 8, seq: 8 };
        world[1].send(Pe(0), early, b"will", &[]).expect("sent");
        let dead = world.remove(1);
        see_death(&[&world[0], &world[1]], || drop(dead));
        assert_eq!(world[0].recv(Pe(1), early, long()).expect("kept").payload, b"will");
    });
    let world = Local::world(3);
    let [a, b, c] = [0, 1, 2].map(|i| Arc::clone(&world[i]) as Arc<dyn Bootstrap>);
    see_death(&[&a, &c], || world[1].die());
    assert!(matches!(b.send(Pe(0), T, &[], &[]), Err(Error::Bootstrap { .. })));
    assert!(matches!(b.recv(Pe(0), T, long()), Err(Error::Bootstrap { .. })));
}

/// In a large world only its neighbours in the tree are connected with a PE; the others are told.
#[test]
fn a_death_is_told_along_the_tree() {
    let mut world = joined(20);
    // An inner PE, then the root, over which the first was told.
    for (index, gone) in [(8, vec![Pe(8)]), (0, vec![Pe(0), Pe(8)])] {
        let began = Instant::now();
        drop(world.remove(index));
        while world.iter().any(|b| b.failed() != gone) {
            assert!(began.elapsed() < Duration::from_secs(5), "not everybody was told of {gone:?}");
            thread::sleep(Duration::from_millis(1));
        }
    }
}

/// How a part of a call "test" begins.
const PART: &[u8] = b"\0\x04test";

/// A death ends an exchange at once, whoever else has not come: who met it earlier comes no more. Its part has reached
/// those who live.
#[test]
fn an_exchange_that_a_death_ended_waits_for_nobody() {
    let mut world = joined(4);
    drop(world.remove(2));
    let began = Instant::now();
    while world.iter().any(|b| b.failed() != [Pe(2)]) {
        assert!(began.elapsed() < Duration::from_secs(5), "not noticed");
        thread::sleep(Duration::from_millis(1));
    }
    let [zero, one, three] = &world[..] else { panic!("three are left") };
    // PE 3 hears first of PE 2, PE 1 sends first to it; PE 0 does not come.
    for boot in [three, one] {
        let began = Instant::now();
        let e = group(boot).all_gather("test", &[boot.pe().0 as u8], long()).expect_err("one is gone");
        assert!(matches!(e, Error::PeerFailed { pe: Pe(2), .. }), "{e}");
        assert!(began.elapsed() < Duration::from_secs(5), "{:?}", began.elapsed());
    }
    let tag = Tag { team: group(zero).id(), seq: 0 };
    for from in [1, 3] {
        let message = zero.recv(Pe(from), tag, long()).expect("its part").payload;
        assert_eq!(message, [PART, &[from as u8]].concat());
    }
}

/// One that died had done its part, but another had heard of its death and does not come.
#[test]
fn an_exchange_with_the_part_of_a_dead_pe_ends_soon_all_the_same() {
    let mut world = joined(3);
    let tag = Tag { team: group(&world[0]).id(), seq: 0 };
    let dead = world.remove(1);
    for to in [0, 2] {
        dead.send(Pe(to), tag, PART, &[]).expect("alive");
    }
    thread::scope(|s| {
        let waits = s.spawn(|| group(&world[0]).all_gather("test", b"", long()));
        // So that it waits before it hears.
        thread::sleep(Duration::from_millis(100));
        let began = Instant::now();
        drop(dead);
        let e = waits.join().expect("no panic").expect_err("PE 2 does not come");
        assert!(matches!(e, Error::PeerFailed { pe: Pe(1), .. }), "{e}");
        assert!(began.elapsed() < Duration::from_secs(5), "{:?}", began.elapsed());
    });
}

#[test]
fn an_observer_that_panics_harms_nobody_else() {
    struct Panics;
    impl Liveness for Panics {
        fn failed(&self, _: Pe, _: &str) {
            panic!("an observer's fault");
        }
    }
    both(3, |mut world| {
        world[0].watch(Arc::new(Panics));
        let report = told(&world[0]);
        drop(world.remove(1));
        assert_eq!(report.recv_timeout(Duration::from_secs(5)).map(|(pe, _)| pe), Ok(Pe(1)));
        world[1].send(Pe(0), T, b"on", &[]).expect("sent");
        assert_eq!(world[0].recv(Pe(2), T, long()).expect("came").payload, b"on");
    });
}

#[test]
fn a_world_of_one_needs_no_job() {
    for b in [Unix::join(&Config::default()).expect("alone"), local(1).remove(0)] {
        assert_eq!((b.pe(), b.n_pes()), (Pe(0), 1));
        assert_eq!(group(&b).all_gather("alone", b"x", short()).expect("alone"), [b"x"]);
        b.send(Pe(0), T, b"me", &[]).expect("to oneself");
        assert_eq!(b.recv(Pe(0), T, short()).expect("from oneself").payload, b"me");
        b.close();
    }
}

#[test]
fn half_set_settings_name_what_is_missing() {
    let mut c = config("j", 0, 2);
    c.job = None;
    assert!(matches!(Unix::join(&c), Err(Error::Setting { name: "SYMM_JOB", .. })));
    let mut c = config("j", 0, 2);
    c.pe = None;
    assert!(matches!(Unix::join(&c), Err(Error::Setting { name: "SYMM_PE", .. })));
    assert!(matches!(Unix::join(&config("j", 2, 2)), Err(Error::Setting { name: "SYMM_PE", .. })));
}

// Real processes: this binary, told by the environment what to be.

/// Does nothing unless another test of this file started this process as a PE.
#[test]
fn child() {
    let Ok(role) = std::env::var("BOOT_ROLE") else { return };
    let boot = Unix::join(&Config::from_env().expect("settings")).expect("the mesh is complete");
    let g = group(&boot);
    let mine = std::process::id().to_string();
    let pids = g.all_gather("pids", mine.as_bytes(), long()).expect("all come");
    assert_eq!(pids[boot.pe().index()], mine.as_bytes());
    let mut out = std::io::stdout();
    writeln!(out, "joined {}", pids.len()).expect("a pipe");
    match role.as_str() {
        "leave" => {
            g.barrier("end", long()).expect("all come");
            boot.close();
        }
        "forked" => {
            // A program that holds copies of all connections open after this process is gone.
            let all = std::fs::read_dir("/proc/self/fd").expect("proc").flatten();
            let sockets = all.filter(|e| {
                std::fs::read_link(e.path()).is_ok_and(|to| to.to_string_lossy().starts_with("socket:"))
            });
            let copies: Vec<_> = sockets
                .map(|e| {
                    let fd: i32 = e.file_name().to_string_lossy().parse().expect("a number");
                    // SAFETY: the bootstrap lives to the end of this function, so its sockets stay open.
                    let fd = unsafe { std::os::fd::BorrowedFd::borrow_raw(fd) };
                    rustix::io::dup(fd).expect("dup")
                })
                .collect();
            assert_eq!(copies.len(), boot.n_pes(), "a connection to each other PE, and the address");
            let mut sleep = Command::new("sleep");
            let mut sleep =
                sleep.arg("20").stdout(Stdio::null()).stderr(Stdio::null()).spawn().expect("sleep");
            writeln!(out, "parked {}", sleep.id()).expect("a pipe");
            sleep.wait().expect("a child");
        }
        _ => thread::sleep(Duration::from_secs(20)),
    }
}

struct Process {
    child: Child,
    out: BufReader<ChildStdout>,
}

impl Process {
    fn start(job: &str, pe: usize, n: usize, role: &str) -> Self {
        let mut c = Command::new(std::env::current_exe().expect("own path"));
        c.args(["--exact", "child", "--nocapture", "--test-threads=1"]).stdout(Stdio::piped());
        c.env("BOOT_ROLE", role).env("SYMM_JOB", job);
        c.env("SYMM_PE", pe.to_string()).env("SYMM_N_PES", n.to_string());
        let mut child = c.spawn().expect("start");
        let out = BufReader::new(child.stdout.take().expect("piped"));
        Process { child, out }
    }

    /// The number that follows `word` in the next line that has it.
    fn said(&mut self, word: &str) -> i32 {
        let mut lines = self.out.by_ref().lines().map(|l| l.expect("readable"));
        let number = lines.find_map(|l| l.split_once(&format!("{word} ")).map(|(_, n)| n.trim().parse()));
        number.expect("said").expect("a number")
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn sixty_four_processes_meet_and_leave() {
    let name = job();
    let mut pes: Vec<_> = (0..64).map(|pe| Process::start(&name, pe, 64, "leave")).collect();
    for p in &mut pes {
        let mut text = String::new();
        p.out.read_to_string(&mut text).expect("readable");
        assert!(p.child.wait().expect("ended").success(), "{text}");
        assert!(text.contains("joined 64"), "{text}");
    }
}

#[test]
fn kill_9_is_noticed_well_within_a_second() {
    for role in ["stay", "forked"] {
        let name = job();
        let mut victim = Process::start(&name, 1, 3, role);
        let others = [0, 2].map(|pe| config(&name, pe, 3));
        let threads = others.map(|c| thread::spawn(move || Unix::join(&c).expect("complete")));
        let world = threads.map(|t| t.join().expect("no panic"));
        each(&world, |b| group(b).all_gather("pids", b"thread", long()).expect("all come"));
        assert_eq!(victim.said("joined"), 3);
        let parked = (role == "forked").then(|| victim.said("parked"));
        see_death(&[&world[0], &world[1]], || victim.child.kill().expect("alive"));
        if let Some(pid) = parked.and_then(rustix::process::Pid::from_raw) {
            rustix::process::kill_process(pid, rustix::process::Signal::KILL).expect("the test started it");
        }
    }
}
