//! `halfgnn dataset download --print`.

use super::DownloadArgs;
use crate::failure::Failure;
use crate::json::JsonLines;
use crate::screen::Page;
use halfgnn::data::{DATA_VARIABLE, Published};
use serde::Serialize;
use std::path::PathBuf;

/// A known dataset.
#[derive(Debug, Serialize)]
struct PublishedEvent {
    event: &'static str,
    name: &'static str,
    size: &'static str,
    format: &'static str,
    addresses: &'static [&'static str],
    /// Where the files belong.
    files: Vec<String>,
    note: &'static str,
}

/// Prints addresses and places.
pub fn run(args: &DownloadArgs) -> Result<(), Failure> {
    let mut json = JsonLines::open(args.json.as_deref())?;
    let mut page = Page::new(json.is_stdout());
    let root = std::env::var_os(DATA_VARIABLE).map(PathBuf::from);
    let place = |file: &&str| match &root {
        Some(root) => root.join(file).display().to_string(),
        None => format!("${DATA_VARIABLE}/{file}"),
    };
    let known: Vec<&Published> = match &args.name {
        None => Published::ALL.iter().collect(),
        Some(name) => vec![Published::named(name).ok_or_else(|| {
            let names: Vec<_> = Published::ALL.iter().map(|known| known.name).collect();
            Failure::Input(format!(
                "'{name}' is not known; there are {}",
                names.join(", ")
            ))
        })?],
    };
    if root.is_none() {
        page.line(&format_args!(
            "{DATA_VARIABLE} is not set; let it name the folder of datasets: export {DATA_VARIABLE}=~/datasets\n"
        ));
    }
    for known in known {
        let published = PublishedEvent {
            event: "published",
            name: known.name,
            size: known.size,
            format: known.format.name(),
            addresses: known.addresses,
            files: known.files.iter().map(place).collect(),
            note: known.note,
        };
        page.line(&format_args!("{} ({})", known.name, known.size));
        known
            .addresses
            .iter()
            .for_each(|address| page.line(address));
        for file in &published.files {
            page.line(&format_args!("  to   {file}"));
        }
        page.line(&format_args!("  note {}\n", known.note));
        json.write(&published)?;
    }
    json.finish()
}
