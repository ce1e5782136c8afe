//! Options that cut training into batches.

use crate::failure::Failure;
use crate::task::Goal;
use clap::Args;
use halfgnn::data::Dataset;
use halfgnn::nn::{ModelConfig, Norm};
use halfgnn::sample::{Sampling, SamplingPolicy};

/// In which batches it learns.
#[derive(Args)]
pub struct SamplingArgs {
    /// Train in batches of training vertices and sampled in-neighbors: neighbor:F,F,… has a fanout for each layer, that
    /// of the batch's vertices first and -1 for all neighbors; neighbor-replace:F,F,… samples with replacement. Of
    /// several types /NAME:F,F,… behind it are the fanouts of a type of edges. GraphSAINT's subgraphs are
    /// saint-node:N, saint-edge:N, saint-rw:ROOTS,LENGTH and saint-mrw:FRONTIER,BUDGET; cluster:N takes some of N
    /// clusters; graphs is of a dataset that is many graphs. Evaluations see the whole graph
    #[arg(long, value_name = "SAMPLER")]
    pub sampler: Option<SamplingPolicy>,
    /// Training vertices of a batch [default: 1024], clusters [default: 20], or training graphs, for which it is enough
    /// by itself [default: 32]; of several ranks those of all together
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub batch: Option<u32>,
    /// Of GraphSAINT's subgraphs, how many times the vertices of the graph are sampled before the run, to count how
    /// often each comes [default: 50]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub coverage: Option<u32>,
}

impl SamplingArgs {
    /// How a run is cut into batches, if it is.
    ///
    /// # Errors
    /// Where what is given is not for datasets such as this one, many graphs or one.
    pub fn sampling(&self, of_graphs: bool) -> Result<Option<Sampling>, Failure> {
        let refuse = |reason: &str| Err(Failure::Input(reason.into()));
        let policy = match (&self.sampler, of_graphs) {
            (Some(SamplingPolicy::Graphs), false) => {
                return refuse(
                    "--sampler graphs is of datasets that are many graphs, and this is one; take --sampler neighbor:15,10",
                );
            }
            (Some(SamplingPolicy::Graphs), true) => SamplingPolicy::Graphs,
            (Some(_), true) => {
                return refuse(
                    "--sampler draws neighbours in one graph, and the dataset is many, which are taken whole; take --batch N, graphs of a batch, instead",
                );
            }
            (Some(policy), false) => policy.clone(),
            (None, true) if self.batch.is_some() => SamplingPolicy::Graphs,
            (None, _) if self.coverage.is_some() => {
                return refuse(
                    "--coverage counts how often GraphSAINT's samplers draw a vertex; add --sampler saint-rw:2000,4",
                );
            }
            (None, false) if self.batch.is_some() => {
                return refuse(
                    "--batch is how many vertices a batch has, and nothing says which neighbours a batch samples; add --sampler neighbor:15,10",
                );
            }
            (None, _) => return Ok(None),
        };
        let drawn = policy.is_counted();
        if drawn && self.batch.is_some() {
            return Err(Failure::Input(format!(
                "--sampler {policy} says itself how large a batch is; leave --batch out"
            )));
        }
        if !drawn && self.coverage.is_some() {
            return Err(Failure::Input(format!(
                "--coverage counts how often GraphSAINT's samplers draw a vertex, and --sampler {policy} is none; leave it out"
            )));
        }
        Ok(Some(Sampling::of(policy, self.batch, self.coverage)))
    }
}

/// Refuses what cannot be learnt in batches; the model's layers are counted where batches are made.
pub fn check(
    sampling: &Sampling,
    goal: &Goal,
    model: &ModelConfig,
    dataset: &Dataset,
) -> Result<(), Failure> {
    if sampling.policy == SamplingPolicy::Graphs {
        return Ok(());
    }
    let refuse = |reason: String| Err(Failure::Input(format!("--sampler {reason}")));
    if let Goal::Links { .. } = goal {
        return refuse(
            "learns from vertices, and --task link from edges; leave one of them out".into(),
        );
    }
    if model.binary.is_some() && sampling.policy.subgraphs().is_none() {
        return refuse(format!(
            "{} has layers that hear from more vertices than they tell, and layers of --binary give a row for each that they read; take a sampler of subgraphs, such as saint-rw:2000,4, or leave --binary out",
            sampling.policy
        ));
    }
    // Of subgraphs that are sampled, edges have their weights and the factors of the whole graph.
    let counted = sampling.policy.is_counted();
    if dataset.edge_weights.is_some() && !counted {
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
    if model.norm() == Norm::In && !counted {
        return refuse(
            "draws blocks, whose sources have no in-degrees, and --norm in wants them; take --norm both".into(),
        );
    }
    Ok(())
}
