//! Blocks of matrices: `all_to_all_nd`, `reduce_scatter_offset`, tiles.

use super::reduce::sum;
use crate::DType;

/// A matrix inside an array: element (i, j) is number `start + i·stride + j`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Matrix {
    /// First element.
    pub start: usize,
    /// Rows.
    pub rows: usize,
    /// Columns.
    pub cols: usize,
    /// Elements from one row to the next.
    pub stride: usize,
}

impl Matrix {
    /// Numbers of the elements, row by row.
    fn elements(self) -> impl Iterator<Item = usize> {
        (0..self.rows).flat_map(move |i| (0..self.cols).map(move |j| self.start + i * self.stride + j))
    }
}

fn element(array: &[u8], number: usize, size: usize) -> &[u8] {
    &array[number * size..(number + 1) * size]
}

/// `all_to_all_nd` of `[rows, cols]` matrices whose elements have `size` bytes. With `scatter_dim` 1 the output of rank
/// r is `[W, rows, cols/W]`, with 0 it is `[rows/W, W, cols]`.
pub fn all_to_all_nd(
    inputs: &[Vec<u8>],
    (rows, cols): (usize, usize),
    size: usize,
    scatter_dim: usize,
) -> Vec<Vec<u8>> {
    let w = inputs.len();
    let mut outs = vec![Vec::new(); w];
    for (r, out) in outs.iter_mut().enumerate() {
        if scatter_dim == 1 {
            for input in inputs {
                for i in 0..rows {
                    for j in 0..cols / w {
                        out.extend_from_slice(element(input, i * cols + r * (cols / w) + j, size));
                    }
                }
            }
        } else {
            for i in 0..rows / w {
                for input in inputs {
                    for j in 0..cols {
                        out.extend_from_slice(element(input, (r * (rows / w) + i) * cols + j, size));
                    }
                }
            }
        }
    }
    outs
}

/// `reduce_scatter_offset`: block b of the sum has rows (`dim` 0) or columns (`dim` 1) `ends[b-1]…ends[b]` and goes to
/// rank `owners[b]`. Returns each rank's blocks, each dense.
pub fn reduce_scatter_offset(
    dtype: DType,
    inputs: &[Vec<u8>],
    matrix: Matrix,
    dim: usize,
    (ends, owners): (&[usize], &[usize]),
) -> Vec<Vec<Vec<u8>>> {
    let all = sum(dtype, inputs);
    let mut outs = vec![Vec::new(); inputs.len()];
    let mut begin = 0;
    for (end, owner) in ends.iter().zip(owners) {
        let block = if dim == 0 {
            Matrix { start: matrix.start + begin * matrix.stride, rows: end - begin, ..matrix }
        } else {
            Matrix { start: matrix.start + begin, cols: end - begin, ..matrix }
        };
        let bytes = block.elements().flat_map(|n| element(&all, n, dtype.size()).to_vec()).collect();
        outs[*owner].push(bytes);
        begin = *end;
    }
    outs
}

/// `tile_reduce`: the sum of the tile `from` of all inputs to the tile `to` of the root's output.
pub fn tile_reduce(dtype: DType, inputs: &[Vec<u8>], from: Matrix, out: &mut [u8], to: Matrix) {
    assert_eq!((from.rows, from.cols), (to.rows, to.cols), "tiles should have one size");
    let (all, size) = (sum(dtype, inputs), dtype.size());
    for (there, here) in to.elements().zip(from.elements()) {
        out[there * size..(there + 1) * size].copy_from_slice(element(&all, here, size));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ints(values: impl IntoIterator<Item = i32>) -> Vec<u8> {
        values.into_iter().flat_map(i32::to_le_bytes).collect()
    }

    #[test]
    fn blocks_of_columns_and_rows() {
        // Two ranks with 2 × 4 bytes: rank 0 has 0 1 2 3 / 4 5 6 7, rank 1 ten more.
        let inputs = [(0..8).collect::<Vec<u8>>(), (10..18).collect()];
        let columns = all_to_all_nd(&inputs, (2, 4), 1, 1);
        assert_eq!(columns, [vec![0, 1, 4, 5, 10, 11, 14, 15], vec![2, 3, 6, 7, 12, 13, 16, 17]]);
        let rows = all_to_all_nd(&inputs, (2, 4), 1, 0);
        assert_eq!(rows, [vec![0, 1, 2, 3, 10, 11, 12, 13], vec![4, 5, 6, 7, 14, 15, 16, 17]]);
        // Four rows of one two-byte element.
        let rows = all_to_all_nd(&inputs, (4, 1), 2, 0);
        assert_eq!(rows, [vec![0, 1, 10, 11, 2, 3, 12, 13], vec![4, 5, 14, 15, 6, 7, 16, 17]]);
    }

    #[test]
    fn blocks_go_to_their_owners() {
        // 3 rows of 2, 3 apart; the third column is nobody's.
        let inputs = [ints(0..9), ints((0..9).map(|i| 100 * i))];
        let m = Matrix { start: 0, rows: 3, cols: 2, stride: 3 };
        let rows = reduce_scatter_offset(DType::I32, &inputs, m, 0, (&[1, 2], &[1, 0]));
        assert_eq!(rows, [vec![ints([303, 404])], vec![ints([0, 101])]]);
        let columns = reduce_scatter_offset(DType::I32, &inputs, m, 1, (&[1, 1, 2, 2], &[0, 1, 1, 0]));
        let (first, second) = (ints([0, 303, 606]), ints([101, 404, 707]));
        assert_eq!(columns, [vec![first, vec![]], vec![vec![], second]]);
    }

    #[test]
    fn a_tile_of_a_matrix() {
        let inputs = [ints(0..12), ints((0..12).map(|i| 1000 * i))];
        let mut out = ints([-1; 9]);
        let from = Matrix { start: 5, rows: 2, cols: 2, stride: 4 };
        let to = Matrix { start: 1, rows: 2, cols: 2, stride: 3 };
        tile_reduce(DType::I32, &inputs, from, &mut out, to);
        assert_eq!(out, ints([-1, 5005, 6006, -1, 9009, 10010, -1, -1, -1]));
    }
}
