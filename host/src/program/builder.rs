//! Formulas written down: each call adds an operator to the list.

use super::list::{EdgeSet, Program, VertexSet, refuse};
use super::operator::{
    Activate, ActivateGradient, Addend, Aggregate, Direction, Dropout, End, Matmul, Operator, Own,
    OwnOperator, RowFactors,
};
use super::value::{Constant, Edges, Format, Initial, Origin, Rows, Shape, Value, Vertices};
use crate::error::Error;
use crate::nn::{HiddenActivation, Norm};
use crate::ops::{Form, Nonlinearity};
use crate::tensor::Precision;
use std::sync::Arc;

/// Writes a [`Program`] down.
///
/// Calls give values and no errors, so that a formula reads as one. The first operand that does not fit is the error of
/// [`Builder::finish`].
///
/// ```
/// use halfgnn::nn::Norm;
/// use halfgnn::program::Builder;
/// use halfgnn::tensor::Precision;
///
/// let mut g = Builder::new(Precision::Half);
/// let vertices = g.vertices("vertices", 2708);
/// let cites = g.edges("cites", vertices, vertices, Norm::Both);
/// let x = g.input("features", vertices, 1433);
/// let w = g.weight("weight", (1433, 7));
/// let product = g.matmul(x, w);
/// let y = g.aggregate(cites, product);
/// let program = g.finish(y)?;
/// assert_eq!(program.listing(), "%2 = matmul features weight\n%3 = aggregate cites %2\n");
/// # Ok::<(), halfgnn::Error>(())
/// ```
#[derive(Debug)]
pub struct Builder {
    pub(super) program: Program,
    error: Option<Error>,
    prefix: String,
    layer: u32,
    /// Weights and dropouts of the layer so far.
    weights: u32,
    dropouts: u32,
    /// What the weight decay of parameters is multiplied by.
    decay: f32,
    /// The adjacency of a rank's part, where there are several ranks.
    of_rank: Option<Edges>,
    /// The rows of the destinations of an adjacency, where they are no sources.
    own: Option<(Edges, Value)>,
}

impl Builder {
    /// An empty program of elements of `precision`.
    pub fn new(precision: Precision) -> Self {
        Self {
            program: Program::new(precision),
            error: None,
            prefix: String::new(),
            layer: 0,
            weights: 0,
            dropouts: 0,
            decay: 1.0,
            of_rank: None,
            own: None,
        }
    }

    /// A set of vertices. [`Program::set_rows`] changes their number later.
    pub fn vertices(&mut self, name: &str, rows: usize) -> Vertices {
        let name = name.to_owned();
        self.program.vertices.push(VertexSet { name, rows });
        Vertices(self.program.vertices.len() - 1)
    }

    /// An adjacency with the degree norm of its edges. A layer over several edge types has one of each.
    pub fn edges(
        &mut self,
        name: &str,
        sources: Vertices,
        destinations: Vertices,
        norm: Norm,
    ) -> Edges {
        self.adjacency(name, [sources, destinations], norm, false)
    }

    /// The adjacency of a rank's part of a graph, to its own vertices from those and others. Dropouts are from now on by the vertices of the
    /// whole graph. A layer but the first reads [extended](Builder::extend) rows.
    pub fn edges_of_rank(
        &mut self,
        name: &str,
        sources: Vertices,
        destinations: Vertices,
        norm: Norm,
    ) -> Edges {
        let edges = self.adjacency(name, [sources, destinations], norm, true);
        self.of_rank = Some(edges);
        edges
    }

    /// Declares that all edges of the graph that `edges` are a rank's part of go both ways and have no weights. Ranks then exchange
    /// [quantized](super::passes::Quantize) messages. Nothing changes for the degree norm [`Norm::Left`], whose factors own rows alone do not have.
    pub fn edges_go_both_ways(&mut self, edges: Edges) {
        if let Some(set) = self.program.edges.get_mut(edges.0) {
            set.is_mutual = set.of_rank && set.norm != Norm::Left;
        }
    }

    fn adjacency(
        &mut self,
        name: &str,
        [sources, destinations]: [Vertices; 2],
        norm: Norm,
        of_rank: bool,
    ) -> Edges {
        self.program.edges.push(EdgeSet {
            name: name.to_owned(),
            sources,
            destinations,
            norm,
            of_rank,
            is_mutual: false,
            count: 0,
            largest_degree: 0,
            picks_own_rows: false,
            pools: false,
            exchanged: [0; 3],
        });
        Edges(self.program.edges.len() - 1)
    }

    /// The destinations of `edges` are anywhere among its sources, and not the first of them. Their rows are picked then, and nothing
    /// makes a gradient of the sources' rows.
    pub fn pick_own_rows(&mut self, edges: Edges) {
        if let Some(set) = self.program.edges.get_mut(edges.0) {
            set.picks_own_rows = true;
        }
    }

    /// Sets the largest degree of a destination of `edges`, for formulas that keep their sums in the range of half by it.
    pub fn set_largest_degree(&mut self, edges: Edges, degree: u32) {
        if let Some(set) = self.program.edges.get_mut(edges.0) {
            set.largest_degree = degree;
        }
    }

    /// The largest degree of a destination of `edges`, where it is [set](Builder::set_largest_degree); else 0.
    pub fn largest_degree(&self, edges: Edges) -> u32 {
        let set = self.program.edges.get(edges.0);
        set.map_or(0, |set| set.largest_degree)
    }

    /// What `build` writes down, with `decay` times the weight decay of a run for its parameters.
    pub fn with_decay<T>(&mut self, decay: f32, build: impl FnOnce(&mut Self) -> T) -> T {
        let before = std::mem::replace(&mut self.decay, decay);
        let built = build(self);
        self.decay = before;
        built
    }

    /// What `build` writes down as layer `number`: its parameters have `layers.N.` before their names, and initial weights
    /// and dropouts have the numbers of that layer.
    pub fn layer<T>(&mut self, number: u32, build: impl FnOnce(&mut Self) -> T) -> T {
        self.stage(&format!("layers.{number}"), number, build)
    }

    /// The same with `NAME.` before the names of its parameters.
    pub(super) fn stage<T>(
        &mut self,
        name: &str,
        number: u32,
        build: impl FnOnce(&mut Self) -> T,
    ) -> T {
        let prefix = std::mem::replace(&mut self.prefix, format!("{name}."));
        let before = (self.layer, self.weights, self.dropouts);
        (self.layer, self.weights, self.dropouts) = (number, 0, 0);
        let built = build(self);
        self.prefix = prefix;
        (self.layer, self.weights, self.dropouts) = before;
        built
    }

    /// What `build` writes down with `NAME.` before the names of its parameters, behind what is there before them.
    pub(super) fn scope<T>(&mut self, name: &str, build: impl FnOnce(&mut Self) -> T) -> T {
        let len = self.prefix.len();
        self.prefix.push_str(name);
        self.prefix.push('.');
        let built = build(self);
        self.prefix.truncate(len);
        built
    }

    /// What `build` writes down, for which the rows of the destinations of `edges` are `own`: of vertices of another type than the sources.
    pub(super) fn with_own_rows<T>(
        &mut self,
        edges: Edges,
        own: Value,
        build: impl FnOnce(&mut Self) -> T,
    ) -> T {
        let before = self.own.replace((edges, own));
        let built = build(self);
        self.own = before;
        built
    }

    /// A matrix of elements that the caller writes, a row for each of `vertices`.
    pub fn input(&mut self, name: &str, vertices: Vertices, columns: usize) -> Value {
        let rows = Rows::Of(vertices);
        self.named(
            name,
            (Shape { rows, columns }, Format::Element),
            Origin::Input,
        )
    }

    /// The weights of a linear map, which products read in the program's precision. Their gradient is float.
    pub fn weight(&mut self, name: &str, (rows, columns): (usize, usize)) -> Value {
        let initial = Initial::Glorot(self.number_of_weights());
        self.parameter(name, (rows, columns), Format::Element, initial)
    }

    /// A linear map to `outputs` columns, with the parameter `NAME.weight`.
    pub fn linear(&mut self, name: &str, outputs: usize, x: Value) -> Value {
        let shape = (self.columns(x), outputs);
        let weight = self.weight(&format!("{name}.weight"), shape);
        self.matmul(x, weight)
    }

    /// A linear map with a bias, `NAME.bias`.
    pub fn linear_with_bias(&mut self, name: &str, outputs: usize, x: Value) -> Value {
        let y = self.linear(name, outputs, x);
        let bias = self.bias(&format!("{name}.bias"), outputs);
        self.add_bias(y, bias)
    }

    /// A row for each of `vertices` that is learnt, of those that have no features. Any operator reads it, as it reads features.
    pub fn embedding(&mut self, name: &str, vertices: Vertices, columns: usize) -> Value {
        let number = self.number_of_weights();
        let initial = Initial::GlorotBlocks {
            number,
            rows: columns,
        };
        let name = self.in_layer(name);
        let rows = Rows::Of(vertices);
        let result = (Shape { rows, columns }, Format::Element);
        self.named(&name, result, Origin::Parameter(initial))
    }

    /// A bias of zeros, which operators read in float.
    pub fn bias(&mut self, name: &str, columns: usize) -> Value {
        self.parameter(name, (1, columns), Format::Float, Initial::Constant(0.0))
    }

    /// One float that is learnt, from `initial` on.
    pub fn scalar(&mut self, name: &str, initial: f32) -> Value {
        self.parameter(name, (1, 1), Format::Float, Initial::Constant(initial))
    }

    /// A weight with `blocks` blocks along its diagonal and zeros elsewhere, `rows` × `columns` in all. The parameter has
    /// the blocks one below the other. Products take it as a dense matrix.
    pub fn block_diagonal(
        &mut self,
        name: &str,
        (rows, columns): (usize, usize),
        blocks: usize,
    ) -> Value {
        if blocks == 0 || !rows.is_multiple_of(blocks) || !columns.is_multiple_of(blocks) {
            return self.fail(format!(
                "{name}: {rows} x {columns} is not {blocks} blocks of one size; take a divisor of both"
            ));
        }
        let (height, width) = (rows / blocks, columns / blocks);
        let number = self.number_of_weights();
        let initial = Initial::GlorotBlocks {
            number,
            rows: height,
        };
        let below = self.parameter(name, (rows, width), Format::Element, initial);
        let repeat = self.constant(Constant::Repeat {
            width,
            times: blocks,
        });
        let mask = self.constant(Constant::Blocks {
            blocks,
            rows: height,
            columns: width,
        });
        self.push(Operator::Matmul(Matmul {
            positive: Some(mask),
            ..Matmul::new(Form::NN, below, repeat)
        }))
    }

    /// `a · b`.
    pub fn matmul(&mut self, a: Value, b: Value) -> Value {
        self.push(Operator::Matmul(Matmul::new(Form::NN, a, b)))
    }

    /// `a · bᵀ`.
    pub fn matmul_transposed(&mut self, a: Value, b: Value) -> Value {
        self.push(Operator::Matmul(Matmul::new(Form::NT, a, b)))
    }

    /// The sum over the edges of each destination, with the degree norm of the edges: a mean with [`Norm::Right`]. Edges
    /// with weights multiply by them.
    pub fn aggregate(&mut self, edges: Edges, x: Value) -> Value {
        self.push(Operator::Aggregate(Aggregate {
            layer: self.layer,
            ..Aggregate::new(edges, Direction::Forward, x)
        }))
    }

    /// `x + bias`.
    pub fn add_bias(&mut self, x: Value, bias: Value) -> Value {
        self.activate(x, Some(bias), false, None)
    }

    /// `max(x, 0)`.
    pub fn relu(&mut self, x: Value) -> Value {
        self.activate(x, None, true, None)
    }

    /// `x` of which elements are dropped with this probability, the others divided by what is left of 1. A layer's first
    /// dropout and its further ones draw different numbers.
    pub fn dropout(&mut self, x: Value, probability: f32) -> Value {
        let drop = self.drop_with(probability);
        self.drop_by(drop, x)
    }

    /// `x` of which a dropout drops elements, if there is one.
    pub(super) fn drop_by(&mut self, drop: Option<Dropout>, x: Value) -> Value {
        match drop {
            Some(drop) if let Some(edges) = self.of_rank => {
                self.push(Operator::DropRows { edges, drop, x })
            }
            Some(drop) => self.activate(x, None, false, Some(drop)),
            None => x,
        }
    }

    /// The next dropout of the layer; none where nothing is dropped.
    pub(super) fn drop_with(&mut self, probability: f32) -> Option<Dropout> {
        if !(0.0..1.0).contains(&probability) {
            self.fail(format!(
                "dropout probability {probability} is not in [0, 1)"
            ));
            return None;
        }
        let stream = self.layer + (self.dropouts << 16);
        self.dropouts += 1;
        (probability > 0.0).then_some(Dropout {
            probability,
            stream,
        })
    }

    /// Leaves the number of the first dropout of a layer, which is that of its input.
    pub(super) fn skip_input_dropout(&mut self) {
        self.dropouts = self.dropouts.max(1);
    }

    /// The adjacency of a rank's part, where there are several ranks.
    pub(super) fn rank_part(&self) -> Option<Edges> {
        self.of_rank
    }

    /// The number of the layer that is written down.
    pub(super) fn layer_number(&self) -> u32 {
        self.layer
    }

    /// The precision of the program.
    pub(super) fn precision(&self) -> Precision {
        self.program.precision
    }

    /// Another activation function than a ReLU.
    pub fn nonlinearity(&mut self, function: Nonlinearity, x: Value) -> Value {
        self.push(Operator::Nonlinearity { function, x })
    }

    /// The activation function of a hidden layer.
    pub fn hidden_activation(&mut self, function: HiddenActivation, x: Value) -> Value {
        match function.nonlinearity() {
            Some(function) => self.nonlinearity(function, x),
            None if function == HiddenActivation::Relu => self.relu(x),
            None => x,
        }
    }

    /// `x + y`.
    pub fn add(&mut self, x: Value, y: Value) -> Value {
        self.combine(&[(1.0, x), (1.0, y)])
    }

    /// The sum of all values.
    pub fn sum(&mut self, values: &[Value]) -> Value {
        match values {
            [value] => *value,
            values => {
                let terms: Vec<_> = values.iter().map(|value| (1.0, *value)).collect();
                self.combine(&terms)
            }
        }
    }

    /// `Σ factor · value`.
    pub fn combine(&mut self, terms: &[(f32, Value)]) -> Value {
        let terms = terms.to_vec();
        self.push(Operator::Combine { terms })
    }

    /// `x ⊙ y`: the product element by element.
    pub fn multiply(&mut self, x: Value, y: Value) -> Value {
        self.push(Operator::Multiply { x, y })
    }

    /// The result of an operator of the caller's own.
    pub fn own(&mut self, operator: &Arc<dyn OwnOperator>, operands: &[Value]) -> Value {
        self.push(Operator::Own(Own {
            operator: Arc::clone(operator),
            operands: operands.to_vec(),
        }))
    }

    /// `factor · x` with a [scalar](Builder::scalar).
    pub fn scale(&mut self, x: Value, factor: Value) -> Value {
        self.push(Operator::Scale {
            x,
            factor,
            plus_one: false,
        })
    }

    /// `sum · aggregate(x) + own · (1 + epsilon) · own rows of x`, the last factor where an `epsilon` is learnt.
    pub fn aggregate_with_own(
        &mut self,
        edges: Edges,
        x: Value,
        (sum, own): (f32, f32),
        epsilon: Option<Value>,
    ) -> Value {
        let addend = Addend {
            factor: own,
            value: x,
            epsilon,
        };
        self.push(Operator::Aggregate(Aggregate {
            factor: sum,
            addend: Some(addend),
            layer: self.layer,
            ..Aggregate::new(edges, Direction::Forward, x)
        }))
    }

    /// Each row of a value with a row for each destination of `edges`, times the factor that the degree norm of `edges` has for it: of
    /// the norm `right` a row is divided by its degree.
    pub fn scale_rows(&mut self, edges: Edges, x: Value) -> Value {
        let (end, balanced) = (End::Destinations, false);
        let rows = RowFactors {
            edges,
            end,
            balanced,
        };
        self.push(Operator::ActivateGradient(ActivateGradient {
            d: x,
            relu: None,
            drop: None,
            rows: Some(rows),
        }))
    }

    /// The sum of the weights of the edges of each destination, with the degree norm of the edges: one column.
    pub fn degrees(&mut self, edges: Edges) -> Value {
        let Some(set) = self.program.edges.get(edges.0) else {
            return self.fail("degrees names an adjacency that the program has not".into());
        };
        let vertices = set.sources;
        let ones = self.program.ones(vertices);
        self.aggregate(edges, ones)
    }

    /// A value of one column, `times` times side by side.
    pub fn repeat(&mut self, x: Value, times: usize) -> Value {
        let width = self.columns(x);
        let repeat = self.constant(Constant::Repeat { width, times });
        self.matmul(x, repeat)
    }

    /// The columns of `x` among `columns` columns, from `first` on. The others are zero.
    pub fn place(&mut self, x: Value, first: usize, columns: usize) -> Value {
        let width = self.columns(x);
        if first + width > columns {
            return self.fail(format!(
                "{width} columns from column {first} on do not fit among {columns}"
            ));
        }
        if width == columns {
            return x;
        }
        let placing = self.constant(Constant::Placing {
            width,
            first,
            columns,
        });
        self.matmul(x, placing)
    }

    /// The rows of the destinations of `edges`, of a value with a row for each source: itself where those are the same
    /// vertices.
    pub fn own_rows(&mut self, edges: Edges, x: Value) -> Value {
        if let Some((_, own)) = self.own.filter(|(of, _)| *of == edges) {
            return own;
        }
        match self.is_square(edges) {
            true => x,
            false => self.push(Operator::OwnRows { edges, x }),
        }
    }

    /// The rows of all sources of a rank's part, of its own rows.
    pub fn extend(&mut self, edges: Edges, x: Value) -> Value {
        let layer = self.layer;
        self.push(Operator::Extend { edges, layer, x })
    }

    /// A row for each source of `edges`, of a value with a row for each destination: itself where those are the same vertices, and
    /// [extended](Builder::extend) where `edges` are a rank's part. A layer that aggregates several times reads these rows from its second
    /// sum on. See [`expect_hops`](Builder::expect_hops).
    pub fn all_rows(&mut self, edges: Edges, own: Value) -> Value {
        match self.is_square(edges) {
            true => own,
            false => self.extend(edges, own),
        }
    }

    /// Whether an adjacency is a rank's part of a graph.
    pub(super) fn is_of_rank(&self, edges: Edges) -> bool {
        let set = self.program.edges.get(edges.0);
        set.is_some_and(|set| set.of_rank)
    }

    /// Whether an adjacency leads from vertices to the same vertices.
    pub fn is_square(&self, edges: Edges) -> bool {
        edges.0 < self.program.edges.len() && self.program.is_square(edges)
    }

    /// The vertices that an adjacency leads to.
    pub(super) fn destinations(&self, edges: Edges) -> Vertices {
        self.program.edges[edges.0].destinations
    }

    /// The names of the vertices at both ends of an adjacency, and of the adjacency.
    pub(super) fn ends_of(&self, edges: Edges) -> Option<[&str; 3]> {
        let set = self.program.edges.get(edges.0)?;
        let name = |of: Vertices| self.program.vertices[of.0].name.as_str();
        Some([name(set.sources), name(set.destinations), &set.name])
    }

    /// The vertices that an adjacency reads.
    pub(super) fn sources(&self, edges: Edges) -> Vertices {
        self.program.edges[edges.0].sources
    }

    /// Columns of a value.
    pub fn columns(&self, x: Value) -> usize {
        self.program.values[x.0].shape.columns
    }

    /// Keeps `value` as [`Program::keep`] does, also where the output does not depend on it.
    pub fn keep(&mut self, value: Value) {
        self.program.keep(value);
    }

    /// The program, whose output a loss reads: a value of elements. Operators on which neither that nor a [kept](Builder::keep)
    /// value depends are left out.
    ///
    /// # Errors
    /// [`Error::Unsupported`] with the first operand that did not fit, or where two inputs or parameters have one name.
    pub fn finish(mut self, output: Value) -> Result<Program, Error> {
        if let Some(error) = self.error {
            return Err(error);
        }
        if self.program.values[output.0].format != Format::Element {
            return refuse(format!(
                "the output {} is float; a loss reads elements",
                self.program.describe(output)
            ));
        }
        self.program.output = Some(output);
        self.program.prune();
        self.program.forward = self.program.nodes.len();
        self.program.check()?;
        Ok(self.program)
    }

    fn activate(
        &mut self,
        x: Value,
        bias: Option<Value>,
        relu: bool,
        drop: Option<Dropout>,
    ) -> Value {
        self.push(Operator::Activate(Activate {
            x,
            add: None,
            bias,
            relu,
            drop,
        }))
    }

    pub(super) fn number_of_weights(&mut self) -> u32 {
        let number = self.layer | self.weights << 16;
        self.weights += 1;
        number
    }

    pub(super) fn parameter(
        &mut self,
        name: &str,
        (rows, columns): (usize, usize),
        format: Format,
        initial: Initial,
    ) -> Value {
        let rows = Rows::Fixed(rows);
        let name = self.in_layer(name);
        let parameter = self.named(
            &name,
            (Shape { rows, columns }, format),
            Origin::Parameter(initial),
        );
        if self.decay != 1.0 {
            self.program.decays.insert(parameter, self.decay);
        }
        parameter
    }

    pub(super) fn constant(&mut self, constant: Constant) -> Value {
        self.program.constant(constant, Format::Element)
    }

    /// A name with the layer's before it.
    pub(super) fn in_layer(&self, name: &str) -> String {
        format!("{}{name}", self.prefix)
    }

    pub(super) fn named(&mut self, name: &str, result: (Shape, Format), origin: Origin) -> Value {
        if self.program.named(name).is_some() {
            return self.fail(format!("two inputs or parameters are called {name}"));
        }
        self.program.add_value(name.to_owned(), result, origin)
    }

    pub(super) fn push(&mut self, operator: Operator) -> Value {
        if self.error.is_some() {
            return self.nothing();
        }
        match self.program.push(operator) {
            Ok(value) => value,
            Err(error) => {
                self.error = Some(error);
                self.nothing()
            }
        }
    }

    /// Puts an operator at the end of the list; its `N` results.
    pub(super) fn push_several<const N: usize>(&mut self, operator: Operator) -> [Value; N] {
        let first = self.push(operator);
        let results = self.program.nodes.last().map(|node| node.results.clone());
        let results = results.and_then(|results| <[Value; N]>::try_from(results).ok());
        results.unwrap_or([first; N])
    }

    pub(super) fn fail(&mut self, reason: String) -> Value {
        if self.error.is_none() {
            self.error = refuse::<()>(reason).err();
        }
        self.nothing()
    }

    /// A value in the place of one that could not be: the program is refused in the end.
    fn nothing(&mut self) -> Value {
        let rows = Rows::Fixed(0);
        let shape = Shape { rows, columns: 0 };
        self.program
            .add_value(String::new(), (shape, Format::Element), Origin::Operator)
    }
}
