//! CUDA kernels of symm-mem, as images that need no compiler at run time.
//!
//! | module | what |
//! |---|---|
//! | [`image()`] | the images that this build carries, and their entry points |
//! | [`network`] | the relocatable images for members that NVSHMEM's transports reach |
//! | [`params`] | parameters of the kernels, with the layout that `include/symm/params.cuh` has |
//! | [`geometry`] | how many blocks and threads a launch takes |
//!
//! Users' own kernels include `include/symm/handle.cuh`: a handle, put, get, signals, slots, a barrier, each wait with a deadline. Below
//! it are memory operations named by order, scope and width, status records and warp copies.

pub mod geometry;
pub mod image;
pub mod network;
pub mod params;

pub use image::{ENTRIES, Entry, built, image};
