//! memset32 and write_value32: words in stream order.

use std::time::Duration;

use symm::{DType, Error, Span, Stream};

use crate::harness::{Case, Ctx, Outcome, ensure_err};

pub(super) const CASES: &[Case] = &[
    Case::new("words::memset32", memset32),
    Case::new("words::write_value32", write_value32),
    Case::new("words::peers", peers).pes(2),
    Case::new("words::a_value_follows_data", a_value_follows_data).pes(2),
    Case::new("words::arguments", arguments),
];

fn memset32(ctx: &Ctx) -> Outcome {
    for (i, (offset, count)) in [(0, 1), (0, 100), (99, 1), (13, 41), (1, 99)].into_iter().enumerate() {
        let x = ctx.symmetric(DType::U32, 100, ctx.seed + i as u64)?;
        let value = 0xdead_0000 | i as u32;
        ctx.stream.memset32(&x.mem.span, offset, value, count)?;
        let mut want = x.mem.poison().to_vec();
        symm::oracle::memset32(&mut want, offset, value, count);
        x.mem.check(&ctx.stream, &format!("{count} from {offset}"), &want)?;
        // Memory that no peer reaches, too.
        let local = ctx.local(DType::U32, 100, ctx.seed)?;
        ctx.stream.memset32(&local.span, offset, value, count)?;
        let mut want = local.poison().to_vec();
        symm::oracle::memset32(&mut want, offset, value, count);
        local.check(&ctx.stream, "local", &want)?;
    }
    Ok(())
}

fn write_value32(ctx: &Ctx) -> Outcome {
    let x = ctx.symmetric(DType::U32, 9, ctx.seed)?;
    let mut want = x.mem.poison().to_vec();
    for (i, value) in [0, 1, u32::MAX, 0x8000_0000].into_iter().enumerate() {
        ctx.stream.write_value32(&x.mem.span, 2 * i, value)?;
        symm::oracle::memset32(&mut want, 2 * i, value, 1);
    }
    x.mem.check(&ctx.stream, "words", &want)
}

/// Into direct peers' memory.
fn peers(ctx: &Ctx) -> Outcome {
    let n = ctx.n();
    let x = ctx.symmetric(DType::U32, 2 * n, ctx.seed)?;
    let of = |from: usize, to: usize| (100 * from + to) as u32;
    for to in 0..n {
        if x.handle.is_direct(to)? {
            let theirs = x.handle.get_remote_tensor(to, &[2 * n], DType::U32)?;
            ctx.stream.memset32(&theirs, 2 * ctx.me(), of(ctx.me(), to), 2)?;
            ctx.stream.write_value32(&theirs, 2 * ctx.me() + 1, !of(ctx.me(), to))?;
        }
    }
    ctx.stream.synchronize()?;
    ctx.meet()?;
    let mut want = x.mem.poison().to_vec();
    for from in 0..n {
        if x.handle.is_direct(from)? {
            symm::oracle::memset32(&mut want, 2 * from, of(from, ctx.me()), 1);
            symm::oracle::memset32(&mut want, 2 * from + 1, !of(from, ctx.me()), 1);
        }
    }
    x.mem.check(&ctx.stream, "words of peers", &want)?;
    ctx.meet()?;
    Ok(())
}

/// A value written to a slot of a direct peer's pad is a signal: `wait_signal` there sees what came before it.
fn a_value_follows_data(ctx: &Ctx) -> Outcome {
    let (right, left) = (ctx.right(), ctx.left());
    let x = ctx.symmetric(DType::U32, 1000, ctx.seed)?;
    for round in 1..=20u32 {
        if x.handle.is_direct(right)? {
            let theirs = x.handle.get_remote_tensor(right, &[1000], DType::U32)?;
            ctx.stream.memset32(&theirs, 0, round, 1000)?;
            // Channel 3, source this rank.
            let pad = x.handle.get_signal_pad(right, &[], DType::U32, 0)?;
            ctx.stream.write_value32(&pad, 3 * ctx.n() + ctx.me(), 1)?;
        }
        if x.handle.is_direct(left)? {
            x.handle.wait_signal(&ctx.stream, left, 3, Some(Duration::from_secs(5)))?;
            let want = round.to_le_bytes().repeat(1000);
            x.mem.check(&ctx.stream, &format!("round {round}"), &want)?;
        }
        ctx.stream.synchronize()?;
        ctx.meet()?;
    }
    Ok(())
}

fn arguments(ctx: &Ctx) -> Outcome {
    let x = ctx.symmetric(DType::U32, 10, ctx.seed)?;
    let floats = ctx.local(DType::F32, 10, ctx.seed)?;
    let bytes = ctx.local(DType::U8, 16, ctx.seed)?;
    let start = bytes.span.addr();
    let odd = start.offset((4 - start.0 % 4) as usize + 2);
    // SAFETY: one word inside `bytes`, which lives longer; nothing uses it, since it is refused.
    let odd = unsafe { Span::from_raw(odd, DType::U32, 1) };
    let set = |s: &Stream, span: &Span, offset, count| s.memset32(span, offset, 7, count);
    let s = &ctx.stream;
    ensure_err!(set(s, &floats.span, 0, 1), Error::InvalidArgument { op: "memset32", argument: "dst", .. });
    ensure_err!(set(s, &odd, 0, 1), Error::InvalidArgument { op: "memset32", argument: "dst", .. });
    ensure_err!(set(s, &x.mem.span, 0, 0), Error::InvalidArgument { op: "memset32", argument: "count", .. });
    for (offset, count) in [(10, 1), (0, 11), (9, 2), (usize::MAX, 2), (2, usize::MAX)] {
        let refused = set(s, &x.mem.span, offset, count);
        ensure_err!(refused, Error::InvalidArgument { op: "memset32", argument: "offset", .. });
    }
    let write = |span: &Span, offset| s.write_value32(span, offset, 7);
    ensure_err!(write(&floats.span, 0), Error::InvalidArgument { op: "write_value32", argument: "dst", .. });
    ensure_err!(write(&odd, 0), Error::InvalidArgument { op: "write_value32", argument: "dst", .. });
    let refused = write(&x.mem.span, 10);
    ensure_err!(refused, Error::InvalidArgument { op: "write_value32", argument: "offset", .. });
    x.mem.check(s, "after refusals", x.mem.poison())?;
    floats.check(s, "after refusals", floats.poison())
}
