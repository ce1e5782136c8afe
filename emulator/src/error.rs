//! What can be wrong with a PTX text.

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
    pub(crate) fn new(line: u32, text: impl AsRef<str>, message: impl Into<String>) -> Self {
        Self {
            line,
            text: shorten(text.as_ref()),
            message: message.into(),
        }
    }
}

/// One line of at most 160 characters: what a report can show of a text of any length.
pub(crate) fn shorten(text: &str) -> String {
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
    out.truncate(out.trim_end().len());
    out
}
