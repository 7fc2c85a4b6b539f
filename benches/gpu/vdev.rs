//! Dispatch and combine of tokens, each to `top_k` different experts at random.

use anyhow::{Result, ensure};
use symm::{AllToAllVdev, DType, Handle, Local, Options};

use crate::{Bench, Target};

#[derive(Clone, Copy)]
pub(crate) struct Shape {
    pub(crate) tokens: usize,
    pub(crate) hidden: usize,
    pub(crate) top_k: usize,
    pub(crate) experts: usize,
    /// Each expert's rows begin at a multiple of so many.
    pub(crate) align: usize,
}

const fn wide(tokens: usize) -> Shape {
    Shape { tokens, hidden: 7168, top_k: 8, experts: 32, align: 1 }
}

/// Name of the dispatch's row, shape, blocks (0: as many as it wants), target of the dispatch and of the combine.
const SHAPES: [(&str, Shape, u32, Target, Target); 9] = [
    ("4096", wide(4096), 0, Target::Micros(655.0), Target::Micros(655.0)),
    ("4096_16_blocks", wide(4096), 16, Target::Micros(690.0), Target::None),
    ("512", wide(512), 0, Target::Micros(90.0), Target::None),
    ("128", wide(128), 0, Target::Micros(28.0), Target::None),
    ("16", wide(16), 0, Target::Micros(9.9), Target::None),
    ("1", wide(1), 0, Target::Micros(7.5), Target::None),
    ("4096_e256", Shape { experts: 256, ..wide(4096) }, 0, Target::Times("vdev_2d_4096", 1.05), Target::None),
    (
        "4096x4096_top2_e8",
        Shape { tokens: 4096, hidden: 4096, top_k: 2, experts: 8, align: 1 },
        0,
        Target::Micros(104.0),
        Target::None,
    ),
    (
        "4096x4096_top1_e8",
        Shape { tokens: 4096, hidden: 4096, top_k: 1, experts: 8, align: 1 },
        0,
        Target::Micros(60.0),
        Target::None,
    ),
];

/// SplitMix64.
pub(crate) struct Random(pub(crate) u64);

impl Random {
    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }
}

/// Rows for each expert.
fn counts(shape: Shape, seed: u64) -> Vec<i64> {
    let mut random = Random(seed);
    let mut counts = vec![0; shape.experts];
    for _ in 0..shape.tokens {
        let mut left: Vec<usize> = (0..shape.experts).collect();
        for _ in 0..shape.top_k {
            let at = random.next() as usize % left.len();
            counts[left.swap_remove(at)] += 1;
        }
    }
    counts
}

/// Memory of one shape.
struct Set {
    counts: Vec<i64>,
    input: Local,
    splits: Local,
    out: Handle,
    there: Local,
    home: Handle,
    back: Local,
}

impl Set {
    fn new(bench: &Bench<'_>, shape: Shape) -> Result<Self> {
        let (world, stream) = (bench.timer.world, &bench.timer.stream);
        let (team, rank) = (world.team(), world.team().rank() as u64);
        let rows = shape.tokens * shape.top_k;
        let symmetric = |rows: usize| team.empty(&[rows * shape.hidden], DType::BF16)?.rendezvous(team);
        let counts = counts(shape, 42 + rank);
        let splits = world.local(DType::I64, shape.experts)?;
        stream.write(&splits.span(), &counts)?;
        let input = world.local(DType::BF16, rows * shape.hidden)?;
        let mut random = Random(7 + rank);
        let words: Vec<half::bf16> = (0..rows * shape.hidden / 4)
            .flat_map(|_| {
                let word = random.next();
                [0, 16, 32, 48].map(|shift| half::bf16::from_bits((word >> shift) as u16))
            })
            .collect();
        stream.write(&input.span(), &words)?;
        Ok(Set {
            counts,
            input,
            splits,
            out: symmetric(world.n_pes() * rows + shape.experts * shape.align)?,
            there: world.local(DType::I64, 2 * shape.experts)?,
            home: symmetric(rows)?,
            back: world.local(DType::I64, 2 * shape.experts)?,
        })
    }
}

pub(crate) fn measure(
    bench: &mut Bench<'_>,
    (name, shape, blocks, dispatch_target, combine_target): (&str, Shape, u32, Target, Target),
) -> Result<()> {
    let names = [format!("vdev_2d_{name}"), format!("vdev_2d_offset_{name}")];
    if !names.iter().any(|n| bench.wants(n)) || !shape.experts.is_multiple_of(bench.timer.world.n_pes()) {
        return Ok(());
    }
    let set = Set::new(bench, shape)?;
    let options = Options { max_blocks: (blocks > 0).then_some(blocks), ..Options::default() };
    let (world, stream) = (bench.timer.world, &bench.timer.stream);
    let context = world.team().context();
    let (input, splits, there, back) =
        (set.input.span(), set.splits.span(), set.there.span(), set.back.span());
    let received = set.out.span();
    let (row, input, splits) = (shape.hidden, &input, &splits);
    let dispatch =
        AllToAllVdev { input, output: &set.out, in_splits: splits, out_splits_offsets: &there, row, options };
    let combine = AllToAllVdev {
        input: &received,
        output: &set.home,
        in_splits: &there,
        out_splits_offsets: &back,
        row,
        options,
    };
    let here = shape.experts / world.n_pes();
    let away = |(expert, _): &(usize, &i64)| expert / here != world.team().rank();
    let rows: i64 = set.counts.iter().enumerate().filter(away).map(|(_, n)| n).sum();
    let wire = bench.timer.maximum(rows as f64 * (2 * shape.hidden) as f64)?;

    let there_times =
        bench.timer.both(10, || Ok(context.all_to_all_vdev_2d(stream, &dispatch, shape.align)?))?;
    let back_times = bench.timer.both(10, || Ok(context.all_to_all_vdev_2d_offset(stream, &combine)?))?;
    let got: Vec<i64> = stream.read(&back.slice(0, shape.experts)?)?;
    ensure!(got == set.counts, "{name}: {got:?} rows came back, {:?} were sent", set.counts);
    bench.compare.same(world, stream, name, &set.home.span(), input)?;
    let [dispatch_name, combine_name] = names;
    bench.add(&dispatch_name, dispatch_target, wire, 2.0, there_times);
    bench.add(&combine_name, combine_target, wire, 2.0, back_times);
    bench.timer.meet()
}

pub(crate) fn run(bench: &mut Bench<'_>) -> Result<()> {
    SHAPES.into_iter().try_for_each(|shape| measure(bench, shape))
}
