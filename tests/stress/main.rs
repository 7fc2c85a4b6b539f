//! Endurance: many calls with every word compared, many allocations, graphs on one buffer and with inputs that change, streams of others.
//!
//! ```text
//! cargo test --test stress                                  small, on the host backend, two PEs
//! symm run -n 2 -- stress --kernels check.fatbin            one PE of a job, on whatever backend it gets
//! ```
//!
//! `--small` runs few rounds (for memory checkers), `--json FILE` gets the figures of PE 0, `--kernels FILE` is the image of
//! `check.cu`, without which results are compared on the host. What cannot run is said in the figures and, where `SYMM_REQUIRE` has
//! cuda, is an error. Other words name the parts to run; `killed`, in which the last
//! PE dies, runs only if it is named, alone, with a launcher that lets the others go on (`symm run --keep-going`).

mod beside;
mod changing;
mod check;
mod dispatch;
mod graphs;
mod killed;
mod rounds;
mod sums;

use std::time::Instant;

use anyhow::{Context as _, Result, bail, ensure};
use serde_json::{Map, Value, json};
use symm::World;

use check::Checker;

/// What the parts are given.
struct Run<'a> {
    world: &'a World,
    checker: Checker,
    small: bool,
}

impl Run<'_> {
    /// A number of rounds, or a few.
    fn rounds(&self, all: usize, few: usize) -> usize {
        if self.small { few } else { all }
    }

    /// `what` does not run, for this reason; an error where `SYMM_REQUIRE` has cuda.
    fn skips(&self, what: &str, why: &str) -> Result<()> {
        ensure!(
            !std::env::var("SYMM_REQUIRE").is_ok_and(|r| r.split(',').any(|name| name == "cuda")),
            "{what}: {why}, and SYMM_REQUIRE has cuda"
        );
        println!("PE {}: {what}: skipped: {why}", self.world.pe());
        Ok(())
    }
}

#[derive(Clone, Default)]
struct Args {
    small: bool,
    kernels: Option<String>,
    json: Option<String>,
    parts: Vec<String>,
}

impl Args {
    fn parse() -> Result<Self> {
        let mut args = Args::default();
        let mut words = std::env::args().skip(1);
        while let Some(word) = words.next() {
            match word.as_str() {
                "--small" => args.small = true,
                "--kernels" => args.kernels = Some(words.next().context("--kernels needs a file")?),
                "--json" => args.json = Some(words.next().context("--json needs a file")?),
                // What cargo passes to every test binary.
                "--test-threads" | "--color" | "--format" => drop(words.next()),
                flag if flag.starts_with('-') => {}
                part => args.parts.push(part.to_owned()),
            }
        }
        Ok(args)
    }
}

type Part = fn(&Run<'_>) -> Result<Value>;

const PARTS: [(&str, Part); 8] = [
    ("dispatch", dispatch::short_rows),
    ("dispatch_v3", dispatch::v3),
    ("sums", sums::run),
    ("rounds", rounds::run),
    ("graphs", graphs::three_on_one_buffer),
    ("changing", changing::run),
    ("foreign", graphs::foreign_stream),
    ("beside", beside::run),
];

/// The part that not all PEs survive.
const DEADLY: (&str, Part) = ("killed", killed::run);

fn all(world: &World, args: &Args) -> Result<()> {
    let run = Run { world, checker: Checker::new(world, args.kernels.as_deref())?, small: args.small };
    let mut figures = Map::new();
    let asked = |name: &str| args.parts.iter().any(|p| p == name);
    for (name, part) in PARTS.into_iter().chain([DEADLY]) {
        if !asked(name) && (!args.parts.is_empty() || name == DEADLY.0) {
            continue;
        }
        let began = Instant::now();
        let mut figure = part(&run).with_context(|| format!("PE {}: {name}", world.pe()))?;
        let seconds = began.elapsed().as_secs_f64();
        if let Value::Object(o) = &mut figure {
            o.insert("seconds".to_owned(), json!(seconds));
        }
        if world.pe().index() == 0 {
            println!("{name}: {figure}");
        }
        figures.insert(name.to_owned(), figure);
    }
    if figures.is_empty() {
        bail!("no part has one of the names {:?}", args.parts);
    }
    if let (Some(path), 0) = (&args.json, world.pe().index()) {
        std::fs::write(path, format!("{:#}\n", Value::Object(figures)))?;
    }
    Ok(())
}

fn main() -> Result<()> {
    let args = Args::parse()?;
    if std::env::var_os("SYMM_PE").is_some() {
        let world = symm::init()?;
        all(&world, &args)?;
        let ended = world.finalize();
        // A goodbye to a dead PE fails.
        return if args.parts == [DEADLY.0] { Ok(()) } else { Ok(ended?) };
    }
    if args.parts.iter().any(|p| !PARTS.iter().any(|(name, _)| name == p)) {
        // The filter of another test binary's tests.
        return Ok(());
    }
    let args = Args { small: true, ..args };
    let failure = std::sync::Mutex::new(None);
    symm::Builder::from_config(symm::Config::default()).backend("host").threads(2, |world| {
        if let Err(e) = all(&world, &args) {
            failure.lock().expect("no panic while it is held").get_or_insert(e);
        }
        world.finalize()
    })?;
    failure.into_inner().expect("no panic while it is held").map_or(Ok(()), Err)
}
