//! Bias, ReLU and dropout: one operator for all that follow one another, and none where the writer of the matrix does it.

use crate::program::list::Program;
use crate::program::operator::{Activate, ActivateGradient, Operator};
use crate::program::value::Value;

/// Joins operators that follow one another, in both passes: bias, ReLU and dropout become one. A ReLU is undone from what is
/// stored behind the dropout, which is positive exactly where both let an element through.
pub(super) fn merge(program: &mut Program) {
    let mut number = 0;
    while number < program.nodes.len() {
        match joined(program, number) {
            // What is behind it has moved up by one.
            Some(before) => {
                program.remove(before);
            }
            None => number += 1,
        }
    }
}

/// Joins an operator with the one that writes its operand, whose number is the result.
fn joined(program: &mut Program, number: usize) -> Option<usize> {
    let second = as_activate(program, number)?.clone();
    let before = program.writer(second.x)?;
    let first = as_activate(program, before)?.clone();
    let fits = second.add.is_none() && second.bias.is_none() && first.drop.is_none();
    let (between, output) = (second.x, program.nodes[number].results[0]);
    if !fits || program.output == Some(between) || program.kept.contains(&between) {
        return None;
    }
    let others: Vec<usize> = program
        .readers(between)
        .filter(|&it| it != number)
        .collect();
    let mut undone = Vec::new();
    for other in others {
        undone.push(undone_together(program, other, between, &second)?);
    }
    // From the last on, so that numbers before it stay.
    undone.sort_unstable();
    for (relu, drop) in undone.into_iter().rev() {
        if let Operator::ActivateGradient(op) = &mut program.nodes[relu].operator {
            op.relu = Some(output);
            op.drop = second.drop;
        }
        if let Some(drop) = drop {
            let d = match &program.nodes[drop].operator {
                Operator::ActivateGradient(op) => op.d,
                _ => continue,
            };
            let dropped = program.nodes[drop].results[0];
            program.nodes[relu].operator.rename(dropped, d);
            program.remove(drop);
        }
    }
    program.nodes[number].operator = Operator::Activate(Activate {
        relu: first.relu || second.relu,
        drop: second.drop,
        ..first
    });
    Some(before)
}

/// The operator `relu` that undoes the ReLU between two joined ones, and the one right before it that undoes the dropout behind.
fn undone_together(
    program: &Program,
    relu: usize,
    between: Value,
    second: &Activate,
) -> Option<(usize, Option<usize>)> {
    let op = as_gradient(program, relu)?;
    let is_relu = op.relu == Some(between) && op.drop.is_none() && op.rows.is_none();
    if !is_relu || second.relu {
        return None;
    }
    if second.drop.is_none() {
        return Some((relu, None));
    }
    let drop = program.writer(op.d)?;
    let before = as_gradient(program, drop)?;
    let is_drop = before.relu.is_none() && before.drop == second.drop && before.rows.is_none();
    (is_drop && program.only_reader(op.d) == Some(relu)).then_some((relu, Some(drop)))
}

/// Of a rank a dropout is an operator of its own. A ReLU that it alone reads is undone from what is behind it, so that nothing else is
/// kept: where an element is dropped, the gradient is zero already.
pub(super) fn undo_behind_dropped_rows(program: &mut Program) {
    for number in 0..program.forward {
        let Operator::DropRows { x: relu, .. } = program.nodes[number].operator else {
            continue;
        };
        let writer = program.writer(relu).and_then(|it| as_activate(program, it));
        let others: Vec<usize> = program.readers(relu).filter(|it| *it != number).collect();
        let undoes = |other: &usize| {
            let op = as_gradient(program, *other);
            *other >= program.forward && op.is_some_and(|op| op.relu == Some(relu) && op.d != relu)
        };
        if !writer.is_some_and(|op| op.relu) || !others.iter().all(undoes) {
            continue;
        }
        let dropped = program.nodes[number].results[0];
        for other in others {
            if let Operator::ActivateGradient(op) = &mut program.nodes[other].operator {
                op.relu = Some(dropped);
            }
        }
    }
}

/// `activate(combine(a + b))` of two matrices adds them itself.
pub(super) fn of_sums(program: &mut Program) {
    let mut number = 0;
    while number < program.nodes.len() {
        match with_sum(program, number) {
            Some((before, op)) => {
                program.nodes[number].operator = Operator::Activate(op);
                program.remove(before);
            }
            None => number += 1,
        }
    }
}

fn with_sum(program: &Program, number: usize) -> Option<(usize, Activate)> {
    let op = as_activate(program, number)?;
    let before = program.writer(op.x)?;
    let Operator::Combine { terms } = &program.nodes[before].operator else {
        return None;
    };
    let [(1.0, x), (1.0, add)] = terms[..] else {
        return None;
    };
    let fits = op.add.is_none() && x != add && program.only_reader(op.x) == Some(number);
    fits.then(|| {
        let op = Activate {
            x,
            add: Some(add),
            ..op.clone()
        };
        (before, op)
    })
}

/// A bias and a ReLU without a dropout behind them go into the epilogue of the product or the aggregation that writes the
/// matrix. A product of two pairs drops elements as well.
pub(super) fn into_epilogues(program: &mut Program) {
    let mut number = 0;
    while number < program.nodes.len() {
        match with_epilogue(program, number) {
            Some((before, operator)) => {
                let results = program.nodes[number].results.clone();
                program.nodes[before].operator = operator;
                program.nodes[before].results[0] = results[0];
                program.remove(number);
            }
            None => number += 1,
        }
    }
}

fn with_epilogue(program: &Program, number: usize) -> Option<(usize, Operator)> {
    let op = as_activate(program, number)?;
    let before = program.writer(op.x)?;
    if op.add.is_some() || program.only_reader(op.x) != Some(number) {
        return None;
    }
    let mut operator = program.nodes[before].operator.clone();
    match &mut operator {
        Operator::Matmul(product) => {
            let is_done = product.relu || product.drop.is_some() || product.bias.is_some();
            let is_gradient = product.positive.is_some() || product.sum.is_some();
            let can_drop = op.drop.is_none() || product.second.is_some();
            if is_done || is_gradient || !can_drop {
                return None;
            }
            (product.bias, product.relu, product.drop) = (op.bias, op.relu, op.drop);
        }
        Operator::Aggregate(sum) => {
            let is_done = sum.relu || sum.bias.is_some() || sum.positive.is_some();
            if is_done || op.drop.is_some() {
                return None;
            }
            (sum.bias, sum.relu) = (op.bias, op.relu);
        }
        _ => return None,
    }
    Some((before, operator))
}

fn as_activate(program: &Program, number: usize) -> Option<&Activate> {
    match &program.nodes[number].operator {
        Operator::Activate(op) => Some(op),
        _ => None,
    }
}

fn as_gradient(program: &Program, number: usize) -> Option<&ActivateGradient> {
    match &program.nodes[number].operator {
        Operator::ActivateGradient(op) => Some(op),
        _ => None,
    }
}
