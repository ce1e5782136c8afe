//! The output of a layer of a graph in pieces, and where it lies until the next layer reads it.

use super::pieces::Between;
use crate::backend::{Backend, MemoryKind};
use crate::data::FeatureRows;
#[cfg(feature = "parts")]
use crate::data::{DataError, RowSpill};
use crate::error::Error;
#[cfg(feature = "parts")]
use crate::tensor::Precision;
use crate::tensor::{Array, Element, Matrix};
#[cfg(feature = "parts")]
use std::sync::Arc;

/// Rows that a layer writes, piece after piece.
pub(crate) enum RowsOfPieces<B: Backend, E: Element> {
    /// In the host's memory, and how many are written.
    Memory(Matrix<B, E>, usize),
    #[cfg(feature = "parts")]
    Disk(RowSpill),
    /// For a device that only counts memory.
    Counted((usize, usize)),
}

impl<B: Backend, E: Element> RowsOfPieces<B, E> {
    /// No rows yet of a shape, in the host's memory.
    pub(crate) fn in_memory(backend: &B, (rows, columns): (usize, usize)) -> Result<Self, Error> {
        let kind = MemoryKind::HostFeatures;
        Ok(Self::Memory(
            Matrix::zeros(backend, rows, columns, kind)?,
            0,
        ))
    }

    /// No rows yet of a shape, where they lie until the next layer has read them.
    pub(crate) fn between(
        backend: &B,
        shape: (usize, usize),
        between: &Between,
    ) -> Result<Self, Error> {
        match between {
            Between::Memory => Self::in_memory(backend, shape),
            #[cfg(feature = "parts")]
            Between::Disk(folder) => {
                let spill = match E::PRECISION {
                    Precision::Half => RowSpill::of_halves(folder, shape.1),
                    _ => RowSpill::of_floats(folder, shape.1),
                };
                Ok(Self::Disk(spill.map_err(on_disk)?))
            }
            Between::Counted => Ok(Self::Counted(shape)),
        }
    }

    /// Adds the rows of the next piece.
    pub(crate) fn write(&mut self, backend: &B, of_piece: &Matrix<B, E>) -> Result<(), Error> {
        let rows = of_piece.rows();
        match self {
            Self::Memory(all, written) => {
                let values = of_piece.read_rows(backend, 0..rows)?;
                all.write_rows(backend, *written, &values)?;
                *written += rows;
            }
            #[cfg(feature = "parts")]
            Self::Disk(spill) => {
                // In chunks, so that the host never has all rows of a large piece.
                let (columns, stride) = (of_piece.columns(), of_piece.stride());
                let some = (SPILLED_BYTES / size_of::<E>() / stride).max(1);
                let mut floats = Vec::new();
                for start in (0..rows).step_by(some) {
                    let values = of_piece.read_rows(backend, start..rows.min(start + some))?;
                    for row in values.chunks_exact(stride) {
                        let done = match E::PRECISION {
                            Precision::Half => {
                                spill.write_halves(bytemuck::cast_slice(&row[..columns]))
                            }
                            _ => {
                                floats.clear();
                                floats
                                    .extend(row[..columns].iter().map(|element| element.to_f32()));
                                spill.write_floats(&floats)
                            }
                        };
                        done.map_err(on_disk)?;
                    }
                }
            }
            Self::Counted(_) => {}
        }
        Ok(())
    }

    /// All rows.
    pub(crate) fn finish(self, backend: &B) -> Result<FeatureRows<B, E>, Error> {
        match self {
            Self::Memory(rows, _) => Ok(rows.into()),
            #[cfg(feature = "parts")]
            Self::Disk(spill) => {
                FeatureRows::stored(backend, Arc::new(spill.finish().map_err(on_disk)?))
            }
            Self::Counted(shape) => FeatureRows::counted(backend, shape),
        }
    }
}

/// Bytes that come from a device at a time on their way to a file.
#[cfg(feature = "parts")]
const SPILLED_BYTES: usize = 64 << 20;

/// There is no file for what a layer wrote.
#[cfg(feature = "parts")]
fn on_disk(error: DataError) -> Error {
    Error::Features(format!(
        "what a layer gives is kept on disk until the next has read it: {error}"
    ))
}

/// The rows of some vertices.
pub(crate) fn take_rows<B: Backend, E: Element>(
    backend: &B,
    rows: &FeatureRows<B, E>,
    vertices: &[u32],
) -> Result<Matrix<B, E>, Error> {
    let kind = MemoryKind::Activations;
    let order = Array::from_slice(backend, vertices, kind)?;
    rows.take(backend, &order, kind)
}
