//! Results, as `halfgnn bench --json` writes them, and the rows that they make.

use std::rc::Rc;

use serde_json::{Map, Value};

/// The fields of a line.
pub type Fields = Map<String, Value>;

/// A figure, or several of one measurement.
pub struct Record {
    pub fields: Fields,
    pub source: Rc<Source>,
}

/// Where figures are from.
pub struct Source {
    pub command: String,
    /// The GPUs, or the CPU.
    pub machine: String,
    pub date: Option<String>,
}

impl Source {
    /// Reads the line of a machine.
    ///
    /// # Errors
    /// What the line lacks.
    fn new(line: &Fields) -> Result<Self, String> {
        let text = |fields: &Fields, field: &str| {
            let text = fields.get(field).and_then(Value::as_str);
            text.filter(|text| !text.is_empty()).map(str::to_owned)
        };
        let gpus = line.get("gpus").and_then(Value::as_array);
        let names = gpus.into_iter().flatten();
        let names = names.filter_map(|gpu| text(gpu.as_object()?, "name"));
        let names: Vec<String> = names.collect();
        let machine = match &names[..] {
            [] => text(line, "cpu"),
            [name] => Some(name.clone()),
            [first, rest @ ..] if rest.iter().all(|name| name == first) => {
                Some(format!("{} × {first}", names.len()))
            }
            _ => Some(names.join(", ")),
        };
        Ok(Self {
            command: text(line, "command").ok_or("the machine's line has no `command`")?,
            machine: machine.ok_or("the machine's line has neither `cpu` nor `gpus`")?,
            date: text(line, "date"),
        })
    }
}

/// The records of a file, each with the machine and the command before it.
///
/// # Errors
/// The first line that is none, with its number.
pub fn read(text: &str) -> Result<Vec<Record>, String> {
    let mut records = Vec::new();
    let mut source: Option<Rc<Source>> = None;
    for (number, line) in text.lines().enumerate() {
        let fault = |why: &str| format!("{}: {why}", number + 1);
        let fields = match serde_json::from_str(line) {
            Ok(Value::Object(fields)) => fields,
            Ok(_) => return Err(fault("not an object")),
            Err(error) => return Err(fault(&format!("not JSON: {error}"))),
        };
        if fields.get("event").is_some_and(|event| event == "machine") {
            source = Some(Rc::new(Source::new(&fields).map_err(|why| fault(&why))?));
            continue;
        }
        let source = source.clone();
        let source = source.ok_or_else(|| fault("a figure before any line of a machine"))?;
        records.push(Record { fields, source });
    }
    Ok(records)
}

/// The rows of a table, in the order of their first records.
pub struct Rows(pub Vec<Row>);

/// The records that have the same key.
pub struct Row {
    /// The key, for people.
    pub name: String,
    /// Whether the first field of the key is missing: it sums up rows.
    pub is_summary: bool,
    pub records: Vec<Record>,
}

impl Row {
    /// The commands of its records, as code.
    pub fn commands(&self) -> String {
        self.sources(|source| format!("`{}`", source.command.replace('|', "\\|")))
    }

    /// The machines of its records, and the dates where they are known.
    pub fn machines(&self) -> String {
        self.sources(|source| match &source.date {
            Some(date) => format!("{}, {date}", source.machine),
            None => source.machine.clone(),
        })
    }

    /// What is said of each source, once.
    fn sources(&self, shown: impl Fn(&Source) -> String) -> String {
        let mut texts: Vec<String> = Vec::new();
        for record in &self.records {
            let text = shown(&record.source);
            if !texts.contains(&text) {
                texts.push(text);
            }
        }
        texts.join(", ")
    }
}

impl Rows {
    /// Groups records by the fields of a key.
    pub fn of(records: Vec<Record>, key: &[String]) -> Self {
        let mut rows: Vec<(Vec<Option<Value>>, Row)> = Vec::new();
        for record in records {
            let values: Vec<_> = key
                .iter()
                .map(|of| record.fields.get(of).cloned())
                .collect();
            match rows.iter_mut().find(|(of, _)| *of == values) {
                Some((_, row)) => row.records.push(record),
                None => {
                    let shown = values.iter().flatten().map(shown);
                    let row = Row {
                        name: shown.collect::<Vec<_>>().join(", "),
                        is_summary: values.first().is_some_and(Option::is_none),
                        records: vec![record],
                    };
                    rows.push((values, row));
                }
            }
        }
        Self(rows.into_iter().map(|(_, row)| row).collect())
    }
}

/// A value as text.
pub fn shown(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        other => other.to_string(),
    }
}
