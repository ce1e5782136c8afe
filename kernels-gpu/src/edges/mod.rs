//! Stage 1 of kernels whose warps work by themselves: a tile of edges goes to shared memory while the warp walks the one
//! before (GNNOne's stage 1, by `cp.async`).

use crate::device::async_copy::{commit, copy_4, copy_16, wait};
use crate::device::global::Global;
use crate::device::registers::recomputed;
use crate::device::shared::Shared;
use crate::device::warp::{lane_id, sync_warp, warp_id};
use halfgnn_contract::DevicePtr;
use halfgnn_contract::sddmm::{TILE_EDGES, WARPS_PER_CTA, shared, tiles};

/// The tiles of a warp, of which two are in shared memory: one that is walked, and one that arrives.
pub struct Tiles {
    /// The warp's shared memory.
    memory: Shared,
    rows: Global<u32>,
    columns: Global<u32>,
    edges: u32,
    /// Warps that share the tiles.
    warps: u32,
    /// The present tile.
    tile: u32,
    /// Where it lies.
    buffer: Shared,
    /// The other buffer, by its bits.
    other: u32,
}

impl Tiles {
    /// The tiles of warp `warp` of `warps`; the first is on its way. Warps take tiles in turn.
    ///
    /// # Safety
    /// The CTA has [`WARPS_PER_CTA`] warps and as many times [`shared::WARP_BYTES`] of shared memory. Both arrays are
    /// 16-byte aligned and `edges` long.
    #[inline(always)]
    pub unsafe fn new(
        rows: DevicePtr<u32>,
        columns: DevicePtr<u32>,
        edges: u32,
        warp: u32,
        warps: u32,
    ) -> Self {
        let memory = Shared::base().offset(warp_id() % WARPS_PER_CTA * shared::WARP_BYTES);
        let tiles = Self {
            memory,
            rows: Global::new(rows),
            columns: Global::new(columns),
            edges,
            warps,
            tile: warp,
            buffer: memory,
            other: shared::TILE,
        };
        // SAFETY: the caller's promise; nothing has touched the buffer.
        unsafe { tiles.fetch(warp, memory) };
        tiles
    }

    /// Waits for the present tile, and sends for the next. `false` after the last.
    ///
    /// # Safety
    /// All lanes of the warp make this call, and touch the buffer of the tile before no more.
    #[inline(always)]
    pub unsafe fn arrive(&self) -> bool {
        if self.tile >= tiles(self.edges) {
            return false;
        }
        wait::<0>();
        // SAFETY: `tile` is the same for all lanes. After the barrier all of them are done with the other buffer.
        unsafe {
            sync_warp();
            self.fetch(
                self.tile.saturating_add(self.warps),
                self.memory.offset(self.other),
            );
        }
        true
    }

    /// Goes on to the next tile.
    #[inline(always)]
    pub fn advance(&mut self) {
        self.tile = self.tile.saturating_add(self.warps);
        self.buffer = self.memory.offset(self.other);
        self.other ^= shared::TILE;
    }

    /// The first edge of the present tile.
    #[inline(always)]
    pub fn base(&self) -> u32 {
        self.tile * TILE_EDGES
    }

    /// Edges of the present tile.
    #[inline(always)]
    pub fn count(&self) -> u32 {
        (self.edges - self.base()).min(TILE_EDGES)
    }

    /// The rows of four edges of the tile; past its last edge, the row of that.
    ///
    /// # Safety
    /// `edge` is a multiple of 4 below [`TILE_EDGES`], after [`Tiles::arrive`].
    #[inline(always)]
    pub unsafe fn rows(&self, edge: u32) -> [u32; 4] {
        // SAFETY: the caller's promise; a whole tile was written.
        unsafe { self.buffer.offset(edge * 4).load_u32x4() }
    }

    /// The columns of four edges of the tile; past its last edge, the column of that.
    ///
    /// # Safety
    /// As [`Tiles::rows`].
    #[inline(always)]
    pub unsafe fn columns(&self, edge: u32) -> [u32; 4] {
        // SAFETY: the caller's promise; a whole tile was written.
        unsafe { self.buffer.offset(shared::ARRAY + edge * 4).load_u32x4() }
    }

    /// The word of the warp's results that belongs to an edge of the tile.
    #[inline(always)]
    pub fn result(&self, edge: u32) -> Shared {
        self.memory.offset(shared::RESULTS + edge * 4)
    }

    /// Sends for a tile, if there is such a one.
    ///
    /// # Safety
    /// No lane touches the buffer before the next [`Tiles::arrive`].
    #[inline(always)]
    unsafe fn fetch(&self, tile: u32, buffer: Shared) {
        if tile < tiles(self.edges) {
            // A tile begins below 2³², and so do its edges.
            let base = tile * TILE_EDGES;
            let count = self.edges - base;
            let edge = recomputed(lane_id() * 4);
            let (rows, columns) = (
                buffer.offset(edge * 4),
                buffer.offset(shared::ARRAY + edge * 4),
            );
            if edge + 4 <= count {
                let at = (base + edge) as u64;
                // SAFETY: four edges of the graph, from a multiple of 4 on, to words that are this lane's.
                unsafe {
                    copy_16(rows, self.rows.at(at).address(), true);
                    copy_16(columns, self.columns.at(at).address(), true);
                }
            } else {
                let mut i = recomputed(0);
                while i < 4 {
                    let at = (base + (edge + i).min(count - 1)) as u64;
                    // SAFETY: an edge of the graph, to a word that is this lane's.
                    unsafe {
                        copy_4(rows.offset(i * 4), self.rows.at(at).address());
                        copy_4(columns.offset(i * 4), self.columns.at(at).address());
                    }
                    i += 1;
                }
            }
        }
        commit();
    }
}
