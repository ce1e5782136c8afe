//! The memory that a run is said to take, against what it takes on a device that has a workspace: the emulator.

use half::f16;
use halfgnn::backend::gpu::Gpu;
use halfgnn::backend::{MemoryKind, Storage};
use halfgnn::driver::Driver;
use halfgnn::driver::emulated::Emulated;
use halfgnn::graph::generate::Rmat;
use halfgnn::nn::{ModelConfig, Propagation};
use halfgnn::tensor::{Element, Matrix};
use halfgnn::train::{Footprint, Objective, TrainConfig};
use halfgnn_tests::task;

/// Within a tenth, on a graph whose staging buffers are larger than whatever else shares the workspace.
#[test]
fn a_footprint_is_within_a_tenth_of_what_is_used() {
    let driver = Emulated::new();
    let ptx = halfgnn::ptx::read(Some(driver.info().compute_capability)).expect("the kernels' PTX");
    let backend = Gpu::new(driver, &ptx).expect("the PTX fits this program");
    let graph = Rmat::graph500(9).generate(1).expect("a small graph");
    let vertices = graph.vertices();
    fn check<E: Element>(
        backend: &Gpu<Emulated>,
        graph: &halfgnn::graph::Graph,
        config: &ModelConfig,
    ) {
        let (vertices, features) = (graph.vertices(), config.features);
        let graph = &*config.prepare(graph).expect("room");
        let foretold = Footprint::of_training::<E>(graph, config);
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
        let used = backend.memory().peak_total as f64;
        let ratio = foretold.total() as f64 / used;
        assert!(
            (0.9..1.1).contains(&ratio),
            "{} in {}: {} bytes foretold, {used} used",
            config.convolution,
            E::PRECISION,
            foretold.total()
        );
    }
    assert_eq!(vertices, 512);
    let shape = |config| ModelConfig {
        hidden: 16,
        layers: 2,
        ..config
    };
    for config in [
        shape(ModelConfig::gcn(24, 8)),
        shape(ModelConfig::gin(24, 8)),
        shape(ModelConfig::gat(24, 8)),
        shape(ModelConfig::sage(24, 8)),
    ] {
        check::<f16>(&backend, &graph, &config);
        check::<f32>(&backend, &graph, &config);
    }
}
