//! The six forms, at one node, at two, and with every PE on its own, against plain results computed here.

mod common;

use std::time::{Duration, Instant};

use common::{Buffer, Call, LIMIT, One, Random, SOON, config, world};
use symm_core::backend::Form;
use symm_core::error::{Fault, Field};
use symm_core::{Backend, Error, Pe};
use symm_host::{RawContext, Stream};

fn everywhere(n: usize, body: impl Fn(&One) + Sync) {
    for nodes in [1, 2, n as u32] {
        world(n, &config(nodes), &body);
    }
}

fn run(one: &One, s: &Stream, c: &RawContext, mut call: Call<'_>) {
    call.run(one, s, c);
    one.sync(s);
}

/// Row `i` of `source`'s input.
fn row(source: usize, i: usize, cols: usize, round: usize) -> Vec<i32> {
    (0..cols).map(|c| (round * 1_000_000 + source * 100_000 + i * 100 + c) as i32).collect()
}

fn rows(source: usize, n: usize, cols: usize, round: usize) -> Vec<i32> {
    (0..n).flat_map(|i| row(source, i, cols, round)).collect()
}

#[test]
fn barrier_gather_and_equal_all_to_all() {
    for n in [1, 2, 3, 4] {
        everywhere(n, |one| {
            let status = one.status();
            let out = one.buffer_of(1 << 16, &status);
            let c = one.context(&status, 1024);
            let s = one.stream();
            for round in 0..20 {
                let input = rows(one.pe, 2 * n, 5, round);
                let call = |form| Call {
                    form,
                    cols: 5,
                    input: &input,
                    output: Some((&out, 2 * n * n)),
                    ..Call::barrier()
                };
                run(one, &s, &c, Call::barrier());
                run(one, &s, &c, call(Form::AllGather));
                let all: Vec<i32> = (0..n).flat_map(|p| rows(p, 2 * n, 5, round)).collect();
                assert_eq!(out.read::<i32>(&one.host, 0, all.len()), all);
                run(one, &s, &c, Call::barrier());
                run(one, &s, &c, call(Form::AllToAll));
                let mine: Vec<i32> =
                    (0..n).flat_map(|p| [0, 1].map(|k| row(p, 2 * one.pe + k, 5, round)).concat()).collect();
                assert_eq!(out.read::<i32>(&one.host, 0, mine.len()), mine);
            }
            assert_eq!(one.host.context_epoch(&c).expect("epoch"), 80);
            one.ok(&status);
        });
    }
}

/// Splits of every PE, known to all by the seed: `[source][destination · ne + expert]`.
fn all_splits(n: usize, ne: usize, seed: u64) -> Vec<Vec<i64>> {
    let mut random = Random(seed);
    (0..n).map(|_| (0..n * ne).map(|_| random.below(6) as i64).collect()).collect()
}

/// Dispatch as its definition says: by expert, then source, each expert's start aligned; what PE `me` receives.
fn dispatched(
    splits: &[Vec<i64>],
    me: usize,
    ne: usize,
    align: usize,
    round: usize,
) -> (Vec<(usize, Vec<i32>)>, Vec<i64>) {
    let w = splits.len();
    let (mut received, mut result) = (Vec::new(), vec![0_i64; 2 * ne * w]);
    let mut start = 0_usize;
    for e in 0..ne {
        let mut at = start;
        for (source, theirs) in splits.iter().enumerate() {
            let k = theirs[me * ne + e] as usize;
            let first: i64 = theirs[..me * ne + e].iter().sum();
            result[e * w + source] = k as i64;
            result[ne * w + e * w + source] = at as i64;
            for i in 0..k {
                received.push((at + i, row(source, first as usize + i, 3, round)));
            }
            at += k;
        }
        start += (at - start).div_ceil(align).max(1) * align;
    }
    (received, result)
}

fn check_rows(one: &One, out: &Buffer, expected: &[(usize, Vec<i32>)]) {
    for (at, row) in expected {
        assert_eq!(
            &out.read::<i32>(&one.host, 4 * row.len() * at, row.len()),
            row,
            "row {at} on PE {}",
            one.pe
        );
    }
}

#[test]
fn dispatch_and_its_way_back() {
    for (n, ne, align) in [(1, 2, 4), (2, 3, 4), (3, 2, 8), (4, 2, 1)] {
        everywhere(n, |one| {
            let status = one.status();
            let (out, home) = (one.buffer_of(1 << 16, &status), one.buffer_of(1 << 16, &status));
            let c = one.context(&status, 1024);
            let s = one.stream();
            for round in 0..25 {
                let splits = all_splits(n, ne, 31 * round as u64 + n as u64);
                let mine = &splits[one.pe];
                let total = mine.iter().sum::<i64>() as usize;
                let input = rows(one.pe, total, 3, round);
                let mut result = vec![-1_i64; 2 * n * ne];
                let capacity = out.bytes / 12;
                run(
                    one,
                    &s,
                    &c,
                    Call {
                        form: Form::AllToAllVdev2d,
                        cols: 3,
                        ne,
                        align,
                        input: &input,
                        output: Some((&out, capacity)),
                        splits: mine,
                        result: &mut result,
                        ..Call::barrier()
                    },
                );
                one.ok(&status);
                let (expected, sizes) = dispatched(&splits, one.pe, ne, align, round);
                assert_eq!(result, sizes);
                check_rows(one, &out, &expected);

                // Combine takes dispatch's result as its splits and offsets and must restore the input.
                let arrived = out.read::<i32>(&one.host, 0, 3 * capacity);
                let mut back = vec![-1_i64; 2 * n * ne];
                run(
                    one,
                    &s,
                    &c,
                    Call {
                        form: Form::AllToAllVdev2dOffset,
                        cols: 3,
                        ne,
                        input: &arrived,
                        output: Some((&home, home.bytes / 12)),
                        splits: &result,
                        result: &mut back,
                        ..Call::barrier()
                    },
                );
                one.ok(&status);
                assert_eq!(home.read::<i32>(&one.host, 0, input.len()), input);
                assert_eq!(&back[..n * ne], &mine[..]);
            }
        });
    }
}

#[test]
fn ragged_all_to_all() {
    for n in [1, 2, 4] {
        everywhere(n, |one| {
            let status = one.status();
            let out = one.buffer_of(1 << 16, &status);
            let c = one.context(&status, 1024);
            let s = one.stream();
            for round in 0..25 {
                let splits = all_splits(n, 1, 77 * round as u64 + n as u64);
                let input = rows(one.pe, splits[one.pe].iter().sum::<i64>() as usize, 3, round);
                let mut result = vec![-1_i64; 2 * n];
                run(
                    one,
                    &s,
                    &c,
                    Call {
                        form: Form::AllToAllVdev,
                        cols: 3,
                        input: &input,
                        output: Some((&out, 6 * n)),
                        splits: &splits[one.pe],
                        result: &mut result,
                        ..Call::barrier()
                    },
                );
                let mut at = 0;
                for (source, theirs) in splits.iter().enumerate() {
                    let first = theirs[..one.pe].iter().sum::<i64>() as usize;
                    let k = theirs[one.pe] as usize;
                    assert_eq!((result[source], result[n + source]), (k as i64, at as i64));
                    let rows: Vec<_> = (0..k).map(|i| (at + i, row(source, first + i, 3, round))).collect();
                    check_rows(one, &out, &rows);
                    at += k;
                }
                one.ok(&status);
            }
        });
    }
}

/// What one PE does wrong.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Wrong {
    Negative,
    InputRows,
    OutputRows,
    Form,
    Row,
    Argument,
    TooManySplits,
}

#[test]
fn every_member_reports_the_same_fault_and_nothing_is_written() {
    let all = [
        Wrong::Negative,
        Wrong::InputRows,
        Wrong::OutputRows,
        Wrong::Form,
        Wrong::Row,
        Wrong::Argument,
        Wrong::TooManySplits,
    ];
    for wrong in all {
        everywhere(3, |one| {
            let status = one.status();
            let out = one.buffer_of(4096, &status);
            let c = one.context(&status, 8);
            let s = one.stream();
            out.write(&one.host, 0, &[-7_i32; 1024]);
            one.meet();
            let at_fault = one.pe == 1;
            let mut splits = vec![2_i64; 3];
            let mut result = vec![9_i64; 6];
            let input = rows(one.pe, 6, 4, 0);
            let mut many = vec![9_i64; 12];
            let mut call = Call {
                form: Form::AllToAllVdev,
                cols: 4,
                input: &input,
                output: Some((&out, 8)),
                result: &mut result,
                ..Call::barrier()
            };
            if at_fault {
                match wrong {
                    Wrong::Negative => splits[2] = -1,
                    Wrong::InputRows => splits[0] = 3,
                    Wrong::OutputRows => call.output = Some((&out, 5)),
                    Wrong::Form => call = Call::barrier(),
                    Wrong::Row => call.cols = 2,
                    Wrong::Argument => call.invalid = true,
                    Wrong::TooManySplits => {
                        call.form = Form::AllToAllVdev2d;
                        call.ne = 3;
                        call.result = &mut many;
                    }
                }
            }
            call.splits = if call.form == Form::Barrier { &[] } else { &splits };
            call.run(one, &s, &c);
            one.sync(&s);
            let expected = match wrong {
                Wrong::Negative => Fault::NegativeSplit { index: 2, value: -1 },
                Wrong::InputRows => Fault::InputRows { needed: 7, rows: 6 },
                Wrong::OutputRows => Fault::OutputRows { needed: 6, capacity: 5 },
                Wrong::Form => Fault::Operation { expected: 19, got: 16 },
                Wrong::TooManySplits => Fault::Operation { expected: 19, got: 20 },
                Wrong::Row => Fault::Differs { what: Field::RowBytes, expected: 16, got: 8 },
                Wrong::Argument => Fault::REFUSED,
            };
            match one.error(&status) {
                Some(Error::PeerInvalid { pe, what, .. }) => {
                    assert_eq!((pe, what), (Pe(1), expected), "{wrong:?}")
                }
                other => panic!("{wrong:?}: {other:?}"),
            }
            if !at_fault {
                assert_eq!(result[..3], [0; 3], "row 0 of the result");
            }
            one.meet();
            assert_eq!(out.read::<i32>(&one.host, 0, 1024), [-7; 1024]);
            // What follows on that team does nothing and does not hang.
            let began = Instant::now();
            run(one, &s, &c, Call::barrier());
            assert!(began.elapsed() < Duration::from_secs(5));
        });
    }
}

#[test]
fn who_does_not_come_is_named_on_all_the_others() {
    everywhere(4, |one| {
        let status = one.status();
        let out = one.buffer_of(4096, &status);
        let c = one.context(&status, 1024);
        let s = one.stream();
        run(one, &s, &c, Call::barrier());
        if one.pe != 2 {
            let input = rows(one.pe, 1, 4, 0);
            // One has a short deadline; the others must learn from it, long before theirs.
            let limit = if one.pe == 0 { SOON } else { LIMIT };
            let began = Instant::now();
            run(
                one,
                &s,
                &c,
                Call {
                    form: Form::AllGather,
                    cols: 4,
                    input: &input,
                    output: Some((&out, 4)),
                    limit,
                    ..Call::barrier()
                },
            );
            assert!(began.elapsed() < Duration::from_secs(5), "{:?}", began.elapsed());
            match one.error(&status) {
                Some(Error::Timeout { op: "all_gather", phase: "arrival", late, .. }) => {
                    assert_eq!(late, [Pe(2)])
                }
                other => panic!("PE {}: {other:?}", one.pe),
            }
        }
        one.meet();
        if one.pe == 2 {
            // It was given up while it was away: it learns that at once.
            let began = Instant::now();
            run(one, &s, &c, Call::barrier());
            assert!(began.elapsed() < Duration::from_secs(5));
            match one.error(&status) {
                Some(Error::Timeout { op: "barrier", late, .. }) => assert_eq!(late, [Pe(2)]),
                other => panic!("{other:?}"),
            }
        }
        one.meet();
        // Recover, as the model does it: streams idle, messages delivered, flags cleared, a barrier.
        let marker = one.host.mark().expect("mark");
        while !one.host.passed(&marker).expect("passed") {
            std::thread::yield_now();
        }
        one.meet();
        // SAFETY: no member has an operation in flight.
        unsafe { one.host.reset_context(&c, 10) }.expect("reset");
        status.as_ref().clear();
        one.meet();
        for _ in 0..3 {
            run(one, &s, &c, Call::barrier());
        }
        one.ok(&status);
        assert_eq!(one.host.context_epoch(&c).expect("epoch"), 13);
    });
}

#[test]
fn two_contexts_at_once_and_calls_on_two_streams() {
    everywhere(2, |one| {
        let status = one.status();
        let (a, b) = (one.buffer_of(4096, &status), one.buffer_of(4096, &status));
        let (ca, cb) = (one.context(&status, 1024), one.context(&status, 1024));
        let (s, t) = (one.stream(), one.stream());
        let inputs: Vec<_> = (0..40).map(|round| rows(one.pe, 2, 4, round)).collect();
        let call = |out, input| Call {
            form: Form::AllToAll,
            cols: 4,
            input,
            output: Some((out, 2)),
            ..Call::barrier()
        };
        for (round, input) in inputs.iter().enumerate() {
            // The PEs use the contexts in different order: only contexts order anything.
            for which in [one.pe, 1 - one.pe] {
                let (out, stream, c) = if which == 0 { (&a, &s, &ca) } else { (&b, &t, &cb) };
                call(out, input).run(one, stream, c);
            }
            // One context on two streams: the order of the calls is the order of the operations.
            Call::barrier().run(one, &t, &ca);
            Call::barrier().run(one, &s, &ca);
            one.sync(&t);
            one.sync(&s);
            for out in [&a, &b] {
                let expected = [row(0, one.pe, 4, round), row(1, one.pe, 4, round)].concat();
                assert_eq!(out.read::<i32>(&one.host, 0, 8), expected);
            }
            run(one, &s, &ca, Call::barrier());
        }
        one.ok(&status);
    });
}

#[test]
fn many_pes_on_few_cores_do_not_crawl() {
    world(8, &config(1), |one| {
        let status = one.status();
        let out = one.buffer_of(1 << 12, &status);
        let c = one.context(&status, 1024);
        let s = one.stream();
        let began = Instant::now();
        for round in 0..500 {
            let input = rows(one.pe, 8, 4, round);
            run(
                one,
                &s,
                &c,
                Call {
                    form: Form::AllToAll,
                    cols: 4,
                    input: &input,
                    output: Some((&out, 8)),
                    ..Call::barrier()
                },
            );
            one.host.barrier(&s, &out.raw, 0, LIMIT).expect("barrier");
            one.sync(&s);
        }
        one.ok(&status);
        assert!(began.elapsed() < Duration::from_secs(10), "{:?} for 1000 operations", began.elapsed());
    });
}

#[test]
fn ten_thousand_operations_with_random_delays() {
    for nodes in [1, 3] {
        let mut c = config(nodes);
        c.host_delay_us = 20;
        let iterations = if nodes == 1 { 10_000 } else { 1_500 };
        world(3, &c, |one| {
            let status = one.status();
            let out = one.buffer_of(1 << 14, &status);
            let c = one.context(&status, 1024);
            let s = one.stream();
            let mut pauses = Random(99 + one.pe as u64);
            for round in 0..iterations {
                let splits = all_splits(3, 2, round as u64);
                let input = rows(one.pe, splits[one.pe].iter().sum::<i64>() as usize, 3, round % 100);
                let mut result = vec![-1_i64; 12];
                match pauses.below(16) {
                    0 => std::thread::sleep(Duration::from_micros(pauses.below(60))),
                    1..4 => std::thread::yield_now(),
                    _ => {}
                }
                run(
                    one,
                    &s,
                    &c,
                    Call {
                        form: Form::AllToAllVdev2d,
                        cols: 3,
                        ne: 2,
                        align: 2,
                        input: &input,
                        output: Some((&out, 200)),
                        splits: &splits[one.pe],
                        result: &mut result,
                        ..Call::barrier()
                    },
                );
                let (expected, sizes) = dispatched(&splits, one.pe, 2, 2, round % 100);
                assert_eq!(result, sizes);
                check_rows(one, &out, &expected);
                // The next round overwrites the output: everybody must have looked.
                run(one, &s, &c, Call::barrier());
            }
            one.ok(&status);
        });
    }
}
