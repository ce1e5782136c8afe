//! Kernels that are there for comparisons alone.

use super::EdgeIds;
use bytemuck::Pod;
use half::f16;
use halfgnn::Error;
use halfgnn::backend::gpu::Gpu;
use halfgnn::driver::{Driver, LaunchConfig};
use halfgnn::ops::{BitMatrix, QuantizedMatrix, edge_plane};
use halfgnn::tensor::{Array, Element, Matrix, padded};
use halfgnn_contract::baselines::{self as contract, EdgeByEdgeParams, GatherParams};
use halfgnn_contract::{DevicePtr, WARP, spmm};

/// Edges of a warp of [`gather`] that are worth trying; the best is the speed of light.
pub const GATHER_EDGES_PER_WARP: [u32; 4] = [256, 512, 1024, 2048];

/// Rows that are gathered.
#[derive(Clone, Copy, Debug)]
pub struct GatheredRows {
    x: DevicePtr<[u32; 4]>,
    rows: usize,
    /// Vectors of a row, one after the other.
    loads: u32,
    /// Vectors from one row to the next.
    stride: u32,
    entry: &'static str,
}

impl GatheredRows {
    /// The rows of a matrix, vectors of 16 bytes.
    ///
    /// # Errors
    /// Those of the device.
    pub fn of_matrix<D: Driver, E: Element>(
        gpu: &Gpu<D>,
        x: &Matrix<Gpu<D>, E>,
    ) -> Result<Self, Error> {
        Ok(Self {
            x: gpu.strided_address_of(x).map(DevicePtr::new)?,
            rows: x.rows(),
            loads: narrow(GATHER, "columns of x", padded::<E>(x.columns()) / E::LANES)?,
            stride: narrow(GATHER, "stride of x", x.stride() / E::LANES)?,
            entry: contract::GATHER,
        })
    }

    /// The rows of a matrix of bits: vectors of 8 bytes where they have no more.
    ///
    /// # Errors
    /// Those of the device.
    pub fn of_bits<D: Driver>(gpu: &Gpu<D>, x: &BitMatrix<Gpu<D>>) -> Result<Self, Error> {
        let (words, entry) = match x.stride() {
            1 => (1, contract::GATHER_8_BYTES),
            _ => (2, contract::GATHER),
        };
        let loads = narrow(GATHER, "columns of x", x.stride() / words)?;
        Ok(Self {
            x: gpu.address_of_bits(x).map(DevicePtr::new)?,
            rows: x.rows(),
            loads,
            stride: loads,
            entry,
        })
    }

    /// The rows of a matrix of 8-bit values: as vectors of 16 bytes, and as vectors of 8.
    ///
    /// # Errors
    /// Those of the device.
    pub fn of_codes<D: Driver>(
        gpu: &Gpu<D>,
        x: &QuantizedMatrix<Gpu<D>>,
    ) -> Result<[Self; 2], Error> {
        let address = gpu.address_of_codes(x).map(DevicePtr::new)?;
        let of = |bytes: usize, entry| -> Result<Self, Error> {
            let loads = narrow(GATHER, "columns of x", x.stride() / bytes)?;
            Ok(Self {
                x: address,
                rows: x.rows(),
                loads,
                stride: loads,
                entry,
            })
        };
        Ok([of(16, contract::GATHER)?, of(8, contract::GATHER_8_BYTES)?])
    }
}

const GATHER: &str = "gather";

/// Loads each edge's column and the row of `x` that it names, and does nothing with them. `sink`, of one word, is not
/// written. `edges_per_warp` is one of [`GATHER_EDGES_PER_WARP`].
///
/// # Errors
/// [`Error::Shape`] where an operand does not fit, and those of the device.
pub fn gather<D: Driver>(
    gpu: &Gpu<D>,
    a: &EdgeIds<D>,
    x: GatheredRows,
    edges_per_warp: u32,
    sink: &Array<Gpu<D>, u32>,
) -> Result<(), Error> {
    Error::expect(GATHER, "rows of x", a.shape.1, x.rows)?;
    Error::expect(GATHER, "sink", 1, sink.len())?;
    let smallest = WARP * contract::GATHER_IN_FLIGHT;
    if !edges_per_warp.is_multiple_of(smallest) || edges_per_warp == 0 {
        let reason = format!("{edges_per_warp} edges a warp are no multiple of {smallest}");
        return Err(Error::Unsupported {
            operator: GATHER,
            reason,
        });
    }
    let loads = x.loads;
    if loads == 0 {
        return Ok(());
    }
    let edges = narrow(GATHER, "edges", a.columns.len())?;
    let params = GatherParams {
        columns: array(gpu, &a.columns)?,
        x: x.x,
        sink: array(gpu, sink)?,
        edges,
        stride: x.stride,
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
    unsafe { gpu.launch(x.entry, config, &params) }
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
