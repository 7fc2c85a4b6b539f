//! What is measured. Every case checks its result outside the timed region.

use std::time::{Duration, Instant};

use symm::{
    AllToAllVdev, Cmp, DType, Error, Handle, Local, Options, Result, SignalOp, SignalUpdate, Stream, Tensor,
    World,
};

use crate::job::Job;

/// Bytes that each PE sends in the bandwidth cases.
pub(crate) const BYTES: usize = 64 << 20;
const ROW: usize = 8192;
const ROWS: usize = BYTES / (2 * ROW);
/// Experts a rank.
const NE: usize = 8;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Case {
    RoundTrip = 0,
    Barrier = 1,
    Rendezvous = 2,
    Vdev2d = 3,
    Memcpy = 4,
    AllToAll = 5,
    AllGather = 6,
}

pub(crate) struct Buffers {
    ping: Tensor,
    ping_handle: Handle,
    rounds: std::cell::Cell<u64>,
    input: Local,
    output: Tensor,
    output_handle: Handle,
    in_splits: Local,
    out_splits_offsets: Local,
    memcpy: std::cell::RefCell<(Vec<u8>, Vec<u8>)>,
}

impl Buffers {
    pub(crate) fn new(world: &World, stream: &Stream) -> Result<Self> {
        let team = world.team();
        let w = team.world_size();
        let ping = team.empty(&[1], DType::U64)?;
        let output = team.empty(&[ROWS + NE, ROW], DType::BF16)?;
        let buffers = Buffers {
            ping_handle: ping.rendezvous(team)?,
            output_handle: output.rendezvous(team)?,
            ping,
            output,
            rounds: std::cell::Cell::new(0),
            input: world.local(DType::BF16, ROWS * ROW)?,
            in_splits: world.local(DType::I64, w * NE)?,
            out_splits_offsets: world.local(DType::I64, 2 * w * NE)?,
            memcpy: std::cell::RefCell::new((vec![1; BYTES], vec![2; BYTES])),
        };
        let per = ROWS / (w * NE);
        stream.write(&buffers.in_splits.span(), &vec![per as i64; w * NE])?;
        let mut x = vec![half::bf16::ZERO; ROWS * ROW];
        for (row, elements) in x.chunks_mut(ROW).enumerate() {
            elements.fill(value(team.rank(), row));
        }
        stream.write(&buffers.input.span(), &x)?;
        stream.fill(&buffers.output.span(), 0xff)?;
        stream.synchronize()?;
        Ok(buffers)
    }
}

/// What row `row` of rank `rank`'s input holds; exact in bf16.
fn value(rank: usize, row: usize) -> half::bf16 {
    half::bf16::from_f32((rank * 32 + row % 32) as f32)
}

impl Case {
    pub(crate) const ALL: [Case; 7] = [
        Case::RoundTrip,
        Case::Barrier,
        Case::Rendezvous,
        Case::Vdev2d,
        Case::Memcpy,
        Case::AllToAll,
        Case::AllGather,
    ];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Case::RoundTrip => "put_with_signal 8 B, round trip",
            Case::Barrier => "barrier",
            Case::Rendezvous => "empty + rendezvous 64 KiB",
            Case::Vdev2d => "all_to_all_vdev_2d 64 MiB a PE",
            Case::Memcpy => "memcpy 64 MiB, all PEs at once",
            Case::AllToAll => "all_to_all 64 MiB a PE",
            Case::AllGather => "all_gather 64 MiB received a PE",
        }
    }

    pub(crate) fn runs_on(self, pes: usize) -> bool {
        self != Case::RoundTrip || pes == 2
    }

    /// Runs `iterations` and returns this PE's time.
    pub(crate) fn run(self, job: &Job, iterations: u64) -> Result<Duration> {
        let (world, stream, b) = (&job.world, &job.stream, &job.buffers);
        let team = world.team();
        let began = Instant::now();
        match self {
            Case::RoundTrip => round_trips(job, iterations)?,
            Case::Barrier => {
                for _ in 0..iterations {
                    team.barrier(stream, Options::default())?;
                    stream.synchronize()?;
                }
            }
            Case::Rendezvous => {
                for _ in 0..iterations {
                    let t = team.empty(&[1 << 16], DType::U8)?;
                    drop(t.rendezvous(team)?);
                }
            }
            Case::Vdev2d => {
                let args = AllToAllVdev {
                    input: &b.input.span(),
                    output: &b.output_handle,
                    in_splits: &b.in_splits.span(),
                    out_splits_offsets: &b.out_splits_offsets.span(),
                    row: ROW,
                    options: Options::default(),
                };
                for _ in 0..iterations {
                    team.all_to_all_vdev_2d(stream, &args, 1)?;
                    stream.synchronize()?;
                }
            }
            Case::Memcpy => {
                let (src, dst) = &mut *b.memcpy.borrow_mut();
                for _ in 0..iterations {
                    dst.copy_from_slice(std::hint::black_box(src));
                    std::hint::black_box(&mut *dst);
                }
            }
            Case::AllToAll => {
                for _ in 0..iterations {
                    team.all_to_all(stream, &b.input.span(), &b.output_handle, Options::default())?;
                    stream.synchronize()?;
                }
            }
            Case::AllGather => {
                let part = b.input.span().slice(0, ROWS * ROW / team.world_size())?;
                for _ in 0..iterations {
                    team.all_gather(stream, &part, &b.output_handle, Options::default())?;
                    stream.synchronize()?;
                }
            }
        }
        Ok(began.elapsed())
    }

    /// Compares what the last iteration left with what it must leave.
    pub(crate) fn check(self, job: &Job) -> Result<()> {
        let b = &job.buffers;
        let (me, w) = (job.world.team().rank(), job.world.n_pes());
        let wrong = |what: String| Error::Bootstrap { call: "bench check", why: what };
        if self == Case::RoundTrip {
            let got: Vec<u64> = job.stream.read(&b.ping.span())?;
            return if got[0] == b.rounds.get() { Ok(()) } else { Err(wrong(format!("ping {got:?}"))) };
        }
        let per = ROWS / (w * NE);
        let source_row: Box<dyn Fn(usize) -> (usize, usize)> = match self {
            // Row i of the output is of expert e, source s, the j-th of its rows.
            Case::Vdev2d => Box::new(move |i| {
                let (e, s, j) = (i / (per * w), i / per % w, i % per);
                (s, (me * NE + e) * per + j)
            }),
            Case::AllToAll => Box::new(move |i| (i / (ROWS / w), me * (ROWS / w) + i % (ROWS / w))),
            Case::AllGather => Box::new(move |i| (i / (ROWS / w), i % (ROWS / w))),
            _ => return Ok(()),
        };
        let y: Vec<half::bf16> = job.stream.read(&b.output.span().slice(0, ROWS * ROW)?)?;
        for (i, elements) in y.chunks(ROW).enumerate() {
            let (s, row) = source_row(i);
            if elements.iter().any(|v| *v != value(s, row)) {
                return Err(wrong(format!("{}: row {i} is not row {row} of rank {s}", self.name())));
            }
        }
        job.stream.fill(&b.output.span(), 0xff)?;
        job.stream.synchronize()
    }
}

fn round_trips(job: &Job, iterations: u64) -> Result<()> {
    let (stream, b) = (&job.stream, &job.buffers);
    let me = job.world.team().rank();
    let source = job.world.local(DType::U64, 1)?;
    for _ in 0..iterations {
        let round = b.rounds.get() + 1;
        b.rounds.set(round);
        let signal = SignalUpdate { index: 1, op: SignalOp::Set, value: round };
        let send = || {
            stream.write(&source.span(), &[round])?;
            b.ping_handle.put_with_signal(stream, 1 - me, 0, &source.span(), signal)
        };
        if me == 0 {
            send()?;
        }
        b.ping_handle.wait_until(stream, 1, Cmp::Ge, round, None)?;
        stream.synchronize()?;
        if me == 1 {
            send()?;
        }
    }
    Ok(())
}
