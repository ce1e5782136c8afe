//! The shapes of operators of networks of one bit.

use super::{Result_, numbers};
use crate::error::Error;
use crate::program::list::{Program, refuse};
use crate::program::operator::{BinaryMatmul, Direction, Operator};
use crate::program::value::{Edges, Format, Rows, Shape, Value};

impl Program {
    /// What an operator of a network of one bit writes; none of any other operator.
    pub(super) fn results_of_binary(
        &self,
        operator: &Operator,
    ) -> Result<Option<Vec<Result_>>, Error> {
        let (name, shape) = (operator.name(), |value: Value| self.values[value.0].shape);
        let elements = |value: Value| {
            self.expect_format(name, value, Format::Element)?;
            Ok::<_, Error>((shape(value), Format::Element))
        };
        Ok(Some(match operator {
            Operator::Standardize { x, .. } => vec![elements(*x)?],
            Operator::Binarize { x } => vec![elements(*x)?, numbers(shape(*x).rows, 1)],
            Operator::BinarizeWeight { weight } => {
                let of = elements(*weight)?;
                vec![of, numbers(of.0.rows, 1), of]
            }
            Operator::BinarizeWeightGradient {
                weight,
                magnitudes,
                d,
            } => {
                let (of, _) = elements(*weight)?;
                self.expect_same(name, *magnitudes, numbers(of.rows, 1))?;
                self.expect_same(name, *d, (of, Format::Float))?;
                vec![(of, Format::Float)]
            }
            Operator::ScaleRows { x, factors } => {
                self.expect_same(name, *factors, numbers(shape(*x).rows, 1))?;
                vec![elements(*x)?]
            }
            Operator::SignOf { sums, of } => {
                self.expect_same(name, *of, elements(*sums)?)?;
                vec![elements(*sums)?]
            }
            Operator::Pack { x, .. } => vec![(elements(*x)?.0, Format::Bits)],
            Operator::BinarySigns { a, b } => {
                vec![(self.shape_of_bits(name, *a, *b)?, Format::Bits)]
            }
            Operator::BinaryMatmul(op) => vec![self.result_of_bits(name, op)?],
            Operator::AggregateSigns(op) => {
                let (shape, _) = self.sum_of_bits(name, op.edges, op.signs)?;
                vec![match op.packed {
                    true => (shape, Format::Bits),
                    false => (shape, Format::Element),
                }]
            }
            Operator::AggregateSignsMatmul(op) => {
                let (sums, _) = self.sum_of_bits(name, op.edges, op.signs)?;
                let (weight, _) = elements(op.weight)?;
                if weight.columns != sums.columns {
                    return refuse(format!(
                        "{name}: {} has other columns than the sums",
                        self.describe(op.weight)
                    ));
                }
                let (rows, columns) = (sums.rows, self.fixed(weight.rows)?);
                let result = (Shape { rows, columns }, Format::Element);
                self.expect_bias(name, op.bias, result)?;
                vec![result]
            }
            _ => return Ok(None),
        }))
    }

    /// What such an operator computes in.
    pub(super) fn scratch_of_binary(&self, operator: &Operator) -> Vec<Result_> {
        match operator {
            Operator::BinarizeWeightGradient { weight, .. } => {
                let of = self.values[weight.0].shape;
                vec![(of, Format::Float), numbers(of.rows, 1)]
            }
            Operator::AggregateSignsMatmul(op) => {
                let rows = Rows::Share(self.edges[op.edges.0].destinations);
                let columns = self.values[op.signs.0].shape.columns;
                vec![(Shape { rows, columns }, Format::Element)]
            }
            _ => Vec::new(),
        }
    }

    fn sum_of_bits(&self, name: &str, edges: Edges, signs: Value) -> Result<Result_, Error> {
        self.along_in((edges, Direction::Forward), signs, (name, Format::Bits))
    }

    /// The shape of `a · bᵀ`.
    fn shape_of_bits(&self, name: &str, a: Value, b: Value) -> Result<Shape, Error> {
        self.expect_format(name, a, Format::Bits)?;
        self.expect_format(name, b, Format::Bits)?;
        let [of_a, of_b] = [a, b].map(|it| self.values[it.0].shape);
        if of_a.columns != of_b.columns {
            return refuse(format!(
                "{name} of {} and {}: they have not as many columns",
                self.describe(a),
                self.describe(b)
            ));
        }
        let columns = self.fixed(of_b.rows)?;
        Ok(Shape { columns, ..of_a })
    }

    fn result_of_bits(&self, name: &str, op: &BinaryMatmul) -> Result<Result_, Error> {
        let shape = self.shape_of_bits(name, op.a, op.b)?;
        let result = (shape, Format::Element);
        if let Some(rows) = op.rows {
            self.expect_same(name, rows, numbers(shape.rows, 1))?;
        }
        if let Some(columns) = op.columns {
            let rows = self.values[op.b.0].shape.rows;
            self.expect_same(name, columns, numbers(rows, 1))?;
        }
        match (op.sum, op.share) {
            (Some(sum), _) => self.expect_same(name, sum, result)?,
            (None, Some(_)) => return refuse(format!("{name} adds signs to another matrix")),
            (None, None) => {}
        }
        Ok(result)
    }

    fn expect_format(&self, name: &str, value: Value, format: Format) -> Result<(), Error> {
        match self.values[value.0].format == format {
            true => Ok(()),
            false => refuse(format!("{name}: {} is no {format}", self.describe(value))),
        }
    }
}
