//! What the kernels are built to do, as exact counts of the emulator (HalfGNN §4).

use half::f16;
use halfgnn::backend::gpu::Gpu;
use halfgnn::backend::{Backend, DeviceGraph, EdgeWeights, MemoryKind, Spmm};
use halfgnn::driver::Driver;
use halfgnn::driver::emulated::{Emulated, Launched, Options};
use halfgnn::graph::Graph;
use halfgnn::ops;
use halfgnn::tensor::{Array, Matrix};
use halfgnn_contract::spmm::{EDGES_PER_CTA, EDGES_PER_WARP};

/// Bytes of a sector, the unit in which global memory is counted.
const SECTOR: u64 = 32;

fn open() -> Gpu<Emulated> {
    let driver = Emulated::with_options(Options {
        record: true,
        ..Options::default()
    });
    let ptx = halfgnn::ptx::read(Some(driver.info().compute_capability)).expect("the kernels' PTX");
    Gpu::new(driver, &ptx).expect("the PTX fits this program")
}

/// Rows of `degree` edges each, to neighbouring columns, `edges` in all.
fn ring(edges: u32, degree: u32) -> Graph {
    let vertices = edges / degree;
    let rows: Vec<u32> = (0..edges).map(|edge| edge / degree).collect();
    let columns: Vec<u32> = (0..edges)
        .map(|edge| (edge / degree + edge % degree) % vertices)
        .collect();
    Graph::from_edges(vertices as usize, &rows, &columns).expect("ids are in range")
}

/// The launches of one SpMM of `features` halves.
fn spmm(gpu: &Gpu<Emulated>, graph: &Graph, features: usize, weighted: bool) -> Vec<Launched> {
    let device = DeviceGraph::new(gpu, graph).expect("room for the graph");
    let (vertices, kind) = (graph.vertices(), MemoryKind::Features);
    let ones = vec![1.0; vertices * features];
    let x = Matrix::<_, f16>::from_f32(gpu, vertices, features, &ones, kind).expect("room");
    let mut y = Matrix::zeros(gpu, vertices, features, kind).expect("room");
    let weights = vec![f16::ONE; graph.edges()];
    let weights = Array::from_slice(gpu, &weights, kind).expect("room");
    let op = Spmm {
        weights: if weighted {
            EdgeWeights::Features(&weights)
        } else {
            EdgeWeights::Ones
        },
        ..Spmm::default()
    };
    gpu.driver().take_launches();
    ops::spmm(gpu, device.forward(), &op, &x, &mut y).expect("a legal SpMM");
    gpu.synchronize().expect("no failure");
    gpu.driver().take_launches()
}

#[test]
fn spmm_has_no_atomics() {
    let gpu = open();
    // Rows that cross sub-warps, warps and CTAs.
    for launched in spmm(&gpu, &ring(6 * EDGES_PER_CTA, 768), 64, true) {
        assert_eq!(launched.report.counts.atomics(), 0, "{}", launched.kernel);
    }
}

#[test]
fn an_spmm_is_two_launches_at_most() {
    let gpu = open();
    assert_eq!(spmm(&gpu, &ring(3 * EDGES_PER_CTA, 96), 32, false).len(), 2);
    // One CTA and no empty row leave nothing to complete.
    assert_eq!(spmm(&gpu, &ring(EDGES_PER_CTA, 8), 32, false).len(), 1);
}

/// Stage 1 reads each index once, and stage 2 each feature vector in one load of 16 bytes: with rows of 128 bytes every
/// sector that an SpMM loads is one that it needs.
#[test]
fn an_edge_costs_its_indices_and_its_row() {
    let gpu = open();
    let graph = ring(4 * EDGES_PER_CTA, EDGES_PER_WARP);
    let edges = graph.edges() as u64;
    let launches = spmm(&gpu, &graph, 64, false);
    let counts = &launches[0].report.counts;
    let indices = 2 * edges * 4;
    let rows = edges * 64 * 2;
    // Beside them, a warp looks at the rows of the edges before and after its own, a sector each.
    let neighbours = 2 * (edges / u64::from(EDGES_PER_WARP)) * SECTOR * 4;
    let loaded = counts.global_loads.sectors * SECTOR;
    assert!(
        loaded >= indices + rows,
        "{loaded} bytes are less than {indices} of indices and {rows} of rows"
    );
    assert!(
        loaded <= indices + rows + neighbours,
        "{loaded} bytes are more than is needed"
    );
}

/// Edge features are read once, whatever the feature length: half the bytes of the indices.
#[test]
fn edge_features_are_read_once() {
    let gpu = open();
    let graph = ring(4 * EDGES_PER_CTA, EDGES_PER_WARP);
    let sectors = |weighted| {
        spmm(&gpu, &graph, 64, weighted)[0]
            .report
            .counts
            .global_loads
            .sectors
    };
    assert_eq!(
        (sectors(true) - sectors(false)) * SECTOR,
        graph.edges() as u64 * 2
    );
}
