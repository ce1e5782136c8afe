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
    /// Whichever takes less time forward and backward, where all ranks together hear from `heard` vertices of others, each counted once for
    /// each rank, and there are `others`. Forward the rows of a halo are read and written as they are packed, backward what comes is
    /// read to be added up, and rows go from card to card both ways.
    pub fn cheaper(heard: u64, others: u64) -> Self {
        let halo = heard as f64 * (2.0 + 3.0 * MEMORY_OVER_WIRE);
        let whole = others as f64 * (2.0 + MEMORY_OVER_WIRE);
        match whole < halo {
            true => Self::Whole,
            false => Self::Halo,
        }
    }

    /// Whether all rows are given, where all ranks together hear from so many of [so many](Gather::cheaper).
    pub(crate) fn is_whole(self, heard: u64, others: u64) -> bool {
        let chosen = match self {
            Self::Auto => Self::cheaper(heard, others),
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
        assert_eq!(Gather::cheaper(745, 750), Gather::Whole);
        assert_eq!(Gather::cheaper(651, 750), Gather::Halo);
        // Where the halo is as good as all, and where it is a sixteenth less.
        assert_eq!(Gather::cheaper(95, 100), Gather::Whole);
        assert_eq!(Gather::cheaper(94, 100), Gather::Halo);
        assert_eq!(Gather::cheaper(0, 0), Gather::Halo);
        assert!(Gather::Whole.is_whole(0, 1) && !Gather::Halo.is_whole(1, 1));
        assert!(Gather::Auto.is_whole(1, 1) && !Gather::Auto.is_whole(0, 1));
    }
}
