//! Numbers of edges on the way from a dataset to a model: their weights, and rows of features.

use super::{ModelConfig, PartFactors, Propagation};
use crate::backend::{Backend, MemoryKind};
use crate::data::Dataset;
use crate::distributed::{Group, Shard};
use crate::error::Error;
use crate::graph::{AddedWeight, Graph, GraphCounts, Part};
use crate::ops::{EdgeOrder, edge_plane};
use crate::tensor::{Element, Matrix, Precision};
use std::any::Any;
use std::borrow::Cow;
use std::sync::Arc;

const PREPARE: &str = "ModelConfig::prepare_edges";

/// What a dataset has of each edge, in its graph's order.
#[derive(Clone, Copy, Debug, Default)]
pub struct EdgeData<'a> {
    /// A weight for each edge.
    pub weights: Option<&'a [f32]>,
    /// The number of features of each edge, and the rows of all edges one after the other.
    pub features: Option<(usize, &'a [f32])>,
}

impl<'a> EdgeData<'a> {
    /// What `model` reads of the edges of a dataset: its weights, and its features where the model reads features.
    pub fn of_dataset(model: &ModelConfig, dataset: &'a Dataset) -> Self {
        let features = dataset.edge_features.as_ref();
        Self {
            weights: dataset.edge_weights.as_deref(),
            features: features
                .filter(|_| model.edge_features() > 0)
                .map(|features| (features.columns(), features.values())),
        }
    }

    /// Numbers of an edge: its weight, and its features.
    pub fn columns(&self) -> usize {
        usize::from(self.weights.is_some()) + self.features.map_or(0, |(columns, _)| columns)
    }
}

/// A graph and the numbers of its edges as a model requires them: see [`ModelConfig::prepare_edges`].
#[derive(Clone, Debug)]
pub struct PreparedGraph<'a> {
    /// The graph, with the self-loops that the model requires.
    pub graph: Cow<'a, Graph>,
    /// A weight for each of its edges, where the model multiplies by them.
    pub weights: Option<Cow<'a, [f32]>>,
    /// What the model reads as features of edges.
    pub features: EdgeColumns,
}

/// Columns of features of edges, each with a number for each edge of a graph, and how a model reads them.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct EdgeColumns {
    /// The columns; none where edges have no features.
    pub columns: Vec<Vec<f32>>,
    /// Whether the model reads a row of elements for each edge. Otherwise it reads columns of floats.
    pub as_rows: bool,
}

impl EdgeColumns {
    /// How many there are.
    pub fn len(&self) -> usize {
        self.columns.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.columns.is_empty()
    }

    /// The columns, and how they are read.
    fn as_parts(&self) -> (&[Vec<f32>], bool) {
        (&self.columns, self.as_rows)
    }

    /// Those of some edges.
    #[must_use]
    pub fn selected(&self, edges: &[usize]) -> Self {
        let of = |column: &Vec<f32>| edges.iter().map(|&edge| column[edge]).collect();
        Self {
            columns: self.columns.iter().map(of).collect(),
            as_rows: self.as_rows,
        }
    }
}

impl PreparedGraph<'_> {
    /// What its memory on a device follows from.
    pub fn counts(&self) -> GraphCounts {
        GraphCounts::of(&self.graph)
            .weighted(self.weights.is_some())
            .with_edge_features(self.features.len())
            .with_edge_rows(self.features.as_rows)
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
            false => Ok(graph.with(EdgeFeatures::new::<E>(
                backend,
                &self.graph,
                self.features.as_parts(),
            )?)),
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
    /// Those of [`Propagation::of_shard`] and [`Propagation::with_edge_features`], and [`Error::Unsupported`] for a
    /// model that drops edges, because the ranks would drop different ones.
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
            false => {
                let features = EdgeFeatures::of_part::<E>(backend, &shard.part, &self.features)?;
                Ok(graph.with(features))
            }
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
    /// Checks that it reads what `name` has of each edge, all of it.
    ///
    /// # Errors
    /// The reason.
    pub fn expect_edges(&self, name: &str, edges: EdgeData<'_>) -> Result<(), String> {
        let (read, count) = (self.edge_features(), edges.columns());
        match (read, edges.weights.is_some(), edges.features.is_some()) {
            (0, _, true) => Err(format!(
                "the edges of {name} have features, and the model reads none; leave them out (--ignore-edge-features)"
            )),
            (0, true, false) => self.edge_weights().map_err(|reason| {
                format!(
                    "the edges of {name} have weights, and {reason}; leave them out (--ignore-edge-weights), or take \
                     another model"
                )
            }),
            (0, false, false) => Ok(()),
            _ if count == read => Ok(()),
            _ => Err(format!(
                "the model reads {read} numbers of each edge, and {name} has {count}, weight and features together; give \
                 it edges as it was trained on (--ignore-edge-weights and --ignore-edge-features leave some out)"
            )),
        }
    }

    /// Checks that several ranks compute what one does.
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

    /// [`ModelConfig::prepare_weighted`], also for a model that reads [features of edges](ModelConfig::edge_features):
    /// its columns are the weight, where edges have one, and then the features. A self-loop has the mean of the
    /// features of the vertex' other in-edges, as in PyG's `GATConv`.
    ///
    /// # Errors
    /// Those of [`ModelConfig::prepare_weighted`], and [`Error::Unsupported`] where the model reads another number of
    /// columns than there are: nothing is left out in silence.
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
                features: EdgeColumns::default(),
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
                        "edge {at}, from vertex {} to {}, has the number {}; numbers of edges are finite",
                        graph.cols()[at],
                        graph.csr().row_of(at),
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
        let columns = features.collect::<Result<_, Error>>()?;
        Ok(PreparedGraph {
            graph: prepared,
            weights: None,
            features: EdgeColumns {
                columns,
                as_rows: self.reads_edge_rows(),
            },
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

/// Features of edges on a backend.
#[derive(Debug)]
pub struct EdgeFeatures<B: Backend> {
    columns: usize,
    layout: Layout<B>,
}

#[derive(Debug)]
enum Layout<B: Backend> {
    /// For terms of scores.
    Planes(EdgePlanes<B>),
    /// For sums of messages.
    Rows(EdgeRows<B>),
}

/// A row for each feature, in which edge `k` has place `k`; each row is [`edge_plane`] long.
#[derive(Debug)]
pub struct EdgePlanes<B: Backend> {
    /// In the order of [`Propagation::forward`].
    pub forward: Arc<Matrix<B, f32>>,
    /// In that of [`Propagation::backward`].
    pub backward: Arc<Matrix<B, f32>>,
}

/// A row of elements for each edge, in the order of [`Propagation::forward`].
#[derive(Debug)]
struct EdgeRows<B: Backend> {
    /// A `Matrix<B, E>` of the `E` of this precision.
    rows: Box<dyn Any + Send + Sync>,
    precision: Precision,
    /// The row of each edge in the order of [`Propagation::backward`]; none where nothing reads the edges backward.
    backward: Option<EdgeOrder<B>>,
}

impl<B: Backend> EdgeFeatures<B> {
    /// Features of an edge.
    pub fn columns(&self) -> usize {
        self.columns
    }

    /// Columns of floats, as terms of scores read them.
    ///
    /// # Errors
    /// [`Error::Unsupported`] where there are rows of elements.
    pub fn planes(&self) -> Result<&EdgePlanes<B>, Error> {
        match &self.layout {
            Layout::Planes(planes) => Ok(planes),
            Layout::Rows(_) => refuse_form(
                "the features of edges are rows of elements, and terms of scores read columns; make them by Propagation::with_edge_features",
            ),
        }
    }

    fn edge_rows(&self) -> Result<&EdgeRows<B>, Error> {
        match &self.layout {
            Layout::Rows(rows) => Ok(rows),
            Layout::Planes(_) => refuse_form(
                "the features of edges are columns of floats, and the program reads a row for each edge; make them by Propagation::with_edge_rows",
            ),
        }
    }

    /// The row of each edge in the order of [`Propagation::backward`].
    ///
    /// # Errors
    /// [`Error::Unsupported`] where there are columns of floats, or rows for a forward pass alone.
    pub fn order_backward(&self) -> Result<&EdgeOrder<B>, Error> {
        match &self.edge_rows()?.backward {
            Some(order) => Ok(order),
            None => refuse_form("the features of edges were made for forward passes alone"),
        }
    }

    /// A row of elements for each edge, as sums of messages read them.
    ///
    /// # Errors
    /// [`Error::Unsupported`] where there are columns of floats, or rows in another precision.
    pub fn rows<E: Element>(&self) -> Result<&Matrix<B, E>, Error> {
        let rows = self.edge_rows()?;
        match rows.rows.downcast_ref() {
            Some(matrix) => Ok(matrix),
            None => refuse_form(&format!(
                "the features of edges are kept in {}, and the model computes in {}; make the graph for the model's precision",
                rows.precision,
                E::PRECISION
            )),
        }
    }

    pub(super) fn new<E: Element>(
        backend: &B,
        graph: &Graph,
        (columns, as_rows): (&[Vec<f32>], bool),
    ) -> Result<Self, Error> {
        const NAME: &str = "EdgeFeatures";
        let edges = graph.edges();
        for column in columns {
            Error::expect(NAME, "features of edges", edges, column.len())?;
        }
        if as_rows {
            let order = EdgeOrder::new(backend, graph.edge_map())?;
            let rows = rows_of_edges::<B, E>(backend, columns, edges, |edge| edge as u32)?;
            return Ok(Self::of_rows(rows, Some(order)));
        }
        let forward = plane(backend, columns, edges, |edge| edge as u32)?;
        let map = graph.edge_map();
        let same = |column: &Vec<f32>| {
            (0..edges).all(|edge| column[edge].to_bits() == column[map[edge] as usize].to_bits())
        };
        let backward = match graph.is_symmetric() && columns.iter().all(same) {
            true => Arc::clone(&forward),
            false => plane(backend, columns, edges, |edge| map[edge])?,
        };
        Ok(Self::of_planes(columns.len(), forward, backward))
    }

    /// Those of the edges of a part, of columns for all edges of the graph.
    pub(super) fn of_part<E: Element>(
        backend: &B,
        part: &Part,
        features: &EdgeColumns,
    ) -> Result<Self, Error> {
        let forward = Self::of_part_forward::<E>(backend, part, features)?;
        let against = part.against();
        let layout = match forward.layout {
            Layout::Planes(EdgePlanes { forward, .. }) => {
                let of = |at: usize| part.edges()[against[at] as usize];
                let backward = plane(backend, &features.columns, against.len(), of)?;
                Layout::Planes(EdgePlanes { forward, backward })
            }
            Layout::Rows(rows) => {
                let backward = Some(EdgeOrder::new(backend, &against)?);
                Layout::Rows(EdgeRows { backward, ..rows })
            }
        };
        Ok(Self { layout, ..forward })
    }

    /// The same where no gradient is needed: nothing reads the edges backward.
    pub(super) fn of_part_forward<E: Element>(
        backend: &B,
        part: &Part,
        features: &EdgeColumns,
    ) -> Result<Self, Error> {
        let (edges, columns) = (part.edges(), &features.columns);
        if features.as_rows {
            let rows = rows_of_edges::<B, E>(backend, columns, edges.len(), |at| edges[at])?;
            return Ok(Self::of_rows(rows, None));
        }
        let forward = plane(backend, columns, edges.len(), |at| edges[at])?;
        let backward = Arc::clone(&forward);
        Ok(Self::of_planes(columns.len(), forward, backward))
    }

    fn of_planes(
        columns: usize,
        forward: Arc<Matrix<B, f32>>,
        backward: Arc<Matrix<B, f32>>,
    ) -> Self {
        let layout = Layout::Planes(EdgePlanes { forward, backward });
        Self { columns, layout }
    }

    fn of_rows<E: Element>(rows: Matrix<B, E>, backward: Option<EdgeOrder<B>>) -> Self {
        Self {
            columns: rows.columns(),
            layout: Layout::Rows(EdgeRows {
                rows: Box::new(rows),
                precision: E::PRECISION,
                backward,
            }),
        }
    }

    /// With nothing in them, for a backend that only counts memory. Whether they are symmetric is not known.
    pub(super) fn counted<E: Element>(backend: &B, counts: &GraphCounts) -> Result<Self, Error> {
        let (columns, edges) = (counts.edge_features, counts.forward.edges);
        if counts.edge_rows {
            let rows = Matrix::<B, E>::zeros(backend, edges, columns, MemoryKind::Graph)?;
            let order = EdgeOrder::counted(backend, edges)?;
            return Ok(Self::of_rows(rows, Some(order)));
        }
        let zeros =
            || Matrix::zeros(backend, columns, edge_plane(edges), MemoryKind::Graph).map(Arc::new);
        Ok(Self::of_planes(columns, zeros()?, zeros()?))
    }
}

fn refuse_form<T>(reason: &str) -> Result<T, Error> {
    Err(Error::Unsupported {
        operator: "EdgeFeatures",
        reason: reason.into(),
    })
}

/// A row for each of `len` edges: row `k` is that of edge `edge(k)` of the columns.
fn rows_of_edges<B: Backend, E: Element>(
    backend: &B,
    columns: &[Vec<f32>],
    len: usize,
    edge: impl Fn(usize) -> u32 + Sync,
) -> Result<Matrix<B, E>, Error> {
    let shape = (len, columns.len());
    Matrix::from_rows(backend, shape, MemoryKind::Graph, |at, row| {
        let of = edge(at) as usize;
        for (to, column) in row.iter_mut().zip(columns) {
            *to = column[of];
        }
    })
}

/// A row for each column: place `k` is that of edge `edge(k)` of the column.
fn plane<B: Backend>(
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::nn::Gat;

    #[test]
    fn weights_and_features_are_columns_and_loops_have_their_means() {
        // Vertex 0 has the in-neighbours 0, 1 and 2; vertex 1 has none; vertex 2 has 0.
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
        assert_eq!(prepared.features.columns, expected);
        assert!(prepared.weights.is_none());
        let without = EdgeData {
            weights: None,
            ..edges
        };
        let message = model
            .prepare_edges(&graph, without)
            .unwrap_err()
            .to_string();
        assert!(
            message.contains("reads 3 numbers of each edge, and there are 2"),
            "{message}"
        );
        let nan = EdgeData {
            weights: Some(&[9.0, 1.0, f32::NAN, 5.0]),
            ..edges
        };
        let message = model.prepare_edges(&graph, nan).unwrap_err().to_string();
        assert!(
            message.contains("edge 2, from vertex 2 to 0, has the number NaN"),
            "{message}"
        );
    }
}
