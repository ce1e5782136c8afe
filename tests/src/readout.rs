//! Models that tell whole graphs: PyG's numbers, batches, what does not fit.

use crate::Scale;
use halfgnn::backend::Backend;
use halfgnn::data::{Dataset, Features, GraphIndex, Splits, UploadFeatures};
use halfgnn::graph::Graph;
use halfgnn::nn::{
    EdgeData, Gcn, Gin, HiddenNorm, Jumping, Mode, Model, ModelConfig, Network, Readout,
};
use halfgnn::tensor::Precision;
use halfgnn::train::{
    Batches, Goal, GraphBatches, Loss, Objective, Tensor, Tensors, TrainConfig, Trainer,
    load_weights,
};

const FEATURES: usize = 3;

/// A triangle, a path of four and a star of five, of the classes 0, 1 and 0.
fn dataset() -> Dataset {
    let pairs = [
        [0, 1],
        [1, 2],
        [2, 0],
        [3, 4],
        [4, 5],
        [5, 6],
        [7, 8],
        [7, 9],
        [7, 10],
        [7, 11],
    ];
    let both = pairs.iter().flat_map(|&[a, b]| [(a, b), (b, a)]);
    let (rows, columns): (Vec<u32>, Vec<u32>) = both.unzip();
    let graph = Graph::from_edges(12, &rows, &columns).expect("a legal graph");
    let values = (0..12 * FEATURES).map(|at| (0.7 * at as f64).cos() as f32);
    let splits = Splits {
        train: vec![0, 1, 2],
        ..Splits::default()
    };
    Dataset::of_graphs(
        "three",
        graph,
        GraphIndex::new(vec![0, 3, 7, 12]).expect("three graphs"),
        Features::dense(FEATURES, values.collect()).expect("a matrix"),
        vec![0, 1, 0],
        splits,
    )
    .expect("parts that fit")
}

/// What PyG says of a model.
struct Expected {
    model: ModelConfig,
    readout: Readout,
    logits: [f32; 6],
    loss: f32,
    gradient: [f32; 24],
}

fn models() -> [Expected; 8] {
    let of = |model: ModelConfig| ModelConfig {
        hidden: 8,
        layers: 2,
        dropout: 0.0,
        ..model
    };
    let gcn = |readout| of(ModelConfig::of_graphs(Gcn::default(), readout, FEATURES, 2));
    let gin = |readout| of(ModelConfig::of_graphs(Gin::default(), readout, FEATURES, 2));
    let jump = |model: ModelConfig, jumping| ModelConfig {
        jumping: Some(jumping),
        ..model
    };
    // PyG 2.8.1 in double: `GCNConv` twice, or `GINConv(Sequential(Linear(bias=False), BatchNorm1d, ReLU, Linear))` twice, a ReLU
    // between them; `global_add_pool` or `global_mean_pool`; `Linear`, ReLU, `Linear`. The n-th parameter, from 1, has
    // 0.4 sin(0.37 i + n) at i, inputs × outputs. Logits in evaluation; the mean cross-entropy, and its gradient at the first weight,
    // in training.
    [
        Expected {
            model: gcn(Readout::Sum),
            readout: Readout::Sum,
            logits: [
                0.2710126, 0.1320558, 0.3467651, 0.1918108, 0.4261322, 0.2533283,
            ],
            loss: 0.6700588,
            gradient: [
                -0.0045566, 0.0061902, -0.0061927, 0.0011236, 0.0, 0.0, 0.0, 0.0, -0.0039586,
                0.0053778, -0.0041034, 0.0025997, 0.0, 0.0, 0.0, 0.0, -0.0014988, 0.0020362,
                -8.42e-05, 0.0028531, 0.0, 0.0, 0.0, 0.0,
            ],
        },
        Expected {
            model: gcn(Readout::Mean),
            readout: Readout::Mean,
            logits: [
                0.1398519, 0.0364665, 0.1404354, 0.0368166, 0.1412828, 0.0370751,
            ],
            loss: 0.6771627,
            gradient: [
                -0.0012708, 0.0017455, -0.0017856, 0.0004057, 0.0, 0.0, 0.0, 0.0, -0.0010913,
                0.0014989, -0.0011923, 0.0008177, 0.0, 0.0, 0.0, 0.0, -0.0003986, 0.0005474,
                -3.83e-05, 0.0008452, 0.0, 0.0, 0.0, 0.0,
            ],
        },
        Expected {
            model: gin(Readout::Sum),
            readout: Readout::Sum,
            logits: [
                0.1270228, 0.064299, 0.1605444, 0.0905585, 0.1947173, 0.1172381,
            ],
            loss: 0.6825394,
            gradient: [
                -0.0040334, 0.0051059, 0.000716, 0.0, 0.0, -0.0024447, 0.0207356, 0.0038971,
                0.0055049, -0.0018759, -9.4e-06, 0.0, 0.0, -0.0016614, 0.0227561, 0.0102859,
                0.0124542, -0.0079755, -0.0007305, 0.0, 0.0, -9.67e-05, 0.014074, 0.0118371,
            ],
        },
        Expected {
            model: gin(Readout::Mean),
            readout: Readout::Mean,
            logits: [
                0.0779422, 0.0314108, 0.0778883, 0.0313724, 0.0779337, 0.0313763,
            ],
            loss: 0.6857497,
            gradient: [
                -0.0010866, 0.0013667, 0.0001826, 0.0, 0.0, -0.0003676, 0.0043616, 0.0011839,
                0.0014848, -0.0005026, -2.4e-06, 0.0, 0.0, -0.0002498, 0.0047799, 0.0031246,
                0.0033578, -0.0021356, -0.0001862, 0.0, 0.0, -1.45e-05, 0.0029502, 0.0035958,
            ],
        },
        // Likewise `global_max_pool`, and with a ReLU behind both convolutions `torch.cat`, of the features as well, or the maximum of
        // `torch.stack`.
        Expected {
            model: gcn(Readout::Max),
            readout: Readout::Max,
            logits: [
                0.1398519, 0.0364665, 0.1394368, 0.0355375, 0.1398682, 0.0350794,
            ],
            loss: 0.6771201,
            gradient: [
                -0.0015517, 0.0021805, -0.0016134, 0.0006434, 0.0, 0.0, 0.0, 0.0, -0.0021486,
                0.0030214, -0.001813, 0.0012995, 0.0, 0.0, 0.0, 0.0, -0.001735, 0.0024413,
                -0.00116, 0.0013444, 0.0, 0.0, 0.0, 0.0,
            ],
        },
        Expected {
            model: jump(gcn(Readout::Mean), Jumping::Cat),
            readout: Readout::Mean,
            logits: [
                -0.0184444, -0.237563, -0.0215237, -0.2401569, -0.0073995, -0.2333857,
            ],
            loss: 0.6615096,
            gradient: [
                -0.015997, 0.0167979, -0.0141824, 0.003479, 0.0, 0.0, 0.0, 0.0, -0.0139454,
                0.0146421, -0.0098081, 0.0064391, 0.0, 0.0, 0.0, 0.0, -0.005335, 0.0056,
                -0.0008209, 0.0063708, 0.0, 0.0, 0.0, 0.0,
            ],
        },
        Expected {
            model: jump(gcn(Readout::Max), Jumping::All),
            readout: Readout::Max,
            logits: [
                -0.2356999, -0.323573, -0.2401635, -0.3301293, -0.2110707, -0.2951557,
            ],
            loss: 0.6804351,
            gradient: [
                -0.0034543, 0.0050296, -0.0049337, 0.0054172, 0.0, 0.0, 0.0, 0.0, -0.0138388,
                0.0157662, -0.0145203, 0.0148608, 0.0, 0.0, 0.0, 0.0, -0.0177146, 0.0190876,
                -0.0172778, 0.0173151, 0.0, 0.0, 0.0, 0.0,
            ],
        },
        Expected {
            model: jump(gcn(Readout::Sum), Jumping::Max),
            readout: Readout::Sum,
            logits: [
                -0.1763802, -0.2151629, -0.2701683, -0.2961965, -0.2938598, -0.3273904,
            ],
            loss: 0.6855708,
            gradient: [
                -0.0427774, 0.0504105, -0.0438266, 0.0047381, 0.0, 0.0, 0.0, 0.0, -0.0391033,
                0.0460691, -0.029378, 0.0161958, 0.0, 0.0, 0.0, 0.0, -0.0170382, 0.0200607,
                -0.0011124, 0.0200363, 0.0, 0.0, 0.0, 0.0,
            ],
        },
    ]
}

/// A model with the parameters that [`models`] speaks of.
fn network<B: Backend>(backend: &B, config: &ModelConfig) -> Network<B, f32> {
    let mut model = Network::<B, f32>::new(backend, config, 0).expect("a model");
    let mut tensors = Tensors::new();
    for (number, parameter) in model.parameters().iter().enumerate() {
        let (rows, columns) = parameter.shape();
        let value = |at: usize| 0.4 * (0.37 * at as f64 + (number + 1) as f64).sin();
        let values = (0..rows * columns).map(|at| value(at) as f32).collect();
        let tensor = Tensor {
            rows,
            columns,
            values,
        };
        tensors.insert(parameter.name().to_owned(), tensor);
    }
    for (name, matrix) in model.buffers() {
        let (rows, columns) = matrix.shape();
        let values = matrix.to_f32(backend).expect("the buffer");
        let tensor = Tensor {
            rows,
            columns,
            values,
        };
        tensors.insert(name, tensor);
    }
    load_weights(backend, &mut model, &tensors).expect("its own shapes");
    model
}

fn objective<B: Backend>(
    backend: &B,
    data: &Dataset,
    config: &ModelConfig,
    readout: Readout,
) -> Objective<B, f32> {
    let prepared = config
        .prepare_edges(&data.graph, EdgeData::default())
        .expect("the graph");
    let graphs = data.graphs.as_ref().expect("many graphs");
    let inputs = vec![
        prepared
            .propagation::<B, f32>(backend, config)
            .expect("memory"),
        readout.propagation(backend, graphs).expect("memory"),
    ];
    let features = data.upload_features(backend).expect("memory");
    let loss = Loss::of(&data.targets);
    let goal = goal(data, &loss);
    Objective::of(backend, inputs, features, &goal).expect("parts that fit")
}

fn goal<'a>(data: &'a Dataset, loss: &'a Loss) -> Goal<'a> {
    Goal {
        targets: &data.targets,
        outputs: 2,
        loss,
        splits: [&data.train, &data.val, &data.test],
    }
}

fn close(found: &[f32], expected: &[f32], bound: f32) {
    assert_eq!(found.len(), expected.len());
    for (at, (found, expected)) in found.iter().zip(expected).enumerate() {
        let error = (found - expected).abs();
        assert!(error <= bound, "{found} for {expected} at {at}");
    }
}

fn train() -> TrainConfig {
    TrainConfig::new(Precision::Float)
}

/// Logits, losses and gradients are PyG's to 1e-5.
pub fn pygs_numbers<B: Backend>(backend: &B, _scale: Scale) {
    let data = dataset();
    for expected in models() {
        let objective = objective(backend, &data, &expected.model, expected.readout);
        let mut model = network(backend, &expected.model);
        model
            .forward(objective.inputs(backend), Mode::Evaluate)
            .expect("a forward pass");
        close(
            &model.logits().to_f32(backend).expect("logits"),
            &expected.logits,
            1e-5,
        );
        let mut trainer = Trainer::new(backend, &objective, model, train()).expect("a trainer");
        trainer.gradients().expect("a backward pass");
        close(&[trainer.loss().expect("the loss")], &[expected.loss], 1e-5);
        let first = trainer.model().parameters()[0].gradient().to_f32(backend);
        close(&first.expect("the gradient"), &expected.gradient, 1e-5);
    }
}

/// Logits, the loss, the gradient at the first weight and those of the norm's parameters.
type OfNorm = (
    HiddenNorm,
    [f32; 6],
    f32,
    [f32; 24],
    Vec<(&'static str, [f32; 8])>,
);

/// PyG 2.8.1 in double, the first model of [`models`] with `BatchNorm(8)`, `LayerNorm(8, mode="node")`, `PairNorm()` or `GraphNorm(8)`
/// before its ReLU, the last three with `batch`. Parameters of the norm follow those of the convolution.
fn norms() -> Vec<OfNorm> {
    vec![
        (
            HiddenNorm::Batch,
            [
                -0.2350384, -0.4462649, -0.2188436, -0.4270713, -0.2022013, -0.4071203,
            ],
            0.6648656,
            [
                0.0, 0.0, -0.0009467, 0.000761, 0.0006391, -0.0061546, 0.0086324, -0.0014789, 0.0,
                0.0, 0.0000245, 0.000146, 0.00031, -0.0042057, 0.0095238, -0.0037349, 0.0, 0.0,
                0.0009842, -0.0005377, -0.0001649, -0.0002788, 0.005936, -0.0042343,
            ],
            vec![
                (
                    "weight",
                    [
                        0.0, 0.0, -0.0042536, 0.0042876, -0.0040349, 0.0025151, -0.0007727,
                        -0.002037,
                    ],
                ),
                (
                    "bias",
                    [
                        0.0, 0.0, 0.0015867, -0.0015373, 0.0014373, -0.0008158, 0.0006958,
                        0.0011523,
                    ],
                ),
            ],
        ),
        (
            HiddenNorm::Layer,
            [
                -0.2394473, -0.4529914, -0.2244461, -0.4356573, -0.209864, -0.4186709,
            ],
            0.6635224,
            [
                -0.0000719, 0.000041, 0.000194, 0.0003664, 0.000535, -0.0041769, 0.0044252,
                -0.0013128, -0.0000705, 0.0000342, 0.0001714, 0.0003227, 0.0004675, -0.0035921,
                0.0038071, -0.0011402, -0.0000359, 0.0000113, 0.0000682, 0.0001271, 0.0001801,
                -0.0013178, 0.0013984, -0.0004314,
            ],
            vec![
                (
                    "weight",
                    [0.0, 0.0, 0.0, 0.0, 0.0, 0.0038641, -0.0042027, 0.0034376],
                ),
                (
                    "bias",
                    [0.0, 0.0, 0.0, 0.0, 0.0, -0.0044547, 0.0037997, -0.0030197],
                ),
            ],
        ),
        (
            HiddenNorm::Pair,
            [
                0.2999106, 0.1506494, 0.3903163, 0.2208253, 0.4769302, 0.2881448,
            ],
            0.6686603,
            [
                0.0041247, -0.005276, -0.0011426, 0.0015283, -0.0015698, 0.0198469, -0.0023748,
                0.0091125, -0.00178, 0.0025633, -0.0004425, 0.0005583, -0.0006229, 0.010516,
                0.0026325, 0.0149131, -0.0068475, 0.0091971, 0.0004657, -0.0006743, 0.000617,
                -0.0037607, 0.0064017, 0.0136998,
            ],
            vec![],
        ),
        (
            HiddenNorm::Graph,
            [
                -0.6033258, -0.6108269, -0.665066, -0.6744983, -0.7780731, -0.7841651,
            ],
            0.6924613,
            [
                0.0, 0.0, 0.0, -0.0006821, -0.0002761, 0.0002654, -0.0004079, 0.0004439, 0.0, 0.0,
                0.0, -0.0001942, 0.0014141, -0.0008415, 0.0003491, 0.0000037, 0.0, 0.0, 0.0,
                0.0003851, 0.0024392, -0.0015526, 0.0009419, -0.0004383,
            ],
            vec![
                (
                    "weight",
                    [
                        0.0, 0.0, 0.0, -0.003595, 0.0091738, -0.0098516, 0.0097756, -0.0092889,
                    ],
                ),
                (
                    "bias",
                    [
                        0.0, 0.0, 0.0, 0.0016243, -0.009837, 0.0101997, -0.009981, 0.0094341,
                    ],
                ),
                (
                    "mean_scale",
                    [
                        0.0, 0.0, 0.0, 0.0000285, 0.0004707, -0.0002631, 0.0001542, -0.0000966,
                    ],
                ),
            ],
        ),
    ]
}

/// With a norm between layers, which takes statistics of each graph where it is one of graphs, they are PyG's to 1e-5 as well.
pub fn pygs_norms<B: Backend>(backend: &B, _scale: Scale) {
    let data = dataset();
    for (norm, logits, loss, gradient, of_norm) in norms() {
        let [expected, ..] = models();
        let config = ModelConfig {
            hidden_norm: norm,
            ..expected.model
        };
        let objective = objective(backend, &data, &config, expected.readout);
        let mut model = network(backend, &config);
        model
            .forward(objective.inputs(backend), Mode::Evaluate)
            .expect("a forward pass");
        let found = model.logits().to_f32(backend).expect("logits");
        close(&found, &logits, 1e-5);
        let mut trainer = Trainer::new(backend, &objective, model, train()).expect("a trainer");
        trainer.gradients().expect("a backward pass");
        close(&[trainer.loss().expect("the loss")], &[loss], 1e-5);
        let of = |name: &str| {
            let all = trainer.model().parameters();
            let mut named = all.iter().filter(|it| it.name() == name);
            let parameter = named.next().expect("the model has it");
            parameter.gradient().to_f32(backend).expect("a gradient")
        };
        close(&of("layers.0.weight"), &gradient, 1e-5);
        for (name, expected) in of_norm {
            close(
                &of(&format!("layers.0.hidden_norm.{name}")),
                &expected,
                1e-5,
            );
        }
    }
}

/// A batch of all graphs, in another order, is the whole; and one of some are those.
pub fn batches_are_graphs<B: Backend>(backend: &B, _scale: Scale) {
    let data = dataset();
    let graphs = data.graphs.as_ref().expect("many graphs");
    let loss = Loss::of(&data.targets);
    for Expected {
        model: config,
        readout,
        ..
    } in models()
    {
        let whole = objective(backend, &data, &config, readout);
        let prepared = config
            .prepare_edges(&data.graph, EdgeData::default())
            .expect("the graph");
        let batches = |size| {
            let graphs = GraphBatches::new(&prepared, graphs, &config).expect("graphs");
            Batches::of_graphs(&whole, &loss, graphs, size, 7).expect("batches")
        };
        let trainer = || {
            let model = network(backend, &config);
            Trainer::new(backend, &whole, model, train()).expect("a trainer")
        };
        let gradients = |trainer: &Trainer<B, f32, Network<B, f32>>| -> Vec<f32> {
            let parameters = trainer.model().parameters().into_iter();
            parameters
                .flat_map(|it| it.gradient().to_f32(backend).expect("a gradient"))
                .collect()
        };
        let mut alone = trainer();
        alone.step().expect("a step");
        let mut of_batch = trainer();
        let (batch, count) = batches(3).batch(backend, 0, 0).expect("a batch");
        assert_eq!((count, batch.vertices()), (3, 3));
        of_batch.step_on(&batch).expect("a step");
        close(&gradients(&of_batch), &gradients(&alone), 2e-6);
        let mut some = batches(2);
        assert_eq!(some.count(), 2);
        let sizes = [0, 1].map(|number| some.batch(backend, 0, number).expect("a batch").1);
        assert_eq!(sizes, [2, 1]);
        let mut sampled = Trainer::sampled(
            backend,
            batches(2),
            &whole,
            network(backend, &config),
            TrainConfig {
                epochs: 3,
                ..train()
            },
        )
        .expect("a trainer");
        let report = sampled
            .next_epoch()
            .expect("an epoch")
            .expect("one of three");
        assert!(report.loss.is_finite());
        assert_eq!(report.optimizer.steps, 2);
    }
}

/// What does not fit is said in one line.
pub fn misfits_are_refused<B: Backend>(backend: &B, _scale: Scale) {
    let data = dataset();
    let graphs = data.graphs.as_ref().expect("many graphs");
    let [
        Expected {
            model: config,
            readout,
            ..
        },
        ..,
    ] = models();
    let prepared = config
        .prepare_edges(&data.graph, EdgeData::default())
        .expect("the graph");
    let of_vertices = ModelConfig::gcn(FEATURES, 2);
    let refused = GraphBatches::new(&prepared, graphs, &of_vertices).expect_err("no readout");
    assert!(
        refused
            .to_string()
            .contains("it predicts vertices and not graphs"),
        "{refused}"
    );
    let fewer = GraphIndex::new(vec![0, 3, 7]).expect("two graphs");
    let refused = GraphBatches::new(&prepared, &fewer, &config).expect_err("other graphs");
    assert!(
        refused.to_string().contains("vertices of the graphs"),
        "{refused}"
    );
    let whole = objective(backend, &data, &config, readout);
    let graph = prepared
        .propagation::<B, f32>(backend, &config)
        .expect("memory");
    let features = data.upload_features::<B, f32>(backend).expect("memory");
    let inputs = halfgnn::nn::Inputs {
        backend,
        graphs: &[graph],
        features: &features,
        of_types: &[],
        dropped: false,
    };
    let mut model = network(backend, &config);
    let refused = model
        .forward(inputs, Mode::Evaluate)
        .expect_err("one graph");
    let way = "give one for each, or one for all layers and one for the readout";
    assert!(refused.to_string().contains(way), "{refused}");
    let loss = Loss::of(&data.targets);
    let batches = GraphBatches::new(&prepared, graphs, &config).expect("graphs");
    assert!(Batches::of_graphs(&whole, &loss, batches, 0, 0).is_err());
}
