//! CUDA's device linker (nvJitLink), loaded at run time.
//!
//! Kernels that call NVSHMEM's device functions are linked with the `libnvshmem_device.a` of the installation that runs
//! them, so that device code and host library are always of one release and nothing of NVIDIA's is shipped. Linking takes
//! tens of milliseconds and needs no GPU.
//!
//! # Device code belongs to one release of NVSHMEM
//! A relocatable image can be linked only with the device library of the minor release whose headers it was compiled with.
//! The headers' inline functions read `nvshmemi_device_state_d` and call internal functions; 3.5 and 3.6 changed the
//! functions, 3.7 the size of the state. Seen with an image of 3.4.5: the libraries of 3.5.21 and 3.6.5 lack what it
//! calls, those of 3.7.2 and 3.8.0 say `Size doesn't match for 'nvshmemi_device_state_d'`. So whoever ships such an image
//! compiles one for each minor release, or links it when building.
//!
//! ```no_run
//! # let relocatable: &[u8] = &[];
//! use symm_nvjitlink::{Input, NvJitLink};
//! let folder = std::path::Path::new("/usr/lib/x86_64-linux-gnu/nvshmem/13");
//! let linker = NvJitLink::load(Some(folder))?;
//! let library = &folder.join("libnvshmem_device.a");
//! let image = linker.link("sm_90", &[Input::Fatbin { name: "copy", data: relocatable }, Input::Library(library)])?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod link;
mod load;

pub use link::{Input, LinkError};
pub use load::{Attempt, LoadError, NvJitLink};
