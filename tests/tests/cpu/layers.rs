//! Layers that somebody else writes: in a network, trained, kept, foretold; and what is refused.

use halfgnn::backend::cpu::Cpu;
use halfgnn::backend::{Backend, MemoryKind, Storage};
use halfgnn::graph::GraphCounts;
use halfgnn::nn::{
    Aggregation, Context, Dense, InputGradient, Layer, Mode, Model, ModelConfig, Network, Norm,
    Output, OutputGradient, Parameter, Place, Stage,
};
use halfgnn::ops::{Epilogue, Form, SpmmEpilogue, SpmmPolicy};
use halfgnn::tensor::{Element, Matrix};
use halfgnn::train::{Footprint, Objective, TrainConfig, Trainer};
use halfgnn::{Error, ops};
use halfgnn_tests::toy::Toy;

/// What a [`Mean`] does with what is around it.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Manners {
    /// It lets its last operators do what they can.
    Fused,
    /// It takes everything for plain matrices.
    Plain,
    /// It forgets its output.
    NoOutput,
    /// It forgets the gradient of its input.
    NoGradient,
    /// It reads the initial rows.
    ReadsInitial,
}

/// `D⁻¹ · A · (H · W)`
#[derive(Debug)]
struct Mean<B: Backend, E: Element> {
    weight: Parameter<B, E>,
    manners: Manners,
}

const SUM: Aggregation = Aggregation {
    policy: SpmmPolicy::DEFAULT,
    factor: 1.0,
};

impl<B: Backend, E: Element> Layer<B, E> for Mean<B, E> {
    fn widths(&self) -> (usize, usize) {
        self.weight.shape()
    }

    fn forward(
        &mut self,
        at: &mut Context<'_, B, E>,
        x: &Matrix<B, E>,
        y: &mut Output<'_, B, E>,
    ) -> Result<(), Error> {
        let mut product = at.take(y.columns())?;
        let (backend, plain) = (at.backend, Epilogue::default());
        let weight = self.weight.values();
        ops::matmul(backend, Form::NN, x, weight, &plain, &mut product)?;
        let plain = SpmmEpilogue::default();
        match self.manners {
            Manners::NoOutput => {}
            Manners::ReadsInitial => drop(at.initial()?),
            Manners::Plain => SUM.forward(at, false, plain, &product, y.matrix())?,
            _ => y.aggregate(at, SUM, false, None, &product)?,
        }
        at.give(product);
        Ok(())
    }

    fn backward(
        &mut self,
        at: &mut Context<'_, B, E>,
        x: &Matrix<B, E>,
        dy: &mut OutputGradient<'_, B, E>,
        dx: &mut InputGradient<'_, B, E>,
    ) -> Result<(), Error> {
        let mut product = at.take(dy.matrix().columns())?;
        let (backend, none) = (at.backend, SpmmEpilogue::default());
        SUM.backward(at, false, none, dy.matrix(), &mut product)?;
        if self.manners == Manners::Plain {
            // What it overwrites is summed up before.
            let zero = halfgnn::ops::Combine {
                x_factor: 0.0,
                ..halfgnn::ops::Combine::copy()
            };
            ops::combine(backend, &zero, &product, dy.overwrite()?)?;
        }
        let plain = Epilogue::default();
        let (weight, gradient) = self.weight.values_and_gradient();
        ops::matmul(backend, Form::TN, x, &product, &plain, gradient)?;
        match self.manners {
            Manners::NoGradient => {}
            Manners::Plain => {
                let dx = dx.matrix(at)?;
                ops::matmul(backend, Form::NT, &product, weight, &plain, dx)?;
            }
            _ => dx.product(at, &product, weight)?,
        }
        at.give(product);
        Ok(())
    }

    fn parameters(&self) -> Vec<&Parameter<B, E>> {
        vec![&self.weight]
    }

    fn parameters_mut(&mut self) -> Vec<&mut Parameter<B, E>> {
        vec![&mut self.weight]
    }
}

/// A dense layer and two of [`Mean`], with everything around them that there can be.
fn network<B: Backend, E: Element>(
    backend: &B,
    manners: Manners,
    dropout: f32,
) -> Result<Network<B, E>, Error> {
    let place = |layer| Place { layer, seed: 3 };
    let mean = |layer, widths| {
        let weight = place(layer).weights(backend, "weight", widths, 0)?;
        Ok::<_, Error>(Mean { weight, manners })
    };
    let dense = Dense::new(backend, place(0), (5, 6))?;
    Network::from_layers(
        backend,
        [
            Stage::new(dense).bias().relu().dropout(dropout),
            Stage::new(mean(1, (6, 6))?).bias().relu().residual(),
            Stage::new(mean(2, (6, 6))?).bias().relu(),
            Stage::new(mean(3, (6, 3))?).bias().dropout(dropout),
        ],
    )
}

fn message<T>(result: Result<T, Error>) -> String {
    result.err().expect("it is refused").to_string()
}

fn task(backend: &Cpu) -> Objective<Cpu, f32> {
    Toy::new(5).objective(backend, Norm::Right)
}

#[test]
fn a_layer_that_takes_no_part_in_fusion_computes_the_same() {
    let backend = Cpu::new();
    let objective = task(&backend);
    let run = |manners| {
        let model = network(&backend, manners, 0.3).expect("a model");
        let mut trainer = Trainer::new(
            &backend,
            &objective,
            model,
            TrainConfig::new(f32::PRECISION),
        )
        .expect("room");
        trainer.gradients().expect("a pass");
        let gradients = trainer.model().parameters().into_iter().map(|parameter| {
            let name = parameter.name().to_owned();
            (name, parameter.gradient().to_f32(&backend).expect("there"))
        });
        gradients.collect::<Vec<_>>()
    };
    let (fused, plain) = (run(Manners::Fused), run(Manners::Plain));
    assert_eq!(fused.len(), 8);
    for ((name, fused), (_, plain)) in fused.iter().zip(&plain) {
        assert!(fused.iter().any(|value| *value != 0.0), "{name}");
        for (a, b) in fused.iter().zip(plain) {
            assert!(
                (a - b).abs() <= 1e-5 * (1.0 + a.abs()),
                "{name}: {a} and {b}"
            );
        }
    }
}

#[test]
fn layers_of_somebody_elses_are_trained_kept_and_foretold() {
    let backend = Cpu::new();
    let objective = task(&backend);
    let trainer = || {
        let model = network(&backend, Manners::Fused, 0.3).expect("a model");
        let train = TrainConfig::new(f32::PRECISION);
        Trainer::new(&backend, &objective, model, train).expect("room")
    };
    let counts = GraphCounts::of(&Toy::new(5).graph);
    let make = |backend: &_| network::<_, f32>(backend, Manners::Fused, 0.3);
    let train = TrainConfig::new(f32::PRECISION);
    let foretold = Footprint::of_model(&counts, Norm::Right, [5, 3], &train, None, make);
    let foretold = foretold.expect("a model");

    let mut first = trainer();
    for _ in 0..3 {
        first.step().expect("a step");
    }
    first.evaluate().expect("an evaluation");
    let memory = backend.memory();
    for kind in MemoryKind::ALL {
        assert_eq!(memory.peak[kind as usize], foretold.of(kind), "{kind}");
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
    let mut second = trainer();
    second.restore(&kept).expect("the same model");
    for trainer in [&mut first, &mut second] {
        trainer.step().expect("a step");
    }
    assert_eq!(first.loss().expect("there"), second.loss().expect("there"));
    let tensors = |trainer: &Trainer<_, _, _>| trainer.snapshot().expect("kept").tensors;
    assert_eq!(tensors(&first), tensors(&second));
}

#[test]
fn what_a_layer_forgets_is_told() {
    let backend = Cpu::new();
    let objective = task(&backend);
    let run = |manners| {
        let model = network(&backend, manners, 0.0).expect("a model");
        let train = TrainConfig::new(f32::PRECISION);
        let mut trainer = Trainer::new(&backend, &objective, model, train).expect("room");
        message(trainer.step())
    };
    assert!(run(Manners::NoOutput).contains("layer 1 returned without writing its output"));
    let text = run(Manners::NoGradient);
    assert!(
        text.contains("layer 3 returned without writing the gradient"),
        "{text}"
    );
    let text = run(Manners::ReadsInitial);
    assert!(text.contains("layer 1 reads the initial rows"), "{text}");
}

#[test]
fn stages_that_do_not_fit_are_refused() {
    let backend = &Cpu::new();
    let dense = |inputs, outputs| {
        let place = Place { layer: 0, seed: 0 };
        let dense = Dense::<Cpu, f32>::new(backend, place, (inputs, outputs)).expect("room");
        Stage::new(dense)
    };
    let refused = |stages: Vec<_>| message(Network::from_layers(backend, stages));
    assert!(refused(vec![]).contains("0 layers"));
    let text = refused(vec![dense(2, 3), dense(4, 5)]);
    assert!(
        text.contains("layer 1 reads rows of 4") && text.contains("rows of 3"),
        "{text}"
    );
    assert!(refused(vec![dense(2, 3).dropout(1.0)]).contains("dropout probability 1"));
    assert!(refused(vec![dense(2, 3).residual()]).contains("2 columns to its output of 3"));
    let two = vec![dense(2, 2).initial(), dense(2, 2).initial()];
    assert!(refused(two).contains("layer 1 is the second"));
    let mut clash = ModelConfig::gcn(2, 2);
    clash.layers = 0;
    assert!(message(Network::<Cpu, f32>::new(backend, &clash, 0)).contains("0 layers"));
}

/// Two layers without any gradient: what moves is moved by the weight decay alone.
#[test]
fn a_parameter_decays_by_its_own_factor() {
    let backend = Cpu::new();
    let toy = Toy {
        features: vec![0.0; 14 * 5],
        ..Toy::new(5)
    };
    let objective = toy.objective::<_, f32>(&backend, Norm::Right);
    let weights = |factor| {
        let dense = Dense::new(&backend, Place { layer: 0, seed: 1 }, (5, 3)).expect("room");
        let mut stage = Stage::new(dense);
        stage.decay(factor);
        let model = Network::from_layers(&backend, [stage]).expect("a model");
        assert_eq!(model.parameters()[0].decay(), factor);
        let train = TrainConfig::new(f32::PRECISION);
        let mut trainer = Trainer::new(&backend, &objective, model, train).expect("room");
        let read = |trainer: &Trainer<Cpu, f32, Network<Cpu, f32>>| {
            trainer.model().parameters()[0]
                .master()
                .to_f32(&backend)
                .expect("there")
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
