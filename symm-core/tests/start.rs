//! Starting by each family of variables, in real processes.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use symm_core::bootstrap::{Bootstrap, Group, start};
use symm_core::{Config, Deadline, Pe};

/// Variables of every family, so that none of this test's own comes to its children.
const FAMILIES: [&str; 21] = [
    "SYMM_PE",
    "SYMM_N_PES",
    "SYMM_JOB",
    "SYMM_ADDR",
    "SYMM_TOKEN",
    "SYMM_BOOTSTRAP",
    "PMIX_NAMESPACE",
    "PMIX_RANK",
    "PMI_FD",
    "PMI_RANK",
    "PMI_SIZE",
    "RANK",
    "WORLD_SIZE",
    "LOCAL_WORLD_SIZE",
    "MASTER_ADDR",
    "MASTER_PORT",
    "SLURM_STEP_NUM_TASKS",
    "SLURM_PROCID",
    "SLURM_STEP_NUM_NODES",
    "SYMM_PORT",
    "OMPI_COMM_WORLD_SIZE",
];

/// A PE that ends with the test.
struct Process(Child);

impl Process {
    fn start(vars: &[(&str, String)]) -> Self {
        let mut c = Command::new(std::env::current_exe().expect("own path"));
        c.args(["--exact", "child", "--nocapture", "--test-threads=1"]);
        FAMILIES.iter().for_each(|name| {
            c.env_remove(name);
        });
        c.env("START_ROLE", "pe").env("SYMM_INIT_TIMEOUT_MS", "20000");
        c.envs(vars.iter().map(|(k, v)| (k, v))).stdout(Stdio::piped()).stderr(Stdio::null());
        Process(c.spawn().expect("start"))
    }

    /// What it said to its end.
    fn said(mut self) -> String {
        let mut text = String::new();
        self.0.stdout.take().expect("piped").read_to_string(&mut text).expect("readable");
        text
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn barrier(boot: &Arc<dyn Bootstrap>, id: u64, members: Vec<Pe>) -> symm_core::Result<()> {
    let group = Group::new(Arc::clone(boot), id, members)?;
    let mine = boot.pe().0.to_le_bytes();
    let all = group.all_gather("test", &mine, Deadline::after(Duration::from_secs(20)))?;
    assert!(all.iter().zip(group.members()).all(|(bytes, pe)| *bytes == pe.0.to_le_bytes()));
    Ok(())
}

fn work() -> symm_core::Result<()> {
    let boot = start(&Config::from_env()?)?;
    let all: Vec<Pe> = (0..boot.n_pes()).map(Pe::from).collect();
    // A team among themselves, of the PEs with an odd or even number, then everybody.
    let team: Vec<Pe> = all.iter().copied().filter(|pe| pe.0 % 2 == boot.pe().0 % 2).collect();
    barrier(&boot, 10 + u64::from(boot.pe().0 % 2), team)?;
    barrier(&boot, 3, all.clone())?;
    if std::env::var_os("START_TWICE").is_some() {
        match start(&Config::from_env()?) {
            Err(e) => println!("\nagain {}: {e}", e.kind()),
            Ok(_) => println!("\nagain ok"),
        }
        barrier(&boot, 4, all.clone())?;
        boot.close();
        drop(boot);
        let boot = start(&Config::from_env()?)?;
        barrier(&boot, 5, all)?;
        println!("\nafterwards ok\nworld {} {}", boot.pe().0, boot.n_pes());
        boot.close();
        return Ok(());
    }
    println!("\nworld {} {}", boot.pe().0, boot.n_pes());
    println!("strangers {}\nports {}", boot.strangers(), listens());
    boot.close();
    Ok(())
}

/// TCP ports at which this process listens.
fn listens() -> usize {
    let fds = std::fs::read_dir("/proc/self/fd").expect("there").flatten();
    let mine: Vec<_> = fds.filter_map(|fd| std::fs::read_link(fd.path()).ok()).collect();
    let table = |name| std::fs::read_to_string(name).unwrap_or_default();
    let all = table("/proc/self/net/tcp") + &table("/proc/self/net/tcp6");
    let listening = all.lines().filter_map(|line| {
        let words: Vec<&str> = line.split_whitespace().collect();
        (words.get(3) == Some(&"0A")).then(|| format!("socket:[{}]", words[9]))
    });
    listening.filter(|socket| mine.iter().any(|fd| fd.as_os_str() == socket.as_str())).count()
}

/// Does nothing unless another test of this file started this process as a PE.
#[test]
fn child() {
    if std::env::var_os("START_ROLE").is_none() {
        return;
    }
    if let Err(e) = work() {
        println!("\nerror {}: {e}", e.kind());
    }
}

/// A port that was free just now, and so is the next one. No two tests of a run get the same.
fn port() -> u16 {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    loop {
        let n = NEXT.fetch_add(2, Ordering::Relaxed) + std::process::id() % 5000 * 8;
        let port = 10_000 + (n % 20_000) as u16;
        let free = |port| TcpListener::bind(("127.0.0.1", port)).is_ok();
        if free(port) && free(port + 1) {
            return port;
        }
    }
}

/// Runs PEs with these variables and returns what each said.
fn run(pes: impl IntoIterator<Item = Vec<(&'static str, String)>>) -> Vec<String> {
    let pes: Vec<_> = pes.into_iter().map(|vars| Process::start(&vars)).collect();
    pes.into_iter().map(Process::said).collect()
}

fn all_came(said: &[String]) {
    for (pe, text) in said.iter().enumerate() {
        assert!(text.contains(&format!("world {pe} {}\n", said.len())), "PE {pe}: {text}");
    }
}

fn torchrun(rank: usize, size: usize, port: u16) -> Vec<(&'static str, String)> {
    vec![
        ("RANK", rank.to_string()),
        ("WORLD_SIZE", size.to_string()),
        ("MASTER_ADDR", "127.0.0.1".to_owned()),
        ("MASTER_PORT", port.to_string()),
    ]
}

fn symm(pe: usize, n: usize, port: u16) -> Vec<(&'static str, String)> {
    vec![
        ("SYMM_PE", pe.to_string()),
        ("SYMM_N_PES", n.to_string()),
        ("SYMM_ADDR", format!("localhost:{port}")),
    ]
}

#[test]
fn variables_of_torchrun_meet_beside_the_port_of_its_store() {
    let port = port();
    // As torchrun's agent, which serves its store there.
    let _store = TcpListener::bind(("127.0.0.1", port)).expect("free just now");
    all_came(&run((0..4).map(|rank| torchrun(rank, 4, port))));
    // One agent for all: no port is needed, so one that is taken does no harm.
    let _taken = TcpListener::bind(("127.0.0.1", port + 1)).expect("free again");
    let local = |rank| [torchrun(rank, 3, port), vec![("LOCAL_WORLD_SIZE", "3".to_owned())]].concat();
    all_came(&run((0..3).map(local)));
    let said = run((0..2).map(|rank| torchrun(rank, 2, port)));
    assert!(said[0].contains("error Bootstrap") && said[0].contains("SYMM_PORT"), "{}", said[0]);
    let elsewhere = self::port().to_string();
    let over = |rank| [torchrun(rank, 2, port), vec![("SYMM_PORT", elsewhere.clone())]].concat();
    all_came(&run((0..2).map(over)));
    all_came(&run([torchrun(0, 1, port)]));
}

#[test]
fn an_address_brings_pes_together_and_a_large_world_is_a_tree() {
    let port = port();
    let said = run((0..20).map(|pe| symm(pe, 20, port)));
    all_came(&said);
    // Where they met over loopback, no port stays open to the other users of this host.
    assert!(said.iter().all(|text| text.contains("\nports 0\n")), "{said:?}");
}

#[test]
fn tasks_of_one_node_meet_by_their_job_and_step() {
    let job = std::process::id().to_string();
    let task = |rank: usize, nodes: &str| {
        vec![
            ("SLURM_PROCID", rank.to_string()),
            ("SLURM_STEP_NUM_TASKS", "3".to_owned()),
            ("SLURM_STEP_NUM_NODES", nodes.to_owned()),
            ("SLURM_JOB_ID", job.clone()),
            ("SLURM_STEP_ID", "0".to_owned()),
        ]
    };
    all_came(&run((0..3).map(|rank| task(rank, "1"))));
    let said = run([task(0, "x")]);
    assert!(said[0].contains("setting SLURM_STEP_NUM_NODES is \"x\""), "{}", said[0]);
    let said = run([task(0, "2")]);
    assert!(said[0].contains("error Setting") && said[0].contains("--mpi=pmix"), "{}", said[0]);
}

#[test]
fn several_hosts_without_a_secret_are_refused() {
    let vars = |more: &[(&'static str, &str)]| {
        let mut vars = torchrun(0, 2, port());
        // Nobody's: reserved for documentation.
        vars[2].1 = "192.0.2.1".to_owned();
        vars.push(("SYMM_INIT_TIMEOUT_MS", "300".to_owned()));
        vars.extend(more.iter().map(|(k, v)| (*k, (*v).to_owned())));
        vars
    };
    let said = run([vars(&[]), vars(&[("SYMM_TOKEN", "t")]), vars(&[("SYMM_INSECURE", "1")])]);
    assert!(said[0].contains("error Setting: setting SYMM_TOKEN"), "{}", said[0]);
    // Not refused: it goes on to listen at an address that is not this host's.
    assert!(
        said[1..].iter().all(|text| text.contains("error Bootstrap") && text.contains("192.0.2.1")),
        "{said:?}"
    );
}

#[test]
fn who_is_missing_at_the_address_is_named_by_all() {
    let port = port();
    let pe = |pe| [symm(pe, 4, port), vec![("SYMM_INIT_TIMEOUT_MS", "1500".to_owned())]].concat();
    let said = run([0, 1, 3].map(pe));
    for text in said {
        assert!(text.contains("error Timeout") && text.contains("late: PE 2 "), "{text}");
    }
    // Nobody there at all.
    let began = Instant::now();
    let said = run([pe(1)]);
    let not_reached =
        format!("error Bootstrap: bootstrap: connect: PE 0 was not reached at 127.0.0.1:{port}");
    // The time that passed: on a busy machine some more than was asked for.
    let not_reached = [not_reached.as_str(), "within 1.", "Connection refused"];
    assert!(not_reached.iter().all(|w| said[0].contains(w)), "{said:?}");
    assert!(began.elapsed() < Duration::from_secs(10));
    // Something else, which takes the connection and is silent.
    let silent = TcpListener::bind(("127.0.0.1", 0)).expect("a free port");
    let port = silent.local_addr().expect("bound").port();
    let said = run([[symm(1, 2, port), vec![("SYMM_INIT_TIMEOUT_MS", "1500".to_owned())]].concat()]);
    assert!(said[0].contains("the other end said nothing in time"), "{said:?}");
}

#[test]
fn numbers_given_twice_and_sizes_that_differ_are_named() {
    let port = port();
    let said = run([symm(0, 3, port), symm(1, 3, port), symm(1, 3, port)]);
    assert!(
        said.iter().any(|text| text.contains("given to two processes") || text.contains("in use")),
        "{said:?}"
    );
    assert!(said.iter().all(|text| text.contains("error ")), "{said:?}");
    let said = run([symm(0, 2, port), symm(1, 3, port)]);
    assert!(said.iter().all(|text| text.contains("error SettingDiffers: setting SYMM_N_PES")), "{said:?}");
}

/// Not another process, as where a number is given twice.
#[test]
fn a_world_that_is_opened_twice_in_a_process_is_refused_as_that() {
    let port = port();
    let twice = |mut vars: Vec<(&'static str, String)>| {
        vars.push(("START_TWICE", "1".to_owned()));
        vars
    };
    let task = |rank: usize| {
        vec![
            ("SYMM_PE", rank.to_string()),
            ("SYMM_N_PES", "2".to_owned()),
            ("SYMM_JOB", format!("twice-{}", std::process::id())),
        ]
    };
    for said in [run((0..2).map(|pe| twice(symm(pe, 2, port)))), run((0..2).map(|pe| twice(task(pe))))] {
        for (pe, text) in said.iter().enumerate() {
            let already = format!("is in use by this process, which is PE {pe} of job ");
            assert!(text.contains("again Bootstrap: bootstrap: bind: address @symm-mem/"), "{text}");
            assert!(
                text.contains(&already) && text.contains("has opened its world: it does so once"),
                "{text}"
            );
            assert!(text.contains("\nafterwards ok"), "{text}");
        }
        all_came(&said);
    }
}

#[test]
fn strangers_at_the_address_do_not_keep_a_job_from_starting() {
    let port = port();
    let token = |pe| [symm(pe, 2, port), vec![("SYMM_TOKEN", "right".to_owned())]].concat();
    let zero = Process::start(&token(0));
    let began = Instant::now();
    let mut strangers = Vec::new();
    while strangers.len() < 100 {
        if let Ok(mut s) = TcpStream::connect(("127.0.0.1", port)) {
            // Silent ones, short ones, ones that are no PE.
            let bytes = vec![strangers.len() as u8; 2 * strangers.len()];
            let _ = s.write_all(&bytes);
            strangers.push(s);
        }
        assert!(began.elapsed() < Duration::from_secs(10));
    }
    let said = [zero, Process::start(&token(1))].map(Process::said);
    all_came(&said);
    // Some said enough to be known for strangers at once; the silent ones may still be at it.
    let counted = said[0].split_once("strangers ").and_then(|(_, n)| n.split('\n').next()?.parse().ok());
    assert!(counted.is_some_and(|n: usize| n > 0), "{said:?}");
    // One with another secret is told so; the other one waits in vain.
    let wrong = [symm(1, 2, port), vec![("SYMM_TOKEN", "wrong".to_owned())]].concat();
    let short = [token(0), vec![("SYMM_INIT_TIMEOUT_MS", "1000".to_owned())]].concat();
    let said = run([short, wrong]);
    assert!(said[0].contains("error Timeout") && said[0].contains("late: PE 1 "), "{}", said[0]);
    assert!(said[1].contains("does not know the job's secret"), "{}", said[1]);
}

/// Every place is taken by strangers that say a byte now and then: the time for all that they say has an end.
#[test]
fn strangers_who_talk_for_ever_do_not_keep_a_job_from_starting() {
    let port = port();
    let zero = Process::start(&symm(0, 2, port));
    let began = Instant::now();
    let mut strangers = Vec::new();
    while strangers.len() < 140 {
        if let Ok(s) = TcpStream::connect(("127.0.0.1", port)) {
            strangers.push(s);
        }
        assert!(began.elapsed() < Duration::from_secs(10));
    }
    let talk = std::thread::spawn(move || {
        let mut open = strangers;
        while !open.is_empty() && began.elapsed() < Duration::from_secs(30) {
            open.retain_mut(|s| s.write_all(b"s").is_ok());
            std::thread::sleep(Duration::from_millis(250));
        }
    });
    all_came(&[zero, Process::start(&symm(1, 2, port))].map(Process::said));
    talk.join().expect("no panic");
}

#[test]
fn a_port_that_nobody_can_know_is_an_error_that_names_the_variable() {
    let said = run([torchrun(0, 2, 0), torchrun(1, 2, 65535), symm(0, 2, 0), symm(1, 2, 0)]);
    assert!(said[..2].iter().all(|text| text.contains("setting MASTER_PORT is")), "{said:?}");
    assert!(said[2..].iter().all(|text| text.contains("setting SYMM_ADDR is \"localhost:0\"")), "{said:?}");
}

/// The system's resolver may take longer than this PE has.
#[test]
fn a_name_that_nobody_knows_is_an_error_within_the_deadline() {
    let mut vars = torchrun(1, 2, port());
    vars[2].1 = "no-such-host.invalid".to_owned();
    vars.push(("SYMM_INIT_TIMEOUT_MS", "300".to_owned()));
    let began = Instant::now();
    let said = run([vars]);
    assert!(said[0].contains("getaddrinfo: MASTER_ADDR=no-such-host.invalid"), "{}", said[0]);
    assert!(began.elapsed() < Duration::from_secs(4), "{:?}", began.elapsed());
}

#[test]
fn half_a_family_is_an_error_that_names_the_variable() {
    let mut vars = torchrun(0, 2, 1);
    vars.pop();
    let said =
        run([vars, vec![("PMIX_RANK", "0".to_owned())], vec![("OMPI_COMM_WORLD_SIZE", "2".to_owned())]]);
    assert!(said[0].contains("setting MASTER_PORT"), "{}", said[0]);
    assert!(said[1].contains("setting PMIX_NAMESPACE"), "{}", said[1]);
    assert!(said[2].contains("SYMM_ADDR"), "{}", said[2]);
    all_came(&run([vec![]]));
}
