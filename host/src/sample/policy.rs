//! How batches are made, as a person says it.

use super::{Fanout, NeighborSampler, Sampler};
use crate::backend::Backend;
use crate::error::Error;
use crate::graph::Graph;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::str::FromStr;

/// How a batch is drawn.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
#[non_exhaustive]
pub enum SamplingPolicy {
    /// By [`NeighborSampler`], without replacement: `neighbor:15,10,5`, or with it: `neighbor-replace:15,10,5`.
    Neighbor {
        /// Of each layer, that of the seeds first.
        fanouts: Vec<Fanout>,
        /// Whether a neighbour may be drawn again.
        replace: bool,
    },
    /// Whole graphs of a dataset that is many: `graphs`.
    Graphs,
}

impl SamplingPolicy {
    /// Layers of a batch; none of whole graphs.
    pub fn layers(&self) -> usize {
        match self {
            Self::Neighbor { fanouts, .. } => fanouts.len(),
            Self::Graphs => 0,
        }
    }

    /// The sampler of `graph`, to which self-loops are added for a model that wants them: a vertex then hears from itself always,
    /// beside the neighbours that are drawn.
    ///
    /// # Errors
    /// Those of the sampler, and [`Error::Unsupported`] for whole graphs, of which
    /// [`Batches::of_graphs`](crate::train::Batches::of_graphs) makes batches.
    pub fn sampler<B: Backend>(
        &self,
        backend: &B,
        graph: &Graph,
        self_loops: bool,
    ) -> Result<Box<dyn Sampler<B>>, Error> {
        let Self::Neighbor { fanouts, replace } = self else {
            return Err(Error::Unsupported {
                operator: "SamplingPolicy::sampler",
                reason: "whole graphs are taken as they are, and nothing of them is drawn; make batches of them".into(),
            });
        };
        let without = self_loops.then(|| graph.without_self_loops());
        let graph = without.as_ref().unwrap_or(graph);
        let sampler = NeighborSampler::new(backend, graph.csr(), fanouts.clone())?;
        let sampler = sampler.replacing(*replace).with_self_loops(self_loops);
        Ok(Box::new(sampler))
    }
}

impl fmt::Display for SamplingPolicy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Graphs => f.write_str("graphs"),
            Self::Neighbor { fanouts, replace } => {
                let name = if *replace {
                    "neighbor-replace"
                } else {
                    "neighbor"
                };
                let fanouts: Vec<String> = fanouts.iter().map(Fanout::to_string).collect();
                write!(f, "{name}:{}", fanouts.join(","))
            }
        }
    }
}

impl FromStr for SamplingPolicy {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if text == "graphs" {
            return Ok(Self::Graphs);
        }
        let (name, rest) = text.split_once(':').unwrap_or((text, ""));
        let replace = match name {
            "neighbor" => false,
            "neighbor-replace" => true,
            _ => {
                return Err(format!(
                    "`{name}` is no sampler; take neighbor:15,10,5 or neighbor-replace:15,10,5, a fanout for each layer, or graphs"
                ));
            }
        };
        let fanouts = rest.split(',').map(str::parse).collect::<Result<_, _>>()?;
        Ok(Self::Neighbor { fanouts, replace })
    }
}

impl From<SamplingPolicy> for String {
    fn from(policy: SamplingPolicy) -> Self {
        policy.to_string()
    }
}

impl TryFrom<String> for SamplingPolicy {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        text.parse()
    }
}

/// How a run is cut into batches.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Sampling {
    /// How a batch is drawn.
    pub policy: SamplingPolicy,
    /// Vertices of a batch that are learnt from.
    pub batch: u32,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn policies_are_written_as_they_are_read() {
        for (text, layers) in [
            ("neighbor:15,10,5", 3),
            ("neighbor-replace:3,-1", 2),
            ("neighbor:1", 1),
            ("graphs", 0),
        ] {
            let policy: SamplingPolicy = text.parse().expect(text);
            assert_eq!(policy.to_string(), text);
            assert_eq!(policy.layers(), layers);
            let json = serde_json::to_string(&policy).expect("text");
            assert_eq!(
                serde_json::from_str::<SamplingPolicy>(&json).expect("a policy"),
                policy
            );
        }
        for wrong in [
            "",
            "neighbor",
            "neighbor:",
            "neighbor:0",
            "neighbor:5,,5",
            "neighbors:5",
        ] {
            assert!(wrong.parse::<SamplingPolicy>().is_err(), "{wrong}");
        }
    }
}
