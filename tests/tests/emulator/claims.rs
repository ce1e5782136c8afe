//! What the kernels are built to do, as exact counts of the emulator (HalfGNN §4).

use half::f16;
use halfgnn::backend::gpu::Gpu;
use halfgnn::backend::{Adjacency, DeviceGraph, MemoryKind, Storage};
use halfgnn::driver::Driver;
use halfgnn::driver::emulated::{Emulated, Launched, Options};
use halfgnn::graph::Graph;
use halfgnn::kernels::Kernels;
use halfgnn::nn::{Binary, Mode, Model, ModelConfig, Network, Propagation};
use halfgnn::ops::{
    self, BitMatrix, Bmm, CodeFormat, EdgeWeights, Fanout, HalfLoad, LayerSizes, Reduction, Sddmm,
    SddmmPolicy, Spmm, SpmmPolicy, edge_plane,
};
use halfgnn::sample::{EdgesIn, LayerSources, NeighborSampler, Sampler, SamplingPolicy};
use halfgnn::tensor::{Array, Element, Matrix};
use halfgnn::train::{BatchReport, Batches, Loss, TrainConfig, Trainer};
use halfgnn_contract::sddmm::TILE_EDGES;
use halfgnn_contract::spmm::{EDGES_PER_CTA, EDGES_PER_WARP};
use halfgnn_tests::bits::signs;
use halfgnn_tests::graphs::from_degrees;
use halfgnn_tests::input::Random;
use halfgnn_tests::task;
use std::ops::ControlFlow;

/// Bytes of a sector, the unit in which global memory is counted.
const SECTOR: u64 = 32;

fn open() -> Gpu<Emulated> {
    of_multiprocessors(Options::default().multiprocessors)
}

fn of_multiprocessors(multiprocessors: u32) -> Gpu<Emulated> {
    let driver = Emulated::with_options(Options {
        record: true,
        multiprocessors,
        ..Options::default()
    });
    let kernels = Kernels::find(Some(driver.info().compute_capability)).expect("the kernels");
    Gpu::new(driver, kernels).expect("the kernels fit this program")
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

/// The launches of one edge-parallel SpMM of `features` halves.
fn spmm(gpu: &Gpu<Emulated>, graph: &Graph, features: usize, weighted: bool) -> Vec<Launched> {
    // As on a graph that fills a card.
    let policy = SpmmPolicy {
        edges_per_warp: Some(EDGES_PER_WARP),
        ..SpmmPolicy::DEFAULT
    };
    spmm_by(gpu, graph, features, weighted, policy)
}

fn spmm_by(
    gpu: &Gpu<Emulated>,
    graph: &Graph,
    features: usize,
    weighted: bool,
    policy: SpmmPolicy,
) -> Vec<Launched> {
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
        policy,
        ..Spmm::default()
    };
    gpu.driver().take_launches();
    ops::spmm(gpu, device.forward(), &op, &x, &mut y).expect("a legal SpMM");
    gpu.synchronize().expect("no failure");
    gpu.driver().take_launches()
}

/// Where more rows of so many loads fit a warp, a sum without weights has as many under way, and takes fewer instructions where shares are long than with two loads more.
#[test]
fn rows_of_few_loads_are_packed() {
    let gpu = open();
    let graph = ring(6 * EDGES_PER_CTA, 768);
    let policy = SpmmPolicy {
        edges_per_warp: Some(256),
        ..SpmmPolicy::DEFAULT
    };
    let launched = |features| {
        let launches = spmm_by(&gpu, &graph, features, false, policy);
        let first = &launches[0];
        (
            first.kernel.clone(),
            first.report.counts.warp_instructions(),
        )
    };
    let (packed, fewer) = launched(40);
    let (whole, more) = launched(56);
    assert_eq!(packed, "spmm_packed_v_half8_discretized_float");
    assert_eq!(whole, "spmm_v_half8_discretized_float");
    assert!(fewer * 20 < more * 19, "{fewer}, {more}");
}

#[test]
fn spmm_has_no_atomics() {
    let gpu = open();
    // Rows that cross sub-warps, warps and CTAs.
    for launched in spmm(&gpu, &ring(6 * EDGES_PER_CTA, 768), 64, true) {
        assert_eq!(launched.report.counts.atomics(), 0, "{}", launched.kernel);
    }
}

/// Of a plain COO nothing is made: SpMM and SDDMM read its two lists, eight bytes an edge, and the sums have no atomics.
#[test]
fn of_a_coo_nothing_is_made() {
    let gpu = open();
    let graph = ring(3 * EDGES_PER_CTA, 96);
    let forward = graph.csr();
    let a = Adjacency::from_row_ids(&gpu, forward.shape(), forward.rows(), forward.cols());
    let a = a.expect("room for the graph");
    let (vertices, kind) = (graph.vertices(), MemoryKind::Features);
    let x = Matrix::<_, f16>::zeros(&gpu, vertices, 64, kind).expect("room");
    let mut y = Matrix::zeros(&gpu, vertices, 64, kind).expect("room");
    let mut e = Array::zeros(&gpu, edge_plane(graph.edges()), kind).expect("room");
    gpu.driver().take_launches();
    ops::spmm(&gpu, &a, &Spmm::default(), &x, &mut y).expect("a legal product");
    ops::sddmm(&gpu, &a, &Sddmm::default(), &x, &x, &mut e).expect("legal dot products");
    let launches = gpu.driver().take_launches();
    let kernels: Vec<&str> = launches
        .iter()
        .map(|launched| launched.kernel.as_str())
        .collect();
    assert_eq!(
        kernels,
        [
            "spmm_coo_v_half8",
            "spmm_coo_follow_up_half8",
            "sddmm_half8_tensor"
        ]
    );
    assert!(
        launches
            .iter()
            .all(|launched| launched.report.counts.atomics() == 0)
    );
    let graph_bytes = gpu.memory().current[MemoryKind::Graph as usize];
    assert_eq!(graph_bytes, graph.edges() as u64 * 8);
}

#[test]
fn an_spmm_is_two_launches_at_most() {
    let gpu = open();
    assert_eq!(spmm(&gpu, &ring(3 * EDGES_PER_CTA, 96), 32, false).len(), 2);
    // One CTA and no empty row leave nothing to complete.
    assert_eq!(spmm(&gpu, &ring(EDGES_PER_CTA, 8), 32, false).len(), 1);
}

/// A graph of Cora's size and degrees takes one launch, by itself: rows without edges, short rows and rows that a CTA shares
/// are all written there, without atomics, and no CTA waits that has no long row.
#[test]
fn a_small_graph_takes_one_launch() {
    // As many as an H100 has.
    let gpu = of_multiprocessors(132);
    let policy = SpmmPolicy::DEFAULT;
    let ring = ring(10_556, 4);
    let launches = spmm_by(&gpu, &ring, 64, false, policy);
    assert_eq!(launches.len(), 1);
    let counts = &launches[0].report.counts;
    assert_eq!((counts.atomics(), counts.block_barriers), (0, 0));
    // A column an edge and its row, once; and by each lane of a CTA one of its offsets.
    let edges = ring.edges() as u64;
    let lanes = ring.vertices().next_multiple_of(4) as u64 * 32;
    assert_eq!(counts.global_loads.bytes, edges * (4 + 64 * 2) + lanes * 4);

    let rows = [vec![0; 168], vec![9; 3]].concat();
    let columns: Vec<u32> = (0..rows.len() as u32).map(|edge| edge % 20).collect();
    let uneven = Graph::from_edges(20, &rows, &columns).expect("ids are in range");
    let launches = spmm_by(&gpu, &uneven, 64, true, policy);
    assert_eq!(launches.len(), 1);
    let counts = &launches[0].report.counts;
    assert_eq!(counts.atomics(), 0);
    // Once by each of the four warps of the one CTA that has a long row.
    assert_eq!(counts.block_barriers, 4);
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
    // A column an edge, and a word for 32 edges that says where rows start.
    let indices = edges * 4 + edges / 32 * 8;
    let rows = edges * 64 * 2;
    // Beside them, each sub-warp looks at the word after its own, at its row and at the one after that.
    let neighbours = edges / 32 * SECTOR * 3;
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

/// The one launch of an SDDMM of `features` halves under a policy.
fn sddmm(gpu: &Gpu<Emulated>, graph: &Graph, features: usize, policy: SddmmPolicy) -> Launched {
    let device = DeviceGraph::new(gpu, graph).expect("room for the graph");
    let (vertices, kind) = (graph.vertices(), MemoryKind::Features);
    let ones = vec![1.0; vertices * features];
    let u = Matrix::<_, f16>::from_f32(gpu, vertices, features, &ones, kind).expect("room");
    let v = Matrix::<_, f16>::from_f32(gpu, vertices, features, &ones, kind).expect("room");
    let mut e = Array::zeros(gpu, edge_plane(graph.edges()), kind).expect("room");
    let op = Sddmm {
        policy,
        ..Sddmm::default()
    };
    gpu.driver().take_launches();
    ops::sddmm(gpu, device.forward(), &op, &u, &v, &mut e).expect("a legal SDDMM");
    gpu.synchronize().expect("no failure");
    let mut launches = gpu.driver().take_launches();
    assert_eq!(launches.len(), 1);
    launches.remove(0)
}

/// HalfGNN §4.2: with half8 a dot product of 32 features takes two rounds of shuffles, with half2 four. A tree serves four
/// edges: 2 + 1 shuffles in the first two rounds, one in each after.
#[test]
fn half8_needs_two_rounds_of_shuffles_where_half2_needs_four() {
    let gpu = open();
    let graph = ring(8 * TILE_EDGES, 64);
    let shuffles = |load| {
        let policy = SddmmPolicy {
            reduction: Reduction::Shuffles,
            load,
            ..SddmmPolicy::default()
        };
        let launched = sddmm(&gpu, &graph, 32, policy);
        // Beside them, one with which a warp learns its number.
        let warps = u64::from(launched.config.grid[0] * launched.config.block[0] / 32);
        launched.report.counts.shuffles() - warps
    };
    let edges = graph.edges() as u64;
    // Four lanes an edge: a warp has 32 edges at once, four a sub-warp. Sixteen lanes: eight edges.
    assert_eq!(shuffles(HalfLoad::Half8), edges / 32 * (2 + 1));
    assert_eq!(shuffles(HalfLoad::Half2), edges / 8 * (2 + 1 + 1 + 1));
}

/// On tensor cores no shuffle is left where four lanes have a row, and one an edge where eight have.
#[test]
fn tensor_cores_spare_the_shuffles() {
    let gpu = open();
    let graph = ring(8 * TILE_EDGES, 64);
    for (features, per_step) in [(32, 0), (64, 4)] {
        let launched = sddmm(&gpu, &graph, features, SddmmPolicy::default());
        let warps = u64::from(launched.config.grid[0] * launched.config.block[0] / 32);
        let steps = graph.edges() as u64 * features as u64 / (32 * 32);
        let counts = &launched.report.counts;
        assert_eq!(
            counts.shuffles() - warps,
            steps * per_step,
            "F = {features}"
        );
    }
}

/// Each index is read once, the features of each edge's column once, and those of a row once by each sub-warp for all its
/// edges in a tile; results are written in whole sectors; and no warp waits for another.
#[test]
fn an_sddmm_reads_what_it_needs_once() {
    let gpu = open();
    // As many vertices as a row has edges: its columns are all different.
    let graph = ring(TILE_EDGES * TILE_EDGES, TILE_EDGES);
    let (edges, features) = (graph.edges() as u64, 64);
    let launched = sddmm(&gpu, &graph, features, SddmmPolicy::default());
    let counts = &launched.report.counts;
    let row = features as u64 * 2;
    let (indices, columns) = (2 * edges * 4, edges * row);
    // Four sub-warps of eight lanes.
    let rows = edges / u64::from(TILE_EDGES) * 4 * row;
    assert_eq!(counts.global_loads.bytes, indices + columns + rows);
    assert_eq!(counts.global_stores.bytes, edges * 2);
    assert_eq!(counts.global_stores.sectors * SECTOR, edges * 2);
    assert_eq!((counts.atomics(), counts.block_barriers), (0, 0));
}

/// What a layer does element by element is done by the operators before or after it, and the optimiser takes all parameters
/// at once: a step of a GIN of five layers has no other launches than products, aggregations and normalisations.
#[test]
fn a_gin_step_has_few_launches() {
    let gpu = open();
    // Narrower than the features, so that every layer transforms first.
    let model = ModelConfig {
        hidden: 16,
        ..ModelConfig::gin(task::FEATURES, task::CLASSES)
    };
    assert_eq!(model.layers, 5);
    let objective = task::objective::<_, f16>(&gpu, model.norm());
    for (dropout, activations) in [(0.0, [0, 0]), (0.5, [5, 0])] {
        let model = ModelConfig {
            dropout,
            ..model.clone()
        };
        let config = TrainConfig {
            record: false,
            ..TrainConfig::new(f16::PRECISION)
        };
        let mut trainer = task::trainer(&gpu, &objective, model, config);
        trainer.step().expect("a step");
        gpu.driver().take_launches();
        trainer.step().expect("a step");
        gpu.synchronize().expect("no failure");
        let launches = gpu.driver().take_launches();
        let of = |name: &str| {
            let named = |launched: &&Launched| launched.kernel.starts_with(name);
            launches.iter().filter(named).count()
        };
        let activations_found = [of("activate_f16"), of("activate_backward")];
        assert_eq!(activations_found, activations, "dropout {dropout}");
        assert_eq!([of("combine"), of("column_sums")], [0, 0]);
        assert_eq!([of("check_finite"), of("adam"), of("end_step")], [1, 1, 1]);
        assert_eq!([of("cross_entropy"), of("reduce_loss")], [1, 1]);
        // Of each layer a product with each map forward, two gradients of maps, and those of their inputs but the first.
        assert_eq!(of("gemm_nn"), 2 * 5);
        assert_eq!(of("gemm_tn"), 2 * 5);
        assert_eq!(of("gemm_nt"), 2 * 5 - 1);
        assert_eq!(of("spmm"), of("spmm_follow_up") + 2 * 5);
        // The second map's two products normalise what they read.
        let normalized = ["gemm_nn_normalized", "gemm_tn_normalized", "normalize_f16"].map(of);
        assert_eq!(normalized, [5, 5, 0]);
        // Forward and backward sums, what is made of them, and backward a pass that uses that.
        let normalisations = of("moments") + of("finish") + of("normalize");
        assert_eq!(normalisations, (2 + 3) * 5);
        let known = ["gemm", "spmm", "moments", "finish", "normalize", "activate"];
        let rest: usize = known.into_iter().map(of).sum();
        assert_eq!(launches.len(), rest + 5, "nothing else is launched");
    }
}

/// A step of a GraphSAGE on a sampled batch copies no rows of destinations, and features are dropped where they are taken. A layer as wide as its input sums up first, so its ReLU is undone in the
/// sum of its gradients, and the last, which narrows, multiplies first.
#[test]
fn a_step_on_a_batch_copies_no_rows() {
    let gpu = open();
    let model = ModelConfig {
        hidden: 24,
        layers: 3,
        dropout: 0.5,
        ..ModelConfig::sage(task::FEATURES, task::CLASSES)
    };
    let objective = task::objective::<_, f16>(&gpu, model.norm());
    let policy: SamplingPolicy = "neighbor:3,2,2".parse().expect("a policy");
    let sampler = policy
        .sampler(&gpu, (&task::graph(), EdgesIn::Device), false)
        .expect("room");
    let loss = Loss::CrossEntropy {
        class_weights: None,
    };
    let batches = Batches::new(&objective, (&loss, model.norm()), sampler, 12, 0);
    let network = Network::new(&gpu, &model, 5).expect("a model");
    let config = TrainConfig {
        record: false,
        ..TrainConfig::new(f16::PRECISION)
    };
    let batches = batches.expect("batches");
    let mut trainer =
        Trainer::sampled(&gpu, batches, &objective, network, config).expect("a trainer");
    let mut stop = |_: &BatchReport| ControlFlow::Break(());
    trainer.next_epoch_with(&mut stop).expect("a step");
    gpu.driver().take_launches();
    trainer.next_epoch_with(&mut stop).expect("a step");
    let launches = gpu.driver().take_launches();
    let of = |name: &str| {
        let named = |launched: &&Launched| launched.kernel.starts_with(name);
        launches.iter().filter(named).count()
    };
    // Features, and the last layer: the products of the others drop what they write, and the sum of the second layer's gradients undoes the ReLU
    // that they go back through.
    assert_eq!([of("activate_f16"), of("activate_backward")], [1 + 1, 0]);
    assert_eq!(of("take_rows"), 0);
    // The two gradients of the inputs of two layers are added up where the second is made.
    assert_eq!(of("combine"), 0);
    // Where sums come first, both products forward are one launch.
    assert_eq!(of("gemm_nn_pair"), 2);
    assert_eq!(["gemm_nn", "gemm_tn", "gemm_nt"].map(of), [2 + 2, 6, 4]);
}

/// An evaluation of one bit looks at the input of a layer once where the layer multiplies bits and no magnitudes: there are no signs as
/// elements and no mean magnitudes but those of the last layer. The bits that a layer multiplies are those that it sums up, hidden layers
/// of a GCN give the next nothing but signs, and where no magnitudes are wanted features are not normalised into a matrix.
#[test]
fn an_evaluation_of_bits_reads_inputs_once() {
    let gpu = open();
    let gcn = ModelConfig::gcn(task::FEATURES, task::CLASSES);
    let sage = ModelConfig::sage(task::FEATURES, task::CLASSES);
    // Signs of inputs and weights; means of magnitudes, signs as elements, matrices that are normalised; sums of which signs are left.
    for (kind, layers, counts) in [(gcn, 3, [3, 1, 1, 0, 2]), (sage, 2, [5, 3, 3, 0, 0])] {
        let model = ModelConfig {
            layers,
            hidden: 16,
            dropout: 0.0,
            ..kind.of_bits(Binary::Bin)
        };
        let objective = task::objective::<_, f16>(&gpu, model.norm());
        let config = TrainConfig::new(f16::PRECISION);
        let name = model.convolution.name().to_owned();
        let mut trainer = task::trainer(&gpu, &objective, model, config);
        gpu.driver().take_launches();
        let inputs = objective.inputs(&gpu);
        let evaluated = trainer.model_mut().forward(inputs, Mode::Evaluate);
        evaluated.expect("an evaluation");
        let launches = gpu.driver().take_launches();
        let of = |name: &str| {
            let named = |launched: &&Launched| launched.kernel.starts_with(name);
            launches.iter().filter(named).count()
        };
        let found = [
            "binarize",
            "head_dots",
            "nonlinearity",
            "normalize",
            "bspmm_counted_1_sign",
        ];
        assert_eq!(found.map(of), counts, "{name}");
    }
}

/// On a graph of Cora's size what takes time is launches: an evaluation of bits that are made beforehand takes one for each product and
/// for each sum over neighbours.
#[test]
fn an_evaluation_of_bits_on_a_small_graph_is_a_launch_an_operator() {
    let gpu = of_multiprocessors(132);
    let (vertices, features, classes) = (2_708, 200, 7);
    let graph = Graph::new(from_degrees(&vec![4; vertices], Random(5))).expect("a graph");
    let config = ModelConfig {
        hidden: 128,
        ..ModelConfig::gcn(features, classes).of_bits(Binary::Bin)
    };
    let mut model = Network::<_, f16>::new(&gpu, &config, 1).expect("a model");
    model.freeze(&gpu).expect("room for bits");
    let values = signs(vertices * features, 6);
    let x = Matrix::from_f32(&gpu, vertices, features, &values, MemoryKind::Features);
    let bits = model.signs_of_features(&gpu, &x.expect("room"));
    let bits = bits.expect("it reads signs");
    let graphs = [Propagation::new(&gpu, &graph, config.norm()).expect("room")];
    // The first one packs the weights.
    let launches = [(); 2].map(|()| {
        gpu.driver().take_launches();
        let evaluated = model.evaluate_signs(&gpu, &graphs, &bits);
        evaluated.expect("an evaluation");
        gpu.driver().take_launches()
    });
    let kernels: Vec<&str> = launches[1].iter().map(|it| it.kernel.as_str()).collect();
    let of_each = ["bmm_sign", "bspmm_vertex_sign", "bspmm_vertex_f16"];
    let (bits, last) = kernels.split_at(3);
    assert_eq!(bits, of_each);
    assert!(
        matches!(last, [only] if only.starts_with("gemm_nt_f16")),
        "{last:?}"
    );
}

/// Messages of 8 bits are made by the operator before: a GIN makes all its codes in products and normalisations, a GCN and a GAT those of
/// forward passes and of gradients of hidden layers in products. The gradient of the loss has a pass, which takes the factors of rows
/// along.
#[test]
fn codes_of_messages_are_made_where_rows_are() {
    let gpu = open();
    let hidden = 16;
    let gin = ModelConfig {
        hidden,
        ..ModelConfig::gin(task::FEATURES, task::CLASSES)
    };
    let gcn = ModelConfig {
        hidden,
        ..ModelConfig::gcn(task::FEATURES, task::CLASSES)
    };
    let gat = ModelConfig {
        hidden,
        ..ModelConfig::gat(task::FEATURES, task::CLASSES)
    };
    for (model, products, gradients, normalizations, passes) in
        [(gin, 5, 0, 5, 0), (gcn, 2, 1, 0, 1), (gat, 3, 2, 0, 1)]
    {
        let model = ModelConfig {
            messages: Some(CodeFormat::Int8),
            dropout: 0.0,
            ..model
        };
        let objective = task::objective::<_, f16>(&gpu, model.norm());
        let config = TrainConfig {
            record: false,
            ..TrainConfig::new(f16::PRECISION)
        };
        let name = model.convolution.to_string();
        let mut trainer = task::trainer(&gpu, &objective, model, config);
        // The first looks for its scales.
        trainer.step().expect("a step");
        gpu.driver().take_launches();
        trainer.step().expect("a step");
        gpu.synchronize().expect("no failure");
        let launches = gpu.driver().take_launches();
        let of = |name: &str| {
            let named = |launched: &&Launched| launched.kernel.starts_with(name);
            launches.iter().filter(named).count()
        };
        let makers = [
            "gemm_nn_f16_coded",
            "gemm_nt_f16_coded",
            "normalize_backward_coded",
            "quantize",
        ];
        let coded = makers.map(of);
        assert_eq!(
            coded,
            [products, gradients, normalizations, passes],
            "{name}"
        );
        // One each way of each layer.
        assert_eq!(of("update_scales"), coded.iter().sum::<usize>());
        // Gradients of ReLUs are made where those of their output are.
        assert_eq!(of("activate_backward"), 0, "{name}");
    }
}

/// A layer of attention gathers each edge's row once forward and once backward, where it has two sums of rows each way, and
/// passes over a matrix of rows no more often than it must.
#[test]
fn attention_gathers_a_row_once_each_way() {
    let gpu = open();
    let graph = ring(6 * EDGES_PER_CTA, EDGES_PER_WARP);
    let device = DeviceGraph::new(&gpu, &graph).expect("room for the graph");
    let (vertices, features, kind) = (graph.vertices(), 64, MemoryKind::Features);
    let matrix = |rows: usize| {
        let values: Vec<f32> = (0..rows * features).map(|k| (k % 5) as f32 - 2.0).collect();
        Matrix::<_, f16>::from_f32(&gpu, rows, features, &values, kind).expect("room")
    };
    let (h, vectors, dy) = (matrix(vertices), matrix(2), matrix(vertices));
    let [mut y, mut positive, mut lent, mut dh] = [(); 4].map(|()| matrix(vertices));
    let mut numbers = [(); 4].map(|()| Array::zeros(&gpu, vertices, kind).expect("room"));
    let mut d_vectors = Matrix::zeros(&gpu, 2, features, kind).expect("room");
    let mut attention = ops::Attention::new(&gpu, vertices, 1, 0.2).expect("room");
    gpu.driver().take_launches();
    let forward = ops::AttentionForward {
        codes: None,
        h: &h,
        vectors: &vectors,
        dropout: None,
        y: &mut y,
        positive: Some(&mut positive),
        biases: None,
        sums: None,
    };
    attention
        .forward(&gpu, device.forward(), forward)
        .expect("a legal forward pass");
    let backward = ops::AttentionBackward {
        codes: None,
        h: &h,
        vectors: &vectors,
        y: &y,
        positive: &positive,
        dy: &dy,
        dropout: None,
        lent: (&mut lent, numbers.each_mut()),
        dh: &mut dh,
        d_vectors: &mut d_vectors,
        biases: None,
    };
    attention
        .backward(&gpu, device.backward(), backward)
        .expect("a legal backward pass");
    let launches = gpu.driver().take_launches();
    let of = |beginning: &str| -> Vec<&Launched> {
        let named = |launched: &&Launched| launched.kernel.starts_with(beginning);
        launches.iter().filter(named).collect()
    };
    let names = |launches: &[&Launched]| -> Vec<String> {
        launches
            .iter()
            .map(|launch| launch.kernel.clone())
            .collect()
    };
    let mut walks = of("spmm_");
    walks.retain(|launched| !launched.kernel.starts_with("spmm_follow_up"));
    assert_eq!(names(&walks), ["spmm_at_half8_both", "spmm_ag_half8_both"]);
    let rows = (graph.edges() * features * 2) as u64;
    for walk in &walks {
        // Beside its row an edge costs its indices and a sector for each scattered number at most.
        let loaded = walk.report.counts.global_loads.sectors * SECTOR;
        assert!(
            rows <= loaded && loaded < 2 * rows,
            "{}: {loaded} bytes, {rows} of rows",
            walk.kernel
        );
    }
    let passes = of("head_");
    let expected = ["head_scores_f16", "head_dots_f16", "head_dots_sums_f16"];
    assert_eq!(names(&passes), expected);
    // The gradient, the output and the sum of positive edges, and for each warp's four rows a sector of shares.
    let read = (vertices * 3 * features * 2) as u64 + vertices as u64 / 4 * SECTOR;
    assert_eq!(passes[1].report.counts.global_loads.sectors * SECTOR, read);
}

/// A product of bits writes whole sectors, in as few of them as it has bytes.
#[test]
fn products_of_bits_are_written_in_whole_sectors() {
    fn check<E: Element>(gpu: &Gpu<Emulated>, inner: usize) {
        let (rows, columns, kind) = (4_000, 64, MemoryKind::Features);
        let bits = |rows, random| {
            let values = signs(rows * inner, random);
            BitMatrix::from_signs(gpu, (rows, inner), &values, kind).expect("signs")
        };
        let (a, b) = (bits(rows, 1), bits(columns, 2));
        let mut y = Matrix::<_, E>::zeros(gpu, rows, columns, kind).expect("room");
        gpu.driver().take_launches();
        ops::bmm(gpu, &a, &b, &Bmm::default(), &mut y).expect("legal");
        let [launch] = &gpu.driver().take_launches()[..] else {
            panic!("a product is a launch");
        };
        let written = launch.report.counts.global_stores.sectors * SECTOR;
        assert_eq!(written, (rows * columns * size_of::<E>()) as u64);
    }
    let gpu = open();
    for inner in [100, 200] {
        check::<f16>(&gpu, inner);
        check::<f32>(&gpu, inner);
    }
}

/// A hop of a batch that lies in the same memory each time is drawn by five launches where its scans are of one CTA: the draw marks what
/// it meets and tells where rows begin.
#[test]
fn a_hop_in_place_is_five_launches() {
    let gpu = open();
    let graph = ring(4_000, 20);
    let fanouts = [5, 3].map(|count| Fanout::of(count).expect("a fanout"));
    let sampler = NeighborSampler::new(&gpu, graph.csr(), fanouts.to_vec()).expect("room");
    let room = |edges, met| LayerSizes {
        destinations: 0,
        edges,
        met,
    };
    let room = [room(50, 50), room(180, 150)];
    let fixed = sampler
        .fixed(&gpu, (10, 7), (&room, LayerSources::Met))
        .expect("room");
    let (mut fixed, mut blocks) = fixed.expect("of neighbours");
    let seeds: Vec<u32> = (0..10).map(|seed| seed * 17).collect();
    fixed.begin(&gpu, &seeds, 3).expect("legal seeds");
    gpu.driver().take_launches();
    fixed.draw(&gpu, blocks.iter_mut()).expect("a draw");
    let launches = gpu.driver().take_launches();
    let kernels: Vec<&str> = launches
        .iter()
        .map(|launched| launched.kernel.as_str())
        .collect();
    let hop = [
        "scan_neighbors",
        "sample_neighbors",
        "scan_starts",
        "place_marked",
        "relabel",
    ];
    assert_eq!(kernels, [hop, hop].concat());
    assert!(fixed.fits(&gpu).expect("two sizes a layer"));
}
