//! Streams: in-order queues of tasks, drained by whoever has the time.
//!
//! An operation runs on the calling thread when the queue is empty and it need not wait. One that must wait is queued.
//! [`Stream::drain`] runs the queue on the calling thread; the [`worker`] takes what nobody drains. At most one thread
//! polls a stream's tasks at a time: it holds `driving`.

mod task;
mod worker;

use std::collections::VecDeque;
use std::fmt;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, Weak};
use std::task::Poll;
use std::time::Duration;

pub(crate) use task::{Now, Task};
pub(crate) use worker::Worker;

use crate::core::Core;
use crate::proxy::Lane;
use crate::wait::{Backoff, Next};

/// How long a drain waits for another thread that drives the same stream before it looks again.
const HANDOVER: Duration = Duration::from_millis(1);

/// An in-order queue of operations. Clones are the same queue. Dropping the last clone loses nothing: the worker keeps
/// a stream until its queue is empty.
#[derive(Clone, Debug)]
pub struct Stream(pub(crate) Arc<Inner>);

pub(crate) struct Inner {
    pub(crate) core: Arc<Core>,
    /// This stream as the proxy knows it: its order and its outstanding puts.
    pub(crate) lane: Arc<Lane>,
    state: Mutex<State>,
    moved: Condvar,
    /// Threads that drain now; the worker leaves their stream alone.
    drains: AtomicU32,
}

#[derive(Default)]
struct State {
    queue: VecDeque<Box<dyn Task>>,
    driving: bool,
    /// Tasks accepted, and tasks ended: numbers that only grow.
    accepted: u64,
    passed: u64,
    /// Whether the worker has this stream on its list.
    listed: bool,
    /// Threads asleep on `moved`.
    sleepers: usize,
}

impl fmt::Debug for Inner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let s = self.lock();
        f.debug_struct("Stream")
            .field("id", &self.lane.id())
            .field("accepted", &s.accepted)
            .field("passed", &s.passed)
            .finish_non_exhaustive()
    }
}

impl Stream {
    pub(crate) fn new(core: Arc<Core>, lane: Arc<Lane>) -> Self {
        let inner =
            Inner { core, lane, state: Mutex::default(), moved: Condvar::new(), drains: AtomicU32::new(0) };
        Stream(Arc::new(inner))
    }

    /// Runs the task now if nothing is before it and it need not wait, else queues it. Returns its number.
    pub(crate) fn enqueue<T: Task + 'static>(&self, task: T) -> u64 {
        self.enqueue_with(|| task)
    }

    /// As [`enqueue`](Self::enqueue), with a task that is made once its place in the queue is certain: one that takes a
    /// number of its own must not be overtaken between the two by another thread's.
    pub(crate) fn enqueue_with<T: Task + 'static>(&self, make: impl FnOnce() -> T) -> u64 {
        let inner = &self.0;
        let mut state = inner.lock();
        let mut task = make();
        state.accepted += 1;
        let number = state.accepted;
        if state.driving || !state.queue.is_empty() {
            state.queue.push_back(Box::new(task));
            inner.list(state);
            return number;
        }
        state.driving = true;
        drop(state);
        let ended = task.poll(true).is_ready();
        let mut state = inner.lock();
        state.driving = false;
        if ended {
            state.passed += 1;
        } else {
            state.queue.push_front(Box::new(task));
        }
        inner.notify(&state);
        if !state.queue.is_empty() {
            inner.list(state);
        }
        number
    }

    /// Whether every accepted task has ended.
    pub(crate) fn is_idle(&self) -> bool {
        let state = self.0.lock();
        state.passed == state.accepted
    }

    /// Number of the last task accepted.
    pub(crate) fn accepted(&self) -> u64 {
        self.0.lock().accepted
    }

    /// Runs tasks on this thread until task `number` has ended.
    pub(crate) fn drain(&self, number: u64) {
        let inner = &self.0;
        inner.drains.fetch_add(1, Ordering::Relaxed);
        let mut state = inner.lock();
        while state.passed < number {
            if state.driving {
                state.sleepers += 1;
                let waited = inner.moved.wait_timeout(state, HANDOVER);
                state = waited.unwrap_or_else(PoisonError::into_inner).0;
                state.sleepers -= 1;
                continue;
            }
            let Some(mut task) = state.queue.pop_front() else { break };
            state.driving = true;
            drop(state);
            inner.finish(&mut *task);
            drop(task);
            state = inner.lock();
            state.driving = false;
            state.passed += 1;
            inner.notify(&state);
        }
        drop(state);
        inner.drains.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Inner {
    fn lock(&self) -> MutexGuard<'_, State> {
        // A task that panicked has ended its stream's driver, not the numbers in here.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Tells drains that wait for the driver. The standard condition variable makes a system call even when nobody
    /// waits, hence the count.
    fn notify(&self, state: &State) {
        if state.sleepers > 0 {
            self.moved.notify_all();
        }
    }

    /// Puts the stream on the worker's list unless it is there.
    fn list(self: &Arc<Self>, mut state: MutexGuard<'_, State>) {
        if !std::mem::replace(&mut state.listed, true) {
            drop(state);
            self.core.worker().add(Arc::clone(self));
        }
    }

    /// Polls a task until it has ended.
    fn finish(&self, task: &mut dyn Task) {
        let mut backoff = Backoff::new(self.core.patience());
        let bell = self.core.doorbell();
        let mut tick = true;
        while task.poll(tick).is_pending() {
            match backoff.next() {
                Next::Poll { tick: t } => tick = t,
                Next::Sleep(limit) => {
                    tick = true;
                    let enlisted = bell.enlist();
                    if task.poll(true).is_ready() {
                        return;
                    }
                    enlisted.sleep(limit);
                }
            }
        }
    }

    /// Polls tasks in order until one must wait; returns whether the queue is empty, or somebody else drives it.
    fn advance(&self) -> bool {
        loop {
            let mut state = self.lock();
            if state.driving {
                return true;
            }
            let Some(mut task) = state.queue.pop_front() else { return true };
            state.driving = true;
            drop(state);
            let ended = task.poll(true);
            let mut state = self.lock();
            state.driving = false;
            match ended {
                Poll::Ready(()) => state.passed += 1,
                Poll::Pending => state.queue.push_front(task),
            }
            self.notify(&state);
            drop(state);
            if ended.is_pending() {
                return false;
            }
        }
    }

    fn drained_by_user(&self) -> bool {
        self.drains.load(Ordering::Relaxed) > 0
    }

    /// Takes the stream off the worker's list if it has nothing queued; returns whether it did.
    fn unlist(&self) -> bool {
        let mut state = self.lock();
        if state.queue.is_empty() && !state.driving {
            state.listed = false;
        }
        !state.listed
    }

    fn progress(&self) -> (u64, bool) {
        let state = self.lock();
        (state.passed, state.queue.is_empty())
    }
}

/// A point in one stream.
#[derive(Debug)]
pub(crate) struct Point {
    stream: Weak<Inner>,
    number: u64,
}

impl Point {
    pub(crate) fn of(stream: &Arc<Inner>) -> Self {
        Point { stream: Arc::downgrade(stream), number: stream.lock().accepted }
    }

    /// Whether the stream has passed it. A stream that is gone had nothing queued.
    pub(crate) fn passed(&self) -> bool {
        self.stream.upgrade().is_none_or(|s| s.lock().passed >= self.number)
    }
}
