//! The operations, as tasks of streams.

mod exchange;
mod one_sided;
mod order;
mod pad;
mod reduce;
mod watch;

pub(crate) use exchange::{ExchangeTask, Plan, Scratch};
pub(crate) use one_sided::{GetTask, put};
pub(crate) use order::{BarrierTask, QuietTask, fence};
pub(crate) use pad::{PutSignalTask, WaitSignalTask, WaitUntilTask};
