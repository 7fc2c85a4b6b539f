//! Set-up of multicast memory: one address whose stores reach every member's copy, and whose loads can add all of them up.
//!
//! The driver's calls are collective in effect but not in form: an object is created by one member, joined by all, and
//! useless unless all succeed; a member that fails half-way must not leave the others waiting, or with half of it. So this is
//! a sequence of stages with a gather of results after each: all go on, or all undo what they did, name the first member that
//! failed, and work without multicast ([`set_up`]).
//!
//! | stage | who | what |
//! |---|---|---|
//! | [`Support`](Stage::Support) | all | says whether it can and may; nothing has been created |
//! | [`Create`](Stage::Create) | rank 0 | the object, and what others need to import it |
//! | [`Import`](Stage::Import) | all | take over the object, add the own device |
//! | [`Bind`](Stage::Bind) | all | the own memory, once all devices are in |
//! | [`Map`](Stage::Map) | all | the address |
//!
//! The calls are behind a trait, [`Driver`]: no backend of this version makes them, since none was tested where a fault of
//! one job can take multicast from the whole machine. The sequence is tested with a driver that fails at every stage.

mod setup;
#[cfg(test)]
mod tests;

pub use setup::set_up;

use std::fmt;
use std::sync::Arc;

use crate::backend::Export;
use crate::pe::Pe;

/// Where a set-up stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, serde::Serialize, serde::Deserialize)]
pub enum Stage {
    /// Whether every member can and may, with a device of its own.
    Support,
    /// Rank 0 creates and exports the object.
    Create,
    /// The object is imported and the device added to it.
    Import,
    /// Memory is bound.
    Bind,
    /// The object is mapped.
    Map,
}

impl fmt::Display for Stage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Stage::Support => "support",
            Stage::Create => "create",
            Stage::Import => "import",
            Stage::Bind => "bind",
            Stage::Map => "map",
        })
    }
}

/// A call of the driver that failed.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Failed {
    /// The call, its code and the driver's text.
    pub why: String,
    /// Whether the same sequence may succeed later: a fabric that is still starting up (`CUDA_ERROR_SYSTEM_NOT_READY`). All
    /// members then begin anew together.
    pub transient: bool,
}

/// The driver's calls on multicast objects of one device.
pub trait Driver: Send + Sync {
    /// A reference to an object: what `create` or `import` gave.
    type Object: Send;
    /// An object's address range in this process.
    type Mapping: Send;
    /// Memory of this PE's device that can be bound.
    type Memory;

    /// Creates an object for so many devices and bytes.
    fn create(&self, devices: usize, bytes: usize) -> Result<Self::Object, Failed>;
    /// What other processes, and this one, need to import the object.
    fn export(&self, object: &Self::Object) -> Result<Export, Failed>;
    /// Takes over an object.
    fn import(&self, export: &Export) -> Result<Self::Object, Failed>;
    /// Adds this PE's device to the object.
    fn add_device(&self, object: &Self::Object) -> Result<(), Failed>;
    /// Binds memory to the object; every device has been added.
    fn bind(&self, object: &Self::Object, memory: &Self::Memory, bytes: usize) -> Result<(), Failed>;
    /// Maps the object.
    fn map(&self, object: &Self::Object, bytes: usize) -> Result<Self::Mapping, Failed>;

    /// Unmaps. What these three cannot do stays behind until the process ends; they must not block.
    fn unmap(&self, mapping: Self::Mapping) -> Result<(), Failed>;
    /// Undoes `bind`: before the object, and before the memory, is released.
    fn unbind(&self, object: &Self::Object, bytes: usize) -> Result<(), Failed>;
    /// Gives a reference back.
    fn release(&self, object: Self::Object) -> Result<(), Failed>;
}

/// Why a team works without multicast: the same on every member.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fallback {
    /// The lowest rank's PE that could not.
    pub pe: Pe,
    /// Where.
    pub stage: Stage,
    /// Its reason.
    pub why: String,
}

impl fmt::Display for Fallback {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "no multicast: PE {} failed in {}: {}", self.pe, self.stage, self.why)
    }
}

/// What a set-up ends with, on every member alike.
pub enum Outcome<D: Driver> {
    /// Every member has it.
    Ready(Multicast<D>),
    /// No member has it, and nothing is left of the attempt.
    Fallback(Fallback),
}

impl<D: Driver> fmt::Debug for Outcome<D> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Outcome::Ready(multicast) => f.debug_tuple("Ready").field(multicast).finish(),
            Outcome::Fallback(fallback) => f.debug_tuple("Fallback").field(fallback).finish(),
        }
    }
}

/// A member's part of multicast memory. Dropped before the memory that is bound to it.
pub struct Multicast<D: Driver> {
    driver: Arc<D>,
    bytes: usize,
    /// Rank 0's first reference, until all have imported the object.
    created: Option<D::Object>,
    object: Option<D::Object>,
    bound: bool,
    mapping: Option<D::Mapping>,
}

impl<D: Driver> Multicast<D> {
    /// The address range; there is one once the set-up is [`Outcome::Ready`].
    pub fn mapping(&self) -> Option<&D::Mapping> {
        self.mapping.as_ref()
    }
}

impl<D: Driver> fmt::Debug for Multicast<D> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Multicast")
            .field("bytes", &self.bytes)
            .field("bound", &self.bound)
            .finish_non_exhaustive()
    }
}

/// Undoes in the order that drivers ask for: address, binding, references.
impl<D: Driver> Drop for Multicast<D> {
    fn drop(&mut self) {
        let say = |what: &str, done: Result<(), Failed>| {
            if let Err(e) = done {
                log::warn!("{}: multicast clean-up, {what}: {}", crate::pe::here(), e.why);
            }
        };
        if let Some(mapping) = self.mapping.take() {
            say("unmap", self.driver.unmap(mapping));
        }
        if let Some(object) = self.object.take() {
            if self.bound {
                say("unbind", self.driver.unbind(&object, self.bytes));
            }
            say("release", self.driver.release(object));
        }
        if let Some(object) = self.created.take() {
            say("release", self.driver.release(object));
        }
    }
}
