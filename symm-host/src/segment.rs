//! Memory: sealed memfds, mapped shared.
//!
//! A segment is allocated in full when it is made, so a machine without memory gives `OutOfMemory` then and never
//! SIGBUS later; it is sealed against shrinking and growing, so a peer that mapped it can never fault either.

use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;

use rustix::fs::{FallocateFlags, MemfdFlags, SealFlags};
use rustix::io::Errno;
use rustix::mm::{MapFlags, ProtFlags};
use symm_core::backend::{Addr, Export};
use symm_core::{Error, Pe, Result};

use crate::available;

/// Seals that every segment carries, and that an import insists on.
const SEALS: SealFlags = SealFlags::SHRINK.union(SealFlags::GROW).union(SealFlags::SEAL);

/// Identifies what an export describes, so that another backend's bytes are refused.
const MAGIC: u64 = u64::from_le_bytes(*b"symmhost");

/// Bytes of a page; the kernel rounds mappings to it.
pub(crate) fn page() -> usize {
    rustix::param::page_size()
}

/// Mapped bytes, unmapped on drop.
#[derive(Debug)]
pub(crate) struct Map {
    base: *mut u8,
    bytes: usize,
}

// SAFETY: the map is an address range that stays valid until drop; access through it is the callers' affair.
unsafe impl Send for Map {}
// SAFETY: as above; the struct itself is never changed.
unsafe impl Sync for Map {}

impl Map {
    fn new(fd: &OwnedFd, bytes: usize) -> Result<Self> {
        let prot = ProtFlags::READ | ProtFlags::WRITE;
        // POPULATE: the pages are there already; entering them now spares the first operations a fault for each.
        let flags = MapFlags::SHARED | MapFlags::POPULATE;
        // SAFETY: a new mapping at an address that the kernel chooses; the descriptor is open and `bytes` long.
        let base = unsafe { rustix::mm::mmap(std::ptr::null_mut(), bytes, prot, flags, fd, 0) }
            .map_err(|e| memory("mmap", bytes, e))?;
        // Addresses travel as numbers (`Addr`), so the provenance is exposed once, here.
        let _ = base.expose_provenance();
        Ok(Map { base: base.cast(), bytes })
    }

    /// First byte.
    pub(crate) fn base(&self) -> *mut u8 {
        self.base
    }

    /// Mapped bytes, a multiple of the page.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }
}

impl Drop for Map {
    fn drop(&mut self) {
        // SAFETY: the range was mapped by `new` and nothing refers to it: every user holds a clone of the owning Arc.
        let unmapped = unsafe { rustix::mm::munmap(self.base.cast(), self.bytes) };
        if let Err(e) = unmapped {
            log::warn!("{}: munmap of {} bytes failed: {e}", symm_core::pe::here(), self.bytes);
        }
    }
}

fn memory(call: &'static str, bytes: usize, e: Errno) -> Error {
    match e {
        Errno::NOMEM | Errno::NOSPC | Errno::AGAIN => Error::OutOfMemory {
            requested: bytes as u64,
            why: format!("{call} failed: {e} (errno {})", e.raw_os_error()),
            holders: Vec::new(),
        },
        e => Error::system(call, e),
    }
}

/// Bytes that one call backs: a call that a signal interrupts gives back what it had taken, so long ones might never end.
const STEP: usize = 64 << 20;

/// Backs all of a new file.
fn back(fd: &OwnedFd, bytes: usize, size: usize) -> Result<()> {
    // The kernel would rather kill a process than refuse pages one by one, so what cannot fit is refused first.
    let free = if size >= STEP { available::bytes() } else { None };
    if let Some(free) = free.filter(|free| *free < size as u64) {
        return Err(Error::OutOfMemory {
            requested: bytes as u64,
            why: format!("{free} bytes are available to this process"),
            holders: Vec::new(),
        });
    }
    let mut at = 0;
    while at < size {
        let step = STEP.min(size - at);
        match rustix::fs::fallocate(fd, FallocateFlags::empty(), at as u64, step as u64) {
            Ok(()) => at += step,
            Err(Errno::INTR) => {}
            Err(Errno::FBIG | Errno::INVAL) => return Err(memory("fallocate", bytes, Errno::NOSPC)),
            Err(e) => return Err(memory("fallocate", bytes, e)),
        }
    }
    Ok(())
}

/// Local memory that peers can map. Clones are the same memory.
#[derive(Clone, Debug)]
pub struct Segment(pub(crate) Arc<Owned>);

#[derive(Debug)]
pub(crate) struct Owned {
    fd: OwnedFd,
    map: Arc<Map>,
}

/// A segment as this PE reaches it, its own or a peer's. Clones are the same mapping.
#[derive(Clone, Debug)]
pub struct Mapping {
    pub(crate) map: Arc<Map>,
    pub(crate) direct: bool,
}

impl Segment {
    /// Allocates at least `bytes` bytes, zeroed, backed in full.
    pub(crate) fn allocate(bytes: usize) -> Result<Self> {
        let too_large = || Error::OutOfMemory {
            requested: bytes as u64,
            why: "larger than the address space".to_owned(),
            holders: Vec::new(),
        };
        let size = bytes.max(1).checked_next_multiple_of(page()).ok_or_else(too_large)?;
        if size > isize::MAX as usize {
            return Err(too_large());
        }
        let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
        let fd = rustix::fs::memfd_create("symm", flags).map_err(|e| Error::system("memfd_create", e))?;
        back(&fd, bytes, size)?;
        rustix::fs::fcntl_add_seals(&fd, SEALS).map_err(|e| Error::system("fcntl(F_ADD_SEALS)", e))?;
        let map = Arc::new(Map::new(&fd, size)?);
        Ok(Segment(Arc::new(Owned { fd, map })))
    }

    /// First byte here.
    pub(crate) fn base(&self) -> Addr {
        Addr::of(self.0.map.base())
    }

    /// Bytes, a multiple of the page.
    pub(crate) fn bytes(&self) -> usize {
        self.0.map.bytes()
    }

    /// This PE's own view of it.
    pub(crate) fn own(&self) -> Mapping {
        Mapping { map: self.0.map.clone(), direct: true }
    }

    /// What a peer needs to map it.
    pub(crate) fn export(&self) -> Result<Export> {
        let mut bytes = Vec::with_capacity(16);
        bytes.extend_from_slice(&MAGIC.to_le_bytes());
        bytes.extend_from_slice(&(self.bytes() as u64).to_le_bytes());
        let fd = self.0.fd.try_clone().map_err(|e| Error::System {
            call: "fcntl(F_DUPFD_CLOEXEC)",
            errno: e.raw_os_error().unwrap_or(0),
            text: e.to_string(),
        })?;
        Ok(Export { bytes, fds: vec![fd] })
    }
}

impl Mapping {
    /// Maps the segment that `export` describes; every length is checked before anything is mapped.
    ///
    /// The descriptor may be a duplicate of one that this process exported: PEs as threads work the same way.
    pub(crate) fn import(from: Pe, export: &Export, direct: bool) -> Result<Self> {
        let refuse = |got: String, expected: &str| {
            Err(Error::argument("import", "export", format!("{got} from PE {from}"), expected))
        };
        let Ok(bytes) = <[u8; 16]>::try_from(export.bytes.as_slice()) else {
            return refuse(format!("{} bytes", export.bytes.len()), "16 bytes");
        };
        let (magic, size) = bytes.split_at(8);
        if magic != MAGIC.to_le_bytes() {
            return refuse("another backend's description".to_owned(), "the host backend's");
        }
        let size = size.iter().rev().fold(0_u64, |n, b| n << 8 | u64::from(*b));
        let [fd] = export.fds.as_slice() else {
            return refuse(format!("{} descriptors", export.fds.len()), "1 descriptor");
        };
        let seals =
            rustix::fs::fcntl_get_seals(fd.as_fd()).map_err(|e| Error::system("fcntl(F_GET_SEALS)", e))?;
        if !seals.contains(SEALS) {
            return refuse(format!("seals {seals:?}"), "a memfd sealed against shrinking and growing");
        }
        let found = rustix::fs::fstat(fd.as_fd()).map_err(|e| Error::system("fstat", e))?.st_size;
        let fits = usize::try_from(size)
            .is_ok_and(|s| s <= isize::MAX as usize && s > 0 && s.is_multiple_of(page()));
        if !fits || u64::try_from(found).is_ok_and(|f| f < size) || found < 0 {
            return refuse(
                format!("a size of {size} bytes for a file of {found}"),
                "a positive multiple of the page, at most the file's size",
            );
        }
        let map = Map::new(fd, usize::try_from(size).expect("the size should fit, as checked above"))?;
        Ok(Mapping { map: Arc::new(map), direct })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn dup(export: &Export) -> Export {
        Export {
            bytes: export.bytes.clone(),
            fds: export.fds.iter().map(|fd| fd.try_clone().unwrap()).collect(),
        }
    }

    #[test]
    fn two_views_are_the_same_zeroed_memory_and_outlive_the_segment() {
        let segment = Segment::allocate(10_000).unwrap();
        assert_eq!(segment.bytes() % page(), 0);
        let view = Mapping::import(Pe(1), &segment.export().unwrap(), true).unwrap();
        let (a, b) = (segment.base().as_ptr::<u8>(), view.map.base());
        assert_ne!(a, b);
        for at in [0, 9_999] {
            // SAFETY: both views have at least 10 000 bytes, and one thread uses them.
            unsafe {
                assert_eq!(b.add(at).read_volatile(), 0);
                a.add(at).write_volatile(7);
                assert_eq!(b.add(at).read_volatile(), 7);
            }
        }
        drop(segment);
        // SAFETY: the mapping keeps the memory.
        assert_eq!(unsafe { b.add(9_999).read_volatile() }, 7);
    }

    #[test]
    fn what_cannot_fit_is_out_of_memory() {
        for bytes in [usize::MAX, isize::MAX as usize, 1 << 45] {
            let error = Segment::allocate(bytes).expect_err("more than any machine has");
            assert!(
                matches!(error, Error::OutOfMemory { requested, .. } if requested == bytes as u64),
                "{error}"
            );
        }
    }

    #[test]
    fn exports_that_lie_are_refused_before_anything_is_mapped() {
        let segment = Segment::allocate(page()).unwrap();
        let good = segment.export().unwrap();
        assert!(Mapping::import(Pe(1), &good, true).is_ok());
        let with_size = |size: u64| {
            let mut e = dup(&good);
            e.bytes[8..].copy_from_slice(&size.to_le_bytes());
            e
        };
        let mut other = dup(&good);
        other.bytes[0] ^= 1;
        let unsealed =
            rustix::fs::memfd_create("symm-test", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING).unwrap();
        rustix::fs::ftruncate(&unsealed, page() as u64).unwrap();
        let bad = [
            ("longer than the file", with_size(2 * page() as u64)),
            ("empty", with_size(0)),
            ("huge", with_size(u64::MAX)),
            ("no whole page", with_size(page() as u64 - 8)),
            ("another backend", other),
            ("short", Export { bytes: good.bytes[..15].to_vec(), fds: dup(&good).fds }),
            ("no descriptor", Export { bytes: good.bytes.clone(), fds: Vec::new() }),
            ("not sealed", Export { bytes: good.bytes.clone(), fds: vec![unsealed] }),
        ];
        for (what, export) in bad {
            let error = Mapping::import(Pe(3), &export, true).expect_err(what);
            assert!(error.to_string().contains("PE 3"), "{what}: {error}");
        }
    }
}
