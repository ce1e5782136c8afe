//! Inputs made from other inputs, as an editor, a bad disk, a newer compiler or an enemy would.

use fastrand::Rng;
use std::ops::Range;

/// What an input is made of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Grammar {
    /// Lines of words: a word is mostly replaced by another of its kind, so that many results are still accepted.
    Lines,
    /// Bytes, with lengths and offsets among them.
    Bytes,
}

/// More than this an input does not grow to.
const LONGEST: usize = 1 << 18;

/// Integers at which programs change their minds.
const INTEGERS: [u64; 16] = [
    0,
    1,
    2,
    7,
    31,
    32,
    127,
    255,
    65_535,
    65_536,
    0x7FFF_FFFF,
    0x8000_0000,
    0xFFFF_FFFF,
    0x1_0000_0000,
    0x7FFF_FFFF_FFFF_FFFF,
    u64::MAX,
];

/// Words that no compiler writes where they will stand.
const WORDS: [&str; 16] = [
    "99999999999999999999",
    "-1",
    "0x",
    "0f3F",
    "1e9",
    "nan",
    "{",
    "}",
    "[",
    "]",
    ";",
    ",",
    "@",
    "/*",
    "\"",
    "\u{fffd}",
];

/// A mutant of one of the pool's inputs, with parts of others.
///
/// # Panics
/// If there is no input in the pool or among the others.
pub fn mutant(grammar: Grammar, pool: &[Vec<u8>], others: &[Vec<u8>], rng: &mut Rng) -> Vec<u8> {
    // Of two the shorter: long inputs take longer and hide what was changed.
    let (a, b) = (any(pool, rng), any(pool, rng));
    let mut input = if a.len() <= b.len() { a } else { b }.clone();
    let other = any(others, rng);
    // Mostly one change, so that what follows from it is not lost behind another.
    for _ in 0..1 + rng.u32(..8).saturating_sub(4) {
        match grammar {
            Grammar::Lines if rng.u32(..16) > 0 => lines(&mut input, other, rng),
            _ => bytes(&mut input, other, rng),
        }
    }
    input.truncate(LONGEST);
    input
}

fn any<'a, T>(list: &'a [T], rng: &mut Rng) -> &'a T {
    &list[rng.usize(..list.len())]
}

/// A place in `0..=len`.
fn place(len: usize, rng: &mut Rng) -> usize {
    rng.usize(..=len)
}

/// Up to `most` bytes somewhere in a list of `len`.
fn some(len: usize, most: usize, rng: &mut Rng) -> Range<usize> {
    let from = place(len, rng);
    from..from + place((len - from).min(most), rng)
}

fn bytes(input: &mut Vec<u8>, other: &[u8], rng: &mut Rng) {
    match rng.u32(..8) {
        0 => input.truncate(place(input.len(), rng)),
        1 => drop(input.drain(some(input.len(), 64, rng))),
        2 => {
            let copy = input[some(input.len(), 64, rng)].to_vec();
            let at = place(input.len(), rng);
            input.splice(at..at, copy);
        }
        3 => {
            let (from, to) = (some(other.len(), 256, rng), some(input.len(), 256, rng));
            input.splice(to, other[from].iter().copied());
        }
        4 | 5 => {
            let width = 1 << rng.u32(..4);
            let value = any(&INTEGERS, rng).wrapping_add(rng.u64(..3)).to_le_bytes();
            let at = place(input.len().saturating_sub(width), rng);
            for (to, from) in input[at..].iter_mut().zip(&value[..width]) {
                *to = *from;
            }
        }
        6 => {
            let at = place(input.len(), rng);
            input.insert(at, rng.u8(..));
        }
        _ => {
            if !input.is_empty() {
                let at = rng.usize(..input.len());
                input[at] ^= 1 << rng.u32(..8);
            }
        }
    }
}

/// Where the lines are, without their ends.
fn line_ranges(text: &[u8]) -> Vec<Range<usize>> {
    let mut from = 0;
    text.split(|&byte| byte == b'\n')
        .map(|line| {
            let range = from..from + line.len();
            from = range.end + 1;
            range
        })
        .collect()
}

/// Where the words of a line are: runs of letters, digits and `_`, with a `.`, `%` or `$` before them, and every other
/// byte alone.
fn word_ranges(line: &[u8], offset: usize) -> Vec<Range<usize>> {
    let is_letter = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_';
    let mut words = Vec::new();
    let mut at = 0;
    while at < line.len() {
        let from = at;
        at += 1;
        if is_letter(line[from]) || b".%$".contains(&line[from]) {
            at += line[at..]
                .iter()
                .take_while(|&&byte| is_letter(byte))
                .count();
        }
        if !line[from].is_ascii_whitespace() {
            words.push(offset + from..offset + at);
        }
    }
    words
}

/// Words of one kind stand in one another's place: registers of one type, modifiers, numbers, names.
fn kind(word: &[u8]) -> (u8, u8) {
    match word {
        [b'%', rest @ ..] => (b'%', *rest.first().unwrap_or(&0)),
        [b'0'..=b'9', ..] => (b'0', 0),
        [letter, ..] if letter.is_ascii_alphabetic() => (b'a', 0),
        [first, ..] => (*first, 0),
        [] => (0, 0),
    }
}

fn lines(input: &mut Vec<u8>, other: &[u8], rng: &mut Rng) {
    let ranges = line_ranges(input);
    let line = any(&ranges, rng).clone();
    let (others, own) = (line_ranges(other), any(&ranges, rng).clone());
    let foreign = other[any(&others, rng).clone()].to_vec();
    let whole = line.start..(line.end + 1).min(input.len());
    let with_end = |mut text: Vec<u8>| {
        text.push(b'\n');
        text
    };
    match rng.u32(..16) {
        0 => drop(input.drain(whole)),
        1 => {
            let copy = with_end(input[own].to_vec());
            input.splice(line.start..line.start, copy);
        }
        2 => drop(input.splice(line.start..line.start, with_end(foreign))),
        3 => drop(input.splice(whole, with_end(foreign))),
        4 => input.truncate(place(input.len(), rng)),
        choice => words(input, line, &foreign, choice, rng),
    }
}

/// Changes one word of a line. New words come from anywhere in the input, from a line of another, or from [`WORDS`].
fn words(input: &mut Vec<u8>, line: Range<usize>, foreign: &[u8], choice: u32, rng: &mut Rng) {
    let words = word_ranges(&input[line.clone()], line.start);
    if words.is_empty() {
        return;
    }
    let word = any(&words, rng).clone();
    let new = match choice {
        5 => Vec::new(),
        6 => input[word.clone()].repeat(2),
        7 => any(&WORDS, rng).as_bytes().to_vec(),
        8 => {
            let number = any(&INTEGERS, rng).wrapping_sub(rng.u64(..2));
            number.to_string().into_bytes()
        }
        9 => {
            let words = word_ranges(foreign, 0);
            match words.is_empty() {
                true => Vec::new(),
                false => foreign[any(&words, rng).clone()].to_vec(),
            }
        }
        // Most often a word of its kind, from near or far.
        _ => {
            let wanted = kind(&input[word.clone()]);
            let near = some(input.len(), 4096, rng);
            let mut candidates = word_ranges(&input[near.clone()], near.start);
            candidates.retain(|range| kind(&input[range.clone()]) == wanted);
            match candidates.is_empty() {
                true => return,
                false => input[any(&candidates, rng).clone()].to_vec(),
            }
        }
    };
    input.splice(word, new);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_found() {
        let line = b"\t@%p1 ld.global.v4.b32 \t{%r1, %r2}, [%rd1+16];";
        let words: Vec<&str> = word_ranges(line, 0)
            .into_iter()
            .map(|range| std::str::from_utf8(&line[range]).unwrap())
            .collect();
        assert_eq!(
            words,
            [
                "@", "%p1", "ld", ".global", ".v4", ".b32", "{", "%r1", ",", "%r2", "}", ",", "[",
                "%rd1", "+", "16", "]", ";"
            ]
        );
    }

    #[test]
    fn a_seed_gives_the_same_mutants_and_most_differ() {
        let pool = vec![b"add.s32 %r1, %r2, 3;\nret;\n".to_vec(), Vec::new()];
        for grammar in [Grammar::Lines, Grammar::Bytes] {
            let make = |seed| {
                let mut rng = Rng::with_seed(seed);
                (0..200)
                    .map(|_| mutant(grammar, &pool[..1], &pool, &mut rng))
                    .collect::<Vec<_>>()
            };
            assert_eq!(make(1), make(1));
            assert_ne!(make(1), make(2));
            let mut distinct = make(3);
            distinct.sort();
            distinct.dedup();
            assert!(distinct.len() > 50, "{}", distinct.len());
            // Nothing is too short to be mutated.
            let mut rng = Rng::with_seed(4);
            for _ in 0..500 {
                mutant(grammar, &pool, &pool, &mut rng);
            }
        }
    }
}
