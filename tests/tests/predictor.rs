//! A trained model, opened once and asked by several threads: its answers are the trainer's, and what it does not read
//! is refused in a line.

use half::{bf16, f16};
use halfgnn::backend::cpu::Cpu;
use halfgnn::backend::{Backend, MemoryKind};
use halfgnn::data::{
    Dataset, EdgeType, Features, GraphIndex, LabelSets, Splits, Targets, Types, Values, VertexType,
};
use halfgnn::device::{self, Choice, Device, Task};
use halfgnn::graph::{Csr, Graph};
use halfgnn::nn::{
    ConvolutionConfig, Gat, Inputs, LinkDecoder, Mode, Model, ModelConfig, ModelTypes, Network,
    Propagation, Readout, Rgcn,
};
use halfgnn::ops::OptimizerSnapshot;
use halfgnn::predict::{Kind, NewGraph, PredictError, Predictor, sigmoid};
use halfgnn::tensor::{Element, Matrix, Precision};
use halfgnn::train::checkpoint::TaskIdentity;
use halfgnn::train::{
    Checkpoint, HeldOut, Loss, Objective, Progress, Snapshot, Tensor, TrainConfig, Trainer,
};
use halfgnn_tests::task::{self, CLASSES, FEATURES, VERTICES};
use rayon::prelude::*;
use std::ops::ControlFlow;

/// The dataset of [`task`].
fn dataset() -> Dataset {
    let [train, val, test] = task::splits();
    let splits = Splits { train, val, test };
    let features = Features::dense(FEATURES, task::features()).expect("rows");
    Dataset::new("task", task::graph(), features, task::labels(), splits).expect("a dataset")
}

/// The same with weights of edges.
fn weighted() -> Dataset {
    let mut dataset = dataset();
    dataset.edge_weights = Some(task::edge_weights());
    dataset
}

/// The features of a dataset from another order of its edges, each given by its ends, weights along.
fn turned(dataset: &Dataset) -> NewGraph<'static> {
    let graph = &dataset.graph;
    let rows = graph.rows().to_vec();
    let edges: Vec<[u32; 2]> = graph
        .cols()
        .iter()
        .zip(rows)
        .map(|(&from, to)| [from, to])
        .collect();
    // Backwards.
    let edges: Vec<[u32; 2]> = edges.into_iter().rev().collect();
    let new = NewGraph::from_edges(dataset.features.clone(), &edges).expect("ids are in range");
    match &dataset.edge_weights {
        None => new,
        Some(weights) => {
            let weights = weights.iter().rev().copied().collect();
            new.with_edge_weights(weights).expect("a weight an edge")
        }
    }
}

/// A checkpoint of a model of which a trainer, or a fresh network, has the snapshot.
fn checkpoint(
    data: &Dataset,
    model: &ModelConfig,
    precision: Precision,
    snapshot: Snapshot,
) -> Checkpoint {
    Checkpoint {
        task: TaskIdentity::of(data),
        model: model.clone(),
        precision,
        train: TrainConfig::new(precision),
        feature_divisors: None,
        loss: Loss::of(&data.targets),
        inductive: false,
        links: None,
        sampling: None,
        snapshot,
    }
}

/// A few epochs, and what the trainer's model gives in an evaluation.
fn trained<E: Element>(data: &Dataset, model: &ModelConfig) -> (Checkpoint, Vec<f32>) {
    let backend = &Cpu::new();
    let weights = data.edge_weights.as_deref();
    let (graph, weights) = model
        .prepare_weighted(&data.graph, weights)
        .expect("a graph");
    let graph = Propagation::of_graph::<E>(backend, &graph, weights.as_deref(), model.norm());
    let graphs = model.inputs(backend, Some(graph.expect("memory")), data.graphs.as_ref());
    let loss = Loss::of(&data.targets);
    let goal = halfgnn::train::Goal {
        targets: &data.targets,
        outputs: data.outputs,
        loss: &loss,
        splits: [&data.train, &data.val, &data.test],
    };
    let shape = (data.features.vertices(), data.feature_len());
    let features =
        Matrix::<_, E>::from_rows(backend, shape, MemoryKind::Features, |vertex, row| {
            data.features.write_row(vertex, row);
        });
    let graphs = graphs.expect("as many graphs as the model reads");
    let objective = Objective::of(backend, graphs, features.expect("memory"), &goal);
    let train = TrainConfig {
        epochs: 4,
        keep_best: false,
        ..TrainConfig::new(E::PRECISION)
    };
    let network = Network::<_, E>::new(backend, model, 3).expect("a model");
    let objective = objective.expect("a task");
    let mut trainer = Trainer::new(backend, &objective, network, train).expect("a trainer");
    trainer.run(|_| ControlFlow::Continue(())).expect("epochs");
    trainer.evaluate().expect("an evaluation");
    let logits = trainer.model().logits().to_f32(backend).expect("logits");
    let snapshot = trainer.snapshot().expect("a snapshot");
    (checkpoint(data, model, E::PRECISION, snapshot), logits)
}

/// The weights of a network as they are at first.
fn untrained<E: Element>(network: &Network<Cpu, E>) -> Snapshot {
    let backend = &Cpu::new();
    let parameters = network.parameters();
    let named = parameters
        .iter()
        .map(|of| (of.name().to_owned(), of.master()));
    let tensor = |matrix: &Matrix<Cpu, f32>| Tensor {
        rows: matrix.rows(),
        columns: matrix.columns(),
        values: matrix.to_f32(backend).expect("numbers"),
    };
    let tensors = named.chain(network.buffers());
    Snapshot {
        progress: Progress::default(),
        optimizer: OptimizerSnapshot {
            loss_scale: 1.0,
            steps: 0,
            skipped: 0,
            since_change: 0,
        },
        tensors: tensors
            .map(|(name, matrix)| (name, tensor(matrix)))
            .collect(),
    }
}

fn opened(checkpoint: &Checkpoint) -> Predictor {
    Predictor::new(checkpoint.clone(), Choice::Cpu).expect("a model")
}

#[track_caller]
fn refused<T: std::fmt::Debug>(found: Result<T, PredictError>, words: &[&str]) {
    let error = found.expect_err("it is refused");
    let text = error.to_string();
    assert!(matches!(error, PredictError::Input(_)), "{error:?}");
    assert!(!text.contains('\n'), "{text}");
    words
        .iter()
        .for_each(|word| assert!(text.contains(word), "{word:?} is not in: {text}"));
}

/// Predictions are those of the trainer's evaluation, to the bit: of all vertices, of some, and of a graph that is given
/// anew.
fn assert_trainers<E: Element>(data: &Dataset, model: &ModelConfig) {
    let (checkpoint, logits) = trained::<E>(data, model);
    let name = format!("{} in {}", model.convolution.name(), E::PRECISION);
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("model.safetensors");
    checkpoint.save(&file).expect("it is written");
    let predictor = Predictor::open(&file, Choice::Cpu).expect("it is read");
    let anew = predictor.predict_graph(&turned(data)).expect("a graph");
    assert_eq!(anew.logits(), logits, "{name}");
    let predictor = predictor.with_dataset(data.clone()).expect("its dataset");
    assert_eq!(
        predictor.predict_all().expect("all").logits(),
        logits,
        "{name}"
    );
    let some = predictor.predict(&[5, 89, 5]).expect("vertices");
    let columns = predictor.outputs();
    let rows = [5, 89, 5].map(|vertex: usize| &logits[vertex * columns..][..columns]);
    assert_eq!(some.logits(), rows.concat(), "{name}");
    assert!(logits.iter().all(|logit| logit.is_finite()), "{name}");
}

#[test]
fn predictions_are_those_of_the_trainers_evaluation() {
    let data = dataset();
    assert_trainers::<f16>(&data, &ModelConfig::gcn(FEATURES, CLASSES));
    assert_trainers::<f32>(&data, &ModelConfig::of(Gat::default(), FEATURES, CLASSES));
    assert_trainers::<bf16>(&data, &ModelConfig::sage(FEATURES, CLASSES));
    // Batch norms, some of them of the evaluated graph.
    assert_trainers::<f16>(&data, &ModelConfig::gin(FEATURES, CLASSES));
    assert_trainers::<f16>(&weighted(), &ModelConfig::gcn(FEATURES, CLASSES));
}

/// A vertex's label, its set of labels and its values by the loss of the checkpoint.
#[test]
fn labels_and_values_are_read_by_the_loss() {
    let mut data = dataset();
    let truths = (0..VERTICES * 3).map(|at| Some(at % 2 == 0));
    data.targets = Targets::Labels(LabelSets::new(3, truths).expect("labels"));
    data.outputs = 3;
    let model = ModelConfig::gcn(FEATURES, 3);
    let (of_labels, logits) = trained::<f32>(&data, &model);
    let predictor = opened(&of_labels)
        .with_dataset(data.clone())
        .expect("its dataset");
    assert_eq!(predictor.kind(), Kind::Labels);
    let all = predictor.predict_all().expect("all");
    let expected: Vec<bool> = logits.iter().map(|&logit| logit > 0.0).collect();
    assert_eq!((all.labels(), all.classes()), (Some(expected), None));
    let expected: Vec<f32> = logits.iter().map(|&logit| sigmoid(logit)).collect();
    assert_eq!(all.probabilities(), Some(expected));

    let values = (0..VERTICES).map(|at| at as f32 / 9.0).collect();
    data.targets = Targets::Values(Values::new(1, values).expect("values"));
    data.outputs = 1;
    let (of_values, logits) = trained::<f32>(&data, &ModelConfig::gcn(FEATURES, 1));
    let predictor = opened(&of_values).with_dataset(data).expect("its dataset");
    let all = predictor.predict_all().expect("all");
    assert_eq!((all.kind(), all.len()), (Kind::Values, VERTICES));
    assert_eq!((all.probabilities(), all.logits()), (None, &logits[..]));
}

/// What the columns of the training features were divided by divides those of each graph.
#[test]
fn features_are_divided_as_those_of_the_training_were() {
    let mut data = dataset();
    let divisors: Vec<f32> = (0..FEATURES).map(|column| 1.0 + column as f32).collect();
    let raw = data.clone();
    data.scale_features(&divisors, halfgnn::data::Origin::Option);
    let (mut checkpoint, logits) = trained::<f32>(&data, &ModelConfig::gcn(FEATURES, CLASSES));
    checkpoint.feature_divisors = Some(divisors);
    let predictor = opened(&checkpoint);
    assert_eq!(
        predictor
            .predict_graph(&turned(&raw))
            .expect("a graph")
            .logits(),
        logits
    );
    let predictor = predictor.with_dataset(raw).expect("its dataset");
    assert_eq!(predictor.predict_all().expect("all").logits(), logits);
}

/// Graphs of 2 to 7 vertices, each a ring, with the class of its size.
fn rings() -> Dataset {
    let sizes: Vec<u32> = (0..24).map(|graph| 2 + graph % 6).collect();
    let mut starts = vec![0];
    let (mut rows, mut columns) = (Vec::new(), Vec::new());
    for &size in &sizes {
        let first = *starts.last().expect("one");
        for vertex in 0..size {
            let next = (vertex + 1) % size;
            rows.extend([first + vertex, first + next]);
            columns.extend([first + next, first + vertex]);
        }
        starts.push(first + size);
    }
    let vertices = *starts.last().expect("one") as usize;
    let graph = Graph::from_edges(vertices, &rows, &columns).expect("ids are in range");
    let value = |at: usize| ((at * 7) % 11) as f32 / 11.0;
    let features = Features::dense(4, (0..vertices * 4).map(value).collect()).expect("rows");
    let labels: Vec<u32> = sizes.iter().map(|size| size % 3).collect();
    let splits = Splits {
        train: (0..16).collect(),
        val: (16..20).collect(),
        test: (20..24).collect(),
    };
    let graphs = GraphIndex::new(starts).expect("starts");
    Dataset::of_graphs("rings", graph, graphs, features, labels, splits).expect("a dataset")
}

#[test]
fn whole_graphs_are_predicted_in_a_batch_and_alone() {
    let data = rings();
    let model = ModelConfig::of_graphs(ModelConfig::gin(4, 3).convolution, Readout::Mean, 4, 3);
    let (checkpoint, logits) = trained::<f32>(&data, &model);
    let predictor = opened(&checkpoint)
        .with_dataset(data.clone())
        .expect("its dataset");
    assert_eq!(predictor.rows(), Some(24));
    assert_eq!(predictor.predict_all().expect("all").logits(), logits);
    // Graph 3 has 5 vertices, from 9 on.
    let (graph, vertices) = data.graph.induced(&[9, 10, 11, 12, 13]).expect("a graph");
    assert_eq!((graph.edges(), vertices.len()), (10, 10));
    let rows = data.features.to_dense().expect("rows");
    let features = Features::dense(4, rows[9 * 4..14 * 4].to_vec()).expect("rows");
    let alone = NewGraph::new(graph, features).expect("a row a vertex");
    refused(
        predictor.predict_graph(&alone),
        &["the graph: it is one graph", "predicts whole graphs"],
    );
    let index = GraphIndex::new(vec![0, 5]).expect("a graph");
    let alone = predictor.predict_graph(&alone.with_graphs(index).expect("its vertices"));
    assert_eq!(alone.expect("a graph").logits(), &logits[3 * 3..4 * 3]);
    refused(
        predictor.predict(&[24]),
        &["graph 24 is not there", "rings has 24"],
    );
}

/// A model of links with the weights of a seed, and the scores that its network gives.
#[test]
fn pairs_are_scored_by_every_decoder() {
    let mut data = dataset();
    data.graph = data.graph.to_undirected().expect("a graph");
    let pairs = [[0, 1], [7, 3], [89, 0], [4, 4]];
    for decoder in LinkDecoder::ALL {
        let model = ModelConfig {
            decoder,
            ..ModelConfig::gcn(FEATURES, 8)
        };
        let backend = &Cpu::new();
        let mut network = Network::<_, f32>::new(backend, &model, 5).expect("a model");
        let mut checkpoint = checkpoint(&data, &model, Precision::Float, untrained(&network));
        let shares = [0.05, 0.1];
        checkpoint.links = Some(HeldOut { shares, seed: 0 });
        checkpoint.loss = Loss::BinaryCrossEntropy {
            positive_weights: None,
        };
        let graph = model.prepare(&data.graph).expect("a graph");
        let inputs = Inputs {
            backend,
            graphs: &[Propagation::new(backend, &graph, model.norm()).expect("memory")],
            features: &Matrix::from_f32(
                backend,
                VERTICES,
                FEATURES,
                &task::features(),
                MemoryKind::Features,
            )
            .expect("memory"),
            of_types: &[],
            dropped: false,
        };
        network.forward(inputs, Mode::Evaluate).expect("a pass");
        let expected = network.score_pairs(backend, &pairs).expect("scores");

        let predictor = opened(&checkpoint);
        let new = turned(&data);
        assert_eq!(
            predictor.score_pairs_of(&new, &pairs).expect("scores"),
            expected,
            "{decoder}"
        );
        refused(predictor.score_pairs(&pairs), &["opened without a dataset"]);
        refused(
            predictor.score_pairs_of(&new, &[[0, 90]]),
            &["vertex 90 is not there", "90, numbered"],
        );
        refused(
            predictor.predict_graph(&new),
            &["predicts links", "ask for pairs"],
        );
        refused(predictor.predict_dataset(&data), &["predicts links"]);
        refused(
            predictor.score_pairs_of(&turned(&dataset()), &pairs),
            &["the graph is directed"],
        );
        let predictor = predictor.with_dataset(data.clone()).expect("its dataset");
        assert_eq!(
            predictor.score_pairs(&pairs).expect("scores"),
            expected,
            "{decoder}"
        );
        refused(
            predictor.score_pairs(&[[0, 1], [90, 2]]),
            &["vertex 90 is not there: task has 90"],
        );
        refused(predictor.predict(&[0]), &["predicts links"]);
        refused(predictor.predict_all(), &["predicts links"]);
    }
}

/// Three papers and two authors, who write them.
fn papers() -> Dataset {
    let features = Features::dense(2, vec![0.5, 1.0, 2.0, 0.0, -1.0, 1.0]).expect("rows");
    let paper = VertexType::new("paper", 3, Some(features)).expect("a type");
    let author = VertexType::new("author", 2, None).expect("a type");
    let edges = Csr::rectangular_from_edges((3, 2), &[0, 1, 2, 2], &[0, 0, 1, 0]);
    let writes = EdgeType {
        source: 1,
        name: "writes".into(),
        destination: 0,
        edges: edges.expect("ids are in range"),
    };
    let types = Types::new(vec![paper, author], vec![writes]).expect("types");
    let splits = Splits {
        train: vec![0, 1],
        test: vec![2],
        ..Splits::default()
    };
    Dataset::of_types("papers", types, "paper", vec![0, 0, 1], splits).expect("a dataset")
}

#[test]
fn several_types_are_predicted_as_a_dataset() {
    let data = papers();
    let model = ModelConfig {
        types: ModelTypes::of(&data),
        ..ModelConfig::of(Rgcn::default(), 2, 2)
    };
    let backend = &Cpu::new();
    let mut network = Network::<_, f32>::new(backend, &model, 1).expect("a model");
    let checkpoint = checkpoint(&data, &model, Precision::Float, untrained(&network));
    let types = data.types.as_ref().expect("types");
    let own = model.types.as_ref().expect("types");
    let rows = data.features.to_dense().expect("rows");
    let inputs = Inputs {
        backend,
        graphs: &ModelTypes::graphs(backend, types, model.norm()).expect("graphs"),
        features: &Matrix::from_f32(backend, 3, 2, &rows, MemoryKind::Features).expect("memory"),
        of_types: &own.features(backend, &data).expect("features"),
        dropped: false,
    };
    network.forward(inputs, Mode::Evaluate).expect("a pass");
    let logits = network.logits().to_f32(backend).expect("logits");

    let predictor = opened(&checkpoint);
    assert_eq!(
        predictor
            .predict_dataset(&data)
            .expect("a dataset")
            .logits(),
        logits
    );
    let features = Features::dense(2, rows).expect("rows");
    let one = NewGraph::from_edges(features, &[[0, 1]]).expect("a graph");
    refused(
        predictor.predict_graph(&one),
        &["several types of vertices, and the graph has one"],
    );
    refused(
        predictor.predict_dataset(&dataset()),
        &["several types", "task has one"],
    );
    let predictor = predictor.with_dataset(data.clone()).expect("its dataset");
    assert_eq!(
        predictor.predict(&[2]).expect("a vertex").logits(),
        &logits[4..]
    );
    let (of_one, _) = trained::<f32>(&dataset(), &ModelConfig::gcn(FEATURES, CLASSES));
    refused(
        opened(&of_one).predict_dataset(&data),
        &["reads vertices of one type, and papers has several"],
    );
}

/// Rings of several sizes, with features of their own.
fn graphs_of_requests() -> Vec<NewGraph<'static>> {
    let graph = |size: u32| {
        let edges: Vec<[u32; 2]> = (0..size)
            .flat_map(|vertex| [[vertex, (vertex + 1) % size], [(vertex + 1) % size, vertex]])
            .collect();
        let value = |at: usize| ((at * 13 + size as usize) % 17) as f32 / 17.0;
        let values = (0..size as usize * FEATURES).map(value).collect();
        let features = Features::dense(FEATURES, values).expect("rows");
        NewGraph::from_edges(features, &edges).expect("ids are in range")
    };
    (3..19).map(graph).collect()
}

/// Calls of several threads, and of rayon's own, give what they give one after the other.
#[test]
fn several_threads_get_the_answers_of_one() {
    let (checkpoint, logits) = trained::<f16>(&dataset(), &ModelConfig::gin(FEATURES, CLASSES));
    let predictor = &opened(&checkpoint)
        .with_dataset(dataset())
        .expect("its dataset");
    let requests = &graphs_of_requests();
    let answer = |graph: &NewGraph<'_>| predictor.predict_graph(graph).expect("a graph");
    let expected: Vec<_> = requests.iter().map(answer).collect();
    let different = expected.windows(2).all(|two| two[0] != two[1]);
    assert!(different, "each request has an answer of its own");
    std::thread::scope(|scope| {
        for thread in 0..8 {
            let (expected, logits) = (&expected, &logits);
            scope.spawn(move || {
                for call in 0..40 {
                    let at = (thread * 5 + call * 3) % requests.len();
                    assert_eq!(
                        answer(&requests[at]),
                        expected[at],
                        "thread {thread}, call {call}"
                    );
                    let vertex = (thread * 11 + call) % VERTICES;
                    let row = predictor.predict(&[vertex as u32]).expect("a vertex");
                    assert_eq!(row.logits(), &logits[vertex * CLASSES..][..CLASSES]);
                    refused(predictor.predict(&[90]), &["vertex 90"]);
                }
            });
        }
    });
    let many: Vec<usize> = (0..200).map(|call| call % requests.len()).collect();
    let pool = rayon::ThreadPoolBuilder::new()
        .num_threads(4)
        .build()
        .expect("a pool");
    pool.install(|| {
        many.par_iter()
            .for_each(|&at| assert_eq!(answer(&requests[at]), expected[at]));
    });
}

#[test]
fn what_the_model_does_not_read_is_refused_in_a_line() {
    let (checkpoint, _) = trained::<f16>(&dataset(), &ModelConfig::gcn(FEATURES, CLASSES));
    let predictor = opened(&checkpoint);
    refused(
        predictor.predict(&[0]),
        &["opened without a dataset", "give a graph"],
    );
    refused(predictor.predict_all(), &["opened without a dataset"]);
    let rows = |vertices: usize, value: f32| {
        Features::dense(FEATURES, vec![value; vertices * FEATURES]).expect("rows")
    };
    let narrow = Features::dense(2, vec![0.0; 4]).expect("rows");
    let narrow = NewGraph::from_edges(narrow, &[]).expect("a graph");
    refused(
        predictor.predict_graph(&narrow),
        &["trained on 19 features, and the graph has 2"],
    );
    refused(
        NewGraph::from_edges(rows(2, 0.0), &[[0, 1], [2, 0]]),
        &["edges[1] is from 2 to 0", "2 vertices"],
    );
    refused(
        NewGraph::new(task::graph(), rows(2, 0.0)),
        &["features of 2 vertices", "has 90"],
    );
    let empty = Features::dense(FEATURES, Vec::new()).expect("no rows");
    let empty = NewGraph::from_edges(empty, &[]).expect("a graph");
    refused(
        predictor.predict_graph(&empty),
        &["the graph has no vertex"],
    );
    let pair = || NewGraph::from_edges(rows(2, 0.5), &[[0, 1], [1, 0]]).expect("a graph");
    refused(
        pair().with_edge_weights(vec![1.0]),
        &["edge weights: 1 numbers", "2 edges"],
    );
    refused(
        pair().with_edge_weights(vec![1.0, f32::NAN]),
        &["edge 1 has the number NaN"],
    );
    refused(
        pair().with_edge_features(3, vec![1.0; 5]),
        &["edge features: 5 numbers", "have 3 each"],
    );
    refused(pair().with_edge_features(0, Vec::new()), &["edge features"]);
    refused(
        pair().with_edge_features(usize::MAX, vec![1.0]),
        &["edge features"],
    );
    let heavy = pair()
        .with_edge_weights(vec![1.0, 2.0])
        .expect("a weight an edge");
    refused(
        predictor.predict_graph(&heavy),
        &["trained on edges without weights", "those of the graph"],
    );
    let annotated = pair()
        .with_edge_features(1, vec![1.0, 2.0])
        .expect("a row an edge");
    refused(
        predictor.predict_graph(&annotated),
        &["the edges of the graph have features"],
    );
    let two = GraphIndex::new(vec![0, 1, 2]).expect("graphs");
    refused(pair().with_graphs(two), &["another graph"]);
    let many = GraphIndex::new(vec![0, 2]).expect("graphs");
    let many = pair().with_graphs(many).expect("its vertices");
    refused(
        predictor.predict_graph(&many),
        &["it is 1 graphs, and the model predicts vertices"],
    );
    let large = NewGraph::from_edges(rows(1, 1e6), &[]).expect("a graph");
    refused(
        predictor.predict_graph(&large),
        &["19 features are infinite in half", "1000000"],
    );
    refused(
        predictor.score_pairs_of(&pair(), &[[0, 1]]),
        &["predicts classes and no links"],
    );
    let predictor = predictor.with_dataset(dataset()).expect("its dataset");
    refused(
        predictor.predict(&[0, 90]),
        &["vertex 90 is not there: task has 90, numbered from 0"],
    );
    refused(
        predictor.score_pairs(&[[0, 1]]),
        &["predicts classes and no links"],
    );
    refused(
        opened(&checkpoint).with_dataset(weighted()),
        &["without weights, and those of task"],
    );
    refused(
        opened(&checkpoint).with_dataset(rings()),
        &["trained on 19 features, and rings has 4"],
    );
    // Predictions go on as before.
    assert_eq!(predictor.predict(&[3, 4]).expect("vertices").len(), 2);
    assert!(predictor.predict(&[]).expect("no vertex").is_empty());

    let mut other = checkpoint.clone();
    other.model.hidden += 1;
    refused(
        Predictor::new(other, Choice::Cpu),
        &["another shape of model"],
    );
    let missing = Predictor::open("no-such-file.safetensors", Choice::Cpu).expect_err("no file");
    assert!(
        matches!(missing, PredictError::Checkpoint(_)),
        "{missing:?}"
    );
}

/// Numbers of edges that a model reads as features.
#[test]
fn features_of_edges_are_as_many_as_the_model_reads() {
    let gat = Gat {
        edge_features: 2,
        ..Gat::default()
    };
    let model = ModelConfig::of(ConvolutionConfig::from(gat), FEATURES, CLASSES);
    let network = Network::<_, f32>::new(&Cpu::new(), &model, 2).expect("a model");
    let checkpoint = checkpoint(&dataset(), &model, Precision::Float, untrained(&network));
    let predictor = opened(&checkpoint);
    let graph = turned(&dataset());
    refused(
        predictor.predict_graph(&graph),
        &["reads 2 numbers of each edge, and the graph has 0"],
    );
    let edges = graph.edges();
    let values = |of: fn(usize) -> f32| (0..2 * edges).map(of).collect::<Vec<f32>>();
    let answer = |values: Vec<f32>| {
        let graph = graph
            .clone()
            .with_edge_features(2, values)
            .expect("a row an edge");
        predictor.predict_graph(&graph).expect("a graph")
    };
    let first = answer(values(|at| at as f32 / 100.0));
    assert_eq!(first, answer(values(|at| at as f32 / 100.0)));
    assert_ne!(first, answer(values(|at| (at % 7) as f32)));
}

/// Vertices by the ids of their table.
#[test]
fn vertices_are_found_by_their_ids() {
    let folder = tempfile::tempdir().expect("a folder");
    let nodes = "id,x,class\nzoe,1.0,a\nadam,2.0,b\n\u{f8}le,0.5,a\n";
    let edges = "source,target\nzoe,adam\nadam,zoe\n\u{f8}le,zoe\n";
    std::fs::write(folder.path().join("nodes.csv"), nodes).expect("a table");
    std::fs::write(folder.path().join("edges.csv"), edges).expect("a table");
    let data = Dataset::open(folder.path()).expect("a dataset");
    let model = ModelConfig::gcn(data.feature_len(), data.outputs);
    let network = Network::<_, f32>::new(&Cpu::new(), &model, 2).expect("a model");
    let checkpoint = checkpoint(&data, &model, Precision::Float, untrained(&network));
    let predictor = opened(&checkpoint).with_dataset(data).expect("its dataset");
    let found = ["zoe", "adam", "\u{f8}le", "eve"].map(|id| predictor.vertex_of(id));
    assert_eq!(found, [Some(0), Some(1), Some(2), None]);
    assert_eq!(
        (predictor.id_of(2), predictor.id_of(3)),
        (Some("\u{f8}le"), None)
    );
    let all = predictor.predict_all().expect("all");
    assert_eq!(predictor.class_names().map(<[String]>::len), Some(2));
    assert_eq!(
        (all.class_name(0), all.class_name(1)),
        (Some("a"), Some("b"))
    );
}

/// The name of a device.
struct Name;

impl Task for Name {
    type Output = String;

    fn run<B: Backend>(self, device: &Device<B>) -> String {
        device.backend.name()
    }
}

/// That logits differ by no more than half rounds.
#[track_caller]
fn assert_close(found: &[f32], expected: &[f32]) {
    assert_eq!(found.len(), expected.len());
    for (found, expected) in found.iter().zip(expected) {
        assert!((found - expected).abs() < 0.02, "{found} for {expected}");
    }
}

/// The GPU's kernels: two threads at once, whose passes follow one another.
#[test]
fn the_emulator_gives_the_cpus_answers_to_two_threads() {
    let (checkpoint, logits) = trained::<f16>(&dataset(), &ModelConfig::gcn(FEATURES, CLASSES));
    let predictor = Predictor::new(checkpoint.clone(), Choice::Emulator).expect("the kernels");
    let predictor = predictor.with_dataset(dataset()).expect("its dataset");
    let all = predictor.predict_all().expect("all");
    assert_close(all.logits(), &logits);
    assert_eq!(
        Ok(predictor.device()),
        device::open(Choice::Emulator, Name).map_err(|_| ())
    );
    let requests = graphs_of_requests();
    let on_cpu = opened(&checkpoint);
    std::thread::scope(|scope| {
        for half in requests[..4].chunks(2) {
            let (predictor, on_cpu) = (&predictor, &on_cpu);
            scope.spawn(move || {
                for graph in half {
                    let found = predictor.predict_graph(graph).expect("a graph");
                    let expected = on_cpu.predict_graph(graph).expect("a graph");
                    assert_close(found.logits(), expected.logits());
                }
            });
        }
    });
}
