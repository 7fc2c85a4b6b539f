//! Linking the relocatable kernels with the NVSHMEM that is loaded, and finding them.

use std::borrow::Cow;
use std::path::Path;
use std::time::Instant;

use nvshmem_sys::Version;
use symm_cuda::Cuda;
use symm_cuda::embed::Function;
use symm_kernels::network::{NET_ENTRIES, NetEntry, THREADS, linked, relocatable};
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

/// The kernels linked here and now with the device library beside the host library, so that both are of one release.
fn link_now(library: Library, sm: u32) -> Result<Vec<u8>, String> {
    let minor = library.version().minor;
    let images = relocatable(minor).ok_or("this build has no GPU kernels: it was built without nvcc")?;
    let archive = library.device_library().ok_or(
        "peers that are not direct need libnvshmem_device.a beside libnvshmem_host.so.3; packages without development \
         files lack it, the wheel has it",
    )?;
    let linker = NvJitLink::load(archive.parent()).map_err(|e| e.to_string())?;
    // What does not fit is most often an archive that another release has left beside the host library.
    link(linker, sm, &images, &archive).map_err(|why| {
        format!("{} must be of the host library's release, {}: {why}", archive.display(), library.version())
    })
}

/// The kernels that were linked when this was built (feature `link-nvshmem`), if that was with the release of the host library; `why`
/// they are needed.
fn linked_before(version: Version, sm: u32, why: String) -> Result<&'static [u8], String> {
    match linked(sm) {
        Some((with, image)) if with == (version.major, version.minor) => Ok(image),
        Some(((major, minor), _)) => Err(format!(
            "{why}; the kernels that were linked when this was built are for NVSHMEM {major}.{minor}, this is {version}"
        )),
        None => Err(format!("{why}; a build with the feature link-nvshmem works without")),
    }
}

/// Links the relocatable kernels with the NVSHMEM that is loaded, or takes what was linked before, and finds them.
pub(super) fn load(cuda: &Cuda, library: Library) -> Result<[Function; NET_ENTRIES.len()], String> {
    let say = |e: symm_core::Error| e.to_string();
    let began = Instant::now();
    let sm = cuda.sm().map_err(say)?;
    let image = match link_now(library, sm) {
        Ok(image) => Cow::Owned(image),
        Err(why) => Cow::Borrowed(linked_before(library.version(), sm, why)?),
    };
    let linked = began.elapsed();
    let module = cuda.load(&image).map_err(say)?;
    // SAFETY: the module was loaded just now, into the context that is current, and the device library is linked into it.
    unsafe { library.adopt_module(module.cu_module().cast()) }?;
    log::debug!(
        "{}: kernels linked {} in {linked:?}: {} bytes, loaded in {:?}",
        symm_core::pe::here(),
        if matches!(image, Cow::Owned(_)) { "now" } else { "at build time" },
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

    /// In a build with the feature `link-nvshmem`; without it, that there is none.
    #[test]
    fn what_was_linked_at_build_time_serves_its_release_only() {
        let why = || "no linker".to_owned();
        let sm = if cfg!(feature = "link-nvshmem") {
            let archs = std::env::var("SYMM_CUDA_ARCHS").unwrap_or_else(|_| "90".to_owned());
            archs.split(',').next().and_then(|a| a.trim().parse().ok()).expect("SYMM_CUDA_ARCHS")
        } else {
            90
        };
        let Some(((major, minor), image)) = linked(sm) else {
            assert!(!cfg!(feature = "link-nvshmem") || !symm_kernels::built(), "sm_{sm} was not linked");
            let said = linked_before(Version { major: 3, minor: 4, patch: 5 }, sm, why())
                .expect_err("there is none");
            assert!(said.contains("no linker") && said.contains("link-nvshmem"), "{said}");
            return;
        };
        let release = Version { major, minor, patch: 9 };
        assert_eq!(linked_before(release, sm, why()), Ok(image));
        let said =
            linked_before(Version { minor: minor + 1, ..release }, sm, why()).expect_err("another release");
        assert!(
            said.contains(&format!("are for NVSHMEM {major}.{minor}, this is {major}.{}.9", minor + 1)),
            "{said}"
        );
        let state = [c"nvshmemi_device_state_d", c"nvshmemi_device_lib_version_d"];
        for name in NET_ENTRIES.map(NetEntry::symbol).into_iter().chain(state) {
            assert!(image.windows(name.to_bytes().len()).any(|w| w == name.to_bytes()), "{name:?}");
        }
    }

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
