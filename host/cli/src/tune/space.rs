//! The space that is searched: a TOML file whose keys are options of `train`.

use crate::failure::Failure;
use halfgnn::graph::generate::draw;
use std::collections::BTreeMap;
use std::path::Path;
use toml::{Table, Value};

/// Which numbers an option may have.
#[derive(Clone, Debug, PartialEq)]
enum Values {
    /// One of these, as they are typed.
    OneOf(Vec<String>),
    /// A number between two, both included.
    Range {
        from: f64,
        to: f64,
        /// Evenly by magnitude.
        log: bool,
        /// Only every n-th from the first on; whole numbers if this is.
        step: Option<f64>,
    },
}

/// Options and what they may be.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Space {
    options: BTreeMap<String, Values>,
    /// Those that only one model has, under its name.
    by_model: BTreeMap<String, BTreeMap<String, Values>>,
}

/// The options of a trial, as they are typed; a switch that is on has no value.
pub type Choice = Vec<(String, Option<String>)>;

impl Space {
    /// Reads a space; `is_option` knows the names.
    pub fn read(path: &Path, is_option: &dyn Fn(&str) -> bool) -> Result<Self, Failure> {
        let refuse = |reason: String| Failure::Input(format!("{}: {reason}", path.display()));
        let text = std::fs::read_to_string(path).map_err(|error| refuse(error.to_string()))?;
        let table: Table = text.parse().map_err(|error: toml::de::Error| {
            let line = error.span().map_or(1, |span| {
                1 + text[..span.start.min(text.len())].matches('\n').count()
            });
            refuse(format!(
                "line {line}: {}",
                error.message().replace('\n', " ")
            ))
        })?;
        Self::of(&table, is_option).map_err(refuse)
    }

    fn of(table: &Table, is_option: &dyn Fn(&str) -> bool) -> Result<Self, String> {
        let mut space = Self::default();
        for (name, value) in table {
            match value {
                Value::Table(inner) if !inner.contains_key("from") => {
                    let mut options = BTreeMap::new();
                    for (option, value) in inner {
                        known(option, is_option)?;
                        options.insert(option.clone(), values(option, value)?);
                    }
                    space.by_model.insert(name.clone(), options);
                }
                value => {
                    known(name, is_option)?;
                    space.options.insert(name.clone(), values(name, value)?);
                }
            }
        }
        for model in space.by_model.keys() {
            let named = match space.options.get("model") {
                Some(Values::OneOf(models)) => models.contains(model),
                _ => false,
            };
            if !named {
                return Err(format!(
                    "[{model}] holds options of a model that is none of `model`; add it there, or move the options to the top"
                ));
            }
        }
        if space.options.is_empty() {
            return Err("it names no option; write such as lr = { from = 1e-3, to = 1e-1, scale = \"log\" }".into());
        }
        Ok(space)
    }

    /// What trial `number` tries: a function of the seed and the number alone.
    pub fn choice(&self, seed: u64, number: u32) -> Choice {
        let key = [seed as u32, (seed >> 32) as u32 ^ STREAM];
        let mut block = 0;
        let mut pick = |values: &Values| {
            let [high, low, ..] = draw(key, number.into(), block);
            block += 1;
            values.at((f64::from(high) + f64::from(low) / TWO_32) / TWO_32)
        };
        let mut choice: Choice = Vec::new();
        let mut put = |name: &String, value: String| match value.as_str() {
            "true" => choice.push((name.clone(), None)),
            "false" => {}
            _ => choice.push((name.clone(), Some(value))),
        };
        let mut model = None;
        for (name, values) in &self.options {
            let value = pick(values);
            if name == "model" {
                model = Some(value.clone());
            }
            put(name, value);
        }
        let own = model.and_then(|model| self.by_model.get(&model));
        for (name, values) in own.into_iter().flatten() {
            put(name, pick(values));
        }
        choice
    }
}

/// Stream of the random numbers.
const STREAM: u32 = 0x7475_6e65;
const TWO_32: f64 = 4_294_967_296.0;

fn known(name: &str, is_option: &dyn Fn(&str) -> bool) -> Result<(), String> {
    match is_option(name) {
        true => Ok(()),
        false => Err(format!(
            "`{name}` is no option of `train` that can be tried; `halfgnn train --help` lists them (a name is written without --)"
        )),
    }
}

impl Values {
    /// The value at a place in [0, 1).
    fn at(&self, place: f64) -> String {
        match self {
            Values::OneOf(values) => values[(place * values.len() as f64) as usize].clone(),
            &Values::Range {
                from,
                to,
                step: Some(step),
                ..
            } => {
                let steps = ((to - from) / step + 1e-9).floor();
                typed(from + step * (place * (steps + 1.0)).floor())
            }
            &Values::Range {
                from,
                to,
                log: true,
                ..
            } => typed((from.ln() + place * (to.ln() - from.ln())).exp()),
            &Values::Range { from, to, .. } => typed(from + place * (to - from)),
        }
    }
}

/// A number as it is typed: four digits are enough to try.
fn typed(value: f64) -> String {
    let rounded: f64 = format!("{value:.3e}").parse().unwrap_or(value);
    rounded.to_string()
}

fn values(name: &str, value: &Value) -> Result<Values, String> {
    let word = |value: &Value| match value {
        Value::String(text) => Ok(text.clone()),
        Value::Integer(number) => Ok(number.to_string()),
        Value::Float(number) => Ok(number.to_string()),
        Value::Boolean(truth) => Ok(truth.to_string()),
        other => Err(format!(
            "`{name}`: {} is no value; write a number, a word, true or false",
            other.type_str()
        )),
    };
    match value {
        Value::Array(values) if values.is_empty() => Err(format!(
            "`{name}` has no values; write such as [16, 32, 64]"
        )),
        Value::Array(values) => Ok(Values::OneOf(
            values.iter().map(word).collect::<Result<_, _>>()?,
        )),
        Value::Table(range) => range_of(name, range),
        value => Ok(Values::OneOf(vec![word(value)?])),
    }
}

fn range_of(name: &str, range: &Table) -> Result<Values, String> {
    let number = |key: &str| match range.get(key) {
        None => Ok(None),
        Some(Value::Integer(number)) => Ok(Some(*number as f64)),
        Some(Value::Float(number)) if number.is_finite() => Ok(Some(*number)),
        Some(_) => Err(format!("`{name}`: `{key}` is no number")),
    };
    let log = match range.get("scale").map(|scale| scale.as_str()) {
        None | Some(Some("linear")) => false,
        Some(Some("log")) => true,
        Some(_) => return Err(format!("`{name}`: `scale` is \"linear\" or \"log\"")),
    };
    if let Some(other) = range
        .keys()
        .find(|key| !["from", "to", "scale", "step"].contains(&&***key))
    {
        return Err(format!(
            "`{name}`: `{other}` is no part of a range; there are from, to, scale and step"
        ));
    }
    let (Some(from), Some(to), step) = (number("from")?, number("to")?, number("step")?) else {
        return Err(format!("`{name}`: a range has `from` and `to`"));
    };
    if from > to {
        return Err(format!(
            "`{name}`: it begins at {from} and ends at {to}, which is before that"
        ));
    }
    if log && from <= 0.0 {
        return Err(format!(
            "`{name}`: a logarithmic range begins above 0, and this at {from}"
        ));
    }
    if step.is_some_and(|step| step <= 0.0) || (log && step.is_some()) {
        return Err(format!(
            "`{name}`: `step` is a number above 0, and of linear ranges"
        ));
    }
    Ok(Values::Range {
        from,
        to,
        log,
        step,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn space(text: &str) -> Result<Space, String> {
        let options = [
            "model", "lr", "layers", "hidden", "residual", "heads", "dropout",
        ];
        Space::of(&text.parse().expect("TOML"), &|name| {
            options.contains(&name)
        })
    }

    #[test]
    fn choices_lie_in_the_space_and_fill_it() {
        let space = space(
            "model = ['gcn', 'gat']\nlr = { from = 1e-3, to = 1e-1, scale = 'log' }\nlayers = { from = 2, to = 4, step = 1 }\n\
             residual = [true, false]\nhidden = 16\n[gat]\nheads = [1, 8]",
        )
        .unwrap();
        let (mut small, mut layers, mut heads, mut residual) =
            (0usize, [0usize; 5], 0usize, 0usize);
        for number in 0..600 {
            let choice = space.choice(7, number);
            assert_eq!(choice, space.choice(7, number));
            let value = |name: &str| {
                let found = choice.iter().find(|(other, _)| other == name);
                found.map(|(_, value)| value.as_deref().unwrap_or("on"))
            };
            let lr: f64 = value("lr").unwrap().parse().unwrap();
            assert!((1e-3..=1e-1).contains(&lr), "{lr}");
            small += usize::from(lr < 1e-2);
            layers[value("layers").unwrap().parse::<usize>().unwrap()] += 1;
            assert_eq!(value("hidden"), Some("16"));
            assert_eq!(value("heads").is_some(), value("model") == Some("gat"));
            heads += usize::from(value("heads").is_some());
            residual += usize::from(value("residual").is_some());
        }
        // Half of 600, and a third: within five standard deviations.
        for half in [small, heads, residual] {
            assert!(half.abs_diff(300) < 62, "{small} {heads} {residual}");
        }
        assert_eq!(layers[..2], [0, 0]);
        assert!(
            layers[2..].iter().all(|count| count.abs_diff(200) < 58),
            "{layers:?}"
        );
        assert_ne!(space.choice(7, 0), space.choice(8, 0));
    }

    #[test]
    fn what_is_wrong_is_said_with_its_name() {
        let refused = |text: &str, words: &str| {
            let error = space(text).expect_err(text);
            assert!(error.contains(words), "{error}");
        };
        refused("speed = [1]", "`speed` is no option of `train`");
        refused("lr = []", "`lr` has no values");
        refused("lr = { from = 0, to = 1, scale = 'log' }", "begins above 0");
        refused("lr = { from = 2, to = 1 }", "begins at 2 and ends at 1");
        refused("lr = { from = 1 }", "has `from` and `to`");
        refused(
            "lr = { from = 1, to = 2, scale = 'cubic' }",
            "\"linear\" or \"log\"",
        );
        refused(
            "lr = { from = 1, to = 2, base = 2 }",
            "`base` is no part of a range",
        );
        refused(
            "lr = { from = 1, to = 2, step = -1 }",
            "`step` is a number above 0",
        );
        refused("lr = [[1]]", "array is no value");
        refused(
            "lr = 1\n[gat]\nheads = 1",
            "a model that is none of `model`",
        );
        refused("", "names no option");
    }
}
