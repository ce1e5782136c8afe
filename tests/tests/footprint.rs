//! The memory that a run is said to take, against what it takes on a device that has a workspace: the emulator.

use half::f16;
use halfgnn::backend::gpu::Gpu;
use halfgnn::backend::{Accumulate, HalfLoad, MemoryKind, SpmmPolicy, Storage};
use halfgnn::driver::Driver;
use halfgnn::driver::emulated::{Emulated, Options};
use halfgnn::graph::Graph;
use halfgnn::graph::generate::Rmat;
use halfgnn::nn::{ConvolutionConfig, ModelConfig, Propagation};
use halfgnn::tensor::{Element, Matrix};
use halfgnn::train::{Footprint, Objective, TrainConfig};
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

/// That the whole is within a tenth. What was foretold of the workspace, over what it is.
fn check<E: Element>(backend: &Gpu<Emulated>, graph: &Graph, config: &ModelConfig) -> f64 {
    let (vertices, features) = (graph.vertices(), config.features);
    let graph = &*config.prepare(graph).expect("room");
    let foretold =
        Footprint::of_training::<E>(graph, config, Some(backend.driver().info().multiprocessors));
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
    let mut trainer = task::trainer(
        backend,
        &objective,
        config.clone(),
        TrainConfig::new(E::PRECISION),
    );
    for _ in 0..2 {
        trainer.step().expect("a step");
    }
    let memory = backend.memory();
    let ratio = foretold.total() as f64 / memory.peak_total as f64;
    assert!(
        (0.9..1.1).contains(&ratio),
        "{} in {}: {foretold:?}, and {memory:?} was used",
        config.convolution,
        E::PRECISION,
    );
    let workspace = MemoryKind::Workspace;
    foretold.of(workspace) as f64 / memory.peak[workspace as usize] as f64
}

/// A GCN, a GIN, a GAT and a GraphSAGE.
const MODELS: [fn(usize, usize) -> ModelConfig; 4] = [
    ModelConfig::gcn,
    ModelConfig::gin,
    ModelConfig::gat,
    ModelConfig::sage,
];

/// [`check`] of both precisions of [`MODELS`] of two layers.
fn check_models(multiprocessors: u32, features: usize, hidden: usize) -> Vec<f64> {
    let graph = &Rmat::graph500(9).generate(1).expect("a small graph");
    assert_eq!(graph.vertices(), 512);
    // A card each, since a workspace does not become smaller again.
    let card = || card(multiprocessors);
    let both = |model: fn(usize, usize) -> ModelConfig| {
        let config = ModelConfig {
            hidden,
            layers: 2,
            ..model(features, 8)
        };
        [
            check::<f16>(&card(), graph, &config),
            check::<f32>(&card(), graph, &config),
        ]
    };
    MODELS.into_iter().flat_map(both).collect()
}

#[test]
fn staging_buffers_are_foretold_within_a_tenth() {
    check_models(4, 24, 16);
}

/// Many features and a large card: a weight gradient is split, and its partial sums are the whole workspace.
#[test]
fn split_products_are_foretold_within_a_tenth() {
    let ratios = check_models(132, 400, 16);
    assert!(
        ratios.iter().all(|ratio| (0.9..1.1).contains(ratio)),
        "workspace foretold over workspace used: {ratios:?}"
    );
}

/// Cards of so few multiprocessors that an SpMM has larger CTAs than the least, as on a large graph: the staging buffer is
/// as long as the schedule makes it, and nothing else is in the workspace.
#[test]
fn staging_buffers_are_as_the_schedule_makes_them() {
    for multiprocessors in [1, 3] {
        let ratios = check_models(multiprocessors, 24, 64);
        assert!(
            ratios.iter().all(|ratio| (0.99..1.01).contains(ratio)),
            "{multiprocessors} multiprocessors, workspace foretold over workspace used: {ratios:?}"
        );
    }
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
            convolution: ConvolutionConfig::Gat {
                heads: 4,
                slope: 0.2,
                attention_dropout: 0.0,
            },
            layers: 2,
            ..ModelConfig::gat(24, 8)
        },
    ];
    for multiprocessors in [1, 132] {
        for config in &configs {
            let ratio = check::<f16>(&card(multiprocessors), graph, config);
            assert!(
                (0.99..1.01).contains(&ratio),
                "{} on {multiprocessors} multiprocessors: workspace foretold over used {ratio}",
                config.convolution
            );
        }
    }
}

/// What nobody has memory for is counted, not wrapped around: the run is to be refused by what it would take.
#[test]
fn a_width_beyond_any_memory_is_counted() {
    let graph = Rmat::graph500(4).generate(1).expect("a small graph");
    for model in MODELS {
        let config = ModelConfig {
            hidden: u32::MAX as usize,
            ..model(24, 8)
        };
        let foretold = Footprint::of_training::<f16>(&graph, &config, Some(132));
        assert!(foretold.total() > 1 << 40, "{foretold:?}");
    }
}
