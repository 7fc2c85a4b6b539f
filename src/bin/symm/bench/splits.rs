//! Splits of the vdev benches: as even as they can be, the odd rows going to other experts from each rank.

/// Rows of one source in a receiver's output.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Piece {
    pub(crate) source: usize,
    /// First row in the source's input.
    pub(crate) from: usize,
    /// First row in the output.
    pub(crate) to: usize,
    pub(crate) rows: usize,
}

/// How `rows` rows of each of `pes` ranks go to `experts` experts a rank.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Splits {
    pes: usize,
    experts: usize,
    rows: usize,
    padded: bool,
}

impl Splits {
    /// `padded`: whether an expert without rows takes one in the output.
    pub(crate) fn new(pes: usize, experts: usize, rows: usize, padded: bool) -> Self {
        Splits { pes, experts, rows, padded }
    }

    pub(crate) fn experts(&self) -> usize {
        self.experts
    }

    /// Rows that a receiver gets at most beyond what it sends: one odd row of each (source, expert), one row of padding
    /// for each expert.
    pub(crate) fn rows_bound(pes: usize, experts: usize) -> usize {
        pes * experts + experts
    }

    /// `in_splits` of a rank, index `d·ne + e`.
    pub(crate) fn of(&self, rank: usize) -> Vec<i64> {
        let n = self.pes * self.experts;
        let one_more = |i: usize| usize::from((i + rank * self.experts) % n < self.rows % n);
        (0..n).map(|i| i64::try_from(self.rows / n + one_more(i)).unwrap_or(i64::MAX)).collect()
    }

    /// Where `receiver`'s rows come from and lie: by (expert, source), without alignment.
    pub(crate) fn received(&self, receiver: usize) -> Vec<Piece> {
        let all: Vec<Vec<i64>> = (0..self.pes).map(|rank| self.of(rank)).collect();
        // Where the next expert's rows begin in each source's input.
        let mut next: Vec<usize> =
            all.iter().map(|s| s[..receiver * self.experts].iter().sum::<i64>() as usize).collect();
        let mut pieces = Vec::new();
        let mut to = 0;
        for e in 0..self.experts {
            let (index, start) = (receiver * self.experts + e, to);
            for (source, splits) in all.iter().enumerate() {
                let rows = splits[index] as usize;
                pieces.push(Piece { source, from: next[source], to, rows });
                next[source] += rows;
                to += rows;
            }
            if to == start && self.padded {
                to += 1;
            }
        }
        pieces
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_row_is_sent_once_and_fits() {
        for (pes, experts) in [(1, 1), (2, 8), (3, 1), (4, 8)] {
            for rows in [0, 1, 7, 64, 1001] {
                let s = Splits::new(pes, experts, rows, experts > 1);
                let mut received = 0;
                for rank in 0..pes {
                    assert_eq!(s.of(rank).iter().sum::<i64>(), rows as i64);
                    let pieces = s.received(rank);
                    for (i, p) in pieces.iter().enumerate() {
                        let index = rank * experts + i / pes;
                        let before = s.of(p.source)[..index].iter().sum::<i64>() as usize;
                        assert_eq!(
                            (p.source, p.from),
                            (i % pes, before),
                            "{pes} {experts} {rows}: piece {i}"
                        );
                    }
                    let end = pieces.iter().map(|p| p.to + p.rows).max().unwrap_or(0);
                    assert!(end <= rows + Splits::rows_bound(pes, experts), "{pes} {experts} {rows}: {end}");
                    received += pieces.iter().map(|p| p.rows).sum::<usize>();
                }
                assert_eq!(received, pes * rows);
            }
        }
    }
}
