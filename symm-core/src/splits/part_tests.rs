use proptest::prelude::*;

use super::*;
use crate::dtype::DType;
use crate::error::{Fault, Field};

type Change = fn(&mut Header);

/// What W members of a broadcast or reduction publish.
fn job(form: Form, dtype: DType, ranks: usize, numel: u64) -> Vec<Header> {
    let header = Header {
        epoch: 5,
        form: form.code(),
        dtype: u64::from(dtype.code()),
        row_bytes: dtype.size() as u64,
        ne: 1,
        major_align: 1,
        out_id: 9,
        in_rows: numel,
        out_rows: numel,
        lead: u64::from(form.reduces()),
        ..Header::default()
    };
    vec![header; ranks]
}

fn published(headers: &[Header]) -> Vec<Published<'_>> {
    headers.iter().map(|h| Published { header: *h, splits: &[] }).collect()
}

fn judged(form: Form, change: impl Fn(&mut Vec<Header>)) -> Result<(), (usize, Fault)> {
    let mut headers = job(form, DType::BF16, 3, 12);
    change(&mut headers);
    verdict(5, &published(&headers))
}

const FORMS: [Form; 5] = [
    Form::Broadcast,
    Form::ReduceScatter,
    Form::OneShotAllReduce,
    Form::TwoShotAllReduce,
    Form::TwoShotAllReduceOut,
];

#[test]
fn members_must_agree() {
    let all = |h: &mut Vec<Header>, f: fn(&mut Header)| h.iter_mut().for_each(f);
    for form in FORMS {
        assert_eq!(judged(form, |_| {}), Ok(()), "{form:?}");
        assert_eq!(judged(form, |h| all(h, |h| (h.in_rows, h.out_rows) = (0, 0))), Ok(()));
        let leading = if form == Form::ReduceScatter {
            Fault::Differs { what: Field::LeadingRows, expected: 1, got: 2 }
        } else {
            Fault::Differs { what: Field::Shape, expected: 0, got: 0 }
        };
        let bf16 = u64::from(DType::BF16.code());
        let fields: [(Change, Fault); 5] = [
            (|h| h.in_rows = 15, Fault::Differs { what: Field::Length, expected: 12, got: 15 }),
            (|h| h.root = 1, Fault::Differs { what: Field::Root, expected: 0, got: 1 }),
            (|h| h.lead += 1, leading),
            (|h| h.dtype = 2, Fault::Differs { what: Field::DType, expected: bf16, got: 2 }),
            (|h| h.row_bytes = 4, Fault::Differs { what: Field::RowBytes, expected: 2, got: 4 }),
        ];
        for (field, fault) in fields {
            assert_eq!(judged(form, |h| field(&mut h[2])), Err((2, fault)), "{form:?}");
        }
        assert_eq!(judged(form, |h| h[1].out_id = 1), Err((1, Fault::Output)));
        let short = Fault::OutputRows { needed: 12, capacity: 11 };
        assert_eq!(judged(form, |h| h[1].out_rows = 11), Err((1, short)), "{form:?}");
        let wide = judged(form, |h| all(h, |h| h.row_bytes = 4));
        assert_eq!(wide.is_ok(), !form.reduces(), "{form:?}: rows that are no element");
        let bytes = judged(form, |h| all(h, |h| (h.dtype, h.row_bytes) = (10, 1)));
        assert_eq!(bytes.is_ok(), !form.reduces(), "{form:?} of u8");
        let none = judged(form, |h| all(h, |h| h.dtype = u64::MAX));
        assert_eq!(none.is_ok(), !form.reduces(), "{form:?} of an unknown type");
    }
    assert_eq!(judged(Form::Broadcast, |h| all(h, |h| h.root = 2)), Ok(()));
    assert_eq!(judged(Form::Broadcast, |h| all(h, |h| h.root = 3)), Err((0, Fault::Form)));
    let lead = |form, lead: fn(&mut Header)| judged(form, |h| h.iter_mut().for_each(lead));
    assert_eq!(lead(Form::ReduceScatter, |h| h.lead = 4), Ok(()));
    assert_eq!(lead(Form::ReduceScatter, |h| h.lead = 2), Ok(()));
    let wrongs: [fn(&mut Header); 4] =
        [|h| h.lead = 0, |h| h.lead = 3, |h| h.lead = u64::MAX, |h| h.in_rows = 11];
    for wrong in wrongs {
        assert_eq!(lead(Form::ReduceScatter, wrong), Err((0, Fault::Form)));
    }
    assert_eq!(lead(Form::TwoShotAllReduce, |h| h.lead = 2), Err((0, Fault::Form)));
}

#[test]
fn a_root_pushes_to_everybody_else_from_its_right_neighbour_on() {
    let mut headers = job(Form::Broadcast, DType::U8, 4, 7);
    headers.iter_mut().for_each(|h| h.root = 2);
    let mut out = Vec::new();
    for rank in 0..4 {
        moves(rank, &published(&headers), None, &mut out);
        let to: Vec<usize> = out.iter().map(|m| m.rank).collect();
        assert_eq!(to, if rank == 2 { vec![3, 0, 1] } else { vec![] });
        assert!(out.iter().all(|m| (m.src_row, m.dst_row, m.rows) == (0, 0, 7)));
    }
}

#[test]
fn a_matrix_is_cut_into_columns() {
    let mut headers = job(Form::ReduceScatter, DType::F32, 3, 36);
    assert_eq!(part(&headers[0], 1, 3), Part { start: 12, rows: 1, cols: 12, stride: 12 });
    headers[0].lead = 4;
    let p = part(&headers[0], 2, 3);
    assert_eq!((p, p.len(), p.extent()), (Part { start: 6, rows: 4, cols: 3, stride: 9 }, 12, 30));
    // A team of one has all columns, which lie densely.
    assert_eq!(part(&headers[0], 0, 1), Part { start: 0, rows: 1, cols: 36, stride: 36 });
    assert_eq!(part(&job(Form::Barrier, DType::U8, 1, 36)[0], 0, 1), Part::default());
}

proptest! {
    #[test]
    fn parts_cover_every_element_once(
        ranks in 1usize..=9, rows in 1u64..6, cols in 0u64..300, dtype in prop::sample::select(vec![
            DType::F32, DType::F64, DType::F16, DType::BF16, DType::I32, DType::I64,
        ]),
    ) {
        for form in FORMS.into_iter().filter(|f| f.reduces() && *f != Form::OneShotAllReduce) {
            let scatter = form == Form::ReduceScatter;
            let numel = if scatter { rows * cols * ranks as u64 } else { rows * cols };
            let mut headers = job(form, dtype, ranks, numel);
            if scatter {
                headers.iter_mut().for_each(|h| h.lead = rows);
            }
            prop_assert_eq!(verdict(5, &published(&headers)), Ok(()));
            let mut seen = vec![0; numel as usize];
            let mut longest = 0;
            for (rank, header) in headers.iter().enumerate() {
                let p = part(header, rank, ranks);
                prop_assert!(p.start + p.extent() <= numel);
                for row in 0..p.rows {
                    for col in 0..p.cols {
                        seen[(p.start + row * p.stride + col) as usize] += 1;
                    }
                }
                longest = p.len().max(longest);
                if !scatter {
                    prop_assert_eq!(p.start, chunk(numel, dtype.size() as u64, rank, ranks).start);
                    // Whole lines of every buffer that begins with one.
                    prop_assert!(p.is_empty() || (p.start * dtype.size() as u64).is_multiple_of(128));
                }
            }
            prop_assert!(seen.iter().all(|n| *n == 1));
            prop_assert!(longest * dtype.size() as u64 <= (numel * dtype.size() as u64).div_ceil(ranks as u64) + 128);
        }
    }

    #[test]
    fn hostile_headers_never_panic(numbers in prop::collection::vec(prop::sample::select(vec![
        0u64, 1, 2, 3, 8, 1 << 62, i64::MAX as u64, u64::MAX - 1, u64::MAX,
    ]), 7), form in 20u64..=27, rank in 0usize..5, ranks in 0usize..5) {
        let header = Header {
            epoch: 5, form, dtype: numbers[0], row_bytes: numbers[1], in_rows: numbers[2], out_rows: numbers[3],
            root: numbers[4], lead: numbers[5], out_offset: numbers[6], ..Header::default()
        };
        let p = part(&header, rank, ranks);
        let _ = (p.len(), p.extent(), p.is_empty());
        let _ = chunk(numbers[0], numbers[1], rank, ranks);
        let all = vec![Published { header, splits: &[] }; ranks];
        let mut out = Vec::new();
        moves(rank, &all, None, &mut out);
        if verdict(5, &all).is_ok() && ranks > 0 && check_spans(&all, 1 << 40).is_ok() && rank < ranks {
            let p = part(&header, rank, ranks);
            prop_assert!(p.start + p.extent() <= header.out_rows);
        }
    }
}

/// The forms that take, and the planned one: length, type, place and the digest of the shape must be everybody's.
#[test]
fn members_that_take_must_agree() {
    let takes = Form::ALL.into_iter().filter(|f| f.takes());
    for form in takes.chain([Form::PlannedAllToAllVdev]) {
        let planned = form == Form::PlannedAllToAllVdev;
        let judged = |change: &dyn Fn(&mut Vec<Header>)| {
            let mut headers = job(form, DType::BF16, 3, if planned { 0 } else { 12 });
            headers.iter_mut().for_each(|h| (h.lead, h.out_rows, h.out_offset) = (77, 12, 64));
            change(&mut headers);
            verdict(5, &published(&headers))
        };
        assert_eq!(judged(&|_| {}), Ok(()), "{form:?}");
        let (bf16, numel) = (u64::from(DType::BF16.code()), if planned { 0 } else { 12 });
        let fields: [(Change, Field, u64, u64); 4] = [
            (|h| h.in_rows = 11, Field::Length, numel, 11),
            (|h| h.lead = 78, Field::Shape, 0, 0),
            (|h| h.dtype = 2, Field::DType, bf16, 2),
            (|h| h.row_bytes = 4, Field::RowBytes, 2, 4),
        ];
        for (field, what, expected, got) in fields {
            let fault = Fault::Differs { what, expected, got };
            assert_eq!(judged(&|h| field(&mut h[1])), Err((1, fault)), "{form:?}");
        }
        assert_eq!(judged(&|h| h[2].out_id = 1), Err((2, Fault::Output)), "{form:?}");
        let elsewhere = judged(&|h| h[2].out_offset = 72);
        assert_eq!(elsewhere.is_err(), form.low_contention(), "{form:?}");
        if !planned {
            let short = Fault::OutputRows { needed: 12, capacity: 11 };
            assert_eq!(judged(&|h| h[1].out_rows = 11), Err((1, short)), "{form:?}");
        }
        // Nothing is placed by the header.
        let headers = job(form, DType::BF16, 3, 12);
        assert!(part(&headers[0], 1, 3).is_empty());
        let mut none = Vec::new();
        moves(1, &published(&headers), None, &mut none);
        assert!(none.is_empty());
    }
}

#[test]
fn a_table_of_moves() {
    let m = |rank, src_row, dst_row, rows| Move { rank, src_row, dst_row, rows };
    let words = table(&[m(1, 6, 8, 3), m(0, 0, 2, 5)]);
    assert_eq!(words, [1, 6, 8, 0, 0, 0, 2, 3, 0, 0, 0, 8]);
    assert_eq!(table(&[]), [0; 4]);
}
