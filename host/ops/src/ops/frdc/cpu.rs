//! Graphs of tiles, a row of tiles at a time.

use super::{FrdcOperands, FrdcOperators, FrdcSignsOperands, TiledAdjacency, Trinary};
use crate::backend::cpu::Cpu;
use crate::backend::cpu::view::{read, view_mut};
use crate::error::Error;
use crate::ops::bits::cpu::{write_signs, write_sums};
use crate::ops::{BitMatrix, Checked};
use crate::tensor::Element;
use halfgnn_contract::frdc::{TILE, TILES_PER_TURN};
use halfgnn_graph::parallel::{self, Items};

const ROWS: usize = TILE as usize;

/// The sums of the neighbours of each row: `write` gets a row and a number a column, of none where it has no
/// neighbours. As the kernel does it: of eight tiles at a time the edges of a row are one word, and so are the signs of
/// a column.
fn for_sums<T: Send>(
    a: &TiledAdjacency<Cpu>,
    x: &BitMatrix<Cpu>,
    trinary: Trinary,
    (rows, stride): (&mut [T], usize),
    write: impl Fn(usize, Option<&[i32]>, &mut [T]) + Sync,
) {
    let (offsets, columns) = (a.offsets.buffer.read(), a.columns.buffer.read());
    let (tiles, words) = (a.tiles.buffer.read(), x.words.buffer.read());
    let (offsets, columns): (&[u32], &[u32]) = (&offsets, &columns);
    let (tiles, words): (&[u16], &[u64]) = (&tiles, &words);
    let dot = trinary.dot();
    let features = x.columns();
    let tile_rows = parallel::chunks_mut(rows, ROWS * stride);
    parallel::pieces(tile_rows, 1, &|first, tile_rows| {
        let mut sums = vec![0_i32; ROWS * features];
        for (tile_row, out) in (first..).zip(tile_rows.each()) {
            sums.fill(0);
            let mut degrees = [0; ROWS];
            let all = offsets[tile_row] as usize..offsets[tile_row + 1] as usize;
            for turn in all.clone().step_by(TILES_PER_TURN as usize) {
                let turn = turn..all.end.min(turn + TILES_PER_TURN as usize);
                // Bit `4·tile + column` of each row of the turn's tiles.
                let mut edges = [0_u32; ROWS];
                for (at, tile) in turn.clone().enumerate() {
                    for (row, edges) in edges.iter_mut().enumerate() {
                        let bits = u32::from(tiles[tile] >> (ROWS * row) & 0xf);
                        *edges |= bits << (ROWS * at);
                    }
                }
                for (degree, edges) in degrees.iter_mut().zip(edges) {
                    *degree += edges.count_ones();
                }
                for feature in 0..features {
                    let mut signs = 0;
                    for (at, tile) in turn.clone().enumerate() {
                        let of_tile = columns[tile] as usize * ROWS;
                        for column in of_tile..a.columns().min(of_tile + ROWS) {
                            let word = words[column * x.stride() + feature / 64];
                            let bit = (word >> (feature % 64) & 1) as u32;
                            signs |= bit << (ROWS * at + column % ROWS);
                        }
                    }
                    for (row, &edges) in edges.iter().enumerate() {
                        sums[row * features + feature] += dot(edges, signs);
                    }
                }
            }
            for (at, out) in out.chunks_mut(stride).enumerate() {
                let sums = &sums[at * features..][..features];
                let sums = (degrees[at] > 0).then_some(sums);
                write(tile_row * ROWS + at, sums, out);
            }
        }
    });
}

impl FrdcOperators for Cpu {
    fn frdc_bspmm<E: Element>(
        &self,
        operands: Checked<FrdcOperands<'_, Self, E>>,
    ) -> Result<(), Error> {
        let of = operands.into_inner();
        let row_scale = read(of.row_scale);
        let y = view_mut(of.y);
        let rows = (y.values, y.stride);
        for_sums(of.a, of.x, of.trinary, rows, |row, sums, out| {
            let row_factor = row_scale.as_ref().map_or(1.0, |factors| factors[row]);
            write_sums(sums, of.scale * row_factor, out);
        });
        Ok(())
    }

    fn frdc_bspmm_signs(
        &self,
        operands: Checked<FrdcSignsOperands<'_, Self>>,
    ) -> Result<(), Error> {
        let FrdcSignsOperands { a, x, trinary, y } = operands.into_inner();
        let (columns, stride) = (y.columns(), y.stride());
        let rows = (y.words.buffer.get_mut(), stride);
        for_sums(a, x, trinary, rows, |_, sums, out| {
            write_signs(sums, columns, out);
        });
        Ok(())
    }
}
