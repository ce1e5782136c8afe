//! Activations that are kept for the backward pass in 8 bits.

use super::Pass;
use crate::error::Error;
use crate::ops::Form;
use crate::program::list::{Program, refuse};
use crate::program::operator::{Matmul, Operator};
use crate::program::value::{Format, Value};
use crate::tensor::Precision;

/// The pass. It comes after [`FuseBeforeStore`](super::fuse::FuseBeforeStore) and before passes that keep less of what is left.
///
/// It stores outputs of ReLUs, also behind the dropout of a rank and with the rows of other ranks, and what a batch normalisation normalizes,
/// as far as the backward pass reads them. The scale of a column is the smallest that fits its numbers; ranks have scales of their own.
/// Gradients of weights are products of the quantized values, and products undo a ReLU by them. Any other operator reads their numbers from
/// a matrix that is there for its length.
///
/// The forward pass keeps its bits. What a ReLU and a dropout behind it let through is known exactly, so the gradients that go on from layer to
/// layer keep theirs as well. Gradients of weights, and of what is normalized, are those of rounded numbers.
#[derive(Clone, Copy, Debug)]
pub struct Store;

impl Pass for Store {
    fn name(&self) -> &'static str {
        "store"
    }

    fn run(&self, program: &mut Program) -> Result<(), Error> {
        if program.seed.is_none() {
            return refuse("only a differentiated program keeps activations; differentiate it before they are stored in 8 bits".into());
        }
        if program.precision == Precision::Float {
            return refuse("activations are kept in 8 bits of half or bfloat16, and this program computes in float; take one of those, or keep them as they are".into());
        }
        let written = program.nodes[..program.forward].iter();
        let stored: Vec<Value> = written
            .map(|node| node.results[0])
            .filter(|value| is_stored(program, *value))
            .collect();
        stored
            .into_iter()
            .try_for_each(|value| store(program, value))
    }
}

/// Whether the pass keeps a value in 8 bits.
pub(super) fn is_stored(program: &Program, value: Value) -> bool {
    let is_outside = program.output == Some(value) || program.kept.contains(&value);
    let is_element = program.values[value.0].format == Format::Element;
    let can = is_element && !is_outside && program.is_kept(value);
    can && (is_of_relu(program, value) || is_normalized(program, value))
}

/// Whether it is the output of a ReLU, also behind the dropout of a rank and with the rows of other ranks.
fn is_of_relu(program: &Program, value: Value) -> bool {
    let writer = program.writer(value).map(|it| &program.nodes[it].operator);
    match writer {
        Some(Operator::Matmul(op)) => op.relu,
        Some(Operator::Aggregate(op)) => op.relu,
        Some(Operator::Activate(op)) => op.relu,
        Some(Operator::DropRows { x, .. } | Operator::Extend { x, .. }) => is_of_relu(program, *x),
        _ => false,
    }
}

/// Whether it is what a batch normalisation normalizes.
fn is_normalized(program: &Program, value: Value) -> bool {
    program
        .readers(value)
        .any(|reader| match &program.nodes[reader].operator {
            Operator::NormalizeGradient(op) => op.x == value,
            _ => false,
        })
}

/// Stores a value, and has the backward pass read what is stored.
fn store(program: &mut Program, value: Value) -> Result<(), Error> {
    let node = program.node(Operator::Store { x: value })?;
    let codes = node.results[0];
    let last = program
        .readers(value)
        .take_while(|reader| *reader < program.forward)
        .last();
    let place = match last.or(program.writer(value)) {
        // It may be written over by what reads it last.
        Some(last) if program.nodes[last].operator.overwrites().contains(&value) => last,
        Some(last) => last + 1,
        None => program.forward,
    };
    program.nodes.insert(place, node);
    program.forward += 1;
    let of_backward = program
        .readers(value)
        .filter(|reader| *reader >= program.forward);
    let readers: Vec<usize> = of_backward.collect();
    // Where the last reader of a widened copy stands, and the copy.
    let mut copy: Option<(usize, Value)> = None;
    let mut inserted = 0;
    for reader in readers {
        let mut number = reader + inserted;
        if read_codes(&mut program.nodes[number].operator, value, codes) {
            continue;
        }
        let rows = match copy {
            Some((before, rows)) if before + 1 == number => rows,
            _ => {
                let node = program.node(Operator::Dequantize { x: codes })?;
                let rows = node.results[0];
                program.nodes.insert(number, node);
                inserted += 1;
                number += 1;
                rows
            }
        };
        program.nodes[number].operator.rename(value, rows);
        copy = Some((number, rows));
    }
    Ok(())
}

/// Has an operator read quantized values in place of `x`, where it can.
fn read_codes(operator: &mut Operator, x: Value, codes: Value) -> bool {
    let times = operator.operands().into_iter().filter(|it| *it == x);
    let is_once = times.count() == 1;
    let Operator::Matmul(op) = operator else {
        return false;
    };
    let product = Matmul {
        column_sums: false,
        reads_own: [None; 2],
        ..op.clone()
    };
    match op.form {
        Form::TN if is_once && op.a == x && product.is_plain() => op.a = codes,
        Form::NT if is_once && op.positive == Some(x) => op.positive = Some(codes),
        _ => return false,
    }
    true
}
