//! Compiles the kernels to PTX, and passes its path to the program.

use halfgnn_builder::PtxBuilder;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let built = PtxBuilder::new("kernels").arch("sm_80").build()?;
    println!(
        "cargo::rustc-env=KERNELS_PTX={}",
        built.files[0].path.display()
    );
    Ok(())
}
