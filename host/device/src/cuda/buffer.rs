//! Device memory that returns to the pool.

use std::sync::Arc;

use super::context::Context;
use super::pool::Block;
use super::stream::Queue;
use crate::{DeviceBuffer, DriverError};

/// Memory of a card. Dropping it keeps the memory for the next buffer of about its size, which is sound while kernels
/// that use it are still queued, on whichever stream: whatever the next owner does is queued behind them.
#[derive(Debug)]
pub struct CudaBuffer {
    block: Block,
    len: usize,
    /// Not the pool's, and not to be given to it.
    borrowed: bool,
    context: Arc<Context>,
}

impl CudaBuffer {
    /// `len` bytes with any content.
    pub(super) fn new(queue: &Queue, len: usize) -> Result<Self, DriverError> {
        let context = queue.context();
        context.enter()?;
        Ok(Self {
            block: context.alloc(len, queue.raw())?,
            len,
            borrowed: false,
            context: Arc::clone(context),
        })
    }

    /// Memory that somebody else allocated.
    ///
    /// # Safety
    /// As of [`Driver::borrow`](crate::Driver::borrow).
    pub(super) unsafe fn borrowed(context: &Arc<Context>, address: u64, len: usize) -> Self {
        Self {
            block: Block {
                address,
                bytes: len,
            },
            len,
            borrowed: true,
            context: Arc::clone(context),
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
        self.block.address
    }

    fn len(&self) -> usize {
        self.len
    }
}

impl Drop for CudaBuffer {
    fn drop(&mut self) {
        if !self.borrowed {
            self.context.release(self.block, self.len);
        }
    }
}
