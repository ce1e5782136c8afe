//! The text of a cell: words, and figures in braces.
//!
//! A figure is `{FILTERS:PATH:FORMAT}`. Filters, such as `precision=half,model=gcn`, choose one of the row's records; without filters it
//! is the first that has the path. A path names a field, or with points one inside: `speedup.cusparse half`. Of a list it names the
//! element by its `peer` and `precision`, or by its `name`. Formats: `4` for four digits, at most three of them decimals; `.2` for two
//! decimals; `,` for groups of thousands; `e1` for an exponent; `g2` for two digits of thousand millions. Without a format, the value is as it is in the file.

use super::records::{Fields, Record, shown};
use serde_json::Value;

/// A cell to fill.
pub struct Template(Vec<Part>);

enum Part {
    Text(String),
    Figure(Figure),
}

struct Figure {
    filters: Vec<(String, String)>,
    path: Vec<String>,
    format: Format,
}

#[derive(Clone, Copy)]
enum Format {
    AsItIs,
    Digits(usize),
    Decimals(usize),
    Thousands,
    Exponent(usize),
    Giga(usize),
}

impl Template {
    /// Reads a cell; none where a brace is not closed, or a figure is not one.
    pub fn parse(text: &str) -> Option<Self> {
        let mut parts = Vec::new();
        let mut rest = text;
        while let Some((before, inner)) = rest.split_once('{') {
            let (figure, after) = inner.split_once('}')?;
            parts.push(Part::Text(before.to_owned()));
            parts.push(Part::Figure(Figure::parse(figure)?));
            rest = after;
        }
        parts.push(Part::Text(rest.to_owned()));
        Some(Self(parts))
    }

    /// The cell of the records of a row. It is empty where none of its figures is there.
    ///
    /// # Errors
    /// Where some figures are there and others are not, or a value is no number.
    pub fn fill(&self, records: &[Record]) -> Result<String, String> {
        let mut text = String::new();
        let (mut there, mut missing) = (None, None);
        for part in &self.0 {
            match part {
                Part::Text(words) => text.push_str(words),
                Part::Figure(figure) => match figure.of(records)? {
                    Some(value) => {
                        text.push_str(&value);
                        there.get_or_insert(figure);
                    }
                    None => {
                        missing.get_or_insert(figure);
                    }
                },
            }
        }
        match (there, missing) {
            (Some(there), Some(missing)) => {
                Err(format!("has {} and not {}", there.name(), missing.name()))
            }
            (None, Some(_)) => Ok(String::new()),
            _ => Ok(text),
        }
    }
}

impl Figure {
    fn parse(text: &str) -> Option<Self> {
        let mut parts: Vec<&str> = text.split(':').collect();
        let filters = match parts.first().is_some_and(|first| first.contains('=')) {
            true => parts
                .remove(0)
                .split(',')
                .map(|filter| filter.split_once('='))
                .collect::<Option<Vec<_>>>()?,
            false => Vec::new(),
        };
        let (path, format) = match parts[..] {
            [path] => (path, Format::AsItIs),
            [path, format] => (path, Format::parse(format)?),
            _ => return None,
        };
        let owned = filters
            .into_iter()
            .map(|(field, value)| (field.to_owned(), value.to_owned()));
        let path: Vec<String> = path.split('.').map(str::to_owned).collect();
        path.iter().all(|part| !part.is_empty()).then(|| Self {
            filters: owned.collect(),
            path,
            format,
        })
    }

    /// Its text of the one record that the filters choose.
    fn of(&self, records: &[Record]) -> Result<Option<String>, String> {
        let is_chosen = |record: &&Record| {
            let has = |(field, value): &(String, String)| {
                let found = record.fields.get(field);
                found.is_some_and(|of| shown(of) == *value)
            };
            self.filters.iter().all(has) && self.value(&record.fields).is_some()
        };
        let chosen: Vec<&Record> = records.iter().filter(is_chosen).collect();
        if chosen.len() > 1 && !self.filters.is_empty() {
            return Err(format!("{} records have {}", chosen.len(), self.name()));
        }
        let value = chosen.first().and_then(|record| self.value(&record.fields));
        value.map(|value| self.format.text(value)).transpose()
    }

    fn value<'a>(&self, fields: &'a Fields) -> Option<&'a Value> {
        let (first, rest) = self.path.split_first()?;
        rest.iter()
            .try_fold(fields.get(first)?, |value, part| inner(value, part))
    }

    fn name(&self) -> String {
        let filters = self
            .filters
            .iter()
            .map(|(field, value)| format!("{field}={value}"));
        let filters = filters.collect::<Vec<_>>().join(",");
        let path = self.path.join(".");
        match filters.is_empty() {
            true => path,
            false => format!("{filters}:{path}"),
        }
    }
}

/// The field of an object, or the element of a list.
fn inner<'a>(value: &'a Value, part: &str) -> Option<&'a Value> {
    let text = |of: &'a Value, field: &str| of.get(field).and_then(Value::as_str);
    let is_named = |of: &&'a Value| {
        let both = text(of, "peer").zip(text(of, "precision"));
        let both = both.is_some_and(|(peer, precision)| part == format!("{peer} {precision}"));
        both || text(of, "name") == Some(part)
    };
    match value {
        Value::Array(list) => list.iter().find(is_named),
        other => other.get(part),
    }
}

impl Format {
    fn parse(text: &str) -> Option<Self> {
        if text == "," {
            return Some(Self::Thousands);
        }
        let number = |digits: &str| digits.parse::<usize>().ok();
        let (kind, rest) = text.split_at_checked(1)?;
        match kind {
            "." => number(rest).map(Self::Decimals),
            "e" => number(rest).map(Self::Exponent),
            "g" => number(rest).map(Self::Giga),
            _ => number(text).filter(|digits| *digits > 0).map(Self::Digits),
        }
    }

    fn text(self, value: &Value) -> Result<String, String> {
        if matches!(self, Self::AsItIs) {
            return Ok(shown(value));
        }
        let number = value
            .as_f64()
            .ok_or_else(|| format!("`{}` is no number", shown(value)))?;
        Ok(match self {
            Self::AsItIs => shown(value),
            Self::Digits(digits) => format!("{number:.*}", decimals(number, digits)),
            Self::Decimals(decimals) => format!("{number:.decimals$}"),
            Self::Exponent(decimals) => format!("{number:.decimals$e}"),
            Self::Giga(digits) => {
                let giga = number / 1e9;
                format!("{giga:.*}", decimals(giga, digits))
            }
            Self::Thousands => thousands(&format!("{number:.0}")),
        })
    }
}

/// The decimals of a number of so few digits, at most three.
fn decimals(number: f64, digits: usize) -> usize {
    let before = |number: f64| format!("{:.0}", number.abs().trunc()).len();
    let before = if number.abs() < 1.0 {
        0
    } else {
        before(number)
    };
    digits.saturating_sub(before).min(3)
}

/// Digits in groups of three.
fn thousands(digits: &str) -> String {
    let (sign, digits) = digits.split_at(digits.len() - digits.trim_start_matches('-').len());
    let mut text = sign.to_owned();
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

#[cfg(test)]
mod tests {
    use std::rc::Rc;

    use super::super::records::Source;
    use super::*;

    #[test]
    fn numbers_have_the_digits_of_their_format() {
        let text = |format: &str, number: f64| {
            let number = serde_json::Number::from_f64(number).unwrap();
            Format::parse(format)
                .unwrap()
                .text(&Value::Number(number))
                .unwrap()
        };
        for (format, number, expected) in [
            ("4", 0.11949, "0.119"),
            ("4", 2.5, "2.500"),
            ("4", 11.19, "11.19"),
            ("3", 0.069, "0.069"),
            ("3", 84.0, "84.0"),
            ("3", 1191.4, "1191"),
            (".2", 3.0, "3.00"),
            (",", 3864.2, "3,864"),
            (",", 114_615_892.0, "114,615,892"),
            (",", 51.0, "51"),
            (",", -1051.0, "-1,051"),
            ("e1", 0.000_49, "4.9e-4"),
            ("g2", 3.46e9, "3.5"),
        ] {
            assert_eq!(text(format, number), expected, "{format} {number}");
        }
        assert!(Format::parse("x").is_none() && Format::parse("0").is_none());
    }

    #[test]
    fn cells_are_words_and_figures() {
        let source = Rc::new(Source {
            command: String::new(),
            machine: String::new(),
            date: None,
        });
        let record = |text: &str| Record {
            fields: serde_json::from_str(text).unwrap(),
            source: source.clone(),
        };
        let records = [
            record(r#"{"a": 1, "peers": [{"name": "x.y", "ms": 3}, {"name": "z", "ms": 2.5}]}"#),
            record(r#"{"a": 2, "b": {"c d": "text"}}"#),
        ];
        let fill = |text: &str| Template::parse(text).unwrap().fill(&records);
        assert_eq!(
            fill("{a}, {a=2:a} and {b.c d}"),
            Ok("1, 2 and text".to_owned())
        );
        assert_eq!(fill("{peers.z.ms:.2}"), Ok("2.50".to_owned()));
        assert_eq!(fill("{c} {a=3:a}"), Ok(String::new()));
        assert_eq!(fill("words"), Ok("words".to_owned()));
        for wrong in ["{a", "{}", "{a=1:}", "{a:b:c:d}", "{a,b=1:a:x}", "{a.}"] {
            assert!(Template::parse(wrong).is_none(), "{wrong}");
        }
    }
}
