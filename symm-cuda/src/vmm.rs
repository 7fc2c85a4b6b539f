//! Segments and mappings: physical memory of a GPU, mapped where this PE (or a peer) wants it.

use std::any::Any;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::sync::Arc;

use cudarc::driver::sys::{
    self, CUdeviceptr, CUmemAccess_flags, CUmemAccessDesc, CUmemAllocationGranularity_flags,
    CUmemAllocationHandleType, CUmemAllocationProp, CUmemAllocationType, CUmemGenericAllocationHandle,
    CUmemLocation, CUmemLocationType, CUresult,
};
use symm_core::backend::Export;
use symm_core::{Error, Result};

use crate::capture::Relaxed;
use crate::result::{BACKEND, check, lock};
use crate::shared::Shared;

const FD: CUmemAllocationHandleType = CUmemAllocationHandleType::CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;

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
    /// This crate's.
    Physical(CUmemGenericAllocationHandle),
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
        shared.device.enter()?;
        let _relaxed = Relaxed::enter()?;
        unmap_orphans(shared);
        let prop = properties(shared.device.ordinal);
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
        if made == CUresult::CUDA_ERROR_OUT_OF_MEMORY {
            let why = format!("cuMemCreate of {size} bytes failed (code {})", made as u32);
            return Err(Error::OutOfMemory { requested: bytes as u64, why, holders: Vec::new() });
        }
        check("cuMemCreate", made)?;
        Mapped::map(shared, handle, size)
    }

    /// Maps memory that a peer exported.
    pub(crate) fn import(shared: &Arc<Shared>, export: &Export) -> Result<Self> {
        shared.device.enter()?;
        let _relaxed = Relaxed::enter()?;
        unmap_orphans(shared);
        let wrong = |why: &str| Error::Bootstrap { call: "import", why: why.to_owned() };
        let bytes: [u8; 8] =
            export.bytes.as_slice().try_into().map_err(|_| wrong("a description of another length"))?;
        let size = usize::try_from(u64::from_le_bytes(bytes))
            .map_err(|_| wrong("a size beyond the address space"))?;
        let [fd] = export.fds.as_slice() else { return Err(wrong("not exactly one file descriptor")) };
        let mut handle = 0;
        // The driver takes the descriptor's number in place of a pointer, and duplicates what it needs.
        let os_handle =
            std::ptr::without_provenance_mut(usize::try_from(fd.as_raw_fd()).unwrap_or(usize::MAX));
        // SAFETY: `handle` is a valid place; the descriptor is open for the time of the call.
        let made = unsafe { sys::cuMemImportFromShareableHandle(&raw mut handle, os_handle, FD) };
        check("cuMemImportFromShareableHandle", made)?;
        Mapped::map(shared, handle, size)
    }

    /// Maps a physical allocation for this PE's GPU; the result owns the handle, which is released if this fails.
    fn map(shared: &Arc<Shared>, handle: CUmemGenericAllocationHandle, bytes: usize) -> Result<Self> {
        let mapped = map_handle(shared.device.ordinal, handle, bytes);
        match mapped {
            Ok(base) => Ok(Mapped { shared: shared.clone(), memory: Memory::Physical(handle), base, bytes }),
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
        let Memory::Physical(handle) = self.memory else {
            let why = "the memory is another backend's".to_owned();
            return Err(Error::Unsupported { backend: BACKEND, capability: "export", why });
        };
        self.shared.device.enter()?;
        let mut fd: i32 = -1;
        // SAFETY: for this handle type the driver writes one C int, which `fd` is; the handle is live.
        let made = unsafe { sys::cuMemExportToShareableHandle((&raw mut fd).cast(), handle, FD, 0) };
        check("cuMemExportToShareableHandle", made)?;
        // SAFETY: the driver made this descriptor for the caller to own.
        let fd = unsafe { OwnedFd::from_raw_fd(fd) };
        Ok(Export { bytes: (self.bytes as u64).to_le_bytes().to_vec(), fds: vec![fd] })
    }
}

impl Drop for Mapped {
    fn drop(&mut self) {
        let Memory::Physical(handle) = self.memory else { return };
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

fn properties(ordinal: i32) -> CUmemAllocationProp {
    CUmemAllocationProp {
        type_: CUmemAllocationType::CU_MEM_ALLOCATION_TYPE_PINNED,
        requestedHandleTypes: FD,
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
