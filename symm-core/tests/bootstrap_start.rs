//! Starting over sockets: who is missing, who does not belong, who does not keep to the protocol.

use std::io::{Read, Write};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixListener, UnixStream};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use hmac::{Hmac, KeyInit, Mac};
use sha2::Sha256;
use symm_core::bootstrap::{Bootstrap, Group, Identity, Secret, Sockets, Tag, Unix, Whereabouts};
use symm_core::{Config, Deadline, Error, Pe, Result};

const T: Tag = Tag { team: 3, seq: 0 };

fn long() -> Deadline {
    Deadline::after(Duration::from_secs(60))
}

/// A job name that no other test, process or run has.
fn job() -> String {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    format!("start-{}-{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed))
}

fn config(job: &str, pe: u32, n: u32) -> Config {
    let mut c = Config::default();
    (c.pe, c.n_pes, c.job) = (Some(pe), Some(n), Some(job.to_owned()));
    c.init_timeout = Duration::from_secs(30);
    c
}

fn join_all(configs: impl IntoIterator<Item = Config>) -> Vec<Result<Arc<dyn Bootstrap>>> {
    let threads: Vec<_> = configs.into_iter().map(|c| thread::spawn(move || Unix::join(&c))).collect();
    threads.into_iter().map(|t| t.join().expect("no panic")).collect()
}

fn joined(job: &str, n: u32) -> Vec<Arc<dyn Bootstrap>> {
    join_all((0..n).map(|pe| config(job, pe, n))).into_iter().map(|r| r.expect("complete")).collect()
}

fn works(world: &[Arc<dyn Bootstrap>]) -> bool {
    thread::scope(|s| {
        let run = |b: &Arc<dyn Bootstrap>| {
            let all = (0..b.n_pes()).map(Pe::from).collect();
            Group::new(Arc::clone(b), 1, all).and_then(|g| g.barrier("works", long())).is_ok()
        };
        let threads: Vec<_> = world.iter().map(|b| s.spawn(move || run(b))).collect();
        threads.into_iter().all(|t| t.join().expect("no panic"))
    })
}

#[test]
fn start_up_names_every_pe_that_did_not_come() {
    let name = job();
    let ends = join_all([1, 3].map(|pe| {
        let mut c = config(&name, pe, 5);
        c.init_timeout = Duration::from_millis(if pe == 1 { 500 } else { 10_000 });
        c
    }));
    match &ends[0] {
        Err(Error::Timeout { op: "init", late, expected: 5, got: 2, .. }) => {
            assert_eq!(*late, [Pe(0), Pe(2), Pe(4)]);
        }
        other => panic!("{other:?}"),
    }
    // PE 3 has more patience, and sees PE 1 give up.
    assert!(matches!(&ends[1], Err(Error::PeerFailed { pe: Pe(1), .. })), "{:?}", ends[1]);
}

/// Where two connect to each other at once, one gives up: nobody is taken for a stranger by that.
#[test]
fn a_start_without_strangers_counts_none() {
    let counted = (0..10).map(|_| joined(&job(), 6).iter().map(|b| b.strangers()).sum::<u64>());
    assert_eq!(counted.collect::<Vec<_>>(), [0; 10]);
}

#[test]
fn an_address_in_use_is_named_and_free_again_after_the_job() {
    let name = job();
    let world = joined(&name, 2);
    let e = Unix::join(&config(&name, 1, 2)).expect_err("taken");
    let address = format!("@symm-mem/{}/{name}/1", rustix::process::getuid().as_raw());
    assert!(matches!(&e, Error::Bootstrap { call: "bind", why } if why.contains(&address)), "{e}");
    assert!(works(&world));
    world.iter().for_each(|b| b.close());
    let again = joined(&name, 2);
    assert!(works(&again));
    drop(again);
    assert!(works(&joined(&name, 2)));
}

#[test]
fn another_world_size_fails_on_both_at_once() {
    let name = job();
    let began = Instant::now();
    for (i, end) in join_all([config(&name, 0, 2), config(&name, 1, 3)]).into_iter().enumerate() {
        match end {
            Err(Error::SettingDiffers { name: "SYMM_N_PES", pe, theirs, ours }) => {
                assert_eq!((pe.index(), theirs, ours), (1 - i, (3 - i).to_string(), (2 + i).to_string()));
            }
            other => panic!("PE {i}: {other:?}"),
        }
    }
    assert!(began.elapsed() < Duration::from_secs(5));
}

fn address(name: &str, pe: u32) -> SocketAddr {
    let uid = rustix::process::getuid().as_raw();
    SocketAddr::from_abstract_name(format!("symm-mem/{uid}/{name}/{pe}")).expect("short enough")
}

fn knock(address: &SocketAddr) -> UnixStream {
    let began = Instant::now();
    loop {
        match UnixStream::connect_addr(address) {
            Ok(s) => return s,
            Err(e) => assert!(began.elapsed() < Duration::from_secs(10), "{e}"),
        }
        thread::sleep(Duration::from_millis(1));
    }
}

/// Of the handshake.
const VERSION: u32 = 5;
/// Sizes of a greeting, an answer and a proof.
const HELLO: usize = 8 + 5 * 4 + 64 + 32;
const REPLY: usize = 8 + 4 * 4 + 32 + 32;

/// A greeting as a PE sends it to PE 0.
fn greeting(version: u32, n_pes: u32, pe: u32, name: &str) -> Vec<u8> {
    let mut bytes = b"symmboot".to_vec();
    for w in [version, n_pes, pe, 0, name.len() as u32] {
        bytes.extend(w.to_le_bytes());
    }
    bytes.extend(name.as_bytes());
    bytes.resize(HELLO, 0);
    bytes
}

/// Greets PE 0, takes its answer and proves to know `key`.
fn shake(s: &mut UnixStream, hello: &[u8], key: &[u8]) -> [u8; REPLY] {
    s.write_all(hello).expect("room for a greeting");
    let mut answer = [0; REPLY];
    s.read_exact(&mut answer).expect("an answer");
    s.write_all(&proof(hello, &answer, key)).expect("room for a proof");
    answer
}

/// That the connecting side knows `key`.
fn proof(hello: &[u8], answer: &[u8], key: &[u8]) -> [u8; 32] {
    let mut mac = <Hmac<Sha256> as KeyInit>::new_from_slice(key).expect("any length");
    [&b"connect"[..], hello, answer].iter().for_each(|part| mac.update(part));
    mac.finalize().into_bytes().into()
}

/// A PE's part in the exchange by which the world meets: a frame of that team, with the name of the call and nothing else.
fn meet(s: &mut UnixStream) {
    let payload = b"\0\x04init";
    let mut frame = b"symf\x01\0\0\0".to_vec();
    frame.extend((payload.len() as u64).to_le_bytes());
    frame.extend(b"meet....");
    frame.extend([0; 8]);
    frame.extend(payload);
    s.write_all(&frame).expect("room");
}

#[test]
fn strangers_at_the_door_are_dropped_and_the_job_starts() {
    let name = job();
    let c = config(&name, 0, 2);
    let zero = thread::spawn(move || Unix::join(&c));
    let door = address(&name, 0);
    let mut seed = 1_u64;
    let mut strangers = Vec::new();
    for round in 0..200 {
        let mut s = knock(&door);
        let mut bytes = vec![0; round * 7];
        for b in &mut bytes {
            seed = seed.wrapping_mul(6364136223846793005).wrapping_add(1);
            *b = (seed >> 56) as u8;
        }
        match round % 5 {
            0 => bytes.clear(),
            1 => bytes = b"symmboot".to_vec(),
            2 => bytes = greeting(VERSION, 2, 7, &name),
            3 => bytes = greeting(VERSION, 2, 1, "another-job"),
            _ => {}
        }
        // Fails where the other end hung up already.
        let _ = s.write_all(&bytes);
        strangers.push(s);
    }
    // One that announces a job name of 4 GiB.
    let mut s = knock(&door);
    let mut bytes = greeting(VERSION, 2, 1, &name);
    bytes[24..28].fill(0xff);
    s.write_all(&bytes).expect("room for a greeting");
    assert_eq!(s.read(&mut [0; 8]).expect("closed"), 0, "dropped without an answer");
    let one = Unix::join(&config(&name, 1, 2)).expect("let in among strangers");
    let zero = zero.join().expect("no panic").expect("complete");
    assert!(works(&[zero, one]));
}

/// Of a crowd that says nothing, those go first, and not one who has greeted as a PE does and has yet to prove itself.
#[test]
fn a_crowd_at_the_door_does_not_push_out_one_who_greeted() {
    let name = job();
    let c = config(&name, 0, 2);
    let zero = thread::spawn(move || Unix::join(&c));
    let mut one = knock(&address(&name, 0));
    let hello = greeting(VERSION, 2, 1, &name);
    one.write_all(&hello).expect("room for a greeting");
    let mut answer = [0; REPLY];
    one.read_exact(&mut answer).expect("an answer");
    let crowd: Vec<_> = (0..300).map(|_| knock(&address(&name, 0))).collect();
    // The last of them is in once one of the first is out.
    assert_eq!((&crowd[0]).read(&mut [0; 8]).expect("closed"), 0);
    one.write_all(&proof(&hello, &answer, b"")).expect("room for a proof");
    let mut stands = [0];
    one.read_exact(&mut stands).expect("not pushed out");
    assert_eq!(stands, *b"+");
    meet(&mut one);
    zero.join().expect("no panic").expect("complete");
}

/// Whoever is dropped by the other end before that has taken the connection comes again: it is no death.
#[test]
fn an_end_that_hangs_up_in_the_handshake_is_no_death() {
    let name = job();
    let door = UnixListener::bind_addr(&address(&name, 0)).expect("free");
    let c = config(&name, 1, 2);
    let one = thread::spawn(move || Unix::join(&c));
    for after_proof in [false, true] {
        let (mut s, _) = door.accept().expect("PE 1 comes");
        let mut hello = [0; HELLO];
        s.read_exact(&mut hello).expect("a greeting");
        let mut answer = b"symmboot".to_vec();
        [0, VERSION, 2, 0].iter().for_each(|w| answer.extend(w.to_le_bytes()));
        answer.extend([7; 32]);
        let mut mac = <Hmac<Sha256> as KeyInit>::new_from_slice(b"").expect("any length");
        [&b"accept"[..], &hello, &answer].iter().for_each(|part| mac.update(part));
        answer.extend(mac.finalize().into_bytes());
        s.write_all(&answer).expect("room for an answer");
        if after_proof {
            s.read_exact(&mut [0; 32]).expect("a proof");
        }
    }
    drop(door);
    let zero = Unix::join(&config(&name, 0, 2)).expect("complete");
    assert!(works(&[zero, one.join().expect("no panic").expect("complete")]));
}

#[test]
fn after_the_start_the_door_is_shut_and_the_address_taken() {
    let name = job();
    let world = joined(&name, 2);
    assert!(UnixStream::connect_addr(&address(&name, 0)).is_err());
    assert!(UnixListener::bind_addr(&address(&name, 0)).is_err());
    assert!(works(&world));
}

/// Joins as PE 1 by hand, over a plain socket.
fn impostor() -> (UnixStream, Arc<dyn Bootstrap>) {
    let name = job();
    let c = config(&name, 0, 2);
    let zero = thread::spawn(move || Unix::join(&c));
    let mut s = knock(&address(&name, 0));
    shake(&mut s, &greeting(VERSION, 2, 1, &name), b"");
    meet(&mut s);
    (s, zero.join().expect("no panic").expect("complete"))
}

#[test]
fn a_pe_number_that_is_here_already_is_refused() {
    let name = job();
    let c = config(&name, 0, 3);
    let zero = thread::spawn(move || Unix::join(&c));
    let mut answers = [[0; REPLY]; 2];
    let mut first = Vec::new();
    for answer in &mut answers {
        let mut s = knock(&address(&name, 0));
        *answer = shake(&mut s, &greeting(VERSION, 3, 1, &name), b"");
        // Until it has seen the proof, the second is as welcome as the first.
        thread::sleep(Duration::from_millis(50));
        first.push(s);
    }
    assert_eq!((answers[0][8], answers[1][8]), (0, 3), "welcome, then duplicate");
    let mut s = knock(&address(&name, 0));
    shake(&mut s, &greeting(VERSION, 3, 2, &name), b"");
    meet(&mut first[0]);
    meet(&mut s);
    let zero = zero.join().expect("no panic").expect("the duplicate changed nothing");
    assert_eq!(zero.failed(), []);
}

#[test]
fn a_peer_that_breaks_the_protocol_is_failed() {
    let frame = |magic: &[u8; 4], kind: u16, fds: u16, len: u64| {
        let mut h = magic.to_vec();
        h.extend(kind.to_le_bytes());
        h.extend(fds.to_le_bytes());
        h.extend(len.to_le_bytes());
        h.extend([0; 16]);
        h
    };
    for (bytes, why) in [
        (frame(b"symx", 1, 0, 0), "no frame"),
        (frame(b"symf", 9, 0, 0), "unknown kind"),
        (frame(b"symf", 1, 0, u64::MAX), "are allowed"),
        (frame(b"symf", 1, 3, 0), "file descriptors"),
        (frame(b"symf", 1, 0, 10), "middle of a message"),
    ] {
        let (mut s, zero) = impostor();
        s.write_all(&bytes).expect("room");
        s.shutdown(std::net::Shutdown::Write).expect("open");
        match zero.recv(Pe(1), T, long()) {
            Err(Error::PeerFailed { pe: Pe(1), why: got }) => assert!(got.contains(why), "{got}"),
            other => panic!("{why}: {other:?}"),
        }
    }
}

#[test]
fn another_version_fails_with_both_numbers() {
    let name = job();
    let c = config(&name, 0, 2);
    let zero = thread::spawn(move || Unix::join(&c).map(drop));
    let answer = shake(&mut knock(&address(&name, 0)), &greeting(VERSION + 1, 2, 1, &name), b"");
    assert_eq!(answer[8..16], [1, 0, 0, 0, VERSION as u8, 0, 0, 0], "verdict and version");
    let e = zero.join().expect("no panic").expect_err("cannot work");
    let versions = [VERSION + 1, VERSION].map(|v| format!("version {v}"));
    assert!(versions.iter().all(|v| e.to_string().contains(v)), "{e}");
}

#[test]
fn whoever_does_not_know_the_secret_changes_nothing_and_is_counted() {
    let name = job();
    let join = |pe: usize| {
        let identity = Identity { pe: pe.into(), n_pes: 2, job: name.clone(), secret: Secret::new(b"right") };
        thread::spawn(|| Sockets::join(identity, Whereabouts::OneHost, long()))
    };
    let zero = join(0);
    // A wrong secret; the right one with a size that would end the job if it were believed; its own answer sent back.
    shake(&mut knock(&address(&name, 0)), &greeting(VERSION, 2, 1, &name), b"wrong");
    shake(&mut knock(&address(&name, 0)), &greeting(VERSION, 3, 1, &name), b"");
    let mut mirror = knock(&address(&name, 0));
    mirror.write_all(&greeting(VERSION, 2, 1, &name)).expect("room for a greeting");
    let mut answer = [0; REPLY];
    mirror.read_exact(&mut answer).expect("an answer");
    mirror.write_all(&answer[REPLY - 32..]).expect("room for a proof");
    thread::sleep(Duration::from_millis(50));
    let one = join(1);
    let world = [zero, one].map(|t| t.join().expect("no panic").expect("complete"));
    assert_eq!(world[0].strangers(), 3);
    assert!(works(&world.map(|b| b as Arc<dyn Bootstrap>)));
    // A PE with another secret is told so by the one it meets, which goes on waiting.
    let name = job();
    let ends = ["right", "wrong"].into_iter().enumerate().map(|(pe, secret)| {
        let secret = Secret::new(secret.as_bytes());
        let identity = Identity { pe: pe.into(), n_pes: 2, job: name.clone(), secret };
        let limit = Duration::from_secs(1);
        thread::spawn(move || Sockets::join(identity, Whereabouts::OneHost, Deadline::after(limit)))
    });
    let ends: Vec<_> = ends.collect();
    let ends = ends.into_iter().map(|t| t.join().expect("no panic").expect_err("no world"));
    let text: Vec<String> = ends.map(|e| e.to_string()).collect();
    assert!(text.iter().any(|t| t.contains("does not know the job's secret")), "{text:?}");
}

#[test]
fn a_silent_peer_blocks_no_sender() {
    let (s, zero) = impostor();
    let began = Instant::now();
    for _ in 0..64 {
        zero.send(Pe(1), T, &vec![1; 1 << 20], &[]).expect("queued");
    }
    assert!(began.elapsed() < Duration::from_secs(5));
    drop(s);
    assert!(matches!(zero.recv(Pe(1), T, long()), Err(Error::PeerFailed { .. })));
}

#[test]
fn nothing_is_inherited_by_a_program() {
    let world = joined(&job(), 3);
    let count = |text: &str| text.matches("socket:").count() + text.matches("anon_inode").count();
    let list = |path: &str| {
        let out =
            Command::new("ls").args(["-l", path]).stdin(std::process::Stdio::null()).output().expect("ls");
        String::from_utf8(out.stdout).expect("text")
    };
    let here = list(&format!("/proc/{}/fd", std::process::id()));
    assert!(count(&here) >= 3 * 3, "{here}");
    let there = list("/proc/self/fd");
    assert!(there.contains("/proc/"), "{there}");
    // Standard error may be anything; it is the only descriptor that `output` lets through.
    assert!(count(&there) == 0, "{there}");
    assert!(works(&world));
}
