//! Graphs, made on the device that they are for.

use crate::errors::exception;
use crate::memory::{Layout, Lend, RawAdjacency, RawArray, write};
use crate::place::{CPU, Place};
use crate::threads;
use halfgnn::Error;
use halfgnn::backend::cpu::Cpu;
#[cfg(feature = "cuda")]
use halfgnn::backend::gpu::Gpu;
use halfgnn::backend::{self, AdjacencyArrays};
#[cfg(feature = "cuda")]
use halfgnn::driver::cuda::Cuda;
use halfgnn::ops::EdgeMap;
use halfgnn::tensor::Array;
use pyo3::prelude::*;

/// An adjacency that was made, until its arrays are copied to where Python needs them.
#[pyclass(frozen)]
pub struct Adjacency {
    arrays: Made,
}

enum Made {
    Cpu(Parts<Cpu>),
    #[cfg(feature = "cuda")]
    Cuda(u32, Parts<Gpu<Cuda>>),
}

/// The arrays, and for each edge which one it was where that is known.
pub struct Parts<B: Lend> {
    arrays: AdjacencyArrays<B>,
    order: Option<Array<B, u32>>,
}

impl<B: Lend> Parts<B> {
    /// Of an adjacency, and for each of its edges which one it was.
    pub fn new(
        backend: &B,
        a: backend::Adjacency<B>,
        order: Option<Array<B, u32>>,
    ) -> Result<Self, Error> {
        Ok(Self {
            arrays: a.into_arrays(backend)?,
            order,
        })
    }

    fn mapped(backend: &B, (a, order): (backend::Adjacency<B>, EdgeMap<B>)) -> Result<Self, Error> {
        Self::new(backend, a, Some(order.into_array()))
    }

    /// Rows, edges, rows without edges, columns, and the longest row.
    fn shape(&self) -> [usize; 5] {
        let of = &self.arrays;
        [
            of.offsets.len() - 1,
            of.column_ids.len(),
            of.empty_rows.len(),
            of.columns,
            of.longest_row as usize,
        ]
    }
}

#[pymethods]
impl Adjacency {
    /// Rows, edges, rows without edges, columns, and the longest row.
    fn shape(&self) -> [usize; 5] {
        match &self.arrays {
            Made::Cpu(parts) => parts.shape(),
            #[cfg(feature = "cuda")]
            Made::Cuda(_, parts) => parts.shape(),
        }
    }

    /// Words of four bytes that it takes.
    fn words(&self) -> usize {
        self.layout().words
    }

    /// Whether it is known which edge each one was.
    fn is_mapped(&self) -> bool {
        match &self.arrays {
            Made::Cpu(parts) => parts.order.is_some(),
            #[cfg(feature = "cuda")]
            Made::Cuda(_, parts) => parts.order.is_some(),
        }
    }

    /// Copies the arrays, one after the other, and where it is known which edge each one was, to memory of the same
    /// device, and waits for it.
    fn copy_to(&self, words: u64, order: u64) -> PyResult<()> {
        let arrays = self.layout().at(words);
        let order = RawArray(order, self.shape()[1]);
        match &self.arrays {
            Made::Cpu(parts) => to_host(parts, arrays, order),
            #[cfg(feature = "cuda")]
            Made::Cuda(ordinal, parts) => on_card(*ordinal, |card| {
                let of = &parts.arrays;
                let mut places = vec![
                    (card.address_of_array(&of.offsets)?, 8, arrays[0]),
                    (card.address_of_array(&of.column_ids)?, 4, arrays[1]),
                    (card.address_of_array(&of.row_ids)?, 4, arrays[2]),
                    (card.address_of_array(&of.starts)?, 8, arrays[3]),
                    (card.address_of_array(&of.filled_rows)?, 4, arrays[4]),
                    (card.address_of_array(&of.empty_rows)?, 4, arrays[5]),
                ];
                if let Some(of_edges) = &parts.order {
                    places.push((card.address_of_array(of_edges)?, 4, order));
                }
                Ok(places)
            })?,
        }
        .map_err(exception)
    }
}

impl Adjacency {
    /// Of arrays on the host.
    pub fn on_host(parts: Parts<Cpu>) -> Self {
        Self {
            arrays: Made::Cpu(parts),
        }
    }

    /// Of arrays on a GPU.
    #[cfg(feature = "cuda")]
    pub fn on_card(ordinal: u32, parts: Parts<Gpu<Cuda>>) -> Self {
        Self {
            arrays: Made::Cuda(ordinal, parts),
        }
    }

    fn layout(&self) -> Layout {
        let [rows, edges, empty, ..] = self.shape();
        Layout::new(rows, edges, empty)
    }
}

fn to_host(parts: &Parts<Cpu>, to: [RawArray; 6], order: RawArray) -> Result<(), Error> {
    let of = &parts.arrays;
    let [offsets, columns, rows, starts, filled, empty] = to;
    // SAFETY: Python gives arrays of these lengths and types, on the host.
    unsafe {
        write(&of.offsets.values_on_host(), offsets)?;
        write(&of.column_ids.values_on_host(), columns)?;
        write(&of.row_ids.values_on_host(), rows)?;
        write(&of.starts.values_on_host(), starts)?;
        write(&of.filled_rows.values_on_host(), filled)?;
        write(&of.empty_rows.values_on_host(), empty)?;
        match &parts.order {
            Some(of_edges) => write(&of_edges.values_on_host(), order),
            None => Ok(()),
        }
    }
}

/// Copies arrays of a GPU, of elements of a width in bytes, to Python's on the same one, and waits for it.
#[cfg(feature = "cuda")]
pub fn on_card(
    ordinal: u32,
    arrays: impl FnOnce(&Gpu<Cuda>) -> Result<Vec<(u64, usize, RawArray)>, Error>,
) -> PyResult<Result<(), Error>> {
    use halfgnn::driver::Driver;
    let card = crate::card::open(ordinal).map_err(exception)?;
    let (backend, driver) = (&card.own, card.own.driver());
    let copy = || {
        for (from, bytes, RawArray(target, len)) in arrays(backend)? {
            let bytes = bytes * len;
            // SAFETY: the one is the array's own memory, as `sizes` has returned its length; the other is Python's, on
            // the same GPU.
            let (from, target) =
                unsafe { (driver.borrow(from, bytes)?, driver.borrow(target, bytes)?) };
            driver.copy(&from, &target)?;
        }
        Ok(driver.synchronize()?)
    };
    Ok(copy())
}

/// Sorts edges by row and column. On a GPU all work on the ids is done when this is called.
#[pyfunction]
pub fn adjacency(
    py: Python<'_>,
    place: Place,
    shape: (usize, usize),
    rows: RawArray,
    columns: RawArray,
) -> PyResult<Adjacency> {
    fn make<B: Lend>(
        backend: &B,
        shape: (usize, usize),
        rows: RawArray,
        columns: RawArray,
    ) -> Result<Parts<B>, Error> {
        // SAFETY: Python's arrays of ids, which it keeps until this returns.
        let (rows, columns) = unsafe { (backend.array(rows)?, backend.array(columns)?) };
        Parts::mapped(
            backend,
            backend::Adjacency::from_coo(backend, shape, &rows, &columns)?,
        )
    }
    let arrays = match place {
        // The emulator's graphs lie on the host.
        Place::Cpu | Place::Emulator => Made::Cpu(
            py.detach(|| threads::install(|| make(&*CPU, shape, rows, columns)))?
                .map_err(exception)?,
        ),
        #[cfg(feature = "cuda")]
        Place::Cuda(ordinal, _) => {
            let card = crate::card::open(ordinal).map_err(exception)?;
            Made::Cuda(
                ordinal,
                py.detach(|| threads::around(|| make(&card.own, shape, rows, columns)))?
                    .map_err(exception)?,
            )
        }
        #[cfg(not(feature = "cuda"))]
        Place::Cuda(ordinal, _) => return Err(crate::place::without_cuda(ordinal)),
    };
    Ok(Adjacency { arrays })
}

/// The transpose, and for each of its edges which one of the given adjacency it is.
#[pyfunction]
pub fn transposed(py: Python<'_>, place: Place, a: RawAdjacency) -> PyResult<Adjacency> {
    fn make<B: Lend>(backend: &B, a: &RawAdjacency) -> Result<Parts<B>, Error> {
        // SAFETY: the arrays of a graph, which Python keeps until this returns.
        let a = unsafe { backend.adjacency(a)? };
        Parts::mapped(backend, a.transposed(backend)?)
    }
    let arrays = match place {
        Place::Cpu | Place::Emulator => Made::Cpu(
            py.detach(|| threads::install(|| make(&*CPU, &a)))?
                .map_err(exception)?,
        ),
        #[cfg(feature = "cuda")]
        Place::Cuda(ordinal, _) => {
            let card = crate::card::open(ordinal).map_err(exception)?;
            Made::Cuda(
                ordinal,
                py.detach(|| threads::around(|| make(&card.own, &a)))?
                    .map_err(exception)?,
            )
        }
        #[cfg(not(feature = "cuda"))]
        Place::Cuda(ordinal, _) => return Err(crate::place::without_cuda(ordinal)),
    };
    Ok(Adjacency { arrays })
}
