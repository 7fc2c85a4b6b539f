//! Descriptors of one-sided operations. All offsets are in bytes and were checked by the model.

use std::time::Duration;

use super::Addr;

/// How a signal is updated.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum SignalOp {
    /// Stores the value.
    Set,
    /// Adds the value, wrapping; atomic with respect to other adds.
    Add,
}

/// A comparison of a signal with a value, both u64.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u32)]
pub enum Cmp {
    /// Equal.
    Eq = 0,
    /// Not equal.
    Ne = 1,
    /// Greater than.
    Gt = 2,
    /// Less than or equal.
    Le = 3,
    /// Less than.
    Lt = 4,
    /// Greater than or equal.
    Ge = 5,
}

impl Cmp {
    /// All six, in the order of NVSHMEM's header values.
    pub const ALL: [Cmp; 6] = [Cmp::Eq, Cmp::Ne, Cmp::Gt, Cmp::Le, Cmp::Lt, Cmp::Ge];

    /// Whether `signal cmp value`.
    pub fn holds(self, signal: u64, value: u64) -> bool {
        match self {
            Cmp::Eq => signal == value,
            Cmp::Ne => signal != value,
            Cmp::Gt => signal > value,
            Cmp::Le => signal <= value,
            Cmp::Lt => signal < value,
            Cmp::Ge => signal >= value,
        }
    }
}

/// An update of a user signal on the destination, after the data of its put.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SignalUpdate {
    /// Index of the user signal in the destination's pad.
    pub index: usize,
    /// How.
    pub op: SignalOp,
    /// With what.
    pub value: u64,
}

/// A put: `bytes` bytes from `src` to `offset` in `rank`'s data area; then the signal, if any.
#[derive(Clone, Copy, Debug)]
pub struct Put {
    /// Destination's rank.
    pub rank: usize,
    /// First byte in the destination's allocation data area.
    pub offset: usize,
    /// Source, in memory of this PE.
    pub src: Addr,
    /// Bytes; 0 is legal and sends only the signal.
    pub bytes: usize,
    /// The signal.
    pub signal: Option<SignalUpdate>,
}

/// A get: `bytes` bytes from `offset` in `rank`'s data area to `dst`.
#[derive(Clone, Copy, Debug)]
pub struct Get {
    /// Source's rank.
    pub rank: usize,
    /// First byte in the source's allocation data area.
    pub offset: usize,
    /// Destination, in memory of this PE.
    pub dst: Addr,
    /// Bytes; 0 is legal.
    pub bytes: usize,
    /// Deadline (network peers).
    pub limit: Duration,
}

/// `put_signal` to, or `wait_signal` from, a rank on a channel of the pad.
#[derive(Clone, Copy, Debug)]
pub struct PadSignal {
    /// The peer.
    pub rank: usize,
    /// Channel, below the pad's number of channels.
    pub channel: usize,
    /// Deadline.
    pub limit: Duration,
}

/// A wait until a user signal of this PE compares.
#[derive(Clone, Copy, Debug)]
pub struct WaitUntil {
    /// Index of the user signal.
    pub index: usize,
    /// Comparison.
    pub cmp: Cmp,
    /// Value compared with.
    pub value: u64,
    /// Deadline.
    pub limit: Duration,
}
