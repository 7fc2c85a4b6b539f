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
/// Set in the processes that are PEs: address of the store, PEs, processes, number of this one, name of the job.
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
    pub(crate) store_all_ms: f64,
    pub(crate) messages: u64,
    pub(crate) path: u64,
    /// One message between two processes.
    pub(crate) one_way_us: Option<f64>,
}

/// Runs `n` PEs in so many processes.
pub(crate) fn measure(n: usize, processes: usize) -> Result<Figures, String> {
    let addresses = store::serve(processes).map_err(|e| e.to_string())?;
    let job = addresses[0].port();
    let start = |number: usize| {
        let mut c = Command::new(std::env::current_exe()?);
        c.env(ROLE, format!("{} {n} {processes} {number} {job}", addresses[number])).stdout(Stdio::piped());
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
    let (Ok(store), &[n, processes, number, job]) = (words[0].parse::<SocketAddr>(), numbers.as_slice())
    else {
        return Some(ExitCode::FAILURE);
    };
    let mine: Vec<usize> = (0..n).filter(|pe| pe * processes / n == number).collect();
    let together = Arc::new(Barrier::new(mine.len()));
    let threads: Vec<_> = mine
        .into_iter()
        .map(|pe| {
            let part = Part { pe, n, store, over_tcp: processes < n, job, together: Arc::clone(&together) };
            let body = move || one(&part);
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

/// Where keys begin: cards, counts, times, and those of the two exchanges through the store.
const CARDS: u64 = 1 << 48;
const COUNTS: u64 = 2 << 48;
const TREE: u64 = 3 << 48;
const GROUPED: u64 = 4 << 48;
const WHOLE: u64 = 5 << 48;
const GROUPED_KEYS: u64 = 6 << 48;
const WHOLE_KEYS: u64 = 7 << 48;

impl Contacts for ByStore<'_> {
    fn exchange(&mut self, card: &[u8], wanted: &[Pe], _: Deadline) -> Result<Vec<Vec<u8>>> {
        self.client.set(CARDS + self.pe as u64, card).map_err(failed)?;
        let keys: Vec<u64> = wanted.iter().map(|pe| CARDS + u64::from(pe.0)).collect();
        self.client.get(&keys).map_err(failed)
    }
}

/// What a PE is told.
struct Part {
    pe: usize,
    n: usize,
    store: SocketAddr,
    over_tcp: bool,
    /// The job's name.
    job: usize,
    /// The PEs of this process.
    together: Arc<Barrier>,
}

/// One PE; PE 0 returns the figures.
fn one(part: &Part) -> Result<Option<Figures>> {
    let &Part { pe, n, store, over_tcp, job, .. } = part;
    let mut client = Client::connect(store).map_err(failed)?;
    part.together.wait();
    let began = Instant::now();
    let job = format!("rendezvous-{job}");
    let identity = Identity { pe: pe.into(), n_pes: n, job, secret: Secret::new(b"bench") };
    let mut contacts = ByStore { client: &mut client, pe };
    let whereabouts = match over_tcp {
        true => Whereabouts::OverTcp { contacts: &mut contacts, interfaces: Some("lo") },
        false => Whereabouts::OneHost,
    };
    let boot = Sockets::join(identity, whereabouts, deadline())? as Arc<dyn Bootstrap>;
    let start_ms = millis(began);

    // What is timed is not counted, since counting adds bytes.
    let all = || (0..n).map(Pe::from).collect::<Vec<Pe>>();
    let group = Group::new(Arc::clone(&boot), 1, all())?;
    let mine = [pe as u8; PAYLOAD];
    let rounds = if n > 100 { 3 } else { 30 };
    let wrong = || Error::Bootstrap { call: "bench", why: "an exchange brought the wrong bytes".to_owned() };
    let right = |parts: &[Vec<u8>], first: usize| {
        parts.iter().enumerate().all(|(i, p)| *p == [(first + i) as u8; PAYLOAD])
    };
    let tree = Timed::new(TREE, rounds);
    for round in 0..rounds {
        group.barrier("bench", deadline())?;
        let began = Instant::now();
        let parts = group.all_gather("bench", &mine, deadline())?;
        tree.note(millis(began), round, pe, &mut client)?;
        if parts.len() != n || !right(&parts, 0) {
            return Err(wrong());
        }
    }
    let counting = Counting::new(Arc::clone(&boot));
    let counted = Group::new(counting.clone(), 2, all())?;
    counted.all_gather("bench", &mine, deadline())?;
    drop(counted);
    let (sent, clock) = counting.counts();
    client.set(COUNTS + pe as u64, &[sent.to_le_bytes(), clock.to_le_bytes()].concat()).map_err(failed)?;
    let one_way_us = if n == 2 { Some(ping(&*boot, deadline())?) } else { None };

    // Through the store: one set, and one get of the keys of its group, or of everybody's.
    let first = pe / GROUP * GROUP;
    let size = n.min(first + GROUP) - first;
    let (grouped, whole) = (Timed::new(GROUPED, rounds), Timed::new(WHOLE, rounds));
    for round in 0..rounds {
        let base = GROUPED_KEYS + (round << 32);
        let keys: Vec<u64> = (first..first + size).map(|pe| base + pe as u64).collect();
        group.barrier("bench", deadline())?;
        let began = Instant::now();
        client.set(base + pe as u64, &mine).map_err(failed)?;
        let got = client.get(&keys).map_err(failed)?;
        grouped.note(millis(began), round, pe, &mut client)?;
        if got.len() != size || !right(&got, first) {
            return Err(wrong());
        }
    }
    for round in 0..rounds {
        let base = WHOLE_KEYS + (round << 32);
        group.barrier("bench", deadline())?;
        let began = Instant::now();
        client.set(base + pe as u64, &mine).map_err(failed)?;
        let got = client.get_range(base, n as u64).map_err(failed)?;
        whole.note(millis(began), round, pe, &mut client)?;
        if got.len() != n || !right(&got, 0) {
            return Err(wrong());
        }
    }
    group.barrier("bench", deadline())?;
    let mut figures = None;
    if pe == 0 {
        let (mut messages, mut path) = (0, 0);
        for [sent, clock] in words(&client.get_range(COUNTS, n as u64).map_err(failed)?) {
            messages += sent;
            path = path.max(clock);
        }
        let tree_ms = tree.median(n, &mut client)?;
        let (store_ms, store_all_ms) = (grouped.median(n, &mut client)?, whole.median(n, &mut client)?);
        figures = Some(Figures { start_ms, tree_ms, store_ms, store_all_ms, messages, path, one_way_us });
    }
    boot.close();
    Ok(figures)
}

fn deadline() -> Deadline {
    Deadline::after(LIMIT)
}

fn failed(e: std::io::Error) -> Error {
    Error::Bootstrap { call: "store", why: e.to_string() }
}

/// Times of all PEs, which meet in the store, so that bringing them together costs the tree nothing.
struct Timed {
    keys: u64,
    rounds: u64,
}

impl Timed {
    fn new(keys: u64, rounds: u64) -> Self {
        Timed { keys, rounds }
    }

    fn note(&self, ms: f64, round: u64, pe: usize, client: &mut Client) -> Result<()> {
        let us = (ms * 1e3) as u64;
        let value = [us.to_le_bytes(), 0_u64.to_le_bytes()].concat();
        client.set(self.keys + (round << 32) + pe as u64, &value).map_err(failed)
    }

    /// Of the times of the PE that took longest, ms.
    fn median(&self, n: usize, client: &mut Client) -> Result<f64> {
        let slowest = |round: u64| {
            let times = client.get_range(self.keys + (round << 32), n as u64).map_err(failed)?;
            Ok(words(&times).map(|[us, _]| us as f64 / 1e3).fold(0.0, f64::max))
        };
        Ok(median((0..self.rounds).map(slowest).collect::<Result<_>>()?))
    }
}

/// Two words a value.
fn words(values: &[Vec<u8>]) -> impl Iterator<Item = [u64; 2]> + '_ {
    values.iter().filter_map(|value| {
        let (words, _) = value.as_chunks::<8>();
        <[[u8; 8]; 2]>::try_from(words).ok().map(|words| words.map(u64::from_le_bytes))
    })
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
