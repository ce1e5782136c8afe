//! Where a layer's operators meet what is around it: its output on the way to bias, ReLU and dropout, the gradient that
//! comes back from them, and the gradient that it sends on.
//!
//! Each is one value that knows what is wanted and what of it has been done. A layer that uses it as a plain matrix gets
//! the same results in more passes: what its operators did not do on their way, `finish` does.

use super::aggregation::Sending;
use super::codes::LayerInput;
use super::messages::Messages;
use super::{Aggregation, Context, Halo, Propagation};
use crate::backend::Backend;
use crate::error::Error;
use crate::ops::{
    self, Activation, Addend, Combine, Dropout, Epilogue, Form, MatmulFusion, Nonlinearity,
    Normalization, SpmmEpilogue,
};
use crate::tensor::{Element, Matrix};
use std::ops::Range;

fn unwritten<T>(layer: usize, what: &str) -> Result<T, Error> {
    Err(Error::Unsupported {
        operator: "Network",
        reason: format!("layer {layer} returned without {what}"),
    })
}

/// What follows a layer: `dropout(relu(y + x + b))`, each part where it is wanted; or another function in the place of the ReLU,
/// which has no dropout behind it in the same matrix.
#[derive(Debug)]
pub(super) struct After<'a, B: Backend, E: Element> {
    pub(super) bias: Option<&'a Matrix<B, f32>>,
    pub(super) relu: bool,
    pub(super) nonlinearity: Option<Bend<'a, B, E>>,
    pub(super) dropout: Option<Dropout<'a, B>>,
    /// The layer's input, where it is added to the output.
    pub(super) residual: Option<&'a Matrix<B, E>>,
}

impl<B: Backend, E: Element> After<'_, B, E> {
    /// Nothing.
    pub(super) const NOTHING: Self = Self {
        bias: None,
        relu: false,
        nonlinearity: None,
        dropout: None,
        residual: None,
    };
}

/// An activation function that has a pass of its own, and where what it was given is kept, if its gradient wants to see that.
#[derive(Debug)]
pub(super) struct Bend<'a, B: Backend, E: Element> {
    pub(super) function: Nonlinearity,
    pub(super) given: Option<&'a mut Matrix<B, E>>,
}

/// Where a layer's output goes.
///
/// The last operator of a layer writes it by [`Output::product`], [`Output::two_products`], [`Output::aggregate`] or [`Output::copy`], which also do
/// what follows where they can, or into [`Output::matrix`]. Any of them may come again: the last counts.
#[derive(Debug)]
pub struct Output<'a, B: Backend, E: Element> {
    backend: &'a B,
    y: &'a mut Matrix<B, E>,
    after: After<'a, B, E>,
    state: State,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Unwritten,
    /// By the layer; what follows is to be done.
    Written,
    /// With all that follows.
    Finished,
}

impl<'a, B: Backend, E: Element> Output<'a, B, E> {
    pub(super) fn new(backend: &'a B, y: &'a mut Matrix<B, E>, after: After<'a, B, E>) -> Self {
        Self {
            backend,
            y,
            after,
            state: State::Unwritten,
        }
    }

    /// Columns of the output.
    pub fn columns(&self) -> usize {
        self.y.columns()
    }

    /// The output as it is before bias, ReLU and dropout, to be written: they follow in a pass of their own.
    pub fn matrix(&mut self) -> &mut Matrix<B, E> {
        self.state = State::Written;
        self.y
    }

    /// `y = a · b`, of a normalisation of `a` where there is one, and what follows.
    ///
    /// # Errors
    /// Those of [`ops::matmul_fused`].
    pub fn product(
        &mut self,
        normalization: Option<&Normalization<'_, B>>,
        a: &Matrix<B, E>,
        b: &Matrix<B, E>,
    ) -> Result<(), Error> {
        let fusion = MatmulFusion {
            normalization,
            ..MatmulFusion::default()
        };
        self.product_of(Form::NN, fusion, [a, b])
    }

    /// `y = a · b + a₂ · b₂` of two pairs and a bias and a ReLU behind, rounded once, and what follows. `a₂` may have more rows than `a`,
    /// which are not read.
    ///
    /// # Errors
    /// Those of [`ops::matmul_fused`].
    pub fn two_products(&mut self, [first, second]: [[&Matrix<B, E>; 2]; 2]) -> Result<(), Error> {
        let apart = self.after.residual.is_some() || self.after.nonlinearity.is_some();
        // Behind what is rounded, as ranks do it, which drop rows by their numbers.
        let dropout = self.after.dropout.take();
        let fusion = MatmulFusion {
            second_pair: Some(second),
            dropout: dropout.filter(|_| !apart),
            ..MatmulFusion::default()
        };
        let done = self.product_of(Form::NN, fusion, first);
        self.after.dropout = dropout;
        done
    }

    /// `y = a · bᵀ`, and what follows.
    ///
    /// # Errors
    /// Those of [`ops::matmul_fused`].
    pub fn product_transposed(&mut self, a: &Matrix<B, E>, b: &Matrix<B, E>) -> Result<(), Error> {
        self.product_of(Form::NT, MatmulFusion::default(), [a, b])
    }

    /// Some rows of [`Output::product_transposed`], of as many of the first rows of `a`. All are made so, one share after the other.
    ///
    /// # Errors
    /// Those of [`ops::matmul_to_rows`].
    pub(super) fn rows_of_product_transposed(
        &mut self,
        rows: Range<usize>,
        [a, b]: [&Matrix<B, E>; 2],
    ) -> Result<(), Error> {
        let epilogue = self.epilogue_of_product();
        let y = (rows, &mut *self.y);
        ops::matmul_to_rows(self.backend, Form::NT, a, b, &epilogue, y)
    }

    fn product_of(
        &mut self,
        form: Form,
        fusion: MatmulFusion<'_, B, E>,
        [a, b]: [&Matrix<B, E>; 2],
    ) -> Result<(), Error> {
        let epilogue = self.epilogue_of_product();
        ops::matmul_fused(self.backend, form, a, b, &epilogue, fusion, self.y)
    }

    /// The sum over neighbours of `x`, as [`Aggregation::forward`] has it, with a matrix that is added to it if there is one,
    /// and what follows.
    ///
    /// # Errors
    /// Those of [`ops::spmm`].
    pub fn aggregate(
        &mut self,
        at: &mut Context<'_, B, E>,
        aggregation: Aggregation,
        scaled: bool,
        addend: Option<Addend<'_, B, E>>,
        x: &Matrix<B, E>,
    ) -> Result<(), Error> {
        let (bias, relu) = self.epilogue();
        let epilogue = SpmmEpilogue {
            addend,
            bias,
            relu,
            positive: None,
        };
        aggregation.forward(at, scaled, epilogue, x, self.y)
    }

    /// `y = kept`, a matrix that the layer keeps for its backward pass, and what follows.
    ///
    /// # Errors
    /// Those of [`ops::combine`] and [`ops::activate`].
    pub fn copy(&mut self, kept: &Matrix<B, E>) -> Result<(), Error> {
        if self.after.residual.is_some() || self.after.nonlinearity.is_some() {
            self.state = State::Written;
            return ops::combine(self.backend, &Combine::copy(), kept, self.y);
        }
        self.state = State::Finished;
        let activation = self.activation();
        ops::activate(self.backend, &activation, Some(kept), self.y)
    }

    /// `y += x`, of what the layer wrote into [`Output::matrix`], and what follows. `x` may have more rows, which are not read.
    ///
    /// # Errors
    /// Those of [`ops::combine_rows`] and [`ops::activate_sum`].
    pub fn add(&mut self, x: &Matrix<B, E>) -> Result<(), Error> {
        if self.after.residual.is_some() || self.after.nonlinearity.is_some() {
            self.state = State::Written;
            return ops::combine_rows(self.backend, self.y.rows(), &Combine::sum(), x, self.y);
        }
        self.state = State::Finished;
        ops::activate_sum(self.backend, &self.activation(), x, self.y)
    }

    /// What the last operator does of what follows: a bias and a ReLU, where neither an addition nor a dropout comes
    /// between.
    fn epilogue(&mut self) -> (Option<&'a Matrix<B, f32>>, bool) {
        let apart = self.after.nonlinearity.is_some() || self.after.dropout.is_some();
        if self.after.residual.is_some() || apart {
            self.state = State::Written;
            return (None, false);
        }
        self.state = State::Finished;
        (self.after.bias, self.after.relu)
    }

    fn epilogue_of_product(&mut self) -> Epilogue<'a, B> {
        let (bias, relu) = self.epilogue();
        Epilogue {
            bias,
            relu,
            ..Epilogue::default()
        }
    }

    fn activation(&self) -> Activation<'a, B> {
        Activation {
            bias: self.after.bias,
            relu: self.after.relu,
            dropout: self.after.dropout,
        }
    }

    /// Does what the layer left.
    pub(super) fn finish(mut self, layer: usize) -> Result<(), Error> {
        match self.state {
            State::Unwritten => return unwritten(layer, "writing its output"),
            State::Finished => return Ok(()),
            State::Written => {}
        }
        if let Some(x) = self.after.residual.take() {
            // Of its rows those of the destinations.
            self.add(x)?;
            if self.state == State::Finished {
                return Ok(());
            }
        }
        if let Some(Bend { function, given }) = self.after.nonlinearity {
            let (backend, bias) = (self.backend, self.after.bias);
            let Some(given) = given else {
                return ops::nonlinearity(backend, function, bias, None, self.y);
            };
            let op = Activation {
                bias,
                relu: false,
                dropout: None,
            };
            ops::activate(backend, &op, Some(&*self.y), given)?;
            return ops::nonlinearity(backend, function, None, Some(&*given), self.y);
        }
        let activation = self.activation();
        if activation.bias.is_none() && !activation.relu && activation.dropout.is_none() {
            return Ok(());
        }
        ops::activate(self.backend, &activation, None, self.y)
    }
}

/// The gradient of a layer's output, before bias, ReLU and dropout, which are undone. The sums of its columns are the
/// gradient of the bias: they come out beside [`OutputGradient::weight_gradient`], or in a pass of their own before the
/// layer [overwrites](OutputGradient::overwrite) the gradient or when it is done.
#[derive(Debug)]
pub struct OutputGradient<'a, B: Backend, E: Element> {
    backend: &'a B,
    d: &'a mut Matrix<B, E>,
    /// Where the sums of columns go; none once they are there.
    column_sums: Option<&'a mut Matrix<B, f32>>,
}

impl<'a, B: Backend, E: Element> OutputGradient<'a, B, E> {
    pub(super) fn new(
        backend: &'a B,
        d: &'a mut Matrix<B, E>,
        column_sums: Option<&'a mut Matrix<B, f32>>,
    ) -> Self {
        Self {
            backend,
            d,
            column_sums,
        }
    }

    /// The gradient, destinations × outputs.
    pub fn matrix(&self) -> &Matrix<B, E> {
        self.d
    }

    /// The gradient, to be changed in place. It is the layer's from then on.
    ///
    /// # Errors
    /// Those of [`ops::column_sums`].
    pub fn overwrite(&mut self) -> Result<&mut Matrix<B, E>, Error> {
        self.sum_columns()?;
        Ok(self.d)
    }

    /// `gradient = factor · xᵀ · d`, that of the weights of a linear map whose output is the layer's; of a normalisation of
    /// `x` where there is one. `x` may have more rows than `d`, which are not read.
    ///
    /// # Errors
    /// Those of [`ops::matmul_fused`].
    pub fn weight_gradient(
        &mut self,
        factor: f32,
        normalization: Option<&Normalization<'_, B>>,
        x: &Matrix<B, E>,
        gradient: &mut Matrix<B, f32>,
    ) -> Result<(), Error> {
        let epilogue = Epilogue {
            alpha: factor,
            ..Epilogue::default()
        };
        let fusion = MatmulFusion {
            normalization,
            first_rows: Some(self.d.rows()),
            column_sums: self.column_sums.take(),
            ..MatmulFusion::default()
        };
        let (backend, d) = (self.backend, &*self.d);
        ops::matmul_fused(backend, Form::TN, x, d, &epilogue, fusion, gradient)
    }

    /// `gradient = factor · xᵀ · d`, of the input of the layer, of which only the rows of the destinations count.
    ///
    /// # Errors
    /// Those of [`OutputGradient::weight_gradient`] and [`ops::quantized_matmul`].
    pub(super) fn weight_gradient_of(
        &mut self,
        x: LayerInput<'_, B, E>,
        gradient: &mut Matrix<B, f32>,
    ) -> Result<(), Error> {
        match x {
            LayerInput::Elements(x) => self.weight_gradient(1.0, None, x, gradient),
            LayerInput::Codes(x) => {
                let sums = self.column_sums.take();
                ops::quantized_matmul(self.backend, x, self.d, 1.0, sums, gradient)
            }
        }
    }

    fn sum_columns(&mut self) -> Result<(), Error> {
        match self.column_sums.take() {
            Some(sums) => ops::column_sums(self.backend, self.d, sums),
            None => Ok(()),
        }
    }

    /// Does what the layer left.
    pub(super) fn finish(mut self) -> Result<(), Error> {
        self.sum_columns()
    }
}

/// A gradient and the weights that it goes back through.
pub type GradientProduct<'a, B, E> = (&'a Matrix<B, E>, &'a Matrix<B, E>);

/// Where the gradient of a layer's input goes, where it is wanted: the last operator of a backward pass writes it by
/// [`InputGradient::product`], which also undoes the ReLU and the dropout before the layer, or into
/// [`InputGradient::matrix`].
#[derive(Debug)]
pub struct InputGradient<'a, B: Backend, E: Element> {
    wanted: bool,
    x: LayerInput<'a, B, E>,
    /// The factor of what ReLU and dropout before the layer let through, which is where `x` is positive.
    gradient_factor: Option<f32>,
    dx: Option<Matrix<B, E>>,
    undone: bool,
    sent: Option<Sent<'a, B>>,
    /// The ranks that rows of it go to.
    ranks: Option<&'a Halo<B>>,
    /// Where what they give comes, once it is on its way.
    underway: Option<Matrix<B, E>>,
}

/// The gradient of a layer's input, as the layer leaves it.
#[derive(Debug)]
pub(super) struct Written<B: Backend, E: Element> {
    /// Where it was wanted.
    pub(super) dx: Option<Matrix<B, E>>,
    /// Whether ReLU and dropout before the layer are undone.
    pub(super) undone: bool,
    /// What [`Halo::begin_fold`] gave, if the exchange is begun.
    pub(super) underway: Option<Matrix<B, E>>,
}

/// Where the backward pass of the layer before sends the gradient on as it is: how, in which messages, and along which graph.
#[derive(Debug)]
pub(super) struct Sent<'a, B: Backend> {
    pub(super) sending: Sending,
    pub(super) messages: &'a mut Messages<B>,
    pub(super) graph: &'a Propagation<B>,
}

impl<'a, B: Backend, E: Element> InputGradient<'a, B, E> {
    pub(super) fn new(
        wanted: bool,
        x: LayerInput<'a, B, E>,
        gradient_factor: Option<f32>,
        sent: Option<Sent<'a, B>>,
        ranks: Option<&'a Halo<B>>,
    ) -> Self {
        Self {
            wanted,
            x,
            gradient_factor,
            dx: None,
            undone: false,
            sent,
            ranks,
            underway: None,
        }
    }

    /// Whether anybody reads it. Where nobody does, writing it is work for nothing, and no mistake.
    pub fn is_wanted(&self) -> bool {
        self.wanted
    }

    /// `dx = d · weightᵀ`, where it is wanted, and its codes, where the layer before [sends](super::Layer::sends_back) it on in 8 bits.
    ///
    /// # Errors
    /// Those of [`ops::matmul_fused`].
    pub fn product(
        &mut self,
        at: &mut Context<'_, B, E>,
        d: &Matrix<B, E>,
        weight: &Matrix<B, E>,
    ) -> Result<(), Error> {
        if !self.wanted {
            return Ok(());
        }
        let (x, gradient_factor) = (self.x, self.gradient_factor);
        let (backend, mode, rows) = (at.backend, at.mode, x.rows());
        self.matrix(at)?;
        let coding = match &mut self.sent {
            Some(Sent {
                sending,
                messages,
                graph,
            }) => sending.coding(backend, Some(messages), at.pool, mode, graph, rows)?,
            None => None,
        };
        let Some(dx) = &mut self.dx else {
            return Ok(());
        };
        let made = coding.is_some();
        let fusion = MatmulFusion {
            coding,
            ..MatmulFusion::default()
        };
        let to = (0..dx.rows(), dx);
        back_through(backend, (x, gradient_factor), (d, weight), fusion, to)?;
        self.undone = gradient_factor.is_some();
        if let Some(Sent {
            sending,
            messages,
            graph,
        }) = self.sent.as_mut().filter(|_| made)
        {
            messages.begin(backend, at.pool, sending.direction, graph)?;
        }
        self.is_written(at)
    }

    /// Tells that all of it is there: ranks exchange it while the layer computes what else there is, such as gradients of weights. It
    /// may be written once more after all.
    ///
    /// # Errors
    /// Those of [`Group::begin_rows`](crate::distributed::Group::begin_rows).
    pub fn is_written(&mut self, at: &mut Context<'_, B, E>) -> Result<(), Error> {
        if let (Some(ranks), Some(dx), None) = (self.ranks, &self.dx, &self.underway) {
            let what = backward_exchange(at.layer);
            self.underway = Some(ranks.begin_fold(at.backend, &what, at.pool, dx)?);
        }
        Ok(())
    }

    /// `dx` as [`Aggregation::backward`] has it of `d`, where it is wanted; `scaled` is as there.
    ///
    /// # Errors
    /// Those of [`Aggregation::backward`].
    pub fn aggregate(
        &mut self,
        at: &mut Context<'_, B, E>,
        aggregation: Aggregation,
        scaled: bool,
        d: &Matrix<B, E>,
    ) -> Result<(), Error> {
        if !self.wanted {
            return Ok(());
        }
        // What is kept in codes is looked at in a pass.
        let positive = self.gradient_factor.zip(self.x.elements());
        let let_through = positive.map_or(1.0, |(factor, _)| factor);
        let aggregation = Aggregation {
            factor: aggregation.factor * let_through,
            ..aggregation
        };
        let epilogue = SpmmEpilogue {
            positive: positive.map(|(_, output)| output),
            ..SpmmEpilogue::default()
        };
        self.matrix(at)?;
        if let Some(dx) = &mut self.dx {
            aggregation.backward(at, scaled, epilogue, d, dx)?;
            self.undone = positive.is_some();
        }
        Ok(())
    }

    /// `dx += d · weightᵀ` of its first rows, behind what wrote it.
    ///
    /// # Errors
    /// Those of [`ops::matmul_fused`].
    pub fn add_product(
        &mut self,
        at: &mut Context<'_, B, E>,
        of: GradientProduct<'_, B, E>,
    ) -> Result<(), Error> {
        if !self.wanted {
            return Ok(());
        }
        let (backend, undone) = (at.backend, self.undone);
        // Of a sum that is let through, each part is.
        let through = (self.x, self.gradient_factor.filter(|_| undone));
        let (rows, dx) = (of.0.rows(), self.matrix(at)?);
        let fusion = MatmulFusion {
            sum: true,
            ..MatmulFusion::default()
        };
        back_through(backend, through, of, fusion, (0..rows, dx))?;
        self.undone = undone;
        self.is_written(at)
    }

    /// `dx = d · weightᵀ` of each pair, where it is wanted: the first has a row for each of `dx`, the second for its first rows.
    ///
    /// # Errors
    /// Those of [`ops::matmul_fused`].
    pub fn two_products(
        &mut self,
        at: &mut Context<'_, B, E>,
        [first, second]: [GradientProduct<'_, B, E>; 2],
    ) -> Result<(), Error> {
        if !self.wanted {
            return Ok(());
        }
        let through = (self.x, self.gradient_factor);
        let fusion = MatmulFusion::default();
        let (backend, dx) = (at.backend, self.matrix(at)?);
        back_through(backend, through, first, fusion, (0..dx.rows(), dx))?;
        self.undone = self.gradient_factor.is_some();
        self.add_product(at, second)
    }

    /// The gradient, sources × inputs, of any content at first.
    ///
    /// # Errors
    /// Those of [`Matrix::zeros`].
    pub fn matrix(&mut self, at: &mut Context<'_, B, E>) -> Result<&mut Matrix<B, E>, Error> {
        self.undone = false;
        if let Some(Sent {
            sending,
            messages,
            graph,
        }) = &mut self.sent
        {
            messages.unmake(at.backend, at.pool, sending.direction, graph)?;
        }
        if let (Some(ranks), Some(packed)) = (self.ranks, self.underway.take()) {
            ranks.forget_fold(at.backend, at.pool, packed)?;
        }
        match &mut self.dx {
            Some(dx) => Ok(dx),
            none => Ok(none.insert(at.pool.take(at.backend, self.x.shape())?)),
        }
    }

    /// What the layer has left.
    pub(super) fn finish(self, at: &mut Context<'_, B, E>) -> Result<Written<B, E>, Error> {
        match (self.wanted, self.dx) {
            (true, None) => unwritten(at.layer, "writing the gradient of its input"),
            (true, dx) => Ok(Written {
                dx,
                undone: self.undone,
                underway: self.underway,
            }),
            (false, dx) => {
                dx.into_iter().for_each(|dx| at.give(dx));
                Ok(Written {
                    dx: None,
                    undone: false,
                    underway: None,
                })
            }
        }
    }
}

/// `d · weightᵀ` to some rows, of which the ReLU and the dropout that gave the first rows of `x` let through what is positive there, times the
/// factor; all of it without one.
fn back_through<B: Backend, E: Element>(
    backend: &B,
    (x, gradient_factor): (LayerInput<'_, B, E>, Option<f32>),
    (d, weight): GradientProduct<'_, B, E>,
    fusion: MatmulFusion<'_, B, E>,
    to: (Range<usize>, &mut Matrix<B, E>),
) -> Result<(), Error> {
    let epilogue = Epilogue {
        alpha: gradient_factor.unwrap_or(1.0),
        ..Epilogue::default()
    };
    let fusion = MatmulFusion {
        positive: gradient_factor.and_then(|_| x.elements()),
        positive_codes: gradient_factor.and_then(|_| x.codes()),
        ..fusion
    };
    ops::matmul_fused_to_rows(backend, Form::NT, [d, weight], &epilogue, fusion, to)
}

/// What errors call the exchange of rows that a layer hears.
pub(crate) fn forward_exchange(layer: usize) -> String {
    format!("layers.{layer} forward")
}

/// What errors call the exchange behind the backward pass of a layer.
pub(crate) fn backward_exchange(layer: usize) -> String {
    format!("layers.{layer} backward")
}
