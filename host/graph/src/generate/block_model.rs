//! A labelled graph with communities, a power law and hubs.

use std::ops::Range;

use halfgnn_contract::rng;

use super::super::error::{check_edges, check_vertices};
use super::super::sort::EdgeSource;
use super::super::{Csr, Graph, GraphError, Symmetry};
use super::{below, draw, out_of_range, shuffled, stream};

/// A degree-corrected stochastic block model (Karrer and Newman, Phys. Rev. E 83, 016107, 2011), and hubs.
///
/// Vertices fall evenly into classes. An edge's ends are sampled with weight ∝ rank^(-1/2) within a class, which
/// makes degrees follow a power law of exponent 3; it stays within one class with probability
/// `within`, and otherwise its other end is sampled from all classes. A hub is joined to `hub_degree` of the
/// other vertices without regard to class, so it says nothing about labels and its sum passes half's range.
/// The graph is undirected, without duplicates and self-loops.
#[derive(Debug, Clone, PartialEq)]
pub struct BlockModel {
    /// The number of vertices, hubs included.
    pub vertices: u64,
    /// The number of classes.
    pub classes: u32,
    /// The mean degree without the hubs' edges, before duplicates are dropped.
    pub mean_degree: f64,
    /// The probability that an edge stays within its class by intent; of the others, one in `classes` does by
    /// chance.
    pub within: f64,
    /// The number of hubs.
    pub hubs: u64,
    /// The degree of each hub.
    pub hub_degree: u64,
}

impl Default for BlockModel {
    /// 30,000 vertices in 8 classes, about a million edges, 16 hubs of degree 24,000: trained on two CPU cores
    /// within a minute, and too much for a plain sum in half.
    fn default() -> Self {
        Self {
            vertices: 30_000,
            classes: 8,
            mean_degree: 10.0,
            within: 0.7,
            hubs: 16,
            hub_degree: 24_000,
        }
    }
}

impl BlockModel {
    /// The graph of `seed`, and the class of each vertex.
    ///
    /// # Errors
    /// [`GraphError::Parameter`], [`GraphError::TooManyVertices`] and [`GraphError::TooManyEdges`].
    pub fn generate(&self, seed: u64) -> Result<(Graph, Vec<u32>), GraphError> {
        check_vertices(self.vertices)?;
        if self.classes == 0 {
            return out_of_range("classes", 0, "at least 1");
        }
        let Some(common) = self
            .vertices
            .checked_sub(self.hubs)
            .filter(|&common| common >= self.classes.into())
        else {
            return out_of_range(
                "vertices",
                self.vertices,
                "at least the hubs and one vertex a class",
            );
        };
        if self.hub_degree > common {
            return out_of_range(
                "hub_degree",
                self.hub_degree,
                "at most the vertices that are no hubs",
            );
        }
        if !(0.0..=1.0).contains(&self.within) {
            return out_of_range("within", self.within, "0 to 1");
        }
        if !(self.mean_degree >= 0.0 && self.mean_degree.is_finite()) {
            return out_of_range("mean_degree", self.mean_degree, "a number from 0");
        }
        let drawn = (self.mean_degree * common as f64 / 2.0).round() as u64;
        let hub_edges = self.hubs.saturating_mul(self.hub_degree);
        check_edges(drawn.saturating_add(hub_edges).saturating_mul(2))?;

        let names = shuffled(self.vertices as usize, rng::key(seed, stream::NAMES));
        let mut labels = vec![0; names.len()];
        for (vertex, &name) in names.iter().enumerate() {
            labels[name as usize] = (vertex as u64 % u64::from(self.classes)) as u32;
        }
        let within = (self.within * 4_294_967_296.0) as u64;
        let key = rng::key(seed, stream::EDGES);
        let source = Source {
            spec: self,
            key,
            common,
            drawn,
            within,
            names,
        };
        let graph = Csr::from_source(self.vertices as usize, &source)?;
        Ok((
            Graph::with_symmetry(graph, Symmetry::Known(true)).deduplicated()?,
            labels,
        ))
    }
}

/// Before they are renamed, vertex `v` is of class `v % classes` and of rank `v / classes` in it, and the hubs
/// come last.
struct Source<'a> {
    spec: &'a BlockModel,
    key: [u32; 2],
    /// The vertices that are no hubs.
    common: u64,
    /// The edges that are no hub's.
    drawn: u64,
    /// Below it a random word means an edge within its class.
    within: u64,
    names: Vec<u32>,
}

impl Source<'_> {
    /// A vertex of `class`: for a uniform x the rank is x²·(size of the class), whose density is ∝ rank^(-1/2).
    fn member(&self, class: u64, word: u32) -> u64 {
        let classes = u64::from(self.spec.classes);
        let size = (self.common - class).div_ceil(classes);
        let square = u64::from(word) * u64::from(word);
        below(size, (square >> 32) as u32, square as u32) * classes + class
    }

    fn edge(&self, item: u64) -> (u64, u64) {
        let Some(hub_edge) = item.checked_sub(self.drawn) else {
            let classes = u64::from(self.spec.classes);
            let [first, second, stay, class] = draw(self.key, item, 0);
            let [home, ..] = draw(self.key, item, 1);
            let home = below(classes, home, 0);
            let other = if u64::from(stay) < self.within {
                home
            } else {
                below(classes, class, 0)
            };
            return (self.member(home, first), self.member(other, second));
        };
        // A hub's neighbours are a run from a random start: all different, so its degree is exact.
        let (hub, step) = (
            hub_edge / self.spec.hub_degree,
            hub_edge % self.spec.hub_degree,
        );
        let [high, low, ..] = draw(self.key, hub, 2);
        (
            self.common + hub,
            (below(self.common, high, low) + step) % self.common,
        )
    }
}

impl EdgeSource for Source<'_> {
    fn items(&self) -> u64 {
        self.drawn + self.spec.hubs * self.spec.hub_degree
    }

    fn emit(&self, items: Range<u64>, mut sink: impl FnMut(u32, u32)) {
        for item in items {
            let (one, other) = self.edge(item);
            if one != other {
                let (one, other) = (self.names[one as usize], self.names[other as usize]);
                sink(one, other);
                sink(other, one);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::{fingerprint, testing::same_on_any_threads};
    use super::*;

    #[test]
    fn the_default_has_hubs_of_the_degree_promised() {
        let spec = BlockModel::default();
        let graph = same_on_any_threads(|| spec.generate(0).unwrap().0);
        assert_eq!(graph.vertices(), 30_000);
        assert!(
            (1_000_000..1_100_000).contains(&graph.edges()),
            "{} edges",
            graph.edges()
        );
        let mut degrees = graph.in_degrees();
        degrees.sort();
        assert!(degrees[29_984..].iter().all(|&degree| degree == 24_000));
        assert!(
            degrees[29_983] < 1500 && degrees[29_983] > 200,
            "the largest common degree is {}",
            degrees[29_983]
        );
        assert_eq!(
            graph,
            graph.deduplicated().unwrap().without_self_loops().unwrap()
        );
        assert!(Graph::new(graph.csr().clone()).unwrap().is_symmetric());
    }

    /// A change of this number is a change of every accuracy that was measured on the default graph.
    #[test]
    fn a_seed_means_the_same_graph_for_ever() {
        let (graph, labels) = BlockModel {
            vertices: 300,
            hub_degree: 200,
            ..Default::default()
        }
        .generate(1)
        .unwrap();
        assert_eq!(fingerprint(&graph), FINGERPRINT);
        assert_eq!(labels[..8], LABELS);
    }
    const FINGERPRINT: u64 = 10_785_607_233_041_202_842;
    const LABELS: [u32; 8] = [6, 7, 1, 3, 0, 3, 2, 6];

    #[test]
    fn classes_are_even_and_edges_stay_within_them() {
        let spec = BlockModel {
            hubs: 0,
            hub_degree: 0,
            vertices: 4003,
            classes: 5,
            ..Default::default()
        };
        let (graph, labels) = spec.generate(4).unwrap();
        let sizes: Vec<_> = (0..5)
            .map(|class| labels.iter().filter(|&&label| label == class).count())
            .collect();
        assert_eq!(sizes, [801, 801, 801, 800, 800]);
        let same = graph
            .rows()
            .iter()
            .zip(graph.cols())
            .filter(|&(&r, &c)| labels[r as usize] == labels[c as usize]);
        let fraction = same.count() as f64 / graph.edges() as f64;
        assert!(
            (fraction - (0.7 + 0.3 / 5.0)).abs() < 0.02,
            "{fraction} of the edges stay within a class"
        );
    }

    #[test]
    fn what_cannot_be_made_is_refused() {
        let refused = |spec: BlockModel| spec.generate(0).unwrap_err().to_string();
        let default = BlockModel::default;
        assert!(
            refused(BlockModel {
                classes: 0,
                ..default()
            })
            .starts_with("classes = 0 ")
        );
        assert!(
            refused(BlockModel {
                hubs: 30_000,
                ..default()
            })
            .starts_with("vertices = 30000 ")
        );
        assert!(
            refused(BlockModel {
                hub_degree: 29_985,
                ..default()
            })
            .starts_with("hub_degree = 29985 ")
        );
        assert!(
            refused(BlockModel {
                within: 1.5,
                ..default()
            })
            .starts_with("within = 1.5 ")
        );
        assert!(
            refused(BlockModel {
                mean_degree: f64::NAN,
                ..default()
            })
            .starts_with("mean_degree = NaN ")
        );
        assert!(
            refused(BlockModel {
                mean_degree: 1e300,
                ..default()
            })
            .contains("edges are more than")
        );
        assert!(
            refused(BlockModel {
                vertices: u64::MAX,
                ..default()
            })
            .contains("vertices are more than")
        );
    }
}
