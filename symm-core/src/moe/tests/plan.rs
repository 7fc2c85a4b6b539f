use super::synthetic;
use crate::backend::Form;
use crate::error::Error;
use crate::layout::Header;
use crate::moe::{Counts, Plan, experts_per_pe, owner_of_expert, owner_of_token, token_range};
use crate::splits::{Published, out_splits_offsets, verdict};

#[test]
fn owners_and_ranges_are_one_to_one() {
    for (n, w) in [(0, 3), (1, 4), (5, 8), (7, 3), (8192, 8), (1000, 7), (usize::MAX / 2, 5)] {
        let mut end = 0;
        for pe in 0..w {
            let range = token_range(pe, n, w);
            assert_eq!(range.start, end);
            for token in [range.start, range.end.saturating_sub(1)] {
                assert!(range.is_empty() || owner_of_token(token, n, w) == pe);
            }
            end = range.end;
        }
        assert_eq!(end, n);
    }
    assert_eq!((experts_per_pe(60, 8), owner_of_expert(59, 60, 8), owner_of_expert(8, 60, 8)), (8, 7, 1));
    assert_eq!((experts_per_pe(3, 8), owner_of_expert(2, 3, 8)), (1, 2));
}

#[test]
fn sixty_experts_top_4_on_8_pes() {
    let (w, align) = (8, 8);
    let trace = synthetic(1003, 4, 60);
    let counts = Counts::new(&trace, w, align).expect("the trace should be good");
    let made = trace.ids.iter().filter(|id| **id >= 0).count();
    assert!(made < trace.ids.len() && made > 3000, "the trace should have some choices that were not made");
    assert_eq!(counts.rows, made as u64);
    assert_eq!(counts.load.len(), 60);
    let mut published = Vec::new();
    let mut local = 0;
    let plans: Vec<Plan> =
        (0..w).map(|pe| Plan::new(&trace, pe, w).expect("the trace should be good")).collect();
    for (pe, plan) in plans.iter().enumerate() {
        assert_eq!((plan.ne, plan.in_splits.len()), (8, 64));
        assert_eq!(plan.in_splits[60..], [0; 4], "experts 60 to 63 do not exist");
        assert_eq!(
            (plan.in_splits.iter().sum::<i64>(), plan.rows() as u64),
            (plan.rows() as i64, counts.sent[pe])
        );
        local += plan.in_splits[pe * 8..(pe + 1) * 8].iter().sum::<i64>() as u64;
        // Each row's (destination, expert, token, choice) grows.
        let keys: Vec<_> =
            plan.choice_of_row.iter().map(|c| (trace.ids[plan.tokens.start * 4 + c], *c)).collect();
        assert!(keys.is_sorted() && keys.iter().all(|(id, _)| *id >= 0));
        let expert_of_row = plan.in_splits.iter().enumerate().flat_map(|(e, n)| vec![e as i32; *n as usize]);
        assert!(expert_of_row.eq(keys.iter().map(|(id, _)| *id)));
        for (t, token) in plan.tokens.clone().enumerate() {
            for j in 0..4 {
                let row = plan.row(t, j);
                assert_eq!(row.is_some(), trace.ids[token * 4 + j] >= 0);
                if let Some(row) = row {
                    assert_eq!((plan.choice_of_row[row], plan.token_of_row(row)), (t * 4 + j, Some(token)));
                }
            }
        }
        assert_eq!(
            (plan.row(0, 4), plan.row(plan.tokens.len(), 0), plan.row(usize::MAX, 0)),
            (None, None, None)
        );
        assert_eq!(plan.token_of_row(plan.rows()), None);
        let header = Header {
            epoch: 1,
            form: Form::AllToAllVdev2d.code(),
            row_bytes: 2,
            ne: 8,
            major_align: align,
            in_rows: plan.rows() as u64,
            out_rows: counts.received_padded[pe],
            n_splits: 64,
            ..Header::default()
        };
        published.push(Published { header, splits: &plan.in_splits });
    }
    assert_eq!((counts.rows_local, counts.rows_between_pes), (local, counts.rows - local));
    assert!(counts.rows_local > 0 && counts.rows_between_pes > counts.rows_local);
    assert_eq!(verdict(1, &published), Ok(()));
    for d in 0..w {
        let mut result = vec![0; 128];
        out_splits_offsets(d, &published, &mut result);
        assert_eq!(result[..64].iter().sum::<i64>() as u64, counts.received[d]);
        // The last expert's start plus its rounded rows is the padded size.
        let last: u64 = result[56..64].iter().sum::<i64>() as u64;
        let end = result[64 + 56] as u64 + last.next_multiple_of(align).max(align);
        assert_eq!(end, counts.received_padded[d]);
        for e in 0..8 {
            let load = counts.load.get(d * 8 + e).copied().unwrap_or(0);
            assert_eq!(result[e * 8..(e + 1) * 8].iter().sum::<i64>() as u64, load);
        }
    }
    let busiest = *counts.load.iter().max().expect("there are experts") as f64;
    assert!((counts.imbalance() - busiest * 60.0 / made as f64).abs() < 1e-12);
}

#[test]
fn pes_without_tokens_or_experts() {
    let trace = synthetic(3, 2, 3);
    let counts = Counts::new(&trace, 8, 4).expect("the trace should be good");
    assert_eq!(counts.received_padded[3..], [4; 5], "an expert that does not exist takes one alignment");
    let rows: usize = (0..8).map(|pe| Plan::new(&trace, pe, 8).expect("good").rows()).sum();
    assert_eq!(rows as u64, counts.rows);
    assert!(Plan::new(&trace, 1, 8).expect("good").tokens.is_empty());
}

#[test]
fn arguments_that_do_not_fit_are_errors() {
    let argument = |r: Result<(), Error>| match r {
        Err(Error::InvalidArgument { argument, .. }) => argument,
        other => panic!("{other:?}"),
    };
    let trace = synthetic(10, 2, 4);
    let plan = |t: &super::Trace, pe, pes| Plan::new(t, pe, pes).map(|_| ());
    assert_eq!(argument(plan(&trace, 2, 2)), "pe");
    assert_eq!(argument(plan(&trace, 0, 0)), "pe");
    assert_eq!(argument(Counts::new(&trace, 0, 1).map(|_| ())), "pes");
    assert_eq!(argument(Counts::new(&trace, 2, 0).map(|_| ())), "major_align");
    for wild in [4, -2, i32::MAX, i32::MIN] {
        let mut bad = trace.clone();
        bad.ids[3] = wild;
        assert_eq!(argument(plan(&bad, 0, 2)), "trace.ids");
    }
    let changes: [fn(&mut super::Trace); 3] = [|t| t.tokens = 11, |t| t.top_k = 0, |t| t.weights.truncate(1)];
    for change in changes {
        let mut bad = trace.clone();
        change(&mut bad);
        assert_eq!(argument(plan(&bad, 0, 2)), "trace");
        assert_eq!(argument(Counts::new(&bad, 2, 1).map(|_| ())), "trace");
    }
}
