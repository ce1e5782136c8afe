//! SpMM in half and in float, edges a second: on the CPU, and with `--features cuda` on a card.

#![allow(missing_docs)] // `criterion_group!` makes a public function

use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use half::f16;
use halfgnn::backend::Backend;
use halfgnn::backend::cpu::Cpu;
use halfgnn::graph::Graph;
use halfgnn::tensor::Element;
use halfgnn_benches::{Operands, kronecker};
use std::time::Duration;

const FEATURES: [usize; 2] = [32, 64];

fn time<B: Backend, E: Element>(
    criterion: &mut Criterion,
    backend: &B,
    label: &str,
    graph: &Graph,
) {
    let mut group = criterion.benchmark_group(format!("spmm/{label}/{}", E::PRECISION));
    group.throughput(Throughput::Elements(graph.edges() as u64));
    for features in FEATURES {
        let mut operands =
            Operands::<B, E>::new(backend, graph, features).expect("room for the operands");
        let id = BenchmarkId::from_parameter(format!("F={features}"));
        group.bench_function(id, |bencher| {
            // The device's own clock, where it has one: launches return before their work is done.
            bencher.iter_custom(|iterations| {
                let run = || (0..iterations).try_for_each(|_| operands.spmm(backend));
                let ms = backend.timed(run).expect("a legal SpMM");
                Duration::from_secs_f64(ms / 1e3)
            });
        });
    }
    group.finish();
}

fn cpu(criterion: &mut Criterion) {
    let (backend, graph) = (Cpu::new(), kronecker(14));
    time::<_, f16>(criterion, &backend, "cpu/kron14", &graph);
    time::<_, f32>(criterion, &backend, "cpu/kron14", &graph);
}

#[cfg(feature = "cuda")]
fn cuda(criterion: &mut Criterion) {
    use halfgnn::backend::gpu::Gpu;
    use halfgnn::driver::Driver;
    use halfgnn::driver::cuda::Cuda;

    let driver = match Cuda::open(0) {
        Ok(driver) => driver,
        Err(reason) => return println!("spmm/cuda: skipped: {reason}"),
    };
    let ptx = halfgnn::ptx::read(Some(driver.info().compute_capability)).expect("the kernels' PTX");
    let backend = Gpu::new(driver, &ptx).expect("the PTX fits this program");
    let graph = kronecker(20);
    time::<_, f16>(criterion, &backend, "cuda/kron20", &graph);
    time::<_, f32>(criterion, &backend, "cuda/kron20", &graph);
}

#[cfg(not(feature = "cuda"))]
fn cuda(_: &mut Criterion) {}

criterion_group!(benches, cpu, cuda);
criterion_main!(benches);
