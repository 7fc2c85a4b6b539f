//! The worker: takes what nobody drains.
//!
//! It costs the fast path nothing: a stream is put on its list when a task is queued, and stays there for a while
//! after it ran empty, so a program that queues and drains in turn does not touch the list again. While the list has
//! entries the worker looks at them every [`LOOK`]; it parks when the list is empty.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use symm_core::{Error, Result};

use super::Inner;
use crate::segment::Segment;
use crate::wait::Doorbell;

/// A queue without progress for so long is the worker's.
const PATIENCE: Duration = Duration::from_micros(50);
/// Time between two looks at streams that others drain.
const LOOK: Duration = Duration::from_micros(200);
/// Longest time between two looks, at streams that others have drained for long without progress.
const LONG_LOOK: Duration = Duration::from_millis(2);
/// A stream that was empty for so long leaves the list.
const LEAVE: Duration = Duration::from_millis(20);

/// The worker of a PE; its thread starts with the first queued task.
#[derive(Debug)]
pub(crate) struct Worker {
    shared: Arc<Shared>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

#[derive(Debug)]
struct Shared {
    list: Mutex<List>,
    wake: Condvar,
    /// Ends the thread once its list is empty.
    stop: AtomicBool,
    bell: Doorbell,
    /// Memory that queued tasks may name and that nobody else keeps any more.
    kept: Mutex<Vec<Segment>>,
}

#[derive(Debug, Default)]
struct List {
    new: Vec<Arc<Inner>>,
    running: bool,
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, List> {
        self.list.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Worker {
    pub(crate) fn new(bell: Doorbell) -> Self {
        let shared = Shared {
            list: Mutex::default(),
            wake: Condvar::new(),
            stop: AtomicBool::new(false),
            bell,
            kept: Mutex::default(),
        };
        Worker { shared: Arc::new(shared), thread: Mutex::default() }
    }

    /// Takes a stream onto the list. Called once until the stream was unlisted.
    pub(super) fn add(&self, stream: Arc<Inner>) {
        let mut list = self.shared.lock();
        list.new.push(stream);
        if list.running {
            self.shared.wake.notify_one();
            return;
        }
        let shared = Arc::clone(&self.shared);
        match std::thread::Builder::new().name("symm-worker".to_owned()).spawn(move || run(&shared)) {
            Ok(handle) => {
                list.running = true;
                drop(list);
                // An earlier thread has ended by itself; its handle is not needed any more.
                *self.thread.lock().unwrap_or_else(PoisonError::into_inner) = Some(handle);
            }
            // Whoever synchronises still drains; only unattended work waits, and the next queued task tries again.
            Err(e) => log::warn!("{}: the stream worker did not start: {e}", symm_core::pe::here()),
        }
    }

    /// Keeps segments until the thread ends. Call before [`stop`](Self::stop).
    pub(crate) fn keep(&self, segments: Vec<Segment>) {
        self.shared.kept.lock().unwrap_or_else(PoisonError::into_inner).extend(segments);
    }

    /// Lets the thread end once its list is empty. Does not wait.
    pub(crate) fn stop(&self) {
        self.shared.stop.store(true, Ordering::Release);
        // Under the lock: the thread is then either before its check of `stop` or already waiting.
        drop(self.shared.lock());
        self.shared.wake.notify_all();
        self.shared.bell.ring();
    }

    /// Waits for the thread after [`stop`](Self::stop). Every queued task has a deadline, so this ends.
    ///
    /// # Errors
    /// `Backend` if the thread panicked.
    pub(crate) fn join(&self) -> Result<()> {
        let handle = self.thread.lock().unwrap_or_else(PoisonError::into_inner).take();
        match handle.map(JoinHandle::join) {
            None | Some(Ok(())) => Ok(()),
            Some(Err(_)) => Err(Error::Backend {
                backend: crate::NAME,
                call: "worker",
                code: 0,
                text: "the stream worker panicked".to_owned(),
            }),
        }
    }
}

/// A listed stream as the worker last saw it.
struct Entry {
    stream: Arc<Inner>,
    passed: u64,
    since: Instant,
    taken: bool,
    /// Since when others drain it without progress.
    drained: Option<Instant>,
}

fn run(shared: &Shared) {
    let mut entries: Vec<Entry> = Vec::new();
    loop {
        let mut list = shared.lock();
        while list.new.is_empty() && entries.is_empty() {
            if shared.stop.load(Ordering::Acquire) {
                list.running = false;
                drop(list);
                shared.kept.lock().unwrap_or_else(PoisonError::into_inner).clear();
                return;
            }
            list = shared.wake.wait(list).unwrap_or_else(PoisonError::into_inner);
        }
        let since = Instant::now();
        let entry = |stream| Entry { stream, passed: 0, since, taken: false, drained: None };
        entries.extend(list.new.drain(..).map(entry));
        drop(list);
        let leave = if shared.stop.load(Ordering::Acquire) { Duration::ZERO } else { LEAVE };
        entries.retain_mut(|e| look(e, leave));
        pass(shared, &mut entries);
    }
}

/// Updates an entry; returns whether it stays listed.
fn look(e: &mut Entry, leave: Duration) -> bool {
    let (passed, empty) = e.stream.progress();
    let drained = e.stream.drained_by_user();
    let waits = drained && passed == e.passed;
    e.drained = waits.then(|| e.drained.unwrap_or_else(Instant::now));
    if passed != e.passed || drained {
        (e.passed, e.since, e.taken) = (passed, Instant::now(), false);
        // A queue that others drain is theirs until it stands still again.
        return true;
    }
    let still = e.since.elapsed();
    if empty {
        e.taken = false;
        return still < leave || !e.stream.unlist();
    }
    e.taken = still >= PATIENCE;
    true
}

/// Time to the next look, when all streams have been drained without progress for `waited` or longer: a small part of
/// it, so that a long wait costs little and what comes after a short one is seen soon.
fn rest(waited: Duration) -> Duration {
    (waited / 8).clamp(LOOK, LONG_LOOK)
}

/// Runs what is taken until all of it waits, then sleeps.
fn pass(shared: &Shared, entries: &mut [Entry]) {
    if entries.is_empty() {
        return;
    }
    if !run_taken(entries) {
        let waits = entries.iter().map(|e| e.drained.map_or(Duration::ZERO, |since| since.elapsed()));
        std::thread::sleep(rest(waits.min().unwrap_or_default()));
        return;
    }
    let enlisted = shared.bell.enlist();
    if run_taken(entries) {
        enlisted.sleep(LOOK);
    }
}

/// Advances what is taken; returns whether some of it waits.
fn run_taken(entries: &mut [Entry]) -> bool {
    let mut waits = false;
    for e in entries.iter_mut().filter(|e| e.taken && !e.stream.drained_by_user()) {
        waits |= !e.stream.advance();
        // Its own progress must not look like somebody else's.
        e.passed = e.stream.progress().0;
    }
    waits
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn looks_become_rare_in_a_long_wait_only() {
        assert_eq!(rest(Duration::ZERO), LOOK);
        assert_eq!(rest(Duration::from_millis(1)), LOOK);
        assert_eq!(rest(Duration::from_millis(8)), Duration::from_millis(1));
        assert_eq!(rest(Duration::from_secs(100)), LONG_LOOK);
    }
}
