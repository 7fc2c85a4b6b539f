//! `recover` of members whose deadlines pass at different steps of it.

use std::os::fd::BorrowedFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use symm_core::bootstrap::{Bootstrap, Liveness, Message, Tag, local};
use symm_core::model::World;
use symm_core::{Config, DType, Deadline, Error, Pe, Result};
use symm_host::Host;

const LIMIT: Duration = Duration::from_secs(20);
/// Deadline of the PE that does not hear of the last step in time; its `init` has to fit, too.
const SHORT: Duration = Duration::from_secs(2);

/// A bootstrap that holds back what means "I have reset my memory": messages to PE 1 without a byte.
#[derive(Debug)]
struct Held {
    inner: Arc<dyn Bootstrap>,
    holds: AtomicBool,
    held: Mutex<Vec<Tag>>,
}

impl Held {
    fn release(&self) {
        self.holds.store(false, Ordering::Release);
        for tag in self.held.lock().expect("no panic").drain(..) {
            self.inner.send(Pe(1), tag, &[], &[]).expect("PE 1 lives");
        }
    }
}

impl Bootstrap for Held {
    fn pe(&self) -> Pe {
        self.inner.pe()
    }
    fn n_pes(&self) -> usize {
        self.inner.n_pes()
    }
    fn passes_fds(&self, pe: Pe) -> bool {
        self.inner.passes_fds(pe)
    }
    fn send(&self, to: Pe, tag: Tag, payload: &[u8], fds: &[BorrowedFd<'_>]) -> Result<()> {
        if to == Pe(1) && payload.is_empty() && self.holds.load(Ordering::Acquire) {
            self.held.lock().expect("no panic").push(tag);
            return Ok(());
        }
        self.inner.send(to, tag, payload, fds)
    }
    fn recv(&self, from: Pe, tag: Tag, deadline: Deadline) -> Result<Message> {
        self.inner.recv(from, tag, deadline)
    }
    fn watch(&self, observer: Arc<dyn Liveness>) {
        self.inner.watch(observer);
    }
    fn failed(&self) -> Vec<Pe> {
        self.inner.failed()
    }
    fn close(&self) {
        self.inner.close();
    }
    fn abandon(&self, why: &str) {
        self.inner.abandon(why);
    }
}

fn await_that(flag: &AtomicBool) {
    let began = Instant::now();
    while !flag.load(Ordering::Acquire) {
        assert!(began.elapsed() < LIMIT, "another PE did not come so far");
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// PE 1 misses the last message of PE 2, and calls again. PE 0 did not, and works already: what it has written into PE 1's
/// memory meanwhile stays there.
#[test]
fn a_second_call_erases_nothing_of_those_who_were_through() {
    for nodes in [1, 3] {
        let (gave_up, signalled) = (AtomicBool::new(false), AtomicBool::new(false));
        let pe = |boot: Arc<dyn Bootstrap>| -> Result<()> {
            let me = boot.pe();
            let held = Arc::new(Held { inner: boot, holds: AtomicBool::new(false), held: Mutex::default() });
            let mut config = Config::default();
            config.host_nodes = nodes;
            config.init_timeout = if me == Pe(1) { SHORT } else { LIMIT };
            let world = World::<Host>::init(held.clone(), config)?;
            let (team, stream) = (world.team(), world.stream()?);
            let tensor = team.empty(&[4], DType::U32)?;
            let handle = tensor.rendezvous(team)?;
            match me.index() {
                0 => {
                    team.recover()?;
                    handle.put_signal(&stream, 1, 0, None)?;
                    stream.quiet(team, None)?;
                    stream.synchronize()?;
                    signalled.store(true, Ordering::Release);
                }
                1 => {
                    let late = team.recover().expect_err("PE 2 holds its message back");
                    assert!(matches!(&late, Error::Timeout { late, .. } if *late == [Pe(2)]), "{late}");
                    gave_up.store(true, Ordering::Release);
                    await_that(&signalled);
                    team.recover()?;
                    handle.wait_signal(&stream, 0, 0, Some(SHORT))?;
                    stream.synchronize()?;
                }
                _ => {
                    held.holds.store(true, Ordering::Release);
                    team.recover()?;
                    await_that(&gave_up);
                    await_that(&signalled);
                    held.release();
                }
            }
            // All of it still works, on all of them.
            handle.barrier(&stream, 0, None)?;
            stream.synchronize()?;
            drop((handle, tensor));
            world.finalize()
        };
        std::thread::scope(|scope| {
            let threads: Vec<_> = local(3).into_iter().map(|boot| scope.spawn(|| pe(boot))).collect();
            for (i, thread) in threads.into_iter().enumerate() {
                thread.join().expect("no panic").unwrap_or_else(|e| panic!("{nodes} nodes: PE {i}: {e}"));
            }
        });
    }
}
