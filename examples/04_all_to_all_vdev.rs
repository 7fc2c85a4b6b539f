//! Shows: `all_to_all_vdev`, rows to each rank by splits that live in the stream's memory.
//! Run with: `symm run -n 3 -- target/release/examples/04_all_to_all_vdev`
//! Expect: each PE prints how many rows it got from whom.

use symm::{AllToAllVdev, DType, Options};

const ROW: usize = 8;

fn main() -> symm::Result<()> {
    let world = symm::init()?;
    let team = world.team();
    let stream = world.stream()?;
    let (me, w) = (team.rank(), team.world_size());

    // Rank r sends r + d rows to rank d; each row holds (source, destination).
    let rows = |source: usize, to: usize| source + to;
    let splits: Vec<i64> = (0..w).map(|d| rows(me, d) as i64).collect();
    let input: Vec<i32> = (0..w).flat_map(|d| vec![(me * 100 + d) as i32; rows(me, d) * ROW]).collect();
    let capacity: usize = (0..w).map(|s| s + w - 1).sum();

    let x = world.local(DType::I32, input.len())?;
    let in_splits = world.local(DType::I64, w)?;
    let out_splits_offsets = world.local(DType::I64, 2 * w)?;
    let out = team.empty(&[capacity, ROW], DType::I32)?;
    let output = out.rendezvous(team)?;
    stream.write(&x.span(), &input)?;
    stream.write(&in_splits.span(), &splits)?;

    team.all_to_all_vdev(
        &stream,
        &AllToAllVdev {
            input: &x.span(),
            output: &output,
            in_splits: &in_splits.span(),
            out_splits_offsets: &out_splits_offsets.span(),
            row: ROW,
            options: Options::default(),
        },
    )?;
    let so: Vec<i64> = stream.read(&out_splits_offsets.span())?;
    let got: Vec<i32> = stream.read(&out.span())?;
    stream.synchronize()?;

    for source in 0..w {
        let (n, first) = (so[source] as usize, so[w + source] as usize);
        assert_eq!(n, rows(source, me));
        assert!(got[first * ROW..(first + n) * ROW].iter().all(|v| *v == (source * 100 + me) as i32));
    }
    println!("PE {me}: rows from each rank {:?}", &so[..w]);
    world.finalize()
}
