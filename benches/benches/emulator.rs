//! Speed of the emulator, in lane-instructions a second, every check on.

#![allow(missing_docs)] // `criterion_group!` makes a public function

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use half::f16;
use halfgnn::driver::emulated::Options;
use halfgnn_benches::{Operator, SddmmOperator, SpmmOperator, emulator, kronecker};

fn instructions<O: Operator>(criterion: &mut Criterion) {
    let backend = emulator(Options {
        record: true,
        ..Options::default()
    });
    let mut operands =
        O::operands::<_, f16>(&backend, &kronecker(10), 64).expect("room for the operands");
    O::call(&backend, &mut operands).expect("a legal operator");
    let launches = backend.driver().take_launches();
    let instructions = launches
        .iter()
        .map(|launch| launch.report.counts.lane_instructions())
        .sum();

    let mut group = criterion.benchmark_group("emulator");
    group.throughput(Throughput::Elements(instructions));
    group.bench_function(format!("{}/half/kron10/F=64", O::NAME), |bencher| {
        bencher.iter(|| {
            O::call(&backend, &mut operands).expect("a legal operator");
            backend.driver().take_launches()
        });
    });
    group.finish();
}

criterion_group!(
    benches,
    instructions::<SpmmOperator>,
    instructions::<SddmmOperator>
);
criterion_main!(benches);
