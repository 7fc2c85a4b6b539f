//! fence, quiet and the barrier of a handle.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::Poll;
use std::time::Duration;

use symm_core::Pe;
use symm_core::backend::op;
use symm_core::status::phase;

use super::watch::{Late, Watch, bit};
use crate::core::Core;
use crate::handle::{HandleInner, Status};
use crate::protocol::barrier;
use crate::proxy::{Lane, Message, Update, Write};
use crate::stream::Task;

/// Orders earlier puts of a stream before later ones, towards each PE.
pub(crate) fn fence(lane: &Lane) {
    // Direct puts are stores of this thread or of one that handed the stream over through a lock; this orders them for
    // whoever reads with acquire, also past the relaxed stores of users.
    std::sync::atomic::fence(Ordering::SeqCst);
    lane.fence();
}

/// Delivery of everything that a lane has sent: the part that quiet, barriers and collectives share.
#[derive(Debug, Default)]
pub(super) struct Delivery {
    flushed: bool,
}

impl Delivery {
    /// Whether all is delivered; the error is the number of puts on their way. Lets go of what is held back.
    pub(super) fn poll(&mut self, core: &Core, lane: &Lane) -> Result<(), u64> {
        if !std::mem::replace(&mut self.flushed, true) {
            std::sync::atomic::fence(Ordering::SeqCst);
            if let Some(proxy) = core.proxy() {
                proxy.flush(lane);
            }
        }
        match lane.outstanding() {
            0 => Ok(()),
            n => Err(n),
        }
    }
}

/// What a delivery that did not end reports.
fn undelivered(pe: Pe, outstanding: u64) -> Late {
    Late { phase: phase::QUIET, pe, ranks: 0, expected: 0, got: outstanding }
}

/// Passes once every earlier put of its stream is delivered.
#[derive(Debug)]
pub(crate) struct QuietTask {
    core: Arc<Core>,
    lane: Arc<Lane>,
    me: Pe,
    delivery: Delivery,
    watch: Watch,
}

impl QuietTask {
    pub(crate) fn new(core: &Arc<Core>, lane: &Arc<Lane>, me: Pe, status: &Status, limit: Duration) -> Self {
        let watch = Watch::new(status, op::QUIET, limit);
        QuietTask { core: Arc::clone(core), lane: Arc::clone(lane), me, delivery: Delivery::default(), watch }
    }
}

impl Task for QuietTask {
    fn poll(&mut self, tick: bool) -> Poll<()> {
        // Also after a failure: letting go of what is held back is what recover needs.
        let Err(n) = self.delivery.poll(&self.core, &self.lane) else { return Poll::Ready(()) };
        let me = self.me;
        self.watch.wait(&self.core, tick, || undelivered(me, n), Status::aborted)
    }
}

/// A barrier of a handle's team on one channel.
#[derive(Debug)]
pub(crate) struct BarrierTask {
    handle: Arc<HandleInner>,
    lane: Arc<Lane>,
    channel: usize,
    delivery: Delivery,
    /// Set when this PE has announced its arrival.
    epoch: Option<u64>,
    /// Ranks below have arrived.
    arrived: usize,
    watch: Watch,
}

impl BarrierTask {
    pub(crate) fn new(handle: &Arc<HandleInner>, lane: &Arc<Lane>, channel: usize, limit: Duration) -> Self {
        BarrierTask {
            handle: Arc::clone(handle),
            lane: Arc::clone(lane),
            channel,
            delivery: Delivery::default(),
            epoch: None,
            arrived: 0,
            watch: Watch::new(&handle.status, op::HANDLE_BARRIER, limit),
        }
    }

    fn announce(&self) -> u64 {
        let h = &*self.handle;
        let epoch = barrier::begin(h.own_pad().word64(h.pad.barrier_counter(self.channel)));
        let at = h.pad.barrier_word(self.channel, h.my_rank);
        for (rank, pad) in h.pads.iter().enumerate().filter(|(rank, _)| *rank != h.my_rank) {
            let to = h.members[rank];
            if h.direct[rank] {
                barrier::announce(pad.word64(at), epoch);
                h.core.ring(to);
            } else if let Some(proxy) = h.core.proxy() {
                let update = Some((pad.place(at, 8), Update::Epoch(epoch)));
                proxy.send(&self.lane, Message::Put(Write { to, data: None, update }));
            }
        }
        epoch
    }

    /// The epoch of a rank's last barrier; the error is one that is too old.
    fn check(&self, rank: usize, epoch: u64) -> Result<(), u64> {
        let h = &*self.handle;
        if rank == h.my_rank {
            return Ok(());
        }
        barrier::arrived(h.own_pad().word64(h.pad.barrier_word(self.channel, rank)), epoch)
    }

    fn late(&self, epoch: u64, got: u64) -> Late {
        let h = &*self.handle;
        let late = (0..h.members.len()).filter(|rank| self.check(*rank, epoch).is_err());
        let ranks = late.fold(0, |set, rank| set | bit(rank));
        Late { phase: phase::ARRIVAL, pe: h.members[self.arrived], ranks, expected: epoch, got }
    }
}

impl Task for BarrierTask {
    fn poll(&mut self, tick: bool) -> Poll<()> {
        if self.watch.is_over() {
            return Poll::Ready(());
        }
        let core = Arc::clone(&self.handle.core);
        let epoch = match self.epoch {
            Some(epoch) => epoch,
            None => {
                if let Err(n) = self.delivery.poll(&core, &self.lane) {
                    let me = self.handle.members[self.handle.my_rank];
                    return self.watch.wait(&core, tick, || undelivered(me, n), Status::aborted);
                }
                *self.epoch.insert(self.announce())
            }
        };
        while self.arrived < self.handle.members.len() {
            if let Err(got) = self.check(self.arrived, epoch) {
                let late = self.late(epoch, got);
                return self.watch.wait(&core, tick, || late, Status::aborted);
            }
            self.arrived += 1;
        }
        Poll::Ready(())
    }
}
