//! [`PtxBuilder`]: the options, and the order of the steps.

use std::collections::BTreeMap;
use std::env;
use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use halfgnn_manifest::Fingerprint;

use crate::checks::Rules;
use crate::emit::Job;
use crate::error::BuildError;
use crate::files;
use crate::lower::Arch;
use crate::manifest::{self, Manifest};
use crate::package::{LaunchBounds, Package};
use crate::ptxas::Ptxas;
use crate::toolchain::{self, Toolchain};

/// Of what this crate does to the kernels: raised when the same inputs give another PTX.
pub(crate) const RECIPE: u32 = 5;

/// Builds one kernels crate. See the [crate's documentation](crate) for an example.
#[derive(Clone, Debug)]
#[must_use = "nothing is built before `build`"]
pub struct PtxBuilder {
    directory: PathBuf,
    name: Option<String>,
    archs: Vec<String>,
    target_dir: Option<PathBuf>,
    copy_to: Vec<PathBuf>,
    launch_bounds: BTreeMap<String, LaunchBounds>,
    checks: BTreeMap<String, Rules>,
    entries: Vec<String>,
    only: Vec<String>,
    toolchain: Option<Toolchain>,
    assembly: Option<(Ptxas, Vec<String>)>,
    rerun_directives: bool,
}

/// What [`PtxBuilder::build`] made.
#[derive(Clone, Debug)]
pub struct Built {
    /// One file for each module and architecture: modules by name, architectures in the order they were asked for.
    pub files: Vec<PtxFile>,
    /// The manifest, as written to [`Built::manifest_path`].
    pub manifest: Manifest,
    /// Where the manifest is.
    pub manifest_path: PathBuf,
    /// The toolchain that was used.
    pub toolchain: Toolchain,
    /// Whether anything had to be built; `false` if all was up to date.
    pub rebuilt: bool,
}

/// A PTX file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PtxFile {
    /// Its module.
    pub module: String,
    /// `sm_90`.
    pub arch: String,
    /// Where it is.
    pub path: PathBuf,
}

impl PtxBuilder {
    /// Starts with the kernels crate in `directory`, relative to the current folder: a build script's is its package's.
    pub fn new(directory: impl Into<PathBuf>) -> Self {
        Self {
            directory: directory.into(),
            name: None,
            archs: Vec::new(),
            target_dir: None,
            copy_to: Vec::new(),
            launch_bounds: BTreeMap::new(),
            checks: BTreeMap::new(),
            entries: Vec::new(),
            only: Vec::new(),
            toolchain: None,
            assembly: None,
            rerun_directives: env::var_os("OUT_DIR").is_some(),
        }
    }

    /// Adds an architecture, such as `sm_90`. PTX runs on its architecture and on newer ones. `sm_80` if none is added.
    pub fn arch(mut self, arch: impl Into<String>) -> Self {
        let arch = arch.into();
        if !self.archs.contains(&arch) {
            self.archs.push(arch);
        }
        self
    }

    /// The first part of the files' names, `NAME-sm_90.ptx` (`NAME/MODULE-sm_90.ptx` of a library in modules) and
    /// `NAME.manifest.json`; the package's name by default.
    pub fn name(mut self, name: impl Into<String>) -> Self {
        self.name = Some(name.into());
        self
    }

    /// The target folder: the PTX goes to its `ptx/`. By default a build script's `OUT_DIR`, else `CARGO_TARGET_DIR`,
    /// else `target` in the kernels crate.
    pub fn target_dir(mut self, directory: impl Into<PathBuf>) -> Self {
        self.target_dir = Some(directory.into());
        self
    }

    /// Also copies the PTX files and the manifest into a folder, which is made if it is missing; or, with one
    /// architecture and a path that ends in `.ptx`, the PTX to that file.
    pub fn copy_to(mut self, path: impl Into<PathBuf>) -> Self {
        self.copy_to.push(path.into());
        self
    }

    /// Sets the launch bounds of the entries that match `pattern` (`*` stands for any text), over what the crate's
    /// `[package.metadata.ptx.launch-bounds]` says for the same pattern.
    pub fn launch_bounds(
        mut self,
        pattern: impl Into<String>,
        max_threads: u32,
        min_ctas: Option<u32>,
    ) -> Self {
        let bounds = LaunchBounds {
            max_threads,
            min_ctas,
        };
        self.launch_bounds.insert(pattern.into(), bounds);
        self
    }

    /// Sets the rules for the entries that match `pattern`, over the crate's `[package.metadata.ptx.checks]`.
    pub fn checks(mut self, pattern: impl Into<String>, rules: Rules) -> Self {
        self.checks.insert(pattern.into(), rules);
        self
    }

    /// Names the entries that the crate's root of entries can make, if it has one: see
    /// [`Metadata::entries`](crate::Metadata).
    pub fn entries<'a>(mut self, names: impl IntoIterator<Item = &'a str>) -> Self {
        self.entries.extend(names.into_iter().map(str::to_owned));
        self
    }

    /// Builds only the entries that match `pattern`, or that of another call, which takes a fraction of the time: for a
    /// look at one kernel, or a test of it. Of a library in modules the others are left out; of a crate that is one
    /// module they trap. The PTX goes to `ptx-only/` of the target folder, since it is not the whole.
    pub fn only(mut self, pattern: impl Into<String>) -> Self {
        self.only.push(pattern.into());
        self
    }

    /// Uses this toolchain and looks for none.
    pub fn toolchain(mut self, toolchain: Toolchain) -> Self {
        self.toolchain = Some(toolchain);
        self
    }

    /// Also assembles for these architectures, each from the PTX that a driver would take for it, and fails if an entry
    /// spills. The machine code is kept next to the PTX, and the manifest has it and the registers. Architectures that
    /// this ptxas does not know are left out.
    pub fn assemble<'a>(mut self, ptxas: Ptxas, archs: impl IntoIterator<Item = &'a str>) -> Self {
        self.assembly = Some((ptxas, archs.into_iter().map(str::to_owned).collect()));
        self
    }

    /// Whether to print `cargo::rerun-if-changed` for each source; by default in a build script, that is, where
    /// `OUT_DIR` is set.
    pub fn rerun_directives(mut self, print: bool) -> Self {
        self.rerun_directives = print;
        self
    }

    /// Builds what is out of date. rustc's warnings go to standard error.
    ///
    /// # Errors
    /// - [`BuildError::NoToolchain`] if there is none, with what was looked at;
    /// - [`BuildError::Crate`] or [`BuildError::Option`] if the folder holds no kernels crate or an option is wrong;
    /// - [`BuildError::Compile`] with rustc's own messages;
    /// - [`BuildError::Checks`] if the PTX breaks a rule; the PTX is kept for inspection, under another name;
    /// - [`BuildError::Ptxas`] if ptxas was given and rejects the PTX or an entry spills;
    /// - [`BuildError::Llvm`], [`BuildError::Io`] if a program or a file fails.
    pub fn build(self) -> Result<Built, BuildError> {
        let archs = self.parsed_archs()?;
        let toolchain = match self.toolchain.clone() {
            Some(toolchain) => toolchain,
            None => toolchain::find()?,
        };
        let mut package = Package::read(&self.directory, &toolchain)?;
        package
            .metadata
            .launch_bounds
            .extend(self.launch_bounds.clone());
        package.metadata.checks.extend(self.checks.clone());
        validate_bounds(&package.metadata.launch_bounds)?;

        let target_dir = self.resolve_target_dir(&package)?;
        let name = self.name.clone().unwrap_or_else(|| package.name.clone());
        let out = target_dir.join(match self.only.is_empty() {
            true => "ptx",
            false => "ptx-only",
        });
        let job = Job {
            package: &package,
            toolchain: &toolchain,
            archs: &archs,
            name: &name,
            entries: &self.entries,
            only: &self.only,
            shared: &target_dir.join("ptx-build"),
            out: &out,
        };
        let manifest_path = out.join(format!("{name}.manifest.json"));
        let fingerprint = self.fingerprint(&package, &toolchain)?;

        let old = manifest::read(&manifest_path).ok();
        let (mut manifest, rebuilt) = match old {
            Some(manifest) if manifest.fingerprint == fingerprint && job.is_current(&manifest) => {
                (manifest, false)
            }
            old => {
                let mut modules = job.emit(&old.map(|old| old.modules).unwrap_or_default())?;
                keep_machine_code(&out, &mut modules);
                let manifest = Manifest {
                    package: package.name.clone(),
                    rustc: toolchain.version.clone(),
                    llvm: toolchain.llvm_version.clone(),
                    fingerprint,
                    partial: !self.only.is_empty(),
                    modules,
                };
                manifest::write(&manifest, &manifest_path)?;
                (manifest, true)
            }
        };
        if let Some((ptxas, wanted)) = &self.assembly {
            let assembled = job.assemble(&mut manifest, ptxas, wanted);
            // What passed is kept, also where another module did not.
            manifest::write(&manifest, &manifest_path)?;
            assembled?;
        }
        let mut files = Vec::new();
        for (module, record) in &manifest.modules {
            let ptx = archs
                .iter()
                .filter_map(|arch| record.ptx.get_key_value(&arch.name()));
            files.extend(ptx.map(|(arch, file)| PtxFile {
                module: module.clone(),
                arch: arch.clone(),
                path: out.join(&file.file),
            }));
        }
        let built = Built {
            files,
            manifest,
            manifest_path,
            toolchain,
            rebuilt,
        };
        self.copy(&built)?;
        if self.rerun_directives {
            self.print_directives(&package)?;
        }
        Ok(built)
    }

    fn parsed_archs(&self) -> Result<Vec<Arch>, BuildError> {
        if self.archs.is_empty() {
            return Ok(vec![Arch::parse("sm_80")?]);
        }
        self.archs.iter().map(|arch| Arch::parse(arch)).collect()
    }

    fn resolve_target_dir(&self, package: &Package) -> Result<PathBuf, BuildError> {
        let variable = |name: &str| {
            env::var_os(name)
                .filter(|v| !v.is_empty())
                .map(PathBuf::from)
        };
        let directory = self
            .target_dir
            .clone()
            .or_else(|| variable("OUT_DIR"))
            .or_else(|| variable("CARGO_TARGET_DIR"))
            .unwrap_or_else(|| package.directory.join("target"));
        std::path::absolute(&directory).map_err(BuildError::io(directory))
    }

    fn fingerprint(&self, package: &Package, toolchain: &Toolchain) -> Result<String, BuildError> {
        let mut fingerprint = Fingerprint::new();
        fingerprint
            .add(RECIPE.to_le_bytes())
            .add(&toolchain.version)
            .add(&toolchain.llvm_version)
            // Debug forms are stable within one build of this crate, which is all that is asked of them.
            .add(format!(
                "{:?}{:?}{:?}",
                package.metadata, self.entries, self.only
            ));
        for root in &package.source_roots {
            for file in files::sources(root)? {
                let content = fs::read(&file).map_err(BuildError::io(&file))?;
                let relative = file.strip_prefix(root).unwrap_or(&file);
                fingerprint
                    .add(relative.as_os_str().as_encoded_bytes())
                    .add(content);
            }
        }
        Ok(fingerprint.hex())
    }

    fn copy(&self, built: &Built) -> Result<(), BuildError> {
        for target in &self.copy_to {
            if target
                .extension()
                .is_some_and(|extension| extension == "ptx")
            {
                let [file] = built.files.as_slice() else {
                    return Err(BuildError::Option {
                        option: format!("copy_to {}", target.display()),
                        reason: format!(
                            "is one file, but there are {} PTX files; name a folder",
                            built.files.len()
                        ),
                    });
                };
                copy_if_different(&file.path, target)?;
                continue;
            }
            fs::create_dir_all(target).map_err(BuildError::io(target))?;
            let root = built.manifest_path.parent().unwrap_or(Path::new(""));
            let files = built.files.iter().map(|file| &file.path);
            for path in files.chain([&built.manifest_path]) {
                let to = target.join(path.strip_prefix(root).unwrap_or(path));
                let folder = to.parent().unwrap_or(target);
                fs::create_dir_all(folder).map_err(BuildError::io(folder))?;
                copy_if_different(path, &to)?;
            }
        }
        Ok(())
    }

    fn print_directives(&self, package: &Package) -> Result<(), BuildError> {
        let mut out = io::stdout().lock();
        let mut print =
            |line: String| writeln!(out, "{line}").map_err(BuildError::io("standard output"));
        for root in &package.source_roots {
            for file in files::sources(root)? {
                print(format!("cargo::rerun-if-changed={}", file.display()))?;
            }
        }
        for variable in [
            toolchain::RUSTC_VARIABLE,
            toolchain::CARGO_VARIABLE,
            toolchain::LLVM_VARIABLE,
        ] {
            print(format!("cargo::rerun-if-env-changed={variable}"))?;
        }
        Ok(())
    }
}

/// Keeps of each module's machine code what was assembled from its PTX.
fn keep_machine_code(out: &Path, modules: &mut BTreeMap<String, manifest::ModuleRecord>) {
    for record in modules.values_mut() {
        let ptx: Vec<String> = record
            .ptx
            .values()
            .map(|file| file.fingerprint.clone())
            .collect();
        record
            .machine_code
            .retain(|_, code| ptx.contains(&code.ptx) && out.join(&code.code.file).is_file());
    }
}

fn copy_if_different(from: &Path, to: &Path) -> Result<(), BuildError> {
    let content = fs::read(from).map_err(BuildError::io(from))?;
    if fs::read(to).is_ok_and(|old| old == content) {
        return Ok(());
    }
    files::write_atomically(to, &content)
}

fn validate_bounds(table: &BTreeMap<String, LaunchBounds>) -> Result<(), BuildError> {
    for (pattern, bounds) in table {
        let wrong = |reason: String| BuildError::Option {
            option: format!("launch-bounds {pattern:?}"),
            reason,
        };
        if !(1..=1024).contains(&bounds.max_threads) {
            return Err(wrong(format!(
                "max-threads is {}, not 1 to 1024",
                bounds.max_threads
            )));
        }
        if let Some(ctas) = bounds.min_ctas
            && !(1..=32).contains(&ctas)
        {
            return Err(wrong(format!("min-ctas is {ctas}, not 1 to 32")));
        }
    }
    Ok(())
}
