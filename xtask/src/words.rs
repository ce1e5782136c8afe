//! `cargo xtask ci words`: the wording, the sizes and the links of the documentation, and the wording of comments.
//!
//! Pages are read as mdBook reads them. Words in code are not checked; headings and cells of tables are no sentences.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::path::{Component, Path, PathBuf};

use pulldown_cmark::{Event, Options, Parser, Tag, TagEnd};

use crate::{Failure, workspace};

/// Words that the field does not use in this sense, and the word that it does.
const WORDS: [(&str, &str); 29] = [
    ("told", "reported, specified"),
    ("tell", "report, say"),
    ("tells", "reports, says"),
    ("foretold", "estimated"),
    ("foretells", "estimates"),
    ("hear", "aggregate"),
    ("hears", "aggregates"),
    ("heard", "aggregated, in-neighbors"),
    ("room", "buffer, capacity, space, memory"),
    ("rooms", "buffers, capacities"),
    ("beside", "next to, as well as"),
    ("codes", "quantized values"),
    ("dealt", "partitioned, sharded"),
    ("deal", "partition"),
    ("deals", "partitions"),
    ("drawn", "sampled"),
    ("jumped", "jumping-knowledge inputs"),
    ("peers", "baselines"),
    ("lend", "borrow"),
    ("lends", "borrows"),
    ("lent", "borrowed"),
    ("card", "GPU, device"),
    ("cards", "GPUs, devices"),
    ("wants", "needs, requires"),
    ("whoever", "the caller, those who"),
    ("somebody", "the caller, a user"),
    ("nobody", "no caller, no operator"),
    ("anybody", "a user"),
    ("shadow", "access history"),
];

/// Two words that are one old word.
const PAIRS: [(&str, &str, &str); 3] = [
    ("so", "many", "the given number of"),
    ("for", "who", "for anyone who"),
    ("in", "turn", "round-robin, one after the other"),
];

/// Words that a page may use nevertheless, with the reason.
const EXCEPTIONS: [(&str, &str, &str); 2] = [
    (
        "docs/how-it-works/kernels.md",
        "shadow",
        "HalfGNN's name of its operators",
    ),
    ("docs/systems.md", "shadow", "likewise"),
];

/// Pages, or folders of pages, that `cargo xtask book` makes. They are in the book and not in the repository.
const GENERATED: [&str; 3] = ["docs/cli.md", "docs/commands.md", "docs/python/"];

/// Folders whose comments are checked: their words, and that no line of theirs is longer than [`WIDTH`].
const COMMENTS: [&str; 23] = [
    "benches/",
    "builder/",
    "emulator/",
    "examples/",
    "host/bench/",
    "host/cli/",
    "host/cuda-loader/",
    "host/data/",
    "host/device/",
    "host/examples/",
    "host/graph/",
    "host/ops/",
    "host/platform/",
    "host/src/data.rs",
    "host/src/data/",
    "host/src/distributed/",
    "host/src/nn/",
    "host/src/sample/",
    "host/src/train/",
    "host/tests/",
    "python/",
    "tests/fuzz/",
    "xtask/src/book/",
];

/// Folders whose messages are checked: the strings of their Rust sources.
const MESSAGES: [&str; 5] = ["benches/", "builder/", "host/", "python/", "tests/"];

/// Words that messages do not have; others of [`WORDS`] are not checked in them yet.
const NOT_IN_MESSAGES: [&str; 2] = ["card", "cards"];

/// Folders and files below these that are not checked yet.
const UNCHECKED: [&str; 1] = ["host/ops/src/ops/dot_attention/"];

/// Old words that are names in a folder, with their source.
const NAMES: [(&str, &str); 2] = [
    // HalfGNN's shadow operators (§4.4).
    ("host/ops/src/ops/shadow/", "shadow"),
    ("host/ops/src/ops/attention/edge_softmax.rs", "shadow"),
];

/// The most characters of a line of comments.
const WIDTH: usize = 120;

/// The table of contents of the book.
const CONTENTS: &str = "docs/SUMMARY.md";

/// The most words of a page's mean sentence.
const MEAN: f64 = 20.0;

/// The size that a page may have.
enum Size {
    Bytes(usize),
    Lines(usize),
}

const SIZES: [(&str, Size); 3] = [
    ("ARCHITECTURE.md", Size::Bytes(25_000)),
    ("CHANGELOG.md", Size::Bytes(8_000)),
    ("docs/performance.md", Size::Lines(300)),
];

/// Checks all pages, and names everything that is wrong.
///
/// # Errors
/// Every fault, a line each: file, line, what it is and what to write.
pub fn run() -> Result<(), Failure> {
    let root = workspace::root();
    let mut texts = BTreeMap::new();
    let mut files = BTreeSet::new();
    for file in workspace::files()? {
        let name = file.to_string_lossy().replace('\\', "/");
        // What is deleted and still tracked is not there.
        if !root.join(&file).exists() {
            continue;
        }
        files.insert(name.clone());
        if ["md", "rs", "py"]
            .iter()
            .any(|end| name.ends_with(&format!(".{end}")))
        {
            texts.insert(name, std::fs::read_to_string(root.join(&file))?);
        }
    }
    let faults = check(&texts, &files);
    match faults.is_empty() {
        true => Ok(()),
        false => Err(format!(
            "{} faults in the documentation\n{}",
            faults.len(),
            faults.join("\n")
        )
        .into()),
    }
}

/// What is wrong with the texts of a repository that has `files`.
fn check(texts: &BTreeMap<String, String>, files: &BTreeSet<String>) -> Vec<String> {
    let pages: BTreeMap<&str, Page> = texts
        .iter()
        .filter(|(name, _)| name.ends_with(".md"))
        .map(|(name, text)| (name.as_str(), Page::new(text)))
        .collect();
    let mut faults = Vec::new();
    for (name, page) in &pages {
        if is_checked(name) {
            faults.extend(page.words(name));
            faults.extend(page.mean(name));
        }
        faults.extend(size(name, &texts[*name]));
        for (line, link) in &page.links {
            let found = target(&pages, files, (name, link));
            faults.extend(found.err().map(|why| format!("{name}:{line}: {why}")));
        }
    }
    // The tests below name pages that are not there.
    let sources = texts
        .iter()
        .filter(|(name, _)| !name.ends_with(".md") && *name != "xtask/src/words.rs");
    for (name, text) in sources {
        let is_in = |folders: &[&str]| folders.iter().any(|folder| name.starts_with(folder));
        if is_in(&COMMENTS) && !is_in(&UNCHECKED) {
            faults.extend(comments(name, text));
        }
        if is_in(&MESSAGES) && name.ends_with(".rs") {
            faults.extend(messages(name, text));
        }
        for (line, link) in mentions(text) {
            // Pages are named from the root.
            let found = target(&pages, files, ("README.md", &link));
            faults.extend(found.err().map(|why| format!("{name}:{line}: {why}")));
        }
    }
    faults.extend(unlisted(&pages));
    for (page, word, _) in EXCEPTIONS {
        let is_used = |page: &Page| page.old_words().any(|(_, old, _)| old == word);
        if pages.get(page).is_some_and(|page| !is_used(page)) {
            faults.push(format!("{page}: the exception for `{word}` is not needed"));
        }
    }
    faults
}

/// What is wrong with the comments of a source, and in Python with its docstrings: old words outside of code, and in
/// Rust lines that are too long.
fn comments(name: &str, text: &str) -> Vec<String> {
    let mut faults = Vec::new();
    let is_rust = name.ends_with(".rs");
    let mut in_docstring = false;
    for (number, line) in text.lines().enumerate() {
        let at = format!("{name}:{}", number + 1);
        let quotes = line.matches("\"\"\"").count();
        let is_docstring = !is_rust && (in_docstring || quotes > 0);
        in_docstring ^= quotes % 2 == 1;
        let comment = match (is_rust, is_docstring) {
            (true, _) => comment(line, "//"),
            (false, true) => Some(line),
            (false, false) => comment(line, "#"),
        };
        let Some(comment) = comment else {
            continue;
        };
        // Every other piece between backquotes is code; what a link leads to is as well.
        let words: Vec<&str> = comment.split('`').step_by(2).collect();
        let words = without_targets(&words.join(CODE));
        for (word, better) in old_words(&words) {
            if NAMES
                .iter()
                .any(|(folder, of)| name.starts_with(folder) && word == *of)
            {
                continue;
            }
            faults.push(format!("{at}: `{word}`: write {better}"));
        }
        let length = line.chars().count();
        // A row of a table is one line.
        let is_row = comment.trim_start_matches(['/', '!', ' ']).starts_with('|');
        if is_rust && length > WIDTH && line.trim_start().starts_with("//") && !is_row {
            faults.push(format!("{at}: {length} characters; at most {WIDTH}"));
        }
    }
    faults
}

/// Old words in the strings of a Rust source. What stands in braces is a name.
fn messages(name: &str, text: &str) -> Vec<String> {
    let mut faults = Vec::new();
    for (number, line) in text.lines().enumerate() {
        if comment(line, "//").is_some_and(|comment| line.trim_start() == comment) {
            continue;
        }
        for string in line.split('"').skip(1).step_by(2) {
            let plain = string.split('{').map(|piece| match piece.split_once('}') {
                Some((_, behind)) => behind,
                None => piece,
            });
            let plain: Vec<&str> = plain.collect();
            for (word, better) in old_words(&plain.join(" ")) {
                if NOT_IN_MESSAGES.contains(&word.as_str()) {
                    let at = number + 1;
                    faults.push(format!(
                        "{name}:{at}: `{word}` in a message: write {better}"
                    ));
                }
            }
        }
    }
    faults
}

/// A text without what its links lead to.
fn without_targets(text: &str) -> String {
    let mut pieces = text.split("](");
    let mut words = pieces.next().unwrap_or_default().to_owned();
    for piece in pieces {
        words.push_str(piece.split_once(')').map_or("", |(_, rest)| rest));
    }
    words
}

/// The comment of a line: what follows a mark that begins a word.
fn comment<'a>(line: &'a str, mark: &str) -> Option<&'a str> {
    let mut found = line.match_indices(mark);
    let (at, _) =
        found.find(|(at, _)| line[..*at].trim_end().is_empty() || line[..*at].ends_with(' '))?;
    Some(&line[at..])
}

/// Old words of a page that is generated, a line each.
pub fn of_generated(name: &str, text: &str) -> Vec<String> {
    Page::new(text).words(name)
}

/// Pages of the book that its table of contents does not have.
fn unlisted(pages: &BTreeMap<&str, Page>) -> Vec<String> {
    let Some(contents) = pages.get(CONTENTS) else {
        return Vec::new();
    };
    let listed = contents
        .links
        .iter()
        .filter_map(|(_, link)| joined(CONTENTS, link));
    let listed: BTreeSet<String> = listed.collect();
    let is_missing =
        |page: &&&str| page.starts_with("docs/") && **page != CONTENTS && !listed.contains(**page);
    pages
        .keys()
        .filter(is_missing)
        .map(|page| format!("{page}: {CONTENTS} does not list it"))
        .collect()
}

/// Whether wording and sentences of a page are checked.
fn is_checked(name: &str) -> bool {
    name.starts_with("docs/")
        || [
            "README.md",
            "ARCHITECTURE.md",
            "CHANGELOG.md",
            "CONTRIBUTING.md",
        ]
        .contains(&name)
}

/// What of a page is checked.
#[derive(Default)]
struct Page {
    /// Prose, a piece for each paragraph, cell or item, with its line.
    prose: Vec<(usize, String)>,
    /// Headings and cells of tables: their words are checked, their sentences are not.
    labels: Vec<(usize, String)>,
    links: Vec<(usize, String)>,
    anchors: BTreeSet<String>,
}

impl Page {
    fn new(text: &str) -> Self {
        let mut page = Self::default();
        let line_of = |at: Range<usize>| text[..at.start].matches('\n').count() + 1;
        let options = Options::ENABLE_TABLES | Options::ENABLE_STRIKETHROUGH;
        let (mut piece, mut heading) = (None::<(usize, String)>, None::<String>);
        let (mut in_code, mut in_table) = (false, false);
        for (event, at) in Parser::new_ext(text, options).into_offset_iter() {
            match event {
                Event::Start(Tag::CodeBlock(_)) => in_code = true,
                Event::End(TagEnd::CodeBlock) => in_code = false,
                Event::Start(Tag::Table(_)) => in_table = true,
                Event::End(TagEnd::Table) => in_table = false,
                Event::Start(Tag::Heading { .. }) => heading = Some(String::new()),
                Event::End(TagEnd::Heading(_)) => {
                    if let Some(heading) = heading.take() {
                        page.anchor(&heading);
                        page.labels.push((line_of(at), heading));
                    }
                }
                Event::Start(Tag::Link { dest_url, .. } | Tag::Image { dest_url, .. }) => {
                    page.links.push((line_of(at), dest_url.into_string()));
                }
                // A break, and the ends of what holds text, end a piece.
                Event::Start(Tag::Paragraph | Tag::Item | Tag::TableCell)
                | Event::End(TagEnd::Paragraph | TagEnd::Item | TagEnd::TableCell) => {
                    page.end(&mut piece, in_table);
                }
                Event::Text(words) if !in_code => match &mut heading {
                    Some(heading) => heading.push_str(&words),
                    None => {
                        let piece = piece.get_or_insert_with(|| (line_of(at), String::new()));
                        piece.1.push_str(&words);
                    }
                },
                Event::Code(code) => match &mut heading {
                    Some(heading) => heading.push_str(&code),
                    None => {
                        // One word of a sentence, and none of the old ones.
                        let piece = piece.get_or_insert_with(|| (line_of(at), String::new()));
                        piece.1.push_str(CODE);
                    }
                },
                Event::SoftBreak | Event::HardBreak => {
                    if let Some((_, words)) = &mut piece {
                        words.push(' ');
                    }
                }
                _ => {}
            }
        }
        page.end(&mut piece, in_table);
        page
    }

    fn end(&mut self, piece: &mut Option<(usize, String)>, in_table: bool) {
        let pieces = match in_table {
            true => &mut self.labels,
            false => &mut self.prose,
        };
        pieces.extend(piece.take());
    }

    /// The anchor of a heading, as GitHub and mdBook make it: a number behind one that is there already.
    fn anchor(&mut self, heading: &str) {
        let kept = |sign: &char| sign.is_alphanumeric() || [' ', '-', '_'].contains(sign);
        let name: String = heading.to_lowercase().chars().filter(kept).collect();
        let name = name.replace(' ', "-");
        let mut unique = name.clone();
        for number in 1.. {
            if self.anchors.insert(unique.clone()) {
                break;
            }
            unique = format!("{name}-{number}");
        }
    }

    /// Old words of the page: line, word, what to write.
    fn old_words(&self) -> impl Iterator<Item = (usize, String, &'static str)> {
        let pieces = self.prose.iter().chain(&self.labels);
        pieces.flat_map(|(line, text)| {
            old_words(text)
                .into_iter()
                .map(|(old, better)| (*line, old, better))
        })
    }

    /// Old words that the page may not use.
    fn words(&self, name: &str) -> Vec<String> {
        let is_excepted = |word: &str| {
            EXCEPTIONS
                .iter()
                .any(|(page, of, _)| *page == name && *of == word)
        };
        self.old_words()
            .filter(|(_, word, _)| !is_excepted(word))
            .map(|(line, word, better)| format!("{name}:{line}: `{word}`: write {better}"))
            .collect()
    }

    /// That the mean sentence is short enough.
    fn mean(&self, name: &str) -> Option<String> {
        let sentences: Vec<usize> = self
            .prose
            .iter()
            .flat_map(|(_, text)| sentences(text))
            .collect();
        let mean = sentences.iter().sum::<usize>() as f64 / sentences.len().max(1) as f64;
        (mean > MEAN).then(|| {
            format!(
                "{name}: {mean:.1} words in the mean sentence of {}; at most {MEAN:.0}",
                sentences.len()
            )
        })
    }
}

/// The old words of a piece of text, and what to write.
fn old_words(text: &str) -> Vec<(String, &'static str)> {
    let lower = text.to_lowercase();
    let words: Vec<&str> = lower
        .split(|sign: char| !sign.is_alphanumeric() && sign != '\'' && sign != '-')
        .map(|word| word.trim_end_matches("'s"))
        .filter(|word| !word.is_empty())
        .collect();
    let single = WORDS
        .iter()
        .filter(|(old, _)| words.contains(old))
        .map(|(old, better)| ((*old).to_owned(), *better));
    let pairs = PAIRS
        .iter()
        .filter(|(first, second, _)| words.windows(2).any(|pair| pair == [*first, *second]));
    single
        .chain(pairs.map(|(first, second, better)| (format!("{first} {second}"), *better)))
        .collect()
}

/// What stands for code in prose.
const CODE: &str = "x";

/// The words of each sentence of a piece of prose.
fn sentences(text: &str) -> Vec<usize> {
    let mut lengths = vec![0];
    for word in text.split_whitespace() {
        if let Some(last) = lengths
            .last_mut()
            .filter(|_| word.contains(char::is_alphanumeric))
        {
            *last += 1;
        }
        let word = word.trim_end_matches(['"', '\'', ')', '*']);
        if word.ends_with(['.', '!', '?']) {
            lengths.push(0);
        }
    }
    lengths.retain(|length| *length > 0);
    lengths
}

/// That a page is no larger than it may be.
fn size(name: &str, text: &str) -> Option<String> {
    let (_, most) = SIZES.iter().find(|(page, _)| *page == name)?;
    let (size, most, unit) = match most {
        Size::Bytes(most) => (text.len(), *most, "bytes"),
        Size::Lines(most) => (text.lines().count(), *most, "lines"),
    };
    (size > most).then(|| format!("{name}: {size} {unit}; at most {most}"))
}

/// That a link of a page leads to a file, a folder or a heading.
///
/// # Errors
/// What is not there.
fn target(
    pages: &BTreeMap<&str, Page>,
    files: &BTreeSet<String>,
    (page, link): (&str, &str),
) -> Result<(), String> {
    if link.contains("://") || link.starts_with("mailto:") {
        return Ok(());
    }
    let (path, anchor) = link
        .split_once('#')
        .map_or((link, None), |(path, anchor)| (path, Some(anchor)));
    let name = match path.is_empty() {
        true => page.to_owned(),
        false => joined(page, path).ok_or_else(|| format!("{link}: leaves the repository"))?,
    };
    if GENERATED.iter().any(|of| name.starts_with(of)) {
        // Their headings are looked for when the book is built.
        return match page.starts_with("docs/") {
            true => Ok(()),
            false => Err(format!(
                "{link}: `{name}` is in the book alone; link to a page that is in the repository"
            )),
        };
    }
    let folder = format!("{}/", name.trim_end_matches('/'));
    let is_folder = || name.is_empty() || files.iter().any(|file| file.starts_with(&folder));
    if !files.contains(&name) && !is_folder() {
        return Err(format!("{link}: there is no `{name}`"));
    }
    match (anchor, pages.get(name.as_str())) {
        (Some(anchor), Some(page)) if !page.anchors.contains(anchor) => {
            Err(format!("{link}: `{name}` has no heading #{anchor}"))
        }
        _ => Ok(()),
    }
}

/// A link's file, named from the root.
pub fn joined(page: &str, link: &str) -> Option<String> {
    let mut place: PathBuf = Path::new(page).parent()?.to_owned();
    for part in Path::new(link).components() {
        match part {
            Component::ParentDir => place.pop().then_some(())?,
            Component::Normal(part) => place.push(part),
            _ => {}
        }
    }
    Some(place.to_string_lossy().replace('\\', "/"))
}

/// Pages that the text of a source names, such as `docs/data.md#parts`, with their lines.
fn mentions(text: &str) -> Vec<(usize, String)> {
    let is_part = |sign: char| sign.is_alphanumeric() || "/._-#".contains(sign);
    let mut found = Vec::new();
    for (number, line) in text.lines().enumerate() {
        for (at, _) in line.match_indices("docs/") {
            // Part of a longer path, which is not from the root, or of an address.
            if line[..at].ends_with(is_part) {
                continue;
            }
            let name: String = line[at..]
                .chars()
                .take_while(|sign| is_part(*sign))
                .collect();
            let name = name.trim_end_matches(['.', '-']);
            if name.ends_with(".md") || name.contains(".md#") {
                found.push((number + 1, name.to_owned()));
            }
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    fn faults(texts: &[(&str, &str)]) -> Vec<String> {
        let texts: BTreeMap<String, String> = texts
            .iter()
            .map(|(name, text)| (name.to_string(), text.to_string()))
            .collect();
        let files = texts.keys().cloned().collect();
        check(&texts, &files)
    }

    #[test]
    fn the_documentation_is_as_it_should_be() {
        if let Err(faults) = run() {
            panic!("{faults}");
        }
    }

    #[test]
    fn old_words_are_found_in_prose_and_not_in_code() {
        let page = "# Told\n\nA vertex hears\nits neighbors.\n\n```text\ntold\n```\n\n- `cards` and room's end\n\n| a | b |\n|---|---|\n| so many | x |\n";
        let found = faults(&[("docs/a.md", page)]);
        assert_eq!(found.len(), 4, "{found:?}");
        let starts = [
            "docs/a.md:3: `hears`: write aggregates",
            "docs/a.md:10: `room`",
            "docs/a.md:1: `told`",
            "docs/a.md:14: `so many`",
        ];
        for (found, start) in found.iter().zip(starts) {
            assert!(found.starts_with(start), "{found}, not {start}");
        }
        assert_eq!(faults(&[("python/README.md", page)]), [""; 0]);
    }

    #[test]
    fn old_words_and_long_lines_of_comments_are_found() {
        let long = "x".repeat(WIDTH - 2);
        let source = format!(
            "//! It hears `told`, [a](Rooms::beside) and https://room.y/cards.\n/// Told.\nlet x = \"a//room\"; // so many `cards`\n// {long}\n//! | {long} |\n\
             let room = \"{long}{long}\";\n"
        );
        let wrong = [
            "emulator/a.rs:1: `hears`: write aggregates",
            "emulator/a.rs:1: `room`: write buffer, capacity, space, memory",
            "emulator/a.rs:1: `cards`: write GPUs, devices",
            "emulator/a.rs:2: `told`: write reported, specified",
            "emulator/a.rs:3: `so many`: write the given number of",
            "emulator/a.rs:4: 121 characters; at most 120",
        ];
        assert_eq!(faults(&[("emulator/a.rs", &source)]), wrong);
        assert_eq!(faults(&[("elsewhere/a.rs", &source)]), [""; 0]);
    }

    #[test]
    fn old_words_of_messages_are_found() {
        let source = "// \"a card\"\nfail(\"no card: {card}\", card); // \"cards\"\nlet cards = \"{a} cards\";\n";
        let wrong = [
            "host/a.rs:2: `card` in a message: write GPU, device",
            "host/a.rs:2: `cards` in a message: write GPUs, devices",
            "host/a.rs:3: `cards` in a message: write GPUs, devices",
        ];
        assert_eq!(faults(&[("host/a.rs", source)]), wrong);
        assert_eq!(faults(&[("elsewhere/a.rs", source)]), [""; 0]);
    }

    #[test]
    fn old_words_of_docstrings_are_found() {
        let python = "\"\"\"It hears.\n\nSo many ``cards``.\n\"\"\"\nroom = 'wants'  # Told.\n\
                      def a():\n    \"\"\"Deals.\"\"\"\n    room()\n";
        let wrong = [
            "python/a.py:1: `hears`: write aggregates",
            "python/a.py:3: `so many`: write the given number of",
            "python/a.py:5: `told`: write reported, specified",
            "python/a.py:7: `deals`: write partitions",
        ];
        assert_eq!(faults(&[("python/a.py", python)]), wrong);
    }

    #[test]
    fn exceptions_hold_for_their_page_and_are_needed() {
        let (page, word, _) = EXCEPTIONS[0];
        assert_eq!(faults(&[(page, word)]), [""; 0]);
        let other = faults(&[("docs/other.md", word)]);
        assert!(
            other.len() == 1 && other[0].starts_with("docs/other.md:1"),
            "{other:?}"
        );
        let needless = faults(&[(page, "Words.")]);
        assert_eq!(
            needless,
            [format!("{page}: the exception for `{word}` is not needed")]
        );
    }

    #[test]
    fn long_sentences_are_found() {
        let long = "one two three four five six seven eight nine ten ".repeat(3);
        let found = faults(&[("README.md", &format!("{long}.\n\n{long}."))]);
        assert_eq!(
            found,
            ["README.md: 30.0 words in the mean sentence of 2; at most 20"]
        );
        assert_eq!(
            faults(&[(
                "README.md",
                &format!("{long}.\n\n- Short.\n- `a` is short.\n")
            )]),
            [""; 0]
        );
        assert_eq!(
            sentences("One two. Three (four five.) Six, in 0.5 ms"),
            [2, 3, 4]
        );
    }

    #[test]
    fn large_pages_are_found() {
        let lines = "x.\n".repeat(301);
        assert_eq!(
            faults(&[("docs/performance.md", &lines)]),
            ["docs/performance.md: 301 lines; at most 300"]
        );
        assert_eq!(faults(&[("docs/performance.md", &lines[3..])]), [""; 0]);
        let bytes = "Short. ".repeat(4000);
        assert_eq!(
            faults(&[("ARCHITECTURE.md", &bytes)]),
            ["ARCHITECTURE.md: 28000 bytes; at most 25000"]
        );
    }

    #[test]
    fn links_that_lead_nowhere_are_found() {
        let a = "[b](b/b.md#two-words) [folder](b) [far](https://x.y/z.md) [here](#a-c)\n\n# A `c`!\n\n![no](c.svg)\n\n[no](b/b.md#three) [no](../../x)\n\n[no](#b)";
        let b = "# One\n\n## Two words\n\n## Two words\n\n[up](../a.md) [second](#two-words-1)";
        let found = faults(&[("docs/a.md", a), ("docs/b/b.md", b)]);
        let wrong = [
            "docs/a.md:5: c.svg: there is no `docs/c.svg`",
            "docs/a.md:7: b/b.md#three: `docs/b/b.md` has no heading #three",
            "docs/a.md:7: ../../x: leaves the repository",
            "docs/a.md:9: #b: `docs/a.md` has no heading #b",
        ];
        assert_eq!(found, wrong);
    }

    #[test]
    fn generated_pages_are_there_for_pages_of_the_book_alone() {
        let link = "[Flags](cli.md#halfgnn-train)";
        assert_eq!(faults(&[("docs/a.md", link)]), [""; 0]);
        let found = faults(&[("README.md", "[Flags](docs/cli.md)")]);
        assert!(
            found.len() == 1
                && found[0].starts_with("README.md:1: docs/cli.md: `docs/cli.md` is in"),
            "{found:?}"
        );
    }

    #[test]
    fn pages_that_the_contents_do_not_list_are_found() {
        let contents = "- [A](a.md)\n  - [B](b/b.md)\n";
        let texts = [
            (CONTENTS, contents),
            ("docs/a.md", "A."),
            ("docs/b/b.md", "B."),
            ("docs/b/c.md", "C."),
        ];
        assert_eq!(
            faults(&texts),
            ["docs/b/c.md: docs/SUMMARY.md does not list it"]
        );
    }

    #[test]
    fn pages_that_sources_name_are_looked_for() {
        let source = "// See docs/a.md#a, `docs/none.md`, and docs/a.md#b.\n// https://x.y/docs/z.md ../docs/z.md docs/a.rs";
        let found = faults(&[("docs/a.md", "# A"), ("host/src/lib.rs", source)]);
        let wrong = [
            "host/src/lib.rs:1: docs/none.md: there is no `docs/none.md`",
            "host/src/lib.rs:1: docs/a.md#b: `docs/a.md` has no heading #b",
        ];
        assert_eq!(found, wrong);
    }
}
