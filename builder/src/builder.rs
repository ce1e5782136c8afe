//! [`PtxBuilder`]: the options, and the order of the steps.

use std::collections::BTreeMap;
use std::env;
use std::fs;
use std::io::{self, IsTerminal, Write};
use std::path::{Path, PathBuf};
use std::thread;

use crate::checks::{self, Rules};
use crate::compile;
use crate::error::BuildError;
use crate::files::{self, Fingerprint};
use crate::lower::{self, Arch};
use crate::manifest::{Manifest, ModuleRecord};
use crate::package::{LaunchBounds, Package};
use crate::pattern;
use crate::ptx::{self, Module};
use crate::ptxas::Ptxas;
use crate::toolchain::{self, Toolchain};

/// Of what this crate does to the kernels: raised when the same inputs give another PTX.
const RECIPE: u32 = 2;

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
    toolchain: Option<Toolchain>,
    assembly: Option<(Ptxas, Vec<String>)>,
    rerun_directives: bool,
}

/// What [`PtxBuilder::build`] made.
#[derive(Clone, Debug)]
pub struct Built {
    /// One file for each architecture, in the order they were asked for.
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

    /// The first part of the files' names, `NAME-sm_90.ptx` and `NAME.manifest.json`; the package's name by default.
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

    /// Uses this toolchain and looks for none.
    pub fn toolchain(mut self, toolchain: Toolchain) -> Self {
        self.toolchain = Some(toolchain);
        self
    }

    /// Also assembles for these architectures, each from the PTX that a driver would take for it, and fails if an entry
    /// spills. The registers go into the manifest. Architectures that this ptxas does not know are left out.
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
        let out = target_dir.join("ptx");
        let work = target_dir.join("ptx-build");
        let manifest_path = out.join(format!("{name}.manifest.json"));
        let fingerprint = self.fingerprint(&package, &toolchain)?;

        let old = Manifest::read(&manifest_path)
            .ok()
            .filter(|manifest| manifest.fingerprint == fingerprint);
        let is_fresh =
            |manifest: &Manifest| archs.iter().all(|arch| is_current(manifest, *arch, &out));
        let (mut manifest, rebuilt) = match old {
            Some(manifest) if is_fresh(&manifest) => (manifest, false),
            old => {
                let mut manifest = Manifest {
                    package: package.name.clone(),
                    rustc: toolchain.version.clone(),
                    llvm: toolchain.llvm_version.clone(),
                    fingerprint,
                    modules: old.map(|manifest| manifest.modules).unwrap_or_default(),
                };
                manifest.modules.retain(|arch, record| {
                    Arch::parse(arch).is_ok()
                        && files::fingerprint(&out.join(&record.file))
                            .is_some_and(|found| found == record.fingerprint)
                });
                let modules = emit(&package, &toolchain, &archs, &name, &work, &out)?;
                manifest.modules.extend(modules);
                manifest.write(&manifest_path)?;
                (manifest, true)
            }
        };
        if let Some((ptxas, wanted)) = &self.assembly {
            assemble(
                &mut manifest,
                ptxas,
                wanted,
                &archs,
                &out,
                &work.join(&package.name),
            )?;
            manifest.write(&manifest_path)?;
        }
        let files = archs
            .iter()
            .map(|arch| PtxFile {
                arch: arch.name(),
                path: out.join(file_name(&name, *arch)),
            })
            .collect();
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
            .add(format!("{:?}", package.metadata));
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
                            "is one file, but there are {} architectures; name a folder",
                            built.files.len()
                        ),
                    });
                };
                copy_if_different(&file.path, target)?;
                continue;
            }
            fs::create_dir_all(target).map_err(BuildError::io(target))?;
            for path in built
                .files
                .iter()
                .map(|file| &file.path)
                .chain([&built.manifest_path])
            {
                copy_if_different(path, &target.join(path.file_name().unwrap_or_default()))?;
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

/// Compiles, lowers, checks and writes; nothing is written to `out` before all architectures have passed.
fn emit(
    package: &Package,
    toolchain: &Toolchain,
    archs: &[Arch],
    name: &str,
    work: &Path,
    out: &Path,
) -> Result<BTreeMap<String, ModuleRecord>, BuildError> {
    let (bitcode, messages) =
        compile::compile(package, toolchain, work, io::stderr().is_terminal())?;
    let work = &work.join(&package.name);
    fs::create_dir_all(work).map_err(BuildError::io(work))?;
    if messages.contains("warning") {
        eprint!("{messages}");
    }
    let metadata = &package.metadata;
    let bounds = |entry: &str| pattern::lookup(&metadata.launch_bounds, entry).copied();
    let ir = lower::prepare(toolchain, &package.name, &bitcode, work, bounds)?;
    let rules = |entry: &str| {
        pattern::lookup(&metadata.checks, entry)
            .copied()
            .unwrap_or_default()
    };

    let renamed = [
        (toolchain.library.clone(), ptx::LIBRARY.to_owned()),
        (package.directory.clone(), package.directory_name()),
    ];

    let mut passed = Vec::new();
    for &arch in archs {
        let text = lower::lower(
            toolchain,
            &package.name,
            &ir,
            arch,
            metadata.unroll_threshold,
        )?;
        let text = lower::rename_files(&text, &renamed);
        let module = Module::read(&text);
        let mut faults = checks::check(&module, &bitcode.exports, rules);
        faults.extend(checks::unused_patterns(
            &module,
            metadata.launch_bounds.keys(),
            "launch-bounds",
        ));
        faults.extend(checks::unused_patterns(
            &module,
            metadata.checks.keys(),
            "checks",
        ));
        if !faults.is_empty() {
            let path = work.join(file_name(&format!("{name}-rejected"), arch));
            files::write_atomically(&path, text.as_bytes())?;
            return Err(BuildError::Checks { path, faults });
        }
        passed.push((arch, text, module));
    }

    fs::create_dir_all(out).map_err(BuildError::io(out))?;
    let mut modules = BTreeMap::new();
    for (arch, text, module) in passed {
        let file = file_name(name, arch);
        files::write_atomically(&out.join(&file), text.as_bytes())?;
        let mut fingerprint = Fingerprint::new();
        fingerprint.add(&text);
        modules.insert(
            arch.name(),
            ModuleRecord::new(file, fingerprint.hex(), &module),
        );
    }
    Ok(modules)
}

/// Assembles what the manifest does not know the registers of yet, all architectures at a time.
fn assemble(
    manifest: &mut Manifest,
    ptxas: &Ptxas,
    wanted: &[String],
    built: &[Arch],
    out: &Path,
    work: &Path,
) -> Result<(), BuildError> {
    fs::create_dir_all(work).map_err(BuildError::io(work))?;
    let mut jobs = Vec::new();
    for arch in wanted.iter().filter(|arch| ptxas.knows(arch)) {
        let number = Arch::parse(arch)?;
        let Some(source) = built.iter().copied().filter(|built| *built <= number).max() else {
            continue;
        };
        let Some(record) = manifest.modules.get(&source.name()) else {
            continue;
        };
        let is_known = record
            .entries
            .values()
            .all(|entry| entry.registers.contains_key(arch));
        if !is_known {
            let cubin = work
                .join(&record.file)
                .with_extension(format!("{arch}.cubin"));
            jobs.push((arch, source.name(), out.join(&record.file), cubin));
        }
    }
    let results: Vec<_> = thread::scope(|scope| {
        let running: Vec<_> = jobs
            .iter()
            .map(|(arch, _, ptx, cubin)| scope.spawn(|| ptxas.assemble(ptx, arch, cubin)))
            .collect();
        running
            .into_iter()
            .map(thread::ScopedJoinHandle::join)
            .collect()
    });
    for ((arch, source, ..), result) in jobs.iter().zip(results) {
        let usages = match result {
            Ok(usages) => usages?,
            Err(panic) => std::panic::resume_unwind(panic),
        };
        let Some(record) = manifest.modules.get_mut(source) else {
            continue;
        };
        for (name, entry) in &mut record.entries {
            if let Some(usage) = usages.get(name) {
                entry.registers.insert((*arch).clone(), usage.registers);
            }
        }
    }
    Ok(())
}

fn file_name(name: &str, arch: Arch) -> String {
    format!("{name}-{}.ptx", arch.name())
}

fn is_current(manifest: &Manifest, arch: Arch, out: &Path) -> bool {
    manifest.modules.get(&arch.name()).is_some_and(|record| {
        files::fingerprint(&out.join(&record.file)).as_ref() == Some(&record.fingerprint)
    })
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
