//! Layers in float give the numbers of PyTorch Geometric's, on a directed graph with and without weights of edges.
//!
//! The constants were made by PyG 2.8 and this program:
//!
//! ```python
//! import torch
//! from torch import nn
//! from torch_geometric.nn import GATConv, GCNConv, GINConv, GraphConv, SAGEConv
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
//!
//! def table(rows, columns, a, b):
//!     return torch.tensor([[((a*i + b*j) % 5 - 2) / 4 for j in range(columns)] for i in range(rows)])
//! for heads in (1, 2):
//!     for attr in (w.view(-1, 1), table(7, 3, 3, 2)):
//!         d = attr.shape[1]; g = GATConv(f, c, heads=heads, concat=False, edge_dim=d)
//!         g.lin.weight.data = table(f, heads*c, 2, 3).t().clone(); g.bias.data = b.clone()
//!         g.att_dst.data = table(1, heads*c, 1, 2).view(1, heads, c)
//!         g.att_src.data = table(1, heads*c, 1, 3).view(1, heads, c)
//!         g.lin_edge.weight.data = table(d, heads*c, 1, 4).t().clone()
//!         g.att_edge.data = table(1, heads*c, 1, 1).view(1, heads, c); print(g(x, ei, attr))
//!
//! from torch_geometric.nn import GATv2Conv
//! for heads in (1, 2):
//!     for share in (False, True):
//!         g = GATv2Conv(f, c, heads=heads, concat=False, share_weights=share); g.bias.data = b.clone()
//!         g.lin_l.weight.data = table(f, heads*c, 2, 3).t().clone(); g.lin_l.bias.data = table(1, heads*c, 1, 1)[0]
//!         if not share:
//!             g.lin_r.weight.data = table(f, heads*c, 1, 2).t().clone(); g.lin_r.bias.data = table(1, heads*c, 1, 4)[0]
//!         g.att.data = table(1, heads*c, 1, 3).view(1, heads, c); print(g(x, ei))
//!
//! h = 4; adj_t = torch.sparse_coo_tensor(torch.stack([dst, src]), w, (n, n)).coalesce().to_sparse_csr()
//! for edges in (ei, adj_t):
//!     m = nn.Sequential(nn.Linear(f, h, bias=False), nn.BatchNorm1d(h, track_running_stats=False), nn.ReLU(), nn.Linear(h, c))
//!     gin = GINConv(m, eps=0.5) # which makes the weights anew
//!     m[0].weight.data = table(f, h, 2, 3).t().clone(); m[1].weight.data = torch.tensor([1.0, 0.5, -1.0, 2.0])
//!     m[1].bias.data = torch.tensor([0.25, -0.5, 0.75, 1.0]); m[3].weight.data = table(h, c, 1, 2).t().clone()
//!     m[3].bias.data = b.clone(); print(gin(x, edges))
//! # SAGEConv takes no weights; the mean by weight is GraphConv's sum of shares.
//! s = GraphConv(f, c); s.lin_rel.weight.data = W.t().clone(); s.lin_rel.bias.data = b.clone()
//! s.lin_root.weight.data = S.t().clone(); print(s(x, ei, w / torch.zeros(n).scatter_add(0, dst, w)[dst]))
//! ```

use halfgnn::backend::MemoryKind;
use halfgnn::backend::cpu::Cpu;
use halfgnn::graph::Graph;
use halfgnn::nn::{
    Aggregate, EdgeData, Gat, GatV2, Gcn, Gin, Inputs, Mode, Model, ModelConfig, Network, Norm,
    Sage,
};
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
    let edges = EdgeData {
        weights,
        ..EdgeData::default()
    };
    logits_of(model, edges)
}

/// The same with anything that edges may have.
fn logits_of(model: ModelConfig, edges: EdgeData<'_>) -> Vec<f32> {
    let backend = &Cpu::new();
    let model = ModelConfig { layers: 1, ..model };
    // Rows are targets, which the graph has in order.
    let graph = Graph::from_edges(VERTICES, &TARGETS, &SOURCES).expect("a graph");
    let graph = model
        .prepare_edges(&graph, edges)
        .expect("numbers of edges");
    let mut network = Network::<_, f32>::new(backend, &model, 0).expect("a model");
    let spread = |rows: usize, a: usize, b: usize, padded: (usize, usize)| {
        // Heads are padded to whole vectors, and so are the features of an edge.
        let heads = padded.1.div_ceil(4);
        let mut values = vec![0.0; padded.0 * padded.1];
        for row in 0..rows {
            for column in 0..heads * CLASSES {
                let at = column / CLASSES * (padded.1 / heads) + column % CLASSES;
                values[row * padded.1 + at] = ((a * row + b * column) % 5) as f32 / 4.0 - 0.5;
            }
        }
        values
    };
    let edge_columns = model.edge_features();
    for parameter in network.parameters_mut() {
        let shape = parameter.shape();
        let values = match parameter.name() {
            "layers.0.bias" => vec![0.1, -0.2],
            "layers.0.attention" if model.convolution.name() == "gatv2" => spread(1, 1, 3, shape),
            "layers.0.source.weight" => spread(FEATURES, 2, 3, shape),
            "layers.0.source.bias" => spread(1, 1, 1, shape),
            "layers.0.destination.weight" => spread(FEATURES, 1, 2, shape),
            "layers.0.destination.bias" => spread(1, 1, 4, shape),
            "layers.0.attention" => {
                let [mut destination, source] = [2, 3].map(|b| spread(1, 1, b, (1, shape.1)));
                destination.extend(source);
                destination
            }
            "layers.0.edge.attention" => spread(1, 1, 1, shape),
            "layers.0.edge.weight" => spread(edge_columns, 1, 4, shape),
            "layers.0.weight" if model.convolution.name() == "gat" => spread(FEATURES, 2, 3, shape),
            "layers.0.mlp.0.weight" => {
                table(FEATURES, 4, |i, j| ((2 * i + 3 * j) % 5) as f32 / 4.0 - 0.5)
            }
            "layers.0.mlp.1.weight" => {
                table(4, CLASSES, |i, j| ((i + 2 * j) % 5) as f32 / 4.0 - 0.5)
            }
            "layers.0.norm.weight" => vec![1.0, 0.5, -1.0, 2.0],
            "layers.0.norm.bias" => vec![0.25, -0.5, 0.75, 1.0],
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
        graphs: &[graph.propagation::<_, f32>(backend, &model).expect("room")],
        features: &Matrix::from_f32(backend, VERTICES, FEATURES, &features, MemoryKind::Features)
            .expect("room"),
        of_types: &[],
        dropped: false,
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

const GIN: [[f64; CLASSES]; VERTICES] = [
    [-0.242_611_26, -0.103_423_75],
    [-0.674_980_22, 0.565_851_33],
    [0.637_087_82, -1.274_175_64],
    [0.715_572_71, -1.093_433_86],
    [0.188_513_07, -0.377_026_14],
];

const WEIGHTED_GIN: [[f64; CLASSES]; VERTICES] = [
    [-0.043_411_86, -0.154_890_09],
    [-0.661_524_24, 0.404_744_86],
    [0.910_811_48, -1.821_622_97],
    [0.411_403_21, -0.591_957_69],
    [0.242_294_52, -0.410_024_64],
];

const WEIGHTED_SAGE: [[f64; CLASSES]; VERTICES] = [
    [-0.050_000_01, 0.25],
    [1.100_000_02, -0.360_714_32],
    [-1.774_999_98, -0.075],
    [0.725_000_02, 0.264_285_71],
    [-0.400_000_01, -0.699_999_99],
];

#[test]
fn a_gin_with_weights_of_edges_and_without() {
    let gin = Gin {
        aggregate: Aggregate::Sum,
        lambda: 1.0,
        epsilon: 0.5,
        ..Gin::default()
    };
    let gin = ModelConfig {
        hidden: 4,
        ..ModelConfig::of(gin, FEATURES, CLASSES)
    };
    expect(&logits(gin.clone(), None), &GIN);
    expect(&logits(gin, Some(&WEIGHTS)), &WEIGHTED_GIN);
}

#[test]
fn a_graphsage_of_weighted_edges() {
    let sage = ModelConfig::of(Sage, FEATURES, CLASSES);
    expect(&logits(sage, Some(&WEIGHTS)), &WEIGHTED_SAGE);
}

/// Of one head and of two, of the weights and of three features of each edge.
const GAT: [[[f64; CLASSES]; VERTICES]; 4] = [
    [
        [0.040_375_9, -0.233_690_37],
        [0.850_000_02, -0.101_515_49],
        [-0.899_999_98, -0.011_523_53],
        [0.124_335_19, 0.181_140_94],
        [-0.899_999_98, 0.05],
    ],
    [
        [0.173_853_93, -0.250_946_88],
        [0.850_000_02, -0.093_089_06],
        [-0.899_999_98, -0.011_523_53],
        [0.189_055_92, 0.197_264],
        [-0.899_999_98, 0.05],
    ],
    [
        [-0.125_121_44, -0.052_916_41],
        [0.250_637_35, -0.113_895_1],
        [-0.341_790_11, 0.086_028_35],
        [-0.189_842_97, 0.242_975_46],
        [-0.275_000_01, 0.05],
    ],
    [
        [-0.069_628_6, -0.058_208_93],
        [0.249_352_43, -0.108_396_95],
        [-0.341_790_11, 0.086_028_35],
        [-0.162_651_81, 0.252_348_42],
        [-0.275_000_01, 0.05],
    ],
];

#[test]
fn a_gat_with_a_term_of_its_edges() {
    let features = table(TARGETS.len(), 3, |i, j| {
        ((3 * i + 2 * j) % 5) as f32 / 4.0 - 0.5
    });
    for (heads, expected) in [(1, &GAT[..2]), (2, &GAT[2..])] {
        let gat = |edge_features| {
            let gat = Gat {
                heads,
                edge_features,
                ..Gat::default()
            };
            ModelConfig::of(gat, FEATURES, CLASSES)
        };
        expect(&logits(gat(1), Some(&WEIGHTS)), &expected[0]);
        let edges = EdgeData {
            weights: None,
            features: Some((3, &features)),
        };
        expect(&logits_of(gat(3), edges), &expected[1]);
    }
}

const GATV2: [[[f64; CLASSES]; VERTICES]; 4] = [
    [
        [-0.357_970_33, -0.456_396_46],
        [0.35, -0.265_621_13],
        [-1.4, -0.261_523_51],
        [-0.319_914_97, -0.054_376_07],
        [-1.4, -0.2],
    ],
    [
        [-0.393_394_2, -0.491_162_72],
        [0.35, -0.308_955_43],
        [-1.4, -0.262_304_69],
        [-0.340_705_75, -0.059_585_36],
        [-1.4, -0.2],
    ],
    [
        [-0.277_347_77, -0.077_303_45],
        [-0.086_943_65, 0.016_633_08],
        [-0.593_342_24, 0.087_580_52],
        [-0.418_463_5, 0.250_807_76],
        [-0.525, 0.05],
    ],
    [
        [-0.281_163_42, -0.127_989_32],
        [-0.081_480_53, -0.010_497_18],
        [-0.593_342_24, 0.087_189_93],
        [-0.419_371_34, 0.248_111_02],
        [-0.525, 0.05],
    ],
];

#[test]
fn a_gatv2_of_one_map_or_two() {
    let mut expected = GATV2.iter();
    for heads in [1, 2] {
        for share_weights in [false, true] {
            let gat = GatV2 {
                heads,
                share_weights,
                ..GatV2::default()
            };
            let model = ModelConfig::of(gat, FEATURES, CLASSES);
            expect(&logits(model, None), expected.next().expect("four cases"));
        }
    }
    // Weights of edges have no place in its scores.
    let model = ModelConfig::gatv2(FEATURES, CLASSES);
    let graph = Graph::from_edges(VERTICES, &TARGETS, &SOURCES).expect("a graph");
    let weights = EdgeData {
        weights: Some(&WEIGHTS),
        ..EdgeData::default()
    };
    let told = model
        .prepare_edges(&graph, weights)
        .unwrap_err()
        .to_string();
    assert!(
        told.contains("GATv2's scores have no term for edges"),
        "{told}"
    );
}
