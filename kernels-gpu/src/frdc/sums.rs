//! The sums of a row of tiles, a warp's (BitGNN, Algorithm 1).

use crate::bits::{Output, Place, transpose};
use crate::device::global::Global;
use crate::device::registers::unroll;
use crate::device::thread::block_idx_x;
use crate::device::warp::{ballot, lane_id, warp_id};
use halfgnn_contract::DevicePtr;
use halfgnn_contract::bits::{BspmmParams, WARPS_PER_CTA};
use halfgnn_contract::frdc::{FrdcParams, TILE, TILES_PER_TURN, trinary};

/// Rows of a tile.
const ROWS: usize = TILE as usize;

/// How a word of zeros and ones is multiplied with one of ±1.
pub trait Form {
    /// The sum of what `b` has where `a` has a bit.
    fn dot(a: u32, b: u32) -> i32;
}

/// A bit after the other.
pub struct IfElse;

impl Form for IfElse {
    #[inline(always)]
    fn dot(a: u32, b: u32) -> i32 {
        trinary::if_else(a, b)
    }
}

/// A count of each sign.
pub struct TwoCounts;

impl Form for TwoCounts {
    #[inline(always)]
    fn dot(a: u32, b: u32) -> i32 {
        trinary::two_counts(a, b)
    }
}

/// A count of one sign and of all.
pub struct OneCount;

impl Form for OneCount {
    #[inline(always)]
    fn dot(a: u32, b: u32) -> i32 {
        trinary::one_count(a, b)
    }
}

/// Where sums go, as they are told it who write them.
#[inline(always)]
fn target(params: &FrdcParams) -> BspmmParams {
    BspmmParams {
        columns: DevicePtr::NULL,
        starts: DevicePtr::NULL,
        filled_rows: DevicePtr::NULL,
        offsets: DevicePtr::NULL,
        empty_rows: DevicePtr::NULL,
        x: DevicePtr::NULL,
        y: params.y,
        row_scale: params.row_scale,
        staging: DevicePtr::NULL,
        codes: DevicePtr::NULL,
        edges: 0,
        ctas: 0,
        first_cta: 0,
        empty_count: 0,
        x_stride: params.x_stride,
        y_stride: params.y_stride,
        features: params.features,
        first_word: 0,
        words: params.x_stride,
        scale: params.scale,
        first_row: 0,
        rows: u32::MAX,
    }
}

/// # Safety
/// The launch contract of [`FrdcParams`]: `ctas` CTAs of `THREADS_PER_CTA` threads.
#[inline(always)]
pub unsafe fn run<O: Output<1>, F: Form>(params: &FrdcParams) {
    let tile_row = block_idx_x() * WARPS_PER_CTA + warp_id();
    if tile_row >= params.tile_rows {
        return;
    }
    let lane = lane_id();
    // Of a turn a lane has one neighbour: a column of one of the tiles.
    let (own_tile, own_column) = (lane / TILE, lane % TILE);
    let target = target(params);
    // SAFETY: the caller's promise: there is such a row of tiles, and its tiles have columns that are rows of `x` where they have a
    // bit. All lanes of the warp come to each vote and shuffle.
    unsafe {
        let offsets = Global::<u32>::new(params.tile_offsets).at(tile_row as u64);
        let (first, end) = (offsets.read(), offsets.at(1).read());
        let columns = Global::<u32>::new(params.tile_columns);
        let tiles = Global::<u16>::new(params.tiles);
        let x = Global::<u64>::new(params.x);
        let mut word = 0;
        while word < params.x_stride {
            let mut sums = [[[0; 2]]; ROWS];
            let mut degrees = [0; ROWS];
            let mut turn = first;
            while turn < end {
                let tile = turn + own_tile;
                let is_tile = tile < end;
                let bits = tiles.at(tile as u64).load_if(is_tile) as u32;
                let column = columns.at(tile as u64).load_if(is_tile) * TILE + own_column;
                // Columns past the last are no edges, and have no features.
                let is_column = is_tile && column < params.sources;
                let at = column as u64 * params.x_stride as u64 + word as u64;
                let of_column = Global::<[u32; 2]>::cast(x.at(at)).load_if(is_column);
                let [of_feature] = transpose([of_column]);
                unroll!(row in 0..ROWS => {
                    let own = bits >> (row as u32 * TILE + own_column);
                    let neighbors = ballot(own & 1 != 0);
                    degrees[row] += neighbors.count_ones();
                    unroll!(at in 0..2 => {
                        sums[row][0][at] += F::dot(neighbors, of_feature[at]);
                    });
                });
                turn += TILES_PER_TURN;
            }
            unroll!(row in 0..ROWS => {
                let place = Place {
                    row: tile_row * TILE + row as u32,
                    unit: word,
                };
                if place.row < params.rows {
                    if degrees[row] > 0 {
                        O::write(&target, place, sums[row]);
                    } else {
                        O::clear(&target, place);
                    }
                }
            });
            word += 1;
        }
    }
}
