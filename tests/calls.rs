//! Members of a team that make different set-up calls: all are told who is in which, in small teams and in those that exchange
//! along a tree. `conformance` has some of it for every backend; here are all pairs, over threads, which end by another
//! way than processes, so `finalize` is there only.

use std::time::{Duration, Instant};

use symm::{Builder, Config, DType, Error, Result, World};

/// PEs as threads, with this deadline of set-up calls.
fn threads(n: usize, limit: Duration, body: impl Fn(World) -> Result<()> + Send + Sync) {
    let mut config = Config::default();
    config.backend = "host".to_owned();
    config.init_timeout = limit;
    Builder::from_config(config).threads(n, body).unwrap_or_else(|e| panic!("{n} PEs: {e}"));
}

const LONG: Duration = Duration::from_secs(20);

/// The calls in which a team's members meet, and their first step.
const SET_UP: [(&str, &str); 5] = [
    ("rendezvous", "step Offer of rendezvous"),
    ("context", "step Offer of context"),
    ("split", "step Agree of split"),
    ("reclaim", "step Offer of reclaim"),
    ("plan", "step Agree of planned_all_to_all_vdev"),
];

fn make(world: &World, call: &str) -> Result<()> {
    let team = world.team();
    match call {
        "rendezvous" => team.empty(&[64], DType::F32)?.rendezvous(team).map(drop),
        "context" => team.new_context(8).map(drop),
        "split" => team.split(Some(0), 0).map(drop),
        "reclaim" => team.reclaim(),
        "plan" => {
            let stream = world.stream()?;
            let splits = world.local(DType::I64, team.world_size())?;
            stream.write(&splits.span(), &vec![0_i64; team.world_size()])?;
            team.context().plan_buffers(1)?.all_to_all_vdev(&stream, &splits.span()).map(drop)
        }
        other => panic!("{other}"),
    }
}

/// `odd` makes one call and the rest another; each learns it.
fn one_makes_another(world: &World, odd: usize, rest: (&str, &str), other: (&str, &str)) {
    let (me, began) = (world.pe().index(), Instant::now());
    let (ours, theirs) = if me == odd { (other, rest) } else { (rest, other) };
    let got = make(world, ours.0);
    let what = format!("PE {me} of {} in {}, PE {odd} in {}", world.n_pes(), ours.0, other.0);
    let Err(Error::Bootstrap { why, .. }) = &got else { panic!("{what}: {got:?}") };
    let who = why.split(" is in ").next().and_then(|who| who.strip_prefix("PE ")?.parse::<usize>().ok());
    let who = who.unwrap_or_else(|| panic!("{what}: {why}"));
    assert_eq!((who == odd, who < world.n_pes()), (me != odd, true), "{what}: {why}");
    let then = "; recover sets them right";
    let text = format!(
        "PE {who} is in {}, this PE in {}: not every member made every call before",
        theirs.1, ours.1
    );
    assert_eq!(*why, text + then, "{what}");
    assert!(began.elapsed() < LONG / 2, "{what}: after {:?}", began.elapsed());
}

/// Sizes of the world, and whose call is another: leaves, an inner PE and the root of the tree.
const WHO: [(usize, usize); 6] = [(2, 1), (3, 1), (4, 1), (12, 1), (12, 4), (12, 0)];

#[test]
fn every_pair_of_calls_that_a_team_survives() {
    for (n, odd) in WHO {
        threads(n, LONG, |world| {
            for rest in SET_UP {
                for other in SET_UP.into_iter().filter(|other| *other != rest) {
                    one_makes_another(&world, odd, rest, other);
                    world.team().recover()?;
                }
            }
            SET_UP.into_iter().try_for_each(|(call, _)| make(&world, call))?;
            world.finalize()
        });
    }
}
