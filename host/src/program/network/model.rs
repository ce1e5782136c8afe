//! What a [`Trainer`](crate::train::Trainer) calls of a network.

use super::formula;
use super::{Kind, Network, Weights};
use crate::backend::Backend;
use crate::data::FeatureRows;
use crate::error::Error;
use crate::nn::{
    DROPOUT_STREAM, Decoder, Inputs, Jumping, LinkOperands, MARGIN, Mode, Model, Parameter, Pieces,
    first_overflow,
};
use crate::ops::{self, Dropout};
use crate::program::list::refuse;
use crate::tensor::{Element, Matrix};

impl<B: Backend, E: Element> Model<B, E> for Network<B, E> {
    fn forward(&mut self, inputs: Inputs<'_, B, E>, mode: Mode<'_, B>) -> Result<(), Error> {
        let (kind, random) = match mode {
            Mode::Train { random } => (Kind::Training, random.clone()),
            Mode::Evaluate => (Kind::Evaluation, self.no_random.clone()),
        };
        self.fit(kind, &inputs)?;
        self.last = Some(kind);
        match kind {
            Kind::Training => self.run(inputs, (kind, random), false),
            Kind::Evaluation | Kind::Signs => self.evaluate(inputs, (kind, random), None),
        }
    }

    fn see_features(&mut self, backend: &B, features: &FeatureRows<B, E>) -> Result<(), Error> {
        if self.model.binary.is_none() {
            return Ok(());
        }
        if !features.are_whole() {
            return refuse("features that stay on disk or are partitioned among ranks are never read at once, and a network of one bit normalizes them over all vertices; have them in memory".into());
        }
        match &mut self.memory.standardized {
            Some(standardized) => standardized.see(backend, features.matrix()),
            None => Ok(()),
        }
    }

    fn forward_in_pieces(
        &mut self,
        backend: &B,
        features: &FeatureRows<B, E>,
        pieces: &Pieces<E>,
        keep: &[usize],
    ) -> Result<(), Error> {
        self.pass_in_pieces(backend, features, pieces, keep)
    }

    fn classes(&self) -> usize {
        self.model.classes
    }

    fn logits(&self) -> &Matrix<B, E> {
        if let Some(Some(logits)) = self.in_pieces.last() {
            return logits;
        }
        let place = self.logits_place();
        let logits = place.and_then(|place| self.memory.at(place));
        logits.unwrap_or(&self.nothing[0])
    }

    fn loss_operands(&mut self) -> (&Matrix<B, E>, &mut Matrix<B, E>) {
        let operands = self.link_operands();
        (operands.logits, operands.gradient)
    }

    fn link_operands(&mut self) -> LinkOperands<'_, B, E> {
        let list = &self.compiled.training;
        let places = [list.program.output, list.program.seed].map(|value| list.place(value));
        let there = match places {
            [Some(logits), Some(seed)] => self.memory.at_both([logits, seed]),
            _ => None,
        };
        let [logits, gradient] = &mut self.nothing;
        let (logits, gradient) = there.unwrap_or((logits, gradient));
        LinkOperands {
            logits,
            gradient,
            decoder: self.decoder.as_mut(),
        }
    }

    fn decoder(&self) -> Option<&Decoder<B, E>> {
        self.decoder.as_ref()
    }

    fn backward(&mut self, inputs: Inputs<'_, B, E>, mode: Mode<'_, B>) -> Result<(), Error> {
        match (mode, self.last) {
            (Mode::Train { random }, Some(Kind::Training)) => {
                self.run(inputs, (Kind::Training, random.clone()), true)
            }
            _ => refuse("a backward pass follows a forward pass in training".into()),
        }
    }

    fn first_non_finite(
        &mut self,
        inputs: Inputs<'_, B, E>,
        mode: Mode<'_, B>,
    ) -> Result<Option<String>, Error> {
        // One rank alone cannot exchange rows.
        let is_rank = inputs.graphs.iter().any(|graph| graph.halo().is_some());
        if let (Mode::Train { random }, false) = (mode, is_rank)
            && let Some(operator) = self.first_spoilt(inputs, random)?
        {
            return Ok(Some(operator));
        }
        first_overflow(inputs.backend, &self.parameters())
    }

    fn dropout_of_features<'a>(&self, mode: Mode<'a, B>) -> Option<Dropout<'a, B>> {
        let settings = formula::settings(&self.model);
        let probability = settings.first().map_or(0.0, |first| first.dropout);
        let are_read_again = self.model.jumping == Some(Jumping::All);
        match mode {
            Mode::Train { random } if probability > 0.0 && !are_read_again => Some(Dropout {
                probability,
                stream: DROPOUT_STREAM,
                random,
            }),
            _ => None,
        }
    }

    fn buffers(&self) -> Vec<(String, &Matrix<B, f32>)> {
        let buffers = self.parameters.buffers().iter();
        let buffers = buffers.map(|(name, matrix)| (name.clone(), matrix));
        let messages = self.memory.messages();
        buffers
            .chain(messages.map(|(name, matrix)| (name.to_owned(), matrix)))
            .collect()
    }

    fn buffers_mut(&mut self) -> Vec<(String, &mut Matrix<B, f32>)> {
        self.memory.forget_scales();
        let buffers = self.parameters.buffers_mut().iter_mut();
        let buffers = buffers.map(|(name, matrix)| (name.clone(), matrix));
        let messages = self.memory.messages_mut();
        buffers
            .chain(messages.map(|(name, matrix)| (name.to_owned(), matrix)))
            .collect()
    }

    fn statistics_mut(&mut self) -> Vec<&mut Matrix<B, f32>> {
        let buffers = self.parameters.buffers_mut().iter_mut();
        buffers.map(|(_, matrix)| matrix).collect()
    }

    fn shared_mut(&mut self) -> Vec<&mut Matrix<B, f32>> {
        let (messages, stored) = self.memory.messages_and_stored_mut();
        messages.chain(stored).collect()
    }

    fn watched(&self) -> Vec<&Matrix<B, f32>> {
        let largest = self.memory.messages().skip(1).step_by(2);
        let stored = self.memory.largest_stored();
        largest.map(|(_, matrix)| matrix).chain(stored).collect()
    }

    fn watched_mut(&mut self) -> Vec<&mut Matrix<B, f32>> {
        let (messages, stored) = self.memory.messages_and_stored_mut();
        messages.skip(1).step_by(2).chain(stored).collect()
    }

    fn sends_nothing(&mut self, backend: &B) -> Result<(), Error> {
        for codes in self.memory.quantized_mut() {
            ops::update_scales(backend, MARGIN, codes.scales_mut())?;
        }
        // The largest magnitudes are of the step before, and this one stores nothing.
        for codes in self.memory.stored_mut() {
            ops::update_scales(backend, 1.0, codes.scales_mut())?;
        }
        Ok(())
    }

    fn parameters(&self) -> Vec<&Parameter<B, E>> {
        let decoder = self.decoder.iter().flat_map(Decoder::parameters);
        self.parameters.all().iter().chain(decoder).collect()
    }

    fn parameters_mut(&mut self) -> Vec<&mut Parameter<B, E>> {
        // The caller may change them.
        self.memory.frozen.clear();
        self.weights = Weights::Change;
        let decoder = self.decoder.iter_mut().flat_map(Decoder::parameters_mut);
        self.parameters
            .all_mut()
            .iter_mut()
            .chain(decoder)
            .collect()
    }
}
