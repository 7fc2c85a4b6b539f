//! What every wait looks at besides its flag: the team's status, peers that gave up, the deadline.

use std::task::Poll;
use std::time::Duration;

use symm_core::status::{Failure, PEER_INVALID, TIMEOUT, fault, phase};
use symm_core::{Deadline, Pe};

use crate::context::cause_parts;
use crate::core::Core;
use crate::handle::Status;

/// A wait gives itself this long before it looks at anything that costs more than a load.
const PROMPT: Duration = Duration::from_micros(20);

/// Who and what a wait was waiting for, as its failure reports it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Late {
    pub(crate) phase: u64,
    /// The lowest PE that is late.
    pub(crate) pe: Pe,
    /// Late ranks, first 64.
    pub(crate) ranks: u64,
    pub(crate) expected: u64,
    pub(crate) got: u64,
}

/// The bit of a rank in [`Late::ranks`].
pub(crate) fn bit(rank: usize) -> u64 {
    if rank < 64 { 1 << rank } else { 0 }
}

/// The limits of one operation's waits.
#[derive(Debug)]
pub(crate) struct Watch {
    pub(crate) status: Status,
    op: u64,
    limit: Duration,
    /// Set when the first wait begins: the deadline counts from when the stream reaches the operation.
    deadline: Option<Deadline>,
    /// How much of it is in the book of waits, and for whom it was noted last.
    noted: Duration,
    noted_for: Option<Pe>,
    /// How long the operation had waited when it began to wait for that one.
    began: Duration,
}

impl Watch {
    pub(crate) fn new(status: &Status, op: u64, limit: Duration) -> Self {
        Watch {
            status: status.clone(),
            op,
            limit,
            deadline: None,
            noted: Duration::ZERO,
            noted_for: None,
            began: Duration::ZERO,
        }
    }

    /// Whether the team has failed, so that the operation does nothing more.
    pub(crate) fn is_over(&self) -> bool {
        !self.status.is_ok()
    }

    /// Looks around after the flag was not there. `Ready` means that the operation gives up and the status is set.
    pub(crate) fn wait(
        &mut self,
        core: &Core,
        tick: bool,
        late: impl FnOnce() -> Late,
        aborted: impl FnOnce(&Status) -> Option<u64>,
    ) -> Poll<()> {
        if self.is_over() {
            return Poll::Ready(());
        }
        if !tick {
            return Poll::Pending;
        }
        let deadline = *self.deadline.get_or_insert_with(|| Deadline::after(self.limit));
        let waited = deadline.waited();
        if waited < PROMPT && waited < self.limit {
            return Poll::Pending;
        }
        let late = late();
        // Whoever is late next has a wait of its own, which begins where the last one ended.
        if self.noted_for != Some(late.pe) {
            self.began = self.noted;
        }
        let first = self.noted_for.replace(late.pe) != Some(late.pe);
        core.waits().add(
            late.pe,
            waited.saturating_sub(self.noted),
            waited.saturating_sub(self.began),
            first,
        );
        self.noted = waited;
        if let Some(cause) = aborted(&self.status) {
            self.fail_for(core, cause, late);
            return Poll::Ready(());
        }
        if waited >= self.limit {
            self.status.fail(core, &self.failure(late));
            return Poll::Ready(());
        }
        Poll::Pending
    }

    /// Fails because a peer has given up. The PE at fault is the one that the peer names, whoever is late here.
    pub(crate) fn fail_for(&self, core: &Core, cause: u64, late: Late) {
        let (code, pe, own) = cause_parts(cause);
        let mut failure = Failure { code, pe: u64::from(pe.0), late: 0, ..self.failure(late) };
        if own {
            // Neither this operation's deadline passed, nor is that PE late for it.
            failure.phase = phase::GIVEN_UP;
        }
        if code == PEER_INVALID {
            // The pair has no room for the details; whoever computed the verdict has them.
            (failure.phase, failure.expected, failure.got) = (fault::ARGUMENT, 0, 0);
        }
        self.status.fail(core, &failure);
    }

    fn failure(&self, late: Late) -> Failure {
        let waited = self.deadline.map_or(Duration::ZERO, |d| d.waited());
        Failure {
            code: TIMEOUT,
            op: self.op,
            phase: late.phase,
            pe: u64::from(late.pe.0),
            late: late.ranks,
            expected: late.expected,
            got: late.got,
            waited_ns: u64::try_from(waited.as_nanos()).unwrap_or(u64::MAX),
        }
    }
}
