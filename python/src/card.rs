//! GPUs, on the streams that torch has current and in memory that torch allocates.

use crate::memory::{Lend, RawArray};
use crate::place::{Operation, Shape};
use halfgnn::Error;
use halfgnn::backend::gpu::{Gpu, WorkspaceCounter};
use halfgnn::driver::cuda::Cuda;
use pyo3::prelude::*;
use pyo3::sync::MutexExt;
use std::collections::HashMap;
use std::ffi::c_void;
use std::sync::{Arc, LazyLock, Mutex, MutexGuard, PoisonError};

/// Bytes of workspaces that were counted.
type Counted = HashMap<Shape, u64>;

/// Of the given number of shapes; batches of a sampler all have their own.
const MOST: usize = 1024;

/// A GPU, and its handles by stream. They live as long as the process does, as torch's streams do.
pub struct Card {
    /// On a stream of its own, for what allocates.
    pub own: Gpu<Cuda>,
    counter: WorkspaceCounter<Cuda>,
    by_stream: Mutex<HashMap<u64, Gpu<Cuda>>>,
    /// Who counts, borrows and launches: the counter and a stream's workspace are one operator's at a time.
    /// With it go the bytes that operations of a shape want.
    busy: Mutex<Counted>,
}

impl Card {
    fn open(ordinal: u32) -> Result<Self, Error> {
        let driver = Cuda::open(ordinal)?;
        let capability = halfgnn::driver::Driver::info(&driver).compute_capability;
        let kernels = halfgnn::kernels::Kernels::find(Some(capability))?;
        // SAFETY: the null handle is the context's default stream, which always lives; nothing is launched on it.
        let silent = unsafe { driver.on_lent_stream(std::ptr::null_mut()) };
        let own = Gpu::new(driver, kernels)?;
        Ok(Self {
            counter: own.workspace_counter(silent),
            own,
            by_stream: Mutex::default(),
            busy: Mutex::default(),
        })
    }

    /// The handle of a stream of torch's.
    fn on(&self, stream: u64) -> Gpu<Cuda> {
        let mut handles = self
            .by_stream
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        let handle = handles.entry(stream).or_insert_with(|| {
            let raw = std::ptr::with_exposed_provenance_mut::<c_void>(stream as usize);
            // SAFETY: torch's streams are of the GPU's primary context and are never destroyed; of others the caller
            // keeps theirs while it is current.
            self.own
                .on(unsafe { self.own.driver().on_lent_stream(raw) })
        });
        handle.clone()
    }

    /// Waits until no other thread is in [`Self::perform`].
    pub fn alone(&self) -> MutexGuard<'_, Counted> {
        self.busy.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The same for a thread that holds the interpreter, which it lets go of meanwhile: torch's allocator, called by
    /// the other, may want it.
    pub fn alone_attached(&self, py: Python<'_>) -> MutexGuard<'_, Counted> {
        let busy = self.busy.lock_py_attached(py);
        busy.unwrap_or_else(PoisonError::into_inner)
    }

    /// Bytes that an operation needs.
    fn workspace(&self, operation: &impl Operation, counted: &mut Counted) -> Result<u64, Error> {
        let shape = operation.shape();
        if let Some(bytes) = shape.as_ref().and_then(|shape| counted.get(shape)) {
            return Ok(*bytes);
        }
        let bytes = self.counter.wanted(|backend| operation.run(backend))?;
        if let Some(shape) = shape {
            if counted.len() >= MOST {
                counted.clear();
            }
            counted.insert(shape, bytes);
        }
        Ok(bytes)
    }

    /// Calls operators on a stream of torch's, in a workspace that `room` gives: a number of bytes of torch's memory on
    /// it, what keeps them, and their address. Launches take microseconds.
    ///
    /// # Errors
    /// Those of `room`, and of the operators.
    pub fn perform<M, F>(
        &self,
        stream: u64,
        room: impl FnOnce(u64) -> Result<(M, u64), F>,
        operation: &impl Operation,
        mut counted: MutexGuard<'_, Counted>,
    ) -> Result<Result<(), Error>, F> {
        let bytes = match self.workspace(operation, &mut counted) {
            Ok(bytes) => bytes,
            Err(error) => return Ok(Err(error)),
        };
        let backend = self.on(stream);
        if bytes == 0 {
            return Ok(operation.run(&backend));
        }
        // Freed when this returns: whatever torch hands it to next is queued behind the launches.
        let (_memory, address) = room(bytes)?;
        let floats = RawArray(address, bytes as usize / size_of::<f32>());
        let run = || {
            // SAFETY: torch's memory on the GPU, which is kept until the launches are queued.
            let lent = unsafe { backend.array(floats) }?;
            backend.lend_workspace(lent)?;
            let done = operation.run(&backend);
            backend.reclaim_workspace();
            done
        };
        Ok(run())
    }
}

/// GPU `ordinal`, with its kernels.
pub fn open(ordinal: u32) -> Result<Arc<Card>, Error> {
    static CARDS: LazyLock<Mutex<HashMap<u32, Arc<Card>>>> = LazyLock::new(Mutex::default);
    let mut cards = CARDS.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(card) = cards.get(&ordinal) {
        return Ok(Arc::clone(card));
    }
    let card = Arc::new(Card::open(ordinal)?);
    cards.insert(ordinal, Arc::clone(&card));
    Ok(card)
}
