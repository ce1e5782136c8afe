//! The prediction targets of each vertex.

use super::error::DataProblem;
use super::{MAX_CLASSES, UNLABELLED};
use halfgnn_graph::reorder::Permutation;

/// The prediction targets of each vertex. The variant decides which losses and metrics apply.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub enum Targets {
    /// One class of each vertex, or [`UNLABELLED`]: single-label classification. Where nothing is known of any vertex,
    /// this is it too: see [`Targets::unlabelled`].
    Classes(Vec<u32>),
    /// Any number of labels of each vertex: multi-label classification.
    Labels(LabelSets),
    /// Numbers of each vertex: regression.
    Values(Values),
}

/// For each vertex, which labels it has, and of which that is unknown.
///
/// A row is `columns` bits in words of 32, the first label in the lowest bit of the first word; bits past the last
/// label are 0.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LabelSets {
    columns: usize,
    words: Vec<u32>,
    /// Which entries are known, in words as above; `None` where all are. The bit of an unknown entry is 0 in `words`.
    known: Option<Vec<u32>>,
    partial: bool,
}

/// For each vertex, a row of numbers. NaN is an unknown number.
#[derive(Debug, Clone)]
pub struct Values {
    columns: usize,
    values: Vec<f32>,
    partial: bool,
}

impl LabelSets {
    /// From a truth for each vertex and label, row-major; `None` where it is unknown. A vertex without a known label
    /// may be in no split.
    ///
    /// # Errors
    /// [`DataProblem::Shape`] where there are no columns, more than [`MAX_CLASSES`], or truths of part of a row;
    /// [`DataProblem::OutOfMemory`].
    pub fn new(
        columns: usize,
        truths: impl ExactSizeIterator<Item = Option<bool>>,
    ) -> Result<Self, DataProblem> {
        check_columns(columns, truths.len())?;
        let (vertices, width) = (truths.len() / columns, Self::words_of(columns));
        let mut words = DataProblem::with_capacity("y", vertices as u64 * width as u64)?;
        words.resize(vertices * width, 0_u32);
        let mut known = DataProblem::with_capacity("y", vertices as u64 * width as u64)?;
        known.resize(vertices * width, 0_u32);
        for (at, truth) in truths.enumerate() {
            let (vertex, column) = (at / columns, at % columns);
            let (word, bit) = (vertex * width + column / 32, 1 << (column % 32));
            if truth == Some(true) {
                words[word] |= bit;
            }
            if truth.is_some() {
                known[word] |= bit;
            }
        }
        let counts = known.chunks_exact(width).map(ones);
        let partial = counts.clone().any(|count| 0 < count && count < columns);
        let all = counts.into_iter().all(|count| count == columns);
        Ok(Self {
            columns,
            words,
            known: (!all).then_some(known),
            partial,
        })
    }

    /// The number of words in a row of `columns` labels.
    pub const fn words_of(columns: usize) -> usize {
        columns.div_ceil(32)
    }

    /// The number of labels.
    pub fn columns(&self) -> usize {
        self.columns
    }

    /// The bits of all rows, one row after the other.
    pub fn words(&self) -> &[u32] {
        &self.words
    }

    /// Whether `vertex` has label `column`; `false` where that is unknown.
    ///
    /// # Panics
    /// If there is no such vertex or label.
    pub fn has(&self, vertex: usize, column: usize) -> bool {
        self.bit(&self.words, vertex, column)
    }

    /// Whether `vertex` has label `column`; `None` where that is unknown.
    ///
    /// # Panics
    /// If there is no such vertex or label.
    pub fn get(&self, vertex: usize, column: usize) -> Option<bool> {
        let known = self.known.as_ref();
        let is_known = known.is_none_or(|known| self.bit(known, vertex, column));
        is_known.then(|| self.has(vertex, column))
    }

    /// The bits that say which entries are known, in the layout of [`words`](Self::words); `None` where all are.
    pub fn known_words(&self) -> Option<&[u32]> {
        self.known.as_deref()
    }

    fn bit(&self, words: &[u32], vertex: usize, column: usize) -> bool {
        assert!(column < self.columns, "there is no label {column}");
        let word = words[vertex * Self::words_of(self.columns) + column / 32];
        word >> (column % 32) & 1 == 1
    }

    /// The number of entries of `vertex` that are known.
    fn known_of(&self, vertex: usize) -> usize {
        let width = Self::words_of(self.columns);
        match &self.known {
            Some(known) => ones(&known[vertex * width..][..width]),
            None => self.columns,
        }
    }

    fn vertices(&self) -> usize {
        self.words.len() / Self::words_of(self.columns)
    }

    /// How many vertices have each label.
    pub fn counts(&self) -> Vec<usize> {
        let mut counts = vec![0; self.columns];
        for row in self.words.chunks_exact(Self::words_of(self.columns)) {
            for (column, count) in counts.iter_mut().enumerate() {
                *count += (row[column / 32] >> (column % 32) & 1) as usize;
            }
        }
        counts
    }
}

impl Values {
    /// From rows of `columns` numbers; NaN where one is not known.
    ///
    /// # Errors
    /// [`DataProblem::Shape`] where there are no columns, more than [`MAX_CLASSES`], or numbers of part of a row;
    /// [`DataProblem::Value`] where one is infinite.
    pub fn new(columns: usize, values: Vec<f32>) -> Result<Self, DataProblem> {
        check_columns(columns, values.len())?;
        let is_partial = |row: &[f32]| {
            let unknown = row.iter().filter(|value| value.is_nan()).count();
            0 < unknown && unknown < columns
        };
        match values.iter().position(|value| value.is_infinite()) {
            None => Ok(Self {
                columns,
                partial: values.chunks_exact(columns).any(is_partial),
                values,
            }),
            Some(at) => Err(DataProblem::value(
                "y",
                at as u64,
                values[at],
                "where a finite number is wanted, or NaN for one that is not known",
            )),
        }
    }

    /// The number of values of a vertex.
    pub fn columns(&self) -> usize {
        self.columns
    }

    /// All rows, one after the other.
    pub fn values(&self) -> &[f32] {
        &self.values
    }

    /// The values of `vertex`.
    ///
    /// # Panics
    /// If there is no such vertex.
    pub fn row(&self, vertex: usize) -> &[f32] {
        &self.values[vertex * self.columns..(vertex + 1) * self.columns]
    }
}

/// By bits, so that what is not known equals itself.
impl PartialEq for Values {
    fn eq(&self, other: &Self) -> bool {
        let bits = |of: &Self| of.values.iter().map(|value| value.to_bits()).collect();
        let [mine, its]: [Vec<u32>; 2] = [bits(self), bits(other)];
        self.columns == other.columns && mine == its
    }
}

/// The number of bits that are set.
fn ones(words: &[u32]) -> usize {
    words.iter().map(|word| word.count_ones() as usize).sum()
}

fn check_columns(columns: usize, elements: usize) -> Result<(), DataProblem> {
    if (1..=MAX_CLASSES as usize).contains(&columns) && elements.is_multiple_of(columns) {
        return Ok(());
    }
    let wanted = format!("a row a vertex of 1 to {MAX_CLASSES} columns");
    let shape = [elements.checked_div(columns).unwrap_or(0), columns];
    Err(DataProblem::shape(
        "y",
        &shape.map(|side| side as u64),
        wanted,
    ))
}

impl Targets {
    /// Nothing is known of any vertex: what a model may be asked to predict of, and cannot be trained on.
    pub fn unlabelled(vertices: usize) -> Self {
        Self::Classes(vec![UNLABELLED; vertices])
    }

    /// The number of vertices.
    pub fn vertices(&self) -> usize {
        match self {
            Self::Classes(classes) => classes.len(),
            Self::Labels(labels) => labels.vertices(),
            Self::Values(values) => values.values.len() / values.columns,
        }
    }

    /// The number of outputs of a model for a vertex: of classes one more than the largest, of labels and values their
    /// columns; 0 where nothing is known of any vertex.
    pub fn outputs(&self) -> usize {
        match self {
            Self::Classes(classes) => {
                let labelled = classes.iter().filter(|&&class| class != UNLABELLED);
                labelled.max().map_or(0, |&largest| largest as usize + 1)
            }
            Self::Labels(labels) => labels.columns,
            Self::Values(values) => values.columns,
        }
    }

    /// Whether something is known of `vertex`, so that it may be in a split.
    ///
    /// # Panics
    /// If there is no such vertex.
    pub fn is_labelled(&self, vertex: usize) -> bool {
        self.known_of(vertex) > 0
    }

    /// The number of entries of `vertex` that are known: 1 or 0 of classes, up to the columns of labels and values.
    ///
    /// # Panics
    /// If there is no such vertex.
    pub fn known_of(&self, vertex: usize) -> usize {
        match self {
            Self::Classes(classes) => usize::from(classes[vertex] != UNLABELLED),
            Self::Labels(labels) => labels.known_of(vertex),
            Self::Values(values) => {
                let row = values.row(vertex).iter();
                row.filter(|value| !value.is_nan()).count()
            }
        }
    }

    /// Whether entry `column` of `vertex` is known; of classes the column does not matter.
    ///
    /// # Panics
    /// If there is no such vertex or column.
    pub fn is_known(&self, vertex: usize, column: usize) -> bool {
        match self {
            Self::Classes(classes) => classes[vertex] != UNLABELLED,
            Self::Labels(labels) => labels.get(vertex, column).is_some(),
            Self::Values(values) => !values.row(vertex)[column].is_nan(),
        }
    }

    /// Whether some vertices have both known and unknown entries. Losses and metrics then leave the unknown entries
    /// out. [`selected`](Self::selected) keeps this, so that all batches of a task agree.
    pub const fn is_partial(&self) -> bool {
        match self {
            Self::Classes(_) => false,
            Self::Labels(labels) => labels.partial,
            Self::Values(values) => values.partial,
        }
    }

    /// What they are, in words.
    pub const fn description(&self) -> &'static str {
        match self {
            Self::Classes(_) => "a class of each vertex",
            Self::Labels(_) => "any number of labels of each vertex",
            Self::Values(_) => "numbers of each vertex",
        }
    }

    /// The unit of a model's outputs: `classes`, `labels` or `values`.
    pub const fn unit(&self) -> &'static str {
        match self {
            Self::Classes(_) => "classes",
            Self::Labels(_) => "labels",
            Self::Values(_) => "values",
        }
    }

    /// The class of each vertex, where it has one.
    pub fn classes(&self) -> Option<&[u32]> {
        match self {
            Self::Classes(classes) => Some(classes),
            _ => None,
        }
    }

    /// That no class is too large.
    pub(crate) fn check(&self) -> Result<(), DataProblem> {
        let classes = self.classes().unwrap_or_default();
        let is_wrong = |&class: &u32| class != UNLABELLED && class >= MAX_CLASSES;
        match classes.iter().position(is_wrong) {
            None => Ok(()),
            Some(at) => {
                let why = format!(
                    "but more than {MAX_CLASSES} classes are not supported; number them from 0"
                );
                Err(DataProblem::value("labels", at as u64, classes[at], why))
            }
        }
    }

    /// Those of some vertices, in this order.
    ///
    /// # Panics
    /// If there is no such vertex.
    pub fn selected(&self, vertices: &[u32]) -> Self {
        let of = vertices.iter().map(|&vertex| vertex as usize);
        match self {
            Self::Classes(classes) => Self::Classes(of.map(|vertex| classes[vertex]).collect()),
            Self::Labels(labels) => {
                let width = LabelSets::words_of(labels.columns);
                let rows = |words: &[u32]| -> Vec<u32> {
                    let row = |vertex: usize| &words[vertex * width..][..width];
                    of.clone().flat_map(row).copied().collect()
                };
                Self::Labels(LabelSets {
                    words: rows(&labels.words),
                    known: labels.known.as_deref().map(rows),
                    ..*labels
                })
            }
            Self::Values(values) => Self::Values(Values {
                values: of.flat_map(|vertex| values.row(vertex)).copied().collect(),
                ..*values
            }),
        }
    }

    /// The rows in another order.
    ///
    /// # Panics
    /// Where there is not one for each vertex of `order`.
    pub(crate) fn reordered(&self, order: &Permutation) -> Self {
        match self {
            Self::Classes(classes) => Self::Classes(order.apply(classes, 1)),
            Self::Labels(labels) => {
                let rows = |words: &[u32]| order.apply(words, LabelSets::words_of(labels.columns));
                Self::Labels(LabelSets {
                    words: rows(&labels.words),
                    known: labels.known.as_deref().map(rows),
                    ..*labels
                })
            }
            Self::Values(values) => Self::Values(Values {
                values: order.apply(&values.values, values.columns),
                ..*values
            }),
        }
    }
}

impl From<Vec<u32>> for Targets {
    fn from(classes: Vec<u32>) -> Self {
        Self::Classes(classes)
    }
}

impl From<LabelSets> for Targets {
    fn from(labels: LabelSets) -> Self {
        Self::Labels(labels)
    }
}

impl From<Values> for Targets {
    fn from(values: Values) -> Self {
        Self::Values(values)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use halfgnn_graph::Graph;
    use halfgnn_graph::reorder::by_degree;

    /// 33 labels, so that a row is two words; nothing is known of vertex 1, and of vertex 2 all but label 4.
    fn labels() -> LabelSets {
        let truth = |at: usize| (at / 33 != 1 && at != 70).then_some(at.is_multiple_of(32));
        LabelSets::new(33, (0..99).map(truth)).expect("whole rows")
    }

    #[test]
    fn labels_are_bits() {
        let labels = labels();
        assert_eq!(labels.words(), [1, 1, 0, 0, 1 << 30, 0]);
        assert!(labels.has(0, 32) && labels.has(2, 30) && !labels.has(2, 31));
        assert_eq!(
            [labels.get(1, 0), labels.get(2, 4), labels.get(2, 5)],
            [None, None, Some(false)]
        );
        let counts = labels.counts();
        assert_eq!((counts[0], counts[30], counts[32]), (1, 1, 1));
        let targets = Targets::from(labels);
        assert_eq!((targets.vertices(), targets.outputs()), (3, 33));
        assert_eq!(
            [0, 1, 2].map(|v| targets.is_labelled(v)),
            [true, false, true]
        );
        assert_eq!([0, 1, 2].map(|v| targets.known_of(v)), [33, 0, 32]);
        assert!(targets.is_partial() && targets.selected(&[0]).is_partial());
        let whole = LabelSets::new(2, [Some(true), Some(false), None, None].into_iter());
        assert!(!Targets::from(whole.expect("whole rows")).is_partial());
    }

    #[test]
    fn values_may_be_unknown_but_not_infinite() {
        let values = Values::new(2, vec![0.5, -3.0, 1.0, f32::NAN]).expect("whole rows");
        assert_eq!(values.row(0), [0.5, -3.0]);
        assert_eq!(values, values.clone());
        let targets = Targets::from(values);
        assert_eq!((targets.vertices(), targets.outputs()), (2, 2));
        assert!(targets.is_labelled(1) && targets.is_known(1, 0) && !targets.is_known(1, 1));
        assert!(targets.is_partial());
        let none = Targets::from(Values::new(2, vec![f32::NAN; 2]).expect("whole rows"));
        assert!(!none.is_labelled(0) && !none.is_partial());
        let refused = |columns, values: &[f32]| {
            Values::new(columns, values.to_vec())
                .unwrap_err()
                .to_string()
        };
        assert!(refused(1, &[0.0, f32::INFINITY]).starts_with("y[1] is inf, where a finite"));
        assert!(refused(2, &[0.0]).starts_with("y: the shape is [0, 2], where a row a vertex"));
        assert!(refused(0, &[]).starts_with("y: the shape is [0, 0]"));
        let wide = LabelSets::new(65_537, [].into_iter())
            .unwrap_err()
            .to_string();
        assert!(wide.starts_with("y: the shape is [0, 65537]"), "{wide}");
    }

    #[test]
    fn rows_move_with_their_vertices() {
        // By degree 1 comes first.
        let graph = Graph::from_edges(3, &[1, 1, 2], &[0, 2, 1]).expect("a legal graph");
        let order = by_degree(&graph);
        let values = Values::new(2, (0..6).map(|x| x as f32).collect()).expect("whole rows");
        let all = [
            vec![7, UNLABELLED, 2].into(),
            labels().into(),
            values.into(),
        ];
        for old in all as [Targets; 3] {
            let new = old.reordered(&order);
            assert_ne!(new, old);
            for vertex in 0..3 {
                let renamed = order.rename(vertex as u32) as usize;
                assert_eq!(new.is_labelled(renamed), old.is_labelled(vertex));
                match (&new, &old) {
                    (Targets::Classes(new), Targets::Classes(old)) => {
                        assert_eq!(new[renamed], old[vertex]);
                    }
                    (Targets::Labels(new), Targets::Labels(old)) => {
                        let same = |label| new.get(renamed, label) == old.get(vertex, label);
                        assert!((0..33).all(same));
                    }
                    (Targets::Values(new), Targets::Values(old)) => {
                        assert_eq!(new.row(renamed), old.row(vertex));
                    }
                    _ => panic!("{old:?} became {new:?}"),
                }
            }
        }
        assert_eq!(Targets::unlabelled(2).outputs(), 0);
    }
}
