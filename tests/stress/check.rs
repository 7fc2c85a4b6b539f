//! Comparing results where they lie: by a kernel on a GPU, on the host elsewhere.

use anyhow::{Result, ensure};
use symm::{DType, Local, Span, Stream, World};

/// Compares spans in stream order and counts what differs.
pub(crate) struct Checker {
    #[cfg(feature = "cuda")]
    kernel: Option<gpu::Kernel>,
    /// Words that differ, and the first call with one.
    differences: Local,
}

impl Checker {
    /// `image`: the file with the kernel, for worlds on GPUs.
    pub(crate) fn new(world: &World, image: Option<&str>) -> Result<Self> {
        let differences = world.local(DType::U64, 2)?;
        #[cfg(feature = "cuda")]
        let kernel = match image {
            Some(path) if symm::Backend::name(world.backend()) == "cuda" => Some(gpu::Kernel::load(path)?),
            _ => None,
        };
        #[cfg(not(feature = "cuda"))]
        ensure!(image.is_none(), "this build launches no kernels");
        Ok(Checker {
            #[cfg(feature = "cuda")]
            kernel,
            differences,
        })
    }

    /// How spans are compared.
    pub(crate) fn how(&self) -> &'static str {
        #[cfg(feature = "cuda")]
        if self.kernel.is_some() {
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
        if let Some(kernel) = &self.kernel {
            return kernel.launch(stream, got, want, call, &self.differences.span());
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
    use anyhow::{Context as _, Result, ensure};
    use cudarc::driver::sys::{self, CUfunction, CUmodule, CUresult};
    use symm::{AnyStream, Span, Stream};

    /// The kernel of `check.cu`.
    pub(super) struct Kernel(CUfunction);

    // SAFETY: a function of the primary context may be launched from any thread.
    unsafe impl Send for Kernel {}
    // SAFETY: as above; launches do not change it.
    unsafe impl Sync for Kernel {}

    pub(crate) fn check(call: &str, result: CUresult) -> Result<()> {
        ensure!(result == CUresult::CUDA_SUCCESS, "{call}: {result:?}");
        Ok(())
    }

    impl Kernel {
        pub(super) fn load(path: &str) -> Result<Self> {
            let image = std::fs::read(path).with_context(|| path.to_owned())?;
            let mut module: CUmodule = std::ptr::null_mut();
            // SAFETY: a valid place, and the image that the command line names: a whole fat binary. A context is current,
            // since the world was opened on this thread.
            check("cuModuleLoadData", unsafe {
                sys::cuModuleLoadData(&raw mut module, image.as_ptr().cast())
            })?;
            let mut function: CUfunction = std::ptr::null_mut();
            // SAFETY: a valid place, a loaded module, a NUL-terminated name.
            check("cuModuleGetFunction", unsafe {
                sys::cuModuleGetFunction(&raw mut function, module, c"check".as_ptr())
            })?;
            Ok(Kernel(function))
        }

        pub(super) fn launch(
            &self,
            stream: &Stream,
            got: &Span,
            want: &Span,
            call: u64,
            differences: &Span,
        ) -> Result<()> {
            let AnyStream::Cuda(raw) = stream.raw() else { anyhow::bail!("a stream of another backend") };
            let mut values =
                [got.addr().0, want.addr().0, (got.bytes() / 8) as u64, call, differences.addr().0];
            let mut arguments = values.each_mut().map(|v| std::ptr::from_mut(v).cast());
            let blocks = u32::try_from((got.bytes() / 8).div_ceil(256).clamp(1, 64))?;
            // SAFETY: five 8-byte parameters, as the kernel has; the callers keep the spans until they have settled.
            check("cuLaunchKernel", unsafe {
                sys::cuLaunchKernel(
                    self.0,
                    blocks,
                    1,
                    1,
                    256,
                    1,
                    1,
                    0,
                    raw.cu_stream(),
                    arguments.as_mut_ptr(),
                    std::ptr::null_mut(),
                )
            })
        }
    }
}

#[cfg(feature = "cuda")]
pub(crate) use gpu::check;
