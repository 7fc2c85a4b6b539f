//! Whether NVSHMEM's transport can update signals here. Where it cannot, NVSHMEM ends the process at the first one, so that is
//! looked at before.
//!
//! | transport | updates a signal |
//! |---|---|
//! | `ibrc`, `ibdevx` | by the NIC's own atomics; `ibrc` with `NVSHMEM_DISABLE_IB_NATIVE_ATOMICS` by GDRCopy |
//! | `libfabric` | by the provider's atomics; with `efa` by GDRCopy |
//! | `ucx` | by GDRCopy |
//! | IBGDA | from the GPU; with `NVSHMEM_IBGDA_NIC_HANDLER=cpu` by GDRCopy |
//!
//! Seen with 3.4.5 (`ucx`), for the others as the transports' sources have it.

use std::ffi::{CStr, c_int, c_void};

use libloading::os::unix::{Library, RTLD_LOCAL, RTLD_NOW, Symbol};

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

/// What makes GDRCopy needed, by NVSHMEM's settings; `None` if it is not.
pub(crate) fn needed(setting: impl Fn(&str) -> Option<String>) -> Option<String> {
    let value = |name: &str| setting(name).filter(|v| !v.is_empty()).map(|v| v.to_ascii_lowercase());
    let set = |name| value(name).is_some_and(|v| v != "0" && v != "false" && v != "no" && v != "off");
    let is = |name, what| value(name).is_some_and(|v| v == what);
    if set("NVSHMEM_IB_ENABLE_IBGDA") {
        return is("NVSHMEM_IBGDA_NIC_HANDLER", "cpu").then(|| "NVSHMEM_IBGDA_NIC_HANDLER=cpu".to_owned());
    }
    match value("NVSHMEM_REMOTE_TRANSPORT").as_deref() {
        Some("ucx") => Some("NVSHMEM_REMOTE_TRANSPORT=ucx".to_owned()),
        Some("libfabric") => {
            is("NVSHMEM_LIBFABRIC_PROVIDER", "efa").then(|| "NVSHMEM_LIBFABRIC_PROVIDER=efa".to_owned())
        }
        None | Some("ibrc") => set("NVSHMEM_DISABLE_IB_NATIVE_ATOMICS")
            .then(|| "NVSHMEM_DISABLE_IB_NATIVE_ATOMICS, with the transport ibrc".to_owned()),
        Some(_) => None,
    }
}

/// Sees that GDRCopy is there if the transport of this process's settings needs it.
///
/// # Errors
/// What is missing, with the setting to change.
pub(crate) fn signals_work() -> Result<(), String> {
    let setting = |name: &str| std::env::var(name).ok();
    let Some(reason) = needed(setting) else { return Ok(()) };
    let needed = format!("signals to peers that are not direct need GDRCopy because of {reason}");
    let off = setting("NVSHMEM_DISABLE_GDRCOPY").is_some_and(|v| !v.is_empty() && v != "0" && v != "false");
    if off {
        return Err(format!("{needed}; NVSHMEM_DISABLE_GDRCOPY is set"));
    }
    works().map_err(|why| {
        format!("{needed}; {why}. NVSHMEM_REMOTE_TRANSPORT=ibrc, and NVSHMEM_IB_ENABLE_IBGDA=1, work without")
    })
}

/// Opens GDRCopy as NVSHMEM does.
fn works() -> Result<(), String> {
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
mod tests {
    use super::*;

    fn reason(settings: &[(&str, &str)]) -> Option<String> {
        needed(|name| settings.iter().find(|(n, _)| *n == name).map(|(_, v)| (*v).to_owned()))
    }

    #[test]
    fn the_settings_say_whether_gdrcopy_is_needed() {
        for without in [
            &[][..],
            &[("NVSHMEM_REMOTE_TRANSPORT", "")],
            &[("NVSHMEM_REMOTE_TRANSPORT", "ibrc"), ("NVSHMEM_DISABLE_IB_NATIVE_ATOMICS", "0")],
            &[("NVSHMEM_REMOTE_TRANSPORT", "ibdevx")],
            &[("NVSHMEM_REMOTE_TRANSPORT", "libfabric"), ("NVSHMEM_LIBFABRIC_PROVIDER", "cxi")],
            &[("NVSHMEM_REMOTE_TRANSPORT", "none")],
            &[("NVSHMEM_REMOTE_TRANSPORT", "ucx"), ("NVSHMEM_IB_ENABLE_IBGDA", "1")],
        ] {
            assert_eq!(reason(without), None, "{without:?}");
        }
        for (with, named) in [
            (&[("NVSHMEM_REMOTE_TRANSPORT", "UCX")][..], "ucx"),
            (&[("NVSHMEM_REMOTE_TRANSPORT", "ucx"), ("NVSHMEM_IB_ENABLE_IBGDA", "false")], "ucx"),
            (&[("NVSHMEM_DISABLE_IB_NATIVE_ATOMICS", "true")], "NATIVE_ATOMICS"),
            (&[("NVSHMEM_REMOTE_TRANSPORT", "libfabric"), ("NVSHMEM_LIBFABRIC_PROVIDER", "efa")], "efa"),
            (&[("NVSHMEM_IB_ENABLE_IBGDA", "1"), ("NVSHMEM_IBGDA_NIC_HANDLER", "CPU")], "NIC_HANDLER=cpu"),
        ] {
            assert!(reason(with).is_some_and(|why| why.contains(named)), "{with:?}: {:?}", reason(with));
        }
    }
}
