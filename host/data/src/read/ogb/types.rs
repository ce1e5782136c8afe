//! The raw files of a dataset of several types of the Open Graph Benchmark, `ogbn-mag`, as the archive from its site
//! unpacks:
//!
//! ```text
//! mag/
//!   raw/num-node-dict.csv.gz           author,paper             names, and below how many there are
//!                                      1134649,736389
//!   raw/triplet-type-list.csv.gz       author,writes,paper      a type of edges a line
//!   raw/relations/author___writes___paper/edge.csv.gz           from,to
//!   raw/node-feat/paper/node-feat.csv.gz                        of the types that have features
//!   raw/node-label/paper/node-label.csv.gz                      of one type
//!   split/time/paper/train.csv.gz      a vertex a line; valid.csv.gz and test.csv.gz next to it
//! ```

use std::path::Path;

use super::{features, splits_in, targets};
use crate::error::{DataError, DataProblem};
use crate::folder::Folder;
use crate::input::Input;
use crate::open::Parts;
use crate::read::edge_list::next_edge;
use crate::text::{Cursor, LineError};
use crate::types::{EdgeType, Types, VertexType, check_name};
use crate::{Origin, Preparation, Targets};
use halfgnn_graph::Csr;

const COUNTS: &str = "raw/num-node-dict.csv.gz";
const TRIPLETS: &str = "raw/triplet-type-list.csv.gz";

/// Whether a folder holds such files.
pub(super) fn recognises(folder: &Path) -> bool {
    [COUNTS, "raw/num-node-dict.csv"]
        .iter()
        .any(|file| folder.join(file).is_file())
}

/// Reads all files.
pub(super) fn read(folder: &Folder<'_>) -> Result<Parts, DataError> {
    let counts = folder.read(COUNTS, counts)?;
    let triplets = folder.read(TRIPLETS, |input| triplets(input, &counts))?;
    let mut edges = Vec::with_capacity(triplets.len());
    for ([source, destination], name) in triplets {
        let ends = [source, destination].map(|end| &counts[end]);
        let file = format!(
            "raw/relations/{}___{name}___{}/edge.csv.gz",
            ends[0].0, ends[1].0
        );
        let limits = ends.map(|end| end.1);
        let edges_of = folder.read(&file, |input| matrix(input, limits))?;
        edges.push(EdgeType {
            source,
            name,
            destination,
            edges: edges_of,
        });
    }
    let mut vertices = Vec::with_capacity(counts.len());
    let mut labelled = None;
    for (name, count) in &counts {
        let file = format!("raw/node-feat/{name}/node-feat.csv.gz");
        let features = match folder.find(&file) {
            Some(_) => Some(folder.read(&file, |input| features(input, *count as usize))?),
            None => None,
        };
        let kind = VertexType::new(name, *count as usize, features);
        vertices.push(kind.map_err(|problem| folder.problem(COUNTS, problem))?);
        let file = labels_of(name);
        match (folder.find(&file), &labelled) {
            (None, _) => {}
            (Some(_), None) => labelled = Some((name, *count as usize)),
            (Some(_), Some((first, _))) => {
                let reason = format!(
                    "vertices of type {first} and of type {name} have labels, and a model predicts those of one; leave the file of one type"
                );
                return Err(folder.problem(&file, DataProblem::Types { reason }));
            }
        }
    }
    let (name, count) = labelled.unwrap_or((&counts[0].0, counts[0].1 as usize));
    let file = labels_of(name);
    let (targets, what) = match folder.find(&file) {
        Some(_) => folder.read(&file, |input| targets(input, count))?,
        None => (Targets::unlabelled(count), None),
    };
    let splits = splits_in(folder, &format!("{name}/"), count)?;
    let finish = || {
        let (types, features) = Types::new(vertices, edges)?.with_labels_of(name)?;
        let done = what.map(|what| Preparation::new("targets", what, Origin::File));
        Ok(Parts {
            splits: splits.into_iter().collect(),
            done: done.into_iter().collect(),
            types: Some(types),
            ..Parts::of_vertices(count, features, targets)?
        })
    };
    finish().map_err(|problem| folder.problem(COUNTS, problem))
}

fn labels_of(name: &str) -> String {
    format!("raw/node-label/{name}/node-label.csv.gz")
}

/// The cells of each line.
fn cells(input: Input<'_>) -> Result<Vec<Vec<String>>, DataProblem> {
    let mut lines = Vec::new();
    input.text()?.for_each_block(
        |block| {
            let text = String::from_utf8_lossy(block);
            let lines = text.lines().filter(|line| !line.trim().is_empty());
            let cells = |line: &str| line.split(',').map(|cell| cell.trim().to_owned()).collect();
            Ok(lines.map(cells).collect::<Vec<Vec<String>>>())
        },
        |block| {
            lines.extend(block);
            Ok(())
        },
    )?;
    Ok(lines)
}

/// The types of vertices, and how many there are of each.
fn counts(input: Input<'_>) -> Result<Vec<(String, u32)>, DataProblem> {
    let lines = cells(input)?;
    let [names, numbers] = &lines[..] else {
        return Err(DataProblem::Types {
            reason: format!(
                "{} lines, where the names of the types and below them their numbers are wanted",
                lines.len()
            ),
        });
    };
    if names.len() != numbers.len() {
        return Err(DataProblem::Types {
            reason: format!(
                "{} names and {} numbers of types",
                names.len(),
                numbers.len()
            ),
        });
    }
    let pairs = names.iter().zip(numbers);
    let pairs = pairs.map(|(name, number)| {
        check_name(name)?;
        let count = number.parse::<u32>().map_err(|_| DataProblem::Types {
            reason: format!("{number:?} is no number of vertices of type {name}"),
        })?;
        Ok((name.clone(), count))
    });
    pairs.collect()
}

/// A type of edges: the numbers of the types of both ends, and its name.
type Triplet = ([usize; 2], String);

fn triplets(input: Input<'_>, counts: &[(String, u32)]) -> Result<Vec<Triplet>, DataProblem> {
    let triplet = |cells: Vec<String>| {
        let [source, name, destination] = &cells[..] else {
            return Err(DataProblem::Types {
                reason: format!(
                    "{} is no type of edges: a source, a name and a destination, with commas between",
                    cells.join(",")
                ),
            });
        };
        check_name(name)?;
        let number = |of: &String| {
            let found = counts.iter().position(|(name, _)| name == of);
            found.ok_or_else(|| DataProblem::Types {
                reason: format!(
                    "edges {name} have an end of type {of}, of which there is no number"
                ),
            })
        };
        Ok(([number(source)?, number(destination)?], name.clone()))
    };
    cells(input)?.into_iter().map(triplet).collect()
}

/// The edges of a type, from the given number of sources to the given number of destinations.
fn matrix(input: Input<'_>, limits: [u32; 2]) -> Result<Csr, DataProblem> {
    let (mut rows, mut columns) = (Vec::new(), Vec::new());
    let mut text = input.text()?;
    let most = text.most_vertices();
    if let Some(promised) = limits.into_iter().find(|limit| u64::from(*limit) > most) {
        // A type may have many vertices without edges, as long as they fit in memory.
        drop(DataProblem::with_capacity::<u64>(
            "row offsets",
            u64::from(promised) + 1,
        )?);
    }
    text.for_each_block(
        |block| parse(block, limits),
        |block| {
            rows.extend(block.iter().map(|edge: &[u32; 2]| edge[0]));
            columns.extend(block.iter().map(|edge| edge[1]));
            Ok(())
        },
    )?;
    let shape = (limits[1] as usize, limits[0] as usize);
    Csr::rectangular_from_edges(shape, &rows, &columns)
        .map_err(|error| DataProblem::graph("edges", error))
}

/// The edges of a block, as (to, from).
fn parse(block: &[u8], [sources, destinations]: [u32; 2]) -> Result<Vec<[u32; 2]>, LineError> {
    let mut edges = Vec::with_capacity(block.len() / 8);
    let mut cursor = Cursor::new(block);
    while let Some((to, from, at)) = next_edge(&mut cursor)? {
        if to >= destinations.into() || from >= sources.into() {
            let reason = format!(
                "edge {from},{to} has an end that is none of {sources} sources or {destinations} destinations, numbered from 0"
            );
            return Err(cursor.error(at, reason));
        }
        edges.push([to as u32, from as u32]);
    }
    Ok(edges)
}

#[cfg(test)]
mod tests {
    use crate::testing::{Folder as Files, gzip};
    use crate::{Dataset, Format, Graph, OpenGraph, OpenOptions, UNLABELLED};

    const FILES: [(&str, &str); 8] = [
        ("raw/num-node-dict.csv.gz", "author,paper\n2,3\n"),
        (
            "raw/triplet-type-list.csv.gz",
            "author,writes,paper\npaper,cites,paper\n",
        ),
        (
            "raw/relations/author___writes___paper/edge.csv.gz",
            "0,0\n0,1\n1,2\n",
        ),
        (
            "raw/relations/paper___cites___paper/edge.csv.gz",
            "1,0\n0,2\n",
        ),
        ("raw/node-feat/paper/node-feat.csv.gz", "0.5,1\n2,3\n4,5\n"),
        ("raw/node-label/paper/node-label.csv.gz", "1\n0\nnan\n"),
        ("split/time/paper/train.csv.gz", "0\n"),
        ("split/time/paper/valid.csv.gz", "1\n"),
    ];

    fn folder(changed: &[(&str, &str)]) -> Files {
        let files = Files::new();
        let test = [("split/time/paper/test.csv.gz", "")];
        for (name, text) in FILES.iter().chain(&test).chain(changed) {
            std::fs::create_dir_all(files.path().join(name).parent().unwrap()).unwrap();
            files.write(name, &gzip(text.as_bytes()));
        }
        files
    }

    fn options() -> OpenOptions {
        OpenOptions {
            several_types: true,
            ..OpenOptions::default()
        }
    }

    #[test]
    fn as_the_archive_of_mag_unpacks() {
        let files = folder(&[]);
        assert_eq!(Format::detect(files.path()).unwrap(), Format::Ogb);
        let dataset = Dataset::open_with(files.path(), &options()).unwrap();
        let types = dataset.types.as_ref().unwrap();
        let titles: Vec<_> = types.edges().iter().map(|of| types.title(of)).collect();
        assert_eq!(titles, ["paper cites paper", "author writes paper"]);
        let pairs = |of: usize| types.edges()[of].edges.iter().collect::<Vec<_>>();
        assert_eq!(pairs(0), [(0, 1), (2, 0)]);
        assert_eq!(pairs(1), [(0, 0), (1, 0), (2, 1)]);
        assert_eq!(
            dataset.features.to_dense().unwrap(),
            [0.5, 1.0, 2.0, 3.0, 4.0, 5.0]
        );
        assert_eq!(dataset.features_of_type(0), None);
        assert_eq!(dataset.class_labels().unwrap(), [1, 0, UNLABELLED]);
        assert_eq!((&dataset.train[..], &dataset.val[..]), (&[0][..], &[1][..]));
        for refused in [
            Dataset::open(files.path()).map(drop),
            Graph::open(files.path()).map(drop),
        ] {
            let refused = refused.unwrap_err().to_string();
            assert!(refused.contains("several types"), "{refused}");
        }
    }

    #[test]
    fn what_is_wrong_names_its_file() {
        let writes = "raw/relations/author___writes___paper/edge.csv.gz";
        for (file, text, words) in [
            (
                writes,
                "0,0\n2,1\n",
                "line 2: edge 2,1 has an end that is none of 2 sources",
            ),
            (writes, "0,3\n", "none of 2 sources or 3 destinations"),
            (
                "raw/num-node-dict.csv.gz",
                "author,paper\n2\n",
                "2 names and 1 numbers",
            ),
            (
                "raw/num-node-dict.csv.gz",
                "author,../x\n2,3\n",
                "is no part of a name",
            ),
            (
                "raw/num-node-dict.csv.gz",
                "author,paper\n2,many\n",
                "\"many\" is no number",
            ),
            (
                "raw/triplet-type-list.csv.gz",
                "author,writes\n",
                "author,writes is no type of edges",
            ),
            (
                "raw/triplet-type-list.csv.gz",
                "venue,of,paper\n",
                "an end of type venue",
            ),
            (
                "raw/node-label/author/node-label.csv.gz",
                "0\n1\n",
                "a model predicts those of one",
            ),
            (
                "raw/node-feat/paper/node-feat.csv.gz",
                "1\n",
                "a line for each vertex",
            ),
        ] {
            let files = folder(&[(file, text)]);
            let message = Dataset::open_with(files.path(), &options())
                .unwrap_err()
                .to_string();
            assert!(message.contains(words), "{message}");
            assert!(
                message.contains(file.rsplit('/').next().unwrap()),
                "{message}"
            );
        }
        let files = folder(&[]);
        std::fs::remove_file(files.path().join(writes)).unwrap();
        let message = Dataset::open_with(files.path(), &options())
            .unwrap_err()
            .to_string();
        assert!(
            message.contains(&format!("has no file {writes}")),
            "{message}"
        );
    }
}
