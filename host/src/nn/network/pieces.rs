//! A forward pass in pieces of the graph, layer by layer.

use super::{Level, Network, Pass};
use crate::backend::{Backend, MemoryKind};
use crate::data::FeatureRows;
use crate::error::Error;
use crate::nn::layer::Earlier;
use crate::nn::{Mode, Pieces, Pool};
use crate::ops;
use crate::tensor::{Array, Element, Matrix};

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
        // Whatever an error leaves behind, the next pass makes room anew.
        self.in_pieces = true;
        self.rows = vec![vertices; self.steps.len()];
        for step in &mut self.steps {
            step.output.matrix = None;
            step.has_passed_signs = false;
        }
        let last = self.steps.len() - 1;
        // The output of each stage that somebody still reads, in the host's memory.
        let mut outputs: Vec<Option<Matrix<B, E>>> = Vec::new();
        for number in 0..=last {
            let output = self.stage_in_pieces(backend, (number, features), &outputs, pieces)?;
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
            self.steps[number].output.matrix = outputs[number].take();
        }
        Ok(())
    }

    /// What a stage gives of all vertices, of what those before it gave.
    fn stage_in_pieces(
        &mut self,
        backend: &B,
        (number, all_features): (usize, &FeatureRows<B, E>),
        outputs: &[Option<Matrix<B, E>>],
        pieces: &Pieces<E>,
    ) -> Result<Matrix<B, E>, Error> {
        let source = outputs.last().and_then(Option::as_ref);
        let columns = self.steps[number].output.columns;
        let kind = MemoryKind::HostFeatures;
        let mut whole = Matrix::zeros(backend, pieces.vertices(), columns, kind)?;
        let mut start = 0;
        for part in pieces.parts() {
            // What was lent had the rows of another piece.
            self.pool = Pool::new();
            let read = |outputs: Option<&Matrix<B, E>>| {
                outputs
                    .map(|rows| take(backend, rows, part.own()))
                    .transpose()
            };
            let of_stage = |stage: &usize| outputs.get(*stage).and_then(Option::as_ref);
            let layer = &self.steps[number].layer;
            let (hears, reads_features) = (layer.aggregates(), layer.reads_features());
            let features = match reads_features {
                true => Some(take_features(backend, all_features, part.own())?),
                false => None,
            };
            let initial = read(self.initial.as_ref().and_then(of_stage))?;
            let jumped = self.jumps.iter().map_while(of_stage);
            let jumped = jumped
                .map(|rows| take(backend, rows, part.own()))
                .collect::<Result<Vec<_>, _>>()?;
            let graph = match hears {
                true => Some(pieces.propagation(backend, part)?),
                false => None,
            };
            let heard = if hears { part.vertices() } else { part.own() };
            let source = match source {
                Some(rows) => take(backend, rows, heard)?,
                None => take_features(backend, all_features, heard)?,
            };
            let pass = Pass {
                backend,
                mode: Mode::Evaluate,
                number,
                dropped: false,
                level: &Level {
                    graph: graph.as_ref(),
                    rows: part.own().len(),
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
                let rows = rows.read_rows(backend, 0..rows.rows())?;
                whole.write_rows(backend, start, &rows)?;
            }
            start += part.own().len();
        }
        Ok(whole)
    }
}

/// The features of some vertices.
fn take_features<B: Backend, E: Element>(
    backend: &B,
    features: &FeatureRows<B, E>,
    vertices: &[u32],
) -> Result<Matrix<B, E>, Error> {
    let kind = MemoryKind::Activations;
    let order = Array::from_slice(backend, vertices, kind)?;
    features.take(backend, &order, kind)
}

/// The rows of some vertices.
fn take<B: Backend, E: Element>(
    backend: &B,
    rows: &Matrix<B, E>,
    vertices: &[u32],
) -> Result<Matrix<B, E>, Error> {
    let kind = MemoryKind::Activations;
    let order = Array::from_slice(backend, vertices, kind)?;
    let mut taken = Matrix::uninit(backend, vertices.len(), rows.columns(), kind)?;
    ops::take_rows(backend, rows, &order, &mut taken)?;
    Ok(taken)
}
