//! Signs and their products.

use crate::ops::Nonlinearity;
use crate::program::operator::{Aggregate, Direction, Dropout, Operator};
use crate::program::{Builder, Edges, Value};

/// Signs of rows, and the mean magnitude of each row.
#[derive(Clone, Copy, Debug)]
pub(in crate::program) struct Signs {
    elements: Value,
    magnitudes: Value,
}

/// A weight of one bit, outputs × inputs: its signs, and those times the mean magnitude of each row.
#[derive(Clone, Copy, Debug)]
pub(in crate::program) struct BinaryWeight {
    signs: Value,
    scaled: Value,
}

impl Builder {
    /// Features normalized over all vertices, without scale and shift.
    pub(in crate::program) fn standardize(&mut self, x: Value) -> Value {
        let evaluates = false;
        self.push(Operator::Standardize { x, evaluates })
    }

    /// The signs of `x`, of which some are dropped.
    pub(in crate::program) fn binarize(&mut self, x: Value, drop: Option<Dropout>) -> Signs {
        let [signs, magnitudes] = self.push_several(Operator::Binarize { x });
        let elements = self.drop_by(drop, signs);
        Signs {
            elements,
            magnitudes,
        }
    }

    /// A weight of one bit.
    pub(in crate::program) fn binary_weight(
        &mut self,
        name: &str,
        (inputs, outputs): (usize, usize),
    ) -> BinaryWeight {
        let weight = self.weight(name, (outputs, inputs));
        let [scaled, _, signs] = self.push_several(Operator::BinarizeWeight { weight });
        BinaryWeight { signs, scaled }
    }

    /// `β · α · (sign x · sign wᵀ)`, where `β` and `α` are mean magnitudes of rows.
    pub(in crate::program) fn binary_matmul(&mut self, x: Signs, w: BinaryWeight) -> Value {
        let product = self.matmul_transposed(x.elements, w.scaled);
        let factors = x.magnitudes;
        self.push(Operator::ScaleRows {
            x: product,
            factors,
        })
    }

    /// The signs of [`binary_matmul`](Builder::binary_matmul). They are those of integers, so that zero is zero.
    pub(in crate::program) fn binary_signs(&mut self, x: Signs, w: BinaryWeight) -> Value {
        let of = self.binary_matmul(x, w);
        let sums = self.matmul_transposed(x.elements, w.signs);
        self.push(Operator::SignOf { sums, of })
    }

    /// The mean of the signs of neighbours, of which some are dropped, times a weight.
    pub(in crate::program) fn mean_of_signs(
        &mut self,
        (edges, x): (Edges, Value),
        drop: Option<Dropout>,
        w: BinaryWeight,
    ) -> Value {
        let signs = self.nonlinearity(Nonlinearity::Sign, x);
        let mean = self.aggregate(edges, signs);
        let mean = self.drop_by(drop, mean);
        self.matmul_transposed(mean, w.scaled)
    }

    /// `factor` times the sum over the edges of each destination.
    pub(in crate::program) fn aggregate_times(
        &mut self,
        edges: Edges,
        factor: f32,
        x: Value,
    ) -> Value {
        let layer = self.layer_number();
        self.push(Operator::Aggregate(Aggregate {
            factor,
            layer,
            ..Aggregate::new(edges, Direction::Forward, x)
        }))
    }
}
