//! Batches of vertices of a graph of several types, with a sample of their neighbours.

use super::batch_sizes::{BatchSizes, TypeCounts};
use super::objective::Objective;
use super::{Goal, Loss};
use crate::backend::cpu::Cpu;
use crate::backend::{Backend, Block, MemoryKind};
use crate::data::Types;
use crate::error::Error;
use crate::nn::{ModelConfig, ModelTypes, Norm, Propagation};
use crate::ops;
use crate::sample::{EdgesIn, SampledEdges, Sampling, TypeSample, TypeSampler};
use crate::tensor::{Array, Element, Matrix};
use std::sync::Arc;

/// A sampler, and what its samples need to become a task.
#[derive(Debug)]
pub(super) struct TypeBatches<B: Backend> {
    sampler: Place<B>,
    types: ModelTypes,
    norm: Norm,
}

/// Where neighbours are sampled.
#[derive(Debug)]
enum Place<B: Backend> {
    Device(Box<TypeSampler<B>>),
    Host(Box<TypeSampler<Cpu>>, Cpu),
}

/// The training vertices of a batch.
#[derive(Clone, Copy, Debug)]
pub(super) struct Seeds<'a> {
    /// Those of this rank.
    pub(super) own: &'a [u32],
    /// Those of all ranks, where there are several.
    pub(super) whole: Option<&'a [u32]>,
    /// The seed and the step that determine which neighbours are sampled.
    pub(super) draw: (u64, u32),
}

impl<B: Backend> TypeBatches<B> {
    /// Batches for a model of several types with `hops` aggregating layers, over the edges of a dataset.
    ///
    /// # Errors
    /// [`Error::Unsupported`] where the model has one type, or the number of fanouts is not `hops`; those of
    /// [`SamplingPolicy::fanouts_of`](crate::sample::SamplingPolicy::fanouts_of) and [`TypeSampler::new_in`].
    pub(super) fn new(
        backend: &B,
        (model, hops): (&ModelConfig, usize),
        types: &Types,
        sampling: &Sampling,
    ) -> Result<Self, Error> {
        let refuse = |reason: String| {
            Err(Error::Unsupported {
                operator: "Batches",
                reason,
            })
        };
        let Some(of_model) = &model.types else {
            return refuse("the model has one type of vertices; take Batches::of_sampling".into());
        };
        let policy = &sampling.policy;
        let (fanouts, replace) = policy.fanouts_of(of_model)?;
        if let Some(count) = policy.layers().filter(|count| *count != hops) {
            return refuse(format!(
                "{policy} has {count} fanouts, and {hops} layers of the model aggregate; name {hops} fanouts, or change the model's layers"
            ));
        }
        let seeds = of_model.labelled;
        let sampler = match sampling.edges {
            EdgesIn::Graph => {
                let cpu = Cpu::new();
                let sampler = TypeSampler::new(&cpu, types, seeds, fanouts)?;
                Place::Host(Box::new(sampler.replacing(replace)), cpu)
            }
            EdgesIn::Device | EdgesIn::Host => {
                let kind = match sampling.edges {
                    EdgesIn::Host => MemoryKind::HostGraph,
                    _ => MemoryKind::Graph,
                };
                let sampler = TypeSampler::new_in(backend, types, seeds, (fanouts, kind))?;
                Place::Device(Box::new(sampler.replacing(replace)))
            }
        };
        Ok(Self {
            sampler,
            types: of_model.clone(),
            norm: model.norm(),
        })
    }

    fn sample(
        &mut self,
        backend: &B,
        seeds: &[u32],
        (seed, step): (u64, u32),
    ) -> Result<TypeSample, Error> {
        match &mut self.sampler {
            Place::Device(sampler) => sampler.sample(backend, seeds, seed, step),
            Place::Host(sampler, cpu) => sampler.sample(cpu, seeds, seed, step),
        }
    }

    /// The sizes of batches of these seeds.
    pub(super) fn sizes(
        &mut self,
        backend: &B,
        batches: &[(u32, Vec<u32>)],
        seed: u64,
    ) -> Result<Option<BatchSizes>, Error> {
        let mut seen: Option<[TypeCounts; 2]> = None;
        for (step, own) in batches.iter().filter(|(_, own)| !own.is_empty()) {
            let sample = self.sample(backend, own, (seed, *step))?;
            let counts = TypeCounts {
                vertices: sample.vertices.iter().map(Vec::len).collect(),
                edges: sample.edges.iter().map(|of| of.rows().len()).collect(),
            };
            seen = Some(match seen {
                None => [counts.clone(), counts],
                Some([fewest, most]) => [
                    fewest.each(&counts, usize::min),
                    most.each(&counts, usize::max),
                ],
            });
        }
        Ok(seen.map(|seen| BatchSizes::of_types(&self.types, &seen)))
    }

    /// The task of a batch. The sampled vertices of the labelled type begin with the training vertices. With several
    /// ranks the loss has the divisor of the whole batch.
    pub(super) fn objective<E: Element>(
        &mut self,
        backend: &B,
        (task, loss): (&Objective<B, E>, &Loss),
        seeds: Seeds<'_>,
    ) -> Result<Objective<B, E>, Error> {
        let TypeSample { vertices, edges } = self.sample(backend, seeds.own, seeds.draw)?;
        let labelled = &vertices[self.types.labelled];
        let train: Vec<u32> = (0..seeds.own.len() as u32).collect();
        let goal = Goal {
            targets: &task.0.targets.selected(labelled),
            outputs: task.outputs(),
            loss,
            splits: [&train, &[], &[]],
        };
        let graphs = self.graphs(backend, &vertices, &edges)?;
        let rows = |of: &[u32]| Array::from_slice(backend, of, MemoryKind::Graph);
        let features = &task.0.features;
        let features = features.take(backend, &rows(labelled)?, MemoryKind::Features)?;
        let others = self.types.others_with_features().zip(&task.0.of_types);
        let others = others.map(|(of, whole)| {
            let shape = (vertices[of].len(), whole.columns());
            let mut taken = Matrix::uninit(backend, shape.0, shape.1, MemoryKind::Features)?;
            ops::take_rows(backend, whole, &rows(&vertices[of])?, &mut taken)?;
            Ok(taken)
        });
        let others = others.collect::<Result<Vec<_>, Error>>()?;
        let all: Vec<u32> = (0..labelled.len() as u32).collect();
        let features = Arc::new(features.into());
        let mut own = Objective::of_vertices(backend, graphs, features, &goal, &all, None)?;
        own.task_mut().of_types = others;
        match seeds.whole {
            None => Ok(own),
            Some(whole) => {
                let ones = vec![1.0; labelled.len()];
                own.weighing(backend, &ones, task.divisor(loss, whole))
            }
        }
    }

    /// The edges of each type. For each type without features, also those from all its vertices to the sampled ones.
    fn graphs(
        &self,
        backend: &B,
        vertices: &[Vec<u32>],
        edges: &[SampledEdges],
    ) -> Result<Vec<Propagation<B>>, Error> {
        let relations = edges.iter().map(|edges| {
            let block = edges.block(backend)?;
            Propagation::of_sampled(backend, block, self.norm)
        });
        let samples = self.types.without_features().map(|of| {
            let (sampled, all) = (&vertices[of], self.types.vertices[of].vertices);
            let rows: Vec<u32> = (0..sampled.len() as u32).collect();
            let block = Block::of_edges(backend, (sampled.len(), all), &rows, sampled)?;
            Propagation::of_sampled(backend, block, Norm::None)
        });
        relations.chain(samples).collect()
    }
}
