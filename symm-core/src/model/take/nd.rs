//! `all_to_all_nd`: column or row blocks.

use super::{Plan, check_len, check_out};
use crate::backend::{Backend, Form, Take};
use crate::error::{Error, Result};
use crate::model::collective::Options;
use crate::model::context::Context;
use crate::model::handle::Handle;
use crate::model::span::Span;
use crate::model::stream::Stream;

/// Arguments of [`Context::all_to_all_nd`].
#[derive(Debug)]
pub struct AllToAllNd<'a, B: Backend> {
    /// `[rows, cols]`, a handle over the context's team, the same allocation on every member; unchanged.
    pub input: &'a Handle<B>,
    /// As many elements of the same dtype, memory of this PE outside `input`.
    pub out: &'a Span<B>,
    /// Rows of the input.
    pub rows: usize,
    /// Columns of the input.
    pub cols: usize,
    /// Dimension of the input that is cut into W blocks: 0 or 1.
    pub scatter_dim: usize,
    /// The other dimension, along which the blocks of all ranks are put together.
    pub gather_dim: usize,
    /// Deadline and block budget.
    pub options: Options,
}

impl<B: Backend> Context<B> {
    /// Cuts every input into W blocks along one dimension; rank r gets block r of everybody, put together along the other
    /// (PyTorch's `symm_mem.all_to_all_nd`, for any W and any dtype).
    ///
    /// # Collective
    /// Over the context's team, with equal rows, columns, dimensions and dtype.
    ///
    /// # Shapes
    /// | `scatter_dim`, `gather_dim` | `input` | `out` |
    /// |---|---|---|
    /// | 1, 0 | `[rows, W·c]` | `[W, rows, c]`: `out[j]` is column block r of rank j |
    /// | 0, 1 | `[W·r, cols]` | `[r, W, cols]`: `out[:, j]` is row block r of rank j |
    ///
    /// # Completion
    /// When the stream has passed it, `out` is complete here and `input` may be reused.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] here and [`Error::PeerInvalid`] on the others if an argument is refused; `PeerInvalid` on
    /// all if the shape or dtype differ from rank 0's; nothing is written. A failure that is set on the team.
    pub fn all_to_all_nd(&self, stream: &Stream<B>, args: &AllToAllNd<'_, B>) -> Result<()> {
        let planned = self.plan_nd(args);
        self.take(stream, Form::AllToAllNd, args.input, &args.options, planned)
    }

    fn plan_nd(&self, args: &AllToAllNd<'_, B>) -> Result<Plan<B>> {
        const OP: &str = Form::AllToAllNd.name();
        let (w, rows, cols, len) = (self.ranks(), args.rows, args.cols, args.input.len());
        if rows.checked_mul(cols) != Some(len) {
            let expected = format!("a matrix of input's {len} elements");
            return Err(Error::argument(OP, "rows", format!("{rows} rows of {cols}"), expected));
        }
        let whole = |argument, n: usize| {
            if n.is_multiple_of(w) {
                return Ok(n / w);
            }
            Err(Error::argument(OP, argument, n, format!("a multiple of the {w} members")))
        };
        let (r, stride) = (self.inner.team.group.my_rank(), cols as u64);
        let take = match (args.scatter_dim, args.gather_dim) {
            (1, 0) => {
                let c = whole("cols", cols)? as u64;
                let (src, rows) = (r as u64 * c, rows as u64);
                let step = rows * c;
                Take {
                    src,
                    src_stride: stride,
                    rows,
                    cols: c,
                    dst: args.out.addr,
                    dst_stride: c,
                    dst_step: step,
                }
            }
            (0, 1) => {
                let rows = whole("rows", rows)? as u64;
                let (src, dst_stride) = (r as u64 * rows * stride, w as u64 * stride);
                let dst = args.out.addr;
                Take { src, src_stride: stride, rows, cols: stride, dst, dst_stride, dst_step: stride }
            }
            (scatter, gather) => {
                let got = format!("{scatter}, with gather_dim {gather}");
                return Err(Error::argument(
                    OP,
                    "scatter_dim",
                    got,
                    "1 with gather_dim 0, or 0 with gather_dim 1",
                ));
            }
        };
        check_len(OP, "out", args.out, len)?;
        check_out(OP, "out", args.out, false, args.input)?;
        Ok(Plan {
            extent: len,
            shape: [rows, cols, args.scatter_dim].map(|n| n as u64).to_vec(),
            takes: vec![take],
            outs: vec![args.out.clone()],
            average: false,
        })
    }
}
