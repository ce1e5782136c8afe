use super::*;
use crate::testing::Folder as Files;
use crate::{Dataset, Format, GraphIndex, OpenGraph, OpenOptions, Targets, WriteOptions};
use std::io::Write as _;

/// An edge, and a triangle with an edge to itself and one that stands there twice.
const EDGES: &str = "1, 2\n2, 1\n3, 4\n4, 3\n4, 5\n5, 4\n5, 3\n3, 5\n3, 3\n3, 4\n";
const INDICATOR: &str = "1\n1\n2\n2\n2\n";

fn folder(files: &[(&str, &str)]) -> Files {
    let folder = Files::new();
    for (name, text) in files {
        folder.write(&format!("TWO_{name}.txt"), text.as_bytes());
    }
    folder
}

fn opened(files: &[(&str, &str)]) -> Dataset {
    Dataset::open(folder(files).path()).expect("a collection")
}

#[test]
fn all_files_are_read() {
    let folder = folder(&[
        ("A", EDGES),
        ("graph_indicator", INDICATOR),
        ("graph_labels", "1\n-1\n"),
        ("node_labels", "4, 0\n4, 1\n9, 0\n9, 0\n4, 1\n"),
        ("node_attributes", "0.5\n-1\n2\n3e0\n4\n"),
        ("edge_labels", "0\n0\n1\n1\n1\n1\n2\n2\n0\n1\n"),
        ("edge_attributes", "1\n2\n3\n4\n5\n6\n7\n8\n9\n10\n"),
    ]);
    let data = Dataset::open(folder.path()).expect("a collection");
    assert_eq!(data.name, "TWO");
    assert_eq!(Format::detect(folder.path()).unwrap(), Format::Tu);
    let graphs = data.graphs.as_ref().expect("many graphs");
    assert_eq!(graphs.starts(), [0, 2, 5]);
    assert_eq!((data.graph.vertices(), data.graph.edges()), (5, 8));
    assert_eq!(data.graph.csr().row(2), [3, 4]);
    // Labels in the order of their numbers.
    assert_eq!(data.targets, Targets::from(vec![1, 0]));
    assert_eq!(data.class_names.as_deref().unwrap(), ["-1", "1"]);
    // A number, then 4 or 9, then 0 or 1.
    let row = |vertex| {
        let mut row = [0.0; 5];
        data.features.write_row(vertex, &mut row);
        row
    };
    assert_eq!(row(0), [0.5, 1.0, 0.0, 1.0, 0.0]);
    assert_eq!(row(3), [3.0, 0.0, 1.0, 1.0, 0.0]);
    assert_eq!(row(4), [4.0, 1.0, 0.0, 0.0, 1.0]);
    // A number and one of three labels; 3 → 4, in row 3, stands there twice.
    let edges = data.edge_features.as_ref().expect("features of edges");
    assert_eq!(edges.columns(), 4);
    assert_eq!(edges.row(0), [2.0, 1.0, 0.0, 0.0], "2 to 1");
    assert_eq!(edges.row(4), [13.0, 0.0, 2.0, 0.0], "3 to 4, twice");
    let done = |of| {
        let mut steps = data.preparations.iter().filter(|step| step.of == of);
        steps.next().expect(of).what.clone()
    };
    assert!(done("edges").starts_with("1 of a vertex to itself and 1 that stood there before"));
    assert!(done("features").starts_with("1 numbers of each vertex, and a one for the label"));
    assert_eq!(
        done("splits"),
        "fractions:0.8,0.1 with seed 0, for the file has none"
    );
}

#[test]
fn vertices_without_anything_get_their_degree() {
    let data = opened(&[("A", EDGES), ("graph_indicator", INDICATOR)]);
    let mut row = [0.0; 2];
    data.features.write_row(4, &mut row);
    assert_eq!((data.feature_len(), row), (2, [0.0, 1.0]));
    assert_eq!((data.outputs, data.targets.vertices()), (0, 2));
}

#[test]
fn graphs_may_have_numbers_or_several_labels() {
    let with =
        |file, text| opened(&[("A", EDGES), ("graph_indicator", INDICATOR), (file, text)]).targets;
    let Targets::Values(values) = with("graph_attributes", "0.5, 1\n-2, nan\n") else {
        panic!("no values")
    };
    assert_eq!(values.row(0), [0.5, 1.0]);
    assert!(matches!(
        with("graph_labels", "0.5\n1\n"),
        Targets::Values(_)
    ));
    assert!(matches!(
        with("graph_labels", "0, 1\n1, 1\n"),
        Targets::Labels(_)
    ));
    assert_eq!(with("graph_labels", "0\n1.0\n"), Targets::from(vec![0, 1]));
}

#[test]
fn the_archive_of_the_site_is_the_folder() {
    let files = [
        ("A", EDGES),
        ("graph_indicator", INDICATOR),
        ("graph_labels", "0\n1\n"),
    ];
    let mut zip = zip::ZipWriter::new(std::io::Cursor::new(Vec::new()));
    for (name, text) in files {
        let options = zip::write::SimpleFileOptions::default();
        zip.start_file(format!("TWO/TWO_{name}.txt"), options)
            .unwrap();
        zip.write_all(text.as_bytes()).unwrap();
    }
    let bytes = zip.finish().unwrap().into_inner();
    let folder = Files::new();
    let data = Dataset::open(folder.write("TWO.zip", &bytes)).expect("an archive");
    let plain = opened(&files);
    assert_eq!((data.graph, data.graphs), (plain.graph, plain.graphs));
    assert_eq!((data.targets, data.name), (plain.targets, plain.name));
    let mut zip = zip::ZipWriter::new(std::io::Cursor::new(Vec::new()));
    let options = zip::write::SimpleFileOptions::default();
    zip.start_file("TWO/TWO_graph_indicator.txt", options)
        .unwrap();
    zip.write_all(b"1\n0\n").unwrap();
    let bytes = zip.finish().unwrap().into_inner();
    let refused = Dataset::open(folder.write("bad.zip", &bytes))
        .unwrap_err()
        .to_string();
    assert!(
        refused.contains("bad.zip: TWO/TWO_graph_indicator.txt: graph_indicator[1] is 0, but"),
        "{refused}"
    );
}

#[test]
fn a_written_archive_is_the_same_graphs() {
    let data = opened(&[
        ("A", EDGES),
        ("graph_indicator", INDICATOR),
        ("graph_labels", "0\n1\n"),
    ]);
    assert_eq!(data.archive_format(), Format::Pyg);
    let mut file = std::io::Cursor::new(Vec::new());
    data.write_to(&mut file, WriteOptions::new(Format::Pyg))
        .unwrap();
    let again = Dataset::read_from(file, &OpenOptions::default()).unwrap();
    assert_eq!((&again.graph, &again.graphs), (&data.graph, &data.graphs));
    assert_eq!((&again.targets, &again.train), (&data.targets, &data.train));
    let to = std::io::Cursor::new(Vec::new());
    let refused = data.write_to(to, WriteOptions::new(Format::GnnBenchmark));
    assert!(
        refused
            .unwrap_err()
            .to_string()
            .starts_with("it is 2 graphs, and gnn-benchmark's")
    );
    assert!(
        data.left_out_by(Format::EdgeList)
            .contains(&"which vertices are of which graph")
    );
    let order = halfgnn_graph::reorder::by_degree(&data.graph);
    let refused = data.reordered(&order).unwrap_err().to_string();
    assert!(
        refused.contains("another order would mix their vertices"),
        "{refused}"
    );
}

#[test]
fn mistakes_are_named() {
    let refused = |files: &[(&str, &str)]| {
        let folder = folder(files);
        let error = Dataset::open(folder.path())
            .expect_err("a mistake")
            .to_string();
        let place = folder.path().display().to_string();
        error
            .replace(&place, "")
            .trim_start_matches(['/', '\\'])
            .to_owned()
    };
    let with = |file, text| {
        let files = [("A", EDGES), ("graph_indicator", INDICATOR), (file, text)];
        refused(&files)
    };
    let graph = |edges, indicator| refused(&[("A", edges), ("graph_indicator", indicator)]);
    assert_eq!(
        graph("1, 3\n", INDICATOR),
        "TWO_A.txt: line 1: an edge from vertex 1 of graph 1 to vertex 3 of graph 2; edges stay within a graph"
    );
    assert_eq!(
        graph("1, 2\n2, 6\n", INDICATOR),
        "TWO_A.txt: line 2: vertex 6 is none of 5, numbered from 1"
    );
    assert!(graph("0, 2\n", INDICATOR).contains("line 1: vertex 0 is none"));
    assert!(graph("1, x\n", INDICATOR).contains("line 1: 'x' is no vertex, from 1"));
    assert!(graph("1, 2\n3\n", INDICATOR).contains("line 2: there are 1 numbers, where the first"));
    assert!(graph("1\n", INDICATOR).contains("A: the shape is [1, 1], where (E, 2)"));
    assert!(graph(EDGES, "1\n1\n3\n3\n3\n").contains("batch[2] is 2, but graphs are numbered"));
    assert!(graph(EDGES, "").contains("empty"));
    assert!(refused(&[("graph_indicator", INDICATOR)]).contains("TWO_A.txt"));
    assert!(with("graph_labels", "1\n").contains("(2, …), a line for each graph"));
    assert!(with("node_labels", "1\n").contains("(5, …), a line for each vertex"));
    assert!(with("node_labels", "1\n2\nx\n4\n5\n").contains("line 3: 'x' is no whole number"));
    assert!(with("node_attributes", "1\n2\nnan\n4\n5\n").contains("'nan' is no finite number"));
    assert!(with("edge_labels", "1\n").contains("(10, …), a line for each edge"));
    let two = folder(&[("A", EDGES), ("graph_indicator", INDICATOR)]);
    two.write("ONE_graph_indicator.txt", b"1\n");
    let refused = Dataset::open(two.path()).unwrap_err().to_string();
    assert!(refused.contains("ONE_graph_indicator.txt"), "{refused}");
    let named = Dataset::open(two.path().join("TWO_graph_indicator.txt"));
    assert_eq!(named.unwrap().graphs.map(|graphs| graphs.graphs()), Some(2));
}

#[test]
fn a_batch_of_pygs_is_many_graphs() {
    // As `Batch.from_data_list` has it.
    let index = GraphIndex::of_vertices(&[0, 0, 1, 1, 1]).unwrap();
    let graph = halfgnn_graph::Graph::from_edges(5, &[0, 3], &[1, 2]).unwrap();
    let features = Features::dense(1, vec![1.0; 5]).unwrap();
    let apart = Dataset::of_graphs(
        "x",
        halfgnn_graph::Graph::from_edges(5, &[0, 2], &[1, 1]).unwrap(),
        index.clone(),
        features.clone(),
        vec![0, 1],
        crate::Splits::default(),
    );
    assert_eq!(
        apart.unwrap_err().to_string(),
        "x: edges[1] is 2, which has an edge from 1 of another graph; edges stay within a graph"
    );
    let wrong = Dataset::of_graphs(
        "x",
        graph,
        index,
        features,
        vec![0, 1, 0],
        crate::Splits::default(),
    );
    assert!(
        wrong
            .unwrap_err()
            .to_string()
            .ends_with("(2), a label for each graph is wanted")
    );
    assert!(halfgnn_graph::Graph::open(Files::new().path()).is_err());
}
