//! Two hosts: network namespaces with a cable between them, and a way to run programs on them.

use std::io::Read;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// Longest time that anything started here may take.
const LIMIT: Duration = Duration::from_secs(60);

/// Whether the machine must have what a test needs, so that it fails instead of being skipped.
fn required(what: &str) -> bool {
    std::env::var("SYMM_REQUIRE").is_ok_and(|list| list.split(',').any(|w| w.trim() == what))
}

fn there(program: &str) -> bool {
    let found =
        Command::new("sh").args(["-c", &format!("command -v {program}")]).stdout(Stdio::null()).status();
    found.is_ok_and(|s| s.success())
}

fn ip(words: &str) -> bool {
    let status = Command::new("ip").args(words.split_whitespace()).stderr(Stdio::null()).status();
    status.is_ok_and(|s| s.success())
}

/// Both hosts; removed when dropped.
pub(crate) struct Hosts {
    id: u32,
    folder: PathBuf,
}

impl Hosts {
    /// `None` where the machine does not allow it, unless `SYMM_REQUIRE` asks for `netns`.
    pub(crate) fn make() -> Option<Hosts> {
        let id = std::process::id();
        let folder = std::env::temp_dir().join(format!("symm-hosts-{id}"));
        let hosts = Hosts { id, folder };
        let made = there("ip") && hosts.connect();
        if made {
            return Some(hosts);
        }
        assert!(!required("netns"), "network namespaces cannot be made: this needs root and iproute2");
        println!("skipped: network namespaces cannot be made (root and iproute2 are needed)");
        None
    }

    fn name(&self, host: usize) -> String {
        format!("symm{}h{host}", self.id)
    }

    pub(crate) fn address(&self, host: usize) -> String {
        format!("10.99.0.{}", host + 1)
    }

    fn connect(&self) -> bool {
        let [a, b] = [self.name(0), self.name(1)];
        let made = [a.clone(), b.clone()].iter().all(|name| ip(&format!("netns add {name}")));
        // The cable's ends are made inside: nothing of it is ever seen outside.
        made && ip(&format!("-n {a} link add eth0 type veth peer name eth0 netns {b}"))
            && (0..2).all(|host| {
                let name = self.name(host);
                ip(&format!("-n {name} link set lo up"))
                    && ip(&format!("-n {name} addr add {}/24 dev eth0", self.address(host)))
                    && ip(&format!("-n {name} link set eth0 up"))
            })
            && self.write_agent().is_ok()
    }

    /// What launchers take for `ssh`.
    fn write_agent(&self) -> std::io::Result<()> {
        std::fs::create_dir_all(&self.folder)?;
        let hosts: String = (0..2).map(|h| format!("{}) ns={};; ", self.address(h), self.name(h))).collect();
        let script = format!(
            "#!/bin/sh\nwhile [ \"${{1#-}}\" != \"$1\" ]; do shift; done\nhost=$1; shift\n\
             case \"$host\" in {hosts}*) exit 1;; esac\n\
             exec ip netns exec $ns unshare --uts --mount sh -c \"mount -t tmpfs tmpfs /dev/shm; hostname $ns; $*\" </dev/null\n"
        );
        std::fs::write(self.agent(), script)?;
        std::fs::set_permissions(self.agent(), std::fs::Permissions::from_mode(0o755))
    }

    pub(crate) fn agent(&self) -> String {
        self.folder.join("agent").display().to_string()
    }

    /// A command on a host.
    fn on(&self, host: usize) -> Command {
        let name = self.name(host);
        let mut c = Command::new("ip");
        c.args(["netns", "exec", &name, "unshare", "--uts", "--mount", "sh", "-c"]);
        c.args(["mount -t tmpfs tmpfs /dev/shm; hostname \"$0\"; exec \"$@\"", &name]);
        c.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        c.env("SYMM_INIT_TIMEOUT_MS", "20000").env("PATH", std::env::var("PATH").unwrap_or_default());
        c
    }

    /// Starts this test's binary on a host, as a PE.
    pub(crate) fn start(&self, host: usize, vars: &[(&str, String)]) -> Running {
        let mut c = self.on(host);
        c.args(pe()).envs(vars.iter().map(|(k, v)| (k, v)));
        Running(c.spawn().expect("ip starts"))
    }

    /// Runs PEs by a launcher on the first host, and returns what they said; `None` if it is not there.
    pub(crate) fn launch(&self, launcher: &str, vars: &[(&str, String)]) -> Option<String> {
        let program = launcher.split_whitespace().next().unwrap_or_default();
        if !there(program) {
            let what = if program == "mpirun.mpich" { "mpich" } else { "mpi" };
            assert!(!required(what), "{program} is missing");
            println!("skipped: no {program}");
            return None;
        }
        let mut c = self.on(0);
        c.args(launcher.split_whitespace()).args(pe()).envs(vars.iter().map(|(k, v)| (k, v)));
        Some(Running(c.spawn().expect("ip starts")).said())
    }
}

impl Drop for Hosts {
    fn drop(&mut self) {
        for host in 0..2 {
            ip(&format!("netns del {}", self.name(host)));
        }
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

fn pe() -> Vec<String> {
    let exe = std::env::current_exe().expect("own path").display().to_string();
    [exe.as_str(), "--exact", "child", "--nocapture", "--test-threads=1"].map(str::to_owned).to_vec()
}

/// A program on a host; it ends with the test.
pub(crate) struct Running(Child);

impl Running {
    /// All that it said.
    pub(crate) fn said(mut self) -> String {
        let mut err = self.0.stderr.take().expect("piped");
        let errors = std::thread::spawn(move || {
            let mut text = Vec::new();
            let _ = err.read_to_end(&mut text);
            text
        });
        let mut out = self.0.stdout.take().expect("piped");
        let output = std::thread::spawn(move || {
            let mut text = Vec::new();
            let _ = out.read_to_end(&mut text);
            text
        });
        let began = Instant::now();
        while self.0.try_wait().expect("a child").is_none() && began.elapsed() < LIMIT {
            std::thread::sleep(Duration::from_millis(5));
        }
        let late = began.elapsed() >= LIMIT;
        let _ = self.0.kill();
        let text = [output, errors].map(|t| t.join().expect("no panic")).concat();
        let text = String::from_utf8_lossy(&text).into_owned();
        assert!(!late, "not over after {LIMIT:?}: {text}");
        text
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// PEs that were started one by one.
pub(crate) struct Pes(Vec<Running>);

impl FromIterator<Running> for Pes {
    fn from_iter<T: IntoIterator<Item = Running>>(iter: T) -> Self {
        Pes(iter.into_iter().collect())
    }
}

impl Pes {
    pub(crate) fn said(self) -> Vec<String> {
        self.0.into_iter().map(Running::said).collect()
    }
}
