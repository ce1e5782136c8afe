//! Graphs of several types: arrays of PyG's `HeteroData`, each under the name of its type.
//!
//! | array | meaning |
//! |---|---|
//! | `TYPE/x`, `TYPE/num_nodes` | features of the vertices of a type, and how many there are |
//! | `TYPE/y`, `TYPE/train_mask`, … | labels and splits, of one type, as [`pyg`](super::pyg) has them |
//! | `SOURCE/NAME/DESTINATION/edge_index`, 2 × E | an edge from the vertex of the first row to that of the second, each numbered within its type |
//!
//! What else there is is named and left alone.

use super::arrays::{Arrays, Values};
use super::npy::{Kind, Number};
use super::pyg::{self, EDGES};
use crate::error::DataProblem;
use crate::open::Parts;
use crate::types::{EdgeType, Types, VertexType};
use crate::{Features, Origin, Preparation, Splits, Targets};
use halfgnn_graph::Csr;

/// Between the names of types and of an array.
pub(crate) const BETWEEN: char = '/';

/// Source, name and destination of the type of edges that an array lists, if it lists some.
fn relation(key: &str) -> Option<[&str; 3]> {
    let parts: Vec<&str> = key.split(BETWEEN).collect();
    match parts[..] {
        [source, name, destination, EDGES] => Some([source, name, destination]),
        _ => None,
    }
}

/// Whether there are edges of types.
pub(crate) fn are_several(arrays: &impl Arrays) -> bool {
    arrays.keys().iter().any(|key| relation(key).is_some())
}

/// The arrays of a type, by their names within it.
struct OfType<'a, A> {
    arrays: &'a mut A,
    prefix: String,
}

impl<A: Arrays> Arrays for OfType<'_, A> {
    fn keys(&self) -> Vec<String> {
        let keys = self.arrays.keys().into_iter();
        let own = keys.filter_map(|key| Some(key.strip_prefix(&self.prefix)?.to_owned()));
        own.filter(|key| !key.contains(BETWEEN)).collect()
    }

    fn has(&self, key: &str) -> bool {
        self.arrays.has(&format!("{}{key}", self.prefix))
    }

    fn most_vertices(&self) -> u64 {
        self.arrays.most_vertices()
    }

    fn kind(&mut self, key: &str) -> Result<(Kind, Vec<u64>), DataProblem> {
        self.arrays.kind(&format!("{}{key}", self.prefix))
    }

    fn read<T: Copy>(
        &mut self,
        key: &str,
        kinds: &[Kind],
        wanted: &'static str,
        convert: impl FnMut(u64, Number) -> Result<T, DataProblem>,
    ) -> Result<Values<T>, DataProblem> {
        let key = format!("{}{key}", self.prefix);
        self.arrays.read(&key, kinds, wanted, convert)
    }
}

/// A problem with an array of a type.
fn of(name: &str) -> impl Fn(DataProblem) -> DataProblem + '_ {
    move |problem| DataProblem::Types {
        reason: format!("{name}: {problem}"),
    }
}

/// A type of vertices as far as it is read.
struct Found {
    name: String,
    /// How many there are, where something besides the edges says it; else more than the largest that an edge names.
    vertices: Option<usize>,
    largest: usize,
}

/// Reads a dataset.
pub(crate) fn read(arrays: &mut impl Arrays) -> Result<Parts, DataProblem> {
    let keys = arrays.keys();
    let relations: Vec<[&str; 3]> = keys.iter().filter_map(|key| relation(key)).collect();
    let mut types = vertex_types(arrays, &keys, &relations)?;
    let mut edges = Vec::with_capacity(relations.len());
    for ends in &relations {
        edges.push(edge_index(arrays, &mut types, *ends)?);
    }
    let count = |of: &Found| of.vertices.unwrap_or(of.largest);
    let counts: Vec<usize> = types.iter().map(count).collect();
    let mut done = Vec::new();
    let mut vertices = Vec::with_capacity(types.len());
    for (found, count) in types.iter().zip(&counts) {
        let features = match arrays.has(&format!("{}{BETWEEN}x", found.name)) {
            true => {
                let mut own = of_type(arrays, &found.name);
                let columns = pyg::feature_columns(&mut own, *count);
                let columns = columns.map_err(of(&found.name))?;
                let values = own.floats("x").map_err(of(&found.name))?.values;
                Some(Features::dense(columns, values)?)
            }
            false => None,
        };
        vertices.push(VertexType::new(&found.name, *count, features)?);
    }
    let edges = edges.into_iter().map(|(ends, sources, targets)| {
        let shape = (counts[ends.destination], counts[ends.source]);
        let edges = Csr::rectangular_from_edges(shape, &targets, &sources);
        Ok(EdgeType {
            source: ends.source,
            name: ends.name,
            destination: ends.destination,
            edges: edges.map_err(|error| DataProblem::graph(EDGES, error))?,
        })
    });
    let edges = edges.collect::<Result<Vec<_>, DataProblem>>()?;
    let (labelled, targets, splits) = labels(arrays, &types, &counts, &mut done)?;
    done.extend(left_alone(&keys));
    let name = &types[labelled].name;
    let (of_dataset, features) = Types::new(vertices, edges)?.with_labels_of(name)?;
    Ok(Parts {
        splits,
        done,
        types: Some(of_dataset),
        ..Parts::of_vertices(counts[labelled], features, targets)?
    })
}

fn of_type<'a, A: Arrays>(arrays: &'a mut A, name: &str) -> OfType<'a, A> {
    OfType {
        arrays,
        prefix: format!("{name}{BETWEEN}"),
    }
}

/// The types that have arrays or edges, in the order in which they are named.
fn vertex_types(
    arrays: &mut impl Arrays,
    keys: &[String],
    relations: &[[&str; 3]],
) -> Result<Vec<Found>, DataProblem> {
    let with_arrays = keys.iter().filter_map(|key| key.split_once(BETWEEN));
    let with_arrays = with_arrays.filter(|(_, array)| !array.contains(BETWEEN));
    let ends = relations.iter().flat_map(|ends| [ends[0], ends[2]]);
    let mut types: Vec<Found> = Vec::new();
    for name in with_arrays.map(|(name, _)| name).chain(ends) {
        if types.iter().any(|found| found.name == name) {
            continue;
        }
        let (_, vertices) = pyg::vertices(&mut of_type(arrays, name)).map_err(of(name))?;
        types.push(Found {
            name: name.to_owned(),
            vertices,
            largest: 0,
        });
    }
    Ok(types)
}

/// A type of edges by the numbers of its ends.
struct EndsOf {
    source: usize,
    name: String,
    destination: usize,
}

/// Reads the edges of a type; a type of vertices whose number is not known has more than any that they name.
fn edge_index(
    arrays: &mut impl Arrays,
    types: &mut [Found],
    ends: [&str; 3],
) -> Result<(EndsOf, Vec<u32>, Vec<u32>), DataProblem> {
    let [source, name, destination] = ends;
    let key = [source, name, destination, EDGES].join(&BETWEEN.to_string());
    let number = |name: &str| types.iter().position(|found| found.name == name);
    let numbers = (
        number(source).unwrap_or(0),
        number(destination).unwrap_or(0),
    );
    let most = arrays.most_vertices();
    let count = |of: usize| types[of].vertices.map_or(most, |count| count as u64);
    let limits = [count(numbers.0), count(numbers.1)];
    let Values { shape, mut values } = arrays.ids(&key, limits[0].max(limits[1]), "vertices")?;
    let [2, edges] = shape[..] else {
        let wanted = "(2, E), all sources and then all targets";
        return Err(DataProblem::shape(&key, &shape, wanted));
    };
    let targets = values.split_off(edges as usize);
    let sides = [
        (&values, numbers.0, limits[0]),
        (&targets, numbers.1, limits[1]),
    ];
    for (side, (ids, of, limit)) in sides.into_iter().enumerate() {
        if let Some(at) = ids.iter().position(|id| u64::from(*id) >= limit) {
            let why = format!(
                "but there are {limit} vertices of type {}, numbered from 0",
                types[of].name
            );
            let index = side as u64 * edges + at as u64;
            return Err(DataProblem::value(&key, index, ids[at], why));
        }
        let largest = ids.iter().max().map_or(0, |largest| *largest as usize + 1);
        types[of].largest = types[of].largest.max(largest);
    }
    let ends = EndsOf {
        source: numbers.0,
        name: name.to_owned(),
        destination: numbers.1,
    };
    Ok((ends, values, targets))
}

/// The type that has labels, what they are, and the ways to split.
fn labels(
    arrays: &mut impl Arrays,
    types: &[Found],
    counts: &[usize],
    done: &mut Vec<Preparation>,
) -> Result<(usize, Targets, Vec<Splits>), DataProblem> {
    let with_labels = types.iter().enumerate();
    let with_labels = with_labels.filter(|(_, it)| arrays.has(&format!("{}{BETWEEN}y", it.name)));
    let with_labels: Vec<usize> = with_labels.map(|(number, _)| number).collect();
    let labelled = match with_labels[..] {
        [] => 0,
        [only] => only,
        [first, second, ..] => {
            return Err(DataProblem::Types {
                reason: format!(
                    "vertices of type {} and of type {} have labels (y), and a model predicts those of one; keep y of one type",
                    types[first].name, types[second].name
                ),
            });
        }
    };
    let (name, count) = (&types[labelled].name, counts[labelled]);
    let mut own = of_type(arrays, name);
    let targets = pyg::targets_of(&mut own, (count, "vertex"), done).map_err(of(name))?;
    let splits = pyg::splits(&mut own, count).map_err(of(name))?;
    Ok((labelled, targets, splits))
}

/// What is there besides what is read.
fn left_alone(keys: &[String]) -> Option<Preparation> {
    let is_known = |key: &&String| {
        let array = key.rsplit(BETWEEN).next().unwrap_or(key);
        let known = ["x", "y", "num_nodes", EDGES];
        let of_type = key.contains(BETWEEN);
        of_type && (known.contains(&array) || pyg::is_of_splits(array))
    };
    let others: Vec<&str> = keys
        .iter()
        .filter(|key| !is_known(key))
        .map(String::as_str)
        .collect();
    let what = format!("{} are left alone", others.join(", "));
    (!others.is_empty()).then(|| Preparation::new("other", what, Origin::File))
}

#[cfg(test)]
mod tests;
