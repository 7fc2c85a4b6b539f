//! Forms in which a PE takes blocks of all members' buffers to its own memory.
//!
//! Between all arrivals and its done-flags it reads the buffers, by load where they are direct and by get where not; what
//! it writes is its own. So one round of flags is enough: a done-flag says "I have read your buffer".

use symm_core::backend::Take;

use super::exchange::ExchangeTask;
use super::one_sided::copy_unless_over;
use crate::copy;
use crate::handle::HandleInner;
use crate::sum::{self, Kind};

impl ExchangeTask {
    /// First byte and length, in every buffer, of what holds all takes.
    fn taken(&self) -> (u64, u64) {
        let takes = self.plan.takes.iter().filter(|t| !t.is_empty());
        let start = takes.clone().map(|t| t.src).min().unwrap_or(0);
        // The verdict has checked that the elements that take part lie in every buffer.
        let end = takes.map(Take::src_end).max().unwrap_or(0).min(self.plan.header.in_rows);
        let size = self.plan.header.row_bytes;
        (start * size, end.saturating_sub(start) * size)
    }

    /// Asks for what this PE takes.
    pub(super) fn ask_takes(&mut self) {
        let Some(output) = self.plan.output.clone() else { return };
        let range = self.taken();
        self.ask(&output, |_| range);
    }

    /// Takes; returns whether all was done.
    pub(super) fn take(&mut self) -> bool {
        let Some(output) = self.plan.output.clone() else { return true };
        let (start, bytes) = self.taken();
        let all = bytes == 0 || {
            let sources: Vec<*const u8> =
                (0..self.ranks()).map(|rank| self.bytes_of(&output, rank, start, bytes)).collect();
            self.take_from(&output, &sources, start / self.plan.header.row_bytes)
        };
        self.finish_pull();
        all
    }

    /// `sources`: element `first` of every member's buffer.
    fn take_from(&self, output: &HandleInner, sources: &[*const u8], first: u64) -> bool {
        let size = self.plan.header.row_bytes;
        let amount = self.plan.takes.iter().map(|t| t.rows.saturating_mul(t.cols)).sum::<u64>();
        let copies = if self.plan.form.sums_takes() { 1 } else { sources.len() as u64 };
        let large = amount.saturating_mul(size * copies) as usize >= copy::LARGE;
        let all = self.plan.takes.iter().all(|t| {
            if t.is_empty() || t.src_end() > self.plan.header.in_rows {
                return t.is_empty();
            }
            if self.plan.form.sums_takes() {
                self.sum_take(t, sources, first, large)
            } else {
                let me = output.my_rank;
                (me..sources.len()).chain(0..me).all(|rank| self.copy_take(t, rank, sources, first, large))
            }
        });
        if large {
            copy::drain();
        }
        all
    }

    /// Copies one rank's block.
    fn copy_take(&self, t: &Take, rank: usize, sources: &[*const u8], first: u64, large: bool) -> bool {
        let size = self.plan.header.row_bytes;
        let to = t.dst.offset((rank as u64 * t.dst_step * size) as usize);
        (0..t.rows).all(|row| {
            if row > 0 && row % 1024 == 0 && self.over() {
                return false;
            }
            let from = sources[rank].wrapping_add(((t.src - first + row * t.src_stride) * size) as usize);
            let to = to.offset((row * t.dst_stride * size) as usize).as_ptr();
            // SAFETY: the run lies inside the elements that take part, which `bytes_of` has checked or brought here; the
            // destination is writable and overlaps no buffer, by the promise of `Backend::exchange`.
            unsafe { copy_unless_over(to, from, (t.cols * size) as usize, large, || self.over()) }
        })
    }

    /// Adds up one block of all ranks.
    fn sum_take(&self, t: &Take, sources: &[*const u8], first: u64, large: bool) -> bool {
        let size = self.plan.header.row_bytes;
        let divisor = if self.plan.average { u32::try_from(sources.len()).unwrap_or(u32::MAX) } else { 1 };
        let kind = Kind { dtype: self.plan.dtype, divisor };
        let mut here = sources.to_vec();
        (0..t.rows).all(|row| {
            if row > 0 && row % 1024 == 0 && self.over() {
                return false;
            }
            let from = ((t.src - first + row * t.src_stride) * size) as usize;
            here.iter_mut().zip(sources).for_each(|(h, s)| *h = s.wrapping_add(from));
            let to = [t.dst.offset((row * t.dst_stride * size) as usize).as_ptr()];
            // SAFETY: as for copies; between arrival and done-flags nobody writes these elements of any buffer.
            unsafe { sum::sum(kind, &here, &to, t.cols as usize, large, || self.over()) }
        })
    }
}
