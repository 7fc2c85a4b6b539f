//! Segments and mappings: physical memory of a GPU, mapped where this PE (or a peer) wants it.

use std::any::Any;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::sync::Arc;

use cudarc::driver::sys::{
    self, CUdeviceptr, CUmemAccess_flags, CUmemAccessDesc, CUmemAllocationGranularity_flags,
    CUmemAllocationHandleType, CUmemAllocationProp, CUmemAllocationType, CUmemFabricHandle,
    CUmemGenericAllocationHandle, CUmemLocation, CUmemLocationType,
};
use symm_core::backend::Export;
use symm_core::{Error, Result};

use crate::capture::Relaxed;
use crate::device::attribute_of;
use crate::imex;
use crate::result::{BACKEND, check, check_memory, lock};
use crate::share::{Attempt, Handles};
use crate::shared::Shared;

const FD: CUmemAllocationHandleType = CUmemAllocationHandleType::CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
const FABRIC: CUmemAllocationHandleType = CUmemAllocationHandleType::CU_MEM_HANDLE_TYPE_FABRIC;

/// Bytes of a fabric handle.
const FABRIC_BYTES: usize = size_of::<CUmemFabricHandle>();

/// Memory of this PE's GPU that can be exported. Freed with the last clone.
#[derive(Clone, Debug)]
pub struct Segment(pub(crate) Arc<Mapped>);

/// A segment, a peer's or one's own, as this PE reaches it. Unmapped with the last clone.
#[derive(Clone, Debug)]
pub struct Mapping(pub(crate) Arc<Mapped>);

/// A physical allocation and where it is mapped here.
#[derive(Debug)]
pub(crate) struct Mapped {
    shared: Arc<Shared>,
    memory: Memory,
    pub(crate) base: u64,
    bytes: usize,
}

/// Whose the memory is.
#[derive(Debug)]
enum Memory {
    /// This crate's, and what it is exported as.
    Physical(CUmemGenericAllocationHandle, Handles),
    /// Another backend's, which keeps it valid while this lives.
    OfOthers { _owner: Arc<dyn Any + Send + Sync> },
}

/// A mapping without an owner, which goes once the streams have passed the point at which it lost its own.
#[derive(Debug)]
pub(crate) struct Orphan {
    handle: CUmemGenericAllocationHandle,
    base: u64,
    bytes: usize,
}

impl Orphan {
    fn unmap(&self) {
        unmap(self.base, self.bytes);
        release(self.handle);
    }
}

/// Unmaps what the streams are through with.
fn unmap_orphans(shared: &Shared) {
    let mut orphans = lock(&shared.orphans);
    orphans.retain(|(marker, orphan)| {
        let through = marker.passed().unwrap_or(false);
        if through {
            orphan.unmap();
        }
        !through
    });
}

impl Mapped {
    /// Allocates at least `bytes` bytes on this PE's GPU.
    ///
    /// # Errors
    /// `OutOfMemory`.
    pub(crate) fn allocate(shared: &Arc<Shared>, bytes: usize) -> Result<Self> {
        Mapped::allocate_for(shared, bytes, shared.handles.get().copied().unwrap_or(Handles::Fd))
    }

    /// The same, to be exported as one of `handles`.
    fn allocate_for(shared: &Arc<Shared>, bytes: usize, handles: Handles) -> Result<Self> {
        let _entered = shared.device.enter()?;
        let _relaxed = Relaxed::enter()?;
        unmap_orphans(shared);
        let prop = properties(shared.device.ordinal, handles);
        let mut granularity = 0;
        let recommended = CUmemAllocationGranularity_flags::CU_MEM_ALLOC_GRANULARITY_RECOMMENDED;
        // SAFETY: both pointers are valid for the call.
        let asked =
            unsafe { sys::cuMemGetAllocationGranularity(&raw mut granularity, &raw const prop, recommended) };
        check("cuMemGetAllocationGranularity", asked)?;
        let too_large = || Error::OutOfMemory {
            requested: bytes as u64,
            why: "more than the address space".to_owned(),
            holders: Vec::new(),
        };
        let size = bytes.max(1).checked_next_multiple_of(granularity).ok_or_else(too_large)?;
        let mut handle = 0;
        // SAFETY: both pointers are valid for the call, and `size` is a multiple of the granularity.
        let made = unsafe { sys::cuMemCreate(&raw mut handle, size, &raw const prop, 0) };
        check_memory("cuMemCreate", size, made)?;
        Mapped::map(shared, handle, size, handles)
    }

    /// Maps memory that a peer exported.
    pub(crate) fn import(shared: &Arc<Shared>, export: &Export) -> Result<Self> {
        let _entered = shared.device.enter()?;
        let _relaxed = Relaxed::enter()?;
        unmap_orphans(shared);
        let offered = offered(export)?;
        let mut handle = 0;
        let made = match offered.fabric {
            None => {
                // The driver takes the descriptor's number in place of a pointer, and duplicates what it needs.
                let fd = usize::try_from(export.fds[0].as_raw_fd()).unwrap_or(usize::MAX);
                let os_handle = std::ptr::without_provenance_mut(fd);
                // SAFETY: `handle` is a valid place; the descriptor is open for the time of the call.
                unsafe { sys::cuMemImportFromShareableHandle(&raw mut handle, os_handle, FD) }
            }
            Some(mut fabric) => {
                // SAFETY: `handle` is a valid place, `fabric` a whole fabric handle, which the driver only reads.
                unsafe {
                    sys::cuMemImportFromShareableHandle(&raw mut handle, (&raw mut fabric).cast(), FABRIC)
                }
            }
        };
        check("cuMemImportFromShareableHandle", made)?;
        let handles = if offered.fabric.is_some() { Handles::Fabric } else { Handles::Fd };
        Mapped::map(shared, handle, offered.size, handles)
    }

    /// Maps a physical allocation for this PE's GPU; the result owns the handle, which is released if this fails.
    fn map(
        shared: &Arc<Shared>,
        handle: CUmemGenericAllocationHandle,
        bytes: usize,
        handles: Handles,
    ) -> Result<Self> {
        let mapped = map_handle(shared.device.ordinal, handle, bytes);
        match mapped {
            Ok(base) => {
                Ok(Mapped { shared: shared.clone(), memory: Memory::Physical(handle, handles), base, bytes })
            }
            Err(e) => {
                release(handle);
                Err(e)
            }
        }
    }

    /// Memory of another backend's.
    pub(crate) fn of_others(shared: &Arc<Shared>, base: u64, owner: Arc<dyn Any + Send + Sync>) -> Self {
        Mapped { shared: shared.clone(), memory: Memory::OfOthers { _owner: owner }, base, bytes: 0 }
    }

    /// What a peer needs to import it.
    pub(crate) fn export(&self) -> Result<Export> {
        let Memory::Physical(handle, handles) = self.memory else {
            let why = "the memory is another backend's".to_owned();
            return Err(Error::Unsupported { backend: BACKEND, capability: "export", why });
        };
        let _entered = self.shared.device.enter()?;
        let mut bytes = (self.bytes as u64).to_le_bytes().to_vec();
        if handles == Handles::Fabric {
            let mut fabric = CUmemFabricHandle { data: [0; FABRIC_BYTES] };
            // SAFETY: for this handle type the driver writes one fabric handle, which `fabric` is; the handle is live.
            let made =
                unsafe { sys::cuMemExportToShareableHandle((&raw mut fabric).cast(), handle, FABRIC, 0) };
            check("cuMemExportToShareableHandle", made)?;
            bytes.extend(fabric.data);
            return Ok(Export { bytes, fds: Vec::new() });
        }
        let mut fd: i32 = -1;
        // SAFETY: for this handle type the driver writes one C int, which `fd` is; the handle is live.
        let made = unsafe { sys::cuMemExportToShareableHandle((&raw mut fd).cast(), handle, FD, 0) };
        check("cuMemExportToShareableHandle", made)?;
        // SAFETY: the driver made this descriptor for the caller to own.
        let fd = unsafe { OwnedFd::from_raw_fd(fd) };
        Ok(Export { bytes, fds: vec![fd] })
    }
}

/// What a peer says of memory that it exported: bytes, and the fabric handle where it passes no descriptor.
struct Offered {
    size: usize,
    fabric: Option<CUmemFabricHandle>,
}

fn offered(export: &Export) -> Result<Offered> {
    let wrong = |why: &str| Error::Bootstrap { call: "import", why: why.to_owned() };
    let (size, rest) =
        export.bytes.split_first_chunk().ok_or_else(|| wrong("a description of another length"))?;
    let size =
        usize::try_from(u64::from_le_bytes(*size)).map_err(|_| wrong("a size beyond the address space"))?;
    let fabric = match (export.fds.len(), rest.len()) {
        (1, 0) => None,
        (0, FABRIC_BYTES) => {
            let mut data = [0; FABRIC_BYTES];
            data.copy_from_slice(rest);
            Some(CUmemFabricHandle { data })
        }
        _ => return Err(wrong("neither one file descriptor nor a fabric handle")),
    };
    Ok(Offered { size, fabric })
}

/// The test of a kind of handles on this PE's GPU.
#[derive(Debug)]
pub(crate) struct OnThisGpu<'a>(pub(crate) &'a Arc<Shared>, pub(crate) Handles);

impl Attempt for OnThisGpu<'_> {
    type Memory = Mapped;

    fn handles(&self) -> Handles {
        self.1
    }

    fn supported(&self) -> Result<bool> {
        let what = sys::CUdevice_attribute::CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_FABRIC_SUPPORTED;
        match self.1 {
            Handles::Fd => Ok(self.0.device.descriptors),
            Handles::Fabric => attribute_of(self.0.device.raw, what).map(|v| v != 0),
        }
    }

    fn lacks(&self) -> Option<String> {
        if self.1 == Handles::Fabric { imex::lacks() } else { None }
    }

    fn create(&self) -> Result<Mapped> {
        Mapped::allocate_for(self.0, 1, self.1)
    }

    fn export(&self, memory: &Mapped) -> Result<Export> {
        memory.export()
    }

    fn import(&self, export: &Export) -> Result<Mapped> {
        Mapped::import(self.0, export)
    }

    fn write(&self, memory: &Mapped, word: u64) -> Result<()> {
        self.0.upload(memory.base, &[word])
    }

    fn read(&self, memory: &Mapped) -> Result<u64> {
        let mut word = [0];
        self.0.download(memory.base, &mut word).map(|()| word[0])
    }
}

impl Drop for Mapped {
    fn drop(&mut self) {
        let Memory::Physical(handle, _) = self.memory else { return };
        // A world that goes while its streams still run leaves them what they use. Drop never waits, so that is unmapped
        // later, or never.
        let orphan = Orphan { handle, base: self.base, bytes: self.bytes };
        match self.shared.mark() {
            Ok(marker) => match marker.passed() {
                Ok(true) => orphan.unmap(),
                _ => lock(&self.shared.orphans).push((marker, orphan)),
            },
            Err(e) => log::warn!("{}: {} bytes stay mapped: {e}", symm_core::pe::here(), self.bytes),
        }
    }
}

fn properties(ordinal: i32, handles: Handles) -> CUmemAllocationProp {
    CUmemAllocationProp {
        type_: CUmemAllocationType::CU_MEM_ALLOCATION_TYPE_PINNED,
        requestedHandleTypes: if handles == Handles::Fabric { FABRIC } else { FD },
        location: location(ordinal),
        win32HandleMetaData: std::ptr::null_mut(),
        allocFlags: sys::CUmemAllocationProp_st__bindgen_ty_1 {
            compressionType: 0,
            gpuDirectRDMACapable: 0,
            usage: 0,
            reserved: [0; 4],
        },
    }
}

fn location(ordinal: i32) -> CUmemLocation {
    CUmemLocation { type_: CUmemLocationType::CU_MEM_LOCATION_TYPE_DEVICE, id: ordinal }
}

fn map_handle(ordinal: i32, handle: CUmemGenericAllocationHandle, bytes: usize) -> Result<u64> {
    let mut base: CUdeviceptr = 0;
    // SAFETY: `base` is a valid place.
    check("cuMemAddressReserve", unsafe { sys::cuMemAddressReserve(&raw mut base, bytes, 0, 0, 0) })?;
    // SAFETY: the range was reserved just now and is not mapped; the handle is live and has `bytes` bytes.
    let mapped = check("cuMemMap", unsafe { sys::cuMemMap(base, bytes, 0, handle, 0) });
    if let Err(e) = mapped {
        free_range(base, bytes);
        return Err(e);
    }
    let access = CUmemAccessDesc {
        location: location(ordinal),
        flags: CUmemAccess_flags::CU_MEM_ACCESS_FLAGS_PROT_READWRITE,
    };
    // SAFETY: the range is mapped; `access` is one valid descriptor.
    if let Err(e) = check("cuMemSetAccess", unsafe { sys::cuMemSetAccess(base, bytes, &raw const access, 1) })
    {
        unmap(base, bytes);
        return Err(e);
    }
    Ok(base)
}

fn unmap(base: u64, bytes: usize) {
    // SAFETY: the range was mapped as a whole by `map_handle`, and its owner goes.
    if let Err(e) = check("cuMemUnmap", unsafe { sys::cuMemUnmap(base, bytes) }) {
        log::warn!("{}: {e}", symm_core::pe::here());
        return;
    }
    free_range(base, bytes);
}

fn free_range(base: u64, bytes: usize) {
    // SAFETY: the range was reserved by `map_handle` and is not mapped.
    if let Err(e) = check("cuMemAddressFree", unsafe { sys::cuMemAddressFree(base, bytes) }) {
        log::warn!("{}: {e}", symm_core::pe::here());
    }
}

fn release(handle: CUmemGenericAllocationHandle) {
    // SAFETY: the handle is live and this is its owner's only release.
    if let Err(e) = check("cuMemRelease", unsafe { sys::cuMemRelease(handle) }) {
        log::warn!("{}: {e}", symm_core::pe::here());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn export(bytes: usize, fds: usize) -> Export {
        let fd = || std::fs::File::open("/dev/null").expect("a device that is always there").into();
        Export { bytes: vec![1; bytes], fds: (0..fds).map(|_| fd()).collect() }
    }

    #[test]
    fn an_offer_is_a_descriptor_or_a_fabric_handle() {
        assert!(offered(&export(8, 1)).is_ok_and(|o| o.fabric.is_none() && o.size == 0x0101_0101_0101_0101));
        assert!(offered(&export(8 + FABRIC_BYTES, 0)).is_ok_and(|o| o.fabric.is_some()));
        for (bytes, fds) in
            [(0, 1), (7, 1), (9, 1), (8, 0), (8, 2), (8 + FABRIC_BYTES, 1), (7 + FABRIC_BYTES, 0)]
        {
            assert!(offered(&export(bytes, fds)).is_err(), "{bytes} bytes, {fds} descriptors");
        }
    }
}
