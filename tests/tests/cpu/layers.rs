//! Layers of the caller's own in a network: trained, kept, estimated; and what is refused.

use halfgnn::backend::cpu::Cpu;
use halfgnn::backend::{MemoryKind, Storage};
use halfgnn::graph::GraphCounts;
use halfgnn::nn::{Mode, Model, ModelConfig, Network, Norm, OtherLayers, OwnLayers};
use halfgnn::program::layers::{Dense, Layer, LayerSetting, Reads};
use halfgnn::program::{Builder, Edges, OwnCall, OwnOperands, OwnOperator, Shape, Value};
use halfgnn::tensor::Element;
use halfgnn::train::{Footprint, TrainConfig, Trainer};
use halfgnn::{Error, ops};
use halfgnn_tests::toy::Toy;
use std::sync::Arc;

/// `x ⊙ x`, whose gradient is `2 · x ⊙ d`.
#[derive(Debug)]
struct Square;

/// The gradient of [`Square`].
#[derive(Debug)]
struct SquareGradient;

/// `factor · x ⊙ y` on the CPU in float.
fn product(of: OwnOperands<'_, Cpu, f32>, [x, y]: [usize; 2], factor: f32) -> Result<(), Error> {
    let (backend, result) = (of.backend, of.result);
    ops::multiply(backend, Some(of.operands[x]), of.operands[y], result)?;
    let times = ops::Combine {
        x_factor: 0.0,
        y_factor: factor,
        ..ops::Combine::copy()
    };
    ops::combine(backend, &times, of.operands[x], result)
}

impl OwnOperator for Square {
    fn name(&self) -> &str {
        "square"
    }

    fn shape(&self, operands: &[Shape]) -> Result<Shape, String> {
        match operands {
            [x] => Ok(*x),
            _ => Err("one operand is expected".into()),
        }
    }

    fn gradient(&self, number: usize) -> Option<Arc<dyn OwnOperator>> {
        assert_eq!(number, 0);
        Some(Arc::new(SquareGradient))
    }

    fn run(&self, call: OwnCall<'_>) -> Result<(), Error> {
        product(call.on()?, [0, 0], 1.0)
    }
}

impl OwnOperator for SquareGradient {
    fn name(&self) -> &str {
        "square_gradient"
    }

    fn shape(&self, operands: &[Shape]) -> Result<Shape, String> {
        Ok(operands[0])
    }

    fn gradient(&self, _number: usize) -> Option<Arc<dyn OwnOperator>> {
        None
    }

    fn run(&self, call: OwnCall<'_>) -> Result<(), Error> {
        product(call.on()?, [0, 2], 2.0)
    }
}

/// The sum over neighbours after a linear map, and its square where it is wanted.
#[derive(Debug)]
struct Sum {
    edges: Edges,
    outputs: usize,
    square: Option<Arc<dyn OwnOperator>>,
}

impl Layer for Sum {
    fn build(&self, g: &mut Builder, x: Value) -> Value {
        let weight = g.weight("weight", (g.columns(x), self.outputs));
        let product = g.matmul(x, weight);
        let y = g.aggregate(self.edges, product);
        match &self.square {
            Some(square) => g.own(square, &[y]),
            None => y,
        }
    }
}

/// A dense layer and two of [`Sum`].
#[derive(Debug)]
struct Sums {
    squares: bool,
    decay: f32,
}

impl OwnLayers for Sums {
    fn layer(&self, model: &ModelConfig, number: usize, reads: Reads) -> Box<dyn Layer> {
        let outputs = self.settings(model)[number].outputs;
        if number == 0 {
            return Box::new(Dense { outputs });
        }
        let square: Arc<dyn OwnOperator> = Arc::new(Square);
        Box::new(Sum {
            edges: reads.edges,
            outputs,
            square: (self.squares && number == 1).then_some(square),
        })
    }

    fn settings(&self, model: &ModelConfig) -> Vec<LayerSetting> {
        let dense = LayerSetting {
            is_hidden: true,
            decay: self.decay,
            ..LayerSetting::dense(model.hidden, 0.3)
        };
        let sum = |outputs, is_hidden| LayerSetting {
            aggregates: true,
            is_hidden,
            is_residual: is_hidden,
            decay: self.decay,
            ..LayerSetting::dense(outputs, 0.0)
        };
        vec![dense, sum(model.hidden, true), sum(model.classes, false)]
    }

    fn norm(&self) -> Norm {
        Norm::Right
    }
}

fn config(squares: bool, decay: f32) -> ModelConfig {
    let layers = OtherLayers::new("sums", Arc::new(Sums { squares, decay }));
    ModelConfig {
        hidden: 6,
        ..ModelConfig::of(layers, 5, 3)
    }
}

fn trainer(backend: &Cpu, toy: &Toy, config: &ModelConfig) -> Trainer<Cpu, f32, Network<Cpu, f32>> {
    let objective = toy.objective::<_, f32>(backend, config.norm());
    let train = TrainConfig::new(f32::PRECISION);
    let model = Network::new(backend, config, train.seed).expect("a model");
    Trainer::new(backend, &objective, model, train).expect("memory")
}

#[test]
fn layers_of_the_callers_own_are_trained_kept_and_estimated() {
    let (backend, toy) = (Cpu::new(), Toy::new(5));
    let config = config(false, 1.0);
    let train = TrainConfig::new(f32::PRECISION);
    let counts = GraphCounts::of(&toy.graph);
    let estimated = Footprint::of_training::<f32>(&counts, &config, &train, None);
    let estimated = estimated.expect("a model");

    let mut first = trainer(&backend, &toy, &config);
    for _ in 0..3 {
        first.step().expect("a step");
    }
    first.evaluate().expect("an evaluation");
    let memory = backend.memory();
    for kind in MemoryKind::ALL {
        assert_eq!(memory.peak[kind as usize], estimated.of(kind), "{kind}");
    }
    let names: Vec<_> = first
        .model()
        .parameters()
        .iter()
        .map(|p| p.name().to_owned())
        .collect();
    assert_eq!(
        names[..3],
        ["layers.0.weight", "layers.0.bias", "layers.1.weight"]
    );

    let kept = first.snapshot().expect("kept");
    let mut second = trainer(&backend, &toy, &config);
    second.restore(&kept).expect("the same model");
    for trainer in [&mut first, &mut second] {
        trainer.step().expect("a step");
    }
    assert_eq!(first.loss().expect("there"), second.loss().expect("there"));
    let tensors = |trainer: &Trainer<_, _, _>| trainer.snapshot().expect("kept").tensors;
    assert_eq!(tensors(&first), tensors(&second));
}

/// The gradient of each weight is the difference of the loss at both sides of it.
#[test]
fn an_operator_of_the_callers_own_has_its_gradient() {
    let (backend, toy) = (Cpu::new(), Toy::new(5));
    let config = ModelConfig {
        dropout: 0.0,
        ..config(true, 1.0)
    };
    let without_dropout = |trainer: &mut Trainer<Cpu, f32, Network<Cpu, f32>>| {
        trainer.gradients().expect("a pass");
        trainer.loss().expect("a loss")
    };
    let mut trainer = trainer(&backend, &toy, &config);
    without_dropout(&mut trainer);
    let scale = trainer.optimizer().expect("there").loss_scale;
    let number = trainer
        .model()
        .parameters()
        .iter()
        .position(|it| it.name() == "layers.1.weight");
    let number = number.expect("the model has it");
    let read = |trainer: &Trainer<Cpu, f32, Network<Cpu, f32>>| {
        let parameter = trainer.model().parameters()[number];
        let values = parameter.master().to_f32(&backend).expect("there");
        (
            values,
            parameter.gradient().to_f32(&backend).expect("there"),
        )
    };
    let (weights, gradient) = read(&trainer);
    let largest = gradient.iter().fold(0.0_f32, |most, it| most.max(it.abs())) / scale;
    assert!(largest > 1e-3, "{gradient:?}");
    for (at, measured) in gradient.iter().enumerate() {
        let mut loss_at = |step: f32| {
            let mut moved = weights.clone();
            moved[at] += step;
            let mut parameters = trainer.model_mut().parameters_mut();
            parameters[number].write(&backend, &moved).expect("memory");
            f64::from(without_dropout(&mut trainer))
        };
        let expected = (loss_at(1e-2) - loss_at(-1e-2)) / 2e-2;
        let off = (f64::from(measured / scale) - expected).abs();
        assert!(
            off <= 0.02 * f64::from(largest),
            "{at}: {measured} and {expected}"
        );
    }
}

#[test]
fn what_does_not_fit_is_refused() {
    let backend = Cpu::new();
    let message = |config: &ModelConfig| {
        let refused = Network::<Cpu, f32>::new(&backend, config, 0);
        refused.expect_err("refused").to_string()
    };
    let without = OtherLayers {
        layers: None,
        ..OtherLayers::new(
            "mine",
            Arc::new(Sums {
                squares: false,
                decay: 1.0,
            }),
        )
    };
    let text = message(&ModelConfig::of(without, 2, 2));
    assert!(
        text.contains("`mine` is no model of this program"),
        "{text}"
    );
    let none = ModelConfig {
        layers: 0,
        ..ModelConfig::gcn(2, 2)
    };
    assert!(message(&none).contains("0 layers"));
    // An operator that is written for floats on the CPU.
    let toy = Toy::new(5);
    let config = config(true, 1.0);
    let objective = toy.objective::<_, half::f16>(&backend, config.norm());
    let train = TrainConfig::new(half::f16::PRECISION);
    let model = Network::new(&backend, &config, train.seed).expect("a model");
    let mut trainer = Trainer::new(&backend, &objective, model, train).expect("memory");
    let refused = trainer.step().expect_err("another precision").to_string();
    assert!(
        refused.contains("square is not written for this backend"),
        "{refused}"
    );
}

/// Features of zeros have no gradient: what moves is moved by the weight decay alone.
#[test]
fn a_parameter_decays_by_its_own_factor() {
    let backend = Cpu::new();
    let toy = Toy {
        features: vec![0.0; 14 * 5],
        ..Toy::new(5)
    };
    let weights = |factor| {
        let mut trainer = trainer(&backend, &toy, &config(false, factor));
        assert_eq!(trainer.model().parameters()[0].decay(), factor);
        let read = |trainer: &Trainer<Cpu, f32, Network<Cpu, f32>>| {
            let weight = trainer.model().parameters()[0].master();
            weight.to_f32(&backend).expect("there")
        };
        let before = read(&trainer);
        trainer.step().expect("a step");
        (before, read(&trainer))
    };
    let (before, after) = weights(0.0);
    assert_eq!(before, after);
    let (before, after) = weights(1.0);
    assert_ne!(before, after);
}

/// The linear layers of a GCNII have a twentieth of the weight decay, 5e-4, and only the first of an APPNP has any.
#[test]
fn models_decay_as_their_papers_say() {
    let decays = |config: ModelConfig| {
        let model = Network::<Cpu, f32>::new(&Cpu::new(), &config, 0).expect("a model");
        let all = model.parameters().into_iter();
        all.map(|p| p.decay() * config.weight_decay())
            .collect::<Vec<_>>()
    };
    let kinds = halfgnn::nn::ConvolutionConfig::kinds();
    let of = |name| {
        let kind = kinds
            .iter()
            .find(|kind| kind.name == name)
            .expect("a model");
        let model = ModelConfig::of(kind.convolution.clone(), 4, 3);
        decays(ModelConfig { layers: 2, ..model })
    };
    assert_eq!(of("appnp"), [5e-3, 5e-3, 0.0, 0.0]);
    assert_eq!(of("gcnii"), [5e-4, 5e-4, 1e-2, 1e-2, 5e-4, 5e-4]);
    assert_eq!(of("gin").iter().filter(|decay| **decay != 1e-2).count(), 0);
}

/// A model that has seen one graph computes on another.
#[test]
fn a_model_knows_widths_and_no_vertices() {
    let backend = Cpu::new();
    let kinds = halfgnn::nn::ConvolutionConfig::kinds();
    for kind in kinds {
        let config = ModelConfig {
            layers: 2,
            ..ModelConfig::of(kind.convolution, 5, 3)
        };
        let toy = Toy::new(5);
        let few = Toy {
            graph: halfgnn::graph::Graph::from_edges(3, &[0, 1, 2], &[1, 2, 2]).expect("a graph"),
            features: toy.features[..15].to_vec(),
            labels: vec![0, 1, 2],
            splits: [vec![0], vec![1], vec![2]],
            ..Toy::new(5)
        };
        let mut model = Network::<Cpu, f32>::new(&backend, &config, 0).expect("a model");
        assert_eq!(model.logits().shape(), (0, 3));
        let logits = |toy: &Toy, model: &mut Network<Cpu, f32>| {
            let objective = toy.objective::<_, f32>(&backend, config.norm());
            model
                .forward(objective.inputs(&backend), Mode::Evaluate)
                .expect("a pass");
            model.logits().to_f32(&backend).expect("there")
        };
        let first = logits(&toy, &mut model);
        assert_eq!(logits(&few, &mut model).len(), 9);
        assert_eq!(logits(&toy, &mut model), first, "{}", kind.name);
    }
}
