//! What this machine's driver and GPUs offer, for people who ask why the backend does or does not run here.

use std::ffi::CStr;
use std::path::{Path, PathBuf};

use cudarc::driver::sys::{self, CUdevice, CUdevice_P2PAttribute, CUdevice_attribute, CUresult};

use crate::device::{NEEDED_VERSION, attribute_of, device, p2p, uuid_of, visible};
use crate::imex;
use crate::nvml::{Nvml, uuid_text};
use crate::result::check;

/// What [`inspect`] found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Inspection {
    /// CUDA version that the driver library supports, as (major, minor); `None` without a driver that answers.
    pub driver: Option<(u32, u32)>,
    /// CUDA version that the backend needs.
    pub needed: (u32, u32),
    /// Version of the kernel module, such as `580.159.04`, as `/sys/module/nvidia/version` has it.
    pub kernel_module: Option<String>,
    /// Whether this build carries GPU kernels.
    pub kernels: bool,
    /// Why GPUs could not be asked, or the backend cannot start here; `None` if nothing speaks against it.
    pub unavailable: Option<String>,
    /// The GPUs that this process sees, in their order.
    pub gpus: Vec<Gpu>,
    /// Every ordered pair of different GPUs, by `from`, then `to`.
    pub links: Vec<Link>,
    /// IMEX channels that exist here: without one no memory handle of another host can be imported.
    pub imex_channels: Vec<PathBuf>,
}

/// A GPU, by what its driver says of it. A property is `None` where the driver does not know the question.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Gpu {
    /// Number among the visible GPUs.
    pub ordinal: u32,
    /// Product name.
    pub name: String,
    /// As `nvidia-smi -L` writes it: `GPU-xxxxxxxx-xxxx-xxxx-xxxx-xxxxxxxxxxxx`.
    pub uuid: String,
    /// PCI address, `domain:bus:device.0`.
    pub pci: String,
    /// Major and minor number.
    pub compute_capability: (u32, u32),
    /// Multiprocessors.
    pub multiprocessors: u32,
    /// Bytes of memory, used or not.
    pub memory: u64,
    /// Bytes of it that nobody has taken, by NVML; `None` where that cannot be asked.
    pub free: Option<u64>,
    /// Virtual memory management: without it there are no symmetric segments.
    pub virtual_memory: Option<bool>,
    /// Memory handles as file descriptors, for PEs of one host.
    pub handles_posix_fd: Option<bool>,
    /// Fabric memory handles, for PEs of one NVLink domain. Whether they work is known only once
    /// [`try_handles`](crate::try_handles) did.
    pub handles_fabric: Option<bool>,
    /// Multicast objects. An attribute only: none is ever made to find out.
    pub multicast: Option<bool>,
    /// Whether several processes may use it at the same time (compute mode `Default`).
    pub several_processes: Option<bool>,
    /// Whether this process would be a client of NVIDIA MPS on it: kernels of several PEs then really run together.
    pub mps: Option<bool>,
}

/// What one GPU can do with the memory of another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Link {
    /// Ordinal of the GPU whose kernels load and store.
    pub from: u32,
    /// Ordinal of the GPU whose memory it is.
    pub to: u32,
    /// Whether loads and stores work.
    pub access: bool,
    /// Whether atomics do; over PCIe they do not.
    pub atomics: bool,
    /// Whether NVLink joins them, by NVML; `None` where that cannot be asked.
    pub nvlink: Option<bool>,
    /// The driver's relative rank of the link, 0 being the fastest kind on this machine.
    pub performance_rank: u32,
}

/// Looks at driver, GPUs and links. Makes no context, no memory and no multicast object, and takes part in nothing: any
/// process may call it at any time, before or without `init`.
pub fn inspect() -> Inspection {
    let mut found = Inspection {
        needed: version(NEEDED_VERSION),
        kernel_module: read_line(Path::new("/sys/module/nvidia/version")),
        kernels: symm_kernels::built(),
        imex_channels: imex::channels(Path::new(imex::FOLDER)),
        ..Inspection::default()
    };
    found.unavailable = ask(&mut found).err().or_else(|| found.obstacle());
    found
}

fn version(number: i32) -> (u32, u32) {
    let number = number.unsigned_abs();
    (number / 1000, number % 1000 / 10)
}

fn read_line(path: &Path) -> Option<String> {
    Some(std::fs::read_to_string(path).ok()?.lines().next()?.trim().to_owned())
}

/// Fills in what the driver knows; an error says why the rest is missing.
fn ask(found: &mut Inspection) -> Result<(), String> {
    // SAFETY: only looks for the library; cudarc keeps it loaded, and its constructors are the driver's own.
    if !unsafe { sys::is_culib_present() } {
        return Err("libcuda was not found: no NVIDIA driver".to_owned());
    }
    let text = |e: symm_core::Error| e.to_string();
    let mut number = 0;
    // SAFETY: `number` is a valid place; the call needs no initialisation.
    check("cuDriverGetVersion", unsafe { sys::cuDriverGetVersion(&raw mut number) }).map_err(text)?;
    found.driver = Some(version(number));
    // SAFETY: no preconditions.
    match unsafe { sys::cuInit(0) } {
        CUresult::CUDA_ERROR_NO_DEVICE => return Ok(()),
        other => check("cuInit", other).map_err(text)?,
    }
    let nvml = Nvml::here();
    let seen = (0..visible().map_err(text)?).map(|ordinal| Seen::number(ordinal, nvml.as_ref()));
    let seen = seen.collect::<Result<Vec<_>, _>>().map_err(text)?;
    for one in &seen {
        found.gpus.push(one.gpu().map_err(text)?);
        for other in seen.iter().filter(|other| other.ordinal != one.ordinal) {
            found.links.push(one.link_to(other).map_err(text)?);
        }
    }
    Ok(())
}

impl Inspection {
    /// The first thing that keeps the backend from starting on these GPUs.
    fn obstacle(&self) -> Option<String> {
        let driver = self.driver?;
        if driver < self.needed {
            return Some(format!(
                "the NVIDIA driver supports CUDA {}.{}, needed is {}.{}: install driver 580 or newer",
                driver.0, driver.1, self.needed.0, self.needed.1
            ));
        }
        if self.gpus.is_empty() {
            return Some("no GPU is visible".to_owned());
        }
        if !self.kernels {
            return Some("this build has no GPU kernels: it was built without nvcc".to_owned());
        }
        let lacks = |gpu: &Gpu| {
            let what = if gpu.compute_capability.0 < 8 {
                "compute capability 8.0 or newer"
            } else if gpu.virtual_memory == Some(false) {
                "virtual memory management"
            } else if gpu.handles_posix_fd == Some(false) && gpu.handles_fabric != Some(true) {
                "memory handles that another process can import"
            } else {
                return None;
            };
            Some(format!("GPU {} has no {what}", gpu.ordinal))
        };
        self.gpus.iter().find_map(lacks)
    }
}

/// A GPU that the driver shows.
struct Seen<'a> {
    ordinal: u32,
    raw: CUdevice,
    uuid: [u8; 16],
    nvml: Option<&'a Nvml>,
}

impl<'a> Seen<'a> {
    fn number(ordinal: u32, nvml: Option<&'a Nvml>) -> symm_core::Result<Self> {
        let raw = device(i32::try_from(ordinal).expect("a device number should fit i32"))?;
        Ok(Seen { ordinal, raw, uuid: uuid_of(raw)?, nvml })
    }

    fn gpu(&self) -> symm_core::Result<Gpu> {
        use CUdevice_attribute as A;
        let number = |a| attribute_of(self.raw, a).ok();
        let flag = |a| number(a).map(|v| v != 0);
        let count = |a| number(a).and_then(|v| u32::try_from(v).ok()).unwrap_or(0);
        let mut name = [0; 256];
        let room = i32::try_from(name.len()).expect("a short array's length should fit i32");
        // SAFETY: the driver writes at most `room` bytes, NUL included.
        check("cuDeviceGetName", unsafe { sys::cuDeviceGetName(name.as_mut_ptr(), room, self.raw) })?;
        // SAFETY: the driver wrote a NUL-terminated string into the array.
        let name = unsafe { CStr::from_ptr(name.as_ptr()) }.to_string_lossy().into_owned();
        let mut memory = 0;
        // SAFETY: `memory` is a valid place and `raw` a device of this driver.
        check("cuDeviceTotalMem_v2", unsafe { sys::cuDeviceTotalMem_v2(&raw mut memory, self.raw) })?;
        Ok(Gpu {
            ordinal: self.ordinal,
            name,
            uuid: uuid_text(&self.uuid),
            pci: format!(
                "{:04x}:{:02x}:{:02x}.0",
                count(A::CU_DEVICE_ATTRIBUTE_PCI_DOMAIN_ID),
                count(A::CU_DEVICE_ATTRIBUTE_PCI_BUS_ID),
                count(A::CU_DEVICE_ATTRIBUTE_PCI_DEVICE_ID)
            ),
            compute_capability: (
                count(A::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR),
                count(A::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR),
            ),
            multiprocessors: count(A::CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT),
            memory: memory as u64,
            free: self.nvml.and_then(|nvml| nvml.free_memory(&self.uuid)),
            virtual_memory: flag(A::CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED),
            handles_posix_fd: flag(A::CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED),
            handles_fabric: flag(A::CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_FABRIC_SUPPORTED),
            multicast: flag(A::CU_DEVICE_ATTRIBUTE_MULTICAST_SUPPORTED),
            several_processes: number(A::CU_DEVICE_ATTRIBUTE_COMPUTE_MODE).map(|mode| mode == 0),
            mps: flag(A::CU_DEVICE_ATTRIBUTE_MPS_ENABLED),
        })
    }

    fn link_to(&self, other: &Seen<'_>) -> symm_core::Result<Link> {
        use CUdevice_P2PAttribute as P;
        let ask = |what| p2p(self.raw, other.raw, what);
        Ok(Link {
            from: self.ordinal,
            to: other.ordinal,
            access: ask(P::CU_DEVICE_P2P_ATTRIBUTE_ACCESS_SUPPORTED)? != 0,
            atomics: ask(P::CU_DEVICE_P2P_ATTRIBUTE_NATIVE_ATOMIC_SUPPORTED)? != 0,
            nvlink: self.nvml.and_then(|nvml| nvml.nvlink(&self.uuid, &other.uuid)),
            performance_rank: u32::try_from(ask(P::CU_DEVICE_P2P_ATTRIBUTE_PERFORMANCE_RANK)?)
                .unwrap_or(u32::MAX),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fit() -> Inspection {
        let gpu = Gpu {
            ordinal: 0,
            name: "a GPU".to_owned(),
            uuid: uuid_text(&[0; 16]),
            pci: "0000:01:00.0".to_owned(),
            compute_capability: (9, 0),
            multiprocessors: 132,
            memory: 1 << 37,
            free: Some(1 << 36),
            virtual_memory: Some(true),
            handles_posix_fd: Some(true),
            handles_fabric: Some(false),
            multicast: Some(true),
            several_processes: Some(true),
            mps: Some(false),
        };
        Inspection {
            driver: Some((13, 0)),
            needed: (13, 0),
            kernels: true,
            gpus: vec![gpu],
            ..Inspection::default()
        }
    }

    #[test]
    fn obstacles_are_named() {
        assert_eq!(fit().obstacle(), None);
        let obstacle = |change: fn(&mut Inspection)| {
            let mut found = fit();
            change(&mut found);
            found.obstacle().unwrap_or_default()
        };
        assert!(obstacle(|f| f.driver = Some((12, 8))).contains("supports CUDA 12.8, needed is 13.0"));
        assert!(obstacle(|f| f.gpus.clear()).contains("no GPU"));
        assert!(obstacle(|f| f.kernels = false).contains("without nvcc"));
        assert!(
            obstacle(|f| f.gpus[0].compute_capability = (7, 5)).contains("GPU 0 has no compute capability")
        );
        assert!(obstacle(|f| f.gpus[0].virtual_memory = Some(false)).contains("virtual memory"));
        assert!(obstacle(|f| f.gpus[0].handles_posix_fd = Some(false)).contains("memory handles"));
        assert_eq!(
            obstacle(|f| {
                f.gpus[0].handles_posix_fd = Some(false);
                f.gpus[0].handles_fabric = Some(true);
            }),
            ""
        );
    }

    #[test]
    fn this_machine_can_be_asked() {
        let found = inspect();
        let n = found.gpus.len();
        assert_eq!(found.links.len(), n * n.saturating_sub(1));
        assert!(found.links.iter().all(|l| l.from != l.to && (l.to as usize) < n));
        assert!(found.gpus.iter().enumerate().all(|(i, g)| g.ordinal as usize == i && g.memory > 0));
        assert!(n > 0 || found.unavailable.is_some(), "{found:?}");
    }
}
