//! What can be wrong with a PTX text.

use std::borrow::Cow;
use thiserror::Error;

/// Why a PTX text was not accepted: the line, what stands there, and what is wrong with it.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("PTX line {line}: `{text}`: {message}")]
pub struct ParseError {
    /// Line in the PTX text, counted from 1.
    pub line: u32,
    /// The instruction, directive or token that was not understood.
    pub text: String,
    /// What is wrong, in one sentence.
    pub message: String,
}

impl ParseError {
    /// An error on `line`, from 1, where `text` stands: both are shortened and escaped, so that the whole is one line.
    pub fn new(line: u32, text: impl AsRef<str>, message: impl Into<String>) -> Self {
        Self {
            line,
            text: shorten(text.as_ref()),
            // Blanks part the names that a sentence cites from its words.
            message: message
                .into()
                .split(' ')
                .map(shown_name)
                .collect::<Vec<_>>()
                .join(" "),
        }
    }
}

/// Of a name of any length the beginning and the end, with control characters escaped.
pub fn shown_name(name: &str) -> Cow<'_, str> {
    const BEGIN: usize = 240;
    const END: usize = 60;
    let length = name.chars().count();
    if length > BEGIN + END {
        let begin = name.chars().take(BEGIN);
        let end = name.chars().skip(length - END);
        let short: String = begin.chain(['…']).chain(end).collect();
        Cow::Owned(escaped(&short))
    } else if name.contains(char::is_control) {
        Cow::Owned(escaped(name))
    } else {
        Cow::Borrowed(name)
    }
}

/// A text with its control characters escaped, some of which end a line or control a terminal.
fn escaped(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c.is_control() {
            true => out.extend(c.escape_debug()),
            false => out.push(c),
        }
    }
    out
}

/// One line of at most 160 characters, the control characters among them escaped: what a report can show of a text of
/// any length.
pub fn shorten(text: &str) -> String {
    const LIMIT: usize = 160;
    let mut out = String::new();
    for (count, c) in text
        .split_whitespace()
        .flat_map(|w| w.chars().chain([' ']))
        .enumerate()
    {
        if count == LIMIT {
            out.push('…');
            break;
        }
        out.push(c);
    }
    escaped(out.trim_end())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_report_is_one_line_of_a_length_that_can_be_read() {
        let mangled = format!("_RNv{}", "Cs1234_6kernel".repeat(20));
        let error = ParseError::new(
            3,
            "a\n\tb\u{1b}[2J",
            format!("the variable {mangled} has no type"),
        );
        assert_eq!(error.text, r"a b\u{1b}[2J");
        assert!(error.message.contains(&mangled));
        let long = format!("begin{}end", "é".repeat(100_000));
        let error = ParseError::new(3, &long, format!("the variable `{long}` has no type"));
        let shown = error.to_string();
        assert!(shown.chars().count() < 600, "{shown}");
        assert!(shown.contains("the variable `beginé") && shown.contains("éend` has no type"));
    }
}
