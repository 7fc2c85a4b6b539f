//! The world: all PEs of the job, their backend, and this PE's memory.

use std::collections::HashMap;
use std::io::Write;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock, Weak};
use std::time::{Duration, Instant};

use super::lock::Lock;
use super::memory::{Imports, Memory, Use};
use super::pool::Block;
use super::retire::{AllocationId, Retirement};
use super::setup::{decode, encode};
use super::span::Local;
use super::stats::{Counters, Stats};
use super::stream::Stream;
use super::team::{Team, TeamInner};
use crate::backend::{Backend, Reach, Records};
use crate::bootstrap::{self, Bootstrap, Call, Group, Liveness, give_up};
use crate::capability::Capabilities;
use crate::config::Config;
use crate::deadline::Deadline;
use crate::dtype::DType;
use crate::error::{Error, Result};
use crate::pe::{Pe, is_here};
use crate::status::{self, Failure};

/// Id of the group over which `init` compares settings.
const INIT_TEAM: u64 = u64::from_le_bytes(*b"init....");
/// Id of the world's team.
const WORLD_TEAM: u64 = u64::from_le_bytes(*b"world...");
/// Mixed into the id of the world's last view for the meeting in `finalize`.
const FINALIZE: u64 = u64::from_le_bytes(*b"finalize");

pub(crate) struct WorldInner<B: Backend> {
    pub(crate) backend: B,
    pub(crate) boot: Arc<dyn Bootstrap>,
    pub(crate) config: Config,
    pub(crate) memory: Lock<Memory<B>>,
    pub(crate) imports: Lock<Imports<B>>,
    pub(crate) retirement: Lock<Retirement<B>>,
    pub(crate) teams: Lock<Vec<Weak<TeamInner<B>>>>,
    /// Teams made here of each set of members, in PE order; part of a new team's id.
    pub(super) team_counts: Lock<HashMap<Vec<Pe>, u64>>,
    finalized: AtomicBool,
    pub(crate) counters: Counters,
    /// How long `init` took.
    opened: OnceLock<Duration>,
}

impl<B: Backend> std::fmt::Debug for WorldInner<B> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("World")
            .field("backend", &self.backend)
            .field("boot", &self.boot)
            .finish_non_exhaustive()
    }
}

impl<B: Backend> WorldInner<B> {
    pub(crate) fn check_open(&self, op: &'static str) -> Result<()> {
        if self.finalized.load(Ordering::Acquire) { Err(Error::Finalized { op }) } else { Ok(()) }
    }

    /// Takes memory, sweeping retired blocks first if there is none, and names who holds memory if it fails.
    pub(crate) fn take(&self, r#use: Use, bytes: usize) -> Result<Block<B>> {
        self.sweep();
        let block = self.memory.lock().take(&self.backend, r#use, bytes);
        block
            .map_err(|e| match e {
                Error::OutOfMemory { requested, why, .. } => {
                    Error::OutOfMemory { requested, why, holders: self.retirement.lock().holders() }
                }
                e => e,
            })
            .inspect_err(|e| self.counters.note(e))
    }

    pub(crate) fn give(&self, r#use: Use, block: Block<B>) {
        if block.dedicated {
            self.imports.lock().forget_sent(block.segment_id);
        }
        self.memory.lock().give(r#use, block);
    }

    pub(crate) fn sweep(&self) {
        // Retires what it was the last to hold.
        drop(self.backend.released());
        self.bury();
        let swept = self.retirement.lock().sweep(|m| self.backend.passed(m).unwrap_or(false));
        drop((swept.raws, swept.contexts));
        if !swept.imports.is_empty() {
            let mut imports = self.imports.lock();
            for (pe, segment) in swept.imports {
                imports.forget(pe, segment);
            }
        }
        for (r#use, block) in swept.blocks {
            self.give(r#use, block);
        }
    }

    /// Lets go of what only PEs held that have ended, where that proves that their writes have ended too.
    fn bury(&self) {
        let ended = self.boot.ended();
        if ended.is_empty() || !self.backend.capabilities().contains(Capabilities::WITHOUT) {
            return;
        }
        self.retirement.lock().forget(&ended);
        let mut imports = self.imports.lock();
        ended.into_iter().for_each(|pe| imports.forget_peer(pe));
    }

    pub(crate) fn to_tell(&self, members: &[Pe]) -> Vec<AllocationId> {
        self.sweep();
        self.retirement.lock().to_tell(members)
    }

    pub(crate) fn told(&self, members: &[Pe], ids: &[AllocationId]) {
        self.retirement.lock().told(members, ids);
    }

    pub(crate) fn reported(&self, pe: Pe, ids: &[AllocationId]) {
        self.retirement.lock().reported(pe, ids);
    }

    /// The first member that has failed, as the error to return.
    pub(crate) fn failed_of(&self, members: &[Pe]) -> Option<Error> {
        let pe = self.boot.failed().into_iter().find(|pe| members.contains(pe))?;
        Some(self.explained(Error::PeerFailed { pe, why: "its connection closed".to_owned() }))
    }

    /// A status word has no room for how a peer's failure was noticed; the bootstrap knows.
    pub(crate) fn explained(&self, error: Error) -> Error {
        match error {
            Error::PeerFailed { pe, why } => {
                Error::PeerFailed { pe, why: self.boot.failure(pe).unwrap_or(why) }
            }
            e => e,
        }
    }

    /// How this PE leaves if nobody finalized its world.
    fn unfinished(&self) -> String {
        if std::thread::panicking() {
            return "it panicked".to_owned();
        }
        let last = self.counters.last().map_or_else(String::new, |e| format!("; its last error: {e}"));
        format!("it dropped its World without finalize{last}")
    }

    pub(crate) fn peer_failed(&self, pe: Pe) {
        let teams: Vec<_> = self.teams.lock().iter().filter_map(Weak::upgrade).collect();
        for team in teams {
            if team.group.members().contains(&pe) {
                let failure =
                    Failure { code: status::PEER_FAILED, pe: u64::from(pe.0), ..Failure::default() };
                team.status.as_ref().set(&failure);
            }
        }
        self.backend.wake();
    }
}

impl<B: Backend> Drop for WorldInner<B> {
    fn drop(&mut self) {
        // Nothing after `finalize`. Without it the others may still need this PE, whether it panics, returns an error from
        // `main` or merely ends early: they are told, in running waits too.
        self.boot.abandon(&self.unfinished());
    }
}

struct Watch<B: Backend>(Weak<WorldInner<B>>);

impl<B: Backend> Liveness for Watch<B> {
    fn failed(&self, pe: Pe, why: &str) {
        if let Some(world) = self.0.upgrade() {
            log::warn!("PE {}: PE {pe} failed: {why}", world.boot.pe());
            world.peer_failed(pe);
        }
    }
}

/// All PEs of the job. Owned; clones are the same world.
#[derive(Debug)]
pub struct World<B: Backend> {
    pub(crate) inner: Arc<WorldInner<B>>,
    team: Team<B>,
}

impl<B: Backend> Clone for World<B> {
    fn clone(&self) -> Self {
        World { inner: self.inner.clone(), team: self.team.clone() }
    }
}

impl<B: Backend> World<B> {
    /// Opens the world: compares settings, opens the backend, makes the world's team with its context.
    ///
    /// # Collective
    /// Over all PEs of `boot`, once. Nothing starts later than this.
    ///
    /// # Errors
    /// [`Error::SettingDiffers`] on every PE; the backend's `Unavailable` or `Unsupported`; [`Error::Timeout`] naming the
    /// PEs that did not come within `config.init_timeout`.
    pub fn init(boot: Arc<dyn Bootstrap>, config: Config) -> Result<Self> {
        World::init_with(boot, config, B::init)
    }

    /// As [`init`](Self::init), with a backend that `open` opens: for one that needs more than bootstrap and settings.
    ///
    /// # Collective
    /// As [`init`](Self::init); so is `open`.
    ///
    /// # Errors
    /// As [`init`](Self::init).
    pub fn init_with(
        boot: Arc<dyn Bootstrap>,
        config: Config,
        open: impl FnOnce(&Arc<dyn Bootstrap>, &Config) -> Result<B>,
    ) -> Result<Self> {
        config.check()?;
        is_here(boot.pe());
        let began = Instant::now();
        let everybody: Vec<Pe> = (0..boot.n_pes()).map(Pe::from).collect();
        let group = Group::new(boot.clone(), INIT_TEAM, everybody.clone())?;
        compare_settings(&group, &config).inspect_err(|e| give_up(&*boot, "start", e))?;
        let backend = open(&boot, &config).inspect_err(|e| give_up(&*boot, "start", e))?;
        let inner = Arc::new(WorldInner {
            backend,
            boot: boot.clone(),
            memory: Lock::new(Memory::new(config.pool_bytes)),
            imports: Lock::new(Imports::new()),
            retirement: Lock::new(Retirement::new()),
            teams: Lock::new(Vec::new()),
            team_counts: Lock::new(HashMap::new()),
            finalized: AtomicBool::new(false),
            counters: Counters::new(),
            opened: OnceLock::new(),
            config,
        });
        let team = Team::create(&inner, "init", WORLD_TEAM, everybody)
            .inspect_err(|e| give_up(&*boot, "start", e))?;
        boot.watch(Arc::new(Watch(Arc::downgrade(&inner))));
        inner.opened.get_or_init(|| began.elapsed());
        log::debug!("PE {}: world of {} PEs over {}", boot.pe(), boot.n_pes(), inner.backend.name());
        Ok(World { inner, team })
    }

    /// This PE.
    #[doc(alias = "nvshmem_my_pe")]
    pub fn pe(&self) -> Pe {
        self.inner.boot.pe()
    }

    /// Number of PEs.
    #[doc(alias = "nvshmem_n_pes")]
    pub fn n_pes(&self) -> usize {
        self.inner.boot.n_pes()
    }

    /// The team of all PEs, rank = PE.
    pub fn team(&self) -> &Team<B> {
        &self.team
    }

    /// The settings in force.
    pub fn config(&self) -> &Config {
        &self.inner.config
    }

    /// The backend.
    pub fn backend(&self) -> &B {
        &self.inner.backend
    }

    /// What the backend can do here.
    pub fn capabilities(&self) -> Capabilities {
        self.inner.backend.capabilities()
    }

    /// How `pe` is reached.
    pub fn reach(&self, pe: Pe) -> Reach {
        self.inner.backend.reach(pe)
    }

    /// A new stream.
    ///
    /// # Errors
    /// The backend's.
    pub fn stream(&self) -> Result<Stream<B>> {
        self.inner.check_open("stream")?;
        Stream::new(&self.inner)
    }

    /// A stream over one that the caller made with the library below the backend: a `CUstream` of whichever framework for
    /// `cuda`. Work that others enqueue on it keeps its order with the operations of this library, and so do captures:
    /// operations given to it while anybody captures it go into that graph, which keeps what they use.
    ///
    /// | stream | `raw` |
    /// |---|---|
    /// | of cudarc, made from a `CudaContext`, whose context is the primary one | `stream.cu_stream().cast()` |
    /// | of torch | `torch.cuda.current_stream().cuda_stream`, a number, as a pointer |
    /// | the legacy default stream (`CU_STREAM_LEGACY`, and stream 0 of most code) | null; the driver does not capture it |
    /// | the calling thread's per-thread default stream (`CU_STREAM_PER_THREAD`) | 2 as a pointer; operations on another thread are refused, since it is another stream there |
    ///
    /// Operations make the GPU's context current only while they run: a context that the thread had before is current again
    /// afterwards. A thread that had none keeps this one.
    ///
    /// # Safety
    /// `raw` is a live stream of the device and context that the backend uses (for `cuda` the primary one), and stays so
    /// until the last clone of the result is dropped. What uses memory of this library is synchronised before a capture of
    /// it that this library does not begin. Executable graphs made from one capture do not run at the same time.
    ///
    /// # Errors
    /// [`Error::Unsupported`] for a backend without such streams; the backend's.
    pub unsafe fn stream_from_raw(&self, raw: *mut std::ffi::c_void) -> Result<Stream<B>> {
        self.inner.check_open("stream")?;
        // SAFETY: the caller promises the same.
        let raw = unsafe { self.inner.backend.stream_from_raw(raw) }?;
        Ok(Stream::over(&self.inner, raw))
    }

    /// Plain memory of this PE, in the memory that streams use: for inputs, splits and results that peers never reach.
    /// Its bytes are not initialised to anything.
    ///
    /// # Errors
    /// [`Error::OutOfMemory`].
    pub fn local(&self, dtype: DType, len: usize) -> Result<Local<B>> {
        self.inner.check_open("local")?;
        Local::new(&self.inner, dtype, len)
    }

    /// A team of `members` in rank order: any PEs, in any order, this PE among them.
    ///
    /// # Collective
    /// Over `members`, with the same list in the same order. Other PEs take no part.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] for a list with repeated or unknown PEs or without this one, and on every member if they give the
    /// same PEs in different orders; [`Error::Timeout`] naming members that did not call it for these PEs.
    #[doc(alias = "nvshmem_team_split_strided")]
    pub fn team_of(&self, members: &[Pe]) -> Result<Team<B>> {
        const OP: &str = "team_of";
        let world = &self.inner;
        world.check_open(OP)?;
        Group::new(world.boot.clone(), 0, members.to_vec()).map_err(|e| e.of(OP))?;
        let id = world.next_team_id(members);
        world.compare_lists(OP, id, members).inspect_err(|e| world.counters.note(e))?;
        Team::create(world, OP, id, members.to_vec())
    }

    /// Allocations retired on this PE whose memory is not free yet, because a stream or a peer is not through.
    pub fn retired(&self) -> usize {
        self.inner.sweep();
        self.inner.retirement.lock().len()
    }

    /// Ends the world: meets all PEs, ends the backend, says goodbye. Nothing else says it: a PE whose world is dropped without
    /// this, as by a `main` that returns an error, has failed, and the others get [`Error::PeerFailed`] with that reason and its
    /// last error within a second, in running waits too.
    ///
    /// # Collective
    /// Over all PEs, once, after the streams were synchronised; after [`Team::without`] on the world's team over the members
    /// of its last view. Later calls on anything of this world return
    /// [`Error::Finalized`].
    ///
    /// # Errors
    /// [`Error::Timeout`] or [`Error::PeerFailed`] if not everybody came, [`Error::Bootstrap`] if a PE made another call of the
    /// world's team instead (where PEs are threads of one process, a timeout that names it); the world is closed all the same, and PEs
    /// that did not come get [`Error::PeerFailed`] for this one.
    #[doc(alias("nvshmem_finalize", "MPI_Finalize"))]
    pub fn finalize(&self) -> Result<()> {
        if self.inner.finalized.swap(true, Ordering::AcqRel) {
            return Ok(());
        }
        let deadline = Deadline::after(self.inner.config.init_timeout);
        let left = self.left();
        let meet = |step| match &left {
            // In the world's team's own sequence, so that a member that makes another call of the team instead is told.
            Ok(left) => {
                let group = left.as_ref().unwrap_or(&self.team.inner.group);
                let met = self.inner.boot.meet(bootstrap::FINALIZE, group.members(), deadline);
                met.unwrap_or_else(|| group.barrier_in(Call { op: bootstrap::FINALIZE, step }, deadline))
            }
            Err(e) => Err(e.clone()),
        };
        let boot = &*self.inner.boot;
        let gives_up = |e: &Error| give_up(boot, bootstrap::FINALIZE, e);
        // Before the backend's end, which may wait for the others as well.
        let met = meet("Arrive").inspect_err(gives_up);
        let ended = self.inner.backend.finalize();
        // A PE says goodbye only when nobody can still be sending to it.
        let met = met.and_then(|()| meet("Leave").inspect_err(gives_up));
        if met.is_ok() {
            boot.close();
        }
        drop(self.inner.backend.released());
        if self.inner.config.stats {
            // Asked for by whoever set it, as the one thing that the library prints. A closed stderr is no failure.
            let _ = std::io::stderr().write_all(self.stats().to_string().as_bytes());
        }
        met.and(ended)
    }

    /// What this PE did so far, and what it waited for. Also after `finalize`.
    ///
    /// # One-sided
    /// Local; takes no part in anything.
    pub fn stats(&self) -> Stats {
        let inner = &*self.inner;
        let Records { waits, mut fallbacks } = inner.backend.records();
        fallbacks.extend(inner.counters.fallbacks());
        Stats {
            pe: self.pe(),
            n_pes: self.n_pes(),
            backend: inner.backend.name(),
            init: inner.opened.get().copied().unwrap_or_default(),
            rendezvous: inner.counters.rendezvous_times(),
            operations: inner.counters.operations(),
            waits,
            timeouts: inner.counters.timeouts(),
            failed: inner.boot.failed(),
            fallbacks,
            strangers: inner.boot.strangers(),
        }
    }

    /// Who is left of the world after `without` on its team; `None` if nobody was left out.
    fn left(&self) -> Result<Option<Group>> {
        let lineage = &self.team.inner.lineage;
        let view = lineage.view();
        if view.number == 0 {
            return Ok(None);
        }
        let id = lineage.team_id(view.number) ^ FINALIZE;
        Group::new(self.inner.boot.clone(), id, view.members).map(Some)
    }

    /// The deadline that operations get if they name none.
    pub fn default_timeout(&self) -> Duration {
        self.inner.config.timeout
    }
}

fn compare_settings(group: &Group, config: &Config) -> Result<()> {
    let mine = config.equal();
    let values: Vec<&str> = mine.iter().map(|(_, v)| v.as_str()).collect();
    let all = group.all_gather("init", &encode(&values), Deadline::after(config.init_timeout))?;
    for (bytes, pe) in all.iter().zip(group.members()) {
        let theirs: Vec<String> = decode("init", *pe, bytes)?;
        for ((name, ours), theirs) in mine.iter().zip(theirs) {
            if *ours != theirs {
                return Err(Error::SettingDiffers { name, pe: *pe, theirs, ours: ours.clone() });
            }
        }
    }
    Ok(())
}
