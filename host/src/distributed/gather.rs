//! Which rows of others ranks are given, and what that costs.

/// What reading or writing a row in a card's memory takes, over what it takes from card to card: 4.7 TB/s and 0.3 were measured on H200s
/// that NVLink joins.
const MEMORY_OVER_WIRE: f64 = 0.3 / 4.7;

/// Which rows of others a rank is given before a layer that hears from them.
///
/// Those that it hears are fewer, and are packed one behind the other before they are sent; all rows of a rank lie as they are sent. Backward
/// the gradients of as many rows come back. Products and sums over rows that nobody heard are rounded in another order in places, so results differ in the last digits, as they do
/// between numbers of ranks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Gather {
    /// What takes less time by [the model](Gather::cheaper), whatever moves the rows.
    #[default]
    Auto,
    /// Those that it hears from: its halo.
    Halo,
    /// All.
    Whole,
}

impl Gather {
    /// Whichever takes less time forward and backward, where all ranks together hear from `heard` vertices of others, and there are so many ranks
    /// and vertices: a vertex is heard once by each other rank at most. Forward the rows of a halo are read and written as they are packed, backward what comes is
    /// read to be added up, and rows go from card to card both ways.
    pub fn cheaper(heard: u64, (ranks, vertices): (usize, usize)) -> Self {
        let others = ranks.saturating_sub(1) as u64 * vertices as u64;
        let halo = heard as f64 * (2.0 + 3.0 * MEMORY_OVER_WIRE);
        let whole = others as f64 * (2.0 + MEMORY_OVER_WIRE);
        match whole < halo {
            true => Self::Whole,
            false => Self::Halo,
        }
    }

    /// Its name, as it is typed.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Auto => "auto",
            Self::Halo => "halo",
            Self::Whole => "whole",
        }
    }

    /// Whether all rows are given, of what [`Gather::cheaper`] takes.
    pub(crate) fn is_whole(self, heard: u64, of: (usize, usize)) -> bool {
        let chosen = match self {
            Self::Auto => Self::cheaper(heard, of),
            given => given,
        };
        chosen == Self::Whole
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whole_gathers_are_chosen_where_ranks_hear_nearly_all() {
        // Of reddit-like on four, and of products-like.
        assert_eq!(Gather::cheaper(4 * 745, (4, 1000)), Gather::Whole);
        assert_eq!(Gather::cheaper(4 * 651, (4, 1000)), Gather::Halo);
        // About where they are as good.
        assert_eq!(Gather::cheaper(95, (2, 100)), Gather::Whole);
        assert_eq!(Gather::cheaper(94, (2, 100)), Gather::Halo);
        assert_eq!(Gather::cheaper(0, (1, 100)), Gather::Halo);
        assert!(Gather::Whole.is_whole(0, (2, 1)) && !Gather::Halo.is_whole(1, (2, 1)));
        assert!(Gather::Auto.is_whole(1, (2, 1)) && !Gather::Auto.is_whole(0, (2, 1)));
    }
}
