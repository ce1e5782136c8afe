//! Pairs of vertices whose links are predicted: a table of them, and a table of the scores of each.

use super::table::{OutputFormat, npy, quoted};
use crate::failure::Failure;
use csv::{ReaderBuilder, Trim};
use halfgnn::data::{Dataset, VertexIds};
use halfgnn::predict::sigmoid;
use std::collections::HashMap;
use std::path::Path;

/// Pairs, and the score of each.
pub struct Pairs {
    ends: Vec<[u32; 2]>,
    scores: Vec<f32>,
}

impl Pairs {
    /// Reads a table of two columns, whose cells are ids of the dataset's tables or, where it has none, numbers of
    /// vertices from 0. A first line of which neither cell is one is names of columns.
    pub fn read(path: &Path, dataset: &Dataset) -> Result<Self, Failure> {
        let refuse =
            |reason: String| Failure::Input(format!("--pairs {}: {reason}", path.display()));
        let text = std::fs::read_to_string(path)
            .map_err(|error| refuse(format!("cannot be read: {error}; name a table of pairs")))?;
        let first = text.lines().next().unwrap_or_default();
        let tabs = first.contains('\t') && !first.contains(',');
        let vertices = dataset.graph.vertices();
        let by_id: Option<HashMap<&str, u32>> = dataset.ids.as_ref().map(|ids| {
            let numbered = ids.iter().zip(0..);
            numbered.collect()
        });
        let vertex = |cell: &str| match &by_id {
            Some(ids) => ids.get(cell).copied(),
            None => cell
                .parse()
                .ok()
                .filter(|&vertex| (vertex as usize) < vertices),
        };
        let mut reader = ReaderBuilder::new()
            .has_headers(false)
            .flexible(true)
            .trim(Trim::All)
            .delimiter(if tabs { b'\t' } else { b',' })
            .from_reader(text.as_bytes());
        let mut ends = Vec::new();
        for (number, record) in reader.records().enumerate() {
            let record = record.map_err(|error| refuse(error.to_string()))?;
            let line = record.position().map_or(number as u64 + 1, |at| at.line());
            let cells: Vec<&str> = record.iter().collect();
            let [a, b] = cells[..] else {
                return Err(refuse(format!(
                    "line {line} has {} cells; a pair is two vertices, with a comma or a tab between them",
                    cells.len()
                )));
            };
            match [a, b].map(vertex) {
                [Some(a), Some(b)] => ends.push([a, b]),
                // Names of columns.
                [None, None] if number == 0 => {}
                found => {
                    let cell = if found[0].is_none() { a } else { b };
                    let what = match by_id {
                        Some(_) => format!("no id of {}", dataset.name),
                        None => format!(
                            "no vertex of {}, which has 0 to {}",
                            dataset.name,
                            vertices - 1
                        ),
                    };
                    return Err(refuse(format!("line {line}: `{cell}` is {what}")));
                }
            }
        }
        if ends.is_empty() {
            return Err(refuse("it has no pairs; give one a line".into()));
        }
        let scores = Vec::new();
        Ok(Self { ends, scores })
    }

    /// Their number.
    pub fn len(&self) -> usize {
        self.ends.len()
    }

    /// Their vertices, as they are numbered after `rename`.
    pub fn ends(&self, rename: impl Fn(u32) -> u32) -> Vec<[u32; 2]> {
        self.ends.iter().map(|ends| ends.map(&rename)).collect()
    }

    /// Takes the score of each.
    pub fn take_scores(&mut self, scores: Vec<f32>) {
        self.scores = scores;
    }

    /// The bytes of a file: each pair with its score and the probability of a link, the sigmoid of it; of an array
    /// those two alone.
    pub fn to_bytes(
        &self,
        format: OutputFormat,
        ids: Option<&VertexIds>,
    ) -> Result<Vec<u8>, Failure> {
        let rows = || self.scores.iter().map(|&score| [score, sigmoid(score)]);
        match format {
            OutputFormat::Npy => {
                let values = rows().flatten().map(f32::to_le_bytes);
                Ok(npy("<f4", &[self.len(), 2], values))
            }
            OutputFormat::Csv => {
                let mut text = String::from("source,target,score,probability\n");
                for (ends, [score, probability]) in self.ends.iter().zip(rows()) {
                    for vertex in ends {
                        match ids {
                            Some(ids) => text.push_str(&quoted(ids.get(*vertex as usize))),
                            None => text.push_str(&vertex.to_string()),
                        }
                        text.push(',');
                    }
                    text.push_str(&format!("{score},{probability}\n"));
                }
                Ok(text.into_bytes())
            }
            #[cfg(feature = "parquet")]
            OutputFormat::Parquet => {
                use halfgnn::data::ParquetColumn;
                let end = |of: usize| match ids {
                    Some(ids) => {
                        let names = self.ends.iter().map(|ends| ids.get(ends[of] as usize));
                        ParquetColumn::Texts(names.collect())
                    }
                    None => {
                        let numbers = self.ends.iter().map(|ends| i64::from(ends[of]));
                        ParquetColumn::Wholes(numbers.collect())
                    }
                };
                let number = |of: usize| ParquetColumn::Floats(rows().map(|row| row[of]).collect());
                let columns = [
                    ("source", end(0)),
                    ("target", end(1)),
                    ("score", number(0)),
                    ("probability", number(1)),
                ];
                halfgnn::data::parquet_file(&columns)
                    .map_err(|reason| Failure::Run(format!("--out: {reason}")))
            }
        }
    }
}
