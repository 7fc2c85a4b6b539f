//! Launches a kernel of your own that puts to a peer and signals it, with the headers of `kernels/include`.
//!
//! ```text
//! nvcc -fatbin -std=c++17 -arch=sm_90 -Ikernels/include examples/cuda/own_kernel.cu -o own_kernel.fatbin
//! cargo build --example own_kernel --features cuda
//! symm run -n 2 -- target/debug/examples/own_kernel own_kernel.fatbin
//! ```

use anyhow::{Context, Result, bail, ensure};
use cudarc::driver::sys::{self, CUfunction, CUmodule, CUresult};
use symm::{AnyStream, DType};

/// `symm::Handle` of `kernels/include/symm/handle.cuh`.
#[repr(C)]
struct KernelHandle {
    buffers: u64,
    pads: u64,
    signals: u64,
    rank: u64,
    ranks: u64,
}

const WORDS: usize = 1000;
const SIGNAL: usize = 3;

fn check(call: &str, result: CUresult) -> Result<()> {
    ensure!(result == CUresult::CUDA_SUCCESS, "{call}: {result:?}");
    Ok(())
}

fn main() -> Result<()> {
    let path = std::env::args().nth(1).context("usage: own_kernel IMAGE")?;
    let image = std::fs::read(&path).with_context(|| path.clone())?;
    let world = symm::init()?;
    let (team, stream) = (world.team(), world.stream()?);
    let AnyStream::Cuda(raw) = stream.raw() else { bail!("this example needs GPUs: SYMM_BACKEND=cuda") };

    let handle = team.empty(&[WORDS], DType::U64)?.rendezvous(team)?;
    let seen = world.local(DType::U64, WORDS)?;
    stream.fill(&seen.span(), 0xFF)?;

    let mut module: CUmodule = std::ptr::null_mut();
    // SAFETY: a valid place, and a whole fat binary; the library's context is current on the thread that opened the world.
    check("cuModuleLoadData", unsafe { sys::cuModuleLoadData(&raw mut module, image.as_ptr().cast()) })?;
    let mut ring: CUfunction = std::ptr::null_mut();
    // SAFETY: a valid place, a loaded module, a NUL-terminated name.
    check("cuModuleGetFunction", unsafe {
        sys::cuModuleGetFunction(&raw mut ring, module, c"ring".as_ptr())
    })?;

    // The handle as kernels see it.
    let device = handle.device_ptrs();
    let mut given = KernelHandle {
        buffers: device.buffers.0,
        pads: device.pads.0,
        signals: handle.pad_layout().signal(0) as u64,
        rank: team.rank() as u64,
        ranks: team.world_size() as u64,
    };
    let mut values = [SIGNAL as u64, WORDS as u64, 10_000_000_000, seen.span().addr().0];
    let mut arguments = vec![(&raw mut given).cast()];
    arguments.extend(values.each_mut().map(|v| std::ptr::from_mut(v).cast()));
    let none = std::ptr::null_mut();
    // SAFETY: a handle and four 8-byte parameters, as the kernel has; handle and memory live until the stream is synchronised.
    check("cuLaunchKernel", unsafe {
        sys::cuLaunchKernel(ring, 1, 1, 1, 256, 1, 1, 0, raw.cu_stream(), arguments.as_mut_ptr(), none)
    })?;

    let got: Vec<u64> = stream.read(&seen.span())?;
    let left = (team.rank() + team.world_size() - 1) % team.world_size();
    let want: Vec<u64> = (0..WORDS as u64).map(|i| 1000 * left as u64 + i).collect();
    assert_eq!(got, want);
    println!("PE {}: {WORDS} words and a signal from PE {left}", world.pe());
    world.finalize()?;
    Ok(())
}
