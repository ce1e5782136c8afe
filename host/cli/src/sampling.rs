//! Options that cut training into batches.

use crate::failure::Failure;
use crate::task::Goal;
use clap::Args;
use halfgnn::data::Dataset;
use halfgnn::nn::{ModelConfig, Norm};
use halfgnn::sample::{Sampling, SamplingPolicy};

/// Seeds of a batch where nobody says how many.
const BATCH: u32 = 1024;

/// In which batches it learns.
#[derive(Args)]
pub struct SamplingArgs {
    /// Learn in batches of training vertices and of what they hear from, drawn on the device: neighbor:F,F,… with a fanout for each
    /// layer, that of the batch's vertices first and -1 for all neighbours, or neighbor-replace:F,F,… where one may be drawn again;
    /// the whole graph is seen in evaluation
    #[arg(long, value_name = "SAMPLER")]
    pub sampler: Option<SamplingPolicy>,
    /// Training vertices of a batch [default: 1024]
    #[arg(long, value_name = "N", requires = "sampler", value_parser = clap::value_parser!(u32).range(1..))]
    pub batch: Option<u32>,
}

impl SamplingArgs {
    /// How a run is cut into batches, if it is.
    pub fn sampling(&self) -> Option<Sampling> {
        self.sampler.clone().map(|policy| Sampling {
            policy,
            batch: self.batch.unwrap_or(BATCH),
        })
    }
}

/// Refuses what cannot be learnt in batches; the model's layers are counted where it is made.
pub fn check(goal: &Goal, model: &ModelConfig, dataset: &Dataset) -> Result<(), Failure> {
    let refuse = |reason: String| Err(Failure::Input(format!("--sampler {reason}")));
    if let Goal::Links { .. } = goal {
        return refuse(
            "learns from vertices, and --task link from edges; leave one of them out".into(),
        );
    }
    if dataset.edge_weights.is_some() {
        return refuse(format!(
            "draws edges without weights, and the edges of {} have some; add --ignore-edge-weights",
            dataset.name
        ));
    }
    if model.edge_features() > 0 {
        return refuse(format!(
            "draws edges without features, and the model reads those of {}; add --ignore-edge-features",
            dataset.name
        ));
    }
    if model.norm() == Norm::In {
        return refuse(
            "draws blocks, whose sources have no in-degrees, and --norm in wants them; take --norm both".into(),
        );
    }
    Ok(())
}

/// Refuses another number of fanouts than the model has layers that hear from neighbours.
pub fn check_layers(sampling: &Sampling, hops: usize) -> Result<(), Failure> {
    let fanouts = sampling.policy.layers();
    if fanouts == hops {
        return Ok(());
    }
    Err(Failure::Input(format!(
        "--sampler {} has {fanouts} fanouts, and {hops} layers of the model hear from neighbours; name {hops} fanouts, or change the model's layers",
        sampling.policy
    )))
}
