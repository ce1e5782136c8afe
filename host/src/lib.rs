//! Graph neural networks in half precision, on GPU kernels written in Rust.
//!
//! - [`graph`] and [`data`]: graphs, labelled datasets, generators, readers.
//! - [`tensor`]: matrices and arrays on a backend, in [`half::f16`] or `f32`.
//! - [`ops`]: the operators, which check shapes once for every backend. SpMM scales and merges batches of edges in float,
//!   so that a hub's mean neither overflows nor stops growing (HalfGNN §4.3.1).
//! - [`backend`]: where operators run: [`backend::cpu::Cpu`], or [`backend::gpu::Gpu`] over any [`driver::Driver`]: a CUDA
//!   card (feature `cuda`) or the PTX emulator.
//! - [`nn`] and [`train`]: models with explicit forward and backward, and training in mixed precision.
//!
//! The mean of 65,536 neighbours, in half:
//!
//! ```
//! use half::f16;
//! use halfgnn::backend::{Adjacency, MemoryKind, Spmm, cpu::Cpu};
//! use halfgnn::graph::Graph;
//! use halfgnn::ops;
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

pub mod backend;
pub mod data;
pub mod device;
pub mod driver;
mod error;
pub mod graph;
pub mod nn;
pub mod ops;
pub mod ptx;
pub mod tensor;
pub mod train;

pub use error::Error;
