//! The CUDA backend's speed on the GPUs of one host, row by row of the table in `docs/BENCHMARKS.md`. `ci/gpu bench` runs it
//! beside the same rows of PyTorch and NCCL (`benches/peers/`).
//!
//! ```text
//! symm run -n 2 -- gpu --check check.fatbin --trips round_trip.fatbin --json FILE [--cold] [--workloads] [ROW...]
//! ```
//!
//! A row is measured twice. *graph*: calls captured into a graph, whose replay begins when all GPUs have met, so that no launch
//! from the host is in it; with `--cold` the first of them finds nothing in the GPU's cache. *eager*: one call between two events, after the PEs have met on the host. Both are medians over
//! repeats of the maximum over PEs. What a row computed is checked outside the timed region, and a wrong word ends the program.
//! With `--workloads` the rows are those of `workloads.json`. Words after the options name the rows to run, by the beginning of
//! their names.
#![allow(clippy::print_stdout, reason = "a program")]

mod equal;
mod kernels;
mod small;
mod sums;
mod timer;
mod vdev;
mod workloads;

use anyhow::{Context as _, Result, ensure};
use serde_json::{Map, Value, json};

use equal::Way;
use kernels::Kernel;
use timer::{Timer, Times};

/// What a measured time is compared with.
#[derive(Clone, Copy)]
enum Target {
    /// At most so many µs.
    Micros(f64),
    /// At least this part of the copy engine's rate.
    OfCeiling(f64),
    /// At most so many times another row's time.
    Times(&'static str, f64),
    /// None was set.
    None,
}

/// A row of the table.
struct Row {
    name: String,
    target: Target,
    /// Bytes that the busiest PE sends to others.
    wire_bytes: f64,
    /// Link latencies that no implementation avoids.
    hops: f64,
    times: Times,
}

struct Bench<'a> {
    timer: Timer<'a>,
    compare: Kernel,
    trips: Kernel,
    wanted: Vec<String>,
    rows: Vec<Row>,
    /// µs of `round_trip_8B` by each signal, of which the row has the median.
    round_trips: Vec<f64>,
}

impl Bench<'_> {
    /// Whether the row is among those to run.
    fn wants(&self, name: &str) -> bool {
        self.wanted.is_empty() || self.wanted.iter().any(|w| name.starts_with(w.as_str()))
    }

    fn add(&mut self, name: &str, target: Target, wire_bytes: f64, hops: f64, times: Times) {
        if self.timer.world.pe().index() == 0 {
            println!("{name}: graph {:.2} us, eager {:.2} us", times.graph_us, times.eager_us);
        }
        self.rows.push(Row { name: name.to_owned(), target, wire_bytes, hops, times });
    }
}

/// Three digits behind the point say more than the noise does.
fn rounded(value: f64) -> Value {
    json!((value * 1e3).round() / 1e3)
}

/// A row as JSON; `link`: the copy engine's GB/s and a link's latency in µs, both of this run.
fn row(row: &Row, link: (f64, f64), rows: &[Row]) -> Value {
    let (ceiling, latency) = link;
    let mut fields = Map::new();
    let mut put = |name: &str, value: f64| fields.insert(name.to_owned(), rounded(value));
    put("graph_us", row.times.graph_us);
    put("eager_us", row.times.eager_us);
    put("floor_us", row.wire_bytes / ceiling / 1e3 + row.hops * latency);
    if row.wire_bytes > 0.0 {
        put("wire_bytes", row.wire_bytes);
        put("wire_gbps", row.wire_bytes / row.times.graph_us / 1e3);
    }
    match row.target {
        Target::Micros(us) => drop(put("target_us", us)),
        Target::OfCeiling(part) => drop(put("target_us", row.wire_bytes / (ceiling * part) / 1e3)),
        Target::Times(other, factor) => {
            if let Some(other) = rows.iter().find(|r| r.name == other) {
                put("target_us", other.times.graph_us * factor);
            }
        }
        Target::None => {}
    }
    Value::Object(fields)
}

struct Args {
    check: String,
    trips: String,
    json: Option<String>,
    cold: bool,
    workloads: bool,
    wanted: Vec<String>,
}

impl Args {
    fn parse() -> Result<Self> {
        let mut found = [None, None, None];
        let (mut cold, mut workloads, mut wanted) = (false, false, Vec::new());
        let mut words = std::env::args().skip(1);
        while let Some(word) = words.next() {
            match ["--check", "--trips", "--json"].iter().position(|name| *name == word) {
                Some(i) => found[i] = Some(words.next().with_context(|| format!("{word} needs a file"))?),
                // What cargo passes to every bench.
                None if word == "--bench" => {}
                None if word == "--cold" => cold = true,
                None if word == "--workloads" => workloads = true,
                None => wanted.push(word),
            }
        }
        let [check, trips, json] = found;
        let usage = "usage: symm run -n N -- gpu --check check.fatbin --trips round_trip.fatbin [--json FILE] [--cold] [--workloads] [ROW...]";
        Ok(Args { check: check.context(usage)?, trips: trips.context(usage)?, json, cold, workloads, wanted })
    }
}

fn main() -> Result<()> {
    let args = Args::parse()?;
    let world = symm::init()?;
    ensure!(
        symm::Backend::name(world.backend()) == "cuda",
        "these rows are the CUDA backend's: SYMM_BACKEND=cuda"
    );
    let first = equal::first_rendezvous(&world)?;
    let timer = Timer::new(&world, args.cold)?;
    let first_ms = timer.maximum(first.as_secs_f64() * 1e3)?;
    let ceiling = equal::copy_engine(&timer, Way::Put, 256 << 20)?;
    let got = equal::copy_engine(&timer, Way::Get, 256 << 20)?;
    let (compare, trips) = (Kernel::load(&args.check, c"check")?, Kernel::load(&args.trips, c"round_trip")?);
    let latency = small::link_latency(&timer, &Kernel::load(&args.trips, c"flags")?)?;
    let mut bench =
        Bench { timer, compare, trips, wanted: args.wanted, rows: Vec::new(), round_trips: Vec::new() };
    if args.workloads {
        workloads::run(&mut bench)?;
    } else {
        small::run(&mut bench)?;
        vdev::run(&mut bench)?;
        sums::run(&mut bench)?;
        equal::run(&mut bench)?;
    }

    let rows: Map<String, Value> =
        bench.rows.iter().map(|r| (r.name.clone(), row(r, (ceiling, latency), &bench.rows))).collect();
    let figures = json!({
        "pes": world.n_pes(),
        "cold": args.cold,
        "copy_engine_256MiB_gbps": rounded(ceiling),
        "copy_engine_get_256MiB_gbps": rounded(got),
        "link_latency_us": rounded(latency),
        "first_rendezvous_256MiB_ms": rounded(first_ms),
        "round_trip_8B_by_signal_us": bench.round_trips.iter().copied().map(rounded).collect::<Vec<_>>(),
        "rows": rows,
    });
    if world.pe().index() == 0 {
        println!("{figures:#}");
        if let Some(path) = args.json {
            std::fs::write(path, format!("{figures:#}\n"))?;
        }
    }
    drop(bench);
    Ok(world.finalize()?)
}
