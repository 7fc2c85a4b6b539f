//! What the PEs do: meet, exchange along the tree, exchange through the store.

use std::io::Write;
use std::net::SocketAddr;
use std::process::{Child, Command, ExitCode, Stdio};
use std::sync::{Arc, Barrier};
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};
use symm::bootstrap::{Bootstrap, Contacts, Group, Identity, Secret, Sockets, Tag, Whereabouts};
use symm::{Error, Pe, Result};
use symm_core::Deadline;

use crate::count::Counting;
use crate::store::{self, Client};

/// Bytes that a PE brings to an exchange: a digest.
pub(crate) const PAYLOAD: usize = 16;
/// Keys that a PE gets of the store.
const GROUP: usize = 72;
/// Set in the processes that are PEs: address of the store, PEs, processes, number of this one.
const ROLE: &str = "SYMM_RENDEZVOUS_BENCH";
const LIMIT: Duration = Duration::from_secs(300);
/// Message round trips of the first two PEs.
const TRIPS: u64 = 2000;

/// What PE 0 found out.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Figures {
    pub(crate) start_ms: f64,
    pub(crate) tree_ms: f64,
    pub(crate) store_ms: f64,
    pub(crate) messages: u64,
    pub(crate) path: u64,
    /// One message between two processes.
    pub(crate) one_way_us: Option<f64>,
}

/// Runs `n` PEs in so many processes.
pub(crate) fn measure(n: usize, processes: usize) -> Result<Figures, String> {
    let address = store::serve().map_err(|e| e.to_string())?;
    let start = |number: usize| {
        let mut c = Command::new(std::env::current_exe()?);
        c.env(ROLE, format!("{address} {n} {processes} {number}")).stdout(Stdio::piped());
        c.spawn()
    };
    let started = (0..processes).map(start).collect::<std::io::Result<Vec<Child>>>();
    let outputs = started.map_err(|e| e.to_string())?.into_iter().map(Child::wait_with_output);
    let mut figures = Err("PE 0 said nothing".to_owned());
    for output in outputs {
        let output = output.map_err(|e| e.to_string())?;
        if !output.status.success() {
            return Err(format!("a process ended with {}", output.status));
        }
        // Only PE 0's process says anything.
        if !output.stdout.is_empty() {
            figures = serde_json::from_slice(&output.stdout).map_err(|e| e.to_string());
        }
    }
    figures
}

/// Runs as PEs if a parent says so.
pub(crate) fn serve() -> Option<ExitCode> {
    let role = std::env::var(ROLE).ok()?;
    let words: Vec<&str> = role.split(' ').collect();
    let numbers: Vec<usize> = words.iter().skip(1).filter_map(|w| w.parse().ok()).collect();
    let (Ok(store), &[n, processes, number]) = (words[0].parse::<SocketAddr>(), numbers.as_slice()) else {
        return Some(ExitCode::FAILURE);
    };
    let mine: Vec<usize> = (0..n).filter(|pe| pe * processes / n == number).collect();
    let together = Arc::new(Barrier::new(mine.len()));
    let threads: Vec<_> = mine
        .into_iter()
        .map(|pe| {
            let (together, over_tcp) = (Arc::clone(&together), processes < n);
            let body = move || one(pe, n, store, over_tcp, &together);
            std::thread::Builder::new().stack_size(192 << 10).spawn(body)
        })
        .collect();
    let mut code = ExitCode::SUCCESS;
    for thread in threads {
        match thread.map(std::thread::JoinHandle::join) {
            Ok(Ok(Ok(None))) => {}
            Ok(Ok(Ok(Some(figures)))) => {
                let text = serde_json::to_vec(&figures).unwrap_or_default();
                let _ = std::io::stdout().write_all(&text);
            }
            other => {
                eprintln!("rendezvous: {other:?}");
                code = ExitCode::FAILURE;
            }
        }
    }
    Some(code)
}

/// Addresses travel through the store, as a launcher's key-value space would carry them.
struct ByStore<'a> {
    client: &'a mut Client,
    pe: usize,
}

const CARDS: u64 = 1 << 40;

impl Contacts for ByStore<'_> {
    fn exchange(&mut self, card: &[u8], wanted: &[Pe], _: Deadline) -> Result<Vec<Vec<u8>>> {
        let failed = |e: std::io::Error| Error::Bootstrap { call: "store", why: e.to_string() };
        self.client.set(CARDS + self.pe as u64, card).map_err(failed)?;
        let keys: Vec<u64> = wanted.iter().map(|pe| CARDS + u64::from(pe.0)).collect();
        self.client.get(&keys).map_err(failed)
    }
}

/// One PE; PE 0 returns the figures.
fn one(
    pe: usize,
    n: usize,
    store: SocketAddr,
    over_tcp: bool,
    together: &Barrier,
) -> Result<Option<Figures>> {
    let deadline = || Deadline::after(LIMIT);
    let failed = |e: std::io::Error| Error::Bootstrap { call: "store", why: e.to_string() };
    let mut client = Client::connect(store).map_err(failed)?;
    together.wait();
    let began = Instant::now();
    let job = format!("rendezvous-{}", store.port());
    let identity = Identity { pe: pe.into(), n_pes: n, job, secret: Secret::new(b"bench") };
    let mut contacts = ByStore { client: &mut client, pe };
    let whereabouts = match over_tcp {
        true => Whereabouts::OverTcp { contacts: &mut contacts, interfaces: Some("lo") },
        false => Whereabouts::OneHost,
    };
    let boot = Sockets::join(identity, whereabouts, deadline())? as Arc<dyn Bootstrap>;
    let start_ms = millis(began);
    let all: Vec<Pe> = (0..n).map(Pe::from).collect();

    // What is timed is not counted, since counting adds bytes.
    let group = Group::new(Arc::clone(&boot), 1, all.clone())?;
    let part = [pe as u8; PAYLOAD];
    let rounds = if n > 100 { 3 } else { 30 };
    let mut times = Vec::new();
    for _ in 0..rounds {
        group.barrier("bench", deadline())?;
        let began = Instant::now();
        let parts = group.all_gather("bench", &part, deadline())?;
        let mine = millis(began);
        if parts.iter().enumerate().any(|(from, p)| *p != [from as u8; PAYLOAD]) {
            return Err(Error::Bootstrap {
                call: "bench",
                why: "an exchange brought the wrong bytes".to_owned(),
            });
        }
        times.push(slowest(&group, mine, deadline())?);
    }
    let counting = Counting::new(Arc::clone(&boot));
    let counted = Group::new(counting.clone(), 2, all)?;
    counted.all_gather("bench", &part, deadline())?;
    let (sent, clock) = counting.counts();
    let both = group.all_gather("bench", &[sent.to_le_bytes(), clock.to_le_bytes()].concat(), deadline())?;
    let (mut messages, mut path) = (0, 0);
    for words in both {
        let (words, _) = words.as_chunks::<8>();
        messages += words.first().map_or(0, |w| u64::from_le_bytes(*w));
        path = path.max(words.get(1).map_or(0, |w| u64::from_le_bytes(*w)));
    }
    let one_way_us = if n == 2 { Some(ping(&*boot, deadline())?) } else { None };

    // Through the store: one set, and one get of the keys of its group.
    let first = pe / GROUP * GROUP;
    let mut store_times = Vec::new();
    for round in 0..rounds as u64 {
        let key = |pe: usize| (round + 1) << 32 | pe as u64;
        let keys: Vec<u64> = (first..n.min(first + GROUP)).map(key).collect();
        group.barrier("bench", deadline())?;
        let began = Instant::now();
        client.set(key(pe), &part).map_err(failed)?;
        let got = client.get(&keys).map_err(failed)?;
        let mine = millis(began);
        if got.len() != keys.len() {
            return Err(Error::Bootstrap { call: "bench", why: "the store brought too little".to_owned() });
        }
        store_times.push(slowest(&group, mine, deadline())?);
    }
    group.barrier("bench", deadline())?;
    boot.close();
    let (tree_ms, store_ms) = (median(times), median(store_times));
    Ok((pe == 0).then_some(Figures { start_ms, tree_ms, store_ms, messages, path, one_way_us }))
}

/// The time of the PE that took longest.
fn slowest(group: &Group, mine: f64, deadline: Deadline) -> Result<f64> {
    let all = group.all_gather("bench", &mine.to_le_bytes(), deadline)?;
    let times = all.iter().filter_map(|b| b.as_slice().try_into().ok()).map(f64::from_le_bytes);
    Ok(times.fold(0.0, f64::max))
}

/// Half a round trip between the first two PEs, µs.
fn ping(boot: &dyn Bootstrap, deadline: Deadline) -> Result<f64> {
    let (peer, mut times) = (Pe(1 - boot.pe().0), Vec::new());
    for seq in 0..TRIPS {
        let tag = Tag { team: 99, seq };
        let began = Instant::now();
        if boot.pe() == Pe(0) {
            boot.send(peer, tag, &[0; PAYLOAD], &[])?;
            boot.recv(peer, tag, deadline)?;
        } else {
            boot.recv(peer, tag, deadline)?;
            boot.send(peer, tag, &[0; PAYLOAD], &[])?;
        }
        times.push(millis(began) * 1e3 / 2.0);
    }
    Ok(median(times))
}

fn millis(since: Instant) -> f64 {
    since.elapsed().as_secs_f64() * 1e3
}

fn median(mut times: Vec<f64>) -> f64 {
    times.sort_by(f64::total_cmp);
    times[times.len() / 2]
}
