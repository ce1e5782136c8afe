//! Networks of formulas in training: the losses, scores, weights and memory of the network of layers.

use super::network::shaped;
use super::setup::{graph, numbers};
use half::{bf16, f16};
use halfgnn::backend::cpu::Cpu;
use halfgnn::backend::gpu::Gpu;
use halfgnn::backend::{Backend, MemoryKind, Storage};
use halfgnn::driver::Driver;
use halfgnn::driver::emulated::Emulated;
use halfgnn::kernels::Kernels;
use halfgnn::nn::{
    Aggregate, Appnp as AppnpConfig, EdgeData, Gat as GatConfig, GatV2 as GatV2Config,
    Gcnii as GcniiConfig, Gin as GinConfig, HiddenActivation, HiddenNorm, Jumping, Model,
    ModelConfig, Network, Pieces, Propagation, Statistics, Store,
};
use halfgnn::ops::{Accumulate, CodeFormat, Scaling, SpmmPolicy};
use halfgnn::program;
use halfgnn::sample::{Fanout, Loader, NeighborSampler, Sampler};
use halfgnn::tensor::{Element, Matrix, Precision};
use halfgnn::train::{Objective, TrainConfig, Trainer};

const SEED: u64 = 4;
const FEATURES: usize = 12;
const CLASSES: usize = 3;

fn labels() -> Vec<u32> {
    let vertices = 0..graph().vertices() as u32;
    vertices.map(|vertex| vertex * 7 % CLASSES as u32).collect()
}

fn features<B: Backend, E: Element>(backend: &B) -> Matrix<B, E> {
    let (rows, kind) = (graph().vertices(), MemoryKind::Features);
    let values = numbers(5, rows * FEATURES);
    Matrix::from_f32(backend, rows, FEATURES, &values, kind).expect("memory")
}

pub fn objective<B: Backend, E: Element>(backend: &B, config: &ModelConfig) -> Objective<B, E> {
    let (whole, labels) = (graph(), labels());
    let prepared = config.prepare(&whole).expect("memory");
    let edges = Propagation::new(backend, &prepared, config.norm()).expect("memory");
    let splits: [Vec<u32>; 3] = [(0..13).collect(), (13..18).collect(), (18..23).collect()];
    let splits = splits.each_ref().map(Vec::as_slice);
    Objective::new(backend, edges, features(backend), &labels, CLASSES, splits).expect("a task")
}

/// Losses, logits of evaluations, and weights at the end by name.
pub type Trace = Vec<(String, Vec<f32>)>;

/// Asserts that numbers differ by no more than this share of the largest of them; 0 of those that have the same bits.
fn assert_same(what: &str, expected: &Trace, found: &Trace, share: f32) {
    assert_eq!(expected.len(), found.len(), "{what}");
    for ((name, expected), (of, found)) in expected.iter().zip(found) {
        assert_eq!((name, expected.len()), (of, found.len()), "{what}");
        let largest = expected.iter().fold(0.0_f32, |most, it| most.max(it.abs()));
        assert!(largest > 0.0, "{what}: {name} is all zeros");
        for (expected, found) in expected.iter().zip(found) {
            let off = (expected - found).abs();
            assert!(
                off <= share * largest,
                "{what}: {name}: {expected} and {found}"
            );
        }
    }
}

fn weights<B: Backend, E: Element>(backend: &B, model: &impl Model<B, E>) -> Trace {
    let masters = model.parameters().into_iter();
    let masters = masters.map(|it| (it.name().to_owned(), it.master()));
    let mut all: Vec<_> = masters.chain(model.buffers()).collect();
    all.sort_by(|(one, _), (other, _)| one.cmp(other));
    let all = all.into_iter();
    all.map(|(name, matrix)| (name, matrix.to_f32(backend).expect("values")))
        .collect()
}

/// Adds the loss of the last step.
fn add_loss<B: Backend, E: Element, M: Model<B, E>>(
    trace: &mut Trace,
    trainer: &mut Trainer<B, E, M>,
) {
    let loss = trainer.loss().expect("a loss");
    trace.push((format!("loss {}", trace.len()), vec![loss]));
}

/// A few steps with an evaluation behind each.
pub fn whole<B: Backend, E: Element>(
    backend: &B,
    config: &ModelConfig,
    model: impl Model<B, E>,
) -> Trace {
    let train = TrainConfig::new(E::PRECISION);
    let task = objective::<B, E>(backend, config);
    let mut trainer = Trainer::new(backend, &task, model, train).expect("a model of the task");
    let mut trace = Vec::new();
    for _ in 0..4 {
        trainer.step().expect("a step");
        add_loss(&mut trace, &mut trainer);
        trainer.evaluate().expect("an evaluation");
        let logits = trainer.model().logits().to_f32(backend).expect("logits");
        trace.push(("logits".to_owned(), logits));
    }
    trace.extend(weights(backend, trainer.model()));
    trace
}

/// Layers that aggregate.
fn hops(config: &ModelConfig) -> usize {
    // Layers written by hand do not all store activations.
    let plain = ModelConfig {
        store: None,
        ..config.clone()
    };
    let network = Network::<_, f16>::of_formulas(&Cpu::new(), &plain, SEED);
    network.expect("a model").hops()
}

/// Steps on sampled blocks, and an evaluation of the whole graph between them.
pub fn sampled<B: Backend, E: Element>(
    backend: &B,
    config: &ModelConfig,
    model: impl Model<B, E>,
) -> Trace {
    let (whole, labels, all) = (graph(), labels(), features::<B, E>(backend));
    let prepared = config.prepare(&whole).expect("memory");
    let fanouts = vec![Fanout::of(3).expect("a fanout"); hops(config)];
    let mut sampler = NeighborSampler::new(backend, prepared.csr(), fanouts).expect("a graph");
    let loader = Loader::new((0..13).collect(), 5, SEED).expect("seeds");
    let train = TrainConfig::new(E::PRECISION);
    let task = objective::<B, E>(backend, config);
    let mut trainer = Trainer::new(backend, &task, model, train).expect("a model of the task");
    let mut trace = Vec::new();
    for seeds in (0..2).flat_map(|epoch| loader.epoch(epoch)) {
        let (vertices, step) = (&seeds.vertices, seeds.step);
        let batch = sampler
            .sample(backend, vertices, SEED, step)
            .expect("a batch");
        let of_batch = batch.features(backend, &all).expect("features");
        let blocks = batch.blocks.into_iter();
        let graphs = blocks.map(|block| Propagation::of_sampled(backend, block, config.norm()));
        let graphs = graphs.collect::<Result<_, _>>().expect("memory");
        let own: Vec<u32> = vertices
            .iter()
            .map(|&vertex| labels[vertex as usize])
            .collect();
        let rows: Vec<u32> = (0..own.len() as u32).collect();
        let splits = [&rows[..], &[], &[]];
        let batch = Objective::on_blocks(backend, graphs, of_batch, &own, CLASSES, splits);
        trainer.step_on(&batch.expect("a task")).expect("a step");
        add_loss(&mut trace, &mut trainer);
        trainer.evaluate().expect("an evaluation");
    }
    trace.extend(weights(backend, trainer.model()));
    trace
}

/// Models in each of the ways that a network of formulas is trained in.
fn models() -> Vec<(&'static str, ModelConfig)> {
    let small = |config| shaped(config, 2, 8, 0.4);
    let heads = |heads| GatConfig {
        heads,
        attention_dropout: 0.3,
        ..GatConfig::default()
    };
    let gcn = || small(ModelConfig::gcn(FEATURES, CLASSES));
    let mut models = vec![
        ("gcn", gcn()),
        (
            "sage",
            shaped(ModelConfig::sage(FEATURES, CLASSES), 3, 8, 0.4),
        ),
        ("gat", small(ModelConfig::of(heads(1), FEATURES, CLASSES))),
        (
            "gat of 2 heads",
            small(ModelConfig::of(heads(2), FEATURES, CLASSES)),
        ),
        (
            "gatv2",
            small(ModelConfig::of(GatV2Config::default(), FEATURES, CLASSES)),
        ),
    ];
    let residual = ModelConfig {
        residual: true,
        layers: 3,
        ..gcn()
    };
    let elu = ModelConfig {
        activation: HiddenActivation::Elu,
        dropout: 0.0,
        ..gcn()
    };
    let largest = ModelConfig {
        jumping: Some(Jumping::Max),
        ..gcn()
    };
    let of_all = ModelConfig {
        jumping: Some(Jumping::All),
        ..gcn()
    };
    models.extend([("residual gcn", residual), ("gcn with elu", elu)]);
    models.push(("gcn with the features and all layers", of_all));
    models.push(("gcn with the largest of its layers", largest));
    for (name, aggregate) in [("gin", Aggregate::Mean), ("gin of sums", Aggregate::Sum)] {
        let of = GinConfig {
            aggregate,
            lambda: 90.0,
            statistics: Statistics::Running,
            ..GinConfig::default()
        };
        models.push((name, small(ModelConfig::of(of, FEATURES, CLASSES))));
    }
    let steps = AppnpConfig {
        steps: 3,
        ..AppnpConfig::default()
    };
    let appnp = small(ModelConfig::of(steps, FEATURES, CLASSES));
    let gcnii = small(ModelConfig::of(GcniiConfig::default(), FEATURES, CLASSES));
    models.extend([("appnp", appnp), ("gcnii", gcnii)]);
    let quantized = ModelConfig {
        messages: Some(CodeFormat::Int8),
        ..gcn()
    };
    models.push(("gcn with messages of 8 bits", quantized));
    let in_half = SpmmPolicy {
        accumulate: Accumulate::Half,
        ..SpmmPolicy::default()
    };
    let as_frameworks = SpmmPolicy {
        scaling: Scaling::PostReduction,
        ..in_half
    };
    // Layers that would sum first make their products first with another way of rounding.
    for policy in [in_half, as_frameworks] {
        for config in [gcn(), small(ModelConfig::sage(FEATURES, CLASSES))] {
            let widening = ModelConfig {
                policy,
                layers: 3,
                hidden_by_layer: vec![5, 9],
                ..config
            };
            models.push(("another policy of sums", widening));
        }
    }
    // Narrowing layers make their products first, and the widening one its sums.
    let widths = |config| ModelConfig {
        layers: 4,
        hidden_by_layer: vec![8, 5, 9],
        ..config
    };
    let kinds = [
        ("stored gcn", widths(gcn())),
        (
            "stored sage",
            widths(small(ModelConfig::sage(FEATURES, CLASSES))),
        ),
        (
            "stored gat",
            widths(small(ModelConfig::of(heads(1), FEATURES, CLASSES))),
        ),
    ];
    for (name, config) in kinds {
        for messages in [None, Some(CodeFormat::Int8)] {
            let store = Some(Store::EightBit);
            let stored = ModelConfig {
                messages,
                store,
                ..config.clone()
            };
            models.push((name, stored));
        }
    }
    for norm in HiddenNorm::ALL {
        let normed = ModelConfig {
            hidden_norm: norm,
            dropout: 0.0,
            ..gcn()
        };
        models.push(("gcn with a norm", normed));
    }
    models
}

/// Whether a model is trained in a precision: bfloat16 has no sums of its own, and what is quantized is so of 16 bits.
fn is_in<E: Element>(config: &ModelConfig) -> bool {
    let is_in_half = config.policy.accumulate == Accumulate::Half;
    let is_quantized = config.messages.is_some() || config.store.is_some();
    match E::PRECISION {
        Precision::Half => true,
        Precision::BFloat16 => !is_in_half,
        Precision::Float => !is_quantized,
    }
}

fn both<B: Backend, E: Element>(backend: &B, blocks: bool) {
    for (name, config) in models() {
        if (blocks && config.jumping.is_some()) || !is_in::<E>(&config) {
            continue;
        }
        let new = || Network::<B, E>::new(backend, &config, SEED).expect("a model");
        let program = program::Network::<B, E>::new(backend, &config, SEED).expect("a model");
        let (expected, found) = match blocks {
            false => (
                whole(backend, &config, new()),
                whole(backend, &config, program),
            ),
            true => (
                sampled(backend, &config, new()),
                sampled(backend, &config, program),
            ),
        };
        let what = format!("{name} in {}, blocks: {blocks}", E::PRECISION);
        // Some sums are rounded once here and twice there: of two gradients, or of a bias before another activation than a ReLU.
        let is_same = !matches!(
            name,
            "gatv2"
                | "residual gcn"
                | "gcn with elu"
                | "gcn with the largest of its layers"
                | "gcn with the features and all layers"
                | "appnp"
                | "gcnii"
        );
        // A block has fewer destinations than sources, so a sum comes before a product of as many columns.
        let is_same = is_same && !(blocks && name.starts_with("gin"));
        let share = match E::PRECISION {
            _ if is_same => 0.0,
            Precision::Float => 1e-5,
            // Rounding is eight times as coarse as in half, and of this one a bias is more than 0.05 off.
            Precision::BFloat16 if name == "gcn with the features and all layers" => 0.15,
            _ => 0.05,
        };
        assert_same(&what, &expected, &found, share);
    }
}

#[test]
fn a_network_of_formulas_trains_as_the_network_of_layers() {
    let backend = Cpu::new();
    both::<_, f32>(&backend, false);
    both::<_, f16>(&backend, false);
    both::<_, bf16>(&backend, false);
}

#[test]
fn a_network_of_formulas_trains_on_sampled_blocks_as_the_network_of_layers() {
    let backend = Cpu::new();
    both::<_, f32>(&backend, true);
    both::<_, f16>(&backend, true);
}

/// Steps and evaluations are recorded and replayed there.
#[test]
fn a_network_of_formulas_trains_on_the_emulator_as_the_network_of_layers() {
    let driver = Emulated::new();
    let kernels = Kernels::find(Some(driver.info().compute_capability)).expect("the kernels");
    let emulated = Gpu::new(driver, kernels).expect("the PTX fits this program");
    for (name, config) in models().into_iter().take(3) {
        let of_layers = Network::<_, f16>::new(&emulated, &config, SEED).expect("a model");
        let of_formulas = program::Network::<_, f16>::new(&emulated, &config, SEED);
        let expected = whole(&emulated, &config, of_layers);
        let found = whole(&emulated, &config, of_formulas.expect("a model"));
        assert_same(name, &expected, &found, 0.0);
    }
}

/// The peak of a few steps and evaluations.
fn peak<M: Model<Cpu, f16>>(config: &ModelConfig, new: impl FnOnce(&Cpu) -> M) -> u64 {
    let backend = Cpu::new();
    let model = new(&backend);
    whole(&backend, config, model);
    backend.memory().peak[MemoryKind::Activations as usize]
}

#[test]
fn training_and_evaluation_share_memory() {
    for (name, config) in models() {
        let of_layers = peak(&config, |backend| {
            Network::<_, f16>::new(backend, &config, SEED).expect("a model")
        });
        let of_formulas = peak(&config, |backend| {
            program::Network::<_, f16>::new(backend, &config, SEED).expect("a model")
        });
        // The gradient that is left of a maximum is not written over that of the maximum, and a sum of quantized gradients over none.
        let of_width = (graph().vertices() * config.hidden * size_of::<f16>()) as u64;
        let more = match (config.jumping, config.messages) {
            (None, None) => 0,
            _ => of_width,
        };
        assert!(
            of_formulas <= of_layers + more,
            "{name}: {of_formulas} bytes, and {of_layers} of the network of layers"
        );
    }
}

/// Logits, and the activations of the first layer.
fn in_pieces<E: Element>(config: &ModelConfig, mut model: impl Model<Cpu, E>) -> Vec<Vec<f32>> {
    let (backend, graph) = (Cpu::new(), graph());
    let edges = EdgeData::default();
    let prepared = config.prepare_edges(&graph, edges).expect("edges");
    let pieces = Pieces::new(&prepared, config, 3).expect("a cut");
    let rows = features::<_, E>(&backend).into();
    let read = |model: &dyn Model<Cpu, E>| model.logits().to_f32(&backend).expect("logits");
    model
        .forward_in_pieces(&backend, &rows, &pieces, &[])
        .expect("a pass");
    let all = read(&model);
    let pieces = pieces.asked_for(vec![3, 20, 4]);
    model
        .forward_in_pieces(&backend, &rows, &pieces, &[0])
        .expect("a pass");
    vec![all, read(&model)]
}

#[test]
fn a_network_of_formulas_is_evaluated_in_pieces_as_the_network_of_layers() {
    fn of<E: Element>() {
        let backend = Cpu::new();
        for (name, config) in models() {
            let left_out = !is_in::<E>(&config) || config.jumping.is_some();
            if left_out || config.wants_all_vertices().is_some() {
                continue;
            }
            let (layers, formulas) = (
                Network::<_, E>::new(&backend, &config, SEED).expect("a model"),
                Network::<_, E>::of_formulas(&backend, &config, SEED).expect("a model"),
            );
            let [expected, found] = [layers, formulas].map(|model| in_pieces(&config, model));
            assert_eq!(expected[0].len(), graph().vertices() * CLASSES, "{name}");
            assert_eq!(expected[1].len(), 3 * CLASSES, "{name}");
            // A piece has fewer destinations than sources, so a sum comes before a product of as many columns.
            let share = match E::PRECISION {
                Precision::Float => 1e-6,
                _ => 0.01,
            };
            for (expected, found) in expected.iter().zip(&found) {
                let pairs = expected.iter().zip(found);
                let largest = expected.iter().fold(0.0_f32, |most, it| most.max(it.abs()));
                assert!(largest > 0.0, "{name}");
                for (expected, found) in pairs {
                    let off = (expected - found).abs();
                    assert!(off <= share * largest, "{name}: {expected} and {found}");
                }
            }
        }
    }
    of::<f32>();
    of::<f16>();
}
