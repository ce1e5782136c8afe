//! Requests and answers as JSON.

use halfgnn::data::{Features, GraphIndex};
use halfgnn::predict::{NewGraph, PredictError, Predictions, Predictor, sigmoid};
use serde::{Deserialize, Serialize};

/// What is asked for: `vertices` of the dataset, a new `graph`, or `pairs` of either.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Request {
    vertices: Option<Vec<Vertex>>,
    graph: Option<Graph>,
    pairs: Option<Vec<[Vertex; 2]>>,
}

/// A vertex, by its number from 0 or by the id that the dataset has for it.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(untagged)]
enum Vertex {
    Number(u32),
    Id(String),
}

/// A graph that the model has not seen.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Graph {
    /// A row for each vertex.
    features: Vec<Vec<f32>>,
    /// Pairs of source and target; an undirected edge in both directions.
    edges: Vec<[u32; 2]>,
    edge_weights: Option<Vec<f32>>,
    edge_features: Option<Vec<Vec<f32>>>,
    /// Where the vertices of each graph start, and the number of all vertices, of a model of whole graphs; one graph
    /// where absent.
    starts: Option<Vec<u32>>,
}

/// What the model predicts.
#[derive(Debug, Serialize)]
pub struct Answer {
    /// `classes`, `labels`, `values` or `links`.
    predicts: &'static str,
    predictions: Vec<Row>,
}

/// What it predicts of a vertex, a graph or a pair.
#[derive(Debug, Default, Serialize)]
struct Row {
    #[serde(skip_serializing_if = "Option::is_none")]
    vertex: Option<Vertex>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pair: Option<[Vertex; 2]>,
    #[serde(skip_serializing_if = "Option::is_none")]
    class: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    name: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    labels: Option<Vec<bool>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    probabilities: Option<Vec<f32>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    values: Option<Vec<f32>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    score: Option<f32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    probability: Option<f32>,
}

fn input<T>(reason: impl Into<String>) -> Result<T, PredictError> {
    Err(PredictError::Input(reason.into()))
}

impl Request {
    /// What `predictor` answers.
    ///
    /// # Errors
    /// Those of the predictor, and [`PredictError::Input`] where a request asks for nothing, or for several things.
    pub fn answer(self, predictor: &Predictor) -> Result<Answer, PredictError> {
        let predictions = match (self.vertices, self.graph, self.pairs) {
            (Some(vertices), None, None) => {
                let numbers = numbers(&vertices, predictor)?;
                let predictions = predictor.predict(&numbers)?;
                rows(&predictions, vertices.into_iter().map(Some))
            }
            (None, Some(graph), None) => {
                let graph = graph.read(predictor)?;
                let predictions = predictor.predict_graph(&graph)?;
                rows(&predictions, std::iter::repeat(None))
            }
            (None, None, Some(pairs)) => {
                let numbers = numbers(pairs.as_flattened(), predictor)?;
                let (ends, _) = numbers.as_chunks();
                scores(pairs, predictor.score_pairs(ends)?)
            }
            (None, Some(graph), Some(pairs)) => {
                let graph = graph.read(predictor)?;
                let ends: Vec<[u32; 2]> = pairs
                    .iter()
                    .map(|[a, b]| Ok([number_in_graph(a)?, number_in_graph(b)?]))
                    .collect::<Result<_, PredictError>>()?;
                scores(pairs, predictor.score_pairs_of(&graph, &ends)?)
            }
            _ => {
                return input(
                    "a request has `vertices`, a `graph`, `pairs`, or a `graph` with `pairs`",
                );
            }
        };
        Ok(Answer {
            predicts: predictor.kind().name(),
            predictions,
        })
    }
}

/// The numbers of vertices of the dataset.
fn numbers(vertices: &[Vertex], predictor: &Predictor) -> Result<Vec<u32>, PredictError> {
    let number = |vertex: &Vertex| match vertex {
        Vertex::Number(number) => Ok(*number),
        Vertex::Id(id) => match predictor.vertex_of(id) {
            Some(number) => Ok(number),
            None => input(format!("no vertex of the dataset has the id {id:?}")),
        },
    };
    vertices.iter().map(number).collect()
}

fn number_in_graph(vertex: &Vertex) -> Result<u32, PredictError> {
    match vertex {
        Vertex::Number(number) => Ok(*number),
        Vertex::Id(id) => input(format!(
            "vertices of a new graph are numbered from 0, and {id:?} is no number"
        )),
    }
}

impl Graph {
    fn read(self, predictor: &Predictor) -> Result<NewGraph<'static>, PredictError> {
        let vertices = self.features.len();
        let values = flattened("features", self.features, predictor.features())?;
        let features = Features::dense(predictor.features(), values)?;
        let mut graph = NewGraph::from_edges(features, &self.edges)?;
        if let Some(weights) = self.edge_weights {
            graph = graph.with_edge_weights(weights)?;
        }
        if let Some(rows) = self.edge_features {
            let columns = rows.first().map_or(0, Vec::len);
            let values = flattened("edge_features", rows, columns)?;
            graph = graph.with_edge_features(columns, values)?;
        }
        let starts = match (self.starts, predictor.model().readout) {
            (None, None) => return Ok(graph),
            (Some(starts), _) => starts,
            // A body is far shorter than 2³² rows.
            (None, Some(_)) => vec![0, vertices as u32],
        };
        graph.with_graphs(GraphIndex::new(starts)?)
    }
}

/// Rows of `columns` numbers, one after the other.
fn flattened(what: &str, rows: Vec<Vec<f32>>, columns: usize) -> Result<Vec<f32>, PredictError> {
    match rows.iter().position(|row| row.len() != columns) {
        None => Ok(rows.concat()),
        Some(row) => input(format!(
            "{what}[{row}] has {} numbers, and there should be {columns}",
            rows[row].len()
        )),
    }
}

/// Predictions, each with the vertex that it is of.
fn rows(predictions: &Predictions, vertices: impl Iterator<Item = Option<Vertex>>) -> Vec<Row> {
    let columns = predictions.columns();
    let of_row = |values: &[f32], row: usize| values[row * columns..][..columns].to_vec();
    let (classes, labels) = (predictions.classes(), predictions.labels());
    let probabilities = predictions.probabilities();
    let row = |(row, vertex): (usize, Option<Vertex>)| {
        let class = classes.as_ref().map(|classes| classes[row]);
        let name = class.and_then(|class| predictions.class_name(class));
        Row {
            vertex,
            class,
            name: name.map(str::to_owned),
            labels: (labels.as_ref()).map(|all| all[row * columns..][..columns].to_vec()),
            values: match probabilities {
                Some(_) => None,
                None => Some(of_row(predictions.logits(), row)),
            },
            probabilities: probabilities.as_ref().map(|all| of_row(all, row)),
            ..Row::default()
        }
    };
    (0..predictions.len()).zip(vertices).map(row).collect()
}

/// Pairs, each with its score.
fn scores(pairs: Vec<[Vertex; 2]>, scores: Vec<f32>) -> Vec<Row> {
    let row = |(pair, score)| Row {
        pair: Some(pair),
        score: Some(score),
        probability: Some(sigmoid(score)),
        ..Row::default()
    };
    pairs.into_iter().zip(scores).map(row).collect()
}
