//! Launches of kernels that walk the edges of a graph (`halfgnn_contract::edge_walk`).

use super::{Gpu, Lease, entry, narrow};
use crate::backend::Adjacency;
use crate::driver::{Driver, LaunchConfig};
use crate::error::Error;
use crate::tensor::{Element, Matrix};
use halfgnn_contract::edge_walk::{
    self as contract, EdgeWalk, HeadLanes, THREADS_PER_CTA, WARPS_PER_CTA,
};
use halfgnn_contract::{DevicePtr, Param};

/// The rows that a walk sums.
pub(crate) struct WalkedRows {
    pub operator: &'static str,
    pub heads: usize,
    /// 16-byte vectors of a head.
    pub head_vectors: usize,
    /// Those of a row, of which the last head may have fewer.
    pub row_vectors: usize,
    /// Distance of two rows in 16-byte vectors.
    pub stride: u32,
    /// Columns of all heads.
    pub features: usize,
    /// Vectors of a head that one lane has at most.
    pub lane_vectors: u32,
}

/// A walk that is ready to be launched.
pub(crate) struct Walk<'a, D: Driver> {
    pub params: EdgeWalk,
    /// Where parts of rows lie until the follow-up.
    _staging: Lease<'a, D>,
}

/// That rows of all matrices lie `stride` elements apart, as a walk reads them.
///
/// # Errors
/// [`Error::Shape`] with the first that differs.
pub(crate) fn expect_stride<'a, D: Driver, E: Element>(
    operator: &'static str,
    stride: usize,
    matrices: impl IntoIterator<Item = &'a Matrix<Gpu<D>, E>>,
) -> Result<(), Error> {
    let mut matrices = matrices.into_iter();
    matrices
        .try_for_each(|matrix| Error::expect(operator, "distance of rows", stride, matrix.stride()))
}

impl<D: Driver> Gpu<D> {
    /// The walk of a pass over the edges of `a`, a lane of which has `floats` floats of a row's sums.
    ///
    /// # Errors
    /// Those of the index and of the staging buffer.
    pub(crate) fn edge_walk(
        &self,
        a: &Adjacency<Self>,
        rows: &WalkedRows,
        floats: u32,
    ) -> Result<Walk<'_, D>, Error> {
        let name = rows.operator;
        let index = a.index(self)?;
        let edges = narrow(name, "edges", a.edges())?;
        let lanes = HeadLanes::new(
            narrow(name, "heads", rows.heads)?,
            narrow(name, "columns", rows.head_vectors)?,
            rows.stride,
            rows.lane_vectors,
        );
        let chunk_log2 = contract::chunk_log2(edges, self.driver().info().multiprocessors);
        let chunks = contract::chunks(edges, chunk_log2);
        let staging = self.lend(contract::staging_floats(chunks, &lanes, floats))?;
        let params = EdgeWalk {
            columns: self.array(&a.column_ids)?,
            offsets: self.array(a.offsets(self)?)?,
            starts: self.array(&index.starts)?,
            filled_rows: self.array(&index.filled_rows)?,
            empty_rows: self.array(&index.empty_rows)?,
            staging: DevicePtr::new(staging.address()),
            edges,
            empty_count: narrow(name, "rows without edges", index.empty_rows.len())?,
            chunk_log2,
            ctas: chunks.div_ceil(WARPS_PER_CTA),
            lanes,
            features: narrow(name, "columns", rows.features)?,
            row_vectors: narrow(name, "columns", rows.row_vectors)?,
        };
        Ok(Walk {
            params,
            _staging: staging,
        })
    }
}

impl<D: Driver> Walk<'_, D> {
    /// Launches the walk, with `shared_bytes` of shared memory, and the follow-up of its rows of several chunks.
    ///
    /// # Errors
    /// Those of the launch.
    ///
    /// # Safety
    /// `params` are those of both entries and hold the walk's. Every matrix in them fits the graph, whose arrays
    /// were checked when it was made. The staging buffer has the floats that the pass stages.
    pub unsafe fn launch<E: Element, P: Param>(
        &self,
        gpu: &Gpu<D>,
        [first, second]: [&'static str; 2],
        shared_bytes: u32,
        params: &P,
    ) -> Result<(), Error> {
        let walk = &self.params;
        let config = |ctas, shared_bytes| LaunchConfig {
            grid: [ctas, walk.lanes.tiles, 1],
            block: [THREADS_PER_CTA, 1, 1],
            shared_bytes,
        };
        let clearing = walk.empty_count.div_ceil(contract::EMPTY_ROWS_PER_CTA);
        // SAFETY: the caller's promise.
        unsafe {
            gpu.launch(
                entry::<E>(first)?,
                config(walk.ctas + clearing, shared_bytes),
                params,
            )?;
            // Rows of one chunk leave nothing to complete.
            if contract::chunks(walk.edges, walk.chunk_log2) > 1 {
                gpu.launch(entry::<E>(second)?, config(walk.ctas, 0), params)?;
            }
        }
        Ok(())
    }
}
