//! A copy of the working tree to make mistakes in.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::{Failure, workspace};

/// The source files of a tree, by their path from its root.
#[derive(Debug, Default)]
pub struct Sources(BTreeMap<String, String>);

impl Sources {
    /// These files.
    #[cfg(test)]
    pub fn of(files: &[(&str, &str)]) -> Self {
        let owned = |(path, text): &(&str, &str)| ((*path).to_owned(), (*text).to_owned());
        Self(files.iter().map(owned).collect())
    }

    /// The files of a folder, or one file, with what they hold.
    pub fn within(&self, place: &str) -> impl Iterator<Item = (&str, &str)> {
        let is_within = move |path: &str| {
            path.strip_prefix(place.trim_end_matches('/'))
                .is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
        };
        self.0
            .iter()
            .filter(move |(path, _)| is_within(path))
            .map(|(path, text)| (path.as_str(), text.as_str()))
    }

    /// What a file holds.
    pub fn get(&self, path: &str) -> Option<&str> {
        self.0.get(path).map(String::as_str)
    }

    /// A number that is another when a file is.
    pub fn fingerprint(&self) -> u64 {
        let mut hasher = DefaultHasher::new();
        self.0.hash(&mut hasher);
        hasher.finish()
    }
}

/// The source files under a root that git tracks, or would.
pub fn sources(root: &Path) -> Result<Sources, Failure> {
    let mut sources = Sources::default();
    for path in listed(root)? {
        let is_source = [".rs", ".toml"].iter().any(|end| path.ends_with(end));
        // The lists themselves hold every text.
        if is_source && !path.starts_with("xtask/") {
            let text = fs::read_to_string(root.join(&path))?;
            sources.0.insert(path, text);
        }
    }
    Ok(sources)
}

/// The files that git tracks, or would, and that are there.
fn listed(root: &Path) -> Result<Vec<String>, Failure> {
    let mut git = Command::new("git");
    git.args([
        "ls-files",
        "-z",
        "--cached",
        "--others",
        "--exclude-standard",
    ])
    .current_dir(root);
    let output = git.output()?;
    if !output.status.success() {
        return Err(String::from_utf8_lossy(&output.stderr).into());
    }
    let mut paths = Vec::new();
    for path in output.stdout.split(|&byte| byte == 0) {
        let path = String::from_utf8(path.to_vec())?;
        if root.join(&path).is_file() {
            paths.push(path);
        }
    }
    Ok(paths)
}

/// The copy, and the target folder of what is built from it.
#[derive(Debug)]
pub struct Scratch {
    folder: PathBuf,
}

impl Scratch {
    /// Under the target folder.
    pub fn new() -> Result<Self, Failure> {
        let folder = workspace::target_dir().join("mutants");
        fs::create_dir_all(folder.join("tree"))?;
        Ok(Self { folder })
    }

    /// Where everything is.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// The root of the copy.
    pub fn tree(&self) -> PathBuf {
        self.folder.join("tree")
    }

    /// What is built from it.
    pub fn target(&self) -> PathBuf {
        self.folder.join("target")
    }

    /// Makes the copy what the working tree is. Files that are the same stay untouched, and so does what was built of them.
    pub fn refresh(&self) -> Result<Sources, Failure> {
        let (from, to) = (workspace::root(), self.tree());
        let wanted: BTreeSet<String> = listed(from)?.into_iter().collect();
        for path in &wanted {
            let bytes = fs::read(from.join(path))?;
            let copy = to.join(path);
            if fs::read(&copy).is_ok_and(|old| old == bytes) {
                continue;
            }
            if let Some(folder) = copy.parent() {
                fs::create_dir_all(folder)?;
            }
            fs::copy(from.join(path), &copy)?;
            // `copy` may have kept the time of the original, by which cargo would think it built.
            fs::write(&copy, &bytes)?;
        }
        remove_others(&to, &to, &wanted)?;
        sources(from)
    }

    /// Writes a file of the copy.
    pub fn write(&self, path: &str, text: &str) -> Result<(), Failure> {
        Ok(fs::write(self.tree().join(path), text)?)
    }
}

/// Removes the files under `folder` that are not wanted.
fn remove_others(root: &Path, folder: &Path, wanted: &BTreeSet<String>) -> Result<(), Failure> {
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        if path.is_dir() {
            remove_others(root, &path, wanted)?;
        } else if let Some(name) = path.strip_prefix(root).ok().and_then(Path::to_str)
            && !wanted.contains(name)
            && !name.ends_with("Cargo.lock")
        {
            fs::remove_file(&path)?;
        }
    }
    Ok(())
}
