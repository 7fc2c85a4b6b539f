//! PEs: the processes of a job, numbered in the world.

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};

/// A process of the job, by its number in the world (0 to n−1).
///
/// A position inside a team is a *rank* and is a plain `usize`; see
/// [`Team::pe`](crate::model::Team::pe) and [`Team::rank_of`](crate::model::Team::rank_of) for the translation.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Pe(pub u32);

impl Pe {
    /// The PE's number as an index.
    pub fn index(self) -> usize {
        self.0 as usize
    }
}

impl fmt::Display for Pe {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)
    }
}

impl fmt::Debug for Pe {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "PE {}", self.0)
    }
}

impl From<usize> for Pe {
    /// World sizes fit 32 bits; a larger number saturates and is refused where PEs are checked.
    fn from(index: usize) -> Self {
        Pe(u32::try_from(index).unwrap_or(u32::MAX))
    }
}

/// No PE was named yet.
const NONE: u64 = u64::MAX;
/// Several were: threads.
const SEVERAL: u64 = u64::MAX - 1;

static HERE: AtomicU64 = AtomicU64::new(NONE);

/// Notes that this process is `pe`, for [`here`].
pub(crate) fn is_here(pe: Pe) {
    let mine = u64::from(pe.0);
    // Only a label: a lost race between two threads would name one of them.
    let before = HERE.load(Ordering::Relaxed);
    HERE.store(if before == NONE || before == mine { mine } else { SEVERAL }, Ordering::Relaxed);
}

/// Whether no more than one PE lived in this process.
pub(crate) fn is_alone() -> bool {
    HERE.load(Ordering::Relaxed) != SEVERAL
}

/// The PE that this process is, for log lines of parts that know of none: `PE k`, or `a PE` where PEs are threads.
pub fn here() -> impl fmt::Display {
    struct Here(u64);
    impl fmt::Display for Here {
        fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            match self.0 {
                NONE | SEVERAL => f.write_str("a PE"),
                pe => write!(f, "PE {pe}"),
            }
        }
    }
    Here(HERE.load(Ordering::Relaxed))
}
