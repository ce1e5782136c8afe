//! What ranks exchange.

use crate::backend::Backend;
use crate::error::Error;
use crate::nn::{Halo, backward_exchange, forward_exchange};
use crate::program::list::refuse;
use crate::program::operator::Operator;
use crate::program::run::machine::{Bank, Elements, Typed};
use crate::program::value::{Edges, Value};
use crate::tensor::Element;

impl<B: Backend, E: Element> Typed<'_, B, E> {
    /// Extends rows, folds their gradients, or drops rows by their vertices.
    pub(super) fn ranks(&mut self, operator: &Operator, result: Value) -> Result<(), Error> {
        let mut packed = std::mem::take(&mut self.memory.packed);
        let done = self.write::<Elements>(result, |machine, y| {
            let backend = &machine.backend;
            match operator {
                Operator::Extend { edges, layer, x } => {
                    let x = Elements::matrix(machine, *x)?;
                    let what = forward_exchange(*layer as usize);
                    machine
                        .halo(*edges)?
                        .extend(backend, &what, &mut packed, x, y)
                }
                Operator::Fold { edges, layer, d } => {
                    let (halo, all) = (machine.halo(*edges)?, Elements::matrix(machine, *d)?);
                    let what = backward_exchange(*layer as usize);
                    let underway = halo.begin_fold(backend, &what, &mut packed, all)?;
                    halo.end_fold(backend, &mut packed, (all, underway), y)
                }
                Operator::DropRows { edges, drop, x } => {
                    machine.begin_with::<Elements>((result, &mut *y), *x)?;
                    match machine.drop(Some(*drop)) {
                        Some(drop) => machine.halo(*edges)?.drop_rows(backend, drop, y),
                        None => Ok(()),
                    }
                }
                other => refuse(format!("{} exchanges nothing", other.name())),
            }
        });
        self.memory.packed = packed;
        done
    }

    fn halo(&self, edges: Edges) -> Result<&Halo<B>, Error> {
        match self.edges[edges.0].halo() {
            Some(halo) => Ok(halo),
            None => refuse("rows are exchanged by a rank with a part of a graph".into()),
        }
    }
}
