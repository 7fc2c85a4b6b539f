//! The operations of `symm bench` under criterion: `cargo bench --bench ops`.
//!
//! Without a launcher the program starts itself as 2 and then as 4 PEs; under one (`symm run`, `mpirun`) it is a PE. PE 0
//! alone runs criterion: it broadcasts (operation, size, iterations) and the others serve, so that every iteration is one
//! of all PEs. A time is the maximum over PEs. Beside each operation that moves bytes runs a copy of as many bytes by all
//! PEs. Every measurement ends with one more run from fresh buffers, whose values are all compared.

#[allow(dead_code, unused_imports, reason = "the command line uses the rest, and has their tests")]
#[path = "../common/cases.rs"]
mod cases;
#[path = "../common/mod.rs"]
mod common;

use std::process::ExitCode;
use std::time::{Duration, Instant};

use cases::buffers::{Buffers, Limits};
use cases::op::Op;
use common::lead::Lead;
use criterion::{Criterion, Throughput};
use symm::{Backend, Error, Result, World};

/// Small enough for latency, and large enough for bandwidth.
const SIZES: [usize; 3] = [8, 64 << 10, 16 << 20];
const LIMITS: Limits = Limits { bytes: 16 << 20, row: 8192, experts: 8, root: 0, max_blocks: None };
/// In the order of their numbers.
const OPS: [Op; 22] = [
    Op::Put,
    Op::Get,
    Op::Signal,
    Op::Barrier,
    Op::AllGather,
    Op::OneShotAllReduce,
    Op::TwoShotAllReduce,
    Op::ReduceScatter,
    Op::Broadcast,
    Op::AllToAll,
    Op::Vdev,
    Op::Vdev2d,
    Op::Combine,
    Op::PlanDispatch,
    Op::PlanRound,
    Op::LowContentionAllGather,
    Op::LowContentionAllToAll,
    Op::LowContentionReduceScatter,
    Op::AllToAllNd,
    Op::ReduceScatterOffset,
    Op::TileReduce,
    Op::MultiRootTileReduce,
];
/// What a sample lasts at least. Before it buffers are written and compared for longer than that, so that criterion, which counts this
/// in, would be content with single calls, which a GPU and its links that have idled serve 0.1 ms late.
const SAMPLE: Duration = Duration::from_millis(20);
/// Calls before each sample, which wake them.
const AWAKE: u64 = 3;
/// Added to an operation's number: the copy of as many bytes.
const COPY: u64 = 1 << 32;

fn main() -> ExitCode {
    let listed = || -> Result<ExitCode> {
        for op in OPS {
            println!("{}: bench", op.name());
        }
        Ok(ExitCode::SUCCESS)
    };
    let started = symm::Config::from_env().and_then(|config| symm::is_started(&config));
    let result = match started {
        Ok(false) if common::asks(&["--help", "-h", "--list"]) => listed(),
        Ok(false) => common::start("ops", &[2, 4]),
        Ok(true) => pe(),
        Err(e) => Err(e),
    };
    common::exit("ops", result)
}

struct Job {
    world: World,
    lead: Lead,
    buffers: Buffers<f32>,
}

impl Job {
    /// Runs what PE 0 asked for on this PE, and returns the longest time of all.
    fn work(&self, [op, size, iterations]: [u64; 3]) -> Result<Duration> {
        let index = (op % COPY) as usize;
        let Some(op_) = OPS.get(index) else {
            return Err(Error::argument("ops", "operation", index, format!("a number below {}", OPS.len())));
        };
        let mut plan = self.buffers.plan_buffers(*op_)?;
        let case = self.buffers.case(*op_, size as usize, plan.as_mut())?;
        case.reset()?;
        case.calm()?;
        let calls = |n: u64| if op >= COPY { case.copy(n) } else { case.run(n) };
        if !tests() {
            calls(AWAKE)?;
            case.meet()?;
        }
        let began = Instant::now();
        calls(iterations)?;
        let time = self.lead.maximum(began.elapsed())?;
        let wrong = case.check(false)?;
        if wrong > 0 {
            let why = format!("{wrong} values of {} with {size} bytes are wrong", op_.name());
            return Err(Error::Bootstrap { call: "bench check", why });
        }
        Ok(time)
    }

    fn lead(&self, command: [u64; 3]) -> Result<Duration> {
        self.lead.ask(command)?;
        self.work(command)
    }
}

/// Whether every operation is to run once, for its values only.
fn tests() -> bool {
    common::asks(&["--test"])
}

fn pe() -> Result<ExitCode> {
    let world = symm::init()?;
    let job = Job { lead: Lead::new(&world)?, buffers: Buffers::new(&world, &OPS, LIMITS)?, world };
    if job.world.pe().0 == 0 {
        let mut criterion = Criterion::default()
            .configure_from_args()
            .sample_size(10)
            .warm_up_time(Duration::from_millis(200))
            .measurement_time(Duration::from_secs(1));
        for (number, op) in OPS.into_iter().enumerate() {
            measure(&mut criterion, &job, number as u64, op);
        }
        criterion.final_summary();
        job.lead.end()?;
    } else {
        job.lead.serve(|command| job.work(command).map(drop))?;
    }
    job.world.finalize()?;
    Ok(ExitCode::SUCCESS)
}

fn measure(criterion: &mut Criterion, job: &Job, number: u64, op: Op) {
    let pes = job.world.n_pes();
    let name = format!("{}, {}, {pes} PEs", op.name(), job.world.backend().name());
    let mut group = criterion.benchmark_group(name);
    let sizes = if op == Op::Barrier { &[0][..] } else { &SIZES[..] };
    for size in sizes {
        let traffic = op.traffic(pes, *size);
        let moved = traffic.wire + traffic.local;
        if moved > 0.0 {
            group.throughput(Throughput::Bytes(moved as u64));
        }
        let lead = |number: u64, iterations: u64| {
            job.lead([number, *size as u64, iterations]).expect("a bench's operations should not fail")
        };
        let mut bench = |name: String, number: u64| {
            let calls = match tests() {
                true => 1,
                false => {
                    (SAMPLE.as_nanos() / (lead(number, 10).as_nanos() / 10).max(1)).clamp(1, 10_000) as u64
                }
            };
            group.bench_function(name, |b| {
                b.iter_custom(|n| lead(number, n * calls).div_f64(calls as f64));
            });
        };
        bench(format!("{size} B"), number);
        if moved > 0.0 {
            bench(format!("{size} B, copy"), number + COPY);
        }
    }
    group.finish();
}
