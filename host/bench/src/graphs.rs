//! Graphs to time on: files, and ones that the program makes.

use crate::failure::Failure;
use crate::json::JsonLines;
use crate::outputs::Outputs;
use crate::source::{OpenArgs, SourceName};
use crate::{room, source};
use halfgnn::Error;
use halfgnn::data::Recipe;
use halfgnn::distributed::SomeEdges;
use halfgnn::graph::Graph;
use halfgnn::graph::generate::{Grid, Rmat};
use halfgnn::graph::index::part;
use std::path::{Path, PathBuf};
use std::str::FromStr;

/// Seed of every generated graph.
const SEED: u64 = 1;

/// Which graph to time on.
#[derive(Clone, Debug)]
pub enum GraphName {
    /// Graph500's Kronecker graphs from this scale to that.
    Kronecker(u32, u32),
    /// One with the size and the skew of a graph that papers use.
    Like(&'static Like),
    /// One in a file, below `HALFGNN_DATA`, or by another recipe.
    File(PathBuf),
}

/// Every graph of these names, with what it is called, and none before the one ahead of it is done with.
///
/// # Errors
/// Of a graph that cannot be had, and what `with` fails with.
pub fn each(
    names: &[GraphName],
    mut with: impl FnMut(&str, Graph) -> Result<(), Failure>,
) -> Result<(), Failure> {
    for name in names {
        for opened in name.open() {
            let (label, graph) = opened?;
            with(&label, graph)?;
        }
    }
    Ok(())
}

/// The JSON lines of a command that reads graphs of these names, which none of their files may be.
///
/// # Errors
/// Where the file cannot be written, or is one of the graphs.
pub fn json_lines(names: &[GraphName], json: Option<&Path>) -> Result<JsonLines, Failure> {
    let mut outputs = Outputs::new();
    for name in names {
        if let GraphName::File(path) = name {
            outputs.reads_source(&SourceName::File(path.clone()), &OpenArgs::default());
        }
    }
    outputs.stream("--json", json)?;
    JsonLines::open(json)
}

/// A graph with the size and the skew of one that papers use, by R-MAT or as a grid.
#[derive(Debug)]
pub struct Like {
    name: &'static str,
    shape: Shape,
}

#[derive(Debug)]
enum Shape {
    Rmat {
        vertices: u64,
        undirected_edges: u64,
        quadrants: [f64; 4],
    },
    Grid {
        side: u64,
    },
}

/// Quadrants of R-MAT for graphs with a milder skew than Graph500's.
const MILD: [f64; 4] = [0.45, 0.22, 0.22, 0.11];

static LIKE: [Like; 6] = [
    Like {
        name: "amazon-like",
        shape: Shape::Rmat {
            vertices: 400_727,
            undirected_edges: 3_200_440,
            quadrants: MILD,
        },
    },
    Like {
        name: "road-like",
        shape: Shape::Grid { side: 1404 },
    },
    Like {
        name: "kron21",
        shape: Shape::Rmat {
            vertices: 1 << 21,
            undirected_edges: 1 << 25,
            quadrants: [0.57, 0.19, 0.19, 0.05],
        },
    },
    Like {
        name: "products-like",
        shape: Shape::Rmat {
            vertices: 2_449_029,
            undirected_edges: 61_859_140,
            quadrants: MILD,
        },
    },
    Like {
        name: "reddit-like",
        shape: Shape::Rmat {
            vertices: 232_965,
            undirected_edges: 57_424_428,
            quadrants: MILD,
        },
    },
    // ogbn-papers100M: 1.6 G edges, to sample batches from; an SpMM of it needs more memory than most GPUs have.
    Like {
        name: "papers-like",
        shape: Shape::Rmat {
            vertices: 111_059_956,
            undirected_edges: 807_842_936,
            quadrants: MILD,
        },
    },
];

impl FromStr for GraphName {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        if let Some(scales) = text.strip_prefix("kron:") {
            let scale = |text: &str| match text.parse() {
                Ok(scale @ 1..=30) => Ok(scale),
                _ => Err(format!("`{text}` is no scale from 1 to 30")),
            };
            let (first, last) = scales.split_once("..").unwrap_or((scales, scales));
            let (first, last) = (scale(first)?, scale(last)?);
            if first > last {
                return Err(format!(
                    "`{scales}` is empty: the first scale is above the last"
                ));
            }
            return Ok(GraphName::Kronecker(first, last));
        }
        Ok(match LIKE.iter().find(|like| like.name == text) {
            Some(like) => GraphName::Like(like),
            None => GraphName::File(text.into()),
        })
    }
}

/// A graph, or what one of several ranks has of it before it is partitioned.
pub enum Opened {
    /// All of it.
    Whole(Graph),
    /// A share of its edges.
    Share(SomeEdges),
}

impl GraphName {
    /// The graphs that it stands for, each with its label, made or read one at a time.
    pub fn open(&self) -> impl Iterator<Item = Result<(String, Graph), Failure>> + '_ {
        (0..self.count()).map(move |index| self.open_one(index))
    }

    /// The first of them.
    pub fn open_first(&self) -> Result<(String, Graph), Failure> {
        self.open_one(0)
    }

    /// The same for one rank of several, which are to train on them together: of what R-MAT makes a share of the edges.
    pub fn open_for_rank(
        &self,
        (rank, ranks): (usize, usize),
    ) -> impl Iterator<Item = Result<(String, Opened), Failure>> + '_ {
        (0..self.count()).map(move |index| match self.rmat(index) {
            Some((label, rmat)) if ranks > 1 => {
                room::for_share_of_rmat(&label, &rmat, ranks)?;
                let numbers = part(rmat.edges, rank as u64, ranks as u64);
                let share = SomeEdges {
                    vertices: rmat.vertices as usize,
                    edges: rmat.drawn(SEED, numbers).map_err(Error::from)?,
                    undirected: rmat.undirected,
                };
                Ok((label, Opened::Share(share)))
            }
            _ => {
                let (label, graph) = self.open_one(index)?;
                Ok((label, Opened::Whole(graph)))
            }
        })
    }

    fn count(&self) -> u32 {
        match self {
            GraphName::Kronecker(first, last) => last - first + 1,
            GraphName::Like(_) | GraphName::File(_) => 1,
        }
    }

    /// What R-MAT makes, with its label.
    fn rmat(&self, index: u32) -> Option<(String, Rmat)> {
        match self {
            GraphName::Kronecker(first, _) => {
                let scale = first + index;
                Some((format!("kron{scale}"), Rmat::graph500(scale)))
            }
            // Vertices keep the order in which R-MAT makes them: hubs have low ids.
            GraphName::Like(Like {
                name,
                shape:
                    Shape::Rmat {
                        vertices,
                        undirected_edges,
                        quadrants,
                    },
            }) => Some((
                (*name).into(),
                Rmat {
                    vertices: *vertices,
                    edges: *undirected_edges,
                    quadrants: *quadrants,
                    undirected: true,
                    renamed: false,
                },
            )),
            GraphName::Like(_) | GraphName::File(_) => None,
        }
    }

    /// The graph, the same on every machine.
    fn open_one(&self, index: u32) -> Result<(String, Graph), Failure> {
        if let Some((label, rmat)) = self.rmat(index) {
            match self {
                GraphName::Kronecker(..) => {
                    let scale = rmat.vertices.ilog2();
                    room::for_recipe(&Recipe::Kronecker { scale })?;
                }
                _ => room::for_rmat(&label, &rmat)?,
            }
            return Ok((label, rmat.generate(SEED).map_err(Error::from)?));
        }
        match self {
            GraphName::Like(Like {
                name,
                shape: Shape::Grid { side },
            }) => {
                let grid = Grid {
                    width: *side,
                    height: *side,
                };
                Ok(((*name).into(), grid.generate().map_err(Error::from)?))
            }
            GraphName::File(path) => source::graph(path),
            _ => unreachable!("R-MAT makes the others"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_files_are_told_apart() {
        let parse = |text: &str| text.parse::<GraphName>();
        assert!(matches!(parse("kron:18"), Ok(GraphName::Kronecker(18, 18))));
        assert!(matches!(
            parse("kron:18..23"),
            Ok(GraphName::Kronecker(18, 23))
        ));
        assert!(matches!(parse("road-like"), Ok(GraphName::Like(_))));
        assert!(matches!(parse("road-like.csr"), Ok(GraphName::File(_))));
        for wrong in [
            "kron:0",
            "kron:31",
            "kron:x",
            "kron:9..8",
            "kron:8..",
            "kron:",
        ] {
            assert!(parse(wrong).is_err(), "{wrong}");
        }
    }
}
