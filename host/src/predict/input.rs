//! Graphs to predict, and whether a model reads them.

use super::PredictError;
use crate::data::{DataProblem, Dataset, Features, GraphIndex, HalfRange, InfiniteFeatures};
use crate::graph::{Graph, edge_order};
use crate::nn::{EdgeData, ModelConfig};
use crate::tensor::Precision;
use crate::train::Checkpoint;
use std::borrow::Cow;

/// A graph that a model has not seen, with the features of its vertices.
///
/// ```
/// use halfgnn::data::Features;
/// use halfgnn::predict::NewGraph;
///
/// // Two vertices with an edge in each direction, three features of each.
/// let features = Features::dense(3, vec![1.0, 0.0, 0.0, 0.0, 1.0, 0.0])?;
/// let graph = NewGraph::from_edges(features, &[[0, 1], [1, 0]])?.with_edge_weights(vec![0.5, 2.0])?;
/// assert_eq!((graph.vertices(), graph.edges()), (2, 2));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug)]
pub struct NewGraph<'a> {
    pub(super) graph: Graph,
    pub(super) features: Cow<'a, Features>,
    edge_weights: Option<Cow<'a, [f32]>>,
    edge_features: Option<(usize, Cow<'a, [f32]>)>,
    pub(super) graphs: Option<Cow<'a, GraphIndex>>,
    /// Which of the edges as they were given is each edge of the graph.
    order: Option<Vec<u32>>,
}

fn input(problem: impl ToString) -> PredictError {
    PredictError::Input(problem.to_string())
}

impl<'a> NewGraph<'a> {
    /// A graph, and a row of features for each of its vertices. Numbers of edges are given in its order.
    ///
    /// # Errors
    /// [`PredictError::Input`] where there is another number of rows.
    pub fn new(graph: Graph, features: Features) -> Result<Self, PredictError> {
        Self::of_parts(graph, features, None)
    }

    /// A graph of edges in any order, each from its first vertex to its second, and a row of features for each vertex.
    /// An undirected graph has each edge in both directions. Numbers of edges are given in the order of `edges`.
    ///
    /// # Errors
    /// [`PredictError::Input`] where an edge names a vertex that has no features.
    pub fn from_edges(features: Features, edges: &[[u32; 2]]) -> Result<Self, PredictError> {
        let vertices = features.vertices();
        let out_of_range =
            |(_, edge): &(usize, &[u32; 2])| edge.iter().any(|&vertex| vertex as usize >= vertices);
        if let Some((number, [source, target])) = edges.iter().enumerate().find(out_of_range) {
            return Err(input(format!(
                "edges[{number}] is from {source} to {target}, and there are features of {vertices} vertices, numbered from 0"
            )));
        }
        let (columns, rows): (Vec<u32>, Vec<u32>) = edges
            .iter()
            .map(|&[source, target]| (source, target))
            .unzip();
        let graph = Graph::from_edges(vertices, &rows, &columns).map_err(input)?;
        let order = edge_order(vertices, &rows, &columns).map_err(input)?;
        Self::of_parts(graph, features, Some(order))
    }

    fn of_parts(
        graph: Graph,
        features: Features,
        order: Option<Vec<u32>>,
    ) -> Result<Self, PredictError> {
        let (rows, vertices) = (features.vertices(), graph.vertices());
        if rows != vertices {
            return Err(input(format!(
                "there are features of {rows} vertices, and the graph has {vertices}; give a row for each"
            )));
        }
        Ok(Self {
            graph,
            features: Cow::Owned(features),
            edge_weights: None,
            edge_features: None,
            graphs: None,
            order,
        })
    }

    /// The same with a weight for each edge.
    ///
    /// # Errors
    /// [`PredictError::Input`] where there is another number of weights, or one is not finite.
    pub fn with_edge_weights(self, weights: Vec<f32>) -> Result<Self, PredictError> {
        let weights = self.edge_rows("edge weights", 1, weights)?;
        Ok(Self {
            edge_weights: Some(weights.into()),
            ..self
        })
    }

    /// The same with a row of `columns` features for each edge.
    ///
    /// # Errors
    /// [`PredictError::Input`] where there is another number of rows, or a number is not finite.
    pub fn with_edge_features(
        self,
        columns: usize,
        values: Vec<f32>,
    ) -> Result<Self, PredictError> {
        let values = self.edge_rows("edge features", columns, values)?;
        Ok(Self {
            edge_features: Some((columns, values.into())),
            ..self
        })
    }

    /// The same as many graphs next to one another, of a model that predicts whole graphs. A graph by itself is
    /// `GraphIndex::new(vec![0, vertices])`.
    ///
    /// # Errors
    /// [`PredictError::Input`] where `graphs` has another number of vertices, or an edge joins two graphs.
    pub fn with_graphs(self, graphs: GraphIndex) -> Result<Self, PredictError> {
        graphs.expect_apart(&self.graph).map_err(input)?;
        Ok(Self {
            graphs: Some(Cow::Owned(graphs)),
            ..self
        })
    }

    /// The graph of a dataset, with what `model` reads of its edges.
    pub(super) fn of_dataset(model: &ModelConfig, dataset: &'a Dataset) -> Self {
        let EdgeData { weights, features } = EdgeData::of_dataset(model, dataset);
        Self {
            graph: dataset.graph.clone(),
            features: Cow::Borrowed(&dataset.features),
            edge_weights: weights.map(Cow::Borrowed),
            edge_features: features.map(|(columns, values)| (columns, Cow::Borrowed(values))),
            graphs: dataset.graphs.as_ref().map(Cow::Borrowed),
            order: None,
        }
    }

    /// Vertices.
    pub fn vertices(&self) -> usize {
        self.graph.vertices()
    }

    /// Edges.
    pub fn edges(&self) -> usize {
        self.graph.edges()
    }

    /// The numbers of edges, in the order of the graph.
    pub(super) fn edge_data(&self) -> EdgeData<'_> {
        let features = self.edge_features.as_ref();
        EdgeData {
            weights: self.edge_weights.as_deref(),
            features: features.map(|(columns, values)| (*columns, &**values)),
        }
    }

    /// Rows of numbers of edges, in the order of the graph.
    fn edge_rows(
        &self,
        what: &str,
        columns: usize,
        values: Vec<f32>,
    ) -> Result<Vec<f32>, PredictError> {
        let edges = self.edges();
        if columns == 0 || columns.checked_mul(edges) != Some(values.len()) {
            return Err(input(format!(
                "{what}: {} numbers are given, and {edges} edges have {columns} each",
                values.len()
            )));
        }
        if let Some(at) = values.iter().position(|value| !value.is_finite()) {
            return Err(input(format!(
                "{what}: edge {} has the number {}; numbers of edges are finite",
                at / columns,
                values[at]
            )));
        }
        Ok(match &self.order {
            None => values,
            Some(order) => {
                let row = |&edge: &u32| &values[edge as usize * columns..][..columns];
                order.iter().flat_map(row).copied().collect()
            }
        })
    }
}

impl Checkpoint {
    /// That its model reads a dataset: as many features, the types that it was trained on, edges with what it reads of
    /// them, and whole graphs where it predicts those.
    ///
    /// # Errors
    /// What does not fit, in a line about the model.
    pub fn check_dataset(&self, dataset: &Dataset) -> Result<(), String> {
        match &self.model.types {
            Some(own) => own.expect(dataset).map_err(|error| error.to_string())?,
            None if dataset.types.is_some() => {
                return Err(format!(
                    "its model reads vertices of one type, and {} has several",
                    dataset.name
                ));
            }
            None => {}
        }
        self.check_graph(&dataset.name, &NewGraph::of_dataset(&self.model, dataset))
    }

    /// The same of a graph of one type.
    pub(super) fn check_graph(&self, name: &str, found: &NewGraph<'_>) -> Result<(), String> {
        let (features, own) = (found.features.feature_len(), self.model.features);
        if features != own {
            return Err(format!(
                "its model was trained on {own} features, and {name} has {features}"
            ));
        }
        if found.vertices() == 0 {
            return Err(format!("{name} has no vertex; give it one at least"));
        }
        if self.links.is_some() && !found.graph.is_symmetric() {
            return Err(format!(
                "its model predicts links in both directions at once, and {name} is directed; give each edge in both \
                 directions (--undirected)"
            ));
        }
        self.model
            .expect_graphs(found.graphs.as_deref())
            .map_err(|reason| format!("{name}: {reason}"))?;
        self.check_edges(name, found.edge_data())
    }

    /// That edges have the numbers that those had which the model was trained on.
    fn check_edges(&self, name: &str, found: EdgeData<'_>) -> Result<(), String> {
        self.model.expect_edges(name, found)?;
        let (read, is_weighted) = (self.model.edge_features(), found.weights.is_some());
        // Another framework's model has numbers of edges, of which a weight may be one: their number was compared.
        let is_imported = self.task.vertices == 0 && read > 0;
        match is_weighted && !self.task.edge_weights && !is_imported {
            true => Err(format!(
                "its model was trained on edges without weights, and those of {name} have some; leave them out \
                 (--ignore-edge-weights)"
            )),
            false => Ok(()),
        }
    }

    /// The features as the model reads them: of columns that are divided, the quotients.
    pub(super) fn scaled<'f>(&self, features: &'f Features) -> Result<Cow<'f, Features>, String> {
        let scaled = match &self.feature_divisors {
            None => Cow::Borrowed(features),
            Some(divisors) => {
                let mut scaled = features.clone();
                scaled.divide_columns(divisors);
                Cow::Owned(scaled)
            }
        };
        self.check_range(&scaled)?;
        Ok(scaled)
    }

    /// That half holds the features, where the model computes in it.
    pub(super) fn check_range(&self, features: &Features) -> Result<(), String> {
        let infinite = match self.precision {
            Precision::Half => InfiniteFeatures::of(features),
            _ => None,
        };
        match infinite {
            None => Ok(()),
            Some(found) => Err(format!(
                "{} features are infinite in half, which holds up to {}: the largest is {}, in column {} (from 0)",
                found.count,
                HalfRange::LARGEST,
                found.largest,
                found.column
            )),
        }
    }
}

impl From<DataProblem> for PredictError {
    fn from(problem: DataProblem) -> Self {
        input(problem)
    }
}
