//! What a layer is, and what it computes with.

use super::aggregation::Sending;
use super::codes::{self, LayerInput, StoredCodes};
use super::fusion::{backward_exchange, forward_exchange};
use super::messages::{Direction, Messages};
use super::{
    Halo, InputGradient, Mode, Output, OutputGradient, Parameter, Pool, Propagation, glorot_uniform,
};
use crate::backend::Backend;
use crate::data::FeatureRows;
use crate::error::Error;
use crate::ops::{self, BitMatrix, Combine, Dropout, Epilogue, Form, QuantizedMatrix};
use crate::tensor::{Array, Element, Matrix};
use std::fmt;
use std::ops::Deref;

/// A layer of a [`Network`](super::Network): sources × inputs to destinations × outputs. Anybody can write one.
///
/// Bias, ReLU, dropout and residual connection come around it and are not its own: a [`Stage`](super::Stage) says which.
/// A layer offers what its operators can do of them on their way by writing through [`Output`], reading gradients through
/// [`OutputGradient`] and giving its own through [`InputGradient`]. Whatever it leaves to them is done after it in passes
/// of their own, so that nothing can be forgotten, and what it does not write at all is an error.
pub trait Layer<B: Backend, E: Element>: fmt::Debug + Send + Sync {
    /// Inputs and outputs: columns of `x` and of `y`.
    fn widths(&self) -> (usize, usize);

    /// Whether it hears from neighbours: its output has a row for each destination of [`Context::graph`]. The output of one
    /// that does not has the rows of its input, and it has no graph.
    fn aggregates(&self) -> bool {
        true
    }

    /// Whether it makes a row of each graph from the rows of its vertices, by a graph of its own.
    fn pools(&self) -> bool {
        false
    }

    /// Whether it reads [`Context::features`] beside its input. Of a graph in pieces and of a sampled batch it finds none unless it says so.
    fn reads_features(&self) -> bool {
        false
    }

    /// Columns of what it sums up over neighbours, forward and backward, where it does that by [`Aggregation`](super::Aggregation)
    /// alone: then a [stage](super::Stage::messages) can have them sent in 8 bits.
    fn message_columns(&self) -> Option<usize> {
        None
    }

    /// Whether all that it reads of its neighbours are those sums, and everything else of the destinations' rows: then ranks can exchange
    /// the codes of what is summed up, and its input has a rank's own rows alone.
    fn hears_sums_alone(&self) -> bool {
        false
    }

    /// Whether its input may have a row for each vertex of a graph of which it hears a few: then it finds the destinations' rows by
    /// [`Context::own_rows`], and makes no gradient of its input. A first layer may then be given a [block](crate::backend::Block::own) whose sources are all
    /// vertices.
    fn picks_own_rows(&self) -> bool {
        false
    }

    /// Whether ranks exchange the rows of the product that it makes of its input and then sums up, and not those of its input around it: no
    /// wider, and no rank makes products of others' rows. Its input has a rank's own rows alone then, and it exchanges the products itself, which only
    /// the layers here can: one of another crate leaves it as it is. Not asked where it sends codes.
    fn exchanges_products(&self, _graph: &Propagation<B>) -> bool {
        false
    }

    /// What its backward pass sends against the edges first. Where that is the gradient of its output and goes in 8 bits, the layer behind
    /// it makes the codes where it writes that gradient ([`InputGradient::product`]): those that the sum would make of it, bit for bit.
    fn sends_back(&self) -> SentBack {
        SentBack::Own
    }

    /// Has what its backward pass reads of the forward pass kept in 8-bit codes from now on, where it can: its input
    /// ([`Layer::backward_of_codes`]), and what it [stores](Layer::stored) itself. False of one that reads its input as it was.
    ///
    /// # Errors
    /// Those of [`StoredCodes::new`].
    fn store_codes(&mut self, _backend: &B) -> Result<bool, Error> {
        Ok(false)
    }

    /// What it keeps in codes of the last forward pass.
    fn stored(&self) -> Vec<&StoredCodes<B>> {
        Vec::new()
    }

    /// Takes from the features of all vertices what steps on batches of these are to know of them, such as statistics, of which a batch
    /// has others. The first layer of a network is shown them before the first such step.
    ///
    /// # Errors
    /// Those of the operators, and [`Error::Unsupported`] where it has to see all at once and they are not [whole](FeatureRows::are_whole).
    fn see_features(&mut self, _backend: &B, _features: &FeatureRows<B, E>) -> Result<(), Error> {
        Ok(())
    }

    /// Computes `y` from `x`, and keeps what [`Layer::backward`] wants to see again.
    ///
    /// # Errors
    /// Those of the operators.
    fn forward(
        &mut self,
        at: &mut Context<'_, B, E>,
        x: &Matrix<B, E>,
        y: &mut Output<'_, B, E>,
    ) -> Result<(), Error>;

    /// The gradients of the parameters and, where it is wanted, `dx` from `dy`, for the forward pass before.
    ///
    /// # Errors
    /// Those of the operators.
    fn backward(
        &mut self,
        at: &mut Context<'_, B, E>,
        x: &Matrix<B, E>,
        dy: &mut OutputGradient<'_, B, E>,
        dx: &mut InputGradient<'_, B, E>,
    ) -> Result<(), Error>;

    /// Whether an evaluation reads nothing of the input but its [signs](Layer::signs_of): then it computes by
    /// [`Layer::forward_of_signs`], and no matrix has to hold what they are the signs of.
    fn reads_signs(&self) -> bool {
        false
    }

    /// Whether the [signs](Layer::signs_of) that it reads are those of columns less their means over all rows, rather than of the columns
    /// as they are.
    fn centres_columns(&self) -> bool {
        false
    }

    /// Whether [`Layer::forward_of_signs`] can give the signs of its output alone, without the factors that change none: where the next
    /// layer reads no more, and nothing stands between them, they are asked for.
    fn writes_signs(&self) -> bool {
        false
    }

    /// The signs of `x` that an evaluation reads, of a layer that says so by [`Layer::reads_signs`].
    ///
    /// # Errors
    /// Those of the operators.
    fn signs_of(
        &mut self,
        _backend: &B,
        _x: &Matrix<B, E>,
        _signs: &mut BitMatrix<B>,
    ) -> Result<(), Error> {
        Err(no_signs())
    }

    /// [`Layer::forward`] in an evaluation, of the [signs](Layer::signs_of) of `x`.
    ///
    /// # Errors
    /// Those of the operators.
    fn forward_of_signs(
        &mut self,
        _at: &mut Context<'_, B, E>,
        _signs: &BitMatrix<B>,
        _y: SignsOrElements<'_, '_, B, E>,
    ) -> Result<(), Error> {
        Err(no_signs())
    }

    /// [`Layer::backward`] of an input of which codes were kept, of a layer that [takes](Layer::store_codes) them. Where `x` has more rows
    /// than there are destinations, those come first.
    ///
    /// # Errors
    /// Those of the operators.
    fn backward_of_codes(
        &mut self,
        at: &mut Context<'_, B, E>,
        _x: &QuantizedMatrix<B>,
        _dy: &mut OutputGradient<'_, B, E>,
        _dx: &mut InputGradient<'_, B, E>,
    ) -> Result<(), Error> {
        Err(Error::Unsupported {
            operator: "Network",
            reason: format!(
                "layer {} says by Layer::store_codes that it takes codes, and has no backward pass of them",
                at.layer
            ),
        })
    }

    /// Whether there is [`Layer::repeat`].
    fn repeats(&self) -> bool {
        false
    }

    /// Computes `y` once more from what the last [`Layer::forward`] kept, bit for bit, of a layer that
    /// [repeats](Layer::repeats).
    ///
    /// # Errors
    /// Those of the operators.
    fn repeat(&self, _at: &mut Context<'_, B, E>, _y: &mut Output<'_, B, E>) -> Result<(), Error> {
        Err(Error::Unsupported {
            operator: "Model::backward",
            reason: "the layer keeps too little to compute its output once more".into(),
        })
    }

    /// The parameters, in a fixed order. A network puts `layers.N.` before their names.
    fn parameters(&self) -> Vec<&Parameter<B, E>>;

    /// The parameters, in the same order.
    fn parameters_mut(&mut self) -> Vec<&mut Parameter<B, E>>;

    /// Makes what follows from the parameters alone, so that evaluations need not make it anew each time; until somebody asks for
    /// [`Layer::parameters_mut`].
    ///
    /// # Errors
    /// Those of the operators.
    fn freeze(&mut self, _backend: &B) -> Result<(), Error> {
        Ok(())
    }

    /// Running statistics and the like, by name: see [`Model::buffers`](super::Model::buffers).
    fn buffers(&self) -> Vec<(&'static str, &Matrix<B, f32>)> {
        Vec::new()
    }

    /// The same, in the same order.
    fn buffers_mut(&mut self) -> Vec<(&'static str, &mut Matrix<B, f32>)> {
        Vec::new()
    }

    /// What is kept of the last forward pass, by name, in the order in which it was computed.
    fn kept(&self) -> Vec<(&'static str, &Matrix<B, E>)> {
        Vec::new()
    }
}

pub(super) fn no_signs() -> Error {
    Error::Unsupported {
        operator: "Layer::forward_of_signs",
        reason: "the layer computes with more than signs; give it elements".into(),
    }
}

/// Where a layer writes what it computes of signs.
#[derive(Debug)]
pub enum SignsOrElements<'y, 'o, B: Backend, E: Element> {
    /// Their signs alone, of a layer that [writes](Layer::writes_signs) them.
    Signs(&'y mut BitMatrix<B>),
    /// Elements.
    Elements(&'y mut Output<'o, B, E>),
}

/// What a layer's backward pass sends against the edges first: see [`Layer::sends_back`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SentBack {
    /// What it computes itself, or nothing.
    Own,
    /// The gradient of its output as it comes.
    Gradient,
    /// That, times the graph's factors of rows: by [`Aggregation::backward`](super::Aggregation::backward), which is told that it is not
    /// scaled.
    ScaledGradient,
}

impl SentBack {
    /// How the gradient is sent, where it is.
    pub(super) fn sending(self) -> Option<Sending> {
        let sending = |scaled| Sending {
            direction: Direction::Backward,
            scaled,
            alone: false,
        };
        match self {
            SentBack::Own => None,
            SentBack::Gradient => Some(sending(true)),
            SentBack::ScaledGradient => Some(sending(false)),
        }
    }
}

/// What a layer computes with.
#[derive(Debug)]
pub struct Context<'a, B: Backend, E: Element> {
    /// Where it computes.
    pub backend: &'a B,
    /// What the pass is for.
    pub mode: Mode<'a, B>,
    /// Lends matrices for the length of an operator.
    pub pool: &'a mut Pool<B, E>,
    /// The layer's number in its network.
    pub(super) layer: usize,
    /// None where it hears from nobody.
    pub(super) graph: Option<&'a Propagation<B>>,
    /// The ranks that have a part of the graph each, where there are others.
    pub(super) ranks: Option<&'a Halo<B>>,
    /// Those that it exchanges products with, where it [does](Layer::exchanges_products).
    pub(super) exchange: Option<&'a Halo<B>>,
    /// Those of its output.
    pub(super) rows: usize,
    /// In codes, where they are sent so in this pass.
    pub(super) messages: Option<&'a mut Messages<B>>,
    pub(super) earlier: Earlier<'a, B, E>,
    pub(super) d_initial: &'a mut Option<Matrix<B, E>>,
    /// Gradients of the rows that [`Context::jumped`] has, where somebody has told them.
    pub(super) d_jumped: &'a mut [Option<Matrix<B, E>>],
}

/// What a layer may read beside its input.
#[derive(Debug)]
pub(super) struct Earlier<'a, B: Backend, E: Element> {
    /// None where an output is made again, and of a graph in pieces for layers that do not say that they read it.
    pub(super) features: Option<&'a Matrix<B, E>>,
    pub(super) initial: Option<&'a Matrix<B, E>>,
    pub(super) jumped: Vec<&'a Matrix<B, E>>,
}

impl<B: Backend, E: Element> Earlier<'_, B, E> {
    /// Nothing.
    pub(super) const NONE: Self = Self {
        features: None,
        initial: None,
        jumped: Vec::new(),
    };
}

impl<'a, B: Backend, E: Element> Context<'a, B, E> {
    /// The layer's graph and its degree norms. A layer that does not sum up by [`Aggregation`](super::Aggregation) multiplies by its
    /// [`edge_factors`](Propagation::edge_factors) itself, or refuses them.
    ///
    /// # Errors
    /// [`Error::Unsupported`] where the layer says that it [hears](Layer::aggregates) from nobody.
    pub fn graph(&self) -> Result<&'a Propagation<B>, Error> {
        self.graph.ok_or_else(|| Error::Unsupported {
            operator: "Network",
            reason: format!(
                "layer {} reads its graph, and its Layer::aggregates says that it has none",
                self.layer
            ),
        })
    }

    /// Factor of each row that the layer sums up: [`Propagation::column_scale`], of the own rows alone where ranks exchange codes.
    ///
    /// # Errors
    /// Those of [`Context::graph`].
    pub fn column_scale(&self) -> Result<Option<&'a Array<B, f32>>, Error> {
        Ok(self.graph()?.sent_scale(self.exchanges_codes()))
    }

    /// Whether ranks exchange codes where the layer sums up, and not its input's rows around it.
    pub(super) fn exchanges_codes(&self) -> bool {
        self.messages.as_ref().is_some_and(|it| it.exchanges())
    }

    /// Whether this is a step on a block that was drawn for it, with more sources than destinations, whose layers send no codes, and on no
    /// rank's part of a graph.
    pub(super) fn learns_on_block(&self) -> bool {
        // Of a block whose sources are all vertices there may be room for more destinations than those.
        let has_more_sources = |graph: &Propagation<B>| {
            graph.own().is_some() || graph.sources() > graph.destinations()
        };
        matches!(self.mode, Mode::Train { .. })
            && self.graph.is_some_and(has_more_sources)
            && self.ranks.is_none()
            && self.messages.is_none()
    }

    /// Whether the destinations' rows are not the first ones of the input.
    pub(super) fn picks_rows(&self) -> bool {
        self.graph.is_some_and(|graph| graph.own().is_some())
    }

    /// Rows of the layer's output: the destinations of its graph.
    pub fn rows(&self) -> usize {
        self.rows
    }

    /// The rows of the destinations in `x`, which has a row for each source, to be [given](Context::give_rows) back: `x` itself
    /// where there are no other sources.
    ///
    /// # Errors
    /// Those of [`Matrix::zeros`], [`ops::combine_rows`] and [`ops::take_rows`].
    pub fn own_rows<'x>(&mut self, x: &'x Matrix<B, E>) -> Result<OwnRows<'x, B, E>, Error> {
        if let Some(own) = self.graph.and_then(Propagation::own) {
            let mut rows = self.take(x.columns())?;
            ops::take_rows(self.backend, x, own, &mut rows)?;
            return Ok(OwnRows::Copied(rows));
        }
        if x.rows() == self.rows {
            return Ok(OwnRows::All(x));
        }
        let mut rows = self.take(x.columns())?;
        ops::combine_rows(self.backend, self.rows, &Combine::copy(), x, &mut rows)?;
        Ok(OwnRows::Copied(rows))
    }

    /// The rows of the destinations, in `kept`, where they are not the first ones of `x`: else `x` itself.
    ///
    /// # Errors
    /// Those of [`Context::own_rows`].
    pub(super) fn first_or_picked<'x>(
        &self,
        x: &'x Matrix<B, E>,
        kept: &'x mut Option<Kept<B, E>>,
    ) -> Result<&'x Matrix<B, E>, Error> {
        let Some(own) = self.graph.and_then(Propagation::own) else {
            return Ok(x);
        };
        let kept = match kept {
            Some(kept) => kept,
            none => none.insert(Kept::new(self.backend, x.columns())?),
        };
        let rows = kept.room(self.backend, self.rows)?;
        ops::take_rows(self.backend, x, own, rows)?;
        Ok(rows)
    }

    /// [`Context::own_rows`] of an input that may be in codes, whose numbers have a copy then.
    pub(super) fn own_rows_of<'x>(
        &mut self,
        x: LayerInput<'x, B, E>,
    ) -> Result<OwnRows<'x, B, E>, Error> {
        let codes = match x {
            LayerInput::Elements(x) => return self.own_rows(x),
            LayerInput::Codes(codes) => codes,
        };
        let all = codes::widened(self.backend, self.pool, codes)?;
        if all.rows() == self.rows {
            return Ok(OwnRows::Copied(all));
        }
        let mut rows = self.take(all.columns())?;
        ops::combine_rows(self.backend, self.rows, &Combine::copy(), &all, &mut rows)?;
        self.give(all);
        Ok(OwnRows::Copied(rows))
    }

    /// A matrix for the product of all sources that the layer sums up next, of so many columns: where codes of it are sent it is not read.
    pub(super) fn take_sent(&mut self, rows: usize, columns: usize) -> Result<Matrix<B, E>, Error> {
        // What is exchanged has no gaps.
        match self.messages.is_some() || self.exchange.is_some() {
            true => self.pool.take(self.backend, (rows, columns)),
            false => self.pool.take_gathered(self.backend, (rows, columns)),
        }
    }

    /// Rows of what is summed up, of an input of so many: the sources of the graph.
    pub(super) fn sources(&self, rows: usize) -> usize {
        self.exchange.map_or(rows, Halo::sources)
    }

    /// `y = epilogue(x · weight)` of all sources, which is sent next: where ranks [exchange](Layer::exchanges_products) products `x` has the
    /// own rows alone, and those of others come behind theirs.
    ///
    /// # Errors
    /// Those of [`ops::matmul_fused`], of the exchange and of the device.
    pub(super) fn product_of_sources(
        &mut self,
        sending: Sending,
        (x, weight): (&Matrix<B, E>, &Matrix<B, E>),
        epilogue: &Epilogue<'_, B>,
        y: &mut Matrix<B, E>,
    ) -> Result<(), Error> {
        let Some(halo) = self.exchange else {
            return sending.product(self, Form::NN, [x, weight], epilogue, y);
        };
        ops::matmul_to_rows(
            self.backend,
            Form::NN,
            x,
            weight,
            epilogue,
            (0..x.rows(), &mut *y),
        )?;
        let what = forward_exchange(self.layer);
        halo.extend_own(self.backend, &what, self.pool, y)
    }

    /// The gradient of the own rows, of that of all sources: with what other ranks have of theirs, where ranks
    /// [exchange](Layer::exchanges_products) products.
    ///
    /// # Errors
    /// Those of the exchange and of the device.
    pub(super) fn fold(&mut self, all: Matrix<B, E>) -> Result<Matrix<B, E>, Error> {
        let Some(halo) = self.exchange else {
            return Ok(all);
        };
        let what = backward_exchange(self.layer);
        // Before rows are on their way, which an error would leave there.
        let mut own = self.take(all.columns())?;
        let packed = halo.begin_fold(self.backend, &what, self.pool, &all)?;
        halo.end_fold(self.backend, self.pool, (&all, packed), &mut own)?;
        self.give(all);
        Ok(own)
    }

    /// Gives rows back that were copied.
    pub fn give_rows(&mut self, rows: OwnRows<'_, B, E>) {
        if let OwnRows::Copied(rows) = rows {
            self.give(rows);
        }
    }

    /// A matrix with a row for each destination and any content, to [give](Context::give) back.
    ///
    /// # Errors
    /// Those of [`Matrix::zeros`].
    pub fn take(&mut self, columns: usize) -> Result<Matrix<B, E>, Error> {
        self.pool.take(self.backend, (self.rows(), columns))
    }

    /// Gives a matrix back to the pool.
    pub fn give(&mut self, matrix: Matrix<B, E>) {
        self.pool.give(matrix);
    }

    /// The layer's own dropout `number`, beside that of its input; none in evaluation, or where nothing is dropped.
    pub fn dropout(&self, probability: f32, number: u32) -> Option<Dropout<'a, B>> {
        let stream = (number + 1) << 16;
        dropout(probability, stream + self.layer as u32, self.mode)
    }

    /// The output of the network's initial stage, `H⁰`, before any dropout.
    ///
    /// # Errors
    /// [`Error::Unsupported`] where no stage before the layer's is the [initial](super::Stage::initial) one.
    pub fn initial(&self) -> Result<&'a Matrix<B, E>, Error> {
        self.earlier.initial.ok_or_else(|| Error::Unsupported {
            operator: "Network",
            reason: format!(
                "layer {} reads the initial rows, and no stage before it is marked with Stage::initial",
                self.layer
            ),
        })
    }

    /// Adds `factor · d` to the gradient of [`Context::initial`], to that of the destinations.
    ///
    /// # Errors
    /// Those of [`ops::combine_rows`].
    pub fn add_to_initial(&mut self, factor: f32, d: &Matrix<B, E>) -> Result<(), Error> {
        let initial = self.initial()?.shape();
        let lent = (self.backend, &mut *self.pool);
        add_to_gradient(lent, self.d_initial, initial, (factor, d))
    }

    /// The features that the network was given, before any dropout, in a forward or a backward pass.
    ///
    /// # Errors
    /// [`Error::Unsupported`] where an output is [made again](Layer::repeat), and of a graph in [pieces](super::Pieces) or a sampled batch where
    /// the layer does not say that it [reads](Layer::reads_features) them.
    pub fn features(&self) -> Result<&'a Matrix<B, E>, Error> {
        self.earlier.features.ok_or_else(|| Error::Unsupported {
            operator: "Network",
            reason: format!(
                "layer {} reads the features where it does not see them: to make its output again, or of a graph in pieces or a sampled batch without saying so by Layer::reads_features",
                self.layer
            ),
        })
    }

    /// The outputs of the stages that [jump](super::Stage::jumps), in their order, as the stage behind each reads them: after its
    /// dropout. The rows of destinations come first.
    pub fn jumped(&self) -> Vec<&'a Matrix<B, E>> {
        self.earlier.jumped.clone()
    }

    /// Adds `d` to the gradient of the `number`-th of [`Context::jumped`], to that of the first rows where it has fewer.
    ///
    /// # Errors
    /// [`Error::Unsupported`] where there is no such one, and those of [`ops::combine_rows`].
    pub fn add_to_jumped(&mut self, number: usize, d: &Matrix<B, E>) -> Result<(), Error> {
        let (Some(&jumped), Some(place)) = (
            self.earlier.jumped.get(number),
            self.d_jumped.get_mut(number),
        ) else {
            return Err(Error::Unsupported {
                operator: "Network",
                reason: format!(
                    "layer {} tells a gradient of jump {number}, and there is none; mark a stage with Stage::jumps",
                    self.layer
                ),
            });
        };
        let lent = (self.backend, &mut *self.pool);
        add_to_gradient(lent, place, jumped.shape(), (1.0, d))
    }
}

/// Adds `factor · d` to the first rows of a gradient of this shape, which is zero where nothing was added before.
fn add_to_gradient<B: Backend, E: Element>(
    (backend, pool): (&B, &mut Pool<B, E>),
    place: &mut Option<Matrix<B, E>>,
    shape: (usize, usize),
    (factor, d): (f32, &Matrix<B, E>),
) -> Result<(), Error> {
    let mut term = Combine {
        x_factor: factor,
        ..Combine::sum()
    };
    let sum = match place {
        Some(sum) => sum,
        none => {
            let sum = none.insert(pool.take(backend, shape)?);
            if sum.rows() == d.rows() {
                term.y_factor = 0.0;
            } else {
                sum.clear(backend)?;
            }
            sum
        }
    };
    ops::combine_rows(backend, d.rows(), &term, d, sum)
}

/// Rows of vertices in a matrix: all that it has, or a copy; see [`Context::own_rows`].
#[derive(Debug)]
pub enum OwnRows<'x, B: Backend, E: Element> {
    /// The matrix itself.
    All(&'x Matrix<B, E>),
    /// A matrix of the pool's.
    Copied(Matrix<B, E>),
}

impl<B: Backend, E: Element> Deref for OwnRows<'_, B, E> {
    type Target = Matrix<B, E>;

    fn deref(&self) -> &Matrix<B, E> {
        match self {
            OwnRows::All(matrix) => matrix,
            OwnRows::Copied(matrix) => matrix,
        }
    }
}

/// Tags the random numbers of dropout, so that initial weights share none with them.
pub(crate) const DROPOUT_STREAM: u32 = 0x6472_6f70;

/// The dropout number `number` of a model; none in evaluation, or where nothing is dropped.
pub(super) fn dropout<B: Backend>(
    probability: f32,
    number: u32,
    mode: Mode<'_, B>,
) -> Option<Dropout<'_, B>> {
    match mode {
        Mode::Train { random } if probability > 0.0 => Some(Dropout {
            probability,
            stream: DROPOUT_STREAM.wrapping_add(number),
            random,
        }),
        _ => None,
    }
}

/// A matrix that a layer keeps from one pass to the next. Layers know widths; it has rows when there are inputs.
#[derive(Debug)]
pub struct Kept<B: Backend, E: Element>(Matrix<B, E>);

impl<B: Backend, E: Element> Kept<B, E> {
    /// A matrix of `columns` columns, without rows yet.
    ///
    /// # Errors
    /// Those of [`Matrix::zeros`].
    pub fn new(backend: &B, columns: usize) -> Result<Self, Error> {
        let kind = crate::backend::MemoryKind::Activations;
        Matrix::zeros(backend, 0, columns, kind).map(Self)
    }

    /// The matrix with `rows` rows of any content.
    ///
    /// # Errors
    /// Those of [`Matrix::zeros`].
    pub fn room(&mut self, backend: &B, rows: usize) -> Result<&mut Matrix<B, E>, Error> {
        if self.0.rows() != rows {
            let kind = crate::backend::MemoryKind::Activations;
            self.0 = Matrix::uninit(backend, rows, self.0.columns(), kind)?;
        }
        Ok(&mut self.0)
    }

    /// Takes `matrix` in the place of its own, which it gives back.
    pub(super) fn put(&mut self, matrix: Matrix<B, E>) -> Matrix<B, E> {
        std::mem::replace(&mut self.0, matrix)
    }

    /// What was kept.
    pub fn get(&self) -> &Matrix<B, E> {
        &self.0
    }
}

/// What the initial weights of a layer are made from: the seed of the run, and the layer's number in its model.
#[derive(Clone, Copy, Debug)]
pub struct Place {
    /// The layer's number.
    pub layer: usize,
    /// The seed.
    pub seed: u64,
}

impl Place {
    /// Initial weights of a linear map, the `number`-th of the layer.
    ///
    /// # Errors
    /// Those of [`Parameter::weights`].
    pub fn weights<B: Backend, E: Element>(
        self,
        backend: &B,
        name: &str,
        (inputs, outputs): (usize, usize),
        number: u32,
    ) -> Result<Parameter<B, E>, Error> {
        Parameter::weights(backend, name.to_owned(), (inputs, outputs), || {
            self.glorot((inputs, outputs), number)
        })
    }

    /// The initial values of [`Place::weights`].
    pub fn glorot(self, (inputs, outputs): (usize, usize), number: u32) -> Vec<f32> {
        let stream = (self.layer as u32) | number << 16;
        glorot_uniform(inputs, outputs, self.seed, stream)
    }
}
