//! put, get, signals, order, barriers: at one node and with every PE on its own.

mod common;

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use common::{Buffer, LIMIT, One, both, config, world};
use symm_core::backend::{Addr, Cmp, Get, PadSignal, Put, Reach, SignalOp, SignalUpdate, WaitUntil};
use symm_core::capability::Capabilities;
use symm_core::{Backend, Pe};
use symm_host::Stream;

/// Puts to a buffer's rank and offset.
fn put(
    one: &One,
    s: &Stream,
    (b, rank, offset): (&Buffer, usize, usize),
    src: &[u64],
    signal: Option<SignalUpdate>,
) {
    let put = Put { rank, offset, src: Addr::of(src.as_ptr()), bytes: size_of_val(src), signal };
    // SAFETY: the tests keep sources until they have synchronised.
    unsafe { one.host.put(s, &b.raw, &put) }.expect("put");
}

fn set(index: usize, value: u64) -> Option<SignalUpdate> {
    Some(SignalUpdate { index, op: SignalOp::Set, value })
}

fn until(one: &One, s: &Stream, b: &Buffer, index: usize, cmp: Cmp, value: u64) {
    one.host.wait_until(s, &b.raw, &WaitUntil { index, cmp, value, limit: LIMIT }).expect("wait_until");
}

#[test]
fn reach_and_capabilities_follow_the_nodes() {
    for (n, nodes) in [(1, 1), (2, 1), (2, 2), (4, 2), (5, 2)] {
        world(n, &config(nodes), |one| {
            let node = |p: usize| p * nodes as usize / n;
            let mut direct = 0;
            for p in 0..n {
                let reach = one.host.reach(Pe::from(p));
                assert_eq!(reach == Reach::Direct, node(p) == node(one.pe));
                direct += usize::from(p != one.pe && reach == Reach::Direct);
            }
            let c = one.host.capabilities();
            assert_eq!(c.contains(Capabilities::NETWORK), nodes > 1);
            assert_eq!(c.contains(Capabilities::PEER_LOAD_STORE), n == 1 || direct > 0);
            assert!(c.contains(Capabilities::DETERMINISTIC | Capabilities::RECOVER));
            assert!(
                !c.intersects(Capabilities::GRAPH | Capabilities::MULTICAST | Capabilities::DEVICE_INITIATED)
            );
            let b = one.buffer(4096);
            let ptrs = one.host.device_ptrs(&b.raw);
            for p in 0..n {
                // SAFETY: both arrays have n entries and live as long as the handle.
                let (data, pad) =
                    unsafe { (*ptrs.buffers.as_ptr::<u64>().add(p), *ptrs.pads.as_ptr::<u64>().add(p)) };
                assert_eq!(data != 0, node(p) == node(one.pe));
                assert_eq!(pad != 0, data != 0);
            }
            one.ok(&b.status);
        });
    }
}

#[test]
fn put_quiet_barrier_get() {
    both(3, |one| {
        let b = one.buffer(1 << 16);
        let s = one.stream();
        let mine: Vec<u64> = (0..1000).map(|i| (one.pe as u64) << 32 | i).collect();
        put(one, &s, (&b, one.next(), 0), &mine, None);
        one.host.quiet(&s, &b.status, LIMIT).expect("quiet");
        one.host.barrier(&s, &b.raw, 3, LIMIT).expect("barrier");
        let mut back = vec![0_u64; 1000];
        let get =
            Get { rank: one.next(), offset: 0, dst: Addr::of(back.as_mut_ptr()), bytes: 8000, limit: LIMIT };
        // SAFETY: `back` lives until the synchronisation below.
        unsafe { one.host.get(&s, &b.raw, &get) }.expect("get");
        one.sync(&s);
        one.ok(&b.status);
        assert_eq!(back, mine);
        let theirs: Vec<u64> = (0..1000).map(|i| (one.prev() as u64) << 32 | i).collect();
        assert_eq!(b.read::<u64>(&one.host, 0, 1000), theirs);
    });
}

#[test]
fn a_barrier_delivers_earlier_puts() {
    both(4, |one| {
        let b = one.buffer(4096);
        let s = one.stream();
        for round in 1..=50_u64 {
            let src = vec![round; 16];
            for rank in 0..one.n {
                put(one, &s, (&b, rank, 128 * one.pe), &src, None);
            }
            one.host.barrier(&s, &b.raw, 0, LIMIT).expect("barrier");
            one.sync(&s);
            assert_eq!(b.read::<u64>(&one.host, 0, 16 * one.n), vec![round; 16 * one.n]);
            one.host.barrier(&s, &b.raw, 1, LIMIT).expect("barrier");
            one.sync(&s);
        }
        one.ok(&b.status);
    });
}

#[test]
fn data_are_there_when_the_signal_is() {
    both(2, |one| {
        let b = one.buffer(1 << 14);
        let s = one.stream();
        for round in 1..=300_u64 {
            let src = vec![round * 10 + one.pe as u64; 700];
            put(one, &s, (&b, one.next(), 0), &src, set(2, round));
            until(one, &s, &b, 2, Cmp::Eq, round);
            one.sync(&s);
            assert_eq!(b.read::<u64>(&one.host, 0, 700), vec![round * 10 + one.prev() as u64; 700]);
            one.host.barrier(&s, &b.raw, 0, LIMIT).expect("barrier");
            one.sync(&s);
        }
        one.ok(&b.status);
    });
}

#[test]
fn adds_of_all_are_never_lost() {
    both(4, |one| {
        let b = one.buffer(4096);
        let s = one.stream();
        for _ in 0..200 {
            for rank in 0..one.n {
                put(
                    one,
                    &s,
                    (&b, rank, 0),
                    &[],
                    Some(SignalUpdate { index: 1, op: SignalOp::Add, value: 3 }),
                );
            }
        }
        until(one, &s, &b, 1, Cmp::Ge, 3 * 200 * 4);
        one.host.barrier(&s, &b.raw, 0, LIMIT).expect("barrier");
        until(one, &s, &b, 1, Cmp::Eq, 3 * 200 * 4);
        one.sync(&s);
        one.ok(&b.status);
    });
}

#[test]
fn all_six_comparisons() {
    both(2, |one| {
        let b = one.buffer(4096);
        let s = one.stream();
        for (i, (cmp, against)) in
            [(Cmp::Eq, 5), (Cmp::Ne, 0), (Cmp::Gt, 4), (Cmp::Le, 5), (Cmp::Lt, 6), (Cmp::Ge, 5)]
                .into_iter()
                .enumerate()
        {
            let index = i + 1;
            // `Le` and `Lt` hold before anything comes, so those words start high.
            if matches!(cmp, Cmp::Le | Cmp::Lt) {
                put(one, &s, (&b, one.next(), 0), &[], set(index, 100));
                until(one, &s, &b, index, Cmp::Eq, 100);
                one.host.barrier(&s, &b.raw, 0, LIMIT).expect("barrier");
            }
            put(one, &s, (&b, one.next(), 0), &[], set(index, 5));
            until(one, &s, &b, index, cmp, against);
        }
        one.sync(&s);
        one.ok(&b.status);
    });
}

#[test]
fn fence_orders_puts_to_each_peer() {
    both(3, |one| {
        let b = one.buffer(4096);
        let s = one.stream();
        for round in 1..=60_u64 {
            let (first, second) = ([round; 8], [round]);
            for rank in 0..one.n {
                put(one, &s, (&b, rank, 256 * one.pe), &first, None);
            }
            one.host.fence(&s).expect("fence");
            for rank in 0..one.n {
                // A signal promises its own data only; the fence promises the earlier put.
                put(one, &s, (&b, rank, 256 * one.pe + 64), &second, set(one.pe, round));
            }
            for source in 0..one.n {
                until(one, &s, &b, source, Cmp::Ge, round);
            }
            one.sync(&s);
            for source in 0..one.n {
                assert_eq!(b.read::<u64>(&one.host, 256 * source, 9), [round; 9]);
            }
            one.host.barrier(&s, &b.raw, 0, LIMIT).expect("barrier");
            one.sync(&s);
        }
        one.ok(&b.status);
    });
}

#[test]
fn pad_signals_are_depth_one_and_leave_zero() {
    both(3, |one| {
        let b = one.buffer(4096);
        let s = one.stream();
        let signal = |rank| PadSignal { rank, channel: 2, limit: LIMIT };
        for round in 1..=100_u64 {
            let src = [round * 100 + one.pe as u64];
            for rank in 0..one.n {
                put(one, &s, (&b, rank, 8 * one.pe), &src, None);
                one.host.put_signal(&s, &b.raw, &signal(rank)).expect("put_signal");
            }
            for rank in 0..one.n {
                one.host.wait_signal(&s, &b.raw, &signal(rank)).expect("wait_signal");
            }
            one.sync(&s);
            let expected: Vec<u64> = (0..one.n).map(|p| round * 100 + p as u64).collect();
            assert_eq!(b.read::<u64>(&one.host, 0, one.n), expected);
            one.host.barrier(&s, &b.raw, 0, LIMIT).expect("barrier");
            one.sync(&s);
        }
        one.ok(&b.status);
        let ptrs = one.host.device_ptrs(&b.raw);
        // SAFETY: the array has n entries; the own pad's first 4096 bytes are the slots.
        let slots = unsafe {
            let own = *ptrs.pads.as_ptr::<u64>().add(one.pe) as *const u8;
            std::slice::from_raw_parts(own, 4096)
        };
        assert!(slots.iter().all(|b| *b == 0));
    });
}

#[test]
fn a_second_put_signal_waits_for_the_first_to_be_consumed() {
    both(2, |one| {
        let b = one.buffer(4096);
        let s = one.stream();
        let short = PadSignal { rank: one.next(), channel: 0, limit: Duration::from_millis(60) };
        if one.pe == 0 {
            one.host.put_signal(&s, &b.raw, &short).expect("put_signal");
            one.host.put_signal(&s, &b.raw, &short).expect("put_signal");
            one.sync(&s);
            match one.error(&b.status) {
                Some(symm_core::Error::Timeout { op: "put_signal", phase: "credit", late, .. }) => {
                    assert_eq!(late, [Pe(1)]);
                }
                other => panic!("{other:?}"),
            }
        }
        one.meet();
    });
}

#[test]
fn a_waiting_operation_never_blocks_the_enqueuer_and_the_worker_takes_it() {
    both(2, |one| {
        let b = one.buffer(4096);
        let s = one.stream();
        let began = Instant::now();
        until(one, &s, &b, 0, Cmp::Eq, 1);
        let answer = [77_u64 + one.pe as u64];
        put(one, &s, (&b, one.next(), 0), &answer, set(1, 1));
        assert!(began.elapsed() < Duration::from_secs(1), "the enqueuer waited");
        one.meet();
        // Another stream lets the first one go; nobody synchronises it, so only the worker can.
        let t = one.stream();
        put(one, &t, (&b, one.next(), 8), &[], set(0, 1));
        until(one, &t, &b, 1, Cmp::Eq, 1);
        one.sync(&t);
        assert_eq!(b.read::<u64>(&one.host, 0, 1), [77 + one.prev() as u64]);
        one.sync(&s);
        one.ok(&b.status);
    });
}

#[test]
fn dropping_a_stream_neither_blocks_nor_loses_work() {
    both(2, |one| {
        let b = one.buffer(4096);
        let answer = [5_u64];
        let s = one.stream();
        until(one, &s, &b, 0, Cmp::Eq, 1);
        put(one, &s, (&b, one.next(), 0), &answer, set(1, 1));
        let marker = one.host.mark().expect("mark");
        drop(s);
        assert!(!one.host.passed(&marker).expect("passed"));
        one.meet();
        let t = one.stream();
        put(one, &t, (&b, one.next(), 8), &[], set(0, 1));
        until(one, &t, &b, 1, Cmp::Eq, 1);
        one.sync(&t);
        let began = Instant::now();
        while !one.host.passed(&marker).expect("passed") {
            assert!(began.elapsed() < LIMIT);
            std::thread::sleep(Duration::from_micros(100));
        }
        one.ok(&b.status);
    });
}

#[test]
fn a_marker_covers_puts_on_their_way() {
    // Held puts go only when somebody asks; the marker asks.
    let mut c = config(2);
    c.host_delay_us = 20_000;
    world(2, &c, |one| {
        let b = one.buffer(1 << 14);
        let s = one.stream();
        let src: Vec<Vec<u64>> = (0..32).map(|i| vec![i + 1; 4]).collect();
        for (i, row) in src.iter().enumerate() {
            put(one, &s, (&b, one.next(), 32 * i), row, None);
        }
        one.sync(&s);
        let marker = one.host.mark().expect("mark");
        let began = Instant::now();
        let mut early = 0;
        while !one.host.passed(&marker).expect("passed") {
            early += 1;
            assert!(began.elapsed() < LIMIT);
            std::thread::sleep(Duration::from_micros(200));
        }
        assert!(early > 0, "32 puts with delays of up to 20 ms cannot have arrived at once");
        one.meet();
        for i in 0..32 {
            assert_eq!(b.read::<u64>(&one.host, 32 * i, 4), [i as u64 + 1; 4]);
        }
        one.ok(&b.status);
    });
}

#[test]
fn copies_and_fills_run_in_stream_order() {
    world(1, &config(1), |one| {
        let b = one.buffer(1 << 20);
        let s = one.stream();
        let src: Vec<u8> = (0..5000_u32).map(|i| i as u8).collect();
        let mut back = vec![0_u8; 5000];
        // SAFETY: all ranges are inside the segment or the vectors, which outlive the calls.
        unsafe {
            one.host.fill(&s, b.addr(&one.host, 0), 0xAB, 1 << 20).expect("fill");
            one.host.copy_in(&s, b.addr(&one.host, 100), &src).expect("copy_in");
            one.host.copy(&s, b.addr(&one.host, 100_000), b.addr(&one.host, 100), 5000).expect("copy");
            one.host.copy_out(&s, b.addr(&one.host, 100_000), &mut back).expect("copy_out");
        }
        assert_eq!(back, src);
        assert_eq!(b.read::<u8>(&one.host, 0, 100), [0xAB; 100]);
    });
}

#[test]
fn arguments_outside_are_refused() {
    both(2, |one| {
        let b = one.buffer(4096);
        let s = one.stream();
        let bad = Put { rank: 2, offset: 0, src: Addr::NULL, bytes: 0, signal: None };
        let long = Put { rank: 1, offset: 4090, bytes: 16, ..bad };
        let word = Put { rank: 1, signal: set(16, 1), ..bad };
        for put in [bad, long, word] {
            // SAFETY: refused before anything is touched.
            let refused = unsafe { one.host.put(&s, &b.raw, &put) };
            assert_eq!(refused.expect_err("refused").kind(), "InvalidArgument");
        }
        let channel = PadSignal { rank: 0, channel: 4096 / 8, limit: LIMIT };
        assert!(one.host.put_signal(&s, &b.raw, &channel).is_err());
        assert!(one.host.wait_signal(&s, &b.raw, &PadSignal { rank: 2, channel: 0, limit: LIMIT }).is_err());
        assert!(one.host.barrier(&s, &b.raw, 512, LIMIT).is_err());
        let wait = WaitUntil { index: 16, cmp: Cmp::Eq, value: 0, limit: LIMIT };
        assert!(one.host.wait_until(&s, &b.raw, &wait).is_err());
        assert!(one.host.begin_capture(&s).is_err_and(|e| e.kind() == "Unsupported"));
        one.ok(&b.status);
    });
}

#[test]
fn a_users_own_store_is_seen_without_a_ring() {
    world(2, &config(1), |one| {
        let b = one.buffer(4096);
        let s = one.stream();
        let ptrs = one.host.device_ptrs(&b.raw);
        if one.pe == 0 {
            until(one, &s, &b, 3, Cmp::Eq, 9);
            let began = Instant::now();
            one.sync(&s);
            assert!(began.elapsed() < Duration::from_secs(2));
        } else {
            std::thread::sleep(Duration::from_millis(20));
            // SAFETY: PE 0 is direct; signal 3 is 24 bytes behind the 4096 bytes of slots.
            let word =
                unsafe { &*((*ptrs.pads.as_ptr::<u64>()) as *const u8).add(4096 + 24).cast::<AtomicU64>() };
            word.store(9, Ordering::Release);
        }
        one.ok(&b.status);
    });
}

#[test]
fn many_threads_may_use_one_stream() {
    both(2, |one| {
        let b = one.buffer(4096);
        let s = one.stream();
        let add = Some(SignalUpdate { index: 0, op: SignalOp::Add, value: 1 });
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for i in 0..200 {
                        put(one, &s, (&b, one.next(), 0), &[], add);
                        // Some of them wait for the peer, so that others find the stream busy.
                        if i % 20 == 0 {
                            until(one, &s, &b, 0, Cmp::Ge, i / 2);
                        }
                        if i % 7 == 0 {
                            one.sync(&s);
                        }
                    }
                });
            }
        });
        until(one, &s, &b, 0, Cmp::Ge, 800);
        one.host.barrier(&s, &b.raw, 0, LIMIT).expect("barrier");
        until(one, &s, &b, 0, Cmp::Eq, 800);
        one.sync(&s);
        one.ok(&b.status);
    });
}
