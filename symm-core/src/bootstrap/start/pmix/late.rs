//! Who is late in a fence: PMIx does not tell, but it tells what each PE has made known.

use std::collections::BTreeSet;
use std::ffi::{CStr, c_void};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::Duration;

use super::Session;
use super::library::{Info, Proc, SUCCESS, Status, Value};
use crate::deadline::Deadline;
use crate::pe::Pe;

/// How long answers are waited for: a process that is there answers at once, through its host's daemon.
const LIMIT: Duration = Duration::from_millis(500);
/// When the library gives up by itself, in the whole seconds that it counts in.
const GIVE_UP: i32 = 1;
/// Most PEs that are asked for.
const MOST: usize = 1024;

/// What came.
#[derive(Default)]
struct Roll {
    here: BTreeSet<Pe>,
    answers: usize,
}

type Shared = Arc<(Mutex<Roll>, Condvar)>;

/// One question. The library keeps pointers into it until it answers, which may be after this PE gave up.
struct Question {
    pe: Pe,
    proc: Proc,
    info: [Info; 1],
    roll: Shared,
}

impl Session {
    /// PEs, in ascending order, that have not made `key` known.
    pub(super) fn late(&self, n_pes: usize, key: &'static CStr) -> Vec<Pe> {
        let roll = Shared::default();
        let pes = (0..n_pes.min(MOST)).map(Pe::from).filter(|pe| pe.0 != self.me.rank);
        let mut asked = 0;
        for pe in pes.clone() {
            let proc = Proc { rank: pe.0, ..self.me };
            let question = Question { pe, proc, info: [Info::timeout(GIVE_UP)], roll: Arc::clone(&roll) };
            let place = Box::into_raw(Box::new(question));
            // SAFETY: `place` is live until `answered` takes it back, which is called once if this call succeeds; the key is
            // static.
            let status = unsafe {
                let (proc, info) = (&raw const (*place).proc, (&raw const (*place).info).cast());
                (self.calls.get_nb)(proc, key.as_ptr(), info, 1, Some(answered), place.cast())
            };
            if status == SUCCESS {
                asked += 1;
            } else {
                // SAFETY: the call failed, so nobody else takes it back.
                drop(unsafe { Box::from_raw(place) });
            }
        }
        let deadline = Deadline::after(LIMIT);
        let (lock, came) = &*roll;
        let mut seen = lock.lock().unwrap_or_else(PoisonError::into_inner);
        while seen.answers < asked && !deadline.passed() {
            seen = came.wait_timeout(seen, deadline.left()).unwrap_or_else(PoisonError::into_inner).0;
        }
        pes.filter(|pe| !seen.here.contains(pe)).collect()
    }
}

/// # Safety
/// `place` is a boxed `Question` given for this one call.
unsafe extern "C" fn answered(status: Status, _: *mut Value, place: *mut c_void) {
    // SAFETY: by the promise above.
    let question = unsafe { Box::from_raw(place.cast::<Question>()) };
    let (lock, came) = &*question.roll;
    let mut roll = lock.lock().unwrap_or_else(PoisonError::into_inner);
    roll.answers += 1;
    if status == SUCCESS {
        roll.here.insert(question.pe);
    }
    came.notify_all();
}
