//! What the headers have as initialiser macros, which bindgen cannot see because they contain `sizeof`.
//!
//! The first field of each struct is a *version*: the struct's own version in the upper half, its size in the lower. The
//! library refuses other values. The stamps here are those that every release from 3.4 on accepts; CI compares them with
//! what a C++ compiler makes of the macros.

use std::ffi::{c_int, c_uint};
use std::mem::{size_of, zeroed};

use crate::{
    NVSHMEMX_INIT_WITH_MPI_COMM, NVSHMEMX_INIT_WITH_UNIQUEID, nvshmem_team_config_t, nvshmemx_init_args_t,
    nvshmemx_init_attr_t, nvshmemx_uniqueid_args_t, nvshmemx_uniqueid_t,
};

const fn stamp<T>(version: c_int) -> c_int {
    (version << 16) + size_of::<T>() as c_int
}

/// An empty unique id: PE 0 fills it with `nvshmemx_get_uniqueid`, and every PE is given its bytes.
pub const NVSHMEMX_UNIQUEID_INITIALIZER: nvshmemx_uniqueid_t = {
    // SAFETY: a struct of integers, for which zero is a value.
    let mut id: nvshmemx_uniqueid_t = unsafe { zeroed() };
    id.version = stamp::<nvshmemx_uniqueid_t>(1);
    id
};

/// Start-up by unique id, not yet filled: `nvshmemx_set_attr_uniqueid_args` does.
pub const NVSHMEMX_UNIQUEID_ARGS_INITIALIZER: nvshmemx_uniqueid_args_t = {
    // SAFETY: a struct of integers and a pointer, for which zero is a value.
    let mut args: nvshmemx_uniqueid_args_t = unsafe { zeroed() };
    args.version = stamp::<nvshmemx_uniqueid_args_t>(1);
    args.myrank = -1;
    args.nranks = -1;
    args
};

/// Arguments of start-up.
pub const NVSHMEMX_INIT_ARGS_INITIALIZER: nvshmemx_init_args_t = {
    // SAFETY: a struct of integers and a pointer, for which zero is a value.
    let mut args: nvshmemx_init_args_t = unsafe { zeroed() };
    args.version = stamp::<nvshmemx_init_args_t>(1);
    args.uid_args = NVSHMEMX_UNIQUEID_ARGS_INITIALIZER;
    args
};

/// What `nvshmemx_hostlib_init_attr` takes.
///
/// `nvshmemx_set_attr_uniqueid_args` keeps the *pointer* to the unique id: the id must stay where it is until init returns.
/// `nvshmemx_set_attr_mpi_comm_args` takes a pointer *to* an `MPI_Comm`.
pub const NVSHMEMX_INIT_ATTR_INITIALIZER: nvshmemx_init_attr_t = {
    // SAFETY: a struct of integers and pointers, for which zero is a value.
    let mut attr: nvshmemx_init_attr_t = unsafe { zeroed() };
    attr.version = stamp::<nvshmemx_init_attr_t>(1);
    attr.args = NVSHMEMX_INIT_ARGS_INITIALIZER;
    attr
};

/// Configuration of a team: the default number of contexts, no unique id.
pub const NVSHMEM_TEAM_CONFIG_INITIALIZER: nvshmem_team_config_t = {
    // SAFETY: a struct of integers, for which zero is a value.
    let mut config: nvshmem_team_config_t = unsafe { zeroed() };
    config.version = stamp::<nvshmem_team_config_t>(2);
    config.num_contexts = -1;
    config.uniqueid = u64::MAX;
    config
};

/// [`NVSHMEMX_INIT_WITH_UNIQUEID`] in the type that `nvshmemx_hostlib_init_attr` takes.
pub const INIT_WITH_UNIQUEID: c_uint = NVSHMEMX_INIT_WITH_UNIQUEID as c_uint;

/// [`NVSHMEMX_INIT_WITH_MPI_COMM`] in the type that `nvshmemx_hostlib_init_attr` takes.
pub const INIT_WITH_MPI_COMM: c_uint = NVSHMEMX_INIT_WITH_MPI_COMM as c_uint;

/// A unique id as the bytes that a bootstrap carries to the other PEs.
pub fn uniqueid_to_bytes(id: &nvshmemx_uniqueid_t) -> [u8; size_of::<nvshmemx_uniqueid_t>()] {
    // SAFETY: both are of this size, the struct has no padding (an integer and an array of bytes), and any byte is valid.
    unsafe { std::mem::transmute(*id) }
}

/// The unique id that PE 0 sent. NVSHMEM checks its version; whether it is of this job only the bootstrap can know.
pub fn uniqueid_from_bytes(bytes: [u8; size_of::<nvshmemx_uniqueid_t>()]) -> nvshmemx_uniqueid_t {
    // SAFETY: both are of this size, and any bytes are a value of the struct's integers.
    unsafe { std::mem::transmute(bytes) }
}
