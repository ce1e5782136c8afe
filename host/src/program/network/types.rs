//! A whole network over several types of vertices and edges as one formula.

use super::topology::{Graphs, Topology};
use crate::backend::Backend;
use crate::error::Error;
use crate::nn::{HiddenNorm, Inputs, ModelConfig, ModelTypes, ModelVertexType, Norm};
use crate::program::layers::{LayerSetting, Relation, TypeReads, TypedLayer};
use crate::program::list::refuse;
use crate::program::{Builder, Edges, Program, Value, Vertices};
use crate::tensor::{Element, Matrix, Precision};

/// The name of the input that holds the features of a type.
pub(super) fn input_name(types: &ModelTypes, of: usize) -> String {
    format!("features of {}", types.vertices[of].name)
}

/// The forward list of a model of several types, and what each layer writes of the labelled one.
///
/// # Errors
/// [`Error::Unsupported`] where widths do not fit.
pub(super) fn of_types(
    (model, types): (&ModelConfig, &ModelTypes),
    precision: Precision,
    graphs: &Graphs,
) -> Result<(Program, Vec<Value>), Error> {
    let mut g = Builder::new(precision);
    let vertices: Vec<Vertices> = types
        .vertices
        .iter()
        .map(|of| g.vertices(&of.name, of.vertices))
        .collect();
    let relations = relations(&mut g, (model, types), &vertices, graphs);
    let learnt = learnt_rows(&mut g, types, &vertices, graphs.topology);
    let settings = model.convolution.settings(model);
    let aggregates: Vec<bool> = settings.iter().map(|layer| layer.aggregates).collect();
    let (read, written) = types.written(&aggregates);
    let number = settings.len() as u32;
    let mut x = g.stage("input", number, |g| {
        inputs(g, (model, types), (&vertices, &learnt), &read)
    });
    let mut outputs = Vec::new();
    for (number, (setting, written)) in settings.iter().zip(written).enumerate() {
        let leads = |relation: &&Relation| written[relation.destination];
        let reads = TypeReads {
            types: types.vertices.iter().map(|of| of.name.clone()).collect(),
            relations: relations.iter().filter(leads).cloned().collect(),
            written,
        };
        let layer = model.convolution.formula_of_types(model, number, reads);
        let Some(layer) = layer else {
            return refuse(format!(
                "{} has no layers over several types",
                model.convolution.name()
            ));
        };
        x = g.layer(number as u32, |g| {
            g.with_decay(setting.decay, |g| {
                one_layer(g, (model, types), (setting, &*layer), &x)
            })
        });
        outputs.extend(x[types.labelled]);
    }
    let Some(&last) = outputs.last() else {
        return refuse("a model of 0 layers computes nothing; give it at least 1".into());
    };
    Ok((g.finish(last)?, outputs))
}

fn relations(
    g: &mut Builder,
    (model, types): (&ModelConfig, &ModelTypes),
    vertices: &[Vertices],
    graphs: &Graphs,
) -> Vec<Relation> {
    let mut relations = Vec::with_capacity(types.edges.len());
    for (number, of) in types.edges.iter().enumerate() {
        let name = types.title(of);
        let ends = [of.source, of.destination].map(|end| vertices[end]);
        let edges: Edges = g.edges(&name, ends[0], ends[1], model.norm());
        if let Some(degree) = graphs.degrees.get(number) {
            g.set_largest_degree(edges, *degree);
        }
        relations.push(Relation {
            name,
            edges,
            source: of.source,
            destination: of.destination,
        });
    }
    relations
}

/// Of each type the vertices of which a row each is learnt, if it has no features; and in a sample the edges from all of them to those that are
/// sampled.
type LearntRows = Vec<Option<(Vertices, Option<Edges>)>>;

fn learnt_rows(
    g: &mut Builder,
    types: &ModelTypes,
    vertices: &[Vertices],
    topology: Topology,
) -> LearntRows {
    let sampled = matches!(topology, Topology::Types { sampled: true });
    let of_type = |(of, vertices): (&ModelVertexType, &Vertices)| match (of.features, sampled) {
        (0, false) => Some((*vertices, None)),
        (0, true) => {
            let all = g.vertices(&format!("all of {}", of.name), of.vertices);
            let name = format!("sample of {}", of.name);
            Some((all, Some(g.edges(&name, all, *vertices, Norm::None))))
        }
        _ => None,
    };
    types.vertices.iter().zip(vertices).map(of_type).collect()
}

/// What the first layer reads of each type: `act(X · W + b)` of features, and rows that are learnt of a type without.
fn inputs(
    g: &mut Builder,
    (model, types): (&ModelConfig, &ModelTypes),
    (vertices, learnt): (&[Vertices], &LearntRows),
    read: &[bool],
) -> Vec<Option<Value>> {
    let width = model.input_width();
    let input = |(of, vertices): (usize, &Vertices)| {
        if !read[of] {
            return None;
        }
        let kind = &types.vertices[of];
        if let Some((all, sample)) = learnt[of] {
            let rows = g.embedding(&format!("{}.embedding", kind.name), all, width);
            return Some(match sample {
                Some(edges) => g.aggregate(edges, rows),
                None => rows,
            });
        }
        let features = g.input(&input_name(types, of), *vertices, kind.features);
        let y = g.linear_with_bias(&kind.name, width, features);
        Some(g.hidden_activation(model.activation, y))
    };
    vertices.iter().enumerate().map(input).collect()
}

/// A layer with what is around it: dropout before it, and a bias, a norm, a residual input and an activation behind it, of each type.
fn one_layer(
    g: &mut Builder,
    (model, types): (&ModelConfig, &ModelTypes),
    (setting, layer): (&LayerSetting, &dyn TypedLayer),
    x: &[Option<Value>],
) -> Vec<Option<Value>> {
    let mut dropped = Vec::with_capacity(x.len());
    for x in x {
        dropped.push(x.map(|x| g.dropout(x, setting.dropout)));
    }
    let mut y = layer.build(g, &dropped, &dropped);
    for (of, y) in y.iter_mut().enumerate() {
        let name = &types.vertices[of].name;
        *y = y.map(|mut y| {
            if setting.bias {
                let bias = g.bias(&format!("{name}.bias"), g.columns(y));
                y = g.add_bias(y, bias);
            }
            if setting.is_hidden && model.hidden_norm != HiddenNorm::None {
                let name = format!("{name}.hidden_norm");
                y = g.hidden_norm_of(&name, model.hidden_norm, None, y);
            }
            if let (true, Some(own)) = (model.residual && setting.is_hidden, dropped[of])
                && g.columns(own) == g.columns(y)
            {
                y = g.add(y, own);
            }
            match setting.is_hidden {
                true => g.hidden_activation(model.activation, y),
                false => y,
            }
        });
    }
    y
}

/// Matrices by the inputs that they are read as.
type Read<'m, B, E> = Vec<(Value, &'m Matrix<B, E>)>;

/// The features that a pass reads, by the inputs that hold them.
///
/// # Errors
/// [`Error::Shape`] where there are features of another number of types, of other columns or of other vertices.
pub(super) fn inputs_of<'m, B: Backend, E: Element>(
    types: &ModelTypes,
    program: &Program,
    inputs: &Inputs<'m, B, E>,
) -> Result<Read<'m, B, E>, Error> {
    const NAME: &str = "Network";
    let others: Vec<usize> = types.others_with_features().collect();
    let given = inputs.of_types.len();
    Error::expect(NAME, "other types with features", others.len(), given)?;
    let own = (types.vertices[types.labelled].features > 0).then_some(types.labelled);
    let own = own.map(|of| (of, inputs.features)).into_iter();
    let all = own.chain(others.into_iter().zip(inputs.of_types));
    let mut read = Vec::new();
    for (of, features) in all {
        let columns = types.vertices[of].features;
        Error::expect(NAME, "features of a type", columns, features.columns())?;
        // Nothing depends on those of other types.
        if let Some(value) = program.named(&input_name(types, of)) {
            let rows = program.rows(value);
            Error::expect(
                NAME,
                "rows of the features of a type",
                rows,
                features.rows(),
            )?;
            read.push((value, features));
        }
    }
    Ok(read)
}

/// That the graphs of a pass have a vertex for each row that is learnt.
///
/// # Errors
/// [`Error::Unsupported`] with the first type of other vertices.
pub(super) fn expect_embeddings(types: &ModelTypes, program: &Program) -> Result<(), Error> {
    let mut sets = program.vertices.iter();
    let own: Vec<_> = sets.by_ref().take(types.vertices.len()).collect();
    // Behind the types come all vertices of those without features, if the vertices are a sample.
    let behind: Vec<_> = sets.collect();
    let learnt = types.without_features().enumerate();
    let mut learnt = learnt.map(|(number, of)| {
        let set = behind.get(number).unwrap_or(&own[of]);
        (&types.vertices[of], *set)
    });
    match learnt.find(|(of, set)| of.vertices != set.rows) {
        Some((of, set)) => refuse(format!(
            "a row is learnt for each of {} vertices of type {}, which has no features, and the graph has {} of them; predict on the graph that was trained on",
            of.vertices, of.name, set.rows
        )),
        None => Ok(()),
    }
}
