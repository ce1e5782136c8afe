//! A whole network as one formula: its layers, and what is between them and behind them.

use super::topology::{Graphs, Topology};
use crate::error::Error;
use crate::nn::{HiddenNorm, Jumping, ModelConfig, Readout};
use crate::program::layers::binary::{self, BinaryLayer};
use crate::program::layers::{Dense, Layer, LayerSetting, Reads};
use crate::program::list::refuse;
use crate::program::{Builder, Edges, Program, Value, Vertices};
use crate::tensor::Precision;
use std::borrow::Cow;

/// The name of the input that holds the features of vertices.
pub(super) const FEATURES: &str = "features";

/// The name of the input that holds what the initial layer wrote, in the list of one layer.
pub(super) const INITIAL: &str = "initial";

/// The configuration of the layers alone: what is behind them has a width of its own.
pub(super) fn of_layers(model: &ModelConfig) -> Cow<'_, ModelConfig> {
    match model.jumping.is_some() || model.readout.is_some() {
        true => Cow::Owned(ModelConfig {
            classes: model.hidden_of(model.layers - 1),
            ..model.clone()
        }),
        false => Cow::Borrowed(model),
    }
}

/// How each layer stands in the network.
pub(super) fn settings(model: &ModelConfig) -> Vec<LayerSetting> {
    match model.binary {
        Some(_) => binary::settings(model),
        None => model.convolution.settings(&of_layers(model)),
    }
}

/// The forward list of a model over `graphs`, and what each layer and each step behind all layers writes. Its rows and edges are sized later.
///
/// # Errors
/// [`Error::Unsupported`] of a model whose layers have no formula, and where widths do not fit.
pub(super) fn of_model(
    model: &ModelConfig,
    precision: Precision,
    graphs: &Graphs,
) -> Result<(Program, Vec<Value>), Error> {
    if let Some(types) = &model.types {
        return super::types::of_types((model, types), precision, graphs);
    }
    let mut g = Builder::new(precision);
    let config = of_layers(model);
    let settings = settings(model);
    let is_first = settings.first().is_some_and(|first| first.aggregates);
    let hops = settings.iter().filter(|layer| layer.aggregates).count();
    let vertices = g.vertices("vertices", 0);
    let (edges, pool) = adjacencies(&mut g, (model, hops), (graphs.topology, vertices));
    for (edges, degree) in edges.iter().zip(&graphs.degrees) {
        g.set_largest_degree(*edges, *degree);
    }
    let Some(&any) = edges.first() else {
        return refuse(format!("{} does not aggregate", model.convolution.name()));
    };
    // On a rank features are those of all sources, or of its own vertices where nothing aggregates them.
    let rows = match graphs.topology {
        Topology::Ranks { .. } if !is_first => g.destinations(any),
        _ => vertices,
    };
    let features = g.input(FEATURES, rows, model.features);
    let mut x = features;
    let (mut outputs, mut jumped, mut initial) = (Vec::new(), Vec::new(), None);
    let mut next = edges.iter().copied();
    let is_rank = matches!(graphs.topology, Topology::Ranks { .. });
    for (number, setting) in settings.iter().enumerate() {
        let edges = setting.aggregates.then(|| next.next()).flatten();
        let own_edges = edges.unwrap_or(any);
        x = g.layer(number as u32, |g| {
            // Of jumping knowledge what a layer writes is dropped where it is written, for all that read it.
            let is_dropped = match number {
                0 => graphs.dropped,
                _ => model.jumping.is_some(),
            };
            let own = match is_dropped {
                true => {
                    g.skip_input_dropout();
                    x
                }
                false => g.dropout(x, setting.dropout),
            };
            let read = match edges {
                Some(edges) if is_rank && number > 0 => g.extend(edges, own),
                _ => own,
            };
            if let (Some(rows), Some(edges), false) = (initial, edges, is_rank) {
                initial = Some(g.own_rows(edges, rows));
            }
            let reads = Reads {
                edges: own_edges,
                initial: initial.unwrap_or(read),
            };
            // On sampled blocks a layer may have rows that are not of the vertices of the graphs.
            let rows = g.destinations(own_edges);
            let groups = pool.filter(|pool| g.sources(*pool) == rows);
            let layer = layer_of(&config, number, reads)?;
            Ok::<_, Error>(g.with_decay(setting.decay, |g| {
                let y = layer.build(g, read);
                behind(g, (model, setting, groups), (own_edges, read), y)
            }))
        })?;
        if setting.is_initial {
            initial = Some(x);
        }
        outputs.push(x);
        if model.jumping.is_some() {
            let next = settings.get(number + 1).map(|next| next.dropout);
            let dropout = next.unwrap_or_else(|| model.dropout_of(number + 1));
            x = g.layer(number as u32 + 1, |g| g.dropout(x, dropout));
            jumped.push(x);
        }
    }
    if let Some(jumping) = model.jumping {
        let features = match is_rank && is_first {
            true => g.own_rows(any, features),
            false => features,
        };
        let behind = jump(&mut g, model, jumping, (&edges, pool), (features, &jumped))?;
        outputs.extend(behind);
    } else if let (Some(readout), Some(pool)) = (model.readout, pool) {
        let layers = outputs.len();
        outputs.extend(read_out(&mut g, model, (readout, layers), pool, x));
    }
    let Some(&last) = outputs.last() else {
        return refuse("a model of 0 layers computes nothing; give it at least 1".into());
    };
    let mut program = g.finish(last)?;
    program.set_policy(model.policy);
    Ok((program, outputs))
}

/// The forward list of layer `number` alone, with what is behind it, from the rows of its sources to those of its destinations. One that
/// does not aggregate reads the rows of the destinations.
///
/// # Errors
/// [`Error::Unsupported`] of a layer that has no formula, and where widths do not fit.
pub(super) fn of_layer(
    model: &ModelConfig,
    precision: Precision,
    (number, largest_degree): (usize, u32),
) -> Result<Program, Error> {
    let (config, settings) = (of_layers(model), settings(model));
    let setting = &settings[number];
    let inputs = number.checked_sub(1).map(|before| settings[before].outputs);
    let mut g = Builder::new(precision);
    let [sources, destinations] = ["vertices", "own vertices"].map(|name| g.vertices(name, 0));
    let edges = g.edges("edges", sources, destinations, model.norm());
    g.set_largest_degree(edges, largest_degree);
    let rows = match setting.aggregates {
        true => sources,
        false => destinations,
    };
    let x = g.input(FEATURES, rows, inputs.unwrap_or(model.features));
    let initial = settings[..number].iter().find(|layer| layer.is_initial);
    let initial = initial.map(|layer| g.input(INITIAL, destinations, layer.outputs));
    let reads = Reads {
        edges,
        initial: initial.unwrap_or(x),
    };
    let layer = layer_of(&config, number, reads)?;
    let y = g.layer(number as u32, |g| {
        let y = layer.build(g, x);
        behind(g, (model, setting, None), (edges, x), y)
    });
    let mut program = g.finish(y)?;
    program.set_policy(model.policy);
    Ok(program)
}

/// The forward list of what is behind all layers, from the rows of some vertices that these wrote to their logits.
///
/// # Errors
/// [`Error::Unsupported`] where widths do not fit.
pub(super) fn of_jump(
    model: &ModelConfig,
    precision: Precision,
    jumping: Jumping,
) -> Result<Program, Error> {
    let mut g = Builder::new(precision);
    let vertices = g.vertices("vertices", 0);
    let features = g.input(FEATURES, vertices, model.features);
    let outputs: Vec<Value> = settings(model)
        .iter()
        .enumerate()
        .map(|(number, layer)| g.input(&output_name(number), vertices, layer.outputs))
        .collect();
    let behind = jump(&mut g, model, jumping, (&[], None), (features, &outputs))?;
    match behind.last() {
        Some(&y) => g.finish(y),
        None => refuse("jumping knowledge without an output".into()),
    }
}

/// The name of the input that holds what layer `number` wrote.
pub(super) fn output_name(number: usize) -> String {
    format!("output {number}")
}

fn layer_of(model: &ModelConfig, number: usize, reads: Reads) -> Result<Box<dyn Layer>, Error> {
    if model.binary.is_some() {
        return Ok(Box::new(BinaryLayer::new(model, number, reads)));
    }
    match model.convolution.formula(model, number, reads) {
        Some(layer) => Ok(layer),
        None => refuse(format!(
            "the layers of {} have no formula",
            model.convolution.name()
        )),
    }
}

/// A linear map with its bias.
fn dense(g: &mut Builder, x: Value, outputs: usize) -> Value {
    let y = Dense { outputs }.build(g, x);
    let bias = g.bias("bias", outputs);
    g.add_bias(y, bias)
}

/// The logits of hidden rows behind all layers, by a dropout and the linear map `number`.
fn logits_of(g: &mut Builder, model: &ModelConfig, number: u32, hidden: Value) -> Value {
    g.layer(number, |g| {
        let read = g.dropout(hidden, model.dropout_of(model.layers));
        dense(g, read, model.classes)
    })
}

/// The adjacency of each layer, and the one that pools.
fn adjacencies(
    g: &mut Builder,
    (model, hops): (&ModelConfig, usize),
    (topology, mut vertices): (Topology, Vertices),
) -> (Vec<Edges>, Option<Edges>) {
    let norm = model.norm();
    let edges = match topology {
        // Several types have a formula of their own.
        Topology::Whole | Topology::Types { .. } => {
            vec![g.edges("edges", vertices, vertices, norm); hops]
        }
        Topology::Ranks { is_mutual } => {
            let sources = vertices;
            vertices = g.vertices("own vertices", 0);
            let edges = g.edges_of_rank("edges", sources, vertices, norm);
            if is_mutual {
                g.edges_go_both_ways(edges);
            }
            vec![edges; hops]
        }
        Topology::Blocks { in_place } => {
            let mut blocks = Vec::with_capacity(hops);
            for number in 0..hops {
                let sources = vertices;
                vertices = g.vertices(&format!("vertices of layer {number}"), 0);
                let block = g.edges(&format!("block {number}"), sources, vertices, norm);
                if in_place && number == 0 {
                    g.pick_own_rows(block);
                }
                blocks.push(block);
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

/// Bias, norm, residual input and activation behind a layer, which has read the rows `read`. `groups` pools the rows of each graph, where
/// there are several.
fn behind(
    g: &mut Builder,
    (model, setting, groups): (&ModelConfig, &LayerSetting, Option<Edges>),
    (edges, read): (Edges, Value),
    mut y: Value,
) -> Value {
    if setting.bias {
        let bias = g.bias("bias", g.columns(y));
        y = g.add_bias(y, bias);
    }
    if setting.is_hidden && model.hidden_norm != HiddenNorm::None {
        y = g.hidden_norm_of("hidden_norm", model.hidden_norm, groups, y);
    }
    if setting.is_residual {
        let own = match setting.aggregates {
            true => g.own_rows(edges, read),
            false => read,
        };
        y = g.add(y, own);
    }
    match setting.is_hidden {
        true => g.hidden_activation(model.activation, y),
        false => y,
    }
}

/// What is made of the outputs of all layers, of which elements are dropped: what each step writes, the last of them the logits of vertices
/// or, where there is one that pools, of graphs.
fn jump(
    g: &mut Builder,
    model: &ModelConfig,
    jumping: Jumping,
    (edges, pool): (&[Edges], Option<Edges>),
    (features, outputs): (Value, &[Value]),
) -> Result<Vec<Value>, Error> {
    if edges.windows(2).any(|two| two[0] != two[1]) {
        return refuse("jumping knowledge reads the outputs of all layers, which have other rows on sampled blocks; sample subgraphs, or train on the whole graph".into());
    }
    let layers = outputs.len();
    let mut rows = Vec::with_capacity(layers + 1);
    if jumping == Jumping::All {
        rows.push(features);
    }
    rows.extend(outputs);
    let pool = model.readout.zip(pool);
    let pooled = |g: &mut Builder, x| match pool {
        Some((readout, edges)) => g.pool(readout, edges, x),
        None => x,
    };
    let width = match pool {
        Some(_) => model.hidden_of(model.layers - 1),
        None => model.classes,
    };
    // Layers have the numbers that they have in checkpoints, where the largest and a pooling of it count as one each.
    let mut behind = Vec::new();
    let (number, y) = match jumping {
        Jumping::Max => {
            let mut largest = g.largest(&rows);
            behind.push(largest);
            if pool.is_some() {
                largest = pooled(g, largest);
                behind.push(largest);
            }
            let number = layers as u32 + 1 + u32::from(pool.is_some());
            (number, g.layer(number, |g| dense(g, largest, width)))
        }
        Jumping::Cat | Jumping::All => {
            let rows: Vec<Value> = rows.into_iter().map(|rows| pooled(g, rows)).collect();
            let number = layers as u32;
            let y = g.layer(number, |g| {
                let y = g.linear_of_all("jump", &rows, width);
                let bias = g.bias("bias", width);
                g.add_bias(y, bias)
            });
            (number, y)
        }
    };
    match pool {
        None => behind.push(y),
        Some(_) => {
            let hidden = g.layer(number, |g| g.relu(y));
            behind.extend([hidden, logits_of(g, model, number + 1, hidden)]);
        }
    }
    Ok(behind)
}

/// A row of each graph, and two linear maps behind it with a ReLU and a dropout between them: what each step writes.
fn read_out(
    g: &mut Builder,
    model: &ModelConfig,
    (readout, layers): (Readout, usize),
    pool: Edges,
    x: Value,
) -> [Value; 3] {
    let (pooled, number) = (g.pool(readout, pool, x), layers as u32 + 1);
    let width = g.columns(pooled);
    let hidden = g.layer(number, |g| {
        let y = dense(g, pooled, width);
        g.relu(y)
    });
    [pooled, hidden, logits_of(g, model, number + 1, hidden)]
}
