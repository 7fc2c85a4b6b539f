//! The argument that was refused last, for those who ask why a PE left: such an error goes back to the caller, and nothing else
//! is told of it.
//!
//! [`Error::argument`], which makes all of them, knows no world. Where PEs are threads each has its own; a process that is one PE
//! has one, whichever of its threads met it.

use std::cell::RefCell;
use std::sync::Mutex;
use std::sync::PoisonError;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::error::Error;
use crate::pe;

/// An error's text, and its place among all that were noted in this process.
type Noted = (u64, String);

static NEXT: AtomicU64 = AtomicU64::new(1);
static OF_PROCESS: Mutex<Option<Noted>> = Mutex::new(None);

thread_local! {
    static OF_THREAD: RefCell<Option<Noted>> = const { RefCell::new(None) };
}

/// A place in the order of errors, behind all that were noted before.
pub(crate) fn place() -> u64 {
    NEXT.fetch_add(1, Ordering::Relaxed)
}

/// An argument was refused on this thread.
pub(crate) fn note(error: &Error) {
    let noted = (place(), error.to_string());
    // A thread that ends may have none any more.
    let _ = OF_THREAD.try_with(|last| last.replace(Some(noted.clone())));
    *OF_PROCESS.lock().unwrap_or_else(PoisonError::into_inner) = Some(noted);
}

/// The last one behind `place`, as this PE met it.
pub(crate) fn since(place: u64) -> Option<Noted> {
    let last = if pe::is_alone() {
        OF_PROCESS.lock().unwrap_or_else(PoisonError::into_inner).clone()
    } else {
        OF_THREAD.try_with(|last| last.borrow().clone()).ok().flatten()
    };
    last.filter(|(at, _)| *at > place)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_one_of_a_thread_is_found() {
        let refuse = |got: u32| Error::argument("put", "start", got, "less").to_string();
        std::thread::spawn(move || {
            let before = place();
            assert_eq!(since(before), None);
            refuse(1);
            let last = refuse(2);
            assert_eq!(OF_THREAD.with(|last| last.borrow().clone()).map(|(_, text)| text), Some(last));
            let after = place();
            assert_eq!(OF_THREAD.with(|last| last.borrow().clone()).filter(|(at, _)| *at > after), None);
        })
        .join()
        .expect("the thread should end well");
    }
}
