//! What to run: the command line, which also takes what `cargo test` passes to every test binary.

use super::Case;

/// PEs of a world that meets along a tree, as every team of more than 8 does (`symm-core/src/bootstrap/group.rs`). With 12 the last PE is
/// three steps from the root; with 9 it would be one.
const TREE: usize = 12;

/// One backend at one reach with one number of PEs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Configuration {
    pub(crate) backend: String,
    pub(crate) nodes: u32,
    pub(crate) n_pes: usize,
    /// What starts the PEs, if not this suite: a command that takes `-n N PROGRAM`.
    pub(crate) launcher: Option<String>,
    /// Made for the cases that also run along a [`TREE`], and for no others.
    tree: bool,
}

impl Configuration {
    /// Whether a case belongs to it.
    pub(crate) fn has(&self, case: &Case) -> bool {
        case.tree || !self.tree
    }
}

impl std::fmt::Display for Configuration {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}/nodes{}/pes{}", self.backend, self.nodes, self.n_pes)
    }
}

/// The parsed command line.
#[derive(Clone, Debug)]
pub(crate) struct Selection {
    filters: Vec<String>,
    skips: Vec<String>,
    exact: bool,
    /// Only tests marked `#[ignore]` are asked for, of which this suite has none.
    nothing: bool,
    pub(crate) list: bool,
    /// Passed cases are not printed one by one.
    pub(crate) quiet: bool,
    /// File that gets every case's outcome and time.
    pub(crate) json: Option<String>,
    backends: Vec<String>,
    nodes: Vec<u32>,
    pes: Vec<usize>,
    /// Whether cases that also run along a tree do: not where the command line says how many PEs.
    tree: bool,
    launcher: Option<String>,
    /// Backends whose skipped cases are failures (`SYMM_REQUIRE`).
    required: Vec<String>,
}

fn numbers<T: std::str::FromStr + PartialOrd + From<u8>>(flag: &str, text: &str) -> Result<Vec<T>, String> {
    let wrong = || format!("{flag} is {text:?}, expected numbers of 1 or more like 1,2");
    text.split(',').map(|n| n.trim().parse().ok().filter(|n| *n >= T::from(1)).ok_or_else(wrong)).collect()
}

impl Selection {
    pub(crate) fn from_args(args: impl Iterator<Item = String>) -> Result<Self, String> {
        let required = std::env::var("SYMM_REQUIRE").unwrap_or_default();
        let mut s = Selection {
            filters: Vec::new(),
            skips: Vec::new(),
            exact: false,
            nothing: false,
            list: false,
            quiet: false,
            json: None,
            backends: ["host", "cuda", "nvshmem"].map(str::to_owned).to_vec(),
            nodes: vec![1, 2],
            pes: vec![1, 2, 3, 4, 8],
            tree: true,
            launcher: None,
            required: required.split(',').map(|b| b.trim().to_owned()).filter(|b| !b.is_empty()).collect(),
        };
        let mut args = args.peekable();
        while let Some(arg) = args.next() {
            let (flag, inline) = match arg.split_once('=') {
                Some((f, v)) if f.starts_with('-') => (f.to_owned(), Some(v.to_owned())),
                _ => (arg, None),
            };
            let mut value = || inline.clone().or_else(|| args.next()).ok_or(format!("{flag} needs a value"));
            match flag.as_str() {
                "--pes" => (s.pes, s.tree) = (numbers(&flag, &value()?)?, false),
                "--nodes" => s.nodes = numbers(&flag, &value()?)?,
                "--backend" => s.backends = value()?.split(',').map(str::to_owned).collect(),
                "--launcher" => s.launcher = Some(value()?),
                "--skip" => s.skips.push(value()?),
                "--json" => s.json = Some(value()?),
                "--exact" => s.exact = true,
                "--list" => s.list = true,
                "--ignored" => s.nothing = true,
                "-q" | "--quiet" => s.quiet = true,
                // Of libtest, with a value that changes nothing here: cases run one after the other, output is plain.
                "--test-threads" | "--color" | "--format" | "--logfile" | "--shuffle-seed" | "-Z" => {
                    value()?;
                }
                "--nocapture" | "--no-capture" | "--show-output" | "--include-ignored" | "--shuffle"
                | "--report-time" | "--test" | "--bench" => {}
                other if other.starts_with('-') => return Err(format!("unknown flag {other}")),
                filter => s.filters.push(filter.to_owned()),
            }
        }
        Ok(s)
    }

    /// Whether a case with this full name (configuration/case) is selected.
    pub(crate) fn takes(&self, full: &str) -> bool {
        let case = full.rsplit('/').next().unwrap_or(full);
        let hit = |f: &String| if self.exact { full == f || case == f } else { full.contains(f.as_str()) };
        !self.nothing
            && !self.skips.iter().any(hit)
            && (self.filters.is_empty() || self.filters.iter().any(hit))
    }

    /// Whether the command line asks for less than everything by name.
    pub(crate) fn is_narrowed(&self) -> bool {
        self.nothing || !self.filters.is_empty() || !self.skips.is_empty()
    }

    /// Whether a skip on this backend is a failure.
    pub(crate) fn requires(&self, backend: &str) -> bool {
        self.required.iter().any(|b| b == backend)
    }

    /// All configurations, by backend, reach, number of PEs.
    pub(crate) fn configurations(&self) -> Vec<Configuration> {
        let mut all = Vec::new();
        for backend in &self.backends {
            // The host backend makes its nodes itself; for the others somebody must have made hosts.
            let network = backend == "nvshmem" && std::env::var_os(super::group::ENTER).is_some();
            let reaches = self.nodes.iter().filter(|n| **n == 1 || backend == "host" || network);
            for nodes in reaches {
                // Every backend meets over the same bootstrap, and the host's has PEs enough on any machine.
                let tree = (self.tree && backend == "host").then_some((TREE, true));
                for (n_pes, tree) in self.pes.iter().map(|n| (*n, false)).chain(tree) {
                    let (backend, launcher) = (backend.clone(), self.launcher.clone());
                    all.push(Configuration { backend, nodes: *nodes, n_pes, launcher, tree });
                }
            }
        }
        all
    }
}
