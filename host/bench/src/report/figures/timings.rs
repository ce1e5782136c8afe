//! Figures of what `bench` timed.

use super::{Bars, Data, Figure, Lines, Point, distinct, file_name};
use crate::report::records::{Records, Timing};
use crate::screen::LEAST_TERABYTES;
use std::collections::{BTreeMap, BTreeSet};

/// The word for an operator in a title.
fn spelled(operator: &str) -> &str {
    match operator {
        "spmm" => "SpMM",
        "sddmm" => "SDDMM",
        "train" | "bench_train" | "training" => "Training step",
        other => other,
    }
}

/// The word for a peer in a title.
fn peer_spelled(peer: &str) -> String {
    match peer {
        "cusparse" => "cuSPARSE, the better of half and float".into(),
        "gather" => "only gathering the rows".into(),
        other => other
            .replace("cusparse", "cuSPARSE in")
            .replace("dgl", "DGL's way in"),
    }
}

/// What the names of series say, in addition to model and precision: only what distinguishes them.
#[derive(Clone, Copy, Debug)]
struct Naming {
    /// The policy of what is not float, and of what is.
    policy: [bool; 2],
    features: bool,
}

impl Naming {
    /// For a figure of these timings, whose groups are graphs.
    fn of(timings: &[&Timing]) -> Self {
        let policies = |float: bool| {
            let in_precision = timings.iter().copied();
            let in_precision = in_precision.filter(|timing| is_float(timing) == float);
            distinct(in_precision, |timing| timing.policy.as_deref()).len() > 1
        };
        let lengths = |graph: &str| {
            let here = timings.iter().copied();
            distinct(here.filter(|timing| timing.graph == graph), |timing| {
                timing.features
            })
        };
        let graphs = distinct(timings.iter().copied(), |timing| timing.graph.as_str());
        let everywhere = distinct(timings.iter().copied(), |timing| timing.features);
        Self {
            policy: [false, true].map(policies),
            // Where each graph has a length of its own, as datasets have, it distinguishes nothing.
            features: everywhere.len() == 1 || graphs.iter().any(|graph| lengths(graph).len() > 1),
        }
    }

    /// What distinguishes a timing from others on the same graph.
    fn variant(self, timing: &Timing) -> String {
        let mut words: Vec<String> = Vec::new();
        words.extend(timing.model.clone());
        words.extend(timing.precision.clone());
        match timing.policy.as_deref() {
            _ if !self.policy[usize::from(is_float(timing))] => {}
            Some("half" | "discretized-half") => words.push("sums in half2".into()),
            Some("float" | "discretized-float") => words.push("sums in float".into()),
            other => words.extend(other.map(str::to_owned)),
        }
        if let (true, Some(features)) = (self.features, timing.features) {
            words.push(format!("F={features}"));
        }
        words.join(", ")
    }
}

fn is_float(timing: &Timing) -> bool {
    timing.precision.as_deref() == Some("float")
}

/// Values by name, each with one a group.
type Series = Vec<(String, Vec<Option<f64>>)>;

/// Puts a value under a name, in a group that is one of `groups`.
fn put(series: &mut Series, groups: &[String], name: String, group: &str, value: Option<f64>) {
    let place = series.iter().position(|(known, _)| *known == name);
    let place = place.unwrap_or_else(|| {
        series.push((name, vec![None; groups.len()]));
        series.len() - 1
    });
    if let Some(group) = groups.iter().position(|known| known == group) {
        series[place].1[group] = value;
    }
}

/// A value for each graph and variant; the last where there are several.
fn table(timings: &[&Timing], groups: &[String], value: impl Fn(&Timing) -> Option<f64>) -> Series {
    let naming = Naming::of(timings);
    let mut series = Series::new();
    for timing in timings {
        if let Some(value) = value(timing).filter(|value| value.is_finite() && *value > 0.0) {
            let name = naming.variant(timing);
            put(&mut series, groups, name, &timing.graph, Some(value));
        }
    }
    series
}

/// Timings of one operator, by operator.
fn by_operator(records: &Records) -> impl Iterator<Item = (String, Vec<&Timing>)> {
    distinct(&records.timings, |timing| timing.operator.clone())
        .into_iter()
        .map(|operator| {
            let timings = records
                .timings
                .iter()
                .filter(|timing| timing.operator == operator)
                .collect();
            (operator, timings)
        })
}

/// What is compared with baselines.
pub(super) struct Comparison {
    name: &'static str,
    /// What stands between the operator and the peer in a title.
    title: &'static str,
    caption: &'static str,
    /// What is divided by what.
    quantity: &'static str,
    of: fn(&Timing) -> BTreeMap<String, f64>,
}

pub(super) const FASTER: Comparison = Comparison {
    name: "speedup",
    title: "times faster than",
    caption: "Above 1 is faster. Both were timed on the same graph.",
    quantity: "time",
    of: Timing::ratios,
};

pub(super) const SMALLER: Comparison = Comparison {
    name: "memory-against",
    title: "times less memory than",
    caption: "Above 1 is less: the peak of a training step, of both on the same graph.",
    quantity: "memory",
    of: Timing::memory_ratios,
};

/// One figure an operator and peer, by graph.
pub(super) fn ratios(records: &Records, comparison: &Comparison) -> Vec<Figure> {
    let mut figures = Vec::new();
    for (operator, timings) in by_operator(records) {
        let peers: BTreeSet<String> = timings
            .iter()
            .flat_map(|timing| (comparison.of)(timing).into_keys())
            .collect();
        for peer in peers {
            let ratio = |timing: &Timing| (comparison.of)(timing).get(&peer).copied();
            let compared: Vec<&Timing> = timings
                .iter()
                .copied()
                .filter(|timing| ratio(timing).is_some())
                .collect();
            let groups = distinct(compared.iter().copied(), |timing| timing.graph.clone());
            let series = table(&compared, &groups, ratio);
            let mut bars = Bars {
                unit: format!("their {0} over our {0}", comparison.quantity),
                groups,
                series,
                reference: Some(1.0),
            };
            bars.add_means();
            figures.push(Figure {
                name: file_name(&[comparison.name, &operator, &peer]),
                title: format!(
                    "{}: {} {}",
                    spelled(&operator),
                    comparison.title,
                    peer_spelled(&peer)
                ),
                caption: comparison.caption.into(),
                data: Data::Bars(bars),
            });
        }
    }
    figures
}

impl Bars {
    /// A group with the geometric mean of each series that has a value in every group, where there are several groups.
    fn add_means(&mut self) {
        let count = self.groups.len();
        if count < 2 {
            return;
        }
        let mean = |values: &[Option<f64>]| {
            let logs: Option<Vec<f64>> = values.iter().map(|value| value.map(f64::ln)).collect();
            Some((logs?.iter().sum::<f64>() / count as f64).exp())
        };
        let means: Vec<Option<f64>> = self.series.iter().map(|(_, values)| mean(values)).collect();
        if means.iter().any(Option::is_some) {
            self.groups.push("geometric mean".into());
            for ((_, values), mean) in self.series.iter_mut().zip(means) {
                values.push(mean);
            }
        }
    }
}

/// One figure an operator: float's time over half's, where both were timed on one graph by one command.
pub(super) fn half_against_float(records: &Records) -> Vec<Figure> {
    let mut figures = Vec::new();
    for (operator, timings) in by_operator(records) {
        let fastest_float = |half: &Timing| {
            timings
                .iter()
                .filter(|float| {
                    float.precision.as_deref() == Some("float")
                        && (float.source, &float.graph, float.features, &float.model)
                            == (half.source, &half.graph, half.features, &half.model)
                })
                .filter_map(|float| float.ms)
                .min_by(f64::total_cmp)
        };
        let halves: Vec<&Timing> = timings
            .iter()
            .copied()
            .filter(|timing| timing.precision.as_deref() == Some("half"))
            .filter(|timing| fastest_float(timing).is_some())
            .collect();
        if halves.is_empty() {
            continue;
        }
        let groups = distinct(halves.iter().copied(), |timing| timing.graph.clone());
        let series = table(&halves, &groups, |half| {
            Some(fastest_float(half)? / half.ms?)
        });
        let mut bars = Bars {
            unit: "time in float over time in half".into(),
            groups,
            series,
            reference: Some(1.0),
        };
        bars.add_means();
        figures.push(Figure {
            name: file_name(&["half-against-float", &operator]),
            title: format!("{}: half against our own float", spelled(&operator)),
            caption: "Time in float over time in half; above 1 half is faster. Half moves half the bytes: 2 is what memory alone would give."
                .into(),
            data: Data::Bars(bars),
        });
    }
    figures
}

/// One figure: what a training step takes at its peak, ours and each baseline's, by graph and model.
pub(super) fn step_memory(records: &Records) -> Option<Figure> {
    let told = |timing: &&Timing| timing.gib.is_some();
    let timings: Vec<&Timing> = records.timings.iter().filter(told).collect();
    let group = |timing: &Timing| {
        let words = [Some(timing.graph.clone()), timing.model.clone()];
        words.into_iter().flatten().collect::<Vec<_>>().join(" ")
    };
    let groups = distinct(timings.iter().copied(), group);
    let mut series = Series::new();
    for timing in &timings {
        let name = timing.precision.clone().unwrap_or_default();
        put(&mut series, &groups, name, &group(timing), timing.gib);
    }
    // A baseline's is the same for each of our precisions.
    for timing in &timings {
        for (peer, ratio) in timing.memory_ratios() {
            let theirs = timing.gib.map(|ours| ours * ratio);
            put(&mut series, &groups, peer, &group(timing), theirs);
        }
    }
    (!groups.is_empty()).then(|| Figure {
        name: "memory-train".into(),
        title: "Memory of a training step at its peak".into(),
        caption: "All buffers that are alive at once; what the driver's context takes is in none."
            .into(),
        data: Data::Bars(Bars {
            unit: "GiB".into(),
            groups,
            series,
            reference: None,
        }),
    })
}

/// The most curves in one figure: as many as there are colours.
const MOST_CURVES: usize = 8;

/// A figure an operator: bytes gathered a second by feature length, under what the GPU's memory delivers. Where that is
/// too many curves, a figure for each precision and policy.
pub(super) fn rooflines(records: &Records) -> Vec<Figure> {
    let mut figures = Vec::new();
    for (operator, timings) in by_operator(records) {
        let naming = Naming {
            features: false,
            ..Naming::of(&timings)
        };
        // By variant, then by graph.
        let mut curves: Vec<(String, String, BTreeMap<u32, f64>)> = Vec::new();
        let mut ceiling: Option<(String, f64)> = None;
        for timing in timings {
            let (Some(features), Some(rate)) = (timing.features, timing.gathered_tb_per_s) else {
                continue;
            };
            let variant = naming.variant(timing);
            let same = |(graph, known, _): &(String, String, _)| {
                *graph == timing.graph && *known == variant
            };
            let place = curves.iter().position(same).unwrap_or_else(|| {
                curves.push((timing.graph.clone(), variant, BTreeMap::new()));
                curves.len() - 1
            });
            curves[place].2.insert(features, rate);
            let card = records.sources[timing.source]
                .gpus
                .iter()
                .find(|gpu| gpu.name == timing.device);
            if let Some((card, rate)) = card.and_then(|card| Some((card, card.memory_tb_per_s?))) {
                ceiling.get_or_insert_with(|| (format!("memory of {}", card.name), rate));
            }
        }
        // A curve needs two feature lengths.
        let lengths = curves.iter().flat_map(|(_, _, points)| points.keys());
        if distinct(lengths, |features| *features).len() < 2 {
            continue;
        }
        let rates = curves.iter().flat_map(|(_, _, points)| points.values());
        let most = rates.copied().fold(0.0, f64::max);
        let most = ceiling.iter().map(|(_, rate)| *rate).fold(most, f64::max);
        let (unit, times) = match most < LEAST_TERABYTES {
            true => ("gathered GB/s", 1e3),
            false => ("gathered TB/s", 1.0),
        };
        let mut figure = |variant: Option<&str>| {
            let chosen = curves
                .iter()
                .filter(|(_, known, _)| variant.is_none_or(|variant| variant == known));
            let series = chosen.map(|(graph, known, points)| {
                let name = match variant {
                    Some(_) => graph.clone(),
                    None => format!("{graph}, {known}"),
                };
                let points = points
                    .iter()
                    .map(|(&features, &rate)| exact(features, rate * times));
                (name, points.collect())
            });
            let of_variant = variant.map_or(String::new(), |variant| format!(", {variant}"));
            figures.push(Figure {
                name: file_name(&["roofline", &operator, variant.unwrap_or_default()]),
                title: format!(
                    "{}: bytes gathered a second{of_variant}",
                    spelled(&operator)
                ),
                caption: "Each edge's indices and its rows, over the time. Above the memory's own rate, rows come from the caches."
                    .into(),
                data: Data::Lines(Lines {
                    x: "feature length F".into(),
                    y: unit.into(),
                    doubling: true,
                    series: series.collect(),
                    ceiling: ceiling.clone().map(|(name, rate)| (name, rate * times)),
                }),
            });
        };
        if curves.len() <= MOST_CURVES {
            figure(None);
        } else {
            for variant in distinct(&curves, |(_, variant, _)| variant.as_str()) {
                figure(Some(variant));
            }
        }
    }
    figures
}

/// A point that stands for itself.
fn exact(x: u32, y: f64) -> Point {
    Point {
        x: x.into(),
        y,
        low: y,
        high: y,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::figures::all;
    use crate::report::records::Source;

    fn timing(graph: &str, precision: &str, features: u32, ms: f64) -> Timing {
        Timing {
            operator: "spmm".into(),
            graph: graph.into(),
            precision: Some(precision.into()),
            features: Some(features),
            ms: Some(ms),
            gathered_tb_per_s: Some(1.0 / ms),
            ..Timing::default()
        }
    }

    fn records(timings: Vec<Timing>) -> Records {
        Records {
            sources: vec![Source::default()],
            timings,
            ..Records::default()
        }
    }

    #[test]
    fn half_is_set_against_the_float_of_the_same_graph_and_length() {
        let figures = all(&records(vec![
            timing("a", "half", 32, 1.0),
            timing("a", "float", 32, 1.5),
            timing("a", "half", 64, 1.0),
            timing("a", "float", 64, 3.0),
            timing("b", "half", 64, 2.0),
            timing("b", "float", 64, 5.0),
            timing("c", "half", 64, 2.0),
            timing("c", "float", 32, 5.0),
        ]));
        let Data::Bars(bars) = &figures[0].data else {
            panic!("{figures:?}")
        };
        assert_eq!(figures[0].name, "half-against-float-spmm");
        assert_eq!(bars.groups, ["a", "b", "geometric mean"]);
        let series = bars.series.iter();
        let series: Vec<_> = series
            .map(|(name, values)| (&name[..], &values[..2]))
            .collect();
        assert_eq!(
            series,
            [
                ("half, F=32", &[Some(1.5), None][..]),
                ("half, F=64", &[Some(3.0), Some(2.5)]),
            ]
        );
        let Data::Lines(lines) = &figures[1].data else {
            panic!("{figures:?}")
        };
        assert_eq!(lines.series.len(), 6);
        assert_eq!(lines.ceiling, None);
        assert_eq!(lines.y, "gathered TB/s");
    }

    #[test]
    fn rates_of_a_cpu_are_in_gigabytes() {
        let figures = all(&records(vec![
            timing("a", "half", 32, 1e3),
            timing("a", "half", 64, 500.0),
        ]));
        let lines = figures.iter().find_map(|figure| match &figure.data {
            Data::Lines(lines) => Some(lines),
            _ => None,
        });
        let lines = lines.expect("a roofline");
        assert_eq!(lines.y, "gathered GB/s");
        let heights: Vec<f64> = lines.series[0].1.iter().map(|point| point.y).collect();
        assert_eq!(heights, [1.0, 2.0]);
    }

    #[test]
    fn a_peer_gets_a_figure_of_the_graphs_that_have_it() {
        let mut rows = vec![timing("a", "half", 32, 1.0), timing("b", "half", 32, 1.0)];
        rows[1].speedup.insert("cusparse half".into(), 3.0);
        let figures = all(&records(rows));
        assert_eq!(figures.len(), 1, "{figures:?}");
        assert_eq!(figures[0].name, "speedup-spmm-cusparse-half");
        let Data::Bars(bars) = &figures[0].data else {
            panic!("{figures:?}")
        };
        assert_eq!(bars.groups, ["b"]);
    }

    #[test]
    fn series_are_named_by_what_tells_them_apart() {
        let of = |policy: &str, timing: Timing| Timing {
            policy: Some(policy.into()),
            ..timing
        };
        let names = |timings: &[Timing]| {
            let timings: Vec<&Timing> = timings.iter().collect();
            let naming = Naming::of(&timings);
            let variants = timings.iter().map(|timing| naming.variant(timing));
            variants.collect::<Vec<_>>()
        };
        let float = of("discretized-float", timing("a", "float", 64, 2.0));
        let half = of("discretized-float", timing("a", "half", 64, 1.0));
        assert_eq!(
            names(&[half.clone(), float.clone()]),
            ["half, F=64", "float, F=64"]
        );
        let half2 = of("discretized-half", timing("a", "half", 64, 1.0));
        assert_eq!(
            names(&[half, half2, float]),
            [
                "half, sums in float, F=64",
                "half, sums in half2, F=64",
                "float, F=64"
            ]
        );
        // Each graph has its own length, as datasets have.
        let (a, b) = (timing("a", "half", 602, 1.0), timing("b", "half", 100, 1.0));
        assert_eq!(names(&[a, b]), ["half", "half"]);
    }

    #[test]
    fn means_are_geometric_and_of_every_graph() {
        let mut bars = Bars {
            groups: vec!["a".into(), "b".into()],
            series: vec![
                ("all".into(), vec![Some(2.0), Some(8.0)]),
                ("one".into(), vec![None, Some(8.0)]),
            ],
            ..Bars::default()
        };
        bars.add_means();
        assert_eq!(bars.groups, ["a", "b", "geometric mean"]);
        assert!((bars.series[0].1[2].unwrap() - 4.0).abs() < 1e-12);
        assert_eq!(bars.series[1].1[2], None);
        let mut alone = Bars {
            groups: vec!["a".into()],
            series: vec![("all".into(), vec![Some(2.0)])],
            ..Bars::default()
        };
        alone.add_means();
        assert_eq!(alone.groups, ["a"]);
    }

    #[test]
    fn too_many_curves_are_split_by_variant() {
        let graphs = ["a", "b", "c", "d", "e"];
        let rows = graphs.iter().flat_map(|graph| {
            let lengths = [16, 64].into_iter();
            lengths
                .flat_map(|length| ["half", "float"].map(|kind| timing(graph, kind, length, 1.0)))
        });
        let figures = rooflines(&records(rows.collect()));
        let names: Vec<_> = figures.iter().map(|figure| figure.name.as_str()).collect();
        assert_eq!(names, ["roofline-spmm-half", "roofline-spmm-float"]);
        for figure in &figures {
            let Data::Lines(lines) = &figure.data else {
                panic!("{figure:?}")
            };
            let series: Vec<_> = lines.series.iter().map(|(name, _)| name.as_str()).collect();
            assert_eq!(series, graphs);
        }
    }
}
