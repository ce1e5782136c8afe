//! `halfgnn report`: figures and tables from what `--json` wrote, in one HTML file.

mod args;
mod figures;
mod page;
mod plot;
mod records;

use crate::failure::Failure;
use crate::json::JsonLines;
use crate::names::DeviceName;
use crate::outputs::Outputs;
use crate::screen::Page;
pub use args::ReportArgs;
use clap::ValueEnum;
pub use figures::{Data, Figure, Lines, Point};
use halfgnn::file;
pub use plot::column_svg;
use records::Records;
use serde::Serialize;
use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};

/// What was written.
#[derive(Debug, Serialize)]
struct Written {
    event: &'static str,
    page: Option<String>,
    figures: Vec<String>,
    timings: usize,
    trainings: usize,
    unknown_events: usize,
}

/// Runs what was asked for, reads, draws, writes.
pub fn run(args: &ReportArgs, stop: &AtomicBool) -> Result<(), Failure> {
    // Figures alone were asked for where only they were named.
    let page = args
        .output
        .clone()
        .or_else(|| args.svg.is_none().then(|| PathBuf::from("report.html")));
    let mut outputs = Outputs::new();
    args.files.iter().for_each(|file| {
        outputs.reads("", file);
    });
    if let Some(page) = &page {
        outputs.file("--output", page)?;
    }
    if let Some(folder) = &args.svg {
        outputs.folder("--svg", folder)?;
    }
    outputs.stream("--json", args.json.as_deref())?;
    let mut json = JsonLines::open(args.json.as_deref())?;
    let mut screen = Page::new(json.is_stdout());
    let mut records = Records::default();
    for file in &args.files {
        records.read(file)?;
    }
    if args.run {
        measure(&mut records, args.device, stop)?;
    }
    records.tidy();
    if records.timings.is_empty() && records.trainings.is_empty() {
        return Err(Failure::Input(
            "there is nothing to report in the files; give what `halfgnn bench --json` or `halfgnn train --json` wrote"
                .into(),
        ));
    }
    let drawn: Vec<(Figure, String)> = figures::all(&records)
        .into_iter()
        .map(|figure| {
            let svg = plot::svg(&figure)?;
            Ok((figure, svg))
        })
        .collect::<Result<_, Failure>>()?;

    let mut files = Vec::new();
    if let Some(folder) = &args.svg {
        std::fs::create_dir_all(folder).map_err(|error| refused("--svg", folder, &error))?;
        for (figure, svg) in &drawn {
            let file = folder.join(format!("{}.svg", figure.name));
            put("--svg", &file, svg)?;
            screen.line(&file.display());
            files.push(file);
        }
    }
    if let Some(page) = &page {
        put(
            "--output",
            page,
            &page::html(&args.title, &records, &drawn)?,
        )?;
        screen.line(&page.display());
    }
    let written = Written {
        event: "report",
        page: page.map(|page| page.display().to_string()),
        figures: files
            .iter()
            .map(|file| file.display().to_string())
            .collect(),
        timings: records.timings.len(),
        trainings: records.trainings.len(),
        unknown_events: records.unknown,
    };
    json.write(&written)?;
    json.finish()
}

/// Runs a small benchmark and the comparison of precisions, by this very program, and reads what they write.
fn measure(records: &mut Records, device: DeviceName, stop: &AtomicBool) -> Result<(), Failure> {
    const COMMANDS: [&[&str]; 2] = [
        &[
            "bench",
            "spmm",
            "--graph",
            "kron:14",
            "--features",
            "16,32,64,128",
        ],
        &["demo", "--epochs", "40"],
    ];
    let failed = |error: io::Error| Failure::Run(format!("--run: {error}"));
    let program = std::env::current_exe().map_err(failed)?;
    let folder = tempfile::tempdir().map_err(failed)?;
    let device = device.to_possible_value();
    let device = device.as_ref().map_or("auto", |name| name.get_name());
    for arguments in COMMANDS {
        let file = folder.path().join(format!("{}.jsonl", arguments[0]));
        let mut command = Command::new(&program);
        command.args(arguments).args(["--device", device, "--json"]);
        // Their lines for a person are not what was asked for here.
        command.arg(&file).stdout(io::stderr());
        let status = command.status().map_err(failed)?;
        if !status.success() {
            return Err(Failure::Run(format!(
                "--run: `halfgnn {}` failed ({status})",
                arguments.join(" ")
            )));
        }
        records.read(&file)?;
        if stop.load(Ordering::Relaxed) {
            break;
        }
    }
    Ok(())
}

/// Writes a whole file or nothing.
fn put(flag: &str, place: &Path, text: &str) -> Result<(), Failure> {
    file::write(place, text.as_bytes()).map_err(|error| refused(flag, place, &error))
}

fn refused(flag: &str, place: &Path, error: &io::Error) -> Failure {
    Failure::Input(format!(
        "{flag} {}: cannot be written: {error}; name a place that can be",
        place.display()
    ))
}
