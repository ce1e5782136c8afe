//! Fuzz targets, and a fuzzer for them that runs on stable Rust.
//!
//! A target reads what a stranger may have written: a PTX text, a file with a graph. Whatever the bytes are, it
//! answers, soon and in one line, without a panic and without much memory ([`Target`]). [`fuzz`] mutates a corpus and
//! watches over that; `cargo xtask fuzz` and the tests of this crate call it, and `cargo fuzz` runs the same functions.
//!
//! To add a target, write a function that takes bytes and gives an [`Answer`], and a line in [`TARGETS`].

pub mod allocation;
mod checkpoint;
mod dataset;
mod fuzzer;
mod graphs;
mod mutation;
pub mod ptx;

pub use fuzzer::{Budget, Finding, Report, check, fuzz, replay};
pub use mutation::Grammar;

use std::path::{Path, PathBuf};

/// What a target made of its bytes.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Answer {
    /// It could use them. The words say what for: bytes with a new answer are mutated further.
    Accepted(String),
    /// It said what is wrong with them, in words that name a kind of mistake rather than a place.
    Refused(String),
}

/// Something that takes any bytes.
#[derive(Clone, Copy, Debug)]
pub struct Target {
    /// What it is called on the command line.
    pub name: &'static str,
    /// What it does, in a line.
    pub about: &'static str,
    /// How its inputs are mutated.
    pub grammar: Grammar,
    /// Folders with its first inputs, as seen from the workspace's root.
    pub corpus: &'static [&'static str],
    /// The most bytes that it may hold at once.
    pub memory: usize,
    /// Takes the bytes. It panics if a promise is broken, and is stopped after [`Target::SECONDS`].
    pub run: fn(&[u8]) -> Answer,
}

const MIB: usize = 1 << 20;

/// All targets.
#[rustfmt::skip] // a line, or two, each
pub const TARGETS: &[Target] = &[
    Target { name: "ptx", about: "parses a PTX text", run: ptx::parse,
        grammar: Grammar::Lines, corpus: &["emulator/tests/corpus", "tests/fuzz/corpus/ptx"], memory: 192 * MIB },
    Target { name: "launch", about: "parses a PTX text and launches its kernels", run: ptx::launch,
        grammar: Grammar::Lines, corpus: &["tests/fuzz/corpus/ptx", "emulator/tests/corpus"], memory: 192 * MIB },
    Target { name: "npz", about: "opens gnn-benchmark's archive of a data set", run: dataset::npz,
        grammar: Grammar::Bytes, corpus: &["tests/fuzz/corpus/npz"], memory: 64 * MIB },
    Target { name: "pyg", about: "opens an archive of PyG's arrays", run: dataset::pyg,
        grammar: Grammar::Bytes, corpus: &["tests/fuzz/corpus/pyg"], memory: 192 * MIB },
    Target { name: "torch", about: "opens a Data object in a file of torch's", run: dataset::torch,
        grammar: Grammar::Bytes, corpus: &["tests/fuzz/corpus/torch"], memory: 192 * MIB },
    Target { name: "tables", about: "opens tables of vertices and edges", run: graphs::tables,
        grammar: Grammar::Lines, corpus: &["tests/fuzz/corpus/tables"], memory: 192 * MIB },
    Target { name: "edge-list", about: "reads an edge list", run: graphs::edge_list,
        grammar: Grammar::Lines, corpus: &["tests/fuzz/corpus/edge-list"], memory: 192 * MIB },
    Target { name: "matrix-market", about: "reads a matrix in Matrix Market's format", run: graphs::matrix_market,
        grammar: Grammar::Lines, corpus: &["tests/fuzz/corpus/matrix-market"], memory: 192 * MIB },
    Target { name: "scipy", about: "reads scipy's archive of a sparse matrix", run: graphs::scipy,
        grammar: Grammar::Bytes, corpus: &["tests/fuzz/corpus/scipy"], memory: 192 * MIB },
    Target { name: "raw-csr", about: "reads raw compressed rows", run: graphs::raw_csr,
        grammar: Grammar::Bytes, corpus: &["tests/fuzz/corpus/raw-csr"], memory: 64 * MIB },
    Target { name: "frdc", about: "reads tiles of bits", run: graphs::frdc,
        grammar: Grammar::Bytes, corpus: &["tests/fuzz/corpus/frdc"], memory: 64 * MIB },
    Target { name: "planetoid", about: "opens Planetoid's pickles", run: graphs::planetoid,
        grammar: Grammar::Bytes, corpus: &["tests/fuzz/corpus/planetoid"], memory: 192 * MIB },
    Target { name: "ogb", about: "opens a raw folder of OGB's", run: graphs::ogb,
        grammar: Grammar::Lines, corpus: &["tests/fuzz/corpus/ogb"], memory: 192 * MIB },
    Target { name: "tu", about: "opens a collection of graphs of TU's", run: graphs::tu,
        grammar: Grammar::Lines, corpus: &["tests/fuzz/corpus/tu"], memory: 192 * MIB },
    Target { name: "parts", about: "opens a folder of parts", run: graphs::parts,
        grammar: Grammar::Bytes, corpus: &["tests/fuzz/corpus/parts"], memory: 192 * MIB },
    Target { name: "reddit", about: "opens DGL's Reddit", run: graphs::reddit,
        grammar: Grammar::Bytes, corpus: &["tests/fuzz/corpus/reddit"], memory: 192 * MIB },
    Target { name: "checkpoint", about: "opens a checkpoint of a training run", run: checkpoint::open,
        grammar: Grammar::Bytes, corpus: &["tests/fuzz/corpus/checkpoint"], memory: 64 * MIB },
];

impl Target {
    /// How long one input may take.
    pub const SECONDS: u64 = 10;

    /// The target of this name.
    pub fn named(name: &str) -> Option<&'static Self> {
        TARGETS.iter().find(|target| target.name == name)
    }

    /// The files of its corpus, sorted by name.
    ///
    /// # Panics
    /// If a folder of it cannot be read or holds nothing.
    pub fn corpus(&self) -> Vec<(PathBuf, Vec<u8>)> {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
        let mut inputs = Vec::new();
        for folder in self.corpus {
            let folder = root.join(folder);
            let entries = std::fs::read_dir(&folder)
                .unwrap_or_else(|error| panic!("{}: {error}", folder.display()));
            let before = inputs.len();
            for path in entries.flatten().map(|entry| entry.path()) {
                if path.is_file() {
                    let bytes = std::fs::read(&path)
                        .unwrap_or_else(|error| panic!("{}: {error}", path.display()));
                    inputs.push((path, bytes));
                }
            }
            assert!(inputs.len() > before, "{}: no files", folder.display());
        }
        inputs.sort();
        inputs
    }
}
