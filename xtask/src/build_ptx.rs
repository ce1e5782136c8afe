//! `cargo xtask build-ptx`: the kernels to PTX.

use clap::Args;
use halfgnn_builder::{Built, PtxBuilder};

use crate::{Failure, setup, workspace};

/// The architectures that are shipped: what each brought is used, and newer cards run the last.
const ARCHS: [&str; 2] = ["sm_80", "sm_90"];

/// Options of `build-ptx`.
#[derive(Args, Default)]
pub struct Options {
    /// Do not install a missing toolchain; fail and say what is missing
    #[arg(long)]
    pub no_setup: bool,
    /// Architecture to build for, such as sm_90; may be repeated
    #[arg(long = "arch", value_name = "ARCH")]
    pub archs: Vec<String>,
}

/// Builds what is out of date and says where it is.
pub fn run(options: &Options) -> Result<Built, Failure> {
    let toolchain = if options.no_setup {
        halfgnn_builder::toolchain::find()?
    } else {
        setup::run(&setup::Options::default())?
    };
    let archs: Vec<&str> = match options.archs.as_slice() {
        [] => ARCHS.to_vec(),
        some => some.iter().map(String::as_str).collect(),
    };
    eprintln!("kernels-gpu for {}, by {toolchain}", archs.join(" and "));
    let mut builder = PtxBuilder::new(workspace::root().join("kernels-gpu"))
        .name("halfgnn")
        .target_dir(workspace::target_dir())
        .toolchain(toolchain);
    for arch in archs {
        builder = builder.arch(arch);
    }
    let built = builder.build()?;
    let state = if built.rebuilt { "built" } else { "up to date" };
    for file in &built.files {
        println!("{} ({state})", file.path.display());
    }
    Ok(built)
}
