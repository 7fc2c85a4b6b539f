//! The row that a run appends: where it ran, and what it measured.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::io::Write;
use std::time::Instant;

use serde_json::{Map, Value, json};
use symm::{Backend, DType, Error, Options, Reach, Result, World};

pub(crate) struct Row {
    hosts: usize,
    pes: usize,
    backend: &'static str,
    transport: String,
    /// How long the world's first rendezvous took on this PE, in milliseconds.
    first_rendezvous: f64,
    rows: Map<String, Value>,
}

impl Row {
    /// # Collective
    /// Over the world.
    pub(crate) fn new(world: &World) -> Result<Self> {
        let team = world.team();
        let names = team.empty(&[team.world_size()], DType::U64)?;
        let began = Instant::now();
        let handle = names.rendezvous(team)?;
        let first_rendezvous = began.elapsed().as_secs_f64() * 1e3;
        let stream = world.stream()?;
        let mine = world.local(DType::U64, 1)?;
        let mut hash = DefaultHasher::new();
        std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default().hash(&mut hash);
        stream.write(&mine.span(), &[hash.finish()])?;
        team.all_gather(&stream, &mine.span(), &handle, Options::default())?;
        let mut hosts: Vec<u64> = stream.read(&names.span())?;
        stream.synchronize()?;
        hosts.sort_unstable();
        hosts.dedup();
        let direct = (0..world.n_pes()).all(|pe| world.reach(pe.into()) == Reach::Direct);
        let mut transport =
            if direct { "load and store".to_owned() } else { network(world.backend().name()) };
        if world.config().allow_shared_gpu {
            // Between PEs of one GPU what is called the link is that GPU's own memory.
            transport.push_str(", PEs may share a GPU");
        }
        Ok(Row {
            hosts: hosts.len(),
            pes: world.n_pes(),
            backend: world.backend().name(),
            transport,
            first_rendezvous,
            rows: Map::new(),
        })
    }

    pub(crate) fn name(&self) -> String {
        format!("{} hosts, {} PEs, {}", self.hosts, self.pes, self.transport)
    }

    /// `samples`: seconds an iteration; `bytes`: those that a PE sends in one.
    pub(crate) fn add(&mut self, op: &str, size: usize, bytes: f64, mut samples: Vec<f64>) {
        samples.sort_by(f64::total_cmp);
        let Some(median) = samples.get(samples.len() / 2) else { return };
        let mut measured = json!({ "microseconds": median * 1e6 });
        if bytes > 0.0 {
            measured["gigabytes_per_second"] = json!(bytes / median / 1e9);
        }
        self.rows.entry(op).or_insert_with(|| json!({}))[size.to_string()] = measured;
    }

    /// Appends the row to the file that `SCALE_OUT` names, if it is set.
    pub(crate) fn append(self) -> Result<()> {
        let Some(file) = std::env::var_os("SCALE_OUT") else { return Ok(()) };
        let row = json!({
            "hosts": self.hosts, "pes": self.pes, "backend": self.backend, "transport": self.transport,
            "first_rendezvous_milliseconds": self.first_rendezvous,
            "operations": self.rows,
        });
        let opened = std::fs::OpenOptions::new().create(true).append(true).open(&file);
        opened.and_then(|mut f| writeln!(f, "{row}")).map_err(|e| Error::Setting {
            name: "SCALE_OUT",
            got: format!("{} ({e})", file.to_string_lossy()),
            expected: "a file that can be written".to_owned(),
        })
    }
}

/// What moves bytes between hosts, as its settings name it.
fn network(backend: &str) -> String {
    if backend != "nvshmem" {
        return "made-up nodes".to_owned();
    }
    let set = |name| std::env::var(name).ok().filter(|v| !v.is_empty());
    let transport = set("NVSHMEM_REMOTE_TRANSPORT").unwrap_or_else(|| "its default transport".to_owned());
    // Elsewhere NVSHMEM may have chosen something else (before 3.8).
    let made_up = set("SYMM_MADE_UP_HOSTS").is_some();
    let over = set("UCX_TLS").filter(|_| made_up && transport == "ucx");
    let below = over.map(|t| format!(" ({t})")).unwrap_or_default();
    let heap = set("NVSHMEM_HEAP_KIND").map(|k| format!(", heap {k}")).unwrap_or_default();
    let made_up = if made_up { ", made-up hosts of one machine" } else { "" };
    format!("NVSHMEM {transport}{below}{heap}{made_up}")
}
