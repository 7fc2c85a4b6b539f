//! The foundation's measurements: PE 0 leads, the others serve.

use std::time::{Duration, Instant};

use symm::{DType, Options, Result, Stream, World};

use crate::cases::{Buffers, Case};
use crate::common::lead::Lead;

pub(crate) struct Job {
    pub(crate) world: World,
    pub(crate) stream: Stream,
    pub(crate) buffers: Buffers,
    /// Time of the first rendezvous of the world's team, maximum over PEs.
    pub(crate) first_rendezvous: Duration,
    lead: Lead,
}

impl Job {
    pub(crate) fn new(world: &World) -> Result<Self> {
        let team = world.team();
        let stream = world.stream()?;
        let first = team.empty(&[2], DType::U64)?;
        team.barrier(&stream, Options::default())?;
        stream.synchronize()?;
        let began = Instant::now();
        drop(first.rendezvous(team)?);
        let took = began.elapsed();
        let lead = Lead::new(world)?;
        let first_rendezvous = lead.maximum(took)?;
        let buffers = Buffers::new(world, &stream)?;
        Ok(Job { world: world.clone(), stream, buffers, first_rendezvous, lead })
    }

    fn run(&self, case: Case, iterations: u64) -> Result<Duration> {
        self.world.team().barrier(&self.stream, Options::default())?;
        self.stream.synchronize()?;
        let mine = case.run(self, iterations)?;
        let time = self.lead.maximum(mine)?;
        case.check(self)?;
        Ok(time)
    }

    /// PE 0: runs a measurement on all PEs.
    pub(crate) fn lead(&self, case: Case, iterations: u64) -> Result<Duration> {
        self.lead.ask([case as u64, iterations, 0])?;
        self.run(case, iterations)
    }

    /// PE 0: lets the others go.
    pub(crate) fn end(&self) -> Result<()> {
        self.lead.end()
    }

    /// The others: run what PE 0 asks for until it lets go.
    pub(crate) fn serve(&self) -> Result<()> {
        self.lead.serve(|[number, iterations, _]| match Case::ALL.into_iter().find(|c| *c as u64 == number) {
            Some(case) => self.run(case, iterations).map(drop),
            None => Ok(()),
        })
    }
}
