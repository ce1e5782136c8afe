//! What ranks exchange.

use crate::backend::Backend;
use crate::error::Error;
use crate::nn::Halo;
use crate::ops::QuantizedMatrix;
use crate::program::list::refuse;
use crate::program::operator::{Coding, Node, Operator};
use crate::program::plan::Place;
use crate::program::run::machine::{Bank, Elements, Typed, absent};
use crate::program::value::Edges;
use crate::tensor::Element;

impl<B: Backend, E: Element> Typed<'_, B, E> {
    /// Extends rows, folds their gradients, or drops rows by their vertices.
    pub(super) fn ranks(&mut self, node: &Node) -> Result<(), Error> {
        let result = node.results[0];
        match &node.operator {
            Operator::Extend { edges, layer, x } => {
                self.with_taken(&node.written(), |machine, taken| {
                    let [y, packed] = &mut taken.elements[..] else {
                        return missing();
                    };
                    let (backend, x) = (&machine.backend, Elements::matrix(machine, *x)?);
                    let what = forward_exchange(*layer as usize);
                    machine
                        .halo(*edges)?
                        .extend_by(backend, &what, packed, x, y)
                })
            }
            Operator::Fold { edges, layer, d } => {
                self.with_taken(&node.written(), |machine, taken| {
                    let [y, returned] = &mut taken.elements[..] else {
                        return missing();
                    };
                    let (backend, all) = (&machine.backend, Elements::matrix(machine, *d)?);
                    let (halo, what) = (machine.halo(*edges)?, backward_exchange(*layer as usize));
                    halo.begin_fold_by(backend, &what, returned, all)?;
                    halo.end_fold_by(backend, (all, returned), y)
                })
            }
            Operator::DropRows { edges, drop, x } => {
                self.write::<Elements>(result, |machine, y| {
                    machine.begin_with::<Elements>((result, &mut *y), *x)?;
                    match machine.drop(Some(*drop)) {
                        Some(drop) => machine.halo(*edges)?.drop_rows(&machine.backend, drop, y),
                        None => Ok(()),
                    }
                })
            }
            other => refuse(format!("{} exchanges nothing", other.name())),
        }
    }

    /// Has quantized values ready to be written: those of own rows, where the others come from other ranks. What a rank has of others' rows it
    /// does not count.
    pub(super) fn begin_codes(
        &self,
        coding: Coding,
        codes: &mut QuantizedMatrix<B>,
    ) -> Result<(), Error> {
        let Some(of_rank) = coding.of_rank else {
            codes.count_first(usize::MAX);
            return Ok(());
        };
        let own = self.halo(of_rank.edges)?.own();
        codes.count_first(own);
        match of_rank.exchanged {
            true => codes.set_rows(own),
            false => Ok(()),
        }
    }

    /// Gives quantized values of own rows to other ranks, which send theirs, where ranks exchange them.
    pub(super) fn exchange_codes(
        &mut self,
        node: &Node,
        codes: &mut QuantizedMatrix<B>,
    ) -> Result<(), Error> {
        let (Some((coding, _)), Some(packed)) = (node.coded(), node.packed()) else {
            return Ok(());
        };
        let (Some(edges), Place::Slot(slot)) = (coding.exchanged(), self.places[packed.0]) else {
            return absent(packed);
        };
        let Some(mut words) = self.memory.words.remove(&slot) else {
            return absent(packed);
        };
        let what = match coding.stream {
            Some(_) => backward_exchange(coding.layer as usize),
            None => forward_exchange(coding.layer as usize),
        };
        let backend = &self.backend;
        let done = self.halo(edges).and_then(|halo| {
            halo.begin_codes_by(backend, &what, &mut words, codes)?;
            halo.end_codes_by(backend, codes)
        });
        self.memory.words.insert(slot, words);
        done
    }

    pub(super) fn halo(&self, edges: Edges) -> Result<&Halo<B>, Error> {
        match self.edges[edges.0].halo() {
            Some(halo) => Ok(halo),
            None => refuse("rows are exchanged by a rank with a part of a graph".into()),
        }
    }
}

fn missing<T>() -> Result<T, Error> {
    refuse("an exchange is without the memory that it packs rows in".into())
}

/// What errors call the exchange of rows that a layer aggregates.
fn forward_exchange(layer: usize) -> String {
    format!("layers.{layer} forward")
}

/// What errors call the exchange behind the backward pass of a layer.
fn backward_exchange(layer: usize) -> String {
    format!("layers.{layer} backward")
}
