//! One-sided operations, signals, barrier and MoE dispatch over a number of hosts, under criterion.
//!
//! ```text
//! mpirun -n 16 --host a:8,b:8 -x SYMM_BACKEND=nvshmem -x SCALE_OUT=rows.jsonl TARGET/scale_out-* --bench
//! ```
//!
//! The program is one PE; any launcher that the library starts under will do, and without one it starts itself as 2 PEs. Each
//! run appends one row to the file that `SCALE_OUT` names: hosts, PEs, backend, transport, and for every operation and size the
//! median time and bytes a second. So the file gets one row for each number of hosts. PE 0 alone runs criterion, a time is the
//! maximum over PEs, every measurement ends with a run from fresh buffers whose values are all compared.
//!
//! Over made-up hosts of one machine (`ci/two-hosts`) the figures show that it works and how they go with size, nothing of a
//! network; the row says so by its transport.

#[allow(dead_code, unused_imports, reason = "the command line uses the rest, and has their tests")]
#[path = "../common/cases.rs"]
mod cases;
#[path = "../common/mod.rs"]
mod common;
mod row;

use std::cell::RefCell;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use cases::buffers::{Buffers, Limits};
use cases::op::Op;
use common::lead::Lead;
use criterion::{Criterion, Throughput};
use row::Row;
use symm::{Error, Result, World};

const SIZES: [usize; 4] = [8, 64 << 10, 1 << 20, 16 << 20];
const LIMITS: Limits = Limits { bytes: 16 << 20, row: 8192, experts: 8, root: 0, max_blocks: None };
/// In the order of their numbers.
const OPS: [Op; 5] = [Op::Put, Op::Get, Op::Signal, Op::Barrier, Op::Vdev2d];

fn main() -> ExitCode {
    let started = symm::Config::from_env().and_then(|config| symm::is_started(&config));
    let result = match started {
        Ok(false) if common::asks(&["--help", "-h", "--list"]) => {
            for op in OPS {
                println!("{}: bench", op.name());
            }
            Ok(ExitCode::SUCCESS)
        }
        Ok(false) => common::start("scale_out", &[2]),
        Ok(true) => pe(),
        Err(e) => Err(e),
    };
    common::exit("scale_out", result)
}

struct Job {
    world: World,
    lead: Lead,
    buffers: Buffers<f32>,
}

impl Job {
    /// Runs what PE 0 asked for on this PE, and returns the longest time of all.
    fn work(&self, [op, size, iterations]: [u64; 3]) -> Result<Duration> {
        let wrong = |got: u64| {
            Error::argument("scale_out", "operation", got, format!("a number below {}", OPS.len()))
        };
        let op = *OPS.get(op as usize).ok_or_else(|| wrong(op))?;
        let case = self.buffers.case(op, size as usize, None)?;
        case.reset()?;
        case.calm()?;
        let began = Instant::now();
        case.run(iterations)?;
        let time = self.lead.maximum(began.elapsed())?;
        match case.check(false)? {
            0 => Ok(time),
            wrong => {
                let why = format!("{wrong} values of {} with {size} bytes are wrong", op.name());
                Err(Error::Bootstrap { call: "bench check", why })
            }
        }
    }

    fn lead(&self, command: [u64; 3]) -> Result<Duration> {
        self.lead.ask(command)?;
        self.work(command)
    }
}

fn pe() -> Result<ExitCode> {
    let world = symm::init()?;
    let row = Row::new(&world)?;
    let job = Job { lead: Lead::new(&world)?, buffers: Buffers::new(&world, &OPS, LIMITS)?, world };
    if job.world.pe().0 == 0 {
        let row = RefCell::new(row);
        let mut criterion = Criterion::default()
            .configure_from_args()
            .sample_size(10)
            .warm_up_time(Duration::from_millis(100))
            .measurement_time(Duration::from_millis(500));
        for (number, op) in OPS.into_iter().enumerate() {
            measure(&mut criterion, &job, number as u64, op, &row);
        }
        criterion.final_summary();
        job.lead.end()?;
        row.into_inner().append()?;
    } else {
        job.lead.serve(|command| job.work(command).map(drop))?;
    }
    job.world.finalize()?;
    Ok(ExitCode::SUCCESS)
}

fn measure(criterion: &mut Criterion, job: &Job, number: u64, op: Op, row: &RefCell<Row>) {
    let name = format!("{}, {}", op.name(), row.borrow().name());
    let mut group = criterion.benchmark_group(name);
    let sizes = if op == Op::Barrier { &[0][..] } else { &SIZES[..] };
    for size in sizes {
        let traffic = op.traffic(job.world.n_pes(), *size);
        let moved = traffic.wire + traffic.local;
        if moved > 0.0 {
            group.throughput(Throughput::Bytes(moved as u64));
        }
        let samples = RefCell::new(Vec::new());
        group.bench_function(format!("{size} B"), |b| {
            b.iter_custom(|n| {
                let time = job.lead([number, *size as u64, n]).expect("a bench's operations should not fail");
                samples.borrow_mut().push(time.as_secs_f64() / n as f64);
                time
            });
        });
        row.borrow_mut().add(op.name(), *size, traffic.wire, samples.into_inner());
    }
    group.finish();
}
