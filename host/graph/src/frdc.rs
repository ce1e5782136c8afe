//! A graph as tiles of bits.

use super::error::{
    GraphError, OffsetRule, TileRule, check_edges, check_length, check_room, check_vertices,
    wrong_offset,
};
use super::{Csr, parallel};

/// Rows and columns of a tile.
pub const TILE: usize = 4;

/// A pattern as BitGNN stores it (Chen et al., ICS 2023, §3.2.1: "fine-representing, dynamic-coarsening"): of a matrix
/// that is cut into tiles of 4 × 4 those that have an edge, row of tiles by row of tiles, each as 16 bits. An edge that
/// occurs twice is one bit, and so one edge.
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
    /// Rows and columns of a tile.
    pub const TILE: usize = TILE;

    /// Of given arrays: `shape` is (rows, columns) of the pattern; `offsets` has one more than there are rows of tiles,
    /// `columns` and `tiles` one a tile.
    ///
    /// # Errors
    /// [`GraphError::Tile`], [`GraphError::Length`], [`GraphError::TooManyVertices`], [`GraphError::TooManyEdges`].
    ///
    /// ```
    /// use halfgnn_graph::Frdc;
    ///
    /// let tiled = Frdc::from_arrays((4, 8), vec![0, 2], vec![0, 1], vec![0x8002, 0x0010])?;
    /// assert_eq!(tiled.to_csr()?.cols(), [1, 4, 3]);
    /// let empty = Frdc::from_arrays((4, 8), vec![0, 2], vec![0, 1], vec![0x8002, 0]);
    /// assert_eq!(empty.unwrap_err().to_string(), "tiles[1] is 0, but a tile has a bit at least");
    /// # Ok::<(), halfgnn_graph::GraphError>(())
    /// ```
    pub fn from_arrays(
        shape: (usize, usize),
        offsets: Vec<u32>,
        columns: Vec<u32>,
        tiles: Vec<u16>,
    ) -> Result<Self, GraphError> {
        check_length(
            "tile_columns",
            columns.len(),
            tiles.len(),
            "one for each tile",
        )?;
        let mut walk = TileWalk::new(shape, &offsets, tiles.len())?;
        let mut edges = 0;
        for (&column, &bits) in columns.iter().zip(&tiles) {
            edges += walk.edges(column, bits)?.count();
        }
        check_edges(edges as u64)?;
        Ok(Self {
            shape,
            offsets,
            columns,
            tiles,
            edges,
            merged: 0,
        })
    }

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
            Self::tiles_of(rows_of(csr, row), &mut |column, bits| {
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
            Self::tiles_of(rows_of(csr, row), &mut |_, _| *count += 1);
        });
        by_row.iter().sum()
    }

    /// Calls `take` with the column and the bits of each tile of a row of them, from the left to the right: of the
    /// columns of its four rows, which ascend in each; rows past the last are empty.
    pub fn tiles_of(mut rows: [&[u32]; TILE], take: &mut dyn FnMut(u32, u16)) {
        let tile_of = |column: u32| column / TILE as u32;
        // Columns ascend, so each tile is what the least of the columns that are left begins.
        while let Some(&least) = rows.iter().filter_map(|row| row.first()).min() {
            let tile = tile_of(least);
            let mut bits = 0;
            for (at, row) in rows.iter_mut().enumerate() {
                let here = row.iter().take_while(|&&column| tile_of(column) == tile);
                let len = here.clone().count();
                here.for_each(|&column| bits |= 1 << (at * TILE + column as usize % TILE));
                *row = &row[len..];
            }
            take(tile, bits);
        }
    }

    /// Bytes of a number of tiles of a pattern with a number of rows: a column and 16 bits each, and an offset a row of
    /// tiles.
    pub fn bytes_of(rows: usize, tiles: usize) -> u64 {
        4 * (rows.div_ceil(TILE) as u64 + 1) + 6 * tiles as u64
    }

    /// The pattern, each edge once.
    ///
    /// # Errors
    /// [`GraphError::OutOfMemory`].
    pub fn to_csr(&self) -> Result<Csr, GraphError> {
        let bytes = 4 * self.edges as u64 + 8 * (self.shape.0 as u64 + 1);
        check_room("edges of tiles", bytes)?;
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

    /// Edges of the pattern that it was made of which are another's bit; none of one that was made of arrays.
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

/// The rows of a row of tiles.
fn rows_of(csr: &Csr, row: usize) -> [&[u32]; TILE] {
    let mut rows: [&[u32]; TILE] = Default::default();
    let there = row * TILE..csr.vertices().min((row + 1) * TILE);
    for (of_row, row) in rows.iter_mut().zip(there) {
        *of_row = csr.row(row);
    }
    rows
}

/// Tiles in their order, each checked as it comes, for callers that do not have all of them in memory.
/// [`Frdc::from_arrays`] is for those that do.
///
/// ```
/// use halfgnn_graph::TileWalk;
///
/// // Two rows of tiles, of which the second has a tile.
/// let offsets = [0, 0, 1];
/// let mut walk = TileWalk::new((5, 9), &offsets, 1)?;
/// let edges: Vec<_> = walk.edges(2, 0x0001)?.collect();
/// assert_eq!(edges, [[4, 8]]);
/// # Ok::<(), halfgnn_graph::GraphError>(())
/// ```
#[derive(Debug)]
pub struct TileWalk<'a> {
    shape: (usize, usize),
    offsets: &'a [u32],
    /// The row of tiles that the walk is in.
    row: usize,
    /// Tiles that it has passed.
    at: usize,
    /// The column of the tile before, of the same row.
    before: Option<u32>,
}

impl<'a> TileWalk<'a> {
    /// Before the first of `tiles` tiles of a pattern of `shape` (rows, columns), whose rows of tiles start at
    /// `offsets`, one more than there are.
    ///
    /// # Errors
    /// [`GraphError::Tile`] of offsets that do not start at 0, that decrease or that do not end at `tiles`;
    /// [`GraphError::Length`], [`GraphError::TooManyVertices`].
    pub fn new(
        shape: (usize, usize),
        offsets: &'a [u32],
        tiles: usize,
    ) -> Result<Self, GraphError> {
        check_vertices(shape.0 as u64)?;
        check_vertices(shape.1 as u64)?;
        check_length(
            "tile_offsets",
            offsets.len(),
            shape.0.div_ceil(TILE) + 1,
            "one more than there are rows of tiles",
        )?;
        match wrong_offset(offsets, (tiles as u64, OffsetRule::EndAtTiles)) {
            Some((index, rule)) => Err(GraphError::Tile {
                field: "tile_offsets",
                index: index as u64,
                value: offsets[index].into(),
                rule: TileRule::Offset(rule),
            }),
            None => Ok(Self {
                shape,
                offsets,
                row: 0,
                at: 0,
                before: None,
            }),
        }
    }

    /// The edges (row, column) of the next tile, row by row.
    ///
    /// # Errors
    /// [`GraphError::Tile`] of a column that is none or does not ascend, of a tile without a bit, and of a bit past the
    /// last row or column.
    ///
    /// # Panics
    /// If there is no next tile.
    pub fn edges(
        &mut self,
        column: u32,
        bits: u16,
    ) -> Result<impl Iterator<Item = [u32; 2]> + use<>, GraphError> {
        // Rows without tiles are passed by.
        while self.offsets[self.row + 1] as usize <= self.at {
            self.row += 1;
            self.before = None;
        }
        let (rows, columns) = self.shape;
        let of_columns = columns.div_ceil(TILE) as u64;
        let broken = |field, value, rule| GraphError::Tile {
            field,
            index: self.at as u64,
            value,
            rule,
        };
        let wrong_column = |rule| Err(broken("tile_columns", column.into(), rule));
        if u64::from(column) >= of_columns {
            return wrong_column(TileRule::ColumnsBelow(of_columns));
        }
        if let Some(before) = self.before.filter(|&before| before >= column) {
            return wrong_column(TileRule::Ascend(before));
        }
        let wrong_tile = |rule| Err(broken("tiles", bits.into(), rule));
        if bits == 0 {
            return wrong_tile(TileRule::HasEdge);
        }
        // No more than 32 bits, as ids of vertices.
        let first = [(self.row * TILE) as u32, column * TILE as u32];
        let ends = [rows, columns].map(|end| end as u64);
        let edges = (0..16)
            .filter(move |bit| bits >> bit & 1 == 1)
            .map(move |bit: u32| [first[0] + bit / TILE as u32, first[1] + bit % TILE as u32]);
        let is_past = |edge: [u32; 2]| edge.iter().zip(ends).any(|(&at, end)| u64::from(at) >= end);
        if edges.clone().any(is_past) {
            return wrong_tile(TileRule::Within { rows, columns });
        }
        self.at += 1;
        self.before = Some(column);
        Ok(edges)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn arrays_of_a_pattern_are_taken_and_tell_its_edges(
            (rows, columns) in (1..40_usize, 1..40_usize),
            ends in prop::collection::vec(any::<[prop::sample::Index; 2]>(), 0..200),
        ) {
            let end = |at: usize, most| ends.iter().map(|ends| ends[at].index(most) as u32).collect::<Vec<_>>();
            let csr = Csr::rectangular_from_edges((rows, columns), &end(0, rows), &end(1, columns));
            let csr = csr.expect("a pattern");
            let made = Frdc::new(&csr).expect("room");
            let arrays = (made.offsets.clone(), made.columns.clone(), made.tiles.clone());
            let taken = Frdc::from_arrays((rows, columns), arrays.0, arrays.1, arrays.2);
            let taken = taken.expect("tiles");
            prop_assert_eq!((taken.edges(), taken.merged()), (made.edges(), 0));
            prop_assert_eq!(taken.to_csr(), made.to_csr());
            prop_assert_eq!(csr.repeated_edges(), made.merged());
            let mut walk = TileWalk::new((rows, columns), &made.offsets, made.tiles.len()).expect("offsets");
            let mut walked = Vec::new();
            for (&column, &bits) in made.columns.iter().zip(&made.tiles) {
                walked.extend(walk.edges(column, bits).expect("a tile"));
            }
            walked.sort_unstable();
            let mut once: Vec<_> = csr.iter().map(|(row, column)| [row, column]).collect();
            once.dedup();
            prop_assert_eq!(walked, once);
        }
    }

    #[test]
    fn arrays_that_are_no_pattern_are_refused() {
        // Five rows and nine columns: two rows of tiles, and three columns of them.
        let refused = |offsets: &[u32], columns: &[u32], tiles: &[u16]| {
            let arrays = (offsets.to_vec(), columns.to_vec(), tiles.to_vec());
            let refused = Frdc::from_arrays((5, 9), arrays.0, arrays.1, arrays.2);
            refused.expect_err("no pattern").to_string()
        };
        let (columns, tiles) = ([0, 2, 1], [1, 0x1111, 0xf]);
        let whole = Frdc::from_arrays((5, 9), vec![0, 2, 3], columns.into(), tiles.into());
        assert_eq!(whole.expect("a pattern").edges(), 9);
        for (offsets, words) in [
            (
                &[1, 2, 3][..],
                "tile_offsets[0] is 1, but offsets of rows of tiles start at 0",
            ),
            (
                &[0, 4, 3],
                "tile_offsets[2] is 3, but offsets of rows of tiles never decrease (the one before is 4)",
            ),
            (
                &[0, 2, 2],
                "tile_offsets[2] is 2, but offsets of rows of tiles end at the number of tiles, 3",
            ),
            (
                &[0, 3],
                "tile_offsets has 2 entries where 3 are wanted (one more than there are rows of tiles)",
            ),
        ] {
            assert_eq!(refused(offsets, &columns, &tiles), words);
        }
        let offsets = [0, 2, 3];
        for (columns, words) in [
            (
                &[0, 3, 1][..],
                "tile_columns[1] is 3, but columns of tiles are below 3, their number",
            ),
            (
                &[2, 2, 1],
                "tile_columns[1] is 2, but columns ascend within a row of tiles (the one before is 2)",
            ),
            (
                &[0, 2],
                "tile_columns has 2 entries where 3 are wanted (one for each tile)",
            ),
        ] {
            assert_eq!(refused(&offsets, columns, &tiles), words);
        }
        for (tiles, words) in [
            ([1, 0, 0xf], "tiles[1] is 0, but a tile has a bit at least"),
            // A column and a row past the last.
            (
                [1, 2, 0xf],
                "tiles[1] is 2, but no bit of a tile lies past the last of 5 rows and 9 columns",
            ),
            (
                [1, 0x1111, 0x10],
                "tiles[2] is 16, but no bit of a tile lies past the last of 5 rows and 9 columns",
            ),
        ] {
            assert_eq!(refused(&offsets, &columns, &tiles), words);
        }
        let many = Frdc::from_arrays((1 << 32, 1), vec![], vec![], vec![]);
        assert!(matches!(many, Err(GraphError::TooManyVertices { .. })));
    }

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
