//! A program on a device: one loop over its operators, forward and backward.
//!
//! The element type is resolved once, where a [`Runner`] is made. Behind it is an object-safe [`Machine`], so a caller names neither
//! backend nor element type.

mod execute;
mod machine;
mod memory;
mod standardized;

use super::list::{EdgeSet, Program, refuse};
use super::operator::{Node, Operator};
use super::plan::{Place, Plan};
use super::value::{Edges, Format, Origin, Value};
use crate::backend::Backend;
use crate::backend::MemoryKind;
use crate::error::Error;
use crate::nn::Propagation;
use crate::ops::RandomState;
use crate::tensor::{Element, Matrix};
use crate::with_element;
use machine::{Bank, Elements, absent};
use std::collections::HashMap;
use std::fmt;
use std::ops::Range;
use std::sync::Arc;

pub(crate) use execute::{row_dots, sign};
pub(super) use machine::Typed;
pub(super) use memory::{Memory, Parameters};

/// What a program runs on, of any backend and precision.
trait Machine: fmt::Debug + Send {
    /// Runs operators in their order.
    fn run(&mut self, operators: Range<usize>) -> Result<(), Error>;
    /// Writes an input, a parameter or the seed.
    fn write(&mut self, value: Value, values: &[f32]) -> Result<(), Error>;
    /// Reads a value.
    fn read(&self, value: Value) -> Result<Vec<f32>, Error>;
    /// Sets the step that dropout is a function of.
    fn set_step(&mut self, step: u32) -> Result<(), Error>;
}

/// A program with its memory on a device.
///
/// ```
/// use halfgnn::backend::cpu::Cpu;
/// use halfgnn::graph::Graph;
/// use halfgnn::nn::{Norm, Propagation};
/// use halfgnn::program::{Builder, Runner, differentiate};
/// use halfgnn::tensor::Precision;
///
/// let graph = Graph::from_edges(3, &[0, 1], &[1, 2])?;
/// let mut g = Builder::new(Precision::Float);
/// let vertices = g.vertices("vertices", graph.vertices());
/// let edges = g.edges("edges", vertices, vertices, Norm::None);
/// let x = g.input("x", vertices, 1);
/// let w = g.weight("w", (1, 1));
/// let sum = g.aggregate(edges, x);
/// let y = g.matmul(sum, w);
/// let mut program = g.finish(y)?;
/// differentiate(&mut program)?;
///
/// let backend = Cpu::new();
/// let edges = Propagation::new(&backend, &graph, Norm::None)?.into();
/// let mut runner = Runner::new(&backend, program, vec![edges], 0)?;
/// runner.write(x, &[1.0, 2.0, 3.0])?;
/// runner.write(w, &[10.0])?;
/// runner.forward()?;
/// assert_eq!(runner.read(y)?, [20.0, 30.0, 0.0]);
/// runner.write_seed(&[1.0, 1.0, 1.0])?;
/// runner.backward()?;
/// assert_eq!(runner.gradient(w)?, [5.0]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct Runner {
    program: Program,
    plan: Plan,
    machine: Box<dyn Machine>,
    at: At,
}

/// How far a step is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum At {
    Start,
    Between,
    End,
}

impl Runner {
    /// Allocates the memory of a program on `backend` and makes its initial parameters from `seed`. `edges` has the adjacencies in
    /// the order in which they were [declared](super::Builder::edges), each with the degree norm that was declared.
    ///
    /// # Errors
    /// [`Error::Unsupported`] where the program is wrong or an adjacency has other sizes than its vertices, and
    /// [`Error::Driver`] where there is not enough memory.
    pub fn new<B: Backend>(
        backend: &B,
        mut program: Program,
        edges: Vec<Arc<Propagation<B>>>,
        seed: u64,
    ) -> Result<Self, Error> {
        program.check()?;
        if edges.len() != program.edges.len() {
            return refuse(format!(
                "the program has {} adjacencies, and {} are given",
                program.edges.len(),
                edges.len()
            ));
        }
        let all: Vec<&Propagation<B>> = edges.iter().map(Arc::as_ref).collect();
        program.check_edges(&all)?;
        program.size_edges(backend, &all);
        let plan = Plan::new(&program);
        let precision = program.precision;
        let machine: Box<dyn Machine> = with_element!(precision, E => {
            Box::new(Owned::<B, E>::new(backend, &program, &plan, edges, seed)?)
        });
        Ok(Self {
            program,
            plan,
            machine,
            at: At::Start,
        })
    }

    /// The program.
    pub fn program(&self) -> &Program {
        &self.program
    }

    /// Its memory.
    pub fn plan(&self) -> &Plan {
        &self.plan
    }

    /// Writes an input, a parameter or a buffer, row-major and without padding. Numbers are rounded to the nearest element.
    ///
    /// # Errors
    /// [`Error::Unsupported`] of any other value, [`Error::Shape`] where the length is another.
    pub fn write(&mut self, value: Value, values: &[f32]) -> Result<(), Error> {
        match self.program.values.get(value.0).map(|it| &it.origin) {
            Some(Origin::Input | Origin::Parameter(_) | Origin::Buffer(_)) => {
                self.machine.write(value, values)
            }
            _ => refuse(format!(
                "{value} is neither an input nor a parameter nor a buffer"
            )),
        }
    }

    /// Sets the step that dropout is a function of.
    ///
    /// # Errors
    /// Those of the device.
    pub fn set_step(&mut self, step: u32) -> Result<(), Error> {
        self.machine.set_step(step)
    }

    /// Runs the forward pass.
    ///
    /// # Errors
    /// Those of the operators.
    pub fn forward(&mut self) -> Result<(), Error> {
        self.at = At::Start;
        self.machine.run(0..self.program.forward)?;
        self.at = At::Between;
        Ok(())
    }

    /// Writes the gradient of the output, between the two passes.
    ///
    /// # Errors
    /// [`Error::Unsupported`] where there was no forward pass or there is no backward pass.
    pub fn write_seed(&mut self, values: &[f32]) -> Result<(), Error> {
        match (self.at, self.program.seed) {
            (At::Between, Some(seed)) => self.machine.write(seed, values),
            (_, None) => refuse("the program has no backward pass; differentiate it".into()),
            _ => refuse(
                "the seed is written behind a forward pass and before the backward pass".into(),
            ),
        }
    }

    /// Runs the backward pass of the last forward pass.
    ///
    /// # Errors
    /// [`Error::Unsupported`] where there was no forward pass, and those of the operators.
    pub fn backward(&mut self) -> Result<(), Error> {
        if self.at != At::Between {
            return refuse("a backward pass follows a forward pass".into());
        }
        self.at = At::End;
        self.machine
            .run(self.program.forward..self.program.nodes.len())
    }

    /// Reads a value that is there: inputs, parameters and [kept](Program::keep) values always; between the passes also the output and
    /// what the backward pass reads.
    ///
    /// # Errors
    /// [`Error::Unsupported`] of a value whose memory another one has, and those of the device.
    pub fn read(&self, value: Value) -> Result<Vec<f32>, Error> {
        let outside = self.program.values.get(value.0).is_some_and(|it| {
            matches!(
                it.origin,
                Origin::Input
                    | Origin::Parameter(_)
                    | Origin::Buffer(_)
                    | Origin::Constant(_)
                    | Origin::Ones
                    | Origin::EdgeFeatures(_)
            )
        });
        let is_known = value.0 < self.program.values.len();
        let there = is_known && self.plan.is_there(value, self.at == At::Between);
        match outside || (there && self.at != At::Start) {
            true => self.machine.read(value),
            false => refuse(format!(
                "{value} is not kept; name it by Program::keep before the plan is made"
            )),
        }
    }

    /// Reads the gradient of a parameter of the last backward pass.
    ///
    /// # Errors
    /// [`Error::Unsupported`] where the output does not depend on it or there was no backward pass.
    pub fn gradient(&self, parameter: Value) -> Result<Vec<f32>, Error> {
        match (self.program.gradient_of(parameter), self.at) {
            (Some(gradient), At::End) => self.machine.read(gradient),
            (None, _) => refuse(format!("{parameter} has no gradient")),
            _ => refuse("gradients are there behind a backward pass".into()),
        }
    }
}

impl Program {
    /// That adjacencies are what the program declares and reads.
    ///
    /// # Errors
    /// [`Error::Unsupported`] with the first that is not.
    pub(super) fn check_edges<B: Backend>(&self, edges: &[&Propagation<B>]) -> Result<(), Error> {
        for (number, (set, edges)) in self.edges.iter().zip(edges).enumerate() {
            self.check_rows(number, set, edges)?;
            self.check_weights(number, set, edges)?;
            self.check_features(number, set, edges)?;
        }
        Ok(())
    }

    /// That vertices are as declared, and own rows are where operators read them.
    fn check_rows<B: Backend>(
        &self,
        number: usize,
        set: &EdgeSet,
        edges: &Propagation<B>,
    ) -> Result<(), Error> {
        let declared = [set.sources, set.destinations].map(|it| self.vertices[it.0].rows);
        let given = [edges.sources(), edges.destinations()];
        if declared != given {
            return refuse(format!(
                "`{}` is declared from {} to {} vertices, and given from {} to {}",
                set.name, declared[0], declared[1], given[0], given[1]
            ));
        }
        let reads_own_rows = |node: &Node| match &node.operator {
            Operator::OwnRows { edges, .. } => edges.0 == number,
            Operator::Attention(op) => op.edges.0 == number,
            Operator::Aggregate(op) => op.edges.0 == number && op.own().is_some(),
            Operator::Matmul(op) => {
                let own = op.reads_own.into_iter().chain([op.adds_to_own]);
                own.flatten().any(|edges| edges.0 == number)
            }
            _ => false,
        };
        if !edges.has_own_rows() && self.nodes.iter().any(reads_own_rows) {
            return refuse(format!(
                "the program reads the own rows of destinations of `{}`, which are no sources; give those rows as a value",
                set.name
            ));
        }
        let is_copy = |node: &Node| matches!(node.operator, Operator::OwnRows { .. });
        let reads_first_rows = |node: &Node| reads_own_rows(node) && !is_copy(node);
        if edges.own().is_some() && self.nodes.iter().any(reads_first_rows) {
            return refuse(format!(
                "the destinations of `{}` lie anywhere among its sources, and an operator reads the first rows; sample it with the sources that it meets",
                set.name
            ));
        }
        Ok(())
    }

    /// That no operator reads edges with weights that has no place for them.
    fn check_weights<B: Backend>(
        &self,
        number: usize,
        set: &EdgeSet,
        edges: &Propagation<B>,
    ) -> Result<(), Error> {
        let weighted = edges.is_weighted();
        let attends = |node: &Node| match &node.operator {
            Operator::Attention(op) => op.edges.0 == number,
            Operator::AdditiveAttention(op) => op.edges.0 == number,
            Operator::DotAttention(op) => op.edges.0 == number,
            _ => false,
        };
        let messages = |node: &Node| match &node.operator {
            Operator::MessageSums(op) => op.edges.0 == number,
            _ => false,
        };
        let reduces = |node: &Node| match &node.operator {
            Operator::ReduceMessages(op) => op.edges.0 == number,
            _ => false,
        };
        if weighted && self.nodes.iter().any(reduces) {
            return refuse(format!(
                "the program takes maxima, softmax sums or deviations over `{}`, whose edges have weights, which those do not read; leave the weights out",
                set.name
            ));
        }
        if self.nodes.iter().any(messages) && (weighted || edges.column_scale().is_some()) {
            return refuse(format!(
                "the program sums messages over `{}`, whose edges have weights or a degree norm of sources; give weights as features of edges, and take the norm `right` or `none`",
                set.name
            ));
        }
        let sums_signs = |node: &Node| match &node.operator {
            Operator::AggregateSigns(op) => op.edges.0 == number,
            Operator::AggregateSignsMatmul(op) => op.edges.0 == number,
            _ => false,
        };
        if weighted && self.nodes.iter().any(sums_signs) {
            return refuse(
                "sums of signs have no weights of edges; leave these out, or take layers that are Binary::Full"
                    .into(),
            );
        }
        if weighted && self.nodes.iter().any(attends) {
            return refuse(format!(
                "the program attends over `{}`, whose edges have weights, without a term for weights of edges; give them as features of edges",
                set.name
            ));
        }
        Ok(())
    }

    /// That edges have the features that operators read, and what else is declared of them.
    fn check_features<B: Backend>(
        &self,
        number: usize,
        set: &EdgeSet,
        edges: &Propagation<B>,
    ) -> Result<(), Error> {
        let features = edges
            .edge_features()
            .map_or(0, |features| features.columns());
        let reads = self.edge_features_read(Edges(number));
        let other = reads.iter().find(|read| **read != features);
        let read = *other.or(reads.first()).unwrap_or(&0);
        if read != features {
            return refuse(format!(
                "the program reads {read} features of each edge, and its graph has {features}: `{}`",
                set.name
            ));
        }
        if set.is_mutual && !edges.exchanges_codes() {
            return refuse(format!(
                "`{}` is declared with edges that go both ways, have no weights and a degree norm of own rows, and is given otherwise",
                set.name
            ));
        }
        if edges.halo().is_some() != set.of_rank {
            return refuse(format!(
                "`{}` is {} the part of a rank, and is declared otherwise",
                set.name,
                if set.of_rank { "not" } else { "as given" }
            ));
        }
        Ok(())
    }

    /// How many features of each edge every reader of an adjacency's reads.
    fn edge_features_read(&self, edges: Edges) -> Vec<usize> {
        let terms = self.nodes.iter().filter_map(|node| match &node.operator {
            Operator::EdgeTerms(op) if op.edges == edges => Some(op.features),
            _ => None,
        });
        let of_edges = Origin::EdgeFeatures(edges);
        let rows = self.values.iter().filter(|value| value.origin == of_edges);
        terms.chain(rows.map(|value| value.shape.columns)).collect()
    }

    /// Sizes what has a number for each edge.
    pub(super) fn size_edges<B: Backend>(&mut self, backend: &B, edges: &[&Propagation<B>]) {
        for (number, edges) in edges.iter().enumerate() {
            self.set_edges(Edges(number), edges.forward().edges());
            if let Some(set) = self.edges.get_mut(number) {
                set.exchanged = edges.halo().map_or([0; 3], |halo| {
                    let ranks = halo.group().ranks();
                    [ranks, halo.packed_rows(), halo.returned_rows()]
                });
            }
        }
        self.keep_scores(|of, heads| {
            let edges = edges[of.0];
            backend.keeps_sums_of_scores(edges.sources(), edges.forward().edges(), heads)
        });
    }

    /// Rows and columns of a value in numbers.
    fn size(&self, value: Value) -> (usize, usize) {
        (self.rows(value), self.values[value.0].shape.columns)
    }

    fn format(&self, value: Value) -> Format {
        self.values[value.0].format
    }
}

/// A program with all that it reads.
#[derive(Debug)]
struct Owned<B: Backend, E: Element> {
    backend: B,
    program: Program,
    places: Vec<Place>,
    edges: Vec<Arc<Propagation<B>>>,
    inputs: HashMap<Value, Matrix<B, E>>,
    random: RandomState<B>,
    parameters: Parameters<B, E>,
    memory: Memory<B, E>,
}

impl<B: Backend, E: Element> Owned<B, E> {
    fn new(
        backend: &B,
        program: &Program,
        plan: &Plan,
        edges: Vec<Arc<Propagation<B>>>,
        seed: u64,
    ) -> Result<Self, Error> {
        let mut memory = Memory::new(backend)?;
        let all: Vec<&Propagation<B>> = edges.iter().map(Arc::as_ref).collect();
        let places = memory.fit(backend, (program, plan), &all)?;
        let inputs = program.inputs().into_iter().map(|input| {
            let (rows, columns) = program.size(input);
            let matrix = Matrix::zeros(backend, rows, columns, MemoryKind::Features)?;
            Ok((input, matrix))
        });
        Ok(Self {
            backend: backend.clone(),
            program: program.clone(),
            places,
            inputs: inputs.collect::<Result<_, Error>>()?,
            edges,
            random: RandomState::new(backend, seed, 0)?,
            parameters: Parameters::new(backend, program, seed)?,
            memory,
        })
    }

    /// Has `work` done with the program as it runs.
    fn with<T>(&mut self, work: impl FnOnce(&mut Typed<'_, B, E>) -> T) -> T {
        let edges: Vec<&Propagation<B>> = self.edges.iter().map(Arc::as_ref).collect();
        let inputs: Vec<_> = self.inputs.iter().map(|(value, it)| (*value, it)).collect();
        let mut typed = Typed {
            backend: self.backend.clone(),
            program: &self.program,
            places: &self.places,
            edges: &edges,
            inputs: &inputs,
            signs: None,
            random: self.random.clone(),
            parameters: &mut self.parameters,
            memory: &mut self.memory,
        };
        work(&mut typed)
    }
}

impl<B: Backend, E: Element> Machine for Owned<B, E> {
    fn run(&mut self, operators: Range<usize>) -> Result<(), Error> {
        self.with(|typed| typed.run(operators))
    }

    fn write(&mut self, value: Value, values: &[f32]) -> Result<(), Error> {
        let backend = self.backend.clone();
        if let Some(matrix) = self.inputs.get_mut(&value) {
            return matrix.write_f32(&backend, values);
        }
        if let Some(parameter) = self.parameters.of_mut(&self.program, value) {
            return parameter.write(&backend, values);
        }
        if let Some(buffer) = self.parameters.buffer_mut(&self.program, value) {
            return buffer.write_f32(&backend, values);
        }
        self.with(|typed| {
            let mut matrix = Elements::take(typed, value)?;
            let done = matrix.write_f32(&backend, values);
            Elements::put(typed, value, matrix);
            done
        })
    }

    fn read(&self, value: Value) -> Result<Vec<f32>, Error> {
        let (backend, program, memory) = (&self.backend, &self.program, &self.memory);
        if let Some(matrix) = self.inputs.get(&value) {
            return matrix.to_f32(backend);
        }
        if let Some(parameter) = self.parameters.of(program, value) {
            return parameter.master().to_f32(backend);
        }
        if let Some(buffer) = self.parameters.buffer(program, value) {
            return buffer.to_f32(backend);
        }
        match program.values[value.0].origin {
            Origin::Constant(constant) => return Ok(constant.values()),
            Origin::Ones => return Ok(vec![1.0; program.rows(value)]),
            Origin::EdgeFeatures(edges) => {
                return match self.edges[edges.0].edge_features() {
                    Some(features) => features.rows::<E>()?.to_f32(backend),
                    None => absent(value),
                };
            }
            _ => {}
        }
        match (program.format(value), self.places[value.0]) {
            (_, Place::Gradient(of)) => match self.parameters.of(program, of) {
                Some(parameter) => parameter.gradient().to_f32(backend),
                None => absent(value),
            },
            (Format::Element, place) => match memory.at(place) {
                Some(matrix) => matrix.to_f32(backend),
                None => absent(value),
            },
            (Format::Float, Place::Slot(slot)) => match memory.floats.get(&slot) {
                Some(matrix) => matrix.to_f32(backend),
                None => absent(value),
            },
            (Format::Float, _) => absent(value),
            (Format::Items | Format::Numbers | Format::Codes | Format::Bits, _) => refuse(format!(
                "{value} is an array that an operator computes in, and not a matrix"
            )),
        }
    }

    fn set_step(&mut self, step: u32) -> Result<(), Error> {
        self.random.set_step(&self.backend, step)
    }
}
