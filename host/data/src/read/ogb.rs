//! The raw files of a node property prediction dataset of the Open Graph Benchmark (Hu et al., 2020), as the archive
//! from its site unpacks: `ogbn-arxiv`, `ogbn-products` and others.
//!
//! ```text
//! arxiv/
//!   raw/edge.csv.gz              from,to          a line each, numbers from 0, no names of columns
//!   raw/node-feat.csv.gz         0.1,-0.2,…
//!   raw/node-label.csv.gz        4                "nan" where there is none
//!   raw/num-node-list.csv.gz     169343
//!   split/time/train.csv.gz      a vertex a line; valid.csv.gz and test.csv.gz next to it
//! ```
//! `ogbn-mag` has [several types](types), and other files. `ogbn-proteins` has `raw/edge-feat.csv.gz`, features of
//! edges, and several labels a line. Its `raw/node_species.csv.gz` has the species of each vertex, which become one-hot
//! features. Each file may be unpacked as well. Edges are directed and left as they are. `ogbn-products` has each edge
//! in one direction, and OGB's own loader adds the other: see [`undirected`](crate::OpenOptions::undirected).

mod types;

use std::path::Path;

use super::brought_into_order;
use super::edge_list::next_edge;
use crate::error::{DataError, DataProblem};
use crate::folder::{Folder, entries};
use crate::input::Input;
use crate::message::shown;
use crate::open::Parts;
use crate::rules::{self, is_missing};
use crate::text::{Cursor, LineError, Text};
use crate::{
    EdgeFeatures, Features, MAX_CLASSES, Origin, Preparation, Splits, Targets, UNLABELLED,
};
use halfgnn_graph::{Direction, EdgeBlocks, Graph, edge_order};

/// What belongs in the folder.
pub(crate) const LAYOUT: &str = "OGB's raw files are raw/edge.csv.gz, raw/node-feat.csv.gz, \
     raw/node-label.csv.gz, raw/num-node-list.csv.gz and split/NAME/{train,valid,test}.csv.gz";

const EDGES: &str = "raw/edge.csv.gz";
const VERTICES: &str = "raw/num-node-list.csv.gz";
const FEATURES: &str = "raw/node-feat.csv.gz";
const LABELS: &str = "raw/node-label.csv.gz";
const EDGE_FEATURES: &str = "raw/edge-feat.csv.gz";
const SPECIES: &str = "raw/node_species.csv.gz";

/// More kinds of vertices than this are no kinds.
const MOST_KINDS: usize = 1 << 12;

/// Whether a folder holds such files.
pub(crate) fn recognises(folder: &Path) -> bool {
    let has = |file: &&str| folder.join(file).is_file();
    [EDGES, "raw/edge.csv"].iter().any(has) || types::recognises(folder)
}

/// Reads all files.
pub(crate) fn read(folder: &Folder<'_>, undirected: bool) -> Result<Parts, DataError> {
    if types::recognises(&folder.path) {
        return types::read(folder);
    }
    let has = |file| folder.find(file).is_some();
    let mut done = Vec::new();
    let (graph, edge_features) = match has(EDGE_FEATURES) {
        // Reverses are added to both where the dataset is made of its parts.
        true => read_edges(folder).map(|(graph, features)| (graph, Some(features)))?,
        false => {
            if undirected {
                const BOTH: &str = "the reverse of each added where there was none";
                done.push(Preparation::new("edges", BOTH, Origin::Option));
            }
            (read_graph(folder, undirected)?, None)
        }
    };
    let vertices = graph.vertices();
    let (targets, what) = folder.read(LABELS, |input| targets(input, vertices))?;
    done.extend(what.map(|what| Preparation::new("targets", what, Origin::File)));
    let features = match (has(FEATURES), has(SPECIES)) {
        (true, _) => folder.read(FEATURES, |input| features(input, vertices))?,
        (false, true) => {
            let (features, kinds) = folder.read(SPECIES, |input| species(input, vertices))?;
            let what = format!("a one for the species of each vertex, of which there are {kinds}");
            done.push(Preparation::new("features", what, Origin::Default));
            features
        }
        (false, false) if edge_features.is_some() => {
            done.push(Preparation::no_features());
            Features::ones(vertices).map_err(|problem| folder.problem(FEATURES, problem))?
        }
        // A dataset with features of neither has lost a file.
        (false, false) => folder.read(FEATURES, |input| features(input, vertices))?,
    };
    Ok(Parts {
        edge_features,
        splits: splits(folder, vertices)?.into_iter().collect(),
        done,
        ..Parts::new(graph, features, targets)
    })
}

/// Reads the graph and the features of its edges.
fn read_edges(folder: &Folder<'_>) -> Result<(Graph, EdgeFeatures), DataError> {
    let vertices = vertices(folder)?;
    let edges = folder.read(EDGES, |input| {
        let mut edges: Vec<[u32; 2]> = Vec::new();
        input.text()?.for_each_block(
            |block| parse_edges(block, vertices),
            |block| {
                edges.extend(block);
                Ok(())
            },
        )?;
        Ok(edges)
    })?;
    let [rows, columns]: [Vec<u32>; 2] =
        [0, 1].map(|end| edges.iter().map(|edge| edge[end]).collect());
    folder.read(EDGE_FEATURES, |input| {
        let (width, values) = rows_of(input, edges.len(), (false, "edge"))?;
        let refuse = |error| DataProblem::graph("edges", error);
        let order = edge_order(vertices as usize, &rows, &columns).map_err(refuse)?;
        let features = EdgeFeatures::new(width, values)?.in_order(&order)?;
        let graph = Graph::from_edges(vertices as usize, &rows, &columns).map_err(refuse)?;
        Ok((graph, features))
    })
}

/// A column for each species, with a one of the vertices that are of it; and how many there are.
fn species(input: Input<'_>, vertices: usize) -> Result<(Features, usize), DataProblem> {
    let of_each = wholes(input, u64::from(u32::MAX), "species")?;
    let mut kinds = of_each.clone();
    kinds.sort_unstable();
    kinds.dedup();
    if of_each.len() != vertices || kinds.len() > MOST_KINDS {
        let wanted =
            format!("({vertices}), a line for each vertex, of at most {MOST_KINDS} species");
        return Err(DataProblem::shape(
            "node_species",
            &[of_each.len() as u64],
            wanted,
        ));
    }
    let place = |of: &u32| kinds.binary_search(of).unwrap_or(0) as u32;
    let columns = of_each.iter().map(place).collect();
    let offsets = (0..=vertices as u64).collect();
    let features = Features::sparse(kinds.len().max(1), offsets, columns, vec![1.0; vertices])?;
    Ok((features, kinds.len()))
}

/// The targets of the vertices: a class, or of several columns what [`rules::targets`] make of them.
fn targets(input: Input<'_>, vertices: usize) -> Result<(Targets, Option<String>), DataProblem> {
    let mut text = input.text()?;
    let is_one = (text.peek_line()?).is_none_or(|line| !line.contains(','));
    if is_one {
        return Ok((labels(text, vertices)?.into(), None));
    }
    let (columns, numbers) = rows_in(text, vertices, (true, "vertex"))?;
    let (targets, what) = rules::targets(columns, numbers, "vertex")?;
    Ok((targets, Some(what)))
}

/// The number of vertices.
fn vertices(folder: &Folder<'_>) -> Result<u32, DataError> {
    folder.read(VERTICES, |input| {
        let counts = wholes(input, u32::MAX.into(), "number of vertices")?;
        match counts[..] {
            [vertices] => Ok(vertices),
            _ => Err(DataProblem::shape(
                "num-node-list",
                &[counts.len() as u64],
                "(1), the vertices of one graph: a dataset of the kind ogbn",
            )),
        }
    })
}

/// Reads the graph.
pub(crate) fn read_graph(folder: &Folder<'_>, undirected: bool) -> Result<Graph, DataError> {
    if types::recognises(&folder.path) {
        return Err(DataError::in_file(&folder.path, DataProblem::SeveralTypes));
    }
    let vertices = vertices(folder)?;
    folder.read(EDGES, |input| {
        let mut text = input.text()?;
        let most = text.most_vertices();
        if u64::from(vertices) > most {
            return Err(DataProblem::TooManyPromised {
                promised: vertices.into(),
                most,
            });
        }
        let mut edges = EdgeBlocks::default();
        text.for_each_block(
            |block| parse_edges(block, vertices),
            |block| {
                edges.push(block);
                Ok(())
            },
        )?;
        let direction = if undirected {
            Direction::BothOnce
        } else {
            Direction::AsListed
        };
        brought_into_order(edges, vertices as usize, direction, folder.progress)
    })
}

/// The edges of a block, as (to, from).
fn parse_edges(block: &[u8], vertices: u32) -> Result<Vec<[u32; 2]>, LineError> {
    let mut edges = Vec::with_capacity(block.len() / 8);
    let mut cursor = Cursor::new(block);
    while let Some((to, from, at)) = next_edge(&mut cursor)? {
        if to.max(from) >= vertices.into() {
            let reason = format!(
                "edge {from},{to} has an end that is none of {vertices} vertices, numbered from 0"
            );
            return Err(cursor.error(at, reason));
        }
        edges.push([to as u32, from as u32]);
    }
    Ok(edges)
}

/// A whole number below `limit` in each line.
fn wholes(input: Input<'_>, limit: u64, what: &str) -> Result<Vec<u32>, DataProblem> {
    let parse = |field: &[u8]| {
        let number = std::str::from_utf8(field)
            .ok()
            .and_then(|text| text.parse::<u64>().ok());
        number
            .filter(|&number| number < limit)
            .map(|number| number as u32)
            .ok_or_else(|| format!("'{}' is no {what}, below {limit}", shown(field)))
    };
    column(input.text()?, parse)
}

/// A label in each line: a whole number, which pandas may have written as a float, or "nan".
fn labels(text: Text<'_>, vertices: usize) -> Result<Vec<u32>, DataProblem> {
    let parse = |field: &[u8]| {
        let text = std::str::from_utf8(field).ok();
        if text.is_some_and(is_missing) {
            return Ok(UNLABELLED);
        }
        let number = text.and_then(|text| text.parse::<f64>().ok());
        number.and_then(rules::class_of_float).ok_or_else(|| {
            format!(
                "'{}' is no label, a whole number below {MAX_CLASSES}",
                shown(field)
            )
        })
    };
    let labels = column(text, parse)?;
    if labels.len() != vertices {
        let wanted = format!("({vertices}), a line for each vertex");
        return Err(DataProblem::shape("labels", &[labels.len() as u64], wanted));
    }
    Ok(labels)
}

/// What `parse` makes of each line, which has one column.
fn column(
    mut text: Text<'_>,
    parse: impl Fn(&[u8]) -> Result<u32, String> + Sync,
) -> Result<Vec<u32>, DataProblem> {
    let mut all: Vec<u32> = Vec::new();
    text.for_each_block(
        |block| {
            let mut values = Vec::new();
            let mut cursor = Cursor::new(block);
            while cursor.peek().is_some() {
                let start = cursor.at;
                cursor.skip_blanks(b' ');
                let field = cursor.field(b',');
                values.push(parse(field).map_err(|reason| cursor.error(start, reason))?);
                cursor.skip_blanks(b' ');
                if !cursor.at_line_end() {
                    return Err(cursor.error(
                        start,
                        "there are several columns, where one is wanted: a class or a vertex",
                    ));
                }
                cursor.skip_line();
            }
            Ok(values)
        },
        |values| {
            all.extend(values);
            Ok(())
        },
    )?;
    Ok(all)
}

/// A row of features in each line.
fn features(input: Input<'_>, vertices: usize) -> Result<Features, DataProblem> {
    let (columns, values) = rows_of(input, vertices, (false, "vertex"))?;
    Features::dense(columns, values)
}

fn rows_of(
    input: Input<'_>,
    rows: usize,
    what: (bool, &str),
) -> Result<(usize, Vec<f32>), DataProblem> {
    rows_in(input.text()?, rows, what)
}

/// The columns and numbers of `vertices` lines, NaN where one `may_miss` and does. A line is of `member`.
fn rows_in(
    mut text: Text<'_>,
    vertices: usize,
    (may_miss, member): (bool, &str),
) -> Result<(usize, Vec<f32>), DataProblem> {
    let columns = match text.peek_line()? {
        Some(line) if !line.trim().is_empty() => line.split(',').count(),
        _ => {
            return Err(DataProblem::shape(
                "features",
                &[vertices as u64, 0],
                "at least one column",
            ));
        }
    };
    let too_large = || DataProblem::TooLarge {
        what: "a matrix",
        rows: vertices as u64,
        columns: columns as u64,
    };
    // A number takes two bytes of text, or more than one of a packed text. Nothing is allocated for more numbers than
    // the text can have.
    let len = vertices.checked_mul(columns).ok_or_else(too_large)?;
    let held = usize::try_from(text.file_bytes()).unwrap_or(usize::MAX);
    let mut values: Vec<f32> = Vec::new();
    values
        .try_reserve_exact(len.min(held))
        .map_err(|_| too_large())?;
    text.for_each_block(
        |block| parse_rows(block, columns, may_miss),
        |block| {
            if values.len() + block.len() <= len {
                values.extend(block);
                return Ok(());
            }
            let rows = ((values.len() + block.len()) / columns) as u64;
            let wanted = format!("({vertices}, {columns}), a line for each {member}");
            Err(DataProblem::shape(
                "features",
                &[rows, columns as u64],
                wanted,
            ))
        },
    )?;
    if values.len() != len {
        let shape = [(values.len() / columns) as u64, columns as u64];
        let wanted = format!("({vertices}, {columns}), a line for each {member}");
        return Err(DataProblem::shape("features", &shape, wanted));
    }
    Ok((columns, values))
}

fn parse_rows(block: &[u8], columns: usize, may_miss: bool) -> Result<Vec<f32>, LineError> {
    let mut values = Vec::with_capacity(block.len() / 8);
    let mut cursor = Cursor::new(block);
    while cursor.peek().is_some() {
        let start = cursor.at;
        for column in 0..columns {
            cursor.skip_blanks(b' ');
            if column > 0 {
                if cursor.peek() != Some(b',') {
                    return Err(cursor.error(
                        start,
                        format!("there are {column} numbers, where the first line has {columns}"),
                    ));
                }
                cursor.at += 1;
                cursor.skip_blanks(b' ');
            }
            let at = cursor.at;
            let field = cursor.field(b',');
            let text = std::str::from_utf8(field).ok();
            let value = match text {
                Some(text) if may_miss && is_missing(text) => Some(f32::NAN),
                text => text
                    .and_then(|text| text.parse::<f32>().ok())
                    .filter(|value| value.is_finite()),
            };
            match value {
                Some(value) => values.push(value),
                None => {
                    let reason =
                        format!("'{}' in column {column} is no finite number", shown(field));
                    return Err(cursor.error(at, reason));
                }
            }
        }
        cursor.skip_blanks(b' ');
        if !cursor.at_line_end() {
            return Err(cursor.error(
                start,
                format!("there are more numbers than the {columns} of the first line"),
            ));
        }
        cursor.skip_line();
    }
    Ok(values)
}

/// The splits, by whatever rule there is one; `None` without any.
fn splits(folder: &Folder<'_>, vertices: usize) -> Result<Option<Splits>, DataError> {
    splits_in(folder, "", vertices)
}

/// The same in a folder below that of the rule, whose name ends in `/` where there is one.
fn splits_in(
    folder: &Folder<'_>,
    below: &str,
    vertices: usize,
) -> Result<Option<Splits>, DataError> {
    let split = folder.path.join("split");
    if !split.is_dir() {
        return Ok(None);
    }
    let rules = entries(&split).map_err(|problem| DataError::in_file(&split, problem))?;
    let file = |rule: &str, name: &str| format!("split/{rule}/{below}{name}.csv.gz");
    let has_train = |rule: &&String| folder.find(&file(rule, "train")).is_some();
    let Some(rule) = rules.iter().find(has_train) else {
        return Ok(None);
    };
    let list = |name: &str| {
        folder.read(&file(rule, name), |input| {
            wholes(input, vertices as u64, "vertex")
        })
    };
    Ok(Some(Splits {
        train: list("train")?,
        val: list("valid")?,
        test: list("test")?,
    }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::OpenGraph;
    use crate::testing::{Folder as Files, gzip};
    use crate::{Dataset, Format, OpenOptions, SplitRule};

    const FILES: [(&str, &str); 7] = [
        (EDGES, "0,1\n0,2\n3,0\n2,2\n"),
        (VERTICES, "4\n"),
        (FEATURES, "0.5,-1.25e-1,3\n1,2,3\n0.0,0.0,0.0\n-7, 8 ,9"),
        (LABELS, "2\n0\nnan\n1.0\n"),
        ("split/time/train.csv.gz", "3\n"),
        ("split/time/valid.csv.gz", "0\n"),
        ("split/time/test.csv.gz", "1\n"),
    ];

    fn write(files: &Files, name: &str, text: &str) {
        std::fs::create_dir_all(files.path().join(name).parent().unwrap()).unwrap();
        files.write(name, &gzip(text.as_bytes()));
    }

    fn folder() -> Files {
        let files = Files::new();
        FILES
            .iter()
            .for_each(|(name, text)| write(&files, name, text));
        files
    }

    #[test]
    fn as_the_archives_unpack() {
        let files = folder();
        assert_eq!(Format::detect(files.path()).unwrap(), Format::Ogb);
        let dataset = Dataset::open(files.path()).unwrap();
        let graph = Graph::from_edges(4, &[1, 2, 0, 2], &[0, 0, 3, 2]).unwrap();
        assert_eq!(dataset.graph, graph);
        assert_eq!(Graph::open(files.path()).unwrap(), graph);
        assert_eq!(dataset.class_labels().unwrap(), [2, 0, UNLABELLED, 1]);
        assert_eq!(
            (dataset.train, dataset.val, dataset.test),
            (vec![3], vec![0], vec![1])
        );
        let features = [
            0.5, -0.125, 3.0, 1.0, 2.0, 3.0, 0.0, 0.0, 0.0, -7.0, 8.0, 9.0,
        ];
        assert_eq!(dataset.features.to_dense().unwrap(), features);
        // From inside, and unpacked.
        files.write("raw/edge.csv", FILES[0].1.as_bytes());
        std::fs::remove_file(files.path().join(EDGES)).unwrap();
        let options = OpenOptions {
            undirected: true,
            ..OpenOptions::default()
        };
        let undirected = Dataset::open_with(files.path().join("raw"), &options).unwrap();
        assert_eq!(undirected.graph, graph.to_undirected().unwrap());
        assert_eq!(
            undirected.preparations[1].to_string(),
            "edges: the reverse of each added where there was none (option)"
        );
    }

    #[test]
    fn splits_are_made_where_there_are_none() {
        let files = folder();
        std::fs::remove_dir_all(files.path().join("split")).unwrap();
        let dataset = Dataset::open(files.path()).unwrap();
        assert_eq!(dataset.train, [0, 1, 3]);
        let split = Some(SplitRule::Fractions {
            train: 0.34,
            val: 0.33,
        });
        let options = OpenOptions {
            split,
            ..OpenOptions::default()
        };
        let dataset = Dataset::open_with(files.path(), &options).unwrap();
        assert_eq!(
            [dataset.train.len(), dataset.val.len(), dataset.test.len()],
            [1; 3]
        );
    }

    #[test]
    fn files_that_are_missing() {
        for (name, _) in FILES {
            let files = folder();
            std::fs::remove_file(files.path().join(name)).unwrap();
            match Dataset::open(files.path()) {
                // Without a train list there is no rule, and a split is made.
                Ok(_) => assert_eq!(name, "split/time/train.csv.gz"),
                Err(error) if name == EDGES => assert!(
                    error.to_string().contains("is in no format that is known"),
                    "{error}"
                ),
                Err(error) => assert!(
                    error
                        .to_string()
                        .contains(&format!("has no file {name}; OGB's raw files are")),
                    "{error}"
                ),
            }
        }
    }

    #[test]
    fn lines_that_are_refused() {
        for (name, text, message) in [
            (
                EDGES,
                "0,1\n0,4\n",
                "line 2: edge 0,4 has an end that is none of 4 vertices",
            ),
            (EDGES, "0,1\n-1,0\n", "line 2: '-1' is no vertex id"),
            (
                EDGES,
                "0,1\n2",
                "line 2: an edge has two vertex ids, and one is there",
            ),
            (
                VERTICES,
                "4\n4\n",
                "num-node-list: the shape is [2], where (1)",
            ),
            (VERTICES, "", "num-node-list: the shape is [0], where (1)"),
            (
                VERTICES,
                "-4\n",
                "line 1: '-4' is no number of vertices, below 4294967295",
            ),
            (
                VERTICES,
                "4000000000\n",
                "the header promises 4000000000 vertices",
            ),
            (LABELS, "1\n2\n3\n", "labels: the shape is [3], where (4)"),
            (
                LABELS,
                "1\n0,1\n3\n4\n",
                "line 2: there are several columns",
            ),
            (LABELS, "1\n0.5\n3\n4\n", "line 2: '0.5' is no label"),
            (LABELS, "1\n65536\n3\n4\n", "line 2: '65536' is no label"),
            (LABELS, "1\n-2\n3\n4\n", "line 2: '-2' is no label"),
            (
                FEATURES,
                "",
                "features: the shape is [4, 0], where at least one column",
            ),
            (
                FEATURES,
                "1,2\n3,4\n5,6\n",
                "features: the shape is [3, 2], where (4, 2)",
            ),
            (
                FEATURES,
                "1\n2\n3\n4\n5\n",
                "features: the shape is [5, 1], where (4, 1)",
            ),
            (
                FEATURES,
                "1,2\n3\n5,6\n7,8\n",
                "line 2: there are 1 numbers, where the first line has 2",
            ),
            (
                FEATURES,
                "1,2\n3,4,5\n5,6\n7,8\n",
                "line 2: there are more numbers than the 2",
            ),
            (
                FEATURES,
                "1,2\n3,nan\n5,6\n7,8\n",
                "line 2: 'nan' in column 1 is no finite number",
            ),
            (
                FEATURES,
                "1,2\n3,1e39\n5,6\n7,8\n",
                "line 2: '1e39' in column 1 is no finite number",
            ),
            (
                FEATURES,
                "1,2\n3,\n5,6\n7,8\n",
                "line 2: '' in column 1 is no finite number",
            ),
            (
                "split/time/valid.csv.gz",
                "0\n4\n",
                "line 2: '4' is no vertex, below 4",
            ),
            (
                "split/time/valid.csv.gz",
                "3\n",
                "vertex 3 is in train and again in val",
            ),
        ] {
            let files = folder();
            write(&files, name, text);
            let error = Dataset::open(files.path()).unwrap_err().to_string();
            assert!(
                error.contains(&format!(": {message}")),
                "{name} {text:?}: {error}"
            );
            let elsewhere = ["again", "promises"]
                .iter()
                .any(|word| message.contains(word));
            assert!(error.contains(name) || elsewhere, "{error}");
            assert!(!error.contains('\n'));
        }
    }

    #[test]
    fn files_cut_anywhere_are_refused() {
        for (name, text) in FILES {
            let files = folder();
            let whole = gzip(text.as_bytes());
            for len in 0..whole.len() {
                files.write(name, &whole[..len]);
                assert!(
                    Dataset::open(files.path()).is_err(),
                    "{len} bytes of {name}"
                );
            }
        }
    }

    #[test]
    fn proteins_have_species_features_of_edges_and_many_labels() {
        let files = Files::new();
        for (name, text) in [
            (EDGES, "0,1\n0,2\n3,0\n"),
            (VERTICES, "4\n"),
            (EDGE_FEATURES, "0.1,0.2\n0.3,0.4\n0.5,0.6\n"),
            (SPECIES, "9606\n4932\n9606\n4932\n"),
            (LABELS, "0,1,0\n1,,nan\n0,0,1\n1,1,1\n"),
            ("split/species/train.csv.gz", "3\n1\n"),
            ("split/species/valid.csv.gz", "0\n"),
            ("split/species/test.csv.gz", "2\n"),
        ] {
            write(&files, name, text);
        }
        let dataset = Dataset::open(files.path()).unwrap();
        assert_eq!(dataset.graph.rows(), [0, 1, 2]);
        assert_eq!(dataset.graph.cols(), [3, 0, 0]);
        let of_edges = dataset.edge_features.as_ref().unwrap();
        assert_eq!(of_edges.values(), [0.5, 0.6, 0.1, 0.2, 0.3, 0.4]);
        let ones = [0.0, 1.0, 1.0, 0.0, 0.0, 1.0, 1.0, 0.0];
        assert_eq!(dataset.features.to_dense().unwrap(), ones);
        let Targets::Labels(labels) = &dataset.targets else {
            panic!("{:?}", dataset.targets)
        };
        let of_second = [0, 1, 2].map(|column| labels.get(1, column));
        assert_eq!(of_second, [Some(true), None, None]);
        assert_eq!((labels.columns(), dataset.train), (3, vec![3, 1]));
        // Without species there is a column of ones, and both directions have the features.
        std::fs::remove_file(files.path().join(SPECIES)).unwrap();
        let options = OpenOptions {
            undirected: true,
            ..OpenOptions::default()
        };
        let dataset = Dataset::open_with(files.path(), &options).unwrap();
        assert_eq!((dataset.feature_len(), dataset.graph.edges()), (1, 6));
        assert_eq!(dataset.edge_features.unwrap().edges(), 6);
    }
}
