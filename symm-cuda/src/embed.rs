//! For a backend that has its own memory and its own ways to peers: this crate's device, streams, status records, graphs
//! and kernels over addresses that the other backend names.
//!
//! A member that is not reached by load and store has address 0. The operations of [`Cuda`] must then not be given a handle
//! or context with such a member: the other backend has kernels of its own for it, which it launches here.

use std::any::Any;
use std::ffi::CStr;
use std::sync::{Arc, Weak};

use cudarc::driver::sys::{self, CUdevice_attribute, CUfunction, CUfunction_attribute, CUmodule, CUstream};
use symm_core::backend::Exchange;
use symm_core::status::Failure;
use symm_core::{Backend, Config, Pe, Result};
use symm_kernels::geometry::{Launch, Limits};
use symm_kernels::params::{ExchangeParams, ReduceParams, StatusParams, TakeParams};

use crate::arena::{Block, Kind};
use crate::backend::Cuda;
pub use crate::choice::same_gpu;
use crate::choice::{Offer, chosen};
use crate::device::Device;
pub use crate::dmabuf::DmaBuf;
use crate::handle::{RawContext, RawHandle};
use crate::launch::{self, Kernels};
use crate::result::{check, lock};
use crate::shared::Shared;
use crate::status::Status;
use crate::stream::Stream;
use crate::vmm::{Mapped, Mapping};

/// The GPU of a PE and this crate's kernels on it, before anything is known of other PEs.
#[derive(Debug)]
pub struct Gpu {
    device: Device,
    kernels: Kernels,
}

impl Gpu {
    /// What this PE says to all others, so that each can [`open`](Self::open) a GPU of its own.
    ///
    /// # Errors
    /// `Unavailable` without a driver or a GPU, or if the settings name one that is not there.
    pub fn offer(config: &Config) -> Result<Vec<u8>> {
        Offer::here(config.device).map(|o| o.to_bytes())
    }

    /// Opens the GPU that falls to `pe` by what all PEs said ([`offer`](Self::offer)), in PE order.
    ///
    /// # Errors
    /// `Unavailable` without kernels, or what this crate needs of the GPU.
    pub fn open(pe: Pe, said: &[Vec<u8>]) -> Result<Self> {
        let device = Device::open(chosen(pe, said)?)?;
        let kernels = Kernels::load(&device)?;
        Ok(Gpu { device, kernels })
    }

    /// Identifies the GPU across processes.
    pub fn uuid(&self) -> [u8; 16] {
        self.device.uuid
    }

    /// The backend over it. `uuids`: the GPU of each PE of the world.
    ///
    /// # Errors
    /// The driver's.
    pub fn into_backend(self, uuids: &[[u8; 16]], config: &Config) -> Result<Cuda> {
        let Gpu { device, kernels } = self;
        let here = uuids.iter().filter(|u| **u == device.uuid).count();
        let shared = Shared::new(device.shared_by(here))?;
        let atomics = shared.device.atomics_with(uuids)?;
        // Capabilities and records are those of the backend that embeds this one.
        Ok(Cuda {
            shared,
            kernels,
            atomics,
            max_blocks: config.max_blocks,
            all_reduce_push: config.all_reduce_push,
            all_reduce_push_pair: config.all_reduce_push_pair,
            one_host: false,
            fallback: None,
        })
    }
}

/// Words in GPU memory that live as long as this, and until the streams have passed its drop.
#[derive(Debug)]
pub struct Table(Block);

impl Table {
    /// Address of the first word, for kernels.
    pub fn gpu(&self) -> u64 {
        self.0.gpu()
    }
}

/// A zeroed page of host memory that kernels reach too, as [`Table`] lives.
#[derive(Debug)]
pub struct Mapped64(Block);

impl Mapped64 {
    /// Address of the first word, for kernels.
    pub fn gpu(&self) -> u64 {
        self.0.gpu()
    }

    /// The words, for the host.
    pub fn words(&self) -> &[std::sync::atomic::AtomicU64; 32] {
        let at = std::ptr::with_exposed_provenance::<[std::sync::atomic::AtomicU64; 32]>(self.0.place.host);
        // SAFETY: a block has at least 256 zeroed bytes, is aligned to that, lives as long as `self`, and host and kernels
        // access it by atomics only.
        unsafe { &*at }
    }
}

/// An image that was loaded here; it stays loaded until the process ends.
#[derive(Debug)]
pub struct Module(usize);

/// A kernel of a [`Module`].
#[derive(Clone, Copy, Debug)]
pub struct Function {
    raw: usize,
    /// Threads that a block of it may have.
    pub max_threads: u32,
}

impl Module {
    /// The driver's module.
    pub fn cu_module(&self) -> CUmodule {
        self.0 as CUmodule
    }

    /// A kernel by its symbol.
    ///
    /// # Errors
    /// The driver's, also for a symbol that the image does not have.
    pub fn function(&self, symbol: &CStr) -> Result<Function> {
        let mut raw: CUfunction = std::ptr::null_mut();
        // SAFETY: `raw` is a valid place, the module is loaded, the name is NUL-terminated.
        let found = unsafe { sys::cuModuleGetFunction(&raw mut raw, self.cu_module(), symbol.as_ptr()) };
        check("cuModuleGetFunction", found)?;
        let mut threads = 0;
        let what = CUfunction_attribute::CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK;
        // SAFETY: `threads` is a valid place and the function was found just now.
        check("cuFuncGetAttribute", unsafe { sys::cuFuncGetAttribute(&raw mut threads, what, raw) })?;
        Ok(Function { raw: raw as usize, max_threads: u32::try_from(threads).unwrap_or(0) })
    }
}

impl Cuda {
    /// Makes the context current on the calling thread, and leaves it so.
    ///
    /// # Errors
    /// The driver's.
    pub fn enter(&self) -> Result<()> {
        self.shared.device.stay()
    }

    /// Multiprocessors that this PE's kernels may occupy, and the blocks that the settings allow an operation.
    pub fn limits(&self) -> Limits {
        Limits { multiprocessors: self.shared.device.multiprocessors, max_blocks: self.max_blocks }
    }

    /// Compute capability of the GPU, as in `sm_90`.
    ///
    /// # Errors
    /// The driver's.
    pub fn sm(&self) -> Result<u32> {
        let _entered = self.shared.device.enter()?;
        launch::compute_capability()
    }

    /// Whether this GPU's atomics on host memory are atomic with respect to others'.
    ///
    /// # Errors
    /// The driver's.
    pub fn has_host_atomics(&self) -> Result<bool> {
        let what = CUdevice_attribute::CU_DEVICE_ATTRIBUTE_HOST_NATIVE_ATOMIC_SUPPORTED;
        self.shared.device.attribute(what).map(|has| has != 0)
    }

    /// What driver and GPU have for a CPU's mapping of GPU memory over DMA-BUF.
    pub fn dma_buf(&self) -> DmaBuf {
        DmaBuf::of(self.shared.device.raw)
    }

    /// Free memory of the GPU, in bytes.
    ///
    /// # Errors
    /// The driver's.
    pub fn free_memory(&self) -> Result<u64> {
        let _entered = self.shared.device.enter()?;
        let (mut free, mut total) = (0, 0);
        // SAFETY: both are valid places.
        check("cuMemGetInfo_v2", unsafe { sys::cuMemGetInfo_v2(&raw mut free, &raw mut total) })?;
        Ok(free as u64)
    }

    /// Memory at an address that `owner` keeps valid while it lives; 0 for a member that has none here.
    pub fn mapping(&self, base: u64, owner: Arc<dyn Any + Send + Sync>) -> Mapping {
        Mapping(Arc::new(Mapped::of_others(&self.shared, base, owner)))
    }

    /// Zeroes GPU memory and returns when that is done and visible to every PE.
    ///
    /// # Safety
    /// `at` names that many bytes that this GPU may write and that no operation uses.
    ///
    /// # Errors
    /// The driver's.
    pub unsafe fn zero_at(&self, at: u64, bytes: usize) -> Result<()> {
        let _entered = self.shared.device.enter()?;
        if bytes == 0 { Ok(()) } else { self.shared.zero(at, bytes) }
    }

    /// Copies words to the GPU, or to a peer's memory, and waits for it.
    ///
    /// # Safety
    /// `at` names as many words that this GPU may write.
    ///
    /// # Errors
    /// The driver's.
    pub unsafe fn upload(&self, at: u64, words: &[u64]) -> Result<()> {
        let _entered = self.shared.device.enter()?;
        self.shared.upload(at, words)
    }

    /// Copies words from the GPU, or from a peer's memory, and waits for it.
    ///
    /// # Safety
    /// `at` names as many words that this GPU may read.
    ///
    /// # Errors
    /// The driver's.
    pub unsafe fn download(&self, at: u64, words: &mut [u64]) -> Result<()> {
        let _entered = self.shared.device.enter()?;
        self.shared.download(at, words)
    }

    /// A copy of `words` in GPU memory.
    ///
    /// # Errors
    /// The driver's.
    pub fn table(&self, words: &[u64]) -> Result<Table> {
        let block = Block::new(&self.shared, Kind::Device, size_of_val(words))?;
        self.shared.upload(block.gpu(), words)?;
        Ok(Table(block))
    }

    /// Words that host and kernels both write.
    ///
    /// # Errors
    /// The driver's.
    pub fn mapped_words(&self) -> Result<Mapped64> {
        Block::new(&self.shared, Kind::Mapped, 256).map(Mapped64)
    }

    /// Loads an image.
    ///
    /// # Errors
    /// The driver's.
    pub fn load(&self, image: &[u8]) -> Result<Module> {
        let _entered = self.shared.device.enter()?;
        launch::load_data(image).map(|m| Module(m as usize))
    }

    /// Enqueues a kernel of a module that was loaded here.
    ///
    /// # Safety
    /// `P` is the type of the kernel's only parameter, and every address in it is valid until the stream has passed it.
    ///
    /// # Errors
    /// The driver's.
    pub unsafe fn launch_function<P: Copy>(
        &self,
        function: Function,
        launch: Launch,
        stream: &Stream,
        params: &P,
    ) -> Result<()> {
        // SAFETY: the caller promises the same; the function stays loaded.
        unsafe { self.kernels.launch_raw(function.raw as CUfunction, launch, stream, params) }
    }

    /// What a kernel that moves rows is given for `x`.
    ///
    /// # Errors
    /// The driver's.
    pub fn exchange_params(
        &self,
        stream: &Stream,
        context: &RawContext,
        x: &Exchange<'_, Cuda>,
    ) -> Result<ExchangeParams> {
        crate::exchange::exchange_params(stream, context, x)
    }

    /// What a kernel of the broadcast or a reduction is given for `x`.
    ///
    /// # Errors
    /// The driver's.
    pub fn reduce_params(
        &self,
        stream: &Stream,
        context: &RawContext,
        x: &Exchange<'_, Cuda>,
    ) -> Result<ReduceParams> {
        crate::reduce::reduce_params(stream, context, x)
    }

    /// What a kernel of a form that takes is given for `x`.
    ///
    /// # Errors
    /// The driver's.
    pub fn take_params(
        &self,
        stream: &Stream,
        context: &RawContext,
        x: &Exchange<'_, Cuda>,
    ) -> Result<TakeParams> {
        crate::take::take_params(stream, context, x)
    }

    /// Sets a failure on every team, in running waits too.
    pub fn fail_all(&self, failure: &Failure) {
        for status in self.statuses() {
            status.as_ref().set(failure);
        }
        self.wake();
    }

    /// Whether a team has a failure set.
    pub fn has_failed(&self) -> bool {
        self.statuses().iter().any(|s| !s.as_ref().is_ok())
    }

    fn statuses(&self) -> Vec<Status> {
        lock(&self.shared.statuses).iter().filter_map(Weak::upgrade).map(Status::of).collect()
    }
}

impl Stream {
    /// Address of the launch record for the next launch on this stream.
    ///
    /// # Errors
    /// The driver's.
    pub fn launch_record(&self) -> Result<u64> {
        self.record()
    }

    /// Whether operations given to the stream are captured.
    pub fn captures(&self) -> bool {
        self.is_capturing()
    }

    /// Whether everything enqueued so far has ended.
    ///
    /// # Errors
    /// The driver's; `Unsupported` while the stream is being captured.
    pub fn is_through(&self) -> Result<bool> {
        self.not_capturing("synchronize")?;
        let _entered = self.enter()?;
        // SAFETY: the stream is live.
        match unsafe { sys::cuStreamQuery(self.cu_stream() as CUstream) } {
            sys::CUresult::CUDA_ERROR_NOT_READY => Ok(false),
            other => check("cuStreamQuery", other).map(|()| true),
        }
    }
}

impl Status {
    /// Where kernels find the record.
    pub fn addresses(&self) -> StatusParams {
        self.params()
    }
}

impl RawHandle {
    /// Address of the members' PE numbers on the GPU.
    pub fn members_table(&self) -> u64 {
        self.members_ptr()
    }

    /// Address of each rank's pad; 0 where it has none here.
    pub fn pad_addresses(&self) -> &[u64] {
        &self.pads
    }

    /// Address of the table of pads on the GPU.
    pub fn pads_table(&self) -> u64 {
        self.device_ptrs().pads.0
    }
}

impl RawContext {
    /// Orders an eager operation on `stream` after the context's last one if that was on another stream.
    ///
    /// # Errors
    /// The driver's.
    pub fn follow_last(&self, stream: &Stream) -> Result<()> {
        self.order(stream)
    }
}
