//! torchrun's variables, or the same set by hand.

use std::sync::Arc;

use super::family::number;
use super::{alone, job_name, secret, symm};
use crate::bootstrap::{Bootstrap, Identity, Sockets, Whereabouts};
use crate::config::Config;
use crate::deadline::Deadline;
use crate::error::{Error, Result};
use crate::pe::Pe;

pub(super) fn start(config: &Config, env: &impl Fn(&str) -> Option<String>) -> Result<Arc<dyn Bootstrap>> {
    let n_pes = number(env, "WORLD_SIZE", 1 << 20)?;
    if n_pes == 0 {
        let expected = "1 or more".to_owned();
        return Err(Error::Setting { name: "WORLD_SIZE", got: "0".to_owned(), expected });
    }
    let pe = Pe(number(env, "RANK", n_pes)? as u32);
    if n_pes == 1 {
        return alone();
    }
    let get = |name| env(name).unwrap_or_default();
    let (host, port) = (get("MASTER_ADDR"), number(env, "MASTER_PORT", 65536)?);
    // A restarted job is another job: processes of the one before may still be ending.
    let parts = [&host, &get("MASTER_PORT"), &get("TORCHELASTIC_RUN_ID"), &get("TORCHELASTIC_RESTART_COUNT")];
    let job = job_name("torchrun", &parts.map(String::as_str));
    let n_pes = n_pes as usize;
    // One agent started them all, so all are on its host, and need no port.
    if config.port.is_none() && get("LOCAL_WORLD_SIZE").parse() == Ok(n_pes) {
        let identity = Identity { pe, n_pes, job, secret: secret(config) };
        let boot = Sockets::join(identity, Whereabouts::OneHost, Deadline::after(config.init_timeout))?;
        return Ok(boot);
    }
    // MASTER_PORT is where torch's store listens: the agent's, or the application's own.
    let port = match config.port {
        Some(port) => u64::from(port),
        None if (1..65535).contains(&port) => port + 1,
        None => {
            let expected =
                "a number from 1 to 65534, since PE 0 listens at the next one, or SYMM_PORT set".to_owned();
            return Err(Error::Setting { name: "MASTER_PORT", got: port.to_string(), expected });
        }
    };
    let host = if host.contains(':') && !host.starts_with('[') { format!("[{host}]") } else { host };
    symm::meet(config, pe, n_pes, job, "MASTER_ADDR", &format!("{host}:{port}"))
}
