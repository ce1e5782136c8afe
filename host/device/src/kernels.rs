//! The built kernels: where they are, and the form of each module that a device runs.
//!
//! A package embeds an archive of the kernels, or has it in a folder next to the program. A clone of the repository has
//! the files that `cargo xtask build-ptx` made. [`Kernels::find`] looks for both, at run time.
//!
//! ```no_run
//! use halfgnn_device::kernels::Kernels;
//!
//! let kernels = Kernels::find(Some((9, 0)))?;
//! println!("{kernels}");
//! # Ok::<(), halfgnn_device::kernels::KernelsError>(())
//! ```

use halfgnn_manifest::{Manifest, ManifestError, ModuleRecord, Store};
use std::collections::HashMap;
use std::fmt;
use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};

/// The folder that is searched first, and alone where the variable is set.
pub const DIRECTORY_VARIABLE: &str = "HALFGNN_PTX_DIR";

/// The name of the kernels' files.
const NAME: &str = "halfgnn";

/// The archive that is part of the program; absent where the package had none.
const EMBEDDED: Option<&[u8]> = include!(concat!(env!("OUT_DIR"), "/embedded_kernels.rs"));

/// Why there are no kernels to load: none were found, or they cannot be read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{reason}; build them again with `cargo xtask build-ptx`")]
#[non_exhaustive]
pub struct KernelsError {
    /// What was looked for, and where.
    pub reason: String,
}

impl KernelsError {
    fn new(reason: String) -> Self {
        Self { reason }
    }
}

impl From<ManifestError> for KernelsError {
    fn from(error: ManifestError) -> Self {
        Self::new(error.to_string())
    }
}

/// A module in a form that a device loads.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Image {
    /// PTX, which the device compiles.
    Ptx(String),
    /// Machine code of a GPU.
    MachineCode(Vec<u8>),
}

/// The form in which a device has a module.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Form {
    /// PTX for this architecture, as a number (80 for sm_80).
    Ptx(u32),
    /// Machine code for this architecture.
    MachineCode(u32),
}

impl fmt::Display for Form {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Form::Ptx(arch) => write!(f, "PTX for sm_{arch}"),
            Form::MachineCode(arch) => write!(f, "machine code for sm_{arch}"),
        }
    }
}

/// Kernels that were found, for a device of one architecture.
#[derive(Clone, Debug)]
pub struct Kernels {
    store: Store,
    manifest: Manifest,
    /// The module of each entry.
    modules: HashMap<String, String>,
    /// The device's architecture, as a number.
    architecture: u32,
}

impl fmt::Display for Kernels {
    /// `/home/me/target/ptx: 46 modules`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {} modules", self.store, self.manifest.modules.len())
    }
}

impl Kernels {
    /// Finds the kernels for a GPU of compute capability `capability`; `None` stands for one newer than all.
    ///
    /// The folder that [`DIRECTORY_VARIABLE`] names is searched first, and alone, where the variable is set. Then come
    /// the archive in the program, the folders of [`look_in`], and the folder `ptx` next to the program and in each
    /// folder above it, where `cargo xtask build-ptx` writes.
    ///
    /// # Errors
    /// [`KernelsError`] where there are none for such a GPU, with the folders that were searched.
    pub fn find(capability: Option<(u32, u32)>) -> Result<Self, KernelsError> {
        let architecture = capability.map_or(u32::MAX, |(major, minor)| major * 10 + minor);
        match std::env::var_os(DIRECTORY_VARIABLE) {
            Some(directory) => Self::find_in(None, &[directory.into()], architecture),
            None => Self::find_in(EMBEDDED, &folders(), architecture),
        }
    }

    /// The kernels in a store, for a device of an architecture (90 for sm_90).
    ///
    /// # Errors
    /// [`KernelsError`] where the manifest cannot be read.
    pub fn open(store: Store, architecture: u32) -> Result<Self, KernelsError> {
        let manifest = store.manifest()?;
        let entries = manifest.modules.iter().flat_map(|(module, record)| {
            let names = record.entries.keys();
            names.map(move |entry| (entry.clone(), module.clone()))
        });
        Ok(Self {
            modules: entries.collect(),
            store,
            manifest,
            architecture,
        })
    }

    fn find_in(
        embedded: Option<&'static [u8]>,
        folders: &[PathBuf],
        architecture: u32,
    ) -> Result<Self, KernelsError> {
        let embedded = embedded.map(Store::Embedded);
        let stores = folders
            .iter()
            .filter_map(|folder| Store::in_folder(folder, NAME));
        let mut too_new = None;
        for store in embedded.into_iter().chain(stores) {
            let kernels = Self::open(store, architecture)?;
            let mut modules = kernels.manifest.modules.values();
            if modules.any(|module| module.ptx_for(architecture).is_some()) {
                return Ok(kernels);
            }
            let archs = kernels
                .manifest
                .modules
                .values()
                .flat_map(|module| module.ptx.keys());
            too_new = too_new.or(archs.min().cloned());
        }
        let names = folders.iter().map(|folder| folder.display().to_string());
        let searched = names.collect::<Vec<_>>().join(", ");
        Err(KernelsError::new(match too_new {
            Some(oldest) => format!(
                "the kernels are for {oldest} and newer, the GPU is sm_{architecture}, in {searched}"
            ),
            None => format!(
                "there are no kernels (halfgnn.manifest.json or halfgnn.kernels.zip) in {searched}"
            ),
        }))
    }

    /// Where they are.
    pub fn store(&self) -> &Store {
        &self.store
    }

    /// The manifest.
    pub fn manifest(&self) -> &Manifest {
        &self.manifest
    }

    /// The modules, by name.
    pub fn modules(&self) -> impl Iterator<Item = (&str, &ModuleRecord)> {
        self.manifest
            .modules
            .iter()
            .map(|(name, record)| (name.as_str(), record))
    }

    /// The module of an entry, by name.
    pub fn module_of(&self, entry: &str) -> Option<&str> {
        self.modules.get(entry).map(String::as_str)
    }

    /// The form in which the device has a module: machine code, if it takes that and there is some, or else PTX. `None`
    /// where a package does not carry the module.
    pub fn form(&self, module: &ModuleRecord, machine_code: bool) -> Option<Form> {
        let code = module
            .machine_code_for(self.architecture)
            .filter(|_| machine_code);
        let code = code.map(|(arch, _)| Form::MachineCode(arch));
        code.or_else(|| {
            module
                .ptx_for(self.architecture)
                .map(|(arch, _)| Form::Ptx(arch))
        })
    }

    /// The content of a module in one form.
    ///
    /// # Errors
    /// [`KernelsError`] where the module is not there in that form, cannot be read, or is not what the manifest
    /// describes.
    pub fn image(&self, module: &str, form: Form) -> Result<Image, KernelsError> {
        let missing = || {
            KernelsError::new(format!(
                "{}: there is no {form} of the module `{module}`",
                self.store
            ))
        };
        let record = self.manifest.modules.get(module).ok_or_else(missing)?;
        match form {
            Form::MachineCode(arch) => {
                let file = record
                    .machine_code
                    .get(&format!("sm_{arch}"))
                    .ok_or_else(missing)?;
                Ok(Image::MachineCode(self.store.read(&file.code)?))
            }
            Form::Ptx(arch) => {
                let file = record.ptx.get(&format!("sm_{arch}")).ok_or_else(missing)?;
                let text = String::from_utf8(self.store.read(file)?);
                text.map(Image::Ptx).map_err(|_| {
                    KernelsError::new(format!("{}: {} is no text", self.store, file.file))
                })
            }
        }
    }

    /// Why a launch of `entry` cannot be served, in one line: it is not built, or not in this package.
    pub fn why_missing(&self, entry: &str) -> String {
        match self.module_of(entry) {
            Some(module) => format!(
                "kernel `{entry}` is of the module `{module}`, which comparisons alone launch and no package carries: build the \
                 kernels from a clone with `cargo xtask build-ptx`, and set {DIRECTORY_VARIABLE} to its target/ptx"
            ),
            None => format!(
                "{} has no kernel `{entry}`; build the kernels again with `cargo xtask build-ptx`",
                self.store
            ),
        }
    }
}

/// Folders that the program names itself: see [`look_in`].
static NAMED: Mutex<Vec<PathBuf>> = Mutex::new(Vec::new());

/// From now on [`Kernels::find`] searches `directory` before those next to the program: for programs that are not where
/// their files are, such as an interpreter that has loaded this crate as a library.
pub fn look_in(directory: PathBuf) {
    let mut named = NAMED.lock().unwrap_or_else(PoisonError::into_inner);
    if !named.contains(&directory) {
        named.push(directory);
    }
}

/// The folders that were named, and those called `ptx` next to the program and above it.
fn folders() -> Vec<PathBuf> {
    let mut folders = NAMED.lock().unwrap_or_else(PoisonError::into_inner).clone();
    if let Ok(program) = std::env::current_exe() {
        let above = program.ancestors().skip(1);
        folders.extend(above.map(|directory| directory.join("ptx")));
    }
    folders
}

#[cfg(test)]
mod tests {
    use super::*;
    use halfgnn_manifest::{CodeRecord, FileRecord, Fingerprint};
    use std::collections::BTreeMap;
    use std::path::Path;

    /// Kernels of one module, with PTX for these architectures and machine code for sm_90.
    fn write(folder: &Path, archs: &[u32]) -> Manifest {
        let file = |name: String| {
            std::fs::write(folder.join(&name), &name).expect("the folder takes files");
            FileRecord {
                fingerprint: Fingerprint::of(&name),
                file: name,
            }
        };
        let ptx: BTreeMap<String, FileRecord> = archs
            .iter()
            .map(|arch| (format!("sm_{arch}"), file(format!("a-sm_{arch}.ptx"))))
            .collect();
        let code = CodeRecord {
            code: file("a-sm_90.cubin".to_owned()),
            ptx: ptx
                .values()
                .next()
                .expect("an architecture")
                .fingerprint
                .clone(),
        };
        let module = ModuleRecord {
            packaged: true,
            fingerprint: String::new(),
            entries: BTreeMap::new(),
            globals: BTreeMap::new(),
            ptx,
            machine_code: BTreeMap::from([("sm_90".to_owned(), code)]),
        };
        let manifest = Manifest {
            package: NAME.to_owned(),
            rustc: String::new(),
            llvm: String::new(),
            fingerprint: String::new(),
            partial: false,
            modules: BTreeMap::from([("a".to_owned(), module)]),
        };
        let path = folder.join("halfgnn.manifest.json");
        std::fs::write(path, manifest.to_text()).expect("the folder takes files");
        manifest
    }

    #[test]
    fn the_newest_that_the_gpu_runs_is_taken() {
        let directory = tempfile::tempdir().expect("a temporary folder");
        write(directory.path(), &[80, 90]);
        let places = [
            PathBuf::from("/no/such/folder"),
            directory.path().to_owned(),
        ];
        let form = |gpu, machine_code| {
            let kernels = Kernels::find_in(None, &places, gpu).expect("there are some");
            kernels.form(&kernels.manifest().modules["a"], machine_code)
        };
        for (gpu, ptx) in [(80, 80), (89, 80), (90, 90), (120, 90), (u32::MAX, 90)] {
            assert_eq!(form(gpu, false), Some(Form::Ptx(ptx)), "sm_{gpu}");
        }
        assert_eq!(form(90, true), Some(Form::MachineCode(90)));
        assert_eq!(
            form(80, true),
            Some(Form::Ptx(80)),
            "machine code is of another GPU"
        );
        let error = Kernels::find_in(None, &places, 75).expect_err("none is old enough");
        assert!(error.to_string().contains("sm_80"), "{error}");
        let error = Kernels::find_in(None, &places[..1], 90).expect_err("the folder is not there");
        assert!(error.to_string().contains("/no/such/folder"), "{error}");
    }

    #[test]
    fn an_image_is_what_the_manifest_describes() {
        let directory = tempfile::tempdir().expect("a temporary folder");
        write(directory.path(), &[80]);
        let places = [directory.path().to_owned()];
        let kernels = Kernels::find_in(None, &places, 90).expect("there are some");
        assert_eq!(
            kernels.image("a", Form::Ptx(80)),
            Ok(Image::Ptx("a-sm_80.ptx".to_owned()))
        );
        let code = Image::MachineCode(b"a-sm_90.cubin".to_vec());
        assert_eq!(kernels.image("a", Form::MachineCode(90)), Ok(code));
        assert!(kernels.image("b", Form::Ptx(80)).is_err());
        std::fs::write(directory.path().join("a-sm_80.ptx"), "of another build").expect("a file");
        let error = kernels
            .image("a", Form::Ptx(80))
            .expect_err("it was replaced");
        assert!(
            error.to_string().contains("a-sm_80.ptx is not the file"),
            "{error}"
        );
    }

    #[test]
    fn what_is_built_in_comes_before_files() {
        let (inside, outside) = (tempfile::tempdir(), tempfile::tempdir());
        let [inside, outside] = [inside, outside].map(|folder| folder.expect("a temporary folder"));
        let manifest = write(inside.path(), &[86]);
        write(outside.path(), &[80]);
        let store = Store::in_folder(inside.path(), NAME).expect("kernels");
        let archive = halfgnn_manifest::pack(&store, &manifest, NAME).expect("they can be packed");
        let archive: &'static [u8] = archive.leak();
        let places = [outside.path().to_owned()];
        let found = |gpu| Kernels::find_in(Some(archive), &places, gpu).expect("there are some");
        assert_eq!(found(86).store(), &Store::Embedded(archive));
        assert!(
            matches!(found(80).store(), Store::Folder { .. }),
            "the GPU is older than what is built in"
        );
    }
}
