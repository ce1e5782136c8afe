//! The links of rendered pages: each leads to a file that is there, and to an element of its page.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use crate::Failure;
use crate::words::joined;

/// What a page has of links.
struct Page {
    links: Vec<String>,
    ids: BTreeSet<String>,
}

impl Page {
    fn new(html: &str) -> Self {
        let links = ["href", "src"].iter().flat_map(|name| values(html, name));
        Self {
            links: links.map(str::to_owned).collect(),
            ids: values(html, "id").map(str::to_owned).collect(),
        }
    }
}

/// The values of an attribute. In the text of a page quotes are escaped.
fn values<'a>(html: &'a str, attribute: &str) -> impl Iterator<Item = &'a str> {
    let begin = format!(" {attribute}=\"");
    let starts: Vec<usize> = html
        .match_indices(&begin)
        .map(|(at, _)| at + begin.len())
        .collect();
    starts
        .into_iter()
        .filter_map(|at| html[at..].split_once('"').map(|(value, _)| value))
}

/// The number of pages in a folder, and their links that lead nowhere.
///
/// # Errors
/// Files that cannot be read.
pub fn check(book: &Path) -> Result<(usize, Vec<String>), Failure> {
    let files = files(book)?;
    let mut pages = BTreeMap::new();
    // 404.html is shown in place of any page, so its links are from the root of a site.
    for name in files
        .iter()
        .filter(|name| name.ends_with(".html") && *name != "404.html")
    {
        pages.insert(
            name.clone(),
            Page::new(&fs::read_to_string(book.join(name))?),
        );
    }
    Ok((pages.len(), faults(&pages, &files)))
}

/// All files below a folder, named from it on.
///
/// # Errors
/// Folders that cannot be read.
pub fn files(folder: &Path) -> Result<BTreeSet<String>, Failure> {
    let mut files = BTreeSet::new();
    collect(folder, Path::new(""), &mut files)?;
    Ok(files)
}

fn collect(root: &Path, folder: &Path, files: &mut BTreeSet<String>) -> Result<(), Failure> {
    for entry in fs::read_dir(root.join(folder))? {
        let entry = entry?;
        let name: PathBuf = folder.join(entry.file_name());
        match entry.file_type()?.is_dir() {
            true => collect(root, &name, files)?,
            false => {
                files.insert(name.to_string_lossy().replace('\\', "/"));
            }
        }
    }
    Ok(())
}

/// Each link that leads nowhere, with its page.
fn faults(pages: &BTreeMap<String, Page>, files: &BTreeSet<String>) -> Vec<String> {
    let links = pages
        .iter()
        .flat_map(|(name, page)| page.links.iter().map(move |link| (name, link)));
    let is_local = |link: &str| {
        !link.contains("://") && !link.starts_with("mailto:") && !link.starts_with("data:")
    };
    let leads = |name: &str, link: &str| {
        let (path, anchor) = link.split_once('#').unwrap_or((link, ""));
        let target = match path.is_empty() {
            true => Some(name.to_owned()),
            false => joined(name, path),
        };
        target.is_some_and(|target| {
            let has_anchor = |page: &Page| anchor.is_empty() || page.ids.contains(anchor);
            files.contains(&target) && pages.get(&target).is_none_or(has_anchor)
        })
    };
    let faults = links.filter(|(name, link)| is_local(link) && !leads(name, link));
    faults
        .map(|(name, link)| format!("{name}: {link}"))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn links_that_lead_nowhere_are_found() {
        let a = "<h1 id=\"a\"> <a href=\"#a\"> <a href=\"#b\"> <a class=\"x\" href=\"f/b.html#c\"> <img src=\"x.svg\"> <a href=\"f/b.html#d\"> \
                 <a href=\"https://x.y/z\"> &lt;a href=&quot;no&quot;&gt; <a href=\"f/\"> <a href=\"../a.html\"> <a href=\"f/none.html\">";
        let b = "<p id=\"c\"><a href=\"../a.html\"><script src=\"../x.js\"></script>";
        let pages = [("a.html", a), ("f/b.html", b)];
        let pages = pages
            .map(|(name, html)| (name.to_owned(), Page::new(html)))
            .into();
        let files = ["a.html", "f/b.html", "x.svg"].map(str::to_owned).into();
        let wrong = [
            "a.html: #b",
            "a.html: f/b.html#d",
            "a.html: f/",
            "a.html: ../a.html",
            "a.html: f/none.html",
            "f/b.html: ../x.js",
        ];
        assert_eq!(faults(&pages, &files), wrong);
    }
}
