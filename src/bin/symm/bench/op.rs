//! The operations that are measured, and what they move.

use clap::ValueEnum;

/// An operation, on buffers of one size.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
#[value(rename_all = "snake_case")]
pub(crate) enum Op {
    /// Every PE writes SIZE bytes to its right neighbour, all at once
    Put,
    /// Every PE reads SIZE bytes of its right neighbour, all at once
    Get,
    /// put_with_signal of SIZE bytes to the right neighbour, then the wait for the left one's
    Signal,
    /// All PEs meet; has no size
    Barrier,
    /// SIZE bytes arrive on each PE
    AllGather,
    /// Both all_reduce forms, SIZE bytes each, one after the other
    AllReduce,
    /// Every PE adds up all buffers of SIZE bytes, to memory of its own
    OneShotAllReduce,
    /// Every PE adds up its part of all buffers of SIZE bytes, in place on all PEs
    TwoShotAllReduce,
    /// Every PE adds up its part of all buffers of SIZE bytes
    ReduceScatter,
    /// SIZE bytes of the root (--root) arrive on each PE
    Broadcast,
    /// SIZE bytes leave each PE, in equal parts
    AllToAll,
    /// all_to_all_vdev: SIZE bytes leave each PE in rows (--row), by splits in memory
    Vdev,
    /// all_to_all_vdev_2d, MoE dispatch: as vdev, by expert (--experts) and source
    #[value(name = "vdev_2d", alias = "vdev2d")]
    Vdev2d,
    /// all_to_all_vdev_2d_offset, MoE combine: SIZE bytes of rows come back to each PE, from where vdev_2d put them
    Combine,
    /// vdev_2d by an exchange plan, then that with its combine: SIZE bytes leave each PE, and come back
    Plan,
    /// Rows there by an exchange plan
    PlanDispatch,
    /// Rows there and back by an exchange plan
    PlanRound,
    /// As all_gather; copy engines move the data on a GPU
    LowContentionAllGather,
    /// As all_to_all; copy engines move the data on a GPU
    LowContentionAllToAll,
    /// As reduce_scatter; copy engines move the data on a GPU
    LowContentionReduceScatter,
    /// SIZE bytes of a matrix leave each PE, in blocks of columns (--row)
    AllToAllNd,
    /// Every PE adds up its block of columns (--row) of all matrices of SIZE bytes
    ReduceScatterOffset,
    /// The root (--root) adds up all tiles of SIZE bytes, in rows (--row) of matrices twice as wide
    TileReduce,
    /// Every PE adds up its tile (rows of --row) of all matrices of SIZE bytes
    MultiRootTileReduce,
}

/// Bytes that one PE moves in one operation, the mean over PEs.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub(crate) struct Traffic {
    /// From or to other PEs.
    pub(crate) wire: f64,
    /// From and to this PE.
    pub(crate) local: f64,
}

impl Op {
    /// What is measured under this name, each with rows of its own.
    pub(crate) fn forms(self) -> &'static [Op] {
        match self {
            Op::Put => &[Op::Put],
            Op::Get => &[Op::Get],
            Op::Signal => &[Op::Signal],
            Op::Barrier => &[Op::Barrier],
            Op::AllGather => &[Op::AllGather],
            Op::AllReduce => &[Op::OneShotAllReduce, Op::TwoShotAllReduce],
            Op::OneShotAllReduce => &[Op::OneShotAllReduce],
            Op::TwoShotAllReduce => &[Op::TwoShotAllReduce],
            Op::ReduceScatter => &[Op::ReduceScatter],
            Op::Broadcast => &[Op::Broadcast],
            Op::AllToAll => &[Op::AllToAll],
            Op::Vdev => &[Op::Vdev],
            Op::Vdev2d => &[Op::Vdev2d],
            Op::Combine => &[Op::Combine],
            Op::Plan => &[Op::PlanDispatch, Op::PlanRound],
            Op::PlanDispatch => &[Op::PlanDispatch],
            Op::PlanRound => &[Op::PlanRound],
            Op::LowContentionAllGather => &[Op::LowContentionAllGather],
            Op::LowContentionAllToAll => &[Op::LowContentionAllToAll],
            Op::LowContentionReduceScatter => &[Op::LowContentionReduceScatter],
            Op::AllToAllNd => &[Op::AllToAllNd],
            Op::ReduceScatterOffset => &[Op::ReduceScatterOffset],
            Op::TileReduce => &[Op::TileReduce],
            Op::MultiRootTileReduce => &[Op::MultiRootTileReduce],
        }
    }

    /// The library's name for it, for one form.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Op::Put => "put",
            Op::Get => "get",
            Op::Signal => "put_with_signal",
            Op::Barrier => "barrier",
            Op::AllGather => "all_gather",
            Op::AllReduce => "all_reduce",
            Op::OneShotAllReduce => "one_shot_all_reduce",
            Op::TwoShotAllReduce => "two_shot_all_reduce",
            Op::ReduceScatter => "reduce_scatter",
            Op::Broadcast => "broadcast",
            Op::AllToAll => "all_to_all",
            Op::Vdev => "all_to_all_vdev",
            Op::Vdev2d => "all_to_all_vdev_2d",
            Op::Combine => "all_to_all_vdev_2d_offset",
            Op::Plan => "plan",
            Op::PlanDispatch => "plan_dispatch",
            Op::PlanRound => "plan_dispatch_combine",
            Op::LowContentionAllGather => "low_contention_all_gather",
            Op::LowContentionAllToAll => "low_contention_all_to_all",
            Op::LowContentionReduceScatter => "low_contention_reduce_scatter",
            Op::AllToAllNd => "all_to_all_nd",
            Op::ReduceScatterOffset => "reduce_scatter_offset",
            Op::TileReduce => "tile_reduce",
            Op::MultiRootTileReduce => "multi_root_tile_reduce",
        }
    }

    /// Whether it adds up.
    pub(crate) fn reduces(self) -> bool {
        use Op::*;
        let equal = matches!(self, AllReduce | OneShotAllReduce | TwoShotAllReduce | ReduceScatter);
        let blocks = matches!(self, ReduceScatterOffset | TileReduce | MultiRootTileReduce);
        equal || blocks || self == LowContentionReduceScatter
    }

    /// Whether it moves rows by splits, to or from experts but for [`Op::Vdev`].
    pub(crate) fn has_splits(self) -> bool {
        matches!(self, Op::Vdev | Op::Vdev2d | Op::Combine) || self.has_plan()
    }

    /// Whether an exchange plan is made for it.
    pub(crate) fn has_plan(self) -> bool {
        matches!(self, Op::Plan | Op::PlanDispatch | Op::PlanRound)
    }

    /// Whether its buffers are matrices, of which a PE takes blocks with rows of so many bytes.
    pub(crate) fn has_blocks(self) -> bool {
        matches!(self, Op::AllToAllNd | Op::ReduceScatterOffset | Op::TileReduce | Op::MultiRootTileReduce)
    }

    /// Whether its buffer is cut into one part for each PE.
    pub(crate) fn has_parts(self) -> bool {
        use Op::*;
        let low = matches!(self, LowContentionAllGather | LowContentionAllToAll | LowContentionReduceScatter);
        low || matches!(self, AllGather | ReduceScatter | AllToAll)
    }

    /// Whether it starts from what all PEs have in their symmetric buffers.
    pub(crate) fn starts_from_shared(self) -> bool {
        use Op::*;
        let low = matches!(self, LowContentionAllGather | LowContentionAllToAll);
        self.reduces() || low || matches!(self, Get | AllToAllNd)
    }

    /// Whether what it brings lies in memory that is this PE's own.
    pub(crate) fn ends_in_own_memory(self) -> bool {
        self.starts_from_shared() && self != Op::TwoShotAllReduce
    }

    /// Bus bandwidth over algorithm bandwidth, as nccl-tests define it: what the busiest link must carry, whatever the
    /// algorithm, over the size.
    pub(crate) fn bus_factor(self, pes: usize) -> f64 {
        let others = (pes - 1) as f64 / pes as f64;
        match self {
            Op::Put | Op::Get | Op::Signal | Op::Broadcast | Op::TileReduce => 1.0,
            Op::Barrier | Op::Plan => 0.0,
            Op::AllReduce | Op::OneShotAllReduce | Op::TwoShotAllReduce | Op::PlanRound => 2.0 * others,
            _ => others,
        }
    }

    /// What this algorithm moves, for buffers of `size` bytes.
    pub(crate) fn traffic(self, pes: usize, size: usize) -> Traffic {
        let (w, size) = (pes as f64, size as f64);
        let part = size / w;
        match self {
            Op::Put | Op::Get | Op::Signal if pes == 1 => Traffic { wire: 0.0, local: size },
            Op::Put | Op::Get | Op::Signal => Traffic { wire: size, local: 0.0 },
            Op::Barrier | Op::AllReduce | Op::Plan => Traffic::default(),
            Op::OneShotAllReduce => Traffic { wire: (w - 1.0) * size, local: size },
            Op::TwoShotAllReduce => Traffic { wire: 2.0 * (w - 1.0) * part, local: part },
            Op::Broadcast => Traffic { wire: (w - 1.0) * part, local: 0.0 },
            Op::PlanRound => Traffic { wire: 2.0 * (w - 1.0) * part, local: 2.0 * part },
            // All else moves, over all PEs, W times a part of each PE's, of which one is its own.
            _ => Traffic { wire: (w - 1.0) * part, local: part },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn factors_are_those_of_nccl_tests() {
        assert_eq!(Op::TwoShotAllReduce.bus_factor(4), 1.5);
        assert_eq!(Op::AllGather.bus_factor(4), 0.75);
        assert_eq!(Op::Broadcast.bus_factor(8), 1.0);
    }

    #[test]
    fn what_parts_move_adds_up_to_the_size() {
        for op in
            [Op::AllGather, Op::ReduceScatter, Op::AllToAll, Op::Vdev, Op::Combine, Op::TileReduce, Op::Put]
        {
            for pes in [1, 3, 8] {
                let t = op.traffic(pes, 2400);
                assert_eq!(t.wire + t.local, 2400.0, "{op:?}");
                assert_eq!(t.wire == 0.0, pes == 1);
            }
        }
    }
}
