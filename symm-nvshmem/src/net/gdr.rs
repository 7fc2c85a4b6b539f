//! Whether NVSHMEM's transport can update signals here. Where it cannot, NVSHMEM ends the process at the first one, so that is
//! looked at before.
//!
//! | transport | updates a signal |
//! |---|---|
//! | `ibrc`, `ibdevx` | by the NIC's own atomics; `ibrc` with `NVSHMEM_DISABLE_IB_NATIVE_ATOMICS` by a mapping |
//! | `libfabric` | by the provider's atomics; with `efa` by a mapping |
//! | `ucx` | by a mapping |
//! | IBGDA | from the GPU; with `NVSHMEM_IBGDA_NIC_HANDLER=cpu` by a mapping of its own queues |
//! | `gpunetio` (3.7 and newer) | by the NIC's own atomics; GDRCopy is for DOCA's queues, which lie elsewhere without it. Not tried: nothing is looked at |
//!
//! A *mapping* is the CPU's, of GPU memory:
//!
//! | release | made by |
//! |---|---|
//! | all | nobody, with `NVSHMEM_DISABLE_GDRCOPY` |
//! | 3.4 to 3.7 | GDRCopy |
//! | 3.8 and newer | GDRCopy, unless `NVSHMEM_GDRCOPY_USE_INTERNAL_DMABUF` is set; where there is none, NVSHMEM itself, over DMA-BUF: with a driver of CUDA 13.3 or newer, on a GPU whose memory the driver exports as DMA-BUF and a CPU can map |
//!
//! Seen with 3.4.5 (`ucx`), for the others as the transports' sources have it; for 3.8 as the code of its `ucx`, `ibrc`, `libfabric` and
//! `ibgda` has it. Its own mapping has not run here: no such driver.

use std::ffi::{CStr, c_int, c_void};

use libloading::os::unix::{Library, RTLD_LOCAL, RTLD_NOW, Symbol};
use nvshmem_sys::Version;
use symm_cuda::Cuda;
use symm_cuda::embed::DmaBuf;

/// GDRCopy's library, by the name that NVSHMEM loads.
const GDRCOPY: &str = "libgdrapi.so.2";
/// The major release that NVSHMEM takes.
const MAJOR: c_int = 2;
/// What it looks up, beside what is called here.
const FUNCTIONS: [&CStr; 6] = [
    c"gdr_pin_buffer",
    c"gdr_unpin_buffer",
    c"gdr_map",
    c"gdr_unmap",
    c"gdr_copy_from_mapping",
    c"gdr_copy_to_mapping",
];

/// Makes NVSHMEM 3.8 leave GDRCopy alone.
const INTERNAL: &str = "NVSHMEM_GDRCOPY_USE_INTERNAL_DMABUF";
/// Puts the heap in host memory.
const HEAP_KIND: &str = "NVSHMEM_HEAP_KIND";
/// Driver of CUDA 13.3, as it numbers itself; NVSHMEM asks nothing of an older one.
const MAPPING_DRIVER: i32 = 13030;

/// Why the CPU must map GPU memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Needed {
    /// The settings that make it so.
    reason: &'static str,
    /// What works without.
    without: &'static str,
    /// It is the heap that is mapped.
    heap: bool,
}

const CPU_HANDLER: Needed = Needed {
    reason: "NVSHMEM_IBGDA_NIC_HANDLER=cpu",
    without: "IBGDA with NVSHMEM_IBGDA_NIC_HANDLER unset works without",
    heap: false,
};
const UCX: Needed = Needed {
    reason: "NVSHMEM_REMOTE_TRANSPORT=ucx",
    without: "NVSHMEM_REMOTE_TRANSPORT=ibrc, and NVSHMEM_IB_ENABLE_IBGDA=1, work without",
    heap: true,
};
const EFA: Needed = Needed { reason: "NVSHMEM_LIBFABRIC_PROVIDER=efa", ..UCX };
const NO_ATOMICS: Needed = Needed {
    reason: "NVSHMEM_DISABLE_IB_NATIVE_ATOMICS, with the transport ibrc",
    without: "ibrc with that unset, and NVSHMEM_IB_ENABLE_IBGDA=1, work without",
    heap: true,
};

/// Whether a switch of NVSHMEM's is on, as it reads it: by the first character.
fn is_on(value: Option<String>) -> bool {
    value.is_some_and(|v| !v.starts_with(['0', 'n', 'N', 'f', 'F']))
}

/// What makes a mapping needed, by NVSHMEM's settings; `None` if it is not.
fn needed(setting: impl Fn(&str) -> Option<String>) -> Option<Needed> {
    let value = |name: &str| setting(name).filter(|v| !v.is_empty()).map(|v| v.to_ascii_lowercase());
    let is = |name, what| value(name).is_some_and(|v| v == what);
    if is_on(setting("NVSHMEM_IB_ENABLE_IBGDA")) {
        return is("NVSHMEM_IBGDA_NIC_HANDLER", "cpu").then_some(CPU_HANDLER);
    }
    match value("NVSHMEM_REMOTE_TRANSPORT").as_deref() {
        Some("ucx") => Some(UCX),
        Some("libfabric") => is("NVSHMEM_LIBFABRIC_PROVIDER", "efa").then_some(EFA),
        None | Some("ibrc") => is_on(setting("NVSHMEM_DISABLE_IB_NATIVE_ATOMICS")).then_some(NO_ATOMICS),
        Some(_) => None,
    }
}

/// Sees that something maps GPU memory if the transport of this process's settings needs it.
///
/// # Errors
/// What is missing, with the setting to change.
pub(crate) fn signals_work(cuda: &Cuda, release: Version) -> Result<(), String> {
    decide(release, |name| std::env::var(name).ok(), gdrcopy, || cuda.dma_buf())
}

/// As [`signals_work`], over what is found here; `gdrcopy` and `driver` are asked only where the answer counts.
fn decide(
    release: Version,
    setting: impl Fn(&str) -> Option<String>,
    gdrcopy: impl FnOnce() -> Result<(), String>,
    driver: impl FnOnce() -> DmaBuf,
) -> Result<(), String> {
    let Some(Needed { reason, without, heap }) = needed(&setting) else { return Ok(()) };
    let maps_itself = (release.major, release.minor) >= (3, 8);
    let what = if maps_itself { "GDRCopy or NVSHMEM's own mapping of GPU memory" } else { "GDRCopy" };
    let needs = format!("signals to peers that are not direct need {what} because of {reason}");
    if is_on(setting("NVSHMEM_DISABLE_GDRCOPY")) {
        let both = if maps_itself { ", which switches off both" } else { "" };
        return Err(format!("{needs}; NVSHMEM_DISABLE_GDRCOPY is set{both}"));
    }
    let unasked = maps_itself && is_on(setting(INTERNAL));
    let no_gdrcopy =
        if unasked { Err(format!("{INTERNAL} is set: GDRCopy does not count")) } else { gdrcopy() };
    let Err(no_gdrcopy) = no_gdrcopy else { return Ok(()) };
    if !maps_itself {
        return Err(format!("{needs}; {no_gdrcopy}. {without}"));
    }
    let in_host_memory = heap && setting(HEAP_KIND).is_some_and(|kind| kind.eq_ignore_ascii_case("SYSMEM"));
    let lacks = lacks(driver(), in_host_memory);
    if lacks.is_empty() {
        return Ok(());
    }
    let with_unset = |unset: bool, name| if unset { format!(", with {name} unset") } else { String::new() };
    let (loaded, on_gpu) = (with_unset(unasked, INTERNAL), with_unset(in_host_memory, HEAP_KIND));
    Err(format!(
        "{needs}; {no_gdrcopy}; NVSHMEM {release}'s own mapping over DMA-BUF lacks {}. Each of these is a way out: GDRCopy {MAJOR}.x with its \
         driver{loaded}; a driver of CUDA 13.3 (R610) or newer, and a GPU whose memory it exports as DMA-BUF that a CPU can map{on_gpu}; \
         other settings: {without}",
        lacks.join(", and ")
    ))
}

/// What NVSHMEM's own mapping does not find here.
fn lacks(found: DmaBuf, heap_in_host_memory: bool) -> Vec<String> {
    let mut lacks = Vec::new();
    if heap_in_host_memory {
        // Nothing says that the driver exports host memory, and a heap that is not mapped ends the process.
        lacks.push(format!("a heap in GPU memory ({HEAP_KIND}=SYSMEM is set)"));
    }
    if found.version < MAPPING_DRIVER {
        let (major, minor) = (found.version / 1000, found.version % 1000 / 10);
        lacks.push(format!("a driver of CUDA 13.3 or newer (this one is of {major}.{minor})"));
        // An older driver does not know what else is asked.
        return lacks;
    }
    let asked = [
        (found.call, "the driver's cuMemGetHandleForAddressRange"),
        (found.exports, "export of this GPU's memory as DMA-BUF (device attribute 124)"),
        (found.maps, "mapping of such a DMA-BUF by a CPU (device attribute 152)"),
    ];
    lacks.extend(asked.iter().filter(|(has, _)| !has).map(|(_, what)| (*what).to_owned()));
    lacks
}

/// Opens GDRCopy as NVSHMEM does.
fn gdrcopy() -> Result<(), String> {
    // SAFETY: the initialisers of GDRCopy's library touch nothing but its own data.
    let library = unsafe { Library::open(Some(GDRCOPY), RTLD_NOW | RTLD_LOCAL) };
    let library = library.map_err(|e| format!("{GDRCOPY} cannot be loaded: {e}"))?;
    let what = |e| format!("{GDRCOPY} is not GDRCopy: {e}");
    for name in FUNCTIONS {
        // SAFETY: only looked for, not called.
        unsafe { library.get::<*mut c_void>(name.to_bytes_with_nul()) }.map_err(what)?;
    }
    type Release = unsafe extern "C" fn(*mut c_int, *mut c_int);
    type Open = unsafe extern "C" fn() -> *mut c_void;
    type Close = unsafe extern "C" fn(*mut c_void) -> c_int;
    // SAFETY: the types are those of gdrapi.h.
    let release: Symbol<Release> = unsafe { library.get(b"gdr_runtime_get_version\0") }.map_err(what)?;
    // SAFETY: as above.
    let open: Symbol<Open> = unsafe { library.get(b"gdr_open\0") }.map_err(what)?;
    // SAFETY: as above.
    let close: Symbol<Close> = unsafe { library.get(b"gdr_close\0") }.map_err(what)?;
    let (mut major, mut minor) = (0, 0);
    // SAFETY: two places for integers.
    unsafe { release(&raw mut major, &raw mut minor) };
    if major != MAJOR {
        return Err(format!("{GDRCOPY} is release {major}.{minor}, NVSHMEM takes {MAJOR}.x"));
    }
    // SAFETY: no preconditions.
    let opened = unsafe { open() };
    if opened.is_null() {
        return Err("its driver is not there (gdr_open found no /dev/gdrdrv)".to_owned());
    }
    // SAFETY: it was opened just now and is used by nobody.
    unsafe { close(opened) };
    Ok(())
}

#[cfg(test)]
mod tests;
