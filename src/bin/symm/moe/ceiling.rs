//! The ceiling that a dispatch is compared with: the same bytes as plain copies, by all PEs at once.

use symm::{Backend, Handle, Result, Span, World};

/// Where this PE copies its rows to.
///
/// On a host: to memory of its own, so that as many processes copy as there are PEs. On GPUs: to its right neighbour,
/// by the copy engine, so that every GPU sends and receives at once; to itself where that one is not direct.
pub(super) fn target(world: &World, output: &Handle, elements: usize) -> Result<Span> {
    let right = (output.rank() + 1) % output.world_size();
    if world.backend().name() == "host" || !output.is_direct(right)? {
        return output.span().slice(0, elements);
    }
    output.get_remote_tensor(right, &[elements], output.dtype())
}
