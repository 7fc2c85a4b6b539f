//! Starts NVSHMEM in a job of Open MPI as far as it goes without a GPU, and says where it ended.
//!
//! ```text
//! mpirun -n 4 bootstrap uid     by unique id, carried by MPI
//! mpirun -n 4 bootstrap mpi     by MPI communicator
//! ```
//! Each PE prints one line: `PE 2 of 4 on NODE: NVSHMEM 3.4.5, uid: code 0, status 1, my_pe 2, n_pes 4`. Status 1 is what
//! a machine without a GPU gets: all PEs have found each other. With GPUs it is 2 or more. NVSHMEM is not finalized, because
//! finalize ends the process with an error if the status is 1.
//!
//! MPI is loaded at run time too, so that this example builds without it; for that it takes Open MPI's names of its objects.

use std::error::Error;
use std::ffi::{c_int, c_void};

use libloading::os::unix::{Library, RTLD_GLOBAL, RTLD_NOW};
use nvshmem_sys as sys;

/// The part of MPI that this takes.
struct Mpi {
    library: Library,
    world: *mut c_void,
}

impl Mpi {
    fn init() -> Result<Self, Box<dyn Error>> {
        // SAFETY: MPI's library may be loaded at any time; its plugins look for its symbols, so they are global.
        let library = unsafe { Library::open(Some("libmpi.so.40"), RTLD_NOW | RTLD_GLOBAL) }?;
        // SAFETY: MPI_Init takes two pointers, which may be null.
        let init =
            unsafe { library.get::<unsafe extern "C" fn(*mut c_int, *mut c_void) -> c_int>("MPI_Init") }?;
        // SAFETY: once a process, before any other call of MPI.
        let rc = unsafe { init(std::ptr::null_mut(), std::ptr::null_mut()) };
        if rc != 0 {
            return Err(format!("MPI_Init: code {rc}").into());
        }
        // SAFETY: Open MPI's MPI_COMM_WORLD is the address of this object.
        let world = unsafe { library.get::<*mut c_void>("ompi_mpi_comm_world") }?.into_raw();
        Ok(Self { library, world })
    }

    /// `MPI_Comm_rank` or `MPI_Comm_size`.
    fn number(&self, function: &str) -> Result<c_int, Box<dyn Error>> {
        let mut value = -1;
        // SAFETY: both take a communicator and a place for an integer.
        let rc = unsafe {
            let call =
                self.library.get::<unsafe extern "C" fn(*mut c_void, *mut c_int) -> c_int>(function)?;
            call(self.world, &raw mut value)
        };
        if rc == 0 { Ok(value) } else { Err(format!("{function}: code {rc}").into()) }
    }

    /// Rank 0's bytes, to all.
    fn broadcast(&self, bytes: &mut [u8]) -> Result<(), Box<dyn Error>> {
        type Bcast = unsafe extern "C" fn(*mut c_void, c_int, *mut c_void, c_int, *mut c_void) -> c_int;
        let count = c_int::try_from(bytes.len())?;
        // SAFETY: MPI_BYTE is the address of this object of Open MPI's; the buffer has `count` bytes.
        let rc = unsafe {
            let byte = self.library.get::<*mut c_void>("ompi_mpi_byte")?.into_raw();
            let call = self.library.get::<Bcast>("MPI_Bcast")?;
            call(bytes.as_mut_ptr().cast(), count, byte, 0, self.world)
        };
        if rc == 0 { Ok(()) } else { Err(format!("MPI_Bcast: code {rc}").into()) }
    }

    fn finalize(self) -> Result<(), Box<dyn Error>> {
        // SAFETY: the last call of MPI in this process.
        let rc = unsafe { self.library.get::<unsafe extern "C" fn() -> c_int>("MPI_Finalize")?() };
        if rc == 0 { Ok(()) } else { Err(format!("MPI_Finalize: code {rc}").into()) }
    }
}

fn main() -> Result<(), Box<dyn Error>> {
    let how = std::env::args().nth(1).unwrap_or_default();
    let nvshmem = sys::Nvshmem::load()?;
    let mut mpi = Mpi::init()?;
    let (rank, size) = (mpi.number("MPI_Comm_rank")?, mpi.number("MPI_Comm_size")?);
    let mut attr = sys::NVSHMEMX_INIT_ATTR_INITIALIZER;
    // The attribute points to the id, so the id lives until the end of main.
    let mut id = sys::NVSHMEMX_UNIQUEID_INITIALIZER;
    let (flags, set) = match how.as_str() {
        "uid" => {
            if rank == 0 {
                // SAFETY: a valid place.
                let rc = unsafe { nvshmem.nvshmemx_get_uniqueid(&raw mut id) }?;
                if rc != 0 {
                    return Err(format!("nvshmemx_get_uniqueid: code {rc}").into());
                }
            }
            let mut bytes = sys::uniqueid_to_bytes(&id);
            mpi.broadcast(&mut bytes)?;
            id = sys::uniqueid_from_bytes(bytes);
            // SAFETY: valid places; the id outlives the start-up.
            let set =
                unsafe { nvshmem.nvshmemx_set_attr_uniqueid_args(rank, size, &raw const id, &raw mut attr) }?;
            (sys::INIT_WITH_UNIQUEID, set)
        }
        "mpi" => {
            // SAFETY: a pointer to a communicator, and a valid place.
            let set = unsafe {
                nvshmem.nvshmemx_set_attr_mpi_comm_args((&raw mut mpi.world).cast(), &raw mut attr)
            }?;
            (sys::INIT_WITH_MPI_COMM, set)
        }
        other => return Err(format!("how to start is {other:?}, expected uid or mpi").into()),
    };
    if set != 0 {
        return Err(format!("the start-up's arguments were refused: code {set}").into());
    }
    // SAFETY: the attribute is complete and every PE of the job makes this call.
    let code = unsafe { nvshmem.nvshmemx_hostlib_init_attr(flags, &raw mut attr) }?;
    // SAFETY: these may be called once the PEs have found each other, and before; they read variables.
    let (status, my_pe, n_pes) =
        unsafe { (nvshmem.nvshmemx_init_status()?, nvshmem.nvshmem_my_pe()?, nvshmem.nvshmem_n_pes()?) };
    let node = std::fs::read_to_string("/proc/sys/kernel/hostname")?;
    println!(
        "PE {rank} of {size} on {}: NVSHMEM {}, {how}: code {code}, status {status}, my_pe {my_pe}, n_pes {n_pes}",
        node.trim(),
        nvshmem.version()
    );
    mpi.finalize()
}
