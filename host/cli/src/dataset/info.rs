//! `halfgnn dataset info`.

use super::InfoArgs;
use super::source::Opened;
use crate::failure::Failure;
use crate::json::JsonLines;
use crate::outputs::Outputs;
use crate::screen::{Page, bytes, count};
use crate::train::{class_sizes, empty_classes};
use crate::types::TypesOf;
use halfgnn::data::{Dataset, EdgeFeatures, Features, HalfRange, Targets, UNLABELLED};
use halfgnn::graph::{DegreeStats, Frdc, Graph};
use halfgnn::message::escaped;
use rayon::prelude::*;
use serde::Serialize;

/// Quantiles of the degrees that are reported.
const QUANTILES: [f64; 5] = [0.5, 0.9, 0.99, 0.999, 1.0];

/// What is reported about a graph or dataset.
#[derive(Debug, Serialize)]
struct Info {
    event: &'static str,
    name: String,
    /// Of a dataset of several types; the rest is then of the vertices that have labels.
    #[serde(skip_serializing_if = "Option::is_none")]
    types: Option<TypesOf>,
    vertices: usize,
    edges: usize,
    symmetric: bool,
    self_loops: usize,
    #[serde(skip_serializing_if = "Option::is_none")]
    edge_weights: Option<Weights>,
    /// How many features each edge has.
    #[serde(skip_serializing_if = "Option::is_none")]
    edge_features: Option<usize>,
    #[serde(skip_serializing_if = "Option::is_none")]
    ids: Option<Ids>,
    duplicate_edges: usize,
    rows_without_edges: usize,
    mean_degree: f64,
    degree_quantiles: Vec<Quantile>,
    /// Rows of degree 0, 1, 2–3, 4–7, and so on.
    degree_histogram: Vec<usize>,
    graph_bytes: u64,
    tiles: Tiles,
    labels: Option<Labels>,
    half: Half,
}

#[derive(Debug, Serialize)]
struct Quantile {
    share: f64,
    degree: u32,
}

/// The graph in BitGNN's format, FRDC, tiles of 4 × 4 bits, where an edge that occurs twice is one.
#[derive(Debug, Serialize)]
struct Tiles {
    tiles: usize,
    edges_per_tile: f64,
    bytes_per_edge: f64,
}

impl Tiles {
    fn of(graph: &Graph, duplicates: usize) -> Self {
        let (tiles, edges) = (Frdc::count(graph.csr()), graph.edges() - duplicates);
        let per = |many: f64, of: usize| if of == 0 { 0.0 } else { many / of as f64 };
        Self {
            tiles,
            edges_per_tile: per(edges as f64, tiles),
            bytes_per_edge: per(Frdc::bytes_of(graph.vertices(), tiles) as f64, edges),
        }
    }
}

/// What vertices are called.
#[derive(Debug, Serialize)]
struct Ids {
    first: String,
    last: String,
}

/// What is reported about features, labels and splits.
#[derive(Debug, Serialize)]
struct Labels {
    features: usize,
    /// `dense` or `sparse`.
    stored: &'static str,
    feature_bytes: u64,
    /// What is known of each vertex, or of each graph, in words.
    targets: String,
    /// What that is of: `vertex` or `graph`.
    #[serde(skip)]
    member: &'static str,
    #[serde(skip)]
    members: &'static str,
    /// Of a dataset that is many graphs.
    #[serde(skip_serializing_if = "Option::is_none")]
    graphs: Option<Graphs>,
    /// What a model gives of each: classes, labels or values, in one word.
    unit: &'static str,
    classes: usize,
    #[serde(skip_serializing_if = "Option::is_none")]
    class_names: Option<Vec<String>>,
    /// Labelled vertices of each class.
    class_sizes: Vec<usize>,
    unlabelled: usize,
    /// How many ways to split the file has.
    file_splits: usize,
    train: usize,
    validation: usize,
    test: usize,
    /// The share of edges between labelled vertices whose ends are of one class.
    homophily: Option<f64>,
}

/// What many graphs are like.
#[derive(Debug, Serialize)]
struct Graphs {
    graphs: usize,
    fewest_vertices: usize,
    most_vertices: usize,
}

/// What the weights of edges are like.
#[derive(Debug, Serialize)]
struct Weights {
    least: f32,
    most: f32,
    mean: f64,
    negative: usize,
}

impl Weights {
    fn of(weights: &[f32]) -> Self {
        let sum: f64 = weights.iter().map(|&weight| f64::from(weight)).sum();
        Self {
            least: weights.iter().copied().fold(f32::INFINITY, f32::min),
            most: weights.iter().copied().fold(f32::NEG_INFINITY, f32::max),
            mean: sum / weights.len().max(1) as f64,
            negative: weights.iter().filter(|weight| **weight < 0.0).count(),
        }
    }
}

/// [`HalfRange`].
#[derive(Debug, Serialize)]
struct Half {
    largest_degree: u32,
    rows_past_2048: usize,
    largest_feature: Option<f32>,
    infinite_features: Option<usize>,
    rows_at_risk: Option<usize>,
    checked_rows: Option<usize>,
    overflowing_rows: Option<usize>,
    largest_sum: Option<f32>,
}

/// Opens what was named and reports on it.
pub fn run(args: &InfoArgs) -> Result<(), Failure> {
    let mut outputs = Outputs::new();
    outputs.reads_source(&args.source, &args.open);
    outputs.stream("--json", args.json.as_deref())?;
    let mut json = JsonLines::open(args.json.as_deref())?;
    let mut page = Page::new(json.is_stdout());
    let opened = args.open.any(&args.source)?;
    let info = Info::of(&opened);
    info.print(&mut page);
    json.write(&info)?;
    json.finish()
}

impl Info {
    fn of(opened: &Opened) -> Self {
        let graph = opened.graph();
        let (stats, duplicates) = (graph.degree_stats(), graph.csr().repeated_edges());
        let dataset = match opened {
            Opened::Graph(..) => None,
            Opened::Dataset(dataset) => Some(&**dataset),
        };
        Self {
            event: "dataset",
            name: opened.name().into(),
            types: dataset.and_then(TypesOf::new),
            vertices: graph.vertices(),
            edges: graph.edges(),
            symmetric: graph.is_symmetric(),
            self_loops: self_loops(graph),
            edge_weights: dataset
                .and_then(|dataset| dataset.edge_weights.as_deref())
                .map(Weights::of),
            edge_features: dataset
                .and_then(|dataset| dataset.edge_features.as_ref())
                .map(EdgeFeatures::columns),
            ids: dataset
                .and_then(|dataset| dataset.ids.as_ref())
                .filter(|ids| !ids.is_empty())
                .map(|ids| Ids {
                    first: ids.get(0).into(),
                    last: ids.get(ids.len() - 1).into(),
                }),
            duplicate_edges: duplicates,
            rows_without_edges: stats.vertices() - stats.at_least(1),
            mean_degree: stats.mean(),
            degree_quantiles: quantiles(&stats),
            degree_histogram: stats.histogram(),
            graph_bytes: graph.bytes(),
            tiles: Tiles::of(graph, duplicates),
            labels: dataset.map(Labels::of),
            half: Half::of(graph, dataset.map(|dataset| &dataset.features)),
        }
    }

    fn print(&self, page: &mut Page) {
        page.line(&format_args!("{}", self.name));
        let mut row = |name: &str, value: String| page.line(&format_args!("  {name:<34} {value}"));
        if let Some(types) = &self.types {
            for (name, of) in types.lines() {
                row(&name, of);
            }
            // Of edges nothing more is known than that of each type.
            self.labels.iter().for_each(|labels| labels.print(&mut row));
            return;
        }
        row("vertices", count(self.vertices));
        row("edges", count(self.edges));
        row(
            "symmetric",
            if self.symmetric {
                "yes"
            } else {
                "no: --undirected adds the missing directions"
            }
            .into(),
        );
        row("self-loops", count(self.self_loops));
        row("duplicate edges", count(self.duplicate_edges));
        if let Some(weights) = &self.edge_weights {
            let Weights {
                least,
                most,
                mean,
                negative,
            } = weights;
            let signs = match negative {
                0 => String::new(),
                some => format!(", {} negative", count(*some)),
            };
            row(
                "edge weights",
                format!("{least} to {most}, mean {mean:.4}{signs}"),
            );
        }
        if let Some(columns) = self.edge_features {
            row("features of edges", format!("{} of each", count(columns)));
        }
        if let Some(Ids { first, last }) = &self.ids {
            row(
                "ids of vertices",
                format!("'{}' to '{}'", escaped(first), escaped(last)),
            );
        }
        row("rows without edges", count(self.rows_without_edges));
        row("memory of the graph", bytes(self.graph_bytes));
        let Tiles {
            tiles,
            edges_per_tile,
            bytes_per_edge,
        } = &self.tiles;
        row(
            "as FRDC, 4 x 4 tiles of bits",
            format!(
                "{} tiles of {edges_per_tile:.1} edges, {bytes_per_edge:.1} B an edge",
                count(*tiles)
            ),
        );
        let quantiles: Vec<String> = self
            .degree_quantiles
            .iter()
            .map(|quantile| match quantile.share {
                1.0 => format!("largest {}", count(quantile.degree as usize)),
                share => format!("{} % ≤ {}", share * 100.0, count(quantile.degree as usize)),
            })
            .collect();
        row(
            "degrees",
            format!("mean {:.1}, {}", self.mean_degree, quantiles.join(", ")),
        );
        let largest = self
            .degree_histogram
            .iter()
            .copied()
            .max()
            .unwrap_or(0)
            .max(1);
        for (bin, &rows) in self.degree_histogram.iter().enumerate() {
            let range = match bin {
                0 => "0".into(),
                1 => "1".into(),
                _ => format!("{}–{}", 1_u64 << (bin - 1), (1_u64 << bin) - 1),
            };
            let bar = "█".repeat((rows * 30).div_ceil(largest));
            row(
                &format!("  degree {range}"),
                format!("{:>12} {bar}", count(rows)),
            );
        }
        if let Some(labels) = &self.labels {
            labels.print(&mut row);
        }
        self.half.print(&mut row);
    }
}

impl Labels {
    fn of(dataset: &Dataset) -> Self {
        let class_sizes = match &dataset.targets {
            Targets::Labels(labels) => labels.counts(),
            _ => class_sizes(dataset),
        };
        Self {
            features: dataset.feature_len(),
            stored: match dataset.features {
                Features::Dense(_) => "dense",
                Features::Sparse(_) => "sparse",
                Features::Bits(_) => "bits",
                Features::Stored(_) => "on disk",
            },
            feature_bytes: dataset.features.bytes(),
            targets: match dataset.outputs {
                0 => "none",
                _ => dataset.targets.description(),
            }
            .replace("vertex", dataset.member()),
            member: dataset.member(),
            members: dataset.members(),
            graphs: dataset.graphs.as_ref().map(|graphs| Graphs {
                graphs: graphs.graphs(),
                fewest_vertices: graphs.sizes().min().unwrap_or(0),
                most_vertices: graphs.sizes().max().unwrap_or(0),
            }),
            unit: dataset.targets.unit(),
            classes: dataset.outputs,
            class_names: dataset.class_names.clone(),
            unlabelled: (0..dataset.targets.vertices())
                .filter(|&vertex| !dataset.targets.is_labelled(vertex))
                .count(),
            class_sizes,
            file_splits: dataset.file_splits,
            train: dataset.train.len(),
            validation: dataset.val.len(),
            test: dataset.test.len(),
            homophily: homophily(dataset),
        }
    }

    fn print(&self, row: &mut impl FnMut(&str, String)) {
        row(
            "features",
            format!(
                "{}, {}, {}",
                count(self.features),
                self.stored,
                bytes(self.feature_bytes)
            ),
        );
        if let Some(graphs) = &self.graphs {
            row(
                "graphs",
                format!(
                    "{}, of {} to {} vertices",
                    count(graphs.graphs),
                    count(graphs.fewest_vertices),
                    count(graphs.most_vertices)
                ),
            );
        }
        row("targets", self.targets.clone());
        let (smallest, largest) = (self.class_sizes.iter().min(), self.class_sizes.iter().max());
        let given = match self.unit {
            "values" => format!("{} of each {}", count(self.classes), self.member),
            _ => format!(
                "{}, of {} to {} {}",
                count(self.classes),
                count(*smallest.unwrap_or(&0)),
                count(*largest.unwrap_or(&0)),
                self.members
            ),
        };
        row(self.unit, given);
        if let Some(names) = &self.class_names {
            row("  called", escaped(&names.join(", ")));
        }
        if smallest == Some(&0) && self.unit == "classes" {
            row("  without vertices", empty_classes(&self.class_sizes));
        }
        row(
            &format!("{} without a label", self.members),
            count(self.unlabelled),
        );
        let [train, validation, test] = [self.train, self.validation, self.test].map(count);
        row(
            "splits",
            match self.file_splits {
                0 | 1 => format!("{train} to train on, {validation} to validate, {test} to test"),
                all => format!(
                    "{train} to train on, {validation} to validate, {test} to test; one of {all} in the file"
                ),
            },
        );
        if let Some(homophily) = self.homophily {
            row(
                "edges within one class",
                format!("{:.1} %", homophily * 100.0),
            );
        }
    }
}

impl Half {
    fn of(graph: &Graph, features: Option<&Features>) -> Self {
        let range = HalfRange::of(graph, features);
        let known = features.is_some();
        Self {
            largest_degree: range.largest_degree,
            rows_past_2048: range.saturating_rows,
            largest_feature: known.then_some(range.largest_feature),
            infinite_features: known.then_some(range.infinite_features),
            rows_at_risk: known.then_some(range.rows_at_risk),
            checked_rows: known.then_some(range.checked_rows),
            overflowing_rows: known.then_some(range.overflowing_rows),
            largest_sum: known.then_some(range.largest_sum),
        }
    }

    fn print(&self, row: &mut impl FnMut(&str, String)) {
        row("plain sums in half", String::new());
        let saturating = match self.rows_past_2048 {
            0 => format!(
                "in no row: the largest degree is {}",
                count(self.largest_degree as usize)
            ),
            rows => format!("in {} rows of more than 2,048 edges", count(rows)),
        };
        row("  a sum of ones stops growing", saturating);
        row(
            "  in bfloat16",
            "a sum of ones stops growing past 256 edges; its range is float's, and no sum overflows"
                .into(),
        );
        let (Some(feature), Some(at_risk), Some(checked), Some(overflowing), Some(sum)) = (
            self.largest_feature,
            self.rows_at_risk,
            self.checked_rows,
            self.overflowing_rows,
            self.largest_sum,
        ) else {
            return;
        };
        let product = f64::from(feature) * f64::from(self.largest_degree);
        row(
            "  largest feature × largest degree",
            format!(
                "{feature} × {} = {product:.0}, half holds 65,504",
                count(self.largest_degree as usize)
            ),
        );
        if let Some(infinite @ 1..) = self.infinite_features {
            row("  features that are infinite in half", count(infinite));
        }
        let verdict = match (at_risk, checked) {
            (0, _) => "of no row can".into(),
            (_, 0) => format!(
                "of up to {} rows may; none was summed up, they are too long",
                count(at_risk)
            ),
            _ => format!(
                "of {} rows do, of {} that could ({} summed up); the largest is {sum:.0}",
                count(overflowing),
                count(at_risk),
                count(checked)
            ),
        };
        row("  sums of features that overflow", verdict);
    }
}

fn quantiles(stats: &DegreeStats) -> Vec<Quantile> {
    let of = |share| Quantile {
        share,
        degree: stats.quantile(share),
    };
    QUANTILES.map(of).into()
}

/// Each row with its columns.
fn rows(graph: &Graph) -> impl ParallelIterator<Item = (u32, &[u32])> {
    let rows = 0..graph.vertices() as u32;
    rows.into_par_iter()
        .map(|row| (row, graph.csr().row(row as usize)))
}

fn self_loops(graph: &Graph) -> usize {
    let loops = |(row, columns): (u32, &[u32])| columns.iter().filter(|&&col| col == row).count();
    rows(graph).map(loops).sum()
}

fn homophily(dataset: &Dataset) -> Option<f64> {
    if dataset.graphs.is_some() {
        return None;
    }
    let labels = dataset.targets.classes()?;
    let label = |vertex: u32| labels[vertex as usize];
    let of_row = |(row, columns): (u32, &[u32])| {
        let own = label(row);
        let heard = columns.iter().map(|&col| label(col));
        let labelled = heard.filter(|&other| own != UNLABELLED && other != UNLABELLED);
        labelled.fold((0, 0), |(same, all), other| {
            (same + usize::from(own == other), all + 1)
        })
    };
    let (same, all): (usize, usize) = rows(&dataset.graph)
        .map(of_row)
        .reduce(|| (0, 0), |a, b| (a.0 + b.0, a.1 + b.1));
    (all > 0).then(|| same as f64 / all as f64)
}
