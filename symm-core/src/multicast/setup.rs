//! The sequence of stages.

use std::os::fd::AsFd;
use std::sync::Arc;
use std::time::Duration;

use serde::Serialize;
use serde::de::DeserializeOwned;

use super::{Driver, Failed, Fallback, Multicast, Outcome, Stage};
use crate::backend::Export;
use crate::bootstrap::Group;
use crate::deadline::Deadline;
use crate::error::{Error, Result};

const OP: &str = "multicast";

/// Between two attempts while a fabric starts up.
const AGAIN: Duration = Duration::from_millis(100);

/// Gives every member of a group multicast memory over `bytes` bytes of its own `memory`, or none of them.
///
/// `support` is the id of this PE's device (its UUID, which must differ from every other member's), or the reason why this PE
/// cannot or may not (`SYMM_DISABLE_MULTICAST`): with one such member nothing is ever created.
///
/// # Collective
/// Over the group, with equal `bytes`.
///
/// # Errors
/// What keeps members from talking to each other: [`Error::Timeout`], [`Error::PeerFailed`], [`Error::Bootstrap`]. A failure of
/// the driver is none: it is an [`Outcome::Fallback`] on every member. Either way nothing is left on this one.
pub fn set_up<D: Driver>(
    driver: &Arc<D>,
    group: &Group,
    memory: &D::Memory,
    bytes: usize,
    support: &Result<[u8; 16], String>,
    deadline: Deadline,
) -> Result<Outcome<D>> {
    let all: Vec<(Result<[u8; 16], String>, u64)> = gather(group, &(support, bytes as u64), deadline)?;
    if let Some(fallback) = unsupported(group, &all, bytes) {
        return Ok(Outcome::Fallback(fallback));
    }
    loop {
        let attempt = Attempt { driver, group, memory, bytes, deadline };
        match attempt.run()? {
            Ok(multicast) => return Ok(Outcome::Ready(multicast)),
            // All members see the same results and, but for one that is then late in the next gather, have as much time.
            Err((_, true)) if !deadline.passed() => std::thread::sleep(AGAIN.min(deadline.left())),
            Err((fallback, _)) => return Ok(Outcome::Fallback(fallback)),
        }
    }
}

/// The first member that cannot take part.
fn unsupported(group: &Group, all: &[(Result<[u8; 16], String>, u64)], bytes: usize) -> Option<Fallback> {
    let fallback =
        |rank: usize, why: String| Some(Fallback { pe: group.members()[rank], stage: Stage::Support, why });
    for (rank, (support, theirs)) in all.iter().enumerate() {
        match support {
            Err(why) => return fallback(rank, why.clone()),
            Ok(device) => {
                let same = |(other, _): &(Result<[u8; 16], String>, u64)| other.as_ref() == Ok(device);
                if let Some(first) = all[..rank].iter().position(same) {
                    return fallback(
                        rank,
                        format!("its device is also that of PE {}", group.members()[first]),
                    );
                }
            }
        }
        // Ranks are compared with rank 0, so that all say the same.
        if *theirs != all[0].1 {
            return fallback(rank, format!("{theirs} bytes, rank 0 has {}", all[0].1));
        }
    }
    debug_assert_eq!(all[group.my_rank()].1, bytes as u64);
    None
}

/// Every member's message, in rank order.
fn gather<T: DeserializeOwned>(group: &Group, mine: &impl Serialize, deadline: Deadline) -> Result<Vec<T>> {
    let bytes = postcard::to_stdvec(mine).expect("plain values should encode");
    let all = group.all_gather(OP, &bytes, deadline)?;
    let decode = |(bytes, pe): (&Vec<u8>, &crate::Pe)| {
        postcard::from_bytes(bytes).map_err(|e| Error::Bootstrap {
            call: OP,
            why: format!("PE {pe} sent a message that does not decode: {e}"),
        })
    };
    all.iter().zip(group.members()).map(decode).collect()
}

/// One run through the stages.
struct Attempt<'a, D: Driver> {
    driver: &'a Arc<D>,
    group: &'a Group,
    memory: &'a D::Memory,
    bytes: usize,
    deadline: Deadline,
}

/// A stage's failure that all know of, and whether all begin anew.
type Ended = (Fallback, bool);

impl<D: Driver> Attempt<'_, D> {
    /// The gather after a stage: goes on only if every member can.
    fn agree(&self, stage: Stage, mine: Result<(), Failed>) -> Result<Result<(), Ended>> {
        let all: Vec<(Stage, Result<(), Failed>)> = gather(self.group, &(stage, mine), self.deadline)?;
        let again = all.iter().any(|(_, said)| said.as_ref().is_err_and(|e| e.transient))
            && !all.iter().any(|(_, said)| said.as_ref().is_err_and(|e| !e.transient));
        for ((theirs, said), pe) in all.into_iter().zip(self.group.members()) {
            if theirs != stage {
                let why = format!("PE {pe} is in stage {theirs} of the set-up, this PE in {stage}");
                return Err(Error::Bootstrap { call: OP, why });
            }
            if let Err(failed) = said {
                return Ok(Err((Fallback { pe: *pe, stage, why: failed.why }, again)));
            }
        }
        Ok(Ok(()))
    }

    fn run(&self) -> Result<Result<Multicast<D>, Ended>> {
        // Whatever ends this early, `m` undoes what was done.
        let mut m = Multicast {
            driver: self.driver.clone(),
            bytes: self.bytes,
            created: None,
            object: None,
            bound: false,
            mapping: None,
        };
        let mut export = None;
        let made = if self.group.my_rank() == 0 {
            self.driver.create(self.group.len(), self.bytes).and_then(|object| {
                let exported = self.driver.export(&object);
                m.created = Some(object);
                export = Some(exported?);
                Ok(())
            })
        } else {
            Ok(())
        };
        if let Err(ended) = self.agree(Stage::Create, made)? {
            return Ok(Err(ended));
        }

        let imported = self.exchange(export).and_then(|export| {
            let object = self.driver.import(&export)?;
            let added = self.driver.add_device(&object);
            m.object = Some(object);
            added
        });
        if let Err(ended) = self.agree(Stage::Import, imported)? {
            return Ok(Err(ended));
        }
        // Not before all have imported it: the object would be gone.
        if let Some(object) = m.created.take()
            && let Err(e) = self.driver.release(object)
        {
            log::warn!("{}: multicast, release of rank 0's first reference: {}", crate::pe::here(), e.why);
        }

        let bound = m.object.as_ref().map_or(Ok(()), |o| self.driver.bind(o, self.memory, self.bytes));
        m.bound = bound.is_ok();
        if let Err(ended) = self.agree(Stage::Bind, bound)? {
            return Ok(Err(ended));
        }

        let mapped = m.object.as_ref().map(|o| self.driver.map(o, self.bytes)).transpose();
        let mapped = mapped.map(|mapping| m.mapping = mapping);
        Ok(self.agree(Stage::Map, mapped)?.map(|()| m))
    }

    /// Rank 0's export to everybody. A member that does not get it says so in the gather that follows, where all hear it.
    fn exchange(&self, export: Option<Export>) -> Result<Export, Failed> {
        let failed = |e: Error| Failed { why: e.to_string(), transient: false };
        let (boot, tag) = (self.group.bootstrap(), self.group.next_tag());
        let Some(export) = export else {
            let m = boot.recv(self.group.members()[0], tag, self.deadline).map_err(failed)?;
            return Ok(Export { bytes: m.payload, fds: m.fds });
        };
        let fds: Vec<_> = export.fds.iter().map(AsFd::as_fd).collect();
        let others = self.group.members()[1..].iter();
        // All are tried: those that it reaches go on to the gather.
        let sent: Vec<Result<()>> = others.map(|pe| boot.send(*pe, tag, &export.bytes, &fds)).collect();
        sent.into_iter().collect::<Result<()>>().map_err(failed)?;
        Ok(export)
    }
}
