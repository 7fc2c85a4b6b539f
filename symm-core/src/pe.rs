//! PEs: the processes of a job, numbered in the world.

use std::fmt;

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
