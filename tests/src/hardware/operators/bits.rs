//! Signs of elements, sums of bits over neighbours, and products of bits.

use super::sparse::graph;
use super::{Operands, OperatorCase, Results};
use crate::bit_sums::{check_integers, check_signs};
use crate::bits::read_bits;
use crate::graphs::from_degrees;
use crate::input::{KIND, Random, elements, matrix, read, unwritten};
use half::{bf16, f16};
use halfgnn::backend::{Adjacency, Backend, RowShare};
use halfgnn::graph::Frdc;
use halfgnn::ops::blocks::{Addition, mm_add};
use halfgnn::ops::{
    self, BitMatrix, Bmm, BmmOperands, BspmmOperands, BspmmSignsOperands, Checked, ColumnFactors,
    Schedule, TiledAdjacency, Trinary,
};
use halfgnn::tensor::{Array, Element, Matrix};
use halfgnn_contract::bits::{are_counted, are_long};

pub(super) fn cases<B: Backend + 'static>() -> Vec<OperatorCase<B>> {
    let mut cases = Vec::new();
    // One word of a row, two, and four.
    for features in [33, 70, 200] {
        // The graph is so small that the second is what would be chosen.
        for schedule in [Schedule::Edge, Schedule::Vertex] {
            of_element::<B, f16>(&mut cases, features, schedule);
            of_element::<B, bf16>(&mut cases, features, schedule);
            of_element::<B, f32>(&mut cases, features, schedule);
        }
        factored::<B, f16>(&mut cases, features);
        factored::<B, bf16>(&mut cases, features);
        factored::<B, f32>(&mut cases, features);
        of_long_rows::<B, f16>(&mut cases, features);
        of_long_rows::<B, bf16>(&mut cases, features);
        of_long_rows::<B, f32>(&mut cases, features);
    }
    for trinary in Trinary::ALL {
        tiles::<B, f16>(&mut cases, trinary);
        tiles::<B, bf16>(&mut cases, trinary);
        tiles::<B, f32>(&mut cases, trinary);
    }
    products::<B, f16>(&mut cases);
    products::<B, bf16>(&mut cases);
    products::<B, f32>(&mut cases);
    added::<B, f16>(&mut cases);
    added::<B, bf16>(&mut cases);
    added::<B, f32>(&mut cases);
    cases
}

/// On the graph as tiles.
fn tiles<B: Backend + 'static, E: Element>(cases: &mut Vec<OperatorCase<B>>, trinary: Trinary) {
    const FEATURES: usize = 70;
    let name = format!("frdc {trinary} {}", E::PRECISION);
    cases.push(OperatorCase::new(name, move |backend: &B, operands| {
        let graph = graph(operands);
        let shape = (graph.vertices(), FEATURES);
        let tiled = Frdc::new(&graph).expect("room for tiles");
        let a = TiledAdjacency::new(backend, &tiled).expect("room for tiles");
        let numbers = matrix::<B, E>(backend, shape, &operands.mixed::<E>(shape.0 * FEATURES));
        let bits = || BitMatrix::zeros(backend, shape.0, FEATURES, KIND).expect("room for bits");
        let (mut x, mut signs) = (bits(), bits());
        ops::binarize(backend, &numbers, &mut x).expect("legal");
        ops::frdc_bspmm_signs(backend, &a, &x, trinary, &mut signs).expect("legal");
        let row_scale = elements(backend, &operands.mild::<f32>(shape.0));
        let factors = (Some(&row_scale), 0.3);
        let mut sums = unwritten::<B, E>(backend, shape);
        ops::frdc_bspmm(backend, &a, &x, factors, trinary, &mut sums).expect("legal");
        Results::rows(&read_bits(backend, &signs), FEATURES)
            .and(Results::rows(&read(backend, &sums), FEATURES))
    }));
}

/// The size of a product, and its factors.
const PRODUCT: [usize; 3] = [300, 70, 200];

/// The two factors of [`PRODUCT`] and what multiplies the rows and the columns of the product and is added to them.
fn factors_of_product<B: Backend, E: Element>(
    backend: &B,
    operands: &mut Operands,
) -> ([BitMatrix<B>; 2], [Array<B, f32>; 3]) {
    let [m, n, k] = PRODUCT;
    let mut bits = |rows| {
        let numbers = matrix::<B, E>(backend, (rows, k), &operands.mixed::<E>(rows * k));
        let mut bits = BitMatrix::zeros(backend, rows, k, KIND).expect("room for bits");
        ops::binarize(backend, &numbers, &mut bits).expect("legal");
        bits
    };
    let both = [bits(m), bits(n)];
    let numbers = |len| elements(backend, &operands.mild::<f32>(len));
    (both, [m, n, n].map(numbers))
}

/// All that is done with a product.
fn scaled<B: Backend>([row_scale, column_scale, bias]: &[Array<B, f32>; 3]) -> Bmm<'_, B> {
    Bmm {
        scale: 0.3,
        row_scale: Some(row_scale),
        column_scale: Some(column_scale),
        bias: Some(bias),
    }
}

fn products<B: Backend + 'static, E: Element>(cases: &mut Vec<OperatorCase<B>>) {
    let name = format!("bmm {}", E::PRECISION);
    cases.push(OperatorCase::new(name, |backend: &B, operands| {
        let [m, n, _] = PRODUCT;
        let ([a, b], factors) = factors_of_product::<B, E>(backend, operands);
        let op = scaled(&factors);
        let mut signs = BitMatrix::zeros(backend, m, n, KIND).expect("room for bits");
        ops::bmm_signs(backend, &a, &b, &op, &mut signs).expect("legal");
        let mut y = unwritten::<B, E>(backend, (m, n));
        ops::bmm(backend, &a, &b, &op, &mut y).expect("legal");
        Results::rows(&read_bits(backend, &signs), n).and(Results::rows(&read(backend, &y), n))
    }));
}

/// To what is there, and a share with their signs.
fn added<B: Backend + 'static, E: Element>(cases: &mut Vec<OperatorCase<B>>) {
    let name = format!("bmm added {}", E::PRECISION);
    cases.push(OperatorCase::new(name, |backend: &B, operands| {
        let [m, n, _] = PRODUCT;
        let ([a, b], factors) = factors_of_product::<B, E>(backend, operands);
        let op = scaled(&factors);
        let mut sums = |addition| {
            let mut y = matrix::<B, E>(backend, (m, n), &operands.mixed::<E>(m * n));
            let product = BmmOperands {
                a: &a,
                b: &b,
                op: &op,
            };
            mm_add(backend, product, addition, &mut y).expect("legal");
            Results::rows(&read(backend, &y), n)
        };
        sums(Addition::Products).and(sums(Addition::Signs { share: 0.3 }))
    }));
}

fn of_element<B: Backend + 'static, E: Element>(
    cases: &mut Vec<OperatorCase<B>>,
    features: usize,
    schedule: Schedule,
) {
    let by = match schedule {
        Schedule::Vertex => " by vertices",
        _ => "",
    };
    let name = format!("bspmm{by} {} F={features}", E::PRECISION);
    cases.push(OperatorCase::new(name, move |backend: &B, operands| {
        let graph = graph(operands);
        let shape = (graph.vertices(), features);
        let a = Adjacency::new(backend, &graph).expect("room for a graph");
        let numbers = matrix::<B, E>(backend, shape, &operands.mixed::<E>(shape.0 * features));
        let bits = || BitMatrix::zeros(backend, shape.0, features, KIND).expect("room for bits");
        let (mut x, mut signs) = (bits(), bits());
        ops::binarize(backend, &numbers, &mut x).expect("legal");
        let of_signs = BspmmSignsOperands {
            a: &a,
            factors: None,
            x: &x,
            schedule,
            y: &mut signs,
        };
        let checked = Checked::new(of_signs).expect("legal");
        backend.bspmm_signs(checked).expect("legal");
        check_integers(backend, &graph, features, schedule);
        let sums = sums_of::<B, E>(backend, operands, (&a, &x), schedule);
        Results::rows(&read_bits(backend, &x), features)
            .and(Results::rows(&read_bits(backend, &signs), features))
            .and(Results::rows(&read(backend, &sums), features))
    }));
}

/// The sums of bits over neighbours, times a factor a row and one of all.
fn sums_of<B: Backend, E: Element>(
    backend: &B,
    operands: &mut Operands,
    (a, x): (&Adjacency<B>, &BitMatrix<B>),
    schedule: Schedule,
) -> Matrix<B, E> {
    let row_scale = elements(backend, &operands.mild::<f32>(a.rows()));
    let mut sums = unwritten::<B, E>(backend, (a.rows(), x.columns()));
    let of_sums = BspmmOperands {
        a,
        share: RowShare::ALL,
        factors: None,
        x,
        row_scale: Some(&row_scale),
        scale: 0.3,
        schedule,
        y: &mut sums,
    };
    let checked = Checked::new(of_sums).expect("legal");
    backend.bspmm(checked).expect("legal");
    sums
}

/// On rows so long that their sums are made otherwise, and signs of one word and of two. Signs are integers', and integers are what they are, so that it is known without a card: they are not recorded.
fn of_long_rows<B: Backend + 'static, E: Element>(
    cases: &mut Vec<OperatorCase<B>>,
    features: usize,
) {
    let name = format!("bspmm of long rows {} F={features}", E::PRECISION);
    cases.push(OperatorCase::new(name, move |backend: &B, operands| {
        let graph = from_degrees(&[130, 400, 1, 131, 0, 2_100, 7, 300, 33, 256], Random(3));
        let filled = graph.vertices() as u32 - 1;
        let edges = graph.edges() as u32;
        assert!(are_long(edges, filled) && !are_counted(2, edges, filled));
        check_signs(backend, "long rows", &graph, features);
        check_integers(backend, &graph, features, Schedule::Edge);
        let shape = (graph.vertices(), features);
        let a = Adjacency::new(backend, &graph).expect("room for a graph");
        let numbers = matrix::<B, E>(backend, shape, &operands.mixed::<E>(shape.0 * features));
        let mut x = BitMatrix::zeros(backend, shape.0, features, KIND).expect("room for bits");
        ops::binarize(backend, &numbers, &mut x).expect("legal");
        let sums = sums_of::<B, E>(backend, operands, (&a, &x), Schedule::Edge);
        Results::rows(&read(backend, &sums), features)
    }));
}

/// With a factor a column.
fn factored<B: Backend + 'static, E: Element>(cases: &mut Vec<OperatorCase<B>>, features: usize) {
    let name = format!("bspmm with factors {} F={features}", E::PRECISION);
    cases.push(OperatorCase::new(name, move |backend: &B, operands| {
        let graph = graph(operands);
        let shape = (graph.vertices(), features);
        let a = Adjacency::new(backend, &graph).expect("room for a graph");
        let numbers = matrix::<B, E>(backend, shape, &operands.mixed::<E>(shape.0 * features));
        let bits = || BitMatrix::zeros(backend, shape.0, features, KIND).expect("room for bits");
        let (mut x, mut signs) = (bits(), bits());
        ops::binarize(backend, &numbers, &mut x).expect("legal");
        let mut factors = operands.mild::<f32>(shape.0);
        factors.iter_mut().for_each(|factor| *factor = factor.abs());
        let factors = ColumnFactors::new(backend, &factors, KIND).expect("room for factors");
        let edges = (&a, &factors);
        ops::bspmm_factored_signs(backend, edges, &x, &mut signs).expect("legal");
        let row_scale = elements(backend, &operands.mild::<f32>(shape.0));
        let mut sums = unwritten::<B, E>(backend, shape);
        ops::bspmm_factored(backend, edges, &x, Some(&row_scale), 0.3, &mut sums).expect("legal");
        Results::rows(&read_bits(backend, &signs), features)
            .and(Results::rows(&read(backend, &sums), features))
    }));
}
