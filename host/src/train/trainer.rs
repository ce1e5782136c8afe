//! The training loop.

use super::evaluation::Evaluation;
use super::fixed_batches::PLACES;
use super::progress::{self, StepTimes};
use super::recorded::Recorded;
use super::snapshot;
use super::{
    Batches, Clipping, Decay, EpochReport, Few, MixedPrecision, Objective, Progress, RunSummary,
    Schedule, Score, Split, Tensors,
};
use crate::backend::{Backend, Floats, MemoryKind};
use crate::data::FeatureRows;
use crate::distributed::{GatherPool, Group};
use crate::error::Error;
use crate::metrics::Metric;
use crate::nn::{Mode, Model, Pieces};
use crate::ops::{
    self, AdamHyper, Dropout, LossScaling, Optimizer, OptimizerSnapshot, OptimizerState,
    RandomState,
};
use crate::tensor::{Array, Element, Matrix, Precision};
use serde::{Deserialize, Serialize};
use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::Instant;

/// The training configuration.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct TrainConfig {
    /// The number of training steps, each on the whole graph.
    pub epochs: u32,
    /// The optimiser. A file has it under its own name, such as `adam`.
    #[serde(flatten)]
    pub optimizer: Optimizer,
    /// The learning rate schedule.
    #[serde(default, skip_serializing_if = "Schedule::is_default")]
    pub schedule: Schedule,
    /// How gradients are clipped before each step.
    #[serde(default, skip_serializing_if = "Clipping::is_default")]
    pub clipping: Clipping,
    /// How the loss scale follows overflows.
    pub scaling: LossScaling,
    /// Seed of the dropout masks.
    pub seed: u64,
    /// Whether a step is recorded once and replayed, where the device benefits. The results are the same.
    pub record: bool,
    /// The metric whose value on the validation vertices determines the best epoch. Where absent it depends on the
    /// task: accuracy for classes, micro F1 for labels, mean absolute error for values, ROC AUC for links.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub metric: Option<Metric>,
    /// Other metrics that are reported.
    #[serde(default, skip_serializing_if = "Few::is_empty")]
    pub others: Few<Metric>,
    /// The number of epochs without an improved validation score after which a run ends, at least one. Without a
    /// validation score it never does.
    pub early_stopping: Option<u32>,
    /// Whether the weights of the best validation epoch are kept on the host, for a [`Snapshot`](super::Snapshot).
    /// Where no epoch has a validation score, a snapshot has the present weights.
    pub keep_best: bool,
    /// The number of consecutive epochs without a finite loss after which a run is aborted.
    pub patience_non_finite: u32,
}

impl TrainConfig {
    /// The option that follows a validation score, if there is one. Callers can refuse it where nothing is validated.
    pub fn follows_validation(&self) -> Option<&'static str> {
        match (self.early_stopping, self.schedule.decay) {
            (Some(_), _) => Some("early stopping"),
            (None, Decay::Plateau { .. }) => Some("the plateau schedule"),
            (None, _) => None,
        }
    }

    /// 200 epochs of Adam at 0.01 with weight decay 5e-4, as is usual for citation graphs.
    pub fn new(precision: Precision) -> Self {
        Self {
            epochs: 200,
            optimizer: Optimizer::Adam(AdamHyper {
                weight_decay: 5e-4,
                ..AdamHyper::default()
            }),
            schedule: Schedule::default(),
            clipping: Clipping::None,
            scaling: MixedPrecision::of(precision).loss_scaling,
            seed: 0,
            record: true,
            metric: None,
            others: Few::default(),
            early_stopping: None,
            keep_best: false,
            patience_non_finite: 10,
        }
    }
}

/// A model in training. It borrows nothing: backend and objective are handles, and it owns the model until
/// [`Trainer::into_model`] returns it.
#[derive(Debug)]
pub struct Trainer<B: Backend, E: Element, M: Model<B, E>> {
    pub(super) backend: B,
    /// The task that is evaluated.
    pub(super) objective: Objective<B, E>,
    /// The task that is trained on.
    training: Objective<B, E>,
    /// The batches of training, where it is not on the whole task.
    batches: Option<Batches<B, E>>,
    /// The ranks that train on parts of each batch. Each of them has the whole task.
    pub(super) together: Option<Group>,
    pub(super) model: M,
    pub(super) config: TrainConfig,
    optimizer: OptimizerState<B>,
    /// The present factor of the learning rate.
    rate_factor: f32,
    /// Its count is that of the optimiser's steps.
    random: RandomState<B>,
    /// The loss of a step; one for each place of batches.
    pub(super) losses: Vec<Array<B, f32>>,
    /// The index of the last step's loss.
    pub(super) latest: usize,
    /// The buffers of loss and gradients of all ranks.
    gathered: GatherPool<B>,
    evaluation: Evaluation<B>,
    /// Present where it is evaluated in pieces.
    pieces: Option<Pieces<E>>,
    recorded_step: Recorded<B>,
    recorded_evaluation: Recorded<B>,
    /// A step on a batch in each place of batches.
    pub(super) recorded_batches: [Recorded<B>; PLACES],
    /// Whether steps on batches are recorded.
    pub(super) records_batches: bool,
    pub(super) progress: Progress,
    times: StepTimes,
    /// The weights at the best validation epoch.
    pub(super) best: Option<Tensors>,
    /// Whether the present model has read the features of all vertices.
    has_shown_features: bool,
}

/// The report of a step on a batch.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct BatchReport {
    /// The current epoch, from 1 on.
    pub epoch: u32,
    /// The number of its batches that are done.
    pub batch: usize,
    /// The number of its batches.
    pub of: usize,
    /// The mean loss of this batch's vertices, before its step.
    pub loss: f32,
}

/// The operands of a user-defined loss: see [`Trainer::step_with`].
#[derive(Debug)]
pub struct CustomLoss<'a, B: Backend, E: Element> {
    /// The backend of the matrices.
    pub backend: &'a B,
    /// The model's outputs, a row for each vertex.
    pub logits: &'a Matrix<B, E>,
    /// The factor of the gradient, so that it does not underflow in half: a power of two, 1 in float.
    pub loss_scale: f32,
    /// The gradient of the loss with respect to the logits, to be written: vertices × logits, uninitialized.
    pub gradient: &'a mut Matrix<B, E>,
}

/// The scores of the first rank. They may differ between GPUs in the last digits, and all ranks must decide alike.
fn of_first(group: &Group, (mut score, others): Scores) -> Result<Scores, Error> {
    let mut others: Vec<Score> = others.iter().collect();
    let mut all: Vec<&mut Score> = std::iter::once(&mut score).chain(&mut others).collect();
    let values = all
        .iter()
        .flat_map(|score| Split::ALL.map(|split| score.of(split)));
    let values: Vec<f64> = values.collect();
    let first = group.gather("scores", &values)?.swap_remove(0);
    for (score, values) in all.iter_mut().zip(first.chunks_exact(Split::ALL.len())) {
        **score = Score::new(score.metric, [values[0], values[1], values[2]]);
    }
    // There are as many as before.
    Ok((score, Few::try_from(others).unwrap_or_default()))
}

/// The values of the metric that chooses the epoch, and of the others.
type Scores = (Score, Few<Score>);

/// Refuses a model with the wrong number of outputs, or with a decoder that the task does not use.
fn expect_outputs<B: Backend, E: Element>(
    objective: &Objective<B, E>,
    model: &impl Model<B, E>,
) -> Result<(), Error> {
    if let (Some(decoder), false) = (model.decoder(), objective.is_of_links()) {
        return Err(Error::Unsupported {
            operator: "Trainer",
            reason: format!(
                "the model has a decoder of links, {}, and the task tells none; leave the decoder out",
                decoder.kind()
            ),
        });
    }
    Error::expect(
        "Trainer",
        "logits of the model",
        objective.outputs(),
        model.classes(),
    )
}

/// Whether ranks, where there are some, exchange nothing through the host.
fn is_by_devices(group: Option<&Group>) -> bool {
    group.is_none_or(|ranks| ranks.library().is_some())
}

impl<B: Backend, E: Element, M: Model<B, E>> Trainer<B, E, M> {
    /// A trainer before its first step.
    ///
    /// # Errors
    /// [`Error::Shape`] where the model has another number of outputs than there are classes, labels or values.
    /// [`Error::Unsupported`] where a metric does not apply to them, [`Error::Driver`] where there is not enough
    /// memory.
    pub fn new(
        backend: &B,
        objective: &Objective<B, E>,
        model: M,
        config: TrainConfig,
    ) -> Result<Self, Error> {
        Self::inductive(backend, objective, objective, model, config)
    }

    /// A trainer that trains on one task and is evaluated on another with as many outputs. It is for inductive
    /// training, which sees only the subgraph of the training vertices
    /// ([`Graph::induced`](crate::graph::Graph::induced)) and predicts the whole graph.
    ///
    /// # Errors
    /// Those of [`Trainer::new`].
    pub fn inductive(
        backend: &B,
        training: &Objective<B, E>,
        objective: &Objective<B, E>,
        mut model: M,
        config: TrainConfig,
    ) -> Result<Self, Error> {
        expect_outputs(objective, &model)?;
        expect_outputs(training, &model)?;
        for parameter in model.parameters_mut() {
            parameter.keep_moments(backend, config.optimizer.moments())?;
        }
        // Buffers of other shapes are allocated anew in each step, and new samples cannot be replayed.
        let same = Arc::ptr_eq(&training.0, &objective.0) && !objective.changes();
        // Nor can an exchange through the host.
        let by_devices = is_by_devices(training.group());
        let config = TrainConfig {
            record: config.record && same && by_devices,
            ..config
        };
        let optimizer = OptimizerState::new(backend, &config.scaling)?;
        Ok(Self {
            random: optimizer.random(config.seed),
            backend: backend.clone(),
            objective: objective.clone(),
            training: training.clone(),
            batches: None,
            together: None,
            model,
            config,
            optimizer,
            rate_factor: 1.0,
            losses: vec![Array::zeros(backend, 1, MemoryKind::Workspace)?],
            latest: 0,
            gathered: GatherPool::new(),
            evaluation: Evaluation::new(backend, objective, &config)?,
            pieces: None,
            recorded_step: Recorded::new(config.record),
            recorded_evaluation: Recorded::new(config.record),
            recorded_batches: Default::default(),
            records_batches: false,
            progress: Progress::default(),
            times: StepTimes::default(),
            best: None,
            has_shown_features: false,
        })
    }

    /// A trainer whose epochs are one step on each batch. It is evaluated after each epoch on a whole task with as many
    /// outputs. The loss of an epoch is the mean over its vertices, each before the step on it.
    ///
    /// A step is recorded where batches use the same buffers each time. These are batches of [`Batches::of_sampling`]
    /// with a neighbour sampler, for models that ignore empty rows, on a device that benefits. All others have shapes
    /// of their own. [`Trainer::step`] and [`Trainer::gradients`] are for the whole task. The model
    /// [reads](Model::see_features) the features of the batches' task.
    ///
    /// Batches may be sharded [over ranks](Batches::among), each of which makes a trainer of the same model. A step is
    /// then on the parts of all ranks. Loss and gradients are the sums over ranks, in their order, with the divisor of
    /// the whole batch. Without dropout a step equals that of one rank on the same batch, except for the order of the
    /// terms.
    ///
    /// Each rank has its own dropout masks, its own statistics of batch normalisation and its own scales of 8-bit
    /// activations. Running statistics are the means over ranks. Scales of quantized messages are each rank's own in a
    /// first step, and then follow the largest magnitudes over all ranks. Each rank evaluates the whole task; the
    /// scores are those of the first, so all decide alike. All ranks have the same weights, bit for bit, after each
    /// step.
    ///
    /// # Errors
    /// Those of [`Trainer::new`] and of [`Model::see_features`].
    pub fn sampled(
        backend: &B,
        batches: Batches<B, E>,
        objective: &Objective<B, E>,
        model: M,
        config: TrainConfig,
    ) -> Result<Self, Error> {
        let together = batches.group().cloned();
        // An exchange through the host cannot be replayed. Sampling ahead for features on disk releases memory outside
        // of a recording.
        let records =
            config.record && is_by_devices(together.as_ref()) && !batches.reads_from_disk();
        let batches = batches.in_place(backend, records)?;
        let config = TrainConfig {
            record: false,
            ..config
        };
        let mut trainer = Self {
            batches: Some(batches),
            together,
            records_batches: records,
            ..Self::inductive(backend, objective, objective, model, config)?
        };
        trainer.random = trainer.optimizer.random(trainer.dropout_seed());
        trainer.forget_batches();
        // An error of reading the features is reported before the first step.
        if let Some(batches) = &trainer.batches {
            let features = batches.features();
            trainer.show_features(&features)?;
        }
        Ok(trainer)
    }

    /// The same, evaluated by [`Model::forward_in_pieces`], for a graph that does not fit on the device. The evaluated
    /// task then needs no graph, only features and targets of the vertices of `pieces`. Nothing is recorded, because
    /// the memory of a piece is released after it. Where only some rows are [requested](Pieces::asked_for), those are
    /// evaluated; they must include those of all splits.
    ///
    /// # Errors
    /// [`Error::Shape`] where they are of another number of vertices. [`Error::Unsupported`] for a task that several
    /// ranks share, and where the row of a vertex of a split is not requested.
    pub fn evaluated_in(mut self, pieces: Pieces<E>) -> Result<Self, Error> {
        let vertices = self.objective.vertices();
        Error::expect(
            "Trainer",
            "vertices of the pieces",
            vertices,
            pieces.vertices(),
        )?;
        if self.objective.group().is_some() {
            return Err(Error::Unsupported {
                operator: "Trainer",
                reason: "a rank has a piece of the graph by itself; leave the pieces out, or train with one rank".into(),
            });
        }
        if let Some(told) = pieces.asked() {
            pieces.check()?;
            self.objective = self.objective.of_requested(&self.backend, told)?;
            self.evaluation = Evaluation::new(&self.backend, &self.objective, &self.config)?;
        }
        Ok(self.in_pieces(pieces))
    }

    /// The same, evaluated in pieces whose rows are those of its task.
    pub(super) fn in_pieces(self, pieces: Pieces<E>) -> Self {
        let config = TrainConfig {
            record: false,
            ..self.config
        };
        Self {
            config,
            pieces: Some(pieces),
            recorded_step: Recorded::Never,
            recorded_evaluation: Recorded::Never,
            ..self
        }
    }

    /// The model.
    pub fn model(&self) -> &M {
        &self.model
    }

    /// The model, for changes between steps.
    pub fn model_mut(&mut self) -> &mut M {
        // Its matrices may be replaced by others than those that were recorded.
        self.recorded_step = Recorded::new(self.config.record);
        self.recorded_evaluation = Recorded::new(self.config.record);
        // The model itself may be replaced.
        self.has_shown_features = false;
        &mut self.model
    }

    /// The trained model.
    pub fn into_model(self) -> M {
        self.model
    }

    /// One training step. Nothing is transferred, and on a GPU the work may still be running on return.
    ///
    /// # Errors
    /// Those of the device.
    pub fn step(&mut self) -> Result<(), Error> {
        let mut recorded = std::mem::take(&mut self.recorded_step);
        self.begin(&recorded, "step");
        let done = recorded.run(&self.backend.clone(), || {
            self.gradients()?;
            self.update()
        });
        self.recorded_step = recorded;
        done
    }

    /// [`Trainer::step`] on another task with as many classes, such as a sampled batch. The features of all vertices
    /// that a model may need ([`Model::see_features`]) are those of the trainer's own task. The next batch has other
    /// memory, so neither steps nor evaluations are recorded from then on.
    ///
    /// # Errors
    /// Those of [`Trainer::new`], [`Trainer::step`] and [`Model::see_features`].
    pub fn step_on(&mut self, batch: &Objective<B, E>) -> Result<(), Error> {
        self.show_features(&self.training.0.features.clone())?;
        // Memory that is freed while a recording lives is not reused: see `Storage::record`.
        self.recorded_step = Recorded::Never;
        self.recorded_evaluation = Recorded::Never;
        self.gradients_of(batch)?;
        self.update()
    }

    /// Passes the features of all vertices to the model, unless it has read them.
    pub(super) fn show_features(&mut self, features: &FeatureRows<B, E>) -> Result<(), Error> {
        if !self.has_shown_features {
            self.model.see_features(&self.backend, features)?;
            self.has_shown_features = true;
        }
        Ok(())
    }

    /// Whether steps are replayed.
    pub fn is_recorded(&self) -> bool {
        matches!(self.recorded_step, Recorded::Ready(_))
    }

    /// Whether [batches](Trainer::sampled) use the same buffers each time.
    pub fn has_batches_in_place(&self) -> bool {
        self.batches.as_ref().is_some_and(Batches::are_in_place)
    }

    /// Whether steps on [batches](Trainer::sampled) read features from the matrix of all vertices on the device, and
    /// none are gathered.
    pub fn reads_features_in_place(&self) -> bool {
        self.batches.as_ref().is_some_and(Batches::read_in_place)
    }

    /// The first half of a step: loss and gradients at the present weights.
    ///
    /// # Errors
    /// Those of the device.
    pub fn gradients(&mut self) -> Result<(), Error> {
        self.gradients_of(&self.training.clone())
    }

    /// [`Trainer::step`] with a user-defined loss: `loss` writes its gradient with respect to the logits, times the
    /// loss scale. The scale is read from the device, so such steps synchronize and are never recorded.
    /// [`Trainer::loss`] does not change.
    ///
    /// ```
    /// use halfgnn::backend::Backend;
    /// use halfgnn::ops;
    /// use halfgnn::tensor::Element;
    /// use halfgnn::train::{CustomLoss, Trainer};
    /// # use halfgnn::nn::Model;
    ///
    /// /// Half the sum of the squares of all logits, whose gradient are the logits.
    /// fn shrink<B: Backend, E: Element>(of: CustomLoss<'_, B, E>) -> Result<(), halfgnn::Error> {
    ///     let scaled = ops::Combine {
    ///         x_factor: of.loss_scale,
    ///         ..ops::Combine::copy()
    ///     };
    ///     ops::combine(of.backend, &scaled, of.logits, of.gradient)
    /// }
    ///
    /// # fn step<B: Backend, E: Element, M: Model<B, E>>(
    /// #     trainer: &mut Trainer<B, E, M>,
    /// # ) -> Result<(), halfgnn::Error> {
    /// trainer.step_with(shrink)
    /// # }
    /// ```
    ///
    /// # Errors
    /// Those of `loss` and of [`Trainer::step`].
    pub fn step_with(
        &mut self,
        loss: impl FnOnce(CustomLoss<'_, B, E>) -> Result<(), Error>,
    ) -> Result<(), Error> {
        let loss_scale = self.optimizer()?.loss_scale;
        let Self {
            backend,
            objective,
            model,
            random,
            ..
        } = self;
        let inputs = objective.inputs(backend);
        let mode = Mode::Train { random: &*random };
        model.forward(inputs, mode)?;
        let (logits, gradient) = model.loss_operands();
        loss(CustomLoss {
            backend,
            logits,
            loss_scale,
            gradient,
        })?;
        model.backward(inputs, mode)?;
        self.add_up_ranks(&self.objective.clone())?;
        self.update()
    }

    /// The ranks that take steps together, where there are several.
    fn group(&self) -> Option<&Group> {
        self.objective.group().or(self.together.as_ref())
    }

    /// The seed of dropout. It differs between ranks that have parts of a batch, because a mask depends on a row's
    /// index. The rank changes the upper bits, because seeds of runs differ in the lower ones.
    fn dropout_seed(&self) -> u64 {
        let rank = self.together.as_ref().map_or(0, Group::rank);
        self.config.seed ^ (rank as u64) << 48
    }

    /// Sums loss and gradients over ranks, where several share the task.
    fn add_up_ranks(&mut self, objective: &Objective<B, E>) -> Result<(), Error> {
        let Some(group) = objective.group().or(self.together.as_ref()) else {
            return Ok(());
        };
        let mut terms = vec![Floats::Array(&mut self.losses[self.latest])];
        let parameters = self.model.parameters_mut().into_iter();
        terms.extend(parameters.map(|parameter| Floats::Matrix(parameter.gradient_mut())));
        group.sum(&self.backend, "gradients", &mut self.gathered, terms)?;
        let shared = match self.together {
            Some(_) => self.model.shared_mut(),
            None => self.model.watched_mut(),
        };
        let shared: Vec<_> = shared.into_iter().map(Floats::Matrix).collect();
        match shared.is_empty() {
            true => Ok(()),
            false => group.largest(&self.backend, "largest", &mut self.gathered, shared),
        }
    }

    /// Makes errors of ranks name `what` from now on, where it is replayed and does not name itself.
    pub(super) fn begin(&self, recorded: &Recorded<B>, what: &str) {
        if let (Recorded::Ready(_), Some(group)) = (recorded, self.group()) {
            group.begin(what);
        }
    }

    /// Whether any of the ranks that share the task has `says` set; all get the same answer. All call it at the same
    /// time, so that a run on several ranks ends on each of them at the same epoch. A single rank gets its own `says`.
    ///
    /// # Errors
    /// [`Error::Communication`].
    pub fn any_rank(&self, says: bool) -> Result<bool, Error> {
        match self.group() {
            Some(group) => group.any("end of the run", says),
            None => Ok(says),
        }
    }

    /// The dropout that a model's next step begins with, where it may be applied as features are gathered.
    pub(super) fn dropout_of_features(&self) -> Option<Dropout<'_, B>> {
        let mode = Mode::Train {
            random: &self.random,
        };
        self.model.dropout_of_features(mode)
    }

    pub(super) fn gradients_of(&mut self, objective: &Objective<B, E>) -> Result<(), Error> {
        expect_outputs(objective, &self.model)?;
        let Self {
            backend,
            model,
            optimizer,
            random,
            losses,
            latest,
            ..
        } = self;
        let inputs = objective.inputs(backend);
        let mode = Mode::Train { random: &*random };
        model.forward(inputs, mode)?;
        let operands = model.link_operands();
        objective.loss(backend, operands, optimizer, &mut losses[*latest])?;
        model.backward(inputs, mode)?;
        self.add_up_ranks(objective)
    }

    /// The second half of a step: the optimiser. Where a gradient is not finite, it only reduces the loss scale.
    ///
    /// # Errors
    /// Those of the device.
    pub fn update(&mut self) -> Result<(), Error> {
        let Self {
            backend,
            model,
            config,
            optimizer: state,
            ..
        } = self;
        let parameters = model.parameters();
        let mut gradients: Vec<_> = parameters
            .iter()
            .map(|parameter| parameter.gradient())
            .collect();
        let parameters = gradients.len();
        gradients.extend(model.watched());
        ops::check_finite(backend, &gradients, state)?;
        gradients.truncate(parameters);
        let clip_value = match config.clipping {
            Clipping::Norm(maximum) => {
                ops::clip_norm(backend, maximum, &gradients, state)?;
                None
            }
            Clipping::Value(largest) => Some(largest),
            Clipping::None => None,
        };
        // One update for all parameters that share a weight decay.
        let mut parameters = model.parameters_mut();
        parameters.sort_by(|a, b| a.decay().total_cmp(&b.decay()));
        for group in parameters.chunk_by_mut(|a, b| a.decay() == b.decay()) {
            let rule = &config.optimizer;
            let rule = rule.with_weight_decay(rule.weight_decay() * group[0].decay());
            for parameter in group.iter_mut() {
                // The parameters of a changed model may be new.
                parameter.keep_moments(backend, rule.moments())?;
            }
            let mut group: Vec<_> = group
                .iter_mut()
                .map(|parameter| parameter.for_optimizer())
                .collect::<Result<_, _>>()?;
            ops::update(backend, &rule, clip_value, state, &mut group)?;
        }
        ops::end_step(backend, &config.scaling, state)
    }

    /// Multiplies the learning rate by `factor` in the steps from now on. [`Trainer::next_epoch`] does this by
    /// [`TrainConfig::schedule`]. Callers of [`Trainer::step`] or [`Trainer::step_on`] have a schedule of their own.
    ///
    /// # Errors
    /// Those of the device.
    pub fn set_rate_factor(&mut self, factor: f32) -> Result<(), Error> {
        if factor != self.rate_factor {
            self.optimizer.set_rate_factor(&self.backend, factor)?;
            self.rate_factor = factor;
        }
        Ok(())
    }

    /// The learning rate of the next step.
    pub fn learning_rate(&self) -> f32 {
        self.config.optimizer.learning_rate() * self.rate_factor
    }

    /// The loss of the last step, the mean over the training vertices.
    ///
    /// # Errors
    /// The failure of an earlier operator.
    pub fn loss(&self) -> Result<f32, Error> {
        Ok(self.losses[self.latest].to_vec(&self.backend)?[0])
    }

    /// Loss scale and step count.
    ///
    /// # Errors
    /// The failure of an earlier operator.
    pub fn optimizer(&self) -> Result<OptimizerSnapshot, Error> {
        self.optimizer.snapshot(&self.backend)
    }

    /// Resumes with the loss scale and the counts of `snapshot`.
    pub(super) fn resume_optimizer(&mut self, snapshot: &OptimizerSnapshot) -> Result<(), Error> {
        self.optimizer = OptimizerState::resume(&self.backend, snapshot)?;
        self.rate_factor = 1.0;
        self.random = self.optimizer.random(self.dropout_seed());
        Ok(())
    }

    /// The value of the metric that chooses the epoch for the present model, without dropout, and the values of the
    /// others.
    ///
    /// # Errors
    /// Those of the device.
    pub fn evaluate(&mut self) -> Result<(Score, Few<Score>), Error> {
        let mut recorded = std::mem::take(&mut self.recorded_evaluation);
        self.begin(&recorded, "evaluation");
        let done = recorded.run(&self.backend.clone(), || self.predict());
        self.recorded_evaluation = recorded;
        done?;
        let logits = self.model.logits();
        let evaluation = &self.evaluation;
        let scores = evaluation.scores(&self.backend, &self.objective, logits)?;
        match &self.together {
            Some(group) => of_first(group, scores),
            None => Ok(scores),
        }
    }

    /// A forward pass without dropout, and the counts of its metrics on the device.
    fn predict(&mut self) -> Result<(), Error> {
        let Self {
            backend,
            objective,
            model,
            evaluation,
            pieces,
            ..
        } = self;
        match pieces {
            Some(pieces) => {
                model.forward_in_pieces(backend, &objective.0.features, pieces, &[])?;
            }
            None if !objective.0.features.are_whole() => {
                return Err(Error::Unsupported {
                    operator: "Trainer",
                    reason: "features that stay on disk or are dealt out to ranks are evaluated in pieces of the graph; call Trainer::evaluated_in".into(),
                });
            }
            None => model.forward(objective.inputs(backend), Mode::Evaluate)?,
        }
        evaluation.count(backend, objective, (model.logits(), model.decoder()))
    }

    /// The progress of the run.
    pub fn progress(&self) -> &Progress {
        &self.progress
    }

    /// A training step, timed, and the evaluation after it; `None` where the run has ended. A
    /// [sampled](Trainer::sampled) run takes a step on each batch.
    ///
    /// # Errors
    /// Those of the device. A loss that is not finite is no error: see [`Status::Diverged`](super::Status).
    pub fn next_epoch(&mut self) -> Result<Option<EpochReport>, Error> {
        self.next_epoch_with(|_| ControlFlow::Continue(()))
    }

    /// [`Trainer::next_epoch`] that reports each batch of a sampled run to `observe`. Where `observe` ends it, the
    /// epoch stops between two batches, and the result is `None`. [`Progress::part`] has its progress, from which the
    /// next call continues, also in a trainer that is [restored](Trainer::restore) from a snapshot. A step in progress
    /// is completed and reported as well. A [recorded](Trainer::sampled) run has one, which may be the epoch's last.
    ///
    /// # Errors
    /// Those of [`Trainer::next_epoch`].
    pub fn next_epoch_with(
        &mut self,
        observe: impl FnMut(&BatchReport) -> ControlFlow<()>,
    ) -> Result<Option<EpochReport>, Error> {
        if self.progress.end(&self.config).is_some() {
            return Ok(None);
        }
        let epoch = self.progress.epoch + 1;
        if let Some(group) = self.group() {
            group.set_epoch(epoch);
        }
        let TrainConfig {
            schedule, epochs, ..
        } = self.config;
        self.set_rate_factor(schedule.factor(epoch, epochs, &self.progress.plateau) as f32)?;
        let (loss, ms) = match self.batches.take() {
            Some(mut batches) => {
                let done = self.learn_batches(&mut batches, epoch, observe);
                // Memory that evaluations release must be reusable.
                self.forget_batches();
                batches.forget();
                self.batches = Some(batches);
                let Some(part) = done? else {
                    return Ok(None);
                };
                (part.mean_loss(), part.ms)
            }
            None => {
                self.backend.synchronize()?;
                let start = Instant::now();
                self.step()?;
                self.backend.synchronize()?;
                let ms = start.elapsed().as_secs_f64() * 1e3;
                (self.loss()?, ms)
            }
        };

        let optimizer = self.optimizer()?;
        match loss.is_finite() {
            true => self.tell_overflow(epoch, &optimizer)?,
            false => self.tell_loss(epoch, loss)?,
        }
        let (score, others) = self.evaluate()?;
        let report = EpochReport {
            epoch,
            loss,
            learning_rate: self.learning_rate(),
            score,
            others,
            ms,
            optimizer,
        };
        self.times.add(ms);
        let better = self.progress.add(report);
        // Without a validation score, a plateau cannot be detected.
        if self.progress.best.is_some() {
            schedule.follow(epoch, better, &mut self.progress.plateau);
        }
        if better && self.config.keep_best {
            self.best = Some(snapshot::weights(&self.backend, &self.model)?);
        }
        Ok(Some(report))
    }

    /// A step in which this rank has no vertex: the gradients are those of the others.
    pub(super) fn step_of_others(&mut self) -> Result<(), Error> {
        self.losses[self.latest].write(&self.backend, &[0.0])?;
        for parameter in self.model.parameters_mut() {
            parameter.gradient_mut().clear(&self.backend)?;
        }
        self.model.sends_nothing(&self.backend)?;
        self.add_up_ranks(&self.objective.clone())?;
        self.update()
    }

    /// Replaces running statistics of batch normalisations by their means over ranks, each of which saw its part of a
    /// batch.
    pub(super) fn share_statistics(&mut self) -> Result<(), Error> {
        let Some(group) = &self.together else {
            return Ok(());
        };
        let statistics = self.model.statistics_mut().into_iter();
        let terms: Vec<_> = statistics.map(Floats::Matrix).collect();
        match terms.is_empty() {
            true => Ok(()),
            false => group.mean(&self.backend, "statistics", &mut self.gathered, terms),
        }
    }

    /// Where an overflow of the last step began: see [`Model::first_non_finite`].
    ///
    /// # Errors
    /// Those of a step.
    pub fn first_non_finite(&mut self) -> Result<Option<String>, Error> {
        let mode = Mode::Train {
            random: &self.random,
        };
        let inputs = self.objective.inputs(&self.backend);
        self.model.first_non_finite(inputs, mode)
    }

    /// Logs where an overflow of the last step began, if there was one and the level is enabled. The evaluation that
    /// follows overwrites it.
    fn tell_overflow(&mut self, epoch: u32, now: &OptimizerSnapshot) -> Result<(), Error> {
        let before = self.progress.last.map_or(0, |last| last.optimizer.skipped);
        if now.skipped > before && self.batches.is_some() {
            let (skipped, scale) = (now.skipped - before, now.loss_scale);
            tracing::info!(
                "epoch {epoch}: overflows in {skipped} steps, which were skipped; the loss scale is {scale} now"
            );
        } else if now.skipped > before && tracing::enabled!(tracing::Level::INFO) {
            let first = self.first_non_finite()?;
            let scale = now.loss_scale;
            tracing::info!(
                "epoch {epoch}: an overflow in {}; the step was skipped, the loss scale is {scale} now",
                first.as_deref().unwrap_or("a gradient")
            );
        }
        Ok(())
    }

    /// Warns of the first loss that is not finite, and reports where it began.
    fn tell_loss(&mut self, epoch: u32, loss: f32) -> Result<(), Error> {
        if self
            .progress
            .last
            .is_some_and(|last| !last.loss.is_finite())
        {
            return Ok(());
        }
        let first = match self.batches {
            Some(_) => None,
            None => self.first_non_finite()?,
        };
        let place = first.map_or_else(String::new, |first| {
            format!(", from an overflow in {first}")
        });
        tracing::warn!(
            "epoch {epoch}: the loss is {loss}{place}; no step is taken on it: take a mean of the neighbors, a norm between layers, a smaller learning rate, bfloat16 or float"
        );
        Ok(())
    }

    /// The summary of the run so far.
    pub fn summary(&self) -> RunSummary {
        progress::summary(&self.progress, &self.config, &self.times)
    }

    /// Trains to the end, evaluates after every epoch, and reports each to `observe`, which may end the run.
    ///
    /// # Errors
    /// Those of [`Trainer::next_epoch`].
    pub fn run(
        &mut self,
        mut observe: impl FnMut(&EpochReport) -> ControlFlow<()>,
    ) -> Result<RunSummary, Error> {
        while let Some(report) = self.next_epoch()? {
            if self.any_rank(observe(&report).is_break())? {
                break;
            }
        }
        Ok(self.summary())
    }
}
