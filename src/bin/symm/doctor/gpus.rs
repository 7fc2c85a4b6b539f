//! What the driver says of GPUs, where this build can ask it.

use serde::{Deserialize, Serialize};

use super::probe;

#[derive(Debug, Default, Serialize, Deserialize)]
pub(super) struct Gpus {
    /// Version of the kernel module, if one is loaded.
    pub(super) kernel_module: Option<String>,
    /// CUDA version of the driver library, and the one that the cuda backend needs.
    pub(super) driver: Option<String>,
    pub(super) needed: Option<String>,
    /// Whether this build carries GPU kernels.
    pub(super) kernels: Option<bool>,
    /// Why GPUs could not be asked, or what keeps the backend from starting.
    pub(super) why: Option<String>,
    pub(super) gpus: Vec<Gpu>,
    pub(super) links: Vec<Link>,
    /// Channels for memory handles of other hosts.
    pub(super) imex_channels: usize,
}

#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Gpu {
    pub(super) name: String,
    pub(super) pci: String,
    pub(super) uuid: String,
    pub(super) compute_capability: Option<String>,
    pub(super) multiprocessors: Option<u32>,
    /// Bytes.
    pub(super) memory: Option<u64>,
    /// Bytes that nobody has taken; `None` where NVML does not say.
    pub(super) free: Option<u64>,
    /// What it offers, by name; `None` where the driver does not know the question.
    pub(super) offers: Vec<(String, Option<bool>)>,
    /// Ways to share its memory, each tried.
    pub(super) handles: Vec<Handles>,
}

/// A kind of memory handle: some memory was exported, imported again, and what was written to the one looked for in the other.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Handles {
    /// `file descriptors` (between PEs of one host), `fabric handles` (between hosts of one NVLink domain, too), or both where the GPU
    /// could not be opened.
    pub(super) name: String,
    pub(super) work: bool,
    /// Why not.
    pub(super) why: Option<String>,
}

#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Link {
    pub(super) from: u32,
    pub(super) to: u32,
    /// `none`, `load/store`, or `load/store, atomics`.
    pub(super) kind: String,
    /// Whether NVLink joins them; `None` where NVML does not say.
    pub(super) nvlink: Option<bool>,
    pub(super) performance_rank: u32,
}

pub(super) fn ask() -> Gpus {
    let mut found: Gpus = probe::ask("gpus").unwrap_or_else(|why| Gpus { why: Some(why), ..Gpus::default() });
    // Each in a process of its own, which ends with the context that it made; all at once, since a GPU's start takes a while.
    std::thread::scope(|scope| {
        for (i, gpu) in found.gpus.iter_mut().enumerate().filter(|_| cfg!(feature = "cuda")) {
            scope.spawn(move || {
                let tried = probe::ask(&format!("handles:{i}"));
                gpu.handles = tried.unwrap_or_else(|why| vec![neither(why)]);
            });
        }
    });
    found
}

fn neither(why: String) -> Handles {
    Handles { name: "file descriptors, fabric handles".to_owned(), work: false, why: Some(why) }
}

/// Tries the handles of the GPU with this number.
#[cfg(feature = "cuda")]
pub(super) fn handles(of: &str) -> Vec<Handles> {
    let tried = of.parse().map_err(|_| format!("no GPU has the number {of:?}"));
    let tried = tried.and_then(|gpu| {
        symm_cuda::try_handles(gpu).map_err(|e| match e {
            symm::Error::Unavailable { why, .. } => why,
            e => e.to_string(),
        })
    });
    match tried {
        Err(why) => vec![neither(why)],
        Ok(t) => [("file descriptors", t.posix_fd), ("fabric handles", t.fabric)]
            .map(|(name, tried)| Handles { name: name.to_owned(), work: tried.is_ok(), why: tried.err() })
            .into(),
    }
}

/// Without the backend nothing can be tried, and nobody asks.
#[cfg(not(feature = "cuda"))]
pub(super) fn handles(_of: &str) -> Vec<Handles> {
    Vec::new()
}

#[cfg(feature = "cuda")]
pub(super) fn look() -> Gpus {
    let found = symm_cuda::inspect();
    let version = |(major, minor): (u32, u32)| format!("{major}.{minor}");
    let gpu = |g: &symm_cuda::Gpu| Gpu {
        name: g.name.clone(),
        pci: g.pci.clone(),
        uuid: g.uuid.clone(),
        compute_capability: Some(version(g.compute_capability)),
        multiprocessors: Some(g.multiprocessors),
        memory: Some(g.memory),
        free: g.free,
        offers: [
            ("virtual memory", g.virtual_memory),
            ("file descriptors", g.handles_posix_fd),
            ("fabric handles", g.handles_fabric),
            ("multicast", g.multicast),
            ("several processes", g.several_processes),
            ("MPS client", g.mps),
        ]
        .into_iter()
        .map(|(name, has)| (name.to_owned(), has))
        .collect(),
        handles: Vec::new(),
    };
    let link = |l: &symm_cuda::Link| {
        let kind = match (l.access, l.atomics) {
            (false, _) => "none",
            (true, true) => "load/store, atomics",
            (true, false) => "load/store",
        };
        let (kind, performance_rank) = (kind.to_owned(), l.performance_rank);
        Link { from: l.from, to: l.to, kind, nvlink: l.nvlink, performance_rank }
    };
    Gpus {
        kernel_module: found.kernel_module.clone(),
        driver: found.driver.map(version),
        needed: Some(version(found.needed)),
        kernels: Some(found.kernels),
        why: found.unavailable.clone(),
        gpus: found.gpus.iter().map(gpu).collect(),
        links: found.links.iter().map(link).collect(),
        imex_channels: found.imex_channels.len(),
    }
}

/// Without the backend only what the kernel module shows can be told.
#[cfg(not(feature = "cuda"))]
pub(super) fn look() -> Gpus {
    let folders = std::fs::read_dir("/proc/driver/nvidia/gpus").into_iter().flatten();
    let gpu = |entry: std::fs::DirEntry| {
        let text = std::fs::read_to_string(entry.path().join("information")).ok()?;
        let field = |name: &str| {
            let line = text.lines().find_map(|l| l.strip_prefix(name)?.trim().strip_prefix(':'));
            line.unwrap_or_default().trim().to_owned()
        };
        Some(Gpu {
            name: field("Model"),
            pci: field("Bus Location"),
            uuid: field("GPU UUID"),
            compute_capability: None,
            multiprocessors: None,
            memory: None,
            free: None,
            offers: Vec::new(),
            handles: Vec::new(),
        })
    };
    let module = std::fs::read_to_string("/sys/module/nvidia/version").ok();
    let why = if module.is_some() {
        "this build cannot ask the driver: build with the feature `cuda`"
    } else {
        "no NVIDIA kernel module is loaded"
    };
    Gpus {
        kernel_module: module.map(|m| m.trim().to_owned()),
        why: Some(why.to_owned()),
        gpus: folders.filter_map(|entry| gpu(entry.ok()?)).collect(),
        ..Gpus::default()
    }
}
