//! Shows: an MoE layer's dispatch (`all_to_all_vdev_2d`) and combine (`all_to_all_vdev_2d_offset`).
//! Run with: `symm run -n 3 -- target/release/examples/05_moe_layer`
//! Expect: each PE says that its tokens came back changed by their experts.

use symm::{AllToAllVdev, DType, Options};

const NE: usize = 2; // experts a rank
const HIDDEN: usize = 16;
const ALIGN: usize = 8; // each expert's rows start at a multiple, as grouped GEMMs like them

fn main() -> symm::Result<()> {
    let world = symm::init()?;
    let team = world.team();
    let stream = world.stream()?;
    let (me, w) = (team.rank(), team.world_size());

    // Token t of this PE goes to expert t mod E; rows lie in the order of their experts.
    let experts = w * NE;
    let tokens = 3 * experts;
    let splits = vec![3i64; experts];
    let x: Vec<f32> = (0..tokens).flat_map(|t| vec![(me * 1000 + t) as f32; HIDDEN]).collect();

    let input = world.local(DType::F32, tokens * HIDDEN)?;
    let in_splits = world.local(DType::I64, experts)?;
    let dispatched = world.local(DType::I64, 2 * experts)?;
    let combined = world.local(DType::I64, 2 * experts)?;
    let at_experts = team.empty(&[w * NE * 3 + NE * ALIGN, HIDDEN], DType::F32)?;
    let back = team.empty(&[tokens, HIDDEN], DType::F32)?;
    let (to_experts, to_tokens) = (at_experts.rendezvous(team)?, back.rendezvous(team)?);
    stream.write(&input.span(), &x)?;
    stream.write(&in_splits.span(), &splits)?;

    let dispatch = AllToAllVdev {
        input: &input.span(),
        output: &to_experts,
        in_splits: &in_splits.span(),
        out_splits_offsets: &dispatched.span(),
        row: HIDDEN,
        options: Options::default(),
    };
    team.all_to_all_vdev_2d(&stream, &dispatch, ALIGN)?;

    // Expert e of this rank adds its number: the rows of (e, source) start where the offsets say.
    let so: Vec<i64> = stream.read(&dispatched.span())?;
    let mut rows: Vec<f32> = stream.read(&at_experts.span())?;
    for (i, &n) in so[..experts].iter().enumerate() {
        let (expert, first) = (me * NE + i / w, so[experts + i] as usize);
        for v in &mut rows[first * HIDDEN..(first + n as usize) * HIDDEN] {
            *v += expert as f32 / 8.0;
        }
    }
    stream.write(&at_experts.span(), &rows)?;

    let combine = AllToAllVdev {
        input: &at_experts.span(),
        output: &to_tokens,
        in_splits: &dispatched.span(),
        out_splits_offsets: &combined.span(),
        row: HIDDEN,
        options: Options::default(),
    };
    team.all_to_all_vdev_2d_offset(&stream, &combine)?;
    let y: Vec<f32> = stream.read(&back.span())?;
    stream.synchronize()?;
    for t in 0..tokens {
        assert_eq!(y[t * HIDDEN], x[t * HIDDEN] + (t / 3) as f32 / 8.0);
    }
    println!("PE {me}: {tokens} tokens came back from {experts} experts");
    world.finalize()
}
