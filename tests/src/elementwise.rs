//! Bias, ReLU, dropout and their gradients: bit for bit, since each element is rounded once.

use crate::Scale;
use crate::input::{KIND, Random, bits, elements, matrix, read, rounded, unwritten, words};
use crate::reference::{Allowed, Sum, assert_close};
use half::{bf16, f16};
use halfgnn::backend::Backend;
use halfgnn::ops;
use halfgnn::ops::{
    ActivateOperands, Activation, Checked, Dropout, LossScaling, OptimizerSnapshot, OptimizerState,
    RandomState,
};
use halfgnn::tensor::{Element, Matrix, padded};
use halfgnn_contract::rng;
use halfgnn_contract::sampling::NO_VERTEX;

/// Lengths of a row around the widths of loads.
const COLUMNS: [usize; 9] = [1, 2, 3, 7, 8, 9, 41, 64, 130];

/// A [`Dropout`] without the device that counts its steps.
#[derive(Clone, Copy, Debug)]
struct Drawn {
    probability: f32,
    seed: u64,
    stream: u32,
    step: u32,
}

const DROPOUT: Drawn = Drawn {
    probability: 0.4,
    seed: 0x0123_4567_89ab_cdef,
    stream: 3,
    step: 17,
};

/// What dropout makes of an element.
fn dropped(dropout: Option<Drawn>, row: usize, column: usize, value: f32) -> f32 {
    let Some(dropout) = dropout else {
        return value;
    };
    let key = rng::key(dropout.seed, dropout.stream);
    let bits = rng::dropout_bits(key, dropout.step, row as u64, column as u32 / 4)[column % 4];
    if bits >= rng::threshold(dropout.probability) {
        value * (1.0 / (1.0 - dropout.probability))
    } else {
        0.0
    }
}

/// What the forward pass makes of an element.
fn forward(steps: &Steps, row: usize, column: usize, x: f32) -> f32 {
    let value = steps.bias.as_ref().map_or(x, |bias| x + bias[column]);
    let value = if steps.relu && value < 0.0 {
        0.0
    } else {
        value
    };
    dropped(steps.dropout, row, column, value)
}

struct Steps {
    bias: Option<Vec<f32>>,
    relu: bool,
    dropout: Option<Drawn>,
}

impl Steps {
    /// Every combination for rows of `columns` elements.
    fn all(columns: usize) -> impl Iterator<Item = Self> {
        (0..8_u32).map(move |parts| Self {
            bias: (parts & 1 != 0).then(|| Random(70).uniform::<f32>(columns)),
            relu: parts & 2 != 0,
            dropout: (parts & 4 != 0).then_some(DROPOUT),
        })
    }

    fn run<B: Backend, E: Element>(
        &self,
        backend: &B,
        shape: (usize, usize),
        x: &[f32],
        in_place: bool,
    ) -> Vec<f32> {
        let bias = self
            .bias
            .as_ref()
            .map(|bias| matrix(backend, (1, shape.1), bias));
        let random = self.random(backend);
        let op = self.op(bias.as_ref(), &random);
        let x = matrix::<B, E>(backend, shape, x);
        let (mut y, x) = if in_place {
            (x, None)
        } else {
            (unwritten(backend, shape), Some(x))
        };
        ops::activate(backend, &op, x.as_ref(), &mut y).expect("a legal activation");
        read(backend, &y)
    }

    /// Of `x` and another matrix that stands in the output, which is a row shorter.
    fn run_sum<B: Backend, E: Element>(
        &self,
        backend: &B,
        (rows, columns): (usize, usize),
        [x, addend]: [&[f32]; 2],
    ) -> Vec<f32> {
        let bias = (self.bias.as_ref()).map(|bias| matrix(backend, (1, columns), bias));
        let random = self.random(backend);
        let op = self.op(bias.as_ref(), &random);
        let x = matrix::<B, E>(backend, (rows, columns), x);
        let mut y = matrix::<B, E>(
            backend,
            (rows - 1, columns),
            &addend[..(rows - 1) * columns],
        );
        ops::activate_sum(backend, &op, &x, &mut y).expect("a legal activation");
        read(backend, &y)
    }

    fn op<'a, B: Backend>(
        &self,
        bias: Option<&'a halfgnn::tensor::Matrix<B, f32>>,
        random: &'a RandomState<B>,
    ) -> Activation<'a, B> {
        Activation {
            bias,
            relu: self.relu,
            dropout: self.dropout.map(|drawn| Dropout {
                probability: drawn.probability,
                stream: drawn.stream,
                random,
            }),
        }
    }

    /// The numbers of an optimiser at the step of the dropout.
    fn random<B: Backend>(&self, backend: &B) -> RandomState<B> {
        let (seed, step) = self
            .dropout
            .map_or((0, 0), |drawn| (drawn.seed, drawn.step));
        let snapshot = OptimizerSnapshot {
            loss_scale: 1.0,
            // Skipped steps count as well.
            steps: step / 2,
            skipped: step - step / 2,
            since_change: 0,
        };
        let state = OptimizerState::resume(backend, &snapshot).expect("memory");
        state.random(seed)
    }
}

fn shapes(scale: Scale) -> impl Iterator<Item = (usize, usize)> {
    let rows = scale.pick(33, 1000);
    COLUMNS
        .into_iter()
        .map(move |columns| (rows, columns))
        .chain([(0, 5), (5, 0), (1, 602)])
}

fn x<E: Element>((rows, columns): (usize, usize)) -> Vec<f32> {
    Random(71).uniform::<E>(rows * columns)
}

fn expected<E: Element>(
    columns: usize,
    x: &[f32],
    mut f: impl FnMut(usize, usize, f32) -> f32,
) -> Vec<u32> {
    let element = |(i, &x): (usize, &f32)| rounded::<E>(f(i / columns, i % columns, x)).to_bits();
    x.iter().enumerate().map(element).collect()
}

/// Which elements are kept is a function of seed, stream, step and place; the fraction is the probability.
pub fn dropout_follows_the_counter<B: Backend>(backend: &B, scale: Scale) {
    fn check<B: Backend, E: Element>(backend: &B, scale: Scale) {
        let shape = (scale.pick(100, 2000), 41);
        let run = |dropout| {
            let steps = Steps {
                bias: None,
                relu: false,
                dropout: Some(dropout),
            };
            steps.run::<B, E>(backend, shape, &vec![1.0; shape.0 * shape.1], false)
        };
        let first = run(DROPOUT);
        let kept = first.iter().filter(|&&value| value != 0.0).count() as f64 / first.len() as f64;
        // Six standard deviations.
        let spread = 6.0 * (0.6 * 0.4 / first.len() as f64).sqrt();
        assert!(
            (kept - 0.6).abs() < spread,
            "{kept} of the elements were kept"
        );
        assert_eq!(first, run(DROPOUT));
        for other in [
            Drawn {
                seed: DROPOUT.seed + 1,
                ..DROPOUT
            },
            Drawn {
                stream: DROPOUT.stream + 1,
                ..DROPOUT
            },
            Drawn {
                step: DROPOUT.step + 1,
                ..DROPOUT
            },
        ] {
            assert_ne!(first, run(other), "{other:?}");
        }
        let nothing = run(Drawn {
            probability: 0.0,
            ..DROPOUT
        });
        assert!(nothing.iter().all(|&value| value == 1.0));
    }
    check::<B, f16>(backend, scale);
    check::<B, bf16>(backend, scale);
    check::<B, f32>(backend, scale);
}

/// A count of one's own stays where it was set, an optimiser's goes on with its steps, and both draw the same.
pub fn dropout_follows_its_random_state<B: Backend>(backend: &B, _: Scale) {
    let shape = (9, 41);
    let mask = |random: &RandomState<B>| {
        let op = Activation {
            bias: None,
            relu: false,
            dropout: Some(Dropout {
                probability: 0.5,
                stream: 2,
                random,
            }),
        };
        let mut y = matrix::<B, f16>(backend, shape, &vec![1.0; shape.0 * shape.1]);
        ops::activate(backend, &op, None, &mut y).expect("a legal activation");
        read(backend, &y)
    };
    let scaling = LossScaling {
        initial: 1.0,
        growth_interval: 0,
        maximum: 1.0,
    };
    let mut state = OptimizerState::new(backend, &scaling).expect("memory");
    let mut counted = state.random(5);
    let mut own = RandomState::new(backend, 5, 0).expect("memory");
    let mut before = None;
    for step in 0..3 {
        own.set_step(backend, step).expect("its own count");
        let drawn = mask(&counted);
        assert_eq!(drawn, mask(&own), "step {step}");
        assert_ne!(Some(&drawn), before.as_ref(), "step {step}");
        before = Some(drawn);
        ops::end_step(backend, &scaling, &mut state).expect("a legal end");
    }
    let refusal = counted.set_step(backend, 0).expect_err("the optimiser's");
    assert!(refusal.to_string().contains("an optimiser's"), "{refusal}");
}

/// The first rows of a mask, a bit a column from the lowest on: set where the element is kept. Drawn by a Philox of another
/// hand, so that a mistake in the one that backends and tests share shows.
pub fn masks_are_known<B: Backend>(backend: &B, _: Scale) {
    const KEPT: [u64; 4] = [
        0x1da_be5b_f15e,
        0x1ce_6af7_fed3,
        0x08c_ff9d_caf7,
        0x1d4_cd4f_e07f,
    ];
    fn check<B: Backend, E: Element>(backend: &B) {
        let steps = Steps {
            bias: None,
            relu: false,
            dropout: Some(DROPOUT),
        };
        let shape = (KEPT.len(), 41);
        let y = steps.run::<B, E>(backend, shape, &[1.0; 4 * 41], false);
        for (row, (y, kept)) in y.chunks_exact(41).zip(KEPT).enumerate() {
            let bit = |(column, &value): (usize, &f32)| u64::from(value != 0.0) << column;
            let found: u64 = y.iter().enumerate().map(bit).sum();
            assert_eq!(found, kept, "row {row}: {found:#x} for {kept:#x}");
            let factor = rounded::<E>(1.0 / 0.6);
            assert!(y.iter().all(|&value| value == 0.0 || value == factor));
        }
    }
    check::<B, f16>(backend);
    check::<B, f32>(backend);
}

/// Every combination of bias, ReLU and dropout, bit for bit, with a NaN, an infinity and a negative zero among them.
pub fn bias_and_relu<B: Backend>(backend: &B, scale: Scale) {
    fn check<B: Backend, E: Element>(backend: &B, scale: Scale) {
        for shape in shapes(scale) {
            let mut x = x::<E>(shape);
            for (value, special) in x
                .iter_mut()
                .zip([f32::INFINITY, f32::NEG_INFINITY, -0.0, 0.0])
            {
                *value = special;
            }
            for steps in Steps::all(shape.1) {
                let y = steps.run::<B, E>(backend, shape, &x, false);
                let expected = expected::<E>(shape.1, &x, |row, column, x| {
                    forward(&steps, row, column, x)
                });
                let what = (
                    shape,
                    steps.bias.is_some(),
                    steps.relu,
                    steps.dropout.is_some(),
                );
                assert!(bits(&y) == expected, "{what:?}: {y:?}");
            }
        }
        let steps = Steps {
            bias: Some(vec![1.0; 2]),
            relu: true,
            dropout: None,
        };
        let y = steps.run::<B, E>(backend, (1, 2), &[f32::NAN, -3.0], false);
        assert!(y[0].is_nan() && y[1] == 0.0, "{y:?}");
    }
    check::<B, f16>(backend, scale);
    check::<B, bf16>(backend, scale);
    check::<B, f32>(backend, scale);
}

/// In place, the operator does the same.
pub fn in_place_is_out_of_place<B: Backend>(backend: &B, scale: Scale) {
    fn check<B: Backend, E: Element>(backend: &B, scale: Scale) {
        for shape in shapes(scale) {
            let x = x::<E>(shape);
            for steps in Steps::all(shape.1) {
                let apart = steps.run::<B, E>(backend, shape, &x, false);
                assert_eq!(
                    bits(&steps.run::<B, E>(backend, shape, &x, true)),
                    bits(&apart)
                );
            }
        }
    }
    check::<B, f16>(backend, scale);
    check::<B, bf16>(backend, scale);
    check::<B, f32>(backend, scale);
}

/// Two matrices that are added up on the way are rounded once, bit for bit, and of the one that has a row more that is not read.
pub fn sums_of_two<B: Backend>(backend: &B, scale: Scale) {
    fn check<B: Backend, E: Element>(backend: &B, scale: Scale) {
        for (rows, columns) in shapes(scale).filter(|shape| shape.0 > 0) {
            let len = (rows - 1) * columns;
            let (x, addend) = (x::<E>((rows, columns)), Random(74).uniform::<E>(len));
            for steps in Steps::all(columns) {
                let y = steps.run_sum::<B, E>(backend, (rows, columns), [&x, &addend]);
                let mut addends = addend.iter();
                let expected = expected::<E>(columns, &x[..len], |row, column, x| {
                    let sum = x + addends.next().expect("one an element");
                    forward(&steps, row, column, sum)
                });
                assert!(bits(&y) == expected, "{rows} x {columns}: {y:?}");
            }
        }
    }
    check::<B, f16>(backend, scale);
    check::<B, bf16>(backend, scale);
    check::<B, f32>(backend, scale);
}

/// Rows that an order picks, some twice, some never and some that are not there, have the bits of rows that are taken and activated
/// behind that: close together and further apart than they must be, by the numbers that their new places draw.
pub fn rows_that_are_picked<B: Backend>(backend: &B, scale: Scale) {
    fn check<B: Backend, E: Element>(backend: &B, scale: Scale) {
        for (rows, columns) in shapes(scale).filter(|shape| shape.0 > 0) {
            let values = x::<E>((rows, columns));
            let picked = rows + 3;
            let order: Vec<u32> = (0..picked)
                .map(|at| match at % 5 {
                    3 => NO_VERTEX,
                    4 => rows as u32,
                    _ => Random(75).bits(at) % rows as u32,
                })
                .collect();
            let order = words(backend, &order);
            let stride = padded::<E>(columns) + 2 * E::LANES;
            let apart = Matrix::<B, E>::from_rows_apart(
                backend,
                (rows, columns),
                stride,
                KIND,
                |row, to| to.copy_from_slice(&values[row * columns..][..columns]),
            )
            .expect("a legal stride");
            let close = matrix::<B, E>(backend, (rows, columns), &values);
            for steps in Steps::all(columns) {
                let bias = steps.bias.as_ref();
                let bias = bias.map(|bias| matrix(backend, (1, columns), bias));
                let random = steps.random(backend);
                let op = steps.op(bias.as_ref(), &random);
                let mut expected = unwritten::<B, E>(backend, (picked, columns));
                ops::take_rows(backend, &close, &order, &mut expected).expect("legal rows");
                ops::activate(backend, &op, None, &mut expected).expect("legal");
                let expected = expected.to_padded(backend).expect("no failure");
                for from in [&close, &apart] {
                    let mut y = unwritten::<B, E>(backend, (picked, columns));
                    ops::activate_rows(backend, &op, from, &order, &mut y).expect("legal rows");
                    let y = y.to_padded(backend).expect("no failure");
                    assert!(y == expected, "{rows} x {columns}");
                }
            }
        }
    }
    check::<B, f16>(backend, scale);
    check::<B, bf16>(backend, scale);
    check::<B, f32>(backend, scale);
    let nothing = Activation {
        bias: None,
        relu: false,
        dropout: None,
    };
    let (x, order) = (
        matrix::<B, f32>(backend, (3, 4), &[1.0; 12]),
        words(backend, &[0, 2]),
    );
    for (shape, what) in [((3, 4), "rows of y"), ((2, 5), "columns of y")] {
        let mut y = unwritten::<B, f32>(backend, shape);
        let told = ops::activate_rows(backend, &nothing, &x, &order, &mut y);
        assert!(told.unwrap_err().to_string().contains(what));
    }
    for (x, sum) in [(None, false), (Some(&x), true)] {
        let mut y = unwritten::<B, f32>(backend, (2, 4));
        let operands = ActivateOperands {
            op: &nothing,
            x,
            order: Some(&order),
            sum,
            y: &mut y,
        };
        let told = Checked::new(operands).expect_err("refused").to_string();
        assert!(told.contains("rows that are picked"), "{told}");
    }
}

/// The gradient passes where the forward pass did, by the same factor, times that of the row; bit for bit.
pub fn gradients<B: Backend>(backend: &B, scale: Scale) {
    fn check<B: Backend, E: Element>(backend: &B, scale: Scale) {
        for shape in shapes(scale) {
            let (x, dy) = (x::<E>(shape), Random(72).uniform::<E>(shape.0 * shape.1));
            let row_scale = Random(73).uniform::<f32>(shape.0);
            for (steps, scaled) in Steps::all(shape.1).zip([true, false].into_iter().cycle()) {
                let y = steps.run::<B, E>(backend, shape, &x, false);
                let factors = scaled.then(|| elements(backend, &row_scale));
                let mut d = matrix::<B, E>(backend, shape, &dy);
                let output = matrix::<B, E>(backend, shape, &y);
                let output = steps.relu.then_some(&output);
                ops::activate_backward(
                    backend,
                    &steps.op(None, &steps.random(backend)),
                    output,
                    factors.as_ref(),
                    &mut d,
                )
                .expect("a legal gradient");
                let expected = expected::<E>(shape.1, &dy, |row, column, dy| {
                    let passed = !steps.relu || y[row * shape.1 + column] > 0.0;
                    let gradient = if passed {
                        dropped(steps.dropout, row, column, dy)
                    } else {
                        0.0
                    };
                    if scaled {
                        gradient * row_scale[row]
                    } else {
                        gradient
                    }
                });
                // A zero's sign is nobody's business.
                let unsigned = |bits: u32| if bits == 0x8000_0000 { 0 } else { bits };
                let same =
                    |(&actual, &expected): (&u32, &u32)| unsigned(actual) == unsigned(expected);
                let actual = bits(&read(backend, &d));
                let what = (shape, steps.relu, steps.dropout.is_some(), scaled);
                assert!(actual.iter().zip(&expected).all(same), "{what:?}");
            }
        }
    }
    check::<B, f16>(backend, scale);
    check::<B, bf16>(backend, scale);
    check::<B, f32>(backend, scale);
}

/// Sums of columns against float64, and the same bits again.
pub fn column_sums<B: Backend>(backend: &B, scale: Scale) {
    fn check<B: Backend, E: Element>(backend: &B, scale: Scale) {
        for rows in [0, 1, 31, 257, scale.pick(700, 40_000)] {
            for columns in [1, 7, 41, 128] {
                let values = Random(74).uniform::<E>(rows * columns);
                let x = matrix::<B, E>(backend, (rows, columns), &values);
                let run = || {
                    let mut sums = unwritten::<B, f32>(backend, (1, columns));
                    ops::column_sums(backend, &x, &mut sums).expect("legal sums");
                    read(backend, &sums)
                };
                let mut expected = vec![Sum::default(); columns];
                for (i, &value) in values.iter().enumerate() {
                    expected[i % columns].add(f64::from(value));
                }
                let (what, sums) = (format!("{rows} x {columns}"), run());
                assert_close::<f32>(&what, &sums, &expected, columns, |_| Allowed::float(rows));
                assert_eq!(bits(&run()), bits(&sums), "{what}");
            }
        }
    }
    check::<B, f16>(backend, scale);
    check::<B, bf16>(backend, scale);
    check::<B, f32>(backend, scale);
}

/// Factors that make a NaN of a zero, and a bias, do not reach the padding.
pub fn padding_stays_zero<B: Backend>(backend: &B, _: Scale) {
    fn check<B: Backend, E: Element>(backend: &B) {
        let shape = (6, 3);
        let steps = Steps {
            bias: Some(vec![1.0; 3]),
            relu: false,
            dropout: Some(DROPOUT),
        };
        steps.run::<B, E>(backend, shape, &[1.0; 18], false);
        let factors = elements(backend, &[f32::INFINITY; 6]);
        for relu in [false, true] {
            let op = Activation {
                bias: None,
                relu,
                dropout: None,
            };
            let y = matrix::<B, E>(backend, shape, &[1.0; 18]);
            let mut d = matrix::<B, E>(backend, shape, &[1.0; 18]);
            ops::activate_backward(backend, &op, Some(&y), Some(&factors), &mut d)
                .expect("a legal gradient");
            assert_eq!(read(backend, &d), [f32::INFINITY; 18]);
        }
    }
    check::<B, f16>(backend);
    check::<B, bf16>(backend);
    check::<B, f32>(backend);
}

/// Products of matrices, out of place, in place and of a matrix with itself: each is rounded once.
pub fn products<B: Backend>(backend: &B, scale: Scale) {
    for columns in COLUMNS {
        for rows in [0, 1, 5, scale.pick(33, 700)] {
            products_of::<B, f16>(backend, (rows, columns));
            products_of::<B, bf16>(backend, (rows, columns));
            products_of::<B, f32>(backend, (rows, columns));
        }
    }
}

fn products_of<B: Backend, E: Element>(backend: &B, shape: (usize, usize)) {
    let values = [211, 212].map(|stream| {
        let mut values = Random(stream).uniform::<E>(shape.0 * shape.1);
        let odd = [f32::INFINITY, -0.0, f32::NAN, 60_000.0];
        values
            .iter_mut()
            .zip(odd)
            .for_each(|(at, odd)| *at = rounded::<E>(odd));
        let by = stream as usize % 3 % values.len().max(1);
        values.rotate_left(by);
        values
    });
    let expected = |left: &[f32], right: &[f32]| -> Vec<f32> {
        let products = left.iter().zip(right).map(|(left, right)| left * right);
        products.map(rounded::<E>).collect()
    };
    let [x, by] = values
        .each_ref()
        .map(|of| matrix::<B, E>(backend, shape, of));
    let mut y = unwritten::<B, E>(backend, shape);
    ops::multiply(backend, Some(&x), &by, &mut y).expect("legal");
    let product = expected(&values[0], &values[1]);
    assert_eq!(
        patterns(&read(backend, &y)),
        patterns(&product),
        "{shape:?}"
    );
    ops::multiply(backend, Some(&x), &x, &mut y).expect("legal");
    let square = expected(&values[0], &values[0]);
    assert_eq!(patterns(&read(backend, &y)), patterns(&square), "{shape:?}");
    let mut x = x;
    ops::multiply(backend, None, &by, &mut x).expect("legal");
    assert_eq!(
        patterns(&read(backend, &x)),
        patterns(&product),
        "in place, {shape:?}"
    );
    let mut narrow = unwritten::<B, E>(backend, (shape.0, shape.1 + 1));
    let refused = ops::multiply(backend, None, &by, &mut narrow);
    assert!(refused.is_err(), "{shape:?}");
}

/// Bits of numbers, those of every NaN alike.
fn patterns(values: &[f32]) -> Vec<u32> {
    let number = |value: &f32| match value.is_nan() {
        true => f32::NAN,
        false => *value,
    };
    bits(&values.iter().map(number).collect::<Vec<_>>())
}
