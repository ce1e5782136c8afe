//! Norms with their parameters.

use crate::nn::{HiddenNorm, Statistics};
use crate::program::builder::Builder;
use crate::program::operator::{
    BatchStatistics, GroupNorm, GroupScales, Normalization, Operator, Take,
};
use crate::program::value::{Buffer, Edges, Format, Initial, Origin, Rows, Shape, Value};

/// What a batch normalisation does besides its own formula.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct BatchNorm {
    /// What its input is multiplied by already: its output does not depend on it.
    pub scale: f32,
    /// Whether a ReLU follows.
    pub relu: bool,
    /// What an evaluation reads.
    pub evaluate_with: Statistics,
}

impl Builder {
    /// A batch normalisation (Ioffe and Szegedy, ICML 2015), with the parameters `NAME.weight` and `NAME.bias` and the buffer
    /// `NAME.running`.
    pub fn batch_norm(&mut self, name: &str, x: Value, of: BatchNorm) -> Value {
        let columns = self.columns(x);
        let weight = self.row(&format!("{name}.weight"), columns, 1.0);
        let bias = self.row(&format!("{name}.bias"), columns, 0.0);
        let rows = Rows::Fixed(2);
        let running = self.named(
            &self.in_layer(&format!("{name}.running")),
            (Shape { rows, columns }, Format::Float),
            Origin::Buffer(Buffer::RunningStatistics),
        );
        let statistics = self.push(Operator::BatchStatistics(BatchStatistics {
            x,
            running,
            scale: of.scale,
            take: Take::Training,
            evaluate_with: of.evaluate_with,
            of_rank: self.rank_part(),
            layer: self.layer_number(),
        }));
        let norm = Normalization {
            statistics,
            weight,
            bias,
            relu: of.relu,
        };
        self.push(Operator::Normalize { norm, x })
    }

    /// The norm of hidden rows, with the parameters `NAME.weight` and `NAME.bias` where it has some. Norms of a graph take all rows as
    /// one graph.
    pub fn hidden_norm(&mut self, name: &str, norm: HiddenNorm, x: Value) -> Value {
        self.hidden_norm_of(name, norm, None, x)
    }

    /// [`Builder::hidden_norm`], where norms of a graph take the vertices of each graph of `groups`: an adjacency of
    /// [`Readout::propagation`](crate::nn::Readout::propagation), from vertices to graphs.
    pub fn hidden_norm_of(
        &mut self,
        name: &str,
        norm: HiddenNorm,
        groups: Option<Edges>,
        x: Value,
    ) -> Value {
        let columns = self.columns(x);
        if norm.wants_whole_graphs() && self.rank_part().is_some() {
            return self.fail(format!(
                "a {norm} norm takes statistics of whole graphs, which several ranks do not exchange; take batch or layer, or one rank"
            ));
        }
        match norm {
            HiddenNorm::None => x,
            HiddenNorm::Batch => {
                let of = BatchNorm {
                    scale: 1.0,
                    relu: false,
                    evaluate_with: Statistics::Running,
                };
                self.batch_norm(name, x, of)
            }
            HiddenNorm::Layer => {
                let weight = self.row(&format!("{name}.weight"), columns, 1.0);
                let bias = self.row(&format!("{name}.bias"), columns, 0.0);
                self.push(Operator::NormalizeRows { x, weight, bias })
            }
            HiddenNorm::Pair => {
                let norm = GroupNorm::Pair;
                self.push(Operator::NormalizeGroups { norm, groups, x })
            }
            HiddenNorm::Graph => {
                let norm = GroupNorm::Graph(GroupScales {
                    weight: self.row(&format!("{name}.weight"), columns, 1.0),
                    bias: self.row(&format!("{name}.bias"), columns, 0.0),
                    mean_scale: self.row(&format!("{name}.mean_scale"), columns, 1.0),
                });
                self.push(Operator::NormalizeGroups { norm, groups, x })
            }
        }
    }

    fn row(&mut self, name: &str, columns: usize, value: f32) -> Value {
        self.parameter(name, (1, columns), Format::Float, Initial::Constant(value))
    }
}
