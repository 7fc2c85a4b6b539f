//! Kernels of the benches' own: the comparison of results, and what a user's kernel could do.

use std::ffi::{CStr, c_void};

use anyhow::{Context as _, Result, bail, ensure};
use cudarc::driver::sys::{self, CUfunction, CUmodule, CUresult};
use symm::{AnyStream, DType, Handle, Span, Stream, World};

fn check(call: &str, result: CUresult) -> Result<()> {
    ensure!(result == CUresult::CUDA_SUCCESS, "{call}: {result:?}");
    Ok(())
}

/// A kernel whose parameters are 8-byte words.
pub(crate) struct Kernel(CUfunction);

impl Kernel {
    pub(crate) fn load(path: &str, name: &CStr) -> Result<Self> {
        let image = std::fs::read(path).with_context(|| path.to_owned())?;
        let mut module: CUmodule = std::ptr::null_mut();
        // SAFETY: a valid place, and the image that the command line names: a whole fat binary. A context is current, since
        // the world was opened on this thread.
        check("cuModuleLoadData", unsafe { sys::cuModuleLoadData(&raw mut module, image.as_ptr().cast()) })?;
        let mut function: CUfunction = std::ptr::null_mut();
        // SAFETY: a valid place, a loaded module, a NUL-terminated name.
        check("cuModuleGetFunction", unsafe {
            sys::cuModuleGetFunction(&raw mut function, module, name.as_ptr())
        })?;
        Ok(Kernel(function))
    }

    /// # Safety
    /// The kernel takes as many 8-byte parameters; addresses among them stay valid until the stream has passed it.
    pub(crate) unsafe fn launch(&self, stream: &Stream, grid: (u32, u32), values: &mut [u64]) -> Result<()> {
        let mut arguments: Vec<_> = values.iter_mut().map(|v| std::ptr::from_mut(v).cast()).collect();
        // SAFETY: as the caller promises.
        unsafe { self.enqueue(stream, grid, &mut arguments) }
    }

    /// # Safety
    /// As `launch`, of a kernel whose first parameter is a handle, which lives as long as the addresses.
    pub(crate) unsafe fn launch_on(
        &self,
        handle: &Handle,
        stream: &Stream,
        grid: (u32, u32),
        values: &mut [u64],
    ) -> Result<()> {
        let mut given = handle.kernel_handle();
        let mut arguments = vec![(&raw mut given).cast()];
        arguments.extend(values.iter_mut().map(|v| std::ptr::from_mut(v).cast()));
        // SAFETY: as the caller promises.
        unsafe { self.enqueue(stream, grid, &mut arguments) }
    }

    /// # Safety
    /// Each argument points to a parameter of the kernel's, in their order.
    unsafe fn enqueue(&self, stream: &Stream, grid: (u32, u32), arguments: &mut [*mut c_void]) -> Result<()> {
        let raw = match stream.raw() {
            AnyStream::Cuda(raw) => raw,
            #[cfg(feature = "nvshmem")]
            AnyStream::Nvshmem(raw) => raw,
            _ => bail!("a stream of another backend"),
        };
        let (stream, none) = (raw.cu_stream(), std::ptr::null_mut());
        // SAFETY: the caller promises parameters and addresses; the driver copies the values before it returns.
        check("cuLaunchKernel", unsafe {
            sys::cuLaunchKernel(self.0, grid.0, 1, 1, grid.1, 1, 1, 0, stream, arguments.as_mut_ptr(), none)
        })
    }

    /// Fails unless two spans of whole words hold the same; the kernel is `check` of `tests/stress/check.cu`.
    pub(crate) fn same(
        &self,
        world: &World,
        stream: &Stream,
        what: &str,
        got: &Span,
        want: &Span,
    ) -> Result<()> {
        ensure!(
            got.bytes() == want.bytes() && got.bytes().is_multiple_of(8),
            "{what}: spans of other lengths"
        );
        let differences = world.local(DType::U64, 2)?;
        stream.write(&differences.span(), &[0u64, u64::MAX])?;
        let words = (got.bytes() / 8) as u64;
        let mut values = [got.addr().0, want.addr().0, words, 0, differences.span().addr().0];
        // SAFETY: five 8-byte parameters, as the kernel has; the read below waits for it.
        unsafe { self.launch(stream, (512, 256), &mut values)? };
        let seen: Vec<u64> = stream.read(&differences.span())?;
        ensure!(seen[0] == 0, "{what}: {} of {words} words differ", seen[0]);
        Ok(())
    }
}
