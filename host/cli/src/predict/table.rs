//! Files of what was predicted: NumPy's arrays, and tables with a row a vertex.

use crate::failure::Failure;
use halfgnn::data::VertexIds;
use std::path::Path;

/// What predictions are written as.
#[derive(Clone, Copy)]
pub enum OutputFormat {
    Npy,
    Csv,
    #[cfg(feature = "parquet")]
    Parquet,
}

impl OutputFormat {
    /// What the name of a file asks for.
    pub fn of(path: &Path) -> Result<Self, Failure> {
        let extension = path.extension().unwrap_or_default().to_string_lossy();
        let refuse = |reason| {
            let path = path.display();
            Err(Failure::Input(format!("--out {path}: {reason}")))
        };
        match extension.to_ascii_lowercase().as_str() {
            "npy" => Ok(Self::Npy),
            "csv" => Ok(Self::Csv),
            #[cfg(feature = "parquet")]
            "parquet" => Ok(Self::Parquet),
            #[cfg(not(feature = "parquet"))]
            "parquet" => refuse(
                "this build writes no Parquet; build it with --features parquet, or end the name in .csv or .npy",
            ),
            _ => refuse(
                "the name tells no format; end it in .npy for a NumPy array, in .csv or in .parquet",
            ),
        }
    }
}

/// What was predicted of each vertex.
pub enum Predictions<'a> {
    /// Its class, and what the classes are called.
    Classes(Vec<u32>, Option<&'a [String]>),
    /// Rows of numbers, whose columns are called so, with their number behind.
    Numbers {
        values: Vec<f32>,
        columns: usize,
        name: &'static str,
    },
}

impl Predictions<'_> {
    /// How many vertices, or graphs, something is predicted of.
    pub fn rows(&self) -> usize {
        match self {
            Self::Classes(classes, _) => classes.len(),
            Self::Numbers {
                values, columns, ..
            } => values.len() / columns,
        }
    }

    /// The bytes of a file, in whose tables `member` is what a row is of; vertices are called by their ids where they
    /// have some.
    pub fn to_bytes(
        &self,
        format: OutputFormat,
        member: &str,
        ids: Option<&VertexIds>,
    ) -> Result<Vec<u8>, Failure> {
        match format {
            OutputFormat::Npy => Ok(self.npy()),
            OutputFormat::Csv => Ok(self.csv(member, ids)),
            #[cfg(feature = "parquet")]
            OutputFormat::Parquet => self.parquet(member, ids),
        }
    }

    fn npy(&self) -> Vec<u8> {
        match self {
            Self::Classes(classes, _) => npy(
                "<u4",
                &[classes.len()],
                classes.iter().map(|x| x.to_le_bytes()),
            ),
            Self::Numbers {
                values, columns, ..
            } => npy(
                "<f4",
                &[values.len() / columns, *columns],
                values.iter().map(|x| x.to_le_bytes()),
            ),
        }
    }

    /// The name of each column of numbers.
    fn names(&self) -> Vec<String> {
        match self {
            Self::Classes(..) => vec!["class".into()],
            Self::Numbers { columns, name, .. } => (0..*columns)
                .map(|column| format!("{name}_{column}"))
                .collect(),
        }
    }

    /// A line with the names, and one for each vertex.
    fn csv(&self, member: &str, ids: Option<&VertexIds>) -> Vec<u8> {
        let first = if ids.is_some() { "id" } else { member };
        let mut text = format!("{first},{}\n", self.names().join(","));
        for vertex in 0..self.rows() {
            match ids {
                Some(ids) => text.push_str(&quoted(ids.get(vertex))),
                None => text.push_str(&vertex.to_string()),
            }
            match self {
                Self::Classes(classes, names) => {
                    let class = classes[vertex];
                    text.push(',');
                    match names.and_then(|names| names.get(class as usize)) {
                        Some(name) => text.push_str(&quoted(name)),
                        None => text.push_str(&class.to_string()),
                    }
                }
                Self::Numbers {
                    values, columns, ..
                } => {
                    for value in &values[vertex * columns..(vertex + 1) * columns] {
                        text.push_str(&format!(",{value}"));
                    }
                }
            }
            text.push('\n');
        }
        text.into_bytes()
    }

    #[cfg(feature = "parquet")]
    fn parquet(&self, member: &str, ids: Option<&VertexIds>) -> Result<Vec<u8>, Failure> {
        use halfgnn::data::ParquetColumn;
        let names = self.names();
        let mut columns = Vec::new();
        match self {
            Self::Classes(classes, of_classes) => {
                let name = |class: &u32| of_classes.and_then(|names| names.get(*class as usize));
                let named: Option<Vec<&str>> = (classes.iter())
                    .map(|class| name(class).map(String::as_str))
                    .collect();
                columns.push(match named {
                    Some(texts) if of_classes.is_some() => ParquetColumn::Texts(texts),
                    _ => ParquetColumn::Wholes(classes.iter().map(|&x| x.into()).collect()),
                });
            }
            Self::Numbers {
                values,
                columns: width,
                ..
            } => {
                for column in 0..*width {
                    let values = values.iter().skip(column).step_by(*width);
                    columns.push(ParquetColumn::Floats(values.copied().collect()));
                }
            }
        }
        let mut all = vec![match ids {
            Some(ids) => ("id", ParquetColumn::Texts(ids.iter().collect())),
            None => (
                member,
                ParquetColumn::Wholes((0..self.rows() as i64).collect()),
            ),
        }];
        all.extend(names.iter().map(String::as_str).zip(columns));
        halfgnn::data::parquet_file(&all).map_err(|reason| Failure::Run(format!("--out: {reason}")))
    }
}

/// A cell as it must be written so that it is read again.
pub fn quoted(text: &str) -> std::borrow::Cow<'_, str> {
    let is_plain = !text.contains([',', '"', '\n', '\r']) && text.trim() == text;
    match is_plain {
        true => text.into(),
        false => format!("\"{}\"", text.replace('"', "\"\"")).into(),
    }
}

/// A file in NumPy's format, version 1.0.
pub fn npy<const N: usize>(
    kind: &str,
    shape: &[usize],
    elements: impl Iterator<Item = [u8; N]>,
) -> Vec<u8> {
    let shape: String = shape.iter().map(|extent| format!("{extent}, ")).collect();
    let mut header = format!("{{'descr': '{kind}', 'fortran_order': False, 'shape': ({shape}), }}");
    // The whole header is a multiple of 64 bytes and ends with a line break.
    const BEFORE: usize = 10;
    let length = (BEFORE + header.len() + 1).next_multiple_of(64) - BEFORE - 1;
    header = format!("{header:<length$}\n");
    let mut bytes = b"\x93NUMPY\x01\x00".to_vec();
    // A shape of two numbers is far below 64 KiB.
    bytes.extend((header.len() as u16).to_le_bytes());
    bytes.extend(header.as_bytes());
    bytes.extend(elements.flatten());
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_header_is_numpys() {
        let bytes = npy("<u4", &[2], [1_u32, 7].into_iter().map(u32::to_le_bytes));
        assert_eq!(&bytes[..8], b"\x93NUMPY\x01\x00");
        let length = usize::from(u16::from_le_bytes([bytes[8], bytes[9]]));
        assert_eq!((10 + length) % 64, 0);
        let header = std::str::from_utf8(&bytes[10..10 + length]).expect("text");
        assert_eq!(
            header.trim_end(),
            "{'descr': '<u4', 'fortran_order': False, 'shape': (2, ), }"
        );
        assert_eq!(bytes[10 + length..], [1, 0, 0, 0, 7, 0, 0, 0]);
    }

    #[test]
    fn cells_are_quoted_where_they_must_be() {
        assert_eq!(quoted("b, \"c\""), "\"b, \"\"c\"\"\"");
        assert_eq!(quoted("øle"), "øle");
        assert_eq!(quoted(" x"), "\" x\"");
    }
}
