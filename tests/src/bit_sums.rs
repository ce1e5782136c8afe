//! Sums of ±1 over neighbours and their signs, which are integers, by `==`.

use crate::Scale;
use crate::bits::{COLUMNS, read_bits, signs, unwritten_bits};
use crate::graphs::{boundaries, from_degrees, hub, odd, power_law, rectangular};
use crate::input::{KIND, Random, elements, matrix, read, unwritten};
use half::{bf16, f16};
use halfgnn::backend::{Adjacency, Backend, RowShare};
use halfgnn::graph::Csr;
use halfgnn::ops::{
    self, BitMatrix, BspmmIntegersOperands, BspmmOperands, BspmmSignsOperands, Checked,
    ColumnFactors, IntegerMatrix, Schedule,
};
use halfgnn::tensor::{Array, Element, Matrix};
use halfgnn_contract::WARP;
use halfgnn_contract::bits::{
    EDGES_PER_CTA, EDGES_PER_WARP, FEW_WARPS_EDGES_PER_WARP, are_counted,
};

/// Every way to deal edges out: two launches, and one.
const SCHEDULES: [Schedule; 2] = [Schedule::Edge, Schedule::Vertex];

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

/// The sign of a sum.
fn sign(&sum: &f32) -> f32 {
    if sum >= 0.0 { 1.0 } else { -1.0 }
}

/// Both kinds of output of one graph and width.
fn check<B: Backend, E: Element>(backend: &B, name: &str, graph: &Csr, columns: usize) {
    let what = format!("{name}, {columns} columns");
    let a = Adjacency::new(backend, graph).expect("room for a graph");
    let sources = graph.shape().1;
    let values = signs(sources * columns, 50 + columns as u32);
    let x = BitMatrix::from_signs(backend, (sources, columns), &values, KIND).expect("signs");
    let (sums, degrees) = sums(graph, &values, columns);

    let expected: Vec<f32> = sums.iter().map(sign).collect();
    for schedule in SCHEDULES {
        let found = summed_signs(backend, (&a, &x), schedule);
        assert!(found == expected, "signs, {schedule:?}, {what}");
        assert_integers(backend, &what, (&a, None, &x), schedule, &sums);
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

/// Signs by edges alone.
pub fn check_signs<B: Backend>(backend: &B, name: &str, graph: &Csr, columns: usize) {
    let a = Adjacency::new(backend, graph).expect("room for a graph");
    let values = signs(graph.vertices() * columns, 50 + columns as u32);
    let shape = (graph.vertices(), columns);
    let x = BitMatrix::from_signs(backend, shape, &values, KIND).expect("signs");
    let (sums, _) = sums(graph, &values, columns);
    let expected: Vec<f32> = sums.iter().map(sign).collect();
    let found = summed_signs(backend, (&a, &x), Schedule::Edge);
    assert!(found == expected, "signs, {name}, {columns} columns");
}

/// Signs of one word and of two of a graph of these rows and others behind them, by which signs are made in the way that is not these rows' own.
fn check_other_signs<B: Backend>(backend: &B, name: &str, degrees: &[usize]) {
    let degrees = &degrees[..degrees.len().min(300)];
    let edges: usize = degrees.iter().sum();
    let filled = degrees.iter().filter(|&&degree| degree > 0).count();
    for (words, columns) in [(1, 60), (2, 100)] {
        let are_so = |edges: usize, rows: usize| are_counted(words, edges as u32, rows as u32);
        let mean = 32 * (words * words) as usize;
        let more = match are_so(edges, filled) {
            true => vec![(filled + 1) * mean],
            false => vec![1; 2 * edges / mean + 2],
        };
        let others = filled + more.len();
        let with_others = [degrees, &more].concat();
        assert!(are_so(with_others.iter().sum(), others) != are_so(edges, filled));
        let graph = from_degrees(&with_others, Random(62));
        check_signs(backend, &format!("{name} and others"), &graph, columns);
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

/// That the sums as integers are these, which are small enough for floats.
fn assert_integers<B: Backend>(
    backend: &B,
    what: &str,
    (a, factors, x): (&Adjacency<B>, Option<&ColumnFactors<B>>, &BitMatrix<B>),
    schedule: Schedule,
    sums: &[f32],
) {
    let shape = (a.rows(), x.columns());
    let mut y = IntegerMatrix::from_slice(backend, shape, &vec![7; shape.0 * shape.1], KIND)
        .expect("room for integers");
    let operands = BspmmIntegersOperands {
        a,
        factors,
        x,
        schedule,
        y: &mut y,
    };
    let checked = Checked::new(operands).expect("legal");
    backend.bspmm_integers(checked).expect("legal");
    let found = y.to_vec(backend).expect("no failure before");
    let expected = sums.iter().map(|&sum| sum as i32);
    assert!(
        found.into_iter().eq(expected),
        "integers, {schedule:?}, {what}"
    );
}

/// Integers of one graph and width, by a schedule; with factors of columns where that is by edges.
pub fn check_integers<B: Backend>(backend: &B, graph: &Csr, columns: usize, schedule: Schedule) {
    let a = Adjacency::new(backend, graph).expect("room for a graph");
    let sources = graph.shape().1;
    let values = signs(sources * columns, 51 + columns as u32);
    let x = BitMatrix::from_signs(backend, (sources, columns), &values, KIND).expect("signs");
    let (of_ones, _) = sums(graph, &values, columns);
    assert_integers(backend, "ones", (&a, None, &x), schedule, &of_ones);
    if schedule == Schedule::Edge {
        let codes: Vec<f32> = (0..sources).map(|at| (255 - at % 256) as f32).collect();
        let factors = ColumnFactors::new(backend, &codes, KIND).expect("factors");
        let (weighted, _) = sums(graph, &times(&values, &codes, columns), columns);
        let edges = (&a, Some(&factors), &x);
        assert_integers(backend, "factors", edges, schedule, &weighted);
    }
}

/// Each row times its factor.
fn times(values: &[f32], factors: &[f32], columns: usize) -> Vec<f32> {
    let rows = values.chunks_exact(columns).zip(factors);
    rows.flat_map(|(row, factor)| row.iter().map(move |value| value * factor))
        .collect()
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
        share: RowShare::ALL,
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
    let long = FEW_WARPS_EDGES_PER_WARP as usize;
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
        vec![long - 1, 1, long, long + 1, 40],
        vec![33, 2 * long - 33, tile - 2 * long, 50],
        vec![45; 100],
        // And with a CTA's; of so many CTAs that their parts are asked for in two turns, of each number of words.
        vec![tile - warp, warp, 1],
        vec![tile - 1, warp + 1],
        vec![5, 8 * tile, 17 * tile + 1, 2],
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
        check_other_signs(backend, &name, &degrees);
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
    check_signs(backend, "rows of every length", &graph, 129);
    check_other_signs(backend, "rows of every length", &degrees);
    let codes: Vec<u32> = (0..graph.vertices() as u32)
        .map(|at| at * 7 % 256)
        .collect();
    check_factored::<B, f16>(backend, "rows of every length", &graph, 20, &codes);
}

/// Each share of 1, 2 and 16, with a factor a row and, where there are some, a column.
fn check_shares<B: Backend, E: Element>(
    backend: &B,
    what: &str,
    (a, x, row_scale): (&Adjacency<B>, &BitMatrix<B>, &Array<B, f32>),
    factors: Option<&ColumnFactors<B>>,
) {
    let (rows, columns) = (a.rows(), x.columns());
    let mut all = Vec::new();
    for share in [1, 2, 16].into_iter().flat_map(RowShare::each) {
        let some = share.rows(rows);
        let behind = if share == RowShare::ALL { 0 } else { 3 };
        let room = (some.len() + behind, columns);
        let mut y: Matrix<B, E> = matrix(backend, room, &vec![7.0; room.0 * columns]);
        let operands = BspmmOperands {
            a,
            share,
            factors,
            x,
            row_scale: Some(row_scale),
            scale: 0.3,
            schedule: Schedule::Edge,
            y: &mut y,
        };
        let checked = Checked::new(operands).expect("legal");
        backend.bspmm(checked).expect("legal");
        let (found, left) = (read(backend, &y), some.len() * columns);
        if share == RowShare::ALL {
            all = found;
            continue;
        }
        let expected = &all[some.start * columns..some.end * columns];
        assert!(&found[..left] == expected, "{what}, {share:?}");
        assert!(
            found[left..].iter().all(|&it| it == 7.0),
            "{what}, {share:?}"
        );
    }
}

/// Shares of the rows have the bits that those have among all, and leave what lies behind them; so have they where rows lie in several
/// shares' CTAs, and where a share has no row or no edge.
pub fn sums_of_some_rows<B: Backend>(backend: &B, scale: Scale) {
    let tile = EDGES_PER_CTA as usize;
    let of_tiles = [
        vec![3 * tile + 5, 0, 31, 32, 33, 8, 9, 2 * tile],
        vec![0, 0, 0, 0, 5, 2 * tile, 0, 0, 1],
        vec![tile, tile, 1, 7],
    ];
    let of_tiles = of_tiles.map(|degrees| ("tiles", from_degrees(&degrees, Random(64))));
    let graphs = odd(scale).into_iter().chain(rectangular(scale));
    for (name, graph) in graphs.chain(of_tiles) {
        let (rows, sources) = graph.shape();
        let a = Adjacency::new(backend, &graph).expect("room for a graph");
        for columns in [40, 70, 200] {
            let values = signs(sources * columns, 65);
            let x = BitMatrix::from_signs(backend, (sources, columns), &values, KIND);
            let x = x.expect("signs");
            let factors: Vec<f32> = (0..rows).map(|row| 0.5 + (row % 3) as f32).collect();
            let factors = elements::<B, f32>(backend, &factors);
            let what = format!("{name}, {columns} columns");
            let of = (&a, &x, &factors);
            check_shares::<B, f16>(backend, &what, of, None);
            if columns == 70 {
                check_shares::<B, f32>(backend, &what, of, None);
                let codes: Vec<f32> = (0..sources).map(|at| (at * 7 % 256) as f32).collect();
                let codes = ColumnFactors::new(backend, &codes, KIND).expect("factors");
                check_shares::<B, bf16>(backend, &what, of, Some(&codes));
            }
        }
    }
    let graph = from_degrees(&[2, 3, 4], Random(66));
    let a = Adjacency::new(backend, &graph).expect("room for a graph");
    let x = unwritten_bits(backend, (3, 8));
    let mut few = unwritten::<B, f16>(backend, (0, 8));
    let share = RowShare::each(2).last().expect("two");
    let told = ops::bspmm_rows(backend, (&a, share), &x, None, 1.0, &mut few);
    assert!(told.unwrap_err().to_string().contains("rows of y"));
    let mut y = unwritten::<B, f16>(backend, (2, 8));
    let by_vertices = BspmmOperands {
        a: &a,
        share,
        factors: None,
        x: &x,
        row_scale: None,
        scale: 1.0,
        schedule: Schedule::Vertex,
        y: &mut y,
    };
    let told = Checked::new(by_vertices).unwrap_err().to_string();
    assert!(
        told.contains("some rows alone are summed up by edges"),
        "{told}"
    );
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
    let codes: Vec<f32> = codes.iter().map(|&code| code as f32).collect();
    let (sums, degrees) = sums(graph, &times(&values, &codes, columns), columns);

    let mut y = unwritten_bits(backend, (rows, columns));
    ops::bspmm_factored_signs(backend, (&a, &factors), &x, &mut y).expect("legal");
    let expected: Vec<f32> = sums.iter().map(sign).collect();
    assert!(read_bits(backend, &y) == expected, "signs, {what}");

    let edges = (&a, Some(&factors), &x);
    assert_integers(backend, &what, edges, Schedule::Auto, &sums);

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
    let (warp, tile) = (FEW_WARPS_EDGES_PER_WARP as usize, EDGES_PER_CTA as usize);
    for degrees in [
        vec![group - 1, group, 0, 2 * group + 1, 1],
        // Eight rows are added up at once.
        vec![group; 9],
        vec![1; 8],
        vec![1; 9],
        [vec![5; 7], vec![600], vec![1; 17], vec![40; 16]].concat(),
        vec![2 * group; 17],
        vec![warp - 1, 1, warp, warp + 1, 2],
        vec![tile - warp, warp, 3],
        vec![3, 3 * tile + 5, 0, 31, 32, 33, 8, 9],
        vec![tile - 1, 1, 1],
        vec![1; tile + 3],
    ] {
        let name = format!("rows of {:?}", &degrees[..degrees.len().min(9)]);
        let graph = from_degrees(&degrees, Random(72));
        check_factored::<B, f32>(backend, &name, &graph, 64, &codes(degrees.len(), 73));
        check_factored::<B, f16>(backend, &name, &graph, 100, &codes(degrees.len(), 77));
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
