//! The conformance suite on the CPU backend.

use halfgnn::backend::cpu::Cpu;
use halfgnn_tests::Scale;
use std::sync::LazyLock;

static CPU: LazyLock<Cpu> = LazyLock::new(Cpu::new);

halfgnn_tests::conformance!(|| Some(&*CPU), Scale::Full);

#[test]
fn steps_are_called() {
    halfgnn_tests::recording::assert_recorded(&*CPU, false);
}
