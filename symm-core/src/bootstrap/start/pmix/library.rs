//! The part of libpmix that is used, loaded at run time. Types and values are those of the PMIx standard, equal in versions
//! 2 to 5 of the library.

use std::ffi::{CStr, c_char, c_int, c_void};

use libloading::os::unix::{Library, RTLD_GLOBAL, RTLD_NOW};

use crate::error::{Error, Result};

/// Name that all versions of the library have had.
const NAME: &str = "libpmix.so.2";

pub(super) const SUCCESS: Status = 0;
pub(super) const SCOPE_GLOBAL: u8 = 3;
pub(super) const RANK_WILDCARD: u32 = u32::MAX - 1;

const TYPE_BOOL: u16 = 1;
const TYPE_INT: u16 = 6;
const TYPE_UINT32: u16 = 14;
const TYPE_BYTES: u16 = 27;

pub(super) type Status = c_int;

/// `pmix_proc_t`.
#[repr(C)]
#[derive(Clone, Copy)]
pub(super) struct Proc {
    pub(super) nspace: [c_char; 256],
    pub(super) rank: u32,
}

/// `pmix_value_t`: its union is as large as its largest member, `pmix_envar_t`.
#[repr(C)]
pub(super) struct Value {
    kind: u16,
    data: Data,
}

#[repr(C)]
#[derive(Clone, Copy)]
union Data {
    flag: bool,
    integer: c_int,
    uint32: u32,
    bytes: Bytes,
    largest: [u64; 3],
}

#[repr(C)]
#[derive(Clone, Copy)]
struct Bytes {
    bytes: *mut c_void,
    size: usize,
}

/// `pmix_info_t`.
#[repr(C)]
pub(super) struct Info {
    key: [c_char; 512],
    flags: u32,
    value: Value,
}

const _: () = {
    assert!(size_of::<Proc>() == 260 && size_of::<Value>() == 32 && size_of::<Info>() == 552);
    assert!(std::mem::offset_of!(Value, data) == 8 && std::mem::offset_of!(Info, value) == 520);
};

impl Value {
    /// Bytes that the library copies when it is given them.
    pub(super) fn bytes(bytes: &[u8]) -> Value {
        let bytes = Bytes { bytes: bytes.as_ptr().cast_mut().cast(), size: bytes.len() };
        Value { kind: TYPE_BYTES, data: Data { bytes } }
    }
}

impl Info {
    fn new(key: &CStr, value: Value) -> Info {
        let mut info = Info { key: [0; 512], flags: 0, value };
        info.key.iter_mut().zip(key.to_bytes()).for_each(|(to, from)| *to = from.cast_signed());
        info
    }

    /// `PMIX_TIMEOUT`, in whole seconds.
    pub(super) fn timeout(seconds: c_int) -> Info {
        let mut data = Data { largest: [0; 3] };
        data.integer = seconds;
        Info::new(c"pmix.timeout", Value { kind: TYPE_INT, data })
    }

    /// `PMIX_COLLECT_DATA`.
    pub(super) fn collect(flag: bool) -> Info {
        let mut data = Data { largest: [0; 3] };
        data.flag = flag;
        Info::new(c"pmix.collect", Value { kind: TYPE_BOOL, data })
    }
}

/// A value that the library allocated, and that is freed with this.
pub(super) struct Got(*mut Value);

impl Got {
    /// # Safety
    /// `value` is what `PMIx_Get` gave, and nobody else frees it.
    pub(super) unsafe fn new(value: *mut Value) -> Got {
        Got(value)
    }

    fn value(&self) -> Option<&Value> {
        // SAFETY: by the promise of `new` it is null or a live value.
        unsafe { self.0.as_ref() }
    }

    pub(super) fn as_u32(&self) -> Option<u32> {
        let value = self.value().filter(|v| v.kind == TYPE_UINT32)?;
        // SAFETY: the kind says that this member was written.
        Some(unsafe { value.data.uint32 })
    }

    pub(super) fn as_bytes(&self) -> Option<Vec<u8>> {
        let value = self.value().filter(|v| v.kind == TYPE_BYTES)?;
        // SAFETY: the kind says that this member was written; its pointer is null or to as many bytes as it says.
        unsafe {
            let Bytes { bytes, size } = value.data.bytes;
            if bytes.is_null() || size == 0 {
                return Some(Vec::new());
            }
            Some(std::slice::from_raw_parts(bytes.cast::<u8>(), size).to_vec())
        }
    }
}

impl Drop for Got {
    fn drop(&mut self) {
        let inner = self.value().filter(|v| v.kind == TYPE_BYTES);
        // SAFETY: the library takes both from malloc (PMIX_VALUE_RELEASE frees them so), and nobody else frees them.
        unsafe {
            if let Some(value) = inner {
                libc::free(value.data.bytes.bytes);
            }
            libc::free(self.0.cast());
        }
    }
}

pub(super) type Answered = unsafe extern "C" fn(Status, *mut Value, *mut c_void);
pub(super) type Done = unsafe extern "C" fn(Status, *mut c_void);

/// The calls.
pub(super) struct Calls {
    pub(super) init: unsafe extern "C" fn(*mut Proc, *mut Info, usize) -> Status,
    pub(super) finalize: unsafe extern "C" fn(*const Info, usize) -> Status,
    pub(super) put: unsafe extern "C" fn(u8, *const c_char, *mut Value) -> Status,
    pub(super) commit: unsafe extern "C" fn() -> Status,
    pub(super) fence_nb:
        unsafe extern "C" fn(*const Proc, usize, *const Info, usize, Option<Done>, *mut c_void) -> Status,
    pub(super) get:
        unsafe extern "C" fn(*const Proc, *const c_char, *const Info, usize, *mut *mut Value) -> Status,
    pub(super) get_nb: unsafe extern "C" fn(
        *const Proc,
        *const c_char,
        *const Info,
        usize,
        Option<Answered>,
        *mut c_void,
    ) -> Status,
    error_string: unsafe extern "C" fn(Status) -> *const c_char,
}

impl Calls {
    /// Loads the library; it stays loaded, because threads of its own outlive `PMIx_Finalize`.
    pub(super) fn load() -> Result<Calls> {
        let failed = |e: libloading::Error| Error::Bootstrap {
            call: "dlopen",
            why: format!(
                "{NAME} cannot be used, and this process was started over PMIx: {e}; install it (Debian: libpmix2) or set \
                 SYMM_PE, SYMM_N_PES and SYMM_ADDR"
            ),
        };
        // Its plugins look for its symbols among the global ones.
        // SAFETY: the initialisers of a PMIx library have no requirements of their own.
        let library = unsafe { Library::open(Some(NAME), RTLD_NOW | RTLD_GLOBAL) }.map_err(failed)?;
        // SAFETY: the types are those of the standard's declarations.
        let calls = unsafe {
            Calls {
                init: *library.get(b"PMIx_Init\0").map_err(failed)?,
                finalize: *library.get(b"PMIx_Finalize\0").map_err(failed)?,
                put: *library.get(b"PMIx_Put\0").map_err(failed)?,
                commit: *library.get(b"PMIx_Commit\0").map_err(failed)?,
                fence_nb: *library.get(b"PMIx_Fence_nb\0").map_err(failed)?,
                get: *library.get(b"PMIx_Get\0").map_err(failed)?,
                get_nb: *library.get(b"PMIx_Get_nb\0").map_err(failed)?,
                error_string: *library.get(b"PMIx_Error_string\0").map_err(failed)?,
            }
        };
        std::mem::forget(library);
        Ok(calls)
    }

    /// The error of a call, unless it succeeded.
    pub(super) fn check(&self, call: &'static str, status: Status) -> Result<()> {
        if status == SUCCESS {
            return Ok(());
        }
        // SAFETY: the library returns a constant string for every status.
        let text = unsafe { (self.error_string)(status).as_ref().map(|s| CStr::from_ptr(s)) };
        let text = text.map_or_else(String::new, |t| t.to_string_lossy().into_owned());
        Err(Error::Backend { backend: "pmix", call, code: i64::from(status), text })
    }
}
