//! What a backend can do, as data; the conformance suite tests each claim.

bitflags::bitflags! {
    /// Capabilities of a backend on this machine.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
    pub struct Capabilities: u32 {
        /// Some peers' memory is reached by load and store; `buffer_ptr(rank)` is `Some` for those.
        const PEER_LOAD_STORE = 1;
        /// Handles carry a multicast pointer.
        const MULTICAST = 1 << 1;
        /// Users' kernels can issue operations.
        const DEVICE_INITIATED = 1 << 2;
        /// Operations can be captured into a graph and replayed.
        const GRAPH = 1 << 3;
        /// Results equal the oracles bit for bit.
        const DETERMINISTIC = 1 << 4;
        /// A team works again after `recover`, from a failure that every member survived.
        const RECOVER = 1 << 5;
        /// Some peers are reached by the network (or its stand-in) only.
        const NETWORK = 1 << 6;
        /// The members that live can go on `without` one that died: its end proves that its writes have ended.
        const WITHOUT = 1 << 7;
    }
}
