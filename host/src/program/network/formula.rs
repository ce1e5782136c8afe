//! A whole network as one formula: its layers, and what is between them and behind them.

use super::topology::Topology;
use crate::error::Error;
use crate::nn::{HiddenNorm, Jumping, ModelConfig, Readout};
use crate::program::layers::Layer;
use crate::program::list::refuse;
use crate::program::{Builder, Edges, Program, Value, Vertices};
use crate::tensor::Precision;
use std::borrow::Cow;

/// The name of the input that holds the features of vertices.
pub(super) const FEATURES: &str = "features";

/// The forward list of a model over adjacencies of `topology`, and what each layer writes. Its rows and edges are sized later.
///
/// # Errors
/// [`Error::Unsupported`] of a model whose layers have no formula, and where widths do not fit.
pub(super) fn of_model(
    model: &ModelConfig,
    precision: Precision,
    topology: Topology,
) -> Result<(Program, Vec<Value>), Error> {
    let mut g = Builder::new(precision);
    let vertices = g.vertices("vertices", 0);
    let features = g.input(FEATURES, vertices, model.features);
    let (edges, pool) = adjacencies(&mut g, model, (topology, vertices));
    let (mut x, mut outputs) = (features, Vec::new());
    // What is behind the layers has a width of its own.
    let of_layers = match model.jumping.is_some() || model.readout.is_some() {
        true => Cow::Owned(ModelConfig {
            classes: model.hidden_of(model.layers - 1),
            ..model.clone()
        }),
        false => Cow::Borrowed(model),
    };
    for (number, edges) in edges.iter().enumerate() {
        let layer = layer_of(&of_layers, number, *edges)?;
        x = g.layer(number as u32, |g| {
            let own = g.dropout(x, model.dropout_of(number));
            // Features are those of all sources.
            let read = match topology {
                Topology::Ranks { .. } if number > 0 => g.extend(*edges, own),
                _ => own,
            };
            let y = layer.build(g, read);
            behind(g, model, number, (*edges, read), y)
        });
        outputs.push(x);
    }
    if let Some(jumping) = model.jumping {
        x = jump(&mut g, model, jumping, (&edges, pool), &outputs)?;
    } else if let (Some(readout), Some(pool)) = (model.readout, pool) {
        x = read_out(&mut g, model, readout, pool, x);
    }
    Ok((g.finish(x)?, outputs))
}

/// The forward list of layer `number` alone, with what is behind it, from the rows of its sources to those of its destinations.
///
/// # Errors
/// [`Error::Unsupported`] of a layer that has no formula, and where widths do not fit.
pub(super) fn of_layer(
    model: &ModelConfig,
    precision: Precision,
    number: usize,
) -> Result<Program, Error> {
    let mut g = Builder::new(precision);
    let [sources, destinations] = ["vertices", "own vertices"].map(|name| g.vertices(name, 0));
    let x = g.input(FEATURES, sources, model.layer(number).0);
    let edges = g.edges("edges", sources, destinations, model.norm());
    let layer = layer_of(model, number, edges)?;
    let y = g.layer(number as u32, |g| {
        let y = layer.build(g, x);
        behind(g, model, number, (edges, x), y)
    });
    g.finish(y)
}

fn layer_of(model: &ModelConfig, number: usize, edges: Edges) -> Result<Box<dyn Layer>, Error> {
    match model.convolution.formula(model, number, edges) {
        Some(layer) => Ok(layer),
        None => refuse(format!(
            "the layers of {} have no formula",
            model.convolution.name()
        )),
    }
}

/// A linear map with its bias.
fn dense(g: &mut Builder, x: Value, outputs: usize) -> Value {
    let weight = g.weight("weight", (g.columns(x), outputs));
    let y = g.matmul(x, weight);
    let bias = g.bias("bias", outputs);
    g.add_bias(y, bias)
}

/// The adjacency of each layer, and the one that pools.
fn adjacencies(
    g: &mut Builder,
    model: &ModelConfig,
    (topology, mut vertices): (Topology, Vertices),
) -> (Vec<Edges>, Option<Edges>) {
    let norm = model.norm();
    let edges = match topology {
        Topology::Whole => vec![g.edges("edges", vertices, vertices, norm); model.layers],
        Topology::Ranks { is_mutual } => {
            let sources = vertices;
            vertices = g.vertices("own vertices", 0);
            let edges = g.edges_of_rank("edges", sources, vertices, norm);
            if is_mutual {
                g.edges_go_both_ways(edges);
            }
            vec![edges; model.layers]
        }
        Topology::Blocks => {
            let mut blocks = Vec::with_capacity(model.layers);
            for number in 0..model.layers {
                let sources = vertices;
                vertices = g.vertices(&format!("vertices of layer {number}"), 0);
                blocks.push(g.edges(&format!("block {number}"), sources, vertices, norm));
            }
            blocks
        }
    };
    let pool = model.readout.map(|readout| {
        let graphs = g.vertices("graphs", 0);
        g.edges("members", vertices, graphs, readout.norm())
    });
    (edges, pool)
}

/// Bias, norm, residual input and activation behind layer `number`, which has read the rows `read`.
fn behind(
    g: &mut Builder,
    model: &ModelConfig,
    number: usize,
    (edges, read): (Edges, Value),
    y: Value,
) -> Value {
    let bias = g.bias("bias", g.columns(y));
    let is_last = model.is_last(number) && model.readout.is_none();
    let mut y = g.add_bias(y, bias);
    if !is_last && model.hidden_norm != HiddenNorm::None {
        y = g.hidden_norm("hidden_norm", model.hidden_norm, y);
    }
    if model.residual && g.columns(read) == g.columns(y) {
        let own = g.own_rows(edges, read);
        y = g.add(y, own);
    }
    match is_last {
        true => y,
        false => g.hidden_activation(model.activation, y),
    }
}

/// What is made of the outputs of all layers.
fn jump(
    g: &mut Builder,
    model: &ModelConfig,
    jumping: Jumping,
    (edges, pool): (&[Edges], Option<Edges>),
    outputs: &[Value],
) -> Result<Value, Error> {
    if edges.windows(2).any(|two| two[0] != two[1]) {
        return refuse("jumping knowledge reads the outputs of all layers, which have other rows on sampled blocks; sample subgraphs, or train on the whole graph".into());
    }
    if jumping == Jumping::All || pool.is_some() {
        return refuse(
            "this model has jumping knowledge of vertices, `cat` or `max`; take one of those"
                .into(),
        );
    }
    let mut rows = Vec::with_capacity(outputs.len());
    for (number, &output) in outputs.iter().enumerate() {
        let dropout = model.dropout_of(number + 1);
        rows.push(g.layer(number as u32 + 1, |g| g.dropout(output, dropout)));
    }
    let (number, outputs) = (model.layers as u32, model.classes);
    Ok(match jumping {
        Jumping::Max => {
            let largest = g.largest(&rows);
            g.layer(number + 1, |g| dense(g, largest, outputs))
        }
        Jumping::Cat | Jumping::All => g.layer(number, |g| {
            let y = g.linear_of_all("jump", &rows, outputs);
            let bias = g.bias("bias", outputs);
            g.add_bias(y, bias)
        }),
    })
}

/// A row of each graph, and two linear maps behind it with a ReLU and a dropout between them.
fn read_out(
    g: &mut Builder,
    model: &ModelConfig,
    readout: Readout,
    pool: Edges,
    x: Value,
) -> Value {
    let (pooled, number) = (g.pool(readout, pool, x), model.layers as u32 + 1);
    let width = g.columns(pooled);
    let hidden = g.layer(number, |g| {
        let y = dense(g, pooled, width);
        g.relu(y)
    });
    g.layer(number + 1, |g| {
        let read = g.dropout(hidden, model.dropout_of(model.layers));
        dense(g, read, model.classes)
    })
}
