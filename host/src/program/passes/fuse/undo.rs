//! A ReLU, and the dropout behind it, undone where the gradient of its output is written.

use crate::ops::Form;
use crate::program::list::Program;
use crate::program::operator::{ActivateGradient, Operator};
use crate::program::value::Value;

/// The rule: `activate_gradient` without row factors goes into the products or the aggregation whose result it alone reads. Of a
/// sum that is let through, each part is. `undoes` says whether an aggregation may do it for a ReLU.
pub(super) fn run(program: &mut Program, undoes: impl Fn(&Program, Value) -> bool) {
    let mut number = 0;
    while number < program.nodes.len() {
        let Some((writers, relu, factor)) = writers(program, number, &undoes) else {
            number += 1;
            continue;
        };
        for &writer in &writers {
            match &mut program.nodes[writer].operator {
                Operator::Matmul(op) => {
                    op.positive = Some(relu);
                    op.alpha *= factor;
                }
                Operator::Aggregate(op) => {
                    op.positive = Some(relu);
                    op.factor *= factor;
                }
                _ => {}
            }
        }
        let result = program.nodes[number].results[0];
        program.nodes[writers[0]].results[0] = result;
        program.remove(number);
    }
}

/// The operators that write the parts of the gradient, the last one first, the ReLU's output, and the factor of what dropout kept.
fn writers(
    program: &Program,
    number: usize,
    undoes: impl Fn(&Program, Value) -> bool,
) -> Option<(Vec<usize>, Value, f32)> {
    let Operator::ActivateGradient(ActivateGradient {
        d,
        relu: Some(relu),
        drop,
        rows: None,
    }) = program.nodes[number].operator
    else {
        return None;
    };
    let mut writers = Vec::new();
    let (mut value, mut reader) = (d, number);
    loop {
        if program.only_reader(value) != Some(reader) {
            return None;
        }
        let writer = program.writer(value)?;
        writers.push(writer);
        match &program.nodes[writer].operator {
            Operator::Matmul(op) if op.form == Form::NT && op.positive.is_none() => match op.sum {
                Some(sum) => (value, reader) = (sum, writer),
                None => break,
            },
            Operator::Aggregate(op) if op.is_plain() && undoes(program, relu) => break,
            _ => return None,
        }
    }
    Some((writers, relu, drop.map_or(1.0, |drop| drop.factor())))
}
