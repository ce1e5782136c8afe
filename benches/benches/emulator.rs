//! Speed of the emulator, in lane-instructions a second, every check on.

#![allow(missing_docs)] // `criterion_group!` makes a public function

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use half::f16;
use halfgnn::backend::gpu::Gpu;
use halfgnn::driver::Driver;
use halfgnn::driver::emulated::{Emulated, Options};
use halfgnn_benches::{Operands, kronecker};

fn spmm(criterion: &mut Criterion) {
    let driver = Emulated::with_options(Options {
        record: true,
        ..Options::default()
    });
    let ptx = halfgnn::ptx::read(Some(driver.info().compute_capability)).expect("the kernels' PTX");
    let backend = Gpu::new(driver, &ptx).expect("the PTX fits this program");
    let mut operands =
        Operands::<_, f16>::new(&backend, &kronecker(10), 64).expect("room for the operands");
    operands.spmm(&backend).expect("a legal SpMM");
    let launches = backend.driver().take_launches();
    let instructions = launches
        .iter()
        .map(|launch| launch.report.counts.lane_instructions())
        .sum();

    let mut group = criterion.benchmark_group("emulator");
    group.throughput(Throughput::Elements(instructions));
    group.bench_function("spmm/half/kron10/F=64", |bencher| {
        bencher.iter(|| {
            operands.spmm(&backend).expect("a legal SpMM");
            backend.driver().take_launches()
        });
    });
    group.finish();
}

criterion_group!(benches, spmm);
criterion_main!(benches);
