//! The order of the steps from a kernels crate to PTX files that passed their checks, and on to machine code.

use std::collections::BTreeMap;
use std::fs;
use std::io::{self, IsTerminal};
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use halfgnn_manifest::Fingerprint;

use crate::builder::RECIPE;
use crate::checks::{self, Fault};
use crate::compact::compact;
use crate::compile::{self, Library};
use crate::convergence;
use crate::error::BuildError;
use crate::files;
use crate::lower::{self, Arch};
use crate::manifest::{self, CodeRecord, FileRecord, Manifest, ModuleRecord};
use crate::package::Package;
use crate::pattern;
use crate::ptx::{self, Module};
use crate::ptxas::{Ptxas, Usage};
use crate::toolchain::Toolchain;

/// One build: what, with what, for what, and where to.
pub(crate) struct Job<'a> {
    pub package: &'a Package,
    pub toolchain: &'a Toolchain,
    pub archs: &'a [Arch],
    /// The first part of the files' names, and the module's name where a crate is one module.
    pub name: &'a str,
    /// Names of the entries that the crate's root of entries can make.
    pub entries: &'a [String],
    /// Patterns of the entries that are built, if not all are: see [`pattern::is_wanted`].
    pub only: &'a [String],
    /// The folder of intermediate files, shared by the crates that have one target folder.
    pub shared: &'a Path,
    /// The folder of the PTX files.
    pub out: &'a Path,
}

/// A module that is to be built.
struct Unit {
    name: String,
    entries: Vec<String>,
    packaged: bool,
}

/// Where a module's text comes from.
enum Source {
    /// rustc makes it of a library.
    Library(Library),
    /// It is here: the whole of a linked crate.
    Text(Mutex<String>, Vec<String>),
}

/// What was made of a module.
enum Made {
    /// Its record, and the PTX of each file that is new.
    Module(ModuleRecord, Vec<(String, String)>),
    /// It breaks rules: where its PTX can be looked at.
    Rejected(PathBuf, Vec<Fault>),
}

impl Job<'_> {
    /// Whether the manifest has whole PTX files for every architecture.
    pub fn is_current(&self, manifest: &Manifest) -> bool {
        let mut modules = manifest.modules.values();
        !manifest.modules.is_empty() && modules.all(|record| self.is_whole(record))
    }

    /// Whether a module has what was built for every architecture.
    fn is_whole(&self, record: &ModuleRecord) -> bool {
        let mut archs = self.archs.iter();
        archs.all(|arch| {
            let file = record.ptx.get(&arch.name());
            file.is_some_and(|file| self.is_there(file))
        })
    }

    /// Whether a file is what was written.
    fn is_there(&self, file: &FileRecord) -> bool {
        files::fingerprint(&self.out.join(&file.file)).as_ref() == Some(&file.fingerprint)
    }

    /// Compiles, lowers, checks and writes; nothing is written to `out` before all modules have passed. Modules of
    /// `old` whose code is the same are kept.
    pub fn emit(
        &self,
        old: &BTreeMap<String, ModuleRecord>,
    ) -> Result<BTreeMap<String, ModuleRecord>, BuildError> {
        let color = io::stderr().is_terminal();
        let (source, mut units) = self.source(color)?;
        // The longest first, so that no core waits for one of them at the end.
        units.sort_by_key(|unit| std::cmp::Reverse(unit.entries.len()));
        let made = in_parallel(&units, |unit| {
            self.make(unit, &source, old.get(&unit.name), color)
        });

        let mut modules = BTreeMap::new();
        let mut written = Vec::new();
        let mut rejected: Option<(PathBuf, Vec<Fault>)> = None;
        for (unit, made) in units.iter().zip(made) {
            match made? {
                Made::Module(record, texts) => {
                    written.extend(texts);
                    modules.insert(unit.name.clone(), record)
                }
                Made::Rejected(path, faults) => {
                    let (_, all) = rejected.get_or_insert((path, Vec::new()));
                    all.extend(faults);
                    None
                }
            };
        }
        if self.only.is_empty() {
            let metadata = &self.package.metadata;
            let names: Vec<&str> = units
                .iter()
                .flat_map(|unit| &unit.entries)
                .map(String::as_str)
                .collect();
            let tables: [(&str, Vec<&String>); 3] = [
                ("launch-bounds", metadata.launch_bounds.keys().collect()),
                ("checks", metadata.checks.keys().collect()),
                ("modules", metadata.modules.keys().collect()),
            ];
            let faults = tables
                .into_iter()
                .flat_map(|(table, patterns)| checks::unused_patterns(&names, patterns, table));
            let faults: Vec<Fault> = faults.collect();
            if !faults.is_empty() {
                let manifest = self.package.directory.join("Cargo.toml");
                rejected
                    .get_or_insert((manifest, Vec::new()))
                    .1
                    .extend(faults);
            }
        }
        if let Some((path, faults)) = rejected {
            return Err(BuildError::Checks { path, faults });
        }
        for (file, text) in written {
            let path = self.out.join(file);
            let folder = path.parent().unwrap_or(self.out);
            fs::create_dir_all(folder).map_err(BuildError::io(folder))?;
            files::write_atomically(&path, text.as_bytes())?;
        }
        Ok(modules)
    }

    /// Compiles what all modules share, and says which modules there are.
    fn source(&self, color: bool) -> Result<(Source, Vec<Unit>), BuildError> {
        let (package, toolchain) = (self.package, self.toolchain);
        let Some(root) = &package.metadata.entries else {
            let (bitcode, messages) = compile::compile(package, toolchain, self.shared, color)?;
            eprint!("{messages}");
            let text = lower::text(toolchain, &package.name, &bitcode, self.only, &self.work()?)?;
            let entries = lower::entries(&text);
            self.check_only(&entries)?;
            let unit = Unit {
                name: self.name.to_owned(),
                entries,
                packaged: true,
            };
            return Ok((Source::Text(Mutex::new(text), bitcode.exports), vec![unit]));
        };
        let units = self.units()?;
        let root = package.directory.join(root);
        let (library, messages) = compile::library(package, &root, toolchain, self.shared, color)?;
        eprint!("{messages}");
        Ok((Source::Library(library), units))
    }

    /// [`BuildError::Option`] for a pattern of `only` that matches no entry.
    fn check_only(&self, entries: &[String]) -> Result<(), BuildError> {
        let matches_none =
            |pattern: &&String| !entries.iter().any(|entry| pattern::matches(pattern, entry));
        match self.only.iter().find(matches_none) {
            Some(pattern) => Err(BuildError::Option {
                option: format!("only {pattern:?}"),
                reason: "matches no kernel".into(),
            }),
            None => Ok(()),
        }
    }

    /// The modules of a library, by its table of modules.
    fn units(&self) -> Result<Vec<Unit>, BuildError> {
        let metadata = &self.package.metadata;
        let wrong = |reason: String| BuildError::Crate {
            path: self.package.directory.join("Cargo.toml"),
            reason,
        };
        self.check_only(self.entries)?;
        let mut units: BTreeMap<&str, Vec<String>> = BTreeMap::new();
        for entry in self.entries {
            let module = pattern::lookup(&metadata.modules, entry).ok_or_else(|| {
                wrong(format!(
                    "[package.metadata.ptx.modules] names no module for the entry {entry}"
                ))
            })?;
            let entries = units.entry(module).or_default();
            if pattern::is_wanted(self.only, entry) {
                entries.push(entry.clone());
            }
        }
        if let Some(name) = metadata
            .unpackaged
            .iter()
            .find(|name| !units.contains_key(name.as_str()))
        {
            return Err(wrong(format!(
                "[package.metadata.ptx] unpackaged names no module {name}"
            )));
        }
        let units = units.into_iter().filter(|(_, entries)| !entries.is_empty());
        let units = units.map(|(name, entries)| Unit {
            packaged: !metadata
                .unpackaged
                .iter()
                .any(|unpackaged| unpackaged == name),
            name: name.to_owned(),
            entries,
        });
        Ok(units.collect())
    }

    /// One module, from its source to its PTX.
    fn make(
        &self,
        unit: &Unit,
        source: &Source,
        old: Option<&ModuleRecord>,
        color: bool,
    ) -> Result<Made, BuildError> {
        let metadata = &self.package.metadata;
        let bounds = |entry: &str| pattern::lookup(&metadata.launch_bounds, entry).copied();
        let path = self.work()?.join(format!("{}.ll", unit.name));
        let (text, exports) = match source {
            Source::Library(library) => {
                library.compile(self.package, self.toolchain, &unit.entries, &path, color)?;
                let text = fs::read_to_string(&path).map_err(BuildError::io(&path))?;
                (text, &unit.entries)
            }
            Source::Text(text, exports) => {
                let mut text = text
                    .lock()
                    .unwrap_or_else(std::sync::PoisonError::into_inner);
                (std::mem::take(&mut *text), exports)
            }
        };
        let marked = convergence::annotate(&text, bounds);
        drop(text);
        let fingerprint = self.fingerprint(&marked, &unit.entries).hex();
        let mut record = old.filter(|old| old.fingerprint == fingerprint).cloned();
        if let Some(record) = &mut record {
            // Of other architectures than those of this build as well.
            record.ptx.retain(|_, file| self.is_there(file));
            record.packaged = unit.packaged;
        }
        let has = |record: &ModuleRecord, arch: &Arch| record.ptx.contains_key(&arch.name());
        let missing = |arch: &&Arch| !record.as_ref().is_some_and(|record| has(record, arch));
        let archs: Vec<Arch> = self.archs.iter().filter(missing).copied().collect();
        if !archs.is_empty() {
            fs::write(&path, &marked).map_err(BuildError::io(&path))?;
        }
        drop(marked);
        let mut texts = Vec::new();
        for arch in archs {
            let file = self.file_name(&unit.name, &arch.name(), "ptx");
            let (text, described) = match self.lower(&path, arch, exports)? {
                Ok(passed) => passed,
                Err((text, faults)) => {
                    let name = format!("rejected-{}-{}.ptx", unit.name, arch.name());
                    let place = self.work()?.join(name);
                    files::write_atomically(&place, text.as_bytes())?;
                    return Ok(Made::Rejected(place, faults));
                }
            };
            let record = record.get_or_insert_with(|| ModuleRecord {
                packaged: unit.packaged,
                fingerprint: fingerprint.clone(),
                ..described
            });
            let written = FileRecord {
                file: file.clone(),
                fingerprint: Fingerprint::of(&text),
            };
            record.ptx.insert(arch.name(), written);
            texts.push((file, text));
        }
        let _ = fs::remove_file(&path);
        match record {
            Some(record) => Ok(Made::Module(record, texts)),
            None => Err(BuildError::Option {
                option: "arch".to_owned(),
                reason: "names no architecture".to_owned(),
            }),
        }
    }

    /// Hash of all that a module's PTX depends on.
    fn fingerprint(&self, ir: &str, entries: &[String]) -> Fingerprint {
        // Spills are checked where machine code is made.
        let checks = entries.iter().map(|entry| checks::Rules {
            spills: 0,
            ..self.rules(entry)
        });
        Fingerprint::new()
            .with(RECIPE.to_le_bytes())
            .with(&self.toolchain.llvm_version)
            .with(self.package.metadata.unroll_threshold.to_le_bytes())
            .with(format!("{:?}", checks.collect::<Vec<_>>()))
            .with(without_checksums(ir))
    }

    fn rules(&self, entry: &str) -> checks::Rules {
        let rules = pattern::lookup(&self.package.metadata.checks, entry);
        let rules = rules.filter(|_| pattern::is_wanted(self.only, entry));
        rules.copied().unwrap_or_default()
    }

    /// `halfgnn/spmm-sm_80.ptx`, or `name-sm_80.ptx` of a crate that is one module.
    fn file_name(&self, module: &str, arch: &str, extension: &str) -> String {
        match self.package.metadata.entries {
            Some(_) => format!("{}/{module}-{arch}.{extension}", self.name),
            None => format!("{module}-{arch}.{extension}"),
        }
    }

    /// The PTX for one architecture and what it holds, or what is wrong with it.
    #[allow(clippy::type_complexity)] // the two halves of a `Result`, used once
    fn lower(
        &self,
        ir: &Path,
        arch: Arch,
        exports: &[String],
    ) -> Result<Result<(String, ModuleRecord), (String, Vec<Fault>)>, BuildError> {
        let package = self.package;
        let text = lower::lower(
            self.toolchain,
            &package.name,
            ir,
            arch,
            package.metadata.unroll_threshold,
        )?;
        let renamed = [
            (self.toolchain.library.clone(), ptx::LIBRARY.to_owned()),
            (package.directory.clone(), package.directory_name()),
        ];
        let text = lower::rename_files(&text, &renamed);
        let module = match Module::parse(&text) {
            Ok(module) => module,
            Err(source) => {
                let path = self.work()?.join(format!("rejected-{}.ptx", arch.name()));
                files::write_atomically(&path, text.as_bytes())?;
                return Err(BuildError::Ptx { path, source });
            }
        };
        let faults = checks::check(&module, exports, |entry| self.rules(entry));
        if faults.is_empty() {
            let record = manifest::record(&module, true, String::new());
            return Ok(Ok((compact(&text), record)));
        }
        drop(module);
        Ok(Err((text, faults)))
    }

    /// Assembles for the `wanted` architectures for which the manifest has no machine code yet, each from the newest
    /// PTX that its GPU would take. The machine code is kept, with the registers of each entry.
    pub fn assemble(
        &self,
        manifest: &mut Manifest,
        ptxas: &Ptxas,
        wanted: &[String],
    ) -> Result<(), BuildError> {
        let mut tasks = Vec::new();
        for arch in wanted.iter().filter(|arch| ptxas.knows(arch)) {
            let number = Arch::parse(arch)?;
            let Some(source) = self
                .archs
                .iter()
                .copied()
                .filter(|built| *built <= number)
                .max()
            else {
                continue;
            };
            for (name, record) in &manifest.modules {
                let Some(ptx) = record.ptx.get(&source.name()) else {
                    continue;
                };
                let is_known = record
                    .machine_code
                    .get(arch)
                    .is_some_and(|code| code.ptx == ptx.fingerprint && self.is_there(&code.code));
                if !is_known {
                    tasks.push((name.clone(), arch.clone(), ptx.clone()));
                }
            }
        }
        let checks = &self.package.metadata.checks;
        let spills = |entry: &str| pattern::lookup(checks, entry).map_or(0, |rules| rules.spills);
        let results = in_parallel(&tasks, |(module, arch, ptx)| {
            let file = self.file_name(module, arch, "cubin");
            let path = self.out.join(&file);
            let usages = ptxas.assemble_allowing(spills, &self.out.join(&ptx.file), arch, &path)?;
            let code = fs::read(&path).map_err(BuildError::io(&path))?;
            let record = CodeRecord {
                code: FileRecord {
                    file,
                    fingerprint: Fingerprint::of(code),
                },
                ptx: ptx.fingerprint.clone(),
            };
            Ok::<_, BuildError>((usages, record))
        });
        let mut failed = Vec::new();
        for ((module, arch, _), result) in tasks.iter().zip(results) {
            match result {
                Ok((usages, code)) => note(manifest.modules.get_mut(module), arch, &usages, code),
                Err(BuildError::Ptxas { path, reason }) => failed.push((path, reason)),
                Err(other) => return Err(other),
            }
        }
        // All of them at once: a change for one is often a change for all.
        let reasons: Vec<&str> = failed.iter().map(|(_, reason)| reason.as_str()).collect();
        match failed.first() {
            Some((path, _)) => Err(BuildError::Ptxas {
                path: path.clone(),
                reason: reasons.join("\n  "),
            }),
            None => Ok(()),
        }
    }

    /// The folder of this crate's own intermediate files.
    fn work(&self) -> Result<PathBuf, BuildError> {
        let work = self.shared.join(&self.package.name);
        fs::create_dir_all(&work).map_err(BuildError::io(&work))?;
        Ok(work)
    }
}

/// A module's text without the checksums of its source files, which change with every line of a file, also with those
/// that no entry of the module comes from. PTX has no checksums.
fn without_checksums(ir: &str) -> String {
    let mut text = String::with_capacity(ir.len());
    for line in ir.lines() {
        let kept = match line.contains("!DIFile(") {
            true => line.split(", checksumkind:").next().unwrap_or(line),
            false => line,
        };
        text.push_str(kept);
        text.push('\n');
    }
    text
}

/// Adds machine code and registers to a module's record.
fn note(
    record: Option<&mut ModuleRecord>,
    arch: &str,
    usages: &BTreeMap<String, Usage>,
    code: CodeRecord,
) {
    let Some(record) = record else { return };
    record.machine_code.insert(arch.to_owned(), code);
    for (name, entry) in &mut record.entries {
        let registers = usages.get(name).map(|usage| usage.registers);
        entry
            .registers
            .extend(registers.map(|registers| (arch.to_owned(), registers)));
    }
}

/// Does `work` for each item, on as many threads as there are cores; the results are in the items' order.
fn in_parallel<T: Sync, R: Send>(items: &[T], work: impl Fn(&T) -> R + Sync) -> Vec<R> {
    let threads = thread::available_parallelism()
        .map_or(1, usize::from)
        .min(items.len());
    let next = AtomicUsize::new(0);
    let take = || {
        let mut done = Vec::new();
        while let Some((at, item)) = {
            let at = next.fetch_add(1, Ordering::Relaxed);
            items.get(at).map(|item| (at, item))
        } {
            done.push((at, work(item)));
        }
        done
    };
    let mut results = thread::scope(|scope| {
        let running: Vec<_> = (0..threads).map(|_| scope.spawn(take)).collect();
        let join = |thread: thread::ScopedJoinHandle<'_, Vec<(usize, R)>>| match thread.join() {
            Ok(results) => results,
            Err(panic) => std::panic::resume_unwind(panic),
        };
        running.into_iter().flat_map(join).collect::<Vec<_>>()
    });
    results.sort_by_key(|(at, _)| *at);
    results.into_iter().map(|(_, result)| result).collect()
}
