//! What the benches share: SpMM and SDDMM on Graph500 graphs, on any backend, and one way to time them.

use criterion::measurement::WallTime;
use criterion::{BenchmarkGroup, BenchmarkId, Criterion, Throughput};
use half::f16;
use halfgnn::backend::cpu::Cpu;
use halfgnn::backend::gpu::Gpu;
use halfgnn::backend::{Backend, DeviceGraph, MemoryKind};
use halfgnn::driver::Driver;
use halfgnn::driver::emulated::{Emulated, Options};
use halfgnn::graph::Graph;
use halfgnn::graph::generate::Rmat;
use halfgnn::kernels::Kernels;
use halfgnn::ops::{Sddmm, Spmm, edge_plane};
use halfgnn::tensor::{Array, Element, Matrix};
use halfgnn::{Error, ops};
use std::time::Duration;

/// Graph500's graph of 2^`scale` vertices.
///
/// # Panics
/// Where the scale is out of range.
pub fn kronecker(scale: u32) -> Graph {
    Rmat::graph500(scale)
        .generate(1)
        .expect("a scale that Graph500 has")
}

/// An operator over the edges of a graph.
pub trait Operator {
    /// Its name.
    const NAME: &'static str;
    /// What it reads and writes.
    type Operands<B: Backend, E: Element>;

    /// Ones in the shape that fits `graph`.
    ///
    /// # Errors
    /// Those of the device.
    fn operands<B: Backend, E: Element>(
        backend: &B,
        graph: &Graph,
        features: usize,
    ) -> Result<Self::Operands<B, E>, Error>;

    /// One call.
    ///
    /// # Errors
    /// Those of the device.
    fn call<B: Backend, E: Element>(
        backend: &B,
        operands: &mut Self::Operands<B, E>,
    ) -> Result<(), Error>;
}

fn ones<B: Backend, E: Element>(
    backend: &B,
    graph: &Graph,
    features: usize,
) -> Result<Matrix<B, E>, Error> {
    let values = vec![1.0; graph.vertices() * features];
    Matrix::from_f32(
        backend,
        graph.vertices(),
        features,
        &values,
        MemoryKind::Features,
    )
}

/// `y = A x`.
#[derive(Debug)]
pub struct SpmmOperator;

/// Operands of an SpMM.
#[derive(Debug)]
pub struct SpmmOperands<B: Backend, E: Element> {
    graph: DeviceGraph<B>,
    x: Matrix<B, E>,
    y: Matrix<B, E>,
}

impl Operator for SpmmOperator {
    const NAME: &'static str = "spmm";
    type Operands<B: Backend, E: Element> = SpmmOperands<B, E>;

    fn operands<B: Backend, E: Element>(
        backend: &B,
        graph: &Graph,
        features: usize,
    ) -> Result<SpmmOperands<B, E>, Error> {
        Ok(SpmmOperands {
            graph: DeviceGraph::new(backend, graph)?,
            x: ones(backend, graph, features)?,
            y: ones(backend, graph, features)?,
        })
    }

    fn call<B: Backend, E: Element>(
        backend: &B,
        SpmmOperands { graph, x, y }: &mut SpmmOperands<B, E>,
    ) -> Result<(), Error> {
        ops::spmm(backend, graph.forward(), &Spmm::default(), x, y)
    }
}

/// `e[k] = u[row k] · v[column k]`.
#[derive(Debug)]
pub struct SddmmOperator;

/// Operands of an SDDMM.
#[derive(Debug)]
pub struct SddmmOperands<B: Backend, E: Element> {
    graph: DeviceGraph<B>,
    u: Matrix<B, E>,
    v: Matrix<B, E>,
    e: Array<B, E>,
}

impl Operator for SddmmOperator {
    const NAME: &'static str = "sddmm";
    type Operands<B: Backend, E: Element> = SddmmOperands<B, E>;

    fn operands<B: Backend, E: Element>(
        backend: &B,
        graph: &Graph,
        features: usize,
    ) -> Result<SddmmOperands<B, E>, Error> {
        Ok(SddmmOperands {
            graph: DeviceGraph::new(backend, graph)?,
            u: ones(backend, graph, features)?,
            v: ones(backend, graph, features)?,
            e: Array::zeros(backend, edge_plane(graph.edges()), MemoryKind::Activations)?,
        })
    }

    fn call<B: Backend, E: Element>(
        backend: &B,
        SddmmOperands { graph, u, v, e }: &mut SddmmOperands<B, E>,
    ) -> Result<(), Error> {
        ops::sddmm(backend, graph.forward(), &Sddmm::default(), u, v, e)
    }
}

/// Feature lengths that are timed.
const FEATURES: [usize; 2] = [32, 64];

/// Times an operator in both precisions, edges a second: on the CPU, on the emulator (which is the emulator's speed,
/// and not a GPU's), and with the feature `cuda` on a GPU.
///
/// # Panics
/// Where a device fails, or the kernels' PTX is missing or of other sources.
pub fn on_every_device<O: Operator>(criterion: &mut Criterion) {
    precisions::<Cpu, O>(criterion, &Cpu::new(), "cpu/kron14", 14);
    precisions::<_, O>(
        criterion,
        &emulator(Options::default()),
        "emulator/kron8",
        8,
    );
    on_a_card::<O>(criterion);
}

#[cfg(feature = "cuda")]
fn on_a_card<O: Operator>(criterion: &mut Criterion) {
    match halfgnn::driver::cuda::Cuda::open(0) {
        Ok(driver) => precisions::<_, O>(criterion, &gpu(driver), "cuda/kron20", 20),
        Err(reason) => println!("{}/cuda: skipped: {reason}", O::NAME),
    }
}

#[cfg(not(feature = "cuda"))]
fn on_a_card<O: Operator>(_: &mut Criterion) {}

/// The kernels on the emulator.
///
/// # Panics
/// Where the kernels' PTX is missing or of other sources.
pub fn emulator(options: Options) -> Gpu<Emulated> {
    gpu(Emulated::with_options(options))
}

fn gpu<D: Driver>(driver: D) -> Gpu<D> {
    let kernels = Kernels::find(Some(driver.info().compute_capability)).expect("the kernels");
    Gpu::new(driver, kernels).expect("the kernels fit this program")
}

fn precisions<B: Backend, O: Operator>(
    criterion: &mut Criterion,
    backend: &B,
    label: &str,
    scale: u32,
) {
    let graph = kronecker(scale);
    time::<B, f16, O>(criterion, backend, label, &graph);
    time::<B, f32, O>(criterion, backend, label, &graph);
}

fn time<B: Backend, E: Element, O: Operator>(
    criterion: &mut Criterion,
    backend: &B,
    label: &str,
    graph: &Graph,
) {
    let name = format!("{}/{label}/{}", O::NAME, E::PRECISION);
    let mut group: BenchmarkGroup<'_, WallTime> = criterion.benchmark_group(name);
    group.throughput(Throughput::Elements(graph.edges() as u64));
    for features in FEATURES {
        let mut operands =
            O::operands::<B, E>(backend, graph, features).expect("room for the operands");
        let id = BenchmarkId::from_parameter(format!("F={features}"));
        group.bench_function(id, |bencher| {
            // The device's own clock, where it has one: launches return before their work is done.
            bencher.iter_custom(|iterations| {
                let run = || (0..iterations).try_for_each(|_| O::call(backend, &mut operands));
                let ms = backend.timed(run).expect("a legal operator");
                Duration::from_secs_f64(ms / 1e3)
            });
        });
    }
    group.finish();
}
