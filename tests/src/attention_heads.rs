//! What attention does to heads of features: dots with vectors, their gradients, and means over heads.

use crate::Scale;
use crate::input::{Random, bits, elements, matrix, read, unwritten};
use crate::reference::{Allowed, Sum, assert_close};
use crate::segment::unwritten_numbers;
use half::{bf16, f16};
use halfgnn::backend::Backend;
use halfgnn::ops;
use halfgnn::ops::{
    Checked, HeadDots, HeadDotsOuterOperands, HeadDotsPairOperands, HeadOuterOperands,
    HeadScoresOperands, HeadSumsOperands,
};
use halfgnn::tensor::{Array, Element};

/// Heads, and the width of one, which is any for a single head.
fn shapes(scale: Scale) -> Vec<(usize, usize, usize)> {
    let many = scale.pick(300, 9_000);
    vec![
        (0, 1, 5),
        (1, 1, 1),
        (33, 1, 7),
        (many, 1, 64),
        (5, 1, 602),
        (130, 8, 8),
        (65, 3, 24),
        (9, 2, 264),
        (3, 70, 8),
        (2, 520, 8),
    ]
}

fn at(head: usize, row: usize, rows: usize) -> usize {
    head * rows + row
}

/// Scores against float64.
pub fn scores<B: Backend>(backend: &B, scale: Scale) {
    fn check<B: Backend, E: Element>(backend: &B, scale: Scale) {
        for (rows, heads, width) in shapes(scale) {
            let columns = heads * width;
            let x = Random(100).uniform::<E>(rows * columns);
            let vectors = Random(101).uniform::<E>(2 * columns);
            let mut destination = unwritten_numbers(backend, heads * rows);
            let mut source = unwritten_numbers(backend, heads * rows);
            let x_matrix = matrix::<B, E>(backend, (rows, columns), &x);
            let vectors_matrix = matrix::<B, E>(backend, (2, columns), &vectors);
            ops::head_scores(
                backend,
                heads,
                &x_matrix,
                &vectors_matrix,
                &mut destination,
                &mut source,
            )
            .expect("legal scores");
            for (which, scores) in [destination, source].iter().enumerate() {
                let mut expected = vec![Sum::default(); heads * rows];
                for row in 0..rows {
                    for column in 0..columns {
                        expected[at(column / width, row, rows)].add(
                            f64::from(x[row * columns + column])
                                * f64::from(vectors[which * columns + column]),
                        );
                    }
                }
                let scores = scores.to_vec(backend).expect("no failure before");
                let what = format!("{rows} rows of {heads} x {width}");
                assert_close::<f32>(&what, &scores, &expected, 1, |_| Allowed::float(width));
            }
        }
    }
    check::<B, f16>(backend, scale);
    check::<B, bf16>(backend, scale);
    check::<B, f32>(backend, scale);
}

/// `a · (beta b + gamma c) + delta u v`, with and without each part, against float64.
pub fn dots<B: Backend>(backend: &B, scale: Scale) {
    fn check<B: Backend, E: Element>(backend: &B, scale: Scale) {
        for (rows, heads, width) in shapes(scale) {
            let columns = heads * width;
            let [a, b, c] =
                [102, 103, 104].map(|random| Random(random).uniform::<E>(rows * columns));
            let [u, v] = [105, 106].map(|random| Random(random).uniform::<f32>(heads * rows));
            let matrices = [&a, &b, &c].map(|x| matrix::<B, E>(backend, (rows, columns), x));
            let numbers = [&u, &v].map(|x| elements::<B, f32>(backend, x));
            for parts in 0..4 {
                let (with_c, with_u, with_v) = (parts % 2 == 1, parts > 0, parts > 1);
                let op = HeadDots {
                    heads,
                    a: &matrices[0],
                    b: (0.75, &matrices[1]),
                    c: with_c.then_some((-0.5, &matrices[2])),
                    u: with_u.then_some((1.5, &numbers[0])),
                    v: with_v.then_some(&numbers[1]),
                };
                let mut y = unwritten_numbers(backend, heads * rows);
                ops::head_dots(backend, &op, &mut y).expect("legal dots");
                let mut expected = vec![Sum::default(); heads * rows];
                for row in 0..rows {
                    for column in 0..columns {
                        let i = row * columns + column;
                        let sum = &mut expected[at(column / width, row, rows)];
                        sum.add(0.75 * f64::from(a[i]) * f64::from(b[i]));
                        if with_c {
                            sum.add(-0.5 * f64::from(a[i]) * f64::from(c[i]));
                        }
                    }
                }
                for (i, sum) in expected.iter_mut().enumerate() {
                    let v = if with_v { f64::from(v[i]) } else { 1.0 };
                    sum.add(if with_u {
                        1.5 * f64::from(u[i]) * v
                    } else {
                        0.0
                    });
                }
                let y = y.to_vec(backend).expect("no failure before");
                let what = format!("{rows} rows of {heads} x {width}, parts {parts}");
                assert_close::<f32>(&what, &y, &expected, 1, |_| Allowed::float(2 * width));
            }
        }
    }
    check::<B, f16>(backend, scale);
    check::<B, bf16>(backend, scale);
    check::<B, f32>(backend, scale);
}

/// Two dots of one read, and dots with the products that are added afterwards, to the bits of one after the other.
pub fn dots_in_one_pass<B: Backend>(backend: &B, scale: Scale) {
    fn check<B: Backend, E: Element>(backend: &B, scale: Scale) {
        for (rows, heads, width) in shapes(scale) {
            let what = format!("{rows} rows of {heads} x {width}");
            let shape = (rows, heads * width);
            let of = |random| Random(random).uniform::<E>(rows * heads * width);
            let [a, b, c] =
                [113, 114, 115].map(|random| matrix::<B, E>(backend, shape, &of(random)));
            let vectors = Random(116).uniform::<E>(2 * shape.1);
            let vectors = matrix::<B, E>(backend, (2, shape.1), &vectors);
            let [u, v] = [117, 118].map(|random| Random(random).uniform::<f32>(heads * rows));
            let [u, v] = [u, v].map(|numbers| elements::<B, f32>(backend, &numbers));
            let numbers = || unwritten_numbers(backend, heads * rows);
            let to_bits = |numbers: &Array<B, f32>| {
                bits(&numbers.to_vec(backend).expect("no failure before"))
            };

            let (mut inner, mut y) = (numbers(), numbers());
            let pair = HeadDotsPairOperands {
                heads,
                a: &a,
                d: &c,
                b: (0.75, &b),
                v: (-1.5, &v),
                u: &mut inner,
                y: &mut y,
            };
            ops::head_dots_pair(backend, pair).expect("a legal pair");
            let (mut expected_inner, mut expected) = (numbers(), numbers());
            let op = HeadDots::new(heads, &a, (1.0, &c));
            ops::head_dots(backend, &op, &mut expected_inner).expect("legal dots");
            let op = HeadDots {
                u: Some((-1.5, &expected_inner)),
                v: Some(&v),
                ..HeadDots::new(heads, &a, (0.75, &b))
            };
            ops::head_dots(backend, &op, &mut expected).expect("legal dots");
            assert_eq!(to_bits(&inner), to_bits(&expected_inner), "{what}");
            assert_eq!(to_bits(&y), to_bits(&expected), "{what}");

            let op = HeadDots {
                c: Some((-0.5, &c)),
                u: Some((1.5, &u)),
                ..HeadDots::new(heads, &a, (0.75, &b))
            };
            ops::head_dots(backend, &op, &mut expected).expect("legal dots");
            let mut sum = matrix::<B, E>(backend, shape, &of(114));
            ops::head_outer(backend, heads, &v, &expected, &vectors, &mut sum)
                .expect("legal products");
            let (mut b, mut y) = (b, numbers());
            let mut sums = unwritten::<B, f32>(backend, (2, shape.1));
            let both = HeadDotsOuterOperands {
                heads,
                a: &a,
                b: (0.75, &mut b),
                c: (-0.5, &c),
                u: (1.5, &u),
                destinations: rows,
                destination: &v,
                vectors: &vectors,
                y: &mut y,
                sums: &mut sums,
            };
            ops::head_dots_outer(backend, both).expect("legal dots and products");
            assert_eq!(to_bits(&y), to_bits(&expected), "{what}");
            let numbers = [v, y].map(|numbers| numbers.to_vec(backend).expect("no failure before"));
            let a = of(113);
            let mut expected = vec![Sum::default(); 2 * shape.1];
            for (i, sum) in expected.iter_mut().enumerate() {
                let (which, column) = (i / shape.1, i % shape.1);
                for row in 0..rows {
                    let number = numbers[which][at(column / width, row, rows)];
                    sum.add(f64::from(number) * f64::from(a[row * shape.1 + column]));
                }
            }
            let sums = read(backend, &sums);
            assert_close::<f32>(&what, &sums, &expected, shape.1, |_| Allowed::float(rows));
            assert_eq!(
                bits(&read(backend, &b)),
                bits(&read(backend, &sum)),
                "{what}"
            );
        }
    }
    check::<B, f16>(backend, scale);
    check::<B, bf16>(backend, scale);
    check::<B, f32>(backend, scale);
}

/// Where the first rows alone are destinations, the bits are those of numbers that are zero for all others.
pub fn fewer_destinations<B: Backend>(backend: &B, scale: Scale) {
    fn check<B: Backend, E: Element>(backend: &B, scale: Scale) {
        for (rows, heads, width) in shapes(scale) {
            let (destinations, shape) = (rows / 3, (rows, heads * width));
            let what = format!("{destinations} of {rows} rows of {heads} x {width}");
            let of = |random, rows| Random(random).uniform::<E>(rows * shape.1);
            let x = matrix::<B, E>(backend, shape, &of(119, rows));
            let vectors = matrix::<B, E>(backend, (2, shape.1), &of(120, 2));
            let planes = |random| Random(random).uniform::<f32>(heads * rows);
            let of_destinations = |all: &[f32]| -> Vec<f32> {
                let rows = all.chunks(rows.max(1));
                rows.flat_map(|plane| &plane[..destinations])
                    .copied()
                    .collect()
            };
            let all = planes(121);
            let few = elements::<B, f32>(backend, &of_destinations(&all));
            let with_zeros: Vec<f32> = (all.iter().enumerate())
                .map(|(at, &number)| {
                    if at % rows < destinations {
                        number
                    } else {
                        0.0
                    }
                })
                .collect();
            let with_zeros = elements::<B, f32>(backend, &with_zeros);
            let [u, source] = [122, 123].map(|random| elements::<B, f32>(backend, &planes(random)));
            let numbers = |rows| unwritten_numbers(backend, heads * rows);
            let read_all =
                |numbers: &Array<B, f32>| numbers.to_vec(backend).expect("no failure before");

            let scores = |destinations| {
                let (mut l, mut r) = (numbers(destinations), numbers(rows));
                let operands = HeadScoresOperands {
                    heads,
                    destinations,
                    x: &x,
                    vectors: &vectors,
                    destination: &mut l,
                    source: &mut r,
                };
                let operands = Checked::new(operands).expect("legal scores");
                backend.head_scores(operands).expect("scores");
                (read_all(&l), read_all(&r))
            };
            let ((l, r), (all_l, all_r)) = (scores(destinations), scores(rows));
            assert_eq!(bits(&l), bits(&of_destinations(&all_l)), "{what}");
            assert_eq!(bits(&r), bits(&all_r), "{what}");

            let outer = |destinations, destination| {
                let mut b = matrix::<B, E>(backend, shape, &of(124, rows));
                let (mut y, mut sums) = (numbers(rows), unwritten::<B, f32>(backend, (2, shape.1)));
                let operands = HeadDotsOuterOperands {
                    heads,
                    a: &x,
                    b: (0.75, &mut b),
                    c: (-0.5, &x),
                    u: (1.5, &u),
                    destinations,
                    destination,
                    vectors: &vectors,
                    y: &mut y,
                    sums: &mut sums,
                };
                ops::head_dots_outer(backend, operands).expect("legal dots and products");
                let operands = HeadOuterOperands {
                    heads,
                    destinations,
                    destination,
                    source: &source,
                    vectors: &vectors,
                    x: &mut b,
                };
                let operands = Checked::new(operands).expect("legal products");
                backend.head_outer(operands).expect("products");
                [read(backend, &b), read_all(&y), read(backend, &sums)].map(|all| bits(&all))
            };
            let (few_outer, all_outer) = (outer(destinations, &few), outer(rows, &with_zeros));
            assert_eq!(few_outer, all_outer, "{what}");

            let sums = |destinations, destination| {
                let mut sums = unwritten::<B, f32>(backend, (2, shape.1));
                let operands = HeadSumsOperands {
                    heads,
                    destinations,
                    x: &x,
                    destination,
                    source: &source,
                    sums: &mut sums,
                };
                let operands = Checked::new(operands).expect("legal sums");
                backend.head_sums(operands).expect("sums");
                read(backend, &sums)
            };
            let (few_sums, all_sums) = (sums(destinations, &few), sums(rows, &with_zeros));
            assert_eq!(bits(&few_sums), bits(&all_sums), "{what}");
        }
    }
    check::<B, f16>(backend, scale);
    check::<B, bf16>(backend, scale);
    check::<B, f32>(backend, scale);
}

/// The two gradients of the scores against float64; sums repeat bit for bit.
pub fn gradients_of_scores<B: Backend>(backend: &B, scale: Scale) {
    fn check<B: Backend, E: Element>(backend: &B, scale: Scale) {
        for (rows, heads, width) in shapes(scale) {
            let columns = heads * width;
            let x = Random(107).uniform::<E>(rows * columns);
            let vectors = Random(108).uniform::<E>(2 * columns);
            let numbers = [109, 110].map(|random| Random(random).uniform::<f32>(heads * rows));
            let [destination, source] = [0, 1].map(|i| elements::<B, f32>(backend, &numbers[i]));
            let what = format!("{rows} rows of {heads} x {width}");

            let mut x_matrix = matrix::<B, E>(backend, (rows, columns), &x);
            let run = || {
                let mut sums = unwritten::<B, f32>(backend, (2, columns));
                ops::head_sums(backend, heads, &x_matrix, &destination, &source, &mut sums)
                    .expect("legal sums");
                read(backend, &sums)
            };
            let sums = run();
            let mut expected = vec![Sum::default(); 2 * columns];
            for (i, sum) in expected.iter_mut().enumerate() {
                let (which, column) = (i / columns, i % columns);
                for row in 0..rows {
                    let number = numbers[which][at(column / width, row, rows)];
                    sum.add(f64::from(number) * f64::from(x[row * columns + column]));
                }
            }
            assert_close::<f32>(&what, &sums, &expected, columns, |_| Allowed::float(rows));
            assert_eq!(bits(&run()), bits(&sums), "{what}");

            let vectors_matrix = matrix::<B, E>(backend, (2, columns), &vectors);
            ops::head_outer(
                backend,
                heads,
                &destination,
                &source,
                &vectors_matrix,
                &mut x_matrix,
            )
            .expect("legal products");
            let mut expected = vec![Sum::default(); rows * columns];
            for (i, sum) in expected.iter_mut().enumerate() {
                let (row, column) = (i / columns, i % columns);
                sum.add(f64::from(x[i]));
                for which in 0..2 {
                    let number = numbers[which][at(column / width, row, rows)];
                    let vector = vectors[which * columns + column];
                    sum.add(f64::from(number) * f64::from(vector));
                }
            }
            let actual = read(backend, &x_matrix);
            assert_close::<E>(&what, &actual, &expected, columns, |_| Allowed::float(3));
        }
    }
    check::<B, f16>(backend, scale);
    check::<B, bf16>(backend, scale);
    check::<B, f32>(backend, scale);
}

/// Infinite numbers make no NaN of the padding.
pub fn padding_stays_zero<B: Backend>(backend: &B, _: Scale) {
    let mut x = matrix::<B, f16>(backend, (6, 3), &[1.0; 18]);
    let vectors = matrix::<B, f16>(backend, (2, 3), &[1.0; 6]);
    let [destination, source] = [f32::INFINITY, 1.0].map(|n| elements::<B, f32>(backend, &[n; 6]));
    ops::head_outer(backend, 1, &destination, &source, &vectors, &mut x).expect("legal");
    assert_eq!(read(backend, &x), [f32::INFINITY; 18]);
    let [a, c] = [1.0; 2].map(|n| matrix::<B, f16>(backend, (6, 3), &[n; 18]));
    let (mut b, mut y) = (
        matrix::<B, f16>(backend, (6, 3), &[1.0; 18]),
        unwritten_numbers(backend, 6),
    );
    let mut sums = unwritten::<B, f32>(backend, (2, 3));
    let both = HeadDotsOuterOperands {
        heads: 1,
        a: &a,
        b: (1.0, &mut b),
        c: (1.0, &c),
        u: (1.0, &source),
        destinations: 6,
        destination: &destination,
        vectors: &vectors,
        y: &mut y,
        sums: &mut sums,
    };
    ops::head_dots_outer(backend, both).expect("legal");
    assert_eq!(read(backend, &b), [f32::INFINITY; 18]);
    assert_eq!(read(backend, &sums)[..3], [f32::INFINITY; 3]);
    let mut sums = unwritten::<B, f32>(backend, (2, 3));
    let x = matrix::<B, f16>(backend, (6, 3), &[1.0; 18]);
    ops::head_sums(backend, 1, &x, &destination, &source, &mut sums).expect("legal");
    assert_eq!(read(backend, &sums)[..3], [f32::INFINITY; 3]);
}

/// Means over heads and their gradient, in small integers and powers of two exactly.
pub fn means<B: Backend>(backend: &B, scale: Scale) {
    fn check<B: Backend, E: Element>(backend: &B, scale: Scale) {
        let many = scale.pick(70, 3_000);
        for (rows, heads, width) in [
            (0, 2, 3usize),
            (1, 1, 5),
            (many, 4, 3),
            (many, 8, 64),
            (7, 2, 33),
        ] {
            let padded: usize = if heads == 1 {
                width
            } else {
                width.next_multiple_of(E::LANES)
            };
            let x = Random(111).integers(4, rows * heads * width);
            let mut values = vec![0.0; rows * heads * padded];
            for (i, &value) in x.iter().enumerate() {
                values[i / width * padded + i % width] = value;
            }
            let x_matrix = matrix::<B, E>(backend, (rows, heads * padded), &values);
            let mut y = unwritten::<B, E>(backend, (rows, width));
            ops::head_mean(backend, heads, &x_matrix, &mut y).expect("a legal mean");
            let y = read(backend, &y);
            for (i, &y) in y.iter().enumerate() {
                let (row, column) = (i / width, i % width);
                let of_head = |head: usize| x[(row * heads + head) * width + column];
                assert_eq!(y, (0..heads).map(of_head).sum::<f32>() / heads as f32);
            }
            let dy = Random(112).integers(8, rows * width);
            let dy_matrix = matrix::<B, E>(backend, (rows, width), &dy);
            let mut dx = unwritten::<B, E>(backend, (rows, heads * padded));
            ops::head_mean_backward(backend, heads, &dy_matrix, &mut dx).expect("legal");
            for (i, &dx) in read(backend, &dx).iter().enumerate() {
                let (row, column) = (i / (heads * padded), i % padded);
                let of_y = if column < width {
                    dy[row * width + column]
                } else {
                    0.0
                };
                assert_eq!(dx, of_y / heads as f32);
            }
        }
    }
    check::<B, f16>(backend, scale);
    check::<B, bf16>(backend, scale);
    check::<B, f32>(backend, scale);
}

/// Columns that are not so many heads of whole vectors are refused.
pub fn misfits_are_refused<B: Backend>(backend: &B, _: Scale) {
    let x = matrix::<B, f16>(backend, (2, 20), &[1.0; 40]);
    let vectors = matrix::<B, f16>(backend, (2, 20), &[1.0; 40]);
    let run = |heads: usize, numbers: usize| {
        let [mut l, mut r] = [0; 2].map(|_| unwritten_numbers(backend, numbers));
        ops::head_scores(backend, heads, &x, &vectors, &mut l, &mut r)
            .map_err(|error| error.to_string())
    };
    run(1, 2).expect("one head of any width");
    for (heads, numbers, word) in [
        (0, 0, "heads"),
        (2, 4, "2 heads"),
        (3, 6, "3 heads"),
        (1, 3, "scores"),
    ] {
        let error = run(heads, numbers).expect_err("a misfit");
        assert!(error.contains(word), "{error}");
    }
    let narrow = matrix::<B, f16>(backend, (2, 19), &[1.0; 38]);
    let v = unwritten_numbers(backend, 2);
    let pair = |d, len| {
        let [mut u, mut y] = [len, 2].map(|len| unwritten_numbers(backend, len));
        let operands = HeadDotsPairOperands {
            heads: 1,
            a: &x,
            d,
            b: (1.0, &x),
            v: (1.0, &v),
            u: &mut u,
            y: &mut y,
        };
        ops::head_dots_pair(backend, operands).map_err(|error| error.to_string())
    };
    pair(&x, 2).expect("a legal pair");
    for (refused, word) in [(pair(&narrow, 2), "columns of d"), (pair(&x, 3), "numbers")] {
        let error = refused.expect_err("a misfit");
        assert!(error.contains(word), "{error}");
    }
    let outer = |vectors, sums| {
        let mut b = matrix::<B, f16>(backend, (2, 20), &[1.0; 40]);
        let operands = HeadDotsOuterOperands {
            heads: 1,
            a: &x,
            b: (1.0, &mut b),
            c: (1.0, &x),
            u: (1.0, &v),
            destinations: 2,
            destination: &v,
            vectors,
            y: &mut unwritten_numbers(backend, 2),
            sums: &mut unwritten::<B, f32>(backend, (2, sums)),
        };
        ops::head_dots_outer(backend, operands).map_err(|error| error.to_string())
    };
    outer(&vectors, 20).expect("legal dots and products");
    for (refused, word) in [
        (outer(&narrow, 20), "columns of the attention vectors"),
        (outer(&vectors, 19), "columns of the sums"),
    ] {
        let error = refused.expect_err("a misfit");
        assert!(error.contains(word), "{error}");
    }
}
