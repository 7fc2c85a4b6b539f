//! What `World::stats` counts, and what `SYMM_STATS=1` prints.

use std::time::Duration;

use symm::{
    Builder, Calls, Config, DType, Error, Options, Pe, Planned, SignalOp, SignalUpdate, Stats, Waits,
};

fn calls(stats: &Stats, op: &str) -> Option<(u64, u64)> {
    stats.operations.iter().find(|c| c.op == op).map(|Calls { calls, bytes, .. }| (*calls, *bytes))
}

#[test]
fn operations_waits_and_timeouts_are_counted() {
    let mut config = Config::default();
    config.backend = "host".to_owned();
    let job = Builder::from_config(config);
    let run = job.threads(3, |world| {
        let (team, stream) = (world.team(), world.stream()?);
        let (me, w) = (team.rank(), team.world_size());
        let tensor = team.empty(&[3], DType::U64)?;
        let handle = tensor.rendezvous(team)?;
        // From the cache, which is no rendezvous.
        tensor.rendezvous(team)?;
        let local = world.local(DType::U64, 3)?;
        for _ in 0..4 {
            handle.put(&stream, (me + 1) % w, 0, &local.span())?;
        }
        handle.get(&stream, (me + 1) % w, 0, &local.span().slice(0, 1)?)?;
        let signal = SignalUpdate { index: 0, op: SignalOp::Set, value: 1 };
        handle.put_with_signal(&stream, me, 0, &local.span().slice(0, 2)?, signal)?;
        team.all_to_all(&stream, &local.span(), &handle, Options::default())?;
        stream.synchronize()?;
        if me == 1 {
            std::thread::sleep(Duration::from_millis(60));
        }
        team.barrier(&stream, Options::default())?;
        stream.synchronize()?;
        let stats = world.stats();
        assert_eq!((stats.pe, stats.n_pes, stats.backend), (world.pe(), 3, "host"));
        assert!(!stats.init.is_zero());
        assert_eq!(stats.rendezvous.count, 1);
        assert!(stats.rendezvous.longest <= stats.rendezvous.total && !stats.rendezvous.total.is_zero());
        assert_eq!(calls(&stats, "put"), Some((4, 4 * 24)));
        assert_eq!(calls(&stats, "get"), Some((1, 8)));
        assert_eq!(calls(&stats, "put_with_signal"), Some((1, 16)));
        assert_eq!(calls(&stats, "all_to_all"), Some((1, 24)));
        assert_eq!(calls(&stats, "barrier").map(|c| c.0), Some(1));
        assert_eq!((stats.timeouts.len(), stats.failed.len(), stats.strangers), (0, 0, 0));
        assert!(stats.fallbacks[0].starts_with("backend: host, because "), "{:?}", stats.fallbacks);
        if me != 1 {
            // PE 1 was the last of that barrier, by far.
            let late = stats.waits.iter().max_by_key(|Waits { times, .. }| times.longest).expect("a wait");
            assert_eq!(late.pe, Pe(1), "{:?}", stats.waits);
            assert!(late.times.count >= 1 && late.times.longest <= late.times.total, "{late:?}");
            assert!(late.times.longest > Duration::from_millis(20), "{late:?}");
        }
        // A deadline that passes is counted once, however often it is returned.
        if me != 2 {
            let short = Options { timeout: Some(Duration::from_millis(50)), ..Options::default() };
            team.barrier(&stream, short)?;
            for _ in 0..3 {
                assert!(matches!(stream.synchronize(), Err(Error::Timeout { .. })));
            }
            assert_eq!(world.stats().timeouts, [(Pe(2), 1)]);
        }
        let text = world.stats().to_string();
        let prefix = format!("PE {me}: ");
        assert!(text.ends_with('\n') && text.lines().all(|l| l.starts_with(&prefix)), "{text}");
        Ok(())
    });
    run.expect("no PE should fail");
}

/// Where one member has no planned form, all publish the splits of a plan, and their records say so once.
#[test]
fn a_plan_that_falls_back_is_noted_on_every_member() {
    let pe = |(pe, boot): (usize, _)| {
        let mut builder = Builder::from_config(Config::default()).backend("host");
        builder.config_mut().host_plans = pe != 1;
        let run = move || {
            let world = builder.init_over(boot)?;
            let (team, stream) = (world.team(), world.stream()?);
            let splits = world.local(DType::I64, 3)?;
            stream.write(&splits.span(), &[1i64, 2, 3])?;
            let rows = world.local(DType::U8, 6)?;
            let out = team.empty(&[9], DType::U8)?.rendezvous(team)?;
            for _ in 0..2 {
                let mut buffers = team.context().plan_buffers(1)?;
                let mut plan = buffers.all_to_all_vdev(&stream, &splits.span())?;
                assert!(plan.publishes_splits());
                let there =
                    Planned { input: &rows.span(), output: &out, row: 1, options: Options::default() };
                drop(plan.dispatch(&stream, &there)?);
                stream.synchronize()?;
            }
            let stats = world.stats();
            assert_eq!(calls(&stats, "all_to_all_vdev"), Some((2, 12)));
            let noted = stats.fallbacks.iter().filter(|f| f.contains("PE 1 has no planned form")).count();
            assert_eq!(noted, 1, "{:?}", stats.fallbacks);
            world.finalize()
        };
        std::thread::spawn(run)
    };
    let threads: Vec<_> = symm::bootstrap::local(3).into_iter().enumerate().map(pe).collect();
    for thread in threads {
        thread.join().expect("no PE should panic").expect("no PE should fail");
    }
}

#[test]
fn finalize_prints_them_where_that_is_asked_for() {
    for (value, lines) in [("1", true), ("0", false)] {
        let mut c = std::process::Command::new(std::env::current_exe().expect("own path"));
        c.args(["--exact", "child", "--nocapture"]).env("RECORDS_CHILD", "1").env("SYMM_STATS", value);
        let out = c.output().expect("the test's own binary should start");
        assert!(out.status.success());
        let err = String::from_utf8_lossy(&out.stderr).into_owned();
        for line in
            ["PE 0: 1 PEs over host, init ", "PE 0: rendezvous: 1, ", "PE 0: strangers turned away: 0"]
        {
            assert_eq!(err.lines().any(|l| l.starts_with(line)), lines, "SYMM_STATS={value}: {err}");
        }
    }
}

#[test]
fn child() {
    if std::env::var_os("RECORDS_CHILD").is_some() {
        let mut job = Builder::from_env().expect("settings");
        job.config_mut().backend = "host".to_owned();
        let run = job.init().and_then(|world| {
            world.team().empty(&[4], DType::U8)?.rendezvous(world.team())?;
            world.finalize()
        });
        run.expect("a world of one");
    }
}
