//! Which rows of other ranks a rank receives, and what that costs.

/// The time to read or write a row in GPU memory, over the time to send it to another GPU. The bandwidths are 4.7 and
/// 0.3 TB/s, measured on H200s with NVLink.
const MEMORY_OVER_WIRE: f64 = 0.3 / 4.7;

/// Which rows of other ranks a rank receives before a layer that aggregates.
///
/// The halo has fewer rows, which are packed before they are sent. All rows of a rank are sent as they lie in memory.
/// In the backward pass the gradients of as many rows return. With rows that no layer reads, some products and sums
/// round in another order. Results then differ in the last digits, as they do between numbers of ranks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Gather {
    /// The cheaper of the two by [the model](Gather::cheaper), whatever the transport.
    #[default]
    Auto,
    /// The rows of its halo.
    Halo,
    /// All rows.
    Whole,
}

impl Gather {
    /// The choice that takes less time for a forward and a backward pass, given the numbers of ranks and of vertices.
    /// `halo_rows` counts the rows of all ranks' halos: a vertex once for each other rank that reads it.
    ///
    /// In the forward pass the rows of a halo are read and written as they are packed. In the backward pass the
    /// received gradients are read to be summed. Rows cross the interconnect in both passes.
    pub fn cheaper(halo_rows: u64, (ranks, vertices): (usize, usize)) -> Self {
        let others = ranks.saturating_sub(1) as u64 * vertices as u64;
        let halo = halo_rows as f64 * (2.0 + 3.0 * MEMORY_OVER_WIRE);
        let whole = others as f64 * (2.0 + MEMORY_OVER_WIRE);
        match whole < halo {
            true => Self::Whole,
            false => Self::Halo,
        }
    }

    /// Its name on the command line.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Auto => "auto",
            Self::Halo => "halo",
            Self::Whole => "whole",
        }
    }

    /// Whether all rows are sent. [`Gather::Auto`] chooses by [`Gather::cheaper`].
    pub(crate) fn is_whole(self, halo_rows: u64, of: (usize, usize)) -> bool {
        let chosen = match self {
            Self::Auto => Self::cheaper(halo_rows, of),
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
        // As for `reddit-like` and for `products-like` on four ranks.
        assert_eq!(Gather::cheaper(4 * 745, (4, 1000)), Gather::Whole);
        assert_eq!(Gather::cheaper(4 * 651, (4, 1000)), Gather::Halo);
        // Near the break-even point.
        assert_eq!(Gather::cheaper(95, (2, 100)), Gather::Whole);
        assert_eq!(Gather::cheaper(94, (2, 100)), Gather::Halo);
        assert_eq!(Gather::cheaper(0, (1, 100)), Gather::Halo);
        assert!(Gather::Whole.is_whole(0, (2, 1)) && !Gather::Halo.is_whole(1, (2, 1)));
        assert!(Gather::Auto.is_whole(1, (2, 1)) && !Gather::Auto.is_whole(0, (2, 1)));
    }
}
