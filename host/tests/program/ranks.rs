//! Networks of several ranks: next to one rank, and what ranks exchange.

use super::network::shaped;
use super::setup::{graph, numbers};
use half::f16;
use halfgnn::backend::MemoryKind;
use halfgnn::backend::cpu::Cpu;
use halfgnn::data::Targets;
use halfgnn::distributed::{Gather, Group, Partition, Shard, in_process};
use halfgnn::graph::Graph;
use halfgnn::nn::{
    Aggregate, Appnp as AppnpConfig, ConvolutionConfig, EdgeData, Gat as GatConfig,
    Gcnii as GcniiConfig, Gin as GinConfig, HiddenNorm, Jumping, Model, ModelConfig, Network, Norm,
    PreparedGraph, Statistics,
};
use halfgnn::ops::CodeFormat;
use halfgnn::program::layers::{Gcn, Gin, Layer, Sage};
use halfgnn::program::passes::fuse::{Fuse, FuseBeforeStore};
use halfgnn::program::passes::{Exchange, Mutual, Pass, Quantize, Reorder, Store, apply};
use halfgnn::program::{Builder, Edges, Program, Value, differentiate};
use halfgnn::tensor::{Element, Matrix, Precision};
use halfgnn::train::{Goal, Loss, Objective, TrainConfig, Trainer};
use std::time::Duration;

const FEATURES: usize = 12;
const CLASSES: usize = 3;
const SEED: u64 = 4;
const STEPS: usize = 3;

/// The graph of other tests with each edge both ways: a graph whose ranks can exchange quantized messages.
pub fn both_ways() -> Graph {
    graph().to_undirected().expect("a graph")
}

/// Has `work` done by each of some ranks, each with what it has of a graph.
pub fn by_ranks<T: Send>(
    (graph, ranks, gather): (&Graph, usize, Gather),
    work: impl Fn(&Shard, &Group) -> T + Sync,
) -> Vec<T> {
    let partition = &Partition::by_degree(graph, ranks).expect("enough vertices");
    let all = in_process(ranks, "test", Duration::from_secs(60), &[]);
    let work = &work;
    std::thread::scope(|scope| {
        let threads: Vec<_> = all
            .into_iter()
            .enumerate()
            .map(|(rank, communicator)| {
                scope.spawn(move || {
                    let group = Group::new(communicator);
                    let shard = Shard::gathering(graph, partition, rank, gather);
                    work(&shard.expect("a shard"), &group)
                })
            })
            .collect();
        let threads = threads.into_iter();
        threads
            .map(|thread| thread.join().expect("a rank"))
            .collect()
    })
}

fn network<E: Element>(backend: &Cpu, model: &ModelConfig) -> Network<Cpu, E> {
    Network::new(backend, model, SEED).expect("a model")
}

/// Losses of a few steps, and behind them parameters and buffers by name.
#[derive(Clone, Debug, PartialEq)]
struct Trace {
    losses: Vec<f32>,
    weights: Vec<(String, Vec<f32>)>,
    /// Messages of own vertices that were larger than their scales hold.
    saturated: Option<u64>,
}

fn traced<E: Element>(
    backend: &Cpu,
    network: Network<Cpu, E>,
    objective: Objective<Cpu, E>,
) -> Trace {
    let config = TrainConfig::new(E::PRECISION);
    let mut trainer = Trainer::new(backend, &objective, network, config).expect("fits");
    let mut losses = Vec::new();
    for _ in 0..STEPS {
        trainer.step().expect("a step");
        trainer.evaluate().expect("an evaluation");
        losses.push(trainer.loss().expect("a loss"));
    }
    let model = trainer.model();
    let parameters = model.parameters().into_iter();
    let parameters = parameters.map(|it| (it.name().to_owned(), it.master()));
    let mut all: Vec<_> = parameters.chain(model.buffers()).collect();
    all.sort_by(|(one, _), (other, _)| one.cmp(other));
    let all = all.into_iter();
    let weights = all.map(|(name, matrix)| (name, matrix.to_f32(backend).expect("values")));
    Trace {
        losses,
        weights: weights.collect(),
        saturated: model.saturated_messages(backend).expect("counts"),
    }
}

fn rows<E: Element>(backend: &Cpu, vertices: &[u32]) -> Matrix<Cpu, E> {
    let values = numbers(5, graph().vertices() * FEATURES);
    let rows = vertices.iter().map(|&vertex| vertex as usize * FEATURES);
    let rows: Vec<f32> = rows
        .flat_map(|row| values[row..row + FEATURES].to_vec())
        .collect();
    let kind = MemoryKind::Features;
    Matrix::from_f32(backend, vertices.len(), FEATURES, &rows, kind).expect("memory")
}

fn with_goal<T>(work: impl FnOnce(&Goal<'_>) -> T) -> T {
    let labels = (0..graph().vertices() as u32).map(|vertex| vertex * 7 % CLASSES as u32);
    let targets = Targets::from(labels.collect::<Vec<u32>>());
    let splits: [Vec<u32>; 3] = [(0..13).collect(), (13..18).collect(), (18..23).collect()];
    work(&Goal {
        targets: &targets,
        outputs: CLASSES,
        loss: &Loss::of(&targets),
        splits: splits.each_ref().map(Vec::as_slice),
    })
}

fn prepared<'a>(model: &ModelConfig, graph: &'a Graph) -> PreparedGraph<'a> {
    let edges = EdgeData::default();
    model.prepare_edges(graph, edges).expect("edges")
}

/// What each rank has after a few steps.
fn of_ranks<E: Element>(
    model: &ModelConfig,
    (graph, ranks, gather): (&Graph, usize, Gather),
) -> Vec<Trace> {
    let prepared = prepared(model, graph);
    by_ranks((&prepared.graph, ranks, gather), |shard, group| {
        let (backend, of) = (&Cpu::new(), (shard, group));
        let edges = prepared.propagation_of_shard::<Cpu, E>(backend, model, of);
        let network = network(backend, model);
        let vertices = match network.first_aggregates() {
            true => shard.part.vertices(),
            false => shard.part.own(),
        };
        let rows = rows::<E>(backend, vertices);
        let task = with_goal(|goal| {
            Objective::of_shard(backend, edges.expect("memory"), rows, goal, shard)
        });
        traced(backend, network, task.expect("a task"))
    })
}

fn of_one<E: Element>(model: &ModelConfig, graph: &Graph) -> Trace {
    let backend = &Cpu::new();
    let edges = prepared(model, graph).propagation::<Cpu, E>(backend, model);
    let all: Vec<u32> = (0..graph.vertices() as u32).collect();
    let rows = rows::<E>(backend, &all);
    let task = with_goal(|goal| Objective::of(backend, vec![edges.expect("memory")], rows, goal));
    traced(backend, network(backend, model), task.expect("a task"))
}

fn small(config: ModelConfig) -> ModelConfig {
    shaped(config, 3, 8, 0.4)
}

fn gcn() -> ModelConfig {
    small(ModelConfig::gcn(FEATURES, CLASSES))
}

fn sage() -> ModelConfig {
    small(ModelConfig::sage(FEATURES, CLASSES))
}

fn gat() -> ModelConfig {
    let gat = GatConfig {
        heads: 2,
        ..GatConfig::default()
    };
    small(ModelConfig::of(gat, FEATURES, CLASSES))
}

/// Of the mean of the neighbours, whose statistics evaluations read.
fn gin(statistics: Statistics) -> ModelConfig {
    let gin = GinConfig {
        statistics,
        ..GinConfig::default()
    };
    small(ModelConfig::of(gin, FEATURES, CLASSES))
}

fn of_kind(kind: impl Into<ConvolutionConfig>) -> ModelConfig {
    small(ModelConfig::of(kind, FEATURES, CLASSES))
}

fn gin_of_sums() -> ModelConfig {
    let gin = GinConfig {
        aggregate: Aggregate::Sum,
        learn_epsilon: true,
        ..GinConfig::default()
    };
    small(ModelConfig::of(gin, FEATURES, CLASSES))
}

fn with_norm(config: ModelConfig, hidden_norm: HiddenNorm) -> ModelConfig {
    ModelConfig {
        hidden_norm,
        ..config
    }
}

fn jumping(config: ModelConfig, jumping: Jumping) -> ModelConfig {
    ModelConfig {
        jumping: Some(jumping),
        ..config
    }
}

fn models() -> Vec<(&'static str, ModelConfig)> {
    let residual = ModelConfig {
        residual: true,
        ..sage()
    };
    vec![
        ("gcn", gcn()),
        ("sage", sage()),
        ("residual sage", residual),
        ("gat", gat()),
        ("gcn with batch norms", with_norm(gcn(), HiddenNorm::Batch)),
        ("gat with layer norms", with_norm(gat(), HiddenNorm::Layer)),
        ("gin", gin(Statistics::Batch)),
        ("gin with running statistics", gin(Statistics::Running)),
        ("gin of sums", gin_of_sums()),
        ("appnp", of_kind(AppnpConfig::default())),
        ("gcnii", of_kind(GcniiConfig::default())),
        (
            "gin with batch norms",
            with_norm(gin(Statistics::Running), HiddenNorm::Batch),
        ),
        ("the largest of gcn's layers", jumping(gcn(), Jumping::Max)),
        ("all of sage's layers", jumping(sage(), Jumping::Cat)),
    ]
}

/// Asserts that numbers differ by no more than this share of the largest of them.
fn assert_near(what: &str, expected: &[f32], found: &[f32], share: f32) {
    assert_eq!(expected.len(), found.len(), "{what}");
    let largest = expected.iter().fold(0.0_f32, |most, it| most.max(it.abs()));
    assert!(largest > 0.0, "{what}");
    for (expected, found) in expected.iter().zip(found) {
        let off = (expected - found).abs();
        assert!(off <= share * largest, "{what}: {expected} and {found}");
    }
}

/// All ranks have the same bits.
fn assert_alike(what: &str, all: &[Trace]) {
    for rank in all {
        assert_eq!(rank.losses, all[0].losses, "{what}");
        assert_eq!(rank.weights, all[0].weights, "{what}: weights of ranks");
    }
}

fn quantized() -> Vec<(&'static str, ModelConfig)> {
    let models = vec![
        ("gcn", gcn()),
        ("sage", sage()),
        ("gin", gin(Statistics::Running)),
        ("gat", gat()),
        ("gcnii", of_kind(GcniiConfig::default())),
        ("all of sage's layers", jumping(sage(), Jumping::Cat)),
    ];
    let models = models.into_iter();
    models
        .map(|(name, model)| {
            let messages = Some(CodeFormat::Int8);
            (name, ModelConfig { messages, ..model })
        })
        .collect()
}

/// What a step with norms of all vertices or quantized messages makes is what one rank makes.
#[test]
fn ranks_train_as_one_rank() {
    for (name, model) in models() {
        let expected = of_one::<f32>(&model, &graph());
        let found = of_ranks::<f32>(&model, (&graph(), 3, Gather::Halo));
        assert_near(name, &expected.losses, &found[0].losses, 1e-4);
    }
    for (name, model) in quantized() {
        let expected = of_one::<f16>(&model, &both_ways());
        let found = of_ranks::<f16>(&model, (&both_ways(), 3, Gather::Halo));
        assert_near(name, &expected.losses, &found[0].losses, 0.02);
    }
}

/// Kinds of formulas alone, some of which sum several times over one adjacency.
#[test]
fn ranks_train_every_formula_as_one_rank() {
    let kinds = ConvolutionConfig::kinds().into_iter();
    let mut trained = 0;
    for kind in kinds.filter(|kind| super::kinds::FORMULAS.contains(&kind.name)) {
        let model = shaped(
            ModelConfig::of(kind.convolution, FEATURES, CLASSES),
            2,
            8,
            0.4,
        );
        let expected = of_one::<f32>(&model, &graph());
        for ranks in [2, 3] {
            let found = of_ranks::<f32>(&model, (&graph(), ranks, Gather::Halo));
            assert_alike(kind.name, &found);
            assert_near(kind.name, &expected.losses, &found[0].losses, 1e-4);
        }
        trained += 1;
    }
    assert_eq!(trained, super::kinds::FORMULAS.len());
}

#[test]
fn what_ranks_do_not_exchange_is_refused() {
    let refused = |norm: HiddenNorm, dropout: f32| {
        let mut g = Builder::new(Precision::Half);
        let (sources, own) = (g.vertices("vertices", 9), g.vertices("own", 5));
        let edges = g.edges_of_rank("part", sources, own, Norm::None);
        let x = g.input("x", sources, 4);
        let layer = halfgnn::program::layers::Gat {
            edges,
            outputs: 4,
            averaged: false,
            options: GatConfig {
                attention_dropout: dropout,
                ..GatConfig::default()
            },
        };
        let y = layer.build(&mut g, x);
        let y = g.hidden_norm("norm", norm, y);
        g.finish(y).expect_err("no exchange").to_string()
    };
    for (norm, name) in [(HiddenNorm::Pair, "pair"), (HiddenNorm::Graph, "graph")] {
        assert_eq!(
            refused(norm, 0.0),
            format!(
                "Program: a {name} norm takes statistics of whole graphs, which several ranks do not exchange; take batch or layer, or one rank"
            )
        );
    }
    assert_eq!(
        refused(HiddenNorm::None, 0.5),
        "Program: edges are not dropped by several ranks; leave the attention dropout out, or train with one"
    );
}

fn part(inputs: usize, norm: Norm, layer: impl Fn(&mut Builder, Edges, Value) -> Value) -> Program {
    let mut g = Builder::new(Precision::Half);
    let (sources, own) = (g.vertices("vertices", 9), g.vertices("own", 5));
    let edges = g.edges_of_rank("part", sources, own, norm);
    g.edges_go_both_ways(edges);
    let x = g.input("x", own, inputs);
    let all = g.extend(edges, x);
    let y = layer(&mut g, edges, all);
    g.finish(y).expect("operands fit")
}

fn exchanged(
    (inputs, of_messages): (usize, bool),
    layer: impl Fn(&mut Builder, Edges, Value) -> Value,
) -> String {
    let mut program = part(inputs, Norm::Both, layer);
    let exchange = Exchange { of_messages };
    exchange.run(&mut program).expect("a forward list");
    program.check().expect("a program");
    program.listing()
}

#[test]
fn a_product_that_is_no_wider_is_exchanged_in_the_place_of_rows() {
    let gcn = |g: &mut Builder, edges, x| Gcn { edges, outputs: 4 }.build(g, x);
    let products = "%6 = matmul x weight\n%4 = extend part %6\n%5 = aggregate part %4\n";
    assert_eq!(exchanged((8, false), gcn), products);
    assert_eq!(exchanged((4, false), gcn), products);
    let rows = "%1 = extend part x\n%4 = matmul %1 weight\n%5 = aggregate part %4\n";
    assert_eq!(exchanged((3, false), gcn), rows);
    // What is summed is quantized, and so exchanged, of whatever width.
    assert_eq!(exchanged((3, true), gcn), products);
}

#[test]
fn own_rows_of_extended_rows_are_those_that_were_extended() {
    let sage = |g: &mut Builder, edges, x| Sage { edges, outputs: 4 }.build(g, x);
    let listing = exchanged((4, false), sage);
    assert!(!listing.contains("own_rows"), "{listing}");
    assert!(listing.contains("matmul x self.weight"), "{listing}");
}

#[test]
fn own_rows_of_a_product_that_is_exchanged_are_those_of_the_product() {
    let listing = exchanged((8, false), |g, edges, x| {
        let weight = g.weight("weight", (8, 4));
        let all = g.matmul(x, weight);
        let (sum, own) = (g.aggregate(edges, all), g.own_rows(edges, all));
        g.add(sum, own)
    });
    let expected =
        "%8 = matmul x weight\n%4 = extend part %8\n%5 = aggregate part %4\n%7 = combine %5 + %8\n";
    assert_eq!(listing, expected);
}

/// All passes of messages over one layer behind another, by text after some of them.
fn listings(layer: impl Fn(&mut Builder, Edges, Value) -> Value, norm: Norm) -> [String; 3] {
    let mut program = part(4, norm, |g, edges, x| {
        let before = g.weight("before", (4, 4));
        let own = g.own_rows(edges, x);
        let own = g.matmul(own, before);
        let all = g.extend(edges, own);
        layer(g, edges, all)
    });
    let exchange = Exchange { of_messages: true };
    apply(&mut program, &[&Reorder, &exchange], |_, _| ()).expect("a forward list");
    differentiate(&mut program).expect("parameters");
    let before = program.listing();
    apply(&mut program, &[&Mutual], |_, _| ()).expect("both lists");
    let after = program.listing();
    let format = CodeFormat::Int8;
    apply(&mut program, &[&Fuse, &Quantize { format }], |_, _| ()).expect("both lists");
    [before, after, program.listing()]
}

#[test]
fn gradients_go_along_edges_that_go_both_ways_and_values_are_exchanged() {
    let [before, after, quantized] = listings(
        |g, edges, x| Gcn { edges, outputs: 4 }.build(g, x),
        Norm::Both,
    );
    let back = |listing: &str| {
        let (_, back) = listing.split_once("backward\n").expect("a backward list");
        back.to_owned()
    };
    let folded = "%14 = aggregate partᵀ seed\n%15 = fold part %14\n";
    assert!(back(&before).starts_with(folded), "{before}");
    let extended = "%20 = extend part seed\n%15 = aggregate partᵀ of own rows %20\n";
    assert!(back(&after).starts_with(extended), "{after}");
    assert!(
        !quantized.contains("extend") && !quantized.contains("fold"),
        "{quantized}"
    );
    let forward = "weight, rows R[part], quantized to Int8 alone, nearest, exchanged over part";
    let backward =
        "quantize seed to Int8, stochastic #1919907182, rows R[part], exchanged over part";
    assert!(quantized.contains(forward), "{quantized}");
    assert!(quantized.contains(backward), "{quantized}");
}

/// The gradient of a mean is balanced where own rows are written.
#[test]
fn balanced_rows_are_exchanged() {
    let gin = |g: &mut Builder, edges, x| {
        let layer = Gin {
            edges,
            hidden: 4,
            outputs: 4,
            options: GinConfig::default(),
        };
        layer.build(g, x)
    };
    let [_, _, quantized] = listings(gin, Norm::Right);
    let gradient = quantized
        .lines()
        .find(|line| line.contains("normalize_gradient"))
        .expect("a gradient");
    assert!(gradient.contains("over the ranks of part"), "{gradient}");
    assert!(gradient.contains("rows R[part] balanced"), "{gradient}");
    assert!(gradient.contains("exchanged over part"), "{gradient}");
    assert!(
        quantized.contains("aggregate partᵀ of own rows"),
        "{quantized}"
    );
}

/// What is behind a rank's dropout is all that is kept of a ReLU, and it is stored.
#[test]
fn what_a_rank_drops_is_stored() {
    let mut program = part(4, Norm::Both, |g, edges, all| {
        let y = g.layer(0, |g| Gcn { edges, outputs: 4 }.build(g, all));
        let y = g.relu(y);
        g.layer(1, |g| {
            let y = g.dropout(y, 0.5);
            let all = g.extend(edges, y);
            Gcn { edges, outputs: 2 }.build(g, all)
        })
    });
    let exchange = Exchange { of_messages: false };
    apply(&mut program, &[&Reorder, &exchange], |_, _| ()).expect("a forward list");
    differentiate(&mut program).expect("parameters");
    apply(&mut program, &[&FuseBeforeStore, &Store], |_, _| ()).expect("both lists");
    let expected = [
        "%13 = matmul x layers.0.weight, rows R[part]",
        "%4 = extend part %13",
        "%6 = aggregate part %4, operand is scaled, relu",
        "%7 = drop_rows part %6, dropout 0.5 #1",
        "%15 = matmul %7 layers.1.weight, rows R[part]",
        "%31 = store %7 (kept)",
        "%11 = extend part %15",
        "%12 = aggregate part %11, operand is scaled",
        "backward",
        "%29 = activate_gradient seed, rows R[part]",
        "%18 = aggregate partᵀ %29, operand is scaled",
        "%19 = fold part %18",
        "%21 = matmul %19 layers.1.weightᵀ",
        "%22 = matmul %31ᵀ %19",
        "%23 = drop_rows part %21, dropout 0.5 #1",
        "%32 = dequantize %31",
        "%24 = activate_gradient %23, where positive %32",
        "%30 = activate_gradient %24, rows R[part]",
        "%25 = aggregate partᵀ %30, operand is scaled",
        "%26 = fold part %25",
        "%28 = matmul xᵀ %26",
    ];
    assert_eq!(program.listing().lines().collect::<Vec<_>>(), expected);
}
