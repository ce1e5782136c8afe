//! SDDMM in half and in float, edges a second: on the CPU, on the emulator, and with `--features cuda` on a GPU.

#![allow(missing_docs)] // `criterion_group!` makes a public function

use criterion::{criterion_group, criterion_main};
use halfgnn_benches::{SddmmOperator, on_every_device};

criterion_group!(benches, on_every_device::<SddmmOperator>);
criterion_main!(benches);
