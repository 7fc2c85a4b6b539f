//! This PE: its world, a stream, and what it has to agree on with the others outside the streams.

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use serde_json::{Map, Value, json};
use symm_core::bootstrap::{Bootstrap, Group, Unix};
use symm_core::dtype::DType;
use symm_core::model::{Graph, Handle, Local, Stream, World};
use symm_core::{Backend, Config, Deadline, Pe};

pub(crate) struct Me<B: Backend> {
    pub(crate) world: World<B>,
    pub(crate) stream: Stream<B>,
    group: Group,
    init_ms: f64,
}

impl<B: Backend> Me<B> {
    pub(crate) fn start(mut config: Config) -> Result<Self> {
        config.timeout = Duration::from_secs(20);
        let began = std::time::Instant::now();
        let boot: Arc<dyn Bootstrap> = Unix::join(&config)?;
        let everybody = (0..boot.n_pes()).map(Pe::from).collect();
        let group = Group::new(boot.clone(), u64::from_le_bytes(*b"spike..."), everybody)?;
        let world = World::<B>::init(boot, config)?;
        let init_ms = began.elapsed().as_secs_f64() * 1e3;
        let stream = world.stream()?;
        Ok(Me { world, stream, group, init_ms })
    }

    pub(crate) fn pe(&self) -> usize {
        self.group.my_rank()
    }

    pub(crate) fn n(&self) -> usize {
        self.group.len()
    }

    /// Meets the others on the host.
    pub(crate) fn meet(&self) -> Result<()> {
        Ok(self.group.barrier("spike", Deadline::after(Duration::from_secs(120)))?)
    }

    /// The largest of everybody's value.
    pub(crate) fn max(&self, value: f64) -> Result<f64> {
        let all = self.group.all_gather(
            "spike",
            &value.to_le_bytes(),
            Deadline::after(Duration::from_secs(120)),
        )?;
        let values = all.iter().map(|b| Ok(f64::from_le_bytes(b.as_slice().try_into().context("8 bytes")?)));
        values.collect::<Result<Vec<_>>>().map(|v| v.into_iter().fold(f64::MIN, f64::max))
    }

    /// A symmetric tensor of bytes and its handle over the world.
    pub(crate) fn symmetric(&self, bytes: usize) -> Result<Handle<B>> {
        Ok(self.world.team().empty(&[bytes], DType::U8)?.rendezvous(self.world.team())?)
    }

    pub(crate) fn local<T: symm_core::Element>(&self, values: &[T]) -> Result<Local<B>> {
        let local = self.world.local(T::DTYPE, values.len())?;
        self.stream.write(&local.span(), values)?;
        Ok(local)
    }

    pub(crate) fn capture(&self, body: impl FnOnce() -> Result<()>) -> Result<Graph<B>> {
        self.stream.begin_capture()?;
        let done = body();
        let graph = self.stream.end_capture();
        done?;
        Ok(graph?)
    }

    pub(crate) fn launch(&self, graph: &Graph<B>) -> Result<()> {
        // SAFETY: callers keep what they captured until they have synchronised; all PEs launch in the same order.
        unsafe { self.stream.launch(graph)? };
        Ok(())
    }

    /// Writes the figures, with the machine, as one line.
    pub(crate) fn write(&self, figures: Map<String, Value>) -> Result<()> {
        let folder = std::env::var("OUT").unwrap_or_else(|_| ".".to_owned());
        let mut line = Map::new();
        for (key, name) in [
            ("machine", "SPIKE_MACHINE"),
            ("driver", "SPIKE_DRIVER"),
            ("commit", "SPIKE_COMMIT"),
            ("date", "SPIKE_DATE"),
        ] {
            line.insert(key.to_owned(), json!(std::env::var(name).unwrap_or_default()));
        }
        line.insert("pes".to_owned(), json!(self.n()));
        line.insert("init_ms".to_owned(), json!(self.init_ms));
        line.extend(figures);
        let text = serde_json::to_string(&line)? + "\n";
        print!("{text}");
        std::fs::write(std::path::Path::new(&folder).join("spike.json"), text)?;
        Ok(())
    }
}

/// SplitMix64: the same numbers on every PE from the same seed.
pub(crate) struct Random(pub(crate) u64);

impl Random {
    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    pub(crate) fn below(&mut self, n: usize) -> usize {
        (self.next() % n.max(1) as u64) as usize
    }

    pub(crate) fn bytes(&mut self, n: usize) -> Vec<u8> {
        let mut all: Vec<u8> = (0..n.div_ceil(8)).flat_map(|_| self.next().to_le_bytes()).collect();
        all.truncate(n);
        all
    }
}

/// Equal bytes, or the first place where they differ.
pub(crate) fn same(what: &str, got: &[u8], expected: &[u8]) -> Result<()> {
    ensure!(got.len() == expected.len(), "{what}: {} bytes, expected {}", got.len(), expected.len());
    if let Some(i) = got.iter().zip(expected).position(|(a, b)| a != b) {
        let wrong = got.iter().zip(expected).filter(|(a, b)| a != b).count();
        anyhow::bail!(
            "{what}: byte {i} is {:#x}, expected {:#x}; {wrong} bytes of {} differ",
            got[i],
            expected[i],
            got.len()
        );
    }
    Ok(())
}
