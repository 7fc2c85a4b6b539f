//! What each backend can do, as this suite expects it. A case that needs what is listed here must run; a backend that
//! has more or less than its line fails `capabilities::as_listed`.

use symm::{Backend, Capabilities, DType, Error, Fault, Field};

use super::Ctx;

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

/// The fault of a member that gave another value than rank 0. The kernels do not say what differs.
pub(crate) fn differs(ctx: &Ctx, what: Field, expected: usize, got: usize) -> Fault {
    let [expected, got] = [expected, got].map(|n| n as u64);
    if ctx.world.backend().name() == "host" { Fault::Differs { what, expected, got } } else { Fault::Form }
}

/// The same of two types.
pub(crate) fn another_dtype(ctx: &Ctx, expected: DType, got: DType) -> Fault {
    differs(ctx, Field::DType, expected.code() as usize, got.code() as usize)
}

/// The same where the numbers follow from the operation's arguments in a way of its own: any that differ.
pub(crate) fn another_length(ctx: &Ctx) -> Fault {
    match ctx.stream.synchronize() {
        Err(Error::PeerInvalid { what: Fault::Differs { what: Field::Length, expected, got }, .. })
            if expected != got =>
        {
            differs(ctx, Field::Length, expected as usize, got as usize)
        }
        _ => differs(ctx, Field::Length, 0, 0),
    }
}
