//! What a backward pass reads of activations that are kept in 8-bit codes: the codes, their numbers again, products of them, and what a
//! ReLU let through. By `==` with the same of elements that have the numbers of the codes, which 16 bits hold exactly.

use crate::Scale;
use crate::input::{KIND, Random, bits, elements, matrix, read, rounded, unwritten};
use half::{bf16, f16};
use halfgnn::backend::Backend;
use halfgnn::ops::{self, CodeFormat, Epilogue, Form, MatmulFusion, QuantizedMatrix};
use halfgnn::tensor::{Array, Element, Matrix};

/// Room for codes in memory that was another's, with scales that differ from column to column.
fn room<B: Backend>(
    backend: &B,
    shape @ (rows, columns): (usize, usize),
    format: CodeFormat,
) -> (QuantizedMatrix<B>, Vec<f32>) {
    let mut codes = QuantizedMatrix::zeros(backend, shape, format, KIND).expect("room");
    let scale = |column: usize| (1.0 + column as f32 / 50.0) / format.limit();
    let scales: Vec<f32> = (0..columns).map(scale).collect();
    codes.scales_mut().write(backend, &scales).expect("legal");
    let words = QuantizedMatrix::<B>::words(rows, columns).expect("few");
    let old = Array::from_slice(backend, &vec![0x5a5a_5a5a; words], KIND).expect("room");
    codes.replace_codes(old, rows).expect("as many");
    (codes, scales)
}

/// Numbers about a scale, and zeros, of either sign, beside what no code stands for.
fn values<E: Element>(len: usize, scales: &[f32], seed: u32) -> Vec<f32> {
    let random: Vec<f32> = Random(seed).uniform::<f32>(len);
    let value = |(at, value): (usize, f32)| {
        let scale = scales[at % scales.len()];
        match at % 5 {
            // Half a code and less, which would be zeros.
            0 => 0.3 * value * scale,
            1 => 0.0,
            2 => 1.7 * value * scale,
            _ => value,
        }
    };
    let mut values: Vec<f32> = random.into_iter().enumerate().map(value).collect();
    let corners = [f32::NAN, f32::INFINITY, f32::NEG_INFINITY, -0.0, 1e-7];
    for (value, corner) in values.iter_mut().step_by(83).zip(corners) {
        *value = corner;
    }
    values.into_iter().map(rounded::<E>).collect()
}

/// What is positive has a positive code, what is not has none, and none is further away than a scale; else codes are the nearest.
pub fn positive_stays_positive<B: Backend>(backend: &B, scale: Scale) {
    fn check<B: Backend, E: Element>(
        backend: &B,
        shape @ (_, columns): (usize, usize),
        format: CodeFormat,
    ) {
        let what = format!("{shape:?} {} {format:?}", E::PRECISION);
        let (mut kept, scales) = room(backend, shape, format);
        let values = values::<E>(shape.0 * columns, &scales, 120);
        let x = matrix::<B, E>(backend, shape, &values);
        ops::quantize_positive(backend, &x, &mut kept).expect("legal");
        let codes = kept.to_codes(backend).expect("no failure");
        let zero = format.decode(format.zero());
        let mut rescued = 0;
        for (at, (&code, &value)) in codes.iter().zip(&values).enumerate() {
            let scale = scales[at % columns];
            let number = format.decode(code);
            assert_eq!(number > zero, value > 0.0, "{what}: {value} at {at}");
            let nearest = format.encode(value * (1.0 / scale), None) as u8;
            if code != nearest {
                rescued += 1;
                assert!(value > 0.0 && value < scale, "{what}: {value} at {at}");
                assert!(number * scale <= scale, "{what}: {value} at {at}");
            }
        }
        assert!(rescued > values.len() / 20, "{what}: {rescued}");
        let told = kept.scales().unrepresented(backend).expect("no failure");
        assert_eq!((told.not_finite, told.saturated), (3, 2), "{what}");
        let largest = kept.scales().largest(backend).expect("no failure");
        for (column, largest) in largest.into_iter().enumerate() {
            let of_column = values.iter().skip(column).step_by(columns);
            let expected = of_column.fold(0.0f32, |most, value| match value.is_finite() {
                true => most.max(value.abs()),
                false => f32::INFINITY,
            });
            // Of a column of nothing but what was less than its scale.
            assert_eq!(largest.max(scales[column]), expected.max(scales[column]));
        }
    }
    for columns in [1, 7, 9, 16, 41, 100] {
        check::<B, f16>(backend, (421, columns), CodeFormat::Int8);
    }
    check::<B, bf16>(backend, (500, 47), CodeFormat::Int8);
    check::<B, f32>(backend, (430, 33), CodeFormat::Int8);
    check::<B, f16>(backend, (scale.pick(1_000, 100_000), 24), CodeFormat::Int8);
    check::<B, f16>(backend, (430, 40), CodeFormat::E4m3);
}

/// A code is its number times the scale of its column, rounded once.
pub fn numbers_of_codes<B: Backend>(backend: &B, scale: Scale) {
    fn check<B: Backend, E: Element>(
        backend: &B,
        shape @ (_, columns): (usize, usize),
        format: CodeFormat,
    ) {
        let (mut codes, scales) = room(backend, shape, format);
        let x = values::<E>(shape.0 * columns, &scales, 121);
        let x = matrix::<B, E>(backend, shape, &x);
        ops::quantize(backend, &x, None, ops::Rounding::Nearest, &mut codes).expect("legal");
        let mut y = unwritten::<B, E>(backend, shape);
        ops::dequantize(backend, &codes, &mut y).expect("legal");
        let expected = codes.to_f32(backend).expect("no failure");
        let expected: Vec<f32> = expected.into_iter().map(rounded::<E>).collect();
        let what = format!("{shape:?} {} {format:?}", E::PRECISION);
        // Which asserts that padding is zero.
        assert!(read(backend, &y) == expected, "{what}");
    }
    for format in CodeFormat::ALL {
        for columns in [1, 7, 8, 9, 17, 41, 100, 4_100] {
            check::<B, f16>(backend, (13, columns), format);
        }
        check::<B, bf16>(backend, (67, 47), format);
        check::<B, f32>(backend, (67, 33), format);
        check::<B, f16>(backend, (scale.pick(700, 100_000), 64), format);
        check::<B, f16>(backend, (0, 8), format);
    }
}

/// The product of codes is that of elements that have their numbers, with the scales as factors of its rows, bit for bit: the terms are
/// the same, and so is the order of the sums.
pub fn products<B: Backend>(backend: &B, scale: Scale) {
    fn check<B: Backend, E: Element>(
        backend: &B,
        [m, n, k]: [usize; 3],
        (more, sums_wanted): (usize, bool),
    ) {
        let what = format!("{m} x {n} x {k} and {more} rows more, {}", E::PRECISION);
        let shape = (k + more, m);
        let (mut codes, scales) = room(backend, shape, CodeFormat::Int8);
        let x = matrix::<B, E>(backend, shape, &values::<E>(shape.0 * m, &scales, 122));
        ops::quantize(backend, &x, None, ops::Rounding::Nearest, &mut codes).expect("legal");
        let all = codes.to_codes(backend).expect("no failure");
        let numbers: Vec<f32> = all[..k * m]
            .iter()
            .map(|&code| CodeFormat::Int8.decode(code))
            .collect();
        let a = matrix::<B, E>(backend, (k, m), &numbers);
        let b = matrix::<B, E>(backend, (k, n), &Random(123).uniform::<E>(k * n));
        let row_scale = elements::<B, f32>(backend, &scales);
        let epilogue = Epilogue {
            alpha: 0.75,
            row_scale: Some(&row_scale),
            ..Epilogue::default()
        };
        let run = |of_codes: bool| {
            let mut c = unwritten::<B, f32>(backend, (m, n));
            let mut sums = unwritten::<B, f32>(backend, (1, n));
            let column_sums = sums_wanted.then_some(&mut sums);
            if of_codes {
                ops::quantized_matmul(backend, &codes, &b, 0.75, column_sums, &mut c)
                    .expect("legal");
            } else {
                let fusion = MatmulFusion {
                    column_sums,
                    ..MatmulFusion::default()
                };
                ops::matmul_fused(backend, Form::TN, &a, &b, &epilogue, fusion, &mut c)
                    .expect("legal");
            }
            let sums = match sums_wanted {
                true => read(backend, &sums),
                false => Vec::new(),
            };
            (bits(&read(backend, &c)), bits(&sums))
        };
        let (of_codes, of_elements) = (run(true), run(false));
        assert!(of_codes == of_elements, "{what}");
    }
    for [m, n] in [
        [1, 1],
        [7, 9],
        [16, 16],
        [41, 33],
        [64, 64],
        [100, 47],
        [127, 16],
        [128, 32],
        [136, 65],
        [300, 20],
    ] {
        for k in [1, 31, 32, 33, 500] {
            check::<B, f16>(backend, [m, n, k], (0, true));
        }
        check::<B, bf16>(backend, [m, n, 77], (5, false));
    }
    check::<B, f16>(backend, [40, 24, 0], (3, true));
    check::<B, f16>(backend, [64, 47, scale.pick(3_000, 100_000)], (40, true));
}

/// A product whose result is zero where codes of a ReLU's output are: that of the output itself, bit for bit, in one piece and split.
pub fn masks<B: Backend>(backend: &B, _: Scale) {
    fn check<B: Backend, E: Element>(backend: &B, [m, n, k]: [usize; 3]) {
        let (mut codes, scales) = room(backend, (m, n), CodeFormat::Int8);
        let output = matrix::<B, E>(backend, (m, n), &values::<E>(m * n, &scales, 124));
        ops::quantize_positive(backend, &output, &mut codes).expect("legal");
        let a = matrix::<B, E>(backend, (m, k), &Random(125).uniform::<E>(m * k));
        let b = matrix::<B, E>(backend, (n, k), &Random(126).uniform::<E>(n * k));
        let epilogue = Epilogue {
            alpha: 2.0,
            ..Epilogue::default()
        };
        let run = |of_codes: bool| {
            let mut c = unwritten::<B, E>(backend, (m, n));
            let fusion = MatmulFusion {
                positive: (!of_codes).then_some(&output),
                positive_codes: of_codes.then_some(&codes),
                ..MatmulFusion::default()
            };
            ops::matmul_fused(backend, Form::NT, &a, &b, &epilogue, fusion, &mut c).expect("legal");
            bits(&read(backend, &c))
        };
        let (of_codes, of_elements) = (run(true), run(false));
        assert!(of_codes == of_elements, "{m} x {n} x {k} {}", E::PRECISION);
        let zeros = of_codes.iter().filter(|&&bits| bits == 0).count();
        assert!(
            m * n < 50 || (zeros > m * n / 4 && zeros < m * n),
            "{m} x {n}: {zeros}"
        );
    }
    for [m, n] in [
        [1, 1],
        [9, 7],
        [130, 16],
        [67, 17],
        [150, 33],
        [257, 47],
        [64, 64],
        [129, 100],
    ] {
        // One step, and so many that the sum is split.
        for k in [5, 130, 700] {
            check::<B, f16>(backend, [m, n, k]);
            check::<B, bf16>(backend, [m, n, k]);
        }
    }
}

/// What does not fit is refused in one line.
pub fn misfits_are_refused<B: Backend>(backend: &B, _: Scale) {
    let codes = |shape, format| QuantizedMatrix::zeros(backend, shape, format, KIND).expect("room");
    let zeros =
        |rows, columns| Matrix::<B, f16>::zeros(backend, rows, columns, KIND).expect("room");
    let float =
        |rows, columns| Matrix::<B, f32>::zeros(backend, rows, columns, KIND).expect("room");
    let refused = |result: Result<(), halfgnn::Error>, told: &str| {
        let line = result.expect_err(told).to_string();
        assert!(line.contains(told) && !line.contains('\n'), "{line}");
    };
    let a = codes((9, 5), CodeFormat::Int8);
    let product = |a: &QuantizedMatrix<B>, b: (usize, usize), c: (usize, usize)| {
        let (b, mut c) = (zeros(b.0, b.1), float(c.0, c.1));
        ops::quantized_matmul(backend, a, &b, 1.0, None, &mut c)
    };
    product(&a, (9, 3), (5, 3)).expect("it fits");
    refused(product(&a, (10, 3), (5, 3)), "rows of the codes");
    refused(product(&a, (9, 3), (4, 3)), "rows of c");
    refused(product(&a, (9, 3), (5, 2)), "columns of c");
    let other = codes((9, 5), CodeFormat::E4m3);
    refused(product(&other, (9, 3), (5, 3)), "int8");
    let of_floats = ops::quantized_matmul(backend, &a, &float(9, 3), 1.0, None, &mut float(5, 3));
    refused(of_floats, "half and bfloat16");
    refused(
        ops::dequantize(backend, &a, &mut zeros(9, 4)),
        "columns of y",
    );
    let x = zeros(8, 5);
    let mut y = codes((9, 5), CodeFormat::Int8);
    refused(ops::quantize_positive(backend, &x, &mut y), "rows of x");
    let masked = |form, codes: &QuantizedMatrix<B>, positive: bool| {
        let (a, b) = (zeros(4, 4), zeros(4, 4));
        let output = zeros(4, 4);
        let fusion = MatmulFusion {
            positive: positive.then_some(&output),
            positive_codes: Some(codes),
            ..MatmulFusion::default()
        };
        let plain = Epilogue::default();
        ops::matmul_fused(backend, form, &a, &b, &plain, fusion, &mut zeros(4, 4))
    };
    let square = codes((4, 4), CodeFormat::Int8);
    masked(Form::NT, &square, false).expect("it fits");
    let fewer = codes((3, 4), CodeFormat::Int8);
    refused(masked(Form::NT, &fewer, false), "rows of the ReLU's codes");
    refused(masked(Form::NT, &a, false), "columns of the ReLU's codes");
    refused(masked(Form::NN, &square, false), "the form NT");
    refused(masked(Form::NT, &square, true), "in the place");
    refused(
        masked(Form::NT, &codes((4, 4), CodeFormat::E4m3), false),
        "int8",
    );
}
