//! Exchanges whose members are in different calls, over threads and over sockets; small ones and along a tree.

mod worlds;

use std::sync::Arc;
use std::time::Duration;

use symm_core::bootstrap::{Bootstrap, Group};
use symm_core::{Deadline, Error, Pe};

use worlds::{both, each, group, long};

/// Members in different calls, with parts and without: all are told of one that is in another, and the next exchange works.
#[test]
fn calls_that_differ_are_named_by_all() {
    let call = |g: &Group, op| match op {
        "barrier" => g.barrier(op, long()),
        op => g.all_gather(op, &[7; 3], long()).map(drop),
    };
    for (n, odd) in [(2, 1), (3, 0), (12, 1), (12, 4), (12, 0)] {
        both(n, |world| {
            let groups: Vec<Group> = world.iter().map(group).collect();
            for (rest, other) in [("gather", "barrier"), ("barrier", "gather"), ("gather", "more")] {
                let meet = |b: &Arc<dyn Bootstrap>| {
                    let me = b.pe().index();
                    let (ours, theirs) = if me == odd { (other, rest) } else { (rest, other) };
                    let said = call(&groups[me], ours).expect_err("not the same call").to_string();
                    let who = if me == odd { String::new() } else { format!("PE {odd}") };
                    let text = format!("{who} is in {theirs}, this PE in {ours}: not every member");
                    assert!(said.contains(&text), "PE {me} of {n}: {said}");
                };
                each(&world, meet);
                each(&world, |b| call(&groups[b.pe().index()], "again").expect("all come"));
            }
        });
    }
}

/// PE 1 comes when the others have given up, with another call, or with the same.
#[test]
fn who_gave_up_along_a_tree_says_in_which_call() {
    both(12, |world| {
        let groups: Vec<Group> = world.iter().map(group).collect();
        for late in [1, 4] {
            for op in ["other", "same"] {
                each(&world, |b| {
                    let (me, half) = (b.pe().index(), Deadline::after(Duration::from_millis(300)));
                    if me != late {
                        let e = groups[me].all_gather("same", b"", half).expect_err("one is late");
                        assert!(
                            matches!(&e, Error::Timeout { late: pes, .. } if pes.contains(&Pe::from(late))),
                            "{e}"
                        );
                    }
                });
                let e = groups[late]
                    .all_gather(op, b"", Deadline::after(Duration::from_millis(50)))
                    .expect_err("the others gave up");
                let differs = e.to_string().contains(" is in same, this PE in other: ");
                assert!(
                    if op == "other" { differs } else { matches!(e, Error::Timeout { .. }) },
                    "{op}: {e}"
                );
            }
        }
    });
}
