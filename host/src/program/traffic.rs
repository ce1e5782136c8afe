//! Bytes that an operator must move, whatever its kernel does.

use super::list::Program;
use super::operator::{Node, Operator};
use super::value::{Edges, Value};

/// The least bytes that an operator moves between memory and the device's cores.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Traffic {
    /// Rows that sums over neighbours read, a row for each edge, with the edge's index.
    pub gathered: u64,
    /// All else: each operand and each result once.
    pub streamed: u64,
}

impl Traffic {
    /// Both together.
    pub fn bytes(self) -> u64 {
        self.gathered + self.streamed
    }
}

/// Bytes of the index of an edge.
const INDEX: u64 = size_of::<u32>() as u64;

impl Program {
    /// What an operator moves, with the numbers of vertices and edges that the program has. What lies in caches is counted as well.
    pub fn traffic(&self, node: &Node) -> Traffic {
        let gathered = self.gathered(&node.operator);
        let mut read = node.operator.operands();
        read.sort_unstable();
        read.dedup();
        let is_gathered = |value: &Value| gathered.iter().any(|(_, of)| of == value);
        let streamed = read.iter().filter(|value| !is_gathered(value));
        let streamed = streamed.chain(&node.results);
        Traffic {
            gathered: gathered
                .iter()
                .map(|(edges, of)| self.gather(*edges, *of))
                .sum(),
            streamed: streamed.map(|value| self.bytes(*value)).sum(),
        }
    }

    /// Bytes of a row for each edge.
    fn gather(&self, edges: Edges, value: Value) -> u64 {
        let rows = self.rows(value).max(1) as u64;
        self.edge_count(edges) * (self.bytes(value) / rows + INDEX)
    }

    /// What an operator reads a row of for each edge of an adjacency.
    fn gathered(&self, operator: &Operator) -> Vec<(Edges, Value)> {
        match operator {
            Operator::Aggregate(op) => vec![(op.edges, op.codes.unwrap_or(op.x))],
            Operator::AggregateSigns(op) => vec![(op.edges, op.signs)],
            Operator::AggregateSignsMatmul(op) => vec![(op.edges, op.signs)],
            Operator::Attention(op) => vec![(op.edges, op.codes.unwrap_or(op.h))],
            Operator::AttentionGradient(op) => vec![(op.of.edges, op.codes.unwrap_or(op.d))],
            Operator::AdditiveAttention(op) => vec![(op.edges, op.sources)],
            Operator::AdditiveGradient(op) => {
                vec![(op.of.edges, op.of.sources), (op.of.edges, op.d)]
            }
            Operator::DotAttention(op) => vec![(op.edges, op.keys), (op.edges, op.values)],
            Operator::DotAttentionGradient(op) => {
                let of = &op.of;
                let rows = [of.keys, of.values, of.queries, op.d];
                rows.map(|rows| (of.edges, rows)).to_vec()
            }
            Operator::MessageSums(op) => op.gathered().map(|rows| (op.edges, rows)).collect(),
            Operator::MessageGradient(op) => {
                let of = &op.of;
                // Gradients of sources are sums over the transposed adjacency, which reads the rows of destinations.
                let of_sources = op.wanted.iter().any(|[_, source, _]| *source);
                let destinations = [of.gate.destination, of.value.destination, Some(op.d)];
                let destinations = destinations.into_iter().flatten().filter(|_| of_sources);
                let gathered = of.gathered().chain(destinations);
                gathered.map(|rows| (of.edges, rows)).collect()
            }
            Operator::ReduceMessages(op) => {
                let source = op.rows.source;
                source.map(|rows| (op.edges, rows)).into_iter().collect()
            }
            Operator::ReduceMessagesGradient(op) => {
                let of = &op.of;
                let destinations = [of.rows.destination, Some(op.d), op.y, op.kept];
                let destinations = destinations.into_iter().flatten();
                let gathered = destinations.filter(|_| op.wanted[1]);
                let gathered = of.rows.source.into_iter().chain(gathered);
                gathered.map(|rows| (of.edges, rows)).collect()
            }
            _ => Vec::new(),
        }
    }
}
