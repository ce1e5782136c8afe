//! A forward pass in pieces of the graph, layer by layer.

use super::{Level, Network, Pass};
use crate::backend::{Backend, MemoryKind};
use crate::data::FeatureRows;
#[cfg(feature = "parts")]
use crate::data::{DataError, RowSpill};
use crate::error::Error;
use crate::graph::Part;
use crate::nn::layer::Earlier;
use crate::nn::pieces::Between;
use crate::nn::{Mode, Pieces, Pool};
#[cfg(feature = "parts")]
use crate::tensor::Precision;
use crate::tensor::{Array, Element, Matrix};
use std::borrow::Cow;
#[cfg(feature = "parts")]
use std::sync::Arc;

impl<B: Backend, E: Element> Network<B, E> {
    /// See [`Model::forward_in_pieces`](crate::nn::Model::forward_in_pieces).
    pub(super) fn pass_in_pieces(
        &mut self,
        backend: &B,
        features: &FeatureRows<B, E>,
        pieces: &Pieces<E>,
        keep: &[usize],
    ) -> Result<(), Error> {
        const NAME: &str = "Network::forward_in_pieces";
        let vertices = pieces.vertices();
        Error::expect(NAME, "rows of the features", vertices, features.rows())?;
        pieces.check()?;
        let last = self.steps.len() - 1;
        // Whatever an error leaves behind, the next pass makes room anew.
        self.in_pieces = true;
        self.rows = vec![vertices; last];
        self.rows.push(pieces.rows_asked_for());
        for step in &mut self.steps {
            step.output.matrix = None;
            step.has_passed_signs = false;
        }
        // The output of each stage that somebody still reads.
        let mut outputs: Vec<Option<FeatureRows<B, E>>> = Vec::new();
        for number in 0..=last {
            // Layers that are asked for are kept as matrices.
            let whole = number == last || keep.contains(&number);
            let at = (number, whole);
            let output = self.stage_in_pieces(backend, at, features, &outputs, pieces)?;
            outputs.push(Some(output));
            let is_read_later = |before: usize| {
                self.initial == Some(before)
                    || self.jumps.contains(&before)
                    || keep.contains(&before)
            };
            if let Some(before) = number
                .checked_sub(1)
                .filter(|&before| !is_read_later(before))
            {
                outputs[before] = None;
            }
        }
        let kept = |number: &usize| *number == last || keep.contains(number);
        for number in (0..=last).filter(kept) {
            let output = outputs[number].take();
            self.steps[number].output.matrix = output.map(FeatureRows::into_matrix);
        }
        Ok(())
    }

    /// What a stage gives of all vertices, or the last of those that are asked for, of what those before it gave; in a matrix if it is to be
    /// `whole`.
    fn stage_in_pieces(
        &mut self,
        backend: &B,
        (number, whole): (usize, bool),
        all_features: &FeatureRows<B, E>,
        outputs: &[Option<FeatureRows<B, E>>],
        pieces: &Pieces<E>,
    ) -> Result<FeatureRows<B, E>, Error> {
        let source = outputs.last().and_then(Option::as_ref);
        let source = source.unwrap_or(all_features);
        let is_last = number + 1 == self.steps.len();
        let rows = match is_last {
            true => pieces.rows_asked_for(),
            false => pieces.vertices(),
        };
        let shape = (rows, self.steps[number].output.columns);
        let mut written = match whole {
            true => RowsOfPieces::in_memory(backend, shape)?,
            false => RowsOfPieces::between(backend, shape, pieces.between())?,
        };
        for piece in 0..pieces.count() {
            // What was lent had the rows of another piece.
            self.pool = Pool::new();
            let layer = &self.steps[number].layer;
            let (hears, reads_features) = (layer.aggregates(), layer.reads_features());
            let part = match hears {
                true => Some(pieces.part(piece, is_last)?),
                false => None,
            };
            let own = match &part {
                Some(part) => Cow::Borrowed(part.own()),
                None => Cow::Owned(pieces.own(piece, is_last)),
            };
            if own.is_empty() {
                continue;
            }
            let of_own = |rows: &FeatureRows<B, E>| take_rows(backend, rows, &own);
            let of_stage = |stage: &usize| outputs.get(*stage).and_then(Option::as_ref);
            let features = reads_features.then(|| of_own(all_features)).transpose()?;
            let initial = self.initial.as_ref().and_then(of_stage);
            let initial = initial.map(of_own).transpose()?;
            let jumped = self.jumps.iter().map_while(of_stage);
            let jumped = jumped.map(of_own).collect::<Result<Vec<_>, _>>()?;
            let graph = part
                .as_deref()
                .map(|part| pieces.propagation(backend, part));
            let graph = graph.transpose()?;
            let heard = part.as_deref().map_or(&*own, Part::vertices);
            let source = take_rows(backend, source, heard)?;
            let pass = Pass {
                backend,
                mode: Mode::Evaluate,
                number,
                dropped: false,
                level: &Level {
                    graph: graph.as_ref(),
                    rows: own.len(),
                    exchange: None,
                    groups: None,
                },
                ranks: None,
                earlier: Earlier {
                    features: features.as_ref(),
                    initial: initial.as_ref(),
                    jumped: jumped.iter().collect(),
                },
                activation: self.activation(number, Mode::Evaluate),
            };
            let step = &mut self.steps[number];
            step.forward(&source, pass, &mut self.pool)?;
            if let Some(rows) = step.output.matrix.take() {
                written.write(backend, &rows)?;
            }
        }
        written.finish(backend)
    }
}

/// Rows that a stage gives, those of one piece behind those of the other.
pub(crate) enum RowsOfPieces<B: Backend, E: Element> {
    /// In the host's memory, so many by now.
    Memory(Matrix<B, E>, usize),
    #[cfg(feature = "parts")]
    Disk(RowSpill),
    /// Of a device that only counts memory.
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
                // Some at a time, so that the host never has all of a large piece.
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

/// What a layer gave has no place.
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
