//! The conformance suite on the CPU backend, with the instructions that `HALFGNN_CPU_INSTRUCTIONS` names; and what is tested on the CPU alone, in
//! the same program because what is compiled for a backend is most of it.

mod layers;
mod models;
mod pyg;
mod training;

use halfgnn::backend::cpu::Cpu;
use halfgnn_tests::Scale;
use std::sync::LazyLock;

static CPU: LazyLock<Cpu> =
    LazyLock::new(|| Cpu::from_environment().expect("the CPU has the instructions"));

halfgnn_tests::conformance!(|| Some(&*CPU), Scale::Full);

#[test]
fn ranks_that_are_linked_train_as_others() {
    halfgnn_tests::ranks::assert_recorded(&*CPU, |_| CPU.clone(), 3, false);
}

#[test]
fn steps_are_called() {
    halfgnn_tests::recording::assert_recorded(&*CPU, false);
}
