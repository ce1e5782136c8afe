//! From rows of layers and of vertices to fewer: jumping knowledge and readout.

use crate::nn::Readout;
use crate::program::builder::Builder;
use crate::program::operator::Operator;
use crate::program::value::{Edges, Format, Initial, Value};

impl Builder {
    /// The largest of each element of values of one shape: jumping knowledge with the mode `max` (Xu et al., ICML 2018), of the outputs of
    /// all layers. Where several are largest, the gradient goes to the first.
    pub fn largest(&mut self, values: &[Value]) -> Value {
        match values {
            [value] => *value,
            values => {
                let terms = values.to_vec();
                self.push(Operator::Maximum { terms })
            }
        }
    }

    /// The linear map of values side by side: jumping knowledge with the mode `cat` (Xu et al., ICML 2018). It is a sum of products with
    /// the parameters `NAME.0.weight` and so on, so that nothing is copied to lie side by side.
    pub fn linear_of_all(&mut self, name: &str, values: &[Value], outputs: usize) -> Value {
        let widths: Vec<usize> = values.iter().map(|value| self.columns(*value)).collect();
        let weights = self.weights_of_all(name, &widths, outputs);
        let products = values.iter().zip(weights);
        let products: Vec<Value> = products
            .map(|(value, weight)| self.matmul(*value, weight))
            .collect();
        self.sum(&products)
    }

    /// The weights of a linear map of several values side by side, of the given numbers of columns: the parameters `NAME.0.weight` and so on.
    pub fn weights_of_all(&mut self, name: &str, widths: &[usize], outputs: usize) -> Vec<Value> {
        let (all, mut first) = (widths.iter().sum(), 0);
        let number = self.number_of_weights();
        let weights = widths.iter().enumerate().map(|(index, &width)| {
            let initial = Initial::GlorotRows { number, all, first };
            first += width;
            let name = format!("{name}.{index}.weight");
            self.parameter(&name, (width, outputs), Format::Element, initial)
        });
        weights.collect()
    }

    /// A row of each graph from the rows of its vertices. `edges` lead from vertices to graphs, with the degree norm `right` for a
    /// mean and none for a sum or a maximum.
    pub fn pool(&mut self, readout: Readout, edges: Edges, x: Value) -> Value {
        if let Some(set) = self.program.edges.get_mut(edges.0) {
            set.pools = true;
        }
        match readout {
            Readout::Max => self.push(Operator::GroupMaximum { edges, x }),
            Readout::Sum | Readout::Mean => self.aggregate(edges, x),
        }
    }
}
