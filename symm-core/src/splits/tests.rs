use proptest::prelude::*;

use super::*;
use crate::error::{Fault, Field};
use crate::status::fault;

/// A job of W members with one form, as the tests publish it.
#[derive(Clone, Debug)]
struct Job {
    headers: Vec<Header>,
    splits: Vec<Vec<i64>>,
    offsets: Option<Vec<Vec<i64>>>,
}

impl Job {
    fn new(form: Form, ne: u64, major_align: u64, splits: Vec<Vec<i64>>) -> Job {
        let header = |s: &Vec<i64>| Header {
            epoch: 5,
            form: form.code(),
            dtype: 3,
            row_bytes: 16,
            ne,
            major_align,
            out_id: 9,
            in_rows: s.iter().map(|s| s.unsigned_abs()).sum(),
            n_splits: s.len() as u64,
            ..Header::default()
        };
        let mut job = Job { headers: splits.iter().map(header).collect(), splits, offsets: None };
        job.fit();
        job
    }

    /// Equal blocks: no splits.
    fn equal(form: Form, ranks: usize, in_rows: u64) -> Job {
        let mut job = Job::new(form, 1, 1, vec![Vec::new(); ranks]);
        job.headers.iter_mut().for_each(|h| h.in_rows = in_rows);
        job.fit();
        job
    }

    /// Gives every output exactly the rows it needs.
    fn fit(&mut self) {
        let needed: Vec<u64> =
            (0..self.headers.len()).map(|r| out_rows_needed(r, &self.published())).collect();
        self.headers.iter_mut().zip(needed).for_each(|(h, n)| h.out_rows = n);
    }

    fn published(&self) -> Vec<Published<'_>> {
        self.headers.iter().zip(&self.splits).map(|(h, s)| Published { header: *h, splits: s }).collect()
    }

    fn verdict(&self) -> Result<(), (usize, Fault)> {
        verdict(5, &self.published())
    }

    fn moves(&self, rank: usize) -> Vec<Move> {
        let mut out = vec![Move { rank: 99, src_row: 0, dst_row: 0, rows: 1 }];
        moves(rank, &self.published(), self.offsets.as_ref().map(|o| &o[rank][..]), &mut out);
        out
    }

    fn result(&self, rank: usize) -> (Vec<i64>, Vec<i64>) {
        let n = self.splits[rank].len();
        let mut out = vec![-1; 2 * n];
        out_splits_offsets(rank, &self.published(), &mut out);
        let starts = out.split_off(n);
        (out, starts)
    }

    /// Runs all moves on rows named (source, row); a row that is written twice or outside its output fails.
    fn run(&self) -> Vec<Vec<Option<(usize, u64)>>> {
        let mut outs: Vec<Vec<Option<(usize, u64)>>> =
            self.headers.iter().map(|h| vec![None; h.out_rows as usize]).collect();
        for source in 0..self.headers.len() {
            for m in self.moves(source) {
                assert!(m.rows > 0 && m.src_row + m.rows <= self.headers[source].in_rows, "{m:?}");
                for i in 0..m.rows {
                    let cell = &mut outs[m.rank][(m.dst_row + i) as usize];
                    assert_eq!(*cell, None, "written twice: {m:?}");
                    *cell = Some((source, m.src_row + i));
                }
            }
        }
        outs
    }
}

fn example(major_align: u64) -> Job {
    Job::new(Form::AllToAllVdev2d, 2, major_align, vec![vec![5, 1, 0, 3], vec![7, 2, 4, 0]])
}

/// The combine that takes a dispatch's result unchanged.
fn combine_of(dispatch: &Job) -> Job {
    let results: Vec<_> = (0..dispatch.headers.len()).map(|r| dispatch.result(r)).collect();
    let ne = dispatch.headers[0].ne;
    let (splits, offsets): (Vec<_>, Vec<_>) = results.into_iter().unzip();
    let mut job = Job::new(Form::AllToAllVdev2dOffset, ne, 1, splits);
    job.headers.iter_mut().zip(&dispatch.headers).for_each(|(h, d)| h.in_rows = d.out_rows);
    job.offsets = Some(offsets);
    job
}

#[test]
fn the_worked_example() {
    for (align, offsets) in [
        (1, [[0, 5, 12, 13], [0, 0, 4, 7]]),
        (8, [[0, 5, 16, 17], [0, 0, 8, 11]]),
        (16, [[0, 5, 16, 17], [0, 0, 16, 19]]),
    ] {
        let job = example(align);
        assert_eq!(job.verdict(), Ok(()));
        assert_eq!(job.result(0), (vec![5, 7, 1, 2], offsets[0].to_vec()));
        assert_eq!(job.result(1), (vec![0, 4, 3, 0], offsets[1].to_vec()));
        let back = combine_of(&job);
        assert_eq!(back.verdict(), Ok(()));
        assert_eq!(back.result(0), (vec![5, 1, 0, 3], vec![0, 5, 6, 6]));
        assert_eq!(back.result(1), (vec![7, 2, 4, 0], vec![0, 7, 9, 13]));
    }
    for (align, starts) in [(1, [0, 0, 1, 4]), (8, [0, 0, 8, 11])] {
        let job = Job::new(Form::AllToAllVdev2d, 2, align, vec![vec![0, 3, 0, 0], vec![0, 2, 0, 0]]);
        assert_eq!(job.result(0), (vec![0, 0, 3, 2], starts.to_vec()));
    }
}

#[test]
fn the_last_written_row_must_fit_and_padding_behind_it_need_not() {
    let mut job = example(8);
    // Rank 0: expert 1 starts at 16 and has 3 rows. Rank 1: expert 0 has 4 rows from 0, expert 1 has 3 from 8.
    assert_eq!((job.headers[0].out_rows, job.headers[1].out_rows), (19, 11));
    job.headers[1].out_rows = 10;
    assert_eq!(job.verdict(), Err((1, Fault::OutputRows { needed: 11, capacity: 10 })));
    let none = Job::new(Form::AllToAllVdev2d, 2, 8, vec![vec![0; 2]]);
    assert_eq!((none.headers[0].out_rows, none.verdict()), (0, Ok(())));
}

#[test]
fn destinations_start_behind_oneself_and_moves_are_merged() {
    let job = Job::new(Form::AllToAllVdev, 1, 1, vec![vec![1, 2, 3]; 3]);
    let ranks = |r| job.moves(r).iter().map(|m| m.rank).collect::<Vec<_>>();
    assert_eq!((ranks(0), ranks(1), ranks(2)), (vec![1, 2, 0], vec![2, 0, 1], vec![0, 1, 2]));
    assert_eq!(job.moves(1)[0], Move { rank: 2, src_row: 3, dst_row: 3, rows: 3 });
    // One member, no gaps: all experts' rows are one move. With align 8 every expert starts elsewhere.
    let whole = Job::new(Form::AllToAllVdev2d, 3, 1, vec![vec![4, 5, 6]]);
    assert_eq!(whole.moves(0), [Move { rank: 0, src_row: 0, dst_row: 0, rows: 15 }]);
    let apart = Job::new(Form::AllToAllVdev2d, 3, 8, vec![vec![4, 5, 6]]);
    assert_eq!(apart.moves(0).len(), 3);
}

type Change = fn(&mut Header);

fn differs(what: Field, expected: u64, got: u64) -> Fault {
    Fault::Differs { what, expected, got }
}

#[test]
fn equal_blocks() {
    let gather = Job::equal(Form::AllGather, 3, 4);
    assert_eq!(gather.verdict(), Ok(()));
    assert_eq!(gather.headers[2].out_rows, 12);
    for out in gather.run() {
        assert!((0..12).all(|i| out[i] == Some((i / 4, (i % 4) as u64))));
    }
    let a2a = Job::equal(Form::AllToAll, 3, 6);
    assert_eq!(a2a.verdict(), Ok(()));
    for (r, out) in a2a.run().iter().enumerate() {
        assert!((0..6).all(|i| out[i] == Some((i / 2, (2 * r + i % 2) as u64))));
    }
    assert_eq!(Job::equal(Form::AllToAll, 3, 7).verdict(), Err((0, Fault::Form)));
    assert_eq!(Job::equal(Form::Barrier, 3, 0).verdict(), Ok(()));
    assert!(Job::equal(Form::Barrier, 3, 0).moves(1).is_empty());
    let mut uneven = Job::equal(Form::AllGather, 3, 4);
    uneven.headers[2].in_rows = 5;
    assert_eq!(uneven.verdict(), Err((2, differs(Field::Length, 4, 5))));
}

#[test]
fn the_verdict_names_the_lowest_rank_of_the_first_step() {
    let judged = |change: &dyn Fn(&mut Job)| {
        let mut job = example(8);
        change(&mut job);
        job.verdict()
    };
    let operation = |got| Fault::Operation { expected: 20, got };
    assert_eq!(judged(&|j| j.headers[1].form = 17), Err((1, operation(17))));
    assert_eq!(judged(&|j| j.headers[1].epoch = 6), Err((1, operation(20))));
    assert_eq!(judged(&|j| j.headers.iter_mut().for_each(|h| h.epoch = 4)), Err((0, operation(20))));
    let unknown = Fault::Operation { expected: 77, got: 77 };
    assert_eq!(judged(&|j| j.headers.iter_mut().for_each(|h| h.form = 77)), Err((0, unknown)));
    let h = example(8).headers[0];
    let fields: [(Change, Fault); 5] = [
        (|h| h.dtype = 4, differs(Field::DType, h.dtype, 4)),
        (|h| h.row_bytes = 9, differs(Field::RowBytes, h.row_bytes, 9)),
        (|h| h.ne = 4, differs(Field::Experts, 2, 4)),
        (|h| h.major_align = 1, differs(Field::MajorAlign, 8, 1)),
        (|h| h.n_splits = 3, differs(Field::Splits, 4, 3)),
    ];
    for (field, fault) in fields {
        assert_eq!(judged(&|j| field(&mut j.headers[1])), Err((1, fault)));
    }
    for zero in
        [|h: &mut Header| h.ne = 0, |h: &mut Header| h.row_bytes = 0, |h: &mut Header| h.major_align = 0]
    {
        assert_eq!(judged(&|j| j.headers.iter_mut().for_each(zero)), Err((0, Fault::Form)));
    }
    assert_eq!(judged(&|j| j.splits[1].truncate(3)), Err((1, Fault::Form)));
    let no_experts = judged(&|j| {
        j.headers.iter_mut().for_each(|h| (h.ne, h.n_splits) = (0, 0));
        j.splits.iter_mut().for_each(Vec::clear);
    });
    assert_eq!(no_experts, Err((0, Fault::Form)));
    assert_eq!(judged(&|j| j.headers[1].out_id = 8), Err((1, Fault::Output)));
    assert_eq!(judged(&|j| j.splits[1][2] = -4), Err((1, Fault::NegativeSplit { index: 2, value: -4 })));
    assert_eq!(judged(&|j| j.headers[0].in_rows = 8), Err((0, Fault::InputRows { needed: 9, rows: 8 })));
    // An earlier step wins over a lower rank.
    let both = judged(&|j| {
        j.headers[0].in_rows = 8;
        j.headers[1].out_id = 8;
    });
    assert_eq!(both, Err((1, Fault::Output)));
}

#[test]
fn a_published_fault_reaches_everybody_with_its_numbers() {
    for what in [
        Fault::Argument { name: "major_align", got: Some(-3) },
        Fault::NegativeSplit { index: 3, value: i64::MIN },
        Fault::InputRows { needed: u64::MAX, rows: 7 },
        Fault::OutputRows { needed: 9, capacity: 8 },
    ] {
        let mut job = example(1);
        set_fault(&mut job.headers[1], &what);
        // An invalid argument leaves the rest of the header meaningless.
        job.headers[1].out_id = 0;
        job.headers[1].ne = 0;
        assert_eq!(job.verdict(), Err((1, what)));
    }
    let mut unknown = example(1);
    unknown.headers[0].invalid = fault::OUTPUT_ROWS + 1;
    assert_eq!(unknown.verdict(), Err((0, Fault::REFUSED)));
}

#[test]
fn own_splits_are_checked_before_they_are_published() {
    let vdev = |splits: &[i64], rows| check_splits(Form::AllToAllVdev, splits, None, rows);
    assert_eq!(vdev(&[3, 0, 4], 7), Ok(()));
    assert_eq!(vdev(&[3, 0, 4], 6), Err(Fault::InputRows { needed: 7, rows: 6 }));
    assert_eq!(vdev(&[30, -1, i64::MIN], 6), Err(Fault::NegativeSplit { index: 1, value: -1 }));
    assert_eq!(vdev(&[i64::MAX; 3], 6), Err(Fault::InputRows { needed: u64::MAX, rows: 6 }));
    let form = Form::AllToAllVdev2dOffset;
    let offset = |splits: &[i64], offsets: &[i64]| check_splits(form, splits, Some(offsets), 10);
    assert_eq!(offset(&[3, 0, 4], &[7, -9, 0]), Ok(()));
    assert_eq!(offset(&[0, 1], &[99, 9]), Ok(()));
    assert_eq!(offset(&[3, 1], &[7, 10]), Err(Fault::InputRows { needed: 11, rows: 10 }));
    assert_eq!(offset(&[3, 1], &[7, -1]), Err(Fault::InputRows { needed: u64::MAX, rows: 10 }));
    assert_eq!(offset(&[i64::MAX], &[i64::MAX]), Err(Fault::InputRows { needed: u64::MAX - 1, rows: 10 }));
    let refused = Fault::Argument { name: "in_splits", got: None };
    assert_eq!(offset(&[1, 1], &[0]), Err(refused.clone()));
    assert_eq!(check_splits(form, &[1], None, 10), Err(refused.clone()));
    assert_eq!(check_splits(Form::AllToAllVdev, &[1], Some(&[0]), 10), Err(refused.clone()));
}

#[test]
fn an_output_that_leaves_its_allocation_is_refused() {
    let mut job = example(8);
    // Rank 0 has 19 rows of 16 bytes, the most.
    assert_eq!(check_spans(&job.published(), 19 * 16), Ok(()));
    assert_eq!(check_spans(&job.published(), 19 * 16 - 1), Err((0, Fault::Output)));
    job.headers[1].out_offset = u64::MAX;
    assert_eq!(check_spans(&job.published(), 19 * 16), Err((1, Fault::Output)));
    job.headers[1].out_offset = 0;
    job.headers[1].out_rows = u64::MAX / 8;
    assert_eq!(check_spans(&job.published(), u64::MAX), Err((1, Fault::Output)));
}

/// W, ne, major_align and splits with many zeros.
fn jobs() -> impl Strategy<Value = (usize, usize, u64, Vec<Vec<i64>>)> {
    (1usize..=6, 1usize..=5, prop::sample::select(vec![1u64, 2, 3, 8, 16])).prop_flat_map(|(w, ne, align)| {
        let split = prop_oneof![2 => Just(0i64), 3 => 1i64..=10];
        let row = prop::collection::vec(split, w * ne);
        (Just(w), Just(ne), Just(align), prop::collection::vec(row, w))
    })
}

proptest! {
    #[test]
    fn each_received_row_is_written_once_and_where_the_result_says((w, ne, align, splits) in jobs()) {
        let vdev = Job::new(Form::AllToAllVdev, 1, 1, splits.iter().map(|s| s[..w].to_vec()).collect());
        let dispatch = Job::new(Form::AllToAllVdev2d, ne as u64, align, splits);
        for job in [&vdev, &dispatch] {
            prop_assert_eq!(job.verdict(), Ok(()));
            let experts = job.headers[0].ne as usize;
            for (d, out) in job.run().into_iter().enumerate() {
                let (counts, starts) = job.result(d);
                let mut covered = 0;
                let mut total = 0;
                for e in 0..experts {
                    prop_assert_eq!(starts[e * w] as u64 % job.headers[0].major_align, 0);
                    for s in 0..w {
                        let (count, start) = (counts[e * w + s], starts[e * w + s]);
                        let index = d * experts + e;
                        prop_assert_eq!(count, job.splits[s][index]);
                        let first: i64 = job.splits[s][..index].iter().sum();
                        for i in 0..count {
                            prop_assert_eq!(out[(start + i) as usize], Some((s, (first + i) as u64)));
                        }
                        covered += count;
                        total += count as u64;
                    }
                }
                prop_assert_eq!(out.iter().flatten().count() as i64, covered);
                let bound = out_rows_bound(total, experts as u64, job.headers[0].major_align);
                prop_assert!(out.len() as u64 <= bound);
            }
        }
    }

    #[test]
    fn dispatch_then_combine_is_the_identity((w, ne, align, splits) in jobs()) {
        let dispatch = Job::new(Form::AllToAllVdev2d, ne as u64, align, splits);
        let combine = combine_of(&dispatch);
        prop_assert_eq!(combine.verdict(), Ok(()));
        let middle = dispatch.run();
        for (r, out) in combine.run().into_iter().enumerate() {
            let offsets = &combine.offsets.as_ref().expect("the combine should have offsets")[r];
            prop_assert_eq!(
                check_splits(Form::AllToAllVdev2dOffset, &combine.splits[r], Some(offsets), combine.headers[r].in_rows),
                Ok(())
            );
            prop_assert_eq!(out.len() as u64, dispatch.headers[r].in_rows);
            for (i, row) in out.into_iter().enumerate() {
                let (from, at) = row.expect("a dense output should be covered");
                prop_assert_eq!(middle[from][at as usize], Some((r, i as u64)));
            }
            let (counts, _) = combine.result(r);
            prop_assert_eq!(&counts, &dispatch.splits[r]);
        }
        prop_assert_eq!(w, combine.headers.len());
    }

    #[test]
    fn hostile_numbers_never_panic(
        form in 15u64..=27,
        numbers in prop::collection::vec(prop::sample::select(vec![
            0u64, 1, 2, 3, 7, 1 << 62, i64::MAX as u64, i64::MAX as u64 + 1, u64::MAX - 1, u64::MAX,
        ]), 33),
        splits in prop::collection::vec(prop::collection::vec(prop::sample::select(vec![
            i64::MIN, i64::MIN + 1, -1, 0, 1, 5, 1 << 62, i64::MAX - 1, i64::MAX,
        ]), 0..=9), 1..=3),
    ) {
        let published: Vec<Published<'_>> = splits.iter().enumerate().map(|(r, s)| {
            let n = &numbers[11 * r..];
            let header = Header {
                epoch: 1, form, dtype: n[0], row_bytes: n[1], ne: n[2], major_align: n[3], out_id: n[4],
                out_offset: n[5], out_rows: n[6], in_rows: n[7], n_splits: n[8],
                ..Header::default()
            };
            Published { header, splits: s }
        }).collect();
        let mut out = Vec::new();
        for rank in 0..=published.len() {
            let _ = verdict(1, &published);
            let _ = check_spans(&published, numbers[9]);
            let _ = out_rows_needed(rank, &published);
            moves(rank, &published, Some(&splits[0]), &mut out);
            moves(rank, &published, None, &mut out);
            let mut result = [7i64; 10];
            out_splits_offsets(rank, &published, &mut result);
            prop_assert!(result.iter().all(|r| *r >= 0));
        }
        for form in Form::ALL {
            let _ = check_splits(form, &splits[0], None, numbers[10]);
            let _ = check_splits(form, &splits[0], Some(&splits[splits.len() - 1]), numbers[10]);
        }
    }

    /// Whatever is published: if the verdict is good, every move lies in its input and its output.
    #[test]
    fn a_good_verdict_keeps_moves_inside(
        (w, ne, align, mut splits) in jobs(), wild in any::<(prop::sample::Index, i64)>(), capacity in 0u64..60,
    ) {
        let n = w * ne;
        let at = wild.0.index(w * n);
        let mut job = Job::new(Form::AllToAllVdev2d, ne as u64, align, splits.clone());
        splits[at / n][at % n] = wild.1 % 40;
        job.splits = splits;
        job.headers.iter_mut().for_each(|h| h.out_rows = capacity);
        if job.verdict().is_ok() {
            job.run();
        }
    }
}
