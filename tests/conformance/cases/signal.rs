//! User signals, and the pad's put_signal and wait_signal.

use std::time::Duration;

use symm::{Cmp, DType, Error, Handle, SignalOp, SignalUpdate, Stream};

use crate::harness::{Case, Ctx, Outcome, ensure, ensure_eq, ensure_err, same};
use crate::pattern::{Random, bytes, i64s};

pub(super) const CASES: &[Case] = &[
    Case::new("signal::put_set_11_add_16", put_set_11_add_16),
    Case::new("signal::wait_until_42", wait_until_42),
    Case::new("signal::wait_until_123", wait_until_123),
    Case::new("signal::six_comparisons", six_comparisons),
    Case::new("signal::waits_for_the_data", waits_for_the_data),
    Case::new("signal::adds_from_all", adds_from_all),
    Case::new("signal::add_wraps", add_wraps),
    Case::new("signal::indices_and_handles_apart", indices_and_handles_apart),
    Case::new("signal::put_wait_ring", put_wait_ring),
    Case::new("signal::depth_1", depth_1),
    Case::new("signal::all_pairs_on_many_channels", all_pairs_on_many_channels),
    Case::new("signal::forked_streams_4_rounds", forked_streams_4_rounds),
    Case::new("signal::publishes_earlier_puts", publishes_earlier_puts),
    Case::new("signal::channel_limits", channel_limits),
    Case::new("signal::small_pad", small_pad).own(&[("SYMM_SIGNAL_PAD_BYTES", "64"), ("SYMM_SIGNALS", "2")]),
    Case::new("signal::rank_limits", rank_limits),
    Case::new("signal::handshake_after_the_tensor_is_gone", handshake_after_the_tensor_is_gone),
];

fn update(index: usize, op: SignalOp, value: u64) -> SignalUpdate {
    SignalUpdate { index, op, value }
}

/// The pad's slots here are all 0.
fn idle(ctx: &Ctx, stream: &Stream, handle: &Handle) -> Outcome {
    let slots: Vec<u32> = stream.read(&handle.get_signal_pad(ctx.me(), &[], DType::U32, 0)?)?;
    let at = slots.iter().position(|s| *s != 0);
    ensure!(at.is_none(), "pad slot {} is not 0 when idle", at.unwrap_or_default());
    Ok(())
}

/// Upstream: data 11 with signal 1 set; data 16 with 1 added.
fn put_set_11_add_16(ctx: &Ctx) -> Outcome {
    let x = ctx.symmetric(DType::I64, 4, ctx.seed)?;
    let src = ctx.local(DType::I64, 4, ctx.seed)?;
    for (value, op, expected) in [(11, SignalOp::Set, 1), (16, SignalOp::Add, 2)] {
        src.set(&ctx.stream, &i64s(&[value; 4]))?;
        x.handle.put_with_signal(&ctx.stream, ctx.right(), 0, &src.span, update(3, op, 1))?;
        x.handle.wait_until(&ctx.stream, 3, Cmp::Eq, expected, None)?;
        x.mem.check(&ctx.stream, &format!("{op:?}"), &i64s(&[value; 4]))?;
        x.handle.barrier(&ctx.stream, 0, None)?;
    }
    ctx.stream.synchronize()?;
    Ok(())
}

fn wait_until_42(ctx: &Ctx) -> Outcome {
    let x = ctx.symmetric(DType::U8, 1, ctx.seed)?;
    let none = x.mem.span.slice(0, 0)?;
    x.handle.put_with_signal(&ctx.stream, ctx.right(), 0, &none, update(0, SignalOp::Set, 42))?;
    x.handle.wait_until(&ctx.stream, 0, Cmp::Eq, 42, None)?;
    // The signal is left as it is.
    x.handle.wait_until(&ctx.stream, 0, Cmp::Eq, 42, None)?;
    ctx.stream.synchronize()?;
    Ok(())
}

/// The last signal of the pad, value 123, waited for before it is sent.
fn wait_until_123(ctx: &Ctx) -> Outcome {
    let x = ctx.symmetric(DType::U8, 1, ctx.seed)?;
    let last = ctx.world.config().signals - 1;
    x.handle.wait_until(&ctx.stream, last, Cmp::Ge, 123, None)?;
    let other = ctx.world.stream()?;
    ctx.pause(2000);
    let none = x.mem.span.slice(0, 0)?;
    x.handle.put_with_signal(&other, ctx.right(), 0, &none, update(last, SignalOp::Set, 123))?;
    other.synchronize()?;
    ctx.stream.synchronize()?;
    Ok(())
}

/// Each comparison is false at first and becomes true by the neighbour's update; data that came with the update show that
/// the wait was not passed before.
fn six_comparisons(ctx: &Ctx) -> Outcome {
    let x = ctx.symmetric(DType::U8, 100, ctx.seed)?;
    let src = ctx.local(DType::U8, 100, ctx.seed)?;
    let table = [
        (Cmp::Eq, 20, 20),
        (Cmp::Ne, 10, 11),
        (Cmp::Gt, 10, 11),
        (Cmp::Le, 9, 9),
        (Cmp::Lt, 10, 9),
        (Cmp::Ge, 11, 11),
    ];
    for (i, (cmp, value, becomes)) in table.into_iter().enumerate() {
        let seed = ctx.seed + i as u64;
        let none = src.span.slice(0, 0)?;
        x.handle.put_with_signal(&ctx.stream, ctx.right(), 0, &none, update(i, SignalOp::Set, 10))?;
        x.handle.wait_until(&ctx.stream, i, Cmp::Eq, 10, None)?;
        x.handle.barrier(&ctx.stream, 0, None)?;
        ctx.stream.synchronize()?;
        ensure!(!cmp.holds(10, value) && cmp.holds(becomes, value), "the table is wrong for {cmp:?}");
        src.set(&ctx.stream, &bytes(seed, ctx.me(), 100))?;
        ctx.stream.synchronize()?;
        x.handle.wait_until(&ctx.stream, i, cmp, value, None)?;
        let other = ctx.world.stream()?;
        ctx.pause(1500);
        x.handle.put_with_signal(&other, ctx.right(), 0, &src.span, update(i, SignalOp::Set, becomes))?;
        x.mem.check(&ctx.stream, &format!("{cmp:?}"), &bytes(seed, ctx.left(), 100))?;
        other.synchronize()?;
        x.handle.barrier(&ctx.stream, 0, None)?;
    }
    ctx.stream.synchronize()?;
    Ok(())
}

fn waits_for_the_data(ctx: &Ctx) -> Outcome {
    let x = ctx.symmetric(DType::U8, 20_000, ctx.seed)?;
    let src = ctx.local(DType::U8, 20_000, ctx.seed)?;
    for round in 0..60u64 {
        let of = |pe: usize| {
            let mut r = Random::new(&[ctx.seed, round, pe as u64]);
            let len = r.of(&[1, 3, 8, 64, 100, 4096, 20_000]);
            (r.below(20_001 - len), len)
        };
        let (start, len) = of(ctx.me());
        let mut data = src.get(&ctx.stream)?;
        data[..len].copy_from_slice(&bytes(round, ctx.me(), len));
        src.set(&ctx.stream, &data)?;
        let part = src.span.slice(0, len)?;
        x.handle.put_with_signal(&ctx.stream, ctx.right(), start, &part, update(9, SignalOp::Add, 1))?;
        x.handle.wait_until(&ctx.stream, 9, Cmp::Eq, round + 1, None)?;
        let (start, len) = of(ctx.left());
        let got = x.mem.get(&ctx.stream)?;
        same(
            &format!("round {round}: {len} bytes"),
            &got[start..start + len],
            &bytes(round, ctx.left(), len),
        )?;
        // Depth 1 on channel 0 keeps the left one from the next round.
        x.handle.put_signal(&ctx.stream, ctx.left(), 0, None)?;
        x.handle.wait_signal(&ctx.stream, ctx.right(), 0, None)?;
    }
    ctx.stream.synchronize()?;
    Ok(())
}

fn adds_from_all(ctx: &Ctx) -> Outcome {
    let x = ctx.symmetric(DType::U8, 1, ctx.seed)?;
    let none = x.mem.span.slice(0, 0)?;
    for i in 0..100u64 {
        for rank in 0..ctx.n() {
            x.handle.put_with_signal(&ctx.stream, rank, 0, &none, update(0, SignalOp::Add, 1 + i % 3))?;
        }
    }
    let each: u64 = (0..100).map(|i| 1 + i % 3).sum();
    x.handle.wait_until(&ctx.stream, 0, Cmp::Ge, each * ctx.n() as u64, None)?;
    x.handle.barrier(&ctx.stream, 0, None)?;
    // Exactly that, once everybody is through.
    x.handle.wait_until(&ctx.stream, 0, Cmp::Eq, each * ctx.n() as u64, Some(Duration::from_millis(500)))?;
    ctx.stream.synchronize()?;
    Ok(())
}

fn add_wraps(ctx: &Ctx) -> Outcome {
    let x = ctx.symmetric(DType::U8, 1, ctx.seed)?;
    let none = x.mem.span.slice(0, 0)?;
    for (value, becomes) in [(5, 5), (u64::MAX, 4), (1 << 63, (1 << 63) + 4), (1 << 63, 4)] {
        x.handle.put_with_signal(&ctx.stream, ctx.right(), 0, &none, update(0, SignalOp::Add, value))?;
        x.handle.wait_until(&ctx.stream, 0, Cmp::Eq, becomes, None)?;
        x.handle.barrier(&ctx.stream, 0, None)?;
    }
    ctx.stream.synchronize()?;
    Ok(())
}

/// Signals of other indices, of another handle on the same allocation, and slots stay as they were.
fn indices_and_handles_apart(ctx: &Ctx) -> Outcome {
    let x = ctx.symmetric(DType::U8, 16, ctx.seed)?;
    let same_members = ctx.another_team()?;
    let over = x.tensor.rendezvous(&ctx.team)?;
    // A handle needs a subset of the allocation's own team, which another team of the same members is.
    let other = x.tensor.rendezvous(&same_members)?;
    let none = x.mem.span.slice(0, 0)?;
    for (handle, index, value) in [(&over, 0, 1), (&over, 1, 2), (&other, 0, 3), (&other, 511, 4)] {
        handle.put_with_signal(&ctx.stream, ctx.right(), 0, &none, update(index, SignalOp::Set, value))?;
    }
    ctx.stream.quiet(&ctx.team, None)?;
    over.barrier(&ctx.stream, 0, None)?;
    for (handle, index, value) in [
        (&over, 0, 1),
        (&over, 1, 2),
        (&over, 2, 0),
        (&other, 0, 3),
        (&other, 1, 0),
        (&other, 511, 4),
        (&over, 511, 0),
    ] {
        handle.wait_until(&ctx.stream, index, Cmp::Eq, value, Some(Duration::from_millis(500)))?;
    }
    ctx.stream.synchronize()?;
    idle(ctx, &ctx.stream, &over)?;
    idle(ctx, &ctx.stream, &other)
}

fn put_wait_ring(ctx: &Ctx) -> Outcome {
    let x = ctx.symmetric(DType::U8, 16, ctx.seed)?;
    for _ in 0..100 {
        x.handle.put_signal(&ctx.stream, ctx.right(), 0, None)?;
        x.handle.wait_signal(&ctx.stream, ctx.left(), 0, None)?;
    }
    ctx.stream.synchronize()?;
    ctx.meet()?;
    idle(ctx, &ctx.stream, &x.handle)
}

/// The second put of a pair waits until the first is consumed.
fn depth_1(ctx: &Ctx) -> Outcome {
    let x = ctx.symmetric(DType::U32, 1, ctx.seed)?;
    x.mem.set(&ctx.stream, &0u32.to_le_bytes())?;
    x.handle.barrier(&ctx.stream, 0, None)?;
    let (send, receive) = (ctx.world.stream()?, ctx.world.stream()?);
    let flag = ctx.local(DType::U32, 1, ctx.seed)?;
    flag.set(&send, &1u32.to_le_bytes())?;
    x.handle.put_signal(&send, ctx.right(), 4, None)?;
    x.handle.put_signal(&send, ctx.right(), 4, None)?;
    // Seen on the right as soon as the second put was passed.
    x.handle.put_with_signal(&send, ctx.right(), 0, &flag.span, update(0, SignalOp::Set, 1))?;
    ctx.pause(20_000);
    same("nothing passed the second put", &x.mem.get(&receive)?, &0u32.to_le_bytes())?;
    ctx.meet()?;
    x.handle.wait_signal(&receive, ctx.left(), 4, None)?;
    x.handle.wait_until(&receive, 0, Cmp::Eq, 1, None)?;
    same("the second put passed", &x.mem.get(&receive)?, &1u32.to_le_bytes())?;
    x.handle.wait_signal(&receive, ctx.left(), 4, None)?;
    receive.synchronize()?;
    send.synchronize()?;
    ctx.meet()?;
    idle(ctx, &ctx.stream, &x.handle)
}

fn all_pairs_on_many_channels(ctx: &Ctx) -> Outcome {
    let x = ctx.symmetric(DType::U8, 16, ctx.seed)?;
    let last = x.handle.pad_layout().channels - 1;
    for channel in [0, 1, 7, last] {
        for rank in 0..ctx.n() {
            x.handle.put_signal(&ctx.stream, rank, channel, None)?;
        }
    }
    // Consumed in another order than sent: slots are independent.
    for channel in [last, 1, 0, 7] {
        for step in 0..ctx.n() {
            x.handle.wait_signal(&ctx.stream, (ctx.me() + step) % ctx.n(), channel, None)?;
        }
    }
    ctx.stream.synchronize()?;
    ctx.meet()?;
    idle(ctx, &ctx.stream, &x.handle)
}

/// Upstream: two forked streams with a put/wait ring each, 4 rounds, the pad all zero afterwards.
fn forked_streams_4_rounds(ctx: &Ctx) -> Outcome {
    let x = ctx.symmetric(DType::U8, 16, ctx.seed)?;
    let forks = [ctx.world.stream()?, ctx.world.stream()?];
    for _ in 0..4 {
        for (channel, stream) in forks.iter().enumerate() {
            x.handle.put_signal(stream, ctx.right(), channel, None)?;
            x.handle.wait_signal(stream, ctx.left(), channel, None)?;
        }
    }
    for stream in &forks {
        stream.synchronize()?;
    }
    ctx.meet()?;
    idle(ctx, &ctx.stream, &x.handle)
}

fn publishes_earlier_puts(ctx: &Ctx) -> Outcome {
    let n = 9000;
    let x = ctx.symmetric(DType::U8, n, ctx.seed)?;
    let src = ctx.local(DType::U8, n, ctx.seed)?;
    for round in 0..30u64 {
        src.set(&ctx.stream, &bytes(round, ctx.me(), n))?;
        for part in 0..3 {
            let third = n / 3;
            x.handle.put(&ctx.stream, ctx.right(), part * third, &src.span.slice(part * third, third)?)?;
        }
        x.handle.put_signal(&ctx.stream, ctx.right(), 2, None)?;
        x.handle.wait_signal(&ctx.stream, ctx.left(), 2, None)?;
        x.mem.check(&ctx.stream, &format!("round {round}"), &bytes(round, ctx.left(), n))?;
        x.handle.put_signal(&ctx.stream, ctx.left(), 3, None)?;
        x.handle.wait_signal(&ctx.stream, ctx.right(), 3, None)?;
    }
    ctx.stream.synchronize()?;
    Ok(())
}

/// Upstream: the number of channels is rejected, one less works.
fn channel_limits(ctx: &Ctx) -> Outcome {
    let x = ctx.symmetric(DType::U8, 16, ctx.seed)?;
    let channels = 9216 / 4 / ctx.n();
    for channel in [channels, usize::MAX] {
        let (h, s) = (&x.handle, &ctx.stream);
        ensure_err!(
            h.put_signal(s, 0, channel, None),
            Error::InvalidArgument { op: "put_signal", argument: "channel", .. }
        );
        ensure_err!(
            h.wait_signal(s, 0, channel, None),
            Error::InvalidArgument { op: "wait_signal", argument: "channel", .. }
        );
        ensure_err!(
            h.barrier(s, channel, None),
            Error::InvalidArgument { op: "barrier", argument: "channel", .. }
        );
    }
    x.handle.put_signal(&ctx.stream, ctx.right(), channels - 1, None)?;
    x.handle.wait_signal(&ctx.stream, ctx.left(), channels - 1, None)?;
    x.handle.barrier(&ctx.stream, channels - 1, None)?;
    ctx.stream.synchronize()?;
    Ok(())
}

/// Upstream: the pad's size can be set, and allocations honour it.
fn small_pad(ctx: &Ctx) -> Outcome {
    let x = ctx.symmetric(DType::U8, 16, ctx.seed)?;
    let channels = 64 / 4 / ctx.n();
    ensure_eq!(x.handle.signal_pad_size(), 64, "pad size");
    ensure_eq!(x.handle.get_signal_pad(ctx.me(), &[], DType::U32, 0)?.len(), 16, "slots");
    let refused = x.handle.barrier(&ctx.stream, channels, None);
    ensure_err!(refused, Error::InvalidArgument { argument: "channel", .. });
    let refused = x.handle.wait_until(&ctx.stream, 2, Cmp::Eq, 0, None);
    ensure_err!(refused, Error::InvalidArgument { argument: "signal", .. });
    x.handle.barrier(&ctx.stream, channels - 1, None)?;
    x.handle.wait_until(&ctx.stream, 1, Cmp::Eq, 0, None)?;
    ctx.stream.synchronize()?;
    Ok(())
}

fn rank_limits(ctx: &Ctx) -> Outcome {
    let x = ctx.symmetric(DType::U8, 16, ctx.seed)?;
    for rank in [ctx.n(), usize::MAX] {
        let put = x.handle.put_signal(&ctx.stream, rank, 0, None);
        ensure_err!(put, Error::InvalidArgument { op: "put_signal", argument: "rank", .. });
        let wait = x.handle.wait_signal(&ctx.stream, rank, 0, None);
        ensure_err!(wait, Error::InvalidArgument { op: "wait_signal", argument: "rank", .. });
    }
    ctx.team.status()?;
    Ok(())
}

/// Upstream: 42 becomes 43 by a handshake that goes on after the tensor was deleted.
fn handshake_after_the_tensor_is_gone(ctx: &Ctx) -> Outcome {
    let x = ctx.symmetric(DType::U32, 1, ctx.seed)?;
    x.mem.set(&ctx.stream, &42u32.to_le_bytes())?;
    x.handle.barrier(&ctx.stream, 0, None)?;
    let (handle, tensor) = (x.handle.clone(), x.tensor.clone());
    drop(x);
    drop(tensor);
    let one = ctx.local(DType::U32, 1, ctx.seed)?;
    one.set(&ctx.stream, &43u32.to_le_bytes())?;
    handle.put(&ctx.stream, ctx.right(), 0, &one.span)?;
    handle.put_signal(&ctx.stream, ctx.right(), 0, None)?;
    handle.wait_signal(&ctx.stream, ctx.left(), 0, None)?;
    let got: Vec<u32> = ctx.stream.read(&handle.span())?;
    ensure_eq!(got, [43], "the value here");
    ctx.stream.synchronize()?;
    Ok(())
}
