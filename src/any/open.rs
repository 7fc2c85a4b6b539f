//! Opening the backend, and what only one of them has.

use std::sync::Arc;

use symm_core::bootstrap::Bootstrap;
use symm_core::{Config, Result};

use super::AnyBackend;
#[cfg(feature = "nvshmem")]
use super::Chosen;
use crate::select::{self, Means};

impl AnyBackend {
    /// Chooses and opens the backend.
    pub(crate) fn open(boot: &Arc<dyn Bootstrap>, config: &Config, means: Means) -> Result<Self> {
        let (chosen, why) = select::choose(boot, config, means)?;
        Ok(AnyBackend { chosen, why })
    }

    /// The NVSHMEM backend, if that was chosen: for what only it has, such as NVSHMEM's own teams.
    #[cfg(feature = "nvshmem")]
    pub fn nvshmem(&self) -> Option<&symm_nvshmem::Nvshmem> {
        match &self.chosen {
            Chosen::Nvshmem(b) => Some(b),
            _ => None,
        }
    }
}
