//! What a trainer learns from batch by batch.

use super::objective::Objective;
use super::{Goal, GraphBatches, Loss};
use crate::backend::Backend;
use crate::error::Error;
use crate::nn::{Norm, Propagation};
use crate::sample::{Loader, Sampler, Seeds};
use crate::tensor::Element;

/// A task whose training vertices are learnt from in batches: see [`Trainer::sampled`](super::Trainer::sampled).
#[derive(Debug)]
pub struct Batches<B: Backend, E: Element> {
    /// Whose features and targets they are.
    task: Objective<B, E>,
    loss: Loss,
    loader: Loader,
    source: Source<B>,
    /// The seeds of an epoch, of which batches were asked for last.
    order: Option<(u32, Vec<Seeds>)>,
}

/// What makes a batch.
#[derive(Debug)]
enum Source<B: Backend> {
    /// Vertices, and what is drawn of their neighbours, with a degree norm of each block.
    Sampled(Box<dyn Sampler<B>>, Norm),
    /// Whole graphs.
    Graphs(Box<GraphBatches>),
}

impl<B: Backend, E: Element> Batches<B, E> {
    /// Batches of `batch` of the training vertices of `task`, in orders that `seed` decides, of what `sampler` draws of their graph
    /// by the same seed; `loss` is the task's and `norm` the model's, taken of the degrees of each block.
    ///
    /// # Errors
    /// [`Error::Shape`] where the sampler is of another number of vertices, [`Error::Unsupported`] for batches of no vertices, a task
    /// of links, and [`Norm::In`], which blocks have not.
    pub fn new(
        task: &Objective<B, E>,
        (loss, norm): (&Loss, Norm),
        sampler: Box<dyn Sampler<B>>,
        batch: usize,
        seed: u64,
    ) -> Result<Self, Error> {
        const NAME: &str = "Batches";
        let refuse = |reason: &str| {
            Err(Error::Unsupported {
                operator: NAME,
                reason: reason.into(),
            })
        };
        if task.changes() {
            return refuse("batches are of vertices, and this task tells links; train it whole");
        }
        if norm == Norm::In {
            return refuse(
                "the norm `in` wants the in-degrees of sources, which a sampled block does not have; take the norm `both`",
            );
        }
        let vertices = task.0.features.rows();
        Error::expect(
            NAME,
            "vertices of the sampler",
            vertices,
            sampler.vertices(),
        )?;
        Ok(Self {
            loader: Loader::new(task.0.lists[0].clone(), batch, seed)?,
            task: task.clone(),
            loss: loss.clone(),
            source: Source::Sampled(sampler, norm),
            order: None,
        })
    }

    /// Batches of `batch` of the training graphs of `task`, which `graphs` are, in orders that `seed` decides; `loss` is the task's.
    ///
    /// # Errors
    /// [`Error::Shape`] where the task is of another number of graphs or of vertices, [`Error::Unsupported`] for batches of no graphs.
    pub fn of_graphs(
        task: &Objective<B, E>,
        loss: &Loss,
        graphs: GraphBatches,
        batch: usize,
        seed: u64,
    ) -> Result<Self, Error> {
        const NAME: &str = "Batches";
        let (index, vertices) = (graphs.index(), task.0.features.rows());
        Error::expect(NAME, "vertices of the graphs", vertices, index.vertices())?;
        Error::expect(NAME, "graphs", task.vertices(), index.graphs())?;
        Ok(Self {
            loader: Loader::new(task.0.lists[0].clone(), batch, seed)?,
            task: task.clone(),
            loss: loss.clone(),
            source: Source::Graphs(Box::new(graphs)),
            order: None,
        })
    }

    /// Batches of an epoch.
    pub fn count(&self) -> usize {
        self.loader.batches()
    }

    /// Batch `number` of an epoch, both from 0 on, and of how many vertices it is.
    ///
    /// # Errors
    /// [`Error::Shape`] where an epoch has fewer batches; those of the sampler and of [`Objective::of`].
    pub fn batch(
        &mut self,
        backend: &B,
        epoch: u32,
        number: usize,
    ) -> Result<(Objective<B, E>, usize), Error> {
        if number >= self.count() {
            return Err(Error::Unsupported {
                operator: "Batches",
                reason: format!(
                    "batch {number} of an epoch that has {}, from 0 on",
                    self.count()
                ),
            });
        }
        self.order = self.order.take().filter(|(of, _)| *of == epoch);
        let order = || (epoch, self.loader.epoch(epoch).collect());
        let (_, order) = self.order.get_or_insert_with(order);
        let Seeds { step, vertices, .. } = &order[number];
        let all: Vec<u32> = (0..vertices.len() as u32).collect();
        let goal = Goal {
            targets: &self.task.0.targets.selected(vertices),
            outputs: self.task.outputs(),
            loss: &self.loss,
            splits: [&all, &[], &[]],
        };
        let features = &self.task.0.features;
        let objective = match &mut self.source {
            Source::Graphs(graphs) => graphs.objective(backend, vertices, features, &goal)?,
            Source::Sampled(sampler, norm) => {
                let seed = self.loader.seed();
                let batch = sampler.sample(backend, vertices, seed, *step)?;
                let features = batch.features(backend, features)?;
                let graphs = (batch.blocks.into_iter())
                    .map(|block| Propagation::of_sampled(backend, block, *norm))
                    .collect::<Result<_, _>>()?;
                Objective::of(backend, graphs, features, &goal)?
            }
        };
        Ok((objective, vertices.len()))
    }
}
