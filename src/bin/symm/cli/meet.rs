//! PEs of one command: they meet before anything else, so that what is wrong is told by one for all.

use serde::Serialize;
use serde::de::DeserializeOwned;
use symm::bootstrap::Group;
use symm::{Config, Error, Pe};
use symm_core::Deadline;

use super::error::{Class, Failure};

/// Connects the PEs and writes into the settings who they are; `id` tells the command's messages from all others.
pub(crate) fn meet(config: &mut Config, id: u64) -> Result<Group, Error> {
    // A backend that nobody has is found out later, by all PEs together.
    let mut asked = config.clone();
    asked.backend = Config::default().backend;
    let boot = symm::start(&asked)?;
    symm::settle(config, &*boot);
    let everybody = (0..boot.n_pes()).map(Pe::from).collect();
    Group::new(boot, id, everybody)
}

/// Everybody's value, in PE order.
pub(crate) fn share<T: Serialize, U: DeserializeOwned>(
    group: &Group,
    op: &'static str,
    mine: &T,
    deadline: Deadline,
) -> Result<Vec<U>, Failure> {
    let bytes = serde_json::to_vec(mine).expect("plain structs should encode");
    let all = group.all_gather(op, &bytes, deadline)?;
    let decode = |(pe, bytes): (usize, &Vec<u8>)| {
        serde_json::from_slice(bytes).map_err(|e| {
            let mut f = Failure::new(
                Class::Run,
                "Bootstrap",
                format!("{op}: PE {pe} sent what does not decode: {e}"),
            );
            f.error.pe = u32::try_from(pe).ok();
            f
        })
    };
    all.iter().enumerate().map(decode).collect()
}

/// What this PE prepared, if all PEs could; else the failure of the lowest that could not. Bad input so ends all PEs
/// together: one that left first might have a launcher end PE 0 before it has spoken.
pub(crate) fn agree<T>(group: &Group, mine: Result<T, Failure>, deadline: Deadline) -> Result<T, Failure> {
    let all: Vec<Option<Failure>> = share(group, "check", &mine.as_ref().err(), deadline)?;
    match all.into_iter().flatten().next() {
        Some(f) => Err(f),
        None => mine,
    }
}
