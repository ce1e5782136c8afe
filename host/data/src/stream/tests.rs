//! A graph that is streamed becomes the bytes that it becomes in memory.

use super::*;
use crate::OpenGraph;
use crate::testing::{Array, Folder, archive, gzip};
use crate::write::SaveGraph;
use halfgnn_graph::Graph;
use proptest::prelude::*;
use std::io::Cursor;

/// Formats that a graph alone has.
const GRAPHS: [Format; 5] = [
    Format::ScipySparse,
    Format::MatrixMarket,
    Format::EdgeList,
    Format::RawCsr,
    Format::Frdc,
];

/// In the folder of the file, with memory for everything, and sorts of few keys at a time.
fn place(path: &Path, most_keys: usize) -> Workplace {
    Workplace {
        most_keys,
        ..Workplace::new(path.parent().unwrap(), u64::MAX)
    }
}

fn open(path: &Path, options: &OpenOptions, most_keys: usize) -> Result<StreamedGraph, DataError> {
    StreamedGraph::open(path, options, &place(path, most_keys))
        .map(|graph| graph.expect("it is streamed"))
}

/// That a file becomes the same bytes either way, in each format, whatever is asked for.
fn assert_streamed(path: &Path, most_keys: usize) {
    for (undirected, self_loops) in [(false, false), (true, false), (false, true), (true, true)] {
        let options = OpenOptions {
            undirected,
            self_loops,
            ..OpenOptions::default()
        };
        let streamed = open(path, &options, most_keys).unwrap();
        let whole = Graph::open_with(path, &options).unwrap();
        let counts = (whole.vertices(), whole.edges() as u64);
        assert_eq!((streamed.vertices(), streamed.edges()), counts);
        for format in GRAPHS {
            for gzip in [false, true] {
                let options = WriteOptions {
                    gzip,
                    ..WriteOptions::new(format)
                };
                let [mut one, mut other] = [(); 2].map(|()| Cursor::new(Vec::new()));
                write_graph(&mut one, &streamed, options).unwrap();
                whole.write_to(&mut other, options).unwrap();
                assert_eq!(
                    streamed.left_out_edges(format).unwrap(),
                    whole.left_out_edges(format)
                );
                assert!(
                    one == other,
                    "{} to {format}, undirected {undirected}, self-loops {self_loops}, gzip {gzip}",
                    path.display()
                );
            }
        }
    }
}

fn lines(edges: &[[u64; 2]]) -> String {
    edges
        .iter()
        .map(|[from, to]| format!("{from}\t{to}\n"))
        .collect()
}

/// Edges (row, column) as scipy's archives and raw rows have them; columns as they come within a row.
fn compressed(vertices: usize, edges: &[[u32; 2]]) -> (Vec<i32>, Vec<i32>) {
    let mut offsets = vec![0_i32; vertices + 1];
    let mut columns = Vec::new();
    for row in 0..vertices {
        let of_row = edges.iter().filter(|edge| edge[0] as usize == row);
        columns.extend(of_row.map(|edge| edge[1] as i32));
        offsets[row + 1] = columns.len() as i32;
    }
    (offsets, columns)
}

/// The same edges in every form that is read.
fn forms(vertices: usize, edges: &[[u32; 2]]) -> Vec<(&'static str, Vec<u8>)> {
    let wide = |far: u64| -> Vec<[u64; 2]> {
        let number = |id: u32| u64::from(id) * far + u64::from(id % 3);
        edges.iter().map(|edge| edge.map(number)).collect()
    };
    let plain: Vec<[u64; 2]> = edges.iter().map(|edge| edge.map(u64::from)).collect();
    let promised = format!("# Nodes: {vertices} Edges: 0\n{}", lines(&plain));
    let entries = |symmetry: &str| {
        let one = |edge: &[u32; 2]| format!("{} {} 0.5\n", edge[0] + 1, edge[1] + 1);
        let text: String = edges.iter().map(one).collect();
        let count = edges.len();
        format!(
            "%%MatrixMarket matrix coordinate real {symmetry}\n{vertices} {vertices} {count}\n{text}"
        )
    };
    let (offsets, columns) = compressed(vertices, edges);
    let shape = ("shape", Array::i64(&[vertices as i64; 2]).npy());
    let letters = |word: &'static [u8]| Array {
        descr: "|S3",
        fortran_order: false,
        shape: vec![],
        data: word.to_vec(),
    };
    let of_rows = |word| {
        let arrays = [
            ("indices", Array::i32(&columns).npy()),
            ("indptr", Array::i32(&offsets).npy()),
            ("format", letters(word).npy()),
            shape.clone(),
        ];
        archive(&arrays, true)
    };
    let ends =
        |at: usize| Array::i64(&edges.iter().map(|edge| edge[at].into()).collect::<Vec<_>>());
    let coordinates = [
        ("row", ends(0).npy()),
        ("col", ends(1).npy()),
        shape.clone(),
    ];
    let words = offsets
        .iter()
        .chain(&columns)
        .flat_map(|word| word.to_le_bytes());
    let raw = [vertices as i64, edges.len() as i64];
    let raw = raw
        .into_iter()
        .flat_map(i64::to_le_bytes)
        .chain(words)
        .collect();
    let [to, from] = [0, 1].map(|at| edges.iter().map(|edge| edge[at]).collect::<Vec<u32>>());
    let graph = Graph::from_edges(vertices, &to, &from).unwrap();
    let mut tiles = Cursor::new(Vec::new());
    graph
        .write_to(&mut tiles, WriteOptions::new(Format::Frdc))
        .unwrap();
    vec![
        ("tiles.frdc", tiles.into_inner()),
        ("promised.txt", promised.into_bytes()),
        (
            "packed.txt.gz",
            gzip(
                format!(
                    "source,target,weight\n{}",
                    lines(&wide(1)).replace('\t', ",").replace('\n', ",0.5\n")
                )
                .as_bytes(),
            ),
        ),
        ("near.txt", lines(&wide(7)).into_bytes()),
        ("far.txt", lines(&wide(90_000_000)).into_bytes()),
        ("wide.txt", lines(&wide(90_000_000_000)).into_bytes()),
        ("general.mtx", entries("general").into_bytes()),
        ("symmetric.mtx.gz", gzip(entries("symmetric").as_bytes())),
        ("csr.npz", of_rows(b"csr")),
        ("csc.npz", of_rows(b"csc")),
        ("coo.npz", archive(&coordinates, false)),
        ("raw.csr", raw),
    ]
}

fn assert_all_forms(vertices: usize, edges: &[[u32; 2]], most_keys: usize) {
    let folder = Folder::new();
    for (name, bytes) in forms(vertices, edges) {
        // Without an edge there is no id by which a text is detected as an edge list, or the first line would be an
        // edge.
        if edges.is_empty() && ["near.txt", "far.txt", "wide.txt", "packed.txt.gz"].contains(&name)
        {
            continue;
        }
        let path = folder.write(name, &bytes);
        assert_streamed(&path, most_keys);
        std::fs::remove_file(path).unwrap();
    }
    assert_eq!(crate::folder::entries(folder.path()).unwrap(), [""; 0]);
}

#[test]
fn graphs_without_edges_and_of_one_edge() {
    assert_all_forms(3, &[], 4);
    assert_all_forms(3, &[[1, 1]], 4);
    assert_all_forms(4, &[[3, 0]], 4);
}

#[test]
fn what_is_listed_twice_stays_and_what_is_symmetric_stays_as_it_is() {
    // Both directions of two edges twice, and a self-loop: symmetric, and not without duplicates.
    let twice = [[0, 1], [1, 0], [2, 1], [1, 2], [2, 2]];
    let twice: Vec<[u32; 2]> = twice.iter().chain(&twice).copied().collect();
    assert_all_forms(5, &twice, 3);
    // As many edges to each vertex as from it, and not symmetric.
    assert_all_forms(3, &[[0, 1], [1, 2], [2, 0]], 3);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(32))]
    #[test]
    fn any_list_in_any_order(
        vertices in 1..30_usize,
        ends in prop::collection::vec(any::<[prop::sample::Index; 2]>(), 1..150),
        most_keys in 1..200_usize,
    ) {
        let edges: Vec<[u32; 2]> = ends.iter().map(|ends| ends.map(|end| end.index(vertices) as u32)).collect();
        assert_all_forms(vertices, &edges, most_keys);
    }
}

#[test]
fn more_edges_than_a_piece_are_written_to_the_same_bytes() {
    // A few more than are read, made a text of and packed at a time; the second half is the reverse of the first.
    let count = PIECE as u32 + 70_000;
    let edge = |at: u32| {
        [
            at.wrapping_mul(2_654_435_761) >> 15,
            at.wrapping_mul(40_503) % 131_072,
        ]
    };
    let mut edges: Vec<[u32; 2]> = (0..count / 2).map(edge).collect();
    edges.extend(edges.clone().into_iter().map(|[row, column]| [column, row]));
    let folder = Folder::new();
    let wide: Vec<[u64; 2]> = edges.iter().map(|edge| edge.map(u64::from)).collect();
    let path = folder.write("many.txt", lines(&wide).as_bytes());
    let options = OpenOptions::default();
    let (streamed, whole) = (
        open(&path, &options, 1 << 16).unwrap(),
        Graph::open(&path).unwrap(),
    );
    for (format, gzip) in [
        (Format::ScipySparse, false),
        (Format::MatrixMarket, true),
        (Format::EdgeList, true),
        (Format::RawCsr, false),
        (Format::Frdc, false),
    ] {
        let options = WriteOptions {
            gzip,
            ..WriteOptions::new(format)
        };
        let [one, other] = ["stream", "whole"].map(|name| folder.path().join(name));
        streamed.save(&one, options).unwrap();
        whole.save(&other, options).unwrap();
        assert!(
            std::fs::read(&one).unwrap() == std::fs::read(&other).unwrap(),
            "{format}"
        );
    }
    // And more tiles than a piece are read.
    let tiles = folder.path().join("stream");
    let read = (
        open(&tiles, &options, 1 << 16).unwrap(),
        Graph::open(&tiles).unwrap(),
    );
    assert_eq!(read.1, whole.deduplicated().unwrap());
    let [mut one, mut other] = [(); 2].map(|()| Cursor::new(Vec::new()));
    let raw = WriteOptions::new(Format::RawCsr);
    write_graph(&mut one, &read.0, raw).unwrap();
    read.1.write_to(&mut other, raw).unwrap();
    assert!(one == other);
    assert!(streamed.is_symmetric().unwrap());
}

#[test]
fn what_is_wrong_is_reported_as_of_a_graph_in_memory() {
    let folder = Folder::new();
    let options = OpenOptions::default();
    let mut many: Vec<String> = (0..400_000).map(|at| format!("{at} {}", at / 2)).collect();
    many[345_678] = "12 twelve".into();
    let matrix = "%%MatrixMarket matrix coordinate pattern general\n3 3 2\n1 2\n";
    let mut raw = Vec::new();
    [3_i64, 2]
        .iter()
        .for_each(|count| raw.extend(count.to_le_bytes()));
    [0, 1, 2, 2, 1, 3]
        .iter()
        .for_each(|word: &i32| raw.extend(word.to_le_bytes()));
    let mut indptr = raw.clone();
    indptr[20..24].copy_from_slice(&3_i32.to_le_bytes());
    let scipy = |more: &[(&'static str, Array)]| {
        let own = [
            ("indices", Array::i32(&[0, 2, 1])),
            ("indptr", Array::i32(&[0, 2, 3, 3])),
            ("shape", Array::i64(&[3, 3])),
        ];
        let own = own
            .into_iter()
            .filter(|(key, _)| more.iter().all(|(other, _)| other != key));
        let arrays: Vec<_> = own
            .chain(more.iter().cloned())
            .map(|(key, array)| (key, array.npy()))
            .collect();
        archive(&arrays, true)
    };
    let coo = [
        ("row", Array::i32(&[0, 1])),
        ("col", Array::i32(&[0, 1, 2])),
    ];
    for (name, bytes, message) in [
        (
            "many.txt",
            many.join("\n").into_bytes(),
            "line 345679: 'twelve' is no vertex id",
        ),
        ("empty.txt", vec![], "the file is empty"),
        (
            "cut.mtx",
            matrix.into(),
            "line 2: the sizes promise 2 entries, and 1 are there",
        ),
        (
            "columns.csr",
            raw,
            "raw CSR: columns[1] is 3, but a graph of 3 vertices",
        ),
        (
            "offsets.csr",
            indptr,
            "raw CSR: offsets[2] is 2, but row offsets never decrease",
        ),
        (
            "ids.npz",
            scipy(&[("indices", Array::i32(&[0, 3, 1]))]),
            "indices[1] is 3, but there are 3 vertices",
        ),
        (
            "ptr.npz",
            scipy(&[("indptr", Array::i32(&[0, 3, 2, 3]))]),
            "indptr: offsets[2] is 2, but row offsets never decrease",
        ),
        (
            "short.npz",
            scipy(&[("indptr", Array::i32(&[0, 3]))]),
            "indptr: the shape is [2], where (4), one more",
        ),
        (
            "long.npz",
            scipy(&[("indices", Array::i32(&[0, 2, 1, 1]))]),
            "indptr: offsets[3] is 3",
        ),
        (
            "coo.npz",
            scipy(&coo),
            "col: the shape is [3], where (2), one for each of row",
        ),
    ] {
        let path = folder.write(name, &bytes);
        let options = OpenOptions {
            format: name.ends_with(".txt").then_some(Format::EdgeList),
            ..options.clone()
        };
        let streamed = open(&path, &options, 4).unwrap_err().to_string();
        let whole = Graph::open_with(&path, &options).unwrap_err().to_string();
        assert!(
            streamed.contains(&format!("{name}: {message}")),
            "{streamed}"
        );
        assert_eq!(streamed, whole);
        std::fs::remove_file(path).unwrap();
    }
    assert_eq!(crate::folder::entries(folder.path()).unwrap(), [""; 0]);
}

#[test]
fn what_is_wrong_with_tiles_is_reported_as_of_a_graph_in_memory() {
    let folder = Folder::new();
    let options = OpenOptions {
        format: Some(Format::Frdc),
        ..OpenOptions::default()
    };
    for (name, bytes, message) in crate::read::frdc::tests::broken_files() {
        let path = folder.write("x.frdc", &bytes);
        let streamed = open(&path, &options, 4).unwrap_err().to_string();
        let whole = Graph::open_with(&path, &options).unwrap_err().to_string();
        assert_eq!(streamed, whole, "{name}");
        assert!(
            streamed.ends_with(&format!("x.frdc: {message}")),
            "{streamed}"
        );
    }
}

#[test]
fn a_folder_that_cannot_be_written_to_is_named() {
    let folder = Folder::new();
    let path = folder.write("edges.txt", b"0 1\n");
    let near = folder.path().join("none");
    let place = Workplace::new(&near, u64::MAX);
    let error = StreamedGraph::open(&path, &OpenOptions::default(), &place).unwrap_err();
    assert_eq!(error.place(), near.display().to_string());
    assert!(error.to_string().contains("cannot be written: "), "{error}");
}

#[test]
fn memory_that_has_no_room_for_vertices_is_refused_with_what_would_do() {
    let folder = Folder::new();
    let options = OpenOptions::default();
    let count = 1_000_000_u64;
    let header = "%%MatrixMarket matrix coordinate pattern general";
    let mut raw: Vec<u8> = [count, 0].into_iter().flat_map(u64::to_le_bytes).collect();
    raw.resize(raw.len() + 4 * (count as usize + 1), 0);
    let graph = Graph::from_edges(count as usize, &[], &[]).unwrap();
    let mut tiles = Cursor::new(Vec::new());
    graph
        .write_to(&mut tiles, WriteOptions::new(Format::Frdc))
        .unwrap();
    let far: Vec<[u64; 2]> = (0..count / 2).map(|at| [at << 40, at << 20 | 1]).collect();
    let scipy = [
        ("indices", Array::i32(&[]).npy()),
        ("indptr", Array::i32(&vec![0; count as usize + 1]).npy()),
        ("shape", Array::i64(&[count as i64; 2]).npy()),
    ];
    for (name, bytes) in [
        (
            "promised.txt",
            format!("# Nodes: {count} Edges: 1\n0 1\n").into_bytes(),
        ),
        (
            "plain.txt",
            format!("0 {}\n", count - 1).repeat(20_000).into_bytes(),
        ),
        ("far.txt", lines(&far).into_bytes()),
        (
            "matrix.mtx",
            format!("{header}\n{count} {count} 0\n").into_bytes(),
        ),
        ("raw.csr", raw),
        ("tiles.frdc", tiles.into_inner()),
        ("scipy.npz", archive(&scipy, true)),
    ] {
        let path = folder.write(name, &bytes);
        let open = |memory| {
            StreamedGraph::open(&path, &options, &Workplace::new(folder.path(), memory))
                .map(|graph| graph.expect("it is streamed"))
        };
        // It takes what is known of ids by then at least, so that it may be asked for more than once.
        let mut memory = OVERHEAD;
        let graph = loop {
            let error = match open(memory) {
                Ok(graph) => break graph,
                Err(error) => error,
            };
            let DataProblem::LittleMemory { wanted, .. } = *error.problem() else {
                panic!("{error}");
            };
            assert_eq!(
                error.to_string(),
                format!(
                    "{}: takes at least {} MiB of memory, for what there is one of a vertex, with {} MiB allowed; allow more with --memory",
                    path.display(),
                    wanted.div_ceil(1 << 20),
                    memory >> 20
                )
            );
            assert!(wanted > memory, "{error}");
            memory = wanted;
        };
        assert!(memory > OVERHEAD + graph.vertices() as u64 * 16);
        assert!(memory < OVERHEAD * 4 / 3 + 100 * count, "{name} {memory}");
        std::fs::remove_file(path).unwrap();
    }
    assert_eq!(crate::folder::entries(folder.path()).unwrap(), [""; 0]);
}

#[test]
fn threads_are_as_many_as_memory_is_for() {
    let threads = |memory| {
        let place = Workplace::new(".", memory);
        place.read(|| Ok(rayon::current_num_threads())).unwrap()
    };
    let all = rayon::current_num_threads();
    assert_eq!(threads(0), 1);
    assert_eq!(threads(2 * OF_EDGES * OF_THREAD), all.min(2));
    assert_eq!(threads(u64::MAX), all);
}

#[test]
fn datasets_are_no_graphs_alone() {
    let folder = Folder::new();
    let arrays = [
        (
            "edge_index",
            Array::i64(&[0, 1, 1, 0]).shaped(&[2, 2]).npy(),
        ),
        ("x", Array::f32(&[1.0; 2]).shaped(&[2, 1]).npy()),
    ];
    let path = folder.write("pyg.npz", &archive(&arrays, false));
    let options = OpenOptions::default();
    assert!(
        StreamedGraph::open(&path, &options, &place(&path, 4))
            .unwrap()
            .is_none()
    );
}
