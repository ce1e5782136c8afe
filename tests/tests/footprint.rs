//! The memory that a run is said to take, against what it takes on a device that has a workspace: the emulator.

use half::f16;
use halfgnn::backend::gpu::Gpu;
use halfgnn::backend::{MemoryKind, Storage};
use halfgnn::driver::Driver;
use halfgnn::driver::emulated::{Emulated, Options};
use halfgnn::graph::generate::Rmat;
use halfgnn::graph::{Graph, GraphCounts};
use halfgnn::nn::{
    ConvolutionConfig, EdgeData, Gat, LinkDecoder, ModelConfig, ModelKind, Pieces, Propagation,
};
use halfgnn::ops::{Accumulate, HalfLoad, Optimizer, SgdHyper, SpmmPolicy};
use halfgnn::tensor::{Element, Matrix, Precision};
use halfgnn::train::{Clipping, FeaturesIn, Footprint, Objective, Room, TrainConfig, Work};
use halfgnn::with_element;
use halfgnn_tests::task;

/// A card of so many multiprocessors, which products and SpMM are split for.
fn card(multiprocessors: u32) -> Gpu<Emulated> {
    let driver = Emulated::with_options(Options {
        multiprocessors,
        ..Options::default()
    });
    let ptx = halfgnn::ptx::read(Some(driver.info().compute_capability)).expect("the kernels' PTX");
    Gpu::new(driver, &ptx).expect("the PTX fits this program")
}

/// That every kind and the whole are within a hundredth. What was foretold of the workspace, over what it is.
fn check<E: Element>(
    backend: &Gpu<Emulated>,
    graph: &Graph,
    config: &ModelConfig,
    train: &TrainConfig,
) {
    let (vertices, features) = (graph.vertices(), config.features);
    let graph = &*config.prepare(graph).expect("room");
    let multiprocessors = backend.driver().info().multiprocessors;
    let counts = GraphCounts::of(graph);
    let foretold = Footprint::of_training::<E>(&counts, config, train, Some(multiprocessors));
    let foretold = foretold.expect("a model");
    backend.reset_peak();
    let values: Vec<f32> = (0..vertices * features)
        .map(|k| (k % 7) as f32 / 7.0)
        .collect();
    let labels: Vec<u32> = (0..vertices as u32)
        .map(|v| v % config.classes as u32)
        .collect();
    let all: Vec<u32> = (0..vertices as u32).collect();
    let objective = Objective::new(
        backend,
        Propagation::new(backend, graph, config.norm()).expect("room"),
        Matrix::<_, E>::from_f32(backend, vertices, features, &values, MemoryKind::Features)
            .expect("room"),
        &labels,
        config.classes,
        [&all, &[], &[]],
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
            "{} in {}: {kinds:?} were foretold and used",
            config.convolution,
            E::PRECISION,
        );
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

/// What nobody has memory for is counted, not wrapped around and not made: the run is refused by what it would take.
#[test]
fn a_width_beyond_any_memory_is_counted() {
    let graph = Rmat::graph500(4).generate(1).expect("a small graph");
    let counts = GraphCounts::of(&graph);
    let start = std::time::Instant::now();
    for (model, hidden) in models(24, 8)
        .iter()
        .zip([1 << 30, u32::MAX as usize].into_iter().cycle())
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
            message.contains("out of device memory") || message.contains("elements"),
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
