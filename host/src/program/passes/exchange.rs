//! What ranks exchange of a layer's rows: its input or a product of it.

use super::Pass;
use crate::error::Error;
use crate::ops::Form;
use crate::program::list::{Program, refuse};
use crate::program::operator::Operator;
use crate::program::value::{Edges, Rows, Value};

/// The pass. It comes before [`differentiate`](crate::program::differentiate), so that gradients are exchanged where rows are. Own rows of
/// extended rows are those that were extended. A product is exchanged where it is no wider than its input, so that no rank computes it of the rows of others.
#[derive(Clone, Copy, Debug, Default)]
pub struct Exchange {
    /// Whether messages are [quantized](super::Quantize) later. Over edges that
    /// [go both ways](crate::program::Builder::edges_go_both_ways) ranks then exchange what a sum reads, however wide it is, as its quantized
    /// values are narrow.
    pub of_messages: bool,
}

impl Pass for Exchange {
    fn name(&self) -> &'static str {
        "exchange"
    }

    fn run(&self, program: &mut Program) -> Result<(), Error> {
        if program.seed.is_some() {
            return refuse(
                "what ranks exchange is chosen before the program is differentiated".into(),
            );
        }
        read_own_rows(program);
        for number in 0..program.nodes.len() {
            exchange_product(program, number, self.of_messages)?;
        }
        // Products whose own rows are read are exchanged by now.
        read_own_rows(program);
        program.prune();
        program.forward = program.nodes.len();
        Ok(())
    }
}

/// Own rows of extended rows are those that were extended.
pub(super) fn read_own_rows(program: &mut Program) {
    let mut number = 0;
    while number < program.nodes.len() {
        match own_rows(program, number) {
            Some((result, x)) => {
                program.remove(number);
                for node in &mut program.nodes[number..] {
                    node.operator.rename(result, x);
                }
            }
            None => number += 1,
        }
    }
}

/// What an operator extends.
pub(super) fn extended(program: &Program, value: Value) -> Option<(usize, Edges, u32, Value)> {
    let number = program.writer(value)?;
    match program.nodes[number].operator {
        Operator::Extend { edges, layer, x } => Some((number, edges, layer, x)),
        _ => None,
    }
}

/// Own rows of extended rows, and what was extended.
fn own_rows(program: &Program, number: usize) -> Option<(Value, Value)> {
    let Operator::OwnRows { edges, x } = program.nodes[number].operator else {
        return None;
    };
    let result = program.nodes[number].results[0];
    let (_, of, _, own) = extended(program, x)?;
    let is_outside = program.output == Some(result) || program.kept.contains(&result);
    (of == edges && !is_outside).then_some((result, own))
}

/// Whether the operator is a sum over edges that go both ways, which reads `value` alone.
fn is_mutual_sum(program: &Program, number: usize, value: Value) -> bool {
    match &program.nodes[number].operator {
        Operator::Aggregate(op) => op.x == value && program.edges[op.edges.0].is_mutual,
        _ => false,
    }
}

/// `matmul(extend(x), w)` becomes `extend(matmul(x, w))` where that is exchanged better and no other operator reads the extended rows.
fn exchange_product(program: &mut Program, number: usize, of_messages: bool) -> Result<(), Error> {
    let Operator::Matmul(product) = program.nodes[number].operator.clone() else {
        return Ok(());
    };
    let Some((extend, edges, layer, x)) = extended(program, product.a) else {
        return Ok(());
    };
    let columns = |value: Value| program.values[value.0].shape.columns;
    let result = program.nodes[number].results[0];
    let is_weight = matches!(program.values[product.b.0].shape.rows, Rows::Fixed(_));
    let reader = program.only_reader(result).filter(|_| of_messages);
    let is_better = match reader.is_some_and(|it| is_mutual_sum(program, it, result)) {
        true => true,
        false => columns(result) <= columns(product.a),
    };
    let alone = program.only_reader(product.a) == Some(number);
    if !(product.is_plain() && product.form == Form::NN && is_weight && is_better && alone) {
        return Ok(());
    }
    let mut of_own = product;
    of_own.a = x;
    let node = program.node(Operator::Matmul(of_own))?;
    let own = node.results[0];
    program.nodes[extend] = node;
    // The product comes where its rows were extended, behind the weight's own operators.
    let at = program.nodes[extend].operator.operands();
    let last = at.iter().filter_map(|value| program.writer(*value)).max();
    if last.is_some_and(|last| last > extend) {
        let node = program.nodes.remove(extend);
        program.nodes.insert(number - 1, node);
    }
    program.nodes[number].operator = Operator::Extend {
        edges,
        layer,
        x: own,
    };
    program.renew_scratch(number);
    Ok(())
}
