//! A single layer of each kind: the tensors that it may have in a file, and its parameters here.

use super::super::{
    Framework, ImportOptions, StateDictError, StateTensor, padded, refuse, spread, transposed,
};
use crate::train::Tensor;
use std::collections::BTreeMap;

/// The tensors that a layer may have, by the ends of their names.
pub(super) const PYG: [&str; 21] = [
    "lin.weight",
    "lin_src.weight",
    "bias",
    "lin_l.weight",
    "lin_l.bias",
    "lin_r.weight",
    "lin_r.bias",
    "att_src",
    "att_dst",
    "eps",
    "nn.0.weight",
    "nn.0.bias",
    "nn.1.weight",
    "nn.1.bias",
    "nn.1.running_mean",
    "nn.1.running_var",
    "nn.3.weight",
    "nn.3.bias",
    "lin_edge.weight",
    "att_edge",
    "att",
];
pub(super) const DGL: [&str; 18] = [
    "weight",
    "fc.weight",
    "bias",
    "fc_neigh.weight",
    "fc_neigh.bias",
    "fc_self.weight",
    "fc_self.bias",
    "attn_l",
    "attn_r",
    "eps",
    "apply_func.0.weight",
    "apply_func.0.bias",
    "apply_func.1.weight",
    "apply_func.1.bias",
    "apply_func.1.running_mean",
    "apply_func.1.running_var",
    "apply_func.3.weight",
    "apply_func.3.bias",
];
/// The tensors of a layer by the ends of their names, and the prefix of the layer.
pub(super) struct Layer<'a> {
    pub prefix: String,
    pub tensors: BTreeMap<&'static str, &'a StateTensor>,
}

impl<'a> Layer<'a> {
    /// The name of a tensor in the file.
    fn name(&self, end: &str) -> String {
        match self.prefix.is_empty() {
            true => end.into(),
            false => format!("{}.{end}", self.prefix),
        }
    }

    pub fn has(&self, end: &str) -> bool {
        self.tensors.contains_key(end)
    }

    fn get(&self, end: &str) -> Result<&'a StateTensor, StateDictError> {
        match self.tensors.get(end) {
            Some(tensor) => Ok(tensor),
            None => refuse(format!("it has no tensor `{}`", self.name(end))),
        }
    }

    /// A weight of `Linear`, as inputs × outputs.
    fn linear(&self, end: &str) -> Result<Tensor, StateDictError> {
        let tensor = self.get(end)?;
        match tensor.shape[..] {
            [outputs, inputs] if outputs > 0 && inputs > 0 => Ok(Tensor {
                rows: inputs,
                columns: outputs,
                values: transposed(&tensor.values, outputs),
            }),
            _ => self.misshapen(end, tensor, "a matrix"),
        }
    }

    /// A vector of `len` values; zeros where there is none.
    fn vector(&self, end: &str, len: usize) -> Result<Vec<f32>, StateDictError> {
        match self.tensors.get(end) {
            None => Ok(vec![0.0; len]),
            Some(tensor) if tensor.shape == [len] => Ok(tensor.values.clone()),
            Some(tensor) => self.misshapen(end, tensor, &format!("a vector of {len}")),
        }
    }

    fn misshapen<T>(
        &self,
        end: &str,
        tensor: &StateTensor,
        wanted: &str,
    ) -> Result<T, StateDictError> {
        let shape = &tensor.shape;
        refuse(format!(
            "tensor `{}` is of shape {shape:?}, where {wanted} is wanted",
            self.name(end)
        ))
    }

    /// Checks that there are no other tensors than these.
    fn only(&self, ends: &[&str], what: &str) -> Result<(), StateDictError> {
        match self.tensors.keys().find(|end| !ends.contains(end)) {
            None => Ok(()),
            Some(end) => refuse(format!(
                "tensor `{}` has no place in {what}",
                self.name(end)
            )),
        }
    }
}

/// A converted layer: its widths, and its tensors by their names here, without the prefix.
pub(super) struct Taken {
    pub inputs: usize,
    pub outputs: usize,
    pub tensors: Vec<(&'static str, Tensor)>,
}

pub(super) fn row(values: Vec<f32>) -> Tensor {
    Tensor {
        rows: 1,
        columns: values.len(),
        values,
    }
}

pub(super) fn gcn(layer: &Layer<'_>, from: Framework) -> Result<Taken, StateDictError> {
    let weight = match from {
        Framework::Pyg => {
            layer.only(&["lin.weight", "bias"], "GCNConv")?;
            layer.linear("lin.weight")?
        }
        Framework::Dgl => {
            layer.only(&["weight", "bias"], "GraphConv")?;
            let tensor = layer.get("weight")?;
            match tensor.shape[..] {
                [rows, columns] if rows > 0 && columns > 0 => Tensor {
                    rows,
                    columns,
                    values: tensor.values.clone(),
                },
                _ => return layer.misshapen("weight", tensor, "a matrix"),
            }
        }
    };
    let bias = layer.vector("bias", weight.columns)?;
    Ok(Taken {
        inputs: weight.rows,
        outputs: weight.columns,
        tensors: vec![("bias", row(bias)), ("weight", weight)],
    })
}

pub(super) fn sage(layer: &Layer<'_>, from: Framework) -> Result<Taken, StateDictError> {
    let [own, heard, shifts] = match from {
        Framework::Pyg => [
            ["lin_r.weight", ""],
            ["lin_l.weight", ""],
            ["lin_l.bias", "lin_r.bias"],
        ],
        Framework::Dgl => [
            ["fc_self.weight", ""],
            ["fc_neigh.weight", ""],
            ["fc_self.bias", "bias"],
        ],
    };
    layer.only(&[own[0], heard[0], shifts[0], shifts[1]], "SAGEConv")?;
    if shifts.iter().all(|end| layer.has(end)) {
        return refuse(format!(
            "it has two biases, `{}` and `{}`, and a layer here has one; add the one to the other",
            layer.name(shifts[0]),
            layer.name(shifts[1])
        ));
    }
    let neighbours = layer.linear(heard[0])?;
    let itself = match layer.has(own[0]) {
        true => layer.linear(own[0])?,
        // Without its own map, a vertex does not read its own row.
        false => Tensor {
            values: vec![0.0; neighbours.values.len()],
            ..neighbours.clone()
        },
    };
    if (itself.rows, itself.columns) != (neighbours.rows, neighbours.columns) {
        return layer.misshapen(own[0], layer.get(own[0])?, "that of the neighbours' weight");
    }
    let shift = if layer.has(shifts[1]) {
        shifts[1]
    } else {
        shifts[0]
    };
    let bias = layer.vector(shift, neighbours.columns)?;
    Ok(Taken {
        inputs: itself.rows,
        outputs: itself.columns,
        tensors: vec![
            ("bias", row(bias)),
            ("self.weight", itself),
            ("neighbours.weight", neighbours),
        ],
    })
}

/// Parameters of a layer, by their names here.
type Named = Vec<(&'static str, Tensor)>;

/// The parameters for edge features in a layer of attention, and the number of features. In the file a layer has
/// `columns` columns and vectors of a `shape`. Here `spread` makes rows of a `width`.
fn gat_edges(
    layer: &Layer<'_>,
    (columns, shape): (usize, &[usize]),
    (width, spread): (usize, impl Fn(&[f32]) -> Vec<f32>),
) -> Result<(Named, usize), StateDictError> {
    let mut of_edges = Vec::new();
    let mut edge_features = 0;
    if layer.has("lin_edge.weight") {
        let (lin, vector) = (layer.linear("lin_edge.weight")?, layer.get("att_edge")?);
        if lin.columns != columns {
            let found = layer.get("lin_edge.weight")?;
            return layer.misshapen("lin_edge.weight", found, "all heads × features of an edge");
        }
        if vector.shape != *shape {
            return layer.misshapen("att_edge", vector, "that of the other vectors");
        }
        edge_features = lin.rows;
        // Rows are padded to whole vectors of floats, and the attention vector has a second row that is not read.
        let rows = edge_features.next_multiple_of(4);
        let padded = |values: &[f32], rows: usize| {
            let mut values = spread(values);
            values.resize(rows * width, 0.0);
            Tensor {
                rows,
                columns: width,
                values,
            }
        };
        of_edges.push(("edge.weight", padded(&lin.values, rows)));
        of_edges.push(("edge.attention", padded(&vector.values, 2)));
    }
    Ok((of_edges, edge_features))
}

/// A layer of attention, the number of its heads, and the number of features of an edge.
pub(super) fn gat(
    layer: &Layer<'_>,
    options: &ImportOptions,
    is_last: bool,
) -> Result<(Taken, usize, usize), StateDictError> {
    let ([destination, source], linear) = match options.from {
        Framework::Pyg if layer.has("lin_src.weight") => (["att_dst", "att_src"], "lin_src.weight"),
        Framework::Pyg => (["att_dst", "att_src"], "lin.weight"),
        Framework::Dgl => (["attn_r", "attn_l"], "fc.weight"),
    };
    let own = [
        destination,
        source,
        linear,
        "bias",
        "lin_edge.weight",
        "att_edge",
    ];
    layer.only(&own, "GATConv")?;
    let vectors = [layer.get(destination)?, layer.get(source)?];
    let (heads, head) = match vectors[0].shape[..] {
        [1, heads, head] if heads > 0 && head > 0 => (heads, head),
        _ => return layer.misshapen(destination, vectors[0], "(1, heads, columns)"),
    };
    if vectors[1].shape != vectors[0].shape {
        return layer.misshapen(source, vectors[1], "that of the other vector");
    }
    let weight = layer.linear(linear)?;
    if Some(weight.columns) != heads.checked_mul(head) {
        return layer.misshapen(linear, layer.get(linear)?, "all heads × inputs");
    }
    let distance = distance(options, heads, head);
    let spread = |values: &[f32]| spread(values, head, distance);
    let outputs = if is_last { head } else { weight.columns };
    let bias = match (options.from, is_last, layer.tensors.get("bias")) {
        // The mean of the heads has the mean of their biases.
        (Framework::Dgl, true, Some(bias)) if bias.shape == [weight.columns] => (0..head)
            .map(|column| {
                let of_heads = bias.values.iter().skip(column).step_by(head);
                of_heads.sum::<f32>() / heads as f32
            })
            .collect(),
        (Framework::Pyg, true, Some(bias)) if heads > 1 && bias.shape == [weight.columns] => {
            return refuse(format!(
                "`{}` is of {heads} heads side by side in the last layer, and a GAT here has their mean there (concat=False)",
                layer.name("bias")
            ));
        }
        _ => layer.vector("bias", outputs)?,
    };
    let attention = [spread(&vectors[0].values), spread(&vectors[1].values)].concat();
    let shape = (weight.columns, &*vectors[0].shape);
    let (of_edges, edge_features) = gat_edges(layer, shape, (heads * distance, spread))?;
    let mut taken = Taken {
        inputs: weight.rows,
        outputs,
        tensors: vec![
            ("bias", row(bias)),
            (
                "attention",
                Tensor {
                    rows: 2,
                    columns: heads * distance,
                    values: attention,
                },
            ),
            (
                "weight",
                Tensor {
                    rows: weight.rows,
                    columns: heads * distance,
                    values: spread(&weight.values),
                },
            ),
        ],
    };
    taken.tensors.extend(of_edges);
    Ok((taken, heads, edge_features))
}

/// The number of columns from one head to the next.
fn distance(options: &ImportOptions, heads: usize, head: usize) -> usize {
    match heads {
        1 => head,
        _ => padded(options.precision, head),
    }
}

/// A layer of GATv2, the number of its heads, and whether its two maps are equal.
pub(super) fn gatv2(
    layer: &Layer<'_>,
    options: &ImportOptions,
    is_last: bool,
) -> Result<(Taken, usize, bool), StateDictError> {
    let maps = ["lin_l", "lin_r"];
    let own = [
        "att",
        "bias",
        "lin_l.weight",
        "lin_l.bias",
        "lin_r.weight",
        "lin_r.bias",
    ];
    layer.only(&own, "GATv2Conv")?;
    let vector = layer.get("att")?;
    let (heads, head) = match vector.shape[..] {
        [1, heads, head] if heads > 0 && head > 0 => (heads, head),
        _ => return layer.misshapen("att", vector, "(1, heads, columns)"),
    };
    let distance = distance(options, heads, head);
    let spread = |values: &[f32]| spread(values, head, distance);
    let columns = heads * distance;
    let mut taken = Vec::new();
    for name in maps {
        let linear = format!("{name}.weight");
        let weight = layer.linear(&linear)?;
        if Some(weight.columns) != heads.checked_mul(head) {
            return layer.misshapen(&linear, layer.get(&linear)?, "all heads × inputs");
        }
        let bias = layer.vector(&format!("{name}.bias"), weight.columns)?;
        taken.push((weight, bias));
    }
    let shared = taken[0] == taken[1];
    let (inputs, all) = (taken[0].0.rows, taken[0].0.columns);
    if taken[1].0.rows != inputs {
        let found = layer.get("lin_r.weight")?;
        return layer.misshapen("lin_r.weight", found, "that of the other map");
    }
    let outputs = if is_last { head } else { all };
    if let (true, Some(bias)) = (is_last && heads > 1, layer.tensors.get("bias"))
        && bias.shape == [all]
    {
        return refuse(format!(
            "`{}` is of {heads} heads side by side in the last layer, and a GATv2 here has their mean there (concat=False)",
            layer.name("bias")
        ));
    }
    let mut tensors = vec![
        ("bias", row(layer.vector("bias", outputs)?)),
        ("attention", row(spread(&vector.values))),
    ];
    let names = [
        ("source.weight", "source.bias"),
        ("destination.weight", "destination.bias"),
    ];
    for ((weight, bias), names) in taken.into_iter().zip(names) {
        let values = spread(&weight.values);
        let rows = weight.rows;
        tensors.push((
            names.0,
            Tensor {
                rows,
                columns,
                values,
            },
        ));
        tensors.push((names.1, row(spread(&bias))));
    }
    let taken = Taken {
        inputs,
        outputs,
        tensors,
    };
    Ok((taken, heads, shared))
}

/// A layer of GIN, its ε, the width between its maps, and whether it has running statistics.
pub(super) fn gin(
    layer: &Layer<'_>,
    from: Framework,
) -> Result<(Taken, f32, usize, bool), StateDictError> {
    let [w0, b0, w1, b1, mean, variance, w3, b3] = match from {
        Framework::Pyg => [10, 11, 12, 13, 14, 15, 16, 17].map(|at| PYG[at]),
        Framework::Dgl => [10, 11, 12, 13, 14, 15, 16, 17].map(|at| DGL[at]),
    };
    let what = "GINConv of Sequential(Linear, BatchNorm1d, ReLU, Linear)";
    layer.only(&["eps", w0, b0, w1, b1, mean, variance, w3, b3], what)?;
    let epsilon = layer.vector("eps", 1)?[0];
    let (first, second) = (layer.linear(w0)?, layer.linear(w3)?);
    let hidden = first.columns;
    if second.rows != hidden {
        return layer.misshapen(w3, layer.get(w3)?, &format!("outputs × {hidden}"));
    }
    let scale = match layer.has(w1) {
        true => layer.vector(w1, hidden)?,
        false => {
            return refuse(format!(
                "it has no tensor `{}`; a GIN here is {what}",
                layer.name(w1)
            ));
        }
    };
    let running = layer.has(mean) && layer.has(variance);
    let (mut mean, mut variance) = (layer.vector(mean, hidden)?, layer.vector(variance, hidden)?);
    if !running {
        variance.fill(1.0);
    }
    // The normalisation subtracts the mean, and with it a bias that comes before.
    let bias = layer.vector(b0, hidden)?;
    mean.iter_mut()
        .zip(bias)
        .for_each(|(mean, bias)| *mean -= bias);
    if !running {
        mean.fill(0.0);
    }
    let taken = Taken {
        inputs: first.rows,
        outputs: second.columns,
        tensors: vec![
            ("mlp.0.weight", first),
            ("norm.weight", row(scale)),
            ("norm.bias", row(layer.vector(b1, hidden)?)),
            (
                "norm.running",
                Tensor {
                    rows: 2,
                    columns: hidden,
                    values: [mean, variance].concat(),
                },
            ),
            ("bias", row(layer.vector(b3, second.columns)?)),
            ("mlp.1.weight", second),
        ],
    };
    Ok((taken, epsilon, hidden, running))
}
