//! Matrices of bits: signs of numbers, and what operators of them take and refuse.

use crate::Scale;
use crate::bit_sums::sums;
use crate::graphs::from_degrees;
use crate::input::{KIND, Random, elements, matrix, read, unwritten};
use half::{bf16, f16};
use halfgnn::backend::{Adjacency, Backend};
use halfgnn::ops::blocks::{Addition, mm_add};
use halfgnn::ops::{
    self, BatchNorm, BitMatrix, BitOutput, BitVariant, Bmm, BmmOperands, BspmmSignsOperands,
    Checked, ColumnFactors, IntegerMatrix, Normalization, Schedule, SignOperand, SumOperand,
};
use halfgnn::tensor::{Element, Matrix};

/// Numbers of columns at every boundary of lanes, words and launches.
pub const COLUMNS: [usize; 12] = [1, 7, 31, 32, 33, 63, 64, 65, 128, 130, 256, 300];

/// Random +1 and −1.
pub fn signs(len: usize, random: u32) -> Vec<f32> {
    let bit = |at| Random(random).bits(at) >> 13 & 1;
    (0..len)
        .map(|at| if bit(at) == 1 { 1.0 } else { -1.0 })
        .collect()
}

/// Bits that nobody has written: all set, padding too.
pub fn unwritten_bits<B: Backend>(backend: &B, shape: (usize, usize)) -> BitMatrix<B> {
    let ones = vec![1.0; shape.0 * shape.1];
    BitMatrix::from_signs(backend, shape, &ones, KIND).expect("room for bits")
}

/// The elements, after asserting that bits past the last column are zero.
pub fn read_bits<B: Backend>(backend: &B, bits: &BitMatrix<B>) -> Vec<f32> {
    let words = bits.to_words(backend).expect("no failure before");
    for row in words.chunks_exact(bits.stride()) {
        for (at, word) in row.iter().enumerate() {
            let there = bits.columns().saturating_sub(at * 64).min(64);
            assert!(
                there == 64 || word >> there == 0,
                "padding of word {at}: {word:x}"
            );
        }
    }
    bits.to_signs(backend).expect("no failure before")
}

/// Bits of elements of every width: zero of either sign is +1, NaN is −1, and padding stays zero.
pub fn signs_of_elements<B: Backend>(backend: &B, _: Scale) {
    fn check<B: Backend, E: Element>(backend: &B, shape: (usize, usize)) {
        let mut values = Random(62).uniform::<E>(shape.0 * shape.1);
        let corners = [
            0.0,
            -0.0,
            f32::NAN,
            f32::INFINITY,
            f32::NEG_INFINITY,
            -6e-8,
            6e-8,
        ];
        for (at, &corner) in corners.iter().cycle().take(values.len() / 3).enumerate() {
            values[3 * at] = E::from_f32(corner).to_f32();
        }
        let x: Matrix<B, E> = matrix(backend, shape, &values);
        let mut y = unwritten_bits(backend, shape);
        ops::binarize(backend, &x, &mut y).expect("legal");
        let sign = |&value: &f32| if value >= 0.0 { 1.0 } else { -1.0 };
        let expected: Vec<f32> = values.iter().map(sign).collect();
        assert!(read_bits(backend, &y) == expected, "{shape:?}");
    }
    for columns in COLUMNS {
        check::<B, f16>(backend, (5, columns));
        check::<B, f32>(backend, (37, columns));
        check::<B, bf16>(backend, (3, columns));
    }
    check::<B, f16>(backend, (700, 9));
}

/// Bits of what a normalisation makes of elements, without a matrix for it, are those that it has; also where that is so small that it is
/// rounded to zero.
pub fn signs_of_what_is_normalized<B: Backend>(backend: &B, _: Scale) {
    fn check<B: Backend, E: Element>(backend: &B, shape: (usize, usize)) {
        let (rows, columns) = shape;
        let mut values = Random(77).uniform::<E>(rows * columns);
        // A column of one number, and one that is off its mean by next to nothing.
        for row in values.chunks_exact_mut(columns) {
            row[0] = 0.5;
            row[columns / 2] = E::from_f32(row[columns / 2] * 1e-7).to_f32();
        }
        let x: Matrix<B, E> = matrix(backend, shape, &values);
        let of_columns =
            |rows: usize, values: Vec<f32>| matrix::<B, f32>(backend, (rows, columns), &values);
        let (mut statistics, mut running) = (
            of_columns(2, vec![0.0; 2 * columns]),
            of_columns(2, vec![0.0; 2 * columns]),
        );
        let op = BatchNorm::default();
        ops::batch_statistics(backend, &op, &x, &mut running, &mut statistics).expect("legal");
        let (weight, mut bias) = (
            Random(78).uniform::<f32>(columns),
            Random(79).uniform::<f32>(columns),
        );
        // Less than zero, and in half a zero: so is what the column of one number becomes.
        bias[0] = -1e-9;
        for (weight, bias) in [(vec![1.0; columns], vec![0.0; columns]), (weight, bias)] {
            let (weight, bias) = (of_columns(1, weight), of_columns(1, bias));
            let op = Normalization {
                statistics: &statistics,
                weight: &weight,
                bias: &bias,
                relu: false,
            };
            let mut y = unwritten::<B, E>(backend, shape);
            ops::normalize(backend, &op, &x, &mut y).expect("legal");
            let mut expected = unwritten_bits(backend, shape);
            ops::binarize(backend, &y, &mut expected).expect("legal");
            let mut bits = unwritten_bits(backend, shape);
            ops::binarize_normalized(backend, &op, &x, &mut bits).expect("legal");
            assert!(
                read_bits(backend, &bits) == read_bits(backend, &expected),
                "{shape:?}"
            );
        }
        let relu = Normalization {
            statistics: &statistics,
            weight: &of_columns(1, vec![1.0; columns]),
            bias: &of_columns(1, vec![0.0; columns]),
            relu: true,
        };
        let mut bits = unwritten_bits(backend, shape);
        let error = ops::binarize_normalized(backend, &relu, &x, &mut bits).expect_err("refused");
        assert!(
            error.to_string().contains("behind a ReLU all signs are +1"),
            "{error}"
        );
    }
    for columns in COLUMNS {
        check::<B, f16>(backend, (21, columns));
        check::<B, f32>(backend, (37, columns));
        check::<B, bf16>(backend, (3, columns));
    }
    check::<B, f16>(backend, (700, 9));
}

/// Every variant of products and sums by the types of its operands gives what the operator does that it is made of, and sums of half
/// that are exact have their signs.
pub fn operands_of_every_type<B: Backend>(backend: &B, _: Scale) {
    type Of<'a, B> = (&'a BitMatrix<B>, &'a Matrix<B, f32>);
    fn operand<'a, B: Backend>(
        bits: bool,
        of: Of<'a, B>,
        room: &'a mut Option<BitMatrix<B>>,
    ) -> SignOperand<'a, B, f32> {
        match bits {
            true => SignOperand::Bits(of.0),
            false => SignOperand::Elements(of.1, room),
        }
    }
    let names = BitVariant::ALL.map(BitVariant::name);
    assert_eq!(
        names,
        ["FFF", "FFB", "FBF", "FBB", "BFF", "BFB", "BBF", "BBB"]
    );
    let sign = |&value: &f32| if value >= 0.0 { 1.0 } else { -1.0 };
    let [m, n, k] = [37, 9, 70];
    let numbers = |len, random| -> Vec<f32> {
        let draws = Random(random).below(9, len);
        draws.iter().map(|&draw| draw as f32 - 4.0).collect()
    };
    let both = |rows: usize, columns: usize, random| {
        let values = numbers(rows * columns, random);
        let bits: Vec<f32> = values.iter().map(sign).collect();
        let on = BitMatrix::from_signs(backend, (rows, columns), &bits, KIND).expect("signs");
        (
            on,
            matrix::<B, f32>(backend, (rows, columns), &values),
            values,
            bits,
        )
    };
    let (a_bits, a, _, a_signs) = both(m, k, 77);
    let (b_bits, b, _, b_signs) = both(n, k, 78);
    let products: Vec<f32> = (0..m * n)
        .map(|at| {
            let (a, b) = (&a_signs[at / n * k..][..k], &b_signs[at % n * k..][..k]);
            a.iter().zip(b).map(|(a, b)| a * b).sum()
        })
        .collect();
    let op = Bmm::default();
    let (mut a_room, mut b_room) = (None, Some(unwritten_bits(backend, (2, 3))));
    for variant in BitVariant::ALL {
        let a = operand(variant.activation, (&a_bits, &a), &mut a_room);
        let b = operand(variant.second, (&b_bits, &b), &mut b_room);
        if variant.result {
            let mut y = unwritten_bits(backend, (m, n));
            ops::bmm_of(backend, a, b, &op, BitOutput::Bits(&mut y)).expect("legal");
            let expected: Vec<f32> = products.iter().map(sign).collect();
            assert!(read_bits(backend, &y) == expected, "product {variant}");
            continue;
        }
        let mut y = unwritten::<B, f32>(backend, (m, n));
        let done = ops::bmm_of(backend, a, b, &op, BitOutput::Elements(&mut y));
        if variant.name() == "FFF" {
            let told = done.expect_err("no product of bits").to_string();
            assert!(
                told.ends_with("is no product of bits; take matmul"),
                "{told}"
            );
            continue;
        }
        done.expect("legal");
        assert!(read(backend, &y) == products, "product {variant}");
    }

    let graph = from_degrees(&[2, 40, 0, 7, 1], Random(79));
    let edges = Adjacency::new(backend, &graph).expect("room for a graph");
    let (x_bits, x, x_values, x_signs) = both(5, k, 80);
    let codes = [255.0_f32, 3.0, 0.0, 16.0, 129.0];
    let coded = ColumnFactors::new(backend, &codes, KIND).expect("factors");
    let factors = elements::<B, f32>(backend, &codes);
    let mut room = None;
    for variant in BitVariant::ALL {
        let own = if variant.activation {
            &x_signs
        } else {
            &x_values
        };
        let times = |(at, value): (usize, &f32)| match variant.second {
            true => *value,
            false => value * codes[at / k],
        };
        let terms: Vec<f32> = own.iter().enumerate().map(times).collect();
        let (expected, _) = sums(&graph, &terms, k);
        let x = || match (variant.activation, variant.second) {
            (true, true) => SumOperand::Bits(&x_bits, None),
            (true, false) => SumOperand::Bits(&x_bits, Some(&coded)),
            (false, true) => SumOperand::Elements(&x, None),
            (false, false) => SumOperand::Elements(&x, Some(&factors)),
        };
        if variant.result {
            let mut y = unwritten_bits(backend, (5, k));
            let to = BitOutput::Bits(&mut y);
            ops::bspmm_of(backend, (&edges, x()), None, to, &mut room).expect("legal");
            let expected: Vec<f32> = expected.iter().map(sign).collect();
            assert!(read_bits(backend, &y) == expected, "sum {variant}");
        } else {
            let mut y = unwritten::<B, f32>(backend, (5, k));
            let to = BitOutput::Elements(&mut y);
            ops::bspmm_of(backend, (&edges, x()), None, to, &mut room).expect("legal");
            assert!(read(backend, &y) == expected, "sum {variant}");
        }
    }
}

/// What does not fit a matrix of integers.
fn refused_integers<B: Backend>(backend: &B, a: &Adjacency<B>, two: &ColumnFactors<B>) {
    let bits = |shape| unwritten_bits(backend, shape);
    let integers = |shape: (usize, usize)| IntegerMatrix::zeros(backend, shape.0, shape.1, KIND);
    let refused = |x, y| {
        let mut y = integers(y).expect("room for integers");
        let told = ops::bspmm_integers(backend, a, &bits(x), &mut y);
        told.expect_err("refused").to_string()
    };
    assert_eq!(
        [
            refused((2, 8), (3, 8)),
            refused((3, 8), (2, 8)),
            refused((3, 8), (3, 9))
        ],
        [
            "bspmm_integers: rows of x should be 3, is 2",
            "bspmm_integers: rows of y should be 3, is 2",
            "bspmm_integers: columns of y should be 8, is 9",
        ]
    );
    let mut y = integers((3, 8)).expect("room for integers");
    let told = ops::bspmm_factored_integers(backend, (a, two), &bits((3, 8)), &mut y);
    assert_eq!(
        told.expect_err("refused").to_string(),
        "bspmm_integers: factors of columns should be 3, is 2"
    );
    let values = [1, -2, 3, i32::MIN, 0, i32::MAX];
    let y = IntegerMatrix::from_slice(backend, (2, 3), &values, KIND).expect("room");
    assert_eq!(y.to_vec(backend).expect("no failure before"), values);
    let told = IntegerMatrix::from_slice(backend, (2, 3), &values[1..], KIND).map(drop);
    assert_eq!(
        told.expect_err("refused").to_string(),
        "IntegerMatrix::from_slice: values should be 6, is 5"
    );
    let told = integers((1 << 40, 1 << 30)).map(drop).expect_err("refused");
    assert!(told.to_string().contains("1099511627776"), "{told}");
}

/// What does not fit is refused, and a value that is no sign.
pub fn misfits_are_refused<B: Backend>(backend: &B, _: Scale) {
    let graph = from_degrees(&[2, 1, 0], Random(63));
    let a = Adjacency::new(backend, &graph).expect("room for a graph");
    let bits = |shape| unwritten_bits(backend, shape);
    let refused = |x: (usize, usize), y| {
        ops::bspmm_signs(backend, &a, &bits(x), &mut bits(y))
            .expect_err("refused")
            .to_string()
    };
    assert_eq!(
        refused((2, 8), (3, 8)),
        "bspmm_signs: rows of x should be 3, is 2"
    );
    assert_eq!(
        refused((3, 8), (3, 9)),
        "bspmm_signs: columns of y should be 8, is 9"
    );
    let mut y = unwritten::<B, f16>(backend, (2, 8));
    let error = ops::bspmm(backend, &a, &bits((3, 8)), None, 1.0, &mut y).expect_err("refused");
    assert_eq!(error.to_string(), "bspmm: rows of y should be 3, is 2");
    let short = elements::<B, f32>(backend, &[1.0; 2]);
    let mut y = unwritten::<B, f16>(backend, (3, 8));
    let error = ops::bspmm(backend, &a, &bits((3, 8)), Some(&short), 1.0, &mut y);
    let error = error.expect_err("refused").to_string();
    assert_eq!(error, "bspmm: row scale should be 3, is 2");
    let factors = |values: &[f32]| ColumnFactors::new(backend, values, KIND);
    let told = factors(&[0.5, -0.5]).expect_err("refused").to_string();
    assert_eq!(
        told,
        "ColumnFactors::new: the factor of column 1 is -0.5; factors are finite, and zero or more"
    );
    assert!(factors(&[f32::NAN]).is_err() && factors(&[f32::INFINITY]).is_err());
    let two = factors(&[0.5, 1.0]).expect("factors");
    let mut signs = bits((3, 8));
    let told = ops::bspmm_factored_signs(backend, (&a, &two), &bits((3, 8)), &mut signs);
    assert_eq!(
        told.expect_err("refused").to_string(),
        "bspmm_signs: factors of columns should be 3, is 2"
    );
    refused_integers(backend, &a, &two);
    let three = factors(&[0.5, 1.0, 0.0]).expect("factors");
    let by = |schedule, factors| {
        let operands = BspmmSignsOperands {
            a: &a,
            factors,
            x: &bits((3, 8)),
            schedule,
            y: &mut bits((3, 8)),
        };
        let told = Checked::new(operands).expect_err("refused");
        told.to_string()
    };
    assert_eq!(
        by(Schedule::Vertex, Some(&three)),
        "bspmm_signs: with factors of columns bits are summed up by edges; take Schedule::Edge"
    );
    assert_eq!(
        by(Schedule::RowIds, None),
        "bspmm_signs: bits are summed up by edges or by vertices; take Schedule::Edge or Schedule::Vertex"
    );
    let plain = Bmm::default();
    let refused = |b: (usize, usize), op: &Bmm<'_, B>, y: (usize, usize)| {
        let (a, b) = (bits((3, 8)), bits(b));
        let error = ops::bmm_signs(backend, &a, &b, op, &mut bits(y)).expect_err("refused");
        error.to_string()
    };
    assert_eq!(
        refused((5, 9), &plain, (3, 5)),
        "bmm_signs: columns of b should be 8, is 9"
    );
    assert_eq!(
        refused((5, 8), &plain, (3, 6)),
        "bmm_signs: columns of y should be 5, is 6"
    );
    assert_eq!(
        refused((5, 8), &plain, (4, 5)),
        "bmm_signs: rows of y should be 3, is 4"
    );
    let bias = Bmm {
        bias: Some(&short),
        ..Bmm::default()
    };
    assert_eq!(
        refused((5, 8), &bias, (3, 5)),
        "bmm_signs: bias should be 5, is 2"
    );
    let error = ops::bmm(backend, &bits((2, 8)), &bits((5, 8)), &plain, &mut y);
    let error = error.expect_err("refused").to_string();
    assert_eq!(error, "bmm: rows of y should be 2, is 3");
    let product = BmmOperands {
        a: &bits((2, 8)),
        b: &bits((5, 8)),
        op: &plain,
    };
    let error = mm_add(backend, product, Addition::Products, &mut y).expect_err("refused");
    assert_eq!(error.to_string(), "bmm: rows of y should be 2, is 3");
    let error = ops::binarize(backend, &y, &mut bits((3, 7))).expect_err("refused");
    assert_eq!(
        error.to_string(),
        "binarize: columns of x should be 7, is 8"
    );
    let refused = |shape, values: &[f32]| {
        BitMatrix::from_signs(backend, shape, values, KIND)
            .expect_err("refused")
            .to_string()
    };
    assert_eq!(
        refused((2, 2), &[1.0, -1.0, 1.0, 0.5]),
        "BitMatrix::from_signs: row 1, column 1 is 0.5; a bit is +1 or -1: binarize other numbers"
    );
    assert_eq!(
        refused((2, 0), &[]),
        "BitMatrix: 2 x 0 bits; a row has at least one column"
    );
}
