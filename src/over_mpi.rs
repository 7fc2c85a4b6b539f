//! Start over an MPI communicator (feature `mpi`).
//!
//! MPI tells the PEs each other's addresses, a name for the job and a secret that rank 0 chooses; what follows goes over
//! our own connections, which tell of death. Every call is one that can be waited for under a deadline.

use std::mem::MaybeUninit;
use std::sync::{Arc, mpsc};
use std::time::Duration;

use mpi::ffi;
use mpi::traits::Communicator;
use symm_core::bootstrap::{Bootstrap, Contacts, Family, Identity, Secret, Sockets, Whereabouts};
use symm_core::{Config, Deadline, Error, Pe, Result};

/// How long after the deadline an error of one of MPI's calls, which says more, is still waited for.
const GRACE: Duration = Duration::from_millis(500);
/// Longest card that fits its place in the exchange.
const CARD: usize = 510;
/// A card with its length before it.
const PLACE: usize = 2 + CARD;
/// Secret, and what names the job.
const CHOSEN: usize = 32 + 8;

fn env(name: &str) -> Option<String> {
    std::env::var_os(name).map(|v| v.to_string_lossy().into_owned()).filter(|v| !v.is_empty())
}

/// Whether the world is to be opened over MPI: because the settings say so, or because nothing else is there and the
/// application has initialised MPI, or a launcher that only MPI understands started this process.
pub(crate) fn is_meant(config: &Config) -> Result<bool> {
    match Family::find(config, env) {
        Ok(Some(Family::Mpi)) => Ok(true),
        Ok(Some(_)) => Ok(false),
        Ok(None) => Ok(config.bootstrap == "auto" && is_running()?),
        Err(Error::Setting { name: "SYMM_N_PES", .. })
            if config.n_pes.is_none() && config.bootstrap == "auto" =>
        {
            Ok(true)
        }
        Err(e) => Err(e),
    }
}

/// Whether MPI is initialised and not finalized.
fn is_running() -> Result<bool> {
    let (mut begun, mut ended) = (0, 0);
    // SAFETY: both may be called at any time, with a live place for the answer.
    unsafe {
        check("MPI_Initialized", ffi::MPI_Initialized(&raw mut begun))?;
        check("MPI_Finalized", ffi::MPI_Finalized(&raw mut ended))?;
    }
    Ok(begun != 0 && ended == 0)
}

/// Over all processes that MPI started. If the application has not initialised MPI, it is initialised for this alone and
/// finalized again: a process that ends with MPI open takes the others along.
///
/// Both wait for every process and know no deadline, so a thread of its own makes all calls of MPI; it is left behind when the
/// deadline passes.
pub(crate) fn start(config: &Config) -> Result<Arc<dyn Bootstrap>> {
    if is_running()? {
        return over(&mpi::topology::SimpleCommunicator::world(), config);
    }
    let (tell, hear) = mpsc::channel();
    let (settings, deadline) = (config.clone(), Deadline::after(config.init_timeout));
    let thread = std::thread::Builder::new().name("symm-mpi".to_owned());
    let started = thread.spawn(move || {
        let Some((universe, _)) = mpi::initialize_with_threading(mpi::Threading::Funneled) else {
            // Who gave up meanwhile hears nothing any more, here and below.
            let _ = tell.send(Err(Error::Backend {
                backend: "mpi",
                call: "MPI_Init_thread",
                code: -1,
                text: "MPI was finalized already, and cannot be initialised again".to_owned(),
            }));
            return;
        };
        match over_until(&universe.world(), &settings, deadline) {
            Ok(boot) => {
                drop(universe);
                let _ = tell.send(Ok(boot));
            }
            // First, since the others may not come to the end of MPI either.
            Err(e) => drop(tell.send(Err(e))),
        }
    });
    started.map_err(|e| Error::System {
        call: "pthread_create",
        errno: e.raw_os_error().unwrap_or(0),
        text: e.to_string(),
    })?;
    hear.recv_timeout(deadline.left() + GRACE).unwrap_or_else(|_| {
        let why = format!(
            "not every PE came to MPI_Init or MPI_Finalize within {:.1?}; MPI does not tell who is missing",
            deadline.waited()
        );
        Err(Error::Bootstrap { call: "MPI_Init_thread", why })
    })
}

/// Over the processes of `comm`, PE = rank.
pub(crate) fn over(comm: &impl Communicator, config: &Config) -> Result<Arc<dyn Bootstrap>> {
    over_until(comm, config, Deadline::after(config.init_timeout))
}

fn over_until(comm: &impl Communicator, config: &Config, deadline: Deadline) -> Result<Arc<dyn Bootstrap>> {
    config.check()?;
    let pe = Pe(u32::try_from(comm.rank()).unwrap_or(u32::MAX));
    let n_pes = usize::try_from(comm.size()).unwrap_or(0);
    let mut own = Own::duplicate(comm, deadline)?;
    let mut chosen = vec![0; CHOSEN];
    if pe == Pe(0) {
        chosen[..32].copy_from_slice(&Secret::random()?);
        chosen[32..].copy_from_slice(&Secret::random()?[..8]);
    }
    let chosen = own.broadcast(chosen, deadline)?;
    let secret = config.token.as_ref().map_or(&chosen[..32], |token| token.0.as_bytes());
    let job: String = chosen[32..].iter().map(|b| format!("{b:02x}")).collect();
    let identity = Identity { pe, n_pes, job: format!("mpi-{job}"), secret: Secret::new(secret) };
    let interfaces = config.interfaces.as_deref();
    let boot = Sockets::join(identity, Whereabouts::Anywhere { contacts: &mut own, interfaces }, deadline)?;
    own.free()?;
    Ok(boot)
}

/// A communicator of our own, on which errors are returned.
struct Own {
    comm: ffi::MPI_Comm,
    n_pes: usize,
}

impl Own {
    fn duplicate(comm: &impl Communicator, deadline: Deadline) -> Result<Own> {
        let n_pes = usize::try_from(comm.size()).unwrap_or(0);
        let mut request = MaybeUninit::uninit();
        let new = Lent::new(Box::new([MaybeUninit::<ffi::MPI_Comm>::uninit()]));
        // SAFETY: the communicator is live for the borrow; the place for the new one outlives the
        // call.
        let request = unsafe {
            check("MPI_Comm_idup", ffi::MPI_Comm_idup(comm.as_raw(), new.0.cast(), request.as_mut_ptr()))?;
            request.assume_init()
        };
        wait("MPI_Comm_idup", request, deadline)?;
        // SAFETY: the call is complete, so the communicator is written; the handler is a constant of MPI.
        unsafe {
            let comm = new.back()[0].assume_init();
            check("MPI_Comm_set_errhandler", ffi::MPI_Comm_set_errhandler(comm, ffi::RSMPI_ERRORS_RETURN))?;
            Ok(Own { comm, n_pes })
        }
    }

    /// Rank 0's bytes, on all.
    fn broadcast(&self, bytes: Vec<u8>, deadline: Deadline) -> Result<Vec<u8>> {
        let bytes = Lent::new(bytes.into_boxed_slice());
        let mut request = MaybeUninit::uninit();
        // SAFETY: the buffer outlives the call; count and type fit it.
        let request = unsafe {
            let (place, count) = (bytes.0.cast(), bytes.0.len() as i32);
            let status =
                ffi::MPI_Ibcast(place, count, ffi::RSMPI_UINT8_T, 0, self.comm, request.as_mut_ptr());
            check("MPI_Ibcast", status)?;
            request.assume_init()
        };
        wait("MPI_Ibcast", request, deadline)?;
        // SAFETY: the call is complete.
        Ok(unsafe { bytes.back() }.into_vec())
    }

    /// Everybody's `PLACE` bytes, in rank order.
    fn all_gather(&self, mine: Vec<u8>, deadline: Deadline) -> Result<Box<[u8]>> {
        let mine = Lent::new(mine.into_boxed_slice());
        let all = Lent::new(vec![0_u8; PLACE * self.n_pes].into_boxed_slice());
        let mut request = MaybeUninit::uninit();
        let count = PLACE as i32;
        // SAFETY: both buffers outlive the call; counts and types fit them.
        let request = unsafe {
            let status = ffi::MPI_Iallgather(
                mine.0.cast(),
                count,
                ffi::RSMPI_UINT8_T,
                all.0.cast(),
                count,
                ffi::RSMPI_UINT8_T,
                self.comm,
                request.as_mut_ptr(),
            );
            check("MPI_Iallgather", status)?;
            request.assume_init()
        };
        wait("MPI_Iallgather", request, deadline)?;
        // SAFETY: the call is complete.
        unsafe {
            drop(mine.back());
            Ok(all.back())
        }
    }

    fn free(mut self) -> Result<()> {
        // SAFETY: no operation of the communicator is under way, and nobody uses it after this.
        check("MPI_Comm_free", unsafe { ffi::MPI_Comm_free(&raw mut self.comm) })
    }
}

impl Contacts for Own {
    fn exchange(&mut self, card: &[u8], wanted: &[Pe], deadline: Deadline) -> Result<Vec<Vec<u8>>> {
        if card.len() > CARD {
            let expected = format!("{CARD} bytes at most: SYMM_IFNAME names fewer interfaces");
            return Err(Error::argument("init", "card", card.len(), expected));
        }
        let mut mine = (card.len() as u16).to_le_bytes().to_vec();
        mine.extend_from_slice(card);
        mine.resize(PLACE, 0);
        let all = self.all_gather(mine, deadline)?;
        let card = |pe: &Pe| {
            let place = &all[pe.index() * PLACE..][..PLACE];
            let len = usize::from(u16::from_le_bytes([place[0], place[1]]));
            place[2..][..len.min(CARD)].to_vec()
        };
        Ok(wanted.iter().map(card).collect())
    }
}

/// Memory that MPI may use until a call is complete. It is never freed if it is not taken back: MPI may still use it after
/// this PE gave up waiting, and a collective cannot be called off.
struct Lent<T>(*mut [T]);

impl<T> Lent<T> {
    fn new(memory: Box<[T]>) -> Self {
        Lent(Box::into_raw(memory))
    }

    /// # Safety
    /// The call that uses it is complete.
    unsafe fn back(self) -> Box<[T]> {
        // SAFETY: it came from a box, and MPI does not use it any more.
        unsafe { Box::from_raw(self.0) }
    }
}

/// Waits for a request, until the deadline.
fn wait(call: &'static str, request: ffi::MPI_Request, deadline: Deadline) -> Result<()> {
    let mut request = request;
    let mut pause = std::time::Duration::from_micros(10);
    loop {
        let mut done = 0;
        // SAFETY: the request is live, and so are the places for the answer; no status is asked for.
        let status = unsafe { ffi::MPI_Test(&raw mut request, &raw mut done, ffi::RSMPI_STATUS_IGNORE) };
        check(call, status)?;
        if done != 0 {
            return Ok(());
        }
        if deadline.passed() {
            let why =
                format!("not every PE came within {:?}; MPI does not tell who is missing", deadline.waited());
            return Err(Error::Bootstrap { call, why });
        }
        std::thread::sleep(pause);
        pause = (pause * 2).min(std::time::Duration::from_millis(1));
    }
}

/// The error of a call of MPI's, unless it succeeded.
fn check(call: &'static str, status: i32) -> Result<()> {
    if status == ffi::MPI_SUCCESS as i32 {
        return Ok(());
    }
    let mut text = [0_u8; 2048];
    let mut len = 0;
    // SAFETY: the buffer is longer than MPI_MAX_ERROR_STRING of any implementation.
    let known = unsafe { ffi::MPI_Error_string(status, text.as_mut_ptr().cast(), &raw mut len) };
    let len =
        if known == ffi::MPI_SUCCESS as i32 { usize::try_from(len).unwrap_or(0).min(text.len()) } else { 0 };
    let text = String::from_utf8_lossy(&text[..len]).into_owned();
    Err(Error::Backend { backend: "mpi", call, code: i64::from(status), text })
}
