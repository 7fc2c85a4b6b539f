//! Messages there and back between the first PE and the last, which is on another host where there are several.

use std::cell::Cell;
use std::time::{Duration, Instant};

use symm::{Cmp, DType, Error, Handle, Local, Result, SignalOp, SignalUpdate, Stream, Tensor, World};

/// Round trips that are enqueued at most before they are waited for.
const QUEUE: u64 = 500;
/// Signals of the last PE and of the first.
const THERE: usize = 0;
const BACK: usize = 1;

pub(crate) struct Trip {
    stream: Stream,
    source: Local,
    tensor: Tensor,
    handle: Handle,
    /// Round trips so far; the same on both.
    made: Cell<u64>,
}

fn pattern(rank: usize) -> u32 {
    0x7269_7000 + rank as u32
}

impl Trip {
    /// # Collective
    /// Over the world.
    pub(crate) fn new(world: &World, bytes: usize) -> Result<Self> {
        let team = world.team();
        let n = bytes.div_ceil(4);
        let tensor = team.empty(&[n], DType::U32)?;
        let (handle, source, stream) =
            (tensor.rendezvous(team)?, world.local(DType::U32, n)?, world.stream()?);
        stream.write(&source.span(), &vec![pattern(team.rank()); n])?;
        stream.synchronize()?;
        Ok(Trip { stream, source, tensor, handle, made: Cell::new(0) })
    }

    /// So many round trips of `bytes` bytes; the time of this PE.
    ///
    /// # Collective
    /// Over the world; only two PEs have something to do.
    pub(crate) fn run(&self, bytes: usize, iterations: u64) -> Result<Duration> {
        let (first, last, me) = (0, self.handle.world_size() - 1, self.handle.rank());
        let source = self.source.span().slice(0, bytes.div_ceil(4))?;
        let send = |to: usize, index: usize, value: u64| {
            let signal = SignalUpdate { index, op: SignalOp::Set, value };
            self.handle.put_with_signal(&self.stream, to, 0, &source, signal)
        };
        let await_one = |index, value| self.handle.wait_until(&self.stream, index, Cmp::Ge, value, None);
        let began = Instant::now();
        for trip in 1..=iterations {
            let value = self.made.get() + trip;
            if me == first {
                send(last, THERE, value)?;
            }
            if me == last {
                await_one(THERE, value)?;
                send(first, BACK, value)?;
            }
            if me == first {
                await_one(BACK, value)?;
            }
            if trip % QUEUE == 0 {
                self.stream.synchronize()?;
            }
        }
        self.stream.synchronize()?;
        let time = began.elapsed();
        self.made.set(self.made.get() + iterations);
        if me == first || me == last {
            let got: Vec<u32> = self.stream.read(&self.tensor.span().slice(0, bytes.div_ceil(4))?)?;
            self.stream.synchronize()?;
            let expected = pattern(if me == first { last } else { first });
            if iterations > 0 && got.iter().any(|v| *v != expected) {
                let why = format!("a round trip of {bytes} bytes left another value than {expected:#x}");
                return Err(Error::Bootstrap { call: "bench check", why });
            }
        }
        Ok(time)
    }
}
