//! `--csv`: a row an epoch.

use super::{SPLITS, scores};
use crate::failure::Failure;
use halfgnn::train::EpochReport;
use std::fs::File;
use std::path::{Path, PathBuf};

/// The file, and whether its first line stands.
#[derive(Debug)]
pub struct Table {
    path: PathBuf,
    rows: csv::Writer<File>,
    headed: bool,
}

impl Table {
    pub fn create(path: &Path) -> Result<Self, Failure> {
        let file = File::create(path).map_err(|error| {
            Failure::Input(format!(
                "--csv {}: cannot be written: {error}; name a file in a folder that can be",
                path.display()
            ))
        })?;
        Ok(Self {
            path: path.to_owned(),
            rows: csv::Writer::from_writer(file),
            headed: false,
        })
    }

    pub fn epoch(&mut self, model: &str, seed: u64, report: &EpochReport) -> Result<(), Failure> {
        let written = self.write(model, seed, report);
        written.map_err(|error| {
            Failure::Run(format!(
                "--csv {}: cannot be written: {error}",
                self.path.display()
            ))
        })
    }

    fn write(&mut self, model: &str, seed: u64, report: &EpochReport) -> csv::Result<()> {
        if !self.headed {
            self.headed = true;
            let mut names: Vec<String> = ["model", "seed", "epoch", "loss", "learning_rate"]
                .map(Into::into)
                .into();
            for score in scores(report) {
                names.extend(SPLITS.map(|(split, _)| format!("{split} {}", score.metric)));
            }
            names.extend(["ms", "loss_scale", "skipped_steps"].map(Into::into));
            self.rows.write_record(names)?;
        }
        // A number that is not finite is an empty cell, as pandas reads it.
        let number = |value: f64| match value.is_finite() {
            true => value.to_string(),
            false => String::new(),
        };
        let single = |value: f32| match value.is_finite() {
            true => value.to_string(),
            false => String::new(),
        };
        let mut cells = vec![
            model.to_owned(),
            seed.to_string(),
            report.epoch.to_string(),
            single(report.loss),
            single(report.learning_rate),
        ];
        for score in scores(report) {
            cells.extend(SPLITS.map(|(_, split)| number(score.of(split))));
        }
        cells.push(number(report.ms));
        cells.push(single(report.optimizer.loss_scale));
        cells.push(report.optimizer.skipped.to_string());
        self.rows.write_record(cells)?;
        Ok(self.rows.flush()?)
    }
}
