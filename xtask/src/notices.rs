//! The notices of third parties that a binary carries: each crate that is compiled into it, under which licence, and the texts.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;
use std::fs;
use std::path::Path;

use serde_json::Value;

use crate::{Failure, workspace};

/// The file's name, next to what it is about.
pub const FILE: &str = "THIRD-PARTY-NOTICES.md";

/// What texts of licences are called in packages of crates.
const TEXTS: [&str; 5] = ["LICENSE", "LICENCE", "COPYING", "NOTICE", "UNLICENSE"];

/// A crate, as `cargo metadata` describes it.
struct Package<'a> {
    name: &'a str,
    version: &'a str,
    license: &'a str,
    repository: &'a str,
    manifest: &'a Path,
}

impl<'a> Package<'a> {
    fn of(value: &'a Value) -> Self {
        let text = |key: &str| value[key].as_str().unwrap_or_default();
        Self {
            name: text("name"),
            version: text("version"),
            license: text("license"),
            repository: text("repository"),
            manifest: Path::new(text("manifest_path")),
        }
    }

    /// The texts of its licences, each once.
    fn texts(&self) -> Result<Vec<String>, Failure> {
        let folder = self.manifest.parent().ok_or("a crate without a folder")?;
        let mut files: Vec<_> = fs::read_dir(folder)?
            .filter_map(|entry| Some(entry.ok()?.path()))
            .filter(|path| {
                let name = path.file_name().unwrap_or_default().to_string_lossy();
                let name = name.to_uppercase();
                path.is_file() && TEXTS.iter().any(|text| name.starts_with(text))
            })
            .collect();
        files.sort();
        let read = |path| -> Result<String, Failure> {
            let text = fs::read(path)?;
            Ok(String::from_utf8_lossy(&text).trim().replace("\r\n", "\n"))
        };
        files.into_iter().map(read).collect()
    }
}

/// The notices of the crates that `package` of the workspace is made of, with these features, on `target`; by default on Linux on x86-64.
pub fn of(package: &str, features: &[&str], target: Option<&str>) -> Result<String, Failure> {
    let mut cargo = workspace::cargo();
    cargo.args(["metadata", "--locked", "--format-version", "1"]);
    // Where binaries run that carry them.
    let target = target.unwrap_or("x86_64-unknown-linux-gnu");
    cargo.args(["--filter-platform", target]);
    for feature in features {
        cargo.args(["--features", feature]);
    }
    let output = cargo.output()?;
    if !output.status.success() {
        let reported = String::from_utf8_lossy(&output.stderr);
        return Err(format!("`cargo metadata` failed: {}", reported.trim()).into());
    }
    written(&serde_json::from_slice(&output.stdout)?, package)
}

fn written(metadata: &Value, root: &str) -> Result<String, Failure> {
    let packages: BTreeMap<&str, Package<'_>> = list(&metadata["packages"])
        .filter_map(|value| Some((value["id"].as_str()?, Package::of(value))))
        .collect();
    let own: BTreeSet<&str> = list(&metadata["workspace_members"])
        .filter_map(Value::as_str)
        .collect();
    let mut crates: Vec<&Package<'_>> = linked(metadata, &packages, root)?
        .into_iter()
        .filter(|id| !own.contains(id))
        .filter_map(|id| packages.get(id))
        .collect();
    crates.sort_by_key(|package| (package.name, package.version));
    let mut page = format!(
        "# Third-party notices\n\n{root} is made of these crates, besides those of HalfGNN. A crate is at\n\
         `https://crates.io/crates/NAME/VERSION`, with its source.\n\n| crate | licence | source |\n|---|---|---|\n"
    );
    let mut texts: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for package in &crates {
        let name = format!("{} {}", package.name, package.version);
        writeln!(
            page,
            "| {name} | {} | {} |",
            package.license, package.repository
        )?;
        for text in package.texts()? {
            texts.entry(text).or_default().push(name.clone());
        }
    }
    page.push_str("\n# Texts of the licences\n");
    let mut texts: Vec<_> = texts.into_iter().collect();
    texts.sort_by(|(_, one), (_, other)| one.cmp(other));
    for (text, names) in texts {
        write!(
            page,
            "\n## {}\n\n````text\n{text}\n````\n",
            names.join(", ")
        )?;
    }
    Ok(page)
}

/// The crates that are linked, whichever way they are depended on, the root among them.
fn linked<'a>(
    metadata: &'a Value,
    packages: &BTreeMap<&'a str, Package<'a>>,
    root: &str,
) -> Result<BTreeSet<&'a str>, Failure> {
    let mut edges: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for node in list(&metadata["resolve"]["nodes"]) {
        // One that is needed to build or to test alone is not linked.
        let is_linked = |of: &&Value| list(&of["dep_kinds"]).any(|kind| kind["kind"].is_null());
        let below = list(&node["deps"]).filter(is_linked);
        let below = below.filter_map(|of| of["pkg"].as_str());
        edges.insert(node["id"].as_str().unwrap_or_default(), below.collect());
    }
    let named = |(id, package): (&&'a str, &Package<'_>)| (package.name == root).then_some(*id);
    let mut open: Vec<&str> = packages.iter().filter_map(named).collect();
    if open.is_empty() {
        return Err(format!("the workspace has no package {root}").into());
    }
    let mut seen = BTreeSet::new();
    while let Some(id) = open.pop() {
        if seen.insert(id) {
            open.extend(edges.get(id).into_iter().flatten());
        }
    }
    Ok(seen)
}

fn list(value: &Value) -> impl Iterator<Item = &Value> {
    value.as_array().into_iter().flatten()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Of the real lock file: the program has the crate with the copyleft licence and none that is for tests alone.
    #[test]
    fn the_program_s_notices_name_what_it_is_made_of_and_nothing_else() {
        let page =
            of("halfgnn-cli", &["halfgnn-cli/cuda"], None).expect("the crates are downloaded");
        assert!(page.contains("| MPL-2.0 |"), "{page}");
        assert!(page.contains("Mozilla Public License"), "its text");
        for name in ["| clap ", "| rayon ", "| cust "] {
            assert!(page.contains(name), "{name}");
        }
        for name in [
            "| halfgnn",
            "| clap-markdown ",
            "| criterion ",
            "| proptest ",
        ] {
            assert!(!page.contains(name), "{name}");
        }
    }

    #[test]
    fn a_text_that_crates_share_stands_once() {
        let folder = std::env::temp_dir().join(format!("halfgnn-notices-{}", std::process::id()));
        let package = |name: &str| {
            let manifest = folder.join(name).join("Cargo.toml");
            fs::create_dir_all(folder.join(name)).unwrap();
            fs::write(folder.join(name).join("LICENSE"), "Do what you want.\r\n").unwrap();
            serde_json::json!({"id": name, "name": name, "version": "1.0.0", "license": "MIT", "manifest_path": manifest})
        };
        let dep = |name: &str, kind: Option<&str>| serde_json::json!({"pkg": name, "dep_kinds": [{"kind": kind}]});
        let metadata = serde_json::json!({
            "packages": [package("own"), package("a"), package("b"), package("c")],
            "workspace_members": ["own"],
            "resolve": {"nodes": [
                {"id": "own", "deps": [dep("a", None), dep("c", Some("dev"))]},
                {"id": "a", "deps": [dep("b", None), dep("own", None)]},
            ]},
        });
        let page = written(&metadata, "own").unwrap();
        fs::remove_dir_all(&folder).unwrap();
        assert!(page.contains("| a 1.0.0 | MIT |") && page.contains("## a 1.0.0, b 1.0.0\n"));
        assert_eq!(page.matches("Do what you want.").count(), 1, "{page}");
        assert!(!page.contains("c 1.0.0"), "{page}");
        assert!(written(&metadata, "none").is_err());
    }
}
