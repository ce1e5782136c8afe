//! The relational graph convolution (Schlichtkrull et al., ESWC 2018).

use super::{LayerKind, ParameterNames};
use crate::program::{Builder, Edges, Value};

/// Its names. It is no model of the command line, which has no graphs of several edge types.
pub(super) const KIND: LayerKind = LayerKind {
    name: "rgcn",
    title: "Relational graph convolutional network (Schlichtkrull et al.)",
    options: Vec::new,
    parameters: &[
        ParameterNames::same("root", &["root"], &["loop_weight"]),
        ParameterNames::same("weight.*", &["weight"], &["linear_r.W"]),
        ParameterNames::same("basis.*", &["weight"], &["linear_r.W"]),
        ParameterNames::same("comp.*", &["comp"], &["linear_r.coeff"]),
    ],
};

/// A type of edges, from vertices of one type to vertices of another.
#[derive(Clone, Debug)]
pub struct Relation {
    /// Its name, in the names of its parameters.
    pub name: String,
    /// The adjacency, with the norm `right` for the mean over the neighbours of the relation.
    pub edges: Edges,
    /// The type of the vertices that are read.
    pub source: usize,
    /// The type of the vertices that are written.
    pub destination: usize,
}

/// What the weights of the relations share.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Decomposition {
    /// Nothing: each relation has a weight of its own.
    None,
    /// Bases: `W_r = Σ_b a_rb · V_b`, with a number `a_rb` for each relation and basis.
    Basis(usize),
    /// Blocks along the diagonal of each weight.
    BlockDiagonal(usize),
}

/// `H_t · W_self + Σ_r A_r · H_s · W_r` for each type `t` of vertices, over the relations `r` that lead to it.
///
/// It has PyG's `RGCNConv` for values that are cut by type: the same mean over each relation, decompositions and self-connection,
/// whose weight all types share. Bias and activation are the network's.
#[derive(Clone, Debug)]
pub struct Rgcn {
    /// The edge types.
    pub relations: Vec<Relation>,
    /// What their weights share.
    pub decomposition: Decomposition,
    /// Columns of the output.
    pub outputs: usize,
}

impl Rgcn {
    /// Writes the layer down, from a value for each type of vertices to another one. All have the same columns.
    pub fn build(&self, g: &mut Builder, x: &[Value]) -> Vec<Value> {
        let shape = (x.first().map_or(0, |x| g.columns(*x)), self.outputs);
        let messages: Vec<Value> = match self.decomposition {
            Decomposition::None => self.each(|relation| {
                let weight = g.weight(&format!("weight.{}", relation.name), shape);
                g.matmul(x[relation.source], weight)
            }),
            Decomposition::BlockDiagonal(blocks) => self.each(|relation| {
                let name = format!("weight.{}", relation.name);
                let weight = g.block_diagonal(&name, shape, blocks);
                g.matmul(x[relation.source], weight)
            }),
            Decomposition::Basis(bases) => self.with_bases(g, x, shape, bases),
        };
        let root = g.weight("root", shape);
        let mut sums: Vec<Vec<Value>> = x.iter().map(|x| vec![g.matmul(*x, root)]).collect();
        for (relation, message) in self.relations.iter().zip(messages) {
            sums[relation.destination].push(g.aggregate(relation.edges, message));
        }
        sums.iter().map(|terms| g.sum(terms)).collect()
    }

    fn each(&self, message: impl FnMut(&Relation) -> Value) -> Vec<Value> {
        self.relations.iter().map(message).collect()
    }

    /// `Σ_b a_rb · (H · V_b)`: a product for each type of vertices and basis, which relations share, and none for a relation.
    fn with_bases(
        &self,
        g: &mut Builder,
        x: &[Value],
        shape: (usize, usize),
        bases: usize,
    ) -> Vec<Value> {
        let weights: Vec<Value> = (0..bases)
            .map(|it| g.weight(&format!("basis.{it}"), shape))
            .collect();
        let is_read = |of: usize| self.relations.iter().any(|relation| relation.source == of);
        let mut products = vec![Vec::new(); x.len()];
        for (of, products) in products
            .iter_mut()
            .enumerate()
            .filter(|(of, _)| is_read(*of))
        {
            *products = weights
                .iter()
                .map(|weight| g.matmul(x[of], *weight))
                .collect();
        }
        self.each(|relation| {
            let terms: Vec<Value> = products[relation.source]
                .iter()
                .enumerate()
                .map(|(basis, product)| {
                    let name = format!("comp.{}.{basis}", relation.name);
                    let share = g.scalar(&name, 1.0 / bases as f32);
                    g.scale(*product, share)
                })
                .collect();
            g.sum(&terms)
        })
    }
}
