//! A team's log of allocations, by which `rendezvous` finds out that PEs did not allocate the same things.

use serde::{Deserialize, Serialize};

use crate::error::LogEntry;

/// Length and hash of a log up to and including one allocation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Digest {
    pub(crate) len: u64,
    pub(crate) hash: u64,
}

/// The entries that a PE sends when digests differ: those from `base` up to its allocation.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Excerpt {
    base: u64,
    len: u64,
    entries: Vec<(String, u64, String, String)>,
}

const FNV_OFFSET: u64 = 0xcbf2_9ce4_8422_2325;
const FNV_PRIME: u64 = 0x0000_0100_0000_01b3;

/// FNV-1a; equal on every PE and build, which the standard hasher does not promise.
pub(crate) fn fnv(hash: u64, bytes: &[u8]) -> u64 {
    bytes.iter().fold(hash, |h, b| (h ^ u64::from(*b)).wrapping_mul(FNV_PRIME))
}

/// Start value of [`fnv`].
pub(crate) const FNV_START: u64 = FNV_OFFSET;

/// The log of one team on one PE.
#[derive(Debug)]
pub(crate) struct AllocationLog {
    base: u64,
    entries: Vec<LogEntry>,
    digest: Digest,
}

impl AllocationLog {
    pub(crate) fn new() -> Self {
        AllocationLog { base: 0, entries: Vec::new(), digest: Digest { len: 0, hash: FNV_START } }
    }

    /// Appends an entry and returns the digest up to and including it; its step is `len − 1`.
    pub(crate) fn push(&mut self, entry: LogEntry) -> Digest {
        let mut hash = fnv(self.digest.hash, entry.label.as_bytes());
        hash = fnv(hash, &[0xff]);
        hash = fnv(hash, &entry.bytes.to_le_bytes());
        hash = fnv(hash, entry.dtype.as_bytes());
        self.digest = Digest { len: self.digest.len + 1, hash };
        self.entries.push(entry);
        self.digest
    }

    /// Entries up to and including the allocation with `digest`, as far as they were not forgotten.
    pub(crate) fn excerpt(&self, digest: Digest) -> Excerpt {
        let n = usize::try_from(digest.len.saturating_sub(self.base)).unwrap_or(usize::MAX);
        let entries = self.entries.iter().take(n);
        Excerpt {
            base: self.base.min(digest.len),
            len: digest.len,
            entries: entries.map(|e| (e.label.clone(), e.bytes, e.dtype.clone(), e.at.clone())).collect(),
        }
    }

    /// Forgets entries before the allocation with `digest`: the whole team has agreed on them.
    pub(crate) fn agreed(&mut self, digest: Digest) {
        let n = usize::try_from((digest.len.saturating_sub(1)).saturating_sub(self.base)).unwrap_or(0);
        let n = n.min(self.entries.len());
        self.entries.drain(..n);
        self.base += n as u64;
    }
}

impl Excerpt {
    fn at(&self, step: u64) -> Option<LogEntry> {
        if step >= self.len {
            return None;
        }
        let Some(i) = step.checked_sub(self.base) else {
            let note = "(forgotten after an earlier rendezvous of the whole team)".to_owned();
            return Some(LogEntry { label: note, bytes: 0, dtype: "?".to_owned(), at: "?".to_owned() });
        };
        let (label, bytes, dtype, at) = self.entries.get(usize::try_from(i).ok()?)?.clone();
        Some(LogEntry { label, bytes, dtype, at })
    }
}

fn same(a: &Option<LogEntry>, b: &Option<LogEntry>) -> bool {
    match (a, b) {
        (Some(a), Some(b)) => a.label == b.label && a.bytes == b.bytes && a.dtype == b.dtype,
        (None, None) => true,
        _ => false,
    }
}

/// First step at which the excerpts are not all alike, and for `my_rank` the lowest rank with something else there.
///
/// Entries below every base were agreed on earlier and are not compared.
pub(crate) fn first_difference(
    excerpts: &[Excerpt],
    my_rank: usize,
) -> Option<(u64, usize, Option<LogEntry>, Option<LogEntry>)> {
    let start = excerpts.iter().map(|e| e.base).max().unwrap_or(0);
    let start = start.min(excerpts.iter().map(|e| e.len).min().unwrap_or(0));
    let end = excerpts.iter().map(|e| e.len).max().unwrap_or(0);
    for step in start..end {
        let at: Vec<_> = excerpts.iter().map(|e| e.at(step)).collect();
        if let Some(rank) = at.iter().position(|e| !same(e, &at[my_rank])) {
            return Some((step, rank, at[rank].clone(), at[my_rank].clone()));
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    fn log(entries: &[(&str, u64)]) -> (AllocationLog, Digest) {
        let mut l = AllocationLog::new();
        let mut d = l.digest;
        for (label, bytes) in entries {
            d = l.push(LogEntry {
                label: (*label).into(),
                bytes: *bytes,
                dtype: "u8".into(),
                at: "x".into(),
            });
        }
        (l, d)
    }

    #[test]
    fn swapped_allocations_differ_at_the_first_of_them() {
        let (a, da) = log(&[("x", 1), ("p", 2), ("q", 3), ("y", 4)]);
        let (b, db) = log(&[("x", 1), ("q", 3), ("p", 2), ("y", 4)]);
        assert_ne!(da, db);
        let e = [a.excerpt(da), a.excerpt(da), b.excerpt(db)];
        let (step, rank, theirs, ours) = first_difference(&e, 0).expect("they differ");
        assert_eq!((step, rank), (1, 2));
        assert_eq!((theirs.expect("one").label, ours.expect("one").label), ("q".into(), "p".into()));
        assert_eq!(first_difference(&e, 2).map(|d| (d.0, d.1)), Some((1, 0)));
    }

    #[test]
    fn a_skipped_allocation_is_where_the_logs_part() {
        let (a, da) = log(&[("", 8), ("", 16), ("", 24)]);
        let (b, db) = log(&[("", 8), ("", 24)]);
        let (step, _, theirs, ours) =
            first_difference(&[a.excerpt(da), b.excerpt(db)], 0).expect("they differ");
        assert_eq!((step, theirs.expect("one").bytes, ours.expect("one").bytes), (1, 24, 16));
    }

    #[test]
    fn agreed_entries_are_forgotten_and_later_ones_compared() {
        let (mut a, da) = log(&[("", 8), ("", 16)]);
        let (mut b, _) = log(&[("", 8), ("", 16)]);
        a.agreed(da);
        b.agreed(da);
        assert_eq!(a.entries.len(), 1);
        let e = |bytes| LogEntry { label: String::new(), bytes, dtype: "u8".into(), at: "x".into() };
        let (da, db) = (a.push(e(1)), b.push(e(2)));
        let d = first_difference(&[a.excerpt(da), b.excerpt(db)], 1).expect("they differ");
        assert_eq!((d.0, d.1), (2, 0));
    }
}
