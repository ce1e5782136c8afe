//! An operator of one's own among `halfgnn`'s: a leaky ReLU, with kernel, check, CPU form and gradient; called by hand
//! behind a graph convolution, and as a layer of a network (`network.rs`).
//!
//! `cargo run` in this folder runs it on the CPU and on the PTX emulator, and `cargo run --features cuda` on a GPU if
//! there is one. The build script compiles `kernels/`, which needs the device toolchain (`cargo xtask setup` in the
//! clone installs it).

mod leaky_relu;
mod network;

use halfgnn::backend::cpu::Cpu;
use halfgnn::backend::gpu::Gpu;
use halfgnn::backend::{Adjacency, MemoryKind};
use halfgnn::driver::Driver;
use halfgnn::driver::emulated::Emulated;
use halfgnn::graph::Graph;
use halfgnn::kernels::Kernels;
use halfgnn::ops::{Checked, Combine, Epilogue, Form, Spmm};
use halfgnn::tensor::Matrix;
use halfgnn::{Error, ops};
use leaky_relu::{Backward, Forward, LeakyReluOperators};

const SLOPE: f32 = 0.25;
const VERTICES: usize = 60;
const INPUTS: usize = 11;
const OUTPUTS: usize = 5;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let expected = (train(&Cpu::new())?, train_network(&Cpu::new())?);
    #[cfg(feature = "cuda")]
    match halfgnn::driver::cuda::Cuda::open(0) {
        Ok(card) => return follow(card, &expected),
        Err(reason) => println!("on the emulator: {reason}"),
    }
    follow(Emulated::new(), &expected)
}

/// Trains on the device of `driver`, and compares the weights and the network's losses with those of the CPU.
fn follow<D: Driver>(
    driver: D,
    (expected, losses): &(Vec<f32>, Vec<f32>),
) -> Result<(), Box<dyn std::error::Error>> {
    let capability = driver.info().compute_capability;
    let kernels = Kernels::find(Some(capability))?;
    println!("{}: {kernels}", driver.info().name);
    let gpu = Gpu::new(driver, kernels)?;
    let weights = train(&gpu)?;
    for (index, (actual, expected)) in weights.iter().zip(expected).enumerate() {
        assert!(
            (actual - expected).abs() < 1e-4,
            "weight {index}: {actual} for {expected}"
        );
    }
    println!("the {} weights are those of the CPU", weights.len());
    for (step, (actual, expected)) in train_network(&gpu)?.iter().zip(losses).enumerate() {
        assert!(
            (actual - expected).abs() < 1e-4,
            "step {step}: a loss of {actual} for {expected}"
        );
    }
    println!("the {} losses are those of the CPU", losses.len());

    // What does not fit is refused before anything is launched.
    let y = Matrix::zeros(&gpu, 3, 2, MemoryKind::Activations)?;
    let mut d = Matrix::zeros(&gpu, 2, 2, MemoryKind::Activations)?;
    let refused = Checked::new(Backward {
        slope: SLOPE,
        y: &y,
        d: &mut d,
    });
    assert_eq!(
        refused.map(|_| ()).map_err(|error| error.to_string()),
        Err("leaky_relu_backward: rows of d should be 3, is 2".into())
    );
    Ok(())
}

/// `h = leaky_relu(A x W)`, with what its gradient needs.
struct Layer<B: LeakyReluOperators> {
    kernels: B::Kernels,
    weights: Matrix<B, f32>,
    gradient: Matrix<B, f32>,
    aggregated: Matrix<B, f32>,
    h: Matrix<B, f32>,
}

impl<B: LeakyReluOperators> Layer<B> {
    fn forward(&mut self, backend: &B, a: &Adjacency<B>, x: &Matrix<B, f32>) -> Result<(), Error> {
        ops::spmm(backend, a, &Spmm::default(), x, &mut self.aggregated)?;
        let (form, plain) = (Form::NN, Epilogue::default());
        ops::matmul(
            backend,
            form,
            &self.aggregated,
            &self.weights,
            &plain,
            &mut self.h,
        )?;
        let operands = Forward {
            slope: SLOPE,
            y: &mut self.h,
        };
        backend.leaky_relu(&self.kernels, Checked::new(operands)?)
    }

    /// The gradient of the weights, from that of `h`, which becomes that of what the leaky ReLU was given.
    fn backward(&mut self, backend: &B, d: &mut Matrix<B, f32>) -> Result<(), Error> {
        let operands = Backward {
            slope: SLOPE,
            y: &self.h,
            d,
        };
        backend.leaky_relu_backward(&self.kernels, Checked::new(operands)?)?;
        let (form, plain) = (Form::TN, Epilogue::default());
        ops::matmul(
            backend,
            form,
            &self.aggregated,
            d,
            &plain,
            &mut self.gradient,
        )
    }
}

/// Numbers from −1 to 1, the same each time.
fn numbers(len: usize, seed: usize) -> Vec<f32> {
    (0..len)
        .map(|i| ((i * 7919 + seed * 104_729) % 1009) as f32 / 504.0 - 1.0)
        .collect()
}

/// Every vertex aggregates three others.
fn graph() -> Result<Graph, Error> {
    let (rows, columns): (Vec<u32>, Vec<u32>) = (0..VERTICES as u32)
        .flat_map(|v| [1, 7, 20].map(|step| (v, (v + step) % VERTICES as u32)))
        .unzip();
    Ok(Graph::from_edges(VERTICES, &rows, &columns)?)
}

/// Trains a network that has the operator as a layer; the loss of each step.
fn train_network<B: LeakyReluOperators>(backend: &B) -> Result<Vec<f32>, Error> {
    let (values, kind) = (numbers(VERTICES * INPUTS, 5), MemoryKind::Features);
    let features = Matrix::from_f32(backend, VERTICES, INPUTS, &values, kind)?;
    let graph = graph()?;
    // Which of the first features that a vertex aggregates is the largest.
    let heard = |vertex: usize, class: usize| {
        let neighbours = graph.csr().row(vertex).iter();
        neighbours
            .map(|&neighbour| values[neighbour as usize * INPUTS + class])
            .sum::<f32>()
    };
    let label = |vertex| {
        let classes = 0..network::CLASSES as u32;
        classes.max_by(|&a, &b| heard(vertex, a as usize).total_cmp(&heard(vertex, b as usize)))
    };
    let labels: Vec<u32> = (0..VERTICES).filter_map(label).collect();
    network::train(backend, &graph, features, &labels)
}

/// Trains the layer towards targets that it can reach, by plain gradient descent; its weights.
fn train<B: LeakyReluOperators>(backend: &B) -> Result<Vec<f32>, Error> {
    let graph = graph()?;
    let a = &Adjacency::new(backend, graph.csr())?;
    let matrix = |rows, columns, seed| {
        let values = numbers(rows * columns, seed);
        Matrix::from_f32(backend, rows, columns, &values, MemoryKind::Features)
    };
    let zeros = |rows, columns| Matrix::zeros(backend, rows, columns, MemoryKind::Activations);
    let x = &matrix(VERTICES, INPUTS, 1)?;
    let mut layer = Layer {
        kernels: backend.kernels()?,
        weights: matrix(INPUTS, OUTPUTS, 2)?,
        gradient: zeros(INPUTS, OUTPUTS)?,
        aggregated: zeros(VERTICES, INPUTS)?,
        h: zeros(VERTICES, OUTPUTS)?,
    };
    // The targets are what the layer gives with other weights.
    layer.forward(backend, a, x)?;
    let mut targets = zeros(VERTICES, OUTPUTS)?;
    ops::combine(backend, &Combine::copy(), &layer.h, &mut targets)?;
    layer
        .weights
        .write_f32(backend, &numbers(INPUTS * OUTPUTS, 3))?;

    // Half the sum of the squares of h − target; `d` becomes its gradient.
    let mut d = zeros(VERTICES, OUTPUTS)?;
    let less = Combine {
        x_factor: -1.0,
        ..Combine::sum()
    };
    let mut loss = |layer: &mut Layer<B>, d: &mut Matrix<B, f32>| {
        layer.forward(backend, a, x)?;
        ops::combine(backend, &Combine::copy(), &layer.h, d)?;
        ops::combine(backend, &less, &targets, d)?;
        let squares = d
            .to_f32(backend)?
            .into_iter()
            .map(|d| f64::from(d * d) / 2.0);
        Ok::<f64, Error>(squares.sum())
    };

    let first = loss(&mut layer, &mut d)?;
    check_gradient(backend, &mut layer, &mut d, &mut loss)?;
    let step = Combine {
        x_factor: -2e-3,
        ..Combine::sum()
    };
    let mut last = first;
    for _ in 0..60 {
        last = loss(&mut layer, &mut d)?;
        layer.backward(backend, &mut d)?;
        ops::combine(backend, &step, &layer.gradient, &mut layer.weights)?;
    }
    println!(
        "{}: loss {first:.1}, after 60 steps {last:.3}",
        backend.name()
    );
    assert!(last < first / 20.0, "the loss falls: {first} to {last}");
    layer.weights.to_f32(backend)
}

/// Compares the gradient of some weights with differences of the loss.
fn check_gradient<B: LeakyReluOperators>(
    backend: &B,
    layer: &mut Layer<B>,
    d: &mut Matrix<B, f32>,
    loss: &mut impl FnMut(&mut Layer<B>, &mut Matrix<B, f32>) -> Result<f64, Error>,
) -> Result<(), Error> {
    layer.backward(backend, d)?;
    let gradient = layer.gradient.to_f32(backend)?;
    let weights = layer.weights.to_f32(backend)?;
    for index in [0, 17, 54] {
        let mut at = |by: f32| {
            let mut moved = weights.clone();
            moved[index] += by;
            layer.weights.write_f32(backend, &moved)?;
            loss(layer, d)
        };
        let difference = (at(1e-2)? - at(-1e-2)?) / 2e-2;
        let off = (difference - f64::from(gradient[index])).abs();
        assert!(
            off < 0.02 * difference.abs().max(1.0),
            "weight {index}: {} for {difference}",
            gradient[index]
        );
    }
    layer.weights.write_f32(backend, &weights)
}
