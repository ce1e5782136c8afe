//! The Kronecker graphs of Graph500 (R-MAT).

use std::ops::Range;

use halfgnn_contract::rng;

use super::super::error::{check_edges, check_room, check_vertices};
use super::super::sort::EdgeSource;
use super::super::{Csr, Graph, GraphError, Symmetry, parallel};
use super::{draw, out_of_range, shuffled, stream};

/// A recursive-matrix graph (Chakrabarti, Zhan, Faloutsos: "R-MAT", SDM 2004): each edge picks a quadrant of
/// the adjacency matrix again and again until one entry is left.
///
/// With [`Rmat::graph500`] it is the generator of the Graph500 specification, §3, without its random weights:
/// probabilities .57 .19 .19 .05 without noise, 16 edges a vertex, vertices renamed at random; duplicates and
/// self-loops stay. Kron-21 of the HalfGNN paper is `graph500(21)`: 2,097,152 vertices, 67,108,864 edges.
///
/// ```
/// # use halfgnn_graph::generate::Rmat;
/// let graph = Rmat::graph500(8).generate(1)?;
/// assert_eq!((graph.vertices(), graph.edges()), (256, 2 * 16 * 256));
/// # Ok::<(), halfgnn_graph::GraphError>(())
/// ```
#[derive(Debug, Clone, PartialEq)]
pub struct Rmat {
    /// The number of vertices, at least 1. Where it is no power of two, ids wrap around.
    pub vertices: u64,
    /// The number of sampled edges.
    pub edges: u64,
    /// The probability of each quadrant: upper left, upper right, lower left, lower right. They add up to 1.
    pub quadrants: [f64; 4],
    /// Whether each sampled edge stands in both directions, and so counts twice.
    pub undirected: bool,
    /// Whether vertices are renamed at random; otherwise the low ids have the high degrees.
    pub renamed: bool,
}

impl Rmat {
    /// Graph500's parameters for 2^`scale` vertices.
    pub fn graph500(scale: u32) -> Self {
        // Scales past 32 are refused by `generate`; saturating keeps them too large rather than wrapped.
        let vertices = 1_u64.checked_shl(scale).unwrap_or(u64::MAX);
        Self {
            vertices,
            edges: vertices.saturating_mul(16),
            quadrants: [0.57, 0.19, 0.19, 0.05],
            undirected: true,
            renamed: true,
        }
    }

    /// The graph of `seed`.
    ///
    /// # Errors
    /// [`GraphError::Parameter`], [`GraphError::TooManyVertices`] and [`GraphError::TooManyEdges`].
    pub fn generate(&self, seed: u64) -> Result<Graph, GraphError> {
        let symmetry = if self.undirected {
            Symmetry::Known(true)
        } else {
            Symmetry::Unknown
        };
        Ok(Graph::with_symmetry(
            Csr::from_source(self.vertices as usize, &self.source(seed)?)?,
            symmetry,
        ))
    }

    /// Of the edges that are sampled for [`generate`](Self::generate) those of a range of numbers below
    /// [`edges`](Self::edges), each as (row, column) and once, in the order of their numbers: what one of several takes
    /// who make a graph together.
    ///
    /// # Errors
    /// Those of [`generate`](Self::generate), and [`GraphError::OutOfMemory`].
    pub fn drawn(&self, seed: u64, numbers: Range<u64>) -> Result<Vec<[u32; 2]>, GraphError> {
        /// Edges that a thread draws at a time.
        const PIECE: usize = 1 << 14;
        let source = self.source(seed)?;
        let numbers = numbers.start..numbers.end.min(self.edges);
        let count = numbers.end.saturating_sub(numbers.start);
        check_room("edges that are drawn", 8 * count)?;
        let mut edges = vec![[0; 2]; count as usize];
        let pieces = parallel::chunks_mut(&mut edges, PIECE);
        parallel::for_each(pieces, |piece, edges| {
            let first = numbers.start + (piece * PIECE) as u64;
            for (number, edge) in (first..).zip(edges) {
                *edge = source.edge(number).into();
            }
        });
        Ok(edges)
    }

    fn source(&self, seed: u64) -> Result<Source<'_>, GraphError> {
        let [a, b, c, d] = self.quadrants;
        if self.vertices == 0 {
            return out_of_range("vertices", 0, "at least 1");
        }
        let in_unit = self.quadrants.iter().all(|p| (0.0..=1.0).contains(p));
        if !in_unit || (a + b + c + d - 1.0).abs() > 1e-6 {
            let valid = "four probabilities that add up to 1";
            return out_of_range("quadrants", format!("{:?}", self.quadrants), valid);
        }
        check_vertices(self.vertices)?;
        check_edges(
            self.edges
                .saturating_mul(if self.undirected { 2 } else { 1 }),
        )?;
        let threshold = |p: f64| {
            if p.is_nan() {
                0
            } else {
                (p * 4_294_967_296.0) as u64
            }
        };
        Ok(Source {
            spec: self,
            key: rng::key(seed, stream::EDGES),
            levels: u64::BITS - (self.vertices - 1).leading_zeros(),
            upper: threshold(a + b),
            left: [threshold(a / (a + b)), threshold(c / (c + d))],
            names: self.names(seed),
        })
    }
}

impl Rmat {
    /// What vertices are renamed to, by the id that the recursion gave them.
    pub fn names(&self, seed: u64) -> Option<Vec<u32>> {
        let key = rng::key(seed, stream::NAMES);
        self.renamed.then(|| shuffled(self.vertices as usize, key))
    }
}

struct Source<'a> {
    spec: &'a Rmat,
    key: [u32; 2],
    levels: u32,
    /// Below it a random word means the upper half.
    upper: u64,
    /// Below it a random word means the left half, given the upper and given the lower.
    left: [u64; 2],
    names: Option<Vec<u32>>,
}

impl Source<'_> {
    fn edge(&self, edge: u64) -> (u32, u32) {
        let (mut row, mut col) = (0_u64, 0_u64);
        let mut words = [0; 4];
        for level in 0..self.levels {
            // Two words a level, four a draw.
            let half = (level % 2 * 2) as usize;
            if half == 0 {
                words = draw(self.key, edge, level / 2);
            }
            let lower = u64::from(words[half]) >= self.upper;
            let right = u64::from(words[half + 1]) >= self.left[usize::from(lower)];
            row = row << 1 | u64::from(lower);
            col = col << 1 | u64::from(right);
        }
        let name = |id: u64| {
            let id = id % self.spec.vertices;
            self.names
                .as_ref()
                .map_or(id as u32, |names| names[id as usize])
        };
        (name(row), name(col))
    }
}

impl EdgeSource for Source<'_> {
    fn items(&self) -> u64 {
        self.spec.edges
    }

    fn emit(&self, items: Range<u64>, mut sink: impl FnMut(u32, u32)) {
        for edge in items {
            let (row, col) = self.edge(edge);
            sink(row, col);
            if self.spec.undirected {
                sink(col, row);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::{fingerprint, testing::same_on_any_threads};
    use super::*;

    #[test]
    fn graph500_has_its_size_its_symmetry_and_its_hubs() {
        let graph = same_on_any_threads(|| Rmat::graph500(12).generate(7).unwrap());
        assert_eq!((graph.vertices(), graph.edges()), (4096, 2 * 16 * 4096));
        assert!(Graph::new(graph.csr().clone()).unwrap().is_symmetric());
        let stats = graph.degree_stats();
        assert!(
            stats.max() > 30 * 32 && stats.quantile(0.5) < 16,
            "max {}, median {}",
            stats.max(),
            stats.quantile(0.5)
        );
        assert_ne!(graph, Rmat::graph500(12).generate(8).unwrap());
    }

    /// A change of this number is a change of every figure that was measured on a generated graph.
    #[test]
    fn a_seed_means_the_same_graph_for_ever() {
        assert_eq!(
            fingerprint(&Rmat::graph500(8).generate(1).unwrap()),
            FINGERPRINT
        );
    }
    const FINGERPRINT: u64 = 17_346_731_923_602_575_580;

    #[test]
    fn edges_of_ranges_are_those_of_the_graph() {
        for (renamed, undirected) in [(true, true), (false, false)] {
            let spec = Rmat {
                vertices: 700,
                edges: 40_000,
                renamed,
                undirected,
                ..Rmat::graph500(0)
            };
            // The last range ends behind the last edge.
            let ranges = [0..1, 1..1, 1..20_000, 20_000..50_000];
            let drawn: Vec<_> = ranges
                .into_iter()
                .flat_map(|numbers| spec.drawn(5, numbers).unwrap())
                .collect();
            assert_eq!(drawn.len(), 40_000);
            let mut edges = drawn.clone();
            if undirected {
                edges.extend(drawn.iter().map(|&[row, column]| [column, row]));
            }
            let [rows, columns] = [0, 1].map(|of| edges.iter().map(|edge| edge[of]).collect());
            let (rows, columns): (Vec<u32>, Vec<u32>) = (rows, columns);
            let graph = Graph::from_edges(700, &rows, &columns).unwrap();
            assert!(graph == spec.generate(5).unwrap());
        }
    }

    #[test]
    fn quadrants_get_their_share() {
        let spec = Rmat {
            vertices: 2,
            edges: 100_000,
            undirected: false,
            renamed: false,
            ..Rmat::graph500(1)
        };
        let graph = spec.generate(3).unwrap();
        let count = |row, col| {
            graph.csr().row(row).iter().filter(|&&c| c == col).count() as f64 / 100_000.0
        };
        for (found, wanted) in [count(0, 0), count(0, 1), count(1, 0), count(1, 1)]
            .into_iter()
            .zip(spec.quadrants)
        {
            assert!(
                (found - wanted).abs() < 0.006,
                "{found} where {wanted} is wanted"
            );
        }
    }

    #[test]
    fn any_number_of_vertices_will_do() {
        for vertices in [1, 3, 100] {
            let graph = Rmat {
                vertices,
                edges: 50,
                ..Rmat::graph500(0)
            }
            .generate(1)
            .unwrap();
            assert_eq!((graph.vertices() as u64, graph.edges()), (vertices, 100));
        }
    }

    #[test]
    fn what_cannot_be_made_is_refused() {
        let refused = |spec: Rmat| spec.generate(0).unwrap_err().to_string();
        assert!(refused(Rmat::graph500(28)).starts_with("8589934592 edges are more than"));
        assert!(refused(Rmat::graph500(64)).contains("vertices are more than"));
        assert_eq!(
            refused(Rmat {
                vertices: 0,
                ..Rmat::graph500(1)
            }),
            "vertices = 0 is out of range: at least 1"
        );
        let quadrants = [0.5, 0.5, 0.5, f64::NAN];
        assert!(
            refused(Rmat {
                quadrants,
                ..Rmat::graph500(1)
            })
            .contains("four probabilities")
        );
    }
}
