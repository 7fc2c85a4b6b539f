//! What each backend can do, as this suite expects it. A case that needs what is listed here must run; a backend that
//! has more or less than its line fails `capabilities::as_listed`.

use std::time::Duration;

use symm::{Backend, Capabilities, DType, Error, Fault, Field};

use super::group::INIT_TIMEOUT;
use super::{Ctx, Outcome, Stop};

/// Capabilities that every PE has; [`peer_load_store`] depends on the PE.
pub(crate) fn capabilities(backend: &str, nodes: u32) -> Capabilities {
    let all = Capabilities::DETERMINISTIC | Capabilities::RECOVER;
    match backend {
        "host" if nodes > 1 => all | Capabilities::WITHOUT | Capabilities::NETWORK,
        "host" => all | Capabilities::WITHOUT,
        "cuda" => all | Capabilities::WITHOUT | Capabilities::GRAPH,
        "nvshmem" if nodes > 1 => all | Capabilities::GRAPH | Capabilities::NETWORK,
        "nvshmem" => all | Capabilities::GRAPH,
        _ => Capabilities::empty(),
    }
}

/// Whether two PEs of `n` are on one node.
pub(crate) fn direct(a: usize, b: usize, n: usize, nodes: u32) -> bool {
    let node = |pe: usize| pe * nodes as usize / n;
    node(a) == node(b)
}

/// Whether a PE reaches some peer by load and store; alone, it does.
pub(crate) fn peer_load_store(pe: usize, n: usize, nodes: u32) -> bool {
    n == 1 || (0..n).any(|p| p != pe && direct(p, pe, n, nodes))
}

/// Whether plans of the context's team publish their splits in every call.
pub(crate) fn publishes_splits(ctx: &Ctx) -> bool {
    let config = ctx.world.config();
    let reached = |rank| direct(ctx.pe(0), ctx.pe(rank), ctx.world.n_pes(), config.host_nodes);
    match ctx.world.backend().name() {
        "host" => !config.host_plans,
        "nvshmem" => !(0..ctx.n()).all(reached),
        _ => false,
    }
}

/// The fault of a member that gave another value than rank 0.
pub(crate) fn differs(what: Field, expected: usize, got: usize) -> Fault {
    Fault::Differs { what, expected: expected as u64, got: got as u64 }
}

/// The same of two types.
pub(crate) fn another_dtype(expected: DType, got: DType) -> Fault {
    differs(Field::DType, expected.code() as usize, got.code() as usize)
}

/// The same where the numbers follow from the operation's arguments in a way of its own: any that differ.
pub(crate) fn another_length(ctx: &Ctx) -> Fault {
    match ctx.stream.synchronize() {
        Err(Error::PeerInvalid { what: Fault::Differs { what: Field::Length, expected, got }, .. })
            if expected != got =>
        {
            differs(Field::Length, expected as usize, got as usize)
        }
        _ => differs(Field::Length, 0, 0),
    }
}

/// The argument that is refused where input and output have different types.
pub(crate) const DTYPES: &str = "dtype of input and output";

/// The fault of a PE whose argument was refused; [`as_told`] compares the name alone where the case knows no value.
pub(crate) fn refused(name: &'static str) -> Fault {
    Fault::Argument { name, got: None }
}

/// The same with its value.
pub(crate) fn refused_value(name: &'static str, got: usize) -> Fault {
    Fault::Argument { name, got: Some(got as i128) }
}

/// What a PE was told, without a value that `want` leaves open.
pub(crate) fn as_told(told: symm::Result<()>, want: &Error) -> symm::Result<()> {
    let open = matches!(want, Error::PeerInvalid { what: Fault::Argument { got: None, .. }, .. });
    told.map_err(|e| match e {
        Error::PeerInvalid { op, pe, what: Fault::Argument { name, .. } } if open => {
            Error::PeerInvalid { op, pe, what: refused(name) }
        }
        e => e,
    })
}

/// The deadline of rendezvous and recover, as the harness set it for the case.
pub(crate) fn init_timeout() -> Outcome<Duration> {
    let ms = std::env::var(INIT_TIMEOUT).ok().and_then(|ms| ms.parse().ok());
    Ok(Duration::from_millis(ms.ok_or_else(|| Stop::fail(format!("{INIT_TIMEOUT} is not set")))?))
}
