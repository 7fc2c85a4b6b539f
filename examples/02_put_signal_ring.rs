//! Shows: `put_with_signal` around a ring; who sees the signal sees the data.
//! Run with: `symm run -n 3 -- target/release/examples/02_put_signal_ring`
//! Expect: each PE prints what its left neighbour sent.

use symm::{Cmp, DType, SignalOp, SignalUpdate};

const N: usize = 1 << 16;

fn main() -> symm::Result<()> {
    let world = symm::init()?;
    let team = world.team();
    let stream = world.stream()?;
    let w = team.world_size();
    let (left, right) = ((team.rank() + w - 1) % w, (team.rank() + 1) % w);

    // Symmetric: every PE allocates it, then all meet.
    let inbox = team.empty(&[N], DType::I32)?;
    let handle = inbox.rendezvous(team)?;
    // Not symmetric: memory that only this PE uses.
    let message = world.local(DType::I32, N)?;

    for round in 1..=5u64 {
        let value = (team.rank() as i32 + 1) * 100 + round as i32;
        stream.write(&message.span(), &vec![value; N])?;
        let signal = SignalUpdate { index: 0, op: SignalOp::Set, value: round };
        handle.put_with_signal(&stream, right, 0, &message.span(), signal)?;
        handle.wait_until(&stream, 0, Cmp::Ge, round, None)?;
        let got: Vec<i32> = stream.read(&inbox.span())?;
        stream.synchronize()?;
        assert!(got.iter().all(|v| *v == (left as i32 + 1) * 100 + round as i32));
        // The inbox may be overwritten only once its owner has read it.
        handle.barrier(&stream, 0, None)?;
    }
    stream.synchronize()?;
    println!("PE {}: five rounds from rank {left} were right", world.pe());
    world.finalize()
}
