//! The GPU of this PE and its primary context.

use cudarc::driver::sys::{self, CUcontext, CUdevice, CUdevice_attribute, CUresult, CUuuid};
use symm_core::{Error, Pe, Result};

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

impl Device {
    /// Opens the GPU of `pe`: number `pe` modulo the visible GPUs.
    ///
    /// # Errors
    /// `Unavailable` without a driver, a GPU, kernels, or what the backend needs of the GPU.
    pub(crate) fn open(pe: Pe) -> Result<Self> {
        let unavailable = |why: String| Error::Unavailable { backend: BACKEND.to_owned(), why };
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
        let visible = visible()?;
        if visible == 0 {
            return Err(none());
        }
        let ordinal = i32::try_from(pe.0 % visible).expect("a device number should fit i32");
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
        if !symm_kernels::built() {
            return Err(unavailable("this build has no GPU kernels: it was built without nvcc".to_owned()));
        }
        let sms = attribute_of(raw, CUdevice_attribute::CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT)?;
        let mut context: CUcontext = std::ptr::null_mut();
        // SAFETY: `context` is a valid place and `raw` a device of this driver.
        check("cuDevicePrimaryCtxRetain", unsafe { sys::cuDevicePrimaryCtxRetain(&raw mut context, raw) })?;
        let device = Device {
            ordinal,
            raw,
            context: context as usize,
            uuid: uuid_of(raw)?,
            multiprocessors: u32::try_from(sms).unwrap_or(1),
            descriptors,
        };
        device.enter()?;
        Ok(device)
    }

    /// Leaves `n - 1` other PEs of this GPU their share of it: a kernel that occupied all of it while it waits for one of
    /// them would wait until its deadline.
    pub(crate) fn shared_by(mut self, n: usize) -> Self {
        let n = u32::try_from(n.max(1)).unwrap_or(u32::MAX);
        self.multiprocessors = (self.multiprocessors / n).max(1);
        self
    }

    /// Makes the context current on the calling thread; every entry point of the backend does.
    pub(crate) fn enter(&self) -> Result<()> {
        // SAFETY: the context was retained by `open` and is never released by this struct.
        check("cuCtxSetCurrent", unsafe { sys::cuCtxSetCurrent(self.context as CUcontext) })
    }

    pub(crate) fn attribute(&self, attribute: CUdevice_attribute) -> Result<i32> {
        attribute_of(self.raw, attribute)
    }

    /// Whether a context is the one that this PE uses.
    pub(crate) fn has_context(&self, context: CUcontext) -> bool {
        context as usize == self.context
    }

    /// Whether this GPU's atomics work on the memory of the GPU with this UUID. A GPU that this process cannot see
    /// cannot be asked about; that counts as no.
    pub(crate) fn atomics_with(&self, uuid: &[u8; 16]) -> Result<bool> {
        if *uuid == self.uuid {
            return Ok(true);
        }
        for ordinal in 0..visible()? {
            let peer = device(i32::try_from(ordinal).expect("a device number should fit i32"))?;
            if uuid_of(peer)? != *uuid {
                continue;
            }
            let mut value = 0;
            let what = sys::CUdevice_P2PAttribute::CU_DEVICE_P2P_ATTRIBUTE_NATIVE_ATOMIC_SUPPORTED;
            // SAFETY: `value` is a valid place; both are devices of this driver.
            let asked = unsafe { sys::cuDeviceGetP2PAttribute(&raw mut value, what, self.raw, peer) };
            check("cuDeviceGetP2PAttribute", asked)?;
            return Ok(value != 0);
        }
        Ok(false)
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
