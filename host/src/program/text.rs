//! The text of a program: a line for each operator, with shape, bytes and whether its result is kept for the backward pass.

use super::list::Program;
use super::operator::{
    Addend, AdditiveAttention, Aggregate, Attention, Coding, Direction, DotAttention, Dropout,
    EdgeTerms, End, Matmul, MessageSums, Node, Normalization, Operator, ReadFactors,
    ReduceMessages, RowFactors, Take,
};
use super::value::{Edges, Format, Origin, Rows, Value};
use crate::nn::rounds_by_default;
use crate::ops::{Form, MessageAct, SpmmPolicy};
use std::fmt::{self, Write};

impl Program {
    /// The name of an input or parameter, the number of any other value.
    pub(super) fn name_of(&self, value: Value) -> String {
        let description = &self.values[value.0];
        match description.name.as_str() {
            "" => match description.origin {
                Origin::Ones => "ones".into(),
                Origin::EdgeFeatures(edges) => format!("features of {}", self.edges[edges.0].name),
                _ => value.to_string(),
            },
            name => name.to_owned(),
        }
    }

    /// Rows, columns and precision.
    pub(super) fn shape_text(&self, value: Value) -> String {
        let description = &self.values[value.0];
        let precision = match description.format {
            Format::Codes => "8 bits".to_owned(),
            Format::Bits => "bits".to_owned(),
            format => format.precision(self.precision).to_string(),
        };
        let columns = description.shape.columns;
        match description.shape.rows {
            Rows::Fixed(rows) => format!("{rows} x {columns} {precision}"),
            Rows::Edges(edges) => {
                let name = &self.edges[edges.0].name;
                format!("edges of {name} x {columns} {precision}")
            }
            Rows::EachEdge(edges) => {
                let name = &self.edges[edges.0].name;
                format!("each edge of {name} x {columns} {precision}")
            }
            Rows::Exchanged(edges, of) => {
                let (name, of) = (&self.edges[edges.0].name, of.name());
                format!("{of} of {name} x {columns} {precision}")
            }
            Rows::Of(vertices) => {
                let name = &self.vertices[vertices.0].name;
                format!("{name} x {columns} {precision}")
            }
            Rows::Share(vertices) => {
                let name = &self.vertices[vertices.0].name;
                format!("some {name} x {columns} {precision}")
            }
            Rows::Times(vertices, times) => {
                let name = &self.vertices[vertices.0].name;
                format!("{times} {name} x {columns} {precision}")
            }
        }
    }

    fn factors_text(&self, factors: RowFactors) -> String {
        let side = match factors.end {
            End::Sources => "C",
            End::Destinations => "R",
        };
        let balanced = if factors.balanced { " balanced" } else { "" };
        format!("{side}[{}]{balanced}", self.edges[factors.edges.0].name)
    }

    fn attention_text(&self, op: &Attention) -> String {
        let edges = &self.edges[op.edges.0].name;
        let [h, vectors] = [op.h, op.vectors].map(|it| self.name_of(it));
        let biases = op.biases.map(|it| format!(" plus {}", self.name_of(it)));
        let codes = op.codes.map(|it| format!(", reads {}", self.name_of(it)));
        let codes = codes.unwrap_or_default();
        let drop = op.drop.map(|drop| format!(", {}", dropout(drop)));
        let (biases, drop) = (biases.unwrap_or_default(), drop.unwrap_or_default());
        let heads = op.heads;
        format!("{edges} {h}, scores {vectors}{biases}, {heads} heads{codes}{drop}")
    }

    fn additive_text(&self, op: &AdditiveAttention) -> String {
        let edges = &self.edges[op.edges.0].name;
        let [sources, destinations, vector] =
            [op.sources, op.destinations, op.vector].map(|it| self.name_of(it));
        let drop = op.drop.map(|drop| format!(", {}", dropout(drop)));
        let (heads, drop) = (op.heads, drop.unwrap_or_default());
        format!("{edges} {sources}, scores {vector} of {destinations}, {heads} heads{drop}")
    }

    fn dot_text(&self, op: &DotAttention) -> String {
        let edges = &self.edges[op.edges.0].name;
        let [queries, keys, values] = [op.queries, op.keys, op.values].map(|it| self.name_of(it));
        let drop = op.drop.map(|drop| format!(", {}", dropout(drop)));
        let (scale, heads, drop) = (op.scale, op.heads, drop.unwrap_or_default());
        format!("{edges} {values}, scores {scale} {queries} {keys}ᵀ, {heads} heads{drop}")
    }

    /// A function of the sum of rows of both ends and of the edge; nothing where there are none.
    fn message_text(&self, rows: [Option<Value>; 3], act: MessageAct) -> Option<String> {
        let ends = ["destination", "source", "edge"];
        let named = rows.into_iter().zip(ends);
        let named = named.filter_map(|(value, end)| Some((value?, end)));
        let named = named.map(|(value, end)| format!("{} of the {end}", self.name_of(value)));
        let named: Vec<String> = named.collect();
        (!named.is_empty()).then(|| format!("{act:?}({})", named.join(" + ")).to_lowercase())
    }

    fn reduction_text(&self, op: &ReduceMessages) -> String {
        let message = self.message_text(op.rows.each(), op.act);
        let reduction = format!("{:?}", op.reduction).to_lowercase();
        format!(
            "{} {reduction} of {}",
            self.edges[op.edges.0].name,
            message.unwrap_or_default()
        )
    }

    fn messages_text(&self, op: &MessageSums) -> String {
        let factors = op.rows().into_iter().zip(op.acts);
        let factors: Vec<String> = factors
            .filter_map(|(rows, act)| self.message_text(rows, act))
            .collect();
        let times = match op.factor {
            1.0 => String::new(),
            factor => format!("{factor} "),
        };
        format!(
            "{} {times}{}",
            self.edges[op.edges.0].name,
            factors.join(" ⊙ ")
        )
    }

    fn terms_text(&self, op: &EdgeTerms) -> String {
        let transposed = match op.direction {
            Direction::Forward => "",
            Direction::Backward => "ᵀ",
        };
        let [weight, vector] = [op.weight, op.vector].map(|it| self.name_of(it));
        let (edges, heads) = (&self.edges[op.edges.0].name, op.heads);
        format!("{edges}{transposed}, weight {weight}, vector {vector}, {heads} heads")
    }

    fn coding_text(&self, coding: Coding) -> String {
        let rounding = match coding.stream {
            Some(stream) => format!("stochastic #{stream}"),
            None => "nearest".to_owned(),
        };
        let rows = coding
            .rows
            .map(|rows| format!(", rows {}", self.factors_text(rows)));
        let alone = if coding.alone { " alone" } else { "" };
        let rows = rows.unwrap_or_default();
        let exchanged = match coding.exchanged() {
            Some(edges) => format!(", exchanged over {}", self.edges[edges.0].name),
            None => String::new(),
        };
        format!("to {:?}{alone}, {rounding}{rows}{exchanged}", coding.format)
    }

    fn ranks_text(&self, edges: Edges) -> String {
        format!("over the ranks of {}", self.edges[edges.0].name)
    }

    fn norm_text(&self, norm: Normalization) -> String {
        let relu = if norm.relu { ", relu" } else { "" };
        let [statistics, weight, bias] =
            [norm.statistics, norm.weight, norm.bias].map(|it| self.name_of(it));
        format!("by {statistics}, weight {weight}, bias {bias}{relu}")
    }

    /// An operator with its operands.
    pub(super) fn operator_text(&self, operator: &Operator) -> String {
        let name = |value: Value| self.name_of(value);
        let mut text = operator.name().to_owned();
        let mut parts: Vec<String> = Vec::new();
        match operator {
            Operator::Matmul(op) => (text, parts) = self.matmul_parts(op),
            Operator::Aggregate(op) => (text, parts) = self.aggregate_parts(op),
            Operator::Activate(op) => {
                text = format!("activate {}", name(op.x));
                parts.extend(op.add.map(|add| format!("plus {}", name(add))));
                parts.extend(op.bias.map(|bias| format!("bias {}", name(bias))));
                parts.extend(op.relu.then(|| "relu".to_owned()));
                parts.extend(op.drop.map(dropout));
            }
            Operator::ActivateGradient(op) => {
                text = format!("activate_gradient {}", name(op.d));
                parts.extend(op.relu.map(|of| format!("where positive {}", name(of))));
                parts.extend(op.drop.map(dropout));
                parts.extend(
                    op.rows
                        .map(|rows| format!("rows {}", self.factors_text(rows))),
                );
            }
            Operator::Nonlinearity { function, .. }
            | Operator::NonlinearityGradient { function, .. } => {
                text = format!("{text} {}", self.operands_text(operator));
                parts.push(format!("{function:?}"));
            }
            Operator::Combine { terms } => {
                let term = |(factor, value): &(f32, Value)| match factor {
                    1.0 => name(*value),
                    factor => format!("{factor} {}", name(*value)),
                };
                let terms: Vec<String> = terms.iter().map(term).collect();
                text = format!("combine {}", terms.join(" + "));
            }
            Operator::Dot { alpha, x, y } => {
                text = format!("dot {} {}", name(*x), name(*y));
                parts.extend((*alpha != 1.0).then(|| format!("alpha {alpha}")));
            }
            Operator::DropRows { edges, drop, x } => {
                text = format!("{text} {} {}", self.edges[edges.0].name, name(*x));
                parts.push(dropout(*drop));
            }
            Operator::OwnRows { edges, x }
            | Operator::OwnRowsGradient { edges, d: x }
            | Operator::Extend { edges, x, .. }
            | Operator::Fold { edges, d: x, .. } => {
                text = format!("{text} {} {}", self.edges[edges.0].name, name(*x));
            }
            Operator::Scale {
                x,
                factor,
                plus_one,
            } => {
                let by = match plus_one {
                    true => format!("1 + {}", name(*factor)),
                    false => name(*factor),
                };
                text = format!("scale {} by {by}", name(*x));
            }
            Operator::Quantize { x, coding } => {
                text = format!("quantize {} {}", name(*x), self.coding_text(*coding));
            }
            Operator::GroupMaximum { edges, .. } | Operator::GroupMaximumGradient { edges, .. } => {
                let operands = self.operands_text(operator);
                text = format!("{text} {} {operands}", self.edges[edges.0].name);
            }
            _ => {
                let families = [Self::attention_parts, Self::norm_parts, Self::binary_parts];
                match families.iter().find_map(|family| family(self, operator)) {
                    Some(found) => (text, parts) = found,
                    None => text = format!("{text} {}", self.operands_text(operator)),
                }
            }
        }
        parts.iter().for_each(|part| {
            let _ = write!(text, ", {part}");
        });
        text
    }

    /// The operands, one after the other.
    fn operands_text(&self, operator: &Operator) -> String {
        let operands = operator.operands().into_iter();
        let names: Vec<String> = operands.map(|value| self.name_of(value)).collect();
        names.join(" ")
    }

    /// A product, and what is in its epilogue.
    fn matmul_parts(&self, op: &Matmul) -> (String, Vec<String>) {
        let name = |value: Value| self.name_of(value);
        let mut parts = Vec::new();
        let read = |value, own: Option<Edges>| match own {
            Some(edges) => format!("own[{}] {}", self.edges[edges.0].name, name(value)),
            None => name(value),
        };
        let a = read(op.a, op.reads_own[0]);
        let mut text = format!("matmul {}", product(op.form, [a, name(op.b)]));
        parts.extend(
            op.norm
                .map(|norm| format!("normalized {}", self.norm_text(norm))),
        );
        if let Some([a, b]) = op.second {
            let a = read(a, op.reads_own[1]);
            let second = product(op.form, [a, name(b)]);
            text = format!("{text} + {second}");
        }
        parts.extend((op.alpha != 1.0).then(|| format!("alpha {}", op.alpha)));
        parts.extend(
            op.rows
                .map(|rows| format!("rows {}", self.factors_text(rows))),
        );
        parts.extend(op.row_scale.map(|of| format!("rows {}", name(of))));
        parts.extend(op.bias.map(|bias| format!("bias {}", name(bias))));
        parts.extend(op.relu.then(|| "relu".to_owned()));
        parts.extend(op.drop.map(dropout));
        parts.extend(op.positive.map(|of| format!("where positive {}", name(of))));
        parts.extend(
            op.sum
                .map(|sum| format!("added to {}", read(sum, op.adds_to_own))),
        );
        parts.extend(op.column_sums.then(|| "column sums".to_owned()));
        parts.extend(op.to_float.then(|| "in float".to_owned()));
        parts.extend(
            op.coding
                .map(|coding| format!("quantized {}", self.coding_text(coding))),
        );

        (text, parts)
    }

    /// A sum over neighbours, and what is in its epilogue.
    fn aggregate_parts(&self, op: &Aggregate) -> (String, Vec<String>) {
        let name = |value: Value| self.name_of(value);
        let mut parts = Vec::new();
        let edges = &self.edges[op.edges.0];
        let transposed = match op.direction {
            Direction::Forward => "",
            Direction::Backward if op.is_mutual => "ᵀ of own rows",
            Direction::Backward => "ᵀ",
        };
        let read = op.codes.unwrap_or(op.x);
        let text = format!("aggregate {}{transposed} {}", edges.name, name(read));
        let has_factors = edges.has_factors(op.direction.read());
        parts.extend((op.factor != 1.0).then(|| format!("factor {}", op.factor)));
        let SpmmPolicy {
            scaling,
            accumulate,
            ..
        } = op.policy;
        let is_other = !rounds_by_default(op.policy);
        parts.extend(is_other.then(|| format!("{scaling:?} in {accumulate:?}")));
        match op.read_factors {
            ReadFactors::InOperand if has_factors && op.codes.is_none() => {
                parts.push("operand is scaled".to_owned());
            }
            ReadFactors::Balanced => parts.push("operand is balanced".to_owned()),
            _ => {}
        }
        let addend = |addend: Addend| {
            let factor = match addend.factor {
                1.0 => String::new(),
                factor => format!("{factor} "),
            };
            let epsilon = addend.epsilon.map(|it| format!("(1 + {}) ", name(it)));
            let epsilon = epsilon.unwrap_or_default();
            format!("plus {factor}{epsilon}{}", name(addend.value))
        };
        parts.extend(op.addend.map(addend));
        parts.extend(op.bias.map(|bias| format!("bias {}", name(bias))));
        parts.extend(op.relu.then(|| "relu".to_owned()));
        parts.extend(op.positive.map(|of| format!("where positive {}", name(of))));

        (text, parts)
    }

    /// Of attention, its terms and its heads; none of any other operator.
    fn attention_parts(&self, operator: &Operator) -> Option<(String, Vec<String>)> {
        let name = |value: Value| self.name_of(value);
        let (mut text, mut parts) = (operator.name().to_owned(), Vec::new());
        match operator {
            Operator::Attention(op) => text = format!("{text} {}", self.attention_text(op)),
            Operator::AttentionGradient(op) => {
                let of = self.attention_text(&op.of);
                text = format!("{text} {} of {}, {of}", name(op.d), name(op.y));
                parts.extend(op.codes.map(|it| format!("reads {}", name(it))));
            }
            Operator::AdditiveAttention(op) => text = format!("{text} {}", self.additive_text(op)),
            Operator::AdditiveGradient(op) => {
                let of = self.additive_text(&op.of);
                text = format!("{text} {} of {}, {of}", name(op.d), name(op.y));
            }
            Operator::MessageSums(op) => text = format!("{text} {}", self.messages_text(op)),
            Operator::MessageGradient(op) => {
                text = format!("{text} {} {}", name(op.d), self.messages_text(&op.of));
            }
            Operator::ReduceMessages(op) => text = format!("{text} {}", self.reduction_text(op)),
            Operator::ReduceMessagesGradient(op) => {
                text = format!("{text} {} {}", name(op.d), self.reduction_text(&op.of));
            }
            Operator::DotAttention(op) => text = format!("{text} {}", self.dot_text(op)),
            Operator::DotAttentionGradient(op) => {
                let of = self.dot_text(&op.of);
                text = format!("{text} {} of {}, {of}", name(op.d), name(op.y));
            }
            Operator::EdgeTerms(op) => text = format!("{text} {}", self.terms_text(op)),
            Operator::EdgeTermsGradient { of, d, .. } => {
                text = format!("{text} {} of {}", name(*d), self.terms_text(of));
            }
            Operator::HeadMean { heads, x, .. } | Operator::HeadMeanGradient { heads, d: x } => {
                text = format!("{text} {}, {heads} heads", name(*x));
            }
            _ => return None,
        }
        Some((text, parts))
    }

    /// Of norms; none of any other operator.
    fn norm_parts(&self, operator: &Operator) -> Option<(String, Vec<String>)> {
        let name = |value: Value| self.name_of(value);
        let (mut text, mut parts) = (operator.name().to_owned(), Vec::new());
        match operator {
            Operator::BatchStatistics(op) => {
                text = format!("batch_statistics {}", name(op.x));
                parts.push(match op.take {
                    Take::Training => format!("carried on in {}", name(op.running)),
                    Take::Batch => "of the batch".to_owned(),
                    Take::Running => format!("from {}", name(op.running)),
                });
                parts.extend((op.scale != 1.0).then(|| format!("scale {}", op.scale)));
                parts.extend(op.of_rank.map(|edges| self.ranks_text(edges)));
            }
            Operator::Normalize { norm, x } => {
                text = format!("normalize {}", name(*x));
                parts.push(self.norm_text(*norm));
            }
            Operator::NormalizeGradient(op) => {
                text = format!("normalize_gradient {} of {}", name(op.d), name(op.x));
                parts.push(self.norm_text(op.norm));
                parts.extend(op.of_rank.map(|edges| self.ranks_text(edges)));
                parts.extend(
                    op.rows
                        .map(|rows| format!("rows {}", self.factors_text(rows))),
                );
                parts.extend(
                    op.coding
                        .map(|coding| format!("quantized {}", self.coding_text(coding))),
                );
            }
            Operator::NormalizeGroups { groups, .. }
            | Operator::NormalizeGroupsGradient { groups, .. } => {
                text = format!("{text} {}", self.operands_text(operator));
                parts.extend(groups.map(|edges| format!("graphs of {}", self.edges[edges.0].name)));
            }
            _ => return None,
        }
        Some((text, parts))
    }

    /// Of networks of one bit; none of any other operator.
    fn binary_parts(&self, operator: &Operator) -> Option<(String, Vec<String>)> {
        let name = |value: Value| self.name_of(value);
        let (mut text, mut parts) = (operator.name().to_owned(), Vec::new());
        match operator {
            Operator::Standardize { x, evaluates } => {
                text = format!("{text} {}", name(*x));
                parts.extend(evaluates.then(|| "of these rows".to_owned()));
            }
            Operator::Pack { x, standardized } => {
                text = format!("{text} {}", name(*x));
                parts.extend(standardized.then(|| "standardized".to_owned()));
            }
            Operator::BinarizeWeightGradient { weight, d, .. } => {
                text = format!("{text} {} of {}", name(*d), name(*weight));
            }
            Operator::ScaleRows { x, factors } => {
                text = format!("{text} {} by {}", name(*x), name(*factors));
            }
            Operator::SignOf { sums, of } => {
                text = format!("{text} {}, through {}", name(*sums), name(*of));
            }
            Operator::BinarySigns { a, b } => text = format!("{text} {} {}ᵀ", name(*a), name(*b)),
            Operator::BinaryMatmul(op) => {
                text = format!("{text} {} {}ᵀ", name(op.a), name(op.b));
                parts.extend(op.rows.map(|of| format!("rows {}", name(of))));
                parts.extend(op.columns.map(|of| format!("columns {}", name(of))));
                parts.extend(op.share.map(|share| format!("signs times {share}")));
                parts.extend(op.sum.map(|sum| format!("added to {}", name(sum))));
            }
            Operator::AggregateSigns(op) => {
                text = format!("{text} {} {}", self.edges[op.edges.0].name, name(op.signs));
                parts.extend((op.factor != 1.0).then(|| format!("factor {}", op.factor)));
                parts.extend(op.packed.then(|| "packed".to_owned()));
            }
            Operator::AggregateSignsMatmul(op) => {
                let edges = &self.edges[op.edges.0].name;
                text = format!("{text} {edges} {} {}ᵀ", name(op.signs), name(op.weight));
                parts.extend(op.bias.map(|bias| format!("bias {}", name(bias))));
            }
            _ => return None,
        }
        Some((text, parts))
    }

    /// Whether the backward pass reads what the forward pass wrote.
    pub(super) fn is_kept(&self, value: Value) -> bool {
        let read = self.readers(value).any(|number| number >= self.forward);
        self.writer(value)
            .is_some_and(|number| number < self.forward)
            && read
    }

    /// The first operator of the backward pass that reads a value.
    fn first_backward_reader(&self, value: Value) -> Option<&Node> {
        let mut readers = self.readers(value).filter(|number| *number >= self.forward);
        readers.next().map(|number| &self.nodes[number])
    }

    /// The operators alone, without shapes and bytes: what tests of passes compare.
    pub fn listing(&self) -> String {
        let mut text = String::new();
        for (number, node) in self.nodes.iter().enumerate() {
            if number == self.forward {
                text.push_str("backward\n");
            }
            let results: Vec<String> = node.results.iter().map(|it| self.name_of(*it)).collect();
            let kept = node.results.iter().any(|value| self.is_kept(*value));
            let _ = writeln!(
                text,
                "{} = {}{}",
                results.join(", "),
                self.operator_text(&node.operator),
                if kept { " (kept)" } else { "" }
            );
        }
        text
    }
}

/// Operands of a product, the transposed one marked.
fn product(form: Form, [a, b]: [String; 2]) -> String {
    match form {
        Form::NN => format!("{a} {b}"),
        Form::NT => format!("{a} {b}ᵀ"),
        Form::TN => format!("{a}ᵀ {b}"),
    }
}

fn dropout(drop: Dropout) -> String {
    format!("dropout {} #{}", drop.probability, drop.stream)
}

impl fmt::Display for Program {
    /// A line for each value from outside, then a line for each operator: result, operator, shape, bytes of the results, the least
    /// [bytes](Program::traffic) that it moves, and what it is kept for where the backward pass reads it.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (number, description) in self.values.iter().enumerate() {
            let value = Value(number);
            let kind = match description.origin {
                Origin::Input => "input",
                Origin::Parameter(_) => "parameter",
                Origin::Buffer(_) => "buffer",
                Origin::Constant(_) => "constant",
                Origin::Ones => "ones",
                Origin::EdgeFeatures(_) => "edges",
                Origin::Seed | Origin::Operator => continue,
            };
            let bytes = self.bytes(value);
            let (name, shape) = (self.name_of(value), self.shape_text(value));
            writeln!(f, "{kind} {name}: {shape}, {bytes} B")?;
        }
        for (number, node) in self.nodes.iter().enumerate() {
            if number == self.forward {
                writeln!(f, "backward")?;
            }
            let results: Vec<String> = node.results.iter().map(|it| self.name_of(*it)).collect();
            let bytes: u64 = node.results.iter().map(|it| self.bytes(*it)).sum();
            let moved = self.traffic(node).bytes();
            write!(
                f,
                "{} = {}: {}, {bytes} B, moves {moved} B",
                results.join(", "),
                self.operator_text(&node.operator),
                self.shape_text(node.results[0]),
            )?;
            let mut kept = node.results.iter().filter(|value| self.is_kept(**value));
            match kept.find_map(|value| self.first_backward_reader(*value)) {
                Some(reader) => writeln!(f, ", kept for {}", self.name_of(reader.results[0]))?,
                None => writeln!(f)?,
            }
        }
        for (parameter, gradient) in &self.gradients {
            writeln!(f, "gradient of {}: {gradient}", self.name_of(*parameter))?;
        }
        match self.output {
            Some(output) => writeln!(f, "output {}", self.name_of(output)),
            None => Ok(()),
        }
    }
}

impl fmt::Display for Format {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Format::Element => "element",
            Format::Float => "float",
            Format::Items => "items",
            Format::Numbers => "numbers",
            Format::Codes => "codes",
            Format::Bits => "bits",
        })
    }
}
