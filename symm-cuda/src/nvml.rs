//! NVML, loaded at run time, for what the CUDA driver does not say of GPUs that this process does not see: NVML knows every GPU of
//! the machine, or of the container, whatever `CUDA_VISIBLE_DEVICES` leaves to a PE.

use std::ffi::{CString, c_char, c_int, c_uint, c_void};

use libloading::Library;

/// The library's name where the driver is installed.
const NAME: &str = "libnvidia-ml.so.1";
const SUCCESS: c_int = 0;
/// `nvmlGpuP2PCapsIndex_t`.
const NVLINK: c_uint = 2;
const ATOMICS: c_uint = 3;
/// `nvmlGpuP2PStatus_t`: 0 is yes, 6 that it is not known, and the others are reasons why not.
const STATUS_OK: c_uint = 0;
const STATUS_UNKNOWN: c_uint = 6;

type Gpu = *mut c_void;
type Plain = unsafe extern "C" fn() -> c_int;
type ByUuid = unsafe extern "C" fn(*const c_char, *mut Gpu) -> c_int;
type P2p = unsafe extern "C" fn(Gpu, Gpu, c_uint, *mut c_uint) -> c_int;
type MemoryOf = unsafe extern "C" fn(Gpu, *mut Memory) -> c_int;

/// `nvmlMemory_t`, in bytes.
#[repr(C)]
#[derive(Debug, Default)]
struct Memory {
    total: u64,
    free: u64,
    used: u64,
}

/// NVML, initialised; it is shut down when this is dropped.
#[derive(Debug)]
pub(crate) struct Nvml {
    by_uuid: ByUuid,
    p2p: P2p,
    memory: MemoryOf,
    shutdown: Plain,
    /// Keeps the functions loaded.
    _library: Library,
}

impl Nvml {
    /// `None` without the library; a log line says why.
    pub(crate) fn here() -> Option<Self> {
        Nvml::open().inspect_err(|why| log::debug!("{}: {why}", symm_core::pe::here())).ok()
    }

    /// `Err` says why there is none.
    fn open() -> Result<Self, String> {
        // SAFETY: the driver's own library, whose constructors any process may run.
        let library = unsafe { Library::new(NAME) }.map_err(|e| format!("{NAME}: {e}"))?;
        // SAFETY: these are the names and types of NVML's interface, which has kept them since its version 2.
        let (init, by_uuid, p2p, memory, shutdown) = unsafe {
            (
                function::<Plain>(&library, "nvmlInit_v2")?,
                function::<ByUuid>(&library, "nvmlDeviceGetHandleByUUID")?,
                function::<P2p>(&library, "nvmlDeviceGetP2PStatus")?,
                function::<MemoryOf>(&library, "nvmlDeviceGetMemoryInfo")?,
                function::<Plain>(&library, "nvmlShutdown")?,
            )
        };
        // SAFETY: no preconditions; calls are counted, so other users of NVML in this process are not disturbed.
        match unsafe { init() } {
            SUCCESS => Ok(Nvml { by_uuid, p2p, memory, shutdown, _library: library }),
            code => Err(format!("nvmlInit_v2 failed with {code}")),
        }
    }

    /// Whether the GPUs are linked by NVLink; `None` if NVML does not know.
    pub(crate) fn nvlink(&self, a: &[u8; 16], b: &[u8; 16]) -> Option<bool> {
        self.ask(a, b, NVLINK)
    }

    /// Whether atomics of GPU `a` work on the memory of GPU `b`; `None` if NVML does not know.
    pub(crate) fn atomics(&self, a: &[u8; 16], b: &[u8; 16]) -> Option<bool> {
        self.ask(a, b, ATOMICS)
    }

    /// Bytes of the GPU's memory that nobody has taken.
    pub(crate) fn free_memory(&self, uuid: &[u8; 16]) -> Option<u64> {
        let (gpu, mut memory) = (self.gpu(uuid)?, Memory::default());
        // SAFETY: NVML's handle, and a place of the struct that this version of the call fills.
        let asked = unsafe { (self.memory)(gpu, &raw mut memory) };
        (asked == SUCCESS && memory.free <= memory.total).then_some(memory.free)
    }

    fn ask(&self, a: &[u8; 16], b: &[u8; 16], what: c_uint) -> Option<bool> {
        let (a, b) = (self.gpu(a)?, self.gpu(b)?);
        let mut status = STATUS_UNKNOWN;
        // SAFETY: both are NVML's handles, and `status` is a valid place.
        let asked = unsafe { (self.p2p)(a, b, what, &raw mut status) };
        (asked == SUCCESS && status != STATUS_UNKNOWN).then_some(status == STATUS_OK)
    }

    /// NVML's handle of a GPU, if it is one of this machine or container.
    fn gpu(&self, uuid: &[u8; 16]) -> Option<Gpu> {
        let text = CString::new(uuid_text(uuid)).ok()?;
        let mut gpu = std::ptr::null_mut();
        // SAFETY: the text is NUL-terminated and `gpu` a valid place.
        let found = unsafe { (self.by_uuid)(text.as_ptr(), &raw mut gpu) };
        (found == SUCCESS).then_some(gpu)
    }
}

impl Drop for Nvml {
    fn drop(&mut self) {
        // SAFETY: initialised by `open`, once.
        let code = unsafe { (self.shutdown)() };
        if code != SUCCESS {
            log::debug!("{}: nvmlShutdown failed with {code}", symm_core::pe::here());
        }
    }
}

/// # Safety
/// `T` is the type of the function with this name.
unsafe fn function<T: Copy>(library: &Library, name: &str) -> Result<T, String> {
    // SAFETY: the caller promises the type.
    unsafe { library.get::<T>(name) }.map(|f| *f).map_err(|e| format!("{NAME} has no {name}: {e}"))
}

/// As NVML and `nvidia-smi -L` write it.
pub(crate) fn uuid_text(uuid: &[u8; 16]) -> String {
    let hex = |bytes: &[u8]| bytes.iter().map(|b| format!("{b:02x}")).collect::<String>();
    let parts = [&uuid[..4], &uuid[4..6], &uuid[6..8], &uuid[8..10], &uuid[10..]].map(hex);
    format!("GPU-{}", parts.join("-"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn uuids_are_written_as_by_the_vendors_tools() {
        let bytes = std::array::from_fn(|i| i as u8);
        assert_eq!(uuid_text(&bytes), "GPU-00010203-0405-0607-0809-0a0b0c0d0e0f");
    }

    #[test]
    fn without_the_library_the_reason_is_said() {
        match Nvml::open() {
            // Nobody's UUID.
            Ok(nvml) => assert_eq!(nvml.atomics(&[0; 16], &[1; 16]), None),
            Err(why) => assert!(why.contains(NAME) || why.contains("nvmlInit_v2"), "{why}"),
        }
    }
}
