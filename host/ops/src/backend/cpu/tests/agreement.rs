//! That operators in vectors have the bits of the plain ones: on graphs of every kind, for feature lengths that fill
//! vectors and that do not, with each set of instructions that the machine has.

use super::{KIND, hub};
use crate::backend::Adjacency;
use crate::backend::cpu::{Cpu, Instructions};
use crate::graph::Csr;
use crate::ops::{
    self, Activation, Addend, Aggregation, AttentionPair, Dropout, EdgeAttention, EdgeWeights,
    Epilogue, Form, RandomState, Sddmm, SoftmaxGradient, Spmm, SpmmEpilogue, edge_plane,
};
use crate::tensor::{Array, Element, Matrix};
use half::{bf16, f16};
use halfgnn_contract::rng;

const FEATURES: [usize; 6] = [1, 7, 16, 41, 64, 257];

/// Runs `run` plainly and with each set of instructions, and compares the bits of what it returns.
pub(super) fn assert_agreement<E: Element>(what: &str, run: impl Fn(&Cpu) -> Vec<E>) {
    let expected = run(&Cpu::reference());
    for instructions in Instructions::available() {
        let actual = run(&Cpu::with(instructions).unwrap());
        assert_eq!(actual.len(), expected.len(), "{what}, {instructions}");
        for (at, (a, e)) in actual.iter().zip(&expected).enumerate() {
            let same = bytemuck::bytes_of(a) == bytemuck::bytes_of(e)
                || a.to_f32().is_nan() && e.to_f32().is_nan();
            assert!(same, "{what}, {instructions}, at {at}: {a:?}, not {e:?}");
        }
    }
}

/// Numbers of every size and sign, some of them 0, subnormal, infinite or NaN.
pub(super) fn numbers(stream: u32, len: usize) -> Vec<f32> {
    let key = rng::key(2, stream);
    let draw = |at: usize| rng::uniform_u32(key, at as u64);
    let number = |at: usize| match draw(at) % 701 {
        0 => f32::INFINITY,
        1 => f32::NAN,
        2 => -0.0,
        3 => 3e-7,
        4 => 60_000.0,
        other => (other as f32 - 350.0) / 97.0,
    };
    (0..len).map(number).collect()
}

pub(super) fn matrix<E: Element>(
    cpu: &Cpu,
    stream: u32,
    rows: usize,
    columns: usize,
) -> Matrix<Cpu, E> {
    Matrix::from_f32(cpu, rows, columns, &numbers(stream, rows * columns), KIND).unwrap()
}

pub(super) fn array<E: Element>(cpu: &Cpu, stream: u32, len: usize) -> Array<Cpu, E> {
    let values: Vec<E> = numbers(stream, len).into_iter().map(E::from_f32).collect();
    Array::from_slice(cpu, &values, KIND).unwrap()
}

/// Finite numbers of moderate size.
fn scores(cpu: &Cpu, stream: u32, len: usize) -> Array<Cpu, f32> {
    let finite = |value: f32| if value.is_finite() { value % 3.0 } else { 0.5 };
    let values: Vec<f32> = numbers(stream, len).into_iter().map(finite).collect();
    Array::from_slice(cpu, &values, KIND).unwrap()
}

/// A hub with short and empty rows; more columns than rows; no edges; one vertex with a loop.
pub(super) fn graphs() -> [(&'static str, Csr); 4] {
    let sources: Vec<u32> = (0..900u32).map(|edge| edge * 31 % 140).collect();
    let destinations: Vec<u32> = (0..900u32).map(|edge| edge * edge % 37).collect();
    [
        ("hub", hub(50, 9_000)),
        (
            "block",
            Csr::rectangular_from_edges((40, 140), &destinations, &sources).unwrap(),
        ),
        ("no edges", Csr::from_edges(5, &[], &[]).unwrap()),
        ("loop", Csr::from_edges(1, &[0], &[0]).unwrap()),
    ]
}

fn run_spmm<E: Element>(cpu: &Cpu, a: &Adjacency<Cpu>, op: &Spmm<'_, Cpu, E>, f: usize) -> Vec<E> {
    let x = matrix::<E>(cpu, 0, a.columns(), f);
    let mut y = matrix(cpu, 1, a.rows(), f);
    ops::spmm(cpu, a, op, &x, &mut y).unwrap();
    y.to_padded(cpu).unwrap()
}

fn spmm_agrees<E: Element>() {
    for (name, csr) in graphs() {
        for f in FEATURES {
            let what = format!("{name}, {f} features, {}", E::PRECISION);
            assert_agreement(&format!("sum on {what}"), |cpu| {
                let a = Adjacency::new(cpu, &csr).unwrap();
                run_spmm::<E>(cpu, &a, &Spmm::default(), f)
            });
            assert_agreement(&format!("weights, factors, epilogue on {what}"), |cpu| {
                let a = Adjacency::new(cpu, &csr).unwrap();
                let weights = array(cpu, 2, a.edges());
                let (rows, bias) = (array(cpu, 3, a.rows()), matrix(cpu, 4, 1, f));
                let addend = matrix(cpu, 5, a.rows() + 1, f);
                let (epsilon, scale) = (matrix(cpu, 6, 1, 1), array(cpu, 7, a.rows()));
                let positive = matrix(cpu, 9, a.rows() + 1, f);
                let addend = Addend {
                    matrix: &addend,
                    factor: 0.3,
                    row_scale: Some(&scale),
                    epsilon: Some(&epsilon),
                };
                let op = Spmm {
                    weights: EdgeWeights::Features(&weights),
                    row_scale: Some(&rows),
                    scale: 0.7,
                    epilogue: SpmmEpilogue {
                        addend: Some(addend),
                        bias: Some(&bias),
                        relu: true,
                        positive: Some(&positive),
                    },
                    ..Spmm::default()
                };
                run_spmm::<E>(cpu, &a, &op, f)
            });
            assert_agreement(&format!("column factors and bias on {what}"), |cpu| {
                let a = Adjacency::new(cpu, &csr).unwrap();
                let (factors, bias) = (array(cpu, 8, a.columns()), matrix(cpu, 4, 1, f));
                let op = Spmm {
                    weights: EdgeWeights::Columns(&factors),
                    epilogue: SpmmEpilogue {
                        bias: Some(&bias),
                        ..SpmmEpilogue::default()
                    },
                    ..Spmm::default()
                };
                run_spmm::<E>(cpu, &a, &op, f)
            });
            assert_agreement(&format!("the largest on {what}"), |cpu| {
                let a = Adjacency::new(cpu, &csr).unwrap();
                let weights = array(cpu, 2, a.edges());
                let op = Spmm {
                    weights: EdgeWeights::Features(&weights),
                    aggregation: Aggregation::Max,
                    scale: 0.7,
                    ..Spmm::default()
                };
                run_spmm::<E>(cpu, &a, &op, f)
            });
        }
    }
}

/// Halves of every size and sign, among them the largest, the smallest and both zeros, and none that is not finite but
/// the last of `poison`.
fn finite_halves(len: usize, poison: Option<f16>) -> Vec<f32> {
    let key = rng::key(2, 40);
    let draw = |at: usize| rng::uniform_u32(key, at as u64) as u16;
    let finite = |at: usize| match draw(at) & 0xfbff {
        // A tenth of small ones, whose sums are small as well.
        bits if at.is_multiple_of(10) => f16::from_bits(bits & 0x87ff),
        bits => f16::from_bits(bits),
    };
    let mut halves: Vec<f32> = (0..len).map(|at| finite(at).to_f32()).collect();
    halves[..4].copy_from_slice(&[65_504.0, -65_504.0, -0.0, f16::from_bits(1).to_f32()]);
    if let (Some(poison), Some(last)) = (poison, halves.last_mut()) {
        *last = poison.to_f32();
    }
    halves
}

/// Of rows with many edges halves are added up without being widened, where they are finite and factors are not too
/// large.
#[test]
fn sums_of_many_finite_halves_have_the_same_bits_with_any_instructions() {
    let csr = hub(50, 9_000);
    for f in [8, 32, 64, 96, 257] {
        for poison in [None, Some(f16::INFINITY), Some(f16::NAN)] {
            for scale in [1.0, 0.7, 1e-30, 30_000.0, f32::MAX] {
                let what = format!("{f} features, last {poison:?}, times {scale}");
                assert_agreement(&what, |cpu| {
                    let a = Adjacency::new(cpu, &csr).unwrap();
                    let values = finite_halves(50 * f, poison);
                    let x = Matrix::<_, f16>::from_f32(cpu, 50, f, &values, KIND).unwrap();
                    let mut y = matrix::<f16>(cpu, 1, 50, f);
                    let op = Spmm {
                        scale,
                        ..Spmm::default()
                    };
                    ops::spmm(cpu, &a, &op, &x, &mut y).unwrap();
                    y.to_padded(cpu).unwrap()
                });
            }
        }
    }
}

fn spmm_of_heads_agrees<E: Element>() {
    for (name, csr) in graphs() {
        for (heads, width) in [(1, 41), (2, 8), (3, 24), (8, 16), (5, 40)] {
            let f = heads * width;
            let what = format!("{name}, {heads} heads of {width}, {}", E::PRECISION);
            assert_agreement(&format!("planes of weights on {what}"), |cpu| {
                let a = Adjacency::new(cpu, &csr).unwrap();
                let values = array(cpu, 2, heads * edge_plane(a.edges()));
                let op = Spmm {
                    weights: EdgeWeights::Planes {
                        values: &values,
                        heads,
                    },
                    ..Spmm::default()
                };
                run_spmm::<E>(cpu, &a, &op, f)
            });
            for transposed in [false, true] {
                let forward = with_attention(&csr, heads, transposed, 0.0, |cpu, a, of, _| {
                    let op = Spmm {
                        weights: EdgeWeights::Attention(of),
                        ..Spmm::default()
                    };
                    run_spmm::<E>(cpu, a, &op, f)
                });
                assert_agreement(&format!("attention on {what}, {transposed}"), forward);
                let both = with_attention(&csr, heads, transposed, 0.4, |cpu, a, of, values| {
                    let x = matrix::<E>(cpu, 0, a.columns(), f);
                    let mut all = matrix(cpu, 1, a.rows(), f);
                    let mut positive = matrix(cpu, 2, a.rows(), f);
                    let mut sums = array(cpu, 3, heads * a.rows());
                    let op = AttentionPair {
                        weights: of,
                        policy: ops::SpmmPolicy::DEFAULT,
                        all: &mut all,
                        positive: &mut positive,
                        softmax_gradient: Some(SoftmaxGradient {
                            values,
                            sums: &mut sums,
                        }),
                    };
                    ops::attention_pair(cpu, a, op, &x).unwrap();
                    let mut result = all.to_padded(cpu).unwrap();
                    result.extend(positive.to_padded(cpu).unwrap());
                    result.extend(sums.to_vec(cpu).unwrap().into_iter().map(E::from_f32));
                    result
                });
                assert_agreement(&format!("two sums on {what}, {transposed}"), both);
            }
        }
    }
}

/// Calls `run` with weights by attention on `csr`, and a number of each destination.
fn with_attention<R>(
    csr: &Csr,
    heads: usize,
    transposed: bool,
    probability: f32,
    run: impl Fn(&Cpu, &Adjacency<Cpu>, &EdgeAttention<'_, Cpu>, &Array<Cpu, f32>) -> R,
) -> impl Fn(&Cpu) -> R {
    move |cpu| {
        let a = Adjacency::new(cpu, csr).unwrap();
        let (destinations, sources) = if transposed {
            (a.columns(), a.rows())
        } else {
            (a.rows(), a.columns())
        };
        let random = RandomState::new(cpu, 5, 2).unwrap();
        let statistics: Vec<[f32; 2]> = (0..heads * destinations)
            .map(|at| [3.0 + (at % 3) as f32, 0.1])
            .collect();
        let (destination, source, statistics, values) = (
            scores(cpu, 10, heads * destinations),
            scores(cpu, 11, heads * sources),
            Array::from_slice(cpu, &statistics, KIND).unwrap(),
            scores(cpu, 12, heads * destinations),
        );
        let of = EdgeAttention {
            heads,
            destination: &destination,
            source: &source,
            statistics: &statistics,
            biases: None,
            sums: None,
            slope: 0.2,
            transposed,
            dropout: Some(Dropout {
                probability,
                stream: 3,
                random: &random,
            }),
        };
        run(cpu, &a, &of, &values)
    }
}

#[test]
fn spmm_has_the_same_bits_with_any_instructions() {
    spmm_agrees::<f16>();
    spmm_agrees::<bf16>();
    spmm_agrees::<f32>();
}

#[test]
fn spmm_of_heads_has_the_same_bits_with_any_instructions() {
    spmm_of_heads_agrees::<f16>();
    spmm_of_heads_agrees::<bf16>();
    spmm_of_heads_agrees::<f32>();
}

fn sddmm_agrees<E: Element>() {
    for (name, csr) in graphs() {
        for (heads, f) in FEATURES
            .map(|f| (1, f))
            .into_iter()
            .chain([(3, 72), (8, 64)])
        {
            let what = format!("{heads} dots of {f} on {name}, {}", E::PRECISION);
            assert_agreement(&what, |cpu| {
                let a = Adjacency::new(cpu, &csr).unwrap();
                let (u, v) = (
                    matrix::<E>(cpu, 20, a.rows(), f),
                    matrix::<E>(cpu, 21, a.columns(), f),
                );
                let mut e = array::<E>(cpu, 22, heads * edge_plane(a.edges()));
                let op = Sddmm {
                    heads,
                    scale: 0.7,
                    ..Sddmm::default()
                };
                ops::sddmm(cpu, &a, &op, &u, &v, &mut e).unwrap();
                e.to_vec(cpu).unwrap()
            });
        }
    }
}

#[test]
fn sddmm_has_the_same_bits_with_any_instructions() {
    sddmm_agrees::<f16>();
    sddmm_agrees::<bf16>();
    sddmm_agrees::<f32>();
}

/// Finite numbers, of which one in `every` is not zero.
fn sparse<E: Element>(cpu: &Cpu, rows: usize, columns: usize, every: usize) -> Matrix<Cpu, E> {
    let drawn = numbers(30, rows * columns).into_iter().enumerate();
    let sparse = |(at, value): (usize, f32)| {
        let kept = value.is_finite() && (at * 7 + at / columns).is_multiple_of(every);
        if kept { value % 4.0 } else { 0.0 }
    };
    let values: Vec<f32> = drawn.map(sparse).collect();
    Matrix::from_f32(cpu, rows, columns, &values, KIND).unwrap()
}

/// Products with a first operand of few numbers, computed from those, and with one of more, computed by `gemm`.
fn sparse_products_agree<E: Element>() {
    for every in [2, 9, 100] {
        for n in [7, 64] {
            for (form, rows) in [(Form::NN, 270), (Form::TN, 1_100)] {
                let columns = if form == Form::NN { 300 } else { 270 };
                let (m, k) = if form == Form::NN {
                    (rows, columns)
                } else {
                    (columns, rows)
                };
                let what = format!("{form:?} {m} {n} {k}, one in {every}, {}", E::PRECISION);
                let product = |cpu: &Cpu, poison: f32| {
                    let a = sparse::<E>(cpu, rows, columns, every);
                    let mut b: Vec<f32> = numbers(31, k * n);
                    b.iter_mut()
                        .for_each(|b| *b = if b.is_finite() { *b % 4.0 } else { 1.0 });
                    b[n / 2] = poison;
                    let b = Matrix::<Cpu, E>::from_f32(cpu, k, n, &b, KIND).unwrap();
                    let [a_values, b_values] = [&a, &b].map(|x| x.to_f32(cpu).unwrap());
                    let exact: Vec<f64> = dense(form, [m, n, k], &a_values, &b_values);
                    let mut c = Matrix::<Cpu, f32>::zeros(cpu, m, n, KIND).unwrap();
                    ops::matmul(cpu, form, &a, &b, &Epilogue::default(), &mut c).unwrap();
                    (c.to_f32(cpu).unwrap(), exact)
                };
                assert_agreement(&what, |cpu| product(cpu, 0.5).0);
                let (c, exact) = product(&Cpu::new(), 0.5);
                let errors = c.iter().zip(&exact).map(|(c, exact)| f64::from(*c) - exact);
                let largest = errors.fold(0.0, |largest: f64, error| largest.max(error.abs()));
                // Sums of at most 1,100 terms below 16.
                assert!(largest < 0.05, "{what}: off by {largest}");
                // A zero times an infinity is a NaN, in whatever way the product is computed.
                let (c, _) = product(&Cpu::new(), f32::INFINITY);
                let poisoned = (0..m).filter(|row| !c[row * n + n / 2].is_finite());
                assert_eq!(poisoned.count(), m, "{what}");
            }
        }
    }
}

fn dense(form: Form, [m, n, k]: [usize; 3], a: &[f32], b: &[f32]) -> Vec<f64> {
    let mut c = vec![0.0; m * n];
    for row in 0..m {
        for term in 0..k {
            let a = match form {
                Form::TN => a[term * m + row],
                _ => a[row * k + term],
            };
            for column in 0..n {
                c[row * n + column] += f64::from(a) * f64::from(b[term * n + column]);
            }
        }
    }
    c
}

#[test]
fn products_of_few_numbers_have_the_same_bits_with_any_instructions() {
    sparse_products_agree::<f16>();
    sparse_products_agree::<f32>();
}

#[test]
fn dropout_of_few_numbers_is_that_of_many() {
    let cpu = Cpu::new();
    let random = RandomState::new(&cpu, 7, 1).unwrap();
    let activate = |every: usize| {
        let x = sparse::<f16>(&cpu, 30, 333, every);
        let mut y = matrix::<f16>(&cpu, 1, 30, 333);
        let op = Activation {
            relu: true,
            dropout: Some(Dropout {
                probability: 0.3,
                stream: 1,
                random: &random,
            }),
            bias: None,
        };
        ops::activate(&cpu, &op, Some(&x), &mut y).unwrap();
        (x.to_f32(&cpu).unwrap(), y.to_f32(&cpu).unwrap())
    };
    // Every 60th of every row is also one of all: what becomes of it does not depend on the others.
    let ((few, few_out), (_, all_out)) = (activate(60), activate(1));
    let kept: Vec<usize> = (0..few.len()).filter(|&at| few[at] != 0.0).collect();
    assert!(kept.len() > 100);
    for at in 0..few.len() {
        let expected = if few[at] == 0.0 { 0.0 } else { all_out[at] };
        assert_eq!(few_out[at], expected, "{at}");
    }
}
