//! The kernels that a step launches, in their order.

use super::network::{SEED, shaped};
use super::setup::{graph, numbers};
use half::f16;
use halfgnn::backend::MemoryKind;
use halfgnn::backend::gpu::Gpu;
use halfgnn::driver::Driver;
use halfgnn::driver::emulated::{Emulated, Options};
use halfgnn::kernels::Kernels;
use halfgnn::nn::{
    Binary, Gat as GatConfig, GatV2 as GatV2Config, Gin as GinConfig, Inputs, Mode, Model,
    ModelConfig, Network, Propagation,
};
use halfgnn::ops::{CodeFormat, RandomState};
use halfgnn::tensor::Matrix;

fn device() -> (Emulated, Gpu<Emulated>) {
    let driver = Emulated::with_options(Options {
        record: true,
        ..Options::default()
    });
    let kernels = Kernels::find(Some(driver.info().compute_capability)).expect("the kernels");
    let backend = Gpu::new(driver.clone(), kernels).expect("the PTX fits this program");
    (driver, backend)
}

fn names(driver: &Emulated) -> Vec<String> {
    let launches = driver.take_launches().into_iter();
    launches.map(|launched| launched.kernel).collect()
}

/// Kernels of the second step of a network, forward and backward. The first makes what later ones find.
fn of_network(config: &ModelConfig) -> Vec<String> {
    let (driver, backend) = device();
    let whole = graph();
    let prepared = config.prepare(&whole).expect("memory");
    let graphs = [Propagation::new(&backend, &prepared, config.norm()).expect("memory")];
    let mut network = Network::<_, f16>::new(&backend, config, SEED).expect("a model");
    let shape = (graph().vertices(), config.features);
    let x = numbers(100, shape.0 * shape.1);
    let features = Matrix::from_f32(&backend, shape.0, shape.1, &x, MemoryKind::Features);
    let features = features.expect("memory");
    let inputs = Inputs {
        backend: &backend,
        graphs: &graphs,
        features: &features,
        of_types: &[],
        dropped: false,
    };
    let random = RandomState::new(&backend, SEED, 3).expect("memory");
    let mode = Mode::Train { random: &random };
    let seed = vec![1.0; shape.0 * config.classes];
    let mut step = || {
        names(&driver);
        network.forward(inputs, mode).expect("a forward pass");
        let (_, gradient) = network.loss_operands();
        gradient.write_f32(&backend, &seed).expect("memory");
        network.backward(inputs, mode).expect("a backward pass");
        names(&driver)
    };
    step();
    step()
}

#[test]
fn a_step_launches_these_kernels() {
    let of = |config| shaped(config, 2, 8, 0.4);
    let quantized = |config| ModelConfig {
        messages: Some(CodeFormat::Int8),
        ..of(config)
    };
    let expected = include_str!("launches.txt");
    let models = [
        ("gcn", of(ModelConfig::gcn(12, 5))),
        ("sage", of(ModelConfig::sage(12, 5))),
        ("gin", of(ModelConfig::of(GinConfig::default(), 12, 5))),
        ("gat", of(ModelConfig::of(GatConfig::default(), 12, 5))),
        ("gatv2", of(ModelConfig::of(GatV2Config::default(), 12, 5))),
        ("gcn with int8 messages", quantized(ModelConfig::gcn(12, 5))),
        (
            "sage with int8 messages",
            quantized(ModelConfig::sage(12, 5)),
        ),
        (
            "gcn of one bit",
            of(ModelConfig::gcn(12, 5)).of_bits(Binary::Full),
        ),
        (
            "sage of one bit, sums too",
            of(ModelConfig::sage(12, 5)).of_bits(Binary::Bin),
        ),
    ];
    let found: String = models
        .iter()
        .map(|(name, config)| format!("{name}:\n{}\n", of_network(config).join("\n")))
        .collect();
    assert_eq!(
        found, expected,
        "the kernels of a step, a network after the other"
    );
}
