//! The conformance suite on a CUDA card: the same cases as on the CPU and on the emulator.
#![cfg(feature = "cuda")]

use half::{bf16, f16};
use halfgnn::backend::cpu::Cpu;
use halfgnn::backend::gpu::Gpu;
use halfgnn::driver::cuda::Cuda;
use halfgnn::driver::{Driver, DriverError};
use halfgnn::kernels::Kernels;
use halfgnn::nn::ConvolutionConfig;
use halfgnn_tests::Scale;
use halfgnn_tests::borrowed;
use halfgnn_tests::task::edge_weights;
use halfgnn_tests::training::{
    assert_steps_agree, models, models_of_activations, models_of_bits, models_of_edge_features,
    models_of_messages_with_a_slight_bend, models_of_store, models_of_weights, parameters_after,
};
use std::sync::LazyLock;

static CARD: LazyLock<Result<Gpu<Cuda>, String>> = LazyLock::new(open);

/// The first card, and an account of its memory that begins with nothing; or why there is none.
fn open() -> Result<Gpu<Cuda>, String> {
    open_number(0)
}

fn open_number(number: u32) -> Result<Gpu<Cuda>, String> {
    let driver = match Cuda::open(number) {
        Ok(driver) => driver,
        Err(DriverError::Unavailable(reason)) => return Err(reason),
        Err(error) => panic!("{error}"),
    };
    let kernels = Kernels::find(Some(driver.info().compute_capability)).expect("the kernels");
    Ok(Gpu::new(driver, kernels).expect("the kernels fit this program and the GPU"))
}

/// The card; where there is none, the test is skipped.
fn card() -> Option<&'static Gpu<Cuda>> {
    CARD.as_ref()
        .map_err(|reason| halfgnn_tests::skip::skip("CUDA", reason))
        .ok()
}

halfgnn_tests::conformance!(card, Scale::Full);

/// Every GPU of this machine, if there are several; a test of ranks by NCCL is skipped on one.
fn several() -> Option<Vec<Gpu<Cuda>>> {
    card()?;
    let gpus: Vec<_> = (0..).map_while(|number| open_number(number).ok()).collect();
    if gpus.len() < 2 {
        halfgnn_tests::skip::skip(
            "SEVERAL_GPUS",
            "this machine has one GPU, and NCCL links two",
        );
        return None;
    }
    Some(gpus)
}

#[test]
fn steps_of_ranks_are_those_of_the_host_by_nccl() {
    let Some(gpus) = several() else { return };
    let own = |rank: usize| gpus[rank].clone();
    halfgnn_tests::ranks::assert_recorded(&gpus[0], own, gpus.len(), true);
    halfgnn_tests::ranks::every_model_links(&gpus[0], own, gpus.len());
}

#[test]
fn batches_of_ranks_are_those_of_the_host_by_nccl() {
    let Some(gpus) = several() else { return };
    let own = |rank: usize| gpus[rank].clone();
    halfgnn_tests::batches::batches_of_ranks_are_recorded(&gpus[0], own, gpus.len());
    halfgnn_tests::batches::batches_are_recorded_around_features_of_ranks(
        &gpus[0],
        own,
        gpus.len(),
    );
}

#[test]
fn steps_are_recorded() {
    if let Some(card) = card() {
        halfgnn_tests::recording::assert_recorded(card, true);
    }
}

#[test]
fn one_network_serves_two_streams() {
    let Some(gpu) = card() else { return };
    let stream = gpu.new_stream().expect("another stream");
    halfgnn_tests::sharing::two_threads([gpu.clone(), stream]);
}

#[test]
fn columns_of_wider_matrices_are_operands() {
    let Some(card) = card() else { return };
    borrowed::strided_operands(card);
    borrowed::strides_are_checked(card);
}

#[test]
fn a_workspace_is_lent() {
    if card().is_some() {
        borrowed::a_workspace_is_lent(&open().expect("it was there"));
    }
}

#[test]
fn training_follows_the_cpu() {
    let Some(card) = card() else { return };
    let cpu = Cpu::new();
    for (name, model) in models() {
        println!("{name}");
        assert_steps_agree::<_, _, f16>((&cpu, card), &model, None, 2);
        assert_steps_agree::<_, _, f32>((&cpu, card), &model, None, 2);
    }
}

#[test]
fn training_on_weighted_edges_follows_the_cpu() {
    let Some(card) = card() else { return };
    let (cpu, weights) = (Cpu::new(), edge_weights());
    let weights = Some(&weights[..]);
    for (name, model) in models_of_weights() {
        println!("{name}");
        assert_steps_agree::<_, _, f32>((&cpu, card), &model, weights, 2);
        // What follows a sum with weights is a pass of its own on a card, which rounds once more, and a batch normalisation makes
        // much of that where a ReLU comes after it.
        if !matches!(model.convolution, ConvolutionConfig::Gin(_)) {
            assert_steps_agree::<_, _, f16>((&cpu, card), &model, weights, 2);
            assert_steps_agree::<_, _, bf16>((&cpu, card), &model, weights, 2);
        }
    }
}

#[test]
fn training_with_messages_of_8_bits_follows_the_cpu() {
    let Some(card) = card() else { return };
    let cpu = Cpu::new();
    for (name, model) in models_of_messages_with_a_slight_bend() {
        println!("{name} {:?}", model.messages);
        assert_steps_agree::<_, _, f16>((&cpu, card), &model, None, 3);
        assert_steps_agree::<_, _, bf16>((&cpu, card), &model, None, 3);
    }
}

#[test]
fn training_with_activations_of_8_bits_follows_the_cpu() {
    let Some(card) = card() else { return };
    let cpu = Cpu::new();
    for (name, model) in models_of_store() {
        println!("{name}");
        assert_steps_agree::<_, _, f16>((&cpu, card), &model, None, 3);
        assert_steps_agree::<_, _, bf16>((&cpu, card), &model, None, 3);
    }
}

#[test]
fn training_through_every_activation_follows_the_cpu() {
    let Some(card) = card() else { return };
    let cpu = Cpu::new();
    for model in models_of_activations() {
        println!("{}", model.activation);
        assert_steps_agree::<_, _, f16>((&cpu, card), &model, None, 2);
        assert_steps_agree::<_, _, bf16>((&cpu, card), &model, None, 2);
        assert_steps_agree::<_, _, f32>((&cpu, card), &model, None, 2);
    }
}

#[test]
fn training_of_one_bit_follows_the_cpu() {
    let Some(card) = card() else { return };
    let cpu = Cpu::new();
    for model in models_of_bits() {
        println!("{} {:?}", model.convolution, model.binary);
        assert_steps_agree::<_, _, f16>((&cpu, card), &model, None, 2);
        // From its second step on a number is within a rounding of zero, and its sign turns.
        assert_steps_agree::<_, _, bf16>((&cpu, card), &model, None, 1);
        assert_steps_agree::<_, _, f32>((&cpu, card), &model, None, 2);
    }
}

#[test]
fn training_on_features_of_edges_follows_the_cpu() {
    let Some(card) = card() else { return };
    let cpu = Cpu::new();
    for (name, model) in models_of_edge_features() {
        println!("{name} of {}", model.edge_features());
        assert_steps_agree::<_, _, f16>((&cpu, card), &model, None, 2);
        assert_steps_agree::<_, _, bf16>((&cpu, card), &model, None, 2);
        assert_steps_agree::<_, _, f32>((&cpu, card), &model, None, 2);
    }
}

#[test]
fn training_repeats_bit_for_bit() {
    let Some(card) = card() else { return };
    for (name, model) in models() {
        let first = parameters_after::<_, f16>(card, &model, 5);
        assert_eq!(first, parameters_after::<_, f16>(card, &model, 5), "{name}");
    }
}
