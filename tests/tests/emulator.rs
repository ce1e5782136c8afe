//! The conformance suite on the kernels' own PTX, run by the emulator with every check on: a kernel that reads out of
//! bounds, reads what nothing wrote, or races, fails here.

use half::{bf16, f16};
use halfgnn::backend::cpu::Cpu;
use halfgnn::backend::gpu::Gpu;
use halfgnn::driver::Driver;
use halfgnn::driver::emulated::{Emulated, Options};
use halfgnn_tests::Scale;
use halfgnn_tests::properties::in_any_order;
use halfgnn_tests::second_levels::MULTIPROCESSORS;
use halfgnn_tests::training::{assert_steps_agree, models, parameters_after};
use std::sync::LazyLock;

fn open(options: Options) -> Gpu<Emulated> {
    let driver = Emulated::with_options(options);
    let ptx = halfgnn::ptx::read(Some(driver.info().compute_capability)).expect("the kernels' PTX");
    Gpu::new(driver, &ptx).expect("the PTX fits this program")
}

static EMULATOR: LazyLock<Gpu<Emulated>> = LazyLock::new(|| open(Options::default()));

halfgnn_tests::conformance!(|| Some(&*EMULATOR), Scale::Small);

/// An emulated card of as many multiprocessors as a large one has: products are split more than 64 times.
#[test]
fn products_on_many_multiprocessors() {
    let many = open(Options {
        multiprocessors: MULTIPROCESSORS,
        ..Options::default()
    });
    halfgnn_tests::second_levels::split_products(&many, Scale::Small);
}

#[test]
fn steps_are_recorded() {
    halfgnn_tests::recording::assert_recorded(&*EMULATOR, true);
}

#[test]
fn training_follows_the_cpu() {
    let cpu = Cpu::new();
    for (name, model) in models() {
        println!("{name}");
        assert_steps_agree::<_, _, f16>((&cpu, &*EMULATOR), &model, 2);
        assert_steps_agree::<_, _, bf16>((&cpu, &*EMULATOR), &model, 2);
        assert_steps_agree::<_, _, f32>((&cpu, &*EMULATOR), &model, 2);
    }
}

#[test]
fn spmm_in_any_order() {
    in_any_order::spmm(&open(Options::default()));
}

#[test]
fn sddmm_in_any_order() {
    in_any_order::sddmm(&open(Options::default()));
}

#[test]
fn matmul_in_any_order() {
    in_any_order::matmul(&open(Options::default()));
}

/// Blocks and warps may run in any order: the bits are the same, and no order shows a race.
#[test]
fn training_in_any_order() {
    let backend = open(Options::default());
    for (name, model) in models() {
        let expected = parameters_after::<_, f16>(&backend, &model, 1);
        for seed in 1..=3 {
            backend.driver().set_seed(seed);
            let actual = parameters_after::<_, f16>(&backend, &model, 1);
            assert_eq!(actual, expected, "{name}, seed {seed}");
        }
    }
}
