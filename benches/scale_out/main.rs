//! One-sided operations, signals, barrier and MoE dispatch over a number of hosts, under criterion.
//!
//! ```text
//! mpirun -n 16 --host a:8,b:8 -x SYMM_BACKEND=nvshmem -x SCALE_OUT=rows.jsonl TARGET/scale_out-* --bench
//! ```
//!
//! The program is one PE; any launcher that the library starts under will do, and without one it starts itself as 2 PEs. Each
//! run appends one row to the file that `SCALE_OUT` names: hosts, PEs, backend, transport, the first rendezvous, and for every operation
//! and size the median time and bytes a second; where all PEs are direct, `copy` is what the link can do. So the file gets one row for each number of hosts. PE 0 alone runs criterion, a time is the
//! maximum over PEs, every measurement ends with a run from fresh buffers whose values are all compared. Where all PEs are direct and
//! `SCALE_OUT_SCOPES` names the kernels of `scope.cu`, compiled, there are rows for puts and gets by a thread, a warp and a block.
//!
//! Over made-up hosts of one machine (`ci/two-hosts`) the figures show that it works and how they go with size, nothing of a
//! network; the row says so by its transport.

#[allow(dead_code, unused_imports, reason = "the command line uses the rest, and has their tests")]
#[path = "../common/cases.rs"]
mod cases;
#[path = "../common/mod.rs"]
mod common;
#[cfg(feature = "cuda")]
#[allow(dead_code, reason = "the other bench compares with a kernel")]
#[path = "../gpu/kernels.rs"]
mod kernels;
mod row;
mod scope;
mod trip;

use std::cell::RefCell;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use cases::buffers::{Buffers, Limits};
use cases::op::{Op, Traffic};
use common::lead::Lead;
use criterion::{Criterion, Throughput};
use row::Row;
use scope::{Scope, Scopes, Way};
use symm::{Error, Reach, Result, World};
use trip::Trip;

const SIZES: [usize; 4] = [8, 64 << 10, 1 << 20, 16 << 20];
const LIMITS: Limits = Limits { bytes: 16 << 20, row: 8192, experts: 8, root: 0, max_blocks: None };
/// What is moved besides where all PEs are direct: enough that starting them does not count.
const LONG: usize = 64 << 20;
const OPS: [Op; 5] = [Op::Put, Op::Get, Op::Signal, Op::Barrier, Op::Vdev2d];
/// What a sample lasts at least. Before it buffers are written and compared for longer than that, so that criterion, which counts this
/// in, would be content with single calls, which a GPU and its links that have idled serve 0.1 ms late (2 H200: a barrier in 130 µs
/// where it takes 15).
const SAMPLE: Duration = Duration::from_millis(20);
/// Calls before each sample, which wake them.
const AWAKE: u64 = 3;
/// In the order of their numbers.
const ROWS: [What; 14] = [
    What::Op(Op::Put),
    What::Op(Op::Get),
    What::Op(Op::Signal),
    What::Op(Op::Barrier),
    What::Op(Op::Vdev2d),
    What::Copy,
    What::Trip,
    What::Wait,
    What::Scoped(Scope::Thread, Way::Put),
    What::Scoped(Scope::Warp, Way::Put),
    What::Scoped(Scope::Block, Way::Put),
    What::Scoped(Scope::Thread, Way::Get),
    What::Scoped(Scope::Warp, Way::Get),
    What::Scoped(Scope::Block, Way::Get),
];

/// What is measured.
#[derive(Clone, Copy, PartialEq)]
enum What {
    Op(Op),
    /// What the link can do: the bytes of a put, by the copy engine on GPUs.
    Copy,
    /// `put_with_signal` from the first PE to the last, and its answer.
    Trip,
    /// A barrier that the host waits for, which is what an application sees of one call.
    Wait,
    /// By so much of a user's own kernel.
    Scoped(Scope, Way),
}

impl What {
    fn name(self) -> &'static str {
        match self {
            What::Op(op) => op.name(),
            What::Copy => "copy",
            What::Trip => "put_with_signal_round_trip",
            What::Wait => "barrier_and_synchronize",
            What::Scoped(scope, way) => scope.name(way),
        }
    }

    fn sizes(self, direct: bool, scopes: bool) -> Vec<usize> {
        let long = direct.then_some(LONG);
        match self {
            What::Op(Op::Barrier) | What::Wait => vec![0],
            What::Op(Op::Put | Op::Get | Op::Vdev2d) => SIZES.into_iter().chain(long).collect(),
            What::Op(_) => SIZES.to_vec(),
            What::Copy => SIZES[2..].iter().copied().filter(|_| direct).chain(long).collect(),
            What::Trip => SIZES[..2].to_vec(),
            What::Scoped(scope, _) => {
                if scopes {
                    scope.sizes()
                } else {
                    Vec::new()
                }
            }
        }
    }

    /// The operation whose buffers it uses.
    fn op(self) -> Op {
        match self {
            What::Op(op) => op,
            What::Copy | What::Trip | What::Scoped(..) => Op::Put,
            What::Wait => Op::Barrier,
        }
    }
}

fn main() -> ExitCode {
    let started = symm::Config::from_env().and_then(|config| symm::is_started(&config));
    let result = match started {
        Ok(false) if common::asks(&["--help", "-h", "--list"]) => {
            for what in ROWS {
                println!("{}: bench", what.name());
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
    /// Where all PEs are direct.
    long: Option<Buffers<f32>>,
    trip: Trip,
    scopes: Option<Scopes>,
}

impl Job {
    /// Runs what PE 0 asked for on this PE, and returns the longest time of all.
    fn work(&self, [op, size, iterations]: [u64; 3]) -> Result<Duration> {
        let wrong = |got: u64| {
            Error::argument("scale_out", "operation", got, format!("a number below {}", ROWS.len()))
        };
        let what = *ROWS.get(op as usize).ok_or_else(|| wrong(op))?;
        if what == What::Trip {
            self.trip.run(size as usize, AWAKE)?;
            return self.lead.maximum(self.trip.run(size as usize, iterations)?);
        }
        if let (What::Scoped(scope, way), Some(scopes)) = (what, &self.scopes) {
            scopes.reset(way)?;
            scopes.run(scope, way, size as usize, AWAKE)?;
            let time = self.lead.maximum(scopes.run(scope, way, size as usize, iterations)?)?;
            return match scopes.wrong(way, size as usize)? {
                0 => Ok(time),
                wrong => {
                    let why = format!("{wrong} words of {} with {size} bytes are wrong", what.name());
                    Err(Error::Bootstrap { call: "bench check", why })
                }
            };
        }
        let (op, size) = (what.op(), size as usize);
        let buffers = self.long.as_ref().filter(|_| size > LIMITS.bytes).unwrap_or(&self.buffers);
        let case = buffers.case(op, size, None)?;
        case.reset()?;
        case.calm()?;
        if what == What::Copy {
            case.copy(AWAKE)?;
            let began = Instant::now();
            case.copy(iterations)?;
            return self.lead.maximum(began.elapsed());
        }
        case.run(AWAKE)?;
        case.meet()?;
        let began = Instant::now();
        if what == What::Wait {
            (0..iterations).try_for_each(|_| case.run(1))?;
            return self.lead.maximum(began.elapsed());
        }
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
    let direct = (0..world.n_pes()).all(|pe| world.reach(pe.into()) == Reach::Direct);
    let long = Limits { bytes: LONG, ..LIMITS };
    let job = Job {
        lead: Lead::new(&world)?,
        buffers: Buffers::new(&world, &OPS, LIMITS)?,
        long: if direct { Some(Buffers::new(&world, &[Op::Put, Op::Get, Op::Vdev2d], long)?) } else { None },
        trip: Trip::new(&world, SIZES[1])?,
        scopes: if direct { Scopes::new(&world)? } else { None },
        world,
    };
    if job.world.pe().0 == 0 {
        let row = RefCell::new(row);
        let mut criterion = Criterion::default()
            .configure_from_args()
            .sample_size(10)
            .warm_up_time(Duration::from_millis(100))
            .measurement_time(Duration::from_millis(500));
        for number in 0..ROWS.len() {
            measure(&mut criterion, &job, number, &row);
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

fn measure(criterion: &mut Criterion, job: &Job, number: usize, row: &RefCell<Row>) {
    let what = ROWS[number];
    let sizes = what.sizes(job.long.is_some(), job.scopes.is_some());
    if sizes.is_empty() {
        return;
    }
    let mut group = criterion.benchmark_group(format!("{}, {}", what.name(), row.borrow().name()));
    for size in sizes {
        // A round trip is a time; bytes a second of it would say nothing.
        let traffic =
            if what == What::Trip { Traffic::default() } else { what.op().traffic(job.world.n_pes(), size) };
        let moved = traffic.wire + traffic.local;
        if moved > 0.0 {
            group.throughput(Throughput::Bytes(moved as u64));
        }
        let ask =
            |n: u64| job.lead([number as u64, size as u64, n]).expect("a bench's operations should not fail");
        let calls = (SAMPLE.as_nanos() / (ask(10).as_nanos() / 10).max(1)).clamp(1, 10_000) as u64;
        let samples = RefCell::new(Vec::new());
        group.bench_function(format!("{size} B"), |b| {
            b.iter_custom(|n| {
                let all = n * calls;
                let time = ask(all);
                samples.borrow_mut().push(time.as_secs_f64() / all as f64);
                time.div_f64(calls as f64)
            });
        });
        row.borrow_mut().add(what.name(), size, traffic.wire, samples.into_inner());
    }
    group.finish();
}
