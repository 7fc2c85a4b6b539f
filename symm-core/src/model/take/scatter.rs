//! `reduce_scatter_offset`: blocks of a matrix, each to its owner.

use super::{Plan, check_len, check_out, matrix};
use crate::backend::{Backend, Form, Take};
use crate::error::{Error, Result};
use crate::model::collective::Options;
use crate::model::context::Context;
use crate::model::handle::Handle;
use crate::model::span::Span;
use crate::model::stream::Stream;

const OP: &str = Form::ReduceScatterOffset.name();

/// Arguments of [`Context::reduce_scatter_offset`].
#[derive(Debug)]
pub struct ReduceScatterOffset<'a, B: Backend> {
    /// `[rows, cols]` of a dtype that [reduces](crate::DType::reduces), rows `row_stride` elements apart; a handle over the
    /// context's team, the same allocation on every member; unchanged.
    pub input: &'a Handle<B>,
    /// Rows of the input.
    pub rows: usize,
    /// Columns of the input.
    pub cols: usize,
    /// Elements from one row to the next, `cols` or more.
    pub row_stride: usize,
    /// Dimension that is cut into blocks: 0 (of rows) or 1 (of columns).
    pub dim: usize,
    /// Where each block ends along `dim` (inclusive prefix sums), in ascending order; `None`: W equal blocks.
    pub offsets: Option<&'a [usize]>,
    /// Owner of each block, every rank of equally many; `None`: ranks 0, 1, …, W-1, 0, 1, … in turn.
    pub dst_ranks: Option<&'a [usize]>,
    /// One span for each block that this rank owns, in their order: contiguous, of the block's size, memory of this PE
    /// outside `input`.
    pub out: &'a [&'a Span<B>],
    /// Deadline and block budget.
    pub options: Options,
}

impl<B: Backend> Context<B> {
    /// Sums of the blocks of all `input`s, each to its owner (PyTorch's `symm_mem.reduce_scatter_offset`, for any W, any
    /// number of blocks and every dtype that adds up).
    ///
    /// # Collective
    /// Over the context's team, with equal shape, offsets, owners and dtype.
    ///
    /// # Shapes
    /// Block b has rows (or columns) `offsets[b-1]…offsets[b]`, and is `[h, cols]` (or `[rows, w]`) in its owner's `out`. The
    /// j-th block of every rank has the same size; it may be 0.
    ///
    /// # Completion
    /// When the stream has passed it, all `out`s are complete here and `input` may be reused.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] here and [`Error::PeerInvalid`] on the others if an argument is refused; `PeerInvalid` on
    /// all if shape, offsets, owners or dtype differ from rank 0's; nothing is written. A failure that is set on the team.
    pub fn reduce_scatter_offset(&self, stream: &Stream<B>, args: &ReduceScatterOffset<'_, B>) -> Result<()> {
        let planned = self.plan_scatter(args);
        self.take(stream, Form::ReduceScatterOffset, args.input, &args.options, planned)
    }

    fn plan_scatter(&self, args: &ReduceScatterOffset<'_, B>) -> Result<Plan<B>> {
        let (w, me) = (self.ranks(), self.inner.team.group.my_rank());
        let (rows, cols, stride) = (args.rows, args.cols, args.row_stride);
        if args.dim > 1 {
            return Err(Error::argument(OP, "dim", args.dim, "0 or 1"));
        }
        if stride < cols {
            return Err(Error::argument(OP, "row_stride", stride, format!("{cols} columns or more")));
        }
        let (extent, len) = (matrix(OP, "rows", (rows, cols, stride))?, args.input.len());
        if extent > len {
            let got = format!("{rows} rows of {cols}, {stride} apart");
            return Err(Error::argument(OP, "rows", got, format!("a matrix inside input's {len} elements")));
        }
        let size = if args.dim == 0 { rows } else { cols };
        let ends = ends(args, size, w)?;
        let owners = owners(args, ends.len(), w)?;
        let blocks = blocks(&ends, &owners, w)?;
        if args.out.len() != blocks[me].len() {
            let expected = format!("{}, one for each block that rank {me} owns", blocks[me].len());
            return Err(Error::argument(OP, "out", format!("{} spans", args.out.len()), expected));
        }
        let mut takes = Vec::with_capacity(args.out.len());
        for ((begin, end), out) in blocks[me].iter().zip(args.out) {
            let across = end - begin;
            let (src, rows, cols) =
                if args.dim == 0 { (begin * stride, across, cols) } else { (*begin, rows, across) };
            check_len(OP, "out", out, rows * cols)?;
            check_out(OP, "out", out, true, args.input)?;
            let [src, src_stride, rows, cols] = [src, stride, rows, cols].map(|n| n as u64);
            let take = Take { src, src_stride, rows, cols, dst: out.addr, dst_stride: cols, dst_step: 0 };
            takes.push(take.joined());
        }
        distinct(args.out)?;
        let numbers = [args.dim, rows, cols, stride, ends.len()];
        let shape = numbers.into_iter().chain(ends).chain(owners).map(|n| n as u64).collect();
        let outs = args.out.iter().copied().cloned().collect();
        Ok(Plan { extent, shape, takes, outs, average: false })
    }
}

/// Where every block ends.
fn ends<B: Backend>(args: &ReduceScatterOffset<'_, B>, size: usize, w: usize) -> Result<Vec<usize>> {
    let Some(offsets) = args.offsets else {
        if !size.is_multiple_of(w) {
            let (argument, expected) =
                (if args.dim == 0 { "rows" } else { "cols" }, format!("a multiple of the {w} members"));
            return Err(Error::argument(OP, argument, size, expected));
        }
        return Ok((1..=w).map(|b| b * (size / w)).collect());
    };
    if !offsets.is_sorted() || offsets.last().is_some_and(|last| *last > size) {
        let expected = format!("numbers in ascending order up to {size}");
        return Err(Error::argument(OP, "offsets", format!("{offsets:?}"), expected));
    }
    Ok(offsets.to_vec())
}

/// Every block's owner.
fn owners<B: Backend>(args: &ReduceScatterOffset<'_, B>, blocks: usize, w: usize) -> Result<Vec<usize>> {
    if !blocks.is_multiple_of(w) {
        let expected = format!("a multiple of the {w} members, so that all own equally many");
        return Err(Error::argument(OP, "offsets", format!("{blocks} blocks"), expected));
    }
    let Some(ranks) = args.dst_ranks else { return Ok((0..blocks).map(|b| b % w).collect()) };
    let wrong = |expected: String| Err(Error::argument(OP, "dst_ranks", format!("{ranks:?}"), expected));
    if ranks.len() != blocks {
        return wrong(format!("one rank for each of the {blocks} blocks"));
    }
    if ranks.iter().any(|rank| *rank >= w) {
        return wrong(format!("ranks in [0, {w})"));
    }
    let each = blocks / w;
    if (0..w).any(|rank| ranks.iter().filter(|owner| **owner == rank).count() != each) {
        return wrong(format!("{each} blocks for each rank"));
    }
    Ok(ranks.to_vec())
}

/// First and end of every block, by owner.
fn blocks(ends: &[usize], owners: &[usize], w: usize) -> Result<Vec<Vec<(usize, usize)>>> {
    let mut blocks = vec![Vec::new(); w];
    let mut begin = 0;
    for (end, owner) in ends.iter().zip(owners) {
        blocks[*owner].push((begin, *end));
        begin = *end;
    }
    for (rank, theirs) in blocks.iter().enumerate() {
        for (j, ((begin, end), (first, last))) in theirs.iter().zip(&blocks[0]).enumerate() {
            if end - begin != last - first {
                let got = format!("block {j} of rank {rank} from {begin} to {end}");
                let expected = format!("the size of block {j} of rank 0, {}", last - first);
                return Err(Error::argument(OP, "offsets", got, expected));
            }
        }
    }
    Ok(blocks)
}

/// No two outputs may overlap.
fn distinct<B: Backend>(out: &[&Span<B>]) -> Result<()> {
    let mut ranges: Vec<(u64, u64)> =
        out.iter().filter(|s| s.len > 0).map(|s| (s.addr.0, s.addr.0 + s.bytes() as u64)).collect();
    ranges.sort_unstable();
    for pair in ranges.windows(2) {
        if pair[1].0 < pair[0].1 {
            let got = format!("two spans that both have address {:#x}", pair[1].0);
            return Err(Error::argument(OP, "out", got, "spans that do not overlap"));
        }
    }
    Ok(())
}
