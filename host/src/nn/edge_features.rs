//! Numbers of edges on the way from a dataset to a model: their weights, and rows of features.

use super::{ModelConfig, PartFactors, Propagation};
use crate::backend::{Backend, MemoryKind};
use crate::distributed::{Group, Shard};
use crate::error::Error;
use crate::graph::{AddedWeight, Graph, GraphCounts, Part};
use crate::ops::edge_plane;
use crate::tensor::{Element, Matrix};
use std::borrow::Cow;
use std::sync::Arc;

const PREPARE: &str = "ModelConfig::prepare_edges";

/// What a dataset has of each edge, in its graph's order.
#[derive(Clone, Copy, Debug, Default)]
pub struct EdgeData<'a> {
    /// A weight for each edge.
    pub weights: Option<&'a [f32]>,
    /// So many features of each edge, and the rows of all edges one after the other.
    pub features: Option<(usize, &'a [f32])>,
}

impl EdgeData<'_> {
    /// Numbers of an edge: its weight, and its features.
    pub fn columns(&self) -> usize {
        usize::from(self.weights.is_some()) + self.features.map_or(0, |(columns, _)| columns)
    }
}

/// A graph and the numbers of its edges as a model wants them: see [`ModelConfig::prepare_edges`].
#[derive(Clone, Debug)]
pub struct PreparedGraph<'a> {
    /// The graph, with the self-loops that the model wants.
    pub graph: Cow<'a, Graph>,
    /// A weight for each of its edges, where the model multiplies by them.
    pub weights: Option<Cow<'a, [f32]>>,
    /// The columns that the model reads as features of edges, each with a number for each edge.
    pub features: Vec<Vec<f32>>,
}

impl PreparedGraph<'_> {
    /// What its memory on a device follows from.
    pub fn counts(&self) -> GraphCounts {
        GraphCounts::of(&self.graph)
            .weighted(self.weights.is_some())
            .with_edge_features(self.features.len())
    }

    /// The graph on a backend, for `model`, which it was prepared for.
    ///
    /// # Errors
    /// Those of [`Propagation::of_graph`] and [`Propagation::with_edge_features`].
    pub fn propagation<B: Backend, E: Element>(
        &self,
        backend: &B,
        model: &ModelConfig,
    ) -> Result<Propagation<B>, Error> {
        let weights = self.weights.as_deref();
        let graph = Propagation::of_graph::<E>(backend, &self.graph, weights, model.norm())?;
        match self.features.is_empty() {
            true => Ok(graph),
            false => graph.with_edge_features(backend, &self.graph, &self.features),
        }
    }
}

impl PreparedGraph<'_> {
    /// Whether each edge has a weight, and how many features of each are read.
    pub fn of_edges(&self) -> (bool, usize) {
        (self.weights.is_some(), self.features.len())
    }

    /// What a rank of `group` has of it, for `model`, which it was prepared for.
    ///
    /// # Errors
    /// Those of [`Propagation::of_shard`] and [`Propagation::with_edge_features`], and [`Error::Unsupported`] of a model that drops
    /// edges, whose numbers ranks do not draw alike.
    pub fn propagation_of_shard<B: Backend, E: Element>(
        &self,
        backend: &B,
        model: &ModelConfig,
        (shard, group): (&Shard, &Group),
    ) -> Result<Propagation<B>, Error> {
        model.check_ranks()?;
        let factors = self.part_factors::<E>(model)?;
        let graph = Propagation::of_shard(backend, &factors, (shard, group))?;
        match self.features.is_empty() {
            true => Ok(graph),
            false => Ok(graph.with(EdgeFeatures::of_part(backend, &shard.part, &self.features)?)),
        }
    }

    /// What parts of it take theirs from, for `model`, which it was prepared for.
    ///
    /// # Errors
    /// Those of [`PartFactors::new`].
    pub(super) fn part_factors<E: Element>(
        &self,
        model: &ModelConfig,
    ) -> Result<PartFactors<E>, Error> {
        PartFactors::new(&self.graph, self.weights.as_deref(), model.norm())
    }
}

impl ModelConfig {
    /// That several ranks compute what one does.
    pub(super) fn check_ranks(&self) -> Result<(), Error> {
        let refuse = |reason: &str| {
            Err(Error::Unsupported {
                operator: "PreparedGraph::propagation_of_shard",
                reason: reason.into(),
            })
        };
        if self.convolution.drops_edges() {
            return refuse(
                "edges are not dropped by several ranks; leave the attention dropout out, or train with one",
            );
        }
        Ok(())
    }

    /// [`ModelConfig::prepare_weighted`], also of a model that reads [features of edges](ModelConfig::edge_features): its columns
    /// are the weight, where edges have one, and then the features. An edge of a vertex to itself has the mean of those that the
    /// vertex hears others by, as PyG's `GATConv` has it.
    ///
    /// # Errors
    /// Those of [`ModelConfig::prepare_weighted`], and [`Error::Unsupported`] where the model reads another number of columns
    /// than there are: nothing is left out in silence.
    pub fn prepare_edges<'a>(
        &self,
        graph: &'a Graph,
        edges: EdgeData<'a>,
    ) -> Result<PreparedGraph<'a>, Error> {
        let wanted = self.edge_features();
        if wanted == 0 && edges.features.is_none() {
            let (graph, weights) = self.prepare_weighted(graph, edges.weights)?;
            return Ok(PreparedGraph {
                graph,
                weights,
                features: Vec::new(),
            });
        }
        if wanted != edges.columns() {
            return Err(Error::Unsupported {
                operator: PREPARE,
                reason: format!(
                    "the model reads {wanted} numbers of each edge, and there are {}: {} weights and {} features of each; give \
                     what it was made for, or make it for those",
                    edges.columns(),
                    usize::from(edges.weights.is_some()),
                    edges.columns() - usize::from(edges.weights.is_some()),
                ),
            });
        }
        let mut columns = Vec::with_capacity(wanted);
        if let Some(weights) = edges.weights {
            Error::expect(PREPARE, "edge weights", graph.edges(), weights.len())?;
            columns.push(Cow::Borrowed(weights));
        }
        if let Some((count, values)) = edges.features {
            let len = graph.edges().saturating_mul(count);
            Error::expect(PREPARE, "edge features", len, values.len())?;
            columns.extend((0..count).map(|column| {
                let of_column = values.iter().skip(column).step_by(count);
                Cow::Owned(of_column.copied().collect())
            }));
        }
        let prepared = self.prepare(graph)?;
        let features = columns.into_iter().map(|column| {
            if let Some(at) = column.iter().position(|value| !value.is_finite()) {
                return Err(Error::Unsupported {
                    operator: PREPARE,
                    reason: format!(
                        "edge {at} ({} hears {}) has the number {}; numbers of edges are finite",
                        graph.csr().row_of(at),
                        graph.cols()[at],
                        column[at]
                    ),
                });
            }
            let mut carried = match &prepared {
                Cow::Borrowed(_) => column.into_owned(),
                Cow::Owned(edited) => {
                    graph.carry_weights(&column, edited, AddedWeight::Value(0.0))?
                }
            };
            if self.wants_self_loops() {
                means_on_loops(&prepared, &mut carried);
            }
            Ok(carried)
        });
        let features = features.collect::<Result<_, Error>>()?;
        Ok(PreparedGraph {
            graph: prepared,
            weights: None,
            features,
        })
    }
}

/// Gives every self-loop the mean of the other edges of its row, 0 where there are none.
fn means_on_loops(graph: &Graph, values: &mut [f32]) {
    for row in 0..graph.vertices() {
        let (columns, range) = (graph.csr().row(row), graph.csr().row_range(row));
        let values = &mut values[range];
        let is_loop = |at: &usize| columns[*at] as usize == row;
        let others = (0..columns.len()).filter(|at| !is_loop(at));
        let (sum, count) = others.fold((0.0, 0_u32), |(sum, count), at| {
            (sum + f64::from(values[at]), count + 1)
        });
        let mean = (sum / f64::from(count.max(1))) as f32;
        (0..columns.len())
            .filter(is_loop)
            .for_each(|at| values[at] = mean);
    }
}

/// Features of edges on a backend: a row a column, in which edge `k` has place `k`; each row is [`edge_plane`] long.
#[derive(Debug)]
pub struct EdgeFeatures<B: Backend> {
    /// In the order of [`Propagation::forward`].
    pub forward: Arc<Matrix<B, f32>>,
    /// In that of [`Propagation::backward`].
    pub backward: Arc<Matrix<B, f32>>,
}

impl<B: Backend> EdgeFeatures<B> {
    /// Features of an edge.
    pub fn columns(&self) -> usize {
        self.forward.rows()
    }

    pub(super) fn new(backend: &B, graph: &Graph, columns: &[Vec<f32>]) -> Result<Self, Error> {
        const NAME: &str = "Propagation::with_edge_features";
        let edges = graph.edges();
        for column in columns {
            Error::expect(NAME, "features of edges", edges, column.len())?;
        }
        let shape = (columns.len(), edge_plane(edges));
        let upload = |of: &(dyn Fn(usize, usize) -> f32 + Sync)| {
            Matrix::from_rows(backend, shape, MemoryKind::Graph, |column, row| {
                row.fill(0.0);
                (0..edges).for_each(|edge| row[edge] = of(column, edge));
            })
            .map(Arc::new)
        };
        let forward = upload(&|column, edge| columns[column][edge])?;
        let map = graph.edge_map();
        let against = |column: usize, edge: usize| columns[column][map[edge] as usize];
        let same = |column: usize| {
            (0..edges)
                .all(|edge| columns[column][edge].to_bits() == against(column, edge).to_bits())
        };
        let backward = match graph.is_symmetric() && (0..columns.len()).all(same) {
            true => Arc::clone(&forward),
            false => upload(&against)?,
        };
        Ok(Self { forward, backward })
    }

    /// Those of the edges of a part, of columns for all edges of the graph.
    pub(super) fn of_part(backend: &B, part: &Part, columns: &[Vec<f32>]) -> Result<Self, Error> {
        let against = part.against();
        let (edges, of) = (part.edges(), |at: usize| against[at] as usize);
        Ok(Self {
            backward: Self::of_edges(backend, columns, edges.len(), |at| edges[of(at)])?,
            ..Self::of_part_forward(backend, part, columns)?
        })
    }

    /// The same where no gradient is wanted: what goes against the edges is nobody's.
    pub(super) fn of_part_forward(
        backend: &B,
        part: &Part,
        columns: &[Vec<f32>],
    ) -> Result<Self, Error> {
        let edges = part.edges();
        let forward = Self::of_edges(backend, columns, edges.len(), |at| edges[at])?;
        Ok(Self {
            backward: Arc::clone(&forward),
            forward,
        })
    }

    /// Rows of so many edges: which edge of the columns each is.
    fn of_edges(
        backend: &B,
        columns: &[Vec<f32>],
        len: usize,
        edge: impl Fn(usize) -> u32 + Sync,
    ) -> Result<Arc<Matrix<B, f32>>, Error> {
        let shape = (columns.len(), edge_plane(len));
        Matrix::from_rows(backend, shape, MemoryKind::Graph, |column, row| {
            row.fill(0.0);
            let values = (0..len).map(|at| columns[column][edge(at) as usize]);
            row.iter_mut()
                .zip(values)
                .for_each(|(to, value)| *to = value);
        })
        .map(Arc::new)
    }

    /// With nothing in them, for a backend that only counts memory. Whether they are symmetric is not known.
    pub(super) fn counted(backend: &B, columns: usize, edges: usize) -> Result<Self, Error> {
        let zeros =
            || Matrix::zeros(backend, columns, edge_plane(edges), MemoryKind::Graph).map(Arc::new);
        Ok(Self {
            forward: zeros()?,
            backward: zeros()?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::nn::Gat;

    #[test]
    fn weights_and_features_are_columns_and_loops_have_their_means() {
        // 0 hears 0, 1 and 2; 1 hears nobody; 2 hears 0.
        let graph = Graph::from_edges(3, &[0, 0, 0, 2], &[0, 1, 2, 0]).unwrap();
        let model = ModelConfig::of(
            Gat {
                edge_features: 3,
                ..Gat::default()
            },
            4,
            2,
        );
        let edges = EdgeData {
            weights: Some(&[9.0, 1.0, 2.0, 5.0]),
            features: Some((2, &[9.0, 9.0, 1.0, 10.0, 3.0, 20.0, 7.0, 30.0])),
        };
        let prepared = model.prepare_edges(&graph, edges).unwrap();
        assert_eq!(prepared.graph.cols(), [0, 1, 2, 1, 0, 2]);
        let expected = [
            [1.5, 1.0, 2.0, 0.0, 5.0, 5.0],
            [2.0, 1.0, 3.0, 0.0, 7.0, 7.0],
            [15.0, 10.0, 20.0, 0.0, 30.0, 30.0],
        ];
        assert_eq!(prepared.features, expected);
        assert!(prepared.weights.is_none());
        let without = EdgeData {
            weights: None,
            ..edges
        };
        let told = model
            .prepare_edges(&graph, without)
            .unwrap_err()
            .to_string();
        assert!(
            told.contains("reads 3 numbers of each edge, and there are 2"),
            "{told}"
        );
        let nan = EdgeData {
            weights: Some(&[9.0, 1.0, f32::NAN, 5.0]),
            ..edges
        };
        let told = model.prepare_edges(&graph, nan).unwrap_err().to_string();
        assert!(
            told.contains("edge 2 (0 hears 2) has the number NaN"),
            "{told}"
        );
    }
}
