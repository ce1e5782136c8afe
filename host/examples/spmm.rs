//! The mean of each vertex's neighbours, in half precision: an SpMM in twenty lines.
//!
//! `cargo run --example spmm`

use half::f16;
use halfgnn::backend::{Adjacency, MemoryKind, cpu::Cpu};
use halfgnn::graph::Graph;
use halfgnn::ops::{self, Spmm};
use halfgnn::tensor::{Array, Matrix};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    // Vertex 0 aggregates 1 and 2, vertex 1 aggregates 2, vertex 2 none; each has the features (v, 10 v).
    let graph = Graph::from_edges(3, &[0, 0, 1], &[1, 2, 2])?;
    let backend = Cpu::new();
    let a = Adjacency::new(&backend, graph.csr())?;
    let features = [0.0, 0.0, 1.0, 10.0, 2.0, 20.0];
    let x = Matrix::<_, f16>::from_f32(&backend, 3, 2, &features, MemoryKind::Features)?;
    let mut y = Matrix::<_, f16>::zeros(&backend, 3, 2, MemoryKind::Activations)?;

    // A row's factor is multiplied into each batch of its edges: no sum grows beyond what half holds.
    let inverse_degree = [1.0 / 2.0, 1.0, 1.0];
    let inverse_degree = Array::from_slice(&backend, &inverse_degree, MemoryKind::Graph)?;
    let mean = Spmm {
        row_scale: Some(&inverse_degree),
        ..Spmm::default()
    };
    ops::spmm(&backend, &a, &mean, &x, &mut y)?;

    let y = y.to_f32(&backend)?;
    println!("{y:?}");
    assert_eq!(y, [1.5, 15.0, 2.0, 20.0, 0.0, 0.0]);
    Ok(())
}

#[test]
fn it_runs() {
    main().unwrap();
}
