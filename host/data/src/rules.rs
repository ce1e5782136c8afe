//! How values are read: the rules of files, of tables and of the Python package's arrays. `docs/data.md` has them under
//! "How values are read".
//!
//! | what | rule |
//! |---|---|
//! | a missing value | NaN, an empty cell, or one of [`is_missing`]'s texts |
//! | a class | a whole number from 0 to [`MAX_CLASSES`] − 1, of integers, floats, truths and texts alike; −1 or missing: none |
//! | a label of several columns | 0 or 1; −1 (where zeros say "no") or missing: unknown |
//! | a value | any other number; missing: unknown |
//! | a selection of vertices | one truth, or 0 or 1, a vertex is a mask; other integers are a list of vertices |

use crate::error::DataProblem;
use crate::targets::{LabelSets, Targets, Values};
use crate::{MAX_CLASSES, UNLABELLED};

/// Whether a text stands for no value, in any case of letters: what pandas writes and reads so.
pub fn is_missing(text: &str) -> bool {
    ["", "nan", "na", "n/a", "<na>", "null", "none"]
        .iter()
        .any(|missing| text.eq_ignore_ascii_case(missing))
}

/// A truth as texts have it.
pub(crate) fn truth_of(text: &str) -> Option<bool> {
    match text {
        "true" | "True" | "TRUE" => Some(true),
        "false" | "False" | "FALSE" => Some(false),
        _ => None,
    }
}

/// The class that a whole number stands for, [`UNLABELLED`] of −1; `None` where it is none.
pub fn class_of(number: i64) -> Option<u32> {
    match number {
        -1 => Some(UNLABELLED),
        number => u32::try_from(number)
            .ok()
            .filter(|class| *class < MAX_CLASSES),
    }
}

/// The class that a number stands for, as [`class_of`] has it of one without a fraction; NaN has none.
pub(crate) fn class_of_float(number: f64) -> Option<u32> {
    match number {
        number if number.is_nan() => Some(UNLABELLED),
        number if number.fract() == 0.0 && number.abs() < 1e15 => class_of(number as i64),
        _ => None,
    }
}

/// That a number of an array is no class.
pub(crate) fn no_class(key: &str, index: u64, number: impl ToString) -> DataProblem {
    let why = format!("but there are {MAX_CLASSES} classes at most, numbered from 0 (-1 for none)");
    DataProblem::value(key, index, number.to_string(), why)
}

/// Classes of integers, one a vertex.
///
/// # Errors
/// [`DataProblem::Value`] where one is no class.
pub fn classes(key: &str, numbers: &[i64]) -> Result<Targets, DataProblem> {
    let class = |(at, &number)| class_of(number).ok_or_else(|| no_class(key, at, number));
    let classes: Result<Vec<u32>, _> = (0..).zip(numbers).map(class).collect();
    classes.map(Targets::Classes)
}

/// What rows of `columns` numbers are taken for, and why, in words of `member` (`vertex`). One column of whole numbers
/// are classes, several of zeros and ones are labels, and others are values. Classes that are certain get no
/// explanation.
///
/// # Errors
/// Those of [`LabelSets::new`] and [`Values::new`], and [`DataProblem::Value`] where labels are −1 and 1.
pub fn targets(
    columns: usize,
    numbers: Vec<f32>,
    member: &str,
) -> Result<(Targets, String), DataProblem> {
    if columns == 1 {
        let class = |&number: &f32| class_of_float(number.into());
        let classes: Option<Vec<u32>> = numbers.iter().map(class).collect();
        return match classes {
            Some(classes) => {
                let what = format!(
                    "a class of each {member}, for the numbers are whole; numbers by --task regression"
                );
                Ok((Targets::Classes(classes), what))
            }
            None => values(1, numbers, member),
        };
    }
    let is = |truth: f32| move |number: &&f32| **number == truth;
    let is_label = |number: &f32| [0.0, 1.0, -1.0].contains(number) || number.is_nan();
    let are_labels = numbers.iter().all(is_label);
    if let (true, Some(at)) = (
        are_labels,
        numbers.iter().position(|number| *number == -1.0),
    ) && !numbers.contains(&0.0)
    {
        return Err(DataProblem::value(
            "y",
            at as u64,
            -1,
            "next to 1 and without a 0; write 0 where a label is not, and -1 or NaN where it is unknown",
        ));
    }
    if !are_labels {
        return values(columns, numbers, member);
    }
    let one_each = numbers
        .chunks_exact(columns)
        .all(|row| row.iter().filter(is(1.0)).count() == 1);
    let mut what = format!("any number of {columns} labels of each {member}");
    if one_each {
        what.push_str(
            "; each has exactly one: if these are classes, keep their numbers, argmax of a row",
        );
    }
    let truth = |number: &f32| match *number {
        0.0 => Some(false),
        1.0 => Some(true),
        _ => None,
    };
    let labels = LabelSets::new(columns, numbers.iter().map(truth))?;
    let unknown = numbers.iter().filter(|number| truth(number).is_none());
    let unknown = unknown.count();
    if unknown > 0 {
        what.push_str(&format!("; {unknown} of {} are unknown", numbers.len()));
    }
    Ok((labels.into(), what))
}

/// Rows of `columns` numbers as values, whatever they look like, and what is said of that.
///
/// # Errors
/// Those of [`Values::new`].
pub fn values(
    columns: usize,
    numbers: Vec<f32>,
    member: &str,
) -> Result<(Targets, String), DataProblem> {
    let what = match columns {
        1 => format!("a number of each {member}, for regression"),
        _ => format!("{columns} numbers of each {member}, for regression"),
    };
    Ok((Values::new(columns, numbers)?.into(), what))
}

/// What the numbers of an array are that selects vertices.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Selects {
    /// Truths.
    Truths,
    /// Integers.
    Integers,
    /// Floats.
    Floats,
}

/// How an array selects vertices.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Selection {
    /// Those where it is not 0.
    Mask,
    /// Those that it names, each once.
    List,
}

/// How an array selects some of `vertices`. An array of one truth a vertex, or one 0 or 1 a vertex, is a mask, whatever
/// its type; any other integers are a list. So `[0, 1]` of two vertices is a mask; as a list it can be written
/// `[1, 0]`, or left out.
///
/// # Errors
/// [`DataProblem::Shape`] of truths of another length, [`DataProblem::NoVertex`] where a number is no vertex, and
/// [`DataProblem::Value`] where a vertex is named twice or a float is neither 0 nor 1.
pub fn selection(
    key: &str,
    selects: Selects,
    numbers: &[f64],
    vertices: usize,
) -> Result<Selection, DataProblem> {
    let are_bits = numbers.iter().all(|number| [0.0, 1.0].contains(number));
    if are_bits && numbers.len() == vertices {
        return Ok(Selection::Mask);
    }
    if selects == Selects::Truths {
        let wanted = format!("({vertices}), one for each vertex");
        return Err(DataProblem::shape(key, &[numbers.len() as u64], wanted));
    }
    if selects == Selects::Floats && !numbers.is_empty() {
        let at = numbers
            .iter()
            .position(|number| ![0.0, 1.0].contains(number));
        return Err(match at {
            Some(at) => DataProblem::value(
                key,
                at as u64,
                numbers[at],
                "where a list of integers or a mask of zeros and ones is wanted",
            ),
            None => {
                let wanted = format!("({vertices}), a 0 or 1 for each vertex");
                DataProblem::shape(key, &[numbers.len() as u64], wanted)
            }
        });
    }
    let mut first: Vec<u32> = DataProblem::with_capacity(key, vertices as u64)?;
    first.resize(vertices, u32::MAX);
    for (at, &number) in numbers.iter().enumerate() {
        if !(number >= 0.0 && number < vertices as f64) {
            return Err(DataProblem::NoVertex {
                key: key.into(),
                index: at as u64,
                value: number.to_string(),
                vertices: vertices as u64,
            });
        }
        let place = &mut first[number as usize];
        if *place != u32::MAX {
            // Of as many as there are vertices a mask may be meant.
            let other = numbers
                .iter()
                .position(|number| ![0.0, 1.0].contains(number));
            if let (true, Some(other)) = (numbers.len() == vertices, other) {
                let why = "which is neither 0 nor 1";
                return Err(DataProblem::value(key, other as u64, numbers[other], why));
            }
            let mut why =
                format!("which is asked for twice, at {place} already; name a vertex once");
            if are_bits {
                why.push_str(&format!(", or give a mask of {vertices}"));
            }
            return Err(DataProblem::value(key, at as u64, number, why));
        }
        *place = at as u32;
    }
    Ok(Selection::List)
}

/// The vertices that an array selects, in its order; see [`selection`].
///
/// # Errors
/// Those of [`selection`].
pub fn selected(
    key: &str,
    selects: Selects,
    numbers: &[f64],
    vertices: usize,
) -> Result<Vec<u32>, DataProblem> {
    Ok(match selection(key, selects, numbers, vertices)? {
        Selection::List => numbers.iter().map(|&number| number as u32).collect(),
        Selection::Mask => {
            let chosen = (0..).zip(numbers).filter(|(_, number)| **number != 0.0);
            chosen.map(|(vertex, _)| vertex).collect()
        }
    })
}

/// The name of `known` that is nearest to `given`, where one is near: so few letters off that it may be meant.
pub fn nearest<'a>(given: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let plain = |name: &str| name.to_lowercase().replace(['-', '_'], "");
    let wanted = plain(given);
    let distance = |name: &str| {
        let name = plain(name);
        match name.starts_with(&wanted) {
            // As `valid` of `validation`.
            true if wanted.len() >= 2 => 1,
            _ => letters_off(&wanted, &name),
        }
    };
    known
        .into_iter()
        .map(|name| (distance(name), name))
        .min_by_key(|(off, _)| *off)
        .filter(|(off, name)| *off <= (name.len().max(given.len()) / 3).max(1))
        .map(|(_, name)| name)
}

/// Letters that are put in, left out or changed between two words.
fn letters_off(a: &str, b: &str) -> usize {
    let b: Vec<char> = b.chars().collect();
    let mut before: Vec<usize> = (0..=b.len()).collect();
    for (row, x) in a.chars().enumerate() {
        let mut diagonal = before[0];
        before[0] = row + 1;
        for (column, y) in b.iter().enumerate() {
            let above = before[column + 1];
            before[column + 1] = (diagonal + usize::from(x != *y))
                .min(above + 1)
                .min(before[column] + 1);
            diagonal = above;
        }
    }
    before[b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whole_numbers_of_any_type_are_classes() {
        assert_eq!(
            [0, 65_535, -1, -2, 65_536, 1 << 32].map(class_of),
            [Some(0), Some(65_535), Some(UNLABELLED), None, None, None]
        );
        let (found, what) = targets(1, vec![2.0, f32::NAN, 0.0, -1.0], "vertex").unwrap();
        assert_eq!(found, vec![2, UNLABELLED, 0, UNLABELLED].into());
        assert!(what.starts_with("a class of each vertex"), "{what}");
        let refused = classes("y", &[0, (1 << 32) + 1]).unwrap_err().to_string();
        assert!(refused.starts_with("y[1] is 4294967297, but there are 65536 classes"));
        let (found, _) = targets(1, vec![2.0, 0.5], "vertex").unwrap();
        assert!(matches!(found, Targets::Values(_)));
    }

    #[test]
    fn entries_of_labels_may_be_unknown() {
        for unknown in [f32::NAN, -1.0] {
            let (found, what) = targets(2, vec![0.0, 1.0, unknown, 1.0], "vertex").unwrap();
            let Targets::Labels(labels) = &found else {
                panic!("{found:?}")
            };
            assert_eq!([labels.get(1, 0), labels.get(1, 1)], [None, Some(true)]);
            assert!(found.is_labelled(1) && found.is_partial());
            assert!(what.contains("1 of 4 are unknown"), "{what}");
        }
        let signs = targets(2, vec![-1.0, 1.0, 1.0, -1.0], "vertex").unwrap_err();
        assert!(signs.to_string().contains("write 0 where a label is not"));
        let (found, _) = targets(2, vec![0.0, 1.0, 2.0, -1.0], "vertex").unwrap();
        assert!(matches!(found, Targets::Values(_)));
    }

    #[test]
    fn zeros_and_ones_for_each_vertex_are_a_mask() {
        use Selects::{Floats, Integers, Truths};
        let of = |selects, numbers: &[f64], vertices| {
            selected("input_nodes", selects, numbers, vertices).map_err(|error| error.to_string())
        };
        for selects in [Truths, Integers, Floats] {
            assert_eq!(of(selects, &[0.0, 1.0, 1.0], 3), Ok(vec![1, 2]));
        }
        assert_eq!(of(Integers, &[4.0, 0.0, 1.0], 5), Ok(vec![4, 0, 1]));
        assert_eq!(of(Integers, &[1.0, 0.0], 5), Ok(vec![1, 0]));
        // As many as there are vertices: a mask, whatever else it could be.
        assert_eq!(of(Integers, &[0.0, 1.0], 2), Ok(vec![1]));
        assert_eq!(of(Integers, &[], 2), Ok(vec![]));
        for (selects, numbers, message) in [
            (
                Truths,
                &[1.0, 0.0][..],
                "the shape is [2], where (3), one for each",
            ),
            (
                Integers,
                &[1.0, 3.0],
                "input_nodes[1] is 3, but there are 3 vertices, numbered from 0",
            ),
            (Integers, &[-1.0], "input_nodes[0] is -1, but there are 3"),
            (
                Integers,
                &[2.0, 1.0, 2.0],
                "input_nodes[0] is 2, which is neither 0 nor 1",
            ),
            (
                Integers,
                &[1.0, 1.0, 0.0, 0.0],
                "name a vertex once, or give a mask of 3",
            ),
            (
                Floats,
                &[0.5, 1.0, 2.0],
                "where a list of integers or a mask",
            ),
            (Floats, &[0.0, 1.0], "the shape is [2], where (3), a 0 or 1"),
        ] {
            let error = of(selects, numbers, 3).unwrap_err();
            assert!(error.contains(message), "{error}");
        }
    }

    #[test]
    fn names_that_are_near_are_found() {
        let known = ["train_mask", "val", "validation", "layers", "hidden", "lr"];
        for (given, near) in [
            ("valid", Some("validation")),
            ("layer", Some("layers")),
            ("hiden", Some("hidden")),
            ("trainmask", Some("train_mask")),
            ("zebra", None),
        ] {
            let found = nearest(given, known);
            assert!(
                found == near || given == "valid" && found == Some("val"),
                "{given}: {found:?}"
            );
        }
    }

    #[test]
    fn missing_values_are_pandas() {
        for missing in ["", "NaN", "nan", "NA", "N/A", "<NA>", "null", "None"] {
            assert!(is_missing(missing), "{missing}");
        }
        assert!(!is_missing("0") && !is_missing("nana"));
    }
}
