//! Every wait ends by its deadline and names who is late; PEs that cannot reach each other are told so on all.

mod common;

use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use common::{Call, LIMIT, One, SOON, both, config, world};
use symm_core::backend::{Addr, Cmp, Form, Get, PadSignal, Put, WaitUntil};
use symm_core::bootstrap::{Bootstrap, Group, Liveness, Message, Tag, local};
use symm_core::error::Fault;
use symm_core::layout::Header;
use symm_core::status::{Failure, PEER_FAILED};
use symm_core::{Backend, Config, DType, Deadline, Error, Pe, Result};
use symm_host::{Host, Status};

/// Expects a timeout of an operation and phase, and who it names.
fn expect_timeout(one: &One, status: &Status, op: &str, phase: &str, late: &[usize]) {
    match one.error(status) {
        Some(Error::Timeout { op: o, phase: p, late: l, waited, .. }) => {
            assert_eq!((o, p), (op, phase));
            assert_eq!(l, late.iter().map(|pe| Pe::from(*pe)).collect::<Vec<_>>());
            assert!(waited >= SOON && waited < LIMIT, "{waited:?}");
        }
        other => panic!("{op}: {other:?}"),
    }
}

#[test]
fn waits_on_pads_and_handles_time_out() {
    both(3, |one| {
        let (a, b, c) = (one.buffer(4096), one.buffer(4096), one.buffer(4096));
        let s = one.stream();
        if one.pe == 0 {
            let signal = PadSignal { rank: 2, channel: 1, limit: SOON };
            one.host.wait_signal(&s, &a.raw, &signal).expect("wait_signal");
            let wait = WaitUntil { index: 0, cmp: Cmp::Gt, value: 4, limit: SOON };
            one.host.wait_until(&s, &b.raw, &wait).expect("wait_until");
            one.host.barrier(&s, &c.raw, 5, SOON).expect("barrier");
            let began = Instant::now();
            one.sync(&s);
            let waited = began.elapsed();
            // Deadlines count from when the stream reaches the operation: three in a row.
            assert!(waited >= 3 * SOON && waited < 3 * SOON + Duration::from_secs(2), "{waited:?}");
            expect_timeout(one, &a.status, "wait_signal", "signal", &[2]);
            expect_timeout(one, &b.status, "wait_until", "signal", &[0]);
            expect_timeout(one, &c.status, "barrier", "arrival", &[1, 2]);
        }
        one.meet();
    });
}

#[test]
fn waits_for_the_network_time_out() {
    let mut slow = config(2);
    slow.host_delay_us = 1_000_000;
    world(2, &slow, |one| {
        let (a, b) = (one.buffer(4096), one.buffer(4096));
        let s = one.stream();
        let limit = Duration::from_micros(1);
        let src = [3_u64; 4];
        let mut dst = [1_u64; 4];
        for _ in 0..20 {
            let put =
                Put { rank: one.next(), offset: 0, src: Addr::of(src.as_ptr()), bytes: 32, signal: None };
            // SAFETY: `src` outlives the synchronisation below.
            unsafe { one.host.put(&s, &a.raw, &put) }.expect("put");
        }
        one.host.quiet(&s, &a.status, limit).expect("quiet");
        let get = Get { rank: one.next(), offset: 0, dst: Addr::of(dst.as_mut_ptr()), bytes: 32, limit };
        // SAFETY: `dst` outlives the synchronisation below; a get that gave up does not write it later.
        unsafe { one.host.get(&s, &b.raw, &get) }.expect("get");
        one.sync(&s);
        assert!(matches!(one.error(&a.status), Some(Error::Timeout { op: "quiet", phase: "quiet", .. })));
        match one.error(&b.status) {
            Some(Error::Timeout { op: "get", late, .. }) => assert_eq!(late, [Pe::from(one.next())]),
            other => panic!("{other:?}"),
        }
        assert_eq!(dst, [1; 4]);
    });
}

#[test]
fn after_a_failure_operations_do_nothing() {
    both(2, |one| {
        let b = one.buffer(4096);
        let s = one.stream();
        let wait = WaitUntil { index: 0, cmp: Cmp::Eq, value: 1, limit: Duration::ZERO };
        one.host.wait_until(&s, &b.raw, &wait).expect("wait_until");
        one.sync(&s);
        assert!(one.error(&b.status).is_some());
        let (src, mut dst) = ([9_u64], [4_u64]);
        let put = Put { rank: one.next(), offset: 0, src: Addr::of(src.as_ptr()), bytes: 8, signal: None };
        let get = Get { rank: one.pe, offset: 0, dst: Addr::of(dst.as_mut_ptr()), bytes: 8, limit: LIMIT };
        let signal = PadSignal { rank: one.next(), channel: 0, limit: LIMIT };
        let began = Instant::now();
        // SAFETY: source and destination outlive the synchronisation.
        unsafe {
            one.host.put(&s, &b.raw, &put).expect("put");
            one.host.get(&s, &b.raw, &get).expect("get");
        }
        one.host.wait_signal(&s, &b.raw, &signal).expect("wait_signal");
        one.host.barrier(&s, &b.raw, 0, LIMIT).expect("barrier");
        one.sync(&s);
        assert!(began.elapsed() < Duration::from_secs(5));
        one.meet();
        assert_eq!(dst, [4]);
        assert_eq!(b.read::<u64>(&one.host, 0, 1), [0]);
    });
}

#[test]
fn a_sender_that_stops_after_its_arrival_is_named_in_the_done_phase() {
    world(2, &config(1), |one| {
        let status = one.status();
        let out = one.buffer_of(4096, &status);
        let (c, layout, copies) = one.context_and_copies(&status, 64);
        if one.pe == 1 {
            // What PE 1 would publish for the operation below, by hand: then it never pushes.
            let header = Header {
                epoch: 1,
                form: Form::AllToAll.code(),
                dtype: u64::from(DType::I32.code()),
                row_bytes: 16,
                ne: 1,
                major_align: 1,
                out_id: 5,
                out_rows: 2,
                in_rows: 2,
                ..Header::default()
            };
            let base = one.host.mapped(&copies[0].mapping).expect("direct").as_ptr::<u8>();
            // SAFETY: PE 0's copy has the layout; PE 0 reads the slot only after the arrival word is written.
            unsafe {
                base.add(layout.slot(1, 1)).cast::<Header>().write(header);
                (*base.add(layout.arrival_word(1)).cast::<AtomicU64>()).store(1, Ordering::Release);
            }
        } else {
            let s = one.stream();
            let input = [7; 8];
            let form = Form::AllToAll;
            Call { form, cols: 4, input: &input, output: Some((&out, 2)), limit: SOON, ..Call::barrier() }
                .run(one, &s, &c);
            one.sync(&s);
            expect_timeout(one, &status, "all_to_all", "done", &[1]);
            // PE 1 is told which operation was given up, and why.
            let base = one.host.mapped(&copies[1].mapping).expect("direct").as_ptr::<u8>();
            // SAFETY: PE 1's copy has the layout, and the pair's one writer is this PE.
            let pair = unsafe { base.add(layout.aborted_pair(0)).cast::<[u64; 2]>().read() };
            assert_eq!((pair[0], pair[1] & u64::from(u32::MAX)), (1, 2));
        }
    });
}

#[test]
fn a_header_that_leads_outside_is_refused() {
    world(2, &config(1), |one| {
        let status = one.status();
        let out = one.buffer_of(4096, &status);
        let (c, layout, copies) = one.context_and_copies(&status, 64);
        if one.pe == 1 {
            let header = Header {
                epoch: 1,
                form: Form::AllToAll.code(),
                dtype: u64::from(DType::I32.code()),
                row_bytes: 16,
                ne: 1,
                major_align: 1,
                out_id: 5,
                out_offset: 1 << 40,
                out_rows: 2,
                in_rows: 2,
                ..Header::default()
            };
            let base = one.host.mapped(&copies[0].mapping).expect("direct").as_ptr::<u8>();
            // SAFETY: as in the test above.
            unsafe {
                base.add(layout.slot(1, 1)).cast::<Header>().write(header);
                (*base.add(layout.arrival_word(1)).cast::<AtomicU64>()).store(1, Ordering::Release);
            }
        } else {
            let s = one.stream();
            let input = [7; 8];
            Call { form: Form::AllToAll, cols: 4, input: &input, output: Some((&out, 2)), ..Call::barrier() }
                .run(one, &s, &c);
            one.sync(&s);
            assert!(
                matches!(one.error(&status), Some(Error::PeerInvalid { pe: Pe(1), what: Fault::Output, .. })),
                "{:?}",
                one.error(&status)
            );
        }
    });
}

#[test]
fn a_failure_set_from_outside_ends_waits_here_and_at_the_peers() {
    both(3, |one| {
        let status = one.status();
        let b = one.buffer_of(4096, &status);
        let c = one.context(&status, 1024);
        let s = one.stream();
        let began = Instant::now();
        if one.pe == 0 {
            // In a collective when its liveness thread reports PE 2.
            Call::barrier().run(one, &s, &c);
            status.as_ref().set(&Failure { code: PEER_FAILED, pe: 2, ..Failure::default() });
            one.host.wake();
            one.sync(&s);
        } else if one.pe == 1 {
            // On the handle only: a wait there looks at the team's contexts too.
            one.host.barrier(&s, &b.raw, 0, LIMIT).expect("barrier");
            one.sync(&s);
        }
        if one.pe < 2 {
            assert!(began.elapsed() < Duration::from_secs(5));
            assert!(
                matches!(one.error(&status), Some(Error::PeerFailed { pe: Pe(2), .. })),
                "{:?}",
                one.error(&status)
            );
        }
    });
}

/// A bootstrap between two of whose PEs no descriptors can go.
#[derive(Debug)]
struct Parted {
    inner: Arc<dyn Bootstrap>,
    pair: [usize; 2],
}

impl Bootstrap for Parted {
    fn pe(&self) -> Pe {
        self.inner.pe()
    }
    fn n_pes(&self) -> usize {
        self.inner.n_pes()
    }
    fn passes_fds(&self, pe: Pe) -> bool {
        let apart =
            self.pair.contains(&pe.index()) && self.pair.contains(&self.pe().index()) && pe != self.pe();
        !apart
    }
    fn send(&self, to: Pe, tag: Tag, payload: &[u8], fds: &[BorrowedFd<'_>]) -> Result<()> {
        self.inner.send(to, tag, payload, fds)
    }
    fn recv(&self, from: Pe, tag: Tag, deadline: Deadline) -> Result<Message> {
        self.inner.recv(from, tag, deadline)
    }
    fn watch(&self, observer: Arc<dyn Liveness>) {
        self.inner.watch(observer);
    }
    fn failed(&self) -> Vec<Pe> {
        self.inner.failed()
    }
    fn close(&self) {
        self.inner.close();
    }
    fn abandon(&self, why: &str) {
        self.inner.abandon(why);
    }
}

/// Runs `init` on a thread for each bootstrap; returns the results in PE order.
fn inits(boots: Vec<Arc<dyn Bootstrap>>, config: &Config) -> Vec<Result<Host>> {
    std::thread::scope(|scope| {
        let threads: Vec<_> =
            boots.iter().map(|boot| scope.spawn(move || Host::init(boot, config))).collect();
        threads.into_iter().map(|t| t.join().expect("thread")).collect()
    })
}

#[test]
fn a_pair_that_is_apart_is_named_on_all() {
    let boots = local(4)
        .into_iter()
        .map(|inner| Arc::new(Parted { inner, pair: [1, 3] }) as Arc<dyn Bootstrap>)
        .collect();
    for result in inits(boots, &config(1)) {
        match result {
            Err(Error::Unsupported { backend: "host", why, .. }) => {
                assert!(why.contains("PE 1") && why.contains("PE 3"), "{why}");
            }
            other => panic!("{other:?}"),
        }
    }
}

#[test]
fn who_does_not_start_is_named() {
    let mut boots = local(3);
    let absent = boots.remove(1);
    let mut c = config(1);
    c.init_timeout = SOON;
    for result in inits(boots, &c) {
        match result {
            Err(Error::Timeout { op: "init", late, .. }) => assert_eq!(late, [Pe(1)]),
            other => panic!("{other:?}"),
        }
    }
    drop(absent);
}

#[test]
fn nothing_is_enqueued_after_finalize_and_drop_does_not_wait() {
    let boots = local(1);
    let host = Host::init(&boots[0], &config(1)).expect("init");
    let s = host.stream().expect("stream");
    host.finalize().expect("finalize");
    assert!(matches!(host.fence(&s), Err(Error::Finalized { op: "fence" })));
    assert!(host.allocate(10).is_err_and(|e| e.kind() == "Finalized"));
    host.synchronize(&s).expect("synchronize");
    host.finalize().expect("a second finalize");
}

#[test]
fn dropping_the_backend_does_not_wait_and_queued_work_still_ends() {
    let boot = local(1).remove(0);
    let host = Arc::new(Host::init(&boot, &config(1)).expect("init"));
    let group = Group::new(Arc::clone(&boot), 1, vec![Pe(0)]).expect("group");
    let one = One { host, boot, group, pe: 0, n: 1 };
    let b = one.buffer(4096);
    let s = one.stream();
    let wait = WaitUntil { index: 0, cmp: Cmp::Eq, value: 1, limit: 4 * SOON };
    one.host.wait_until(&s, &b.raw, &wait).expect("wait_until");
    let began = Instant::now();
    let status = b.status.clone();
    drop((b, s, one));
    assert!(began.elapsed() < 2 * SOON, "{:?}", began.elapsed());
    while status.as_ref().is_ok() {
        assert!(began.elapsed() < LIMIT, "the wait was lost");
        std::thread::sleep(Duration::from_millis(1));
    }
    assert!(began.elapsed() >= 3 * SOON);
}
