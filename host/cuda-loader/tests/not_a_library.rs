//! A file that is no library at all: the dynamic linker's reason is reported.

use halfgnn_cuda_loader::{LIBRARY_VARIABLE, LoadError, load};

#[test]
fn a_text_file_is_refused_with_the_reason() {
    let file = concat!(env!("CARGO_MANIFEST_DIR"), "/link-stub/lib64/libcuda.so");
    // SAFETY: the only test of this program; the harness's main thread waits for it and reads no variable meanwhile.
    unsafe { std::env::set_var(LIBRARY_VARIABLE, file) };

    let error = load().expect_err("a linker script is no library");
    assert!(
        matches!(&error, LoadError::NotFound { attempts } if attempts.contains(file)),
        "{error}"
    );
    assert!(
        ["too short", "ELF", "Bad EXE", "not a valid", "os error 193"]
            .iter()
            .any(|words| error.to_string().contains(words)),
        "{error}"
    );
}
