//! The table.

mod all_to_all;
mod barrier;
mod blocks;
mod broadcast;
mod calls;
mod capabilities;
mod errors;
mod handle;
mod lifetime;
mod overlaps;
mod plan_errors;
mod plans;
mod recover;
mod reduce;
mod reduce_errors;
mod rma;
mod rules;
mod signal;
mod streams;
mod sums;
mod survivors;
mod symmetry;
mod take;
mod take_errors;
mod takes;
mod teams;
mod timeouts;
mod vdev;
mod vdev_2d;
mod words;

use crate::harness::Case;

/// Every case, in the order in which they run.
pub(crate) fn all() -> Vec<Case> {
    [
        capabilities::CASES,
        handle::CASES,
        rma::CASES,
        signal::CASES,
        barrier::CASES,
        all_to_all::CASES,
        vdev::CASES,
        vdev_2d::CASES,
        blocks::CASES,
        broadcast::CASES,
        reduce::CASES,
        reduce_errors::CASES,
        plans::CASES,
        plan_errors::CASES,
        take::CASES,
        take_errors::CASES,
        words::CASES,
        errors::CASES,
        overlaps::CASES,
        rules::CASES,
        recover::CASES,
        survivors::CASES,
        symmetry::CASES,
        streams::CASES,
        lifetime::CASES,
        teams::CASES,
        timeouts::CASES,
        calls::CASES,
    ]
    .concat()
}
