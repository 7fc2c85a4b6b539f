//! What a PE did, and what it waited for: counted always, cheap, readable through [`World::stats`](super::World::stats).

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use super::lock::Lock;
use crate::backend::op_name;
use crate::error::Error;
use crate::pe::Pe;
use crate::refused;

/// Numbers of operations below this are counted each by itself.
const OPS: usize = 64;

/// How often something was done, and how long it took.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Times {
    /// How often.
    pub count: u64,
    /// All of it together.
    pub total: Duration,
    /// The longest.
    pub longest: Duration,
}

impl Times {
    fn add(&mut self, took: Duration) {
        self.count += 1;
        self.total += took;
        self.longest = self.longest.max(took);
    }
}

/// Waits that a peer was the last to end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Waits {
    /// Who was waited for; this PE itself for a signal that anybody may set, and for its own puts.
    pub pe: Pe,
    /// How often, and how long.
    pub times: Times,
}

/// Calls of one operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Calls {
    /// Its name.
    pub op: &'static str,
    /// Calls that were enqueued.
    pub calls: u64,
    /// Bytes that they moved, or brought: those of a put or get; of a collective the bytes of this PE's input, of which
    /// splits may send a part only, or of the rows that a plan sends.
    pub bytes: u64,
}

/// What a PE did since `init`, and what it waited for.
///
/// `Display` writes one line for each part, each beginning with `PE k: `; `SYMM_STATS=1` prints that at `finalize`.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Stats {
    /// This PE.
    pub pe: Pe,
    /// PEs of the world.
    pub n_pes: usize,
    /// The backend's name.
    pub backend: &'static str,
    /// Time from the first exchange of `init`, everybody being connected, to its end.
    pub init: Duration,
    /// Rendezvous that were not answered from the cache.
    pub rendezvous: Times,
    /// Operations that were enqueued, by number.
    pub operations: Vec<Calls>,
    /// Waits of operations that were not over within 20 µs, by the PE that was seen late last, in PE order. Looked at now
    /// and then, so the end of a wait (2 ms at most) may be missing. On backends whose kernels wait, empty.
    pub waits: Vec<Waits>,
    /// Deadlines that passed, in operations and set-ups, by the PE that was late; a PE for each that was.
    pub timeouts: Vec<(Pe, u64)>,
    /// PEs whose end was noticed.
    pub failed: Vec<Pe>,
    /// What was chosen or done instead of something better, and why.
    pub fallbacks: Vec<String>,
    /// Connections dropped because who made them did not belong to the job.
    pub strangers: u64,
}

impl fmt::Display for Stats {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let pe = self.pe;
        writeln!(f, "PE {pe}: {} PEs over {}, init {:.1?}", self.n_pes, self.backend, self.init)?;
        let Times { count, total, longest } = self.rendezvous;
        writeln!(f, "PE {pe}: rendezvous: {count}, {total:.1?} in all, the longest {longest:.1?}")?;
        for Calls { op, calls, bytes } in &self.operations {
            writeln!(f, "PE {pe}: {op}: {calls} calls, {bytes} bytes")?;
        }
        for Waits { pe: late, times: Times { count, total, longest } } in &self.waits {
            writeln!(
                f,
                "PE {pe}: waits for PE {late}: {count}, {total:.1?} in all, the longest {longest:.1?}"
            )?;
        }
        for (late, n) in &self.timeouts {
            writeln!(f, "PE {pe}: timeouts with PE {late} late: {n}")?;
        }
        for gone in &self.failed {
            writeln!(f, "PE {pe}: PE {gone} failed")?;
        }
        for fallback in &self.fallbacks {
            writeln!(f, "PE {pe}: {fallback}")?;
        }
        writeln!(f, "PE {pe}: strangers turned away: {}", self.strangers)
    }
}

/// What the model counts.
#[derive(Debug)]
pub(crate) struct Counters {
    /// By operation: calls and bytes.
    ops: Box<[(AtomicU64, AtomicU64); OPS]>,
    rendezvous: Lock<Times>,
    timeouts: Lock<BTreeMap<Pe, u64>>,
    /// Each sentence once.
    fallbacks: Lock<BTreeSet<String>>,
    /// What this PE met last and has not recovered from, with its place among all errors; without an error, the place from which
    /// on arguments that were refused count.
    last: Lock<(u64, Option<String>)>,
}

impl Counters {
    pub(crate) fn new() -> Self {
        Counters {
            ops: Box::new(std::array::from_fn(|_| Default::default())),
            rendezvous: Lock::default(),
            timeouts: Lock::default(),
            fallbacks: Lock::default(),
            last: Lock::new((refused::place(), None)),
        }
    }

    /// An operation was enqueued.
    pub(crate) fn count(&self, op: u64, bytes: usize) {
        let at = usize::try_from(op).unwrap_or(0).min(OPS - 1);
        self.ops[at].0.fetch_add(1, Ordering::Relaxed);
        self.ops[at].1.fetch_add(bytes as u64, Ordering::Relaxed);
    }

    pub(crate) fn rendezvous(&self, took: Duration) {
        self.rendezvous.lock().add(took);
    }

    /// An error was met for the first time.
    pub(crate) fn note(&self, error: &Error) {
        if let Error::Timeout { late, .. } = error {
            let mut timeouts = self.timeouts.lock();
            late.iter().for_each(|pe| *timeouts.entry(*pe).or_default() += 1);
        }
        *self.last.lock() = (refused::place(), Some(error.to_string()));
    }

    /// The team that failed works again, or those that are left go on without it.
    pub(crate) fn recovered(&self) {
        *self.last.lock() = (refused::place(), None);
    }

    /// The last error since the last recovery: one that was noted, or an argument that was refused.
    pub(crate) fn last(&self) -> Option<String> {
        let (place, noted) = self.last.lock().clone();
        refused::since(place).map(|(_, refused)| refused).or(noted)
    }

    /// Something is done instead of something better.
    pub(crate) fn fall_back(&self, sentence: String) {
        self.fallbacks.lock().insert(sentence);
    }

    pub(crate) fn fallbacks(&self) -> impl Iterator<Item = String> {
        self.fallbacks.lock().clone().into_iter()
    }

    pub(crate) fn operations(&self) -> Vec<Calls> {
        let all = self.ops.iter().enumerate().map(|(op, (calls, bytes))| Calls {
            op: op_name(op as u64),
            calls: calls.load(Ordering::Relaxed),
            bytes: bytes.load(Ordering::Relaxed),
        });
        let mut operations: Vec<Calls> = Vec::new();
        for more in all.filter(|c| c.calls > 0) {
            // A handle and a team have a barrier each, of one name.
            match operations.iter_mut().find(|c| c.op == more.op) {
                Some(c) => (c.calls, c.bytes) = (c.calls + more.calls, c.bytes + more.bytes),
                None => operations.push(more),
            }
        }
        operations
    }

    pub(crate) fn rendezvous_times(&self) -> Times {
        *self.rendezvous.lock()
    }

    pub(crate) fn timeouts(&self) -> Vec<(Pe, u64)> {
        self.timeouts.lock().iter().map(|(pe, n)| (*pe, *n)).collect()
    }
}

/// Waits by peer, which a backend counts where its host side waits. One cell a PE, each with one line of numbers.
#[derive(Debug)]
pub struct WaitBook(Box<[[AtomicU64; 3]]>);

impl WaitBook {
    /// For a world of `n` PEs.
    pub fn new(n: usize) -> Self {
        WaitBook((0..n).map(|_| Default::default()).collect())
    }

    /// A wait for `pe` has lasted `waited` so far, `more` of it since it was last told; `first`: it was not told before.
    pub fn add(&self, pe: Pe, more: Duration, waited: Duration, first: bool) {
        let Some([count, total, longest]) = self.0.get(pe.index()) else { return };
        let nanos = |d: Duration| u64::try_from(d.as_nanos()).unwrap_or(u64::MAX);
        count.fetch_add(u64::from(first), Ordering::Relaxed);
        total.fetch_add(nanos(more), Ordering::Relaxed);
        longest.fetch_max(nanos(waited), Ordering::Relaxed);
    }

    /// The PEs that were waited for.
    pub fn waits(&self) -> Vec<Waits> {
        let read = |cell: &AtomicU64| cell.load(Ordering::Relaxed);
        let all = self.0.iter().enumerate().map(|(i, [count, total, longest])| Waits {
            pe: Pe::from(i),
            times: Times {
                count: read(count),
                total: Duration::from_nanos(read(total)),
                longest: Duration::from_nanos(read(longest)),
            },
        });
        all.filter(|w| w.times.count > 0 || !w.times.total.is_zero()).collect()
    }
}
