//! The conformance suite on a CUDA card: the same cases as on the CPU and on the emulator.
#![cfg(feature = "cuda")]

use half::f16;
use halfgnn::backend::cpu::Cpu;
use halfgnn::backend::gpu::Gpu;
use halfgnn::driver::cuda::Cuda;
use halfgnn::driver::{Driver, DriverError};
use halfgnn_tests::Scale;
use halfgnn_tests::training::{assert_agree, models, parameters_after};
use std::sync::LazyLock;

static CARD: LazyLock<Option<Gpu<Cuda>>> = LazyLock::new(|| {
    let driver = match Cuda::open(0) {
        Ok(driver) => driver,
        Err(DriverError::Unavailable(reason)) => {
            println!("skipped: {reason}");
            return None;
        }
        Err(error) => panic!("{error}"),
    };
    let ptx = halfgnn::ptx::read(Some(driver.info().compute_capability)).expect("the kernels' PTX");
    Some(Gpu::new(driver, &ptx).expect("the PTX fits this program and the card"))
});

halfgnn_tests::conformance!(|| CARD.as_ref(), Scale::Full);

#[test]
fn training_follows_the_cpu() {
    let Some(card) = CARD.as_ref() else { return };
    let cpu = Cpu::new();
    for (name, model) in models() {
        println!("{name}");
        let expected = parameters_after::<_, f16>(&cpu, &model, 1);
        let actual = parameters_after::<_, f16>(card, &model, 1);
        assert_agree(&expected, &actual, 1e-5, 0.02);
        let expected = parameters_after::<_, f32>(&cpu, &model, 6);
        let actual = parameters_after::<_, f32>(card, &model, 6);
        assert_agree(&expected, &actual, 1e-3, 0.1);
    }
}

#[test]
fn training_repeats_bit_for_bit() {
    let Some(card) = CARD.as_ref() else { return };
    for (name, model) in models() {
        let first = parameters_after::<_, f16>(card, &model, 5);
        assert_eq!(first, parameters_after::<_, f16>(card, &model, 5), "{name}");
    }
}
