//! Which counters the next launch of a stream uses.

use std::sync::MutexGuard;

use symm_core::Result;

use crate::arena::{Block, Kind};
use crate::capture::{self, Relaxed};
use crate::result::lock;
use crate::stream::Stream;

/// Exchanges that follow one another with one record take turns: one hands out its tickets while the one before it still runs.
#[derive(Debug, Default)]
pub(crate) struct Turns {
    /// Of launches that are not captured.
    eager: u32,
    /// Id of the capture that was seen last, the address of the record of its launches, and their turn.
    capture: u64,
    record: u64,
    captured: u32,
}

/// Whose turn it is, until an exchange has been enqueued.
pub(crate) struct Turn<'a> {
    turns: MutexGuard<'a, Turns>,
    capturing: bool,
}

impl Turn<'_> {
    fn place(&mut self) -> &mut u32 {
        if self.capturing { &mut self.turns.captured } else { &mut self.turns.eager }
    }

    pub(crate) fn number(&mut self) -> u32 {
        *self.place()
    }

    /// It is enqueued; the next one has the other turn.
    pub(crate) fn taken(mut self) {
        *self.place() ^= 1;
    }
}

impl Stream {
    /// Address of the launch record for the next launch. Each capture of each stream has one of its own, since its launches
    /// may run beside others of the stream; the graph keeps it.
    pub(crate) fn record(&self) -> Result<u64> {
        let _entered = self.enter()?;
        if !self.0.is_capturing() {
            return Ok(self.0.record.gpu());
        }
        let mut turns = lock(&self.0.turns);
        self.record_of_capture(&mut turns)
    }

    fn record_of_capture(&self, turns: &mut Turns) -> Result<u64> {
        let (id, graph) = capture::capture_of(self.cu_stream())?;
        if turns.capture != id {
            let _relaxed = Relaxed::enter()?;
            let block = Block::new(&self.0.shared, Kind::Device, symm_kernels::params::RECORD_BYTES)?;
            let at = block.gpu();
            capture::keep(&self.0.shared, graph, Box::new(block))?;
            (turns.capture, turns.record, turns.captured) = (id, at, 0);
        }
        Ok(turns.record)
    }

    /// The next launch of an exchange with [`record`](Self::record): no other one is enqueued while this lives.
    pub(crate) fn turn(&self) -> Result<Turn<'_>> {
        let _entered = self.enter()?;
        let capturing = self.0.is_capturing();
        let mut turns = lock(&self.0.turns);
        if capturing {
            self.record_of_capture(&mut turns)?;
        }
        Ok(Turn { turns, capturing })
    }
}
