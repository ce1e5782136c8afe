//! Options of `halfgnn report`.

use crate::names::DeviceName;
use clap::Args;
use std::path::PathBuf;

/// Options of `report`.
#[derive(Args)]
pub struct ReportArgs {
    /// Files that --json of bench, train or demo wrote; `-` is stdin
    #[arg(value_name = "FILE", required_unless_present = "run")]
    pub files: Vec<PathBuf>,
    /// Also run a small benchmark and the demo, now and here
    #[arg(long)]
    pub run: bool,
    /// Where --run runs; auto takes a GPU if one can be used, else the CPU
    #[arg(long, value_enum, default_value_t = DeviceName::Auto)]
    pub device: DeviceName,
    /// The page [default: report.html, or none with --svg alone]
    #[arg(long, short, value_name = "FILE")]
    pub output: Option<PathBuf>,
    /// Write each figure as an SVG file into DIR
    #[arg(long, value_name = "DIR")]
    pub svg: Option<PathBuf>,
    /// What stands over the page
    #[arg(long, value_name = "TEXT", default_value = "HalfGNN report")]
    pub title: String,
    /// Write what was written as JSON to FILE, or to stdout for `-`
    #[arg(long, value_name = "FILE|-")]
    pub json: Option<PathBuf>,
}
