//! `--plot`: loss and metric by epoch.

use crate::failure::Failure;
use crate::outputs::Outputs;
use crate::report::{Data, Figure, Lines, Point, column_svg};
use halfgnn::file;
use halfgnn::metrics::Metric;
use halfgnn::train::{EpochReport, Split};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// What is plotted of an epoch.
type Value<'a> = &'a dyn Fn(&EpochReport) -> f64;

/// The epochs of runs, and where their curves go.
#[derive(Debug)]
pub struct Curves {
    path: PathBuf,
    epochs: BTreeMap<u32, Vec<EpochReport>>,
}

impl Curves {
    /// Curves that will be at `path`; that they can be is found out now.
    pub fn new(path: &Path, outputs: &mut Outputs) -> Result<Self, Failure> {
        let refuse = |reason: &dyn std::fmt::Display| {
            Failure::Input(format!("--plot {}: {reason}", path.display()))
        };
        if !path
            .extension()
            .is_some_and(|extension| extension.eq_ignore_ascii_case("svg"))
        {
            return Err(refuse(
                &"curves are drawn as SVG; give the file the extension .svg",
            ));
        }
        outputs.file("--plot", path)?;
        Ok(Self {
            path: path.to_owned(),
            epochs: BTreeMap::new(),
        })
    }

    /// Takes note of an epoch.
    pub fn add(&mut self, report: &EpochReport) {
        self.epochs.entry(report.epoch).or_default().push(*report);
    }

    /// Draws them, under `title`; the loss is called `loss`.
    pub fn finish(self, title: &str, loss: &str) -> Result<(), Failure> {
        let score = |split| move |report: &EpochReport| report.score.of(split);
        let first = self.epochs.values().flatten().next();
        let metric = first.map_or(Metric::default(), |report| report.score.metric);
        let name = match metric {
            Metric::Accuracy => "Accuracy".to_owned(),
            other => other.to_string(),
        };
        let unit = if metric.is_percent() { " (%)" } else { "" };
        let figures = [
            self.figure(
                format!("Loss, {title}"),
                loss,
                &[("training", &|report| report.loss.into())],
            ),
            self.figure(
                format!("{name}, {title}"),
                &format!("{metric}{unit}"),
                &[
                    ("training", &score(Split::Train)),
                    ("validation", &score(Split::Validation)),
                    ("test", &score(Split::Test)),
                ],
            ),
        ];
        file::write(&self.path, column_svg(&figures)?.as_bytes())
            .map_err(|error| Failure::Run(format!("--plot {}: {error}", self.path.display())))
    }

    fn figure(&self, title: String, unit: &str, series: &[(&str, Value<'_>)]) -> Figure {
        let series = series
            .iter()
            .map(|&(name, value)| (name.to_owned(), self.curve(value)))
            .filter(|(_, points)| !points.is_empty())
            .collect();
        Figure {
            name: String::new(),
            title,
            caption: String::new(),
            data: Data::Lines(Lines {
                x: "epoch".into(),
                y: unit.into(),
                series,
                ..Lines::default()
            }),
        }
    }

    /// Mean, least and most of a value over the runs that came to each epoch, where it is a number.
    fn curve(&self, value: Value<'_>) -> Vec<Point> {
        self.epochs
            .iter()
            .filter_map(|(&epoch, reports)| {
                let values: Vec<f64> = reports
                    .iter()
                    .map(value)
                    .filter(|v| v.is_finite())
                    .collect();
                Point::of(epoch.into(), &values)
            })
            .collect()
    }
}
