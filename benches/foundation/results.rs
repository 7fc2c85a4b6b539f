//! Figures as ratios, both sides in alternation, and their JSON.

use std::process::Command;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use serde_json::{Value, json};
use symm::{Result, World};

use crate::cases::{BYTES, Case};
use crate::job::Job;

/// Rounds of the alternation.
const ROUNDS: usize = 31;

pub(crate) struct Figures {
    /// Case, seconds of an iteration in each round.
    samples: Vec<(Case, Vec<f64>)>,
    first_rendezvous: Duration,
}

/// PE 0: takes every case `ROUNDS` times in alternation.
pub(crate) fn measure(job: &Job) -> Result<Figures> {
    let cases: Vec<Case> = Case::ALL.into_iter().filter(|c| c.runs_on(job.world.n_pes())).collect();
    let mut samples: Vec<(Case, Vec<f64>)> = cases.iter().map(|c| (*c, Vec::new())).collect();
    for _ in 0..ROUNDS {
        for (case, times) in &mut samples {
            let iterations = match case {
                Case::RoundTrip => 2000,
                Case::Barrier => 200,
                Case::Rendezvous => 10,
                _ => 1,
            };
            times.push(job.lead(*case, iterations)?.as_secs_f64() / iterations as f64);
        }
    }
    Ok(Figures { samples, first_rendezvous: job.first_rendezvous })
}

/// Three digits behind the point say more than the machine's noise does.
fn rounded(value: f64) -> Value {
    json!((value * 1e3).round() / 1e3)
}

fn quantile(times: &[f64], q: f64) -> f64 {
    let mut sorted = times.to_vec();
    sorted.sort_by(f64::total_cmp);
    sorted[((sorted.len() - 1) as f64 * q).round() as usize]
}

impl Figures {
    fn median(&self, case: Case) -> Option<f64> {
        self.samples.iter().find(|(c, _)| *c == case).map(|(_, t)| quantile(t, 0.5))
    }
}

fn line(program: &str, args: &[&str]) -> String {
    let output = Command::new(program).args(args).output();
    output.map_or_else(|e| e.to_string(), |o| String::from_utf8_lossy(&o.stdout).trim().to_owned())
}

fn cpu() -> String {
    let info = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let model = info.lines().find(|l| l.starts_with("model name")).and_then(|l| l.split(':').nth(1));
    model.unwrap_or("unknown").trim().to_owned()
}

/// PE 0: prints the ratios; writes them if `SYMM_BENCH_JSON` names a folder.
pub(crate) fn report(world: &World, figures: &Figures) {
    let ceiling = figures.median(Case::Memcpy);
    let mut cases = serde_json::Map::new();
    for (case, times) in &figures.samples {
        let p50 = quantile(times, 0.5);
        let mut row = json!({ "p50_us": rounded(p50 * 1e6), "p99_us": rounded(quantile(times, 0.99) * 1e6), "min_us": rounded(quantile(times, 0.0) * 1e6) });
        let moves = matches!(case, Case::Vdev2d | Case::AllToAll | Case::AllGather | Case::Memcpy);
        if let (true, Some(ceiling)) = (moves, ceiling) {
            row["gb_per_s_all_pes"] = rounded((BYTES * world.n_pes()) as f64 / p50 / 1e9);
            row["fraction_of_memcpy"] = rounded(ceiling / p50);
        }
        println!("{:>36}: {row}", case.name());
        cases.insert(case.name().to_owned(), row);
    }
    let seconds = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
    let all: Value = json!({
        "bench": "foundation", "backend": "host", "reach": "direct", "pes": world.n_pes(),
        "cpu": cpu(), "cores": std::thread::available_parallelism().map_or(0, usize::from),
        "kernel": line("uname", &["-r"]), "rustc": line("rustc", &["--version"]),
        "commit": line("git", &["describe", "--always", "--dirty"]), "unix_time": seconds, "rounds": ROUNDS,
        "first_rendezvous_us": rounded(figures.first_rendezvous.as_secs_f64() * 1e6),
        "cases": cases,
    });
    if let Some(folder) = std::env::var_os("SYMM_BENCH_JSON") {
        let path = std::path::Path::new(&folder).join(format!("host-foundation-{}pe.json", world.n_pes()));
        let text = serde_json::to_string_pretty(&all).unwrap_or_default() + "\n";
        if let Err(e) = std::fs::write(&path, text) {
            eprintln!("foundation: {}: {e}", path.display());
        }
    }
}
