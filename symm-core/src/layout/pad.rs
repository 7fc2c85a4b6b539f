//! The signal pad of a handle.
//!
//! | part | words | writer | meaning |
//! |---|---|---|---|
//! | slots | u32 `[channels][W]` | any peer, by CAS 0→1; owner, by CAS 1→0 | PyTorch's pad: slot `W*channel + source`, zero when idle |
//! | signals | u64 `[n_signals]` | any peer | user signals: set, add, compare |
//! | barrier | u64 `[channels][W]` | rank `s` writes word `W*channel + s` | epoch of `s`'s last barrier on that channel; grows only |
//! | counter | u64 `[channels]` | owner | barriers begun on that channel |
//! | credit | u32 `[channels][W]` | rank `d` writes word `W*channel + d` | signals of mine that `d` has consumed (network peers) |
//! | sent | u32 `[channels][W]` | owner | signals sent to rank `d` (network peers); or 1 while a stream raises the slot of `d` by a store, over a link without atomics |
//! | consumed | u32 `[channels][W]` | owner | signals of rank `s` consumed here (network peers) |

use super::{ALIGN, LINE};

/// Byte offsets inside the pad of a handle over `ranks` members. Equal on all members: settings are checked at init.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PadLayout {
    /// W, the members of the handle's team.
    pub ranks: usize,
    /// Bytes of the slots, a multiple of 4 (`SYMM_SIGNAL_PAD_BYTES`).
    pub slot_bytes: usize,
    /// Channels: `slot_bytes / (4 W)`.
    pub channels: usize,
    /// Number of 64-bit user signals (`SYMM_SIGNALS`).
    pub n_signals: usize,
    /// Offset of the signals; the slots are at offset 0.
    pub signals: usize,
    /// Offset of the barrier words.
    pub barrier: usize,
    /// Offset of the barrier counters.
    pub counter: usize,
    /// Offset of the credits.
    pub credit: usize,
    /// Offset of the sent counts.
    pub sent: usize,
    /// Offset of the consumed counts.
    pub consumed: usize,
    /// Whole pad.
    pub bytes: usize,
}

impl PadLayout {
    /// The layout for `ranks` members, `slot_bytes` of PyTorch slots and `n_signals` user signals.
    pub fn new(ranks: usize, slot_bytes: usize, n_signals: usize) -> Self {
        let ranks = ranks.max(1);
        let channels = slot_bytes / (4 * ranks);
        let signals = slot_bytes.next_multiple_of(LINE);
        let barrier = (signals + 8 * n_signals).next_multiple_of(LINE);
        let counter = (barrier + 8 * channels * ranks).next_multiple_of(LINE);
        let credit = (counter + 8 * channels).next_multiple_of(LINE);
        let sent = (credit + 4 * channels * ranks).next_multiple_of(LINE);
        let consumed = (sent + 4 * channels * ranks).next_multiple_of(LINE);
        let bytes = (consumed + 4 * channels * ranks).next_multiple_of(ALIGN);
        PadLayout {
            ranks,
            slot_bytes,
            channels,
            n_signals,
            signals,
            barrier,
            counter,
            credit,
            sent,
            consumed,
            bytes,
        }
    }

    /// Offset of the u32 slot that `source` raises on `channel`.
    pub fn slot(&self, channel: usize, source: usize) -> usize {
        4 * (self.ranks * channel + source)
    }

    /// Offset of user signal `index`.
    pub fn signal(&self, index: usize) -> usize {
        self.signals + 8 * index
    }

    /// Offset of the barrier word that `rank` writes.
    pub fn barrier_word(&self, channel: usize, rank: usize) -> usize {
        self.barrier + 8 * (self.ranks * channel + rank)
    }

    /// Offset of the owner's barrier counter.
    pub fn barrier_counter(&self, channel: usize) -> usize {
        self.counter + 8 * channel
    }

    /// Offset of the credit word that `rank` writes.
    pub fn credit_word(&self, channel: usize, rank: usize) -> usize {
        self.credit + 4 * (self.ranks * channel + rank)
    }

    /// Offset of the owner's count of signals sent to `rank`.
    pub fn sent_word(&self, channel: usize, rank: usize) -> usize {
        self.sent + 4 * (self.ranks * channel + rank)
    }

    /// Offset of the owner's count of signals of `rank` consumed here.
    pub fn consumed_word(&self, channel: usize, rank: usize) -> usize {
        self.consumed + 4 * (self.ranks * channel + rank)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn channels_are_pytorchs() {
        for (w, channels) in [(2, 1152), (4, 576), (8, 288), (72, 32)] {
            assert_eq!(PadLayout::new(w, 9216, 512).channels, channels);
        }
    }

    #[test]
    fn parts_do_not_overlap() {
        for w in [1, 2, 3, 7, 64] {
            let p = PadLayout::new(w, 9216, 100);
            assert!(p.slot(p.channels - 1, w - 1) + 4 <= p.signals);
            assert!(p.signal(99) + 8 <= p.barrier);
            assert!(p.barrier_word(p.channels - 1, w - 1) + 8 <= p.counter);
            assert!(p.barrier_counter(p.channels - 1) + 8 <= p.credit);
            assert!(p.credit_word(p.channels - 1, w - 1) + 4 <= p.sent);
            assert!(p.sent_word(p.channels - 1, w - 1) + 4 <= p.consumed);
            assert!(p.consumed_word(p.channels - 1, w - 1) + 4 <= p.bytes);
            assert_eq!(p.bytes % ALIGN, 0);
        }
    }
}
