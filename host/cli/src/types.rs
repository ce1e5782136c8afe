//! Datasets of several types of vertices and edges: what is shown of them, and which options are not for them.

use crate::args::TrainArgs;
use crate::failure::Failure;
use crate::placement::{PieceCount, PlacementArgs};
use crate::predict::PredictArgs;
use crate::screen::count;
use crate::structure::{GraphPlace, StructureName};
use crate::task::TaskName;
use halfgnn::data::{Dataset, Features};
use halfgnn::message::escaped;
use halfgnn::sample::SamplingPolicy;
use halfgnn_bench::names::FeaturesName;
use serde::Serialize;

/// The types of a dataset, as events have them.
#[derive(Debug, Serialize)]
pub struct TypesOf {
    vertices: Vec<VerticesOf>,
    edges: Vec<EdgesOf>,
    /// The type whose vertices have labels.
    labelled: String,
}

/// A type of vertices.
#[derive(Debug, Serialize)]
struct VerticesOf {
    name: String,
    vertices: usize,
    /// Features of each; 0 where there are none.
    features: usize,
}

/// A type of edges.
#[derive(Debug, Serialize)]
struct EdgesOf {
    source: String,
    name: String,
    destination: String,
    edges: usize,
    largest_degree: u32,
    /// Destinations that no edge leads to.
    without_edges: usize,
}

impl TypesOf {
    /// Those of a dataset that has several.
    pub fn new(dataset: &Dataset) -> Option<Self> {
        let types = dataset.types.as_ref()?;
        let name = |of: usize| types.vertices()[of].name.clone();
        let vertices = types.vertices().iter().enumerate();
        let vertices = vertices.map(|(number, of)| VerticesOf {
            name: of.name.clone(),
            vertices: of.vertices,
            features: dataset
                .features_of_type(number)
                .map_or(0, Features::feature_len),
        });
        let edges = types.edges().iter().map(|of| EdgesOf {
            source: name(of.source),
            name: of.name.clone(),
            destination: name(of.destination),
            edges: of.edges.edges(),
            largest_degree: of.edges.longest_row(),
            without_edges: of.edges.empty_rows().len(),
        });
        Some(Self {
            vertices: vertices.collect(),
            edges: edges.collect(),
            labelled: name(types.labelled()),
        })
    }

    /// A line for each type: a name, and what is known of it.
    pub fn lines(&self) -> Vec<(String, String)> {
        let vertices = self.vertices.iter().map(|of| {
            let features = match of.features {
                0 => "no features".to_owned(),
                some => format!("{} features", count(some)),
            };
            let labels = match of.name == self.labelled {
                true => ", labelled",
                false => "",
            };
            let name = format!("vertices {}", escaped(&of.name));
            (name, format!("{}, {features}{labels}", count(of.vertices)))
        });
        let edges = self.edges.iter().map(|of| {
            let name = format!("edges {}", escaped(&of.name));
            let text = format!(
                "{}, from {} to {}; largest degree {}, {} without",
                count(of.edges),
                escaped(&of.source),
                escaped(&of.destination),
                count(of.largest_degree as usize),
                count(of.without_edges)
            );
            (name, text)
        });
        vertices.chain(edges).collect()
    }
}

/// Refuses options of `train` that are not for several types.
///
/// # Errors
/// With the first that is given.
pub fn check_training(args: &TrainArgs, dataset: &Dataset) -> Result<(), Failure> {
    if dataset.types.is_none() {
        return Ok(());
    }
    let sampler = args.sampling.sampler.as_ref();
    let samples_neighbors = matches!(sampler, Some(SamplingPolicy::Neighbor { .. }));
    if let Some(policy) = sampler.filter(|_| !samples_neighbors) {
        return Err(Failure::Input(format!(
            "--sampler {policy}: {} has several types of vertices, of which neighbors are sampled; take --sampler neighbor:15,10",
            dataset.name
        )));
    }
    if args.ranks.count()? > 1 && !samples_neighbors {
        return Err(Failure::Input(format!(
            "--ranks, --devices or --rendezvous: {} has several types of vertices, which several ranks train on in batches; add --sampler neighbor:15,10, or leave it out",
            dataset.name
        )));
    }
    let of_task = args.task.task == TaskName::Link;
    refuse(
        dataset,
        &[
            ("--coverage", args.sampling.coverage.is_some()),
            ("--task link", of_task),
            ("--inductive", args.task.inductive),
            ("--reorder", args.reorder.is_some()),
            ("--scale-features", args.scale_features),
            (
                "--structure disk",
                args.edges.structure == StructureName::Disk,
            ),
            ("--pool", args.model.pool.is_some()),
        ],
    )?;
    check_placement(&args.placement, dataset)
}

/// Refuses options of `predict` that are not for several types.
///
/// # Errors
/// With the first that is given.
pub fn check_prediction(args: &PredictArgs, dataset: &Dataset) -> Result<(), Failure> {
    if dataset.types.is_none() {
        return Ok(());
    }
    refuse(
        dataset,
        &[
            ("--reorder", args.reorder.is_some()),
            ("--pairs", args.pairs.is_some()),
            ("--structure disk", args.structure == GraphPlace::Disk),
        ],
    )?;
    check_placement(&args.placement, dataset)
}

fn check_placement(args: &PlacementArgs, dataset: &Dataset) -> Result<(), Failure> {
    let is_elsewhere = !matches!(args.features, FeaturesName::Auto | FeaturesName::Device);
    let pieces = matches!(args.pieces, PieceCount::Of(count) if count.get() > 1);
    refuse(
        dataset,
        &[
            ("--features host, disk or sharded", is_elsewhere),
            ("--pieces", pieces),
        ],
    )
}

fn refuse(dataset: &Dataset, given: &[(&str, bool)]) -> Result<(), Failure> {
    match given.iter().find(|(_, is_given)| *is_given) {
        Some((option, _)) => Err(Failure::Input(format!(
            "{option}: {} has several types of vertices, which this is not for; leave it out",
            dataset.name
        ))),
        None => Ok(()),
    }
}
