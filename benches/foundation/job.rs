//! PE 0 leads, the others serve: one broadcast a measurement, the maximum over PEs as its time.

use std::cell::Cell;
use std::time::{Duration, Instant};

use symm::{Cmp, DType, Handle, Options, Result, SignalOp, SignalUpdate, Stream, Tensor, World};

use crate::cases::{Buffers, Case};

/// Long enough for criterion's own work between two measurements.
const IDLE: Duration = Duration::from_secs(600);

pub(crate) struct Job {
    pub(crate) world: World,
    pub(crate) stream: Stream,
    pub(crate) buffers: Buffers,
    /// Time of the first rendezvous of the world's team, maximum over PEs.
    pub(crate) first_rendezvous: Duration,
    command: Tensor,
    command_handle: Handle,
    times: Handle,
    times_tensor: Tensor,
    round: Cell<u64>,
}

impl Job {
    pub(crate) fn new(world: &World) -> Result<Self> {
        let team = world.team();
        let stream = world.stream()?;
        let command = team.empty(&[2], DType::U64)?;
        team.barrier(&stream, Options::default())?;
        stream.synchronize()?;
        let began = Instant::now();
        let command_handle = command.rendezvous(team)?;
        let first = began.elapsed();
        let times_tensor = team.empty(&[team.world_size()], DType::U64)?;
        let times = times_tensor.rendezvous(team)?;
        let buffers = Buffers::new(world, &stream)?;
        let mut job = Job {
            world: world.clone(),
            stream,
            buffers,
            first_rendezvous: Duration::ZERO,
            command,
            command_handle,
            times,
            times_tensor,
            round: Cell::new(0),
        };
        job.first_rendezvous = job.maximum(first)?;
        Ok(job)
    }

    fn maximum(&self, mine: Duration) -> Result<Duration> {
        let nanos = self.world.local(DType::U64, 1)?;
        self.stream.write(&nanos.span(), &[u64::try_from(mine.as_nanos()).unwrap_or(u64::MAX)])?;
        self.world.team().all_gather(&self.stream, &nanos.span(), &self.times, Options::default())?;
        let all: Vec<u64> = self.stream.read(&self.times_tensor.span())?;
        self.stream.synchronize()?;
        // The next round's values must not arrive before everybody has read these.
        self.world.team().barrier(&self.stream, Options::default())?;
        self.stream.synchronize()?;
        Ok(Duration::from_nanos(all.into_iter().max().unwrap_or(0)))
    }

    fn run(&self, case: Case, iterations: u64) -> Result<Duration> {
        self.world.team().barrier(&self.stream, Options::default())?;
        self.stream.synchronize()?;
        let mine = case.run(self, iterations)?;
        let time = self.maximum(mine)?;
        case.check(self)?;
        Ok(time)
    }

    fn broadcast(&self, words: [u64; 2]) -> Result<()> {
        self.round.set(self.round.get() + 1);
        let message = self.world.local(DType::U64, 2)?;
        self.stream.write(&message.span(), &words)?;
        let signal = SignalUpdate { index: 0, op: SignalOp::Set, value: self.round.get() };
        for rank in 1..self.world.n_pes() {
            self.command_handle.put_with_signal(&self.stream, rank, 0, &message.span(), signal)?;
        }
        self.stream.synchronize()
    }

    /// PE 0: runs a measurement on all PEs.
    pub(crate) fn lead(&self, case: Case, iterations: u64) -> Result<Duration> {
        self.broadcast([case as u64, iterations])?;
        self.run(case, iterations)
    }

    /// PE 0: lets the others go.
    pub(crate) fn end(&self) -> Result<()> {
        self.broadcast([u64::MAX, 0])
    }

    /// The others: run what PE 0 asks for until it lets go.
    pub(crate) fn serve(&self) -> Result<()> {
        for round in 1.. {
            self.command_handle.wait_until(&self.stream, 0, Cmp::Ge, round, Some(IDLE))?;
            let words: Vec<u64> = self.stream.read(&self.command.span())?;
            self.stream.synchronize()?;
            let Some(case) = Case::ALL.into_iter().find(|c| *c as u64 == words[0]) else { break };
            self.run(case, words[1])?;
        }
        Ok(())
    }
}
