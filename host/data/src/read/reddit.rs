//! Reddit (Hamilton, Ying, Leskovec: "Inductive representation learning on large graphs", 2017) as DGL distributes it:
//!
//! | file | holds |
//! |---|---|
//! | `reddit_data.npz` | `feature` (vertices, 602), `label`, `node_types`: 1 to train, 2 to validate, 3 to test on |
//! | `reddit_graph.npz` | the adjacency, saved by scipy |

use super::arrays::{Arrays, Values, expect_len};
use super::npz::Npz;
use super::scipy;
use crate::error::{DataError, DataProblem};
use crate::folder::Folder;
use crate::open::Parts;
use crate::{Features, Splits};
use halfgnn_graph::Graph;

pub(crate) const DATA: &str = "reddit_data.npz";
pub(crate) const GRAPH: &str = "reddit_graph.npz";

/// What belongs in the folder.
pub(crate) const LAYOUT: &str =
    "DGL's Reddit is reddit_data.npz and reddit_graph.npz in one folder";

/// Whether an archive is the one with features and labels.
pub(crate) fn recognises(npz: &Npz<'_>) -> bool {
    npz.has("feature") && npz.has("label") && npz.has("node_types")
}

/// Reads both files.
pub(crate) fn read(folder: &Folder<'_>) -> Result<Parts, DataError> {
    let graph = read_graph(folder)?;
    let vertices = graph.vertices();
    folder.read(DATA, |input| {
        let npz = &mut Npz::open(input)?;
        let labels = npz.labels("label")?.line("label")?;
        expect_len(
            "label",
            labels.len(),
            vertices,
            "a label for each vertex of the graph",
        )?;
        let splits = splits(npz, vertices)?;
        let Values { shape, values } = npz.floats("feature")?;
        let &[rows, columns] = shape.as_slice() else {
            return Err(DataProblem::shape(
                "feature",
                &shape,
                format!("({vertices}, at least 1)"),
            ));
        };
        if rows != vertices as u64 || columns == 0 {
            return Err(DataProblem::shape(
                "feature",
                &shape,
                format!("({vertices}, at least 1)"),
            ));
        }
        let features = Features::dense(columns as usize, values)?;
        Ok(Parts {
            splits: vec![splits],
            ..Parts::new(graph, features, labels.into())
        })
    })
}

/// Reads the graph.
pub(crate) fn read_graph(folder: &Folder<'_>) -> Result<Graph, DataError> {
    folder.read(GRAPH, |input| {
        scipy::read(&mut Npz::open(input)?, folder.progress)
    })
}

fn splits(npz: &mut Npz<'_>, vertices: usize) -> Result<Splits, DataProblem> {
    let kinds = npz.counts("node_types")?.line("node_types")?;
    expect_len("node_types", kinds.len(), vertices, "one for each vertex")?;
    let mut splits = Splits::default();
    for (vertex, kind) in (0_u32..).zip(kinds) {
        let list = match kind {
            1 => &mut splits.train,
            2 => &mut splits.val,
            3 => &mut splits.test,
            _ => {
                let why = "where 1 (train), 2 (validate) or 3 (test) is wanted";
                return Err(DataProblem::value("node_types", vertex.into(), kind, why));
            }
        };
        list.push(vertex);
    }
    Ok(splits)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::OpenGraph;
    use crate::testing::{Array, Folder as Files, archive};
    use crate::{Dataset, Format};

    type Entries = Vec<(&'static str, Array)>;

    fn data() -> Entries {
        vec![
            (
                "feature",
                Array::f32(&[1.0, -2.0, 3.0, 4.0, 0.5, 0.0, 7.0, 8.0]).shaped(&[4, 2]),
            ),
            ("node_ids", Array::i64(&[0, 1, 2, 3])),
            ("label", Array::i64(&[3, 0, 1, 3])),
            ("node_types", Array::i64(&[1, 1, 2, 3])),
        ]
    }

    /// As `scipy.sparse.save_npz` saves a `coo_matrix`.
    fn graph(row: &[i32]) -> Entries {
        let word = Array {
            descr: "|S3",
            fortran_order: false,
            shape: vec![],
            data: b"coo".to_vec(),
        };
        vec![
            ("row", Array::i32(row)),
            ("col", Array::i32(&[1, 0, 2, 1])),
            ("format", word),
            ("shape", Array::i64(&[4, 4])),
            ("data", Array::f32(&[1.0; 4])),
        ]
    }

    fn write(files: &Files, name: &str, entries: &Entries) -> std::path::PathBuf {
        let entries: Vec<_> = entries
            .iter()
            .map(|(key, array)| (*key, array.npy()))
            .collect();
        files.write(name, &archive(&entries, true))
    }

    #[test]
    fn both_files_make_one_dataset() {
        let files = Files::new();
        let data = write(&files, DATA, &data());
        write(&files, GRAPH, &graph(&[0, 1, 1, 2]));
        assert_eq!(Format::detect(files.path()).unwrap(), Format::DglReddit);
        for path in [files.path(), &data] {
            let dataset = Dataset::open(path).unwrap();
            assert_eq!(
                dataset.graph,
                Graph::from_edges(4, &[0, 1, 1, 2], &[1, 0, 2, 1]).unwrap()
            );
            assert_eq!(Graph::open(path).unwrap(), dataset.graph);
            assert_eq!(
                (dataset.outputs, dataset.targets),
                (4, vec![3, 0, 1, 3].into())
            );
            assert_eq!(
                (dataset.train, dataset.val, dataset.test),
                (vec![0, 1], vec![2], vec![3])
            );
            // No bags of words: left as they are.
            assert_eq!(
                dataset.features.to_dense().unwrap(),
                [1.0, -2.0, 3.0, 4.0, 0.5, 0.0, 7.0, 8.0]
            );
        }
    }

    #[test]
    fn files_that_are_broken_or_missing() {
        let files = Files::new();
        let refusal = || Dataset::open(files.path()).unwrap_err().to_string();
        write(&files, DATA, &data());
        assert!(
            refusal().contains(": has no file reddit_graph.npz; DGL's Reddit is"),
            "{}",
            refusal()
        );
        write(&files, GRAPH, &graph(&[0, 1, 1, 4]));
        assert!(
            refusal().contains("reddit_graph.npz: row[3] is 4, but there are 4 vertices"),
            "{}",
            refusal()
        );
        write(&files, GRAPH, &graph(&[0, 1, 1]));
        assert!(
            refusal().contains("reddit_graph.npz: col: the shape is [4], where (3)"),
            "{}",
            refusal()
        );
        write(&files, GRAPH, &graph(&[0, 1, 1, 2]));
        for (key, array, message) in [
            (
                "feature",
                Array::f32(&[1.0; 6]).shaped(&[3, 2]),
                "feature: the shape is [3, 2], where (4, at least 1)",
            ),
            (
                "feature",
                Array::f32(&[1.0; 4]),
                "feature: the shape is [4], where (4, at least 1)",
            ),
            (
                "feature",
                Array::f32(&[f32::NAN; 4]).shaped(&[4, 1]),
                "feature[0] is NaN, which is no finite float",
            ),
            (
                "label",
                Array::i64(&[3, 0, 1]),
                "label: the shape is [3], where (4)",
            ),
            (
                "node_types",
                Array::i64(&[1, 0, 1, 2]),
                "node_types[1] is 0, where 1 (train)",
            ),
        ] {
            let mut entries = data();
            entries.retain(|(name, _)| *name != key);
            entries.push((key, array));
            write(&files, DATA, &entries);
            assert!(
                refusal().contains(&format!("{DATA}: {message}")),
                "{}",
                refusal()
            );
        }
    }
}
