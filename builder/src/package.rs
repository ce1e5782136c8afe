//! What cargo knows of the kernels crate: its name, its files, its `[package.metadata.ptx]`.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use serde::Deserialize;

pub use halfgnn_manifest::LaunchBounds;

use crate::checks::Rules;
use crate::compile;
use crate::error::BuildError;
use crate::toolchain::Toolchain;

/// Up to which cost LLVM unrolls a loop whose length it knows. LLVM's own 300 leaves longer loops over an array as they
/// are, and the array, indexed by a variable, in local memory; unrolled, it is registers.
const UNROLL_THRESHOLD: u32 = 1000;

/// The table `[package.metadata.ptx]` of a kernels crate. Keys of its tables are entry names, in
/// which `*` stands for any text; of several that match an entry, the longest wins.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields, default)]
pub struct Metadata {
    /// LLVM's `unroll-threshold`; 1000 by default.
    pub unroll_threshold: u32,
    /// Launch bounds by entry pattern.
    pub launch_bounds: BTreeMap<String, LaunchBounds>,
    /// Rules for the emitted PTX by entry pattern.
    pub checks: BTreeMap<String, Rules>,
    /// The crate root that makes the entries of a library, each behind a `cfg` of its name; relative to the crate's
    /// folder. With it the crate is a library (`rlib`), and its entries come in [`Metadata::modules`].
    pub entries: Option<PathBuf>,
    /// The module of an entry, by entry pattern.
    pub modules: BTreeMap<String, String>,
    /// Modules that packages do not carry.
    pub unpackaged: Vec<String>,
}

impl Default for Metadata {
    fn default() -> Self {
        Self {
            unroll_threshold: UNROLL_THRESHOLD,
            launch_bounds: BTreeMap::new(),
            checks: BTreeMap::new(),
            entries: None,
            modules: BTreeMap::new(),
            unpackaged: Vec::new(),
        }
    }
}

/// The kernels crate as cargo sees it.
#[derive(Clone, Debug)]
pub(crate) struct Package {
    pub name: String,
    pub directory: PathBuf,
    pub metadata: Metadata,
    /// The folders whose sources decide the PTX: the crate's own and those of its path dependencies.
    pub source_roots: Vec<PathBuf>,
}

#[derive(Deserialize)]
struct CargoMetadata {
    packages: Vec<CargoPackage>,
}

#[derive(Deserialize)]
struct CargoPackage {
    name: String,
    source: Option<String>,
    manifest_path: PathBuf,
    metadata: Option<serde_json::Value>,
    targets: Vec<CargoTarget>,
}

#[derive(Deserialize)]
struct CargoTarget {
    crate_types: Vec<String>,
}

impl Package {
    /// Asks the device toolchain's cargo about the crate in `directory`.
    pub fn read(directory: &Path, toolchain: &Toolchain) -> Result<Self, BuildError> {
        let wrong = |reason: String| BuildError::Crate {
            path: directory.to_path_buf(),
            reason,
        };
        let directory = directory
            .canonicalize()
            .map_err(BuildError::io(directory))?;
        let manifest = directory.join("Cargo.toml");
        if !manifest.is_file() {
            return Err(wrong(
                "there is no Cargo.toml, so this is no kernels crate".to_owned(),
            ));
        }
        let output = compile::cargo(toolchain)
            .current_dir(&directory)
            .args(["metadata", "--format-version", "1"])
            .output()
            .map_err(BuildError::io(&toolchain.cargo))?;
        if !output.status.success() {
            return Err(wrong(format!(
                "`cargo metadata` failed: {}",
                String::from_utf8_lossy(&output.stderr).trim()
            )));
        }
        let metadata: CargoMetadata = serde_json::from_slice(&output.stdout)
            .map_err(|error| wrong(format!("`cargo metadata` answered nonsense: {error}")))?;

        let source_roots = metadata
            .packages
            .iter()
            .filter(|package| package.source.is_none())
            .filter_map(|package| package.manifest_path.parent().map(Path::to_path_buf))
            .collect();
        let package = metadata
            .packages
            .into_iter()
            .find(|package| same_file(&package.manifest_path, &manifest))
            .ok_or_else(|| wrong("its Cargo.toml describes no package".to_owned()))?;
        let table = package
            .metadata
            .as_ref()
            .and_then(|metadata| metadata.get("ptx"))
            .cloned();
        let metadata = match table {
            Some(table) => serde_json::from_value(table)
                .map_err(|error| wrong(format!("[package.metadata.ptx] in Cargo.toml: {error}")))?,
            None => Metadata::default(),
        };
        let wanted = match metadata.entries {
            Some(_) => "rlib",
            None => "cdylib",
        };
        let is_wanted = |target: &CargoTarget| target.crate_types.iter().any(|kind| kind == wanted);
        if !package.targets.iter().any(is_wanted) {
            return Err(wrong(format!(
                "package {} makes no PTX: its [lib] needs crate-type = [\"{wanted}\"]",
                package.name
            )));
        }
        Ok(Self {
            name: package.name,
            directory,
            metadata,
            source_roots,
        })
    }

    /// The last part of the crate's folder, by which its sources are called in PTX.
    pub fn directory_name(&self) -> String {
        let name = self.directory.file_name().unwrap_or_default();
        name.to_string_lossy().into_owned()
    }
}

fn same_file(a: &Path, b: &Path) -> bool {
    match (a.canonicalize(), b.canonicalize()) {
        (Ok(a), Ok(b)) => a == b,
        _ => false,
    }
}
