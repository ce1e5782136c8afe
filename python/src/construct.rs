//! Graphs, made on the device that they are for.

use crate::errors::exception;
use crate::memory::{Layout, Lend, RawAdjacency, RawArray, write};
use crate::place::{CPU, Place};
use crate::threads;
use halfgnn::Error;
use halfgnn::backend::cpu::Cpu;
use halfgnn::backend::{self, AdjacencyArrays};
use halfgnn::ops::EdgeMap;
use halfgnn::tensor::Array;
use pyo3::prelude::*;

/// An adjacency that was made, until its arrays are copied to where Python wants them.
#[pyclass(frozen)]
pub struct Adjacency {
    arrays: Made,
}

enum Made {
    Cpu(Parts<Cpu>),
    #[cfg(feature = "cuda")]
    Cuda(u32, Parts<backend::gpu::Gpu<halfgnn::driver::cuda::Cuda>>),
}

/// The arrays, and for each edge which one it was.
struct Parts<B: Lend> {
    arrays: AdjacencyArrays<B>,
    order: Array<B, u32>,
}

impl<B: Lend> Parts<B> {
    fn new(backend: &B, (a, order): (backend::Adjacency<B>, EdgeMap<B>)) -> Result<Self, Error> {
        Ok(Self {
            arrays: a.into_arrays(backend)?,
            order: order.into_array(),
        })
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

    /// Copies the arrays, one after the other, and which edge each one was, to memory of the same device, and waits for it.
    fn copy_to(&self, words: u64, order: u64) -> PyResult<()> {
        let arrays = self.layout().at(words);
        let order = RawArray(order, self.shape()[1]);
        match &self.arrays {
            Made::Cpu(parts) => to_host(parts, arrays, order),
            #[cfg(feature = "cuda")]
            Made::Cuda(ordinal, parts) => on_card(*ordinal, parts, arrays, order)?,
        }
        .map_err(exception)
    }
}

impl Adjacency {
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
        write(&parts.order.values_on_host(), order)
    }
}

#[cfg(feature = "cuda")]
fn on_card(
    ordinal: u32,
    parts: &Parts<backend::gpu::Gpu<halfgnn::driver::cuda::Cuda>>,
    to: [RawArray; 6],
    order: RawArray,
) -> PyResult<Result<(), Error>> {
    use halfgnn::driver::Driver;
    let card = crate::card::open(ordinal)?;
    let (backend, driver) = (&card.own, card.own.driver());
    let of = &parts.arrays;
    let places = || {
        Ok::<_, Error>([
            (backend.address_of_array(&of.offsets)?, 8, to[0]),
            (backend.address_of_array(&of.column_ids)?, 4, to[1]),
            (backend.address_of_array(&of.row_ids)?, 4, to[2]),
            (backend.address_of_array(&of.starts)?, 8, to[3]),
            (backend.address_of_array(&of.filled_rows)?, 4, to[4]),
            (backend.address_of_array(&of.empty_rows)?, 4, to[5]),
            (backend.address_of_array(&parts.order)?, 4, order),
        ])
    };
    let copy = || {
        for (from, bytes, RawArray(target, len)) in places()? {
            let bytes = bytes * len;
            // SAFETY: the one is the array's own memory, as `sizes` has told its length; the other is Python's, on the same card.
            let (from, target) =
                unsafe { (driver.borrow(from, bytes)?, driver.borrow(target, bytes)?) };
            driver.copy(&from, &target)?;
        }
        Ok(driver.synchronize()?)
    };
    Ok(copy())
}

/// Sorts edges by row and column. On a card all work on the ids is done when this is called.
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
        Parts::new(
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
            let card = crate::card::open(ordinal)?;
            Made::Cuda(
                ordinal,
                py.detach(|| make(&card.own, shape, rows, columns))
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
        Parts::new(backend, a.transposed(backend)?)
    }
    let arrays = match place {
        Place::Cpu | Place::Emulator => Made::Cpu(
            py.detach(|| threads::install(|| make(&*CPU, &a)))?
                .map_err(exception)?,
        ),
        #[cfg(feature = "cuda")]
        Place::Cuda(ordinal, _) => {
            let card = crate::card::open(ordinal)?;
            Made::Cuda(
                ordinal,
                py.detach(|| make(&card.own, &a)).map_err(exception)?,
            )
        }
        #[cfg(not(feature = "cuda"))]
        Place::Cuda(ordinal, _) => return Err(crate::place::without_cuda(ordinal)),
    };
    Ok(Adjacency { arrays })
}
