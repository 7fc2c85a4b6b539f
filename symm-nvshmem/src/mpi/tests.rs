use libloading::os::unix::RTLD_GLOBAL;
use symm_core::Pe;

use super::*;
use crate::library::By;

#[test]
fn the_setting_goes_before_the_file_beside_the_library() {
    let folder = std::env::temp_dir().join(format!("symm-nvshmem-plugin-{}", std::process::id()));
    std::fs::create_dir_all(&folder).expect("a temporary folder");
    let library = folder.join("libnvshmem_host.so.3");
    assert_eq!(plugin(&library, None), PathBuf::from(PLUGIN), "the dynamic loader's search");
    std::fs::write(folder.join(PLUGIN), "").expect("a temporary file");
    assert_eq!(plugin(&library, None), folder.join(PLUGIN));
    assert_eq!(plugin(&library, Some(PathBuf::new())), folder.join(PLUGIN));
    assert_eq!(plugin(&library, Some(PathBuf::from("/other.so"))), PathBuf::from("/other.so"));
    std::fs::remove_dir_all(&folder).expect("the folder is ours");
}

#[test]
fn a_communicator_is_kept_as_its_bytes() {
    // SAFETY: never given to NVSHMEM.
    let comm = unsafe { MpiComm::new(0x4400_0000_i32) };
    // SAFETY: the place holds that integer.
    assert_eq!(unsafe { *comm.place().cast::<i32>() }, 0x4400_0000);
}

#[test]
fn a_plugin_that_is_not_there_is_an_error_with_the_setting() {
    let why = check_plugin(Path::new("/no/such/folder/plugin.so")).expect_err("there is no plugin");
    assert!(why.contains("cannot be loaded") && why.contains(SETTING), "{why}");
}

/// Open MPI, by the names of its objects.
struct OpenMpi(Library);

impl OpenMpi {
    fn init(level: c_int) -> Self {
        // SAFETY: MPI's library may be loaded at any time; its plugins look for its symbols, so they are global.
        let library =
            unsafe { Library::open(Some("libmpi.so.40"), libloading::os::unix::RTLD_NOW | RTLD_GLOBAL) };
        let library = library.expect("Open MPI");
        type Init = unsafe extern "C" fn(*mut c_int, *mut c_void, c_int, *mut c_int) -> c_int;
        // SAFETY: the type is MPI_Init_thread's.
        let init = unsafe { library.get::<Init>(b"MPI_Init_thread\0") }.expect("MPI_Init_thread");
        let mut given = 0;
        // SAFETY: the arguments may be null; once a process, before any other call of MPI.
        assert_eq!(unsafe { init(std::ptr::null_mut(), std::ptr::null_mut(), level, &raw mut given) }, 0);
        OpenMpi(library)
    }

    fn world(&self) -> *mut c_void {
        // SAFETY: MPI_COMM_WORLD is the address of this object.
        unsafe { self.0.get::<*mut c_void>(b"ompi_mpi_comm_world\0") }.expect("MPI_COMM_WORLD").into_raw()
    }

    fn number(&self, function: &[u8]) -> usize {
        type Ask = unsafe extern "C" fn(*mut c_void, *mut c_int) -> c_int;
        let mut value = -1;
        // SAFETY: both functions take a communicator and a place for an integer.
        let rc =
            unsafe { self.0.get::<Ask>(function).expect("a function of MPI")(self.world(), &raw mut value) };
        assert_eq!(rc, 0);
        usize::try_from(value).expect("a rank or size")
    }
}

/// A PE of a job of Open MPI. `SYMM_TEST_MPI` says what is wrong with it: nothing (`right`), the thread level (`single`), its number
/// (`other`). Right is status 1, which is as far as start-up goes without a GPU.
#[test]
#[ignore = "ci/nvshmem starts it by mpirun, on a machine without a GPU"]
fn starts_over_open_mpi() {
    let case = std::env::var("SYMM_TEST_MPI").expect("SYMM_TEST_MPI");
    let library = crate::library::Library::load().expect("NVSHMEM");
    let before = check(library.path()).expect_err("MPI is not initialised");
    assert!(before.contains("MPI is not running"), "{before}");
    let mpi = OpenMpi::init(if case == "single" { 0 } else { SERIALIZED });
    let checked = check(library.path());
    if case == "single" {
        let why = checked.expect_err("one thread only");
        assert!(why.contains("MPI_THREAD_SERIALIZED"), "{why}");
        println!("MPI: {why}");
    } else {
        assert_eq!(checked, Ok(()));
        let (rank, n) = (mpi.number(b"MPI_Comm_rank\0"), mpi.number(b"MPI_Comm_size\0"));
        let pe = if case == "other" { n - 1 - rank } else { rank };
        // SAFETY: Open MPI's communicator is a pointer; MPI runs until the end, and this thread waits.
        let comm = unsafe { MpiComm::new(mpi.world()) };
        let started = std::thread::spawn(move || library.start(Pe::from(pe), n, By::Mpi(comm))).join();
        let why = started.expect("no panic").expect_err("there is no GPU");
        let expected =
            if case == "other" { "the communicator is another one" } else { "status 1, needed is 2" };
        assert!(why.contains(expected), "{why}");
        println!("MPI: {why}");
    }
    // SAFETY: the last call of MPI in this process.
    let end =
        unsafe { mpi.0.get::<unsafe extern "C" fn() -> c_int>(b"MPI_Finalize\0") }.expect("MPI_Finalize");
    // SAFETY: as above.
    assert_eq!(unsafe { end() }, 0);
}
