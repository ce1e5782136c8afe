//! Tables of several types: a table of vertices for each type, and one of edges for each type of edges.
//!
//! `nodes.TYPE.csv` has the columns of [vertices](super), and `edges.SOURCE.NAME.DESTINATION.csv` those of edges, whose
//! ends are ids of their types.

use super::nodes::Nodes;
use super::{EXTENSIONS, Table, check_ignored, edges, nodes, open};
use crate::error::{DataError, DataProblem};
use crate::input::Progress;
use crate::open::Parts;
use crate::types::{EdgeType, Types, VertexType, check_name};
use crate::{ColumnNames, Origin, Preparation};
use halfgnn_graph::Csr;
use std::path::{Path, PathBuf};

/// The tables of a folder.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct TypedTables {
    /// The name of each type of vertices, and its table.
    nodes: Vec<(String, PathBuf)>,
    /// Source, name and destination of each type of edges, and its table.
    edges: Vec<([String; 3], PathBuf)>,
}

impl TypedTables {
    /// Those of a folder, where it has some of both.
    pub fn in_folder(folder: &Path) -> Result<Option<Self>, DataProblem> {
        let (mut nodes, mut edges) = (Vec::new(), Vec::new());
        for file in crate::folder::entries(folder)? {
            let stem = EXTENSIONS
                .iter()
                .find_map(|ending| file.strip_suffix(&format!(".{ending}")));
            let path = folder.join(&file);
            let parts: Vec<&str> = stem.unwrap_or_default().split('.').collect();
            match parts[..] {
                [super::NODES, name] => nodes.push((name.to_owned(), path)),
                [super::EDGES, source, name, destination] => {
                    edges.push(([source, name, destination].map(str::to_owned), path));
                }
                _ => {}
            }
        }
        let has_both = !nodes.is_empty() && !edges.is_empty();
        Ok(has_both.then_some(Self { nodes, edges }))
    }

    /// Its files.
    pub fn files(&self) -> Vec<PathBuf> {
        let nodes = self.nodes.iter().map(|(_, path)| path.clone());
        nodes
            .chain(self.edges.iter().map(|(_, path)| path.clone()))
            .collect()
    }

    /// Whether the first table of vertices is Parquet.
    pub fn is_parquet(&self) -> bool {
        self.nodes
            .first()
            .is_some_and(|(_, path)| super::is_parquet(path))
    }
}

/// The names of columns that a table has: those that options give are of some tables and not of others.
fn names_in(names: &ColumnNames, table: &dyn Table) -> ColumnNames {
    let has = |name: &String| table.names().contains(name);
    let one = |name: &Option<String>| name.clone().filter(has);
    let all = |names: &[String]| names.iter().filter(|name| has(name)).cloned().collect();
    ColumnNames {
        id: one(&names.id),
        labels: all(&names.labels),
        split: one(&names.split),
        source: one(&names.source),
        target: one(&names.target),
        weight: one(&names.weight),
        ignored: all(&names.ignored),
    }
}

/// That each name that options give is a column of some table.
fn check_names(names: &ColumnNames, tables: &[Vec<String>]) -> Result<(), DataProblem> {
    let single = [
        &names.id,
        &names.split,
        &names.source,
        &names.target,
        &names.weight,
    ];
    let given = single
        .into_iter()
        .flatten()
        .chain(&names.labels)
        .chain(&names.ignored);
    let given: Vec<String> = given.cloned().collect();
    let all: Vec<String> = tables.concat();
    check_ignored(&given, [&all, &[]])
}

/// Reads all tables.
pub(crate) fn read(
    folder: &Path,
    tables: &TypedTables,
    names: &ColumnNames,
    progress: &dyn Progress,
) -> Result<Parts, DataError> {
    let in_folder = |problem| DataError::in_file(folder, problem);
    let mut columns = Vec::new();
    let mut done = Vec::new();
    let mut found: Vec<(&str, Nodes)> = Vec::with_capacity(tables.nodes.len());
    for (name, path) in &tables.nodes {
        let in_file = |problem| DataError::in_file(path, problem);
        check_name(name).map_err(in_file)?;
        let mut table = open(path, progress).map_err(in_file)?;
        columns.push(table.names().to_vec());
        let own = names_in(names, &*table);
        found.push((name, nodes::read(&mut *table, &own).map_err(in_file)?));
    }
    let mut edges = Vec::with_capacity(tables.edges.len());
    for ([source, name, destination], path) in &tables.edges {
        let in_file = |problem| DataError::in_file(path, problem);
        let end = |of: &String| {
            let number = found.iter().position(|(name, _)| name == of);
            number.ok_or_else(|| {
                in_file(DataProblem::Types {
                    reason: format!("there is no table nodes.{of}.csv of its ends"),
                })
            })
        };
        let ends = [end(source)?, end(destination)?];
        let mut table = open(path, progress).map_err(in_file)?;
        columns.push(table.names().to_vec());
        let own = names_in(names, &*table);
        let mut read = || {
            let indices = [found[ends[0]].1.index()?, found[ends[1]].1.index()?];
            let listed = edges::read(&mut *table, &own, [&indices[0], &indices[1]])?;
            let left = [
                ("weights", listed.weights.is_some()),
                ("features", listed.features.is_some()),
            ];
            let shape = (found[ends[1]].1.vertices(), found[ends[0]].1.vertices());
            let edges = Csr::rectangular_from_edges(shape, &listed.targets, &listed.sources);
            let edges = edges.map_err(|error| DataProblem::graph("edges", error))?;
            let left = left.into_iter().filter(|(_, is_there)| *is_there);
            let left: Vec<&str> = left.map(|(what, _)| what).collect();
            Ok((edges, left.join(" and "), listed.done))
        };
        let (edges_of, left, remarks) = read().map_err(in_file)?;
        done.extend(remarks);
        if !left.is_empty() {
            let what = format!("{left} of edges {source} {name} {destination} are left alone");
            done.push(Preparation::new("other", what, Origin::File));
        }
        edges.push(EdgeType {
            source: ends[0],
            name: name.clone(),
            destination: ends[1],
            edges: edges_of,
        });
    }
    check_names(names, &columns).map_err(in_folder)?;
    if !names.ignored.is_empty() {
        let what = format!("columns {} are left alone", names.ignored.join(", "));
        done.push(Preparation::new("other", what, Origin::Option));
    }
    put_together(found, edges, done).map_err(in_folder)
}

/// The dataset of the type that has labels.
fn put_together(
    found: Vec<(&str, Nodes)>,
    edges: Vec<EdgeType>,
    mut done: Vec<Preparation>,
) -> Result<Parts, DataProblem> {
    let with_labels: Vec<&str> = found
        .iter()
        .filter(|(_, nodes)| nodes.has_labels())
        .map(|(name, _)| *name)
        .collect();
    let labelled = match with_labels[..] {
        [] => found[0].0,
        [only] => only,
        [first, second, ..] => {
            return Err(DataProblem::Types {
                reason: format!(
                    "the tables of types {first} and {second} both have labels, and a model predicts those of one; leave a column out (--ignore-columns)"
                ),
            });
        }
    };
    let mut vertices = Vec::with_capacity(found.len());
    let mut parts = None;
    for (name, nodes) in found {
        let count = nodes.vertices();
        let has_features = nodes.has_features();
        let graph = crate::types::without_edges(count)?;
        let own = nodes.into_parts(graph, None, None)?;
        // That a type has no features is shown with its type.
        let own_done = own.done.iter().filter(|step| step.of != "features");
        done.extend(own_done.cloned());
        let features = has_features.then(|| own.features.clone());
        vertices.push(VertexType::new(name, count, features)?);
        if name == labelled {
            parts = Some(own);
        }
    }
    let (types, features) = Types::new(vertices, edges)?.with_labels_of(labelled)?;
    let Some(parts) = parts else {
        return Err(DataProblem::Types {
            reason: format!("there is no table of type {labelled}"),
        });
    };
    Ok(Parts {
        features,
        types: Some(types),
        done,
        ..parts
    })
}
