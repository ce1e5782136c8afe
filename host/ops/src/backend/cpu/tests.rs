//! What the CPU backend promises beyond the conformance suite: the same bits on any number of threads, halves that
//! overflow where a policy lets them, and a float64 reference for each product.

mod agreement;
mod nonzeros;

use super::Cpu;
use crate::backend::{Adjacency, MemoryKind, Storage};
use crate::graph::Csr;
use crate::ops::{self, Accumulate, EdgeWeights, Epilogue, Form, Scaling, Spmm, SpmmPolicy};
use crate::tensor::{Array, Element, Matrix};
use half::f16;
use halfgnn_contract::rng;

const KIND: MemoryKind = MemoryKind::Activations;

/// Uniform numbers in [-1, 1), rounded to the element.
fn uniform<E: Element>(stream: u32, len: usize) -> Vec<f32> {
    let key = rng::key(1, stream);
    let unit = |i| rng::unit_f32(rng::uniform_u32(key, i as u64)) * 2.0 - 1.0;
    (0..len).map(|i| E::from_f32(unit(i)).to_f32()).collect()
}

fn matrix<E: Element>(rows: usize, columns: usize, values: &[f32]) -> Matrix<Cpu, E> {
    Matrix::from_f32(&Cpu::new(), rows, columns, values, KIND).unwrap()
}

/// A graph whose vertex 0 aggregates `hub` others, and all others a few.
fn hub(vertices: usize, hub: usize) -> Csr {
    let to_hub = (0..hub).map(|edge| (0, (edge % vertices) as u32));
    let others = (1..vertices)
        .flat_map(|row| (0..row % 4).map(move |k| (row as u32, ((row * 7 + k) % vertices) as u32)));
    let (rows, cols): (Vec<u32>, Vec<u32>) = to_hub.chain(others).unzip();
    Csr::from_edges(vertices, &rows, &cols).unwrap()
}

fn on_threads<R: Send>(threads: usize, f: impl FnOnce() -> R + Send) -> R {
    let pool = rayon::ThreadPoolBuilder::new()
        .num_threads(threads)
        .build()
        .unwrap();
    pool.install(f)
}

fn assert_same_on_any_threads<E: Element>(run: impl Fn() -> Vec<E> + Sync) {
    let bits = |values: &[E]| bytemuck::cast_slice::<E, u8>(values).to_vec();
    let expected = bits(&on_threads(1, &run));
    for threads in [2, 3, 7] {
        assert!(
            bits(&on_threads(threads, &run)) == expected,
            "differs on {threads} threads"
        );
    }
}

fn spmm<E: Element>(csr: &Csr, op: &Spmm<'_, Cpu, E>, features: usize, x: &[f32]) -> Vec<E> {
    let cpu = Cpu::new();
    let a = Adjacency::new(&cpu, csr).unwrap();
    let x = matrix(csr.vertices(), features, x);
    let mut y = matrix(
        csr.vertices(),
        features,
        &vec![f32::NAN; csr.vertices() * features],
    );
    ops::spmm(&cpu, &a, op, &x, &mut y).unwrap();
    y.to_padded(&cpu).unwrap()
}

#[test]
fn spmm_has_the_same_bits_on_any_number_of_threads() {
    let csr = hub(300, 20_011);
    let x = uniform::<f16>(0, 300 * 41);
    let weights = uniform::<f16>(1, csr.edges());
    let to_half = |values: &[f32]| values.iter().map(|&v| f16::from_f32(v)).collect::<Vec<_>>();
    let half = Array::from_slice(&Cpu::new(), &to_half(&weights), KIND).unwrap();
    let float = Array::from_slice(&Cpu::new(), &weights, KIND).unwrap();
    for accumulate in [Accumulate::Half, Accumulate::Float] {
        let policy = SpmmPolicy {
            scaling: Scaling::Discretized,
            accumulate,
            ..SpmmPolicy::DEFAULT
        };
        let op = Spmm {
            weights: EdgeWeights::Features(&half),
            policy,
            ..Spmm::default()
        };
        assert_same_on_any_threads::<f16>(|| spmm(&csr, &op, 41, &x));
    }
    let op = Spmm {
        weights: EdgeWeights::Features(&float),
        ..Spmm::default()
    };
    assert_same_on_any_threads::<f32>(|| spmm(&csr, &op, 41, &x));
}

fn matmul<E: Element, O: Element>(
    form: Form,
    [m, n, k]: [usize; 3],
    epilogue: &Epilogue<'_, Cpu>,
) -> (Vec<O>, Vec<f64>, Vec<f64>) {
    let cpu = Cpu::new();
    let (a, b) = (uniform::<E>(2, m * k), uniform::<E>(3, k * n));
    let [a_shape, b_shape] = match form {
        Form::NN => [(m, k), (k, n)],
        Form::NT => [(m, k), (n, k)],
        Form::TN => [(k, m), (k, n)],
    };
    let mut c = matrix::<O>(m, n, &vec![f32::NAN; m * n]);
    let a_matrix = matrix::<E>(a_shape.0, a_shape.1, &a);
    let b_matrix = matrix::<E>(b_shape.0, b_shape.1, &b);
    ops::matmul(&cpu, form, &a_matrix, &b_matrix, epilogue, &mut c).unwrap();
    let (mut sums, mut sizes) = (vec![0.0; m * n], vec![0.0; m * n]);
    for i in 0..m {
        for j in 0..n {
            for l in 0..k {
                let a = if form == Form::TN {
                    a[l * m + i]
                } else {
                    a[i * k + l]
                };
                let b = if form == Form::NT {
                    b[j * k + l]
                } else {
                    b[l * n + j]
                };
                let product = f64::from(a) * f64::from(b);
                sums[i * n + j] += product;
                sizes[i * n + j] += product.abs();
            }
        }
    }
    (c.to_padded(&cpu).unwrap(), sums, sizes)
}

fn assert_matmul<E: Element, O: Element>(form: Form, shape: [usize; 3]) {
    let [m, n, k] = shape;
    let (c, sums, sizes) = matmul::<E, O>(form, shape, &Epilogue::default());
    let stride = crate::tensor::padded::<O>(n);
    // Rounding of the sum in float, and of the result.
    let result_step = if size_of::<O>() == 2 {
        2.0_f64.powi(-11)
    } else {
        2.0_f64.powi(-24)
    };
    for i in 0..m {
        let row = &c[i * stride..(i + 1) * stride];
        assert!(row[n..].iter().all(|value| value.to_f32() == 0.0));
        for j in 0..n {
            let (sum, size) = (sums[i * n + j], sizes[i * n + j]);
            let bound =
                size * k as f64 * 2.0_f64.powi(-24) + sum.abs() * result_step + 2.0_f64.powi(-25);
            let error = (f64::from(row[j].to_f32()) - sum).abs();
            assert!(
                error <= bound,
                "{form:?} {shape:?} at {i}, {j}: off by {error}, allowed {bound}"
            );
        }
    }
}

#[test]
fn products_of_every_form_agree_with_float64() {
    for form in [Form::NN, Form::NT, Form::TN] {
        for shape in [
            [1, 1, 1],
            [3, 7, 2500],
            [257, 9, 31],
            [300, 64, 1025],
            [5, 3, 0],
            [0, 4, 3],
            [2, 0, 3],
        ] {
            assert_matmul::<f16, f16>(form, shape);
            assert_matmul::<f16, f32>(form, shape);
            assert_matmul::<f32, f32>(form, shape);
        }
    }
}

#[test]
fn products_have_the_same_bits_on_any_number_of_threads() {
    for form in [Form::NN, Form::NT, Form::TN] {
        let run = || matmul::<f16, f32>(form, [520, 33, 3000], &Epilogue::default()).0;
        assert_same_on_any_threads(run);
    }
}

#[test]
fn sums_of_columns_have_the_same_bits_on_any_number_of_threads() {
    let x = matrix::<f16>(5000, 7, &uniform::<f16>(4, 5000 * 7));
    assert_same_on_any_threads(|| {
        let cpu = Cpu::new();
        let mut sums = matrix::<f32>(1, 7, &[f32::NAN; 7]);
        ops::column_sums(&cpu, &x, &mut sums).unwrap();
        sums.to_padded(&cpu).unwrap()
    });
}

#[test]
fn memory_is_counted_by_kind() {
    let cpu = Cpu::new();
    let matrix = Matrix::<Cpu, f16>::zeros(&cpu, 3, 9, MemoryKind::Features).unwrap();
    let report = cpu.memory();
    assert_eq!(report.current[MemoryKind::Features as usize], 3 * 16 * 2);
    drop(matrix);
    assert_eq!(cpu.memory().current, [0; MemoryKind::ALL.len()]);
    assert_eq!(cpu.memory().peak_total, 96);
    cpu.reset_peak();
    assert_eq!(cpu.memory().peak_total, 0);
}
