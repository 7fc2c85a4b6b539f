//! PMIx: Open MPI's `mpirun` and `srun --mpi=pmix`, without MPI.
//!
//! It is used to find the others and closed again before anything else happens: a process that ends with PMIx open would
//! take the whole job along, and the application may open it, or MPI, itself.

mod late;
mod library;

use std::ffi::{CStr, c_void};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::Duration;

use self::library::{Calls, Got, Info, Proc, RANK_WILDCARD, SCOPE_GLOBAL, Status, Value};
use super::{job_name, secret};
use crate::bootstrap::{Bootstrap, Contacts, Identity, Secret, Sockets, Whereabouts};
use crate::config::Config;
use crate::deadline::Deadline;
use crate::error::{Error, Result};
use crate::pe::Pe;

const CARD: &CStr = c"symm.card";
/// Says that a PE came.
const HERE: &CStr = c"symm.here";
const SECRET: &CStr = c"symm.secret";
/// Most PEs whose cards the fence brings to everybody; of more, each gets what it asks for.
const COLLECT: usize = 64;

pub(super) fn start(config: &Config) -> Result<Arc<dyn Bootstrap>> {
    let deadline = Deadline::after(config.init_timeout);
    let mut session = Session::open()?;
    let n_pes = session.number(c"pmix.job.size", deadline)? as usize;
    let local = session.number(c"pmix.local.size", deadline).ok().map(|n| n as usize);
    let pe = Pe(session.me.rank);
    if pe.index() >= n_pes {
        let why = format!("PMIx says that this process is number {pe} of {n_pes}");
        return Err(Error::Bootstrap { call: "PMIx_Init", why });
    }
    let job = job_name("pmix", &[&session.namespace()]);
    let mut identity = Identity { pe, n_pes, job, secret: secret(config) };
    if local == Some(n_pes) {
        // Nobody needs to be told anything; their user is checked instead of a secret.
        drop(session);
        let boot = Sockets::join(identity, Whereabouts::OneHost, deadline)?;
        return Ok(boot);
    }
    // Before the sockets are made, since they prove with it: PE 0 chooses, and PMIx tells only processes of the job.
    if !identity.secret.is_some() {
        if pe == Pe(0) {
            session.put(SECRET, &Secret::random()?)?;
        }
        session.put(HERE, &[1])?;
        session.fence(n_pes, HERE, deadline)?;
        identity.secret = Secret::new(&session.get(Pe(0), SECRET, deadline)?);
    }
    let interfaces = config.interfaces.as_deref();
    let boot =
        Sockets::join(identity, Whereabouts::Anywhere { contacts: &mut session, interfaces }, deadline)?;
    Ok(boot)
}

/// PMIx, open.
struct Session {
    calls: Calls,
    me: Proc,
}

impl Session {
    fn open() -> Result<Session> {
        let calls = Calls::load()?;
        let mut me = Proc { nspace: [0; 256], rank: 0 };
        // SAFETY: `me` is a live place for the answer; no information is given.
        let status = unsafe { (calls.init)(&raw mut me, std::ptr::null_mut(), 0) };
        calls.check("PMIx_Init", status)?;
        Ok(Session { calls, me })
    }

    fn namespace(&self) -> String {
        let bytes: Vec<u8> =
            self.me.nspace.iter().map(|c| c.cast_unsigned()).take_while(|b| *b != 0).collect();
        String::from_utf8_lossy(&bytes).into_owned()
    }

    fn fetch(&self, rank: u32, key: &CStr, deadline: Deadline) -> Result<Got> {
        let proc = Proc { rank, ..self.me };
        let info = [Info::timeout(seconds(deadline))];
        let mut value = std::ptr::null_mut();
        // SAFETY: all pointers are live for the call, and `info` has one element.
        let status =
            unsafe { (self.calls.get)(&raw const proc, key.as_ptr(), info.as_ptr(), 1, &raw mut value) };
        self.calls.check("PMIx_Get", status)?;
        // SAFETY: after a success the value is the caller's.
        Ok(unsafe { Got::new(value) })
    }

    /// A number that holds for the whole job.
    fn number(&self, key: &CStr, deadline: Deadline) -> Result<u32> {
        self.fetch(RANK_WILDCARD, key, deadline)?.as_u32().ok_or_else(|| unexpected(key))
    }

    fn get(&self, pe: Pe, key: &CStr, deadline: Deadline) -> Result<Vec<u8>> {
        self.fetch(pe.0, key, deadline)?.as_bytes().ok_or_else(|| unexpected(key))
    }

    fn put(&self, key: &CStr, bytes: &[u8]) -> Result<()> {
        let mut value = Value::bytes(bytes);
        // SAFETY: the key and the value are live for the call, which copies them.
        let status = unsafe { (self.calls.put)(SCOPE_GLOBAL, key.as_ptr(), &raw mut value) };
        self.calls.check("PMIx_Put", status)?;
        // SAFETY: no arguments.
        self.calls.check("PMIx_Commit", unsafe { (self.calls.commit)() })
    }

    /// Returns once every PE has called it; what they put can be got then. Who has not put `key` by the deadline is late.
    fn fence(&self, n_pes: usize, key: &'static CStr, deadline: Deadline) -> Result<()> {
        let done = Arc::new(Fence::default());
        let info = [Info::collect(n_pes <= COLLECT)];
        // The library may answer after this PE gave up, so the place for it belongs to both.
        let place = Arc::into_raw(Arc::clone(&done)).cast::<c_void>().cast_mut();
        // SAFETY: `info` has one element and is copied; `place` is taken back by `fence_done`, which is called once if
        // this call succeeds.
        let status =
            unsafe { (self.calls.fence_nb)(std::ptr::null(), 0, info.as_ptr(), 1, Some(fence_done), place) };
        if let Err(e) = self.calls.check("PMIx_Fence_nb", status) {
            // SAFETY: the call failed, so nobody else takes it back.
            drop(unsafe { Arc::from_raw(place.cast_const().cast::<Fence>()) });
            return Err(e);
        }
        let mut status = done.status.lock().unwrap_or_else(PoisonError::into_inner);
        while status.is_none() && !deadline.passed() {
            let woken = done.came.wait_timeout(status, deadline.left());
            status = woken.unwrap_or_else(PoisonError::into_inner).0;
        }
        if let Some(status) = *status {
            return self.calls.check("PMIx_Fence", status);
        }
        drop(status);
        let waited = deadline.waited();
        let late = self.late(n_pes, key);
        if late.is_empty() {
            let why = format!("not every PE came within {waited:?}, though each has told where it is");
            return Err(Error::Bootstrap { call: "PMIx_Fence", why });
        }
        let (expected, got) = (n_pes as u64, (n_pes - late.len()) as u64);
        Err(Error::Timeout { op: "init", phase: "PMIx_Fence", late, expected, got, waited })
    }
}

fn unexpected(key: &CStr) -> Error {
    let why = format!("{} has another type than the standard says", key.to_string_lossy());
    Error::Bootstrap { call: "PMIx_Get", why }
}

/// Time left, as PMIx counts it; 0 would mean no limit.
fn seconds(deadline: Deadline) -> i32 {
    let left = deadline.left().max(Duration::from_secs(1)).as_secs();
    i32::try_from(left).unwrap_or(i32::MAX)
}

#[derive(Default)]
struct Fence {
    status: Mutex<Option<Status>>,
    came: Condvar,
}

/// # Safety
/// `place` is an `Arc<Fence>` given for this one call.
unsafe extern "C" fn fence_done(status: Status, place: *mut c_void) {
    // SAFETY: by the promise above.
    let fence = unsafe { Arc::from_raw(place.cast_const().cast::<Fence>()) };
    *fence.status.lock().unwrap_or_else(PoisonError::into_inner) = Some(status);
    fence.came.notify_all();
}

impl Contacts for Session {
    fn exchange(&mut self, card: &[u8], wanted: &[Pe], deadline: Deadline) -> Result<Vec<Vec<u8>>> {
        self.put(CARD, card)?;
        self.fence(self.number(c"pmix.job.size", deadline)? as usize, CARD, deadline)?;
        wanted.iter().map(|pe| self.get(*pe, CARD, deadline)).collect()
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        // SAFETY: no information is given; the session is not used after this.
        let status = unsafe { (self.calls.finalize)(std::ptr::null(), 0) };
        if let Err(e) = self.calls.check("PMIx_Finalize", status) {
            log::warn!("{}: {e}", crate::pe::here());
        }
    }
}
