//! `tile_reduce` and `multi_root_tile_reduce`: tiles of larger matrices.

use super::{Plan, check_out, matrix};
use crate::backend::{Backend, Form, Take};
use crate::error::{Error, Result};
use crate::model::collective::Options;
use crate::model::context::Context;
use crate::model::handle::Handle;
use crate::model::span::Span;
use crate::model::stream::Stream;

/// A part of a matrix: element (i, j) is number `start + i·stride + j`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Tile {
    /// First element.
    pub start: usize,
    /// Rows.
    pub rows: usize,
    /// Columns.
    pub cols: usize,
    /// Elements from one row to the next, `cols` or more.
    pub stride: usize,
}

/// Arguments of [`Context::tile_reduce`].
#[derive(Debug)]
pub struct TileReduce<'a, B: Backend> {
    /// Holds the tiles that are added up, of a dtype that [reduces](crate::DType::reduces); a handle over the context's team,
    /// the same allocation on every member; unchanged.
    pub input: &'a Handle<B>,
    /// The tile in `input`.
    pub in_tile: Tile,
    /// Holds the tile that the root writes. That tile, from its first to its last element, lies in memory of this PE outside all
    /// of `input`, not only its tiles; so it does on ranks that write nothing.
    pub output: &'a Span<B>,
    /// The tile in `output`, with the rows and columns of `in_tile`.
    pub out_tile: Tile,
    /// A rank of the context's team.
    pub root: usize,
    /// Deadline and block budget.
    pub options: Options,
}

/// Arguments of [`Context::multi_root_tile_reduce`].
#[derive(Debug)]
pub struct MultiRootTileReduce<'a, B: Backend> {
    /// As in [`TileReduce`].
    pub input: &'a Handle<B>,
    /// Tiles in `input`, all with the same rows and columns.
    pub in_tiles: &'a [Tile],
    /// As in [`TileReduce`].
    pub output: &'a Span<B>,
    /// The tile in `output`, with the rows and columns of the others.
    pub out_tile: Tile,
    /// The rank that gets each tile's sum; no rank twice.
    pub roots: &'a [usize],
    /// Deadline and block budget.
    pub options: Options,
}

impl<B: Backend> Context<B> {
    /// The sum of one tile of all `input`s to a tile of the root's `output` (PyTorch's `tile_reduce`, without multicast, for
    /// every dtype that adds up). On other ranks `output` is left alone, but checked.
    ///
    /// # Collective
    /// Over the context's team, with equal `in_tile`, root and dtype.
    ///
    /// # Shapes
    /// Both tiles have the same rows and columns; strides may differ. Elements of `output` outside its tile are not written.
    ///
    /// # Completion
    /// When the stream has passed it, the root's tile is complete there and `input` may be reused here.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] here and [`Error::PeerInvalid`] on the others if an argument is refused; `PeerInvalid` on
    /// all if tile, root or dtype differ from rank 0's; nothing is written. A failure that is set on the team.
    pub fn tile_reduce(&self, stream: &Stream<B>, args: &TileReduce<'_, B>) -> Result<()> {
        let form = Form::TileReduce;
        let many = MultiRootTileReduce {
            input: args.input,
            in_tiles: &[args.in_tile],
            output: args.output,
            out_tile: args.out_tile,
            roots: &[args.root],
            options: args.options,
        };
        let planned = self.plan_tiles(form, ["in_tile", "root"], &many);
        self.take(stream, form, args.input, &args.options, planned)
    }

    /// Sums of several tiles of all `input`s, each to a tile of one root's `output` (PyTorch's `multi_root_tile_reduce`,
    /// without multicast). A rank that is no root takes part; its `output` is left alone, but checked.
    ///
    /// # Collective
    /// Over the context's team, with equal `in_tiles`, roots and dtype.
    ///
    /// # Shapes, Completion, Errors
    /// As [`tile_reduce`](Self::tile_reduce). `in_tiles` and `roots` have the same length, W at most.
    pub fn multi_root_tile_reduce(
        &self,
        stream: &Stream<B>,
        args: &MultiRootTileReduce<'_, B>,
    ) -> Result<()> {
        let form = Form::MultiRootTileReduce;
        let planned = self.plan_tiles(form, ["in_tiles", "roots"], args);
        self.take(stream, form, args.input, &args.options, planned)
    }

    fn plan_tiles(
        &self,
        form: Form,
        [tiles_name, roots_name]: [&'static str; 2],
        args: &MultiRootTileReduce<'_, B>,
    ) -> Result<Plan<B>> {
        let (op, w, me) = (form.name(), self.ranks(), self.inner.team.group.my_rank());
        let roots = args.roots;
        let wrong = |expected: String| {
            let got = if form == Form::TileReduce { roots[0].to_string() } else { format!("{roots:?}") };
            Err(Error::argument(op, roots_name, got, expected))
        };
        if roots.iter().any(|root| *root >= w) {
            return wrong(format!("ranks in [0, {w})"));
        }
        if roots.len() != args.in_tiles.len() {
            return wrong(format!("one root for each of the {} tiles", args.in_tiles.len()));
        }
        if roots.iter().enumerate().any(|(i, root)| roots[..i].contains(root)) {
            return wrong("each rank once".to_owned());
        }
        let out = args.out_tile;
        let mut extent = 0;
        for tile in args.in_tiles {
            extent = extent.max(inside(op, tiles_name, tile, args.input.len())?);
            if (tile.rows, tile.cols) != (out.rows, out.cols) {
                let got = format!("{} rows of {}", out.rows, out.cols);
                let expected = format!("{} rows of {}, as {tiles_name}", tile.rows, tile.cols);
                return Err(Error::argument(op, "out_tile", got, expected));
            }
        }
        let end = inside(op, "out_tile", &out, args.output.len)?;
        let written = args.output.slice(out.start.min(end), end.saturating_sub(out.start))?;
        check_out(op, "output", &written, true, args.input)?;
        let takes = args.in_tiles.iter().zip(roots).filter(|(_, root)| **root == me).map(|(tile, _)| {
            let [src, src_stride, rows, cols, dst_stride] =
                [tile.start, tile.stride, tile.rows, tile.cols, out.stride].map(|n| n as u64);
            let dst = written.addr;
            Take { src, src_stride, rows, cols, dst, dst_stride, dst_step: 0 }.joined()
        });
        let numbers = |t: &Tile| [t.start, t.rows, t.cols, t.stride];
        let shape = args.in_tiles.iter().flat_map(numbers).chain(roots.iter().copied());
        Ok(Plan {
            extent,
            takes: takes.collect(),
            shape: shape.map(|n| n as u64).collect(),
            outs: vec![args.output.clone()],
            average: false,
        })
    }
}

/// The end of a tile that lies inside `len` elements.
fn inside(op: &'static str, argument: &'static str, tile: &Tile, len: usize) -> Result<usize> {
    let wrong = |expected: String| {
        let Tile { start, rows, cols, stride } = tile;
        let got = format!("{rows} rows of {cols}, {stride} apart, from {start}");
        Err(Error::argument(op, argument, got, expected))
    };
    if tile.stride < tile.cols {
        return wrong("a stride of the columns or more".to_owned());
    }
    match matrix(op, argument, (tile.rows, tile.cols, tile.stride))? {
        0 => Ok(0),
        elements => match tile.start.checked_add(elements).filter(|end| *end <= len) {
            Some(end) => Ok(end),
            None => wrong(format!("a tile inside {len} elements")),
        },
    }
}
