//! How an exchange among all PEs scales: along our tree, and through a central store.
//!
//! `cargo bench --bench rendezvous` measures real processes (2 to 64), then thousands of PEs as threads of 4 processes over
//! TCP on loopback (10,000 have not come to an end on 2 cores yet), and writes `benches/results/rendezvous.json`. `--pes N,M` chooses the large worlds, `--test` runs
//! small ones and writes nothing.
//!
//! An exchange is what one step of a `rendezvous` does: every PE brings some bytes and gets everybody's. The store is the
//! one that PyTorch's default rendezvous uses, in its pattern: each PE sets its key and gets those of its group of 72.
//!
//! | file | what |
//! |---|---|
//! | `count` | messages and how many of them follow one another, measured on a bootstrap |
//! | `store` | a central store: one thread serves all |
//! | `pes` | what the PEs do |
//! | `model` | times on real machines |

mod count;
mod model;
mod pes;
mod store;

use std::process::ExitCode;

use serde_json::{Value, json};

use pes::Figures;

/// Processes of the large worlds.
const PROCESSES: usize = 4;

fn main() -> ExitCode {
    if let Some(code) = pes::serve() {
        return code;
    }
    let mut args = std::env::args().skip(1);
    let (mut small, mut large, mut test) = (vec![2, 4, 8, 16, 32, 64], vec![1_000, 2_000], false);
    while let Some(arg) = args.next() {
        match arg.as_str() {
            "--test" => (small, large, test) = (vec![2, 12], vec![40], true),
            "--pes" => {
                let list = args.next().unwrap_or_default();
                large = list.split(',').filter_map(|n| n.parse().ok()).collect();
            }
            _ => {}
        }
    }
    match run(&small, &large, test) {
        Ok(()) => ExitCode::SUCCESS,
        Err(why) => {
            eprintln!("rendezvous: {why}");
            ExitCode::FAILURE
        }
    }
}

fn run(small: &[usize], large: &[usize], test: bool) -> Result<(), String> {
    let mut rows = Vec::new();
    println!(
        "{:>7} {:>9}  {:>9} {:>8} {:>6} {:>12} {:>12} {:>12}",
        "PEs", "processes", "messages", "path", "limit", "tree ms", "store ms", "ours/store"
    );
    let shapes = small.iter().map(|n| (*n, *n)).chain(large.iter().map(|n| (*n, PROCESSES)));
    let mut one_way = None;
    for (n, processes) in shapes {
        let figures: Figures = pes::measure(n, processes)?;
        one_way = one_way.or(figures.one_way_us);
        let limit = 2 * n.next_power_of_two().ilog2() as u64 + 2;
        if figures.path > limit {
            return Err(format!(
                "{n} PEs: {} messages on the critical path, {limit} are the target",
                figures.path
            ));
        }
        let ratio = figures.tree_ms / figures.store_ms;
        println!(
            "{n:>7} {processes:>9}  {:>9} {:>8} {limit:>6} {:>12.3} {:>12.3} {ratio:>12.3}",
            figures.messages, figures.path, figures.tree_ms, figures.store_ms
        );
        rows.push(json!({
            "pes": n, "processes": processes, "transport": if processes == n { "abstract sockets" } else { "TCP on loopback" },
            "payload_bytes": pes::PAYLOAD, "messages": figures.messages, "messages_on_critical_path": figures.path,
            "target_on_critical_path": limit, "start_ms": rounded(figures.start_ms),
            "exchange_ms": rounded(figures.tree_ms), "store_ms": rounded(figures.store_ms),
            "store_messages": 4 * n, "store_messages_on_critical_path": 2 * n,
        }));
    }
    let modelled = model::rows();
    for row in &modelled {
        println!("modelled {row}");
    }
    if test {
        return Ok(());
    }
    let result = json!({
        "bench": "rendezvous",
        "measured": rows,
        "one_way_message_us": one_way.map(rounded),
        "model": model::text(),
        "modelled": modelled,
        "machine": machine(),
        "commit": line("git", &["describe", "--always", "--dirty", "--abbrev=12"]),
        "date": line("date", &["-u", "+%Y-%m-%d"]),
    });
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/benches/results/rendezvous.json");
    let text = serde_json::to_string_pretty(&result).map_err(|e| e.to_string())?;
    std::fs::write(path, text + "\n").map_err(|e| format!("{path}: {e}"))
}

pub(crate) fn rounded(value: f64) -> f64 {
    (value * 1e3).round() / 1e3
}

fn machine() -> Value {
    let cpu = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let model = cpu.lines().find_map(|l| l.strip_prefix("model name")).unwrap_or_default();
    json!({
        "cpu": model.trim_start_matches(['\t', ' ', ':']),
        "cores": std::thread::available_parallelism().map_or(0, std::num::NonZero::get),
        "kernel": line("uname", &["-r"]),
    })
}

fn line(program: &str, args: &[&str]) -> String {
    let output = std::process::Command::new(program).args(args).output();
    output.map_or_else(|e| e.to_string(), |o| String::from_utf8_lossy(&o.stdout).trim().to_owned())
}
