//! How batches are made, as users specify it.

use super::{Fanout, FanoutsByType, HostNeighborSampler, NeighborSampler, Sampler, Subgraphs};
use crate::backend::cpu::Cpu;
use crate::backend::{Adjacency, Backend, MemoryKind};
use crate::error::Error;
use crate::graph::Graph;
use crate::nn::{ModelEdgeType, ModelTypes};
use halfgnn_contract::subgraph::MOST_FRONTIER;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

/// How a batch is sampled.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
#[non_exhaustive]
pub enum SamplingPolicy {
    /// By [`NeighborSampler`], without replacement: `neighbor:15,10,5`, or with it: `neighbor-replace:15,10,5`.
    Neighbor {
        /// Of each layer, that of the seeds first.
        fanouts: Vec<Fanout>,
        /// Those of types of edges that have their own: `neighbor:15,10/writes:5,0`, 0 for none.
        by_type: Vec<TypeFanouts>,
        /// Whether a neighbour may be sampled again.
        replace: bool,
    },
    /// Whole graphs, of a dataset of many: `graphs`.
    Graphs,
    /// By [`SubgraphSampler`](super::SubgraphSampler): `saint-node:6000`, `saint-edge:4000`, `saint-rw:2000,4` (roots,
    /// length), `saint-mrw:1000,8000` (frontier, budget), `cluster:1500`.
    Subgraphs(Subgraphs),
}

/// The fanouts of a type of edges.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct TypeFanouts {
    /// Its name, or the names of both ends and its own: `author__writes__paper`.
    pub name: String,
    /// Of each hop, that of the seeds first; none where no edge of the type is sampled.
    pub fanouts: Vec<Option<Fanout>>,
}

impl fmt::Display for TypeFanouts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let fanouts = self.fanouts.iter();
        let fanouts = fanouts.map(|of| of.map_or("0".into(), |of| of.to_string()));
        write!(
            f,
            "/{}:{}",
            self.name,
            fanouts.collect::<Vec<_>>().join(",")
        )
    }
}

impl FromStr for TypeFanouts {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (name, fanouts) = text
            .rsplit_once(':')
            .filter(|(name, _)| !name.is_empty())
            .ok_or_else(|| {
                format!("`{text}` is no type of edges with its fanouts; write writes:5,0 or author__writes__paper:5,0")
            })?;
        let fanout = |text: &str| match text.trim() {
            "0" => Ok(None),
            other => other.parse().map(Some),
        };
        Ok(Self {
            name: name.to_owned(),
            fanouts: fanouts.split(',').map(fanout).collect::<Result<_, _>>()?,
        })
    }
}

impl SamplingPolicy {
    /// The fanouts of each type of edges of a model, in their order, and whether neighbors are sampled with
    /// replacement.
    ///
    /// # Errors
    /// [`Error::Unsupported`] where vertices are not sampled by their neighbors, a type of edges is not there or named
    /// twice, or its fanouts are of another number of hops.
    pub fn fanouts_of(&self, types: &ModelTypes) -> Result<(FanoutsByType, bool), Error> {
        let refuse = |reason| refuse("SamplingPolicy", reason);
        let Self::Neighbor {
            fanouts,
            by_type,
            replace,
        } = self
        else {
            return refuse(format!(
                "{self} is of graphs of one type; of several, neighbors are sampled: take neighbor:15,10"
            ));
        };
        let all: Vec<Option<Fanout>> = fanouts.iter().copied().map(Some).collect();
        let mut of_types = vec![all; types.edges.len()];
        let mut named = vec![false; types.edges.len()];
        for own in by_type {
            let is_own = |of: &ModelEdgeType| of.name == own.name || types.title(of) == own.name;
            let numbers = (0..types.edges.len()).filter(|of| is_own(&types.edges[*of]));
            let numbers: Vec<usize> = numbers.collect();
            let titles = || -> String {
                let titles = types.edges.iter().map(|of| types.title(of));
                titles.collect::<Vec<_>>().join(", ")
            };
            let [number] = numbers[..] else {
                return refuse(match numbers.len() {
                    0 => format!("no edges are called {}; there are {}", own.name, titles()),
                    _ => format!(
                        "{} types of edges are called {}; name both ends too, as in {}",
                        numbers.len(),
                        own.name,
                        titles()
                    ),
                });
            };
            if std::mem::replace(&mut named[number], true) {
                return refuse(format!(
                    "{} has fanouts twice",
                    types.title(&types.edges[number])
                ));
            }
            if own.fanouts.len() != fanouts.len() {
                return refuse(format!(
                    "{} has {} fanouts, and others have {}; name one for each hop, 0 for none",
                    own.name,
                    own.fanouts.len(),
                    fanouts.len()
                ));
            }
            of_types[number].clone_from(&own.fanouts);
        }
        Ok((of_types, *replace))
    }

    /// Layers of a batch, where it has a graph for each and not one for all.
    pub fn layers(&self) -> Option<usize> {
        match self {
            Self::Neighbor { fanouts, .. } => Some(fanouts.len()),
            Self::Graphs | Self::Subgraphs(_) => None,
        }
    }

    /// Whether it is one of GraphSAINT's, which require counts of how often each vertex is sampled.
    pub fn is_counted(&self) -> bool {
        !matches!(self.subgraphs(), None | Some(Subgraphs::Clusters(_)))
    }

    /// How vertices are chosen together, for policies that do.
    pub fn subgraphs(&self) -> Option<Subgraphs> {
        match self {
            Self::Subgraphs(how) => Some(*how),
            _ => None,
        }
    }

    /// The sampler of `graph`, whose edges go to `edges`. For a model that requires self-loops they are added, so that
    /// a vertex always aggregates itself as well as its sampled neighbours.
    ///
    /// # Errors
    /// Those of the sampler, and [`Error::Unsupported`] for whole graphs and for subgraphs.
    /// [`Batches::of_graphs`](crate::train::Batches::of_graphs) and
    /// [`Batches::of_subgraphs`](crate::train::Batches::of_subgraphs) make batches of those.
    pub fn sampler<B: Backend>(
        &self,
        backend: &B,
        (graph, edges): (&Graph, EdgesIn),
        self_loops: bool,
    ) -> Result<Box<dyn Sampler<B>>, Error> {
        let refuse = |reason| refuse("SamplingPolicy::sampler", reason);
        let Self::Neighbor {
            fanouts,
            by_type,
            replace,
        } = self
        else {
            return refuse(format!(
                "{self} draws no neighbours of given vertices; make batches of it"
            ));
        };
        if let Some(of) = by_type.first() {
            return refuse(format!(
                "{} has fanouts of its own, and the graph has one type of edges; leave them out",
                of.name
            ));
        }
        let without = self_loops.then(|| graph.without_self_loops()).transpose()?;
        let (graph, fanouts) = (without.as_ref().unwrap_or(graph), fanouts.clone());
        let kind = match edges {
            EdgesIn::Device => MemoryKind::Graph,
            EdgesIn::Host => MemoryKind::HostGraph,
            EdgesIn::Graph => {
                let cpu = Cpu::new();
                let lists = Arc::new(Adjacency::shared(&cpu, graph));
                let sampler = NeighborSampler::of(&cpu, lists, fanouts)?.replacing(*replace);
                let sampler = sampler.with_self_loops(self_loops);
                return Ok(Box::new(HostNeighborSampler::new(sampler)));
            }
        };
        let sampler = NeighborSampler::new_in(backend, graph.csr(), fanouts, kind)?;
        let sampler = sampler.replacing(*replace).with_self_loops(self_loops);
        Ok(Box::new(sampler))
    }
}

fn refuse<T>(operator: &'static str, reason: String) -> Result<T, Error> {
    Err(Error::Unsupported { operator, reason })
}

impl fmt::Display for SamplingPolicy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Graphs => f.write_str("graphs"),
            Self::Subgraphs(how) => match how {
                Subgraphs::Nodes(count) => write!(f, "saint-node:{count}"),
                Subgraphs::Edges(count) => write!(f, "saint-edge:{count}"),
                Subgraphs::Walks { roots, length } => write!(f, "saint-rw:{roots},{length}"),
                Subgraphs::Frontier { frontier, budget } => {
                    write!(f, "saint-mrw:{frontier},{budget}")
                }
                Subgraphs::Clusters(count) => write!(f, "cluster:{count}"),
            },
            Self::Neighbor {
                fanouts,
                by_type,
                replace,
            } => {
                let name = if *replace {
                    "neighbor-replace"
                } else {
                    "neighbor"
                };
                let fanouts: Vec<String> = fanouts.iter().map(Fanout::to_string).collect();
                write!(f, "{name}:{}", fanouts.join(","))?;
                by_type.iter().try_for_each(|of| of.fmt(f))
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
        let numbers = |count: usize, example: &str| -> Result<Vec<u32>, String> {
            let numbers: Result<Vec<u32>, _> = rest.split(',').map(str::parse).collect();
            let numbers = numbers
                .ok()
                .filter(|all| all.len() == count && !all.contains(&0));
            numbers
                .ok_or_else(|| format!("`{text}` needs {count} numbers from 1 on, as in {example}"))
        };
        let one = |example| numbers(1, example).map(|all| all[0]);
        let two = |example| numbers(2, example).map(|all| (all[0], all[1]));
        let replace = match name {
            "neighbor" => false,
            "neighbor-replace" => true,
            "saint-node" => {
                return one("saint-node:6000")
                    .map(Subgraphs::Nodes)
                    .map(Self::Subgraphs);
            }
            "saint-edge" => {
                return one("saint-edge:4000")
                    .map(Subgraphs::Edges)
                    .map(Self::Subgraphs);
            }
            "cluster" => {
                return one("cluster:1500")
                    .map(Subgraphs::Clusters)
                    .map(Self::Subgraphs);
            }
            "saint-rw" => {
                let (roots, length) = two("saint-rw:2000,4")?;
                return Ok(Self::Subgraphs(Subgraphs::Walks { roots, length }));
            }
            "saint-mrw" => {
                let (frontier, budget) = two("saint-mrw:1000,8000")?;
                if frontier > budget || frontier > MOST_FRONTIER {
                    return Err(format!(
                        "`{text}` keeps a frontier of {frontier} vertices; take {MOST_FRONTIER} at most, and no more than it comes to"
                    ));
                }
                return Ok(Self::Subgraphs(Subgraphs::Frontier { frontier, budget }));
            }
            _ => {
                return Err(format!(
                    "`{name}` is no sampler; take neighbor:15,10,5 or neighbor-replace:15,10,5, a fanout for each layer, saint-node:N, saint-edge:N, saint-rw:ROOTS,LENGTH, saint-mrw:FRONTIER,BUDGET, cluster:N, or graphs"
                ));
            }
        };
        let mut parts = rest.split('/');
        let fanouts = parts.next().unwrap_or_default().split(',');
        Ok(Self::Neighbor {
            fanouts: fanouts.map(str::parse).collect::<Result<_, _>>()?,
            by_type: parts.map(str::parse).collect::<Result<_, _>>()?,
            replace,
        })
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

/// Where the edges lie that neighbours are sampled from. Batches are the same.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum EdgesIn {
    /// In the device's memory.
    #[default]
    Device,
    /// In the host's memory, from which a GPU reads those that it samples.
    Host,
    /// Where the graph has them, be it the host's memory or a [file](Graph::to_disk): see [`HostNeighborSampler`].
    Graph,
}

/// How a run is cut into batches.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Sampling {
    /// How a batch is sampled.
    pub policy: SamplingPolicy,
    /// Vertices of a batch that are trained on, graphs, or clusters; 1 for subgraphs, whose policy has their size.
    pub batch: u32,
    /// The number of samples before a run that count how often each vertex comes into a subgraph, as a multiple of the
    /// graph's vertices: see [`SubgraphSampler::coverage`](super::SubgraphSampler::coverage). Ignored by other
    /// policies.
    #[serde(default = "Sampling::customary_coverage")]
    pub coverage: u32,
    /// Where the edges lie that neighbours are sampled from. A resumed run may choose another place. Ignored by other
    /// policies, whose edges are on the device.
    #[serde(skip)]
    pub edges: EdgesIn,
}

impl Sampling {
    /// That of PyG's `GraphSAINTSampler` in its examples.
    pub const COVERAGE: u32 = 50;
    /// The default number of vertices of a batch.
    const BATCH: u32 = 1024;
    /// The default number of graphs.
    const GRAPHS: u32 = 32;
    /// The default number of clusters, as in Cluster-GCN on its largest graphs.
    const CLUSTERS: u32 = 20;

    /// The usual values in place of those not given.
    pub fn of(policy: SamplingPolicy, batch: Option<u32>, coverage: Option<u32>) -> Self {
        let customary = match policy {
            SamplingPolicy::Graphs => Self::GRAPHS,
            SamplingPolicy::Subgraphs(Subgraphs::Clusters(count)) => count.min(Self::CLUSTERS),
            SamplingPolicy::Subgraphs(_) => 1,
            SamplingPolicy::Neighbor { .. } => Self::BATCH,
        };
        Self {
            batch: batch.unwrap_or(customary),
            coverage: coverage.unwrap_or(Self::COVERAGE),
            edges: EdgesIn::Device,
            policy,
        }
    }

    fn customary_coverage() -> u32 {
        Self::COVERAGE
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn policies_are_written_as_they_are_read() {
        for (text, layers) in [
            ("neighbor:15,10,5", Some(3)),
            ("neighbor-replace:3,-1", Some(2)),
            ("neighbor:1", Some(1)),
            ("neighbor:4,2/writes:0,2/a__b__c:-1,3", Some(2)),
            ("graphs", None),
            ("saint-node:6000", None),
            ("saint-edge:4000", None),
            ("saint-rw:2000,4", None),
            ("saint-mrw:1000,8000", None),
            ("cluster:1500", None),
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
            "neighbor:5/writes",
            "neighbor:5/:5",
            "neighbor:5/writes:x",
            "neighbors:5",
            "saint-node",
            "saint-node:0",
            "saint-node:1,2",
            "saint-rw:2000",
            "saint-rw:5,0",
            "saint-mrw:9,8",
            "saint-mrw:40000,80000",
            "cluster:x",
        ] {
            assert!(wrong.parse::<SamplingPolicy>().is_err(), "{wrong}");
        }
    }
}
