//! NVSHMEM's device calls wait without a deadline. Kernels count the calls that they begin and end; a thread looks whether any
//! ends, and fails every team if none does for as long as an operation may take.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use symm_core::backend::op;
use symm_core::status::{BACKEND_LOST, Failure, phase};
use symm_cuda::Cuda;
use symm_cuda::embed::Mapped64;

use crate::error::lock;

/// How often the thread looks while calls are on their way.
const LOOK: Duration = Duration::from_millis(20);

/// The thread, until it is stopped or dropped.
#[derive(Debug)]
pub(crate) struct Watchdog {
    shared: Arc<Watched>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

#[derive(Debug, Default)]
struct Watched {
    lost: AtomicBool,
    ends: Mutex<bool>,
    wake: Condvar,
}

/// What was seen of the counts.
#[derive(Clone, Copy, Debug)]
struct Seen {
    /// Calls that have ended.
    ended: u64,
    /// Since when calls are on their way and none of them has ended.
    since: Option<Instant>,
}

impl Seen {
    /// Takes the present counts in; returns how long nothing has moved.
    fn look(&mut self, begun: u64, ended: u64, now: Instant) -> Duration {
        if begun == ended {
            self.since = None;
        } else if ended != self.ended || self.since.is_none() {
            self.since = Some(now);
        }
        self.ended = ended;
        self.since.map_or(Duration::ZERO, |since| now - since)
    }
}

impl Watchdog {
    /// Starts the thread. `activity`: calls begun, calls ended.
    pub(crate) fn start(cuda: &Arc<Cuda>, activity: &Arc<Mapped64>, limit: Duration) -> Result<Self, String> {
        let shared = Arc::new(Watched::default());
        let (watched, cuda, activity) = (shared.clone(), Arc::downgrade(cuda), activity.clone());
        let body = move || {
            let words = activity.words();
            let mut seen = Seen { ended: 0, since: None };
            loop {
                let ends = lock(&watched.ends);
                let waited = watched.wake.wait_timeout_while(ends, LOOK, |ends| !*ends);
                if waited.map_or(true, |(ends, _)| *ends) {
                    return;
                }
                // The ended ones first: a call that both begins and ends between the looks is then no call on its way.
                let ended = words[1].load(Ordering::Acquire);
                let begun = words[0].load(Ordering::Acquire);
                let still = seen.look(begun, ended, Instant::now());
                let Some(cuda) = cuda.upgrade() else { return };
                if still > limit {
                    log::error!(
                        "{}: NVSHMEM has not completed {} calls for {still:?}",
                        symm_core::pe::here(),
                        begun.wrapping_sub(ended)
                    );
                    watched.lost.store(true, Ordering::Release);
                    let waited_ns = u64::try_from(still.as_nanos()).unwrap_or(u64::MAX);
                    cuda.fail_all(&Failure {
                        code: BACKEND_LOST,
                        op: op::QUIET,
                        phase: phase::QUIET,
                        waited_ns,
                        ..Failure::default()
                    });
                    return;
                }
            }
        };
        let thread = std::thread::Builder::new().name("nvshmem-watchdog".to_owned()).spawn(body);
        let thread = thread.map_err(|e| format!("a thread cannot be started: {e}"))?;
        Ok(Watchdog { shared, thread: Mutex::new(Some(thread)) })
    }

    /// Whether NVSHMEM was given up.
    pub(crate) fn lost(&self) -> bool {
        self.shared.lost.load(Ordering::Acquire)
    }

    /// Ends the thread and waits for it, which takes no longer than one look.
    pub(crate) fn stop(&self) {
        self.end();
        if let Some(thread) = lock(&self.thread).take() {
            // A panic of the thread was logged by the runtime.
            drop(thread.join());
        }
    }

    fn end(&self) {
        *lock(&self.shared.ends) = true;
        self.shared.wake.notify_all();
    }
}

impl Drop for Watchdog {
    fn drop(&mut self) {
        // Drop never waits: the thread ends by itself.
        self.end();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_calls_that_stand_still_count() {
        let t = Instant::now();
        let at = |s| t + Duration::from_secs(s);
        let mut seen = Seen { ended: 0, since: None };
        assert_eq!(seen.look(0, 0, at(0)), Duration::ZERO);
        assert_eq!(seen.look(3, 0, at(100)), Duration::ZERO);
        assert_eq!(seen.look(5, 0, at(130)), Duration::from_secs(30), "beginning is no progress");
        assert_eq!(seen.look(5, 1, at(140)), Duration::ZERO, "an end is");
        assert_eq!(seen.look(5, 1, at(150)), Duration::from_secs(10));
        assert_eq!(seen.look(5, 5, at(160)), Duration::ZERO);
        assert_eq!(seen.look(6, 5, at(900)), Duration::ZERO, "idle time does not count");
    }
}
