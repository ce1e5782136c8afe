//! The `.npz` of gnn-benchmark (Shchur et al., "Pitfalls of graph neural network evaluation", 2018;
//! `load_npz_to_sparse_graph` in its repository), in which Cora, Citeseer and others are passed around.
//!
//! | arrays | meaning | without them |
//! |---|---|---|
//! | `adj_shape`, `adj_indptr`, `adj_indices` | the adjacency as compressed rows | refused |
//! | `adj_data` | edge weights | all 1 |
//! | `attr_shape`, `attr_indptr`, `attr_indices`, `attr_data` | features as compressed rows | `attr_matrix` |
//! | `attr_matrix` | features as a matrix | refused |
//! | `labels` | the class of each vertex, -1 where it has none | refused |
//! | `train_idx`, `val_idx`, `test_idx` | splits as lists of vertices | `…_mask` |
//! | `train_mask`, `val_mask`, `test_mask` | splits as truths | 20 and 30 of each class, the rest to test |
//!
//! Features without a negative number are taken for counts of words, which are divided by their sums by default. Other
//! arrays (`node_names`, `class_names`, …) are left alone.

use super::arrays::{Arrays, Values, expect_len, in_place};
use super::npz::Npz;
use super::scipy::square;
use crate::error::DataProblem;
use crate::open::Parts;
use crate::{Features, Splits};
use halfgnn_graph::{Graph, edge_order};

/// Reads a file.
pub(crate) fn read(npz: &mut Npz<'_>) -> Result<Parts, DataProblem> {
    let (graph, edge_weights) = adjacency(npz)?;
    let vertices = graph.vertices();
    let features = features(npz, vertices)?;
    let are_counts = features.could_be_counts();
    let labels = npz.labels("labels")?.line("labels")?;
    expect_len("labels", labels.len(), vertices, "a label for each vertex")?;
    let splits = splits(npz, vertices)?;
    Ok(Parts {
        edge_weights,
        splits: splits.into_iter().collect(),
        are_counts,
        ..Parts::new(graph, features, labels.into())
    })
}

/// Reads the graph of a file and nothing else.
pub(crate) fn read_graph(npz: &mut Npz<'_>) -> Result<Graph, DataProblem> {
    adjacency(npz).map(|(graph, _)| graph)
}

/// The graph, and its weights where they are not all 1.
fn adjacency(npz: &mut Npz<'_>) -> Result<(Graph, Option<Vec<f32>>), DataProblem> {
    let vertices = square(npz, "adj_shape")?;
    let offsets = npz.counts("adj_indptr")?.line("adj_indptr")?;
    expect_len(
        "adj_indptr",
        offsets.len(),
        vertices as usize + 1,
        "one more than there are vertices",
    )?;
    let cols = npz
        .ids("adj_indices", vertices, "vertices")?
        .line("adj_indices")?;
    let weights = match npz.has("adj_data") {
        true => Some(npz.floats("adj_data")?.line("adj_data")?),
        false => None,
    };
    if let Some(weights) = &weights {
        let why = "one for each of adj_indices";
        expect_len("adj_data", weights.len(), cols.len(), why)?;
    }
    let refuse = |error| DataProblem::graph("adj_indptr", error);
    let weights = weights.filter(|weights| weights.iter().any(|&weight| weight != 1.0));
    let Some(weights) = weights else {
        return Ok((Graph::from_offsets(offsets, cols).map_err(refuse)?, None));
    };
    let mut unsorted = DataProblem::with_capacity("adj_indices", cols.len() as u64)?;
    unsorted.extend_from_slice(&cols);
    let graph = Graph::from_offsets(offsets, cols).map_err(refuse)?;
    // Sorting within rows leaves the row of each position as it was.
    let order = edge_order(graph.vertices(), graph.rows(), &unsorted).map_err(refuse)?;
    let sorted = order.iter().map(|&edge| weights[edge as usize]).collect();
    Ok((graph, Some(sorted)))
}

fn features(npz: &mut Npz<'_>, vertices: usize) -> Result<Features, DataProblem> {
    if npz.has("attr_matrix") && !npz.has("attr_data") {
        let Values { shape, values } = npz.floats("attr_matrix")?;
        return match shape[..] {
            [rows, columns] if rows == vertices as u64 && columns > 0 => {
                rename(Features::dense(columns as usize, values), "attr_matrix")
            }
            _ => Err(DataProblem::shape(
                "attr_matrix",
                &shape,
                format!("({vertices}, at least 1)"),
            )),
        };
    }
    let [rows, columns] = npz.shape("attr_shape")?;
    if rows != vertices as u64 || columns == 0 || columns > u64::from(u32::MAX) {
        let why = format!(
            "but ({vertices}, 1 to {}) is wanted, a row for each vertex",
            u32::MAX
        );
        return Err(DataProblem::value(
            "attr_shape",
            0,
            format!("{rows} of ({rows}, {columns})"),
            why,
        ));
    }
    let offsets = npz.counts("attr_indptr")?.line("attr_indptr")?;
    expect_len(
        "attr_indptr",
        offsets.len(),
        vertices + 1,
        "one more than there are vertices",
    )?;
    let indices = npz
        .ids("attr_indices", columns, "features")?
        .line("attr_indices")?;
    let values = npz
        .floats("attr_data")
        .map_err(|problem| placed(problem, &offsets, &indices))?
        .line("attr_data")?;
    expect_len(
        "attr_data",
        values.len(),
        indices.len(),
        "one for each of attr_indices",
    )?;
    rename(
        Features::sparse(columns as usize, offsets, indices, values),
        "attr_indptr",
    )
}

/// A problem with an entry of compressed rows, with its row and column where the problem has a position.
fn placed(problem: DataProblem, offsets: &[u64], indices: &[u32]) -> DataProblem {
    match problem {
        DataProblem::Value {
            key,
            index,
            value,
            why,
        } => {
            let row = offsets.iter().take_while(|&&start| start <= index).count();
            match (row.checked_sub(1), indices.get(index as usize)) {
                (Some(row), Some(&column)) => {
                    in_place(key, index, value, [row as u64, column.into()], &why)
                }
                _ => DataProblem::Value {
                    key,
                    index,
                    value,
                    why,
                },
            }
        }
        other => other,
    }
}

/// A problem with offsets under the name that they have in the file.
fn rename(features: Result<Features, DataProblem>, key: &str) -> Result<Features, DataProblem> {
    features.map_err(|problem| match problem {
        DataProblem::Graph { error, .. } => DataProblem::graph(key, error),
        other => other,
    })
}

/// The splits of the file; `None` where it has none at all.
pub(crate) fn splits(npz: &mut Npz<'_>, vertices: usize) -> Result<Option<Splits>, DataProblem> {
    const NAMES: [&str; 3] = ["train", "val", "test"];
    let has = |npz: &Npz<'_>, suffix: &str| {
        NAMES
            .iter()
            .any(|name| npz.has(&format!("{name}_{suffix}")))
    };
    let lists = if has(npz, "idx") {
        NAMES.map(|name| npz.selected(&format!("{name}_idx"), vertices))
    } else if has(npz, "mask") {
        NAMES.map(|name| npz.selected(&format!("{name}_mask"), vertices))
    } else {
        return Ok(None);
    };
    let [train, val, test] = lists;
    Ok(Some(Splits {
        train: train?,
        val: val?,
        test: test?,
    }))
}

#[cfg(test)]
mod tests;
