//! Texts: an edge a line.

use std::io::{self, Write};
use std::ops::Range;

use crate::read::matrix_market::BANNER;
use halfgnn_graph::{Graph, parallel};

/// Matrix Market's coordinate format; of a symmetric graph the lower triangle.
pub(super) fn matrix_market(to: &mut dyn Write, graph: &Graph) -> io::Result<()> {
    let symmetric = graph.is_symmetric();
    let symmetry = if symmetric { "symmetric" } else { "general" };
    let is_written = |row: u32, col: u32| !symmetric || col <= row;
    let edges = graph.rows().iter().zip(graph.cols());
    let entries = edges.filter(|(row, col)| is_written(**row, **col)).count();
    let vertices = graph.vertices();
    writeln!(to, "{BANNER} matrix coordinate pattern {symmetry}")?;
    writeln!(to, "{vertices} {vertices} {entries}")?;
    each_edge(to, graph, |line, row, col| {
        if is_written(row, col) {
            push_pair(line, u64::from(row) + 1, b' ', u64::from(col) + 1);
        }
    })
}

/// An edge list with the comments that SNAP's have, by which vertices without edges are read again.
pub(super) fn edge_list(to: &mut dyn Write, graph: &Graph) -> io::Result<()> {
    let (vertices, edges) = (graph.vertices(), graph.edges());
    writeln!(
        to,
        "# Directed graph, each edge once; an undirected one has both directions"
    )?;
    writeln!(to, "# Nodes: {vertices} Edges: {edges}")?;
    writeln!(to, "# FromNodeId\tToNodeId")?;
    each_edge(to, graph, |line, row, col| {
        push_pair(line, col.into(), b'\t', row.into())
    })
}

/// Writes what `push` makes of each edge (row, column), in order.
fn each_edge(
    to: &mut dyn Write,
    graph: &Graph,
    push: impl Fn(&mut Vec<u8>, u32, u32) + Sync,
) -> io::Result<()> {
    const PIECE: usize = 1 << 16;
    let (rows, cols) = (graph.rows(), graph.cols());
    let text = |piece: Range<usize>| {
        let mut text = Vec::with_capacity(piece.len() * 16);
        piece.for_each(|edge| push(&mut text, rows[edge], cols[edge]));
        text
    };
    let batch = PIECE * rayon::current_num_threads() * 4;
    for start in (0..rows.len()).step_by(batch) {
        let end = rows.len().min(start + batch);
        let starts: Vec<usize> = (start..end).step_by(PIECE).collect();
        let texts = parallel::map(&*starts, |_, &at| text(at..end.min(at + PIECE)));
        texts.iter().try_for_each(|text| to.write_all(text))?;
    }
    Ok(())
}

fn push_pair(line: &mut Vec<u8>, one: u64, between: u8, other: u64) {
    push_number(line, one);
    line.push(between);
    push_number(line, other);
    line.push(b'\n');
}

/// The digits of a number. `write!` takes ten times as long.
fn push_number(line: &mut Vec<u8>, mut number: u64) {
    let mut digits = [0; 20];
    let mut at = digits.len();
    loop {
        at -= 1;
        digits[at] = b'0' + (number % 10) as u8;
        number /= 10;
        if number == 0 {
            break;
        }
    }
    line.extend_from_slice(&digits[at..]);
}
