//! Shows: an exchange plan: splits are exchanged once, then many dispatches and combines use them.
//! Run with: `symm run -n 3 -- target/release/examples/07_exchange_plan`
//! Expect: each PE prints how many of its rows came back from the experts, in each of three rounds.

use symm::{DType, Handle, Options, Planned, Span};

const ROW: usize = 8;
/// Experts a rank.
const NE: usize = 2;
/// Rows that each expert's block is aligned to.
const ALIGN: usize = 4;

/// One call's rows.
fn rows_of<'a>(input: &'a Span, output: &'a Handle) -> Planned<'a> {
    Planned { input, output, row: ROW, options: Options::default() }
}

fn main() -> symm::Result<()> {
    let world = symm::init()?;
    let team = world.team();
    let stream = world.stream()?;
    let (me, w) = (team.rank(), team.world_size());

    // Every expert of every rank gets so many rows of this one.
    let splits: Vec<i64> = (0..w * NE).map(|expert| ((me + expert) % 3) as i64).collect();
    let sent = splits.iter().sum::<i64>() as usize;
    let in_splits = world.local(DType::I64, splits.len())?;
    stream.write(&in_splits.span(), &splits)?;

    // Once: who sends how much to whom. The plan says how large buffers must be, at least.
    let mut buffers = team.context().plan_buffers(NE)?;
    let mut plan = buffers.all_to_all_vdev_2d(&stream, &in_splits.span(), ALIGN)?;
    assert_eq!(plan.in_rows(), sent);
    let room = w * NE * 2 + NE * ALIGN;
    assert!(plan.out_rows() <= room);

    let tokens = world.local(DType::F32, sent * ROW)?;
    let (experts, back) =
        (team.empty(&[room, ROW], DType::F32)?, team.empty(&[w * NE * 2, ROW], DType::F32)?);
    let (at_experts, returned) = (experts.rendezvous(team)?, back.rendezvous(team)?);

    for round in 0..3 {
        let rows: Vec<f32> = (0..sent * ROW).map(|i| (1000 * round + 100 * me + i) as f32).collect();
        stream.write(&tokens.span(), &rows)?;
        let there = plan.dispatch(&stream, &rows_of(&tokens.span(), &at_experts))?;
        // What the experts make of their rows would go here; there.received() says which rows are whose.
        there.combine(&stream, &rows_of(&experts.span(), &returned))?;
        let got: Vec<f32> = stream.read(&back.span())?;
        stream.synchronize()?;
        assert_eq!(got[..sent * ROW], rows[..]);
        println!("PE {me}, round {round}: {sent} rows came back");
    }
    world.finalize()
}
