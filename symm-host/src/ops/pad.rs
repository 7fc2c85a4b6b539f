//! Waits on the pad: put_signal, wait_signal, wait_until.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::Poll;

use symm_core::backend::{PadSignal, WaitUntil, op};
use symm_core::status::phase;

use super::watch::{Late, Watch, bit};
use crate::handle::{HandleInner, Status};
use crate::protocol::signal;
use crate::proxy::{Lane, Message, Update, Write};
use crate::stream::Task;

/// Raises the slot that this PE has in a peer's pad, once it is idle.
#[derive(Debug)]
pub(crate) struct PutSignalTask {
    handle: Arc<HandleInner>,
    lane: Arc<Lane>,
    signal: PadSignal,
    watch: Watch,
}

impl PutSignalTask {
    pub(crate) fn new(handle: &Arc<HandleInner>, lane: &Arc<Lane>, signal: &PadSignal) -> Self {
        let watch = Watch::new(&handle.status, op::PUT_SIGNAL, signal.limit);
        PutSignalTask { handle: Arc::clone(handle), lane: Arc::clone(lane), signal: *signal, watch }
    }

    /// Raises the slot if it is idle; the error says what the wait is for.
    fn try_raise(&self) -> Result<(), Late> {
        let h = &*self.handle;
        let PadSignal { rank, channel, .. } = self.signal;
        let to = h.members[rank];
        let slot = h.pad.slot(channel, h.my_rank);
        let late = Late { phase: phase::CREDIT, pe: to, ranks: bit(rank), expected: 0, got: 1 };
        if h.direct[rank] {
            if !signal::raise(h.pads[rank].word32(slot)) {
                return Err(late);
            }
            h.core.ring(to);
            return Ok(());
        }
        let pad = h.own_pad();
        let sent = pad.word32(h.pad.sent_word(channel, rank));
        signal::take_credit(pad.word32(h.pad.credit_word(channel, rank)), sent).map_err(|sent| Late {
            expected: u64::from(sent),
            got: u64::from(pad.word32(h.pad.credit_word(channel, rank)).load(Ordering::Relaxed)),
            ..late
        })?;
        if let Some(proxy) = h.core.proxy() {
            // What this stream put before is there when the slot rises.
            self.lane.fence();
            let update = Some((h.pads[rank].place(slot, 4), Update::Slot));
            proxy.send(&self.lane, Message::Put(Write { to, data: None, update }));
        }
        Ok(())
    }
}

impl Task for PutSignalTask {
    fn poll(&mut self, tick: bool) -> Poll<()> {
        if self.watch.is_over() {
            return Poll::Ready(());
        }
        match self.try_raise() {
            Ok(()) => Poll::Ready(()),
            Err(late) => self.watch.wait(&self.handle.core, tick, || late, Status::aborted),
        }
    }
}

/// Consumes the slot that a peer has in this PE's pad, once it is raised.
#[derive(Debug)]
pub(crate) struct WaitSignalTask {
    handle: Arc<HandleInner>,
    lane: Arc<Lane>,
    signal: PadSignal,
    watch: Watch,
}

impl WaitSignalTask {
    pub(crate) fn new(handle: &Arc<HandleInner>, lane: &Arc<Lane>, signal: &PadSignal) -> Self {
        let watch = Watch::new(&handle.status, op::WAIT_SIGNAL, signal.limit);
        WaitSignalTask { handle: Arc::clone(handle), lane: Arc::clone(lane), signal: *signal, watch }
    }

    fn give_credit(&self) {
        let h = &*self.handle;
        let PadSignal { rank, channel, .. } = self.signal;
        let consumed = signal::count(h.own_pad().word32(h.pad.consumed_word(channel, rank)));
        if let Some(proxy) = h.core.proxy() {
            let place = h.pads[rank].place(h.pad.credit_word(channel, h.my_rank), 4);
            let update = Some((place, Update::Credit(consumed)));
            proxy.send(&self.lane, Message::Put(Write { to: h.members[rank], data: None, update }));
        }
    }
}

impl Task for WaitSignalTask {
    fn poll(&mut self, tick: bool) -> Poll<()> {
        if self.watch.is_over() {
            return Poll::Ready(());
        }
        let h = &self.handle;
        let PadSignal { rank, channel, .. } = self.signal;
        if signal::consume(h.own_pad().word32(h.pad.slot(channel, rank))) {
            if h.direct[rank] {
                // The sender may wait for the slot to be idle.
                h.core.ring(h.members[rank]);
            } else {
                self.give_credit();
            }
            return Poll::Ready(());
        }
        let late =
            || Late { phase: phase::SIGNAL, pe: h.members[rank], ranks: bit(rank), expected: 1, got: 0 };
        self.watch.wait(&h.core, tick, late, Status::aborted)
    }
}

/// Waits until a user signal of this PE's own pad compares.
#[derive(Debug)]
pub(crate) struct WaitUntilTask {
    handle: Arc<HandleInner>,
    wait: WaitUntil,
    watch: Watch,
}

impl WaitUntilTask {
    pub(crate) fn new(handle: &Arc<HandleInner>, wait: &WaitUntil) -> Self {
        let watch = Watch::new(&handle.status, op::WAIT_UNTIL, wait.limit);
        WaitUntilTask { handle: Arc::clone(handle), wait: *wait, watch }
    }
}

impl Task for WaitUntilTask {
    fn poll(&mut self, tick: bool) -> Poll<()> {
        if self.watch.is_over() {
            return Poll::Ready(());
        }
        let h = &self.handle;
        let word = h.own_pad().word64(h.pad.signal(self.wait.index));
        let Err(got) = signal::compares(word, self.wait.cmp, self.wait.value) else { return Poll::Ready(()) };
        // Any PE may update a signal, so the wait can name only its own PE: its signal is what did not come.
        let (pe, ranks) = (h.members[h.my_rank], bit(h.my_rank));
        let late = || Late { phase: phase::SIGNAL, pe, ranks, expected: self.wait.value, got };
        self.watch.wait(&h.core, tick, late, Status::aborted)
    }
}
