//! PyTorch's operations on multicast memory.

use super::collective::Options;
use super::context::Context;
use super::handle::Handle;
use super::span::{Local, Span};
use super::stream::Stream;
use super::world::WorldInner;
use crate::backend::Backend;
use crate::capability::Capabilities;
use crate::error::{Error, Result};

/// Why an operation on multicast memory cannot be done.
fn unsupported<B: Backend>(world: &WorldInner<B>, op: &'static str) -> Error {
    let backend = world.backend.name();
    let why = if world.config.disable_multicast {
        "multicast is switched off (SYMM_DISABLE_MULTICAST, TORCH_SYMM_MEM_DISABLE_MULTICAST or NVSHMEM_DISABLE_NVLS)".to_owned()
    } else if world.backend.capabilities().contains(Capabilities::MULTICAST) {
        format!("it has no kernel for {op}")
    } else {
        format!("{op} needs memory with a multicast address, which it does not have; {}", instead(op))
    };
    Error::Unsupported { backend, capability: "MULTICAST", why }
}

/// What does the same without multicast.
fn instead(op: &str) -> &'static str {
    match op {
        "multimem_all_reduce" => "two_shot_all_reduce gives the same sums",
        "multimem_one_shot_all_reduce" | "multimem_one_shot_all_reduce_out" => {
            "one_shot_all_reduce gives the same sums"
        }
        "multimem_one_shot_reduce_out" => "tile_reduce gives a root the same sums",
        "multimem_all_gather_out" => "all_gather gives the same",
        _ => "put to every rank does the same",
    }
}

/// The multimem family: every operation answers [`Error::Unsupported`] where the backend lacks
/// [`MULTICAST`](Capabilities::MULTICAST), at once and on every rank alike; it neither communicates nor sets a failure on the
/// team. No backend of this version has multicast memory (see [`crate::multicast`] for its set-up).
impl<B: Backend> Context<B> {
    /// The answer, whatever the arguments.
    fn multimem<T>(&self, op: &'static str, _arguments: T) -> Result<()> {
        self.inner.team.check(op)?;
        Err(unsupported(&self.inner.team.world, op))
    }

    /// The sum of all `buffer`s to all of them, each element added up by the fabric.
    ///
    /// # Collective
    /// Over the context's team.
    ///
    /// # Errors
    /// [`Error::Unsupported`] without multicast.
    #[doc(alias = "multimem_all_reduce_")]
    pub fn multimem_all_reduce(
        &self,
        stream: &Stream<B>,
        buffer: &Handle<B>,
        options: Options,
    ) -> Result<()> {
        self.multimem("multimem_all_reduce", (stream, buffer, options))
    }

    /// The sum of all `input`s to new memory of this PE.
    ///
    /// # Collective
    /// Over the context's team.
    ///
    /// # Errors
    /// [`Error::Unsupported`] without multicast.
    pub fn multimem_one_shot_all_reduce(
        &self,
        stream: &Stream<B>,
        input: &Handle<B>,
        options: Options,
    ) -> Result<Local<B>> {
        self.multimem("multimem_one_shot_all_reduce", (stream, options))?;
        Local::new(&self.inner.team.world, input.dtype(), input.len())
    }

    /// The sum of all `input`s to memory of this PE.
    ///
    /// # Collective
    /// Over the context's team.
    ///
    /// # Errors
    /// [`Error::Unsupported`] without multicast.
    pub fn multimem_one_shot_all_reduce_out(
        &self,
        stream: &Stream<B>,
        input: &Handle<B>,
        out: &Span<B>,
        options: Options,
    ) -> Result<()> {
        self.multimem("multimem_one_shot_all_reduce_out", (stream, input, out, options))
    }

    /// The sum of all `input`s to memory of the root.
    ///
    /// # Collective
    /// Over the context's team.
    ///
    /// # Errors
    /// [`Error::Unsupported`] without multicast.
    pub fn multimem_one_shot_reduce_out(
        &self,
        stream: &Stream<B>,
        input: &Handle<B>,
        root: usize,
        out: &Span<B>,
        options: Options,
    ) -> Result<()> {
        self.multimem("multimem_one_shot_reduce_out", (stream, input, root, out, options))
    }

    /// Every member's `input` to everybody's `out`, one store each.
    ///
    /// # Collective
    /// Over the context's team.
    ///
    /// # Errors
    /// [`Error::Unsupported`] without multicast.
    pub fn multimem_all_gather_out(
        &self,
        stream: &Stream<B>,
        input: &Span<B>,
        out: &Handle<B>,
        options: Options,
    ) -> Result<()> {
        self.multimem("multimem_all_gather_out", (stream, input, out, options))
    }
}

impl<B: Backend> Handle<B> {
    /// Enqueues a copy of `src` to byte `byte_offset` of every member's tensor: one write of a copy engine.
    ///
    /// # One-sided
    /// It tells nobody, and orders nothing.
    ///
    /// # Errors
    /// [`Error::Unsupported`] without multicast; [`Error::InvalidArgument`] if the bytes do not lie in the tensor.
    #[doc(alias = "memcpy_to_multicast_")]
    pub fn memcpy_to_multicast(&self, stream: &Stream<B>, src: &Span<B>, byte_offset: usize) -> Result<()> {
        const OP: &str = "memcpy_to_multicast";
        let team = &self.core.team;
        team.check(OP)?;
        let Some(to) = self.multicast_ptr() else { return Err(unsupported(&team.world, OP)) };
        let bytes = self.span().bytes();
        if byte_offset.checked_add(src.bytes()).is_none_or(|end| end > bytes) {
            let got = format!("{byte_offset}, with {} bytes", src.bytes());
            return Err(Error::argument(
                OP,
                "byte_offset",
                got,
                format!("bytes inside the tensor's {bytes}"),
            ));
        }
        stream.enter(OP, team)?;
        stream.keep(|| (self.clone(), src.clone()))?;
        // SAFETY: the range lies inside the tensor's multicast address range, which the handle keeps; the source is kept valid
        // by its keeper or by its creator's promise.
        unsafe { team.world.backend.copy(&stream.raw, to.offset(byte_offset), src.addr, src.bytes()) }
    }
}
