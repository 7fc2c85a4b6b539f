//! How memory is shared with other PEs: as file descriptors within a host, as fabric handles within an NVLink domain.
//!
//! A fabric handle is 64 bytes that any process of the domain may import, on whatever host, where the machine's fabric is set up
//! (an IMEX channel, a fabric manager). The driver's attribute says no more than that the GPU could: so a fabric handle is used only
//! once every PE has exported one, imported it and found there what it had written ([`attempt`]).
//!
//! Descriptors are the default: they need nothing of the machine and end with their process. Fabric handles are taken where some pair of
//! PEs cannot pass descriptors to each other, or where `SYMM_HANDLE=fabric` asks for them.

use std::fmt;

use symm_core::backend::Export;
use symm_core::{Pe, Result};

/// What a PE exports.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Handles {
    /// Descriptors, passed by SCM_RIGHTS.
    Fd,
    /// 64 bytes that travel like any message.
    Fabric,
}

impl fmt::Display for Handles {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Handles::Fd => "file descriptors",
            Handles::Fabric => "fabric handles",
        })
    }
}

impl Handles {
    fn one(self) -> &'static str {
        match self {
            Handles::Fd => "a file descriptor",
            Handles::Fabric => "a fabric handle",
        }
    }
}

/// What one PE can do with descriptors, known before any memory is made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Descriptors {
    /// Whether its GPU exports memory as a descriptor.
    pub(crate) exported: bool,
    /// A PE that it cannot pass one to.
    pub(crate) not_to: Option<Pe>,
}

impl Descriptors {
    pub(crate) fn to_bytes(self) -> Vec<u8> {
        let far = self.not_to.map_or(u64::MAX, |pe| u64::from(pe.0));
        let mut bytes = vec![u8::from(self.exported)];
        bytes.extend(far.to_le_bytes());
        bytes
    }

    /// `None` if a PE sent something else.
    pub(crate) fn from_bytes(bytes: &[u8]) -> Option<Self> {
        let (exported, far) = bytes.split_first()?;
        let far = u64::from_le_bytes(far.try_into().ok()?);
        let not_to = (far != u64::MAX).then(|| u32::try_from(far).map(Pe)).transpose().ok()?;
        Some(Descriptors { exported: *exported == 1, not_to })
    }
}

/// What is to be done, the same on every PE since it follows from what all said.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Plan {
    /// Descriptors serve every pair.
    Fd,
    /// Every PE tries fabric handles; where that fails somewhere, descriptors are what is left, or `Err` says why they do not serve.
    TryFabric(Result<(), String>),
}

/// Makes the plan of what `SYMM_HANDLE` says and what all PEs can do, in PE order.
///
/// # Errors
/// Why no way is left: descriptors are asked for and do not serve.
pub(crate) fn plan(setting: &str, all: &[Descriptors]) -> Result<Plan, String> {
    let fd = all.iter().enumerate().try_for_each(|(pe, d)| match d {
        Descriptors { exported: false, .. } => {
            Err(format!("the GPU of PE {pe} exports no memory as a file descriptor"))
        }
        Descriptors { not_to: Some(other), .. } => Err(format!("PE {pe} and PE {other} are not on one host")),
        _ => Ok(()),
    });
    match setting {
        "fabric" => Ok(Plan::TryFabric(fd)),
        "fd" => fd.map(|()| Plan::Fd),
        _ if fd.is_ok() => Ok(Plan::Fd),
        _ => Ok(Plan::TryFabric(fd)),
    }
}

/// What comes of trying: the kind, and a sentence for [`Stats::fallbacks`](symm_core::model::Stats) if it is not what was asked for.
/// `tried`: of every PE, why fabric handles do not work there.
///
/// # Errors
/// Why neither works.
pub(crate) fn settle(
    fd: Result<(), String>,
    tried: &[Result<(), String>],
) -> Result<(Handles, Option<String>), String> {
    let failed = tried.iter().enumerate().find_map(|(pe, t)| t.as_ref().err().map(|why| (pe, why)));
    match (failed, fd) {
        (None, _) => Ok((Handles::Fabric, None)),
        (Some((pe, why)), Ok(())) => {
            let sentence =
                format!("memory handles: file descriptors, not fabric handles, because of PE {pe}: {why}");
            Ok((Handles::Fd, Some(sentence)))
        }
        (Some((pe, why)), Err(no_fd)) => Err(format!(
            "{no_fd}, and fabric handles do not work: PE {pe}: {why} (symm doctor shows handle types and IMEX channels)"
        )),
    }
}

/// The driver's calls that the test of one kind of handles makes on one GPU.
pub(crate) trait Attempt {
    /// Memory that is mapped here; unmapped when dropped.
    type Memory;
    /// The kind.
    fn handles(&self) -> Handles;
    /// What the GPU's attribute says.
    fn supported(&self) -> Result<bool>;
    /// What the machine lacks that such handles need.
    fn lacks(&self) -> Option<String>;
    fn create(&self) -> Result<Self::Memory>;
    fn export(&self, memory: &Self::Memory) -> Result<Export>;
    fn import(&self, export: &Export) -> Result<Self::Memory>;
    fn write(&self, memory: &Self::Memory, word: u64) -> Result<()>;
    fn read(&self, memory: &Self::Memory) -> Result<u64>;
}

/// Whether handles of a kind work in this process: exports one, imports it again and compares.
///
/// # Errors
/// The step that failed, with the driver's call and code, and what the machine lacks.
pub(crate) fn attempt<A: Attempt>(a: &A) -> Result<(), String> {
    let (all, one) = (a.handles(), a.handles().one());
    if !a.supported().map_err(|e| format!("{all}: {e}"))? {
        return Err(format!("the GPU has no {all} for its memory"));
    }
    let step = |what: String| {
        move |e: symm_core::Error| match a.lacks() {
            Some(lacks) => format!("{what}: {e}; {lacks}"),
            None => format!("{what}: {e}"),
        }
    };
    let memory = a.create().map_err(step(format!("memory with {one}")))?;
    let export = a.export(&memory).map_err(step(format!("export of {one}")))?;
    let imported = a.import(&export).map_err(step(format!("import of {one}")))?;
    for word in [0x5359_4d4d_4642_5243, 0xa5a5_5a5a_0ff0_f00f] {
        a.write(&memory, word).map_err(step(format!("write to memory with {one}")))?;
        let back = a.read(&imported).map_err(step("read of imported memory".to_owned()))?;
        if back != word {
            return Err(format!("imported memory has {back:#x} where its owner wrote {word:#x}"));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::cell::{Cell, RefCell};
    use std::rc::Rc;

    use symm_core::Error;

    use super::*;

    const HERE: Descriptors = Descriptors { exported: true, not_to: None };
    const FAR: Descriptors = Descriptors { exported: true, not_to: Some(Pe(2)) };
    const NONE: Descriptors = Descriptors { exported: false, not_to: None };

    fn no_fd(why: &str) -> Plan {
        Plan::TryFabric(Err(why.to_owned()))
    }

    #[test]
    fn descriptors_serve_one_host_and_nothing_else_is_tried() {
        assert_eq!(plan("auto", &[HERE; 3]), Ok(Plan::Fd));
        assert_eq!(plan("fd", &[HERE; 3]), Ok(Plan::Fd));
        assert_eq!(plan("fabric", &[HERE; 3]), Ok(Plan::TryFabric(Ok(()))));
    }

    #[test]
    fn where_descriptors_do_not_serve_fabric_handles_are_tried_or_the_reason_is_said() {
        assert_eq!(plan("auto", &[HERE, FAR]), Ok(no_fd("PE 1 and PE 2 are not on one host")));
        assert_eq!(
            plan("auto", &[HERE, NONE]),
            Ok(no_fd("the GPU of PE 1 exports no memory as a file descriptor"))
        );
        assert_eq!(plan("fabric", &[FAR]), Ok(no_fd("PE 0 and PE 2 are not on one host")));
        assert_eq!(plan("fd", &[HERE, FAR]), Err("PE 1 and PE 2 are not on one host".to_owned()));
    }

    #[test]
    fn what_was_tried_decides() {
        let works = [Ok(()), Ok(())];
        let fails = [Ok(()), Err("no IMEX".to_owned())];
        assert_eq!(settle(Ok(()), &works), Ok((Handles::Fabric, None)));
        assert_eq!(settle(Err("two hosts".to_owned()), &works), Ok((Handles::Fabric, None)));
        let (kind, sentence) = settle(Ok(()), &fails).expect("descriptors are left");
        assert_eq!(kind, Handles::Fd);
        assert!(sentence.is_some_and(|s| s.contains("PE 1: no IMEX")));
        let why = settle(Err("two hosts".to_owned()), &fails).expect_err("nothing is left");
        assert!(why.contains("two hosts") && why.contains("PE 1: no IMEX"), "{why}");
    }

    #[test]
    fn what_a_pe_can_do_travels() {
        for d in [HERE, FAR, NONE, Descriptors { exported: false, not_to: Some(Pe(u32::MAX)) }] {
            assert_eq!(Descriptors::from_bytes(&d.to_bytes()), Some(d));
        }
        for wrong in [&[][..], &[1], &[1; 8], &[1; 10], &[1, 0, 0, 0, 0, 1, 0, 0, 0]] {
            assert_eq!(Descriptors::from_bytes(wrong), None, "{wrong:?}");
        }
    }

    /// A driver that fails at the named call, or imports other memory than was exported. Counts the memory that lives.
    #[derive(Default)]
    struct Fake {
        handles: Option<Handles>,
        unsupported: bool,
        lacks: Option<&'static str>,
        fails: Option<&'static str>,
        other_memory: bool,
        exported: RefCell<Option<Rc<Cell<u64>>>>,
        live: Rc<()>,
    }

    struct Memory {
        word: Rc<Cell<u64>>,
        _live: Rc<()>,
    }

    impl Fake {
        fn call(&self, call: &'static str) -> Result<()> {
            match self.fails {
                Some(fails) if fails == call => {
                    Err(Error::Backend { backend: "fake", call, code: 800, text: "not permitted".to_owned() })
                }
                _ => Ok(()),
            }
        }

        fn memory(&self, word: Rc<Cell<u64>>) -> Memory {
            Memory { word, _live: self.live.clone() }
        }
    }

    impl Attempt for Fake {
        type Memory = Memory;

        fn handles(&self) -> Handles {
            self.handles.unwrap_or(Handles::Fabric)
        }

        fn lacks(&self) -> Option<String> {
            self.lacks.map(str::to_owned)
        }

        fn supported(&self) -> Result<bool> {
            self.call("attribute").map(|()| !self.unsupported)
        }

        fn create(&self) -> Result<Memory> {
            self.call("create").map(|()| self.memory(Rc::default()))
        }

        fn export(&self, memory: &Memory) -> Result<Export> {
            self.call("export")?;
            *self.exported.borrow_mut() = Some(memory.word.clone());
            Ok(Export { bytes: vec![0; 72], fds: Vec::new() })
        }

        fn import(&self, _export: &Export) -> Result<Memory> {
            self.call("import")?;
            let word = self.exported.borrow().clone().filter(|_| !self.other_memory).unwrap_or_default();
            Ok(self.memory(word))
        }

        fn write(&self, memory: &Memory, word: u64) -> Result<()> {
            self.call("write")?;
            memory.word.set(word);
            Ok(())
        }

        fn read(&self, memory: &Memory) -> Result<u64> {
            self.call("read").map(|()| memory.word.get())
        }
    }

    #[test]
    fn an_attribute_alone_is_not_enough() {
        for (handles, words) in [(Handles::Fabric, "fabric handle"), (Handles::Fd, "file descriptor")] {
            let fake = || Fake { handles: Some(handles), ..Fake::default() };
            assert_eq!(attempt(&fake()), Ok(()));
            for call in ["attribute", "create", "export", "import", "write", "read"] {
                let fake = Fake { fails: Some(call), lacks: Some("no channel"), ..fake() };
                let why = attempt(&fake).expect_err(call);
                assert!(why.contains(call) && why.contains("800"), "{why}");
                assert_eq!(why.ends_with("; no channel"), call != "attribute", "{why}");
                assert_eq!(Rc::strong_count(&fake.live), 1, "{call}: memory is left");
            }
            let why = attempt(&Fake { unsupported: true, ..fake() }).expect_err("not supported");
            assert!(why.contains("the GPU has no") && why.contains(words), "{why}");
            let why = attempt(&Fake { other_memory: true, ..fake() }).expect_err("other memory");
            assert!(why.contains("imported memory has"), "{why}");
        }
    }
}
