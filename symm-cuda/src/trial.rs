//! Whether memory of a GPU can be shared, found out by sharing some.

use symm_core::Result;

use crate::device::{Chosen, start_driver, unavailable};
use crate::share::{Handles, attempt};
use crate::shared::Shared;
use crate::vmm::OnThisGpu;

/// What [`try_handles`] found: of each kind of handle whether it works, or why not.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HandleTrials {
    /// File descriptors: what PEs of one host share memory by, unless `SYMM_HANDLE` says otherwise.
    pub posix_fd: Result<(), String>,
    /// Fabric handles: what PEs of several hosts of one NVLink domain share memory by. The trial is within this process; between hosts
    /// these must be members of one IMEX domain, too.
    pub fabric: Result<(), String>,
}

/// Tries each kind of memory handle on visible GPU `ordinal`, as `init` does: some memory is made and exported, imported again, and
/// what is written to the one must be found in the other. Attributes say only what a GPU could do.
///
/// Makes the GPU's primary context, which stays until the process ends, and 2 MiB of memory, which goes.
///
/// # Errors
/// `Unavailable`, or the driver's error, if the GPU cannot be opened at all.
pub fn try_handles(ordinal: u32) -> Result<HandleTrials> {
    let number = start_driver().and_then(|n| {
        let seen = i32::try_from(ordinal).ok().filter(|_| ordinal < n);
        seen.ok_or_else(|| unavailable(format!("GPU {ordinal} is not visible")))
    })?;
    let shared = Shared::new(Chosen::of(number)?.open()?)?;
    let of = |handles| attempt(&OnThisGpu(&shared, handles));
    Ok(HandleTrials { posix_fd: of(Handles::Fd), fabric: of(Handles::Fabric) })
}
