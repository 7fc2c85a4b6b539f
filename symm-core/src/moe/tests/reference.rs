use std::collections::HashSet;

use super::synthetic;
use crate::dtype::DType;
use crate::moe::{
    Counts, Float, Plan, Reference, Trace, combine_row, expert_apply, expert_constants, input_row,
    input_value,
};
use crate::oracle;

const FLOATS: [Float; 3] = [Float::BF16, Float::F16, Float::F32];

#[test]
fn inputs_are_exact_in_every_type_and_depend_on_all_three() {
    for token in 0..200 {
        for column in 0..50 {
            let x = input_value(3, token, column);
            assert!((0.25..4.0).contains(&x.abs()));
            assert!(FLOATS.iter().all(|f| f.round(x) == x));
        }
    }
    let row = |seed, token| (0..16).map(|c| input_value(seed, token, c).to_bits()).collect::<Vec<_>>();
    let rows: HashSet<_> = (0..5000).map(|t| row(1, t)).chain((0..5000).map(|t| row(2, t))).collect();
    assert_eq!(rows.len(), 10_000);
    assert_eq!(row(1, 7), row(1, 7));
}

#[test]
fn no_two_experts_give_the_same_row() {
    let pairs: HashSet<_> =
        (0..4096).map(expert_constants).map(|(a, b)| (a.to_bits(), b.to_bits())).collect();
    assert_eq!(pairs.len(), 4096);
    for float in FLOATS {
        for token in 0..20 {
            let rows: HashSet<Vec<u8>> = (0..512)
                .map(|expert| {
                    let mut row = vec![0; 16 * float.size()];
                    input_row(float, 5, token, &mut row);
                    expert_apply(float, expert, &mut row);
                    row
                })
                .collect();
            assert_eq!(rows.len(), 512, "{float:?}");
        }
    }
}

#[test]
fn values_by_hand() {
    // bf16 has 8 significant bits: 1 + 1/256 lies between 1 and 1 + 1/128, and goes to the even one, 1.
    for (value, rounded) in [(1.0 + 1.0 / 256.0, 1.0), (1.0 + 3.0 / 256.0, 1.0 + 4.0 / 256.0), (-0.75, -0.75)]
    {
        let mut bytes = [0; 2];
        Float::BF16.store(value, &mut bytes);
        assert_eq!((Float::BF16.load(&bytes), Float::BF16.round(value)), (rounded, rounded));
    }
    assert_eq!(expert_constants(0), (1.0, 0.25));
    assert_eq!(expert_constants(65), (1.0 + 1.0 / 64.0, 0.5));
    let mut row = [0; 4];
    Float::F32.store(2.0, &mut row);
    expert_apply(Float::F32, 65, &mut row);
    assert_eq!(Float::F32.load(&row), 2.0 + 2.0 / 64.0 + 0.5);
    let [mut a, mut b, mut out] = [[0; 4]; 3];
    Float::F32.store(3.0, &mut a);
    Float::F32.store(-8.0, &mut b);
    combine_row(Float::F32, &[(0.5, &a), (0.25, &b)], &mut out);
    assert_eq!(Float::F32.load(&out), -0.5);
    combine_row(Float::F32, &[], &mut out);
    assert_eq!(out, [0; 4]);
    // Products are rounded before they are added: with an FMA the result would not be 0.
    let w = 1.0 + f32::EPSILON;
    Float::F32.store(-(w * w), &mut a);
    Float::F32.store(w, &mut b);
    combine_row(Float::F32, &[(1.0, &a), (w, &b)], &mut out);
    assert_eq!(Float::F32.load(&out), 0.0);
    assert_ne!(w.mul_add(w, -(w * w)), 0.0);
}

#[test]
fn dtypes() {
    for float in FLOATS {
        let dtype = DType::from(float);
        assert_eq!((Float::try_from(dtype), dtype.size()), (Ok(float), float.size()));
    }
    assert!(Float::try_from(DType::I32).is_err());
}

/// A whole step by plans and the oracles of the operations, as a job makes it on `w` PEs.
fn step(trace: &Trace, float: Float, hidden: usize, w: usize, align: usize) -> Vec<Vec<u8>> {
    let bytes = hidden * float.size();
    let plans: Vec<Plan> =
        (0..w).map(|pe| Plan::new(trace, pe, w).expect("the trace should be good")).collect();
    let counts = Counts::new(trace, w, align as u64).expect("the trace should be good");
    let inputs: Vec<Vec<u8>> = plans
        .iter()
        .map(|plan| {
            let mut input = vec![0; plan.rows() * bytes];
            for (i, row) in input.chunks_mut(bytes).enumerate() {
                input_row(float, 11, plan.token_of_row(i).expect("every row has a token"), row);
            }
            input
        })
        .collect();
    let splits: Vec<_> = plans.iter().map(|p| p.in_splits.clone()).collect();
    let ne = plans[0].ne;
    let mut middle: Vec<_> = counts.received_padded.iter().map(|n| vec![0xEE; *n as usize * bytes]).collect();
    let results = oracle::all_to_all_vdev_2d(&inputs, &splits, bytes, ne, align, &mut middle);
    for (pe, (area, result)) in middle.iter_mut().zip(&results).enumerate() {
        for i in 0..ne * w {
            let start = result[ne * w + i] as usize;
            for row in start..start + result[i] as usize {
                expert_apply(float, pe * ne + i / w, &mut area[row * bytes..(row + 1) * bytes]);
            }
        }
    }
    let mut back: Vec<_> = inputs.iter().map(|i| vec![0; i.len()]).collect();
    oracle::all_to_all_vdev_2d_offset(&middle, &results, bytes, ne, &mut back);
    plans
        .iter()
        .zip(&back)
        .map(|(plan, rows)| {
            let mut out = vec![0xEE; plan.tokens.len() * bytes];
            for (t, row) in out.chunks_mut(bytes).enumerate() {
                let choices: Vec<(f32, &[u8])> = (0..plan.top_k)
                    .filter_map(|j| {
                        let at = plan.row(t, j)?;
                        let weight = trace.weights[(plan.tokens.start + t) * plan.top_k + j];
                        Some((weight, &rows[at * bytes..(at + 1) * bytes]))
                    })
                    .collect();
                combine_row(float, &choices, row);
            }
            out
        })
        .collect()
}

#[test]
fn a_planned_step_gives_the_reference_bit_for_bit() {
    let mut trace = synthetic(203, 4, 60);
    trace.ids[8..12].fill(-1);
    for float in FLOATS {
        for (w, align) in [(1, 1), (3, 8), (8, 16)] {
            let reference = Reference { trace: &trace, float, hidden: 24, seed: 11 };
            for (pe, out) in step(&trace, float, 24, w, align).into_iter().enumerate() {
                let tokens = crate::moe::token_range(pe, trace.tokens, w);
                assert!(out == reference.rows(tokens), "{float:?} on {w} PEs, PE {pe}");
            }
        }
    }
    let reference = Reference { trace: &trace, float: Float::F32, hidden: 24, seed: 11 };
    assert!(reference.rows(2..3).iter().all(|b| *b == 0), "token 2 made no choice");
    assert!(reference.rows(3..4).iter().any(|b| *b != 0));
    assert_eq!(reference.rows(203..204), vec![0; 96]);
    let other = Reference { seed: 12, ..reference };
    assert_ne!(reference.rows(0..5), other.rows(0..5));
}
