//! That what is kept of a matrix of few numbers changes no bit: of products and of dropout, however often they ask for
//! it and whatever writes the matrix in between.

use super::agreement::{assert_agreement, numbers};
use super::{KIND, assert_same_on_any_threads};
use crate::backend::Storage;
use crate::backend::cpu::Cpu;
use crate::backend::cpu::view::nonzeros;
use crate::ops::{self, Activation, Dropout, Epilogue, Form, RandomState};
use crate::tensor::{Element, Matrix};
use half::{bf16, f16};

/// Numbers, of which one in `every` is not zero; of those some are -0, infinite or NaN where `wild`.
fn few(stream: u32, (rows, columns): (usize, usize), every: usize, wild: bool) -> Vec<f32> {
    let drawn = numbers(stream, rows * columns).into_iter().enumerate();
    let few = |(at, value): (usize, f32)| match (at * 7 + at / columns).is_multiple_of(every) {
        true if wild => value,
        true if value.is_finite() => value % 4.0,
        _ => 0.0,
    };
    drawn.map(few).collect()
}

fn is_kept<E: Element>(x: &Matrix<Cpu, E>) -> bool {
    nonzeros(x, &x.buffer.read()).is_some()
}

/// What a layer's steps make of features, its weights and the gradient of its output: bits of the dropped features, of
/// their product with the weights, and of the gradient of those, step by step. With `anew` each step has new features
/// and memory.
struct Layer<E: Element> {
    features: Vec<f32>,
    shape: (usize, usize),
    anew: bool,
    element: std::marker::PhantomData<E>,
}

impl<E: Element> Layer<E> {
    fn steps(&self, cpu: &Cpu) -> Vec<E> {
        let ((rows, columns), width) = (self.shape, 9);
        let matrix = |rows, columns, values: &[f32]| {
            Matrix::<Cpu, E>::from_f32(cpu, rows, columns, values, KIND).unwrap()
        };
        let small = |stream, len| few(stream, (1, len), 1, false);
        let weights = matrix(columns, width, &small(2, columns * width));
        let gradient = matrix(rows, width, &small(3, rows * width));
        let features = || matrix(rows, columns, &self.features);
        let room = || matrix(rows, columns, &vec![f32::NAN; rows * columns]);
        let (mut x, mut dropped, mut all) = (features(), room(), Vec::new());
        for step in 0..5 {
            if self.anew {
                (x, dropped) = (features(), room());
            } else if step == 3 {
                // What is kept by then is not what lies there.
                dropped = room();
            }
            let random = RandomState::new(cpu, 7, step).unwrap();
            let op = Activation {
                bias: None,
                relu: step == 4,
                dropout: Some(Dropout {
                    probability: 0.4,
                    stream: 1,
                    random: &random,
                }),
            };
            ops::activate(cpu, &op, Some(&x), &mut dropped).unwrap();
            all.extend(dropped.to_padded(cpu).unwrap());
            for (form, a, b, rows) in [
                (Form::NN, &x, &weights, rows),
                (Form::NN, &dropped, &weights, rows),
                (Form::TN, &dropped, &gradient, columns),
            ] {
                let mut c = matrix(rows, width, &vec![f32::NAN; rows * width]);
                ops::matmul(cpu, form, a, b, &Epilogue::default(), &mut c).unwrap();
                all.extend(c.to_padded(cpu).unwrap());
            }
        }
        if !self.anew {
            let count = self.features.iter().filter(|&&value| value != 0.0).count();
            let is_sparse = count * 9 < self.features.len();
            assert_eq!(is_kept(&x), is_sparse);
            assert!(!is_sparse || is_kept(&dropped));
        }
        all
    }
}

fn steps_agree<E: Element>() {
    // Blocks of rows of one length and another; more rows than sums of the transposed product take in one range of a
    // piece.
    for (shape, every, wild) in [
        ((300, 70), 12, false),
        ((300, 70), 12, true),
        ((600, 33), 5, false),
        ((17_500, 20), 30, false),
    ] {
        let what = format!("{shape:?}, one in {every}, {}", E::PRECISION);
        let layer = |anew| Layer::<E> {
            features: few(1, shape, every, wild),
            shape,
            anew,
            element: std::marker::PhantomData,
        };
        let bits = |values: Vec<E>| -> Vec<u32> {
            let bits = |value: E| match value.to_f32() {
                value if value.is_nan() => f32::NAN.to_bits(),
                value => value.to_bits(),
            };
            values.into_iter().map(bits).collect()
        };
        let expected = bits(layer(true).steps(&Cpu::new()));
        let kept = bits(layer(false).steps(&Cpu::new()));
        let differs = expected.iter().zip(&kept).position(|(e, k)| e != k);
        assert_eq!(differs, None, "{what}");
        assert_eq!(expected.len(), kept.len(), "{what}");
    }
}

#[test]
fn what_is_kept_changes_no_bit() {
    steps_agree::<f16>();
    steps_agree::<bf16>();
    steps_agree::<f32>();
}

#[test]
fn steps_with_kept_features_have_the_same_bits_with_any_instructions_and_threads() {
    let layer = Layer::<f16> {
        features: few(1, (2_100, 90), 20, false),
        shape: (2_100, 90),
        anew: false,
        element: std::marker::PhantomData,
    };
    assert_agreement("five steps", |cpu| layer.steps(cpu));
    assert_same_on_any_threads(|| layer.steps(&Cpu::new()));
}

/// Sums of rows as a product computes them, which keeps what is not zero.
fn row_sums(cpu: &Cpu, x: &Matrix<Cpu, f32>) -> Vec<f32> {
    let ones = Matrix::from_f32(cpu, x.columns(), 1, &vec![1.0; x.columns()], KIND).unwrap();
    let mut c = Matrix::<Cpu, f32>::zeros(cpu, x.rows(), 1, KIND).unwrap();
    for _ in 0..4 {
        ops::matmul(cpu, Form::NN, x, &ones, &Epilogue::default(), &mut c).unwrap();
    }
    c.to_f32(cpu).unwrap()
}

#[test]
fn whoever_writes_a_matrix_is_heard() {
    let (cpu, rows, columns) = (Cpu::new(), 40, 100);
    let ones = |row: usize| {
        let of_row = move |at: usize| f32::from(at / columns == row);
        (0..rows * columns).map(of_row).collect::<Vec<_>>()
    };
    let only = |row: usize, sum: f32| {
        let mut sums = vec![0.0; rows];
        sums[row] = sum;
        sums
    };
    let mut x = Matrix::<Cpu, f32>::from_f32(&cpu, rows, columns, &ones(3), KIND).unwrap();
    let mut expect = |change: &dyn Fn(&mut Matrix<Cpu, f32>), sums: Vec<f32>| {
        change(&mut x);
        assert_eq!(row_sums(&cpu, &x), sums);
        assert!(is_kept(&x));
    };
    expect(&|_| (), only(3, 100.0));
    expect(&|x| x.write_f32(&cpu, &ones(5)).unwrap(), only(5, 100.0));
    expect(&|x| x.elements_on_host_mut()[500] = 3.0, only(5, 102.0));
    expect(&|x| cpu.clear(&x.buffer).unwrap(), vec![0.0; rows]);
    expect(
        &|x| cpu.upload_at(&x.buffer, 700, &[1.0, 1.5]).unwrap(),
        only(7, 1.0 + 1.5),
    );
    // In place, of what is kept itself.
    let relu = Activation {
        bias: None,
        relu: true,
        dropout: None,
    };
    expect(&|x| x.elements_on_host_mut()[2_300] = -1.0, {
        let mut sums = only(7, 2.5);
        sums[23] = -1.0;
        sums
    });
    expect(
        &|x| ops::activate(&cpu, &relu, None, x).unwrap(),
        only(7, 2.5),
    );
}

#[test]
fn rows_of_another_length_are_not_those_that_were_kept() {
    let cpu = Cpu::new();
    let mut values = vec![0.0; 64 * 64];
    values[70] = 2.0;
    let x = Matrix::<Cpu, f32>::from_f32(&cpu, 64, 64, &values, KIND).unwrap();
    assert_eq!(row_sums(&cpu, &x)[1], 2.0);
    assert!(is_kept(&x));
    let x = Matrix::from_array(x.into_array().unwrap(), 128, 32).unwrap();
    assert_eq!(row_sums(&cpu, &x)[2], 2.0);
}

#[test]
fn nothing_is_kept_of_memory_that_others_may_write() {
    #[repr(align(16))]
    struct Rows([f32; 400]);
    let (cpu, mut rows) = (Cpu::new(), Rows([0.0; 400]));
    rows.0[41] = 1.0;
    let start = rows.0.as_mut_ptr();
    // SAFETY: the rows outlive the matrix, have no padding, and are written only between operators.
    let x = unsafe { Matrix::<Cpu, f32>::from_pointer(&cpu, start, (10, 40), 40, KIND) }.unwrap();
    assert_eq!(row_sums(&cpu, &x)[1], 1.0);
    assert!(!is_kept(&x));
    // SAFETY: the 400 floats are there, and no operator runs.
    unsafe { start.add(41).write(7.0) };
    assert_eq!(row_sums(&cpu, &x)[1], 7.0);
}
