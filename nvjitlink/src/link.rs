//! Linking relocatable device code with libraries.

use std::ffi::{CString, c_char, c_int, c_void};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use crate::NvJitLink;
use crate::load::{Functions, Handle};

/// Something to link.
#[derive(Clone, Copy, Debug)]
pub enum Input<'a> {
    /// A relocatable cubin (`nvcc -rdc=true -cubin`) of the architecture that is linked for.
    Cubin {
        /// Its name in the linker's messages.
        name: &'a str,
        /// Its bytes.
        data: &'a [u8],
    },
    /// A relocatable fat image (`nvcc -rdc=true -fatbin`); the linker takes the part for the architecture.
    Fatbin {
        /// Its name in the linker's messages.
        name: &'a str,
        /// Its bytes.
        data: &'a [u8],
    },
    /// An archive of relocatable objects (`libnvshmem_device.a`); what is referred to is taken from it.
    Library(&'a Path),
}

/// Codes of `nvJitLinkInputType`.
const CUBIN: c_int = 1;
const FATBIN: c_int = 4;
const LIBRARY: c_int = 6;

/// Linking failed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{call}{}: code {code}{}", if input.is_empty() { String::new() } else { format!(" of {input}") },
    if log.is_empty() { String::new() } else { format!(": {log}") })]
pub struct LinkError {
    /// The function that failed.
    pub call: &'static str,
    /// The input it was given, empty where it takes none.
    pub input: String,
    /// What it returned (`nvJitLinkResult`).
    pub code: i32,
    /// What the linker says about it.
    pub log: String,
}

/// A linker run; ends with it.
struct Run<'a> {
    functions: &'a Functions,
    handle: Handle,
    /// What inputs were called. The linker keeps the pointers and reads the names when it has something to say of an input, in a
    /// later call (seen with 13.0: undefined references were `in` memory that was free by then).
    names: Vec<CString>,
}

impl Drop for Run<'_> {
    fn drop(&mut self) {
        // SAFETY: the handle was created and is destroyed here only. A failure would leak it, no more.
        unsafe { (self.functions.destroy)(&raw mut self.handle) };
    }
}

impl Run<'_> {
    fn check(&self, call: &'static str, input: &str, code: c_int) -> Result<(), LinkError> {
        match code {
            0 => Ok(()),
            code => Err(LinkError { call, input: input.to_owned(), code, log: self.log() }),
        }
    }

    /// The error log so far, empty if there is none.
    fn log(&self) -> String {
        let mut size = 0;
        // SAFETY: the handle is alive and `size` a valid place.
        if unsafe { (self.functions.error_log_size)(self.handle, &raw mut size) } != 0 || size == 0 {
            return String::new();
        }
        let mut text = vec![0_u8; size];
        // SAFETY: as many bytes as the linker asked for.
        if unsafe { (self.functions.error_log)(self.handle, text.as_mut_ptr().cast::<c_char>()) } != 0 {
            return String::new();
        }
        let end = text.iter().position(|byte| *byte == 0).unwrap_or(text.len());
        String::from_utf8_lossy(&text[..end]).trim().to_owned()
    }

    fn add(&mut self, input: &Input<'_>) -> Result<(), LinkError> {
        let (kind, name, data) = match input {
            Input::Cubin { name, data } => (CUBIN, name, data),
            Input::Fatbin { name, data } => (FATBIN, name, data),
            Input::Library(path) => {
                let shown = path.display().to_string();
                let file = c_string("nvJitLinkAddFile", &shown, path.as_os_str().as_bytes())?;
                // SAFETY: the handle is alive, and the name ends in a zero and lives as long.
                let code = unsafe { (self.functions.add_file)(self.handle, LIBRARY, file.as_ptr()) };
                self.names.push(file);
                return self.check("nvJitLinkAddFile", &shown, code);
            }
        };
        let label = c_string("nvJitLinkAddData", name, name.as_bytes())?;
        // SAFETY: the handle is alive, the data has this length, and the linker has copied it when it returns; the name lives as long
        // as the handle.
        let code = unsafe {
            (self.functions.add_data)(
                self.handle,
                kind,
                data.as_ptr().cast::<c_void>(),
                data.len(),
                label.as_ptr(),
            )
        };
        self.names.push(label);
        self.check("nvJitLinkAddData", name, code)
    }
}

/// # Errors
/// A zero inside, which a C function would take for the end; reported as its refusal of an invalid argument.
fn c_string(call: &'static str, input: &str, bytes: &[u8]) -> Result<CString, LinkError> {
    CString::new(bytes).map_err(|_| LinkError {
        call,
        input: input.to_owned(),
        code: 0,
        log: "a zero byte is in the name".to_owned(),
    })
}

/// The architectures that nvJitLink knows, with the first CUDA release that does.
///
/// It must be known beforehand: for any other name nvJitLink prints a line and ends the process with `exit` (seen with 13.0).
const ARCHITECTURES: [(&str, (u32, u32)); 12] = [
    ("75", (12, 0)),
    ("80", (12, 0)),
    ("86", (12, 0)),
    ("87", (12, 0)),
    ("88", (13, 0)),
    ("89", (12, 0)),
    ("90", (12, 0)),
    ("100", (12, 8)),
    ("103", (12, 9)),
    ("110", (13, 0)),
    ("120", (12, 8)),
    ("121", (12, 9)),
];

/// Whether a linker of this release knows `arch`, such as `sm_90` or `sm_90a`.
fn is_known(arch: &str, version: (u32, u32)) -> bool {
    let Some(name) = arch.strip_prefix("sm_") else { return false };
    // Code for one architecture only has an `a`, and needs 9.0 or more.
    let (number, specific) = name.strip_suffix('a').map_or((name, false), |number| (number, true));
    let known = ARCHITECTURES.iter().find(|(known, _)| *known == number);
    known.is_some_and(|(number, since)| version >= *since && !(specific && number.starts_with(['7', '8'])))
}

impl NvJitLink {
    /// Links `inputs` for `arch` (`sm_90`) and returns the image, which `cuModuleLoadData` takes.
    ///
    /// # Errors
    /// [`LinkError`] with the linker's own words: an architecture that it does not know, an input for another architecture,
    /// code of a newer compiler than this linker, an undefined symbol.
    pub fn link(&self, arch: &str, inputs: &[Input<'_>]) -> Result<Vec<u8>, LinkError> {
        let functions = &self.functions;
        let (major, minor) = self.version();
        if !is_known(arch, (major, minor)) {
            return Err(LinkError {
                call: "nvJitLinkCreate",
                input: arch.to_owned(),
                code: 0,
                log: format!("not called: the linker of CUDA {major}.{minor} may not know this architecture"),
            });
        }
        let option = c_string("nvJitLinkCreate", arch, format!("-arch={arch}").as_bytes())?;
        let mut options = [option.as_ptr()];
        let mut handle: Handle = std::ptr::null_mut();
        // SAFETY: one option that ends in a zero, and a valid place for the handle.
        let code = unsafe { (functions.create)(&raw mut handle, 1, options.as_mut_ptr()) };
        if code != 0 {
            // There is no handle yet that could tell more.
            return Err(LinkError {
                call: "nvJitLinkCreate",
                input: arch.to_owned(),
                code,
                log: String::new(),
            });
        }
        let mut run = Run { functions, handle, names: Vec::with_capacity(inputs.len()) };
        for input in inputs {
            run.add(input)?;
        }
        // SAFETY: the handle is alive and all inputs were taken.
        run.check("nvJitLinkComplete", "", unsafe { (functions.complete)(handle) })?;
        let mut size = 0;
        // SAFETY: linking is complete and `size` a valid place.
        let code = unsafe { (functions.cubin_size)(handle, &raw mut size) };
        run.check("nvJitLinkGetLinkedCubinSize", "", code)?;
        let mut image = vec![0_u8; size];
        // SAFETY: as many bytes as the linker asked for.
        let code = unsafe { (functions.cubin)(handle, image.as_mut_ptr().cast::<c_void>()) };
        run.check("nvJitLinkGetLinkedCubin", "", code)?;
        Ok(image)
    }
}

#[cfg(test)]
mod tests {
    use super::is_known;

    #[test]
    fn an_architecture_is_asked_for_only_of_a_linker_that_knows_it() {
        assert!(is_known("sm_90", (12, 0)) && is_known("sm_90a", (13, 0)) && is_known("sm_100a", (12, 8)));
        assert!(!is_known("sm_100", (12, 6)) && is_known("sm_100", (13, 5)));
        for arch in
            ["sm_1", "sm_", "90", "sm_80a", "sm_900", "sm_90b", "sm_090", "compute_90", "sm_90 -v", ""]
        {
            assert!(!is_known(arch, (13, 0)), "{arch:?}");
        }
    }
}
