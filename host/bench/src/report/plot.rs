//! Figures as SVG.

use super::figures::{Bars, Data, Figure, Lines, Spread};
use crate::failure::Failure;
use plotters::coord::Shift;
use plotters::coord::ranged1d::{
    BoldPoints, DefaultFormatting, KeyPointHint, Ranged, ValueFormatter,
};
use plotters::coord::types::RangedCoordf64;
use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};
use std::fmt;

/// Width and least height of a figure, in pixels at its own scale.
const SIZE: (u32, u32) = (960, 440);

/// Widths that a legend may have, and the height of one of its lines.
const LEGEND: (std::ops::RangeInclusive<u32>, u32) = (120..=340, 21);

/// Size of the text next to a figure, and about how wide a letter of it is: an SVG does not know its reader's fonts.
const TEXT: (u32, f64) = (16, 8.0);

/// Size of the text over a bar, and about how wide a digit of it is.
const SMALL_TEXT: (u32, f64) = (13, 7.0);

/// Height under an axis for one line of names.
const NAMES: u32 = 30;

/// Width next to a vertical axis for its title and the ticks, and the least with its numbers; most numbers that there
/// are.
const TITLED: (u32, u32) = (38, 64);
const NUMBERS: usize = 11;

/// Colours that people who see few colours can distinguish (Okabe and Ito, 2008).
const COLOURS: [RGBColor; 8] = [
    RGBColor(0, 114, 178),
    RGBColor(230, 159, 0),
    RGBColor(0, 158, 115),
    RGBColor(204, 121, 167),
    RGBColor(86, 180, 233),
    RGBColor(213, 94, 0),
    RGBColor(120, 120, 120),
    RGBColor(240, 228, 66),
];

type Area<'a> = DrawingArea<SVGBackend<'a>, Shift>;
type Drawn = Result<(), Failure>;

/// The figure as an SVG document.
pub fn svg(figure: &Figure) -> Result<String, Failure> {
    column_svg(std::slice::from_ref(figure))
}

/// Figures as one SVG document, one below the other.
pub fn column_svg(figures: &[Figure]) -> Result<String, Failure> {
    let longest = figures
        .iter()
        .map(|figure| legend_of(&figure.data).len() as u32)
        .max();
    let height = SIZE.1.max(80 + LEGEND.1 * longest.unwrap_or(0));
    let mut text = String::new();
    {
        let size = (SIZE.0, height * figures.len() as u32);
        let root = SVGBackend::with_string(&mut text, size).into_drawing_area();
        root.fill(&WHITE).map_err(failed)?;
        for (figure, area) in figures.iter().zip(root.split_evenly((figures.len(), 1))) {
            draw(&area, figure)?;
        }
        root.present().map_err(failed)?;
    }
    Ok(text)
}

fn draw(area: &Area<'_>, figure: &Figure) -> Drawn {
    let mut area = area
        .titled(&figure.title, ("sans-serif", 22))
        .map_err(failed)?;
    let names = legend_of(&figure.data);
    if !names.is_empty() {
        let longest = names.iter().map(|(name, _)| name.chars().count()).max();
        let wanted = 34.0 + TEXT.1 * longest.unwrap_or(0) as f64;
        let width = (wanted as u32).clamp(*LEGEND.0.start(), *LEGEND.0.end());
        let (left, right) = area.split_horizontally(SIZE.0 - width);
        write_legend(&right, &names)?;
        area = left;
    }
    match &figure.data {
        Data::Bars(bars) => grouped(&area, bars),
        Data::Stack(bars) => stacked(&area, bars),
        Data::Lines(lines) => curves(&area, lines),
        Data::Spread(spread) => points(&area, spread),
    }
}

/// The names in a figure's legend, with their colours; it stands next to the figure, where it hides nothing.
fn legend_of(data: &Data) -> Vec<(&str, RGBColor)> {
    let coloured = |(index, name)| (name, colour(index));
    match data {
        Data::Bars(bars) | Data::Stack(bars) => {
            let names = bars.series.iter().map(|(name, _)| name.as_str());
            names.enumerate().map(coloured).collect()
        }
        Data::Lines(lines) => {
            let names = lines.series.iter().map(|(name, _)| name.as_str());
            let ceiling = lines.ceiling.iter().map(|(name, _)| (name.as_str(), BLACK));
            names.enumerate().map(coloured).chain(ceiling).collect()
        }
        Data::Spread(_) => Vec::new(),
    }
}

fn write_legend(area: &Area<'_>, names: &[(&str, RGBColor)]) -> Drawn {
    let style = ("sans-serif", 16)
        .into_text_style(area)
        .pos(Pos::new(HPos::Left, VPos::Center));
    for (index, (name, colour)) in names.iter().enumerate() {
        let y = 24 + (LEGEND.1 * index as u32) as i32;
        let sample = Rectangle::new([(6, y - 5), (18, y + 5)], colour.filled());
        area.draw(&sample).map_err(failed)?;
        area.draw_text(name, &style, (26, y)).map_err(failed)?;
    }
    Ok(())
}

fn failed(error: impl fmt::Display) -> Failure {
    Failure::Run(format!("a figure cannot be drawn: {error}"))
}

fn colour(index: usize) -> RGBColor {
    COLOURS[index % COLOURS.len()]
}

/// Width next to a vertical axis of these heights: numbers may be long, and its title stands left of them.
fn width_beside(heights: &std::ops::Range<f64>) -> u32 {
    let axis = RangedCoordf64::from(heights.clone());
    let numbers = axis.key_points(BoldPoints(NUMBERS));
    let letters = numbers.iter().map(|number| axis.format_ext(number).len());
    let longest = letters.max().unwrap_or(0) as f64;
    (TITLED.0 + (longest * (TEXT.1 + 1.0)) as u32).max(TITLED.1)
}

/// A range a little longer than from `low` to `high`.
fn padded(low: f64, high: f64) -> std::ops::Range<f64> {
    let margin = (high - low) * 0.05;
    if margin > 0.0 {
        low - margin..high + margin
    } else {
        low - 0.5..high + 0.5
    }
}

/// Names of groups in lines that fit under an axis of `width` pixels, each group's share being equal.
fn broken_names<'a>(width: u32, names: impl ExactSizeIterator<Item = &'a str>) -> Vec<Vec<String>> {
    let letters = f64::from(width) / names.len().max(1) as f64 / TEXT.1;
    let broken = |name: &str| {
        let mut lines = vec![String::new()];
        for word in name.split_inclusive([' ', '-']) {
            let line = lines.last_mut().filter(|line| {
                line.is_empty() || (line.len() + word.trim_end().len()) as f64 <= letters
            });
            match line {
                Some(line) => line.push_str(word),
                None => lines.push(word.to_owned()),
            }
        }
        lines
    };
    names.map(broken).collect()
}

/// A chart of groups, of which group `i` lies from `i` to `i + 1`, with their names under the axis.
fn chart_of_groups<'a, 'b: 'a>(
    area: &'a Area<'b>,
    names: &[&str],
    unit: &str,
    heights: std::ops::Range<f64>,
) -> Result<ChartContext<'a, SVGBackend<'b>, Cartesian2d<Axis, RangedCoordf64>>, Failure> {
    const MARGIN: u32 = 12;
    let units = width_beside(&heights);
    let width = area.dim_in_pixel().0.saturating_sub(2 * MARGIN + units);
    let names = broken_names(width, names.iter().copied());
    let lines = names.iter().map(Vec::len).max().unwrap_or(1) as u32;
    let floor = heights.start;
    let mut chart = ChartBuilder::on(area)
        .margin(MARGIN)
        .x_label_area_size(NAMES + (lines - 1) * (TEXT.0 + 2))
        .y_label_area_size(units)
        .build_cartesian_2d(Axis(names.len() as f64), heights)
        .map_err(failed)?;
    chart
        .configure_mesh()
        .disable_x_mesh()
        .light_line_style(TRANSPARENT)
        .y_labels(NUMBERS)
        .y_desc(unit)
        .label_style(("sans-serif", TEXT.0))
        .draw()
        .map_err(failed)?;
    let style = ("sans-serif", TEXT.0)
        .into_text_style(area)
        .pos(Pos::new(HPos::Center, VPos::Top));
    for (index, lines) in names.iter().enumerate() {
        let (x, y) = place(area, &chart, (index as f64 + 0.5, floor));
        for (line, text) in lines.iter().enumerate() {
            let below = 6 + (line as u32 * (TEXT.0 + 2)) as i32;
            area.draw_text(text.trim_end(), &style, (x, y + below))
                .map_err(failed)?;
        }
    }
    Ok(chart)
}

/// Where a point of a chart is in its area. Pixels are counted from the whole drawing's corner, text from the area's.
fn place(
    area: &Area<'_>,
    chart: &ChartContext<'_, SVGBackend<'_>, Cartesian2d<Axis, RangedCoordf64>>,
    point: (f64, f64),
) -> (i32, i32) {
    let (left, top) = area.get_base_pixel();
    let (x, y) = chart.backend_coord(&point);
    (x - left, y - top)
}

/// A value as it stands over its bar: two digits that count.
fn short(value: f64) -> String {
    match value {
        value if value >= 9.95 => format!("{value:.0}"),
        value if value >= 0.995 => format!("{value:.1}"),
        value => format!("{value:.2}"),
    }
}

/// The horizontal axis of groups: nothing is written at its ticks.
struct Axis(f64);

impl Ranged for Axis {
    type FormatOption = DefaultFormatting;
    type ValueType = f64;

    fn map(&self, value: &f64, limit: (i32, i32)) -> i32 {
        limit.0 + (f64::from(limit.1 - limit.0) * value / self.0.max(1.0)) as i32
    }

    fn key_points<Hint: KeyPointHint>(&self, _: Hint) -> Vec<f64> {
        Vec::new()
    }

    fn range(&self) -> std::ops::Range<f64> {
        0.0..self.0
    }
}

fn grouped(area: &Area<'_>, bars: &Bars) -> Drawn {
    let values = bars.series.iter().flat_map(|(_, values)| values).flatten();
    let most = values
        .copied()
        .fold(bars.reference.unwrap_or(0.0), f64::max);
    let names: Vec<&str> = bars.groups.iter().map(String::as_str).collect();
    let mut chart = chart_of_groups(area, &names, &bars.unit, 0.0..most * 1.15)?;
    let width = 0.84 / bars.series.len().max(1) as f64;
    for (index, (_, values)) in bars.series.iter().enumerate() {
        let fill = colour(index).filled();
        let rectangles = values.iter().enumerate().filter_map(|(group, value)| {
            let left = group as f64 + 0.08 + width * index as f64;
            value.map(|value| Rectangle::new([(left, 0.0), (left + width * 0.92, value)], fill))
        });
        chart.draw_series(rectangles).map_err(failed)?;
    }
    write_values(area, &chart, bars, width)?;
    if let Some(reference) = bars.reference {
        let line = [(0.0, reference), (bars.groups.len() as f64, reference)];
        chart
            .draw_series(LineSeries::new(line, BLACK.stroke_width(1)))
            .map_err(failed)?;
    }
    Ok(())
}

/// The value of each bar over it, where bars of `width` groups leave space for that.
fn write_values(
    area: &Area<'_>,
    chart: &ChartContext<'_, SVGBackend<'_>, Cartesian2d<Axis, RangedCoordf64>>,
    bars: &Bars,
    width: f64,
) -> Drawn {
    let across = |x: f64| f64::from(place(area, chart, (x, 0.0)).0);
    if across(width) - across(0.0) < 3.0 * SMALL_TEXT.1 {
        return Ok(());
    }
    let style = ("sans-serif", SMALL_TEXT.0)
        .into_text_style(area)
        .pos(Pos::new(HPos::Center, VPos::Bottom));
    for (index, (_, values)) in bars.series.iter().enumerate() {
        for (group, value) in values.iter().enumerate() {
            let Some(value) = *value else { continue };
            let middle = group as f64 + 0.08 + width * (index as f64 + 0.46);
            let (x, y) = place(area, chart, (middle, value));
            area.draw_text(&short(value), &style, (x, y - 3))
                .map_err(failed)?;
        }
    }
    Ok(())
}

fn stacked(area: &Area<'_>, bars: &Bars) -> Drawn {
    let total = |group: usize| -> f64 {
        let values = bars.series.iter().map(|(_, values)| values[group]);
        values.flatten().sum()
    };
    let most = (0..bars.groups.len()).map(total).fold(0.0, f64::max);
    let names: Vec<&str> = bars.groups.iter().map(String::as_str).collect();
    let mut chart = chart_of_groups(area, &names, &bars.unit, 0.0..most.max(1e-3) * 1.25)?;
    let mut heights = vec![0.0; bars.groups.len()];
    for (index, (_, values)) in bars.series.iter().enumerate() {
        let fill = colour(index).filled();
        let mut rectangles = Vec::new();
        for (group, value) in values.iter().enumerate() {
            let Some(value) = value else { continue };
            let (low, high) = (heights[group], heights[group] + value);
            heights[group] = high;
            let left = group as f64 + 0.25;
            rectangles.push(Rectangle::new([(left, low), (left + 0.5, high)], fill));
        }
        chart.draw_series(rectangles).map_err(failed)?;
    }
    Ok(())
}

fn curves(area: &Area<'_>, lines: &Lines) -> Drawn {
    let all = || lines.series.iter().flat_map(|(_, points)| points);
    let (left, right) = all().fold((f64::INFINITY, f64::NEG_INFINITY), |(low, high), point| {
        (low.min(point.x), high.max(point.x))
    });
    let (low, high) = all().fold((f64::INFINITY, f64::NEG_INFINITY), |(low, high), point| {
        (low.min(point.low), high.max(point.high))
    });
    let high = lines
        .ceiling
        .iter()
        .fold(high, |high, (_, at)| high.max(*at));
    let heights = match lines.doubling {
        true => 0.0..high * 1.15,
        false => padded(low, high),
    };
    let mut builder = ChartBuilder::on(area);
    builder
        .margin(12)
        .x_label_area_size(44)
        .y_label_area_size(width_beside(&heights));
    if lines.doubling {
        // Named are the lengths that were measured.
        let mut lengths: Vec<f64> = all().map(|point| point.x).collect();
        lengths.sort_by(f64::total_cmp);
        lengths.dedup();
        let across = (left / 1.1..right * 1.1).log_scale().base(2.0);
        let across = across.with_key_points(lengths);
        let mut chart = builder
            .build_cartesian_2d(across, heights)
            .map_err(failed)?;
        draw_curves(&mut chart, lines, left..right)
    } else {
        let mut chart = builder
            .build_cartesian_2d(left..right.max(left + 1.0), heights)
            .map_err(failed)?;
        draw_curves(&mut chart, lines, left..right)
    }
}

fn draw_curves<'a, 'b: 'a, X>(
    chart: &mut ChartContext<'a, SVGBackend<'b>, Cartesian2d<X, RangedCoordf64>>,
    lines: &Lines,
    across: std::ops::Range<f64>,
) -> Drawn
where
    X: Ranged<ValueType = f64> + ValueFormatter<f64>,
{
    chart
        .configure_mesh()
        .light_line_style(TRANSPARENT)
        .x_desc(lines.x.as_str())
        .x_label_formatter(&|x| format!("{x}"))
        .y_labels(NUMBERS)
        .y_desc(lines.y.as_str())
        .label_style(("sans-serif", 16))
        .draw()
        .map_err(failed)?;
    for (index, (_, points)) in lines.series.iter().enumerate() {
        let stroke = colour(index);
        // Those plotted first are wider, so that a curve which lies under another is still seen.
        let width = 2 + 2 * (lines.series.len() - 1 - index).min(2) as u32;
        let upper = points.iter().map(|point| (point.x, point.high));
        let lower = points.iter().rev().map(|point| (point.x, point.low));
        if points.iter().any(|point| point.low < point.high) {
            let band: Vec<(f64, f64)> = upper.chain(lower).collect();
            chart
                .draw_series([Polygon::new(band, stroke.mix(0.15))])
                .map_err(failed)?;
        }
        let curve = points.iter().map(|point| (point.x, point.y));
        chart
            .draw_series(LineSeries::new(curve.clone(), stroke.stroke_width(width)))
            .map_err(failed)?;
        if lines.doubling {
            chart
                .draw_series(curve.map(|point| Circle::new(point, 3, stroke.filled())))
                .map_err(failed)?;
        }
    }
    if let Some((_, at)) = &lines.ceiling {
        let line = [(across.start, *at), (across.end, *at)];
        chart
            .draw_series(LineSeries::new(line, BLACK.stroke_width(1)))
            .map_err(failed)?;
    }
    Ok(())
}

fn points(area: &Area<'_>, spread: &Spread) -> Drawn {
    let all = || spread.groups.iter().flat_map(|(_, values)| values).copied();
    let low = all().fold(f64::INFINITY, f64::min);
    let heights = padded(low, all().fold(f64::NEG_INFINITY, f64::max));
    let names: Vec<&str> = spread
        .groups
        .iter()
        .map(|(name, _)| name.as_str())
        .collect();
    let mut chart = chart_of_groups(area, &names, &spread.unit, heights)?;
    for (index, (_, values)) in spread.groups.iter().enumerate() {
        let (middle, stroke) = (index as f64 + 0.5, colour(index));
        let count = values.len() as f64;
        let halfgnn::train::Spread { mean, deviation } =
            halfgnn::train::Spread::of(values.iter().copied());
        let band = [
            (middle - 0.2, mean - deviation),
            (middle + 0.2, mean + deviation),
        ];
        chart
            .draw_series([Rectangle::new(band, stroke.mix(0.2).filled())])
            .map_err(failed)?;
        let line = [(middle - 0.2, mean), (middle + 0.2, mean)];
        chart
            .draw_series(LineSeries::new(line, stroke.stroke_width(2)))
            .map_err(failed)?;
        // Side by side, so that runs with one accuracy are all seen.
        let runs = values.iter().enumerate().map(|(run, &value)| {
            let x = middle + 0.3 * ((run as f64 + 0.5) / count - 0.5);
            Circle::new((x, value), 4, stroke.filled())
        });
        chart.draw_series(runs).map_err(failed)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::figures::Point;

    fn draw(data: Data) -> String {
        svg(&Figure {
            name: "figure".into(),
            title: "A <title> & more".into(),
            caption: String::new(),
            data,
        })
        .unwrap()
    }

    fn bars() -> Bars {
        Bars {
            unit: "times".into(),
            groups: vec!["left".into(), "right".into()],
            series: vec![
                ("one".into(), vec![Some(1.0), Some(2.0)]),
                ("two".into(), vec![None, Some(3.0)]),
            ],
            reference: Some(1.0),
        }
    }

    #[test]
    fn every_kind_of_figure_has_its_names_and_is_well_formed() {
        let point = |x: f64, y: f64| Point {
            x,
            y,
            low: y - 1.0,
            high: y + 1.0,
        };
        let lines = |doubling| Lines {
            x: "across".into(),
            y: "up".into(),
            doubling,
            series: vec![("one".into(), vec![point(16.0, 1.0), point(64.0, 2.0)])],
            ceiling: Some(("ceiling".into(), 4.0)),
        };
        let spread = Spread {
            unit: "accuracy".into(),
            groups: vec![("left".into(), vec![1.0, 2.0]), ("right".into(), vec![3.0])],
        };
        for (data, names) in [
            (
                Data::Bars(bars()),
                &["left", "right", "one", "two", "times"][..],
            ),
            (Data::Stack(bars()), &["left", "right", "one", "two"]),
            (
                Data::Lines(lines(true)),
                &["across", "up", "one", "ceiling", "16", "64"],
            ),
            (
                Data::Lines(lines(false)),
                &["across", "up", "one", "ceiling"],
            ),
            (Data::Spread(spread), &["left", "right", "accuracy"]),
        ] {
            let text = draw(data);
            assert!(text.starts_with("<svg") && text.trim_end().ends_with("</svg>"));
            assert!(text.contains("A &lt;title&gt; &amp; more"), "{text}");
            for name in names {
                assert!(
                    text.contains(&format!("\n{name}\n")),
                    "{name} is not in {text}"
                );
            }
            assert!(!text.contains("NaN") && !text.contains("inf"), "{text}");
        }
    }

    /// Where a text of an SVG begins, if it is not turned: `text-anchor` and size are those of the vertical axis'
    /// numbers.
    fn numbers_beside(svg: &str) -> Vec<(f64, String)> {
        let mut texts = svg.split("<text ").skip(1);
        let mut found = Vec::new();
        for text in &mut texts {
            let (attributes, rest) = text.split_once('>').expect("a tag");
            let content = rest.split('<').next().unwrap_or_default().trim();
            let x = attributes.split_once("x=\"").expect("a place").1;
            let x: f64 = x.split('"').next().unwrap().parse().expect("pixels");
            if attributes.contains("text-anchor=\"end\"") && content.parse::<f64>().is_ok() {
                found.push((x - 9.0 * content.len() as f64, content.to_owned()));
            }
        }
        found
    }

    #[test]
    fn the_title_of_an_axis_stands_beside_its_numbers() {
        let point = |x: f64, y: f64| Point {
            x,
            y,
            low: y,
            high: y,
        };
        for most in [0.000_12, 1.0, 654_321.0] {
            let lines = |doubling| Lines {
                x: "across".into(),
                y: "up".into(),
                doubling,
                series: vec![("one".into(), vec![point(16.0, 0.0), point(64.0, most)])],
                ceiling: None,
            };
            let mut bars = bars();
            bars.series[0].1 = vec![Some(most / 2.0), Some(most)];
            let figures = [
                Data::Lines(lines(true)),
                Data::Lines(lines(false)),
                Data::Bars(bars),
            ];
            for figure in figures {
                let svg = draw(figure);
                let numbers = numbers_beside(&svg);
                assert!(numbers.len() > 2, "{svg}");
                for (left, number) in numbers {
                    // The margin, and the height of the title's letters.
                    assert!(left >= 12.0 + 16.0, "{number} begins at {left}");
                }
            }
        }
    }

    #[test]
    fn one_value_is_enough() {
        let point = Point {
            x: 1.0,
            y: 0.0,
            low: 0.0,
            high: 0.0,
        };
        draw(Data::Lines(Lines {
            series: vec![("one".into(), vec![point])],
            ..Lines::default()
        }));
        draw(Data::Spread(Spread {
            groups: vec![("one".into(), vec![5.0])],
            ..Spread::default()
        }));
        draw(Data::Stack(Bars {
            groups: vec!["one".into()],
            series: vec![("kind".into(), vec![None])],
            ..Bars::default()
        }));
    }
}
