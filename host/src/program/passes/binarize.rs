//! Signs as bits, where kernels read those.
//!
//! A formula multiplies and sums signs as elements. In training sums over neighbours read bits. An evaluation multiplies bits as well, and
//! passes signs from layer to layer where nothing else reads a layer's output (BitGNN, §3.3).

use super::Pass;
use crate::error::Error;
use crate::nn::rounds_by_default;
use crate::ops::{Form, Nonlinearity};
use crate::program::list::Program;
use crate::program::operator::{
    Activate, Aggregate, AggregateSigns, AggregateSignsMatmul, BinaryMatmul, Direction, End,
    Matmul, Operator,
};
use crate::program::value::Value;

/// The pass. Of a program for evaluation it comes behind [`Evaluate`](super::Evaluate), and before
/// [`Fuse`](super::fuse::Fuse) in any case.
#[derive(Clone, Copy, Debug)]
pub struct Binarize;

impl Pass for Binarize {
    fn name(&self) -> &'static str {
        "binarize"
    }

    fn run(&self, program: &mut Program) -> Result<(), Error> {
        row_factors(program);
        sums(program)?;
        if program.seed.is_some() {
            return Ok(());
        }
        let mut number = 0;
        while number < program.nodes.len() {
            product(program, &mut number)?;
            signs(program, &mut number)?;
            number += 1;
        }
        additions(program);
        sums_and_products(program)?;
        biases(program);
        weights(program);
        prune(program);
        features(program);
        passed(program);
        prune(program);
        program.move_weights_first();
        Ok(())
    }
}

/// Factors of the rows of a product go into the product.
fn row_factors(program: &mut Program) {
    let mut number = 0;
    while number < program.nodes.len() {
        let scaled = match &program.nodes[number].operator {
            Operator::ScaleRows { x, factors } => Some((*x, *factors)),
            _ => None,
        };
        let writer = scaled.and_then(|(x, _)| program.writer(x));
        let (Some((x, factors)), Some(writer)) = (scaled, writer) else {
            number += 1;
            continue;
        };
        let is_there = program.writer(factors).is_some_and(|it| it < writer);
        let is_own = program.only_reader(x) == Some(number) && is_there;
        match &mut program.nodes[writer].operator {
            Operator::Matmul(product) if is_own && product.is_plain() => {
                product.row_scale = Some(factors);
                let scaled = program.remove(number);
                program.nodes[writer].results = scaled.results;
            }
            _ => number += 1,
        }
    }
}

/// Sums of signs over neighbours read bits.
fn sums(program: &mut Program) -> Result<(), Error> {
    let mut number = 0;
    while number < program.nodes.len() {
        if let Operator::Aggregate(sum) = &program.nodes[number].operator
            && sums_bits(program, sum)
            && let Some((writer, of)) = sign(program, sum.x)
        {
            let (edges, factor) = (sum.edges, sum.factor);
            let signs = pack(program, &mut number, of)?;
            program.nodes[number].operator = Operator::AggregateSigns(AggregateSigns {
                edges,
                signs,
                factor,
                packed: false,
            });
            let sign = program.nodes[writer].results[0];
            if program.readers(sign).next().is_none() && !program.kept.contains(&sign) {
                program.remove(writer);
                number -= 1;
            }
        }
        number += 1;
    }
    Ok(())
}

/// Whether there is a kernel for a sum that reads bits: one that sums numbers of edges, with factors of destinations alone.
fn sums_bits(program: &Program, sum: &Aggregate) -> bool {
    let edges = &program.edges[sum.edges.0];
    sum.direction == Direction::Forward
        && sum.is_plain()
        && sum.codes.is_none()
        && rounds_by_default(sum.policy)
        && !edges.has_factors(End::Sources)
        && !edges.of_rank
        && sum.factor > 0.0
}

/// The operator that writes a matrix of signs, and the matrix that they are of.
fn sign(program: &Program, value: Value) -> Option<(usize, Value)> {
    let writer = program.writer(value)?;
    match program.nodes[writer].operator {
        Operator::SignOf { sums, .. } => Some((writer, sums)),
        Operator::Nonlinearity {
            function: Nonlinearity::Sign,
            x,
        } => Some((writer, x)),
        _ => None,
    }
}

/// The bits of a matrix, which are there or are written before operator `number`.
fn pack(program: &mut Program, number: &mut usize, x: Value) -> Result<Value, Error> {
    let is = |operator: &Operator| matches!(operator, Operator::Pack { x: of, .. } if *of == x);
    let mut before = program.nodes[..*number].iter();
    if let Some(node) = before.find(|node| is(&node.operator)) {
        return Ok(node.results[0]);
    }
    let standardized = false;
    let node = program.node(Operator::Pack { x, standardized })?;
    let bits = node.results[0];
    program.nodes.insert(*number, node);
    program.forward += usize::from(*number < program.forward);
    *number += 1;
    Ok(bits)
}

/// What a product of signs is of: the matrix of the rows, the weight, and its magnitudes.
struct Factors {
    x: Value,
    weight: Value,
    magnitudes: Value,
}

/// The factors of a product of signs with a weight: with the `result` of [`Operator::BinarizeWeight`].
fn factors(program: &Program, product: &Matmul, result: usize) -> Option<Factors> {
    let plain = Matmul {
        row_scale: None,
        ..product.clone()
    };
    if product.form != Form::NT || !plain.is_plain() || product.alpha != 1.0 {
        return None;
    }
    let [a, b] = [product.a, product.b].map(|of| program.writer(of).map(|it| &program.nodes[it]));
    let (a, b) = (a?, b?);
    match (&a.operator, &b.operator) {
        (Operator::Binarize { x }, Operator::BinarizeWeight { weight })
            if a.results[0] == product.a && b.results[result] == product.b =>
        {
            Some(Factors {
                x: *x,
                weight: *weight,
                magnitudes: b.results[1],
            })
        }
        _ => None,
    }
}

/// A product of signs with signs times magnitudes is one of bits.
fn product(program: &mut Program, number: &mut usize) -> Result<(), Error> {
    let Operator::Matmul(product) = &program.nodes[*number].operator else {
        return Ok(());
    };
    let (Some(of), rows) = (factors(program, product, 0), product.row_scale) else {
        return Ok(());
    };
    let (a, b) = (
        pack(program, number, of.x)?,
        pack(program, number, of.weight)?,
    );
    program.nodes[*number].operator = Operator::BinaryMatmul(BinaryMatmul {
        a,
        b,
        rows,
        columns: Some(of.magnitudes),
        sum: None,
        share: None,
    });
    Ok(())
}

/// Signs of sums of signs are signs of a product of bits, packed or added to another matrix.
fn signs(program: &mut Program, number: &mut usize) -> Result<(), Error> {
    let of_sums = |sums: Value| match &program.nodes[program.writer(sums)?].operator {
        Operator::Matmul(product) => factors(program, product, 2),
        _ => None,
    };
    let (of, added) = match &program.nodes[*number].operator {
        Operator::Pack { x, .. } => (of_sums(*x), None),
        Operator::Combine { terms } => match terms[..] {
            [(1.0, sum), (share, signs)] if program.only_reader(signs) == Some(*number) => {
                let found = sign(program, signs);
                (found.and_then(|(_, of)| of_sums(of)), Some((sum, share)))
            }
            _ => return Ok(()),
        },
        _ => return Ok(()),
    };
    let Some(of) = of else {
        return Ok(());
    };
    let (a, b) = (
        pack(program, number, of.x)?,
        pack(program, number, of.weight)?,
    );
    program.nodes[*number].operator = match added {
        None => Operator::BinarySigns { a, b },
        Some((sum, share)) => Operator::BinaryMatmul(BinaryMatmul {
            a,
            b,
            rows: None,
            columns: None,
            sum: Some(sum),
            share: Some(share),
        }),
    };
    Ok(())
}

/// A product of bits is added where it is computed.
fn additions(program: &mut Program) {
    let mut number = 0;
    while number < program.nodes.len() {
        let found = match &program.nodes[number].operator {
            Operator::Combine { terms } => match terms[..] {
                [(1.0, sum), (1.0, product)] => own_product(program, number, product)
                    .map(|(writer, product)| (writer, product, sum)),
                _ => None,
            },
            _ => None,
        };
        match found {
            Some((writer, product, sum)) => {
                program.nodes[number].operator = Operator::BinaryMatmul(BinaryMatmul {
                    sum: Some(sum),
                    ..product
                });
                program.remove(writer);
            }
            None => number += 1,
        }
    }
}

/// A product of bits that operator `number` alone reads.
fn own_product(program: &Program, number: usize, value: Value) -> Option<(usize, BinaryMatmul)> {
    let writer = program.writer(value)?;
    match program.nodes[writer].operator {
        Operator::BinaryMatmul(product)
            if product.sum.is_none() && program.only_reader(value) == Some(number) =>
        {
            Some((writer, product))
        }
        _ => None,
    }
}

/// A product of sums of signs makes them some rows at a time.
fn sums_and_products(program: &mut Program) -> Result<(), Error> {
    let mut number = 0;
    while number < program.nodes.len() {
        let Some((sum, weight)) = own_sum(program, number) else {
            number += 1;
            continue;
        };
        let Operator::AggregateSigns(of) = program.nodes[sum].operator else {
            break;
        };
        let mut product = AggregateSignsMatmul {
            edges: of.edges,
            signs: of.signs,
            weight,
            bias: None,
        };
        let mut result = program.nodes[number].results[0];
        if let Some(reader) = program.only_reader(result)
            && let Operator::Activate(Activate {
                add: None,
                bias: Some(bias),
                relu: false,
                drop: None,
                ..
            }) = program.nodes[reader].operator
        {
            product.bias = Some(bias);
            result = program.remove(reader).results[0];
        }
        let mut node = program.node(Operator::AggregateSignsMatmul(product))?;
        node.results = vec![result];
        program.nodes[number] = node;
        program.remove(sum);
    }
    Ok(())
}

/// A bias behind a product of sums and another product is added with the sums.
fn biases(program: &mut Program) {
    let mut number = 0;
    while number < program.nodes.len() {
        match biased_sum(program, number) {
            Some((sum, product, bias)) => {
                if let Operator::AggregateSignsMatmul(of) = &mut program.nodes[sum].operator {
                    of.bias = Some(bias);
                }
                program.nodes[product].results = program.remove(number).results;
            }
            None => number += 1,
        }
    }
}

/// The product of sums that a product is added to, that product, and the bias that operator `number` adds to both.
fn biased_sum(program: &Program, number: usize) -> Option<(usize, usize, Value)> {
    let Operator::Activate(Activate {
        x,
        add: None,
        bias: Some(bias),
        relu: false,
        drop: None,
    }) = program.nodes[number].operator
    else {
        return None;
    };
    let product = program.writer(x)?;
    let Operator::BinaryMatmul(BinaryMatmul {
        sum: Some(sum),
        share: None,
        ..
    }) = program.nodes[product].operator
    else {
        return None;
    };
    let writer = program.writer(sum)?;
    let is_free = matches!(
        &program.nodes[writer].operator,
        Operator::AggregateSignsMatmul(of) if of.bias.is_none()
    );
    let are_own =
        program.only_reader(x) == Some(number) && program.only_reader(sum) == Some(product);
    (is_free && are_own).then_some((writer, product, bias))
}

/// The sum of signs that a plain product alone reads, and the weight of the product.
fn own_sum(program: &Program, number: usize) -> Option<(usize, Value)> {
    let Operator::Matmul(product) = &program.nodes[number].operator else {
        return None;
    };
    let sum = program.writer(product.a)?;
    let is_sum = matches!(
        &program.nodes[sum].operator,
        Operator::AggregateSigns(of) if of.factor == 1.0 && !of.packed
    );
    let is_product = product.is_plain() && product.form == Form::NT && product.alpha == 1.0;
    let is_own = program.only_reader(product.a) == Some(number);
    (is_sum && is_product && is_own).then_some((sum, product.b))
}

/// Of a weight whose signs are read as bits alone nothing but magnitudes are made.
fn weights(program: &mut Program) {
    for number in 0..program.nodes.len() {
        let node = &program.nodes[number];
        if let Operator::BinarizeWeight { weight } = node.operator
            && let [scaled, magnitudes, signs] = node.results[..]
            && program.readers(scaled).next().is_none()
        {
            let node = &mut program.nodes[number];
            node.operator = Operator::Binarize { x: weight };
            node.results = vec![signs, magnitudes];
        }
    }
}

/// Features are packed from where they lie, and not standardized first.
fn features(program: &mut Program) {
    for number in 0..program.nodes.len() {
        if let Operator::Pack { x, .. } = program.nodes[number].operator
            && let Some(writer) = program.writer(x)
            && let Operator::Standardize { x, .. } = program.nodes[writer].operator
        {
            let standardized = true;
            program.nodes[number].operator = Operator::Pack { x, standardized };
        }
    }
}

/// Sums of which signs alone are read are written as bits.
fn passed(program: &mut Program) {
    let mut number = 0;
    while number < program.nodes.len() {
        let sum = program.nodes[number].results[0];
        let reader = program.only_reader(sum);
        let packs = |reader: &usize| {
            matches!(
                program.nodes[*reader].operator,
                Operator::Pack {
                    standardized: false,
                    ..
                }
            )
        };
        if let (Operator::AggregateSigns(of), Some(reader)) =
            (&program.nodes[number].operator, reader.filter(packs))
        {
            let packed = AggregateSigns {
                packed: true,
                factor: 1.0,
                ..*of
            };
            program.nodes[number].operator = Operator::AggregateSigns(packed);
            program.nodes[number].results = program.remove(reader).results;
        }
        number += 1;
    }
}

/// Removes what nothing reads.
fn prune(program: &mut Program) {
    program.prune();
    program.forward = program.nodes.len();
}
