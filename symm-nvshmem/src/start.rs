//! Opening the backend together. Every step is agreed on before the next, so that nobody waits for a PE that has given up.

use std::sync::Arc;
use std::time::Duration;

use symm_core::bootstrap::{Bootstrap, Group};
use symm_core::{Config, Deadline, Error, Pe, Result};
use symm_cuda::Cuda;
use symm_cuda::embed::{Gpu, same_gpu};
use symm_kernels::params::STAGE_BYTES;

use crate::backend::Nvshmem;
use crate::error::{BACKEND, unavailable, unsupported};
use crate::heap::Heap;
use crate::library::{By, ID_BYTES, Library, bounded};
use crate::mpi::{self, MpiComm};
use crate::net::{Network, STAGES};
use crate::teams::Teams;

/// Ids of the groups that only start and end of this backend use.
const TEAM: u64 = u64::from_le_bytes(*b"nvshmem.");
const END_TEAM: u64 = u64::from_le_bytes(*b"nvshmem!");
const OP: &str = "init";

/// What a PE says in place of an id.
const BY_MPI: &[u8] = b"mpi";

/// Bytes behind the heap: the stages, which the tests of `open` use first.
const BEHIND: usize = STAGES * STAGE_BYTES;

/// All PEs of the world, during `init`.
struct Start<'a> {
    boot: &'a Arc<dyn Bootstrap>,
    group: Group,
    deadline: Deadline,
}

/// For each PE which PEs' heaps it reaches by load and store, 1 for each.
#[derive(Debug)]
pub(crate) struct Reached(Vec<Vec<u8>>);

impl Reached {
    /// A pair is direct only if both reach each other; a PE is to itself.
    fn both(&self, a: Pe, b: Pe) -> bool {
        let reaches = |a: Pe, b: Pe| self.0.get(a.index()).and_then(|r| r.get(b.index())) == Some(&1);
        a == b || (reaches(a, b) && reaches(b, a))
    }

    /// Whether every pair of these is direct.
    pub(crate) fn among(&self, members: &[Pe]) -> bool {
        members.iter().all(|a| members.iter().all(|b| self.both(*a, *b)))
    }
}

/// Starts NVSHMEM, over `comm` or else by unique id, and finds who reaches whom.
///
/// # Collective
/// Over the world, once in a process.
///
/// # Errors
/// On all PEs alike: `Unavailable` if some PE has no GPU or no NVSHMEM, or NVSHMEM does not start; `Unsupported` naming a pair
/// that cannot reach each other.
pub(crate) fn open(boot: &Arc<dyn Bootstrap>, config: &Config, comm: Option<MpiComm>) -> Result<Nvshmem> {
    let everybody = (0..boot.n_pes()).map(Pe::from).collect();
    let group = Group::new(boot.clone(), TEAM, everybody)?;
    let start = Start { boot, group, deadline: Deadline::after(config.init_timeout) };
    let (library, cuda, several_hosts) = start.load(config)?;
    if several_hosts {
        // A transport that cannot have GPU memory without GDRCopy may fail in its own start already.
        start.step(crate::net::signals_work(&cuda, library.version()))?;
    }
    start.start(library, &cuda, comm)?;
    let bytes = start.step(heap_bytes(config).and_then(|bytes| fits(&cuda, bytes)))?;
    let base = start.allocate(library, &cuda, bytes)?;
    let heap = Heap::new(&cuda, base, bytes);
    let (peers, reached) = start.peers(library, &cuda, &heap)?;
    let everybody: Vec<Pe> = (0..boot.n_pes()).map(Pe::from).collect();
    let all_direct = reached.among(&everybody);
    let weak_atomics = start.step(weak_atomics(&cuda))?;
    let net = if all_direct {
        start.step(if weak_atomics && boot.n_pes() > 1 { Err(WEAK_ATOMICS.to_owned()) } else { Ok(()) })?;
        None
    } else {
        start.step(crate::net::signals_work(&cuda, library.version()))?;
        start.step(crate::net::gets_work())?;
        let net = start.step(Network::open(&cuda, library, (heap.base, bytes), config.timeout))?;
        start.reach_over_network(&cuda, &heap, &peers, &net)?;
        Some(net)
    };
    let (teams, init_timeout) = (Teams::new(boot)?, config.init_timeout);
    let backend = Nvshmem {
        boot: boot.clone(),
        library,
        cuda,
        heap,
        peers,
        reached,
        net,
        weak_atomics,
        teams,
        init_timeout,
    };
    log::debug!("PE {}: {}", boot.pe(), backend.describe());
    Ok(backend)
}

/// Whether the GPUs' atomics on the heap are not atomic with respect to each other: it lies in host memory, and what a GPU does to
/// that over PCIe is a read and a write. Two PEs at one word of a signal pad, or two adds to one signal, then lose one of both (seen:
/// two made-up hosts of one machine). Stores and loads are not concerned, so everything else works.
fn weak_atomics(cuda: &Cuda) -> Result<bool, String> {
    Ok(in_host_memory() && !cuda.has_host_atomics().map_err(|e| e.to_string())?)
}

const WEAK_ATOMICS: &str = "NVSHMEM_HEAP_KIND=SYSMEM puts the heap in host memory, on which atomics of these GPUs can be lost, and all \
     PEs reach each other by load and store; unset it";

/// Whether all PEs come, and are fine.
pub(crate) fn all_end(boot: &Arc<dyn Bootstrap>, fine: bool, deadline: Deadline) -> bool {
    let everybody: Vec<Pe> = (0..boot.n_pes()).map(Pe::from).collect();
    let said = Group::new(boot.clone(), END_TEAM, everybody)
        .and_then(|group| group.all_gather("finalize", &[u8::from(fine)], deadline));
    said.is_ok_and(|all| all.iter().all(|said| said == &[1]))
}

fn heap_bytes(config: &Config) -> Result<usize, String> {
    let bytes = config.heap_bytes.checked_next_multiple_of(4096).filter(|b| b.checked_add(BEHIND).is_some());
    bytes.ok_or_else(|| format!("SYMM_HEAP is {}, more than the address space", config.heap_bytes))
}

/// Whether NVSHMEM's heap is in host memory.
fn in_host_memory() -> bool {
    std::env::var("NVSHMEM_HEAP_KIND").is_ok_and(|kind| kind.eq_ignore_ascii_case("SYSMEM"))
}

/// NVSHMEM's allocation ends the process where the GPU has no room for it, so that is looked at before.
fn fits(cuda: &Cuda, bytes: usize) -> Result<usize, String> {
    if in_host_memory() {
        return Ok(bytes);
    }
    let free = cuda.free_memory().map_err(|e| e.to_string())?;
    let needed = (bytes + BEHIND) as u64;
    if needed <= free {
        Ok(bytes)
    } else {
        Err(format!(
            "SYMM_HEAP asks for {bytes} bytes, with {BEHIND} more for transfers; its GPU has {free} free"
        ))
    }
}

/// The word that `writer` leaves with `owner`.
fn word(writer: Pe, owner: Pe) -> u64 {
    0x4e56_5348 << 32 | u64::from(writer.0) << 16 | u64::from(owner.0)
}

impl Start<'_> {
    fn me(&self) -> Pe {
        self.boot.pe()
    }

    /// A step that all must have passed; what fails is `Unavailable`.
    fn step<T>(&self, mine: Result<T, String>) -> Result<T> {
        let said = mine.as_ref().map(|_| Vec::new()).map_err(Clone::clone);
        self.agree(said)?;
        mine.map_err(unavailable)
    }

    fn agree(&self, mine: Result<Vec<u8>, String>) -> Result<Vec<Vec<u8>>> {
        self.group.agree(OP, mine, self.deadline, |pe, why| unavailable(format!("PE {pe}: {why}")))
    }

    /// Loads the library and opens the GPU; says too whether the PEs are on several hosts, by name as NVSHMEM tells them apart.
    fn load(&self, config: &Config) -> Result<(Library, Arc<Cuda>, bool)> {
        let why = |e: Error| match e {
            Error::Unavailable { why, .. } => why,
            e => e.to_string(),
        };
        let loaded = Library::load().and_then(|library| Ok((library, Gpu::offer(config).map_err(why)?)));
        let offers = self.agree(loaded.as_ref().map_err(Clone::clone).map(|(_, offer)| offer.clone()))?;
        let opened =
            loaded.and_then(|(library, _)| Ok((library, Gpu::open(self.me(), &offers).map_err(why)?)));
        let mine = opened.as_ref().map_err(Clone::clone).map(|(library, gpu)| {
            let v = library.version();
            let mut bytes = gpu.uuid().to_vec();
            bytes.extend([v.major, v.minor].iter().flat_map(|n| n.to_le_bytes()));
            bytes.extend(rustix::system::uname().nodename().to_bytes());
            bytes
        });
        let all = self.agree(mine)?;
        let (library, gpu) = opened.map_err(unavailable)?;
        let (mut uuids, mine) = (Vec::with_capacity(all.len()), &all[self.me().index()]);
        for (pe, bytes) in all.iter().enumerate() {
            let uuid = bytes.get(..16).and_then(|b| <[u8; 16]>::try_from(b).ok());
            let wrong =
                || Error::Bootstrap { call: OP, why: format!("PE {pe} said something else than a GPU") };
            uuids.push(uuid.ok_or_else(wrong)?);
            // Equal on all PEs if anywhere, since all compare all: PE 0's release is what the others differ from.
            if bytes.get(16..24) != all[0].get(16..24) {
                return Err(unavailable(format!(
                    "PE {pe} has another release of NVSHMEM than PE 0; here it is {}",
                    library.version()
                )));
            }
        }
        if !config.allow_shared_gpu {
            for (pe, uuid) in uuids.iter().enumerate() {
                if let Some(other) = uuids[..pe].iter().position(|u| u == uuid) {
                    return Err(unsupported("PEER_LOAD_STORE", same_gpu(Pe::from(other), Pe::from(pe))));
                }
            }
        }
        log::trace!("PE {}: {} bytes said", self.me(), mine.len());
        let cuda = self.step(gpu.into_backend(&uuids, config).map_err(|e| e.to_string()))?;
        let several_hosts = all.iter().any(|said| said.get(24..) != all[0].get(24..));
        Ok((library, Arc::new(cuda), several_hosts))
    }

    /// Starts NVSHMEM over the communicator, or by an id of PE 0.
    fn start(&self, library: Library, cuda: &Arc<Cuda>, comm: Option<MpiComm>) -> Result<()> {
        // Each says which way it goes: one that waited for the others in another way would wait for ever.
        let mine = match comm {
            Some(_) => mpi::check(library.path()).map(|()| BY_MPI.to_vec()),
            None if self.me() == Pe(0) => library.unique_id(),
            None => Ok(Vec::new()),
        };
        let said = self.agree(mine)?;
        let over_mpi = said.iter().filter(|said| said.as_slice() == BY_MPI).count();
        let by = match comm {
            Some(comm) if over_mpi == said.len() => By::Mpi(comm),
            None if over_mpi == 0 => {
                let wrong =
                    || Error::Bootstrap { call: OP, why: "an NVSHMEM id of another length".to_owned() };
                By::Id(<[u8; ID_BYTES]>::try_from(said[0].as_slice()).map_err(|_| wrong())?)
            }
            _ => {
                let why = format!(
                    "{over_mpi} of {} PEs start NVSHMEM over an MPI communicator, the others by unique id",
                    said.len()
                );
                return Err(Error::Bootstrap { call: OP, why });
            }
        };
        let (pe, n) = (self.me(), self.group.len());
        let started =
            bounded(cuda, "nvshmemx_hostlib_init_attr", self.deadline, move || library.start(pe, n, by))?;
        self.step(started)
    }

    fn allocate(&self, library: Library, cuda: &Arc<Cuda>, bytes: usize) -> Result<u64> {
        let got = bounded(cuda, "nvshmem_malloc", self.deadline, move || library.malloc(bytes + BEHIND))?;
        self.step(got)
    }

    /// Where each PE's heap is reached by load and store, and who reaches whom.
    fn peers(&self, library: Library, cuda: &Cuda, heap: &Heap) -> Result<(Vec<Option<u64>>, Reached)> {
        let found = self
            .group
            .members()
            .iter()
            .map(|pe| if *pe == self.me() { Ok(Some(heap.base)) } else { library.peer(heap.base, *pe) });
        let found: Result<Vec<Option<u64>>, String> = found.collect();
        let said =
            found.as_ref().map_err(Clone::clone).map(|f| f.iter().map(|p| u8::from(p.is_some())).collect());
        let reached = Reached(self.agree(said)?);
        let found = found.map_err(unavailable)?;
        let mine = |pe: usize| reached.both(Pe::from(pe), self.me());
        let peers: Vec<_> = found.into_iter().enumerate().map(|(pe, p)| p.filter(|_| mine(pe))).collect();
        self.test_direct(cuda, heap, &peers)?;
        Ok((peers, reached))
    }

    /// Leaves a word with every direct peer and finds everybody's here.
    fn test_direct(&self, cuda: &Cuda, heap: &Heap, peers: &[Option<u64>]) -> Result<()> {
        let behind = heap.bytes as u64;
        let n = peers.len();
        // SAFETY: the stages behind the heap are used by nobody yet.
        let zeroed = unsafe { cuda.zero_at(heap.base + behind, 16 * n) };
        self.step(zeroed.map_err(|e| e.to_string()))?;
        let me = self.me();
        let write = || {
            for (pe, base) in peers.iter().enumerate() {
                let Some(base) = base else { continue };
                let (at, mine) = (base + behind + 8 * me.index() as u64, word(me, Pe::from(pe)));
                let mut back = [0];
                // SAFETY: the word is mine in the peer's stages, which nobody else uses yet.
                let done = unsafe { cuda.upload(at, &[mine]).and_then(|()| cuda.download(at, &mut back)) };
                done.map_err(|e| format!("PE {me} cannot access memory of PE {pe}: {e}"))?;
                if back != [mine] {
                    return Err(format!("PE {me} wrote {mine:#x} to PE {pe} and read {:#x}", back[0]));
                }
            }
            Ok(())
        };
        self.step(write())?;
        let verify = || {
            let mut words = vec![0; n];
            // SAFETY: this PE's own stages.
            unsafe { cuda.download(heap.base + behind, &mut words) }.map_err(|e| e.to_string())?;
            for (pe, base) in peers.iter().enumerate() {
                let expected = word(Pe::from(pe), me);
                if base.is_some() && words[pe] != expected {
                    return Err(format!(
                        "PE {pe} wrote {expected:#x} to PE {me}, which has {:#x}",
                        words[pe]
                    ));
                }
            }
            Ok(())
        };
        self.step(verify())
    }

    /// Puts a word with a signal to every peer that is not direct and waits for everybody's.
    fn reach_over_network(
        &self,
        cuda: &Cuda,
        heap: &Heap,
        peers: &[Option<u64>],
        net: &Network,
    ) -> Result<()> {
        let (me, n) = (self.me(), peers.len());
        let words = heap.base + heap.bytes as u64;
        // SAFETY: the stages behind the heap are used by nobody yet.
        let zeroed = unsafe { cuda.zero_at(words, 24 * n) };
        self.step(zeroed.map_err(|e| e.to_string()))?;
        let sent = net.test_puts(words, me, peers, self.deadline, word);
        let got = sent.and_then(|()| {
            let mut seen = vec![0; 2 * n];
            loop {
                // SAFETY: this PE's own stages, which peers write by words.
                unsafe { cuda.download(words, &mut seen) }.map_err(|e| e.to_string())?;
                let missing = (0..n).find(|pe| peers[*pe].is_none() && seen[2 * pe + 1] != 1);
                let Some(pe) = missing else { break };
                if self.deadline.passed() {
                    return Err(format!("no signal of PE {pe} came over NVSHMEM's transports: {HINTS}"));
                }
                std::thread::sleep(Duration::from_micros(200));
            }
            for pe in (0..n).filter(|pe| peers[*pe].is_none()) {
                let expected = word(Pe::from(pe), me);
                if seen[2 * pe] != expected {
                    return Err(format!(
                        "PE {pe} put {expected:#x} with a signal; the signal came, the word is {:#x}",
                        seen[2 * pe]
                    ));
                }
            }
            Ok(())
        });
        let said = got.as_ref().map(|()| Vec::new()).map_err(Clone::clone);
        // Everybody waits as long as the deadline for the words, so a little longer for the verdict.
        let deadline = Deadline::after(self.deadline.left() + Duration::from_secs(5));
        self.group.agree(OP, said, deadline, |pe, why| unsupported("NETWORK", format!("PE {pe}: {why}")))?;
        got.map_err(|why| Error::Unsupported { backend: BACKEND, capability: "NETWORK", why })
    }
}

/// What to look at when the network does not work.
pub(crate) const HINTS: &str = "NVSHMEM_REMOTE_TRANSPORT names the transport (ibrc, ucx, libfabric, ibdevx; none has none), \
     NVSHMEM_DISABLE_P2P=1 makes even GPUs of one host use it, and with ucx, or libfabric over efa, signals need GDRCopy (libgdrapi.so.2 and \
     its driver) or, from NVSHMEM 3.8 on, a driver of CUDA 13.3; NVSHMEM_DEBUG=WARN makes NVSHMEM say what it found";
