//! Models whose layers are formulas alone, in training: on whole graphs, on sampled blocks and subgraphs.

use super::network::shaped;
use super::trained::{Trace, sampled, whole};
use half::f16;
use halfgnn::backend::Backend;
use halfgnn::backend::cpu::Cpu;
use halfgnn::backend::gpu::Gpu;
use halfgnn::driver::Driver;
use halfgnn::driver::emulated::Emulated;
use halfgnn::kernels::Kernels;
use halfgnn::nn::{
    Arma, ConvolutionConfig, GatedGraph, MixHop, ModelConfig, Network, Sg, Ssg, Tag, Transformer,
};
use halfgnn::tensor::{Element, Precision};

const FEATURES: usize = 12;
const CLASSES: usize = 3;

/// Models of the command line whose layers combine several sums.
pub const FORMULAS: [&str; 17] = [
    "graphconv",
    "sg",
    "ssg",
    "tag",
    "cheb",
    "arma",
    "mixhop",
    "clustergcn",
    "leconv",
    "gatedgraph",
    "transformer",
    "gine",
    "resgated",
    "cg",
    "edge",
    "gen",
    "pna",
];

fn model(kind: impl Into<ConvolutionConfig>) -> ModelConfig {
    shaped(ModelConfig::of(kind, FEATURES, CLASSES), 2, 8, 0.0)
}

fn customary() -> Vec<ModelConfig> {
    let kinds = ConvolutionConfig::kinds().into_iter();
    let kinds = kinds.filter(|kind| FORMULAS.contains(&kind.name));
    kinds.map(|kind| model(kind.convolution)).collect()
}

/// Losses of the steps, in their order.
fn losses(trace: &Trace) -> Vec<f32> {
    let losses = trace.iter().filter(|(name, _)| name.starts_with("loss"));
    losses.map(|(_, loss)| loss[0]).collect()
}

fn learns<B: Backend, E: Element>(backend: &B, config: &ModelConfig) {
    let what = format!("{} in {}", config.convolution, E::PRECISION);
    let network = Network::<B, E>::new(backend, config, 4);
    let network = network.unwrap_or_else(|error| panic!("{what}: {error}"));
    let losses = losses(&whole(backend, config, network));
    let (first, last) = (losses[0], losses[losses.len() - 1]);
    // Sums of a hub's neighbours are so large that the first steps in half bring the loss scale down, and nothing else.
    let has_large_sums = ["leconv", "cg"].contains(&config.convolution.name());
    let scales_first = has_large_sums && E::PRECISION == Precision::Half;
    assert!(
        last < first || (scales_first && last == first),
        "{what}: {losses:?}"
    );
}

#[test]
fn every_formula_is_trained_on_a_whole_graph() {
    assert_eq!(customary().len(), FORMULAS.len());
    for config in customary() {
        learns::<_, f32>(&Cpu::new(), &config);
        learns::<_, f16>(&Cpu::new(), &config);
    }
}

/// Options that give a layer other operators.
#[test]
fn options_are_trained() {
    let beta = Transformer {
        heads: 2,
        beta: true,
        attention_dropout: 0.2,
        ..Transformer::default()
    };
    let arma = Arma {
        stacks: 2,
        steps: 2,
        root_dropout: 0.1,
        ..Arma::default()
    };
    for config in [model(beta), model(arma)] {
        learns::<_, f16>(&Cpu::new(), &config);
    }
}

#[test]
fn formulas_are_trained_on_the_emulator() {
    let driver = Emulated::new();
    let kernels = Kernels::find(Some(driver.info().compute_capability)).expect("the kernels");
    let emulated = Gpu::new(driver, kernels).expect("the PTX fits this program");
    for config in customary() {
        learns::<_, f16>(&emulated, &config);
    }
}

/// Layers of one hop.
#[test]
fn formulas_of_one_hop_are_trained_on_sampled_blocks() {
    let one_hop = customary().into_iter().filter(|config| {
        let name = config.convolution.name();
        !matches!(name, "tag" | "cheb" | "mixhop" | "gatedgraph")
    });
    let one_step = GatedGraph { steps: 1 };
    for config in one_hop.chain([model(one_step)]) {
        let name = config.convolution.name();
        let network = Network::<Cpu, f16>::new(&Cpu::new(), &config, 4).expect("a model");
        let losses = losses(&sampled(&Cpu::new(), &config, network));
        assert!(
            losses.iter().all(|loss| loss.is_finite()),
            "{name}: {losses:?}"
        );
    }
}

#[test]
fn options_out_of_range_are_refused_in_a_few_words() {
    let text = |config: ModelConfig| {
        let refused = Network::<Cpu, f32>::new(&Cpu::new(), &config, 4);
        refused.expect_err("an option out of range").to_string()
    };
    let hops = |hops| {
        model(Sg {
            hops,
            ..Sg::default()
        })
    };
    assert_eq!(
        text(hops(0)),
        "Network: 0 hops, steps or terms of a layer; there can be 1 to 1000"
    );
    let powers = |powers| MixHop {
        powers,
        ..MixHop::default()
    };
    assert_eq!(
        text(model(powers(vec![0, 2, 2]))),
        "Network: the power 2 is there twice"
    );
    let narrow = ModelConfig {
        hidden: 2,
        ..model(MixHop::default())
    };
    assert_eq!(
        text(narrow),
        "Network: 3 powers share the columns of a hidden layer, which has 2; take at least 3"
    );
    let alpha = Ssg {
        alpha: 1.5,
        ..Ssg::default()
    };
    assert_eq!(text(model(alpha)), "Network: α 1.5 should be in [0, 1)");
    let gate = Transformer {
        beta: true,
        root_weight: false,
        ..Transformer::default()
    };
    let refused = text(model(gate));
    assert!(
        refused.contains("leave one of beta and no-root-weight away"),
        "{refused}"
    );
    let mut tag = ConvolutionConfig::from(Tag::default());
    assert_eq!(
        tag.set("hops", "many"),
        Err("it must be a whole number from 0 to 1000".into())
    );
    tag.set("norm", "in").expect("a norm");
    assert_eq!(
        tag,
        Tag {
            norm: halfgnn::nn::Norm::In,
            ..Tag::default()
        }
        .into()
    );
    let mut mixhop = ConvolutionConfig::from(MixHop::default());
    mixhop.set("powers", "0, 3").expect("powers");
    assert_eq!(mixhop, powers(vec![0, 3]).into());
    assert!(mixhop.set("powers", "0,x").is_err());
}

/// What a checkpoint leaves out has its default.
#[test]
fn configurations_may_leave_options_out() {
    let read: ConvolutionConfig = serde_json::from_str(r#"{"tag":{"hops":2}}"#).expect("a model");
    assert_eq!(
        read,
        Tag {
            hops: 2,
            ..Tag::default()
        }
        .into()
    );
}
