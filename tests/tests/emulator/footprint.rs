//! The memory that a run is said to take, against what it takes on a device that has a workspace: the emulator.

use half::{bf16, f16};
use halfgnn::backend::cpu::Cpu;
use halfgnn::backend::gpu::Gpu;
use halfgnn::backend::{Backend, MemoryKind, Storage};
use halfgnn::data::{BitFeatures, Features, LabelSets, Targets, Values};
use halfgnn::distributed::{Gather, Group, InProcess, Partition, Shard, in_process};
use halfgnn::driver::Driver;
use halfgnn::driver::emulated::{Emulated, Options};
use halfgnn::graph::generate::Rmat;
use halfgnn::graph::{Graph, GraphCounts, RowCounts};
use halfgnn::kernels::Kernels;
use halfgnn::nn::{
    Binary, Cg, ConvolutionConfig, EdgeData, Gat, Gine, HiddenNorm, Inputs, LinkDecoder, Mode,
    Model, ModelConfig, ModelKind, Network, Pieces, Propagation, ResGated, Store,
};
use halfgnn::ops::{Accumulate, CodeFormat, HalfLoad, Optimizer, SgdHyper, SpmmPolicy};
use halfgnn::tensor::{Element, Matrix, Precision};
use halfgnn::train::{
    Clipping, FeaturesIn, Footprint, Goal, Learning, Loss, Objective, Room, TrainConfig, Trainer,
    Work,
};
use halfgnn::with_element;
use halfgnn_tests::task;
use std::time::Duration;

/// A card of so many multiprocessors, which products and SpMM are split for.
fn card(multiprocessors: u32) -> Gpu<Emulated> {
    let driver = Emulated::with_options(Options {
        multiprocessors,
        ..Options::default()
    });
    let kernels = Kernels::find(Some(driver.info().compute_capability)).expect("the kernels");
    Gpu::new(driver, kernels).expect("the kernels fit this program")
}

/// Checks that every kind and the whole are estimated within a hundredth, of a training on classes.
fn check<E: Element>(
    backend: &Gpu<Emulated>,
    graph: &Graph,
    config: &ModelConfig,
    train: &TrainConfig,
) {
    let labels = 0..graph.vertices() as u32;
    let labels: Vec<u32> = labels.map(|v| v % config.classes as u32).collect();
    check_targets::<E>(backend, graph, (config, train), &labels.into());
}

/// The same of a training on these targets.
fn check_targets<E: Element>(
    backend: &Gpu<Emulated>,
    graph: &Graph,
    (config, train): (&ModelConfig, &TrainConfig),
    targets: &Targets,
) {
    let (vertices, features) = (graph.vertices(), config.features);
    let graph = &*config.prepare(graph).expect("room");
    let multiprocessors = backend.driver().info().multiprocessors;
    let counts = GraphCounts::of(graph);
    let how = Learning::from((config, train)).of_targets(targets);
    let foretold = Footprint::check_work::<E>(&counts, how, Some(multiprocessors), None);
    let foretold = foretold.expect("a model");
    backend.reset_peak();
    let values: Vec<f32> = (0..vertices * features)
        .map(|k| (k % 7) as f32 / 7.0)
        .collect();
    let all: Vec<u32> = (0..vertices as u32)
        .filter(|&vertex| targets.is_labelled(vertex as usize))
        .collect();
    let goal = Goal {
        targets,
        outputs: config.classes,
        loss: &Loss::of(targets),
        splits: [&all, &[], &[]],
    };
    let objective = Objective::of(
        backend,
        vec![Propagation::new(backend, graph, config.norm()).expect("room")],
        Matrix::<_, E>::from_f32(backend, vertices, features, &values, MemoryKind::Features)
            .expect("room"),
        &goal,
    )
    .expect("a task");
    let mut trainer = task::trainer(backend, &objective, config.clone(), *train);
    for _ in 0..2 {
        trainer.step().expect("a step");
    }
    trainer.evaluate().expect("an evaluation");
    let memory = backend.memory();
    let kinds = MemoryKind::ALL.map(|kind| (foretold.of(kind), memory.peak[kind as usize]));
    let ratios = [(foretold.total(), memory.peak_total)]
        .into_iter()
        .chain(kinds)
        .filter(|&bytes| bytes != (0, 0));
    for (foretold, used) in ratios {
        let ratio = foretold as f64 / used as f64;
        assert!(
            (0.99..1.01).contains(&ratio),
            "{} in {}, {}: {kinds:?} were estimated and used",
            config.convolution,
            E::PRECISION,
            targets.description()
        );
    }
}

/// Labels and values are rows of numbers, and unknown entries of theirs take masks and a copy of the logits.
#[test]
fn targets_of_every_kind_are_estimated() {
    let graph = &Rmat::graph500(9).generate(1).expect("a small graph");
    let (vertices, columns) = (graph.vertices(), 24);
    let config = &ModelConfig {
        hidden: 16,
        layers: 2,
        ..ModelConfig::gcn(8, columns)
    };
    for partial in [false, true] {
        let is_known = |at: usize| !partial || !at.is_multiple_of(5);
        let entries = 0..vertices * columns;
        let labels = entries
            .clone()
            .map(|at| is_known(at).then_some(at.is_multiple_of(3)));
        let values = entries.map(|at| match is_known(at) {
            true => (at % 7) as f32,
            false => f32::NAN,
        });
        let all = [
            Targets::Labels(LabelSets::new(columns, labels).expect("labels")),
            Targets::Values(Values::new(columns, values.collect()).expect("values")),
        ];
        for targets in &all {
            assert_eq!(targets.is_partial(), partial);
            let train = TrainConfig::new(Precision::Half);
            check_targets::<f16>(&card(4), graph, (config, &train), targets);
            let train = TrainConfig::new(Precision::Float);
            check_targets::<f32>(&card(4), graph, (config, &train), targets);
        }
    }
}

/// The customary model of every kind.
fn models(features: usize, classes: usize) -> Vec<ModelConfig> {
    let kinds = ConvolutionConfig::kinds().into_iter();
    let customary = |kind: ModelKind| ModelConfig::of(kind.convolution, features, classes);
    kinds.map(customary).collect()
}

/// [`check`] of [`models`] of two layers, in these precisions.
fn check_models(multiprocessors: u32, features: usize, hidden: usize, precisions: &[Precision]) {
    let graph = &Rmat::graph500(9).generate(1).expect("a small graph");
    assert_eq!(graph.vertices(), 512);
    // A card each, since a workspace does not become smaller again.
    let card = || card(multiprocessors);
    for model in models(features, 8) {
        let config = ModelConfig {
            hidden,
            layers: 2,
            ..model
        };
        for &precision in precisions {
            let train = TrainConfig::new(precision);
            with_element!(precision, E => check::<E>(&card(), graph, &config, &train));
        }
    }
}

/// Evaluations in pieces, of a graph that does not lie on the device and features that do, or do not.
#[test]
fn evaluations_in_pieces_are_foretold() {
    let graph = Rmat::graph500(9).generate(1).expect("a small graph");
    let (features, classes) = (40, 8);
    let config = ModelConfig {
        hidden: 16,
        layers: 3,
        ..ModelConfig::sage(features, classes)
    };
    let train = TrainConfig::new(Precision::Half);
    let prepared = config.prepare_edges(&graph, EdgeData::default());
    let prepared = prepared.expect("a graph");
    for (count, kind) in [
        (2, MemoryKind::HostFeatures),
        (5, MemoryKind::HostFeatures),
        (5, MemoryKind::Features),
    ] {
        let backend = &card(4);
        let pieces = Pieces::<f16>::new(&prepared, &config, count).expect("pieces");
        let room = Room {
            features: match kind {
                MemoryKind::Features => FeaturesIn::Device,
                _ => FeaturesIn::Host,
            },
            ..Room::default()
        };
        let foretold = Footprint::check_pieces(&pieces, (&config, &train), Some(4), room);
        let foretold = foretold.expect("a model");
        assert_eq!(foretold.features_kind(), kind);
        let rows = (512 * features.next_multiple_of(8) * 2) as u64;
        let hosted = (kind == MemoryKind::HostFeatures).then_some(rows);
        assert_eq!(foretold.hosted_features(), hosted);
        let labels: Vec<u32> = (0..512).map(|vertex| vertex % classes as u32).collect();
        let all: Vec<u32> = (0..512).collect();
        let rows = Matrix::<_, f16>::zeros(backend, 512, features, kind).expect("room");
        let splits = [&all[..], &[], &[]];
        let task = Objective::on_blocks(backend, Vec::new(), rows, &labels, classes, splits);
        let trainer = task::trainer(backend, &task.expect("a task"), config.clone(), train);
        let mut trainer = trainer.evaluated_in(pieces).expect("its vertices");
        trainer.evaluate().expect("an evaluation");
        let memory = backend.memory();
        for kind in MemoryKind::ALL {
            let (foretold, used) = (foretold.of(kind), memory.peak[kind as usize]);
            assert!(
                foretold.abs_diff(used) * 100 <= used,
                "{count} pieces: {kind:?} {foretold} for {used}"
            );
        }
        // The most of each kind, which need not be the most of all at once.
        assert!(foretold.total() >= memory.peak_total);
        assert!(foretold.total() < memory.peak_total * 5 / 4);
    }
}

/// Activations in 8 bits: what is foretold is what is used, and less than without.
#[test]
fn activations_of_8_bits_are_foretold_and_smaller() {
    let graph = &Rmat::graph500(9).generate(1).expect("a small graph");
    let (features, classes, hidden) = (40, 8, 64);
    let train = TrainConfig::new(Precision::Half);
    for model in models(features, classes) {
        let name = model.convolution.name();
        if !matches!(name, "gcn" | "sage" | "gin" | "gat") {
            continue;
        }
        let [few, more] = [4, 8].map(|layers| {
            let plain = ModelConfig {
                hidden,
                layers,
                ..model.clone()
            };
            let stored = ModelConfig {
                store: Some(Store::EightBit),
                ..plain.clone()
            };
            check::<f16>(&card(4), graph, &stored, &train);
            [plain, stored].map(|config| {
                let graph = config.prepare(graph).expect("room");
                let counts = GraphCounts::of(&graph);
                let of = Footprint::of_training::<f16>(&counts, &config, &train, Some(4));
                of.expect("a model").of(MemoryKind::Activations)
            })
        });
        // Each layer more keeps its output in half of the bytes. Matrices that layers share are there once.
        let [plain, stored] = [0, 1].map(|at| more[at] - few[at]);
        let saved = (4 * graph.vertices() * hidden) as u64;
        assert!(
            stored + saved * 9 / 10 <= plain,
            "{name}: {stored} and {plain}"
        );
        assert!(more[1] < more[0], "{name}: {more:?}");
    }
}

#[test]
fn staging_buffers_are_foretold() {
    check_models(4, 24, 16, &[Precision::Half, Precision::Float]);
}

/// Many features and a large card: a weight gradient is split, and its partial sums are the whole workspace.
#[test]
fn split_products_are_foretold() {
    check_models(132, 400, 16, &[Precision::Half, Precision::Float]);
}

/// Cards of so few multiprocessors that an SpMM has larger CTAs than the least, as on a large graph: the staging buffer is
/// as long as the schedule makes it, and nothing else is in the workspace.
#[test]
fn staging_buffers_are_as_the_schedule_makes_them() {
    check_models(1, 24, 64, &[Precision::Half]);
    check_models(3, 24, 64, &[Precision::Float]);
}

/// The two orders of the edges differ, in their longest rows and in the rows without edges; four heads have records and terms
/// of their own; of another policy only sums without factors of columns are built.
#[test]
fn directed_graphs_heads_and_policies_are_foretold() {
    let edges = Rmat::graph500(9).generate(2).expect("a small graph");
    let (rows, cols): (Vec<u32>, Vec<u32>) = std::iter::zip(edges.rows(), edges.cols())
        .filter(|(row, column)| row < column)
        .unzip();
    let graph = &Graph::from_edges(edges.vertices(), &rows, &cols).expect("a graph");
    assert!(!graph.is_symmetric());
    let narrow = SpmmPolicy {
        accumulate: Accumulate::Half,
        load: HalfLoad::Half2,
        ..SpmmPolicy::default()
    };
    let configs = [
        ModelConfig {
            policy: narrow,
            ..ModelConfig::gcn(24, 8)
        },
        ModelConfig {
            convolution: Gat {
                heads: 4,
                slope: 0.2,
                attention_dropout: 0.0,
                ..Gat::default()
            }
            .into(),
            layers: 2,
            ..ModelConfig::gat(24, 8)
        },
    ];
    for multiprocessors in [1, 132] {
        for config in &configs {
            let train = TrainConfig::new(f16::PRECISION);
            check::<f16>(&card(multiprocessors), graph, config, &train);
        }
    }
}

/// Moments that an optimiser does not keep take nothing, and the sums of a clipped norm lie in the workspace.
#[test]
fn what_an_optimiser_keeps_is_foretold() {
    let graph = &Rmat::graph500(9).generate(1).expect("a small graph");
    let config = ModelConfig::gcn(24, 8);
    let parameters = 24 * 64 + 64 + 64 * 8 + 8;
    let counts = GraphCounts::of(graph);
    let weights = |train: &TrainConfig| {
        let foretold = Footprint::of_training::<f32>(&counts, &config, train, Some(4));
        foretold.expect("a model").of(MemoryKind::Weights)
    };
    let adam = TrainConfig::new(f32::PRECISION);
    let sgd = |momentum| TrainConfig {
        optimizer: Optimizer::Sgd(SgdHyper {
            momentum,
            ..SgdHyper::default()
        }),
        clipping: Clipping::Norm(1.0),
        ..adam
    };
    for (train, moments) in [(adam, 2), (sgd(0.9), 1), (sgd(0.0), 0)] {
        check::<f32>(&card(4), graph, &config, &train);
        assert_eq!(
            weights(&train) - weights(&sgd(0.0)),
            moments * parameters * 4,
            "{moments} moments"
        );
    }
}

/// From a million sources on a GAT that learns on a card is lent the sum of the scores of each edge and head, if they are not too many; a
/// CPU is not, nor is one that is evaluated alone.
#[test]
fn sums_of_scores_are_foretold() {
    let activations = |vertices: u32, heads: usize, work: Work, card: Option<u32>| {
        // Two edges a vertex, so that nothing else is as long as a plane of edges.
        let next: Vec<u32> = (0..2 * vertices)
            .map(|k| (k / 2 + k % 2 + 1) % vertices)
            .collect();
        let all: Vec<u32> = (0..2 * vertices).map(|k| k / 2).collect();
        let graph = Graph::from_edges(vertices as usize, &all, &next).expect("a ring");
        let config = ModelConfig {
            convolution: Gat {
                heads,
                ..Gat::default()
            }
            .into(),
            layers: 1,
            ..ModelConfig::gat(8, 8)
        };
        let train = TrainConfig::new(f16::PRECISION);
        let counts = GraphCounts::of(&graph);
        let foretold = Footprint::check_work::<f16>(&counts, (&config, &train, work), card, None);
        foretold.expect("a model").of(MemoryKind::Activations)
    };
    let million = 1 << 20;
    let card = Some(132);
    for (heads, work, card, stored) in [
        (1, Work::Training, card, 1),
        (3, Work::Training, card, 3),
        (300, Work::Training, card, 0),
        (3, Work::Evaluation, card, 0),
        (1, Work::Training, None, 0),
    ] {
        let of = |vertices| activations(vertices, heads, work, card);
        let more = of(million) - of(million - 1);
        let plane = 4 * 2 * u64::from(million);
        assert_eq!(
            more / plane,
            stored,
            "{work:?}, {heads} heads: {more} bytes"
        );
    }
}

/// What nobody has memory for is counted, not wrapped around and not made: the run is refused by what it would take.
#[test]
fn a_width_beyond_any_memory_is_counted() {
    let graph = Rmat::graph500(4).generate(1).expect("a small graph");
    let counts = GraphCounts::of(&graph);
    let start = std::time::Instant::now();
    for (model, hidden) in models(24, 8)
        .iter()
        .zip([1 << 30, (u32::MAX - 7) as usize].into_iter().cycle())
    {
        let config = ModelConfig {
            hidden,
            ..model.clone()
        };
        let (memory, train) = (Some((24 << 30, 32 << 30)), TrainConfig::new(f16::PRECISION));
        let how = (&config, &train, Work::Training);
        let checked = Footprint::check_work::<f16>(&counts, how, Some(132), memory);
        let message = checked.expect_err("no machine has that").to_string();
        assert!(
            [
                "out of device memory",
                "elements",
                "columns a head",
                "more bytes than can be addressed"
            ]
            .iter()
            .any(|reason| message.contains(reason)),
            "{hidden}: {message}"
        );
    }
    assert!(start.elapsed().as_secs() < 20, "{:?}", start.elapsed());
}

#[test]
fn decoders_of_links_are_foretold() {
    let graph = Rmat::graph500(8).generate(1).expect("a small graph");
    let of = |decoder| {
        let model = ModelConfig {
            decoder,
            ..ModelConfig::gcn(12, 8)
        };
        let train = TrainConfig::new(f32::PRECISION);
        let counts = GraphCounts::of(&graph);
        let told = Footprint::of_training::<f32>(&counts, &model, &train, Some(4));
        told.expect("a model that fits").of(MemoryKind::Weights)
    };
    let dot = of(LinkDecoder::Dot);
    // Masters, gradients and two moments, of rows that are whole vectors; an MLP's row of ones as well.
    assert_eq!(of(LinkDecoder::Bilinear) - dot, 4 * 4 * 64);
    let mlp = 64 + 64 + 8 + 8 + 4;
    assert_eq!(of(LinkDecoder::Mlp) - dot, 4 * (4 * mlp + 8));
}

/// What a rank takes of its own device, of every kind of memory, is what was foretold of its shard within a hundredth.
fn check_ranks<B: Backend, E: Element>(
    open: impl Fn() -> B + Sync,
    multiprocessors: Option<u32>,
    (graph, edges): (&Graph, EdgeData<'_>),
    config: &ModelConfig,
    (partition, gather): (&Partition, Gather),
) -> Vec<u64> {
    let (train, ranks) = (TrainConfig::new(E::PRECISION), partition.ranks());
    let prepared = &config.prepare_edges(graph, edges).expect("a graph");
    let targets = Targets::from(
        (0..graph.vertices() as u32)
            .map(|vertex| vertex % config.classes as u32)
            .collect::<Vec<_>>(),
    );
    let all: Vec<u32> = (0..graph.vertices() as u32).collect();
    let goal = &Goal {
        targets: &targets,
        outputs: config.classes,
        loss: &Loss::of(&targets),
        splits: [&all, &[], &[]],
    };
    let rank = |communicator: InProcess| {
        let (backend, group) = (&open(), &Group::new(communicator));
        let shard = Shard::gathering(&prepared.graph, partition, group.rank(), gather);
        let shard = shard.expect("a shard");
        let of = (&shard, prepared.of_edges());
        let foretold = Footprint::of_shard::<E>(of, (config, &train), multiprocessors);
        let foretold = foretold.expect("a model");
        backend.reset_peak();
        let graph = prepared.propagation_of_shard::<B, E>(backend, config, (&shard, group));
        let network = Network::<B, E>::new(backend, config, 0).expect("room");
        let rows = match network.first_aggregates() {
            true => shard.part.vertices().len(),
            false => shard.part.own().len(),
        };
        let values: Vec<f32> = (0..rows * config.features)
            .map(|k| (k % 7) as f32 / 7.0)
            .collect();
        let kind = MemoryKind::Features;
        let features = Matrix::from_f32(backend, rows, config.features, &values, kind);
        let (graph, features) = (graph.expect("room"), features.expect("room"));
        let objective = Objective::of_shard(backend, graph, features, goal, &shard);
        let objective = objective.expect("a task");
        let mut trainer = Trainer::new(backend, &objective, network, train).expect("room");
        for _ in 0..2 {
            trainer.step().expect("a step");
        }
        trainer.evaluate().expect("an evaluation");
        let memory = backend.memory();
        let kinds = MemoryKind::ALL.map(|kind| (foretold.of(kind), memory.peak[kind as usize]));
        let whole = [(foretold.total(), memory.peak_total)];
        for (foretold, used) in whole.into_iter().chain(kinds) {
            let ratio = foretold as f64 / used as f64;
            assert!(
                foretold == used || (0.99..1.01).contains(&ratio),
                "{} in {}, rank {} of {ranks}: {kinds:?} were foretold and used",
                config.convolution,
                E::PRECISION,
                group.rank(),
            );
        }
        assert!(foretold.of(MemoryKind::Graph) > 0);
        foretold.total()
    };
    std::thread::scope(|scope| {
        let group = in_process(ranks, "test", Duration::from_secs(300), &[]);
        let rank = &rank;
        let threads: Vec<_> = (group.into_iter())
            .map(|it| scope.spawn(move || rank(it)))
            .collect();
        let totals = threads.into_iter().map(|it| it.join().expect("a rank"));
        totals.collect()
    })
}

/// Directed, so that ranks have their edges both ways, and with weights.
fn directed(graph: &Graph) -> (Graph, Vec<f32>) {
    let kept: Vec<usize> = (0..graph.edges()).filter(|edge| edge % 3 > 0).collect();
    let take = |of: &[u32]| -> Vec<u32> { kept.iter().map(|&edge| of[edge]).collect() };
    let (rows, columns) = (take(graph.rows()), take(graph.cols()));
    let graph = Graph::from_edges(graph.vertices(), &rows, &columns).expect("a graph");
    let weights = (0..graph.edges()).map(|edge| 1.0 + (edge % 5) as f32);
    let weights = weights.collect();
    (graph, weights)
}

/// Models whose activations may be kept in 8 bits.
fn models_of_store() -> Vec<ModelConfig> {
    let models = [
        ModelConfig::gcn,
        ModelConfig::gin,
        ModelConfig::sage,
        ModelConfig::gat,
    ];
    models.map(|model| model(20, 8)).into()
}

/// Every model on the CPU, as two ranks and as three.
#[test]
fn what_ranks_take_is_foretold() {
    let graph = Rmat::graph500(9).generate(1).expect("a small graph");
    let [two, three] = [2, 3].map(|ranks| Partition::by_degree(&graph, ranks).expect("ranks"));
    // Layers of several hops read rows of other ranks between them, and are refused.
    let several = ["sg", "ssg", "tag", "cheb", "arma", "mixhop", "gatedgraph"];
    let is_of_one = |model: &ModelConfig| !several.contains(&model.convolution.name());
    for model in models(20, 8).into_iter().filter(is_of_one) {
        let config = &ModelConfig {
            hidden: 24,
            layers: 3,
            ..without_dropped_edges(model)
        };
        let plain = (&graph, EdgeData::default());
        check_ranks::<_, f32>(Cpu::new, None, plain, config, (&two, Gather::Halo));
        check_ranks::<_, f16>(Cpu::new, None, plain, config, (&three, Gather::Whole));
    }
    // In codes, which are exchanged where edges go both ways.
    let (one_way, weights) = directed(&graph);
    for model in [
        ModelConfig::gcn,
        ModelConfig::gin,
        ModelConfig::sage,
        ModelConfig::gat,
    ] {
        let config = &ModelConfig {
            hidden: 24,
            layers: 3,
            messages: Some(CodeFormat::Int8),
            ..without_dropped_edges(model(20, 8))
        };
        for graph in [&graph, &one_way] {
            let plain = (graph, EdgeData::default());
            check_ranks::<_, f16>(Cpu::new, None, plain, config, (&two, Gather::Halo));
            check_ranks::<_, f16>(Cpu::new, None, plain, config, (&three, Gather::Whole));
        }
    }
    // Activations in 8 bits, of which each rank tells the others the largest magnitudes.
    for model in models_of_store() {
        for messages in [None, Some(CodeFormat::Int8)] {
            let config = &ModelConfig {
                hidden: 24,
                layers: 8,
                messages,
                store: Some(Store::EightBit),
                ..without_dropped_edges(model.clone())
            };
            let plain = (&graph, EdgeData::default());
            let stored = check_ranks::<_, f16>(Cpu::new, None, plain, config, (&two, Gather::Halo));
            check_ranks::<_, bf16>(Cpu::new, None, plain, config, (&three, Gather::Whole));
            let as_it_is = &ModelConfig {
                store: None,
                ..config.clone()
            };
            let more = check_ranks::<_, f16>(Cpu::new, None, plain, as_it_is, (&two, Gather::Halo));
            let less = stored.iter().zip(&more).all(|(stored, more)| stored < more);
            assert!(less, "{}: {stored:?} and {more:?}", config.convolution);
        }
    }
    let graph = one_way;
    let weighted = EdgeData {
        weights: Some(&weights),
        features: None,
    };
    let gcn = ModelConfig {
        hidden_norm: HiddenNorm::Batch,
        ..ModelConfig::gcn(20, 8)
    };
    check_ranks::<_, f16>(
        Cpu::new,
        None,
        (&graph, weighted),
        &gcn,
        (&three, Gather::Halo),
    );
    let plain = (&graph, EdgeData::default());
    check_ranks::<_, f16>(Cpu::new, None, plain, &gcn, (&two, Gather::Halo));
    let gat = Gat {
        edge_features: 1,
        ..Gat::default()
    };
    let gat = without_dropped_edges(ModelConfig::of(gat, 20, 8));
    check_ranks::<_, f32>(
        Cpu::new,
        None,
        (&graph, weighted),
        &gat,
        (&two, Gather::Halo),
    );
    for mut model in [
        ModelConfig::of(Gine::default(), 20, 8),
        ModelConfig::of(ResGated::default(), 20, 8),
        ModelConfig::of(Cg::default(), 20, 8),
    ] {
        assert!(model.read_edge_features(1));
        let graph = (&graph, weighted);
        check_ranks::<_, f16>(Cpu::new, None, graph, &model, (&three, Gather::Halo));
    }
}

/// A graph that one card has no room for trains on two: a rank takes about half.
#[test]
fn a_rank_takes_its_part_alone() {
    let vertices: Vec<u32> = (0..600).collect();
    let next: Vec<u32> = vertices.iter().map(|vertex| (vertex + 1) % 600).collect();
    let (rows, columns) = (
        [&vertices[..], &next].concat(),
        [&next[..], &vertices].concat(),
    );
    let ring = Graph::from_edges(600, &rows, &columns).expect("a ring");
    let config = &ModelConfig::gcn(200, 8);
    let plain = (&ring, EdgeData::default());
    // Two arcs, each of which hears two vertices of the other.
    let arcs = vertices.iter().map(|vertex| vertex / 300).collect();
    let arcs = Partition::from_parts(arcs, 2).expect("ranks");
    let parts = check_ranks::<_, f32>(Cpu::new, None, plain, config, (&arcs, Gather::Halo));
    let counts = config.prepare_edges(&ring, EdgeData::default());
    let counts = counts.expect("a graph").counts();
    let train = TrainConfig::new(Precision::Float);
    let how = (config, &train, Work::Training);
    let room = *parts.iter().max().expect("two ranks");
    let whole = Footprint::check_work::<f32>(&counts, how, None, Some((room, room)));
    assert!(whole.is_err(), "{parts:?}");
}

/// On a card, with the workspace that operators share.
#[test]
fn what_ranks_take_of_a_card_is_foretold() {
    let graph = Rmat::graph500(8).generate(1).expect("a small graph");
    let plain = (&graph, EdgeData::default());
    let [two, three] = [2, 3].map(|ranks| Partition::by_degree(&graph, ranks).expect("ranks"));
    for model in [ModelConfig::gcn, ModelConfig::gin, ModelConfig::gat] {
        let config = &ModelConfig {
            hidden: 16,
            layers: 2,
            ..without_dropped_edges(model(12, 4))
        };
        let coded = &ModelConfig {
            messages: Some(CodeFormat::Int8),
            ..config.clone()
        };
        let stored = &ModelConfig {
            store: Some(Store::EightBit),
            layers: 3,
            ..config.clone()
        };
        check_ranks::<_, f16>(|| card(4), Some(4), plain, config, (&two, Gather::Halo));
        check_ranks::<_, f16>(|| card(4), Some(4), plain, config, (&three, Gather::Whole));
        check_ranks::<_, f16>(|| card(4), Some(4), plain, stored, (&three, Gather::Halo));
        check_ranks::<_, f16>(|| card(4), Some(4), plain, coded, (&three, Gather::Halo));
    }
}

/// Ranks do not draw alike which edges attention drops.
fn without_dropped_edges(mut model: ModelConfig) -> ModelConfig {
    match &mut model.convolution {
        ConvolutionConfig::Gat(gat) => gat.attention_dropout = 0.0,
        ConvolutionConfig::GatV2(gat) => gat.attention_dropout = 0.0,
        _ => {}
    }
    model
}

/// An evaluation of a network of one bit on a large graph makes the mean of signs a share of the rows at a time; where training keeps it, it is made whole, and products
/// of other rows at once may be rounded otherwise.
#[test]
fn means_of_signs_are_made_by_shares_where_nothing_is_trained() {
    let (vertices, features, classes) = (40_001, 8, 3);
    let ids: Vec<u32> = (0..vertices as u32).collect();
    let next = |by: u32| ids.iter().map(move |id| (id + by) % vertices as u32);
    let rows: Vec<u32> = ids.iter().chain(&ids).copied().collect();
    let columns: Vec<u32> = next(1).chain(next(700)).collect();
    let graph = Graph::from_edges(vertices, &rows, &columns).expect("a graph");
    let config = &ModelConfig::gcn(features, classes).of_bits(Binary::Bin);
    let graph = &*config.prepare(&graph).expect("room");
    let backend = &Cpu::new();
    let values: Vec<f32> = (0..vertices * features)
        .map(|k| ((k * 37) % 101) as f32 - 50.0)
        .collect();
    let labels: Vec<u32> = ids.iter().map(|id| id % classes as u32).collect();
    let kind = MemoryKind::Features;
    let objective = Objective::new(
        backend,
        Propagation::new(backend, graph, config.norm()).expect("room"),
        Matrix::from_f32(backend, vertices, features, &values, kind).expect("room"),
        &labels,
        classes,
        [&ids, &[], &[]],
    );
    let objective = objective.expect("a task");
    let model = Network::<_, f32>::new(backend, config, 5).expect("a model");
    let train = TrainConfig::new(Precision::Float);
    let mut trainer = Trainer::new(backend, &objective, model, train).expect("room");
    let start = trainer.snapshot().expect("no failure");
    let evaluated = |trainer: &mut Trainer<_, f32, Network<_, f32>>| {
        trainer.evaluate().expect("an evaluation");
        let logits = trainer.model().logits().to_padded(backend);
        let peak = backend.memory().peak[MemoryKind::Activations as usize];
        (logits.expect("its rows"), peak)
    };
    let (by_shares, activations) = evaluated(&mut trainer);
    trainer.step().expect("a step");
    trainer.restore(&start).expect("the same model");
    let (whole, _) = evaluated(&mut trainer);
    let most = whole
        .iter()
        .fold(0.0_f32, |most, value| most.max(value.abs()));
    assert!(most > 0.1 && by_shares.len() == whole.len());
    for (a, b) in by_shares.iter().zip(&whole) {
        assert!((a - b).abs() <= 1e-6 * most, "{a} and {b}");
    }
    // Rows of 128 numbers, of which two shares are no more than 16 MiB each.
    let mean = (vertices * 128 * 4) as u64;
    assert!(activations < mean, "{activations} with a mean of {mean}");
}

/// What a GCN of one bit (602, 128, 41) takes to predict on a graph of Reddit's size: BitGNN's took 0.94 GB.
#[test]
fn a_network_of_bits_predicts_on_reddit_within_its_memory() {
    let edges = 114_848_856 + 232_965;
    let counts = GraphCounts {
        forward: RowCounts {
            rows: 232_965,
            columns: 232_965,
            edges,
            empty: 0,
            longest: 20_000,
        },
        backward: None,
        balanced: true,
        weighted: false,
        edge_features: 0,
        edge_rows: false,
        graphs: 0,
    };
    let config = &ModelConfig::gcn(602, 41).of_bits(Binary::Bin);
    let train = TrainConfig::new(Precision::Half);
    let how = (config, &train, Work::EvaluationOfSigns);
    let told = Footprint::check_work::<f16>(&counts, how, Some(132), None).expect("a model");
    assert!(told.total() <= 600_000_000, "{} bytes", told.total());
}

/// A prediction of features that are packed computes on their signs, to the same bits, and takes no more than is told before.
#[test]
fn evaluations_of_packed_features_are_foretold_and_smaller() {
    let (features, multiprocessors) = (200, 4);
    let graph = Rmat::graph500(10).generate(3).expect("a graph");
    let vertices = graph.vertices();
    let train = TrainConfig::new(Precision::Half);
    for (model, are_signs) in [
        (ModelConfig::gcn(features, 5), false),
        (ModelConfig::sage(features, 5), true),
    ] {
        let config = &model.of_bits(Binary::Bin);
        let mut bits = BitFeatures::unset(vertices, features, are_signs).expect("room");
        for vertex in 0..vertices {
            // Of columns 0 and 65 all vertices have 1, of 1 and 66 none, of 2 one of them.
            let byte = |at: usize| (vertex * 37 + at * 91 + vertex * at * 5) as u8;
            let mut row: Vec<u8> = (0..features.div_ceil(8)).map(byte).collect();
            row[0] = row[0] & !7 | 1 | u8::from(vertex == 700) << 2;
            row[8] = row[8] & !6 | 2;
            bits.set_row(vertex, &row);
        }
        let packed = Features::Bits(bits.clone());
        let values = packed.to_dense().expect("room");
        let prepared = &*config.prepare(&graph).expect("room");
        let propagation = |backend: &Gpu<Emulated>| {
            [Propagation::new(backend, prepared, config.norm()).expect("room")]
        };
        let of = |backend: &Gpu<Emulated>| {
            let mut model = Network::<_, f16>::new(backend, config, 7).expect("a model");
            model.freeze(backend).expect("room");
            model
        };

        let backend = &card(multiprocessors);
        let mut model = of(backend);
        let kind = MemoryKind::Features;
        let x = Matrix::from_f32(backend, vertices, features, &values, kind).expect("room");
        let signs = model.signs_of_features(backend, &x).expect("signs");
        let expected_signs = signs.to_words(backend).expect("its words");
        let inputs = Inputs {
            backend,
            graphs: &propagation(backend),
            features: &x,
            of_types: &[],
            dropped: false,
        };
        model.forward(inputs, Mode::Evaluate).expect("a pass");
        let expected = model.logits().to_padded(backend).expect("its rows");

        let work = Work::of_prediction::<f16>(config, &packed).expect("a model");
        assert_eq!(work, Work::EvaluationOfSigns);
        let counts = GraphCounts::of(prepared);
        let [foretold, of_elements] = [work, Work::Evaluation].map(|work| {
            let how = (config, &train, work);
            Footprint::check_work::<f16>(&counts, how, Some(multiprocessors), None)
                .expect("a model")
        });
        let backend = &card(multiprocessors);
        let mut model = of(backend);
        let signs = model.signs_of_bits(backend, &bits).expect("signs");
        let graphs = propagation(backend);
        let evaluated = model.evaluate_signs(backend, &graphs, &signs);
        evaluated.expect("a pass");
        let memory = backend.memory();
        assert_eq!(signs.to_words(backend).expect("its words"), expected_signs);
        let logits = model.logits().to_padded(backend).expect("its rows");
        assert!(logits == expected, "{:?}", config.convolution);
        for kind in MemoryKind::ALL {
            let (told, used) = (foretold.of(kind), memory.peak[kind as usize]);
            assert!(
                told.abs_diff(used) * 100 <= used,
                "{kind:?}: {told} for {used} bytes"
            );
        }
        // Of 200 columns four words instead of 400 bytes.
        assert_eq!(foretold.of(kind), vertices as u64 * 32);
        let saved = vertices as u64 * (400 - 32);
        assert!(foretold.total() + saved <= of_elements.total());

        let full = &config.clone().of_bits(Binary::Full);
        let work = Work::of_prediction::<f16>(full, &packed).expect("a model");
        assert_eq!(work, Work::Evaluation);
    }
}
