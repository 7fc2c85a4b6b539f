//! The proxy of a PE: the stand-in for a network between made-up nodes.
//!
//! Messages carry bytes that were copied when the operation ran. Each is delivered after a pseudo-random delay, in any
//! order that fences, signals and quiet leave open ([`queue`]), by one thread that alone writes network peers' memory
//! for this PE. Delays depend on the seed, the PE, the stream's number and the message's number in it, never on time.

mod deliver;
mod queue;
#[cfg(test)]
mod tests;

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use symm_core::{Config, Deadline, Error, Pe, Result};

pub(crate) use deliver::{Fetch, Message, Reply, Update, Write};
use queue::Queue;

use crate::wait::Doorbell;

/// Messages of one stream (or of one context's aborts): the unit that fences and quiet speak about.
#[derive(Debug)]
pub(crate) struct Lane {
    id: u64,
    /// Grows with each fence; messages of a generation wait for those of earlier ones to the same PE.
    generation: AtomicU64,
    /// Messages so far; names a message for the delays.
    sent: AtomicU64,
    /// Puts not delivered yet.
    outstanding: AtomicU64,
}

impl Lane {
    pub(crate) fn new(id: u64) -> Self {
        Lane { id, generation: AtomicU64::new(0), sent: AtomicU64::new(0), outstanding: AtomicU64::new(0) }
    }

    pub(crate) fn id(&self) -> u64 {
        self.id
    }

    /// Orders earlier messages to each PE before later ones.
    pub(crate) fn fence(&self) {
        self.generation.fetch_add(1, Ordering::Relaxed);
    }

    /// Puts not delivered yet; 0 synchronises with their delivery.
    pub(crate) fn outstanding(&self) -> u64 {
        self.outstanding.load(Ordering::Acquire)
    }
}

/// The proxy's owner side.
#[derive(Debug)]
pub(crate) struct Proxy {
    shared: Arc<Shared>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

#[derive(Debug)]
struct Shared {
    queue: Mutex<Queue>,
    changed: Condvar,
    /// Ends the thread once nothing is left; delays and holds end at once.
    stop: AtomicBool,
    /// Set under the queue's lock when the thread ends.
    ended: AtomicBool,
    me: Pe,
    bells: Vec<Doorbell>,
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Carries a message out and wakes who may wait for it: the target for what came, this PE for having sent it.
    fn carry(&self, message: &Message, put_of: Option<&Lane>) {
        message.deliver();
        if let Some(lane) = put_of {
            lane.outstanding.fetch_sub(1, Ordering::Release);
        }
        if let Some(bell) = self.bells.get(message.target().index()) {
            bell.ring();
        }
        self.bells[self.me.index()].ring();
    }
}

impl Proxy {
    /// Starts the thread.
    pub(crate) fn start(me: Pe, bells: Vec<Doorbell>, config: &Config) -> Result<Self> {
        let seed = config.host_seed ^ u64::from(me.0).wrapping_mul(0xD6E8_FEB8_6659_FD93);
        let queue = Queue::new(seed, Duration::from_micros(config.host_delay_us));
        let shared = Arc::new(Shared {
            queue: Mutex::new(queue),
            changed: Condvar::new(),
            stop: AtomicBool::new(false),
            ended: AtomicBool::new(false),
            me,
            bells,
        });
        let of_thread = Arc::clone(&shared);
        let thread = std::thread::Builder::new().name("symm-proxy".to_owned()).spawn(move || run(&of_thread));
        let thread = thread.map_err(|e| Error::System {
            call: "pthread_create",
            errno: e.raw_os_error().unwrap_or(0),
            text: e.to_string(),
        })?;
        Ok(Proxy { shared, thread: Mutex::new(Some(thread)) })
    }

    /// Takes a message of a lane.
    pub(crate) fn send(&self, lane: &Arc<Lane>, message: Message) {
        let index = lane.sent.fetch_add(1, Ordering::Relaxed);
        let generation = lane.generation.load(Ordering::Relaxed);
        if message.is_put() {
            lane.outstanding.fetch_add(1, Ordering::Relaxed);
        }
        let mut queue = self.shared.lock();
        if self.shared.ended.load(Ordering::Relaxed) {
            // A stream that outlives the backend: nobody is left to delay its messages.
            drop(queue);
            self.shared.carry(&message, message.is_put().then_some(&**lane));
            return;
        }
        queue.take(Instant::now(), Arc::clone(lane), (generation, index), message);
        drop(queue);
        self.shared.changed.notify_one();
    }

    /// Lets go of what is held back of a lane; delivery follows without further calls.
    pub(crate) fn flush(&self, lane: &Lane) {
        self.shared.lock().flush(Instant::now(), Some(lane.id));
        self.shared.changed.notify_one();
    }

    /// Lets go of everything held back; returns the number of the last message taken.
    pub(crate) fn flush_all(&self) -> u64 {
        let last = {
            let mut queue = self.shared.lock();
            queue.flush(Instant::now(), None);
            queue.taken()
        };
        self.shared.changed.notify_one();
        last
    }

    /// Whether every message up to number `last` was delivered.
    pub(crate) fn delivered(&self, last: u64) -> bool {
        self.shared.lock().oldest().is_none_or(|oldest| oldest > last)
    }

    /// Ends the thread once everything is delivered; delays and holds end now. Does not wait.
    pub(crate) fn stop(&self) {
        let mut queue = self.shared.lock();
        queue.hurry(Instant::now());
        self.shared.stop.store(true, Ordering::Release);
        drop(queue);
        self.shared.changed.notify_all();
    }

    /// Delivers everything and ends the thread.
    ///
    /// # Errors
    /// `Timeout` naming the PEs whose messages were not delivered by the deadline.
    pub(crate) fn finish(&self, deadline: Deadline) -> Result<()> {
        let last = self.flush_all();
        while !self.delivered(last) {
            if deadline.passed() {
                let late = self.shared.lock().targets();
                let got = late.len() as u64;
                self.stop();
                let waited = deadline.waited();
                return Err(Error::Timeout {
                    op: "finalize",
                    phase: "quiet",
                    late,
                    expected: 0,
                    got,
                    waited,
                });
            }
            std::thread::sleep(Duration::from_micros(50));
        }
        self.stop();
        let handle = self.thread.lock().unwrap_or_else(PoisonError::into_inner).take();
        match handle.map(JoinHandle::join) {
            None | Some(Ok(())) => Ok(()),
            Some(Err(_)) => Err(Error::Backend {
                backend: crate::NAME,
                call: "proxy",
                code: 0,
                text: "the proxy thread panicked".to_owned(),
            }),
        }
    }
}

fn run(shared: &Shared) {
    let mut queue = shared.lock();
    loop {
        let now = Instant::now();
        if let Some(due) = queue.next(now) {
            drop(queue);
            shared.carry(&due.message, due.put_of.as_deref());
            queue = shared.lock();
            queue.delivered(Instant::now(), &due);
            continue;
        }
        queue = match queue.next_due() {
            Some(at) => {
                let wait = at.saturating_duration_since(now);
                shared.changed.wait_timeout(queue, wait).unwrap_or_else(PoisonError::into_inner).0
            }
            None if shared.stop.load(Ordering::Acquire) && queue.oldest().is_none() => {
                shared.ended.store(true, Ordering::Relaxed);
                return;
            }
            None => shared.changed.wait(queue).unwrap_or_else(PoisonError::into_inner),
        };
    }
}
