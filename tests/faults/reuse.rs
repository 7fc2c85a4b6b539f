//! Memory that a peer may still write, because it was stopped in the middle of a put, is not used again before it is through.

use std::time::{Duration, Instant};

use rustix::process::Signal;
use symm::{DType, Error, Handle, Options, Pe, Result, Stream, World};

use crate::job::Job;
use crate::pe::{cpu, say, step};
use crate::silence::await_stop;

/// Elements of the tensor: 4 MiB, a block of the pool, which the next tensor of this size would get.
const WORDS: usize = 1 << 20;
const POOL_BYTES: usize = 32 << 20;
/// What the late PE writes, and what the others have written into their new memory meanwhile.
const LATE: u32 = 0xdead;
const FRESH: u32 = 0xf00d;

/// The program of this test's PEs: PE 1 puts into PE 0's memory again and again, and is stopped in it.
pub(crate) fn pe(world: &World) -> Result<()> {
    let (team, stream) = (world.team(), world.stream()?);
    let rest = [Pe(0), Pe(2)];
    let pair = if rest.contains(&world.pe()) { Some(world.team_of(&rest)?) } else { None };
    let tensor = team.empty(&[WORDS], DType::U32)?;
    let handle = tensor.rendezvous(team)?;
    let fresh = match &pair {
        None => {
            put_for_long(world, &handle, &stream)?;
            drop((handle, tensor));
            None
        }
        Some(pair) => {
            let limit = Options { timeout: Some(Duration::from_millis(400)), ..Options::default() };
            team.barrier(&stream, limit)?;
            let late = stream.synchronize().expect_err("PE 1 should be late");
            assert!(matches!(&late, Error::Timeout { late, .. } if *late == [Pe(1)]), "{late}");
            // The team that failed is not needed for that; PE 1 alone still has the old memory.
            drop((handle, tensor));
            (0..3).try_for_each(|_| pair.reclaim())?;
            let fresh = pair.empty(&[WORDS], DType::U32)?.rendezvous(pair)?;
            let stream = world.stream()?;
            stream.write(&fresh.span(), &vec![FRESH; WORDS])?;
            stream.synchronize()?;
            say("filled", "");
            Some((fresh, stream))
        }
    };
    step("recover", || team.recover())?;
    if let Some((fresh, stream)) = &fresh {
        let now: Vec<u32> = stream.read(&fresh.span())?;
        stream.synchronize()?;
        let wrong = now.iter().filter(|word| **word != FRESH).count();
        assert_eq!(wrong, 0, "words of the new memory that PE 1 has written");
    }
    // Now that it has let go, the memory comes back.
    for _ in 0..20 {
        std::thread::sleep(Duration::from_millis(10));
        team.reclaim()?;
    }
    assert_eq!(world.retired(), 0, "blocks that are still held");
    drop(fresh);
    world.finalize()
}

/// Puts until it has computed for a while, and says how long the longest of them took.
fn put_for_long(world: &World, handle: &Handle, stream: &Stream) -> Result<()> {
    let source = world.local(DType::U32, WORDS)?;
    stream.write(&source.span(), &vec![LATE; WORDS])?;
    stream.synchronize()?;
    say("acts", "put");
    let (began, mut longest) = (cpu(), Duration::ZERO);
    while cpu() - began < Duration::from_millis(200) {
        let one = Instant::now();
        handle.put(stream, 0, 0, &source.span())?;
        stream.quiet(world.team(), None)?;
        let through = stream.synchronize();
        longest = longest.max(one.elapsed());
        match through {
            // Where messages are waited for, as over the network, it learns that the others have given up.
            Err(Error::Timeout { .. }) => break,
            other => other?,
        }
    }
    say("longest", &longest.as_millis().to_string());
    Ok(())
}

#[test]
fn memory_under_a_peer_stopped_in_a_put_is_not_used_again() {
    for nodes in [1, 3] {
        // A stop that hits what lies between two puts shows nothing.
        let in_a_put = |_: &u32| {
            let mut job = Job::new(3);
            job.set("SYMM_HOST_NODES", nodes);
            job.set("SYMM_POOL_BYTES", POOL_BYTES);
            job.set("PROGRAM", "reuse");
            let running = job.start();
            running.pes[1].await_word("acts");
            std::thread::sleep(Duration::from_millis(7));
            running.pes[1].signal(Signal::STOP);
            await_stop(&running.pes[1]);
            let filled = [0, 2].map(|pe| running.pes[pe].await_word("filled"));
            running.pes[1].signal(Signal::CONT);
            let ended = running.end();
            ended.all_well(&format!("stopped in a put, {nodes} nodes"));
            let longest: u64 = ended.pes[1].word("longest").and_then(|s| s.text.parse().ok()).unwrap_or(0);
            println!("{nodes} nodes: the put took {longest} ms; {filled:?}");
            longest > 300
        };
        assert!((0..8).any(|i| in_a_put(&i)), "{nodes} nodes: never stopped in a put");
    }
}
