//! A reduction prepared, run, and compared with the oracle byte for byte: what the cases of the reductions share.

use symm::{DType, Error, Handle, Local, Options, Result, Span, Stream, Tensor};

use crate::harness::{Ctx, Guarded, Outcome, Symmetric, expected, same};
use crate::pattern::Random;

/// Types that add up.
pub(super) const DTYPES: [DType; 6] =
    [DType::F32, DType::BF16, DType::F16, DType::F64, DType::I32, DType::I64];

/// Elements of a symmetric allocation beyond those that take part.
const SLACK: usize = 16;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Op {
    /// The plain form.
    Scatter,
    /// Of the last dimension, with so many leading rows.
    ScatterLast(usize),
    OneShot,
    OneShotOut,
    OneShotCopy,
    OneShotCopyOut,
    TwoShot,
    TwoShotOut,
}

impl Op {
    /// The forms of all_reduce.
    pub(super) const ALL_REDUCE: [Op; 6] =
        [Op::OneShot, Op::OneShotOut, Op::OneShotCopy, Op::OneShotCopyOut, Op::TwoShot, Op::TwoShotOut];

    /// The name that statuses carry.
    pub(super) fn name(self) -> &'static str {
        match self {
            Op::Scatter | Op::ScatterLast(_) => "reduce_scatter",
            Op::TwoShot => "two_shot_all_reduce",
            Op::TwoShotOut => "two_shot_all_reduce_out",
            _ => "one_shot_all_reduce",
        }
    }

    pub(super) fn copies(self) -> bool {
        matches!(self, Op::OneShotCopy | Op::OneShotCopyOut)
    }

    pub(super) fn scatters(self) -> bool {
        matches!(self, Op::Scatter | Op::ScatterLast(_))
    }
}

/// `n` elements of PE `pe`: numbers whose sums are exact, numbers whose sums are not, and every special one.
pub(super) fn elements(dtype: DType, seed: u64, pe: usize, n: usize) -> Vec<u8> {
    let mut r = Random::new(&[seed, pe as u64, 77]);
    let mut out = Vec::with_capacity(n * dtype.size());
    let special32 =
        [f32::NAN, f32::INFINITY, f32::NEG_INFINITY, -0.0, 0.0, f32::MAX, f32::MIN, 1e-45, -1e-40];
    for _ in 0..n {
        let (kind, bits) = (r.below(16), r.next());
        let small = (bits % 4001) as f64 / 16.0 - 125.0;
        let special = f64::from(special32[(bits % 9) as usize]);
        let value = match kind {
            0 => special,
            1 => special / 1e300,
            _ => small,
        };
        let any = kind < 4 && kind > 1;
        match dtype {
            DType::F32 if !any => out.extend((value as f32).to_le_bytes()),
            DType::F64 if !any => out.extend(value.to_le_bytes()),
            // The upper half of an f32 is a bf16; an f16 of random bits is as often special as wanted.
            DType::BF16 if !any => out.extend(&(value as f32).to_le_bytes()[2..]),
            DType::F16 if !any && kind > 1 => {
                // Finite: exponent 31 is avoided.
                let finite = (bits as u16 & 0x83ff) | ((bits >> 16) as u16 % 31) << 10;
                out.extend(finite.to_le_bytes());
            }
            _ => out.extend(&bits.to_le_bytes()[..dtype.size()]),
        }
    }
    out
}

/// Compares up to which NaN a NaN is.
#[track_caller]
pub(super) fn same_sums(what: &str, dtype: DType, got: &[u8], want: &[u8]) -> Outcome {
    let (mut got, mut want) = (got.to_vec(), want.to_vec());
    symm::oracle::canonical(dtype, &mut got);
    symm::oracle::canonical(dtype, &mut want);
    same(what, &got, &want)
}

/// Compares elements up to NaNs, and the guards exactly.
#[track_caller]
pub(super) fn check_sums(mem: &Guarded, stream: &Stream, what: &str, dtype: DType, want: &[u8]) -> Outcome {
    let got = mem.get(stream)?;
    same_sums(what, dtype, &got, want)?;
    mem.check(stream, what, &got)
}

/// A reduction of `n` elements whose buffers begin `skip` elements into their allocations.
pub(super) struct Job {
    pub(super) op: Op,
    pub(super) dtype: DType,
    pub(super) n: usize,
    skip: usize,
    seed: u64,
    /// The allocation.
    pub(super) sym: Symmetric,
    pub(super) tensor: Tensor,
    pub(super) handle: Handle,
    local: Guarded,
    pub(super) out: Guarded,
    pub(super) options: Options,
}

impl Job {
    pub(super) fn new(ctx: &Ctx, op: Op, dtype: DType, n: usize, skip: usize, seed: u64) -> Outcome<Self> {
        let sym = ctx.symmetric(dtype, n + skip + SLACK, seed)?;
        let view = if op.copies() { n + SLACK / 2 } else { n };
        let tensor = sym.tensor.view(skip, &[view])?;
        let handle = tensor.rendezvous(&ctx.team)?;
        let local = ctx.local(dtype, n, seed + 1)?;
        let out = ctx.local(dtype, if op.scatters() { n / ctx.n() } else { n }, seed + 2)?;
        let options = Options::default();
        Ok(Job { op, dtype, n, skip, seed, sym, tensor, handle, local, out, options })
    }

    /// Begins at another element of this PE's allocation.
    pub(super) fn shift(&mut self, ctx: &Ctx, skip: usize, len: usize) -> Outcome {
        self.skip = skip;
        self.tensor = self.sym.tensor.view(skip, &[len])?;
        self.handle = self.tensor.rendezvous(&ctx.team)?;
        Ok(())
    }

    fn elements(&self, ctx: &Ctx, round: u64) -> Vec<Vec<u8>> {
        (0..ctx.n()).map(|rank| self.elements_of(ctx, rank, round)).collect()
    }

    fn elements_of(&self, ctx: &Ctx, rank: usize, round: u64) -> Vec<u8> {
        elements(self.dtype, self.seed + 1000 * round, ctx.pe(rank), self.n)
    }

    /// The whole allocation with `elements` where the buffer is.
    fn with(&self, elements: &[u8]) -> Vec<u8> {
        let mut all = self.sym.mem.poison().to_vec();
        let at = self.skip * self.dtype.size();
        all[at..at + elements.len()].copy_from_slice(elements);
        all
    }

    /// Puts this PE's elements of a round where the operation takes them, and poison everywhere else.
    pub(super) fn fill(&self, ctx: &Ctx, stream: &Stream, round: u64) -> Outcome {
        let mine = &self.elements_of(ctx, ctx.me(), round);
        self.out.set(stream, self.out.poison())?;
        if self.op.copies() {
            self.local.set(stream, mine)?;
            self.sym.mem.set(stream, self.sym.mem.poison())?;
        } else {
            self.sym.mem.set(stream, &self.with(mine))?;
        }
        Ok(())
    }

    pub(super) fn enqueue(&self, context: &symm::Context, stream: &Stream) -> Result<Option<Local>> {
        self.enqueue_with(context, stream, &self.out.span)
    }

    /// With another output, in the case's team and stream.
    pub(super) fn enqueue_to(&self, ctx: &Ctx, out: &Span) -> Result<()> {
        self.enqueue_with(ctx.team.context(), &ctx.stream, out).map(drop)
    }

    fn enqueue_with(&self, context: &symm::Context, stream: &Stream, out: &Span) -> Result<Option<Local>> {
        let (h, o) = (&self.handle, self.options);
        let local: &Span = &self.local.span;
        match self.op {
            Op::Scatter => context.reduce_scatter(stream, h, out, o)?,
            Op::ScatterLast(lead) => {
                // Of an empty matrix any width will do.
                let last = self.n.checked_div(lead).filter(|last| *last > 0).unwrap_or(h.world_size());
                context.reduce_scatter_last_dim(stream, h, last, out, o)?;
            }
            Op::OneShot => return context.one_shot_all_reduce(stream, h, o).map(Some),
            Op::OneShotOut => context.one_shot_all_reduce_out(stream, h, out, o)?,
            Op::OneShotCopy => return context.one_shot_all_reduce_copy(stream, h, local, o).map(Some),
            Op::OneShotCopyOut => context.one_shot_all_reduce_copy_out(stream, h, local, out, o)?,
            Op::TwoShot => context.two_shot_all_reduce(stream, h, o)?,
            Op::TwoShotOut => context.two_shot_all_reduce_out(stream, h, out, o)?,
        }
        Ok(None)
    }

    /// Compares all memory of this PE, in stream order.
    pub(super) fn check(&self, ctx: &Ctx, stream: &Stream, round: u64, plain: Option<&Local>) -> Outcome {
        let what = format!("{:?} of {} {} from {}, round {round}", self.op, self.n, self.dtype, self.skip);
        let inputs = self.elements(ctx, round);
        let mine = &inputs[ctx.me()];
        let sums = match self.op {
            Op::Scatter => symm::oracle::reduce_scatter(self.dtype, 1, &inputs).swap_remove(ctx.me()),
            Op::ScatterLast(lead) => {
                symm::oracle::reduce_scatter(self.dtype, lead.max(1), &inputs).swap_remove(ctx.me())
            }
            _ => symm::oracle::sum(self.dtype, &inputs),
        };
        match (self.op, plain) {
            (Op::TwoShot, _) => self.out.check(stream, &what, self.out.poison())?,
            (_, None) => check_sums(&self.out, stream, &what, self.dtype, &sums)?,
            (_, Some(local)) => {
                // SAFETY: the memory of `local`, which lives longer, as bytes.
                let bytes = unsafe { Span::from_raw(local.span().addr(), DType::U8, sums.len()) };
                same_sums(&what, self.dtype, &stream.read::<u8>(&bytes)?, &sums)?;
                self.out.check(stream, &what, self.out.poison())?;
            }
        }
        if self.op.copies() {
            self.local.check(stream, &format!("{what}: local input"), mine)?;
        }
        let what = format!("{what}: buffer");
        match self.op {
            Op::TwoShot => check_sums(&self.sym.mem, stream, &what, self.dtype, &self.with(&sums)),
            Op::TwoShotOut => {
                // Which elements hold sums is not promised, but each holds its own or the sum.
                let got = self.sym.mem.get(stream)?;
                let at = self.skip * self.dtype.size();
                let mut want = self.with(mine);
                let size = self.dtype.size();
                for i in (0..sums.len()).step_by(size) {
                    let is = |v: &[u8]| {
                        same_sums("", self.dtype, &got[at + i..at + i + size], &v[i..i + size]).is_ok()
                    };
                    if !is(mine) && is(&sums) {
                        want[at + i..at + i + size].copy_from_slice(&sums[i..i + size]);
                    }
                }
                check_sums(&self.sym.mem, stream, &what, self.dtype, &want)
            }
            _ => self.sym.mem.check(stream, &what, &self.with(mine)),
        }
    }

    pub(super) fn run(&self, ctx: &Ctx, round: u64) -> Outcome {
        self.fill(ctx, &ctx.stream, round)?;
        let plain = self.enqueue(ctx.team.context(), &ctx.stream)?;
        self.check(ctx, &ctx.stream, round, plain.as_ref())?;
        ctx.stream.synchronize()?;
        Ok(())
    }

    /// A refused or failed operation has left this PE's memory as [`fill`](Self::fill) left it; a copy may have come to
    /// the buffer.
    pub(super) fn check_untouched(&self, ctx: &Ctx, round: u64) -> Outcome {
        let mine = &self.elements_of(ctx, ctx.me(), round);
        self.out.check(&ctx.stream, "output of a refused reduction", self.out.poison())?;
        let what = "buffer of a refused reduction";
        if self.op.copies() {
            let brought = self.sym.mem.check(&ctx.stream, what, &self.with(mine));
            return brought.or_else(|_| self.sym.mem.check(&ctx.stream, what, self.sym.mem.poison()));
        }
        self.sym.mem.check(&ctx.stream, what, &self.with(mine))
    }
}

/// After a failure that every PE sees as `want`: both ways to see it, untouched memory, then `recover` and the right
/// operation.
pub(super) fn refused(ctx: &Ctx, job: &Job, want: &Error) -> Outcome {
    let got = expected::as_told(ctx.stream.synchronize(), want);
    crate::harness::ensure_eq!(got, Err(want.clone()), "{:?}: synchronize", job.op);
    crate::harness::ensure_eq!(
        expected::as_told(ctx.team.status(), want),
        Err(want.clone()),
        "{:?}: status",
        job.op
    );
    ctx.meet()?;
    job.check_untouched(ctx, 0)?;
    ctx.meet()?;
    ctx.team.recover()?;
    job.run(ctx, 0)?;
    ctx.meet()?;
    Ok(())
}
