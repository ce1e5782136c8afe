//! Messages of 8 bits: sums over neighbours read quantized values in training, which are half as long as those of half precision.

use super::Pass;
use super::mutual::exchanged_for_sum;
use crate::error::Error;
use crate::nn::rounds_by_default;
use crate::ops::{CodeFormat, Form};
use crate::program::list::{Program, refuse};
use crate::program::operator::{
    ActivateGradient, Coding, End, Node, Operator, RankPart, ReadFactors, RowFactors,
};
use crate::program::value::Value;
use crate::tensor::Precision;

/// Tags the random numbers of rounding, so that dropout shares none with them.
const STREAM: u32 = 0x726f_756e;

/// The pass. It comes after [`Fuse`](super::fuse::Fuse). What a sum of the forward pass reads is rounded to the nearest, and gradients
/// by chance, which keeps them unbiased. Factors of a degree norm that the sum would look up are in the values. Ranks exchange the values
/// and not what they are of, where a sum alone reads that and edges [go both ways](crate::program::Builder::edges_go_both_ways).
#[derive(Clone, Copy, Debug)]
pub struct Quantize {
    /// The format of a value.
    pub format: CodeFormat,
}

impl Pass for Quantize {
    fn name(&self) -> &'static str {
        "quantize"
    }

    fn run(&self, program: &mut Program) -> Result<(), Error> {
        if program.seed.is_none() {
            return refuse(
                "messages are quantized in training alone; differentiate the program first".into(),
            );
        }
        if program.precision == Precision::Float {
            return refuse("messages of 8 bits are summed in half or bfloat16, and this program computes in float; take one of those, or leave them as they are".into());
        }
        let sums_otherwise = |node: &Node| match &node.operator {
            Operator::Aggregate(op) => !rounds_by_default(op.policy),
            _ => false,
        };
        if program.nodes.iter().any(sums_otherwise) {
            return refuse("messages of 8 bits are summed in one way; leave the policy's scaling, sums, write and load as they are".into());
        }
        let attends = |node: &Node| match &node.operator {
            Operator::AdditiveAttention(_) => Some("the attention of GATv2"),
            Operator::DotAttention(_) => Some("attention by dot products"),
            Operator::MessageSums(_) => Some("a sum of messages of both ends"),
            Operator::ReduceMessages(_) => Some("a maximum, softmax or deviation of messages"),
            _ => None,
        };
        if let Some(operator) = program.nodes.iter().find_map(attends) {
            return refuse(format!(
                "{operator} has no sums of 8-bit values; leave messages as they are"
            ));
        }
        let mut number = 0;
        while number < program.nodes.len() {
            let before = program.nodes.len();
            self.quantize(program, number)?;
            // What was put in or taken out is before it.
            number = (number + program.nodes.len() + 1) - before;
        }
        into_writers(program);
        Ok(())
    }
}

impl Quantize {
    /// Has the operator `number` read quantized values, where it sums over neighbours.
    fn quantize(self, program: &mut Program, number: usize) -> Result<(), Error> {
        let (x, layer, edges, rows) = match &program.nodes[number].operator {
            Operator::Aggregate(op) if program.edges[op.edges.0].pools => return Ok(()),
            Operator::Aggregate(op) => {
                let edges = &program.edges[op.edges.0];
                let end = op.direction.read();
                let in_sum = op.read_factors == ReadFactors::InSum && edges.has_factors(end);
                let rows = in_sum.then_some(RowFactors {
                    edges: op.edges,
                    end,
                    balanced: false,
                });
                (op.x, op.layer, op.edges, rows)
            }
            Operator::Attention(op) => (op.h, op.layer, op.edges, None),
            Operator::AttentionGradient(op) => (op.d, op.of.layer, op.of.edges, None),
            _ => return Ok(()),
        };
        let is_gradient = number >= program.forward;
        let (mut number, mut source) = (number, x);
        let mut coding = Coding {
            rows,
            format: self.format,
            layer,
            stream: is_gradient.then(|| STREAM.wrapping_add(layer)),
            alone: false,
            of_rank: program.edges[edges.0].of_rank.then_some(RankPart {
                edges,
                exchanged: false,
            }),
        };
        if let Some((extend, own)) = exchanged_for_sum(program, number) {
            coding.of_rank = Some(RankPart {
                edges,
                exchanged: true,
            });
            // Own rows have the same factors at both ends of edges that go both ways.
            coding.rows = coding.rows.map(|rows| RowFactors {
                end: End::Destinations,
                ..rows
            });
            program.nodes[number].operator.rename(x, own);
            program.remove(extend);
            (number, source) = (number - 1, own);
        }
        // Factors that rows have a pass of their own for cost nothing in the values.
        if let Some((writer, d, rows)) = scaled_rows(program, number, source) {
            (source, coding.rows) = (d, Some(rows));
            program.remove(writer);
            number -= 1;
        }
        let node = program.node(Operator::Quantize { x: source, coding })?;
        let codes = node.results[0];
        match &mut program.nodes[number].operator {
            Operator::Aggregate(op) => {
                if op.read_factors == ReadFactors::InSum {
                    op.read_factors = ReadFactors::InOperand;
                }
                (op.x, op.codes) = (source, Some(codes));
            }
            Operator::Attention(op) => op.codes = Some(codes),
            Operator::AttentionGradient(op) => op.codes = Some(codes),
            _ => {}
        }
        program.nodes.insert(number, node);
        program.forward += usize::from(number < program.forward);
        Ok(())
    }
}

/// Quantized values are made by the product or the normalisation that writes the matrix, where one of them does.
fn into_writers(program: &mut Program) {
    let mut number = 0;
    while number < program.nodes.len() {
        let Some((writer, coding)) = writer(program, number) else {
            number += 1;
            continue;
        };
        let codes = program.nodes[number].results[0];
        match &mut program.nodes[writer].operator {
            Operator::Matmul(op) => op.coding = Some(coding),
            Operator::NormalizeGradient(op) => op.coding = Some(coding),
            _ => {}
        }
        program.nodes[writer].results.push(codes);
        let packed = std::mem::take(&mut program.nodes[number].scratch);
        program.nodes[writer].scratch.extend(packed);
        program.remove(number);
    }
}

fn writer(program: &Program, number: usize) -> Option<(usize, Coding)> {
    let Operator::Quantize { x, coding } = program.nodes[number].operator else {
        return None;
    };
    let writer = program.writer(x)?;
    let can = match &program.nodes[writer].operator {
        Operator::Matmul(op) => {
            let alone = op.second.is_none() && op.norm.is_none() && op.drop.is_none();
            op.form != Form::TN && alone && op.sum.is_none() && op.coding.is_none()
        }
        Operator::NormalizeGradient(op) => op.coding.is_none(),
        _ => false,
    };
    let is_in_pass = (writer < program.forward) == (number < program.forward);
    let alone = program.only_reader(x) == Some(number);
    let is_first = program.nodes[writer].results[0] == x;
    (can && is_in_pass && is_first).then_some((writer, Coding { alone, ..coding }))
}

/// The operator that does nothing but multiply the rows of a gradient, for the operator `number` alone; what it reads, and the factors.
fn scaled_rows(program: &Program, number: usize, x: Value) -> Option<(usize, Value, RowFactors)> {
    let writer = program.writer(x)?;
    let Operator::ActivateGradient(ActivateGradient {
        d,
        relu: None,
        drop: None,
        rows: Some(rows),
    }) = program.nodes[writer].operator
    else {
        return None;
    };
    (program.only_reader(x) == Some(number)).then_some((writer, d, rows))
}
