//! Products of matrices of bits, and sums over neighbours of those, by `==`.

use crate::Scale;
use crate::bit_sums::sums;
use crate::bits::{COLUMNS, read_bits, signs, unwritten_bits};
use crate::graphs::from_degrees;
use crate::input::{KIND, Random, elements, matrix, read, unwritten};
use half::{bf16, f16};
use halfgnn::backend::{Adjacency, Backend};
use halfgnn::ops::blocks::{Addition, Between, mm_add, mm_spmm};
use halfgnn::ops::{self, BitMatrix, BitOutput, Bmm, BmmOperands, Spmm};
use halfgnn::tensor::{Element, Matrix};

/// Products of every size about the ends of words, steps, tiles and CTAs, with every factor and without.
pub fn every_shape<B: Backend>(backend: &B, scale: Scale) {
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
