//! Times of what was checked, beside the copy-engine ceiling of the same run.

use anyhow::Result;
use serde_json::{Map, Value, json};
use symm_core::backend::{Cmp, SignalOp, SignalUpdate};
use symm_core::dtype::DType;
use symm_core::model::{AllToAllVdev, Options};

use symm_cuda::{Cuda, Event};

use crate::pe::{Me, Random};

const HIDDEN: usize = 7168;
const TOP_K: usize = 8;
const EXPERTS: usize = 32;
const CALLS: usize = 10;

pub(crate) fn run(me: &Me<Cuda>, figures: &mut Map<String, Value>) -> Result<()> {
    let mut put = |name: String, value: f64, unit: &str| {
        if me.pe() == 0 {
            println!("  {name}: {value:.2} {unit}");
        }
        figures.insert(name, json!((value * 1000.0).round() / 1000.0));
    };
    if me.n() > 1 {
        put("copy_engine_256MiB_gbps".to_owned(), copy_engine(me)?, "GB/s each way");
    }
    let options = Options::default();
    let team = me.world.team();
    put(
        "context_barrier_us".to_owned(),
        time(me, CALLS, 20, || Ok(team.barrier(&me.stream, options)?))?,
        "us",
    );
    let h = me.symmetric(1 << 20)?;
    put("handle_barrier_us".to_owned(), time(me, CALLS, 20, || Ok(h.barrier(&me.stream, 0, None)?))?, "us");
    if me.n() == 2 {
        put("put_with_signal_8B_round_trip_us".to_owned(), round_trip(me)?, "us");
    }
    for tokens in [1, 16, 128, 512, 4096] {
        for (name, us, gbps) in all_to_all(me, tokens, options)? {
            put(format!("{name}_{tokens}_us"), us, "us");
            put(format!("{name}_{tokens}_wire_gbps"), gbps, "GB/s");
        }
    }
    // Few blocks, the rest of the GPU being left to whoever computes meanwhile.
    for (name, us, _) in all_to_all(me, 4096, Options { max_blocks: Some(16), ..options })? {
        put(format!("{name}_4096_16_blocks_us"), us, "us");
    }
    Ok(())
}

/// Median over `repeats` of the µs that a call of a graph of `calls` calls takes, the maximum over PEs.
///
/// The GPUs meet right before the clock starts. Meeting on the host is not enough: one PE's launch comes some µs after the
/// other's, and the calls of a small graph would be charged for it.
fn time(me: &Me<Cuda>, calls: usize, repeats: usize, body: impl Fn() -> Result<()>) -> Result<f64> {
    let graph = me.capture(|| (0..calls).try_for_each(|_| body()))?;
    let (start, end) = (Event::timed()?, Event::timed()?);
    let h = me.symmetric(8)?;
    // Long enough for the host to enqueue all that follows.
    let busy = me.world.local(DType::U8, 256 << 20)?;
    let mut all = Vec::new();
    for i in 0..repeats + 5 {
        me.meet()?;
        me.stream.fill(&busy.span(), 0)?;
        h.barrier(&me.stream, 0, None)?;
        start.record(me.stream.raw())?;
        me.launch(&graph)?;
        end.record(me.stream.raw())?;
        me.stream.synchronize()?;
        if i >= 5 {
            let us = f64::from(end.milliseconds_since(&start)?) * 1e3 / calls as f64;
            all.push(me.max(us)?);
        }
    }
    all.sort_by(f64::total_cmp);
    Ok(all[all.len() / 2])
}

/// Both directions at once, by cuMemcpyAsync.
fn copy_engine(me: &Me<Cuda>) -> Result<f64> {
    const BYTES: usize = 256 << 20;
    let h = me.symmetric(BYTES)?;
    let source = me.world.local(DType::U8, BYTES)?;
    let right = (me.pe() + 1) % me.n();
    let remote = h.get_remote_tensor(right, &[BYTES], DType::U8)?;
    me.stream.fill(&source.span(), me.pe() as u8)?;
    let us = time(me, 4, 10, || Ok(me.stream.copy(&remote, &source.span())?))?;
    Ok(BYTES as f64 / us / 1e3)
}

/// PE 0 puts, PE 1 answers; kernels of one graph, so that no launch from the host is in it.
fn round_trip(me: &Me<Cuda>) -> Result<f64> {
    const TRIPS: u64 = 20;
    let h = me.symmetric(4096)?;
    let word = me.local(&[7u64])?;
    let (s, peer, span) = (&me.stream, 1 - me.pe(), word.span());
    let us = time(me, 1, 20, || {
        // Values repeat in every replay: each waits for the next value, which differs from the one before.
        for value in 1..=TRIPS {
            let send =
                || h.put_with_signal(s, peer, 0, &span, SignalUpdate { index: 0, op: SignalOp::Set, value });
            if me.pe() == 0 {
                send()?;
            }
            h.wait_until(s, 0, Cmp::Eq, value, None)?;
            if me.pe() != 0 {
                send()?;
            }
        }
        Ok(())
    })?;
    Ok(us / TRIPS as f64)
}

/// Dispatch and combine of `tokens` tokens a PE, each to `TOP_K` different experts: (name, µs, wire GB/s).
fn all_to_all(me: &Me<Cuda>, tokens: usize, options: Options) -> Result<Vec<(&'static str, f64, f64)>> {
    let (w, r, s) = (me.n(), me.pe(), &me.stream);
    let ne = EXPERTS / w;
    let n = w * ne;
    let rows = tokens * TOP_K;
    let row_bytes = HIDDEN * 2;
    let mut random = Random(42 + r as u64);
    let mut counts = vec![0i64; n];
    for _ in 0..tokens {
        let mut left: Vec<usize> = (0..n).collect();
        for _ in 0..TOP_K {
            counts[left.swap_remove(random.below(left.len()))] += 1;
        }
    }
    let remote: i64 = counts.iter().enumerate().filter(|(c, _)| c / ne != r).map(|(_, n)| n).sum();
    let wire = me.max(remote as f64 * row_bytes as f64)?;
    let out = me.world.team().empty(&[(w * rows + ne) * HIDDEN], DType::BF16)?.rendezvous(me.world.team())?;
    let home = me.world.team().empty(&[rows * HIDDEN], DType::BF16)?.rendezvous(me.world.team())?;
    let input = me.world.local(DType::BF16, rows * HIDDEN)?;
    s.fill(&input.span(), 0x11 * (r as u8 + 1))?;
    let splits = me.local(&counts)?;
    let (there, back) = (me.local(&vec![0i64; 2 * n])?, me.local(&vec![0i64; 2 * n])?);
    let (input, splits, there, back, received) =
        (input.span(), splits.span(), there.span(), back.span(), out.span());
    let context = me.world.team().context();
    let dispatch = AllToAllVdev {
        input: &input,
        output: &out,
        in_splits: &splits,
        out_splits_offsets: &there,
        row: HIDDEN,
        options,
    };
    let combine = AllToAllVdev {
        input: &received,
        output: &home,
        in_splits: &there,
        out_splits_offsets: &back,
        row: HIDDEN,
        options,
    };
    let mut all = Vec::new();
    let us = time(me, CALLS, 20, || Ok(context.all_to_all_vdev_2d(s, &dispatch, 1)?))?;
    all.push(("dispatch", us, wire / us / 1e3));
    let us = time(me, CALLS, 20, || Ok(context.all_to_all_vdev_2d_offset(s, &combine)?))?;
    all.push(("combine", us, wire / us / 1e3));
    let got: Vec<i64> = s.read(&back.slice(0, n)?)?;
    anyhow::ensure!(got == counts, "combine of {tokens} tokens: {got:?}, expected {counts:?}");
    let bytes = home.span();
    let first: Vec<half::bf16> = s.read(&bytes)?;
    let expected = half::bf16::from_bits(u16::from_ne_bytes([0x11 * (r as u8 + 1); 2]));
    anyhow::ensure!(
        first.iter().all(|v| v.to_bits() == expected.to_bits()),
        "combine of {tokens} tokens: rows of another PE"
    );
    Ok(all)
}
