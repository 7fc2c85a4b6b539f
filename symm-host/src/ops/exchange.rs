//! The collectives: one state machine for all forms.
//!
//! turn → (barrier: earlier puts delivered) → publish → all arrived → verdict → push → done flags → all done.
//! A reduction ([`super::reduce`]) gets and adds up instead of pushing, and may have a second round: get, flags, all. A form
//! that takes ([`super::take`]) gets instead of pushing.
//! What peers published is copied once, then judged, then used.

use std::sync::Arc;
use std::task::Poll;

use symm_core::Pe;
use symm_core::backend::Form;
use symm_core::error::Fault;
use symm_core::layout::Header;
use symm_core::splits::{self, Move, Published};
use symm_core::status::{Failure, phase};

use super::one_sided::copy_unless_over;
use super::order::Delivery;
use super::plan::{Plan, read_splits};
use super::reduce::Pull;
use super::watch::{Late, Watch, bit};
use crate::context::ContextInner;
use crate::copy;
use crate::handle::{HandleInner, Status};
use crate::protocol::exchange as flags;
use crate::proxy::{Lane, Message, Update, Write};
use crate::stream::Task;

/// Buffers of an operation, kept by the context from one to the next.
#[derive(Debug, Default)]
pub(crate) struct Scratch {
    /// This PE's splits, then its offsets.
    mine: Vec<i64>,
    pub(super) headers: Vec<Header>,
    /// What each rank published, one after the other.
    splits: Vec<i64>,
    /// Where each rank's splits end.
    ends: Vec<usize>,
    moves: Vec<Move>,
    result: Vec<i64>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    Turn,
    Deliver,
    Arrive,
    /// What is added up or taken comes from network peers.
    Pull,
    Done,
    /// Sums come from network peers.
    Gather,
    /// All have got this PE's sums, and it theirs.
    Gathered,
    /// A barrier's own messages must be gone before the next operation may send others.
    Leave,
}

/// A collective in progress.
#[derive(Debug)]
pub(crate) struct ExchangeTask {
    pub(super) context: Arc<ContextInner>,
    pub(super) lane: Arc<Lane>,
    pub(super) plan: Plan,
    pub(super) epoch: u64,
    step: Step,
    /// Ranks below have reached the step's flag.
    reached: usize,
    delivery: Delivery,
    pub(super) watch: Watch,
    pub(super) scratch: Box<Scratch>,
    pub(super) pull: Pull,
}

impl ExchangeTask {
    /// Takes the context's next epoch: operations of a context run in the order of the calls, on whatever streams.
    pub(crate) fn new(context: &Arc<ContextInner>, lane: &Arc<Lane>, plan: Plan) -> Self {
        ExchangeTask {
            epoch: context.take_ticket(),
            context: Arc::clone(context),
            lane: Arc::clone(lane),
            step: Step::Turn,
            reached: 0,
            delivery: Delivery::default(),
            watch: Watch::new(&context.status, plan.form.code(), plan.limit),
            scratch: Box::default(),
            pull: Pull::default(),
            plan,
        }
    }

    fn wait(&mut self, tick: bool, late: Late) -> Poll<()> {
        let (context, epoch) = (&self.context, self.epoch);
        let ended = self.watch.wait(&context.core, tick, || late, |_: &Status| context.aborted(epoch));
        if ended.is_ready() {
            self.give_up();
        }
        ended
    }

    /// The status is set: tells the peers, leaves no half result, ends the epoch.
    fn give_up(&mut self) {
        if let Some(failure) = self.watch.status.as_ref().failure() {
            self.context.give_up(&failure);
        }
        self.clear_result();
        self.end();
    }

    fn end(&mut self) {
        self.context.leave_scratch(std::mem::take(&mut self.scratch));
        self.context.complete(self.epoch);
    }

    /// Zeroes row 0 of the result, so that nobody takes rows that did not come.
    fn clear_result(&self) {
        if !self.plan.out_splits_offsets.is_null() {
            let row = self.plan.out_splits_offsets.as_ptr::<u8>();
            // SAFETY: the result has `2 · n_splits` entries, writable until the stream has passed this, by the promise
            // of `Backend::exchange`.
            unsafe { std::ptr::write_bytes(row, 0, 8 * self.plan.n_splits) };
        }
    }

    /// Reads this PE's splits once and publishes them, with their fault if they have one, to every member.
    fn publish(&mut self) {
        self.scratch = self.context.take_scratch();
        let mut header = Header { epoch: self.epoch, ..self.plan.header };
        let mine = &mut self.scratch.mine;
        mine.clear();
        let n = self.plan.n_splits;
        if let Err(fault) = read_splits(&self.plan, self.context.layout.max_splits, mine) {
            splits::set_fault(&mut header, &fault);
            mine.clear();
        } else {
            header.n_splits = n as u64;
        }
        let published = &mine[..n.min(mine.len())];
        let (layout, me) = (&self.context.layout, self.context.my_rank);
        let (slot, arrival) = (layout.slot(self.epoch, me), layout.arrival_word(me));
        for (rank, area) in self.context.areas.iter().enumerate() {
            let bytes = size_of::<Header>() + 8 * published.len();
            if self.context.direct[rank] {
                let to = area.ptr(slot, bytes);
                let write = || {
                    let head = bytemuck::bytes_of(&header);
                    let rest: &[u8] = bytemuck::cast_slice(published);
                    // SAFETY: `ptr` checked that both parts are inside the peer's copy of the context; nobody reads
                    // this slot until the arrival word is written: two parities are enough.
                    unsafe {
                        std::ptr::copy_nonoverlapping(head.as_ptr(), to, head.len());
                        std::ptr::copy_nonoverlapping(rest.as_ptr(), to.add(head.len()), rest.len());
                    }
                };
                flags::publish(write, area.word64(arrival), self.epoch);
                self.context.core.ring(self.context.members[rank]);
            } else if let Some(proxy) = self.context.core.proxy() {
                let data = [bytemuck::bytes_of(&header), bytemuck::cast_slice(published)].concat();
                let write = Write {
                    to: self.context.members[rank],
                    data: Some((area.place(slot, bytes), data.into())),
                    update: Some((area.place(arrival, 8), Update::Epoch(self.epoch))),
                };
                proxy.send(&self.lane, Message::Put(write));
            }
        }
    }

    /// Copies what all published out of the slots: as many splits as each says, so that all members judge the same data
    /// even where one of them called with another number.
    fn collect(&mut self) {
        let s = &mut *self.scratch;
        s.headers.clear();
        s.splits.clear();
        s.ends.clear();
        for rank in 0..self.context.members.len() {
            let at = self.context.layout.slot(self.epoch, rank);
            let slot = self.context.own().ptr(at, self.context.layout.slot_bytes);
            // SAFETY: the slot is inside this PE's copy; its arrival word was seen by an acquire load, so its owner has
            // written it and writes it again only two epochs later. Any bit pattern is a header.
            let header = unsafe { slot.cast::<Header>().read() };
            // More than a slot holds gets no splits: the verdict refuses it.
            let max = self.context.layout.max_splits;
            let len = usize::try_from(header.n_splits).ok().filter(|n| *n <= max).unwrap_or(0);
            let start = s.splits.len();
            s.splits.resize(start + len, 0);
            // SAFETY: `len` is at most the layout's number of splits, which the slot has room for; the vector has `len`
            // entries from `start`.
            unsafe {
                let from = slot.add(size_of::<Header>());
                std::ptr::copy_nonoverlapping(from, s.splits[start..].as_mut_ptr().cast::<u8>(), 8 * len);
            }
            s.headers.push(header);
            s.ends.push(s.splits.len());
        }
    }

    /// Judges what was collected; on a good verdict computes moves and result.
    fn judge(&mut self) -> Result<(), (usize, Fault)> {
        let s = &mut *self.scratch;
        let n = self.plan.n_splits;
        let starts = std::iter::once(0).chain(s.ends.iter().copied());
        let published: Vec<Published<'_>> = s
            .headers
            .iter()
            .zip(starts.zip(&s.ends))
            .map(|(header, (start, end))| Published { header: *header, splits: &s.splits[start..*end] })
            .collect();
        splits::verdict(self.epoch, &published)?;
        s.moves.clear();
        s.result.clear();
        let Some(output) = &self.plan.output else { return Ok(()) };
        splits::check_spans(&published, output.data_bytes as u64)?;
        if self.plan.form == Form::PlannedAllToAllVdev {
            s.moves.extend_from_slice(&self.plan.moves);
            return Ok(());
        }
        let offsets = self.plan.form.has_in_offsets().then(|| &s.mine[n..]);
        splits::moves(self.context.my_rank, &published, offsets, &mut s.moves);
        s.result.resize(2 * n, 0);
        splits::out_splits_offsets(self.context.my_rank, &published, &mut s.result);
        Ok(())
    }

    /// Pushes all moves and raises the done flags; returns whether the operation goes on.
    fn push(&mut self) -> bool {
        let Some(output) = self.plan.output.clone() else { return true };
        let row = self.plan.header.row_bytes as usize;
        let total: u64 = self.scratch.moves.iter().map(|m| m.rows).sum();
        let large = (total as usize).saturating_mul(row) >= copy::LARGE;
        let (w, me) = (self.context.members.len(), self.context.my_rank);
        let mut next = 0;
        let mut network = false;
        for rank in (me + 1..w).chain(0..=me) {
            while let Some(m) = self.scratch.moves.get(next).filter(|m| m.rank == rank) {
                if !self.push_one(&output, m, row, large) {
                    return false;
                }
                next += 1;
            }
            if self.context.direct[rank] {
                if large {
                    copy::drain();
                }
                let area = &self.context.areas[rank];
                flags::finish(|| {}, area.word64(self.context.layout.done_word(me)), self.epoch);
                self.context.core.ring(self.context.members[rank]);
            } else {
                network = true;
            }
        }
        if network {
            self.raise_network(self.context.layout.done_word(me));
        }
        true
    }

    /// Pushes one contiguous piece to its final place.
    fn push_one(&self, output: &HandleInner, m: &Move, row: usize, large: bool) -> bool {
        let bytes = m.rows as usize * row;
        let src = self.plan.input.offset(m.src_row as usize * row).as_ptr::<u8>();
        // The verdict has checked that the rows are inside the output, and the output inside the allocation.
        let at = self.scratch.headers[m.rank].out_offset as usize + m.dst_row as usize * row;
        if output.direct[m.rank] {
            let dst = output.data[m.rank].ptr(at, bytes);
            let over = || self.watch.is_over() || self.context.aborted(self.epoch).is_some();
            // SAFETY: `ptr` checked the destination; the source rows are inside the input, as `check_splits` found,
            // and readable by the promise of `Backend::exchange`.
            return unsafe { copy_unless_over(dst, src, bytes, large, over) };
        }
        // SAFETY: as above for the source.
        let data = unsafe { std::slice::from_raw_parts(src, bytes) };
        if let Some(proxy) = self.context.core.proxy() {
            let to = output.members[m.rank];
            let data = Some((output.data[m.rank].place(at, bytes), data.into()));
            proxy.send(&self.lane, Message::Put(Write { to, data, update: None }));
        }
        !self.watch.is_over()
    }

    /// Whether all ranks' flags of a step have reached the epoch; the error says who is late.
    fn all_reached(&mut self, phase: u64, word: impl Fn(usize) -> usize) -> Result<(), Late> {
        let (own, w) = (self.context.own(), self.context.members.len());
        let check = |rank: usize| flags::reached(own.word64(word(rank)), self.epoch);
        while self.reached < w {
            if let Err(got) = check(self.reached) {
                let late = (self.reached..w).filter(|rank| check(*rank).is_err());
                let ranks = late.fold(0, |set, rank| set | bit(rank));
                let pe = self.context.members[self.reached];
                return Err(Late { phase, pe, ranks, expected: self.epoch, got });
            }
            self.reached += 1;
        }
        self.reached = 0;
        Ok(())
    }

    fn me(&self) -> Pe {
        self.context.members[self.context.my_rank]
    }

    /// Does what the present step allows; `Err` is what the operation waits for, `Ok(None)` the end.
    fn advance(&mut self) -> Result<Option<Step>, Late> {
        let layout = self.context.layout;
        let me = self.me();
        let own_wait = |phase, expected, got| Late { phase, pe: me, ranks: 0, expected, got };
        match self.step {
            Step::Turn => {
                let before = self.epoch - 1;
                self.context.my_turn(self.epoch).map_err(|got| own_wait(phase::TICKET, before, got))?;
                if self.is_given_up(phase::ARRIVAL) {
                    return Ok(None);
                }
                if self.plan.form == Form::Barrier {
                    return Ok(Some(Step::Deliver));
                }
                if !self.bring() {
                    return self.stopped(phase::ARRIVAL);
                }
                self.publish();
                Ok(Some(Step::Arrive))
            }
            Step::Deliver => {
                let sent = self.delivery.poll(&self.context.core, &self.lane);
                sent.map_err(|got| own_wait(phase::QUIET, 0, got))?;
                self.publish();
                Ok(Some(Step::Arrive))
            }
            Step::Arrive => {
                self.all_reached(phase::ARRIVAL, |rank| layout.arrival_word(rank))?;
                // Who comes late finds all arrivals here, of peers that have long given up.
                if self.is_given_up(phase::ARRIVAL) {
                    return Ok(None);
                }
                self.collect();
                if let Err((rank, fault)) = self.judge() {
                    self.refuse(rank, &fault);
                    return Ok(None);
                }
                if self.plan.form == Form::Barrier {
                    return Ok(Some(Step::Leave));
                }
                if self.plan.form.takes() {
                    self.ask_takes();
                    return Ok(Some(Step::Pull));
                }
                if self.plan.form.reduces() {
                    self.ask_summands();
                    return Ok(Some(Step::Pull));
                }
                if !self.push() {
                    return self.stopped(phase::DONE);
                }
                Ok(Some(Step::Done))
            }
            Step::Pull => {
                self.pulled()?;
                let all = if self.plan.form.takes() { self.take() } else { self.reduce() };
                if !all {
                    return self.stopped(phase::DONE);
                }
                self.raise(layout.done_word(self.context.my_rank));
                Ok(Some(Step::Done))
            }
            Step::Done => {
                self.all_reached(phase::DONE, |rank| layout.done_word(rank))?;
                if self.plan.form.gathers() {
                    self.ask_sums();
                    return Ok(Some(Step::Gather));
                }
                self.write_result();
                self.end();
                Ok(None)
            }
            Step::Gather => {
                self.pulled()?;
                if !self.gather() {
                    return self.stopped(phase::GATHERED);
                }
                self.raise(layout.gathered_word(self.context.my_rank));
                Ok(Some(Step::Gathered))
            }
            Step::Gathered => {
                self.all_reached(phase::GATHERED, |rank| layout.gathered_word(rank))?;
                self.end();
                Ok(None)
            }
            Step::Leave => {
                let left = self.lane.outstanding();
                if left > 0 {
                    return Err(own_wait(phase::QUIET, 0, left));
                }
                self.end();
                Ok(None)
            }
        }
    }

    /// Work was stopped by a failure: ends the operation.
    fn stopped(&mut self, phase: u64) -> Result<Option<Step>, Late> {
        if !self.is_given_up(phase) {
            self.give_up();
        }
        Ok(None)
    }

    /// Every member refuses with the same words; nobody has pushed anything.
    fn refuse(&mut self, rank: usize, fault: &Fault) {
        self.clear_result();
        // First the end: a peer that has yet to see all arrivals must not take this for an abort of its epoch.
        self.end();
        let failure = Failure::invalid(self.plan.form.code(), self.context.members[rank], fault);
        self.watch.status.fail(&self.context.core, &failure);
    }

    /// Whether a peer has given up this epoch; then this PE does too.
    fn is_given_up(&mut self, phase: u64) -> bool {
        let Some(cause) = self.context.aborted(self.epoch) else { return false };
        let late = Late { phase, pe: self.me(), ranks: 0, expected: self.epoch, got: self.epoch - 1 };
        self.watch.fail_for(&self.context.core, cause, late);
        self.give_up();
        true
    }

    fn write_result(&self) {
        let result: &[u8] = bytemuck::cast_slice(&self.scratch.result);
        if !self.plan.out_splits_offsets.is_null() {
            // SAFETY: the result has `2 · n_splits` entries, writable until the stream has passed this, by the promise
            // of `Backend::exchange`; so many were computed.
            unsafe {
                let to = self.plan.out_splits_offsets.as_ptr::<u8>();
                std::ptr::copy_nonoverlapping(result.as_ptr(), to, result.len());
            }
        }
    }
}

impl Task for ExchangeTask {
    fn poll(&mut self, tick: bool) -> Poll<()> {
        if self.watch.is_over() {
            self.give_up();
            return Poll::Ready(());
        }
        loop {
            match self.advance() {
                Ok(Some(step)) => self.step = step,
                Ok(None) => return Poll::Ready(()),
                Err(late) => return self.wait(tick, late),
            }
        }
    }
}
