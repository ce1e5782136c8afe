//! Files and folders with graphs, one format a target.

use crate::Answer;
use crate::dataset::{kind_of, mend_checksums};
use halfgnn::data::{DataError, Dataset, Format, OpenGraph, OpenOptions};
use halfgnn::graph::Graph;
use std::io::Cursor;
use std::path::Path;

/// An edge list, packed or not.
pub(crate) fn edge_list(bytes: &[u8]) -> Answer {
    read(bytes, Format::EdgeList)
}

/// Matrix Market's coordinate format, packed or not.
pub(crate) fn matrix_market(bytes: &[u8]) -> Answer {
    read(bytes, Format::MatrixMarket)
}

/// Raw compressed rows.
pub(crate) fn raw_csr(bytes: &[u8]) -> Answer {
    read(bytes, Format::RawCsr)
}

/// Tiles of bits.
pub(crate) fn frdc(bytes: &[u8]) -> Answer {
    read(bytes, Format::Frdc)
}

/// scipy's archive of a sparse matrix: as it is, and with checksums that fit.
pub(crate) fn scipy(bytes: &[u8]) -> Answer {
    let answer = read(bytes, Format::ScipySparse);
    let mut mended = bytes.to_vec();
    match mend_checksums(&mut mended) {
        true => read(&mended, Format::ScipySparse),
        false => answer,
    }
}

/// Planetoid's raw files: the bytes in the place of each.
pub(crate) fn planetoid(bytes: &[u8]) -> Answer {
    const WHOLE: [(&str, &[u8]); 7] = [
        ("allx", include_bytes!("../corpus/planetoid/allx")),
        ("ally", include_bytes!("../corpus/planetoid/ally")),
        ("tx", include_bytes!("../corpus/planetoid/tx")),
        ("ty", include_bytes!("../corpus/planetoid/ty")),
        ("y", include_bytes!("../corpus/planetoid/y")),
        ("graph", include_bytes!("../corpus/planetoid/graph")),
        (
            "test.index",
            include_bytes!("../corpus/planetoid/test.index"),
        ),
    ];
    let files = WHOLE.map(|(part, whole)| (format!("ind.tiny.{part}"), whole));
    in_place_of_each(bytes, &files)
}

/// A collection of TU's: the bytes in the place of each file.
pub(crate) fn tu(bytes: &[u8]) -> Answer {
    const WHOLE: [(&str, &[u8]); 6] = [
        ("A", include_bytes!("../corpus/tu/A.txt")),
        (
            "graph_indicator",
            include_bytes!("../corpus/tu/graph_indicator.txt"),
        ),
        (
            "graph_labels",
            include_bytes!("../corpus/tu/graph_labels.txt"),
        ),
        (
            "node_labels",
            include_bytes!("../corpus/tu/node_labels.txt"),
        ),
        (
            "node_attributes",
            include_bytes!("../corpus/tu/node_attributes.txt"),
        ),
        (
            "edge_labels",
            include_bytes!("../corpus/tu/edge_labels.txt"),
        ),
    ];
    let files = WHOLE.map(|(part, whole)| (format!("TWO_{part}.txt"), whole));
    in_place_of_each(bytes, &files)
}

/// A folder of parts: the bytes in the place of each file.
pub(crate) fn parts(bytes: &[u8]) -> Answer {
    const WHOLE: [(&str, &[u8]); 4] = [
        (
            "manifest.json",
            include_bytes!("../corpus/parts/manifest.json"),
        ),
        (
            "vertices.bin",
            include_bytes!("../corpus/parts/vertices.bin"),
        ),
        (
            "part-00000.bin",
            include_bytes!("../corpus/parts/part-00000.bin"),
        ),
        (
            "part-00001.bin",
            include_bytes!("../corpus/parts/part-00001.bin"),
        ),
    ];
    let files = WHOLE.map(|(file, whole)| (file.to_owned(), whole));
    in_place_of_each(bytes, &files)
}

/// OGB's raw files: the bytes in the place of each.
pub(crate) fn ogb(bytes: &[u8]) -> Answer {
    let files: [(String, &[u8]); 7] = [
        (
            "raw/edge.csv".into(),
            include_bytes!("../corpus/ogb/edge.csv"),
        ),
        (
            "raw/node-feat.csv".into(),
            include_bytes!("../corpus/ogb/node-feat.csv"),
        ),
        (
            "raw/node-label.csv".into(),
            include_bytes!("../corpus/ogb/node-label.csv"),
        ),
        (
            "raw/num-node-list.csv".into(),
            include_bytes!("../corpus/ogb/num-node-list.csv"),
        ),
        (
            "split/time/train.csv".into(),
            include_bytes!("../corpus/ogb/train.csv"),
        ),
        ("split/time/valid.csv".into(), b""),
        ("split/time/test.csv".into(), b"1\n"),
    ];
    in_place_of_each(bytes, &files)
}

/// Tables of vertices and of edges: the bytes in the place of each.
pub(crate) fn tables(bytes: &[u8]) -> Answer {
    let files: [(String, &[u8]); 2] = [
        (
            "nodes.csv".into(),
            include_bytes!("../corpus/tables/nodes.csv"),
        ),
        (
            "edges.csv".into(),
            include_bytes!("../corpus/tables/edges.csv"),
        ),
    ];
    in_place_of_each(bytes, &files)
}

/// DGL's Reddit: the bytes, with checksums that fit, in the place of each file.
pub(crate) fn reddit(bytes: &[u8]) -> Answer {
    let mut mended = bytes.to_vec();
    mend_checksums(&mut mended);
    let files: [(String, &[u8]); 2] = [
        (
            "reddit_data.npz".into(),
            include_bytes!("../corpus/reddit/data.npz"),
        ),
        (
            "reddit_graph.npz".into(),
            include_bytes!("../corpus/reddit/graph.npz"),
        ),
    ];
    in_place_of_each(&mended, &files)
}

/// Reads a graph from bytes, by their content and as what they are said to be.
fn read(bytes: &[u8], format: Format) -> Answer {
    let mut options = OpenOptions::default();
    let _ = Graph::read_from(Cursor::new(bytes), &options);
    options.format = Some(format);
    match Graph::read_from(Cursor::new(bytes), &options) {
        Ok(graph) => {
            assert!(
                graph
                    .cols()
                    .iter()
                    .all(|&col| (col as usize) < graph.vertices())
            );
            Answer::Accepted(format!("{} edges", graph.edges().min(8)))
        }
        Err(problem) => Answer::Refused(kind_of(&DataError::new("bytes", problem))),
    }
}

/// Opens a folder of `files` again and again, each time with the bytes in the place of another.
fn in_place_of_each(bytes: &[u8], files: &[(String, &[u8])]) -> Answer {
    let folder = tempfile::tempdir().expect("room for a temporary folder");
    let write = |file: &str, bytes: &[u8]| {
        let path = folder.path().join(file);
        let parent = path.parent().unwrap_or(Path::new("."));
        std::fs::create_dir_all(parent).expect("room for a folder");
        std::fs::write(path, bytes).expect("room for the input");
    };
    files.iter().for_each(|(file, whole)| write(file, whole));
    let (mut accepted, mut refused) = (String::new(), String::new());
    for (file, whole) in files {
        write(file, bytes);
        match Dataset::open(folder.path()) {
            Ok(data) => accepted += &format!("{file} {} ", data.graph.edges().min(8)),
            Err(error) => refused += &format!("{}; ", kind_of(&error)),
        }
        write(file, whole);
    }
    match accepted.is_empty() {
        true => Answer::Refused(refused),
        false => Answer::Accepted(accepted),
    }
}
