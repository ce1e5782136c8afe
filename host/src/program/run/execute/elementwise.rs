//! What element-wise operators call.

use crate::backend::Backend;
use crate::error::Error;
use crate::ops::{self, Activation, Combine};
use crate::program::list::refuse;
use crate::program::operator::{Activate, ActivateGradient, Node, Operator};
use crate::program::run::machine::{Bank, Elements, Floats, Typed};
use crate::program::value::Value;
use crate::tensor::{Element, Matrix};

impl<B: Backend, E: Element> Typed<'_, B, E> {
    /// The last matrix first, then the larger of it and each other one.
    pub(super) fn maximum(&mut self, terms: &[Value], result: Value) -> Result<(), Error> {
        self.write::<Elements>(result, |machine, y| {
            let Some((last, others)) = terms.split_last() else {
                return Ok(());
            };
            let backend = &machine.backend;
            let last = Elements::matrix(machine, *last)?;
            ops::combine(backend, &Combine::copy(), last, y)?;
            let mut others = others.iter();
            others.try_for_each(|it| ops::maximum(backend, Elements::matrix(machine, *it)?, y))
        })
    }

    pub(super) fn maximum_gradient(
        &mut self,
        terms: &[Value],
        [y, d]: [Value; 2],
        node: &Node,
    ) -> Result<(), Error> {
        let result = node.results[0];
        self.with_taken(&node.results, |machine, taken| {
            let Some((left, gradients)) = taken.elements.split_first_mut() else {
                return Ok(());
            };
            machine.begin_with::<Elements>((result, &mut *left), d)?;
            let (backend, y) = (&machine.backend, Elements::matrix(machine, y)?);
            let mut pairs = terms.iter().zip(gradients);
            pairs.try_for_each(|(x, dx)| {
                let x = Elements::matrix(machine, *x)?;
                ops::maximum_backward(backend, x, y, left, dx)
            })
        })
    }

    /// Operators whose operands and result have one format.
    pub(super) fn element_wise<K: Bank<B, E>>(
        &mut self,
        operator: &Operator,
        result: Value,
    ) -> Result<(), Error> {
        self.write::<K>(result, |machine, y| match operator {
            Operator::Activate(op) => machine.activate::<K>(op, (result, y)),
            Operator::ActivateGradient(op) => machine.activate_gradient::<K>(op, (result, y)),
            Operator::Nonlinearity { function, x } => {
                let x = K::matrix(machine, *x)?;
                ops::nonlinearity(&machine.backend, *function, None, Some(x), y)
            }
            Operator::NonlinearityGradient { function, of, d } => {
                machine.begin_with::<K>((result, &mut *y), *d)?;
                let of = K::matrix(machine, *of)?;
                ops::nonlinearity_backward(&machine.backend, *function, of, y)
            }
            Operator::Multiply { x, y: by } => {
                let (x, by) = match machine.overwrites(result, *by) {
                    true => (*by, *x),
                    false => (*x, *by),
                };
                let over = machine.overwrites(result, x);
                let x = (!over).then(|| K::matrix(machine, x)).transpose()?;
                ops::multiply(&machine.backend, x, K::matrix(machine, by)?, y)
            }
            Operator::Combine { terms } => machine.combine::<K>(terms, (result, y)),
            Operator::Normalize { norm, x } => {
                let (norm, x) = (machine.normalization(*norm)?, K::matrix(machine, *x)?);
                ops::normalize(&machine.backend, &norm, x, y)
            }
            Operator::Scale {
                x,
                factor,
                plus_one,
            } => {
                let (backend, x) = (&machine.backend, K::matrix(machine, *x)?);
                if *plus_one {
                    let op = Combine {
                        epsilon: Some(Floats::matrix(machine, *factor)?),
                        ..Combine::copy()
                    };
                    return ops::combine(backend, &op, x, y);
                }
                // `(1 + factor) · x − x`: the kernel multiplies by 1 plus a factor.
                ops::combine(backend, &Combine::copy(), x, y)?;
                let op = Combine {
                    epsilon: Some(Floats::matrix(machine, *factor)?),
                    y_factor: -1.0,
                    ..Combine::sum()
                };
                ops::combine(backend, &op, x, y)
            }
            other => refuse(format!("{} writes no value of this format", other.name())),
        })
    }

    fn activate<K: Bank<B, E>>(
        &self,
        op: &Activate,
        (result, y): (Value, &mut Matrix<B, K::Item>),
    ) -> Result<(), Error> {
        let activation = Activation {
            bias: self.bias(op.bias)?,
            relu: op.relu,
            dropout: self.drop(op.drop),
        };
        if let Some(add) = op.add {
            let x = match self.overwrites(result, op.x) {
                true => add,
                false => {
                    self.begin_with::<K>((result, &mut *y), add)?;
                    op.x
                }
            };
            return ops::activate_sum(&self.backend, &activation, K::matrix(self, x)?, y);
        }
        let x = match self.overwrites(result, op.x) {
            true => None,
            false => Some(K::matrix(self, op.x)?),
        };
        ops::activate(&self.backend, &activation, x, y)
    }

    fn activate_gradient<K: Bank<B, E>>(
        &self,
        op: &ActivateGradient,
        (result, y): (Value, &mut Matrix<B, K::Item>),
    ) -> Result<(), Error> {
        self.begin_with::<K>((result, &mut *y), op.d)?;
        let activation = Activation {
            bias: None,
            relu: op.relu.is_some(),
            dropout: self.drop(op.drop),
        };
        let output = op.relu.map(|output| K::matrix(self, output)).transpose()?;
        let rows = self.row_factors(op.rows);
        ops::activate_backward(&self.backend, &activation, output, rows, y)
    }

    fn combine<K: Bank<B, E>>(
        &self,
        terms: &[(f32, Value)],
        (result, y): (Value, &mut Matrix<B, K::Item>),
    ) -> Result<(), Error> {
        // What stands in the result is a term already where the plan has it written over.
        let over = terms
            .iter()
            .position(|(_, value)| self.overwrites(result, *value));
        let mut factor_of_y = over.map_or(0.0, |index| terms[index].0);
        for (index, (factor, value)) in terms.iter().enumerate() {
            if Some(index) == over {
                continue;
            }
            let op = Combine {
                x_factor: *factor,
                y_factor: factor_of_y,
                ..Combine::sum()
            };
            ops::combine(&self.backend, &op, K::matrix(self, *value)?, y)?;
            factor_of_y = 1.0;
        }
        Ok(())
    }
}
