//! Where the field's datasets are published, and where they are looked for.

use std::path::{Path, PathBuf};

use super::{DataError, DataProblem, Format};

/// The environment variable that names the folder of datasets.
pub const DATA_VARIABLE: &str = "HALFGNN_DATA";

/// A dataset or graph that is published.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct Published {
    /// What it is called, also as a folder or file of `HALFGNN_DATA`.
    pub name: &'static str,
    /// Vertices, edges, features and classes, as published.
    pub size: &'static str,
    /// Where it can be fetched.
    pub addresses: &'static [&'static str],
    /// Where the files belong, below `HALFGNN_DATA`.
    pub files: &'static [&'static str],
    /// What to do with what was fetched, and what to mind.
    pub note: &'static str,
    /// How it is read.
    pub format: Format,
}

const PLANETOID_NOTE: &str =
    "seven files, each by its own address; nothing in the pickles is executed";
const SNAP_NOTE: &str =
    "a graph without features and labels, for bench and convert; need not be unpacked";

macro_rules! planetoid {
    ($name:literal, $size:literal) => {
        Published {
            name: $name,
            size: $size,
            addresses: &[
                concat!(
                    "https://github.com/kimiyoung/planetoid/raw/master/data/ind.",
                    $name,
                    ".allx"
                ),
                concat!(
                    "https://github.com/kimiyoung/planetoid/raw/master/data/ind.",
                    $name,
                    ".ally"
                ),
                concat!(
                    "https://github.com/kimiyoung/planetoid/raw/master/data/ind.",
                    $name,
                    ".tx"
                ),
                concat!(
                    "https://github.com/kimiyoung/planetoid/raw/master/data/ind.",
                    $name,
                    ".ty"
                ),
                concat!(
                    "https://github.com/kimiyoung/planetoid/raw/master/data/ind.",
                    $name,
                    ".y"
                ),
                concat!(
                    "https://github.com/kimiyoung/planetoid/raw/master/data/ind.",
                    $name,
                    ".graph"
                ),
                concat!(
                    "https://github.com/kimiyoung/planetoid/raw/master/data/ind.",
                    $name,
                    ".test.index"
                ),
            ],
            files: &[concat!(
                $name,
                "/ind.",
                $name,
                ".{allx,ally,tx,ty,y,graph,test.index}"
            )],
            note: PLANETOID_NOTE,
            format: Format::Planetoid,
        }
    };
}

macro_rules! snap {
    ($name:literal, $path:literal, $size:literal) => {
        Published {
            name: $name,
            size: $size,
            addresses: &[concat!("https://snap.stanford.edu/data/", $path)],
            files: &[concat!($name, ".txt.gz")],
            note: SNAP_NOTE,
            format: Format::EdgeList,
        }
    };
}

impl Published {
    /// Every dataset that is known, small ones first.
    pub const ALL: &[Self] = &[
        planetoid!(
            "cora",
            "2,708 vertices, 10,556 edges, 1,433 features, 7 classes"
        ),
        planetoid!(
            "citeseer",
            "3,327 vertices, 9,104 edges, 3,703 features, 6 classes"
        ),
        planetoid!(
            "pubmed",
            "19,717 vertices, 88,648 edges, 500 features, 3 classes"
        ),
        Self {
            name: "amazon-computers",
            size: "13,752 vertices, 491,722 edges, 767 features, 10 classes",
            addresses: &[
                "https://github.com/shchur/gnn-benchmark/raw/master/data/npz/amazon_electronics_computers.npz",
            ],
            files: &["amazon-computers.npz"],
            note: "without splits; 20 and 30 of each class by default",
            format: Format::GnnBenchmark,
        },
        Self {
            name: "ogbn-arxiv",
            size: "169,343 vertices, 1,166,243 edges, 128 features, 40 classes",
            addresses: &["http://snap.stanford.edu/ogb/data/nodeproppred/arxiv.zip"],
            files: &["ogbn-arxiv/{raw,split,mapping}/"],
            note: "unzip, and rename the folder arxiv; directed: models of the leaderboard take it with --undirected",
            format: Format::Ogb,
        },
        Self {
            name: "reddit",
            size: "232,965 vertices, 114,615,892 edges, 602 features, 41 classes",
            addresses: &["https://data.dgl.ai/dataset/reddit.zip"],
            files: &["reddit/reddit_data.npz", "reddit/reddit_graph.npz"],
            note: "unzip into the folder",
            format: Format::DglReddit,
        },
        Self {
            name: "ogbn-products",
            size: "2,449,029 vertices, 123,718,280 edges, 100 features, 47 classes",
            addresses: &["http://snap.stanford.edu/ogb/data/nodeproppred/products.zip"],
            files: &["ogbn-products/{raw,split,mapping}/"],
            note: "unzip, and rename the folder products; its file has each edge in one direction: --undirected, as OGB's own loader does",
            format: Format::Ogb,
        },
        snap!(
            "roadNet-CA",
            "roadNet-CA.txt.gz",
            "1,965,206 vertices, 5,533,214 edges"
        ),
        snap!(
            "amazon0601",
            "amazon0601.txt.gz",
            "403,394 vertices, 3,387,388 edges"
        ),
        snap!(
            "web-Google",
            "web-Google.txt.gz",
            "875,713 vertices, 5,105,039 edges"
        ),
        snap!(
            "com-orkut",
            "bigdata/communities/com-orkut.ungraph.txt.gz",
            "3,072,441 vertices, 117,185,083 edges, each once: --undirected"
        ),
    ];

    /// The one of this name, in any case of letters.
    pub fn named(name: &str) -> Option<&'static Self> {
        Self::ALL
            .iter()
            .find(|known| known.name.eq_ignore_ascii_case(name))
    }
}

/// The file or folder that a name stands for: the path itself, where there is something, or else, of a name without
/// folders, what lies below `root` by that name, with one of the extensions of the formats or without.
///
/// # Errors
/// [`DataProblem::NotFound`], which says where was looked.
pub fn locate(name: impl AsRef<Path>, root: Option<&Path>) -> Result<PathBuf, DataError> {
    const EXTENSIONS: [&str; 10] = [
        "", ".npz", ".pt", ".mtx", ".mtx.gz", ".txt", ".txt.gz", ".csr", "/raw", ".el",
    ];
    let path = name.as_ref();
    if path.exists() {
        return Ok(path.to_path_buf());
    }
    let refuse = |looked| Err(DataError::in_file(path, DataProblem::NotFound { looked }));
    // Two tables: what opens them takes the names as they are.
    if let Some((nodes, edges)) = path.to_str().and_then(|both| both.split_once(',')) {
        let missing = [nodes, edges]
            .into_iter()
            .find(|name| !Path::new(name.trim()).is_file());
        return match missing {
            None => Ok(path.to_path_buf()),
            Some(name) => refuse(format!(
                "of a table of vertices and one of edges there is no {}",
                name.trim()
            )),
        };
    }
    let is_bare = path.components().count() == 1 && path.file_name().is_some();
    let Some(bare) = path.to_str().filter(|_| is_bare) else {
        return refuse("a name without folders would be looked for below HALFGNN_DATA".to_string());
    };
    let Some(root) = root else {
        return refuse(format!(
            "{DATA_VARIABLE} is not set: it names the folder of datasets; `halfgnn dataset download --print` says what belongs there"
        ));
    };
    // OGB's archives and PyTorch Geometric write ogbn_arxiv for ogbn-arxiv.
    for name in [
        bare.to_string(),
        bare.to_lowercase(),
        bare.replace('-', "_"),
    ] {
        for extension in EXTENSIONS {
            let candidate = root.join(format!("{name}{extension}"));
            if candidate.exists() {
                return Ok(candidate);
            }
        }
    }
    let published = match Published::named(bare) {
        Some(known) => format!(
            "; `halfgnn dataset download {} --print` says where to get it",
            known.name
        ),
        None => String::new(),
    };
    refuse(format!(
        "nothing by this name in {DATA_VARIABLE}, {}{published}",
        root.display()
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::Folder;

    #[test]
    fn names_are_looked_for_below_the_root() {
        let folder = Folder::new();
        let root = Some(folder.path());
        folder.write("cora.npz", b"");
        folder.write("web-Google.txt.gz", b"");
        std::fs::create_dir(folder.path().join("ogbn_arxiv")).unwrap();
        let found = |name: &str| {
            locate(name, root).map(|path| path.strip_prefix(folder.path()).unwrap().to_owned())
        };
        for (name, file) in [
            ("cora", "cora.npz"),
            ("Cora", "cora.npz"),
            ("cora.npz", "cora.npz"),
            ("web-Google", "web-Google.txt.gz"),
            ("ogbn-arxiv", "ogbn_arxiv"),
        ] {
            let found = found(name).unwrap();
            // Where the file system takes both cases for one, the name is as it was asked for.
            if matches!(std::env::consts::OS, "windows" | "macos") {
                assert!(folder.path().join(&found).exists(), "{name}");
                assert!(found.as_os_str().eq_ignore_ascii_case(file), "{name}");
            } else {
                assert_eq!(found, Path::new(file));
            }
        }
        let path = folder.path().join("cora.npz");
        assert_eq!(locate(&path, None).unwrap(), path);
        let message = |name: &str, root| locate(name, root).unwrap_err().to_string();
        assert!(message("reddit", root).contains("`halfgnn dataset download reddit --print`"));
        assert!(
            message("none", root)
                .starts_with("none: there is no such file or folder, and nothing by this name")
        );
        assert!(message("none", None).contains("HALFGNN_DATA is not set"));
        assert!(message("a/none", root).contains("a name without folders"));
        assert!(message("..none/", root).contains("nothing by this name"));
        assert!(message("", root).contains("a name without folders"));
    }

    #[test]
    fn the_table_is_complete() {
        for known in Published::ALL {
            assert!(
                known
                    .addresses
                    .iter()
                    .all(|address| address.starts_with("http")),
                "{}",
                known.name
            );
            assert!(
                known.files.iter().all(|file| file.starts_with(known.name)),
                "{}",
                known.name
            );
            assert_eq!(Published::named(&known.name.to_uppercase()), Some(known));
        }
    }
}
