//! Sums of ±1 over neighbours in graphs of tiles of bits, by `==` with exact sums and with those of the graph itself.

use crate::Scale;
use crate::bit_sums::sums;
use crate::bits::{read_bits, signs, unwritten_bits};
use crate::graphs::{from_degrees, hub, odd, power_law, rectangular};
use crate::input::{KIND, Random, elements, read, unwritten};
use half::{bf16, f16};
use halfgnn::backend::{Adjacency, Backend};
use halfgnn::graph::{Csr, Frdc};
use halfgnn::ops::{self, BitMatrix, TiledAdjacency, Trinary};
use halfgnn::tensor::Element;

/// Every form and both kinds of output of one graph and width.
fn check<B: Backend, E: Element>(backend: &B, name: &str, graph: &Csr, columns: usize) {
    let tiled = Frdc::new(graph).expect("room for tiles");
    // What tiles hold, each edge once.
    let graph = tiled.to_csr().expect("room for a graph");
    let a = TiledAdjacency::new(backend, &tiled).expect("room for tiles");
    let (rows, sources) = graph.shape();
    let values = signs(sources * columns, 150 + columns as u32);
    let x = BitMatrix::from_signs(backend, (sources, columns), &values, KIND).expect("signs");
    let (sums, degrees) = sums(&graph, &values, columns);
    let sign = |&sum: &f32| if sum >= 0.0 { 1.0 } else { -1.0 };
    let expected: Vec<f32> = sums.iter().map(sign).collect();
    let factors: Vec<f32> = degrees.iter().map(|&d| 1.0 / d as f32).collect();
    let row_scale = elements::<B, f32>(backend, &factors);
    for trinary in Trinary::ALL {
        let what = format!("{name}, {columns} columns, {trinary}");
        let mut y = unwritten_bits(backend, (rows, columns));
        ops::frdc_bspmm_signs(backend, &a, &x, trinary, &mut y).expect("legal");
        assert!(read_bits(backend, &y) == expected, "signs, {what}");

        for (row_scale, scale) in [(None, 1.0), (Some(&row_scale), -0.5)] {
            let mut y = unwritten::<B, E>(backend, (rows, columns));
            let factors_of = (row_scale, scale);
            ops::frdc_bspmm(backend, &a, &x, factors_of, trinary, &mut y).expect("legal");
            let scaled: Vec<f32> = (sums.iter().enumerate())
                .map(|(at, sum)| {
                    let row = at / columns;
                    let factor = row_scale.map_or(1.0, |_| factors[row]);
                    match degrees[row] {
                        0 => 0.0,
                        _ => E::from_f32(sum * (scale * factor)).to_f32(),
                    }
                })
                .collect();
            assert!(read(backend, &y) == scaled, "sums times {scale}, {what}");
        }
    }
    // The operator that all other graphs have says the same.
    let whole = Adjacency::new(backend, &graph).expect("room for a graph");
    let mut y = unwritten_bits(backend, (rows, columns));
    ops::bspmm_signs(backend, &whole, &x, &mut y).expect("legal");
    assert!(read_bits(backend, &y) == expected, "signs of {name}");
}

/// Graphs of every kind; rows of tiles that fill turns, and that do not.
pub fn every_graph<B: Backend>(backend: &B, scale: Scale) {
    for (name, graph) in odd(scale).into_iter().chain(rectangular(scale)) {
        check::<B, f16>(backend, name, &graph, 70);
    }
    for degrees in [
        vec![1],
        vec![0, 0, 0, 0, 1],
        vec![3, 0, 5, 2],
        vec![40, 1, 0, 33, 64],
    ] {
        let name = format!("rows of {degrees:?}");
        let graph = from_degrees(&degrees, Random(160));
        check::<B, f32>(backend, &name, &graph, 64);
    }
    // Tiles that are full.
    let all = (0..33_u32).flat_map(|row| (0..35).map(move |column| (row, column)));
    let (rows, columns): (Vec<u32>, Vec<u32>) = all.unzip();
    let full = Csr::rectangular_from_edges((33, 35), &rows, &columns).expect("a pattern");
    check::<B, bf16>(backend, "all edges", &full, 9);
    check::<B, f32>(backend, "a hub", &hub(scale.pick(2_000, 300_000)), 40);
}

/// Every number of columns.
pub fn every_width<B: Backend>(backend: &B, scale: Scale) {
    let graph = power_law(60, scale.pick(900, 100_000), Random(161));
    for columns in [1, 31, 32, 33, 63, 64, 65, 128, 130, 200] {
        check::<B, f16>(backend, "power law", &graph, columns);
    }
    check::<B, f32>(backend, "power law", &graph, 33);
    check::<B, bf16>(backend, "power law", &graph, 300);
}

/// What does not fit is refused.
pub fn misfits_are_refused<B: Backend>(backend: &B, _: Scale) {
    let graph = from_degrees(&[2, 1, 0], Random(162));
    let tiled = Frdc::new(&graph).expect("room for tiles");
    let a = TiledAdjacency::new(backend, &tiled).expect("room for tiles");
    let bits = |shape| unwritten_bits(backend, shape);
    let refused = |x: (usize, usize), y| {
        ops::frdc_bspmm_signs(backend, &a, &bits(x), Trinary::OneCount, &mut bits(y))
            .expect_err("refused")
            .to_string()
    };
    assert_eq!(
        refused((2, 8), (3, 8)),
        "frdc_bspmm_signs: rows of x should be 3, is 2"
    );
    assert_eq!(
        refused((3, 8), (3, 9)),
        "frdc_bspmm_signs: columns of y should be 8, is 9"
    );
    let mut y = unwritten::<B, f16>(backend, (3, 8));
    let short = elements::<B, f32>(backend, &[1.0; 2]);
    let factors = (Some(&short), 1.0);
    let error = ops::frdc_bspmm(backend, &a, &bits((3, 8)), factors, Trinary::IfElse, &mut y);
    assert_eq!(
        error.expect_err("refused").to_string(),
        "frdc_bspmm: row scale should be 3, is 2"
    );
}
