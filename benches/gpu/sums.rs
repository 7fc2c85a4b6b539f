//! Reductions of bf16.

use anyhow::{Result, ensure};
use half::bf16;
use symm::{DType, Handle, Options};

use crate::{Bench, Target};

/// Whether everybody reads everything, bytes, target.
const CASES: [(bool, usize, Target); 7] = [
    (true, 4 << 10, Target::Micros(5.0)),
    (true, 64 << 10, Target::None),
    (true, 1 << 20, Target::Micros(9.0)),
    (false, 4 << 10, Target::None),
    (false, 64 << 10, Target::None),
    (false, 1 << 20, Target::None),
    (false, 16 << 20, Target::Micros(56.0)),
];

fn size(bytes: usize) -> String {
    if bytes < 1 << 20 { format!("{}KiB", bytes >> 10) } else { format!("{}MiB", bytes >> 20) }
}

/// Small whole numbers, so that their sums are exact and do not depend on the order.
fn value(rank: usize, i: usize) -> bf16 {
    bf16::from_f32(((i * 7 + rank * 3) % 16) as f32)
}

fn write(bench: &Bench<'_>, buffer: &Handle) -> Result<()> {
    let values: Vec<bf16> = (0..buffer.len()).map(|i| value(buffer.rank(), i)).collect();
    bench.timer.stream.write(&buffer.span(), &values)?;
    bench.timer.meet()
}

fn measure(bench: &mut Bench<'_>, (one_shot, bytes, target): (bool, usize, Target)) -> Result<()> {
    let name = format!("{}_{}", if one_shot { "one_shot" } else { "two_shot" }, size(bytes));
    let (world, w) = (bench.timer.world, bench.timer.world.n_pes());
    if !bench.wants(&name) {
        return Ok(());
    }
    let (team, numel) = (world.team(), bytes / 2);
    let buffer = team.empty(&[numel], DType::BF16)?.rendezvous(team)?;
    let local = world.local(DType::BF16, numel)?;
    let (context, out, options) = (team.context(), local.span(), Options::default());
    write(bench, &buffer)?;
    let stream = &bench.timer.stream;
    let call = || {
        let enqueued = if one_shot {
            context.one_shot_all_reduce_out(stream, &buffer, &out, options)
        } else {
            context.two_shot_all_reduce(stream, &buffer, options)
        };
        Ok(enqueued?)
    };
    let times = bench.timer.both(10, call)?;
    // In place the sums have grown into infinities by now.
    write(bench, &buffer)?;
    call()?;
    let got: Vec<bf16> = stream.read(&if one_shot { out.clone() } else { buffer.span() })?;
    let want = |i| bf16::from_f32((0..w).map(|r| value(r, i).to_f32()).sum());
    let wrong = got.iter().enumerate().filter(|(i, v)| **v != want(*i)).count();
    ensure!(wrong == 0, "{name}: {wrong} of {numel} sums are wrong");
    bench.timer.meet()?;
    // One-shot reads everybody's buffer, two-shot a part of each and sends its sums everywhere.
    let wire = if one_shot { (w - 1) * bytes } else { 2 * (w - 1) * bytes / w };
    bench.add(&name, target, wire as f64, 2.0, times);
    Ok(())
}

pub(crate) fn run(bench: &mut Bench<'_>) -> Result<()> {
    CASES.into_iter().try_for_each(|case| measure(bench, case))
}
