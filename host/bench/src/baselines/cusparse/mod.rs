//! cuSPARSE's SpMM, SpMV and SDDMM on a graph and matrices of this crate, with half or float in memory and float sums.

mod ffi;

pub use ffi::LIBRARY_VARIABLE;

use super::EdgeIds;
use bytemuck::Pod;
use ffi::{Descriptor, Functions, Handle};
use halfgnn::Error;
use halfgnn::backend::MemoryKind;
use halfgnn::backend::gpu::Gpu;
use halfgnn::driver::cuda::Cuda;
use halfgnn::graph::Csr;
use halfgnn::tensor::{Array, Element, Matrix, Precision};
use std::ffi::{c_int, c_void};
use std::fmt;
use std::ptr;
use std::sync::{Arc, Mutex, PoisonError};

/// The library, bound to the stream of a backend.
#[derive(Debug)]
pub struct Cusparse {
    session: Arc<Session>,
    version: i32,
}

/// A handle of the library's, and what must outlive it.
struct Session {
    functions: Functions,
    handle: Mutex<Handle>,
    /// Keeps the context and the stream of the handle.
    driver: Cuda,
}

// SAFETY: a handle may be used from any thread, though not from two at a time: it lies behind a lock.
unsafe impl Send for Session {}
// SAFETY: as above.
unsafe impl Sync for Session {}

impl fmt::Debug for Session {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.functions.fmt(f)
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        // A failure leaves a handle behind, which cannot be reported.
        if self.driver.make_current().is_ok() {
            // SAFETY: every call holds the session, so none is left that could use the handle.
            unsafe {
                (self.functions.destroy)(
                    *self
                        .handle
                        .get_mut()
                        .unwrap_or_else(PoisonError::into_inner),
                )
            };
        }
    }
}

/// The algorithms of cuSPARSE's SpMM that take row-major matrices.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Algorithm {
    /// `CUSPARSE_SPMM_CSR_ALG1`
    Csr1,
    /// `CUSPARSE_SPMM_CSR_ALG2`
    Csr2,
    /// `CUSPARSE_SPMM_CSR_ALG3`
    Csr3,
    /// `CUSPARSE_SPMM_COO_ALG1`
    Coo1,
    /// `CUSPARSE_SPMM_COO_ALG2`
    Coo2,
    /// `CUSPARSE_SPMM_COO_ALG3`
    Coo3,
    /// `CUSPARSE_SPMM_COO_ALG4`
    Coo4,
}

impl Algorithm {
    /// Every algorithm.
    pub const ALL: [Algorithm; 7] = [
        Algorithm::Csr1,
        Algorithm::Csr2,
        Algorithm::Csr3,
        Algorithm::Coo1,
        Algorithm::Coo2,
        Algorithm::Coo3,
        Algorithm::Coo4,
    ];

    /// What the library's documentation calls it, in short.
    pub fn name(self) -> &'static str {
        match self {
            Algorithm::Csr1 => "CSR_ALG1",
            Algorithm::Csr2 => "CSR_ALG2",
            Algorithm::Csr3 => "CSR_ALG3",
            Algorithm::Coo1 => "COO_ALG1",
            Algorithm::Coo2 => "COO_ALG2",
            Algorithm::Coo3 => "COO_ALG3",
            Algorithm::Coo4 => "COO_ALG4",
        }
    }

    /// The value of `cusparseSpMMAlg_t`.
    fn code(self) -> c_int {
        match self {
            Algorithm::Coo1 => 1,
            Algorithm::Coo2 => 2,
            Algorithm::Coo3 => 3,
            Algorithm::Csr1 => 4,
            Algorithm::Coo4 => 5,
            Algorithm::Csr2 => 6,
            Algorithm::Csr3 => 12,
        }
    }

    fn is_coo(self) -> bool {
        matches!(
            self,
            Algorithm::Coo1 | Algorithm::Coo2 | Algorithm::Coo3 | Algorithm::Coo4
        )
    }
}

/// The algorithms of cuSPARSE's SpMV.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SpmvAlgorithm {
    /// `CUSPARSE_SPMV_CSR_ALG1`
    Csr1,
    /// `CUSPARSE_SPMV_CSR_ALG2`
    Csr2,
    /// `CUSPARSE_SPMV_COO_ALG1`
    Coo1,
    /// `CUSPARSE_SPMV_COO_ALG2`
    Coo2,
}

impl SpmvAlgorithm {
    /// Every algorithm.
    pub const ALL: [SpmvAlgorithm; 4] = [
        SpmvAlgorithm::Csr1,
        SpmvAlgorithm::Csr2,
        SpmvAlgorithm::Coo1,
        SpmvAlgorithm::Coo2,
    ];

    /// What the library's documentation calls it, in short.
    pub fn name(self) -> &'static str {
        match self {
            SpmvAlgorithm::Csr1 => "CSR_ALG1",
            SpmvAlgorithm::Csr2 => "CSR_ALG2",
            SpmvAlgorithm::Coo1 => "COO_ALG1",
            SpmvAlgorithm::Coo2 => "COO_ALG2",
        }
    }

    /// The value of `cusparseSpMVAlg_t`.
    fn code(self) -> c_int {
        match self {
            SpmvAlgorithm::Coo1 => 1,
            SpmvAlgorithm::Csr1 => 2,
            SpmvAlgorithm::Csr2 => 3,
            SpmvAlgorithm::Coo2 => 4,
        }
    }

    fn is_coo(self) -> bool {
        matches!(self, SpmvAlgorithm::Coo1 | SpmvAlgorithm::Coo2)
    }
}

/// A graph as cuSPARSE reads it: ids of rows and columns, 32-bit offsets, and a value an edge.
#[derive(Debug)]
pub struct SparseMatrix<E: Element> {
    ids: EdgeIds<Cuda>,
    offsets: Array<Gpu<Cuda>, u32>,
    values: Array<Gpu<Cuda>, E>,
}

impl<E: Element> SparseMatrix<E> {
    /// `graph`, with the value 1 on each edge.
    ///
    /// # Errors
    /// [`Error::Unsupported`] for more than 2³¹ − 1 edges, [`Error::Driver`] where there is not enough memory.
    pub fn new(gpu: &Gpu<Cuda>, graph: &Csr) -> Result<Self, Error> {
        if i32::try_from(graph.edges()).is_err() {
            return Err(Error::Unsupported {
                operator: "cuSPARSE",
                reason: format!(
                    "{} edges are more than 2^31 - 1, its 32-bit indices",
                    graph.edges()
                ),
            });
        }
        let offsets: Vec<u32> = graph.offsets().iter().map(|&k| k as u32).collect();
        Ok(Self {
            ids: EdgeIds::new(gpu, graph)?,
            offsets: Array::from_slice(gpu, &offsets, MemoryKind::Graph)?,
            values: Array::from_slice(
                gpu,
                &vec![E::from_f32(1.0); graph.edges()],
                MemoryKind::Features,
            )?,
        })
    }

    /// The values, which an SDDMM writes.
    pub fn values(&self) -> &Array<Gpu<Cuda>, E> {
        &self.values
    }
}

/// A call that is ready to be made: descriptors and workspace are there, preprocessing is done.
#[derive(Debug)]
pub struct Call<'a> {
    session: Arc<Session>,
    kind: Kind,
    sparse: Descriptor,
    dense: [Descriptor; 2],
    workspace: Array<Gpu<Cuda>, u8>,
    operands: std::marker::PhantomData<&'a ()>,
}

#[derive(Clone, Copy, Debug)]
enum Kind {
    Spmm(Algorithm),
    Spmv(SpmvAlgorithm),
    Sddmm,
}

impl Cusparse {
    /// Opens the library for work on the stream of `gpu`.
    ///
    /// # Errors
    /// [`Error::Driver`] where it is not installed, with each place that was tried, or does not start.
    pub fn open(gpu: &Gpu<Cuda>) -> Result<Self, Error> {
        let functions = Functions::open()?;
        let driver = gpu.driver().clone();
        driver.make_current()?;
        let mut handle = ptr::null_mut();
        // SAFETY: writes one handle; the GPU's primary context is current.
        functions.check("cusparseCreate", unsafe { (functions.create)(&mut handle) })?;
        let session = Session {
            functions,
            handle: Mutex::new(handle),
            driver,
        };
        let functions = &session.functions;
        let mut version = 0;
        // SAFETY: the handle is live, and its stream lives as long as the driver next to it.
        unsafe {
            functions.check(
                "cusparseSetStream",
                (functions.set_stream)(handle, session.driver.raw_stream()),
            )?;
            functions.check(
                "cusparseGetVersion",
                (functions.version)(handle, &mut version),
            )?;
        }
        Ok(Self {
            session: Arc::new(session),
            version,
        })
    }

    /// The library's version, such as 12.6.3.
    pub fn version(&self) -> String {
        let version = self.version;
        format!(
            "{}.{}.{}",
            version / 1000,
            version / 100 % 10,
            version % 100
        )
    }

    /// `y = A x` by one algorithm.
    ///
    /// # Errors
    /// [`Error::Shape`] where the operands do not fit, [`Error::Driver`] where the library does not take them.
    pub fn spmm<'a, E: Element>(
        &self,
        gpu: &Gpu<Cuda>,
        a: &'a SparseMatrix<E>,
        x: &'a Matrix<Gpu<Cuda>, E>,
        y: &'a mut Matrix<Gpu<Cuda>, E>,
        algorithm: Algorithm,
    ) -> Result<Call<'a>, Error> {
        let (rows, columns) = a.ids.shape;
        Error::expect("cusparseSpMM", "rows of x", columns, x.rows())?;
        Error::expect("cusparseSpMM", "rows of y", rows, y.rows())?;
        Error::expect("cusparseSpMM", "columns of y", x.columns(), y.columns())?;
        let sparse = self.sparse(a, algorithm.is_coo())?;
        let dense = [(x, ffi::ORDER_ROW), (&*y, ffi::ORDER_ROW)];
        self.prepare(gpu, Kind::Spmm(algorithm), sparse, dense)
    }

    /// `values[k] = u[row k] · v[column k]` for each edge of `a`.
    ///
    /// # Errors
    /// [`Error::Shape`] where the operands do not fit, [`Error::Driver`] where the library does not take them.
    pub fn sddmm<'a, E: Element>(
        &self,
        gpu: &Gpu<Cuda>,
        a: &'a SparseMatrix<E>,
        u: &'a Matrix<Gpu<Cuda>, E>,
        v: &'a Matrix<Gpu<Cuda>, E>,
    ) -> Result<Call<'a>, Error> {
        let (rows, columns) = a.ids.shape;
        Error::expect("cusparseSDDMM", "rows of u", rows, u.rows())?;
        Error::expect("cusparseSDDMM", "rows of v", columns, v.rows())?;
        Error::expect("cusparseSDDMM", "columns of v", u.columns(), v.columns())?;
        let sparse = self.sparse(a, false)?;
        // `v` transposed: its rows as the columns of a column-major matrix.
        self.prepare(
            gpu,
            Kind::Sddmm,
            sparse,
            [(u, ffi::ORDER_ROW), (v, ffi::ORDER_COLUMN)],
        )
    }

    /// `y = A x` of vectors by one algorithm.
    ///
    /// # Errors
    /// [`Error::Shape`] where the operands do not fit, [`Error::Driver`] where the library does not take them.
    pub fn spmv<'a, E: Element>(
        &self,
        gpu: &Gpu<Cuda>,
        a: &'a SparseMatrix<E>,
        x: &'a Array<Gpu<Cuda>, E>,
        y: &'a mut Array<Gpu<Cuda>, E>,
        algorithm: SpmvAlgorithm,
    ) -> Result<Call<'a>, Error> {
        let (rows, columns) = a.ids.shape;
        Error::expect("cusparseSpMV", "elements of x", columns, x.len())?;
        Error::expect("cusparseSpMV", "elements of y", rows, y.len())?;
        let sparse = self.sparse(a, algorithm.is_coo())?;
        self.session.driver.make_current()?;
        let functions = &self.session.functions;
        let mut call = self.call(gpu, Kind::Spmv(algorithm), sparse)?;
        for (descriptor, vector) in call.dense.iter_mut().zip([x, &*y]) {
            // SAFETY: the descriptor only notes the address, of a vector of this length, which the call borrows.
            functions.check("cusparseCreateDnVec", unsafe {
                (functions.create_vector)(
                    descriptor,
                    vector.len() as i64,
                    address(vector),
                    value_type::<E>(),
                )
            })?;
        }
        call.made_ready(gpu)
    }

    fn sparse<E: Element>(&self, a: &SparseMatrix<E>, coo: bool) -> Result<Descriptor, Error> {
        let functions = &self.session.functions;
        let (height, width) = (a.ids.shape.0 as i64, a.ids.shape.1 as i64);
        let edges = a.ids.columns.len() as i64;
        let [rows, columns, offsets] = [&a.ids.rows, &a.ids.columns, &a.offsets].map(address);
        let values = address(&a.values);
        let mut sparse = ptr::null_mut();
        // SAFETY: the descriptor only notes the addresses, of arrays of the given length, which the call borrows.
        unsafe {
            if coo {
                functions.check(
                    "cusparseCreateCoo",
                    (functions.create_coo)(
                        &mut sparse,
                        height,
                        width,
                        edges,
                        rows,
                        columns,
                        values,
                        ffi::INDEX_32I,
                        ffi::BASE_ZERO,
                        value_type::<E>(),
                    ),
                )?;
            } else {
                functions.check(
                    "cusparseCreateCsr",
                    (functions.create_csr)(
                        &mut sparse,
                        height,
                        width,
                        edges,
                        offsets,
                        columns,
                        values,
                        ffi::INDEX_32I,
                        ffi::INDEX_32I,
                        ffi::BASE_ZERO,
                        value_type::<E>(),
                    ),
                )?;
            }
        }
        Ok(sparse)
    }

    fn prepare<'a, E: Element>(
        &self,
        gpu: &Gpu<Cuda>,
        kind: Kind,
        sparse: Descriptor,
        dense: [(&'a Matrix<Gpu<Cuda>, E>, c_int); 2],
    ) -> Result<Call<'a>, Error> {
        self.session.driver.make_current()?;
        let functions = &self.session.functions;
        let mut call = self.call(gpu, kind, sparse)?;
        for (descriptor, (matrix, order)) in call.dense.iter_mut().zip(dense) {
            let (rows, columns) = match order {
                ffi::ORDER_ROW => (matrix.rows(), matrix.columns()),
                _ => (matrix.columns(), matrix.rows()),
            };
            // SAFETY: the descriptor only notes the address, of a matrix of this shape and stride, which the call
            // borrows.
            functions.check("cusparseCreateDnMat", unsafe {
                (functions.create_dense)(
                    descriptor,
                    rows as i64,
                    columns as i64,
                    matrix.stride() as i64,
                    matrix.device_address() as *mut c_void,
                    value_type::<E>(),
                    order,
                )
            })?;
        }
        call.made_ready(gpu)
    }

    /// A call of one operand. From here on whatever has been made is destroyed with it.
    fn call<'a>(&self, gpu: &Gpu<Cuda>, kind: Kind, sparse: Descriptor) -> Result<Call<'a>, Error> {
        Ok(Call {
            session: Arc::clone(&self.session),
            kind,
            sparse,
            dense: [ptr::null_mut(); 2],
            workspace: Array::zeros(gpu, 0, MemoryKind::Workspace)?,
            operands: std::marker::PhantomData,
        })
    }
}

/// What is asked of the library about a call.
enum Step<'a> {
    Measure(&'a mut usize),
    Preprocess,
    Run,
}

impl Call<'_> {
    /// The same with its workspace, and what the library does beforehand done.
    fn made_ready(mut self, gpu: &Gpu<Cuda>) -> Result<Self, Error> {
        let mut bytes = 0;
        self.invoke(Step::Measure(&mut bytes))?;
        self.workspace = Array::zeros(gpu, bytes, MemoryKind::Workspace)?;
        self.invoke(Step::Preprocess)?;
        Ok(self)
    }

    /// Queues the call.
    ///
    /// # Errors
    /// [`Error::Driver`] with the library's words.
    pub fn run(&self) -> Result<(), Error> {
        self.invoke(Step::Run)
    }

    fn invoke(&self, step: Step<'_>) -> Result<(), Error> {
        let Session {
            functions,
            handle,
            driver,
        } = &*self.session;
        driver.make_current()?;
        let handle = handle.lock().unwrap_or_else(PoisonError::into_inner);
        let (alpha, beta) = (1.0_f32, 0.0_f32);
        let (alpha, beta) = (
            (&raw const alpha).cast::<c_void>(),
            (&raw const beta).cast::<c_void>(),
        );
        let buffer = address(&self.workspace);
        let plain = ffi::NON_TRANSPOSE;
        let compute = ffi::REAL_32F;
        let (a, b, c, algorithm) = match self.kind {
            Kind::Spmv(algorithm) => {
                let (a, [x, y], algorithm) = (self.sparse, self.dense, algorithm.code());
                // SAFETY: as below.
                return unsafe {
                    match step {
                        Step::Measure(bytes) => functions.check(
                            "cusparseSpMV_bufferSize",
                            (functions.spmv_buffer)(
                                *handle, plain, alpha, a, x, beta, y, compute, algorithm, bytes,
                            ),
                        ),
                        // What there is of it came with CUDA 12.4, and is done by the first run.
                        Step::Preprocess => Ok(()),
                        Step::Run => functions.check(
                            "cusparseSpMV",
                            (functions.spmv)(
                                *handle, plain, alpha, a, x, beta, y, compute, algorithm, buffer,
                            ),
                        ),
                    }
                };
            }
            Kind::Spmm(algorithm) => (self.sparse, self.dense[0], self.dense[1], algorithm.code()),
            Kind::Sddmm => (
                self.dense[0],
                self.dense[1],
                self.sparse,
                ffi::SDDMM_DEFAULT,
            ),
        };
        let spmm = matches!(self.kind, Kind::Spmm(_));
        // SAFETY: handle and descriptors are live; the factors are floats on the host, as the handle's pointer mode and
        // the compute type say, and are read before the call returns; the workspace is as long as the library asked
        // for.
        unsafe {
            match (step, spmm) {
                (Step::Measure(bytes), true) => functions.check(
                    "cusparseSpMM_bufferSize",
                    (functions.spmm_buffer)(
                        *handle, plain, plain, alpha, a, b, beta, c, compute, algorithm, bytes,
                    ),
                ),
                (Step::Measure(bytes), false) => functions.check(
                    "cusparseSDDMM_bufferSize",
                    (functions.sddmm_buffer)(
                        *handle, plain, plain, alpha, a, b, beta, c, compute, algorithm, bytes,
                    ),
                ),
                (Step::Preprocess, true) => functions.check(
                    "cusparseSpMM_preprocess",
                    (functions.spmm_preprocess)(
                        *handle, plain, plain, alpha, a, b, beta, c, compute, algorithm, buffer,
                    ),
                ),
                (Step::Preprocess, false) => functions.check(
                    "cusparseSDDMM_preprocess",
                    (functions.sddmm_preprocess)(
                        *handle, plain, plain, alpha, a, b, beta, c, compute, algorithm, buffer,
                    ),
                ),
                (Step::Run, true) => functions.check(
                    "cusparseSpMM",
                    (functions.spmm)(
                        *handle, plain, plain, alpha, a, b, beta, c, compute, algorithm, buffer,
                    ),
                ),
                (Step::Run, false) => functions.check(
                    "cusparseSDDMM",
                    (functions.sddmm)(
                        *handle, plain, plain, alpha, a, b, beta, c, compute, algorithm, buffer,
                    ),
                ),
            }
        }
    }
}

impl Drop for Call<'_> {
    fn drop(&mut self) {
        let functions = &self.session.functions;
        let destroy = match self.kind {
            Kind::Spmv(_) => functions.destroy_vector,
            Kind::Spmm(_) | Kind::Sddmm => functions.destroy_dense,
        };
        // SAFETY: each was made by the library, or is null and was not; queued work does not read descriptors.
        unsafe {
            for dense in self.dense.into_iter().filter(|dense| !dense.is_null()) {
                destroy(dense);
            }
            (functions.destroy_sparse)(self.sparse);
        }
    }
}

fn address<T: Pod + Send + Sync>(array: &Array<Gpu<Cuda>, T>) -> *mut c_void {
    array.device_address() as *mut c_void
}

fn value_type<E: Element>() -> c_int {
    match E::PRECISION {
        Precision::Half => ffi::REAL_16F,
        Precision::BFloat16 => ffi::REAL_16BF,
        Precision::Float => ffi::REAL_32F,
    }
}
