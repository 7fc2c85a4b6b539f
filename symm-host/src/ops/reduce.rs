//! What reductions do between the verdict and the end: get what is not reached by load, add up, hand out.
//!
//! The done-flags of a reduction say "I have read your buffer, and written my part of it where the form writes buffers".
//! In the two-shot form with an output of its own every member then gets the others' sums, and says that by a second
//! round of flags.

use std::sync::Arc;

use symm_core::backend::Form;
use symm_core::layout::Header;
use symm_core::splits::{Part, chunk, part};
use symm_core::status::phase;

use super::exchange::ExchangeTask;
use super::one_sided::copy_unless_over;
use super::watch::{Late, bit};
use crate::handle::HandleInner;
use crate::protocol::exchange as flags;
use crate::proxy::{Fetch, Message, Reply, Update, Write};
use crate::{copy, sum};

/// Bytes on their way from one network peer.
#[derive(Debug)]
struct Incoming {
    rank: usize,
    reply: Arc<Reply>,
    bytes: Option<Vec<u8>>,
}

/// What an operation waits for from network peers.
#[derive(Debug, Default)]
pub(super) struct Pull(Vec<Incoming>);

impl Pull {
    fn bytes_of(&self, rank: usize) -> Option<&[u8]> {
        self.0.iter().find(|i| i.rank == rank).and_then(|i| i.bytes.as_deref())
    }
}

impl ExchangeTask {
    pub(super) fn header(&self) -> Header {
        self.scratch.headers[self.context.my_rank]
    }

    pub(super) fn ranks(&self) -> usize {
        self.context.members.len()
    }

    pub(super) fn over(&self) -> bool {
        self.watch.is_over() || self.context.aborted(self.epoch).is_some()
    }

    /// Bytes of a peer's buffer, counted from its first element, as an address: its memory or what came of it.
    pub(super) fn bytes_of(&self, output: &HandleInner, rank: usize, at: u64, bytes: u64) -> *const u8 {
        if output.direct[rank] {
            // The verdict has checked that the buffer lies inside the allocation.
            let start = self.scratch.headers[rank].out_offset + at;
            return output.data[rank].ptr(start as usize, bytes as usize).cast_const();
        }
        let came = self.pull.bytes_of(rank).filter(|came| came.len() as u64 == bytes);
        came.expect("a network peer's bytes should be here before they are used").as_ptr()
    }

    /// Lets go of what came from network peers.
    pub(super) fn finish_pull(&mut self) {
        self.pull = Pull::default();
    }

    /// Asks network peers for bytes of their buffers: `range` gives first byte and length by rank.
    pub(super) fn ask(&mut self, output: &HandleInner, range: impl Fn(usize) -> (u64, u64)) {
        self.pull = Pull::default();
        for rank in (0..self.ranks()).filter(|rank| !output.direct[*rank]) {
            let (at, bytes) = range(rank);
            let Some(proxy) = self.context.core.proxy().filter(|_| bytes > 0) else { continue };
            let from = output.members[rank];
            let start = (self.scratch.headers[rank].out_offset + at) as usize;
            let reply = Arc::<Reply>::default();
            let (place, bytes) = (output.data[rank].place(start, bytes as usize), bytes as usize);
            proxy.send(&self.lane, Message::Get(Fetch { from, place, bytes, reply: Arc::clone(&reply) }));
            self.pull.0.push(Incoming { rank, reply, bytes: None });
        }
    }

    /// Whether everything asked for is here; the error says whose is not.
    pub(super) fn pulled(&mut self) -> Result<(), Late> {
        for incoming in &mut self.pull.0 {
            if incoming.bytes.is_none() {
                incoming.bytes = incoming.reply.take();
            }
        }
        let mut missing = self.pull.0.iter().filter(|i| i.bytes.is_none()).map(|i| i.rank).peekable();
        let Some(first) = missing.peek().copied() else { return Ok(()) };
        let ranks = missing.fold(0, |set, rank| set | bit(rank));
        Err(Late { phase: phase::QUIET, pe: self.context.members[first], ranks, expected: 1, got: 0 })
    }

    /// Copies the elements that the caller brought to this PE's buffer, before its arrival says that they are there.
    /// Returns whether the operation goes on.
    pub(super) fn bring(&self) -> bool {
        let plan = &self.plan;
        let Some(output) = plan.output.as_ref().filter(|_| plan.form == Form::OneShotAllReduce) else {
            return true;
        };
        let bytes = plan.header.in_rows.saturating_mul(plan.header.row_bytes) as usize;
        if plan.invalid || plan.input.is_null() || bytes == 0 {
            return true;
        }
        let large = bytes >= copy::LARGE;
        let at = plan.header.out_offset as usize;
        let Some(end) = at.checked_add(bytes).filter(|end| *end <= output.data_bytes) else {
            // Outside the allocation: every member's verdict refuses that.
            return true;
        };
        let to = output.data[output.my_rank].ptr(at, end - at);
        // SAFETY: `ptr` checked the destination; the source is readable by the promise of `Backend::exchange`. Nobody
        // reads this PE's buffer: it has completed the context's operations before this one, so their readers are done.
        let all = unsafe { copy_unless_over(to, plan.input.as_ptr(), bytes, large, || self.over()) };
        if large {
            copy::drain();
        }
        all
    }

    /// Asks for what this PE adds up.
    pub(super) fn ask_summands(&mut self) {
        let Some(output) = self.plan.output.clone() else { return };
        let (header, me, ranks) = (self.header(), self.context.my_rank, self.ranks());
        let p = part(&header, me, ranks);
        self.ask(&output, |_| (p.start * header.row_bytes, p.extent() * header.row_bytes));
    }

    /// Adds up this PE's part of all buffers and writes it where the form says; returns whether all was done.
    pub(super) fn reduce(&mut self) -> bool {
        let Some(output) = self.plan.output.clone() else { return true };
        let (header, me) = (self.header(), self.context.my_rank);
        let p = part(&header, me, self.ranks());
        if p.is_empty() {
            return true;
        }
        let size = header.row_bytes;
        let (start, extent) = (p.start * size, p.extent() * size);
        let sources: Vec<*const u8> =
            (0..self.ranks()).map(|rank| self.bytes_of(&output, rank, start, extent)).collect();
        let buffer = |rank: usize| {
            let at = self.scratch.headers[rank].out_offset + start;
            output.data[rank].ptr(at as usize, extent as usize)
        };
        let targets: Vec<*mut u8> = match self.plan.form {
            Form::TwoShotAllReduce => {
                let direct = (me..self.ranks()).chain(0..me).filter(|rank| output.direct[*rank]);
                direct.map(buffer).collect()
            }
            Form::TwoShotAllReduceOut => vec![buffer(me)],
            _ => vec![self.plan.result.as_ptr()],
        };
        if !self.sum(&header, &p, &sources, &targets) {
            return false;
        }
        if self.plan.form == Form::TwoShotAllReduce {
            self.send_sums(&output, start, extent);
        }
        self.pull = Pull::default();
        true
    }

    fn sum(&self, header: &Header, p: &Part, sources: &[*const u8], targets: &[*mut u8]) -> bool {
        let size = header.row_bytes;
        let bytes = p.len() * size * targets.len() as u64;
        let large = bytes as usize >= copy::LARGE;
        let mut here = sources.to_vec();
        let mut there = targets.to_vec();
        let mut all = true;
        for row in 0..p.rows {
            if row > 0 && row % 1024 == 0 && self.over() {
                all = false;
                break;
            }
            let from = (row * p.stride * size) as usize;
            here.iter_mut().zip(sources).for_each(|(h, s)| *h = s.wrapping_add(from));
            // Sums lie densely; only a part of one run goes to several targets.
            let to = (row * p.cols * size) as usize;
            there.iter_mut().zip(targets).for_each(|(t, s)| *t = s.wrapping_add(to));
            let n = p.cols as usize;
            // SAFETY: the part lies inside every buffer, as the verdict found, and `bytes_of` checked again; the result
            // has room for it and overlaps no buffer, by the promise of `Backend::exchange`. Between arrival and
            // done-flags nobody but this PE writes this part of any buffer, and it is written by whole blocks after they
            // were read.
            if !unsafe {
                sum::sum(sum::Kind { dtype: self.plan.dtype, divisor: 1 }, &here, &there, n, large, || {
                    self.over()
                })
            } {
                all = false;
                break;
            }
        }
        if large {
            copy::drain();
        }
        all
    }

    /// Puts this PE's sums, which are in its own buffer now, to the buffers of network peers.
    fn send_sums(&self, output: &HandleInner, start: u64, bytes: u64) {
        let own = self.scratch.headers[self.context.my_rank].out_offset + start;
        let sums = output.data[output.my_rank].ptr(own as usize, bytes as usize);
        for rank in (0..self.ranks()).filter(|rank| !output.direct[*rank]) {
            let Some(proxy) = self.context.core.proxy() else { return };
            // SAFETY: `ptr` checked the range, and only this PE writes this part of its buffer until it raises its
            // done-flags.
            let data = unsafe { std::slice::from_raw_parts(sums.cast_const(), bytes as usize) };
            let at = (self.scratch.headers[rank].out_offset + start) as usize;
            let data = Some((output.data[rank].place(at, bytes as usize), data.into()));
            proxy.send(&self.lane, Message::Put(Write { to: output.members[rank], data, update: None }));
        }
    }

    /// First byte and length of the sums that a rank has in its buffer.
    fn sums_of(&self, rank: usize) -> (u64, u64) {
        let header = self.header();
        let c = chunk(header.in_rows, header.row_bytes, rank, self.ranks());
        (c.start * header.row_bytes, (c.end - c.start) * header.row_bytes)
    }

    /// Asks for all ranks' sums.
    pub(super) fn ask_sums(&mut self) {
        let Some(output) = self.plan.output.clone() else { return };
        let ranges: Vec<_> = (0..self.ranks()).map(|rank| self.sums_of(rank)).collect();
        self.ask(&output, |rank| ranges[rank]);
    }

    /// Copies all ranks' sums to the result; returns whether all was done.
    pub(super) fn gather(&mut self) -> bool {
        let Some(output) = self.plan.output.clone() else { return true };
        let (me, ranks) = (self.context.my_rank, self.ranks());
        let total = self.header().in_rows.saturating_mul(self.header().row_bytes) as usize;
        let large = total >= copy::LARGE;
        for rank in (me..ranks).chain(0..me) {
            let (at, bytes) = self.sums_of(rank);
            if bytes == 0 {
                continue;
            }
            let from = self.bytes_of(&output, rank, at, bytes);
            let to = self.plan.result.offset(at as usize).as_ptr();
            // SAFETY: `bytes_of` checked the source; the result has room for all elements and overlaps no buffer, by the
            // promise of `Backend::exchange`.
            if !unsafe { copy_unless_over(to, from, bytes as usize, large, || self.over()) } {
                return false;
            }
        }
        if large {
            copy::drain();
        }
        self.pull = Pull::default();
        true
    }

    /// Raises this PE's flag at `word` on every member, after everything that it has written.
    pub(super) fn raise(&self, word: usize) {
        let (me, ranks) = (self.context.my_rank, self.ranks());
        for rank in (me + 1..ranks).chain(0..=me).filter(|rank| self.context.direct[*rank]) {
            flags::finish(|| {}, self.context.areas[rank].word64(word), self.epoch);
            self.context.core.ring(self.context.members[rank]);
        }
        self.raise_network(word);
    }

    /// The same for network peers only.
    pub(super) fn raise_network(&self, word: usize) {
        let Some(proxy) = self.context.core.proxy() else { return };
        self.lane.fence();
        for (rank, area) in
            self.context.areas.iter().enumerate().filter(|(rank, _)| !self.context.direct[*rank])
        {
            let to = self.context.members[rank];
            let update = Some((area.place(word, 8), Update::Epoch(self.epoch)));
            proxy.send(&self.lane, Message::Put(Write { to, data: None, update }));
        }
    }
}
