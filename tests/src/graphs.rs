//! Graphs on which sparse kernels go wrong.

use crate::Scale;
use crate::input::Random;
use halfgnn::graph::Csr;
use halfgnn_contract::spmm::{EDGES_PER_CTA, EDGES_PER_WARP};

/// The graph of these edges, `(row, column)`.
pub fn from_edges(vertices: usize, edges: &[(u32, u32)]) -> Csr {
    let (rows, columns): (Vec<u32>, Vec<u32>) = edges.iter().copied().unzip();
    Csr::from_edges(vertices, &rows, &columns).expect("edges of the graph")
}

/// Rows of these lengths with random columns; at least one vertex where there is an edge.
pub fn from_degrees(degrees: &[usize], random: Random) -> Csr {
    let vertices = degrees.len() as u32;
    let rows = degrees
        .iter()
        .enumerate()
        .flat_map(|(row, &degree)| std::iter::repeat_n(row as u32, degree));
    let edges: Vec<(u32, u32)> = rows
        .enumerate()
        .map(|(edge, row)| (row, random.bits(edge) % vertices))
        .collect();
    from_edges(degrees.len(), &edges)
}

/// A few rows have most of the edges.
pub fn power_law(vertices: usize, edges: usize, random: Random) -> Csr {
    let vertex = |index| {
        let unit = f64::from(random.bits(index)) / 4_294_967_296.0;
        (unit.powi(4) * vertices as f64) as u32
    };
    let edges: Vec<(u32, u32)> = (0..edges)
        .map(|edge| (vertex(2 * edge), vertex(2 * edge + 1)))
        .collect();
    from_edges(vertices, &edges)
}

/// One vertex that hears from `degree` vertices, duplicates among them, and three that hear from one or none.
pub fn hub(degree: usize) -> Csr {
    let edges: Vec<(u32, u32)> = (0..degree as u32)
        .map(|edge| (1, edge % 4))
        .chain([(0, 1), (3, 3)])
        .collect();
    from_edges(4, &edges)
}

/// The graph with its vertices renamed: vertex `v` becomes `names[v]`.
pub fn renamed(graph: &Csr, names: &[u32]) -> Csr {
    let edges: Vec<(u32, u32)> = graph
        .rows()
        .iter()
        .zip(graph.cols())
        .map(|(&row, &column)| (names[row as usize], names[column as usize]))
        .collect();
    from_edges(graph.vertices(), &edges)
}

/// The graph with every edge turned round.
pub fn transposed(graph: &Csr) -> Csr {
    let (rows, columns) = graph.shape();
    Csr::rectangular_from_edges((columns, rows), graph.cols(), graph.rows())
        .expect("edges of the graph")
}

/// Rows of these lengths with random columns below `columns`.
fn of_columns(columns: usize, degrees: &[usize], random: Random) -> Csr {
    let square = from_degrees(degrees, random);
    let cols: Vec<u32> = (0..square.edges())
        .map(|edge| random.bits(edge) % columns as u32)
        .collect();
    Csr::rectangular_from_edges((degrees.len(), columns), square.rows(), &cols)
        .expect("edges of the graph")
}

/// Patterns that are not square, by name: more rows than columns, fewer, and none of either.
pub fn rectangular(scale: Scale) -> Vec<(&'static str, Csr)> {
    let degrees = [0, 7, 1, scale.pick(700, 9_000), 0, 33, 2, 140, 5].repeat(scale.pick(3, 40));
    let wide = of_columns(scale.pick(500, 9_000), &degrees, Random(30));
    let none = |rows: usize, columns: usize| {
        Csr::rectangular(columns, vec![0; rows + 1], Vec::new()).expect("a pattern of no edges")
    };
    vec![
        ("more columns than rows", wide.clone()),
        ("more rows than columns", transposed(&wide)),
        ("one column", of_columns(1, &degrees, Random(31))),
        (
            "one row",
            of_columns(90, &[scale.pick(600, 3_000)], Random(32)),
        ),
        ("no columns", none(67, 0)),
        ("no rows", none(0, 67)),
    ]
}

/// A permutation of `0..len`.
pub fn permutation(len: usize, random: Random) -> Vec<u32> {
    let mut names: Vec<u32> = (0..len as u32).collect();
    for i in (1..len).rev() {
        names.swap(i, random.bits(i) as usize % (i + 1));
    }
    names
}

/// Small graphs of every odd kind, by name.
pub fn odd(scale: Scale) -> Vec<(&'static str, Csr)> {
    let edges = scale.pick(3_000, 40_000);
    let law = power_law(scale.pick(150, 2_000), edges, Random(1));
    let names = permutation(law.vertices(), Random(2));
    vec![
        ("no vertices", from_edges(0, &[])),
        ("one vertex, no edge", from_edges(1, &[])),
        ("one self-loop", from_edges(1, &[(0, 0)])),
        ("no edges", from_edges(70, &[])),
        ("first row empty", from_degrees(&[0, 2, 3], Random(3))),
        ("last row empty", from_degrees(&[2, 3, 0], Random(4))),
        (
            "only the last row",
            from_degrees(&[0, 0, 0, 0, 5], Random(5)),
        ),
        (
            "every other row empty",
            from_degrees(&[3, 0].repeat(40), Random(6)),
        ),
        (
            "duplicate edges",
            from_edges(2, &[(0, 1), (0, 1), (0, 1), (1, 1), (1, 1)]),
        ),
        ("one giant row", from_degrees(&[edges], Random(7))),
        ("a hub", hub(edges / 2)),
        (
            "isolated vertices",
            from_degrees(&[0, 0, 1, 0, 9, 0, 0, 0, 33, 0], Random(8)),
        ),
        (
            "a ring",
            from_edges(97, &(0..97).map(|v| (v, (v + 1) % 97)).collect::<Vec<_>>()),
        ),
        ("power law", law.clone()),
        ("power law, renamed", renamed(&law, &names)),
    ]
}

/// Rows that end one edge before, at and after the boundaries of sub-warps, warps and CTAs, and rows that span several
/// of them: for each boundary and shift one graph of a filler row, a row across the boundary, and short rows.
pub fn boundaries(scale: Scale) -> Vec<(String, Csr)> {
    let (warp, cta) = (EDGES_PER_WARP as usize, EDGES_PER_CTA as usize);
    let mut graphs = Vec::new();
    for boundary in [4, 8, 16, 32, 64, warp, 2 * warp, cta, 2 * cta] {
        for end in [boundary - 1, boundary, boundary + 1] {
            let name = format!("a row ends after edge {end}");
            graphs.push((
                name,
                from_degrees(&[end, 1, 3, 0, 2, 40], Random(end as u32)),
            ));
        }
    }
    let spans = scale.pick(vec![1, 2, 3], vec![1, 2, 3, 4, 9, 40]);
    for ctas in spans {
        for (before, after) in [(0, 0), (1, 1), (cta - 1, 2), (cta / 2, cta / 2), (37, 700)] {
            for length in [ctas * cta - 1, ctas * cta, ctas * cta + 1] {
                let name = format!("{before} edges, then a row of {length}, then {after}");
                let degrees = [before, 0, length, after, 0];
                graphs.push((name, from_degrees(&degrees, Random(length as u32))));
            }
        }
    }
    graphs
}
