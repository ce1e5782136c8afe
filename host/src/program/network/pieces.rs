//! Evaluation in pieces of the graph, layer by layer.

use super::formula::{self, FEATURES, INITIAL};
use super::topology::{Graphs, Topology};
use super::{Network, before};
use crate::backend::Backend;
use crate::data::FeatureRows;
use crate::error::Error;
use crate::graph::Part;
use crate::nn::{Jumping, Pieces, Propagation, RowsOfPieces, take_rows};
use crate::program::layers::LayerSetting;
use crate::program::list::{Program, refuse};
use crate::program::passes::fuse::Fuse;
use crate::program::passes::{Evaluate, apply};
use crate::program::plan::Plan;
use crate::program::run::{Memory, Typed};
use crate::program::value::Value;
use crate::tensor::{Element, Matrix};
use std::borrow::Cow;

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
        if self.model.types.is_some() {
            return refuse(
                "graphs of several types are not evaluated in pieces; evaluate the whole graph"
                    .into(),
            );
        }
        if self.model.readout.is_some() {
            return refuse("a readout pools the vertices of whole graphs, which are not evaluated in pieces; evaluate the graphs whole".into());
        }
        let jumping = self.model.jumping;
        self.forget();
        let settings = formula::settings(&self.model);
        let last = settings.len() - 1;
        let initial = settings.iter().position(|layer| layer.is_initial);
        let mut outputs: Vec<Option<FeatureRows<B, E>>> = Vec::new();
        for (number, setting) in settings.iter().enumerate() {
            let is_last = number == last && jumping.is_none();
            let whole = is_last || keep.contains(&number);
            let source = outputs.last().and_then(Option::as_ref).unwrap_or(features);
            let initial_rows = initial.and_then(|of| outputs.get(of)?.as_ref());
            let sources = (source, initial_rows);
            let at = (setting, number, (whole, is_last));
            let output = self.layer_in_pieces(backend, at, sources, pieces)?;
            outputs.push(Some(output));
            let is_read =
                |it: &usize| jumping.is_some() || keep.contains(it) || initial == Some(*it);
            if let Some(before) = number.checked_sub(1).filter(|it| !is_read(it)) {
                outputs[before] = None;
            }
        }
        let logits = match jumping {
            Some(jumping) => {
                Some(self.jump_in_pieces(backend, jumping, features, &outputs, pieces)?)
            }
            None => None,
        };
        let outputs = outputs.into_iter();
        let kept = |(number, rows): (usize, Option<FeatureRows<B, E>>)| {
            let is_kept = (number == last && logits.is_none()) || keep.contains(&number);
            rows.filter(|_| is_kept).map(FeatureRows::into_matrix)
        };
        self.in_pieces = outputs.enumerate().map(kept).collect();
        if let Some(logits) = logits {
            self.in_pieces.resize_with(self.depth() - 1, || None);
            self.in_pieces.push(Some(logits.into_matrix()));
        }
        Ok(())
    }

    /// The logits of the vertices that are asked for, of what all layers gave.
    fn jump_in_pieces(
        &mut self,
        backend: &B,
        jumping: Jumping,
        features: &FeatureRows<B, E>,
        outputs: &[Option<FeatureRows<B, E>>],
        pieces: &Pieces<E>,
    ) -> Result<FeatureRows<B, E>, Error> {
        let mut program = formula::of_jump(&self.model, E::PRECISION, jumping)?;
        apply(&mut program, &[&Evaluate, &Fuse], |_, _| {})?;
        let read = [(FEATURES.to_owned(), Some(features))].into_iter();
        let outputs = outputs.iter().enumerate();
        let read: Vec<_> = read
            .chain(outputs.map(|(number, rows)| (formula::output_name(number), rows.as_ref())))
            .filter_map(|(name, rows)| Some((program.named(&name)?, rows?)))
            .filter(|(value, _)| program.readers(*value).next().is_some())
            .collect();
        let shape = (pieces.rows_asked_for(), self.model.classes);
        let mut written = RowsOfPieces::in_memory(backend, shape)?;
        for piece in 0..pieces.count() {
            let own = pieces.own(piece, true);
            if own.is_empty() {
                continue;
            }
            program.vertices[0].rows = own.len();
            let rows = read
                .iter()
                .map(|(value, rows)| Ok((*value, take_rows(backend, rows, &own)?)))
                .collect::<Result<Vec<_>, Error>>()?;
            let inputs: Vec<_> = rows.iter().map(|(value, rows)| (*value, rows)).collect();
            let logits = self.layer_of_piece(backend, &mut program, None, &inputs)?;
            written.write(backend, &logits)?;
        }
        written.finish(backend)
    }

    /// What a layer gives of all vertices, or where it `is_last` of those that are asked for; in a matrix if it is to be `whole`.
    fn layer_in_pieces(
        &mut self,
        backend: &B,
        (setting, number, (whole, is_last)): (&LayerSetting, usize, (bool, bool)),
        (source, initial): (&FeatureRows<B, E>, Option<&FeatureRows<B, E>>),
        pieces: &Pieces<E>,
    ) -> Result<FeatureRows<B, E>, Error> {
        let rows = match is_last {
            true => pieces.rows_asked_for(),
            false => pieces.vertices(),
        };
        let shape = (rows, setting.outputs);
        let mut written = match whole {
            true => RowsOfPieces::in_memory(backend, shape)?,
            false => RowsOfPieces::between(backend, shape, pieces.between())?,
        };
        let mut made: Option<(Graphs, Program)> = None;
        for piece in 0..pieces.count() {
            let part = match setting.aggregates {
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
            let graph = part.as_deref();
            let graph = graph.map(|part| pieces.propagation(backend, part));
            let graph = graph.transpose()?;
            let degrees = graph.iter().map(Propagation::largest_degree).collect();
            let of = Graphs {
                degrees,
                ..Graphs::of(Topology::Blocks { in_place: false })
            };
            let mut program = match made.take() {
                Some((before, program)) if before.is_like(&of, &self.model) => program,
                _ => self.list_of_layer(number, &of)?,
            };
            let ends = match &graph {
                Some(graph) => [graph.sources(), graph.destinations()],
                None => [own.len(); 2],
            };
            program.set_sizes(&[ends]);
            let read = part.as_deref().map_or(&*own, Part::vertices);
            let x = take_rows(backend, source, read)?;
            let initial = initial.map(|rows| take_rows(backend, rows, &own));
            let initial = initial.transpose()?;
            let named = |(name, rows)| Some((program.named(name)?, rows));
            let inputs = [
                Some((FEATURES, &x)),
                initial.as_ref().map(|it| (INITIAL, it)),
            ];
            let inputs: Vec<_> = inputs.into_iter().flatten().filter_map(named).collect();
            let rows = self.layer_of_piece(backend, &mut program, graph.as_ref(), &inputs)?;
            written.write(backend, &rows)?;
            made = Some((of, program));
        }
        written.finish(backend)
    }

    /// The list for evaluation of one layer.
    fn list_of_layer(&self, number: usize, graphs: &Graphs) -> Result<Program, Error> {
        let degree = graphs.degrees.first().copied().unwrap_or(0);
        let mut program = formula::of_layer(&self.model, E::PRECISION, (number, degree))?;
        apply(&mut program, before(graphs.topology, false), |_, _| {})?;
        apply(&mut program, &[&Evaluate, &Fuse], |_, _| {})?;
        Ok(program)
    }

    fn layer_of_piece(
        &mut self,
        backend: &B,
        program: &mut Program,
        graph: Option<&Propagation<B>>,
        inputs: &[(Value, &Matrix<B, E>)],
    ) -> Result<Matrix<B, E>, Error> {
        let edges: Vec<&Propagation<B>> = graph.into_iter().collect();
        if !edges.is_empty() {
            program.check_edges(&edges)?;
            program.size_edges(backend, &edges);
        }
        let plan = Plan::new(program);
        let mut memory = Memory::new(backend)?;
        let places = memory.fit(backend, (program, &plan), &edges)?;
        let mut typed = Typed {
            backend: backend.clone(),
            program,
            places: &places,
            edges: &edges,
            inputs,
            signs: None,
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
