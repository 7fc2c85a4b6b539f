//! Memory of a context: counters, flags and two slots a member. One copy on each PE.
//!
//! | part | words | writer | meaning |
//! |---|---|---|---|
//! | ticket, completed | u64 each | owner | operations begun and ended by this PE |
//! | arrival | u64 `[W]` | rank `s` writes word `s` | epoch whose slot `s` has published here |
//! | done | u64 `[W]` | rank `s` writes word `s` | epoch whose data from `s` are here, or whose data `s` has read here |
//! | gathered | u64 `[W]` | rank `s` writes word `s` | epoch whose sums `s` has got from here, in forms with a second round |
//! | aborted | `[W]` of {epoch, pe} | rank `s` writes pair `s` | oldest epoch `s` has given up since the last recover; failure code ([`crate::status`], 0 reads as timeout) << 32 plus the PE at fault plus one |
//! | notes | `[2][W]` × 1536 | rank `s` writes note `s` | of GPU kernels: header and few splits as words that carry the epoch, by its parity |
//! | pushed | u64 `[W][256]` | rank `s` writes row `s` | of GPU kernels: epoch whose rows a share of `s`'s launch has pushed here |
//! | slots | `[2][W]` × (header + 8·max_splits) | rank `s` writes slot `s` | published header and splits, by epoch parity |
//! | room | `[2]` × `room_bytes` | each word one rank, the owner clears it | of GPU kernels: elements and sums of reductions, by the epoch's parity |
//! | shared room | `shared_room_bytes` | each word one rank, the owner clears it | of GPU kernels: elements of larger reductions, of any epoch |
//!
//! Two slots are enough: nobody begins epoch e+1 before all of epoch e have arrived, so a slot of epoch e−1 is never
//! still being read when e+1 overwrites it.

use super::{ALIGN, Header, LINE};

/// Byte offsets inside a context's memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ContextLayout {
    /// W.
    pub ranks: usize,
    /// Splits that one PE may publish in one operation.
    pub max_splits: usize,
    /// Offset of the arrival words.
    pub arrival: usize,
    /// Offset of the done words.
    pub done: usize,
    /// Offset of the gathered words.
    pub gathered: usize,
    /// Offset of the aborted pairs.
    pub aborted: usize,
    /// Offset of the notes (`kernels/include/symm/exchange.cuh`).
    pub notes: usize,
    /// Offset of the pushed words.
    pub pushed: usize,
    /// Offset of the slots.
    pub slots: usize,
    /// Bytes of one slot.
    pub slot_bytes: usize,
    /// Offset of the room for elements that are pushed.
    pub room: usize,
    /// Bytes of it for one parity of the epoch; 0 without.
    pub room_bytes: usize,
    /// Offset of the room that all epochs share.
    pub shared_room: usize,
    /// Bytes of it; 0 without.
    pub shared_room_bytes: usize,
    /// Whole context.
    pub bytes: usize,
}

/// Bytes of room in a context for elements that GPU kernels push to its members.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ContextRoom {
    /// For each parity of the epoch: elements that are pushed before their receivers have arrived.
    pub parity: usize,
    /// For all epochs together: elements that are pushed once all have arrived.
    pub shared: usize,
}

impl ContextRoom {
    /// Room for reductions of up to `most` bytes between `ranks` members, and of up to `most_of_pair` where they are two
    /// ([`Config::all_reduce_push`](crate::Config::all_reduce_push), [`Config::all_reduce_push_pair`](crate::Config::all_reduce_push_pair)).
    pub fn for_sums(most: usize, most_of_pair: usize, ranks: usize) -> Self {
        let shared = if ranks == 2 && most > 0 && most_of_pair > most { most_of_pair } else { 0 };
        ContextRoom {
            parity: ContextLayout::room_for(most, ranks),
            shared: ContextLayout::room_for(shared, ranks),
        }
    }
}

/// Splits a team's own context takes: `max(1024, 32 W)`.
pub fn default_max_splits(ranks: usize) -> usize {
    (32 * ranks).max(1024)
}

impl ContextLayout {
    /// Offset of the owner's ticket counter.
    pub const TICKET: usize = 0;
    /// Offset of the owner's completed count.
    pub const COMPLETED: usize = 8;

    /// Bytes of a note: 96 words of 16 bytes.
    pub const NOTE_BYTES: usize = 96 * 16;
    /// Shares of a GPU launch that may push to other members.
    pub const MAX_PUSHERS: usize = 256;

    /// The layout for `ranks` members that publish up to `max_splits` splits each.
    ///
    /// Sizes beyond the address space saturate: `bytes` is then more than any backend can allocate, never a small number
    /// that wrapped.
    pub fn new(ranks: usize, max_splits: usize) -> Self {
        let ranks = ranks.max(1);
        let arrival = 2 * LINE;
        let done = (arrival + 8 * ranks).next_multiple_of(LINE);
        let gathered = (done + 8 * ranks).next_multiple_of(LINE);
        let aborted = (gathered + 8 * ranks).next_multiple_of(LINE);
        let notes = (aborted + 16 * ranks).next_multiple_of(ALIGN);
        let pushed = notes + 2 * ranks * Self::NOTE_BYTES;
        let slots = (pushed + 8 * ranks * Self::MAX_PUSHERS).next_multiple_of(ALIGN);
        let slot_bytes = rounded(max_splits.saturating_mul(8).saturating_add(size_of::<Header>()), LINE);
        let bytes = rounded(slot_bytes.saturating_mul(2 * ranks).saturating_add(slots), ALIGN);
        ContextLayout {
            ranks,
            max_splits,
            arrival,
            done,
            gathered,
            aborted,
            notes,
            pushed,
            slots,
            slot_bytes,
            room: bytes,
            room_bytes: 0,
            shared_room: bytes,
            shared_room_bytes: 0,
            bytes,
        }
    }

    /// The same with room for pushed elements.
    #[must_use]
    pub fn with_room(self, room: ContextRoom) -> Self {
        let (room_bytes, shared_room_bytes) = (rounded(room.parity, ALIGN), rounded(room.shared, ALIGN));
        let shared_room = rounded(room_bytes.saturating_mul(2).saturating_add(self.room), ALIGN);
        let bytes = rounded(shared_room.saturating_add(shared_room_bytes), ALIGN);
        ContextLayout { room_bytes, shared_room, shared_room_bytes, bytes, ..self }
    }

    /// Bytes of room, for one parity or for all epochs, for reductions of up to `most` bytes between `ranks` members: what one of two
    /// pushes; of more, what goes to whoever adds it up, and all sums. A chunk of 1536 bytes takes 1664.
    pub fn room_for(most: usize, ranks: usize) -> usize {
        let chunks = most.div_ceil(1536);
        let chunks = match ranks {
            0 | 1 => 0,
            2 => chunks,
            _ => chunks.div_ceil(ranks).saturating_mul(ranks - 1).saturating_add(chunks),
        };
        chunks.saturating_mul(1664)
    }

    /// A team's own context.
    pub fn for_team(ranks: usize) -> Self {
        ContextLayout::new(ranks, default_max_splits(ranks))
    }

    /// Offset of the arrival word that `rank` writes.
    pub fn arrival_word(&self, rank: usize) -> usize {
        self.arrival + 8 * rank
    }

    /// Offset of the done word that `rank` writes.
    pub fn done_word(&self, rank: usize) -> usize {
        self.done + 8 * rank
    }

    /// Offset of the gathered word that `rank` writes.
    pub fn gathered_word(&self, rank: usize) -> usize {
        self.gathered + 8 * rank
    }

    /// Offset of the aborted pair that `rank` writes: epoch, then failure code << 32 plus the PE at fault plus one.
    pub fn aborted_pair(&self, rank: usize) -> usize {
        self.aborted + 16 * rank
    }

    /// Offset of the slot that `rank` publishes into for `epoch`.
    pub fn slot(&self, epoch: u64, rank: usize) -> usize {
        let parity = usize::from(epoch & 1 == 1);
        self.slots + (parity * self.ranks + rank) * self.slot_bytes
    }
}

/// The next multiple of `align`, or the largest number that is one.
fn rounded(bytes: usize, align: usize) -> usize {
    bytes.checked_next_multiple_of(align).unwrap_or(usize::MAX - usize::MAX % align)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_beyond_the_address_space_saturate() {
        for w in [1, 2, 64] {
            for max_splits in [usize::MAX, usize::MAX / 8, usize::MAX / 16, usize::MAX / 32 - 1, 1 << 60] {
                let l = ContextLayout::new(w, max_splits);
                // As many bytes as two slots of so many splits need, or more than can be allocated.
                let needed = 16 * w as u128 * max_splits as u128;
                assert!(
                    l.bytes as u128 >= needed || l.bytes > isize::MAX as usize,
                    "{w} {max_splits}: {l:?}"
                );
            }
        }
    }

    #[test]
    fn room_holds_what_is_pushed() {
        let room = ContextLayout::room_for;
        assert_eq!([0, 1, 2].map(|w| room(1 << 20, w)), [0, 0, 683 * 1664]);
        assert_eq!([3, 8].map(|w| room(1 << 20, w)), [(2 * 228 + 683) * 1664, (7 * 86 + 683) * 1664]);
        assert_eq!((room(0, 8), room(1, 2), room(1, 8)), (0, 1664, 8 * 1664));
        let all = ContextRoom { parity: room(usize::MAX, 8), shared: 0 };
        assert!(ContextLayout::for_team(8).with_room(all).bytes > isize::MAX as usize);
        assert!(
            ContextLayout::for_team(2).with_room(ContextRoom { parity: 0, shared: usize::MAX }).bytes
                > isize::MAX as usize
        );
        let sums = ContextRoom::for_sums;
        assert_eq!(sums(1536, 4 * 1536, 2), ContextRoom { parity: 1664, shared: 4 * 1664 });
        // Of more than two members nothing is pushed beyond the first limit, and of two nothing below it.
        assert_eq!(sums(1536, 4 * 1536, 3).shared, 0);
        assert_eq!((sums(1536, 1536, 2).shared, sums(1536, 0, 2).shared), (0, 0));
        assert_eq!(sums(0, 4 * 1536, 2), ContextRoom::default());
    }

    #[test]
    fn parts_do_not_overlap() {
        for w in [1, 2, 5, 64] {
            let l = ContextLayout::for_team(w);
            assert!(l.arrival_word(w - 1) + 8 <= l.done);
            assert!(l.done_word(w - 1) + 8 <= l.gathered);
            assert!(l.gathered_word(w - 1) + 8 <= l.aborted);
            assert!(l.aborted_pair(w - 1) + 16 <= l.notes);
            assert_eq!(l.pushed, l.notes + 2 * w * ContextLayout::NOTE_BYTES);
            assert!(l.pushed + 8 * w * ContextLayout::MAX_PUSHERS <= l.slots);
            assert!(l.notes.is_multiple_of(16));
            assert_eq!(l.slot(0, w - 1) + l.slot_bytes, l.slot(1, 0));
            assert!(l.slot(1, w - 1) + l.slot_bytes <= l.bytes);
            assert_eq!((l.room, l.room_bytes), (l.bytes, 0));
            let with = l.with_room(ContextRoom { parity: 5000, shared: 7000 });
            assert!(with.room == l.bytes && with.room_bytes >= 5000 && with.room_bytes.is_multiple_of(16));
            assert_eq!((with.slots, with.shared_room), (l.slots, with.room + 2 * with.room_bytes));
            assert!(
                with.shared_room_bytes >= 7000 && with.bytes == with.shared_room + with.shared_room_bytes
            );
            assert_eq!(l.max_splits, (32 * w).max(1024));
        }
    }
}
