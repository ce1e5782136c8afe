//! What there is one of a vertex, of all vertices.

use super::layout::Sections;
use super::manifest::{Manifest, TargetKind};
use crate::error::DataProblem;
use crate::targets::Values;
use crate::{LabelSets, Splits, Targets};
use std::io::Read;

/// The bits of a vertex' flags that say its split: 0 for none, then training, validation, test.
pub(super) const SPLIT: u8 = 3;
/// The bit of a self-loop.
pub(super) const LOOP: u8 = 4;

/// What is known of every vertex, whichever rank has its part.
#[derive(Clone, Debug, PartialEq)]
pub struct VertexTable {
    /// The part of each vertex.
    pub owners: Vec<u32>,
    /// Edges that lead to it.
    pub in_degrees: Vec<u32>,
    /// Edges that lead from it.
    pub out_degrees: Vec<u32>,
    pub(super) flags: Vec<u8>,
    /// The prediction targets.
    pub targets: Targets,
    /// Of a graph whose edges have weights.
    pub sums: Option<WeightSums>,
    /// Whether every edge has one the other way, where that is known.
    pub mutual: Option<bool>,
}

/// The sums of edge weights, each added in the order of the whole graph's edges. A sum therefore has the same bits on
/// every rank.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct WeightSums {
    /// Of the edges that lead to each vertex: as they are, and with a self-loop of weight 1 where it has none.
    pub rows: [Vec<f64>; 2],
    /// Of those that lead from it.
    pub columns: [Vec<f64>; 2],
}

/// A bit of rows of `columns` bits, each in words of its own.
fn bit(words: &[u32], columns: usize, vertex: usize, column: usize) -> bool {
    words[vertex * LabelSets::words_of(columns) + column / 32] >> (column % 32) & 1 == 1
}

/// Labels of rows of bits.
fn labels(
    columns: usize,
    words: &[u32],
    is_known: impl Fn(usize, usize) -> bool,
) -> Result<Targets, DataProblem> {
    let vertices = words.len() / LabelSets::words_of(columns).max(1);
    let truth = |at: usize| {
        let (vertex, column) = (at / columns, at % columns);
        is_known(vertex, column).then(|| bit(words, columns, vertex, column))
    };
    let truths = (0..vertices * columns).map(truth);
    LabelSets::new(columns, truths).map(Targets::from)
}

impl VertexTable {
    /// The table of a graph without weights, splits and targets. `looped` are the vertices with a self-loop.
    ///
    /// # Panics
    /// If one of these is no vertex.
    pub fn of_degrees(
        owners: Vec<u32>,
        [in_degrees, out_degrees]: [Vec<u32>; 2],
        looped: &[u32],
        mutual: Option<bool>,
    ) -> Self {
        let mut flags = vec![0; owners.len()];
        for &vertex in looped {
            flags[vertex as usize] = LOOP;
        }
        Self {
            owners,
            in_degrees,
            out_degrees,
            flags,
            targets: Targets::Classes(Vec::new()),
            sums: None,
            mutual,
        }
    }

    /// The number of vertices.
    pub fn vertices(&self) -> usize {
        self.owners.len()
    }

    /// Whether `vertex` has a self-loop.
    ///
    /// # Panics
    /// If there is no such vertex.
    pub fn has_loop(&self, vertex: usize) -> bool {
        self.flags[vertex] & LOOP != 0
    }

    /// Vertices without a self-loop.
    pub fn without_loops(&self) -> usize {
        self.flags
            .iter()
            .filter(|&&flags| flags & LOOP == 0)
            .count()
    }

    /// The vertices of each split, ascending.
    pub fn splits(&self) -> Splits {
        let of = |split: u8| -> Vec<u32> {
            let vertices = self.flags.iter().enumerate();
            vertices
                .filter(|(_, flags)| **flags & SPLIT == split)
                .map(|(vertex, _)| vertex as u32)
                .collect()
        };
        Splits {
            train: of(1),
            val: of(2),
            test: of(3),
        }
    }

    /// Reads the file of a manifest, behind its header.
    pub(super) fn read(source: impl Read, manifest: &Manifest) -> Result<Self, DataProblem> {
        let layout = manifest.vertices_layout();
        let layout = layout.ok_or_else(|| DataProblem::part("vertices", "too many"))?;
        let mut sections = Sections::new(source, layout);
        let owners = sections.read("parts")?;
        let in_degrees = sections.read("in_degrees")?;
        let out_degrees = sections.read("out_degrees")?;
        let flags: Vec<u8> = sections.read("splits")?;
        let targets = match manifest.targets {
            TargetKind::Classes => {
                let classes = Targets::Classes(sections.read("targets")?);
                sections.read::<u8>("targets")?;
                classes
            }
            TargetKind::Labels(columns) => {
                let words: Vec<u32> = sections.read("targets")?;
                let known: Vec<u8> = sections.read("known")?;
                let is_known = |vertex: usize, _: usize| known[vertex] != 0;
                labels(columns as usize, &words, is_known)?
            }
            TargetKind::PartialLabels(columns) => {
                let words: Vec<u32> = sections.read("targets")?;
                let known: Vec<u32> = sections.read("known")?;
                let columns = columns as usize;
                labels(columns, &words, |vertex, column| {
                    bit(&known, columns, vertex, column)
                })?
            }
            TargetKind::Values(columns) => {
                let values = sections.read("targets")?;
                sections.read::<u8>("targets")?;
                Values::new(columns as usize, values)?.into()
            }
        };
        let mut sums = [(); 4].map(|()| Vec::new());
        for sum in &mut sums {
            *sum = sections.read("sums of weights")?;
        }
        sections.finish(manifest.vertices_sum()?)?;
        let [rows, rows_with, columns, columns_with] = sums;
        let table = Self {
            owners,
            in_degrees,
            out_degrees,
            flags,
            targets,
            sums: manifest.edge_weights.then_some(WeightSums {
                rows: [rows, rows_with],
                columns: [columns, columns_with],
            }),
            mutual: None,
        };
        table.check(manifest)?;
        Ok(table)
    }

    /// Checks that it has the parts that the manifest names.
    fn check(&self, manifest: &Manifest) -> Result<(), DataProblem> {
        let parts = manifest.parts.len();
        let mut counts = DataProblem::with_capacity::<[u64; 2]>("parts", parts as u64)?;
        counts.resize(parts, [0, 0]);
        for (vertex, &owner) in self.owners.iter().enumerate() {
            let Some(count) = counts.get_mut(owner as usize) else {
                let why = format!("but there are {parts} parts, numbered from 0");
                return Err(DataProblem::value("parts", vertex as u64, owner, why));
            };
            count[0] += 1;
            count[1] += u64::from(self.in_degrees[vertex]);
        }
        for (number, (count, part)) in counts.iter().zip(&manifest.parts).enumerate() {
            if *count != [part.vertices, part.edges] {
                let reason = format!(
                    "part {number} has {} vertices and {} edges, where manifest.json says {} and {}",
                    count[0], count[1], part.vertices, part.edges
                );
                return Err(DataProblem::part("parts", reason));
            }
        }
        let out: u64 = self
            .out_degrees
            .iter()
            .map(|&degree| u64::from(degree))
            .sum();
        if out != manifest.edges {
            let reason = format!(
                "they add up to {out}, where there are {} edges",
                manifest.edges
            );
            return Err(DataProblem::part("out_degrees", reason));
        }
        if let Some(at) = self.flags.iter().position(|&flags| flags > SPLIT | LOOP) {
            let why = "which is no split";
            return Err(DataProblem::value("splits", at as u64, self.flags[at], why));
        }
        if let Some(sums) = &self.sums {
            let all = sums.rows.iter().chain(&sums.columns);
            for of in all {
                if let Some(at) = of.iter().position(|sum| !sum.is_finite()) {
                    let why = "which is not finite";
                    return Err(DataProblem::value(
                        "sums of weights",
                        at as u64,
                        of[at],
                        why,
                    ));
                }
            }
        }
        self.targets.check()?;
        self.splits().check(&self.targets)
    }
}
