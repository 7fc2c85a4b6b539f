//! Teams: ordered subsets of PEs with a status, a log of allocations and a context of their own.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use super::context::{Context, ContextInner};
use super::handle::HandleCore;
use super::lock::Lock;
use super::log::{AllocationLog, Digest};
use super::recover::Recovery;
use super::setup::{Offer, Setup, Step, absence};
use super::tensor::Tensor;
use super::view::{Lineage, View};
use super::world::WorldInner;
use crate::backend::Backend;
use crate::bootstrap::Group;
use crate::capability::Capabilities;
use crate::deadline::Deadline;
use crate::dtype::DType;
use crate::error::{Error, Result};
use crate::layout::default_max_splits;
use crate::pe::Pe;

pub(crate) struct TeamInner<B: Backend> {
    pub(crate) world: Arc<WorldInner<B>>,
    pub(crate) group: Group,
    pub(crate) status: B::Status,
    pub(crate) log: Lock<AllocationLog>,
    /// Contexts in the order of their making, which is the same on all members.
    pub(crate) contexts: Lock<Vec<Weak<ContextInner<B>>>>,
    /// Handles over this team.
    pub(crate) handles: Lock<Vec<Weak<HandleCore<B>>>>,
    timeout: Lock<Duration>,
    pub(crate) recovery: Lock<Recovery>,
    /// Shared with the team that this one is what is left of.
    pub(crate) lineage: Arc<Lineage>,
    /// Number of the view that this team is.
    view: u64,
    /// Whether the failure that is set has been counted.
    pub(crate) noted: AtomicBool,
    /// Whether its members have gone on without some of them.
    superseded: AtomicBool,
}

impl<B: Backend> std::fmt::Debug for TeamInner<B> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Team").field("members", &self.group.members()).finish_non_exhaustive()
    }
}

impl<B: Backend> TeamInner<B> {
    pub(crate) fn check(&self, op: &'static str) -> Result<()> {
        self.world.check_open(op)?;
        self.failure()
    }

    pub(crate) fn failure(&self) -> Result<()> {
        match self.status.as_ref().failure() {
            None => Ok(()),
            Some(f) => {
                let error = f.to_error(self.world.backend.name(), self.group.members());
                let error = self.world.explained(error);
                if !self.noted.swap(true, Ordering::AcqRel) {
                    self.world.counters.note(&error);
                }
                Err(error)
            }
        }
    }

    /// What a stream that ran operations of this team reports at its end: nothing any more once the members have gone on
    /// in another team.
    pub(crate) fn stream_failure(&self) -> Result<()> {
        if self.superseded.load(Ordering::Acquire) { Ok(()) } else { self.failure() }
    }

    pub(crate) fn timeout(&self) -> Duration {
        *self.timeout.lock()
    }

    pub(crate) fn setup(&self, op: &'static str) -> Setup<'_, B> {
        let deadline = Deadline::after(self.world.config.init_timeout);
        Setup { world: &self.world, group: &self.group, op, deadline }
    }
}

/// An ordered subset of PEs. Owned; clones are the same team.
#[doc(alias("ProcessGroup", "ncclComm_t", "MPI_Comm"))]
#[derive(Debug)]
pub struct Team<B: Backend> {
    pub(crate) inner: Arc<TeamInner<B>>,
    context: Context<B>,
}

impl<B: Backend> Clone for Team<B> {
    fn clone(&self) -> Self {
        Team { inner: self.inner.clone(), context: self.context.clone() }
    }
}

impl<B: Backend> Team<B> {
    /// `op` is what the caller was asked for, as errors name it.
    pub(crate) fn create(
        world: &Arc<WorldInner<B>>,
        op: &'static str,
        id: u64,
        members: Vec<Pe>,
    ) -> Result<Self> {
        let lineage = Arc::new(Lineage::new(&world.boot, id, &members));
        Team::create_as(world, op, (id, members), lineage, 0)
    }

    fn create_as(
        world: &Arc<WorldInner<B>>,
        op: &'static str,
        (id, members): (u64, Vec<Pe>),
        lineage: Arc<Lineage>,
        view: u64,
    ) -> Result<Self> {
        let group = Group::new(world.boot.clone(), id, members)?;
        let inner = Arc::new(TeamInner {
            world: world.clone(),
            status: world.backend.status()?,
            log: Lock::new(AllocationLog::new()),
            contexts: Lock::new(Vec::new()),
            handles: Lock::new(Vec::new()),
            timeout: Lock::new(world.config.timeout),
            recovery: Lock::new(Recovery::default()),
            lineage,
            view,
            noted: AtomicBool::new(false),
            superseded: AtomicBool::new(false),
            group,
        });
        let context = Context::create(&inner, op, default_max_splits(inner.group.len()))?;
        {
            let mut teams = world.teams.lock();
            teams.retain(|t| t.strong_count() > 0);
            teams.push(Arc::downgrade(&inner));
        }
        // A member may have died between the exchange above and the registration.
        if let Some(failed) = world.failed_of(inner.group.members()) {
            return Err(failed);
        }
        Ok(Team { inner, context })
    }

    /// This PE's rank.
    pub fn rank(&self) -> usize {
        self.inner.group.my_rank()
    }

    /// Number of members, W.
    pub fn world_size(&self) -> usize {
        self.inner.group.len()
    }

    /// Members in rank order.
    pub fn members(&self) -> &[Pe] {
        self.inner.group.members()
    }

    /// The PE of a rank.
    pub fn pe(&self, rank: usize) -> Option<Pe> {
        self.members().get(rank).copied()
    }

    /// The rank of a PE, `None` if it is no member.
    pub fn rank_of(&self, pe: Pe) -> Option<usize> {
        self.members().iter().position(|p| *p == pe)
    }

    /// The rank that `rank` of this team has in `other`, `None` if it is no member there or no rank here.
    #[doc(alias = "nvshmem_team_translate_pe")]
    pub fn translate(&self, rank: usize, other: &Team<B>) -> Option<usize> {
        other.rank_of(self.pe(rank)?)
    }

    /// Splits the team: members with the same `color` become a team, ordered by (`key`, rank). `None` as color joins none.
    ///
    /// # Collective
    /// Over this team.
    ///
    /// # Errors
    /// [`Error::Timeout`] naming the members that did not call it, [`Error::PeerFailed`]. A failure that is set on the team, and
    /// [`Error::Setup`] on members where it is not.
    #[doc(alias("nvshmem_team_split_strided", "ncclCommSplit", "MPI_Comm_split"))]
    pub fn split(&self, color: Option<u64>, key: i64) -> Result<Option<Team<B>>> {
        const OP: &str = "split";
        type Choice = Result<(Option<u64>, i64), (String, String)>;
        self.inner.world.check_open(OP)?;
        let setup = self.inner.setup(OP);
        if let Err(failed) = self.inner.failure() {
            setup.tell(Step::Agree, &Choice::Err(absence(&failed)));
            return Err(failed);
        }
        let all: Vec<Choice> = setup.gather(Step::Agree, &Choice::Ok((color, key)))?;
        let mut same = Vec::new();
        for (rank, choice) in all.into_iter().enumerate() {
            let pe = self.members()[rank];
            let (c, k) = choice.map_err(|(stage, why)| Error::Setup { op: OP, pe, stage, why })?;
            if c.is_some() && c == color {
                same.push((k, rank, pe));
            }
        }
        if color.is_none() {
            return Ok(None);
        }
        same.sort_unstable();
        let members: Vec<Pe> = same.into_iter().map(|(_, _, pe)| pe).collect();
        let id = self.inner.world.next_team_id(&members);
        Team::create(&self.inner.world, OP, id, members).map(Some)
    }

    /// Allocates a symmetric tensor of `sizes` elements, local and without communication.
    ///
    /// The data are not initialised. Every member must allocate the same things in the same order, which `rendezvous`
    /// checks.
    ///
    /// # Errors
    /// [`Error::OutOfMemory`], naming PEs that still hold memory retired here; [`Error::InvalidArgument`] for sizes whose
    /// product does not fit the address space.
    #[doc(alias("nvshmem_malloc", "ncclMemAlloc"))]
    #[track_caller]
    pub fn empty(&self, sizes: &[usize], dtype: DType) -> Result<Tensor<B>> {
        Tensor::empty(self, "", sizes, dtype)
    }

    /// As [`empty`](Self::empty) with a label, which `rendezvous` compares and names in errors.
    ///
    /// # Errors
    /// As [`empty`](Self::empty).
    #[track_caller]
    pub fn empty_labelled(&self, label: &str, sizes: &[usize], dtype: DType) -> Result<Tensor<B>> {
        Tensor::empty(self, label, sizes, dtype)
    }

    /// Another context of this team, whose operations may be in flight beside those of the first.
    ///
    /// Each PE may publish up to `max_splits` splits in an operation of it.
    ///
    /// # Collective
    /// Over this team, with the same `max_splits`.
    ///
    /// # Errors
    /// [`Error::Setup`] on every member if one fails; [`Error::Timeout`]; [`Error::PeerFailed`].
    pub fn new_context(&self, max_splits: usize) -> Result<Context<B>> {
        Context::create(&self.inner, "context", max_splits)
    }

    /// The context that the team was born with, for `max(1024, 32 W)` splits; the team's own operations use it.
    pub fn context(&self) -> &Context<B> {
        &self.context
    }

    /// Tells the members what was retired here and takes back what all of them have retired.
    ///
    /// # Collective
    /// Over this team. Rendezvous does the same on the way.
    ///
    /// # Errors
    /// [`Error::Timeout`], [`Error::PeerFailed`]. A failure that is set on the team, and [`Error::Setup`] on members where it is not.
    pub fn reclaim(&self) -> Result<()> {
        const OP: &str = "reclaim";
        self.inner.world.check_open(OP)?;
        let (setup, subject, digest) = (self.inner.setup(OP), (0, 0, 0, 0), Digest { len: 0, hash: 0 });
        if let Err(failed) = self.inner.failure() {
            setup.tell(Step::Offer, &Offer::absent(subject, digest, &failed));
            return Err(failed);
        }
        let retired = self.inner.world.to_tell(self.members());
        setup.offers(&Offer { failed: None, absent: false, subject, digest, places: Vec::new(), retired })?;
        self.inner.world.sweep();
        Ok(())
    }

    /// The failure that is set on the team, without a synchronisation. Set by any operation of the team that failed and by
    /// the death of a member; stays until [`recover`](Self::recover).
    ///
    /// # Errors
    /// That failure.
    pub fn status(&self) -> Result<()> {
        self.inner.failure()
    }

    /// Deadline of operations of this team that name none.
    pub fn set_timeout(&self, limit: Duration) {
        *self.inner.timeout.lock() = limit;
    }

    /// Makes the team work again after a failure that all members survived.
    ///
    /// The caller has synchronised every stream on which it launched graphs of the team. Pads are zeroed; contexts
    /// go on at the largest epoch plus one. Buffers of the failed operation hold anything.
    ///
    /// # Collective
    /// Over this team.
    ///
    /// # Errors
    /// [`Error::Timeout`] naming members that did not come (it may be called again); [`Error::PeerFailed`] if one is gone;
    /// [`Error::Unsupported`] where the backend lacks `RECOVER`.
    #[doc(alias = "ncclCommAbort")]
    pub fn recover(&self) -> Result<()> {
        super::recover::recover(&self.inner)
    }

    /// Number of the view that this team is: 0 for a team as it was made, larger for one made by
    /// [`without`](Self::without).
    pub fn view(&self) -> u64 {
        self.inner.view
    }

    /// What is left of this team without the PEs of `gone` and whoever else of it has ended, in the same order.
    ///
    /// A PE that died fails its teams for good: `recover` needs every member. The members that live go on in the team that
    /// this returns, with contexts and pads of its own. Tensors that were allocated in this team may be rendezvoused over
    /// the new one and keep their contents; this team's handles stay failed. Memory that only a dead PE still held becomes
    /// free.
    ///
    /// The lowest PE that lives decides who is in, which makes a numbered [`view`](Self::view), the same on all. A PE is left
    /// out only when its end is proven: its connection is closed and, on one host, its process is gone, and with it
    /// everything that could still write this PE's memory. One that is merely silent is waited for; whoever runs the job
    /// ends it. If more PEs die meanwhile, they are left out as well. A PE that dies in the last steps of this may be a
    /// member on some and already left out on others: whoever has it as a member sees the team fail with
    /// [`Error::PeerFailed`] and calls `without` on it, where the others wait.
    ///
    /// Returned, every stream of every member has passed what it was given before: buffers of the failed operation are
    /// not written any more, and [`Stream::synchronize`](super::Stream::synchronize) no longer returns this team's failure.
    /// On the world's team, [`World::finalize`](super::World::finalize) then meets the members of the
    /// last view only.
    ///
    /// # Collective
    /// Over the members of this team that live. `gone` may differ between them, and be empty.
    ///
    /// # Errors
    /// [`Error::Timeout`] naming PEs that failed, or are in `gone`, and have not ended, or members that did not come (it may be
    /// called again);
    /// [`Error::PeerFailed`] naming this PE if the others went on without it; [`Error::InvalidArgument`] if `gone` has
    /// this PE or no member; [`Error::Unsupported`] where the backend lacks `WITHOUT`.
    #[doc(alias("ncclCommShrink", "MPIX_Comm_shrink"))]
    pub fn without(&self, gone: &[Pe]) -> Result<Team<B>> {
        const OP: &str = "without";
        let world = &self.inner.world;
        let lineage = &self.inner.lineage;
        if let Some(pe) = gone.iter().find(|pe| **pe == world.boot.pe() || !lineage.made().contains(pe)) {
            let expected = format!("other PEs of {:?}", lineage.made());
            return Err(Error::argument(OP, "gone", format!("a list with PE {pe}"), expected));
        }
        let deadline = Deadline::after(world.config.init_timeout);
        super::recover::idle(world, OP, (Capabilities::WITHOUT, "WITHOUT"), deadline)?;
        loop {
            let next = lineage.next(gone, deadline);
            let View { number, members } = next.inspect_err(|e| world.counters.note(e))?;
            log::info!("PE {}: view {number} of the team: {members:?}", world.boot.pe());
            let id = lineage.team_id(number);
            match Team::create_as(world, OP, (id, members), lineage.clone(), number) {
                // Another one died meanwhile: the next view is without it, too.
                Err(Error::PeerFailed { .. }) if !deadline.passed() => {}
                Ok(team) => {
                    self.inner.superseded.store(true, Ordering::Release);
                    world.counters.recovered();
                    return Ok(team);
                }
                Err(e) => return Err(e),
            }
        }
    }
}
