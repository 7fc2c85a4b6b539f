//! The collectives of one protocol: arrive with a header, agree on a verdict, move or add up data, raise done-flags.

use std::time::Duration;

use super::{Addr, Backend, Take};
use crate::dtype::DType;
use crate::error::Fault;
use crate::splits::Move;

/// Which collective an [`Exchange`] is. Codes are those of the status record's `op`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u32)]
#[non_exhaustive]
pub enum Form {
    /// Arrival only; the stream's earlier puts are delivered first.
    Barrier = 16,
    /// Rank r's `in_rows` rows go to rows `r·in_rows…` of everybody's output.
    AllGather = 17,
    /// Rows `d·k…` of the input go to rows `r·k…` of rank d's output, k = in_rows / W.
    AllToAll = 18,
    /// `all_to_all_vdev`
    AllToAllVdev = 19,
    /// `all_to_all_vdev_2d`
    AllToAllVdev2d = 20,
    /// `all_to_all_vdev_2d_offset`
    AllToAllVdev2dOffset = 21,
    /// The root's buffer to everybody's.
    Broadcast = 22,
    /// Rank r's columns of the sum of all buffers to its own memory.
    ReduceScatter = 23,
    /// The sum of all buffers to everybody's own memory; each PE reads all buffers.
    OneShotAllReduce = 24,
    /// The sum of all buffers to all buffers; rank r adds up chunk r and writes it everywhere.
    TwoShotAllReduce = 25,
    /// The same to everybody's own memory; rank r leaves chunk r in its buffer, where the others get it.
    TwoShotAllReduceOut = 26,
    /// A column or row block of every buffer to this PE's own memory.
    AllToAllNd = 27,
    /// Blocks of the sum of all buffers to their owners' memory.
    ReduceScatterOffset = 28,
    /// A tile of the sum of all buffers to the root's memory.
    TileReduce = 29,
    /// Tiles of the sum of all buffers, each to its root's memory.
    MultiRootTileReduce = 30,
    /// Every buffer to this PE's own memory; on a GPU its copy engines move the data.
    LowContentionAllGather = 31,
    /// This rank's block of every buffer to its own memory, as `LowContentionAllGather`.
    LowContentionAllToAll = 32,
    /// The sum of this rank's block of all buffers to its own memory, as `LowContentionAllGather`.
    LowContentionReduceScatter = 33,
    /// Rows of an exchange whose splits are known: nothing but the agreement to go on is published.
    PlannedAllToAllVdev = 34,
}

impl Form {
    /// Every form.
    pub const ALL: [Form; 19] = [
        Form::Barrier,
        Form::AllGather,
        Form::AllToAll,
        Form::AllToAllVdev,
        Form::AllToAllVdev2d,
        Form::AllToAllVdev2dOffset,
        Form::Broadcast,
        Form::ReduceScatter,
        Form::OneShotAllReduce,
        Form::TwoShotAllReduce,
        Form::TwoShotAllReduceOut,
        Form::AllToAllNd,
        Form::ReduceScatterOffset,
        Form::TileReduce,
        Form::MultiRootTileReduce,
        Form::LowContentionAllGather,
        Form::LowContentionAllToAll,
        Form::LowContentionReduceScatter,
        Form::PlannedAllToAllVdev,
    ];

    /// Whether users give the operation rows; of others a row is an element.
    pub(crate) const fn has_rows(self) -> bool {
        matches!(
            self,
            Form::AllToAllVdev
                | Form::AllToAllVdev2d
                | Form::AllToAllVdev2dOffset
                | Form::PlannedAllToAllVdev
        )
    }

    /// The code in headers and status records.
    pub const fn code(self) -> u64 {
        self as u64
    }

    /// The form of a code.
    pub fn from_code(code: u64) -> Option<Form> {
        Form::ALL.into_iter().find(|f| f.code() == code)
    }

    /// The operation's name.
    pub const fn name(self) -> &'static str {
        match self {
            Form::Barrier => "barrier",
            Form::AllGather => "all_gather",
            Form::AllToAll => "all_to_all",
            Form::AllToAllVdev => "all_to_all_vdev",
            Form::AllToAllVdev2d => "all_to_all_vdev_2d",
            Form::AllToAllVdev2dOffset => "all_to_all_vdev_2d_offset",
            Form::Broadcast => "broadcast",
            Form::ReduceScatter => "reduce_scatter",
            Form::OneShotAllReduce => "one_shot_all_reduce",
            Form::TwoShotAllReduce => "two_shot_all_reduce",
            Form::TwoShotAllReduceOut => "two_shot_all_reduce_out",
            Form::AllToAllNd => "all_to_all_nd",
            Form::ReduceScatterOffset => "reduce_scatter_offset",
            Form::TileReduce => "tile_reduce",
            Form::MultiRootTileReduce => "multi_root_tile_reduce",
            Form::LowContentionAllGather => "low_contention_all_gather",
            Form::LowContentionAllToAll => "low_contention_all_to_all",
            Form::LowContentionReduceScatter => "low_contention_reduce_scatter",
            Form::PlannedAllToAllVdev => "planned_all_to_all_vdev",
        }
    }

    /// Splits that each PE publishes, for `ranks` members and `ne` experts a rank.
    pub const fn n_splits(self, ranks: usize, ne: usize) -> usize {
        match self {
            Form::AllToAllVdev => ranks,
            Form::AllToAllVdev2d | Form::AllToAllVdev2dOffset => ranks * ne,
            _ => 0,
        }
    }

    /// Whether `in_splits` has a second row with start rows in the input.
    pub const fn has_in_offsets(self) -> bool {
        matches!(self, Form::AllToAllVdev2dOffset)
    }

    /// Whether the form adds up parts of all members' symmetric buffers that follow from the header; see
    /// [`takes`](Self::takes) for those that follow from the descriptor.
    pub const fn reduces(self) -> bool {
        matches!(
            self,
            Form::ReduceScatter | Form::OneShotAllReduce | Form::TwoShotAllReduce | Form::TwoShotAllReduceOut
        )
    }

    /// Whether members get from each other's buffers after the done-flags, so that a second round of flags follows.
    pub const fn gathers(self) -> bool {
        matches!(self, Form::TwoShotAllReduceOut)
    }

    /// Whether this PE takes blocks of all members' symmetric buffers, [`Exchange::takes`], to its own memory.
    pub const fn takes(self) -> bool {
        self.sums_takes()
            || matches!(self, Form::AllToAllNd | Form::LowContentionAllGather | Form::LowContentionAllToAll)
    }

    /// Whether what is [taken](Self::takes) is added up; else it is copied.
    pub const fn sums_takes(self) -> bool {
        matches!(
            self,
            Form::ReduceScatterOffset
                | Form::TileReduce
                | Form::MultiRootTileReduce
                | Form::LowContentionReduceScatter
        )
    }

    /// Whether a GPU's copy engines move the data. Their addresses are fixed before anybody has arrived, so the symmetric
    /// buffer must begin at the same byte of the allocation on every member.
    pub const fn low_contention(self) -> bool {
        matches!(
            self,
            Form::LowContentionAllGather | Form::LowContentionAllToAll | Form::LowContentionReduceScatter
        )
    }
}

/// The symmetric buffer of a collective: an allocation of the context's team. Where received rows go; for the forms that
/// [reduce](Form::reduces), where everybody's summands lie; for the broadcast both.
#[derive(Debug)]
pub struct ExchangeOutput<'a, B: Backend> {
    /// The handle of the output over the context's team.
    pub handle: &'a B::RawHandle,
    /// Id of the allocation, equal on all members; published, so that two allocations cannot be mixed up.
    pub id: u64,
    /// First byte in the allocation's data area.
    pub offset: usize,
    /// Capacity in rows.
    pub rows: usize,
}

/// One collective. Splits and offsets are i64, contiguous, in the memory of the stream.
///
/// | form | input rows | `in_splits` | `out_splits_offsets` |
/// |---|---|---|---|
/// | barrier | – | – | – |
/// | all_gather | k, equal on all | – | – |
/// | all_to_all | W·k, equal on all | – | – |
/// | all_to_all_vdev | by destination | `[W]` | `[2, W]` |
/// | all_to_all_vdev_2d | by (destination, expert) | `[W·ne]` | `[2, ne·W]` |
/// | all_to_all_vdev_2d_offset | anywhere | `[2, ne·W]` splits, offsets | `[2, W·ne]` |
///
/// The broadcast and the reductions have no splits; a row of theirs is an element, and `in_rows` elements of `output`, equal
/// on all, take part. What else they use:
///
/// | form | `input` | `result` | `root` | `lead` |
/// |---|---|---|---|---|
/// | broadcast | the PE's own `output` | – | whose rows | 0 |
/// | reduce_scatter | – | `in_rows / W` elements | 0 | 1, or rows of a matrix whose columns are scattered |
/// | one_shot_all_reduce | elements to copy to `output` first, or `NULL` | `in_rows` elements | 0 | 1 |
/// | two_shot_all_reduce | – | – | 0 | 1 |
/// | two_shot_all_reduce_out | – | `in_rows` elements | 0 | 1 |
///
/// The forms that [take](Form::takes) have `takes`, all inside the first `in_rows` elements of `output`; a row of theirs is
/// an element, too, and `lead` a digest of the shape that must be equal on all members.
///
/// The planned form has `moves`, which the model has checked against input and output; `lead` is the plan's digest, `in_rows` 0.
/// So is `lead` of the three forms with splits where a plan [publishes them](Backend::without_plans), else 0.
#[derive(Debug)]
pub struct Exchange<'a, B: Backend> {
    /// Which collective.
    pub form: Form,
    /// Element type; compared, and what the reductions add up.
    pub dtype: DType,
    /// Bytes of a row, 1 or more for every form but the barrier.
    pub row_bytes: usize,
    /// Experts a rank; 1 where the form has none.
    pub ne: usize,
    /// Alignment of each expert's start in rows, 1 or more; 1 where the form has none.
    pub major_align: usize,
    /// First row of the input.
    pub input: Addr,
    /// Rows of the input.
    pub in_rows: usize,
    /// Output; `None` for the barrier, and where an invalid argument left none.
    pub output: Option<ExchangeOutput<'a, B>>,
    /// Splits, then offsets where the form has them; `NULL` where the form has none.
    pub in_splits: Addr,
    /// Result splits and offsets; `NULL` where the form has none.
    pub out_splits_offsets: Addr,
    /// Where a reduction's sums go, aligned to an element, outside `output`; `NULL` where the form has none.
    pub result: Addr,
    /// Rank whose rows are broadcast; 0 where the form has none.
    pub root: usize,
    /// Leading rows of a reduction, 1 or more; a digest of the shape for the forms that take, of the plan for exchanges of one;
    /// 0 where there is none. Compared in every form but the barrier, which has none.
    pub lead: usize,
    /// Blocks that this PE takes, at most [`MAX_TAKES`](super::MAX_TAKES), one for the forms that copy; empty where the form
    /// has none, or this PE takes nothing.
    pub takes: &'a [Take],
    /// Whether sums of `takes` are divided by W, before they are rounded; only with floats.
    pub average: bool,
    /// What this PE pushes in the planned form, destinations in the order of [`moves`](crate::splits::moves).
    pub moves: &'a [Move],
    /// The same as [`table`](crate::splits::table) has it, in the memory of the stream; `NULL` where the form has none.
    pub moves_table: Addr,
    /// As many bytes of this PE's own memory as [`Backend::scratch_bytes`] asked for; `NULL` where it asked for none.
    pub scratch: Addr,
    /// An argument was refused by the model: take part with validity 0.
    pub invalid: bool,
    /// Why, where it is `invalid`: what the other members are told.
    pub refused: Fault,
    /// Blocks that the operation may occupy on a GPU; 0 leaves it to the backend.
    pub max_blocks: u32,
    /// Deadline, counted from when the stream reaches the operation.
    pub limit: Duration,
}

impl<'a, B: Backend> Exchange<'a, B> {
    /// The same collective as another backend takes it: a backend over several passes it on, with the buffer's handle in
    /// the other's terms.
    pub fn with_output<'b, C: Backend>(&self, output: Option<ExchangeOutput<'b, C>>) -> Exchange<'b, C>
    where
        'a: 'b,
    {
        Exchange {
            form: self.form,
            dtype: self.dtype,
            row_bytes: self.row_bytes,
            ne: self.ne,
            major_align: self.major_align,
            input: self.input,
            in_rows: self.in_rows,
            output,
            in_splits: self.in_splits,
            out_splits_offsets: self.out_splits_offsets,
            result: self.result,
            root: self.root,
            lead: self.lead,
            takes: self.takes,
            average: self.average,
            scratch: self.scratch,
            moves: self.moves,
            moves_table: self.moves_table,
            invalid: self.invalid,
            refused: self.refused.clone(),
            max_blocks: self.max_blocks,
            limit: self.limit,
        }
    }
}
