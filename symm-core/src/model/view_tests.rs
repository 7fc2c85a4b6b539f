use std::collections::HashMap;
use std::sync::Mutex;

use super::*;
use crate::bootstrap::Local;

const LONG: Duration = Duration::from_secs(20);
const SHORT: Duration = Duration::from_millis(100);

fn all(n: usize) -> Vec<Pe> {
    (0..n).map(Pe::from).collect()
}

fn lineage(boot: &Arc<Local>, n: usize) -> Lineage {
    let boot: Arc<dyn Bootstrap> = boot.clone();
    Lineage::new(&boot, 77, &all(n))
}

fn view(number: u64, members: &[usize]) -> View {
    View { number, members: members.iter().copied().map(Pe::from).collect() }
}

/// Runs `body` on a thread for each PE.
fn each(n: usize, body: impl Fn(usize, &Arc<Local>, &Lineage) + Sync) {
    // Owned out here, since the last owner's drop is a death.
    let world = Local::world(n);
    std::thread::scope(|scope| {
        for (pe, boot) in world.iter().enumerate() {
            let body = &body;
            scope.spawn(move || body(pe, boot, &lineage(boot, n)));
        }
    });
}

#[test]
fn nobody_is_left_out_without_a_death() {
    each(3, |_, _, l| {
        for number in 1..4 {
            assert_eq!(l.next(&[], Deadline::after(LONG)), Ok(view(number, &[0, 1, 2])));
        }
    });
}

#[test]
fn the_dead_are_left_out_whoever_they_are() {
    for dead in 0..4 {
        each(4, |pe, boot, l| {
            if pe == dead {
                return boot.die();
            }
            let rest: Vec<usize> = (0..4).filter(|pe| *pe != dead).collect();
            // Told of it, or not.
            let gone = if pe == 1 { vec![Pe::from(dead)] } else { Vec::new() };
            while boot.ended().is_empty() {
                std::thread::sleep(LOOK);
            }
            assert_eq!(l.next(&gone, Deadline::after(LONG)), Ok(view(1, &rest)));
        });
    }
}

#[test]
fn who_lives_is_never_left_out() {
    each(3, |pe, _, l| match l.next(&[Pe(2)][..usize::from(pe < 2)], Deadline::after(SHORT)) {
        Err(Error::Timeout { op: "without", late, .. }) if pe < 2 => assert_eq!(late, [Pe(2)]),
        // The silent one does nothing wrong; nobody answered it.
        Err(Error::Timeout { late, .. }) => assert_eq!(late, [Pe(0)]),
        other => panic!("PE {pe}: {other:?}"),
    });
}

#[test]
fn who_comes_late_meets_the_next_call() {
    each(3, |pe, _, l| {
        if pe == 2 {
            std::thread::sleep(4 * SHORT);
        } else {
            let late = [Pe::from(2), Pe::from(0)][pe];
            match l.next(&[], Deadline::after(SHORT)) {
                Err(Error::Timeout { late: l, .. }) => assert_eq!(l, [late]),
                other => panic!("PE {pe}: {other:?}"),
            }
        }
        assert_eq!(l.next(&[], Deadline::after(LONG)), Ok(view(1, &[0, 1, 2])));
        // Nothing of the calls that gave up is taken for one of these.
        assert_eq!(l.next(&[], Deadline::after(LONG)), Ok(view(2, &[0, 1, 2])));
    });
}

/// Receives the proposals as PE 0 would and sends a decision to PE 1 alone.
fn decide_for_one(boot: &Local, l: &Lineage) {
    for pe in [Pe(1), Pe(2)] {
        let m = boot.recv(pe, l.tag(false), Deadline::after(LONG)).expect("a proposal");
        assert_eq!(decode::<Proposal>(OP, pe, &m.payload).map(|p| p.last), Ok(0));
    }
    let decision = Decision { number: 1, members: vec![0, 1, 2] };
    boot.send(Pe(1), l.tag(true), &encode(&decision), &[]).expect("PE 1 lives");
}

#[test]
fn a_decision_that_reached_one_only_is_followed_by_one_for_both() {
    each(3, |pe, boot, l| match pe {
        0 => {
            decide_for_one(boot, l);
            boot.die();
        }
        _ => {
            let mut got = l.next(&[], Deadline::after(LONG)).expect("a view");
            if pe == 1 && got.number == 1 {
                // It went on with PE 0, which died then.
                got = l.next(&[Pe(0)], Deadline::after(LONG)).expect("a view");
            }
            assert_eq!(got, view(2, &[1, 2]));
        }
    });
}

/// An Xorshift generator.
fn random(state: &mut u64) -> u64 {
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    *state
}

type Taken = (usize, Vec<Pe>);

#[test]
fn survivors_of_deaths_at_any_moment_agree() {
    const N: usize = 5;
    for seed in 1..60_u64 {
        // By number: who took the view, and its members.
        let taken: Mutex<HashMap<u64, Vec<Taken>>> = Mutex::default();
        let doomed: Vec<usize> =
            (0..N).filter(|pe| (seed >> pe) & 1 == 1 && *pe != (seed as usize) % N).collect();
        each(N, |pe, boot, l| {
            let mut state = ((seed << 8) | (pe as u64 + 1)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
            let pause = |state: &mut u64| std::thread::sleep(Duration::from_micros(random(state) % 3000));
            if doomed.contains(&pe) {
                // Dies from another thread, at any point of its agreement.
                let end = boot.clone();
                let killer = std::thread::spawn(move || {
                    pause(&mut state);
                    end.die();
                });
                let _ = l.next(&[], Deadline::after(SHORT / 10));
                return killer.join().expect("no thread should panic");
            }
            pause(&mut state);
            // As `Team::without` is called: again whenever a member of what came out has died.
            let survivors: Vec<Pe> = all(N).into_iter().filter(|pe| !doomed.contains(&pe.index())).collect();
            loop {
                let got = l
                    .next(&[], Deadline::after(LONG))
                    .unwrap_or_else(|e| panic!("seed {seed}, PE {pe}: {e}"));
                let done = got.members == survivors;
                taken.lock().expect("no panic").entry(got.number).or_default().push((pe, got.members));
                if done {
                    break;
                }
                while boot.ended().len() < doomed.len() {
                    std::thread::sleep(LOOK);
                }
            }
        });
        for (number, views) in taken.into_inner().expect("no panic") {
            assert!(views.iter().all(|(_, v)| *v == views[0].1), "seed {seed}, view {number}: {views:?}");
        }
    }
}
