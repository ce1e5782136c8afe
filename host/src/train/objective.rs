//! Tasks: features, targets and splits on a backend.

use super::Loss;
use super::links::{LinkSplit, Links};
use super::unknown::Unknown;
use crate::backend::{Backend, MemoryKind};
use crate::data::{DataProblem, FeatureRows, LabelSets, Targets, Values};
use crate::distributed::{Group, Shard};
use crate::error::Error;
use crate::nn::{Inputs, LinkOperands, Propagation};
use crate::ops::{
    self, CrossEntropyOperands, ElementLoss, ElementLossOperands, NO_TARGET, OptimizerState,
};
use crate::tensor::{Array, Element, Matrix};
use std::fmt;
use std::sync::Arc;

const NAME: &str = "Objective";

/// A subset of the labelled vertices.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Split {
    /// The vertices that the model is trained on.
    Train,
    /// The vertices that determine the best epoch.
    Validation,
    /// The vertices that measure the result.
    Test,
}

impl Split {
    /// Every split, in the order of the backend's split numbers.
    pub const ALL: [Split; 3] = [Split::Train, Split::Validation, Split::Test];
}

impl fmt::Display for Split {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Split::Train => "training",
            Split::Validation => "validation",
            Split::Test => "test",
        })
    }
}

/// The kind of the targets, as far as memory depends on it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum TargetKind {
    /// One class per vertex.
    #[default]
    Classes,
    /// Labels, and whether some vertices have both known and unknown ones.
    Labels { partial: bool },
    /// Values, and whether some vertices have both known and unknown ones.
    Values { partial: bool },
}

impl TargetKind {
    pub(super) fn of(targets: &Targets) -> Self {
        let partial = targets.is_partial();
        match targets {
            Targets::Labels(_) => Self::Labels { partial },
            Targets::Values(_) => Self::Values { partial },
            _ => Self::Classes,
        }
    }

    /// One vertex of this kind whose first entry is known. Where targets are partial, the others are not.
    fn example(self, columns: usize) -> Result<Targets, Error> {
        let refused = |problem: DataProblem| Error::Unsupported {
            operator: NAME,
            reason: problem.to_string(),
        };
        let is_known = |partial: bool| (0..columns).map(move |column| column == 0 || !partial);
        Ok(match self {
            Self::Classes => Targets::Classes(Vec::new()),
            Self::Labels { partial } => {
                let labels = is_known(partial).map(|known| known.then_some(true));
                Targets::Labels(LabelSets::new(columns, labels).map_err(refused)?)
            }
            Self::Values { partial } => {
                let values = is_known(partial).map(|known| if known { 0.0 } else { f32::NAN });
                let values = Values::new(columns, values.collect());
                Targets::Values(values.map_err(refused)?)
            }
        })
    }
}

/// What a model predicts, and the loss of its predictions.
#[derive(Clone, Copy, Debug)]
pub struct Goal<'a> {
    /// The targets of the destinations of the last graph.
    pub targets: &'a Targets,
    /// The number of outputs per destination: [`Targets::outputs`], or more.
    pub outputs: usize,
    /// The loss function.
    pub loss: &'a Loss,
    /// The destinations of each split, in the order of [`Split::ALL`].
    pub splits: [&'a [u32]; 3],
}

/// A task on a backend: what a model predicts for vertices. It is a handle whose clones are the same task, so several
/// models can train on it.
#[derive(Clone, Debug)]
pub struct Objective<B: Backend, E: Element>(pub(super) Arc<Task<B, E>>);

/// The content of an [`Objective`].
#[derive(Debug)]
pub(super) struct Task<B: Backend, E: Element> {
    /// See [`Inputs::graphs`].
    pub(super) graphs: Vec<Propagation<B>>,
    /// Shared with the same task on fewer vertices.
    pub(super) features: Arc<FeatureRows<B, E>>,
    /// See [`Inputs::of_types`].
    pub(super) of_types: Vec<Matrix<B, E>>,
    /// Whether the dropout that a model begins with was applied to the features.
    pub(super) dropped: bool,
    pub(super) answers: Answers<B>,
    /// Present where entries of the targets are unknown.
    pub(super) unknown: Option<Unknown<B, E>>,
    /// The split of each vertex, or [`NO_TARGET`].
    pub(super) splits: Array<B, u32>,
    /// For training vertices their label, for other targets than classes their split; [`NO_TARGET`] elsewhere.
    selected: Array<B, u32>,
    /// The vertices of each split, on the host.
    pub(super) lists: [Vec<u32>; 3],
    /// The targets on the host, for metrics that are computed there.
    pub(super) targets: Targets,
    vertices: usize,
    outputs: usize,
    /// The weight of each vertex's loss, and the divisor of their sum.
    row_weights: Option<(Array<B, f32>, f32)>,
    /// Present where several ranks share the task.
    pub(super) ranks: Option<Ranks>,
}

/// The matrix of the features of a batch, to be written.
pub(super) fn features_of_batch<B: Backend, E: Element>(
    features: &mut Arc<FeatureRows<B, E>>,
) -> &mut Matrix<B, E> {
    let features = Arc::get_mut(features).expect("nobody else has those of a batch");
    features.matrix_mut()
}

/// A rank's view of itself and the others.
#[derive(Debug)]
pub(super) struct Ranks {
    pub(super) group: Group,
    /// The vertices of all ranks, in the order of ranks.
    pub(super) vertices: Vec<u32>,
    /// The number of vertices of each rank.
    pub(super) counts: Vec<usize>,
}

/// The targets on a backend, and the loss function.
#[derive(Debug)]
pub(super) enum Answers<B: Backend> {
    /// One class per vertex.
    Classes {
        labels: Array<B, u32>,
        /// Weights of the classes, and their sum over the training vertices.
        weights: Option<(Array<B, f32>, f32)>,
    },
    /// A row of numbers per vertex.
    Elements {
        targets: Matrix<B, f32>,
        kind: ElementKind<B>,
    },
    /// Pairs that are edges.
    Links(Box<Links<B>>),
}

/// An [`ElementLoss`] that owns its weights.
#[derive(Debug)]
pub(super) enum ElementKind<B: Backend> {
    Binary(Option<Array<B, f32>>),
    Squared,
    Absolute,
}

impl<B: Backend> ElementKind<B> {
    fn loss(&self) -> ElementLoss<'_, B> {
        match self {
            Self::Binary(weights) => ElementLoss::BinaryCrossEntropy {
                positive_weights: weights.as_ref(),
            },
            Self::Squared => ElementLoss::SquaredError,
            Self::Absolute => ElementLoss::AbsoluteError,
        }
    }
}

impl<B: Backend, E: Element> Objective<B, E> {
    /// The task of classifying vertices. `labels` has one class per vertex, and `splits` has the vertices of each split
    /// in the order of [`Split::ALL`]. `graph` is the graph as the model needs it.
    ///
    /// # Errors
    /// [`Error::Shape`] where sizes do not agree. [`Error::Unsupported`] where no vertex is trained on, or a split has
    /// an invalid vertex: one that does not exist, that another split has, or whose label is not a class.
    /// [`Error::Driver`] where there is not enough memory.
    pub fn new(
        backend: &B,
        graph: Propagation<B>,
        features: Matrix<B, E>,
        labels: &[u32],
        classes: usize,
        splits: [&[u32]; 3],
    ) -> Result<Self, Error> {
        let graphs = vec![graph];
        Self::on_blocks(backend, graphs, features, labels, classes, splits)
    }

    /// The same for the destinations of the last of `graphs`. There is one graph for each layer that aggregates, as in
    /// a sampled batch: see [`Inputs::graphs`]. Features are those of the first graph's sources; labels and splits
    /// index the last one's destinations.
    ///
    /// # Errors
    /// Those of [`Objective::new`].
    pub fn on_blocks(
        backend: &B,
        graphs: Vec<Propagation<B>>,
        features: Matrix<B, E>,
        labels: &[u32],
        classes: usize,
        splits: [&[u32]; 3],
    ) -> Result<Self, Error> {
        let targets = Targets::from(labels.to_vec());
        let goal = Goal {
            targets: &targets,
            outputs: classes,
            loss: &Loss::of(&targets),
            splits,
        };
        Self::of(backend, graphs, features, &goal)
    }

    /// The task of predicting `goal` for the destinations of the last of `graphs`: classes, labels or values. Graphs
    /// and features are as in [`Objective::on_blocks`].
    ///
    /// # Errors
    /// Those of [`Objective::new`], and [`Error::Unsupported`] where the loss does not apply to such targets, or all
    /// targets of a vertex of a split are unknown.
    pub fn of(
        backend: &B,
        graphs: Vec<Propagation<B>>,
        features: Matrix<B, E>,
        goal: &Goal<'_>,
    ) -> Result<Self, Error> {
        Self::of_rows(backend, graphs, features.into(), goal)
    }

    /// The same with features that may stay on disk. Such a task has no `graphs`: it is trained in batches and
    /// evaluated in pieces.
    ///
    /// # Errors
    /// Those of [`Objective::of`].
    pub fn of_rows(
        backend: &B,
        graphs: Vec<Propagation<B>>,
        features: FeatureRows<B, E>,
        goal: &Goal<'_>,
    ) -> Result<Self, Error> {
        Self::of_shared(backend, graphs, features.into(), goal)
    }

    /// The same with shared features.
    pub(super) fn of_shared(
        backend: &B,
        graphs: Vec<Propagation<B>>,
        features: Arc<FeatureRows<B, E>>,
        goal: &Goal<'_>,
    ) -> Result<Self, Error> {
        let sources = graphs.first().map_or(features.rows(), Propagation::sources);
        let vertices = graphs.last().map_or(sources, Propagation::destinations);
        Error::expect(NAME, "rows of the features", sources, features.rows())?;
        Error::expect(NAME, "labels", vertices, goal.targets.vertices())?;
        let all: Vec<u32> = (0..vertices as u32).collect();
        Self::of_vertices(backend, graphs, features, goal, &all, None)
    }

    /// The features of the task's vertices.
    pub fn feature_rows(&self) -> &FeatureRows<B, E> {
        &self.0.features
    }

    /// The same task for the given vertices alone, for a graph that is evaluated in pieces. They are ascending and
    /// include those of all splits.
    pub(super) fn of_requested(&self, backend: &B, vertices: &[u32]) -> Result<Self, Error> {
        let place = |vertex: &u32| {
            let place = vertices.binary_search(vertex).map_err(|_| Error::Unsupported {
                operator: NAME,
                reason: format!(
                    "vertex {vertex} is in a split, and its row is not asked for; ask for those of all splits"
                ),
            })?;
            Ok::<u32, Error>(place as u32)
        };
        let listed = |split: usize| -> Result<Vec<u32>, Error> {
            self.0.lists[split].iter().map(place).collect()
        };
        let lists = [listed(0)?, listed(1)?, listed(2)?];
        let targets = self.0.targets.selected(vertices);
        let goal = Goal {
            targets: &targets,
            outputs: self.0.outputs,
            // An evaluation does not read the loss.
            loss: &Loss::of(&targets),
            splits: lists.each_ref().map(Vec::as_slice),
        };
        let all: Vec<u32> = (0..vertices.len() as u32).collect();
        Self::of_vertices(
            backend,
            Vec::new(),
            self.0.features.clone(),
            &goal,
            &all,
            None,
        )
    }

    /// A rank's part of the task of predicting `goal` for all vertices of a graph. Its own vertices are the
    /// [`Shard`](crate::distributed::Shard)'s, and `graph` is [`Propagation::of_shard`]. Features are those of all
    /// sources where the model's [first layer aggregates](crate::nn::Network::first_aggregates), else those of its own
    /// vertices. All ranks call it at the same time.
    ///
    /// # Errors
    /// Those of [`Objective::of`], and [`Error::Communication`] where the ranks together do not have all vertices, or
    /// have different targets.
    pub fn of_shard(
        backend: &B,
        graph: Propagation<B>,
        features: Matrix<B, E>,
        goal: &Goal<'_>,
        shard: &Shard,
    ) -> Result<Self, Error> {
        let Some(halo) = graph.halo() else {
            return Err(Error::Unsupported {
                operator: NAME,
                reason: "the graph is no rank's; make it by Propagation::of_shard".into(),
            });
        };
        let (group, counts) = (halo.group().clone(), halo.counts().to_vec());
        let rows = match features.rows() == shard.part.own().len() {
            true => shard.part.own().len(),
            false => graph.sources(),
        };
        Error::expect(NAME, "rows of the features", rows, features.rows())?;
        let all = counts.iter().sum();
        Error::expect(NAME, "labels", all, goal.targets.vertices())?;
        let vertices = group
            .gather_of("vertices", shard.part.own(), &counts)?
            .concat();
        let ranks = Ranks {
            group,
            vertices,
            counts,
        };
        Self::of_vertices(
            backend,
            vec![graph],
            Arc::new(features.into()),
            goal,
            shard.part.own(),
            Some(ranks),
        )
    }

    /// The task for the targets of the vertices `own`.
    pub(super) fn of_vertices(
        backend: &B,
        graphs: Vec<Propagation<B>>,
        features: Arc<FeatureRows<B, E>>,
        goal: &Goal<'_>,
        own: &[u32],
        ranks: Option<Ranks>,
    ) -> Result<Self, Error> {
        let (targets, outputs, kind) = (goal.targets, goal.outputs, MemoryKind::Features);
        let vertices = own.len();
        goal.loss.check(targets, outputs)?;
        let numbers = number_vertices(targets, outputs, goal.splits)?;
        let numbers: Vec<u32> = own.iter().map(|&vertex| numbers[vertex as usize]).collect();
        let vertex_of = |row: usize| own[row] as usize;
        let train = Split::Train as u32;
        let select = |(vertex, &split): (usize, &u32)| match targets {
            _ if split != train => NO_TARGET,
            Targets::Classes(labels) => labels[vertex_of(vertex)],
            _ => split,
        };
        let selected: Vec<u32> = numbers.iter().enumerate().map(select).collect();
        let upload = |values: &[u32]| Array::from_slice(backend, values, kind);
        let weights = |weights: &Option<Vec<f32>>| {
            let weights = weights.as_ref();
            weights
                .map(|weights| Array::from_slice(backend, weights, kind))
                .transpose()
        };
        let matrix = |value: &(dyn Fn(usize, usize) -> f32 + Sync)| {
            Matrix::from_rows(backend, (vertices, outputs), kind, |vertex, row| {
                row.iter_mut()
                    .enumerate()
                    .for_each(|(column, place)| *place = value(vertex_of(vertex), column));
            })
        };
        let answers = match (targets, goal.loss) {
            (Targets::Labels(labels), Loss::BinaryCrossEntropy { positive_weights }) => {
                Answers::Elements {
                    targets: matrix(&|vertex, column| f32::from(labels.has(vertex, column)))?,
                    kind: ElementKind::Binary(weights(positive_weights)?),
                }
            }
            (Targets::Values(values), loss) => Answers::Elements {
                targets: matrix(&|vertex, column| value_of(values.row(vertex)[column]))?,
                kind: match loss {
                    Loss::AbsoluteError => ElementKind::Absolute,
                    _ => ElementKind::Squared,
                },
            },
            (targets, loss) => {
                let labels = targets.classes().unwrap_or_default();
                let class_weights = match loss {
                    Loss::CrossEntropy { class_weights } => class_weights,
                    _ => &None,
                };
                let total = class_weights
                    .as_ref()
                    .map(|of| Loss::total(of, labels, goal.splits[0]));
                let labels: Vec<u32> = own.iter().map(|&vertex| labels[vertex as usize]).collect();
                Answers::Classes {
                    labels: upload(&labels)?,
                    weights: weights(class_weights)?.zip(total),
                }
            }
        };
        let unknown = Unknown::of(backend, targets, (vertices, outputs), vertex_of)?;
        Ok(Self(Arc::new(Task {
            graphs,
            features,
            of_types: Vec::new(),
            dropped: false,
            answers,
            unknown,
            splits: upload(&numbers)?,
            selected: upload(&selected)?,
            lists: goal.splits.map(<[u32]>::to_vec),
            targets: targets.clone(),
            vertices,
            outputs,
            row_weights: None,
            ranks,
        })))
    }

    /// The task of distinguishing edges from other pairs of vertices. Scores come from a model's `width` outputs per
    /// vertex and its [decoder](crate::nn::Model::decoder), or are dot products where it has none. `graph` is
    /// [`LinkSplit::graph`] as the model needs it.
    ///
    /// # Errors
    /// [`Error::Shape`] where sizes do not agree, [`Error::Driver`] where there is not enough memory.
    pub fn of_links(
        backend: &B,
        graph: Propagation<B>,
        features: Matrix<B, E>,
        width: usize,
        split: &LinkSplit,
    ) -> Result<Self, Error> {
        let vertices = split.graph.vertices();
        Error::expect(NAME, "vertices of the graph", vertices, graph.sources())?;
        Error::expect(NAME, "rows of the features", vertices, features.rows())?;
        let empty = || Array::zeros(backend, 0, MemoryKind::Features);
        Ok(Self(Arc::new(Task {
            graphs: vec![graph],
            features: Arc::new(features.into()),
            of_types: Vec::new(),
            dropped: false,
            answers: Answers::Links(Box::new(Links::new(backend, split)?)),
            unknown: None,
            splits: empty()?,
            selected: empty()?,
            lists: [Vec::new(), Vec::new(), Vec::new()],
            targets: Targets::Classes(Vec::new()),
            vertices,
            outputs: width,
            row_weights: None,
            ranks: None,
        })))
    }

    /// Whether it is link prediction.
    pub(super) fn is_of_links(&self) -> bool {
        matches!(self.0.answers, Answers::Links(_))
    }

    /// Whether there is no validation split, so that no epoch is better than another.
    pub(super) fn lacks_validation(&self) -> bool {
        match &self.0.answers {
            Answers::Links(links) => links.edges[Split::Validation as usize].is_empty(),
            _ => self.0.lists[Split::Validation as usize].is_empty(),
        }
    }

    /// Whether each step does different work, so that none can be recorded.
    pub(super) fn changes(&self) -> bool {
        self.is_of_links()
    }

    /// The task for `members`, vertices or whole graphs, with zeroed arrays, for a backend that only counts memory.
    /// `group` has the rank, where there are several.
    pub(super) fn counted(
        backend: &B,
        graphs: Vec<Propagation<B>>,
        features: Arc<FeatureRows<B, E>>,
        ([members, outputs], targets): ([usize; 2], TargetKind),
        group: Option<Group>,
    ) -> Result<Self, Error> {
        let kind = MemoryKind::Features;
        let numbers = || Array::zeros(backend, members, kind);
        let elements = |kind| {
            Ok::<_, Error>(Answers::Elements {
                targets: Matrix::zeros(backend, members, outputs, MemoryKind::Features)?,
                kind,
            })
        };
        let answers = match targets {
            TargetKind::Classes => Answers::Classes {
                labels: numbers()?,
                weights: None,
            },
            TargetKind::Labels { .. } => elements(ElementKind::Binary(None))?,
            TargetKind::Values { .. } => elements(ElementKind::Squared)?,
        };
        let targets = targets.example(outputs)?;
        Ok(Self(Arc::new(Task {
            graphs,
            features,
            of_types: Vec::new(),
            dropped: false,
            answers,
            unknown: Unknown::counted(backend, &targets, (members, outputs))?,
            splits: numbers()?,
            selected: numbers()?,
            lists: [vec![0], Vec::new(), Vec::new()],
            targets,
            vertices: members,
            outputs,
            row_weights: None,
            ranks: group.map(|group| Ranks {
                group,
                vertices: Vec::new(),
                counts: Vec::new(),
            }),
        })))
    }

    /// Multiplies the loss of each vertex by its weight and divides the sum by `divisor`. The loss of a subgraph is
    /// then, on average, that of the whole graph.
    pub(super) fn weighing(
        mut self,
        backend: &B,
        weights: &[f32],
        divisor: f32,
    ) -> Result<Self, Error> {
        Error::expect(NAME, "weights of vertices", self.0.vertices, weights.len())?;
        let weights = Array::from_slice(backend, weights, MemoryKind::Features)?;
        let task = Arc::get_mut(&mut self.0).expect("a task that was just made is nobody else's");
        task.row_weights = Some((weights, divisor));
        Ok(self)
    }

    /// Replaces the targets by those of other vertices, at most as many; further rows have none. The loss of each
    /// vertex is multiplied by `weight`.
    pub(super) fn tell_again(
        &mut self,
        backend: &B,
        targets: &Targets,
        weight: f32,
    ) -> Result<(), Error> {
        let (task, told) = (self.task_mut(), targets.vertices());
        let selected: Vec<u32> = (0..task.vertices)
            .map(|row| match targets {
                _ if row >= told => NO_TARGET,
                Targets::Classes(labels) => labels[row],
                _ => Split::Train as u32,
            })
            .collect();
        task.selected.write(backend, &selected)?;
        if let Some((weights, _)) = &mut task.row_weights {
            weights.write(backend, &vec![weight; task.vertices])?;
        }
        if let Answers::Elements {
            targets: values, ..
        } = &mut task.answers
        {
            let columns = task.outputs;
            let mut rows = vec![0.0; task.vertices * columns];
            for (row, to) in rows.chunks_exact_mut(columns.max(1)).take(told).enumerate() {
                match targets {
                    Targets::Labels(labels) => (to.iter_mut().enumerate())
                        .for_each(|(column, to)| *to = f32::from(labels.has(row, column))),
                    Targets::Values(values) => (to.iter_mut().zip(values.row(row)))
                        .for_each(|(to, &value)| *to = value_of(value)),
                    // Classes have no elements.
                    _ => {}
                }
            }
            values.write_f32(backend, &rows)?;
        }
        match &mut task.unknown {
            Some(unknown) => unknown.write(backend, targets),
            None => Ok(()),
        }
    }

    /// The content of the task, to be changed between steps.
    ///
    /// # Panics
    /// Where another handle of the task exists.
    pub(super) fn task_mut(&mut self) -> &mut Task<B, E> {
        Arc::get_mut(&mut self.0).expect("a batch is given back before the next one is asked for")
    }

    /// The same, with features that the dropout that a model begins with was applied to.
    pub(super) fn of_dropped(mut self) -> Self {
        self.task_mut().dropped = true;
        self
    }

    /// The divisor of the loss over the vertices `train`: the number of vertices or known elements, or the sum of class
    /// weights.
    pub(super) fn divisor(&self, loss: &Loss, train: &[u32]) -> f32 {
        match (loss, &self.0.targets) {
            (
                Loss::CrossEntropy {
                    class_weights: Some(weights),
                },
                Targets::Classes(classes),
            ) => Loss::total(weights, classes, train),
            (_, Targets::Classes(_)) => train.len() as f32,
            _ => self.elements(train),
        }
    }

    /// The number of known elements in the targets of some vertices.
    fn elements(&self, vertices: &[u32]) -> f32 {
        let Task {
            targets, outputs, ..
        } = &*self.0;
        match targets.is_partial() {
            false => vertices.len() as f32 * *outputs as f32,
            true => {
                let known = |&vertex: &u32| targets.known_of(vertex as usize);
                vertices.iter().map(known).sum::<usize>() as f32
            }
        }
    }

    /// The inputs of a model. Features that are not [whole](FeatureRows::are_whole) are not included, so a pass over
    /// all of them is refused.
    pub fn inputs<'a>(&'a self, backend: &'a B) -> Inputs<'a, B, E> {
        Inputs {
            backend,
            graphs: &self.0.graphs,
            features: self.0.features.matrix(),
            of_types: &self.0.of_types,
            dropped: self.0.dropped,
        }
    }

    /// The ranks that share the task, where there are several.
    pub fn group(&self) -> Option<&Group> {
        self.0.ranks.as_ref().map(|ranks| &ranks.group)
    }

    /// The number of vertices that a model predicts.
    pub fn vertices(&self) -> usize {
        self.0.vertices
    }

    /// The number of outputs per vertex: one for each class, label or value.
    pub fn outputs(&self) -> usize {
        self.0.outputs
    }

    /// Computes the loss of the training vertices, and its gradient times the loss scale.
    pub(super) fn loss(
        &self,
        backend: &B,
        operands: LinkOperands<'_, B, E>,
        state: &OptimizerState<B>,
        loss: &mut Array<B, f32>,
    ) -> Result<(), Error> {
        let (logits, gradient) = (operands.logits, operands.gradient);
        let Task {
            answers,
            selected,
            lists: [train, ..],
            row_weights,
            unknown,
            ..
        } = &*self.0;
        let (row_weights, divisor) = match row_weights {
            Some((weights, divisor)) => (Some(weights), Some(*divisor)),
            None => (None, None),
        };
        match answers {
            Answers::Classes { weights, .. } => {
                let (weights, total) = match weights {
                    Some((weights, total)) => (Some(weights), *total),
                    None => (None, train.len() as f32),
                };
                let operands = CrossEntropyOperands {
                    logits,
                    targets: selected,
                    weights,
                    row_weights,
                    divisor: divisor.unwrap_or(total),
                    state,
                    gradient,
                    loss,
                };
                ops::cross_entropy_of(backend, operands)
            }
            Answers::Links(links) => {
                let operands = LinkOperands {
                    logits,
                    gradient,
                    decoder: operands.decoder,
                };
                links.loss(backend, operands, state, loss)
            }
            Answers::Elements { targets, kind } => {
                let replaced = unknown.as_ref();
                let replaced = replaced.map(|unknown| unknown.replaced(backend, logits));
                let replaced = replaced.transpose()?;
                let operands = ElementLossOperands {
                    kind: kind.loss(),
                    logits: replaced.as_deref().unwrap_or(logits),
                    targets,
                    rows: selected,
                    row_weights,
                    divisor: divisor.unwrap_or_else(|| self.elements(train)),
                    state,
                    gradient,
                    loss,
                };
                ops::element_loss_of(backend, operands)
            }
        }
    }
}

/// A value as stored on a device: 0 where it is unknown, which [`Unknown`] replaces in the logits as well.
fn value_of(value: f32) -> f32 {
    if value.is_nan() { 0.0 } else { value }
}

/// The index of each vertex's split, or [`NO_TARGET`].
fn number_vertices(
    targets: &Targets,
    outputs: usize,
    splits: [&[u32]; 3],
) -> Result<Vec<u32>, Error> {
    let refuse = |reason: String| {
        Err(Error::Unsupported {
            operator: NAME,
            reason,
        })
    };
    let vertices = targets.vertices();
    let mut numbers = vec![NO_TARGET; vertices];
    for (list, split) in splits.into_iter().zip(Split::ALL) {
        for &vertex in list {
            let Some(place) = numbers.get_mut(vertex as usize) else {
                return refuse(format!(
                    "the {split} split names vertex {vertex} of {vertices}"
                ));
            };
            if *place != NO_TARGET {
                let other = Split::ALL[*place as usize];
                return refuse(format!(
                    "vertex {vertex} is in the {other} split and again in the {split} split"
                ));
            }
            if let Targets::Classes(labels) = targets
                && let label = labels[vertex as usize]
                && label as usize >= outputs
            {
                return refuse(format!(
                    "vertex {vertex} has label {label}, but there are {outputs} classes"
                ));
            }
            if !targets.is_labelled(vertex as usize) {
                return refuse(format!(
                    "vertex {vertex} is in the {split} split, and has no label"
                ));
            }
            *place = split as u32;
        }
    }
    if splits[Split::Train as usize].is_empty() {
        return refuse("no vertex is in the training split".into());
    }
    Ok(numbers)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_vertex_gets_the_number_of_its_split() {
        let numbers =
            number_vertices(&vec![0, 1, 9, 1, 0].into(), 2, [&[3], &[0, 1], &[4]]).unwrap();
        assert_eq!(numbers, [1, 1, NO_TARGET, 0, 2]);
    }

    #[test]
    fn splits_that_are_none_are_refused() {
        let refused = |labels: &[u32], splits| {
            number_vertices(&labels.to_vec().into(), 2, splits)
                .unwrap_err()
                .to_string()
        };
        assert!(refused(&[0, 1], [&[], &[0], &[1]]).contains("no vertex is in the training split"));
        assert!(
            refused(&[0, 1], [&[0], &[2], &[]])
                .contains("the validation split names vertex 2 of 2")
        );
        assert!(
            refused(&[0, 1], [&[1], &[], &[1]])
                .contains("vertex 1 is in the training split and again in the test split")
        );
        assert!(
            refused(&[0, 2], [&[0], &[], &[1]])
                .contains("vertex 1 has label 2, but there are 2 classes")
        );
    }
}
