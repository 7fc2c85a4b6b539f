//! Legal use that few programs make of the library: threads that share a stream or meet in several teams at once, owners
//! that go while operations are queued, sizes at the ends of their range.

use std::sync::Barrier;
use std::time::Duration;

use symm::{Builder, Cmp, Config, DType, Error, Options, Pe, Result, SignalOp, SignalUpdate, Team, World};

/// PEs as threads on `nodes` made-up nodes, with deadlines that end a test that hangs.
fn threads(n: usize, nodes: u32, body: impl Fn(World) -> Result<()> + Send + Sync) {
    threads_within(Duration::from_secs(20), n, nodes, body);
}

fn threads_within(limit: Duration, n: usize, nodes: u32, body: impl Fn(World) -> Result<()> + Send + Sync) {
    let mut config = Config::default();
    config.host_nodes = nodes;
    config.backend = "host".to_owned();
    config.init_timeout = limit;
    config.timeout = Duration::from_secs(20);
    Builder::from_config(config).threads(n, body).unwrap_or_else(|e| panic!("{n} PEs, {nodes} nodes: {e}"));
}

#[test]
fn threads_that_share_a_stream_and_a_context_never_wait_for_each_other() {
    for (n, nodes) in [(2, 1), (3, 2)] {
        threads(n, nodes, |world| {
            let stream = world.stream()?;
            let run = || (0..200).try_for_each(|_| world.team().barrier(&stream, Options::default()));
            std::thread::scope(|scope| {
                let all: Vec<_> = (0..4).map(|_| scope.spawn(run)).collect();
                all.into_iter().try_for_each(|t| t.join().expect("no thread should panic"))
            })?;
            stream.synchronize()?;
            world.finalize()
        });
    }
}

#[test]
fn rendezvous_of_several_teams_at_once_share_their_segments() {
    threads(2, 1, |world| {
        let all = [Pe(0), Pe(1)];
        let teams: Vec<Team> = (0..4).map(|_| world.team_of(&all)).collect::<Result<_>>()?;
        for round in 0..40 {
            let go = Barrier::new(teams.len());
            // Small ones share a segment between the teams; the one that all teams have is a segment of its own.
            let shared = world.team().empty(&[2 << 20], DType::U8)?;
            let meet = |team: &Team| {
                let own = team.empty(&[100], DType::U8);
                go.wait();
                let tensor = if round % 2 == 0 { own? } else { shared.clone() };
                tensor.rendezvous(team).map(drop)
            };
            std::thread::scope(|scope| {
                let meet = &meet;
                let all: Vec<_> = teams.iter().map(|team| scope.spawn(move || meet(team))).collect();
                all.into_iter().try_for_each(|t| t.join().expect("no thread should panic"))
            })?;
        }
        world.finalize()
    });
}

/// What is queued still has its memory when the stream, the memory and the world have lost their last owner.
#[test]
fn queued_operations_outlive_every_owner() {
    const N: usize = 4 << 20;
    for nodes in [1, 2] {
        threads(2, nodes, |world| {
            let me = world.pe().index();
            let tensor = world.team().empty(&[N], DType::U8)?;
            let handle = tensor.rendezvous(world.team())?;
            let stream = world.stream()?;
            if me == 0 {
                let local = world.local(DType::U8, N)?;
                stream.write(&local.span(), &vec![7_u8; N])?;
                // Passed only once PE 1 has seen that this PE left.
                handle.wait_until(&stream, 0, Cmp::Eq, 1, None)?;
                let signal = SignalUpdate { index: 1, op: SignalOp::Set, value: 1 };
                handle.put_with_signal(&stream, 1, 0, &local.span(), signal)?;
                return Ok(());
            }
            let left = |e: &Error| matches!(e, Error::PeerFailed { pe: Pe(0), .. });
            let met = world.team().reclaim().expect_err("PE 0 should have left");
            assert!(left(&met), "{met}");
            let go = world.local(DType::U8, 0)?;
            let signal = SignalUpdate { index: 0, op: SignalOp::Set, value: 1 };
            handle.put_with_signal(&stream, 0, 0, &go.span(), signal)?;
            handle.wait_until(&stream, 1, Cmp::Eq, 1, None)?;
            let got: Vec<u8> = stream.read(&tensor.span())?;
            stream.synchronize()?;
            assert!(got.iter().all(|b| *b == 7));
            Ok(())
        });
    }
}

#[test]
fn a_context_beyond_the_address_space_is_refused_everywhere() {
    threads(2, 1, |world| {
        for max_splits in [usize::MAX, usize::MAX / 8, usize::MAX / 16, usize::MAX / 32 - 1, 1 << 58] {
            let refused = world.team().new_context(max_splits).expect_err("more than any machine has");
            assert!(matches!(refused, Error::Setup { .. }), "{max_splits}: {refused}");
        }
        let stream = world.stream()?;
        world.team().barrier(&stream, Options::default())?;
        stream.synchronize()?;
        world.finalize()
    });
}

/// What a rendezvous that timed out has left with a peer is not taken for a later one: its places were given up.
#[test]
fn a_rendezvous_that_timed_out_leaves_nothing_that_a_late_member_would_use() {
    let limit = Duration::from_secs(1);
    threads_within(limit, 2, 1, |world| {
        let team = world.team();
        // The segments are known to both, so nothing but the messages of the rendezvous can tell.
        team.empty(&[100], DType::U8)?.rendezvous(team)?;
        let tensor = team.empty(&[100], DType::U8)?;
        if team.rank() == 0 {
            let late = tensor.rendezvous(team).expect_err("PE 1 should be late");
            assert!(matches!(&late, Error::Timeout { late, .. } if *late == [Pe(1)]), "{late}");
        } else {
            std::thread::sleep(limit + limit / 4);
        }
        let mixed = tensor.rendezvous(team).expect_err("the members should be in different steps");
        assert!(matches!(mixed, Error::Bootstrap { .. } | Error::Timeout { .. }), "{mixed}");
        let again = |e: &Error| matches!(e, Error::Timeout { .. });
        let recovered = (0..10).map(|_| team.recover()).find(|r| r.as_ref().err().is_none_or(|e| !again(e)));
        recovered.expect("both members should come within ten deadlines")?;
        let handle = tensor.rendezvous(team)?;
        let stream = world.stream()?;
        handle.barrier(&stream, 0, None)?;
        stream.synchronize()?;
        world.finalize()
    });
}

/// One PE's failure ends the others' waits at once, and is the error that `threads` returns.
#[test]
fn a_failed_pe_is_the_one_that_is_named() {
    let began = std::time::Instant::now();
    let meet = |world: &symm::World| {
        let stream = world.stream()?;
        world.team().barrier(&stream, symm::Options::default())?;
        stream.synchronize()
    };
    let panicked = symm::threads(2, |world| {
        assert!(world.pe().0 == 0, "PE 1 panics here on purpose");
        meet(&world)
    });
    match panicked {
        Err(symm::Error::PeerFailed { pe, why }) => {
            assert_eq!((pe.0, why.as_str()), (1, "its thread panicked"))
        }
        other => panic!("{other:?}"),
    }
    let refused = symm::threads(2, |world| {
        if world.pe().0 == 1 {
            world.team().empty(&[usize::MAX, 2], symm::DType::F64)?;
        }
        meet(&world)
    });
    assert!(matches!(refused, Err(symm::Error::InvalidArgument { op: "empty", .. })), "{refused:?}");
    assert!(began.elapsed() < std::time::Duration::from_secs(20), "a wait went on to its deadline");
}

/// Who left well is not waited for by those who end their worlds, however many they are; who failed still is named.
#[test]
fn a_pe_that_returns_early_has_done_its_part() {
    let began = std::time::Instant::now();
    for n in [2, 3, 12] {
        for early in [0, 1] {
            let ended =
                symm::threads(n, |world| if world.pe().0 == early { Ok(()) } else { world.finalize() });
            assert_eq!(ended, Ok(()), "PE {early} of {n} left early");
        }
        // Whoever comes to the end later finds it gone.
        let late = symm::threads(n, |world| {
            if world.pe().0 == 1 {
                return Ok(());
            }
            std::thread::sleep(Duration::from_millis(50));
            world.finalize()
        });
        assert_eq!(late, Ok(()), "after PE 1 of {n} had left");
        let (told, all_here) = (std::sync::Mutex::new(Vec::new()), Barrier::new(n));
        let failed = symm::threads(n, |world| {
            all_here.wait();
            if world.pe().0 == 1 {
                return Err(Error::argument("main", "input", "not there", "a file"));
            }
            let met = world.finalize();
            told.lock().expect("nobody panics with it").push(met);
            Ok(())
        });
        assert!(matches!(&failed, Err(Error::InvalidArgument { op: "main", .. })), "{failed:?}");
        let told = told.into_inner().expect("nobody panicked with it");
        assert_eq!(told.len(), n - 1);
        for end in told {
            // One that met the failure first leaves, and another may see that before.
            assert!(matches!(&end, Err(Error::PeerFailed { .. })), "{end:?}");
        }
    }
    assert!(began.elapsed() < Duration::from_secs(20), "a wait went on to its deadline");
}

/// An argument that was refused is this PE's own affair, until it leaves for it: then the others are told.
#[test]
fn an_argument_that_was_refused_is_the_last_error_of_who_leaves() {
    let body = |boot: std::sync::Arc<dyn symm::bootstrap::Bootstrap>| -> Result<()> {
        let world = Builder::from_config(Config::default()).backend("host").init_over(boot)?;
        let (team, stream) = (world.team(), world.stream()?);
        let handle = team.empty(&[64], DType::U32)?.rendezvous(team)?;
        let eight = world.local(DType::U32, 8)?;
        if world.pe().0 == 1 {
            handle.put(&stream, 0, 63, &eight.span())?;
        }
        team.barrier(&stream, Options::default())?;
        stream.synchronize()?;
        world.finalize()
    };
    let ends: Vec<Result<()>> = std::thread::scope(|scope| {
        let threads: Vec<_> =
            symm::bootstrap::local(2).into_iter().map(|boot| scope.spawn(|| body(boot))).collect();
        threads.into_iter().map(|thread| thread.join().expect("no PE panics")).collect()
    });
    let [Err(other), Err(own)] = &ends[..] else { panic!("{ends:?}") };
    assert!(matches!(own, Error::InvalidArgument { op: "put", .. }), "{own:?}");
    assert_eq!(
        other.to_string(),
        format!("PE 1 failed: it dropped its World without finalize; its last error: {own}")
    );
}
