//! Dispatches while a matrix product of cuBLAS and an all-reduce of NCCL run on streams of their own in the same process. NCCL refuses
//! several PEs on one GPU; there the matrix products run alone, and the figures say so.

#[cfg(not(feature = "cuda"))]
pub(crate) fn run(run: &crate::Run<'_>) -> anyhow::Result<serde_json::Value> {
    let why = "this build has no GPU backend";
    run.skips("beside", why)?;
    Ok(serde_json::json!({ "calls": 0, "why": why }))
}

#[cfg(feature = "cuda")]
pub(crate) use cuda::run;

#[cfg(feature = "cuda")]
mod cuda {
    use std::ffi::{CStr, c_int, c_void};

    use anyhow::{Result, bail, ensure};
    use serde_json::{Value, json};
    use symm::{AnyStream, Backend, DType, Options, Stream, World};

    use crate::Run;
    use crate::dispatch::{Set, capacity};

    /// Rows and columns of the matrices.
    const SIDE: usize = 2048;
    /// Elements that are added up over all PEs.
    const REDUCED: usize = 1 << 20;

    fn raw(stream: &Stream) -> Result<*mut c_void> {
        match stream.raw() {
            AnyStream::Cuda(s) => Ok(s.cu_stream().cast()),
            _ => bail!("a stream of another backend"),
        }
    }

    fn ok(call: &str, code: c_int) -> Result<()> {
        ensure!(code == 0, "{call} failed (code {code})");
        Ok(())
    }

    /// A library that is loaded, and stays so.
    struct Library(*mut c_void);

    impl Library {
        fn open(names: &[&CStr]) -> Option<Self> {
            // SAFETY: NUL-terminated names; the constructors of these libraries are their own affair.
            let open = |name: &&CStr| unsafe { libc::dlopen(name.as_ptr(), libc::RTLD_NOW) };
            names.iter().map(open).find(|handle| !handle.is_null()).map(Library)
        }

        /// # Safety
        /// `F` is the type of the function of that name.
        unsafe fn get<F: Copy>(&self, name: &CStr) -> Result<F> {
            // SAFETY: a live library and a NUL-terminated name.
            let at = unsafe { libc::dlsym(self.0, name.as_ptr()) };
            ensure!(!at.is_null(), "{name:?} is not there");
            assert_eq!(size_of::<F>(), size_of::<*mut c_void>());
            // SAFETY: the caller promises the type; a function pointer has the size of a pointer (asserted).
            Ok(unsafe { std::mem::transmute_copy(&at) })
        }
    }

    /// `ncclUniqueId`.
    #[repr(C)]
    #[derive(Clone, Copy)]
    struct Id([u8; 128]);

    type GetId = unsafe extern "C" fn(*mut Id) -> c_int;
    type Join = unsafe extern "C" fn(*mut *mut c_void, c_int, Id, c_int) -> c_int;
    type AllReduce = unsafe extern "C" fn(
        *const c_void,
        *mut c_void,
        usize,
        c_int,
        c_int,
        *mut c_void,
        *mut c_void,
    ) -> c_int;
    type OnHandle = unsafe extern "C" fn(*mut c_void) -> c_int;
    type Create = unsafe extern "C" fn(*mut *mut c_void) -> c_int;
    type SetStream = unsafe extern "C" fn(*mut c_void, *mut c_void) -> c_int;
    type Gemm = unsafe extern "C" fn(
        *mut c_void,
        c_int,
        c_int,
        c_int,
        c_int,
        c_int,
        *const f32,
        *const f32,
        c_int,
        *const f32,
        c_int,
        *const f32,
        *mut f32,
        c_int,
    ) -> c_int;

    /// A communicator of NCCL over all PEs; its id travels through this library.
    fn join(world: &World, stream: &Stream, nccl: &Library) -> Result<*mut c_void> {
        let mut id = Id([0; 128]);
        // SAFETY: NCCL's documented signatures, and a valid place.
        ok("ncclGetUniqueId", unsafe { nccl.get::<GetId>(c"ncclGetUniqueId")?(&raw mut id) })?;
        let mine = world.local(DType::U8, id.0.len())?;
        stream.write(&mine.span(), &id.0)?;
        let team = world.team();
        let all = team.empty(&[id.0.len() * world.n_pes()], DType::U8)?.rendezvous(team)?;
        team.all_gather(stream, &mine.span(), &all, Options::default())?;
        let of_the_first = all.span().slice(0, id.0.len())?;
        id.0.copy_from_slice(&stream.read::<u8>(&of_the_first)?);
        let mut comm = std::ptr::null_mut();
        let (n, rank) = (c_int::try_from(world.n_pes())?, c_int::try_from(team.rank())?);
        // SAFETY: as above; every PE calls it with the same id.
        ok("ncclCommInitRank", unsafe {
            nccl.get::<Join>(c"ncclCommInitRank")?(&raw mut comm, n, id, rank)
        })?;
        Ok(comm)
    }

    pub(crate) fn run(run: &Run<'_>) -> Result<Value> {
        let world = run.world;
        if world.backend().name() != "cuda" {
            let why = "the backend has no streams of others";
            run.skips("beside", why)?;
            return Ok(json!({ "calls": 0, "why": why }));
        }
        let shared = world.n_pes() > symm_cuda::device_count()?;
        let nccl = if shared { None } else { Library::open(&[c"libnccl.so.2"]) };
        let blas = Library::open(&[
            c"libcublas.so.13",
            c"/usr/local/cuda/lib64/libcublas.so.13",
            c"libcublas.so.12",
        ]);
        let Some(blas) = blas.filter(|_| shared || nccl.is_some()) else {
            let why = "libnccl or libcublas was not found";
            run.skips("beside", why)?;
            return Ok(json!({ "calls": 0, "why": why }));
        };
        let [stream, reducing, multiplying] = [world.stream()?, world.stream()?, world.stream()?];
        let (reduce_on, multiply_on) = (raw(&reducing)?, raw(&multiplying)?);
        // SAFETY: NCCL's documented signature.
        let all_reduce =
            nccl.as_ref().map(|l| unsafe { l.get::<AllReduce>(c"ncclAllReduce") }).transpose()?;
        let comm = nccl.as_ref().map(|l| join(world, &stream, l)).transpose()?;
        let output = world.team().empty(&[capacity(world.n_pes())], DType::U8)?.rendezvous(world.team())?;
        let sets = (0..2).map(|i| Set::new(world, &stream, 900 + i)).collect::<Result<Vec<_>>>()?;

        let floats = |n: usize, value: f32| {
            let local = world.local(DType::F32, n)?;
            stream.write(&local.span(), &vec![value; n])?;
            anyhow::Ok(local)
        };
        let (a, b, c) = (floats(SIDE * SIDE, 1.0)?, floats(SIDE * SIDE, 2.0)?, floats(SIDE * SIDE, 0.0)?);
        let (part, sum) = (floats(REDUCED, world.pe().index() as f32 + 1.0)?, floats(REDUCED, 0.0)?);
        let mut handle = std::ptr::null_mut();
        // SAFETY: cuBLAS's documented signatures, a valid place, a live stream.
        let gemm = unsafe {
            ok("cublasCreate_v2", blas.get::<Create>(c"cublasCreate_v2")?(&raw mut handle))?;
            ok("cublasSetStream_v2", blas.get::<SetStream>(c"cublasSetStream_v2")?(handle, multiply_on))?;
            blas.get::<Gemm>(c"cublasSgemm_v2")?
        };
        run.checker.clear(&stream)?;
        stream.synchronize()?;
        let calls = run.rounds(5000, 20);
        let (one, zero, n) = (1f32, 0f32, c_int::try_from(SIDE)?);
        let pointer = |l: &symm::Local| l.span().addr().as_ptr::<f32>();
        let both = || {
            // SAFETY: buffers of that many elements, which live until the streams are synchronised; the same order of
            // all-reduces on every PE.
            unsafe {
                let (from, to) = (pointer(&part).cast_const().cast(), pointer(&sum).cast());
                if let (Some(all_reduce), Some(comm)) = (all_reduce, comm) {
                    ok("ncclAllReduce", all_reduce(from, to, REDUCED, 7, 0, comm, reduce_on))?;
                }
                let (a, b, c) = (pointer(&a), pointer(&b), pointer(&c));
                ok("cublasSgemm_v2", gemm(handle, 0, 0, n, n, n, &one, a, n, b, n, &zero, c, n))
            }
        };
        // Their first calls allocate and so wait for the whole GPU: never while a kernel waits for a peer that is in one.
        both()?;
        reducing.synchronize()?;
        multiplying.synchronize()?;
        for call in 0..calls {
            // At another call on each PE, so that the libraries' kernels meet in every order.
            if call % 4 == world.pe().index() % 4 {
                both()?;
            }
            let set = &sets[call % 2];
            set.call(world, &stream, &output)?;
            set.check(run, &stream, &output, call as u64)?;
            if call % 500 == 499 {
                stream.synchronize()?;
            }
        }
        run.checker.settle(&stream)?;
        reducing.synchronize()?;
        multiplying.synchronize()?;
        let pes = world.n_pes();
        let expected = if comm.is_some() { (pes * (pes + 1) / 2) as f32 } else { 0.0 };
        ensure!(stream.read::<f32>(&sum.span())?.iter().all(|v| *v == expected), "NCCL's sum");
        let expected = 2.0 * SIDE as f32;
        ensure!(stream.read::<f32>(&c.span())?.iter().all(|v| *v == expected), "cuBLAS's product");
        // SAFETY: live handles, whose streams are idle.
        unsafe {
            ok("cublasDestroy_v2", blas.get::<OnHandle>(c"cublasDestroy_v2")?(handle))?;
            if let (Some(nccl), Some(comm)) = (&nccl, comm) {
                ok("ncclCommDestroy", nccl.get::<OnHandle>(c"ncclCommDestroy")?(comm))?;
            }
        }
        let (times, how) = (calls / 4 + 1, run.checker.how());
        Ok(if comm.is_some() {
            json!({ "calls": calls, "all_reduces": times, "products": times, "compared": how })
        } else {
            let why = "PEs share a GPU, which NCCL refuses";
            json!({ "calls": calls, "all_reduces": 0, "products": times, "compared": how, "why": why })
        })
    }
}
