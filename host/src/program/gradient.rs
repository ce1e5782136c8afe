//! The backward list of a program: reverse-mode differentiation, an operator at a time.
//!
//! All gradients are linear in the gradient that they are of. So a factor is carried along next to each of them until a product
//! has it in its `alpha` or an aggregation in its `factor`. It costs an operator of its own only where two gradients are added. The
//! next product or aggregation takes it: carried further, the factors of many layers would multiply, and half has no such range.

use super::list::{Program, refuse};
use super::operator::{
    ActivateGradient, Addend, AdditiveGradient, Aggregate, Attention, AttentionGradient,
    DotAttentionGradient, EdgeTerms, GroupNorm, Matmul, MessageGradient, Node, NormalizeGradient,
    Operator, Own, ReduceMessages, ReduceMessagesGradient,
};
use super::value::{Constant, Description, Format, Origin, Rows, Value};
use crate::error::Error;
use crate::ops::{Form, Nonlinearity};
use crate::tensor::Precision;
use halfgnn_contract::{Format as Elements, matmul as contract};
use std::collections::{HashMap, HashSet};

/// A gradient, or a multiple of one: `factor · value`.
type Gradient = (f32, Value);

/// Adds the backward pass to a program: the gradient of each parameter that the output depends on, from that of the output,
/// [`Program::seed`].
///
/// Passes that change what is computed ([`Reorder`](super::passes::Reorder)) come before it, those that change how
/// ([`Fuse`](super::passes::fuse::Fuse)) after it, so that a fused operator needs no gradient of its own.
///
/// # Errors
/// [`Error::Unsupported`] where the program has a backward pass already, or no parameter.
pub fn differentiate(program: &mut Program) -> Result<(), Error> {
    let Some(output) = program.output else {
        return refuse("a program without an output has no gradient".into());
    };
    if program.seed.is_some() {
        return refuse("the program has a backward pass already".into());
    }
    let description = &program.values[output.0];
    let result = (description.shape, description.format);
    let seed = program.add_value("seed".into(), result, Origin::Seed);
    program.seed = Some(seed);
    let mut pass = Pass {
        depends: depends_on_parameters(program),
        pending: HashMap::from([(output, (1.0, seed))]),
        program,
    };
    if !pass.depends.contains(&output) {
        return refuse("the output depends on no parameter".into());
    }
    for number in (0..pass.program.forward).rev() {
        let node = pass.program.nodes[number].clone();
        if let Some(gradient) = pass.pending.remove(&node.results[0]) {
            pass.back_through(&node, gradient)?;
        }
    }
    for parameter in pass.program.parameters() {
        if let Some(gradient) = pass.pending.remove(&parameter) {
            pass.finish(parameter, gradient)?;
        }
    }
    program.check()
}

/// Values with a gradient that reaches a parameter.
fn depends_on_parameters(program: &Program) -> HashSet<Value> {
    let mut depends: HashSet<Value> = program.parameters().into_iter().collect();
    for node in &program.nodes {
        let mut operands = node.operator.operands().into_iter();
        if operands.any(|operand| depends.contains(&operand)) {
            depends.extend(&node.results);
        }
    }
    depends
}

/// That an operator is fused, or a gradient itself.
fn has_none(operator: &Operator) -> Result<(), Error> {
    refuse(format!(
        "{} has a gradient before it is fused alone, and this is fused or a gradient itself; differentiate first",
        operator.name()
    ))
}

struct Pass<'a> {
    program: &'a mut Program,
    depends: HashSet<Value>,
    /// What each value has of its gradient so far.
    pending: HashMap<Value, Gradient>,
}

impl Pass<'_> {
    /// The gradients of the operands of an operator, from that of its first result.
    fn back_through(&mut self, node: &Node, g: Gradient) -> Result<(), Error> {
        let (factor, d) = g;
        let y = node.results[0];
        match &node.operator {
            Operator::Matmul(op) => self.back_through_product(op, g),
            Operator::Aggregate(op) if op.is_linear() => self.back_through_sum(op, g),
            Operator::Activate(op) if op.add.is_none() => {
                let mut d = d;
                if op.relu || op.drop.is_some() {
                    d = self
                        .program
                        .push(Operator::ActivateGradient(ActivateGradient {
                            d,
                            relu: op.relu.then_some(y),
                            drop: op.drop,
                            rows: None,
                        }))?;
                }
                if let Some(bias) = op.bias {
                    let sums = self.program.push(Operator::ColumnSums { x: d })?;
                    self.add(bias, (factor, sums))?;
                }
                self.add(op.x, (factor, d))
            }
            // Factors of rows alone, by which its gradient is multiplied as well.
            Operator::ActivateGradient(op) if op.relu.is_none() && op.drop.is_none() => {
                if !self.depends.contains(&op.d) {
                    return Ok(());
                }
                let of = op.d;
                let operator = Operator::ActivateGradient(ActivateGradient { d, ..*op });
                let d = self.program.push(operator)?;
                self.add(of, (factor, d))
            }
            Operator::Nonlinearity { function, x } => {
                if !self.depends.contains(x) {
                    return Ok(());
                }
                let d = self.program.push(Operator::NonlinearityGradient {
                    function: *function,
                    of: if function.wants_input() { *x } else { y },
                    d,
                })?;
                self.add(*x, (factor, d))
            }
            Operator::Maximum { terms } => {
                let gradient = Operator::MaximumGradient {
                    terms: terms.clone(),
                    y,
                    d,
                };
                let results = self.program.push_all(gradient)?;
                self.add_all(terms, &results[1..], factor)
            }
            Operator::Combine { terms } => {
                for (term, value) in terms {
                    self.add(*value, (factor * term, d))?;
                }
                Ok(())
            }
            Operator::Multiply { x, y: other } => {
                for (of, by) in [(*x, *other), (*other, *x)] {
                    if self.depends.contains(&of) {
                        let d = self.program.push(Operator::Multiply { x: d, y: by })?;
                        self.add(of, (factor, d))?;
                    }
                }
                Ok(())
            }
            Operator::Scale {
                x,
                factor: by,
                plus_one,
            } => self.back_through_scale((*x, *by, *plus_one), g),
            Operator::Normalize { .. }
            | Operator::NormalizeRows { .. }
            | Operator::NormalizeGroups { .. } => self.back_through_norms(node, g),
            Operator::Attention(_)
            | Operator::AdditiveAttention(_)
            | Operator::DotAttention(_)
            | Operator::MessageSums(_)
            | Operator::ReduceMessages(_)
            | Operator::EdgeTerms(_)
            | Operator::HeadMean { .. } => self.back_through_heads(node, g),
            Operator::GroupMaximum { .. }
            | Operator::Extend { .. }
            | Operator::DropRows { .. }
            | Operator::OwnRows { .. }
            | Operator::Own(_) => self.back_through_moved(node, g),
            Operator::Binarize { .. }
            | Operator::SignOf { .. }
            | Operator::BinarizeWeight { .. }
            | Operator::ScaleRows { .. } => self.back_through_bits(node, g),
            other => has_none(other),
        }
    }

    /// Those of a product with a number.
    fn back_through_scale(
        &mut self,
        (x, by, plus_one): (Value, Value, bool),
        (factor, d): Gradient,
    ) -> Result<(), Error> {
        let dot = self.program.push(Operator::Dot {
            alpha: factor,
            x: d,
            y: x,
        })?;
        self.add(by, (1.0, dot))?;
        if !self.depends.contains(&x) {
            return Ok(());
        }
        let d = self.program.push(Operator::Scale {
            x: d,
            factor: by,
            plus_one,
        })?;
        self.add(x, (factor, d))
    }

    /// Those of a norm.
    fn back_through_norms(&mut self, node: &Node, g: Gradient) -> Result<(), Error> {
        let (factor, d) = g;
        match &node.operator {
            Operator::Normalize { norm, x } => {
                let writer = self.program.writer(norm.statistics);
                let (of_rank, layer) = match writer.map(|it| &self.program.nodes[it].operator) {
                    Some(Operator::BatchStatistics(op)) => (op.of_rank, op.layer),
                    _ => (None, 0),
                };
                let gradient = NormalizeGradient {
                    norm: *norm,
                    x: *x,
                    d,
                    rows: None,
                    coding: None,
                    of_rank,
                    layer,
                };
                let operator = Operator::NormalizeGradient(gradient);
                self.back_through_norm(operator, *x, &[norm.weight, norm.bias], factor)
            }
            Operator::NormalizeRows { x, weight, bias } => {
                let operator = Operator::NormalizeRowsGradient {
                    x: *x,
                    weight: *weight,
                    statistics: node.results[1],
                    d,
                };
                self.back_through_norm(operator, *x, &[*weight, *bias], factor)
            }
            Operator::NormalizeGroups { norm, groups, x } => {
                let operator = Operator::NormalizeGroupsGradient {
                    norm: *norm,
                    groups: *groups,
                    x: *x,
                    statistics: node.results[1],
                    d,
                };
                let scales = match norm {
                    GroupNorm::Pair => Vec::new(),
                    GroupNorm::Graph(of) => vec![of.weight, of.bias, of.mean_scale],
                };
                self.back_through_norm(operator, *x, &scales, factor)
            }
            other => has_none(other),
        }
    }

    /// Those of attention, its terms and its heads.
    fn back_through_heads(&mut self, node: &Node, g: Gradient) -> Result<(), Error> {
        let (factor, d) = g;
        let y = node.results[0];
        match &node.operator {
            Operator::Attention(op) => self.back_through_attention(op, node, g),
            Operator::AdditiveAttention(op) => {
                let results =
                    self.program
                        .push_all(Operator::AdditiveGradient(AdditiveGradient {
                            of: *op,
                            y,
                            d,
                        }))?;
                let operands = [op.sources, op.destinations, op.vector];
                self.add_all(&operands, &results, factor)
            }
            Operator::DotAttention(op) => {
                let gradient = DotAttentionGradient { of: *op, y, d };
                let operator = Operator::DotAttentionGradient(gradient);
                let results = self.program.push_all(operator)?;
                self.add_all(&[op.queries, op.keys, op.values], &results, factor)
            }
            Operator::MessageSums(op) => {
                let wanted =
                    |value: Option<Value>| value.is_some_and(|value| self.depends.contains(&value));
                let wanted = op.rows().map(|rows| rows.map(wanted));
                let gradient = MessageGradient { of: *op, wanted, d };
                let of: Vec<Value> = gradient.differentiated().collect();
                if of.is_empty() {
                    return Ok(());
                }
                let operator = Operator::MessageGradient(gradient);
                let results = self.program.push_all(operator)?;
                self.add_all(&of, &results, factor)
            }
            Operator::ReduceMessages(op) => self.back_through_reduction(op, &node.results, g),
            Operator::EdgeTerms(op) => {
                let gradient = Operator::EdgeTermsGradient {
                    of: *op,
                    zeros: node.results[1],
                    d,
                };
                let results = self.program.push_all(gradient)?;
                self.add_all(&[op.weight, op.vector], &results, factor)
            }
            Operator::HeadMean { heads, x, .. } => {
                let heads = *heads;
                let d = self.program.push(Operator::HeadMeanGradient { heads, d })?;
                self.add(*x, (factor, d))
            }
            other => has_none(other),
        }
    }

    /// Those of a reduction of messages with these results.
    fn back_through_reduction(
        &mut self,
        op: &ReduceMessages,
        results: &[Value],
        (factor, d): Gradient,
    ) -> Result<(), Error> {
        let wanted = |value: Option<Value>| value.is_some_and(|it| self.depends.contains(&it));
        let (y, share) = (results[0], results[1]);
        let mut gradient = ReduceMessagesGradient {
            of: *op,
            wanted: op.rows.each().map(wanted),
            d,
            y: op.reduction.reads_result().then_some(y),
            kept: results.get(2).copied(),
        };
        let of: Vec<Value> = gradient.differentiated().collect();
        if of.is_empty() {
            return Ok(());
        }
        gradient.d = self.program.push(Operator::Multiply { x: d, y: share })?;
        let operator = Operator::ReduceMessagesGradient(gradient);
        let results = self.program.push_all(operator)?;
        self.add_all(&of, &results, factor)
    }

    /// Those of an operator that moves or picks rows, or that is from outside.
    fn back_through_moved(&mut self, node: &Node, g: Gradient) -> Result<(), Error> {
        let (factor, d) = g;
        let y = node.results[0];
        match &node.operator {
            Operator::GroupMaximum { edges, x } => {
                let (edges, x) = (*edges, *x);
                if !self.depends.contains(&x) {
                    return Ok(());
                }
                let gradient = Operator::GroupMaximumGradient { edges, x, y, d };
                let d = self.program.push(gradient)?;
                self.add(x, (factor, d))
            }
            Operator::Extend { edges, layer, x } => {
                if !self.depends.contains(x) {
                    return Ok(());
                }
                let (edges, layer) = (*edges, *layer);
                let d = self.program.push(Operator::Fold { edges, layer, d })?;
                self.add(*x, (factor, d))
            }
            Operator::DropRows { edges, drop, x } => {
                if !self.depends.contains(x) {
                    return Ok(());
                }
                let (edges, drop) = (*edges, *drop);
                let d = self
                    .program
                    .push(Operator::DropRows { edges, drop, x: d })?;
                self.add(*x, (factor, d))
            }
            Operator::OwnRows { edges, x } => {
                if !self.depends.contains(x) {
                    return Ok(());
                }
                let d = self
                    .program
                    .push(Operator::OwnRowsGradient { edges: *edges, d })?;
                self.add(*x, (factor, d))
            }
            Operator::Own(own) => {
                for (number, &operand) in own.operands.iter().enumerate() {
                    let gradient = own.operator.gradient(number);
                    if let (true, Some(operator)) = (self.depends.contains(&operand), gradient) {
                        let mut operands = own.operands.clone();
                        operands.extend([y, d]);
                        let d = self
                            .program
                            .push(Operator::Own(Own { operator, operands }))?;
                        self.add(operand, (factor, d))?;
                    }
                }
                Ok(())
            }
            other => has_none(other),
        }
    }

    /// Those of an operator of networks of one bit.
    fn back_through_bits(&mut self, node: &Node, g: Gradient) -> Result<(), Error> {
        let (factor, d) = g;
        match &node.operator {
            Operator::Binarize { x } => self.back_through_sign(*x, g),
            Operator::SignOf { of, .. } => self.back_through_sign(*of, g),
            Operator::BinarizeWeight { weight } => {
                let d = self.program.push(Operator::BinarizeWeightGradient {
                    weight: *weight,
                    magnitudes: node.results[1],
                    d,
                })?;
                self.add(*weight, (factor, d))
            }
            Operator::ScaleRows { x, factors } => {
                let (x, factors) = (*x, *factors);
                if !self.depends.contains(&x) {
                    return Ok(());
                }
                let d = self.program.push(Operator::ScaleRows { x: d, factors })?;
                self.add(x, (factor, d))
            }
            other => has_none(other),
        }
    }

    /// Straight through the sign of `of`.
    fn back_through_sign(&mut self, of: Value, (factor, d): Gradient) -> Result<(), Error> {
        if !self.depends.contains(&of) {
            return Ok(());
        }
        let function = Nonlinearity::Sign;
        let d = self
            .program
            .push(Operator::NonlinearityGradient { function, of, d })?;
        self.add(of, (factor, d))
    }

    /// `y = factor · R · A · C · x + α · (1 + ε) · own rows of x`.
    fn back_through_sum(&mut self, op: &Aggregate, (factor, d): Gradient) -> Result<(), Error> {
        let own = op.own();
        if self.depends.contains(&op.x) {
            let own = own.map(|own| Addend {
                factor: own.factor * factor,
                value: d,
                ..own
            });
            let d = self.program.push(Operator::Aggregate(Aggregate {
                factor: op.factor * factor,
                addend: own,
                layer: op.layer,
                policy: op.policy,
                ..Aggregate::new(op.edges, op.direction.reversed(), d)
            }))?;
            self.add(op.x, (1.0, d))?;
        }
        let Some((epsilon, own)) = own.and_then(|own| Some((own.epsilon?, own))) else {
            return Ok(());
        };
        let mut x = op.x;
        if !self.program.is_square(op.edges) {
            let (edges, x_of) = (op.edges, x);
            x = self.program.push(Operator::OwnRows { edges, x: x_of })?;
        }
        let dot = self.program.push(Operator::Dot {
            alpha: own.factor * factor,
            x: d,
            y: x,
        })?;
        self.add(epsilon, (1.0, dot))
    }

    /// The gradient of a norm, whose results are those of `x` and of its scales.
    fn back_through_norm(
        &mut self,
        operator: Operator,
        x: Value,
        scales: &[Value],
        factor: f32,
    ) -> Result<(), Error> {
        let results = self.program.push_all(operator)?;
        self.add(x, (factor, results[0]))?;
        self.add_all(scales, &results[1..], factor)
    }

    /// Terms of scores are made again, along the edges and against them, so that no number of an edge is kept between the passes.
    fn back_through_attention(
        &mut self,
        op: &Attention,
        node: &Node,
        (factor, d): Gradient,
    ) -> Result<(), Error> {
        let &[y, positive] = &node.results[..] else {
            return refuse("attention that is evaluated has no gradient".into());
        };
        let mut of = *op;
        let mut against = None;
        let terms = op.biases.and_then(|biases| self.program.writer(biases));
        if let Some(number) = terms
            && let Operator::EdgeTerms(terms) = self.program.nodes[number].operator
        {
            of.biases = Some(self.program.push(Operator::EdgeTerms(terms))?);
            against = Some(self.program.push(Operator::EdgeTerms(EdgeTerms {
                direction: terms.direction.reversed(),
                ..terms
            }))?);
        }
        of.keeps_scores = false;
        let gradient = AttentionGradient {
            of,
            y,
            positive,
            d,
            codes: None,
            against,
        };
        let results = self
            .program
            .push_all(Operator::AttentionGradient(gradient))?;
        let operands: Vec<Value> = [op.h, op.vectors].into_iter().chain(op.biases).collect();
        self.add_all(&operands, &results, factor)
    }

    fn add_all(&mut self, to: &[Value], gradients: &[Value], factor: f32) -> Result<(), Error> {
        let mut pairs = to.iter().zip(gradients);
        pairs.try_for_each(|(of, gradient)| self.add(*of, (factor, *gradient)))
    }

    /// `c = alpha · a · b` or `alpha · a · bᵀ`. A constant mask is a ReLU that is undone.
    fn back_through_product(&mut self, op: &Matmul, (factor, d): Gradient) -> Result<(), Error> {
        let plain = Matmul {
            positive: None,
            ..op.clone()
        };
        if !plain.is_plain() || op.form == Form::TN {
            return refuse(
                "a product has a gradient before it is fused alone; differentiate first".into(),
            );
        }
        let format = self.program.values[d.0].format;
        let mut d = d;
        if let Some(mask) = op.positive {
            let mask = self.program.in_format(mask, format)?;
            d = self
                .program
                .push(Operator::ActivateGradient(ActivateGradient {
                    d,
                    relu: Some(mask),
                    drop: None,
                    rows: None,
                }))?;
        }
        let product = |program: &mut Program, form, a, b| {
            program.push(Operator::Matmul(Matmul {
                alpha: op.alpha * factor,
                ..Matmul::new(form, a, b)
            }))
        };
        if self.depends.contains(&op.a) {
            let other = self.program.in_format(op.b, format)?;
            let form = match op.form {
                Form::NN => Form::NT,
                _ => Form::NN,
            };
            let da = product(self.program, form, d, other)?;
            self.add(op.a, (1.0, da))?;
        }
        if self.depends.contains(&op.b) {
            let other = self.program.in_format(op.a, format)?;
            let operands = match op.form {
                Form::NN => (other, d),
                _ => (d, other),
            };
            let db = product(self.program, Form::TN, operands.0, operands.1)?;
            self.add(op.b, (1.0, db))?;
        }
        Ok(())
    }

    /// Adds to the gradient of a value.
    fn add(&mut self, value: Value, new: Gradient) -> Result<(), Error> {
        if !self.depends.contains(&value) {
            return Ok(());
        }
        let sum = match self.pending.remove(&value) {
            None => new,
            Some(before) => {
                let terms = vec![before, new];
                (1.0, self.program.push(Operator::Combine { terms })?)
            }
        };
        self.pending.insert(value, sum);
        Ok(())
    }

    /// That a kernel makes floats of elements.
    fn expect_floats_of_elements(&self, parameter: Value) -> Result<(), Error> {
        let precision = self.program.precision;
        let columns = self.program.values[parameter.0].shape.columns;
        let columns = u32::try_from(columns).unwrap_or(u32::MAX);
        let elements = match precision {
            Precision::Half => Elements::F16,
            Precision::BFloat16 => Elements::BF16,
            Precision::Float => Elements::F32,
        };
        let (form, operand) = (contract::Form::Nt, contract::Operand::Plain);
        match contract::product(form, operand, elements, Elements::F32, columns) {
            Some(_) => Ok(()),
            None => refuse(format!(
                "{} are rows that are learnt, and no kernel makes their gradient float in {precision}; take half or float, or give vertices of that type features",
                self.program.name_of(parameter)
            )),
        }
    }

    /// Has the gradient of a parameter in a value of its own, which no other operator reads.
    ///
    /// That of an [embedding](super::Builder::embedding) is in elements, since others than products read it: a product with an identity
    /// makes floats of them.
    fn finish(&mut self, parameter: Value, (mut factor, mut d): Gradient) -> Result<(), Error> {
        let Description { format, shape, .. } = self.program.values[d.0];
        if format == Format::Element && matches!(shape.rows, Rows::Of(_)) {
            self.expect_floats_of_elements(parameter)?;
            let (width, times) = (shape.columns, 1);
            let identity = Constant::Repeat { width, times };
            let identity = self.program.constant(identity, Format::Element);
            d = self.program.push(Operator::Matmul(Matmul {
                alpha: std::mem::replace(&mut factor, 1.0),
                to_float: true,
                ..Matmul::new(Form::NT, d, identity)
            }))?;
        }
        if self.program.values[d.0].format != Format::Float {
            return refuse(format!(
                "the gradient of {} is not float; a weight is read by products",
                self.program.describe(parameter)
            ));
        }
        let read = self.program.readers(d).next().is_some();
        let twice = self.program.gradients.iter().any(|(_, other)| *other == d);
        let is_seed = self.program.values[d.0].origin == Origin::Seed;
        if factor != 1.0 || read || twice || is_seed {
            let terms = vec![(factor, d)];
            d = self.program.push(Operator::Combine { terms })?;
        }
        self.program.gradients.push((parameter, d));
        Ok(())
    }
}
