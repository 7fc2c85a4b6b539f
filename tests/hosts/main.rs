//! PEs on two made-up hosts: network namespaces that the test makes and removes, each with a host name and a `/dev/shm` of
//! its own. By every way to start that spans hosts: up to a bootstrapped world, the death of a PE, and what the host
//! backend says.

mod made_up;

use std::sync::Arc;
use std::time::Duration;

use made_up::{Hosts, Pes};
use symm::bootstrap::{Bootstrap, Group};
use symm::{Config, Error, Pe};
use symm_core::Deadline;

fn gather(boot: &Arc<dyn Bootstrap>, id: u64, members: Vec<Pe>, mine: &[u8]) -> symm::Result<Vec<Vec<u8>>> {
    Group::new(Arc::clone(boot), id, members)?.all_gather(
        "test",
        mine,
        Deadline::after(Duration::from_secs(20)),
    )
}

/// Nanoseconds of a clock that all processes of this machine share.
fn now() -> u64 {
    let t = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    t.tv_sec.cast_unsigned() * 1_000_000_000 + t.tv_nsec.cast_unsigned()
}

fn world(dies: bool) -> symm::Result<()> {
    let boot = symm::start(&Config::from_env()?)?;
    let (me, n) = (boot.pe(), boot.n_pes());
    let all: Vec<Pe> = (0..n).map(Pe::from).collect();
    let here = rustix::system::uname().nodename().to_string_lossy().into_owned();
    let hosts = gather(&boot, 1, all.clone(), here.as_bytes())?;
    // A team across the hosts, then one on this host, which uses no other host's connections.
    let odd: Vec<Pe> = all.iter().copied().filter(|pe| pe.0 % 2 == me.0 % 2).collect();
    assert_eq!(gather(&boot, 2 + u64::from(me.0 % 2), odd.clone(), &[7])?.len(), odd.len());
    let mates: Vec<Pe> = all.iter().copied().filter(|pe| hosts[pe.index()] == here.as_bytes()).collect();
    assert!(mates.len() < n, "all PEs are on one host");
    gather(&boot, 4 + u64::from(mates[0].0), mates.clone(), &[])?;
    for pe in &all {
        assert_eq!(boot.passes_fds(*pe), mates.contains(pe), "PE {pe}");
    }
    println!("\nworld {me} {n} {here}.");
    if dies {
        let times = gather(&boot, 200, all, &now().to_le_bytes())?;
        // An inner PE of the tree, where the world is one.
        let victim = Pe::from(n / 2);
        if me == victim {
            let _ = rustix::process::kill_process(rustix::process::getpid(), rustix::process::Signal::KILL);
        }
        let tag = symm::bootstrap::Tag { team: 300, seq: 0 };
        // Nobody sends this; whoever has no connection to the victim hears of it from others.
        let heard = boot.recv_among(
            Pe(u32::from(me == Pe(0))),
            tag,
            &[victim],
            Deadline::after(Duration::from_secs(10)),
        );
        let at = u64::from_le_bytes(times[victim.index()].as_slice().try_into().expect("8 bytes"));
        let took = Duration::from_nanos(now().saturating_sub(at));
        assert!(matches!(&heard, Err(Error::PeerFailed { pe, .. }) if *pe == victim), "{heard:?}");
        println!("\nheard {me} {} ms", took.as_millis());
        // Nobody's end is to be another one's death before that one has heard.
        std::thread::sleep(Duration::from_millis(1500));
    }
    boot.close();
    Ok(())
}

/// The start, to which PE 1 does not come, whatever started it.
fn late() -> symm::Result<()> {
    let rank = ["PMIX_RANK", "PMI_RANK"].iter().find_map(|name| std::env::var(name).ok());
    if rank.as_deref() == Some("1") {
        std::thread::sleep(Duration::from_secs(4));
        return Ok(());
    }
    let mut config = Config::from_env()?;
    config.init_timeout = Duration::from_millis(1500);
    let began = std::time::Instant::now();
    let started = symm::start(&config);
    assert!(began.elapsed() < Duration::from_secs(4), "after {:?}", began.elapsed());
    started.map(drop)
}

/// Does nothing unless another test of this file started this process as a PE.
#[test]
fn child() {
    let outcome = match std::env::var("HOSTS_ROLE").as_deref() {
        Ok("world") => world(false),
        Ok("death") => world(true),
        Ok("backend") => symm::init().map(drop),
        Ok("late") => late(),
        _ => return,
    };
    if let Err(e) = outcome {
        println!("\nerror {}: {e}.", e.kind());
    }
}

/// What all PEs of a world on two hosts said.
fn all_came(said: &str, n: usize) {
    for pe in 0..n {
        let line = format!("world {pe} {n} ");
        assert!(said.contains(&line), "PE {pe} is missing: {said}");
    }
}

fn by_address(hosts: &Hosts, pes: usize, role: &str, more: &[(&str, &str)]) -> Vec<String> {
    let address = format!("{}:7000", hosts.address(0));
    let one = |pe: usize| {
        let mut vars = vec![
            ("SYMM_PE", pe.to_string()),
            ("SYMM_N_PES", pes.to_string()),
            ("SYMM_ADDR", address.clone()),
            ("SYMM_TOKEN", "the same on both".to_owned()),
            ("HOSTS_ROLE", role.to_owned()),
        ];
        vars.extend(more.iter().map(|(k, v)| (*k, (*v).to_owned())));
        hosts.start(pe * 2 / pes, &vars)
    };
    let pes: Pes = (0..pes).map(one).collect();
    pes.said()
}

#[test]
fn two_hosts() {
    let Some(hosts) = Hosts::make() else { return };

    // An address that all know, a world of pairs and one that is a tree.
    for n in [4, 12] {
        all_came(&by_address(&hosts, n, "world", &[]).concat(), n);
    }
    // Without a secret, and with one that differs.
    let said = by_address(&hosts, 2, "world", &[("SYMM_TOKEN", "")]);
    assert!(said.iter().all(|s| s.contains("error Setting: setting SYMM_TOKEN")), "{said:?}");
    all_came(&by_address(&hosts, 2, "world", &[("SYMM_TOKEN", ""), ("SYMM_INSECURE", "1")]).concat(), 2);

    // Death, seen by those who are connected with the PE and by those who are not.
    for n in [4, 12] {
        let said = by_address(&hosts, n, "death", &[]).concat();
        for pe in (0..n).filter(|pe| *pe != n / 2) {
            let (_, rest) =
                said.split_once(&format!("heard {pe} ")).unwrap_or_else(|| panic!("PE {pe}: {said}"));
            let ms: u64 = rest.split_once(" ms").and_then(|(ms, _)| ms.parse().ok()).expect("a time");
            assert!(ms < 1000, "PE {pe} heard of it after {ms} ms");
        }
    }

    // What the host backend says of PEs that cannot map each other's memory: the same on all, naming a pair.
    let said = by_address(&hosts, 4, "backend", &[("SYMM_BACKEND", "host")]);
    let error = "error Unsupported: host: PEs that cannot map each other's memory is not supported: PE 0 cannot import the \
                 test page of PE 2";
    assert!(said.iter().all(|s| s.contains(error)), "{said:?}");

    // torchrun's variables.
    let torchrun = |rank: usize| {
        let vars = [
            ("RANK", rank.to_string()),
            ("WORLD_SIZE", "4".to_owned()),
            ("LOCAL_WORLD_SIZE", "2".to_owned()),
            ("MASTER_ADDR", hosts.address(0)),
            ("MASTER_PORT", "7100".to_owned()),
            ("SYMM_TOKEN", "the same on both".to_owned()),
            ("HOSTS_ROLE", "world".to_owned()),
        ];
        hosts.start(rank / 2, &vars)
    };
    all_came(&(0..4).map(torchrun).collect::<Pes>().said().concat(), 4);

    // Launchers, which bring a secret of their own.
    let (first, second) = (hosts.address(0), hosts.address(1));
    let open_mpi = format!(
        "mpirun.openmpi --allow-run-as-root --oversubscribe --host {first}:2,{second}:2 -n 4 --mca plm_rsh_agent {} -x HOSTS_ROLE",
        hosts.agent()
    );
    let mpich = format!(
        "mpirun.mpich -launcher ssh -launcher-exec {} -hosts {first}:2,{second}:2 -n 4",
        hosts.agent()
    );
    let missed = [
        "error Timeout: init: timeout in PMIx_Fence after 1.",
        "error Bootstrap: bootstrap: PMI: barrier_out: no answer in time: not every PE came",
    ];
    for (launcher, missed) in [open_mpi, mpich].into_iter().zip(missed) {
        for (role, n) in [("world", 4), ("backend", 0)] {
            let Some(said) = hosts.launch(&launcher, &[("HOSTS_ROLE", role.to_owned())]) else { continue };
            all_came(&said, n);
            assert!(n > 0 || said.matches("error Unsupported: host").count() == 4, "{said}");
        }
        // PMIx can be asked who is missing, PMI cannot, and MPICH's launcher ends the others once one has given up.
        let Some(said) = hosts.launch(&launcher, &[("HOSTS_ROLE", "late".to_owned())]) else { continue };
        let over_pmix = missed.contains("PMIx");
        assert!(said.matches(missed).count() >= if over_pmix { 3 } else { 1 }, "{said}");
        assert!(!over_pmix || said.matches("late: PE 1 (expected 4, got 3)").count() == 3, "{said}");
    }
}
