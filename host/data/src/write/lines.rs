//! Texts: an edge a line.

use std::io::{self, Write};

use crate::read::matrix_market::BANNER;
use crate::row_order::{InRowOrder, RowWalk};
use halfgnn_graph::parallel;

/// Matrix Market's coordinate format; of a symmetric graph the lower triangle.
pub(super) fn matrix_market(to: &mut dyn Write, graph: &impl InRowOrder) -> io::Result<()> {
    let symmetric = graph.is_symmetric()?;
    let symmetry = if symmetric { "symmetric" } else { "general" };
    let is_written = |row: u32, col: u32| !symmetric || col <= row;
    let mut entries = 0_u64;
    graph.each_edge(|row, col| {
        entries += u64::from(is_written(row, col));
        Ok::<(), io::Error>(())
    })?;
    let vertices = graph.offsets().len() - 1;
    writeln!(to, "{BANNER} matrix coordinate pattern {symmetry}")?;
    writeln!(to, "{vertices} {vertices} {entries}")?;
    each_edge(to, graph, |line, row, col| {
        if is_written(row, col) {
            push_pair(line, u64::from(row) + 1, b' ', u64::from(col) + 1);
        }
    })
}

/// An edge list with the comments that SNAP's have, by which vertices without edges are read again.
pub(super) fn edge_list(to: &mut dyn Write, graph: &impl InRowOrder) -> io::Result<()> {
    let (vertices, edges) = (graph.offsets().len() - 1, graph.edge_count());
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
    graph: &impl InRowOrder,
    push: impl Fn(&mut Vec<u8>, u32, u32) + Sync,
) -> io::Result<()> {
    /// Edges of which one thread makes a text.
    const TEXT: usize = 1 << 16;
    let offsets = graph.offsets();
    let text = |first: u64, columns: &[u32]| {
        let mut text = Vec::with_capacity(columns.len() * 16);
        let mut rows = RowWalk::from(offsets, first);
        for (edge, &column) in (first..).zip(columns) {
            push(&mut text, rows.row_of(edge)?, column);
        }
        Ok(text)
    };
    let mut first = 0;
    graph.each_piece(|piece| {
        let columns: Vec<&[u32]> = piece.chunks(TEXT).collect();
        let texts = parallel::map(&*columns, |at, columns| {
            text(first + (at * TEXT) as u64, columns)
        });
        first += piece.len() as u64;
        texts
            .into_iter()
            .try_for_each(|text: io::Result<Vec<u8>>| to.write_all(&text?))
    })
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
