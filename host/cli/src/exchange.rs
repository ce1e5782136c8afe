//! `halfgnn export` and `halfgnn import`: models for and from PyG and DGL.

use crate::args::PrecisionName;
use crate::failure::Failure;
use crate::screen::{Page, count};
use clap::{Args, ValueEnum};
use halfgnn::train::Checkpoint;
use halfgnn::train::state_dict::{Framework, ImportOptions};
use std::path::PathBuf;

/// A framework whose names tensors have.
#[derive(Clone, Copy, Debug, ValueEnum)]
pub enum FrameworkName {
    /// PyTorch Geometric: convs.0.lin.weight and so on
    Pyg,
    /// Deep Graph Library: layers.0.weight and so on
    Dgl,
}

impl From<FrameworkName> for Framework {
    fn from(name: FrameworkName) -> Self {
        match name {
            FrameworkName::Pyg => Self::Pyg,
            FrameworkName::Dgl => Self::Dgl,
        }
    }
}

/// Options of `export`.
#[derive(Args)]
pub struct ExportArgs {
    /// A checkpoint that `train --save` wrote; the weights of its best validation epoch are taken
    #[arg(value_name = "CHECKPOINT")]
    pub checkpoint: PathBuf,
    /// Whose names the tensors get
    #[arg(long, value_enum, value_name = "FRAMEWORK")]
    pub to: FrameworkName,
    /// File to write, a state_dict as safetensors
    #[arg(value_name = "FILE.safetensors")]
    pub output: PathBuf,
}

/// Options of `import`.
#[derive(Args)]
pub struct ImportArgs {
    /// A state_dict as safetensors
    #[arg(value_name = "FILE.safetensors")]
    pub state_dict: PathBuf,
    /// Whose names the tensors have
    #[arg(long, value_enum, value_name = "FRAMEWORK")]
    pub from: FrameworkName,
    /// Checkpoint to write, to predict with
    #[arg(value_name = "CHECKPOINT")]
    pub output: PathBuf,
    /// What features, activations and the weights that kernels read are stored in
    #[arg(long, value_enum, default_value_t = PrecisionName::Float)]
    pub precision: PrecisionName,
    /// The model was trained on weights of edges, so that `predict` uses them
    #[arg(long)]
    pub edge_weights: bool,
}

/// Writes another framework's tensors.
pub fn export(args: &ExportArgs) -> Result<(), Failure> {
    let mut page = Page::new(false);
    let checkpoint = Checkpoint::open(&args.checkpoint)?;
    let notes = checkpoint.export(args.to.into(), &args.output)?;
    page.line(&format_args!(
        "{} of {} layers written to {}",
        checkpoint.model.convolution.name().to_uppercase(),
        checkpoint.model.layers,
        args.output.display()
    ));
    for note in notes {
        page.line(&format_args!("  {note}"));
    }
    Ok(())
}

/// Reads another framework's tensors.
pub fn import(args: &ImportArgs) -> Result<(), Failure> {
    let options = ImportOptions {
        from: args.from.into(),
        precision: args.precision.into(),
        edge_weights: args.edge_weights,
    };
    let checkpoint = Checkpoint::import(&args.state_dict, &options)?;
    checkpoint.save(&args.output)?;
    let model = &checkpoint.model;
    Page::new(false).line(&format_args!(
        "{} of {} layers, {} features and {} outputs written to {}",
        model.convolution.name().to_uppercase(),
        model.layers,
        count(model.features),
        count(model.classes),
        args.output.display()
    ));
    Ok(())
}
