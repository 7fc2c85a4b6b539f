//! Launches kernels of your own that put to a peer, signal it and meet, with the headers of `kernels/include`, and replays them from a
//! graph.
//!
//! ```text
//! nvcc -fatbin -std=c++17 -arch=sm_90 -Ikernels/include examples/cuda/own_kernel.cu -o own_kernel.fatbin
//! cargo build --example own_kernel --features cuda
//! symm run -n 2 -- target/debug/examples/own_kernel own_kernel.fatbin
//! ```

use std::ffi::CStr;

use anyhow::{Context, Result, bail, ensure};
use cudarc::driver::sys::{self, CUfunction, CUmodule, CUresult};
use symm::{AnyStream, DType, KernelHandle, Stream};

const WORDS: usize = 1000;
const SIGNAL: u64 = 3;
const LIMIT_NS: u64 = 10_000_000_000;
const REPLAYS: u64 = 10;

fn check(call: &str, result: CUresult) -> Result<()> {
    ensure!(result == CUresult::CUDA_SUCCESS, "{call}: {result:?}");
    Ok(())
}

fn load(image: &[u8]) -> Result<CUmodule> {
    let mut module: CUmodule = std::ptr::null_mut();
    // SAFETY: a valid place, and a whole fat binary; the library's context is current on the thread that opened the world.
    check("cuModuleLoadData", unsafe { sys::cuModuleLoadData(&raw mut module, image.as_ptr().cast()) })?;
    Ok(module)
}

/// Enqueues one block of a kernel that takes the handle, then 8-byte parameters.
///
/// # Safety
/// The module has that kernel, and it takes as many; handle and memory live until the stream has passed it.
unsafe fn launch(
    stream: &Stream,
    module: CUmodule,
    name: &CStr,
    mut handle: KernelHandle,
    values: &mut [u64],
) -> Result<()> {
    let AnyStream::Cuda(raw) = stream.raw() else { bail!("this example needs GPUs: SYMM_BACKEND=cuda") };
    let mut kernel: CUfunction = std::ptr::null_mut();
    // SAFETY: a valid place, a loaded module, a NUL-terminated name.
    check("cuModuleGetFunction", unsafe {
        sys::cuModuleGetFunction(&raw mut kernel, module, name.as_ptr())
    })?;
    let mut arguments = vec![(&raw mut handle).cast()];
    arguments.extend(values.iter_mut().map(|v| std::ptr::from_mut(v).cast()));
    let none = std::ptr::null_mut();
    // SAFETY: the caller promises the parameters, whose values the driver copies before it returns.
    check("cuLaunchKernel", unsafe {
        sys::cuLaunchKernel(kernel, 1, 1, 1, 256, 1, 1, 0, raw.cu_stream(), arguments.as_mut_ptr(), none)
    })
}

fn main() -> Result<()> {
    let path = std::env::args().nth(1).context("usage: own_kernel IMAGE")?;
    let image = std::fs::read(&path).with_context(|| path.clone())?;
    let world = symm::init()?;
    let (team, stream) = (world.team(), world.stream()?);
    let (me, n) = (team.rank(), team.world_size());
    ensure!(matches!(stream.raw(), AnyStream::Cuda(_)), "this example needs GPUs: SYMM_BACKEND=cuda");
    let module = load(&image)?;

    // What the left neighbour puts, then a row of everybody's.
    let handle = team.empty(&[(1 + n) * WORDS], DType::U64)?.rendezvous(team)?;
    let [mine, seen, sums] =
        [world.local(DType::U64, WORDS)?, world.local(DType::U64, WORDS)?, world.local(DType::U64, WORDS)?];
    let runs = world.local(DType::U64, 1)?;
    stream.fill(&runs.span(), 0)?;

    let address = |local: &symm::Local| local.span().addr().0;
    let (words, first) = (WORDS as u64, 8 * WORDS as u64);
    stream.begin_capture()?;
    let mut ring = [SIGNAL, words, LIMIT_NS, address(&runs), address(&mine), address(&seen)];
    let mut add_up = [first, words, LIMIT_NS, address(&mine), address(&sums)];
    // SAFETY: the kernels of own_kernel.cu and their parameters; handle and memory live until `main` returns.
    let captured = unsafe {
        launch(&stream, module, c"ring", handle.kernel_handle(), &mut ring)
            .and_then(|()| launch(&stream, module, c"add_up", handle.kernel_handle(), &mut add_up))
    };
    let graph = stream.end_capture()?;
    captured?;

    let left = ((me + n - 1) % n) as u64;
    for run in 1..=REPLAYS {
        stream.fill(&seen.span(), 0xFF)?;
        stream.fill(&sums.span(), 0xFF)?;
        // SAFETY: what was captured lives; launches of one stream do not overlap; all PEs make as many.
        unsafe { stream.launch(&graph)? };
        let word = |rank: u64, i: u64| 1_000_000 * run + 1000 * rank + i;
        let (ranks, all) = (n as u64, 0..WORDS as u64);
        let want: Vec<u64> = all.clone().map(|i| word(left, i)).collect();
        assert_eq!(stream.read::<u64>(&seen.span())?, want, "run {run} of the ring");
        let want: Vec<u64> = all.map(|i| (0..ranks).map(|rank| word(rank, i)).sum()).collect();
        assert_eq!(stream.read::<u64>(&sums.span())?, want, "run {run} of the sums");
    }
    team.status()?;
    println!(
        "PE {}: {REPLAYS} times {WORDS} words and a signal from PE {left}, and the sums of all",
        world.pe()
    );
    world.finalize()?;
    Ok(())
}
