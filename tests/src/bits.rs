//! Matrices of bits: signs of numbers, sums of ±1 over neighbours and products of them, which are integers, by `==`.

use crate::Scale;
use crate::graphs::{boundaries, from_degrees, hub, odd, power_law, rectangular};
use crate::input::{KIND, Random, elements, matrix, read, unwritten};
use half::{bf16, f16};
use halfgnn::backend::{Adjacency, Backend};
use halfgnn::graph::Csr;
use halfgnn::ops::{self, BitMatrix, Bmm};
use halfgnn::tensor::{Element, Matrix};
use halfgnn_contract::bits::EDGES_PER_CTA;

/// Numbers of columns at every boundary of lanes, words and launches.
const COLUMNS: [usize; 12] = [1, 7, 31, 32, 33, 63, 64, 65, 128, 130, 256, 300];

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

/// The sums of the neighbours of each row, and how many there are.
pub fn sums(graph: &Csr, x: &[f32], columns: usize) -> (Vec<f32>, Vec<usize>) {
    let mut sums = vec![0.0; graph.vertices() * columns];
    for (&row, &column) in graph.rows().iter().zip(graph.cols()) {
        let from = &x[column as usize * columns..][..columns];
        let to = &mut sums[row as usize * columns..][..columns];
        to.iter_mut().zip(from).for_each(|(to, &from)| *to += from);
    }
    let degrees = (0..graph.vertices()).map(|row| graph.row_range(row).len());
    (sums, degrees.collect())
}

/// Both kinds of output of one graph and width.
fn check<B: Backend, E: Element>(backend: &B, name: &str, graph: &Csr, columns: usize) {
    let what = format!("{name}, {columns} columns");
    let a = Adjacency::new(backend, graph).expect("room for a graph");
    let (rows, sources) = graph.shape();
    let values = signs(sources * columns, 50 + columns as u32);
    let x = BitMatrix::from_signs(backend, (sources, columns), &values, KIND).expect("signs");
    let (sums, degrees) = sums(graph, &values, columns);

    let mut y = unwritten_bits(backend, (rows, columns));
    ops::bspmm_signs(backend, &a, &x, &mut y).expect("legal");
    let sign = |&sum: &f32| if sum >= 0.0 { 1.0 } else { -1.0 };
    let expected: Vec<f32> = sums.iter().map(sign).collect();
    assert!(read_bits(backend, &y) == expected, "signs, {what}");

    let factors: Vec<f32> = degrees.iter().map(|&degree| 1.0 / degree as f32).collect();
    let row_scale = elements::<B, f32>(backend, &factors);
    for (row_scale, scale) in [(None, 1.0), (Some(&row_scale), -0.5)] {
        let mut y = unwritten::<B, E>(backend, (rows, columns));
        ops::bspmm(backend, &a, &x, row_scale, scale, &mut y).expect("legal");
        let expected: Vec<f32> = (sums.iter().enumerate())
            .map(|(at, sum)| match (degrees[at / columns], row_scale) {
                (0, _) => 0.0,
                (_, None) => E::from_f32(sum * scale).to_f32(),
                (_, Some(_)) => E::from_f32(sum * (scale * factors[at / columns])).to_f32(),
            })
            .collect();
        assert!(read(backend, &y) == expected, "sums times {scale}, {what}");
    }
}

/// Graphs of every kind, rows that end about the ends of CTAs, and hubs of many CTAs.
pub fn every_graph<B: Backend>(backend: &B, scale: Scale) {
    for (name, graph) in odd(scale).into_iter().chain(rectangular(scale)) {
        check::<B, f16>(backend, name, &graph, 70);
    }
    for (name, graph) in boundaries(scale) {
        check::<B, f32>(backend, &name, &graph, 20);
    }
    let tile = EDGES_PER_CTA as usize;
    for degrees in [
        vec![tile],
        vec![tile, 1],
        vec![tile - 1, 1, 1],
        vec![3, tile, 0, tile - 3],
        vec![3, 3 * tile + 5, 0, 31, 32, 33, 8, 9],
        vec![0, 2 * tile, tile, 0, 479, 480, 481],
        vec![1; 2 * tile + 3],
        vec![2; tile],
    ] {
        let name = format!("rows of {:?}", &degrees[..degrees.len().min(9)]);
        let graph = from_degrees(&degrees, Random(60));
        check::<B, f16>(backend, &name, &graph, 64);
        check::<B, bf16>(backend, &name, &graph, 130);
    }
    check::<B, f32>(backend, "a hub", &hub(scale.pick(5_000, 300_000)), 40);
}

/// Every number of columns.
pub fn every_width<B: Backend>(backend: &B, scale: Scale) {
    let graph = power_law(150, scale.pick(3_000, 100_000), Random(61));
    for columns in COLUMNS {
        check::<B, f16>(backend, "power law", &graph, columns);
    }
    check::<B, f32>(backend, "power law", &graph, 33);
    check::<B, bf16>(backend, "power law", &graph, 602);
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

/// Products of every size about the ends of words, steps, tiles and CTAs, with every factor and without.
pub fn products<B: Backend>(backend: &B, scale: Scale) {
    fn check<B: Backend, E: Element>(backend: &B, [m, n, k]: [usize; 3]) {
        let (left, right) = (signs(m * k, 64), signs(n * k, 65 + k as u32));
        let a = BitMatrix::from_signs(backend, (m, k), &left, KIND).expect("signs");
        let b = BitMatrix::from_signs(backend, (n, k), &right, KIND).expect("signs");
        let product = |at: usize| {
            let (a, b) = (&left[at / n * k..][..k], &right[at % n * k..][..k]);
            a.iter().zip(b).map(|(a, b)| a * b).sum::<f32>()
        };
        let factors = |len: usize, random| Random(random).uniform::<f32>(len);
        let (rows, columns, bias) = (factors(m, 66), factors(n, 67), factors(n, 68));
        let on = |values: &[f32]| elements::<B, f32>(backend, values);
        let arrays = [on(&rows), on(&columns), on(&bias)];
        let factored = Bmm {
            scale: -0.25,
            row_scale: Some(&arrays[0]),
            column_scale: Some(&arrays[1]),
            bias: Some(&arrays[2]),
        };
        for (op, is_factored) in [(Bmm::default(), false), (factored, true)] {
            let expected: Vec<f32> = (0..m * n)
                .map(|at| match is_factored {
                    true => product(at) * (-0.25 * rows[at / n]) * columns[at % n] + bias[at % n],
                    false => product(at),
                })
                .collect();
            let mut y = unwritten::<B, E>(backend, (m, n));
            ops::bmm(backend, &a, &b, &op, &mut y).expect("legal");
            let rounded: Vec<f32> = expected.iter().map(|v| E::from_f32(*v).to_f32()).collect();
            assert!(
                read(backend, &y) == rounded,
                "{m} x {n} x {k}, factors: {is_factored}"
            );
            let mut y = unwritten_bits(backend, (m, n));
            ops::bmm_signs(backend, &a, &b, &op, &mut y).expect("legal");
            let sign = |&value: &f32| if value >= 0.0 { 1.0 } else { -1.0 };
            let expected: Vec<f32> = expected.iter().map(sign).collect();
            assert!(
                read_bits(backend, &y) == expected,
                "{m} x {n} x {k}, signs: {is_factored}"
            );
        }
    }
    for (at, &k) in COLUMNS.iter().enumerate() {
        check::<B, f16>(backend, [40, [7, 64, 65][at % 3], k]);
        check::<B, f32>(backend, [9, COLUMNS[COLUMNS.len() - 1 - at], k]);
    }
    for m in [1, 8, 9, 16, 17, 31, 32, 33, 255, 256, 257] {
        check::<B, bf16>(backend, [m, 10, 100]);
    }
    check::<B, f16>(backend, [scale.pick(300, 20_000), 41, 602]);
    check::<B, f32>(backend, [3, 130, 1433]);
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
