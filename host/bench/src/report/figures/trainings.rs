//! Figures of trainings: curves, accuracies, memory.

use super::{Bars, Data, Figure, Lines, Point, Spread, distinct, file_name};
use crate::report::records::{Epoch, Records, Training};
use std::collections::BTreeMap;

/// The kinds of memory, in the order in which they are stacked, as `--json` names them.
const KINDS: [&str; 5] = ["graph", "features", "activations", "weights", "workspace"];

/// Trainings of one graph, by graph; those whose graph is not named make a group of their own for each command.
fn by_dataset(records: &Records) -> Vec<(String, Vec<&Training>)> {
    let key = |training: &Training| match &training.dataset {
        Some(dataset) => (dataset.clone(), None),
        None => ("synthetic".to_owned(), Some(training.source)),
    };
    distinct(&records.trainings, key)
        .into_iter()
        .map(|wanted| {
            let trainings = records
                .trainings
                .iter()
                .filter(|training| key(training) == wanted)
                .collect();
            (wanted.0, trainings)
        })
        .collect()
}

/// One figure a graph: a value of each epoch, mean and range over the seeds.
pub(super) fn curves(
    records: &Records,
    name: &str,
    title: &str,
    unit: impl Fn(&[&Training]) -> String,
    value: impl Fn(&Epoch) -> Option<f64>,
) -> Vec<Figure> {
    let mut figures = Vec::new();
    for (dataset, trainings) in by_dataset(records) {
        let series: Vec<(String, Vec<Point>)> = trainings
            .iter()
            .map(|training| (training.label(), curve(training, &value)))
            .filter(|(_, points)| points.len() > 1)
            .collect();
        if series.is_empty() {
            continue;
        }
        figures.push(Figure {
            name: file_name(&[name, &dataset]),
            title: format!("{title}, {dataset}"),
            caption: "A curve is the mean over the seeds, the band reaches from the lowest to the highest. A curve that ends early is of a training whose loss was not a number."
                .into(),
            data: Data::Lines(Lines {
                x: "epoch".into(),
                y: unit(&trainings),
                series,
                ..Lines::default()
            }),
        });
    }
    figures
}

/// What losses are, where all trainings say the same.
pub(super) fn loss_unit(trainings: &[&Training]) -> String {
    let losses = distinct(trainings.iter().copied(), |training| &training.loss);
    match losses[..] {
        [Some(loss)] => format!("loss (mean {loss})"),
        _ => "loss".into(),
    }
}

/// Mean, least and most of a value over the seeds, by epoch.
fn curve(training: &Training, value: impl Fn(&Epoch) -> Option<f64>) -> Vec<Point> {
    let mut by_epoch: BTreeMap<u32, Vec<f64>> = BTreeMap::new();
    for epoch in training.runs.values().flatten() {
        if let Some(value) = value(epoch).filter(|value| value.is_finite()) {
            by_epoch.entry(epoch.epoch).or_default().push(value);
        }
    }
    by_epoch
        .into_iter()
        .filter_map(|(epoch, values)| Point::of(epoch.into(), &values))
        .collect()
}

/// One figure a graph with several seeds: the accuracy of each run.
pub(super) fn accuracies(records: &Records) -> Vec<Figure> {
    let mut figures = Vec::new();
    for (dataset, trainings) in by_dataset(records) {
        let groups: Vec<(String, Vec<f64>)> = trainings
            .iter()
            .map(|training| {
                let values = training.accuracies.values().copied();
                (training.label(), values.collect())
            })
            .filter(|(_, values): &(String, Vec<f64>)| !values.is_empty())
            .collect();
        if groups.iter().all(|(_, values)| values.len() < 2) {
            continue;
        }
        figures.push(Figure {
            name: file_name(&["accuracy-of-runs", &dataset]),
            title: format!("Test accuracy of each run, {dataset}"),
            caption: "At the best validation epoch: a point for each seed, a line for the mean, a bar for one standard deviation either side."
                .into(),
            data: Data::Spread(Spread {
                unit: "test accuracy (%)".into(),
                groups,
            }),
        });
    }
    figures
}

/// One figure a graph: memory at its peak, by kind.
pub(super) fn memory(records: &Records) -> Vec<Figure> {
    const MIB: f64 = 1024.0 * 1024.0;
    let mut figures = Vec::new();
    for (dataset, trainings) in by_dataset(records) {
        let told: Vec<(String, &BTreeMap<String, f64>)> = trainings
            .iter()
            .filter_map(|training| {
                let kinds = &training.summary.as_ref()?.peak_bytes_by_kind;
                (!kinds.is_empty()).then(|| (training.label(), kinds))
            })
            .collect();
        if told.is_empty() {
            continue;
        }
        let mut kinds: Vec<&str> = KINDS.to_vec();
        let others = told.iter().flat_map(|(_, kinds)| kinds.keys());
        kinds.extend(distinct(others, |kind| kind.as_str()));
        let kinds = distinct(&kinds, |kind| *kind);
        let series = kinds
            .iter()
            .map(|kind| {
                let values = told
                    .iter()
                    .map(|(_, kinds)| kinds.get(*kind).map(|bytes| bytes / MIB));
                ((*kind).to_owned(), values.collect())
            })
            .collect();
        figures.push(Figure {
            name: file_name(&["memory", &dataset]),
            title: format!("Memory at its peak, {dataset}"),
            caption: "The most bytes of each kind. Kinds need not be at their peak at one moment, so a bar may be higher than the peak of all."
                .into(),
            data: Data::Stack(Bars {
                unit: "MiB".into(),
                groups: told.into_iter().map(|(label, _)| label).collect(),
                series,
                reference: None,
            }),
        });
    }
    figures
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_curve_is_mean_and_range_over_seeds_and_ends_with_the_numbers() {
        let epoch = |epoch, loss| Epoch {
            epoch,
            loss,
            test_accuracy: None,
        };
        let training = Training {
            runs: BTreeMap::from([
                (0, vec![epoch(1, Some(1.0)), epoch(2, None)]),
                (1, vec![epoch(1, Some(4.0)), epoch(2, Some(f64::NAN))]),
            ]),
            ..Training::default()
        };
        let squared = Training {
            loss: Some("squared error".into()),
            ..Training::default()
        };
        assert_eq!(
            loss_unit(&[&squared, &squared]),
            "loss (mean squared error)"
        );
        assert_eq!(loss_unit(&[&squared, &training]), "loss");
        let points = curve(&training, |epoch| epoch.loss);
        let only = Point {
            x: 1.0,
            y: 2.5,
            low: 1.0,
            high: 4.0,
        };
        assert_eq!(points, [only]);
    }
}
