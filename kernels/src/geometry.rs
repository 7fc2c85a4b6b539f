//! How many blocks and threads a launch takes: pure functions of what the host knows.
//!
//! Splits are known on the GPU only, so a launch is sized for what its input could hold, and the kernel cuts the rows
//! that there are into pieces for the warps that it has.

/// Most threads of a block of the exchange kernel where rows are moved; a barrier takes two warps.
pub const EXCHANGE_THREADS: u32 = 1024;

/// Threads of a block up to which the kernels for few splits have registers for all that they hold; for more there are others
/// ([`Entry::for_launch`](crate::Entry::for_launch)).
pub const SMALL_BLOCK: u32 = 512;

/// Bytes of input up to which warps read their first rows while the others' notes are on their way. On two H200 that saves 0.4 us of a
/// dispatch of 8 rows of 14 KiB, and costs 0.5 us of one of 128 rows or more.
pub(crate) const AHEAD_BYTES: u64 = 512 << 10;
/// The same of `all_to_all_vdev_2d_offset`, whose input has room for everybody's rows: 0.8 us less with room for 48 such rows, nothing
/// gained with 288.
pub(crate) const AHEAD_OFFSET_BYTES: u64 = 3 << 19;

/// Bytes for a block of the exchange up to which eight warps keep it busy; beyond, sixteen do.
const EIGHT_WARPS: u64 = 1 << 20;
/// The same where there are too few blocks to fill the links; beyond, all 32 are needed.
const EIGHT_WARPS_OF_FEW: u64 = 32 << 10;

/// Bytes of the exchange up to which a launch has no more blocks than may start early.
const EARLY: u64 = 4 << 20;
/// Bytes up to which eight warps for each of those are enough; beyond, sixteen.
const EARLY_OF_EIGHT_WARPS: u64 = 1 << 20;
/// Bytes for a block of those, little more than one 512-byte vector round for each of eight warps: 1 token in 24 blocks, half of them
/// remote, took 0.1 µs less than in 28, of which two thirds are.
const EARLY_BLOCK: u64 = 5 << 10;

/// Threads of a block of the reduction kernel: few enough that each has registers for a vector of eight members.
pub const REDUCE_THREADS: u32 = 512;

/// Bytes that one block of 32 warps moves with one 512-byte vector round of each: fewer leave warps without work.
const BLOCK_ROUND: u64 = 32 * 512;

/// Blocks with which one-directional stores come within 2 % of what more blocks reach on NVLink.
const PUT_BLOCKS: u32 = 64;

/// A kernel that starts early holds at most one in so many of the multiprocessors.
const EARLY_PART: u32 = 4;

/// Shares of a launch that may push to others (`MAX_PUSHERS` in `include/symm/exchange.cuh`).
const MAX_PUSHERS: u32 = 256;

/// Up to this many blocks do not fill the links.
const LINK_BLOCKS: u64 = 24;

/// Size of a launch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Launch {
    /// Blocks.
    pub blocks: u32,
    /// Threads of each.
    pub threads: u32,
    /// Blocks, of all, that push to other PEs; 0 if every block does both.
    pub remote: u32,
}

impl Launch {
    /// Whether the kernel may start, and then wait, before the one ahead of it in the stream has ended: only a small one may.
    ///
    /// Kernels that wait for peers let their successor start at once. A successor of many blocks would then hold the GPU
    /// against the very kernel that a peer, or another stream here, still has to run for the wait to end.
    pub fn starts_early(self, multiprocessors: u32) -> bool {
        (self.blocks == 1 && self.threads <= 64) || self.blocks.saturating_mul(EARLY_PART) <= multiprocessors
    }
}

/// The GPU, and what the caller allows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Multiprocessors of the GPU.
    pub multiprocessors: u32,
    /// Blocks that the operation may occupy; 0: as many as there are multiprocessors.
    pub max_blocks: u32,
}

impl Limits {
    fn blocks(self) -> u32 {
        let all = self.multiprocessors.clamp(1, MAX_PUSHERS);
        if self.max_blocks == 0 { all } else { self.max_blocks.min(all) }
    }
}

/// A collective that moves at most `bytes` bytes between `ranks` members; 0 bytes for a barrier.
///
/// With few blocks every block is as fast as the next, local or remote, so they are shared out like the rows: half of them
/// remote between two GPUs (16 blocks, 8 of them remote: 674 µs; 10: 812). With many the links are the bottleneck, and two
/// thirds are best; with more members the remote part of the rows grows.
pub fn exchange(bytes: u64, ranks: u32, limits: Limits) -> Launch {
    let wanted = u32::try_from(bytes.div_ceil(BLOCK_ROUND)).unwrap_or(u32::MAX);
    let blocks = wanted.clamp(if bytes == 0 { 1 } else { 2 }, limits.blocks().max(2)).min(limits.blocks());
    let threads = if bytes == 0 { 64 } else { EXCHANGE_THREADS };
    Launch { blocks, threads, remote: remote_of(blocks, ranks) }
}

/// How many of an exchange's blocks push to other members.
fn remote_of(blocks: u32, ranks: u32) -> u32 {
    let others = u64::from(ranks.saturating_sub(1));
    if others == 0 || blocks < 2 {
        return 0;
    }
    let blocks = u64::from(blocks);
    let share = if blocks <= LINK_BLOCKS {
        (blocks * others).div_ceil(others + 1)
    } else {
        // Two parts for each other member, one for this one.
        blocks * 2 * others / (2 * others + 1)
    };
    u32::try_from(share.clamp(1, blocks - 1)).unwrap_or(1)
}

/// The same for the kernels whose splits all fit notes, for which a block's size is free.
///
/// Few warps reach each step sooner: they meet sooner, and fetch the code for fewer. Between two GPUs, dispatches of 1, 16, 128 and 512
/// tokens of 7168 bf16 to 8 experts took 8.2, 11.4, 29.4 and 90.8 µs with 256 threads, 10.4, 13.4, 31.3 and 94.0 with 1024. 4096 tokens
/// took 651 and 655 with 512 and 1024; with 16 blocks 721 and 688.
///
/// What few blocks move in a few µs is for those that may start early, which hides a part of each launch behind the one before, and a
/// block has bytes for each of its warps. With a block for every 16 KiB dispatches of 1, 2, 4, 8 and 16 tokens took 8.5, 9.5, 9.1, 9.8 and
/// 11.4 µs, so 7.9, 8.1, 8.7, 9.6 and 10.5, and the way back 0.3 to 0.8 µs less than before; of 24 tokens and more it makes no difference.
pub fn exchange_few(bytes: u64, ranks: u32, limits: Limits) -> Launch {
    let early = limits.multiprocessors / EARLY_PART;
    if bytes > 0 && bytes <= EARLY && early >= 2 && limits.blocks() >= early {
        let blocks = u32::try_from(bytes.div_ceil(EARLY_BLOCK)).unwrap_or(u32::MAX).clamp(2, early);
        let threads = if bytes <= EARLY_OF_EIGHT_WARPS { 256 } else { 512 };
        return Launch { blocks, threads, remote: remote_of(blocks, ranks) };
    }
    let launch = exchange(bytes, ranks, limits);
    let each = bytes / u64::from(launch.blocks);
    let threads = if u64::from(launch.blocks) <= LINK_BLOCKS {
        if each <= EIGHT_WARPS_OF_FEW { 256 } else { EXCHANGE_THREADS }
    } else if each <= EIGHT_WARPS {
        256
    } else {
        512
    };
    Launch { threads: launch.threads.min(threads), ..launch }
}

/// A broadcast or reduction in which a PE reads `bytes` bytes of each buffer that it reads.
///
/// One vector of every buffer for each thread while that fills the GPU; with a handful of members that is as much on its
/// way as links hold.
pub fn reduce(bytes: u64, limits: Limits) -> Launch {
    let wanted = u32::try_from(bytes.div_ceil(16 * u64::from(REDUCE_THREADS))).unwrap_or(u32::MAX);
    Launch { blocks: wanted.clamp(1, limits.blocks()), threads: REDUCE_THREADS, remote: 0 }
}

/// Bytes of elements that a warp pushes at a time, and the room that they take (`cu/pushed/common.cuh`).
const CHUNK: u64 = 1536;
const CHUNK_ROOM: u64 = 1664;

/// Warps of a block that push, at most, beside the one that waits for notes: of two members, and of more.
const PAIR_WARPS: u64 = 23;
const TEAM_WARPS: u64 = 15;

/// Chunks up to which one block is faster than several, which must first tell each other the epoch.
const ONE_BLOCK_CHUNKS: u64 = 11;
/// Warps that push, at least, of each block where there are several: of two members, and of more.
const PAIR_FEW_WARPS: u64 = 6;
const TEAM_FEW_WARPS: u64 = 8;
/// Blocks at most, so that the next launch of the stream may start early. Between two H200s 1 MiB took 9.6 µs with 16 blocks of 23 warps, and
/// 8.7 with 32, of which each warp has one chunk.
const MOST_BLOCKS: u64 = 32;

/// Blocks at most, and warps of each that push, where two members push much: a block for each multiprocessor of an H200. They are cut by
/// these numbers on any GPU, since they must be equal on both. 16 MiB took 54.6 µs, with 19 and 23 warps 55.0 and 55.4.
const STEADY_BLOCKS: u32 = 132;
const STEADY_WARPS: u64 = 15;

/// Bytes more over the links that take as long as one more word's way, about 1.2 µs.
const HOP_BYTES: u64 = 400 << 10;

/// A reduction whose elements are pushed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pushed {
    /// The launch. Its threads and what follows are the same on all members, its blocks need not be.
    pub launch: Launch,
    /// Pieces into which the elements are cut; a block takes one at a time.
    pub pieces: u32,
    /// Whether a chunk's elements go to one member, which pushes the sums; else all elements go to all.
    pub two_hops: bool,
    /// Whether elements are pushed once all members have arrived, into room that all epochs share.
    pub waits: bool,
}

/// An all-reduce of `bytes` bytes between `ranks` members whose elements are pushed into contexts with `room` bytes for one epoch;
/// `None` if it is not one of at most `most` bytes, or does not fit.
///
/// In one hop everybody pushes all it has to `ranks − 1` others. In two it pushes `1/ranks` of it to each of them, and as much of the sums:
/// less where there are more than two, for one more word's way. So one hop is best for few bytes, and always between two.
pub fn pushed(bytes: u64, ranks: u32, most: u64, room: u64, limits: Limits) -> Option<Pushed> {
    if ranks < 2 || most == 0 || bytes > most {
        return None;
    }
    let (w, chunks) = (u64::from(ranks), bytes.div_ceil(CHUNK));
    // Bytes that one hop sends more than two: (w − 1) − 2 (w − 1) / w times those of the call.
    let more = bytes.saturating_mul((w - 1) * (w - 2)) / w;
    let fits = |chunks: u64| chunks.saturating_mul(CHUNK_ROOM) <= room;
    let one_hop = (w == 2 || more <= HOP_BYTES) && fits(chunks.saturating_mul(w - 1));
    let two_hops = !one_hop && w > 2 && fits(chunks.div_ceil(w).saturating_mul(w - 1).saturating_add(chunks));
    if !one_hop && !two_hops {
        return None;
    }
    let (widest, few) = if w == 2 { (PAIR_WARPS, PAIR_FEW_WARPS) } else { (TEAM_WARPS, TEAM_FEW_WARPS) };
    let pieces = if chunks <= ONE_BLOCK_CHUNKS {
        1
    } else {
        chunks.div_ceil(chunks.div_ceil(MOST_BLOCKS).clamp(few, widest)).min(MOST_BLOCKS)
    };
    let warps = chunks.div_ceil(pieces).clamp(1, widest);
    let narrow = |n: u64| u32::try_from(n).unwrap_or(u32::MAX);
    let pieces = narrow(pieces);
    let launch = Launch { blocks: pieces.min(limits.blocks()), threads: 32 * narrow(warps + 1), remote: 0 };
    Some(Pushed { launch, pieces, two_hops, waits: false })
}

/// The same between two members, of more elements: those of at most `most` bytes, pushed once both have arrived into contexts with `room`
/// bytes for all epochs; `None` if there are more.
///
/// Each warp has one chunk on its way beside that which it waits for, so they are many, and as few for a block as keep the link full.
pub fn pushed_by_pair(bytes: u64, most: u64, room: u64, limits: Limits) -> Option<Pushed> {
    let chunks = bytes.div_ceil(CHUNK);
    if bytes > most || chunks.saturating_mul(CHUNK_ROOM) > room {
        return None;
    }
    let pieces = u32::try_from(chunks.div_ceil(STEADY_WARPS)).unwrap_or(u32::MAX).clamp(1, STEADY_BLOCKS);
    let threads = 32 * (u32::try_from(chunks.clamp(1, STEADY_WARPS)).unwrap_or(1) + 1);
    let launch = Launch { blocks: pieces.min(limits.blocks()), threads, remote: 0 };
    Some(Pushed { launch, pieces, two_hops: false, waits: true })
}

/// A put or get of `bytes` bytes. Small ones take one block, so that the signal needs no count of blocks.
pub fn copy(bytes: u64, limits: Limits) -> Launch {
    let blocks = u32::try_from(bytes.div_ceil(BLOCK_ROUND)).unwrap_or(u32::MAX);
    let blocks = blocks.clamp(1, limits.blocks().min(PUT_BLOCKS));
    let warps = u32::try_from(bytes.div_ceil(512)).unwrap_or(u32::MAX).clamp(1, 32);
    Launch { blocks, threads: if blocks > 1 { 1024 } else { 32 * warps }, remote: 0 }
}

/// Bytes of a collective over the network that give a block work; more blocks than these are only for what goes to direct
/// members and stays here.
const NETWORK_BLOCK: u64 = 128 << 10;

/// Blocks that fill a network: each has one transfer of a stage on its way at a time.
const NETWORK_BLOCKS: u32 = 32;

fn network(bytes: u64, piece: u64, limits: Limits) -> Launch {
    let wanted = u32::try_from(bytes.div_ceil(piece)).unwrap_or(u32::MAX);
    let blocks = wanted.clamp(1, limits.blocks().min(NETWORK_BLOCKS));
    Launch { blocks, threads: crate::network::THREADS, remote: 0 }
}

/// A collective of the exchange protocol with members that the network reaches.
pub fn network_exchange(bytes: u64, limits: Limits) -> Launch {
    network(bytes, NETWORK_BLOCK, limits)
}

/// A put or get over the network. What fits one stage takes one block, so that its signal follows without a round trip.
pub fn network_copy(bytes: u64, limits: Limits) -> Launch {
    network(bytes, crate::params::STAGE_BYTES as u64, limits)
}

#[cfg(test)]
mod tests {
    use super::*;

    const H200: Limits = Limits { multiprocessors: 132, max_blocks: 0 };

    #[test]
    fn measured_cases_get_the_blocks_that_were_best() {
        // rows of 14336 bytes between two GPUs: blocks, of them remote.
        for (rows, blocks, remote) in
            [(8, 7, 4), (128, 112, 74), (1024, 132, 88), (4096, 132, 88), (32768, 132, 88)]
        {
            let l = exchange(rows * 14336, 2, H200);
            assert_eq!((l.blocks, l.remote), (blocks, remote), "{rows} rows");
        }
        let bounded = exchange(32768 * 14336, 2, Limits { max_blocks: 16, ..H200 });
        assert_eq!((bounded.blocks, bounded.remote), (16, 8));
    }

    #[test]
    fn blocks_are_no_larger_than_their_rows_need() {
        let threads =
            |rows: u64, max_blocks| exchange_few(rows * 14336, 2, Limits { max_blocks, ..H200 }).threads;
        assert_eq!([8, 128, 1024, 4096, 32768].map(|rows| threads(rows, 0)), [256, 512, 256, 256, 512]);
        assert_eq!([8, 1024, 32768].map(|rows| threads(rows, 16)), [256, 1024, 1024]);
        let (few, other) = (exchange_few(8 << 20, 2, H200), exchange(8 << 20, 2, H200));
        assert_eq!((few.blocks, few.remote), (other.blocks, other.remote));
        assert_eq!(exchange_few(0, 8, H200), exchange(0, 8, H200));
    }

    #[test]
    fn few_rows_are_for_blocks_that_start_early() {
        // Dispatches of 1, 2, 4, 8 and 16 tokens to 8 experts of 32 between two GPUs, and the way back, whose input has room for all that
        // may come.
        for (rows, blocks, threads, remote) in [
            (8, 23, 256, 12),
            (16, 33, 256, 22),
            (64, 33, 256, 22),
            (128, 33, 512, 22),
            (48, 33, 256, 22),
            (288, 33, 512, 22),
        ] {
            let l = exchange_few(rows * 14336, 2, H200);
            assert_eq!(l, Launch { blocks, threads, remote }, "{rows} rows");
            assert!(l.starts_early(132), "{rows} rows");
        }
        assert_eq!(exchange_few(1, 2, H200), Launch { blocks: 2, threads: 256, remote: 1 });
        assert_eq!(exchange_few(20 << 10, 8, H200), Launch { blocks: 4, threads: 256, remote: 3 });
        assert!(!exchange_few((4 << 20) + 1, 2, H200).starts_early(132));
        // A bound below those blocks is for whoever sets it to fill.
        let bounded = exchange_few(128 * 14336, 2, Limits { max_blocks: 16, ..H200 });
        assert_eq!((bounded.blocks, bounded.threads), (16, 1024));
        for multiprocessors in [1, 4, 7, 8, 9] {
            let l = exchange_few(1 << 20, 2, Limits { multiprocessors, max_blocks: 0 });
            assert!(
                l.blocks >= 1 && l.blocks <= multiprocessors && l.remote < l.blocks.max(1),
                "{multiprocessors}: {l:?}"
            );
        }
    }

    #[test]
    fn both_roles_have_a_block_or_one_block_does_both() {
        for ranks in [1, 2, 3, 8, 64] {
            for max_blocks in [0, 1, 2, 3, 200] {
                for bytes in [0, 1, 16384, 16385, 1 << 20, 1 << 40] {
                    let limits = Limits { max_blocks, ..H200 };
                    let l = exchange(bytes, ranks, limits);
                    assert!(l.blocks >= 1 && l.blocks <= limits.blocks(), "{l:?}");
                    let split = l.remote > 0 && l.remote < l.blocks;
                    assert_eq!(split, ranks > 1 && l.blocks > 1, "{ranks} {max_blocks} {bytes}: {l:?}");
                }
            }
        }
    }

    #[test]
    fn the_network_gets_blocks_by_stages_and_never_more_than_it_needs() {
        assert_eq!(network_copy(0, H200).blocks, 1);
        assert_eq!(network_copy(512 << 10, H200).blocks, 1);
        assert_eq!(network_copy((512 << 10) + 1, H200).blocks, 2);
        assert_eq!(network_copy(u64::MAX, H200).blocks, 32);
        assert_eq!(network_exchange(1 << 40, Limits { max_blocks: 3, ..H200 }).blocks, 3);
        assert_eq!(network_exchange(0, H200).blocks, 1);
    }

    #[test]
    fn a_barrier_is_two_warps() {
        assert_eq!(exchange(0, 8, H200), Launch { blocks: 1, threads: 64, remote: 0 });
    }

    #[test]
    fn only_small_launches_start_early() {
        let early = |l: Launch| l.starts_early(132);
        assert!(early(exchange(0, 8, H200)) && early(copy(8, H200)) && early(exchange(8 * 14336, 2, H200)));
        assert!(!early(exchange(1 << 20, 2, H200)) && !early(copy(1 << 20, H200)));
        let one = Limits { multiprocessors: 1, max_blocks: 0 };
        assert!(exchange(0, 8, one).starts_early(1) && !exchange(1 << 20, 2, one).starts_early(1));
    }

    #[test]
    fn reductions_take_a_thread_a_vector_up_to_the_whole_gpu() {
        let blocks = |bytes| reduce(bytes, H200).blocks;
        assert_eq!([0, 1, 8192, 8193, 1 << 20].map(blocks), [1, 1, 1, 2, 128]);
        assert_eq!((blocks(64 << 20), blocks(u64::MAX)), (132, 132));
        assert_eq!(reduce(1 << 30, Limits { max_blocks: 5, ..H200 }).blocks, 5);
        assert_eq!(reduce(8, H200).threads, REDUCE_THREADS);
    }

    /// Room as `symm_core::layout::ContextLayout` has it for a MiB.
    fn room(ranks: u64) -> u64 {
        CHUNK_ROOM * if ranks == 2 { 683 } else { 683_u64.div_ceil(ranks) * (ranks - 1) + 683 }
    }

    #[test]
    fn few_pushed_elements_are_one_block_and_more_are_small_launches() {
        let of = |bytes| {
            let p = pushed(bytes, 2, 1 << 20, room(2), H200).unwrap();
            assert!(!p.two_hops && p.launch.starts_early(132) && p.launch.threads <= 768);
            (p.pieces, p.launch.blocks, p.launch.threads)
        };
        assert_eq!([0, 2, 1536, 1537].map(of), [(1, 1, 64), (1, 1, 64), (1, 1, 64), (1, 1, 96)]);
        assert_eq!(
            [4096, 16384, 65536, 1 << 20].map(of),
            [(1, 1, 128), (1, 1, 384), (8, 8, 224), (32, 32, 736)]
        );
        // With fewer blocks than pieces each takes several; the pieces stay what they are on the other members.
        let few = pushed(1 << 20, 2, 1 << 20, room(2), Limits { max_blocks: 5, ..H200 }).unwrap();
        assert_eq!((few.pieces, few.launch.blocks, few.launch.threads), (32, 5, 736));
    }

    #[test]
    fn pushed_elements_take_two_hops_where_one_would_send_much_more() {
        let hops = |ranks: u32, bytes| {
            pushed(bytes, ranks, 1 << 20, room(u64::from(ranks)), H200).map(|p| 1 + u32::from(p.two_hops))
        };
        assert_eq!([4096, 64 << 10, 1 << 20].map(|b| hops(2, b)), [Some(1); 3]);
        assert_eq!([4096, 512 << 10, 1 << 20].map(|b| hops(3, b)), [Some(1), Some(1), Some(2)]);
        assert_eq!([4096, 256 << 10, 512 << 10].map(|b| hops(4, b)), [Some(1), Some(1), Some(2)]);
        assert_eq!(
            [4096, 64 << 10, 128 << 10, 1 << 20].map(|b| hops(8, b)),
            [Some(1), Some(1), Some(2), Some(2)]
        );
        assert_eq!([4096, 16 << 10, 1 << 20].map(|b| hops(64, b)), [Some(1), Some(2), Some(2)]);
    }

    #[test]
    fn what_is_not_to_be_pushed_or_does_not_fit_is_read() {
        for (bytes, ranks, most, room) in [
            (0, 1, 1 << 20, 1 << 30),
            (0, 2, 0, 1 << 30),
            (4097, 2, 4096, 1 << 30),
            (4096, 2, 4096, 3 * CHUNK_ROOM - 1),
            (u64::MAX, 8, u64::MAX, 1 << 30),
        ] {
            assert_eq!(pushed(bytes, ranks, most, room, H200), None, "{bytes} {ranks} {most} {room}");
        }
        assert!(pushed(4096, 2, 4096, 3 * CHUNK_ROOM, H200).is_some());
    }

    #[test]
    fn two_members_push_much_in_as_many_pieces_on_any_gpu() {
        let room = |bytes: u64| bytes.div_ceil(CHUNK) * CHUNK_ROOM;
        let of = |bytes, limits| pushed_by_pair(bytes, 16 << 20, room(16 << 20), limits);
        let whole = of(16 << 20, H200).unwrap();
        assert_eq!((whole.pieces, whole.launch.blocks, whole.launch.threads), (132, 132, 512));
        assert!(whole.waits && !whole.two_hops && of(2 << 20, H200).unwrap().pieces > 64);
        for limits in [Limits { max_blocks: 3, ..H200 }, Limits { multiprocessors: 2, max_blocks: 0 }] {
            let few = of(16 << 20, limits).unwrap();
            assert_eq!((few.pieces, few.launch.threads), (whole.pieces, whole.launch.threads));
            assert!(few.launch.blocks <= 3);
        }
        let one = of(1, H200).unwrap();
        assert_eq!((one.pieces, one.launch.blocks, one.launch.threads), (1, 1, 64));
        assert_eq!(of((16 << 20) + 1, H200), None);
        assert_eq!(pushed_by_pair(1537, 4096, 2 * CHUNK_ROOM - 1, H200), None);
        assert_eq!(pushed_by_pair(1, 0, 1 << 20, H200), None);
    }

    #[test]
    fn kernels_cut_pushed_elements_alike() {
        let common = include_str!("../cu/pushed/common.cuh");
        for line in ["VECTORS = 3;", "ROW = 32 * 16;", "CHUNK = VECTORS * ROW;", "CHUNK_ROOM = CHUNK + 128;"]
        {
            assert!(common.contains(line), "{line}");
        }
        assert_eq!((CHUNK, CHUNK_ROOM), (3 * 32 * 16, 3 * 32 * 16 + 128));
        let kernels = include_str!("../cu/pushed.cu");
        for (name, warps) in [("PAIR", PAIR_WARPS), ("TEAM", TEAM_WARPS)] {
            assert!(
                kernels.contains(&format!("constexpr int {name}_THREADS = {};", 32 * (warps + 1))),
                "{name}"
            );
        }
    }

    #[test]
    fn small_puts_are_one_block_of_few_warps() {
        assert_eq!(copy(0, H200), Launch { blocks: 1, threads: 32, remote: 0 });
        assert_eq!(copy(8, H200), Launch { blocks: 1, threads: 32, remote: 0 });
        assert_eq!(copy(513, H200), Launch { blocks: 1, threads: 64, remote: 0 });
        assert_eq!(copy(16384, H200), Launch { blocks: 1, threads: 1024, remote: 0 });
        assert_eq!(copy(16385, H200), Launch { blocks: 2, threads: 1024, remote: 0 });
        assert_eq!(copy(1 << 40, H200).blocks, 64);
    }
}
