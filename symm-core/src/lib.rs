//! The model of symm-mem without any backend.
//!
//! | module | what |
//! |---|---|
//! | [`pe`], [`dtype`], [`error`], [`deadline`], [`capability`], [`config`] | words of the whole project |
//! | [`bootstrap`] | how processes find each other; collectives over small messages |
//! | [`backend`] | the trait that backends implement, and the descriptors they get |
//! | [`layout`] | pads, contexts and headers in symmetric memory |
//! | [`status`] | the status word of a team |
//! | [`splits`] | all validation of splits, the verdict, and who pushes which rows where |
//! | [`multicast`] | set-up of multicast memory: all members or none |
//! | [`oracle`] | plain results that backends are compared with, bit for bit |
//! | [`model`] | world, team, tensor, handle, context: generic over the backend |
//! | [`moe`] | routing traces and plans of the MoE job |

#![warn(clippy::print_stdout, clippy::print_stderr, clippy::exit)]

pub mod backend;
pub mod bootstrap;
pub mod capability;
pub mod config;
pub mod deadline;
pub mod dtype;
pub mod error;
pub mod layout;
mod misspelt;
pub mod model;
pub mod moe;
pub mod multicast;
pub mod oracle;
pub mod pe;
mod refused;
pub mod splits;
pub mod status;

pub use backend::{Addr, Backend};
pub use config::Config;
pub use deadline::Deadline;
pub use dtype::{DType, Element};
pub use error::{Error, Fault, Field, LogEntry, Result};
pub use pe::Pe;
