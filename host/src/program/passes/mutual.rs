//! Gradients of several ranks go the way of activations, where all edges of the graph go both ways.

use super::Pass;
use super::exchange::{extended, read_own_rows};
use crate::error::Error;
use crate::program::list::{Program, refuse};
use crate::program::operator::{Aggregate, Direction, Operator};
use crate::program::value::Value;

/// The pass, for messages that are [quantized](super::Quantize) after it. It comes behind [`differentiate`](crate::program::differentiate()).
///
/// A rank that sums gradients against the edges gives rows of sums to the ranks whose vertices they are of. Against edges that
/// [go both ways](crate::program::Builder::edges_go_both_ways) it can as well be given the gradients that its own vertices sum: these are
/// quantized, and sums are not.
#[derive(Clone, Copy, Debug)]
pub struct Mutual;

impl Pass for Mutual {
    fn name(&self) -> &'static str {
        "mutual"
    }

    fn run(&self, program: &mut Program) -> Result<(), Error> {
        if program.seed.is_none() {
            return refuse("a program without a backward list has no gradients to exchange; differentiate it first".into());
        }
        // The gradient of a factor of own rows reads them.
        read_own_rows(program);
        let mut number = program.forward;
        while number < program.nodes.len() {
            if let Some((sum, op, layer)) = folded_sum(program, number) {
                let extend = program.node(Operator::Extend {
                    edges: op.edges,
                    layer,
                    x: op.x,
                })?;
                let all = extend.results[0];
                let mut operator = Operator::Aggregate(Aggregate {
                    is_mutual: true,
                    ..op.clone()
                });
                operator.rename(op.x, all);
                program.nodes[number].operator = operator;
                program.renew_scratch(number);
                program.nodes[sum] = extend;
            }
            number += 1;
        }
        Ok(())
    }
}

/// The sum whose rows the operator `number` alone folds, with its number and the layer of the exchange.
fn folded_sum(program: &Program, number: usize) -> Option<(usize, Aggregate, u32)> {
    let Operator::Fold { edges, layer, d } = program.nodes[number].operator else {
        return None;
    };
    let sum = program.writer(d)?;
    let Operator::Aggregate(op) = &program.nodes[sum].operator else {
        return None;
    };
    let is_against = op.direction == Direction::Backward && op.edges == edges && !op.is_mutual;
    let is_alone = program.only_reader(d) == Some(number) && op.is_linear() && op.codes.is_none();
    (program.edges[edges.0].is_mutual && is_against && is_alone).then(|| (sum, op.clone(), layer))
}

/// The matrix of own rows that ranks exchange for the sum `number` alone, over edges that go both ways, and the number of the exchange.
pub(super) fn exchanged_for_sum(program: &Program, number: usize) -> Option<(usize, Value)> {
    let Operator::Aggregate(op) = &program.nodes[number].operator else {
        return None;
    };
    let (extend, edges, _, own) = extended(program, op.x)?;
    let is_alone = program.only_reader(op.x) == Some(number);
    (edges == op.edges && program.edges[edges.0].is_mutual && is_alone).then_some((extend, own))
}
