//! Kernels that only stand beside others in a comparison. For benches and tests; not part of the library's interface.

use super::{Gpu, narrow, stride_vectors};
use crate::backend::Adjacency;
use crate::driver::{Driver, LaunchConfig};
use crate::error::Error;
use crate::tensor::{Array, Element, Matrix};
use half::f16;
use halfgnn_contract::peers::{self as contract, EdgeByEdgeParams, GatherParams};
use halfgnn_contract::{WARP, spmm};

/// Edges of a warp of [`Gpu::gather`] that are worth trying; the best is the speed of light.
pub const GATHER_EDGES_PER_WARP: [u32; 4] = [256, 512, 1024, 2048];

impl<D: Driver> Gpu<D> {
    /// Loads each edge's column and the row of `x` that it names, and does nothing with them. `sink`, of one word, is not
    /// written. `edges_per_warp` is one of [`GATHER_EDGES_PER_WARP`].
    ///
    /// # Errors
    /// [`Error::Shape`] where an operand does not fit, and those of the device.
    pub fn gather<E: Element>(
        &self,
        a: &Adjacency<Self>,
        x: &Matrix<Self, E>,
        edges_per_warp: u32,
        sink: &Array<Self, u32>,
    ) -> Result<(), Error> {
        const NAME: &str = "gather";
        Error::expect(NAME, "rows of x", a.columns(), x.rows())?;
        Error::expect(NAME, "sink", 1, sink.len())?;
        let smallest = WARP * contract::GATHER_IN_FLIGHT;
        if !edges_per_warp.is_multiple_of(smallest) || edges_per_warp == 0 {
            let reason = format!("{edges_per_warp} edges a warp are no multiple of {smallest}");
            return Err(Error::Unsupported {
                operator: NAME,
                reason,
            });
        }
        if x.columns() == 0 {
            return Ok(());
        }
        let edges = narrow(NAME, "edges", a.edges())?;
        let loads = stride_vectors(NAME, x)?;
        let params = GatherParams {
            columns: self.array(&a.column_ids)?,
            x: self.matrix(x)?,
            sink: self.array(sink)?,
            edges,
            stride: loads,
            loads,
            lanes_log2: spmm::lanes_log2(loads),
            edges_per_warp,
            reserved: 0,
        };
        let config = LaunchConfig {
            grid: [
                edges
                    .div_ceil(edges_per_warp)
                    .div_ceil(contract::GATHER_WARPS),
                spmm::feature_tiles(loads),
                1,
            ],
            block: [contract::GATHER_THREADS, 1, 1],
            shared_bytes: 0,
        };
        // SAFETY: `x` has a row for each column, and the graph's arrays were checked when it was made.
        unsafe {
            self.kernels
                .launch(&self.driver, contract::GATHER, config, &params)
        }
    }

    /// `e[k] = Σ_f u[row_k, f] · v[col_k, f]` in DGL's way: a warp an edge, scalar loads. `e` is as long as for
    /// [`crate::ops::sddmm`]; the end of its plane is not written.
    ///
    /// # Errors
    /// [`Error::Shape`] where an operand does not fit, and those of the device.
    pub fn sddmm_edge_by_edge(
        &self,
        a: &Adjacency<Self>,
        u: &Matrix<Self, f16>,
        v: &Matrix<Self, f16>,
        e: &mut Array<Self, f16>,
    ) -> Result<(), Error> {
        const NAME: &str = "sddmm_edge_by_edge";
        Error::expect(NAME, "rows of u", a.rows(), u.rows())?;
        Error::expect(NAME, "rows of v", a.columns(), v.rows())?;
        Error::expect(NAME, "columns of v", u.columns(), v.columns())?;
        let plane = crate::backend::edge_plane(a.edges());
        Error::expect(NAME, "edge values", plane, e.len())?;
        let edges = narrow(NAME, "edges", a.edges())?;
        let stride = narrow(NAME, "columns of u", u.stride())?;
        let params = EdgeByEdgeParams {
            rows: self.array(a.row_ids(self)?)?,
            columns: self.array(&a.column_ids)?,
            u: self.matrix(u)?,
            v: self.matrix(v)?,
            output: self.array(e)?,
            edges,
            features: narrow(NAME, "feature length", u.columns())?,
            u_stride: stride,
            v_stride: stride,
        };
        let config = LaunchConfig {
            grid: [edges.div_ceil(contract::EDGE_WARPS), 1, 1],
            block: [contract::EDGE_THREADS, 1, 1],
            shared_bytes: 0,
        };
        // SAFETY: the checks above, and the graph's arrays were checked when it was made.
        unsafe {
            self.kernels
                .launch(&self.driver, contract::EDGE_BY_EDGE, config, &params)
        }
    }
}
