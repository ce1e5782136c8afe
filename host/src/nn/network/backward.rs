//! The backward pass, which mirrors the forward one.

use super::Network;
use super::step::{Level, Step, bend, earlier, input_dropout, ranks};
use crate::backend::Backend;
use crate::error::Error;
use crate::nn::codes::{self, LayerInput};
use crate::nn::fusion::{After, Sent, Written, backward_exchange};
use crate::nn::layer::Earlier;
use crate::nn::messages::Messages;
use crate::nn::{
    Context, Halo, InputGradient, Inputs, Kept, Mode, Output, OutputGradient, OwnRows, Parameter,
};
use crate::ops::{self, Activation, Combine};
use crate::tensor::{Element, Matrix};

impl<B: Backend, E: Element> Network<B, E> {
    /// [`Model::backward`](crate::nn::Model::backward): the gradients of all stages, from the last on.
    pub(super) fn pass_back(
        &mut self,
        inputs: Inputs<'_, B, E>,
        mode: Mode<'_, B>,
    ) -> Result<(), Error> {
        if let Mode::Evaluate = mode {
            return Err(Error::Unsupported {
                operator: "Model::backward",
                reason: "a forward pass for evaluation keeps nothing for it; both want Mode::Train"
                    .into(),
            });
        }
        let backend = inputs.backend;
        let levels = self.levels(backend, inputs.graphs, inputs.features.rows())?;
        let ranks = ranks(inputs.graphs);
        // The gradient of what the layers after have read; none before the last layer, whose gradient is the model's.
        let mut lent: Option<Matrix<B, E>> = None;
        // Whether it is that of what ReLU and dropout were given already.
        let mut undone = false;
        let mut d_initial = None;
        let mut d_jumped: Vec<Option<Matrix<B, E>>> = self.jumps.iter().map(|_| None).collect();
        for (number, level) in levels.iter().enumerate().rev() {
            let activation = self.activation(number, mode);
            // What the initial stage has written is read by others as well: their gradients come first.
            let gradient_factor = number
                .checked_sub(1)
                .filter(|before| self.initial != Some(*before) && !self.jumps.contains(before))
                .and_then(|before| self.activation(before, mode).gradient_factor());
            let step = &mut self.steps[number];
            let d = lent.as_mut().unwrap_or(&mut self.gradient);
            if self.initial == Some(number)
                && let Some(sum) = d_initial.take()
            {
                ops::combine(backend, &Combine::sum(), &sum, d)?;
                self.pool.give(sum);
            }
            if !undone && (activation.relu || activation.dropout.is_some()) {
                match (ranks, activation.dropout) {
                    // Without a ReLU its numbers are drawn again.
                    (Some(ranks), Some(dropout)) if !activation.relu => {
                        ranks.drop_rows(backend, dropout, d)?;
                    }
                    _ => {
                        let output = match step.output.kept() {
                            LayerInput::Elements(output) => OwnRows::All(output),
                            LayerInput::Codes(codes) => {
                                OwnRows::Copied(codes::widened(backend, &mut self.pool, codes)?)
                            }
                        };
                        let read = Some(&*output);
                        ops::activate_backward(backend, &activation, read, None, d)?;
                        if let OwnRows::Copied(output) = output {
                            self.pool.give(output);
                        }
                    }
                }
            }
            if let Some(function) = step.nonlinearity {
                let of = step.given.as_ref().map_or(step.output.get(), Kept::get);
                ops::nonlinearity_backward(backend, function, of, d)?;
            }
            step.output.release(&mut self.pool);
            if let Some(before) = number.checked_sub(1) {
                self.make_again(before, backend, (&levels[before], ranks), mode)?;
            }
            let as_it_is = self.sends_as_it_is(number, gradient_factor, mode);
            let (before, rest) = self.steps.split_at_mut(number);
            let mut messages_before = before.last_mut().and_then(|step| step.messages.take());
            let features = Some(inputs.features).filter(|_| !inputs.dropped);
            let earlier = earlier((self.initial, &self.jumps), before, features, mode);
            let is_dropped = inputs.dropped && number == 0;
            let dropping = input_dropout(&rest[0], number, mode).filter(|_| !is_dropped);
            let Step {
                layer,
                bias,
                norm,
                residual,
                dropped,
                extended,
                messages,
                ..
            } = &mut rest[0];
            let x = match (&dropping, before.last(), dropped) {
                (Some(_), _, Some(dropped)) => LayerInput::Elements(dropped.get()),
                (_, Some(step), _) => step.output.kept(),
                (_, None, _) => LayerInput::Elements(inputs.features),
            };
            // Codes are exchanged where the layer sums them up.
            let by_codes = messages.as_ref().is_some_and(Messages::exchanges);
            let products = level.exchanges_products(layer.as_ref(), messages.is_some());
            let exchange = (level.exchange).filter(|_| !by_codes && products.is_none());
            let x = match (exchange, extended) {
                (Some(_), Some(all)) => LayerInput::Elements(all.get()),
                _ => x,
            };
            let d = lent.as_mut().unwrap_or(&mut self.gradient);
            let wanted = number > 0;
            // The layer may overwrite `d`.
            let skipped = if *residual && wanted {
                let mut copy = self.pool.take(backend, d.shape())?;
                ops::combine(backend, &Combine::copy(), d, &mut copy)?;
                Some(copy)
            } else {
                None
            };
            let mut at = Context {
                backend,
                mode,
                pool: &mut self.pool,
                layer: number,
                graph: level.graph,
                ranks,
                exchange: products,
                rows: level.rows,
                messages: messages.as_mut(),
                earlier,
                d_initial: &mut d_initial,
                d_jumped: &mut d_jumped,
            };
            if let Some(norm) = norm {
                norm.backward(&at, level.groups, d)?;
            }
            let bias = bias.as_mut().map(Parameter::gradient_mut);
            let mut dy = OutputGradient::new(backend, d, bias);
            let sending = before.last();
            let sending = sending.filter(|_| as_it_is && exchange.is_none());
            let sending = sending.and_then(|step| step.layer.sends_back().sending());
            let graph = number
                .checked_sub(1)
                .and_then(|before| levels[before].graph);
            let sent = match (sending, &mut messages_before, graph) {
                (Some(sending), Some(messages), Some(graph)) => Some(Sent {
                    sending,
                    messages,
                    graph,
                }),
                _ => None,
            };
            let factor = gradient_factor.filter(|_| skipped.is_none());
            let mut dx = InputGradient::new(wanted, x, factor, sent, exchange.filter(|_| wanted));
            let done = match x {
                LayerInput::Elements(x) => layer.backward(&mut at, x, &mut dy, &mut dx),
                LayerInput::Codes(x) => layer.backward_of_codes(&mut at, x, &mut dy, &mut dx),
            };
            let done = done
                .and_then(|()| dy.finish())
                .and_then(|()| dx.finish(&mut at));
            if let Some(step) = before.last_mut() {
                step.messages = messages_before;
            }
            let Written {
                dx: mut next,
                undone: done,
                underway,
            } = done?;
            undone = done;
            if let (Some(skipped), Some(dx)) = (skipped, &mut next) {
                ops::combine_rows(backend, skipped.rows(), &Combine::sum(), &skipped, dx)?;
                self.pool.give(skipped);
            }
            if let Some(halo) = exchange
                && let Some(all) = next.take()
            {
                // The residual's gradient is of the own rows, which are not sent.
                let packed = match underway {
                    Some(packed) => packed,
                    None => {
                        let what = backward_exchange(number);
                        halo.begin_fold(backend, &what, &mut self.pool, &all)?
                    }
                };
                let own = (level.rows, all.columns());
                let own = next.insert(self.pool.take(backend, own)?);
                halo.end_fold(backend, &mut self.pool, (&all, packed), own)?;
                self.pool.give(all);
            }
            // What else reads the same rows has told its gradient before.
            let jump = self.jumps.iter().position(|&jump| jump + 1 == number);
            if let Some(sum) = jump.and_then(|jump| d_jumped[jump].take())
                && let Some(dx) = &mut next
            {
                ops::combine(backend, &Combine::sum(), &sum, dx)?;
                self.pool.give(sum);
            }
            if let (Some(op), Some(dx)) = (dropping, &mut next) {
                match (ranks, op.dropout) {
                    (Some(ranks), Some(dropout)) => ranks.drop_rows(backend, dropout, dx)?,
                    _ => ops::activate_backward(backend, &op, None, None, dx)?,
                }
            }
            if let Some(done) = std::mem::replace(&mut lent, next) {
                self.pool.give(done);
            }
        }
        Ok(())
    }

    /// Computes the output of stage `number` once more, where it is not stored.
    fn make_again(
        &mut self,
        number: usize,
        backend: &B,
        (level, ranks): (&Level<'_, B>, Option<&Halo<B>>),
        mode: Mode<'_, B>,
    ) -> Result<(), Error> {
        let Activation { relu, dropout, .. } = self.activation(number, mode);
        let Step {
            layer,
            bias,
            nonlinearity,
            given,
            output,
            ..
        } = &mut self.steps[number];
        if output.stored || output.codes.is_some() {
            return Ok(());
        }
        let y = output.room(backend, &mut self.pool, level.rows)?;
        let after = After {
            bias: bias.as_ref().map(Parameter::master),
            relu,
            nonlinearity: bend(backend, *nonlinearity, given, level.rows)?,
            dropout: dropout.filter(|_| ranks.is_none()),
            residual: None,
        };
        let mut y = Output::new(backend, y, after);
        let mut at = Context {
            backend,
            mode,
            pool: &mut self.pool,
            layer: number,
            graph: level.graph,
            ranks,
            exchange: None,
            rows: level.rows,
            messages: None,
            earlier: Earlier::NONE,
            d_initial: &mut None,
            d_jumped: &mut [],
        };
        layer.repeat(&mut at, &mut y)?;
        y.finish(number)?;
        match (ranks, dropout, &mut output.matrix) {
            (Some(ranks), Some(dropout), Some(y)) => ranks.drop_rows(backend, dropout, y),
            _ => Ok(()),
        }
    }

    /// Whether the gradient that stage `number` writes of its input is, where ReLU and dropout before it are undone by `factor`, the one
    /// that the layer before is given: nobody adds to it and nothing else is undone.
    fn sends_as_it_is(&self, number: usize, factor: Option<f32>, mode: Mode<'_, B>) -> bool {
        let Some(number_before) = number.checked_sub(1) else {
            return false;
        };
        let (step, before) = (&self.steps[number], &self.steps[number_before]);
        let Activation { relu, dropout, .. } = self.activation(number_before, mode);
        let read_by_others =
            self.initial == Some(number_before) || self.jumps.contains(&number_before);
        let changed = step.residual
            || input_dropout(step, number, mode).is_some()
            || before.nonlinearity.is_some()
            || before.norm.is_some();
        let undone = factor.is_some() || (!relu && dropout.is_none());
        undone && !changed && !read_by_others
    }
}
