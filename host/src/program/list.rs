//! The list of operators, and what it knows of values, vertices and adjacencies.

use super::operator::{End, Node, Operator, RowFactors};
use super::value::{
    Constant, Description, Edges, Format, Origin, Rows, Shape, Value, Vertices, bytes_of,
    element_bytes, share_rows,
};
use crate::error::Error;
use crate::nn::Norm;
use crate::ops::{SpmmPolicy, edge_plane};
use crate::tensor::Precision;
use halfgnn_contract::bits::row_words;
use halfgnn_contract::quantize::row_codes;
use std::collections::{HashMap, HashSet};

/// A list of operators over values, forward and, once [differentiated](super::differentiate), backward.
///
/// It has neither backend nor element type: passes change it as data, [`Plan`](super::Plan) computes its memory, and a
/// [`Runner`](super::Runner) runs it on a device.
#[derive(Clone, Debug)]
pub struct Program {
    pub(super) precision: Precision,
    pub(super) vertices: Vec<VertexSet>,
    pub(super) edges: Vec<EdgeSet>,
    pub(super) values: Vec<Description>,
    pub(super) nodes: Vec<Node>,
    /// Operators of the forward pass: the first ones.
    pub(super) forward: usize,
    pub(super) output: Option<Value>,
    pub(super) seed: Option<Value>,
    /// Each parameter that the output depends on, and its gradient.
    pub(super) gradients: Vec<(Value, Value)>,
    /// Values that stay readable until the next forward pass.
    pub(super) kept: Vec<Value>,
    /// What the weight decay of a parameter is multiplied by, where it is not 1.
    pub(super) decays: HashMap<Value, f32>,
    /// Whether results of [operators of weights](Program::of_weights) stay for as long as the parameters.
    pub(super) keeps_weights: bool,
}

/// A set of vertices.
#[derive(Clone, Debug)]
pub(super) struct VertexSet {
    pub(super) name: String,
    pub(super) rows: usize,
}

/// An adjacency.
#[derive(Clone, Debug)]
pub(super) struct EdgeSet {
    pub(super) name: String,
    pub(super) sources: Vertices,
    pub(super) destinations: Vertices,
    pub(super) norm: Norm,
    /// Whether it is a rank's part of a graph.
    pub(super) of_rank: bool,
    /// Whether all edges of the whole graph go both ways, so that ranks can exchange quantized values in both passes.
    pub(super) is_mutual: bool,
    /// Edges, once their number is known.
    pub(super) count: usize,
    /// Whether destinations are anywhere among the sources.
    pub(super) picks_own_rows: bool,
    /// Whether it leads from vertices to graphs. Its sums are of layers' outputs, and are never quantized.
    pub(super) pools: bool,
    /// The largest degree of a destination, or 0 where formulas need not know it.
    pub(super) largest_degree: u32,
    /// Numbers of rows that a rank exchanges, by [`Exchanged`], once they are known.
    pub(super) exchanged: [usize; 3],
}

impl EdgeSet {
    /// Whether its degree norm has factors of this end.
    pub(super) fn has_factors(&self, end: End) -> bool {
        match self.norm {
            Norm::Both | Norm::In => true,
            Norm::Right => end == End::Destinations,
            Norm::Left => end == End::Sources,
            Norm::None => false,
        }
    }
}

/// An error of the formula or of a pass.
pub(super) fn refuse<T>(reason: String) -> Result<T, Error> {
    Err(Error::Unsupported {
        operator: "Program",
        reason,
    })
}

impl Program {
    pub(super) fn new(precision: Precision) -> Self {
        Self {
            precision,
            vertices: Vec::new(),
            edges: Vec::new(),
            values: Vec::new(),
            nodes: Vec::new(),
            forward: 0,
            output: None,
            seed: None,
            gradients: Vec::new(),
            kept: Vec::new(),
            decays: HashMap::new(),
            keeps_weights: false,
        }
    }

    /// The precision of its elements.
    pub fn precision(&self) -> Precision {
        self.precision
    }

    /// The operators, those of the forward pass first.
    pub fn nodes(&self) -> &[Node] {
        &self.nodes
    }

    /// How many of them are of the forward pass.
    pub fn forward_len(&self) -> usize {
        self.forward
    }

    /// What is known of a value.
    pub fn description(&self, value: Value) -> &Description {
        &self.values[value.0]
    }

    /// The output that a loss reads.
    pub fn output(&self) -> Option<Value> {
        self.output
    }

    /// Where the loss writes the gradient of the output, of a differentiated program.
    pub fn seed(&self) -> Option<Value> {
        self.seed
    }

    /// The inputs, in the order in which they were declared.
    pub fn inputs(&self) -> Vec<Value> {
        self.of_origin(|origin| matches!(origin, Origin::Input))
    }

    /// The parameters, in the order in which they were declared.
    pub fn parameters(&self) -> Vec<Value> {
        self.of_origin(|origin| matches!(origin, Origin::Parameter(_)))
    }

    /// The buffers, such as running statistics, in the order in which they were declared.
    pub fn buffers(&self) -> Vec<Value> {
        self.of_origin(|origin| matches!(origin, Origin::Buffer(_)))
    }

    fn of_origin(&self, is: impl Fn(&Origin) -> bool) -> Vec<Value> {
        let values = self.values.iter().enumerate();
        let found = values.filter(|(_, description)| is(&description.origin));
        found.map(|(number, _)| Value(number)).collect()
    }

    /// The input or parameter of a name.
    pub fn named(&self, name: &str) -> Option<Value> {
        let is = |description: &Description| description.name == name;
        self.values.iter().position(is).map(Value)
    }

    /// The gradient of a parameter that the output depends on.
    pub fn gradient_of(&self, parameter: Value) -> Option<Value> {
        let mut gradients = self.gradients.iter();
        gradients
            .find(|(of, _)| *of == parameter)
            .map(|(_, gradient)| *gradient)
    }

    /// Has all sums over neighbours computed by `policy`. It comes before all passes.
    pub fn set_policy(&mut self, policy: SpmmPolicy) {
        for node in &mut self.nodes {
            match &mut node.operator {
                Operator::Aggregate(op) => op.policy = policy,
                Operator::Attention(op) => op.policy = policy,
                Operator::AdditiveAttention(op) => op.policy = policy,
                _ => {}
            }
        }
    }

    /// Keeps `value` readable until the next forward pass, which costs its memory for as long.
    pub fn keep(&mut self, value: Value) {
        if !self.kept.contains(&value) {
            self.kept.push(value);
        }
    }

    /// Sets the number of vertices of a set: of a whole graph, or the most that a batch has.
    pub fn set_rows(&mut self, vertices: Vertices, rows: usize) {
        self.vertices[vertices.0].rows = rows;
    }

    /// Sets sources and destinations of each adjacency.
    pub(super) fn set_sizes(&mut self, sizes: &[[usize; 2]]) {
        for (number, rows) in sizes.iter().enumerate() {
            let ends = self.edges.get(number);
            let ends = ends.map(|edges| [edges.sources, edges.destinations]);
            for (vertices, rows) in ends.into_iter().flatten().zip(rows) {
                self.set_rows(vertices, *rows);
            }
        }
    }

    /// Rows of a value.
    pub fn rows(&self, value: Value) -> usize {
        match self.values[value.0].shape.rows {
            Rows::Fixed(rows) => rows,
            Rows::Of(vertices) => self.vertices[vertices.0].rows,
            Rows::Times(vertices, times) => self.vertices[vertices.0].rows * times,
            Rows::Edges(edges) => edge_plane(self.edges[edges.0].count),
            Rows::EachEdge(edges) => self.edges[edges.0].count,
            Rows::Exchanged(edges, of) => self.edges[edges.0].exchanged[of as usize],
            Rows::Share(vertices) => {
                let rows = self.vertices[vertices.0].rows;
                share_rows(self.precision, rows, self.values[value.0].shape.columns)
            }
        }
    }

    /// Sets the number of edges of an adjacency, which arrays of a number for each edge are as long as.
    pub fn set_edges(&mut self, edges: Edges, count: usize) {
        self.edges[edges.0].count = count;
    }

    /// Edges of an adjacency.
    pub(super) fn edge_count(&self, edges: Edges) -> u64 {
        self.edges[edges.0].count as u64
    }

    /// Bytes of a value, padding included.
    pub fn bytes(&self, value: Value) -> u64 {
        let description = &self.values[value.0];
        let precision = description.format.precision(self.precision);
        let (rows, columns) = (self.rows(value), description.shape.columns);
        if matches!(description.format, Format::Items | Format::Numbers) {
            let elements = (rows as u64).saturating_mul(columns as u64);
            return elements.saturating_mul(element_bytes(precision));
        }
        if description.format == Format::Codes {
            return (rows as u64).saturating_mul(row_codes(columns as u64));
        }
        if description.format == Format::Bits {
            let words = (rows as u64).saturating_mul(row_words(columns as u64));
            return words.saturating_mul(size_of::<u64>() as u64);
        }
        bytes_of(precision, rows, columns, self.is_gathered(value))
    }

    /// Whether a value is a product that is read by sums over neighbours alone. Its rows are then as far apart as those read
    /// fastest.
    pub(super) fn is_gathered(&self, value: Value) -> bool {
        let is_product = |node: &Node| {
            let plain = matches!(&node.operator, Operator::Matmul(op) if op.sum.is_none());
            plain && node.results[0] == value
        };
        if self.values[value.0].format != Format::Element || !self.nodes.iter().any(is_product) {
            return false;
        }
        if self.output == Some(value) || self.kept.contains(&value) {
            return false;
        }
        let mut readers = self.readers(value).peekable();
        let sums_it = |number: usize| match &self.nodes[number].operator {
            Operator::Aggregate(op) => {
                let others = [op.positive, op.addend.map(|addend| addend.value)];
                op.x == value && !others.contains(&Some(value))
            }
            _ => false,
        };
        readers.peek().is_some() && readers.all(sums_it)
    }

    /// Numbers of the operators that read a value.
    pub(super) fn readers(&self, value: Value) -> impl Iterator<Item = usize> + '_ {
        let nodes = self.nodes.iter().enumerate();
        let reads = move |(number, node): (usize, &Node)| {
            node.operator.operands().contains(&value).then_some(number)
        };
        nodes.filter_map(reads)
    }

    /// The number of the operator that writes a value.
    pub(super) fn writer(&self, value: Value) -> Option<usize> {
        self.nodes
            .iter()
            .position(|node| node.results.contains(&value))
    }

    /// The operator that alone reads a value, which nothing outside reads.
    pub(super) fn only_reader(&self, value: Value) -> Option<usize> {
        let outside = self.output == Some(value)
            || self.kept.contains(&value)
            || self
                .gradients
                .iter()
                .any(|(_, gradient)| *gradient == value);
        let mut readers = self.readers(value);
        match (readers.next(), readers.next()) {
            (Some(number), None) if !outside => {
                let operator = &self.nodes[number].operator;
                let operands = operator.operands();
                let times = operands.iter().filter(|it| **it == value).count();
                // A sum that adds its operand's own rows reads one matrix.
                let own = matches!(operator, Operator::Aggregate(op) if op.x == value && op.own().is_some());
                (times == 1 + usize::from(own)).then_some(number)
            }
            _ => None,
        }
    }

    /// The set of vertices at one end of an adjacency.
    pub(super) fn end(&self, factors: RowFactors) -> Vertices {
        let edges = &self.edges[factors.edges.0];
        match factors.end {
            End::Sources => edges.sources,
            End::Destinations => edges.destinations,
        }
    }

    pub(super) fn add_value(
        &mut self,
        name: String,
        (shape, format): (Shape, Format),
        origin: Origin,
    ) -> Value {
        self.values.push(Description {
            name,
            shape,
            format,
            origin,
        });
        Value(self.values.len() - 1)
    }

    /// New values for the results of `operator`.
    ///
    /// # Errors
    /// Those of the shape rule.
    pub(super) fn node(&mut self, operator: Operator) -> Result<Node, Error> {
        let results = self.results_of(&operator)?;
        let scratch = self.scratch_of(&operator);
        let mut new = |result| self.add_value(String::new(), result, Origin::Operator);
        Ok(Node {
            results: results.into_iter().map(&mut new).collect(),
            scratch: scratch.into_iter().map(new).collect(),
            operator,
        })
    }

    /// Gives attention space for the scores of its edges, where `keeps` says so of an adjacency and a number of heads.
    pub(super) fn keep_scores(&mut self, keeps: impl Fn(Edges, usize) -> bool) {
        for number in 0..self.nodes.len() {
            let Operator::Attention(op) = &mut self.nodes[number].operator else {
                continue;
            };
            op.keeps_scores = op.trains && keeps(op.edges, op.heads);
            self.renew_scratch(number);
        }
    }

    /// Gives an operator that was changed new values to compute in.
    pub(super) fn renew_scratch(&mut self, number: usize) {
        let operator = self.nodes[number].operator.clone();
        let scratch = self.scratch_of(&operator).into_iter();
        let new = |of| self.add_value(String::new(), of, Origin::Operator);
        self.nodes[number].scratch = scratch.map(new).collect();
    }

    /// Puts an operator at the end of the list; all its results.
    ///
    /// # Errors
    /// Those of the shape rule.
    pub(super) fn push_all(&mut self, operator: Operator) -> Result<Vec<Value>, Error> {
        let node = self.node(operator)?;
        let results = node.results.clone();
        self.nodes.push(node);
        Ok(results)
    }

    /// Puts an operator at the end of the list; its first result.
    ///
    /// # Errors
    /// Those of the shape rule.
    pub(super) fn push(&mut self, operator: Operator) -> Result<Value, Error> {
        Ok(self.push_all(operator)?[0])
    }

    /// Removes operators on which neither the output nor a kept value depends.
    pub(super) fn prune(&mut self) {
        let mut read: HashSet<Value> = self.output.iter().chain(&self.kept).copied().collect();
        let mut nodes = std::mem::take(&mut self.nodes);
        nodes.reverse();
        nodes.retain(|node| {
            let is_read = node.results.iter().any(|result| read.contains(result));
            if is_read {
                read.extend(node.operator.operands());
            }
            is_read
        });
        nodes.reverse();
        self.nodes = nodes;
    }

    /// Has the operators that read nothing but parameters come first, and keeps their results.
    pub(super) fn move_weights_first(&mut self) {
        let mut written = HashSet::new();
        let nodes = std::mem::take(&mut self.nodes);
        let (first, others): (Vec<_>, Vec<_>) = nodes
            .into_iter()
            .partition(|node| self.is_of_weights(node, &mut written));
        self.nodes = first;
        self.nodes.extend(others);
        self.keeps_weights = true;
    }

    /// How many operators at the head of the list read nothing but parameters and results of one another.
    pub(super) fn of_weights(&self) -> usize {
        let mut written = HashSet::new();
        let mut nodes = self.nodes.iter();
        let first = nodes.position(|node| !self.is_of_weights(node, &mut written));
        first.unwrap_or(self.nodes.len())
    }

    /// Whether an operator reads nothing but parameters and what is `written`, which its results then are as well.
    fn is_of_weights(&self, node: &Node, written: &mut HashSet<Value>) -> bool {
        let is_parameter = |value: &Value| {
            let origin = &self.values[value.0].origin;
            matches!(origin, Origin::Parameter(_)) || written.contains(value)
        };
        let is_of_weights = node.operator.operands().iter().all(is_parameter);
        if is_of_weights {
            written.extend(&node.results);
        }
        is_of_weights
    }

    /// Removes an operator of the list.
    pub(super) fn remove(&mut self, number: usize) -> Node {
        if number < self.forward {
            self.forward -= 1;
        }
        self.nodes.remove(number)
    }

    /// Checks that each operand is written before it is read, that each value is written once and that shapes fit: what
    /// every pass must leave true.
    ///
    /// # Errors
    /// [`Error::Unsupported`] with the first operator that is wrong.
    pub fn check(&self) -> Result<(), Error> {
        let mut written = HashMap::new();
        for (number, node) in self.nodes.iter().enumerate() {
            for operand in node.operator.operands() {
                let is_there = match self.values[operand.0].origin {
                    Origin::Input
                    | Origin::Parameter(_)
                    | Origin::Buffer(_)
                    | Origin::Constant(_)
                    | Origin::Ones
                    | Origin::EdgeFeatures(_) => true,
                    Origin::Seed => number >= self.forward,
                    Origin::Operator => written.contains_key(&operand),
                };
                if !is_there {
                    return refuse(format!(
                        "operator {number}, {}, reads {operand} before it is written",
                        node.operator.name()
                    ));
                }
            }
            let mut expected = self.results_of(&node.operator)?;
            expected.extend(self.scratch_of(&node.operator));
            let found = node.results.iter().chain(&node.scratch).map(|value| {
                let description = &self.values[value.0];
                (description.shape, description.format)
            });
            if !found.eq(expected) {
                return refuse(format!(
                    "operator {number}, {}, writes values of other shapes",
                    node.operator.name()
                ));
            }
            for result in &node.results {
                if let Some(first) = written.insert(*result, number) {
                    return refuse(format!(
                        "operators {first} and {number} both write {result}"
                    ));
                }
            }
        }
        let gradients = self.gradients.iter().map(|(_, gradient)| gradient);
        let outside = self.output.iter().chain(gradients).chain(&self.kept);
        match outside.into_iter().find(|value| {
            self.values[value.0].origin == Origin::Operator && !written.contains_key(value)
        }) {
            Some(lost) => refuse(format!("{lost} is read outside and no operator writes it")),
            None => Ok(()),
        }
    }

    /// A value in an error: its name or number, and its shape.
    pub(super) fn describe(&self, value: Value) -> String {
        format!("{} ({})", self.name_of(value), self.shape_text(value))
    }

    /// Whether `edges` reads and writes the same vertices, so that own rows are all rows.
    pub(super) fn is_square(&self, edges: Edges) -> bool {
        let edges = &self.edges[edges.0];
        edges.sources == edges.destinations
    }
}

impl Program {
    /// A constant in a format: the one that there is, or a new one.
    pub(super) fn constant(&mut self, constant: Constant, format: Format) -> Value {
        let origin = Origin::Constant(constant);
        let is = |it: &Description| it.origin == origin && it.format == format;
        if let Some(number) = self.values.iter().position(is) {
            return Value(number);
        }
        let (rows, columns) = constant.shape();
        let rows = Rows::Fixed(rows);
        self.add_value(String::new(), (Shape { rows, columns }, format), origin)
    }

    /// A one for each vertex of a set.
    pub(super) fn ones(&mut self, vertices: Vertices) -> Value {
        let shape = Shape {
            rows: Rows::Of(vertices),
            columns: 1,
        };
        let is = |it: &Description| it.origin == Origin::Ones && it.shape == shape;
        if let Some(number) = self.values.iter().position(is) {
            return Value(number);
        }
        self.add_value(String::new(), (shape, Format::Element), Origin::Ones)
    }

    /// The features of the edges of an adjacency, the given number of each.
    pub(super) fn edge_features(&mut self, edges: Edges, columns: usize) -> Value {
        let shape = Shape {
            rows: Rows::EachEdge(edges),
            columns,
        };
        let origin = Origin::EdgeFeatures(edges);
        let is = |it: &Description| it.origin == origin && it.shape == shape;
        if let Some(number) = self.values.iter().position(is) {
            return Value(number);
        }
        self.add_value(String::new(), (shape, Format::Element), origin)
    }

    /// `value` in a format: itself, or of a constant its twin.
    ///
    /// # Errors
    /// [`Error::Unsupported`] of any other value in the other format.
    pub(super) fn in_format(&mut self, value: Value, format: Format) -> Result<Value, Error> {
        match self.values[value.0].origin {
            _ if self.values[value.0].format == format => Ok(value),
            Origin::Constant(constant) => Ok(self.constant(constant, format)),
            _ => refuse(format!(
                "the gradient of a weight is {format}, and goes back through {}, which is not; only constants and parameters may be between a parameter and the product that reads it",
                self.describe(value)
            )),
        }
    }
}
