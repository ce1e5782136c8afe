//! Which figures follow from the records: data alone, plotted by `plot`.

mod timings;
mod trainings;

use super::records::Records;
use timings::{FASTER, SMALLER, half_against_float, ratios, rooflines, step_memory};
use trainings::{accuracies, curves, loss_unit, memory};

/// A figure: its title and what is plotted.
#[derive(Debug, PartialEq)]
pub struct Figure {
    /// A name for a file.
    pub name: String,
    /// One line over it.
    pub title: String,
    /// What it shows and how to read it.
    pub caption: String,
    /// The data.
    pub data: Data,
}

/// What is plotted.
#[derive(Debug, PartialEq)]
pub enum Data {
    /// Bars side by side, a group for each graph.
    Bars(Bars),
    /// Curves.
    Lines(Lines),
    /// Bars upon each other.
    Stack(Bars),
    /// A point for each run, and mean and deviation of each group.
    Spread(Spread),
}

/// Values by group and series.
#[derive(Debug, Default, PartialEq)]
pub struct Bars {
    /// What the values are.
    pub unit: String,
    /// Names under the axis.
    pub groups: Vec<String>,
    /// Names in the legend, each with a value a group.
    pub series: Vec<(String, Vec<Option<f64>>)>,
    /// A line across, at this value.
    pub reference: Option<f64>,
}

/// Curves over one axis.
#[derive(Debug, Default, PartialEq)]
pub struct Lines {
    /// What the horizontal axis is.
    pub x: String,
    /// What the vertical axis is.
    pub y: String,
    /// Whether the horizontal axis doubles at each step.
    pub doubling: bool,
    /// Names in the legend, each with its points.
    pub series: Vec<(String, Vec<Point>)>,
    /// A line across with its name.
    pub ceiling: Option<(String, f64)>,
}

/// A point of a curve, with the range that it stands for.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Point {
    /// Where.
    pub x: f64,
    /// The mean.
    pub y: f64,
    /// The least.
    pub low: f64,
    /// The most.
    pub high: f64,
}

impl Point {
    /// Mean and range of values at `x`; none of no values.
    pub fn of(x: f64, values: &[f64]) -> Option<Self> {
        (!values.is_empty()).then(|| Self {
            x,
            y: mean(values),
            low: values.iter().copied().fold(f64::INFINITY, f64::min),
            high: values.iter().copied().fold(f64::NEG_INFINITY, f64::max),
        })
    }
}

/// Values of runs by group.
#[derive(Debug, Default, PartialEq)]
pub struct Spread {
    /// What the values are.
    pub unit: String,
    /// Names under the axis, each with the value of each run.
    pub groups: Vec<(String, Vec<f64>)>,
}

/// Every figure that the records have data for.
pub fn all(records: &Records) -> Vec<Figure> {
    let mut figures = Vec::new();
    figures.extend(ratios(records, &FASTER));
    figures.extend(ratios(records, &SMALLER));
    figures.extend(half_against_float(records));
    figures.extend(step_memory(records));
    figures.extend(rooflines(records));
    figures.extend(curves(
        records,
        "accuracy",
        "Test accuracy by epoch",
        |_| "test accuracy (%)".into(),
        |epoch| epoch.test_accuracy,
    ));
    figures.extend(curves(
        records,
        "loss",
        "Training loss by epoch",
        loss_unit,
        |epoch| epoch.loss,
    ));
    figures.extend(accuracies(records));
    figures.extend(memory(records));
    figures
}

/// The distinct values of `of`, in the order in which they come.
fn distinct<'a, T: 'a, K: PartialEq>(
    items: impl IntoIterator<Item = &'a T>,
    of: impl Fn(&'a T) -> K,
) -> Vec<K> {
    let mut seen = Vec::new();
    for item in items {
        let key = of(item);
        if !seen.contains(&key) {
            seen.push(key);
        }
    }
    seen
}

fn mean(values: &[f64]) -> f64 {
    values.iter().sum::<f64>() / values.len().max(1) as f64
}

/// Words as the name of a file: lower case, hyphens.
fn file_name(words: &[&str]) -> String {
    let text = words.join("-").to_lowercase();
    let parts: Vec<&str> = text
        .split(|c: char| !c.is_ascii_alphanumeric())
        .filter(|part| !part.is_empty())
        .collect();
    parts.join("-")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_gives_no_figure() {
        assert_eq!(all(&Records::default()), []);
        assert_eq!(
            file_name(&["speedup", "SpMM", "cuSPARSE half (COO)"]),
            "speedup-spmm-cusparse-half-coo"
        );
    }
}
