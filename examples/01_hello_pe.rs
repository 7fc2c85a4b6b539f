//! Shows: a world, its team, a barrier.
//! Run with: `symm run -n 3 -- target/release/examples/01_hello_pe`
//! Expect: one line from each PE, in any order.

use symm::Options;

fn main() -> symm::Result<()> {
    let world = symm::init()?;
    let team = world.team();
    let stream = world.stream()?;
    println!("PE {} of {}, backend {}", world.pe(), world.n_pes(), world.backend().why());
    team.barrier(&stream, Options::default())?;
    stream.synchronize()?;
    assert_eq!(team.rank(), world.pe().index());
    world.finalize()
}
