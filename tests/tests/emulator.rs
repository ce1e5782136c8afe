//! The conformance suite on the kernels' own PTX, run by the emulator with every check on: a kernel that reads out of
//! bounds, reads what nothing wrote, or races, fails here.

use half::f16;
use halfgnn::backend::cpu::Cpu;
use halfgnn::backend::gpu::Gpu;
use halfgnn::driver::Driver;
use halfgnn::driver::emulated::{Emulated, Options};
use halfgnn_tests::Scale;
use halfgnn_tests::training::{assert_agree, parameters_after};
use std::sync::LazyLock;

fn open(options: Options) -> Gpu<Emulated> {
    let driver = Emulated::with_options(options);
    let ptx = halfgnn::ptx::read(Some(driver.info().compute_capability)).expect("the kernels' PTX");
    Gpu::new(driver, &ptx).expect("the PTX fits this program")
}

static EMULATOR: LazyLock<Gpu<Emulated>> = LazyLock::new(|| open(Options::default()));

halfgnn_tests::conformance!(|| Some(&*EMULATOR), Scale::Small);

#[test]
fn training_follows_the_cpu() {
    let cpu = Cpu::new();
    let expected = parameters_after::<_, f16>(&cpu, 1);
    assert_agree(
        &expected,
        &parameters_after::<_, f16>(&*EMULATOR, 1),
        1e-6,
        0.02,
    );
    let expected = parameters_after::<_, f32>(&cpu, 20);
    assert_agree(
        &expected,
        &parameters_after::<_, f32>(&*EMULATOR, 20),
        1e-3,
        0.1,
    );
}

/// Blocks and warps may run in any order: the bits are the same, and no order shows a race.
#[test]
fn the_order_of_blocks_does_not_matter() {
    let expected = parameters_after::<_, f16>(&*EMULATOR, 1);
    for seed in 1..=3 {
        let mut options = Options::default();
        options.launch.seed = seed;
        assert_eq!(
            parameters_after::<_, f16>(&open(options), 1),
            expected,
            "seed {seed}"
        );
    }
}
