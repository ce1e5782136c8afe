//! What PyTorch Geometric's users keep of a `Data` object, in an archive of arrays (`np.savez`) or in torch's own file.
//!
//! | array | meaning | without it |
//! |---|---|---|
//! | `edge_index`, 2 × E | an edge from the vertex of the first row to that of the second | refused |
//! | `x`, n × F | features | `x_bits` |
//! | `x_bits`, n × ⌈F / 8⌉ bytes, `x_bits_columns`, `x_bits_are_signs` | features of one bit, eight a byte, as `numpy.packbits(x > 0, axis=1, bitorder="little")` has them: how many there are, and whether a bit that is not set is −1 rather than 0 | a column of ones |
//! | `y` | classes, labels or values, by [`rules`](crate::rules) | nothing to train on |
//! | `train_mask`, `val_mask` or `valid_mask`, `test_mask`, n or n × S | splits, masks of S ways to split | `…_idx` |
//! | `train_idx`, `val_idx` or `valid_idx`, `test_idx`; also without `_idx` | splits, masks or lists of vertices | a split by rule |
//! | `edge_weight`, E | the weight of each edge | `edge_attr` of one column |
//! | `edge_attr`, E × D | features of each edge | none |
//! | `ptr`, or `batch` of n numbers | many graphs, as PyG's `Batch` has them: where the vertices of each start, or each vertex's graph; `y` and splits have a row for each graph | one graph |
//! | `num_nodes` | the number of vertices | the rows of `x`, or of `y`, or the largest id |
//!
//! Edges and what belongs to them are brought into the graph's order. What else there is is named and left alone.

use super::arrays::{Arrays, Values, expect_len};
use super::npy::Kind;
use super::types;
use crate::error::DataProblem;
use crate::open::Parts;
use crate::rules;
use crate::{
    BitFeatures, EdgeFeatures, Features, GraphIndex, Origin, Preparation, Splits, Targets,
};
use halfgnn_graph::index::MAX_VERTICES;
use halfgnn_graph::{Graph, edge_order};

/// What every file has.
pub(crate) const EDGES: &str = "edge_index";

/// Features of one bit, where there is no `x`.
pub(crate) const FEATURE_BITS: &str = "x_bits";
/// How many there are of a vertex.
pub(crate) const BIT_COLUMNS: &str = "x_bits_columns";
/// Whether a bit that is not set is −1, or 0.
pub(crate) const ARE_SIGNS: &str = "x_bits_are_signs";

/// Arrays of features of one bit.
const OF_BITS: [&str; 3] = [FEATURE_BITS, BIT_COLUMNS, ARE_SIGNS];

const KEYS: [&str; 8] = [
    EDGES,
    "x",
    "y",
    "edge_weight",
    "edge_attr",
    "num_nodes",
    "ptr",
    "batch",
];

/// What the splits are called: PyG's names, and those that others have for them.
const MASKS: [&[&str]; 3] = [
    &["train_mask"],
    &["val_mask", "valid_mask", "validation_mask"],
    &["test_mask"],
];
const LISTS: [&[&str]; 3] = [
    &["train_idx", "train"],
    &["val_idx", "valid_idx", "valid", "val", "validation"],
    &["test_idx", "test"],
];

/// Whether an array of this name is one of the splits.
pub(super) fn is_of_splits(key: &str) -> bool {
    let mut all = MASKS.into_iter().chain(LISTS).flatten();
    all.any(|name| *name == key)
}

/// Reads a dataset, which may have several [types](super::types).
pub(crate) fn read(arrays: &mut impl Arrays) -> Result<Parts, DataProblem> {
    if types::are_several(arrays) {
        return types::read(arrays);
    }
    let (vertices, known) = vertices(arrays)?;
    let [sources, targets] = edge_index(arrays, vertices)?;
    let vertices = known.unwrap_or_else(|| {
        let largest = sources.iter().chain(&targets).max();
        largest.map_or(0, |&largest| largest as usize + 1)
    });
    let refuse = |error| DataProblem::graph(EDGES, error);
    let (mut edge_weights, mut edge_features) = edge_data(arrays, sources.len())?;
    if edge_weights.is_some() || edge_features.is_some() {
        let order = edge_order(vertices, &targets, &sources).map_err(refuse)?;
        if let Some(weights) = &mut edge_weights {
            *weights = crate::edge_features::gathered("edge_weight", weights, 1, &order)?;
        }
        if let Some(features) = &mut edge_features {
            *features = features.in_order(&order)?;
        }
    }
    let graph = Graph::from_edges(vertices, &targets, &sources).map_err(refuse)?;
    drop((sources, targets));
    let mut done = Vec::new();
    let features = features(arrays, vertices, &mut done)?;
    let graphs = graphs(arrays, vertices)?;
    let members = match &graphs {
        Some(graphs) => (graphs.graphs(), "graph"),
        None => (vertices, "vertex"),
    };
    let targets = targets_of(arrays, members, &mut done)?;
    let splits = splits(arrays, members.0)?;
    let has_x = arrays.has("x");
    let others: Vec<_> = arrays.keys();
    let of_splits = || MASKS.into_iter().chain(LISTS).flatten().copied();
    let others: Vec<_> = others
        .iter()
        .map(String::as_str)
        .filter(|key| !KEYS.contains(key) && !of_splits().any(|name| name == *key))
        .filter(|key| has_x || !OF_BITS.contains(key))
        .collect();
    if !others.is_empty() {
        let known = || KEYS.into_iter().chain(of_splits());
        let meant = |key: &&str| rules::nearest(key, known().filter(|name| !arrays.has(name)));
        let shown = others.iter().map(|key| match meant(key) {
            Some(name) => format!("{key} (is {name} meant?)"),
            None => key.to_string(),
        });
        let what = format!("{} are left alone", shown.collect::<Vec<_>>().join(", "));
        done.push(Preparation::new("other", what, Origin::File));
    }
    Ok(Parts {
        edge_weights,
        edge_features,
        graphs,
        splits,
        done,
        ..Parts::new(graph, features, targets)
    })
}

/// Reads the graph of a file and nothing else.
pub(crate) fn read_graph(arrays: &mut impl Arrays) -> Result<Graph, DataProblem> {
    if types::are_several(arrays) {
        return Err(DataProblem::SeveralTypes);
    }
    let (most, known) = vertices(arrays)?;
    let [sources, targets] = edge_index(arrays, most)?;
    let vertices = known.unwrap_or_else(|| {
        let largest = sources.iter().chain(&targets).max();
        largest.map_or(0, |&largest| largest as usize + 1)
    });
    Graph::from_edges(vertices, &targets, &sources)
        .map_err(|error| DataProblem::graph(EDGES, error))
}

/// The most vertices that an id may name, and the number of vertices where something other than the edges says it.
pub(crate) fn vertices(arrays: &mut impl Arrays) -> Result<(u64, Option<usize>), DataProblem> {
    let known = match arrays.has("num_nodes") {
        true => {
            let count = arrays.count("num_nodes")?;
            let most = arrays.most_vertices();
            if count > most {
                return Err(DataProblem::TooManyPromised {
                    promised: count,
                    most,
                });
            }
            Some(count)
        }
        // Of many graphs the others have a row for each graph.
        false => match ["x", FEATURE_BITS, "batch", "y", "train_mask"]
            .iter()
            .take(if arrays.has("ptr") { 3 } else { 5 })
            .find(|key| arrays.has(key))
        {
            // An array without elements may claim any number of rows.
            Some(key) => Some(arrays.kind(key)?.1)
                .filter(|shape| !shape.contains(&0))
                .and_then(|shape| shape.first().copied()),
            None => None,
        },
    };
    if let Some(count) = known
        && count > MAX_VERTICES
    {
        let error = halfgnn_graph::GraphError::TooManyVertices { vertices: count };
        return Err(DataProblem::graph("num_nodes", error));
    }
    let most = known.unwrap_or_else(|| arrays.most_vertices().min(MAX_VERTICES));
    Ok((most, known.map(|count| count as usize)))
}

/// Where edges start, and where they end.
fn edge_index(arrays: &mut impl Arrays, vertices: u64) -> Result<[Vec<u32>; 2], DataProblem> {
    let Values { shape, mut values } = arrays.ids(EDGES, vertices, "vertices")?;
    match shape[..] {
        [2, _] => {
            let targets = values.split_off(values.len() / 2);
            Ok([values, targets])
        }
        [_, 2] => Err(DataProblem::shape(
            EDGES,
            &shape,
            "(2, E), all sources and then all targets (save edge_index.T)",
        )),
        _ => Err(DataProblem::shape(
            EDGES,
            &shape,
            "(2, E), all sources and then all targets",
        )),
    }
}

/// Weights of edges where they are not all 1, and their features, in the file's order.
fn edge_data(
    arrays: &mut impl Arrays,
    edges: usize,
) -> Result<(Option<Vec<f32>>, Option<EdgeFeatures>), DataProblem> {
    let mut weights = None;
    if arrays.has("edge_weight") {
        let line = arrays.floats("edge_weight")?.line("edge_weight")?;
        expect_len("edge_weight", line.len(), edges, "one for each edge")?;
        weights = Some(line);
    }
    let mut features = None;
    if arrays.has("edge_attr") {
        let Values { shape, values } = arrays.floats("edge_attr")?;
        let rows = match shape[..] {
            [rows] => Some((rows, 1)),
            [rows, columns @ 1..=u64::MAX] => Some((rows, columns)),
            _ => None,
        };
        match rows {
            Some((rows, 1)) if rows == edges as u64 && weights.is_none() => weights = Some(values),
            Some((rows, columns)) if rows == edges as u64 => {
                features = Some(EdgeFeatures::new(columns as usize, values)?);
            }
            _ => {
                let wanted = format!("({edges}) or ({edges}, D), a row for each edge");
                return Err(DataProblem::shape("edge_attr", &shape, wanted));
            }
        }
    }
    let weights = weights.filter(|weights| weights.iter().any(|&weight| weight != 1.0));
    Ok((weights, features))
}

/// Which vertices are of which graph, where there are many.
fn graphs(arrays: &mut impl Arrays, vertices: usize) -> Result<Option<GraphIndex>, DataProblem> {
    if arrays.has("ptr") {
        let most = vertices as u64 + 1;
        let starts = arrays.ids("ptr", most, "vertices and their end")?;
        return GraphIndex::new(starts.line("ptr")?).map(Some);
    }
    if arrays.has("batch") {
        let of_vertices = arrays
            .ids("batch", vertices as u64, "graphs")?
            .line("batch")?;
        expect_len("batch", of_vertices.len(), vertices, "one for each vertex")?;
        return GraphIndex::of_vertices(&of_vertices).map(Some);
    }
    Ok(None)
}

fn features(
    arrays: &mut impl Arrays,
    vertices: usize,
    done: &mut Vec<Preparation>,
) -> Result<Features, DataProblem> {
    if !arrays.has("x") && arrays.has(FEATURE_BITS) {
        return feature_bits(arrays, vertices);
    }
    if !arrays.has("x") {
        done.push(Preparation::no_features());
        return Features::ones(vertices);
    }
    let columns = feature_columns(arrays, vertices)?;
    Features::dense(columns, arrays.floats("x")?.values)
}

/// Features of a vertex.
pub(crate) fn feature_columns(
    arrays: &mut impl Arrays,
    vertices: usize,
) -> Result<usize, DataProblem> {
    if !arrays.has("x") {
        return Ok(1);
    }
    let shape = arrays.kind("x")?.1;
    match shape[..] {
        [rows] if rows == vertices as u64 => Ok(1),
        [rows, columns @ 1..=u64::MAX] if rows == vertices as u64 => Ok(columns as usize),
        _ => {
            let wanted = format!("({vertices}, at least 1)");
            Err(DataProblem::shape("x", &shape, wanted))
        }
    }
}

/// What `y` says, where there is one.
pub(crate) fn targets_of(
    arrays: &mut impl Arrays,
    members: (usize, &str),
    done: &mut Vec<Preparation>,
) -> Result<Targets, DataProblem> {
    match arrays.has("y") {
        true => y(arrays, members, done),
        false => Ok(Targets::unlabelled(members.0)),
    }
}

/// Features of one bit, eight a byte.
fn feature_bits(arrays: &mut impl Arrays, vertices: usize) -> Result<Features, DataProblem> {
    let missing = |key| DataProblem::value(FEATURE_BITS, 0, "there", format!("and {key} is not"));
    for key in [BIT_COLUMNS, ARE_SIGNS] {
        if !arrays.has(key) {
            return Err(missing(key));
        }
    }
    let columns = arrays.count(BIT_COLUMNS)?;
    let are_signs = match arrays.mask(ARE_SIGNS)? {
        Values { values, .. } if values.len() == 1 => values[0],
        Values { shape, .. } => return Err(DataProblem::shape(ARE_SIGNS, &shape, "(1)")),
    };
    let Values { shape, values } = arrays.bytes(FEATURE_BITS)?;
    let bytes = columns.div_ceil(8);
    if columns == 0 || shape[..] != [vertices as u64, bytes] {
        let wanted =
            format!("({vertices}, {bytes}), a bit for each of {columns} features, at least 1");
        return Err(DataProblem::shape(FEATURE_BITS, &shape, wanted));
    }
    let (columns, bytes) = (columns as usize, bytes as usize);
    let mut features = BitFeatures::unset(vertices, columns, are_signs)?;
    for (vertex, row) in values.chunks_exact(bytes).enumerate() {
        let last = row[bytes - 1];
        if !columns.is_multiple_of(8) && last >> (columns % 8) != 0 {
            let at = ((vertex + 1) * bytes - 1) as u64;
            let why = format!("but there are {columns} features, and bits past them are zero");
            return Err(DataProblem::value(FEATURE_BITS, at, last, why));
        }
        features.set_row(vertex, row);
    }
    Ok(Features::Bits(features))
}

/// The targets in `y`, whose type and shape say what they mean.
fn y(
    arrays: &mut impl Arrays,
    (vertices, member): (usize, &str),
    done: &mut Vec<Preparation>,
) -> Result<Targets, DataProblem> {
    let (kind, shape) = arrays.kind("y")?;
    let columns = match shape[..] {
        [rows] if rows == vertices as u64 => 1,
        [rows, columns @ 1..=u64::MAX] if rows == vertices as u64 => columns as usize,
        _ => {
            let wanted = format!("({vertices}) or ({vertices}, K), a row for each {member}");
            return Err(DataProblem::shape("y", &shape, wanted));
        }
    };
    if columns == 1 && kind != Kind::Float {
        return Ok(Targets::Classes(arrays.labels("y")?.values));
    }
    let numbers = arrays.floats_or_nan("y")?.values;
    let (targets, what) = rules::targets(columns, numbers, member)?;
    done.push(Preparation::new("targets", what, Origin::File));
    Ok(targets)
}

/// The ways to split that the file has.
pub(crate) fn splits(
    arrays: &mut impl Arrays,
    vertices: usize,
) -> Result<Vec<Splits>, DataProblem> {
    let found = |names: &[&'static str]| names.iter().find(|key| arrays.has(key)).copied();
    let masks_of = MASKS.map(found);
    let lists_of = LISTS.map(found);
    if masks_of.iter().any(Option::is_some) {
        let mut of_each: Vec<Vec<Vec<u32>>> = Vec::new();
        for key in masks_of {
            of_each.push(match key {
                Some(key) => masks(arrays, key, vertices)?,
                None => vec![Vec::new()],
            });
        }
        // A mask of one dimension is that of every split, as WikiCS has it.
        let count = of_each.iter().map(Vec::len).max().unwrap_or(1);
        if let Some(at) = of_each
            .iter()
            .position(|lists| ![1, count].contains(&lists.len()))
        {
            let shape = [vertices as u64, of_each[at].len() as u64];
            let wanted = format!("({vertices}, {count}), as another of the masks has");
            let key = masks_of[at].unwrap_or(MASKS[at][0]);
            return Err(DataProblem::shape(key, &shape, wanted));
        }
        let of = |split: usize, number: usize| {
            let lists = &of_each[split];
            lists[number.min(lists.len() - 1)].clone()
        };
        let numbered = |number| Splits {
            train: of(0, number),
            val: of(1, number),
            test: of(2, number),
        };
        return Ok((0..count).map(numbered).collect());
    }
    if lists_of.iter().all(Option::is_none) {
        return Ok(Vec::new());
    }
    let mut list = |key: Option<&str>| match key {
        Some(key) => arrays.selected(key, vertices),
        None => Ok(Vec::new()),
    };
    let [train, val, test] = lists_of;
    Ok(vec![Splits {
        train: list(train)?,
        val: list(val)?,
        test: list(test)?,
    }])
}

/// The vertices of each column of a mask, or those of a list.
fn masks(
    arrays: &mut impl Arrays,
    key: &str,
    vertices: usize,
) -> Result<Vec<Vec<u32>>, DataProblem> {
    if matches!(arrays.kind(key)?.1[..], [_] | [_, 1]) {
        return Ok(vec![arrays.selected(key, vertices)?]);
    }
    let Values { shape, values } = arrays.mask(key)?;
    let columns = match shape[..] {
        [rows] if rows == vertices as u64 => 1,
        [rows, columns @ 1..=u64::MAX] if rows == vertices as u64 => columns as usize,
        _ => {
            let wanted = format!("({vertices}), or ({vertices}, S) of S ways to split");
            return Err(DataProblem::shape(key, &shape, wanted));
        }
    };
    let mut lists = vec![Vec::new(); columns];
    for (vertex, row) in (0..).zip(values.chunks_exact(columns)) {
        for (list, is_in) in lists.iter_mut().zip(row) {
            if *is_in {
                list.push(vertex);
            }
        }
    }
    Ok(lists)
}

#[cfg(test)]
mod tests;
