//! Allocate, rendezvous, use, free, a thousand times: file descriptors, address space and memory stay what they were.

use anyhow::{Result, ensure};
use serde_json::{Value, json};
use symm::{DType, World};

use crate::Run;

const ROUNDS: usize = 1000;
/// Rounds after which everything must stay as it is.
const WARM_UP: usize = 50;
/// Elements of what each round allocates: from a shared segment, and with segments of its own.
const SIZES: [usize; 3] = [100, 100_000, 5_000_000];

/// What a process holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Held {
    descriptors: usize,
    /// Mapped ranges of the address space.
    mappings: usize,
    address_space_kib: u64,
    device_bytes: Option<u64>,
}

fn held() -> Result<Held> {
    let status = std::fs::read_to_string("/proc/self/status")?;
    let size = status
        .lines()
        .find_map(|l| l.strip_prefix("VmSize:")?.trim().strip_suffix("kB")?.trim().parse().ok());
    Ok(Held {
        descriptors: std::fs::read_dir("/proc/self/fd")?.count(),
        mappings: std::fs::read_to_string("/proc/self/maps")?.lines().count(),
        address_space_kib: size.unwrap_or(0),
        device_bytes: device_bytes()?,
    })
}

/// Bytes in use on the GPU, by everybody.
#[cfg(feature = "cuda")]
fn device_bytes() -> Result<Option<u64>> {
    if symm_cuda::device_count()? == 0 {
        return Ok(None);
    }
    let (mut free, mut total) = (0, 0);
    // SAFETY: two valid places; a context is current on the thread that opened the world.
    let asked = unsafe { cudarc::driver::sys::cuMemGetInfo_v2(&raw mut free, &raw mut total) };
    crate::check::check("cuMemGetInfo_v2", asked)?;
    Ok(Some((total - free) as u64))
}

#[cfg(not(feature = "cuda"))]
fn device_bytes() -> Result<Option<u64>> {
    Ok(None)
}

fn round(world: &World, number: usize) -> Result<()> {
    let team = world.team();
    let stream = world.stream()?;
    let right = (team.rank() + 1) % team.world_size();
    for size in SIZES {
        let handle = team.empty(&[size], DType::U32)?.rendezvous(team)?;
        let value = world.local(DType::U32, 1)?;
        stream.write(&value.span(), &[number as u32 + team.rank() as u32])?;
        handle.put(&stream, right, size - 1, &value.span())?;
        handle.barrier(&stream, 0, None)?;
        let got: Vec<u32> = stream.read(&handle.span().slice(size - 1, 1)?)?;
        let left = (team.rank() + team.world_size() - 1) % team.world_size();
        ensure!(got == [(number + left) as u32], "round {number}: got {got:?} from PE {left}");
    }
    Ok(stream.synchronize()?)
}

/// Gives everything back that was retired.
fn settle(world: &World) -> Result<()> {
    // What is told in one is free after the next.
    for _ in 0..3 {
        world.team().reclaim()?;
    }
    Ok(())
}

pub(crate) fn run(run: &Run<'_>) -> Result<Value> {
    let rounds = run.rounds(ROUNDS, 2 * WARM_UP);
    for number in 0..WARM_UP {
        round(run.world, number)?;
    }
    settle(run.world)?;
    let before = held()?;
    for number in WARM_UP..rounds {
        round(run.world, number)?;
    }
    settle(run.world)?;
    let after = held()?;
    let fixed = |h: Held| (h.descriptors, h.device_bytes);
    // Threads of one process, and their other tests, share what the process holds.
    if std::env::var_os("SYMM_PE").is_some() {
        ensure!(fixed(after) == fixed(before), "after {WARM_UP} rounds {before:?}, after {rounds} {after:?}");
        // Allocators of the process and of the driver may keep another arena.
        let grown = after.address_space_kib.saturating_sub(before.address_space_kib);
        ensure!(grown <= 4096, "after {WARM_UP} rounds {before:?}, after {rounds} {after:?}");
    }
    Ok(json!({
        "rounds": rounds,
        "allocations": rounds * SIZES.len(),
        "descriptors": [before.descriptors, after.descriptors],
        "mappings": [before.mappings, after.mappings],
        "address_space_kib": [before.address_space_kib, after.address_space_kib],
        "device_bytes": [before.device_bytes, after.device_bytes],
    }))
}
