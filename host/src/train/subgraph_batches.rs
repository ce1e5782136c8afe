//! Batches of vertices that are chosen together, with the edges between them.

use super::objective::Objective;
use super::{Goal, Loss};
use crate::backend::Backend;
use crate::error::Error;
use crate::nn::{GraphFactors, Norm, Propagation};
use crate::sample::{InducedSubgraph, SubgraphSampler, Subgraphs};
use crate::tensor::{Element, Matrix};

/// How subgraphs are sampled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SubgraphPlan {
    /// How their vertices are chosen.
    pub subgraphs: Subgraphs,
    /// The number of clusters of a batch; other subgraphs ignore it.
    pub batch: usize,
    /// The number of samples for counting frequencies, in multiples of the graph's vertices: 50 in PyG's
    /// `GraphSAINTSampler`.
    pub coverage: u32,
    /// The seed of all random numbers.
    pub seed: u64,
}

/// The subgraphs of a trainer.
#[derive(Debug)]
pub(super) struct SubgraphBatches<B: Backend, E: Element> {
    pub(super) sampler: SubgraphSampler<B>,
    /// The degree norm, where edges have no factors.
    pub(super) norm: Norm,
    /// None for clusters.
    pub(super) norms: Option<SubgraphNorms<B, E>>,
    /// Whether each vertex is a training vertex.
    pub(super) in_training: Vec<bool>,
}

/// A subgraph and its training vertices.
#[derive(Debug)]
pub(super) struct DrawnSubgraph<B: Backend> {
    pub(super) subgraph: InducedSubgraph<B>,
    /// Its vertices, on the host.
    vertices: Vec<u32>,
    /// The indices of its training vertices.
    train: Vec<u32>,
}

/// The factors by which sums and losses of subgraphs are, on average, those of the graph.
#[derive(Debug)]
pub(super) struct SubgraphNorms<B: Backend, E: Element> {
    /// None for models that weight edges themselves.
    pub(super) edges: Option<GraphFactors<B, E>>,
    /// The weight of each vertex's loss.
    pub(super) vertices: Vec<f32>,
    /// The divisor of the sum of losses.
    pub(super) divisor: f32,
}

impl<B: Backend, E: Element> SubgraphBatches<B, E> {
    /// Samples a subgraph that has training vertices, or takes that of some clusters.
    pub(super) fn draw(
        &mut self,
        backend: &B,
        (seed, step, clusters): (u64, u32, &[u32]),
    ) -> Result<DrawnSubgraph<B>, Error> {
        /// The number of samples after which it gives up finding training vertices.
        const ATTEMPTS: u64 = 16;
        let mut attempt = 0;
        loop {
            let subgraph = match &self.norms {
                Some(_) => self.sampler.draw(backend, seed ^ attempt << 48, step)?,
                None => self.sampler.of_clusters(backend, clusters)?,
            };
            let vertices = subgraph.vertices.to_vec(backend)?;
            let places = vertices.iter().zip(0..);
            let train: Vec<u32> = places
                .filter(|&(&vertex, _)| self.in_training[vertex as usize])
                .map(|(_, place)| place)
                .collect();
            if !train.is_empty() {
                return Ok(DrawnSubgraph {
                    subgraph,
                    vertices,
                    train,
                });
            }
            attempt += 1;
            if attempt == ATTEMPTS {
                return Err(Error::Unsupported {
                    operator: "Batches",
                    reason: format!(
                        "{ATTEMPTS} subgraphs, the last of {} vertices, have none to learn from; draw more of them, or take walks, which begin at such vertices",
                        vertices.len()
                    ),
                });
            }
        }
    }

    /// The task of a subgraph with its features, and the number of its training vertices.
    pub(super) fn objective(
        &self,
        backend: &B,
        task: &Objective<B, E>,
        loss: &Loss,
        (drawn, features): (DrawnSubgraph<B>, Matrix<B, E>),
    ) -> Result<(Objective<B, E>, usize), Error> {
        let DrawnSubgraph {
            subgraph,
            vertices,
            train,
        } = drawn;
        let graph = match &self.norms {
            Some(SubgraphNorms {
                edges: Some(factors),
                ..
            }) => Propagation::of_induced(backend, subgraph, factors)?,
            _ => Propagation::of_sampled(backend, subgraph.block, self.norm)?,
        };
        let goal = Goal {
            targets: &task.0.targets.selected(&vertices),
            outputs: task.outputs(),
            loss,
            splits: [&train, &[], &[]],
        };
        let objective = Objective::of(backend, vec![graph], features, &goal)?;
        let objective = match &self.norms {
            None => objective,
            Some(norms) => {
                let weights = vertices
                    .iter()
                    .map(|&vertex| norms.vertices[vertex as usize]);
                let weights: Vec<f32> = weights.collect();
                objective.weighing(backend, &weights, norms.divisor)?
            }
        };
        Ok((objective, train.len()))
    }
}
