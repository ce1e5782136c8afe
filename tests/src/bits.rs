//! Matrices of bits: signs of numbers, sums of ±1 over neighbours and products of them, which are integers, by `==`.

use crate::Scale;
use crate::graphs::{boundaries, from_degrees, hub, odd, power_law, rectangular};
use crate::input::{KIND, Random, elements, matrix, read, unwritten};
use half::{bf16, f16};
use halfgnn::backend::{Adjacency, Backend};
use halfgnn::graph::Csr;
use halfgnn::ops::blocks::{Addition, Between, mm_add, mm_spmm};
use halfgnn::ops::{
    self, BatchNorm, BitMatrix, BitOutput, BitVariant, Bmm, BmmOperands, BspmmOperands,
    BspmmSignsOperands, Checked, ColumnFactors, Normalization, Schedule, SignOperand, Spmm,
    SumOperand,
};
use halfgnn::tensor::{Array, Element, Matrix};
use halfgnn_contract::WARP;
use halfgnn_contract::bits::{EDGES_PER_CTA, EDGES_PER_WARP};

/// Numbers of columns at every boundary of lanes, words and launches.
const COLUMNS: [usize; 12] = [1, 7, 31, 32, 33, 63, 64, 65, 128, 130, 256, 300];

/// Every way to deal edges out: two launches, and one.
const SCHEDULES: [Schedule; 2] = [Schedule::Edge, Schedule::Vertex];

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
    let sources = graph.shape().1;
    let values = signs(sources * columns, 50 + columns as u32);
    let x = BitMatrix::from_signs(backend, (sources, columns), &values, KIND).expect("signs");
    let (sums, degrees) = sums(graph, &values, columns);

    let sign = |&sum: &f32| if sum >= 0.0 { 1.0 } else { -1.0 };
    let expected: Vec<f32> = sums.iter().map(sign).collect();
    for schedule in SCHEDULES {
        let found = summed_signs(backend, (&a, &x), schedule);
        assert!(found == expected, "signs, {schedule:?}, {what}");
    }

    let factors: Vec<f32> = degrees.iter().map(|&degree| 1.0 / degree as f32).collect();
    let row_scale = elements::<B, f32>(backend, &factors);
    for (row_scale, scale) in [(None, 1.0), (Some(&row_scale), -0.5)] {
        let expected: Vec<f32> = (sums.iter().enumerate())
            .map(|(at, sum)| match (degrees[at / columns], row_scale) {
                (0, _) => 0.0,
                (_, None) => E::from_f32(sum * scale).to_f32(),
                (_, Some(_)) => E::from_f32(sum * (scale * factors[at / columns])).to_f32(),
            })
            .collect();
        for schedule in SCHEDULES {
            let found = summed::<B, E>(backend, (&a, &x), (row_scale, scale), schedule);
            assert!(
                found == expected,
                "sums times {scale}, {schedule:?}, {what}"
            );
        }
    }
}

/// The signs of sums over neighbours, by a schedule.
fn summed_signs<B: Backend>(
    backend: &B,
    (a, x): (&Adjacency<B>, &BitMatrix<B>),
    schedule: Schedule,
) -> Vec<f32> {
    let mut y = unwritten_bits(backend, (a.rows(), x.columns()));
    let operands = BspmmSignsOperands {
        a,
        factors: None,
        x,
        schedule,
        y: &mut y,
    };
    let checked = Checked::new(operands).expect("legal");
    backend.bspmm_signs(checked).expect("legal");
    read_bits(backend, &y)
}

/// The sums, with a factor a row and one of all.
fn summed<B: Backend, E: Element>(
    backend: &B,
    (a, x): (&Adjacency<B>, &BitMatrix<B>),
    (row_scale, scale): (Option<&Array<B, f32>>, f32),
    schedule: Schedule,
) -> Vec<f32> {
    let mut y = unwritten::<B, E>(backend, (a.rows(), x.columns()));
    let operands = BspmmOperands {
        a,
        factors: None,
        x,
        row_scale,
        scale,
        schedule,
        y: &mut y,
    };
    let checked = Checked::new(operands).expect("legal");
    backend.bspmm(checked).expect("legal");
    read(backend, &y)
}

/// Sums of bits over random neighbours and their signs, by every schedule, one after the other.
pub fn sums_of_every_schedule<B: Backend>(backend: &B, random: u32) -> Vec<f32> {
    let graph = power_law(300, 4_000, Random(random));
    let (columns, rows) = (70, graph.vertices());
    let a = Adjacency::new(backend, &graph).expect("room for a graph");
    let values = signs(rows * columns, random);
    let x = BitMatrix::from_signs(backend, (rows, columns), &values, KIND).expect("signs");
    let by = |schedule| {
        let mut both = summed::<B, f16>(backend, (&a, &x), (None, 0.5), schedule);
        both.extend(summed_signs(backend, (&a, &x), schedule));
        both
    };
    SCHEDULES.into_iter().flat_map(by).collect()
}

/// Graphs of every kind, rows that end about the ends of CTAs, and hubs of many CTAs.
pub fn every_graph<B: Backend>(backend: &B, scale: Scale) {
    for (name, graph) in odd(scale).into_iter().chain(rectangular(scale)) {
        check::<B, f16>(backend, name, &graph, 70);
    }
    for (name, graph) in boundaries(scale) {
        check::<B, f32>(backend, &name, &graph, 20);
    }
    let (warp, tile) = (EDGES_PER_WARP as usize, EDGES_PER_CTA as usize);
    for degrees in [
        // Rows that end with 32 edges or go on, and with a warp's or go on.
        vec![32],
        vec![31, 1],
        vec![1; 32],
        vec![1, 7, 8, 9, 7, 24, 8],
        vec![7; 300],
        vec![8; 257],
        vec![warp],
        vec![warp - 1, 1],
        vec![1; warp],
        vec![100, 2 * warp - 100],
        vec![100, 2 * warp - 100, warp, 1],
        // And with a CTA's; of eight CTAs, and of nine.
        vec![tile - warp, warp, 1],
        vec![tile - 1, warp + 1],
        vec![5, 8 * tile, 9 * tile + 1, 2],
        [vec![0; 300], vec![3], vec![0; 1_050]].concat(),
        vec![tile],
        vec![tile, 1],
        vec![tile - 1, 1, 1],
        vec![3, tile, 0, tile - 3],
        vec![3, 3 * tile + 5, 0, 31, 32, 33, 8, 9],
        vec![0, 2 * tile, tile, 0, 7, 8],
        vec![1; 2 * tile + 3],
        vec![2; tile],
    ] {
        let name = format!("rows of {:?}", &degrees[..degrees.len().min(9)]);
        let graph = from_degrees(&degrees, Random(60));
        check::<B, f16>(backend, &name, &graph, 64);
        check::<B, f16>(backend, &name, &graph, 100);
        check::<B, bf16>(backend, &name, &graph, 130);
    }
    check::<B, f32>(backend, "a hub", &hub(scale.pick(9 * tile, 300_000)), 40);
}

/// Rows of every length that begin and end anywhere in a CTA's edges, or have those of several.
pub fn rows_of_every_length<B: Backend>(backend: &B, _: Scale) {
    let edges = 200 * EDGES_PER_CTA;
    let some = [
        1, 0, 31, 2, 32, 33, 5, 63, 64, 0, 65, 100, 3, 127, 128, 129, 7, 300, 0, 1, 1, 1, 1000, 17,
        5000, 16, 16, 16, 16, 40, 9, 255, 256, 257, 4, 4, 4, 4, 4, 30,
    ];
    let mut degrees = Vec::new();
    let mut left = edges as usize;
    for (turn, &degree) in some.iter().cycle().enumerate() {
        let degree = (degree + turn / some.len() % 3).min(left);
        degrees.push(degree);
        left -= degree;
        if left == 0 {
            break;
        }
    }
    let graph = from_degrees(&degrees, Random(63));
    check::<B, f16>(backend, "rows of every length", &graph, 60);
    check::<B, f16>(backend, "rows of every length", &graph, 128);
    let codes: Vec<u32> = (0..graph.vertices() as u32)
        .map(|at| at * 7 % 256)
        .collect();
    check_factored::<B, f16>(backend, "rows of every length", &graph, 20, &codes);
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
    // Of so many rows that a warp of the emulator's has more tiles than are on their way at once, of columns that stay in registers, of
    // which a CTA has all and one of them two, and of longer ones.
    for (n, k) in [(66, 70), (5, 200)] {
        check::<B, f16>(backend, [26_001, n, k]);
    }
    check::<B, f32>(backend, [3, 130, 1433]);
}

/// What an MM-ADD adds to what is there, the product or a share with its sign, of every size about the ends of words, steps, tiles and
/// CTAs, with every factor and without.
pub fn products_that_are_added<B: Backend>(backend: &B, scale: Scale) {
    fn check<B: Backend, E: Element>(backend: &B, [m, n, k]: [usize; 3]) {
        let (left, right) = (signs(m * k, 81), signs(n * k, 82 + k as u32));
        let a = BitMatrix::from_signs(backend, (m, k), &left, KIND).expect("signs");
        let b = BitMatrix::from_signs(backend, (n, k), &right, KIND).expect("signs");
        let before = Random(83).uniform::<E>(m * n);
        let on = |len, random| elements::<B, f32>(backend, &Random(random).uniform::<f32>(len));
        let (rows, columns, bias) = (on(m, 84), on(n, 85), on(n, 86));
        let factored = Bmm {
            scale: 0.75,
            row_scale: Some(&rows),
            column_scale: Some(&columns),
            bias: Some(&bias),
        };
        // Of these some are zero, of either sign.
        let scaled = Bmm {
            row_scale: Some(&rows),
            ..Bmm::default()
        };
        for (op, what) in [
            (Bmm::default(), "plain"),
            (scaled, "rows times factors"),
            (factored, "all factors and a bias"),
        ] {
            // In float, as it is before it is an element.
            let mut product = unwritten::<B, f32>(backend, (m, n));
            ops::bmm(backend, &a, &b, &op, &mut product).expect("legal");
            let product = read(backend, &product);
            let share = 0.3;
            for addition in [Addition::Products, Addition::Signs { share }] {
                let added = |value: f32| match addition {
                    Addition::Products => value,
                    Addition::Signs { .. } if value >= 0.0 => share,
                    Addition::Signs { .. } => -share,
                };
                let sums = before.iter().zip(&product);
                let expected: Vec<f32> = sums
                    .map(|(before, &value)| E::from_f32(before + added(value)).to_f32())
                    .collect();
                let mut y: Matrix<B, E> = matrix(backend, (m, n), &before);
                let (a, b, op) = (&a, &b, &op);
                mm_add(backend, BmmOperands { a, b, op }, addition, &mut y).expect("legal");
                assert!(
                    read(backend, &y) == expected,
                    "{m} x {n} x {k}, {addition:?}, {what}"
                );
            }
        }
    }
    for (at, &k) in COLUMNS.iter().enumerate() {
        check::<B, f16>(backend, [40, [7, 64, 65][at % 3], k]);
        check::<B, f32>(backend, [9, COLUMNS[COLUMNS.len() - 1 - at], k]);
    }
    for m in [1, 15, 16, 17, 255, 257] {
        check::<B, bf16>(backend, [m, 10, 100]);
    }
    check::<B, f16>(backend, [scale.pick(300, 20_000), 41, 602]);
    // Of so many rows that a warp of the emulator's has some tiles.
    check::<B, f16>(backend, [13_001, 5, 70]);
}

/// An MM-SpMM gives what the operators do that it is made of, of every type of what lies between them and of what it gives.
pub fn products_that_are_summed_up<B: Backend>(backend: &B, _: Scale) {
    let graph = from_degrees(&[2, 40, 0, 7, 1], Random(87));
    let edges = Adjacency::new(backend, &graph).expect("room for a graph");
    let (m, n, k) = (5, 70, 33);
    let (left, right) = (signs(m * k, 88), signs(n * k, 89));
    let a = BitMatrix::from_signs(backend, (m, k), &left, KIND).expect("signs");
    let b = BitMatrix::from_signs(backend, (n, k), &right, KIND).expect("signs");
    let of_columns: Vec<f32> = (0..n).map(|at| [0.5, -2.0, 1.0][at % 3]).collect();
    let of_columns = elements::<B, f32>(backend, &of_columns);
    let op = Bmm {
        column_scale: Some(&of_columns),
        ..Bmm::default()
    };
    let product = || BmmOperands {
        a: &a,
        b: &b,
        op: &op,
    };
    let mut products = unwritten::<B, f32>(backend, (m, n));
    ops::bmm(backend, &a, &b, &op, &mut products).expect("legal");
    let products = read(backend, &products);
    let sign = |&value: &f32| if value >= 0.0 { 1.0 } else { -1.0 };
    let product_signs: Vec<f32> = products.iter().map(sign).collect();
    let (of_signs, _) = sums(&graph, &product_signs, n);
    let (of_products, _) = sums(&graph, &products, n);

    let factors = [0.5, 0.25, 1.0, 2.0, 4.0];
    let row_scale = elements::<B, f32>(backend, &factors);
    let scaled = |sums: &[f32]| -> Vec<f32> {
        let of = |(at, sum): (usize, &f32)| sum * factors[at / n] * 0.5;
        sums.iter().enumerate().map(of).collect()
    };
    let mut bits = unwritten_bits(backend, (m, n));
    let mut elements_between = unwritten::<B, f32>(backend, (m, n));
    let mut y = unwritten::<B, f32>(backend, (m, n));
    let mut y_signs = unwritten_bits(backend, (m, n));
    let mut of_bits = |y: BitOutput<'_, B, f32>| {
        let between = Between::Signs {
            room: &mut bits,
            row_scale: Some(&row_scale),
            scale: 0.5,
        };
        mm_spmm(backend, product(), &edges, between, y).expect("legal");
    };
    of_bits(BitOutput::Elements(&mut y));
    assert!(read(backend, &y) == scaled(&of_signs), "sums of signs");
    of_bits(BitOutput::Bits(&mut y_signs));
    let expected: Vec<f32> = of_signs.iter().map(sign).collect();
    assert!(
        read_bits(backend, &y_signs) == expected,
        "signs of sums of signs"
    );
    assert!(
        read_bits(backend, &bits) == product_signs,
        "what lies between"
    );

    let sum = Spmm {
        row_scale: Some(&row_scale),
        scale: 0.5,
        ..Spmm::default()
    };
    let mut of_elements = |y: BitOutput<'_, B, f32>| {
        let between = Between::Elements {
            room: &mut elements_between,
            op: &sum,
        };
        mm_spmm(backend, product(), &edges, between, y)
    };
    of_elements(BitOutput::Elements(&mut y)).expect("legal");
    assert!(
        read(backend, &y) == scaled(&of_products),
        "sums of products"
    );
    let told = of_elements(BitOutput::Bits(&mut y_signs)).expect_err("refused");
    assert_eq!(
        told.to_string(),
        "mm_spmm: signs of sums of elements want room for the sums; take bmm and bspmm_of"
    );
}

/// Sums with a factor a column of one graph and width, and their signs.
fn check_factored<B: Backend, E: Element>(
    backend: &B,
    name: &str,
    graph: &Csr,
    columns: usize,
    codes: &[u32],
) {
    let what = format!("{name}, {columns} columns, factors");
    let a = Adjacency::new(backend, graph).expect("room for a graph");
    let (rows, sources) = graph.shape();
    let values = signs(sources * columns, 70 + columns as u32);
    let x = BitMatrix::from_signs(backend, (sources, columns), &values, KIND).expect("signs");
    // The largest is 255 times what a code is worth, so that codes are these numbers.
    let factors: Vec<f32> = codes.iter().map(|&code| code as f32 * 0.25).collect();
    let factors = ColumnFactors::new(backend, &factors, KIND).expect("factors");
    assert!(factors.scale() == 0.25 || sources == 0, "{what}");
    let told = factors.to_codes(backend).expect("no failure before");
    assert!(
        told.iter()
            .map(|&code| u32::from(code))
            .eq(codes.iter().copied())
    );
    let weighted: Vec<f32> = (values.iter().enumerate())
        .map(|(at, sign)| sign * codes[at / columns] as f32)
        .collect();
    let (sums, degrees) = sums(graph, &weighted, columns);

    let mut y = unwritten_bits(backend, (rows, columns));
    ops::bspmm_factored_signs(backend, (&a, &factors), &x, &mut y).expect("legal");
    let sign = |&sum: &f32| if sum >= 0.0 { 1.0 } else { -1.0 };
    let expected: Vec<f32> = sums.iter().map(sign).collect();
    assert!(read_bits(backend, &y) == expected, "signs, {what}");

    let shares: Vec<f32> = degrees.iter().map(|&degree| 1.0 / degree as f32).collect();
    let row_scale = elements::<B, f32>(backend, &shares);
    for (row_scale, scale) in [(None, 1.0), (Some(&row_scale), -0.5)] {
        let mut y = unwritten::<B, E>(backend, (rows, columns));
        ops::bspmm_factored(backend, (&a, &factors), &x, row_scale, scale, &mut y).expect("legal");
        let expected: Vec<f32> = (sums.iter().enumerate())
            .map(|(at, sum)| {
                let share = row_scale.map_or(1.0, |_| shares[at / columns]);
                match degrees[at / columns] {
                    0 => 0.0,
                    _ => E::from_f32(sum * (scale * 0.25 * share)).to_f32(),
                }
            })
            .collect();
        assert!(read(backend, &y) == expected, "sums times {scale}, {what}");
    }
}

/// Sums with factors of columns: every number of bits of a code and of words of a row, rows of few edges and of many, rows that cross
/// CTAs, and factors that are all zero but one.
pub fn factors_of_columns<B: Backend>(backend: &B, scale: Scale) {
    let codes = |columns: usize, random| {
        let mut codes = Random(random).below(256, columns);
        if let Some(last) = codes.last_mut() {
            *last = 255;
        }
        codes
    };
    for (name, graph) in odd(scale).into_iter().chain(rectangular(scale)) {
        check_factored::<B, f16>(backend, name, &graph, 70, &codes(graph.shape().1, 71));
    }
    let group = WARP as usize;
    let tile = EDGES_PER_CTA as usize;
    for degrees in [
        vec![group - 1, group, 0, 2 * group + 1, 1],
        vec![group; 9],
        vec![3, 3 * tile + 5, 0, 31, 32, 33, 8, 9],
        vec![tile - 1, 1, 1],
        vec![1; tile + 3],
    ] {
        let name = format!("rows of {:?}", &degrees[..degrees.len().min(9)]);
        let graph = from_degrees(&degrees, Random(72));
        check_factored::<B, f32>(backend, &name, &graph, 64, &codes(degrees.len(), 73));
        check_factored::<B, bf16>(backend, &name, &graph, 130, &codes(degrees.len(), 74));
    }
    let graph = power_law(150, scale.pick(3_000, 100_000), Random(75));
    for columns in COLUMNS {
        check_factored::<B, f16>(backend, "power law", &graph, columns, &codes(150, 76));
    }
    let mut one = vec![0; 150];
    one[77] = 255;
    check_factored::<B, f32>(backend, "one factor", &graph, 33, &one);
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
