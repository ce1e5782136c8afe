//! `halfgnn dataset convert` and `halfgnn dataset generate`.

use super::source::{OpenArgs, Opened, SourceName, refuse};
use super::{ConvertArgs, FeatureStorage, GenerateArgs, StreamArgs, folder_of};
use crate::failure::Failure;
use crate::json::JsonLines;
use crate::outputs::Outputs;
use crate::screen::{Page, bytes, count};
use halfgnn::data::{Format, REPEATED_EDGES, SaveGraph, Workplace, WriteOptions};
use halfgnn::train::host_memory;
use serde::Serialize;
use std::path::Path;
use std::time::Instant;

/// What was written.
#[derive(Debug, Serialize)]
struct Written {
    event: &'static str,
    output: String,
    #[serde(flatten)]
    saved: Saved,
    bytes: u64,
    seconds: f64,
}

/// What is in the file, and how it came there.
#[derive(Debug, Serialize)]
struct Saved {
    name: String,
    format: &'static str,
    vertices: usize,
    edges: usize,
    /// Whether features and labels are in it.
    labelled: bool,
    /// What the format has no place for.
    left_out: Vec<&'static str>,
    /// Whether edges were never in memory as a whole.
    streamed: bool,
    /// What memory a stream might take.
    memory_bytes: Option<u64>,
}

/// Half of it is what a stream takes of a machine that does not say what memory it has.
const UNKNOWN_MEMORY: u64 = 1 << 30;

/// Reads in one format and writes in another.
pub fn run(args: &ConvertArgs) -> Result<(), Failure> {
    convert(
        &args.source,
        &args.open,
        &args.output,
        (args.to, args.features),
        &args.stream,
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
        &StreamArgs::default(),
        args.json.as_deref(),
    )
}

fn convert(
    source: &SourceName,
    open: &OpenArgs,
    output: &Path,
    (to, features): (Option<Format>, FeatureStorage),
    stream: &StreamArgs,
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
    let mut outputs = Outputs::new();
    outputs.reads_source(source, open);
    outputs.file("", output)?.stream("--json", json)?;
    let mut json = JsonLines::open(json)?;
    let mut page = Page::new(json.is_stdout());
    // Whatever is wrong with the output is found out before a large file is read.
    if write_options(output, to, true).is_none() {
        return Err(Failure::Input(format!(
            "{}: the name tells no format; end it in .npz, .mtx, .txt, .csr or .frdc, or say --to",
            output.display()
        )));
    }

    let start = Instant::now();
    let as_asked = (to, feature_bits);
    let (saved, format) = match streamed(source, open, output, as_asked, stream)? {
        Some(saved) => saved,
        None => whole(source, open, output, as_asked)?,
    };
    let length = std::fs::metadata(output)
        .map_err(|error| cannot_write(output, &error))?
        .len();
    let written = Written {
        event: "written",
        output: output.display().to_string(),
        saved,
        bytes: length,
        seconds: start.elapsed().as_secs_f64(),
    };
    let left_out = match &written.saved.left_out[..] {
        [] => String::new(),
        [one] => format!(", without {one}, which the format has no place for"),
        [first @ .., last] => format!(
            ", without {} and {last}, which the format has no place for",
            first.join(", ")
        ),
    };
    page.line(&format_args!(
        "{}: {} vertices, {} edges{left_out}; {} as {}{}, {:.1} s",
        written.output,
        count(written.saved.vertices),
        count(written.saved.edges),
        bytes(length),
        format.description(),
        written
            .saved
            .memory_bytes
            .map_or_else(String::new, |memory| {
                format!(", as a stream within {} of memory", bytes(memory))
            }),
        written.seconds,
    ));
    json.write(&written)?;
    json.finish()
}

/// Writes a graph as it is read, where it can be.
fn streamed(
    source: &SourceName,
    open: &OpenArgs,
    output: &Path,
    as_asked: (Option<Format>, bool),
    stream: &StreamArgs,
) -> Result<Option<(Saved, Format)>, Failure> {
    let free = || host_memory().map_or(UNKNOWN_MEMORY, |(free, _)| free);
    let memory = stream.memory.unwrap_or_else(|| free() / 2);
    let folder = stream.temp_folder.as_deref();
    let place = Workplace::new(folder.unwrap_or(folder_of(output)), memory);
    let Some(graph) = open.streamed_graph(source, &place)? else {
        return match stream.memory.is_some() || folder.is_some() {
            true => Err(refuse(
                "--memory and --temp-folder are of graphs that are converted as a stream, and this is read or made whole; leave them out",
            )),
            false => Ok(None),
        };
    };
    let options = options_for(output, as_asked, false)?;
    graph.save(output, options).map_err(refuse)?;
    let repeated = graph.left_out_edges(options.format).map_err(refuse)?;
    let saved = Saved {
        name: graph.name().into(),
        format: options.format.name(),
        vertices: graph.vertices(),
        edges: (graph.edges() - repeated) as usize,
        labelled: false,
        left_out: [graph.left_out(), &left_out_of_graph(repeated)].concat(),
        streamed: true,
        memory_bytes: Some(memory),
    };
    Ok(Some((saved, options.format)))
}

/// Writes a graph or dataset that is in memory.
fn whole(
    source: &SourceName,
    open: &OpenArgs,
    output: &Path,
    (to, feature_bits): (Option<Format>, bool),
) -> Result<(Saved, Format), Failure> {
    let opened = open_for(source, open, output, to)?;
    let is_dataset = matches!(opened, Opened::Dataset(_));
    let mut options = options_for(output, (to, feature_bits), is_dataset)?;
    if let (None, Opened::Dataset(dataset), Format::GnnBenchmark) = (to, &opened, options.format) {
        options.format = dataset.archive_format();
    }
    match &opened {
        Opened::Graph(_, graph) => graph.save(output, options),
        Opened::Dataset(dataset) => dataset.save(output, options),
    }
    .map_err(refuse)?;
    let repeated = opened.graph().left_out_edges(options.format);
    let saved = Saved {
        name: opened.name().into(),
        format: options.format.name(),
        vertices: opened.vertices(),
        edges: opened.edges() - repeated as usize,
        labelled: is_dataset && options.format.is_labelled(),
        left_out: match &opened {
            Opened::Graph(..) => left_out_of_graph(repeated),
            Opened::Dataset(dataset) => dataset.left_out_by(options.format),
        },
        streamed: false,
        memory_bytes: None,
    };
    Ok((saved, options.format))
}

/// What a format has no place for of a graph alone.
fn left_out_of_graph(repeated: u64) -> Vec<&'static str> {
    match repeated {
        0 => Vec::new(),
        _ => vec![REPEATED_EDGES],
    }
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

fn options_for(
    output: &Path,
    (to, feature_bits): (Option<Format>, bool),
    is_labelled: bool,
) -> Result<WriteOptions, Failure> {
    let mut options = write_options(output, to, is_labelled)
        .ok_or_else(|| cannot_write(output, &"the format is unknown"))?;
    options.feature_bits = feature_bits;
    Ok(options)
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
