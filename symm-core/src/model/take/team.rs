//! The same collectives as the team offers them.

use super::{AllToAllNd, MultiRootTileReduce, ReduceOp, ReduceScatterOffset, TileReduce};
use crate::backend::Backend;
use crate::error::Result;
use crate::model::collective::Options;
use crate::model::handle::Handle;
use crate::model::span::Span;
use crate::model::stream::Stream;
use crate::model::team::Team;

#[cfg(doc)]
use crate::model::Context;

/// The team's own: those of [`Team::context`].
impl<B: Backend> Team<B> {
    /// See [`Context::all_to_all_nd`].
    ///
    /// # Errors
    /// As there.
    pub fn all_to_all_nd(&self, stream: &Stream<B>, args: &AllToAllNd<'_, B>) -> Result<()> {
        self.context().all_to_all_nd(stream, args)
    }

    /// See [`Context::reduce_scatter_offset`].
    ///
    /// # Errors
    /// As there.
    pub fn reduce_scatter_offset(&self, stream: &Stream<B>, args: &ReduceScatterOffset<'_, B>) -> Result<()> {
        self.context().reduce_scatter_offset(stream, args)
    }

    /// See [`Context::tile_reduce`].
    ///
    /// # Errors
    /// As there.
    pub fn tile_reduce(&self, stream: &Stream<B>, args: &TileReduce<'_, B>) -> Result<()> {
        self.context().tile_reduce(stream, args)
    }

    /// See [`Context::multi_root_tile_reduce`].
    ///
    /// # Errors
    /// As there.
    pub fn multi_root_tile_reduce(
        &self,
        stream: &Stream<B>,
        args: &MultiRootTileReduce<'_, B>,
    ) -> Result<()> {
        self.context().multi_root_tile_reduce(stream, args)
    }

    /// See [`Context::low_contention_all_gather`].
    ///
    /// # Errors
    /// As there.
    pub fn low_contention_all_gather(
        &self,
        stream: &Stream<B>,
        input: &Handle<B>,
        output: &Span<B>,
        options: Options,
    ) -> Result<()> {
        self.context().low_contention_all_gather(stream, input, output, options)
    }

    /// See [`Context::low_contention_all_to_all`].
    ///
    /// # Errors
    /// As there.
    pub fn low_contention_all_to_all(
        &self,
        stream: &Stream<B>,
        input: &Handle<B>,
        output: &Span<B>,
        options: Options,
    ) -> Result<()> {
        self.context().low_contention_all_to_all(stream, input, output, options)
    }

    /// See [`Context::low_contention_reduce_scatter`].
    ///
    /// # Errors
    /// As there.
    pub fn low_contention_reduce_scatter(
        &self,
        stream: &Stream<B>,
        input: &Handle<B>,
        output: &Span<B>,
        op: ReduceOp,
        options: Options,
    ) -> Result<()> {
        self.context().low_contention_reduce_scatter(stream, input, output, op, options)
    }
}
