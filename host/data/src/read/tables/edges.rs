//! The table of edges.

use super::nodes::{Index, too_many};
use super::{Cell, Roles, Table};
use crate::error::DataProblem;
use crate::message::shown;
use crate::{ColumnNames, EdgeFeatures, Preparation};

/// What a table of edges has, in its order.
pub(super) struct Edges {
    pub sources: Vec<u32>,
    pub targets: Vec<u32>,
    /// Where they are not all 1.
    pub weights: Option<Vec<f32>>,
    pub features: Option<EdgeFeatures>,
    /// What is said of its columns.
    pub done: Vec<Preparation>,
}

/// Reads the table, whose sources and targets these are.
pub(super) fn read(
    table: &mut dyn Table,
    names: &ColumnNames,
    [of_sources, of_targets]: [&Index<'_>; 2],
) -> Result<Edges, DataProblem> {
    let columns = table.names().to_vec();
    let mut roles = Roles::new(&columns, &names.ignored);
    let mut end = |option, named: &Option<String>, customary: &[&str]| {
        let at = roles.take(option, named.as_deref(), customary)?;
        at.ok_or_else(|| {
            let DataProblem::Line { line, reason } = roles.missing(customary[0]) else {
                return roles.missing(customary[0]);
            };
            let mut reason = format!("{reason}; name it by {option}");
            if !roles.numbers().is_empty() {
                reason.push_str(", or begin the table with a line of names, such as source,target");
            }
            DataProblem::line(line, reason)
        })
    };
    let source = end("--source-column", &names.source, &["source", "src", "from"])?;
    let target = end("--target-column", &names.target, &["target", "dst", "to"])?;
    let weight = roles.take(
        "--weight-column",
        names.weight.as_deref(),
        &["weight", "edge_weight"],
    )?;
    let mut done = Vec::new();
    let of_pandas = roles.take_index();
    roles.remarks("edges", &of_pandas, &mut done);
    let others = roles.rest();

    let (mut sources, mut targets) = (Vec::new(), Vec::new());
    let (mut weights, mut features) = (Vec::new(), Vec::new());
    table.for_each(&mut |line, cells| {
        let reserved = sources.try_reserve(1).is_ok()
            && targets.try_reserve(1).is_ok()
            && weights.try_reserve(1).is_ok()
            && features.try_reserve(others.len()).is_ok();
        if !reserved {
            return Err(too_many("rows of the table of edges", sources.len()));
        }
        sources.push(vertex(cells[source], of_sources, line)?);
        targets.push(vertex(cells[target], of_targets, line)?);
        if let Some(at) = weight {
            weights.push(cells[at].feature(line, &columns[at])?);
        }
        for &at in &others {
            features.push(cells[at].feature(line, &columns[at])?);
        }
        Ok(())
    })?;
    let features = match others.len() {
        0 => None,
        columns => Some(EdgeFeatures::new(columns, features)?),
    };
    Ok(Edges {
        sources,
        targets,
        weights: weights
            .iter()
            .any(|&weight| weight != 1.0)
            .then_some(weights),
        features,
        done,
    })
}

/// The vertex that an end is called.
fn vertex(cell: Cell<'_>, index: &Index<'_>, line: u64) -> Result<u32, DataProblem> {
    let id = cell.text();
    index.get(&id).ok_or_else(|| {
        let what = match index {
            Index::Texts(_) => "no id of the table of vertices".into(),
            Index::Rows(rows) => {
                format!("no row of the table of vertices, which has {rows} and no column of ids")
            }
        };
        DataProblem::line(line, format!("'{}' is {what}", shown(id.as_bytes())))
    })
}
