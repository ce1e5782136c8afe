//! Evaluation in pieces of the graph, layer by layer.

use super::formula::{self, FEATURES};
use super::topology::Topology;
use super::{Network, before};
use crate::backend::Backend;
use crate::data::FeatureRows;
use crate::error::Error;
use crate::nn::{Pieces, Propagation, RowsOfPieces, take_rows};
use crate::program::list::{Program, refuse};
use crate::program::passes::fuse::Fuse;
use crate::program::passes::{Evaluate, apply};
use crate::program::plan::Plan;
use crate::program::run::{Memory, Typed};
use crate::tensor::{Element, Matrix};

/// What layers gave in a pass in pieces, in the host's memory: those that are kept.
pub(super) type Outputs<B, E> = Vec<Option<Matrix<B, E>>>;

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
        if self.model.jumping.is_some() || self.model.readout.is_some() {
            return refuse("what is behind all layers is not evaluated in pieces yet; evaluate the whole graph, or sampled subgraphs".into());
        }
        self.forget();
        let last = self.model.layers - 1;
        let mut outputs: Vec<Option<FeatureRows<B, E>>> = Vec::new();
        for number in 0..=last {
            let whole = number == last || keep.contains(&number);
            let source = outputs.last().and_then(Option::as_ref).unwrap_or(features);
            let output = self.layer_in_pieces(backend, (number, whole), source, pieces)?;
            outputs.push(Some(output));
            if let Some(before) = number.checked_sub(1).filter(|it| !keep.contains(it)) {
                outputs[before] = None;
            }
        }
        let outputs = outputs.into_iter();
        self.in_pieces = outputs
            .map(|rows| rows.map(FeatureRows::into_matrix))
            .collect();
        Ok(())
    }

    /// What a layer gives of all vertices, or the last of those that are asked for; in a matrix if it is to be `whole`.
    fn layer_in_pieces(
        &mut self,
        backend: &B,
        (number, whole): (usize, bool),
        source: &FeatureRows<B, E>,
        pieces: &Pieces<E>,
    ) -> Result<FeatureRows<B, E>, Error> {
        let mut program = formula::of_layer(&self.model, E::PRECISION, number)?;
        apply(&mut program, before(Topology::Blocks, false), |_, _| {})?;
        apply(&mut program, &[&Evaluate, &Fuse], |_, _| {})?;
        let is_last = number + 1 == self.model.layers;
        let rows = match is_last {
            true => pieces.rows_asked_for(),
            false => pieces.vertices(),
        };
        let shape = (rows, self.model.layer(number).1);
        let mut written = match whole {
            true => RowsOfPieces::in_memory(backend, shape)?,
            false => RowsOfPieces::between(backend, shape, pieces.between())?,
        };
        for piece in 0..pieces.count() {
            let part = pieces.part(piece, is_last)?;
            if part.own().is_empty() {
                continue;
            }
            let graph = pieces.propagation(backend, &part)?;
            let x = take_rows(backend, source, part.vertices())?;
            let rows = self.layer_of_piece(backend, &mut program, &graph, &x)?;
            written.write(backend, &rows)?;
        }
        written.finish(backend)
    }

    fn layer_of_piece(
        &mut self,
        backend: &B,
        program: &mut Program,
        graph: &Propagation<B>,
        x: &Matrix<B, E>,
    ) -> Result<Matrix<B, E>, Error> {
        program.set_sizes(&[[graph.sources(), graph.destinations()]]);
        program.check_edges(&[graph])?;
        program.size_edges(backend, &[graph]);
        let plan = Plan::new(program);
        let mut memory = Memory::new(backend)?;
        let places = memory.fit(backend, (program, &plan), &[graph])?;
        let read = program.named(FEATURES).map(|value| (value, x));
        let mut typed = Typed {
            backend: backend.clone(),
            program,
            places: &places,
            edges: &[graph],
            inputs: read.as_slice(),
            random: self.no_random.clone(),
            parameters: &mut self.parameters,
            memory: &mut memory,
        };
        typed.run(0..program.forward)?;
        let output = program.output.map(|output| places[output.0]);
        match output.and_then(|place| memory.take_at(place)) {
            Some(rows) => Ok(rows),
            None => refuse("a layer without an output".into()),
        }
    }
}
