//! `halfgnn dataset convert` and `halfgnn dataset generate`.

use super::source::{OpenArgs, Opened, SourceName, refuse};
use super::{ConvertArgs, FeatureStorage, GenerateArgs};
use crate::failure::Failure;
use crate::json::JsonLines;
use crate::screen::{Page, bytes, count};
use halfgnn::data::{Format, SaveGraph, WriteOptions};
use halfgnn::file::WholeFile;
use serde::Serialize;
use std::path::Path;
use std::time::Instant;

/// What was written.
#[derive(Debug, Serialize)]
struct Written {
    event: &'static str,
    name: String,
    output: String,
    format: &'static str,
    vertices: usize,
    edges: usize,
    /// Whether features and labels are in it.
    labelled: bool,
    /// What the format has no place for.
    left_out: Vec<&'static str>,
    bytes: u64,
    seconds: f64,
}

/// Reads in one format and writes in another.
pub fn run(args: &ConvertArgs) -> Result<(), Failure> {
    convert(
        &args.source,
        &args.open,
        &args.output,
        (args.to, args.features),
        args.json.as_deref(),
    )
}

/// Makes and writes.
pub fn generate(args: &GenerateArgs) -> Result<(), Failure> {
    let open = OpenArgs {
        data_seed: args.data_seed,
        ..OpenArgs::default()
    };
    let source = SourceName::Made(args.recipe);
    convert(
        &source,
        &open,
        &args.output,
        (args.to, FeatureStorage::Numbers),
        args.json.as_deref(),
    )
}

fn convert(
    source: &SourceName,
    open: &OpenArgs,
    output: &Path,
    (to, features): (Option<Format>, FeatureStorage),
    json: Option<&Path>,
) -> Result<(), Failure> {
    let feature_bits = features == FeatureStorage::Bits;
    let is_archive = output
        .extension()
        .is_some_and(|extension| extension == "npz");
    let to = match to {
        None if feature_bits && is_archive => Some(Format::Pyg),
        to => to,
    };
    if feature_bits && to != Some(Format::Pyg) {
        return Err(Failure::Input(format!(
            "{}: --features bits is of PyG's archive; end the name in .npz and leave --to out, or say --to pyg",
            output.display()
        )));
    }
    let mut json = JsonLines::open(json)?;
    let mut page = Page::new(json.is_stdout());
    // Whatever is wrong with the output is found out before a large file is read.
    if write_options(output, to, true).is_none() {
        return Err(Failure::Input(format!(
            "{}: the name tells no format; end it in .npz, .mtx, .txt or .csr, or say --to",
            output.display()
        )));
    }
    drop(WholeFile::create(output).map_err(|error| cannot_write(output, &error))?);

    let start = Instant::now();
    let opened = open_for(source, open, output, to)?;
    let is_dataset = matches!(opened, Opened::Dataset(_));
    let Some(mut options) = write_options(output, to, is_dataset) else {
        return Err(cannot_write(output, &"the format is unknown"));
    };
    if let (None, Opened::Dataset(dataset), Format::GnnBenchmark) = (to, &opened, options.format) {
        options.format = dataset.archive_format();
    }
    options.feature_bits = feature_bits;
    match &opened {
        Opened::Graph(_, graph) => graph.save(output, options),
        Opened::Dataset(dataset) => dataset.save(output, options),
    }
    .map_err(refuse)?;
    let length = std::fs::metadata(output)
        .map_err(|error| cannot_write(output, &error))?
        .len();

    let written = Written {
        event: "written",
        name: opened.name().into(),
        output: output.display().to_string(),
        format: options.format.name(),
        vertices: opened.graph().vertices(),
        edges: opened.graph().edges(),
        labelled: is_dataset && options.format.is_labelled(),
        left_out: match &opened {
            Opened::Graph(..) => Vec::new(),
            Opened::Dataset(dataset) => dataset.left_out_by(options.format),
        },
        bytes: length,
        seconds: start.elapsed().as_secs_f64(),
    };
    let left_out = match &written.left_out[..] {
        [] => String::new(),
        [one] => format!(", without {one}, which the format has no place for"),
        [first @ .., last] => format!(
            ", without {} and {last}, which the format has no place for",
            first.join(", ")
        ),
    };
    page.line(&format_args!(
        "{}: {} vertices, {} edges{left_out}; {} as {}, {:.1} s",
        written.output,
        count(written.vertices),
        count(written.edges),
        bytes(length),
        options.format.description(),
        written.seconds,
    ));
    json.write(&written)?;
    json.finish()
}

/// Opens or makes no more than the output can hold: of a recipe the graph alone, where features would be left out.
fn open_for(
    source: &SourceName,
    open: &OpenArgs,
    output: &Path,
    to: Option<Format>,
) -> Result<Opened, Failure> {
    match source {
        SourceName::Made(recipe)
            if write_options(output, to, true)
                .is_some_and(|options| !options.format.is_labelled()) =>
        {
            let graph = recipe.graph(open.data_seed).map_err(refuse)?;
            Ok(Opened::Graph(recipe.to_string(), Box::new(graph)))
        }
        _ => open.any(source),
    }
}

fn write_options(output: &Path, to: Option<Format>, is_labelled: bool) -> Option<WriteOptions> {
    match to {
        Some(format) => {
            let mut options = WriteOptions::new(format);
            let is_text = matches!(format, Format::MatrixMarket | Format::EdgeList);
            options.gzip = is_text
                && output
                    .extension()
                    .is_some_and(|extension| extension == "gz");
            Some(options)
        }
        None => WriteOptions::for_path(output, is_labelled),
    }
}

fn cannot_write(output: &Path, error: &dyn std::fmt::Display) -> Failure {
    Failure::Input(format!(
        "{}: cannot be written: {error}; name a file in a folder that can be",
        output.display()
    ))
}
