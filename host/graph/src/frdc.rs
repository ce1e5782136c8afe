//! A graph as tiles of bits.

use super::error::{GraphError, check_room};
use super::{Csr, parallel};

/// Rows and columns of a tile.
pub const TILE: usize = 4;

/// A pattern as BitGNN stores it (Chen et al., ICS 2023, §3.2.1: "fine-representing, dynamic-coarsening"): of a matrix that is cut
/// into tiles of 4 × 4 those that have an edge, row of tiles by row of tiles, each as 16 bits. An edge that occurs twice is one
/// bit, and so one edge.
///
/// ```text
///            columns 0 1 2 3   4 5 6 7         tile_offsets  0 2      of each row of tiles
///     rows 0         . 1 . .   . . . .         tile_columns  0 1      in tiles
///          1         . . . .   1 . . .         tiles         0x8002   bit 4·row + column
///          2         . . . .   . . . .                       0x0010
///          3         . . . 1   . . . .
/// ```
///
/// ```
/// use halfgnn_graph::{Csr, Frdc};
///
/// let csr = Csr::rectangular_from_edges((4, 8), &[0, 1, 3, 3], &[1, 4, 3, 3])?;
/// let tiled = Frdc::new(&csr)?;
/// assert_eq!(tiled.tiles(), [0x8002, 0x0010]);
/// assert_eq!((tiled.edges(), tiled.merged()), (3, 1));
/// assert_eq!(tiled.to_csr()?.cols(), [1, 4, 3]);
/// # Ok::<(), halfgnn_graph::GraphError>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Frdc {
    shape: (usize, usize),
    offsets: Vec<u32>,
    columns: Vec<u32>,
    tiles: Vec<u16>,
    edges: usize,
    merged: usize,
}

impl Frdc {
    /// The tiles of a pattern.
    ///
    /// # Errors
    /// [`GraphError::OutOfMemory`].
    pub fn new(csr: &Csr) -> Result<Self, GraphError> {
        let (rows, all) = (csr.vertices().div_ceil(TILE), Self::count(csr));
        check_room("tiles", Self::bytes_of(csr.vertices(), all))?;
        let mut offsets = Vec::with_capacity(rows + 1);
        let (mut columns, mut tiles) = (Vec::with_capacity(all), Vec::with_capacity(all));
        offsets.push(0);
        for row in 0..rows {
            of_tile_row(csr, row, &mut |column, bits| {
                columns.push(column);
                tiles.push(bits);
            });
            // No more than there are edges, which 32 bits count.
            offsets.push(tiles.len() as u32);
        }
        let edges = tiles
            .iter()
            .map(|bits: &u16| bits.count_ones() as usize)
            .sum();
        Ok(Self {
            shape: csr.shape(),
            offsets,
            columns,
            tiles,
            edges,
            merged: csr.edges() - edges,
        })
    }

    /// Tiles that a pattern has, without making them.
    pub fn count(csr: &Csr) -> usize {
        let mut by_row = vec![0; csr.vertices().div_ceil(TILE)];
        parallel::for_each(&mut by_row[..], |row, count: &mut usize| {
            of_tile_row(csr, row, &mut |_, _| *count += 1);
        });
        by_row.iter().sum()
    }

    /// Bytes of so many tiles of a pattern of so many rows: a column and 16 bits each, and an offset a row of tiles.
    pub fn bytes_of(rows: usize, tiles: usize) -> u64 {
        4 * (rows.div_ceil(TILE) as u64 + 1) + 6 * tiles as u64
    }

    /// The pattern, each edge once.
    ///
    /// # Errors
    /// [`GraphError::OutOfMemory`].
    pub fn to_csr(&self) -> Result<Csr, GraphError> {
        check_room("edges of tiles", 4 * self.edges as u64)?;
        let mut columns = Vec::with_capacity(self.edges);
        let mut offsets = Vec::with_capacity(self.shape.0 + 1);
        offsets.push(0);
        for row in 0..self.shape.0 {
            let tiles = self.offsets[row / TILE] as usize..self.offsets[row / TILE + 1] as usize;
            for tile in tiles {
                let bits = self.tiles[tile] >> (TILE * (row % TILE)) & 0xf;
                let of_tile = self.columns[tile] * TILE as u32;
                let there = (0..TILE as u32).filter(|column| bits >> column & 1 == 1);
                columns.extend(there.map(|column| of_tile + column));
            }
            offsets.push(columns.len() as u64);
        }
        Csr::rectangular(self.shape.1, offsets, columns)
    }

    /// Rows and columns.
    pub fn shape(&self) -> (usize, usize) {
        self.shape
    }

    /// Edges, those that occur twice counted once.
    pub fn edges(&self) -> usize {
        self.edges
    }

    /// Edges of the pattern that it was made of which are another's bit.
    pub fn merged(&self) -> usize {
        self.merged
    }

    /// Where each row of tiles starts; one more than there are.
    pub fn tile_offsets(&self) -> &[u32] {
        &self.offsets
    }

    /// Of each tile how many stand before it, ascending within a row of tiles.
    pub fn tile_columns(&self) -> &[u32] {
        &self.columns
    }

    /// The bits of each tile: bit `4·row + column`.
    pub fn tiles(&self) -> &[u16] {
        &self.tiles
    }

    /// Bytes of the arrays.
    pub fn bytes(&self) -> u64 {
        Self::bytes_of(self.shape.0, self.tiles.len())
    }
}

/// The tiles of a row of them, from the left to the right: columns of its four rows are ascending, so each tile is what the least of
/// the columns that are left begins.
fn of_tile_row(csr: &Csr, row: usize, take: &mut dyn FnMut(u32, u16)) {
    let rows = row * TILE..csr.vertices().min((row + 1) * TILE);
    let mut left: [&[u32]; TILE] = Default::default();
    for (left, row) in left.iter_mut().zip(rows) {
        *left = csr.row(row);
    }
    let tile_of = |column: u32| column / TILE as u32;
    while let Some(&least) = left.iter().filter_map(|row| row.first()).min() {
        let tile = tile_of(least);
        let mut bits = 0;
        for (at, row) in left.iter_mut().enumerate() {
            let here = row.iter().take_while(|&&column| tile_of(column) == tile);
            let len = here.clone().count();
            here.for_each(|&column| bits |= 1 << (at * TILE + column as usize % TILE));
            *row = &row[len..];
        }
        take(tile, bits);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_tiled_comes_back_with_each_edge_once() {
        let draw = |k: u32| k.wrapping_mul(2_654_435_761) >> 7;
        for (rows, columns, edges) in [
            (1, 1, 0),
            (1, 1, 3),
            (4, 4, 9),
            (5, 9, 40),
            (130, 67, 2_000),
            (7, 1_000, 300),
        ] {
            let of = |k: u32, most: u32| draw(k) % most;
            let ids = |from: u32, most: u32| -> Vec<u32> {
                (0..edges).map(|k| of(2 * k + from, most)).collect()
            };
            let shape = (rows as usize, columns as usize);
            let csr = Csr::rectangular_from_edges(shape, &ids(0, rows), &ids(1, columns));
            let csr = csr.expect("a pattern");
            let tiled = Frdc::new(&csr).expect("room");
            let mut once: Vec<_> = csr.rows().iter().zip(csr.cols()).collect();
            once.dedup();
            let back = tiled.to_csr().expect("room");
            let of_back: Vec<_> = back.rows().iter().zip(back.cols()).collect();
            assert_eq!(of_back, once);
            assert_eq!(back.shape(), shape);
            assert_eq!(tiled.edges() + tiled.merged(), csr.edges());
            assert_eq!(Frdc::count(&csr), tiled.tiles().len());
            assert!(tiled.tiles().iter().all(|&bits| bits != 0));
            assert_eq!(tiled.tile_offsets().len(), rows.div_ceil(4) as usize + 1);
            for row in tiled.tile_offsets().windows(2) {
                let of_row = &tiled.tile_columns()[row[0] as usize..row[1] as usize];
                assert!(of_row.is_sorted_by(|a, b| a < b));
            }
        }
    }

    #[test]
    fn bytes_are_those_of_the_arrays() {
        let csr = Csr::from_edges(9, &[0, 8], &[0, 8]).expect("a pattern");
        let tiled = Frdc::new(&csr).expect("room");
        assert_eq!(tiled.bytes(), 4 * 4 + 6 * 2);
        assert_eq!(tiled.tile_offsets(), [0, 1, 1, 2]);
    }
}
