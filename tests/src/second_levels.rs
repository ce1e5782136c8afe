//! What loops only past some size, at sizes past it: splits of a product, partial results of many CTAs, rows without edges
//! of many CTAs. The cases are small enough for the emulator; how often a product is split follows from the number of
//! multiprocessors, so a backend whose number can be chosen should have [`MULTIPROCESSORS`].

use crate::Scale;
use crate::graphs;
use crate::input::{Random, bits, matrix, read, unwritten, words};
use crate::loss;
use crate::matmul::{Case, FORMS, Normal};
use crate::normalize;
use crate::reference::{Allowed, Sum, assert_close};
use crate::spmm;
use half::f16;
use halfgnn::backend::Backend;
use halfgnn::ops;
use halfgnn::ops::Form;
use halfgnn::tensor::Element;
use halfgnn_contract::elementwise::{THREADS_PER_CTA, sum_rows_per_cta};
use halfgnn_contract::loss::loss_rows_per_cta;
use halfgnn_contract::{Format, matmul as products, spmm as contract};

/// Multiprocessors of a card that splits the products here more often than a warp of the reduction loads at a time.
pub const MULTIPROCESSORS: u32 = 132;

/// Splits that the four warps of a reduction read in one round.
const ROUND: u32 = 64;

/// Products of few tiles and long sums, split more than 64 times: integers with `==`, then numbers with an epilogue and
/// what is computed beside them.
pub fn split_products<B: Backend>(backend: &B, _: Scale) {
    fn integers<B: Backend, E: Element>(backend: &B, format: Format, k: usize) {
        let splits = products::split(format, 8, 8, k as u32, MULTIPROCESSORS).splits;
        assert!(splits > ROUND, "{splits} splits are read in one round");
        for form in FORMS {
            let mut case = Case::random::<E>(form, [8, 8, k]);
            case.a = Random(120).integers(3, case.a.len());
            case.b = Random(121).integers(3, case.b.len());
            let sums = case.reference();
            let expected: Vec<f32> = sums.iter().map(|sum| sum.value as f32).collect();
            assert_eq!(case.run::<B, E, f32>(backend), expected, "{form:?} of {k}");
        }
    }
    integers::<B, f16>(backend, Format::F16, 8_960);
    integers::<B, f32>(backend, Format::F32, 4_480);

    fn sums_beside<B: Backend, E: Element>(backend: &B, k: usize) {
        let mut case = Case::random::<E>(Form::TN, [7, 9, k]);
        case.normal = Some(Normal::random(7));
        case.bias = Some(Random(122).uniform::<f32>(9));
        case.alpha = -0.5;
        let (c, sums) = case.run_beside::<B, E, f32>(backend, None, true);
        let reference = case.normalized::<B, E>(backend).reference();
        let allowed = |_| Allowed::float(k);
        assert_close::<f32>("a split product", &c, &reference, 9, allowed);
        let mut expected = [Sum::default(); 9];
        for (at, &value) in case.b.iter().enumerate() {
            expected[at % 9].add(f64::from(value));
        }
        assert_close::<f32>("sums of its columns", &sums, &expected, 9, allowed);
    }
    sums_beside::<B, f16>(backend, 8_970);
    sums_beside::<B, f32>(backend, 4_483);
    Case::random::<f16>(Form::NN, [3, 5, 9_001]).check::<B, f16, f16>(backend);
}

/// Moments of columns, their gradients and dots, that more CTAs leave parts of than a CTA has threads.
pub fn moments_of_many_ctas<B: Backend>(backend: &B, _: Scale) {
    let shape = (20_000, 1);
    let ctas = 20_000 / sum_rows_per_cta(20_000);
    assert!(ctas > 2 * THREADS_PER_CTA, "{ctas} CTAs");
    normalize::follows_float64::<B, f16>(backend, shape);
    normalize::follows_float64::<B, f32>(backend, shape);
}

/// Losses and counts that more CTAs leave parts of than a CTA has threads.
pub fn losses_of_many_ctas<B: Backend>(backend: &B, _: Scale) {
    fn check<B: Backend, E: Element>(backend: &B, rows: usize) {
        let classes = 130;
        let per_cta = loss_rows_per_cta(rows as u64, 5) as usize;
        assert!(rows / per_cta > THREADS_PER_CTA as usize);
        let logits = Random(123).uniform::<E>(rows * classes);
        let targets = Random(124).below(classes as u32, rows);
        loss::follows_float64::<B, E>(backend, "many CTAs", classes, &logits, &targets);

        // Every row is right, and so each CTA's part is missed.
        let mut logits = vec![0.0; rows * classes];
        for (row, &target) in targets.iter().enumerate() {
            logits[row * classes + target as usize] = 1.0;
        }
        let logits = matrix::<B, E>(backend, (rows, classes), &logits);
        let splits: Vec<u32> = (0..rows as u32).map(|row| row % 3).collect();
        let of = |split: u32| splits.iter().filter(|&&other| other == split).count() as u32;
        let expected = [of(0), of(1), of(2)];
        let (labels, splits) = (words(backend, &targets), words(backend, &splits));
        let mut counts = words(backend, &[99; 3]);
        ops::count_correct(backend, &logits, &labels, &splits, &mut counts).expect("legal counts");
        assert_eq!(counts.to_vec(backend).expect("no failure before"), expected);
    }
    check::<B, f16>(backend, 2_100);
    check::<B, f32>(backend, 2_100);
}

/// Sums of columns that take three launches.
pub fn column_sums_of_many_ctas<B: Backend>(backend: &B, _: Scale) {
    fn check<B: Backend, E: Element>(backend: &B, rows: usize) {
        let first = rows.div_ceil(sum_rows_per_cta(rows as u64) as usize);
        assert!(
            first > sum_rows_per_cta(first as u64) as usize,
            "{first} parts"
        );
        let values = Random(125).integers(9, rows * 3);
        let x = matrix::<B, E>(backend, (rows, 3), &values);
        let mut sums = unwritten::<B, f32>(backend, (1, 3));
        ops::column_sums(backend, &x, &mut sums).expect("legal sums");
        let column = |column| values[column..].iter().step_by(3).sum::<f32>();
        assert_eq!(read(backend, &sums), [column(0), column(1), column(2)]);
    }
    check::<B, f16>(backend, 4_200);
    check::<B, f32>(backend, 4_200);
}

/// Rows without edges, of which there are more than a CTA clears: every one is written.
pub fn empty_rows_of_many_ctas<B: Backend>(backend: &B, _: Scale) {
    fn check<B: Backend, E: Element>(backend: &B) {
        let vertices = 3 * contract::EMPTY_ROWS_PER_CTA as usize + 16;
        let mut degrees = vec![0; vertices];
        degrees[5] = 1;
        let graph = graphs::from_degrees(&degrees, Random(126));
        for features in [1, 9, 64] {
            for &policy in spmm::policies::<E>() {
                let case = spmm::Case::random::<E>(&graph, features, policy);
                let y = case.run::<B, E>(backend);
                for (row, y) in y.chunks_exact(features).enumerate() {
                    let source = graph.row(5)[0] as usize * features;
                    let expected = match row {
                        5 => &case.x[source..source + features],
                        _ => &vec![0.0; features],
                    };
                    assert_eq!(bits(y), bits(expected), "row {row}, {policy:?}");
                }
            }
        }
    }
    check::<B, f16>(backend);
    check::<B, f32>(backend);
}
