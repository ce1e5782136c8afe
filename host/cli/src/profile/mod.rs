//! `halfgnn profile`.

#[cfg(feature = "emulator")]
mod spmm;
mod step;

use crate::failure::Failure;
use clap::Subcommand;

pub const EXAMPLES: &str = "\
Examples:
  halfgnn profile step --dataset cora.npz --model gat
  halfgnn profile spmm --graph kron:10";

/// What is profiled.
#[derive(Subcommand)]
pub enum ProfileCommand {
    /// Time the operators of a training step, next to the bytes that each must move
    #[command(after_help = step::EXAMPLES)]
    Step(Box<step::StepArgs>),
    /// Count what the kernels of an SpMM do, on the emulator: instructions, sectors, conflicts, shuffles
    #[cfg(feature = "emulator")]
    #[command(after_help = spmm::EXAMPLES)]
    Spmm(spmm::SpmmArgs),
}

/// Profiles what is asked for.
pub fn run(command: &ProfileCommand) -> Result<(), Failure> {
    match command {
        ProfileCommand::Step(args) => step::run(args),
        #[cfg(feature = "emulator")]
        ProfileCommand::Spmm(args) => spmm::run(args),
    }
}
