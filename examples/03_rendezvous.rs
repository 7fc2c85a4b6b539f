//! Shows: handles over the world and over subsets, direct pointers, `get`, and the error for PEs that differ.
//! Run with: `symm run -n 3 -- target/release/examples/03_rendezvous`
//! Expect: each PE says who is direct; the last line tells how an allocation that differs is reported.

use symm::{DType, Error};

fn main() -> symm::Result<()> {
    let world = symm::init()?;
    let team = world.team();
    let stream = world.stream()?;
    let w = team.world_size();

    let x = team.empty(&[1024], DType::F32)?;
    stream.write(&x.span(), &vec![team.rank() as f32; 1024])?;
    let handle = x.rendezvous(team)?;
    handle.barrier(&stream, 0, None)?;

    let neighbour = (team.rank() + 1) % w;
    let copy = world.local(DType::F32, 1024)?;
    handle.get(&stream, neighbour, 0, &copy.span())?;
    assert_eq!(stream.read::<f32>(&copy.span())?, vec![neighbour as f32; 1024]);
    let direct: Vec<usize> = (0..w).filter(|r| handle.buffer_ptrs()[*r].is_some()).collect();
    println!("PE {}: direct ranks {direct:?} of {w}", world.pe());

    // Any subset of PEs is a team: here the even and the odd ones.
    let half = team.split(Some(team.rank() as u64 % 2), 0)?.expect("a colour was given");
    let over_half = x.rendezvous(&half)?;
    over_half.barrier(&stream, 0, None)?;
    stream.synchronize()?;

    // PEs that allocate differently are told so, all of them, with the step and the PE.
    let odd_size = if team.rank() + 1 == w && w > 1 { 65 } else { 64 };
    let y = team.empty(&[odd_size], DType::F32)?;
    match y.rendezvous(team) {
        Err(Error::NotSymmetric { step, pe, .. }) => {
            println!("PE {}: allocation {step} differs on PE {pe}", world.pe())
        }
        Ok(_) if w == 1 => println!("one PE is always symmetric"),
        other => panic!("expected NotSymmetric, got {other:?}"),
    }
    world.finalize()
}
