//! What cargo knows of the kernels crate: its name, its files, its `[package.metadata.ptx]`.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use serde::Deserialize;

use crate::checks::Rules;
use crate::compile;
use crate::error::BuildError;
use crate::toolchain::Toolchain;

/// How many threads a CTA of an entry may have, and how many CTAs must fit on one multiprocessor:
/// PTX's `.maxntid` and `.minnctapersm`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, serde::Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct LaunchBounds {
    /// Threads of a CTA, 1 to 1024.
    pub max_threads: u32,
    /// CTAs that must be resident on one multiprocessor at a time, 1 to 32; bounds the registers of a thread.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub min_ctas: Option<u32>,
}

/// Up to which cost LLVM unrolls a loop whose length it knows. LLVM's own 300 leaves longer loops over an array as they
/// are, and the array, indexed by a variable, in local memory; unrolled, it is registers.
const UNROLL_THRESHOLD: u32 = 1000;

/// The table `[package.metadata.ptx]` of a kernels crate. Keys of both tables are entry names, in
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
}

impl Default for Metadata {
    fn default() -> Self {
        Self {
            unroll_threshold: UNROLL_THRESHOLD,
            launch_bounds: BTreeMap::new(),
            checks: BTreeMap::new(),
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
        let is_cdylib =
            |target: &CargoTarget| target.crate_types.iter().any(|kind| kind == "cdylib");
        if !package.targets.iter().any(is_cdylib) {
            return Err(wrong(format!(
                "package {} makes no PTX: its [lib] needs crate-type = [\"cdylib\"]",
                package.name
            )));
        }
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
