//! `halfgnn dataset partition`.

use super::source::refuse;
use super::{PartitionArgs, folder_of};
use crate::failure::Failure;
use crate::json::JsonLines;
use crate::outputs::Outputs;
use crate::screen::{Page, bytes, count};
use halfgnn::data::Dataset;
use halfgnn::data::parts::{Deal, FeaturePrecision, Written};
use halfgnn::distributed::{Partition, PartitionError};
use halfgnn::file::WholeFolder;
use serde::Serialize;
use std::time::Instant;

/// Parts where no number is given: enough for any number of ranks.
const DEFAULT_PARTS: usize = 1024;

/// What was written.
#[derive(Debug, Serialize)]
struct Partitioned {
    event: &'static str,
    name: String,
    output: String,
    parts: usize,
    /// `degree`, `louvain` or the file.
    partition: String,
    feature_precision: &'static str,
    vertices: u64,
    edges: u64,
    /// The most edges of a part, over the mean.
    imbalance: f64,
    /// Whether edges and features were never in memory as a whole.
    streamed: bool,
    bytes: u64,
    seconds: f64,
}

/// Cuts a dataset into parts.
pub fn run(args: &PartitionArgs) -> Result<(), Failure> {
    let mut outputs = Outputs::new();
    outputs.reads_source(&args.source, &args.open);
    outputs.reads("--by", &args.by);
    outputs.stream("--json", args.json.as_deref())?;
    let mut json = JsonLines::open(args.json.as_deref())?;
    let mut page = Page::new(json.is_stdout());
    if args.out.symlink_metadata().is_ok() {
        return Err(Failure::Input(format!(
            "{}: is there already; name a folder that is not, or remove it",
            args.out.display()
        )));
    }
    WholeFolder::check(&args.out).map_err(|error| {
        Failure::Input(format!(
            "--out {}: cannot be written: {error}; name a folder in one that can be",
            args.out.display()
        ))
    })?;
    let start = Instant::now();
    let by = args.by.display().to_string();
    let streamed = streamed(args, &by)?;
    let is_streamed = streamed.is_some();
    let (name, written) = match streamed {
        Some(streamed) => streamed,
        None => whole(args, &by)?,
    };
    let mean = written.edges as f64 / written.parts as f64;
    let partitioned = Partitioned {
        event: "partitioned",
        name,
        output: args.out.display().to_string(),
        parts: written.parts,
        partition: by,
        feature_precision: FeaturePrecision::from(args.feature_precision).name(),
        vertices: written.vertices,
        edges: written.edges,
        imbalance: match written.edges {
            0 => 1.0,
            _ => written.most_edges as f64 / mean,
        },
        streamed: is_streamed,
        bytes: written.bytes,
        seconds: start.elapsed().as_secs_f64(),
    };
    page.line(&format_args!(
        "{}: {} vertices, {} edges in {} parts by {}, the most edges of one are {:.3} of the mean; features in {}; {}{}, {:.1} s",
        partitioned.output,
        count(written.vertices as usize),
        count(written.edges as usize),
        count(written.parts),
        partitioned.partition,
        partitioned.imbalance,
        partitioned.feature_precision,
        bytes(written.bytes),
        if is_streamed { ", as a stream" } else { "" },
        partitioned.seconds,
    ));
    json.write(&partitioned)?;
    json.finish()
}

/// Of an archive as it is read, where it can be; communities are found in whole graphs.
fn streamed(args: &PartitionArgs, by: &str) -> Result<Option<(String, Written)>, Failure> {
    if by == "louvain" {
        return Ok(None);
    }
    let Some(archive) = args.open.streamed(&args.source, folder_of(&args.out))? else {
        return Ok(None);
    };
    let parts = parts(args, archive.in_degrees().len())?;
    let partition = match by {
        "degree" => Partition::of_degrees(archive.in_degrees(), parts)
            .map(|partition| partition.spread(archive.in_degrees())),
        _ => Partition::read(&args.by, parts),
    };
    let partition = partition.map_err(|problem| not_dealt(by, &problem))?;
    let name = archive.name().to_owned();
    let written = archive.save_parts(&args.out, &deal(args, by, &partition));
    Ok(Some((name, written.map_err(refuse)?)))
}

/// Of a dataset in memory.
fn whole(args: &PartitionArgs, by: &str) -> Result<(String, Written), Failure> {
    let dataset: Dataset = args.open.dataset(&args.source)?;
    let parts = parts(args, dataset.graph.vertices())?;
    let partition = Partition::by_name(&args.by, &dataset.graph, parts);
    let mut partition = partition.map_err(|problem| not_dealt(by, &problem))?;
    if by == "degree" {
        partition = partition.spread(&dataset.graph.in_degrees());
    }
    let written = dataset.save_parts(&args.out, &deal(args, by, &partition));
    Ok((dataset.name, written.map_err(refuse)?))
}

fn deal<'a>(args: &PartitionArgs, by: &'a str, partition: &'a Partition) -> Deal<'a> {
    Deal {
        owners: partition.owners(),
        parts: partition.ranks(),
        by,
        precision: args.feature_precision.into(),
    }
}

/// How many parts a number of vertices are cut into.
fn parts(args: &PartitionArgs, vertices: usize) -> Result<usize, Failure> {
    match args.parts.map(|parts| parts as usize) {
        None => Ok(DEFAULT_PARTS.min(vertices).max(1)),
        Some(parts) if parts > vertices.max(1) => Err(Failure::Input(format!(
            "--parts {parts}: there are {vertices} vertices, and a part has one at least; take fewer"
        ))),
        Some(parts) => Ok(parts),
    }
}

fn not_dealt(by: &str, problem: &PartitionError) -> Failure {
    Failure::Input(format!("--by {by}: {problem}"))
}
