//! What operators launch with, in addition to addresses.

use super::Gpu;
use super::workspace::Lease;
use crate::driver::Driver;
use crate::error::Error;

impl<D: Driver> Gpu<D> {
    /// At least `floats` floats of the workspace, of any content, until the lease is dropped.
    pub(crate) fn lend(&self, floats: u64) -> Result<Lease<'_, D>, Error> {
        self.workspace.floats(&self.driver, &self.ledger, floats)
    }
}
