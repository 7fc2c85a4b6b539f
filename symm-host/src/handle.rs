//! What operations are given: handles, and the status of their team.

use std::sync::{Arc, Mutex, PoisonError, Weak};

use symm_core::backend::{Addr, DevicePtrs, HandleParts, Reach};
use symm_core::layout::PadLayout;
use symm_core::status::{Failure, PEER_INVALID, StatusRecord};
use symm_core::{Error, Pe, Result};

use crate::backend::Host;
use crate::context::ContextInner;
use crate::core::Core;
use crate::memory::Area;

/// Status of a team. Clones are the same record.
#[derive(Clone, Debug, Default)]
pub struct Status(Arc<StatusInner>);

#[derive(Debug, Default)]
struct StatusInner {
    record: StatusRecord,
    /// Contexts of the team: where a failure is passed on to the peers, and seen from them.
    contexts: Mutex<Vec<Weak<ContextInner>>>,
}

impl AsRef<StatusRecord> for Status {
    fn as_ref(&self) -> &StatusRecord {
        &self.0.record
    }
}

impl Status {
    pub(crate) fn is_ok(&self) -> bool {
        self.0.record.is_ok()
    }

    pub(crate) fn add_context(&self, context: &Arc<ContextInner>) {
        let mut contexts = self.0.contexts.lock().unwrap_or_else(PoisonError::into_inner);
        contexts.retain(|c| c.strong_count() > 0);
        contexts.push(Arc::downgrade(context));
    }

    /// Sets a failure and passes it on: peers that wait for this PE in any context of the team stop waiting.
    pub(crate) fn fail(&self, core: &Core, failure: &Failure) {
        self.0.record.set(failure);
        self.pass_on();
        core.doorbell().ring();
    }

    /// Gives up every context of the team towards the peers, if a failure is set.
    ///
    /// Not for `PEER_INVALID`: every member computes that by itself, with its details.
    pub(crate) fn pass_on(&self) {
        let Some(failure) = self.0.record.failure().filter(|f| f.code != PEER_INVALID) else { return };
        let contexts = self.0.contexts.lock().unwrap_or_else(PoisonError::into_inner);
        for context in contexts.iter().filter_map(Weak::upgrade) {
            context.give_up(&failure);
        }
    }

    /// The cause for which some peer has given up an operation of the team, as an aborted pair carries it.
    pub(crate) fn aborted(&self) -> Option<u64> {
        let contexts = self.0.contexts.lock().unwrap_or_else(PoisonError::into_inner);
        contexts.iter().filter_map(Weak::upgrade).find_map(|c| c.aborted(u64::MAX))
    }
}

/// A handle as operations are given it.
#[derive(Clone, Debug)]
pub struct RawHandle(pub(crate) Arc<HandleInner>);

#[derive(Debug)]
pub(crate) struct HandleInner {
    pub(crate) core: Arc<Core>,
    pub(crate) my_rank: usize,
    pub(crate) members: Vec<Pe>,
    pub(crate) status: Status,
    pub(crate) pad: PadLayout,
    pub(crate) data_bytes: usize,
    /// By rank.
    pub(crate) data: Vec<Area>,
    /// By rank.
    pub(crate) pads: Vec<Area>,
    /// By rank: whether it is reached by load and store.
    pub(crate) direct: Vec<bool>,
    /// By rank: first byte of the data area, 0 where it is not direct. Users' code reads these three.
    buffers: Box<[u64]>,
    pad_ptrs: Box<[u64]>,
    numbers: Box<[u64]>,
}

impl RawHandle {
    pub(crate) fn bind(core: &Arc<Core>, parts: HandleParts<Host>) -> Result<Self> {
        let w = parts.members.len();
        if parts.data.len() != w || parts.pads.len() != w || parts.my_rank >= w || parts.pad.ranks != w {
            return Err(Error::argument(
                "bind_handle",
                "parts",
                format!("{parts:?}"),
                "one region of each for each rank",
            ));
        }
        let data: Vec<_> = parts.data.iter().map(|r| Area::of(r, parts.data_bytes)).collect::<Result<_>>()?;
        let pads: Vec<_> = parts.pads.iter().map(|r| Area::of(r, parts.pad.bytes)).collect::<Result<_>>()?;
        let direct: Vec<bool> = parts.members.iter().map(|pe| core.reach(*pe) == Reach::Direct).collect();
        let addresses = |areas: &[Area]| {
            let address = |(a, direct): (&Area, &bool)| if *direct { Addr::of(a.base()).0 } else { 0 };
            areas.iter().zip(&direct).map(address).collect::<Box<[u64]>>()
        };
        Ok(RawHandle(Arc::new(HandleInner {
            core: Arc::clone(core),
            my_rank: parts.my_rank,
            buffers: addresses(&data),
            pad_ptrs: addresses(&pads),
            numbers: parts.members.iter().map(|pe| u64::from(pe.0)).collect(),
            members: parts.members,
            status: parts.status,
            pad: parts.pad,
            data_bytes: parts.data_bytes,
            data,
            pads,
            direct,
        })))
    }

    pub(crate) fn device_ptrs(&self) -> DevicePtrs {
        let status = Addr::of(std::ptr::from_ref(self.0.status.as_ref()));
        DevicePtrs {
            buffers: Addr::of(self.0.buffers.as_ptr()),
            pads: Addr::of(self.0.pad_ptrs.as_ptr()),
            members: Addr::of(self.0.numbers.as_ptr()),
            status,
            status_host: status,
        }
    }
}

impl HandleInner {
    /// This PE's own pad.
    pub(crate) fn own_pad(&self) -> &Area {
        &self.pads[self.my_rank]
    }

    /// Checks a rank that an operation names.
    pub(crate) fn check_rank(&self, op: &'static str, rank: usize) -> Result<()> {
        let w = self.members.len();
        if rank < w { Ok(()) } else { Err(Error::argument(op, "rank", rank, format!("a rank below {w}"))) }
    }

    /// Checks a channel that an operation names.
    pub(crate) fn check_channel(&self, op: &'static str, channel: usize) -> Result<()> {
        let n = self.pad.channels;
        if channel < n {
            Ok(())
        } else {
            Err(Error::argument(op, "channel", channel, format!("a channel below {n}")))
        }
    }

    /// Checks a signal that an operation names.
    pub(crate) fn check_signal(&self, op: &'static str, index: usize) -> Result<()> {
        let n = self.pad.n_signals;
        if index < n {
            Ok(())
        } else {
            Err(Error::argument(op, "signal", index, format!("an index below {n}")))
        }
    }
}
