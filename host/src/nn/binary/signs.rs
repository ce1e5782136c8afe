//! Signs of inputs and of weights, as elements and as bits, and what goes straight through them.

#[cfg(feature = "checkpoints")]
use crate::backend::cpu::Cpu;
use crate::backend::{Backend, MemoryKind};
use crate::error::Error;
use crate::nn::{Context, Kept, Mode, Output, Parameter, Place, Propagation};
use crate::ops::blocks::{Addition, Between, mm_add, mm_spmm};
use crate::ops::{
    self, Activation, BatchNorm, BitMatrix, BitOutput, Bmm, BmmOperands, Combine, Dropout,
    Epilogue, Form, HeadDots, Nonlinearity, Normalization,
};
use crate::tensor::{Array, Element, Matrix};

/// `d`, the gradient of signs of `x`, becomes that of `x`.
pub(super) fn straight_through<B: Backend, E: Element>(
    backend: &B,
    x: &Matrix<B, E>,
    d: &mut Matrix<B, E>,
) -> Result<(), Error> {
    ops::nonlinearity_backward(backend, Nonlinearity::Sign, x, d)
}

/// Rows times their factors.
pub(super) fn scale<B: Backend, E: Element>(
    backend: &B,
    factors: Option<&Array<B, f32>>,
    rows: &mut Matrix<B, E>,
) -> Result<(), Error> {
    let nothing = Activation {
        bias: None,
        relu: false,
        dropout: None,
    };
    ops::activate_backward(backend, &nothing, None, factors, rows)
}

/// What a dropout leaves, of values and of their gradient.
pub(super) fn drop<B: Backend, E: Element>(
    backend: &B,
    dropout: Option<Dropout<'_, B>>,
    rows: &mut Matrix<B, E>,
) -> Result<(), Error> {
    if dropout.is_none() {
        return Ok(());
    }
    let op = Activation {
        dropout,
        ..Activation::default()
    };
    ops::activate(backend, &op, None, rows)
}

/// The mean of the products of the elements of each row of `a` and of `b`: with the signs of `a`, its mean magnitude.
fn row_dots<B: Backend, E: Element>(
    backend: &B,
    a: &Matrix<B, E>,
    b: &Matrix<B, E>,
    means: &mut Array<B, f32>,
) -> Result<(), Error> {
    let op = HeadDots::new(1, a, (1.0 / a.columns() as f32, b));
    ops::head_dots(backend, &op, means)
}

/// The mean magnitudes of the rows of weights as an evaluation on a CPU has them, for a file of bits.
///
/// # Errors
/// Those of the device.
#[cfg(feature = "checkpoints")]
pub(crate) fn magnitudes_of_rows<E: Element>(
    (rows, columns): (usize, usize),
    values: &[f32],
) -> Result<Vec<f32>, Error> {
    let (cpu, kind) = (&Cpu::new(), MemoryKind::Weights);
    let values = Matrix::<Cpu, E>::from_f32(cpu, rows, columns, values, kind)?;
    let mut signs = Matrix::zeros(cpu, rows, columns, kind)?;
    ops::nonlinearity(cpu, Nonlinearity::Sign, None, Some(&values), &mut signs)?;
    let mut means = Array::zeros(cpu, rows, kind)?;
    row_dots(cpu, &values, &signs, &mut means)?;
    means.to_vec(cpu)
}

/// The magnitude that all weights of a row have, as those of a file of bits do.
fn only_magnitude(row: &[f32]) -> Option<f32> {
    let first = row.first()?.abs();
    let is_only = row.iter().all(|value| value.abs() == first);
    is_only.then_some(first)
}

/// Room for so many numbers.
fn numbers<'a, B: Backend>(
    backend: &B,
    room: &'a mut Option<Array<B, f32>>,
    len: usize,
) -> Result<&'a mut Array<B, f32>, Error> {
    if room.as_ref().is_none_or(|there| there.len() != len) {
        *room = Some(Array::zeros(backend, len, MemoryKind::Activations)?);
    }
    Ok(room.as_mut().expect("it was made"))
}

/// Room for so many rows and columns of bits.
pub(super) fn bits<'a, B: Backend>(
    backend: &B,
    room: &'a mut Option<BitMatrix<B>>,
    (rows, columns): (usize, usize),
) -> Result<&'a mut BitMatrix<B>, Error> {
    let fits = |there: &BitMatrix<B>| there.shape() == (rows, columns);
    if !room.as_ref().is_some_and(fits) {
        let kind = MemoryKind::Activations;
        *room = Some(BitMatrix::zeros(backend, rows, columns, kind)?);
    }
    Ok(room.as_mut().expect("it was made"))
}

/// A batch normalisation of features over all vertices, without scale and shift, in training and in evaluation.
#[derive(Debug)]
pub(super) struct Standardized<B: Backend> {
    statistics: Matrix<B, f32>,
    /// Those of all vertices, once it was shown them: a batch that is learnt from has others.
    of_all: Option<Matrix<B, f32>>,
    /// Written and never read: no statistics are carried on.
    running: Matrix<B, f32>,
    ones: Matrix<B, f32>,
    zeros: Matrix<B, f32>,
}

impl<B: Backend> Standardized<B> {
    pub(super) fn new(backend: &B, columns: usize) -> Result<Self, Error> {
        let room = |rows| Matrix::zeros(backend, rows, columns, MemoryKind::Weights);
        let mut ones = room(1)?;
        ones.write_with(backend, || vec![1.0; columns])?;
        Ok(Self {
            statistics: room(2)?,
            of_all: None,
            running: room(2)?,
            ones,
            zeros: room(1)?,
        })
    }

    /// Has training normalise by the statistics of `x`, the features of all vertices, from now on.
    pub(super) fn see<E: Element>(&mut self, backend: &B, x: &Matrix<B, E>) -> Result<(), Error> {
        let of_all = match self.of_all.take() {
            Some(there) => there,
            None => Matrix::zeros(backend, 2, x.columns(), MemoryKind::Weights)?,
        };
        statistics(backend, x, &mut self.running, self.of_all.insert(of_all))
    }

    /// `y` becomes `x` normalised: in training by the statistics of all vertices where it has [seen](Standardized::see) them, else by those
    /// of `x`. An evaluation is of all vertices, of whatever graph it is of.
    pub(super) fn forward<E: Element>(
        &mut self,
        backend: &B,
        mode: Mode<'_, B>,
        x: &Matrix<B, E>,
        y: &mut Matrix<B, E>,
    ) -> Result<(), Error> {
        let op = match (mode, &self.of_all) {
            (Mode::Train { .. }, Some(of_all)) => self.normalization_by(of_all),
            _ => self.normalization(backend, x)?,
        };
        ops::normalize(backend, &op, x, y)
    }

    /// The signs of what [`Standardized::forward`] makes, bit for bit.
    pub(super) fn signs<E: Element>(
        &mut self,
        backend: &B,
        x: &Matrix<B, E>,
        y: &mut BitMatrix<B>,
    ) -> Result<(), Error> {
        ops::binarize_normalized(backend, &self.normalization(backend, x)?, x, y)
    }

    fn normalization<E: Element>(
        &mut self,
        backend: &B,
        x: &Matrix<B, E>,
    ) -> Result<Normalization<'_, B>, Error> {
        statistics(backend, x, &mut self.running, &mut self.statistics)?;
        Ok(self.normalization_by(&self.statistics))
    }

    fn normalization_by<'a>(&'a self, statistics: &'a Matrix<B, f32>) -> Normalization<'a, B> {
        Normalization {
            statistics,
            weight: &self.ones,
            bias: &self.zeros,
            relu: false,
        }
    }
}

/// Means of columns, and what they are divided by.
fn statistics<B: Backend, E: Element>(
    backend: &B,
    x: &Matrix<B, E>,
    running: &mut Matrix<B, f32>,
    statistics: &mut Matrix<B, f32>,
) -> Result<(), Error> {
    let op = BatchNorm {
        momentum: 0.0,
        ..BatchNorm::default()
    };
    ops::batch_statistics(backend, &op, x, running, statistics)
}

/// The signs of a layer's input and the mean magnitude of each row, `β`.
#[derive(Debug)]
pub(super) struct Signs<B: Backend, E: Element> {
    /// Less what is dropped; in evaluation what magnitudes were made of.
    pub(super) elements: Kept<B, E>,
    pub(super) magnitudes: Option<Array<B, f32>>,
    /// In evaluation.
    bits: Option<BitMatrix<B>>,
}

impl<B: Backend, E: Element> Signs<B, E> {
    pub(super) fn new(backend: &B, columns: usize) -> Result<Self, Error> {
        Ok(Self {
            elements: Kept::new(backend, columns)?,
            magnitudes: None,
            bits: None,
        })
    }

    /// Of `x`, for a layer whose evaluation multiplies by magnitudes.
    pub(super) fn make(
        &mut self,
        backend: &B,
        mode: Mode<'_, B>,
        dropout: Option<Dropout<'_, B>>,
        x: &Matrix<B, E>,
    ) -> Result<(), Error> {
        let evaluates = matches!(mode, Mode::Evaluate);
        if evaluates {
            ops::binarize(backend, x, bits(backend, &mut self.bits, x.shape())?)?;
        }
        let elements = self.elements.room(backend, x.rows())?;
        ops::nonlinearity(backend, Nonlinearity::Sign, None, Some(x), elements)?;
        let means = numbers(backend, &mut self.magnitudes, x.rows())?;
        row_dots(backend, x, elements, means)?;
        match evaluates {
            true => Ok(()),
            false => drop(backend, dropout, elements),
        }
    }

    /// What was made of the input, in evaluation.
    pub(super) fn bits(&self) -> &BitMatrix<B> {
        self.bits
            .as_ref()
            .expect("bits are made before they are multiplied")
    }
}

/// A gradient that may be wanted, and what was dropped of what it is of.
pub(super) type Wanted<'d, B, E> = Option<(&'d mut Matrix<B, E>, Option<Dropout<'d, B>>)>;

/// Weights whose signs multiply, outputs × inputs.
#[derive(Debug)]
pub(super) struct BinaryWeight<B: Backend, E: Element> {
    pub(super) parameter: Parameter<B, E>,
    /// Whether what is made of them stays as it is.
    pub(super) is_frozen: bool,
    signs: Kept<B, E>,
    /// The mean magnitude of each row, `α`.
    magnitudes: Option<Array<B, f32>>,
    /// `α` times the signs.
    scaled: Kept<B, E>,
    /// In evaluation.
    bits: Option<BitMatrix<B>>,
    /// Signs of the master weights, for their gradient, and what goes through them.
    master_signs: Matrix<B, f32>,
    through: Array<B, f32>,
    /// `Z`, where its signs alone go on: what their gradient is clipped by.
    product: Option<Kept<B, E>>,
}

impl<B: Backend, E: Element> BinaryWeight<B, E> {
    pub(super) fn new(
        backend: &B,
        place: Place,
        (name, number): (&str, u32),
        (inputs, outputs): (usize, usize),
        clips: bool,
    ) -> Result<Self, Error> {
        let kind = MemoryKind::Activations;
        Ok(Self {
            parameter: place.weights(backend, name, (outputs, inputs), number)?,
            is_frozen: false,
            signs: Kept::new(backend, inputs)?,
            magnitudes: None,
            scaled: Kept::new(backend, inputs)?,
            bits: None,
            master_signs: Matrix::zeros(backend, outputs, inputs, kind)?,
            through: Array::zeros(backend, outputs, kind)?,
            product: match clips {
                true => Some(Kept::new(backend, outputs)?),
                false => None,
            },
        })
    }

    /// Signs and magnitudes of the weights as they are.
    pub(super) fn make(&mut self, backend: &B) -> Result<(), Error> {
        if self.is_frozen {
            return Ok(());
        }
        let values = self.parameter.values();
        let (outputs, _) = values.shape();
        let signs = self.signs.room(backend, outputs)?;
        ops::nonlinearity(backend, Nonlinearity::Sign, None, Some(values), signs)?;
        let means = numbers(backend, &mut self.magnitudes, outputs)?;
        row_dots(backend, values, signs, means)
    }

    /// Their bits.
    pub(super) fn make_bits(&mut self, backend: &B) -> Result<&BitMatrix<B>, Error> {
        let values = self.parameter.values();
        let bits = bits(backend, &mut self.bits, values.shape())?;
        if !self.is_frozen {
            ops::binarize(backend, values, bits)?;
        }
        Ok(bits)
    }

    /// Signs times magnitudes.
    pub(super) fn make_scaled(&mut self, backend: &B) -> Result<(), Error> {
        if self.is_frozen {
            return Ok(());
        }
        self.make(backend)?;
        self.scale_signs(backend)
    }

    /// The same of signs and magnitudes as they are.
    fn scale_signs(&mut self, backend: &B) -> Result<(), Error> {
        let signs = self.signs.get();
        let scaled = Combine {
            x_scale: self.magnitudes.as_ref(),
            ..Combine::copy()
        };
        let to = self.scaled.room(backend, signs.rows())?;
        ops::combine(backend, &scaled, signs, to)
    }

    /// Makes all of this, for good. Rows of one magnitude, which those of a file of bits have, keep it as it is: rounded once more it would be
    /// another than that of the weights which the file was made of.
    pub(super) fn freeze(&mut self, backend: &B) -> Result<(), Error> {
        self.make_bits(backend)?;
        self.make(backend)?;
        let master = self.parameter.master();
        if let (Some(magnitudes), false) = (&mut self.magnitudes, backend.only_counts()) {
            let values = master.to_f32(backend)?;
            let rows = values.chunks_exact(master.columns()).map(only_magnitude);
            let mut of_rows = magnitudes.to_vec(backend)?;
            let given = of_rows.iter_mut().zip(rows);
            given.for_each(|(of_row, only)| *of_row = only.unwrap_or(*of_row));
            magnitudes.write(backend, &of_rows)?;
        }
        self.scale_signs(backend)?;
        self.is_frozen = true;
        Ok(())
    }

    /// What the bits of the input are multiplied by for `Z`: those of the weights, and the magnitudes of both.
    fn bit_product<'a>(
        &'a mut self,
        backend: &B,
        input: &'a Signs<B, E>,
    ) -> Result<(&'a BitMatrix<B>, Bmm<'a, B>), Error> {
        self.make(backend)?;
        self.make_bits(backend)?;
        let op = Bmm {
            row_scale: input.magnitudes.as_ref(),
            column_scale: self.magnitudes.as_ref(),
            ..Bmm::default()
        };
        let weights = self.bits.as_ref().expect("they were made");
        Ok((weights, op))
    }

    /// `y += Z`, in an evaluation.
    pub(super) fn add_product(
        &mut self,
        backend: &B,
        input: &Signs<B, E>,
        y: &mut Matrix<B, E>,
    ) -> Result<(), Error> {
        let (b, op) = self.bit_product(backend, input)?;
        let product = BmmOperands {
            a: input.bits(),
            b,
            op: &op,
        };
        mm_add(backend, product, Addition::Products, y)
    }

    /// `y = Z`.
    pub(super) fn product(
        &mut self,
        at: &Context<'_, B, E>,
        input: &Signs<B, E>,
        y: &mut Matrix<B, E>,
    ) -> Result<(), Error> {
        let row_scale = input.magnitudes.as_ref();
        if let Mode::Evaluate = at.mode {
            let (weights, op) = self.bit_product(at.backend, input)?;
            return ops::bmm(at.backend, input.bits(), weights, &op, y);
        }
        self.make_scaled(at.backend)?;
        let epilogue = Epilogue {
            row_scale,
            ..Epilogue::default()
        };
        let (signs, scaled) = (input.elements.get(), self.scaled.get());
        ops::matmul(at.backend, Form::NT, signs, scaled, &epilogue, y)
    }

    /// `y = x · (α · sign W)ᵀ`, of rows that are no signs.
    pub(super) fn product_of(
        &mut self,
        backend: &B,
        x: &Matrix<B, E>,
        y: &mut Matrix<B, E>,
    ) -> Result<(), Error> {
        self.make_scaled(backend)?;
        let (scaled, plain) = (self.scaled.get(), Epilogue::default());
        ops::matmul(backend, Form::NT, x, scaled, &plain, y)
    }

    /// The same where it is all that the layer gives, and what follows.
    pub(super) fn output_of(
        &mut self,
        backend: &B,
        x: &Matrix<B, E>,
        y: &mut Output<'_, B, E>,
    ) -> Result<(), Error> {
        self.make_scaled(backend)?;
        y.product_transposed(x, self.scaled.get())
    }

    /// Signs times their magnitudes: what [`BinaryWeight::output_of`] multiplies by.
    pub(super) fn scaled(&mut self, backend: &B) -> Result<&Matrix<B, E>, Error> {
        self.make_scaled(backend)?;
        Ok(self.scaled.get())
    }

    /// `y = R · A · sign Z`, times a share where `y` is elements, in an evaluation. `sent` becomes `sign Z`.
    pub(super) fn sum_signs_of(
        &mut self,
        backend: &B,
        signs: &BitMatrix<B>,
        graph: &Propagation<B>,
        (sent, share): (&mut BitMatrix<B>, f32),
        y: BitOutput<'_, B, E>,
    ) -> Result<(), Error> {
        let product = BmmOperands {
            a: signs,
            b: self.make_bits(backend)?,
            op: &Bmm::default(),
        };
        let between = Between::Signs {
            room: sent,
            row_scale: graph.row_scale(),
            scale: share,
        };
        mm_spmm(backend, product, graph.forward(), between, y)
    }

    /// `y += share · sign Z`, in an evaluation.
    pub(super) fn add_signs_of(
        &mut self,
        backend: &B,
        signs: &BitMatrix<B>,
        share: f32,
        y: &mut Matrix<B, E>,
    ) -> Result<(), Error> {
        let product = BmmOperands {
            a: signs,
            b: self.make_bits(backend)?,
            op: &Bmm::default(),
        };
        mm_add(backend, product, Addition::Signs { share }, y)
    }

    /// `y = sign Z`, of sums of signs, so that a zero is a zero; what its gradient is clipped by is kept.
    pub(super) fn signs(
        &mut self,
        at: &mut Context<'_, B, E>,
        input: &Signs<B, E>,
        y: &mut BitMatrix<B>,
    ) -> Result<(), Error> {
        let mut sums = at.pool.take(at.backend, y.shape())?;
        self.sums(at, input, &mut sums)?;
        ops::binarize(at.backend, &sums, y)?;
        at.give(sums);
        Ok(())
    }

    /// [`BinaryWeight::signs`] as elements.
    pub(super) fn sign_elements(
        &mut self,
        at: &mut Context<'_, B, E>,
        input: &Signs<B, E>,
        y: &mut Matrix<B, E>,
    ) -> Result<(), Error> {
        self.sums(at, input, y)?;
        ops::nonlinearity(at.backend, Nonlinearity::Sign, None, None, y)
    }

    /// Sums of signs, and `Z` beside them.
    pub(super) fn sums(
        &mut self,
        at: &Context<'_, B, E>,
        input: &Signs<B, E>,
        sums: &mut Matrix<B, E>,
    ) -> Result<(), Error> {
        let (backend, elements) = (at.backend, input.elements.get());
        self.make_scaled(backend)?;
        let epilogue = Epilogue {
            row_scale: input.magnitudes.as_ref(),
            ..Epilogue::default()
        };
        if let Some(product) = &mut self.product {
            let product = product.room(backend, elements.rows())?;
            let scaled = self.scaled.get();
            ops::matmul(backend, Form::NT, elements, scaled, &epilogue, product)?;
        }
        let (signs, plain) = (self.signs.get(), Epilogue::default());
        ops::matmul(backend, Form::NT, elements, signs, &plain, sums)
    }

    /// The gradient of `sign Z`, where that is what goes on, becomes that of `Z`.
    pub(super) fn clip(&self, backend: &B, d: &mut Matrix<B, E>) -> Result<(), Error> {
        match &self.product {
            Some(product) => straight_through(backend, product.get(), d),
            None => Ok(()),
        }
    }

    /// The gradient of the weights and, where it is wanted, that of what they were multiplied by, from that of the product.
    pub(super) fn backward(
        &mut self,
        backend: &B,
        x: &Matrix<B, E>,
        d: &Matrix<B, E>,
        dx: Wanted<'_, B, E>,
    ) -> Result<(), Error> {
        let plain = Epilogue::default();
        let (master, gradient) = self.parameter.master_and_gradient();
        ops::matmul(backend, Form::TN, d, x, &plain, gradient)?;
        let signs = &mut self.master_signs;
        ops::nonlinearity(backend, Nonlinearity::Sign, None, Some(master), signs)?;
        row_dots(backend, gradient, signs, &mut self.through)?;
        straight_through(backend, master, gradient)?;
        scale(backend, self.magnitudes.as_ref(), gradient)?;
        let by_magnitude = Combine {
            x_scale: Some(&self.through),
            ..Combine::sum()
        };
        ops::combine(backend, &by_magnitude, signs, gradient)?;
        let Some((dx, dropout)) = dx else {
            return Ok(());
        };
        ops::matmul(backend, Form::NN, d, self.scaled.get(), &plain, dx)?;
        drop(backend, dropout, dx)
    }
}
