//! The target that `HALFGNN_FUZZ_TARGET` names, under libFuzzer.
#![no_main]

use halfgnn_fuzz::Target;
use std::sync::LazyLock;

static TARGET: LazyLock<&'static Target> = LazyLock::new(|| {
    let name = std::env::var("HALFGNN_FUZZ_TARGET").expect("HALFGNN_FUZZ_TARGET names a target");
    Target::named(&name).expect("HALFGNN_FUZZ_TARGET names a target of halfgnn_fuzz::TARGETS")
});

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    (TARGET.run)(bytes);
});
