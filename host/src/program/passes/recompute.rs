//! Activations that are rebuilt in the backward pass in place of being kept.

use super::Pass;
use crate::error::Error;
use crate::program::list::{Program, refuse};
use crate::program::operator::Operator;
use crate::program::plan::Plan;
use crate::program::value::{Origin, Value};
use std::collections::HashSet;

/// The pass. It drops what one product or an element-wise operator rebuilds from values that are there in the backward pass
/// anyway. Sums over edges, most of the time of a step, are kept. A program whose plan does not get smaller stays as it is.
///
/// What is rebuilt has the same bits: operators are deterministic, and dropout draws the same numbers in both passes of a step.
#[derive(Clone, Copy, Debug)]
pub struct Recompute;

impl Pass for Recompute {
    fn name(&self) -> &'static str {
        "recompute"
    }

    fn run(&self, program: &mut Program) -> Result<(), Error> {
        if program.seed.is_none() {
            return refuse("only a differentiated program keeps activations; differentiate it before they are rebuilt".into());
        }
        let mut smaller = program.clone();
        let mut dropped = HashSet::new();
        for number in 0..smaller.forward {
            let result = smaller.nodes[number].results[0];
            if can_rebuild(&smaller, number, &dropped) {
                dropped.insert(result);
                rebuild(&mut smaller, number)?;
            }
        }
        if Plan::new(&smaller).activations() < Plan::new(program).activations() {
            *program = smaller;
        }
        Ok(())
    }
}

/// Whether the result of an operator is kept, and its operands are there in the backward pass.
fn can_rebuild(program: &Program, number: usize, dropped: &HashSet<Value>) -> bool {
    let node = &program.nodes[number];
    let result = node.results[0];
    let is_cheap = matches!(
        node.operator,
        Operator::Matmul(_)
            | Operator::Activate(_)
            | Operator::Combine { .. }
            | Operator::Scale { .. }
            | Operator::Nonlinearity { .. }
    );
    let is_there = |operand: &Value| match program.values[operand.0].origin {
        Origin::Input | Origin::Parameter(_) | Origin::Constant(_) => true,
        Origin::Seed => false,
        Origin::Operator => program.is_kept(*operand) && !dropped.contains(operand),
    };
    is_cheap
        && node.results.len() == 1
        && program.is_kept(result)
        && program.output != Some(result)
        && !program.kept.contains(&result)
        && node.operator.operands().iter().all(is_there)
}

/// Puts the operator once more before the first operator of the backward pass that reads its result.
fn rebuild(program: &mut Program, number: usize) -> Result<(), Error> {
    let operator = program.nodes[number].operator.clone();
    let result = program.nodes[number].results[0];
    let first = program.readers(result).find(|&reader| reader >= program.forward);
    let Some(first) = first else {
        return Ok(());
    };
    let again = program.node(operator)?;
    let rebuilt = again.results[0];
    for node in &mut program.nodes[first..] {
        node.operator.rename(result, rebuilt);
    }
    program.nodes.insert(first, again);
    Ok(())
}
