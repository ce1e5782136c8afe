//! Batches that several ranks learn parts of.

use super::{LOSS, batches, of_rows, sampled, small};
use crate::Scale;
use crate::ranks::{by_devices, by_host, links_threads, overflow_first_bias, write_first_bias};
use crate::task;
use half::{bf16, f16};
use halfgnn::backend::{Backend, MemoryKind};
use halfgnn::data::{FeatureRows, LabelSets, Targets};
use halfgnn::distributed::{Group, InProcess, in_process};
use halfgnn::nn::{
    EdgeData, GraphConv, Model, ModelConfig, Network, Pieces, Propagation, Store, Transformer,
};
use halfgnn::ops::CodeFormat;
use halfgnn::sample::{EdgesIn, Sampling, SamplingPolicy};
use halfgnn::tensor::{Element, Matrix};
use halfgnn::train::{BatchReport, Batches, Goal, Loss, Objective, Split, TrainConfig, Trainer};
use std::ops::ControlFlow;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

/// What `work` makes of the trainer of each of so many ranks, in their order, which learn from parts of each batch.
fn of_ranks<B: Backend, E: Element, T: Send>(
    open: impl Fn(InProcess) -> (B, Group) + Sync,
    model: &ModelConfig,
    how: (&str, usize),
    (config, ranks): (TrainConfig, usize),
    work: impl Fn(&mut Trainer<B, E, Network<B, E>>) -> T + Sync,
) -> Vec<T> {
    let (work, open) = (&work, &open);
    std::thread::scope(|scope| {
        let group = in_process(ranks, "test", Duration::from_secs(120), &[]);
        let threads = group.into_iter().map(|rank| {
            scope.spawn(move || {
                let (backend, group) = open(rank);
                let objective: Objective<B, E> = task::objective(&backend, model.norm());
                let batches = batches(&backend, &objective, model, how, config.seed);
                let batches = batches.among(&group).expect("vertices");
                let network = Network::new(&backend, model, 5).expect("a model");
                let trainer = Trainer::sampled(&backend, batches, &objective, network, config);
                work(&mut trainer.expect("a trainer"))
            })
        });
        let threads: Vec<_> = threads.collect();
        let threads = threads.into_iter();
        threads.map(|it| it.join().expect("a rank")).collect()
    })
}

/// What came of a run.
#[derive(Clone, Debug, PartialEq)]
struct Course {
    /// Of each batch.
    losses: Vec<f32>,
    /// Of each epoch: loss and validation.
    epochs: Vec<(f32, f64)>,
    weights: Vec<f32>,
    buffers: Vec<f32>,
    skipped: u32,
}

/// Trains to the end, or until `ends` says so at a batch.
fn course<B: Backend, E: Element>(
    backend: &B,
    trainer: &mut Trainer<B, E, Network<B, E>>,
    ends: impl Fn(&BatchReport) -> bool,
) -> Course {
    let (mut losses, mut epochs) = (Vec::new(), Vec::new());
    let mut observe = |report: &BatchReport| {
        losses.push(report.loss);
        match ends(report) {
            true => ControlFlow::Break(()),
            false => ControlFlow::Continue(()),
        }
    };
    while let Some(report) = trainer.next_epoch_with(&mut observe).expect("a step") {
        epochs.push((report.loss, report.score.of(Split::Validation)));
    }
    let buffers = trainer.model().buffers().into_iter();
    let buffers = buffers.flat_map(|(_, it)| it.to_f32(backend).expect("no failure"));
    Course {
        losses,
        epochs,
        buffers: buffers.collect(),
        weights: task::weights(backend, trainer.model()).concat(),
        skipped: trainer.optimizer().expect("no failure").skipped,
    }
}

/// Steps of ranks, each of which has a part of a batch, are those of one rank that has all of it, to the roundings of sums in another
/// order; ranks and runs have the same bits, also where a rank has no vertex of the last batch of an epoch.
pub fn batches_of_ranks_are_those_of_one<B: Backend>(backend: &B, scale: Scale) {
    let sage = ModelConfig {
        hidden: 24,
        layers: 2,
        dropout: 0.0,
        ..ModelConfig::sage(task::FEATURES, task::CLASSES)
    };
    let config = TrainConfig {
        epochs: 2,
        ..TrainConfig::new(f32::PRECISION)
    };
    // Of 50 vertices to learn from the last batch has 2.
    let how = ("neighbor:3,2", 16);
    let all = |_: &BatchReport| false;
    let run = |ranks| {
        of_ranks::<B, f32, _>(by_host(backend), &sage, how, (config, ranks), |trainer| {
            course(backend, trainer, all)
        })
    };
    let alone = course(
        backend,
        &mut sampled::<B, f32>(backend, &sage, how, config),
        all,
    );
    assert_eq!(alone.losses.len(), 8);
    for ranks in scale.pick(&[3][..], &[1, 2, 3]) {
        let told = run(*ranks);
        if *ranks == 1 {
            assert_eq!(told[0], alone);
        }
        for of_rank in &told {
            assert_eq!(of_rank, &told[0], "{ranks} ranks");
        }
        assert_eq!(run(*ranks), told, "another run of {ranks} ranks");
        let pairs = |of: fn(&Course) -> &Vec<f32>| of(&told[0]).iter().zip(of(&alone));
        for (own, expected) in pairs(|it| &it.losses) {
            assert!(
                (own - expected).abs() < 1e-4 * expected,
                "{ranks} ranks: {own} and {expected}"
            );
        }
        for (own, expected) in pairs(|it| &it.weights) {
            // Adam divides what may be roundings by their root.
            assert!(
                (own - expected).abs() < 2e-3,
                "{ranks} ranks: {own} and {expected}"
            );
        }
    }
}

/// With dropout, and statistics of a batch normalisation, ranks have the same bits; a run that was left between two batches, by the first
/// of them alone, goes on to the same ones. Overflows are skipped by all. Subgraphs are of one rank.
pub fn ranks_learn_batches_alike<B: Backend>(backend: &B, _: Scale) {
    let gin = ModelConfig {
        hidden: 16,
        layers: 2,
        dropout: 0.5,
        ..ModelConfig::gin(task::FEATURES, task::CLASSES)
    };
    let mut config = TrainConfig {
        epochs: 2,
        early_stopping: Some(1),
        ..TrainConfig::new(f16::PRECISION)
    };
    config.scaling.initial = 2.0_f32.powi(24);
    let how = ("neighbor:3,2", 16);
    let of = (config, 3);
    let whole = of_ranks::<B, f16, _>(by_host(backend), &gin, how, of, |trainer| {
        course(backend, trainer, |_| false)
    });
    assert!(whole.iter().all(|of_rank| of_rank == &whole[0]));
    assert!(whole[0].skipped > 0 && !whole[0].buffers.is_empty());
    // Nor does it matter what moves gradients; of cards threads have no link.
    if links_threads(backend) {
        let open = by_devices(|_| backend.clone());
        let record = false;
        let of = (TrainConfig { record, ..config }, 3);
        let linked = of_ranks::<B, f16, _>(open, &gin, how, of, |trainer| {
            course(backend, trainer, |_| false)
        });
        assert!(linked == whole);
    }
    let in_the_middle = |report: &BatchReport| (report.epoch, report.batch) == (1, 2);
    let first = std::sync::atomic::AtomicUsize::new(0);
    let left = of_ranks::<B, f16, _>(by_host(backend), &gin, how, of, |trainer| {
        // One of them alone, whichever it is.
        let says = first.fetch_add(1, std::sync::atomic::Ordering::Relaxed) == 0;
        let course = course(backend, trainer, |report| says && in_the_middle(report));
        (course, trainer.snapshot().expect("no failure"))
    });
    for (course, snapshot) in &left {
        assert_eq!(course.losses.len(), 2);
        let part = snapshot.progress.part.expect("it was left in the middle");
        assert_eq!((part.batches, part.vertices), (2, 32));
    }
    // What the first keeps all go on from.
    let snapshot = &left[0].1;
    let gone_on = of_ranks::<B, f16, _>(by_host(backend), &gin, how, of, |trainer| {
        trainer.restore(snapshot).expect("the same model");
        course(backend, trainer, |_| false)
    });
    for of_rank in gone_on {
        assert_eq!(of_rank.losses, whole[0].losses[2..]);
        assert_eq!(of_rank.weights, whole[0].weights);
        assert_eq!(of_rank.buffers, whole[0].buffers);
        let losses = |of: &Course| {
            of.epochs
                .iter()
                .map(|(_, score)| *score)
                .collect::<Vec<_>>()
        };
        assert_eq!(losses(&of_rank), losses(&whole[0]));
    }

    let rank = || in_process(1, "test", Duration::from_secs(9), &[]).remove(0);
    let objective: Objective<B, f16> = task::objective(backend, gin.norm());
    let drawn = |policy| batches(backend, &objective, &gin, (policy, 2), 0);
    assert!(drawn("neighbor:3,2").among(&Group::new(rank())).is_ok());
    for policy in ["cluster:5", "saint-node:20"] {
        let refused = drawn(policy).among(&Group::new(rank()));
        let refused = refused.expect_err("a subgraph").to_string();
        assert!(refused.contains("a subgraph is drawn as one"), "{refused}");
    }
}

/// A model that sends messages in int8.
fn coded(model: ModelConfig) -> ModelConfig {
    ModelConfig {
        hidden: 16,
        layers: 2,
        dropout: 0.0,
        messages: Some(CodeFormat::Int8),
        ..model
    }
}

/// Ranks that send messages of 8 bits in parts of batches have the same scales after each step, learn nearly what one rank does, and go on to the same
/// bits from what the first of them kept; also where one has no vertex of a batch, or of any.
pub fn ranks_agree_on_messages_of_batches<B: Backend>(backend: &B, scale: Scale) {
    let models = [
        coded(ModelConfig::gin(task::FEATURES, task::CLASSES)),
        coded(ModelConfig::sage(task::FEATURES, task::CLASSES)),
    ];
    for (model, batch) in models.iter().zip([16, 2]) {
        let config = TrainConfig {
            epochs: scale.pick(1, 3),
            ..TrainConfig::new(f16::PRECISION)
        };
        let (how, of) = (("neighbor:3,2", batch), (config, 3));
        let run = |ranks| {
            let of = (config, ranks);
            of_ranks::<B, f16, _>(by_host(backend), model, how, of, |trainer| {
                course(backend, trainer, |_| false)
            })
        };
        let told = run(3);
        for of_rank in &told {
            assert_eq!(of_rank, &told[0], "batches of {batch}");
        }
        assert_eq!(run(3), told, "another run, batches of {batch}");
        if batch == 2 {
            // Who never has a vertex changes nothing of the others.
            let two = run(2);
            assert_eq!(told[0].losses, two[0].losses);
            assert_eq!(told[0].weights, two[0].weights);
        }
        if links_threads(backend) {
            let open = by_devices(|_| backend.clone());
            let linked = of_ranks::<B, f16, _>(open, model, how, of, |trainer| {
                course(backend, trainer, |_| false)
            });
            assert!(linked == told, "batches of {batch}");
        }
        let mut alone = sampled::<B, f16>(backend, model, how, config);
        let alone = course(backend, &mut alone, |_| false);
        let mean = |of: &Course| of.losses.iter().sum::<f32>() / of.losses.len() as f32;
        let (own, expected) = (mean(&told[0]), mean(&alone));
        // A batch normalisation sees a rank's part of a batch.
        let allowed = if batch == 16 { 0.2 } else { 0.02 };
        assert!(
            (own - expected).abs() < allowed * expected,
            "batches of {batch}: {own} and {expected}"
        );

        let first = AtomicU32::new(0);
        let left = of_ranks::<B, f16, _>(by_host(backend), model, how, of, |trainer| {
            let says = first.fetch_add(1, Ordering::Relaxed) == 0;
            course(backend, trainer, |report| says && report.batch == 1);
            trainer.snapshot().expect("no failure")
        });
        // In the first step each rank has scales of its own.
        for of_rank in &left {
            assert!(of_rank.tensors == left[0].tensors, "batches of {batch}");
        }
        let gone_on = of_ranks::<B, f16, _>(by_host(backend), model, how, of, |trainer| {
            trainer.restore(&left[0]).expect("the same model");
            course(backend, trainer, |_| false)
        });
        for of_rank in gone_on {
            assert_eq!(of_rank.losses, told[0].losses[1..]);
            assert_eq!(of_rank.weights, told[0].weights);
            assert_eq!(of_rank.buffers, told[0].buffers);
        }
    }
}

/// Ranks that store activations of parts of batches in 8 bits, each with scales of its own, have the same bits after each step, and learn
/// nearly what one rank does; also where one has no vertex of a batch, or of any. They go on to the same bits from what the first kept.
pub fn ranks_store_activations_of_batches<B: Backend>(backend: &B, scale: Scale) {
    fn check<B: Backend, E: Element>(
        backend: &B,
        (name, model): (&str, &ModelConfig),
        (batch, epochs): (usize, u32),
    ) {
        let model = &ModelConfig {
            store: Some(Store::EightBit),
            hidden: 16,
            layers: 2,
            dropout: 0.0,
            ..model.clone()
        };
        let what = format!("{name} in {}, batches of {batch}", E::PRECISION);
        let mut config = TrainConfig {
            epochs,
            ..TrainConfig::new(E::PRECISION)
        };
        config.scaling.initial = config.scaling.initial.min(256.0);
        let (how, of) = (("neighbor:3,2", batch), (config, 3));
        let told = of_ranks::<B, E, _>(by_host(backend), model, how, of, |trainer| {
            course(backend, trainer, |_| false)
        });
        for of_rank in &told {
            assert_eq!(of_rank, &told[0], "{what}");
        }
        if links_threads(backend) {
            let open = by_devices(|_| backend.clone());
            let linked = of_ranks::<B, E, _>(open, model, how, of, |trainer| {
                course(backend, trainer, |_| false)
            });
            assert!(linked == told, "{what}");
        }
        let mut alone = sampled::<B, E>(backend, model, how, config);
        let alone = course(backend, &mut alone, |_| false);
        let mean = |of: &Course| of.losses.iter().sum::<f32>() / of.losses.len() as f32;
        let (own, expected) = (mean(&told[0]), mean(&alone));
        // A batch normalisation sees a rank's part of a batch.
        let allowed = if name == "gin" { 0.2 } else { 0.02 };
        assert!(
            (own - expected).abs() < allowed * expected,
            "{what}: {own} and {expected}"
        );
        // What is stored is rounded.
        let as_it_is = &ModelConfig {
            store: None,
            ..model.clone()
        };
        let plain = of_ranks::<B, E, _>(by_host(backend), as_it_is, how, of, |trainer| {
            course(backend, trainer, |_| false)
        });
        assert_eq!(told[0].losses[0], plain[0].losses[0], "{what}");
        assert_ne!(told[0].weights, plain[0].weights, "{what}");

        let first = AtomicU32::new(0);
        let left = of_ranks::<B, E, _>(by_host(backend), model, how, of, |trainer| {
            let says = first.fetch_add(1, Ordering::Relaxed) == 0;
            course(backend, trainer, |report| says && report.batch == 1);
            trainer.snapshot().expect("no failure")
        });
        let gone_on = of_ranks::<B, E, _>(by_host(backend), model, how, of, |trainer| {
            trainer.restore(&left[0]).expect("the same model");
            course(backend, trainer, |_| false)
        });
        for of_rank in gone_on {
            assert_eq!(of_rank.losses, told[0].losses[1..], "{what}");
            assert_eq!(of_rank.weights, told[0].weights, "{what}");
            assert_eq!(of_rank.buffers, told[0].buffers, "{what}");
        }
    }
    let (features, classes) = (task::FEATURES, task::CLASSES);
    let models = [
        ("gcn", ModelConfig::gcn(features, classes)),
        ("sage", ModelConfig::sage(features, classes)),
        ("gin", ModelConfig::gin(features, classes)),
        ("gat", ModelConfig::gat(features, classes)),
        (
            "graphconv",
            ModelConfig::of(GraphConv::default(), features, classes),
        ),
        (
            "transformer",
            ModelConfig::of(Transformer::default(), features, classes),
        ),
    ];
    for (name, model) in scale.pick(&models[1..2], &models[..]) {
        check::<B, f16>(backend, (name, model), (16, scale.pick(1, 2)));
        if scale == Scale::Full {
            check::<B, bf16>(backend, (name, model), (16, 2));
        }
    }
    // Of three ranks one has no vertex of any batch. It would normalise over none.
    for (name, model) in scale.pick(&models[..1], &models[..2]) {
        check::<B, f16>(backend, (name, model), (2, 1));
    }
}

/// A rank stores what overflowed in its part of a batch, and no gradient shows it: of binary cross-entropy those of infinite logits are
/// finite. All leave the step out, one without a vertex of any batch as well, and take those behind it.
pub fn ranks_agree_on_overflows_of_batches<B: Backend>(backend: &B, _: Scale) {
    let model = &ModelConfig {
        hidden: 16,
        layers: 2,
        dropout: 0.0,
        store: Some(Store::EightBit),
        ..ModelConfig::gcn(task::FEATURES, task::CLASSES)
    };
    let mut config = TrainConfig {
        epochs: 1,
        ..TrainConfig::new(f16::PRECISION)
    };
    config.scaling.initial = 256.0;
    let has = (0..task::VERTICES * task::CLASSES).map(|at| Some(at % 3 == 0));
    let labels = LabelSets::new(task::CLASSES, has).expect("whole rows");
    let (targets, splits) = (&Targets::from(labels), &task::splits());
    let told = std::thread::scope(|scope| {
        let group = in_process(3, "test", Duration::from_secs(120), &[]);
        let threads = group.into_iter().enumerate().map(|(number, rank)| {
            scope.spawn(move || {
                let (backend, group) = by_host(backend)(rank);
                let (backend, graph, loss) = (&backend, &task::graph(), &Loss::of(targets));
                let goal = Goal {
                    targets,
                    outputs: task::CLASSES,
                    loss,
                    splits: splits.each_ref().map(Vec::as_slice),
                };
                let whole = Propagation::of_graph::<f16>(backend, graph, None, model.norm());
                let (kind, rows) = (MemoryKind::Features, task::features());
                let shape = (task::VERTICES, task::FEATURES);
                let rows = Matrix::from_f32(backend, shape.0, shape.1, &rows, kind);
                let (whole, rows) = (vec![whole.expect("room")], rows.expect("room"));
                let objective = Objective::<B, f16>::of(backend, whole, rows, &goal);
                let objective = objective.expect("a task");
                let policy: SamplingPolicy = "neighbor:3,2".parse().expect("a policy");
                let sampler = policy.sampler(backend, (graph, EdgesIn::Device), false);
                let (sampler, how) = (sampler.expect("room"), (loss, model.norm()));
                let batches = Batches::new(&objective, how, sampler, 2, config.seed);
                let batches = batches.expect("batches").among(&group).expect("vertices");
                let network = Network::new(backend, model, 5).expect("a model");
                let trainer = Trainer::sampled(backend, batches, &objective, network, config);
                let trainer = &mut trainer.expect("a trainer");
                let skipped = |trainer: &Trainer<B, f16, Network<B, f16>>| {
                    trainer.optimizer().expect("no failure").skipped
                };
                let before = (number == 0).then(|| overflow_first_bias(backend, trainer));
                let first = course(backend, trainer, |_| true);
                assert_eq!((first.losses.len(), first.skipped), (1, 1), "rank {number}");
                let parameters = trainer.model().parameters().into_iter();
                let mut gradients =
                    parameters.flat_map(|it| it.gradient().to_f32(backend).expect("no failure"));
                assert!(gradients.all(f32::is_finite), "gradients show nothing");
                if let Some(before) = before {
                    write_first_bias(backend, trainer, &before);
                }
                let others = course(backend, trainer, |_| false);
                assert_eq!(
                    (others.losses.len(), skipped(trainer)),
                    (24, 1),
                    "rank {number}"
                );
                (others.losses, others.weights)
            })
        });
        let threads: Vec<_> = threads.collect();
        let threads = threads.into_iter();
        let told = threads.map(|it| it.join().expect("a rank"));
        told.collect::<Vec<_>>()
    });
    assert!(told.iter().all(|of_rank| of_rank == &told[0]));
}

/// Ranks whose devices exchange, and which record steps on batches in the same memory with their exchanges, learn to the bit what those learn
/// that exchange through the host, and nearly what one rank learns; also where a rank has no vertex of any batch. `own` gives a rank a
/// handle with a stream of its own, of a device that records.
pub fn batches_of_ranks_are_recorded<B: Backend>(
    backend: &B,
    own: impl Fn(usize) -> B + Sync,
    ranks: usize,
) {
    let model = ModelConfig {
        hidden: 24,
        layers: 2,
        dropout: 0.0,
        ..ModelConfig::sage(task::FEATURES, task::CLASSES)
    };
    for (batch, epochs) in [(16, 2), (2, 1)] {
        let config = TrainConfig {
            epochs,
            ..TrainConfig::new(f32::PRECISION)
        };
        let policy: SamplingPolicy = "neighbor:3,2".parse().expect("a policy");
        let sampling = Sampling::of(policy, Some(batch), None);
        let run = |open: &(dyn Fn(InProcess) -> (B, Group) + Sync)| {
            std::thread::scope(|scope| {
                let group = in_process(ranks, "test", Duration::from_secs(120), &[]);
                let threads = group.into_iter().map(|rank| {
                    let (model, sampling) = (&model, &sampling);
                    scope.spawn(move || {
                        let (backend, group) = open(rank);
                        let (backend, graph) = (&backend, task::graph());
                        let objective: Objective<B, f32> = task::objective(backend, model.norm());
                        let how = (&LOSS, model, model.layers);
                        let of = ((&graph, None), (sampling, 0));
                        let batches = Batches::of_sampling(backend, &objective, how, of.0, of.1);
                        let batches = batches.expect("batches").among(&group);
                        let batches = batches.expect("vertices");
                        let network = Network::new(backend, model, 5).expect("a model");
                        let trainer =
                            Trainer::sampled(backend, batches, &objective, network, config);
                        let mut trainer = trainer.expect("a trainer");
                        let course = course(backend, &mut trainer, |_| false);
                        (course, trainer.has_batches_in_place())
                    })
                });
                let threads: Vec<_> = threads.collect();
                let threads = threads.into_iter();
                threads
                    .map(|it| it.join().expect("a rank"))
                    .collect::<Vec<_>>()
            })
        };
        let linked = run(&by_devices(&own));
        let by_host = run(&by_host(backend));
        for (rank, ((course, in_place), (expected, _))) in linked.iter().zip(&by_host).enumerate() {
            assert_eq!(*in_place, batch > 2 || rank < 2, "rank {rank}");
            assert!(course == expected, "rank {rank} of batches of {batch}");
            assert!(course == &linked[0].0, "rank {rank} of batches of {batch}");
        }
        let mut alone =
            sampled::<B, f32>(backend, &model, ("neighbor:3,2", batch as usize), config);
        let alone = course(backend, &mut alone, |_| false);
        assert_eq!(alone.losses.len(), linked[0].0.losses.len());
        for (own, expected) in linked[0].0.losses.iter().zip(&alone.losses) {
            let off = (own - expected).abs();
            assert!(off < 1e-3 * expected, "{own} and {expected}");
        }
    }
}

/// What each rank has learnt of batches and evaluations in pieces with features in its device's memory or `sharded`, and whether its batches lie
/// in the same memory each time.
fn learnt_by_ranks<B: Backend, E: Element>(
    open: &(impl Fn(InProcess) -> (B, Group) + Sync),
    model: &ModelConfig,
    (policy, batch): (&str, u32),
    (config, ranks): (TrainConfig, usize),
    sharded: bool,
) -> Vec<(Course, bool)> {
    let policy: SamplingPolicy = policy.parse().expect("a policy");
    let sampling = &Sampling::of(policy, Some(batch), None);
    let graph = &task::graph();
    let prepared = model.prepare_edges(graph, EdgeData::default());
    let pieces = Pieces::<E>::new(&prepared.expect("a graph"), model, 3).expect("pieces");
    let (pieces, columns, all) = (&pieces, task::FEATURES, &task::features());
    std::thread::scope(|scope| {
        let group = in_process(ranks, "test", Duration::from_secs(120), &[]);
        let threads = group.into_iter().map(|rank| {
            scope.spawn(move || {
                let (backend, group) = open(rank);
                let backend = &backend;
                let objective: Objective<B, E> = match sharded {
                    false => task::objective(backend, model.norm()),
                    true => {
                        let write_row = |vertex: usize, row: &mut [f32]| {
                            row.copy_from_slice(&all[vertex * columns..][..columns]);
                        };
                        let shape = (task::VERTICES, columns);
                        let rows = FeatureRows::sharded(backend, &group, shape, write_row);
                        of_rows(backend, rows.expect("room"))
                    }
                };
                let network = Network::new(backend, model, 5).expect("a model");
                let of = (&LOSS, model, network.hops());
                let how = (sampling, config.seed);
                let batches = Batches::of_sampling(backend, &objective, of, (graph, None), how);
                let batches = batches.expect("batches").among(&group).expect("vertices");
                let trainer = Trainer::sampled(backend, batches, &objective, network, config);
                let trainer = trainer.expect("a trainer").evaluated_in(pieces.clone());
                let mut trainer = trainer.expect("its vertices");
                let course = course(backend, &mut trainer, |_| false);
                (course, trainer.has_batches_in_place())
            })
        });
        let threads: Vec<_> = threads.collect();
        let threads = threads.into_iter();
        threads.map(|it| it.join().expect("a rank")).collect()
    })
}

/// Features of which each rank has a share are the same features, whether rows go through the host or from device to device: in batches of which a
/// rank has fewer vertices, one or none at all, in those that lie in the same memory each time and in those that do not, and in evaluations.
pub fn features_of_ranks_are_those_of_the_device<B: Backend>(backend: &B, scale: Scale) {
    let sage = small(ModelConfig::sage(task::FEATURES, task::CLASSES));
    // Of a GAT batches lie in memory of their own.
    let gat = small(ModelConfig::gat(task::FEATURES, task::CLASSES));
    let config = TrainConfig {
        epochs: scale.pick(1, 2),
        seed: 3,
        ..TrainConfig::new(f16::PRECISION)
    };
    // Of 50 vertices to learn from the last batch has 2.
    let all = [
        (&sage, ("neighbor:3,2", 16), 3),
        (&gat, ("neighbor:3,2", 16), 2),
        (&gat, ("neighbor:3,2", 16), 3),
        (&sage, ("neighbor:3,2", 2), 3),
    ];
    for &(model, how, ranks) in scale.pick(&all[..2], &all[..]) {
        let open = by_host(backend);
        let run = |sharded| learnt_by_ranks::<B, f16>(&open, model, how, (config, ranks), sharded);
        let expected = run(false);
        assert!(run(true) == expected, "{how:?} of {ranks} ranks");
        assert!(expected.iter().all(|(course, _)| course == &expected[0].0));
        if links_threads(backend) {
            let open = by_devices(|_| backend.clone());
            let record = false;
            let of = (TrainConfig { record, ..config }, ranks);
            let linked = learnt_by_ranks::<B, f16>(&open, model, how, of, true);
            assert!(linked == expected, "{how:?} of {ranks} ranks, linked");
        }
    }
}

/// The same of ranks that record steps on batches in the same memory with their exchanges, around those of features. `own` gives a rank a handle
/// with a stream of its own, of a device that records.
pub fn batches_are_recorded_around_features_of_ranks<B: Backend>(
    backend: &B,
    own: impl Fn(usize) -> B + Sync,
    ranks: usize,
) {
    let model = ModelConfig {
        hidden: 24,
        layers: 2,
        dropout: 0.4,
        ..ModelConfig::sage(task::FEATURES, task::CLASSES)
    };
    let config = TrainConfig::new(f32::PRECISION);
    // The row of the hub has no room beside those that were looked at, and other ranks have room meanwhile.
    let one = ModelConfig {
        layers: 1,
        ..model.clone()
    };
    for (model, policy, batch, epochs) in [
        (&model, "neighbor:3,2", 16, 2),
        (&model, "neighbor:3,2", 2, 1),
        (&one, "neighbor:-1", 3, 1),
    ] {
        let config = TrainConfig { epochs, ..config };
        let how = (policy, batch);
        let linked = by_devices(&own);
        let found = learnt_by_ranks::<B, f32>(&linked, model, how, (config, ranks), true);
        let open = by_host(backend);
        let expected = learnt_by_ranks::<B, f32>(&open, model, how, (config, ranks), false);
        assert!(found == expected, "{how:?}");
        let in_place = found.iter().map(|(_, in_place)| *in_place);
        let expected = (0..ranks).map(|rank| batch > 2 || rank < 2);
        assert!(in_place.eq(expected), "{how:?}");
    }
}
