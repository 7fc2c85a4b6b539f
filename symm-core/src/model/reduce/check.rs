//! What the arguments of a reduction must be, in one place.

use crate::backend::Backend;
use crate::dtype::DType;
use crate::error::{Error, Result};
use crate::model::collective::same_dtype;
use crate::model::handle::Handle;
use crate::model::span::Span;

/// Names of an operation and of its arguments, for errors.
#[derive(Clone, Copy)]
pub(super) struct Names {
    pub(super) op: &'static str,
    pub(super) buffer: &'static str,
    pub(super) out: &'static str,
}

/// What a reduction adds up, and where it puts the sums.
pub(super) struct Sum<'a, B: Backend> {
    pub(super) names: Names,
    pub(super) lead: usize,
    /// Elements of each buffer that take part.
    pub(super) numel: usize,
    /// Elements to be copied to the buffer first.
    pub(super) input: Option<&'a Span<B>>,
    /// Where this PE's sums go, and how many they are.
    pub(super) result: Option<(&'a Span<B>, usize)>,
}

impl<B: Backend> Sum<'_, B> {
    pub(super) fn check(&self, buffer: &Handle<B>) -> Result<()> {
        let Names { op, buffer: name, out } = self.names;
        let dtype = buffer.dtype();
        adds_up(op, name, dtype)?;
        let own = buffer.span();
        if let Some(input) = self.input {
            same_dtype(op, "local_input", input.dtype, (name, dtype))?;
            if input.len > own.len {
                let expected = format!("at most {name}'s {} elements", own.len);
                return Err(Error::argument(op, "local_input", format!("{} elements", input.len), expected));
            }
            aligned(op, "local_input", input)?;
            apart(op, "local_input", input, (name, &own))?;
        }
        if let Some((result, len)) = self.result {
            same_dtype(op, out, result.dtype, (name, dtype))?;
            if result.len != len {
                let got = format!("{} elements", result.len);
                return Err(Error::argument(op, out, got, format!("{len} elements")));
            }
            aligned(op, out, result)?;
            apart(op, out, result, (name, &own))?;
            if let Some(input) = self.input.filter(|input| input.addr != result.addr) {
                // Exactly in place every sum is written where its own summand was read; otherwise one that is yet to be read.
                apart(op, out, result, ("local_input", input))?;
            }
        }
        Ok(())
    }
}

/// The type must be one that has sums.
pub(in crate::model) fn adds_up(op: &'static str, argument: &'static str, dtype: DType) -> Result<()> {
    if dtype.reduces() {
        return Ok(());
    }
    let adds = DType::ALL.into_iter().filter(|d| d.reduces()).map(DType::name).collect::<Vec<_>>();
    Err(Error::argument(op, argument, dtype, format!("a dtype that adds up: {}", adds.join(", "))))
}

/// Kernels load whole elements.
pub(in crate::model) fn aligned<B: Backend>(
    op: &'static str,
    argument: &'static str,
    span: &Span<B>,
) -> Result<()> {
    let size = span.dtype.size();
    if span.len == 0 || span.addr.0.is_multiple_of(size as u64) {
        return Ok(());
    }
    let got = format!("address {:?}", span.addr);
    Err(Error::argument(op, argument, got, format!("an address that is a multiple of {size} bytes")))
}

/// Peers read the buffer while the span is written, or the span is copied over it.
pub(in crate::model) fn apart<B: Backend>(
    op: &'static str,
    argument: &'static str,
    span: &Span<B>,
    (name, buffer): (&'static str, &Span<B>),
) -> Result<()> {
    let (a, b) = (span.addr.0, buffer.addr.0);
    let overlap = a < b + buffer.bytes() as u64 && b < a + span.bytes() as u64;
    if span.len == 0 || buffer.len == 0 || !overlap {
        return Ok(());
    }
    let got = format!("{} bytes at {:?}", span.bytes(), span.addr);
    let expected = format!("memory outside {name}'s {} bytes at {:?}", buffer.bytes(), buffer.addr);
    Err(Error::argument(op, argument, got, expected))
}
