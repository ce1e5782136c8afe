//! What can be wrong with an input file, for every format that is read: a clear error in one line, no panic, and no
//! memory for what a header only claims. A table: each mistake of each format, or why it cannot be made there.

use halfgnn::data::{DataError, Dataset, Format, OpenGraph, OpenOptions};
use halfgnn::graph::Graph;
use halfgnn_fuzz::allocation;
use std::io::{Cursor, Write as _};
use std::path::Path;

#[global_allocator]
static ALLOCATOR: allocation::Counting = allocation::Counting;

macro_rules! corpus {
    ($file:literal) => {
        include_bytes!(concat!("../corpus/", $file)).to_vec()
    };
}

/// What a reader may hold for a file of a few hundred bytes: blocks of text, and a bit for each vertex that is
/// believed.
const MOST_MEMORY: usize = 32 << 20;

#[derive(Clone, Copy, Debug)]
enum Mistake {
    Truncated,
    Empty,
    /// An array, file or field is missing or is another's.
    WrongKey,
    WrongType,
    /// A vertex that is none.
    OutOfRange,
    Negative,
    NanFeature,
    /// Gigabytes that are not there.
    HugeHeader,
}

const MISTAKES: [Mistake; 8] = [
    Mistake::Truncated,
    Mistake::Empty,
    Mistake::WrongKey,
    Mistake::WrongType,
    Mistake::OutOfRange,
    Mistake::Negative,
    Mistake::NanFeature,
    Mistake::HugeHeader,
];

/// What becomes of a mistake.
enum Case {
    /// This file of the format's, with these bytes, is refused in these words.
    Refused(&'static str, Vec<u8>, &'static str),
    /// The file is read, and the claim in it not believed: the graph has the given number of vertices.
    Read(&'static str, Vec<u8>, usize),
    /// The mistake cannot be made in this format.
    Impossible(&'static str),
}
use Case::{Impossible, Read, Refused};

type Files = Vec<(&'static str, Vec<u8>)>;

/// An array of an archive: type, shape, bytes.
#[derive(Clone)]
struct Array(&'static str, Vec<u64>, Vec<u8>);

fn longs(values: &[i64]) -> Array {
    let bytes = values.iter().flat_map(|value| value.to_le_bytes());
    Array("<i8", vec![values.len() as u64], bytes.collect())
}

fn floats(shape: &[u64], values: &[f32]) -> Array {
    let bytes = values.iter().flat_map(|value| value.to_le_bytes());
    Array("<f4", shape.to_vec(), bytes.collect())
}

/// An archive as numpy's `savez` writes it.
fn npz(arrays: &[(&str, Array)]) -> Vec<u8> {
    let mut zip = zip::ZipWriter::new(Cursor::new(Vec::new()));
    let stored =
        zip::write::SimpleFileOptions::default().compression_method(zip::CompressionMethod::Stored);
    for (key, Array(kind, shape, bytes)) in arrays {
        let shape: String = shape.iter().map(|extent| format!("{extent}, ")).collect();
        let header = format!("{{'descr': '{kind}', 'fortran_order': False, 'shape': ({shape}), }}");
        zip.start_file(format!("{key}.npy"), stored)
            .expect("a member");
        zip.write_all(b"\x93NUMPY\x01\x00\x76\x00").expect("room");
        writeln!(zip, "{header:<117}").expect("room");
        zip.write_all(bytes).expect("room");
    }
    zip.finish().expect("an archive").into_inner()
}

/// `arrays` with another in the place of `key`'s, or without it.
fn with(mut arrays: Vec<(&'static str, Array)>, key: &str, array: Option<Array>) -> Vec<u8> {
    let at = arrays.iter().position(|(name, _)| *name == key);
    let at = at.expect("an array of this name");
    match array {
        Some(array) => arrays[at].1 = array,
        None => drop(arrays.remove(at)),
    }
    npz(&arrays)
}

/// gnn-benchmark's: vertices 0, 1, 2 in a path, two features.
fn gnn_benchmark() -> Vec<(&'static str, Array)> {
    vec![
        ("adj_data", floats(&[4], &[1.0; 4])),
        ("adj_indices", longs(&[1, 0, 2, 1])),
        ("adj_indptr", longs(&[0, 1, 3, 4])),
        ("adj_shape", longs(&[3, 3])),
        ("attr_matrix", floats(&[3, 2], &[0.5; 6])),
        ("labels", longs(&[0, 1, 0])),
    ]
}

/// The same with PyG's arrays.
fn pyg() -> Vec<(&'static str, Array)> {
    let ends = Array("<i8", vec![2, 4], longs(&[1, 0, 2, 1, 0, 1, 1, 2]).2);
    vec![
        ("edge_index", ends),
        ("x", floats(&[3, 2], &[0.5; 6])),
        ("y", longs(&[0, 1, 0])),
        ("num_nodes", longs(&[3])),
    ]
}

/// A file of torch's, and of one of its members, which are not packed, other bytes in the place of some.
fn torch(member: &str, from: &[u8], to: &[u8]) -> Vec<u8> {
    let whole = corpus!("torch/dict.pt");
    let mut old = zip::ZipArchive::new(Cursor::new(whole)).expect("an archive");
    let mut new = zip::ZipWriter::new(Cursor::new(Vec::new()));
    let stored =
        zip::write::SimpleFileOptions::default().compression_method(zip::CompressionMethod::Stored);
    for at in 0..old.len() {
        let mut file = old.by_index(at).expect("a member");
        let name = file.name().expect("a name").into_owned();
        let mut bytes = Vec::new();
        std::io::Read::read_to_end(&mut file, &mut bytes).expect("a member");
        if name.ends_with(member) && !from.is_empty() {
            let place = bytes.windows(from.len()).position(|part| part == from);
            let place = place.expect("these bytes are in it");
            bytes.splice(place..place + from.len(), to.iter().copied());
        }
        new.start_file(name, stored).expect("a member");
        new.write_all(&bytes).expect("room");
    }
    new.finish().expect("an archive").into_inner()
}

/// The same graph as scipy writes it.
fn scipy() -> Vec<(&'static str, Array)> {
    vec![
        ("indices", longs(&[1, 0, 2, 1])),
        ("indptr", longs(&[0, 1, 3, 4])),
        ("format", Array("|S3", vec![], b"csr".to_vec())),
        ("shape", longs(&[3, 3])),
        ("data", floats(&[4], &[1.0; 4])),
    ]
}

/// And as DGL distributes Reddit: the arrays of its two files.
fn reddit() -> [Vec<(&'static str, Array)>; 2] {
    let data = vec![
        ("feature", floats(&[3, 2], &[0.5; 6])),
        ("label", longs(&[0, 1, 0])),
        ("node_types", longs(&[1, 2, 3])),
    ];
    let graph = vec![
        ("row", longs(&[0, 1, 1, 2])),
        ("col", longs(&[1, 0, 2, 1])),
        ("data", floats(&[4], &[1.0; 4])),
        ("format", Array("|S3", vec![], b"coo".to_vec())),
        ("shape", longs(&[3, 3])),
    ];
    [data, graph]
}

/// And in raw CSR: the header's two numbers, and the columns.
fn raw_csr(vertices: i64, edges: i64, columns: [i32; 4]) -> Vec<u8> {
    let header = [vertices, edges].into_iter().flat_map(i64::to_le_bytes);
    let words = [0, 1, 3, 4].into_iter().chain(columns);
    header.chain(words.flat_map(i32::to_le_bytes)).collect()
}

/// And in tiles of bits, of which there is one: the header's three numbers behind the version, the column of the tile,
/// and its bits.
fn frdc(counts: [u32; 3], column: u32, bits: u16) -> Vec<u8> {
    let words = [&[1], &counts[..], &[0, 1, column]].concat();
    let words = words.into_iter().flat_map(u32::to_le_bytes);
    let letters = b"HGNNFRDC".iter().copied();
    letters.chain(words).chain(bits.to_le_bytes()).collect()
}

const MATRIX: &str = "%%MatrixMarket matrix coordinate real symmetric\n3 3 2\n2 1 1\n3 2 1\n";

/// A dataset or graph in which nothing is wrong.
fn whole(format: Format) -> Files {
    match format {
        Format::GnnBenchmark => vec![("x.npz", npz(&gnn_benchmark()))],
        Format::Pyg => vec![("x.npz", npz(&pyg()))],
        Format::Torch => vec![("x.pt", corpus!("torch/dict.pt"))],
        Format::Csv => vec![
            ("nodes.csv", corpus!("tables/nodes.csv")),
            ("edges.csv", corpus!("tables/edges.csv")),
        ],
        Format::Planetoid => vec![
            ("ind.x.allx", corpus!("planetoid/allx")),
            ("ind.x.ally", corpus!("planetoid/ally")),
            ("ind.x.tx", corpus!("planetoid/tx")),
            ("ind.x.ty", corpus!("planetoid/ty")),
            ("ind.x.y", corpus!("planetoid/y")),
            ("ind.x.graph", corpus!("planetoid/graph-of-protocol-0")),
            ("ind.x.test.index", corpus!("planetoid/test.index")),
        ],
        Format::Parts => vec![
            ("manifest.json", corpus!("parts/manifest.json")),
            ("vertices.bin", corpus!("parts/vertices.bin")),
            ("part-00000.bin", corpus!("parts/part-00000.bin")),
            ("part-00001.bin", corpus!("parts/part-00001.bin")),
        ],
        Format::Ogb => vec![
            ("raw/edge.csv", corpus!("ogb/edge.csv")),
            ("raw/node-feat.csv", corpus!("ogb/node-feat.csv")),
            ("raw/node-label.csv", corpus!("ogb/node-label.csv")),
            ("raw/num-node-list.csv", corpus!("ogb/num-node-list.csv")),
        ],
        Format::Tu => vec![
            ("TWO_A.txt", corpus!("tu/A.txt")),
            ("TWO_graph_indicator.txt", corpus!("tu/graph_indicator.txt")),
            ("TWO_graph_labels.txt", corpus!("tu/graph_labels.txt")),
            ("TWO_node_labels.txt", corpus!("tu/node_labels.txt")),
            ("TWO_node_attributes.txt", corpus!("tu/node_attributes.txt")),
        ],
        Format::DglReddit => {
            let [data, graph] = reddit();
            vec![
                ("reddit_data.npz", npz(&data)),
                ("reddit_graph.npz", npz(&graph)),
            ]
        }
        Format::ScipySparse => vec![("x.npz", npz(&scipy()))],
        Format::MatrixMarket => vec![("x.mtx", MATRIX.into())],
        Format::EdgeList => vec![("x.txt", b"# Nodes: 3\n0 1\n1 2\n".to_vec())],
        Format::RawCsr => vec![("x.csr", raw_csr(3, 4, [1, 0, 2, 1]))],
        Format::Frdc => vec![("x.frdc", frdc([3, 4, 1], 0, 0x252))],
        other => panic!("{other:?} is new: write it down here"),
    }
}

/// The first `share` percent of a file of the whole.
fn cut(format: Format, file: &str, share: usize) -> Vec<u8> {
    let mut files = whole(format).into_iter();
    let (_, bytes) = files.find(|(name, _)| *name == file).expect("a file");
    bytes[..bytes.len() * share / 100].to_vec()
}

/// A file of the whole with other bytes in the place of some.
fn patched(format: Format, file: &str, from: &[u8], to: &[u8]) -> Vec<u8> {
    let mut bytes = cut(format, file, 100);
    let at = bytes.windows(from.len()).position(|part| part == from);
    let at = at.expect("these bytes are in it");
    bytes.splice(at..at + from.len(), to.iter().copied());
    bytes
}

/// A file of the whole with another byte at a place.
fn set(format: Format, file: &str, at: usize, byte: u8) -> Vec<u8> {
    let mut bytes = cut(format, file, 100);
    bytes[at] = byte;
    bytes
}

#[rustfmt::skip] // a row, or two lines, each
fn case(format: Format, mistake: Mistake) -> Case {
    use Mistake::*;
    let features = "a graph alone, without features";
    match (format, mistake) {
        (Format::GnnBenchmark, mistake) => {
            let broken = |key, array, words| Refused("x.npz", with(gnn_benchmark(), key, array), words);
            match mistake {
                Truncated => Refused("x.npz", cut(format, "x.npz", 70), "is not a whole zip archive"),
                Empty => Refused("x.npz", Vec::new(), "the file is empty"),
                WrongKey => broken("labels", None, "has no array labels; it has adj_data"),
                // A whole number in a float is a class.
                WrongType => broken("labels", Some(floats(&[3], &[0.5; 3])), "labels"),
                OutOfRange => broken("adj_indices", Some(longs(&[1, 0, 3, 1])), "adj_indices[2] is 3"),
                Negative => broken("adj_shape", Some(longs(&[-3, -3])), "adj_shape[0] is -3"),
                NanFeature => broken("attr_matrix", Some(floats(&[3, 2], &[f32::NAN; 6])), "attr_matrix[0] is NaN"),
                HugeHeader => broken("labels", Some(Array("<i8", vec![1 << 31], vec![0; 24])),
                    "labels: the header promises 17179869184 bytes, but 24 are there"),
            }
        }
        (Format::DglReddit, mistake) => {
            let [data, graph] = reddit();
            let data = |key, array, words| Refused("reddit_data.npz", with(data, key, array), words);
            let graph = |key, array, words| Refused("reddit_graph.npz", with(graph, key, array), words);
            match mistake {
                Truncated => Refused("reddit_graph.npz", cut(format, "reddit_graph.npz", 70), "is not a whole zip archive"),
                Empty => Refused("reddit_data.npz", Vec::new(), "reddit_data.npz: the file is empty"),
                WrongKey => data("label", None, "reddit_data.npz: has no array label"),
                WrongType => data("label", Some(floats(&[3], &[0.5; 3])), "label"),
                OutOfRange => graph("row", Some(longs(&[0, 1, 1, 3])), "reddit_graph.npz: row[3] is 3"),
                Negative => graph("col", Some(longs(&[1, 0, -2, 1])), "col[2] is -2"),
                NanFeature => data("feature", Some(floats(&[3, 2], &[f32::NAN; 6])), "feature[0] is NaN"),
                HugeHeader => data("feature", Some(Array("<f4", vec![1 << 20, 2560], vec![0; 24])),
                    "feature: the header promises 10737418240 bytes, but 24 are there"),
            }
        }
        (Format::Pyg, mistake) => {
            let broken = |key, array, words| Refused("x.npz", with(pyg(), key, array), words);
            let ends = |values: &[i64; 8]| Some(Array("<i8", vec![2, 4], longs(values).2));
            match mistake {
                Truncated => Refused("x.npz", cut(format, "x.npz", 70), "is not a whole zip archive"),
                Empty => Refused("x.npz", Vec::new(), "the file is empty"),
                WrongKey => broken("edge_index", None, "has no array edge_index; it has num_nodes, x, y"),
                WrongType => broken("edge_index", Some(floats(&[2, 4], &[0.0; 8])), "edge_index: the type is <f4"),
                OutOfRange => broken("edge_index", ends(&[1, 0, 3, 1, 0, 1, 1, 2]), "edge_index[2] is 3"),
                Negative => broken("edge_index", ends(&[1, 0, 2, 1, 0, 1, -1, 2]), "edge_index[6] is -1"),
                NanFeature => broken("x", Some(floats(&[3, 2], &[f32::NAN; 6])), "x[0] is NaN"),
                HugeHeader => broken("num_nodes", Some(longs(&[4_000_000_000])), "the header promises 4000000000 vertices"),
            }
        }
        (Format::Torch, Truncated) => Refused("x.pt", cut(format, "x.pt", 70), "is not a whole zip archive"),
        (Format::Torch, Empty) => Refused("x.pt", Vec::new(), "the file is empty"),
        (Format::Torch, WrongKey) =>
            Refused("x.pt", torch("data.pkl", b"edge_index", b"edge_indey"), "has no array edge_index; it has edge_indey"),
        (Format::Torch, WrongType) =>
            Refused("x.pt", torch("data.pkl", b"IntStorage", b"FloatStorage"), "edge_index: the type is float"),
        (Format::Torch, OutOfRange) => Refused("x.pt", torch("data/0", &[3, 0, 0, 0], &[9, 0, 0, 0]), "edge_index[0] is 9"),
        (Format::Torch, Negative) => Refused("x.pt", torch("data/0", &[3, 0, 0, 0], &[255; 4]), "edge_index[0] is -1"),
        (Format::Torch, NanFeature) =>
            Refused("x.pt", torch("data/2", &[0, 0, 128, 63], &[0, 0, 192, 127]), "x[0] is NaN, in row 0, column 0"),
        (Format::Torch, HugeHeader) =>
            Refused("x.pt", torch("data.pkl", b"K\x05\x85", b"J\xff\xff\xff\x7f\x85"), "y: the shape is [2147483647], where (5)"),
        (Format::Csv, Truncated) => Refused("edges.csv", cut(format, "edges.csv", 55), "cells, where the first line names 4"),
        (Format::Csv, Empty) => Refused("nodes.csv", Vec::new(), "nodes.csv: the file is empty"),
        (Format::Csv, WrongKey) =>
            Refused("edges.csv", patched(format, "edges.csv", b"source", b"origin"), "there is no column 'source'; there are origin"),
        (Format::Csv, WrongType) => Refused("nodes.csv", patched(format, "nodes.csv", b"31", b"3l"), "'3l' in column 'age' is no finite"),
        (Format::Csv, OutOfRange) => Refused("edges.csv", patched(format, "edges.csv", b"4,ann", b"5,ann"), "line 4: '5' is no id"),
        (Format::Csv, Negative) => Impossible("ids are any texts, and features and weights any numbers"),
        (Format::Csv, NanFeature) => Refused("nodes.csv", patched(format, "nodes.csv", b"31", b"nan"), "'nan' in column 'age'"),
        (Format::Csv, HugeHeader) => Impossible("nothing in it is promised"),
        (Format::ScipySparse, mistake) => {
            let broken = |key, array, words| Refused("x.npz", with(scipy(), key, array), words);
            match mistake {
                Truncated => Refused("x.npz", cut(format, "x.npz", 70), "is not a whole zip archive"),
                Empty => Refused("x.npz", Vec::new(), "the file is empty"),
                WrongKey => broken("indptr", None, "has no array indptr"),
                WrongType => broken("indices", Some(floats(&[4], &[0.0; 4])), "indices: the type is <f4"),
                OutOfRange => broken("indices", Some(longs(&[1, 0, 3, 1])), "indices[2] is 3"),
                Negative => broken("shape", Some(longs(&[-3, -3])), "shape[0] is -3"),
                NanFeature => Impossible(features),
                HugeHeader => broken("indices", Some(Array("<i8", vec![1 << 31], vec![0; 32])),
                    "indices: the header promises 17179869184 bytes, but 32 are there"),
            }
        }
        (Format::Planetoid, Truncated) => Refused("ind.x.allx", cut(format, "ind.x.allx", 70), "as a Python pickle"),
        (Format::Planetoid, Empty) => Refused("ind.x.graph", Vec::new(), "ind.x.graph: the file is empty"),
        (Format::Planetoid, WrongKey) => Refused("ind.x.ally", corpus!("planetoid/graph"), "it is no array of numpy's"),
        (Format::Planetoid, WrongType) => Refused("ind.x.tx", corpus!("planetoid/ty"), "it is no csr_matrix"),
        (Format::Planetoid, OutOfRange) =>
            Refused("ind.x.graph", patched(format, "ind.x.graph", b"I7\n", b"I99\n"), "Int(99) is no vertex"),
        (Format::Planetoid, Negative) =>
            Refused("ind.x.graph", patched(format, "ind.x.graph", b"I7\n", b"I-7\n"), "Int(-7) is no vertex"),
        // A number's bytes are letters of a string there, in UTF-8: 1.0 and what no number is.
        (Format::Planetoid, NanFeature) => Refused("ind.x.allx",
            patched(format, "ind.x.allx", b"\0\0\xc2\x80\x3f", b"\0\0\xc3\x80\x7f"), "data[0] is NaN"),
        (Format::Planetoid, HugeHeader) => Refused("ind.x.allx",
            patched(format, "ind.x.allx", b"X\x14\0\0\0", b"X\0\0\0\x7f"), "ind.x.allx: as a Python pickle"),
        (Format::Tu, Truncated) => Refused("TWO_A.txt", b"1, 2\n2".to_vec(), "line 2: there are 1 numbers, where the first line has 2"),
        (Format::Tu, Empty) => Refused("TWO_A.txt", Vec::new(), "TWO_A.txt: the file is empty"),
        (Format::Tu, WrongKey) => Refused("TWO_node_labels.txt", b"label\n4\n4\n9\n9\n4\n".to_vec(), "line 1: 'label' is no whole number"),
        (Format::Tu, WrongType) => Refused("TWO_node_labels.txt", b"4\n4.5\n9\n9\n4\n".to_vec(), "line 2: '4.5' is no whole number"),
        (Format::Tu, OutOfRange) => Refused("TWO_A.txt", b"1, 2\n1, 6\n".to_vec(), "line 2: vertex 6 is none of 5, numbered from 1"),
        (Format::Tu, Negative) => Refused("TWO_graph_indicator.txt", b"1\n-1\n2\n2\n2\n".to_vec(), "'-1' is no number of a graph"),
        (Format::Tu, NanFeature) => Refused("TWO_node_attributes.txt", b"1\nnan\n3\n4\n5\n".to_vec(), "line 2: 'nan' is no finite number"),
        (Format::Tu, HugeHeader) => Impossible("nothing in it is promised"),
        (Format::Parts, Truncated) => Refused("part-00000.bin", cut(format, "part-00000.bin", 70), "length: it is 78 bytes, where"),
        (Format::Parts, Empty) => Refused("manifest.json", Vec::new(), "manifest: EOF while parsing"),
        (Format::Parts, WrongKey) =>
            Refused("manifest.json", patched(format, "manifest.json", b"edge_weights", b"weights"), "unknown field `weights`"),
        (Format::Parts, WrongType) => Refused("manifest.json", patched(format, "manifest.json", b"true", b"1"), "manifest: invalid type"),
        // Behind the header, 2 vertices and 3 offsets.
        (Format::Parts, OutOfRange) => Refused("part-00000.bin", set(format, "part-00000.bin", 24 + 8 + 24, 9), "columns[0] is 9, but"),
        (Format::Parts, Negative) => Impossible("nothing in it has a sign but features and weights, which may be negative"),
        // Of the numbers of a file its sum is reported first.
        (Format::Parts, NanFeature) => Refused("part-00000.bin", set(format, "part-00000.bin", 24 + 8 + 24 + 8 + 8 + 8 + 1, 0x7e), "checksum: it is"),
        (Format::Parts, HugeHeader) =>
            Refused("manifest.json", patched(format, "manifest.json", b"\"vertices\": 4", b"\"vertices\": 4000000000"), "there are 4000000000"),
        (Format::Ogb, Truncated) => Refused("raw/edge.csv", b"0,1\n2".to_vec(), "line 2: an edge has two vertex ids"),
        (Format::Ogb, Empty) => Refused("raw/num-node-list.csv", Vec::new(), "num-node-list.csv"),
        (Format::Ogb, WrongKey) => Refused("raw/node-label.csv", b"label\n1\n2\n3\n".to_vec(), "'label' is no label"),
        (Format::Ogb, WrongType) => Refused("raw/node-label.csv", b"2\n0.5\n1\n1\n".to_vec(), "line 2: '0.5' is no label"),
        (Format::Ogb, OutOfRange) => Refused("raw/edge.csv", b"0,1\n0,4\n".to_vec(), "an end that is none of 4 vertices"),
        (Format::Ogb, Negative) => Refused("raw/num-node-list.csv", b"-4\n".to_vec(), "'-4' is no number of vertices"),
        (Format::Ogb, NanFeature) => Refused("raw/node-feat.csv", b"1\nnan\n3\n4\n".to_vec(), "line 2: 'nan' in column 0 is no finite number"),
        (Format::Ogb, HugeHeader) => Refused("raw/num-node-list.csv", b"4000000000\n".to_vec(), "the header promises 4000000000"),
        (Format::MatrixMarket, Truncated) => Refused("x.mtx", cut(format, "x.mtx", 91), "promise 2 entries, and 1 are there"),
        (Format::MatrixMarket, Empty) => Refused("x.mtx", Vec::new(), "the file is empty"),
        (Format::MatrixMarket, WrongKey) =>
            Refused("x.mtx", MATRIX.replace("real", "complex").into(), "line 1: the field is 'complex'"),
        (Format::MatrixMarket, WrongType) => Refused("x.mtx", MATRIX.replace("3 2 1", "3 b 1").into(), "line 4: 'b' is no column"),
        (Format::MatrixMarket, OutOfRange) => Refused("x.mtx", MATRIX.replace("3 2 1", "4 2 1").into(), "line 4: 4 is no row"),
        (Format::MatrixMarket, Negative) => Refused("x.mtx", MATRIX.replace("3 3 2", "-3 -3 2").into(), "are no sizes"),
        (Format::MatrixMarket, NanFeature) => Impossible(features),
        (Format::MatrixMarket, HugeHeader) =>
            Refused("x.mtx", MATRIX.replace("3 3 2", "4000000000 4000000000 2").into(), "the header promises 4000000000"),
        (Format::EdgeList, Truncated) => Refused("x.txt", b"0 1\n1".to_vec(), "line 2: an edge has two vertex ids"),
        (Format::EdgeList, Empty) => Refused("x.txt", Vec::new(), "the file is empty"),
        (Format::EdgeList, WrongKey) => Impossible("nothing in it has a name"),
        (Format::EdgeList, WrongType) => Refused("x.txt", b"0 1\n0 1.5\n".to_vec(), "line 2: '1.5' is no vertex id"),
        (Format::EdgeList, OutOfRange) => Impossible("ids are any numbers, and numbered anew"),
        (Format::EdgeList, Negative) => Refused("x.txt", b"0 1\n-1 0\n".to_vec(), "line 2: '-1' is no vertex id"),
        (Format::EdgeList, NanFeature) => Impossible(features),
        (Format::EdgeList, HugeHeader) => Read("x.txt", b"# Nodes: 4000000000\n0 1\n7 1\n".to_vec(), 3),
        (Format::RawCsr, Truncated) => Refused("x.csr", cut(format, "x.csr", 70), "is it raw CSR?"),
        (Format::RawCsr, Empty) => Refused("x.csr", Vec::new(), "the file is empty"),
        (Format::RawCsr, WrongKey) => Impossible("nothing in it has a name"),
        (Format::RawCsr, WrongType) => Impossible("nothing in it tells its type; a file of other numbers has another length"),
        (Format::RawCsr, OutOfRange) => Refused("x.csr", raw_csr(3, 4, [1, 0, 3, 1]), "columns[2] is 3"),
        (Format::RawCsr, Negative) => Refused("x.csr", raw_csr(-3, 4, [1, 0, 2, 1]), "the header says -3 vertices"),
        (Format::RawCsr, NanFeature) => Impossible(features),
        (Format::RawCsr, HugeHeader) => Refused("x.csr", raw_csr(3, 1 << 31, [1, 0, 2, 1]), "2147483648 edges, which is not a file of"),
        (Format::Frdc, Truncated) => Refused("x.frdc", cut(format, "x.frdc", 70), "FRDC: the header promises 14 bytes, but 2 are there"),
        (Format::Frdc, Empty) => Refused("x.frdc", Vec::new(), "the file is empty"),
        (Format::Frdc, WrongKey) => Refused("x.frdc", patched(format, "x.frdc", b"FRDC", b"frdc"), "magic: it is not HGNNFRDC"),
        (Format::Frdc, WrongType) => Refused("x.frdc", set(format, "x.frdc", 8, 2), "version: it is 2, and this build reads 1"),
        (Format::Frdc, OutOfRange) => Refused("x.frdc", frdc([3, 4, 1], 0, 0x852), "tiles[0] is 2130, but no bit of a tile lies past"),
        (Format::Frdc, Negative) => Refused("x.frdc", frdc([3, 4, 1], u32::MAX, 0x252), "tile_columns[0] is 4294967295"),
        (Format::Frdc, NanFeature) => Impossible(features),
        (Format::Frdc, HugeHeader) => Refused("x.frdc", frdc([u32::MAX; 3], 0, 0x252), "FRDC: the header promises"),
        (other, _) => panic!("{other:?} is new: write its mistakes down here"),
    }
}

/// Opens what a folder holds: a dataset where the format is one, else a graph; how many vertices it has.
fn open(folder: &Path, format: Format, options: &OpenOptions) -> Result<usize, DataError> {
    let files = whole(format);
    let path = match files.len() {
        1 => folder.join(files[0].0),
        _ => folder.to_owned(),
    };
    match format.is_labelled() {
        true => Dataset::open_with(path, options).map(|dataset| dataset.graph.vertices()),
        false => Graph::open_with(path, options).map(|graph| graph.vertices()),
    }
}

/// Writes `files` into a new folder, and opens them on one thread, whose memory is counted; as the format that they
/// are, and as what their content says.
fn answers(format: Format, files: &Files) -> [Result<usize, String>; 2] {
    let folder = tempfile::Builder::new().prefix("tmp").tempdir();
    let folder = folder.expect("room for a folder");
    for (name, bytes) in files {
        let path = folder.path().join(name);
        std::fs::create_dir_all(path.parent().expect("a folder")).expect("room for a folder");
        std::fs::write(path, bytes).expect("room for a file");
    }
    let pool = rayon::ThreadPoolBuilder::new().num_threads(1).build();
    let pool = pool.expect("a thread");
    [Some(format), None].map(|named| {
        let mut options = OpenOptions::default();
        options.format = named;
        let (answer, peak) =
            pool.install(|| allocation::peak_of(|| open(folder.path(), format, &options)));
        assert!(peak < MOST_MEMORY, "{format:?}: {peak} bytes were held");
        answer.map_err(|error| error.to_string())
    })
}

#[test]
fn every_mistake_in_every_format_is_told() {
    let mut wrong = Vec::new();
    for &format in Format::ALL {
        if format == Format::Parquet {
            // Its reader is a feature that this crate is built without; its own tests have what can be wrong.
            continue;
        }
        let files = whole(format);
        for answer in answers(format, &files) {
            assert!(answer.is_ok(), "{format:?}, nothing wrong: {answer:?}");
        }
        for mistake in MISTAKES {
            let what = format!("{format:?}, {mistake:?}");
            let replaced = |file: &str, bytes: &[u8]| {
                let mut files = files.clone();
                let place = files.iter_mut().find(|(name, _)| *name == file);
                place.expect("a file of the format's").1 = bytes.to_vec();
                answers(format, &files)
            };
            match case(format, mistake) {
                Impossible(reason) => println!("{what}: cannot be: {reason}"),
                Read(file, bytes, vertices) => {
                    for answer in replaced(file, &bytes) {
                        assert_eq!(answer, Ok(vertices), "{what}");
                    }
                }
                Refused(file, bytes, words) => {
                    // A folder's files may disagree, and then it is the folder that is named.
                    let place = if files.len() > 1 { "tmp" } else { file };
                    for (answer, words) in replaced(file, &bytes).into_iter().zip([words, ""]) {
                        let is_told = answer.as_ref().is_err_and(|error| {
                            error.contains(words) && error.contains(place) && !error.contains('\n')
                        });
                        if !is_told {
                            wrong.push(format!("{what}: {answer:?}, where `{words}` is wanted"));
                        }
                    }
                }
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
