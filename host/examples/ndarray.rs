//! Arrays of the crate `ndarray` in, an SpMM with edge weights, and an array out.
//!
//! `cargo run --example ndarray`

use half::f16;
use halfgnn::Error;
use halfgnn::backend::{Adjacency, Backend, MemoryKind, cpu::Cpu};
use halfgnn::graph::Graph;
use halfgnn::ops::{self, EdgeWeights, Spmm};
use halfgnn::tensor::{Array, Matrix};
use ndarray::{Array2, ArrayView2, array};

/// A matrix on `backend` with the values of `values`, whatever their layout in memory.
fn upload<B: Backend>(backend: &B, values: ArrayView2<'_, f32>) -> Result<Matrix<B, f16>, Error> {
    let (rows, columns) = values.dim();
    let row_major = values.as_standard_layout();
    let values = row_major
        .as_slice()
        .expect("the standard layout is one piece");
    Matrix::from_f32(backend, rows, columns, values, MemoryKind::Features)
}

/// The values of `matrix`, once all work before is done; padding stays behind.
fn download<B: Backend>(backend: &B, matrix: &Matrix<B, f16>) -> Result<Array2<f32>, Error> {
    let values = matrix.to_f32(backend)?;
    Ok(Array2::from_shape_vec(matrix.shape(), values).expect("as many values as the shape says"))
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    // A dense adjacency with weights, and the same as a graph: its non-zeros, row by row.
    let dense = array![[0.0, 0.5, 0.0], [0.0, 0.0, 2.0], [1.0, 0.25, 0.0]];
    let edges: Vec<((usize, usize), f32)> = dense
        .indexed_iter()
        .map(|(place, &weight)| (place, weight))
        .filter(|(_, weight)| *weight != 0.0)
        .collect();
    let rows: Vec<u32> = edges.iter().map(|((row, _), _)| *row as u32).collect();
    let columns: Vec<u32> = edges
        .iter()
        .map(|((_, column), _)| *column as u32)
        .collect();
    let weights: Vec<f16> = edges
        .iter()
        .map(|(_, weight)| f16::from_f32(*weight))
        .collect();

    let backend = Cpu::new();
    let graph = Graph::from_edges(3, &rows, &columns)?;
    let a = Adjacency::new(&backend, graph.csr())?;
    // `from_edges` sorts by row and column, which is the order in which the edges came here.
    let weights = Array::from_slice(&backend, &weights, MemoryKind::Graph)?;
    let weighted = Spmm {
        weights: EdgeWeights::Features(&weights),
        ..Spmm::default()
    };

    // A transposed view, which is column-major.
    let features = array![[1.0, 2.0, 3.0], [10.0, 20.0, 30.0]];
    let x = upload(&backend, features.t())?;
    let mut y = Matrix::zeros(&backend, 3, 2, MemoryKind::Activations)?;
    ops::spmm(&backend, &a, &weighted, &x, &mut y)?;

    let y = download(&backend, &y)?;
    println!("{y}");
    assert_eq!(y, dense.dot(&features.t()));
    Ok(())
}

#[test]
fn it_runs() {
    main().unwrap();
}
