//! Training on batches.

mod ranks;

pub use ranks::{
    batches_are_recorded_around_features_of_ranks, batches_of_ranks_are_recorded,
    batches_of_ranks_are_those_of_one, features_of_ranks_are_those_of_the_device,
    ranks_agree_on_messages_of_batches, ranks_agree_on_overflows_of_batches,
    ranks_learn_batches_alike, ranks_store_activations_of_batches,
};

use crate::Scale;
use crate::task;
use crate::training::models_of_bits;
use half::f16;
use halfgnn::backend::{Backend, MemoryKind};
use halfgnn::data::parts::{Deal, FeaturePrecision};
use halfgnn::data::{
    Dataset, FeatureRows, Features, OpenOptions, Splits, StoredFeatures, Targets, most_read,
};
use halfgnn::graph::Graph;
use halfgnn::nn::{
    Binary, ConvolutionConfig, EdgeData, Gcn, Model, ModelConfig, Network, Norm, Pieces,
    Propagation,
};
use halfgnn::ops::RowCache;
use halfgnn::sample::{EdgesIn, Sampling, SamplingPolicy};
use halfgnn::tensor::{Element, Matrix};
use halfgnn::train::{
    BatchReport, Batches, Goal, Loss, Objective, Snapshot, SubgraphPlan, TrainConfig, Trainer,
};
use std::cell::Cell;
use std::ops::ControlFlow;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

const LOSS: Loss = Loss::CrossEntropy {
    class_weights: None,
};

/// A trainer of batches of `batch` training vertices of the small task.
fn sampled<B: Backend, E: Element>(
    backend: &B,
    model: &ModelConfig,
    how: (&str, usize),
    config: TrainConfig,
) -> Trainer<B, E, Network<B, E>> {
    let objective: Objective<B, E> = task::objective(backend, model.norm());
    let batches = batches(backend, &objective, model, how, config.seed);
    let network = Network::new(backend, model, 5).expect("a model");
    Trainer::sampled(backend, batches, &objective, network, config).expect("a trainer")
}

/// Batches of `batch` training vertices of a task on the small graph.
fn batches<B: Backend, E: Element>(
    backend: &B,
    objective: &Objective<B, E>,
    model: &ModelConfig,
    (policy, batch): (&str, usize),
    seed: u64,
) -> Batches<B, E> {
    let policy: SamplingPolicy = policy.parse().expect("a policy");
    let how = (&LOSS, model.norm());
    match policy.subgraphs() {
        Some(subgraphs) => {
            let graph = task::graph();
            let of = (&graph, None, model.edge_weights().is_ok());
            let plan = SubgraphPlan {
                subgraphs,
                batch,
                coverage: 3,
                seed,
            };
            Batches::of_subgraphs(backend, objective, how, of, plan).expect("batches")
        }
        None => {
            let sampler = policy.sampler(backend, (&task::graph(), EdgesIn::Device), false);
            let sampler = sampler.expect("room");
            Batches::new(objective, how, sampler, batch, seed).expect("batches")
        }
    }
}

/// Two layers of 16 columns, with dropout.
fn small(model: ModelConfig) -> ModelConfig {
    ModelConfig {
        hidden: 16,
        layers: 2,
        dropout: 0.4,
        ..model
    }
}

/// Where a device gains by it, batches lie in the same memory and steps on them are recorded. That changes no bit; and they learn what
/// batches in memory of their own learn, the last one of an epoch with fewer vertices and one that has no room among them.
pub fn batches_in_place_are_recorded<B: Backend>(backend: &B, _: Scale) {
    let models = [
        ModelConfig::gcn(task::FEATURES, task::CLASSES),
        ModelConfig::sage(task::FEATURES, task::CLASSES),
    ];
    let gains = backend.record(|| Ok(())).expect("nothing").is_some();
    let losses = |trainer: &mut Trainer<B, f32, Network<B, f32>>| {
        let mut losses = Vec::new();
        let observe = |report: &BatchReport| {
            losses.push(report.loss);
            ControlFlow::Continue(())
        };
        let mut observe = observe;
        while trainer
            .next_epoch_with(&mut observe)
            .expect("a step")
            .is_some()
        {}
        losses
    };
    // The row of the hub has no room beside those that were looked at.
    let one = ModelConfig {
        layers: 1,
        ..models[1].clone()
    };
    let [gcn, sage] = models.map(|model| ModelConfig {
        hidden: 24,
        layers: 2,
        ..model
    });
    for (model, policy, batch, epochs) in [
        (gcn, "neighbor:3,2", 12, 2),
        (sage, "neighbor:3,2", 12, 2),
        (one, "neighbor:-1", 1, 1),
    ] {
        let model = ModelConfig {
            dropout: 0.0,
            ..model
        };
        let config = TrainConfig {
            epochs,
            ..TrainConfig::new(f32::PRECISION)
        };
        let (objective, graph) = (task::objective(backend, model.norm()), task::graph());
        let policy: SamplingPolicy = policy.parse().expect("a policy");
        let trainer = |in_place, record| {
            let objective: &Objective<B, f32> = &objective;
            let batches = if in_place {
                let sampling = Sampling::of(policy.clone(), Some(batch), None);
                let how = (&LOSS, &model, model.layers);
                Batches::of_sampling(backend, objective, how, (&graph, None), (&sampling, 0))
            } else {
                let sampler =
                    policy.sampler(backend, (&graph, EdgesIn::Device), model.wants_self_loops());
                let how = (&LOSS, model.norm());
                Batches::new(objective, how, sampler.expect("room"), batch as usize, 0)
            };
            let network = Network::new(backend, &model, 5).expect("a model");
            let config = TrainConfig { record, ..config };
            Trainer::sampled(
                backend,
                batches.expect("batches"),
                objective,
                network,
                config,
            )
            .expect("a trainer")
        };
        let mut recorded = trainer(true, true);
        assert_eq!(recorded.has_batches_in_place(), gains);
        let of_recorded = losses(&mut recorded);
        let batches = 50_usize.div_ceil(batch as usize);
        assert_eq!(of_recorded.len(), epochs as usize * batches);
        assert_eq!(of_recorded, losses(&mut trainer(true, false)), "{policy}");
        let mut apart = trainer(false, true);
        assert!(!apart.has_batches_in_place());
        for (a, b) in of_recorded.iter().zip(losses(&mut apart)) {
            assert!(
                (a - b).abs() < 1e-4 * b.abs().max(1e-2),
                "{policy}: {a} and {b}"
            );
        }
    }
}

/// A batch that is drawn while the one before is learnt from is the one that is drawn when it is asked for, with the same of its features
/// dropped: a run that ends behind each batch, and so has none drawn ahead, has the same bits. So has one that ends behind the first and
/// drops what was drawn behind it, and one whose features lie in the host's memory, with copies of some on the device and without: there they
/// are taken, and not read in place.
pub fn batches_are_drawn_ahead<B: Backend>(backend: &B, _: Scale) {
    /// Six batches an epoch, the last with room left: twice as many as there are places.
    const BATCH: u32 = 9;
    let reads_in_place = Cell::new(false);
    let run = |model: &ModelConfig, ends: fn(usize) -> bool, record, (kind, copies)| {
        let objective: Objective<B, f32> =
            task::objective_in(backend, model.norm(), (None, 0, false), kind);
        if copies > 0 {
            let vertices = most_read(&task::graph(), copies);
            let rows = objective.feature_rows();
            rows.cache_rows(backend, &vertices).expect("room");
            assert_eq!(rows.cached().map(RowCache::len), Some(copies));
            // Once is enough.
            let again = rows.cache_rows(backend, &vertices).expect_err("copies");
            assert!(again.to_string().contains("have copies already"), "{again}");
        }
        let policy: SamplingPolicy = "neighbor:3,2".parse().expect("a policy");
        let sampling = Sampling::of(policy, Some(BATCH), None);
        let how = (&LOSS, model, model.layers);
        let of = (&task::graph(), None);
        let batches = Batches::of_sampling(backend, &objective, how, of, (&sampling, 0));
        let network = Network::<B, f32>::new(backend, model, 5).expect("a model");
        let config = TrainConfig {
            epochs: 2,
            record,
            ..TrainConfig::new(f32::PRECISION)
        };
        let batches = batches.expect("batches");
        let trainer = Trainer::sampled(backend, batches, &objective, network, config);
        let mut trainer = trainer.expect("a trainer");
        reads_in_place.set(trainer.reads_features_in_place());
        let mut losses = Vec::new();
        while losses.len() < 2 * 50_usize.div_ceil(BATCH as usize) {
            let observe = |report: &BatchReport| {
                losses.push(report.loss.to_bits());
                match ends(losses.len()) {
                    true => ControlFlow::Break(()),
                    false => ControlFlow::Continue(()),
                }
            };
            trainer.next_epoch_with(observe).expect("a step");
        }
        losses
    };
    let there = (MemoryKind::Features, 0);
    let on_host = |copies| (MemoryKind::HostFeatures, copies);
    let models = [
        ModelConfig::gcn(task::FEATURES, task::CLASSES),
        ModelConfig::sage(task::FEATURES, task::CLASSES),
    ];
    // These sum features up before anything else, and drop none: so they are read where those of all vertices lie, if that is on the device.
    let sage = ModelConfig::sage(task::FEATURES, task::CLASSES);
    let gcn = Gcn { norm: Norm::Right };
    let gcn = ModelConfig::of(gcn, task::FEATURES, task::CLASSES);
    // As wide as the features, and wider: of equal widths a layer sums up first on a block alone, and there is room for more of them than there
    // are vertices.
    let in_place = [(sage, task::FEATURES), (gcn, 24)].map(|(model, hidden)| ModelConfig {
        hidden,
        dropout_by_layer: vec![0.0, 0.4],
        ..model
    });
    let others = models.map(|model| (small(model), false));
    let gains = backend.record(|| Ok(())).expect("nothing").is_some();
    let in_place = in_place.map(|model| (model, gains));
    for (model, reads) in others.into_iter().chain(in_place) {
        let ahead = run(&model, |_| false, true, there);
        assert_eq!(reads_in_place.get(), reads, "{model:?}");
        assert_eq!(ahead, run(&model, |_| false, false, there), "not recorded");
        // Copies make no difference between those that are read in place and others.
        let kinds = match reads {
            true => &[there, on_host(0)][..],
            false => &[there, on_host(0), on_host(20)],
        };
        for &kind in kinds {
            assert_eq!(ahead, run(&model, |_| false, true, kind), "{kind:?}");
            assert_eq!(ahead, run(&model, |_| true, true, kind), "{kind:?}, all");
            // What is recorded then is replayed, in every place.
            assert_eq!(
                ahead,
                run(&model, |done| done == 1, true, kind),
                "{kind:?}, one"
            );
        }
    }
}

/// A mean over whole neighbourhoods is that of the graph, whatever the batch: one batch of all training vertices has the loss and the
/// gradients of a step on the graph.
pub fn whole_neighbourhoods_are_the_graph<B: Backend>(backend: &B, _: Scale) {
    let models = [
        ModelConfig::sage(task::FEATURES, task::CLASSES),
        ModelConfig::gat(task::FEATURES, task::CLASSES),
    ];
    for model in models {
        let model = ModelConfig {
            hidden: 16,
            layers: 2,
            dropout: 0.0,
            ..model
        };
        let config = TrainConfig {
            epochs: 1,
            ..TrainConfig::new(f32::PRECISION)
        };
        is_the_graph(backend, &model, ("neighbor:-1,-1", 10_000), config);
    }
}

/// Subgraphs of all vertices, drawn every time and so with norms of 1 or as clusters, are the graph.
pub fn subgraphs_of_all_are_the_graph<B: Backend>(backend: &B, _: Scale) {
    let models = [
        ModelConfig::gcn(task::FEATURES, task::CLASSES),
        ModelConfig::sage(task::FEATURES, task::CLASSES),
        ModelConfig::gin(task::FEATURES, task::CLASSES),
        ModelConfig::gat(task::FEATURES, task::CLASSES),
    ];
    for model in models {
        let model = ModelConfig {
            hidden: 16,
            layers: 2,
            dropout: 0.0,
            ..model
        };
        let config = TrainConfig {
            epochs: 1,
            ..TrainConfig::new(f32::PRECISION)
        };
        for how in [("cluster:1", 1), ("saint-rw:12000,4", 1)] {
            is_the_graph(backend, &model, how, config);
        }
    }
}

/// That one batch has the loss and the gradients of a step on the graph.
fn is_the_graph<B: Backend>(
    backend: &B,
    model: &ModelConfig,
    how: (&str, usize),
    config: TrainConfig,
) {
    let objective = task::objective::<B, f32>(backend, model.norm());
    let network = Network::new(backend, model, 5).expect("a model");
    let whole = Trainer::new(backend, &objective, network, config).expect("a trainer");
    let sampled = sampled::<B, f32>(backend, model, how, config);
    learn_alike(backend, whole, sampled, &format!("{how:?} of {model:?}"));
}

/// That both have the loss and the gradients of one step.
fn learn_alike<B: Backend>(
    backend: &B,
    mut whole: Trainer<B, f32, Network<B, f32>>,
    mut sampled: Trainer<B, f32, Network<B, f32>>,
    what: &str,
) {
    let of_whole = whole.next_epoch().expect("a step").expect("an epoch");
    let of_batch = sampled.next_epoch().expect("a step").expect("an epoch");
    let far = (of_whole.loss - of_batch.loss).abs();
    assert!(
        far < 1e-5 * of_whole.loss.abs(),
        "{what}: {of_whole:?} {of_batch:?}"
    );
    let gradients = |trainer: &Trainer<B, f32, Network<B, f32>>| {
        let parameters = trainer.model().parameters();
        let gradients = parameters.iter().map(|it| it.gradient().to_f32(backend));
        gradients
            .collect::<Result<Vec<_>, _>>()
            .expect("no failure")
    };
    for (of_whole, of_batch) in gradients(&whole).iter().zip(gradients(&sampled)) {
        let largest = of_whole.iter().fold(0.0_f32, |most, x| most.max(x.abs()));
        for (a, b) in of_whole.iter().zip(of_batch) {
            assert!(
                (a - b).abs() <= 1e-4 * largest,
                "{what}: {a} {b} of {largest}"
            );
        }
    }
}

/// Networks of one bit learn of a subgraph of all vertices what they do of the graph, to the bit, dropout included: where sums of
/// signs have no factors also of one that is drawn, whose edges have some elsewhere. Of means the factors of a subgraph, which the device
/// makes, are those of the host, to the bit.
pub fn subgraphs_of_all_are_the_graph_to_bits<B: Backend>(backend: &B, _: Scale) {
    let config = TrainConfig {
        epochs: 2,
        ..TrainConfig::new(f32::PRECISION)
    };
    for mut model in models_of_bits() {
        if let ConvolutionConfig::Gcn(gcn) = &mut model.convolution {
            gcn.norm = Norm::Right;
        }
        let objective = task::objective::<B, f32>(backend, model.norm());
        let network = Network::new(backend, &model, 5).expect("a model");
        let whole = Trainer::new(backend, &objective, network, config).expect("a trainer");
        let finish = |mut trainer: Trainer<B, f32, Network<B, f32>>| {
            while trainer.next_epoch().expect("a step").is_some() {}
            without_times(trainer.snapshot().expect("nothing failed"))
        };
        let mut of_whole = finish(whole);
        of_whole.progress.part = None;
        let of_signs = model.binary == Some(Binary::Bin);
        let drawn = of_signs.then_some(("saint-rw:12000,4", 1));
        for how in [("cluster:1", 1)].into_iter().chain(drawn) {
            let mut of_batch = finish(sampled(backend, &model, how, config));
            of_batch.progress.part = None;
            assert!(of_batch == of_whole, "{how:?} of {model:?}");
        }
    }
}

/// Features are normalised over all vertices, whichever are in a batch: of two halves of a graph that do not hear from one another, and whose
/// features are nothing alike, one learns by itself what it does beside the other. Also behind a change of the model, and of a
/// batch that somebody takes a step on.
pub fn bits_are_normalised_over_all_vertices<B: Backend>(backend: &B, _: Scale) {
    /// Vertices of the half that learns, a ring with chords.
    const HALF: u32 = 40;
    let hears = |half: u32, vertices: u32| {
        let next = move |hop: u32| (0..vertices).map(move |v| (v, (v + hop) % vertices));
        let edges = next(1).chain(next(vertices - 1)).chain(next(7));
        edges.map(move |(row, column)| (half + row, half + column))
    };
    let others = task::VERTICES as u32 - HALF;
    let edges = hears(0, HALF).chain(hears(HALF, others));
    let (rows, columns): (Vec<u32>, Vec<u32>) = edges.unzip();
    let graph = Graph::from_edges(task::VERTICES, &rows, &columns).expect("ids are in range");
    let mut features = task::features();
    let of_others = &mut features[HALF as usize * task::FEATURES..];
    of_others
        .iter_mut()
        .for_each(|value| *value = 3.0 * *value + 1.0);
    let (labels, all) = (task::labels(), (0..HALF).collect::<Vec<u32>>());
    let config = TrainConfig {
        epochs: 1,
        ..TrainConfig::new(f32::PRECISION)
    };
    for model in models_of_bits() {
        let model = ModelConfig {
            dropout: 0.0,
            ..model
        };
        let prepared = model.prepare(&graph).expect("a graph");
        let task_on = |graph: &Graph, vertices: usize| {
            let features = &features[..vertices * task::FEATURES];
            let kind = MemoryKind::Features;
            let features = Matrix::from_f32(backend, vertices, task::FEATURES, features, kind);
            let graph = Propagation::new(backend, graph, model.norm()).expect("room");
            let (labels, splits) = (&labels[..vertices], [&all[..], &[], &[]]);
            let features = features.expect("room");
            Objective::new(backend, graph, features, labels, task::CLASSES, splits)
                .expect("a whole task")
        };
        let objective = task_on(&prepared, task::VERTICES);
        let trainer = || {
            let network = Network::new(backend, &model, 5).expect("a model");
            Trainer::new(backend, &objective, network, config).expect("a trainer")
        };
        // All of the half are met.
        let policy: SamplingPolicy = "saint-rw:4000,2".parse().expect("a policy");
        let sampling = Sampling::of(policy, None, Some(3));
        let batches = || {
            let how = (&LOSS, &model, model.layers);
            let of = (&graph, None);
            Batches::of_sampling(backend, &objective, how, of, (&sampling, 0)).expect("batches")
        };
        let (batch, learnt) = batches().batch(backend, 0, 0).expect("a batch");
        assert_eq!((batch.vertices(), learnt), (HALF as usize, HALF as usize));
        let sampled = || {
            let network = Network::new(backend, &model, 5).expect("a model");
            Trainer::sampled(backend, batches(), &objective, network, config).expect("a trainer")
        };
        let what = format!("{model:?}");
        learn_alike(backend, trainer(), sampled(), &what);
        let mut changed = sampled();
        *changed.model_mut() = Network::new(backend, &model, 5).expect("a model");
        learn_alike(backend, trainer(), changed, &what);

        let (mut whole, mut by_hand) = (trainer(), trainer());
        whole.step().expect("a step");
        by_hand.step_on(&batch).expect("a step");
        let [whole, by_hand] = [whole, by_hand].map(|trainer| trainer.loss().expect("a loss"));
        assert!(
            (whole - by_hand).abs() < 1e-5 * whole,
            "{what}: {whole} {by_hand}"
        );
        // A task of that half alone has other statistics.
        let (half, _) = graph.induced(&all).expect("a graph");
        let half = model.prepare(&half).expect("a graph");
        let alone = task_on(&half, HALF as usize);
        let network = Network::new(backend, &model, 5).expect("a model");
        let mut alone = Trainer::new(backend, &alone, network, config).expect("a trainer");
        alone.step().expect("a step");
        let alone = alone.loss().expect("a loss");
        assert!(
            (whole - alone).abs() > 1e-3 * whole,
            "{what}: {whole} {alone}"
        );
    }
}

/// What of a snapshot does not depend on the clock.
fn without_times(mut snapshot: Snapshot) -> Snapshot {
    let progress = &mut snapshot.progress;
    let reports = [&mut progress.best, &mut progress.last];
    reports
        .into_iter()
        .flatten()
        .for_each(|report| report.ms = 0.0);
    progress.part.iter_mut().for_each(|part| part.ms = 0.0);
    snapshot
}

/// A run that is left between two batches and taken up again by another trainer is the run that was not left: the same batches, the
/// same masks, the same weights, the same loss of the epoch.
pub fn a_run_goes_on_between_batches<B: Backend>(backend: &B, scale: Scale) {
    let models = [
        ModelConfig::gcn(task::FEATURES, task::CLASSES),
        ModelConfig::sage(task::FEATURES, task::CLASSES),
        ModelConfig::gin(task::FEATURES, task::CLASSES),
        ModelConfig::gat(task::FEATURES, task::CLASSES),
    ];
    let hows = [("neighbor:3,2", 17), ("saint-rw:6,2", 1), ("cluster:9", 2)];
    for (number, model) in models.into_iter().enumerate() {
        let model = ModelConfig {
            hidden: 16,
            layers: 2,
            ..model
        };
        let own = number % hows.len();
        for how in scale.pick(&hows[own..=own], &hows) {
            goes_on(backend, &model, *how);
        }
    }
    for (number, model) in models_of_bits().into_iter().enumerate() {
        let of_subgraphs = &hows[1..];
        let own = number % of_subgraphs.len();
        for how in scale.pick(&of_subgraphs[own..=own], of_subgraphs) {
            goes_on(backend, &model, *how);
        }
    }
}

fn goes_on<B: Backend>(backend: &B, model: &ModelConfig, how: (&str, usize)) {
    let config = TrainConfig {
        epochs: 2,
        keep_best: true,
        seed: 3,
        ..TrainConfig::new(f16::PRECISION)
    };
    let trainer = || sampled::<B, f16>(backend, model, how, config);
    let finish = |trainer: &mut Trainer<B, f16, Network<B, f16>>| {
        while trainer.next_epoch().expect("a step").is_some() {}
        without_times(trainer.snapshot().expect("nothing failed"))
    };
    let mut seen = Vec::new();
    let mut whole = trainer();
    let report = whole.next_epoch_with(|report| {
        seen.push((report.batch, report.of));
        ControlFlow::Continue(())
    });
    let report = report.expect("a step").expect("an epoch");
    let batches = seen.len();
    assert!(batches > 2, "there is something to leave: {how:?}");
    if how.1 == 17 {
        assert_eq!(batches, 50_usize.div_ceil(17));
    }
    assert_eq!(
        seen,
        (1..=batches)
            .map(|batch| (batch, batches))
            .collect::<Vec<_>>()
    );
    assert!(report.loss.is_finite());
    let done = whole.optimizer().expect("no failure");
    assert_eq!((done.steps + done.skipped) as usize, batches);

    let mut left = trainer();
    let mut told = 0;
    let none = left.next_epoch_with(|report| {
        told = report.batch;
        ControlFlow::Break(())
    });
    assert!(none.expect("a step").is_none());
    let snapshot = left.snapshot().expect("nothing failed");
    assert_eq!(snapshot.progress.part.expect("a part").batches, told);
    // The one that was under way when the first was told is done as well.
    let under_way = left.has_batches_in_place() && backend.has_beside();
    assert_eq!(told, 1 + usize::from(under_way), "{how:?}");
    let mut resumed = trainer();
    resumed.restore(&snapshot).expect("the same model");
    assert_eq!(finish(&mut resumed), finish(&mut whole));
}

/// Features that lie in the host's memory are the same features, in steps on batches and on the graph and in evaluations.
pub fn features_of_the_host_are_those_of_the_device<B: Backend>(backend: &B, scale: Scale) {
    let model = ModelConfig {
        hidden: 16,
        layers: 2,
        ..ModelConfig::sage(task::FEATURES, task::CLASSES)
    };
    let config = TrainConfig {
        epochs: scale.pick(1, 2),
        seed: 3,
        ..TrainConfig::new(f16::PRECISION)
    };
    let objective = |kind| -> Objective<B, f16> {
        task::objective_in(backend, model.norm(), (None, 0, false), kind)
    };
    let network = || Network::<B, f16>::new(backend, &model, 5).expect("a model");
    let weights = |trainer: &Trainer<B, f16, Network<B, f16>>| {
        let parameters = trainer.model().parameters();
        let weights = parameters.iter().map(|it| it.master().to_f32(backend));
        weights.collect::<Result<Vec<_>, _>>().expect("no failure")
    };
    let on_host = objective(MemoryKind::HostFeatures);
    let on_device = objective(MemoryKind::Features);
    for how in [("neighbor:3,2", 17), ("saint-rw:6,2", 1), ("cluster:9", 2)] {
        let made = batches(backend, &on_host, &model, how, config.seed);
        let trainer = Trainer::sampled(backend, made, &on_host, network(), config);
        let mut trainer = trainer.expect("a trainer");
        let mut by_hand = Trainer::new(backend, &on_device, network(), config).expect("a trainer");
        let mut one_by_one = batches(backend, &on_device, &model, how, config.seed);
        for epoch in 0..config.epochs {
            let report = trainer.next_epoch().expect("a step").expect("an epoch");
            for number in 0..one_by_one.count() {
                let batch = one_by_one.batch(backend, epoch, number);
                let (batch, _) = batch.expect("a batch");
                by_hand.step_on(&batch).expect("a step");
            }
            let (score, _) = by_hand.evaluate().expect("no failure");
            assert_eq!(report.score, score, "{how:?}");
        }
        assert_eq!(weights(&trainer), weights(&by_hand), "{how:?}");
    }
    let trained = [&on_host, &on_device].map(|objective| {
        let mut trainer = Trainer::new(backend, objective, network(), config).expect("a trainer");
        while trainer.next_epoch().expect("a step").is_some() {}
        weights(&trainer)
    });
    assert_eq!(trained[0], trained[1]);
}

/// What cannot be sampled is refused in a line.
pub fn misfits_are_refused<B: Backend>(backend: &B, _: Scale) {
    let objective: Objective<B, f16> = task::objective(backend, Norm::Both);
    let policy: SamplingPolicy = "neighbor:2".parse().expect("a policy");
    let sampler = || {
        policy
            .sampler(backend, (&task::graph(), EdgesIn::Device), false)
            .expect("room")
    };
    let message = |norm, batch| {
        let batches = Batches::new(&objective, (&LOSS, norm), sampler(), batch, 0);
        batches.expect_err("a misfit").to_string()
    };
    assert_eq!(
        message(Norm::In, 4),
        "Batches: the norm `in` wants the in-degrees of sources, which a sampled block does not have; take the norm `both`"
    );
    assert_eq!(
        message(Norm::Both, 0),
        "Loader: batches of 0 vertices; take 1 at least"
    );
    let three = halfgnn::graph::Graph::from_edges(3, &[], &[]).expect("a graph");
    let other = policy
        .sampler(backend, (&three, EdgesIn::Device), false)
        .expect("room");
    let batches = Batches::new(&objective, (&LOSS, Norm::Both), other, 4, 0);
    let vertices = task::graph().vertices();
    assert_eq!(
        batches.expect_err("a misfit").to_string(),
        format!("Batches: vertices of the sampler should be {vertices}, is 3")
    );
    let mut batches =
        Batches::new(&objective, (&LOSS, Norm::Both), sampler(), 1_000_000, 0).expect("batches");
    let second = batches.batch(backend, 0, 1);
    assert_eq!(
        second.expect_err("a misfit").to_string(),
        "Batches: batch 1 of an epoch that has 1, from 0 on"
    );
    let bits = &models_of_bits()[1];
    let of = |policy: &str, weights: Option<&[f32]>, model: &ModelConfig| {
        let policy: SamplingPolicy = policy.parse().expect("a policy");
        let coverage = policy.is_counted().then_some(3);
        let sampling = Sampling::of(policy, None, coverage);
        let graph = (&task::graph(), weights);
        let how = (&LOSS, model, model.layers);
        let made = Batches::of_sampling(backend, &objective, how, graph, (&sampling, 0));
        made.expect_err("a misfit").to_string()
    };
    assert_eq!(
        of("neighbor:2,2", None, bits),
        "Batches: of neighbor:2,2 a layer hears from more vertices than it tells, and layers of one bit give a row for each that they read; take a sampler of subgraphs, or another model"
    );
    let weights = task::edge_weights();
    let told = of("saint-rw:8,2", Some(&weights), bits);
    assert!(told.contains("no weights of edges"), "{told}");
    // What has no factors has none to put weights into.
    let told = of("cluster:3", Some(&weights), &task::model());
    assert!(told.contains("have no factors, and weights"), "{told}");
}

/// The features of the small task in a folder of parts, which is removed behind it.
struct Stored {
    folder: PathBuf,
    rows: Arc<StoredFeatures>,
}

impl Stored {
    fn new() -> Self {
        static FOLDERS: AtomicU32 = AtomicU32::new(0);
        let number = FOLDERS.fetch_add(1, Ordering::Relaxed);
        let name = format!("halfgnn-parts-{}-{number}", std::process::id());
        let folder = std::env::temp_dir().join(name);
        let features = Features::dense(task::FEATURES, task::features()).expect("whole rows");
        let (labels, [train, val, test]) = (task::labels(), task::splits());
        let splits = Splits { train, val, test };
        let dataset = Dataset::new("task", task::graph(), features, labels, splits);
        let owners: Vec<u32> = (0..task::VERTICES as u32)
            .map(|vertex| vertex % 3)
            .collect();
        let deal = Deal {
            owners: &owners,
            parts: 3,
            by: "hand",
            precision: FeaturePrecision::Float,
        };
        let dataset = dataset.expect("a dataset");
        dataset.save_parts(&folder, &deal).expect("a folder");
        let mut options = OpenOptions::default();
        options.stored_features = true;
        let opened = Dataset::open_with(&folder, &options).expect("a folder of parts");
        let rows = opened.features.as_stored().expect("they are on disk");
        Self {
            folder,
            rows: rows.clone(),
        }
    }

    /// The small task with them, and no graph.
    fn task<B: Backend, E: Element>(&self, backend: &B) -> Objective<B, E> {
        let rows = FeatureRows::stored(backend, self.rows.clone()).expect("no room is wanted");
        of_rows(backend, rows)
    }
}

/// The small task with features that are elsewhere, and no graph.
fn of_rows<B: Backend, E: Element>(backend: &B, rows: FeatureRows<B, E>) -> Objective<B, E> {
    let (targets, splits) = (Targets::from(task::labels()), task::splits());
    let goal = Goal {
        targets: &targets,
        outputs: task::CLASSES,
        loss: &LOSS,
        splits: splits.each_ref().map(Vec::as_slice),
    };
    Objective::of_rows(backend, Vec::new(), rows, &goal).expect("a task")
}

impl Drop for Stored {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

/// Features that stay on disk are the same features, in steps on batches and in evaluations; also where batches lie in the same memory
/// each time. A file that becomes shorter meanwhile ends the run with its name.
pub fn features_on_disk_are_those_of_the_device<B: Backend>(backend: &B, scale: Scale) {
    let model = small(ModelConfig::sage(task::FEATURES, task::CLASSES));
    let config = TrainConfig {
        epochs: scale.pick(1, 2),
        seed: 3,
        ..TrainConfig::new(f16::PRECISION)
    };
    let stored = Stored::new();
    let graph = task::graph();
    let prepared = model.prepare_edges(&graph, EdgeData::default());
    let pieces = Pieces::new(&prepared.expect("a graph"), &model, 3).expect("pieces");
    let on_device: Objective<B, f16> = task::objective(backend, model.norm());
    let on_disk = stored.task(backend);
    let trainer = |task: &Objective<B, f16>, (policy, batch): (&str, u32)| {
        let policy: SamplingPolicy = policy.parse().expect("a policy");
        let coverage = policy.is_counted().then_some(3);
        let sampling = Sampling::of(policy, Some(batch), coverage);
        let network = Network::<B, f16>::new(backend, &model, 5).expect("a model");
        let of = (&LOSS, &model, network.hops());
        let how = (&sampling, config.seed);
        let batches = Batches::of_sampling(backend, task, of, (&graph, None), how);
        let batches = batches.expect("batches");
        let trainer = Trainer::sampled(backend, batches, task, network, config);
        let trainer = trainer.expect("a trainer");
        trainer.evaluated_in(pieces.clone()).expect("its vertices")
    };
    for how in [("neighbor:3,2", 17), ("saint-rw:6,2", 1), ("cluster:9", 2)] {
        let [expected, found] = [&on_device, &on_disk].map(|task| {
            let mut trainer = trainer(task, how);
            let mut reports = Vec::new();
            while let Some(report) = trainer.next_epoch().expect("a step") {
                reports.push((report.loss.to_bits(), report.score));
            }
            let parameters = trainer.model().parameters();
            let weights = parameters.iter().map(|it| it.master().to_f32(backend));
            let weights = weights.collect::<Result<Vec<_>, _>>();
            (
                trainer.has_batches_in_place(),
                reports,
                weights.expect("no failure"),
            )
        });
        assert_eq!(found, expected, "{how:?}");
    }
    let network = Network::<B, f16>::new(backend, &model, 5).expect("a model");
    let mut whole = Trainer::new(backend, &on_disk, network, config).expect("a trainer");
    let refused = whole
        .evaluate()
        .expect_err("all features at once")
        .to_string();
    assert!(refused.contains("Trainer::evaluated_in"), "{refused}");
    assert!(whole.step().is_err());

    let mut trainer = trainer(&on_disk, ("neighbor:3,2", 17));
    let part = stored.folder.join("part-00001.bin");
    let mut cut = false;
    let ended = trainer.next_epoch_with(|_| {
        if !std::mem::replace(&mut cut, true) {
            let file = std::fs::OpenOptions::new().write(true).open(&part);
            file.and_then(|file| file.set_len(1000)).expect("its file");
        }
        ControlFlow::Continue(())
    });
    let told = ended.expect_err("the file is shorter").to_string();
    assert!(cut && !told.contains('\n'), "{told}");
    // Found before a read, or in the middle of one.
    let found = [
        "it is 1000 bytes, and was",
        "it became shorter while it was read",
    ];
    let says = |words: &&str| told.contains(&format!("part-00001.bin: length: {words}"));
    assert!(found.iter().any(says), "{told}");
}
