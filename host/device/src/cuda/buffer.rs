//! Memory that kernels use: of the pool, to which it returns, of the host, or of another program's.

use std::sync::Arc;

use super::context::Context;
use super::host::HostMemory;
use super::pool::Block;
use super::stream::Queue;
use crate::{DeviceBuffer, DriverError};

/// Memory that a GPU reaches. Dropping it keeps the GPU's own for the next buffer of about its size, which is sound
/// while kernels that use it are still queued, on whichever stream: whatever the next owner does is queued behind them.
/// The host's is waited for and freed.
#[derive(Debug)]
pub struct CudaBuffer {
    memory: Memory,
    len: usize,
    context: Arc<Context>,
}

/// Whose memory it is.
#[derive(Debug)]
enum Memory {
    /// The pool's.
    Pooled(Block),
    /// The host's, with an address on the GPU.
    Host(HostMemory),
    /// Another program's, at this address.
    Borrowed(u64),
}

impl CudaBuffer {
    /// `len` bytes with any content.
    pub(super) fn new(queue: &Queue, len: usize) -> Result<Self, DriverError> {
        let context = queue.context();
        let _entered = context.enter()?;
        Ok(Self {
            memory: Memory::Pooled(context.alloc(len, queue.raw())?),
            len,
            context: Arc::clone(context),
        })
    }

    /// `len` bytes of the host's memory, with any content.
    pub(super) fn of_host(context: &Arc<Context>, len: usize) -> Result<Self, DriverError> {
        let _entered = context.enter()?;
        Ok(Self {
            memory: Memory::Host(HostMemory::new(len)?),
            len,
            context: Arc::clone(context),
        })
    }

    /// Memory that another program allocated.
    ///
    /// # Safety
    /// As of [`Driver::borrow`](crate::Driver::borrow).
    pub(super) unsafe fn borrowed(context: &Arc<Context>, address: u64, len: usize) -> Self {
        Self {
            memory: Memory::Borrowed(address),
            len,
            context: Arc::clone(context),
        }
    }

    /// The host's memory, where it is that.
    pub(super) fn host(&self) -> Option<&HostMemory> {
        match &self.memory {
            Memory::Host(memory) => Some(memory),
            Memory::Pooled(_) | Memory::Borrowed(_) => None,
        }
    }

    /// An error unless the buffer is of `context`: work on it in another's stream would have no order.
    pub(super) fn check_owner(&self, context: &Arc<Context>) -> Result<(), DriverError> {
        if Arc::ptr_eq(&self.context, context) {
            return Ok(());
        }
        Err(DriverError::Device {
            call: "a copy",
            reason: "the buffer belongs to another driver".into(),
        })
    }
}

impl DeviceBuffer for CudaBuffer {
    fn address(&self) -> u64 {
        match &self.memory {
            Memory::Pooled(block) => block.address,
            Memory::Host(memory) => memory.address(),
            Memory::Borrowed(address) => *address,
        }
    }

    fn len(&self) -> usize {
        self.len
    }
}

impl Drop for CudaBuffer {
    fn drop(&mut self) {
        match &mut self.memory {
            Memory::Pooled(block) => self.context.release(*block, self.len),
            Memory::Host(memory) => {
                let freed = self.context.enter().and_then(|_entered| {
                    let waited = self.context.streams().synchronize();
                    // SAFETY: every stream of the GPU was waited for just now, and this is the last that is done with
                    // it.
                    unsafe { memory.free() };
                    waited
                });
                if let Err(error) = freed {
                    // A failure is of an earlier kernel, and reported to those that wait for that: nothing runs any
                    // more.
                    tracing::debug!(%error, "freeing memory of the host");
                }
            }
            Memory::Borrowed(_) => {}
        }
    }
}
