//! Shows: a PE dies and the rest go on, in `Team::without`, with the tensor they had.
//! Run with: `symm run --keep-going -n 4 -- target/release/examples/06_survivors`
//! Expect: each PE but the last prints who failed and who is left; `symm run` ends with 9, the status of the one that died.

use symm::{DType, Error, Handle, Options, Result, Stream, Team};

fn main() -> Result<()> {
    let world = symm::init()?;
    let team = world.team();
    let stream = world.stream()?;
    let (last, n) = (team.world_size() - 1, team.world_size());
    let tensor = team.empty(&[n], DType::I32)?;
    let handle = tensor.rendezvous(team)?;
    if n == 1 || team.rank() == last {
        share(&handle, &stream, team)?;
        if n > 1 {
            // No destructor runs and no goodbye is said.
            std::process::exit(9);
        }
        return world.finalize();
    }

    // Where it is missed first, in the last steps of this or in the next operation, says so.
    let barrier = || team.barrier(&stream, Options::default());
    let failed = share(&handle, &stream, team).and_then(|()| barrier()).and_then(|()| stream.synchronize());
    let Err(Error::PeerFailed { pe, why }) = failed else { panic!("{failed:?}") };
    assert_eq!(pe.index(), last);

    // A team that lost a member stays failed; who is left goes on in one of its own. The tensor keeps its place.
    let rest = team.without(&[pe])?;
    assert_eq!((rest.world_size(), rest.view()), (n - 1, 1));
    share(&tensor.rendezvous(&rest)?, &stream, &rest)?;
    println!("PE {pe} failed ({why}); PE {} goes on among {:?}", world.pe(), rest.members());
    world.finalize()
}

/// Every rank puts its number into its place on every rank, and sees everybody's.
fn share(handle: &Handle, stream: &Stream, team: &Team) -> Result<()> {
    let (rank, n) = (team.rank(), team.world_size());
    let src = handle.get_buffer(rank, &[1], DType::I32, rank)?;
    stream.write(&src, &[rank as i32 + 1])?;
    for to in (0..n).filter(|to| *to != rank) {
        handle.put(stream, to, rank, &src)?;
    }
    handle.barrier(stream, 0, None)?;
    let all: Vec<i32> = stream.read(&handle.get_buffer(rank, &[n], DType::I32, 0)?)?;
    stream.synchronize()?;
    assert_eq!(all, (1..=n as i32).collect::<Vec<_>>());
    handle.barrier(stream, 0, None)?;
    stream.synchronize()
}
