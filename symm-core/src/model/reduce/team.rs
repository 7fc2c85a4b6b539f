//! Broadcast and reductions as the team offers them.

use crate::backend::Backend;
use crate::error::Result;
use crate::model::collective::Options;
use crate::model::handle::Handle;
use crate::model::span::{Local, Span};
use crate::model::stream::Stream;
use crate::model::team::Team;

#[cfg(doc)]
use crate::model::Context;

/// The team's own broadcast and reductions: those of [`Team::context`].
impl<B: Backend> Team<B> {
    /// See [`Context::broadcast`].
    ///
    /// # Errors
    /// As there.
    pub fn broadcast(
        &self,
        stream: &Stream<B>,
        buffer: &Handle<B>,
        root: usize,
        options: Options,
    ) -> Result<()> {
        self.context().broadcast(stream, buffer, root, options)
    }

    /// See [`Context::reduce_scatter`].
    ///
    /// # Errors
    /// As there.
    pub fn reduce_scatter(
        &self,
        stream: &Stream<B>,
        input: &Handle<B>,
        output: &Span<B>,
        options: Options,
    ) -> Result<()> {
        self.context().reduce_scatter(stream, input, output, options)
    }

    /// See [`Context::reduce_scatter_last_dim`].
    ///
    /// # Errors
    /// As there.
    pub fn reduce_scatter_last_dim(
        &self,
        stream: &Stream<B>,
        input: &Handle<B>,
        last_dim: usize,
        output: &Span<B>,
        options: Options,
    ) -> Result<()> {
        self.context().reduce_scatter_last_dim(stream, input, last_dim, output, options)
    }

    /// See [`Context::one_shot_all_reduce`].
    ///
    /// # Errors
    /// As there.
    pub fn one_shot_all_reduce(
        &self,
        stream: &Stream<B>,
        input: &Handle<B>,
        options: Options,
    ) -> Result<Local<B>> {
        self.context().one_shot_all_reduce(stream, input, options)
    }

    /// See [`Context::one_shot_all_reduce_out`].
    ///
    /// # Errors
    /// As there.
    pub fn one_shot_all_reduce_out(
        &self,
        stream: &Stream<B>,
        input: &Handle<B>,
        out: &Span<B>,
        options: Options,
    ) -> Result<()> {
        self.context().one_shot_all_reduce_out(stream, input, out, options)
    }

    /// See [`Context::one_shot_all_reduce_copy`].
    ///
    /// # Errors
    /// As there.
    pub fn one_shot_all_reduce_copy(
        &self,
        stream: &Stream<B>,
        symm_buffer: &Handle<B>,
        local_input: &Span<B>,
        options: Options,
    ) -> Result<Local<B>> {
        self.context().one_shot_all_reduce_copy(stream, symm_buffer, local_input, options)
    }

    /// See [`Context::one_shot_all_reduce_copy_out`].
    ///
    /// # Errors
    /// As there.
    pub fn one_shot_all_reduce_copy_out(
        &self,
        stream: &Stream<B>,
        symm_buffer: &Handle<B>,
        local_input: &Span<B>,
        out: &Span<B>,
        options: Options,
    ) -> Result<()> {
        self.context().one_shot_all_reduce_copy_out(stream, symm_buffer, local_input, out, options)
    }

    /// See [`Context::two_shot_all_reduce`].
    ///
    /// # Errors
    /// As there.
    pub fn two_shot_all_reduce(
        &self,
        stream: &Stream<B>,
        buffer: &Handle<B>,
        options: Options,
    ) -> Result<()> {
        self.context().two_shot_all_reduce(stream, buffer, options)
    }

    /// See [`Context::two_shot_all_reduce_out`].
    ///
    /// # Errors
    /// As there.
    pub fn two_shot_all_reduce_out(
        &self,
        stream: &Stream<B>,
        input: &Handle<B>,
        output: &Span<B>,
        options: Options,
    ) -> Result<()> {
        self.context().two_shot_all_reduce_out(stream, input, output, options)
    }
}
