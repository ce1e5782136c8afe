//! Where plain sums in half precision would go wrong on a graph.

use std::collections::HashMap;

use halfgnn_graph::parallel;
use rayon::prelude::*;

use super::Features;
use halfgnn_graph::Graph;

/// Additions that [`HalfRange::of`] makes at most; a few seconds of two cores.
const BUDGET: u64 = 1 << 33;

/// The range of plain sums over neighbours in half precision: all terms are summed first and divided by the degree
/// afterwards, as frameworks do it. HalfGNN's discretized reduction does not overflow (paper, §3.1.1 and §4.3.1).
///
/// ```
/// use halfgnn_data::{Features, HalfRange};
/// use halfgnn_graph::Graph;
///
/// // Vertex 0 has 3,000 in-neighbours, whose one feature is 30.
/// let others: Vec<u32> = (1..=3000).collect();
/// let graph = Graph::from_edges(3001, &[0; 3000], &others)?;
/// let features = Features::dense(1, vec![30.0; 3001])?;
/// let range = HalfRange::of(&graph, Some(&features));
/// assert_eq!((range.saturating_rows, range.overflowing_rows, range.largest_sum), (1, 1, 90_000.0));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq)]
#[non_exhaustive]
pub struct HalfRange {
    /// The largest in-degree.
    pub largest_degree: u32,
    /// Rows of more than [`HalfRange::LARGEST_COUNT`] edges, whose sum of ones no longer grows in half.
    pub saturating_rows: usize,
    /// The largest feature without its sign; 0 without features.
    pub largest_feature: f32,
    /// Features from [`HalfRange::LEAST_INFINITE`] on, which are infinite in half before anything is summed up.
    pub infinite_features: usize,
    /// Rows whose degree times the largest feature reaches [`HalfRange::LEAST_INFINITE`]: no other row's sum can.
    pub rows_at_risk: usize,
    /// Rows at risk that were summed up, those of the largest degree first.
    pub checked_rows: usize,
    /// Of those, the rows whose sum reaches [`HalfRange::LEAST_INFINITE`] in one feature at least.
    pub overflowing_rows: usize,
    /// The largest sum of those without its sign.
    pub largest_sum: f32,
}

impl HalfRange {
    /// The largest finite half.
    pub const LARGEST: f32 = 65_504.0;

    /// The smallest number that rounds to infinity in half: half way from the largest half to what would be the next.
    pub const LEAST_INFINITE: f32 = 65_520.0;

    /// The largest number up to which half holds every whole number: adding 1 to it gives it again.
    pub const LARGEST_COUNT: u32 = 2048;

    /// Looks at the degrees, and sums up the features of the rows whose sums may pass what half holds.
    ///
    /// # Panics
    /// If there are fewer rows of features than vertices.
    pub fn of(graph: &Graph, features: Option<&Features>) -> Self {
        let degrees = graph.in_degrees();
        let largest_degree = degrees.iter().copied().max().unwrap_or(0);
        let mut range = Self {
            largest_degree,
            saturating_rows: degrees
                .iter()
                .filter(|&&degree| degree > Self::LARGEST_COUNT)
                .count(),
            largest_feature: 0.0,
            infinite_features: 0,
            rows_at_risk: 0,
            checked_rows: 0,
            overflowing_rows: 0,
            largest_sum: 0.0,
        };
        let Some(features) = features else {
            return range;
        };
        let stored = features.stored();
        range.largest_feature = match features {
            Features::Bits(bits) => bits.largest_magnitude(),
            _ => largest_magnitude(stored),
        };
        range.infinite_features =
            InfiniteFeatures::of(features).map_or(0, |infinite| infinite.count);

        let largest = f64::from(range.largest_feature);
        let mut at_risk: Vec<u32> = (0..)
            .zip(&degrees)
            .filter(|&(_, &degree)| f64::from(degree) * largest >= f64::from(Self::LEAST_INFINITE))
            .map(|(vertex, _)| vertex)
            .collect();
        range.rows_at_risk = at_risk.len();
        at_risk.par_sort_unstable_by_key(|&vertex| {
            (std::cmp::Reverse(degrees[vertex as usize]), vertex)
        });
        let numbers_a_row = match features {
            Features::Bits(bits) => bits.feature_len() as u64 + 1,
            _ => stored.len() as u64 / features.vertices().max(1) as u64 + 1,
        };
        let mut left = BUDGET;
        let affordable = at_risk.iter().take_while(|&&vertex| {
            let cost = u64::from(degrees[vertex as usize]) * numbers_a_row;
            left.checked_sub(cost).map(|rest| left = rest).is_some()
        });
        range.checked_rows = affordable.count();
        let sums = parallel::map(&at_risk[..range.checked_rows], |_, &vertex| {
            largest_sum(graph, features, vertex as usize)
        });
        range.overflowing_rows = sums
            .iter()
            .filter(|&&sum| sum >= Self::LEAST_INFINITE)
            .count();
        range.largest_sum = sums.into_iter().fold(0.0, f32::max);
        range
    }
}

/// Numbers that are looked at together.
const CHUNK: usize = 1 << 14;

/// The largest of the numbers without their signs; 0 of none.
fn largest_magnitude(numbers: &[f32]) -> f32 {
    let of_chunk = |_, chunk: &[f32]| chunk.iter().fold(0.0, |most: f32, x| most.max(x.abs()));
    let chunks = parallel::map(parallel::chunks(numbers, CHUNK), of_chunk);
    chunks.into_iter().fold(0.0, f32::max)
}

/// Features that half cannot hold: they are infinite there before anything is computed.
#[derive(Debug, Clone, Copy, PartialEq)]
#[non_exhaustive]
pub struct InfiniteFeatures {
    /// How many numbers.
    pub count: usize,
    /// The largest of them, without its sign.
    pub largest: f32,
    /// The column where that stands, from 0.
    pub column: usize,
}

impl InfiniteFeatures {
    /// Those of a dataset; `None` where half holds every number, or where features stay in their files. For the latter
    /// use [`Features::column_magnitudes`].
    pub fn of(features: &Features) -> Option<Self> {
        let stored = features.stored();
        let is_infinite = |value: &&f32| value.abs() >= HalfRange::LEAST_INFINITE;
        let count = parallel::map(parallel::chunks(stored, CHUNK), |_, chunk| {
            chunk.iter().filter(is_infinite).count()
        });
        let count = count.into_iter().sum();
        if count == 0 {
            return None;
        }
        let largest = largest_magnitude(stored);
        let place = parallel::position_first(stored, |value| value.abs() == largest)?;
        let column = match features {
            Features::Dense(_) => place % features.feature_len(),
            Features::Sparse(sparse) => sparse.indices()[place] as usize,
            Features::Bits(_) | Features::Stored(_) => return None,
        };
        Some(Self {
            count,
            largest,
            column,
        })
    }
}

/// The largest feature of the sum over a row, without its sign.
fn largest_sum(graph: &Graph, features: &Features, vertex: usize) -> f32 {
    let neighbours = graph.csr().row(vertex).iter();
    let largest = |sum: f32, next: f32| sum.max(next.abs());
    match features {
        Features::Dense(_) | Features::Bits(_) => {
            let mut sums = vec![0.0_f32; features.feature_len()];
            for &neighbour in neighbours {
                features.for_each(neighbour as usize, |feature, value| sums[feature] += value);
            }
            sums.into_iter().fold(0.0, largest)
        }
        // As many sums as there are features that occur, however long the rows are said to be.
        Features::Sparse(_) => {
            let mut sums = HashMap::<usize, f32>::new();
            for &neighbour in neighbours {
                features.for_each(neighbour as usize, |feature, value| {
                    *sums.entry(feature).or_default() += value;
                });
            }
            sums.into_values().fold(0.0, largest)
        }
        // None are in memory.
        Features::Stored(_) => 0.0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::BitFeatures;
    use halfgnn_graph::generate::StarOfHubs;

    #[test]
    fn hubs_saturate_at_2048_and_overflow_at_65504() {
        for (leaves, saturating) in [(2046, 0), (2047, 0), (2048, 3)] {
            let graph = StarOfHubs { hubs: 3, leaves }.generate().unwrap();
            let range = HalfRange::of(&graph, None);
            assert_eq!(
                (range.largest_degree as u64, range.saturating_rows),
                (leaves + 1, saturating)
            );
            assert_eq!(
                (range.rows_at_risk, range.checked_rows, range.largest_sum),
                (0, 0, 0.0)
            );
        }
        let graph = StarOfHubs {
            hubs: 2,
            leaves: 999,
        }
        .generate()
        .unwrap();
        let vertices = graph.vertices();
        // The second feature averages out, the first does not.
        let value = |at: usize| match at % 4 {
            0 | 2 => -65.504,
            1 => 70.0,
            _ => -70.0,
        };
        let features = Features::dense(2, (0..2 * vertices).map(value).collect()).unwrap();
        let range = HalfRange::of(&graph, Some(&features));
        assert_eq!((range.largest_feature, range.infinite_features), (70.0, 0));
        assert_eq!((range.rows_at_risk, range.checked_rows), (2, 2));
        assert!(
            (range.largest_sum - 65_504.0).abs() < 5.0,
            "{}",
            range.largest_sum
        );

        // What rounds to the largest half is not infinite.
        let edge = Features::dense(1, vec![65_504.0, 65_519.99, -65_519.99]).unwrap();
        assert_eq!(InfiniteFeatures::of(&edge), None);
        let past = Features::dense(1, vec![65_504.0, -65_520.0, 65_519.0]).unwrap();
        assert_eq!(
            InfiniteFeatures::of(&past).map(|infinite| infinite.count),
            Some(1)
        );

        let huge = Features::sparse(
            3,
            vec![0; vertices].into_iter().chain([1]).collect(),
            vec![2],
            vec![-1e5],
        )
        .unwrap();
        let infinite = InfiniteFeatures::of(&huge).unwrap();
        assert_eq!(
            (infinite.count, infinite.largest, infinite.column),
            (1, 1e5, 2)
        );
        assert_eq!(InfiniteFeatures::of(&features), None);
        let range = HalfRange::of(&graph, Some(&huge));
        assert_eq!((range.infinite_features, range.largest_feature), (1, 1e5));
        assert_eq!((range.rows_at_risk, range.overflowing_rows), (vertices, 1));
    }

    #[test]
    fn packed_features_have_the_range_of_their_numbers() {
        let hub = StarOfHubs {
            hubs: 1,
            leaves: 66_000,
        };
        let graph = hub.generate().unwrap();
        for are_signs in [false, true] {
            let mut bits = BitFeatures::unset(graph.vertices(), 9, are_signs).unwrap();
            for vertex in 0..graph.vertices() {
                bits.set_row(vertex, &[0b101, u8::from(vertex % 2 == 0)]);
            }
            let dense = Features::dense(9, bits.to_dense()).unwrap();
            let bits = Features::Bits(bits);
            let range = HalfRange::of(&graph, Some(&bits));
            assert_eq!(
                format!("{range:?}"),
                format!("{:?}", HalfRange::of(&graph, Some(&dense)))
            );
            assert_eq!((range.checked_rows, range.overflowing_rows), (1, 1));
            assert_eq!(InfiniteFeatures::of(&bits), None);
        }
    }
}
