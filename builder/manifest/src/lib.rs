//! Built GPU kernels as files: a [`Manifest`] that lists modules and their entries, and a [`Store`] that holds the
//! files.
//!
//! ```text
//! halfgnn.manifest.json          modules, entries, fingerprints          a folder, as the builder writes it,
//! halfgnn/spmm-f16-sm_80.ptx     PTX of one module                       or one archive (`halfgnn.kernels.zip`)
//! halfgnn/spmm-f16-sm_90.cubin   machine code, assembled from that PTX   of the same files, compressed
//! ```
//!
//! The builder writes these files. The host reads them and loads a module when a launch needs one of its entries.

mod fingerprint;
mod store;

pub use fingerprint::Fingerprint;
pub use store::{Store, pack};

use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// The end of the manifest's file name, behind the name of the kernels.
pub const MANIFEST_SUFFIX: &str = ".manifest.json";

/// The end of an archive's file name, behind the name of the kernels.
pub const ARCHIVE_SUFFIX: &str = ".kernels.zip";

/// `NAME.manifest.json`: what was built, from what, and what a launcher must know of it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Manifest {
    /// The kernels crate.
    pub package: String,
    /// The rustc that compiled it.
    pub rustc: String,
    /// The LLVM that lowered it.
    pub llvm: String,
    /// Hash of sources, toolchain and options: if it is unchanged, nothing needs to be built.
    pub fingerprint: String,
    /// Whether some entries alone were asked for.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub partial: bool,
    /// The modules, by name.
    pub modules: BTreeMap<String, ModuleRecord>,
}

/// One module: the entries that are compiled and loaded together.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ModuleRecord {
    /// Whether packages carry the module. Modules of comparisons and ablations come with a build from source alone.
    pub packaged: bool,
    /// Hash of the module's unoptimised code and of the options: if it is unchanged, its PTX is up to date.
    pub fingerprint: String,
    /// The entries, by name.
    pub entries: BTreeMap<String, EntryRecord>,
    /// The variables that the host can find, by name.
    pub globals: BTreeMap<String, GlobalRecord>,
    /// PTX by architecture (`sm_80`).
    pub ptx: BTreeMap<String, FileRecord>,
    /// Machine code by architecture; empty where no assembler ran.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub machine_code: BTreeMap<String, CodeRecord>,
}

/// A file of a [`Store`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FileRecord {
    /// Its path, relative to the manifest, with `/` between folders.
    pub file: String,
    /// Hash of its content.
    pub fingerprint: String,
}

/// Machine code, and the PTX that it was assembled from.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CodeRecord {
    /// The machine code.
    #[serde(flatten)]
    pub code: FileRecord,
    /// [`FileRecord::fingerprint`] of the PTX.
    pub ptx: String,
}

/// A variable of a module.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct GlobalRecord {
    /// Bytes.
    pub size: u64,
    /// Its initial content as hexadecimal digits; absent if it has none or is longer than 64 bytes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub init: Option<String>,
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
    /// Registers of a thread by architecture; empty where ptxas did not run.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub registers: BTreeMap<String, u32>,
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

/// How many threads a CTA of an entry may have, and how many CTAs must fit on one multiprocessor:
/// PTX's `.maxntid` and `.minnctapersm`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct LaunchBounds {
    /// Threads of a CTA, 1 to 1024.
    pub max_threads: u32,
    /// CTAs that must be resident on one multiprocessor at a time, 1 to 32; bounds the registers of a thread.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub min_ctas: Option<u32>,
}

/// Why kernels cannot be read, in one line.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct ManifestError(pub(crate) String);

impl ManifestError {
    pub(crate) fn new(place: impl std::fmt::Display, reason: impl std::fmt::Display) -> Self {
        Self(format!("{place}: {reason}"))
    }
}

impl Manifest {
    /// Reads a manifest's text. `place` names it in errors.
    ///
    /// # Errors
    /// [`ManifestError`] where the text is no manifest.
    pub fn parse(place: &str, text: &[u8]) -> Result<Self, ManifestError> {
        serde_json::from_slice(text).map_err(|error| {
            ManifestError::new(place, format!("it is no manifest of kernels ({error})"))
        })
    }

    /// The text that [`Manifest::parse`] reads, with a line break at its end.
    pub fn to_text(&self) -> String {
        // Maps with text for keys and plain values: there is nothing that JSON cannot express.
        let mut text = serde_json::to_string_pretty(self).unwrap_or_default();
        text.push('\n');
        text
    }
}

impl ModuleRecord {
    /// The PTX for a GPU of this architecture, as a number (90 for sm_90): of the architectures that the GPU has, the
    /// newest.
    pub fn ptx_for(&self, architecture: u32) -> Option<(u32, &FileRecord)> {
        self.ptx
            .iter()
            .filter_map(|(arch, file)| Some((number(arch)?, file)))
            .filter(|(arch, _)| *arch <= architecture)
            .max_by_key(|(arch, _)| *arch)
    }

    /// The machine code that a GPU of this architecture runs: of the same major version and not newer, the newest (CUDA
    /// C++ Programming Guide, "Binary Compatibility"). Machine code of other PTX than that of the module is not taken.
    pub fn machine_code_for(&self, architecture: u32) -> Option<(u32, &FileRecord)> {
        self.machine_code
            .iter()
            .filter(|(_, record)| self.ptx.values().any(|ptx| ptx.fingerprint == record.ptx))
            .filter_map(|(arch, record)| Some((number(arch)?, &record.code)))
            .filter(|(arch, _)| arch / 10 == architecture / 10 && *arch <= architecture)
            .max_by_key(|(arch, _)| *arch)
    }
}

/// 90 of `sm_90`.
fn number(arch: &str) -> Option<u32> {
    arch.strip_prefix("sm_")?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(name: &str) -> FileRecord {
        FileRecord {
            file: name.to_owned(),
            fingerprint: name.to_owned(),
        }
    }

    fn module() -> ModuleRecord {
        let code = |name: &str, ptx: &str| CodeRecord {
            code: file(name),
            ptx: ptx.to_owned(),
        };
        ModuleRecord {
            packaged: true,
            fingerprint: String::new(),
            entries: BTreeMap::new(),
            globals: BTreeMap::new(),
            ptx: BTreeMap::from([
                ("sm_80".to_owned(), file("80")),
                ("sm_90".to_owned(), file("90")),
            ]),
            machine_code: BTreeMap::from([
                ("sm_80".to_owned(), code("c80", "80")),
                ("sm_86".to_owned(), code("c86", "80")),
                ("sm_100".to_owned(), code("c100", "90")),
                ("sm_120".to_owned(), code("c120", "of other sources")),
            ]),
        }
    }

    #[test]
    fn ptx_is_the_newest_that_the_gpu_has() {
        let module = module();
        let name = |arch| module.ptx_for(arch).map(|(_, file)| file.file.as_str());
        let expected = [
            (75, None),
            (80, Some("80")),
            (89, Some("80")),
            (90, Some("90")),
            (120, Some("90")),
        ];
        for (arch, file) in expected {
            assert_eq!(name(arch), file, "sm_{arch}");
        }
    }

    #[test]
    fn machine_code_is_of_the_same_major_version_and_of_the_same_ptx() {
        let module = module();
        let name = |arch| {
            module
                .machine_code_for(arch)
                .map(|(_, file)| file.file.as_str())
        };
        assert_eq!(name(80), Some("c80"));
        assert_eq!(name(87), Some("c86"));
        assert_eq!(name(90), None, "there is none of that major version");
        assert_eq!(name(100), Some("c100"));
        assert_eq!(name(103), Some("c100"));
        assert_eq!(name(120), None, "it was assembled from other PTX");
    }

    #[test]
    fn a_manifest_is_read_as_it_was_written() {
        let manifest = Manifest {
            package: "p".to_owned(),
            rustc: "r".to_owned(),
            llvm: "l".to_owned(),
            fingerprint: "f".to_owned(),
            partial: false,
            modules: BTreeMap::from([("m".to_owned(), module())]),
        };
        let text = manifest.to_text();
        assert_eq!(Manifest::parse("x", text.as_bytes()), Ok(manifest));
        let error = Manifest::parse("x.json", b"{}").expect_err("fields are missing");
        assert!(error.to_string().starts_with("x.json: "), "{error}");
    }
}
