//! `halfgnn bench`: how long an operator takes, and how long what a user would pick instead.

pub mod ablations;
pub mod args;
#[allow(clippy::module_inception)] // what the folder is about
mod bench;
mod bmm;
pub mod bspmm;
pub mod comm;
pub mod construct;
mod measure;
mod operator;
mod peers;
pub mod quantized;
pub mod sampled;
pub mod sampling;
pub mod scale;
pub mod spmv;
mod table;
pub mod train;
mod variants;

use crate::failure::Failure;
use args::{BenchCommand, Common, Stride};
use bench::Bench;
use halfgnn::device;
use operator::{Operator, SddmmOperator, SpmmOperator};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

/// Times every combination that was asked for.
pub fn run(command: &BenchCommand, stop: &Arc<AtomicBool>) -> Result<(), Failure> {
    match command {
        BenchCommand::Train(args) => train::run(args, stop),
        BenchCommand::Spmv(args) => spmv::run(args, stop),
        BenchCommand::Bspmm(args) => bspmm::run(args, stop),
        BenchCommand::Bmm(args) => bmm::run(args, stop),
        BenchCommand::Quantized(args) => quantized::run(args, stop),
        BenchCommand::Construct(args) => construct::run(args, stop),
        BenchCommand::Sampled(args) => sampled::run(args, stop),
        BenchCommand::Sampling(args) => sampling::run(args, stop),
        BenchCommand::Comm(args) => comm::run(args, stop),
        BenchCommand::Scale(args) => scale::run(args, stop),
        BenchCommand::Ablations(args) => ablations::run(args, stop),
        BenchCommand::Spmm(args) => {
            let policies: Vec<_> = args
                .policy
                .iter()
                .flat_map(|named| &named.0)
                .copied()
                .collect();
            time::<SpmmOperator>(&args.common, &policies, &args.stride, stop)
        }
        BenchCommand::Sddmm(args) => time::<SddmmOperator>(&args.common, &args.policy, &[], stop),
    }
}

fn time<O: Operator>(
    common: &Common,
    policies: &[O::Policy],
    strides: &[Stride],
    stop: &Arc<AtomicBool>,
) -> Result<(), Failure> {
    let json = common.json.as_deref();
    table::of_graphs(&common.graphs, json, |label, graph, table| {
        let bench = Bench::<O> {
            common,
            policies,
            strides,
            label,
            graph,
            table,
            stop,
        };
        device::open(common.device.into(), bench)?
    })
}
