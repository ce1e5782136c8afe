//! What is written is read again, and is what others write.

use crate::OpenGraph;
use std::io::Cursor;

use proptest::prelude::*;

use super::*;
use crate::testing::Folder;
use crate::{Features, OpenOptions, Splits, UNLABELLED};

const GRAPHS: [Format; 4] = [
    Format::ScipySparse,
    Format::MatrixMarket,
    Format::EdgeList,
    Format::RawCsr,
];

fn bytes(graph: &Graph, options: WriteOptions) -> Vec<u8> {
    let mut file = Cursor::new(Vec::new());
    graph.write_to(&mut file, options).unwrap();
    file.into_inner()
}

fn text(graph: &Graph, format: Format) -> String {
    String::from_utf8(bytes(graph, WriteOptions::new(format))).unwrap()
}

#[test]
fn texts_are_those_of_the_field() {
    let directed = Graph::from_edges(3, &[0, 1, 1], &[2, 0, 1]).unwrap();
    assert_eq!(
        text(&directed, Format::MatrixMarket),
        "%%MatrixMarket matrix coordinate pattern general\n3 3 3\n1 3\n2 1\n2 2\n"
    );
    assert_eq!(
        text(&directed, Format::EdgeList),
        "# Directed graph, each edge once; an undirected one has both directions\n\
         # Nodes: 3 Edges: 3\n# FromNodeId\tToNodeId\n2\t0\n0\t1\n1\t1\n"
    );
    let undirected = directed.to_undirected().unwrap();
    assert_eq!(
        text(&undirected, Format::MatrixMarket),
        "%%MatrixMarket matrix coordinate pattern symmetric\n3 3 3\n2 1\n2 2\n3 1\n"
    );
}

proptest! {
    #[test]
    fn graphs_are_read_again(
        vertices in 1..40_usize,
        ends in prop::collection::vec(any::<(prop::sample::Index, prop::sample::Index)>(), 0..200),
        undirected in any::<bool>(),
        gzip in any::<bool>(),
    ) {
        let (rows, cols): (Vec<u32>, Vec<u32>) = ends
            .iter()
            .map(|(row, col)| (row.index(vertices) as u32, col.index(vertices) as u32))
            .unzip();
        let mut graph = Graph::from_edges(vertices, &rows, &cols).unwrap();
        if undirected {
            graph = graph.to_undirected().unwrap();
        }
        for format in GRAPHS {
            let gzip = gzip && matches!(format, Format::MatrixMarket | Format::EdgeList);
            let file = bytes(&graph, WriteOptions { gzip, ..WriteOptions::new(format) });
            for forced in [None, Some(format)] {
                let options = OpenOptions { format: forced, ..OpenOptions::default() };
                let again = Graph::read_from(Cursor::new(&file), &options).unwrap();
                prop_assert_eq!(&again, &graph, "{}", format);
            }
        }
    }
}

proptest! {
    #[test]
    fn tiles_of_a_graph_are_its_edges_once_each(
        vertices in 1..40_usize,
        ends in prop::collection::vec(any::<[prop::sample::Index; 2]>(), 0..200),
    ) {
        let [rows, cols] = [0, 1].map(|at| {
            ends.iter().map(|ends| ends[at].index(vertices) as u32).collect::<Vec<u32>>()
        });
        let graph = Graph::from_edges(vertices, &rows, &cols).unwrap();
        let once = graph.deduplicated().unwrap();
        let file = bytes(&graph, WriteOptions::new(Format::Frdc));
        prop_assert_eq!(graph.left_out_edges(Format::Frdc) as usize, graph.edges() - once.edges());
        prop_assert_eq!(graph.left_out_edges(Format::RawCsr), 0);
        // The arrays of the tiles in memory, behind the header.
        prop_assert_eq!(file.len() as u64, 24 + halfgnn_graph::Frdc::new(graph.csr()).unwrap().bytes());
        for forced in [None, Some(Format::Frdc)] {
            let options = OpenOptions { format: forced, ..OpenOptions::default() };
            let again = Graph::read_from(Cursor::new(&file), &options).unwrap();
            prop_assert_eq!(&again, &once);
        }
        prop_assert_eq!(bytes(&once, WriteOptions::new(Format::Frdc)), file);
    }
}

#[test]
fn tiles_have_a_place_for_nothing_but_edges_that_occur_once() {
    let graph = Graph::from_edges(3, &[0, 1, 1], &[2, 0, 0]).unwrap();
    let features = Features::dense(1, vec![0.5; 3]).unwrap();
    let dataset = Dataset {
        edge_weights: Some(vec![0.5, 1.0, 2.0]),
        ..Dataset::new("three", graph, features, vec![0, 1, 0], Splits::default()).unwrap()
    };
    let left_out = |format| dataset.left_out_by(format).join(", ");
    assert_eq!(
        left_out(Format::Frdc),
        "features, labels, edge weights, edges that occur again"
    );
    assert_eq!(left_out(Format::RawCsr), "features, labels, edge weights");
    let mut file = Cursor::new(Vec::new());
    dataset
        .write_to(&mut file, WriteOptions::new(Format::Frdc))
        .unwrap();
    let again = Graph::read_from(&mut file, &OpenOptions::default()).unwrap();
    assert_eq!(again, dataset.graph.deduplicated().unwrap());
    let error = Dataset::read_from(file, &OpenOptions::default()).unwrap_err();
    assert!(
        error
            .to_string()
            .starts_with("is FRDC (tiles of 4 x 4 bits, .frdc): a graph without features"),
        "{error}"
    );
}

#[test]
fn datasets_are_read_again() {
    let graph = Graph::from_edges(3, &[0, 1, 1], &[2, 0, 1]).unwrap();
    let splits = Splits {
        train: vec![0],
        val: vec![],
        test: vec![2],
    };
    let labels = vec![4, UNLABELLED, 1];
    let sparse =
        Features::sparse(4, vec![0, 1, 1, 3], vec![3, 0, 2], vec![0.5, -2.0, 7.0]).unwrap();
    let dense = Features::dense(2, vec![0.5, -1.5, 2.5, 3.5, 1e-30, 6.0]).unwrap();
    for features in [sparse, dense] {
        for edge_weights in [None, Some(vec![0.5, 1.0, -3.0])] {
            let dataset = Dataset {
                edge_weights,
                ..Dataset::new(
                    "three",
                    graph.clone(),
                    features.clone(),
                    labels.clone(),
                    splits.clone(),
                )
                .unwrap()
            };
            let mut file = Cursor::new(Vec::new());
            dataset
                .write_to(&mut file, WriteOptions::new(Format::GnnBenchmark))
                .unwrap();
            let again = Dataset::read_from(&mut file, &OpenOptions::default()).unwrap();
            assert_eq!(again.graph, dataset.graph);
            // There are negative numbers, so they are no counts and stay as they are.
            assert_eq!(again.features, dataset.features);
            assert_eq!(
                (again.targets, again.edge_weights),
                (dataset.targets.clone(), dataset.edge_weights.clone())
            );
            assert_eq!(
                (again.train, again.val, again.test),
                (vec![0], vec![], vec![2])
            );

            let mut file = Cursor::new(Vec::new());
            dataset
                .write_to(&mut file, WriteOptions::new(Format::EdgeList))
                .unwrap();
            assert_eq!(
                Graph::read_from(file, &OpenOptions::default()).unwrap(),
                dataset.graph
            );
        }
    }
}

#[test]
fn a_file_is_whole_or_not_there() {
    let folder = Folder::new();
    let graph = Graph::from_edges(2, &[0], &[1]).unwrap();
    let path = folder.path().join("pair.mtx");
    graph
        .save(&path, WriteOptions::new(Format::MatrixMarket))
        .unwrap();
    assert_eq!(Graph::open(&path).unwrap(), graph);
    let refused = graph
        .save(&path, WriteOptions::new(Format::Ogb))
        .unwrap_err()
        .to_string();
    assert!(
        refused.contains("pair.mtx: ") && refused.contains("cannot hold"),
        "{refused}"
    );
    assert_eq!(Graph::open(&path).unwrap(), graph);
    let nowhere = folder.path().join("none/pair.mtx");
    let refused = graph
        .save(&nowhere, WriteOptions::new(Format::RawCsr))
        .unwrap_err()
        .to_string();
    assert!(
        refused.contains("none/pair.mtx: cannot be written: "),
        "{refused}"
    );
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1);
}

#[test]
fn names_ask_for_formats() {
    let options = |name: &str, labelled| {
        WriteOptions::for_path(name, labelled).map(|options| (options.format, options.gzip))
    };
    assert_eq!(
        options("a/b.npz", true),
        Some((Format::GnnBenchmark, false))
    );
    assert_eq!(options("b.npz", false), Some((Format::ScipySparse, false)));
    assert_eq!(
        options("b.mtx.gz", true),
        Some((Format::MatrixMarket, true))
    );
    assert_eq!(options("b.c.txt", false), Some((Format::EdgeList, false)));
    assert_eq!(options("b.csr", false), Some((Format::RawCsr, false)));
    assert_eq!(options("b.frdc", true), Some((Format::Frdc, false)));
    for name in [
        "b.csr.gz",
        "b.frdc.gz",
        "b.npz.gz",
        "b",
        "",
        "b.pdf",
        ".txt",
    ] {
        assert_eq!(options(name, true), None, "{name}");
    }
}

#[test]
fn what_cannot_be_written_is_refused() {
    let graph = Graph::from_edges(1, &[], &[]).unwrap();
    for format in [
        Format::GnnBenchmark,
        Format::Planetoid,
        Format::Ogb,
        Format::DglReddit,
    ] {
        let error = graph
            .write_to(Cursor::new(Vec::new()), WriteOptions::new(format))
            .unwrap_err();
        assert!(error.to_string().contains("cannot hold "), "{error}");
    }
}
