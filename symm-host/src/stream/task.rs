//! Operations as tasks that are polled.

use std::task::Poll;

/// One operation of a stream. It is polled by one thread at a time, first when the stream reaches it.
pub(crate) trait Task: Send {
    /// Goes on as far as possible without waiting. `tick` asks for the rarer checks too: deadline and aborts.
    fn poll(&mut self, tick: bool) -> Poll<()>;
}

/// A task that never waits.
pub(crate) struct Now<F: FnOnce() + Send>(Option<F>);

impl<F: FnOnce() + Send> Now<F> {
    pub(crate) fn new(run: F) -> Self {
        Now(Some(run))
    }
}

impl<F: FnOnce() + Send> Task for Now<F> {
    fn poll(&mut self, _tick: bool) -> Poll<()> {
        if let Some(run) = self.0.take() {
            run();
        }
        Poll::Ready(())
    }
}
