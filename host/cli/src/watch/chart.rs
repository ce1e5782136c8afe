//! `--watch`: loss and metric so far, as text.

use halfgnn::metrics::Metric;
use halfgnn::train::{EpochReport, Split};
use std::fmt;
use textplots::{Chart as Plot, Plot as _, Shape};

/// Dots across and down; two columns of four of them are one letter.
const DOTS: (u32, u32) = (120, 40);

/// The epochs of a run.
#[derive(Debug, Default)]
pub struct Chart {
    metric: Metric,
    loss: Vec<(f32, f32)>,
    train: Vec<(f32, f32)>,
    validation: Vec<(f32, f32)>,
}

impl Chart {
    pub fn add(&mut self, report: &EpochReport) {
        self.metric = report.score.metric;
        let epoch = report.epoch as f32;
        let mut put = |points: fn(&mut Self) -> &mut Vec<(f32, f32)>, value: f64| {
            if value.is_finite() {
                points(self).push((epoch, value as f32));
            }
        };
        put(|chart| &mut chart.loss, report.loss.into());
        put(|chart| &mut chart.train, report.score.of(Split::Train));
        put(
            |chart| &mut chart.validation,
            report.score.of(Split::Validation),
        );
    }
}

impl fmt::Display for Chart {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        plot(f, "loss", &[&self.loss])?;
        let unit = if self.metric.is_percent() { " (%)" } else { "" };
        let title = format!("{}{unit}, training and validation", self.metric);
        plot(f, &title, &[&self.train, &self.validation])
    }
}

/// Lines under a title; nothing before there are two points.
fn plot(f: &mut fmt::Formatter<'_>, title: &str, lines: &[&[(f32, f32)]]) -> fmt::Result {
    let last = lines
        .iter()
        .filter_map(|line| line.last())
        .map(|point| point.0);
    let last = last.fold(0.0, f32::max);
    let first = lines
        .iter()
        .filter_map(|line| line.first())
        .map(|point| point.0);
    let first = first.fold(last, f32::min);
    if first >= last {
        return Ok(());
    }
    let shapes: Vec<Shape<'_>> = lines.iter().map(|line| Shape::Lines(line)).collect();
    let mut plot = Plot::new(DOTS.0, DOTS.1, first, last);
    let plot = shapes
        .iter()
        .fold(&mut plot, |plot, shape| plot.lineplot(shape));
    plot.axis();
    plot.figures();
    write!(f, "\n{title}\n{plot}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_falling_loss_falls() {
        let points: Vec<(f32, f32)> = (1..=50)
            .map(|i| (i as f32, 2.0 - i as f32 / 50.0))
            .collect();
        let chart = Chart {
            loss: points,
            ..Chart::default()
        };
        let text = chart.to_string();
        let rows: Vec<&str> = text.lines().collect();
        assert_eq!(rows[1], "loss", "{text}");
        // The range stands at the right, the epochs below.
        assert!(
            text.contains("2.0") && text.contains("1.0") && text.contains("50.0"),
            "{text}"
        );
        let ink = |row: &str| {
            row.chars()
                .position(|c| ('\u{2801}'..='\u{28ff}').contains(&c))
        };
        let (top, bottom) = (ink(rows[2]).unwrap(), rows[11]);
        assert!(top < 3, "{text}");
        assert!(bottom.chars().count() >= 60, "{text}");
        assert!(
            !text.contains("training"),
            "nothing was told of a metric: {text}"
        );
    }
}
