//! put, get, put_with_signal, wait_until, pad signals and barriers.

use anyhow::{Result, ensure};
use serde_json::{Map, Value, json};
use symm_core::Backend;
use symm_core::backend::{Cmp, SignalOp, SignalUpdate};
use symm_core::dtype::DType;

use crate::pe::{Me, Random, same};

const AREA: usize = 65 << 20;

pub(crate) fn run<B: Backend>(me: &Me<B>, figures: &mut Map<String, Value>) -> Result<()> {
    let (w, r) = (me.n(), me.pe());
    let (right, left) = ((r + 1) % w, (r + w - 1) % w);
    let team = me.world.team();
    let h = me.symmetric(AREA)?;
    let s = &me.stream;
    let mut checked = 0;

    // Ring: set, then add, with growing values.
    let token = me.local(&[r as u64])?;
    for round in 1..=8u64 {
        let set = SignalUpdate { index: 3, op: SignalOp::Set, value: round };
        h.put_with_signal(s, right, 8, &token.span(), set)?;
        h.wait_until(s, 3, Cmp::Eq, round, None)?;
        let add = SignalUpdate { index: 4, op: SignalOp::Add, value: 2 };
        h.put_with_signal(s, right, 16, &token.span().slice(0, 0)?, add)?;
        h.wait_until(s, 4, Cmp::Ge, 2 * round, None)?;
        s.synchronize()?;
        let got: Vec<u8> = s.read(&h.span().slice(64, 8)?)?;
        same("ring", &got, &(left as u64).to_le_bytes())?;
        team.barrier(s, Default::default())?;
    }

    // Every size class, odd starts on both sides: 1 byte to 64 MiB.
    let mut sizes =
        vec![1, 2, 3, 7, 8, 15, 16, 17, 31, 33, 511, 512, 513, 4095, 16384, 16385, 100_003, (1 << 20) + 1];
    sizes.push(64 << 20);
    let source = me.world.local(DType::U8, (64 << 20) + 64)?;
    let mut signal = 0;
    for (i, bytes) in sizes.into_iter().enumerate() {
        for (from, to) in [(0usize, 0usize), (1, 1), (3, 8), (0, 1), (2, 6), (8, 0)] {
            if bytes > 1 << 20 && from != to {
                continue;
            }
            let data = |pe: usize| Random((pe * 1000 + i) as u64 ^ bytes as u64).bytes(bytes);
            let src = source.span().slice(from, bytes)?;
            s.write(&src, &data(r))?;
            // Guards on both sides of the destination stay as they are.
            let whole = h.span().slice(to, bytes + 64)?;
            s.fill(&whole, 0xEE)?;
            team.barrier(s, Default::default())?;
            signal += 1;
            let set = SignalUpdate { index: 5, op: SignalOp::Set, value: signal };
            h.put_with_signal(s, right, to + 32, &src, set)?;
            h.wait_until(s, 5, Cmp::Ge, signal, None)?;
            s.synchronize()?;
            let what = format!("put of {bytes} bytes from +{from} to +{to}");
            let got: Vec<u8> = s.read(&whole)?;
            let expected = [vec![0xEE; 32], data(left), vec![0xEE; 32]].concat();
            same(&what, &got, &expected)?;
            team.barrier(s, Default::default())?;
            let back = me.world.local(DType::U8, bytes + from)?;
            h.get(s, right, to + 32, &back.span().slice(from, bytes)?)?;
            s.synchronize()?;
            let got: Vec<u8> = s.read(&back.span().slice(from, bytes)?)?;
            same(&format!("get after {what}"), &got, &data(r))?;
            team.barrier(s, Default::default())?;
            s.synchronize()?;
            checked += 2;
        }
    }

    // Pad signals to every peer, depth 1, and barriers on two channels.
    for round in 0..20 {
        for d in 0..w {
            h.put_signal(s, (r + d) % w, round % 3, None)?;
        }
        for d in 0..w {
            h.wait_signal(s, (r + w - d) % w, round % 3, None)?;
        }
        h.barrier(s, round % 2, None)?;
    }
    s.synchronize()?;
    let pad: Vec<u32> = s.read(&h.get_signal_pad(r, &[], DType::U32, 0)?)?;
    ensure!(pad.iter().all(|v| *v == 0), "a pad slot was left raised");
    figures.insert("put_get_checks".to_owned(), json!(checked));
    Ok(())
}
