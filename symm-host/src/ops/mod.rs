//! The operations, as tasks of streams.

mod exchange;
mod one_sided;
mod order;
mod pad;
mod plan;
mod reduce;
mod take;
mod watch;

pub(crate) use exchange::{ExchangeTask, Scratch};
pub(crate) use one_sided::{GetTask, put};
pub(crate) use order::{BarrierTask, QuietTask, fence};
pub(crate) use pad::{PutSignalTask, WaitSignalTask, WaitUntilTask};
pub(crate) use plan::Plan;
