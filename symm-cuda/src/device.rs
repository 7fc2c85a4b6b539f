//! The GPU of this PE and its primary context.

use std::cell::LazyCell;
use std::collections::HashMap;

use cudarc::driver::sys::{
    self, CUcontext, CUdevice, CUdevice_P2PAttribute, CUdevice_attribute, CUresult, CUuuid,
};
use symm_core::{Error, Result};

use crate::nvml::Nvml;
use crate::result::{BACKEND, check};

/// CUDA version of the calls and kernels that are used, as the driver numbers it. A call that an older driver lacks would
/// end the process.
pub(crate) const NEEDED_VERSION: i32 = 13000;

/// A GPU, opened.
#[derive(Debug)]
pub(crate) struct Device {
    /// Number among the visible GPUs.
    pub(crate) ordinal: i32,
    pub(crate) raw: CUdevice,
    /// The primary context; kept as a number so that the struct is `Send`.
    context: usize,
    /// Identifies the GPU across processes.
    pub(crate) uuid: [u8; 16],
    /// Multiprocessors that kernels of this PE may occupy.
    pub(crate) multiprocessors: u32,
    /// Whether its memory can be exported as a file descriptor.
    pub(crate) descriptors: bool,
}

/// While this lives, a context of the backend is current on the calling thread; then the caller's is again. A thread that had
/// none keeps the backend's, so that a program that never chose a context can load and launch kernels of its own.
#[derive(Debug)]
#[must_use]
pub(crate) struct Entered {
    /// What was current, if that was another one.
    before: Option<CUcontext>,
}

/// Makes a context current, which is a number as [`current`] gives it.
pub(crate) fn enter(context: usize) -> Result<Entered> {
    let before = current()?;
    if before == context {
        return Ok(Entered { before: None });
    }
    set_current(context as CUcontext)?;
    Ok(Entered { before: (before != 0).then_some(before as CUcontext) })
}

/// The context that is current on the calling thread, as a number; 0 for none.
pub(crate) fn current() -> Result<usize> {
    let mut context: CUcontext = std::ptr::null_mut();
    // SAFETY: `context` is a valid place.
    check("cuCtxGetCurrent", unsafe { sys::cuCtxGetCurrent(&raw mut context) })?;
    Ok(context as usize)
}

fn set_current(context: CUcontext) -> Result<()> {
    // SAFETY: either the primary context that `open` retained and nobody here releases, or one that was current before.
    check("cuCtxSetCurrent", unsafe { sys::cuCtxSetCurrent(context) })
}

impl Drop for Entered {
    fn drop(&mut self) {
        if let Some(before) = self.before
            && let Err(e) = set_current(before)
        {
            log::warn!("{}: the caller's context is not current any more: {e}", symm_core::pe::here());
        }
    }
}

/// Number of GPUs that this process sees; 0 without a driver.
///
/// # Errors
/// The driver's, if there is one and it does not start.
pub fn device_count() -> Result<usize> {
    // SAFETY: only looks for the library; cudarc keeps it loaded, and its constructors are the driver's own.
    if !unsafe { sys::is_culib_present() } {
        return Ok(0);
    }
    // SAFETY: no preconditions.
    match unsafe { sys::cuInit(0) } {
        // A driver without a GPU.
        CUresult::CUDA_ERROR_NO_DEVICE => return Ok(0),
        other => check("cuInit", other)?,
    }
    visible().map(|n| n as usize)
}

pub(crate) fn visible() -> Result<u32> {
    let mut count = 0;
    // SAFETY: `count` is a valid place.
    check("cuDeviceGetCount", unsafe { sys::cuDeviceGetCount(&raw mut count) })?;
    Ok(u32::try_from(count).unwrap_or(0))
}

/// Starts the driver; says how many GPUs it shows, one at least.
///
/// # Errors
/// `Unavailable` without a driver that serves, or without a GPU.
pub(crate) fn start_driver() -> Result<u32> {
    // SAFETY: only looks for the library; cudarc keeps it loaded, and its constructors are the driver's own.
    if !unsafe { sys::is_culib_present() } {
        return Err(unavailable("libcuda was not found: no NVIDIA driver".to_owned()));
    }
    let none = || unavailable("no GPU is visible (nvidia-smi, CUDA_VISIBLE_DEVICES)".to_owned());
    // SAFETY: no preconditions.
    match unsafe { sys::cuInit(0) } {
        CUresult::CUDA_ERROR_NO_DEVICE => return Err(none()),
        other => check("cuInit", other).map_err(|e| unavailable(e.to_string()))?,
    }
    let mut version = 0;
    // SAFETY: `version` is a valid place.
    check("cuDriverGetVersion", unsafe { sys::cuDriverGetVersion(&raw mut version) })?;
    if version < NEEDED_VERSION {
        let (major, minor) = (version / 1000, version % 1000 / 10);
        return Err(unavailable(format!(
            "the NVIDIA driver supports CUDA {major}.{minor}, needed is 13.0: install driver 580 or newer"
        )));
    }
    match visible()? {
        0 => Err(none()),
        n => Ok(n),
    }
}

pub(crate) fn unavailable(why: String) -> Error {
    Error::Unavailable { backend: BACKEND.to_owned(), why }
}

/// A GPU that has what the backend needs, before there is a context on it.
#[derive(Debug)]
pub(crate) struct Chosen {
    ordinal: i32,
    raw: CUdevice,
    descriptors: bool,
}

impl Chosen {
    /// That with this number, of those that [`start_driver`] counted.
    ///
    /// # Errors
    /// `Unavailable` without what the backend needs of the GPU.
    pub(crate) fn of(ordinal: i32) -> Result<Self> {
        let raw = device(ordinal)?;
        let has = |attribute| attribute_of(raw, attribute).map(|v| v != 0);
        if !has(CUdevice_attribute::CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED)? {
            return Err(unavailable(format!("GPU {ordinal} has no virtual memory management")));
        }
        let descriptors =
            has(CUdevice_attribute::CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED)?;
        if !descriptors && !has(CUdevice_attribute::CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_FABRIC_SUPPORTED)? {
            return Err(unavailable(format!(
                "GPU {ordinal} has no memory handles that another process can import"
            )));
        }
        let major = attribute_of(raw, CUdevice_attribute::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR)?;
        if major < 8 {
            return Err(unavailable(format!(
                "GPU {ordinal} has compute capability {major}.x, needed is 8.0 or newer"
            )));
        }
        Ok(Chosen { ordinal, raw, descriptors })
    }

    /// Retains the primary context.
    pub(crate) fn open(self) -> Result<Device> {
        let sms = attribute_of(self.raw, CUdevice_attribute::CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT)?;
        let mut context: CUcontext = std::ptr::null_mut();
        // SAFETY: `context` is a valid place and `raw` a device of this driver.
        check("cuDevicePrimaryCtxRetain", unsafe {
            sys::cuDevicePrimaryCtxRetain(&raw mut context, self.raw)
        })?;
        let device = Device {
            ordinal: self.ordinal,
            raw: self.raw,
            context: context as usize,
            uuid: uuid_of(self.raw)?,
            multiprocessors: u32::try_from(sms).unwrap_or(1),
            descriptors: self.descriptors,
        };
        Ok(device)
    }
}

impl Device {
    /// Opens the GPU with this number, of those that [`start_driver`] counted.
    ///
    /// # Errors
    /// `Unavailable` without kernels, or what the backend needs of the GPU.
    pub(crate) fn open(ordinal: i32) -> Result<Self> {
        let chosen = Chosen::of(ordinal)?;
        if !symm_kernels::built() {
            return Err(unavailable("this build has no GPU kernels: it was built without nvcc".to_owned()));
        }
        chosen.open()
    }

    /// Leaves `n - 1` other PEs of this GPU their share of it: a kernel that occupied all of it while it waits for one of
    /// them would wait until its deadline.
    pub(crate) fn shared_by(mut self, n: usize) -> Self {
        let n = u32::try_from(n.max(1)).unwrap_or(u32::MAX);
        self.multiprocessors = (self.multiprocessors / n).max(1);
        self
    }

    /// Makes the context current on the calling thread, for as long as the result lives if another one was; every entry point of the
    /// backend does.
    pub(crate) fn enter(&self) -> Result<Entered> {
        enter(self.context)
    }

    /// Makes the context current on the calling thread for good.
    pub(crate) fn stay(&self) -> Result<()> {
        set_current(self.context as CUcontext)
    }

    pub(crate) fn attribute(&self, attribute: CUdevice_attribute) -> Result<i32> {
        attribute_of(self.raw, attribute)
    }

    /// Whether a context is the one that this PE uses.
    pub(crate) fn has_context(&self, context: CUcontext) -> bool {
        context as usize == self.context
    }

    /// For each GPU, by UUID: whether this GPU's atomics work on its memory. The driver says so of GPUs that this process sees, NVML of
    /// the machine's others.
    pub(crate) fn atomics_with(&self, uuids: &[[u8; 16]]) -> Result<Vec<Atomics>> {
        let ordinals = 0..i32::try_from(visible()?).unwrap_or(i32::MAX);
        let seen = ordinals.map(|n| device(n).and_then(|d| Ok((uuid_of(d)?, d))));
        let seen = seen.collect::<Result<HashMap<_, _>>>()?;
        let nvml = LazyCell::new(Nvml::here);
        let ask = |uuid: &[u8; 16]| match seen.get(uuid) {
            _ if *uuid == self.uuid => Ok(Atomics::Work),
            Some(peer) => p2p(self.raw, *peer, NATIVE_ATOMICS).map(|yes| Atomics::of(Some(yes != 0))),
            None => Ok(Atomics::of(nvml.as_ref().and_then(|nvml| nvml.atomics(&self.uuid, uuid)))),
        };
        uuids.iter().map(ask).collect()
    }
}

const NATIVE_ATOMICS: CUdevice_P2PAttribute =
    CUdevice_P2PAttribute::CU_DEVICE_P2P_ATTRIBUTE_NATIVE_ATOMIC_SUPPORTED;

/// What a driver says of a pair of GPUs that both are visible.
pub(crate) fn p2p(a: CUdevice, b: CUdevice, what: CUdevice_P2PAttribute) -> Result<i32> {
    let mut value = 0;
    // SAFETY: `value` is a valid place; both are devices of this driver.
    check("cuDeviceGetP2PAttribute", unsafe { sys::cuDeviceGetP2PAttribute(&raw mut value, what, a, b) })?;
    Ok(value)
}

/// Whether a GPU's atomics work on another's memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Atomics {
    Work,
    /// Not over this link.
    Lacking,
    /// Neither the driver nor NVML knows the other GPU.
    Unknown,
}

impl Atomics {
    fn of(said: Option<bool>) -> Self {
        match said {
            Some(true) => Atomics::Work,
            Some(false) => Atomics::Lacking,
            None => Atomics::Unknown,
        }
    }
}

pub(crate) fn device(ordinal: i32) -> Result<CUdevice> {
    let mut raw = 0;
    // SAFETY: `raw` is a valid place.
    check("cuDeviceGet", unsafe { sys::cuDeviceGet(&raw mut raw, ordinal) })?;
    Ok(raw)
}

pub(crate) fn attribute_of(device: CUdevice, attribute: CUdevice_attribute) -> Result<i32> {
    let mut value = 0;
    // SAFETY: `value` is a valid place and `device` a device of this driver.
    check("cuDeviceGetAttribute", unsafe { sys::cuDeviceGetAttribute(&raw mut value, attribute, device) })?;
    Ok(value)
}

pub(crate) fn uuid_of(device: CUdevice) -> Result<[u8; 16]> {
    let mut uuid = CUuuid { bytes: [0; 16] };
    // SAFETY: `uuid` is a valid place and `device` a device of this driver.
    check("cuDeviceGetUuid_v2", unsafe { sys::cuDeviceGetUuid_v2(&raw mut uuid, device) })?;
    Ok(uuid.bytes.map(|b| u8::from_ne_bytes(b.to_ne_bytes())))
}
