//! What operators of networks of one bit call.

use crate::backend::{Backend, RowShare};
use crate::error::Error;
use crate::nn::Propagation;
use crate::ops::blocks::{Addition, mm_add};
use crate::ops::{
    self, Activation, BitMatrix, Bmm, BmmOperands, Combine, Epilogue, Form, HeadDots, Nonlinearity,
};
use crate::program::list::refuse;
use crate::program::operator::{
    AggregateSigns, AggregateSignsMatmul, BinaryMatmul, Node, Operator,
};
use crate::program::plan::Place;
use crate::program::run::machine::{Bank, Elements, Floats, Typed, absent};
use crate::program::value::{Edges, Value, shares_of};
use crate::tensor::{Array, Element, Matrix};

impl<'a, B: Backend, E: Element> Typed<'a, B, E> {
    /// Runs an operator of a network of one bit.
    pub(super) fn binary(&mut self, node: &Node) -> Result<(), Error> {
        let y = node.results[0];
        match &node.operator {
            Operator::Standardize { x, evaluates } => self.standardize(*x, *evaluates, y),
            Operator::Binarize { x } => self.binarize(*x, node),
            Operator::BinarizeWeight { weight } => self.binarize_weight(*weight, node),
            Operator::BinarizeWeightGradient {
                weight,
                magnitudes,
                d,
            } => self.binarize_weight_gradient([*weight, *magnitudes, *d], node),
            Operator::ScaleRows { x, factors } => self.write::<Elements>(y, |machine, rows| {
                machine.begin_with::<Elements>((y, &mut *rows), *x)?;
                scale(&machine.backend, machine.numbers(*factors)?, rows)
            }),
            Operator::SignOf { sums, .. } => self.write::<Elements>(y, |machine, signs| {
                sign(&machine.backend, Elements::matrix(machine, *sums)?, signs)
            }),
            Operator::Pack { x, standardized } => self.pack(*x, *standardized, y),
            Operator::BinarySigns { a, b } => self.write_bits(y, |machine, signs| {
                let (a, b) = (machine.bits(*a)?, machine.bits(*b)?);
                ops::bmm_signs(&machine.backend, a, b, &Bmm::default(), signs)
            }),
            Operator::BinaryMatmul(op) => self.binary_matmul(op, y),
            Operator::AggregateSigns(op) => self.aggregate_signs(op, y),
            Operator::AggregateSignsMatmul(op) => self.aggregate_signs_matmul(op, node),
            other => refuse(format!("{} is of no network of one bit", other.name())),
        }
    }

    /// Bits of a value.
    fn bits(&self, value: Value) -> Result<&BitMatrix<B>, Error> {
        if let Some((of, signs)) = self.signs
            && of == value
        {
            return Ok(signs);
        }
        let found = match self.places[value.0] {
            Place::Slot(slot) => self.memory.bits.get(&slot),
            _ => None,
        };
        found.map_or_else(|| absent(value), Ok)
    }

    /// Has `work` write the bits of a value, which are put back in any case.
    fn write_bits(
        &mut self,
        value: Value,
        work: impl FnOnce(&Self, &mut BitMatrix<B>) -> Result<(), Error>,
    ) -> Result<(), Error> {
        let Place::Slot(slot) = self.places[value.0] else {
            return absent(value);
        };
        let Some(mut bits) = self.memory.bits.remove(&slot) else {
            return absent(value);
        };
        let done = work(self, &mut bits);
        self.memory.bits.insert(slot, bits);
        done
    }

    fn standardize(&mut self, x: Value, evaluates: bool, y: Value) -> Result<(), Error> {
        let Some(mut standardized) = self.memory.standardized.take() else {
            return absent(y);
        };
        let done = self.write::<Elements>(y, |machine, y| {
            let x = Elements::matrix(machine, x)?;
            standardized.normalize(&machine.backend, (x, evaluates), y)
        });
        self.memory.standardized = Some(standardized);
        done
    }

    fn pack(&mut self, x: Value, standardized: bool, y: Value) -> Result<(), Error> {
        let mut of_features = self.memory.standardized.take();
        let done = self.write_bits(y, |machine, bits| {
            let (backend, x) = (&machine.backend, Elements::matrix(machine, x)?);
            match (&mut of_features, standardized) {
                (Some(of_features), true) => of_features.signs(backend, x, bits),
                (None, true) => absent(y),
                (_, false) => ops::binarize(backend, x, bits),
            }
        });
        self.memory.standardized = of_features;
        done
    }

    fn binarize(&mut self, x: Value, node: &Node) -> Result<(), Error> {
        let frozen = self.memory.frozen.contains_key(&node.results[1]);
        self.with_taken(&node.results, |machine, taken| {
            let ([signs], [magnitudes]) = (&mut taken.elements[..], &mut taken.numbers[..]) else {
                return absent(x);
            };
            let (backend, x) = (&machine.backend, Elements::matrix(machine, x)?);
            sign(backend, x, signs)?;
            match frozen {
                true => Ok(()),
                false => row_dots(backend, x, signs, magnitudes),
            }
        })
    }

    fn binarize_weight(&mut self, weight: Value, node: &Node) -> Result<(), Error> {
        let frozen = self.memory.frozen.remove(&node.results[1]);
        let done = self.with_taken(&node.results, |machine, taken| {
            let ([scaled, signs], [magnitudes]) = (&mut taken.elements[..], &mut taken.numbers[..])
            else {
                return absent(weight);
            };
            let (backend, weight) = (&machine.backend, Elements::matrix(machine, weight)?);
            sign(backend, weight, signs)?;
            if frozen.is_none() {
                row_dots(backend, weight, signs, magnitudes)?;
            }
            let by_magnitude = Combine {
                x_scale: Some(frozen.as_ref().unwrap_or(magnitudes)),
                ..Combine::copy()
            };
            ops::combine(backend, &by_magnitude, signs, scaled)
        });
        if let Some(frozen) = frozen {
            self.memory.frozen.insert(node.results[1], frozen);
        }
        done
    }

    /// `α · 1{|W| ≤ 1} · d + sign(W) / inputs · Σ d · sign W`, of the weights in float.
    fn binarize_weight_gradient(
        &mut self,
        [weight, magnitudes, d]: [Value; 3],
        node: &Node,
    ) -> Result<(), Error> {
        let result = node.results[0];
        self.with_taken(&node.written(), |machine, taken| {
            let ([gradient, signs], [through]) = (&mut taken.floats[..], &mut taken.numbers[..])
            else {
                return absent(result);
            };
            machine.begin_with::<Floats>((result, &mut *gradient), d)?;
            let (backend, master) = (&machine.backend, Floats::matrix(machine, weight)?);
            sign(backend, master, signs)?;
            row_dots(backend, gradient, signs, through)?;
            ops::nonlinearity_backward(backend, Nonlinearity::Sign, master, gradient)?;
            scale(backend, machine.numbers(magnitudes)?, gradient)?;
            let by_magnitude = Combine {
                x_scale: Some(through),
                ..Combine::sum()
            };
            ops::combine(backend, &by_magnitude, signs, gradient)
        })
    }

    fn binary_matmul(&mut self, op: &BinaryMatmul, result: Value) -> Result<(), Error> {
        self.write::<Elements>(result, |machine, y| {
            if let Some(sum) = op.sum {
                machine.begin_with::<Elements>((result, &mut *y), sum)?;
            }
            let numbers = |of: Option<Value>| of.map(|of| machine.numbers(of)).transpose();
            let (a, b) = (machine.bits(op.a)?, machine.bits(op.b)?);
            let scales = Bmm {
                row_scale: numbers(op.rows)?,
                column_scale: numbers(op.columns)?,
                ..Bmm::default()
            };
            let (backend, op_) = (&machine.backend, &scales);
            let addition = match op.share {
                Some(share) => Addition::Signs { share },
                None => Addition::Products,
            };
            match op.sum {
                Some(_) => mm_add(backend, BmmOperands { a, b, op: op_ }, addition, y),
                None => ops::bmm(backend, a, b, op_, y),
            }
        })
    }

    fn aggregate_signs(&mut self, op: &AggregateSigns, y: Value) -> Result<(), Error> {
        let edges = self.unweighted(op.edges)?;
        let (adjacency, rows) = (edges.forward(), edges.row_scale());
        match op.packed {
            // Means have the signs of sums.
            true => self.write_bits(y, |machine, y| {
                ops::bspmm_signs(&machine.backend, adjacency, machine.bits(op.signs)?, y)
            }),
            false => self.write::<Elements>(y, |machine, y| {
                let (backend, signs) = (&machine.backend, machine.bits(op.signs)?);
                ops::bspmm(backend, adjacency, signs, rows, op.factor, y)
            }),
        }
    }

    fn aggregate_signs_matmul(
        &mut self,
        op: &AggregateSignsMatmul,
        node: &Node,
    ) -> Result<(), Error> {
        let edges = self.unweighted(op.edges)?;
        let rows = edges.destinations();
        self.with_taken(&node.written(), |machine, taken| {
            let [y, mean] = &mut taken.elements[..] else {
                return absent(node.results[0]);
            };
            let (backend, signs) = (&machine.backend, machine.bits(op.signs)?);
            let weight = Elements::matrix(machine, op.weight)?;
            let epilogue = Epilogue {
                bias: machine.bias(op.bias)?,
                ..Epilogue::default()
            };
            let shares = shares_of(E::PRECISION, rows, signs.columns());
            for share in RowShare::each(shares) {
                let a = (edges.forward(), share);
                ops::bspmm_rows(backend, a, signs, edges.row_scale(), 1.0, mean)?;
                let to = (share.rows(rows), &mut *y);
                ops::matmul_to_rows(backend, Form::NT, mean, weight, &epilogue, to)?;
            }
            Ok(())
        })
    }

    /// An adjacency whose edges have no weights.
    fn unweighted(&self, edges: Edges) -> Result<&'a Propagation<B>, Error> {
        let edges = self.edges[edges.0];
        match edges.edge_factors::<E>()? {
            None => Ok(edges),
            Some(_) => refuse(
                "sums of signs have no weights of edges; leave these out, or take layers that are Binary::Full"
                    .into(),
            ),
        }
    }
}

/// The sign of each element.
pub(crate) fn sign<B: Backend, E: Element>(
    backend: &B,
    x: &Matrix<B, E>,
    signs: &mut Matrix<B, E>,
) -> Result<(), Error> {
    ops::nonlinearity(backend, Nonlinearity::Sign, None, Some(x), signs)
}

/// Rows times their factors.
fn scale<B: Backend, E: Element>(
    backend: &B,
    factors: &Array<B, f32>,
    rows: &mut Matrix<B, E>,
) -> Result<(), Error> {
    let nothing = Activation {
        bias: None,
        relu: false,
        dropout: None,
    };
    ops::activate_backward(backend, &nothing, None, Some(factors), rows)
}

/// The mean of the products of the elements of each row of `a` and of `b`: with the signs of `a`, its mean magnitude.
pub(crate) fn row_dots<B: Backend, E: Element>(
    backend: &B,
    a: &Matrix<B, E>,
    b: &Matrix<B, E>,
    means: &mut Array<B, f32>,
) -> Result<(), Error> {
    let op = HeadDots::new(1, a, (1.0 / a.columns() as f32, b));
    ops::head_dots(backend, &op, means)
}
