//! What attention does to heads of features: dots with vectors, their gradients, and means over heads.

use crate::Scale;
use crate::input::{Random, bits, elements, matrix, read, unwritten};
use crate::reference::{Allowed, Sum, assert_close};
use crate::segment::unwritten_numbers;
use half::{bf16, f16};
use halfgnn::backend::Backend;
use halfgnn::ops;
use halfgnn::ops::HeadDots;
use halfgnn::tensor::Element;

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
}
