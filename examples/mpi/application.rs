//! Shows: an MPI application that splits its processes into groups and gives each group a world of its own, over the group's
//! communicator; MPI is the application's before, meanwhile and after.
//! Run with: `mpirun -n 4 target/release/examples/mpi_application` (features `mpi`, and `nvshmem` for that backend; `SYMM_BACKEND`)
//! Expect: rank 0 says how many rows moved, all compared.

use mpi::Threading;
use mpi::collective::SystemOperation;
use mpi::topology::Color;
use mpi::traits::{Communicator, CommunicatorCollectives};
use symm::{AllToAllVdev, Builder, DType, Options, World};

const NE: usize = 2; // experts a rank
const HIDDEN: usize = 64;
const ALIGN: usize = 8;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    // NVSHMEM calls MPI from a thread of its own while this one waits for it.
    let (universe, level) =
        mpi::initialize_with_threading(Threading::Serialized).ok_or("MPI was initialised before")?;
    if level < Threading::Serialized {
        return Err(
            format!("this MPI gives thread level {level:?}, needed is {:?}", Threading::Serialized).into()
        );
    }
    let all = universe.world();

    // Four and more processes are two replicas of the model, fewer are one.
    let replicas = if all.size() >= 4 { 2 } else { 1 };
    let replica = all.rank() % replicas;
    let group = all.split_by_color(Color::with_value(replica)).ok_or("every process has a replica")?;

    let world = open(&group)?;
    assert_eq!(
        (world.pe().0 as i32, world.n_pes() as i32),
        (group.rank(), group.size()),
        "a PE's number is its rank"
    );
    let rows = dispatch(&world, replica as usize)?;

    // MPI goes on as before: what all replicas sent is what all of them got.
    let (sent, mut got) = (rows.0, 0u64);
    all.all_reduce_into(&rows.1, &mut got, SystemOperation::sum());
    let mut expected = 0u64;
    all.all_reduce_into(&sent, &mut expected, SystemOperation::sum());
    assert_eq!(got, expected, "rows were lost, or came twice");

    // The world first, then the communicator, then MPI, which ends with `universe`.
    let name = world.backend().why().to_owned();
    world.finalize()?;
    drop(group);
    if all.rank() == 0 {
        println!("{got} rows moved in {replicas} worlds of {} processes, all compared ({name})", all.size());
    }
    Ok(())
}

/// The world of a group.
fn open(group: &impl Communicator) -> symm::Result<World> {
    let builder = Builder::from_env()?;
    #[cfg(feature = "nvshmem")]
    // SAFETY: `main` finalizes the world before MPI, and calls MPI from one thread.
    return unsafe { builder.init_nvshmem_over_mpi(group) };
    #[cfg(not(feature = "nvshmem"))]
    builder.init_over_mpi(group)
}

/// Sends rows to experts and compares what comes: rows sent, rows got.
fn dispatch(world: &World, replica: usize) -> symm::Result<(u64, u64)> {
    let (team, stream) = (world.team(), world.stream()?);
    let (me, w) = (team.rank(), team.world_size());
    let experts = w * NE;
    let rows = |from: usize, expert: usize| (from + 2 * expert + replica) % 5;
    let value = |from: usize, expert: usize| (1000 * replica + 100 * from + expert) as f32;

    let splits: Vec<i64> = (0..experts).map(|e| rows(me, e) as i64).collect();
    let x: Vec<f32> = (0..experts).flat_map(|e| vec![value(me, e); rows(me, e) * HIDDEN]).collect();
    let input = world.local(DType::F32, x.len())?;
    let in_splits = world.local(DType::I64, experts)?;
    let out_splits_offsets = world.local(DType::I64, 2 * experts)?;
    let out = team.empty(&[w * NE * 4 + NE * ALIGN, HIDDEN], DType::F32)?;
    let output = out.rendezvous(team)?;
    stream.write(&input.span(), &x)?;
    stream.write(&in_splits.span(), &splits)?;
    let call = AllToAllVdev {
        input: &input.span(),
        output: &output,
        in_splits: &in_splits.span(),
        out_splits_offsets: &out_splits_offsets.span(),
        row: HIDDEN,
        options: Options::default(),
    };
    team.all_to_all_vdev_2d(&stream, &call, ALIGN)?;
    let so: Vec<i64> = stream.read(&out_splits_offsets.span())?;
    let got: Vec<f32> = stream.read(&out.span())?;
    stream.synchronize()?;

    let mut total = 0;
    for (i, &n) in so[..experts].iter().enumerate() {
        let (expert, from, first) = (me * NE + i / w, i % w, so[experts + i] as usize);
        assert_eq!(n as usize, rows(from, expert), "rows of rank {from} for expert {expert}");
        assert!(got[first * HIDDEN..][..n as usize * HIDDEN].iter().all(|v| *v == value(from, expert)));
        total += n as u64;
    }
    Ok((splits.iter().sum::<i64>() as u64, total))
}
