//! Operators in a graph of somebody else's: a stream that is captured from outside, as a framework does it, takes their
//! launches, and nothing is allocated meanwhile. A test of its own process, since such a capture forbids what other tests do.
#![cfg(feature = "cuda")]

use half::f16;
use halfgnn::Error;
use halfgnn::backend::gpu::Gpu;
use halfgnn::backend::{Adjacency, MemoryKind, Storage};
use halfgnn::driver::cuda::Cuda;
use halfgnn::driver::{Driver, DriverError};
use halfgnn::kernels::Kernels;
use halfgnn::ops::{self, Epilogue, Form, Spmm};
use halfgnn::tensor::{Array, Matrix};
use halfgnn_tests::graphs::power_law;
use halfgnn_tests::input::{Random, matrix, read, unwritten};
use libloading::Library;
use std::ffi::c_void;
use std::ptr::null_mut;

/// A `CUstream`, `CUgraph` or `CUgraphExec`.
type Handle = *mut c_void;

/// `CU_STREAM_NON_BLOCKING`: it does not wait for the legacy stream.
const NON_BLOCKING: u32 = 1;
/// `CU_STREAM_CAPTURE_MODE_GLOBAL`, the strictest: while it captures, an allocation or a wait of any thread is an error.
const GLOBAL: i32 = 0;

/// The driver's calls that a framework makes, from the library that `halfgnn` uses.
struct Api {
    library: Library,
}

impl Api {
    fn open() -> Self {
        let (name, _) = Cuda::survey().expect("a GPU was opened");
        // SAFETY: the driver's library, which this process has loaded already.
        let library = unsafe { Library::new(name) }.expect("it was loaded before");
        Self { library }
    }

    /// Calls the entry `name`, of the type `F`, by `call`.
    ///
    /// # Safety
    /// The driver's header declares the entry so, and `call` passes what it asks for.
    unsafe fn call<F>(&self, name: &str, call: impl FnOnce(&F) -> i32) {
        // SAFETY: the caller's promise.
        let entry = unsafe { self.library.get::<F>(name.as_bytes()) };
        let code = call(&entry.expect("every driver of these ten years has it"));
        assert_eq!(code, 0, "{name}");
    }

    fn new_stream(&self) -> Handle {
        let mut stream = null_mut();
        type F = unsafe extern "C" fn(*mut Handle, u32) -> i32;
        // SAFETY: a place for the handle; a context is current.
        unsafe { self.call::<F>("cuStreamCreate", |f| f(&mut stream, NON_BLOCKING)) };
        stream
    }

    /// The graph of what `work` queues on `stream`, ready to be launched; and what `work` gave.
    fn capture<T>(&self, stream: Handle, work: impl FnOnce() -> T) -> (Handle, T) {
        let (mut graph, mut executable) = (null_mut(), null_mut());
        type Begin = unsafe extern "C" fn(Handle, i32) -> i32;
        // SAFETY: a stream that is not captured yet.
        unsafe { self.call::<Begin>("cuStreamBeginCapture_v2", |f| f(stream, GLOBAL)) };
        let done = work();
        type End = unsafe extern "C" fn(Handle, *mut Handle) -> i32;
        // SAFETY: this thread began it.
        unsafe { self.call::<End>("cuStreamEndCapture", |f| f(stream, &mut graph)) };
        assert!(!graph.is_null());
        type Instantiate = unsafe extern "C" fn(*mut Handle, Handle, u64) -> i32;
        // SAFETY: a place for the handle, and the graph of the capture.
        unsafe {
            self.call::<Instantiate>("cuGraphInstantiateWithFlags", |f| {
                f(&mut executable, graph, 0)
            });
            self.destroy("cuGraphDestroy", graph);
        }
        (executable, done)
    }

    /// Launches `executable`, and waits for it.
    ///
    /// # Safety
    /// The memory that its launches name is there.
    unsafe fn launch(&self, executable: Handle, stream: Handle) {
        type Launch = unsafe extern "C" fn(Handle, Handle) -> i32;
        type Synchronize = unsafe extern "C" fn(Handle) -> i32;
        // SAFETY: both are alive; the rest is the caller's promise.
        unsafe {
            self.call::<Launch>("cuGraphLaunch", |f| f(executable, stream));
            self.call::<Synchronize>("cuStreamSynchronize", |f| f(stream));
        }
    }

    /// # Safety
    /// Of the kind that the entry destroys, and not used any more.
    unsafe fn destroy(&self, name: &str, handle: Handle) {
        type F = unsafe extern "C" fn(Handle) -> i32;
        // SAFETY: the caller's promise.
        unsafe { self.call::<F>(name, |f| f(handle)) };
    }
}

const VERTICES: usize = 700;
const FEATURES: usize = 41;

/// What the two operators read and write.
struct Operands {
    a: Adjacency<Gpu<Cuda>>,
    x: Matrix<Gpu<Cuda>, f16>,
    sum: Matrix<Gpu<Cuda>, f16>,
    product: Matrix<Gpu<Cuda>, f32>,
}

impl Operands {
    fn new(card: &Gpu<Cuda>, values: &[f32]) -> Self {
        let graph = power_law(VERTICES, 20_000, Random(601));
        Self {
            a: Adjacency::new(card, &graph).expect("room"),
            x: matrix(card, (VERTICES, FEATURES), values),
            sum: unwritten(card, (VERTICES, FEATURES)),
            product: unwritten(card, (FEATURES, FEATURES)),
        }
    }

    /// `A x`, and `(A x)ᵀ x`.
    fn run(&mut self, gpu: &Gpu<Cuda>) -> Result<(), Error> {
        let Self { a, x, sum, product } = self;
        ops::spmm(gpu, a, &Spmm::default(), x, sum)?;
        ops::matmul(gpu, Form::TN, sum, x, &Epilogue::default(), product)
    }

    fn read(&self, gpu: &Gpu<Cuda>) -> (Vec<f32>, Vec<f32>) {
        (read(gpu, &self.sum), read(gpu, &self.product))
    }
}

#[test]
fn operators_are_captured_by_a_foreign_stream() {
    let driver = match Cuda::open(0) {
        Ok(driver) => driver,
        Err(DriverError::Unavailable(reason)) => {
            return halfgnn_tests::skip::skip("CUDA", &reason);
        }
        Err(error) => panic!("{error}"),
    };
    let kernels = Kernels::find(Some(driver.info().compute_capability)).expect("the kernels");
    let card = Gpu::new(driver, kernels).expect("the kernels fit this program and the GPU");
    let inputs = [602, 603].map(|seed| Random(seed).uniform::<f16>(VERTICES * FEATURES));
    // What the operators give on the card's own stream.
    let [first, second] = inputs.each_ref().map(|values| {
        let mut operands = Operands::new(&card, values);
        operands.run(&card).expect("two legal operators");
        operands.read(&card)
    });
    assert_ne!(first, second);

    card.driver().make_current().expect("a context");
    let api = Api::open();
    let stream = api.new_stream();
    // SAFETY: a stream of the primary context, which is destroyed at the end of the test, after the handle.
    let foreign = unsafe { card.driver().on_foreign_stream(stream) }.expect("a handle");
    let foreign = card.on(foreign);
    let mut operands = Operands::new(&card, &inputs[0]);
    let wanted = card.workspace_wanted(|gpu| operands.run(gpu));
    let wanted = wanted.expect("it is told") as usize;
    assert!(wanted > 0, "the sum has a staging buffer");
    let workspace = Array::zeros(&card, wanted / size_of::<f32>(), MemoryKind::Workspace);
    foreign
        .lend_workspace(workspace.expect("room"))
        .expect("of this GPU");
    card.synchronize().expect("all of it is there");

    let before = card.memory();
    let (graph, called) = api.capture(stream, || operands.run(&foreign));
    called.expect("they are captured");
    assert_eq!(card.memory(), before, "nothing was allocated or freed");
    let (sum, product) = operands.read(&card);
    let unwritten = sum.iter().chain(&product).all(|value| value.is_nan());
    assert!(unwritten, "what is captured does not run");

    // SAFETY: the operands and the lent workspace live until the end.
    unsafe { api.launch(graph, stream) };
    assert_eq!(operands.read(&card), first);
    // Again, on what lies in the same memory by then.
    operands
        .x
        .write_f32(&card, &inputs[1])
        .expect("other values");
    card.synchronize().expect("they are there");
    // SAFETY: as above.
    unsafe { api.launch(graph, stream) };
    assert_eq!(operands.read(&card), second);

    drop(foreign);
    // SAFETY: its launches are done, and nobody else has the handles.
    unsafe {
        api.destroy("cuGraphExecDestroy", graph);
        api.destroy("cuStreamDestroy_v2", stream);
    }
}
