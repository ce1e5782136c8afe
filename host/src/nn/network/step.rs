//! A stage at work: its parameters, what it keeps, and its forward pass.

use crate::backend::Backend;
use crate::error::Error;
use crate::nn::codes::{LayerInput, StoredCodes};
use crate::nn::fusion::{After, Bend, forward_exchange};
use crate::nn::hidden_norm::StageNorm;
use crate::nn::layer::{Earlier, dropout};
use crate::nn::messages::Messages;
use crate::nn::{Context, Halo, Kept, Layer, Mode, Output, Parameter, Pool, Propagation};
use crate::ops::{self, Activation, BitMatrix, Combine, Nonlinearity, RowGroups};
use crate::tensor::{Element, Matrix};

/// What a stage computes on.
#[derive(Debug)]
pub(super) struct Level<'a, B: Backend> {
    /// None of a layer that hears from nobody.
    pub(super) graph: Option<&'a Propagation<B>>,
    /// Those of its output.
    pub(super) rows: usize,
    /// The exchange before and after a layer that hears from rows of other ranks.
    pub(super) exchange: Option<&'a Halo<B>>,
    /// The graphs that its rows are of, where there are several.
    pub(super) groups: Option<&'a RowGroups<B>>,
}

impl<'a, B: Backend> Level<'a, B> {
    /// The exchange of products that `layer` makes, where it exchanges those and sends no codes.
    pub(super) fn exchanges_products<E: Element>(
        &self,
        layer: &dyn Layer<B, E>,
        in_codes: bool,
    ) -> Option<&'a Halo<B>> {
        let halo = self.exchange.filter(|_| !in_codes)?;
        layer.exchanges_products(self.graph?).then_some(halo)
    }
}

/// A stage at work.
#[derive(Debug)]
pub(super) struct Step<B: Backend, E: Element> {
    pub(super) layer: Box<dyn Layer<B, E>>,
    pub(super) bias: Option<Parameter<B, E>>,
    pub(super) relu: bool,
    pub(super) nonlinearity: Option<Nonlinearity>,
    /// What that was given, where its gradient wants to see it.
    pub(super) given: Option<Kept<B, E>>,
    pub(super) norm: Option<StageNorm<B, E>>,
    /// That of the input.
    pub(super) dropout: f32,
    pub(super) residual: bool,
    /// The input after its dropout, where the stage before does not drop it.
    pub(super) dropped: Option<Kept<B, E>>,
    /// The input, and behind it the rows of other ranks; absent until there are some.
    pub(super) extended: Option<Kept<B, E>>,
    /// What is sent to neighbours, where that is in codes.
    pub(super) messages: Option<Messages<B>>,
    /// Those of its input, where an evaluation reads no more of it.
    pub(super) signs: Option<BitMatrix<B>>,
    /// Whether the last pass has left signs alone of its output, with the next stage.
    pub(super) has_passed_signs: bool,
    pub(super) output: StoredOutput<B, E>,
}

/// The output of a stage.
#[derive(Debug)]
pub(super) struct StoredOutput<B: Backend, E: Element> {
    pub(super) columns: usize,
    /// Absent only where it is not stored, and then while nobody wants to see it.
    pub(super) matrix: Option<Matrix<B, E>>,
    pub(super) stored: bool,
    /// What the backward pass reads instead, where that is codes; then the matrix is not stored.
    pub(super) codes: Option<StoredCodes<B>>,
}

impl<B: Backend, E: Element> StoredOutput<B, E> {
    /// What was computed.
    pub(super) fn get(&self) -> &Matrix<B, E> {
        self.matrix
            .as_ref()
            .expect("an output that is not stored is made again before it is read")
    }

    /// Room for what is to be computed.
    pub(super) fn room(
        &mut self,
        backend: &B,
        pool: &mut Pool<B, E>,
        rows: usize,
    ) -> Result<&mut Matrix<B, E>, Error> {
        let matrix = match self.matrix.take() {
            Some(matrix) => matrix,
            None => pool.take(backend, (rows, self.columns))?,
        };
        Ok(self.matrix.insert(matrix))
    }

    /// What the backward pass of the layer behind it reads.
    pub(super) fn kept(&self) -> LayerInput<'_, B, E> {
        match &self.codes {
            Some(codes) => LayerInput::Codes(codes.get()),
            None => LayerInput::Elements(self.get()),
        }
    }

    /// Keeps codes of it, where that is what is kept.
    pub(super) fn keep(&mut self, backend: &B, mode: Mode<'_, B>) -> Result<(), Error> {
        match (&mut self.codes, &self.matrix, mode) {
            (Some(codes), Some(matrix), Mode::Train { .. }) => codes.keep(backend, matrix),
            _ => Ok(()),
        }
    }

    /// Nobody wants to see it until it is made again.
    pub(super) fn release(&mut self, pool: &mut Pool<B, E>) {
        if !self.stored {
            self.matrix
                .take()
                .into_iter()
                .for_each(|matrix| pool.give(matrix));
        }
    }
}

/// What the layer behind these steps may read of them and of the features.
pub(super) fn earlier<'a, B: Backend, E: Element>(
    (initial, jumps): (Option<usize>, &[usize]),
    before: &'a [Step<B, E>],
    features: Option<&'a Matrix<B, E>>,
    mode: Mode<'_, B>,
) -> Earlier<'a, B, E> {
    let initial = initial.and_then(|number| before.get(number));
    // As the stage behind it reads it.
    let jumped = |&number: &usize| match (mode, &before.get(number + 1)?.dropped) {
        (Mode::Train { .. }, Some(dropped)) => Some(dropped.get()),
        _ => Some(before[number].output.get()),
    };
    Earlier {
        features,
        initial: initial.map(|step| step.output.get()),
        jumped: jumps.iter().map_while(jumped).collect(),
    }
}

/// The ranks that have a part of the graph each, where there are others.
pub(super) fn ranks<B: Backend>(graphs: &[Propagation<B>]) -> Option<&Halo<B>> {
    graphs.first().and_then(Propagation::halo)
}

/// The activation function of a stage whose output has so many rows, where it has a pass of its own.
pub(super) fn bend<'a, B: Backend, E: Element>(
    backend: &B,
    function: Option<Nonlinearity>,
    given: &'a mut Option<Kept<B, E>>,
    rows: usize,
) -> Result<Option<Bend<'a, B, E>>, Error> {
    let Some(function) = function else {
        return Ok(None);
    };
    let given = match given {
        Some(given) => Some(given.room(backend, rows)?),
        None => None,
    };
    Ok(Some(Bend { function, given }))
}

/// The dropout of the input of stage `number` into a matrix of its own.
pub(super) fn input_dropout<'a, B: Backend, E: Element>(
    step: &Step<B, E>,
    number: usize,
    mode: Mode<'a, B>,
) -> Option<Activation<'a, B>> {
    step.dropped.as_ref()?;
    dropout(step.dropout, number as u32, mode).map(|dropout| Activation {
        dropout: Some(dropout),
        ..Activation::default()
    })
}

/// What a stage computes on, forward.
#[derive(Debug)]
pub(super) struct Pass<'a, B: Backend, E: Element> {
    pub(super) backend: &'a B,
    pub(super) mode: Mode<'a, B>,
    /// The stage's.
    pub(super) number: usize,
    /// Whether the dropout of its input is done.
    pub(super) dropped: bool,
    pub(super) level: &'a Level<'a, B>,
    pub(super) ranks: Option<&'a Halo<B>>,
    pub(super) earlier: Earlier<'a, B, E>,
    pub(super) activation: Activation<'a, B>,
}

impl<B: Backend, E: Element> Step<B, E> {
    /// Computes its output from its input: rows of the sources of its graph, or its own.
    pub(super) fn forward(
        &mut self,
        source: &Matrix<B, E>,
        pass: Pass<'_, B, E>,
        pool: &mut Pool<B, E>,
    ) -> Result<(), Error> {
        let Pass {
            backend,
            mode,
            number,
            dropped: is_dropped,
            level,
            ranks,
            earlier,
            activation: Activation { relu, dropout, .. },
        } = pass;
        let dropping = input_dropout(self, number, mode).filter(|_| !is_dropped);
        let Step {
            layer,
            bias,
            nonlinearity,
            given,
            norm,
            residual,
            dropped,
            extended,
            messages,
            output,
            ..
        } = self;
        // Of messages alone: an evaluation sends what the model computes with.
        let mut messages = messages
            .as_mut()
            .filter(|_| matches!(mode, Mode::Train { .. }));
        let mut exchange = level.exchange;
        if let (Some(messages), Some(graph)) = (&mut messages, level.graph) {
            let by_codes =
                exchange.is_some() && layer.hears_sums_alone() && graph.exchanges_codes();
            messages.exchange(by_codes);
            exchange = exchange.filter(|_| !by_codes);
        }
        let products = level.exchanges_products(layer.as_ref(), messages.is_some());
        let exchange = exchange.filter(|_| products.is_none());
        let x = match (dropping, dropped) {
            (Some(op), Some(dropped)) => {
                let dropped = dropped.room(backend, source.rows())?;
                match (ranks, op.dropout) {
                    (Some(ranks), Some(dropout)) => {
                        ops::combine(backend, &Combine::copy(), source, dropped)?;
                        ranks.drop_rows(backend, dropout, dropped)?;
                    }
                    _ => ops::activate(backend, &op, Some(source), dropped)?,
                }
                &*dropped
            }
            _ => source,
        };
        let x = match (exchange, level.graph) {
            (Some(halo), Some(graph)) => {
                let extended = match extended {
                    Some(extended) => extended,
                    none => none.insert(Kept::new(backend, x.columns())?),
                };
                let all = extended.room(backend, graph.sources())?;
                let what = forward_exchange(number);
                halo.extend(backend, &what, pool, x, all)?;
                &*all
            }
            _ => x,
        };
        let mut after = After {
            bias: bias.as_ref().map(Parameter::master),
            relu,
            nonlinearity: bend(backend, *nonlinearity, given, level.rows)?,
            // By places in the whole graph, where a rank has a part of it.
            dropout: dropout.filter(|_| ranks.is_none()),
            residual: residual.then_some(x),
        };
        let y = output.room(backend, pool, level.rows)?;
        // With a norm behind it the layer writes elsewhere, with its bias alone.
        let mut normalized = None;
        let target = match norm {
            None => y,
            Some(norm) => {
                let before = After {
                    bias: after.bias.take(),
                    ..After::NOTHING
                };
                let behind = std::mem::replace(&mut after, before);
                normalized = Some((y, behind));
                norm.room(backend, level.rows)?
            }
        };
        let mut y = Output::new(backend, target, after);
        let mut at = Context {
            backend,
            mode,
            pool,
            layer: number,
            graph: level.graph,
            ranks,
            exchange: products,
            rows: level.rows,
            messages,
            earlier,
            d_initial: &mut None,
            d_jumped: &mut [],
        };
        layer.forward(&mut at, x, &mut y)?;
        y.finish(number)?;
        if let (Some(norm), Some((y, mut behind))) = (norm, normalized) {
            let relu = behind.relu && behind.residual.is_none();
            norm.forward(&at, level.groups, relu, y)?;
            behind.relu &= !relu;
            let mut y = Output::new(backend, y, behind);
            y.matrix();
            y.finish(number)?;
        }
        if let (Some(ranks), Some(dropout), Some(y)) = (ranks, dropout, &mut output.matrix) {
            ranks.drop_rows(backend, dropout, y)?;
        }
        Ok(())
    }
}
