//! Features that lie elsewhere than the batches that take rows of them: in the host's memory, or on disk.

use crate::errors::exception;
use crate::memory::{Lend, RawArray, RawMatrix};
use crate::place::{CPU, Place, emulator, precision};
use crate::threads;
use halfgnn::Error;
use halfgnn::backend::MemoryKind;
use halfgnn::data::parts::FeaturePrecision;
use halfgnn::data::{Dataset, FeatureRows, OpenOptions, ReadAhead, StoredFeatures};
use halfgnn::tensor::{Element, Matrix, Precision};
use halfgnn::with_element;
use pyo3::exceptions::{PyOSError, PyValueError};
use pyo3::prelude::*;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

/// Rows of features that stay in files.
#[pyclass(frozen)]
pub struct Stored(Arc<StoredFeatures>);

#[pymethods]
impl Stored {
    /// Those of a folder of parts, in the order of the dataset's vertices. The files are read through once.
    #[staticmethod]
    fn open(py: Python<'_>, folder: PathBuf) -> PyResult<Self> {
        let open = || {
            let mut options = OpenOptions::default();
            options.stored_features = true;
            Dataset::open_with(&folder, &options)
        };
        let dataset = py.detach(|| threads::install(open))?;
        let dataset = dataset.map_err(|error| unread(&folder, &error))?;
        match dataset.features.as_stored() {
            Some(stored) => Ok(Self(stored.clone())),
            None => Err(PyValueError::new_err(format!(
                "{}: its features do not stay on disk",
                folder.display()
            ))),
        }
    }

    /// Rows of a file, one behind the other from byte `start` on, in a format's elements.
    #[staticmethod]
    fn of_file(path: PathBuf, start: u64, shape: (usize, usize), format: u8) -> PyResult<Self> {
        let kept = match precision(format)? {
            Precision::Half => FeaturePrecision::Half,
            Precision::Float => FeaturePrecision::Float,
            Precision::BFloat16 => {
                let reason = "bfloat16 is not read from disk; take float16 or float32";
                return Err(PyValueError::new_err(reason));
            }
        };
        let stored = StoredFeatures::of_file(&path, start, shape, kept);
        let stored = stored.map_err(|error| unread(&path, &error))?;
        Ok(Self(Arc::new(stored)))
    }

    /// Vertices and features of each.
    fn shape(&self) -> (usize, usize) {
        (self.0.vertices(), self.0.feature_len())
    }

    /// The number of the format that they are kept in.
    fn format(&self) -> u8 {
        match self.0.precision() {
            FeaturePrecision::Half => 0,
            FeaturePrecision::Float => 2,
        }
    }
}

fn unread(path: &Path, error: &halfgnn::data::DataError) -> PyErr {
    match path.exists() {
        true => PyValueError::new_err(error.to_string()),
        false => PyOSError::new_err(error.to_string()),
    }
}

/// Rows of batches, whatever they are taken on and from.
trait Taking: Send + Sync {
    /// Those of vertices on the device, in the memory of a matrix there.
    ///
    /// # Safety
    /// As of [`Lend`].
    unsafe fn take(&self, vertices: RawArray, to: RawMatrix) -> Result<(), Error>;

    /// Begins to read those of vertices that will be asked for next.
    fn read_ahead(&self, vertices: Vec<u32>) -> Result<(), Error>;

    /// Has copies of those of vertices in the device's memory from now on.
    fn cache(&self, vertices: &[u32]) -> Result<(), Error>;
}

/// Rows that batches of a backend take.
struct Taken<B: Lend, E: Element> {
    backend: B,
    rows: FeatureRows<B, E>,
    ahead: Mutex<Option<ReadAhead<E>>>,
}

impl<B: Lend, E: Element> Taken<B, E> {
    fn boxed(backend: &B, rows: FeatureRows<B, E>) -> Box<dyn Taking> {
        Box::new(Self {
            backend: backend.clone(),
            rows,
            ahead: Mutex::default(),
        })
    }
}

impl<B: Lend, E: Element> Taking for Taken<B, E> {
    unsafe fn take(&self, vertices: RawArray, to: RawMatrix) -> Result<(), Error> {
        let backend = &self.backend;
        // SAFETY: what this method asks of its caller.
        let (of, mut taken) = unsafe { (backend.array(vertices)?, backend.matrix::<E>(to)?) };
        let mut ahead = self.ahead.lock().unwrap_or_else(PoisonError::into_inner);
        let was_read = match ahead.take() {
            Some(ahead) => ahead.finish(backend, &of, &mut taken)?,
            None => false,
        };
        if !was_read {
            self.rows.take_into(backend, &of, &mut taken)?;
        }
        backend.synchronize()?;
        // SAFETY: as above.
        unsafe { backend.give_matrix(&taken, to) }
    }

    fn read_ahead(&self, vertices: Vec<u32>) -> Result<(), Error> {
        let begun = self.rows.read_ahead(vertices)?;
        *self.ahead.lock().unwrap_or_else(PoisonError::into_inner) = begun;
        Ok(())
    }

    fn cache(&self, vertices: &[u32]) -> Result<(), Error> {
        self.rows.cache_rows(&self.backend, vertices)?;
        self.backend.synchronize()
    }
}

/// Where rows are taken from.
enum Origin<'a> {
    Disk(&'a Arc<StoredFeatures>),
    /// Python's matrix on the host, which is copied.
    Host(RawMatrix),
}

impl Origin<'_> {
    /// # Safety
    /// As of [`Lend`], of memory of the host.
    unsafe fn rows<B: Lend, E: Element>(&self, backend: &B) -> Result<Box<dyn Taking>, Error> {
        let rows = match *self {
            Self::Disk(stored) => FeatureRows::stored(backend, stored.clone())?,
            Self::Host(matrix) => {
                let RawMatrix(_, rows, columns, stride) = matrix;
                // SAFETY: what this method asks of its caller.
                let elements = unsafe { matrix.read::<E>() };
                let write = |row: usize, to: &mut [f32]| {
                    let from = &elements[row * stride..][..columns];
                    (to.iter_mut().zip(from)).for_each(|(to, from)| *to = from.to_f32());
                };
                let kind = MemoryKind::HostFeatures;
                Matrix::<B, E>::from_rows(backend, (rows, columns), kind, write)?.into()
            }
        };
        Ok(Taken::<B, E>::boxed(backend, rows))
    }

    /// # Safety
    /// As of [`Lend`], of memory of the host.
    unsafe fn on<B: Lend>(&self, backend: &B, format: Precision) -> Result<Box<dyn Taking>, Error> {
        // SAFETY: what this method asks of its caller.
        with_element!(format, E => unsafe { self.rows::<B, E>(backend) })
    }
}

/// Rows of features that batches on a device take from elsewhere.
#[pyclass(frozen)]
pub struct Rows {
    place: Place,
    taking: Box<dyn Taking>,
}

#[pymethods]
impl Rows {
    /// Those that stay in files, each number rounded to the nearest element of a format.
    #[staticmethod]
    fn stored(py: Python<'_>, place: Place, format: u8, stored: &Stored) -> PyResult<Self> {
        // SAFETY: there is no memory of Python's.
        unsafe { Self::new(py, place, format, &Origin::Disk(&stored.0)) }
    }

    /// Copies those of a matrix on the host, of a format's elements, to memory of the host that the device reads.
    #[staticmethod]
    fn host(py: Python<'_>, place: Place, format: u8, matrix: RawMatrix) -> PyResult<Self> {
        // SAFETY: Python's matrix of these elements, which it keeps until this returns.
        unsafe { Self::new(py, place, format, &Origin::Host(matrix)) }
    }

    /// Has the rows of vertices, words on the device, in a matrix on it, whose rows end in zeros, and waits for it.
    fn take(&self, py: Python<'_>, vertices: RawArray, to: RawMatrix) -> PyResult<()> {
        // SAFETY: Python's arrays on the device, which it keeps until this returns.
        self.detached(py, || unsafe { self.taking.take(vertices, to) })
    }

    /// Has copies of the rows of vertices, words on the host, in the device's memory from now on; once.
    fn cache(&self, py: Python<'_>, vertices: RawArray) -> PyResult<()> {
        // SAFETY: Python's array on the host, which it keeps until this returns.
        let vertices = unsafe { vertices.read::<u32>() };
        self.detached(py, || self.taking.cache(vertices))
    }

    /// Begins to read those of vertices, words on the host, that will be asked for next, if they are on disk.
    fn read_ahead(&self, vertices: RawArray) -> PyResult<()> {
        // SAFETY: Python's array on the host, which it keeps until this returns.
        let vertices = unsafe { vertices.read::<u32>() }.to_vec();
        self.taking.read_ahead(vertices).map_err(exception)
    }
}

impl Rows {
    /// Does some work where the rows are taken, without Python's lock.
    fn detached(
        &self,
        py: Python<'_>,
        work: impl FnOnce() -> Result<(), Error> + Send,
    ) -> PyResult<()> {
        let done = py.detach(|| match self.place {
            Place::Cuda(..) => threads::around(work),
            _ => threads::install(work),
        })?;
        done.map_err(exception)
    }

    /// # Safety
    /// As of [`Lend`], of memory of the host.
    unsafe fn new(py: Python<'_>, place: Place, format: u8, from: &Origin<'_>) -> PyResult<Self> {
        let format = precision(format)?;
        let taking = match place {
            Place::Cpu => {
                // SAFETY: what this function asks of its caller; so below.
                let make = || unsafe { from.on(&*CPU, format) };
                py.detach(|| threads::install(make))?
            }
            Place::Emulator => {
                let backend = emulator()?;
                // SAFETY: as above.
                let make = || unsafe { from.on(&backend, format) };
                py.detach(|| threads::install(make))?
            }
            #[cfg(feature = "cuda")]
            Place::Cuda(ordinal, _) => {
                let card = crate::card::open(ordinal).map_err(exception)?;
                // SAFETY: as above.
                let make = || unsafe { from.on(&card.own, format) };
                py.detach(|| threads::around(make))?
            }
            #[cfg(not(feature = "cuda"))]
            Place::Cuda(ordinal, _) => return Err(crate::place::without_cuda(ordinal)),
        };
        let taking = taking.map_err(exception)?;
        Ok(Self { place, taking })
    }
}
