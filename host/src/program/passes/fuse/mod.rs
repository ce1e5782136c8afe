//! What is done element by element goes into the operator that writes or reads the matrix.
//!
//! Each rule is a function over the whole list, both passes of it. Their order is part of the result: a product that is added to
//! another takes the addition before an aggregation does, and a ReLU is undone where its gradient is written last.
//!
//! | file | what goes where |
//! |---|---|
//! | `activation` | bias, ReLU and dropout into one operator, and into the epilogue of a product or an aggregation |
//! | `sums` | factors, second products, addends, gradients that are added where they are made |
//! | `undo` | a ReLU that is undone, into the product or the aggregation that writes the gradient |
//! | `factors` | factors of degree norms, into the rows of a product |
//! | `norms` | a batch normalisation, into the products that read its output |
//! | `own_rows` | the rows of a block's destinations, into the products that read them |
//! | `column_sums` | the gradient of a bias, next to that of a weight |

mod activation;
mod column_sums;
mod factors;
mod norms;
mod own_rows;
mod sums;
mod undo;

use super::{Pass, store};
use crate::error::Error;
use crate::program::list::Program;
use crate::program::value::Value;

/// The pass. It comes after [`differentiate`](crate::program::differentiate()), or over a program that is evaluated alone.
#[derive(Clone, Copy, Debug)]
pub struct Fuse;

impl Pass for Fuse {
    fn name(&self) -> &'static str {
        "fuse"
    }

    fn run(&self, program: &mut Program) -> Result<(), Error> {
        fuse(program, |_, _| true)
    }
}

/// [`Fuse`] of a program whose activations [`Store`](super::Store) keeps in 8 bits. An aggregation does not undo a ReLU whose output is
/// stored: no kernel of an aggregation reads quantized values for that.
#[derive(Clone, Copy, Debug)]
pub struct FuseBeforeStore;

impl Pass for FuseBeforeStore {
    fn name(&self) -> &'static str {
        "fuse"
    }

    fn run(&self, program: &mut Program) -> Result<(), Error> {
        fuse(program, |program, relu| !store::is_stored(program, relu))
    }
}

/// All rules. `undoes` says whether an aggregation may undo the ReLU of a value.
fn fuse(program: &mut Program, undoes: impl Fn(&Program, Value) -> bool) -> Result<(), Error> {
    activation::merge(program);
    activation::undo_behind_dropped_rows(program);
    sums::factors(program);
    sums::two_products(program);
    sums::into_products(program);
    sums::into_aggregations(program)?;
    activation::of_sums(program);
    activation::into_epilogues(program);
    undo::run(program, undoes);
    factors::run(program)?;
    norms::run(program);
    column_sums::run(program);
    own_rows::run(program);
    Ok(())
}
