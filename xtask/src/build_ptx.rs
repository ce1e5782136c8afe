//! `cargo xtask build-ptx`: the kernels to PTX.

use clap::Args;
use halfgnn_builder::ptxas::ARCHS;
use halfgnn_builder::toolchain::{self, Toolchain};
use halfgnn_builder::{Built, PtxBuilder};
use halfgnn_manifest::{ARCHIVE_SUFFIX, Store, pack};

use crate::{Failure, setup, workspace};

/// The architecture that PTX is made for: the drivers of newer GPUs compile it too. What they make of PTX for sm_90 is the same machine code,
/// since no kernel has an instruction of a newer GPU.
pub const ARCH: &str = "sm_80";

/// What the built kernels are called.
pub const NAME: &str = "halfgnn";

/// Options of `build-ptx`, and of what builds the PTX first.
#[derive(Args, Default)]
#[group(skip)] // the tasks that flatten this have a group `Options` of their own
pub struct Options {
    /// Do not install a missing toolchain: fail, and say what is missing
    #[arg(long)]
    pub no_setup: bool,
    /// Architecture to build for; may be repeated [default: sm_80]
    #[arg(long = "arch", value_name = "ARCH")]
    pub archs: Vec<String>,
}

/// Options of `build-ptx` alone.
#[derive(Args)]
pub struct BuildOptions {
    #[command(flatten)]
    build: Options,
    /// Only the kernels that match, such as 'gemm_*', into target/ptx-only: a look at them, or a test of them with
    /// HALFGNN_PTX_DIR, in a fraction of the time; may be repeated
    #[arg(long, value_name = "PATTERN")]
    only: Vec<String>,
}

impl Options {
    /// The device toolchain, installed first if it is missing and that is allowed.
    pub fn toolchain(&self) -> Result<Toolchain, Failure> {
        if self.no_setup {
            Ok(toolchain::find()?)
        } else {
            setup::toolchain()
        }
    }
}

/// Builds what is out of date and says where it is.
pub fn run(options: &Options) -> Result<(), Failure> {
    build(builder(options)?)
}

/// Likewise, or a part of it.
pub fn run_alone(options: &BuildOptions) -> Result<(), Failure> {
    let only = options.only.iter();
    build(only.fold(builder(&options.build)?, PtxBuilder::only))
}

fn build(builder: PtxBuilder) -> Result<(), Failure> {
    let built = builder.build()?;
    let state = if built.rebuilt { "built" } else { "up to date" };
    let (modules, folder) = (built.manifest.modules.len(), built.manifest_path.display());
    println!(
        "{folder}: {modules} modules for {} ({state})",
        architectures(&built).join(" and ")
    );
    Ok(())
}

/// The archive of kernels that a package carries, and its file name: the packaged modules, with machine code for as many
/// architectures as `machine_code` says, if there is a `ptxas` to assemble it.
pub fn archive(options: &Options, machine_code: MachineCode) -> Result<(String, Vec<u8>), Failure> {
    let mut builder = builder(options)?;
    if machine_code != MachineCode::None {
        let ptxas = setup::ptxas()?;
        let archs: Vec<&str> = ARCHS.into_iter().filter(|arch| ptxas.knows(arch)).collect();
        eprintln!("machine code for {}, by {ptxas}", archs.join(", "));
        builder = builder.assemble(ptxas, archs);
    }
    let built = builder.build()?;
    let folder = built
        .manifest_path
        .parent()
        .ok_or("a manifest without a folder")?;
    let store = Store::in_folder(folder, NAME).ok_or("the builder left no kernels")?;
    let mut manifest = built.manifest.clone();
    for record in manifest.modules.values_mut() {
        if machine_code == MachineCode::None || !record.packaged {
            record.machine_code.clear();
        }
        if !record.packaged {
            record.ptx.clear();
        }
    }
    let archive = pack(&store, &manifest, NAME)?;
    Ok((format!("{NAME}{ARCHIVE_SUFFIX}"), archive))
}

/// What an archive has in addition to PTX.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MachineCode {
    /// Nothing.
    None,
    /// Machine code for [`ARCHS`].
    All,
}

/// The architectures that there is PTX for.
fn architectures(built: &Built) -> Vec<&str> {
    let mut archs: Vec<&str> = built.files.iter().map(|file| file.arch.as_str()).collect();
    archs.sort_unstable();
    archs.dedup();
    archs
}

/// The builder of the kernels, ready to build.
pub fn builder(options: &Options) -> Result<PtxBuilder, Failure> {
    let toolchain = options.toolchain()?;
    let archs: Vec<&str> = match options.archs.as_slice() {
        [] => vec![ARCH],
        some => some.iter().map(String::as_str).collect(),
    };
    eprintln!("kernels for {}, by {toolchain}", archs.join(" and "));
    let builder = PtxBuilder::new(workspace::root().join("kernels-gpu"))
        .name(NAME)
        .entries(halfgnn_contract::entries().map(|entry| entry.name))
        .target_dir(workspace::target_dir())
        .toolchain(toolchain);
    Ok(archs.into_iter().fold(builder, PtxBuilder::arch))
}
