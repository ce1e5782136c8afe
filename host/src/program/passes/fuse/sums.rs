//! Sums of matrices: what one of their writers can add itself.

use crate::error::Error;
use crate::ops::Form;
use crate::program::list::Program;
use crate::program::operator::{Addend, Matmul, Operator};
use crate::program::value::{Format, Value};

/// The terms of a sum.
fn terms(program: &Program, number: usize) -> Option<Vec<(f32, Value)>> {
    match &program.nodes[number].operator {
        Operator::Combine { terms } => Some(terms.clone()),
        _ => None,
    }
}

/// The operator that writes `value`, where the operator `number` alone reads it.
fn own_writer(program: &Program, number: usize, value: Value) -> Option<usize> {
    let writer = program.writer(value)?;
    let is_in_pass = (writer < program.forward) == (number < program.forward);
    (is_in_pass && program.only_reader(value) == Some(number)).then_some(writer)
}

/// A product that nothing follows, which `number` alone reads.
fn own_product(program: &Program, number: usize, value: Value) -> Option<(usize, &Matmul)> {
    let writer = own_writer(program, number, value)?;
    match &program.nodes[writer].operator {
        Operator::Matmul(product) if product.is_plain() => Some((writer, product)),
        _ => None,
    }
}

/// A factor of a term goes into the product or the aggregation that writes it.
pub(super) fn factors(program: &mut Program) {
    for number in 0..program.nodes.len() {
        let Some(mut terms) = terms(program, number) else {
            continue;
        };
        for (factor, value) in &mut terms {
            if let Some(writer) = own_writer(program, number, *value).filter(|_| *factor != 1.0) {
                match &mut program.nodes[writer].operator {
                    Operator::Matmul(op) if op.is_plain() => op.alpha *= *factor,
                    Operator::Aggregate(op) if op.is_plain() => op.factor *= *factor,
                    _ => continue,
                }
                *factor = 1.0;
            }
        }
        program.nodes[number].operator = Operator::Combine { terms };
    }
}

/// A sum of two products of the form `a · b` is one product of two pairs, rounded once.
pub(super) fn two_products(program: &mut Program) {
    let mut number = 0;
    while number < program.nodes.len() {
        let Some((writers, product)) = with_second_pair(program, number) else {
            number += 1;
            continue;
        };
        program.nodes[number].operator = Operator::Matmul(product);
        for writer in writers {
            program.remove(writer);
        }
        number -= 1;
    }
}

/// The writers of both terms, the later one first, and the product.
fn with_second_pair(program: &Program, number: usize) -> Option<([usize; 2], Matmul)> {
    let terms = terms(program, number)?;
    let [(1.0, first), (1.0, second)] = terms[..] else {
        return None;
    };
    let (writer, product) = own_product(program, number, first)?;
    let (other, pair) = own_product(program, number, second)?;
    let are_plain = [product, pair]
        .iter()
        .all(|it| it.form == Form::NN && it.alpha == 1.0);
    let are_elements = [product.a, pair.a]
        .iter()
        .all(|it| program.values[it.0].format == Format::Element);
    (are_plain && are_elements).then(|| {
        let product = Matmul {
            second: Some([pair.a, pair.b]),
            ..product.clone()
        };
        ([writer.max(other), writer.min(other)], product)
    })
}

/// `c + a · bᵀ` is added by the product, of gradients: it comes where the sum was, so that its result lies nowhere until then. Of
/// the destinations of a block it adds to their rows alone, and zeros for the other rows are never written.
pub(super) fn into_products(program: &mut Program) {
    let mut number = 0;
    while number < program.nodes.len() {
        let Some((writers, product)) = with_sum(program, number) else {
            number += 1;
            continue;
        };
        program.nodes[number].operator = Operator::Matmul(product);
        // The first is the last one of the list.
        for writer in writers {
            program.remove(writer);
            number -= 1;
        }
        number += 1;
    }
}

/// The operators whose place the product takes, and the product.
fn with_sum(program: &Program, number: usize) -> Option<(Vec<usize>, Matmul)> {
    let terms = terms(program, number)?;
    let [(1.0, first), (1.0, second)] = terms[..] else {
        return None;
    };
    let orders = [(first, second), (second, first)];
    let mut of_own = orders.into_iter();
    let own = of_own.find_map(|(value, sum)| own_rows_with_sum(program, number, value, sum));
    own.or_else(|| {
        let mut of_all = orders.into_iter();
        of_all.find_map(|(value, sum)| {
            let (writer, product) = own_product(program, number, value)?;
            let product = added(program, product, sum)?;
            Some((vec![writer], product))
        })
    })
}

fn own_rows_with_sum(
    program: &Program,
    number: usize,
    value: Value,
    sum: Value,
) -> Option<(Vec<usize>, Matmul)> {
    let spread = own_writer(program, number, value)?;
    let Operator::OwnRowsGradient { edges, d } = program.nodes[spread].operator else {
        return None;
    };
    let (writer, product) = own_product(program, spread, d)?;
    let product = Matmul {
        adds_to_own: Some(edges),
        ..added(program, product, sum)?
    };
    Some((vec![spread, writer], product))
}

/// A product of elements of the form `a · bᵀ` that is added to `sum`.
fn added(program: &Program, product: &Matmul, sum: Value) -> Option<Matmul> {
    let fits = product.form == Form::NT && program.values[sum.0].format == Format::Element;
    fits.then(|| Matmul {
        sum: Some(sum),
        ..product.clone()
    })
}

/// A term is added by an aggregation where that writes its rows. Of several aggregations each adds what those before it have.
///
/// A sum of one aggregation and one product that it alone reads stays where an activation is behind it, which adds both: the product
/// would have to come before the aggregation and be stored for its length.
///
/// # Errors
/// Those of the shape rule.
pub(super) fn into_aggregations(program: &mut Program) -> Result<(), Error> {
    let mut number = 0;
    while number < program.nodes.len() {
        let Some((writer, index)) = own_aggregation(program, number) else {
            number += 1;
            continue;
        };
        let mut rest = terms(program, number).unwrap_or_default();
        rest.remove(index);
        let addend = match rest[..] {
            [term] => term,
            _ => {
                let sum = program.node(Operator::Combine { terms: rest })?;
                let value = sum.results[0];
                program.nodes.insert(number, sum);
                program.forward += usize::from(number < program.forward);
                (1.0, value)
            }
        };
        // Where a sum of the rest was put in, it is this number's now, and has its turn next.
        let at = match addend.1 == program.nodes[number].results[0] {
            true => number + 1,
            false => number,
        };
        let Operator::Aggregate(mut sum) = program.nodes[writer].operator.clone() else {
            number += 1;
            continue;
        };
        sum.addend = Some(Addend {
            factor: addend.0,
            value: addend.1,
            epsilon: None,
        });
        program.nodes[at].operator = Operator::Aggregate(sum);
        program.remove(writer);
        number -= 1;
    }
    Ok(())
}

/// The last term of a sum of several that an aggregation writes for it alone, where the aggregation can add the others.
fn own_aggregation(program: &Program, number: usize) -> Option<(usize, usize)> {
    let terms = terms(program, number)?;
    let is_product = |value: Value| own_product(program, number, value).is_some();
    let is_pair = terms.len() == 2 && terms.iter().any(|(_, value)| is_product(*value));
    let result = program.nodes[number].results[0];
    let is_activated = program
        .only_reader(result)
        .is_some_and(|reader| matches!(program.nodes[reader].operator, Operator::Activate(_)));
    if terms.len() < 2 || (is_pair && is_activated) {
        return None;
    }
    let last = terms
        .iter()
        .enumerate()
        .rev()
        .find_map(|(index, (factor, value))| {
            let writer = own_writer(program, number, *value)?;
            match &program.nodes[writer].operator {
                Operator::Aggregate(sum) if sum.is_plain() && *factor == 1.0 => {
                    Some((writer, index))
                }
                _ => None,
            }
        });
    // The same value twice is two terms of one writer.
    let (writer, index) = last?;
    let value = terms[index].1;
    (terms.iter().filter(|(_, it)| *it == value).count() == 1).then_some((writer, index))
}
