//! Graphs from a seed: the same on every machine and for any number of threads.
//!
//! Edge `k` is a pure function of the seed and `k` (Philox, in [`halfgnn_contract::rng`]), in integers
//! throughout, so no mathematical library has a say in it. Edges are never stored unsorted.
//!
//! | type | shape | stands for |
//! |---|---|---|
//! | [`Rmat`] | power law | Graph500's Kronecker graphs, social and product graphs |
//! | [`BlockModel`] | communities of power-law vertices, and hubs | a labelled graph to train on |
//! | [`ErdosRenyi`] | even degrees | a baseline without structure |
//! | [`Grid`] | degree 4 at most | road networks |
//! | [`StarOfHubs`] | few huge rows, many of one edge | the worst for balance and for half's range |
//! | [`RowDegrees`] | any row lengths | tests at the boundaries of sub-warps, warps and CTAs |

mod block_model;
mod random;
mod regular;
mod rmat;

pub use block_model::BlockModel;
pub use random::{ErdosRenyi, RowDegrees};
pub use regular::{Grid, StarOfHubs};
pub use rmat::Rmat;

use halfgnn_contract::rng;

use super::Graph;
use super::error::GraphError;

/// Streams of random numbers, so that no two uses of one seed share any.
#[doc(hidden)] // for datasets as well
pub mod stream {
    /// The ends of edges.
    pub const EDGES: u32 = 0x6564_6765;
    /// The names of vertices.
    pub const NAMES: u32 = 0x6e61_6d65;
    /// Features of a labelled graph.
    pub const FEATURES: u32 = 0x6665_6174;
    /// What the classes have in common.
    pub const CLASSES: u32 = 0x636c_6173;
    /// Labels that are not the vertex's class.
    pub const LABELS: u32 = 0x6c61_6265;
    /// Which vertices are trained on.
    pub const SPLIT: u32 = 0x7370_6c69;
}

/// Block `block` of the four random words that belong to `item`.
#[doc(hidden)]
pub fn draw(key: [u32; 2], item: u64, block: u32) -> [u32; 4] {
    rng::philox_by(key, [item as u32, (item >> 32) as u32, block, 0], product)
}

/// The random words from `first` on of the stream of `key`: those of [`rng::uniform_u32`].
#[doc(hidden)]
pub fn draw_words(key: [u32; 2], first: u64, to: &mut [u32]) {
    let (mut block, mut words) = (first / 4, draw(key, first / 4, 0));
    for (index, to) in (first..).zip(to) {
        if index / 4 != block {
            block = index / 4;
            words = draw(key, block, 0);
        }
        *to = words[(index % 4) as usize];
    }
}

/// The low and the high word of a product. Unlike a closure it is inlined by a compiler that optimizes little: four
/// fifths of the time of an R-MAT graph were calls of one.
#[inline(always)]
fn product(a: u32, b: u32) -> [u32; 2] {
    let product = u64::from(a) * u64::from(b);
    [product as u32, (product >> 32) as u32]
}

/// A number below `bound` from two random words: the high half of a product, biased by less than 2⁻³² for
/// every bound that a vertex count can be.
#[doc(hidden)]
pub fn below(bound: u64, high: u32, low: u32) -> u64 {
    let word = u64::from(high) << 32 | u64::from(low);
    ((u128::from(word) * u128::from(bound)) >> 64) as u64
}

/// A random order of `0..count` (Fisher and Yates's shuffle).
#[doc(hidden)]
pub fn shuffled(count: usize, key: [u32; 2]) -> Vec<u32> {
    let mut order: Vec<u32> = (0..count as u32).collect();
    for last in (1..count).rev() {
        let [high, low, ..] = draw(key, last as u64, 0);
        order.swap(last, below(last as u64 + 1, high, low) as usize);
    }
    order
}

/// An error about a parameter.
fn out_of_range<T>(
    parameter: &'static str,
    value: impl ToString,
    valid: &'static str,
) -> Result<T, GraphError> {
    Err(GraphError::Parameter {
        parameter,
        value: value.to_string(),
        valid,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn below_reaches_both_ends_and_no_further() {
        for bound in [1, 2, 3, (1 << 31) - 1, 1 << 31, u32::MAX as u64] {
            assert_eq!(below(bound, 0, 0), 0);
            assert_eq!(below(bound, u32::MAX, u32::MAX), bound - 1);
        }
    }

    #[test]
    fn words_are_drawn_as_one_by_one() {
        let key = rng::key(3, stream::FEATURES);
        for first in [0, 1, 6, (1 << 34) - 2] {
            let mut words = [0; 9];
            draw_words(key, first, &mut words);
            let one_by_one = (first..).map(|index| rng::uniform_u32(key, index));
            assert!(words.into_iter().eq(one_by_one.take(9)), "{first}");
        }
    }

    #[test]
    fn shuffled_is_a_permutation_of_its_own_for_each_seed() {
        let order = shuffled(1000, rng::key(1, stream::NAMES));
        assert_ne!(order, shuffled(1000, rng::key(2, stream::NAMES)));
        let moved = order
            .iter()
            .enumerate()
            .filter(|&(at, &value)| at != value as usize)
            .count();
        assert!(moved > 980, "{moved} of 1000 moved");
        let mut sorted = order;
        sorted.sort();
        assert!(sorted.into_iter().eq(0..1000));
        assert!(shuffled(0, [0, 0]).is_empty());
    }
}

/// A hash of the edges that is the same on every machine (FNV-1a). For tests.
#[doc(hidden)]
pub fn fingerprint(graph: &Graph) -> u64 {
    let words = graph
        .offsets()
        .iter()
        .copied()
        .chain(graph.cols().iter().map(|&col| col.into()));
    words
        .flat_map(u64::to_le_bytes)
        .fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
            (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
        })
}

/// What every generator's tests ask of it.
#[cfg(test)]
pub(crate) mod testing {
    use super::super::Graph;

    /// The graph that `make` makes, on one thread and on three.
    pub(crate) fn same_on_any_threads(make: impl Fn() -> Graph + Send + Sync) -> Graph {
        let on = |threads| {
            let pool = rayon::ThreadPoolBuilder::new()
                .num_threads(threads)
                .build()
                .expect("a thread pool");
            pool.install(&make)
        };
        let graph = on(1);
        assert_eq!(graph, on(3));
        graph
    }
}
