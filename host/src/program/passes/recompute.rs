//! Activations that are rebuilt in the backward pass in place of being kept.

use super::Pass;
use crate::error::Error;
use crate::program::list::{Program, refuse};
use crate::program::operator::Operator;
use crate::program::plan::Plan;
use crate::program::value::{Origin, Value};
use std::collections::HashSet;

/// The pass. It drops what one product and element-wise operators rebuild from values that are there in the backward pass
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
            if let Some(recipe) = recipe(&smaller, number, &dropped) {
                dropped.insert(smaller.nodes[number].results[0]);
                rebuild(&mut smaller, &recipe)?;
            }
        }
        if activations(&smaller) < activations(program) {
            *program = smaller;
        }
        Ok(())
    }
}

/// Vertices of a set whose number is not known yet. Networks are sized after their passes.
const VERTICES: usize = 1 << 16;
/// Likewise of edges.
const EDGES: usize = 1 << 20;

/// Bytes of activations.
fn activations(program: &Program) -> u64 {
    let mut sized = program.clone();
    let unknown = sized.vertices.iter_mut().filter(|set| set.rows == 0);
    unknown.for_each(|set| set.rows = VERTICES);
    let unknown = sized.edges.iter_mut().filter(|set| set.count == 0);
    unknown.for_each(|set| set.count = EDGES);
    Plan::new(&sized).activations()
}

/// Operators that rebuild a value, in their order: the one that writes it, and before it those whose results nothing keeps.
fn recipe(program: &Program, number: usize, dropped: &HashSet<Value>) -> Option<Vec<usize>> {
    let result = program.nodes[number].results[0];
    let is_read_outside = program.output == Some(result) || program.kept.contains(&result);
    if !program.is_kept(result) || is_read_outside {
        return None;
    }
    let (mut recipe, mut next) = (Vec::new(), vec![number]);
    while let Some(number) = next.pop() {
        let node = &program.nodes[number];
        if !is_cheap(&node.operator) || node.results.len() > 1 || recipe.len() == LONGEST {
            return None;
        }
        recipe.push(number);
        for operand in node.operator.operands() {
            match program.values[operand.0].origin {
                Origin::Input
                | Origin::Parameter(_)
                | Origin::Constant(_)
                | Origin::Ones
                | Origin::EdgeFeatures(_) => {}
                // What a step has carried on is another number by now.
                Origin::Buffer(_) => return None,
                Origin::Seed => return None,
                Origin::Operator if dropped.contains(&operand) => return None,
                Origin::Operator if program.is_kept(operand) => {}
                Origin::Operator => next.push(program.writer(operand)?),
            }
        }
    }
    recipe.sort_unstable();
    recipe.dedup();
    let is_product =
        |number: &&usize| matches!(program.nodes[**number].operator, Operator::Matmul(_));
    (recipe.iter().filter(is_product).count() <= 1).then_some(recipe)
}

/// The most operators that rebuild a value.
const LONGEST: usize = 4;

fn is_cheap(operator: &Operator) -> bool {
    matches!(
        operator,
        Operator::Matmul(_)
            | Operator::Activate(_)
            | Operator::Combine { .. }
            | Operator::Multiply { .. }
            | Operator::Scale { .. }
            | Operator::Nonlinearity { .. }
    )
}

/// Puts the operators once more before the first one of the backward pass that reads the result of the last.
fn rebuild(program: &mut Program, recipe: &[usize]) -> Result<(), Error> {
    let Some(&last) = recipe.last() else {
        return Ok(());
    };
    let result = program.nodes[last].results[0];
    let first = program
        .readers(result)
        .find(|&reader| reader >= program.forward);
    let Some(first) = first else {
        return Ok(());
    };
    let mut rebuilt: Vec<(Value, Value)> = Vec::new();
    for (place, &number) in recipe.iter().enumerate() {
        let mut operator = program.nodes[number].operator.clone();
        for (from, to) in &rebuilt {
            operator.rename(*from, *to);
        }
        let again = program.node(operator)?;
        rebuilt.push((program.nodes[number].results[0], again.results[0]));
        program.nodes.insert(first + place, again);
    }
    if let Some((from, to)) = rebuilt.last() {
        for node in &mut program.nodes[first + recipe.len()..] {
            node.operator.rename(*from, *to);
        }
    }
    Ok(())
}
