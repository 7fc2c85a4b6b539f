//! Peers that are not direct: kernels that call NVSHMEM's device functions, linked at start, and what they need.

mod exchange;
mod gdr;
mod load;
mod ops;
mod ucx;
mod watchdog;

use std::sync::Arc;
use std::time::{Duration, Instant};

use symm_core::{Backend, Deadline, Error, Pe, Result};
use symm_cuda::embed::{Function, Mapped64, Table};
use symm_cuda::{Cuda, Status, Stream};
use symm_kernels::geometry::Launch;
use symm_kernels::network::{NET_ENTRIES, NetEntry, THREADS};
use symm_kernels::params::{NetCopyParams, NetParams, STAGE_BYTES};

use crate::error::BACKEND;
use crate::handle::Bits;
use crate::library::Library;
use crate::start::HINTS;
pub(crate) use gdr::signals_work;
use load::load;
pub(crate) use ucx::gets_work;
use watchdog::Watchdog;

/// Places through which bytes outside the heap pass: as many blocks can have some on their way at once.
pub(crate) const STAGES: usize = 64;

/// The network, ready to be used.
#[derive(Debug)]
pub(crate) struct Network {
    cuda: Arc<Cuda>,
    functions: [Function; NET_ENTRIES.len()],
    /// The heap with the stages behind it, and the stages.
    heap: u64,
    heap_bytes: u64,
    stage: u64,
    locks: Table,
    activity: Arc<Mapped64>,
    watchdog: Watchdog,
}

impl Network {
    /// Links the kernels, gives them NVSHMEM's state, starts the watchdog. `heap` is its first byte and length.
    ///
    /// # Errors
    /// What failed, in words.
    pub(crate) fn open(
        cuda: &Arc<Cuda>,
        library: Library,
        heap: (u64, usize),
        timeout: Duration,
    ) -> Result<Self, String> {
        let functions = load(cuda, library)?;
        let say = |e: Error| e.to_string();
        let activity = Arc::new(cuda.mapped_words().map_err(say)?);
        Ok(Network {
            functions,
            heap: heap.0,
            heap_bytes: (heap.1 + STAGES * STAGE_BYTES) as u64,
            stage: heap.0 + heap.1 as u64,
            locks: cuda.table(&[0; STAGES]).map_err(say)?,
            watchdog: Watchdog::start(cuda, &activity, timeout)?,
            activity,
            cuda: cuda.clone(),
        })
    }

    fn params(&self, bits: Bits) -> NetParams {
        NetParams {
            heap: self.heap,
            heap_bytes: self.heap_bytes,
            stage: self.stage,
            locks: self.locks.gpu(),
            activity: self.activity.gpu(),
            network: bits,
            stages: STAGES as u32,
            reserved: 0,
        }
    }

    /// Enqueues a kernel.
    ///
    /// # Safety
    /// `P` is the type that `entry` documents, and every address in `params` is valid until the stream has passed it.
    unsafe fn launch<P: Copy>(
        &self,
        entry: NetEntry,
        launch: Launch,
        stream: &Stream,
        params: &P,
    ) -> Result<()> {
        if self.watchdog.lost() {
            return Err(lost());
        }
        // SAFETY: the caller promises the same.
        unsafe { self.cuda.launch_function(self.functions[entry as usize], launch, stream, params) }
    }

    /// Waits for the stream, but not longer than NVSHMEM answers.
    pub(crate) fn synchronize(&self, stream: &Stream) -> Result<()> {
        let began = Instant::now();
        while !stream.is_through()? {
            if self.watchdog.lost() {
                return Err(lost());
            }
            match began.elapsed() {
                waited if waited < Duration::from_micros(100) => std::hint::spin_loop(),
                waited if waited < Duration::from_millis(10) => std::thread::yield_now(),
                _ => std::thread::sleep(Duration::from_micros(100)),
            }
        }
        // For what the driver does at the end of a wait; the stream is idle.
        self.cuda.synchronize(stream)
    }

    /// Puts `word(me, peer)` and a signal of 1 to the words of this PE on every peer that is not direct: pair `me` of those
    /// that begin at `words` in the peer's heap, where they do here. The word is sent from behind the pairs here.
    pub(crate) fn test_puts(
        &self,
        words: u64,
        me: Pe,
        peers: &[Option<u64>],
        deadline: Deadline,
        word: impl Fn(Pe, Pe) -> u64,
    ) -> Result<(), String> {
        let say = |e: Error| e.to_string();
        let sources = words + 16 * peers.len() as u64;
        let mine: Vec<u64> = (0..peers.len()).map(|pe| word(me, Pe::from(pe))).collect();
        // SAFETY: the stages behind the heap are used by nobody yet.
        unsafe { self.cuda.upload(sources, &mine) }.map_err(say)?;
        let (stream, status): (Stream, Status) =
            (self.cuda.stream().map_err(say)?, self.cuda.status().map_err(say)?);
        let pair = words + 16 * me.index() as u64;
        for pe in (0..peers.len()).filter(|pe| peers[*pe].is_none()) {
            let params = NetCopyParams {
                status: status.addresses(),
                net: self.params([0; 2]),
                record: stream.launch_record().map_err(say)?,
                dst: pair,
                src: sources + 8 * pe as u64,
                bytes: 8,
                signal: pair + 8,
                signal_value: 1,
                pe: pe as u64,
                ..NetCopyParams::default()
            };
            let one = Launch { blocks: 1, threads: THREADS, remote: 0 };
            // SAFETY: the parameters are the kernel's; all addresses are in the stages.
            unsafe { self.launch(NetEntry::Put, one, &stream, &params) }.map_err(say)?;
        }
        while !stream.is_through().map_err(say)? {
            if deadline.passed() || self.watchdog.lost() {
                return Err(format!("puts over NVSHMEM's transports do not end: {HINTS}"));
            }
            std::thread::sleep(Duration::from_micros(200));
        }
        Ok(())
    }

    /// Ends the watchdog.
    pub(crate) fn stop(&self) {
        self.watchdog.stop();
    }
}

/// What every call gets once NVSHMEM does not answer.
fn lost() -> Error {
    Error::Backend {
        backend: BACKEND,
        call: "quiet",
        code: -1,
        text: "NVSHMEM's transport did not complete what was started, within the deadline of operations; it cannot be used \
               in this process any more"
            .to_owned(),
    }
}
