//! The kernels that a step launches: those of the network of layers, in their order, but for what is listed here.

use super::network::{SEED, shaped, stack};
use super::setup::{compiled, graph, numbers, program};
use half::f16;
use halfgnn::backend::MemoryKind;
use halfgnn::backend::gpu::Gpu;
use halfgnn::driver::Driver;
use halfgnn::driver::emulated::{Emulated, Options};
use halfgnn::kernels::Kernels;
use halfgnn::nn::{
    Gat as GatConfig, GatV2 as GatV2Config, Gin as GinConfig, Inputs, Mode, Model, ModelConfig,
    Network, Norm, Propagation,
};
use halfgnn::ops::{CodeFormat, RandomState};
use halfgnn::program::layers::{Gat, GatV2, Gcn, Gin, Sage};
use halfgnn::program::passes::{Pass, Quantize};
use halfgnn::program::{Builder, Edges, Runner, Value};
use halfgnn::tensor::{Element, Matrix};
use std::sync::Arc;

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
fn of_network(config: &ModelConfig, norm: Norm) -> Vec<String> {
    let (driver, backend) = device();
    let graphs = [Propagation::new(&backend, &graph(), norm).expect("memory")];
    let mut network = Network::<_, f16>::new(&backend, config, SEED).expect("a model");
    let shape = (graph().vertices(), config.features);
    let x = numbers(100, shape.0 * shape.1);
    let features = Matrix::from_f32(&backend, shape.0, shape.1, &x, MemoryKind::Features);
    let features = features.expect("memory");
    let inputs = Inputs {
        backend: &backend,
        graphs: &graphs,
        features: &features,
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

fn of_program(
    config: &ModelConfig,
    norm: Norm,
    build: impl Fn(&mut Builder, Edges, Value) -> Value,
) -> Vec<String> {
    let (driver, backend) = device();
    let size = (graph().vertices(), config.features);
    let mut program = compiled(program(f16::PRECISION, size, norm, build), false);
    if let Some(format) = config.messages {
        Quantize { format }.run(&mut program).expect("both lists");
    }
    let edges = Propagation::new(&backend, &graph(), norm).expect("memory");
    let mut runner = Runner::new(&backend, program, vec![Arc::new(edges)], SEED).expect("memory");
    let mut step = || {
        names(&driver);
        runner.forward().expect("a forward pass");
        let logits = graph().vertices() * config.classes;
        runner.write_seed(&vec![1.0; logits]).expect("memory");
        runner.backward().expect("a backward pass");
        names(&driver)
    };
    step();
    step()
}

/// What is in one list and not in the other, in order: a line `- kernel` of the network's alone, `+ kernel` of the program's alone.
fn difference(network: &[String], program: &[String]) -> Vec<String> {
    let (rows, columns) = (network.len(), program.len());
    let mut common = vec![vec![0; columns + 1]; rows + 1];
    for row in (0..rows).rev() {
        for column in (0..columns).rev() {
            common[row][column] = match network[row] == program[column] {
                true => common[row + 1][column + 1] + 1,
                false => common[row + 1][column].max(common[row][column + 1]),
            };
        }
    }
    let (mut row, mut column, mut lines) = (0, 0, Vec::new());
    while row < rows || column < columns {
        if row < rows && column < columns && network[row] == program[column] {
            (row, column) = (row + 1, column + 1);
        } else if column == columns
            || (row < rows && common[row + 1][column] >= common[row][column + 1])
        {
            lines.push(format!("- {}", network[row]));
            row += 1;
        } else {
            lines.push(format!("+ {}", program[column]));
            column += 1;
        }
    }
    lines
}

fn assert_launches(
    config: &ModelConfig,
    norm: Norm,
    expected: &[&str],
    build: impl Fn(&mut Builder, Edges, Value) -> Value,
) {
    let (network, program) = (of_network(config, norm), of_program(config, norm, build));
    assert!(network.len() > 8, "{network:?}");
    assert_eq!(
        difference(&network, &program),
        expected,
        "network {network:#?}, program {program:#?}"
    );
}

#[test]
fn gcn_launches_the_kernels_of_the_network() {
    let config = shaped(ModelConfig::gcn(12, 5), 2, 8, 0.4);
    assert_launches(&config, Norm::Both, &[], |g, edges, x| {
        stack(g, &config, x, |outputs| Gcn { edges, outputs })
    });
}

#[test]
fn sage_launches_the_kernels_of_the_network() {
    let config = shaped(ModelConfig::sage(12, 5), 2, 8, 0.4);
    assert_launches(&config, Norm::Right, &[], |g, edges, x| {
        stack(g, &config, x, |outputs| Sage { edges, outputs })
    });
}

/// The gradient of the second map's weights comes behind that of its input, as of every product; the network has it before.
#[test]
fn gin_launches_the_kernels_of_the_network() {
    let options = GinConfig::default();
    let config = shaped(ModelConfig::of(options.clone(), 12, 5), 2, 8, 0.4);
    assert_launches(
        &config,
        Norm::Right,
        &[
            "- gemm_tn_normalized_f16_to_f32_128x16",
            "+ gemm_tn_normalized_f16_to_f32_128x16",
            "- gemm_tn_normalized_f16_to_f32_128x16",
            "+ gemm_tn_normalized_f16_to_f32_128x16",
        ],
        |g, edges, x| {
            stack(g, &config, x, |outputs| Gin {
                edges,
                hidden: 8,
                outputs,
                options: options.clone(),
            })
        },
    );
}

/// The gradient of a bias comes before that of attention, which no product of its rows follows; the network has it behind.
#[test]
fn gat_launches_the_kernels_of_the_network() {
    let options = GatConfig::default();
    let config = shaped(ModelConfig::of(options.clone(), 12, 5), 2, 8, 0.4);
    assert_launches(
        &config,
        Norm::None,
        &["+ column_sums_f16", "- column_sums_f16"],
        |g, edges, x| {
            stack(g, &config, x, |outputs| Gat {
                edges,
                outputs,
                averaged: false,
                options: options.clone(),
            })
        },
    );
}

/// Gradients of the maps' biases are a row more of the products of their weights, where the network sums columns in launches of their own.
/// ReLU and dropout are undone in the products that write the gradient of the input, one of which adds the other.
#[test]
fn gatv2_launches_the_kernels_of_the_network() {
    let options = GatV2Config::default();
    let config = shaped(ModelConfig::of(options.clone(), 12, 5), 2, 8, 0.4);
    assert_launches(
        &config,
        Norm::None,
        &[
            "+ column_sums_f16",
            "- column_sums_f16",
            "- column_sums_f16",
            "- gemm_tn_f16_to_f32_128x16",
            "- combine_f16",
            "+ gemm_tn_f16_to_f32_128x16",
            "- activate_backward_f16",
            "- column_sums_f16",
            "- column_sums_f16",
            "- column_sums_f16",
        ],
        |g, edges, x| {
            stack(g, &config, x, |outputs| GatV2 {
                edges,
                outputs,
                averaged: false,
                options: options.clone(),
            })
        },
    );
}

/// Where the first step has found scales, quantized values are made on the way, by the same kernels. Of GCN the last bias' gradient comes
/// before the sum of quantized gradients, which overwrites nothing; the network has it behind.
#[test]
fn quantized_messages_launch_the_kernels_of_the_network() {
    let messages = |config| ModelConfig {
        messages: Some(CodeFormat::Int8),
        ..config
    };
    let config = messages(shaped(ModelConfig::gcn(12, 5), 2, 8, 0.4));
    let bias = ["+ column_sums_f16", "- column_sums_f16"];
    assert_launches(&config, Norm::Both, &bias, |g, edges, x| {
        stack(g, &config, x, |outputs| Gcn { edges, outputs })
    });
    let config = messages(shaped(ModelConfig::sage(12, 5), 2, 8, 0.4));
    assert_launches(&config, Norm::Right, &[], |g, edges, x| {
        stack(g, &config, x, |outputs| Sage { edges, outputs })
    });
}
