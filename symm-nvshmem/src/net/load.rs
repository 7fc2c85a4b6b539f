//! Linking the relocatable kernels with the NVSHMEM that is loaded, and finding them.

use std::path::Path;
use std::time::Instant;

use symm_cuda::Cuda;
use symm_cuda::embed::Function;
use symm_kernels::network::{NET_ENTRIES, NetEntry, THREADS, relocatable};
use symm_nvjitlink::{Input, NvJitLink};

use crate::library::Library;

/// Links `images` with the device library `archive` for `sm_<sm>`.
fn link(
    linker: &NvJitLink,
    sm: u32,
    images: &[(&'static str, &'static [u8])],
    archive: &Path,
) -> Result<Vec<u8>, String> {
    let mut inputs: Vec<_> = images.iter().map(|(name, data)| Input::Fatbin { name, data }).collect();
    inputs.push(Input::Library(archive));
    linker.link(&format!("sm_{sm}"), &inputs).map_err(|e| {
        let (major, minor) = linker.version();
        format!("{e} (nvJitLink {major}.{minor}, {})", linker.file().display())
    })
}

/// Links the relocatable kernels with the NVSHMEM that is loaded and finds them.
pub(super) fn load(cuda: &Cuda, library: Library) -> Result<[Function; NET_ENTRIES.len()], String> {
    let say = |e: symm_core::Error| e.to_string();
    let minor = library.version().minor;
    let images = relocatable(minor).ok_or("this build has no GPU kernels: it was built without nvcc")?;
    let archive = library.device_library().ok_or(
        "peers that are not direct need libnvshmem_device.a beside libnvshmem_host.so.3; packages without development \
         files lack it, the wheel has it",
    )?;
    let began = Instant::now();
    let linker = NvJitLink::load(archive.parent()).map_err(|e| e.to_string())?;
    let image = link(linker, cuda.sm().map_err(say)?, &images, &archive)?;
    let linked = began.elapsed();
    let module = cuda.load(&image).map_err(say)?;
    // SAFETY: the module was loaded just now, into the context that is current, and the device library is linked into it.
    unsafe { library.adopt_module(module.cu_module().cast()) }?;
    log::debug!(
        "{}: kernels linked with {} in {linked:?}: {} bytes, loaded in {:?}",
        symm_core::pe::here(),
        archive.display(),
        image.len(),
        began.elapsed() - linked
    );
    let mut found = Vec::with_capacity(NET_ENTRIES.len());
    for entry in NET_ENTRIES {
        let function = module.function(entry.symbol()).map_err(say)?;
        let threads = match entry {
            NetEntry::Put | NetEntry::Get | NetEntry::Exchange | NetEntry::Reduce | NetEntry::Take => THREADS,
            NetEntry::PadSignal | NetEntry::WaitUntil | NetEntry::Barrier => 32,
        };
        if function.max_threads < threads {
            return Err(format!(
                "the linked kernel {entry:?} takes {} threads a block, needed are {threads}",
                function.max_threads
            ));
        }
        found.push(function);
    }
    found.try_into().map_err(|_| "not every kernel was found".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Needs no GPU. Where NVSHMEM or nvJitLink is missing there is nothing to link with: skipped, unless SYMM_REQUIRE has
    /// `nvshmem-link`.
    #[test]
    fn the_kernels_link_with_the_release_that_is_installed() {
        let found = crate::library::Library::load().and_then(|library| {
            let archive = library.device_library().ok_or("no libnvshmem_device.a")?;
            let linker = NvJitLink::load(archive.parent()).map_err(|e| e.to_string())?;
            Ok((library, linker, archive))
        });
        let required = std::env::var("SYMM_REQUIRE").is_ok_and(|r| r.split(',').any(|r| r == "nvshmem-link"));
        let (library, linker, archive) = match found {
            Ok(found) => found,
            Err(why) => {
                assert!(!required, "{why}");
                return;
            }
        };
        let minor = library.version().minor;
        let Some(images) = relocatable(minor) else {
            assert!(!required, "built without nvcc");
            return;
        };
        let archs = std::env::var("SYMM_CUDA_ARCHS").unwrap_or_else(|_| "80,90,100".to_owned());
        for sm in archs.split(',').filter_map(|a| a.trim().parse().ok()) {
            let image = link(linker, sm, &images, &archive).unwrap_or_else(|e| panic!("sm_{sm}: {e}"));
            let state = [c"nvshmemi_device_state_d", c"nvshmemi_device_lib_version_d"];
            for name in NET_ENTRIES.map(NetEntry::symbol).into_iter().chain(state) {
                let bytes = name.to_bytes();
                assert!(image.windows(bytes.len()).any(|w| w == bytes), "sm_{sm}: {name:?}");
            }
            // Without the device library nothing calls NVSHMEM's transports, and the linker says which name it misses.
            let wrong = link(linker, sm, &images[..1], &archive).expect_err("the shim is missing");
            assert!(wrong.contains("symm_shim_"), "{wrong}");
        }
    }
}
