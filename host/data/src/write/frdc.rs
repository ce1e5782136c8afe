//! Tiles of bits: see [`read::frdc`](crate::read::frdc).

use std::io::{self, Write};

use crate::DataProblem;
use crate::read::frdc::Header;
use crate::row_order::InRowOrder;
use halfgnn_graph::Frdc;

/// Writes a graph, each edge once. The edges are traversed once for each array, so that only offsets are in memory,
/// wherever the edges lie.
pub(super) fn write(to: &mut impl Write, graph: &impl InRowOrder) -> Result<(), DataProblem> {
    let vertices = graph.offsets().len() - 1;
    let mut offsets =
        DataProblem::with_capacity("offsets of tiles", vertices.div_ceil(Frdc::TILE) as u64 + 1)?;
    // Vertices and edges are no more than 32 bits count, and a tile has an edge.
    let (mut tiles, mut edges) = (0_u32, 0_u32);
    offsets.push(tiles);
    each_row_of_tiles(graph, |of_row| {
        tiles += of_row.len() as u32;
        edges += of_row
            .iter()
            .map(|(_, bits)| bits.count_ones())
            .sum::<u32>();
        offsets.push(tiles);
        Ok(())
    })?;
    let header = Header {
        vertices: vertices as u32,
        edges,
        tiles,
    };
    to.write_all(&header.bytes())?;
    let mut put = |bytes: &[u8]| to.write_all(bytes);
    offsets
        .iter()
        .try_for_each(|offset| put(&offset.to_le_bytes()))?;
    each_row_of_tiles(graph, |of_row| {
        let mut columns = of_row.iter().map(|(column, _)| column.to_le_bytes());
        columns.try_for_each(|column| put(&column))
    })?;
    each_row_of_tiles(graph, |of_row| {
        let mut tiles = of_row.iter().map(|(_, bits)| bits.to_le_bytes());
        tiles.try_for_each(|bits| put(&bits))
    })?;
    Ok(())
}

/// Calls `each` with column and bits of the tiles of each row of them, in their order.
fn each_row_of_tiles(
    graph: &impl InRowOrder,
    mut each: impl FnMut(&[(u32, u16)]) -> io::Result<()>,
) -> io::Result<()> {
    let mut rows: [Vec<u32>; Frdc::TILE] = Default::default();
    let mut tiles = Vec::new();
    let mut finish = |rows: &mut [Vec<u32>; Frdc::TILE]| {
        tiles.clear();
        let of_rows = std::array::from_fn(|row| &rows[row][..]);
        Frdc::tiles_of(of_rows, &mut |column, bits| tiles.push((column, bits)));
        rows.iter_mut().for_each(Vec::clear);
        each(&tiles)
    };
    let mut finished = 0;
    graph.each_edge(|row, column| {
        let row = row as usize;
        while finished < row / Frdc::TILE {
            finish(&mut rows)?;
            finished += 1;
        }
        // An edge that occurs again is the same bit; a row never has more columns than there are.
        let row = &mut rows[row % Frdc::TILE];
        if row.last() != Some(&column) {
            row.push(column);
        }
        Ok::<(), io::Error>(())
    })?;
    let all = (graph.offsets().len() - 1).div_ceil(Frdc::TILE);
    (finished..all).try_for_each(|_| finish(&mut rows))
}
