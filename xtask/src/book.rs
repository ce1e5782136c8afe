//! `cargo xtask book`: the book of `docs/`, with the pages that are made of the program, of the Python package and of the results.
//!
//! The sources of the book are a copy of `docs/` with these pages, so that nothing generated lies among what people write. mdBook
//! renders them. Then every link of the rendered pages is followed.

mod links;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use pulldown_cmark::{Event, Options, Parser, Tag};

use crate::{Failure, tables, test, words, workspace};

/// The version of mdBook that renders the book, from crates.io.
const MDBOOK: &str = "0.5.4";

/// Has a test of the program write the page of its commands to this file.
const WRITE: &str = "HALFGNN_WRITE_DOCS";

/// Makes the book and checks its links.
///
/// # Errors
/// What could not be built, and each link that leads nowhere.
pub fn run() -> Result<(), Failure> {
    let target = workspace::target_dir();
    let (source, book) = (target.join("book-source"), target.join("book"));
    copy_pages(&source)?;
    page_of_commands(&source.join("cli.md"))?;
    python_reference(&source)?;
    fs::write(source.join("commands.md"), tables::commands()?)?;
    workspace::run(
        Command::new(mdbook()?)
            .arg("build")
            .arg(&source)
            .arg("--dest-dir")
            .arg(&book),
    )?;
    let (pages, faults) = links::check(&book)?;
    if !faults.is_empty() {
        let faults_of_links = format!("{} links of the book lead nowhere", faults.len());
        return Err(format!("{faults_of_links}\n{}", faults.join("\n")).into());
    }
    println!(
        "{}: {pages} pages, all links lead somewhere",
        book.join("index.html").display()
    );
    Ok(())
}

/// Copies the files of `docs/`, with links as the book has them.
fn copy_pages(source: &Path) -> Result<(), Failure> {
    if source.exists() {
        fs::remove_dir_all(source)?;
    }
    let repository = repository()?;
    for file in workspace::files()? {
        let from = workspace::root().join(&file);
        let Ok(inner) = file.strip_prefix("docs") else {
            continue;
        };
        // What is deleted and still tracked is not there.
        if !from.exists() {
            continue;
        }
        let to = source.join(inner);
        fs::create_dir_all(to.parent().ok_or("a page without a folder")?)?;
        let name = file.to_string_lossy().replace('\\', "/");
        // The table of contents names files.
        if name.ends_with(".md") && inner != Path::new(CONTENTS) {
            fs::write(
                &to,
                relinked(&name, &fs::read_to_string(&from)?, &repository),
            )?;
        } else {
            fs::copy(&from, &to)?;
        }
    }
    Ok(())
}

/// The address of the repository, as the book has it.
fn repository() -> Result<String, Failure> {
    let settings = fs::read_to_string(workspace::root().join("docs/book.toml"))?;
    let settings: toml_edit::DocumentMut = settings.parse()?;
    let address = settings["output"]["html"]["git-repository-url"].as_str();
    let address = address.ok_or("docs/book.toml: output.html has no git-repository-url")?;
    Ok(address.to_owned())
}

/// A page whose links out of `docs/` lead to the repository, and links to a `README.md` to the `index.md` that mdBook makes of it.
fn relinked(page: &str, text: &str, repository: &str) -> String {
    let mut made = String::new();
    let mut done = 0;
    for (event, at) in Parser::new_ext(text, Options::ENABLE_TABLES).into_offset_iter() {
        let Event::Start(Tag::Link { dest_url, .. }) = event else {
            continue;
        };
        let (path, _) = dest_url.split_once('#').unwrap_or((&dest_url, ""));
        let is_relative = !path.is_empty() && !path.contains(':');
        let Some(name) = words::joined(page, path).filter(|_| is_relative) else {
            continue;
        };
        let target = match name.starts_with("docs/") {
            true => match path.strip_suffix("README.md") {
                Some(folder) => format!("{folder}index.md"),
                None => continue,
            },
            false => format!("{repository}/blob/main/{name}"),
        };
        let written = format!("]({dest_url}");
        if let Some(found) = text[at.clone()].rfind(&written) {
            let anchor = &dest_url[path.len()..];
            made.push_str(&text[done..at.start + found]);
            made.push_str(&format!("]({target}{anchor}"));
            done = at.start + found + written.len();
        }
    }
    made + &text[done..]
}

/// Has the program's test write the page of all commands. The features are those of all tests: in CI nothing is compiled for it.
fn page_of_commands(page: &Path) -> Result<(), Failure> {
    let mut write = workspace::cargo();
    write
        .args(["test", "--locked", "--quiet", "--workspace"])
        .args(test::FEATURES)
        .args(["--bin", "halfgnn", "--", "page_of_commands"]);
    workspace::run(write.env(WRITE, page))?;
    let text = fs::read_to_string(page);
    let text =
        text.map_err(|error| format!("a test should have written {}: {error}", page.display()))?;
    expect_words(
        "the help of the program",
        &words::of_generated("cli.md", &text),
    )
}

/// The table of contents, and its line of the Python package.
const CONTENTS: &str = "SUMMARY.md";
const PYTHON: &str = "- [Python](python/README.md)\n";

/// Writes the pages of the Python package, and adds them to the table of contents. No old word is in a docstring.
fn python_reference(source: &Path) -> Result<(), Failure> {
    let folder = source.join("python");
    let mut write = Command::new("python3");
    write.arg(workspace::root().join("python/reference.py"));
    workspace::run(write.arg(&folder))?;
    let list = folder.join("contents.txt");
    let pages = nested(&fs::read_to_string(&list)?);
    fs::remove_file(list)?;
    let contents = fs::read_to_string(source.join(CONTENTS))?;
    if !contents.contains(PYTHON) {
        return Err(format!("docs/{CONTENTS} has no line `{}`", PYTHON.trim_end()).into());
    }
    let contents = contents.replace(PYTHON, &format!("{PYTHON}{pages}"));
    fs::write(source.join(CONTENTS), contents)?;
    let mut faults = Vec::new();
    for page in links::files(&folder)? {
        faults.extend(words::of_generated(
            &page,
            &fs::read_to_string(folder.join(&page))?,
        ));
    }
    expect_words("docstrings of python/halfgnn", &faults)
}

/// That a text has no old words.
fn expect_words(of: &str, faults: &[String]) -> Result<(), Failure> {
    match faults.is_empty() {
        true => Ok(()),
        false => Err(format!("old words in {of}\n{}", faults.join("\n")).into()),
    }
}

/// A list of pages of the Python package, as part of the table of contents.
fn nested(pages: &str) -> String {
    let page = |line: &str| {
        let line = line.replace("](", "](python/").replace("](python/)", "]()");
        format!("  {line}\n")
    };
    pages.lines().map(page).collect()
}

/// mdBook: that which is installed in this version, or one that cargo builds below the target folder, once.
fn mdbook() -> Result<PathBuf, Failure> {
    let is_pinned = |program: &Path| {
        let version = Command::new(program).arg("--version").output();
        version.is_ok_and(|output| {
            output.stdout.trim_ascii() == format!("mdbook v{MDBOOK}").as_bytes()
        })
    };
    let root = workspace::target_dir().join("mdbook");
    let built = root
        .join("bin")
        .join(format!("mdbook{}", std::env::consts::EXE_SUFFIX));
    if let Some(found) = [PathBuf::from("mdbook"), built.clone()]
        .into_iter()
        .find(|of| is_pinned(of))
    {
        return Ok(found);
    }
    eprintln!("No mdBook {MDBOOK} yet; building one.");
    let build = root.join("build");
    let mut install = workspace::cargo();
    install.args([
        "install",
        "mdbook",
        "--locked",
        "--quiet",
        "--force",
        "--version",
        MDBOOK,
    ]);
    // Unoptimized it renders the book in a second, and is built in half the time.
    install.args(["--debug", "--no-default-features", "--features", "search"]);
    install
        .arg("--root")
        .arg(&root)
        .arg("--target-dir")
        .arg(&build);
    install
        .env("CARGO_PROFILE_DEV_DEBUG", "0")
        .env("CARGO_INCREMENTAL", "0");
    workspace::run(&mut install)?;
    fs::remove_dir_all(&build)?;
    match is_pinned(&built) {
        true => Ok(built),
        false => Err(format!("{} is not mdBook {MDBOOK}", built.display()).into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_of_python_are_below_their_line() {
        let contents = fs::read_to_string(workspace::root().join("docs").join(CONTENTS));
        assert!(contents.unwrap().contains(PYTHON));
        let pages = nested("- [Graphs]()\n  - [Graph](Graph.md)\n");
        assert_eq!(pages, "  - [Graphs]()\n    - [Graph](python/Graph.md)\n");
    }

    #[test]
    fn links_lead_to_the_book_or_the_repository() {
        let page = "[a](../data.md) [b](../../host/x.rs#L1), [`c`](../../README.md) [d](https://x.y) [e](#f)\n\n\
                    | [t](../log/README.md#t) |\n|---|\n\n```\n[code](../../x)\n```\n";
        let made = "[a](../data.md) [b](R/blob/main/host/x.rs#L1), [`c`](R/blob/main/README.md) [d](https://x.y) [e](#f)\n\n\
                    | [t](../log/index.md#t) |\n|---|\n\n```\n[code](../../x)\n```\n";
        assert_eq!(relinked("docs/how-to/train.md", page, "R"), made);
        assert!(repository().unwrap().starts_with("https://"));
    }
}
