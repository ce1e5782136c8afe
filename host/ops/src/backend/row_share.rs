//! Some consecutive rows of a graph.

use std::ops::Range;

/// One of the given number of equal shares of the rows of a graph, that an operator may be asked for alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RowShare {
    number: usize,
    shares: usize,
}

impl RowShare {
    /// As many shares as there may be.
    pub const MOST: usize = 16;

    /// All rows.
    pub const ALL: Self = Self {
        number: 0,
        shares: 1,
    };

    /// Each of at least a number of shares, of [`RowShare::MOST`] at most: of 1, 2, 4, 8 or 16.
    pub fn each(at_least: usize) -> impl Iterator<Item = Self> {
        let shares = at_least.clamp(1, Self::MOST).next_power_of_two();
        (0..shares).map(move |number| Self { number, shares })
    }

    /// Which rows these are, of all rows.
    pub fn rows(self, rows: usize) -> Range<usize> {
        let [first, end] = self.cuts();
        Self::cut(rows, first)..Self::cut(rows, end)
    }

    /// Between which of the cuts of [`RowShare::MOST`] shares they lie.
    pub(crate) fn cuts(self) -> [usize; 2] {
        let each = Self::MOST / self.shares;
        [self.number * each, (self.number + 1) * each]
    }

    /// The rows before a cut.
    pub(crate) fn cut(rows: usize, cut: usize) -> usize {
        (rows as u128 * cut as u128 / Self::MOST as u128) as usize
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_are_all_rows_one_behind_the_other() {
        assert_eq!(RowShare::ALL.rows(7), 0..7);
        for (at_least, shares) in [(0, 1), (1, 1), (2, 2), (3, 4), (9, 16), (99, 16)] {
            for rows in [0, 1, 15, 16, 17, 1000, usize::MAX] {
                let all: Vec<_> = RowShare::each(at_least).map(|it| it.rows(rows)).collect();
                assert_eq!(all.len(), shares);
                let mut end = 0;
                for share in &all {
                    assert_eq!(share.start, end);
                    end = share.end;
                }
                assert_eq!(end, rows);
                let most = all.iter().map(Range::len).max();
                assert!(most.is_some_and(|most| most <= rows.div_ceil(shares)));
            }
        }
    }
}
