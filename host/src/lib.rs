//! Graph neural networks in half precision, on GPU kernels written in Rust.
//!
//! The crate trains on a CUDA card, on the CPU, or on a PTX emulator that runs the card's kernels where there is none. It
//! is written once for all three: pick a *backend*, put matrices on it, call operators.
//!
//! # An SpMM
//!
//! The mean of 65,536 neighbours, in half:
//!
//! ```
//! use half::f16;
//! use halfgnn::backend::{Adjacency, MemoryKind, cpu::Cpu};
//! use halfgnn::graph::Graph;
//! use halfgnn::ops::{self, Spmm};
//! use halfgnn::tensor::{Array, Matrix};
//!
//! // Vertex 0 hears from 65,536 others, which have 41 features each, all 3.
//! let columns: Vec<u32> = (1..=65_536).collect();
//! let graph = Graph::from_edges(columns.len() + 1, &vec![0; columns.len()], &columns)?;
//! let (vertices, features) = (graph.vertices(), 41);
//!
//! let backend = Cpu::new();
//! let a = Adjacency::new(&backend, graph.csr())?;
//! let threes = vec![3.0; vertices * features];
//! let x = Matrix::<_, f16>::from_f32(&backend, vertices, features, &threes, MemoryKind::Features)?;
//! let mut y = Matrix::<_, f16>::zeros(&backend, vertices, features, MemoryKind::Activations)?;
//!
//! let inverse: Vec<f32> = graph.in_degrees().iter().map(|&d| 1.0 / d.max(1) as f32).collect();
//! let inverse = Array::from_slice(&backend, &inverse, MemoryKind::Graph)?;
//! let mean = Spmm { row_scale: Some(&inverse), ..Spmm::default() };
//! ops::spmm(&backend, &a, &mean, &x, &mut y)?;
//! assert_eq!(y.to_f32(&backend)?[..features], [3.0; 41]); // summed up in half first, it would be 0.125
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! An operator checks shapes and policies and gives an [`Error`] in words; it neither panics nor launches what does not
//! fit. Feature lengths may be odd: rows are padded to 16 bytes, and padding is never visible.
//!
//! # On whatever device there is
//!
//! A program that is told at run time where to run hands its work over as a [`device::Task`], generic over the backend:
//!
//! ```
//! use halfgnn::backend::Backend;
//! use halfgnn::device::{self, Choice, Device, Task};
//!
//! struct Name;
//!
//! impl Task for Name {
//!     type Output = String;
//!
//!     fn run<B: Backend>(self, device: &Device<B>) -> String {
//!         device.backend.name()
//!     }
//! }
//!
//! // `Choice::Auto` takes a card if one can be used, else the CPU.
//! let name = device::open(Choice::Cpu, Name)?;
//! assert!(name.starts_with("CPU"));
//! # Ok::<(), halfgnn::Error>(())
//! ```
//!
//! # Training
//!
//! ```no_run
//! use half::f16;
//! use halfgnn::backend::cpu::Cpu;
//! use halfgnn::data::{Dataset, UploadFeatures};
//! use halfgnn::nn::{ModelConfig, Network, Propagation};
//! use halfgnn::tensor::Precision;
//! use halfgnn::train::{Objective, TrainConfig, Trainer};
//! use std::ops::ControlFlow;
//!
//! let data = Dataset::open("cora.npz")?;
//! let backend = Cpu::new();
//! let shape = ModelConfig::gcn(data.feature_len(), data.outputs);
//! let graph = shape.prepare(&data.graph)?;
//! let objective = Objective::<_, f16>::new(
//!     &backend,
//!     Propagation::new(&backend, &graph, shape.norm())?,
//!     data.upload_features(&backend)?,
//!     data.class_labels()?,
//!     data.outputs,
//!     [&data.train, &data.val, &data.test],
//! )?;
//! let model = Network::new(&backend, &shape, 0)?;
//! let mut trainer = Trainer::new(&backend, &objective, model, TrainConfig::new(Precision::Half))?;
//! let run = trainer.run(|epoch| {
//!     println!("epoch {}: loss {:.4}", epoch.epoch, epoch.loss);
//!     ControlFlow::Continue(())
//! })?;
//! println!("test accuracy {:.1} %", run.test_score());
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # Where things are
//!
//! - [`graph`] and [`data`]: graphs, labelled datasets, generators, readers.
//! - [`tensor`]: matrices and arrays on a backend, in [`half::f16`], [`half::bf16`] or `f32`.
//! - [`ops`]: the operators, which check shapes once for every backend. SpMM scales and merges batches of edges in float,
//!   so that a hub's mean neither overflows nor stops growing (HalfGNN §4.3.1).
//! - [`backend`]: where operators run: [`backend::cpu::Cpu`], or [`backend::gpu::Gpu`] over any [`driver::Driver`]: a CUDA
//!   card (feature `cuda`) or the PTX emulator.
//! - [`nn`] and [`train`]: models with explicit forward and backward, and training in mixed precision.
//! - `predict`: a trained model that is opened once and asked many times (feature `checkpoints`).
//! - [`program`]: networks as lists of operators, with gradients, passes and a memory plan made from the list.
//! - [`distributed`]: one graph and several ranks.
//! - [`sample`]: batches of a graph, drawn on the device.
//! - [`metrics`]: how good predictions are.
//! - [`device`] and [`kernels`]: what a machine offers, and the built kernels.
//!
//! The [examples](https://github.com/halfgnn/halfgnn-rs/tree/main/host/examples) write a layer from the operators, take
//! arrays of `ndarray`, and [launch kernels of their
//! own](https://github.com/halfgnn/halfgnn-rs/tree/main/examples/own_kernels) between the crate's.
//!
//! # Features
//!
//! | feature | default | what it brings |
//! |---|---|---|
//! | `numpy`, `planetoid`, `ogb`, `text` | no | readers of datasets and graphs, by family: see [`data`] |
//! | `write` | no | writers of those formats |
//! | `checkpoints` | no | `train::Checkpoint`: a run in a file, which goes on from it; `predict::Predictor`: its model, served |
//! | `full` | no | all of these and the emulator |
//! | `cuda` | no | CUDA cards, through `cust`, opened at run time: a program built with it starts where there is no driver |
//! | `mpi` | no | ranks that are processes of MPI, which is opened at run time |
//! | `emulator` | no | the PTX emulator: the kernels on the CPU, slow, every access checked |
//!
//! To build with `cuda` where there is no CUDA toolkit, set `CUDA_LIBRARY_PATH` to a folder that holds an empty
//! `lib64/libcuda.so` with the text `INPUT()`, such as `link-stub` of the package `halfgnn-cuda-loader`.
//!
//! # What is stable
//!
//! The crate follows semantic versioning; below 1.0 a minor version may change the interface. Enums that may grow are
//! `#[non_exhaustive]`. What this documentation does not show is no interface. The kernels and their parameters are no interface: PTX and host are one build, which is checked.
#![cfg_attr(docsrs, feature(doc_cfg))]

pub mod data;
pub mod device;
pub mod distributed;
pub mod metrics;
pub mod nn;
#[cfg(feature = "checkpoints")]
pub mod predict;
pub mod program;
pub mod sample;
pub mod threads;
pub mod train;

#[cfg(feature = "checkpoints")]
#[doc(inline)]
pub use halfgnn_data::file;
#[doc(inline)]
pub use halfgnn_data::message;
#[doc(inline)]
pub use halfgnn_device::{self as driver, kernels};
#[doc(inline)]
pub use halfgnn_graph as graph;
pub use halfgnn_ops::Error;
use halfgnn_ops::error;
#[doc(inline)]
pub use halfgnn_ops::{backend, ops, tensor, with_element};
#[cfg(feature = "checkpoints")]
#[doc(inline)]
pub use predict::Predictor;

/// The code in the README and in pages of docs compiles and runs.
#[cfg(doctest)]
#[doc = include_str!("../../README.md")]
#[doc = include_str!("../../docs/embedding.md")]
#[cfg_attr(feature = "checkpoints", doc = include_str!("../../docs/how-to/serve.md"))]
#[doc = include_str!("../../docs/sampling.md")]
#[doc = include_str!("../../docs/scale-out.md")]
#[doc = include_str!("../../docs/tutorials/own-layer.md")]
mod documents {}
