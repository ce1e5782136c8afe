//! Operators as kernels, on any [`Driver`]: it picks a kernel, computes its geometry, and launches it.
//!
//! - `kernels`: the built kernels, compared with the launch contract, and loaded when they are first launched.
//! - what a kernel takes stands in `gpu.rs` of its operator's folder.

mod address;
mod buffer;
mod edge_walk;
mod kernels;
mod launch;
mod recording;
mod retired;
mod workspace;

pub use buffer::Buffer;
pub use kernels::{KernelSet, ModuleState};
pub use recording::Recording;

pub(crate) use edge_walk::{WalkedRows, expect_stride};
pub(crate) use workspace::Lease;

use super::{Ledger, MemoryKind, MemoryReport, Storage, Transfer};
use crate::driver::{self, dry::Dry};
use crate::driver::{DeviceInfo, Driver, Interconnect, LaunchConfig, LinkPlace, Part, Watch};
use crate::error::Error;
use crate::tensor::{Array, Element, Matrix};
use buffer::Allocator;
use bytemuck::Pod;
use halfgnn_contract::{DevicePtr, EntrySpec, Format, Param};
use kernels::Kernels;
use retired::Retired;
use std::collections::HashMap;
use std::ops::Deref;
use std::sync::{Arc, LazyLock};
use workspace::{Held, Workspace};

/// A backend that launches kernels: a handle, of which clones are the same device and the same stream. What one of them
/// allocates all of them use.
#[derive(Debug)]
pub struct Gpu<D: Driver>(Arc<Stream<D>>);

impl<D: Driver> Clone for Gpu<D> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

/// Reports what workspace operators want, without launching any: see [`Gpu::workspace_counter`].
#[derive(Debug)]
pub struct WorkspaceCounter<D: Driver>(Gpu<D>);

impl<D: Driver> WorkspaceCounter<D> {
    /// Bytes that the most demanding of the operators needs that `work` calls on the handle that it is given. Of two
    /// threads that ask at once one may get the other's.
    ///
    /// # Errors
    /// Those of `work`.
    pub fn wanted(&self, work: impl FnOnce(&Gpu<D>) -> Result<(), Error>) -> Result<u64, Error> {
        self.0.workspace.count_anew();
        work(&self.0)?;
        let floats = self.0.workspace.counted();
        Ok(floats.saturating_mul(size_of::<f32>() as u64))
    }
}

/// What belongs to a stream, and what all streams of a device share.
#[doc(hidden)]
#[derive(Debug)]
pub struct Stream<D: Driver> {
    driver: D,
    /// Streams run side by side, so that each has its own.
    workspace: Workspace<D>,
    kernels: Arc<Kernels<D>>,
    ledger: Ledger,
    retired: Arc<Retired<D>>,
    counts: Option<Counts>,
}

impl Gpu<Dry> {
    /// A backend that counts the memory that operators want on a GPU of the given number of multiprocessors; on the
    /// CPU, whose operators take every policy and borrow next to nothing, where there are none.
    pub fn counting(multiprocessors: Option<u32>) -> Result<Self, Error> {
        let driver = Dry::new(counted_device(multiprocessors.unwrap_or(1)));
        let kernels = Kernels::of_contract();
        let counts = match multiprocessors {
            Some(_) => Counts::Card,
            None => Counts::Cpu,
        };
        Ok(Self::counting_as(
            driver,
            Arc::new(kernels),
            Ledger::default(),
            Arc::default(),
            Some(counts),
        ))
    }
}

impl Gpu<Dry> {
    /// The kernels that operators would have launched so far.
    pub fn kernels_wanted(&self) -> KernelSet {
        self.kernels.wanted()
    }
}

/// What a count of memory says of its device.
pub(crate) fn counted_device(multiprocessors: u32) -> DeviceInfo {
    DeviceInfo {
        name: "a count of memory".into(),
        compute_capability: (9, 0),
        multiprocessors,
        l2_bytes: 0,
        memory_bytes: 0,
        max_shared_bytes: 227 * 1024,
        memory_bytes_per_second: None,
        driver_version: None,
    }
}

/// What a backend stands for that only counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Counts {
    Card,
    Cpu,
}

impl<D: Driver> Deref for Gpu<D> {
    type Target = Stream<D>;

    fn deref(&self) -> &Stream<D> {
        &self.0
    }
}

impl<D: Driver> Gpu<D> {
    /// The backend of `driver`, with built kernels. A module of them is loaded when one of its kernels is first
    /// launched.
    ///
    /// # Errors
    /// [`Error::Contract`] where a kernel is missing, or the kernels were built from other sources than this crate.
    pub fn new(driver: D, kernels: driver::kernels::Kernels) -> Result<Self, Error> {
        let kernels = Kernels::load(kernels)?;
        Ok(Self::of(
            driver,
            Arc::new(kernels),
            Ledger::default(),
            Arc::default(),
        ))
    }

    fn of(driver: D, kernels: Arc<Kernels<D>>, ledger: Ledger, retired: Arc<Retired<D>>) -> Self {
        Self::counting_as(driver, kernels, ledger, retired, None)
    }

    fn counting_as(
        driver: D,
        kernels: Arc<Kernels<D>>,
        ledger: Ledger,
        retired: Arc<Retired<D>>,
        counts: Option<Counts>,
    ) -> Self {
        let kind = match counts {
            Some(Counts::Cpu) => Held::Nothing,
            Some(Counts::Card) | None => Held::Grown(None),
        };
        let workspace = Workspace::new(Arc::clone(&retired), kind);
        Self(Arc::new(Stream {
            driver,
            workspace,
            kernels,
            ledger,
            retired,
            counts,
        }))
    }

    /// Whether it stands for the CPU, whose operators have no plans.
    pub(crate) fn is_count_of_cpu(&self) -> bool {
        self.counts == Some(Counts::Cpu)
    }

    /// Launches the entry `name` of the launch contract; nothing where the grid is empty.
    ///
    /// # Errors
    /// [`Error::Contract`] where there is no such entry, and those of the device.
    ///
    /// # Safety
    /// `params` are those of this entry, and everything holds that their documentation asks for.
    pub unsafe fn launch<P: Param>(
        &self,
        name: &'static str,
        config: LaunchConfig,
        params: &P,
    ) -> Result<(), Error> {
        // SAFETY: the caller's promise.
        unsafe { self.kernels.launch(&self.driver, name, config, params) }
    }

    /// The same device on a stream of its own, which begins behind all work that was called before: operands, graphs
    /// and kernels are shared, and the workspace is the new stream's. Work of two streams has no order but that of
    /// [`Gpu::mark`] and [`Gpu::wait`]: an operand that one writes and the other reads needs them between. Recordings
    /// are replayed on the stream that recorded them.
    ///
    /// # Errors
    /// Those of the device.
    pub fn new_stream(&self) -> Result<Self, Error> {
        Ok(self.on(self.driver.new_stream()?))
    }

    /// The same device through another handle of its driver, such as one on a stream of another program's
    /// (`Cuda::on_foreign_stream`). Fails at the first operand where the driver is another device's.
    pub fn on(&self, driver: D) -> Self {
        Self::of(
            driver,
            Arc::clone(&self.kernels),
            self.ledger.clone(),
            Arc::clone(&self.retired),
        )
    }

    /// Has operators of this stream use `memory` while they run, instead of a workspace of its own that grows to what
    /// they want: memory of the caller's, or by [`Array::from_raw`] of another program's. It replaces an earlier loan,
    /// which is dropped. An operator that needs more is an error that says how much.
    ///
    /// # Errors
    /// [`Error::Elsewhere`] for memory of another device.
    pub fn lend_workspace(&self, memory: Array<Self, f32>) -> Result<(), Error> {
        self.array::<f32, f32>(&memory)?;
        self.workspace.lend(memory.buffer);
        Ok(())
    }

    /// Takes a [loan](Gpu::lend_workspace) back, if there is one; from then on operators have a workspace that grows.
    /// Work that uses the loan may still be under way, and recordings that were made with it go on using it.
    pub fn reclaim_workspace(&self) -> Option<Array<Self, f32>> {
        let buffer = self.workspace.reclaim()?;
        let len = buffer.bytes() / size_of::<f32>();
        Some(Array::of(buffer, len))
    }

    /// Bytes that the most demanding of the operators needs that `work` calls on the handle that it is given. They are
    /// checked, and nothing is launched or cleared: operands keep what they hold.
    ///
    /// # Errors
    /// Those of `work`, and of a stream that is opened for it.
    pub fn workspace_wanted(
        &self,
        work: impl FnOnce(&Self) -> Result<(), Error>,
    ) -> Result<u64, Error> {
        self.workspace_counter(self.driver.new_stream()?)
            .wanted(work)
    }

    /// [`Gpu::workspace_wanted`] again and again: with `driver`, a handle of the same device, to which nothing is sent.
    pub fn workspace_counter(&self, driver: D) -> WorkspaceCounter<D> {
        WorkspaceCounter(Self(Arc::new(Stream {
            driver,
            workspace: Workspace::new(Arc::clone(&self.retired), Held::Counted(0)),
            kernels: Arc::new(self.kernels.silent()),
            ledger: self.ledger.clone(),
            retired: Arc::clone(&self.retired),
            counts: None,
        })))
    }

    /// Marks the point that this stream has come to, for [`Gpu::wait`].
    ///
    /// # Errors
    /// Those of the device.
    pub fn mark(&self) -> Result<D::Event, Error> {
        Ok(self.driver.record()?)
    }

    /// What is called from now on runs behind `event` of another stream of the device. The host does not wait.
    ///
    /// # Errors
    /// Those of the device.
    pub fn wait(&self, event: &D::Event) -> Result<(), Error> {
        Ok(self.driver.wait(event)?)
    }

    /// The device.
    pub fn driver(&self) -> &D {
        &self.driver
    }
}

impl<D: Driver> Gpu<D> {
    /// Address of a matrix whose rows follow one another; an error where it does not lie here, or they do not. This and
    /// the four below are the one way in which an operator comes by an address.
    pub(crate) fn matrix<E: Element, T>(
        &self,
        matrix: &Matrix<Self, E>,
    ) -> Result<DevicePtr<T>, Error> {
        if matrix.is_contiguous() {
            return self.strided(matrix);
        }
        let (rows, columns) = matrix.shape();
        Err(Error::Unsupported {
            operator: "Matrix",
            reason: format!(
                "rows of a matrix of {rows} x {columns} are {} elements apart, which products and sums over neighbours take; \
                 this operator wants them {} apart: copy it first",
                matrix.stride(),
                crate::tensor::padded::<E>(columns)
            ),
        })
    }

    /// Address of a matrix, whatever its elements and the distance of its rows, for a kernel that takes the distance
    /// and touches nothing between; an error where it does not lie here.
    pub(crate) fn strided<E: Element, T>(
        &self,
        matrix: &Matrix<Self, E>,
    ) -> Result<DevicePtr<T>, Error> {
        if !matrix.buffer.belongs_to(&self.retired) {
            let (rows, columns) = matrix.shape();
            return Err(self.elsewhere(format!("a matrix of {rows} x {columns}")));
        }
        let before = matrix.elements_before() * size_of::<E>();
        Ok(DevicePtr::new(matrix.buffer.address() + before as u64))
    }

    /// Address of an array; an error where it does not lie here.
    pub(crate) fn array<T: Pod + Send + Sync, U>(
        &self,
        array: &Array<Self, T>,
    ) -> Result<DevicePtr<U>, Error> {
        if !array.buffer.belongs_to(&self.retired) {
            return Err(self.elsewhere(format!("an array of {}", array.len())));
        }
        Ok(DevicePtr::new(array.buffer.address()))
    }

    /// Address of an array, or null.
    pub(crate) fn optional_array<T: Pod + Send + Sync, U>(
        &self,
        array: Option<&Array<Self, T>>,
    ) -> Result<DevicePtr<U>, Error> {
        array.map_or(Ok(DevicePtr::NULL), |array| self.array(array))
    }

    /// Address of a matrix, or null.
    pub(crate) fn optional_matrix<E: Element, T>(
        &self,
        matrix: Option<&Matrix<Self, E>>,
    ) -> Result<DevicePtr<T>, Error> {
        matrix.map_or(Ok(DevicePtr::NULL), |matrix| self.matrix(matrix))
    }

    fn allocator(&self) -> Allocator<'_, D> {
        Allocator {
            driver: &self.driver,
            ledger: &self.ledger,
            retired: &self.retired,
        }
    }

    /// The bytes of elements that go to ranks or come from them.
    fn parts<'a, T: Pod>(
        &self,
        transfers: &'a [Transfer<'_, Self, T>],
    ) -> Result<Vec<Part<'a, D::Buffer>>, Error> {
        let part = |transfer: &'a Transfer<'_, Self, T>| {
            self.expect_here(transfer.buffer)?;
            let bytes = |elements: usize| elements.saturating_mul(size_of::<T>());
            Ok(Part {
                rank: transfer.rank,
                buffer: transfer.buffer.memory(),
                offset: bytes(transfer.elements.start),
                len: bytes(transfer.elements.len()),
            })
        };
        transfers.iter().map(part).collect()
    }

    fn expect_here<T>(&self, buffer: &Buffer<D, T>) -> Result<(), Error> {
        if buffer.belongs_to(&self.retired) {
            return Ok(());
        }
        Err(self.elsewhere(format!("a buffer of {} bytes", buffer.bytes())))
    }

    fn elsewhere(&self, what: String) -> Error {
        Error::Elsewhere {
            what,
            device: self.name(),
        }
    }
}

/// Distance of two rows of a matrix in 16-byte vectors.
pub(crate) fn stride_vectors<D: Driver, E: Element>(
    operator: &'static str,
    matrix: &Matrix<Gpu<D>, E>,
) -> Result<u32, Error> {
    narrow(operator, "columns of a matrix", matrix.stride() / E::LANES)
}

/// A size as kernels count it.
pub(crate) fn narrow(
    operator: &'static str,
    what: &'static str,
    value: usize,
) -> Result<u32, Error> {
    u32::try_from(value).map_err(|_| Error::Unsupported {
        operator,
        reason: format!("{what}: {value} is more than 2^32 - 1"),
    })
}

impl<D: Driver> Storage for Gpu<D> {
    type Buffer<T: Pod> = Buffer<D, T>;
    type Recording = Recording<D>;
    type Link = D::Link;

    fn name(&self) -> String {
        self.driver.info().name.clone()
    }

    fn only_counts(&self) -> bool {
        self.counts.is_some()
    }

    fn prefetch(&self, kernels: KernelSet) {
        self.kernels.prefetch(&self.driver, kernels);
    }

    fn modules(&self) -> Vec<ModuleState> {
        self.kernels.modules(&self.driver)
    }

    fn alloc<T: Pod>(&self, len: usize, kind: MemoryKind) -> Result<Buffer<D, T>, Error> {
        Buffer::zeroed(&self.allocator(), len, kind)
    }

    fn alloc_uncleared<T: Pod>(&self, len: usize, kind: MemoryKind) -> Result<Buffer<D, T>, Error> {
        Buffer::uninitialised(&self.allocator(), len, kind)
    }

    fn is_remote<T: Pod>(&self, buffer: &Self::Buffer<T>) -> bool {
        buffer.is_on_host()
    }

    fn clear<T: Pod>(&self, buffer: &Buffer<D, T>) -> Result<(), Error> {
        self.expect_here(buffer)?;
        if self.kernels.is_silent() {
            return Ok(());
        }
        Ok(self.driver.fill(buffer.memory(), 0)?)
    }

    fn upload<T: Pod>(&self, buffer: &Buffer<D, T>, source: &[T]) -> Result<(), Error> {
        self.upload_at(buffer, 0, source)
    }

    fn download<T: Pod>(&self, buffer: &Buffer<D, T>, target: &mut [T]) -> Result<(), Error> {
        self.download_at(buffer, 0, target)
    }

    fn upload_at<T: Pod>(
        &self,
        buffer: &Buffer<D, T>,
        at: usize,
        source: &[T],
    ) -> Result<(), Error> {
        self.expect_here(buffer)?;
        let (offset, bytes) = (
            at.saturating_mul(size_of::<T>()),
            bytemuck::cast_slice(source),
        );
        Ok(self.driver.upload(buffer.memory(), offset, bytes)?)
    }

    fn download_at<T: Pod>(
        &self,
        buffer: &Buffer<D, T>,
        at: usize,
        target: &mut [T],
    ) -> Result<(), Error> {
        self.expect_here(buffer)?;
        let offset = at.saturating_mul(size_of::<T>());
        let bytes = bytemuck::cast_slice_mut(target);
        Ok(self.driver.download(buffer.memory(), offset, bytes)?)
    }

    fn record(
        &self,
        work: impl FnOnce() -> Result<(), Error>,
    ) -> Result<Option<Recording<D>>, Error> {
        self.record_operators(work).map(Some)
    }

    fn replay(&self, recording: &Recording<D>) -> Result<(), Error> {
        self.replay_operators(recording)
    }

    fn has_beside(&self) -> bool {
        self.driver.has_streams()
    }

    fn beside(&self) -> Result<Option<Self>, Error> {
        match self.has_beside() {
            true => Ok(Some(self.on(self.driver.new_urgent_stream()?))),
            false => Ok(None),
        }
    }

    fn follow(&self, other: &Self) -> Result<(), Error> {
        Ok(self.driver.wait(&other.driver.record()?)?)
    }

    fn synchronize(&self) -> Result<(), Error> {
        Ok(self.driver.synchronize()?)
    }

    fn timed(&self, work: impl FnOnce() -> Result<(), Error>) -> Result<f64, Error> {
        let start = self.driver.record()?;
        work()?;
        let end = self.driver.record()?;
        Ok(self.driver.elapsed_ms(&start, &end)?)
    }

    fn interconnect(&self) -> Result<Interconnect, Error> {
        Ok(self.driver.interconnect()?)
    }

    fn link_id(&self) -> Result<Vec<u8>, Error> {
        Ok(self.driver.link_id()?)
    }

    fn link(&self, place: LinkPlace<'_>, watch: Watch) -> Result<D::Link, Error> {
        Ok(self.driver.link(place, watch)?)
    }

    fn transfer<T: Pod>(
        &self,
        link: &D::Link,
        sends: &[Transfer<'_, Self, T>],
        receives: &[Transfer<'_, Self, T>],
    ) -> Result<(), Error> {
        let (sends, receives) = (self.parts(sends)?, self.parts(receives)?);
        Ok(self.driver.transfer(link, &sends, &receives)?)
    }

    fn transfer_begin<T: Pod>(
        &self,
        link: &D::Link,
        sends: &[Transfer<'_, Self, T>],
        receives: &[Transfer<'_, Self, T>],
    ) -> Result<(), Error> {
        let (sends, receives) = (self.parts(sends)?, self.parts(receives)?);
        Ok(self.driver.transfer_begin(link, &sends, &receives)?)
    }

    fn transfer_end<T: Pod>(
        &self,
        link: &D::Link,
        receives: &[Transfer<'_, Self, T>],
    ) -> Result<(), Error> {
        Ok(self.driver.transfer_end(link, &self.parts(receives)?)?)
    }

    fn sum_words(&self, link: &D::Link, words: &mut Array<Self, u32>) -> Result<(), Error> {
        self.expect_here(&words.buffer)?;
        Ok(self
            .driver
            .sum_words(link, words.buffer.memory(), words.len())?)
    }

    fn cut(&self, link: &D::Link, reason: &str) {
        self.driver.cut(link, reason);
    }

    fn memory(&self) -> MemoryReport {
        self.ledger.report()
    }

    fn reset_peak(&self) {
        // What operators of before wanted is no part of what those wanted that come.
        self.workspace.give_back();
        self.ledger.reset_peak();
        self.driver.reset_peak();
    }
}

/// The entry of a family for elements `E`.
pub(crate) fn entry<E: Element>(family: &'static str) -> Result<&'static str, Error> {
    type Key = (&'static str, Format);
    static ENTRIES: LazyLock<HashMap<Key, &'static str>> = LazyLock::new(|| {
        let keyed = |entry: EntrySpec| Some((entry.key?, entry.name));
        halfgnn_contract::entries().filter_map(keyed).collect()
    });
    let found = ENTRIES.get(&(family, E::PRECISION.format()));
    found.copied().ok_or_else(|| {
        Error::Contract(format!(
            "the launch contract has no `{family}` in {}",
            E::PRECISION
        ))
    })
}

/// CTAs in x, and in y, of the threads that this family has.
pub(crate) fn dense_config(
    operator: &'static str,
    ctas: u64,
    ctas_y: u32,
    shared_bytes: u32,
) -> Result<LaunchConfig, Error> {
    let threads = halfgnn_contract::elementwise::THREADS_PER_CTA;
    let config = linear_config(operator, ctas, threads, shared_bytes)?;
    let grid = [config.grid[0], ctas_y, 1];
    Ok(LaunchConfig { grid, ..config })
}

/// A launch of `ctas` CTAs of `threads` threads, in x alone.
pub(crate) fn linear_config(
    operator: &'static str,
    ctas: u64,
    threads: u32,
    shared_bytes: u32,
) -> Result<LaunchConfig, Error> {
    let ctas = usize::try_from(ctas).unwrap_or(usize::MAX);
    Ok(LaunchConfig {
        grid: [narrow(operator, "CTAs", ctas)?, 1, 1],
        block: [threads, 1, 1],
        shared_bytes,
    })
}
