//! Whether NVSHMEM's transports can update signals here. Where they cannot, NVSHMEM ends the process at the first one, so that is
//! looked at before.

use std::ffi::c_void;

use libloading::os::unix::{Library, RTLD_LOCAL, RTLD_NOW, Symbol};

/// GDRCopy's library, by the name that NVSHMEM loads.
const GDRCOPY: &str = "libgdrapi.so.2";

fn set(name: &str) -> bool {
    std::env::var(name).is_ok_and(|v| !v.is_empty() && v != "0" && !v.eq_ignore_ascii_case("false"))
}

/// # Errors
/// What is missing, with the setting to change.
pub(crate) fn signals_work() -> Result<(), String> {
    // The GPU itself then speaks to the NIC.
    if set("NVSHMEM_IB_ENABLE_IBGDA") {
        return Ok(());
    }
    let needed = "peers that are not direct need GDRCopy for signals, unless NVSHMEM_IB_ENABLE_IBGDA=1";
    if set("NVSHMEM_DISABLE_GDRCOPY") {
        return Err(format!("{needed}; NVSHMEM_DISABLE_GDRCOPY is set"));
    }
    // SAFETY: the initialisers of GDRCopy's library touch nothing but its own data.
    let library = unsafe { Library::open(Some(GDRCOPY), RTLD_NOW | RTLD_LOCAL) };
    let library = library.map_err(|e| format!("{needed}; {GDRCOPY} cannot be loaded: {e}"))?;
    type Open = unsafe extern "C" fn() -> *mut c_void;
    type Close = unsafe extern "C" fn(*mut c_void) -> i32;
    let what = |e| format!("{needed}; {GDRCOPY} is not GDRCopy: {e}");
    // SAFETY: the types are those of gdrapi.h.
    let open: Symbol<Open> = unsafe { library.get(b"gdr_open\0") }.map_err(what)?;
    // SAFETY: as above.
    let close: Symbol<Close> = unsafe { library.get(b"gdr_close\0") }.map_err(what)?;
    // SAFETY: no preconditions.
    let opened = unsafe { open() };
    if opened.is_null() {
        return Err(format!("{needed}; its driver is not there (gdr_open found no /dev/gdrdrv)"));
    }
    // SAFETY: it was opened just now and is used by nobody.
    unsafe { close(opened) };
    Ok(())
}
