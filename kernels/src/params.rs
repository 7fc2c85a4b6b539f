//! Parameters of the kernels, passed by value. Twins of the structs in `include/symm/params.cuh`; a test compares the
//! layouts with a C++ compiler. All addresses are device addresses as 64-bit numbers.

/// Members whose addresses travel with the parameters, which saves the kernel reading them from a table first.
pub const NEAR_RANKS: usize = 8;

/// The first of `addresses`, for the parameters.
pub fn near(addresses: &[u64]) -> [u64; NEAR_RANKS] {
    std::array::from_fn(|r| addresses.get(r).copied().unwrap_or(0))
}

/// Defines the structs, and lists their fields for the layout test.
macro_rules! params {
    ($($(#[$doc:meta])* struct $name:ident { $($(#[$fdoc:meta])* $field:ident: $type:ty,)* })*) => {
        $(
            $(#[$doc])*
            #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
            #[repr(C)]
            pub struct $name { $($(#[$fdoc])* pub $field: $type,)* }
        )*

        /// (struct, size, [(field, offset)]) of every struct.
        #[cfg(test)]
        fn layouts() -> Vec<(&'static str, usize, Vec<(&'static str, usize)>)> {
            vec![$((
                stringify!($name),
                size_of::<$name>(),
                vec![$((stringify!($field), std::mem::offset_of!($name, $field)),)*],
            ),)*]
        }
    };
}

params! {
    /// Counters of one launch at a time, in device memory; all zero between launches.
    ///
    /// A stream owns one, and each captured graph one of its own: launches that share a record never overlap.
    struct LaunchRecord {
        /// Tickets handed out.
        tickets: u32,
        /// Zero.
        reserved: u32,
        /// Blocks that ended, and above them how many failed for each reason.
        finished: u64,
        /// Epoch of the collective, once it is known.
        epoch: u64,
        /// Of a reduction: shares that ended in each stage, and above them how many failed.
        stages: [u64; 3],
        /// Of an operation in two launches: its epoch, and whether it failed, between them.
        begun: u64,
        /// Tickets of exchanges, which hand them out before the launch ahead has ended; by [`ExchangeParams::turn`].
        early: [u32; 2],
    }

    /// Addresses of the two copies of a team's status record.
    struct StatusParams {
        /// The record in device memory.
        device: u64,
        /// The record in mapped host memory, as the GPU reaches it.
        host: u64,
    }

    /// `put`, `get`, `put_with_signal`.
    struct CopyParams {
        /// Status of the team.
        status: StatusParams,
        /// Address of the [`LaunchRecord`].
        record: u64,
        /// First byte of the destination.
        dst: u64,
        /// First byte of the source.
        src: u64,
        /// Bytes; 0 is legal.
        bytes: u64,
        /// Address of a u64 to update after the data; 0 for none.
        signal: u64,
        /// What to store or add.
        signal_value: u64,
        /// 0: store; 1: add.
        signal_add: u32,
        /// Zero.
        reserved: u32,
    }

    /// `wait_until`.
    struct WaitParams {
        /// Status of the team.
        status: StatusParams,
        /// Address of the u64, in this PE's memory.
        word: u64,
        /// What it is compared with.
        value: u64,
        /// Deadline, in nanoseconds.
        limit_ns: u64,
        /// Number of the operation.
        op: u64,
        /// PE to name when the deadline passes.
        pe: u64,
        /// Ranks to name then, as a bit set.
        late: u64,
        /// Comparison's number.
        cmp: u32,
        /// Zero.
        reserved: u32,
    }

    /// `put_signal` and `wait_signal`.
    struct PadSignalParams {
        /// Status of the team.
        status: StatusParams,
        /// Address of the u32.
        slot: u64,
        /// Deadline, in nanoseconds.
        limit_ns: u64,
        /// Number of the operation.
        op: u64,
        /// PE to name when the deadline passes.
        pe: u64,
        /// Ranks to name then, as a bit set.
        late: u64,
        /// Address of the u32 that keeps this PE's streams apart where the peer's slot is changed by a store; 0 for
        /// compare-and-swap.
        claim: u64,
        /// Value waited for.
        from: u32,
        /// Value stored.
        to: u32,
    }

    /// `barrier` of a handle.
    struct BarrierParams {
        /// Status of the team.
        status: StatusParams,
        /// The first members' pads, as in `pads`.
        near_pads: [u64; NEAR_RANKS],
        /// Address of `u64[ranks]`: the members' pads.
        pads: u64,
        /// Address of `u64[ranks]`: PE numbers.
        members: u64,
        /// Offset of the channel's words in a pad.
        words: u64,
        /// Offset of the channel's counter in a pad.
        counter: u64,
        /// Deadline, in nanoseconds.
        limit_ns: u64,
        /// Members.
        ranks: u32,
        /// This PE's rank.
        rank: u32,
    }

    /// Every collective of the exchange protocol.
    struct ExchangeParams {
        /// Status of the team.
        status: StatusParams,
        /// The first members' copies of the context, as in `regions`.
        near_regions: [u64; NEAR_RANKS],
        /// The first members' data areas, as in `out_buffers`.
        near_buffers: [u64; NEAR_RANKS],
        /// Address of the [`LaunchRecord`].
        record: u64,
        /// Address of `u64[ranks]`: the members' copies of the context.
        regions: u64,
        /// Address of `u64[ranks]`: PE numbers.
        members: u64,
        /// This PE's copy of the context.
        mine: u64,
        /// Address of the [`ContextLocal`].
        local: u64,
        /// Offset of the arrival words.
        arrival: u64,
        /// Offset of the done words.
        done: u64,
        /// Offset of the aborted pairs.
        aborted: u64,
        /// Offset of the slots.
        slots: u64,
        /// Bytes of a slot.
        slot_bytes: u64,
        /// Offset of the notes.
        notes: u64,
        /// Offset of the pushed words.
        pushed: u64,
        /// Zero: the first word of the header that is published; the kernel fills it in. The words up to `header_end` are
        /// that header, in its order.
        epoch: u64,
        /// Form's code.
        form: u64,
        /// Element type's code.
        dtype: u64,
        /// Bytes of a row.
        row_bytes: u64,
        /// Experts a rank, 1 or more.
        ne: u64,
        /// Alignment of each expert's start in rows, 1 or more.
        major_align: u64,
        /// 0, or the fault code to take part with.
        invalid: u64,
        /// The fault's first number.
        invalid_a: u64,
        /// The fault's second number.
        invalid_b: u64,
        /// Id of the output's allocation.
        out_id: u64,
        /// First byte of the output in this PE's data area.
        out_offset: u64,
        /// Rows of the output.
        out_rows: u64,
        /// Rows of the input.
        in_rows: u64,
        /// Splits that this PE publishes; 0 where `invalid` is set.
        n_splits: u64,
        /// Zero.
        header_end: [u64; 2],
        /// First row of the input.
        input: u64,
        /// Address of `u64[ranks]`: the members' data areas; 0 where there is no output.
        out_buffers: u64,
        /// Bytes of each data area.
        out_bytes: u64,
        /// Address of the splits.
        in_splits: u64,
        /// Address of the result.
        out_splits: u64,
        /// Deadline, in nanoseconds.
        limit_ns: u64,
        /// Members.
        ranks: u32,
        /// This PE's rank.
        rank: u32,
        /// Blocks that push to other PEs; 0: all blocks do both.
        remote_blocks: u32,
        /// 0 or 1: not that of the exchange before this one with the same record.
        turn: u32,
    }

    /// Broadcast and reductions. Of `exchange` the fields that all forms have; `input` is what a one-shot form brings to
    /// its buffer first, 0 where that holds the elements already.
    struct ReduceParams {
        /// As for the other collectives.
        exchange: ExchangeParams,
        /// What this PE publishes, in the words of the header; the epoch is filled in when it does.
        header: [u64; 16],
        /// First element of this PE's sums, outside every buffer; 0 where the form has none.
        result: u64,
        /// Rank whose rows are broadcast.
        root: u64,
        /// Leading rows, 1 or more.
        lead: u64,
        /// Offset of the gathered words in a context.
        gathered: u64,
    }

    /// Reductions whose elements are pushed.
    struct PushedParams {
        /// As for the other reductions.
        reduce: ReduceParams,
        /// Offset, in every member's context, of the room for pushed elements of even epochs.
        room: u64,
        /// Bytes of it.
        room_bytes: u64,
        /// From there to the room of odd epochs; 0 where there is one for all, and nothing is pushed before the verdict.
        room_step: u64,
        /// Pieces into which the elements are cut, the same number on every member.
        pieces: u32,
        /// 1 where a chunk's elements go to one member and the sums come from there; 0 where all go to all.
        two_hops: u32,
    }

    /// A block of every member's buffer, in bytes but for the number of runs.
    struct Take {
        /// From the buffer's first element.
        src: u64,
        /// From one run's first byte to the next one's, in a buffer.
        src_stride: u64,
        /// Runs.
        rows: u64,
        /// Bytes of a run.
        cols: u64,
        /// Address of the first run's destination.
        dst: u64,
        /// From one run's first byte to the next one's, there.
        dst_stride: u64,
        /// From one rank's block to the next one's; 0 where blocks are added up.
        dst_step: u64,
    }

    /// Forms that take. Of `reduce` the fields that all forms have.
    struct TakeParams {
        /// As for the reductions.
        reduce: ReduceParams,
        /// 0 for the members' buffers; else the address, in this PE's memory, of rank 0's block.
        sources: u64,
        /// From one rank's block there to the next one's.
        source_step: u64,
        /// What sums are divided by before they are rounded; 1 leaves them.
        divisor: u32,
        /// Takes.
        count: u32,
        /// [`TAKE_WHOLE`], [`TAKE_BEGIN`] or [`TAKE_FINISH`].
        phase: u32,
        /// Zero.
        reserved: u32,
        /// The first `count` of them.
        takes: [Take; MAX_TAKES],
    }

    /// What kernels need to reach members by NVSHMEM's transports.
    struct NetParams {
        /// First byte of this PE's symmetric heap.
        heap: u64,
        /// Bytes of it.
        heap_bytes: u64,
        /// First of the stages, in the heap.
        stage: u64,
        /// Address of `u64[stages]` in this GPU's memory: 1 while a block holds the stage.
        locks: u64,
        /// Address of `u64[2]` in mapped host memory: calls of NVSHMEM begun, ended.
        activity: u64,
        /// Ranks that the network reaches, as a bit set.
        network: [u64; 2],
        /// Number of stages of [`STAGE_BYTES`].
        stages: u32,
        /// Zero.
        reserved: u32,
    }

    /// `put`, `get`, `put_with_signal` over the network.
    struct NetCopyParams {
        /// Status of the team.
        status: StatusParams,
        /// The network.
        net: NetParams,
        /// Address of the [`LaunchRecord`].
        record: u64,
        /// First byte of the destination; of a put, as NVSHMEM names the peer's.
        dst: u64,
        /// First byte of the source; of a get, as NVSHMEM names the peer's.
        src: u64,
        /// Bytes; 0 is legal.
        bytes: u64,
        /// The peer's u64 to update after the data, as NVSHMEM names it; 0 for none.
        signal: u64,
        /// What to store or add.
        signal_value: u64,
        /// The peer.
        pe: u64,
        /// 0: store; 1: add.
        signal_add: u32,
        /// Zero.
        reserved: u32,
    }

    /// `put_signal` and `wait_signal` over the network.
    struct NetPadSignalParams {
        /// Status of the team.
        status: StatusParams,
        /// The network.
        net: NetParams,
        /// The u32 slot: the peer's for `put_signal`, this PE's for `wait_signal`.
        slot: u64,
        /// The u32 credit: this PE's for `put_signal`, the peer's for `wait_signal`.
        credit: u64,
        /// This PE's u32 count of signals sent to the peer, or consumed from it.
        count: u64,
        /// Deadline, in nanoseconds.
        limit_ns: u64,
        /// Number of the operation.
        op: u64,
        /// The peer, named when the deadline passes.
        pe: u64,
        /// Ranks to name then, as a bit set.
        late: u64,
        /// 1 for `wait_signal`.
        waits: u32,
        /// 1 where the peer's words are reached by load and store.
        direct: u32,
    }

    /// `wait_until` where the network may write the word.
    struct NetWaitParams {
        /// The network.
        net: NetParams,
        /// The wait.
        wait: WaitParams,
    }

    /// `barrier` of a handle with members that the network reaches.
    struct NetBarrierParams {
        /// The network.
        net: NetParams,
        /// Address of `u64[ranks]`: the members' pads as NVSHMEM names them.
        pads: u64,
        /// The barrier.
        barrier: BarrierParams,
    }

    /// Collectives that move rows, with members that the network reaches. In `exchange` a network member's copy of the
    /// context is this PE's own, its data area is named as NVSHMEM does.
    struct NetExchangeParams {
        /// The network.
        net: NetParams,
        /// Address of `u64[ranks]`: the members' copies of the context as NVSHMEM names them.
        remote: u64,
        /// The collective.
        exchange: ExchangeParams,
    }

    /// Broadcast and reductions with members that the network reaches, as [`NetExchangeParams`].
    struct NetReduceParams {
        /// The network.
        net: NetParams,
        /// As in [`NetExchangeParams`].
        remote: u64,
        /// The collective.
        reduce: ReduceParams,
    }

    /// Rows that a planned exchange moves.
    struct PlannedMove {
        /// Destination's rank.
        rank: u64,
        /// First row in the input.
        src_row: u64,
        /// First row in the destination's output.
        dst_row: u64,
        /// Rows of all moves before this one.
        before: u64,
    }

    /// The planned exchange. Of `reduce` the fields that all forms have, and the input.
    struct PlanParams {
        /// As for the reductions.
        reduce: ReduceParams,
        /// Address of `PlannedMove[count + 1]`; of the last one only `before` counts.
        moves: u64,
        /// Moves.
        count: u64,
    }

    /// Forms that take, with members that the network reaches, as [`NetExchangeParams`].
    struct NetTakeParams {
        /// The network.
        net: NetParams,
        /// As in [`NetExchangeParams`].
        remote: u64,
        /// 1 where blocks are added up, 0 where they are copied.
        adds: u32,
        /// Zero.
        reserved: u32,
        /// The collective.
        take: TakeParams,
    }

    /// Words of a context that only its owner's kernels touch; `i64[max_splits]` follow it.
    struct ContextLocal {
        /// Epoch told to the peers as given up since the last recover; 0 for none.
        gave_up: u64,
        /// Zero.
        padding: [u64; 7],
    }
}

/// Blocks that one launch takes at most.
pub const MAX_TAKES: usize = 16;

/// [`TakeParams::phase`]: the whole operation.
pub const TAKE_WHOLE: u32 = 0;

/// [`TakeParams::phase`]: up to the verdict, one block.
pub const TAKE_BEGIN: u32 = 1;

/// [`TakeParams::phase`]: what follows the copies of the copy engines.
pub const TAKE_FINISH: u32 = 2;

/// Bytes of a [`LaunchRecord`], a cache line.
pub const RECORD_BYTES: usize = size_of::<LaunchRecord>();

/// Bytes of one stage through which the network takes what lies outside the symmetric heap (`STAGE_BYTES` in
/// `cu/nvshmem/net.cuh`).
pub const STAGE_BYTES: usize = 512 * 1024;

/// Splits that a note holds (`FEW_SPLITS` in `include/symm/exchange.cuh`), and members whose notes with splits a block keeps.
pub const FEW_SPLITS: u64 = 32;
/// See [`FEW_SPLITS`].
pub const FEW_RANKS: u64 = 32;

/// Members that the exchange kernel takes (`MAX_RANKS` in `include/symm/exchange.cuh`).
pub const MAX_RANKS: usize = 128;

#[cfg(test)]
mod tests;
