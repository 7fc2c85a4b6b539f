//! Every `SYMM_*` setting, in one documented struct.

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::fmt;
use std::time::Duration;

use crate::error::{Error, Result};
use crate::misspelt;

/// Settings of a world. [`Config::from_env`] reads the variables; a builder may change any field before `init`.
///
/// Fields marked *equal* must be the same on every PE; `init` compares them and fails on all with
/// [`Error::SettingDiffers`].
///
/// Not here, since they are read where a library is loaded: `SYMM_NVSHMEM_LIB` (or `NVSHMEM_HOME`), the path of
/// `libnvshmem_host.so.3`, `SYMM_NVJITLINK_LIB`, the path of `libnvJitLink`, and `SYMM_KERNELS`, a folder of `NAME.fatbin` with
/// kernels of the cuda backend in place of those built in (tests of other builds of them). `SYMM_CUDA_ARCHS` says at build time for which
/// architectures kernels are compiled.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Config {
    /// `SYMM_PE`: this process's number in the world. Set by `symm run`. Unset: 0.
    pub pe: Option<u32>,
    /// `SYMM_N_PES`: processes in the world, 1 or more. Set by `symm run`. Unset: 1. *Equal.*
    pub n_pes: Option<u32>,
    /// `SYMM_JOB`: name of the job, which keeps jobs on one host apart; letters, digits, `-`, `_`, `.`, 64 at most.
    /// Set by `symm run`; needed when `n_pes` is above 1 and there is no `address`.
    pub job: Option<String>,
    /// `SYMM_BOOTSTRAP`: how the PEs find each other. `auto` (default) takes what is there, in the order of
    /// [`Family`](crate::bootstrap::Family); `symm`, `pmix`, `pmi`, `torchrun`, `slurm` and (feature `mpi`) `mpi` name one,
    /// `alone` is a world of one PE whatever started it.
    pub bootstrap: String,
    /// `SYMM_ADDR`: `HOST:PORT` at which PE 0 listens while the PEs find each other, for PEs on several hosts. Unset: all
    /// are on this host.
    pub address: Option<String>,
    /// `SYMM_PORT`: the port for that under torchrun. Unset: `MASTER_PORT` + 1, since torchrun's store has `MASTER_PORT`.
    pub port: Option<u16>,
    /// `SYMM_TOKEN`: the job's secret, equal on all PEs and known to nobody else. Never sent: PEs prove that they have it.
    /// Set by `symm run`; PMIx, PMI and MPI carry one by themselves. Other starts over several hosts are refused without.
    pub token: Option<Token>,
    /// `SYMM_INSECURE`: `1` lets PEs on several hosts start without a secret: whoever reaches the ports can join.
    /// Default 0.
    pub insecure: bool,
    /// `SYMM_IFNAME`: beginnings of the names of the network interfaces over which PEs of several hosts connect, with
    /// commas between them. Unset: all that are up.
    pub interfaces: Option<String>,
    /// `SYMM_BACKEND`: `auto` (default), `host`, `cuda`, `nvshmem`. *Equal.*
    pub backend: String,
    /// `SYMM_HOST_NODES`: splits the PEs of the host backend into this many made-up nodes with no pointers between
    /// them (PE p of n is on node ⌊p·k/n⌋). Default 1, at least 1. *Equal.*
    pub host_nodes: u32,
    /// `SYMM_HOST_SEED`: seeds the delays and reordering between made-up nodes. Default 0.
    pub host_seed: u64,
    /// `SYMM_HOST_DELAY_US`: longest delay of a message between made-up nodes, in µs. Default 200.
    pub host_delay_us: u64,
    /// `SYMM_HOST_PLANS`: `0` leaves the host backend without the planned form of exchanges, so that exchange plans publish
    /// their splits in every call, as they do over members that only NVSHMEM reaches: for tests of that. Default 1.
    pub host_plans: bool,
    /// `SYMM_SIGNAL_PAD_BYTES`: bytes of PyTorch-style slots in each signal pad, a positive multiple of 4.
    /// Default 9216 (32 blocks × 72 peers × 4 bytes, PyTorch 2.15's default). *Equal.*
    #[doc(alias = "set_signal_pad_size")]
    pub signal_pad_bytes: usize,
    /// `SYMM_SIGNALS`: 64-bit user signals in each pad. Default 512. *Equal.*
    pub signals: usize,
    /// `SYMM_POOL_BYTES`: size of a pool segment; allocations up to an eighth of it share segments, larger ones get
    /// their own. Default 8 MiB, at least 1 MiB. *Equal.*
    pub pool_bytes: usize,
    /// `SYMM_HEAP`: bytes of the symmetric heap that the nvshmem backend takes at start, for everything that `empty` and
    /// `local` give out later. Default 4 GiB, at least 64 MiB. *Equal.*
    pub heap_bytes: usize,
    /// `SYMM_MAX_BLOCKS`: blocks that one operation may occupy on a GPU; 0 (default) leaves it to the backend.
    pub max_blocks: u32,
    /// `SYMM_INIT_TIMEOUT_MS`: deadline of `init`, `rendezvous` and team creation. Default 60 s.
    pub init_timeout: Duration,
    /// `SYMM_TIMEOUT_MS`: deadline of an operation that names none. Default 100 s.
    pub timeout: Duration,
    /// `SYMM_DISABLE_MULTICAST`, or `TORCH_SYMM_MEM_DISABLE_MULTICAST` or `NVSHMEM_DISABLE_NVLS`: set to anything but
    /// `0` or nothing, multicast objects are never created.
    pub disable_multicast: bool,
    /// `SYMM_DEVICE`: number of the GPU that this PE takes, among those that it sees, counted from 0. Unset: its only one; else the PEs
    /// take the GPUs that nobody named, in PE order, so that the PEs of a host have GPU 0, 1, 2, …, as with `LOCAL_RANK`. An
    /// application that has chosen its GPU already (`cudaSetDevice`, `torch.cuda.set_device`) names it here: what is current on a thread
    /// is not looked at.
    #[doc(alias("set_device", "cudaSetDevice", "LOCAL_RANK"))]
    pub device: Option<u32>,
    /// `SYMM_ALLOW_SHARED_GPU`: whether several PEs may have one GPU, `1` or `0` (default). Each then takes its share of
    /// the GPU's multiprocessors at most. Waits of one PE depend on when the others' kernels run, so it is for tests, best
    /// under NVIDIA MPS. *Equal.*
    pub allow_shared_gpu: bool,
    /// `SYMM_HANDLE`: how the cuda backend shares memory. `auto` (default): file descriptors, and fabric handles where PEs are on
    /// several hosts of one NVLink domain; `fd`: descriptors only; `fabric`: fabric handles where they work on every PE, else
    /// descriptors. *Equal.*
    pub handle: String,
    /// `SYMM_ALL_REDUCE_PUSH`: on GPUs, the most bytes of an all-reduce whose elements are pushed to the other members at once, instead
    /// of being read once all have arrived: faster while latency is most of the time. Each context of direct members then has room for
    /// them, 2.2 times as many bytes for two members, 3.6 to 4.3 times for more. Default 1 MiB; 0: none. *Equal.*
    pub all_reduce_push: usize,
    /// `SYMM_ALL_REDUCE_PUSH_PAIR`: the most bytes of an all-reduce between two members whose elements are pushed once both have arrived,
    /// where they are more than `SYMM_ALL_REDUCE_PUSH` allows (and that is not 0). Each context of two direct members then has room for
    /// them, 1.1 times as many bytes. Default 16 MiB (54.7 us for as many bytes on two H200, read 60.4: docs/BENCHMARKS.md); 0: none. *Equal.*
    pub all_reduce_push_pair: usize,
    /// `SYMM_STATS`: whether `finalize` writes [`Stats`](crate::model::Stats) to the standard error, `1` or `0` (default).
    pub stats: bool,
}

impl Default for Config {
    fn default() -> Self {
        Config {
            pe: None,
            n_pes: None,
            job: None,
            bootstrap: "auto".to_owned(),
            address: None,
            port: None,
            token: None,
            insecure: false,
            interfaces: None,
            backend: "auto".to_owned(),
            host_nodes: 1,
            host_seed: 0,
            host_delay_us: 200,
            host_plans: true,
            signal_pad_bytes: 9216,
            signals: 512,
            pool_bytes: 8 << 20,
            heap_bytes: 4 << 30,
            max_blocks: 0,
            init_timeout: Duration::from_secs(60),
            timeout: Duration::from_secs(100),
            disable_multicast: false,
            device: None,
            allow_shared_gpu: false,
            handle: "auto".to_owned(),
            all_reduce_push: 1 << 20,
            all_reduce_push_pair: 16 << 20,
            stats: false,
        }
    }
}

/// Values of `SYMM_BOOTSTRAP`.
const BOOTSTRAPS: [&str; 8] = ["auto", "symm", "pmix", "pmi", "torchrun", "slurm", "mpi", "alone"];

/// A secret text; `Debug` does not show it.
#[derive(Clone, PartialEq, Eq)]
pub struct Token(pub String);

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Token(..)")
    }
}

fn number<T: TryFrom<u64>>(
    get: &impl Fn(&str) -> Option<String>,
    name: &'static str,
    (low, high): (u64, u64),
) -> Result<Option<T>> {
    let Some(text) = get(name) else { return Ok(None) };
    let wrong =
        || Error::Setting { name, got: text.clone(), expected: format!("a number from {low} to {high}") };
    let n: u64 = text.trim().parse().map_err(|_| wrong())?;
    if n < low || n > high {
        return Err(wrong());
    }
    T::try_from(n).map(Some).map_err(|_| wrong())
}

impl Config {
    /// Reads the environment. Warns (`log`), once in a process, of a variable whose name is almost that of a setting.
    ///
    /// # Errors
    /// [`Error::Setting`] naming the variable, its value and what is allowed; also for a half-set family (`SYMM_PE`
    /// without `SYMM_N_PES`, and so on).
    pub fn from_env() -> Result<Self> {
        // Bytes that are no text are passed on as what they look like, so that they are refused and not taken for unset.
        let known = RefCell::new(BTreeSet::new());
        let config = Config::from_lookup(|name| {
            known.borrow_mut().insert(name.to_owned());
            std::env::var_os(name).map(|v| v.to_string_lossy().into_owned())
        });
        // After an error not every name has been asked for.
        config.inspect(|c| misspelt::warn(&known.borrow(), c.pe))
    }

    /// Reads settings through `get`, which returns a variable's value; what `from_env` does with the environment.
    ///
    /// # Errors
    /// As [`from_env`](Self::from_env).
    pub fn from_lookup(get: impl Fn(&str) -> Option<String>) -> Result<Self> {
        let get = |name: &str| get(name).filter(|v| !v.is_empty());
        let mut c = Config::default();
        let max32 = u64::from(u32::MAX);
        c.pe = number(&get, "SYMM_PE", (0, max32))?;
        c.n_pes = number(&get, "SYMM_N_PES", (1, 1 << 20))?;
        c.job = get("SYMM_JOB");
        if let Some(b) = get("SYMM_BOOTSTRAP") {
            c.bootstrap = b;
        }
        c.address = get("SYMM_ADDR");
        c.port = number(&get, "SYMM_PORT", (1, 65535))?;
        c.token = get("SYMM_TOKEN").map(Token);
        c.insecure = number::<u64>(&get, "SYMM_INSECURE", (0, 1))? == Some(1);
        c.interfaces = get("SYMM_IFNAME");
        if let Some(b) = get("SYMM_BACKEND") {
            c.backend = b;
        }
        if let Some(handle) = get("SYMM_HANDLE") {
            c.handle = handle;
        }
        macro_rules! set {
            ($field:ident, $name:literal, $low:expr, $high:expr) => {
                if let Some(v) = number(&get, $name, ($low, $high))? {
                    c.$field = v;
                }
            };
        }
        set!(host_nodes, "SYMM_HOST_NODES", 1, 1 << 20);
        set!(host_seed, "SYMM_HOST_SEED", 0, u64::MAX);
        set!(host_delay_us, "SYMM_HOST_DELAY_US", 0, 1_000_000);
        if let Some(flag) = number::<u64>(&get, "SYMM_HOST_PLANS", (0, 1))? {
            c.host_plans = flag == 1;
        }
        set!(signal_pad_bytes, "SYMM_SIGNAL_PAD_BYTES", 4, 1 << 30);
        set!(signals, "SYMM_SIGNALS", 0, 1 << 24);
        set!(pool_bytes, "SYMM_POOL_BYTES", 1 << 20, 1 << 40);
        set!(heap_bytes, "SYMM_HEAP", 64 << 20, 1 << 46);
        set!(max_blocks, "SYMM_MAX_BLOCKS", 0, 1 << 16);
        set!(all_reduce_push, "SYMM_ALL_REDUCE_PUSH", 0, 1 << 30);
        set!(all_reduce_push_pair, "SYMM_ALL_REDUCE_PUSH_PAIR", 0, 1 << 30);
        if let Some(ms) = number(&get, "SYMM_INIT_TIMEOUT_MS", (1, 86_400_000))? {
            c.init_timeout = Duration::from_millis(ms);
        }
        if let Some(ms) = number(&get, "SYMM_TIMEOUT_MS", (1, 86_400_000))? {
            c.timeout = Duration::from_millis(ms);
        }
        c.disable_multicast =
            ["SYMM_DISABLE_MULTICAST", "TORCH_SYMM_MEM_DISABLE_MULTICAST", "NVSHMEM_DISABLE_NVLS"]
                .iter()
                .any(|name| get(name).is_some_and(|v| v != "0"));
        c.device = number(&get, "SYMM_DEVICE", (0, max32))?;
        if let Some(flag) = number::<u64>(&get, "SYMM_ALLOW_SHARED_GPU", (0, 1))? {
            c.allow_shared_gpu = flag == 1;
        }
        if let Some(flag) = number::<u64>(&get, "SYMM_STATS", (0, 1))? {
            c.stats = flag == 1;
        }
        c.check()?;
        Ok(c)
    }

    /// Checks what `from_lookup` and `init` require of the fields together.
    ///
    /// # Errors
    /// [`Error::Setting`].
    pub fn check(&self) -> Result<()> {
        let wrong = |name, got: &dyn std::fmt::Display, expected: &str| {
            Err(Error::Setting { name, got: got.to_string(), expected: expected.to_owned() })
        };
        match (self.pe, self.n_pes) {
            (Some(pe), Some(n)) if pe >= n => {
                return wrong("SYMM_PE", &pe, &format!("a number below SYMM_N_PES ({n})"));
            }
            (Some(_), None) => return wrong("SYMM_N_PES", &"", "a number, since SYMM_PE is set"),
            (None, Some(_)) => return wrong("SYMM_PE", &"", "a number, since SYMM_N_PES is set"),
            _ => {}
        }
        if self.n_pes.unwrap_or(1) > 1 && self.job.is_none() && self.address.is_none() {
            let expected = "a name, since SYMM_N_PES is above 1 and there is no SYMM_ADDR";
            return wrong("SYMM_JOB", &"", expected);
        }
        if self.address.is_some() && self.n_pes.is_none() {
            return wrong("SYMM_N_PES", &"", "a number, since SYMM_ADDR is set");
        }
        if !BOOTSTRAPS.contains(&self.bootstrap.as_str()) {
            return wrong("SYMM_BOOTSTRAP", &self.bootstrap, &BOOTSTRAPS.join(", "));
        }
        if let Some(job) = &self.job {
            let fine = |ch: char| ch.is_ascii_alphanumeric() || "-_.".contains(ch);
            if job.is_empty() || job.len() > 64 || !job.chars().all(fine) {
                return wrong("SYMM_JOB", job, "1 to 64 letters, digits, '-', '_', '.'");
            }
        }
        if !["auto", "host", "cuda", "nvshmem"].contains(&self.backend.as_str()) {
            return wrong("SYMM_BACKEND", &self.backend, "auto, host, cuda or nvshmem");
        }
        if !["auto", "fd", "fabric"].contains(&self.handle.as_str()) {
            return wrong("SYMM_HANDLE", &self.handle, "auto, fd or fabric");
        }
        if self.signal_pad_bytes == 0 || !self.signal_pad_bytes.is_multiple_of(4) {
            return wrong("SYMM_SIGNAL_PAD_BYTES", &self.signal_pad_bytes, "a positive multiple of 4");
        }
        if self.host_nodes == 0 {
            return wrong("SYMM_HOST_NODES", &self.host_nodes, "1 or more");
        }
        Ok(())
    }

    /// The settings that must be equal on every PE, as (name, value), in a fixed order.
    pub fn equal(&self) -> Vec<(&'static str, String)> {
        vec![
            ("SYMM_N_PES", self.n_pes.unwrap_or(1).to_string()),
            ("SYMM_BACKEND", self.backend.clone()),
            ("SYMM_HOST_NODES", self.host_nodes.to_string()),
            ("SYMM_SIGNAL_PAD_BYTES", self.signal_pad_bytes.to_string()),
            ("SYMM_SIGNALS", self.signals.to_string()),
            ("SYMM_POOL_BYTES", self.pool_bytes.to_string()),
            ("SYMM_HEAP", self.heap_bytes.to_string()),
            ("SYMM_ALLOW_SHARED_GPU", u64::from(self.allow_shared_gpu).to_string()),
            ("SYMM_HANDLE", self.handle.clone()),
            ("SYMM_ALL_REDUCE_PUSH", self.all_reduce_push.to_string()),
            ("SYMM_ALL_REDUCE_PUSH_PAIR", self.all_reduce_push_pair.to_string()),
        ]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with(vars: &[(&str, &str)]) -> Result<Config> {
        Config::from_lookup(|n| vars.iter().find(|(k, _)| *k == n).map(|(_, v)| (*v).to_owned()))
    }

    #[test]
    fn nothing_set_is_the_default() {
        assert_eq!(with(&[]), Ok(Config::default()));
    }

    #[test]
    fn every_wrong_value_names_its_variable() {
        for (vars, wrong) in [
            (&[("SYMM_PE", "0")][..], "SYMM_N_PES"),
            (&[("SYMM_N_PES", "2")], "SYMM_PE"),
            (&[("SYMM_PE", "2"), ("SYMM_N_PES", "2"), ("SYMM_JOB", "j")], "SYMM_PE"),
            (&[("SYMM_PE", "1"), ("SYMM_N_PES", "2")], "SYMM_JOB"),
            (&[("SYMM_PE", "x"), ("SYMM_N_PES", "2")], "SYMM_PE"),
            (&[("SYMM_JOB", "a b")], "SYMM_JOB"),
            (&[("SYMM_ADDR", "host:1")], "SYMM_N_PES"),
            (&[("SYMM_BOOTSTRAP", "ssh")], "SYMM_BOOTSTRAP"),
            (&[("SYMM_PORT", "0")], "SYMM_PORT"),
            (&[("SYMM_INSECURE", "yes")], "SYMM_INSECURE"),
            (&[("SYMM_BACKEND", "tpu")], "SYMM_BACKEND"),
            (&[("SYMM_HOST_NODES", "0")], "SYMM_HOST_NODES"),
            (&[("SYMM_SIGNAL_PAD_BYTES", "10")], "SYMM_SIGNAL_PAD_BYTES"),
            (&[("SYMM_TIMEOUT_MS", "0")], "SYMM_TIMEOUT_MS"),
            (&[("SYMM_DEVICE", "cuda:1")], "SYMM_DEVICE"),
            (&[("SYMM_DEVICE", "-1")], "SYMM_DEVICE"),
            (&[("SYMM_ALLOW_SHARED_GPU", "yes")], "SYMM_ALLOW_SHARED_GPU"),
            (&[("SYMM_HOST_PLANS", "2")], "SYMM_HOST_PLANS"),
            (&[("SYMM_HANDLE", "ipc")], "SYMM_HANDLE"),
            (&[("SYMM_ALL_REDUCE_PUSH", "all")], "SYMM_ALL_REDUCE_PUSH"),
        ] {
            match with(vars) {
                Err(Error::Setting { name, .. }) => assert_eq!(name, wrong, "{vars:?}"),
                other => panic!("{vars:?}: {other:?}"),
            }
        }
    }

    #[test]
    fn a_secret_is_not_shown() {
        let config = with(&[("SYMM_TOKEN", "hush")]).expect("allowed");
        assert_eq!(config.token, Some(Token("hush".to_owned())));
        assert!(!format!("{config:?}").contains("hush"));
    }

    #[test]
    fn multicast_is_off_when_any_of_the_three_is_set() {
        for name in ["SYMM_DISABLE_MULTICAST", "TORCH_SYMM_MEM_DISABLE_MULTICAST", "NVSHMEM_DISABLE_NVLS"] {
            assert!(with(&[(name, "1")]).is_ok_and(|c| c.disable_multicast));
            assert!(with(&[(name, "0")]).is_ok_and(|c| !c.disable_multicast));
        }
    }
}
