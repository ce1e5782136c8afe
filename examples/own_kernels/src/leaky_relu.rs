//! A leaky ReLU and its gradient, as operators: their operands and what must be true of them, a CPU form, and the
//! launch of a kernel. Nothing of it is in `halfgnn`.

#[path = "../kernels/src/params.rs"]
mod params;

use halfgnn::Error;
use halfgnn::backend::cpu::Cpu;
use halfgnn::backend::gpu::Gpu;
use halfgnn::backend::{Backend, Storage};
use halfgnn::driver::{Driver, LaunchConfig};
use halfgnn::ops::{Checked, Operator};
use halfgnn::tensor::Matrix;
use params::LeakyRelu;
use std::fmt;

/// The kernels of this package, as the build script made them.
const KERNELS: &str = include_str!(env!("KERNELS_PTX"));

/// `y = y > 0 ? y : slope · y`, in place.
#[derive(Debug)]
pub struct Forward<'a, B: Storage> {
    /// Factor of what is below zero; above zero, so that the sign of the output is that of the input.
    pub slope: f32,
    /// The input, which becomes the output.
    pub y: &'a mut Matrix<B, f32>,
}

/// `d = y > 0 ? d : slope · d`, in place.
#[derive(Debug)]
pub struct Backward<'a, B: Storage> {
    /// The slope of the forward pass.
    pub slope: f32,
    /// Its output.
    pub y: &'a Matrix<B, f32>,
    /// The gradient of the output, which becomes that of the input.
    pub d: &'a mut Matrix<B, f32>,
}

fn check_slope(operator: &'static str, slope: f32) -> Result<(), Error> {
    if slope > 0.0 && slope.is_finite() {
        return Ok(());
    }
    Err(Error::Unsupported {
        operator,
        reason: format!("the slope {slope} is not positive and finite"),
    })
}

impl<B: Storage> Operator for Forward<'_, B> {
    const NAME: &'static str = "leaky_relu";

    fn check(&self) -> Result<(), Error> {
        check_slope(Self::NAME, self.slope)
    }
}

impl<B: Storage> Operator for Backward<'_, B> {
    const NAME: &'static str = "leaky_relu_backward";

    fn check(&self) -> Result<(), Error> {
        check_slope(Self::NAME, self.slope)?;
        let (y, d) = (self.y.shape(), self.d.shape());
        for (operand, expected, actual) in [("rows of d", y.0, d.0), ("columns of d", y.1, d.1)] {
            if expected != actual {
                return Err(Error::Shape {
                    operator: Self::NAME,
                    operand,
                    expected,
                    actual,
                });
            }
        }
        Ok(())
    }
}

/// A backend that has the operators.
pub trait LeakyReluOperators: Backend {
    /// What of them is loaded once.
    type Kernels: fmt::Debug + Send + Sync + 'static;

    /// Loads it.
    fn kernels(&self) -> Result<Self::Kernels, Error>;

    /// See [`Forward`].
    fn leaky_relu(
        &self,
        kernels: &Self::Kernels,
        operands: Checked<Forward<'_, Self>>,
    ) -> Result<(), Error>;

    /// See [`Backward`].
    fn leaky_relu_backward(
        &self,
        kernels: &Self::Kernels,
        operands: Checked<Backward<'_, Self>>,
    ) -> Result<(), Error>;
}

impl LeakyReluOperators for Cpu {
    type Kernels = ();

    fn kernels(&self) -> Result<(), Error> {
        Ok(())
    }

    fn leaky_relu(&self, _: &(), operands: Checked<Forward<'_, Self>>) -> Result<(), Error> {
        let Forward { slope, y } = operands.into_inner();
        // Padding is zero, and a leaky ReLU of zero is zero.
        for y in y.elements_on_host_mut() {
            *y = if *y > 0.0 { *y } else { slope * *y };
        }
        Ok(())
    }

    fn leaky_relu_backward(
        &self,
        _: &(),
        operands: Checked<Backward<'_, Self>>,
    ) -> Result<(), Error> {
        let Backward { slope, y, d } = operands.into_inner();
        for (d, y) in d
            .elements_on_host_mut()
            .iter_mut()
            .zip(&*y.elements_on_host())
        {
            *d = if *y > 0.0 { *d } else { slope * *d };
        }
        Ok(())
    }
}

/// The two entries on a device.
#[derive(Debug)]
pub struct Kernels<D: Driver> {
    forward: D::Function,
    backward: D::Function,
}

impl<D: Driver> LeakyReluOperators for Gpu<D> {
    type Kernels = Kernels<D>;

    fn kernels(&self) -> Result<Kernels<D>, Error> {
        let module = self.driver().load(KERNELS)?;
        let entry = |name| self.driver().function(&module, name);
        Ok(Kernels {
            forward: entry("leaky_relu")?,
            backward: entry("leaky_relu_backward")?,
        })
    }

    fn leaky_relu(
        &self,
        kernels: &Kernels<D>,
        operands: Checked<Forward<'_, Self>>,
    ) -> Result<(), Error> {
        let Forward { slope, y } = operands.into_inner();
        let y = (self.address_of(y)?, y.rows() * y.stride());
        // SAFETY: one matrix of this device, of that number of floats.
        unsafe { launch(self.driver(), &kernels.forward, y, y.0, slope) }
    }

    fn leaky_relu_backward(
        &self,
        kernels: &Kernels<D>,
        operands: Checked<Backward<'_, Self>>,
    ) -> Result<(), Error> {
        let Backward { slope, y, d } = operands.into_inner();
        let (y, d) = (
            (self.address_of(y)?, y.rows() * y.stride()),
            self.address_of(d)?,
        );
        // SAFETY: two matrices of this device, which the check found to have one shape.
        unsafe { launch(self.driver(), &kernels.backward, y, d, slope) }
    }
}

/// # Safety
/// `y` and `d` are addresses of `len` floats each on the device.
unsafe fn launch<D: Driver>(
    driver: &D,
    function: &D::Function,
    (y, len): (u64, usize),
    d: u64,
    slope: f32,
) -> Result<(), Error> {
    let config = LaunchConfig::linear(len, 256).ok_or_else(|| Error::Unsupported {
        operator: "leaky_relu",
        reason: format!("{len} elements are too many for one launch"),
    })?;
    let params = LeakyRelu {
        y,
        d,
        len: len as u64,
        slope,
        padding: 0,
    };
    // SAFETY: `params` is what the kernels declare; the rest is the caller's promise. Matrices outlive the launch,
    // because a driver frees in the order of its streams.
    Ok(unsafe { driver.launch_with(function, config, &params) }?)
}
