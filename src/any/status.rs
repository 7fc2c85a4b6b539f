//! The status record of whichever backend.

use symm_core::status::StatusRecord;

use super::AnyStatus;

impl AsRef<StatusRecord> for AnyStatus {
    fn as_ref(&self) -> &StatusRecord {
        match self {
            AnyStatus::Host(s) => s.as_ref(),
            #[cfg(feature = "cuda")]
            AnyStatus::Cuda(s) => s.as_ref(),
            #[cfg(feature = "nvshmem")]
            AnyStatus::Nvshmem(s) => s.as_ref(),
        }
    }
}
