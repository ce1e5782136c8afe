//! CUDA cards, on the streams that torch has current and in memory that torch allocates.

use crate::errors::exception;
use crate::memory::{Lend, RawArray};
use crate::place::Operation;
use halfgnn::Error;
use halfgnn::backend::gpu::{Gpu, WorkspaceCounter};
use halfgnn::driver::cuda::Cuda;
use pyo3::prelude::*;
use std::collections::HashMap;
use std::ffi::c_void;
use std::sync::{Arc, LazyLock, Mutex, PoisonError};

/// A card, and its handles by stream. They live as long as the process does, as torch's streams do.
pub struct Card {
    /// On a stream of its own, for what allocates.
    pub own: Gpu<Cuda>,
    counter: WorkspaceCounter<Cuda>,
    by_stream: Mutex<HashMap<u64, Gpu<Cuda>>>,
}

impl Card {
    fn open(ordinal: u32) -> Result<Self, Error> {
        let driver = Cuda::open(ordinal)?;
        let ptx = halfgnn::ptx::read(Some(
            halfgnn::driver::Driver::info(&driver).compute_capability,
        ))?;
        // SAFETY: the null handle is the context's default stream, which always lives; nothing is launched on it.
        let silent = unsafe { driver.on_lent_stream(std::ptr::null_mut()) };
        let own = Gpu::new(driver, &ptx)?;
        Ok(Self {
            counter: own.workspace_counter(silent),
            own,
            by_stream: Mutex::default(),
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
            // SAFETY: torch's streams are of the card's primary context and are never destroyed; of others the caller keeps
            // theirs while it is current.
            self.own
                .on(unsafe { self.own.driver().on_lent_stream(raw) })
        });
        handle.clone()
    }
}

/// Card `ordinal`, with its kernels.
pub fn open(ordinal: u32) -> PyResult<Arc<Card>> {
    static CARDS: LazyLock<Mutex<HashMap<u32, Arc<Card>>>> = LazyLock::new(Mutex::default);
    let mut cards = CARDS.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(card) = cards.get(&ordinal) {
        return Ok(Arc::clone(card));
    }
    let card = Arc::new(Card::open(ordinal).map_err(exception)?);
    cards.insert(ordinal, Arc::clone(&card));
    Ok(card)
}

/// Calls operators on a stream of torch's, in a workspace that torch allocates on it. The interpreter is held throughout, so that
/// no other thread is between loan and return; launches take microseconds.
pub fn perform(
    ordinal: u32,
    stream: u64,
    allocate: &Bound<'_, PyAny>,
    operation: &impl Operation,
) -> PyResult<()> {
    let card = open(ordinal)?;
    let bytes = card
        .counter
        .wanted(|backend| operation.run(backend))
        .map_err(exception)?;
    let backend = card.on(stream);
    if bytes == 0 {
        return operation.run(&backend).map_err(exception);
    }
    // Freed when this returns: whatever torch hands it to next is queued behind the launches.
    let (_memory, address): (Bound<'_, PyAny>, u64) = allocate.call1((bytes,))?.extract()?;
    let floats = RawArray(address, bytes as usize / size_of::<f32>());
    // SAFETY: torch's memory on the card, which is kept until the launches are queued.
    let lent = unsafe { backend.array(floats) }.map_err(exception)?;
    backend.lend_workspace(lent).map_err(exception)?;
    let done = operation.run(&backend);
    backend.reclaim_workspace();
    done.map_err(exception)
}
