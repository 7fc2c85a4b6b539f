//! Deadlines: every wait of this project has one.

use std::time::{Duration, Instant};

/// A point in time after which a wait gives up, with the time it began.
#[derive(Clone, Copy, Debug)]
pub struct Deadline {
    began: Instant,
    limit: Duration,
}

impl Deadline {
    /// A deadline `limit` from now.
    pub fn after(limit: Duration) -> Self {
        Deadline { began: Instant::now(), limit }
    }

    /// Time since the wait began.
    pub fn waited(&self) -> Duration {
        self.began.elapsed()
    }

    /// Time left; zero once it has passed.
    pub fn left(&self) -> Duration {
        self.limit.saturating_sub(self.began.elapsed())
    }

    /// Whether it has passed.
    pub fn passed(&self) -> bool {
        self.left().is_zero()
    }
}
