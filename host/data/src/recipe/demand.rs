//! The memory that a recipe takes, computed from its numbers alone: before minutes are spent on a graph that does not
//! fit.

use super::mag::{self, Sizes};
use super::{CLASSES, REDDIT_FEATURES, Recipe, blocks, communities, reddit_like, rmat};
use crate::synthetic::{ClassFeatures, Synthetic};
use halfgnn_graph::GraphCounts;
use halfgnn_graph::generate::{BlockModel, Rmat};

/// The memory that a recipe takes. Where duplicates are dropped, the number of edges that remain is an estimate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Demand {
    /// The graph.
    pub counts: GraphCounts,
    /// Features of a vertex.
    pub features: usize,
    /// Classes.
    pub classes: usize,
    /// The most bytes of the host's memory while the graph is made: its edges are sorted from eight bytes each into
    /// columns of four.
    pub making: u64,
}

impl Demand {
    /// Of an R-MAT graph, with the features and classes of small datasets.
    pub fn of_rmat(rmat: &Rmat) -> Self {
        let directions = if rmat.undirected { 2 } else { 1 };
        let edges = rmat.edges.saturating_mul(directions);
        // Its hubs have more edges than any row of a small graph may.
        let features = ClassFeatures::default().features;
        of_edges(rmat.vertices, edges, edges, u32::MAX, features)
    }

    /// Bytes of the host's memory that the dataset takes: graph, features, labels and splits.
    pub fn dataset_bytes(&self) -> u64 {
        let vertices = self.counts.vertices() as u64;
        let features = vertices.saturating_mul(4 * self.features as u64);
        let labels = vertices.saturating_mul(8);
        self.counts
            .host_bytes()
            .saturating_add(features)
            .saturating_add(labels)
    }
}

impl Recipe {
    /// What it takes.
    pub fn demand(&self) -> Demand {
        let small = ClassFeatures::default().features;
        match *self {
            Self::Synthetic => {
                let synthetic = Synthetic::default();
                of_blocks(&synthetic.graph, synthetic.features)
            }
            Self::RedditLike { scale } => of_blocks(&reddit_like(scale), REDDIT_FEATURES),
            Self::Blocks { vertices } => of_blocks(&blocks(vertices), small),
            Self::Communities {
                vertices,
                communities: count,
            } => {
                let mut demand = of_blocks(&communities(vertices, count), small);
                demand.classes = count.min(CLASSES.into()) as usize;
                demand
            }
            Self::Kronecker { scale } => Demand::of_rmat(&Rmat::graph500(scale)),
            Self::Rmat { vertices, edges } => Demand::of_rmat(&rmat(vertices, edges)),
            Self::Grid { width, height } => {
                let vertices = width.saturating_mul(height);
                let edges = vertices
                    .saturating_mul(4)
                    .saturating_sub(width.saturating_add(height).saturating_mul(2));
                of_edges(vertices, edges, edges, 4, small)
            }
            Self::Star { hubs, leaves } => {
                let edges = hubs.saturating_mul(leaves.saturating_add(1));
                let longest = u32::try_from(hubs.max(leaves.saturating_add(1)));
                let (vertices, edges) = (edges.saturating_add(1), edges.saturating_mul(2));
                let mut demand =
                    of_edges(vertices, edges, edges, longest.unwrap_or(u32::MAX), small);
                // A hub and its leaves are of one class.
                demand.classes = hubs.clamp(1, CLASSES.into()) as usize;
                demand
            }
            Self::MagLike { scale } => {
                let sizes = Sizes::of(scale);
                let vertices = sizes.vertices.iter().sum();
                let edges = sizes.edges.iter().sum();
                let mut demand = of_edges(vertices, edges, edges, u32::MAX, mag::FEATURES);
                demand.classes = sizes.classes as usize;
                demand
            }
        }
    }
}

/// About an eighth of the edges of a block model of many vertices are duplicates, at most. A small, dense one has more,
/// so its estimate is too high.
fn of_blocks(model: &BlockModel, features: usize) -> Demand {
    let common = model.vertices.saturating_sub(model.hubs) as f64;
    let sampled = (model.mean_degree * common) as u64;
    let hubs = model
        .hubs
        .saturating_mul(model.hub_degree)
        .saturating_mul(2);
    let sampled = sampled.saturating_add(hubs);
    let longest = u32::try_from(model.hub_degree).unwrap_or(u32::MAX);
    let kept = sampled - sampled / 8;
    let mut demand = of_edges(model.vertices, sampled, kept, longest, features);
    demand.classes = model.classes as usize;
    demand
}

fn of_edges(vertices: u64, sampled: u64, kept: u64, longest: u32, features: usize) -> Demand {
    let size = |number: u64| usize::try_from(number).unwrap_or(usize::MAX);
    Demand {
        counts: GraphCounts::symmetric(size(vertices), size(kept), longest),
        features,
        classes: CLASSES as usize,
        // Offsets, and the vertices' new names.
        making: sampled
            .saturating_mul(12)
            .saturating_add(vertices.saturating_mul(12)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_foretold_is_what_is_made() {
        for text in [
            "kron:8",
            "rmat:250x3000",
            "grid:7x30",
            "star:4x50",
            "blocks:800",
            "communities:6000x10",
            "reddit-like:0.002",
        ] {
            let recipe: Recipe = text.parse().expect("a recipe");
            let (demand, made) = (recipe.demand(), recipe.dataset(1).expect("small"));
            let shape = (demand.counts.vertices(), demand.features, demand.classes);
            let own = (made.graph.vertices(), made.feature_len(), made.outputs);
            assert_eq!(shape, own, "{text}");
            let (estimate, edges) = (demand.counts.forward.edges, made.graph.edges());
            if text.starts_with("communities") {
                // About an eighth are duplicates there.
                assert!(
                    estimate.abs_diff(edges) < estimate / 20,
                    "{text}: {estimate}, {edges}"
                );
            } else if text.starts_with("blocks") {
                assert!(
                    estimate <= edges && edges <= estimate * 8 / 7,
                    "{text}: {estimate}, {edges}"
                );
            } else if text.starts_with("reddit") {
                // Such a small graph is dense, and most of the sampled edges are duplicates.
                assert!(edges <= estimate, "{text}: {estimate}, {edges}");
            } else {
                assert_eq!(estimate, edges, "{text}");
            }
        }
    }

    #[test]
    fn a_scale_of_26_takes_more_than_24_gigabytes_to_make() {
        let demand = "kron:26".parse::<Recipe>().expect("a recipe").demand();
        assert!(demand.making > 24 << 30, "{demand:?}");
        let most = Recipe::Grid {
            width: u64::MAX,
            height: u64::MAX,
        };
        assert_eq!(most.demand().making, u64::MAX);
    }
}
