//! The operations of `symm bench`, of which the benches take what they measure.

#[path = "../../src/bin/symm/bench/buffers.rs"]
pub(crate) mod buffers;
#[path = "../../src/bin/symm/bench/case.rs"]
pub(crate) mod case;
#[path = "../../src/bin/symm/bench/check.rs"]
pub(crate) mod check;
#[path = "../../src/bin/symm/bench/data.rs"]
pub(crate) mod data;
#[path = "../../src/bin/symm/bench/enqueue.rs"]
pub(crate) mod enqueue;
#[path = "../../src/bin/symm/bench/op.rs"]
pub(crate) mod op;
#[path = "../../src/bin/symm/bench/splits.rs"]
pub(crate) mod splits;
