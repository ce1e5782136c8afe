//! Factors of degree norms, out of the aggregation that would look one up for each edge.

use crate::error::Error;
use crate::nn::Norm;
use crate::program::list::Program;
use crate::program::operator::{
    ActivateGradient, Direction, End, Operator, ReadFactors, RowFactors,
};
use crate::program::value::{Origin, Value};

/// The rule: the factors of the rows that an aggregation reads go into the product that writes those rows for it alone. Gradients
/// that it alone reads are multiplied in place.
///
/// Only roots of degrees: a whole degree would take the rows of a hub below what half has digits for.
///
/// # Errors
/// Those of the shape rule.
pub(super) fn run(program: &mut Program) -> Result<(), Error> {
    let mut number = 0;
    while number < program.nodes.len() {
        number += 1 + usize::from(rule(program, number)?);
    }
    Ok(())
}

/// Whether an operator was put in before `number`.
fn rule(program: &mut Program, number: usize) -> Result<bool, Error> {
    let Operator::Aggregate(sum) = &program.nodes[number].operator else {
        return Ok(false);
    };
    let (edges, x, direction) = (sum.edges, sum.x, sum.direction);
    let of_edges = &program.edges[edges.0];
    let are_roots = matches!(of_edges.norm, Norm::Both | Norm::In);
    if sum.read_factors != ReadFactors::InSum {
        return Ok(false);
    }
    if let Some(own) = sum.own() {
        let is_fixed = own.epsilon.is_none() && of_edges.norm == Norm::Right;
        if is_fixed && direction == Direction::Backward {
            balance(program, number);
        }
        return Ok(false);
    }
    if !are_roots || sum.positive == Some(x) {
        return Ok(false);
    }
    let mut rows = RowFactors {
        edges,
        end: direction.read(),
        balanced: false,
    };
    let is_mutual = sum.is_mutual;
    if let Some((writer, end)) = own_writer(program, number)
        && let Operator::Matmul(product) = &mut program.nodes[writer].operator
        && product.is_plain()
    {
        rows.end = end;
        product.rows = Some(rows);
        set_scaled(program, number, x);
        return Ok(false);
    }
    // Quantized values of the own rows of a rank have the factors in them.
    if is_mutual {
        return Ok(false);
    }
    if direction == Direction::Forward || !can_be_scaled(program, number, x) {
        return Ok(false);
    }
    let scaled = program.node(Operator::ActivateGradient(ActivateGradient {
        d: x,
        relu: None,
        drop: None,
        rows: Some(rows),
    }))?;
    set_scaled(program, number, scaled.results[0]);
    program.nodes.insert(number, scaled);
    Ok(true)
}

/// The gradient of a mean that adds own rows: the writer of its operand multiplies the rows by whole degrees' reciprocals, balanced by
/// a power of two, so that the sum looks none up. What is added is divided by them again.
fn balance(program: &mut Program, number: usize) {
    let Operator::Aggregate(sum) = &program.nodes[number].operator else {
        return;
    };
    let Some((writer, end)) = own_writer(program, number) else {
        return;
    };
    let rows = RowFactors {
        edges: sum.edges,
        end,
        balanced: true,
    };
    match &mut program.nodes[writer].operator {
        Operator::Matmul(product) if product.is_plain() => product.rows = Some(rows),
        Operator::NormalizeGradient(op) if op.rows.is_none() => op.rows = Some(rows),
        _ => return,
    }
    if let Operator::Aggregate(sum) = &mut program.nodes[number].operator {
        sum.read_factors = ReadFactors::Balanced;
    }
}

/// The operator that writes what the sum `number` alone reads, and the end of the edges that its rows are at. Over edges that go both ways
/// it may write own rows, which ranks exchange: as sources they have the factors that they have as destinations.
fn own_writer(program: &Program, number: usize) -> Option<(usize, End)> {
    let Operator::Aggregate(sum) = &program.nodes[number].operator else {
        return None;
    };
    let alone = |x: Value, reader: usize| {
        let is_alone = program.only_reader(x) == Some(reader);
        program.writer(x).filter(|_| is_alone)
    };
    let writer = alone(sum.x, number)?;
    match program.nodes[writer].operator {
        Operator::Extend { x, .. } if program.edges[sum.edges.0].is_mutual => {
            alone(x, writer).map(|writer| (writer, End::Destinations))
        }
        _ => Some((writer, sum.direction.read())),
    }
}

fn set_scaled(program: &mut Program, number: usize, x: Value) {
    if let Operator::Aggregate(sum) = &mut program.nodes[number].operator {
        sum.x = x;
        sum.read_factors = ReadFactors::InOperand;
    }
}

/// Whether a gradient is read by this aggregation and, before it, by sums of columns alone.
fn can_be_scaled(program: &Program, number: usize, x: Value) -> bool {
    let is_gradient = match program.values[x.0].origin {
        Origin::Seed => true,
        Origin::Operator => program
            .writer(x)
            .is_some_and(|writer| writer >= program.forward),
        _ => false,
    };
    let mut readers = program.readers(x).filter(|&reader| reader != number);
    let is_sum = |reader: usize| {
        reader < number && matches!(program.nodes[reader].operator, Operator::ColumnSums { .. })
    };
    is_gradient && !program.kept.contains(&x) && readers.all(is_sum)
}
