//! PEs as processes: this program runs itself once for each PE. A case passes if every process does.

mod common;

use std::process::{Child, Command};
use std::sync::Arc;
use std::time::{Duration, Instant};

use common::{Call, LIMIT, One, config};
use symm_core::backend::{Addr, Cmp, Form, Put, SignalOp, SignalUpdate, WaitUntil};
use symm_core::bootstrap::{Group, Liveness, Unix};
use symm_core::status::{Failure, PEER_FAILED};
use symm_core::{Backend, Config, Error, Pe};
use symm_host::{Host, Status};

/// A way to run the PEs of a case.
type Case = (&'static str, usize, u32, fn(&One));

const CASES: [Case; 6] = [
    ("exchange", 3, 1, exchange),
    ("exchange", 4, 2, exchange),
    ("signals", 2, 1, signals),
    ("signals", 2, 2, signals),
    ("death", 3, 1, death),
    ("death", 3, 3, death),
];

fn exchange(one: &One) {
    let status = one.status();
    let out = one.buffer_of(1 << 20, &status);
    let c = one.context(&status, 1024);
    let s = one.stream();
    for round in 0..200 {
        let input: Vec<i32> =
            (0..one.n * 64).map(|i| (round * 1000 + one.pe * 100 + i / 64) as i32).collect();
        let form = Form::AllToAll;
        Call { form, cols: 64, input: &input, output: Some((&out, one.n)), ..Call::barrier() }
            .run(one, &s, &c);
        one.sync(&s);
        one.ok(&status);
        for source in 0..one.n {
            let expected = [(round * 1000 + source * 100 + one.pe) as i32; 64];
            assert_eq!(out.read::<i32>(&one.host, 256 * source, 64), expected);
        }
        Call::barrier().run(one, &s, &c);
        one.sync(&s);
    }
    one.ok(&status);
}

fn signals(one: &One) {
    let b = one.buffer(1 << 16);
    let s = one.stream();
    for round in 1..=500_u64 {
        let src = vec![round + one.pe as u64; 512];
        let signal = Some(SignalUpdate { index: 0, op: SignalOp::Set, value: round });
        let put = Put { rank: one.next(), offset: 0, src: Addr::of(src.as_ptr()), bytes: 4096, signal };
        // SAFETY: `src` outlives the synchronisation below.
        unsafe { one.host.put(&s, &b.raw, &put) }.expect("put");
        let wait = WaitUntil { index: 0, cmp: Cmp::Ge, value: round, limit: LIMIT };
        one.host.wait_until(&s, &b.raw, &wait).expect("wait_until");
        one.sync(&s);
        assert_eq!(b.read::<u64>(&one.host, 0, 512), vec![round + one.prev() as u64; 512]);
        one.host.barrier(&s, &b.raw, 0, LIMIT).expect("barrier");
        one.sync(&s);
    }
    one.ok(&b.status);
}

/// What the model does when a connection closes.
struct Watcher {
    status: Status,
    host: Arc<Host>,
}

impl Liveness for Watcher {
    fn failed(&self, pe: Pe, _why: &str) {
        self.status.as_ref().set(&Failure { code: PEER_FAILED, pe: u64::from(pe.0), ..Failure::default() });
        self.host.wake();
    }
}

/// The last PE is killed while the others wait for it; they must learn it within a second or two.
fn death(one: &One) {
    let status = one.status();
    let c = one.context(&status, 1024);
    let s = one.stream();
    one.boot.watch(Arc::new(Watcher { status: status.clone(), host: Arc::clone(&one.host) }));
    one.meet();
    if one.pe == one.n - 1 {
        let _ = rustix::process::kill_process(rustix::process::getpid(), rustix::process::Signal::KILL);
    }
    let began = Instant::now();
    Call::barrier().run(one, &s, &c);
    one.sync(&s);
    assert!(began.elapsed() < Duration::from_secs(5), "{:?}", began.elapsed());
    let dead = Pe::from(one.n - 1);
    assert!(
        matches!(one.error(&status), Some(Error::PeerFailed { pe, .. }) if pe == dead),
        "{:?}",
        one.error(&status)
    );
}

fn run_pe(case: usize) {
    let mut c: Config = Config::from_env().expect("settings");
    c.host_delay_us = config(1).host_delay_us;
    let boot = Unix::join(&c).expect("bootstrap");
    let (pe, n) = (boot.pe().index(), boot.n_pes());
    let host = Arc::new(Host::init(&boot, &c).expect("init"));
    let group = Group::new(Arc::clone(&boot), 1, (0..n).map(Pe::from).collect()).expect("group");
    let one = One { host, boot, group, pe, n };
    let (name, _, _, body) = CASES[case];
    body(&one);
    if name != "death" {
        one.meet();
        one.host.finalize().expect("finalize");
    }
    one.boot.close();
}

/// Kills what is still running when the parent gives up.
struct Processes(Vec<Child>);

impl Drop for Processes {
    fn drop(&mut self) {
        for child in &mut self.0 {
            // It has usually ended by itself.
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

fn run_case(case: usize) {
    let (name, n, nodes, _) = CASES[case];
    let program = std::env::current_exe().expect("own path");
    let start = |pe: usize| {
        let mut c = Command::new(&program);
        c.env("SYMM_TEST_CASE", case.to_string())
            .env("SYMM_PE", pe.to_string())
            .env("SYMM_N_PES", n.to_string())
            .env("SYMM_JOB", format!("symm-host-test-{}-{case}", std::process::id()))
            .env("SYMM_HOST_NODES", nodes.to_string());
        c.spawn().expect("spawn")
    };
    let mut pes = Processes((0..n).map(start).collect());
    let began = Instant::now();
    for pe in 0..n {
        let status = loop {
            if let Some(status) = pes.0[pe].try_wait().expect("wait") {
                break status;
            }
            assert!(began.elapsed() < 3 * LIMIT, "{name} at {nodes} nodes: PE {pe} hangs");
            std::thread::sleep(Duration::from_millis(2));
        };
        let killed = name == "death" && pe == n - 1;
        assert_eq!(status.success(), !killed, "{name} at {nodes} nodes: PE {pe}: {status}");
    }
}

fn main() {
    if let Ok(case) = std::env::var("SYMM_TEST_CASE") {
        return run_pe(case.parse().expect("a case's number"));
    }
    for case in 0..CASES.len() {
        run_case(case);
    }
}
