//! Graphs and datasets that are made, by name.

mod demand;
mod mag;

use std::fmt;
use std::str::FromStr;

pub use demand::Demand;

use super::synthetic::ClassFeatures;
use super::{DataError, DataProblem, Dataset, Origin, Preparation, SplitRule, Synthetic, Targets};
use halfgnn_graph::generate::{BlockModel, Grid, Rmat, StarOfHubs};
use halfgnn_graph::{Graph, GraphError};

/// A graph or dataset that is made from a seed, the same on every machine, by the name that a command line has for it.
///
/// | name | graph | classes |
/// |---|---|---|
/// | `synthetic` | [`Synthetic::default`], of the demonstration | the blocks |
/// | `reddit-like:SCALE` | Reddit's shape: at scale 1 232,965 vertices, 115 million edges, hubs of 85,059 | 41 blocks |
/// | `blocks:VERTICES` | a [`BlockModel`] of mean degree 10, in 8 classes, without hubs | the blocks |
/// | `communities:VERTICESxCOMMUNITIES` | a [`BlockModel`] of some 50 edges a vertex, nine of ten inside its community, names in random order | 8, each of an eighth of the communities |
/// | `kron:SCALE` | Graph500's Kronecker graph of 2^SCALE vertices | 8, by the first three levels of the recursion |
/// | `rmat:VERTICESxEDGES` | the same of any number of vertices, with the given number of edges sampled, each of which is there in both directions | 8, by the recursion's ids |
/// | `grid:WIDTHxHEIGHT` | a [`Grid`] | 8 tiles, two high |
/// | `star:HUBSxLEAVES` | a [`StarOfHubs`] | 8; a hub and its leaves are of one |
/// | `mag-like:SCALE` | ogbn-mag's shape, of [several types](Recipe::dataset_of_types): at scale 1 1.9 million vertices of 4 types, 21 million edges of 4 types | 349 venues of papers, fewer below scale 1, by its root |
///
/// Features are made as [`Synthetic`]'s: those of one vertex say little about its class, those of its neighbourhood
/// much, as far as neighbours are of one class.
///
/// ```
/// use halfgnn_data::Recipe;
///
/// let recipe: Recipe = "reddit-like:0.01".parse().unwrap();
/// let dataset = recipe.dataset(0)?;
/// assert_eq!((dataset.graph.vertices(), dataset.feature_len(), dataset.outputs), (2330, 602, 41));
/// # Ok::<(), halfgnn_data::DataError>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq)]
#[non_exhaustive]
pub enum Recipe {
    /// `synthetic`.
    Synthetic,
    /// `reddit-like:SCALE`. Vertices and hubs grow by the scale, the mean degree by its root.
    RedditLike {
        /// 1 for Reddit's size.
        scale: f64,
    },
    /// `blocks:VERTICES`.
    Blocks {
        /// The number of vertices.
        vertices: u64,
    },
    /// `communities:VERTICESxCOMMUNITIES`.
    Communities {
        /// The number of vertices.
        vertices: u64,
        /// The number of communities, [`u32::MAX`] at most.
        communities: u64,
    },
    /// `kron:SCALE`.
    Kronecker {
        /// The binary logarithm of the number of vertices.
        scale: u32,
    },
    /// `rmat:VERTICESxEDGES`.
    Rmat {
        /// The number of vertices.
        vertices: u64,
        /// The number of edges sampled, each of which is added in both directions.
        edges: u64,
    },
    /// `grid:WIDTHxHEIGHT`.
    Grid {
        /// Crossings in a line.
        width: u64,
        /// Lines.
        height: u64,
    },
    /// `star:HUBSxLEAVES`.
    Star {
        /// The number of hubs.
        hubs: u64,
        /// The leaves of each hub.
        leaves: u64,
    },
    /// `mag-like:SCALE`. Vertices and edges of each type grow by the scale, classes by its root.
    MagLike {
        /// 1 for the size of ogbn-mag.
        scale: f64,
    },
}

/// The classes of recipes that have no number of their own: three bits.
const CLASSES: u32 = 8;

/// How recipes that say nothing else are split.
const PER_CLASS: SplitRule = SplitRule::PerClass {
    train: 100,
    val: 200,
};

/// Features of a vertex of Reddit.
const REDDIT_FEATURES: usize = 602;

impl Recipe {
    /// How the names are written, for messages.
    pub const NAMES: &str = "synthetic, reddit-like:SCALE, blocks:VERTICES, communities:VERTICESxCOMMUNITIES, kron:SCALE, rmat:VERTICESxEDGES, grid:WIDTHxHEIGHT, star:HUBSxLEAVES, mag-like:SCALE";

    /// The graph of `seed`, without features and labels.
    ///
    /// # Errors
    /// [`DataProblem::Graph`] where it cannot be made, [`DataProblem::SeveralTypes`].
    pub fn graph(&self, seed: u64) -> Result<Graph, DataError> {
        let graph = match self {
            Self::Synthetic => BlockModel::default().generate(seed).map(|(graph, _)| graph),
            Self::RedditLike { scale } => {
                reddit_like(*scale).generate(seed).map(|(graph, _)| graph)
            }
            Self::Blocks { vertices } => blocks(*vertices).generate(seed).map(|(graph, _)| graph),
            Self::Communities {
                vertices,
                communities: count,
            } => communities(*vertices, *count)
                .generate(seed)
                .map(|(graph, _)| graph),
            Self::Kronecker { scale } => Rmat::graph500(*scale).generate(seed),
            Self::Rmat { vertices, edges } => rmat(*vertices, *edges).generate(seed),
            Self::Grid { width, height } => Grid {
                width: *width,
                height: *height,
            }
            .generate(),
            Self::Star { hubs, leaves } => StarOfHubs {
                hubs: *hubs,
                leaves: *leaves,
            }
            .generate(),
            Self::MagLike { .. } => return Err(self.has_several_types()),
        };
        graph.map_err(|error| self.refuse(error))
    }

    /// Whether what it makes has several types of vertices and edges.
    pub fn has_types(&self) -> bool {
        matches!(self, Self::MagLike { .. })
    }

    /// The dataset of `seed`, which may have [several types](Dataset::types).
    ///
    /// # Errors
    /// Those of [`Recipe::dataset`], but for [`DataProblem::SeveralTypes`].
    pub fn dataset_of_types(&self, seed: u64) -> Result<Dataset, DataError> {
        match *self {
            Self::MagLike { scale } => self.mag_like(scale, seed),
            _ => self.dataset(seed),
        }
    }

    fn has_several_types(&self) -> DataError {
        DataError::new(self.to_string(), DataProblem::SeveralTypes)
    }

    /// The dataset of `seed`: the same graph as [`graph`](Self::graph), with features, labels and splits.
    ///
    /// # Errors
    /// [`DataProblem::Graph`] where the graph cannot be made, [`DataProblem::TooLarge`] where there is not enough
    /// memory for the features, [`DataProblem::SeveralTypes`].
    pub fn dataset(&self, seed: u64) -> Result<Dataset, DataError> {
        let small = ClassFeatures::default();
        match *self {
            Self::Synthetic => {
                let mut dataset = Synthetic::default().generate(seed)?;
                dataset.preparations.insert(0, self.source(seed));
                Ok(dataset)
            }
            Self::RedditLike { scale } => {
                let (graph, classes) = reddit_like(scale)
                    .generate(seed)
                    .map_err(|error| self.refuse(error))?;
                let features = ClassFeatures {
                    features: REDDIT_FEATURES,
                    signal: 0.1,
                    scale: 8.0,
                    label_noise: 0.05,
                    ..small
                };
                // Reddit's shares: the first twenty days, and of the others a third and two thirds.
                let split = SplitRule::Fractions {
                    train: 0.66,
                    val: 0.1,
                };
                self.labelled(graph, classes, &features, split, seed)
            }
            Self::Blocks { vertices } => {
                let (graph, classes) = blocks(vertices)
                    .generate(seed)
                    .map_err(|error| self.refuse(error))?;
                self.labelled(graph, classes, &small, PER_CLASS, seed)
            }
            Self::Communities {
                vertices,
                communities: count,
            } => {
                let (graph, mut classes) = communities(vertices, count)
                    .generate(seed)
                    .map_err(|error| self.refuse(error))?;
                classes.iter_mut().for_each(|class| *class %= CLASSES);
                self.labelled(graph, classes, &small, PER_CLASS, seed)
            }
            Self::Kronecker { scale } => self.by_names(&Rmat::graph500(scale), seed),
            Self::Rmat { vertices, edges } => self.by_names(&rmat(vertices, edges), seed),
            Self::Grid { width, height } => {
                let graph = self.graph(seed)?;
                let tile = |vertex: u64| {
                    let (x, y) = (vertex % width, vertex / width);
                    (x * 4 / width * 2 + y * 2 / height) as u32
                };
                let classes = (0..graph.vertices() as u64).map(tile).collect();
                self.labelled(graph, classes, &small, PER_CLASS, seed)
            }
            Self::Star { hubs, leaves } => {
                let graph = self.graph(seed)?;
                let class = |vertex: u64| match vertex.checked_sub(1) {
                    None => 0,
                    Some(at) if at < hubs => at % u64::from(CLASSES),
                    Some(at) => (at - hubs) / leaves.max(1) % u64::from(CLASSES),
                };
                let classes = (0..graph.vertices() as u64)
                    .map(|vertex| class(vertex) as u32)
                    .collect();
                self.labelled(graph, classes, &small, PER_CLASS, seed)
            }
            Self::MagLike { .. } => Err(self.has_several_types()),
        }
    }

    /// What R-MAT makes, in classes of ids of the recursion side by side: of a power of two its first three levels.
    fn by_names(&self, rmat: &Rmat, seed: u64) -> Result<Dataset, DataError> {
        let made = rmat.generate(seed);
        let graph = made.map_err(|error| self.refuse(error))?;
        let mut classes = vec![0; graph.vertices()];
        for (id, &name) in rmat.names(seed).unwrap_or_default().iter().enumerate() {
            classes[name as usize] = (id as u64 * u64::from(CLASSES) / rmat.vertices) as u32;
        }
        let (features, split) = (ClassFeatures::default(), PER_CLASS);
        self.labelled(graph, classes, &features, split, seed)
    }

    fn labelled(
        &self,
        graph: Graph,
        classes: Vec<u32>,
        features: &ClassFeatures,
        split: SplitRule,
        seed: u64,
    ) -> Result<Dataset, DataError> {
        let name = self.to_string();
        let made = features
            .generate(&classes, seed)
            .map_err(|problem| DataError::new(&name, problem))?;
        let labels = Targets::from(features.labels(classes, seed));
        let splits = split
            .split(&labels, seed)
            .map_err(|problem| DataError::new(&name, problem))?;
        let split = Preparation::split(split, seed, Origin::Recipe);
        let mut dataset = Dataset::new(name, graph, made, labels, splits)?;
        dataset.preparations = vec![self.source(seed), split];
        Ok(dataset)
    }

    /// Where a dataset of `seed` came from.
    fn source(&self, seed: u64) -> Preparation {
        let what = format!("{self}, made from seed {seed}");
        Preparation::new("source", what, Origin::Recipe)
    }

    fn refuse(&self, error: GraphError) -> DataError {
        DataError::new(self.to_string(), DataProblem::graph("the graph", error))
    }
}

/// Reddit's counts of Hamilton et al., 2017, and the largest degree that HalfGNN's paper gives for it.
fn reddit_like(scale: f64) -> BlockModel {
    const VERTICES: f64 = 232_965.0;
    const LARGEST_DEGREE: f64 = 85_059.0;
    /// Makes 115 million edges at scale 1, once the duplicates are gone.
    const MEAN_DEGREE: f64 = 531.0;
    BlockModel {
        vertices: (VERTICES * scale).round() as u64,
        classes: 41,
        mean_degree: MEAN_DEGREE * scale.sqrt(),
        within: 0.7,
        hubs: 8,
        hub_degree: (LARGEST_DEGREE * scale).round() as u64,
    }
}

fn blocks(vertices: u64) -> BlockModel {
    BlockModel {
        vertices,
        classes: CLASSES,
        hubs: 0,
        hub_degree: 0,
        ..BlockModel::default()
    }
}

/// Graph500's skew.
fn rmat(vertices: u64, edges: u64) -> Rmat {
    Rmat {
        vertices,
        edges,
        ..Rmat::graph500(0)
    }
}

/// Of 57.5 edges a vertex, 50 remain once the duplicates are removed, nine of ten inside their community. Duplicates
/// are mostly inside communities.
fn communities(vertices: u64, communities: u64) -> BlockModel {
    BlockModel {
        vertices,
        classes: u32::try_from(communities).unwrap_or(u32::MAX),
        mean_degree: 57.5,
        within: 0.915,
        hubs: 0,
        hub_degree: 0,
    }
}

impl fmt::Display for Recipe {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Synthetic => f.write_str("synthetic"),
            Self::RedditLike { scale } => write!(f, "reddit-like:{scale}"),
            Self::Blocks { vertices } => write!(f, "blocks:{vertices}"),
            Self::Communities {
                vertices,
                communities,
            } => write!(f, "communities:{vertices}x{communities}"),
            Self::Kronecker { scale } => write!(f, "kron:{scale}"),
            Self::Rmat { vertices, edges } => write!(f, "rmat:{vertices}x{edges}"),
            Self::Grid { width, height } => write!(f, "grid:{width}x{height}"),
            Self::Star { hubs, leaves } => write!(f, "star:{hubs}x{leaves}"),
            Self::MagLike { scale } => write!(f, "mag-like:{scale}"),
        }
    }
}

/// Why a text is no [`Recipe`].
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum RecipeError {
    /// It names no recipe; it may be a file.
    #[error("'{0}' names nothing that can be made; there are {names}", names = Recipe::NAMES)]
    Unknown(String),
    /// The numbers after the name cannot be.
    #[error("'{text}': {wanted}")]
    Numbers {
        /// The text.
        text: String,
        /// What is expected.
        wanted: &'static str,
    },
}

impl FromStr for Recipe {
    type Err = RecipeError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        // A file may well be called grid; what is made has a colon, but for the one without numbers.
        let unknown = || RecipeError::Unknown(text.into());
        if text == "synthetic" {
            return Ok(Self::Synthetic);
        }
        let (name, numbers) = text.split_once(':').ok_or_else(unknown)?;
        let refuse = |wanted| RecipeError::Numbers {
            text: text.into(),
            wanted,
        };
        let pair = |wanted| {
            let sides = numbers.split_once('x');
            let sides = sides.and_then(|(a, b)| Some((a.parse().ok()?, b.parse().ok()?)));
            sides
                .filter(|&(a, b)| a > 0 && b > 0)
                .ok_or_else(|| refuse(wanted))
        };
        let scale = |wanted| {
            let scale = numbers.parse().ok();
            let scale = scale.filter(|scale| (0.001..=20.0).contains(scale));
            scale.ok_or_else(|| refuse(wanted))
        };
        match name {
            "reddit-like" => scale("the scale is a number from 0.001 to 20, 1 for Reddit's size")
                .map(|scale| Self::RedditLike { scale }),
            "mag-like" => scale("the scale is a number from 0.001 to 20, 1 for ogbn-mag's size")
                .map(|scale| Self::MagLike { scale }),
            "blocks" => {
                let vertices = numbers
                    .parse()
                    .ok()
                    .filter(|&vertices| vertices >= u64::from(CLASSES));
                vertices
                    .map(|vertices| Self::Blocks { vertices })
                    .ok_or_else(|| refuse("the number of vertices is wanted, 8 at least"))
            }
            "communities" => {
                let wanted =
                    "vertices and as many communities at most are wanted, as communities:24000x40";
                let (vertices, communities): (u64, u64) = pair(wanted)?;
                if communities > vertices || communities > u32::MAX.into() {
                    return Err(refuse(wanted));
                }
                Ok(Self::Communities {
                    vertices,
                    communities,
                })
            }
            "kron" => {
                let scale = numbers
                    .parse()
                    .ok()
                    .filter(|scale| (1..=30).contains(scale));
                scale.map(|scale| Self::Kronecker { scale }).ok_or_else(|| {
                    refuse("the scale is wanted, from 1 to 30: the graph has 2^SCALE vertices")
                })
            }
            "rmat" => pair("vertices and edges are wanted, as rmat:1500000x40000000")
                .map(|(vertices, edges)| Self::Rmat { vertices, edges }),
            "grid" => pair("width and height are wanted, as grid:100x50")
                .map(|(width, height)| Self::Grid { width, height }),
            "star" => pair("hubs and their leaves are wanted, as star:4x5000")
                .map(|(hubs, leaves)| Self::Star { hubs, leaves }),
            _ => Err(unknown()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use halfgnn_graph::generate::fingerprint;

    fn recipe(text: &str) -> Recipe {
        text.parse().expect("a recipe")
    }

    #[test]
    fn names_are_read_back_and_others_refused() {
        for text in [
            "synthetic",
            "reddit-like:0.25",
            "blocks:800",
            "communities:6000x10",
            "kron:10",
            "rmat:1000x8000",
            "grid:7x3",
            "star:4x50",
            "mag-like:0.5",
        ] {
            assert_eq!(recipe(text).to_string(), text);
        }
        for text in ["cora.npz", "", "synthetic:1", "kronecker:3", "grid"] {
            assert!(
                matches!(text.parse::<Recipe>(), Err(RecipeError::Unknown(_))),
                "{text}"
            );
        }
        for text in [
            "kron:",
            "kron:31",
            "kron:x",
            "rmat:100",
            "rmat:0x100",
            "grid:3",
            "grid:0x4",
            "star:1x-1",
            "reddit-like:0",
            "reddit-like:nan",
            "blocks:7",
            "communities:7",
            "communities:7x8",
        ] {
            assert!(
                matches!(text.parse::<Recipe>(), Err(RecipeError::Numbers { .. })),
                "{text}"
            );
        }
    }

    /// The share of edges whose ends are of one class.
    fn homophily(dataset: &Dataset) -> f64 {
        let (rows, cols) = (dataset.graph.rows(), dataset.graph.cols());
        let labels = dataset.class_labels().unwrap();
        let label = |vertex: &u32| labels[*vertex as usize];
        let same = |(row, col): &(&u32, &u32)| label(row) == label(col);
        rows.iter().zip(cols).filter(same).count() as f64 / rows.len() as f64
    }

    #[test]
    fn neighbours_are_of_one_class_more_often_than_by_chance() {
        for (text, least) in [
            ("blocks:4000", 0.7),
            ("kron:12", 0.2),
            ("rmat:5000x60000", 0.2),
            ("grid:80x80", 0.9),
            ("star:40x100", 0.9),
            ("reddit-like:0.004", 0.35),
        ] {
            let recipe = recipe(text);
            let dataset = recipe.dataset(3).unwrap();
            assert_eq!(dataset.name, text);
            assert_eq!(dataset.graph, recipe.graph(3).unwrap(), "{text}");
            assert!(dataset.graph.is_symmetric());
            let chance = 1.0 / dataset.outputs as f64;
            let found = homophily(&dataset);
            assert!(
                found > least && least > chance,
                "{text}: {found:.2}, by chance {chance:.2}"
            );
            assert_eq!(recipe.dataset(3).unwrap().features, dataset.features);
            assert_ne!(recipe.dataset(4).unwrap().features, dataset.features);
            assert!(
                !dataset.train.is_empty() && !dataset.test.is_empty(),
                "{text}"
            );
        }
    }

    #[test]
    fn reddits_shape_is_kept_at_any_scale() {
        let dataset = recipe("reddit-like:0.02").dataset(0).unwrap();
        let vertices = dataset.graph.vertices();
        assert_eq!(
            (vertices, dataset.feature_len(), dataset.outputs),
            (4659, 602, 41)
        );
        let mut degrees = dataset.graph.in_degrees();
        degrees.sort_unstable();
        let (hubs, common) = (&degrees[vertices - 8..], degrees[vertices - 9]);
        assert!(hubs.iter().all(|&degree| degree == 1701), "{hubs:?}");
        assert!(common < 1701, "{common}");
        let share = |list: &[u32]| list.len() as f64 / vertices as f64;
        assert!(
            (share(&dataset.train) - 0.66).abs() < 0.01 && (share(&dataset.val) - 0.1).abs() < 0.01
        );
    }

    /// A change of this number is a change of every figure that was measured on this dataset.
    #[test]
    fn a_seed_means_the_same_dataset_for_ever() {
        let dataset = recipe("reddit-like:0.002").dataset(1).unwrap();
        assert_eq!(fingerprint(&dataset.graph), GRAPH);
        let features = dataset.features.to_dense().unwrap();
        let sum: f64 = features.iter().map(|&value| f64::from(value)).sum();
        assert_eq!((features[0], features[280_000], sum), FEATURES);
        assert_eq!(dataset.class_labels().unwrap()[..8], LABELS);
    }
    const GRAPH: u64 = 17_552_952_480_338_914_814;
    const FEATURES: (f32, f32, f64) = (-13.148_746, -3.118_305_2, 340_442.880_485_206_84);
    const LABELS: [u32; 8] = [23, 15, 29, 33, 31, 14, 1, 25];
}
