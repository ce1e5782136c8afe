//! Tables as Parquet, packed by snappy.

use std::sync::Arc;

use parquet::basic::{Compression, LogicalType, Repetition, Type as Physical};
use parquet::data_type::{ByteArray, ByteArrayType, FloatType, Int64Type};
use parquet::errors::ParquetError;
use parquet::file::properties::WriterProperties;
use parquet::file::writer::SerializedFileWriter;
use parquet::schema::types::Type;

/// A column of a table, a cell a row, none of them empty.
#[derive(Debug, Clone, PartialEq)]
pub enum ParquetColumn<'a> {
    /// Texts.
    Texts(Vec<&'a str>),
    /// Whole numbers.
    Wholes(Vec<i64>),
    /// Numbers.
    Floats(Vec<f32>),
}

impl ParquetColumn<'_> {
    /// The number of rows.
    pub fn len(&self) -> usize {
        match self {
            Self::Texts(cells) => cells.len(),
            Self::Wholes(cells) => cells.len(),
            Self::Floats(cells) => cells.len(),
        }
    }

    /// Whether there is no row.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    fn field(&self, name: &str) -> Result<Type, ParquetError> {
        let (physical, logical) = match self {
            Self::Texts(_) => (Physical::BYTE_ARRAY, Some(LogicalType::String)),
            Self::Wholes(_) => (Physical::INT64, None),
            Self::Floats(_) => (Physical::FLOAT, None),
        };
        Type::primitive_type_builder(name, physical)
            .with_repetition(Repetition::REQUIRED)
            .with_logical_type(logical)
            .build()
    }
}

/// A file with these columns under their names.
///
/// # Errors
/// In words, where columns differ in length or share a name.
pub fn parquet_file(columns: &[(&str, ParquetColumn<'_>)]) -> Result<Vec<u8>, String> {
    if let Some(other) = columns
        .windows(2)
        .find(|two| two[0].1.len() != two[1].1.len())
    {
        return Err(format!(
            "column {} is longer or shorter than column {}",
            other[1].0, other[0].0
        ));
    }
    write(columns).map_err(|error| error.to_string())
}

fn write(columns: &[(&str, ParquetColumn<'_>)]) -> Result<Vec<u8>, ParquetError> {
    let fields = columns
        .iter()
        .map(|(name, column)| column.field(name).map(Arc::new))
        .collect::<Result<Vec<_>, _>>()?;
    let schema = Type::group_type_builder("table")
        .with_fields(fields)
        .build()?;
    let properties = WriterProperties::builder().set_compression(Compression::SNAPPY);
    let mut bytes = Vec::new();
    let mut file =
        SerializedFileWriter::new(&mut bytes, Arc::new(schema), Arc::new(properties.build()))?;
    let mut group = file.next_row_group()?;
    for (_, column) in columns {
        let Some(mut writer) = group.next_column()? else {
            break;
        };
        match column {
            ParquetColumn::Texts(cells) => {
                let cells: Vec<ByteArray> = cells.iter().map(|&cell| cell.into()).collect();
                writer
                    .typed::<ByteArrayType>()
                    .write_batch(&cells, None, None)?;
            }
            ParquetColumn::Wholes(cells) => {
                writer.typed::<Int64Type>().write_batch(cells, None, None)?;
            }
            ParquetColumn::Floats(cells) => {
                writer.typed::<FloatType>().write_batch(cells, None, None)?;
            }
        }
        writer.close()?;
    }
    group.close()?;
    file.close()?;
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Dataset;
    use crate::testing::Folder;

    #[test]
    fn tables_are_read_again() {
        let nodes = parquet_file(&[
            ("id", ParquetColumn::Texts(vec!["b", "ø, a"])),
            ("label", ParquetColumn::Wholes(vec![1, 0])),
            ("f", ParquetColumn::Floats(vec![0.5, -3.0])),
        ]);
        let edges = parquet_file(&[
            ("source", ParquetColumn::Texts(vec!["b"])),
            ("target", ParquetColumn::Texts(vec!["ø, a"])),
        ]);
        let folder = Folder::new();
        folder.write("nodes.parquet", &nodes.unwrap());
        folder.write("edges.parquet", &edges.unwrap());
        let dataset = Dataset::open(folder.path()).unwrap();
        assert_eq!(dataset.ids.unwrap().get(1), "ø, a");
        assert_eq!(dataset.targets, vec![1, 0].into());
        assert_eq!(dataset.graph.csr().row(1), [0]);
        let uneven = [
            ("a", ParquetColumn::Wholes(vec![1])),
            ("b", ParquetColumn::Wholes(vec![])),
        ];
        assert!(
            parquet_file(&uneven)
                .unwrap_err()
                .contains("column b is longer or shorter")
        );
    }
}
