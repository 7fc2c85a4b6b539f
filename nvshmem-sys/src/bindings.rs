// Written by ci/gen-bindings from NVSHMEM's headers.

pub const NVSHMEM_INIT_ATTR_VER: u32 = 1;
pub const NVSHMEM_TEAM_CONFIG_MASK_NUM_CONTEXTS: u32 = 1;
pub const NVSHMEM_TEAM_CONFIG_MASK_UNIQUEID: u32 = 2;
pub const NVSHMEM_VENDOR_MAJOR_VERSION: u32 = 3;
pub const NVSHMEM_VENDOR_MINOR_VERSION: u32 = 4;
pub const NVSHMEM_VENDOR_PATCH_VERSION: u32 = 5;
pub const NVSHMEM_MAJOR_VERSION: u32 = 1;
pub const NVSHMEM_MINOR_VERSION: u32 = 3;
pub const NVSHMEM_MAX_NAME_LEN: u32 = 256;
#[repr(C)]
#[derive(Debug)]
pub struct CUstream_st {
    _unused: [u8; 0],
}
pub type cudaStream_t = *mut CUstream_st;
#[repr(C)]
#[derive(Debug)]
pub struct CUlib_st {
    _unused: [u8; 0],
}
pub const NVSHMEM_SIGNAL_SET: nvshmemx_signal_op_t = 9;
pub const NVSHMEM_SIGNAL_ADD: nvshmemx_signal_op_t = 10;
pub type nvshmemx_signal_op_t = ::core::ffi::c_uint;
#[repr(C)]
#[derive(Debug, Copy, Clone)]
pub struct nvshmemx_uniqueid_v1 {
    pub version: ::core::ffi::c_int,
    pub internal: [::core::ffi::c_char; 124usize],
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    [
        "Size of nvshmemx_uniqueid_v1",
    ][::core::mem::size_of::<nvshmemx_uniqueid_v1>() - 128usize];
    [
        "Alignment of nvshmemx_uniqueid_v1",
    ][::core::mem::align_of::<nvshmemx_uniqueid_v1>() - 4usize];
    [
        "Offset of field: nvshmemx_uniqueid_v1::version",
    ][::core::mem::offset_of!(nvshmemx_uniqueid_v1, version) - 0usize];
    [
        "Offset of field: nvshmemx_uniqueid_v1::internal",
    ][::core::mem::offset_of!(nvshmemx_uniqueid_v1, internal) - 4usize];
};
pub type nvshmemx_uniqueid_t = nvshmemx_uniqueid_v1;
#[repr(C)]
#[derive(Debug, Copy, Clone)]
pub struct nvshmemx_uniqueid_args_v1 {
    pub version: ::core::ffi::c_int,
    pub id: *mut nvshmemx_uniqueid_v1,
    pub myrank: ::core::ffi::c_int,
    pub nranks: ::core::ffi::c_int,
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    [
        "Size of nvshmemx_uniqueid_args_v1",
    ][::core::mem::size_of::<nvshmemx_uniqueid_args_v1>() - 24usize];
    [
        "Alignment of nvshmemx_uniqueid_args_v1",
    ][::core::mem::align_of::<nvshmemx_uniqueid_args_v1>() - 8usize];
    [
        "Offset of field: nvshmemx_uniqueid_args_v1::version",
    ][::core::mem::offset_of!(nvshmemx_uniqueid_args_v1, version) - 0usize];
    [
        "Offset of field: nvshmemx_uniqueid_args_v1::id",
    ][::core::mem::offset_of!(nvshmemx_uniqueid_args_v1, id) - 8usize];
    [
        "Offset of field: nvshmemx_uniqueid_args_v1::myrank",
    ][::core::mem::offset_of!(nvshmemx_uniqueid_args_v1, myrank) - 16usize];
    [
        "Offset of field: nvshmemx_uniqueid_args_v1::nranks",
    ][::core::mem::offset_of!(nvshmemx_uniqueid_args_v1, nranks) - 20usize];
};
pub type nvshmemx_uniqueid_args_t = nvshmemx_uniqueid_args_v1;
pub type nvshmemx_team_uniqueid_t = u64;
pub type nvshmem_team_t = i32;
#[repr(C)]
#[derive(Debug, Copy, Clone)]
pub struct nvshmemx_init_args_v1 {
    pub version: ::core::ffi::c_int,
    pub uid_args: nvshmemx_uniqueid_args_t,
    pub content: [::core::ffi::c_char; 96usize],
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    [
        "Size of nvshmemx_init_args_v1",
    ][::core::mem::size_of::<nvshmemx_init_args_v1>() - 128usize];
    [
        "Alignment of nvshmemx_init_args_v1",
    ][::core::mem::align_of::<nvshmemx_init_args_v1>() - 8usize];
    [
        "Offset of field: nvshmemx_init_args_v1::version",
    ][::core::mem::offset_of!(nvshmemx_init_args_v1, version) - 0usize];
    [
        "Offset of field: nvshmemx_init_args_v1::uid_args",
    ][::core::mem::offset_of!(nvshmemx_init_args_v1, uid_args) - 8usize];
    [
        "Offset of field: nvshmemx_init_args_v1::content",
    ][::core::mem::offset_of!(nvshmemx_init_args_v1, content) - 32usize];
};
pub type nvshmemx_init_args_t = nvshmemx_init_args_v1;
#[repr(C)]
#[derive(Debug, Copy, Clone)]
pub struct nvshmemx_init_attr_v1 {
    pub version: ::core::ffi::c_int,
    pub mpi_comm: *mut ::core::ffi::c_void,
    pub args: nvshmemx_init_args_t,
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    [
        "Size of nvshmemx_init_attr_v1",
    ][::core::mem::size_of::<nvshmemx_init_attr_v1>() - 144usize];
    [
        "Alignment of nvshmemx_init_attr_v1",
    ][::core::mem::align_of::<nvshmemx_init_attr_v1>() - 8usize];
    [
        "Offset of field: nvshmemx_init_attr_v1::version",
    ][::core::mem::offset_of!(nvshmemx_init_attr_v1, version) - 0usize];
    [
        "Offset of field: nvshmemx_init_attr_v1::mpi_comm",
    ][::core::mem::offset_of!(nvshmemx_init_attr_v1, mpi_comm) - 8usize];
    [
        "Offset of field: nvshmemx_init_attr_v1::args",
    ][::core::mem::offset_of!(nvshmemx_init_attr_v1, args) - 16usize];
};
pub type nvshmemx_init_attr_t = nvshmemx_init_attr_v1;
#[repr(C)]
#[derive(Debug, Copy, Clone)]
pub struct nvshmem_team_config_v2 {
    pub version: ::core::ffi::c_int,
    pub num_contexts: ::core::ffi::c_int,
    pub uniqueid: nvshmemx_team_uniqueid_t,
    pub padding: [::core::ffi::c_char; 48usize],
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    [
        "Size of nvshmem_team_config_v2",
    ][::core::mem::size_of::<nvshmem_team_config_v2>() - 64usize];
    [
        "Alignment of nvshmem_team_config_v2",
    ][::core::mem::align_of::<nvshmem_team_config_v2>() - 8usize];
    [
        "Offset of field: nvshmem_team_config_v2::version",
    ][::core::mem::offset_of!(nvshmem_team_config_v2, version) - 0usize];
    [
        "Offset of field: nvshmem_team_config_v2::num_contexts",
    ][::core::mem::offset_of!(nvshmem_team_config_v2, num_contexts) - 4usize];
    [
        "Offset of field: nvshmem_team_config_v2::uniqueid",
    ][::core::mem::offset_of!(nvshmem_team_config_v2, uniqueid) - 8usize];
    [
        "Offset of field: nvshmem_team_config_v2::padding",
    ][::core::mem::offset_of!(nvshmem_team_config_v2, padding) - 16usize];
};
#[repr(C)]
#[derive(Debug, Copy, Clone)]
pub struct nvshmem_team_config_v1 {
    pub version: ::core::ffi::c_int,
    pub num_contexts: ::core::ffi::c_int,
    pub padding: [::core::ffi::c_char; 56usize],
}
#[allow(clippy::unnecessary_operation, clippy::identity_op)]
const _: () = {
    [
        "Size of nvshmem_team_config_v1",
    ][::core::mem::size_of::<nvshmem_team_config_v1>() - 64usize];
    [
        "Alignment of nvshmem_team_config_v1",
    ][::core::mem::align_of::<nvshmem_team_config_v1>() - 4usize];
    [
        "Offset of field: nvshmem_team_config_v1::version",
    ][::core::mem::offset_of!(nvshmem_team_config_v1, version) - 0usize];
    [
        "Offset of field: nvshmem_team_config_v1::num_contexts",
    ][::core::mem::offset_of!(nvshmem_team_config_v1, num_contexts) - 4usize];
    [
        "Offset of field: nvshmem_team_config_v1::padding",
    ][::core::mem::offset_of!(nvshmem_team_config_v1, padding) - 8usize];
};
pub type nvshmem_team_config_t = nvshmem_team_config_v2;
pub const NVSHMEM_CMP_EQ: nvshmemi_cmp_type = 0;
pub const NVSHMEM_CMP_NE: nvshmemi_cmp_type = 1;
pub const NVSHMEM_CMP_GT: nvshmemi_cmp_type = 2;
pub const NVSHMEM_CMP_LE: nvshmemi_cmp_type = 3;
pub const NVSHMEM_CMP_LT: nvshmemi_cmp_type = 4;
pub const NVSHMEM_CMP_GE: nvshmemi_cmp_type = 5;
pub const NVSHMEM_CMP_SENTINEL: nvshmemi_cmp_type = 2147483647;
pub type nvshmemi_cmp_type = ::core::ffi::c_uint;
pub const NVSHMEM_THREAD_SINGLE: nvshmemi_thread_support = 0;
pub const NVSHMEM_THREAD_FUNNELED: nvshmemi_thread_support = 1;
pub const NVSHMEM_THREAD_SERIALIZED: nvshmemi_thread_support = 2;
pub const NVSHMEM_THREAD_MULTIPLE: nvshmemi_thread_support = 3;
pub const NVSHMEM_THREAD_TYPE_SENTINEL: nvshmemi_thread_support = 2147483647;
pub type nvshmemi_thread_support = ::core::ffi::c_uint;
pub const NVSHMEM_STATUS_NOT_INITIALIZED: nvshmemx_init_status_t = 0;
pub const NVSHMEM_STATUS_IS_BOOTSTRAPPED: nvshmemx_init_status_t = 1;
pub const NVSHMEM_STATUS_IS_INITIALIZED: nvshmemx_init_status_t = 2;
pub const NVSHMEM_STATUS_LIMITED_MPG: nvshmemx_init_status_t = 3;
pub const NVSHMEM_STATUS_FULL_MPG: nvshmemx_init_status_t = 4;
pub const NVSHMEM_STATUS_INVALID: nvshmemx_init_status_t = 2147483647;
pub type nvshmemx_init_status_t = ::core::ffi::c_uint;
pub const NVSHMEM_TEAM_INVALID: nvshmem_team_id_t = -1;
pub const NVSHMEM_TEAM_WORLD: nvshmem_team_id_t = 0;
pub const NVSHMEM_TEAM_WORLD_INDEX: nvshmem_team_id_t = 0;
pub const NVSHMEM_TEAM_SHARED: nvshmem_team_id_t = 1;
pub const NVSHMEM_TEAM_SHARED_INDEX: nvshmem_team_id_t = 1;
pub const NVSHMEMX_TEAM_NODE: nvshmem_team_id_t = 2;
pub const NVSHMEM_TEAM_NODE_INDEX: nvshmem_team_id_t = 2;
pub const NVSHMEMX_TEAM_SAME_MYPE_NODE: nvshmem_team_id_t = 3;
pub const NVSHMEM_TEAM_SAME_MYPE_NODE_INDEX: nvshmem_team_id_t = 3;
pub const NVSHMEMI_TEAM_SAME_GPU: nvshmem_team_id_t = 4;
pub const NVSHMEM_TEAM_SAME_GPU_INDEX: nvshmem_team_id_t = 4;
pub const NVSHMEMI_TEAM_GPU_LEADERS: nvshmem_team_id_t = 5;
pub const NVSHMEM_TEAM_GPU_LEADERS_INDEX: nvshmem_team_id_t = 5;
pub const NVSHMEM_TEAMS_MIN: nvshmem_team_id_t = 6;
pub const NVSHMEM_TEAM_INDEX_MAX: nvshmem_team_id_t = 2147483647;
pub type nvshmem_team_id_t = ::core::ffi::c_int;
#[repr(C)]
#[derive(Debug)]
pub struct CUmod_st {
    _unused: [u8; 0],
}
pub type CUmodule = *mut CUmod_st;
pub type CUlibrary = *mut CUlib_st;
pub const NVSHMEMX_SUCCESS: nvshmemx_status = 0;
pub const NVSHMEMX_ERROR_INVALID_VALUE: nvshmemx_status = 1;
pub const NVSHMEMX_ERROR_OUT_OF_MEMORY: nvshmemx_status = 2;
pub const NVSHMEMX_ERROR_NOT_SUPPORTED: nvshmemx_status = 3;
pub const NVSHMEMX_ERROR_SYMMETRY: nvshmemx_status = 4;
pub const NVSHMEMX_ERROR_GPU_NOT_SELECTED: nvshmemx_status = 5;
pub const NVSHMEMX_ERROR_COLLECTIVE_LAUNCH_FAILED: nvshmemx_status = 6;
pub const NVSHMEMX_ERROR_INTERNAL: nvshmemx_status = 7;
pub const NVSHMEMX_ERROR_SENTINEL: nvshmemx_status = 2147483647;
pub type nvshmemx_status = ::core::ffi::c_uint;
pub const NVSHMEMX_INIT_THREAD_PES: flags = 1;
pub const NVSHMEMX_INIT_WITH_MPI_COMM: flags = 2;
pub const NVSHMEMX_INIT_WITH_SHMEM: flags = 4;
pub const NVSHMEMX_INIT_WITH_UNIQUEID: flags = 8;
pub const NVSHMEMX_INIT_MAX: flags = -2147483648;
pub type flags = ::core::ffi::c_int;
use crate::Unavailable;
/// The host library's functions that take bytes, by name.
///
/// A method calls the function of its name. What it does, who must call it and what must hold for its arguments is
/// said in NVSHMEM's documentation; that is each method's safety contract. Where the loaded release does not export
/// the function, the method returns [`Unavailable`] and calls nothing.
#[derive(Clone, Copy, Debug)]
pub struct Functions {
    nvshmem_align: Option<
        unsafe extern "C" fn(usize, usize) -> *mut ::core::ffi::c_void,
    >,
    nvshmem_alltoallmem: Option<
        unsafe extern "C" fn(
            nvshmem_team_t,
            *mut ::core::ffi::c_void,
            *const ::core::ffi::c_void,
            usize,
        ) -> ::core::ffi::c_int,
    >,
    nvshmem_barrier: Option<unsafe extern "C" fn(nvshmem_team_t) -> ::core::ffi::c_int>,
    nvshmem_barrier_all: Option<unsafe extern "C" fn()>,
    nvshmem_broadcastmem: Option<
        unsafe extern "C" fn(
            nvshmem_team_t,
            *mut ::core::ffi::c_void,
            *const ::core::ffi::c_void,
            usize,
            ::core::ffi::c_int,
        ) -> ::core::ffi::c_int,
    >,
    nvshmem_calloc: Option<
        unsafe extern "C" fn(usize, usize) -> *mut ::core::ffi::c_void,
    >,
    nvshmem_fcollectmem: Option<
        unsafe extern "C" fn(
            nvshmem_team_t,
            *mut ::core::ffi::c_void,
            *const ::core::ffi::c_void,
            usize,
        ) -> ::core::ffi::c_int,
    >,
    nvshmem_fence: Option<unsafe extern "C" fn()>,
    nvshmem_free: Option<unsafe extern "C" fn(*mut ::core::ffi::c_void)>,
    nvshmem_get128: Option<
        unsafe extern "C" fn(
            *mut ::core::ffi::c_void,
            *const ::core::ffi::c_void,
            usize,
            ::core::ffi::c_int,
        ),
    >,
    nvshmem_get128_nbi: Option<
        unsafe extern "C" fn(
            *mut ::core::ffi::c_void,
            *const ::core::ffi::c_void,
            usize,
            ::core::ffi::c_int,
        ),
    >,
    nvshmem_get16: Option<
        unsafe extern "C" fn(
            *mut ::core::ffi::c_void,
            *const ::core::ffi::c_void,
            usize,
            ::core::ffi::c_int,
        ),
    >,
    nvshmem_get16_nbi: Option<
        unsafe extern "C" fn(
            *mut ::core::ffi::c_void,
            *const ::core::ffi::c_void,
            usize,
            ::core::ffi::c_int,
        ),
    >,
    nvshmem_get32: Option<
        unsafe extern "C" fn(
            *mut ::core::ffi::c_void,
            *const ::core::ffi::c_void,
            usize,
            ::core::ffi::c_int,
        ),
    >,
    nvshmem_get32_nbi: Option<
        unsafe extern "C" fn(
            *mut ::core::ffi::c_void,
            *const ::core::ffi::c_void,
            usize,
            ::core::ffi::c_int,
        ),
    >,
    nvshmem_get64: Option<
        unsafe extern "C" fn(
            *mut ::core::ffi::c_void,
            *const ::core::ffi::c_void,
            usize,
            ::core::ffi::c_int,
        ),
    >,
    nvshmem_get64_nbi: Option<
        unsafe extern "C" fn(
            *mut ::core::ffi::c_void,
            *const ::core::ffi::c_void,
            usize,
            ::core::ffi::c_int,
        ),
    >,
    nvshmem_get8: Option<
        unsafe extern "C" fn(
            *mut ::core::ffi::c_void,
            *const ::core::ffi::c_void,
            usize,
            ::core::ffi::c_int,
        ),
    >,
    nvshmem_get8_nbi: Option<
        unsafe extern "C" fn(
            *mut ::core::ffi::c_void,
            *const ::core::ffi::c_void,
            usize,
            ::core::ffi::c_int,
        ),
    >,
    nvshmem_getmem: Option<
        unsafe extern "C" fn(
            *mut ::core::ffi::c_void,
            *const ::core::ffi::c_void,
            usize,
            ::core::ffi::c_int,
        ),
    >,
    nvshmem_getmem_nbi: Option<
        unsafe extern "C" fn(
            *mut ::core::ffi::c_void,
            *const ::core::ffi::c_void,
            usize,
            ::core::ffi::c_int,
        ),
    >,
    nvshmem_global_exit: Option<unsafe extern "C" fn(::core::ffi::c_int)>,
    nvshmem_iget128: Option<
        unsafe extern "C" fn(
            *mut ::core::ffi::c_void,
            *const ::core::ffi::c_void,
            isize,
            isize,
            usize,
            ::core::ffi::c_int,
        ),
    >,
    nvshmem_iget16: Option<
        unsafe extern "C" fn(
            *mut ::core::ffi::c_void,
            *const ::core::ffi::c_void,
            isize,
            isize,
            usize,
            ::core::ffi::c_int,
        ),
    >,
    nvshmem_iget32: Option<
        unsafe extern "C" fn(
            *mut ::core::ffi::c_void,
            *const ::core::ffi::c_void,
            isize,
            isize,
            usize,
            ::core::ffi::c_int,
        ),
    >,
    nvshmem_iget64: Option<
        unsafe extern "C" fn(
            *mut ::core::ffi::c_void,
            *const ::core::ffi::c_void,
            isize,
            isize,
            usize,
            ::core::ffi::c_int,
        ),
    >,
    nvshmem_iget8: Option<
        unsafe extern "C" fn(
            *mut ::core::ffi::c_void,
            *const ::core::ffi::c_void,
            isize,
            isize,
            usize,
            ::core::ffi::c_int,
        ),
    >,
    nvshmem_info_get_name: Option<unsafe extern "C" fn(*mut ::core::ffi::c_char)>,
    nvshmem_info_get_version: Option<
        unsafe extern "C" fn(*mut ::core::ffi::c_int, *mut ::core::ffi::c_int),
    >,
    nvshmem_iput128: Option<
        unsafe extern "C" fn(
            *mut ::core::ffi::c_void,
            *const ::core::ffi::c_void,
            isize,
            isize,
            usize,
            ::core::ffi::c_int,
        ),
    >,
    nvshmem_iput16: Option<
        unsafe extern "C" fn(
            *mut ::core::ffi::c_void,
            *const ::core::ffi::c_void,
            isize,
            isize,
            usize,
            ::core::ffi::c_int,
        ),
    >,
    nvshmem_iput32: Option<
        unsafe extern "C" fn(
            *mut ::core::ffi::c_void,
            *const ::core::ffi::c_void,
            isize,
            isize,
            usize,
            ::core::ffi::c_int,
        ),
    >,
    nvshmem_iput64: Option<
        unsafe extern "C" fn(
            *mut ::core::ffi::c_void,
            *const ::core::ffi::c_void,
            isize,
            isize,
            usize,
            ::core::ffi::c_int,
        ),
    >,
    nvshmem_iput8: Option<
        unsafe extern "C" fn(
            *mut ::core::ffi::c_void,
            *const ::core::ffi::c_void,
            isize,
            isize,
            usize,
            ::core::ffi::c_int,
        ),
    >,
    nvshmem_malloc: Option<unsafe extern "C" fn(usize) -> *mut ::core::ffi::c_void>,
    nvshmem_my_pe: Option<unsafe extern "C" fn() -> ::core::ffi::c_int>,
    nvshmem_n_pes: Option<unsafe extern "C" fn() -> ::core::ffi::c_int>,
    nvshmem_ptr: Option<
        unsafe extern "C" fn(
            *const ::core::ffi::c_void,
            ::core::ffi::c_int,
        ) -> *mut ::core::ffi::c_void,
    >,
    nvshmem_put128: Option<
        unsafe extern "C" fn(
            *mut ::core::ffi::c_void,
            *const ::core::ffi::c_void,
            usize,
            ::core::ffi::c_int,
        ),
    >,
    nvshmem_put128_nbi: Option<
        unsafe extern "C" fn(
            *mut ::core::ffi::c_void,
            *const ::core::ffi::c_void,
            usize,
            ::core::ffi::c_int,
        ),
    >,
    nvshmem_put16: Option<
        unsafe extern "C" fn(
            *mut ::core::ffi::c_void,
            *const ::core::ffi::c_void,
            usize,
            ::core::ffi::c_int,
        ),
    >,
    nvshmem_put16_nbi: Option<
        unsafe extern "C" fn(
            *mut ::core::ffi::c_void,
            *const ::core::ffi::c_void,
            usize,
            ::core::ffi::c_int,
        ),
    >,
    nvshmem_put32: Option<
        unsafe extern "C" fn(
            *mut ::core::ffi::c_void,
            *const ::core::ffi::c_void,
            usize,
            ::core::ffi::c_int,
        ),
    >,
    nvshmem_put32_nbi: Option<
        unsafe extern "C" fn(
            *mut ::core::ffi::c_void,
            *const ::core::ffi::c_void,
            usize,
            ::core::ffi::c_int,
        ),
    >,
    nvshmem_put64: Option<
        unsafe extern "C" fn(
            *mut ::core::ffi::c_void,
            *const ::core::ffi::c_void,
            usize,
            ::core::ffi::c_int,
        ),
    >,
    nvshmem_put64_nbi: Option<
        unsafe extern "C" fn(
            *mut ::core::ffi::c_void,
            *const ::core::ffi::c_void,
            usize,
            ::core::ffi::c_int,
        ),
    >,
    nvshmem_put8: Option<
        unsafe extern "C" fn(
            *mut ::core::ffi::c_void,
            *const ::core::ffi::c_void,
            usize,
            ::core::ffi::c_int,
        ),
    >,
    nvshmem_put8_nbi: Option<
        unsafe extern "C" fn(
            *mut ::core::ffi::c_void,
            *const ::core::ffi::c_void,
            usize,
            ::core::ffi::c_int,
        ),
    >,
    nvshmem_putmem: Option<
        unsafe extern "C" fn(
            *mut ::core::ffi::c_void,
            *const ::core::ffi::c_void,
            usize,
            ::core::ffi::c_int,
        ),
    >,
    nvshmem_putmem_nbi: Option<
        unsafe extern "C" fn(
            *mut ::core::ffi::c_void,
            *const ::core::ffi::c_void,
            usize,
            ::core::ffi::c_int,
        ),
    >,
    nvshmem_query_thread: Option<unsafe extern "C" fn(*mut ::core::ffi::c_int)>,
    nvshmem_quiet: Option<unsafe extern "C" fn()>,
    nvshmem_signal_fetch: Option<unsafe extern "C" fn(*mut u64) -> u64>,
    nvshmem_sync_all: Option<unsafe extern "C" fn()>,
    nvshmem_team_destroy: Option<unsafe extern "C" fn(nvshmem_team_t)>,
    nvshmem_team_get_config: Option<
        unsafe extern "C" fn(nvshmem_team_t, *mut nvshmem_team_config_t),
    >,
    nvshmem_team_my_pe: Option<
        unsafe extern "C" fn(nvshmem_team_t) -> ::core::ffi::c_int,
    >,
    nvshmem_team_n_pes: Option<
        unsafe extern "C" fn(nvshmem_team_t) -> ::core::ffi::c_int,
    >,
    nvshmem_team_split_2d: Option<
        unsafe extern "C" fn(
            nvshmem_team_t,
            ::core::ffi::c_int,
            *const nvshmem_team_config_t,
            ::core::ffi::c_long,
            *mut nvshmem_team_t,
            *const nvshmem_team_config_t,
            ::core::ffi::c_long,
            *mut nvshmem_team_t,
        ) -> ::core::ffi::c_int,
    >,
    nvshmem_team_split_strided: Option<
        unsafe extern "C" fn(
            nvshmem_team_t,
            ::core::ffi::c_int,
            ::core::ffi::c_int,
            ::core::ffi::c_int,
            *const nvshmem_team_config_t,
            ::core::ffi::c_long,
            *mut nvshmem_team_t,
        ) -> ::core::ffi::c_int,
    >,
    nvshmem_team_sync: Option<
        unsafe extern "C" fn(nvshmem_team_t) -> ::core::ffi::c_int,
    >,
    nvshmem_team_translate_pe: Option<
        unsafe extern "C" fn(
            nvshmem_team_t,
            ::core::ffi::c_int,
            nvshmem_team_t,
        ) -> ::core::ffi::c_int,
    >,
    nvshmemx_alltoallmem_on_stream: Option<
        unsafe extern "C" fn(
            nvshmem_team_t,
            *mut ::core::ffi::c_void,
            *const ::core::ffi::c_void,
            usize,
            cudaStream_t,
        ) -> ::core::ffi::c_int,
    >,
    nvshmemx_barrier_all_on_stream: Option<unsafe extern "C" fn(cudaStream_t)>,
    nvshmemx_barrier_on_stream: Option<
        unsafe extern "C" fn(nvshmem_team_t, cudaStream_t) -> ::core::ffi::c_int,
    >,
    nvshmemx_broadcastmem_on_stream: Option<
        unsafe extern "C" fn(
            nvshmem_team_t,
            *mut ::core::ffi::c_void,
            *const ::core::ffi::c_void,
            usize,
            ::core::ffi::c_int,
            cudaStream_t,
        ) -> ::core::ffi::c_int,
    >,
    nvshmemx_buffer_register: Option<
        unsafe extern "C" fn(*mut ::core::ffi::c_void, usize) -> ::core::ffi::c_int,
    >,
    nvshmemx_buffer_register_symmetric: Option<
        unsafe extern "C" fn(
            *mut ::core::ffi::c_void,
            usize,
            ::core::ffi::c_int,
        ) -> *mut ::core::ffi::c_void,
    >,
    nvshmemx_buffer_unregister: Option<
        unsafe extern "C" fn(*mut ::core::ffi::c_void) -> ::core::ffi::c_int,
    >,
    nvshmemx_buffer_unregister_all: Option<unsafe extern "C" fn()>,
    nvshmemx_buffer_unregister_symmetric: Option<
        unsafe extern "C" fn(*mut ::core::ffi::c_void, usize) -> ::core::ffi::c_int,
    >,
    nvshmemx_culibrary_finalize: Option<
        unsafe extern "C" fn(CUlibrary) -> ::core::ffi::c_int,
    >,
    nvshmemx_culibrary_init: Option<
        unsafe extern "C" fn(CUlibrary) -> ::core::ffi::c_int,
    >,
    nvshmemx_cumodule_finalize: Option<
        unsafe extern "C" fn(CUmodule) -> ::core::ffi::c_int,
    >,
    nvshmemx_cumodule_init: Option<unsafe extern "C" fn(CUmodule) -> ::core::ffi::c_int>,
    nvshmemx_fcollectmem_on_stream: Option<
        unsafe extern "C" fn(
            nvshmem_team_t,
            *mut ::core::ffi::c_void,
            *const ::core::ffi::c_void,
            usize,
            cudaStream_t,
        ) -> ::core::ffi::c_int,
    >,
    nvshmemx_get128_nbi_on_stream: Option<
        unsafe extern "C" fn(
            *mut ::core::ffi::c_void,
            *const ::core::ffi::c_void,
            usize,
            ::core::ffi::c_int,
            cudaStream_t,
        ),
    >,
    nvshmemx_get128_on_stream: Option<
        unsafe extern "C" fn(
            *mut ::core::ffi::c_void,
            *const ::core::ffi::c_void,
            usize,
            ::core::ffi::c_int,
            cudaStream_t,
        ),
    >,
    nvshmemx_get16_nbi_on_stream: Option<
        unsafe extern "C" fn(
            *mut ::core::ffi::c_void,
            *const ::core::ffi::c_void,
            usize,
            ::core::ffi::c_int,
            cudaStream_t,
        ),
    >,
    nvshmemx_get16_on_stream: Option<
        unsafe extern "C" fn(
            *mut ::core::ffi::c_void,
            *const ::core::ffi::c_void,
            usize,
            ::core::ffi::c_int,
            cudaStream_t,
        ),
    >,
    nvshmemx_get32_nbi_on_stream: Option<
        unsafe extern "C" fn(
            *mut ::core::ffi::c_void,
            *const ::core::ffi::c_void,
            usize,
            ::core::ffi::c_int,
            cudaStream_t,
        ),
    >,
    nvshmemx_get32_on_stream: Option<
        unsafe extern "C" fn(
            *mut ::core::ffi::c_void,
            *const ::core::ffi::c_void,
            usize,
            ::core::ffi::c_int,
            cudaStream_t,
        ),
    >,
    nvshmemx_get64_nbi_on_stream: Option<
        unsafe extern "C" fn(
            *mut ::core::ffi::c_void,
            *const ::core::ffi::c_void,
            usize,
            ::core::ffi::c_int,
            cudaStream_t,
        ),
    >,
    nvshmemx_get64_on_stream: Option<
        unsafe extern "C" fn(
            *mut ::core::ffi::c_void,
            *const ::core::ffi::c_void,
            usize,
            ::core::ffi::c_int,
            cudaStream_t,
        ),
    >,
    nvshmemx_get8_nbi_on_stream: Option<
        unsafe extern "C" fn(
            *mut ::core::ffi::c_void,
            *const ::core::ffi::c_void,
            usize,
            ::core::ffi::c_int,
            cudaStream_t,
        ),
    >,
    nvshmemx_get8_on_stream: Option<
        unsafe extern "C" fn(
            *mut ::core::ffi::c_void,
            *const ::core::ffi::c_void,
            usize,
            ::core::ffi::c_int,
            cudaStream_t,
        ),
    >,
    nvshmemx_get_uniqueid: Option<
        unsafe extern "C" fn(*mut nvshmemx_uniqueid_t) -> ::core::ffi::c_int,
    >,
    nvshmemx_getmem_nbi_on_stream: Option<
        unsafe extern "C" fn(
            *mut ::core::ffi::c_void,
            *const ::core::ffi::c_void,
            usize,
            ::core::ffi::c_int,
            cudaStream_t,
        ),
    >,
    nvshmemx_getmem_on_stream: Option<
        unsafe extern "C" fn(
            *mut ::core::ffi::c_void,
            *const ::core::ffi::c_void,
            usize,
            ::core::ffi::c_int,
            cudaStream_t,
        ),
    >,
    nvshmemx_hostlib_finalize: Option<unsafe extern "C" fn()>,
    nvshmemx_hostlib_init_attr: Option<
        unsafe extern "C" fn(
            ::core::ffi::c_uint,
            *mut nvshmemx_init_attr_t,
        ) -> ::core::ffi::c_int,
    >,
    nvshmemx_iget128_on_stream: Option<
        unsafe extern "C" fn(
            *mut ::core::ffi::c_void,
            *const ::core::ffi::c_void,
            isize,
            isize,
            usize,
            ::core::ffi::c_int,
            cudaStream_t,
        ),
    >,
    nvshmemx_iget16_on_stream: Option<
        unsafe extern "C" fn(
            *mut ::core::ffi::c_void,
            *const ::core::ffi::c_void,
            isize,
            isize,
            usize,
            ::core::ffi::c_int,
            cudaStream_t,
        ),
    >,
    nvshmemx_iget32_on_stream: Option<
        unsafe extern "C" fn(
            *mut ::core::ffi::c_void,
            *const ::core::ffi::c_void,
            isize,
            isize,
            usize,
            ::core::ffi::c_int,
            cudaStream_t,
        ),
    >,
    nvshmemx_iget64_on_stream: Option<
        unsafe extern "C" fn(
            *mut ::core::ffi::c_void,
            *const ::core::ffi::c_void,
            isize,
            isize,
            usize,
            ::core::ffi::c_int,
            cudaStream_t,
        ),
    >,
    nvshmemx_iget8_on_stream: Option<
        unsafe extern "C" fn(
            *mut ::core::ffi::c_void,
            *const ::core::ffi::c_void,
            isize,
            isize,
            usize,
            ::core::ffi::c_int,
            cudaStream_t,
        ),
    >,
    nvshmemx_init_status: Option<unsafe extern "C" fn() -> ::core::ffi::c_int>,
    nvshmemx_iput128_on_stream: Option<
        unsafe extern "C" fn(
            *mut ::core::ffi::c_void,
            *const ::core::ffi::c_void,
            isize,
            isize,
            usize,
            ::core::ffi::c_int,
            cudaStream_t,
        ),
    >,
    nvshmemx_iput16_on_stream: Option<
        unsafe extern "C" fn(
            *mut ::core::ffi::c_void,
            *const ::core::ffi::c_void,
            isize,
            isize,
            usize,
            ::core::ffi::c_int,
            cudaStream_t,
        ),
    >,
    nvshmemx_iput32_on_stream: Option<
        unsafe extern "C" fn(
            *mut ::core::ffi::c_void,
            *const ::core::ffi::c_void,
            isize,
            isize,
            usize,
            ::core::ffi::c_int,
            cudaStream_t,
        ),
    >,
    nvshmemx_iput64_on_stream: Option<
        unsafe extern "C" fn(
            *mut ::core::ffi::c_void,
            *const ::core::ffi::c_void,
            isize,
            isize,
            usize,
            ::core::ffi::c_int,
            cudaStream_t,
        ),
    >,
    nvshmemx_iput8_on_stream: Option<
        unsafe extern "C" fn(
            *mut ::core::ffi::c_void,
            *const ::core::ffi::c_void,
            isize,
            isize,
            usize,
            ::core::ffi::c_int,
            cudaStream_t,
        ),
    >,
    nvshmemx_mc_ptr: Option<
        unsafe extern "C" fn(
            nvshmem_team_t,
            *const ::core::ffi::c_void,
        ) -> *mut ::core::ffi::c_void,
    >,
    nvshmemx_put128_nbi_on_stream: Option<
        unsafe extern "C" fn(
            *mut ::core::ffi::c_void,
            *const ::core::ffi::c_void,
            usize,
            ::core::ffi::c_int,
            cudaStream_t,
        ),
    >,
    nvshmemx_put128_on_stream: Option<
        unsafe extern "C" fn(
            *mut ::core::ffi::c_void,
            *const ::core::ffi::c_void,
            usize,
            ::core::ffi::c_int,
            cudaStream_t,
        ),
    >,
    nvshmemx_put128_signal_nbi_on_stream: Option<
        unsafe extern "C" fn(
            *mut ::core::ffi::c_void,
            *const ::core::ffi::c_void,
            usize,
            *mut u64,
            u64,
            ::core::ffi::c_int,
            ::core::ffi::c_int,
            cudaStream_t,
        ),
    >,
    nvshmemx_put128_signal_on_stream: Option<
        unsafe extern "C" fn(
            *mut ::core::ffi::c_void,
            *const ::core::ffi::c_void,
            usize,
            *mut u64,
            u64,
            ::core::ffi::c_int,
            ::core::ffi::c_int,
            cudaStream_t,
        ),
    >,
    nvshmemx_put16_nbi_on_stream: Option<
        unsafe extern "C" fn(
            *mut ::core::ffi::c_void,
            *const ::core::ffi::c_void,
            usize,
            ::core::ffi::c_int,
            cudaStream_t,
        ),
    >,
    nvshmemx_put16_on_stream: Option<
        unsafe extern "C" fn(
            *mut ::core::ffi::c_void,
            *const ::core::ffi::c_void,
            usize,
            ::core::ffi::c_int,
            cudaStream_t,
        ),
    >,
    nvshmemx_put16_signal_nbi_on_stream: Option<
        unsafe extern "C" fn(
            *mut ::core::ffi::c_void,
            *const ::core::ffi::c_void,
            usize,
            *mut u64,
            u64,
            ::core::ffi::c_int,
            ::core::ffi::c_int,
            cudaStream_t,
        ),
    >,
    nvshmemx_put16_signal_on_stream: Option<
        unsafe extern "C" fn(
            *mut ::core::ffi::c_void,
            *const ::core::ffi::c_void,
            usize,
            *mut u64,
            u64,
            ::core::ffi::c_int,
            ::core::ffi::c_int,
            cudaStream_t,
        ),
    >,
    nvshmemx_put32_nbi_on_stream: Option<
        unsafe extern "C" fn(
            *mut ::core::ffi::c_void,
            *const ::core::ffi::c_void,
            usize,
            ::core::ffi::c_int,
            cudaStream_t,
        ),
    >,
    nvshmemx_put32_on_stream: Option<
        unsafe extern "C" fn(
            *mut ::core::ffi::c_void,
            *const ::core::ffi::c_void,
            usize,
            ::core::ffi::c_int,
            cudaStream_t,
        ),
    >,
    nvshmemx_put32_signal_nbi_on_stream: Option<
        unsafe extern "C" fn(
            *mut ::core::ffi::c_void,
            *const ::core::ffi::c_void,
            usize,
            *mut u64,
            u64,
            ::core::ffi::c_int,
            ::core::ffi::c_int,
            cudaStream_t,
        ),
    >,
    nvshmemx_put32_signal_on_stream: Option<
        unsafe extern "C" fn(
            *mut ::core::ffi::c_void,
            *const ::core::ffi::c_void,
            usize,
            *mut u64,
            u64,
            ::core::ffi::c_int,
            ::core::ffi::c_int,
            cudaStream_t,
        ),
    >,
    nvshmemx_put64_nbi_on_stream: Option<
        unsafe extern "C" fn(
            *mut ::core::ffi::c_void,
            *const ::core::ffi::c_void,
            usize,
            ::core::ffi::c_int,
            cudaStream_t,
        ),
    >,
    nvshmemx_put64_on_stream: Option<
        unsafe extern "C" fn(
            *mut ::core::ffi::c_void,
            *const ::core::ffi::c_void,
            usize,
            ::core::ffi::c_int,
            cudaStream_t,
        ),
    >,
    nvshmemx_put64_signal_nbi_on_stream: Option<
        unsafe extern "C" fn(
            *mut ::core::ffi::c_void,
            *const ::core::ffi::c_void,
            usize,
            *mut u64,
            u64,
            ::core::ffi::c_int,
            ::core::ffi::c_int,
            cudaStream_t,
        ),
    >,
    nvshmemx_put64_signal_on_stream: Option<
        unsafe extern "C" fn(
            *mut ::core::ffi::c_void,
            *const ::core::ffi::c_void,
            usize,
            *mut u64,
            u64,
            ::core::ffi::c_int,
            ::core::ffi::c_int,
            cudaStream_t,
        ),
    >,
    nvshmemx_put8_nbi_on_stream: Option<
        unsafe extern "C" fn(
            *mut ::core::ffi::c_void,
            *const ::core::ffi::c_void,
            usize,
            ::core::ffi::c_int,
            cudaStream_t,
        ),
    >,
    nvshmemx_put8_on_stream: Option<
        unsafe extern "C" fn(
            *mut ::core::ffi::c_void,
            *const ::core::ffi::c_void,
            usize,
            ::core::ffi::c_int,
            cudaStream_t,
        ),
    >,
    nvshmemx_put8_signal_nbi_on_stream: Option<
        unsafe extern "C" fn(
            *mut ::core::ffi::c_void,
            *const ::core::ffi::c_void,
            usize,
            *mut u64,
            u64,
            ::core::ffi::c_int,
            ::core::ffi::c_int,
            cudaStream_t,
        ),
    >,
    nvshmemx_put8_signal_on_stream: Option<
        unsafe extern "C" fn(
            *mut ::core::ffi::c_void,
            *const ::core::ffi::c_void,
            usize,
            *mut u64,
            u64,
            ::core::ffi::c_int,
            ::core::ffi::c_int,
            cudaStream_t,
        ),
    >,
    nvshmemx_putmem_nbi_on_stream: Option<
        unsafe extern "C" fn(
            *mut ::core::ffi::c_void,
            *const ::core::ffi::c_void,
            usize,
            ::core::ffi::c_int,
            cudaStream_t,
        ),
    >,
    nvshmemx_putmem_on_stream: Option<
        unsafe extern "C" fn(
            *mut ::core::ffi::c_void,
            *const ::core::ffi::c_void,
            usize,
            ::core::ffi::c_int,
            cudaStream_t,
        ),
    >,
    nvshmemx_putmem_signal_nbi_on_stream: Option<
        unsafe extern "C" fn(
            *mut ::core::ffi::c_void,
            *const ::core::ffi::c_void,
            usize,
            *mut u64,
            u64,
            ::core::ffi::c_int,
            ::core::ffi::c_int,
            cudaStream_t,
        ),
    >,
    nvshmemx_putmem_signal_on_stream: Option<
        unsafe extern "C" fn(
            *mut ::core::ffi::c_void,
            *const ::core::ffi::c_void,
            usize,
            *mut u64,
            u64,
            ::core::ffi::c_int,
            ::core::ffi::c_int,
            cudaStream_t,
        ),
    >,
    nvshmemx_quiet_on_stream: Option<unsafe extern "C" fn(cudaStream_t)>,
    nvshmemx_set_attr_mpi_comm_args: Option<
        unsafe extern "C" fn(
            *mut ::core::ffi::c_void,
            *mut nvshmemx_init_attr_t,
        ) -> ::core::ffi::c_int,
    >,
    nvshmemx_set_attr_uniqueid_args: Option<
        unsafe extern "C" fn(
            ::core::ffi::c_int,
            ::core::ffi::c_int,
            *const nvshmemx_uniqueid_t,
            *mut nvshmemx_init_attr_t,
        ) -> ::core::ffi::c_int,
    >,
    nvshmemx_signal_op_on_stream: Option<
        unsafe extern "C" fn(
            *mut u64,
            u64,
            ::core::ffi::c_int,
            ::core::ffi::c_int,
            cudaStream_t,
        ),
    >,
    nvshmemx_signal_wait_until_on_stream: Option<
        unsafe extern "C" fn(*mut u64, ::core::ffi::c_int, u64, cudaStream_t),
    >,
    nvshmemx_sync_all_on_stream: Option<unsafe extern "C" fn(cudaStream_t)>,
    nvshmemx_team_get_uniqueid: Option<
        unsafe extern "C" fn(*mut nvshmemx_team_uniqueid_t) -> ::core::ffi::c_int,
    >,
    nvshmemx_team_init: Option<
        unsafe extern "C" fn(
            *mut nvshmem_team_t,
            *mut nvshmem_team_config_t,
            ::core::ffi::c_long,
            ::core::ffi::c_int,
            ::core::ffi::c_int,
        ) -> ::core::ffi::c_int,
    >,
    nvshmemx_team_sync_on_stream: Option<
        unsafe extern "C" fn(nvshmem_team_t, cudaStream_t) -> ::core::ffi::c_int,
    >,
    nvshmemx_vendor_get_version_info: Option<
        unsafe extern "C" fn(
            *mut ::core::ffi::c_int,
            *mut ::core::ffi::c_int,
            *mut ::core::ffi::c_int,
        ),
    >,
}
impl Functions {
    /// Names of all bound functions, sorted.
    pub const NAMES: [&'static str; 137usize] = [
        "nvshmem_align",
        "nvshmem_alltoallmem",
        "nvshmem_barrier",
        "nvshmem_barrier_all",
        "nvshmem_broadcastmem",
        "nvshmem_calloc",
        "nvshmem_fcollectmem",
        "nvshmem_fence",
        "nvshmem_free",
        "nvshmem_get128",
        "nvshmem_get128_nbi",
        "nvshmem_get16",
        "nvshmem_get16_nbi",
        "nvshmem_get32",
        "nvshmem_get32_nbi",
        "nvshmem_get64",
        "nvshmem_get64_nbi",
        "nvshmem_get8",
        "nvshmem_get8_nbi",
        "nvshmem_getmem",
        "nvshmem_getmem_nbi",
        "nvshmem_global_exit",
        "nvshmem_iget128",
        "nvshmem_iget16",
        "nvshmem_iget32",
        "nvshmem_iget64",
        "nvshmem_iget8",
        "nvshmem_info_get_name",
        "nvshmem_info_get_version",
        "nvshmem_iput128",
        "nvshmem_iput16",
        "nvshmem_iput32",
        "nvshmem_iput64",
        "nvshmem_iput8",
        "nvshmem_malloc",
        "nvshmem_my_pe",
        "nvshmem_n_pes",
        "nvshmem_ptr",
        "nvshmem_put128",
        "nvshmem_put128_nbi",
        "nvshmem_put16",
        "nvshmem_put16_nbi",
        "nvshmem_put32",
        "nvshmem_put32_nbi",
        "nvshmem_put64",
        "nvshmem_put64_nbi",
        "nvshmem_put8",
        "nvshmem_put8_nbi",
        "nvshmem_putmem",
        "nvshmem_putmem_nbi",
        "nvshmem_query_thread",
        "nvshmem_quiet",
        "nvshmem_signal_fetch",
        "nvshmem_sync_all",
        "nvshmem_team_destroy",
        "nvshmem_team_get_config",
        "nvshmem_team_my_pe",
        "nvshmem_team_n_pes",
        "nvshmem_team_split_2d",
        "nvshmem_team_split_strided",
        "nvshmem_team_sync",
        "nvshmem_team_translate_pe",
        "nvshmemx_alltoallmem_on_stream",
        "nvshmemx_barrier_all_on_stream",
        "nvshmemx_barrier_on_stream",
        "nvshmemx_broadcastmem_on_stream",
        "nvshmemx_buffer_register",
        "nvshmemx_buffer_register_symmetric",
        "nvshmemx_buffer_unregister",
        "nvshmemx_buffer_unregister_all",
        "nvshmemx_buffer_unregister_symmetric",
        "nvshmemx_culibrary_finalize",
        "nvshmemx_culibrary_init",
        "nvshmemx_cumodule_finalize",
        "nvshmemx_cumodule_init",
        "nvshmemx_fcollectmem_on_stream",
        "nvshmemx_get128_nbi_on_stream",
        "nvshmemx_get128_on_stream",
        "nvshmemx_get16_nbi_on_stream",
        "nvshmemx_get16_on_stream",
        "nvshmemx_get32_nbi_on_stream",
        "nvshmemx_get32_on_stream",
        "nvshmemx_get64_nbi_on_stream",
        "nvshmemx_get64_on_stream",
        "nvshmemx_get8_nbi_on_stream",
        "nvshmemx_get8_on_stream",
        "nvshmemx_get_uniqueid",
        "nvshmemx_getmem_nbi_on_stream",
        "nvshmemx_getmem_on_stream",
        "nvshmemx_hostlib_finalize",
        "nvshmemx_hostlib_init_attr",
        "nvshmemx_iget128_on_stream",
        "nvshmemx_iget16_on_stream",
        "nvshmemx_iget32_on_stream",
        "nvshmemx_iget64_on_stream",
        "nvshmemx_iget8_on_stream",
        "nvshmemx_init_status",
        "nvshmemx_iput128_on_stream",
        "nvshmemx_iput16_on_stream",
        "nvshmemx_iput32_on_stream",
        "nvshmemx_iput64_on_stream",
        "nvshmemx_iput8_on_stream",
        "nvshmemx_mc_ptr",
        "nvshmemx_put128_nbi_on_stream",
        "nvshmemx_put128_on_stream",
        "nvshmemx_put128_signal_nbi_on_stream",
        "nvshmemx_put128_signal_on_stream",
        "nvshmemx_put16_nbi_on_stream",
        "nvshmemx_put16_on_stream",
        "nvshmemx_put16_signal_nbi_on_stream",
        "nvshmemx_put16_signal_on_stream",
        "nvshmemx_put32_nbi_on_stream",
        "nvshmemx_put32_on_stream",
        "nvshmemx_put32_signal_nbi_on_stream",
        "nvshmemx_put32_signal_on_stream",
        "nvshmemx_put64_nbi_on_stream",
        "nvshmemx_put64_on_stream",
        "nvshmemx_put64_signal_nbi_on_stream",
        "nvshmemx_put64_signal_on_stream",
        "nvshmemx_put8_nbi_on_stream",
        "nvshmemx_put8_on_stream",
        "nvshmemx_put8_signal_nbi_on_stream",
        "nvshmemx_put8_signal_on_stream",
        "nvshmemx_putmem_nbi_on_stream",
        "nvshmemx_putmem_on_stream",
        "nvshmemx_putmem_signal_nbi_on_stream",
        "nvshmemx_putmem_signal_on_stream",
        "nvshmemx_quiet_on_stream",
        "nvshmemx_set_attr_mpi_comm_args",
        "nvshmemx_set_attr_uniqueid_args",
        "nvshmemx_signal_op_on_stream",
        "nvshmemx_signal_wait_until_on_stream",
        "nvshmemx_sync_all_on_stream",
        "nvshmemx_team_get_uniqueid",
        "nvshmemx_team_init",
        "nvshmemx_team_sync_on_stream",
        "nvshmemx_vendor_get_version_info",
    ];
    /// Takes every function from `symbol`, which returns null for what the library lacks.
    ///
    /// # Safety
    /// What `symbol` returns is null or the function of that name in an NVSHMEM host library that stays loaded.
    pub(crate) unsafe fn load(
        symbol: impl Fn(&'static str) -> *mut core::ffi::c_void,
    ) -> Self {
        unsafe {
            Self {
                nvshmem_align: core::mem::transmute(symbol("nvshmem_align")),
                nvshmem_alltoallmem: core::mem::transmute(symbol("nvshmem_alltoallmem")),
                nvshmem_barrier: core::mem::transmute(symbol("nvshmem_barrier")),
                nvshmem_barrier_all: core::mem::transmute(symbol("nvshmem_barrier_all")),
                nvshmem_broadcastmem: core::mem::transmute(
                    symbol("nvshmem_broadcastmem"),
                ),
                nvshmem_calloc: core::mem::transmute(symbol("nvshmem_calloc")),
                nvshmem_fcollectmem: core::mem::transmute(symbol("nvshmem_fcollectmem")),
                nvshmem_fence: core::mem::transmute(symbol("nvshmem_fence")),
                nvshmem_free: core::mem::transmute(symbol("nvshmem_free")),
                nvshmem_get128: core::mem::transmute(symbol("nvshmem_get128")),
                nvshmem_get128_nbi: core::mem::transmute(symbol("nvshmem_get128_nbi")),
                nvshmem_get16: core::mem::transmute(symbol("nvshmem_get16")),
                nvshmem_get16_nbi: core::mem::transmute(symbol("nvshmem_get16_nbi")),
                nvshmem_get32: core::mem::transmute(symbol("nvshmem_get32")),
                nvshmem_get32_nbi: core::mem::transmute(symbol("nvshmem_get32_nbi")),
                nvshmem_get64: core::mem::transmute(symbol("nvshmem_get64")),
                nvshmem_get64_nbi: core::mem::transmute(symbol("nvshmem_get64_nbi")),
                nvshmem_get8: core::mem::transmute(symbol("nvshmem_get8")),
                nvshmem_get8_nbi: core::mem::transmute(symbol("nvshmem_get8_nbi")),
                nvshmem_getmem: core::mem::transmute(symbol("nvshmem_getmem")),
                nvshmem_getmem_nbi: core::mem::transmute(symbol("nvshmem_getmem_nbi")),
                nvshmem_global_exit: core::mem::transmute(symbol("nvshmem_global_exit")),
                nvshmem_iget128: core::mem::transmute(symbol("nvshmem_iget128")),
                nvshmem_iget16: core::mem::transmute(symbol("nvshmem_iget16")),
                nvshmem_iget32: core::mem::transmute(symbol("nvshmem_iget32")),
                nvshmem_iget64: core::mem::transmute(symbol("nvshmem_iget64")),
                nvshmem_iget8: core::mem::transmute(symbol("nvshmem_iget8")),
                nvshmem_info_get_name: core::mem::transmute(
                    symbol("nvshmem_info_get_name"),
                ),
                nvshmem_info_get_version: core::mem::transmute(
                    symbol("nvshmem_info_get_version"),
                ),
                nvshmem_iput128: core::mem::transmute(symbol("nvshmem_iput128")),
                nvshmem_iput16: core::mem::transmute(symbol("nvshmem_iput16")),
                nvshmem_iput32: core::mem::transmute(symbol("nvshmem_iput32")),
                nvshmem_iput64: core::mem::transmute(symbol("nvshmem_iput64")),
                nvshmem_iput8: core::mem::transmute(symbol("nvshmem_iput8")),
                nvshmem_malloc: core::mem::transmute(symbol("nvshmem_malloc")),
                nvshmem_my_pe: core::mem::transmute(symbol("nvshmem_my_pe")),
                nvshmem_n_pes: core::mem::transmute(symbol("nvshmem_n_pes")),
                nvshmem_ptr: core::mem::transmute(symbol("nvshmem_ptr")),
                nvshmem_put128: core::mem::transmute(symbol("nvshmem_put128")),
                nvshmem_put128_nbi: core::mem::transmute(symbol("nvshmem_put128_nbi")),
                nvshmem_put16: core::mem::transmute(symbol("nvshmem_put16")),
                nvshmem_put16_nbi: core::mem::transmute(symbol("nvshmem_put16_nbi")),
                nvshmem_put32: core::mem::transmute(symbol("nvshmem_put32")),
                nvshmem_put32_nbi: core::mem::transmute(symbol("nvshmem_put32_nbi")),
                nvshmem_put64: core::mem::transmute(symbol("nvshmem_put64")),
                nvshmem_put64_nbi: core::mem::transmute(symbol("nvshmem_put64_nbi")),
                nvshmem_put8: core::mem::transmute(symbol("nvshmem_put8")),
                nvshmem_put8_nbi: core::mem::transmute(symbol("nvshmem_put8_nbi")),
                nvshmem_putmem: core::mem::transmute(symbol("nvshmem_putmem")),
                nvshmem_putmem_nbi: core::mem::transmute(symbol("nvshmem_putmem_nbi")),
                nvshmem_query_thread: core::mem::transmute(
                    symbol("nvshmem_query_thread"),
                ),
                nvshmem_quiet: core::mem::transmute(symbol("nvshmem_quiet")),
                nvshmem_signal_fetch: core::mem::transmute(
                    symbol("nvshmem_signal_fetch"),
                ),
                nvshmem_sync_all: core::mem::transmute(symbol("nvshmem_sync_all")),
                nvshmem_team_destroy: core::mem::transmute(
                    symbol("nvshmem_team_destroy"),
                ),
                nvshmem_team_get_config: core::mem::transmute(
                    symbol("nvshmem_team_get_config"),
                ),
                nvshmem_team_my_pe: core::mem::transmute(symbol("nvshmem_team_my_pe")),
                nvshmem_team_n_pes: core::mem::transmute(symbol("nvshmem_team_n_pes")),
                nvshmem_team_split_2d: core::mem::transmute(
                    symbol("nvshmem_team_split_2d"),
                ),
                nvshmem_team_split_strided: core::mem::transmute(
                    symbol("nvshmem_team_split_strided"),
                ),
                nvshmem_team_sync: core::mem::transmute(symbol("nvshmem_team_sync")),
                nvshmem_team_translate_pe: core::mem::transmute(
                    symbol("nvshmem_team_translate_pe"),
                ),
                nvshmemx_alltoallmem_on_stream: core::mem::transmute(
                    symbol("nvshmemx_alltoallmem_on_stream"),
                ),
                nvshmemx_barrier_all_on_stream: core::mem::transmute(
                    symbol("nvshmemx_barrier_all_on_stream"),
                ),
                nvshmemx_barrier_on_stream: core::mem::transmute(
                    symbol("nvshmemx_barrier_on_stream"),
                ),
                nvshmemx_broadcastmem_on_stream: core::mem::transmute(
                    symbol("nvshmemx_broadcastmem_on_stream"),
                ),
                nvshmemx_buffer_register: core::mem::transmute(
                    symbol("nvshmemx_buffer_register"),
                ),
                nvshmemx_buffer_register_symmetric: core::mem::transmute(
                    symbol("nvshmemx_buffer_register_symmetric"),
                ),
                nvshmemx_buffer_unregister: core::mem::transmute(
                    symbol("nvshmemx_buffer_unregister"),
                ),
                nvshmemx_buffer_unregister_all: core::mem::transmute(
                    symbol("nvshmemx_buffer_unregister_all"),
                ),
                nvshmemx_buffer_unregister_symmetric: core::mem::transmute(
                    symbol("nvshmemx_buffer_unregister_symmetric"),
                ),
                nvshmemx_culibrary_finalize: core::mem::transmute(
                    symbol("nvshmemx_culibrary_finalize"),
                ),
                nvshmemx_culibrary_init: core::mem::transmute(
                    symbol("nvshmemx_culibrary_init"),
                ),
                nvshmemx_cumodule_finalize: core::mem::transmute(
                    symbol("nvshmemx_cumodule_finalize"),
                ),
                nvshmemx_cumodule_init: core::mem::transmute(
                    symbol("nvshmemx_cumodule_init"),
                ),
                nvshmemx_fcollectmem_on_stream: core::mem::transmute(
                    symbol("nvshmemx_fcollectmem_on_stream"),
                ),
                nvshmemx_get128_nbi_on_stream: core::mem::transmute(
                    symbol("nvshmemx_get128_nbi_on_stream"),
                ),
                nvshmemx_get128_on_stream: core::mem::transmute(
                    symbol("nvshmemx_get128_on_stream"),
                ),
                nvshmemx_get16_nbi_on_stream: core::mem::transmute(
                    symbol("nvshmemx_get16_nbi_on_stream"),
                ),
                nvshmemx_get16_on_stream: core::mem::transmute(
                    symbol("nvshmemx_get16_on_stream"),
                ),
                nvshmemx_get32_nbi_on_stream: core::mem::transmute(
                    symbol("nvshmemx_get32_nbi_on_stream"),
                ),
                nvshmemx_get32_on_stream: core::mem::transmute(
                    symbol("nvshmemx_get32_on_stream"),
                ),
                nvshmemx_get64_nbi_on_stream: core::mem::transmute(
                    symbol("nvshmemx_get64_nbi_on_stream"),
                ),
                nvshmemx_get64_on_stream: core::mem::transmute(
                    symbol("nvshmemx_get64_on_stream"),
                ),
                nvshmemx_get8_nbi_on_stream: core::mem::transmute(
                    symbol("nvshmemx_get8_nbi_on_stream"),
                ),
                nvshmemx_get8_on_stream: core::mem::transmute(
                    symbol("nvshmemx_get8_on_stream"),
                ),
                nvshmemx_get_uniqueid: core::mem::transmute(
                    symbol("nvshmemx_get_uniqueid"),
                ),
                nvshmemx_getmem_nbi_on_stream: core::mem::transmute(
                    symbol("nvshmemx_getmem_nbi_on_stream"),
                ),
                nvshmemx_getmem_on_stream: core::mem::transmute(
                    symbol("nvshmemx_getmem_on_stream"),
                ),
                nvshmemx_hostlib_finalize: core::mem::transmute(
                    symbol("nvshmemx_hostlib_finalize"),
                ),
                nvshmemx_hostlib_init_attr: core::mem::transmute(
                    symbol("nvshmemx_hostlib_init_attr"),
                ),
                nvshmemx_iget128_on_stream: core::mem::transmute(
                    symbol("nvshmemx_iget128_on_stream"),
                ),
                nvshmemx_iget16_on_stream: core::mem::transmute(
                    symbol("nvshmemx_iget16_on_stream"),
                ),
                nvshmemx_iget32_on_stream: core::mem::transmute(
                    symbol("nvshmemx_iget32_on_stream"),
                ),
                nvshmemx_iget64_on_stream: core::mem::transmute(
                    symbol("nvshmemx_iget64_on_stream"),
                ),
                nvshmemx_iget8_on_stream: core::mem::transmute(
                    symbol("nvshmemx_iget8_on_stream"),
                ),
                nvshmemx_init_status: core::mem::transmute(
                    symbol("nvshmemx_init_status"),
                ),
                nvshmemx_iput128_on_stream: core::mem::transmute(
                    symbol("nvshmemx_iput128_on_stream"),
                ),
                nvshmemx_iput16_on_stream: core::mem::transmute(
                    symbol("nvshmemx_iput16_on_stream"),
                ),
                nvshmemx_iput32_on_stream: core::mem::transmute(
                    symbol("nvshmemx_iput32_on_stream"),
                ),
                nvshmemx_iput64_on_stream: core::mem::transmute(
                    symbol("nvshmemx_iput64_on_stream"),
                ),
                nvshmemx_iput8_on_stream: core::mem::transmute(
                    symbol("nvshmemx_iput8_on_stream"),
                ),
                nvshmemx_mc_ptr: core::mem::transmute(symbol("nvshmemx_mc_ptr")),
                nvshmemx_put128_nbi_on_stream: core::mem::transmute(
                    symbol("nvshmemx_put128_nbi_on_stream"),
                ),
                nvshmemx_put128_on_stream: core::mem::transmute(
                    symbol("nvshmemx_put128_on_stream"),
                ),
                nvshmemx_put128_signal_nbi_on_stream: core::mem::transmute(
                    symbol("nvshmemx_put128_signal_nbi_on_stream"),
                ),
                nvshmemx_put128_signal_on_stream: core::mem::transmute(
                    symbol("nvshmemx_put128_signal_on_stream"),
                ),
                nvshmemx_put16_nbi_on_stream: core::mem::transmute(
                    symbol("nvshmemx_put16_nbi_on_stream"),
                ),
                nvshmemx_put16_on_stream: core::mem::transmute(
                    symbol("nvshmemx_put16_on_stream"),
                ),
                nvshmemx_put16_signal_nbi_on_stream: core::mem::transmute(
                    symbol("nvshmemx_put16_signal_nbi_on_stream"),
                ),
                nvshmemx_put16_signal_on_stream: core::mem::transmute(
                    symbol("nvshmemx_put16_signal_on_stream"),
                ),
                nvshmemx_put32_nbi_on_stream: core::mem::transmute(
                    symbol("nvshmemx_put32_nbi_on_stream"),
                ),
                nvshmemx_put32_on_stream: core::mem::transmute(
                    symbol("nvshmemx_put32_on_stream"),
                ),
                nvshmemx_put32_signal_nbi_on_stream: core::mem::transmute(
                    symbol("nvshmemx_put32_signal_nbi_on_stream"),
                ),
                nvshmemx_put32_signal_on_stream: core::mem::transmute(
                    symbol("nvshmemx_put32_signal_on_stream"),
                ),
                nvshmemx_put64_nbi_on_stream: core::mem::transmute(
                    symbol("nvshmemx_put64_nbi_on_stream"),
                ),
                nvshmemx_put64_on_stream: core::mem::transmute(
                    symbol("nvshmemx_put64_on_stream"),
                ),
                nvshmemx_put64_signal_nbi_on_stream: core::mem::transmute(
                    symbol("nvshmemx_put64_signal_nbi_on_stream"),
                ),
                nvshmemx_put64_signal_on_stream: core::mem::transmute(
                    symbol("nvshmemx_put64_signal_on_stream"),
                ),
                nvshmemx_put8_nbi_on_stream: core::mem::transmute(
                    symbol("nvshmemx_put8_nbi_on_stream"),
                ),
                nvshmemx_put8_on_stream: core::mem::transmute(
                    symbol("nvshmemx_put8_on_stream"),
                ),
                nvshmemx_put8_signal_nbi_on_stream: core::mem::transmute(
                    symbol("nvshmemx_put8_signal_nbi_on_stream"),
                ),
                nvshmemx_put8_signal_on_stream: core::mem::transmute(
                    symbol("nvshmemx_put8_signal_on_stream"),
                ),
                nvshmemx_putmem_nbi_on_stream: core::mem::transmute(
                    symbol("nvshmemx_putmem_nbi_on_stream"),
                ),
                nvshmemx_putmem_on_stream: core::mem::transmute(
                    symbol("nvshmemx_putmem_on_stream"),
                ),
                nvshmemx_putmem_signal_nbi_on_stream: core::mem::transmute(
                    symbol("nvshmemx_putmem_signal_nbi_on_stream"),
                ),
                nvshmemx_putmem_signal_on_stream: core::mem::transmute(
                    symbol("nvshmemx_putmem_signal_on_stream"),
                ),
                nvshmemx_quiet_on_stream: core::mem::transmute(
                    symbol("nvshmemx_quiet_on_stream"),
                ),
                nvshmemx_set_attr_mpi_comm_args: core::mem::transmute(
                    symbol("nvshmemx_set_attr_mpi_comm_args"),
                ),
                nvshmemx_set_attr_uniqueid_args: core::mem::transmute(
                    symbol("nvshmemx_set_attr_uniqueid_args"),
                ),
                nvshmemx_signal_op_on_stream: core::mem::transmute(
                    symbol("nvshmemx_signal_op_on_stream"),
                ),
                nvshmemx_signal_wait_until_on_stream: core::mem::transmute(
                    symbol("nvshmemx_signal_wait_until_on_stream"),
                ),
                nvshmemx_sync_all_on_stream: core::mem::transmute(
                    symbol("nvshmemx_sync_all_on_stream"),
                ),
                nvshmemx_team_get_uniqueid: core::mem::transmute(
                    symbol("nvshmemx_team_get_uniqueid"),
                ),
                nvshmemx_team_init: core::mem::transmute(symbol("nvshmemx_team_init")),
                nvshmemx_team_sync_on_stream: core::mem::transmute(
                    symbol("nvshmemx_team_sync_on_stream"),
                ),
                nvshmemx_vendor_get_version_info: core::mem::transmute(
                    symbol("nvshmemx_vendor_get_version_info"),
                ),
            }
        }
    }
    pub unsafe fn nvshmem_align(
        &self,
        arg1: usize,
        arg2: usize,
    ) -> Result<*mut ::core::ffi::c_void, Unavailable> {
        let function = self
            .nvshmem_align
            .ok_or(Unavailable {
                symbol: "nvshmem_align",
            })?;
        Ok(unsafe { function(arg1, arg2) })
    }
    pub unsafe fn nvshmem_alltoallmem(
        &self,
        team: nvshmem_team_t,
        dest: *mut ::core::ffi::c_void,
        src: *const ::core::ffi::c_void,
        nelems: usize,
    ) -> Result<::core::ffi::c_int, Unavailable> {
        let function = self
            .nvshmem_alltoallmem
            .ok_or(Unavailable {
                symbol: "nvshmem_alltoallmem",
            })?;
        Ok(unsafe { function(team, dest, src, nelems) })
    }
    pub unsafe fn nvshmem_barrier(
        &self,
        team: nvshmem_team_t,
    ) -> Result<::core::ffi::c_int, Unavailable> {
        let function = self
            .nvshmem_barrier
            .ok_or(Unavailable {
                symbol: "nvshmem_barrier",
            })?;
        Ok(unsafe { function(team) })
    }
    pub unsafe fn nvshmem_barrier_all(&self) -> Result<(), Unavailable> {
        let function = self
            .nvshmem_barrier_all
            .ok_or(Unavailable {
                symbol: "nvshmem_barrier_all",
            })?;
        Ok(unsafe { function() })
    }
    pub unsafe fn nvshmem_broadcastmem(
        &self,
        team: nvshmem_team_t,
        dest: *mut ::core::ffi::c_void,
        src: *const ::core::ffi::c_void,
        nelems: usize,
        PE_root: ::core::ffi::c_int,
    ) -> Result<::core::ffi::c_int, Unavailable> {
        let function = self
            .nvshmem_broadcastmem
            .ok_or(Unavailable {
                symbol: "nvshmem_broadcastmem",
            })?;
        Ok(unsafe { function(team, dest, src, nelems, PE_root) })
    }
    pub unsafe fn nvshmem_calloc(
        &self,
        arg1: usize,
        arg2: usize,
    ) -> Result<*mut ::core::ffi::c_void, Unavailable> {
        let function = self
            .nvshmem_calloc
            .ok_or(Unavailable {
                symbol: "nvshmem_calloc",
            })?;
        Ok(unsafe { function(arg1, arg2) })
    }
    pub unsafe fn nvshmem_fcollectmem(
        &self,
        team: nvshmem_team_t,
        dest: *mut ::core::ffi::c_void,
        src: *const ::core::ffi::c_void,
        nelems: usize,
    ) -> Result<::core::ffi::c_int, Unavailable> {
        let function = self
            .nvshmem_fcollectmem
            .ok_or(Unavailable {
                symbol: "nvshmem_fcollectmem",
            })?;
        Ok(unsafe { function(team, dest, src, nelems) })
    }
    pub unsafe fn nvshmem_fence(&self) -> Result<(), Unavailable> {
        let function = self
            .nvshmem_fence
            .ok_or(Unavailable {
                symbol: "nvshmem_fence",
            })?;
        Ok(unsafe { function() })
    }
    pub unsafe fn nvshmem_free(
        &self,
        ptr: *mut ::core::ffi::c_void,
    ) -> Result<(), Unavailable> {
        let function = self
            .nvshmem_free
            .ok_or(Unavailable {
                symbol: "nvshmem_free",
            })?;
        Ok(unsafe { function(ptr) })
    }
    pub unsafe fn nvshmem_get128(
        &self,
        dest: *mut ::core::ffi::c_void,
        source: *const ::core::ffi::c_void,
        nelems: usize,
        pe: ::core::ffi::c_int,
    ) -> Result<(), Unavailable> {
        let function = self
            .nvshmem_get128
            .ok_or(Unavailable {
                symbol: "nvshmem_get128",
            })?;
        Ok(unsafe { function(dest, source, nelems, pe) })
    }
    pub unsafe fn nvshmem_get128_nbi(
        &self,
        dest: *mut ::core::ffi::c_void,
        source: *const ::core::ffi::c_void,
        nelems: usize,
        pe: ::core::ffi::c_int,
    ) -> Result<(), Unavailable> {
        let function = self
            .nvshmem_get128_nbi
            .ok_or(Unavailable {
                symbol: "nvshmem_get128_nbi",
            })?;
        Ok(unsafe { function(dest, source, nelems, pe) })
    }
    pub unsafe fn nvshmem_get16(
        &self,
        dest: *mut ::core::ffi::c_void,
        source: *const ::core::ffi::c_void,
        nelems: usize,
        pe: ::core::ffi::c_int,
    ) -> Result<(), Unavailable> {
        let function = self
            .nvshmem_get16
            .ok_or(Unavailable {
                symbol: "nvshmem_get16",
            })?;
        Ok(unsafe { function(dest, source, nelems, pe) })
    }
    pub unsafe fn nvshmem_get16_nbi(
        &self,
        dest: *mut ::core::ffi::c_void,
        source: *const ::core::ffi::c_void,
        nelems: usize,
        pe: ::core::ffi::c_int,
    ) -> Result<(), Unavailable> {
        let function = self
            .nvshmem_get16_nbi
            .ok_or(Unavailable {
                symbol: "nvshmem_get16_nbi",
            })?;
        Ok(unsafe { function(dest, source, nelems, pe) })
    }
    pub unsafe fn nvshmem_get32(
        &self,
        dest: *mut ::core::ffi::c_void,
        source: *const ::core::ffi::c_void,
        nelems: usize,
        pe: ::core::ffi::c_int,
    ) -> Result<(), Unavailable> {
        let function = self
            .nvshmem_get32
            .ok_or(Unavailable {
                symbol: "nvshmem_get32",
            })?;
        Ok(unsafe { function(dest, source, nelems, pe) })
    }
    pub unsafe fn nvshmem_get32_nbi(
        &self,
        dest: *mut ::core::ffi::c_void,
        source: *const ::core::ffi::c_void,
        nelems: usize,
        pe: ::core::ffi::c_int,
    ) -> Result<(), Unavailable> {
        let function = self
            .nvshmem_get32_nbi
            .ok_or(Unavailable {
                symbol: "nvshmem_get32_nbi",
            })?;
        Ok(unsafe { function(dest, source, nelems, pe) })
    }
    pub unsafe fn nvshmem_get64(
        &self,
        dest: *mut ::core::ffi::c_void,
        source: *const ::core::ffi::c_void,
        nelems: usize,
        pe: ::core::ffi::c_int,
    ) -> Result<(), Unavailable> {
        let function = self
            .nvshmem_get64
            .ok_or(Unavailable {
                symbol: "nvshmem_get64",
            })?;
        Ok(unsafe { function(dest, source, nelems, pe) })
    }
    pub unsafe fn nvshmem_get64_nbi(
        &self,
        dest: *mut ::core::ffi::c_void,
        source: *const ::core::ffi::c_void,
        nelems: usize,
        pe: ::core::ffi::c_int,
    ) -> Result<(), Unavailable> {
        let function = self
            .nvshmem_get64_nbi
            .ok_or(Unavailable {
                symbol: "nvshmem_get64_nbi",
            })?;
        Ok(unsafe { function(dest, source, nelems, pe) })
    }
    pub unsafe fn nvshmem_get8(
        &self,
        dest: *mut ::core::ffi::c_void,
        source: *const ::core::ffi::c_void,
        nelems: usize,
        pe: ::core::ffi::c_int,
    ) -> Result<(), Unavailable> {
        let function = self
            .nvshmem_get8
            .ok_or(Unavailable {
                symbol: "nvshmem_get8",
            })?;
        Ok(unsafe { function(dest, source, nelems, pe) })
    }
    pub unsafe fn nvshmem_get8_nbi(
        &self,
        dest: *mut ::core::ffi::c_void,
        source: *const ::core::ffi::c_void,
        nelems: usize,
        pe: ::core::ffi::c_int,
    ) -> Result<(), Unavailable> {
        let function = self
            .nvshmem_get8_nbi
            .ok_or(Unavailable {
                symbol: "nvshmem_get8_nbi",
            })?;
        Ok(unsafe { function(dest, source, nelems, pe) })
    }
    pub unsafe fn nvshmem_getmem(
        &self,
        dest: *mut ::core::ffi::c_void,
        source: *const ::core::ffi::c_void,
        bytes: usize,
        pe: ::core::ffi::c_int,
    ) -> Result<(), Unavailable> {
        let function = self
            .nvshmem_getmem
            .ok_or(Unavailable {
                symbol: "nvshmem_getmem",
            })?;
        Ok(unsafe { function(dest, source, bytes, pe) })
    }
    pub unsafe fn nvshmem_getmem_nbi(
        &self,
        dest: *mut ::core::ffi::c_void,
        source: *const ::core::ffi::c_void,
        bytes: usize,
        pe: ::core::ffi::c_int,
    ) -> Result<(), Unavailable> {
        let function = self
            .nvshmem_getmem_nbi
            .ok_or(Unavailable {
                symbol: "nvshmem_getmem_nbi",
            })?;
        Ok(unsafe { function(dest, source, bytes, pe) })
    }
    pub unsafe fn nvshmem_global_exit(
        &self,
        status: ::core::ffi::c_int,
    ) -> Result<(), Unavailable> {
        let function = self
            .nvshmem_global_exit
            .ok_or(Unavailable {
                symbol: "nvshmem_global_exit",
            })?;
        Ok(unsafe { function(status) })
    }
    pub unsafe fn nvshmem_iget128(
        &self,
        dest: *mut ::core::ffi::c_void,
        source: *const ::core::ffi::c_void,
        dst: isize,
        sst: isize,
        nelems: usize,
        pe: ::core::ffi::c_int,
    ) -> Result<(), Unavailable> {
        let function = self
            .nvshmem_iget128
            .ok_or(Unavailable {
                symbol: "nvshmem_iget128",
            })?;
        Ok(unsafe { function(dest, source, dst, sst, nelems, pe) })
    }
    pub unsafe fn nvshmem_iget16(
        &self,
        dest: *mut ::core::ffi::c_void,
        source: *const ::core::ffi::c_void,
        dst: isize,
        sst: isize,
        nelems: usize,
        pe: ::core::ffi::c_int,
    ) -> Result<(), Unavailable> {
        let function = self
            .nvshmem_iget16
            .ok_or(Unavailable {
                symbol: "nvshmem_iget16",
            })?;
        Ok(unsafe { function(dest, source, dst, sst, nelems, pe) })
    }
    pub unsafe fn nvshmem_iget32(
        &self,
        dest: *mut ::core::ffi::c_void,
        source: *const ::core::ffi::c_void,
        dst: isize,
        sst: isize,
        nelems: usize,
        pe: ::core::ffi::c_int,
    ) -> Result<(), Unavailable> {
        let function = self
            .nvshmem_iget32
            .ok_or(Unavailable {
                symbol: "nvshmem_iget32",
            })?;
        Ok(unsafe { function(dest, source, dst, sst, nelems, pe) })
    }
    pub unsafe fn nvshmem_iget64(
        &self,
        dest: *mut ::core::ffi::c_void,
        source: *const ::core::ffi::c_void,
        dst: isize,
        sst: isize,
        nelems: usize,
        pe: ::core::ffi::c_int,
    ) -> Result<(), Unavailable> {
        let function = self
            .nvshmem_iget64
            .ok_or(Unavailable {
                symbol: "nvshmem_iget64",
            })?;
        Ok(unsafe { function(dest, source, dst, sst, nelems, pe) })
    }
    pub unsafe fn nvshmem_iget8(
        &self,
        dest: *mut ::core::ffi::c_void,
        source: *const ::core::ffi::c_void,
        dst: isize,
        sst: isize,
        nelems: usize,
        pe: ::core::ffi::c_int,
    ) -> Result<(), Unavailable> {
        let function = self
            .nvshmem_iget8
            .ok_or(Unavailable {
                symbol: "nvshmem_iget8",
            })?;
        Ok(unsafe { function(dest, source, dst, sst, nelems, pe) })
    }
    pub unsafe fn nvshmem_info_get_name(
        &self,
        name: *mut ::core::ffi::c_char,
    ) -> Result<(), Unavailable> {
        let function = self
            .nvshmem_info_get_name
            .ok_or(Unavailable {
                symbol: "nvshmem_info_get_name",
            })?;
        Ok(unsafe { function(name) })
    }
    pub unsafe fn nvshmem_info_get_version(
        &self,
        major: *mut ::core::ffi::c_int,
        minor: *mut ::core::ffi::c_int,
    ) -> Result<(), Unavailable> {
        let function = self
            .nvshmem_info_get_version
            .ok_or(Unavailable {
                symbol: "nvshmem_info_get_version",
            })?;
        Ok(unsafe { function(major, minor) })
    }
    pub unsafe fn nvshmem_iput128(
        &self,
        dest: *mut ::core::ffi::c_void,
        source: *const ::core::ffi::c_void,
        dst: isize,
        sst: isize,
        nelems: usize,
        pe: ::core::ffi::c_int,
    ) -> Result<(), Unavailable> {
        let function = self
            .nvshmem_iput128
            .ok_or(Unavailable {
                symbol: "nvshmem_iput128",
            })?;
        Ok(unsafe { function(dest, source, dst, sst, nelems, pe) })
    }
    pub unsafe fn nvshmem_iput16(
        &self,
        dest: *mut ::core::ffi::c_void,
        source: *const ::core::ffi::c_void,
        dst: isize,
        sst: isize,
        nelems: usize,
        pe: ::core::ffi::c_int,
    ) -> Result<(), Unavailable> {
        let function = self
            .nvshmem_iput16
            .ok_or(Unavailable {
                symbol: "nvshmem_iput16",
            })?;
        Ok(unsafe { function(dest, source, dst, sst, nelems, pe) })
    }
    pub unsafe fn nvshmem_iput32(
        &self,
        dest: *mut ::core::ffi::c_void,
        source: *const ::core::ffi::c_void,
        dst: isize,
        sst: isize,
        nelems: usize,
        pe: ::core::ffi::c_int,
    ) -> Result<(), Unavailable> {
        let function = self
            .nvshmem_iput32
            .ok_or(Unavailable {
                symbol: "nvshmem_iput32",
            })?;
        Ok(unsafe { function(dest, source, dst, sst, nelems, pe) })
    }
    pub unsafe fn nvshmem_iput64(
        &self,
        dest: *mut ::core::ffi::c_void,
        source: *const ::core::ffi::c_void,
        dst: isize,
        sst: isize,
        nelems: usize,
        pe: ::core::ffi::c_int,
    ) -> Result<(), Unavailable> {
        let function = self
            .nvshmem_iput64
            .ok_or(Unavailable {
                symbol: "nvshmem_iput64",
            })?;
        Ok(unsafe { function(dest, source, dst, sst, nelems, pe) })
    }
    pub unsafe fn nvshmem_iput8(
        &self,
        dest: *mut ::core::ffi::c_void,
        source: *const ::core::ffi::c_void,
        dst: isize,
        sst: isize,
        nelems: usize,
        pe: ::core::ffi::c_int,
    ) -> Result<(), Unavailable> {
        let function = self
            .nvshmem_iput8
            .ok_or(Unavailable {
                symbol: "nvshmem_iput8",
            })?;
        Ok(unsafe { function(dest, source, dst, sst, nelems, pe) })
    }
    pub unsafe fn nvshmem_malloc(
        &self,
        size: usize,
    ) -> Result<*mut ::core::ffi::c_void, Unavailable> {
        let function = self
            .nvshmem_malloc
            .ok_or(Unavailable {
                symbol: "nvshmem_malloc",
            })?;
        Ok(unsafe { function(size) })
    }
    pub unsafe fn nvshmem_my_pe(&self) -> Result<::core::ffi::c_int, Unavailable> {
        let function = self
            .nvshmem_my_pe
            .ok_or(Unavailable {
                symbol: "nvshmem_my_pe",
            })?;
        Ok(unsafe { function() })
    }
    pub unsafe fn nvshmem_n_pes(&self) -> Result<::core::ffi::c_int, Unavailable> {
        let function = self
            .nvshmem_n_pes
            .ok_or(Unavailable {
                symbol: "nvshmem_n_pes",
            })?;
        Ok(unsafe { function() })
    }
    pub unsafe fn nvshmem_ptr(
        &self,
        ptr: *const ::core::ffi::c_void,
        pe: ::core::ffi::c_int,
    ) -> Result<*mut ::core::ffi::c_void, Unavailable> {
        let function = self
            .nvshmem_ptr
            .ok_or(Unavailable {
                symbol: "nvshmem_ptr",
            })?;
        Ok(unsafe { function(ptr, pe) })
    }
    pub unsafe fn nvshmem_put128(
        &self,
        dest: *mut ::core::ffi::c_void,
        source: *const ::core::ffi::c_void,
        nelems: usize,
        pe: ::core::ffi::c_int,
    ) -> Result<(), Unavailable> {
        let function = self
            .nvshmem_put128
            .ok_or(Unavailable {
                symbol: "nvshmem_put128",
            })?;
        Ok(unsafe { function(dest, source, nelems, pe) })
    }
    pub unsafe fn nvshmem_put128_nbi(
        &self,
        dest: *mut ::core::ffi::c_void,
        source: *const ::core::ffi::c_void,
        nelems: usize,
        pe: ::core::ffi::c_int,
    ) -> Result<(), Unavailable> {
        let function = self
            .nvshmem_put128_nbi
            .ok_or(Unavailable {
                symbol: "nvshmem_put128_nbi",
            })?;
        Ok(unsafe { function(dest, source, nelems, pe) })
    }
    pub unsafe fn nvshmem_put16(
        &self,
        dest: *mut ::core::ffi::c_void,
        source: *const ::core::ffi::c_void,
        nelems: usize,
        pe: ::core::ffi::c_int,
    ) -> Result<(), Unavailable> {
        let function = self
            .nvshmem_put16
            .ok_or(Unavailable {
                symbol: "nvshmem_put16",
            })?;
        Ok(unsafe { function(dest, source, nelems, pe) })
    }
    pub unsafe fn nvshmem_put16_nbi(
        &self,
        dest: *mut ::core::ffi::c_void,
        source: *const ::core::ffi::c_void,
        nelems: usize,
        pe: ::core::ffi::c_int,
    ) -> Result<(), Unavailable> {
        let function = self
            .nvshmem_put16_nbi
            .ok_or(Unavailable {
                symbol: "nvshmem_put16_nbi",
            })?;
        Ok(unsafe { function(dest, source, nelems, pe) })
    }
    pub unsafe fn nvshmem_put32(
        &self,
        dest: *mut ::core::ffi::c_void,
        source: *const ::core::ffi::c_void,
        nelems: usize,
        pe: ::core::ffi::c_int,
    ) -> Result<(), Unavailable> {
        let function = self
            .nvshmem_put32
            .ok_or(Unavailable {
                symbol: "nvshmem_put32",
            })?;
        Ok(unsafe { function(dest, source, nelems, pe) })
    }
    pub unsafe fn nvshmem_put32_nbi(
        &self,
        dest: *mut ::core::ffi::c_void,
        source: *const ::core::ffi::c_void,
        nelems: usize,
        pe: ::core::ffi::c_int,
    ) -> Result<(), Unavailable> {
        let function = self
            .nvshmem_put32_nbi
            .ok_or(Unavailable {
                symbol: "nvshmem_put32_nbi",
            })?;
        Ok(unsafe { function(dest, source, nelems, pe) })
    }
    pub unsafe fn nvshmem_put64(
        &self,
        dest: *mut ::core::ffi::c_void,
        source: *const ::core::ffi::c_void,
        nelems: usize,
        pe: ::core::ffi::c_int,
    ) -> Result<(), Unavailable> {
        let function = self
            .nvshmem_put64
            .ok_or(Unavailable {
                symbol: "nvshmem_put64",
            })?;
        Ok(unsafe { function(dest, source, nelems, pe) })
    }
    pub unsafe fn nvshmem_put64_nbi(
        &self,
        dest: *mut ::core::ffi::c_void,
        source: *const ::core::ffi::c_void,
        nelems: usize,
        pe: ::core::ffi::c_int,
    ) -> Result<(), Unavailable> {
        let function = self
            .nvshmem_put64_nbi
            .ok_or(Unavailable {
                symbol: "nvshmem_put64_nbi",
            })?;
        Ok(unsafe { function(dest, source, nelems, pe) })
    }
    pub unsafe fn nvshmem_put8(
        &self,
        dest: *mut ::core::ffi::c_void,
        source: *const ::core::ffi::c_void,
        nelems: usize,
        pe: ::core::ffi::c_int,
    ) -> Result<(), Unavailable> {
        let function = self
            .nvshmem_put8
            .ok_or(Unavailable {
                symbol: "nvshmem_put8",
            })?;
        Ok(unsafe { function(dest, source, nelems, pe) })
    }
    pub unsafe fn nvshmem_put8_nbi(
        &self,
        dest: *mut ::core::ffi::c_void,
        source: *const ::core::ffi::c_void,
        nelems: usize,
        pe: ::core::ffi::c_int,
    ) -> Result<(), Unavailable> {
        let function = self
            .nvshmem_put8_nbi
            .ok_or(Unavailable {
                symbol: "nvshmem_put8_nbi",
            })?;
        Ok(unsafe { function(dest, source, nelems, pe) })
    }
    pub unsafe fn nvshmem_putmem(
        &self,
        dest: *mut ::core::ffi::c_void,
        source: *const ::core::ffi::c_void,
        bytes: usize,
        pe: ::core::ffi::c_int,
    ) -> Result<(), Unavailable> {
        let function = self
            .nvshmem_putmem
            .ok_or(Unavailable {
                symbol: "nvshmem_putmem",
            })?;
        Ok(unsafe { function(dest, source, bytes, pe) })
    }
    pub unsafe fn nvshmem_putmem_nbi(
        &self,
        dest: *mut ::core::ffi::c_void,
        source: *const ::core::ffi::c_void,
        bytes: usize,
        pe: ::core::ffi::c_int,
    ) -> Result<(), Unavailable> {
        let function = self
            .nvshmem_putmem_nbi
            .ok_or(Unavailable {
                symbol: "nvshmem_putmem_nbi",
            })?;
        Ok(unsafe { function(dest, source, bytes, pe) })
    }
    pub unsafe fn nvshmem_query_thread(
        &self,
        provided: *mut ::core::ffi::c_int,
    ) -> Result<(), Unavailable> {
        let function = self
            .nvshmem_query_thread
            .ok_or(Unavailable {
                symbol: "nvshmem_query_thread",
            })?;
        Ok(unsafe { function(provided) })
    }
    pub unsafe fn nvshmem_quiet(&self) -> Result<(), Unavailable> {
        let function = self
            .nvshmem_quiet
            .ok_or(Unavailable {
                symbol: "nvshmem_quiet",
            })?;
        Ok(unsafe { function() })
    }
    pub unsafe fn nvshmem_signal_fetch(
        &self,
        sig_addr: *mut u64,
    ) -> Result<u64, Unavailable> {
        let function = self
            .nvshmem_signal_fetch
            .ok_or(Unavailable {
                symbol: "nvshmem_signal_fetch",
            })?;
        Ok(unsafe { function(sig_addr) })
    }
    pub unsafe fn nvshmem_sync_all(&self) -> Result<(), Unavailable> {
        let function = self
            .nvshmem_sync_all
            .ok_or(Unavailable {
                symbol: "nvshmem_sync_all",
            })?;
        Ok(unsafe { function() })
    }
    pub unsafe fn nvshmem_team_destroy(
        &self,
        team: nvshmem_team_t,
    ) -> Result<(), Unavailable> {
        let function = self
            .nvshmem_team_destroy
            .ok_or(Unavailable {
                symbol: "nvshmem_team_destroy",
            })?;
        Ok(unsafe { function(team) })
    }
    pub unsafe fn nvshmem_team_get_config(
        &self,
        team: nvshmem_team_t,
        config: *mut nvshmem_team_config_t,
    ) -> Result<(), Unavailable> {
        let function = self
            .nvshmem_team_get_config
            .ok_or(Unavailable {
                symbol: "nvshmem_team_get_config",
            })?;
        Ok(unsafe { function(team, config) })
    }
    pub unsafe fn nvshmem_team_my_pe(
        &self,
        team: nvshmem_team_t,
    ) -> Result<::core::ffi::c_int, Unavailable> {
        let function = self
            .nvshmem_team_my_pe
            .ok_or(Unavailable {
                symbol: "nvshmem_team_my_pe",
            })?;
        Ok(unsafe { function(team) })
    }
    pub unsafe fn nvshmem_team_n_pes(
        &self,
        team: nvshmem_team_t,
    ) -> Result<::core::ffi::c_int, Unavailable> {
        let function = self
            .nvshmem_team_n_pes
            .ok_or(Unavailable {
                symbol: "nvshmem_team_n_pes",
            })?;
        Ok(unsafe { function(team) })
    }
    pub unsafe fn nvshmem_team_split_2d(
        &self,
        parent_team: nvshmem_team_t,
        xrange: ::core::ffi::c_int,
        xaxis_config: *const nvshmem_team_config_t,
        xaxis_mask: ::core::ffi::c_long,
        xaxis_team: *mut nvshmem_team_t,
        yaxis_config: *const nvshmem_team_config_t,
        yaxis_mask: ::core::ffi::c_long,
        yaxis_team: *mut nvshmem_team_t,
    ) -> Result<::core::ffi::c_int, Unavailable> {
        let function = self
            .nvshmem_team_split_2d
            .ok_or(Unavailable {
                symbol: "nvshmem_team_split_2d",
            })?;
        Ok(unsafe {
            function(
                parent_team,
                xrange,
                xaxis_config,
                xaxis_mask,
                xaxis_team,
                yaxis_config,
                yaxis_mask,
                yaxis_team,
            )
        })
    }
    pub unsafe fn nvshmem_team_split_strided(
        &self,
        parent_team: nvshmem_team_t,
        PE_start: ::core::ffi::c_int,
        PE_stride: ::core::ffi::c_int,
        PE_size: ::core::ffi::c_int,
        config: *const nvshmem_team_config_t,
        config_mask: ::core::ffi::c_long,
        new_team: *mut nvshmem_team_t,
    ) -> Result<::core::ffi::c_int, Unavailable> {
        let function = self
            .nvshmem_team_split_strided
            .ok_or(Unavailable {
                symbol: "nvshmem_team_split_strided",
            })?;
        Ok(unsafe {
            function(
                parent_team,
                PE_start,
                PE_stride,
                PE_size,
                config,
                config_mask,
                new_team,
            )
        })
    }
    pub unsafe fn nvshmem_team_sync(
        &self,
        team: nvshmem_team_t,
    ) -> Result<::core::ffi::c_int, Unavailable> {
        let function = self
            .nvshmem_team_sync
            .ok_or(Unavailable {
                symbol: "nvshmem_team_sync",
            })?;
        Ok(unsafe { function(team) })
    }
    pub unsafe fn nvshmem_team_translate_pe(
        &self,
        src_team: nvshmem_team_t,
        src_pe: ::core::ffi::c_int,
        dest_team: nvshmem_team_t,
    ) -> Result<::core::ffi::c_int, Unavailable> {
        let function = self
            .nvshmem_team_translate_pe
            .ok_or(Unavailable {
                symbol: "nvshmem_team_translate_pe",
            })?;
        Ok(unsafe { function(src_team, src_pe, dest_team) })
    }
    pub unsafe fn nvshmemx_alltoallmem_on_stream(
        &self,
        team: nvshmem_team_t,
        dest: *mut ::core::ffi::c_void,
        src: *const ::core::ffi::c_void,
        nelem: usize,
        stream: cudaStream_t,
    ) -> Result<::core::ffi::c_int, Unavailable> {
        let function = self
            .nvshmemx_alltoallmem_on_stream
            .ok_or(Unavailable {
                symbol: "nvshmemx_alltoallmem_on_stream",
            })?;
        Ok(unsafe { function(team, dest, src, nelem, stream) })
    }
    pub unsafe fn nvshmemx_barrier_all_on_stream(
        &self,
        arg1: cudaStream_t,
    ) -> Result<(), Unavailable> {
        let function = self
            .nvshmemx_barrier_all_on_stream
            .ok_or(Unavailable {
                symbol: "nvshmemx_barrier_all_on_stream",
            })?;
        Ok(unsafe { function(arg1) })
    }
    pub unsafe fn nvshmemx_barrier_on_stream(
        &self,
        team: nvshmem_team_t,
        stream: cudaStream_t,
    ) -> Result<::core::ffi::c_int, Unavailable> {
        let function = self
            .nvshmemx_barrier_on_stream
            .ok_or(Unavailable {
                symbol: "nvshmemx_barrier_on_stream",
            })?;
        Ok(unsafe { function(team, stream) })
    }
    pub unsafe fn nvshmemx_broadcastmem_on_stream(
        &self,
        team: nvshmem_team_t,
        dest: *mut ::core::ffi::c_void,
        src: *const ::core::ffi::c_void,
        nelem: usize,
        PE_root: ::core::ffi::c_int,
        stream: cudaStream_t,
    ) -> Result<::core::ffi::c_int, Unavailable> {
        let function = self
            .nvshmemx_broadcastmem_on_stream
            .ok_or(Unavailable {
                symbol: "nvshmemx_broadcastmem_on_stream",
            })?;
        Ok(unsafe { function(team, dest, src, nelem, PE_root, stream) })
    }
    pub unsafe fn nvshmemx_buffer_register(
        &self,
        addr: *mut ::core::ffi::c_void,
        length: usize,
    ) -> Result<::core::ffi::c_int, Unavailable> {
        let function = self
            .nvshmemx_buffer_register
            .ok_or(Unavailable {
                symbol: "nvshmemx_buffer_register",
            })?;
        Ok(unsafe { function(addr, length) })
    }
    pub unsafe fn nvshmemx_buffer_register_symmetric(
        &self,
        buf_ptr: *mut ::core::ffi::c_void,
        size: usize,
        flags: ::core::ffi::c_int,
    ) -> Result<*mut ::core::ffi::c_void, Unavailable> {
        let function = self
            .nvshmemx_buffer_register_symmetric
            .ok_or(Unavailable {
                symbol: "nvshmemx_buffer_register_symmetric",
            })?;
        Ok(unsafe { function(buf_ptr, size, flags) })
    }
    pub unsafe fn nvshmemx_buffer_unregister(
        &self,
        addr: *mut ::core::ffi::c_void,
    ) -> Result<::core::ffi::c_int, Unavailable> {
        let function = self
            .nvshmemx_buffer_unregister
            .ok_or(Unavailable {
                symbol: "nvshmemx_buffer_unregister",
            })?;
        Ok(unsafe { function(addr) })
    }
    pub unsafe fn nvshmemx_buffer_unregister_all(&self) -> Result<(), Unavailable> {
        let function = self
            .nvshmemx_buffer_unregister_all
            .ok_or(Unavailable {
                symbol: "nvshmemx_buffer_unregister_all",
            })?;
        Ok(unsafe { function() })
    }
    pub unsafe fn nvshmemx_buffer_unregister_symmetric(
        &self,
        mmap_ptr: *mut ::core::ffi::c_void,
        size: usize,
    ) -> Result<::core::ffi::c_int, Unavailable> {
        let function = self
            .nvshmemx_buffer_unregister_symmetric
            .ok_or(Unavailable {
                symbol: "nvshmemx_buffer_unregister_symmetric",
            })?;
        Ok(unsafe { function(mmap_ptr, size) })
    }
    pub unsafe fn nvshmemx_culibrary_finalize(
        &self,
        library: CUlibrary,
    ) -> Result<::core::ffi::c_int, Unavailable> {
        let function = self
            .nvshmemx_culibrary_finalize
            .ok_or(Unavailable {
                symbol: "nvshmemx_culibrary_finalize",
            })?;
        Ok(unsafe { function(library) })
    }
    pub unsafe fn nvshmemx_culibrary_init(
        &self,
        library: CUlibrary,
    ) -> Result<::core::ffi::c_int, Unavailable> {
        let function = self
            .nvshmemx_culibrary_init
            .ok_or(Unavailable {
                symbol: "nvshmemx_culibrary_init",
            })?;
        Ok(unsafe { function(library) })
    }
    pub unsafe fn nvshmemx_cumodule_finalize(
        &self,
        module: CUmodule,
    ) -> Result<::core::ffi::c_int, Unavailable> {
        let function = self
            .nvshmemx_cumodule_finalize
            .ok_or(Unavailable {
                symbol: "nvshmemx_cumodule_finalize",
            })?;
        Ok(unsafe { function(module) })
    }
    pub unsafe fn nvshmemx_cumodule_init(
        &self,
        module: CUmodule,
    ) -> Result<::core::ffi::c_int, Unavailable> {
        let function = self
            .nvshmemx_cumodule_init
            .ok_or(Unavailable {
                symbol: "nvshmemx_cumodule_init",
            })?;
        Ok(unsafe { function(module) })
    }
    pub unsafe fn nvshmemx_fcollectmem_on_stream(
        &self,
        team: nvshmem_team_t,
        dest: *mut ::core::ffi::c_void,
        src: *const ::core::ffi::c_void,
        nelem: usize,
        stream: cudaStream_t,
    ) -> Result<::core::ffi::c_int, Unavailable> {
        let function = self
            .nvshmemx_fcollectmem_on_stream
            .ok_or(Unavailable {
                symbol: "nvshmemx_fcollectmem_on_stream",
            })?;
        Ok(unsafe { function(team, dest, src, nelem, stream) })
    }
    pub unsafe fn nvshmemx_get128_nbi_on_stream(
        &self,
        dest: *mut ::core::ffi::c_void,
        source: *const ::core::ffi::c_void,
        nelems: usize,
        pe: ::core::ffi::c_int,
        cstrm: cudaStream_t,
    ) -> Result<(), Unavailable> {
        let function = self
            .nvshmemx_get128_nbi_on_stream
            .ok_or(Unavailable {
                symbol: "nvshmemx_get128_nbi_on_stream",
            })?;
        Ok(unsafe { function(dest, source, nelems, pe, cstrm) })
    }
    pub unsafe fn nvshmemx_get128_on_stream(
        &self,
        dest: *mut ::core::ffi::c_void,
        source: *const ::core::ffi::c_void,
        nelems: usize,
        pe: ::core::ffi::c_int,
        cstrm: cudaStream_t,
    ) -> Result<(), Unavailable> {
        let function = self
            .nvshmemx_get128_on_stream
            .ok_or(Unavailable {
                symbol: "nvshmemx_get128_on_stream",
            })?;
        Ok(unsafe { function(dest, source, nelems, pe, cstrm) })
    }
    pub unsafe fn nvshmemx_get16_nbi_on_stream(
        &self,
        dest: *mut ::core::ffi::c_void,
        source: *const ::core::ffi::c_void,
        nelems: usize,
        pe: ::core::ffi::c_int,
        cstrm: cudaStream_t,
    ) -> Result<(), Unavailable> {
        let function = self
            .nvshmemx_get16_nbi_on_stream
            .ok_or(Unavailable {
                symbol: "nvshmemx_get16_nbi_on_stream",
            })?;
        Ok(unsafe { function(dest, source, nelems, pe, cstrm) })
    }
    pub unsafe fn nvshmemx_get16_on_stream(
        &self,
        dest: *mut ::core::ffi::c_void,
        source: *const ::core::ffi::c_void,
        nelems: usize,
        pe: ::core::ffi::c_int,
        cstrm: cudaStream_t,
    ) -> Result<(), Unavailable> {
        let function = self
            .nvshmemx_get16_on_stream
            .ok_or(Unavailable {
                symbol: "nvshmemx_get16_on_stream",
            })?;
        Ok(unsafe { function(dest, source, nelems, pe, cstrm) })
    }
    pub unsafe fn nvshmemx_get32_nbi_on_stream(
        &self,
        dest: *mut ::core::ffi::c_void,
        source: *const ::core::ffi::c_void,
        nelems: usize,
        pe: ::core::ffi::c_int,
        cstrm: cudaStream_t,
    ) -> Result<(), Unavailable> {
        let function = self
            .nvshmemx_get32_nbi_on_stream
            .ok_or(Unavailable {
                symbol: "nvshmemx_get32_nbi_on_stream",
            })?;
        Ok(unsafe { function(dest, source, nelems, pe, cstrm) })
    }
    pub unsafe fn nvshmemx_get32_on_stream(
        &self,
        dest: *mut ::core::ffi::c_void,
        source: *const ::core::ffi::c_void,
        nelems: usize,
        pe: ::core::ffi::c_int,
        cstrm: cudaStream_t,
    ) -> Result<(), Unavailable> {
        let function = self
            .nvshmemx_get32_on_stream
            .ok_or(Unavailable {
                symbol: "nvshmemx_get32_on_stream",
            })?;
        Ok(unsafe { function(dest, source, nelems, pe, cstrm) })
    }
    pub unsafe fn nvshmemx_get64_nbi_on_stream(
        &self,
        dest: *mut ::core::ffi::c_void,
        source: *const ::core::ffi::c_void,
        nelems: usize,
        pe: ::core::ffi::c_int,
        cstrm: cudaStream_t,
    ) -> Result<(), Unavailable> {
        let function = self
            .nvshmemx_get64_nbi_on_stream
            .ok_or(Unavailable {
                symbol: "nvshmemx_get64_nbi_on_stream",
            })?;
        Ok(unsafe { function(dest, source, nelems, pe, cstrm) })
    }
    pub unsafe fn nvshmemx_get64_on_stream(
        &self,
        dest: *mut ::core::ffi::c_void,
        source: *const ::core::ffi::c_void,
        nelems: usize,
        pe: ::core::ffi::c_int,
        cstrm: cudaStream_t,
    ) -> Result<(), Unavailable> {
        let function = self
            .nvshmemx_get64_on_stream
            .ok_or(Unavailable {
                symbol: "nvshmemx_get64_on_stream",
            })?;
        Ok(unsafe { function(dest, source, nelems, pe, cstrm) })
    }
    pub unsafe fn nvshmemx_get8_nbi_on_stream(
        &self,
        dest: *mut ::core::ffi::c_void,
        source: *const ::core::ffi::c_void,
        nelems: usize,
        pe: ::core::ffi::c_int,
        cstrm: cudaStream_t,
    ) -> Result<(), Unavailable> {
        let function = self
            .nvshmemx_get8_nbi_on_stream
            .ok_or(Unavailable {
                symbol: "nvshmemx_get8_nbi_on_stream",
            })?;
        Ok(unsafe { function(dest, source, nelems, pe, cstrm) })
    }
    pub unsafe fn nvshmemx_get8_on_stream(
        &self,
        dest: *mut ::core::ffi::c_void,
        source: *const ::core::ffi::c_void,
        nelems: usize,
        pe: ::core::ffi::c_int,
        cstrm: cudaStream_t,
    ) -> Result<(), Unavailable> {
        let function = self
            .nvshmemx_get8_on_stream
            .ok_or(Unavailable {
                symbol: "nvshmemx_get8_on_stream",
            })?;
        Ok(unsafe { function(dest, source, nelems, pe, cstrm) })
    }
    pub unsafe fn nvshmemx_get_uniqueid(
        &self,
        uniqueid: *mut nvshmemx_uniqueid_t,
    ) -> Result<::core::ffi::c_int, Unavailable> {
        let function = self
            .nvshmemx_get_uniqueid
            .ok_or(Unavailable {
                symbol: "nvshmemx_get_uniqueid",
            })?;
        Ok(unsafe { function(uniqueid) })
    }
    pub unsafe fn nvshmemx_getmem_nbi_on_stream(
        &self,
        dest: *mut ::core::ffi::c_void,
        source: *const ::core::ffi::c_void,
        bytes: usize,
        pe: ::core::ffi::c_int,
        cstrm: cudaStream_t,
    ) -> Result<(), Unavailable> {
        let function = self
            .nvshmemx_getmem_nbi_on_stream
            .ok_or(Unavailable {
                symbol: "nvshmemx_getmem_nbi_on_stream",
            })?;
        Ok(unsafe { function(dest, source, bytes, pe, cstrm) })
    }
    pub unsafe fn nvshmemx_getmem_on_stream(
        &self,
        dest: *mut ::core::ffi::c_void,
        source: *const ::core::ffi::c_void,
        bytes: usize,
        pe: ::core::ffi::c_int,
        cstrm: cudaStream_t,
    ) -> Result<(), Unavailable> {
        let function = self
            .nvshmemx_getmem_on_stream
            .ok_or(Unavailable {
                symbol: "nvshmemx_getmem_on_stream",
            })?;
        Ok(unsafe { function(dest, source, bytes, pe, cstrm) })
    }
    pub unsafe fn nvshmemx_hostlib_finalize(&self) -> Result<(), Unavailable> {
        let function = self
            .nvshmemx_hostlib_finalize
            .ok_or(Unavailable {
                symbol: "nvshmemx_hostlib_finalize",
            })?;
        Ok(unsafe { function() })
    }
    pub unsafe fn nvshmemx_hostlib_init_attr(
        &self,
        flags: ::core::ffi::c_uint,
        attr: *mut nvshmemx_init_attr_t,
    ) -> Result<::core::ffi::c_int, Unavailable> {
        let function = self
            .nvshmemx_hostlib_init_attr
            .ok_or(Unavailable {
                symbol: "nvshmemx_hostlib_init_attr",
            })?;
        Ok(unsafe { function(flags, attr) })
    }
    pub unsafe fn nvshmemx_iget128_on_stream(
        &self,
        dest: *mut ::core::ffi::c_void,
        source: *const ::core::ffi::c_void,
        dst: isize,
        sst: isize,
        nelems: usize,
        pe: ::core::ffi::c_int,
        cstrm: cudaStream_t,
    ) -> Result<(), Unavailable> {
        let function = self
            .nvshmemx_iget128_on_stream
            .ok_or(Unavailable {
                symbol: "nvshmemx_iget128_on_stream",
            })?;
        Ok(unsafe { function(dest, source, dst, sst, nelems, pe, cstrm) })
    }
    pub unsafe fn nvshmemx_iget16_on_stream(
        &self,
        dest: *mut ::core::ffi::c_void,
        source: *const ::core::ffi::c_void,
        dst: isize,
        sst: isize,
        nelems: usize,
        pe: ::core::ffi::c_int,
        cstrm: cudaStream_t,
    ) -> Result<(), Unavailable> {
        let function = self
            .nvshmemx_iget16_on_stream
            .ok_or(Unavailable {
                symbol: "nvshmemx_iget16_on_stream",
            })?;
        Ok(unsafe { function(dest, source, dst, sst, nelems, pe, cstrm) })
    }
    pub unsafe fn nvshmemx_iget32_on_stream(
        &self,
        dest: *mut ::core::ffi::c_void,
        source: *const ::core::ffi::c_void,
        dst: isize,
        sst: isize,
        nelems: usize,
        pe: ::core::ffi::c_int,
        cstrm: cudaStream_t,
    ) -> Result<(), Unavailable> {
        let function = self
            .nvshmemx_iget32_on_stream
            .ok_or(Unavailable {
                symbol: "nvshmemx_iget32_on_stream",
            })?;
        Ok(unsafe { function(dest, source, dst, sst, nelems, pe, cstrm) })
    }
    pub unsafe fn nvshmemx_iget64_on_stream(
        &self,
        dest: *mut ::core::ffi::c_void,
        source: *const ::core::ffi::c_void,
        dst: isize,
        sst: isize,
        nelems: usize,
        pe: ::core::ffi::c_int,
        cstrm: cudaStream_t,
    ) -> Result<(), Unavailable> {
        let function = self
            .nvshmemx_iget64_on_stream
            .ok_or(Unavailable {
                symbol: "nvshmemx_iget64_on_stream",
            })?;
        Ok(unsafe { function(dest, source, dst, sst, nelems, pe, cstrm) })
    }
    pub unsafe fn nvshmemx_iget8_on_stream(
        &self,
        dest: *mut ::core::ffi::c_void,
        source: *const ::core::ffi::c_void,
        dst: isize,
        sst: isize,
        nelems: usize,
        pe: ::core::ffi::c_int,
        cstrm: cudaStream_t,
    ) -> Result<(), Unavailable> {
        let function = self
            .nvshmemx_iget8_on_stream
            .ok_or(Unavailable {
                symbol: "nvshmemx_iget8_on_stream",
            })?;
        Ok(unsafe { function(dest, source, dst, sst, nelems, pe, cstrm) })
    }
    pub unsafe fn nvshmemx_init_status(
        &self,
    ) -> Result<::core::ffi::c_int, Unavailable> {
        let function = self
            .nvshmemx_init_status
            .ok_or(Unavailable {
                symbol: "nvshmemx_init_status",
            })?;
        Ok(unsafe { function() })
    }
    pub unsafe fn nvshmemx_iput128_on_stream(
        &self,
        dest: *mut ::core::ffi::c_void,
        source: *const ::core::ffi::c_void,
        dst: isize,
        sst: isize,
        nelems: usize,
        pe: ::core::ffi::c_int,
        cstrm: cudaStream_t,
    ) -> Result<(), Unavailable> {
        let function = self
            .nvshmemx_iput128_on_stream
            .ok_or(Unavailable {
                symbol: "nvshmemx_iput128_on_stream",
            })?;
        Ok(unsafe { function(dest, source, dst, sst, nelems, pe, cstrm) })
    }
    pub unsafe fn nvshmemx_iput16_on_stream(
        &self,
        dest: *mut ::core::ffi::c_void,
        source: *const ::core::ffi::c_void,
        dst: isize,
        sst: isize,
        nelems: usize,
        pe: ::core::ffi::c_int,
        cstrm: cudaStream_t,
    ) -> Result<(), Unavailable> {
        let function = self
            .nvshmemx_iput16_on_stream
            .ok_or(Unavailable {
                symbol: "nvshmemx_iput16_on_stream",
            })?;
        Ok(unsafe { function(dest, source, dst, sst, nelems, pe, cstrm) })
    }
    pub unsafe fn nvshmemx_iput32_on_stream(
        &self,
        dest: *mut ::core::ffi::c_void,
        source: *const ::core::ffi::c_void,
        dst: isize,
        sst: isize,
        nelems: usize,
        pe: ::core::ffi::c_int,
        cstrm: cudaStream_t,
    ) -> Result<(), Unavailable> {
        let function = self
            .nvshmemx_iput32_on_stream
            .ok_or(Unavailable {
                symbol: "nvshmemx_iput32_on_stream",
            })?;
        Ok(unsafe { function(dest, source, dst, sst, nelems, pe, cstrm) })
    }
    pub unsafe fn nvshmemx_iput64_on_stream(
        &self,
        dest: *mut ::core::ffi::c_void,
        source: *const ::core::ffi::c_void,
        dst: isize,
        sst: isize,
        nelems: usize,
        pe: ::core::ffi::c_int,
        cstrm: cudaStream_t,
    ) -> Result<(), Unavailable> {
        let function = self
            .nvshmemx_iput64_on_stream
            .ok_or(Unavailable {
                symbol: "nvshmemx_iput64_on_stream",
            })?;
        Ok(unsafe { function(dest, source, dst, sst, nelems, pe, cstrm) })
    }
    pub unsafe fn nvshmemx_iput8_on_stream(
        &self,
        dest: *mut ::core::ffi::c_void,
        source: *const ::core::ffi::c_void,
        dst: isize,
        sst: isize,
        nelems: usize,
        pe: ::core::ffi::c_int,
        cstrm: cudaStream_t,
    ) -> Result<(), Unavailable> {
        let function = self
            .nvshmemx_iput8_on_stream
            .ok_or(Unavailable {
                symbol: "nvshmemx_iput8_on_stream",
            })?;
        Ok(unsafe { function(dest, source, dst, sst, nelems, pe, cstrm) })
    }
    pub unsafe fn nvshmemx_mc_ptr(
        &self,
        team: nvshmem_team_t,
        ptr: *const ::core::ffi::c_void,
    ) -> Result<*mut ::core::ffi::c_void, Unavailable> {
        let function = self
            .nvshmemx_mc_ptr
            .ok_or(Unavailable {
                symbol: "nvshmemx_mc_ptr",
            })?;
        Ok(unsafe { function(team, ptr) })
    }
    pub unsafe fn nvshmemx_put128_nbi_on_stream(
        &self,
        dest: *mut ::core::ffi::c_void,
        source: *const ::core::ffi::c_void,
        nelems: usize,
        pe: ::core::ffi::c_int,
        cstrm: cudaStream_t,
    ) -> Result<(), Unavailable> {
        let function = self
            .nvshmemx_put128_nbi_on_stream
            .ok_or(Unavailable {
                symbol: "nvshmemx_put128_nbi_on_stream",
            })?;
        Ok(unsafe { function(dest, source, nelems, pe, cstrm) })
    }
    pub unsafe fn nvshmemx_put128_on_stream(
        &self,
        dest: *mut ::core::ffi::c_void,
        source: *const ::core::ffi::c_void,
        nelems: usize,
        pe: ::core::ffi::c_int,
        cstrm: cudaStream_t,
    ) -> Result<(), Unavailable> {
        let function = self
            .nvshmemx_put128_on_stream
            .ok_or(Unavailable {
                symbol: "nvshmemx_put128_on_stream",
            })?;
        Ok(unsafe { function(dest, source, nelems, pe, cstrm) })
    }
    pub unsafe fn nvshmemx_put128_signal_nbi_on_stream(
        &self,
        dest: *mut ::core::ffi::c_void,
        source: *const ::core::ffi::c_void,
        nelems: usize,
        sig_addr: *mut u64,
        signal: u64,
        sig_op: ::core::ffi::c_int,
        pe: ::core::ffi::c_int,
        cstrm: cudaStream_t,
    ) -> Result<(), Unavailable> {
        let function = self
            .nvshmemx_put128_signal_nbi_on_stream
            .ok_or(Unavailable {
                symbol: "nvshmemx_put128_signal_nbi_on_stream",
            })?;
        Ok(unsafe {
            function(dest, source, nelems, sig_addr, signal, sig_op, pe, cstrm)
        })
    }
    pub unsafe fn nvshmemx_put128_signal_on_stream(
        &self,
        dest: *mut ::core::ffi::c_void,
        source: *const ::core::ffi::c_void,
        nelems: usize,
        sig_addr: *mut u64,
        signal: u64,
        sig_op: ::core::ffi::c_int,
        pe: ::core::ffi::c_int,
        cstrm: cudaStream_t,
    ) -> Result<(), Unavailable> {
        let function = self
            .nvshmemx_put128_signal_on_stream
            .ok_or(Unavailable {
                symbol: "nvshmemx_put128_signal_on_stream",
            })?;
        Ok(unsafe {
            function(dest, source, nelems, sig_addr, signal, sig_op, pe, cstrm)
        })
    }
    pub unsafe fn nvshmemx_put16_nbi_on_stream(
        &self,
        dest: *mut ::core::ffi::c_void,
        source: *const ::core::ffi::c_void,
        nelems: usize,
        pe: ::core::ffi::c_int,
        cstrm: cudaStream_t,
    ) -> Result<(), Unavailable> {
        let function = self
            .nvshmemx_put16_nbi_on_stream
            .ok_or(Unavailable {
                symbol: "nvshmemx_put16_nbi_on_stream",
            })?;
        Ok(unsafe { function(dest, source, nelems, pe, cstrm) })
    }
    pub unsafe fn nvshmemx_put16_on_stream(
        &self,
        dest: *mut ::core::ffi::c_void,
        source: *const ::core::ffi::c_void,
        nelems: usize,
        pe: ::core::ffi::c_int,
        cstrm: cudaStream_t,
    ) -> Result<(), Unavailable> {
        let function = self
            .nvshmemx_put16_on_stream
            .ok_or(Unavailable {
                symbol: "nvshmemx_put16_on_stream",
            })?;
        Ok(unsafe { function(dest, source, nelems, pe, cstrm) })
    }
    pub unsafe fn nvshmemx_put16_signal_nbi_on_stream(
        &self,
        dest: *mut ::core::ffi::c_void,
        source: *const ::core::ffi::c_void,
        nelems: usize,
        sig_addr: *mut u64,
        signal: u64,
        sig_op: ::core::ffi::c_int,
        pe: ::core::ffi::c_int,
        cstrm: cudaStream_t,
    ) -> Result<(), Unavailable> {
        let function = self
            .nvshmemx_put16_signal_nbi_on_stream
            .ok_or(Unavailable {
                symbol: "nvshmemx_put16_signal_nbi_on_stream",
            })?;
        Ok(unsafe {
            function(dest, source, nelems, sig_addr, signal, sig_op, pe, cstrm)
        })
    }
    pub unsafe fn nvshmemx_put16_signal_on_stream(
        &self,
        dest: *mut ::core::ffi::c_void,
        source: *const ::core::ffi::c_void,
        nelems: usize,
        sig_addr: *mut u64,
        signal: u64,
        sig_op: ::core::ffi::c_int,
        pe: ::core::ffi::c_int,
        cstrm: cudaStream_t,
    ) -> Result<(), Unavailable> {
        let function = self
            .nvshmemx_put16_signal_on_stream
            .ok_or(Unavailable {
                symbol: "nvshmemx_put16_signal_on_stream",
            })?;
        Ok(unsafe {
            function(dest, source, nelems, sig_addr, signal, sig_op, pe, cstrm)
        })
    }
    pub unsafe fn nvshmemx_put32_nbi_on_stream(
        &self,
        dest: *mut ::core::ffi::c_void,
        source: *const ::core::ffi::c_void,
        nelems: usize,
        pe: ::core::ffi::c_int,
        cstrm: cudaStream_t,
    ) -> Result<(), Unavailable> {
        let function = self
            .nvshmemx_put32_nbi_on_stream
            .ok_or(Unavailable {
                symbol: "nvshmemx_put32_nbi_on_stream",
            })?;
        Ok(unsafe { function(dest, source, nelems, pe, cstrm) })
    }
    pub unsafe fn nvshmemx_put32_on_stream(
        &self,
        dest: *mut ::core::ffi::c_void,
        source: *const ::core::ffi::c_void,
        nelems: usize,
        pe: ::core::ffi::c_int,
        cstrm: cudaStream_t,
    ) -> Result<(), Unavailable> {
        let function = self
            .nvshmemx_put32_on_stream
            .ok_or(Unavailable {
                symbol: "nvshmemx_put32_on_stream",
            })?;
        Ok(unsafe { function(dest, source, nelems, pe, cstrm) })
    }
    pub unsafe fn nvshmemx_put32_signal_nbi_on_stream(
        &self,
        dest: *mut ::core::ffi::c_void,
        source: *const ::core::ffi::c_void,
        nelems: usize,
        sig_addr: *mut u64,
        signal: u64,
        sig_op: ::core::ffi::c_int,
        pe: ::core::ffi::c_int,
        cstrm: cudaStream_t,
    ) -> Result<(), Unavailable> {
        let function = self
            .nvshmemx_put32_signal_nbi_on_stream
            .ok_or(Unavailable {
                symbol: "nvshmemx_put32_signal_nbi_on_stream",
            })?;
        Ok(unsafe {
            function(dest, source, nelems, sig_addr, signal, sig_op, pe, cstrm)
        })
    }
    pub unsafe fn nvshmemx_put32_signal_on_stream(
        &self,
        dest: *mut ::core::ffi::c_void,
        source: *const ::core::ffi::c_void,
        nelems: usize,
        sig_addr: *mut u64,
        signal: u64,
        sig_op: ::core::ffi::c_int,
        pe: ::core::ffi::c_int,
        cstrm: cudaStream_t,
    ) -> Result<(), Unavailable> {
        let function = self
            .nvshmemx_put32_signal_on_stream
            .ok_or(Unavailable {
                symbol: "nvshmemx_put32_signal_on_stream",
            })?;
        Ok(unsafe {
            function(dest, source, nelems, sig_addr, signal, sig_op, pe, cstrm)
        })
    }
    pub unsafe fn nvshmemx_put64_nbi_on_stream(
        &self,
        dest: *mut ::core::ffi::c_void,
        source: *const ::core::ffi::c_void,
        nelems: usize,
        pe: ::core::ffi::c_int,
        cstrm: cudaStream_t,
    ) -> Result<(), Unavailable> {
        let function = self
            .nvshmemx_put64_nbi_on_stream
            .ok_or(Unavailable {
                symbol: "nvshmemx_put64_nbi_on_stream",
            })?;
        Ok(unsafe { function(dest, source, nelems, pe, cstrm) })
    }
    pub unsafe fn nvshmemx_put64_on_stream(
        &self,
        dest: *mut ::core::ffi::c_void,
        source: *const ::core::ffi::c_void,
        nelems: usize,
        pe: ::core::ffi::c_int,
        cstrm: cudaStream_t,
    ) -> Result<(), Unavailable> {
        let function = self
            .nvshmemx_put64_on_stream
            .ok_or(Unavailable {
                symbol: "nvshmemx_put64_on_stream",
            })?;
        Ok(unsafe { function(dest, source, nelems, pe, cstrm) })
    }
    pub unsafe fn nvshmemx_put64_signal_nbi_on_stream(
        &self,
        dest: *mut ::core::ffi::c_void,
        source: *const ::core::ffi::c_void,
        nelems: usize,
        sig_addr: *mut u64,
        signal: u64,
        sig_op: ::core::ffi::c_int,
        pe: ::core::ffi::c_int,
        cstrm: cudaStream_t,
    ) -> Result<(), Unavailable> {
        let function = self
            .nvshmemx_put64_signal_nbi_on_stream
            .ok_or(Unavailable {
                symbol: "nvshmemx_put64_signal_nbi_on_stream",
            })?;
        Ok(unsafe {
            function(dest, source, nelems, sig_addr, signal, sig_op, pe, cstrm)
        })
    }
    pub unsafe fn nvshmemx_put64_signal_on_stream(
        &self,
        dest: *mut ::core::ffi::c_void,
        source: *const ::core::ffi::c_void,
        nelems: usize,
        sig_addr: *mut u64,
        signal: u64,
        sig_op: ::core::ffi::c_int,
        pe: ::core::ffi::c_int,
        cstrm: cudaStream_t,
    ) -> Result<(), Unavailable> {
        let function = self
            .nvshmemx_put64_signal_on_stream
            .ok_or(Unavailable {
                symbol: "nvshmemx_put64_signal_on_stream",
            })?;
        Ok(unsafe {
            function(dest, source, nelems, sig_addr, signal, sig_op, pe, cstrm)
        })
    }
    pub unsafe fn nvshmemx_put8_nbi_on_stream(
        &self,
        dest: *mut ::core::ffi::c_void,
        source: *const ::core::ffi::c_void,
        nelems: usize,
        pe: ::core::ffi::c_int,
        cstrm: cudaStream_t,
    ) -> Result<(), Unavailable> {
        let function = self
            .nvshmemx_put8_nbi_on_stream
            .ok_or(Unavailable {
                symbol: "nvshmemx_put8_nbi_on_stream",
            })?;
        Ok(unsafe { function(dest, source, nelems, pe, cstrm) })
    }
    pub unsafe fn nvshmemx_put8_on_stream(
        &self,
        dest: *mut ::core::ffi::c_void,
        source: *const ::core::ffi::c_void,
        nelems: usize,
        pe: ::core::ffi::c_int,
        cstrm: cudaStream_t,
    ) -> Result<(), Unavailable> {
        let function = self
            .nvshmemx_put8_on_stream
            .ok_or(Unavailable {
                symbol: "nvshmemx_put8_on_stream",
            })?;
        Ok(unsafe { function(dest, source, nelems, pe, cstrm) })
    }
    pub unsafe fn nvshmemx_put8_signal_nbi_on_stream(
        &self,
        dest: *mut ::core::ffi::c_void,
        source: *const ::core::ffi::c_void,
        nelems: usize,
        sig_addr: *mut u64,
        signal: u64,
        sig_op: ::core::ffi::c_int,
        pe: ::core::ffi::c_int,
        cstrm: cudaStream_t,
    ) -> Result<(), Unavailable> {
        let function = self
            .nvshmemx_put8_signal_nbi_on_stream
            .ok_or(Unavailable {
                symbol: "nvshmemx_put8_signal_nbi_on_stream",
            })?;
        Ok(unsafe {
            function(dest, source, nelems, sig_addr, signal, sig_op, pe, cstrm)
        })
    }
    pub unsafe fn nvshmemx_put8_signal_on_stream(
        &self,
        dest: *mut ::core::ffi::c_void,
        source: *const ::core::ffi::c_void,
        nelems: usize,
        sig_addr: *mut u64,
        signal: u64,
        sig_op: ::core::ffi::c_int,
        pe: ::core::ffi::c_int,
        cstrm: cudaStream_t,
    ) -> Result<(), Unavailable> {
        let function = self
            .nvshmemx_put8_signal_on_stream
            .ok_or(Unavailable {
                symbol: "nvshmemx_put8_signal_on_stream",
            })?;
        Ok(unsafe {
            function(dest, source, nelems, sig_addr, signal, sig_op, pe, cstrm)
        })
    }
    pub unsafe fn nvshmemx_putmem_nbi_on_stream(
        &self,
        dest: *mut ::core::ffi::c_void,
        source: *const ::core::ffi::c_void,
        bytes: usize,
        pe: ::core::ffi::c_int,
        cstrm: cudaStream_t,
    ) -> Result<(), Unavailable> {
        let function = self
            .nvshmemx_putmem_nbi_on_stream
            .ok_or(Unavailable {
                symbol: "nvshmemx_putmem_nbi_on_stream",
            })?;
        Ok(unsafe { function(dest, source, bytes, pe, cstrm) })
    }
    pub unsafe fn nvshmemx_putmem_on_stream(
        &self,
        dest: *mut ::core::ffi::c_void,
        source: *const ::core::ffi::c_void,
        bytes: usize,
        pe: ::core::ffi::c_int,
        cstrm: cudaStream_t,
    ) -> Result<(), Unavailable> {
        let function = self
            .nvshmemx_putmem_on_stream
            .ok_or(Unavailable {
                symbol: "nvshmemx_putmem_on_stream",
            })?;
        Ok(unsafe { function(dest, source, bytes, pe, cstrm) })
    }
    pub unsafe fn nvshmemx_putmem_signal_nbi_on_stream(
        &self,
        dest: *mut ::core::ffi::c_void,
        source: *const ::core::ffi::c_void,
        bytes: usize,
        sig_addr: *mut u64,
        signal: u64,
        sig_op: ::core::ffi::c_int,
        pe: ::core::ffi::c_int,
        cstrm: cudaStream_t,
    ) -> Result<(), Unavailable> {
        let function = self
            .nvshmemx_putmem_signal_nbi_on_stream
            .ok_or(Unavailable {
                symbol: "nvshmemx_putmem_signal_nbi_on_stream",
            })?;
        Ok(unsafe { function(dest, source, bytes, sig_addr, signal, sig_op, pe, cstrm) })
    }
    pub unsafe fn nvshmemx_putmem_signal_on_stream(
        &self,
        dest: *mut ::core::ffi::c_void,
        source: *const ::core::ffi::c_void,
        bytes: usize,
        sig_addr: *mut u64,
        signal: u64,
        sig_op: ::core::ffi::c_int,
        pe: ::core::ffi::c_int,
        cstrm: cudaStream_t,
    ) -> Result<(), Unavailable> {
        let function = self
            .nvshmemx_putmem_signal_on_stream
            .ok_or(Unavailable {
                symbol: "nvshmemx_putmem_signal_on_stream",
            })?;
        Ok(unsafe { function(dest, source, bytes, sig_addr, signal, sig_op, pe, cstrm) })
    }
    pub unsafe fn nvshmemx_quiet_on_stream(
        &self,
        cstrm: cudaStream_t,
    ) -> Result<(), Unavailable> {
        let function = self
            .nvshmemx_quiet_on_stream
            .ok_or(Unavailable {
                symbol: "nvshmemx_quiet_on_stream",
            })?;
        Ok(unsafe { function(cstrm) })
    }
    pub unsafe fn nvshmemx_set_attr_mpi_comm_args(
        &self,
        mpi_comm: *mut ::core::ffi::c_void,
        nvshmem_attr: *mut nvshmemx_init_attr_t,
    ) -> Result<::core::ffi::c_int, Unavailable> {
        let function = self
            .nvshmemx_set_attr_mpi_comm_args
            .ok_or(Unavailable {
                symbol: "nvshmemx_set_attr_mpi_comm_args",
            })?;
        Ok(unsafe { function(mpi_comm, nvshmem_attr) })
    }
    pub unsafe fn nvshmemx_set_attr_uniqueid_args(
        &self,
        myrank: ::core::ffi::c_int,
        nranks: ::core::ffi::c_int,
        uniqueid: *const nvshmemx_uniqueid_t,
        attr: *mut nvshmemx_init_attr_t,
    ) -> Result<::core::ffi::c_int, Unavailable> {
        let function = self
            .nvshmemx_set_attr_uniqueid_args
            .ok_or(Unavailable {
                symbol: "nvshmemx_set_attr_uniqueid_args",
            })?;
        Ok(unsafe { function(myrank, nranks, uniqueid, attr) })
    }
    pub unsafe fn nvshmemx_signal_op_on_stream(
        &self,
        sig_addr: *mut u64,
        signal: u64,
        sig_op: ::core::ffi::c_int,
        pe: ::core::ffi::c_int,
        cstrm: cudaStream_t,
    ) -> Result<(), Unavailable> {
        let function = self
            .nvshmemx_signal_op_on_stream
            .ok_or(Unavailable {
                symbol: "nvshmemx_signal_op_on_stream",
            })?;
        Ok(unsafe { function(sig_addr, signal, sig_op, pe, cstrm) })
    }
    pub unsafe fn nvshmemx_signal_wait_until_on_stream(
        &self,
        sig_addr: *mut u64,
        cmp: ::core::ffi::c_int,
        cmp_value: u64,
        cstream: cudaStream_t,
    ) -> Result<(), Unavailable> {
        let function = self
            .nvshmemx_signal_wait_until_on_stream
            .ok_or(Unavailable {
                symbol: "nvshmemx_signal_wait_until_on_stream",
            })?;
        Ok(unsafe { function(sig_addr, cmp, cmp_value, cstream) })
    }
    pub unsafe fn nvshmemx_sync_all_on_stream(
        &self,
        arg1: cudaStream_t,
    ) -> Result<(), Unavailable> {
        let function = self
            .nvshmemx_sync_all_on_stream
            .ok_or(Unavailable {
                symbol: "nvshmemx_sync_all_on_stream",
            })?;
        Ok(unsafe { function(arg1) })
    }
    pub unsafe fn nvshmemx_team_get_uniqueid(
        &self,
        uniqueid: *mut nvshmemx_team_uniqueid_t,
    ) -> Result<::core::ffi::c_int, Unavailable> {
        let function = self
            .nvshmemx_team_get_uniqueid
            .ok_or(Unavailable {
                symbol: "nvshmemx_team_get_uniqueid",
            })?;
        Ok(unsafe { function(uniqueid) })
    }
    pub unsafe fn nvshmemx_team_init(
        &self,
        team: *mut nvshmem_team_t,
        config: *mut nvshmem_team_config_t,
        config_mask: ::core::ffi::c_long,
        npes: ::core::ffi::c_int,
        pe_idx_in_team: ::core::ffi::c_int,
    ) -> Result<::core::ffi::c_int, Unavailable> {
        let function = self
            .nvshmemx_team_init
            .ok_or(Unavailable {
                symbol: "nvshmemx_team_init",
            })?;
        Ok(unsafe { function(team, config, config_mask, npes, pe_idx_in_team) })
    }
    pub unsafe fn nvshmemx_team_sync_on_stream(
        &self,
        team: nvshmem_team_t,
        stream: cudaStream_t,
    ) -> Result<::core::ffi::c_int, Unavailable> {
        let function = self
            .nvshmemx_team_sync_on_stream
            .ok_or(Unavailable {
                symbol: "nvshmemx_team_sync_on_stream",
            })?;
        Ok(unsafe { function(team, stream) })
    }
    pub unsafe fn nvshmemx_vendor_get_version_info(
        &self,
        major: *mut ::core::ffi::c_int,
        minor: *mut ::core::ffi::c_int,
        patch: *mut ::core::ffi::c_int,
    ) -> Result<(), Unavailable> {
        let function = self
            .nvshmemx_vendor_get_version_info
            .ok_or(Unavailable {
                symbol: "nvshmemx_vendor_get_version_info",
            })?;
        Ok(unsafe { function(major, minor, patch) })
    }
}
