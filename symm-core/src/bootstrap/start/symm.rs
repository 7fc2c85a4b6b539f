//! `SYMM_*`, or the same by the builder.

use std::sync::Arc;

use super::meeting::{self, Meeting};
use super::{alone, job_name, needs_secret, secret};
use crate::bootstrap::{Bootstrap, Identity, Sockets, Whereabouts};
use crate::config::Config;
use crate::deadline::Deadline;
use crate::error::Result;
use crate::pe::Pe;

/// Over the address that `config` names, or on this host.
pub(super) fn start(config: &Config) -> Result<Arc<dyn Bootstrap>> {
    let (Some(pe), Some(n_pes)) = (config.pe, config.n_pes) else { return alone() };
    let Some(address) = &config.address else { return on_one_host(config) };
    if n_pes == 1 {
        return alone();
    }
    let job = config.job.clone().unwrap_or_else(|| job_name("addr", &[address]));
    meet(config, Pe(pe), n_pes as usize, job, "SYMM_ADDR", address)
}

pub(super) fn on_one_host(config: &Config) -> Result<Arc<dyn Bootstrap>> {
    let (Some(pe), Some(n_pes), Some(job)) = (config.pe, config.n_pes, &config.job) else { return alone() };
    let identity = Identity { pe: Pe(pe), n_pes: n_pes as usize, job: job.clone(), secret: secret(config) };
    let boot = Sockets::join(identity, Whereabouts::OneHost, Deadline::after(config.init_timeout))?;
    Ok(boot)
}

/// Over an address at which PE 0 listens; `name` is the variable that it comes from.
pub(super) fn meet(
    config: &Config,
    pe: Pe,
    n_pes: usize,
    job: String,
    name: &'static str,
    address: &str,
) -> Result<Arc<dyn Bootstrap>> {
    let deadline = Deadline::after(config.init_timeout);
    let addresses = meeting::resolve(name, address, deadline)?;
    let loopback = addresses.iter().all(|a| a.ip().is_loopback());
    if !loopback {
        needs_secret(config)?;
    }
    let identity = Identity { pe, n_pes, job, secret: secret(config) };
    let mut contacts = Meeting::new(identity.clone(), addresses);
    let contacts = &mut contacts;
    // Where they meet over loopback, all are on this host. Without a secret, a port would be open to other users of it.
    let whereabouts = if loopback {
        Whereabouts::OneHostBy { contacts }
    } else {
        Whereabouts::Anywhere { contacts, interfaces: config.interfaces.as_deref() }
    };
    Ok(Sockets::join(identity, whereabouts, deadline)?)
}
