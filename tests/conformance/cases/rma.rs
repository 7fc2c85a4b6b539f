//! put, get, fence, quiet, and what a handle shows of memory.

use symm::{Cmp, DType, Error, SignalOp, SignalUpdate, Span};

use crate::harness::{Case, Ctx, Outcome, Symmetric, ensure, ensure_eq, ensure_err, same};
use crate::pattern::{Random, bytes, f32s};

pub(super) const CASES: &[Case] = &[
    Case::new("rma::allocate_twice_first_freed", allocate_twice_first_freed),
    Case::new("rma::get_remote_tensor", get_remote_tensor),
    Case::new("rma::put_with_signal_5", put_with_signal_5),
    Case::new("rma::put_ring", put_ring),
    Case::new("rma::get_ring", get_ring),
    Case::new("rma::put_sizes", put_sizes),
    Case::new("rma::get_sizes", get_sizes),
    Case::new("rma::every_dtype", every_dtype),
    Case::new("rma::put_to_all", put_to_all),
    Case::new("rma::get_parts", get_parts),
    Case::new("rma::one_element_at_the_ends", one_element_at_the_ends),
    Case::new("rma::fence_orders", fence_orders),
    Case::new("rma::quiet_delivers", quiet_delivers),
    Case::new("rma::last_put_wins", last_put_wins),
    Case::new("rma::source_free_when_passed", source_free_when_passed),
    Case::new("rma::views", views),
    Case::new("rma::random_puts_and_gets", random_puts_and_gets),
];

/// 0, 1, odd, around 16 bytes, a page, 1 MiB.
pub(super) const SIZES: &[usize] = &[0, 1, 2, 3, 7, 15, 16, 17, 31, 33, 63, 65, 4095, 4096, 4097, 1 << 20];

fn signal(index: usize, op: SignalOp, value: u64) -> SignalUpdate {
    SignalUpdate { index, op, value }
}

fn allocate_twice_first_freed(ctx: &Ctx) -> Outcome {
    let first = ctx.team.empty(&[1024], DType::F32)?;
    drop(first);
    let second = ctx.team.empty(&[1024], DType::F32)?;
    let handle = second.rendezvous(&ctx.team)?;
    ensure_eq!(handle.buffer_size(), 4096, "buffer size");
    Ok(())
}

fn get_remote_tensor(ctx: &Ctx) -> Outcome {
    let x = ctx.symmetric(DType::F32, 1024, ctx.seed)?;
    x.mem.set(&ctx.stream, &f32s(ctx.me() as f32, 1024))?;
    x.handle.barrier(&ctx.stream, 0, None)?;
    ctx.stream.synchronize()?;
    let y = ctx.local(DType::F32, 1024, ctx.seed)?;
    if x.handle.is_direct(ctx.left())? {
        let remote = x.handle.get_remote_tensor(ctx.left(), &[1024], DType::F32)?;
        ctx.stream.copy(&y.span, &remote)?;
    } else {
        x.handle.get(&ctx.stream, ctx.left(), 0, &y.span)?;
    }
    y.check(&ctx.stream, "y", &f32s(ctx.left() as f32, 1024))?;
    x.mem.check(&ctx.stream, "x", &f32s(ctx.me() as f32, 1024))?;
    // Nobody frees x while a peer still reads it.
    ctx.meet()?;
    Ok(())
}

/// Upstream's value 5, in a ring.
fn put_with_signal_5(ctx: &Ctx) -> Outcome {
    let x = ctx.symmetric(DType::F32, 1024, ctx.seed)?;
    x.mem.set(&ctx.stream, &f32s(0.0, 1024))?;
    x.handle.barrier(&ctx.stream, 0, None)?;
    let src = ctx.local(DType::F32, 1024, ctx.seed + 1)?;
    src.set(&ctx.stream, &f32s(5.0, 1024))?;
    x.handle.put_with_signal(&ctx.stream, ctx.right(), 0, &src.span, signal(0, SignalOp::Set, 1))?;
    x.handle.wait_until(&ctx.stream, 0, Cmp::Eq, 1, None)?;
    x.mem.check(&ctx.stream, "x", &f32s(5.0, 1024))?;
    src.check(&ctx.stream, "source", &f32s(5.0, 1024))?;
    ctx.stream.synchronize()?;
    Ok(())
}

fn put_ring(ctx: &Ctx) -> Outcome {
    // 8 bytes of int8, value 5.
    let x = ctx.symmetric(DType::I8, 8, ctx.seed)?;
    let src = ctx.local(DType::I8, 8, ctx.seed + 1)?;
    src.set(&ctx.stream, &[5; 8])?;
    x.handle.put(&ctx.stream, ctx.right(), 0, &src.span)?;
    x.handle.barrier(&ctx.stream, 0, None)?;
    x.mem.check(&ctx.stream, "x", &[5; 8])?;
    ctx.stream.synchronize()?;
    Ok(())
}

fn get_ring(ctx: &Ctx) -> Outcome {
    let x = ctx.symmetric(DType::I8, 8, ctx.seed)?;
    x.mem.set(&ctx.stream, &[7 + ctx.me() as u8; 8])?;
    x.handle.barrier(&ctx.stream, 0, None)?;
    let dst = ctx.local(DType::I8, 8, ctx.seed + 1)?;
    x.handle.get(&ctx.stream, ctx.left(), 0, &dst.span)?;
    dst.check(&ctx.stream, "dst", &[7 + ctx.left() as u8; 8])?;
    x.handle.barrier(&ctx.stream, 0, None)?;
    x.mem.check(&ctx.stream, "x", &[7 + ctx.me() as u8; 8])?;
    ctx.stream.synchronize()?;
    Ok(())
}

fn put_sizes(ctx: &Ctx) -> Outcome {
    let largest = SIZES[SIZES.len() - 1];
    let x = ctx.symmetric(DType::U8, largest + 5, ctx.seed)?;
    let mut want = x.mem.poison().to_vec();
    let src = ctx.local(DType::U8, largest, ctx.seed)?;
    for (i, size) in SIZES.iter().copied().enumerate() {
        let seed = ctx.seed + 1 + i as u64;
        let start = i % 5;
        let mut data = src.poison().to_vec();
        data[..size].copy_from_slice(&bytes(seed, ctx.me(), size));
        src.set(&ctx.stream, &data)?;
        x.handle.put(&ctx.stream, ctx.right(), start, &src.span.slice(0, size)?)?;
        x.handle.barrier(&ctx.stream, i, None)?;
        want[start..start + size].copy_from_slice(&bytes(seed, ctx.left(), size));
        x.mem.check(&ctx.stream, &format!("x after a put of {size} bytes at {start}"), &want)?;
        src.check(&ctx.stream, "source", &data)?;
        // The right one has compared before the next put.
        x.handle.barrier(&ctx.stream, i, None)?;
    }
    ctx.stream.synchronize()?;
    Ok(())
}

fn get_sizes(ctx: &Ctx) -> Outcome {
    let largest = SIZES[SIZES.len() - 1];
    let x = ctx.symmetric(DType::U8, largest + 5, ctx.seed)?;
    x.handle.barrier(&ctx.stream, 0, None)?;
    let theirs = x.poison_of(ctx.seed, ctx.left());
    let dst = ctx.local(DType::U8, largest, ctx.seed + 1)?;
    for (i, size) in SIZES.iter().copied().enumerate() {
        let start = i % 5;
        dst.set(&ctx.stream, dst.poison())?;
        x.handle.get(&ctx.stream, ctx.left(), start, &dst.span.slice(0, size)?)?;
        let mut want = dst.poison().to_vec();
        want[..size].copy_from_slice(&theirs[start..start + size]);
        dst.check(&ctx.stream, &format!("get of {size} bytes at {start}"), &want)?;
    }
    x.handle.barrier(&ctx.stream, 0, None)?;
    x.mem.check(&ctx.stream, "x", x.mem.poison())?;
    ctx.stream.synchronize()?;
    Ok(())
}

fn every_dtype(ctx: &Ctx) -> Outcome {
    for (i, dtype) in DType::ALL.into_iter().enumerate() {
        let seed = ctx.seed + i as u64;
        let x = ctx.symmetric(dtype, 37, seed)?;
        let src = ctx.local(dtype, 31, seed + 100)?;
        x.handle.put(&ctx.stream, ctx.right(), 3, &src.span)?;
        x.handle.barrier(&ctx.stream, 1, None)?;
        let mut want = x.poison_of(seed, ctx.me());
        let at = 3 * dtype.size();
        let theirs = src.poison_of(seed + 100, ctx.left());
        want[at..at + theirs.len()].copy_from_slice(&theirs);
        x.mem.check(&ctx.stream, &format!("put of {dtype}"), &want)?;
        let back = ctx.local(dtype, 31, seed + 200)?;
        x.handle.get(&ctx.stream, ctx.right(), 3, &back.span)?;
        back.check(&ctx.stream, &format!("get of {dtype}"), src.poison())?;
        x.handle.barrier(&ctx.stream, 1, None)?;
    }
    ctx.stream.synchronize()?;
    Ok(())
}

fn put_to_all(ctx: &Ctx) -> Outcome {
    let k = 129;
    let x = ctx.symmetric(DType::U16, k * ctx.n(), ctx.seed)?;
    let src = ctx.local(DType::U16, k, ctx.seed)?;
    for rank in 0..ctx.n() {
        src.set(&ctx.stream, &bytes(ctx.seed + rank as u64, ctx.me(), 2 * k))?;
        x.handle.put(&ctx.stream, rank, k * ctx.me(), &src.span)?;
    }
    x.handle.barrier(&ctx.stream, 0, None)?;
    let want: Vec<u8> = (0..ctx.n()).flat_map(|pe| bytes(ctx.seed + ctx.me() as u64, pe, 2 * k)).collect();
    x.mem.check(&ctx.stream, "x", &want)?;
    ctx.stream.synchronize()?;
    Ok(())
}

/// Upstream: 1024 elements; from offset 512 on; through a view.
fn get_parts(ctx: &Ctx) -> Outcome {
    let x = ctx.symmetric(DType::F32, 1024, ctx.seed)?;
    let theirs = x.poison_of(ctx.seed, ctx.right());
    let half = x.tensor.view(256, &[512])?.rendezvous(&ctx.team)?;
    for (handle, start, len, first) in
        [(&x.handle, 0, 1024, 0), (&x.handle, 512, 512, 512), (&half, 128, 384, 384)]
    {
        let dst = ctx.local(DType::F32, len, ctx.seed + 1)?;
        handle.get(&ctx.stream, ctx.right(), start, &dst.span)?;
        dst.check(&ctx.stream, &format!("{len} from {start}"), &theirs[4 * first..4 * (first + len)])?;
    }
    ctx.meet()?;
    Ok(())
}

fn one_element_at_the_ends(ctx: &Ctx) -> Outcome {
    for (i, dtype) in [DType::U8, DType::F32, DType::F64].into_iter().enumerate() {
        // Here the tensor is the whole allocation: what lies behind its end belongs to others.
        let n = 64 - i;
        let neighbours = [ctx.symmetric(DType::U8, 256, ctx.seed)?, ctx.symmetric(DType::U8, 256, ctx.seed)?];
        let tensor = ctx.team.empty(&[n], dtype)?;
        ctx.stream.fill(&tensor.span(), 0xa5)?;
        ctx.stream.synchronize()?;
        let h = tensor.rendezvous(&ctx.team)?;
        let behind = ctx.symmetric(DType::U8, 256, ctx.seed)?;
        let src = ctx.local(dtype, 1, ctx.seed + 7)?;
        src.set(&ctx.stream, &vec![0x5a; dtype.size()])?;
        h.put(&ctx.stream, ctx.right(), 0, &src.span)?;
        h.put(&ctx.stream, ctx.right(), n - 1, &src.span)?;
        h.barrier(&ctx.stream, 0, None)?;
        // SAFETY: the tensor is alive; its bytes.
        let raw = unsafe { Span::from_raw(tensor.span().addr(), DType::U8, tensor.span().bytes()) };
        let got: Vec<u8> = ctx.stream.read(&raw)?;
        let mut want = vec![0xa5; n * dtype.size()];
        want[..dtype.size()].fill(0x5a);
        want[(n - 1) * dtype.size()..].fill(0x5a);
        same(&format!("ends of {dtype}"), &got, &want)?;
        for other in neighbours.iter().chain([&behind]) {
            other.mem.check(&ctx.stream, "a neighbour", other.mem.poison())?;
        }
        let pad = h.get_signal_pad(ctx.me(), &[], DType::U32, 0)?;
        let slots: Vec<u32> = ctx.stream.read(&pad)?;
        ensure!(slots.iter().all(|s| *s == 0), "the pad was written");
        ensure_err!(
            h.put(&ctx.stream, ctx.right(), n, &src.span),
            Error::InvalidArgument { argument: "range", .. }
        );
        ctx.meet()?;
    }
    Ok(())
}

/// Upstream: 10, fence, 20 to the same place, then a flag.
fn fence_orders(ctx: &Ctx) -> Outcome {
    let x = ctx.symmetric(DType::U64, 4, ctx.seed)?;
    let src = ctx.local(DType::U64, 1, ctx.seed)?;
    for round in 0..50u64 {
        for value in [10 + 100 * round, 20 + 100 * round] {
            src.set(&ctx.stream, &value.to_le_bytes())?;
            x.handle.put(&ctx.stream, ctx.right(), 2, &src.span)?;
            ctx.stream.fence()?;
        }
        let none = src.span.slice(0, 0)?;
        x.handle.put_with_signal(&ctx.stream, ctx.right(), 0, &none, signal(1, SignalOp::Set, round + 1))?;
        x.handle.wait_until(&ctx.stream, 1, Cmp::Ge, round + 1, None)?;
        let got = x.mem.get(&ctx.stream)?;
        same(&format!("round {round}"), &got[16..24], &(20 + 100 * round).to_le_bytes())?;
        x.handle.barrier(&ctx.stream, 0, None)?;
    }
    ctx.stream.synchronize()?;
    Ok(())
}

/// Upstream: value 15, quiet, flag 42.
fn quiet_delivers(ctx: &Ctx) -> Outcome {
    let x = ctx.symmetric(DType::I32, 5000, ctx.seed)?;
    let src = ctx.local(DType::I32, 5000, ctx.seed)?;
    for round in 0..20u64 {
        let value: Vec<u8> = (15 + round as i32).to_le_bytes().repeat(5000);
        src.set(&ctx.stream, &value)?;
        for part in 0..5 {
            x.handle.put(&ctx.stream, ctx.right(), 1000 * part, &src.span.slice(1000 * part, 1000)?)?;
        }
        ctx.stream.quiet(&ctx.team, None)?;
        // Another stream: ordered after the puts by nothing but the quiet.
        ctx.stream.synchronize()?;
        let other = ctx.world.stream()?;
        let none = src.span.slice(0, 0)?;
        x.handle.put_with_signal(&other, ctx.right(), 0, &none, signal(0, SignalOp::Set, 42 + round))?;
        x.handle.wait_until(&other, 0, Cmp::Eq, 42 + round, None)?;
        other.synchronize()?;
        let want: Vec<u8> = (15 + round as i32).to_le_bytes().repeat(5000);
        x.mem.check(&ctx.stream, &format!("round {round}"), &want)?;
        x.handle.barrier(&ctx.stream, 0, None)?;
    }
    ctx.stream.synchronize()?;
    Ok(())
}

fn last_put_wins(ctx: &Ctx) -> Outcome {
    let x = ctx.symmetric(DType::U32, 300, ctx.seed)?;
    let src = ctx.local(DType::U32, 300, ctx.seed)?;
    for i in 0..40 {
        src.set(&ctx.stream, &bytes(ctx.seed + i, ctx.me(), 1200))?;
        x.handle.put(&ctx.stream, ctx.right(), 0, &src.span)?;
        ctx.stream.fence()?;
    }
    x.handle.barrier(&ctx.stream, 2, None)?;
    x.mem.check(&ctx.stream, "x", &bytes(ctx.seed + 39, ctx.left(), 1200))?;
    ctx.stream.synchronize()?;
    Ok(())
}

fn source_free_when_passed(ctx: &Ctx) -> Outcome {
    let n = 300_001;
    let x = ctx.symmetric(DType::U8, n, ctx.seed)?;
    let src = ctx.local(DType::U8, n, ctx.seed)?;
    src.set(&ctx.stream, &bytes(ctx.seed, ctx.me(), n))?;
    x.handle.put(&ctx.stream, ctx.right(), 0, &src.span)?;
    ctx.stream.synchronize()?;
    src.set(&ctx.stream, &vec![0xff; n])?;
    x.handle.barrier(&ctx.stream, 2, None)?;
    x.mem.check(&ctx.stream, "x", &bytes(ctx.seed, ctx.left(), n))?;
    ctx.stream.synchronize()?;
    Ok(())
}

fn views(ctx: &Ctx) -> Outcome {
    let whole = ctx.symmetric(DType::F32, 100, ctx.seed)?;
    let view = whole.tensor.view(10, &[4, 5])?;
    let inner = view.view(3, &[7])?;
    let h = inner.rendezvous(&ctx.team)?;
    ensure_eq!((inner.len(), inner.sizes()), (7, &[7][..]), "the inner view");
    ensure_eq!(h.offset() - whole.handle.offset(), 52, "offset of the inner view in the view");
    let src = ctx.local(DType::F32, 5, ctx.seed + 1)?;
    src.set(&ctx.stream, &bytes(ctx.seed, ctx.me(), 20))?;
    h.put(&ctx.stream, ctx.right(), 2, &src.span)?;
    h.barrier(&ctx.stream, 0, None)?;
    let mut want = whole.mem.poison().to_vec();
    want[60..80].copy_from_slice(&bytes(ctx.seed, ctx.left(), 20));
    whole.mem.check(&ctx.stream, "whole", &want)?;
    ensure_err!(whole.tensor.view(98, &[3]), Error::InvalidArgument { op: "view", .. });
    ensure_err!(whole.tensor.view(usize::MAX, &[1]), Error::InvalidArgument { op: "view", .. });
    ensure_err!(inner.view(7, &[1]), Error::InvalidArgument { op: "view", .. });
    ensure_eq!(inner.view(7, &[0])?.is_empty(), true, "an empty view at the end");
    ctx.stream.synchronize()?;
    Ok(())
}

/// Every PE owns the rows of its rank in every area; random puts and gets against a plain model of all areas.
fn random_puts_and_gets(ctx: &Ctx) -> Outcome {
    let (n, row) = (ctx.n(), 700);
    let x: Symmetric = ctx.symmetric(DType::U8, n * row, ctx.seed)?;
    let mut areas: Vec<Vec<u8>> = (0..n).map(|pe| x.poison_of(ctx.seed, pe)).collect();
    let src = ctx.local(DType::U8, row, ctx.seed + 1)?;
    let dst = ctx.local(DType::U8, row, ctx.seed + 2)?;
    for round in 0..40 {
        for pe in 0..n {
            let mut r = Random::new(&[ctx.seed, round, pe as u64]);
            let (to, len) = (r.below(n), r.below(row));
            let start = pe * row + r.below(row - len);
            let data = bytes(ctx.seed ^ round, pe, len);
            symm::oracle::put(&mut areas, to, start, &data);
            if pe == ctx.me() {
                let part = src.span.slice(0, len)?;
                let mut all = src.get(&ctx.stream)?;
                all[..len].copy_from_slice(&data);
                src.set(&ctx.stream, &all)?;
                x.handle.put(&ctx.stream, to, start, &part)?;
            }
        }
        x.handle.barrier(&ctx.stream, 3, None)?;
        let mut r = Random::new(&[ctx.seed, round, 99, ctx.me() as u64]);
        let (from, len) = (r.below(n), r.below(row));
        let start = r.below(n * row - len);
        dst.set(&ctx.stream, dst.poison())?;
        x.handle.get(&ctx.stream, from, start, &dst.span.slice(0, len)?)?;
        let mut want = dst.poison().to_vec();
        symm::oracle::get(&areas, from, start, &mut want[..len]);
        dst.check(&ctx.stream, &format!("round {round}: get"), &want)?;
        x.mem.check(&ctx.stream, &format!("round {round}: area"), &areas[ctx.me()])?;
        x.handle.barrier(&ctx.stream, 3, None)?;
    }
    ctx.stream.synchronize()?;
    Ok(())
}
