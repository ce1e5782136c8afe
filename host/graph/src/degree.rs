//! How the edges are spread over the vertices.

/// Statistics of a list of degrees.
///
/// ```
/// # use halfgnn_graph::DegreeStats;
/// let stats = DegreeStats::of(vec![1, 5, 0, 2]);
/// assert_eq!((stats.min(), stats.max(), stats.mean()), (0, 5, 2.0));
/// assert_eq!((stats.quantile(0.5), stats.quantile(1.0)), (1, 5));
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DegreeStats {
    sorted: Vec<u32>,
}

impl DegreeStats {
    /// The statistics of `degrees`, one entry a vertex.
    pub fn of(mut degrees: Vec<u32>) -> Self {
        degrees.sort_unstable();
        Self { sorted: degrees }
    }

    /// The number of vertices.
    pub fn vertices(&self) -> usize {
        self.sorted.len()
    }

    /// The smallest degree; 0 where there are no vertices.
    pub fn min(&self) -> u32 {
        self.sorted.first().copied().unwrap_or(0)
    }

    /// The largest degree; 0 where there are no vertices.
    pub fn max(&self) -> u32 {
        self.sorted.last().copied().unwrap_or(0)
    }

    /// The mean degree; 0 where there are no vertices.
    pub fn mean(&self) -> f64 {
        let sum: u64 = self.sorted.iter().copied().map(u64::from).sum();
        if self.sorted.is_empty() {
            0.0
        } else {
            sum as f64 / self.sorted.len() as f64
        }
    }

    /// The smallest degree that at least the fraction `q` of the vertices do not exceed (the nearest-rank
    /// quantile); `q` is taken into 0 to 1. 0 where there are no vertices.
    pub fn quantile(&self, q: f64) -> u32 {
        let rank = (q.clamp(0.0, 1.0) * self.sorted.len() as f64).ceil() as usize;
        self.sorted
            .get(rank.saturating_sub(1))
            .copied()
            .unwrap_or(0)
    }

    /// How many vertices have a degree of at least `degree`.
    pub fn at_least(&self, degree: u32) -> usize {
        self.sorted.len() - self.sorted.partition_point(|&d| d < degree)
    }

    /// The number of vertices of degree 0, of degree 1, of 2 to 3, of 4 to 7, and so on by powers of two, up to
    /// the largest degree.
    pub fn histogram(&self) -> Vec<usize> {
        let bins = if self.sorted.is_empty() {
            0
        } else {
            bin(self.max()) + 1
        };
        let mut counts = vec![0; bins];
        self.sorted
            .iter()
            .for_each(|&degree| counts[bin(degree)] += 1);
        counts
    }
}

/// The number of bits of a degree: 0, 1, 2, 2, 3, 3, 3, 3, …
fn bin(degree: u32) -> usize {
    (u32::BITS - degree.leading_zeros()) as usize
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_vertices_have_no_degrees() {
        let stats = DegreeStats::of(vec![]);
        assert_eq!(
            (stats.min(), stats.max(), stats.mean(), stats.quantile(0.5)),
            (0, 0, 0.0, 0)
        );
        assert_eq!((stats.at_least(0), stats.histogram()), (0, vec![]));
    }

    #[test]
    fn quantiles_are_nearest_rank() {
        let stats = DegreeStats::of((1..=100).rev().collect());
        assert_eq!(
            [0.0, 0.01, 0.5, 0.501, 0.99, 1.0, 7.0].map(|q| stats.quantile(q)),
            [1, 1, 50, 51, 99, 100, 100]
        );
        assert_eq!(stats.quantile(f64::NAN), 1);
        assert_eq!(
            (stats.at_least(1), stats.at_least(91), stats.at_least(101)),
            (100, 10, 0)
        );
    }

    #[test]
    fn histogram_bins_are_powers_of_two() {
        assert_eq!(
            DegreeStats::of(vec![0, 1, 1, 2, 3, 4, 7, 8]).histogram(),
            [1, 2, 2, 2, 1]
        );
        assert_eq!(DegreeStats::of(vec![u32::MAX]).histogram().len(), 33);
    }
}
