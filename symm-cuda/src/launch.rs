//! The kernels of `symm-kernels`, loaded once and launched with their parameters.

use std::collections::HashMap;
use std::ffi::OsString;
use std::path::Path;

use cudarc::driver::sys::{
    self, CUdevice_attribute, CUfunction, CUlaunchAttribute, CUlaunchAttributeID, CUlaunchAttributeValue,
    CUlaunchConfig, CUmodule,
};
use symm_core::{Error, Result};
use symm_kernels::geometry::Launch;
use symm_kernels::{ENTRIES, Entry, image};

use crate::device::Device;
use crate::result::{BACKEND, check};
use crate::stream::Stream;

/// Every kernel, ready to be launched. The modules stay loaded until the process ends.
#[derive(Debug)]
pub(crate) struct Kernels {
    /// `CUfunction`s as numbers, in the order of [`ENTRIES`].
    functions: [usize; ENTRIES.len()],
    /// Whether the GPU can start a kernel before the one ahead of it in the stream has ended.
    early_starts: bool,
}

/// A type that a kernel takes as its only parameter, by value.
pub(crate) trait Params: Copy {}

impl Params for symm_kernels::params::CopyParams {}
impl Params for symm_kernels::params::PadSignalParams {}
impl Params for symm_kernels::params::WaitParams {}
impl Params for symm_kernels::params::BarrierParams {}
impl Params for symm_kernels::params::ExchangeParams {}
impl Params for symm_kernels::params::ReduceParams {}
impl Params for symm_kernels::params::TakeParams {}
impl Params for symm_kernels::params::PushedParams {}
impl Params for symm_kernels::params::PlanParams {}

impl Kernels {
    /// Loads all images into the device's context.
    pub(crate) fn load(device: &Device) -> Result<Self> {
        let _entered = device.enter()?;
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
        Ok(Kernels { functions, early_starts: compute_capability()? >= 90 })
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
        let early = entry.waits_for_stream() && launch.starts_early(stream.0.shared.device.multiprocessors);
        let function = self.functions[entry as usize] as CUfunction;
        // SAFETY: the caller promises the same, and the function is loaded.
        unsafe { self.launch_early(function, launch, stream, params, early) }
    }

    /// Enqueues a kernel that is loaded.
    ///
    /// # Safety
    /// As [`launch`](Self::launch), for a kernel whose only parameter is a `P`.
    pub(crate) unsafe fn launch_raw<P: Copy>(
        &self,
        function: CUfunction,
        launch: Launch,
        stream: &Stream,
        params: &P,
    ) -> Result<()> {
        // SAFETY: the caller promises the same.
        unsafe {
            self.launch_early(function, launch, stream, params, launch.blocks == 1 && launch.threads <= 32)
        }
    }

    /// Enqueues a kernel, `early` if it begins with `wait_for_stream` and is small.
    ///
    /// # Safety
    /// As [`launch_raw`](Self::launch_raw).
    unsafe fn launch_early<P: Copy>(
        &self,
        function: CUfunction,
        launch: Launch,
        stream: &Stream,
        params: &P,
        early: bool,
    ) -> Result<()> {
        let _entered = stream.enter()?;
        let mut arguments = [std::ptr::from_ref(params).cast_mut().cast()];
        let mut attribute = CUlaunchAttribute {
            id: CUlaunchAttributeID::CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION,
            pad: [0; 4],
            value: CUlaunchAttributeValue { programmaticStreamSerializationAllowed: 1 },
        };
        let config = CUlaunchConfig {
            gridDimX: launch.blocks,
            gridDimY: 1,
            gridDimZ: 1,
            blockDimX: launch.threads,
            blockDimY: 1,
            blockDimZ: 1,
            sharedMemBytes: 0,
            hStream: stream.cu_stream(),
            attrs: &raw mut attribute,
            numAttrs: u32::from(self.early_starts && early),
        };
        // SAFETY: the function is loaded; the driver copies the parameters, of the size that the kernel has, before it
        // returns and writes nothing to them; the caller promises the addresses.
        let done = unsafe {
            sys::cuLaunchKernelEx(&raw const config, function, arguments.as_mut_ptr(), std::ptr::null_mut())
        };
        check("cuLaunchKernelEx", done)
    }
}

/// Of the current context's GPU, as in `sm_90`.
pub(crate) fn compute_capability() -> Result<u32> {
    let mut device = 0;
    // SAFETY: `device` is a valid place.
    check("cuCtxGetDevice", unsafe { sys::cuCtxGetDevice(&raw mut device) })?;
    let attribute = |which| {
        let mut value = 0;
        // SAFETY: `value` is a valid place and the device that of the current context.
        let asked = unsafe { sys::cuDeviceGetAttribute(&raw mut value, which, device) };
        check("cuDeviceGetAttribute", asked).map(|()| u32::try_from(value).unwrap_or(0))
    };
    let major = attribute(CUdevice_attribute::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR)?;
    let minor = attribute(CUdevice_attribute::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR)?;
    Ok(10 * major + minor)
}

/// The setting that names a folder with images in place of those that are built in: `exchange.fatbin` and so on; what is not there
/// is taken from the build.
const FOLDER: &str = "SYMM_KERNELS";

fn load_module(name: &'static str) -> Result<CUmodule> {
    if let Some(mut bytes) = image_in(std::env::var_os(FOLDER), name)? {
        log::warn!("{}: kernels {name} are those in {FOLDER}", symm_core::pe::here());
        // Text, which the driver takes too, must end somewhere.
        bytes.push(0);
        return load_data(&bytes);
    }
    let bytes = image(name).ok_or_else(|| Error::Unavailable {
        backend: BACKEND.to_owned(),
        why: format!("this build has no image {name}: it was built without nvcc"),
    })?;
    load_data(bytes)
}

/// The image of a module in a folder; `None` without a folder, or if it has none.
fn image_in(folder: Option<OsString>, name: &str) -> Result<Option<Vec<u8>>> {
    let Some(folder) = folder.filter(|f| !f.is_empty()) else { return Ok(None) };
    let wrong = || Error::Setting {
        name: FOLDER,
        got: folder.to_string_lossy().into_owned(),
        expected: "a folder that can be read".to_owned(),
    };
    if !Path::new(&folder).is_dir() {
        return Err(wrong());
    }
    match std::fs::read(Path::new(&folder).join(name).with_extension("fatbin")) {
        Ok(bytes) => Ok(Some(bytes)),
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => Ok(None),
        Err(_) => Err(wrong()),
    }
}

/// Loads an image into the current context.
pub(crate) fn load_data(bytes: &[u8]) -> Result<CUmodule> {
    let mut module: CUmodule = std::ptr::null_mut();
    // SAFETY: `module` is a valid place; the image is a whole fat binary, which states its own length.
    check("cuModuleLoadData", unsafe { sys::cuModuleLoadData(&raw mut module, bytes.as_ptr().cast()) })?;
    Ok(module)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_of_images_stands_in_for_those_it_has() {
        let folder = std::env::temp_dir().join(format!("symm-images-{}", std::process::id()));
        std::fs::create_dir(&folder).expect("a new folder");
        std::fs::write(folder.join("copy.fatbin"), b"image").expect("a new file");
        let set = || Some(folder.clone().into_os_string());
        assert_eq!(image_in(None, "copy"), Ok(None));
        assert_eq!(image_in(Some("".into()), "copy"), Ok(None));
        assert_eq!(image_in(set(), "copy"), Ok(Some(b"image".to_vec())));
        assert_eq!(image_in(set(), "signal"), Ok(None));
        std::fs::remove_dir_all(&folder).expect("our own folder");
        match image_in(set(), "copy") {
            Err(Error::Setting { name: FOLDER, got, .. }) => assert_eq!(got, folder.to_string_lossy()),
            other => panic!("{other:?}"),
        }
    }
}
