//! Kernels that only stand beside others in a comparison.

use super::EdgeIds;
use bytemuck::Pod;
use half::f16;
use halfgnn::Error;
use halfgnn::backend::gpu::Gpu;
use halfgnn::driver::{Driver, LaunchConfig};
use halfgnn::ops::edge_plane;
use halfgnn::tensor::{Array, Element, Matrix};
use halfgnn_contract::baselines::{self as contract, EdgeByEdgeParams, GatherParams};
use halfgnn_contract::{DevicePtr, WARP, spmm};

/// Edges of a warp of [`gather`] that are worth trying; the best is the speed of light.
pub const GATHER_EDGES_PER_WARP: [u32; 4] = [256, 512, 1024, 2048];

/// Loads each edge's column and the row of `x` that it names, and does nothing with them. `sink`, of one word, is not
/// written. `edges_per_warp` is one of [`GATHER_EDGES_PER_WARP`].
///
/// # Errors
/// [`Error::Shape`] where an operand does not fit, and those of the device.
pub fn gather<D: Driver, E: Element>(
    gpu: &Gpu<D>,
    a: &EdgeIds<D>,
    x: &Matrix<Gpu<D>, E>,
    edges_per_warp: u32,
    sink: &Array<Gpu<D>, u32>,
) -> Result<(), Error> {
    const NAME: &str = "gather";
    Error::expect(NAME, "rows of x", a.shape.1, x.rows())?;
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
    let edges = narrow(NAME, "edges", a.columns.len())?;
    let loads = narrow(NAME, "columns of x", x.stride() / E::LANES)?;
    let params = GatherParams {
        columns: array(gpu, &a.columns)?,
        x: matrix(gpu, x)?,
        sink: array(gpu, sink)?,
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
    // SAFETY: `x` has a row for each column, and the ids are those of a graph.
    unsafe { gpu.launch(contract::GATHER, config, &params) }
}

/// `e[k] = Σ_f u[row_k, f] · v[col_k, f]` in DGL's way: a warp an edge, scalar loads. `e` is as long as for
/// [`halfgnn::ops::sddmm`]; the end of its plane is not written.
///
/// # Errors
/// [`Error::Shape`] where an operand does not fit, and those of the device.
pub fn sddmm_edge_by_edge<D: Driver>(
    gpu: &Gpu<D>,
    a: &EdgeIds<D>,
    u: &Matrix<Gpu<D>, f16>,
    v: &Matrix<Gpu<D>, f16>,
    e: &mut Array<Gpu<D>, f16>,
) -> Result<(), Error> {
    const NAME: &str = "sddmm_edge_by_edge";
    Error::expect(NAME, "rows of u", a.shape.0, u.rows())?;
    Error::expect(NAME, "rows of v", a.shape.1, v.rows())?;
    Error::expect(NAME, "columns of v", u.columns(), v.columns())?;
    let plane = edge_plane(a.columns.len());
    Error::expect(NAME, "edge values", plane, e.len())?;
    let edges = narrow(NAME, "edges", a.columns.len())?;
    let stride = narrow(NAME, "columns of u", u.stride())?;
    let params = EdgeByEdgeParams {
        rows: array(gpu, &a.rows)?,
        columns: array(gpu, &a.columns)?,
        u: matrix(gpu, u)?,
        v: matrix(gpu, v)?,
        output: array(gpu, e)?,
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
    // SAFETY: the checks above, and the ids are those of a graph.
    unsafe { gpu.launch(contract::EDGE_BY_EDGE, config, &params) }
}
/// Address of a matrix, whatever its elements.
fn matrix<D: Driver, E: Element, T>(
    gpu: &Gpu<D>,
    matrix: &Matrix<Gpu<D>, E>,
) -> Result<DevicePtr<T>, Error> {
    gpu.address_of(matrix).map(DevicePtr::new)
}

/// Address of an array.
fn array<D: Driver, T: Pod + Send + Sync, U>(
    gpu: &Gpu<D>,
    array: &Array<Gpu<D>, T>,
) -> Result<DevicePtr<U>, Error> {
    gpu.address_of_array(array).map(DevicePtr::new)
}

/// A size as kernels count it.
fn narrow(operator: &'static str, what: &'static str, value: usize) -> Result<u32, Error> {
    u32::try_from(value).map_err(|_| Error::Unsupported {
        operator,
        reason: format!("{what}: {value} is more than 2^32 - 1"),
    })
}
