//! The table of vertices.

use rustc_hash::FxHashMap;

use super::{Cell, Roles, Table, has_decimal_comma};
use crate::error::DataProblem;
use crate::message::shown;
use crate::open::Parts;
use crate::rules::{self, is_missing};
use crate::{
    ColumnNames, EdgeFeatures, Features, MAX_CLASSES, Origin, Preparation, Splits, Targets,
    UNLABELLED, VertexIds,
};
use halfgnn_graph::Graph;
use halfgnn_graph::index::MAX_VERTICES;

const SPLITS: [&str; 3] = ["train", "val", "test"];

/// What a table of vertices has.
pub(super) struct Nodes {
    vertices: usize,
    ids: Option<VertexIds>,
    lines: Vec<u64>,
    columns: usize,
    values: Vec<f32>,
    targets: Targets,
    class_names: Option<Vec<String>>,
    splits: Option<Splits>,
    done: Vec<Preparation>,
}

/// Which vertex an id is of.
pub(super) enum Index<'a> {
    /// Ids are texts.
    Texts(FxHashMap<&'a str, u32>),
    /// Ids are the numbers of the rows, of which this is the count.
    Rows(u32),
}

impl Index<'_> {
    /// The vertex, where there is one.
    pub fn get(&self, id: &str) -> Option<u32> {
        match self {
            Self::Texts(map) => map.get(id).copied(),
            Self::Rows(rows) => id.parse().ok().filter(|row| row < rows),
        }
    }
}

impl Nodes {
    pub fn vertices(&self) -> usize {
        self.vertices
    }

    /// Whether a column has labels.
    pub fn has_labels(&self) -> bool {
        self.targets.outputs() > 0
    }

    /// Whether a column has features.
    pub fn has_features(&self) -> bool {
        self.columns > 0
    }

    /// The vertex of each id.
    pub fn index(&self) -> Result<Index<'_>, DataProblem> {
        let Some(ids) = &self.ids else {
            return Ok(Index::Rows(self.vertices as u32));
        };
        let mut map: FxHashMap<&str, u32> = FxHashMap::default();
        if map.try_reserve(ids.len()).is_err() {
            return Err(too_many("ids", ids.len()));
        }
        for (vertex, id) in (0..).zip(ids.iter()) {
            if let Some(first) = map.insert(id, vertex) {
                let reason = format!(
                    "id '{}' stands in line {} already; every vertex has its own",
                    shown(id.as_bytes()),
                    self.lines[first as usize]
                );
                return Err(DataProblem::line(self.lines[vertex as usize], reason));
            }
        }
        Ok(Index::Texts(map))
    }

    /// All that there is, with what the table of edges says.
    pub fn into_parts(
        mut self,
        graph: Graph,
        edge_weights: Option<Vec<f32>>,
        edge_features: Option<EdgeFeatures>,
    ) -> Result<Parts, DataProblem> {
        let features = match self.columns {
            0 => {
                self.done.push(Preparation::no_features());
                Features::ones(self.vertices)?
            }
            columns => Features::dense(columns, self.values)?,
        };
        Ok(Parts {
            edge_weights,
            edge_features,
            class_names: self.class_names,
            ids: self.ids,
            splits: self.splits.into_iter().collect(),
            done: self.done,
            ..Parts::new(graph, features, self.targets)
        })
    }
}

/// Reads the table.
pub(super) fn read(table: &mut dyn Table, names: &ColumnNames) -> Result<Nodes, DataProblem> {
    let columns = table.names().to_vec();
    let mut roles = Roles::new(&columns, &names.ignored);
    let customary = ["id", "node_id", "node", "vertex"];
    let id = roles.take("--id-column", names.id.as_deref(), &customary)?;
    let labels: Vec<usize> = match &names.labels[..] {
        [] => roles
            .take("--label-columns", None, &["label", "y", "class"])?
            .into_iter()
            .collect(),
        named => {
            let mut at = Vec::new();
            for name in named {
                at.extend(roles.take("--label-columns", Some(name), &[])?);
            }
            at
        }
    };
    let split = roles.take("--split-column", names.split.as_deref(), &["split"])?;
    let masks = match split {
        Some(_) => [None; 3],
        None => {
            let mut masks = [None; 3];
            for (mask, name) in masks.iter_mut().zip(SPLITS) {
                *mask = roles.take("", None, &[&format!("{name}_mask")])?;
            }
            masks
        }
    };
    let mut done = Vec::new();
    let mut index = roles.take_index();
    roles.expect_names()?;
    let id = match id {
        // An index of pandas' that comes first names the rows.
        None if index.first() == Some(&0) => {
            let at = index.remove(0);
            let what = format!("{}, an index of pandas'", roles.shown(&[at]));
            done.push(Preparation::new("ids", what, Origin::Default));
            Some(at)
        }
        id => id,
    };
    roles.remarks("vertices", &index, &mut done);
    let features = roles.rest();

    let mut ids = id.map(|_| VertexIds::default());
    let mut label = Labels::new(labels.len());
    let mut splits = Splits::default();
    let (mut values, mut lines) = (Vec::new(), Vec::new());
    let mut vertices = 0_u64;
    table.for_each(&mut |line, cells| {
        if vertices == MAX_VERTICES || values.try_reserve(features.len()).is_err() {
            return Err(too_many("rows of the table of vertices", vertices as usize));
        }
        let vertex = vertices as u32;
        vertices += 1;
        lines.push(line);
        if let (Some(ids), Some(at)) = (&mut ids, id) {
            match cells[at].text() {
                text if text.is_empty() => {
                    return Err(DataProblem::line(line, "the id is empty"));
                }
                text => ids.push(&text)?,
            }
        }
        for (column, &at) in labels.iter().enumerate() {
            label.push(column, cells[at])?;
        }
        let lists = [&mut splits.train, &mut splits.val, &mut splits.test];
        if let Some(at) = split {
            if let Some(which) = split_of(cells[at], line)? {
                lists[which].push(vertex);
            }
        } else {
            for (list, at) in lists.into_iter().zip(masks) {
                if let Some(at) = at
                    && cells[at].truth(line, &columns[at])?
                {
                    list.push(vertex);
                }
            }
        }
        for &at in &features {
            values.push(cells[at].feature(line, &columns[at])?);
        }
        Ok(())
    })?;
    let vertices = vertices as usize;
    // Ids that are the rows' numbers say nothing that vertices do not say themselves.
    let is_row = |(row, id): (usize, &str)| id.parse() == Ok(row) && id == row.to_string();
    let ids = ids.filter(|ids| !ids.iter().enumerate().all(is_row));
    if id.is_none() {
        let what = "rows of the table of vertices, from 0, for it has no column of ids";
        done.push(Preparation::new("ids", what, Origin::Default));
    }
    let (targets, class_names) = label.finish(vertices, &mut done)?;
    let has_splits = split.is_some() || masks.iter().any(Option::is_some);
    Ok(Nodes {
        vertices,
        ids,
        lines,
        columns: features.len(),
        values,
        targets,
        class_names,
        splits: has_splits.then_some(splits),
        done,
    })
}

/// The number of a split.
fn split_of(cell: Cell<'_>, line: u64) -> Result<Option<usize>, DataProblem> {
    match cell.text().to_lowercase().as_str() {
        text if is_missing(text) => Ok(None),
        "train" | "training" => Ok(Some(0)),
        "val" | "valid" | "validation" | "dev" => Ok(Some(1)),
        "test" | "testing" => Ok(Some(2)),
        "-" => Ok(None),
        other => Err(DataProblem::line(
            line,
            format!(
                "'{}' is no split; it is train, val or test, or empty",
                shown(other.as_bytes())
            ),
        )),
    }
}

/// The columns of labels, read so far.
enum Labels {
    None,
    /// One column: each text that it has, and the number of each vertex's.
    One(FxHashMap<Box<str>, u32>, Vec<u32>),
    /// Several: numbers, by rows.
    Many(usize, Vec<f32>),
}

impl Labels {
    fn new(columns: usize) -> Self {
        match columns {
            0 => Self::None,
            1 => Self::One(FxHashMap::default(), Vec::new()),
            many => Self::Many(many, Vec::new()),
        }
    }

    fn push(&mut self, column: usize, cell: Cell<'_>) -> Result<(), DataProblem> {
        match self {
            Self::None => {}
            Self::One(texts, of_vertex) => {
                let text = cell.text();
                let number = match texts.get(&*text) {
                    Some(&number) => number,
                    None => {
                        let number = texts.len() as u32;
                        texts.insert(text.into(), number);
                        number
                    }
                };
                of_vertex.push(number);
            }
            Self::Many(_, values) => values.push(cell.number().ok_or_else(|| {
                DataProblem::value(
                    "labels",
                    values.len() as u64,
                    shown(cell.text().as_bytes()),
                    format!("in column {column} of the labels, which is no finite number"),
                )
            })?),
        }
        Ok(())
    }

    /// What they come to: numbers by [`rules`], and texts the names of classes.
    fn finish(
        self,
        vertices: usize,
        done: &mut Vec<Preparation>,
    ) -> Result<(Targets, Option<Vec<String>>), DataProblem> {
        let (texts, of_vertex) = match self {
            Self::None => return Ok((Targets::unlabelled(vertices), None)),
            Self::Many(columns, values) => {
                let (targets, what) = rules::targets(columns, values, "vertex")?;
                done.push(Preparation::new("targets", what, Origin::File));
                return Ok((targets, None));
            }
            Self::One(texts, of_vertex) => (texts, of_vertex),
        };
        let mut all: Vec<(Box<str>, u32)> = texts.into_iter().collect();
        all.sort_unstable();
        let numbers: Option<Vec<f64>> = all
            .iter()
            .map(|(text, _)| match is_missing(text) {
                true => Some(f64::NAN),
                false => text.parse().ok().filter(|number: &f64| number.is_finite()),
            })
            .collect();
        let mut of_text = vec![UNLABELLED; all.len()];
        if let Some(numbers) = numbers {
            let is_whole =
                |number: &f64| number.is_nan() || number.fract() == 0.0 && *number >= -1.0;
            let too_large = |((text, _), number): &(&(Box<str>, u32), &f64)| {
                **number >= f64::from(MAX_CLASSES) && text.bytes().all(|byte| byte.is_ascii_digit())
            };
            if numbers.iter().all(is_whole)
                && let Some(((text, place), _)) = all.iter().zip(&numbers).find(too_large)
            {
                let at = of_vertex.iter().position(|of| of == place);
                return Err(rules::no_class("labels", at.unwrap_or(0) as u64, text));
            }
            let mut value_of = vec![0.0_f32; all.len()];
            for ((_, place), number) in all.iter().zip(&numbers) {
                value_of[*place as usize] = *number as f32;
            }
            let values = of_vertex.iter().map(|&text| value_of[text as usize]);
            // As doubles: a float may have no place for a small fraction.
            let are_classes = numbers
                .iter()
                .all(|number| rules::class_of_float(*number).is_some());
            let (targets, what) = match are_classes {
                true => rules::targets(1, values.collect(), "vertex")?,
                false => rules::values(1, values.collect(), "vertex")?,
            };
            // That numbers without a point are classes need not be said.
            let has_points = all.iter().any(|(text, _)| text.contains('.'));
            if has_points || targets.classes().is_none() {
                done.push(Preparation::new("targets", what, Origin::File));
            }
            return Ok((targets, None));
        }
        let mut names = Vec::new();
        for (text, place) in all {
            if !is_missing(&text) {
                of_text[place as usize] = names.len() as u32;
                names.push(text.into_string());
            }
        }
        let some: Vec<_> = names
            .iter()
            .take(5)
            .map(|name| shown(name.as_bytes()))
            .collect();
        let more = if names.len() > some.len() {
            ", …"
        } else {
            ""
        };
        let mut what = format!(
            "{} names numbered by their alphabet: {}{more}",
            names.len(),
            some.join(", ")
        );
        if let Some(name) = names.iter().find(|name| has_decimal_comma(name)) {
            what.push_str(&format!(
                "; '{}' has a decimal comma, and is a number only as {}",
                shown(name.as_bytes()),
                shown(name.replace(',', ".").as_bytes())
            ));
        }
        done.push(Preparation::new("labels", what, Origin::File));
        let classes = of_vertex.iter().map(|&text| of_text[text as usize]);
        Ok((Targets::Classes(classes.collect()), Some(names)))
    }
}

pub(super) fn too_many(key: &str, elements: usize) -> DataProblem {
    DataProblem::OutOfMemory {
        key: key.into(),
        elements: elements as u64,
        bytes: elements as u64 * 4,
    }
}
