//! Jobs that cannot start, a second job at the same address, and strangers at the door.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixStream};
use std::time::{Duration, Instant};

use crate::job::{Ended, Job};
use crate::silence::await_stop;

/// Deadline of the start in jobs that run into it.
const LIMIT_MS: u64 = 1500;

/// A port of this host that was free just now.
fn port() -> u16 {
    TcpListener::bind("127.0.0.1:0").and_then(|l| l.local_addr()).expect("a free port").port()
}

/// Each PE's first error has its kind and words.
#[track_caller]
fn all_told(what: &str, ended: &Ended, expected: &[(&str, &[&str])]) {
    for (pe, (end, (kind, words))) in ended.pes.iter().zip(expected).enumerate() {
        let (got, text) = end.error();
        println!("{what}: process {pe}: {got}: {text}");
        assert!(got == *kind && words.iter().all(|w| text.contains(w)), "{what}: {pe}: {got}: {text}");
        assert!(!end.status.success(), "{what}: {pe} ended with {}", end.status);
    }
}

/// Also two PEs that choose different backends, and a WORLD_SIZE that does not match.
#[test]
fn settings_that_differ() {
    for (name, values) in [
        ("SYMM_N_PES", ["2", "3"]),
        ("SYMM_BACKEND", ["host", "auto"]),
        ("SYMM_BACKEND", ["host", "cuda"]),
        ("SYMM_POOL_BYTES", ["8388608", "4194304"]),
    ] {
        let mut job = Job::new(2);
        (0..2).for_each(|pe| job.set_on(pe, name, values[pe]));
        let words = [0, 1].map(|pe: usize| {
            let other = 1 - pe;
            format!("setting {name} differs: PE {other} has {:?}, here {:?}", values[other], values[pe])
        });
        let expected = words.each_ref().map(|w| ("SettingDiffers", std::slice::from_ref(w)));
        let expected: Vec<(&str, Vec<&str>)> =
            expected.iter().map(|(k, w)| (*k, w.iter().map(String::as_str).collect())).collect();
        let expected: Vec<(&str, &[&str])> = expected.iter().map(|(k, w)| (*k, w.as_slice())).collect();
        let began = Instant::now();
        all_told(name, &job.run(), &expected);
        assert!(began.elapsed() < Duration::from_secs(8), "{name}: not before the deadline");
    }
}

#[test]
fn a_world_size_of_torchrun_that_differs() {
    let mut job = Job::new(2);
    job.as_torchrun(port());
    job.set_on(1, "WORLD_SIZE", 3);
    let ended = job.run();
    all_told(
        "WORLD_SIZE",
        &ended,
        &[("SettingDiffers", &["PE 1 has \"3\""]), ("SettingDiffers", &["PE 0 has \"2\""])],
    );
}

#[test]
fn a_number_given_twice() {
    for variables in ["SYMM_PE", "SYMM_PE with SYMM_ADDR", "RANK"] {
        let mut job = Job::new(3);
        job.set("SYMM_INIT_TIMEOUT_MS", LIMIT_MS);
        match variables {
            "RANK" => job.as_torchrun(port()),
            "SYMM_PE" => {}
            _ => job.set("SYMM_ADDR", format!("127.0.0.1:{}", port())),
        }
        job.set_on(2, variables.split(' ').next().unwrap_or_default(), 1);
        let ended = job.run();
        // Whoever of the two came second is told; the others miss PE 2.
        let (mut refused, mut missed) = (0, 0);
        for (pe, end) in ended.pes.iter().enumerate() {
            let (kind, text) = end.error();
            println!("{variables} twice: process {pe}: {kind}: {text}");
            match kind.as_str() {
                "Bootstrap" if pe > 0 && text.contains("another process is PE 1") => refused += 1,
                "Timeout" if text.contains("late: PE 2") => missed += 1,
                // Its deadline passed a moment after that of one that then left.
                "PeerFailed" => missed += 1,
                _ => panic!("{variables}: {pe}: {kind}: {text}"),
            }
        }
        assert_eq!((refused, missed), (1, 2), "{variables}");
    }
}

#[test]
fn a_wrong_secret() {
    for address in [None, Some(port())] {
        let mut job = Job::new(2);
        job.set("SYMM_INIT_TIMEOUT_MS", LIMIT_MS);
        if let Some(port) = address {
            job.set("SYMM_ADDR", format!("127.0.0.1:{port}"));
        }
        (0..2).for_each(|pe| job.set_on(pe, "SYMM_TOKEN", format!("secret {pe}")));
        // Whoever connects learns it; the other sees only that nobody of its job comes.
        let ended = job.run();
        let mut told = 0;
        for (pe, end) in ended.pes.iter().enumerate() {
            let (kind, text) = end.error();
            println!("SYMM_TOKEN differs, address {address:?}: PE {pe}: {kind}: {text}");
            match kind.as_str() {
                "Bootstrap" if text.contains("does not know the job's secret: SYMM_TOKEN differs") => {
                    told += 1
                }
                "Timeout" if text.contains(&format!("late: PE {}", 1 - pe)) => {}
                _ => panic!("{pe}: {kind}: {text}"),
            }
        }
        assert!(told > 0, "nobody was told the reason");
    }
}

#[test]
fn an_address_that_nobody_reaches() {
    for (address, kind, words) in [
        ("127.0.0.1:1", "Bootstrap", "connect: PE 0 was not reached at 127.0.0.1:1 within "),
        // Of a range that is kept for documentation.
        ("192.0.2.1:4711", "Bootstrap", "connect: PE 0 was not reached at 192.0.2.1:4711 within "),
        ("no-such-host.invalid:4711", "Bootstrap", "getaddrinfo: SYMM_ADDR=no-such-host.invalid:4711"),
        ("nonsense", "Setting", "SYMM_ADDR is \"nonsense\", expected HOST:PORT of PE 0"),
    ] {
        let mut job = Job::new(2);
        job.set("SYMM_INIT_TIMEOUT_MS", LIMIT_MS);
        job.set("SYMM_INSECURE", 1);
        job.set_on(0, "SYMM_ADDR", format!("127.0.0.1:{}", port()));
        job.set_on(1, "SYMM_ADDR", address);
        all_told(address, &job.run(), &[("Timeout", &["late: PE 1"]), (kind, &[words])]);
    }
}

/// A job of one host belongs to one user: names have the uid, and who listens or comes is asked for his.
#[test]
fn another_user() {
    if !rustix::process::getuid().is_root() {
        println!("only root can be another user");
        return;
    }
    let mut job = Job::new(2);
    job.set("SYMM_INIT_TIMEOUT_MS", LIMIT_MS);
    job.fault(1, "user", "before");
    let missed: [(&str, &[&str]); 2] = [("Timeout", &["late: PE 1"]), ("Timeout", &["late: PE 0"])];
    all_told("another user", &job.run(), &missed);
    // One who takes PE 0's name.
    let mut job = Job::new(2);
    job.fault(0, "impostor", "before");
    let running = job.start();
    running.pes[1].await_word("error");
    running.pes[0].signal(rustix::process::Signal::KILL);
    let ended = running.end();
    ended.told("impostor", 0, "Bootstrap", &["of PE 0 belongs to user 65534"], Duration::from_secs(20));
}

#[test]
fn a_second_job_with_the_same_address() {
    for moment in ["operation", "finalize"] {
        let mut job = Job::new(2);
        job.fault(0, "stop", moment);
        let first = job.start();
        await_stop(&first.pes[0]);
        let second = job.again().start().end_beside();
        let taken = |pe: usize| format!("is in use: another process is PE {pe} of a job named");
        let taken = [taken(0), taken(1)];
        let expected = [0, 1].map(|pe| ("Bootstrap", [taken[pe].as_str()]));
        all_told("second job", &second, &[(expected[0].0, &expected[0].1), (expected[1].0, &expected[1].1)]);
        first.pes[0].signal(rustix::process::Signal::CONT);
        first.end().all_well("the first job");
    }
}

/// Waits until somebody is connected with this port.
fn await_guest(port: u16) {
    let (local, began) = (format!("0100007F:{port:04X}"), Instant::now());
    let connected = |line: &str| {
        let mut fields = line.split_whitespace().skip(1);
        // Local address, the other's, state: 01 is ESTABLISHED.
        (fields.next(), fields.nth(1)) == (Some(&local), Some("01"))
    };
    while !std::fs::read_to_string("/proc/net/tcp").expect("readable").lines().any(connected) {
        assert!(began.elapsed() < Duration::from_secs(20), "nobody came to port {port}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// PE 0 and one more meet at the address of PE 0 and wait for PE 2; one of the two dies. The other is told so, not that PE 2 is late.
#[test]
fn a_death_while_pe_0_waits_for_the_rest() {
    for dies in [0, 1] {
        let (mut job, port) = (Job::new(3), port());
        job.set("SYMM_ADDR", format!("127.0.0.1:{port}"));
        job.set("SYMM_TOKEN", "of this job");
        let mut running = job.start_only(0);
        running.add(&job, 1);
        await_guest(port);
        // It says who it is, and PE 0 says who is missing.
        std::thread::sleep(Duration::from_millis(600));
        let began = Instant::now();
        running.pes[dies].signal(rustix::process::Signal::KILL);
        running.pes[1 - dies].await_word("error");
        let after = began.elapsed();
        let ended = running.end();
        let names = format!("PE {dies} failed: ");
        ended.told("a death at the meeting", dies, "PeerFailed", &[&names], Duration::from_secs(20));
        assert!(after < Duration::from_secs(3), "PE {} was told after {after:?}", 1 - dies);
    }
}

/// More PEs than are all connected with each other, and one does not come: each of the others names that one, and nobody else.
#[test]
fn who_does_not_come_to_the_address_of_a_larger_world() {
    let n = 12;
    let mut job = Job::new(n);
    job.set("SYMM_INIT_TIMEOUT_MS", 2 * LIMIT_MS);
    job.set("SYMM_ADDR", format!("127.0.0.1:{}", port()));
    job.set("SYMM_TOKEN", "of this job");
    let mut running = job.start_only(0);
    (1..n - 1).for_each(|pe| running.add(&job, pe));
    let ended = running.end();
    let late = format!("late: PE {} (expected {n}, got {})", n - 1, n - 1);
    let expected = vec![("Timeout", [late.as_str()]); n - 1];
    let expected: Vec<(&str, &[&str])> = expected.iter().map(|(kind, words)| (*kind, &words[..])).collect();
    all_told("a PE that does not come", &ended, &expected);
}

/// What strangers say: nothing, half of a greeting, lengths beyond everything, noise.
fn noises() -> Vec<Vec<u8>> {
    let mut state = 0x2545_f491_4f6c_dd1d_u64;
    let mut noise = |len: usize| -> Vec<u8> {
        let mut byte = || {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            state as u8
        };
        (0..len).map(|_| byte()).collect()
    };
    let magic = b"symmboot".to_vec();
    let mut all = vec![Vec::new(), magic.clone(), [&magic[..], &[0xff; 400]].concat(), vec![0xff; 100_000]];
    all.extend([1, 7, 100, 1000, 65_536].map(&mut noise));
    all.push([&magic[..], &noise(300)].concat());
    all
}

/// Talks until the other end hangs up or says something.
fn talk(mut stream: impl Read + Write, noise: &[u8]) {
    // It may hang up in the middle of it, which is its good right.
    let _ = stream.write_all(noise);
    let _ = stream.read(&mut [0; 64]);
}

#[test]
fn strangers_at_the_door_change_nothing_and_are_counted() {
    for tcp in [None, Some(port())] {
        let mut job = Job::new(2);
        if let Some(port) = tcp {
            job.set("SYMM_ADDR", format!("127.0.0.1:{port}"));
        }
        job.set("SYMM_TOKEN", "of this job");
        // PE 0 waits for PE 1 meanwhile.
        let mut running = job.start_only(0);
        let began = Instant::now();
        let uid = rustix::process::getuid().as_raw();
        let name = format!("symm-mem/{uid}/{}/0", job.name);
        let address = SocketAddr::from_abstract_name(name).expect("short enough");
        for noise in noises() {
            let wait = Some(Duration::from_millis(20));
            match tcp {
                Some(port) => {
                    let stream = loop {
                        match TcpStream::connect(("127.0.0.1", port)) {
                            Ok(s) => break s,
                            Err(e) => assert!(began.elapsed() < Duration::from_secs(10), "{e}"),
                        }
                    };
                    stream.set_read_timeout(wait).expect("a socket");
                    talk(stream, &noise);
                }
                None => {
                    let stream = loop {
                        match UnixStream::connect_addr(&address) {
                            Ok(s) => break s,
                            Err(e) => assert!(began.elapsed() < Duration::from_secs(10), "{e}"),
                        }
                    };
                    stream.set_read_timeout(wait).expect("a socket");
                    talk(stream, &noise);
                }
            }
        }
        running.add(&job, 1);
        let ended = running.end();
        ended.all_well("a job with strangers");
        let counted: usize = ended.pes[0].word("strangers").and_then(|s| s.text.parse().ok()).unwrap_or(0);
        assert!(counted >= noises().len(), "{counted} strangers were counted");
    }
}

/// A small world lets nobody in once it is complete.
#[test]
fn the_door_is_shut_after_the_start() {
    let mut job = Job::new(2);
    job.fault(0, "stop", "operation");
    let running = job.start();
    await_stop(&running.pes[0]);
    let uid = rustix::process::getuid().as_raw();
    for pe in 0..2 {
        let name = format!("symm-mem/{uid}/{}/{pe}", job.name);
        let address = SocketAddr::from_abstract_name(name).expect("short enough");
        let refused = UnixStream::connect_addr(&address).expect_err("nobody is let in");
        assert_eq!(refused.kind(), std::io::ErrorKind::ConnectionRefused);
    }
    running.pes[0].signal(rustix::process::Signal::CONT);
    running.end().all_well("the job");
}
