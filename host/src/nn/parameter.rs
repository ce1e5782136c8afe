//! A parameter: the optimiser's state, and what kernels read.

use crate::backend::{Backend, MemoryKind};
use crate::error::Error;
use crate::ops::ParameterMut;
use crate::tensor::{Element, Matrix, Precision};
use std::any::Any;
use std::sync::Arc;

/// Float master weights, their gradient and the optimiser's moments, and a copy that is rounded for the kernels.
#[derive(Debug)]
pub struct Parameter<B: Backend, E: Element> {
    name: String,
    decay: f32,
    master: Arc<Matrix<B, f32>>,
    gradient: Matrix<B, f32>,
    /// Absent until the optimiser [requires](Parameter::keep_moments) them.
    moments: [Option<Matrix<B, f32>>; 2],
    rounded: Option<Arc<Matrix<B, E>>>,
}

/// The values, where no other parameter [shares](Parameter::share) them.
///
/// # Errors
/// [`Error::Unsupported`] where one does.
fn exclusive<'a, T>(name: &str, shared: &'a mut Arc<T>) -> Result<&'a mut T, Error> {
    Arc::get_mut(shared).ok_or_else(|| Error::Unsupported {
        operator: "Parameter",
        reason: format!(
            "{name} cannot be changed while another network reads it; drop the networks that share it first"
        ),
    })
}

impl<B: Backend, E: Element> Parameter<B, E> {
    /// The weights of a linear map, `rows` × `columns`, with the values that `init` makes; kernels read them in `E`.
    ///
    /// `init` is called once there is memory for the parameter on the backend.
    ///
    /// # Errors
    /// [`Error::TooLarge`] and [`Error::Driver`] where there is not enough memory.
    pub fn weights(
        backend: &B,
        name: String,
        (rows, columns): (usize, usize),
        init: impl FnOnce() -> Vec<f32>,
    ) -> Result<Self, Error> {
        let mut parameter = Self::zeros(backend, name, (rows, columns))?;
        if E::PRECISION != Precision::MASTER {
            let rounded = Matrix::zeros(backend, rows, columns, MemoryKind::Weights)?;
            parameter.rounded = Some(Arc::new(rounded));
        }
        parameter.write_with(backend, init)?;
        Ok(parameter)
    }

    /// A bias, 1 × `columns`, all zeros; kernels read it in float.
    ///
    /// # Errors
    /// [`Error::TooLarge`] and [`Error::Driver`] where there is not enough memory.
    pub fn bias(backend: &B, name: String, columns: usize) -> Result<Self, Error> {
        Self::zeros(backend, name, (1, columns))
    }

    /// Weights that kernels read in float whatever `E` is, with the values that `init` makes.
    ///
    /// # Errors
    /// [`Error::TooLarge`] and [`Error::Driver`] where there is not enough memory.
    pub fn in_float(
        backend: &B,
        name: String,
        shape: (usize, usize),
        init: impl FnOnce() -> Vec<f32>,
    ) -> Result<Self, Error> {
        let mut parameter = Self::zeros(backend, name, shape)?;
        parameter.write_with(backend, init)?;
        Ok(parameter)
    }

    fn zeros(backend: &B, name: String, (rows, columns): (usize, usize)) -> Result<Self, Error> {
        let zeros = || Matrix::zeros(backend, rows, columns, MemoryKind::Weights);
        Ok(Self {
            name,
            decay: 1.0,
            master: Arc::new(zeros()?),
            gradient: zeros()?,
            moments: [None, None],
            rounded: None,
        })
    }

    /// The name, such as `layers.0.weight`.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// This parameter's factor of a run's [weight decay](crate::ops::Optimizer::weight_decay): 1 unless it was
    /// [set](Parameter::set_decay).
    pub fn decay(&self) -> f32 {
        self.decay
    }

    /// Multiplies the weight decay of a run by `factor` for this parameter; 0 is none.
    pub fn set_decay(&mut self, factor: f32) {
        self.decay = factor;
    }

    /// Rows and columns.
    pub fn shape(&self) -> (usize, usize) {
        self.master.shape()
    }

    /// The float master weights.
    pub fn master(&self) -> &Matrix<B, f32> {
        &self.master
    }

    /// The weights as kernels of the precision `E` read them.
    ///
    /// # Panics
    /// On a bias in another precision than that of master weights, in which kernels read it.
    pub fn values(&self) -> &Matrix<B, E> {
        Self::as_kernels_read(&self.master, &self.rounded)
    }

    /// [`Parameter::values`], and where a backward pass writes the gradient.
    pub fn values_and_gradient(&mut self) -> (&Matrix<B, E>, &mut Matrix<B, f32>) {
        let values = Self::as_kernels_read(&self.master, &self.rounded);
        (values, &mut self.gradient)
    }

    fn as_kernels_read<'a>(
        master: &'a Matrix<B, f32>,
        rounded: &'a Option<Arc<Matrix<B, E>>>,
    ) -> &'a Matrix<B, E> {
        match rounded {
            Some(rounded) => rounded,
            None => (master as &dyn Any)
                .downcast_ref()
                .expect("kernels read a bias in float: see `master`"),
        }
    }

    /// The gradient of the last backward pass, times the loss scale.
    pub fn gradient(&self) -> &Matrix<B, f32> {
        &self.gradient
    }

    /// Where a backward pass writes the gradient.
    pub fn gradient_mut(&mut self) -> &mut Matrix<B, f32> {
        &mut self.gradient
    }

    /// The float master weights, and where a backward pass writes their gradient.
    pub fn master_and_gradient(&mut self) -> (&Matrix<B, f32>, &mut Matrix<B, f32>) {
        (&self.master, &mut self.gradient)
    }

    /// Reads the values of another parameter of the same name and shape from now on, in the same memory.
    ///
    /// # Errors
    /// [`Error::Unsupported`] where its name differs, [`Error::Shape`] where its shape does.
    pub(crate) fn share(&mut self, of: &Self) -> Result<(), Error> {
        if self.name != of.name {
            return Err(Error::Unsupported {
                operator: "Network::sharing",
                reason: format!(
                    "a parameter {} cannot be read where {} is; make both networks of the same layers",
                    of.name, self.name
                ),
            });
        }
        let (rows, columns) = self.shape();
        let (other_rows, other_columns) = of.shape();
        Error::expect("Network::sharing", "rows of a parameter", rows, other_rows)?;
        Error::expect(
            "Network::sharing",
            "columns of a parameter",
            columns,
            other_columns,
        )?;
        self.master = of.master.clone();
        self.rounded = of.rounded.clone();
        Ok(())
    }

    /// Replaces the values, row-major; the moments stay.
    ///
    /// # Errors
    /// [`Error::Shape`] where the length is another, [`Error::Unsupported`] while another network
    /// [shares](super::Network::sharing) them.
    pub fn write(&mut self, backend: &B, values: &[f32]) -> Result<(), Error> {
        exclusive(&self.name, &mut self.master)?.write_f32(backend, values)?;
        match &mut self.rounded {
            Some(rounded) => exclusive(&self.name, rounded)?.write_f32(backend, values),
            None => Ok(()),
        }
    }

    /// [`Parameter::write`] of the values that `make` makes, which is called where there are any to be kept.
    ///
    /// # Errors
    /// As [`Parameter::write`].
    pub fn write_with(
        &mut self,
        backend: &B,
        make: impl FnOnce() -> Vec<f32>,
    ) -> Result<(), Error> {
        if backend.only_counts() {
            return Ok(());
        }
        self.write(backend, &make())
    }

    /// Gives the parameter `count` moments, at most two, as an [optimiser](crate::ops::Optimizer::moments) keeps them.
    /// Missing ones become zeros, and surplus ones are dropped. A [`Trainer`](crate::train::Trainer) does this.
    ///
    /// # Errors
    /// [`Error::Driver`] where there is not enough memory.
    pub fn keep_moments(&mut self, backend: &B, count: usize) -> Result<(), Error> {
        let (rows, columns) = self.shape();
        for (number, moment) in self.moments.iter_mut().enumerate() {
            if number >= count {
                *moment = None;
            } else if moment.is_none() {
                let zeros = Matrix::zeros(backend, rows, columns, MemoryKind::Weights)?;
                *moment = Some(zeros);
            }
        }
        Ok(())
    }

    /// The moments that are kept, the first one first.
    pub fn moments(&self) -> Vec<&Matrix<B, f32>> {
        self.moments.iter().flatten().collect()
    }

    /// Replaces the values and the moments that are kept, row-major.
    ///
    /// # Errors
    /// [`Error::Shape`] where a length, or the number of moments, is another, and those of [`Parameter::write`].
    pub fn restore(
        &mut self,
        backend: &B,
        values: &[f32],
        moments: &[&[f32]],
    ) -> Result<(), Error> {
        let kept = self.moments.iter().flatten();
        Error::expect("Parameter::restore", "moments", kept.count(), moments.len())?;
        self.write(backend, values)?;
        for (moment, values) in self.moments.iter_mut().flatten().zip(moments) {
            moment.write_f32(backend, values)?;
        }
        Ok(())
    }

    /// The parameter as the optimiser takes it.
    ///
    /// # Errors
    /// [`Error::Unsupported`] while another network [shares](super::Network::sharing) the values.
    pub fn for_optimizer(&mut self) -> Result<ParameterMut<'_, B, E>, Error> {
        let [first_moment, second_moment] = self.moments.each_mut().map(Option::as_mut);
        let rounded = self.rounded.as_mut();
        Ok(ParameterMut {
            gradient: &self.gradient,
            master: exclusive(&self.name, &mut self.master)?,
            first_moment,
            second_moment,
            rounded: rounded
                .map(|rounded| exclusive(&self.name, rounded))
                .transpose()?,
        })
    }
}

/// The gradient that holds the first infinity or NaN of a backward pass, in which the last layer comes first.
///
/// # Errors
/// Those of the device.
pub(crate) fn first_overflow<B: Backend, E: Element>(
    backend: &B,
    parameters: &[&Parameter<B, E>],
) -> Result<Option<String>, Error> {
    for parameter in parameters.iter().rev() {
        let gradient = parameter.gradient().to_f32(backend)?;
        if !gradient.iter().all(|value| value.is_finite()) {
            return Ok(Some(format!("the gradient of {}", parameter.name())));
        }
    }
    Ok(None)
}
