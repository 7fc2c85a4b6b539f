//! PE 0 leads, the others serve: one broadcast a measurement, the maximum over PEs as its time.

use std::cell::Cell;
use std::time::Duration;

use symm::{Cmp, DType, Handle, Options, Result, SignalOp, SignalUpdate, Stream, Tensor, World};

/// Long enough for criterion's own work between two measurements.
const IDLE: Duration = Duration::from_secs(600);
/// What PE 0 sends to let the others go.
const END: u64 = u64::MAX;

/// What a measurement is, in numbers that a bench gives a meaning.
pub(crate) type Command = [u64; 3];

pub(crate) struct Lead {
    world: World,
    stream: Stream,
    command: Tensor,
    command_handle: Handle,
    times: Tensor,
    times_handle: Handle,
    round: Cell<u64>,
}

impl Lead {
    /// # Collective
    /// Over the world.
    pub(crate) fn new(world: &World) -> Result<Self> {
        let team = world.team();
        let command = team.empty(&[size_of::<Command>() / 8], DType::U64)?;
        let times = team.empty(&[team.world_size()], DType::U64)?;
        Ok(Lead {
            world: world.clone(),
            stream: world.stream()?,
            command_handle: command.rendezvous(team)?,
            times_handle: times.rendezvous(team)?,
            command,
            times,
            round: Cell::new(0),
        })
    }

    /// The longest of all PEs' times.
    ///
    /// # Collective
    /// Over the world.
    pub(crate) fn maximum(&self, mine: Duration) -> Result<Duration> {
        let team = self.world.team();
        let nanos = self.world.local(DType::U64, 1)?;
        self.stream.write(&nanos.span(), &[u64::try_from(mine.as_nanos()).unwrap_or(u64::MAX)])?;
        team.all_gather(&self.stream, &nanos.span(), &self.times_handle, Options::default())?;
        let all: Vec<u64> = self.stream.read(&self.times.span())?;
        self.stream.synchronize()?;
        // The next round's values must not arrive before everybody has read these.
        team.barrier(&self.stream, Options::default())?;
        self.stream.synchronize()?;
        Ok(Duration::from_nanos(all.into_iter().max().unwrap_or(0)))
    }

    fn broadcast(&self, command: Command) -> Result<()> {
        self.round.set(self.round.get() + 1);
        let message = self.world.local(DType::U64, command.len())?;
        self.stream.write(&message.span(), &command)?;
        let signal = SignalUpdate { index: 0, op: SignalOp::Set, value: self.round.get() };
        for rank in 1..self.world.n_pes() {
            self.command_handle.put_with_signal(&self.stream, rank, 0, &message.span(), signal)?;
        }
        self.stream.synchronize()
    }

    /// PE 0: says what is measured next. The others get it from [`serve`](Self::serve).
    pub(crate) fn ask(&self, command: Command) -> Result<()> {
        self.broadcast(command)
    }

    /// PE 0: lets the others go.
    pub(crate) fn end(&self) -> Result<()> {
        self.broadcast([END; 3])
    }

    /// The others: do what PE 0 asks for until it lets go.
    pub(crate) fn serve(&self, mut work: impl FnMut(Command) -> Result<()>) -> Result<()> {
        for round in 1.. {
            self.command_handle.wait_until(&self.stream, 0, Cmp::Ge, round, Some(IDLE))?;
            let words: Vec<u64> = self.stream.read(&self.command.span())?;
            self.stream.synchronize()?;
            match Command::try_from(words) {
                Ok(command) if command[0] != END => work(command)?,
                _ => break,
            }
        }
        Ok(())
    }
}
