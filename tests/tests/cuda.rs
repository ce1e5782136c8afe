//! The conformance suite on a CUDA card: the same cases as on the CPU and on the emulator.
#![cfg(feature = "cuda")]

use halfgnn::backend::gpu::Gpu;
use halfgnn::driver::cuda::Cuda;
use halfgnn::driver::{Driver, DriverError};
use halfgnn_tests::Scale;
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
