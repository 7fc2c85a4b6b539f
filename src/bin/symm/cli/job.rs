//! A command that starts its own PEs, as its direct children, and hears from them what to tell.

use serde::de::DeserializeOwned;
use symm::launch::{Launcher, Output, Status};

use super::channel::{FromPes, Message};
use super::error::{Class, Failure};

/// Starts this program `pes` times with the arguments that it has, and returns PE 0's result or the failure that is at
/// the root of all others. `progress` is called with what PE 0 says meanwhile.
pub(crate) fn run<P, D>(pes: usize, ends: FromPes, mut progress: impl FnMut(P) + Send) -> Result<D, Failure>
where
    P: DeserializeOwned + Send,
    D: DeserializeOwned + Send,
{
    let program = std::env::current_exe().map_err(|e| Failure::new(Class::Run, "System", e.to_string()))?;
    let mut launcher = Launcher::new(pes, program);
    launcher.args = std::env::args_os().skip(1).collect();
    launcher.env = vec![ends.env()];
    launcher.output = Output::Inherited;
    let (messages, held) = ends.split::<P, D>();
    let (outcome, said) = std::thread::scope(|scope| {
        let listener = scope.spawn(move || {
            let mut said = Vec::new();
            for message in messages {
                match message {
                    Message::Progress(p) => progress(p),
                    other => said.push(other),
                }
            }
            said
        });
        let outcome = launcher.run();
        // The PEs have ended; without this end the pipe has no writer and the listener finishes.
        drop(held);
        (outcome, listener.join())
    });
    let said =
        said.map_err(|_| Failure::new(Class::Run, "System", "the thread that listens to PEs ended"))?;
    let outcome = outcome?;
    judge(outcome.first_failed.map(|pe| (pe.0, outcome.statuses[pe.index()])), said)
}

/// The result, or the failure that is at the root of all others. `first` failed first, and how it ended.
fn judge<P, D>(first: Option<(u32, Status)>, said: Vec<Message<P, D>>) -> Result<D, Failure> {
    let mut done = None;
    let mut failures = Vec::new();
    for message in said {
        match message {
            Message::Done(d) => done = Some(*d),
            Message::Failed(pe, failure) => failures.push((pe, failure)),
            Message::Progress(_) => {}
        }
    }
    match (first, done) {
        (None, Some(done)) => Ok(done),
        // Who was ended by a signal took the others along.
        (Some((pe, status @ Status::Signaled(_))), _) => Err(ended(pe, status)),
        (first, _) => {
            // That a peer is gone or late is what the others say of one that failed.
            let consequence = |f: &Failure| ["PeerFailed", "Timeout"].contains(&f.error.kind.as_str());
            let at = failures.iter().position(|(_, f)| !consequence(f));
            let at = at.or_else(|| failures.iter().position(|(pe, _)| first.is_some_and(|(p, _)| p == *pe)));
            match (at, first) {
                (Some(at), _) => Err(failures.swap_remove(at).1),
                (None, Some((pe, status))) => Err(ended(pe, status)),
                (None, None) => Err(Failure::new(Class::Run, "PeerFailed", "PE 0 ended without a result")),
            }
        }
    }
}

fn ended(pe: u32, status: Status) -> Failure {
    let mut f = Failure::new(Class::Run, "PeerFailed", format!("PE {pe} {status}"));
    f.error.pe = Some(pe);
    f
}

#[cfg(test)]
mod tests {
    use super::*;

    fn failed(pe: u32, kind: &str) -> Message<(), ()> {
        Message::Failed(pe, Failure::new(Class::Run, kind, format!("{kind} of PE {pe}")))
    }

    fn message(first: Option<(u32, Status)>, said: Vec<Message<(), ()>>) -> String {
        judge(first, said).map_or_else(|f| f.error.message, |()| "a result".to_owned())
    }

    #[test]
    fn the_root_of_a_failure_is_told_and_not_what_followed() {
        let exited = Some((1, Status::Exited(4)));
        let killed = Some((2, Status::Signaled(9)));
        let follows = || vec![failed(0, "PeerFailed"), failed(1, "Timeout")];
        assert_eq!(message(killed, follows()), "PE 2 was ended by signal 9 (SIGKILL)");
        let with_root = follows().into_iter().chain([failed(2, "OutOfMemory")]).collect();
        assert_eq!(message(exited, with_root), "OutOfMemory of PE 2");
        assert_eq!(message(exited, follows()), "Timeout of PE 1");
        assert_eq!(message(Some((3, Status::Exited(101))), follows()), "PE 3 exited with 101");
        assert_eq!(message(None, Vec::new()), "PE 0 ended without a result");
        assert_eq!(message(None, vec![Message::Done(Box::new(()))]), "a result");
    }
}
