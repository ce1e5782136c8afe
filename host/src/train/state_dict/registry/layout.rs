//! The layout of parameters in PyG's tensors.

use super::super::{StateDict, StateDictError, StateTensor, packed, refuse, spread, transposed};
use crate::program::layers::{Divisor, Layout, ParameterNames};
use crate::train::Tensor;
use std::collections::{BTreeMap, BTreeSet};

/// The placeholder for a relation or a number in a name.
const ANY: char = '*';

/// The part of a name for a relation or a number. Numbers are in ascending order.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Index(Option<u64>, String);

/// The text in the place of [`ANY`] in a name of this form.
fn part_of<'a>(form: &str, name: &'a str) -> Option<&'a str> {
    match form.split_once(ANY) {
        None => (form == name).then_some(""),
        Some((before, behind)) => name.strip_prefix(before)?.strip_suffix(behind),
    }
}

/// The prefix of a name that ends in this form, and that end.
pub(super) fn ends_with<'a>(form: &str, name: &'a str) -> Option<(&'a str, &'a str)> {
    let parts = form.matches('.').count() + 1;
    let ends: Vec<&str> = name.rsplitn(parts + 1, '.').collect();
    let prefix = ends.get(parts).copied().unwrap_or_default();
    let end = name.strip_prefix(prefix)?.trim_start_matches('.');
    part_of(form, end).map(|_| (prefix, end))
}

/// The widths of a layer that is converted.
#[derive(Clone, Copy, Debug)]
pub(super) struct Sides {
    /// The number of columns of its output.
    pub outputs: usize,
    /// The number of heads, and the columns of each.
    pub heads: (usize, usize),
}

/// A parameter of a layer.
#[derive(Clone, Debug)]
struct Part {
    /// Its position among the names of its kind, and the parts for relations and numbers.
    place: (usize, Vec<Index>),
    name: String,
    shape: (usize, usize),
    divisor: Divisor,
}

/// A tensor of PyG's, or one for each row of a parameter, and the parameters that it holds.
#[derive(Clone, Debug)]
pub(super) struct Joined {
    /// The names of its first parameter.
    pub names: &'static ParameterNames,
    /// The ends of PyG's names.
    pub theirs: Vec<String>,
    parts: Vec<Part>,
    sides: Sides,
}

/// The tensors that hold parameters of these names and shapes.
///
/// # Errors
/// The parameter without a name in PyG's layer.
pub(super) fn joined<'a>(
    of: &'static [ParameterNames],
    own: impl Iterator<Item = (&'a str, (usize, usize))>,
    sides: Sides,
) -> Result<Vec<Joined>, &'a str> {
    let mut tensors: BTreeMap<(bool, Vec<String>), Joined> = BTreeMap::new();
    for (name, shape) in own {
        let mut all = of.iter().enumerate();
        let found = all.find_map(|(place, of)| Some((place, of, part_of(of.here, name)?)));
        let (place, names, part) = match found {
            Some(found) if !found.1.pyg.names.is_empty() => found,
            _ => return Err(name),
        };
        let theirs = names.pyg.names.iter().map(|it| it.replace(ANY, part));
        let theirs: Vec<String> = theirs.collect();
        let indices = part.split('.').map(|it| Index(it.parse().ok(), it.into()));
        let part = Part {
            place: (place, indices.collect()),
            name: name.to_owned(),
            shape,
            divisor: names.divisor,
        };
        let tensor = tensors.entry((names.pyg.before, theirs.clone()));
        let tensor = tensor.or_insert(Joined {
            names,
            theirs,
            parts: Vec::new(),
            sides,
        });
        tensor.parts.push(part);
    }
    let mut tensors: Vec<Joined> = tensors.into_values().collect();
    for tensor in &mut tensors {
        tensor.parts.sort_unstable_by(|a, b| a.place.cmp(&b.place));
    }
    Ok(tensors)
}

impl Joined {
    /// Columns of a part without the padding of heads.
    fn columns(&self, part: &Part) -> usize {
        let (heads, columns) = self.sides.heads;
        match self.names.pyg.heads {
            true => heads * columns,
            false => part.shape.1,
        }
    }

    /// Whether it includes a divisor of the layer's input.
    pub(super) fn has_divisor(&self) -> bool {
        let mut parts = self.parts.iter();
        parts.any(|part| part.divisor != Divisor::Nothing)
    }

    /// A dimension for each part of the names.
    fn dimensions(&self) -> Vec<usize> {
        let count = self.parts.iter().map(|it| it.place.1.len()).min();
        let of = |at: usize| {
            let indices = self.parts.iter().map(|part| &part.place.1[at]);
            indices.collect::<BTreeSet<_>>().len()
        };
        (0..count.unwrap_or(0)).map(of).collect()
    }

    /// The shape of the tensor; where there are several, the shape of each.
    pub(super) fn shape(&self) -> Vec<usize> {
        let Some(first) = self.parts.first() else {
            return Vec::new();
        };
        let (rows, columns) = (first.shape.0, self.columns(first));
        let all_rows = self.parts.iter().map(|part| part.shape.0).sum();
        let all_columns = self.parts.iter().map(|part| self.columns(part)).sum();
        match self.names.pyg.layout {
            Layout::Same if rows == 1 || self.theirs.len() > 1 => vec![all_columns],
            Layout::Same | Layout::Matrix => vec![all_rows, columns],
            Layout::Linear => vec![columns, all_rows],
            Layout::Outputs => vec![all_columns, rows],
            Layout::Numbers => self.dimensions(),
            Layout::Stacked => {
                let mut shape = self.dimensions();
                let blocks = self.sides.outputs / columns.max(1);
                shape.extend((blocks > 1).then_some(blocks));
                shape.extend([rows / blocks.max(1), columns]);
                shape
            }
        }
    }

    /// PyG's tensors of the parameters, which `get` returns by their names here.
    pub(super) fn theirs_of(
        &self,
        get: impl Fn(&str, Divisor) -> Tensor,
    ) -> impl Iterator<Item = (&str, StateTensor)> {
        let mut values = Vec::new();
        let mut rows = 0;
        for part in &self.parts {
            let own = get(&part.name, part.divisor).values;
            let own = match self.names.pyg.heads {
                true => {
                    let (heads, columns) = self.sides.heads;
                    packed(&own, part.shape.1 / heads.max(1), columns)
                }
                false => own,
            };
            rows += part.shape.0;
            values.extend(match self.names.pyg.layout {
                Layout::Outputs => transposed(&own, part.shape.0),
                _ => own,
            });
        }
        if self.names.pyg.layout == Layout::Linear {
            values = transposed(&values, rows);
        }
        let shape = self.shape();
        let len = values.len() / self.theirs.len().max(1);
        let names = self.theirs.iter().enumerate();
        names.map(move |(at, name)| {
            let values = values[at * len..(at + 1) * len].to_vec();
            let shape = shape.clone();
            (&**name, StateTensor { shape, values })
        })
    }

    /// The parameters of PyG's tensors, which are removed from `tensors`. `full` makes a name of the file from its end.
    ///
    /// # Errors
    /// The tensor that is missing or of another shape.
    pub(super) fn own_of(
        &self,
        tensors: &mut StateDict,
        full: impl Fn(&str) -> String,
        layer: usize,
    ) -> Result<Vec<(String, Tensor)>, StateDictError> {
        let mut values = Vec::new();
        let wanted = self.shape();
        for end in &self.theirs {
            let Some(tensor) = tensors.remove(end) else {
                let part = self.parts.first().map_or("", |part| &*part.name);
                return refuse(format!(
                    "it has no tensor for `layers.{layer}.{part}`, which is `{}` in PyG; name the options that the model was made with",
                    full(end)
                ));
            };
            if tensor.shape != wanted || tensor.values.len() != wanted.iter().product::<usize>() {
                return refuse(format!(
                    "tensor `{}` is of shape {:?}, where {wanted:?} is needed; name the options that the model was made with",
                    full(end),
                    tensor.shape
                ));
            }
            values.extend(tensor.values);
        }
        if self.names.pyg.layout == Layout::Linear {
            values = transposed(&values, wanted[0]);
        }
        let mut own = Vec::with_capacity(self.parts.len());
        let mut first = 0;
        for part in &self.parts {
            let (rows, columns) = part.shape;
            let plain = self.columns(part);
            let values = &values[first..first + rows * plain];
            first += rows * plain;
            let values = match (self.names.pyg.layout, self.names.pyg.heads) {
                (Layout::Outputs, _) => transposed(values, plain),
                (_, true) => {
                    let (heads, head) = self.sides.heads;
                    spread(values, head, columns / heads.max(1))
                }
                _ => values.to_vec(),
            };
            let tensor = Tensor {
                rows,
                columns,
                values,
            };
            own.push((part.name.clone(), tensor));
        }
        Ok(own)
    }
}
