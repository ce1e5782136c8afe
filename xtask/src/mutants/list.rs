//! What a mutant is, and the lists of them in `xtask/mutants`.
//!
//! ```toml
//! [[mutant]]
//! name = "splits past 64 are dropped"
//! in = "kernels-gpu/src/matmul"
//! find = "first += LOADS * WARPS_PER_CTA;"
//! replace = "first = params.splits;"
//! killer = "-p halfgnn-tests --test emulator products_on_many_multiprocessors"
//! ```
//!
//! - `in`: a folder or a file. The text must stand there exactly once, in whichever file: a file that is moved or split takes
//!   its mutants along. Blanks and line ends do not count, so a formatter may do as it likes.
//! - `killer`: what follows `cargo test`; or `build-ptx` where the builder refuses the kernels.
//! - `entry` in place of `in`: a mutant of the PTX as it was built. The text is looked for in that kernel alone; it may stand
//!   there several times, and the first is meant.
//! - `ptx = true`: the killer runs kernels that have to be built anew, though nothing of `kernels-gpu/src` has changed.
//! - `kernels`: patterns of the entries that the killer runs, where they are known: only those are built, in a fraction of the time.
//!   One that is forgotten is no false success, since the killer must pass with the same ones and without the mutant.

use std::fs;
use std::path::{Path, PathBuf};

use toml_edit::{DocumentMut, Table};

use super::scratch::Sources;
use crate::{Failure, workspace};

/// A mistake, and who finds it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Mutant {
    /// What goes wrong.
    pub name: String,
    /// The list that it is from.
    pub area: String,
    /// Where its text is.
    pub site: Site,
    /// The text.
    pub find: String,
    /// What stands in its place.
    pub replace: String,
    /// What must fail.
    pub killer: Killer,
    /// Whether the PTX is built with it.
    pub builds_ptx: bool,
    /// Patterns of the entries that the killer runs; all if there is none.
    pub kernels: Vec<String>,
}

/// Where a mutant's text is.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Site {
    /// In the source files of a folder, or in one file.
    Sources(String),
    /// In the PTX of a kernel.
    Entry(String),
}

/// What must fail with a mutant in place, and pass without.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Killer {
    /// `cargo test` with these arguments.
    Test(String),
    /// The builder of the PTX.
    BuildPtx,
}

impl std::fmt::Display for Killer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Killer::Test(arguments) => f.write_str(arguments),
            Killer::BuildPtx => f.write_str("build-ptx"),
        }
    }
}

/// A file with a mutant in it.
#[derive(Debug, PartialEq, Eq)]
pub struct Mutated {
    /// The file, from the root of the tree.
    pub path: String,
    /// What it holds.
    pub text: String,
}

/// The folder of the lists.
pub fn folder() -> PathBuf {
    workspace::root().join("xtask/mutants")
}

/// The mutants of every list in a folder, in the order of the files' names.
pub fn read(folder: &Path) -> Result<Vec<Mutant>, Failure> {
    let mut files: Vec<PathBuf> = fs::read_dir(folder)?
        .map(|entry| entry.map(|entry| entry.path()))
        .collect::<Result<_, _>>()?;
    files.retain(|file| {
        file.extension()
            .is_some_and(|extension| extension == "toml")
    });
    files.sort();
    let mut all = Vec::new();
    for file in files {
        let area = file.file_stem().unwrap_or_default().to_string_lossy();
        let text = fs::read_to_string(&file)?;
        let mutants =
            parse(&text, &area).map_err(|error| format!("{}: {error}", file.display()))?;
        all.extend(mutants);
    }
    Ok(all)
}

fn parse(text: &str, area: &str) -> Result<Vec<Mutant>, Failure> {
    let document: DocumentMut = text.parse()?;
    let tables = document["mutant"]
        .as_array_of_tables()
        .ok_or("no [[mutant]]")?;
    tables.iter().map(|table| mutant(table, area)).collect()
}

fn mutant(table: &Table, area: &str) -> Result<Mutant, Failure> {
    const KEYS: [&str; 8] = [
        "name", "in", "entry", "find", "replace", "killer", "ptx", "kernels",
    ];
    let text = |key: &str| table.get(key).and_then(|value| value.as_str());
    let name = text("name").ok_or("a mutant without a name")?;
    let wanted = |key: &str| text(key).ok_or_else(|| format!("{name}: no `{key}`"));
    if let Some((key, _)) = table.iter().find(|(key, _)| !KEYS.contains(key)) {
        return Err(format!("{name}: `{key}` means nothing").into());
    }
    let (find, replace) = (wanted("find")?, wanted("replace")?);
    if blankless(find) == blankless(replace) || blankless(find).is_empty() {
        return Err(format!("{name}: `replace` changes nothing").into());
    }
    let site = match (text("in"), text("entry")) {
        (Some(place), None) => Site::Sources(place.to_owned()),
        (None, Some(entry)) => Site::Entry(entry.to_owned()),
        _ => return Err(format!("{name}: it wants `in` or `entry`").into()),
    };
    let killer = match wanted("killer")? {
        "build-ptx" => Killer::BuildPtx,
        arguments => Killer::Test(arguments.to_owned()),
    };
    let asked = table.get("ptx").and_then(|value| value.as_bool());
    let kernels = match table.get("kernels") {
        None => Some(Vec::new()),
        Some(patterns) => patterns.as_array().and_then(|patterns| {
            let words = patterns.iter().map(|word| word.as_str().map(str::to_owned));
            words.collect::<Option<Vec<_>>>()
        }),
    };
    let kernels = kernels.ok_or_else(|| format!("{name}: `kernels` are no patterns"))?;
    let of_kernels = matches!(&site, Site::Sources(place) if place.starts_with("kernels-gpu/src"));
    Ok(Mutant {
        name: name.to_owned(),
        area: area.to_owned(),
        builds_ptx: asked.unwrap_or(of_kernels) || killer == Killer::BuildPtx,
        site,
        find: find.to_owned(),
        replace: replace.to_owned(),
        killer,
        kernels,
    })
}

impl Mutant {
    /// Whether it changes the PTX and no source.
    pub fn is_of_ptx(&self) -> bool {
        matches!(self.site, Site::Entry(_))
    }

    /// Whether its killer runs kernels: only then it is shown PTX.
    pub fn runs_kernels(&self) -> bool {
        let of_emulator = matches!(&self.killer, Killer::Test(arguments) if arguments.contains("--test emulator"));
        self.killer != Killer::BuildPtx && (self.builds_ptx || self.is_of_ptx() || of_emulator)
    }

    /// The file that holds the text, with the mutant in it.
    pub fn place(&self, files: &Sources) -> Result<Mutated, String> {
        let Site::Sources(place) = &self.site else {
            return Err(format!("{}: it is of the PTX", self.name));
        };
        let (mut found, mut times) = (None, 0);
        for (path, text) in files.within(place) {
            let at = occurrences(text, &self.find);
            times += at.len();
            if let Some(range) = at.into_iter().next() {
                found = Some((path, text, range));
            }
        }
        match found {
            Some((path, text, range)) if times == 1 => Ok(Mutated {
                path: path.to_owned(),
                text: format!(
                    "{}{}{}",
                    &text[..range.start],
                    self.replace,
                    &text[range.end..]
                ),
            }),
            _ => Err(format!(
                "{}: its text stands {times} times in {place}",
                self.name
            )),
        }
    }

    /// The PTX with the mutant in its kernel; `None` where another module has the kernel.
    pub fn place_in_ptx(&self, ptx: &str) -> Result<Option<String>, String> {
        let Site::Entry(entry) = &self.site else {
            return Err(format!("{}: it is of the sources", self.name));
        };
        let Some(begin) = ptx.find(&format!(".entry {entry}(")) else {
            return Ok(None);
        };
        let end = ptx[begin..].find("\n}").map_or(ptx.len(), |at| begin + at);
        let kernel = &ptx[begin..end];
        let range = occurrences(kernel, &self.find)
            .into_iter()
            .next()
            .ok_or_else(|| format!("{}: its text is not in {entry}", self.name))?;
        let (before, after) = (&ptx[..begin + range.start], &ptx[begin + range.end..]);
        Ok(Some(format!("{before}{}{after}", self.replace)))
    }
}

fn blankless(text: &str) -> String {
    text.chars().filter(|c| !c.is_whitespace()).collect()
}

/// Where `wanted` stands in `text`, blanks aside.
fn occurrences(text: &str, wanted: &str) -> Vec<std::ops::Range<usize>> {
    let wanted = blankless(wanted);
    let places: Vec<usize> = text
        .char_indices()
        .filter(|(_, c)| !c.is_whitespace())
        .flat_map(|(at, c)| at..at + c.len_utf8())
        .collect();
    blankless(text)
        .match_indices(&wanted)
        .map(|(at, _)| places[at]..places[at + wanted.len() - 1] + 1)
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIST: &str = "
[[mutant]]
name = 'a sum that is a difference'
in = 'src'
find = 'a + b'
replace = 'a - b'
killer = '-p sums'

[[mutant]]
name = 'no barrier'
entry = 'spmm'
find = 'bar.sync 0;'
replace = ''
killer = '-p emulator'
";

    fn mutants() -> Vec<Mutant> {
        parse(LIST, "here").expect("a legal list")
    }

    #[test]
    fn a_text_is_found_whatever_the_blanks() {
        let files = Sources::of(&[
            ("src/one.rs", "fn f() {\n    a\n        + b\n}"),
            ("tests/two.rs", "a + b"),
        ]);
        let mutated = mutants()[0].place(&files).expect("it is there once");
        assert_eq!(mutated.path, "src/one.rs");
        assert_eq!(mutated.text, "fn f() {\n    a - b\n}");
    }

    #[test]
    fn a_text_that_stands_twice_or_not_at_all_is_refused() {
        let twice = Sources::of(&[("src/one.rs", "a + b; a+b"), ("src/two.rs", "")]);
        let error = mutants()[0].place(&twice).expect_err("twice");
        assert!(error.contains("2 times in src"), "{error}");
        let never = Sources::of(&[("srcs/one.rs", "a + b")]);
        assert!(mutants()[0].place(&never).is_err());
    }

    #[test]
    fn ptx_is_changed_in_its_kernel() {
        let kernel = |name: &str| format!(".visible .entry {name}(\n)\n{{\n\tbar.sync \t0;\n}}\n");
        let ptx = format!("{}{}", kernel("sddmm"), kernel("spmm"));
        let mutated = mutants()[1].place_in_ptx(&ptx).expect("its text is there");
        let mutated = mutated.expect("the kernel is there");
        assert_eq!(mutated.matches("bar.sync").count(), 1);
        assert!(mutated.starts_with(&kernel("sddmm")));
        assert_eq!(
            mutants()[1].place_in_ptx(&kernel("sddmm")),
            Ok(None),
            "another module's"
        );
        let other = kernel("spmm").replace("bar.sync", "ret");
        assert!(mutants()[1].place_in_ptx(&other).is_err());
    }

    #[test]
    fn a_list_that_says_too_little_is_refused() {
        for (from, to, words) in [
            ("find = 'a + b'\n", "", "no `find`"),
            ("'a - b'", "'a+b'", "changes nothing"),
            ("in = 'src'\n", "", "`in` or `entry`"),
            (
                "killer = '-p sums'",
                "killr = '-p sums'",
                "`killr` means nothing",
            ),
            (
                "killer = '-p sums'",
                "killer = '-p sums'\nkernels = 'gemm_*'",
                "no patterns",
            ),
        ] {
            let error = parse(&LIST.replacen(from, to, 1), "here").expect_err(words);
            assert!(error.to_string().contains(words), "{error}");
        }
    }
}
