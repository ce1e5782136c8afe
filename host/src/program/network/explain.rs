//! The lists of a network as text: what each pass makes of them.

use super::topology::{Graphs, Topology};
use super::{for_evaluation, for_training};
use crate::error::Error;
use crate::nn::ModelConfig;
use crate::program::value::Edges;
use crate::program::{Plan, Program};
use crate::tensor::Precision;
use std::fmt;

/// What a network's lists are after each pass, over a whole graph. Its `Display` has a section for each.
///
/// ```
/// use halfgnn::nn::ModelConfig;
/// use halfgnn::program::Explanation;
/// use halfgnn::tensor::Precision;
///
/// let explanation = Explanation::new(&ModelConfig::gcn(1433, 7), Precision::Half, (2708, 13264))?;
/// assert!(explanation.to_string().contains("# training, after fuse"));
/// # Ok::<(), halfgnn::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct Explanation {
    training: Vec<(String, Program)>,
    evaluation: Vec<(String, Program)>,
}

impl Explanation {
    /// The lists of a model over a graph. `size` is its vertices and edges, those included that the model adds as self-loops.
    ///
    /// # Errors
    /// [`Error::Unsupported`] for a configuration that makes no model, and of a model whose layers have no formula.
    pub fn new(
        model: &ModelConfig,
        precision: Precision,
        size: (usize, usize),
    ) -> Result<Self, Error> {
        Self::of(model, precision, &|program| sized(program, size))
    }

    /// The lists of a model of several types of vertices over graphs with these numbers of edges of each type.
    ///
    /// # Errors
    /// Those of [`Explanation::new`].
    pub fn of_types(
        model: &ModelConfig,
        precision: Precision,
        edges: &[usize],
    ) -> Result<Self, Error> {
        Self::of(model, precision, &|program| {
            let mut program = program.clone();
            let all = edges.iter().take(program.edges.len()).enumerate();
            all.for_each(|(number, count)| program.set_edges(Edges(number), *count));
            program
        })
    }

    fn of(
        model: &ModelConfig,
        precision: Precision,
        sized: &dyn Fn(&Program) -> Program,
    ) -> Result<Self, Error> {
        model.check()?;
        let graphs = Graphs::of(Topology::of_whole_graphs(model));
        let (mut training, mut evaluation) = (Vec::new(), Vec::new());
        let mut keep = |name: &str, program: &Program| {
            training.push((name.to_owned(), sized(program)));
        };
        for_training(model, precision, (&graphs, false), &mut keep)?;
        let mut keep = |name: &str, program: &Program| {
            evaluation.push((name.to_owned(), sized(program)));
        };
        for_evaluation(model, precision, (&graphs, false), &mut keep)?;
        Ok(Self {
            training,
            evaluation,
        })
    }
}

fn sized(program: &Program, (vertices, edges): (usize, usize)) -> Program {
    let mut program = program.clone();
    if let Some(set) = program.edges.first().map(|edges| edges.sources) {
        program.set_rows(set, vertices);
        program.set_edges(Edges(0), edges);
    }
    program
}

impl fmt::Display for Explanation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let of = |what, lists| std::iter::repeat(what).zip(lists);
        let all =
            of("training", self.training.iter()).chain(of("evaluation", self.evaluation.iter()));
        for (number, (what, (name, program))) in all.enumerate() {
            if number > 0 {
                writeln!(f)?;
            }
            match name.as_str() {
                "formula" => writeln!(f, "# {what}, the formula")?,
                pass => writeln!(f, "# {what}, after {pass}")?,
            }
            write!(f, "{program}")?;
            let plan = Plan::new(program);
            let (activations, weights) = (plan.activations(), plan.weights());
            writeln!(
                f,
                "memory: activations {activations} B, weights {weights} B"
            )?;
        }
        Ok(())
    }
}
