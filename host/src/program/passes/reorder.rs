//! Aggregate before a product or after it, whichever sums narrower rows.
//!
//! Both maps are linear: `A · (H · W) = (A · H) · W`. An aggregation costs as much as its rows are wide, and the product costs
//! the same on either side of it, unless the adjacency has fewer destinations than sources.

use super::Pass;
use crate::error::Error;
use crate::nn::rounds_by_default;
use crate::ops::Form;
use crate::program::list::{Program, refuse};
use crate::program::operator::{Aggregate, Direction, Matmul, Operator, ReadFactors};
use crate::program::value::{Origin, Rows};

/// The pass. Of equal widths the product comes first on a whole graph, and last where destinations are other vertices than
/// sources, of which a sampled block has more.
#[derive(Clone, Copy, Debug)]
pub struct Reorder;

impl Pass for Reorder {
    fn name(&self) -> &'static str {
        "reorder"
    }

    fn run(&self, program: &mut Program) -> Result<(), Error> {
        if program.seed.is_some() {
            return refuse(
                "the order of products is chosen before the program is differentiated".into(),
            );
        }
        for number in 1..program.nodes.len() {
            match &program.nodes[number].operator {
                Operator::Aggregate(_) => aggregate_first(program, number)?,
                Operator::Matmul(_) => transform_first(program, number)?,
                _ => {}
            }
        }
        Ok(())
    }
}

/// Whether an aggregation over the edges of `sum` is better made of `inputs` columns than of `outputs`.
fn pays(program: &Program, sum: &Aggregate, inputs: usize, outputs: usize) -> bool {
    // Factors of the rows that are read are then looked up in the sum, which the default way of rounding alone has kernels for.
    if !rounds_by_default(sum.policy) {
        return false;
    }
    match program.is_square(sum.edges) || program.edges[sum.edges.0].of_rank {
        true => inputs < outputs,
        false => inputs <= outputs,
    }
}

fn is_movable(sum: &Aggregate) -> bool {
    let in_sum = sum.read_factors == ReadFactors::InSum;
    sum.is_linear() && sum.direction == Direction::Forward && in_sum
}

/// A product of rows of vertices with a matrix of weights.
fn is_linear(program: &Program, product: &Matmul) -> bool {
    let is_weight = matches!(program.values[product.b.0].shape.rows, Rows::Fixed(_));
    product.is_plain() && product.form == Form::NN && is_weight
}

/// `aggregate(matmul(x, w))` becomes `matmul(aggregate(x), w)`.
fn aggregate_first(program: &mut Program, number: usize) -> Result<(), Error> {
    let Operator::Aggregate(sum) = program.nodes[number].operator.clone() else {
        return Ok(());
    };
    let Some(before) = program.writer(sum.x) else {
        return Ok(());
    };
    let Operator::Matmul(product) = program.nodes[before].operator.clone() else {
        return Ok(());
    };
    let widths = [product.a, product.b].map(|it| program.values[it.0].shape.columns);
    let only = program.only_reader(sum.x) == Some(number);
    if !only
        || !is_movable(&sum)
        || !is_linear(program, &product)
        || !pays(program, &sum, widths[0], widths[1])
    {
        return Ok(());
    }
    let mut sum = Operator::Aggregate(sum);
    sum.rename(program.nodes[before].results[0], product.a);
    let sum = program.node(sum)?;
    program.nodes[number].operator = Operator::Matmul(Matmul {
        a: sum.results[0],
        ..product
    });
    program.nodes[before] = sum;
    Ok(())
}

/// `matmul(aggregate(x), w)` becomes `aggregate(matmul(x, w))`.
fn transform_first(program: &mut Program, number: usize) -> Result<(), Error> {
    let Operator::Matmul(product) = program.nodes[number].operator.clone() else {
        return Ok(());
    };
    let Some(before) = program.writer(product.a) else {
        return Ok(());
    };
    let Operator::Aggregate(sum) = program.nodes[before].operator.clone() else {
        return Ok(());
    };
    let widths = [product.a, product.b].map(|it| program.values[it.0].shape.columns);
    let only = program.only_reader(product.a) == Some(number);
    // The weight may be made between the two.
    let is_there = match program.values[product.b.0].origin {
        Origin::Operator => program.writer(product.b).is_some_and(|it| it < before),
        _ => true,
    };
    if !only
        || !is_there
        || !is_movable(&sum)
        || !is_linear(program, &product)
        || pays(program, &sum, widths[0], widths[1])
    {
        return Ok(());
    }
    let product = Operator::Matmul(Matmul {
        a: sum.x,
        ..product
    });
    let product = program.node(product)?;
    let (from, mut sum) = (sum.x, Operator::Aggregate(sum));
    sum.rename(from, product.results[0]);
    program.nodes[number].operator = sum;
    program.nodes[before] = product;
    Ok(())
}
