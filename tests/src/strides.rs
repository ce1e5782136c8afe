//! Matrices whose rows are further apart than they must be.

use crate::Scale;
use crate::graphs::power_law;
use crate::input::{KIND, Random};
use half::f16;
use halfgnn::backend::{Adjacency, Backend};
use halfgnn::ops::{
    self, Accumulate, Epilogue, Form, MatmulFusion, Schedule, Sddmm, Spmm, SpmmPolicy,
};
use halfgnn::tensor::{Array, Element, Matrix, gathered_stride, gathered_strides, padded};

fn of_element<B: Backend, E: Element>(backend: &B, scale: Scale) {
    let edges = scale.pick(1_500, 60_000);
    let graph = power_law(200, edges, Random(50));
    let a = Adjacency::new(backend, &graph).expect("room for a graph");
    let rows = graph.vertices();
    // Of one line and less, of rows that end in another line, and of many.
    for columns in [1, 20, 40, 47, 64, scale.pick(100, 200)] {
        let value =
            |row: usize, column: usize| (Random(51).bits(row * columns + column) % 64) as f32;
        let make = |stride: usize| {
            Matrix::<B, E>::from_rows_apart(
                backend,
                (rows, columns),
                stride,
                KIND,
                |row, values| {
                    let numbers = values.iter_mut().enumerate();
                    numbers.for_each(|(column, to)| *to = value(row, column));
                },
            )
            .expect("a legal stride")
        };
        let strides = gathered_strides::<E>(columns);
        assert_eq!(strides[0], padded::<E>(columns));
        assert!(strides.is_sorted_by(|a, b| a < b), "{strides:?}");
        let lines = strides[strides.len() - 1] * size_of::<E>();
        assert!(lines.is_multiple_of(128) && lines < columns * size_of::<E>() + 128);
        let further = strides.iter().copied().chain([strides[0] + 5 * E::LANES]);
        for schedule in [Schedule::Edge, Schedule::Vertex] {
            let op = Spmm {
                policy: SpmmPolicy {
                    schedule,
                    accumulate: Accumulate::Float,
                    ..SpmmPolicy::default()
                },
                ..Spmm::default()
            };
            let run = |stride| {
                let x = make(stride);
                assert_eq!((x.stride(), x.shape()), (stride, (rows, columns)));
                let padding = x.to_padded(backend).expect("no failure before");
                let mut y = Matrix::zeros(backend, rows, columns, KIND).expect("room");
                ops::spmm(backend, &a, &op, &x, &mut y).expect("legal operands");
                let sums = y.to_padded(backend).expect("no failure before");
                [padding, sums].map(|all| all.into_iter().map(Element::to_f32).collect::<Vec<_>>())
            };
            let expected = run(strides[0]);
            for (at, &x) in expected[0].iter().enumerate() {
                let (row, column) = (at / strides[0], at % strides[0]);
                let there = if column < columns {
                    value(row, column)
                } else {
                    0.0
                };
                assert_eq!(x, there, "{columns} columns");
            }
            for stride in further.clone() {
                assert!(run(stride) == expected, "{columns} columns, {stride} apart");
            }
        }
    }
}

/// An SpMM of rows at whole sectors, whole lines or anywhere has the bits of one of rows as close as can be.
pub fn gathered_rows_may_be_apart<B: Backend>(backend: &B, scale: Scale) {
    of_element::<B, f16>(backend, scale);
    of_element::<B, f32>(backend, scale);
}

/// A product in rows that sums over neighbours read fastest, and the sum of them, have the bits of those as close as can be.
pub fn products_are_written_apart<B: Backend>(backend: &B, scale: Scale) {
    let graph = power_law(200, scale.pick(1_500, 60_000), Random(55));
    let a = Adjacency::new(backend, &graph).expect("room for a graph");
    let rows = graph.vertices();
    for (columns, apart) in [
        (24, 24),
        (32, 32),
        (33, 64),
        (47, 64),
        (64, 64),
        (100, 128),
        (129, 136),
        (200, 200),
    ] {
        assert_eq!(gathered_stride::<f16>(columns), apart);
        assert_eq!(gathered_stride::<f32>(columns), padded::<f32>(columns));
        let make = |rows, columns, random| {
            let values = Random(random).uniform::<f16>(rows * columns);
            Matrix::<B, f16>::from_f32(backend, rows, columns, &values, KIND).expect("room")
        };
        let (x, weight) = (make(rows, 72, 56), make(72, columns, 57));
        let sums = |mut product: Matrix<B, f16>| {
            let (form, plain) = (Form::NN, Epilogue::default());
            ops::matmul(backend, form, &x, &weight, &plain, &mut product).expect("legal operands");
            let mut y = Matrix::zeros(backend, rows, columns, KIND).expect("room");
            ops::spmm(backend, &a, &Spmm::default(), &product, &mut y).expect("legal operands");
            // And back, from close rows to those.
            ops::spmm(backend, &a, &Spmm::default(), &y, &mut product).expect("legal operands");
            [product, y].map(|all| all.to_padded(backend).expect("no failure before"))
        };
        let close = Matrix::uninit(backend, rows, columns, KIND).expect("room");
        let gathered = Matrix::uninit_gathered(backend, (rows, columns), KIND).expect("room");
        assert_eq!(gathered.stride(), apart);
        assert!(sums(close) == sums(gathered), "{columns} columns");
    }
    let none = Matrix::<B, f16>::uninit_gathered(backend, (0, 47), KIND).expect("nothing");
    assert_eq!(none.shape(), (0, 47));
}

/// A product to some rows of a matrix has the bits of one that has no other rows, and leaves those as they were; it is of as many of the
/// first rows of its operand.
pub fn products_are_written_to_some_rows<B: Backend>(backend: &B, scale: Scale) {
    let rows = scale.pick(37, 300);
    let make = |rows, columns, random| {
        let values = Random(random).uniform::<f16>(rows * columns);
        Matrix::<B, f16>::from_f32(backend, rows, columns, &values, KIND).expect("room")
    };
    let plain = Epilogue::default();
    for form in [Form::NN, Form::NT] {
        for (columns, before, behind) in [(47, 0, 5), (64, 0, 0), (8, 130, 7), (47, 1, 0)] {
            let x = make(rows, 72, 56);
            let weight = match form {
                Form::NN => make(72, columns, 57),
                _ => make(columns, 72, 57),
            };
            let mut alone = Matrix::<B, f16>::uninit(backend, rows, columns, KIND).expect("room");
            ops::matmul(backend, form, &x, &weight, &plain, &mut alone).expect("legal operands");
            let alone = alone.to_padded(backend).expect("no failure");
            let first_rows = |count: usize| &alone[..alone.len() / rows * count];
            for count in [rows, rows - 3] {
                let mut all = make(before + rows + behind, columns, 58);
                let left = all.to_padded(backend).expect("no failure before");
                let some = before..before + count;
                let to = (some, &mut all);
                ops::matmul_to_rows(backend, form, &x, &weight, &plain, to)
                    .expect("legal operands");
                assert_eq!(all.shape(), (before + rows + behind, columns));
                let found = all.to_padded(backend).expect("no failure");
                let stride = alone.len() / rows;
                let [start, end] = [before * stride, (before + count) * stride];
                let what = format!("{form:?}, {columns} columns, {count} rows behind {before}");
                assert!(&found[start..end] == first_rows(count), "{what}");
                assert!(found[..start] == left[..start], "{what}");
                assert!(found[end..] == left[end..], "{what}");
            }
        }
    }
    let mut few = make(rows - 1, 8, 59);
    let (x, weight) = (make(rows, 72, 56), make(72, 8, 57));
    for some in [0..rows, 5..rows] {
        let to = (some, &mut few);
        let told = ops::matmul_to_rows(backend, Form::NN, &x, &weight, &plain, to);
        assert!(told.unwrap_err().to_string().contains("rows of c"));
    }
    let more = (0..rows + 1, &mut make(rows + 1, 8, 59));
    let told = ops::matmul_to_rows(backend, Form::NN, &x, &weight, &plain, more);
    assert!(told.unwrap_err().to_string().contains("rows of a"));
}

/// A product of the first rows of a matrix has the bits of one of a copy of them, whatever stands behind them; more rows than there are are refused.
pub fn products_read_first_rows<B: Backend>(backend: &B, scale: Scale) {
    let rows = scale.pick(37, 300);
    for more in [1, 11, 150] {
        let mut values = Random(56).uniform::<f16>((rows + more) * 72);
        values[rows * 72..].fill(f32::NAN);
        let all = Matrix::from_f32(backend, rows + more, 72, &values, KIND).expect("room");
        let first = Matrix::from_f32(backend, rows, 72, &values[..rows * 72], KIND).expect("room");
        for (form, b) in [
            (Form::NN, (72, 47)),
            (Form::NT, (47, 72)),
            (Form::TN, (rows, 47)),
        ] {
            let numbers = Random(57).uniform::<f16>(b.0 * b.1);
            let b = Matrix::from_f32(backend, b.0, b.1, &numbers, KIND).expect("room");
            let product = |a: &Matrix<B, f16>, first_rows| {
                let shape = (if form == Form::TN { 72 } else { rows }, 47);
                let mut c = Matrix::<B, f16>::uninit(backend, shape.0, shape.1, KIND)?;
                let (plain, fusion) = (
                    Epilogue::default(),
                    MatmulFusion {
                        first_rows,
                        ..MatmulFusion::default()
                    },
                );
                ops::matmul_fused(backend, form, a, &b, &plain, fusion, &mut c)?;
                c.to_padded(backend)
            };
            let expected = product(&first, None).expect("legal operands");
            let found = product(&all, Some(rows)).expect("legal operands");
            assert!(found == expected, "{form:?}, {more} rows behind {rows}");
            let told = product(&first, Some(rows + 1)).expect_err("too few rows");
            assert!(told.to_string().contains("rows of a"), "{told}");
        }
    }
}

/// Dot products of rows that are each at a distance of its own have the bits of those of rows as close as can be, of one head and of
/// two, or are refused.
pub fn dots_take_both_strides_or_none<B: Backend>(backend: &B, scale: Scale) {
    let edges = scale.pick(700, 20_000);
    let graph = power_law(200, edges, Random(52));
    let a = Adjacency::new(backend, &graph).expect("room for a graph");
    let make = |random: u32, stride: usize| {
        let shape = (graph.vertices(), 48);
        Matrix::<B, f16>::from_rows_apart(backend, shape, stride, KIND, |row, values| {
            let numbers = values.iter_mut().enumerate();
            numbers.for_each(|(at, to)| *to = (Random(random).bits(row * 48 + at) % 8) as f32);
        })
        .expect("a legal stride")
    };
    for heads in [1, 2] {
        let op = Sddmm {
            heads,
            ..Sddmm::default()
        };
        let run = |strides: [usize; 2]| -> Result<_, String> {
            let (u, v) = (make(53, strides[0]), make(54, strides[1]));
            let plane = heads * ops::edge_plane(graph.edges());
            let mut e = Array::<B, f16>::zeros(backend, plane, KIND).expect("room for dots");
            ops::sddmm(backend, &a, &op, &u, &v, &mut e).map_err(|error| error.to_string())?;
            Ok(e.to_vec(backend).expect("no failure before"))
        };
        let expected = run([48, 48]).expect("legal operands");
        for strides in [[48, 64], [64, 48], [56, 64], [64, 64]] {
            match run(strides) {
                Ok(dots) => assert!(dots == expected, "{strides:?}, {heads} heads"),
                Err(refused) => assert!(refused.contains("copy it first"), "{refused}"),
            }
        }
    }
}

/// What is no distance of rows is refused; none and one are rows like others.
pub fn misfits_are_refused<B: Backend>(backend: &B, _: Scale) {
    let make = |shape, stride| {
        Matrix::<B, f16>::from_rows_apart(backend, shape, stride, KIND, |_, row| row.fill(2.0))
    };
    for stride in [0, 32, 44] {
        let error = make((3, 40), stride).expect_err("a misfit").to_string();
        let told = format!(
            "Matrix::from_rows_apart: rows of 40 columns {stride} elements apart; take a multiple of 8 from 40 on"
        );
        assert_eq!(error, told);
    }
    for rows in [0, 1] {
        let matrix = make((rows, 40), 64).expect("a legal stride");
        let values = matrix.to_f32(backend).expect("no failure before");
        assert_eq!(values, vec![2.0; 40 * rows]);
    }
}
