//! Layers in float give the numbers of PyTorch Geometric's, on a directed graph with and without weights of edges.
//!
//! The constants were made by PyG 2.8 and this program:
//!
//! ```python
//! import torch
//! from torch_geometric.nn import GCNConv, SAGEConv
//! n, f, c = 5, 3, 2
//! src = torch.tensor([1, 2, 0, 3, 4, 1, 2]); dst = torch.tensor([0, 0, 1, 1, 2, 3, 3])
//! w = torch.tensor([0.5, 2.0, 1.5, 0.25, 3.0, 1.0, 0.75])
//! x = torch.tensor([[((3*v + 5*k) % 7 - 3) / 2 for k in range(f)] for v in range(n)])
//! W = torch.tensor([[((2*i + 3*j) % 5 - 2) / 4 for j in range(c)] for i in range(f)])
//! S = torch.tensor([[((i + 2*j) % 5 - 2) / 4 for j in range(c)] for i in range(f)])
//! b = torch.tensor([0.1, -0.2]); ei = torch.stack([src, dst])
//! for weights in (None, w):
//!     g = GCNConv(f, c); g.lin.weight.data = W.t().clone(); g.bias.data = b.clone(); print(g(x, ei, weights))
//! s = SAGEConv(f, c); s.lin_l.weight.data = W.t().clone(); s.lin_l.bias.data = b.clone()
//! s.lin_r.weight.data = S.t().clone(); print(s(x, ei))
//! ```

use halfgnn::backend::MemoryKind;
use halfgnn::backend::cpu::Cpu;
use halfgnn::graph::Graph;
use halfgnn::nn::{Gcn, Inputs, Mode, Model, ModelConfig, Network, Norm, Propagation, Sage};
use halfgnn::tensor::Matrix;

const VERTICES: usize = 5;
const FEATURES: usize = 3;
const CLASSES: usize = 2;
const SOURCES: [u32; 7] = [1, 2, 0, 3, 4, 1, 2];
const TARGETS: [u32; 7] = [0, 0, 1, 1, 2, 3, 3];
const WEIGHTS: [f32; 7] = [0.5, 2.0, 1.5, 0.25, 3.0, 1.0, 0.75];

fn table(rows: usize, columns: usize, value: impl Fn(usize, usize) -> f32) -> Vec<f32> {
    let cells = (0..rows).flat_map(|row| (0..columns).map(move |column| (row, column)));
    cells.map(|(row, column)| value(row, column)).collect()
}

/// The logits of one layer whose parameters are those of the program above.
fn logits(model: ModelConfig, weights: Option<&[f32]>) -> Vec<f32> {
    let backend = &Cpu::new();
    let model = ModelConfig { layers: 1, ..model };
    // Rows are targets, which the graph has in order.
    let graph = Graph::from_edges(VERTICES, &TARGETS, &SOURCES).expect("a graph");
    let (graph, weights) = model.prepare_weighted(&graph, weights).expect("weights");
    let mut network = Network::<_, f32>::new(backend, &model, 0).expect("a model");
    for parameter in network.parameters_mut() {
        let values = match parameter.name() {
            "layers.0.bias" => vec![0.1, -0.2],
            "layers.0.self.weight" => table(FEATURES, CLASSES, |i, j| {
                ((i + 2 * j) % 5) as f32 / 4.0 - 0.5
            }),
            _ => table(FEATURES, CLASSES, |i, j| {
                ((2 * i + 3 * j) % 5) as f32 / 4.0 - 0.5
            }),
        };
        parameter.write(backend, &values).expect("its shape");
    }
    let features = table(VERTICES, FEATURES, |v, k| {
        ((3 * v + 5 * k) % 7) as f32 / 2.0 - 1.5
    });
    let inputs = Inputs {
        backend,
        graphs: &[
            Propagation::of_graph::<f32>(backend, &graph, weights.as_deref(), model.norm())
                .expect("room"),
        ],
        features: &Matrix::from_f32(backend, VERTICES, FEATURES, &features, MemoryKind::Features)
            .expect("room"),
    };
    network.forward(inputs, Mode::Evaluate).expect("a pass");
    network.logits().to_f32(backend).expect("no failure")
}

fn expect(found: &[f32], expected: &[[f64; CLASSES]]) {
    let expected: Vec<f64> = expected.iter().flatten().copied().collect();
    assert_eq!(found.len(), expected.len());
    for (at, (&found, expected)) in found.iter().zip(&expected).enumerate() {
        assert!(
            (f64::from(found) - expected).abs() < 1e-5,
            "{at}: {found} for {expected}"
        );
    }
}

const GCN: [[f64; CLASSES]; VERTICES] = [
    [0.191_751_69, -0.273_968_96],
    [0.849_999_96, -0.116_666_69],
    [-1.107_106_69, 0.039_276_69],
    [0.191_751_69, 0.226_030_99],
    [-0.899_999_98, 0.05],
];

const WEIGHTED_GCN: [[f64; CLASSES]; VERTICES] = [
    [-0.099_363_32, -0.302_602_38],
    [0.803_529_38, -0.384_420_63],
    [-1.649_999_98, 0.206_25],
    [0.419_321_03, 0.237_357_6],
    [-0.899_999_98, 0.05],
];

const SAGE: [[f64; CLASSES]; VERTICES] = [
    [0.474_999_99, 0.362_500_01],
    [1.100_000_02, 0.175_000_01],
    [-1.774_999_98, -0.075],
    [0.600_000_02, 0.237_5],
    [-0.400_000_01, -0.699_999_99],
];

fn gcn(norm: Norm) -> ModelConfig {
    ModelConfig::of(Gcn { norm }, FEATURES, CLASSES)
}

#[test]
fn a_gcn_of_a_directed_graph() {
    expect(&logits(gcn(Norm::In), None), &GCN);
    let both = logits(gcn(Norm::Both), None);
    assert!((f64::from(both[0]) - GCN[0][0]).abs() > 1e-2, "{both:?}");
}

#[test]
fn a_gcn_of_weighted_edges() {
    expect(&logits(gcn(Norm::In), Some(&WEIGHTS)), &WEIGHTED_GCN);
}

#[test]
fn a_graphsage() {
    let sage = ModelConfig::of(Sage, FEATURES, CLASSES);
    expect(&logits(sage, None), &SAGE);
}
