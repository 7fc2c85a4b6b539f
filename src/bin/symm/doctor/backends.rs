//! What each backend can do here: a small world is opened on it.

use std::sync::Mutex;

use serde::{Deserialize, Serialize};
use symm::{Backend as _, Builder, Config, DType, Error, Result, World};

use super::probe;

#[derive(Debug, Default, Clone, Serialize, Deserialize)]
pub(super) struct Backend {
    /// What was asked for, and for `auto` what it took.
    pub(super) name: String,
    pub(super) runs: bool,
    /// Why it was taken, or cannot run.
    pub(super) why: String,
    pub(super) capabilities: Vec<String>,
}

/// PEs of the trial, which are threads: on a host two that reach each other, on GPUs one, since two would need two GPUs.
fn pes(name: &str) -> usize {
    if name == "host" { 2 } else { 1 }
}

pub(super) fn all() -> Vec<Backend> {
    ["host", "cuda", "nvshmem"].into_iter().map(ask).collect()
}

/// What `auto` takes, of the backends that were tried: one that cannot run here is taken all the same, and does not run.
pub(super) fn auto(tried: &[Backend]) -> Backend {
    judge(ask("auto"), tried)
}

fn judge(mut auto: Backend, tried: &[Backend]) -> Backend {
    // Its own trial has one PE, which reaches itself where no two reach each other.
    if let Some(taken) = tried.iter().find(|b| b.name == auto.name && !b.runs).filter(|_| auto.runs) {
        auto.runs = false;
        auto.capabilities.clear();
        auto.why = format!("{}; but {} cannot run here: {}", auto.why, taken.name, taken.why);
    }
    auto
}

fn ask(name: &str) -> Backend {
    probe::ask(&format!("backend:{name}")).unwrap_or_else(|why| Backend {
        name: name.to_owned(),
        why,
        ..Backend::default()
    })
}

/// Opens a world on a backend and moves some bytes.
pub(super) fn try_one(name: &str) -> Backend {
    let found = Mutex::new(Backend { name: name.to_owned(), ..Backend::default() });
    let trial = |world: World| {
        let right = ring(&world)?;
        let mut found = found.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        found.name = world.backend().name().to_owned();
        found.runs = right;
        world.backend().why().clone_into(&mut found.why);
        found.capabilities = world.capabilities().iter_names().map(|(name, _)| name.to_lowercase()).collect();
        drop(found);
        world.finalize()
    };
    let done = Config::from_env().and_then(|mut config| {
        name.clone_into(&mut config.backend);
        // A trial of one process needs no made-up nodes, and should not wait as long as a job would.
        config.host_nodes = 1;
        config.init_timeout = config.init_timeout.min(std::time::Duration::from_secs(20));
        config.timeout = config.init_timeout;
        Builder::from_config(config).threads(pes(name), trial)
    });
    let mut found = found.into_inner().unwrap_or_else(std::sync::PoisonError::into_inner);
    if let Err(e) = done {
        found.runs = false;
        let why = match e {
            Error::Unavailable { why, .. } => why,
            e => e.to_string(),
        };
        // The trial's PE is nobody's.
        found.why = why.strip_prefix("PE 0: ").unwrap_or(&why).to_owned();
    }
    found
}

/// Every PE writes its number to its right neighbour's memory and reads its left neighbour's number there.
fn ring(world: &World) -> Result<bool> {
    let (team, stream) = (world.team(), world.stream()?);
    let (me, w) = (team.rank(), team.world_size());
    let inbox = team.empty(&[1], DType::U64)?;
    let handle = inbox.rendezvous(team)?;
    let mine = world.local(DType::U64, 1)?;
    stream.write(&mine.span(), &[me as u64 + 7])?;
    handle.put(&stream, (me + 1) % w, 0, &mine.span())?;
    team.barrier(&stream, symm::Options::default())?;
    let got: Vec<u64> = stream.read(&inbox.span())?;
    stream.synchronize()?;
    Ok(got == [((me + w - 1) % w) as u64 + 7])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn auto_does_not_run_where_what_it_takes_does_not() {
        let backend = |name: &str, runs, why: &str| Backend {
            name: name.to_owned(),
            runs,
            why: why.to_owned(),
            capabilities: vec!["recover".to_owned()],
        };
        let auto = || backend("host", true, "host, because no PE found a GPU");
        let fine = [backend("host", true, ""), backend("cuda", false, "no GPU")];
        assert!(judge(auto(), &fine).runs);
        let sick = judge(auto(), &[backend("host", false, "no sockets"), backend("cuda", true, "")]);
        assert_eq!((sick.runs, sick.capabilities.len()), (false, 0));
        assert_eq!(sick.why, "host, because no PE found a GPU; but host cannot run here: no sockets");
    }
}
