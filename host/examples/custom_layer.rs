//! A layer of your own, from the crate's operators: forward and backward, checked by finite differences.
//!
//! `Y = relu(D⁻¹ A X W + b)`: the mean of the neighbours after a linear map. It is generic over the backend and the
//! precision, so it runs on the CPU, on the emulator and on a card alike.
//!
//! `cargo run --example custom_layer`

use halfgnn::Error;
use halfgnn::backend::{
    Activation, Backend, DeviceGraph, EdgeWeights, Epilogue, Form, MemoryKind, Spmm, cpu::Cpu,
};
use halfgnn::graph::Graph;
use halfgnn::graph::generate::Rmat;
use halfgnn::ops;
use halfgnn::tensor::{Array, Element, Matrix};

/// The layer: its parameters, and what its backward pass wants to see again.
struct MeanLayer<B: Backend, E: Element> {
    /// Inputs × outputs.
    weight: Matrix<B, E>,
    /// 1 × outputs.
    bias: Matrix<B, f32>,
    /// One over the degree of each vertex.
    inverse_degree: Array<B, f32>,
    /// `Y`, vertices × outputs.
    output: Matrix<B, E>,
}

/// Gradients of the layer's parameters and of its input.
struct Gradients<B: Backend, E: Element> {
    weight: Matrix<B, f32>,
    bias: Matrix<B, f32>,
    input: Matrix<B, E>,
}

impl<B: Backend, E: Element> MeanLayer<B, E> {
    fn new(backend: &B, graph: &Graph, weight: &[f32], bias: &[f32]) -> Result<Self, Error> {
        let (outputs, inputs) = (bias.len(), weight.len() / bias.len());
        let inverse: Vec<f32> = graph
            .in_degrees()
            .iter()
            .map(|&degree| 1.0 / degree.max(1) as f32)
            .collect();
        let weights = MemoryKind::Weights;
        Ok(Self {
            weight: Matrix::from_f32(backend, inputs, outputs, weight, weights)?,
            bias: Matrix::from_f32(backend, 1, outputs, bias, weights)?,
            inverse_degree: Array::from_slice(backend, &inverse, MemoryKind::Graph)?,
            output: Matrix::zeros(backend, graph.vertices(), outputs, MemoryKind::Activations)?,
        })
    }

    fn forward(
        &mut self,
        backend: &B,
        graph: &DeviceGraph<B>,
        x: &Matrix<B, E>,
    ) -> Result<(), Error> {
        let (vertices, outputs) = self.output.shape();
        let mut product = Matrix::zeros(backend, vertices, outputs, MemoryKind::Activations)?;
        let mut summed = Matrix::zeros(backend, vertices, outputs, MemoryKind::Activations)?;
        let plain = Epilogue::default();
        ops::matmul(backend, Form::NN, x, &self.weight, &plain, &mut product)?;
        let mean = Spmm {
            row_scale: Some(&self.inverse_degree),
            ..Spmm::default()
        };
        ops::spmm(backend, graph.forward(), &mean, &product, &mut summed)?;
        let activation = Activation {
            bias: Some(&self.bias),
            relu: true,
            dropout: None,
        };
        ops::activate(backend, &activation, Some(&summed), &mut self.output)
    }

    /// From `d`, the gradient of the loss with respect to the output, which is used up.
    fn backward(
        &self,
        backend: &B,
        graph: &DeviceGraph<B>,
        x: &Matrix<B, E>,
        mut d: Matrix<B, E>,
    ) -> Result<Gradients<B, E>, Error> {
        let (inputs, outputs) = self.weight.shape();
        let plain = Epilogue::default();
        let mut gradients = Gradients {
            weight: Matrix::zeros(backend, inputs, outputs, MemoryKind::Weights)?,
            bias: Matrix::zeros(backend, 1, outputs, MemoryKind::Weights)?,
            input: Matrix::zeros(backend, x.rows(), inputs, MemoryKind::Activations)?,
        };
        let activation = Activation {
            bias: Some(&self.bias),
            relu: true,
            dropout: None,
        };
        ops::activate_backward(backend, &activation, Some(&self.output), None, &mut d)?;
        ops::column_sums(backend, &d, &mut gradients.bias)?;
        // Along the edges the other way, each message times the factor of the vertex that it went to: Aᵀ D⁻¹ d.
        let mut product = Matrix::zeros(backend, d.rows(), outputs, MemoryKind::Activations)?;
        let transposed = Spmm {
            weights: EdgeWeights::Columns(&self.inverse_degree),
            ..Spmm::default()
        };
        ops::spmm(backend, graph.backward(), &transposed, &d, &mut product)?;
        ops::matmul(
            backend,
            Form::TN,
            x,
            &product,
            &plain,
            &mut gradients.weight,
        )?;
        ops::matmul(
            backend,
            Form::NT,
            &product,
            &self.weight,
            &plain,
            &mut gradients.input,
        )?;
        Ok(gradients)
    }
}

/// Numbers between −1 and 1 that repeat.
fn numbers(count: usize, seed: u32) -> Vec<f32> {
    let mix = |i: u32| {
        (i ^ seed)
            .wrapping_mul(0x9e37_79b9)
            .rotate_left(15)
            .wrapping_mul(0x85eb_ca6b)
    };
    (0..count as u32)
        .map(|i| (mix(i) >> 8) as f32 / (1 << 23) as f32 - 1.0)
        .collect()
}

/// The loss `Σ Y · target`, summed up in double precision.
fn loss(
    graph: &Graph,
    x: &[f32],
    weight: &[f32],
    bias: &[f32],
    target: &[f32],
) -> Result<f64, Error> {
    let backend = Cpu::new();
    let inputs = weight.len() / bias.len();
    let device = DeviceGraph::new(&backend, graph)?;
    let x =
        Matrix::<_, f32>::from_f32(&backend, graph.vertices(), inputs, x, MemoryKind::Features)?;
    let mut layer = MeanLayer::new(&backend, graph, weight, bias)?;
    layer.forward(&backend, &device, &x)?;
    let y = layer.output.to_f32(&backend)?;
    Ok(y.iter()
        .zip(target)
        .map(|(y, target)| f64::from(*y) * f64::from(*target))
        .sum())
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let graph = Rmat::graph500(6).generate(1)?;
    let (vertices, inputs, outputs) = (graph.vertices(), 5, 3);
    let x = numbers(vertices * inputs, 1);
    let weight = numbers(inputs * outputs, 2);
    let bias = numbers(outputs, 3);
    let target = numbers(vertices * outputs, 4);

    let backend = Cpu::new();
    let device = DeviceGraph::new(&backend, &graph)?;
    let input = Matrix::<_, f32>::from_f32(&backend, vertices, inputs, &x, MemoryKind::Features)?;
    let mut layer = MeanLayer::new(&backend, &graph, &weight, &bias)?;
    layer.forward(&backend, &device, &input)?;
    let d = Matrix::from_f32(
        &backend,
        vertices,
        outputs,
        &target,
        MemoryKind::Activations,
    )?;
    let gradients = layer.backward(&backend, &device, &input, d)?;

    // The loss a little to either side of each number, over the distance, is the gradient.
    const STEP: f32 = 1.0 / 256.0;
    let differences = |values: &[f32], loss_of: &dyn Fn(&[f32]) -> Result<f64, Error>| {
        (0..values.len())
            .map(|index| {
                let moved = |by: f32| {
                    let mut values = values.to_vec();
                    values[index] += by;
                    loss_of(&values)
                };
                Ok((moved(STEP)? - moved(-STEP)?) / f64::from(2.0 * STEP))
            })
            .collect::<Result<Vec<f64>, Error>>()
    };
    for (name, analytic, numeric) in [
        (
            "weight",
            gradients.weight.to_f32(&backend)?,
            differences(&weight, &|weight| loss(&graph, &x, weight, &bias, &target))?,
        ),
        (
            "bias",
            gradients.bias.to_f32(&backend)?,
            differences(&bias, &|bias| loss(&graph, &x, &weight, bias, &target))?,
        ),
        (
            "input",
            gradients.input.to_f32(&backend)?,
            differences(&x, &|x| loss(&graph, x, &weight, &bias, &target))?,
        ),
    ] {
        let largest = analytic
            .iter()
            .fold(0.0f32, |most, value| most.max(value.abs()));
        let error = analytic
            .iter()
            .zip(&numeric)
            .fold(0.0f64, |most, (a, n)| most.max((f64::from(*a) - n).abs()));
        println!(
            "gradient of the {name}: {} numbers up to {largest:.3}, differ by {error:.1e} at most",
            analytic.len()
        );
        assert!(
            largest > 0.1,
            "a gradient of nothing but zeros proves nothing"
        );
        assert!(error < 0.01 * f64::from(largest), "{name}: {error}");
    }
    Ok(())
}

#[test]
fn its_gradients_are_right() {
    main().unwrap();
}
