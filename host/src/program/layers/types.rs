//! Layers over several types of vertices and edges.

use super::Layer;
use crate::program::{Builder, Edges, Value};
use std::fmt;

/// A type of edges, from vertices of one type to vertices of another.
#[derive(Clone, Debug)]
pub struct Relation {
    /// Its name, in the names of its parameters.
    pub name: String,
    /// The adjacency.
    pub edges: Edges,
    /// The type of the vertices that are read.
    pub source: usize,
    /// The type of the vertices that are written.
    pub destination: usize,
}

/// What a layer over several types reads and writes.
#[derive(Clone, Debug)]
pub struct TypeReads {
    /// The names of the types of vertices.
    pub types: Vec<String>,
    /// The types of edges that lead to a type that is written.
    pub relations: Vec<Relation>,
    /// Which types of vertices are written: those that a later layer or the loss reads.
    pub written: Vec<bool>,
}

impl TypeReads {
    /// One type of vertices, and one of edges, which is called `edges`.
    pub fn of_one_type(edges: Edges) -> Self {
        let relation = Relation {
            name: "edges".into(),
            edges,
            source: 0,
            destination: 0,
        };
        Self {
            types: vec!["vertices".into()],
            relations: vec![relation],
            written: vec![true],
        }
    }

    /// The types that are written.
    pub(in crate::program) fn destinations(&self) -> impl Iterator<Item = usize> + '_ {
        (0..self.written.len()).filter(|of| self.written[*of])
    }

    /// The types of edges that lead to a type of vertices.
    pub(in crate::program) fn leading_to(&self, of: usize) -> impl Iterator<Item = &Relation> + '_ {
        let relations = self.relations.iter();
        relations.filter(move |relation| relation.destination == of)
    }
}

/// A value for each type of vertices; none of a type that nothing reads.
pub type OfTypes = [Option<Value>];

/// A layer over several types of vertices and edges.
pub trait TypedLayer: fmt::Debug {
    /// Writes the formula down, from a value for each type to a value for each that is written. `sources` has the rows that edges start at and
    /// `own` those that they lead to, which are the same where a layer reads whole graphs.
    fn build(&self, g: &mut Builder, sources: &OfTypes, own: &OfTypes) -> Vec<Option<Value>>;
}

/// A layer over several types, of a graph that has one.
#[derive(Debug)]
pub struct OfOneType<L> {
    /// The adjacency.
    pub edges: Edges,
    /// The layer, which reads [one type](TypeReads::of_one_type).
    pub layer: L,
}

impl<L: TypedLayer> Layer for OfOneType<L> {
    fn build(&self, g: &mut Builder, x: Value) -> Value {
        let own = g.own_rows(self.edges, x);
        let y = self.layer.build(g, &[Some(x)], &[Some(own)]);
        value_of(g, &y, 0)
    }
}

/// The value of a type.
pub(super) fn value_of(g: &mut Builder, x: &OfTypes, of: usize) -> Value {
    match x.get(of) {
        Some(Some(value)) => *value,
        _ => g.fail(format!(
            "a layer reads vertices of type {of}, of which nothing is known"
        )),
    }
}

/// A linear map for each type, with the parameters `TYPE.weight`.
#[derive(Clone, Debug)]
pub struct DenseOfTypes {
    /// The types.
    pub reads: TypeReads,
    /// Columns of the output.
    pub outputs: usize,
}

impl TypedLayer for DenseOfTypes {
    fn build(&self, g: &mut Builder, _: &OfTypes, own: &OfTypes) -> Vec<Option<Value>> {
        let mut y = vec![None; own.len()];
        for of in self.reads.destinations() {
            let x = value_of(g, own, of);
            y[of] = Some(g.linear(&self.reads.types[of], self.outputs, x));
        }
        y
    }
}
