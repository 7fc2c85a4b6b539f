//! The kernels of `symm-kernels`, loaded once and launched with their parameters.

use std::collections::HashMap;

use cudarc::driver::sys::{self, CUfunction, CUmodule};
use symm_core::{Error, Result};
use symm_kernels::geometry::Launch;
use symm_kernels::{ENTRIES, Entry, image};

use crate::result::{BACKEND, check};
use crate::stream::Stream;

/// Every kernel, ready to be launched. The modules stay loaded until the process ends.
#[derive(Debug)]
pub(crate) struct Kernels {
    /// `CUfunction`s as numbers, in the order of [`ENTRIES`].
    functions: [usize; ENTRIES.len()],
}

/// A type that a kernel takes as its only parameter, by value.
pub(crate) trait Params: Copy {}

impl Params for symm_kernels::params::CopyParams {}
impl Params for symm_kernels::params::PadSignalParams {}
impl Params for symm_kernels::params::WaitParams {}
impl Params for symm_kernels::params::BarrierParams {}
impl Params for symm_kernels::params::ExchangeParams {}

impl Kernels {
    /// Loads all images into the current context.
    pub(crate) fn load() -> Result<Self> {
        let mut modules: HashMap<&'static str, CUmodule> = HashMap::new();
        let mut functions = [0; ENTRIES.len()];
        for entry in ENTRIES {
            let module = match modules.get(entry.module()) {
                Some(m) => *m,
                None => {
                    let m = load_module(entry.module())?;
                    modules.insert(entry.module(), m);
                    m
                }
            };
            let mut function: CUfunction = std::ptr::null_mut();
            // SAFETY: `function` is a valid place, the module is loaded, the name is NUL-terminated.
            let found =
                unsafe { sys::cuModuleGetFunction(&raw mut function, module, entry.symbol().as_ptr()) };
            check("cuModuleGetFunction", found)?;
            functions[entry as usize] = function as usize;
        }
        Ok(Kernels { functions })
    }

    /// Enqueues a kernel.
    ///
    /// # Safety
    /// `P` is the type that `entry` documents, and every address in `params` is valid until the stream has passed it.
    pub(crate) unsafe fn launch<P: Params>(
        &self,
        entry: Entry,
        launch: Launch,
        stream: &Stream,
        params: &P,
    ) -> Result<()> {
        stream.0.shared.device.enter()?;
        let mut arguments = [std::ptr::from_ref(params).cast_mut().cast()];
        let function = self.functions[entry as usize] as CUfunction;
        let (blocks, threads) = (launch.blocks, launch.threads);
        // SAFETY: the function is loaded; the driver copies the parameters, of the size that the kernel has, before it
        // returns and writes nothing to them; the caller promises the addresses.
        let done = unsafe {
            sys::cuLaunchKernel(
                function,
                blocks,
                1,
                1,
                threads,
                1,
                1,
                0,
                stream.cu_stream(),
                arguments.as_mut_ptr(),
                std::ptr::null_mut(),
            )
        };
        check("cuLaunchKernel", done)
    }
}

fn load_module(name: &'static str) -> Result<CUmodule> {
    let bytes = image(name).ok_or_else(|| Error::Unavailable {
        backend: BACKEND.to_owned(),
        why: format!("this build has no image {name}: it was built without nvcc"),
    })?;
    let mut module: CUmodule = std::ptr::null_mut();
    // SAFETY: `module` is a valid place; the image is a whole fat binary, which states its own length.
    check("cuModuleLoadData", unsafe { sys::cuModuleLoadData(&raw mut module, bytes.as_ptr().cast()) })?;
    Ok(module)
}
