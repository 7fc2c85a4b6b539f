//! Opening the backend together: every PE has a GPU, no GPU has two PEs, and every pair has really reached each other.

use std::os::fd::AsFd;
use std::sync::Arc;

use symm_core::backend::Export;
use symm_core::bootstrap::{Bootstrap, Group};
use symm_core::{Config, Deadline, Error, Pe, Result};

use crate::choice::{Offer, chosen, same_gpu};
use crate::device::{Atomics, Device};
use crate::launch::Kernels;
use crate::result::BACKEND;
use crate::share::{self, Descriptors, Handles, Plan};
use crate::shared::Shared;
use crate::vmm::{Mapped, OnThisGpu};

/// Id of the group of all PEs that only `init` of this backend uses.
const TEAM: u64 = u64::from_le_bytes(*b"cuda....");
const OP: &str = "init";
const PAGE: usize = 4096;

/// What the PEs agreed on.
#[derive(Debug)]
pub(crate) struct Opened {
    pub(crate) shared: Arc<Shared>,
    pub(crate) kernels: Kernels,
    /// For each PE: whether this GPU's atomics work on its memory.
    pub(crate) atomics: Vec<Atomics>,
    /// Whether all PEs are on one host, so that one's end can be proven.
    pub(crate) one_host: bool,
    /// What memory is shared as instead of what was asked for, and why.
    pub(crate) fallback: Option<String>,
}

/// All PEs of the world, during `init`.
struct Probe<'a> {
    boot: &'a Arc<dyn Bootstrap>,
    group: Group,
    deadline: Deadline,
    allow_shared_gpu: bool,
}

/// Opens the device, compares, and imports a test page of every peer.
///
/// # Collective
/// Over the world.
///
/// # Errors
/// On all PEs alike: `Unavailable` if some PE has no GPU, `Unsupported` naming the first pair that cannot reach each other.
pub(crate) fn open(boot: &Arc<dyn Bootstrap>, config: &Config) -> Result<Opened> {
    let everybody = (0..boot.n_pes()).map(Pe::from).collect();
    let probe = Probe {
        boot,
        group: Group::new(boot.clone(), TEAM, everybody)?,
        deadline: Deadline::after(config.init_timeout),
        allow_shared_gpu: config.allow_shared_gpu,
    };
    let unavailable =
        |pe, why: &str| Error::Unavailable { backend: BACKEND.to_owned(), why: format!("PE {pe}: {why}") };
    let offers = probe.agree(said(&Offer::here(config.device).map(|o| o.to_bytes())), unavailable)?;
    let ordinal = chosen(boot.pe(), &offers)?;
    let opened = Device::open(ordinal).and_then(|d| Kernels::load(&d).map(|kernels| (d, kernels)));
    let mine = opened.as_ref().map(|(d, _)| d.uuid.to_vec()).map_err(Clone::clone);
    let uuids = probe.agree(said(&mine), unavailable)?;
    let (device, kernels) = opened?;
    let uuids = uuids
        .iter()
        .map(|u| <[u8; 16]>::try_from(u.as_slice()))
        .collect::<Result<Vec<_>, _>>()
        .map_err(|_| Error::Bootstrap { call: OP, why: "a GPU id of another length".to_owned() })?;
    let mine = probe.neighbours(&uuids).map(|()| probe.descriptors(&device).to_bytes());
    let descriptors = probe.agree(mine, unsupported)?;
    let descriptors = descriptors.iter().map(|d| Descriptors::from_bytes(d)).collect::<Option<Vec<_>>>();
    let descriptors = descriptors.ok_or_else(|| Error::Bootstrap {
        call: OP,
        why: "what a PE can share has another length".to_owned(),
    })?;
    let here = uuids.iter().filter(|u| **u == device.uuid).count();
    let shared = probe.step(Shared::new(device.shared_by(here)).map_err(|e| e.to_string()))?;
    // Every step is agreed on before the next, so that nobody waits for a PE that has given up.
    let (handles, fallback) = probe.share(&shared, &config.handle, &descriptors)?;
    shared.handles.get_or_init(|| handles);
    let (page, export) = probe.step(test_page(&shared))?;
    let exports = probe.exchange(&export)?;
    let imports = probe.step(probe.import(&shared, &exports))?;
    probe.step(probe.write(&shared, &imports))?;
    probe.step(probe.verify(&shared, &page))?;
    let atomics = probe.step(shared.device.atomics_with(&uuids).map_err(|e| e.to_string()))?;
    let one_host = descriptors.iter().all(|d| d.not_to.is_none());
    Ok(Opened { shared, kernels, atomics, one_host, fallback })
}

/// What is told of a result to PEs that put a name before it.
fn said(mine: &Result<Vec<u8>>) -> Result<Vec<u8>, String> {
    mine.clone().map_err(|e| match e {
        Error::Unavailable { why, .. } => why,
        e => e.to_string(),
    })
}

fn unsupported(pe: Pe, why: &str) -> Error {
    let why = if why.starts_with("PE ") { why.to_owned() } else { format!("PE {pe}: {why}") };
    Error::Unsupported { backend: BACKEND, capability: "PEER_LOAD_STORE", why }
}

/// The word that `writer` leaves in `owner`'s page.
fn word(writer: Pe, owner: Pe) -> u64 {
    0x5359_4d4d << 32 | u64::from(writer.0) << 16 | u64::from(owner.0)
}

/// A page with this PE's own word, and its export.
fn test_page(shared: &Arc<Shared>) -> Result<(Mapped, Export), String> {
    let make = || {
        let page = Mapped::allocate(shared, PAGE)?;
        shared.zero(page.base, PAGE)?;
        let export = page.export()?;
        Ok((page, export))
    };
    make().map_err(|e: Error| format!("test page: {e}"))
}

impl Probe<'_> {
    /// Gathers what every PE has; if some have an error, all get that of the lowest.
    fn agree(
        &self,
        mine: Result<Vec<u8>, String>,
        error: impl Fn(Pe, &str) -> Error,
    ) -> Result<Vec<Vec<u8>>> {
        self.group.agree(OP, mine, self.deadline, error)
    }

    /// A step that all must have passed.
    fn step<T>(&self, mine: Result<T, String>) -> Result<T> {
        let said = mine.as_ref().map(|_| Vec::new()).map_err(Clone::clone);
        self.agree(said, unsupported)?;
        mine.map_err(|why| unsupported(self.boot.pe(), &why))
    }

    fn me(&self) -> Pe {
        self.boot.pe()
    }

    fn others(&self) -> impl Iterator<Item = Pe> + '_ {
        self.group.members().iter().copied().filter(|pe| *pe != self.me())
    }

    /// Checks who the other PEs are before anything is sent to them.
    fn neighbours(&self, uuids: &[[u8; 16]]) -> Result<(), String> {
        let me = self.me();
        if uuids.len() > usize::from(u16::MAX) {
            return Err(format!("{} PEs, more than this backend serves", uuids.len()));
        }
        for pe in self.others() {
            if uuids[pe.index()] == uuids[me.index()] && !self.allow_shared_gpu {
                return Err(same_gpu(me, pe));
            }
        }
        Ok(())
    }

    /// What this PE can do with descriptors.
    fn descriptors(&self, device: &Device) -> Descriptors {
        let not_to = self.others().find(|pe| !self.boot.passes_fds(*pe));
        Descriptors { exported: device.descriptors, not_to }
    }

    /// Decides, the same on all PEs, what memory is exported as; where it is not what was asked for, a sentence says why.
    fn share(
        &self,
        shared: &Arc<Shared>,
        setting: &str,
        all: &[Descriptors],
    ) -> Result<(Handles, Option<String>)> {
        let nothing_left = |why: String| unsupported(self.me(), &why);
        let fd = match share::plan(setting, all).map_err(nothing_left)? {
            Plan::Fd => return Ok((Handles::Fd, None)),
            Plan::TryFabric(fd) => fd,
        };
        // Empty: they work here.
        let mine = share::attempt(&OnThisGpu(shared, Handles::Fabric)).err().unwrap_or_default();
        let tried = self.group.all_gather(OP, mine.as_bytes(), self.deadline)?;
        let why = |said: &Vec<u8>| match said.is_empty() {
            true => Ok(()),
            false => Err(String::from_utf8_lossy(said).into_owned()),
        };
        share::settle(fd, &tried.iter().map(why).collect::<Vec<_>>()).map_err(nothing_left)
    }

    /// Sends the page to everybody and gets everybody's.
    fn exchange(&self, export: &Export) -> Result<Vec<Option<Export>>> {
        let tag = self.group.next_tag();
        let fds: Vec<_> = export.fds.iter().map(AsFd::as_fd).collect();
        for pe in self.others() {
            self.boot.send(pe, tag, &export.bytes, &fds)?;
        }
        let mut all = Vec::with_capacity(self.group.len());
        for pe in self.group.members() {
            all.push(if *pe == self.me() {
                None
            } else {
                let m = self.boot.recv(*pe, tag, self.deadline)?;
                Some(Export { bytes: m.payload, fds: m.fds })
            });
        }
        Ok(all)
    }

    fn import(
        &self,
        shared: &Arc<Shared>,
        exports: &[Option<Export>],
    ) -> Result<Vec<Option<Mapped>>, String> {
        let import = |(pe, export): (&Pe, &Option<Export>)| {
            export
                .as_ref()
                .map(|e| {
                    Mapped::import(shared, e)
                        .map_err(|why| format!("PE {} cannot import memory of PE {pe}: {why}", self.me()))
                })
                .transpose()
        };
        self.group.members().iter().zip(exports).map(import).collect()
    }

    /// Leaves a word in everybody's page and reads it back over the link.
    fn write(&self, shared: &Shared, imports: &[Option<Mapped>]) -> Result<(), String> {
        let me = self.me();
        for (pe, page) in self.group.members().iter().zip(imports) {
            let Some(page) = page else { continue };
            let (mine, at) = (word(me, *pe), page.base + 8 * (me.index() % (PAGE / 8)) as u64);
            let mut back = [0];
            let done = shared.upload(at, &[mine]).and_then(|()| shared.download(at, &mut back));
            done.map_err(|e| format!("PE {me} cannot access memory of PE {pe}: {e}"))?;
            if back != [mine] && self.group.len() <= PAGE / 8 {
                return Err(format!("PE {me} wrote {mine:#x} to PE {pe} and read {:#x}", back[0]));
            }
        }
        Ok(())
    }

    /// Finds everybody's word in this PE's own page.
    fn verify(&self, shared: &Shared, page: &Mapped) -> Result<(), String> {
        let me = self.me();
        let mut words = vec![0; PAGE / 8];
        shared.download(page.base, &mut words).map_err(|e| e.to_string())?;
        if self.group.len() > words.len() {
            return Ok(());
        }
        for pe in self.others() {
            let (expected, got) = (word(pe, me), words[pe.index()]);
            if got != expected {
                return Err(format!("PE {pe} wrote {expected:#x} to PE {me}, which has {got:#x}"));
            }
        }
        Ok(())
    }
}
