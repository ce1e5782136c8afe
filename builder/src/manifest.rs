//! The manifest: what was built, from what, and what a launcher must know of it.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use ptx_syntax::Slot;
use serde::{Deserialize, Serialize};

use crate::error::BuildError;
use crate::files;
use crate::package::LaunchBounds;
use crate::ptx::Module;

/// `NAME.manifest.json`, beside the PTX files.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Manifest {
    /// The kernels crate.
    pub package: String,
    /// The rustc that compiled it.
    pub rustc: String,
    /// The LLVM that lowered it.
    pub llvm: String,
    /// Of the sources, the toolchain and the options: unchanged means that nothing needs to be built.
    pub fingerprint: String,
    /// One PTX file for each architecture, by its name (`sm_90`).
    pub modules: BTreeMap<String, ModuleRecord>,
}

/// One PTX file.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ModuleRecord {
    /// Its name, beside the manifest.
    pub file: String,
    /// Of its content.
    pub fingerprint: String,
    /// The entries, by name.
    pub entries: BTreeMap<String, EntryRecord>,
    /// Bytes of each variable that the host can find, by name.
    pub globals: BTreeMap<String, u64>,
}

/// One parameter of an entry.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Param {
    /// Size in bytes.
    pub size: u32,
    /// Alignment in bytes.
    pub align: u32,
    /// PTX's type: `u64`, `f32`, `b8` for an aggregate.
    pub ty: String,
}

impl From<&Slot<'_>> for Param {
    fn from(slot: &Slot<'_>) -> Self {
        Self {
            size: slot.size,
            align: slot.align,
            ty: slot.ty.to_owned(),
        }
    }
}

/// One kernel.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct EntryRecord {
    /// Parameters, in order.
    pub params: Vec<Param>,
    /// Bytes of static shared memory.
    pub static_shared: u64,
    /// `.maxntid` and `.minnctapersm`, if set.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub launch_bounds: Option<LaunchBounds>,
    /// Registers a thread, by architecture; empty where ptxas did not run.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub registers: BTreeMap<String, u32>,
}

impl Manifest {
    /// Reads a manifest.
    ///
    /// # Errors
    /// [`BuildError::Io`] if it cannot be read or is no manifest.
    pub fn read(path: &Path) -> Result<Self, BuildError> {
        let text = fs::read_to_string(path).map_err(BuildError::io(path))?;
        serde_json::from_str(&text).map_err(|error| BuildError::Io {
            path: path.to_path_buf(),
            source: error.into(),
        })
    }

    pub(crate) fn write(&self, path: &Path) -> Result<(), BuildError> {
        let mut text = serde_json::to_string_pretty(self).map_err(|error| BuildError::Io {
            path: path.to_path_buf(),
            source: error.into(),
        })?;
        text.push('\n');
        if fs::read_to_string(path).is_ok_and(|old| old == text) {
            return Ok(());
        }
        files::write_atomically(path, text.as_bytes())
    }
}

impl ModuleRecord {
    pub(crate) fn new(file: String, fingerprint: String, module: &Module<'_>) -> Self {
        let entries = module
            .source
            .entries()
            .map(|entry| {
                let record = EntryRecord {
                    params: entry.params.iter().map(Param::from).collect(),
                    static_shared: module.static_shared(entry),
                    launch_bounds: entry.max_threads.map(|max_threads| LaunchBounds {
                        max_threads,
                        min_ctas: entry.min_ctas,
                    }),
                    registers: BTreeMap::new(),
                };
                (entry.name.to_owned(), record)
            })
            .collect();
        let globals = module
            .source
            .variables
            .iter()
            .filter(|variable| variable.visible)
            .map(|variable| (variable.name.to_owned(), u64::from(variable.size)))
            .collect();
        Self {
            file,
            fingerprint,
            entries,
            globals,
        }
    }
}
