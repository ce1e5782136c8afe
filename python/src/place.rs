//! Where operators run, by what Python says: `(kind, ordinal, stream)`.

use crate::errors::exception;
use crate::memory::Lend;
use crate::threads;
use halfgnn::Error;
use halfgnn::backend::cpu::Cpu;
use halfgnn::backend::gpu::Gpu;
use halfgnn::driver::emulated::Emulated;
use halfgnn::kernels::Kernels;
use halfgnn::tensor::Precision;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{LazyLock, Mutex, PoisonError};

/// A device, and of a GPU the stream.
#[derive(Clone, Copy, Debug)]
#[cfg_attr(
    not(feature = "cuda"),
    expect(dead_code, reason = "there is no stream without CUDA")
)]
pub enum Place {
    /// The CPU.
    Cpu,
    /// A GPU: its number, and a `CUstream`.
    Cuda(u32, u64),
    /// The emulator, for tests.
    Emulator,
}

impl FromPyObject<'_, '_> for Place {
    type Error = PyErr;

    fn extract(object: Borrowed<'_, '_, PyAny>) -> PyResult<Self> {
        let (kind, ordinal, stream): (u8, u32, u64) = object.extract()?;
        match kind {
            0 => Ok(Place::Cpu),
            1 => Ok(Place::Cuda(ordinal, stream)),
            2 => Ok(Place::Emulator),
            _ => Err(PyValueError::new_err(format!("there is no device {kind}"))),
        }
    }
}

/// A format of elements, by the number that Python gives it.
pub fn precision(number: u8) -> PyResult<Precision> {
    match number {
        0 => Ok(Precision::Half),
        1 => Ok(Precision::BFloat16),
        2 => Ok(Precision::Float),
        _ => Err(PyValueError::new_err(format!(
            "there is no format {number}"
        ))),
    }
}

/// Operators that are called on borrowed memory.
pub trait Operation: Sync {
    /// Calls them. Done twice on a GPU, the first time without a launch.
    fn run<B: Lend>(&self, backend: &B) -> Result<(), Error>;

    /// All that the workspace on a GPU depends on, which then is counted once.
    #[cfg_attr(
        not(feature = "cuda"),
        expect(dead_code, reason = "workspaces are of GPUs")
    )]
    fn shape(&self) -> Option<Shape> {
        None
    }

    /// Whether the CPU is done with it before another thread would have learnt of it.
    fn is_small(&self) -> bool {
        false
    }
}

/// A name and numbers that distinguish operations that need other workspaces.
pub type Shape = (&'static str, Vec<usize>);

/// Whether memory of the host is the emulator's.
static EMULATED: AtomicBool = AtomicBool::new(false);

/// Has operators that torch calls by itself take memory of the host as the emulator's, or no longer.
#[pyfunction]
pub fn emulate(wanted: bool) {
    EMULATED.store(wanted, Ordering::Relaxed);
}

impl Place {
    /// Of memory of the host.
    pub fn host() -> Self {
        match EMULATED.load(Ordering::Relaxed) {
            false => Place::Cpu,
            true => Place::Emulator,
        }
    }
}

/// The CPU, which all operators share.
pub static CPU: LazyLock<Cpu> = LazyLock::new(Cpu::new);

/// Calls `operation` on the device of `place`. Of a GPU the workspace is memory that `allocate` gives: called with a
/// number of bytes, it returns an object that keeps them, and their address.
pub fn perform(
    py: Python<'_>,
    place: Place,
    allocate: &Bound<'_, PyAny>,
    operation: &impl Operation,
) -> PyResult<()> {
    match place {
        Place::Cpu => py.detach(|| on_cpu(operation))?.map_err(exception),
        Place::Emulator => {
            let backend = emulator()?;
            py.detach(|| threads::install(|| operation.run(&backend)))?
                .map_err(exception)
        }
        #[cfg(feature = "cuda")]
        Place::Cuda(ordinal, stream) => {
            let card = crate::card::open(ordinal).map_err(exception)?;
            let alone = card.alone_attached(py);
            let room = |bytes: u64| {
                allocate
                    .call1((bytes,))?
                    .extract::<(Bound<'_, PyAny>, u64)>()
            };
            card.perform(stream, room, operation, alone)?
                .map_err(exception)
        }
        #[cfg(not(feature = "cuda"))]
        Place::Cuda(ordinal, _) => {
            let _ = allocate;
            Err(without_cuda(ordinal))
        }
    }
}

/// [`perform`] for a thread that need not hold the interpreter: None where something fails.
pub fn perform_unattached<M>(
    place: Place,
    room: impl FnOnce(u64) -> Option<(M, u64)>,
    operation: &impl Operation,
) -> Option<()> {
    match place {
        Place::Cpu => on_cpu(operation).ok()?.ok(),
        Place::Emulator => {
            let backend = emulator().ok()?;
            threads::install(|| operation.run(&backend)).ok()?.ok()
        }
        #[cfg(feature = "cuda")]
        Place::Cuda(ordinal, stream) => {
            let card = crate::card::open(ordinal).ok()?;
            let room = |bytes| room(bytes).ok_or(());
            card.perform(stream, room, operation, card.alone())
                .ok()?
                .ok()
        }
        #[cfg(not(feature = "cuda"))]
        Place::Cuda(..) => {
            let _ = room;
            None
        }
    }
}

fn on_cpu(operation: &impl Operation) -> PyResult<Result<(), Error>> {
    let work = || operation.run(&*CPU);
    match operation.is_small() {
        true => threads::here(work),
        false => threads::install(work),
    }
}

/// That this wheel was built without CUDA.
#[cfg(not(feature = "cuda"))]
pub fn without_cuda(ordinal: u32) -> PyErr {
    pyo3::exceptions::PyRuntimeError::new_err(format!(
        "cuda:{ordinal}: this halfgnn was built without CUDA; build the wheel with `cargo xtask wheel`, or move the tensors to \
         the CPU"
    ))
}

/// The emulator, one for all, with its kernels.
pub fn emulator() -> PyResult<Gpu<Emulated>> {
    static EMULATOR: Mutex<Option<Gpu<Emulated>>> = Mutex::new(None);
    let mut emulator = EMULATOR.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(backend) = &*emulator {
        return Ok(backend.clone());
    }
    let kernels = Kernels::find(None).map_err(|error| exception(error.into()))?;
    let backend = Gpu::new(Emulated::new(), kernels).map_err(exception)?;
    Ok(emulator.insert(backend).clone())
}

/// Has kernels looked for in a folder.
#[pyfunction]
pub fn kernels_in(folder: PathBuf) {
    halfgnn::kernels::look_in(folder);
}

/// Opens the device of a place, kernels included, so that nothing of it is left for an operator to do: not while a
/// graph is captured.
#[pyfunction]
pub fn load(place: Place) -> PyResult<()> {
    match place {
        Place::Cpu => threads::threads().map(|_| ()),
        Place::Emulator => emulator().map(|_| ()),
        #[cfg(feature = "cuda")]
        Place::Cuda(ordinal, _) => crate::card::open(ordinal).map(|_| ()).map_err(exception),
        #[cfg(not(feature = "cuda"))]
        Place::Cuda(ordinal, _) => Err(without_cuda(ordinal)),
    }
}

/// Where the kernels are, and the modules in each form, a line each; or why there are none.
#[pyfunction]
pub fn kernels() -> Vec<String> {
    match Kernels::find(None) {
        Ok(kernels) => {
            let mut lines = vec![format!("kernels: {kernels}")];
            let mut forms: BTreeMap<String, Vec<&str>> = BTreeMap::new();
            for (name, record) in kernels.modules() {
                let code: Vec<&str> = record.machine_code.keys().map(String::as_str).collect();
                let ptx: Vec<&str> = record.ptx.keys().map(String::as_str).collect();
                let form = match (code.is_empty(), ptx.is_empty()) {
                    (_, true) => "not in this package".to_owned(),
                    (true, _) => format!("PTX for {}", ptx.join(", ")),
                    (false, _) => format!(
                        "machine code for {}, PTX for {}",
                        code.join(", "),
                        ptx.join(", ")
                    ),
                };
                forms.entry(form).or_default().push(name);
            }
            lines.extend(
                forms
                    .into_iter()
                    .map(|(form, modules)| format!("  {form}: {}", modules.join(" "))),
            );
            lines
        }
        Err(error) => vec![format!("kernels: {error}")],
    }
}

/// System, architecture and vector instructions of the processor, and what the system calls it, as a person reads them.
#[pyfunction]
pub fn processor() -> String {
    halfgnn::device::Processor::survey().to_string()
}

/// What GPUs there are, a line each, or why there is none.
#[pyfunction]
pub fn survey() -> Result<Vec<String>, PyErr> {
    #[cfg(feature = "cuda")]
    {
        let (_, cards) =
            halfgnn::driver::cuda::Cuda::survey().map_err(|error| exception(error.into()))?;
        let line = |card: halfgnn::driver::DeviceInfo| {
            let (major, minor) = card.compute_capability;
            format!("{}, sm_{major}{minor}", card.name)
        };
        Ok(cards.into_iter().map(line).collect())
    }
    #[cfg(not(feature = "cuda"))]
    Err(without_cuda(0))
}
