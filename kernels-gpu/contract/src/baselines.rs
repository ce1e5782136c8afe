//! Kernels that only stand beside others in a comparison: the least that any kernel over edges must do, and the way of
//! another system.

use crate::format::table;
use crate::{DevicePtr, EntrySpec, HalfBits, WARP, param_struct};

/// Warps of a CTA of the gather.
pub const GATHER_WARPS: u32 = 4;

/// Edges whose rows a sub-warp of the gather has in flight at once.
pub const GATHER_IN_FLIGHT: u32 = 8;

/// Warps of a CTA, and so edges, of the SDDMM edge by edge.
pub const EDGE_WARPS: u32 = 8;

/// Threads of a CTA of the gather.
pub const GATHER_THREADS: u32 = WARP * GATHER_WARPS;

/// Threads of a CTA of the SDDMM edge by edge.
pub const EDGE_THREADS: u32 = WARP * EDGE_WARPS;

param_struct! {
    /// Parameters of the gathers: each edge's column and that vertex's row are loaded, a vector of 16 bytes a lane, or of 8, and
    /// nothing is done with them. CTAs in y take a tile of the row each.
    pub struct GatherParams {
        /// Column of each edge, below the rows of `x`; `edges` long, 16-byte aligned.
        pub columns: DevicePtr<u32>,
        /// Rows of vectors.
        pub x: DevicePtr<[u32; 4]>,
        /// A word that is written if the loads have a value that they do not have, so that they are not removed.
        pub sink: DevicePtr<u32>,
        /// Number of edges.
        pub edges: u32,
        /// Distance of two rows in vectors.
        pub stride: u32,
        /// Vectors of a row.
        pub loads: u32,
        /// Base-2 logarithm of the lanes of a sub-warp.
        pub lanes_log2: u32,
        /// Edges of a warp: its sub-warps have equal shares of a multiple of [`GATHER_IN_FLIGHT`] each.
        pub edges_per_warp: u32,
        /// Zero.
        pub reserved: u32,
    }
}

param_struct! {
    /// Parameters of an SDDMM in DGL's way: a warp an edge, scalar loads, no row's features used twice.
    pub struct EdgeByEdgeParams {
        /// Row of each edge; `edges` long.
        pub rows: DevicePtr<u32>,
        /// Column of each edge; `edges` long.
        pub columns: DevicePtr<u32>,
        /// Features of the rows.
        pub u: DevicePtr<HalfBits>,
        /// Features of the columns.
        pub v: DevicePtr<HalfBits>,
        /// Output; `edges` long.
        pub output: DevicePtr<HalfBits>,
        /// Number of edges.
        pub edges: u32,
        /// Feature length.
        pub features: u32,
        /// Distance of two rows of `u` in elements.
        pub u_stride: u32,
        /// Distance of two rows of `v` in elements.
        pub v_stride: u32,
    }
}

/// Name of the gather of vectors of 16 bytes.
pub const GATHER: &str = "gather_half8";

/// Name of the gather of vectors of 8 bytes.
pub const GATHER_8_BYTES: &str = "gather_8_bytes";

/// Name of the SDDMM in DGL's way.
pub const EDGE_BY_EDGE: &str = "sddmm_dgl_half";

/// Calls `$with!` with the entries of this family: see [`crate::format`].
#[macro_export]
macro_rules! baselines_entries {
    ($with:ident) => {
        $with! {
            formats {
            }
            plain {
                /// Gathers a row of 16-byte vectors for each edge.
                gather_half8(GatherParams);
                /// Gathers a row of 8-byte vectors for each edge.
                gather_8_bytes(GatherParams);
                /// SDDMM with a warp for each edge.
                sddmm_dgl_half(EdgeByEdgeParams);
            }
        }
    };
}

/// The entries of this family.
pub const ENTRIES: &[&[EntrySpec]] = &[baselines_entries!(table)];
