//! Maxima of matrices and of the rows of groups, and where their gradients go.

use crate::Scale;
use crate::input::{KIND, Random, bits, matrix, read, rounded, unwritten};
use half::{bf16, f16};
use halfgnn::backend::Backend;
use halfgnn::ops::{self, RowGroups};
use halfgnn::tensor::{Element, Matrix};

/// Widths around those of loads, and past the vectors of a CTA.
const WIDTHS: [usize; 7] = [1, 7, 8, 9, 41, 64, 600];

/// Few different numbers, so that many are as large as the largest; of rows and columns given.
fn values<E: Element>(stream: u32, len: usize) -> Vec<f32> {
    let numbers = Random(stream).below(5, len);
    let of = |number: u32| rounded::<E>(number as f32 * 0.75 - 1.5);
    numbers.into_iter().map(of).collect()
}

/// Two matrices and three: their maximum, and each element's gradient at the first that is as large.
pub fn of_matrices<B: Backend>(backend: &B, scale: Scale) {
    for columns in WIDTHS {
        for rows in [0, 1, 5, scale.pick(70, 700)] {
            of_three::<B, f16>(backend, (rows, columns));
            of_three::<B, bf16>(backend, (rows, columns));
            of_three::<B, f32>(backend, (rows, columns));
        }
    }
}

fn of_three<B: Backend, E: Element>(backend: &B, shape: (usize, usize)) {
    let len = shape.0 * shape.1;
    let parts = [191, 192, 193].map(|stream| values::<E>(stream, len));
    let dy = Random(194).uniform::<E>(len);
    let inputs = parts
        .each_ref()
        .map(|part| matrix::<B, E>(backend, shape, part));
    let mut y = matrix::<B, E>(backend, shape, &parts[0]);
    for x in &inputs[1..] {
        ops::maximum(backend, x, &mut y).expect("legal");
    }
    let mut left = matrix::<B, E>(backend, shape, &dy);
    let gradients = inputs.each_ref().map(|x| {
        let mut dx = unwritten::<B, E>(backend, shape);
        ops::maximum_backward(backend, x, &y, &mut left, &mut dx).expect("legal");
        read(backend, &dx)
    });
    let (found, left) = (read(backend, &y), read(backend, &left));
    for at in 0..len {
        let all = parts.each_ref().map(|part| part[at]);
        let largest = all.into_iter().fold(f32::NEG_INFINITY, f32::max);
        assert_eq!(found[at], largest, "{shape:?} at {at}");
        let first = all.iter().position(|&value| value == largest);
        for (part, gradient) in gradients.iter().enumerate() {
            let expected = if first == Some(part) { dy[at] } else { 0.0 };
            assert_eq!(gradient[at], expected, "{shape:?} of {part} at {at}");
        }
        assert_eq!(left[at], 0.0);
    }
}

/// Groups of no row, of one and of many, by hand; the same bits every time.
pub fn of_groups<B: Backend>(backend: &B, scale: Scale) {
    let most = scale.pick(40, 4000);
    for columns in WIDTHS {
        let starts = [
            &[0][..],
            &[0, 0],
            &[0, 1, 1, 4, 4 + most, 4 + most, 9 + most],
        ];
        for starts in starts {
            groups_of::<B, f16>(backend, starts, columns);
            groups_of::<B, bf16>(backend, starts, columns);
            groups_of::<B, f32>(backend, starts, columns);
        }
    }
    // More groups than a CTA has.
    let starts: Vec<u32> = (0..=scale.pick(150, 1500)).map(|group| group * 2).collect();
    groups_of::<B, f16>(backend, &starts, 9);
}

fn groups_of<B: Backend, E: Element>(backend: &B, starts: &[u32], columns: usize) {
    let (rows, count) = (starts[starts.len() - 1] as usize, starts.len() - 1);
    let groups = RowGroups::new(backend, starts).expect("in order");
    let inputs = values::<E>(195, rows * columns);
    let of_groups = Random(196).uniform::<E>(count * columns);
    let x = matrix::<B, E>(backend, (rows, columns), &inputs);
    let dy = matrix::<B, E>(backend, (count, columns), &of_groups);
    let run = || {
        let mut y = unwritten::<B, E>(backend, (count, columns));
        ops::group_maximum(backend, &groups, &x, &mut y).expect("legal");
        let mut dx = unwritten::<B, E>(backend, (rows, columns));
        ops::group_maximum_backward(backend, &groups, (&x, &y), &dy, &mut dx).expect("legal");
        [read(backend, &y), read(backend, &dx)]
    };
    let [y, dx] = run();
    let again = run().map(|values| bits(&values));
    assert_eq!([bits(&y), bits(&dx)], again, "the same every time");
    let mut expected = vec![0.0; rows * columns];
    for (group, ends) in starts.windows(2).enumerate() {
        for column in 0..columns {
            let at = |row: u32| row as usize * columns + column;
            let all = (ends[0]..ends[1]).map(|row| inputs[at(row)]);
            let largest = all.reduce(f32::max).unwrap_or(0.0);
            let place = group * columns + column;
            assert_eq!(
                y[place], largest,
                "group {group}, column {column} of {columns}"
            );
            let mut rows = ends[0]..ends[1];
            if let Some(first) = rows.find(|&row| inputs[at(row)] == largest) {
                expected[at(first)] = of_groups[place];
            }
        }
    }
    assert_eq!(dx, expected, "{columns} columns");
}

/// A NaN is the largest of its element and of nobody else's.
pub fn nan_stays_in_its_column<B: Backend>(backend: &B, _scale: Scale) {
    let x = matrix::<B, f16>(
        backend,
        (2, 3),
        &[1.0, f32::NAN, 3.0, 4.0, 5.0, f32::NEG_INFINITY],
    );
    let mut y = matrix::<B, f16>(backend, (2, 3), &[2.0, 2.0, f32::NAN, 2.0, 2.0, 2.0]);
    ops::maximum(backend, &x, &mut y).expect("legal");
    let found = read(backend, &y);
    assert!(found[1].is_nan() && found[2].is_nan());
    assert_eq!(
        [found[0], found[3], found[4], found[5]],
        [2.0, 4.0, 5.0, 2.0]
    );
    let groups = RowGroups::whole(backend, 2).expect("one");
    let mut y = unwritten::<B, f16>(backend, (1, 3));
    ops::group_maximum(backend, &groups, &x, &mut y).expect("legal");
    let found = read(backend, &y);
    assert!(found[1].is_nan());
    assert_eq!([found[0], found[2]], [4.0, 3.0]);
}

/// Operands that do not fit are named.
pub fn misfits_are_refused<B: Backend>(backend: &B, _scale: Scale) {
    let zeros =
        |rows, columns| Matrix::<B, f32>::zeros(backend, rows, columns, KIND).expect("room");
    let message = |result: Result<(), halfgnn::Error>| result.expect_err("refused").to_string();
    let (x, groups) = (
        zeros(4, 3),
        RowGroups::new(backend, &[0, 1, 4]).expect("in order"),
    );
    assert_eq!(
        message(ops::maximum(backend, &x, &mut zeros(4, 2))),
        "maximum: columns of y should be 3, is 2"
    );
    let told = ops::maximum_backward(
        backend,
        &x,
        &zeros(4, 3),
        &mut zeros(3, 3),
        &mut zeros(4, 3),
    );
    assert_eq!(
        message(told),
        "maximum_backward: rows of d should be 4, is 3"
    );
    assert_eq!(
        message(ops::group_maximum(backend, &groups, &x, &mut zeros(3, 3))),
        "group_maximum: rows of y should be 2, is 3"
    );
    assert_eq!(
        message(ops::group_maximum(
            backend,
            &groups,
            &zeros(5, 3),
            &mut zeros(2, 3)
        )),
        "group_maximum: rows of the groups should be 5, is 4"
    );
    let (y, dy) = (zeros(2, 3), zeros(2, 3));
    let told = ops::group_maximum_backward(backend, &groups, (&x, &y), &dy, &mut zeros(2, 3));
    assert_eq!(
        message(told),
        "group_maximum_backward: rows of dx should be 4, is 2"
    );
}
