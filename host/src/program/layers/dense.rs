//! A linear map of each row.

use super::Layer;
use crate::program::{Builder, Value};

/// `H · W`, of each vertex alone.
#[derive(Clone, Copy, Debug)]
pub struct Dense {
    /// Columns of the output.
    pub outputs: usize,
}

impl Layer for Dense {
    fn build(&self, g: &mut Builder, x: Value) -> Value {
        let weight = g.weight("weight", (g.columns(x), self.outputs));
        g.matmul(x, weight)
    }
}
