//! Codes that an operator makes of its result where it writes it: by `==` with those that `quantize` makes of the same result.

use crate::Scale;
use crate::input::{KIND, Random, bits, elements, matrix, read, rounded, unwritten};
use half::{bf16, f16};
use halfgnn::backend::Backend;
use halfgnn::ops::{
    self, CodeFormat, Coding, Epilogue, Form, MatmulFusion, Normalization, NormalizationGradients,
    QuantizedMatrix, RandomState, Rounding, Unrepresented,
};
use halfgnn::tensor::{Array, Element, Matrix};

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
