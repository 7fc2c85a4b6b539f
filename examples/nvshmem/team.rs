//! Shows: NVSHMEM's own teams (`nvshmem_team_t`) of arithmetic subsets, for kernels of the user's that call its collectives.
//! Run with: `symm run -n 4 -- target/release/examples/nvshmem_team` (feature `nvshmem`; a GPU a PE, or MPS with
//! `CUDA_MPS_ACTIVE_THREAD_PERCENTAGE=50` where two share a GPU: NVSHMEM has teams where the shares of a GPU add up to 100 at most)
//! Expect: PE 0 says which teams were made; where PEs share a GPU without that, that NVSHMEM has none, as an error on every PE.

use anyhow::{Context, Result, bail, ensure};
use symm::{Builder, DType, Error, Pe};

fn main() -> Result<()> {
    let world = Builder::from_env()?.backend("nvshmem").init()?;
    let n = world.n_pes() as u32;
    let backend = world.backend();
    let nvshmem = backend.nvshmem().context("another backend than nvshmem was opened")?;
    // The library that the backend has started; its functions may be called until `finalize`.
    let library = nvshmem_sys::Nvshmem::load()?;
    let me = world.pe();

    let every = |first: u32, step: u32| (first..n).step_by(step as usize).map(Pe).collect::<Vec<_>>();
    let rest = if n > 1 { every(1, 1) } else { every(0, 1) };
    let subsets =
        [("all", every(0, 1)), ("even", every(0, 2)), ("last", vec![Pe(n - 1)]), ("all but the first", rest)];
    let mut made = Vec::new();
    for (name, members) in &subsets {
        let team = match nvshmem.team(members) {
            Err(Error::Unsupported { why, .. }) if why.contains("share a GPU") => {
                println!("PE {}: {name}: {why}", me.0);
                world.finalize()?;
                return Ok(());
            }
            team => team?,
        };
        let rank = members.iter().position(|pe| *pe == me);
        let (Some(team), Some(rank)) = (team, rank) else {
            ensure!(
                team.is_none() && rank.is_none(),
                "{name}: PE {} has a team without being a member",
                me.0
            );
            continue;
        };
        // SAFETY: the team was made by this process's NVSHMEM, which runs; all members make the same calls in the same order, and the
        // sync waits for members only.
        unsafe {
            ensure!(library.nvshmem_team_my_pe(team)? == rank as i32, "{name}: another rank than {rank}");
            ensure!(library.nvshmem_team_n_pes(team)? == members.len() as i32, "{name}: another size");
            for (k, pe) in members.iter().enumerate() {
                let there =
                    library.nvshmem_team_translate_pe(team, k as i32, nvshmem_sys::NVSHMEM_TEAM_WORLD)?;
                ensure!(
                    there == pe.0 as i32,
                    "{name}: rank {k} is PE {there} of the world, expected {}",
                    pe.0
                );
            }
            ensure!(library.nvshmem_team_sync(team)? == 0, "{name}: nvshmem_team_sync failed");
        }
        made.push(format!("{name} of {}", members.len()));
    }
    // A team that was asked for before is found again.
    for (name, members) in &subsets {
        let again = nvshmem.team(members)?;
        ensure!(again.is_some() == members.contains(&me), "{name}: another answer the second time");
    }
    if n > 1 {
        match nvshmem.team(&[Pe(1), Pe(0)]) {
            Err(Error::Unsupported { why, .. }) => ensure!(why.contains("arithmetic"), "{why}"),
            other => bail!("a falling sequence: {other:?}"),
        }
    }

    // The operations of this library go on as before, over any subset.
    let team = world.team();
    let tensor = team.empty(&[1], DType::U64)?;
    tensor.rendezvous(team)?;
    if me == Pe(0) {
        println!("NVSHMEM teams: {}, asked for by {n} PEs", made.join(", "));
    }
    world.finalize()?;
    Ok(())
}
