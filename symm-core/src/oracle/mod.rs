//! Plain results of every operation, in one process: what backends are compared with, bit for bit.
//!
//! Written to be obviously right, not fast, and from the operations' definitions alone: nothing here uses
//! [`crate::splits`], so that a mistake there cannot hide.
//!
//! Everything is indexed by rank. A row is `row_bytes` bytes of any type. `outs` are the outputs of all ranks as they
//! were before the operation; a test fills them with poison, so that what an operation must leave alone (padding, the
//! rows behind the last) is compared too. Results `out_splits_offsets` are `[2, n]`, row 0 then row 1.
//!
//! # Panics
//! All functions, if arguments break the operation's rules (a row outside an input or output, a negative split, another
//! number of ranks in one argument than in another): an oracle has no result for those.

mod reduce;
mod take;

pub use reduce::{average, broadcast, canonical, memset32, reduce_scatter, sum};
pub use take::{Matrix, all_to_all_nd, reduce_scatter_offset, tile_reduce};

/// Row `row` as a range of bytes.
fn bytes(row: usize, row_bytes: usize) -> std::ops::Range<usize> {
    row * row_bytes..(row + 1) * row_bytes
}

/// Copies one row.
fn copy_row(out: &mut [u8], out_row: usize, input: &[u8], in_row: usize, row_bytes: usize) {
    out[bytes(out_row, row_bytes)].copy_from_slice(&input[bytes(in_row, row_bytes)]);
}

/// A split or offset as a number of rows.
fn rows(value: i64) -> usize {
    usize::try_from(value).expect("an oracle should be given splits of 0 or more")
}

/// A number of rows as a result.
fn result(rows: usize) -> i64 {
    i64::try_from(rows).expect("a number of rows should fit i64")
}

/// `all_gather`: the input of rank `s`, the same length on all, becomes block `s` of every output.
pub fn all_gather(inputs: &[Vec<u8>], outs: &mut [Vec<u8>]) {
    for out in outs {
        let mut at = 0;
        for input in inputs {
            out[at..at + input.len()].copy_from_slice(input);
            at += input.len();
        }
    }
}

/// `all_to_all`: an input is W blocks of the same length; block `d` of rank `s` becomes block `s` of rank `d`.
pub fn all_to_all(inputs: &[Vec<u8>], outs: &mut [Vec<u8>]) {
    let block = inputs.first().map_or(0, |input| input.len() / inputs.len());
    for (d, out) in outs.iter_mut().enumerate() {
        for (s, input) in inputs.iter().enumerate() {
            out[s * block..(s + 1) * block].copy_from_slice(&input[d * block..(d + 1) * block]);
        }
    }
}

/// `all_to_all_vdev`: `in_splits[s][d]` rows go from rank `s` to rank `d`; the input of `s` has them in the order of
/// `d`, the output of `d` in the order of `s`, without gaps.
///
/// Returns `out_splits_offsets` of every rank, `[2, W]`.
pub fn all_to_all_vdev(
    inputs: &[Vec<u8>],
    in_splits: &[Vec<i64>],
    row_bytes: usize,
    outs: &mut [Vec<u8>],
) -> Vec<Vec<i64>> {
    let mut results = Vec::new();
    for (d, out) in outs.iter_mut().enumerate() {
        let mut counts = Vec::new();
        let mut starts = Vec::new();
        let mut out_row = 0;
        for (s, input) in inputs.iter().enumerate() {
            let first: usize = in_splits[s][..d].iter().map(|n| rows(*n)).sum();
            let count = rows(in_splits[s][d]);
            counts.push(result(count));
            starts.push(result(out_row));
            for i in 0..count {
                copy_row(out, out_row, input, first + i, row_bytes);
                out_row += 1;
            }
        }
        results.push([counts, starts].concat());
    }
    results
}

/// `all_to_all_vdev_2d`: `in_splits[s][d·ne + e]` rows go from rank `s` to expert `e` of rank `d`. An input is ordered
/// by (destination, expert); an output by (expert, source), where every expert begins at a multiple of `major_align`
/// and an expert without rows takes `major_align` rows. Padding is not written.
///
/// Returns `out_splits_offsets` of every rank, `[2, ne·W]`.
pub fn all_to_all_vdev_2d(
    inputs: &[Vec<u8>],
    in_splits: &[Vec<i64>],
    row_bytes: usize,
    ne: usize,
    major_align: usize,
    outs: &mut [Vec<u8>],
) -> Vec<Vec<i64>> {
    let mut results = Vec::new();
    for (d, out) in outs.iter_mut().enumerate() {
        let mut counts = Vec::new();
        let mut starts = Vec::new();
        let mut out_row = 0;
        for e in 0..ne {
            let expert_start = out_row;
            for (s, input) in inputs.iter().enumerate() {
                let first: usize = in_splits[s][..d * ne + e].iter().map(|n| rows(*n)).sum();
                let count = rows(in_splits[s][d * ne + e]);
                counts.push(result(count));
                starts.push(result(out_row));
                for i in 0..count {
                    copy_row(out, out_row, input, first + i, row_bytes);
                    out_row += 1;
                }
            }
            if out_row == expert_start {
                out_row += major_align;
            }
            while out_row % major_align != 0 {
                out_row += 1;
            }
        }
        results.push([counts, starts].concat());
    }
    results
}

/// `all_to_all_vdev_2d_offset`: `in_splits_offsets[s]` is `[2, ne·W]`, with index `e·W + d`; row 0 is how many rows go
/// from rank `s` to rank `d`, row 1 where they start in the input of `s`. An output is ordered by (source, expert),
/// without gaps.
///
/// Returns `out_splits_offsets` of every rank, `[2, W·ne]`.
pub fn all_to_all_vdev_2d_offset(
    inputs: &[Vec<u8>],
    in_splits_offsets: &[Vec<i64>],
    row_bytes: usize,
    ne: usize,
    outs: &mut [Vec<u8>],
) -> Vec<Vec<i64>> {
    let w = inputs.len();
    let mut results = Vec::new();
    for (d, out) in outs.iter_mut().enumerate() {
        let mut counts = Vec::new();
        let mut starts = Vec::new();
        let mut out_row = 0;
        for (s, input) in inputs.iter().enumerate() {
            for e in 0..ne {
                let count = rows(in_splits_offsets[s][e * w + d]);
                counts.push(result(count));
                starts.push(result(out_row));
                for i in 0..count {
                    // The offset of a split of zero means nothing, so it is read only here.
                    let first = rows(in_splits_offsets[s][ne * w + e * w + d]);
                    copy_row(out, out_row, input, first + i, row_bytes);
                    out_row += 1;
                }
            }
        }
        results.push([counts, starts].concat());
    }
    results
}

/// `put`: `src` becomes the bytes at `offset` of `rank`'s data area.
pub fn put(areas: &mut [Vec<u8>], rank: usize, offset: usize, src: &[u8]) {
    areas[rank][offset..offset + src.len()].copy_from_slice(src);
}

/// `get`: the bytes at `offset` of `rank`'s data area become `dst`.
pub fn get(areas: &[Vec<u8>], rank: usize, offset: usize, dst: &mut [u8]) {
    dst.copy_from_slice(&areas[rank][offset..offset + dst.len()]);
}

#[cfg(test)]
mod tests {
    use super::*;

    const POISON: u8 = 0xEE;

    /// Rows of 3 bytes: rank, row, and a constant.
    fn input(rank: usize, rows: usize) -> Vec<u8> {
        (0..rows).flat_map(|i| [rank as u8, i as u8, 0x55]).collect()
    }

    /// (rank, row) of each row of an output, `None` where poison is left.
    fn read(out: &[u8]) -> Vec<Option<(u8, u8)>> {
        out.chunks(3).map(|r| (r != [POISON; 3]).then_some((r[0], r[1]))).collect()
    }

    #[test]
    fn equal_blocks() {
        let inputs = [input(0, 2), input(1, 2)];
        let mut outs = vec![vec![POISON; 15]; 2];
        all_gather(&inputs, &mut outs);
        let rows = [Some((0, 0)), Some((0, 1)), Some((1, 0)), Some((1, 1)), None];
        assert_eq!([read(&outs[0]), read(&outs[1])], [rows, rows]);
        let mut outs = vec![vec![POISON; 9]; 2];
        all_to_all(&inputs, &mut outs);
        assert_eq!(read(&outs[0]), [Some((0, 0)), Some((1, 0)), None]);
        assert_eq!(read(&outs[1]), [Some((0, 1)), Some((1, 1)), None]);
    }

    #[test]
    fn one_dimension() {
        let inputs = [input(0, 3), input(1, 2)];
        let mut outs = vec![vec![POISON; 12]; 2];
        let results = all_to_all_vdev(&inputs, &[vec![1, 2], vec![0, 2]], 3, &mut outs);
        assert_eq!(results, [vec![1, 0, 0, 1], vec![2, 2, 0, 2]]);
        assert_eq!(read(&outs[0]), [Some((0, 0)), None, None, None]);
        assert_eq!(read(&outs[1]), [Some((0, 1)), Some((0, 2)), Some((1, 0)), Some((1, 1))]);
    }

    #[test]
    fn the_worked_example_there_and_back() {
        let splits = [vec![5, 1, 0, 3], vec![7, 2, 4, 0]];
        let inputs = [input(0, 9), input(1, 13)];
        for (align, starts) in [
            (1, [[0, 5, 12, 13], [0, 0, 4, 7]]),
            (8, [[0, 5, 16, 17], [0, 0, 8, 11]]),
            (16, [[0, 5, 16, 17], [0, 0, 16, 19]]),
        ] {
            let mut middle = vec![vec![POISON; 3 * 20]; 2];
            let results = all_to_all_vdev_2d(&inputs, &splits, 3, 2, align, &mut middle);
            assert_eq!(results[0], [[5, 7, 1, 2], starts[0]].concat());
            assert_eq!(results[1], [[0, 4, 3, 0], starts[1]].concat());
            assert_eq!(middle.iter().flat_map(|m| read(m)).flatten().count(), 22);
            let mut back = vec![vec![POISON; 3 * 13]; 2];
            let restored = all_to_all_vdev_2d_offset(&middle, &results, 3, 2, &mut back);
            assert_eq!(restored[0], [5, 1, 0, 3, 0, 5, 6, 6]);
            assert_eq!(restored[1], [7, 2, 4, 0, 0, 7, 9, 13]);
            assert_eq!(back[0][..27], inputs[0]);
            assert!(back[0][27..].iter().all(|b| *b == POISON));
            assert_eq!(back[1], inputs[1]);
        }
    }

    #[test]
    fn an_empty_expert_takes_rows() {
        let inputs = [input(0, 3), input(1, 2)];
        let splits = [vec![0, 3, 0, 0], vec![0, 2, 0, 0]];
        for (align, starts) in [(1, [0, 0, 1, 4]), (8, [0, 0, 8, 11])] {
            let mut outs = vec![vec![POISON; 3 * 13]; 2];
            let results = all_to_all_vdev_2d(&inputs, &splits, 3, 2, align, &mut outs);
            assert_eq!(results[0], [[0, 0, 3, 2], starts].concat());
            assert!(read(&outs[1]).iter().all(Option::is_none));
        }
    }

    #[test]
    fn one_sided() {
        let mut areas = vec![vec![POISON; 4]; 2];
        put(&mut areas, 1, 1, &[1, 2]);
        assert_eq!(areas, [[POISON; 4], [POISON, 1, 2, POISON]]);
        let mut got = [0; 3];
        get(&areas, 1, 1, &mut got);
        assert_eq!(got, [1, 2, POISON]);
    }
}
