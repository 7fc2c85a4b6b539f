//! How an exchange among all PEs scales: along our tree, and through a central store.
//!
//! `cargo bench --bench rendezvous` measures real processes (2 to 64), then thousands of PEs as threads of 4 processes over
//! TCP on loopback, and writes `benches/results/rendezvous.json`. 10,000 PEs need 16 GB of memory: each holds everybody's
//! card and parts as it would on a machine of its own. `--pes N,M` chooses the large worlds, `--test` runs small ones and
//! writes nothing.
//!
//! An exchange is what one step of a `rendezvous` does: every PE brings some bytes and gets everybody's. The store is
//! measured in two patterns. In that of PyTorch's default rendezvous each PE sets its key and gets those of its group of
//! 72, so it moves 72 parts to a PE where the tree moves all. Like for like is the other: each PE sets its key and gets
//! all keys, in one answer that the store makes once.
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

/// How the figures are to be read.
const MEASURED: &str = "exchange_ms: every PE brings payload_bytes and gets everybody's, along the tree; store_all_gather_ms: the same \
    through one central store, the like-for-like comparison; store_ms: through the store in PyTorch's pattern, where a PE \
    gets 72 parts and not all. Each is the time of the PE that took longest, the median of the rounds. start_ms is PE 0's, from \
    when all PEs of its process are there. With thousands of \
    PEs on the cores of one machine these are times of all PEs' work one after another (n times n parts are copied into \
    place), not of waiting: on n machines that work is done at once, and what follows one another is \
    messages_on_critical_path against store_messages_on_critical_path.";

/// Processes of the large worlds.
const PROCESSES: usize = 4;

fn main() -> ExitCode {
    if let Some(code) = pes::serve() {
        return code;
    }
    let mut args = std::env::args().skip(1);
    let (mut small, mut large, mut test) = (vec![2, 4, 8, 16, 32, 64], vec![1_000, 2_000, 10_000], false);
    while let Some(arg) = args.next() {
        match arg.as_str() {
            "--test" => (small, large, test) = (vec![2, 12], vec![40], true),
            "--pes" => {
                let list = args.next().unwrap_or_default();
                match list.split(',').map(|n| n.parse().ok().filter(|n| *n >= PROCESSES)).collect() {
                    Some(pes) => large = pes,
                    None => {
                        return refuse(&format!(
                            "--pes is {list:?}, expected numbers from {PROCESSES}, such as 1000,2000"
                        ));
                    }
                }
            }
            // What cargo itself adds.
            "--bench" => {}
            other => return refuse(&format!("{other:?} is no argument, expected --pes N,M or --test")),
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

fn refuse(why: &str) -> ExitCode {
    eprintln!("rendezvous: {why}");
    ExitCode::from(2)
}

fn run(small: &[usize], large: &[usize], test: bool) -> Result<(), String> {
    let mut rows = Vec::new();
    println!(
        "{:>7} {:>9}  {:>9} {:>8} {:>6} {:>12} {:>12} {:>12} {:>12}",
        "PEs", "processes", "messages", "path", "limit", "start ms", "tree ms", "store ms", "store all ms"
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
        println!(
            "{n:>7} {processes:>9}  {:>9} {:>8} {limit:>6} {:>12.3} {:>12.3} {:>12.3} {:>12.3}",
            figures.messages,
            figures.path,
            figures.start_ms,
            figures.tree_ms,
            figures.store_ms,
            figures.store_all_ms
        );
        rows.push(json!({
            "pes": n, "processes": processes, "transport": if processes == n { "abstract sockets" } else { "TCP on loopback" },
            "payload_bytes": pes::PAYLOAD, "messages": figures.messages, "messages_on_critical_path": figures.path,
            "target_on_critical_path": limit, "start_ms": rounded(figures.start_ms),
            "exchange_ms": rounded(figures.tree_ms), "store_ms": rounded(figures.store_ms),
            "store_all_gather_ms": rounded(figures.store_all_ms),
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
        "measured_text": MEASURED,
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
