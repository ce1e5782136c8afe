//! The page: tables and figures in one HTML file that loads nothing.

use super::figures::Figure;
use super::records::{Records, Source, Timing, Training};
use crate::failure::Failure;
use crate::screen::{bytes, count, rate};
use minijinja::value::Serde;
use minijinja::{AutoEscape, Environment, UndefinedBehavior};
use serde::Serialize;

const TEMPLATE: &str = include_str!("page.html");

/// A table: names of columns, and rows of as many cells.
#[derive(Debug, Serialize)]
struct Table {
    title: &'static str,
    columns: Vec<&'static str>,
    rows: Vec<Vec<String>>,
}

/// A figure, plotted.
#[derive(Debug, Serialize)]
struct Drawing<'a> {
    title: &'a str,
    caption: &'a str,
    svg: &'a str,
}

/// What a command is called on the page, and what the page has of it.
#[derive(Debug, Serialize)]
struct Origin {
    number: usize,
    command: String,
    details: Vec<String>,
}

/// What the template is given.
#[derive(Debug, Serialize)]
struct Content<'a> {
    title: &'a str,
    version: &'static str,
    drawings: Vec<Drawing<'a>>,
    tables: Vec<Table>,
    origins: Vec<Origin>,
    unknown: usize,
}

/// The page as HTML.
pub fn html(
    title: &str,
    records: &Records,
    figures: &[(Figure, String)],
) -> Result<String, Failure> {
    let mut engine = Environment::new();
    engine.set_auto_escape_callback(|_| AutoEscape::Html);
    engine.set_undefined_behavior(UndefinedBehavior::Strict);
    let broken = |error: minijinja::Error| Failure::Run(format!("the report's template: {error}"));
    engine.add_template("page", TEMPLATE).map_err(broken)?;
    let content = Content {
        title,
        version: env!("CARGO_PKG_VERSION"),
        drawings: figures
            .iter()
            .map(|(figure, svg)| Drawing {
                title: &figure.title,
                caption: &figure.caption,
                svg,
            })
            .collect(),
        tables: [trainings(&records.trainings), timings(&records.timings)]
            .into_iter()
            .filter(|table| !table.rows.is_empty())
            .collect(),
        origins: records.sources.iter().enumerate().map(origin).collect(),
        unknown: records.unknown,
    };
    engine
        .get_template("page")
        .and_then(|page| page.render(Serde(&content)))
        .map_err(broken)
}

fn origin((index, source): (usize, &Source)) -> Origin {
    let mut details = Vec::new();
    let cards: Vec<&str> = source.gpus.iter().map(|gpu| gpu.name.as_str()).collect();
    if !cards.is_empty() {
        let mut line = cards.join(", ");
        if let Some(driver) = &source.driver {
            line.push_str(&format!(", driver {driver}"));
        }
        if let Some(cuda) = &source.cuda {
            line.push_str(&format!(" (CUDA {cuda})"));
        }
        details.push(line);
    }
    if let Some(cpu) = &source.cpu {
        let threads = source
            .threads
            .map(|threads| format!(", {threads} threads"))
            .unwrap_or_default();
        details.push(format!("{cpu}{threads}"));
    }
    if let Some(version) = &source.version {
        details.push(format!("halfgnn {version}"));
    }
    if !source.environment.is_empty() {
        details.push(source.environment.join(" "));
    }
    details.push(format!("from {}", source.file));
    Origin {
        number: index + 1,
        command: source
            .command
            .clone()
            .unwrap_or_else(|| "not told".to_owned()),
        details,
    }
}

/// A number as the page has it, or a dash.
fn number(value: Option<f64>, digits: usize) -> String {
    value.map_or_else(|| "–".to_owned(), |value| format!("{value:.digits$}"))
}

fn text(value: Option<&str>) -> String {
    value.unwrap_or("–").to_owned()
}

fn trainings(trainings: &[Training]) -> Table {
    let row = |training: &Training| {
        let summary = training.summary.as_ref()?;
        let accuracy = match (summary.test_accuracy, summary.test_accuracy_std) {
            (Some(mean), Some(deviation)) if summary.runs.is_some_and(|runs| runs > 1) => {
                format!("{mean:.2} ± {deviation:.2}")
            }
            (mean, _) => number(mean, 2),
        };
        Some(vec![
            text(training.dataset.as_deref()),
            training.label(),
            text(summary.device.as_deref()),
            text(summary.status.as_deref()),
            summary
                .runs
                .map_or_else(|| "–".to_owned(), |runs| runs.to_string()),
            accuracy,
            number(summary.test_accuracy_last, 2),
            number(summary.ms_per_epoch, 3),
            summary.peak_bytes.map_or_else(|| "–".to_owned(), bytes),
            format!("[{}]", training.source + 1),
        ])
    };
    Table {
        title: "Training",
        columns: vec![
            "graph",
            "model",
            "device",
            "ended",
            "runs",
            "test accuracy, best validation (%)",
            "at the last epoch (%)",
            "ms an epoch",
            "peak memory",
            "command",
        ],
        rows: trainings.iter().filter_map(row).collect(),
    }
}

fn timings(timings: &[Timing]) -> Table {
    let row = |timing: &Timing| {
        let size = |value: Option<u64>| {
            let value = value.and_then(|value| usize::try_from(value).ok());
            value.map_or_else(|| "–".to_owned(), count)
        };
        let range = match (timing.ms_fastest, timing.ms_slowest) {
            (Some(fastest), Some(slowest)) => format!("{fastest:.4} to {slowest:.4}"),
            _ => "–".to_owned(),
        };
        let faster = timing.ratios();
        let faster = faster
            .iter()
            .map(|(peer, ratio)| format!("{ratio:.2} × {peer}"));
        let smaller = timing.memory_ratios();
        let smaller = smaller
            .iter()
            .map(|(peer, ratio)| format!("{ratio:.1} × less memory than {peer}"));
        let ratios: Vec<String> = faster.chain(smaller).collect();
        vec![
            match &timing.model {
                Some(model) => format!("{} {model}", timing.operator),
                None => timing.operator.clone(),
            },
            timing.graph.clone(),
            size(timing.edges),
            timing
                .features
                .map_or_else(|| "–".to_owned(), |features| features.to_string()),
            text(timing.precision.as_deref()),
            text(timing.policy.as_deref()),
            text(Some(timing.device.as_str()).filter(|device| !device.is_empty())),
            number(timing.ms, 4),
            range,
            number(timing.gib, 3),
            text(timing.gathered_tb_per_s.map(rate).as_deref()),
            timing
                .largest_error
                .map_or_else(|| "–".to_owned(), |error| format!("{error:.1e}")),
            if ratios.is_empty() {
                "–".to_owned()
            } else {
                ratios.join("; ")
            },
            format!("[{}]", timing.source + 1),
        ]
    };
    Table {
        title: "Times",
        columns: vec![
            "operator",
            "graph",
            "edges",
            "F",
            "precision",
            "sums",
            "device",
            "ms",
            "fastest to slowest",
            "peak GiB",
            "gathered",
            "error",
            "times as fast",
            "command",
        ],
        rows: timings.iter().map(row).collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::figures::{Data, Spread};

    #[test]
    fn the_page_is_alone_and_escapes_what_it_is_given() {
        let records = Records {
            sources: vec![Source {
                file: "<a>.jsonl".into(),
                command: Some("halfgnn bench --graph 'x & y'".into()),
                ..Source::default()
            }],
            timings: vec![Timing {
                operator: "spmm".into(),
                graph: "<script>".into(),
                ms: Some(1.5),
                ..Timing::default()
            }],
            ..Records::default()
        };
        let figure = Figure {
            name: "f".into(),
            title: "Speed & more".into(),
            caption: "a < b".into(),
            data: Data::Spread(Spread::default()),
        };
        let page = html(
            "My report",
            &records,
            &[(figure, "<svg>drawn</svg>".into())],
        )
        .unwrap();
        for part in [
            "<title>My report</title>",
            "<svg>drawn</svg>",
            "Speed &amp; more",
            "a &lt; b",
            "&lt;script&gt;",
            "halfgnn bench --graph &#x27;x &amp; y&#x27;",
            "from &lt;a&gt;.jsonl",
            "1.5000",
            "[1]",
        ] {
            assert!(page.contains(part), "`{part}` is not in {page}");
        }
        for foreign in ["http://", "https://", "<script", "src=", "@import"] {
            assert!(!page.contains(foreign), "{foreign}");
        }
        assert!(!page.contains("<h2>Training</h2>"));
    }
}
