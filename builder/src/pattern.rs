//! Entry names with `*`.

use std::collections::BTreeMap;

/// Whether `name` matches `pattern`, in which `*` stands for any text, also none.
pub(crate) fn matches(pattern: &str, name: &str) -> bool {
    let Some((head, rest)) = pattern.split_once('*') else {
        return pattern == name;
    };
    let Some(mut name) = name.strip_prefix(head) else {
        return false;
    };
    let mut pieces: Vec<&str> = rest.split('*').collect();
    let last = pieces.pop().unwrap_or_default();
    for piece in pieces {
        match name.find(piece) {
            Some(at) => name = &name[at + piece.len()..],
            None => return false,
        }
    }
    name.ends_with(last)
}

/// Whether `name` matches any of the patterns, as every name does where there are none.
pub fn is_wanted(patterns: &[String], name: &str) -> bool {
    patterns.is_empty() || patterns.iter().any(|pattern| matches(pattern, name))
}

/// The value of the longest pattern that matches.
pub(crate) fn lookup<'a, T>(table: &'a BTreeMap<String, T>, name: &str) -> Option<&'a T> {
    table
        .iter()
        .filter(|(pattern, _)| matches(pattern, name))
        .max_by_key(|(pattern, _)| pattern.len())
        .map(|(_, value)| value)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stars_stand_for_any_text() {
        for (pattern, name) in [
            ("*", ""),
            ("*", "spmm"),
            ("spmm*", "spmm"),
            ("*_f32", "spmm_f32"),
            ("s*m_*2", "spmm_f32"),
            ("spmm", "spmm"),
        ] {
            assert!(matches(pattern, name), "{pattern} should match {name}");
        }
        for (pattern, name) in [
            ("spmm", "spmm_f32"),
            ("spmm_*", "spmm"),
            ("a*a", "a"),
            ("*x*", "spmm"),
            ("", "a"),
        ] {
            assert!(!matches(pattern, name), "{pattern} should not match {name}");
        }
    }

    #[test]
    fn the_longest_pattern_wins() {
        let table = BTreeMap::from([
            ("*".to_owned(), 1),
            ("spmm_*".to_owned(), 2),
            ("spmm_f32".to_owned(), 3),
        ]);
        let found = ["sddmm", "spmm_f16", "spmm_f32"].map(|name| lookup(&table, name).copied());
        assert_eq!(found, [Some(1), Some(2), Some(3)]);
    }
}
