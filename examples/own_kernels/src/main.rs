//! A kernel of one's own between operators of `halfgnn`: the sum of the neighbours, then a leaky ReLU.
//!
//! `cargo run` in this folder runs it on the PTX emulator, and `cargo run --features cuda` on a card if there is one. The
//! build script compiles `kernels/`, which wants the device toolchain (`cargo xtask setup` in the clone installs it).

#[path = "../kernels/src/params.rs"]
mod params;

use halfgnn::backend::gpu::Gpu;
use halfgnn::backend::{Adjacency, MemoryKind, Spmm};
use halfgnn::driver::emulated::Emulated;
use halfgnn::driver::{Driver, LaunchConfig};
use halfgnn::graph::Graph;
use halfgnn::tensor::Matrix;
use halfgnn::{ops, ptx};
use params::LeakyRelu;

/// The kernels of this package, as the build script made them.
const KERNELS: &str = include_str!(env!("KERNELS_PTX"));

fn main() -> Result<(), Box<dyn std::error::Error>> {
    #[cfg(feature = "cuda")]
    match halfgnn::driver::cuda::Cuda::open(0) {
        Ok(card) => return run(card),
        Err(reason) => println!("on the emulator: {reason}"),
    }
    run(Emulated::new())
}

fn run<D: Driver>(driver: D) -> Result<(), Box<dyn std::error::Error>> {
    let capability = driver.info().compute_capability;
    println!("{}: {}", driver.info().name, ptx::find(Some(capability))?);
    let module = driver.load(KERNELS)?;
    let leaky_relu = driver.function(&module, "leaky_relu")?;
    let gpu = Gpu::new(driver, &ptx::read(Some(capability))?)?;

    // A ring of 100 vertices, each with 41 features, half of them negative.
    let (vertices, features) = (100, 41);
    let rows: Vec<u32> = (0..vertices).collect();
    let columns: Vec<u32> = (0..vertices).map(|v| (v + 1) % vertices).collect();
    let vertices = vertices as usize;
    let graph = Graph::from_edges(vertices, &rows, &columns)?;
    let a = Adjacency::new(&gpu, graph.csr())?;
    let values: Vec<f32> = (0..vertices * features)
        .map(|i| (i % 7) as f32 - 3.0)
        .collect();
    let x = Matrix::<_, f32>::from_f32(&gpu, vertices, features, &values, MemoryKind::Features)?;
    let mut y = Matrix::zeros(&gpu, vertices, features, MemoryKind::Activations)?;
    ops::spmm(&gpu, &a, &Spmm::default(), &x, &mut y)?;

    // Padding is zero, and a leaky ReLU of zero is zero: the kernel may take it along.
    let len = y.rows() * y.stride();
    let config = LaunchConfig::linear(len, 256).ok_or("too many elements for one launch")?;
    let params = LeakyRelu {
        values: y.device_address(),
        len: len as u64,
        slope: 0.5,
        padding: 0,
    };
    // SAFETY: `params` is what the kernel declares, and `y`, which is alive until its values are read below, has `len`
    // floats at that address.
    unsafe { gpu.driver().launch_with(&leaky_relu, config, &params)? };

    let y = y.to_f32(&gpu)?;
    for (index, value) in y.iter().enumerate() {
        let (row, column) = (index / features, index % features);
        let heard = values[(row + 1) % vertices * features + column];
        let expected = if heard > 0.0 { heard } else { 0.5 * heard };
        assert_eq!(*value, expected, "row {row}, column {column}");
    }
    println!("{} elements are as they should be", y.len());
    Ok(())
}
