//! Comparing results where they lie: by a kernel on a GPU, on the host elsewhere.

use anyhow::{Result, ensure};
use symm::{DType, Handle, Local, Span, Stream, World};

/// Compares spans in stream order and counts what differs.
pub(crate) struct Checker {
    #[cfg(feature = "cuda")]
    kernels: Option<gpu::Kernels>,
    /// Words that differ, and the first call with one.
    differences: Local,
}

impl Checker {
    /// `image`: the file with the kernel, for worlds on GPUs.
    pub(crate) fn new(world: &World, image: Option<&str>) -> Result<Self> {
        let differences = world.local(DType::U64, 2)?;
        #[cfg(feature = "cuda")]
        let kernels = match image {
            Some(path) if symm::Backend::name(world.backend()) == "cuda" => Some(gpu::Kernels::load(path)?),
            _ => None,
        };
        #[cfg(not(feature = "cuda"))]
        ensure!(image.is_none(), "this build launches no kernels");
        Ok(Checker {
            #[cfg(feature = "cuda")]
            kernels,
            differences,
        })
    }

    /// Enqueues a kernel that waits for user signal `index` as users' kernels do, under a deadline that is far. `answer` is 1 if it came,
    /// 2 if the deadline passed, 3 if the team failed. Whether there are such kernels.
    pub(crate) fn wait_for_peer(
        &self,
        stream: &Stream,
        handle: &Handle,
        index: u64,
        answer: &Span,
    ) -> Result<bool> {
        #[cfg(feature = "cuda")]
        if let Some(kernels) = &self.kernels {
            kernels.wait_for_peer(stream, handle, index, answer)?;
            return Ok(true);
        }
        let _ = (stream, handle, index, answer);
        Ok(false)
    }

    /// How spans are compared.
    pub(crate) fn how(&self) -> &'static str {
        #[cfg(feature = "cuda")]
        if self.kernels.is_some() {
            return "on the device";
        }
        "on the host"
    }

    /// Forgets what was counted.
    pub(crate) fn clear(&self, stream: &Stream) -> Result<()> {
        Ok(stream.write(&self.differences.span(), &[0u64, u64::MAX])?)
    }

    /// Enqueues the comparison of `got` with `want` after call `call`; lengths are multiples of 8 bytes.
    pub(crate) fn enqueue(&self, stream: &Stream, got: &Span, want: &Span, call: u64) -> Result<()> {
        ensure!(got.bytes() == want.bytes() && got.bytes().is_multiple_of(8), "spans of other lengths");
        #[cfg(feature = "cuda")]
        if let Some(kernels) = &self.kernels {
            return kernels.compare(stream, got, want, call, &self.differences.span());
        }
        let (a, b) = (bytes(stream, got)?, bytes(stream, want)?);
        if a != b {
            let mut seen: Vec<u64> = stream.read(&self.differences.span())?;
            seen[0] += a.chunks(8).zip(b.chunks(8)).filter(|(a, b)| a != b).count() as u64;
            seen[1] = seen[1].min(call);
            stream.write(&self.differences.span(), &seen)?;
        }
        Ok(())
    }

    /// Waits for everything enqueued and fails if a word differed.
    pub(crate) fn settle(&self, stream: &Stream) -> Result<()> {
        stream.synchronize()?;
        let seen: Vec<u64> = stream.read(&self.differences.span())?;
        ensure!(seen[0] == 0, "{} words differ, first in call {}", seen[0], seen[1]);
        Ok(())
    }
}

/// The bytes of a span of any type.
pub(crate) fn bytes(stream: &Stream, span: &Span) -> Result<Vec<u8>> {
    // SAFETY: the same bytes; `span` keeps them until the read has ended.
    let raw = unsafe { Span::from_raw(span.addr(), DType::U8, span.bytes()) };
    Ok(stream.read(&raw)?)
}

#[cfg(feature = "cuda")]
mod gpu {
    use std::ffi::{CStr, c_void};

    use anyhow::{Context as _, Result, ensure};
    use cudarc::driver::sys::{self, CUfunction, CUmodule, CUresult};
    use symm::{AnyStream, Handle, Span, Stream};

    /// The kernels of `check.cu`.
    pub(super) struct Kernels {
        check: CUfunction,
        wait_for_peer: CUfunction,
    }

    // SAFETY: a function of the primary context may be launched from any thread.
    unsafe impl Send for Kernels {}
    // SAFETY: as above; launches do not change it.
    unsafe impl Sync for Kernels {}

    pub(crate) fn check(call: &str, result: CUresult) -> Result<()> {
        ensure!(result == CUresult::CUDA_SUCCESS, "{call}: {result:?}");
        Ok(())
    }

    fn function(module: CUmodule, name: &CStr) -> Result<CUfunction> {
        let mut function: CUfunction = std::ptr::null_mut();
        // SAFETY: a valid place, a loaded module, a NUL-terminated name.
        check("cuModuleGetFunction", unsafe {
            sys::cuModuleGetFunction(&raw mut function, module, name.as_ptr())
        })?;
        Ok(function)
    }

    /// # Safety
    /// Each argument points to a parameter of the kernel's, in their order; what they name lives until the stream has passed it.
    unsafe fn launch(
        stream: &Stream,
        function: CUfunction,
        (blocks, threads): (u32, u32),
        arguments: &mut [*mut c_void],
    ) -> Result<()> {
        let AnyStream::Cuda(raw) = stream.raw() else { anyhow::bail!("a stream of another backend") };
        let (stream, none) = (raw.cu_stream(), std::ptr::null_mut());
        // SAFETY: as the caller promises; the driver copies the parameters before it returns.
        check("cuLaunchKernel", unsafe {
            sys::cuLaunchKernel(
                function,
                blocks,
                1,
                1,
                threads,
                1,
                1,
                0,
                stream,
                arguments.as_mut_ptr(),
                none,
            )
        })
    }

    impl Kernels {
        pub(super) fn load(path: &str) -> Result<Self> {
            let image = std::fs::read(path).with_context(|| path.to_owned())?;
            let mut module: CUmodule = std::ptr::null_mut();
            // SAFETY: a valid place, and the image that the command line names: a whole fat binary. A context is current,
            // since the world was opened on this thread.
            check("cuModuleLoadData", unsafe {
                sys::cuModuleLoadData(&raw mut module, image.as_ptr().cast())
            })?;
            Ok(Kernels {
                check: function(module, c"check")?,
                wait_for_peer: function(module, c"wait_for_peer")?,
            })
        }

        pub(super) fn compare(
            &self,
            stream: &Stream,
            got: &Span,
            want: &Span,
            call: u64,
            differences: &Span,
        ) -> Result<()> {
            let words = (got.bytes() / 8) as u64;
            let mut values = [got.addr().0, want.addr().0, words, call, differences.addr().0];
            let mut arguments = values.each_mut().map(|v| std::ptr::from_mut(v).cast());
            let blocks = u32::try_from(words.div_ceil(256).clamp(1, 1024))?;
            // SAFETY: five 8-byte parameters, as the kernel has; the callers keep the spans until they have settled.
            unsafe { launch(stream, self.check, (blocks, 256), &mut arguments) }
        }

        pub(super) fn wait_for_peer(
            &self,
            stream: &Stream,
            handle: &Handle,
            index: u64,
            answer: &Span,
        ) -> Result<()> {
            const LIMIT_NS: u64 = 60_000_000_000;
            let mut given = handle.kernel_handle();
            let mut values = [index, LIMIT_NS, answer.addr().0];
            let [index, limit, answer] = values.each_mut().map(|v| std::ptr::from_mut(v).cast());
            // SAFETY: a handle and three 8-byte parameters, as the kernel has; the callers keep handle and answer until the stream has
            // passed it.
            unsafe {
                launch(
                    stream,
                    self.wait_for_peer,
                    (1, 1),
                    &mut [(&raw mut given).cast(), index, limit, answer],
                )
            }
        }
    }
}

#[cfg(feature = "cuda")]
pub(crate) use gpu::check;
