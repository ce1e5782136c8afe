//! Models of PyTorch Geometric's, read here: the logits are PyG's, and what is written is what was read. Of DGL, which
//! has no release for the torch that made these files, the names and shapes of its sources, version 2.1.
//!
//! ```python
//! torch.manual_seed(0)
//! ei = to_undirected(torch.tensor([[0, 1, 2, 3, 4, 5, 0, 2, 5], [1, 2, 0, 4, 3, 0, 3, 5, 1]]))
//! x = (torch.arange(30) % 7).float().reshape(6, 5) / 4 - 0.5
//! mlp = lambda i, o: Sequential(Linear(i, 8), BatchNorm1d(8), ReLU(), Linear(8, o))
//! class Gin(Module):
//!     def __init__(self):
//!         super().__init__()
//!         self.convs = ModuleList([GINConv(mlp(5, 8), train_eps=True), GINConv(mlp(8, 3), train_eps=True)])
//!     def forward(self, x, ei):
//!         return self.convs[1](self.convs[0](x, ei).relu(), ei)
//! models = {'gcn': GCN(5, 8, 2, 3), 'sage': GraphSAGE(5, 8, 2, 3), 'gat': GAT(5, 16, 2, 3, heads=2), 'gin': Gin()}
//! for name, m in models.items():
//!     for p in m.parameters(): p.data.copy_(torch.randn_like(p) * 0.5)
//!     for b in m.buffers():
//!         if b.dtype == torch.float32: b.copy_(torch.rand_like(b) + 0.5)
//!     print(name, m.eval()(x, ei))
//!     save_file(m.state_dict(), f'pyg-{name}.safetensors')
//! # and with norms between the layers, from a seed of their own
//! torch.manual_seed(1)
//! for norm, kw in (('batch_norm', None), ('layer_norm', {'mode': 'node'}), ('graph_norm', None)):
//!     m = GCN(5, 8, 3, 3, norm=norm, norm_kwargs=kw) # then as above, to f'pyg-gcn-{norm}.safetensors'
//! # with jumping knowledge, and heads that do not fill whole vectors
//! torch.manual_seed(2)
//! models = {'gcn-cat': GCN(5, 8, 3, 3, jk='cat'), 'gcn-max': GCN(5, 8, 2, 3, jk='max', norm='batch_norm'),
//!           'gat-cat': GAT(5, 15, 2, 3, heads=3, jk='cat')} # then as above
//! # and layers that are carried over one by one, whose logits are in pyg-logits.json
//! kinds = {'graphconv': GraphConv, 'sg': partial(SGConv, K=2), 'ssg': partial(SSGConv, alpha=0.25, K=3),
//!          'tag': partial(TAGConv, K=2), 'cheb': partial(ChebConv, K=3), 'leconv': LEConv,
//!          'clustergcn': partial(ClusterGCNConv, diag_lambda=0.5),
//!          'resgated': ResGatedGraphConv, 'transformer': TransformerConv,
//!          'graphconv-max': partial(GraphConv, aggr='max')}
//! for name, kind in kinds.items():
//!     torch.manual_seed(len(name))
//!     convs = ModuleList([kind(5, 4), kind(4, 3)]) # parameters uniform from -1 to 1; forward as of Gin
//! # those of several parameters, and those that read the features `e` of edges; a Linear that is no conv is in `lins`
//! e = (((ei[0] * 5 + ei[1] * 3) % 7)[:, None] + torch.arange(2)).float() / 8 - 0.5
//! def mlp(i, o, **kw): return Sequential(Linear(i, 4), BatchNorm1d(4, **kw), ReLU(), Linear(4, o))
//! all = {'track_running_stats': False}
//! kinds = {
//!     'arma': [ARMAConv(5, 4, 2), ARMAConv(4, 3, 2, act=None)],
//!     # the last bias is twice the same, and the output the mean of both parts
//!     'mixhop': [MixHopConv(5, 2, [0, 2]), MixHopConv(4, 3, [0, 2])],
//!     'gatedgraph': [Linear(5, 4, bias=False), GatedGraphConv(4, 2), Linear(4, 3, bias=False), GatedGraphConv(3, 2)],
//!     'gatedgraph-wide': [GatedGraphConv(6, 3)],
//!     'cg': [Linear(5, 4), CGConv(4), CGConv(4), Linear(4, 3)], # relu behind the first Linear as well
//!     'cg-edges': [Linear(5, 4), CGConv(4, 2, 'mean'), Linear(4, 3)],
//!     'gine': [GINEConv(mlp(5, 4), train_eps=True, edge_dim=2), GINEConv(mlp(4, 3), train_eps=True, edge_dim=2)],
//!     'gine-batch': [GINEConv(mlp(5, 4, **all), 0.5, edge_dim=2), GINEConv(mlp(4, 3, **all), 0.5, edge_dim=2)],
//!     'resgated-edges': [ResGatedGraphConv(5, 4, edge_dim=2), ResGatedGraphConv(4, 3, edge_dim=2)],
//!     'transformer-heads': [TransformerConv(5, 2, 2), TransformerConv(4, 3, 2, concat=False)],
//!     'transformer-beta': [TransformerConv(5, 2, 2, beta=True), TransformerConv(4, 3, 2, concat=False, beta=True)],
//!     'transformer-no-root': [TransformerConv(5, 4, root_weight=False), TransformerConv(4, 3, root_weight=False)],
//!     'rgcn': [RGCNConv(5, 4, 1), RGCNConv(4, 3, 1)], # the edge_type 0
//!     'rgcn-blocks': [RGCNConv(5, 10, 1, num_blocks=5), RGCNConv(10, 3, 1)],
//!     'rgcn-bases': [RGCNConv(5, 4, 1, 2), FastRGCNConv(4, 3, 1, 2)],
//!     'gine-min': [GINEConv(mlp(5, 4), edge_dim=2, aggr='min'), GINEConv(mlp(4, 3), edge_dim=2, aggr='min')],
//!     'edge': [EdgeConv(Sequential(Linear(10, 4))), EdgeConv(Sequential(Linear(8, 3)))],
//!     'edge-mean': [EdgeConv(Sequential(Linear(10, 4)), 'mean'), EdgeConv(Sequential(Linear(8, 3)), 'mean')],
//!     # the biases of lin_src, lin_dst and lin_edge are zero
//!     'gen': [GENConv(5, 4, bias=True, edge_dim=2), GENConv(4, 3, bias=True, edge_dim=2)],
//!     'gen-warm': [GENConv(5, 4, t=0.5, expansion=3, bias=True), GENConv(4, 4, t=0.5, expansion=3, bias=True)],
//!     'gen-plain': [GENConv(5, 5, 'max', expansion=3, edge_dim=2), GENConv(5, 2, 'max', expansion=3, edge_dim=2)],
//!     'pna': [pna(5, 4), pna(4, 3)],
//!     'pna-edges': [pna(5, 4, edge_dim=2), pna(4, 3, edge_dim=2)]}
//! deg = torch.bincount(ei[1].bincount())
//! def pna(i, o, **kw): # above them
//!     return PNAConv(i, o, ['mean', 'min', 'max', 'std'], ['identity', 'amplification', 'attenuation'], deg, **kw)
//! # 'appnp' has no convs: `lins` are [Linear(5, 4), Linear(4, 3)], with APPNP(3, 0.25) behind them
//! # x_0 of 'gcnii' is behind the first relu
//! kinds['gcnii'] = [Linear(5, 4), GCN2Conv(4, 0.25, 0.75, 1), GCN2Conv(4, 0.25, 0.75, 2), Linear(4, 3)]
//! for name, layers in kinds.items():
//!     torch.manual_seed(len(name)) # parameters uniform from -1 to 1, running statistics from 0.5 to 1.5
//! for name, shared in (('arma-cat', False), ('arma-shared-cat', True)): # the last map of both outputs is lin
//!     torch.manual_seed(len(name))
//!     convs, lin = ModuleList([ARMAConv(5, 4, 2, 3, shared), ARMAConv(4, 4, 2, 3, shared)]), Linear(8, 3)
//! ```

use halfgnn::backend::MemoryKind;
use halfgnn::backend::cpu::Cpu;
use halfgnn::graph::Graph;
use halfgnn::nn::{
    Aggregate, Appnp, Arma, Cg, Cheb, ClusterGcn, ConvolutionConfig, Edge, EdgeData, GatedGraph,
    Gcnii, Gen, Gine, GraphConv, Hgt, HiddenNorm, Inputs, Jumping, Le, MixHop, Mode, Model,
    ModelTypes, Network, Norm, Pna, ResGated, Rgcn, Sg, Ssg, Statistics, Tag, Transformer,
};
use halfgnn::tensor::{Matrix, Precision};
use halfgnn::train::state_dict::{Framework, ImportOptions, StateDict, StateTensor};
use halfgnn::train::{Checkpoint, load_weights};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

const GCN: [f32; 18] = [
    0.04937366, -0.7413592, 1.676258, 0.05929068, -0.6169484, 1.7246, 0.05929068, -0.6169484,
    1.7246, 0.08653358, -0.8359803, 1.301078, 0.1048474, -0.8449078, 1.179479, 0.05929068,
    -0.6169484, 1.7246,
];
const SAGE: [f32; 18] = [
    2.024007,
    0.1989521,
    -0.2269427,
    1.339731,
    0.0360469,
    -1.117989,
    2.105925,
    -0.1577848,
    -1.36709,
    0.8030461,
    0.2998595,
    -0.8272687,
    4.78827,
    -0.2273402,
    -2.304469,
    0.8818832,
    -0.06890064,
    -1.237306,
];
const GAT: [f32; 18] = [
    -0.5409526,
    1.481859,
    0.2302015,
    -0.4748883,
    1.431171,
    0.3868629,
    -0.4748883,
    1.431171,
    0.3868629,
    -0.6687588,
    1.577407,
    -0.07490291,
    -0.7849886,
    1.620394,
    -0.3311845,
    -0.4748883,
    1.431171,
    0.3868629,
];
const GIN: [f32; 18] = [
    2.086216,
    -0.6423203,
    -0.6253718,
    1.982163,
    -0.4728667,
    -0.8209802,
    1.926513,
    -0.5047215,
    -0.8176445,
    1.304525,
    -1.996547,
    -0.06219232,
    1.253126,
    -2.583565,
    -0.03204888,
    1.966269,
    -0.4807793,
    -0.8193663,
];

fn file(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("tests/data/pyg-{name}.safetensors"))
}

fn options(from: Framework, precision: Precision) -> ImportOptions {
    ImportOptions {
        layers: None,
        from,
        precision,
        edge_weights: false,
        features: None,
    }
}

fn logits(checkpoint: &Checkpoint, divide: Option<&[f32]>) -> Vec<f32> {
    let backend = Cpu::new();
    let sources = [0, 1, 2, 3, 4, 5, 0, 2, 5];
    let targets = [1, 2, 0, 4, 3, 0, 3, 5, 1];
    let graph = Graph::from_edges(6, &targets, &sources).expect("a legal graph");
    let graph = graph.to_undirected().expect("a legal graph");
    let mut x: Vec<f32> = (0..30).map(|k| (k % 7) as f32 / 4.0 - 0.5).collect();
    for (place, value) in x.iter_mut().enumerate() {
        *value /= divide.map_or(1.0, |divisors| divisors[place % 5]);
    }
    let features = Matrix::<_, f32>::from_f32(&backend, 6, 5, &x, MemoryKind::Features);
    // Two features of each edge, from its ends.
    let ends = graph.cols().iter().zip(graph.rows());
    let of_edges = ends.flat_map(|(source, target)| {
        let number = (source * 5 + target * 3) % 7;
        [number, number + 1].map(|it| it as f32 / 8.0 - 0.5)
    });
    let of_edges: Vec<f32> = of_edges.collect();
    let count = checkpoint.model.edge_features();
    let edges = EdgeData {
        features: (count > 0).then_some((2, &of_edges)),
        ..EdgeData::default()
    };
    let prepared = checkpoint.model.prepare_edges(&graph, edges);
    let prepared = prepared.expect("features of edges");
    let propagation = prepared.propagation::<_, f32>(&backend, &checkpoint.model);
    let mut model = Network::<_, f32>::new(&backend, &checkpoint.model, 0).expect("a model");
    load_weights(&backend, &mut model, &checkpoint.snapshot.tensors).expect("its weights");
    let inputs = Inputs {
        backend: &backend,
        graphs: &[propagation.expect("a graph")],
        features: &features.expect("features"),
        of_types: &[],
        dropped: false,
    };
    model
        .forward(inputs, Mode::Evaluate)
        .expect("a forward pass");
    model.logits().to_f32(&backend).expect("logits")
}

fn assert_near(found: &[f32], expected: &[f32], what: &str) {
    assert_eq!(found.len(), expected.len());
    for (found, expected) in found.iter().zip(expected) {
        assert!(
            (found - expected).abs() < 1e-5 * expected.abs().max(1.0),
            "{what}: {found}, not {expected}"
        );
    }
}

#[test]
fn logits_are_those_of_pyg() {
    for (name, expected) in [("gcn", GCN), ("sage", SAGE), ("gat", GAT), ("gin", GIN)] {
        let read = Checkpoint::import(&file(name), &options(Framework::Pyg, Precision::Float));
        let read = read.unwrap_or_else(|error| panic!("{error}"));
        assert_near(&logits(&read, None), &expected, name);
    }
}

#[test]
fn jumping_knowledge_is_that_of_pyg() {
    let cat = [
        -0.1283367,
        0.05113933,
        -1.590667,
        -0.2178923,
        0.01053081,
        -1.56675,
        -0.2178923,
        0.01053081,
        -1.56675,
        0.004095137,
        0.09905058,
        -1.540821,
        0.02567751,
        0.07487258,
        -1.561208,
        -0.2178923,
        0.01053081,
        -1.56675,
    ];
    let max = [
        0.5158366, -0.667308, -0.1757932, 0.4907651, -0.6643353, -0.1812639, 0.4907651, -0.6643353,
        -0.1812639, 0.5731719, -0.6563308, -0.1284099, 0.579854, -0.6706166, -0.1284522, 0.4907651,
        -0.6643353, -0.1812639,
    ];
    let heads = [
        2.497421, 1.704577, -1.565284, 2.265231, 1.564068, -1.327977, 2.567004, 1.513818,
        -1.357046, 2.329436, 1.887754, -2.35238, 2.085199, 1.857664, -2.309468, 2.139928, 1.628086,
        -1.378735,
    ];
    for (name, jumping, expected) in [
        ("gcn-cat", Jumping::Cat, cat),
        ("gcn-max", Jumping::Max, max),
        ("gat-cat", Jumping::Cat, heads),
    ] {
        let read = Checkpoint::import(&file(name), &options(Framework::Pyg, Precision::Float));
        let read = read.unwrap_or_else(|error| panic!("{error}"));
        assert_eq!(read.model.jumping, Some(jumping));
        assert_near(&logits(&read, None), &expected, name);
        let (_, notes) = assert_written_as_read(&read, name);
        let note = format!("jk='{jumping}'");
        assert!(notes.iter().any(|it| it.contains(&note)), "{notes:?}");
        let told = read.state_dict(Framework::Dgl).expect_err("no names there");
        assert!(told.to_string().contains("jumping knowledge"), "{told}");
    }
    let read = Checkpoint::import(&file("gcn-cat"), &options(Framework::Pyg, Precision::Float));
    let (tensors, _) = read
        .expect("a model")
        .state_dict(Framework::Pyg)
        .expect("tensors");
    let refused = |change: &dyn Fn(&mut StateDict)| {
        let mut changed = tensors.clone();
        change(&mut changed);
        let options = options(Framework::Pyg, Precision::Float);
        let error = Checkpoint::from_state_dict(&changed, &options).expect_err("refused");
        error.to_string()
    };
    let without = refused(&|tensors| drop(tensors.remove("lin.bias")));
    assert!(without.contains("no `lin.bias`"), "{without}");
    let narrow = refused(&|tensors| {
        let weight = StateTensor {
            shape: vec![3, 9],
            values: vec![0.0; 27],
        };
        tensors.insert("lin.weight".into(), weight);
    });
    assert!(narrow.contains("takes rows of 9"), "{narrow}");
}

/// What is written has the names, shapes and numbers of the file that was read.
fn assert_written_as_read(read: &Checkpoint, name: &str) -> (StateDict, Vec<String>) {
    let (tensors, notes) = read.state_dict(Framework::Pyg).expect("PyG's names");
    let bytes = std::fs::read(file(name)).expect("a file");
    let original = safetensors::SafeTensors::deserialize(&bytes).expect("tensors");
    let named = original.iter().filter(|(it, _)| !it.ends_with("tracked"));
    let named: Vec<_> = named.collect();
    assert_eq!(tensors.len(), named.len(), "{name}");
    for (tensor, theirs) in named {
        let ours = &tensors[tensor];
        assert_eq!(ours.shape, theirs.shape(), "{tensor}");
        let bytes = ours.values.iter().flat_map(|value| value.to_le_bytes());
        assert_eq!(bytes.collect::<Vec<_>>(), theirs.data(), "{tensor}");
    }
    (tensors, notes)
}

#[test]
fn norms_between_layers_are_those_of_pyg() {
    let batch = [
        -1.232589, -0.1898615, -1.137775, -1.086291, -0.2259251, -1.049991, -1.086291, -0.2259251,
        -1.049991, -1.037948, -0.2094113, -1.004412, -0.9153656, -0.2316681, -0.9151566, -1.086291,
        -0.2259251, -1.049991,
    ];
    let layer = [
        1.095408, -0.5330111, 0.4874946, 1.003191, -0.4924854, 0.3659001, 1.003191, -0.4924854,
        0.3659001, 1.030091, -0.5070818, 0.4555811, 0.9803733, -0.4827971, 0.3976349, 1.003191,
        -0.4924854, 0.3659001,
    ];
    let graph = [
        -1.21898, 1.250988, 0.9061224, -1.017072, 1.15199, 0.7743118, -1.017072, 1.15199,
        0.7743118, -1.103812, 1.077292, 0.8862268, -0.9704803, 0.956442, 0.824589, -1.017072,
        1.15199, 0.7743118,
    ];
    for (norm, expected) in [
        (HiddenNorm::Batch, batch),
        (HiddenNorm::Layer, layer),
        (HiddenNorm::Graph, graph),
    ] {
        let name = format!("gcn-{norm}-norm");
        let read = Checkpoint::import(&file(&name), &options(Framework::Pyg, Precision::Float));
        let read = read.unwrap_or_else(|error| panic!("{error}"));
        assert_eq!(read.model.hidden_norm, norm);
        assert_near(&logits(&read, None), &expected, &name);

        let (_, notes) = assert_written_as_read(&read, &name);
        assert!(notes.iter().any(|note| note.contains("Norm")), "{notes:?}");
        let told = read.state_dict(Framework::Dgl).expect_err("no names there");
        assert!(
            told.to_string().contains("norms between its layers"),
            "{told}"
        );
    }
    // A norm of a mode that there is none of here, and a part that is missing.
    let read = Checkpoint::import(
        &file("gcn-graph-norm"),
        &options(Framework::Pyg, Precision::Float),
    );
    let (tensors, _) = read
        .expect("a model")
        .state_dict(Framework::Pyg)
        .expect("tensors");
    for (without, with, told) in [
        ("norms.1.bias", None, "it has no tensor `norms.1.bias`"),
        (
            "norms.1.bias",
            Some("norms.1.shift"),
            "it has no tensor `norms.1.bias`",
        ),
        (
            "",
            Some("norms.1.scale"),
            "tensor `norms.1.scale` has no place",
        ),
    ] {
        let mut tensors = tensors.clone();
        let any = tensors["norms.1.bias"].clone();
        tensors.remove(without);
        tensors.extend(with.map(|name| (name.to_owned(), any)));
        let options = options(Framework::Pyg, Precision::Float);
        let found = Checkpoint::from_state_dict(&tensors, &options).expect_err("refused");
        assert!(found.to_string().contains(told), "{found}");
    }
}

#[test]
fn what_is_written_is_what_was_read() {
    let folder = tempfile::tempdir().expect("a folder");
    for name in ["gcn", "sage", "gat", "gin"] {
        for precision in [Precision::Float, Precision::Half] {
            let read =
                Checkpoint::import(&file(name), &options(Framework::Pyg, precision)).expect(name);
            let (tensors, _) = read.state_dict(Framework::Pyg).expect(name);
            let bytes = std::fs::read(file(name)).expect("a file");
            let original = safetensors::SafeTensors::deserialize(&bytes).expect("tensors");
            let names: Vec<_> = original
                .names()
                .into_iter()
                .filter(|name| !name.ends_with("tracked"))
                .collect();
            assert_eq!(tensors.len(), names.len(), "{name}");
            for tensor in names {
                let (ours, theirs) = (
                    &tensors[tensor],
                    original.tensor(tensor).expect("it is there"),
                );
                assert_eq!(ours.shape, theirs.shape(), "{tensor}");
                // GIN's first bias is in the running mean.
                if name != "gin"
                    || !["nn.0.bias", "running_mean"]
                        .iter()
                        .any(|end| tensor.ends_with(end))
                {
                    let bytes: Vec<u8> = ours
                        .values
                        .iter()
                        .flat_map(|value| value.to_le_bytes())
                        .collect();
                    assert_eq!(bytes, theirs.data(), "{tensor}");
                }
            }
            // Through DGL's names and a file to the same model.
            let path = folder.path().join("model.safetensors");
            read.export(Framework::Dgl, &path).expect(name);
            let again = Checkpoint::import(&path, &options(Framework::Dgl, precision)).expect(name);
            assert_eq!(again.snapshot.tensors, read.snapshot.tensors, "{name}");
            assert_eq!(again.model, read.model, "{name}");
        }
    }
}

#[test]
fn dgls_names_and_shapes_are_those_of_its_sources() {
    let names = |name: &str| {
        let read = Checkpoint::import(&file(name), &options(Framework::Pyg, Precision::Float))
            .expect(name);
        let (tensors, _) = read.state_dict(Framework::Dgl).expect(name);
        let of_last = tensors
            .into_iter()
            .filter(|(name, _)| name.starts_with("layers.1."));
        of_last
            .map(|(name, tensor)| (name[9..].to_owned(), tensor.shape))
            .collect::<Vec<_>>()
    };
    let expected = |of: &[(&str, &[usize])]| {
        of.iter()
            .map(|(name, shape)| (name.to_string(), shape.to_vec()))
            .collect::<Vec<_>>()
    };
    assert_eq!(
        names("gcn"),
        expected(&[("bias", &[3]), ("weight", &[8, 3])])
    );
    assert_eq!(
        names("sage"),
        expected(&[
            ("fc_neigh.weight", &[3, 8]),
            ("fc_self.bias", &[3]),
            ("fc_self.weight", &[3, 8])
        ])
    );
    assert_eq!(
        names("gat"),
        expected(&[
            ("attn_l", &[1, 2, 3]),
            ("attn_r", &[1, 2, 3]),
            ("bias", &[6]),
            ("fc.weight", &[6, 16])
        ])
    );
}

#[test]
fn what_has_no_place_is_folded_into_what_has() {
    // Divisors of features go into the first map, λ and ε into it as well.
    let divisors = [2.0, 0.5, 4.0, 1.0, 3.0];
    for (name, expected) in [("gcn", GCN), ("sage", SAGE), ("gat", GAT), ("gin", GIN)] {
        let mut read = Checkpoint::import(&file(name), &options(Framework::Pyg, Precision::Float))
            .expect(name);
        let scaled = logits(&read, Some(&divisors));
        read.feature_divisors = Some(divisors.to_vec());
        let (tensors, notes) = read.state_dict(Framework::Pyg).expect(name);
        assert!(
            notes
                .iter()
                .any(|note| note.contains("columns of features are divided"))
        );
        let folded =
            Checkpoint::from_state_dict(&tensors, &options(Framework::Pyg, Precision::Float))
                .expect(name);
        assert_near(&logits(&folded, None), &scaled, name);
        assert!(
            scaled
                .iter()
                .zip(&expected)
                .any(|(a, b)| (a - b).abs() > 1e-3)
        );
    }
    let mut gin =
        Checkpoint::import(&file("gin"), &options(Framework::Pyg, Precision::Float)).expect("gin");
    let halfgnn::nn::ConvolutionConfig::Gin(config) = &mut gin.model.convolution else {
        panic!("a GIN")
    };
    config.lambda = 0.25;
    let own = logits(&gin, None);
    let (tensors, _) = gin.state_dict(Framework::Pyg).expect("gin");
    let folded = Checkpoint::from_state_dict(&tensors, &options(Framework::Pyg, Precision::Float))
        .expect("gin");
    assert_near(&logits(&folded, None), &own, "λ");
}

#[test]
fn widths_may_differ_by_layer() {
    let shapes: [(&str, [usize; 2]); 3] = [
        ("0.lin.weight", [8, 5]),
        ("1.lin.weight", [4, 8]),
        ("2.lin.weight", [3, 4]),
    ];
    let tensors: StateDict = shapes
        .iter()
        .map(|&(name, shape)| {
            let values = vec![0.5; shape[0] * shape[1]];
            (
                name.to_owned(),
                StateTensor {
                    shape: shape.to_vec(),
                    values,
                },
            )
        })
        .collect();
    let options = options(Framework::Pyg, Precision::Float);
    let read = Checkpoint::from_state_dict(&tensors, &options).expect("a model");
    assert_eq!(read.model.hidden_by_layer, [8, 4]);
    let (again, _) = read.state_dict(Framework::Pyg).expect("tensors");
    for (name, shape) in shapes {
        assert_eq!(again[&format!("convs.{name}")].shape, shape, "{name}");
    }
}

#[test]
fn what_cannot_be_carried_is_one_line() {
    let tensors = |of: &[(&str, &[usize])]| -> StateDict {
        let tensor = |shape: &[usize]| StateTensor {
            shape: shape.to_vec(),
            values: vec![0.5; shape.iter().product()],
        };
        of.iter()
            .map(|(name, shape)| (name.to_string(), tensor(shape)))
            .collect()
    };
    let refused = |from, of: &[(&str, &[usize])]| {
        let error = Checkpoint::from_state_dict(&tensors(of), &options(from, Precision::Float));
        error.expect_err("refused").to_string()
    };
    let pyg = |of: &[(&str, &[usize])]| refused(Framework::Pyg, of);
    assert!(pyg(&[]).contains("no tensors"));
    assert!(pyg(&[("norms.0.module.weight", &[8])]).contains("no tensor `norms.0.module."));
    assert!(
        pyg(&[
            ("c1.lin_l.weight", &[3, 5]),
            ("c1.lin_l.bias", &[3]),
            ("c1.lin_r.bias", &[3]),
            ("c1.lin_r.weight", &[3, 5])
        ])
        .contains("two biases, `c1.lin_l.bias` and `c1.lin_r.bias`")
    );
    assert!(
        pyg(&[("conv1.lin.weight", &[8, 5]), ("conv2.lin.weight", &[3, 7])])
            .contains("`conv1` gives rows of 8 and `conv2` takes rows of 7")
    );
    let gin = [
        ("nn.0.weight", &[6, 5][..]),
        ("nn.0.bias", &[6]),
        ("nn.1.weight", &[6]),
        ("nn.1.bias", &[6]),
        ("nn.3.weight", &[8, 6]),
        ("nn.3.bias", &[8]),
    ];
    let two: Vec<(String, &[usize])> = [0, 1]
        .iter()
        .flat_map(|layer| gin.map(|(name, shape)| (format!("convs.{layer}.{name}"), shape)))
        .collect();
    let mut two: Vec<(&str, &[usize])> =
        two.iter().map(|(name, shape)| (&**name, *shape)).collect();
    for (name, shape) in &mut two {
        if *name == "convs.1.nn.0.weight" {
            *shape = &[6, 8];
        }
    }
    assert!(pyg(&two).contains("`convs.0` is 6 wide between its two maps"));
    assert!(pyg(&[("lin.weight", &[8])]).contains("`lin.weight` is of shape [8]"));
    assert!(
        pyg(&[("lin.weight", &[8, 5]), ("bias", &[5])]).contains("where a vector of 8 is wanted")
    );
    let gat = [
        ("att_src", &[1, 2, 8][..]),
        ("att_dst", &[1, 2, 8]),
        ("lin.weight", &[16, 5]),
        ("bias", &[16]),
    ];
    assert!(pyg(&gat).contains("2 heads side by side in the last layer"));
    assert!(
        pyg(&[("nn.0.weight", &[8, 5]), ("nn.3.weight", &[3, 8])])
            .contains("no tensor `nn.1.weight`")
    );
    let other = refused(Framework::Dgl, &[("layers.0.att_src", &[1, 2, 8])]);
    assert!(other.contains("`layers.0.att_src` has no place"), "{other}");

    let mut residual =
        Checkpoint::import(&file("gcn"), &options(Framework::Pyg, Precision::Float)).expect("gcn");
    residual.model.residual = true;
    assert!(
        residual
            .state_dict(Framework::Pyg)
            .unwrap_err()
            .to_string()
            .contains("residual")
    );
    residual.model.residual = false;
    residual.model.convolution = Appnp::default().into();
    assert!(
        residual
            .state_dict(Framework::Dgl)
            .unwrap_err()
            .to_string()
            .contains("appnp")
    );
    let none = Checkpoint::import(
        Path::new("/none"),
        &options(Framework::Pyg, Precision::Float),
    );
    assert!(none.unwrap_err().to_string().contains("cannot be read"));
}

/// The kinds that are carried over one by one, with the options of the files.
fn registered() -> Vec<(&'static str, ConvolutionConfig)> {
    let sum = Aggregate::Sum;
    vec![
        ("graphconv", GraphConv { aggregate: sum }.into()),
        (
            "graphconv-max",
            GraphConv {
                aggregate: Aggregate::Max,
            }
            .into(),
        ),
        (
            "sg",
            Sg {
                hops: 2,
                ..Sg::default()
            }
            .into(),
        ),
        (
            "ssg",
            Ssg {
                hops: 3,
                alpha: 0.25,
                ..Ssg::default()
            }
            .into(),
        ),
        (
            "tag",
            Tag {
                hops: 2,
                ..Tag::default()
            }
            .into(),
        ),
        ("cheb", Cheb::default().into()),
        ("clustergcn", ClusterGcn { diag_lambda: 0.5 }.into()),
        ("leconv", Le.into()),
        (
            "resgated",
            ResGated {
                aggregate: sum,
                ..ResGated::default()
            }
            .into(),
        ),
        ("transformer", Transformer::default().into()),
    ]
}

/// The kinds whose tensors are made of several parameters, or have more or less than a layer here.
fn made_of_several() -> Vec<(&'static str, ConvolutionConfig)> {
    let sum = Aggregate::Sum;
    let arma = |steps, share_weights| Arma {
        stacks: 2,
        steps,
        share_weights,
        ..Arma::default()
    };
    let gine = Gine {
        aggregate: sum,
        ..Gine::default()
    };
    let transformer = |heads, beta, root_weight| Transformer {
        heads,
        beta,
        root_weight,
        ..Transformer::default()
    };
    let powers = vec![0, 2];
    let rgcn = |bases, blocks| Rgcn { bases, blocks };
    let resgated = ResGated {
        aggregate: sum,
        ..ResGated::default()
    };
    let cg = |aggregate| Cg {
        aggregate,
        ..Cg::default()
    };
    vec![
        ("arma", arma(1, false).into()),
        ("arma-cat", arma(3, false).into()),
        ("arma-shared-cat", arma(3, true).into()),
        (
            "mixhop",
            MixHop {
                powers,
                ..MixHop::default()
            }
            .into(),
        ),
        ("gatedgraph", GatedGraph { steps: 2 }.into()),
        ("gatedgraph-wide", GatedGraph { steps: 3 }.into()),
        ("cg", cg(sum).into()),
        ("cg-edges", cg(Aggregate::Mean).into()),
        ("gine", gine.clone().into()),
        ("gine-batch", gine.into()),
        (
            "gine-min",
            Gine {
                aggregate: Aggregate::Min,
                ..Gine::default()
            }
            .into(),
        ),
        ("edge", Edge::default().into()),
        (
            "edge-mean",
            Edge {
                aggregate: Aggregate::Mean,
            }
            .into(),
        ),
        ("gen", Gen::default().into()),
        (
            "gen-warm",
            Gen {
                temperature: 0.5,
                ..Gen::default()
            }
            .into(),
        ),
        (
            "appnp",
            Appnp {
                steps: 3,
                alpha: 0.25,
                ..Appnp::default()
            }
            .into(),
        ),
        (
            "gcnii",
            Gcnii {
                alpha: 0.25,
                theta: 0.75,
            }
            .into(),
        ),
        ("pna", Pna::default().into()),
        ("pna-edges", Pna::default().into()),
        ("resgated-edges", resgated.into()),
        ("transformer-heads", transformer(2, false, true).into()),
        ("transformer-beta", transformer(2, true, true).into()),
        ("transformer-no-root", transformer(1, false, false).into()),
        ("rgcn", rgcn(0, 0).into()),
        ("rgcn-bases", rgcn(2, 0).into()),
        ("rgcn-blocks", rgcn(0, 5).into()),
    ]
}

/// Layers, hidden width and classes of a file.
fn shape_of(name: &str) -> (usize, usize, usize) {
    match name {
        "gatedgraph-wide" => (1, 64, 6),
        "cg-edges" => (1, 4, 3),
        "rgcn-blocks" => (2, 10, 3),
        "gen-warm" => (2, 4, 4),
        _ => (2, 4, 3),
    }
}

/// What PyG's layers do not read, and what is folded: the end of a name, and whether it is written as zeros.
fn not_as_read(name: &str) -> &'static [(&'static str, bool)] {
    match name {
        "arma" => &[("s.0.weight", true), ("s.1.weight", true)],
        "transformer-no-root" => &[("lin_skip.weight", true), ("lin_skip.bias", true)],
        "gine" | "gine-min" => &[("nn.0.bias", true), ("running_mean", false)],
        "gen" | "gen-warm" => &[("mlp.0.bias", true), ("running_mean", false)],
        "pna" | "pna-edges" => &[("avg_deg_lin", true)],
        "gine-batch" => &[("nn.0.bias", true)],
        _ => &[],
    }
}

fn named(layers: ConvolutionConfig) -> ImportOptions {
    ImportOptions {
        layers: Some(layers),
        ..options(Framework::Pyg, Precision::Float)
    }
}

#[test]
fn layers_of_the_registry_are_those_of_pyg_both_ways() {
    for (name, layers) in [registered(), made_of_several()].concat() {
        let options = ImportOptions {
            features: Some(5),
            ..named(layers)
        };
        let read = Checkpoint::import(&file(name), &options);
        let read = read.unwrap_or_else(|error| panic!("{name}: {error}"));
        assert_eq!(
            (read.model.layers, read.model.hidden, read.model.classes),
            shape_of(name),
            "{name}"
        );
        assert_eq!(read.model.features, 5, "{name}");
        assert_near(&logits(&read, None), &logits_of_pyg(name), name);
        let (written, notes) = read.state_dict(Framework::Pyg).expect(name);
        let class = if name == "appnp" {
            "APPNP(K=3, alpha=0.25)"
        } else {
            "Conv(…"
        };
        assert!(notes[0].contains(class), "{notes:?}");
        let bytes = std::fs::read(file(name)).expect("a file");
        let original = safetensors::SafeTensors::deserialize(&bytes).expect("tensors");
        let names = original.names().into_iter();
        let names = names.filter(|name| !name.ends_with("tracked"));
        assert_eq!(written.len(), names.count(), "{name}");
        for (tensor, ours) in &written {
            let theirs = original.tensor(tensor).expect(tensor);
            assert_eq!(ours.shape, theirs.shape(), "{name}: {tensor}");
            let mut ends = not_as_read(name).iter();
            match ends.find(|(end, _)| tensor.ends_with(end)) {
                Some((_, true)) => assert!(ours.values.iter().all(|it| *it == 0.0), "{tensor}"),
                Some((_, false)) => {}
                None => {
                    let bytes = (ours.values.iter()).flat_map(|value| value.to_le_bytes());
                    assert_eq!(bytes.collect::<Vec<_>>(), theirs.data(), "{name}: {tensor}");
                }
            }
        }
        // The same model of its own file, and of one in half, whose heads are padded to other widths.
        let again = Checkpoint::from_state_dict(&written, &options).expect(name);
        assert_eq!(again.snapshot.tensors, read.snapshot.tensors, "{name}");
        let half = ImportOptions {
            precision: Precision::Half,
            ..options.clone()
        };
        let half = Checkpoint::from_state_dict(&written, &half).expect(name);
        let (of_half, _) = half.state_dict(Framework::Pyg).expect(name);
        assert_eq!(of_half, written, "{name}");
        // Divisors of features are in the first layer's weights.
        let divisors = [2.0, 0.5, 4.0, 1.0, 8.0];
        let mut divided = read.clone();
        divided.feature_divisors = Some(divisors.to_vec());
        match divided.state_dict(Framework::Pyg) {
            Ok((tensors, _)) => {
                let again = Checkpoint::from_state_dict(&tensors, &options).expect(name);
                let expected = logits(&read, Some(&divisors));
                assert_near(&logits(&again, None), &expected, name);
            }
            Err(refused) => {
                assert_eq!(name, "gatedgraph-wide", "{refused}");
                assert!(refused.to_string().contains("no map to divide them in"));
            }
        }
        let refused = read.state_dict(Framework::Dgl).expect_err("DGL's");
        let words = match name.ends_with("-cat") {
            true => "jumping knowledge",
            false => "PyG's names alone",
        };
        assert!(refused.to_string().contains(words), "{refused}");
    }
}

/// The logits of a file, as the script prints them.
fn logits_of_pyg(name: &str) -> Vec<f32> {
    let text = std::fs::read(file("gcn").with_file_name("pyg-logits.json")).expect("logits");
    let all: BTreeMap<String, Vec<f32>> = serde_json::from_slice(&text).expect("numbers");
    all[name].clone()
}

#[test]
fn aggregations_have_the_names_of_pyg() {
    let names = [
        (Aggregate::Mean, "mean"),
        (Aggregate::Sum, "add"),
        (Aggregate::Max, "max"),
        (Aggregate::Min, "min"),
        (Aggregate::Softmax, "softmax"),
        (Aggregate::Std, "std"),
    ];
    let all = ["graphconv", "gine", "edge", "gen"];
    for (name, (aggregate, aggr)) in all.into_iter().flat_map(|it| names.map(|of| (it, of))) {
        let layers: ConvolutionConfig = match name {
            "graphconv" => GraphConv { aggregate }.into(),
            "gine" => Gine {
                aggregate,
                ..Gine::default()
            }
            .into(),
            "edge" => Edge { aggregate }.into(),
            _ => Gen {
                aggregate,
                ..Gen::default()
            }
            .into(),
        };
        let read = Checkpoint::import(&file(name), &named(layers));
        let has_no_bias = name == "edge" && matches!(aggregate, Aggregate::Sum | Aggregate::Std);
        let written = read.map(|read| read.state_dict(Framework::Pyg));
        match written {
            Ok(written) => {
                let (_, notes) = written.expect(name);
                let option = format!("Conv(…, aggr='{aggr}'");
                assert!(notes[0].contains(&option), "{name}: {notes:?}");
                assert!(!has_no_bias);
            }
            Err(refused) => {
                assert!(has_no_bias, "{name}: {refused}");
                let words = "EdgeConv's is in each message that is aggregated";
                assert!(refused.to_string().contains(words), "{refused}");
            }
        }
    }
}

/// `GENConv` without biases, and with features of edges that are as wide as its last layer.
#[test]
fn what_a_file_lacks_changes_nothing() {
    let layers = Gen {
        aggregate: Aggregate::Max,
        ..Gen::default()
    };
    let options = named(layers.into());
    let read = Checkpoint::import(&file("gen-plain"), &options).expect("a model");
    let ConvolutionConfig::Gen(of) = &read.model.convolution else {
        panic!("a GENConv");
    };
    assert_eq!((of.expansion, of.edge_features), (3, 2));
    assert_eq!((read.model.features, read.model.hidden), (5, 5));
    assert_near(
        &logits(&read, None),
        &logits_of_pyg("gen-plain"),
        "gen-plain",
    );
    let (written, notes) = read.state_dict(Framework::Pyg).expect("tensors");
    let class = "GENConv(…, aggr='max', expansion=3, bias=True, edge_dim=2)";
    assert!(notes[0].contains(class), "{notes:?}");
    assert!(!written.contains_key("convs.1.lin_edge.weight"));
    assert!(!written.contains_key("convs.1.lin_edge.bias"));
    let again = Checkpoint::from_state_dict(&written, &options).expect("a model");
    assert_eq!(again.snapshot.tensors, read.snapshot.tensors);

    let refused = |change: &dyn Fn(&mut Checkpoint)| {
        let mut changed = read.clone();
        change(&mut changed);
        let refused = changed.state_dict(Framework::Pyg).expect_err("refused");
        refused.to_string()
    };
    let mapped = refused(&|read| {
        let map = read.snapshot.tensors.get_mut("layers.1.edge.weight");
        map.expect("a map").values[1] = 0.5;
    });
    let words = "`layers.1.edge.weight` maps 2 features of edges to as many columns";
    assert!(mapped.contains(words), "{mapped}");
    let divided = refused(&|read| read.feature_divisors = Some(vec![2.0; 5]));
    assert!(divided.contains("no map to divide them in"), "{divided}");
}

#[test]
fn features_that_are_divided_before_a_softmax_are_refused() {
    for aggregate in [Aggregate::Softmax, Aggregate::Std] {
        let gine = Gine {
            aggregate,
            ..Gine::default()
        };
        for (name, layers) in [
            ("graphconv", GraphConv { aggregate }.into()),
            ("gine", gine.into()),
        ] {
            let mut read = Checkpoint::import(&file(name), &named(layers)).expect(name);
            read.feature_divisors = Some(vec![2.0; 5]);
            let refused = read.state_dict(Framework::Pyg).expect_err(name).to_string();
            assert!(
                refused.contains("train without --scale-features"),
                "{refused}"
            );
        }
    }
}

/// Layers with biases of their own have none of the network behind them, and that of a checkpoint is not ignored.
#[test]
fn a_bias_that_its_model_lacks_is_refused() {
    let kinds = made_of_several().into_iter();
    for (name, layers) in
        kinds.filter(|it| ["arma", "gatedgraph", "transformer-beta"].contains(&it.0))
    {
        let options = ImportOptions {
            features: Some(5),
            ..named(layers)
        };
        let mut read = Checkpoint::import(&file(name), &options).expect(name);
        let number = read.model.layers - 1;
        let own = format!("layers.{number}.bias");
        let bias = halfgnn::train::Tensor {
            rows: 1,
            columns: 3,
            values: vec![0.5; 3],
        };
        read.snapshot.tensors.insert(own.clone(), bias);
        let backend = &Cpu::new();
        let mut model = Network::<_, f32>::new(backend, &read.model, 0).expect("a model");
        let loaded = load_weights(backend, &mut model, &read.snapshot.tensors);
        let loaded = loaded.expect_err(name).to_string();
        let exported = read.state_dict(Framework::Pyg).expect_err(name).to_string();
        for refused in [loaded, exported] {
            let words = format!("its tensor `{own}` has no place in the model");
            assert!(refused.contains(&words), "{name}: {refused}");
            assert!(refused.contains("train it anew"), "{refused}");
            assert!(!refused.contains('\n'), "{refused}");
        }
    }
}

#[test]
fn layers_of_the_registry_that_do_not_fit_are_refused() {
    let refused = |name: &str, options: ImportOptions| {
        let read = Checkpoint::import(&file(name), &options);
        read.expect_err(name).to_string()
    };
    let hops = |hops: usize| Tag {
        hops,
        ..Tag::default()
    };
    let without = options(Framework::Pyg, Precision::Float);
    for (name, options, words) in [
        ("tag", without, "name its layers, such as --model tag"),
        (
            "tag",
            named(hops(1).into()),
            "`convs.0.lins.2.weight` has no place in a tag with these options; name the options",
        ),
        (
            "tag",
            named(hops(3).into()),
            "no tensor for `layers.0.hops.3.weight`",
        ),
        ("tag", named(Le.into()), "has no place in PyG's leconv"),
        (
            "gcn-cat",
            named(hops(1).into()),
            "`convs.0.lin.weight` has no place in PyG's tag",
        ),
        (
            "gcn",
            named(Hgt::default().into()),
            "hgt are not read by their names",
        ),
        (
            "cg",
            named(Gcnii::default().into()),
            "a gcnii here has one linear map before its layers and one behind",
        ),
        (
            "gcn",
            named(Appnp::default().into()),
            "`convs.0` do not say how wide its output is",
        ),
        (
            "tag",
            ImportOptions {
                from: Framework::Dgl,
                ..named(hops(2).into())
            },
            "under PyG's names",
        ),
    ] {
        let found = refused(name, options);
        assert!(found.contains(words), "{name}, {words}: {found}");
    }
    let right = Tag {
        norm: Norm::Right,
        ..hops(2)
    };
    let read = Checkpoint::import(&file("tag"), &named(hops(2).into()));
    let mut read = read.expect("a TAG");
    read.model.convolution = right.into();
    let found = read.state_dict(Framework::Pyg).expect_err("another norm");
    assert!(found.to_string().contains("--norm both"), "{found}");
}

/// What layers read of a file that is an option here.
#[test]
fn options_of_layers_are_read_from_a_file() {
    let read = |name: &str, change: &dyn Fn(&mut StateDict)| {
        let kinds = [registered(), made_of_several()].concat();
        let (_, layers) = kinds.into_iter().find(|it| it.0 == name).expect(name);
        let bytes = std::fs::read(file(name)).expect("a file");
        let original = safetensors::SafeTensors::deserialize(&bytes).expect("tensors");
        let mut tensors = StateDict::new();
        for (name, of) in original.iter().filter(|(it, _)| !it.ends_with("tracked")) {
            let values = of.data().as_chunks().0.iter();
            let values = values.map(|it| f32::from_le_bytes(*it)).collect();
            let shape = of.shape().to_vec();
            tensors.insert(name.into(), StateTensor { shape, values });
        }
        change(&mut tensors);
        Checkpoint::from_state_dict(&tensors, &named(layers))
    };
    let gine = |name: &str| {
        let read = read(name, &|_| {}).expect(name);
        let ConvolutionConfig::Gine(of) = read.model.convolution else {
            panic!("a GINE");
        };
        of
    };
    let (learnt, fixed) = (gine("gine"), gine("gine-batch"));
    assert!(learnt.learn_epsilon && learnt.statistics == Statistics::Running);
    assert!(!fixed.learn_epsilon && fixed.statistics == Statistics::Batch);
    assert_eq!((learnt.edge_features, fixed.epsilon), (2, 0.5));
    for (name, features) in [("resgated", 0), ("resgated-edges", 2), ("cg-edges", 2)] {
        let read = read(name, &|_| {}).expect(name);
        assert_eq!(read.model.edge_features(), features, "{name}");
    }
    // The columns of the first layer without a map of its own rows follow from the second's.
    let without = |tensors: &mut StateDict| tensors.retain(|name, _| !name.contains("lin_skip"));
    let refused = read("resgated-edges", &without).expect_err("a root weight");
    assert!(
        refused.to_string().contains("`layers.0.self.weight`"),
        "{refused}"
    );
    let layers = ResGated {
        aggregate: Aggregate::Sum,
        root_weight: false,
        ..ResGated::default()
    };
    let whole = read("resgated-edges", &|_| {}).expect("a model");
    let (mut tensors, _) = whole.state_dict(Framework::Pyg).expect("tensors");
    without(&mut tensors);
    let rootless = Checkpoint::from_state_dict(&tensors, &named(layers.into())).expect("a model");
    assert_eq!(
        (rootless.model.edge_features(), rootless.model.features),
        (2, 5)
    );
    let (again, _) = rootless.state_dict(Framework::Pyg).expect("tensors");
    assert_eq!(again, tensors);

    // A bias for each power has their mean.
    let mean = read("mixhop", &|tensors| {
        let bias = tensors.get_mut("convs.1.bias").expect("a bias");
        let values = [(0, 0.25), (1, -0.5), (2, 1.0)];
        for (at, more) in values {
            bias.values[at] += more;
            bias.values[3 + at] -= more;
        }
    });
    let plain = read("mixhop", &|_| {}).expect("a model");
    assert_near(
        &logits(&mean.expect("a model"), None),
        &logits(&plain, None),
        "mixhop",
    );
}

#[test]
fn what_layers_of_pyg_do_not_compute_is_written_so_that_they_do() {
    // PyG adds no bias without the root weight, and so the root weight is there and zero.
    let rootless = Transformer {
        root_weight: false,
        ..Transformer::default()
    };
    let read = Checkpoint::import(&file("transformer-no-root"), &named(rootless.into()));
    let mut read = read.expect("a model");
    for number in 0..2 {
        let bias = read
            .snapshot
            .tensors
            .get_mut(&format!("layers.{number}.bias"));
        bias.expect("a bias").values.fill(0.75);
    }
    let (tensors, notes) = read.state_dict(Framework::Pyg).expect("tensors");
    assert!(notes[1].contains("lin_skip.weight is zero"), "{notes:?}");
    let with_root = named(Transformer::default().into());
    let again = Checkpoint::from_state_dict(&tensors, &with_root).expect("a model");
    assert_near(&logits(&again, None), &logits(&read, None), "transformer");

    // A matrix of one row is no vector.
    let tensor = |shape: &[usize]| StateTensor {
        shape: shape.to_vec(),
        values: vec![0.5; shape.iter().product()],
    };
    let of_one_feature: StateDict = [
        ("convs.0.root", tensor(&[1, 3])),
        ("convs.0.weight", tensor(&[1, 1, 3])),
        ("convs.0.bias", tensor(&[3])),
    ]
    .map(|(name, of)| (name.to_owned(), of))
    .into();
    let read = Checkpoint::from_state_dict(&of_one_feature, &named(Rgcn::default().into()));
    let (again, _) = read
        .expect("a model")
        .state_dict(Framework::Pyg)
        .expect("tensors");
    assert_eq!(again, of_one_feature);

    // A first GatedGraphConv takes as many features as it has columns, unless there are fewer.
    let gated = named(GatedGraph { steps: 3 }.into());
    let read = Checkpoint::import(&file("gatedgraph-wide"), &gated).expect("a model");
    assert_eq!(read.model.features, 6);
}

#[test]
fn what_layers_of_pyg_cannot_compute_is_refused() {
    let kinds = made_of_several();
    let config = |name: &str| {
        let found = kinds.iter().find(|it| it.0 == name);
        found.expect(name).1.clone()
    };
    let import = |name: &str, layers: ConvolutionConfig| {
        let read = Checkpoint::import(&file(name), &named(layers));
        read.expect_err(name).to_string()
    };
    let three = Arma {
        stacks: 2,
        steps: 3,
        ..Arma::default()
    };
    let side = Transformer {
        heads: 2,
        ..Transformer::default()
    };
    for (name, layers, words) in [
        (
            "arma",
            three.into(),
            "--steps 1 or --jumping can be carried over",
        ),
        (
            "transformer",
            side.into(),
            "2 heads side by side in the last layer",
        ),
        (
            "transformer-beta",
            config("transformer-heads"),
            "`convs.0.lin_beta.weight` has no place",
        ),
        (
            "transformer-heads",
            config("transformer-beta"),
            "no tensor for `layers.0.beta.0.weight`",
        ),
        (
            "rgcn-bases",
            config("rgcn"),
            "`convs.0.weight` is of 2 relations",
        ),
        (
            "rgcn",
            config("rgcn-bases"),
            "no tensor for `layers.0.comp.edges.0`, which is `convs.0.comp`",
        ),
        (
            "rgcn-blocks",
            config("rgcn"),
            "`convs.0.weight` is of shape [1, 5, 1, 2], where [1, 5, 10]",
        ),
        (
            "cg",
            config("gine"),
            "`convs.0.lin_f.bias` has no place in PyG's gine",
        ),
        (
            "gatedgraph-wide",
            GatedGraph { steps: 2 }.into(),
            "of shape [3, 6, 6], where [2, 6, 6]",
        ),
    ] {
        let found = import(name, layers);
        assert!(found.contains(words), "{name}, {words}: {found}");
    }
    let changed = |name: &str, change: &dyn Fn(&mut StateDict)| {
        let options = ImportOptions {
            features: Some(5),
            ..named(config(name))
        };
        let read = Checkpoint::import(&file(name), &options).expect(name);
        let (mut tensors, _) = read.state_dict(Framework::Pyg).expect(name);
        change(&mut tensors);
        let refused = Checkpoint::from_state_dict(&tensors, &options);
        refused.expect_err(name).to_string()
    };
    let without = |part: &'static str| {
        move |tensors: &mut StateDict| tensors.retain(|name, _| !name.contains(part))
    };
    for (name, part, words) in [
        ("gine", ".lin.", "without edge_dim adds edge_attr as it is"),
        (
            "gine",
            "running_var",
            "no tensor for `layers.0.norm.running`",
        ),
        ("cg", "lins.1", "`lins.0` and `lins.1`, and the file has 1"),
        ("gatedgraph", "lins.1", "which is `lins.1.weight` in PyG"),
        ("arma", "init_weight", "do not say how wide its output is"),
        (
            "pna",
            "avg_deg_log",
            "no tensor `convs.0.aggr_module.avg_deg_log`, which the scalers divide by",
        ),
        (
            "pna-edges",
            "edge_encoder",
            "`convs.0.pre_nns.0.0.weight` is of shape [5, 15], where [5, 10]",
        ),
    ] {
        let found = changed(name, &without(part));
        assert!(found.contains(words), "{name} without {part}: {found}");
    }
    for (name, end, words) in [
        (
            "gen",
            "convs.0.lin_edge.bias",
            "`convs.0.lin_edge.bias` is not zero",
        ),
        (
            "pna",
            "convs.1.aggr_module.avg_deg_log",
            "its layers have a mean of ln (1 + degree) of",
        ),
        (
            "edge",
            "convs.0.nn.2.weight",
            "`convs.0.nn.2.weight` has no place in PyG's edge",
        ),
        (
            "pna",
            "convs.0.pre_nns.1.0.weight",
            "`convs.0.pre_nns.1.0.weight` has no place in PyG's pna",
        ),
        (
            "gen",
            "convs.1.aggr_module.t",
            "`convs.1.aggr_module.t` has no place in PyG's gen",
        ),
    ] {
        let found = changed(name, &|tensors| {
            let tensor = tensors.entry(end.into()).or_insert(StateTensor {
                shape: vec![1],
                values: vec![0.0],
            });
            tensor.values[0] += 0.5;
        });
        assert!(found.contains(words), "{name}, {end}: {found}");
    }
    let odd = changed("edge", &|tensors| {
        let weight = tensors.get_mut("convs.0.nn.0.weight").expect("a weight");
        (weight.shape, weight.values) = (vec![4, 9], vec![0.5; 36]);
    });
    assert!(odd.contains("where [4, 8] is needed"), "{odd}");
    let uneven = changed("gen", &|tensors| {
        let weight = tensors.get_mut("convs.0.mlp.0.weight").expect("a weight");
        (weight.shape, weight.values) = (vec![7, 4], vec![0.5; 28]);
    });
    assert!(
        uneven.contains("where a multiple of its columns as rows is needed"),
        "{uneven}"
    );
    let more = changed("gatedgraph", &|tensors| {
        let weight = tensors["lins.1.weight"].clone();
        tensors.insert("lins.7.weight".into(), weight);
    });
    assert!(more.contains("`lins.7.weight` has no place"), "{more}");
    let wide = ImportOptions {
        features: Some(7),
        ..named(config("gatedgraph-wide"))
    };
    let wide = Checkpoint::import(&file("gatedgraph-wide"), &wide).expect_err("7 features");
    let words = "7 features are more than the 6 columns of `convs.0`";
    assert!(wide.to_string().contains(words), "{wide}");
    // Nothing is allocated for a matrix whose two sides are of two tensors, or for one without values.
    let huge = changed("mixhop", &|tensors| {
        for (end, shape) in [
            ("lins.0.weight", vec![1, 2_000_000]),
            ("bias", vec![2_000_000]),
        ] {
            let values = vec![0.0; shape.iter().product()];
            tensors.insert(format!("convs.0.{end}"), StateTensor { shape, values });
        }
    });
    assert!(
        huge.contains("is of shape [1, 2000000], where [1000000, 2000000] is needed"),
        "{huge}"
    );
    let none = changed("transformer-heads", &|tensors| {
        let weight = tensors.get_mut("convs.0.lin_skip.weight");
        let weight = weight.expect("a weight");
        (weight.shape, weight.values) = (vec![0, usize::MAX], Vec::new());
    });
    assert!(none.contains("where a matrix is needed"), "{none}");
    let relations = changed("rgcn", &|tensors| {
        let weight = tensors.get_mut("convs.1.weight").expect("a weight");
        (weight.shape[0], weight.values) = (2, weight.values.repeat(2));
    });
    assert!(
        relations.contains("layers of one relation can be carried over"),
        "{relations}"
    );

    let exported = |name: &str, change: &dyn Fn(&mut Checkpoint)| {
        let read = Checkpoint::import(&file(name), &named(config(name)));
        let mut read = read.expect(name);
        change(&mut read);
        read.state_dict(Framework::Pyg).expect_err(name).to_string()
    };
    let uneven = exported("mixhop", &|read| read.model.hidden = 5);
    assert!(
        uneven.contains("5 columns of a hidden layer are not as many of each of 2 powers"),
        "{uneven}"
    );
    let steps = exported("arma", &|read| {
        let ConvolutionConfig::Arma(of) = &mut read.model.convolution else {
            panic!("an ARMA");
        };
        of.steps = 2;
    });
    assert!(
        steps.contains("a ReLU behind each step but the last"),
        "{steps}"
    );
    let types = exported("rgcn", &|read| {
        read.model.types = Some(ModelTypes {
            vertices: Vec::new(),
            edges: Vec::new(),
            labelled: 0,
        });
    });
    assert!(
        types.contains("a model of one type can be carried over"),
        "{types}"
    );
}

/// `GATConv(4, 3, heads=2, concat=False, edge_dim=5)`: heads of 3 columns and features of 5, both padded here.
#[test]
fn the_term_of_edges_of_a_gat_comes_back_as_it_was() {
    let tensor = |shape: &[usize], from: usize| StateTensor {
        shape: shape.to_vec(),
        values: (0..shape.iter().product())
            .map(|k: usize| (from + k) as f32)
            .collect(),
    };
    let all = [
        ("att_src", tensor(&[1, 2, 3], 100)),
        ("att_dst", tensor(&[1, 2, 3], 200)),
        ("att_edge", tensor(&[1, 2, 3], 300)),
        ("lin.weight", tensor(&[6, 4], 400)),
        ("lin_edge.weight", tensor(&[6, 5], 500)),
        ("bias", tensor(&[3], 600)),
    ];
    let named = all.map(|(name, tensor)| (format!("convs.0.{name}"), tensor));
    let dict = StateDict::from(named);
    for precision in [Precision::Half, Precision::Float] {
        let options = options(Framework::Pyg, precision);
        let checkpoint = Checkpoint::from_state_dict(&dict, &options).expect("a GAT");
        assert_eq!(checkpoint.model.edge_features(), 5);
        // Its shapes are those of the model that it says.
        let backend = &Cpu::new();
        let mut network = Network::<_, f32>::new(backend, &checkpoint.model, 0).expect("a model");
        if precision == Precision::Float {
            load_weights(backend, &mut network, &checkpoint.snapshot.tensors).expect("its shapes");
        }
        let (written, notes) = checkpoint
            .state_dict(Framework::Pyg)
            .expect("GATConv has it");
        assert_eq!(written, dict);
        assert!(
            notes.iter().any(|note| note.contains("edge_dim=5")),
            "{notes:?}"
        );
        let refused = checkpoint
            .state_dict(Framework::Dgl)
            .unwrap_err()
            .to_string();
        assert!(refused.contains("DGL's GATConv has none"), "{refused}");
    }
    let mut short = dict.clone();
    short.remove("convs.0.att_edge");
    let options = options(Framework::Pyg, Precision::Float);
    let refused = Checkpoint::from_state_dict(&short, &options).unwrap_err();
    assert!(refused.to_string().contains("att_edge"), "{refused}");
}
