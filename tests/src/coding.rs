//! Codes that an operator makes of its result where it writes it: by `==` with those that `quantize` makes of the same result.

use crate::input::{KIND, Random, bits, elements, matrix, read, rounded, unwritten};
use crate::{Scale, task};
use half::{bf16, f16};
use halfgnn::Error;
use halfgnn::backend::Backend;
use halfgnn::nn::{
    Context, GcnLayer, HiddenNorm, InputGradient, Layer, Network, Norm, Output, OutputGradient,
    Parameter, Place, SageLayer, SentBack, Stage,
};
use halfgnn::ops::{
    self, CodeFormat, Coding, Epilogue, Form, MatmulFusion, Normalization, NormalizationGradients,
    QuantizedMatrix, RandomState, Rounding, SpmmPolicy, Unrepresented,
};
use halfgnn::tensor::{Array, Element, Matrix, Precision};
use halfgnn::train::{TrainConfig, Trainer};

/// What is told of codes: their words, padding among them, the largest magnitudes and the counts.
type Told = (Vec<u32>, Vec<f32>, Unrepresented);

/// How codes are made.
#[derive(Clone, Copy, Debug)]
struct Way {
    format: CodeFormat,
    drawn: bool,
    /// Whether rows have factors, a NaN among them.
    scaled: bool,
    alone: bool,
}

impl Way {
    /// Enough of them that each choice meets every other.
    const ALL: [Self; 5] = [
        Self::new(CodeFormat::Int8, [false, false, true]),
        Self::new(CodeFormat::Int8, [true, true, true]),
        Self::new(CodeFormat::Int8, [true, false, false]),
        Self::new(CodeFormat::E4m3, [false, true, false]),
        Self::new(CodeFormat::E4m3, [true, false, true]),
    ];

    const fn new(format: CodeFormat, [drawn, scaled, alone]: [bool; 3]) -> Self {
        Self {
            format,
            drawn,
            scaled,
            alone,
        }
    }

    /// Codes with scales that some of the numbers exceed, in memory that was another's: padding has to be written as well.
    fn room<B: Backend>(
        self,
        backend: &B,
        shape @ (_, columns): (usize, usize),
    ) -> QuantizedMatrix<B> {
        let mut codes = QuantizedMatrix::zeros(backend, shape, self.format, KIND).expect("room");
        let scales: Vec<f32> = (0..columns)
            .map(|column| (1.0 + column as f32 / 50.0) / self.format.limit())
            .collect();
        codes.scales_mut().write(backend, &scales).expect("legal");
        let old = QuantizedMatrix::<B>::words(shape.0, columns).expect("few");
        let old = Array::from_slice(backend, &vec![0x5a5a_5a5a; old], KIND).expect("room");
        codes.replace_codes(old, shape.0).expect("as many");
        if self.alone {
            codes.count_first(shape.0 / 2);
        }
        codes
    }

    fn factors<B: Backend>(self, backend: &B, rows: usize) -> Option<Array<B, f32>> {
        let mut factors = Random(110).uniform::<f32>(rows);
        if let Some(factor) = factors.get_mut(3) {
            *factor = f32::NAN;
        }
        self.scaled.then(|| elements(backend, &factors))
    }
}

fn tell<B: Backend>(backend: &B, mut codes: QuantizedMatrix<B>) -> Told {
    let nothing = Array::zeros(backend, 0, KIND).expect("room");
    let words = codes.replace_codes(nothing, 0).expect("no words");
    (
        words.to_vec(backend).expect("no failure"),
        codes.scales().largest(backend).expect("no failure"),
        codes.scales().unrepresented(backend).expect("no failure"),
    )
}

/// Compares what `make` makes on its way with what `quantize` makes of its result.
fn compare<B: Backend, E: Element>(
    backend: &B,
    shape: (usize, usize),
    what: &str,
    mut make: impl FnMut(Option<Coding<'_, B>>) -> Matrix<B, E>,
) {
    let plain = make(None);
    let random = RandomState::new(backend, 19, 6).expect("room");
    for way in Way::ALL {
        let factors = way.factors(backend, shape.0);
        let numbers: Vec<u32> = (0..shape.0 as u32).map(|row| 3 * row + 1).collect();
        let numbers = Array::from_slice(backend, &numbers, KIND).expect("room");
        let rounding = match way.drawn {
            true => Rounding::Stochastic {
                stream: 4,
                random: &random,
                numbers: way.scaled.then_some(&numbers),
            },
            false => Rounding::Nearest,
        };
        let mut expected = way.room(backend, shape);
        ops::quantize(backend, &plain, factors.as_ref(), rounding, &mut expected).expect("legal");
        let expected = tell(backend, expected);
        let mut codes = way.room(backend, shape);
        let made = make(Some(Coding {
            row_scale: factors.as_ref(),
            rounding,
            codes: &mut codes,
            alone: way.alone,
        }));
        let what = format!("{what}, {shape:?}, {}, {way:?}", E::PRECISION);
        assert!(tell(backend, codes) == expected, "{what}");
        if !way.alone {
            assert!(
                bits(&read(backend, &made)) == bits(&read(backend, &plain)),
                "{what}"
            );
        }
    }
}

/// Products of every form: in one piece and split, with rows of codes that are longer than those of elements, behind a ReLU, with NaNs
/// and infinities.
pub fn products<B: Backend>(backend: &B, scale: Scale) {
    fn check<B: Backend, E: Element>(backend: &B, form: Form, [m, n, k]: [usize; 3]) {
        let mut values = Random(111).uniform::<E>(m * k);
        for (value, corner) in values
            .iter_mut()
            .step_by(211)
            .zip([f32::NAN, f32::INFINITY])
        {
            *value = corner;
        }
        let (of_a, of_b) = match form {
            Form::NN => ((m, k), (k, n)),
            Form::NT => ((m, k), (n, k)),
            Form::TN => ((k, m), (k, n)),
        };
        let a = matrix::<B, E>(backend, of_a, &values);
        let b = matrix::<B, E>(backend, of_b, &Random(112).uniform::<E>(k * n));
        let row_scale = elements::<B, f32>(backend, &Random(113).uniform::<f32>(m));
        let positive = matrix::<B, E>(backend, (m, n), &Random(114).uniform::<E>(m * n));
        let masked = form == Form::NT;
        let epilogue = Epilogue {
            alpha: 0.75,
            row_scale: Some(&row_scale),
            ..Epilogue::default()
        };
        compare::<B, E>(backend, (m, n), &format!("{form:?} of {k}"), |coding| {
            let mut c = unwritten::<B, E>(backend, (m, n));
            let fusion = MatmulFusion {
                positive: masked.then_some(&positive),
                coding,
                ..MatmulFusion::default()
            };
            ops::matmul_fused(backend, form, &a, &b, &epilogue, fusion, &mut c).expect("legal");
            c
        });
    }
    let mut shapes = vec![
        [1, 1, 1],
        [7, 9, 8],
        [130, 16, 40],
        [129, 17, 9],
        [131, 40, 33],
        [200, 64, 47],
        [130, 72, 20],
        // Split where there are few tiles.
        [9, 64, 2_000],
        [0, 8, 3],
    ];
    if scale == Scale::Full {
        shapes.extend([[18_000, 64, 70], [9_000, 200, 40], [17_000, 47, 64]]);
    }
    for shape in shapes {
        for form in [Form::NN, Form::NT] {
            check::<B, f16>(backend, form, shape);
            check::<B, bf16>(backend, form, shape);
        }
    }
    check::<B, f32>(backend, Form::NN, [40, 20, 9]);
    check::<B, f16>(backend, Form::TN, [40, 20, 9]);
}

/// Gradients of batch normalisations, whose rows of codes may be longer than those of elements.
pub fn normalizations<B: Backend>(backend: &B, scale: Scale) {
    fn check<B: Backend, E: Element>(backend: &B, shape @ (rows, columns): (usize, usize)) {
        let row =
            |seed| matrix::<B, f32>(backend, (1, columns), &Random(seed).uniform::<f32>(columns));
        let (weight, bias) = (row(115), row(116));
        let mut statistics = Random(117).uniform::<f32>(2 * columns);
        let deviations = statistics[columns..].iter_mut();
        deviations.for_each(|deviation| *deviation = 1.0 + deviation.abs());
        let statistics = matrix::<B, f32>(backend, (2, columns), &statistics);
        let x = matrix::<B, E>(backend, shape, &Random(118).uniform::<E>(rows * columns));
        let mut dy = Random(119).uniform::<E>(rows * columns);
        // What is too large for its scale.
        dy.iter_mut()
            .step_by(37)
            .for_each(|value| *value = rounded::<E>(*value * 9.0));
        let factors = elements::<B, f32>(backend, &Random(120).uniform::<f32>(rows));
        let op = Normalization {
            statistics: &statistics,
            weight: &weight,
            bias: &bias,
            relu: true,
        };
        compare::<B, E>(backend, shape, "a gradient of a normalisation", |coding| {
            let mut d = matrix::<B, E>(backend, shape, &dy);
            let [mut of_weight, mut of_bias] = [(); 2].map(|()| unwritten(backend, (1, columns)));
            let gradients = NormalizationGradients {
                weight: &mut of_weight,
                bias: &mut of_bias,
                scale: 2.0,
                row_scale: Some(&factors),
                coding,
            };
            ops::normalize_backward(backend, &op, &x, &mut d, gradients).expect("legal");
            d
        });
    }
    for shape in [
        (1, 1),
        (70, 8),
        (90, 9),
        (33, 40),
        (130, 64),
        (20, 130),
        (9, 264),
        (scale.pick(600, 30_000), 64),
    ] {
        check::<B, f16>(backend, shape);
        check::<B, bf16>(backend, shape);
    }
    check::<B, f32>(backend, (50, 5));
    check::<B, f32>(backend, (50, 20));
}

/// Codes of another shape than the result, and factors that are too few.
pub fn misfits_are_refused<B: Backend>(backend: &B, _: Scale) {
    let a = matrix::<B, f16>(backend, (6, 4), &[1.0; 24]);
    let b = matrix::<B, f16>(backend, (4, 5), &[1.0; 20]);
    let mut c = unwritten::<B, f16>(backend, (6, 5));
    let few = elements::<B, f32>(backend, &[1.0; 5]);
    for (shape, row_scale, told) in [
        ((5, 5), None, "rows of the codes"),
        ((6, 4), None, "columns of the codes"),
        ((6, 5), Some(&few), "row factors of the codes"),
    ] {
        let mut codes =
            QuantizedMatrix::zeros(backend, shape, CodeFormat::Int8, KIND).expect("room");
        let coding = Some(Coding {
            row_scale,
            rounding: Rounding::Nearest,
            codes: &mut codes,
            alone: false,
        });
        let fusion = MatmulFusion {
            coding,
            ..MatmulFusion::default()
        };
        let plain = Epilogue::default();
        let done = ops::matmul_fused(backend, Form::NN, &a, &b, &plain, fusion, &mut c);
        let error = done.expect_err(told).to_string();
        assert!(error.contains(told), "{error}");
    }
}

/// A layer of which nobody knows what it sends back, so that it makes the codes of its gradient itself.
#[derive(Debug)]
struct Alone<L>(L);

impl<B: Backend, E: Element, L: Layer<B, E>> Layer<B, E> for Alone<L> {
    fn widths(&self) -> (usize, usize) {
        self.0.widths()
    }

    fn message_columns(&self) -> Option<usize> {
        self.0.message_columns()
    }

    fn forward(
        &mut self,
        at: &mut Context<'_, B, E>,
        x: &Matrix<B, E>,
        y: &mut Output<'_, B, E>,
    ) -> Result<(), Error> {
        self.0.forward(at, x, y)
    }

    fn backward(
        &mut self,
        at: &mut Context<'_, B, E>,
        x: &Matrix<B, E>,
        dy: &mut OutputGradient<'_, B, E>,
        dx: &mut InputGradient<'_, B, E>,
    ) -> Result<(), Error> {
        self.0.backward(at, x, dy, dx)
    }

    fn parameters(&self) -> Vec<&Parameter<B, E>> {
        self.0.parameters()
    }

    fn parameters_mut(&mut self) -> Vec<&mut Parameter<B, E>> {
        self.0.parameters_mut()
    }
}

/// A layer whose gradient is sent back times the factors of rows, which the layer behind knows or not.
fn stage<B: Backend, L: Layer<B, f16> + 'static>(layer: L, known: bool) -> Stage<B, f16> {
    assert_eq!(layer.sends_back(), SentBack::ScaledGradient);
    match known {
        true => Stage::new(layer),
        false => Stage::new(Alone(layer)),
    }
}

/// Codes of gradients that the layer behind makes where it writes them are those of a pass of their own, whatever stands between two
/// layers: the weights after a few steps are the same bits.
pub fn gradients_between_layers<B: Backend>(backend: &B, _: Scale) {
    type Around<B> = fn(Stage<B, f16>) -> Stage<B, f16>;
    /// What is around the first layer, the second and the last.
    fn weights<B: Backend>(
        backend: &B,
        (format, known): (CodeFormat, bool),
        (sage, around): (bool, [Around<B>; 3]),
    ) -> Vec<Vec<f32>> {
        let policy = SpmmPolicy::default();
        let widths = [task::FEATURES, 16, 16, task::CLASSES];
        let stages = (0..3).map(|number| {
            let place = Place {
                layer: number,
                seed: 5,
            };
            let widths = (widths[number], widths[number + 1]);
            let stage = if sage && number == 0 {
                let layer = SageLayer::new(backend, place, widths, policy);
                stage(layer.expect("room"), known)
            } else {
                let layer = GcnLayer::new(backend, place, widths, policy);
                stage(layer.expect("room"), known)
            };
            around[number](stage).bias().messages(format)
        });
        let model = Network::from_layers(backend, stages).expect("a model");
        let objective = task::objective::<B, f16>(backend, Norm::Both);
        let config = TrainConfig {
            record: false,
            ..TrainConfig::new(Precision::Half)
        };
        let mut trainer = Trainer::new(backend, &objective, model, config).expect("room");
        for _ in 0..3 {
            trainer.step().expect("a step");
        }
        task::weights(backend, trainer.model())
    }
    let networks: [(bool, [Around<B>; 3]); 6] = [
        (false, [Stage::relu, Stage::relu, |stage| stage]),
        (true, [Stage::relu, Stage::relu, |stage| stage.dropout(0.4)]),
        // Without a ReLU, and with a dropout behind nothing else.
        (
            false,
            [|stage| stage, |stage| stage, |stage| stage.dropout(0.4)],
        ),
        (
            false,
            [Stage::relu, |stage| stage.relu().residual(), |stage| stage],
        ),
        (
            false,
            [
                Stage::relu,
                |stage| stage.relu().norm(HiddenNorm::Layer),
                |stage| stage,
            ],
        ),
        (
            false,
            [|stage| stage.relu().jumps(), Stage::relu, |stage| stage],
        ),
    ];
    for (number, network) in networks.into_iter().enumerate() {
        let format = CodeFormat::ALL[number % 2];
        let own = weights(backend, (format, false), network);
        let behind = weights(backend, (format, true), network);
        assert!(own.iter().flatten().all(|value| value.is_finite()));
        assert!(own == behind, "network {number} with {format:?}");
    }
}
