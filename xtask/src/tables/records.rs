//! Results, as `halfgnn bench --json` writes them, and the rows that they make.

use serde_json::{Map, Value};

/// A figure, or several of one measurement.
pub type Record = Map<String, Value>;

/// The records of a file, without the lines of machines.
///
/// # Errors
/// The first line that is none, with its number: each figure has a machine and a command before it.
pub fn read(text: &str) -> Result<Vec<Record>, String> {
    let mut records = Vec::new();
    let mut has_machine = false;
    for (number, line) in text.lines().enumerate() {
        let fault = |why: &str| Err(format!("{}: {why}", number + 1));
        let record = match serde_json::from_str(line) {
            Ok(Value::Object(record)) => record,
            Ok(_) => return fault("not an object"),
            Err(error) => return fault(&format!("not JSON: {error}")),
        };
        let has = |field: &str| match record.get(field) {
            Some(Value::String(text)) => !text.is_empty(),
            Some(Value::Array(list)) => !list.is_empty(),
            _ => false,
        };
        if record.get("event").is_some_and(|event| event == "machine") {
            if !has("command") {
                return fault("the machine's line has no `command`");
            }
            if !has("cpu") && !has("gpus") {
                return fault("the machine's line has neither `cpu` nor `gpus`");
            }
            has_machine = true;
        } else if has_machine {
            records.push(record);
        } else {
            return fault("a figure before any line of a machine");
        }
    }
    Ok(records)
}

/// The rows of a table, in the order of their first records.
pub struct Rows(pub Vec<Row>);

/// The records that have the same key.
pub struct Row {
    /// The key, for messages.
    pub name: String,
    /// Whether the first field of the key is missing: it sums up rows.
    pub is_summary: bool,
    pub records: Vec<Record>,
}

impl Rows {
    /// Groups records by the fields of a key.
    pub fn of(records: Vec<Record>, key: &[String]) -> Self {
        let mut rows: Vec<(Vec<Option<Value>>, Row)> = Vec::new();
        for record in records {
            let values: Vec<_> = key.iter().map(|field| record.get(field).cloned()).collect();
            match rows.iter_mut().find(|(of, _)| *of == values) {
                Some((_, row)) => row.records.push(record),
                None => {
                    let shown = values.iter().flatten().map(shown);
                    let row = Row {
                        name: shown.collect::<Vec<_>>().join(" "),
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
