//! Weights of edges that are learnt, by a loss of your own.
//!
//! Vertices aggregate `y = A_w · x`, a sum over neighbours with a weight an edge: an SpMM. The gradient of the weights
//! is the dot product of `dL/dy` and `x` over each edge, `dw(i,j) = dy[i] · x[j]`: an SDDMM. Here a graph learns along
//! which of its edges given sums were made; half of its edges have no part in them. The loss is log-cosh, which this
//! crate does not have: it is made on the host, and so is its gradient.
//!
//! `cargo run --example learnt_edge_weights`

use halfgnn::backend::{Adjacency, MemoryKind, cpu::Cpu};
use halfgnn::graph::Graph;
use halfgnn::ops::{self, Combine, EdgeWeights, Sddmm, Spmm, edge_plane};
use halfgnn::tensor::{Array, Matrix};

const VERTICES: usize = 40;
const FEATURES: usize = 24;
const EPOCHS: usize = 400;

/// The mean of `log cosh (y − target)`, and its gradient.
fn log_cosh(y: &[f32], target: &[f32]) -> (f32, Vec<f32>) {
    let count = y.len() as f32;
    let off = y.iter().zip(target).map(|(y, target)| y - target);
    // log cosh e is |e| + log(1 + exp(−2 |e|)) − log 2, which overflows nowhere.
    let loss = |e: f32| e.abs() + (-2.0 * e.abs()).exp().ln_1p() - std::f32::consts::LN_2;
    let sum: f32 = off.clone().map(loss).sum();
    (sum / count, off.map(|e| e.tanh() / count).collect())
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    // Each vertex aggregates the next four; the truth has every second edge.
    let edges = (0..VERTICES as u32).flat_map(|v| (1..5).map(move |k| (v, (v + k) % 40)));
    let (rows, columns): (Vec<u32>, Vec<u32>) = edges.unzip();
    let graph = Graph::from_edges(VERTICES, &rows, &columns)?;
    let edges = graph.edges();
    let truth: Vec<f32> = (0..edges).map(|edge| (edge % 2) as f32).collect();

    let backend = &Cpu::new();
    let a = Adjacency::new(backend, graph.csr())?;
    let features: Vec<f32> = (0..VERTICES * FEATURES)
        .map(|k| ((k * k + 7 * k) % 101) as f32 / 50.0 - 1.0)
        .collect();
    let kind = MemoryKind::Features;
    let x = Matrix::<_, f32>::from_f32(backend, VERTICES, FEATURES, &features, kind)?;
    let mut y = Matrix::<_, f32>::zeros(backend, VERTICES, FEATURES, MemoryKind::Activations)?;

    // A number an edge lies in a plane; as a matrix of one row it takes what is done to matrices.
    let plane = edge_plane(edges);
    let padded = |values: &[f32]| [values, &vec![0.0; plane - edges][..]].concat();
    let along = |w: &Array<Cpu, f32>, y: &mut Matrix<Cpu, f32>| {
        let op = Spmm {
            weights: EdgeWeights::Planes {
                values: w,
                heads: 1,
            },
            ..Spmm::default()
        };
        ops::spmm(backend, &a, &op, &x, y)
    };
    along(
        &Array::from_slice(backend, &padded(&truth), MemoryKind::Weights)?,
        &mut y,
    )?;
    let target = y.to_f32(backend)?;

    let mut w = Array::from_slice(backend, &padded(&vec![0.5; edges]), MemoryKind::Weights)?;
    let mut dw = Array::<_, f32>::zeros(backend, plane, MemoryKind::Weights)?;
    let mut losses = Vec::new();
    for _ in 0..EPOCHS {
        along(&w, &mut y)?;
        let (loss, gradient) = log_cosh(&y.to_f32(backend)?, &target);
        losses.push(loss);
        let dy = Matrix::from_f32(backend, VERTICES, FEATURES, &gradient, kind)?;
        ops::sddmm(backend, &a, &Sddmm::default(), &dy, &x, &mut dw)?;
        // w − rate · dw.
        let step = Combine {
            x_factor: -20.0,
            ..Combine::sum()
        };
        let gradient = Matrix::from_array(dw, 1, plane)?;
        let mut weights = Matrix::from_array(w, 1, plane)?;
        ops::combine(backend, &step, &gradient, &mut weights)?;
        (dw, w) = (gradient.into_array()?, weights.into_array()?);
    }
    let learnt = &w.to_vec(backend)?[..edges];
    let off = learnt
        .iter()
        .zip(&truth)
        .map(|(w, truth)| (w - truth).abs());
    let worst = off.fold(0.0, f32::max);
    println!(
        "loss {:.5} at first, {:.2e} at last; no weight is further off than {worst:.4}",
        losses[0],
        losses[EPOCHS - 1]
    );
    assert!(worst < 0.05, "{worst}");
    Ok(())
}

#[test]
fn it_runs() {
    main().unwrap();
}
